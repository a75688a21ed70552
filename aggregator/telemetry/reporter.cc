// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "aggregator/telemetry/reporter.h"

#include <iterator>
#include <optional>

namespace basin::aggregator {
namespace {

// For one kind of event: a job of a few hundred workers can start at once, but a peer that
// reconnects in a loop cannot fill a disk.
constexpr double kBurst = 500;
constexpr double kPerSecond = 20;

// How often a worker says that it withdraws for the same reason. One that loads the state while the
// others train on withdraws from each round.
constexpr absl::Duration kWithdrawal = absl::Seconds(10);

// For notes about single frames, because watchers do not need each of them.
bool IsAboutAFrame(NoteKind kind) {
  return kind == NoteKind::kFrameDuplicate || kind == NoteKind::kFrameStale ||
         kind == NoteKind::kFrameRefused;
}

// What is said of a late worker, whose text differs in each round for that alone.
bool NamesTheRound(NoteKind kind) {
  return kind == NoteKind::kContributionLate || kind == NoteKind::kContributionDeferred;
}

}  // namespace

LogLevel LevelOf(NoteKind kind) {
  switch (kind) {
    case NoteKind::kRoundOpened:
    case NoteKind::kRoundPrepared:
    case NoteKind::kRoundCommitted:
    case NoteKind::kContributionCarried:
    case NoteKind::kFrameDuplicate:
    case NoteKind::kFrameStale:
      return LogLevel::kDebug;
    case NoteKind::kReduceDeviceFailed:
    case NoteKind::kJobRefused:
    case NoteKind::kAddressRefused:
    case NoteKind::kWorkerRefused:
    case NoteKind::kWorkerSuperseded:
    case NoteKind::kWorkerLost:
    case NoteKind::kWorkerLate:
    case NoteKind::kAttemptRestarted:
    case NoteKind::kRoundAborted:
    case NoteKind::kContributionWithdrawn:
    case NoteKind::kContributionRejected:
    case NoteKind::kContributionDropped:
    case NoteKind::kContributionLate:
    case NoteKind::kContributionUnusual:
    case NoteKind::kFrameRefused:
    case NoteKind::kLeaseRefused:
    case NoteKind::kLatePolicyIdle:
    case NoteKind::kPaused:
    case NoteKind::kSteppedDown:
    case NoteKind::kLaneWaitsForMemory:
    case NoteKind::kValueFailed:
    case NoteKind::kStalled:
    case NoteKind::kShardLost:
    case NoteKind::kShardTooSmall:
    case NoteKind::kShardUnreachable:
      return LogLevel::kWarning;
    case NoteKind::kHalted:
    case NoteKind::kLineageConflict:
    case NoteKind::kStateFileFailed:
    case NoteKind::kDescriptorsShort:
      return LogLevel::kError;
    default:
      return LogLevel::kInfo;
  }
}

void Reporter::OnNote(const Note& note, absl::Time now) {
  metrics_.Count(note, now);
  if (NamesTheRound(note.kind) || note.kind == NoteKind::kContributionWithdrawn) {
    if (Repeats(note, now)) return;
  }
  if (!IsAboutAFrame(note.kind)) events_.Add(note, now);
  const LogLevel level = LevelOf(note.kind);
  if (!log_.Wants(level)) return;
  RateLimit& limit = limits_.try_emplace(note.kind, kBurst, kPerSecond).first->second;
  const std::optional<uint64_t> suppressed = limit.Pass(now);
  if (!suppressed.has_value()) return;
  std::optional<uint64_t> members;
  if (note.membership.has_value()) members = note.membership->members.size();
  log_.Write({level,
              NoteKindName(note.kind),
              note.job,
              note.worker,
              note.lane,
              note.round,
              note.text,
              members,
              {},
              *suppressed});
}

bool Reporter::Repeats(const Note& note, absl::Time now) {
  for (auto it = withdrawn_.begin(); it != withdrawn_.end();) {
    it = now - it->second < kWithdrawal ? std::next(it) : withdrawn_.erase(it);
  }
  const std::string reason = NamesTheRound(note.kind) ? NoteKindName(note.kind) : note.text;
  return !withdrawn_.try_emplace({note.job, note.worker, note.lane, reason}, now).second;
}

}  // namespace basin::aggregator
