// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "aggregator/admin/dump.h"

#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "aggregator/core/round_waits.h"
#include "aggregator/core/status.h"
#include "protocol/limits/limits.h"
#include "protocol/limits/names.h"

namespace basin::aggregator {
namespace {

// Lines, up to a limit, with two spaces for each level.
class Lines {
 public:
  template <typename... Parts>
  void Add(int level, const Parts&... parts) {
    if (cut_) return;
    const std::string line = absl::StrCat(parts...);
    if (text_.size() + line.size() + 3 * sizeof(kCut) > kMostDumpBytes) {
      text_ += kCut;
      cut_ = true;
      return;
    }
    absl::StrAppend(&text_, std::string(static_cast<size_t>(2 * level), ' '),
                    PrintableText(line, line.size()), "\n");
  }
  bool cut() const { return cut_; }
  std::string Take() { return std::move(text_); }

 private:
  static constexpr char kCut[] = "... cut: dump a single job\n";

  std::string text_;
  bool cut_ = false;
};

std::string Quoted(const std::string& text) { return absl::StrCat("\"", text, "\""); }

std::string Since(absl::Time lived, absl::Time time) {
  return time == absl::InfinitePast() || time == absl::InfiniteFuture()
             ? "never"
             : absl::FormatDuration(absl::Trunc(lived - time, absl::Milliseconds(1)));
}

void AddWorker(Lines& lines, const Worker& worker, absl::Time lived) {
  std::string flags;
  const auto flag = [&](bool set, const char* name) {
    if (set) absl::StrAppend(&flags, " ", name);
  };
  flag(worker.draining, "draining");
  flag(worker.holds_state, "holds_state");
  flag(worker.out_of_step, "out_of_step");
  flag(worker.finishing, "finishing");
  flag(worker.still_counts, "still_counts");
  flag(worker.left, "left");
  flag(worker.busy_until > lived, "busy");
  const auto describe = [](std::string* text, const RoundWait& wait) {
    absl::StrAppend(text, wait.lane, ":", wait.round);
  };
  lines.Add(2, "worker ", worker.id, " state=", WorkerStateName(worker.state),
            " incarnation=", ToString(worker.incarnation),
            " member_since=", ToString(worker.member_since),
            " session=", worker.connected() ? absl::StrCat(*worker.session) : "none",
            " heard=", Since(lived, worker.last_message), " progress=", worker.progress,
            " step_label=", worker.step_label, " ready_order=", worker.ready_order,
            " waits=", worker.waits.empty() ? "none" : absl::StrJoin(worker.waits, ",", describe),
            flags);
}

const char* StateName(ContributionState state) {
  switch (state) {
    case ContributionState::kAwaited:
      return "AWAITED";
    case ContributionState::kBegun:
      return "BEGUN";
    case ContributionState::kCommitted:
      return "COMMITTED";
    case ContributionState::kEffective:
      return "EFFECTIVE";
    case ContributionState::kWithdrawn:
      return "WITHDRAWN";
    case ContributionState::kDropped:
      return "DROPPED";
  }
  return "UNKNOWN";
}

const char* PhaseName(RoundPhase phase) {
  switch (phase) {
    case RoundPhase::kIdle:
      return "IDLE";
    case RoundPhase::kCollect:
      return "COLLECT";
    case RoundPhase::kPrepared:
      return "PREPARED";
  }
  return "UNKNOWN";
}

void AddRound(Lines& lines, const Lane& lane, absl::Time lived) {
  const Round& round = *lane.round;
  lines.Add(3, "round ", round.number, " phase=", PhaseName(round.phase()),
            " ballot=", ToString(round.ballot), " value_ballot=", ToString(round.value_ballot),
            " open=", round.begun() ? Since(lived, round.opened) : "not begun",
            " pull=", round.pull_mode(), " parked=", round.parked_bytes(),
            " results=", round.held.bytes(), " adopted=", round.adopted.has_value(),
            " paced=", lane.paced);
  for (const RoundMember& member : round.members()) {
    const Contribution& part = member.contribution;
    const std::string waits = WaitsFor(round, lane.layout, member);
    lines.Add(4, "member ", member.id, " incarnation=", ToString(member.incarnation),
              " presence=", static_cast<int>(member.presence.state()),
              " contribution=", StateName(part.state()), " chunks=", part.have().count(),
              " parked=", part.parked().total(), " missing=", part.missing().total(),
              " blocked=", member.room.blocked, " acked=", member.reception.count(),
              " owed=", member.reception.owed(), " staged=", member.staged(),
              " holds=", member.holds, " refused=", member.refusal.has_value(),
              " waits_for=", Quoted(waits));
    if (lines.cut()) return;
  }
}

void AddLane(Lines& lines, const Lane& lane, size_t index, absl::Time lived) {
  lines.Add(2, "lane ", index, " name=", Quoted(lane.name), " kind=", static_cast<int>(lane.kind),
            " tensors=", lane.layout.version(), " chunks=", lane.layout.chunks(),
            " bytes=", lane.layout.bytes(), " next=", lane.next, " chain=", lane.chain,
            " frame=", lane.memory.frame, " window=", lane.memory.window,
            " result_window=", lane.memory.result_window, " reserved=", lane.memory.reserved,
            " tracking=", lane.tracking, " ledger=", lane.ledger_bytes, " expired=", lane.expired);
  for (const VerdictRecord& record : lane.verdicts) {
    lines.Add(3, "verdict ", record.round,
              record.value.outcome == Outcome::kCommitted ? " COMMITTED" : " ABORTED",
              " ballot=", ToString(record.ballot), " value_ballot=", ToString(record.value_ballot),
              " contributors=", record.value.contributors.size(), " divisor=", record.value.divisor,
              " chain=", record.chain);
  }
  if (lane.round.has_value()) AddRound(lines, lane, lived);
}

void AddJob(Lines& lines, const Job& job, const Coordinator& core, absl::Time lived) {
  const JobSettings& settings = job.settings();
  lines.Add(0, "job ", job.name, " id=", job.id, " run=", Quoted(job.run),
            " state=", JobStateName(job.state()),
            " status=", JobStatusName(StatusOf(job, core.draining())), " term=", job.term);
  lines.Add(1, "cause=", Quoted(job.reason));
  lines.Add(1, "settings min_workers=", settings.min_workers, " max_workers=", settings.max_workers,
            " start_workers=", settings.start_workers, " loss_policy=",
            job.loss_policy(core.config()) == LossPolicy::kAbort ? "abort" : "shrink",
            " late_policy=", NameOf(job.late_policy(core.config())));
  lines.Add(1, "generation=", ToString(job.membership().generation),
            " members=", absl::StrJoin(job.membership().members, ","));
  lines.Add(1, "present=", job.Present(), " suspended=", job.suspended(), " over=", job.over(),
            " committed=", job.rounds.committed, " aborted=", job.rounds.aborted);
  for (const auto& [id, slot] : job.workers.by_id()) AddWorker(lines, job.workers[slot], lived);
  for (const auto& [id, session] : job.waiting()) {
    lines.Add(2, "worker ", id, " waits for recovery, session=", session);
  }
  for (const Lane& lane : job.lanes) {
    if (lines.cut()) break;
    AddLane(lines, lane, lane.index, lived);
  }
}

}  // namespace

std::string Dump(const Coordinator& core, const std::string& job, absl::Time lived) {
  Lines lines;
  if (!job.empty()) {
    if (const Job* found = core.FindJob(job); found != nullptr) {
      AddJob(lines, *found, core, lived);
    }
    return lines.Take();
  }
  lines.Add(0, "service term=", core.config().term, " jobs=", core.jobs().size(),
            " reserved=", core.reserved_bytes(), " of ", core.config().memory_bytes,
            " draining=", core.draining());
  for (const auto& [id, state] : core.jobs()) AddJob(lines, state, core, lived);
  return lines.Take();
}

}  // namespace basin::aggregator
