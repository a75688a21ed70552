// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// An explored world: one aggregator, a few workers and their connections, as a state with all the
// steps that lead out of it. Small bounds make it finite: one job or two, one lane, one tensor of
// one chunk, one data stream per worker, a few rounds, and a budget for each kind of fault.
//
// Time does not pass but where it decides something: a lost worker is evicted, a reconnect happens,
// the recovery window ends, each as a step of its own that may come at any moment. So every order
// of timers is explored, also those that are unlikely.
//
// What a step is, and why no behaviour is lost by it:
//
//   - A connection is a FIFO queue; delivering the head of any queue is a step. A frame and the
//     messages of its session are on different connections and so in any order.
//   - A connection that breaks loses what is in its queues. That some of it still arrives is the
//     same as that it arrived before the break, because nobody sees a break but the two ends.
//   - The death of a process breaks its connections. So does a crash of the aggregator, which is
//     back at once: that it comes back late is the same as that everybody connects late.
//   - A data stream is open as soon as the worker asks for it: frames of a stream that opens late
//     cannot be told from frames that arrive late.
//   - A session that closes settles in the same step: while it settles it is sent nothing, and the
//     rest of the aggregator takes it for open, as before anybody noticed.
//   - Messages to a session that the aggregator has ended, or whose process is gone, are dropped.
//   - The result of a core's step depends on nothing but core and event. Processes, messages and
//     queues are kept once (interner.h), and a step that was taken before is looked up.
//
// Reduction (partial orders). A step that commutes with everything that can happen before it is
// taken, or whose effect is lost with whatever does not commute, may be taken at once and alone:
// every state that the others could check is still reached. World::Urgent takes these:
//
//   1. What changes nothing at its receiver and never will: LayoutSeen of a layout that the
//      aggregator knows to be seen; LaneLayout and Credit that leave the client as it is. A fault
//      that would lose the message leads to the same state.
//   The others only once no crash of the aggregator and no broken connection can happen any more.
//   A worker's own steps then touch nothing but its process, the heads of its two inbound queues
//   and the tails of its two outbound ones; others touch the opposite ends. Death and restart of
//   the worker lose what such a step did; its eviction commutes with it (what the worker sends is
//   dropped, before or after). What is left is the order among the worker's own steps:
//   2. A worker's session opens as soon as it wants one; when its hello arrives is still open.
//   3. What is on the session while the data stream is not open: no frame can come before it.
//   4. Both queues have a head, or the aggregator has ended the session and adds to neither: all of
//      the worker's own steps, in any order, before those of others.
//   5. A verdict with no frame on its way: the aggregator sends no more frames of that round, and
//      none of the next before this worker has pushed.
//   6. A Credit that makes the client send nothing: results do not wait for pushing, nor pushing
//      for results.
//
// Delays (Emmi, Qadeer and Rakamaric, "Delay-bounded scheduling", 2011). Where all orders are too
// many, one scheduler decides what happens next: the first process in a list that can do something
// does the first thing it can. A delay moves that process to the end of the list; a world allows a
// few. So that nobody is put off for ever, the clock comes last when it has acted, and a worker
// when it is told to come again later. Faults still come at any moment. Long trails, which need few
// surprises, are found this way.
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
  uint32_t workers = 3;  // In each job.
  uint32_t min_workers = 2;
  RoundNumber rounds = 1;
  LaneKind kind = LaneKind::kGradient;
  bool reduce = true;         // Take steps at once that commute with all others.
  bool whole_trainer = true;  // Begin, push, commit and wait in one step of the trainer.
  // How often it may happen.
  uint32_t delays = kAllOrders;
  uint32_t crashes = 1;      // The aggregator ends.
  uint32_t deaths = 0;       // A worker ends, for good.
  uint32_t restarts = 0;     // A worker restarts, without memory.
  uint32_t evictions = 0;    // A worker that lives is evicted.
  uint32_t cuts = 0;         // A worker's connections break, both ends live on.
  uint32_t stream_cuts = 0;  // Its data stream does, alone.
  uint32_t faults = 99;      // All kinds but crashes together.
  aggregator::Rules rules;
  uint32_t processes() const { return jobs * workers; }
};

// A rule of the aggregator that can be turned off, by the name that the command line has for it.
struct RuleSwitch {
  const char* name;
  bool aggregator::Rules::*rule;
  bool off;  // What the rule is set to.
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
    {"settling", &aggregator::Rules::settles_at_once, true},
    {"ack-once", &aggregator::Rules::counts_acks_twice, true},
};

// Which fault, of `State::used`.
enum class Fault : uint8_t { kCrash, kDeath, kRestart, kEviction, kCut, kStreamCut };
inline constexpr size_t kFaultKinds = 6;

enum class StepKind : uint8_t {
  kConnect,  // A worker's session opens and it says hello.
  kUp,       // A message arrives at the aggregator.
  kUpFrame,
  kDown,  // A message arrives at the worker.
  kDownFrame,
  kReduce,  // A reduction ends.
  kTrain,   // The trainer's next call.
  kNotice,  // The aggregator sees that a connection is gone.
  kForget,  // The aggregator gives up a process that is gone.
  kWindow,  // The recovery window ends.
  // Only when nothing of the above can happen.
  kStartTimeout,
  kDelay,  // Nothing happens, but the process that would be next comes last.
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

inline constexpr uint32_t kGone = ~uint32_t{0};  // In place of a worker process.

// Everything by number, see World.
struct State {
  uint32_t aggregator = 0;
  std::array<uint32_t, kMaxWorkers> workers{};
  std::array<uint32_t, kMaxWorkers> links{};
  uint32_t history = 0;
  std::array<uint8_t, kFaultKinds> used{};
  // With a bound on delays: who may go first, the workers by number, then kReducer and kClock.
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
  kPaused,  // Too few workers live, and the job says so.
  kHalted,  // Too few remember, and the job says so.
  kStuck,   // None of these: a violation.
};
inline constexpr size_t kEndings = 5;

// What one step led to.
struct Outcome {
  State state;
  std::string violation;  // Empty when nothing is wrong.
  bool excused = false;   // The guarantee has ended here; see World::EndGuarantee.
};

class World {
 public:
  explicit World(const Bounds& bounds);

  // After genesis: every worker is a member and nobody has begun.
  const State& start() const { return start_; }

  // Appends the steps that lead out of the state; faults last. Returns how many are not faults.
  size_t Steps(const State& state, std::vector<WorldStep>& steps);
  // Takes a step. With `trail`, appends lines that say what happens.
  Outcome Take(const State& state, WorldStep step, std::vector<std::string>* trail = nullptr);
  // REQUIRES: `steps` of the state that are not faults are none.
  Ending EndingOf(const State& state, std::string& why);

  std::string Sizes() const;

 private:
  // The connections of one worker.
  struct Link {
    bool wanted = false;  // The worker wants a session.
    bool open = false;    // It has one, as far as it knows.
    bool stream = false;  // Its data stream is open, too: nothing arrives on it before.
    bool ended = false;   // The aggregator has ended it: what the worker sends is dropped.
    uint8_t session = 0;  // Its number, if open: the worker's two take turns.
    bool turn = false;
    uint8_t ghost = 0;  // An older session that the aggregator still takes for open; 0 for none.
    std::vector<uint32_t> up, up_frames, down, down_frames;  // Items.
    auto Fields() const {
      return std::tie(wanted, open, stream, ended, session, turn, ghost, up, up_frames, down,
                      down_frames);
    }
  };
  // What was told, for the checks.
  struct History {
    // By job: the chain after round 1, 2, ...; 0 for none.
    std::vector<std::vector<uint64_t>> told;
    bool ended = false;  // The guarantee has ended: what happens from here on is excused.
    auto Fields() const { return std::tie(told, ended); }
  };

  // What a process does in one step, as it is remembered.
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
    uint32_t wrong = 0;  // 0: nothing.
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
  // What a process can be given.
  enum class Input : uint8_t {
    kOpen,
    kOpenStream,
    kLoseStream,
    kTake,
    kLose,
    kEvict,
    kReduce,
    kWindow,
    kStartTimeout,  // The aggregator.
    kStart,
    kSessionUp,
    kSessionDown,
    kStreamDown,
    kReceive,
    kTrain,  // A worker.
  };
  struct Work;  // A step in progress.

  Effect StepAggregator(uint32_t process, Input input, uint8_t who, uint32_t item);
  Effect StepWorker(uint32_t process, Input input, uint32_t item);
  void RunAggregator(Work& work, Input input, uint8_t who, uint32_t item = 0);
  void RunWorker(Work& work, uint32_t worker, Input input, uint32_t item = 0);
  void Connect(Work& work, uint32_t worker);
  void BreakLink(Work& work, uint32_t worker);
  void Crash(Work& work);
  void NoteTold(Work& work, uint32_t job, const Item& item);
  void NoteTold(Work& work, uint32_t job, const VerdictRecord& record);
  // One version of a round is guaranteed as long as somebody lives who remembers what was told. No
  // operator is here to go on without.
  void EndGuarantee(Work& work) const;
  bool SomebodyRemembers(const State& state, const Applied& version) const;
  // Appends steps that may be taken before all others; see above. Returns whether there are any.
  bool Urgent(const State& state, std::vector<WorldStep>& steps);
  bool ChangesNothing(const Effect& effect, uint32_t process) const;
  // Keeps of `steps` only what the scheduler would take, and the choice to delay it.
  void Schedule(const State& state, std::vector<WorldStep>& steps) const;
  bool UrgentOfWorker(const State& state, uint32_t worker, std::vector<WorldStep>& steps);
  bool ProcessIsGone(const State& state, uint32_t worker) const;
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
