// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "aggregator/leadership/etcd/etcd_value.h"

#include <nlohmann/json.hpp>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace basin::aggregator {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

const absl::Time kNow = absl::FromUnixSeconds(1800000000) + absl::Microseconds(5);
const LeaderRecord kRecord = {1800000007, "a", "basin-0.basin:29600", absl::Milliseconds(2500)};

TEST(EtcdValue, ShowsWhoLeadsToPeople) {
  EXPECT_EQ(nlohmann::json::parse(ValueOf(kRecord, "17", "", kNow)), nlohmann::json::parse(R"({
    "format": "basin-leader 1",
    "holder": "a",
    "address": "basin-0.basin:29600",
    "fence": 1800000007,
    "lease_ns": 2500000000,
    "acquired": "2027-01-15T08:00:00.000005Z",
    "renewed": "2027-01-15T08:00:00.000005Z",
    "nonce": "17"
  })"));
}

TEST(EtcdValue, IsReadAsItWasWritten) {
  const auto read = RecordInValue(ValueOf(kRecord, "17", "", kNow));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->record.Fields(), kRecord.Fields());
  EXPECT_EQ(read->nonce, "17");
}

TEST(EtcdValue, TellsSinceWhenItsHolderLeads) {
  const std::string first = ValueOf(kRecord, "1", "", kNow);
  const std::string renewed = ValueOf(kRecord, "2", first, kNow + absl::Seconds(1));
  EXPECT_EQ(nlohmann::json::parse(renewed)["acquired"], "2027-01-15T08:00:00.000005Z");
  EXPECT_EQ(nlohmann::json::parse(renewed)["renewed"], "2027-01-15T08:00:01.000005Z");
  LeaderRecord other = kRecord;
  other.holder = "b";
  const std::string taken = ValueOf(other, "3", renewed, kNow + absl::Seconds(2));
  EXPECT_EQ(nlohmann::json::parse(taken)["acquired"], "2027-01-15T08:00:02.000005Z");
}

TEST(EtcdValue, OfSomethingElseIsAnErrorThatShowsItsBeginning) {
  nlohmann::json other = nlohmann::json::parse(ValueOf(kRecord, "17", "", kNow));
  other["format"] = "basin-leader 2";
  nlohmann::json negative = nlohmann::json::parse(ValueOf(kRecord, "17", "", kNow));
  negative["lease_ns"] = -1;
  nlohmann::json endless = nlohmann::json::parse(ValueOf(kRecord, "17", "", kNow));
  endless["lease_ns"] = ~uint64_t{0};
  for (const std::string& wrong :
       {std::string(), std::string("10.0.0.7:2379"), std::string("[]"), std::string("{}"),
        other.dump(), negative.dump(), endless.dump()}) {
    const absl::Status refused = RecordInValue(wrong).status();
    EXPECT_TRUE(absl::IsUnavailable(refused)) << wrong;
    EXPECT_THAT(std::string(refused.message()),
                AllOf(HasSubstr("no record of a leader"), HasSubstr("a key of its own")));
  }
  const std::string text(RecordInValue("\x1b[31m" + std::string(1000, 'x')).status().message());
  EXPECT_THAT(text, AllOf(HasSubstr("xxx..."), HasSubstr("\\u001b"), Not(HasSubstr("\x1b"))));
  EXPECT_LT(text.size(), 400u);
}

}  // namespace
}  // namespace basin::aggregator
