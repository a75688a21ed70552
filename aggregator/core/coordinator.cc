// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "aggregator/core/coordinator.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "aggregator/core/job_hello.h"
#include "aggregator/core/job_lanes.h"
#include "aggregator/core/job_members.h"
#include "aggregator/core/job_messages.h"
#include "aggregator/core/job_placement.h"
#include "aggregator/core/job_recovery.h"
#include "aggregator/core/job_rounds.h"
#include "aggregator/core/job_settings.h"
#include "aggregator/core/job_timers.h"
#include "aggregator/core/plausibility.h"
#include "protocol/overloaded.h"
#include "protocol/version.h"

namespace basin::aggregator {
namespace {

// Returns whether the message can start a wait that is shorter than ShortestWait().
bool MayHurryDeadlines(const ToAggregator& message) {
  return std::holds_alternative<Hello>(message) || std::holds_alternative<Ready>(message) ||
         std::holds_alternative<Leave>(message) || std::holds_alternative<Abandon>(message) ||
         std::holds_alternative<Get>(message) || std::holds_alternative<Busy>(message) ||
         std::holds_alternative<ShardUnreachable>(message);
}

// A shard with less than 1 / kLeastShardMemory of this process's budget would hold jobs back.
constexpr uint64_t kLeastShardMemory = 2;

// So long after a shard began to drain, lanes that rest leave it. A lane whose rounds follow each
// other leaves it at a verdict before that, with nothing on its way to the shard.
constexpr absl::Duration kRestBeforeVacating = absl::Seconds(1);

// Whether the input may end the last use of a shard. Frames and reductions, of which there are
// many, do not.
bool MayEndUse(const Input& input) {
  return !std::holds_alternative<FrameReceived>(input) &&
         !std::holds_alternative<ReduceDone>(input) && !std::holds_alternative<BlobReceived>(input);
}
bool MayEndUse(const SessionLost&) { return true; }

}  // namespace

std::string_view TeamOf(std::string_view job) {
  const size_t slash = job.find('/');
  return slash == std::string_view::npos ? std::string_view() : job.substr(0, slash);
}

Coordinator::Coordinator(Config config, absl::Time start)
    : config_(std::move(config)),
      started_(start),
      lived_(start),
      saved_(std::exchange(config_.saved, {})) {
  memory_.total = config_.memory_bytes;
  shortest_wait_ = std::min({config_.lease, config_.late_warning, config_.evict_late_after,
                             config_.pause_timeout, config_.start_timeout,
                             config_.idle_lane_timeout, config_.idle_job_timeout});
  if (config_.max_job_rounds != 0) {
    shortest_wait_ = std::min(shortest_wait_, absl::Seconds(1) / config_.max_job_rounds);
  }
}

const Job* Coordinator::FindJob(const JobName& name) const {
  const auto it = by_name_.find(name);
  return it == by_name_.end() ? nullptr : &jobs_.at(it->second);
}

size_t Coordinator::JobsOfTeam(std::string_view team) const {
  const JobName first = absl::StrCat(std::string(team), "/");
  size_t jobs = 0;
  for (auto it = by_name_.lower_bound(first); it != by_name_.end(); ++it, ++jobs) {
    if (TeamOf(it->first) != team) break;
  }
  return jobs;
}

std::optional<JobId> Coordinator::JobOf(SessionId session) const {
  const auto it = sessions_.find(session);
  return it == sessions_.end() ? std::nullopt : it->second.job;
}

template <typename F>
std::optional<JobId> Coordinator::WithWorker(const JobScope& scope, SessionId session, F&& take) {
  const auto it = sessions_.find(session);
  if (it == sessions_.end() || !it->second.slot.has_value()) return std::nullopt;
  const JobId id = *it->second.job;
  Job& job = jobs_.at(id);
  take(job, *it->second.slot);
  Reconcile(job, scope);
  return id;
}

template <typename F>
std::optional<JobId> Coordinator::WithJob(const JobScope& scope, JobId id, F&& take) {
  const auto it = jobs_.find(id);
  if (it == jobs_.end()) return std::nullopt;
  take(it->second);
  Reconcile(it->second, scope);
  return id;
}

template <typename F>
std::optional<JobId> Coordinator::WithJob(const JobScope& scope, const JobName& name, F&& take) {
  const auto it = by_name_.find(name);
  return it == by_name_.end() ? std::nullopt : WithJob(scope, it->second, std::forward<F>(take));
}

template <typename F>
void Coordinator::WithAllJobs(const JobScope& scope, F&& take) {
  for (auto& [id, job] : jobs_) {
    take(job);
    Reconcile(job, scope);
    SetDeadline(job, scope.now);
  }
}

absl::Time Coordinator::NextDeadline() const {
  return std::min(
             {deadlines_.Next(), shards_due_, drained_ ? absl::InfiniteFuture() : drain_until_}) +
         stalled_;
}

// A deadline that has passed is due now. This process can sleep only from now on, so time before
// now must not count as a stall.
void Coordinator::SetDeadline(const Job& job, absl::Time now) {
  deadlines_.Set(job.id, std::max(NextTimer(job, config_), now));
}

void Coordinator::Step(const Input& input, absl::Time now, std::vector<Action>& actions) {
  Take(input, now, actions);
}

void Coordinator::Step(const SessionLost& lost, absl::Time now, std::vector<Action>& actions) {
  Take(lost, now, actions);
}

template <typename In>
void Coordinator::Take(const In& input, absl::Time now, std::vector<Action>& actions) {
  // This process was stopped or starved, so the workers are not to blame for the silence. It must
  // read what arrived meanwhile before it judges any worker.
  const absl::Time wake = NextDeadline();
  const bool stalled = wake != absl::InfiniteFuture() && now > wake + config_.stall_threshold;
  if (stalled) {
    const absl::Duration gap = now - wake;
    actions.push_back(Note{NoteKind::kStalled, "", "", "", 0,
                           absl::StrCat("This process woke ", absl::FormatDuration(gap),
                                        " late; every deadline is extended by this time.")});
    // The extra time lets this process read what arrived during the gap.
    stalled_ += gap + config_.stall_threshold;
  }
  lived_ = Lived(now);
  if (stalled) {
    for (auto& [id, job] : jobs_) {
      job.NoteStall(now - wake + config_.stall_threshold, config_, lived_);
    }
  }
  const uint64_t reserved = memory_.reserved;
  const uint64_t windows = memory_.windows;
  const JobScope scope{lived_, config_, memory_, actions, sessions_, shards_, started_, draining_};
  const About about = Apply(input, scope);
  if (about.job.has_value()) {
    if (about.hurries) {
      SetDeadline(jobs_.at(*about.job), lived_);
    } else {
      deadlines_.Hurry(*about.job, lived_ + ShortestWait(jobs_.at(*about.job)));
    }
  }
  if (lived_ >= deadlines_.Next()) CheckDeadlines(scope);
  if (draining_) CheckDrained(scope);
  if (shards_draining_ > 0 && MayEndUse(input)) CheckShardsThatDrain(scope);
  const bool dropped = memory_.shortage;
  if (dropped) DropCached(scope);
  if (dropped || memory_.reserved < reserved) {
    for (auto& [id, job] : jobs_) {
      RetryMemory(job, scope);
      Reconcile(job, scope);
      deadlines_.Hurry(id, lived_ + ShortestWait(job));
    }
  }
  if (memory_.windows > memory_.at_shards || memory_.windows < windows) {
    ReviewShardMemory(scope);
    if (shards_draining_ > 0) CheckShardsThatDrain(scope);
  }
}

absl::Duration Coordinator::ShortestWait(const Job& job) const {
  const bool leaves_out = LeavesOut(job.late_policy(config_));
  return leaves_out ? std::min(shortest_wait_, config_.grace) : shortest_wait_;
}

// Reading every deadline of a job for every event would cost more than everything else. A frame or
// an ordinary message starts only waits of at least ShortestWait(), and an early look at the
// deadlines is harmless.
Coordinator::About Coordinator::Apply(const Input& input, const JobScope& scope) {
  return std::visit(
      Overloaded{
          [](const Tick&) { return About{}; },
          [&](const FrameReceived& frame) {
            return About{WithWorker(scope, frame.session,
                                    [&](Job& job, Slot slot) { OnFrame(job, scope, slot, frame); }),
                         false};
          },
          [&](const ReduceDone& done) {
            return About{
                WithJob(scope, done.job, [&](Job& job) { OnReduceDone(job, scope, done); }), false};
          },
          [&](const BlobReceived& value) {
            return About{WithWorker(scope, value.session,
                                    [&](Job& job, Slot slot) { OnBlob(job, scope, slot, value); }),
                         false};
          },
          [&](const MessageReceived& received) {
            const auto* hello = std::get_if<Hello>(&received.message);
            return About{hello != nullptr
                             ? OnHello(received.session, *hello, scope)
                             : WithWorker(scope, received.session,
                                          [&](Job& job, Slot slot) {
                                            OnMessage(job, scope, slot, received.message);
                                          }),
                         MayHurryDeadlines(received.message)};
          },
          [&](const SessionOpened& opened) {
            sessions_[opened.session] =
                Session{opened.token, std::nullopt, std::nullopt, {}, opened.address};
            return About{};
          },
          [&](const MessagesWait& wait) {
            for (const SessionId session : wait.sessions) {
              const auto it = sessions_.find(session);
              if (it == sessions_.end() || !it->second.slot.has_value()) continue;
              NoteUnread(jobs_.at(*it->second.job), scope, *it->second.slot);
            }
            for (const WaitingHello& hello : wait.hellos) {
              const auto it = by_name_.find(hello.job);
              if (it != by_name_.end()) NoteUnread(jobs_.at(it->second), scope, hello);
            }
            return About{};
          },
          [&](const SessionsUnheard& seen) {
            for (const UnheardSession& one : seen.sessions) {
              const auto it = sessions_.find(one.session);
              if (it == sessions_.end() || !it->second.slot.has_value()) continue;
              Job& job = jobs_.at(*it->second.job);
              if (!LoseIfGone(job, scope, *it->second.slot, one, seen.age)) continue;
              Reconcile(job, scope);
              SetDeadline(job, scope.now);
            }
            return About{};
          },
          [&](const DrainService& drain) {
            Drain(drain, scope);
            return About{};
          },
          [&](const ShardUp& up) {
            shards_[up.shard] = Shard{up.name, up.endpoint, up.memory};
            scope.actions.push_back(Note{NoteKind::kShardUp, "", "", "", 0,
                                         absl::StrCat("Shard ", up.name,
                                                      " has connected, and holds chunks of each "
                                                      "lane from its next round on.")});
            ReviewShardMemory(scope);
            for (auto& [id, job] : jobs_) {
              NameAllTensors(job, scope, up.shard);
              ReviewPlacement(job, scope);
              Reconcile(job, scope);
            }
            return About{};
          },
          [&](const ShardDraining& draining) { return DrainShard(draining.shard, scope); },
          [&](const ShardLost& lost) { return LoseShard(lost, scope); },
          // The disk and operators speak of one job.
          [&](const auto& of_job) {
            return About{WithJob(scope, of_job.job,
                                 [&](Job& job) { aggregator::Take(job, scope, of_job); })};
          },
      },
      input);
}

Coordinator::About Coordinator::Apply(const SessionLost& lost, const JobScope& scope) {
  const auto it = sessions_.find(lost.session);
  if (it == sessions_.end()) return About{};
  const Session session = it->second;
  sessions_.erase(it);
  if (!session.job.has_value()) return About{};
  return About{
      WithJob(scope, *session.job, [&](Job& job) { LoseSession(job, scope, session.slot, lost); })};
}

void Coordinator::Drain(const DrainService& drain, const JobScope& scope) {
  if (draining_) return;
  draining_ = true;
  keeps_sessions_ = drain.keeps_sessions;
  drain_until_ = scope.now + config_.drain_grace;
  scope.actions.push_back(Note{NoteKind::kDraining, "", "", "", 0,
                               "Draining: open rounds finish; no new worker is admitted."});
  for (auto& [id, job] : jobs_) SendDraining(job, scope);
}

Coordinator::About Coordinator::DrainShard(ShardId id, const JobScope& scope) {
  const auto it = shards_.find(id);
  if (it == shards_.end() || it->second.drains_since.has_value()) return About{};
  Shard& shard = it->second;
  shard.drains_since = scope.now;
  ++shards_draining_;
  shards_due_ = std::min(shards_due_, scope.now + kRestBeforeVacating);
  scope.actions.push_back(
      Note{NoteKind::kShardDraining, "", "", "", 0,
           absl::StrCat("Shard ", shard.name,
                        " drains: it holds what open rounds have there, and nothing of later "
                        "rounds.")});
  WithAllJobs(scope, [&](Job& job) { ReviewPlacement(job, scope); });
  return About{};
}

Coordinator::About Coordinator::LoseShard(const ShardLost& lost, const JobScope& scope) {
  const auto it = shards_.find(lost.shard);
  if (it == shards_.end()) return About{};
  const Shard shard = it->second;
  const bool drains = shard.drains_since.has_value();
  if (shard.released) {
    scope.actions.push_back(
        Note{NoteKind::kShardDrained, "", "", "", 0,
             absl::StrCat("Shard ", shard.name, " has drained: no round needed it any more.")});
  } else {
    scope.actions.push_back(
        Note{drains ? NoteKind::kShardDrained : NoteKind::kShardLost, "", "", "", 0,
             absl::StrCat("Shard ", shard.name,
                          drains ? " has ended its drain while rounds needed it: " : " is lost: ",
                          lost.why, " Its chunks are placed on the others and pushed again.")});
  }
  if (drains && --shards_draining_ == 0) shards_due_ = absl::InfiniteFuture();
  shards_.erase(it);
  const std::string reason = absl::StrCat("shard ", shard.name, drains ? " has ended" : " is lost");
  WithAllJobs(scope, [&](Job& job) { aggregator::LoseShard(job, scope, lost.shard, reason); });
  ReviewShardMemory(scope);
  return About{};
}

std::string Coordinator::WhyTooSmall(const Shard& shard) const {
  if (shard.memory == 0) return "";
  if (shard.memory < memory_.total / kLeastShardMemory) {
    return absl::StrCat("its memory.budget has ", shard.memory, " bytes, less than half of the ",
                        memory_.total,
                        " of the aggregator, whose lanes need room at each shard. Give it more, or "
                        "lower memory.budget of the aggregator");
  }
  // It is used again at half of its memory, so that a lane that comes and goes does not switch it.
  const uint64_t most = shard.too_small.empty() ? shard.memory : shard.memory / 2;
  if (memory_.windows <= most) return "";
  return absl::StrCat("its memory.budget has ", shard.memory,
                      " bytes, and the lanes of all jobs reserve ", memory_.windows,
                      " at each shard; it is used again when that is at most half of what it has. "
                      "Give it more, or lower memory.budget of the aggregator");
}

void Coordinator::ReviewShardMemory(const JobScope& scope) {
  std::vector<ShardId> changed;
  memory_.at_shards = MemoryBudget::kNoBound;
  for (auto& [id, shard] : shards_) {
    // No job uses it again.
    if (shard.released || (shard.drains_since.has_value() && !shard.too_small.empty())) continue;
    const std::string before = std::exchange(shard.too_small, WhyTooSmall(shard));
    if (shard.memory != 0 && shard.too_small.empty()) {
      memory_.at_shards = std::min(memory_.at_shards, shard.memory);
    }
    if (shard.too_small.empty() != before.empty()) changed.push_back(id);
  }
  for (const ShardId id : changed) {
    const Shard& shard = shards_.at(id);
    const bool usable = shard.too_small.empty();
    scope.actions.push_back(Note{
        NoteKind::kShardTooSmall, "", "", "", 0,
        usable ? absl::StrCat("Shard ", shard.name, " has room for all lanes again.")
               : absl::StrCat("Jobs do without shard ", shard.name, ": ", shard.too_small, ".")});
    const std::string reason = absl::StrCat("shard ", shard.name, " is too small");
    WithAllJobs(scope, [&](Job& job) {
      usable ? ReviewPlacement(job, scope) : GoOnWithout(job, scope, id, reason);
    });
  }
}

void Coordinator::CheckShardsThatDrain(const JobScope& scope) {
  if (scope.now >= shards_due_) shards_due_ = absl::InfiniteFuture();
  for (auto& [id, shard] : shards_) {
    if (!shard.drains_since.has_value() || shard.released) continue;
    const absl::Time due = *shard.drains_since + kRestBeforeVacating;
    if (scope.now < due) shards_due_ = std::min(shards_due_, due);
    shard.released = true;
    for (auto& [number, job] : jobs_) {
      if (scope.now >= due) VacateRestingLanes(job, scope, id);
      if (!Uses(job, id)) continue;
      shard.released = false;
      if (scope.now < due) break;
    }
    if (shard.released) scope.actions.push_back(ReleaseShard{id});
  }
}

bool Coordinator::IsCrowded(SessionId session) const {
  const uint32_t most = config_.max_address_sessions;
  const std::string& address = sessions_.at(session).address;
  // Counting takes time, so it is left out where it cannot matter.
  if (most == 0 || address.empty() || sessions_.size() <= most) return false;
  return std::count_if(sessions_.begin(), sessions_.end(), [&](const auto& entry) {
           return entry.second.job.has_value() && entry.second.address == address;
         }) >= most;
}

void Coordinator::Refuse(const JobScope& scope, NoteKind kind, SessionId session,
                         const Hello& hello, ErrorCode code, const std::string& text) {
  scope.actions.push_back(
      Note{kind, hello.job, hello.worker, "", 0, absl::StrCat(ErrorCodeName(code), ": ", text)});
  sessions_.erase(session);
  scope.actions.push_back(EndSession{session, Error{code, text}});
}

std::optional<JobId> Coordinator::OnHello(SessionId session, const Hello& hello,
                                          const JobScope& scope) {
  const auto it = sessions_.find(session);
  if (it == sessions_.end()) return std::nullopt;
  if (it->second.job.has_value()) {  // The job rejects a second hello.
    return WithWorker(scope, session,
                      [&](Job& job, Slot slot) { OnMessage(job, scope, slot, hello); });
  }
  if (hello.protocol_version != kProtocolVersion || hello.contract_version != kContractVersion) {
    Refuse(scope, NoteKind::kJobRefused, session, hello, ErrorCode::kVersionMismatch,
           absl::StrCat("Worker ", hello.worker, " of job ", hello.job, " speaks protocol ",
                        hello.protocol_version, " with arithmetic contract ",
                        hello.contract_version, "; this aggregator speaks ", kProtocolVersion,
                        " with ", kContractVersion, ". Install matching versions."));
    return std::nullopt;
  }
  auto known = by_name_.find(hello.job);
  const Term term = known == by_name_.end() ? config_.term : jobs_.at(known->second).term;
  if (const std::string why = WhyNotPlausible(hello, term, config_); !why.empty()) {
    Refuse(scope, NoteKind::kJobRefused, session, hello, ErrorCode::kInvalidArgument,
           absl::StrCat("The hello of worker ", hello.worker, " of job ", hello.job, " ", why,
                        "; update its client library."));
    return std::nullopt;
  }
  // A process that returns takes the place of its earlier session.
  const bool returns = known != by_name_.end() && jobs_.at(known->second).Knows(hello);
  if (!returns && IsCrowded(session)) {
    Refuse(scope, NoteKind::kAddressRefused, session, hello, ErrorCode::kResourceExhausted,
           absl::StrCat("Worker ", hello.worker, " of job ", hello.job, " comes from ",
                        it->second.address, ", which has ", config_.max_address_sessions,
                        " sessions, the limit (limits.address_sessions). Try again when one of "
                        "them has ended, or have the limit raised."));
    return std::nullopt;
  }
  // An open round may need workers that return.
  const bool expected = known != by_name_.end() && jobs_.at(known->second).Expects(hello);
  if (draining_ && !expected) {
    Refuse(scope, NoteKind::kJobRefused, session, hello, ErrorCode::kUnavailable,
           "This aggregator is draining; the client retries until another aggregator answers.");
    return std::nullopt;
  }
  if (hello.settings.max_workers > config_.max_workers) {
    Refuse(scope, NoteKind::kJobRefused, session, hello, ErrorCode::kResourceExhausted,
           absl::StrCat("Job ", hello.job, " asks for max_workers = ", hello.settings.max_workers,
                        "; this aggregator allows ", config_.max_workers,
                        " (limits.workers). Lower it, or have the limit raised."));
    return std::nullopt;
  }
  if (known == by_name_.end()) {
    std::string why;
    if (!Fits(scope, hello.settings, why)) DropCached(scope);
    if (!Fits(scope, hello.settings, why)) {
      Refuse(scope, NoteKind::kJobRefused, session, hello, ErrorCode::kResourceExhausted,
             absl::StrCat("Job ", hello.job, " ", why, "."));
      return std::nullopt;
    }
    // Last, so that no other job is removed for one that is refused.
    if (!HasRoom(scope, hello.job, why)) {
      Refuse(scope, NoteKind::kJobRefused, session, hello, ErrorCode::kResourceExhausted, why);
      return std::nullopt;
    }
    std::optional<SavedState> saved;
    if (const auto state = saved_.extract(hello.job)) saved = std::move(state.mapped());
    // What an operator had set holds again if it fits.
    const bool set = saved.has_value() && saved->settings.has_value();
    if (set && !Fits(scope, saved->settings->settings, why)) DropCached(scope);
    const JobId id = next_job_++;
    jobs_.emplace(id, Job(id, hello.job, config_.term, std::move(saved), scope.now));
    known = by_name_.emplace(hello.job, id).first;
    scope.actions.push_back(Note{NoteKind::kJobAdmitted, hello.job, hello.worker, "", 0,
                                 "The job is new to this aggregator."});
  }
  sessions_[session].job = known->second;  // sessions_ may have changed since `it`.
  return WithJob(scope, known->second,
                 [&](Job& job) { aggregator::OnHello(job, scope, session, hello); });
}

void Coordinator::CheckDeadlines(const JobScope& scope) {
  for (const JobId id : deadlines_.DueAt(scope.now)) {
    const auto it = jobs_.find(id);
    Job& job = it->second;
    CheckTimers(job, scope);
    Reconcile(job, scope);
    if (scope.now >= job.IdleDue(config_)) {
      Forget(scope, it, "The job has no worker any more, and is forgotten.");
      continue;
    }
    SetDeadline(job, scope.now);
  }
}

void Coordinator::Forget(const JobScope& scope, std::map<JobId, Job>::iterator entry,
                         const std::string& why) {
  Job& job = entry->second;
  scope.actions.push_back(Note{NoteKind::kJobEnded, job.name, "", "", 0, why});
  ForgetSettings(job, scope);
  ReleaseMemory(job, scope);
  scope.actions.push_back(EndJob{entry->first});
  // The job has not used the saved list, so the next job of this name gets it.
  if (job.saved().has_value()) saved_.emplace(job.name, *job.saved());
  by_name_.erase(job.name);
  deadlines_.Remove(entry->first);
  jobs_.erase(entry);
}

bool Coordinator::HasRoom(const JobScope& scope, const JobName& name, std::string& why) {
  constexpr char kTryAgain[] = " Try again when a job has ended.";
  const std::string_view team = TeamOf(name);
  if (config_.max_team_jobs != 0 && !team.empty()) {
    const size_t jobs = JobsOfTeam(team);
    const std::string bound = absl::StrCat("team ", std::string(team), " has ", jobs,
                                           " jobs, which is the limit (limits.team_jobs)");
    if (jobs >= config_.max_team_jobs && !MakeRoom(scope, team, bound)) {
      why = absl::StrCat("Job ", name, " has no place: ", bound, ".", kTryAgain);
      return false;
    }
  }
  const std::string bound =
      absl::StrCat("this aggregator has ", jobs_.size(), " jobs, which is its limit (limits.jobs)");
  if (jobs_.size() >= config_.max_jobs && !MakeRoom(scope, "", bound)) {
    why = absl::StrCat("Job ", name, " has no place: ", bound, ".", kTryAgain);
    return false;
  }
  return true;
}

// Forgets a job so that another one can come, and returns whether there was one that nobody misses:
// its workers have finished and are gone, or it never had a member and has no ready worker, because
// its workers only send another hello. Prefers a job without connected workers, then the oldest.
bool Coordinator::MakeRoom(const JobScope& scope, std::string_view team, const std::string& bound) {
  enum Merit { kStays, kHasWorkers, kHasNone };
  const auto merit = [team](const Job& job) {
    if (!team.empty() && TeamOf(job.name) != team) return kStays;
    if (job.Idle()) return job.over() || job.Unstarted() ? kHasNone : kStays;
    return job.Unstarted() ? kHasWorkers : kStays;
  };
  auto chosen = jobs_.begin();
  for (auto it = jobs_.begin(); it != jobs_.end(); ++it) {
    if (merit(it->second) > merit(chosen->second)) chosen = it;
  }
  if (chosen == jobs_.end() || merit(chosen->second) == kStays) return false;
  const std::string text = absl::StrCat(
      "Job ", chosen->second.name, chosen->second.over() ? " has finished" : " has not started",
      " and was removed to make room for another job: ", bound);
  EndAllSessions(chosen->second, scope,
                 Error{ErrorCode::kUnavailable, absl::StrCat(text, ". The client retries.")});
  Forget(scope, chosen, absl::StrCat(text, "."));
  return true;
}

void Coordinator::DropCached(const JobScope& scope) {
  memory_.shortage = false;
  for (auto& [id, job] : jobs_) aggregator::DropCached(job, scope);
}

void Coordinator::CheckDrained(const JobScope& scope) {
  if (drained_) return;
  const bool open = std::any_of(jobs_.begin(), jobs_.end(),
                                [](const auto& entry) { return entry.second.HasOpenRound(); });
  if (open && scope.now < drain_until_) return;
  drained_ = true;
  for (auto& [id, job] : jobs_) {
    if (keeps_sessions_) break;
    EndAllSessions(job, scope,
                   Error{ErrorCode::kUnavailable,
                         "This aggregator has drained; the client reconnects to its successor."});
    deadlines_.Hurry(id, scope.now + shortest_wait_);
  }
  scope.actions.push_back(Drained{});
}

}  // namespace basin::aggregator
