// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// A shard step by step, without a coordinator or sockets: it reports what arrives, holds it until
// it is answered, and reduces and sends what it is told to, with the bits of the oracle. And the
// coordinator's view of it: the numbers of streams, and what a shard cannot have seen.

#include "aggregator/shard/shard_runner.h"

#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "aggregator/engine/remote_shards.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/aggregator/engine/in_process.h"

namespace basin::aggregator {
namespace {

using ::testing::HasSubstr;

constexpr JobId kJobId = 3;
constexpr LaneIndex kLaneIndex = 2;
constexpr size_t kElements = kChunkFloats + 100;  // Two chunks.

class ShardRunnerTest : public ::testing::Test {
 protected:
  ShardRunnerTest() : runner_(Dependencies()) {}

  ShardDependencies Dependencies() {
    ShardDependencies dependencies;
    dependencies.bytes.transport = &transport_;
    dependencies.bytes.reduce = [this](std::unique_ptr<Reduction> reduction) {
      RunPart(*reduction, *reducer_, pool_, std::numeric_limits<uint64_t>::max());
      reductions_.push_back(std::move(reduction));
    };
    dependencies.report = [this](std::vector<ShardEvent> events) {
      for (ShardEvent& event : events) events_.push_back(std::move(event));
    };
    return dependencies;
  }

  // The next event, which is of this type.
  template <typename T>
  T Next() {
    runner_.Flush();
    if (events_.empty() || !std::holds_alternative<T>(events_.front())) {
      ADD_FAILURE() << "not the next event";
      return {};
    }
    T event = std::get<T>(std::move(events_.front()));
    events_.erase(events_.begin());
    return event;
  }
  bool Silent() {
    runner_.Flush();
    return events_.empty();
  }
  absl::Status Step(std::vector<ShardAction> actions, ShardFrame frame = 0) {
    return runner_.Step({frame, std::move(actions), false}, now_);
  }

  void Name() {
    ASSERT_TRUE(Step({NameTensors{kJobId, kLaneIndex, 0, {F32("w", kElements)}}}).ok());
  }
  void OpenStream(StreamId stream, SessionId session) {
    runner_.StreamOpened(stream, 99);
    EXPECT_EQ(Next<StreamOpened>().token, 99u);
    ASSERT_TRUE(Step({ShardAcceptStream{{stream, session, kJobId}, "job"}}).ok());
  }

  static IncomingFrame FrameOf(const std::string& bytes, uint32_t first, uint32_t count,
                               bool breaks = false) {
    IncomingFrame frame;
    frame.header = ContributionHeader{kLaneIndex, 1, {0, first, count}};
    std::string part = bytes.substr(first * kChunkBytes, count * kChunkBytes);
    frame.payload_bytes = part.size();
    frame.payload = std::make_shared<StringPayload>(std::move(part), 100000);
    frame.contents = HashChunks(frame.payload->pieces(), kChunkBytes);
    const kernels::TensorKey key("w");
    for (uint32_t i = 0; i < count; ++i) {
      frame.claimed.push_back(DigestOf(key, first + i, frame.contents[i]) + (breaks ? 1 : 0));
    }
    return frame;
  }
  uint64_t ConsumedOn(StreamId stream) {
    uint64_t consumed = 0;
    transport_.Await(stream, [&](QueueTransport::Connection& connection) {
      consumed = connection.consumed;
      return true;
    });
    return consumed;
  }
  std::string WhyClosed(StreamId stream) {
    std::string why;
    transport_.Await(stream, [&](QueueTransport::Connection& connection) {
      why = connection.closed ? std::string(connection.why.message()) : "open";
      return true;
    });
    return why;
  }
  KeepChunks Keep(uint64_t incarnation, ChunkRanges ranges) {
    KeepChunks keep;
    keep.job = kJobId;
    keep.lane = kLaneIndex;
    keep.round = 1;
    keep.contributor = {1, incarnation};
    keep.ranges = std::move(ranges);
    return keep;
  }

  const absl::Time now_ = absl::UnixEpoch();
  QueueTransport transport_;
  std::unique_ptr<kernels::Reducer> reducer_ = kernels::MakeCpuReducer();
  BufferPool pool_{0};
  std::vector<std::unique_ptr<Reduction>> reductions_;
  std::vector<ShardEvent> events_;
  ShardRunner runner_;
};

TEST_F(ShardRunnerTest, AFrameIsHeldUntilItIsAnswered) {
  Name();
  OpenStream(5, 70);
  const std::string bytes = GradientOf(0, kElements);
  runner_.FrameReceived(5, FrameOf(bytes, 0, 2));
  const auto received = Next<ShardFrameReceived>();
  EXPECT_EQ(received.frame, 1u);
  EXPECT_EQ(received.stream, 5u);
  EXPECT_EQ(received.what.session, 0u);
  EXPECT_EQ(received.what.bytes, bytes.size());
  EXPECT_EQ(received.what.digests.size(), 2u);
  EXPECT_EQ(runner_.unanswered_frames(), 1u);
  EXPECT_EQ(ConsumedOn(5), 0u);
  // A part of the answer.
  ASSERT_TRUE(runner_.Step({1, {Keep(1, {{0, 0, 1}})}, true}, now_).ok());
  EXPECT_EQ(runner_.unanswered_frames(), 1u);
  EXPECT_EQ(ConsumedOn(5), 0u);
  ASSERT_TRUE(Step({Keep(1, {{0, 1, 1}})}, 1).ok());
  EXPECT_EQ(runner_.unanswered_frames(), 0u);
  EXPECT_EQ(ConsumedOn(5), bytes.size());
  EXPECT_EQ(runner_.bytes().parked_bytes(), bytes.size());
}

TEST_F(ShardRunnerTest, AFrameThatIsAnsweredWithNothingIsDropped) {
  Name();
  OpenStream(5, 70);
  const std::string bytes = GradientOf(0, kElements);
  runner_.FrameReceived(5, FrameOf(bytes, 0, 2));
  ASSERT_TRUE(Step({}, Next<ShardFrameReceived>().frame).ok());
  EXPECT_EQ(ConsumedOn(5), bytes.size());
  EXPECT_EQ(runner_.bytes().parked_bytes(), 0u);
}

// The worker heard of the tensor before this shard did.
TEST_F(ShardRunnerTest, AFrameOfATensorThatIsNamedLaterIsTakenThen) {
  OpenStream(5, 70);
  const std::string bytes = GradientOf(0, kElements);
  runner_.FrameReceived(5, FrameOf(bytes, 0, 2));
  const auto unknown = Next<ShardFrameUnknown>();
  EXPECT_EQ(unknown.stream, 5u);
  Name();
  ASSERT_TRUE(Step({}, unknown.frame).ok());
  EXPECT_EQ(ConsumedOn(5), 0u);
  const auto received = Next<ShardFrameReceived>();
  EXPECT_EQ(received.frame, unknown.frame + 1);
  ASSERT_TRUE(Step({Keep(1, {{0, 0, 2}})}, received.frame).ok());
  EXPECT_EQ(ConsumedOn(5), bytes.size());
}

TEST_F(ShardRunnerTest, AFrameOfATensorThatNobodyNamesEndsItsStream) {
  OpenStream(5, 70);
  runner_.FrameReceived(5, FrameOf(GradientOf(0, kElements), 0, 2));
  ASSERT_TRUE(Step({}, Next<ShardFrameUnknown>().frame).ok());
  EXPECT_EQ(Next<StreamLost>().stream, 5u);
  EXPECT_THAT(WhyClosed(5), HasSubstr("A data frame of job job names tensor 0 of lane 2"));
}

TEST_F(ShardRunnerTest, AFrameThatIsNotWhatWasSentEndsItsStream) {
  Name();
  OpenStream(5, 70);
  runner_.FrameReceived(5, FrameOf(GradientOf(0, kElements), 0, 2, true));
  EXPECT_EQ(Next<StreamLost>().stream, 5u);
  EXPECT_THAT(WhyClosed(5), HasSubstr("a data frame of job job for tensor w are not those"));
  EXPECT_EQ(runner_.bytes().counters().corrupt_frames, 1u);
  EXPECT_TRUE(Silent());
}

TEST_F(ShardRunnerTest, AValueIsNotForAShard) {
  OpenStream(5, 70);
  IncomingFrame frame;
  frame.header = BlobHeader{{"model", "w", 1}, 0, 1};
  runner_.FrameReceived(5, std::move(frame));
  EXPECT_EQ(Next<StreamLost>().stream, 5u);
  EXPECT_THAT(WhyClosed(5), HasSubstr("Send values to the coordinator"));
}

TEST_F(ShardRunnerTest, ReducesAndSendsTheBitsOfTheOracle) {
  Name();
  OpenStream(5, 70);
  OpenStream(6, 71);
  StartAttempt start{kJobId, kLaneIndex, 1, {1, 1}, {}, {}};
  start.spec.op = ReduceOp::kAverage;
  std::vector<std::string> contributions;
  for (uint32_t i = 0; i < 2; ++i) {
    contributions.push_back(GradientOf(i, kElements));
    runner_.FrameReceived(5 + i, FrameOf(contributions.back(), 0, 2));
    ASSERT_TRUE(Step({Keep(i + 1, {{0, 0, 2}})}, Next<ShardFrameReceived>().frame).ok());
    Contributor contributor;
    contributor.worker = "w-" + std::to_string(i);
    contributor.incarnation = {1, i + 1};
    start.contributors.push_back(contributor);
  }
  Reduce reduce{kJobId, kLaneIndex, 1, {1, 1}, {{0, 0, 2}}, 2, {}};
  ASSERT_TRUE(Step({start, reduce}).ok());
  ASSERT_EQ(reductions_.size(), 1u);
  runner_.Reduced(*reductions_[0]);
  const auto done = Next<ReduceDone>();
  EXPECT_FALSE(done.failure.has_value());
  EXPECT_EQ(done.digests.size(), 2u);
  EXPECT_EQ(runner_.bytes().parked_bytes(), 0u);
  Publish publish{kJobId, kLaneIndex, 1, {1, 1}, {}, 0, {}};
  publish.routes = {{{{0, 0, 2}}, {5, 6}, 8}};
  ASSERT_TRUE(Step({publish}).ok());
  for (const StreamId stream : {StreamId{5}, StreamId{6}}) {
    std::string result;
    transport_.Await(stream, [&](QueueTransport::Connection& connection) {
      for (const OutgoingFrame& frame : connection.frames) {
        result.resize(frame.payload.bytes());
        char* to = result.data();
        for (const PayloadPart& part : frame.payload.parts()) to = CopyBytes(part, to);
      }
      return true;
    });
    EXPECT_EQ(result, ReferenceAverage(contributions)) << stream;
  }
  // It is kept for a stream that opens later.
  OpenStream(7, 71);
  ASSERT_TRUE(Step({SendFrame{8, 7}, ForgetFrames{{8}}}).ok());
  EXPECT_TRUE(transport_.Await(
      7, [](QueueTransport::Connection& connection) { return connection.frames.size() == 1; }));
  ASSERT_TRUE(Step({ReleaseResult{kJobId, kLaneIndex, 1, {1, 1}, {0, 0, 2}},
                    EndRound{kJobId, kLaneIndex, 1}})
                  .ok());
  EXPECT_EQ(runner_.bytes().result_bytes(), 0u);
}

// A coordinator that orders the impossible must not crash a shard.
TEST_F(ShardRunnerTest, AnOrderThatCannotBeCarriedOutIsAnError) {
  Name();
  EXPECT_THAT(std::string(Step({}, 17).message()), HasSubstr("frame 17, which is not held"));
  EXPECT_FALSE(Step({Keep(1, {{0, 0, 1}})}).ok());
  Reduce reduce{kJobId, kLaneIndex, 9, {1, 1}, {{0, 0, 2}}, 2, {}};
  EXPECT_FALSE(Step({reduce}).ok());
  Publish publish{kJobId, kLaneIndex, 9, {1, 1}, {}, 0, {}};
  publish.routes = {{{{0, 0, 2}}, {5}, 0}};
  EXPECT_FALSE(Step({publish}).ok());
  EXPECT_FALSE(Step({SendFrame{8, 7}}).ok());
  EXPECT_FALSE(Step({NameTensors{kJobId, kLaneIndex, 5, {F32("x", 1)}}}).ok());
  OpenStream(5, 70);
  runner_.FrameReceived(5, FrameOf(GradientOf(0, kElements), 0, 1));
  // Not the chunks that arrived.
  EXPECT_FALSE(Step({Keep(1, {{0, 1, 1}})}, Next<ShardFrameReceived>().frame).ok());
}

TEST_F(ShardRunnerTest, AStreamThatIsLostBeforeItIsAcceptedIsNotAccepted) {
  runner_.StreamOpened(5, 99);
  Next<StreamOpened>();
  runner_.StreamClosed(5);
  EXPECT_EQ(Next<StreamLost>().stream, 5u);
  ASSERT_TRUE(Step({ShardAcceptStream{{5, 70, kJobId}, "job"}}).ok());
  EXPECT_TRUE(runner_.streams().empty());
  // The loss of a stream that the coordinator has closed is not reported, either.
  OpenStream(6, 70);
  ASSERT_TRUE(Step({CloseStream{6, absl::OkStatus()}}).ok());
  runner_.StreamClosed(6);
  EXPECT_TRUE(Silent());
}

// ---- at the coordinator

class RemoteShardsTest : public ::testing::Test {
 protected:
  RemoteShardsTest()
      : shards_([this] { return ++streams_; }, [](JobId) { return JobName("job"); },
                [this](ShardId shard, std::vector<ShardStep> steps) {
                  sent_.emplace_back(shard, std::move(steps));
                }) {
    shards_.Add(1, absl::UnixEpoch());
    shards_.Add(2, absl::UnixEpoch());
  }

  StreamId streams_ = 100;
  std::vector<std::pair<ShardId, std::vector<ShardStep>>> sent_;
  RemoteShards shards_;
};

TEST_F(RemoteShardsTest, StreamsHaveOtherNumbersHere) {
  const StreamId a = *shards_.Open(1, 5);
  const StreamId b = *shards_.Open(2, 5);
  EXPECT_NE(a, b);
  EXPECT_EQ(*shards_.Find(1, 5), a);
  EXPECT_FALSE(shards_.SessionOf(a).has_value());
  shards_.Do(AcceptStream{a, 70, kJobId, 1});
  EXPECT_EQ(shards_.SessionOf(a), 70u);
  Publish publish{kJobId, kLaneIndex, 1, {1, 1}, {{0, 0, 2}}, 10, {70, 71}};
  publish.shard = 2;
  // The first one is of another shard, or gone.
  publish.routes = {{{{0, 0, 2}}, {77, b}, 8}};
  shards_.Do(publish);
  shards_.EndStep();
  shards_.Flush();
  ASSERT_EQ(sent_.size(), 2u);
  EXPECT_EQ(sent_[0].first, 1u);
  const auto& accepted = std::get<ShardAcceptStream>(sent_[0].second[0].actions[0]);
  EXPECT_EQ(accepted.accept.stream, 5u);
  EXPECT_EQ(accepted.job_name, "job");
  const auto& published = std::get<Publish>(sent_[1].second[0].actions[0]);
  EXPECT_EQ(published.routes[0].streams, std::vector<StreamId>{5});
  EXPECT_TRUE(published.sessions.empty());
}

TEST_F(RemoteShardsTest, AnswersFollowTheirFrames) {
  ASSERT_TRUE(shards_.BeginStep(1, 1).ok());
  KeepChunks keep;
  keep.round = 1;
  keep.shard = 1;
  shards_.Do(keep);
  shards_.DoAll(EndJob{9});
  shards_.EndStep();
  // The next one is answered with nothing.
  ASSERT_TRUE(shards_.BeginStep(1, 2).ok());
  shards_.EndStep();
  shards_.Flush();
  ASSERT_EQ(sent_.size(), 2u);
  const std::vector<ShardStep>& first = sent_[0].second;
  ASSERT_EQ(first.size(), 2u);
  EXPECT_EQ(first[0].frame, 1u);
  EXPECT_EQ(first[0].actions.size(), 2u);
  EXPECT_EQ(first[1].frame, 2u);
  EXPECT_TRUE(first[1].actions.empty());
  EXPECT_EQ(sent_[1].second[0].frame, 0u);
  EXPECT_EQ(sent_[1].second[0].actions.size(), 1u);
  EXPECT_FALSE(shards_.BeginStep(1, 4).ok());
}

TEST_F(RemoteShardsTest, AShardCannotReportWhatItWasNotAskedFor) {
  ReduceDone done;
  done.round = 1;
  done.ranges = {{0, 0, 2}};
  EXPECT_FALSE(shards_.Reduced(1, done).ok());
  Reduce reduce;
  reduce.round = 1;
  reduce.ranges = {{0, 0, 2}};
  reduce.shard = 1;
  shards_.Do(reduce);
  EXPECT_FALSE(shards_.Reduced(2, done).ok());
  EXPECT_TRUE(shards_.Reduced(1, done).ok());
  EXPECT_FALSE(shards_.Reduced(1, done).ok());
  EXPECT_FALSE(shards_.Find(1, 7).ok());
  ASSERT_TRUE(shards_.Open(1, 7).ok());
  EXPECT_FALSE(shards_.Open(1, 7).ok());
  // Closed here, and the shard does not know yet.
  shards_.Do(CloseStream{*shards_.Find(1, 7), absl::OkStatus(), 1});
  EXPECT_EQ(*shards_.Find(1, 7), 0u);
}

TEST_F(RemoteShardsTest, TheStandingHasTheMedianOfTheTimesOfReductions) {
  const absl::Time start = absl::UnixEpoch();
  EXPECT_EQ(shards_.StandingOf(1)->reduce_times.Median(), absl::ZeroDuration());
  for (const int took : {30, 10, 20}) {
    shards_.SetTime(start);
    Reduce reduce;
    reduce.round = 1;
    reduce.ranges = {{0, 0, 2}};
    reduce.shard = 1;
    shards_.Do(reduce);
    shards_.SetTime(start + absl::Milliseconds(took));
    ReduceDone done;
    done.round = 1;
    done.ranges = reduce.ranges;
    ASSERT_TRUE(shards_.Reduced(1, done).ok());
  }
  shards_.Heard(1, start + absl::Seconds(1));
  shards_.Used(1, ShardUse{1, 2, 3, 4, 5});
  const ShardStanding* const standing = shards_.StandingOf(1);
  EXPECT_EQ(standing->reduce_times.Median(), absl::Milliseconds(20));
  EXPECT_EQ(standing->up, start);
  EXPECT_EQ(standing->last_event, start + absl::Seconds(1));
  EXPECT_EQ(standing->use.parked_bytes, 4u);
  EXPECT_EQ(shards_.StandingOf(3), nullptr);
}

TEST(ReduceTimesTest, TheMedianIsThatOfTheLastOnes) {
  ReduceTimes times;
  for (int i = 0; i < 1000; ++i) times.Add(absl::Seconds(1));
  for (int i = 0; i < 128; ++i) times.Add(absl::Milliseconds(i));
  EXPECT_EQ(times.Median(), absl::Milliseconds(64));
}

TEST_F(RemoteShardsTest, NothingGoesToAShardThatIsGone) {
  const StreamId stream = *shards_.Open(1, 5);
  shards_.Remove(1);
  EXPECT_FALSE(shards_.Has(1));
  shards_.Do(AcceptStream{stream, 70, kJobId, 1});
  shards_.Do(SendFrame{3, stream, 1});
  shards_.EndStep();
  shards_.Flush();
  EXPECT_TRUE(sent_.empty());
}

}  // namespace
}  // namespace basin::aggregator
