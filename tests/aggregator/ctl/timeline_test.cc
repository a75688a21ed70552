// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The trace of a job from the aggregator's answer, and traces that are joined.

#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "aggregator/ctl/job_trace.h"
#include "aggregator/ctl/merge_trace.h"

namespace basin::aggregator {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr uint64_t kMs = 1000000;

// A round that took 100 ms and got its verdict `age_ms` before the answer at 10 s.
void AddRound(v1::LaneRounds& lane, uint64_t number, uint64_t age_ms) {
  v1::RoundSummary& round = *lane.add_recent();
  round.set_round(number);
  round.set_outcome(v1::OUTCOME_COMMITTED);
  round.set_contributors(2);
  round.set_world_size(3);
  round.set_duration_ns(100 * kMs);
  round.set_gather_ns(40 * kMs);
  round.set_wait_ns(30 * kMs);
  round.set_waited_for("w1");
  round.set_age_ns(age_ms * kMs);
  for (const auto& [worker, after_ms] : {std::pair{"w0", 40}, {"w1", 70}}) {
    v1::Arrival& arrival = *round.add_arrivals();
    arrival.set_worker(worker);
    arrival.set_after_ns(static_cast<uint64_t>(after_ms) * kMs);
  }
}

v1::ListRoundsResponse TwoRounds() {
  v1::ListRoundsResponse rounds;
  rounds.set_time_unix_ns(10000 * kMs);
  v1::LaneRounds& lane = *rounds.add_lanes();
  lane.set_lane("model");
  AddRound(lane, 8, 0);
  AddRound(lane, 7, 200);
  return rounds;
}

// "round 7 9700-9800" of track 1, in milliseconds.
std::vector<std::string> SlicesOf(const std::vector<TraceEvent>& events, uint64_t track) {
  std::vector<std::string> slices;
  for (const TraceEvent& event : events) {
    if (event.phase != TracePhase::kSlice || event.track != track) continue;
    slices.push_back(absl::StrCat(event.name, " ", event.begin_us / 1000, "-",
                                  (event.begin_us + event.duration_us) / 1000));
  }
  return slices;
}

TEST(JobTrace, ARoundHasTheSplitOfItsTime) {
  const std::vector<TraceEvent> events = EventsOf(TwoRounds(), "vision", 50);
  EXPECT_THAT(SlicesOf(events, 1),
              ElementsAre("round 7 9700-9800", "gathered 9700-9740", "waited for w1 9740-9770",
                          "reduced 9770-9800", "round 8 9900-10000", "gathered 9900-9940",
                          "waited for w1 9940-9970", "reduced 9970-10000"));
  EXPECT_THAT(SlicesOf(events, 2), ElementsAre("contribution to round 7 9700-9740",
                                               "contribution to round 8 9900-9940"));
  EXPECT_THAT(SlicesOf(events, 3), ElementsAre("contribution to round 7 9700-9770",
                                               "contribution to round 8 9900-9970"));
  std::vector<std::string> names;
  for (const TraceEvent& event : events) {
    if (event.phase == TracePhase::kMetadata) names.push_back(event.args.json());
  }
  EXPECT_THAT(names, ElementsAre(R"("name":"aggregator of job vision")", R"("name":"model")",
                                 R"("name":"model: w0")", R"("name":"model: w1")"));
}

TEST(JobTrace, ArrowsLeadThroughTheContributions) {
  std::vector<uint64_t> flows;
  for (const TraceEvent& event : EventsOf(TwoRounds(), "vision", 50)) {
    if (event.phase != TracePhase::kFlowStep) continue;
    flows.push_back(event.flow);
    EXPECT_EQ(event.name, kFlowName);
  }
  EXPECT_THAT(flows,
              ElementsAre(FlowOf("vision", "model", 7, "w0"), FlowOf("vision", "model", 7, "w1"),
                          FlowOf("vision", "model", 8, "w0"), FlowOf("vision", "model", 8, "w1")));
}

TEST(JobTrace, ARoundNamesWhoWasLateInItAndBeforeIt) {
  v1::ListRoundsResponse rounds = TwoRounds();
  rounds.mutable_lanes(0)->mutable_recent(0)->add_late("w2");
  rounds.mutable_lanes(0)->mutable_recent(0)->add_deferred("w1");
  const std::vector<TraceEvent> events = EventsOf(rounds, "vision", 1);
  const auto round = std::find_if(events.begin(), events.end(),
                                  [](const TraceEvent& event) { return event.name == "round 8"; });
  ASSERT_NE(round, events.end());
  EXPECT_THAT(round->args.json(), HasSubstr(R"("late":"w2","deferred":"w1")"));
}

TEST(JobTrace, OnlyTheLastRounds) {
  EXPECT_EQ(SlicesOf(EventsOf(TwoRounds(), "vision", 1), 1).front(), "round 8 9900-10000");
  EXPECT_THAT(SlicesOf(EventsOf(TwoRounds(), "vision", 0), 1), IsEmpty());
}

TEST(JobTrace, AnAbortedRoundHasNoSplit) {
  v1::ListRoundsResponse rounds;
  rounds.set_time_unix_ns(10000 * kMs);
  v1::RoundSummary& round = *rounds.add_lanes()->add_recent();
  round.set_round(3);
  round.set_outcome(v1::OUTCOME_ABORTED);
  round.set_duration_ns(100 * kMs);
  const std::vector<TraceEvent> events = EventsOf(rounds, "vision", 50);
  EXPECT_THAT(SlicesOf(events, 1), ElementsAre("round 3 9900-10000"));
  EXPECT_THAT(events.back().args.json(), HasSubstr("ABORTED"));
}

TEST(JobTrace, AnOlderAggregatorGivesNoTimeAndNothingBreaks) {
  v1::ListRoundsResponse rounds = TwoRounds();
  rounds.clear_time_unix_ns();
  for (const TraceEvent& event : EventsOf(rounds, "vision", 50)) {
    EXPECT_GE(event.duration_us, 0);
    EXPECT_GE(event.begin_us, 0);
  }
}

// ---- joined traces

class Merged {
 public:
  absl::Status Add(const std::string& name, const std::string& text) {
    const std::vector<std::string> lines = absl::StrSplit(text, '\n');
    auto line = lines.begin();
    return merger_.Add(name, [&](std::string& next) {
      if (line == lines.end()) return false;
      next = *line++;
      return true;
    });
  }
  std::vector<std::string> End() {
    EXPECT_TRUE(merger_.End().ok());
    return absl::StrSplit(text_, '\n');
  }

 private:
  std::string text_;
  TraceMerger merger_{[this](const std::string& text) {
    text_ += text;
    return absl::OkStatus();
  }};
};

TEST(MergedTrace, ProcessesAndTracksGetNumbersOfTheirOwn) {
  Merged merged;
  const std::string trace =
      "[\n"
      R"({"ph":"M","name":"process_name","pid":7,"args":{"name":"worker w0"}},)"
      "\n"
      R"({"ph":"X","name":"push","pid":7,"tid":2,"ts":5,"dur":1},)"
      "\n"
      R"({"ph":"s","name":"contribution","pid":7,"tid":2,"ts":5,"id":99})"
      "\n]\n";
  ASSERT_TRUE(merged.Add("a", trace).ok());
  ASSERT_TRUE(merged.Add("b", trace).ok());
  EXPECT_THAT(
      merged.End(),
      ElementsAre("[", R"({"ph":"M","name":"process_name","pid":1,"args":{"name":"worker w0"}},)",
                  R"({"ph":"X","name":"push","pid":1,"tid":100002,"ts":5,"dur":1},)",
                  R"({"ph":"s","name":"contribution","pid":1,"tid":100002,"ts":5,"id":99},)",
                  R"({"ph":"M","name":"process_name","pid":2,"args":{"name":"worker w0"}},)",
                  R"({"ph":"X","name":"push","pid":2,"tid":200002,"ts":5,"dur":1},)",
                  R"({"ph":"s","name":"contribution","pid":2,"tid":200002,"ts":5,"id":99})", "]",
                  ""));
}

TEST(MergedTrace, TheTraceOfAKilledProcessIsTaken) {
  Merged merged;
  ASSERT_TRUE(merged.Add("a", "[\n{\"pid\":7},\n{\"pid\":7,\"na").ok());
  ASSERT_TRUE(merged.Add("b", "[\n{\"pid\":7},").ok());
  EXPECT_THAT(merged.End(), ElementsAre("[", "{\"pid\":1},", "{\"pid\":2}", "]", ""));
}

TEST(MergedTrace, AnotherFileIsRefusedWithItsLine) {
  Merged merged;
  EXPECT_THAT(std::string(merged.Add("a.txt", "hello\n").message()),
              HasSubstr("a.txt:1: this is no event of a timeline"));
  EXPECT_THAT(std::string(merged.Add("b.txt", "[\n{\"pid\":7},\n17,\n{\"pid\":7}\n]\n").message()),
              HasSubstr("b.txt:3: this is no event of a timeline"));
}

TEST(MergedTrace, OfNothingIsAnEmptyArray) {
  Merged merged;
  ASSERT_TRUE(merged.Add("a", "[\n]\n").ok());
  EXPECT_THAT(merged.End(), ElementsAre("[", "]", ""));
}

TEST(MergedTrace, AFileThatCannotBeWrittenEndsIt) {
  TraceMerger merger([](const std::string&) { return absl::FailedPreconditionError("full"); });
  int lines = 0;
  EXPECT_EQ(merger
                .Add("a",
                     [&](std::string& line) {
                       line = "{\"pid\":7}";
                       return ++lines < 3;
                     })
                .message(),
            "full");
  EXPECT_EQ(lines, 1);
}

}  // namespace
}  // namespace basin::aggregator
