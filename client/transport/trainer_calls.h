// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// How the calls of a trainer reach the runner: posted to the loop, or answered by it.
//
// Thread contract: safe from any thread. In a callback of the loop, a call that would wait is
// refused with FAILED_PRECONDITION, like every call once the loop has ended.

#ifndef BASIN_CLIENT_TRANSPORT_TRAINER_CALLS_H_
#define BASIN_CLIENT_TRANSPORT_TRAINER_CALLS_H_

#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "client/transport/loop.h"
#include "client/transport/runner.h"
#include "proto/wire/session.h"
#include "proto/wire/status_detail.h"
#include "runtime/mutex.h"

namespace basin::client {

// The same in memory of its own. Statuses share their memory among copies. That is correct, but
// ThreadSanitizer reports it, because it does not see how a system build of Abseil counts the
// references.
inline absl::Status Unshared(const absl::Status& status) {
  return wire::ToStatus(wire::ToError(status));
}
template <typename T>
absl::StatusOr<T> Unshared(const absl::StatusOr<T>& value) {
  return value.ok() ? value : Unshared(value.status());
}

// Whether the trainer gets this instead of an outcome, and the round continues.
inline bool GoesOn(const absl::Status& status) {
  const ErrorCode code = wire::ToError(status).code;
  return code == ErrorCode::kOutcomeUnknown || code == ErrorCode::kPaused;
}

// A result for which one thread waits and which another provides.
template <typename T>
class Answer {
 public:
  void Give(const T& value) {
    MutexLock lock(mutex_);
    value_ = Unshared(value);
    given_.NotifyAll();
  }
  T Await() {
    MutexLock lock(mutex_);
    while (!value_.has_value()) given_.Wait(mutex_);
    return *std::exchange(value_, std::nullopt);
  }

 private:
  Mutex mutex_;
  Condition given_;
  std::optional<T> value_ ABSL_GUARDED_BY(mutex_);
};

// A call that would send an invalid message is refused here, because the aggregator would end the
// session.
template <typename Message>
absl::Status CheckCall(const Message& message) {
  absl::Status status = wire::Check(message);
  if (status.ok()) return status;
  return wire::ToStatus({ErrorCode::kInvalidArgument,
                         absl::StrCat("The protocol does not allow this call: ", status.message(),
                                      ". Correct the argument.")});
}

class TrainerCalls {
 public:
  // REQUIRES: the loop outlives it.
  explicit TrainerCalls(Loop& loop) : loop_(loop) {}

  // Whether the calling thread would wait for itself.
  absl::Status CheckMayWait() const {
    if (!loop_.InLoop()) return absl::OkStatus();
    return wire::ToStatus({ErrorCode::kFailedPrecondition,
                           "A callback made a call that waits; make it from another thread."});
  }

  absl::Status Post(Task task) const {
    if (loop_.InLoop()) {
      loop_.poster()(std::move(task));
      return absl::OkStatus();
    }
    return loop_.PostWithRoom(std::move(task)) ? absl::OkStatus() : Closed();
  }

  // Runs `ask` on the loop and returns the value that `ask` passes to its third argument.
  template <typename T, typename F>
  T Ask(F ask) const {
    if (absl::Status status = CheckMayWait(); !status.ok()) return status;
    const auto answer = std::make_shared<Answer<T>>();
    const bool posted =
        loop_.Call([ask = std::move(ask), answer](Runner& runner, absl::Time now) mutable {
          ask(runner, now, [answer](const T& value) { answer->Give(value); });
        });
    return posted ? answer->Await() : T(Closed());
  }

  // Runs `call` on the loop and returns its value.
  template <typename F>
  auto Do(F call) const {
    using T = decltype(call(std::declval<Runner&>(), absl::Time()));
    return Ask<T>([call = std::move(call)](Runner& runner, absl::Time now, const auto& done) {
      done(call(runner, now));
    });
  }

 private:
  static absl::Status Closed() {
    return wire::ToStatus({ErrorCode::kFailedPrecondition, "This worker is being closed."});
  }

  Loop& loop_;
};

}  // namespace basin::client

#endif  // BASIN_CLIENT_TRANSPORT_TRAINER_CALLS_H_
