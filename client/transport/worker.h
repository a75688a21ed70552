// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// One worker of a job, as its trainer calls it. The C ABI wraps this class.
//
//   auto worker = Worker::Connect(options, connector, clock);
//   auto model = worker->Register("model", LaneKind::kGradient, specs);
//   worker->Call(DeclareReady{});
//   worker->AwaitMember(absl::Minutes(5));
//   // each step:
//   worker->Begin({model.lane, spec});
//   worker->Push(model.lane, {model.tensors[i], gradient, bytes});    // as each is ready
//   worker->Commit(model.lane);
//   auto result = worker->Wait(model.lane, timeout);
//   result->CopyTo(model.tensors[i], gradient, bytes);
//
// A round. Begin, then Push or Skip for each tensor (those that are not named are skipped), then
// Commit, or Withdraw for a contribution that must not be counted; then Wait, or the callback that
// was given to Commit or Withdraw. One round of a lane at a time; lanes are independent.
//
// Ownership of memory
//   Push          The library may read the tensor from the call until Wait, or the callback of
//                 Commit or Withdraw, reports the outcome of the round. OUTCOME_UNKNOWN, PAUSED and
//                 the result of Commit are not outcomes: after them the library may read the tensor
//                 until Wait reports the outcome, or Abandon or the destructor returns. A narrow
//                 tensor is copied, and is no longer read when Push has returned.
//   results       Belong to the RoundResult, which holds the received bytes. Only CopyTo and
//                 Allreduce write to the trainer's memory, during their calls.
//   values        See blob_calls.h.
//   Everything else is copied during the call.
//
// Thread contract: any thread may call anything at any time, except the destructor, which must be
// the last. One thread at a time waits for a lane's round.
// Callbacks run on the library's thread and must not block; within them, a call that would wait is
// refused. Failure: the typed errors of proto/wire/status_detail.h, each with a text that names
// job, worker, lane and tensor, and what to do.

#ifndef BASIN_CLIENT_TRANSPORT_WORKER_H_
#define BASIN_CLIENT_TRANSPORT_WORKER_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "client/core/config.h"
#include "client/core/event.h"
#include "client/core/unnamed.h"
#include "client/transport/blob_calls.h"
#include "client/transport/channel.h"
#include "client/transport/gate.h"
#include "client/transport/loop.h"
#include "client/transport/mapped_memory.h"
#include "client/transport/outcome.h"
#include "client/transport/runner.h"
#include "client/transport/source.h"
#include "client/transport/timeline.h"
#include "client/transport/trainer_calls.h"
#include "runtime/clock.h"
#include "runtime/mutex.h"

namespace basin::client {

struct WorkerOptions {
  Config core;  // A nonce of 0 and a jitter seed of 0 are chosen at random.
  // Called whenever view() has changed, and whenever the outcome of a lane's round was delivered
  // or is kept for Wait; on a thread of the library. May be null.
  std::function<void(const JobView&)> on_view;
  std::function<void(LaneHandle)> ended;
  std::shared_ptr<Timeline> timeline = nullptr;  // Null: nothing is recorded.
};

class Worker {
 public:
  using RoundDone = Runner::RoundDone;
  using TensorInfoPtr = std::shared_ptr<const TensorInfo>;

  // Starts to connect and returns at once; the worker reconnects by itself until it is destroyed.
  // REQUIRES: the connector is this worker's only, and it and the clock outlive the worker.
  // Failure: kInvalidArgument for invalid names of jobs, runs or workers.
  static absl::StatusOr<std::unique_ptr<Worker>> Connect(WorkerOptions options,
                                                         Connector& connector, Clock& clock);

  // Closes all connections without a message: the aggregator counts the worker as lost, unless it
  // has left. Returns when the trainer's memory is free. REQUIRES: not InLoop(), which it waits
  // for.
  ~Worker();
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  // Whether this is the library's thread, so a callback.
  bool InLoop() const { return loop_.InLoop(); }

  // ---- the view of the job
  JobView view() const;
  // A call that needs only the core, see client/core/event.h: DeclareReady, which is necessary
  // again after an eviction; SetBusy, SetRanks, Finish; WillLeave, after which, while the job is
  // paused, waits for rounds and values end with PAUSED, and the worker does not wait to become a
  // member; RequestResults, without which the round may wait for this worker until it is evicted.
  absl::Status Call(const Event& call);
  // Returns when the aggregator has welcomed the worker, so that the expected rank is known.
  absl::Status AwaitWelcome(absl::Duration timeout);
  // Returns when the worker is a member, so that rank and world size mean something.
  absl::Status AwaitMember(absl::Duration timeout);

  // ---- tensors
  // Idempotent; adds the tensors that are new. The handle of a gradient lane stays valid for the
  // life of the worker. That of a call lane does until the next round of it has ended, and then for
  // as long as the job has no more than half of limits.lane_names names; a call with a handle that
  // means nothing any more is kNotFound, and the name is registered again. An outcome that was not
  // taken before can be taken all the same, until a call with this name begins.
  absl::StatusOr<Registration> Register(const std::string& lane, LaneKind kind,
                                        const std::vector<TensorSpec>& tensors);

  // Whether the handle means a lane, which it may not any more.
  bool IsRegistered(LaneHandle lane) const;
  // What the tensors of the sources are. Failure: the error that Push would return for them,
  // without reading them: kNotFound for handles that were not registered; kInvalidArgument if the
  // number of bytes is not that of the tensor, or if the encoding is impossible for it.
  absl::StatusOr<std::vector<TensorInfoPtr>> Check(LaneHandle lane,
                                                   absl::Span<const Source> sources) const;
  // Where tensors lie that an aggregator on this machine reads without a copy.
  MappedMemory& memory() { return memory_; }

  // ---- rounds
  absl::Status Begin(const BeginRound& begin);
  // Reads what is there of the sources, to hash it and to make copies, and passes it to the loop as
  // it is read; small tensors share frames. A source that grows is pushed again, when more of it is
  // there. It may be given up at any time: then the round cannot be committed any more.
  // If the state of the round does not allow the call, Commit returns the error. Failure: that of
  // Check, and then none of the sources is pushed.
  absl::Status Push(LaneHandle lane, absl::Span<Source> sources);
  absl::Status Push(LaneHandle lane, Source source) { return Push(lane, {&source, 1}); }
  absl::Status Skip(LaneHandle lane, TensorHandle tensor);
  // Failure: the error of a Push or a Skip, after which the round is as before: withdraw it; or the
  // error with which the round has ended meanwhile: Wait returns it again, when the memory is free.
  absl::Status Commit(LaneHandle lane, RoundDone ended = nullptr);
  // `without_results`: two workers of one node may share what they receive of a round. One has
  // contributed for both, and brings the other its results, which the aggregator then does not
  // send. The results may be used when Wait returns them, like any others.
  absl::Status Withdraw(const WithdrawRound& withdraw, RoundDone ended = nullptr);

  // Waits until all results are here, and returns them before their verdict, so without the next
  // members. The verdict may not come: a round can be run again. If the round ends first, its
  // outcome, which Wait returns as well. kDeadlineExceeded at the timeout. One thread at a time for
  // each lane.
  RoundOutcome WaitForResults(LaneHandle lane, absl::Duration timeout);
  // The same, but waits only until the round has a value, so that its results will come soon, or
  // has ended.
  absl::Status WaitForValue(LaneHandle lane, absl::Duration timeout);
  // A result of another worker's WaitForResults: the tensor's bytes in `round`, reduced at
  // `value_ballot`. Wrong bytes are noticed, and requested from the aggregator. The last one is
  // followed by RequestResults, for those that are missing. REQUIRES: `bytes` is not null.
  absl::Status GiveResult(LaneHandle lane, TensorHandle tensor, RoundNumber round,
                          Ballot value_ballot, PayloadPtr bytes);

  // kOutcomeUnknown at the timeout, kPaused if the job is paused; the round then continues.
  // Otherwise the outcome, once.
  RoundOutcome Wait(LaneHandle lane, absl::Duration timeout);
  // Whether a round of the lane has begun whose outcome has not been taken.
  absl::StatusOr<bool> Outstanding(LaneHandle lane);
  // The handle under which the outcome of the last call with this name can be taken, if nobody has,
  // and its lane was let go since.
  absl::StatusOr<std::optional<LaneHandle>> Left(const std::string& name);

  // Begin, Push, Commit, Wait and CopyTo in one, with one wait for the loop. A destination may be
  // the memory of its source, and is unchanged if no worker contributed to the tensor.
  RoundOutcome Allreduce(const BeginRound& begin, absl::Span<Source> sources,
                         absl::Span<const RoundResult::Destination> destinations,
                         absl::Duration timeout);

  // The lane and the tensors of this trainer's next call without a name; see client/core/unnamed.h.
  // It is the next call until its round has begun, so one thread at a time makes them. Waits until
  // the aggregator has said where the others are: before the first call only, and after the worker
  // has become a member again. kFailedPrecondition while the outcome of the one kUnnamedLanes
  // before has not been taken, kDeadlineExceeded at the timeout.
  struct UnnamedCall {
    LaneHandle lane = 0;
    std::vector<CallPart> parts;
    std::vector<TensorHandle> tensors;  // That of each part.
  };
  absl::StatusOr<UnnamedCall> NextCall(const std::vector<TensorSpec>& arrays,
                                       absl::Duration timeout);

  // ---- samples
  // Returns when the aggregator has answered, which may be a later one. One thread at a time for
  // each lane. The error with which it ends if the worker is no member any more, or leaves.
  absl::StatusOr<LeasedSamples> LeaseSamples(const TakeSamples& take);
  absl::Status ReturnSamples(const GiveBackSamples& back);
  absl::Status ResumeSamples(const client::ResumeSamples& resume);
  // As of the last verdict that this worker has.
  absl::StatusOr<SampleProgress> CommittedSamples(LaneHandle lane);
  // Like LeaseSamples, about the batch of the next round.
  absl::StatusOr<BatchProgress> ReportBatch(const AccumulateBatch& batch);
  // What the worker holds and has to train on. FAILED_PRECONDITION while the outcome of a round of
  // the lane has not been taken: the worker does not know then whether it still holds its samples.
  absl::StatusOr<SampleProgress> HeldSamples(LaneHandle lane);

  // Gives up every round in flight, and with them the membership. Returns when all memory is free.
  absl::Status Abandon();

  BlobCalls& values() { return values_; }

  // Returns when the aggregator has confirmed it, or does not answer in time. Fails rounds in
  // flight. `forget`: the aggregator forgets the job at once if no worker is left in it then.
  absl::Status Leave(bool forget = false);

  // Looks at the runner from the loop; must not block. For status and tests.
  absl::Status Inspect(const std::function<void(const Runner&)>& look);

 private:
  Worker(WorkerOptions options, Connector& connector, Clock& clock);

  absl::StatusOr<TensorInfoPtr> Find(LaneHandle lane, TensorHandle tensor) const;
  absl::StatusOr<TensorInfoPtr> FindLocked(LaneHandle lane, TensorHandle tensor) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Opens the sources that were not pushed before. `may_copy`: into memory that is mapped.
  void Open(LaneHandle lane, absl::Span<Source> sources, const std::vector<TensorInfoPtr>& infos,
            bool may_copy);
  // For the timeline, if there is one.
  absl::Time StartOfPush() const { return timeline_ == nullptr ? absl::Time() : timeline_->Now(); }
  void RecordPush(LaneHandle lane, absl::Time began, absl::Span<const Source> sources,
                  uint64_t read_before);

  const std::shared_ptr<Timeline> timeline_;
  std::atomic<uint64_t> opened_{0};  // Sources.

  // These synchronise themselves.
  Gate gate_;
  MappedMemory memory_;

  mutable Mutex mutex_;
  JobView view_ ABSL_GUARDED_BY(mutex_);
  std::map<LaneHandle, std::vector<TensorInfoPtr>> tensors_ ABSL_GUARDED_BY(mutex_);
  // The lanes of unnamed calls, by place, once all of them have been laid out; they stay.
  std::vector<LaneHandle> unnamed_ ABSL_GUARDED_BY(mutex_);

  Loop loop_;
  const TrainerCalls calls_{loop_};
  BlobCalls values_{calls_, gate_};
  Runner runner_;  // The loop's.
};

}  // namespace basin::client

#endif  // BASIN_CLIENT_TRANSPORT_WORKER_H_
