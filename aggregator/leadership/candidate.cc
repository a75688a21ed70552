// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "aggregator/leadership/candidate.h"

#include <pthread.h>

#include <optional>
#include <utility>
#include <variant>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"

namespace basin::aggregator {

std::string LeaderView::InWords() const {
  if (Names()) {
    return absl::StrCat("it is ", holder, address.empty() ? "" : absl::StrCat(" at ", address));
  }
  return trouble.empty() ? "nobody leads yet"
                         : absl::StrCat("it is not known who leads: ", trouble);
}

Candidate::Candidate(LeadershipConfig config, Authority& authority, Clock& clock,
                     CandidateActions actions)
    : authority_(authority),
      clock_(clock),
      actions_(std::move(actions)),
      core_(std::move(config), clock.Now()) {}

Candidate::~Candidate() { Stop(); }

void Candidate::Start() {
  thread_ = std::thread([this] {
    pthread_setname_np(pthread_self(), "basin-lead");
    Run();
  });
}

absl::Status Candidate::StepDown() {
  MutexLock lock(mutex_);
  if (!view_.leads || ended_) {
    return absl::FailedPreconditionError(
        absl::StrCat("This aggregator does not lead; ", view_.InWords(), "."));
  }
  const uint64_t begun = view_.begun;
  step_down_ = true;
  changed_.NotifyAll();
  while ((view_.leads || view_.releasing) && view_.begun == begun && !ended_) {
    changed_.Wait(mutex_);
  }
  return absl::OkStatus();
}

void Candidate::Stop() {
  {
    MutexLock lock(mutex_);
    stop_ = true;
    changed_.NotifyAll();
  }
  if (thread_.joinable()) thread_.join();
}

LeaderView Candidate::view() const {
  MutexLock lock(mutex_);
  return view_;
}

void Candidate::Run() {
  bool retiring = false;
  while (core_.state() != LeadershipState::kRetired) {
    std::optional<LeadershipEvent> event;
    {
      MutexLock lock(mutex_);
      while (!event.has_value()) {
        if (stop_ && !std::exchange(retiring, true)) {
          event = Retire{};
        } else if (std::exchange(step_down_, false)) {
          event = aggregator::StepDown{};
        } else if (clock_.Now() >= core_.NextDeadline()) {
          event = TimePassed{};
        } else {
          clock_.Wait(changed_, mutex_, core_.NextDeadline());
        }
      }
    }
    Step(*event);
  }
  authority_.Leave();
  MutexLock lock(mutex_);
  ended_ = true;
  changed_.NotifyAll();
}

// Answers are events, too.
void Candidate::Step(const LeadershipEvent& event) {
  std::optional<LeadershipEvent> next = event;
  while (next.has_value()) {
    std::vector<LeadershipAction> actions;
    core_.Step(*next, clock_.Now(), absl::Now(), actions);
    next.reset();
    std::optional<LeadershipAction> request;
    for (const LeadershipAction& action : actions) {
      if (const auto* begin = std::get_if<BeginLeading>(&action)) {
        ++begun_;
        actions_.begin_leading(begin->fence);
      } else if (const auto* decide = std::get_if<DecideUntil>(&action)) {
        actions_.decide_until(decide->until);
      } else if (const auto* end = std::get_if<EndLeading>(&action)) {
        actions_.end_leading(end->why);
      } else {
        request = action;
      }
    }
    Publish();
    if (request.has_value()) next = Ask(*request);
  }
}

LeadershipEvent Candidate::Ask(const LeadershipAction& action) {
  const absl::Duration timeout = core_.config().request_timeout();
  if (std::holds_alternative<ReadRecord>(action)) {
    absl::StatusOr<RecordState> state = authority_.Read(timeout);
    if (!state.ok()) return RequestFailed{std::string(state.status().message())};
    return RecordRead{*std::move(state)};
  }
  const auto& write = std::get<WriteRecord>(action);
  absl::StatusOr<std::string> version = authority_.Write(write.record, write.version, timeout);
  if (version.ok()) return RecordWritten{*std::move(version)};
  if (absl::IsAborted(version.status())) return WriteRefused{};
  return RequestFailed{std::string(version.status().message())};
}

void Candidate::Publish() {
  LeaderView view;
  view.leads = core_.leads();
  view.decides_until = core_.decides_until();
  view.releasing = core_.state() == LeadershipState::kReleasing;
  if (const std::optional<LeaderRecord>& record = core_.seen().record; record.has_value()) {
    view.fence = record->fence;
    view.holder = record->holder;
    view.address = record->address;
  }
  view.trouble = core_.trouble();
  view.begun = begun_;
  bool differs;
  {
    MutexLock lock(mutex_);
    differs = view.leads != view_.leads || view.holder != view_.holder ||
              view.address != view_.address || view.trouble != view_.trouble;
    view_ = view;
    changed_.NotifyAll();
  }
  if (differs) actions_.changed(view);
}

}  // namespace basin::aggregator
