// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "aggregator/core/coordinator.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "aggregator/core/history.h"
#include "proto/vocabulary/version.h"

namespace basin::aggregator {
namespace {

// Whether the message can start a wait shorter than the usual ones.
bool MayHurryDeadlines(const ToAggregator& message) {
  return std::holds_alternative<Hello>(message) || std::holds_alternative<Leave>(message) ||
         std::holds_alternative<Abandon>(message) || std::holds_alternative<Get>(message) ||
         std::holds_alternative<Busy>(message);
}

}  // namespace

Coordinator::Coordinator(Config config, absl::Time start)
    : config_(std::move(config)), started_(start), saved_(std::exchange(config_.saved, {})) {
  memory_.total = config_.memory_bytes;
  shortest_wait_ = std::min({config_.lease, config_.late_warning, config_.evict_late_after,
                             config_.pause_timeout, config_.start_timeout,
                             config_.idle_lane_timeout, config_.idle_job_timeout});
}

const Job* Coordinator::FindJob(const JobName& name) const {
  const auto it = by_name_.find(name);
  return it == by_name_.end() ? nullptr : &jobs_.at(it->second);
}

template <typename F>
void Coordinator::OnWorker(SessionId session, F&& take) {
  const auto it = sessions_.find(session);
  if (it == sessions_.end() || !it->second.slot.has_value()) return;
  take(jobs_.at(*it->second.job), *it->second.slot);
}

absl::Time Coordinator::NextDeadline() const { return wake_; }

// The next deadline. One that has passed already is due now: only the time after this moment can
// be slept through, so nothing before it counts as a stall of this process.
absl::Time Coordinator::Earliest(absl::Time now) const {
  absl::Time next = drained_ ? absl::InfiniteFuture() : drain_until_;
  for (const auto& [id, job] : jobs_) next = std::min(next, job.NextDeadline(config_));
  return std::max(next, now);
}

void Coordinator::Step(const Event& event, absl::Time now, std::vector<Action>& actions) {
  // This process itself was stopped, or starved: nobody else is to blame for the silence. Every
  // deadline moves by the gap, and what has arrived meanwhile is read before anyone is judged.
  if (wake_ != absl::InfiniteFuture() && now > wake_ + config_.stall_threshold) {
    const absl::Duration gap = now - wake_;
    actions.push_back(Note{NoteKind::kStalled, "", "", "", 0,
                           absl::StrCat("This process woke ", absl::FormatDuration(gap),
                                        " late; every deadline is extended by that.")});
    // A little more than the gap, which is the time to read what has arrived meanwhile.
    const absl::Duration shift = gap + config_.stall_threshold;
    for (auto& [id, job] : jobs_) job.Shift(shift, config_, now);
    started_ += shift;
    drain_until_ += shift;
    wake_ = Earliest(now);
  }
  Take(event, now, actions);
}

void Coordinator::Take(const Event& event, absl::Time now, std::vector<Action>& actions) {
  const uint64_t reserved = memory_.reserved;
  const JobScope scope{now, config_, memory_, actions, sessions_, started_, draining_};
  const auto on_job = [&](const JobName& name, auto&& take) {
    const auto it = by_name_.find(name);
    if (it != by_name_.end()) take(jobs_.at(it->second));
  };
  bool timers_changed = true;
  if (const auto* frame = std::get_if<FrameReceived>(&event)) {
    OnWorker(frame->session, [&](Job& job, Slot slot) { job.TakeFrame(scope, slot, *frame); });
    timers_changed = false;
    wake_ = std::min(wake_, now + shortest_wait_);
  } else if (const auto* done = std::get_if<ReduceDone>(&event)) {
    const auto it = jobs_.find(done->job);
    if (it != jobs_.end()) it->second.TakeReduceDone(scope, *done);
    timers_changed = false;
    wake_ = std::min(wake_, now + shortest_wait_);
  } else if (const auto* received = std::get_if<MessageReceived>(&event)) {
    if (const auto* hello = std::get_if<Hello>(&received->message)) {
      TakeHello(received->session, *hello, scope);
    } else {
      OnWorker(received->session,
               [&](Job& job, Slot slot) { job.TakeMessage(scope, slot, received->message); });
    }
    timers_changed = MayHurryDeadlines(received->message);
    if (!timers_changed) wake_ = std::min(wake_, now + shortest_wait_);
  } else if (const auto* value = std::get_if<ValueReceived>(&event)) {
    OnWorker(value->session, [&](Job& job, Slot slot) { job.TakeValue(scope, slot, *value); });
    timers_changed = false;
  } else if (const auto* opened = std::get_if<SessionOpened>(&event)) {
    sessions_[opened->session] = Session{opened->token, std::nullopt, std::nullopt};
  } else if (const auto* lost = std::get_if<SessionLost>(&event)) {
    const auto it = sessions_.find(lost->session);
    if (it != sessions_.end()) {
      const Session session = it->second;
      sessions_.erase(it);
      const auto job = session.job.has_value() ? jobs_.find(*session.job) : jobs_.end();
      if (job != jobs_.end()) {
        job->second.LoseSession(scope, lost->session, session.slot, lost->closed_by_peer);
      }
    }
  } else if (const auto* saved = std::get_if<StateSaved>(&event)) {
    const auto it = jobs_.find(saved->job);
    if (it != jobs_.end()) it->second.TakeStateSaved(scope, *saved);
  } else if (const auto* evict = std::get_if<EvictWorker>(&event)) {
    on_job(evict->job, [&](Job& job) {
      job.Evict(scope, evict->worker, absl::StrCat("was evicted: ", evict->reason));
    });
  } else if (const auto* exited = std::get_if<WorkerExited>(&event)) {
    on_job(exited->job, [&](Job& job) { job.Evict(scope, exited->worker, "has exited"); });
  } else if (const auto* drain = std::get_if<DrainWorker>(&event)) {
    on_job(drain->job, [&](Job& job) { job.DrainWorkerNow(scope, drain->worker); });
  } else if (std::holds_alternative<DrainService>(event)) {
    if (!draining_) {
      draining_ = true;
      drain_until_ = now + config_.drain_grace;
      actions.push_back(Note{NoteKind::kDraining, "", "", "", 0,
                             "Draining: open rounds end, nobody is admitted."});
      for (auto& [id, job] : jobs_) job.TellDraining(scope);
    }
  } else if (const auto* recover = std::get_if<RecoverJob>(&event)) {
    on_job(recover->job, [&](Job& job) { job.Recover(scope); });
  } else if (const auto* suspend = std::get_if<SuspendJob>(&event)) {
    on_job(suspend->job, [&](Job& job) { job.Suspend(scope, true); });
  } else if (const auto* resume = std::get_if<ResumeJob>(&event)) {
    on_job(resume->job, [&](Job& job) { job.Suspend(scope, false); });
  }
  if (now >= wake_) {
    CheckDeadlines(scope);
    timers_changed = true;
  }
  if (timers_changed) {  // As whenever a worker is lost.
    for (auto& [id, job] : jobs_) job.RecoverOrphans(scope);
  }
  if (draining_) CheckDrained(scope);
  const bool dropped = memory_.shortage;
  if (dropped) DropCached(scope);
  if (dropped || memory_.reserved < reserved) {
    for (auto& [id, job] : jobs_) job.RetryMemory(scope);
  }
  // Looking at every deadline for every event would cost more than all the rest. What a frame or
  // an ordinary message starts to wait for takes at least shortest_wait_; waking early is harmless.
  if (timers_changed) wake_ = Earliest(now);
}

void Coordinator::Refuse(const JobScope& scope, SessionId session, const Hello& hello,
                         ErrorCode code, const std::string& text) {
  scope.actions.push_back(Note{NoteKind::kJobRefused, hello.job, hello.worker, "", 0,
                               absl::StrCat(ErrorCodeName(code), ": ", text)});
  sessions_.erase(session);
  scope.actions.push_back(EndSession{session, Error{code, text}});
}

void Coordinator::TakeHello(SessionId session, const Hello& hello, const JobScope& scope) {
  const auto it = sessions_.find(session);
  if (it == sessions_.end()) return;
  if (it->second.job.has_value()) {  // A second hello: the job says what is wrong with it.
    OnWorker(session, [&](Job& job, Slot slot) { job.TakeMessage(scope, slot, hello); });
    return;
  }
  if (hello.protocol_version != kProtocolVersion || hello.contract_version != kContractVersion) {
    Refuse(scope, session, hello, ErrorCode::kVersionMismatch,
           absl::StrCat("Worker ", hello.worker, " of job ", hello.job, " speaks protocol ",
                        hello.protocol_version, " with arithmetic contract ",
                        hello.contract_version, "; this aggregator speaks ", kProtocolVersion,
                        " with ", kContractVersion, ". Install matching versions."));
    return;
  }
  auto known = by_name_.find(hello.job);
  const Term term = known == by_name_.end() ? config_.term : jobs_.at(known->second).term();
  if (const std::string why = WhyNotPlausible(hello, term, config_); !why.empty()) {
    Refuse(scope, session, hello, ErrorCode::kInvalidArgument,
           absl::StrCat("The hello of worker ", hello.worker, " of job ", hello.job, " ", why,
                        "; its client is broken."));
    return;
  }
  // Who is needed to end an open round may come back.
  const bool expected = known != by_name_.end() && jobs_.at(known->second).Expects(hello);
  if (draining_ && !expected) {
    Refuse(scope, session, hello, ErrorCode::kUnavailable,
           "This aggregator is draining; the client retries until another one answers.");
    return;
  }
  if (hello.settings.max_workers > config_.max_workers) {
    Refuse(scope, session, hello, ErrorCode::kResourceExhausted,
           absl::StrCat("Job ", hello.job, " asks for max_workers = ", hello.settings.max_workers,
                        "; this aggregator allows ", config_.max_workers, "."));
    return;
  }
  if (known == by_name_.end()) {
    if (jobs_.size() >= config_.max_jobs && !ForgetUnstarted(scope)) {
      Refuse(scope, session, hello, ErrorCode::kResourceExhausted,
             absl::StrCat("This aggregator has ", jobs_.size(),
                          " jobs, which is its limit (max_jobs). Try again when one has ended."));
      return;
    }
    std::string why;
    if (!Job::Fits(scope, hello.settings, why)) DropCached(scope);
    if (!Job::Fits(scope, hello.settings, why)) {
      Refuse(scope, session, hello, ErrorCode::kResourceExhausted,
             absl::StrCat("Job ", hello.job, " ", why,
                          ". Give the aggregator more memory, or lower max_workers."));
      return;
    }
    std::optional<SavedState> saved;
    if (const auto state = saved_.extract(hello.job)) saved = std::move(state.mapped());
    const JobId id = next_job_++;
    jobs_.emplace(id, Job(id, hello.job, config_.term, std::move(saved), scope.now));
    known = by_name_.emplace(hello.job, id).first;
    scope.actions.push_back(Note{NoteKind::kJobAdmitted, hello.job, hello.worker, "", 0,
                                 "A job this aggregator does not know yet."});
  }
  sessions_[session].job = known->second;  // Making room has ended others, and moved them.
  jobs_.at(known->second).TakeHello(scope, session, hello);
}

void Coordinator::CheckDeadlines(const JobScope& scope) {
  for (auto it = jobs_.begin(); it != jobs_.end();) {
    Job& job = it->second;
    job.CheckDeadlines(scope);
    if (!job.Expired(scope)) {
      ++it;
      continue;
    }
    it = Forget(scope, it, "Nobody has been connected for long; the job is forgotten.");
  }
}

std::map<JobId, Job>::iterator Coordinator::Forget(const JobScope& scope,
                                                   std::map<JobId, Job>::iterator entry,
                                                   const std::string& why) {
  Job& job = entry->second;
  scope.actions.push_back(Note{NoteKind::kJobEnded, job.name(), "", "", 0, why});
  job.ReleaseMemory(scope);
  // Nothing was decided with it: who comes next is to be asked as well.
  if (job.saved().has_value()) saved_.emplace(job.name(), *job.saved());
  by_name_.erase(job.name());
  return jobs_.erase(entry);
}

// Makes room for another job: forgets one that never had a member and that nobody is ready to
// begin, because it costs nobody more than another hello. The one that nobody is connected to goes
// first, then the oldest. Returns whether there was one.
bool Coordinator::ForgetUnstarted(const JobScope& scope) {
  auto chosen = jobs_.end();
  for (auto it = jobs_.begin(); it != jobs_.end(); ++it) {
    if (!it->second.Unstarted()) continue;
    if (chosen == jobs_.end() || (it->second.Idle() && !chosen->second.Idle())) chosen = it;
  }
  if (chosen == jobs_.end()) return false;
  const std::string text =
      absl::StrCat("Job ", chosen->second.name(),
                   " has not begun and made room for another one: ", "this aggregator has ",
                   jobs_.size(), " jobs, which is its limit (limits.jobs)");
  chosen->second.EndAllSessions(
      scope, Error{ErrorCode::kUnavailable, absl::StrCat(text, ". The client retries.")});
  Forget(scope, chosen, absl::StrCat(text, "."));
  return true;
}

void Coordinator::DropCached(const JobScope& scope) {
  memory_.shortage = false;
  for (auto& [id, job] : jobs_) job.DropCached(scope);
}

void Coordinator::CheckDrained(const JobScope& scope) {
  if (drained_) return;
  const bool open = std::any_of(jobs_.begin(), jobs_.end(),
                                [](const auto& entry) { return entry.second.HasOpenRound(); });
  if (open && scope.now < drain_until_) return;
  drained_ = true;
  for (auto& [id, job] : jobs_) {
    job.EndAllSessions(scope, Error{ErrorCode::kUnavailable,
                                    "This aggregator has drained; the client reconnects to the "
                                    "one that takes over."});
  }
  scope.actions.push_back(Drained{});
}

}  // namespace basin::aggregator
