// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// A Coordinator driven by hand: workers that send what a test asks for, a shell that keeps a number
// instead of the bytes of a chunk, and a clock that only tests move.
//
// A worker contributes one number per chunk, and the shell adds the numbers of the workers that a
// Reduce names. Because the numbers are powers of two, the result shows which workers were counted,
// and whether a chunk was counted twice. The shell fails the test if an action needs something that
// it does not have.
//
// By default, the workers do what every client does at once: they answer layouts, acknowledge
// results, stage prepared values and push again. A test can turn each of these off.

#ifndef BASIN_TESTS_AGGREGATOR_CORE_HARNESS_H_
#define BASIN_TESTS_AGGREGATOR_CORE_HARNESS_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <ostream>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

#include <gtest/gtest.h>

#include "absl/time/time.h"
#include "aggregator/core/coordinator.h"
#include "tests/world/aggregator_shell.h"

namespace basin::aggregator {

class Cluster;

inline constexpr char kJob[] = "job";
inline constexpr char kLane[] = "model";

// A tensor of this many whole chunks.
TensorSpec Tensor(const std::string& name, uint64_t chunks = 1);

JobSettings Settings(uint32_t min, uint32_t max, uint32_t start);

RoundSpec Spec(ReduceOp op, Denominator denominator = Denominator::kAll);

// The result of a chunk: the sum of what its contributors sent, and the divisor of the Reduce.
struct Reduced {
  uint64_t sum = 0;
  uint64_t divisor = 0;
  auto Fields() const { return std::tie(sum, divisor); }
};
inline bool operator==(const Reduced& a, const Reduced& b) { return a.Fields() == b.Fields(); }
inline std::ostream& operator<<(std::ostream& out, const Reduced& reduced) {
  return out << reduced.sum << "/" << reduced.divisor;
}

using Chunk = std::pair<TensorIndex, uint32_t>;
using Results = std::map<Chunk, Reduced>;

// Stands for the hash of a chunk's bytes.
Digest DigestOf(Chunk chunk, uint64_t value);

// The shell keeps these instead of bytes; see world::AggregatorShell.
struct Numbers {
  using Chunk = Reduced;
  static Digest DigestOf(TensorIndex tensor, uint32_t chunk, const Reduced& bytes) {
    return aggregator::DigestOf({tensor, chunk}, bytes.sum);
  }
  static double SquaredNormOf(const Reduced& bytes) { return static_cast<double>(bytes.sum); }
  static Reduced Reduce(const RoundSpec& spec, uint64_t divisor,
                        const std::vector<world::Given<Reduced>>& given);
};
using Shell = world::AggregatorShell<Numbers>;

// What a coordinator takes.
using Taken = std::variant<Input, SessionLost>;

class TestWorker {
 public:
  TestWorker(Cluster* cluster, WorkerId id, uint64_t value);

  // A client does the following without a call from its trainer.
  bool heartbeats = true;
  std::vector<RoundWait> waits;  // Its heartbeats report these.
  bool sees_layouts = true;
  bool acks = true;
  bool stages = true;
  bool repushes = true;
  bool supplies = true;
  bool lets_go = true;         // With kFeatureLetGo, of calls in which it has begun no round.
  bool obeys_windows = false;  // Pushes refused chunks again once there is room.

  WorkerId id;
  Nonce nonce;
  uint64_t value;                      // Every chunk that it pushes has it.
  std::optional<double> squared_norm;  // Its commits report it.
  RunId run;
  JobName job = kJob;
  std::string address;  // From which it connects.
  bool fresh = true;
  JobSettings settings;
  uint64_t features = 0;
  uint32_t ranks = 1;       // Its hellos and begins report it.
  uint32_t represents = 0;  // Its begins report it, and the plan:
  LocalReduction local_reduction = LocalReduction::kUnspecified;
  std::vector<WorkerId> reduced_with;
  std::string call;              // What its begins call without a name.
  uint32_t deferred = 0;         // Its begins report it.
  std::optional<uint64_t> step;  // The step of its begins, which is compared if it is set.
  uint64_t optimizer = 0;        // The hash of its begins; 0: not compared.
  std::vector<std::string> optimizer_numbers;
  JoinGroup group;  // Its hellos report it.

  // ---- what it knows
  struct LaneView {
    LaneIndex index = 0;
    LaneKind kind = LaneKind::kGradient;
    std::vector<TensorSpec> tensors;
    uint64_t window = 0;
    RoundNumber last = 0;  // The round of the last verdict.
    uint64_t chain = 0;
    bool let_go = false;  // It has said so after `last`.
    std::vector<VerdictRecord> verdicts;
    std::optional<StagedValue> staged;
    std::optional<Prepared> prepared;
    // The round in flight.
    std::optional<Begin> begun;
    std::optional<Skip> skipped;
    std::optional<Commit> committed;
    std::set<Chunk> pushed;
    std::set<Chunk> refused;
    // Results at the highest ballot seen.
    RoundNumber result_round = 0;
    Ballot result_ballot;
    Results results;
    std::map<RoundNumber, Results> delivered;
    RoundPlacement placement;  // For the next round.
    RoundNumber next() const { return last + 1; }
  };
  SessionId session = 0;  // 0: not connected.
  std::optional<Error> ended;
  std::optional<Welcome> welcome;
  Incarnation incarnation;
  bool from_start = false;
  Membership membership;
  Role role = Role::kJoiner;
  std::optional<WorkerId> donor;
  bool lacks_state = false;  // It joined with a donor, and has begun no round since.
  std::map<std::string, LaneView> lanes;
  std::map<PlacementNumber, Placement> placements;
  std::set<std::string> named;  // Lanes that it has registered, or tried to.
  std::vector<ToWorker> inbox;

  LaneView& lane(const std::string& name = kLane) { return lanes[name]; }
  const VerdictRecord& verdict(const std::string& name = kLane);  // The last one.
  // Its rank in the membership that it knows; -1 if it is not a member there.
  int rank() const;

  template <typename T>
  std::vector<T> All() const {
    std::vector<T> found;
    for (const ToWorker& message : inbox) {
      if (const T* typed = std::get_if<T>(&message)) found.push_back(*typed);
    }
    return found;
  }
  template <typename T>
  size_t Count() const {
    return All<T>().size();
  }
  // The last message of a type; fails the test if there is none.
  template <typename T>
  T Last() const {
    const std::vector<T> found = All<T>();
    if (!found.empty()) return found.back();
    ADD_FAILURE() << id << " was not sent that message";
    return T{};
  }
  // The code of the last Rejected; kOk if there is none.
  ErrorCode rejected() const;

  // ---- what it sends
  void Send(ToAggregator message);
  Hello MakeHello() const;  // Includes its history.
  void Connect();
  void Connect(const Hello& hello);
  void Ready(uint64_t step_label = 0, uint64_t state_hash = 0);
  void Register(const std::vector<TensorSpec>& tensors, const std::string& lane = kLane,
                LaneKind kind = LaneKind::kGradient);
  // The session ends: the worker closes it, or the network cuts it.
  void Close();
  void Cut();
  // Another process replaces this one: it has another nonce and no memory.
  void Restart();
  // The client learns that its worker was evicted, so its history does not count any more.
  void Forget();

  void Begin(const RoundSpec& spec = Spec(ReduceOp::kAverage), const std::string& lane = kLane,
             const Counts& counts = {});
  void Push(TensorIndex tensor, uint32_t first, uint32_t count, const std::string& lane = kLane);
  void PushTensor(TensorIndex tensor, const std::string& lane = kLane);
  // Sends one frame with the first chunks of several tensors.
  void SendTensors(RoundNumber round, const ChunkRanges& ranges, const std::string& name = kLane);
  // The sizes of the chunks of a frame.
  std::vector<uint64_t> SizesOf(LaneIndex lane, const ChunkRanges& ranges) const;
  void Skip(const std::vector<TensorIndex>& tensors, const std::string& lane = kLane);
  void Commit(const std::string& lane = kLane);
  void Withdraw(const std::string& reason = "backward raised", const std::string& lane = kLane,
                bool without_results = false);
  void Stage(const std::string& lane = kLane);
  // Begins, pushes every tensor except `absent`, and commits.
  void Contribute(const RoundSpec& spec = Spec(ReduceOp::kAverage), const std::string& lane = kLane,
                  const std::set<TensorIndex>& absent = {}, const Counts& counts = {});
  // The commit that fits what it has pushed.
  basin::Commit MakeCommit(const std::string& lane = kLane);
  // Sends one frame for a round; every chunk holds `value`.
  void SendFrame(RoundNumber round, ChunkRange range, const std::string& lane = kLane);
  // The same to this shard, whichever holds the chunks.
  void SendFrameTo(ShardId shard, RoundNumber round, ChunkRange range,
                   const std::string& lane = kLane);

  // ---- from the shell
  void Take(const ToWorker& message);
  void TakeResults(const Shell::Result& frame);
  void OnEnded(const Error& error);

 private:
  friend class Cluster;
  LaneView* ByIndex(LaneIndex index);
  void TryStage(LaneView& lane);
  void OnVerdict(LaneView& lane, const VerdictRecord& record);
  void PushRanges(LaneView& lane, RoundNumber round, const std::vector<ChunkRange>& ranges);
  // The parts of a range, and the shard that holds each of them.
  std::vector<std::pair<ShardId, ChunkRange>> PartsOf(const LaneView& lane,
                                                      const ChunkRange& range) const;

  Cluster* cluster_;
};

class Cluster {
 public:
  explicit Cluster(JobSettings settings = Settings(1, 1, 1), Config config = {});

  absl::Time now = absl::FromUnixSeconds(1000);
  JobSettings settings;
  Config config;
  std::unique_ptr<Coordinator> core;

  bool reduces = true;  // Carries out each Reduce at once.
  bool saves = true;    // Carries out each SaveState and SaveSettings at once.
  bool save_ok = true;
  std::vector<Note> notes;
  std::vector<SaveState> saves_asked;
  std::vector<SaveSettings> settings_saves_asked;
  std::vector<Reduce> reduces_asked;  // Those not yet carried out.
  std::vector<Action> log;            // All actions since the last ClearLog.
  bool drained = false;
  std::vector<Shell::Reduction> reductions;  // The same, with their results.

  // Returns a worker. The n-th contributes 2^n, for n modulo 64.
  TestWorker& Worker(const WorkerId& id);
  // Returns a worker that has sent hello and ready, and has registered two tensors of one chunk.
  TestWorker& Join(const WorkerId& id);
  TestWorker& operator[](const WorkerId& id) { return *workers_.at(id); }

  // Takes one event and everything that follows from it at the same moment. `chunks` are those of a
  // frame.
  void Step(Taken taken, world::Chunks<Reduced> chunks = {});
  // Moves the clock, and sends heartbeats and ticks when they are due.
  void Sleep(absl::Duration duration);
  // Moves the clock as if this process were stopped; the next event wakes it.
  void Stall(absl::Duration duration) { now += duration; }
  void FinishReduces();
  void Finish(const Shell::Reduction& reduction);
  // A shard that holds bytes beside shard 0. Returns its number.
  ShardId AddShard(const std::string& name, uint64_t memory = 0);
  void LoseShard(ShardId shard);
  void DrainShard(ShardId shard);
  void FinishSaves();
  void FinishSettingsSaves();
  // Kills the aggregator, which cuts every session, and restarts it `down` later.
  void Crash(Term term, absl::Duration down = absl::Seconds(1));

  const Job& job(const JobName& name = kJob) const { return *core->FindJob(name); }
  const Round* round(LaneIndex lane = 0) const;
  size_t Notes(NoteKind kind) const;
  Note LastNote(NoteKind kind) const;  // Without a text if there is none.
  std::string NoteText(NoteKind kind) const { return LastNote(kind).text; }
  template <typename T>
  std::vector<T> Actions() const {
    std::vector<T> found;
    for (const Action& action : log) {
      if (const T* typed = std::get_if<T>(&action)) found.push_back(*typed);
    }
    return found;
  }
  void ClearLog();
  SessionId NewSession() { return ++last_session_; }
  // The shell keeps this many.
  size_t kept_chunks(ShardId shard = kCoordinatorShard) const {
    return shells_.at(shard).parked_chunks();
  }
  size_t held_results(ShardId shard = kCoordinatorShard) const {
    return shells_.at(shard).result_chunks();
  }
  size_t held_blobs() const { return shells_.at(kCoordinatorShard).blobs(); }

 private:
  friend class TestWorker;
  void StepOne(const Taken& taken, world::Chunks<Reduced> chunks);
  friend Shell;
  void Release(ShardId shard);
  void Do(const Action& action, const Shell::Arrived& arrived);
  // Carries an action out that is about bytes, on the shells that it is for.
  template <typename A>
  void CarryOut(const A& action, const Shell::Arrived& arrived);
  void Do(const Send& send);
  // This shell runs the coordinator alone, so no frame has a route.
  void SendOn(StreamId, const Shell::Frame&) { ADD_FAILURE() << "a frame without Delivery"; }
  void Started(Shell::Reduction reduction);
  void Do(const SaveState& save);
  void Do(const SaveSettings& save);
  void SendResults(const std::vector<SessionId>& sessions,
                   const absl::StatusOr<Shell::Frame>& frame);
  TestWorker* BySession(SessionId session);
  void CheckInvariants();

  std::map<WorkerId, std::unique_ptr<TestWorker>> workers_;
  SessionId last_session_ = 0;
  std::deque<std::pair<Taken, world::Chunks<Reduced>>> queue_;
  bool stepping_ = false;
  std::map<ShardId, Shell> shells_ = {{kCoordinatorShard, Shell()}};
  ShardId last_shard_ = 0;
};

// A job that has members a and b and one verdict; it may shrink to one worker and grow to four.
struct Running : Cluster {
  explicit Running(JobSettings settings = Settings(1, 4, 2), Config config = {})
      : Cluster(settings, std::move(config)), a(Join("a")), b(Join("b")) {
    Round();
  }
  void Round() {
    for (TestWorker* worker : {&a, &b}) worker->Contribute();
  }
  TestWorker& a;
  TestWorker& b;
};

// A job that three workers form; a fourth may join.
struct Three : Cluster {
  explicit Three(JobSettings settings = Settings(1, 4, 3), Config config = {})
      : Cluster(settings, std::move(config)), a(Join("a")), b(Join("b")), c(Join("c")) {}
  void Lose(const char* id) { Step(WorkerExited{kJob, id}); }
  TestWorker& a;
  TestWorker& b;
  TestWorker& c;
};

}  // namespace basin::aggregator

#endif  // BASIN_TESTS_AGGREGATOR_CORE_HARNESS_H_
