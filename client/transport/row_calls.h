// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Calls in which workers bring each other rows: allgather, all-to-all, reduce-scatter, broadcast.
// The C interface wraps this class, and the C++ header that interface. Workers in Python have code
// of their own (gathering.py, scattering.py, broadcasting.py), and meet these in the same lanes:
//
//   call             lane                           what a worker contributes
//   ---------------  -----------------------------  ----------------------------------------------
//   allgather        call/allgather/NAME            the number of its bytes, as a weight
//                    call/contents/allgather/NAME   its rank, the number of its rows, and the rows,
//                                                   as tensors to which nobody else adds anything
//   all-to-all       call/alltoall/NAME             as above
//                    call/contents/alltoall/NAME    as above, with a number of rows for each rank
//   reduce-scatter   call/reducescatter/NAME        the array, of whose sum it keeps its rows
//   broadcast        call/broadcast of values/NAME  the root its array, the others nothing
//
// A call of two rounds has the handle of the first one. Its second round is begun in Wait, and the
// others wait until then. What fails on one worker alone before that is therefore the outcome of
// the second round on this worker, which takes part in it without a contribution.
//
// Ownership: as with Worker::Push, the library may read an array until Wait reports the outcome of
// its call, or Abandon or the destructor of the worker returns. Thread contract: safe from any
// thread; one thread at a time waits for a call. Failure: typed errors that name the call, the
// worker that is the reason, and what to do.

#ifndef BASIN_CLIENT_TRANSPORT_ROW_CALLS_H_
#define BASIN_CLIENT_TRANSPORT_ROW_CALLS_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/core/event.h"
#include "client/transport/outcome.h"
#include "client/transport/worker.h"
#include "runtime/clock.h"
#include "runtime/mutex.h"

namespace basin::client {

// An array of the trainer, by the name of its call.
struct RowArray {
  TensorSpec spec;
  const void* data = nullptr;
  uint64_t bytes = 0;
};

// What a call has brought, one part after the other: the rows of each worker, by rank; or, of a
// reduce-scatter and a broadcast, one part alone.
struct ReceivedRows {
  // Room for so many rows in each part.
  ReceivedRows(std::vector<uint64_t> rows_of_parts, uint64_t bytes_of_row);

  // Where a part begins. REQUIRES: part <= rows.size().
  char* At(size_t part) const;

  std::vector<uint64_t> rows;  // By part.
  uint64_t row_bytes = 0;
  std::unique_ptr<char[]> data;
  std::shared_ptr<const RoundResult> facts;  // Those of the last round, without its tensors.
};

class RowCalls {
 public:
  // `id`: the worker's. REQUIRES: the worker and the clock outlive its use.
  RowCalls(Worker& worker, const Clock& clock, WorkerId id);

  // Each begins a call, whose handle for Wait is `call` then.
  // Failure: kInvalidArgument before anything is sent, if the array has no usable shape or not its
  // bytes; kFailedPrecondition if the outcome of the last such call by this name was not waited
  // for, and then `call` is the handle of that; and the errors of Worker::Begin.
  absl::Status Allgather(RowArray rows, LaneHandle& call);
  // The first splits[0] rows go to rank 0, the next splits[1] to rank 1, and so on.
  // Failure: also kInvalidArgument if the splits are not one for each rank, which add up to the
  // rows; kFailedPrecondition, here and below, on a worker that stands for several ranks.
  absl::Status AllToAll(RowArray rows, const std::vector<uint64_t>& splits, LaneHandle& call);
  // `begin`: the reduction. Its lane and its call are set here.
  absl::Status ReduceScatter(RowArray rows, BeginRound begin, LaneHandle& call);
  // The array is read on the worker of rank `root` alone, and its memory may be null elsewhere.
  absl::Status Broadcast(RowArray rows, uint32_t root, LaneHandle& call);

  // Waits for the outcome of the call, and returns it once. After kOutcomeUnknown (the time has
  // passed) and kPaused the call goes on: wait again.
  // Failure: kMismatch, on all workers, if they make different calls; kUnavailable, on all of them,
  // if one was lost before it had sent its rows, or if members have changed where ranks matter;
  // kNotFound if no such call is in flight; and the errors of Worker::Wait.
  absl::StatusOr<ReceivedRows> Wait(LaneHandle handle, absl::Duration timeout);

  // After Worker::Abandon: no call is in flight any more.
  void GiveUp();

 private:
  enum class Kind : uint8_t { kAllgather, kAllToAll, kReduceScatter, kBroadcast };
  struct Call;
  // An array of a round. Null: this worker contributes nothing to it.
  struct Memory {
    const void* data = nullptr;
    // Keeps the data as long as the library reads it; null: the trainer does.
    std::shared_ptr<const void> owner = nullptr;
  };

  // `handle`: that of such a call which is in flight, with kFailedPrecondition.
  absl::StatusOr<std::shared_ptr<Call>> Make(Kind kind, RowArray rows, LaneHandle& handle) const;
  // Begins the first round of an allgather or an all-to-all. `text`: what the call is.
  absl::Status Gather(const std::shared_ptr<Call>& call, const std::string& text,
                      const std::vector<int64_t>& numbers, LaneHandle& handle);
  // Begins the first round.
  absl::Status Start(const std::shared_ptr<Call>& call, const BeginRound& begin,
                     const std::vector<Memory>& arrays, LaneHandle& handle);
  // Begins a round of the call, with its parts of these arrays. What fails after that, and what has
  // failed before, withdraws the contribution.
  absl::Status Contribute(const std::shared_ptr<Call>& call, BeginRound begin,
                          const std::vector<Memory>& arrays);
  absl::StatusOr<ReceivedRows> Take(const std::shared_ptr<Call>& call, absl::Time deadline);
  // After the first round of a gathering.
  absl::Status BeginContents(const std::shared_ptr<Call>& call, const RoundResult& sizes);
  // That of the call in flight which has this key.
  std::optional<LaneHandle> HandleOf(const std::string& key) const;
  bool IsInFlight(const std::shared_ptr<Call>& call) const;

  absl::StatusOr<ReceivedRows> CopyFrom(const Call& call, const RoundResult& result) const;
  absl::StatusOr<ReceivedRows> CopyGathered(const Call& call, const RoundResult& result) const;
  static absl::StatusOr<ReceivedRows> CopyScattered(const Call& call, const RoundResult& result);
  static absl::StatusOr<ReceivedRows> CopyBroadcast(const Call& call, const RoundResult& result);

  Worker& worker_;
  const Clock& clock_;
  const WorkerId id_;
  mutable Mutex mutex_;
  std::map<LaneHandle, std::shared_ptr<Call>> calls_ ABSL_GUARDED_BY(mutex_);  // In flight.
};

}  // namespace basin::client

#endif  // BASIN_CLIENT_TRANSPORT_ROW_CALLS_H_
