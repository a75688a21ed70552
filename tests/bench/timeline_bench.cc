// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// What a timeline costs a worker: the calls of a round with many tensors, each pushed and copied
// alone, which is the most that there can be; and the text of a round, which the timeline's own
// thread makes.

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include <benchmark/benchmark.h>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "client/transport/timeline.h"
#include "client/transport/timeline_text.h"
#include "runtime/clock.h"

namespace basin::client {
namespace {

struct Recorded {
  explicit Recorded(bool on) {
    if (!on) return;
    timeline = std::make_shared<Timeline>([clock = MonotonicClock()] { return clock.Now(); }, 1);
    timeline->Register(0, "model", LaneKind::kGradient);
  }

  // The calls of one round, as the worker and its results make them.
  void Round(RoundNumber number, uint32_t tensors) {
    Timeline* const t = timeline.get();
    VerdictRecord record;
    record.round = number;
    const MonotonicClock clock;
    if (t != nullptr) t->Begin(0);
    for (uint32_t i = 0; i < tensors; ++i) {
      const absl::Time began = t == nullptr ? absl::Time() : t->Now();
      benchmark::DoNotOptimize(began);
      if (t != nullptr) t->Pushed(0, began, 1, 1 << 20);
    }
    if (t == nullptr) return;
    t->Commit(0);
    t->FirstResult(0, clock.Now());
    t->Staged(0, clock.Now());
    const RoundOutcome outcome =
        std::make_shared<RoundResult>(record, std::nullopt, std::vector<RoundResult::Tensor>(),
                                      std::vector<TensorSpec>(), nullptr);
    t->Decided(0, number, 1, outcome, clock.Now());
    t->Delivered(0);
    for (uint32_t i = 0; i < tensors; ++i) t->Copied(0, number, t->Now());
  }

  std::shared_ptr<Timeline> timeline;
};

void BM_Round(benchmark::State& state) {
  Recorded recorded(state.range(1) != 0);
  RoundNumber number = 0;
  for (auto _ : state) {
    recorded.Round(++number, static_cast<uint32_t>(state.range(0)));
    // The writer would take them. A round is recorded when the next one begins, and with fewer
    // records Take waits.
    if (recorded.timeline == nullptr || number % (Timeline::kQueued / 2) != 1 || number == 1) {
      continue;
    }
    state.PauseTiming();
    recorded.timeline->Take();
    state.ResumeTiming();
  }
}
BENCHMARK(BM_Round)->ArgNames({"tensors", "timeline"})->ArgsProduct({{1, 16, 161}, {0, 1}});

void BM_Text(benchmark::State& state) {
  Recorded recorded(true);
  recorded.Round(1, 16);
  recorded.timeline->End();
  const Timeline::Batch batch = recorded.timeline->Take();
  TimelineText text({7, "vision", "w0", absl::ZeroDuration()}, uint64_t{1} << 60);
  uint64_t bytes = 0;
  uint64_t rounds = 0;
  for (auto _ : state) {
    bytes += text.Next(batch, absl::Now()).size();
    ++rounds;
  }
  state.counters["bytes_per_round"] = static_cast<double>(bytes) / static_cast<double>(rounds);
}
BENCHMARK(BM_Text);

}  // namespace
}  // namespace basin::client
