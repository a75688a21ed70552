// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "aggregator/core/job_samples.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "aggregator/core/histories.h"
#include "aggregator/core/job_lanes.h"
#include "protocol/plural.h"
#include "protocol/version.h"

namespace basin::aggregator {
namespace {

// The positions that the open round of the lane counts, or may count. A contribution may name those
// of the workers that it was reduced with, too.
IntervalSet CountedIn(const Lane& lane) {
  IntervalSet counted;
  if (!lane.round.has_value()) return counted;
  for (const RoundMember& member : lane.round->members()) {
    const Contribution& contribution = member.contribution;
    if (!contribution.begun() || !contribution.begin().sample_epoch.has_value()) continue;
    counted.Add(contribution.begin().samples);
  }
  return counted;
}

// How many ranges the open round may commit: those that its contributions name, or those of the
// value that a recovery adopted.
uint64_t NamedIn(const Lane& lane) {
  if (!lane.round.has_value()) return 0;
  const std::optional<RoundSamples>& adopted = lane.round->value.samples;
  uint64_t named =
      lane.round->adopted.has_value() && adopted.has_value() ? adopted->ranges.size() : 0;
  for (const RoundMember& member : lane.round->members()) {
    const Contribution& contribution = member.contribution;
    if (!contribution.begun() || !contribution.begin().sample_epoch.has_value()) continue;
    named += contribution.begin().samples.size();
  }
  return named;
}

SampleLedger::Budget BudgetOf(const Job& job, const JobScope& scope, const Lane& lane) {
  return {lane.ledger_bytes + job.lanes.Room(scope.config, scope.memory), NamedIn(lane)};
}

Note NoteOf(const Job& job, const Lane& lane, NoteKind kind, const WorkerId& worker,
            std::string text) {
  return {kind, job.name, worker, lane.name, 0, std::move(text)};
}

// Why no worker of the job can lease samples now: the client of one of them would not know what
// verdicts name, and would take them for damaged.
std::string WhyNotAll(const Job& job, const SampleEpoch& epoch) {
  for (Slot slot = 0; slot < job.workers.size(); ++slot) {
    const Worker& worker = job.workers[slot];
    const bool knows = epoch.has_steps() ? worker.knows_steps : worker.knows_samples;
    if (worker.state == WorkerState::kLost || knows) continue;
    return absl::StrCat("cannot lease samples, because the client of worker ", worker.id,
                        " is too old to know them; update it");
  }
  return "";
}

SampleLedger::Asker AskerOf(const Job& job, const Worker& worker) {
  const MemberList& members = job.membership().members;
  const auto place = std::find(members.begin(), members.end(), worker.id) - members.begin();
  const auto position = static_cast<size_t>(place);
  return {job.workers.Count(WorkerState::kMember), members.FirstRank(position),
          position < members.size() ? members.RanksOf(position) : 0, members.trainers()};
}

}  // namespace

void OnLeaseSamples(Job& job, const JobScope& scope, Slot slot, const LeaseSamples& ask) {
  Lane* lane = FindLane(job, scope, slot, ask.lane);
  if (lane == nullptr) return;
  const Worker& worker = job.workers[slot];
  SampleLedger::Answer answer;
  if (std::string why = WhyNotAll(job, ask.epoch); !why.empty()) {
    answer = {LeaseOutcome::kRefused, {}, {ErrorCode::kVersionMismatch, std::move(why)}};
  } else if (!IsMember(worker) || worker.finishing) {
    answer = {LeaseOutcome::kRefused,
              {},
              {ErrorCode::kFailedPrecondition,
               worker.finishing ? "has finished, and leases no more samples"
                                : "is not a member of the job; wait until it is one"}};
  } else {
    const SampleEpoch before = lane->ledger.epoch();
    const auto lease = [&] {
      return lane->ledger.Lease(worker.incarnation, worker.id, ask, AskerOf(job, worker),
                                CountedIn(*lane), BudgetOf(job, scope, *lane));
    };
    answer = lease();
    if (answer.lacks_memory && scope.memory.cached > 0) {
      DropCached(job, scope);
      scope.memory.shortage |= scope.memory.cached > 0;
      const SampleLedger::Answer first = std::exchange(answer, lease());
      answer.moved |= first.moved;
      answer.left += first.left;
    }
    ChargeSamples(job, scope, *lane);
    if (answer.left > 0) {
      scope.actions.push_back(NoteOf(
          job, *lane, NoteKind::kEpochEnded, "",
          absl::StrCat("Epoch ", before.number, " of lane ", lane->name, " ends with ", answer.left,
                       " of ", before.samples,
                       " samples left: all workers that lease samples ask for a later one.")));
    }
    if (answer.moved) {
      scope.actions.push_back(
          NoteOf(job, *lane, NoteKind::kEpochBegun, worker.id,
                 absl::StrCat("Epoch ", ask.epoch.number, " of lane ", lane->name, " begins with ",
                              ask.epoch.samples - lane->ledger.committed(), " of ",
                              ask.epoch.samples, " samples to train on.")));
    }
  }
  SamplesLeased leased{ask.lane,       ask.request, ask.epoch.number,
                       answer.outcome, {},          lane->ledger.resumed()};
  leased.ranges = std::move(answer.ranges);
  if (answer.outcome == LeaseOutcome::kRefused) {
    leased.resumed.clear();
    leased.error = {answer.refusal.code,
                    absl::StrCat("Job ", job.name, ", lane ", lane->name, ": worker ", worker.id,
                                 " ", answer.refusal.text, ".")};
    scope.actions.push_back(
        NoteOf(job, *lane, NoteKind::kLeaseRefused, worker.id,
               absl::StrCat(ErrorCodeName(leased.error.code), ": ", leased.error.text)));
  } else if (lane->ledger.epoch().number != ask.epoch.number) {
    leased.resumed.clear();
  }
  SendTo(job, scope, slot, std::move(leased));
}

void OnReturnSamples(Job& job, const JobScope& scope, Slot slot, const ReturnSamples& back) {
  Lane* lane = FindLane(job, scope, slot, back.lane);
  if (lane == nullptr) return;
  const Worker& worker = job.workers[slot];
  const std::string why =
      lane->ledger.Return(worker.incarnation, back, CountedIn(*lane), BudgetOf(job, scope, *lane));
  ChargeSamples(job, scope, *lane);
  if (why.empty()) return;
  scope.actions.push_back(NoteOf(job, *lane, NoteKind::kLeaseRefused, worker.id,
                                 absl::StrCat("Job ", job.name, ", lane ", lane->name, ": worker ",
                                              worker.id, " ", why, ".")));
}

void OnReportBatch(Job& job, const JobScope& scope, Slot slot, const ReportBatch& report) {
  Lane* lane = FindLane(job, scope, slot, report.lane);
  if (lane == nullptr) return;
  const Worker& worker = job.workers[slot];
  BatchReported answer{report.lane, report.round, report.samples, false, {}};
  if (!IsMember(worker) || worker.finishing) {
    answer.error = {ErrorCode::kFailedPrecondition,
                    worker.finishing ? "has finished, and accumulates no more samples"
                                     : "is not a member of the job; wait until it is one"};
  } else {
    answer = lane->batch.Report(worker.incarnation, worker.id, report, lane->next, lane->Open());
  }
  if (answer.error.code != ErrorCode::kOk) {
    answer.error.text =
        absl::StrCat("Job ", job.name, ", lane ", lane->name, ", round ", report.round, ": worker ",
                     worker.id, " ", answer.error.text, ".");
  }
  SendTo(job, scope, slot, std::move(answer));
}

void ReturnAllSamples(Job& job, const JobScope& scope, Slot slot) {
  const Worker& worker = job.workers[slot];
  for (Lane& lane : job.lanes) {
    lane.batch.Leave(worker.incarnation);
    const uint64_t before = lane.ledger.free();
    IntervalSet counted = CountedIn(lane);
    if (scope.config.rules.keeps_lost_samples) continue;
    if (scope.config.rules.frees_counted_samples) counted.Clear();
    lane.ledger.Leave(worker.incarnation, counted);
    ChargeSamples(job, scope, lane);
    const uint64_t returned = lane.ledger.free() - before;
    if (returned == 0) continue;
    scope.actions.push_back(
        NoteOf(job, lane, NoteKind::kSamplesReturned, worker.id,
               absl::StrCat(CountOf(returned, "sample"), " of epoch ", lane.ledger.epoch().number,
                            " that worker ", worker.id, " held, but had not trained on, ",
                            returned == 1 ? "is" : "are", " free again.")));
  }
}

void ResumeSamples(Job& job, const JobScope& scope, Slot slot, const Hello& hello) {
  const Worker& worker = job.workers[slot];
  const LanesOfHello remembered(hello);
  for (Lane& lane : job.lanes) {
    const LaneHistory* history = remembered.Find(lane.name);
    const std::string why = lane.ledger.Resume(
        worker.incarnation, history == nullptr ? SampleProgress{} : history->leased,
        CountedIn(lane), BudgetOf(job, scope, lane));
    ChargeSamples(job, scope, lane);
    if (why.empty()) continue;
    scope.actions.push_back(
        NoteOf(job, lane, NoteKind::kLeaseRefused, worker.id,
               absl::StrCat("Job ", job.name, ", lane ", lane.name, ": the hello of worker ",
                            worker.id, " ", why, ". Its samples are free again.")));
  }
}

void CorrectSamples(const Job& job, const JobScope& scope, Slot slot, const Hello& hello) {
  for (const LaneHistory& history : hello.lanes) {
    const std::optional<LaneIndex> index = job.lanes.IndexOf(history.name);
    if (!index.has_value()) continue;
    const SampleLedger& ledger = job.lanes[*index].ledger;
    if (ledger.epoch().has_steps()) continue;  // Nobody holds any.
    const IntervalSet& held = ledger.HeldBy(job.workers[slot].incarnation);
    if (history.leased.ranges.empty() || history.leased.ranges == held.Runs()) continue;
    SendTo(job, scope, slot,
           SamplesLeased{*index, 0, ledger.epoch().number, LeaseOutcome::kLeased, held.Runs(), {}});
  }
}

void EndRoundSamples(const Job& job, const JobScope& scope, Lane& lane,
                     const std::optional<RoundSamples>& samples) {
  lane.ledger.EndRound(samples);
  lane.batch.EndRound();
  if (!samples.has_value() || !samples->ends_epoch()) return;
  scope.actions.push_back(
      NoteOf(job, lane, NoteKind::kEpochEnded, "",
             absl::StrCat("Epoch ", samples->epoch.number, " of lane ", lane.name,
                          " has ended: all ", samples->epoch.samples, " samples are committed.")));
}

std::string WhyNoMemoryForSamples(const Job& job, const JobScope& scope, const Lane& lane,
                                  Slot slot, const Begin& begin) {
  if (!begin.sample_epoch.has_value()) return "";
  const std::optional<Round>& round = lane.round;
  if (round.has_value() && round->Has(slot) && round->HasBegun(slot)) return "";  // A repetition.
  const SampleLedger::Budget budget = BudgetOf(job, scope, lane);
  if (lane.ledger.Need(budget.named + begin.samples.size()) <= budget.bytes) return "";
  scope.memory.shortage |= scope.memory.cached > 0;
  return lane.ledger.WhyNoMemory(budget);
}

void ChargeSamples(const Job& job, const JobScope& scope, Lane& lane) {
  if (lane.ledger_bytes == 0 && lane.ledger.held_bytes() == 0) return;
  const SampleLedger::Budget budget = BudgetOf(job, scope, lane);
  // A range that the round counts may be cut already, and then counts twice. What was charged
  // before is enough then; see SampleLedger.
  const uint64_t need = std::min(lane.ledger.Need(budget.named), budget.bytes);
  scope.memory.reserved += need - lane.ledger_bytes;  // Modulo 2^64.
  lane.ledger_bytes = need;
}

std::string WhyNotKnowsSamples(const Job& job, uint64_t features) {
  for (const Lane& lane : job.lanes) {
    const SampleEpoch& epoch = lane.ledger.epoch();
    if (epoch.exists() && (features & kFeatureSamples) == 0) {
      return "has a client that is too old to know the samples that the workers of the job lease; "
             "update it";
    }
    if (epoch.has_steps() && (features & kFeatureGlobalBatch) == 0) {
      return "has a client that is too old to know the steps of a global batch that the workers of "
             "the job make; update it";
    }
  }
  return "";
}

}  // namespace basin::aggregator
