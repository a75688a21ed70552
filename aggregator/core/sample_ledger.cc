// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "aggregator/core/sample_ledger.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "aggregator/core/footprint.h"
#include "protocol/limits/limits.h"

namespace basin::aggregator {
namespace {

// Every worker that leases needs at least so many ranges: those that it holds, the cuts of its next
// contribution, and its part of what is committed and free.
constexpr uint64_t kRunsOfHolder = 16;

std::string DescribeEpoch(const SampleEpoch& epoch) {
  return absl::StrCat(epoch.samples, " samples in order ", absl::Hex(epoch.order),
                      epoch.has_steps() ? absl::StrCat(" in steps of ", epoch.global_batch) : "");
}

}  // namespace

const IntervalSet& SampleLedger::HeldBy(const Incarnation& incarnation) const {
  static const auto* const kNothing = new IntervalSet();
  const auto holder = holders_.find(incarnation);
  return holder == holders_.end() ? *kNothing : holder->second.positions;
}

SampleProgress SampleLedger::settled() const {
  return before_.has_value() ? *before_ : SampleProgress{epoch_, committed_.Runs()};
}

// ---- memory

uint64_t SampleLedger::BytesOf(uint64_t holders, uint64_t runs) {
  return holders * Footprint::OfEntry<Incarnation, Holder>() +
         runs * Footprint::OfEntry<uint64_t, uint64_t>();
}

uint64_t SampleLedger::NeedOf(uint64_t holders, uint64_t runs) {
  return BytesOf(holders, std::max(runs, holders * kRunsOfHolder));
}

uint64_t SampleLedger::runs() const {
  uint64_t runs = committed_.runs() + free_.runs();
  for (const auto& [incarnation, holder] : holders_) runs += holder.positions.runs();
  return before_.has_value() ? runs + before_->ranges.size() : runs;
}

std::string SampleLedger::WhyNoMemory(const Budget& budget) const {
  return absl::StrCat("needs memory for more separate ranges of samples than there is: the ledger ",
                      "of the lane has ", runs(), ", and may take ", budget.bytes,
                      " bytes of memory.budget. Lease, train on and give back neighbours, or have "
                      "memory.budget or limits.job_memory raised");
}

SampleLedger::Answer SampleLedger::RefuseMemory(const Budget& budget) const {
  Answer answer;
  answer.outcome = LeaseOutcome::kRefused;
  answer.refusal = {ErrorCode::kResourceExhausted, WhyNoMemory(budget)};
  answer.lacks_memory = true;
  return answer;
}

// ---- what workers ask for

SampleLedger::Answer SampleLedger::Lease(const Incarnation& incarnation, const WorkerId& worker,
                                         const LeaseSamples& ask, const Asker& asker,
                                         const IntervalSet& counted, const Budget& budget) {
  Answer answer;
  if (epoch_.exists() && ask.epoch.number < epoch_.number) {
    answer.outcome = LeaseOutcome::kEnded;
    return answer;
  }
  if (holders_.count(incarnation) == 0 && !Fits(budget, 1, 0)) return RefuseMemory(budget);
  Holder& holder = holders_[incarnation];
  holder.asks = ask.epoch.number;
  holder.stays = true;
  if (ask.epoch.IsAfter(epoch_)) {
    Free(holder, counted);
    if (!MayMoveOn(counted)) {
      answer.outcome = LeaseOutcome::kNoneNow;
      return answer;
    }
    // What is resumed is committed, the gaps are free, and before_ keeps what was committed.
    const uint64_t kept = before_.has_value() ? before_->ranges.size() : committed_.runs();
    const uint64_t after = 2 * ask.resumed.size() + 1 + kept;
    if (NeedOf(holders_.size(), after + 2 * budget.named) > budget.bytes) {
      return RefuseMemory(budget);
    }
    answer.moved = true;
    answer.left = epoch_.samples - committed_.count();
    MoveTo(ask.epoch, ask.resumed, worker);
  }
  answer.refusal = WhyNotLease(ask);
  if (answer.refusal.code == ErrorCode::kOk && !Ended() &&
      (holder.positions.count() >= kMaxLeasedSamples ||
       holder.positions.runs() >= kMaxSampleRanges)) {
    answer.refusal = {
        ErrorCode::kResourceExhausted,
        absl::StrCat("holds ", holder.positions.count(), " samples in ", holder.positions.runs(),
                     " ranges; the limits are ", kMaxLeasedSamples, " and ", kMaxSampleRanges,
                     ". Train on them first, or give some back")};
  }
  if (answer.refusal.code != ErrorCode::kOk) {
    answer.outcome = LeaseOutcome::kRefused;
    return answer;
  }
  if (Ended() || free_.empty()) {
    answer.outcome = Ended() ? LeaseOutcome::kEnded : LeaseOutcome::kNoneNow;
    return answer;
  }
  if (epoch_.has_steps()) {
    answer.ranges = ShareOf(asker, ask.after, counted).Runs();
    if (answer.ranges.empty()) answer.outcome = LeaseOutcome::kNoneNow;
    if (answer.ranges.size() <= kMaxSampleRanges) return answer;
    answer.outcome = LeaseOutcome::kRefused;
    answer.refusal = {ErrorCode::kResourceExhausted,
                      absl::StrCat("has ", answer.ranges.size(), " ranges of samples in a step of ",
                                   epoch_.global_batch, "; the limit is ", kMaxSampleRanges,
                                   ". Begin the epoch anew")};
    answer.ranges.clear();
    return answer;
  }
  // Only the last of its ranges is cut from what stays free.
  if (!Fits(budget, 0, 1)) {
    Answer refused = RefuseMemory(budget);
    refused.moved = answer.moved;
    refused.left = answer.left;
    return refused;
  }
  uint64_t count = std::min(ask.count, kMaxLeasedSamples - holder.positions.count());
  const uint32_t members = std::max<uint32_t>(1, asker.members);
  if (free_.count() / members < count) {
    count = std::min(count, std::max<uint64_t>(1, (free_.count() + members - 1) / members));
  }
  while (count > 0 && !free_.empty() && holder.positions.runs() < kMaxSampleRanges) {
    SampleRange range = free_.First();
    range.end = range.begin + std::min(range.size(), count);
    count -= range.size();
    answer.ranges.push_back(range);
    Hold(holder, {range});
  }
  return answer;
}

IntervalSet SampleLedger::Uncommitted(uint64_t first, uint64_t count) const {
  IntervalSet left({{0, epoch_.samples}});
  left.Remove(committed_.Runs());
  IntervalSet part;
  for (Interval run : left.Runs()) {
    const uint64_t before = std::min(first, run.size());
    first -= before;
    run.begin += before;
    run.end = run.begin + std::min(run.size(), count);
    count -= run.size();
    part.Add(run);
  }
  return part;
}

IntervalSet SampleLedger::ShareOf(const Asker& asker, uint64_t after,
                                  const IntervalSet& counted) const {
  uint64_t earlier = std::min(after, epoch_.samples);
  for (const Interval& run : committed_.Inside({0, earlier})) earlier -= run.size();
  const uint64_t batch = epoch_.global_batch;
  const uint64_t begin = (earlier + batch - 1) / batch * batch;
  const uint64_t size = Uncommitted(begin, batch).count();
  // Without a product of more than 64 bits.
  const auto until = [&](uint64_t rank) {
    return size / asker.trainers * rank + size % asker.trainers * rank / asker.trainers;
  };
  const uint64_t first = until(asker.rank);
  IntervalSet share = Uncommitted(begin + first, until(asker.rank + asker.ranks) - first);
  share.Remove(counted.Runs());
  // An earlier aggregator has prepared a round with these.
  for (const auto& [incarnation, holder] : holders_) share.Remove(holder.positions.Runs());
  return share;
}

Error SampleLedger::WhyNotLease(const LeaseSamples& ask) const {
  const std::string first =
      begun_by_.empty() ? "the epoch has" : absl::StrCat("worker ", begun_by_, " gave");
  if (ask.epoch != epoch_) {
    return {ErrorCode::kMismatch,
            absl::StrCat("gives epoch ", epoch_.number, " ", DescribeEpoch(ask.epoch), ", but ",
                         first, " ", DescribeEpoch(epoch_),
                         ". Use the same data set, seed, order and global batch on every worker")};
  }
  if (ask.resumed.empty()) return {};
  const bool same =
      before_.has_value()
          ? ask.resumed == committed_.Runs()
          : std::all_of(ask.resumed.begin(), ask.resumed.end(),
                        [&](SampleRange range) { return committed_.Contains(range); });
  if (same) return {};
  return {ErrorCode::kMismatch,
          absl::StrCat("resumes epoch ", epoch_.number, " from a checkpoint with ",
                       IntervalSet(ask.resumed).count(), " committed samples, but ",
                       begun_by_.empty() ? "the job" : absl::StrCat("worker ", begun_by_),
                       " began it with ", committed_.count(),
                       " others committed. Start all workers from the same checkpoint")};
}

// The positions of the present epoch that an open round counts are held until it has ended.
bool SampleLedger::MayMoveOn(const IntervalSet& counted) const {
  const auto all = [this](const auto& is) {
    return std::all_of(holders_.begin(), holders_.end(),
                       [&](const auto& entry) { return is(entry.second); });
  };
  if (!epoch_.exists()) return true;
  if (!counted.empty()) return false;
  if (!all([](const Holder& holder) { return holder.positions.empty(); })) return false;
  return Ended() ||
         all([this](const Holder& holder) { return !holder.stays || holder.asks > epoch_.number; });
}

void SampleLedger::MoveTo(const SampleEpoch& epoch, const std::vector<SampleRange>& resumed,
                          const WorkerId& worker) {
  before_ = settled();
  epoch_ = epoch;
  committed_ = IntervalSet(resumed);
  free_ = IntervalSet({{0, epoch.samples}});
  free_.Remove(resumed);
  for (auto& [incarnation, holder] : holders_) holder.positions.Clear();
  begun_by_ = worker;
}

std::string SampleLedger::Return(const Incarnation& incarnation, const ReturnSamples& back,
                                 const IntervalSet& counted, const Budget& budget) {
  const auto found = holders_.find(incarnation);
  if (found == holders_.end() || back.epoch != epoch_.number) return "";
  IntervalSet kept = found->second.positions;
  kept.Remove(back.ranges);
  for (const Interval& run : counted.Runs()) kept.Add(found->second.positions.Inside(run));
  if (kept.runs() > kMaxSampleRanges) {
    return absl::StrCat("would hold ", kept.runs(), " ranges of samples after it has returned some",
                        "; the limit is ", kMaxSampleRanges, ". Return neighbours together");
  }
  if (!Fits(budget, 0, RunsOfFree(found->second, kept))) return WhyNoMemory(budget);
  Free(found->second, kept);
  return "";
}

std::string SampleLedger::WhyNotBegin(const std::vector<Incarnation>& workers, uint64_t epoch,
                                      const std::vector<SampleRange>& ranges,
                                      uint64_t begun) const {
  if (ranges.empty()) return "";
  if (!epoch_.exists() || epoch != epoch_.number) {
    return absl::StrCat("names samples of epoch ", epoch, ", but ",
                        epoch_.exists() ? absl::StrCat("the lane is at epoch ", epoch_.number)
                                        : "no worker has leased samples in the lane");
  }
  IntervalSet held;
  if (epoch_.has_steps()) held = NextStep();
  for (const Incarnation& worker : workers) held.Add(HeldBy(worker).Runs());
  IntervalSet named;
  for (const SampleRange& range : ranges) {
    if (!named.Inside(range).empty()) {
      return absl::StrCat("names sample ", named.Inside(range).front().begin, " twice");
    }
    const std::vector<Interval> outside = held.Outside(range);
    if (!outside.empty()) {
      return absl::StrCat("names sample ", outside.front().begin, " of epoch ", epoch,
                          epoch_.has_steps() ? ", which is not of the step that comes next"
                                             : ", which is not leased to it");
    }
    named.Add(range);
  }
  held.Remove(ranges);
  if (held.runs() > workers.size() * kMaxSampleRanges ||
      committed_.runs() + begun + named.runs() > kMaxLedgerRanges) {
    return absl::StrCat("names ", named.runs(), " separate ranges of samples, and with them there ",
                        "would be more than the ledger holds (", kMaxSampleRanges, " of a worker, ",
                        kMaxLedgerRanges, " of the lane); train on neighbours");
  }
  return "";
}

// ---- rounds

std::string SampleLedger::WhyNotCommit(const IntervalSet& positions, uint64_t named) const {
  if (!epoch_.has_steps() || named == 0) return "";
  const IntervalSet step = NextStep();
  if (positions == step && named == step.count()) return "";
  return absl::StrCat(
      "its contributions are of ", positions.count(), " of the ", step.count(),
      " samples of the step", named > positions.count() ? ", and of some of them twice" : "",
      ", because a worker was lost, left, joined, withdrew or was refused. The step comes again "
      "with all its samples, as the next batches of all workers");
}

RoundSamples SampleLedger::Of(const IntervalSet& positions) const {
  IntervalSet after = committed_;
  after.Add(positions.Runs());
  return {epoch_, positions.Runs(), resumed(), after.count()};
}

void SampleLedger::EndRound(const std::optional<RoundSamples>& samples) {
  if (samples.has_value() && samples->epoch.number == epoch_.number) {
    const IntervalSet named(samples->ranges);
    for (auto& [incarnation, holder] : holders_) {
      for (const Interval& run : holder.positions.Runs()) {
        holder.positions.Remove(named.Inside(run));
      }
    }
    committed_.Add(samples->ranges);
    free_.Remove(samples->ranges);
    before_.reset();
  } else if (samples.has_value() && before_.has_value()) {
    // Another aggregator had moved the lane on before this verdict.
    before_ = After(*before_, *samples);
  }
  for (auto it = holders_.begin(); it != holders_.end();) {
    Holder& holder = it->second;
    if (!holder.stays || holder.asks > epoch_.number) Free(holder, {});
    it = holder.stays ? std::next(it) : holders_.erase(it);
  }
}

void SampleLedger::Free(Holder& holder, const IntervalSet& kept) {
  for (const Interval& run : holder.positions.Runs()) {
    for (const Interval& part : kept.Outside(run)) {
      holder.positions.Remove(part);
      free_.Add(part);
    }
  }
}

uint64_t SampleLedger::RunsOfFree(const Holder& holder, const IntervalSet& kept) {
  uint64_t after = 0;
  for (const Interval& run : holder.positions.Runs()) {
    after += kept.Inside(run).size() + kept.Outside(run).size();
  }
  return after - std::min<uint64_t>(after, holder.positions.runs());
}

void SampleLedger::Hold(Holder& holder, const std::vector<SampleRange>& ranges) {
  for (const SampleRange& range : ranges) {
    for (const Interval& part : free_.Remove(range)) holder.positions.Add(part);
  }
}

// ---- workers that go and return

void SampleLedger::Leave(const Incarnation& incarnation, const IntervalSet& counted) {
  const auto found = holders_.find(incarnation);
  if (found == holders_.end()) return;
  found->second.stays = false;
  Free(found->second, counted);
  if (found->second.positions.empty()) holders_.erase(found);
}

std::string SampleLedger::Resume(const Incarnation& incarnation, const SampleProgress& leased,
                                 const IntervalSet& counted, const Budget& budget) {
  const auto found = holders_.find(incarnation);
  if (found == holders_.end()) return "";
  IntervalSet kept = counted;
  if (leased.epoch == epoch_) kept.Add(leased.ranges);
  const bool fits = Fits(budget, 0, RunsOfFree(found->second, kept));
  Free(found->second, fits ? kept : counted);
  return fits ? "" : WhyNoMemory(budget);
}

// ---- recovery

void SampleLedger::Recover(const SampleProgress& committed) {
  *this = SampleLedger();
  epoch_ = committed.epoch;
  committed_ = IntervalSet(committed.ranges);
  if (!epoch_.exists()) return;
  free_ = IntervalSet({{0, epoch_.samples}});
  free_.Remove(committed.ranges);
}

void SampleLedger::Restore(const Incarnation& incarnation, const WorkerId& worker,
                           const LaneHistory& history) {
  const SampleProgress& leased = history.leased;
  if (!leased.epoch.exists()) return;
  if (leased.epoch.IsAfter(epoch_) && !leased.ranges.empty()) {
    MoveTo(leased.epoch, history.resumed, worker);
  }
  Holder& holder = holders_[incarnation];
  holder.asks = leased.epoch.number;
  if (leased.epoch == epoch_ && !epoch_.has_steps()) Hold(holder, leased.ranges);
}

void SampleLedger::Adopt(const RoundSamples& samples) {
  if (samples.epoch.IsAfter(epoch_)) MoveTo(samples.epoch, samples.resumed, "");
  if (samples.epoch != epoch_) return;
  Holder& round = holders_[Incarnation{}];
  round.stays = false;
  Hold(round, samples.ranges);
}

}  // namespace basin::aggregator
