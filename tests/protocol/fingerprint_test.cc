// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "protocol/fingerprint.h"

#include <cmath>
#include <set>
#include <string>
#include <variant>

#include <gtest/gtest.h>

#include "protocol/messages.h"

namespace basin {
namespace {

template <typename A, typename B>
bool Same(const A& a, const B& b) {
  return Fingerprint::Of(a) == Fingerprint::Of(b);
}

TEST(Fingerprint, EqualValuesAgree) {
  Hello hello;
  hello.job = "j";
  hello.worker = "w";
  EXPECT_TRUE(Same(hello, Hello(hello)));
  EXPECT_TRUE(Same(std::string("abcdefghij"), std::string("abcdefghij")));
  EXPECT_FALSE(Fingerprint::Of(1) < Fingerprint::Of(1));
}

TEST(Fingerprint, TellsNumbersTextsAndTimesApart) {
  EXPECT_FALSE(Same(1, 2));
  EXPECT_FALSE(Same(0.0, -0.0));
  EXPECT_FALSE(Same(1.0, std::nextafter(1.0, 2.0)));
  EXPECT_FALSE(Same(std::string("a"), std::string("b")));
  EXPECT_FALSE(Same(std::string("a"), std::string(std::string("a\0", 2))));
  EXPECT_FALSE(Same(std::string("abcdefgh"), std::string("abcdefgi")));
  EXPECT_FALSE(Same(std::string("abcdefghi"), std::string("abcdefghj")));
  EXPECT_FALSE(Same(absl::FromUnixNanos(1), absl::FromUnixNanos(2)));
  EXPECT_FALSE(Same(absl::InfiniteFuture(), absl::InfinitePast()));
  EXPECT_FALSE(Same(absl::Nanoseconds(1), absl::Nanoseconds(2)));
}

TEST(Fingerprint, TellsContainersApart) {
  using Strings = std::vector<std::string>;
  EXPECT_FALSE(Same(Strings{"a", "bc"}, Strings{"ab", "c"}));
  EXPECT_FALSE(Same(Strings{}, Strings{""}));
  EXPECT_FALSE(Same(std::optional<int>(), std::optional<int>(0)));
  EXPECT_FALSE(Same(std::variant<int, bool>(1), std::variant<int, bool>(true)));
  EXPECT_FALSE(Same(std::map<int, int>{{1, 2}}, std::map<int, int>{{2, 1}}));
  EXPECT_FALSE(Same(std::deque<int>{1, 2}, std::deque<int>{2, 1}));
  EXPECT_FALSE(Same(std::set<int>{1}, std::set<int>{2}));
  EXPECT_FALSE(Same(std::pair<int, int>{1, 2}, std::pair<int, int>{2, 1}));
  EXPECT_FALSE(Same(absl::InlinedVector<int, 2>{1}, absl::InlinedVector<int, 2>{1, 1}));
}

TEST(Fingerprint, SeesEveryFieldOfAMessage) {
  const Begin begin;
  const auto differs = [&](auto&& change) {
    Begin other;
    change(other);
    return !Same(begin, other) && begin != other;
  };
  EXPECT_TRUE(differs([](Begin& b) { b.lane = 1; }));
  EXPECT_TRUE(differs([](Begin& b) { b.round = 1; }));
  EXPECT_TRUE(differs([](Begin& b) { b.spec.loss_scale = 2; }));
  EXPECT_TRUE(differs([](Begin& b) { b.spec.layout = 1; }));
  EXPECT_TRUE(differs([](Begin& b) { b.spec.auto_predivide = true; }));
  EXPECT_TRUE(differs([](Begin& b) { b.counts.tokens = 0; }));
  EXPECT_TRUE(differs([](Begin& b) { b.step_label = 1; }));
  EXPECT_TRUE(differs([](Begin& b) { b.compares_step = true; }));
  EXPECT_TRUE(differs([](Begin& b) { b.call = "SUM"; }));
  EXPECT_TRUE(differs([](Begin& b) { b.samples.push_back({1, 2}); }));
  EXPECT_TRUE(differs([](Begin& b) { b.optimizer = 1; }));
  EXPECT_TRUE(differs([](Begin& b) { b.optimizer_numbers.push_back("lr=0.1"); }));
}

TEST(Fingerprint, HasNoCollisionAmongManySmallStates) {
  std::set<Fingerprint> seen;
  for (uint64_t a = 0; a < 100; ++a) {
    for (uint64_t b = 0; b < 100; ++b) {
      EXPECT_TRUE(seen.insert(Fingerprint::Of(std::pair<uint64_t, uint64_t>(a, b))).second);
    }
  }
  EXPECT_NE(FingerprintHash()(Fingerprint::Of(1)), FingerprintHash()(Fingerprint::Of(2)));
}

}  // namespace
}  // namespace basin
