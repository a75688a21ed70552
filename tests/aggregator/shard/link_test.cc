// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// A shard's connection with its coordinator over gRPC: welcome, refusals that name both sides, and
// what both do when it ends.

#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "aggregator/auth/gatekeeper.h"
#include "aggregator/shard/coordinator_link.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/wire/status_detail.h"
#include "tests/aggregator/transport/loopback.h"
#include "tests/runtime/await.h"

namespace basin::aggregator {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr char kEndpoint[] = "shard-host:7000";

// Keeps what a link reports.
class Listener : public CoordinatorLink::Listener {
 public:
  void OnLinked(uint64_t link, const ShardWelcome& welcome) override {
    MutexLock lock(mutex_);
    link_ = link;
    welcomes_.push_back(welcome);
  }
  void OnSteps(uint64_t, std::vector<ShardStep> steps, uint64_t) override {
    MutexLock lock(mutex_);
    for (ShardStep& step : steps) steps_.push_back(std::move(step));
  }
  void OnUnlinked(const absl::Status& why) override {
    MutexLock lock(mutex_);
    unlinked_.push_back(why);
  }
  void OnRefused(const absl::Status& why) override {
    MutexLock lock(mutex_);
    refused_.push_back(why);
  }

  std::vector<ShardWelcome> welcomes() const {
    MutexLock lock(mutex_);
    return welcomes_;
  }
  std::vector<ShardStep> steps() const {
    MutexLock lock(mutex_);
    return steps_;
  }
  std::vector<absl::Status> unlinked() const {
    MutexLock lock(mutex_);
    return unlinked_;
  }
  std::vector<absl::Status> refused() const {
    MutexLock lock(mutex_);
    return refused_;
  }
  uint64_t link() const {
    MutexLock lock(mutex_);
    return link_;
  }

 private:
  mutable Mutex mutex_;
  uint64_t link_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<ShardWelcome> welcomes_ ABSL_GUARDED_BY(mutex_);
  std::vector<ShardStep> steps_ ABSL_GUARDED_BY(mutex_);
  std::vector<absl::Status> unlinked_ ABSL_GUARDED_BY(mutex_);
  std::vector<absl::Status> refused_ ABSL_GUARDED_BY(mutex_);
};

LinkOptions OptionsFor(int port, const std::string& name) {
  LinkOptions options;
  options.coordinators = {absl::StrCat("127.0.0.1:", port)};
  options.hello.name = name;
  options.hello.software = "basind test";
  options.least_backoff = absl::Milliseconds(5);
  options.most_backoff = absl::Milliseconds(50);
  return options;
}

size_t ShardsOf(Loopback& loopback) {
  return loopback.Look<size_t>([](const Runner& runner) { return runner.shards(); });
}

TEST(ShardLink, AShardIsWelcomeAndLost) {
  Loopback loopback;
  Listener listener;
  {
    CoordinatorLink link(OptionsFor(loopback.port, "s-1"));
    EXPECT_FALSE(link.view().ok());
    link.Start(listener, kEndpoint);
    Await([&] { return listener.welcomes().size() == 1; });
    EXPECT_TRUE(link.view().ok()) << link.view();
    EXPECT_EQ(listener.welcomes()[0].shard, 1u);
    EXPECT_EQ(listener.welcomes()[0].term,
              loopback.Look<Term>([](const Runner& r) { return r.core().config().term; }));
    Await([&] { return ShardsOf(loopback) == 1; });
    const auto shards = loopback.Look<Shards>([](const Runner& r) { return r.core().shards(); });
    EXPECT_EQ(shards.at(1).name, "s-1");
    EXPECT_EQ(shards.at(1).endpoint, kEndpoint);
    link.Stop();
  }
  Await([&] { return ShardsOf(loopback) == 0; });
  EXPECT_EQ(loopback.notes.OfKind(NoteKind::kShardUp).size(), 1u);
  Await([&] { return loopback.notes.OfKind(NoteKind::kShardLost).size() == 1; });
  EXPECT_TRUE(listener.unlinked().empty());
}

TEST(ShardLink, AConnectionThatEndsIsOpenedAgainAndTheShardGetsAnotherNumber) {
  Loopback loopback;
  Listener listener;
  CoordinatorLink link(OptionsFor(loopback.port, "s-1"));
  link.Start(listener, kEndpoint);
  Await([&] { return listener.welcomes().size() == 1; });
  link.Break(listener.link(), absl::InternalError("for a test"));
  Await([&] { return listener.welcomes().size() == 2; });
  EXPECT_EQ(listener.welcomes()[1].shard, 2u);
  ASSERT_EQ(listener.unlinked().size(), 1u);
  EXPECT_EQ(listener.unlinked()[0].message(), "for a test");
  Await([&] { return ShardsOf(loopback) == 1; });
  // What is meant for the connection before has no effect on this one.
  link.Send(listener.link() - 1, {StreamLost{77}});
  link.Send(listener.link(), {StreamOpened{1, 4711}});
  // Nobody knows the token.
  Await([&] { return !listener.steps().empty(); });
  const ShardStep step = listener.steps()[0];
  ASSERT_EQ(step.actions.size(), 1u);
  EXPECT_EQ(std::get<CloseStream>(step.actions[0]).stream, 1u);
  EXPECT_EQ(listener.welcomes().size(), 2u);
}

TEST(ShardLink, AShardThatDrainsIsReleasedAndStaysAway) {
  Loopback loopback;
  Listener listener;
  CoordinatorLink link(OptionsFor(loopback.port, "s-1"));
  link.Start(listener, kEndpoint);
  Await([&] { return listener.welcomes().size() == 1; });
  EXPECT_TRUE(link.Drain(absl::Minutes(1)));
  EXPECT_EQ(listener.unlinked().size(), 1u);
  EXPECT_FALSE(link.view().ok());
  Await([&] { return loopback.notes.OfKind(NoteKind::kShardDrained).size() == 1; });
  EXPECT_EQ(loopback.notes.OfKind(NoteKind::kShardDraining).size(), 1u);
  EXPECT_EQ(loopback.notes.OfKind(NoteKind::kShardLost).size(), 0u);
  EXPECT_EQ(ShardsOf(loopback), 0u);
  link.Stop();
  EXPECT_EQ(listener.welcomes().size(), 1u);
}

TEST(ShardLink, AShardThatIsNotConnectedHasDrained) {
  Listener listener;
  CoordinatorLink link(OptionsFor(1, "s-1"));
  link.Start(listener, kEndpoint);
  EXPECT_TRUE(link.Drain(absl::Minutes(1)));
  link.Stop();
}

TEST(ShardLink, AShardThatBreaksTheRulesLosesItsConnection) {
  Loopback loopback;
  Listener listener;
  CoordinatorLink link(OptionsFor(loopback.port, "s-1"));
  link.Start(listener, kEndpoint);
  Await([&] { return listener.welcomes().size() == 1; });
  link.Send(listener.link(), {StreamLost{77}});
  Await([&] { return listener.unlinked().size() == 1; });
  EXPECT_THAT(std::string(listener.unlinked()[0].message()),
              HasSubstr("reported about data stream 77, which it has not opened"));
  Await([&] { return listener.welcomes().size() == 2; });
  ReduceDone done;
  done.round = 1;
  done.ranges = {{0, 0, 1}};
  done.digests = {1};
  link.Send(listener.link(), {done});
  Await([&] { return listener.unlinked().size() == 2; });
  EXPECT_THAT(std::string(listener.unlinked()[1].message()),
              HasSubstr("reported a reduction of round 1 of lane 0 that it was not asked for"));
  Await([&] { return listener.welcomes().size() == 3; });
  ShardFrameReceived frame;
  frame.frame = 2;
  frame.stream = 1;
  frame.what.ranges = {{0, 0, 1}};
  frame.what.digests = {1};
  link.Send(listener.link(), {StreamOpened{1, 4711}, frame});
  Await([&] { return listener.unlinked().size() == 3; });
  EXPECT_THAT(std::string(listener.unlinked()[2].message()), HasSubstr("reported frame 2 after 0"));
}

TEST(ShardLink, AnotherVersionIsRefusedAndBothAreNamed) {
  Loopback loopback;
  Listener listener;
  LinkOptions options = OptionsFor(loopback.port, "s-1");
  options.hello.contract_version = kContractVersion + 1;
  CoordinatorLink link(options);
  link.Start(listener, kEndpoint);
  Await([&] { return listener.refused().size() == 1; });
  const absl::Status refused = listener.refused()[0];
  EXPECT_EQ(wire::ToError(refused).code, ErrorCode::kVersionMismatch);
  EXPECT_THAT(std::string(refused.message()),
              AllOf(HasSubstr("Shard s-1 at shard-host:7000 speaks protocol 1 with arithmetic 2"),
                    HasSubstr("this coordinator speaks protocol 1 with arithmetic 1")));
  EXPECT_EQ(link.view(), refused);
  // It is tried again, but reported once.
  Await([&] { return loopback.server.counters().version_mismatches >= 3; });
  EXPECT_EQ(listener.refused().size(), 1u);
  EXPECT_EQ(ShardsOf(loopback), 0u);
}

TEST(ShardLink, ASecondShardWithANameIsRefusedAndBothAreNamed) {
  Loopback loopback;
  Listener first;
  CoordinatorLink link(OptionsFor(loopback.port, "s-1"));
  link.Start(first, kEndpoint);
  Await([&] { return first.welcomes().size() == 1; });
  Listener second;
  CoordinatorLink other(OptionsFor(loopback.port, "s-1"));
  other.Start(second, "other-host:7000");
  Await([&] { return second.refused().size() == 1; });
  EXPECT_EQ(wire::ToError(second.refused()[0]).code, ErrorCode::kFailedPrecondition);
  EXPECT_THAT(std::string(second.refused()[0].message()),
              AllOf(HasSubstr("Shard s-1 at other-host:7000"), HasSubstr(kEndpoint)));
  EXPECT_TRUE(first.unlinked().empty());
  // It is welcome when the first one has gone.
  link.Stop();
  Await([&] { return second.welcomes().size() == 1; });
}

TEST(ShardLink, TheNextLifeOfAShardTakesItsPlace) {
  Loopback loopback;
  Listener first;
  CoordinatorLink link(OptionsFor(loopback.port, "s-1"));
  link.Start(first, kEndpoint);
  Await([&] { return first.welcomes().size() == 1; });
  Listener second;
  CoordinatorLink next(OptionsFor(loopback.port, "s-1"));
  next.Start(second, kEndpoint);
  Await([&] { return second.welcomes().size() == 1; });
  Await([&] { return first.unlinked().size() == 1; });
  EXPECT_EQ(second.welcomes()[0].shard, 2u);
  link.Stop();
}

// ---- tokens

class ShardTokens : public ::testing::Test {
 protected:
  ~ShardTokens() override {
    for (const std::string& file : files_) std::remove(file.c_str());
  }
  static ServerOptions WithGatekeeper(Gatekeeper& gatekeeper) {
    ServerOptions options;
    options.gatekeeper = &gatekeeper;
    return options;
  }
  std::string NewTokenFile(const std::string& role, const std::string& jobs) {
    const std::string token = *NewToken();
    absl::StrAppend(&grants_, role, " ", jobs, " ", ToString(HashOf(token)), " ", role, "\n");
    gatekeeper_.Replace(*Grants::Parse(grants_));
    const std::string path =
        absl::StrCat(::testing::TempDir(), "/basin_shard_token_", getpid(), role);
    std::ofstream(path) << token;
    files_.push_back(path);
    return path;
  }

  std::string grants_ = "# none\n";
  Gatekeeper gatekeeper_;
  std::vector<std::string> files_;
};

TEST_F(ShardTokens, OnlyATokenOfAShardIsGoodForOne) {
  const std::string shard = NewTokenFile("shard", "*");
  const std::string worker = NewTokenFile("worker", "*");
  Loopback loopback(WithGatekeeper(gatekeeper_));

  Listener listener;
  CoordinatorLink none(OptionsFor(loopback.port, "s-0"));
  none.Start(listener, kEndpoint);
  Await([&] { return listener.refused().size() == 1; });
  EXPECT_TRUE(absl::IsUnauthenticated(listener.refused()[0])) << listener.refused()[0];

  Listener by_worker;
  LinkOptions options = OptionsFor(loopback.port, "s-1");
  options.token_file = worker;
  CoordinatorLink wrong(options);
  wrong.Start(by_worker, kEndpoint);
  Await([&] { return by_worker.refused().size() == 1; });
  EXPECT_TRUE(absl::IsPermissionDenied(by_worker.refused()[0])) << by_worker.refused()[0];

  Listener by_shard;
  options.token_file = shard;
  options.hello.name = "s-2";
  CoordinatorLink right(options);
  right.Start(by_shard, kEndpoint);
  Await([&] { return by_shard.welcomes().size() == 1; });
  // A token that is granted no more ends the connection.
  gatekeeper_.Replace(*Grants::Parse("# none\n"));
  loopback.server.EndRevoked();
  Await([&] { return by_shard.unlinked().size() == 1; });
  EXPECT_TRUE(absl::IsUnauthenticated(by_shard.unlinked()[0])) << by_shard.unlinked()[0];
}

}  // namespace
}  // namespace basin::aggregator
