// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Broadcast: values that one worker holds and others request.

#include <tuple>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/aggregator/core/harness.h"

namespace basin::aggregator {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

const BlobKey kKey{kLane, "w", 3};

struct Three : Cluster {
  explicit Three(Config config = {})
      : Cluster(Settings(1, 3, 3), std::move(config)), a(Join("a")), b(Join("b")), c(Join("c")) {}
  // Sends whole chunks unless `bytes` has another size.
  void Send(const TestWorker& from, uint32_t first, uint32_t count, const BlobKey& key = kKey,
            std::optional<uint64_t> bytes = std::nullopt) {
    log.clear();
    Step(BlobReceived{from.session, key, first, count, bytes.value_or(count * kChunkBytes)});
  }
  // The sessions that received the last frame.
  std::vector<SessionId> Relayed() const {
    const auto relays = Actions<RelayBlob>();
    return relays.empty() ? std::vector<SessionId>{} : relays.back().sessions;
  }
  TestWorker& a;
  TestWorker& b;
  TestWorker& c;
};

Announce Offer(Digest digest = 9, uint64_t chunks = 4, const BlobKey& key = kKey) {
  return Announce{key, Tensor("w", chunks), digest};
}

Get Ask4(uint32_t first = 0, uint32_t count = 4, absl::Duration timeout = absl::Seconds(60)) {
  return Get{kKey, std::nullopt, std::nullopt, first, count, timeout};
}

Get Know(std::optional<TensorSpec> expected = std::nullopt,
         std::optional<WorkerId> source = std::nullopt) {
  return Get{kKey, std::move(expected), std::move(source), 0, 0, absl::Seconds(60)};
}

TEST(Broadcast, Criterion_2_1_AValueIsServedToWhoAsksForIt) {
  Three t;
  t.a.Send(Offer());
  t.b.Send(Know());
  EXPECT_EQ(t.b.Last<BlobKnown>().digest, 9u);
  EXPECT_EQ(t.b.Last<BlobKnown>().source, "a");
  t.b.Send(Ask4());
  EXPECT_EQ(t.a.Last<basin::Ask>().count, 4u);
  t.Send(t.a, 0, 2);
  EXPECT_THAT(t.Relayed(), ElementsAre(t.b.session));
  t.Send(t.a, 2, 2);
  EXPECT_THAT(t.Relayed(), ElementsAre(t.b.session));
  t.Send(t.a, 0, 4);
  EXPECT_THAT(t.Relayed(), IsEmpty()) << "nobody asked for it again";
}

TEST(Broadcast, Criterion_2_1_WhoAsksFirstWaitsAloneUntilItIsThere) {
  Three t;
  t.b.Send(Know());
  EXPECT_EQ(t.b.Count<BlobKnown>(), 0u);
  for (TestWorker* worker : {&t.a, &t.b, &t.c}) worker->Contribute();
  EXPECT_EQ(t.a.lane().last, 1u) << "nobody else is held up";
  t.a.Send(Offer());
  EXPECT_EQ(t.b.Count<BlobKnown>(), 1u);
}

// Its trainer may have stopped serving, and nothing reports that.
TEST(Broadcast, WhoDoesNotAnswerIsPassedOver) {
  Cluster t(Settings(1, 4, 4), {});
  for (const char* worker : {"a", "b", "c", "d"}) t.Join(worker);
  for (const char* holder : {"a", "b", "c"}) t[holder].Send(Offer());
  t["d"].Send(Know());
  const auto asked = [&] {
    return std::vector<size_t>{t["a"].Count<basin::Ask>(), t["b"].Count<basin::Ask>(),
                               t["c"].Count<basin::Ask>()};
  };
  t["d"].Send(Ask4());
  EXPECT_THAT(asked(), ElementsAre(1, 0, 0));
  t["d"].Send(Ask4());
  EXPECT_THAT(asked(), ElementsAre(1, 1, 0));
  t["d"].Send(Ask4());
  EXPECT_THAT(asked(), ElementsAre(1, 1, 1));
  t["d"].Send(Ask4());
  EXPECT_THAT(asked(), ElementsAre(2, 1, 1)) << "all of them in turn";
}

TEST(Broadcast, Criterion_2_2_WhatIsNeverPublishedFailsNamingValueAndRoot) {
  Three t;
  t.b.Send(Know(std::nullopt, "a"));
  t.Sleep(absl::Seconds(59));
  EXPECT_EQ(t.b.Count<GetFailed>(), 0u);
  t.Sleep(absl::Seconds(2));
  const GetFailed failed = t.b.Last<GetFailed>();
  EXPECT_EQ(failed.error.code, ErrorCode::kDeadlineExceeded);
  EXPECT_THAT(failed.error.text, HasSubstr("tensor w (lane model, version 3) from worker a"));
  EXPECT_EQ(t.Notes(NoteKind::kValueFailed), 1u);
}

TEST(Broadcast, EachWaitHasItsOwnDeadline) {
  Three t;
  const auto get = [](uint64_t version, absl::Duration timeout) {
    return Get{{kLane, "w", version}, std::nullopt, std::nullopt, 0, 0, timeout};
  };
  t.b.Send(get(1, absl::Seconds(30)));
  t.b.Send(get(2, absl::Seconds(10)));
  t.c.Send(get(2, absl::Seconds(20)));
  t.b.Send(get(3, absl::InfiniteDuration()));
  t.a.Send(Announce{{kLane, "w", 1}, Tensor("w", 1), 9});
  t.Sleep(absl::Seconds(11));
  EXPECT_EQ(t.b.Last<GetFailed>().key.version, 2u);
  EXPECT_EQ(t.c.Count<GetFailed>(), 0u);
  t.b.Send(get(4, absl::Seconds(1)));
  t.Sleep(absl::Seconds(2));
  EXPECT_EQ(t.b.Last<GetFailed>().key.version, 4u);
  t.Sleep(absl::Seconds(60));
  EXPECT_EQ(t.c.Count<GetFailed>(), 1u);
  EXPECT_EQ(t.b.Count<GetFailed>(), 2u) << "version 1 was announced, 3 may take for ever";
}

TEST(Broadcast, Fault_N12_AWorkerHasSoManyWaits) {
  Config config;
  config.max_values = 3;
  Cluster t(Settings(1, 4, 3), config);
  for (const char* worker : {"a", "b", "c"}) t.Join(worker);
  t["a"].Send(Offer());
  t["b"].Send(Know());
  for (uint32_t chunk = 0; chunk < 3; ++chunk) t["b"].Send(Ask4(chunk, 1));
  EXPECT_EQ(t["b"].Count<GetFailed>(), 0u);
  t["b"].Send(Ask4(3, 1));
  ASSERT_EQ(t["b"].Count<GetFailed>(), 1u);
  EXPECT_EQ(t["b"].Last<GetFailed>().error.code, ErrorCode::kResourceExhausted);
  EXPECT_THAT(t["b"].Last<GetFailed>().error.text,
              HasSubstr("worker b waits for 3 parts of broadcast"));
  t["c"].Send(Know());
  t["c"].Send(Ask4(3, 1));
  EXPECT_EQ(t["c"].Count<GetFailed>(), 0u) << "the others have their own";
  t["b"].Cut();
  t["b"].Connect();
  t["b"].Send(Ask4(3, 1));
  EXPECT_EQ(t["b"].Count<GetFailed>(), 1u) << "a new session has none that wait";
}

TEST(Broadcast, Criterion_2_2_AnotherShapeNamesBothWorkers) {
  Three t;
  t.a.Send(Offer());
  t.b.Send(Know(Tensor("w", 2)));
  EXPECT_EQ(t.b.Last<GetFailed>().error.code, ErrorCode::kMismatch);
  EXPECT_THAT(t.b.Last<GetFailed>().error.text,
              HasSubstr("worker b expects tensor w (lane model, version 3) as f32[131072] but "
                        "worker a has it as f32[262144]"));
}

TEST(Broadcast, OnlyTheRootWhenOneIsNamed) {
  Three t;
  t.a.Send(Offer(1));
  t.b.Send(Know(std::nullopt, "c"));
  EXPECT_EQ(t.b.Count<BlobKnown>(), 0u);
  t.c.Send(Offer(2));
  EXPECT_EQ(t.b.Last<BlobKnown>().source, "c");
}

// Only the root may serve the value, so the request cannot succeed any more.
TEST(Broadcast, Fault_W18_WhoAsksARootThatHasLeftIsToldAtOnce) {
  Three t;
  t.b.Send(Know(std::nullopt, "a"));
  t.c.Send(Know(std::nullopt, "unknown"));
  t.a.Send(Leave{});
  EXPECT_EQ(t.b.Last<GetFailed>().error.code, ErrorCode::kUnavailable);
  EXPECT_THAT(t.b.Last<GetFailed>().error.text, HasSubstr("requests tensor w"));
  t.b.Send(Know(std::nullopt, "a"));
  EXPECT_EQ(t.b.Count<GetFailed>(), 2u);
  EXPECT_EQ(t.c.Count<GetFailed>(), 0u) << "it may come";
  t.b.Send(Know());
  EXPECT_EQ(t.b.Count<GetFailed>(), 2u) << "anybody else may announce it";
}

TEST(Broadcast, NobodyServesItself) {
  Three t;
  t.a.Send(Offer());
  t.a.Send(Know());
  EXPECT_EQ(t.a.Count<BlobKnown>(), 0u);
}

TEST(Broadcast, Fault_W18_AnotherHolderOfTheSameValueTakesOver) {
  Three t;
  t.a.Send(Offer());
  t.c.Send(Offer());
  t.b.Send(Know());
  t.b.Send(Ask4());
  EXPECT_EQ(t.a.Count<basin::Ask>(), 1u) << "the lowest id";
  t.Step(WorkerExited{kJob, "a"});
  EXPECT_EQ(t.c.Count<basin::Ask>(), 1u);
  t.Send(t.c, 0, 4);
  EXPECT_THAT(t.Relayed(), ElementsAre(t.b.session));
  EXPECT_EQ(t.b.Count<GetFailed>(), 0u);
}

TEST(Broadcast, Fault_W18_AReceiverNeverMixesTwoValues) {
  Three t;
  t.a.Send(Offer(9));
  t.c.Send(Offer(10));  // It has other content.
  t.b.Send(Know());
  t.b.Send(Ask4());
  t.Step(WorkerExited{kJob, "a"});
  EXPECT_EQ(t.c.Count<basin::Ask>(), 0u);
  EXPECT_EQ(t.b.Last<GetFailed>().error.code, ErrorCode::kUnavailable);
  EXPECT_THAT(t.b.Last<GetFailed>().error.text, HasSubstr("worker a was lost"));
}

TEST(Broadcast, AHolderThatIsAwayIsAskedAgainWhenItIsBack) {
  Three t;
  t.a.Send(Offer());
  t.b.Send(Know());
  t.b.Send(Ask4());
  t.a.Cut();
  t.a.Connect();
  EXPECT_EQ(t.a.Count<basin::Ask>(), 2u);
  t.Send(t.a, 0, 4);
  EXPECT_THAT(t.Relayed(), ElementsAre(t.b.session));
}

TEST(Broadcast, ALossDoesNotFailWhatIsAskedOfOthers) {
  Three t;
  t.a.Send(Offer());
  t.b.Send(Know());
  t.a.Cut();  // It is away, and b's request waits for it.
  t.b.Send(Ask4());
  t.Step(WorkerExited{kJob, "c"});
  EXPECT_EQ(t.b.Count<GetFailed>(), 0u);
  t.a.Connect();
  EXPECT_EQ(t.a.Count<basin::Ask>(), 1u);
}

TEST(Broadcast, ANewerVersionReplacesTheOlderOfItsHolder) {
  Three t;
  t.a.Send(Offer());
  t.b.Send(Know());
  t.b.Send(Ask4());
  BlobKey newer = kKey;
  newer.version = 4;
  t.a.Send(Offer(11, 4, newer));
  EXPECT_EQ(t.b.Last<GetFailed>().error.code, ErrorCode::kUnavailable);
  EXPECT_THAT(t.b.Last<GetFailed>().error.text, HasSubstr("worker a has a newer version"));
  t.c.Send(Know());
  EXPECT_EQ(t.c.Count<BlobKnown>(), 0u);
}

TEST(Broadcast, RequestsEndWithTheirSession) {
  Three t;
  t.a.Send(Offer());
  t.b.Send(Know());
  t.b.Send(Ask4());
  t.b.Cut();
  t.Send(t.a, 0, 4);
  EXPECT_THAT(t.Relayed(), IsEmpty());
  t.b.Connect();
  t.b.Send(Ask4());
  t.Send(t.a, 0, 4);
  EXPECT_THAT(t.Relayed(), ElementsAre(t.b.session));
}

TEST(Broadcast, ARepeatedRequestReplacesTheFirst) {
  Three t;
  t.b.Send(Know());
  t.b.Send(Know());
  t.a.Send(Offer());
  EXPECT_EQ(t.b.Count<BlobKnown>(), 1u);
}

TEST(Broadcast, WhatIsOutOfBoundsIsRefused) {
  Three t;
  t.a.Send(Offer());
  for (const auto& [first, count] : {std::pair<uint32_t, uint32_t>{4, 1}, {0, 5}, {~0u, ~0u}}) {
    t.b.inbox.clear();
    t.b.Send(Ask4(first, count));
    EXPECT_EQ(t.b.Last<GetFailed>().error.code, ErrorCode::kInvalidArgument) << first;
  }
  EXPECT_EQ(t.a.Count<basin::Ask>(), 0u);
  Announce broken = Offer();
  broken.spec.dtype = DType::kUnspecified;
  t.a.Send(broken);
  EXPECT_EQ(t.a.rejected(), ErrorCode::kInvalidArgument);
  t.Send(t.a, ~0u, ~0u);
  t.Send(t.a, 0, 0);
  t.Send(t.a, 0, 1, BlobKey{"no", "such", 1});
}

TEST(Broadcast, ValuesAndRequestsAreBounded) {
  Config config;
  config.max_values = 2;
  Three t(config);
  for (uint64_t i = 0; i < 2; ++i) {
    t.a.Send(Announce{{kLane, "t" + std::to_string(i), 0}, Tensor("t"), 1});
  }
  t.a.Send(Announce{{kLane, "t2", 0}, Tensor("t"), 1});
  EXPECT_EQ(t.a.rejected(), ErrorCode::kResourceExhausted);
  t.b.Send(Know());
  EXPECT_EQ(t.b.Last<GetFailed>().error.code, ErrorCode::kResourceExhausted);

  Three u;
  for (uint32_t i = 0; i < 65; ++i) u.b.Send(Ask4(i, 1));
  EXPECT_EQ(u.b.Count<GetFailed>(), 1u);
  EXPECT_EQ(u.b.Last<GetFailed>().error.code, ErrorCode::kResourceExhausted);
}

// 65,536 of the longest names are more than a small aggregator may take.
TEST(Broadcast, Fault_N11_NamesOfValuesAreChargedAndBounded) {
  Config config;
  config.memory_bytes = uint64_t{64} << 20;
  Three t(config);
  const uint64_t before = t.core->reserved_bytes();
  const auto announce = [&](int i) {
    const std::string name = std::to_string(i) + std::string(240, 'n');
    t.a.Send(Announce{{kLane, name, 0}, Tensor(name), 1});
  };
  constexpr int kSome = 1000;
  for (int i = 0; i < kSome; ++i) announce(i);
  EXPECT_EQ(t.a.Count<Rejected>(), 0u);
  EXPECT_GE(t.core->reserved_bytes() - before, uint64_t{kSome} * 3 * 240);
  for (int i = kSome; i < 200'000 && t.a.Count<Rejected>() == 0; ++i) announce(i);
  EXPECT_EQ(t.a.rejected(), ErrorCode::kResourceExhausted);
  EXPECT_THAT(t.a.Last<Rejected>().error.text, HasSubstr("bytes are free"));
  EXPECT_LE(t.core->reserved_bytes(), config.memory_bytes);
  // What it held comes back.
  t.a.Send(Leave{});
  EXPECT_LE(t.core->reserved_bytes(), before);
}

TEST(Broadcast, WhatNobodyHoldsOrWantsTakesNoRoom) {
  Config config;
  config.max_values = 1;
  Three t(config);
  for (int i = 0; i < 3; ++i) {
    t.b.Send(Get{{kLane, "t" + std::to_string(i), 0},
                 std::nullopt,
                 std::nullopt,
                 0,
                 0,
                 absl::InfiniteDuration()});
    EXPECT_EQ(t.b.Count<GetFailed>(), 0u);
    t.b.Cut();
    t.b.Connect();
  }
}

// ---- kept values

// The frames that were sent from the kept value, as {session, first, count}.
std::vector<std::tuple<SessionId, uint32_t, uint32_t>> Kept(const Cluster& cluster) {
  std::vector<std::tuple<SessionId, uint32_t, uint32_t>> sent;
  for (const SendBlob& send : cluster.Actions<SendBlob>()) {
    sent.emplace_back(send.session, send.first, send.count);
  }
  return sent;
}

// The whole value has passed from a to b.
struct Kept4 : Three {
  explicit Kept4(Config config = {}) : Three(std::move(config)) {
    a.Send(Offer());
    b.Send(Know());
    b.Send(Ask4());
    Send(a, 0, 2);
    Send(a, 2, 2);
    log.clear();
    a.inbox.clear();
  }
};

TEST(ValueCache, AHolderSendsAValueOnce) {
  Kept4 t;
  t.c.Send(Know());
  t.c.Send(Ask4());
  EXPECT_EQ(t.a.Count<basin::Ask>(), 0u);
  EXPECT_THAT(Kept(t), ElementsAre(std::make_tuple(t.c.session, 0u, 4u)));
  EXPECT_GE(t.core->reserved_bytes(), 4 * kChunkBytes);
}

TEST(ValueCache, WhatIsNotKeptYetIsAskedOfTheHolder) {
  Three t;
  t.a.Send(Offer());
  for (TestWorker* worker : {&t.b, &t.c}) worker->Send(Know());
  t.b.Send(Ask4());
  t.Send(t.a, 0, 1);
  t.c.Send(Ask4());
  EXPECT_THAT(Kept(t), ElementsAre(std::make_tuple(t.c.session, 0u, 1u)));
  EXPECT_EQ(t.a.Last<basin::Ask>().first, 1u);
  EXPECT_EQ(t.a.Last<basin::Ask>().count, 3u);
}

TEST(ValueCache, FramesAreNoLongerThanFrames) {
  Config config;
  config.frame_bytes = 3 * kChunkBytes;
  Kept4 t(config);
  t.c.Send(Know());
  t.c.Send(Ask4());
  EXPECT_THAT(Kept(t), ElementsAre(std::make_tuple(t.c.session, 0u, 3u),
                                   std::make_tuple(t.c.session, 3u, 1u)));
}

TEST(ValueCache, Fault_W18_WhoWasToldOfItGetsItAlsoWhenEveryHolderIsLost) {
  Kept4 t;
  t.c.Send(Know());
  t.Step(WorkerExited{kJob, "a"});
  t.c.Send(Ask4());
  EXPECT_THAT(Kept(t), ElementsAre(std::make_tuple(t.c.session, 0u, 4u)));
  EXPECT_EQ(t.c.Count<GetFailed>(), 0u);
}

TEST(ValueCache, NobodyElseIsToldOfAValueThatNobodyHolds) {
  Kept4 t;
  t.Step(WorkerExited{kJob, "a"});
  t.c.Send(Know());
  EXPECT_EQ(t.c.Count<BlobKnown>(), 0u);
  t.b.Cut();  // It is the last worker that knows the value.
  EXPECT_EQ(t.held_blobs(), 0u);
}

TEST(ValueCache, AnotherContentUnderTheSameKeyIsNotMixedWithWhatIsKept) {
  Kept4 t;
  t.c.Send(Offer(10));
  t.b.Cut();
  t.b.Connect();
  t.b.Send(Know(std::nullopt, "c"));
  EXPECT_EQ(t.b.Last<BlobKnown>().digest, 10u);
  t.b.Send(Ask4());
  EXPECT_THAT(Kept(t), IsEmpty());
  EXPECT_EQ(t.c.Last<basin::Ask>().count, 4u);
}

TEST(ValueCache, WhoAsksAgainForWhatItWasSentGetsItFromTheHolder) {
  Kept4 t;
  t.c.Send(Know());
  t.c.Send(Ask4());
  t.log.clear();
  t.c.Send(Ask4());  // The chunks did not arrive, or their digest was wrong.
  EXPECT_EQ(t.a.Last<basin::Ask>().count, 4u);
  EXPECT_THAT(Kept(t), IsEmpty());
  EXPECT_EQ(t.held_blobs(), 0u);
  t.Send(t.a, 0, 4);
  EXPECT_THAT(t.Relayed(), ElementsAre(t.c.session));
  EXPECT_EQ(t.held_blobs(), 1u) << "and is kept anew";
}

TEST(ValueCache, ANewerVersionOfTheOnlyHolderEndsIt) {
  Kept4 t;
  BlobKey newer = kKey;
  newer.version = 4;
  t.a.Send(Offer(11, 4, newer));
  EXPECT_EQ(t.held_blobs(), 1u) << "b is still at it";
  t.b.Cut();
  EXPECT_EQ(t.held_blobs(), 0u);
}

TEST(ValueCache, StaysWithinItsShareOfTheBudget) {
  Config config;
  config.memory_bytes = 64 * kChunkBytes;  // A quarter is for values.
  Three t(config);
  for (const char* name : {"w1", "w2", "w3", "w4", "w5"}) {
    const BlobKey key{kLane, name, 3};
    t.a.Send(Announce{key, Tensor(name, 4), 9});
    t.b.Send(Get{key, std::nullopt, std::nullopt, 0, 0, absl::Seconds(60)});
    t.b.Send(Get{key, std::nullopt, std::nullopt, 0, 4, absl::Seconds(60)});
    t.Send(t.a, 0, 4, key);
    EXPECT_EQ(t.Relayed().size(), 1u);
  }
  EXPECT_EQ(t.held_blobs(), 4u) << "the one used longest ago has made room";
  const BlobKey big{kLane, "big", 3};
  t.a.Send(Announce{big, Tensor("big", 17), 9});
  t.b.Send(Get{big, std::nullopt, std::nullopt, 0, 0, absl::Seconds(60)});
  t.b.Send(Get{big, std::nullopt, std::nullopt, 0, 4, absl::Seconds(60)});
  t.Send(t.a, 0, 4, big);
  EXPECT_EQ(t.held_blobs(), 4u) << "one that can never fit pushes nothing out";
}

// The budget is charged for the announced size.
TEST(ValueCache, Fault_N11_KeepsNothingOfAnotherSizeThanWasAnnounced) {
  Three t;
  t.a.Send(Offer());
  t.b.Send(Know());
  t.b.Send(Ask4());
  t.Send(t.a, 0, 2, kKey, 3 * kChunkBytes);
  EXPECT_THAT(t.Relayed(), ElementsAre(t.b.session)) << "who asked sees that it is wrong";
  EXPECT_EQ(t.held_blobs(), 0u);
  t.Send(t.a, 2, 2);
  EXPECT_EQ(t.held_blobs(), 1u);
}

TEST(ValueCache, GivesWayToRounds) {
  Config config;
  config.memory_bytes = 7 * 12 * kChunkBytes + 4096;  // It holds seven lanes and nothing else.
  config.frame_bytes = kChunkBytes;
  config.window_bytes = config.result_window_bytes = kChunkBytes;
  Kept4 t(config);
  ASSERT_EQ(t.held_blobs(), 1u);
  // Lanes take what is free, until one more needs the memory of the value.
  for (int lane = 0; t.held_blobs() == 1 && lane < 20; ++lane) {
    t.a.Send(Register{"more" + std::to_string(lane), LaneKind::kGradient, {Tensor("x")}});
  }
  EXPECT_EQ(t.held_blobs(), 0u);
  EXPECT_EQ(t.Notes(NoteKind::kLaneWaitsForMemory), 0u);
  for (const Lane& lane : t.core->FindJob(kJob)->lanes) {
    EXPECT_EQ(lane.memory.frame, kChunkBytes) << lane.name;
  }
}

TEST(ValueCache, IsGivenBackWhenTheJobIsForgotten) {
  Kept4 t;
  t.Step(WorkerExited{kJob, "b"});
  for (const char* id : {"a", "c"}) t.Step(WorkerExited{kJob, id});
  EXPECT_EQ(t.held_blobs(), 0u);
  t.Sleep(absl::Minutes(30));
  EXPECT_EQ(t.core->reserved_bytes(), 0u);
}

TEST(Broadcast, WaitsAreExtendedWhenThisProcessWasStopped) {
  Three t;
  t.b.Send(Know());
  t.Stall(absl::Seconds(100));
  t.Step(Tick{});
  EXPECT_EQ(t.b.Count<GetFailed>(), 0u);
}

}  // namespace
}  // namespace basin::aggregator
