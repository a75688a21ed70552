// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// One trainer process: its process (tests/world), its connections, and a scripted trainer. The
// trainer imports, registers its tensors, declares itself ready, loads the state of a donor if it
// joins late, and then trains: it begins, pushes in its own order, skips, commits, waits and
// applies. Its state is a hash of all results that it applied.
//
// Thread contract: one run, one thread.

#ifndef BASIN_TESTS_SIMULATION_WORKER_PROCESS_H_
#define BASIN_TESTS_SIMULATION_WORKER_PROCESS_H_

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tests/simulation/checker.h"
#include "tests/simulation/lives.h"
#include "tests/simulation/network.h"
#include "tests/simulation/payload.h"
#include "tests/simulation/ticker.h"
#include "tests/world/worker_process.h"

namespace basin::simulation {

class World;

// Special numbers of waits: the trainer is asked to leave, or starts over after a postponed call.
inline constexpr uint32_t kAskedToLeave = ~uint32_t{0};
inline constexpr uint32_t kCallIsPostponed = kAskedToLeave - 1;

// The checkpoint of a trainer, which outlives its process.
struct Checkpoint {
  uint64_t step = 0;
  std::vector<uint64_t> lanes;  // The state by lane of the model.
};

class WorkerProcess : public world::WorkerProcess<Sums> {
 public:
  WorkerProcess(World& world, uint32_t index, uint32_t worker, client::Config config,
                Checkpoint checkpoint);

  // ---- events
  void Start();
  void Arrive(ConnectionId connection, Item item);
  void SeesClose(ConnectionId connection);
  // An event planned for `scheduled` happens now, which is later if the process was stopped
  // meanwhile.
  void Connect(uint32_t what, SimTime scheduled);  // 0: the session; otherwise a data stream + 1.
  void ConnectTimesOut(ConnectionId connection);
  void Timer();
  void Act(uint32_t wait, SimTime scheduled);  // 0: the next thing; else the wait is over time.

  // The process ends without a message. Everything that it has sent arrives, unless `reset`.
  void Crash(bool reset);

  bool alive() const { return alive_; }
  uint32_t index() const { return index_; }
  uint32_t worker() const { return worker_; }
  std::string id() const;
  std::string name() const;
  std::vector<ConnectionId> connections() const;
  std::optional<ConnectionId> session() const { return session_; }
  // An open data connection, chosen by `salt`.
  std::optional<ConnectionId> stream(uint64_t salt) const;
  std::optional<uint32_t> aggregator() const;

  bool training() const { return phase_ == Phase::kTraining || phase_ == Phase::kLoading; }
  bool done() const { return phase_ == Phase::kDone; }
  bool left() const { return phase_ == Phase::kLeft; }
  bool leaving() const { return phase_ == Phase::kLeaving; }
  bool fenced() const { return fenced_; }
  const Checkpoint& checkpoint() const { return checkpoint_; }
  // In which life it knows the lane of this name; absent if it does not.
  std::optional<Life> LifeOf(const std::string& name) const;
  // The state of a lane after the verdict with this chain.
  std::optional<uint64_t> StateAfter(uint32_t lane, uint64_t chain) const;
  std::string Explain() const;

  bool stopped = false;
  SimTime continued_at = 0;
  std::vector<Scheduled> deferred;

 private:
  using Base = world::WorkerProcess<Sums>;
  friend Base;

  enum class Phase : uint8_t {
    kImporting,
    kJoining,  // It is ready, but not a member.
    kLoading,  // It is a member that still lacks the donor's state.
    kTraining,
    kDone,  // All rounds have ended.
    kLeaving,
    kLeft,
  };
  enum class LanePhase : uint8_t { kIdle, kPushing, kWaiting };

  // A round of which the trainer has the results, and not the state before it.
  struct Kept {
    RoundNumber round = 0;
    uint64_t sum = 0;  // What the results add to the state.
  };

  struct Lane {
    uint32_t model = 0;  // The position in the scenario.
    // For a name that may go: the life of its lane, once it is laid out, with the round of the
    // layout; whether the trainer knows where it begins in this life; the round after which it was
    // asked to let the name go, unless it has answered; whether the core has forgotten the lane;
    // the chain of the first lane when its call was begun.
    Life life = 0;
    bool knows_life = true;
    RoundNumber enters = 0;
    bool placed = true;
    std::optional<RoundNumber> asked;
    bool forgotten = false;
    uint64_t step = 0;
    std::vector<uint32_t> known;   // Tensors of the model by TensorHandle.
    std::vector<uint32_t> absent;  // Tensors of the model that this trainer does not have (yet).
    LanePhase phase = LanePhase::kIdle;
    RoundNumber round = 0;     // In flight; 0 until the core has given its number.
    RoundNumber last = 0;      // The last one that ended.
    RoundNumber joined = 0;    // The first round of this life.
    RoundNumber left_out = 0;  // The last one that left this worker out because it was late.
    uint64_t chain = 0;
    // Unknown after a call that went on without this worker, until another worker has applied it.
    std::optional<uint64_t> state = 0;
    std::map<uint64_t, uint64_t> states;  // By chain, the states that a joiner may load.
    Contribution given;
    std::optional<LateContribution> late;     // The last one, if its verdict says that it was.
    std::optional<LateContribution> counted;  // The last one, if it was counted.
    uint64_t key = 0;
    std::vector<client::TensorHandle> order;
    size_t next = 0;
    std::vector<client::PushTensor> growing;  // Pushed in part: what they are as a whole.
    bool withdraw = false;
    bool corrupt = false;
    bool abandon = false;
    SimTime deadline = 0;  // When the wait ends; 0 if there is no deadline.
    uint32_t wait = 0;     // The wait that the deadline belongs to.
    SimTime patience = 0;  // The length of a wait whose deadline is to pass.
    uint32_t take = 0;     // The turn in which it takes results of another worker; 0: none.
    std::map<RoundNumber, VerdictRecord> verdicts;
    std::optional<Prepared> prepared;
    std::optional<LaneIndex> index;  // Its index at the aggregator.
    std::vector<uint32_t> layout;    // Tensors of the model by TensorIndex.
    uint64_t pushed_chunks = 0;      // The places sent at least once in this round.
    std::optional<std::pair<RoundNumber, uint64_t>> start;  // Where a joiner begins.
    uint64_t epoch = 1;                                     // Whose samples it asks for next.
    bool leases = false;                                    // It waits for samples.
    RoundNumber batch_of = 0;  // The round for whose batch it accumulates, ...
    uint64_t accumulated = 0;  // ... so many samples.
    bool closed = false;       // That batch has its samples.
    bool reports = false;      // It waits for the answer to a report of its batch.
    std::deque<std::vector<SampleRange>> shares;  // Of the next steps, ...
    uint64_t boundary = 0;   // While the state is behind: the chain after which it is loaded, ...
    std::vector<Kept> kept;  // ... and the results since.
    Generation shares_of;    // ... by the ranks of this one.
  };

  void Step(const client::Event& event);
  void StepNow(const client::Event& event);
  // Whether the action is carried out, unless a fault ends this process before.
  bool Allows(const client::Action& action);
  bool Allows(const client::SendContribution& send);
  void ActAfter(SimTime delay);

  void Do(client::OpenSession& open);
  void Do(client::CloseSession& close);
  void Do(client::OpenStream& open);
  void Do(client::CloseStream& close);
  void Do(client::Send& send);
  void Do(client::Deliver& deliver);
  void Do(client::FailRound& fail);
  void Do(client::RoundRejected& rejected);
  void Do(client::RoundHeldUp&) {}
  void Do(client::JobPaused&) {}
  void Do(client::ForgetLane& forget);
  void Do(client::Refused& refused);
  void Do(client::MembershipNow& now);
  void CheckRank(const client::MembershipNow& now);
  void ChangeRanks(uint32_t percent);
  void Do(client::BlobReady& ready);
  void Do(client::BlobFailed& failed);
  void Do(client::SamplesAnswered& answered);
  void Do(client::BatchAnswered& answered);
  void Do(client::Fatal& fatal);
  void Do(client::Left& left);

  void SendOn(uint32_t stream, PushFrame frame);
  void SendOn(uint32_t stream, BlobFrame frame);
  Chunk ChunkOf(const client::SendContribution& send, const TensorSpec& spec, uint32_t chunk) {
    const Lane& lane = lanes_[send.lane];
    return lane.given.At(PositionOf(lane, spec.name), HashName(spec.name), chunk);
  }
  // Fails the run, because a bad status breaks the contract between a core and its runner.
  void Require(const absl::Status& status);

  // Notes what the transport learns from a message, ahead of the core.
  void Observe(const ToWorker& message);
  void ObserveLayout(const LaneLayout& layout);
  void ObserveVerdict(LaneIndex lane, const VerdictRecord& record);
  void ObserveQuestion(const LetGo& asked);
  void CloseConnections();

  // ---- names that are let go
  // Whether the lane is that of a call that may go.
  bool MayGo(const Lane& lane) const { return world_calls_ > 0 && !HasState(lane); }
  // The layout may be that of another life.
  void EnterLife(Lane& lane, const LaneLayout& layout);
  static void LeaveLife(Lane& lane);
  // Learns from the core where it begins in the lives that it has entered.
  void PlaceLanes();
  bool InFlight(uint32_t handle) const {
    return core_.lanes().Has(handle) && core_.lanes()[handle].round.has_value();
  }
  // Begins calls of the step that are not made yet. Returns whether there are any.
  bool MakeCalls(RoundNumber step);
  bool HasCallsToBegin(RoundNumber step) const;
  std::vector<uint32_t> CallsOf(RoundNumber step) const;
  // Whether the call of this step is over for all workers.
  bool IsMade(uint32_t model) const;
  // The handle of the name of this model, which is registered, once more or for the first time.
  // Absent if its call is made later.
  std::optional<uint32_t> Name(uint32_t model);

  Lane* LaneAt(LaneIndex index);
  void Record(Lane& lane);

  // The trainer (trainer.cc).
  void Leave();
  void AddLane(uint32_t model);
  void Register();
  void Register(const Lane& lane);
  void Train();
  void BeginLane(uint32_t handle);
  // Asks for samples, or returns some, now and then.
  void MindSamples(uint32_t handle);
  // Whether the lane begins its round later, because its batch lacks samples.
  bool WaitsForBatch(uint32_t handle);
  // Leases and forgets shares of steps.
  void MindSteps(uint32_t handle);
  void LeaseSamples(uint32_t handle);
  void NameSamples(uint32_t handle, client::BeginRound& begin);
  void PushNext(uint32_t handle);
  // Notes that the tensor is pushed.
  client::PushTensor ToPush(uint32_t handle, client::TensorHandle tensor);
  uint32_t ChunksOf(const Lane& lane, client::TensorHandle tensor) const;
  uint32_t PositionOf(const Lane& lane, const std::string& name) const;
  void Grow(Lane& lane);
  // What the last round was too late for, if the next one may have it.
  std::optional<LateContribution> Deferred(uint32_t handle) const;
  void Finish(uint32_t handle);
  void Wait(uint32_t handle, SimTime patience);
  void TakeResults(uint32_t handle);
  std::optional<ResultFrame> HeldResults(const Lane& of) const;
  void EndRound(uint32_t handle, const VerdictRecord& record);
  void Apply(Lane& lane, const VerdictRecord& record);
  void CatchUp(Lane& lane);
  bool WentWithout(const Lane& lane, const VerdictRecord& record) const;
  SimTime Lateness(uint32_t percent);
  bool IsLate(const VerdictRecord& record) const;
  bool MayBeLeftOut(const Lane& lane, const VerdictRecord& record) const;
  bool HasState(const Lane& lane) const;
  void Pass(Lane& lane, const VerdictRecord& record);
  void Settle(Lane& lane, const VerdictRecord& record);
  void Evicted();
  void TryLoad();
  void LoadFrom(const WorkerProcess& donor);
  // A joiner that takes part in rounds before it has the state.
  bool MayGoAhead() const;
  void GoAhead();
  void EndBehind();
  void Keep(Lane& lane, const VerdictRecord& record);
  void LevelUp();
  void Announce(const Lane& lane);
  // Notes which state a script would serve now to those who have joined, if it has not yet: at its
  // next begin, or while it waits for an outcome.
  void ServeBoundary();
  // A round has ended without it before it has done so.
  void MissBoundary();
  // It has loaded the state of the lane with which its first round begins.
  void Loaded(const Lane& lane);
  bool Strikes(FaultKind kind, RoundNumber step, SimTime* duration = nullptr);

  World& world_;
  const uint32_t world_calls_;  // Of each step, under names that may go.
  const uint32_t index_;
  const uint32_t worker_;
  Random random_;
  uint32_t ranks_;      // The trainers that it stands for.
  MemberList members_;  // Those it was last told of.
  bool alive_ = true;
  bool fenced_ = false;    // It must stop for good.
  bool drained_ = false;   // It must leave at the next boundary.
  bool behind_ = false;    // It takes part in rounds, and lacks the state.
  uint32_t ahead_ = 0;     // In so many more before it loads that.
  bool dropped_ = false;   // It is no longer a member, but is still in a round.
  uint32_t position_ = 0;  // Where a script is: the model whose lane is next.
  bool finished_ = false;
  Phase phase_ = Phase::kImporting;
  Ticker ticker_;
  SimTime act_at_;

  std::optional<ConnectionId> session_;
  std::vector<std::optional<ConnectionId>> streams_;
  std::vector<SessionToken> tokens_;  // By stream, for a connect that the core delayed.
  std::vector<PlacedShard> ends_at_;  // By stream, likewise.
  SimTime connect_at_ = -1;
  std::vector<SimTime> connect_stream_at_;
  std::optional<uint32_t> resolved_;  // The aggregator it is connected to.

  Incarnation incarnation_;
  Term term_ = 0;                         // The term of that aggregator.
  std::vector<Lane> lanes_;               // By LaneHandle.
  std::map<uint32_t, uint32_t> handles_;  // Of names that may go, by model.
  RoundNumber calls_of_ = 0;              // The step of these calls, ...
  std::vector<uint32_t> calls_;           // ... which are to be made, by model; the last one first.
  uint32_t tries_ = 0;                    // How often one of them was refused.
  std::optional<WorkerId> donor_;
  Generation donor_since_;   // The last one with which others have joined, as far as it was told.
  Generation served_;        // The last one that ServeBoundary has noted.
  Generation joined_since_;  // That with which this worker has joined others.
  SimTime loading_since_ = 0;
  std::map<std::string, uint64_t> fetching_;  // The version requested of each lane.
  Checkpoint checkpoint_;
  std::vector<client::Action> actions_;
  std::vector<client::Event> pending_;
  bool stepping_ = false;
};

}  // namespace basin::simulation

#endif  // BASIN_TESTS_SIMULATION_WORKER_PROCESS_H_
