// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The tensors of a worker that are in the memory of a device: copies gradients to the host while
// the backward goes on, pushes them to the worker as they arrive, and copies results back, in the
// order of the trainer's streams.
//
// A push marks the work that the stream has been given so far, and returns. Behind that mark the
// tensors are copied to the host and pushed, on another thread. Where the aggregator reads memory
// of the device, they are copied within the device instead, to places that it has mapped.
// WaitUntilPassed waits for it, before a commit. A result is copied from where it was received, or
// from where the aggregator left it on the device, and the stream is made to wait for the copy.
//
// Ownership of memory: the library reads a pushed tensor until WaitUntilPassed has returned;
// results are written until the work that the stream is given after Copy. The copies on the host
// have owners of their own, so that a round's outcome does not wait for them.
//
// Thread contract: safe from any thread; in a callback of the worker, calls that would wait are
// refused. Failure: FAILED_PRECONDITION while the stream is captured into a graph, and after an
// error of the device; INVALID_ARGUMENT for memory or a stream of another device. If a copy to the
// host fails, WaitUntilPassed and further pushes of the round return why: the round can only be
// withdrawn.

#ifndef BASIN_CLIENT_DEVICE_TRANSFERS_H_
#define BASIN_CLIENT_DEVICE_TRANSFERS_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "accelerator/device/device.h"
#include "accelerator/transfer/courier.h"
#include "client/transport/source.h"
#include "client/transport/worker.h"
#include "runtime/mutex.h"
#include "runtime/payload.h"

namespace basin::client {

using accelerator::Courier;
using accelerator::LoadLayout;
using accelerator::PinnedBudget;

// Where the tensors of a call are, and the stream that uses them.
struct OnDevice {
  int index = 0;
  accelerator::Stream stream = nullptr;
};

class DeviceTransfers {
 public:
  // Opens the device of this index. Called once for each.
  using Open = std::function<kernels::Result<std::unique_ptr<accelerator::Device>>(int)>;

  // REQUIRES: the worker outlives it. `pinned_bytes`: the most pinned memory for all devices.
  DeviceTransfers(Worker& worker, Open open, uint64_t pinned_bytes);
  // Drops what has not started; returns when no memory of the trainer is read or written.
  ~DeviceTransfers();
  DeviceTransfers(const DeviceTransfers&) = delete;
  DeviceTransfers& operator=(const DeviceTransfers&) = delete;

  // Worker::Begin. What was pushed before, and is still on its way, is not part of the round.
  absl::Status Begin(const BeginRound& begin);

  // Worker::Push, for sources whose data are on a device. If it fails, none is pushed.
  absl::Status Push(LaneHandle lane, absl::Span<const Source> sources, const OnDevice& where);

  // Returns when what was pushed in the lane has been passed to the worker, and why it was not.
  absl::Status WaitUntilPassed(LaneHandle lane);
  // What was pushed, and is still on its way, is no longer passed to the worker, and the round can
  // no longer be committed. For one lane, or all.
  void Drop(LaneHandle lane);
  void DropAll();
  void WaitUntilAllPassed();

  // RoundResult::CopyTo, for destinations on a device. After an error destinations may be written
  // in part, but nothing more is written.
  absl::Status Copy(const RoundResult& result, absl::Span<const RoundResult::Destination> to,
                    const OnDevice& where);

  // The lanes of which something is kept; for tests.
  size_t lanes() const;

 private:
  struct Lane {
    // Held while the worker gets tensors of a round, or begins one.
    Mutex passing;
    Mutex mutex;
    Condition changed;
    uint64_t round ABSL_GUARDED_BY(mutex) = 0;  // Counts begins and drops.
    uint64_t on_their_way ABSL_GUARDED_BY(mutex) = 0;
    // Those among them that are copied to places on the device.
    uint64_t staging ABSL_GUARDED_BY(mutex) = 0;
    // Whether tensors of this round may take places: not while copies of a round that was given up
    // may still write to them.
    bool places ABSL_GUARDED_BY(mutex) = false;
    absl::Status failed ABSL_GUARDED_BY(mutex);  // What failed in this round.
  };
  using LanePtr = std::shared_ptr<Lane>;
  static constexpr size_t kLanesAtFirst = 64;

  LanePtr LaneOf(LaneHandle lane);
  // Forgets lanes whose handles mean nothing any more: a program may make calls with any number of
  // names, one after another.
  void ForgetGone() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  static void Drop(const LanePtr& lane);
  std::vector<LanePtr> Lanes();
  absl::StatusOr<Courier*> CourierOf(int device);
  // Tensors of one load, on their way to the worker.
  struct Passage {
    LanePtr lane;
    LaneHandle handle = 0;
    uint64_t round = 0;
    std::string subject;  // For errors.
    std::vector<Source> sources;
    std::vector<DevicePlace> places;  // Theirs, if the load began as a staged one.
    uint64_t bytes = 0;
    std::optional<Source> growing;  // The only one on the host; nothing: no part of it was passed.
  };
  using PassagePtr = std::shared_ptr<Passage>;
  // One load of a push.
  struct Part {
    PassagePtr passage = std::make_shared<Passage>();
    LoadLayout layout;
  };
  // Divides the tensors among loads. `places`: whether they may take places on the device.
  std::vector<Part> Divide(LaneHandle lane, absl::Span<const Source> sources,
                           const std::vector<Worker::TensorInfoPtr>& infos, int device,
                           Courier& courier, bool places);
  // `what`: the subject of an error.
  absl::StatusOr<Courier::EventPtr> Prepare(Courier& courier, const OnDevice& where,
                                            const std::string& what);

  // The load has come, or has failed.
  void Pass(Passage& passage, const LoadLayout& layout,
            const std::optional<kernels::Failure>& failure, const std::shared_ptr<char>& host);
  // More of the load's only tensor has come, not all.
  void PassPart(Passage& passage, const LoadLayout& layout, const std::shared_ptr<char>& host,
                uint64_t host_bytes);
  // Whether what comes is still part of the round. REQUIRES: `passing` is held.
  static bool IsWanted(const Passage& passage);
  // What has failed in the round, if nothing has before.
  static void Fail(const Passage& passage, const absl::Status& status);

  Worker& worker_;
  const Open open_;
  const std::shared_ptr<PinnedBudget> budget_;

  mutable Mutex mutex_;
  std::map<LaneHandle, LanePtr> lanes_ ABSL_GUARDED_BY(mutex_);
  size_t most_lanes_ ABSL_GUARDED_BY(mutex_) = kLanesAtFirst;  // Before some are forgotten.
  std::map<int, std::unique_ptr<Courier>> couriers_ ABSL_GUARDED_BY(mutex_);  // By device.
};

}  // namespace basin::client

#endif  // BASIN_CLIENT_DEVICE_TRANSFERS_H_
