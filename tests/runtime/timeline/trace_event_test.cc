// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "runtime/timeline/trace_event.h"

#include <gtest/gtest.h>

namespace basin {
namespace {

TraceEvent At(TracePhase phase, const std::string& name) {
  TraceEvent event;
  event.phase = phase;
  event.name = name;
  event.process = 7;
  event.track = 2;
  event.begin_us = 1795611977719448;
  event.duration_us = 40;
  event.flow = 9;
  return event;
}

TEST(TraceEvent, EachPhaseHasItsFields) {
  TraceEvent slice = At(TracePhase::kSlice, "push");
  slice.args.Add("round", 12).Add("lane", "model");
  EXPECT_EQ(ToJson(slice),
            R"({"ph":"X","name":"push","pid":7,"tid":2,"cat":"basin","ts":1795611977719448,)"
            R"("dur":40,"args":{"round":12,"lane":"model"}})");
  EXPECT_EQ(ToJson(At(TracePhase::kInstant, "lost")),
            R"({"ph":"i","name":"lost","pid":7,"tid":2,"cat":"basin","ts":1795611977719448,)"
            R"("s":"t"})");
  EXPECT_EQ(ToJson(At(TracePhase::kFlowBegin, kFlowName)),
            R"({"ph":"s","name":"contribution","pid":7,"tid":2,"cat":"basin",)"
            R"("ts":1795611977719448,"id":9})");
  EXPECT_EQ(ToJson(At(TracePhase::kFlowStep, kFlowName)),
            R"({"ph":"t","name":"contribution","pid":7,"tid":2,"cat":"basin",)"
            R"("ts":1795611977719448,"id":9,"bp":"e"})");
  EXPECT_EQ(ToJson(At(TracePhase::kFlowEnd, kFlowName)),
            R"({"ph":"f","name":"contribution","pid":7,"tid":2,"cat":"basin",)"
            R"("ts":1795611977719448,"id":9,"bp":"e"})");
}

TEST(TraceEvent, ProcessesAndTracksHaveNames) {
  EXPECT_EQ(ToJson(ProcessName(7, "worker w0")),
            R"({"ph":"M","name":"process_name","pid":7,"args":{"name":"worker w0"}})");
  EXPECT_EQ(ToJson(TrackName(7, 2, "model")),
            R"({"ph":"M","name":"thread_name","pid":7,"tid":2,"args":{"name":"model"}})");
}

TEST(TraceEvent, TextsCannotBreakOut) {
  TraceArgs args;
  args.Add("text", "a \"b\" \\ c\nd\x01 \xff \xc3\xa9");
  EXPECT_EQ(args.json(), "\"text\":\"a \\\"b\\\" \\\\ c?d? ? \xc3\xa9\"");
}

// The number is part of what traces of different releases and languages are merged by.
TEST(TraceEvent, AnArrowIsOfOneContribution) {
  const uint64_t flow = FlowOf("vision", "model", 12, "w-3");
  EXPECT_EQ(flow, FlowOf("vision", "model", 12, "w-3"));
  EXPECT_NE(flow, FlowOf("vision", "model", 13, "w-3"));
  EXPECT_NE(flow, FlowOf("vision", "model", 12, "w-4"));
  EXPECT_NE(flow, FlowOf("vision", "model1", 2, "w-3"));
  EXPECT_NE(flow, FlowOf("speech", "model", 12, "w-3"));
  for (uint64_t round = 0; round < 100; ++round) {
    const uint64_t each = FlowOf("vision", "model", round, "w-3");
    EXPECT_EQ(static_cast<uint64_t>(static_cast<double>(each)), each);
  }
}

}  // namespace
}  // namespace basin
