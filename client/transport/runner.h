// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The client's core with its bytes: turns messages of channels and calls of the trainer into events
// of the core, and carries out the core's actions. It has no thread and no clock; a loop calls it.
//
// What it adds to the core
//   connections  opened after the delay that the core requests; messages of a closed one are
//                ignored
//   buffers      contributions are sent from the trainer's memory; the outcome of a round is
//                delivered when the transport has released all of it
//   results      staged as they were received, by reference, until the next round's first result
//   values       served from the trainer's memory, under a gate; fetched ones are kept likewise
//
// Thread contract: one thread, the loop's, which also runs all callbacks. Failure: a violation by
// the aggregator ends the session, which is opened anew.

#ifndef BASIN_CLIENT_TRANSPORT_RUNNER_H_
#define BASIN_CLIENT_TRANSPORT_RUNNER_H_

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
#include "client/core/client.h"
#include "client/transport/channel.h"
#include "client/transport/contribution.h"
#include "client/transport/gate.h"
#include "client/transport/left_outcomes.h"
#include "client/transport/mapped_memory.h"
#include "client/transport/outcome.h"
#include "client/transport/staging.h"
#include "client/transport/timeline.h"
#include "kernels/checksum.h"
#include "runtime/contents.h"
#include "runtime/payload.h"

namespace basin::client {

class Runner;
using Task = std::function<void(Runner& runner, absl::Time now)>;

struct RunnerDependencies {
  Connector* connector = nullptr;
  // Runs the task on the loop, later; drops it when the loop has ended. From any thread.
  std::function<void(Task)> post;
  // The same, or runs it at once. REQUIRES: the caller holds no lock.
  std::function<void(Task)> post_now;
  // The view of the job has changed.
  std::function<void(const JobView&)> on_view;
  // The outcome of a lane's round was delivered, or is kept for Wait.
  std::function<void(LaneHandle)> ended;
  Gate* gate = nullptr;
  MappedMemory* memory = nullptr;
  std::shared_ptr<Timeline> timeline = nullptr;  // Null: nothing is recorded.
  // The handle means nothing any more, and its last outcome was taken or dropped. May be null.
  std::function<void(LaneHandle)> forget = nullptr;
};

// Only counts up.
struct RunnerCounters {
  uint64_t contribution_bytes = 0;  // Payload handed to data streams, again included.
  uint64_t result_bytes = 0;        // Payload of results that came in.
  uint64_t corrupt_chunks = 0;  // Chunks whose digest was not the one that their sender claimed.
  uint64_t values_changed = 0;  // Chunks not served: the memory differs from what was announced.
  uint64_t streams_closed = 0;  // To get the trainer's memory back.
};

struct Registration {
  LaneHandle lane = 0;
  std::vector<TensorHandle> tensors;  // In the order of the request.
};

// The answer to a lease.
struct LeasedSamples {
  LeaseOutcome outcome = LeaseOutcome::kLeased;  // Not kRefused.
  std::vector<SampleRange> ranges;
};

// The answer to the report of a batch.
struct BatchProgress {
  uint64_t samples = 0;  // Those of all workers.
  bool closed = false;
};

// A value that this process serves: from `data`, which stays valid until the value is replaced or
// withdrawn, or from `own`.
struct ServedBlob {
  uint64_t version = 0;
  const char* data = nullptr;
  PayloadPtr own;
  uint64_t bytes = 0;
  std::vector<Digest> digests;
};

class Runner {
 public:
  using RoundDone = std::function<void(const RoundOutcome&)>;
  using BlobDone = std::function<void(const BlobOutcome&)>;
  using StatusDone = std::function<void(const absl::Status&)>;
  using LeaseDone = std::function<void(const absl::StatusOr<LeasedSamples>&)>;
  using BatchDone = std::function<void(const absl::StatusOr<BatchProgress>&)>;
  using PlaceDone = std::function<void(const absl::StatusOr<uint32_t>&)>;

  Runner(Config config, RunnerDependencies dependencies);

  // ---- events. REQUIRES: `now` does not decrease, here and below.
  void SessionUp(uint64_t connection, absl::Time now);
  // `why`: the code in brackets and a sentence.
  void SessionDown(uint64_t connection, const std::string& why, absl::Time now);
  void MessageReceived(uint64_t connection, ToWorker message, uint64_t bytes, absl::Time now);
  void BatchReceived(uint64_t connection, Batch batch, uint64_t bytes, absl::Time now);
  void StreamUp(uint64_t connection, uint32_t stream, absl::Time now);
  void StreamDown(uint64_t connection, uint32_t stream, const std::string& why, absl::Time now);
  void FrameReceived(uint64_t connection, uint32_t stream, const IncomingFrame& frame,
                     absl::Time now);
  void LoanReturned(LaneHandle lane, uint64_t begin);
  void GateOpened(absl::Time now);
  void Tick(absl::Time now);

  // When Tick must be called at the latest.
  absl::Time NextDeadline() const;
  // No event is known that has not been given.
  void Flush() { dependencies_.connector->Flush(); }

  // ---- calls of the trainer
  // DeclareReady, SetBusy, SetRanks, Finish, WillLeave, RequestResults: whatever needs nothing from
  // the runner.
  absl::Status Call(const Event& call, absl::Time now);
  absl::StatusOr<Registration> Register(const RegisterTensors& request, absl::Time now);
  absl::Status Begin(const BeginRound& begin, absl::Time now);
  // Commit returns the error of an invalid push or skip.
  void Push(LaneHandle lane, PushedParts&& parts, absl::Time now);
  void Skip(LaneHandle lane, TensorHandle tensor, absl::Time now);
  // `ended`, which may be null, is called with the outcome unless a thread waits for it.
  absl::Status Commit(LaneHandle lane, RoundDone ended, absl::Time now);
  absl::Status Withdraw(const WithdrawRound& withdraw, RoundDone ended, absl::Time now);
  // A result of the lane's round, which was withdrawn, that has come another way: the tensor's
  // bytes as the aggregator reduced them at this ballot. Ignored if it is of no use.
  struct GivenResult {
    LaneHandle lane = 0;
    TensorHandle tensor = 0;
    RoundNumber round = 0;
    Ballot ballot;
    PayloadPtr bytes;
    uint64_t size = 0;
    ChunkContents contents;
  };
  void Give(const GivenResult& result, absl::Time now);
  // The results of the lane's round as soon as all of them are here, before it has a verdict, or
  // its outcome, if it ends first. At `deadline`, DEADLINE_EXCEEDED.
  void AwaitResults(LaneHandle lane, absl::Time deadline, RoundDone done, absl::Time now);
  // The same, as soon as the round has a value, whether its results are here or not.
  void AwaitValue(LaneHandle lane, absl::Time deadline, const StatusDone& done, absl::Time now);
  void Wait(LaneHandle lane, absl::Time deadline, RoundDone done, absl::Time now);
  // Whether a round has begun whose outcome has not been taken.
  bool Outstanding(LaneHandle lane) const;
  // The handle under which the outcome of the last call with this name can be taken, if nobody has,
  // and its lane was let go since.
  std::optional<LaneHandle> LeftBy(const std::string& name) const { return left_.Named(name); }
  // Calls `done` when the memory of every round is released.
  void Abandon(StatusDone done, absl::Time now);
  void Leave(bool forget, StatusDone done, absl::Time now);
  // At `deadline`, a DEADLINE_EXCEEDED with the cause.
  void AwaitWelcome(absl::Time deadline, StatusDone done, absl::Time now);
  void AwaitMember(absl::Time deadline, StatusDone done, absl::Time now);
  absl::Status Announce(const BlobKey& key, const TensorSpec& spec, ServedBlob value,
                        absl::Time now);
  void StopServing(const std::string& lane, const std::string& tensor, absl::Time now);
  void Get(const GetBlob& get, BlobDone done, absl::Time now);

  void LeaseSamples(const TakeSamples& take, const LeaseDone& done, absl::Time now);
  absl::StatusOr<SampleProgress> CommittedSamples(LaneHandle lane) const;
  void ReportBatch(const AccumulateBatch& batch, const BatchDone& done, absl::Time now);
  absl::StatusOr<SampleProgress> HeldSamples(LaneHandle lane) const;

  // Which of these lanes takes the next unnamed call, once that is known; see unnamed.h. At
  // `deadline`, a DEADLINE_EXCEEDED with the cause. REQUIRES: they are registered.
  void NextCall(std::vector<LaneHandle> lanes, absl::Time deadline, PlaceDone done, absl::Time now);

  // Closes everything, and fails waiting calls. Calls `done` when the memory of every round is
  // released.
  void Shutdown(StatusDone done);

  const Client& core() const { return core_; }
  const RunnerCounters& counters() const { return counters_; }
  // Whether a thread waits until no round is in flight.
  bool idle_awaited() const { return !idle_waiters_.empty(); }

 private:
  struct Stream {
    std::shared_ptr<StreamChannel> channel;
    uint64_t connection = 0;
    absl::Time open_at = absl::InfiniteFuture();
    // How it is opened.
    SessionToken token = 0;
    PlacedShard shard;
    uint32_t number = 0;
  };
  // The round in flight, from begin until its outcome is delivered.
  struct RoundShell {
    explicit RoundShell(uint64_t number) : begin(number) {}

    const uint64_t begin;  // Its position in the lane.
    std::shared_ptr<Loan> loan;
    struct Pushed {
      PayloadPtr payload;
      uint64_t begin = 0;  // Where the contribution is in the payload.
      Contribution contribution;
    };
    std::map<const void*, PayloadPtr> segments;  // With copies of contributions.
    bool on_device = false;                      // One of them is in memory of a device.
    std::map<TensorHandle, Pushed> pushed;
    absl::Status refused;           // The error of the first refused push or skip.
    std::optional<Error> rejected;  // By the aggregator.
    RoundDone ended;
    uint64_t result_bytes = 0;                      // For the timeline.
    std::optional<RoundOutcome> outcome;            // Known; the loan is on its way back ...
    absl::Time return_by = absl::InfiniteFuture();  // ... until here.
  };
  // Someone waits for the round's value or its results, before or with the outcome.
  struct ValueWaiter {
    RoundDone done;
    absl::Time deadline;
    bool results = false;
  };
  struct LaneShell {
    std::string name;
    bool gone = false;  // The core has forgotten it.
    std::map<std::string, TensorHandle> handles;
    std::vector<std::pair<std::string, kernels::TensorKey>> keys;  // By TensorIndex.
    std::shared_ptr<StagedRound> staged;
    bool sealed = false;  // `staged` is shared with the trainer.
    uint64_t begins = 0;
    // Results that the trainer may still have and that may lie in the aggregator's memory, with the
    // round here (of `begins`) that brought them.
    std::vector<std::pair<uint64_t, std::weak_ptr<StagedRound>>> delivered;
    std::optional<RoundShell> round;
    std::optional<RoundOutcome> ended;  // The outcome of the last round, until it is taken.
    RoundDone waiter;
    std::optional<ValueWaiter> value_waiter;
    LeaseDone lease_waiter;
    BatchDone batch_waiter;

    // Somebody waits for something of it, or will get it.
    bool IsAwaited() const {
      return round.has_value() || waiter != nullptr || value_waiter.has_value() ||
             lease_waiter != nullptr || batch_waiter != nullptr;
    }
  };
  struct Fetch {
    StagedTensor bytes;
    BlobDone done;
  };
  struct MemberWaiter {
    absl::Time deadline;
    StatusDone done;
    bool welcome;  // It waits for the welcome only.
  };
  struct CallWaiter {
    std::vector<LaneHandle> lanes;
    absl::Time deadline;
    PlaceDone done;
  };
  using BlobName = std::pair<std::string, std::string>;  // Lane, tensor.

  // The core's actions; runner_actions.cc.
  std::optional<Error> Step(const Event& event, absl::Time now);
  void Do(const OpenSession& open);
  void Do(const CloseSession& close);
  void Do(const OpenStream& open);
  void Do(const CloseStream& close);
  void Do(const Send& send);
  void Do(const SendContribution& send);
  void Do(const SendSupply& send);
  void Do(const SendBlob& send);
  void Do(const KeepResult& keep);
  void Do(const KeepBlob& keep);
  void Do(const Deliver& deliver);
  void Do(const FailRound& fail);
  void Do(const RoundRejected& rejected);
  void Do(const RoundHeldUp& held_up);
  void Do(const JobPaused& paused);
  void Do(const ForgetLane& forget);
  void Do(const Refused& refused);
  void Do(const MembershipNow& now);
  void Do(const BlobReady& ready);
  void Do(const BlobFailed& failed);
  void Do(const SamplesAnswered& answered);
  void Do(const BatchAnswered& answered);
  void Do(const Fatal& fatal);
  void Do(const Left& left);
  void SendFrame(uint32_t stream, OutgoingFrame frame);
  void ServeNow(const SendBlob& send, const ServedBlob& value);
  void CloseConnections();
  void EndBlob(const BlobKey& key, const BlobOutcome& outcome);

  void OnMessage(ToWorker message, absl::Time now);
  void OnFrame(const IncomingFrame& frame, absl::Time now);

  // Results and values that came in; runner_actions.cc.
  void Observe(const ToWorker& message);
  void ObserveLayout(const LaneLayout& layout);
  void OnResult(const wire::ResultHeader& header, const IncomingFrame& frame, absl::Time now);
  void OnBlob(const wire::BlobHeader& header, const IncomingFrame& frame, absl::Time now);
  // That of chunk `index` of the frame, which is `chunk` of its tensor.
  Digest DigestOf(const IncomingFrame& frame, const kernels::TensorKey& key, uint32_t chunk,
                  size_t index);
  PayloadPart PartOf(uint32_t skip) const;

  // Moments of rounds; runner_actions.cc. REQUIRES: there is a timeline.
  void RecordResult(LaneHandle lane, uint64_t bytes, absl::Time now);
  void RecordStaged(const Staged& staged);

  // Copies the results that the aggregator may overwrite once this round has begun.
  static void KeepResultsOf(LaneShell& lane);

  // Rounds and waits; runner.cc.
  LaneShell* Find(LaneHandle lane);
  // Frees what belongs to a lane that is gone, unless something of it is still awaited. An outcome
  // that nobody has taken is left.
  void FreeIfGone(LaneHandle lane);
  // Takes what is left of a lane that is gone.
  std::optional<RoundOutcome> TakeLeft(LaneHandle lane);
  // The handle means nothing any more.
  void Forget(LaneHandle lane);
  static PayloadPtr Lend(RoundShell& round, Contribution& contribution, uint64_t& begin);
  void PushBegun(LaneHandle lane, PushedParts& parts, absl::Time now);
  void PushMore(LaneHandle lane, const PushedParts& parts, absl::Time now);
  absl::Status EndTrainerSide(LaneHandle lane, RoundDone ended, const Event& call, absl::Time now);
  // `round`: its number, 0 if it has none.
  void Decide(LaneHandle lane, RoundNumber round, RoundOutcome outcome);
  RoundOutcome MakeResult(LaneHandle lane, const VerdictRecord& record);
  void Await(LaneHandle lane, ValueWaiter waiter, absl::Time now);
  void ReportPrepared();
  void ReportOutcome(LaneHandle lane);
  void ReportIdle();
  void PublishView();
  void EndView();
  void ReportMembers();
  std::string WhyNoMember() const;
  // The place for a caller; absent: it is not known yet.
  std::optional<absl::StatusOr<uint32_t>> PlaceFor(const CallWaiter& waiter) const;
  void ReportCallers();
  void RecallLoans(absl::Time now);
  void OpenDue(absl::Time now);

  const RunnerDependencies dependencies_;
  Client core_;
  absl::Time now_;
  RunnerCounters counters_;
  JobView view_;
  bool view_changed_ = false;
  bool closed_ = false;  // By Shutdown.

  // Connections, numbered from 1 and never twice.
  uint64_t connections_ = 0;
  std::shared_ptr<SessionChannel> session_;
  uint64_t session_connection_ = 0;
  absl::Time open_session_at_ = absl::InfiniteFuture();
  std::vector<Stream> streams_;  // Grows with the shards.
  bool stream_refused_ = false;  // One did not come up, and none has since.

  std::map<LaneHandle, LaneShell> lanes_;
  LeftOutcomes left_;                            // Those of lanes that are gone.
  std::map<LaneIndex, std::string> lane_names_;  // As last received.
  std::map<BlobName, ServedBlob> served_;
  std::vector<SendBlob> held_back_;  // While the gate is closed.
  std::map<BlobKey, Fetch, BlobKeyLess> fetches_;
  std::vector<MemberWaiter> member_waiters_;
  std::vector<CallWaiter> call_waiters_;
  bool value_awaited_ = false;            // Perhaps, in a lane.
  std::vector<StatusDone> idle_waiters_;  // Called when no round is in flight.
  std::vector<StatusDone> leave_waiters_;

  // The state of the Step in progress.
  std::vector<Action> actions_;  // Kept for its memory.
  const IncomingFrame* frame_ = nullptr;
  const ChunkDigests* digests_ = nullptr;
  uint32_t frame_first_ = 0;
  // A run of the result frame: where its digests and its bytes begin.
  struct FramePart {
    ChunkRange range;
    size_t digest = 0;
    uint64_t offset = 0;
    uint64_t bytes = 0;
  };
  std::vector<FramePart> parts_;
  std::optional<Error> refused_;
  std::string broken_;  // Why the session cannot go on.
};

}  // namespace basin::client

#endif  // BASIN_CLIENT_TRANSPORT_RUNNER_H_
