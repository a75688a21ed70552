// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The communicator of the ranks of one node: reduces buckets of gradients to the leader, and
// broadcasts results from it, in a queue of its own on the device.
//
// Work runs in the order in which it was given, which is the same on every rank. A thread of the
// communicator gives it to NCCL and the device; it is ordered behind an event of the trainer's
// stream, and before what that stream is given afterwards. No call waits for the device, except
// those named Wait.
//
// Failure: any error is the end of the communicator: NCCL's work is aborted, on all ranks of the
// node when their communicators are aborted too. Every Wait returns why, and no Wait lasts longer
// than the options allow, whether a peer never comes, work does not end, or a call of NCCL does not
// return.
//   UNAVAILABLE         an error of NCCL or of the device
//   DEADLINE_EXCEEDED   a call of NCCL, the forming, or work that the trainer's own has not delayed
//   INVALID_ARGUMENT    a bucket without a plan, or without memory that this rank needs
//   RESOURCE_EXHAUSTED  more than kMostWork works that have not ended
// One refusal ends the work alone: INVALID_ARGUMENT for plans of another number of ranks, because
// every rank refuses that bucket. If only one rank left a bucket out, its next one would meet the
// others' bucket before.
// A rank that is lost is not noticed here before a deadline: whoever sees it calls Abort.
//
// Ownership of memory: inputs, results and the event are used until the work's Wait has returned.
// After a failure that is true as well if quiet() is; otherwise the device may still write to
// them, and the memory of this object is never freed.
//
// Thread contract: safe from any thread. Nobody uses it when the destructor has begun.

#ifndef BASIN_ACCELERATOR_NODE_NCCL_COMMUNICATOR_H_
#define BASIN_ACCELERATOR_NODE_NCCL_COMMUNICATOR_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "accelerator/device/device.h"
#include "accelerator/node/nccl/bucket.h"
#include "accelerator/node/nccl/library.h"
#include "runtime/mutex.h"

namespace basin::accelerator::nccl {

using EventPtr = std::shared_ptr<Event>;

struct CommunicatorOptions {
  Position position;
  UniqueId id = {};
  GroupMode mode = GroupMode::kDeterministic;
  // Until all ranks have come. What precedes that on this rank may take call_within in addition.
  std::chrono::milliseconds form_within{60000};
  // For work, since the trainer's own work before it and the work given before it have ended here.
  // Other ranks may begin later, so this is the longest that one is waited for.
  std::chrono::milliseconds work_within{120000};
  // For a call of NCCL, none of which waits for other ranks.
  std::chrono::milliseconds call_within{30000};
  // For what is running to end after a failure.
  std::chrono::milliseconds quiet_within{10000};
  // Memory on the device through which contributions pass. The same on every rank.
  size_t scratch_bytes = size_t{64} << 20;
};

// Works that were given to a communicator and have not ended.
constexpr uint64_t kMostWork = uint64_t{1} << 16;

// Where work belongs in the trainer's streams.
struct Order {
  EventPtr after;                // Null: nothing is waited for.
  std::optional<Stream> before;  // What this stream is given later waits.
};

// Memory on the device.
struct GroupBytes {
  void* data = nullptr;
  size_t bytes = 0;
};

// Makes the id of a communicator, which one rank gives to the others. Bounded by `within`.
absl::StatusOr<UniqueId> MakeUniqueId(const std::shared_ptr<const Library>& library,
                                      std::chrono::milliseconds within);

class Communicator {
 public:
  struct Board;  // What the threads of a communicator know of it.

  // Work that was given to a communicator, which it may outlive.
  class Work {
   public:
    Work(std::shared_ptr<Board> board, uint64_t number, absl::Status refused)
        : board_(std::move(board)), number_(number), refused_(std::move(refused)) {}

    // Returns when the device has been given the work, so that the order of the streams holds.
    absl::Status WaitUntilAdded() const;
    // Returns when it has ended.
    absl::Status Wait() const;
    // The same; returns nothing if that is later than `until`.
    std::optional<absl::Status> WaitUntil(std::chrono::steady_clock::time_point until) const;

   private:
    std::shared_ptr<Board> board_;
    uint64_t number_ = 0;
    absl::Status refused_;
  };

  // Begins to form. Fails if the options contradict themselves or there is no memory.
  static absl::StatusOr<std::unique_ptr<Communicator>> Start(std::shared_ptr<const Library> library,
                                                             std::shared_ptr<Device> device,
                                                             const CommunicatorOptions& options);
  // Aborts, unless it was closed.
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  absl::Status WaitUntilFormed();

  // Reduces a bucket to the leader.
  Work Reduce(std::vector<GroupTensor> tensors, Order order);
  // Copies memory of the leader to that of the other ranks.
  Work Broadcast(std::vector<GroupBytes> parts, Order order);

  // Ends it with this failure, unless it has failed. Does not wait.
  void Abort(absl::Status why);
  // Ends it when all work has ended, with all ranks. Bounded; aborts where that fails. Whoever
  // closes it second gets the same answer.
  absl::Status Close();

  // Why it has failed, or OK.
  absl::Status status() const;
  // Whether nothing is running on the device after a failure.
  bool quiet() const;

 private:
  struct Command;
  class Threads;

  explicit Communicator(std::shared_ptr<Threads> threads);
  // `wrong`: why this rank cannot do its part, which ends the communicator.
  Work Give(Command command, absl::Status wrong);
  // Waits for the threads, or leaves them behind.
  void End() ABSL_EXCLUSIVE_LOCKS_REQUIRED(end_mutex_);

  const std::shared_ptr<Threads> threads_;
  Mutex end_mutex_;  // Held by who ends the communicator, until it has ended.
  std::thread work_ ABSL_GUARDED_BY(end_mutex_);
  std::thread watch_ ABSL_GUARDED_BY(end_mutex_);
};

}  // namespace basin::accelerator::nccl

#endif  // BASIN_ACCELERATOR_NODE_NCCL_COMMUNICATOR_H_
