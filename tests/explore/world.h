// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// An explored world: one aggregator, a few workers and their connections, as a state and all the
// steps that lead out of it. Small bounds make it finite: one job or two, one lane, one tensor of
// one chunk, one data stream per worker, a few rounds, and a budget for each kind of fault.
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
//   The others need that no crash of the aggregator and no broken connection can happen any more. A
//   worker's own steps then touch only its process, the heads of its two inbound queues and the
//   tails of its two outbound ones; other steps touch the opposite ends. Death and restart of the
//   worker discard the effect of such a step; its eviction commutes with it (the aggregator drops
//   what the worker sends, before or after). Only the order among the worker's own steps remains:
//   2. A worker opens a session as soon as it wants one; its hello may still arrive at any time.
//   3. Messages on the session while the data stream is not open: no frame can come before them.
//   4. Both queues have a head, or the aggregator has ended the session and adds to neither: all of
//      the worker's own steps, in any order, go before those of others.
//   5. A verdict with no frame on its way: the aggregator sends no more frames of that round, and
//      none of the next round until this worker has pushed. Rounds that go on without those who are
//      late send them before that.
//   6. A Credit that makes the client send nothing: results do not wait for pushes, or pushes for
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
  bool late = false;   // Rounds go on without those who are late, once half have contributed.
  bool reduce = true;  // Take steps at once that commute with all others.
  bool whole_trainer = true;  // The trainer begins, pushes, commits and waits in one step.
  // How often each may happen.
  uint32_t delays = kAllOrders;
  uint32_t crashes = 1;      // The aggregator ends and starts again.
  uint32_t deaths = 0;       // A worker ends for good.
  uint32_t restarts = 0;     // A worker restarts without memory.
  uint32_t evictions = 0;    // A living worker is evicted.
  uint32_t cuts = 0;         // A worker's connections break, but both ends live on.
  uint32_t stream_cuts = 0;  // Only its data stream breaks.
  uint32_t faults = 99;      // All kinds except crashes, together.
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
};

// The index of a fault in `State::used`.
enum class Fault : uint8_t { kCrash, kDeath, kRestart, kEviction, kCut, kStreamCut };
inline constexpr size_t kFaultKinds = 6;

enum class StepKind : uint8_t {
  kConnect,  // A worker's session opens, and it sends its hello.
  kUp,       // A message arrives at the aggregator.
  kUpFrame,
  kDown,  // A message arrives at the worker.
  kDownFrame,
  kReduce,  // A reduction ends.
  kTrain,   // The trainer's next call.
  kNotice,  // The aggregator sees that a connection is gone.
  kForget,  // The aggregator gives up a worker whose process is gone.
  kWindow,  // The recovery window ends.
  kGrace,   // A round has waited long enough for those who are late.
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
};

struct WorldStep {
  StepKind kind = StepKind::kConnect;
  uint8_t worker = 0;
};

inline constexpr uint8_t kReducer = kMaxWorkers;
inline constexpr uint8_t kClock = kMaxWorkers + 1;

inline constexpr uint32_t kNoProcess = ~uint32_t{0};  // Replaces the number of a worker process.

// All members are numbers; see World.
struct State {
  uint32_t aggregator = 0;
  std::array<uint32_t, kMaxWorkers> workers{};
  std::array<uint32_t, kMaxWorkers> links{};
  uint32_t history = 0;
  std::array<uint8_t, kFaultKinds> used{};
  // With a bound on delays: the order of workers, kReducer and kClock in the scheduler.
  std::array<uint8_t, kMaxWorkers + 2> order{};
  uint8_t delays = 0;
  Fingerprint Print() const {
    Fingerprint print;
    print.Add(uint64_t{aggregator} << 32 | history);
    uint64_t faults = 0;
    for (const uint8_t times : used) faults = faults * 256 + times;
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
    auto Fields() const {
      return std::tie(wanted, open, stream, ended, session, parity, ghost, up, up_frames, down,
                      down_frames);
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
    uint8_t session = 0;
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
    kStartTimeout,  // The aggregator's last.
    kStart,
    kSessionUp,
    kSessionDown,
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
  bool UrgentOfWorker(const State& state, uint32_t worker, std::vector<WorldStep>& steps);
  bool ProcessIsLost(const State& state, uint32_t worker) const;
  aggregator::Config AggregatorConfig(Term term) const;
  uint32_t FirstAggregator(Term term, bool long_up);
  AggregatorProcess BearAggregator(const AggregatorOrigin& origin) const;
  void GiveAggregator(AggregatorProcess& process, const AggregatorOrigin& origin) const;
  Ending EndingOf(const State& state, uint32_t number, std::string& why);
  uint32_t JobOf(uint32_t worker) const { return worker / bounds_.workers; }
  static uint32_t WorkerOf(aggregator::SessionId session) {
    return static_cast<uint32_t>(session - 1) / 2;
  }

  Bounds bounds_;
  JobSettings settings_;
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
