// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Delivery on its own: which stream carries a frame, what it sends again, and when a session has
// lingered.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <utility>
#include <vector>

#include "aggregator/core/delivery.h"

namespace basin::aggregator {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr JobId kThisJob = 7;
constexpr SessionId kA = 1;
constexpr SessionId kB = 2;
constexpr SessionToken kTokenA = 101;
constexpr SessionToken kTokenB = 102;
constexpr uint64_t kSmallFrame = 2 * kChunkBytes;

Config Small() {
  Config config;
  config.frame_bytes = kSmallFrame;
  config.max_streams = 3;
  return config;
}

class DeliveryTest : public testing::Test {
 protected:
  DeliveryTest() : delivery_(Small()) {
    delivery_.OpenSession(kA, kTokenA);
    delivery_.OpenSession(kB, kTokenB);
  }

  template <typename T>
  std::vector<T> Take() {
    std::vector<T> found;
    for (const Action& action : actions_) {
      if (const T* one = std::get_if<T>(&action)) found.push_back(*one);
    }
    return found;
  }

  void Open(StreamId stream, SessionToken token) {
    actions_.clear();
    delivery_.OpenStream(stream, token, kThisJob, actions_);
  }
  void Lose(StreamId stream) {
    actions_.clear();
    delivery_.LoseStream(stream, actions_);
  }
  // Passes one action of the coordinator through and returns what becomes of it.
  template <typename T>
  T Pass(T action) {
    actions_.clear();
    actions_.push_back(std::move(action));
    delivery_.Route(actions_, 0);
    return std::get<T>(actions_[0]);
  }
  // Publishes a result in tensor 0 of round 1, and returns its routes.
  std::vector<Route> Publish(std::vector<SessionId> sessions, uint32_t first = 0,
                             uint32_t count = 1, Ballot ballot = {1, 1}, JobId job = kThisJob,
                             bool again = false) {
    return Pass(aggregator::Publish{job,
                                    0,
                                    1,
                                    ballot,
                                    {{0, first, count}},
                                    count * kChunkBytes,
                                    std::move(sessions),
                                    again})
        .routes;
  }
  // Publishes a result that the session has requested, and may have been sent before.
  std::vector<Route> PublishAgain(SessionId session, uint32_t first, uint32_t count) {
    return Publish({session}, first, count, {1, 1}, kThisJob, true);
  }
  void Acknowledge(SessionId session, ChunkRange range, Ballot ballot = {1, 1},
                   JobId job = kThisJob) {
    Pass(ResultsTaken{session, job, 0, 1, ballot, {range}});
  }
  // The frames that delivery sends on a stream after it opened or after another one was lost.
  std::vector<std::pair<FrameId, StreamId>> Again() {
    std::vector<std::pair<FrameId, StreamId>> sent;
    for (const SendFrame& send : Take<SendFrame>()) sent.emplace_back(send.frame, send.stream);
    return sent;
  }
  std::vector<FrameId> Forgotten() {
    std::vector<FrameId> frames;
    for (const ForgetFrames& forget : Take<ForgetFrames>()) {
      frames.insert(frames.end(), forget.frames.begin(), forget.frames.end());
    }
    return frames;
  }

  Delivery delivery_;
  std::vector<Action> actions_;
  const absl::Time start_ = absl::FromUnixSeconds(1000);
};

TEST_F(DeliveryTest, AStreamIsAcceptedForItsSession) {
  Open(11, kTokenB);
  ASSERT_EQ(Take<AcceptStream>().size(), 1u);
  EXPECT_EQ(Take<AcceptStream>()[0].session, kB);
  EXPECT_EQ(Take<AcceptStream>()[0].job, kThisJob);
  EXPECT_EQ(delivery_.streams(), 1u);
}

TEST_F(DeliveryTest, AStreamOfNoSessionIsClosedWithTheReason) {
  Open(11, 999);
  ASSERT_EQ(Take<CloseStream>().size(), 1u);
  EXPECT_EQ(Take<CloseStream>()[0].why.code(), absl::StatusCode::kNotFound);
  delivery_.OpenStream(12, kTokenA, std::nullopt, actions_);
  EXPECT_EQ(Take<CloseStream>()[1].why.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(Take<AcceptStream>(), IsEmpty());
  EXPECT_EQ(delivery_.streams(), 0u);
}

TEST_F(DeliveryTest, ASessionHasOnlySoManyStreams) {
  for (const StreamId stream : {11, 12, 13}) Open(stream, kTokenA);
  Open(14, kTokenA);
  ASSERT_EQ(Take<CloseStream>().size(), 1u);
  EXPECT_EQ(Take<CloseStream>()[0].why.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(Take<CloseStream>()[0].why.message(), HasSubstr("3 data streams"));
  Lose(12);
  Open(15, kTokenA);
  EXPECT_EQ(Take<AcceptStream>().size(), 1u);
}

TEST_F(DeliveryTest, FramesGoToTheStreamWithTheLeastUnacknowledged) {
  Open(11, kTokenA);
  Open(12, kTokenA);
  EXPECT_THAT(Publish({kA}, 0)[0].streams, ElementsAre(11));
  EXPECT_THAT(Publish({kA}, 1)[0].streams, ElementsAre(12));
  Acknowledge(kA, {0, 1, 1});
  EXPECT_THAT(Publish({kA}, 2)[0].streams, ElementsAre(12));
}

TEST_F(DeliveryTest, AResultIsSentInFrames) {
  Open(11, kTokenA);
  const std::vector<Route> routes = Publish({kA}, 4, 5);
  ASSERT_EQ(routes.size(), 3u);
  EXPECT_EQ(routes[0].ranges, (ChunkRanges{{0, 4, 2}}));
  EXPECT_EQ(routes[2].ranges, (ChunkRanges{{0, 8, 1}}));
  EXPECT_NE(routes[0].frame, routes[1].frame);
}

TEST_F(DeliveryTest, AFrameIsKeptUntilEveryReceiverHasIt) {
  Open(11, kTokenA);
  Open(21, kTokenB);
  const std::vector<Route> routes = Publish({kA, kB}, 0, 2);
  EXPECT_THAT(routes[0].streams, ElementsAre(11, 21));
  Acknowledge(kA, {0, 0, 1});
  EXPECT_THAT(Forgotten(), IsEmpty()) << "half of it";
  Acknowledge(kA, {0, 0, 2});
  EXPECT_THAT(Forgotten(), IsEmpty()) << "worker b does not have it";
  Acknowledge(kA, {0, 0, 2});
  EXPECT_THAT(Forgotten(), IsEmpty()) << "the same acknowledgement counts once";
  Acknowledge(kB, {0, 0, 4});
  EXPECT_THAT(Forgotten(), ElementsAre(routes[0].frame));
}

TEST_F(DeliveryTest, AnAcknowledgementIsThatOfItsJobAndBallot) {
  Open(11, kTokenA);
  const FrameId frame = Publish({kA})[0].frame;
  Acknowledge(kA, {0, 0, 1}, {1, 2});
  EXPECT_THAT(Forgotten(), IsEmpty());
  Acknowledge(kA, {0, 0, 1}, {1, 1}, kThisJob + 1);
  EXPECT_THAT(Forgotten(), IsEmpty());
  Acknowledge(kB, {0, 0, 1});
  EXPECT_THAT(Forgotten(), IsEmpty());
  Acknowledge(kA, {0, 0, 1});
  EXPECT_THAT(Forgotten(), ElementsAre(frame));
}

TEST_F(DeliveryTest, Fault_N2_AnAcknowledgementIsForEveryFrameWithTheChunks) {
  Open(11, kTokenA);
  Publish({kA}, 0);
  Publish({kA}, 1);
  PublishAgain(kA, 0, 2);
  Acknowledge(kA, {0, 0, 2});
  EXPECT_THAT(Forgotten(), ElementsAre(1, 2, 3));
  Open(12, kTokenA);
  Lose(11);
  EXPECT_THAT(Again(), IsEmpty());
}

TEST_F(DeliveryTest, Fault_N2_AnAcknowledgementIsForFramesThatWaitedTogether) {
  Publish({kA}, 0);
  PublishAgain(kA, 0, 1);
  Open(11, kTokenA);
  Acknowledge(kA, {0, 0, 1});
  EXPECT_THAT(Forgotten(), ElementsAre(1, 2));
}

TEST_F(DeliveryTest, Fault_N2_WhatALostStreamHadNotDeliveredIsSentAgainInOrder) {
  Open(11, kTokenA);
  const FrameId first = Publish({kA}, 0)[0].frame;
  const FrameId second = Publish({kA}, 1)[0].frame;
  const FrameId third = Publish({kA}, 2)[0].frame;
  Acknowledge(kA, {0, 1, 1});
  Open(12, kTokenA);
  const FrameId other = Publish({kA}, 3)[0].frame;
  Lose(11);
  EXPECT_THAT(Again(), ElementsAre(std::pair(first, StreamId{12}), std::pair(third, 12)));
  EXPECT_EQ(delivery_.resent(), 2u);
  EXPECT_THAT(Forgotten(), IsEmpty());
  Lose(12);
  EXPECT_THAT(Again(), IsEmpty()) << "there is no stream";
  Open(13, kTokenA);
  EXPECT_THAT(Again(), ElementsAre(std::pair(other, StreamId{13}), std::pair(first, 13),
                                   std::pair(third, 13)));
  EXPECT_NE(second, first);
}

TEST_F(DeliveryTest, WithoutAStreamAFrameWaits) {
  const std::vector<Route> routes = Publish({kA});
  EXPECT_THAT(routes[0].streams, IsEmpty());
  const Route value = Pass(SendBlob{kThisJob, {}, 0, 1, kA}).route;
  EXPECT_THAT(value.streams, IsEmpty());
  ASSERT_NE(value.frame, 0u);
  Open(11, kTokenA);
  EXPECT_THAT(Again(),
              ElementsAre(std::pair(routes[0].frame, StreamId{11}), std::pair(value.frame, 11)));
  EXPECT_THAT(Forgotten(), ElementsAre(value.frame)) << "its receiver asks for it again";
  EXPECT_EQ(delivery_.resent(), 0u) << "it was not sent before";
}

TEST_F(DeliveryTest, AFrameOfAValueIsNotKept) {
  Open(11, kTokenA);
  const Route route = Pass(RelayBlob{kThisJob, {}, 0, 1, {kA}, false}).route;
  EXPECT_THAT(route.streams, ElementsAre(11));
  EXPECT_EQ(route.frame, 0u);
}

TEST_F(DeliveryTest, ANewAttemptMakesTheResultsOfTheOneBeforeUseless) {
  Open(11, kTokenA);
  const FrameId old = Publish({kA}, 0, 1, {1, 1})[0].frame;
  const FrameId other_job = Publish({kB}, 0, 1, {1, 1}, kThisJob + 1)[0].frame;
  Pass(StartAttempt{kThisJob, 0, 1, {1, 2}, {}, {}});
  EXPECT_THAT(Forgotten(), ElementsAre(old));
  const FrameId now = Publish({kA}, 0, 1, {1, 2})[0].frame;
  Pass(StartAttempt{kThisJob, 0, 1, {1, 2}, {}, {}});
  EXPECT_THAT(Forgotten(), IsEmpty()) << "the same attempt, with other contributors";
  Lose(11);
  Open(12, kTokenA);
  EXPECT_THAT(Again(), ElementsAre(std::pair(now, StreamId{12})));
  Open(21, kTokenB);
  EXPECT_THAT(Again(), ElementsAre(std::pair(other_job, StreamId{21})));
}

TEST_F(DeliveryTest, ARoundThatIsOverIsSentNoMore) {
  const FrameId frame = Publish({kA, kB})[0].frame;
  Pass(EndRound{kThisJob + 1, 0, 1});
  EXPECT_THAT(Forgotten(), IsEmpty());
  Pass(EndRound{kThisJob, 0, 1});
  EXPECT_THAT(Forgotten(), ElementsAre(frame));
  Open(11, kTokenA);
  EXPECT_THAT(Again(), IsEmpty());
}

TEST_F(DeliveryTest, ASessionThatIsEndedTakesItsStreamsAndFramesWithIt) {
  Open(11, kTokenA);
  const FrameId frame = Publish({kA})[0].frame;
  Pass(EndSession{kA, {}});
  ASSERT_EQ(Take<CloseStream>().size(), 1u);
  EXPECT_EQ(Take<CloseStream>()[0].stream, 11u);
  EXPECT_TRUE(Take<CloseStream>()[0].why.ok());
  EXPECT_THAT(Forgotten(), ElementsAre(frame));
  EXPECT_FALSE(delivery_.SessionOf(kTokenA).has_value());
  EXPECT_THAT(Publish({kA}), IsEmpty());
}

TEST_F(DeliveryTest, AClosedSessionIsSentNothing) {
  Open(11, kTokenA);
  const FrameId frame = Publish({kA})[0].frame;
  delivery_.CloseSession(kA, "", start_, actions_);
  EXPECT_THAT(Forgotten(), ElementsAre(frame));
  EXPECT_THAT(Publish({kA}), IsEmpty());
  Open(12, kTokenA);
  EXPECT_EQ(Take<CloseStream>()[0].stream, 12u);
}

TEST_F(DeliveryTest, Fault_W1_AProcessThatEndedClosesItsStreamsBeforeItsSessionSettles) {
  Open(11, kTokenA);
  delivery_.CloseSession(kA, "", start_, actions_);
  Lose(11);
  ASSERT_EQ(delivery_.NextDeadline(), start_ + absl::Milliseconds(10));
  EXPECT_THAT(delivery_.TakeLingered(start_ + absl::Milliseconds(9), actions_), IsEmpty());
  const auto lingered = delivery_.TakeLingered(start_ + absl::Milliseconds(10), actions_);
  ASSERT_EQ(lingered.size(), 1u);
  EXPECT_EQ(lingered[0].session, kA);
  EXPECT_TRUE(lingered[0].closed_by_peer);
  EXPECT_EQ(delivery_.sessions(), 1u);
  EXPECT_EQ(delivery_.NextDeadline(), absl::InfiniteFuture());
}

TEST_F(DeliveryTest, ABrokenNetworkLeavesStreamsOpen) {
  Open(11, kTokenA);
  delivery_.CloseSession(kA, "It has sent nothing for 15s.", start_, actions_);
  actions_.clear();
  const auto lingered = delivery_.TakeLingered(start_ + absl::Seconds(1), actions_);
  ASSERT_EQ(lingered.size(), 1u);
  EXPECT_FALSE(lingered[0].closed_by_peer);
  EXPECT_EQ(lingered[0].ended, "It has sent nothing for 15s.");
  EXPECT_EQ(Take<CloseStream>()[0].stream, 11u);
  EXPECT_EQ(delivery_.streams(), 0u);
}

// Its token was revoked, for example, which ends its data streams as well.
TEST_F(DeliveryTest, ASessionThatTheTransportEndedWasNotClosedByItsPeer) {
  Open(11, kTokenA);
  delivery_.CloseSession(kA, "Its token was revoked.", start_, actions_);
  delivery_.LoseStream(11, actions_);
  const auto lingered = delivery_.TakeLingered(start_ + absl::Seconds(1), actions_);
  ASSERT_EQ(lingered.size(), 1u);
  EXPECT_FALSE(lingered[0].closed_by_peer);
}

TEST_F(DeliveryTest, AMalformedMessageIsReportedAsThat) {
  delivery_.CloseSession(kA, "A message was refused.", start_, actions_, /*malformed=*/true);
  delivery_.CloseSession(kB, "Its token was revoked.", start_, actions_);
  const auto lingered = delivery_.TakeLingered(start_ + absl::Seconds(1), actions_);
  ASSERT_EQ(lingered.size(), 2u);
  EXPECT_TRUE(lingered[0].malformed);
  EXPECT_FALSE(lingered[1].malformed);
}

TEST_F(DeliveryTest, ASessionThatIsEndedWhileItSettlesIsReportedToNobody) {
  delivery_.CloseSession(kA, "", start_, actions_);
  Pass(EndSession{kA, {}});
  EXPECT_THAT(delivery_.TakeLingered(start_ + absl::Seconds(1), actions_), IsEmpty());
}

// ---- shards

TEST_F(DeliveryTest, AFrameOfAShardTakesAStreamThatEndsThere) {
  Open(11, kTokenA);
  const auto publish = [&](ShardId shard, uint32_t first) {
    aggregator::Publish result{kThisJob, 0, 1, {1, 1}, {{0, first, 1}}, kChunkBytes, {kA}};
    result.shard = shard;
    return Pass(std::move(result)).routes;
  };
  EXPECT_THAT(publish(5, 0)[0].streams, IsEmpty()) << "it waits for one";
  actions_.clear();
  delivery_.OpenStream(12, kTokenA, kThisJob, actions_, 5);
  EXPECT_EQ(Take<AcceptStream>()[0].shard, 5u);
  ASSERT_EQ(Take<SendFrame>().size(), 1u);
  EXPECT_EQ(Take<SendFrame>()[0].shard, 5u);
  EXPECT_THAT(publish(5, 1)[0].streams, ElementsAre(12));
  EXPECT_THAT(publish(kCoordinatorShard, 2)[0].streams, ElementsAre(11));
  Lose(12);
  EXPECT_THAT(Again(), IsEmpty()) << "the other stream does not end at the shard";
  actions_.clear();
  delivery_.OpenStream(13, kTokenA, kThisJob, actions_, 5);
  EXPECT_THAT(Again(), ElementsAre(std::pair(1, 13), std::pair(2, 13)));
  Acknowledge(kA, {0, 0, 2});
  ASSERT_EQ(Take<ForgetFrames>().size(), 1u);
  EXPECT_EQ(Take<ForgetFrames>()[0].shard, 5u);
}

TEST_F(DeliveryTest, ASessionHasItsLimitOfStreamsAtEachShard) {
  for (StreamId stream = 11; stream < 14; ++stream) Open(stream, kTokenA);
  delivery_.OpenStream(21, kTokenA, kThisJob, actions_, 5);
  EXPECT_EQ(Take<AcceptStream>().back().stream, 21u);
  Open(14, kTokenA);
  EXPECT_EQ(Take<CloseStream>()[0].stream, 14u);
}

TEST_F(DeliveryTest, NothingOfALostShardIsKept) {
  Open(11, kTokenA);
  delivery_.OpenStream(12, kTokenA, kThisJob, actions_, 5);
  aggregator::Publish result{kThisJob, 0, 1, {1, 1}, {{0, 0, 1}}, kChunkBytes, {kA, kB}};
  result.shard = 5;
  Pass(std::move(result));
  EXPECT_EQ(delivery_.frames(), 1u);
  delivery_.LoseShard(5);
  EXPECT_EQ(delivery_.frames(), 0u);
  EXPECT_EQ(delivery_.streams(), 1u);
  Lose(12);  // Heard of late.
  EXPECT_THAT(actions_, IsEmpty());
}

TEST_F(DeliveryTest, AProcessThatEndedIsKnownByItsStreamsToTheCoordinator) {
  delivery_.OpenStream(12, kTokenA, kThisJob, actions_, 5);
  delivery_.CloseSession(kA, "", start_, actions_);
  actions_.clear();
  const auto lingered = delivery_.TakeLingered(start_ + absl::Seconds(1), actions_);
  ASSERT_EQ(lingered.size(), 1u);
  EXPECT_TRUE(lingered[0].closed_by_peer) << "the shard reports the end of its stream later";
  EXPECT_EQ(Take<CloseStream>()[0].shard, 5u);
}

}  // namespace
}  // namespace basin::aggregator
