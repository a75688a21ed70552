// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "accelerator/node/runner/runner.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/signals_blocked.h"

namespace basin::accelerator::node {
namespace {

LinksOptions LinksOf(const RunnerOptions& options, LocalGroup* core) {
  LinksOptions links;
  links.directory = options.directory;
  links.self = options.config.self;
  links.size = options.config.size;
  links.hello = [core] { return core->MakeHello(); };
  return links;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Runner>> Runner::Start(RunnerOptions options) {
  auto core = std::make_unique<LocalGroup>(options.config, absl::Now());
  absl::StatusOr<std::unique_ptr<Links>> links = Links::Open(LinksOf(options, core.get()));
  if (!links.ok()) return links.status();
  auto runner = std::unique_ptr<Runner>(new Runner(std::move(options), std::move(*links)));
  runner->core_ = std::move(core);
  const SignalsBlocked blocked;
  runner->core_thread_ = std::thread([r = runner.get()] { r->RunCore(); });
  runner->job_thread_ = std::thread([r = runner.get()] { r->RunJobs(); });
  return runner;
}

Runner::Runner(RunnerOptions options, std::unique_ptr<Links> links)
    : options_(std::move(options)), links_(std::move(links)) {}

Runner::~Runner() {
  {
    MutexLock lock(mutex_);
    closing_ = true;
    Post(LeaveGroup{});
    changed_.NotifyAll();
  }
  core_thread_.join();
  job_thread_.join();
}

// ---- the trainer's calls

absl::StatusOr<std::optional<Turn>> Runner::NextTurn(SteadyTime until) {
  MutexLock lock(mutex_);
  if (!open_) {
    open_ = true;
    Post(RoundBegun{++round_});
  }
  while (!turn_ && over_rounds_.count(round_) == 0 && !status_ &&
         std::chrono::steady_clock::now() < until) {
    changed_.WaitUntil(mutex_, until);
  }
  if (over_rounds_.count(round_) > 0) {
    Turn over;
    over.round = round_;
    return over;
  }
  if (status_) return *status_;
  return std::exchange(turn_, std::nullopt);
}

absl::StatusOr<Turn> Runner::NextTurn() {
  while (true) {
    absl::StatusOr<std::optional<Turn>> turn =
        NextTurn(std::chrono::steady_clock::now() + std::chrono::hours(1));
    if (!turn.ok()) return turn.status();
    if (*turn) return *std::move(*turn);
  }
}

absl::StatusOr<std::optional<bool>> Runner::End(SteadyTime until) {
  MutexLock lock(mutex_);
  while (over_rounds_.count(round_) == 0 && !status_ && std::chrono::steady_clock::now() < until) {
    changed_.WaitUntil(mutex_, until);
  }
  const auto over = over_rounds_.find(round_);
  if (over == over_rounds_.end()) {
    if (status_) return *status_;
    return std::nullopt;
  }
  const bool reduced = over->second;
  over_rounds_.erase(over);
  open_ = false;
  return reduced;
}

void Runner::Reduced(const Turn& turn) {
  MutexLock lock(mutex_);
  Post(RoundReduced{turn.round});
}

void Runner::Fail(const Turn& turn, const absl::Status& why) {
  MutexLock lock(mutex_);
  Post(CommunicatorFailed{turn.epoch, std::string(why.message())});
}

void Runner::GiveUp(const Turn& turn, const std::string& why) {
  MutexLock lock(mutex_);
  Post(RoundFailed{turn.epoch, why});
}

void Runner::Post(Event event) {
  posted_.push_back(std::move(event));
  if (links_ != nullptr) links_->Wake();
}

// ---- the core's thread

void Runner::RunCore() {
  std::vector<Event> events;
  while (!over_) {
    links_->Wait(core_->NextDeadline(), events);
    {
      MutexLock lock(mutex_);
      for (Event& event : posted_) events.push_back(std::move(event));
      posted_.clear();
    }
    for (const Event& event : events) Step(event);
    events.clear();
    if (!over_ && core_->NextDeadline() <= absl::Now()) Step(Tick{});
    MutexLock lock(mutex_);
    if (over_) links_.reset();
  }
}

void Runner::Step(const Event& event) {
  std::vector<Action> actions;
  core_->Step(event, absl::Now(), actions);
  for (const Action& action : actions) {
    std::visit([this](const auto& one) { Do(one); }, action);
  }
}

void Runner::Do(const Send& send) { links_->Send(send.to, send.message); }
void Runner::Do(const Refuse& refuse) {
  links_->Refuse(refuse.rank, refuse.nonce, GaveUp{refuse.code, refuse.why, true});
}

void Runner::Do(const MakeUniqueId& make) {
  AddJob([this, make] {
    const absl::StatusOr<std::string> id = options_.make_id();
    MutexLock lock(mutex_);
    Post(UniqueIdMade{make.request, id.value_or(""), std::string(id.status().message())});
  });
}

void Runner::Do(const FormCommunicator& form) {
  {
    MutexLock lock(mutex_);
    wanted_ = form.epoch;
  }
  AddJob([this, form] { Form(form); });
}

void Runner::Do(const AbortCommunicator& abort) {
  CommunicatorPtr communicator;
  {
    MutexLock lock(mutex_);
    wanted_.reset();
    turn_.reset();
    communicator = std::exchange(communicator_, nullptr);
  }
  if (communicator == nullptr) return;
  communicator->Abort(absl::UnavailableError(abort.why));
  // Its destructor waits for NCCL.
  AddJob([ended = std::move(communicator)] {});
}

void Runner::Do(const GroupReady& ready) {
  ready_.epoch = ready.epoch;
  ready_.members = ready.members;
  ready_.leader = ready.leader;
}

void Runner::Do(const ReduceRound& reduce) {
  MutexLock lock(mutex_);
  turn_ = ready_;
  turn_->round = reduce.round;
  turn_->communicator = communicator_;
  changed_.NotifyAll();
}

void Runner::Do(const RoundOver& over) {
  MutexLock lock(mutex_);
  over_rounds_[over.round] = over.reduced;
  changed_.NotifyAll();
}

void Runner::Do(const GroupFailed& failed) { Finish(failed.status); }
void Runner::Do(const LeftGroup&) {
  Finish(absl::FailedPreconditionError("this rank has left the local group"));
}

void Runner::Finish(absl::Status status) {
  over_ = true;
  MutexLock lock(mutex_);
  status_ = std::move(status);
  changed_.NotifyAll();
}

// ---- the second thread

void Runner::AddJob(Job job) {
  MutexLock lock(mutex_);
  jobs_.push_back(std::move(job));
  changed_.NotifyAll();
}

void Runner::RunJobs() {
  while (true) {
    Job job;
    {
      MutexLock lock(mutex_);
      while (jobs_.empty() && !(closing_ && status_)) changed_.Wait(mutex_);
      if (jobs_.empty()) return;
      job = std::move(jobs_.front());
      jobs_.pop_front();
    }
    job();
  }
}

void Runner::Form(const FormCommunicator& form) {
  {
    MutexLock lock(mutex_);
    if (wanted_ != form.epoch) return;
  }
  absl::StatusOr<CommunicatorPtr> started = options_.start(form);
  absl::Status status = started.status();
  if (status.ok()) {
    {
      MutexLock lock(mutex_);
      if (wanted_ != form.epoch) return;  // It ends here.
      communicator_ = *started;
    }
    status = (*started)->WaitUntilFormed();
  }
  MutexLock lock(mutex_);
  if (status_) return;
  Post(status.ok() ? Event(CommunicatorFormed{form.epoch})
                   : Event(CommunicatorFailed{form.epoch, std::string(status.message())}));
}

}  // namespace basin::accelerator::node
