// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// One worker of a job, as its trainer calls it. The C ABI wraps this class.
//
//   auto worker = Worker::Connect(options, connector, clock);
//   auto model = worker->Register("model", LaneKind::kGradient, specs);
//   worker->Ready();
//   worker->AwaitMember(absl::Minutes(5));
//   // each step:
//   worker->Begin({model.lane, spec});
//   worker->Push(model.lane, model.tensors[i], gradient, bytes);    // as each is ready
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
//   Announce      With Hold::kCopy, the memory is read during the call only. With Hold::kInPlace it
//                 is the library's, to read, until the same tensor is announced again, or
//                 StopServing or the destructor returns; between BeginStep and EndStep it is not
//                 read.
//   Everything else is copied during the call.
//
// Thread contract: any thread may call anything at any time, except the destructor, which must be
// the last. BeginStep and EndStep alternate. One thread at a time waits for a lane's round.
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
#include "client/transport/channel.h"
#include "client/transport/gate.h"
#include "client/transport/loop.h"
#include "client/transport/outcome.h"
#include "client/transport/registered.h"
#include "client/transport/runner.h"
#include "client/transport/timeline.h"
#include "runtime/clock.h"
#include "runtime/mutex.h"

namespace basin::client {

struct WorkerOptions {
  Config core;  // A nonce of 0 and a jitter seed of 0 are chosen at random.
  // Called whenever place() has changed, and whenever the outcome of a lane's round was delivered
  // or is kept for Wait; on a thread of the library. May be null.
  std::function<void(const Place&)> placed;
  std::function<void(LaneHandle)> ended;
  std::shared_ptr<Timeline> timeline = nullptr;  // Null: nothing is recorded.
};

// Whether announced memory is copied at once or read when a worker requests it.
enum class Hold : uint8_t { kCopy = 0, kInPlace = 1 };

class Worker {
 public:
  using RoundDone = Runner::RoundDone;
  using ValueDone = Runner::ValueDone;

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

  // ---- the place in the job
  Place place() const;
  // Declares that the model is built and state can be loaded. Necessary again after an eviction.
  absl::Status Ready(uint64_t step_label = 0, uint64_t state_hash = 0);
  // Returns when the aggregator has welcomed the worker, so that the expected place is known.
  absl::Status AwaitWelcome(absl::Duration timeout);
  // Returns when the worker is a member, so that rank and world size mean something.
  absl::Status AwaitMember(absl::Duration timeout);

  // ---- tensors
  // Idempotent; adds the tensors that are new. Handles stay valid for the life of the worker.
  absl::StatusOr<Registration> Register(const std::string& lane, LaneKind kind,
                                        const std::vector<TensorSpec>& tensors);

  // ---- memory
  // For tensors that an aggregator on this machine reads where they lie; see Registered. Valid
  // until Free, or until the worker is destroyed. Failure: kResourceExhausted; kInvalidArgument for
  // memory that is not of this kind.
  absl::StatusOr<void*> Allocate(uint64_t bytes);
  absl::Status Free(const void* memory);

  // ---- rounds
  absl::Status Begin(const BeginRound& begin);
  // Reads the tensor, to hash it and to make the narrow copy; sends it later. If the state of the
  // round does not allow the call, Commit returns the error. Failure: kNotFound for handles that
  // were not registered; kInvalidArgument if the number of bytes at `data` is not that of the
  // tensor, or if the encoding is impossible for it.
  absl::Status Push(LaneHandle lane, TensorHandle tensor, const void* data, uint64_t bytes,
                    wire::Encoding encoding = {});
  struct PushedTensor {
    TensorHandle tensor = 0;
    const void* data = nullptr;
    uint64_t bytes = 0;  // The size of the tensor.
    // For f16 the exponent may be kernels::kFitExponent: then it is fitted to the tensor.
    wire::Encoding encoding;
    // Keeps `data` as long as the library reads it; null: the trainer does.
    std::shared_ptr<const void> owner = nullptr;
    // Present: `data` are in the encoding already, and this was the squared norm before.
    std::optional<double> narrowed = std::nullopt;
  };
  // The same for many tensors: small ones share frames, and the loop wakes up once. An error of one
  // is the call's, and then none is pushed.
  absl::Status PushMany(LaneHandle lane, absl::Span<const PushedTensor> tensors);
  // A tensor whose memory is filled from its begin while the first bytes are sent. It may be given
  // up at any time: then the round cannot be committed any more.
  class GrowingPush {
   public:
    // The first `bytes` of the tensor are there: more than before, and whole chunks or all. For all
    // bytes of a narrowed tensor: its norm.
    absl::Status Grow(uint64_t bytes, std::optional<double> narrowed = std::nullopt);

   private:
    friend class Worker;
    GrowingPush(Worker& worker, LaneHandle lane, const PushedTensor& pushed,
                Preparation preparation);

    Worker& worker_;
    const LaneHandle lane_;
    const TensorHandle tensor_;
    const std::shared_ptr<const void> owner_;
    const absl::Time began_;
    Preparation preparation_;
    bool begun_ = false;
  };
  // REQUIRES: the worker outlives it; the exponent is known. Of `narrowed`, only whether there is
  // one counts.
  absl::StatusOr<std::unique_ptr<GrowingPush>> PushGrowing(LaneHandle lane,
                                                           const PushedTensor& tensor);
  // The error that PushMany would return for the tensors, without reading them: of their handles,
  // sizes and encodings.
  absl::Status CheckPush(LaneHandle lane, absl::Span<const PushedTensor> tensors) const;
  // The place for a tensor's contribution in memory of its device that the aggregator reads;
  // nothing if there is none, and the tensor is pushed from the host. `make` makes such memory of
  // the device with this index. The place is written before PushMeasured, in the round that has
  // begun.
  std::optional<DevicePlace> TakeDevicePlace(LaneHandle lane, TensorHandle tensor, int device,
                                             const DeviceArena::Make& make);
  // PushMany, for tensors that are at such places.
  absl::Status PushMeasured(LaneHandle lane, std::vector<MeasuredTensor> tensors);
  // The dtype of a tensor; unspecified if it is not registered.
  DType DTypeOf(LaneHandle lane, TensorHandle tensor) const;
  // The name of a tensor; empty if it is not registered.
  std::string NameOf(LaneHandle lane, TensorHandle tensor) const;
  absl::Status Skip(LaneHandle lane, TensorHandle tensor);
  // Failure: the error of a Push or a Skip, after which the round is as before: withdraw it; or the
  // error with which the round has ended meanwhile: Wait returns it again, when the memory is free.
  absl::Status Commit(LaneHandle lane, RoundDone ended = nullptr);
  absl::Status Withdraw(LaneHandle lane, const std::string& reason, RoundDone ended = nullptr);

  // Two workers of one node may share what they receive of a round: one has contributed for both,
  // and brings the other its results, which the aggregator then does not send. The results may be
  // used when Wait returns them, like any others.
  absl::Status WithdrawWithoutResults(LaneHandle lane, const std::string& reason,
                                      RoundDone ended = nullptr);
  // Waits until all results are here, and returns them before their verdict, so without the next
  // members. The verdict may not come: a round can be run again. If the round ends first, its
  // outcome, which Wait returns as well. kDeadlineExceeded at the timeout. One thread at a time for
  // each lane.
  RoundOutcome WaitForResults(LaneHandle lane, absl::Duration timeout);
  // The same, but waits only until the round has a value, so that its results will come soon, or
  // has ended.
  absl::Status WaitForValue(LaneHandle lane, absl::Duration timeout);
  // The results of another worker's WaitForResults: those of `round`, reduced at `value_ballot`.
  // Wrong bytes are noticed, and requested from the aggregator.
  struct GivenResult {
    TensorHandle tensor = 0;
    std::string bytes;
  };
  absl::Status GiveResults(LaneHandle lane, RoundNumber round, Ballot value_ballot,
                           std::vector<GivenResult> results);
  // No more are given: what is missing is requested from the aggregator. Without this call the
  // round may wait for this worker until it is evicted.
  absl::Status RequestResults(LaneHandle lane);

  // kOutcomeUnknown at the timeout, kPaused if the job is paused; the round then continues.
  // Otherwise the outcome, once.
  RoundOutcome Wait(LaneHandle lane, absl::Duration timeout);
  // Whether a round of the lane has begun whose outcome has not been taken.
  absl::StatusOr<bool> Outstanding(LaneHandle lane);

  struct CallTensor {
    TensorHandle tensor = 0;
    const void* in = nullptr;
    void* out = nullptr;  // May be `in`. Unchanged if no worker contributed to the tensor.
    uint64_t bytes = 0;   // At `in`, and at `out`.
  };
  // Begin, Push, Commit, Wait and CopyTo in one, with one wait for the loop.
  RoundOutcome Allreduce(const BeginRound& begin, absl::Span<const CallTensor> tensors,
                         absl::Duration timeout);

  // Gives up every round in flight, and with them the membership. Returns when all memory is free.
  absl::Status Abandon();

  // ---- values
  // Failure: kFailedPrecondition when a newer version was announced; kInvalidArgument for another
  // number of bytes than the tensor has.
  absl::Status Announce(const ValueKey& key, const TensorSpec& spec, const void* data,
                        uint64_t bytes, Hold hold);
  absl::Status StopServing(const std::string& lane, const std::string& tensor);
  // Enclose code that writes to memory that was announced in place.
  void BeginStep();
  void EndStep();
  // The value that `source` announced, or any worker if it is absent.
  ValueOutcome Get(const ValueKey& key, const std::optional<TensorSpec>& expected,
                   const std::optional<WorkerId>& source, absl::Duration timeout);
  // The same, without waiting: many can be on their way at once.
  absl::Status StartGet(const ValueKey& key, const std::optional<TensorSpec>& expected,
                        const std::optional<WorkerId>& source, absl::Duration timeout,
                        ValueDone done);

  // ---- how it is going
  // Why the trainer does something else, and for how long; zero: it is over.
  absl::Status Busy(const std::string& reason, absl::Duration expected);
  // The trainers that this worker stands for from the next begin on, and the number of this one
  // among them.
  absl::Status SetRanks(uint32_t ranks, uint32_t local_rank);
  absl::Status Progress();
  // Out of data: contributes to no further round.
  absl::Status Finished();
  // The trainer leaves at the end of its step. While the job is paused, its waits for rounds and
  // values end with PAUSED, and it does not wait to become a member.
  absl::Status WillLeave();
  // Returns when the aggregator has confirmed it, or does not answer in time. Fails rounds in
  // flight. `forget`: the aggregator forgets the job at once if no worker is left in it then.
  absl::Status Leave(bool forget = false);

  // Looks at the runner from the loop; must not block. For status and tests.
  absl::Status Inspect(const std::function<void(const Runner&)>& look);

 private:
  struct TensorInfo {
    TensorSpec spec;
    uint64_t bytes = 0;
    kernels::TensorKey key{""};
  };

  Worker(WorkerOptions options, Connector& connector, Clock& clock);

  // Runs `ask` on the loop and returns the value that `ask` passes to its second argument.
  template <typename T>
  T Ask(std::function<void(Runner&, absl::Time, std::function<void(const T&)>)> ask);
  absl::Status Do(std::function<absl::Status(Runner&, absl::Time)> call);
  absl::Status Post(Task task);
  absl::StatusOr<std::shared_ptr<const TensorInfo>> Find(LaneHandle lane,
                                                         TensorHandle tensor) const;
  absl::StatusOr<std::shared_ptr<const TensorInfo>> FindLocked(LaneHandle lane,
                                                               TensorHandle tensor) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Those of tensors that can be pushed.
  using Infos = std::vector<std::shared_ptr<const TensorInfo>>;
  absl::StatusOr<Infos> FindPushed(LaneHandle lane, absl::Span<const PushedTensor> tensors) const;

  // For the timeline, if there is one.
  absl::Time StartOfPush() const { return timeline_ == nullptr ? absl::Time() : timeline_->Now(); }

  // That of the tensor's contribution in memory shared with the aggregator, if there is such
  // memory.
  std::optional<ArenaPlace> PlaceFor(LaneHandle lane, TensorHandle tensor);

  // That of a tensor that its trainer keeps in memory of Allocate.
  std::optional<ArenaPlace> PlaceInMemoryOfTrainer(const TensorInfo& info, const void* data);

  // A contribution that is about to be pushed. REQUIRES: the data are those of the tensor.
  Preparation Prepare(const TensorInfo& info, LaneHandle lane, const PushedTensor& pushed,
                      bool shared);

  Connector& connector_;
  std::atomic<uint64_t> preparations_{0};
  const std::shared_ptr<Timeline> timeline_;

  // These synchronise themselves.
  Gate gate_;
  Arenas arenas_;
  Registered registered_;

  mutable Mutex mutex_;
  Place place_ ABSL_GUARDED_BY(mutex_);
  std::map<LaneHandle, std::vector<std::shared_ptr<const TensorInfo>>> tensors_
      ABSL_GUARDED_BY(mutex_);

  Loop loop_;
  Runner runner_;  // The loop's.
};

}  // namespace basin::client

#endif  // BASIN_CLIENT_TRANSPORT_WORKER_H_
