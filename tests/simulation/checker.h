// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The invariants of a run, whatever fails. The checker knows what no process knows: what every
// trainer contributed, what every process received, and which bytes are held where.
//
//   I1  each contribution is counted at most once, as the bytes that its trainer gave, and a
//       committed contribution of a survivor is counted
//   I2  all tensors of a round have one contributor set; divisors follow from it
//   I3  members that apply a round hold the same bytes, and the same state
//   I4  every wait of a trainer ends with a result or a typed error by its deadline + 1 s
//   I5  generations and rounds never go back; each round has one verdict; chains agree
//   I6  parked + accumulating + unacknowledged bytes stay within the budget, and nothing is leaked
//   I7  every refusal, eviction and abort has a note with a reason
//   I8  every sample of an epoch is committed once, and held by at most one live worker; none is
//   lost,
//       and all workers that have one verdict agree about it
//   I9  each life of a name of calls is one contract (lives.h): who is counted in a round has begun
//       it in this life, a call is counted and settled once, in one life, and rounds go up by one
//   L   once faults stop, every round that was begun gets a verdict
//
// The checker excuses a fork of a lineage (two verdicts of one round) only where the guarantee
// ends. This needs three conditions. Different recoveries led to the two verdicts. No worker of the
// recovery before the second verdict had received the first one, or had staged its value (unless a
// verdict of another round contradicts what that worker staged). And one of the following is false:
// min_workers is more than half of max_workers, there are no more than max_workers processes, none
// has lost its memory or its place, none has finished. The checker counts excuses.
//
// Thread contract: one run, one checker, one thread.

#ifndef BASIN_TESTS_SIMULATION_CHECKER_H_
#define BASIN_TESTS_SIMULATION_CHECKER_H_

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "protocol/messages.h"
#include "tests/simulation/lives.h"
#include "tests/simulation/payload.h"
#include "tests/simulation/scenario.h"
#include "tests/world/client_shell.h"

namespace basin::simulation {

enum class Invariant : uint8_t {
  kNone = 0,
  kCountedOnce,   // I1
  kOneSet,        // I2
  kSameBytes,     // I3
  kTypedResult,   // I4
  kOneVerdict,    // I5
  kBoundedBytes,  // I6
  kNoted,         // I7
  kSamples,       // I8
  kOneLife,       // I9
  kLiveness,      // L
  kContract,      // A core asked its runner for something impossible.
};

const char* InvariantName(Invariant invariant);

struct Violation {
  Invariant invariant = Invariant::kNone;
  SimTime time = 0;
  std::string text;
};

// A contribution that was too late for its round, and is in that to the next one.
struct LateContribution {
  RoundNumber round = 0;
  uint64_t key = 0;
  uint32_t pushed = 0;
  uint32_t ranks = 1;
  std::vector<SampleRange> samples;
  uint64_t epoch = 0;
};

// The contribution of one life of one worker to one round.
struct Contribution {
  uint32_t worker = 0;
  uint64_t key = 0;     // Determines its bytes; see payload.h.
  uint32_t pushed = 0;  // Tensors of the lane's model, as bits: also those that are in `late`.
  uint32_t ranks = 1;   // The trainers in it.
  std::optional<LateContribution> late;
  bool drops_late = false;  // The trainer had something late, and could not add it.

  // What an average counts for it.
  uint32_t gradients() const { return ranks + (late.has_value() ? late->ranks : 0); }
  bool HasLate(uint32_t position) const {
    return late.has_value() && (late->pushed >> position & 1) != 0;
  }
  // A chunk of the tensor at this position of the model. REQUIRES: it is in `pushed`.
  Chunk At(uint32_t position, uint64_t tensor_hash, uint32_t chunk) const {
    Chunk sum = ContributionChunk(worker, key, tensor_hash, chunk);
    if (!HasLate(position)) return sum;
    const Chunk before = ContributionChunk(worker, late->key, tensor_hash, chunk);
    sum.mask += before.mask;
    sum.content += before.content;
    return sum;
  }

  bool committed = false;
  bool withdrawn = false;
  std::vector<SampleRange> samples;
  std::string call;  // What it was begun as.
};

using StagedChunks = world::StagedChunks<Chunk>;

// The memory that one process has of one lane, as the checker saw it arrive.
struct ProcessLane {
  RoundNumber last = 0;  // The round of the last verdict.
  uint64_t chain = 0;
  bool knows_chain = true;  // Not if it named the lane of a call only after some rounds.
  uint64_t staged = 0;      // The chain after a verdict of what it staged; 0 for nothing.
  RoundNumber staged_round = 0;
  Ballot staged_ballot;
  std::set<uint64_t> sent;  // The chains after each verdict that it received.
};

// Verdicts that some worker received, and values that some worker staged.
struct Knowledge {
  std::set<std::pair<uint32_t, uint64_t>> sent;  // Lane and chain.
  // By lane and round, the highest ballot and the chain after its verdict. Where two aggregators
  // led at once, a value of a lower ballot may have been staged as well.
  std::map<std::pair<uint32_t, RoundNumber>, std::pair<Ballot, uint64_t>> staged;

  void Stage(uint32_t lane, RoundNumber round, Ballot ballot, uint64_t chain);
  void Add(const Knowledge& other);
  bool Has(uint32_t lane, RoundNumber round, uint64_t chain) const;
};

// A lane is given by its life; see lives.h.
class Checker {
 public:
  Checker(const Scenario& scenario, const EventQueue& queue)
      : lives(static_cast<uint32_t>(scenario.lanes.size())), scenario_(scenario), queue_(queue) {}

  Lives lives;

  bool failed() const { return violation_.invariant != Invariant::kNone; }
  const Violation& violation() const { return violation_; }
  void Fail(Invariant invariant, std::string text);

  // ---- what trainers contributed
  Contribution& ContributionOf(uint32_t lane, RoundNumber round, const Incarnation& incarnation) {
    return contributions_[{lane, round, incarnation}];
  }
  // There is a generation, which no process may ever be told.
  void Made(const Membership& membership);
  // The aggregator noted that the rest of the worker's group did not come in time.
  void JoinsAlone(const std::string& worker) { joined_alone_.insert(worker); }
  // An operator drains the worker, so its group need not wait for it.
  void Drained(const std::string& worker) { drained_.insert(worker); }

  // The aggregator noted that it does not count this worker's contribution to the round.
  void Rejected(uint32_t lane, RoundNumber round, const std::string& worker) {
    rejected_.insert({lane, round, worker});
  }
  bool WasRejected(uint32_t lane, RoundNumber round, const std::string& worker) const {
    return rejected_.count({lane, round, worker}) > 0;
  }

  // An aggregator of this term lost the worker, and with it the worker's contribution to the round.
  void Dropped(uint32_t lane, RoundNumber round, const std::string& worker, Term term) {
    dropped_.insert({lane, round, worker, term});
  }
  bool WasDropped(uint32_t lane, RoundNumber round, const std::string& worker, Term term) const {
    return dropped_.count({lane, round, worker, term}) > 0;
  }

  // ---- what processes receive
  ProcessLane& LaneOf(uint32_t process, uint32_t lane) { return processes_[process][lane]; }
  // `member`: whether the process is a member of it. From then on, until it is evicted, the
  // generations that it receives never go back.
  void GenerationSeen(uint32_t process, const Membership& membership, bool member);
  // Returns whether a generation has this member; true if the checker has not seen the generation.
  bool Lists(const Generation& generation, const WorkerId& worker) const;
  // The aggregator of this term has lost the worker, or has admitted it again.
  void Lost(const WorkerId& worker, Term term) { lost_.emplace(worker, term); }
  void Admitted(const WorkerId& worker, Term term) { lost_.erase({worker, term}); }
  bool IsLost(const WorkerId& worker, Term term) const { return lost_.count({worker, term}) > 0; }
  void ForgetProcess(uint32_t process) { processes_.erase(process); }

  // PreparedFor: another value at a higher ballot makes the checker forget what the process staged.
  void PreparedFor(uint32_t process, uint32_t lane, const Prepared& prepared);
  void StagedBy(uint32_t process, uint32_t lane, const Prepared& prepared);

  // A trainer applies a verdict. `tensors` is the lane's layout at that worker, by index. `state`
  // is the trainer's state of the lane, nullopt after it has passed a call. Returns the state
  // afterwards; nullopt if the checker does not know it.
  std::optional<uint64_t> Applied(uint32_t process, const std::string& worker, uint32_t lane,
                                  const VerdictRecord& record, const std::vector<uint32_t>& tensors,
                                  const StagedChunks& staged, std::optional<uint64_t> state);
  // What the results of a committed round add to the state; absent if a chunk is missing.
  std::optional<uint64_t> SumOf(uint32_t lane, const VerdictRecord& record,
                                const std::vector<uint32_t>& tensors,
                                const StagedChunks& staged) const;
  // A worker that kept results until it had the state has applied all of them, up to this chain.
  void CaughtUp(const std::string& worker, uint32_t lane, uint64_t chain, uint64_t state);
  // The state after a committed round with this chain, if a worker has applied it.
  std::optional<uint64_t> StateAfter(uint32_t lane, uint64_t chain) const;
  // A call went on without this worker. Returns the state afterwards, if another worker applied it.
  std::optional<uint64_t> Passed(uint32_t process, const std::string& worker, uint32_t lane,
                                 const VerdictRecord& record);

  // The trainer of the contribution with this key gets the outcome of the round.
  void Settled(const std::string& worker, uint32_t lane, uint64_t key, RoundNumber round);

  // A trainer would now serve its state of the lane to those who have joined with the generation;
  // and such a worker has the state with which its first round begins.
  void Serves(const std::string& worker, uint32_t lane, const Generation& joined, uint64_t state);
  void Joins(const std::string& worker, uint32_t lane, const Generation& joined, uint64_t state);

  // ---- what aggregators send
  // `life` is how often that aggregator has begun to recover. `recovered` is what the workers of
  // the recovery of this life knew.
  void OnVerdictSent(uint32_t aggregator, uint32_t life, uint32_t lane, const VerdictRecord& record,
                     const Knowledge& recovered);
  // The worker process was sent the answer to a request for samples: what it holds then, as of the
  // lane's next round.
  struct Lease {
    RoundNumber next = 0;
    uint64_t epoch = 0;
    std::vector<SampleRange> held;
  };
  void LeaseSent(uint32_t process, uint32_t lane, Lease lease) {
    leases_[{process, lane}] = std::move(lease);
  }
  // The same, as the worker's core knows it.
  void Leased(uint32_t process, const std::string& worker, uint32_t lane, RoundNumber next,
              const SampleProgress& held);
  // A trainer went on to a later epoch before this one had ended.
  void BrokeOff(uint32_t lane, uint64_t epoch) { broken_off_.insert({lane, epoch}); }
  // A worker has this progress after a verdict with this chain.
  void SamplesKnown(const std::string& worker, uint32_t lane, uint64_t chain,
                    const SampleProgress& committed);
  // Returns whether `all` has a verdict that `one` has not received, of a round for which `one` has
  // staged another value.
  bool Contradicts(const Knowledge& all, const Knowledge& one) const;
  // Adds what a process knows now.
  void AddKnowledge(uint32_t process, Knowledge& knowledge) const;
  // A process lost its memory or its place, or an operator or policy went on without the others.
  // From now on a split brain is only detected, not excluded.
  void MemoryLost() { memory_lost_ = true; }
  // More processes live than max_workers. Two groups that do not know of each other may each have
  // min_workers, so a split brain is only detected, not excluded.
  void Crowded() { crowded_ = true; }
  // A worker that has finished counts for min_workers at every aggregator that knows of it.
  void WorkerFinished() { finished_ = true; }

  uint64_t excused_forks() const { return excused_forks_; }
  uint64_t verdicts() const { return verdicts_; }

 private:
  const LaneModel& ModelOf(uint32_t lane) const { return scenario_.lanes[lives.ModelOf(lane)]; }
  // Whether the guarantee that a job has one history may have ended.
  bool MayFork() const;
  void CheckCalls(uint32_t lane, const VerdictRecord& record);
  void CheckLife(uint32_t lane, const VerdictRecord& record,
                 const std::pair<uint32_t, uint32_t>& by);
  void CheckLate(uint32_t lane, const VerdictRecord& record);
  void CheckDeferred(uint32_t lane, const VerdictRecord& record);
  std::string WhyNotDeferred(uint32_t lane, const VerdictRecord& record,
                             const Contributor& contributor, const Contribution& given) const;
  // The verdict that this one follows, if one of the round before was sent.
  const VerdictRecord* VerdictBefore(uint32_t lane, const VerdictRecord& record) const;
  // Whether one of the verdicts before this one has counted the contribution with this key. Notes
  // that this one does.
  bool WasCounted(uint32_t lane, const VerdictRecord& record, uint64_t key);
  void CheckSamples(uint32_t lane, const VerdictRecord& record);
  bool Follows(uint32_t process, const std::string& worker, uint32_t lane,
               const VerdictRecord& record);
  std::optional<uint64_t> ChainBefore(uint32_t lane, const VerdictRecord& record) const;
  void CheckBytes(const std::string& worker, uint32_t lane, const VerdictRecord& record,
                  const std::vector<uint32_t>& tensors, const StagedChunks& staged);

  // The states that are served to those who have joined with a generation, and that they need.
  struct Boundary {
    std::map<std::string, uint64_t> served;  // By worker.
    std::optional<uint64_t> joined;
  };
  void CheckBoundary(uint32_t lane, const Generation& joined, const Boundary& boundary);

  struct SentVerdict {
    VerdictRecord record;
    uint32_t aggregator = 0;
    uint32_t life = 0;
  };

  const Scenario& scenario_;
  const EventQueue& queue_;
  Violation violation_;
  std::map<std::tuple<uint32_t, RoundNumber, Incarnation>, Contribution> contributions_;
  std::set<std::tuple<uint32_t, RoundNumber, std::string>> rejected_;
  std::set<std::tuple<uint32_t, RoundNumber, std::string, Term>> dropped_;
  std::map<uint32_t, std::map<uint32_t, ProcessLane>> processes_;
  std::map<uint32_t, Generation> generation_seen_;  // By process.
  std::map<std::pair<uint32_t, Term>, uint64_t> counter_seen_;
  std::map<Generation, MemberList> generations_;
  std::set<WorkerId> were_members_;  // In any generation that was made; with groups only.
  std::set<WorkerId> joined_alone_;
  std::set<WorkerId> drained_;
  std::set<std::pair<WorkerId, Term>> lost_;
  std::map<std::pair<uint32_t, Generation>, Boundary> boundaries_;  // By lane.
  std::set<std::pair<uint32_t, uint64_t>> bare_;  // Lanes and chains with nothing committed.
  std::map<std::pair<uint32_t, RoundNumber>, std::vector<SentVerdict>> sent_;
  // By lane and key of a contribution, the rounds that have counted it, and the chains after them.
  std::map<std::pair<uint32_t, uint64_t>, std::set<std::pair<RoundNumber, uint64_t>>> counted_;
  std::map<std::pair<uint32_t, uint64_t>, uint64_t> states_;         // By lane and chain.
  std::map<std::pair<uint32_t, uint64_t>, SampleProgress> samples_;  // By lane and chain.
  std::set<std::pair<uint32_t, uint64_t>> broken_off_;               // Lanes and epochs.
  std::map<std::pair<uint32_t, uint32_t>, Lease> leases_;            // By process and lane.
  bool memory_lost_ = false;
  bool crowded_ = false;
  bool finished_ = false;
  uint64_t excused_forks_ = 0;
  uint64_t verdicts_ = 0;
};

}  // namespace basin::simulation

#endif  // BASIN_TESTS_SIMULATION_CHECKER_H_
