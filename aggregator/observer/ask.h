// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Asks the engine's loop something and waits for the answer, but not for ever.
//
// Thread contract: from any thread but the loop.

#ifndef BASIN_AGGREGATOR_OBSERVER_ASK_H_
#define BASIN_AGGREGATOR_OBSERVER_ASK_H_

#include <chrono>
#include <memory>
#include <optional>
#include <utility>

#include "absl/time/time.h"
#include "aggregator/engine/engine.h"
#include "runtime/mutex.h"

namespace basin::aggregator {

// What `look(runner, now)` returned in the loop; nothing when the loop did not get to it in time,
// or the engine has stopped. `look` may be called later still: it must own what it uses.
template <typename Answer, typename Look>
std::optional<Answer> Ask(Engine& engine, std::chrono::milliseconds timeout, Look look) {
  struct Delivery {
    Mutex mutex;
    Condition arrived;
    std::optional<Answer> answer ABSL_GUARDED_BY(mutex);
  };
  const auto delivery = std::make_shared<Delivery>();
  engine.Inspect([delivery, look = std::move(look)](const Runner& runner, absl::Time now) {
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

#endif  // BASIN_AGGREGATOR_OBSERVER_ASK_H_
