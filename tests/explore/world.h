// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// An explored world: one aggregator, a few workers and their connections, as a state and all the
// steps that lead out of it. Small bounds make it finite: one job or two, one lane, one tensor of
// one chunk or two, one data stream per worker and process that holds bytes, a few rounds, and a
// budget for each kind of fault.
//
// Time passes only where it decides something. The eviction of a lost worker, a reconnect and the
// end of the recovery window are each a step of their own that may come at any moment. The search
// thus explores every order of timers, including unlikely ones.
//
// The steps, and why they lose no behaviour:
//
//   - A connection is a FIFO queue; the delivery of the head of any queue is a step. A frame and
//     the messages of its session travel on different connections, and therefore in any order.
//   - A connection that breaks loses its queues. A message that still arrives could as well have
//     arrived before the break, because only the two ends see the break.
//   - The death of a process breaks its connections. A crash of the aggregator does too, and it
//     returns at once: if it returned late, that would look the same as if every worker connected
//     late.
//   - A data stream is open as soon as the worker asks for it: frames of a stream that opens late
//     look the same as frames that arrive late.
//   - A session that closes lingers for no time: until it is lost it receives nothing, and
//     the rest of the aggregator takes it for open, as if it had not noticed.
//   - The world drops messages to a session that the aggregator has ended or whose process is gone.
//   - A data stream to a shard has queues of its own, and so has what a shard reports. What the
//     aggregator asks of a shard happens at once (shard_process.h).
//   - A worker whose data stream to a shard ends tries again until it reports the shard as out of
//     reach; further attempts change nothing. It succeeds at once if the shard can be reached.
//     In a session that the aggregator has ended it does not try.
//   - The result of a core's step depends only on the core and the event. The world keeps each
//     process, message and queue once (interner.h), and looks up the result of a repeated step.
//
// Reduction (partial orders). A step may be taken at once and alone if it commutes with everything
// that can happen before it, or if each step that does not commute with it discards its effect: the
// search still reaches every state that the other orders could check. World::Urgent takes these
// steps:
//
//   1. A message that changes nothing at its receiver and never will: LayoutSeen of a layout that
//      the aggregator knows to be seen; LaneLayout and Credit that leave the client unchanged. A
//      fault that loses the message leads to the same state.
//   2. A report of a shard, if no connection of a worker can break any more: what it reports could
//   as
//      well have happened when the report arrives. If the shard or the worker ends before that,
//      what was reported is lost either way.
//   The others need that no crash of the aggregator, no end of a shard and no broken connection can
//   happen any more. A worker's own steps then touch only its process, the heads of its inbound
//   queues and the tails of its outbound ones; other steps touch the opposite ends. Death and
//   restart of the worker discard the effect of such a step; its eviction commutes with it (the
//   aggregator drops what the worker sends, before or after). Only the order among the worker's own
//   steps remains:
//   3. A worker opens a session as soon as it wants one; its hello may still arrive at any time.
//   4. Messages on the session while no data stream is open: no frame can come before them.
//   5. All queues have a head, or the aggregator has ended the session and adds to neither: all of
//      the worker's own steps, in any order, go before those of others.
//   6. A verdict with no frame on its way: the aggregator sends no more frames of that round, and
//      none of the next round until this worker has pushed. Rounds that go on without those who are
//      late send them before that.
//   7. A Credit that makes the client send nothing: results do not wait for pushes, or pushes for
//      results.
//
// Delays (Emmi, Qadeer and Rakamaric, "Delay-bounded scheduling", 2011). Where there are too many
// orders, one scheduler decides what happens next: the first process in a list that can do
// something takes its first step. A delay moves that process to the end of the list; a world allows
// a few delays. To keep the others from waiting for ever, the clock moves to the end after it has
// acted, and so does a worker that is sent away to retry. Faults still come at any moment. Long
// trails that need few surprises are found this way.
//
// Thread contract: one thread.

#ifndef BASIN_TESTS_EXPLORE_WORLD_H_
#define BASIN_TESTS_EXPLORE_WORLD_H_

#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "tests/explore/aggregator_process.h"
#include "tests/explore/aggregator_store.h"
#include "tests/explore/interner.h"
#include "tests/explore/item.h"
#include "tests/explore/shard_process.h"
#include "tests/explore/worker_process.h"

namespace basin::explore {

inline constexpr uint32_t kAllOrders = 255;

struct Bounds {
  uint32_t jobs = 1;
  uint32_t workers = 3;  // The workers of each job.
  uint32_t min_workers = 2;
  RoundNumber rounds = 1;
  LaneKind kind = LaneKind::kGradient;
  Node node = Node::kNone;
  bool late = false;    // Rounds go on without those who are late, once half have contributed.
  uint32_t chunks = 1;  // Of the tensor.
  uint32_t shards = 0;  // Beside the aggregator.
  bool coordinator_share = true;  // It holds chunks beside them.
  bool reduce = true;             // Take steps at once that commute with all others.
  bool whole_trainer = true;      // The trainer begins, pushes, commits and waits in one step.
  // How often each may happen.
  uint32_t delays = kAllOrders;
  uint32_t crashes = 1;       // The aggregator ends and starts again.
  uint32_t deaths = 0;        // A worker ends for good.
  uint32_t restarts = 0;      // A worker restarts without memory.
  uint32_t evictions = 0;     // A living worker is evicted.
  uint32_t cuts = 0;          // A worker's connections break, but both ends live on.
  uint32_t stream_cuts = 0;   // Only its data stream breaks.
  uint32_t shard_losses = 0;  // A shard ends, with all that it holds.
  uint32_t shard_drains = 0;  // A shard is asked to end.
  uint32_t shard_cuts = 0;    // A worker cannot reach a shard, for ever or until it can again.
  uint32_t shard_joins = 0;   // A shard comes, in place of one that has ended or as another one.
  uint32_t faults = 99;       // All kinds except crashes, together.
  aggregator::Rules rules;
  uint32_t processes() const { return jobs * workers; }
};

// A rule of the aggregator that can be turned off, by its name on the command line.
struct RuleSwitch {
  const char* name;
  bool aggregator::Rules::*rule;
  bool off;  // The value that turns the rule off.
  bool IsOff(const aggregator::Rules& rules) const { return rules.*rule == off; }
};
inline constexpr RuleSwitch kRuleSwitches[] = {
    {"two-phases", &aggregator::Rules::two_phases, false},
    {"second-prepare", &aggregator::Rules::second_prepare, false},
    {"memory", &aggregator::Rules::memoryless_counts, true},
    {"majority", &aggregator::Rules::recover_with_first, true},
    {"live-frames", &aggregator::Rules::fence_by_generation, true},
    {"promise", &aggregator::Rules::hello_promises, true},
    {"state-first", &aggregator::Rules::stages_without_state, true},
    {"resending", &aggregator::Rules::forgets_lost_frames, true},
    {"its-session", &aggregator::Rules::resends_to_anyone, true},
    {"settling", &aggregator::Rules::loses_at_once, true},
    {"ack-once", &aggregator::Rules::counts_acks_twice, true},
    {"late-stage", &aggregator::Rules::leaves_out_of_staging, true},
    {"push-again", &aggregator::Rules::keeps_lost_chunks, true},
    {"supply-lost", &aggregator::Rules::leaves_results_lost, true},
    {"next-attempt", &aggregator::Rules::awaits_lost_contributors, true},
};

// The index of a fault in `State::used`.
enum class Fault : uint8_t {
  kCrash,
  kDeath,
  kRestart,
  kEviction,
  kCut,
  kStreamCut,
  kShardLoss,
  kShardDrain,
  kShardCut,
  kShardJoin,
};
inline constexpr size_t kFaultKinds = 10;

enum class StepKind : uint8_t {
  kConnect,  // A worker's session opens, and it sends its hello.
  kUp,       // A message arrives at the aggregator.
  kUpFrame,
  kDown,  // A message arrives at the worker.
  kDownFrame,
  kReduce,       // A reduction ends.
  kTrain,        // The trainer's next call.
  kNotice,       // The aggregator sees that a connection is gone.
  kForget,       // The aggregator gives up a worker whose process is gone.
  kWindow,       // The recovery window ends.
  kGrace,        // A round has waited long enough for those who are late.
  kShardUp,      // A frame arrives at a shard.
  kShardDown,    // A frame arrives from it.
  kShardEnd,     // The worker sees that its data stream to a shard has ended.
  kShardFail,    // It cannot open one.
  kShardReport,  // A report of a shard arrives at the aggregator.
  kShardReduce,  // A reduction at a shard ends.
  kShardNotice,  // The aggregator sees that a shard is gone.
  kShardDial,    // A shard connects, after the aggregator has started again.
  kVacate,       // Lanes that rest have waited long enough for a verdict to leave a shard.
  kShardGrace,   // A shard has been out of reach of a worker for long enough.
  // Happens only if nothing above can happen.
  kStartTimeout,
  kDelay,  // The process that would be next moves to the end of the list.
  // Faults.
  kDie,
  kRestart,
  kEvict,
  kCut,
  kCutStream,
  kCrash,
  kLoseShard,
  kDrainShard,
  kCutShard,
  kHealShard,  // No fault, but it need not happen.
  kJoinShard,
};

struct WorldStep {
  StepKind kind = StepKind::kConnect;
  // The worker; the slot of a shard; or, for a worker and a shard or its data stream to one, the
  // worker + kMaxWorkers * that.
  uint8_t worker = 0;
};

inline constexpr uint8_t kReducer = kMaxWorkers;
inline constexpr uint8_t kFirstShard = kMaxWorkers + 1;
inline constexpr uint8_t kClock = kFirstShard + kMaxShards;

inline constexpr uint32_t kNoProcess = ~uint32_t{0};  // Replaces the number of a worker process.

// The process of a shard.
enum class ShardPhase : uint8_t { kOut, kDials, kLinked };
struct SlotState {
  ShardPhase phase = ShardPhase::kOut;
  uint8_t lives = 0;  // At this life of the aggregator.
};

// All members are numbers; see World.
struct State {
  uint32_t aggregator = 0;
  std::array<uint32_t, kMaxWorkers> workers{};
  std::array<uint32_t, kMaxWorkers> links{};
  uint32_t history = 0;
  std::array<uint8_t, kFaultKinds> used{};
  std::array<SlotState, kMaxShards> shards{};
  // With a bound on delays: the order of workers, kReducer, shards and kClock in the scheduler.
  std::array<uint8_t, kClock + 1> order{};
  uint8_t delays = 0;
  Fingerprint Print() const {
    Fingerprint print;
    print.Add(uint64_t{aggregator} << 32 | history);
    uint64_t faults = 0;
    for (const uint8_t times : used) faults = faults * 16 + times;
    for (const SlotState& shard : shards) {
      faults = faults * 64 + static_cast<uint64_t>(shard.phase) * 16 + shard.lives;
    }
    print.Add(faults);
    for (size_t i = 0; i < kMaxWorkers; ++i) print.Add(uint64_t{workers[i]} << 32 | links[i]);
    uint64_t schedule = delays;
    for (const uint8_t process : order) schedule = schedule * 16 + process;
    print.Add(schedule);
    return print;
  }
};

enum class Ending : uint8_t {
  kNotYet,  // Something other than a fault can happen.
  kDone,    // Every live member has ended its rounds.
  kPaused,  // Too few workers live, and the job reports it.
  kHalted,  // Too few workers remember, and the job reports it.
  kStuck,   // None of these, which is a violation.
};
inline constexpr size_t kEndings = 5;

// The result of one step.
struct Outcome {
  State state;
  std::string violation;  // Empty if nothing is wrong.
  bool excused = false;   // The guarantee has ended here; see World::EndGuarantee.
};

class World {
 public:
  explicit World(const Bounds& bounds);

  // The state after genesis: every worker is a member, and none has begun.
  const State& start() const { return start_; }

  // Appends the steps that lead out of the state, faults last. Returns how many are not faults.
  size_t Steps(const State& state, std::vector<WorldStep>& steps);
  // Takes a step. With `trail`, appends lines that describe what happens.
  Outcome Take(const State& state, WorldStep step, std::vector<std::string>* trail = nullptr);
  // REQUIRES: only faults can happen in the state.
  Ending EndingOf(const State& state, std::string& why);

  std::string Sizes() const;

 private:
  // A data stream of a worker to a shard. The worker names it by its place, from 1.
  struct ShardStream {
    bool wanted = false;  // The worker tries to open it.
    bool open = false;
    bool accepted = false;  // By the aggregator; nothing arrives at the shard earlier.
    bool ended = false;     // The worker has not seen that yet.
    uint8_t slot = 0;
    uint8_t number = 0;  // At the shard and the aggregator.
    std::vector<uint32_t> up, down;
    bool carries() const { return open && accepted && !ended; }
    auto Fields() const { return std::tie(wanted, open, accepted, ended, slot, number, up, down); }
  };
  // The connections of one worker.
  struct Link {
    bool wanted = false;  // The worker wants a session.
    bool open = false;    // The worker has one, as far as it knows.
    bool stream = false;  // Its data stream is open; nothing arrives on it earlier.
    bool ended = false;   // The aggregator has ended it and drops what the worker sends.
    uint8_t session = 0;  // Its number, if open; a worker's two numbers alternate.
    bool parity = false;
    uint8_t ghost = 0;  // An older session that the aggregator takes for open; or 0.
    std::vector<uint32_t> up, up_frames, down, down_frames;  // Items.
    std::vector<ShardStream> shards;                         // Its data streams to shards.
    uint8_t last_stream = 0;                                 // To a shard.
    uint8_t cut_off = 0;  // From which shards, one bit for each slot.
    auto Fields() const {
      return std::tie(wanted, open, stream, ended, session, parity, ghost, up, up_frames, down,
                      down_frames, shards, last_stream, cut_off);
    }
  };
  // The verdicts that were sent, for the checks.
  struct History {
    // By job, the chains after rounds 1, 2, ...; 0 for none.
    std::vector<std::vector<uint64_t>> verdicts;
    bool ended = false;  // The guarantee has ended, so later violations are excused.
    auto Fields() const { return std::tie(verdicts, ended); }
  };

  // One output of a process's step, as the world remembers it.
  struct Output {
    uint8_t kind = 0;
    uint8_t to = 0;  // As in AggregatorOutput; of a worker, the data stream.
    uint8_t slot = 0;
    uint32_t item = 0;
  };
  struct Effect {
    uint32_t process = 0;
    uint32_t first_output = 0;
    uint32_t outputs = 0;
    uint32_t first_applied = 0;
    uint32_t applied = 0;
    uint32_t wrong = 0;  // 0 if nothing is wrong.
  };
  struct StepKey {
    uint32_t process = 0;
    uint32_t kind = 0;
    uint32_t argument = 0;
    bool operator==(const StepKey& other) const {
      return process == other.process && kind == other.kind && argument == other.argument;
    }
    template <typename H>
    friend H AbslHashValue(H hash, const StepKey& key) {
      return H::combine(std::move(hash), key.process, key.kind, key.argument);
    }
  };
  // The inputs of a process.
  enum class Input : uint8_t {
    kOpen,
    kOpenStream,
    kLoseStream,
    kTake,
    kLose,
    kEvict,
    kReduce,
    kWindow,
    kGrace,
    kStartTimeout,
    kShardComes,
    kShardDies,
    kShardLost,
    kShardDrains,
    kShardOpens,
    kShardCloses,
    kShardTakes,
    kShardReduces,
    kShardReports,
    kVacate,
    kShardGrace,  // The aggregator's last.
    kStart,
    kSessionUp,
    kSessionDown,
    kStreamUp,
    kStreamDown,
    kReceive,
    kTrain,  // A worker's last.
  };
  struct Work;  // A step in progress.

  Effect StepAggregator(uint32_t process, Input input, uint8_t who, uint32_t item);
  Effect StepWorker(uint32_t process, Input input, uint32_t item);
  void RunAggregator(Work& work, Input input, uint8_t who, uint32_t item = 0);
  void RunWorker(Work& work, uint32_t worker, Input input, uint32_t item = 0);
  void Connect(Work& work, uint32_t worker);
  void BreakLink(Work& work, uint32_t worker);
  void Crash(Work& work);
  // ---- shards
  bool Reaches(const Work& work, uint32_t worker, uint32_t slot) const;
  // Opens the data streams to shards that the worker wants and that can be opened now.
  void OpenShardStreams(Work& work, uint32_t worker);
  // The worker closes its data stream to a shard, or the network breaks it.
  void CloseShardStream(Work& work, ShardStream& stream);
  void ShardComes(Work& work, uint32_t slot);
  // Its process has ended, and with it all its data streams.
  void ShardIsGone(Work& work, uint32_t slot);
  // What a shard sends on a data stream, or does with it.
  void OnShardStream(Work& work, const Output& output);
  static uint32_t WorkerOfStream(uint8_t number) {
    return (number - kFirstShardStream) / kShardStreams;
  }
  void OnVerdictSent(Work& work, uint32_t job, const Item& item);
  void OnVerdictSent(Work& work, uint32_t job, const VerdictRecord& record);
  // The world guarantees one version of a round as long as a worker that remembers it lives. No
  // operator could decide to go on without that worker.
  void EndGuarantee(Work& work) const;
  bool SomebodyRemembers(const State& state, const Applied& version) const;
  // Appends steps that may go before all others; see above. Returns whether there are any.
  bool Urgent(const State& state, std::vector<WorldStep>& steps);
  bool ChangesNothing(const Effect& effect, uint32_t process) const;
  // Reduces `steps` to the one that the scheduler would take, and the choice to delay it.
  void Schedule(const State& state, std::vector<WorldStep>& steps) const;
  // Appends what may happen to shards; faults only if they `may` happen.
  void AddShardFaults(const State& state, bool may, std::vector<WorldStep>& steps) const;
  bool UrgentOfWorker(const State& state, uint32_t worker, std::vector<WorldStep>& steps);
  bool ProcessIsLost(const State& state, uint32_t worker) const;
  aggregator::Config AggregatorConfig(Term term) const;
  uint32_t FirstAggregator(Term term, bool long_up);
  AggregatorProcess BearAggregator(const AggregatorOrigin& origin) const;
  void GiveAggregator(AggregatorProcess& process, const AggregatorOrigin& origin) const;
  Ending EndingOf(const State& state, uint32_t number, std::string& why);
  // A job that is done; stuck if a shard holds bytes for it.
  Ending HoldsNothing(const State& state, const aggregator::Job& job, std::string& why);
  uint32_t JobOf(uint32_t worker) const { return worker / bounds_.workers; }
  static uint32_t WorkerOf(aggregator::SessionId session) {
    return static_cast<uint32_t>(session - 1) / 2;
  }

  // Data streams to shards have numbers that no session has: so many in turn for each worker.
  static constexpr uint8_t kFirstShardStream = 2 * kMaxWorkers + 1;
  static constexpr uint8_t kShardStreams = 16;

  Bounds bounds_;
  Trainers trainers_;
  AggregatorStore aggregators_;
  Interner<WorkerProcess> workers_;
  Interner<Link> links_;
  Interner<Item> items_;
  Interner<History> histories_;
  absl::flat_hash_map<StepKey, Effect> aggregator_steps_;
  absl::flat_hash_map<StepKey, Effect> worker_steps_;
  std::vector<Output> outputs_;
  std::vector<Applied> applied_;
  std::vector<std::string> wrongs_{""};
  State start_;
};

}  // namespace basin::explore

#endif  // BASIN_TESTS_EXPLORE_WORLD_H_
