// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// An engine that may decide only at times, and one that begins anew.

#include "aggregator/engine/gate.h"

#include <vector>

#include <gtest/gtest.h>

#include "aggregator/engine/engine.h"
#include "tests/aggregator/engine/in_process.h"

namespace basin::aggregator {
namespace {

constexpr size_t kElements = 3 * kChunkFloats;

class Gated : public EngineNetwork {
 public:
  Gated()
      : EngineNetwork(engine),
        gate(gate_clock),
        engine(EngineOptions{}, clock, *reducer, notes, nullptr) {
    engine.DecideWhile(gate);
    engine.Start(transport);
  }
  ~Gated() override { engine.Stop(); }

  void Open() {
    gate.OpenUntil(gate_clock.Now() + absl::Hours(1));
    engine.LookAgain();
  }
  void Close() { gate_clock.Advance(absl::Hours(1)); }
  size_t Noted(NoteKind kind) {
    // Everything that was posted before has arrived in the loop.
    LookAt<bool>(engine, [](const Runner&) { return true; });
    return notes.OfKind(kind).size();
  }

  ManualClock clock;
  ManualClock gate_clock;
  Gate gate;
  NoteBook notes;
  std::unique_ptr<kernels::Reducer> reducer = kernels::MakeCpuReducer();
  Engine engine;
};

TEST(Gate, EndsByItself) {
  ManualClock clock;
  Gate gate(clock);
  EXPECT_FALSE(gate.open());
  gate.OpenUntil(clock.Now() + absl::Seconds(1));
  EXPECT_TRUE(gate.open());
  clock.Advance(absl::Seconds(1));
  EXPECT_FALSE(gate.open());
}

TEST(EngineGate, Fault_A4_NothingIsDecidedWhileItIsClosedAndNothingIsLost) {
  const Model model = AverageOf({F32("weight", kElements)}, 2);
  Gated rig;
  RigWorker a(rig, "a", model);
  RigWorker b(rig, "b", model);
  rig.Open();
  Join({&a, &b});
  a.Begin();
  a.Push(0, GradientOf(0, kElements));
  a.Commit();
  b.Begin();
  b.Push(0, GradientOf(1, kElements));
  EXPECT_EQ(rig.Noted(NoteKind::kRoundPrepared), 0u);
  rig.Close();
  b.Commit();
  // Longer than every lease: their workers are not to blame.
  rig.clock.Advance(absl::Minutes(1));
  EXPECT_EQ(rig.Noted(NoteKind::kRoundPrepared), 0u);
  EXPECT_EQ(rig.Noted(NoteKind::kWorkerLost), 0u);
  rig.Open();
  for (const VerdictRecord& verdict : Finish({&a, &b})) {
    EXPECT_EQ(verdict.value.outcome, Outcome::kCommitted);
    EXPECT_EQ(verdict.value.divisor, 2u);
  }
  EXPECT_EQ(rig.Noted(NoteKind::kWorkerLost), 0u);
}

TEST(EngineGate, LooksAreAnsweredWhileItIsClosed) {
  Gated rig;
  EXPECT_TRUE(LookAt<bool>(rig.engine, [](const Runner&) { return true; }));
  rig.engine.Command(DrainService{});
  EXPECT_EQ(rig.Noted(NoteKind::kDraining), 0u);
  EXPECT_EQ(rig.engine.InboxDelay(), absl::ZeroDuration());
}

TEST(EngineGate, AnEngineThatRestartsHasForgottenItsJobs) {
  const Model model = AverageOf({F32("weight", kElements)}, 1);
  Gated rig;
  RigWorker a(rig, "a", model);
  rig.Open();
  Join({&a});
  rig.engine.Restart(1234);
  EXPECT_EQ(rig.notes.OfKind(NoteKind::kJobEnded).size(), 1u);
  EXPECT_EQ(rig.engine.term(), 1234u);
  EXPECT_TRUE(LookAt<bool>(rig.engine, [](const Runner& runner) {
    return runner.core().jobs().empty() && runner.core().config().term == 1234 &&
           runner.sessions() == 0;
  }));
}

}  // namespace
}  // namespace basin::aggregator
