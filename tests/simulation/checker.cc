// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "tests/simulation/checker.h"

#include <algorithm>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace basin::simulation {
namespace {

std::string DescribeRecord(const VerdictRecord& record) {
  return absl::StrCat(OutcomeName(record.value.outcome), " (", record.value.reason, ") over {",
                      absl::StrJoin(record.value.contributors, ", ",
                                    [](std::string* out, const Contributor& contributor) {
                                      absl::StrAppend(out, contributor.worker, "@",
                                                      ToString(contributor.incarnation));
                                    }),
                      "} at ballot ", ToString(record.ballot), " (value ",
                      ToString(record.value_ballot), ")");
}

// Returns whether two values do the same to the parameters. Two aggregators that reduce the same
// contributions compute the same bytes, but may report another generation and other totals.
bool SameEffect(const RoundValue& a, const RoundValue& b) {
  const auto effect = [](const RoundValue& value) {
    return std::tie(value.outcome, value.spec, value.divisor, value.tensor_divisors,
                    value.layout_version, value.digest);
  };
  // An aborted round changes nothing, whatever the reason.
  return a.outcome == Outcome::kAborted ? b.outcome == Outcome::kAborted : effect(a) == effect(b);
}

}  // namespace

const char* InvariantName(Invariant invariant) {
  switch (invariant) {
    case Invariant::kNone:
      return "none";
    case Invariant::kCountedOnce:
      return "I1, counted at most once and never lost";
    case Invariant::kOneSet:
      return "I2, one contributor set";
    case Invariant::kSameBytes:
      return "I3, the same bytes everywhere";
    case Invariant::kTypedResult:
      return "I4, a result or a typed error in time";
    case Invariant::kOneVerdict:
      return "I5, one verdict, nothing goes back";
    case Invariant::kBoundedBytes:
      return "I6, bounded bytes";
    case Invariant::kNoted:
      return "I7, everything refused is noted";
    case Invariant::kSamples:
      return "I8, every sample once";
    case Invariant::kOneLife:
      return "I9, each life of a name is one contract";
    case Invariant::kLiveness:
      return "liveness, every round gets a verdict";
    case Invariant::kContract:
      return "contract between core and runner";
  }
  return "unknown";
}

void Checker::Fail(Invariant invariant, std::string text) {
  if (failed()) return;  // Later violations mean little.
  violation_ = {invariant, queue_.now(), std::move(text)};
}

void Checker::GenerationSeen(uint32_t process, const Membership& membership, bool member) {
  Generation& seen = generation_seen_[process];
  // An evicted process is in no generation, and lives a new life. Only members are promised that a
  // generation never goes back. The next aggregator that admits the process does not know the one
  // that evicted it, and may have a lower term: two may lead at once, and the hello names no
  // generation by which the lower one could know. It joins with the state of the members there. But
  // the generations of one aggregator never go back for any process.
  if (membership.generation.term == 0) {
    seen = Generation{};
    return;
  }
  uint64_t& counter = counter_seen_[{process, membership.generation.term}];
  if (membership.generation.counter < counter) {
    Fail(Invariant::kOneVerdict,
         absl::StrCat("Process ", process, " was told generation ", ToString(membership.generation),
                      " after generation ", counter, " of the same aggregator."));
  }
  counter = membership.generation.counter;
  if (membership.generation < seen) {
    Fail(Invariant::kOneVerdict,
         absl::StrCat("Process ", process, " was told generation ", ToString(membership.generation),
                      " after generation ", ToString(seen), "."));
  }
  // A process that is no member only observes, perhaps one aggregator after another.
  if (member) seen = membership.generation;
  const auto [it, fresh] = generations_.emplace(membership.generation, membership.members);
  if (!fresh && it->second != membership.members) {
    Fail(Invariant::kOneVerdict,
         absl::StrCat("Generation ", ToString(membership.generation), " has members ",
                      absl::StrJoin(it->second, ","), " and also ",
                      absl::StrJoin(membership.members, ","), "."));
  }
  if (fresh) Made(membership);
}

// The first of a group to become a member does so with the others, unless these did not come
// or are being drained.
void Checker::Made(const Membership& membership) {
  if (!scenario_.groups) return;
  const MemberList& members = membership.members;
  for (const WorkerId& id : members) {
    uint32_t worker = 0;
    if (!absl::SimpleAtoi(id.substr(1), &worker)) continue;
    const std::string other = absl::StrCat("w", worker ^ 1);  // As World::StartWorker pairs them.
    const bool together = std::find(members.begin(), members.end(), other) != members.end();
    if (!together && were_members_.count(other) == 0 && drained_.count(other) == 0 &&
        joined_alone_.count(id) == 0 && were_members_.count(id) == 0) {
      Fail(Invariant::kOneSet, absl::StrCat("Generation ", ToString(membership.generation),
                                            " has the member ", id, " without ", other, "."));
    }
  }
  were_members_.insert(members.begin(), members.end());
}

bool Checker::Lists(const Generation& generation, const WorkerId& worker) const {
  const auto it = generations_.find(generation);
  if (it == generations_.end()) return true;
  return std::find(it->second.begin(), it->second.end(), worker) != it->second.end();
}

void Knowledge::Stage(uint32_t lane, RoundNumber round, Ballot ballot, uint64_t chain) {
  const auto [it, fresh] = staged.emplace(std::make_pair(lane, round), std::pair(ballot, chain));
  if (!fresh && it->second.first < ballot) it->second = {ballot, chain};
}

void Knowledge::Add(const Knowledge& other) {
  sent.insert(other.sent.begin(), other.sent.end());
  for (const auto& [where, value] : other.staged) {
    Stage(where.first, where.second, value.first, value.second);
  }
}

bool Knowledge::Has(uint32_t lane, RoundNumber round, uint64_t chain) const {
  if (sent.count({lane, chain}) > 0) return true;
  const auto it = staged.find({lane, round});
  return it != staged.end() && it->second.second == chain;
}

void Checker::PreparedFor(uint32_t process, uint32_t lane, const Prepared& prepared) {
  ProcessLane& known = LaneOf(process, lane);
  if (prepared.round != known.staged_round || !(known.staged_ballot < prepared.ballot)) return;
  if (ExtendChain(known.chain, prepared.round, prepared.value) != known.staged) known.staged = 0;
}

void Checker::StagedBy(uint32_t process, uint32_t lane, const Prepared& prepared) {
  ProcessLane& known = LaneOf(process, lane);
  // A verdict that arrived meanwhile overtook it.
  if (prepared.round != known.last + 1) return;
  known.staged = ExtendChain(known.chain, prepared.round, prepared.value);
  known.staged_round = prepared.round;
  known.staged_ballot = prepared.ballot;
}

const VerdictRecord* Checker::VerdictBefore(uint32_t lane, const VerdictRecord& record) const {
  const auto before = sent_.find({lane, record.round - 1});
  if (before == sent_.end()) return nullptr;
  for (const SentVerdict& verdict : before->second) {
    const VerdictRecord& last = verdict.record;
    if (ExtendChain(last.chain, record.round, record.value) == record.chain) return &last;
  }
  return nullptr;
}

// Returns the chain that this verdict extends, if it is that of a verdict of the round before.
std::optional<uint64_t> Checker::ChainBefore(uint32_t lane, const VerdictRecord& record) const {
  const VerdictRecord* before = VerdictBefore(lane, record);
  return before == nullptr ? std::nullopt : std::optional(before->chain);
}

void Checker::OnVerdictSent(uint32_t aggregator, uint32_t life, uint32_t lane,
                            const VerdictRecord& record, const Knowledge& recovered) {
  std::vector<SentVerdict>& sent = sent_[{lane, record.round}];
  for (const SentVerdict& other : sent) {
    if (other.record.chain != record.chain) continue;
    if (other.record.value == record.value) return;
    // The next loop checks whether two aggregators may give two verdicts at all.
    if (SameEffect(other.record.value, record.value)) continue;
    Fail(Invariant::kOneVerdict,
         absl::StrCat("Lane ", ModelOf(lane).name, ", round ", record.round,
                      ": one chain hash, two values: ", DescribeRecord(other.record), " and ",
                      DescribeRecord(record), "."));
    return;
  }
  ++verdicts_;
  CheckCalls(lane, record);
  CheckLife(lane, record, {aggregator, life});
  CheckLate(lane, record);
  CheckDeferred(lane, record);
  CheckSamples(lane, record);
  for (const SentVerdict& other : sent) {
    // Two reasons for the abort of one round do not make the histories differ.
    if (other.record.chain == record.chain) continue;
    // The histories parted in an earlier round, which was checked then.
    if (ChainBefore(lane, record) != ChainBefore(lane, other.record)) continue;
    // A second verdict of one round is excused only if no worker that knew the first one took part.
    const bool known = recovered.Has(lane, record.round, other.record.chain);
    const bool same_life = other.aggregator == aggregator && other.life == life;
    if (known || !MayFork() || same_life) {
      Fail(Invariant::kOneVerdict,
           absl::StrCat("Lane ", ModelOf(lane).name, ", round ", record.round,
                        " has two verdicts: ", DescribeRecord(other.record), " from aggregator ",
                        other.aggregator, ", and ", DescribeRecord(record), " from aggregator ",
                        aggregator,
                        known ? ", whose recovery was told of the first one."
                              : ", and nobody had lost its memory."));
      return;
    }
    ++excused_forks_;
  }
  sent.push_back({record, aggregator, life});
}

bool Checker::MayFork() const {
  const JobSettings& settings = scenario_.settings;
  return 2 * settings.min_workers <= settings.max_workers || memory_lost_ || crowded_ || finished_;
}

void Checker::CheckLife(uint32_t lane, const VerdictRecord& record,
                        const std::pair<uint32_t, uint32_t>& by) {
  if (ModelOf(lane).kind != LaneKind::kCall || scenario_.calls == 0) return;
  if (record.value.outcome != Outcome::kCommitted) return;
  for (const Contributor& contributor : record.value.contributors) {
    const auto found = contributions_.find({lane, record.round, contributor.incarnation});
    // One of two histories may have recovered a life from a worker of the other.
    if (found == contributions_.end() && MayFork()) continue;
    const std::string wrong =
        found == contributions_.end()
            ? "is counted in a round that it has not begun in this life of the name"
            : lives.Counted(found->second.key, {lane, record.round, by}, MayFork());
    if (wrong.empty()) continue;
    Fail(Invariant::kOneLife,
         absl::StrCat("Lane ", ModelOf(lane).name, ", round ", record.round, ": ",
                      contributor.worker, "@", ToString(contributor.incarnation), " ", wrong, "."));
  }
}

void Checker::Settled(const std::string& worker, uint32_t lane, uint64_t key, RoundNumber round) {
  const std::string wrong = lives.Settled(key, lane, round, MayFork());
  if (wrong.empty()) return;
  Fail(Invariant::kOneLife, absl::StrCat("Worker ", worker, ", lane ", ModelOf(lane).name,
                                         ", round ", round, ": its call ", wrong, "."));
}

void Checker::CheckCalls(uint32_t lane, const VerdictRecord& record) {
  const Contribution* first = nullptr;
  for (const Contributor& contributor : record.value.contributors) {
    const auto found = contributions_.find({lane, record.round, contributor.incarnation});
    if (found == contributions_.end()) continue;
    if (first == nullptr) first = &found->second;
    if (found->second.call == first->call) continue;
    Fail(Invariant::kCountedOnce,
         absl::StrCat("Lane ", ModelOf(lane).name, ", round ", record.round, ": worker ",
                      contributor.worker, " was counted in another call than its own."));
  }
}

void Checker::CheckLate(uint32_t lane, const VerdictRecord& record) {
  const bool carries =
      !record.value.late.empty() && scenario_.config.late_policy == aggregator::LatePolicy::kCarry;
  if (record.value.late_carries != carries) {
    Fail(Invariant::kCountedOnce,
         absl::StrCat("Lane ", ModelOf(lane).name, ", round ", record.round,
                      ": the verdict says that what was late ", carries ? "is lost" : "is not lost",
                      ", against the late policy."));
  }
  const auto& contributors = record.value.contributors;
  for (const WorkerId& late : record.value.late) {
    const bool counted =
        std::any_of(contributors.begin(), contributors.end(),
                    [&](const Contributor& contributor) { return contributor.worker == late; });
    if (!counted && scenario_.late_percent > 0) continue;
    Fail(Invariant::kCountedOnce,
         absl::StrCat("Lane ", ModelOf(lane).name, ", round ", record.round, ": worker ", late,
                      " was left out because it was late",
                      counted ? ", and is counted." : ", though nobody is to be left out."));
  }
}

// Each contribution is counted once: in its own round, or with the next one of its worker.
void Checker::CheckDeferred(uint32_t lane, const VerdictRecord& record) {
  for (const Contributor& contributor : record.value.contributors) {
    const auto found = contributions_.find({lane, record.round, contributor.incarnation});
    if (found == contributions_.end()) continue;
    const Contribution& given = found->second;
    std::string wrong = WhyNotDeferred(lane, record, contributor, given);
    if (WasCounted(lane, record, given.key) ||
        (given.late.has_value() && WasCounted(lane, record, given.late->key))) {
      wrong = "has what was counted already";
    }
    if (wrong.empty()) continue;
    Fail(Invariant::kCountedOnce,
         absl::StrCat("Lane ", ModelOf(lane).name, ", round ", record.round, ": ",
                      contributor.worker, "@", ToString(contributor.incarnation), " ", wrong, "."));
  }
}

std::string Checker::WhyNotDeferred(uint32_t lane, const VerdictRecord& record,
                                    const Contributor& contributor,
                                    const Contribution& given) const {
  const uint32_t deferred = given.late.has_value() ? given.late->ranks : 0;
  if (contributor.deferred != deferred) {
    return absl::StrCat("has ", contributor.deferred, " deferred gradients instead of ", deferred);
  }
  const auto found = contributions_.find({lane, record.round - 1, contributor.incarnation});
  const bool gave =
      found != contributions_.end() && found->second.committed && !found->second.withdrawn;
  if (deferred > 0 && (!gave || found->second.key != given.late->key)) {
    return "has what it had not given to the round before";
  }
  // Two aggregators may have told one verdict, and only one of them that the worker was late.
  size_t told = 0;
  size_t allow = 0;
  const std::optional<uint64_t> chain = ChainBefore(lane, record);
  if (const auto sent = sent_.find({lane, record.round - 1}); sent != sent_.end()) {
    for (const SentVerdict& verdict : sent->second) {
      if (verdict.record.chain != chain) continue;
      const RoundValue& value = verdict.record.value;
      const auto& late = value.late;
      const bool was_late = std::find(late.begin(), late.end(), contributor.worker) != late.end();
      ++told;
      if (was_late && value.late_carries) ++allow;
    }
  }
  if (deferred > 0 && allow == 0) return "has what was not late, or may not be deferred";
  if (deferred == 0 && allow > 0 && allow == told && gave && !given.drops_late) {
    return "lacks what was late for the round before";
  }
  return "";
}

bool Checker::WasCounted(uint32_t lane, const VerdictRecord& record, uint64_t key) {
  auto& rounds = counted_[{lane, key}];
  bool counted = false;
  for (const VerdictRecord* before = VerdictBefore(lane, record);
       before != nullptr && !rounds.empty() && before->round >= rounds.begin()->first && !counted;
       before = VerdictBefore(lane, *before)) {
    counted = rounds.count({before->round, before->chain}) > 0;
  }
  rounds.emplace(record.round, record.chain);
  return counted;
}

void Checker::CheckSamples(uint32_t lane, const VerdictRecord& record) {
  const std::string where =
      absl::StrCat("Lane ", ModelOf(lane).name, ", round ", record.round, ": ");
  const std::optional<uint64_t> chain = ChainBefore(lane, record);
  SampleProgress before;
  if (chain.has_value()) before = samples_[{lane, *chain}];
  SampleProgress& after = samples_[{lane, record.chain}] = before;
  if (record.value.outcome != Outcome::kCommitted) return;
  IntervalSet given;
  for (const Contributor& contributor : record.value.contributors) {
    const auto found = contributions_.find({lane, record.round, contributor.incarnation});
    if (found == contributions_.end()) continue;
    for (const SampleRange& range : found->second.samples) {
      if (!given.Inside(range).empty()) {
        return Fail(Invariant::kSamples,
                    absl::StrCat(where, "two contributions were computed from sample ",
                                 given.Inside(range)[0].begin, "."));
      }
      given.Add(range);
    }
  }
  const std::optional<RoundSamples>& samples = record.value.samples;
  if (given.Runs() != (samples.has_value() ? samples->ranges : std::vector<SampleRange>{})) {
    return Fail(Invariant::kSamples,
                where + "the verdict names other samples than its contributors.");
  }
  if (!samples.has_value()) return;
  after = After(before, *samples);
  const bool next = samples->epoch.IsAfter(before.epoch);
  const IntervalSet earlier(before.ranges);
  if (before.epoch.exists() && next && earlier.count() < before.epoch.samples &&
      broken_off_.count({lane, before.epoch.number}) == 0) {
    return Fail(Invariant::kSamples,
                absl::StrCat(where, "epoch ", samples->epoch.number, " has begun, and ",
                             before.epoch.samples - earlier.count(), " samples of epoch ",
                             before.epoch.number, " are lost."));
  }
  for (const SampleRange& range : samples->ranges) {
    if (next || earlier.Inside(range).empty()) continue;
    return Fail(Invariant::kSamples,
                absl::StrCat(where, "sample ", earlier.Inside(range)[0].begin, " of epoch ",
                             samples->epoch.number, " is committed for the second time."));
  }
  if (scenario_.global_batch > 0 && chain.has_value()) {
    IntervalSet left({{0, samples->epoch.samples}});
    left.Remove(next ? samples->resumed : before.ranges);
    IntervalSet step;
    for (SampleRange run : left.Runs()) {
      run.end = std::min(run.end, run.begin + scenario_.global_batch - step.count());
      step.Add(run);
    }
    if (samples->ranges != step.Runs()) {
      return Fail(Invariant::kSamples,
                  absl::StrCat(where, "the round commits ", IntervalSet(samples->ranges).count(),
                               " samples, which are not those of the step of ",
                               scenario_.global_batch, "."));
    }
  }
  if (IntervalSet(after.ranges).count() != samples->committed) {
    Fail(Invariant::kSamples, where + "the verdict counts the committed samples wrongly.");
  }
}

void Checker::SamplesKnown(const std::string& worker, uint32_t lane, uint64_t chain,
                           const SampleProgress& committed) {
  const auto found = samples_.find({lane, chain});
  if (found == samples_.end() || found->second == committed) return;
  Fail(Invariant::kSamples,
       absl::StrCat("Worker ", worker, ", lane ", ModelOf(lane).name, ": knows ",
                    IntervalSet(committed.ranges).count(), " committed samples of epoch ",
                    committed.epoch.number, ", but its last verdict has ",
                    IntervalSet(found->second.ranges).count(), " of epoch ",
                    found->second.epoch.number, "."));
}

void Checker::Leased(uint32_t process, const std::string& worker, uint32_t lane, RoundNumber next,
                     const SampleProgress& held) {
  const auto sent = leases_.find({process, lane});
  if (sent == leases_.end() || sent->second.next != next) return;
  const bool same = sent->second.held == held.ranges &&
                    (held.ranges.empty() || sent->second.epoch == held.epoch.number);
  if (same) return;
  Fail(Invariant::kSamples,
       absl::StrCat("Worker ", worker, ", lane ", ModelOf(lane).name, ": holds ",
                    IntervalSet(held.ranges).count(), " samples of epoch ", held.epoch.number,
                    ", but ", IntervalSet(sent->second.held).count(), " of epoch ",
                    sent->second.epoch, " are leased to it."));
}

bool Checker::Contradicts(const Knowledge& all, const Knowledge& one) const {
  for (const auto& [where, value] : one.staged) {
    const auto sent = sent_.find(where);
    if (sent == sent_.end()) continue;
    for (const SentVerdict& verdict : sent->second) {
      const std::pair<uint32_t, uint64_t> chain = {where.first, verdict.record.chain};
      const bool other = chain.second != value.second && one.sent.count(chain) == 0;
      if (other && all.sent.count(chain) > 0) return true;
    }
  }
  return false;
}

void Checker::AddKnowledge(uint32_t process, Knowledge& knowledge) const {
  const auto it = processes_.find(process);
  if (it == processes_.end()) return;
  for (const auto& [lane, known] : it->second) {
    for (const uint64_t chain : known.sent) knowledge.sent.emplace(lane, chain);
    if (known.staged != 0) {
      knowledge.Stage(lane, known.staged_round, known.staged_ballot, known.staged);
    }
  }
}

std::optional<uint64_t> Checker::StateAfter(uint32_t lane, uint64_t chain) const {
  const auto it = states_.find({lane, chain});
  return it == states_.end() ? std::nullopt : std::optional(it->second);
}

std::optional<uint64_t> Checker::Passed(uint32_t process, const std::string& worker, uint32_t lane,
                                        const VerdictRecord& record) {
  return Follows(process, worker, lane, record) ? StateAfter(lane, record.chain) : std::nullopt;
}

bool Checker::Follows(uint32_t process, const std::string& worker, uint32_t lane,
                      const VerdictRecord& record) {
  ProcessLane& known = LaneOf(process, lane);
  const std::string& name = ModelOf(lane).name;
  if (record.round != known.last + 1) {
    Fail(Invariant::kOneVerdict,
         absl::StrCat("Worker ", worker, ", lane ", name, ": round ", record.round,
                      " ended after round ", known.last, "."));
    return false;
  }
  if (known.knows_chain && ExtendChain(known.chain, record.round, record.value) != record.chain) {
    Fail(Invariant::kOneVerdict,
         absl::StrCat("Worker ", worker, ", lane ", name, ": the verdict of round ", record.round,
                      " does not extend the chain of what it was told before."));
    return false;
  }
  const auto sent = sent_.find({lane, record.round});
  if (sent == sent_.end() ||
      std::none_of(sent->second.begin(), sent->second.end(), [&](const SentVerdict& verdict) {
        return verdict.record.chain == record.chain && verdict.record.value == record.value;
      })) {
    Fail(Invariant::kOneVerdict, absl::StrCat("Worker ", worker, ", lane ", name, ": ended round ",
                                              record.round, " with a verdict that nobody told."));
    return false;
  }
  known.last = record.round;
  known.chain = record.chain;
  known.knows_chain = true;
  known.staged = 0;
  known.sent.insert(record.chain);
  return true;
}

std::optional<uint64_t> Checker::Applied(uint32_t process, const std::string& worker, uint32_t lane,
                                         const VerdictRecord& record,
                                         const std::vector<uint32_t>& tensors,
                                         const StagedChunks& staged,
                                         std::optional<uint64_t> state) {
  const uint64_t before = LaneOf(process, lane).chain;
  if (!state.has_value()) state = StateAfter(lane, before);
  if (!Follows(process, worker, lane, record)) return state;
  // Two lineages that began without knowing of each other share a chain until something is
  // committed, but each has its own parameters.
  const bool bare = before == 0 || bare_.count({lane, before}) > 0;
  if (record.value.outcome == Outcome::kAborted && bare) {
    bare_.emplace(lane, record.chain);
    return state;
  }
  if (record.value.outcome == Outcome::kCommitted)
    CheckBytes(worker, lane, record, tensors, staged);
  if (!state.has_value()) return StateAfter(lane, record.chain);

  uint64_t after = *state;  // ABORTED changes nothing.
  if (record.value.outcome == Outcome::kCommitted) {
    const std::optional<uint64_t> sum = SumOf(lane, record, tensors, staged);
    if (!sum.has_value()) return state;  // CheckBytes has failed.
    after = Mix(*state, record.round) + *sum;
  }
  const auto [it, fresh] = states_.emplace(std::make_pair(lane, record.chain), after);
  if (!fresh && it->second != after) {
    Fail(Invariant::kSameBytes,
         absl::StrCat("Worker ", worker, ", lane ", ModelOf(lane).name, ": after round ",
                      record.round,
                      " its parameters differ from those of a worker that applied the same "
                      "verdict."));
  }
  return after;
}

std::optional<uint64_t> Checker::SumOf(uint32_t lane, const VerdictRecord& record,
                                       const std::vector<uint32_t>& tensors,
                                       const StagedChunks& staged) const {
  uint64_t sum = 0;
  for (TensorIndex tensor = 0; tensor < record.value.layout_version; ++tensor) {
    if (!HasResult(record.value, tensor) || tensor >= tensors.size()) continue;
    const uint32_t chunks = ChunkCount(*TensorBytes(ModelOf(lane).tensors[tensors[tensor]]));
    // A sum does not depend on indexes, and tensors may have other indexes in another lineage.
    for (uint32_t chunk = 0; chunk < chunks; ++chunk) {
      const Chunk* got = staged.Find(tensor, chunk);
      if (got == nullptr) return std::nullopt;
      sum += Mix(tensors[tensor] * 64 + chunk, DigestOf(*got));
    }
  }
  return sum;
}

void Checker::CaughtUp(const std::string& worker, uint32_t lane, uint64_t chain, uint64_t state) {
  const std::optional<uint64_t> expected = StateAfter(lane, chain);
  if (!expected.has_value() || *expected == state) return;
  Fail(Invariant::kSameBytes,
       absl::StrCat("Worker ", worker, ", lane ", ModelOf(lane).name,
                    ": it has applied the results that it had kept, and its parameters differ from "
                    "those of the others."));
}

void Checker::Serves(const std::string& worker, uint32_t lane, const Generation& joined,
                     uint64_t state) {
  Boundary& boundary = boundaries_[{lane, joined}];
  boundary.served[worker] = state;
  CheckBoundary(lane, joined, boundary);
}

void Checker::Joins(const std::string& worker, uint32_t lane, const Generation& joined,
                    uint64_t state) {
  Boundary& boundary = boundaries_[{lane, joined}];
  if (boundary.joined.has_value() && boundary.joined != state) {
    Fail(Invariant::kSameBytes, absl::StrCat("Worker ", worker, ", lane ", ModelOf(lane).name,
                                             ": it joins with generation ", ToString(joined),
                                             " and another state than another worker."));
  }
  boundary.joined = state;
  CheckBoundary(lane, joined, boundary);
}

void Checker::CheckBoundary(uint32_t lane, const Generation& joined, const Boundary& boundary) {
  if (!boundary.joined.has_value()) return;
  for (const auto& [worker, state] : boundary.served) {
    if (state == *boundary.joined) continue;
    Fail(Invariant::kSameBytes,
         absl::StrCat("Worker ", worker, ", lane ", ModelOf(lane).name,
                      ": it serves a state to those who join with generation ", ToString(joined),
                      " that is not the one with which their first round begins."));
  }
}

void Checker::CheckBytes(const std::string& worker, uint32_t lane, const VerdictRecord& record,
                         const std::vector<uint32_t>& tensors, const StagedChunks& staged) {
  const LaneModel& model = ModelOf(lane);
  const RoundValue& value = record.value;
  const std::string where =
      absl::StrCat("Lane ", model.name, ", round ", record.round, ", at worker ", worker);

  std::vector<const Contribution*> counted;
  for (const Contributor& contributor : value.contributors) {
    const auto it = contributions_.find({lane, record.round, contributor.incarnation});
    if (it == contributions_.end() || !it->second.committed || it->second.withdrawn ||
        absl::StrCat("w", it->second.worker) != contributor.worker) {
      Fail(Invariant::kCountedOnce,
           absl::StrCat(where, ": ", contributor.worker, "@", ToString(contributor.incarnation),
                        " is counted, but it ",
                        it == contributions_.end() ? "began no such round"
                        : it->second.withdrawn     ? "withdrew"
                                                   : "never committed",
                        "."));
      return;
    }
    counted.push_back(&it->second);
  }
  const bool average = value.spec.op == ReduceOp::kAverage;
  const auto gradients = [](const std::vector<const Contribution*>& contributions) {
    uint64_t sum = 0;
    for (const Contribution* contribution : contributions) sum += contribution->gradients();
    return sum;
  };
  uint64_t trainers = 0;
  for (const Contribution* contribution : counted) trainers += contribution->ranks;
  if (value.divisor != (average ? gradients(counted) : 1) || TrainersOf(value) != trainers) {
    Fail(Invariant::kOneSet,
         absl::StrCat(where, ": the divisor is ", value.divisor, " and the trainers are ",
                      TrainersOf(value), " for ", counted.size(), " contributors of ", trainers,
                      " trainers, with ", gradients(counted), " gradients."));
    return;
  }
  if (value.layout_version > tensors.size()) {
    Fail(Invariant::kSameBytes,
         absl::StrCat(where, ": the result has ", value.layout_version, " tensors, of which ",
                      tensors.size(), " are known there."));
    return;
  }
  for (TensorIndex tensor = 0; tensor < value.layout_version; ++tensor) {
    const TensorSpec& spec = model.tensors[tensors[tensor]];
    std::vector<const Contribution*> present;
    uint64_t mask = 0;
    for (const Contribution* contribution : counted) {
      if ((contribution->pushed >> tensors[tensor] & 1) == 0) continue;
      present.push_back(contribution);
      mask += contribution->At(tensors[tensor], 0, 0).mask;
    }
    if (HasResult(value, tensor) != !present.empty()) {
      Fail(Invariant::kOneSet, absl::StrCat(where, ": tensor ", spec.name, " has ",
                                            present.empty() ? "a result" : "no result",
                                            " although ", present.size(), " workers pushed it."));
      return;
    }
    if (present.empty()) continue;
    uint64_t divisor = value.divisor;
    for (const TensorDivisor& entry : value.tensor_divisors) {
      if (entry.tensor == tensor) divisor = entry.divisor;
    }
    const bool by_present = average && value.spec.denominator == Denominator::kPresent;
    if (divisor != (by_present ? gradients(present) : value.divisor)) {
      Fail(Invariant::kOneSet,
           absl::StrCat(where, ": tensor ", spec.name, " has divisor ", divisor, " where ",
                        gradients(present), " of ", gradients(counted), " have it."));
      return;
    }
    const uint64_t tensor_hash = HashName(spec.name);
    const uint32_t chunks = ChunkCount(*TensorBytes(spec));
    for (uint32_t chunk = 0; chunk < chunks; ++chunk) {
      const Chunk* got = staged.Find(tensor, chunk);
      if (got == nullptr || staged.round != record.round ||
          !(staged.ballot == record.value_ballot)) {
        Fail(Invariant::kSameBytes, absl::StrCat(where, ": chunk ", chunk, " of tensor ", spec.name,
                                                 " was delivered and is not staged at ballot ",
                                                 ToString(record.value_ballot), "."));
        return;
      }
      uint64_t content = 0;
      for (const Contribution* contribution : present) {
        content += contribution->At(tensors[tensor], tensor_hash, chunk).content;
      }
      if (got->mask == mask && got->content == content) continue;
      Fail(got->mask == mask ? Invariant::kSameBytes : Invariant::kCountedOnce,
           absl::StrCat(where, ": chunk ", chunk, " of tensor ", spec.name, " counts ",
                        absl::Hex(got->mask), " where the verdict's contributors are ",
                        absl::Hex(mask), " (digit k: times worker k was counted)",
                        got->mask == mask ? ", with bytes of another round or life" : "", "."));
      return;
    }
  }
}

}  // namespace basin::simulation
