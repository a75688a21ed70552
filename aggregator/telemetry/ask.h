// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Runs a query in the engine's loop and waits for the answer, with a timeout.
//
// Thread contract: from any thread but the loop.

#ifndef BASIN_AGGREGATOR_TELEMETRY_ASK_H_
#define BASIN_AGGREGATOR_TELEMETRY_ASK_H_

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "absl/time/time.h"
#include "aggregator/engine/engine.h"
#include "runtime/mutex.h"

namespace basin::aggregator {

// Engine::Inspect, Engine::InspectInOrder, or Engine::InspectWritten.
using Inspection = void (Engine::*)(std::function<void(const Runner&, absl::Time)>);

// The result of `look(runner, now)` in the loop; nothing if the loop did not run it in time, or the
// engine has stopped. `look` may be called even later: it must own its data.
template <typename Answer, typename Look>
std::optional<Answer> Ask(Engine& engine, std::chrono::milliseconds timeout, Look look,
                          Inspection inspect = &Engine::Inspect) {
  struct Delivery {
    Mutex mutex;
    Condition arrived;
    std::optional<Answer> answer ABSL_GUARDED_BY(mutex);
  };
  const auto delivery = std::make_shared<Delivery>();
  (engine.*inspect)([delivery, look = std::move(look)](const Runner& runner, absl::Time now) {
    Answer answer = look(runner, now);
    MutexLock lock(delivery->mutex);
    delivery->answer.emplace(std::move(answer));
    delivery->arrived.NotifyAll();
  });
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  MutexLock lock(delivery->mutex);
  while (!delivery->answer.has_value() && std::chrono::steady_clock::now() < deadline) {
    delivery->arrived.WaitUntil(delivery->mutex, deadline);
  }
  return std::move(delivery->answer);
}

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_TELEMETRY_ASK_H_
