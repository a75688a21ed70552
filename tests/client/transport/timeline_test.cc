// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// What a timeline records: the slices of a round from its moments, the recorder, the text, and a
// worker with a timeline.

#include "client/transport/timeline.h"

#include <atomic>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "client/transport/moments.h"
#include "client/transport/timeline_text.h"
#include "tests/client/transport/fake_aggregator.h"

namespace basin::client {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

absl::Time Ms(int64_t ms) { return absl::FromUnixMillis(ms); }

TimelineProcess Process() { return {7, "vision", "w0", absl::Seconds(1)}; }

// A round that has every phase, each in order.
RoundMoments FullRound() {
  RoundMoments round;
  round.lane = "model";
  round.handle = 1;
  round.round = 12;
  round.idle_since = Ms(100);
  round.begun = Ms(105);
  round.first_push = Ms(110);
  round.committed = Ms(120);
  round.first_result = Ms(130);
  round.staged = Ms(140);
  round.decided = Ms(145);
  round.delivered = Ms(150);
  round.first_copy = Ms(155);
  round.last_copy = Ms(160);
  round.tensors = 3;
  round.pushed_bytes = 300;
  round.result_bytes = 200;
  round.contributors = 2;
  round.world_size = 2;
  return round;
}

// "push 110-120" of the slices of one track, in milliseconds of the client's clock.
std::vector<std::string> SlicesOf(const RoundMoments& round, uint64_t track) {
  std::vector<std::string> slices;
  for (const TraceEvent& event : EventsOf(round, Process())) {
    if (event.phase != TracePhase::kSlice || event.track != track) continue;
    const int64_t begin = event.begin_us / 1000 - 1000;
    slices.push_back(absl::StrCat(event.name, " ", begin, "-", begin + event.duration_us / 1000));
  }
  return slices;
}

std::vector<std::string> SlicesOf(const RoundMoments& round) {
  return SlicesOf(round, TrackOf(round.handle));
}

// Whether the slices of each track nest, and the ends of arrows are within slices.
void ExpectWellFormed(const std::vector<TraceEvent>& events) {
  std::map<uint64_t, std::vector<const TraceEvent*>> open;
  std::vector<const TraceEvent*> slices;
  for (const TraceEvent& event : events) {
    if (event.phase == TracePhase::kSlice) slices.push_back(&event);
  }
  std::stable_sort(slices.begin(), slices.end(), [](const TraceEvent* a, const TraceEvent* b) {
    return a->begin_us < b->begin_us;
  });
  const auto end = [](const TraceEvent* slice) { return slice->begin_us + slice->duration_us; };
  for (const TraceEvent* slice : slices) {
    EXPECT_GT(slice->duration_us, 0) << slice->name;
    auto& stack = open[slice->track];
    while (!stack.empty() && end(stack.back()) <= slice->begin_us) stack.pop_back();
    if (!stack.empty()) {
      EXPECT_LE(end(slice), end(stack.back())) << slice->name << " in " << stack.back()->name;
    }
    stack.push_back(slice);
  }
  for (const TraceEvent& event : events) {
    if (event.phase != TracePhase::kFlowBegin && event.phase != TracePhase::kFlowEnd) continue;
    EXPECT_TRUE(std::any_of(slices.begin(), slices.end(), [&](const TraceEvent* slice) {
      return slice->track == event.track && slice->begin_us <= event.begin_us &&
             event.begin_us < end(slice);
    })) << "an arrow without a slice";
  }
}

TEST(Moments, ARoundIsARowOfSlices) {
  const RoundMoments round = FullRound();
  EXPECT_THAT(SlicesOf(round),
              ElementsAre("compute 100-110", "round 12 110-160", "push 110-120", "wait 120-130",
                          "result 130-140", "verdict 140-150", "copy 155-160"));
  EXPECT_THAT(SlicesOf(round, ResultsTrackOf(1)), ElementsAre("results of round 12 130-140"));
  ExpectWellFormed(EventsOf(round, Process()));
}

TEST(Moments, AnArrowLeadsFromThePushToTheVerdict) {
  std::vector<std::string> arrows;
  for (const TraceEvent& event : EventsOf(FullRound(), Process())) {
    if (event.flow == 0) continue;
    EXPECT_EQ(event.flow, FlowOf("vision", "model", 12, "w0"));
    EXPECT_EQ(event.name, kFlowName);
    arrows.push_back(absl::StrCat(std::string(1, static_cast<char>(event.phase)), " ",
                                  event.begin_us / 1000 - 1000));
  }
  EXPECT_THAT(arrows, ElementsAre("s 110", "f 149")) << "within the verdict, at its end";
}

TEST(Moments, SlicesSayWhatTheyAreOf) {
  for (const TraceEvent& event : EventsOf(FullRound(), Process())) {
    if (event.name == "round 12") {
      EXPECT_EQ(event.args.json(),
                R"("job":"vision","worker":"w0","lane":"model","round":12,"outcome":"COMMITTED",)"
                R"("contributors":2,"world_size":2)");
    }
    if (event.name == "push") {
      EXPECT_EQ(event.args.json(), R"("round":12,"bytes":300,"tensors":3,"in_calls_us":0)");
    }
    if (event.name == "result") {
      EXPECT_EQ(event.args.json(), R"("round":12,"bytes":200)");
    }
  }
}

TEST(Moments, ResultsThatComeWhileTheTrainerPushesLeaveNoWait) {
  RoundMoments round = FullRound();
  round.first_result = Ms(115);
  EXPECT_THAT(SlicesOf(round), ElementsAre("compute 100-110", "round 12 110-160", "push 110-120",
                                           "result 120-140", "verdict 140-150", "copy 155-160"));
  EXPECT_THAT(SlicesOf(round, ResultsTrackOf(1)), ElementsAre("results of round 12 115-140"));
  ExpectWellFormed(EventsOf(round, Process()));
}

TEST(Moments, ARoundWithoutResultsWaitsForItsVerdict) {
  RoundMoments round = FullRound();
  round.first_result = round.first_copy = round.last_copy = absl::InfinitePast();
  EXPECT_THAT(SlicesOf(round), ElementsAre("compute 100-110", "round 12 110-150", "push 110-120",
                                           "wait 120-140", "verdict 140-150"));
  EXPECT_THAT(SlicesOf(round, ResultsTrackOf(1)), IsEmpty());
}

TEST(Moments, ARoundWithoutPushesBeginsWithItsBegin) {
  RoundMoments round = FullRound();
  round.first_push = absl::InfinitePast();
  round.tensors = 0;
  EXPECT_THAT(SlicesOf(round), testing::Contains("push 105-120"));
  for (const TraceEvent& event : EventsOf(round, Process())) EXPECT_EQ(event.flow, 0u);
}

TEST(Moments, ACallHasNoCompute) {
  RoundMoments round = FullRound();
  round.kind = LaneKind::kCall;
  EXPECT_EQ(SlicesOf(round).front(), "round 12 110-160");
  round = FullRound();
  round.idle_since = absl::InfinitePast();
  EXPECT_EQ(SlicesOf(round).front(), "round 12 110-160") << "nor has the first round of a lane";
}

TEST(Moments, ARoundThatFailsWhileTheTrainerPushes) {
  RoundMoments round;
  round.round = 12;
  round.lane = "model";
  round.begun = round.first_push = Ms(110);
  round.decided = Ms(115);
  round.delivered = Ms(116);
  round.tensors = 1;
  round.failure = "EVICTED: gone";
  EXPECT_THAT(SlicesOf(round), ElementsAre("round 12 110-116", "push 110-116"));
  const std::vector<TraceEvent> events = EventsOf(round, Process());
  ExpectWellFormed(events);
  EXPECT_EQ(events.back().name, "round failed");
  EXPECT_THAT(events.back().args.json(), HasSubstr("EVICTED: gone"));
  for (const TraceEvent& event : events) EXPECT_EQ(event.flow, 0u) << "no result, no arrow";
}

// Whatever came, and in whatever order, the slices nest.
TEST(Moments, AnyMomentsGiveSlicesThatNest) {
  uint64_t state = 1;
  const auto draw = [&state](uint64_t below) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (state >> 33) % below;
  };
  for (int i = 0; i < 5000; ++i) {
    RoundMoments round = FullRound();
    for (absl::Time* moment :
         {&round.idle_since, &round.begun, &round.first_push, &round.committed, &round.first_result,
          &round.staged, &round.decided, &round.delivered}) {
      *moment = draw(4) == 0 ? absl::InfinitePast()
                             : Ms(100) + absl::Microseconds(static_cast<int64_t>(draw(40)));
    }
    // The recorder notes a begin always, and the end of the last round before it.
    if (!Came(round.begun)) round.begun = Ms(100);
    round.idle_since = std::min(round.idle_since, round.begun);
    if (Came(round.first_push)) round.first_push = std::max(round.first_push, round.begun);
    ExpectWellFormed(EventsOf(round, Process()));
  }
}

TEST(Moments, ChangesOfThePlaceAreInstants) {
  JobView before;
  JobView now;
  now.trouble = {ErrorCode::kUnavailable, "connection refused"};
  now.stream_trouble = "connection reset";
  now.membership.generation = {5, 2};
  now.membership.members = MemberList({"w0", "w1"});
  now.paused = "below min_workers";
  std::vector<std::string> names;
  for (const JobMoment& moment : MomentsBetween(before, now, Ms(5))) {
    names.push_back(absl::StrCat(moment.what, ": ", moment.text));
  }
  EXPECT_THAT(names,
              ElementsAre("session lost: connection refused", "data streams lost: connection reset",
                          "generation 5.2: 2 members", "job paused: below min_workers"));
  names.clear();
  for (const JobMoment& moment : MomentsBetween(now, JobView(), Ms(5))) {
    names.push_back(moment.what);
  }
  EXPECT_THAT(names, ElementsAre("session reconnected", "data stream reconnected", "generation 0.0",
                                 "job continues"));
  EXPECT_THAT(MomentsBetween(now, now, Ms(5)), IsEmpty());
}

// ---- the recorder

class Recorder {
 public:
  explicit Recorder(uint32_t every = 1) : timeline([this] { return now_.load(); }, every) {
    timeline.Register(0, "model", LaneKind::kGradient);
  }

  void At(int64_t ms) { now_ = Ms(ms); }

  // One round of 10 ms from `begin` on.
  void Round(RoundNumber number, int64_t begin) {
    At(begin);
    EXPECT_TRUE(timeline.Begin(0));
    At(begin + 2);
    timeline.Pushed(0, Ms(begin + 1), 2, 200);
    timeline.Commit(0);
    timeline.FirstResult(0, Ms(begin + 4));
    timeline.Staged(0, Ms(begin + 6));
    Outcome(number, begin + 8);
    At(begin + 10);
    timeline.Copied(0, number, Ms(begin + 9));
  }

  void Outcome(RoundNumber number, int64_t at) {
    VerdictRecord record;
    record.round = number;
    record.value.world_size = 4;
    At(at);
    timeline.Decided(
        0, number, 300,
        std::make_shared<RoundResult>(record, std::nullopt, std::vector<RoundResult::Tensor>(),
                                      std::vector<TensorSpec>(), nullptr),
        Ms(at));
    timeline.Delivered(0);
  }

  // The numbers of all rounds that were recorded, after the end.
  std::vector<RoundNumber> Ended() {
    timeline.End();
    batch = timeline.Take();
    EXPECT_TRUE(batch.ended);
    std::vector<RoundNumber> rounds;
    for (const TimelineRecord& record : batch.records) {
      if (const auto* round = std::get_if<RoundMoments>(&record)) rounds.push_back(round->round);
    }
    return rounds;
  }

  Timeline timeline;
  Timeline::Batch batch;

 private:
  std::atomic<absl::Time> now_ = Ms(0);
};

TEST(Timeline, RecordsARoundWithItsMoments) {
  Recorder recorder;
  recorder.Round(1, 100);
  recorder.Round(2, 200);
  EXPECT_THAT(recorder.Ended(), ElementsAre(1u, 2u));
  const auto& second = std::get<RoundMoments>(recorder.batch.records[1]);
  EXPECT_EQ(second.idle_since, Ms(110)) << "when the results of the first had been copied";
  EXPECT_THAT(SlicesOf(second),
              ElementsAre("compute 110-201", "round 2 201-210", "push 201-202", "wait 202-204",
                          "result 204-206", "verdict 206-208", "copy 209-210"));
  EXPECT_EQ(second.lane, "model");
  EXPECT_EQ(second.tensors, 2u);
  EXPECT_EQ(second.pushed_bytes, 200u);
  EXPECT_EQ(second.result_bytes, 300u);
  EXPECT_EQ(second.world_size, 4u);
  EXPECT_EQ(recorder.batch.dropped, 0u);
}

TEST(Timeline, RecordsEveryNthRoundAndAllThatFail) {
  Recorder recorder(10);
  for (RoundNumber round = 5; round <= 20; ++round) {
    recorder.Round(round, 100 * static_cast<int64_t>(round));
  }
  recorder.At(3000);
  ASSERT_TRUE(recorder.timeline.Begin(0));
  recorder.timeline.Decided(0, 21, 0, absl::UnavailableError("gone"), Ms(3001));
  recorder.timeline.Delivered(0);
  EXPECT_THAT(recorder.Ended(), ElementsAre(10u, 20u, 21u));
  EXPECT_THAT(std::get<RoundMoments>(recorder.batch.records[2]).failure, HasSubstr("gone"));
}

TEST(Timeline, ACallThatIsRefusedLeavesNothing) {
  Recorder recorder;
  ASSERT_TRUE(recorder.timeline.Begin(0));
  EXPECT_FALSE(recorder.timeline.Begin(0)) << "the lane has a round";
  recorder.timeline.Refused(0);
  EXPECT_FALSE(recorder.timeline.Begin(9)) << "no lane";
  recorder.timeline.Pushed(0, Ms(1), 1, 1);
  recorder.timeline.Commit(0);
  EXPECT_THAT(recorder.Ended(), IsEmpty());
}

TEST(Timeline, ARoundIsRecordedASecondAfterItsOutcome) {
  Recorder recorder;
  recorder.Round(1, 100);
  recorder.At(1200);
  const Timeline::Batch batch = recorder.timeline.Take();
  ASSERT_EQ(batch.records.size(), 1u);
  EXPECT_FALSE(batch.ended);
  // A late copy belongs to no compute.
  recorder.At(1300);
  recorder.timeline.Copied(0, 1, Ms(1250));
  recorder.Round(2, 1400);
  ASSERT_THAT(recorder.Ended(), ElementsAre(2u));
  EXPECT_EQ(std::get<RoundMoments>(recorder.batch.records[0]).idle_since, Ms(1300));
}

TEST(Timeline, DropsAndCountsWhatTheWriterDoesNotTake) {
  Recorder recorder;
  const auto more = static_cast<int64_t>(Timeline::kQueued) + 7;
  for (int64_t round = 1; round <= more; ++round) {
    recorder.Round(static_cast<RoundNumber>(round), 20 * round);
  }
  EXPECT_EQ(recorder.Ended().size(), Timeline::kQueued);
  EXPECT_EQ(recorder.batch.dropped, 7u);
}

TEST(Timeline, NothingIsRecordedAfterTheEnd) {
  Recorder recorder;
  recorder.Round(1, 100);
  EXPECT_THAT(recorder.Ended(), ElementsAre(1u));
  EXPECT_FALSE(recorder.timeline.Begin(0));
  recorder.timeline.OnJobView(JobView());
  recorder.timeline.Copied(0, 1, Ms(1));
  EXPECT_THAT(recorder.Ended(), IsEmpty());
}

TEST(Timeline, ManyThreadsAtOnce) {
  Recorder recorder;
  std::vector<std::thread> threads;
  for (LaneHandle lane = 0; lane < 4; ++lane) {
    recorder.timeline.Register(lane, absl::StrCat("lane", lane), LaneKind::kCall);
  }
  for (LaneHandle lane = 0; lane < 4; ++lane) {
    threads.emplace_back([&recorder, lane] {
      for (RoundNumber round = 1; round <= 200; ++round) {
        ASSERT_TRUE(recorder.timeline.Begin(lane));
        recorder.timeline.Pushed(lane, Ms(1), 1, 1);
        recorder.timeline.Decided(lane, round, 0, absl::AbortedError(""), Ms(2));
        recorder.timeline.Delivered(lane);
      }
    });
  }
  size_t taken = 0;
  threads.emplace_back([&] {
    while (true) {
      const Timeline::Batch batch = recorder.timeline.Take();
      taken += batch.records.size() + batch.dropped;
      if (batch.ended) return;
    }
  });
  for (size_t i = 0; i + 1 < threads.size(); ++i) threads[i].join();
  recorder.timeline.End();
  threads.back().join();
  EXPECT_EQ(taken, 800u);
}

// ---- the text

TEST(TimelineText, IsAnArrayWithOneEventOnEachLine) {
  TimelineText text(Process(), 1 << 20);
  std::string all = text.Begin();
  Timeline::Batch batch;
  batch.records = {FullRound(), JobMoment{Ms(9), "session lost", "why"}, FullRound()};
  batch.dropped = 3;
  all += text.Next(batch, Ms(10));
  all += text.End(Ms(11));
  std::vector<std::string> lines;
  for (size_t at = 0; at < all.size();) {
    const size_t end = all.find('\n', at);
    lines.push_back(all.substr(at, end - at));
    at = end + 1;
  }
  EXPECT_EQ(lines.front(), "[");
  EXPECT_EQ(lines.back(), "]");
  for (size_t i = 1; i + 2 < lines.size(); ++i) {
    EXPECT_EQ(lines[i].front(), '{');
    EXPECT_EQ(lines[i].substr(lines[i].size() - 2), "},");
  }
  EXPECT_EQ(lines[lines.size() - 2].back(), '}');
  EXPECT_THAT(lines[1], HasSubstr(R"("args":{"name":"worker w0 of job vision"})"));
  EXPECT_THAT(all, HasSubstr(R"("name":"timeline dropped records")"));
  EXPECT_THAT(all, HasSubstr(R"("args":{"records":3})"));
  EXPECT_THAT(lines[lines.size() - 2], HasSubstr("timeline ends"));
  // Once for each lane.
  EXPECT_EQ(all.find(R"("name":"model"})"), all.rfind(R"("name":"model"})"));
}

TEST(TimelineText, NeverGetsLongerThanItsBound) {
  for (uint64_t bound = TimelineText::kLeastBytes; bound < 20000; bound += 97) {
    TimelineText text(Process(), bound);
    std::string all = text.Begin();
    Timeline::Batch batch;
    batch.records = {FullRound(), FullRound()};
    while (!text.full()) all += text.Next(batch, Ms(10));
    EXPECT_LE(all.size(), bound);
    EXPECT_GT(all.size() + 4096, bound);
    EXPECT_THAT(all.substr(all.size() - 200), HasSubstr("timeline full"));
    EXPECT_EQ(all.substr(all.size() - 4), "}\n]\n");
  }
}

// ---- a worker

// The clock of the rig, once there is one.
struct RigClock {
  std::atomic<ManualClock*> clock = nullptr;
  absl::Time Now() const {
    const ManualClock* set = clock.load();
    return set == nullptr ? ManualClock().Now() : set->Now();
  }
};

TEST(WorkerTimeline, RecordsTheRoundsOfAWorker) {
  RigClock now;
  const auto timeline = std::make_shared<Timeline>([&now] { return now.Now(); }, 1);
  Rig rig(1, [&](WorkerOptions& options) { options.timeline = timeline; });
  now.clock = &rig.clock;
  rig.Join();
  const absl::Time start = rig.clock.Now();
  const auto step = [&] { rig.clock.Advance(absl::Milliseconds(10)); };
  rig.Begin();
  step();
  rig.PushAll();
  step();
  ASSERT_TRUE(rig.worker->Commit(rig.lane.lane).ok());
  rig.TakeContribution(4);
  step();
  rig.SendResults(Results(rig), 1);
  rig.Conclude(rig.ValueOf(Results(rig)), 1, 0);
  const RoundOutcome outcome = rig.worker->Wait(rig.lane.lane, absl::InfiniteDuration());
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  step();
  std::string copy(rig.gradients.at(1).size(), '\0');
  ASSERT_TRUE((*outcome)->CopyTo(1, copy.data(), copy.size()).ok());
  timeline->End();
  const Timeline::Batch batch = timeline->Take();
  std::vector<std::string> what;
  std::optional<RoundMoments> round;
  for (const TimelineRecord& record : batch.records) {
    if (const auto* moments = std::get_if<RoundMoments>(&record)) {
      EXPECT_FALSE(round.has_value());
      round = *moments;
    } else {
      what.push_back(std::get<JobMoment>(record).what);
    }
  }
  EXPECT_THAT(what, testing::Contains("generation 5.1"));
  ASSERT_TRUE(round.has_value());
  EXPECT_EQ(round->lane, "g");
  EXPECT_EQ(round->round, 1u);
  EXPECT_EQ(round->begun, start);
  EXPECT_EQ(round->first_push, start + absl::Milliseconds(10));
  EXPECT_EQ(round->committed, start + absl::Milliseconds(20));
  EXPECT_EQ(round->first_result, start + absl::Milliseconds(30));
  EXPECT_EQ(round->staged, start + absl::Milliseconds(30));
  EXPECT_EQ(round->decided, start + absl::Milliseconds(30));
  EXPECT_EQ(round->delivered, start + absl::Milliseconds(30));
  EXPECT_EQ(round->first_copy, start + absl::Milliseconds(40));
  EXPECT_EQ(round->tensors, 3u);
  uint64_t bytes = 0;
  for (const auto& [tensor, gradient] : rig.gradients) bytes += gradient.size();
  EXPECT_EQ(round->pushed_bytes, bytes);
  EXPECT_EQ(round->result_bytes, bytes);
  EXPECT_EQ(round->failure, "");
}

TEST(WorkerTimeline, RecordsACallAndWhyItFailed) {
  RigClock now;
  const auto timeline = std::make_shared<Timeline>([&now] { return now.Now(); }, 1);
  Rig rig(1, [&](WorkerOptions& options) { options.timeline = timeline; });
  now.clock = &rig.clock;
  BeginRound begin;
  begin.lane = rig.lane.lane;
  begin.spec.op = ReduceOp::kSum;
  const std::string& gradient = rig.gradients.at(1);
  const auto allreduce = [&] {
    Source source(1, gradient.data(), gradient.size());
    return rig.worker->Allreduce(begin, {&source, 1}, {}, absl::ZeroDuration()).status();
  };
  EXPECT_FALSE(allreduce().ok());  // No member.
  rig.Join();
  EXPECT_EQ(CodeOf(allreduce()), ErrorCode::kOutcomeUnknown);
  ASSERT_TRUE(rig.worker->Abandon().ok());
  timeline->End();
  std::vector<RoundMoments> rounds;
  for (const TimelineRecord& record : timeline->Take().records) {
    if (const auto* moments = std::get_if<RoundMoments>(&record)) rounds.push_back(*moments);
  }
  ASSERT_EQ(rounds.size(), 1u);
  EXPECT_EQ(rounds[0].round, 1u);
  EXPECT_EQ(rounds[0].tensors, 1u);
  EXPECT_NE(rounds[0].failure, "");
}

}  // namespace
}  // namespace basin::client
