// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "client/core/lane.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "protocol/counted.h"

namespace basin::client {

std::string Lane::Where() const {
  const RoundNumber number = round_.has_value() ? round_->number() : next();
  if (number == 0) return absl::StrCat("Lane ", name_);
  return absl::StrCat("Lane ", name_, ", round ", number);
}

Error Lane::RefuseCall(ErrorCode code, const std::string& why) const {
  return {code, absl::StrCat(Where(), ": ", why)};
}

// ---- the trainer's side

Error Lane::WhyNotRegister(const Config& config, LaneKind kind,
                           const std::vector<TensorSpec>& tensors) const {
  if (kind != kind_) {
    return RefuseCall(ErrorCode::kMismatch,
                      "a gradient lane and a call lane have the same name; rename one of them.");
  }
  std::map<std::string, const TensorSpec*> fresh;
  for (const TensorSpec& spec : tensors) {
    const TensorSpec* known = nullptr;
    if (const auto it = by_name_.find(spec.name); it != by_name_.end()) {
      known = &tensors_[it->second].spec;
    } else if (const auto [at, added] = fresh.emplace(spec.name, &spec); !added) {
      known = at->second;
    }
    if (known != nullptr && *known != spec) {
      return RefuseCall(
          ErrorCode::kMismatch,
          absl::StrCat("tensor ", spec.name, " is registered as ", DescribeSpec(*known),
                       " and cannot become ", DescribeSpec(spec), "."));
    }
    if (!HasUsableSize(spec)) {
      return RefuseCall(
          ErrorCode::kInvalidArgument,
          absl::StrCat("tensor ", spec.name, " as ", DescribeSpec(spec),
                       " has no usable size; the limit is ", kMaxTensorBytes, " bytes."));
    }
  }
  if (tensors_.size() + fresh.size() > config.max_tensors) {
    return RefuseCall(
        ErrorCode::kResourceExhausted,
        absl::StrCat("it would have ", tensors_.size() + fresh.size(),
                     " tensors, but the limit is ", config.max_tensors, "; fuse small ones."));
  }
  return {};
}

void Lane::Register(const Scope& scope, const std::vector<TensorSpec>& tensors) {
  const size_t before = tensors_.size();
  size_t first = before;  // To be sent.
  for (const TensorSpec& spec : tensors) {
    const auto handle = static_cast<TensorHandle>(tensors_.size());
    const auto [at, fresh] = by_name_.emplace(spec.name, handle);
    if (fresh) {
      tensors_.push_back({spec, std::nullopt, {}});
      continue;
    }
    // Refused tensors are registered again: there may be room for them now.
    RegisteredTensor& known = tensors_[at->second];
    if (known.refusal.code == ErrorCode::kOk || known.refusal.code == ErrorCode::kMismatch)
      continue;
    known.refusal = {};
    first = std::min<size_t>(first, at->second);
  }
  if (first == tensors_.size() && index_.has_value()) return;  // Nothing new.
  // The layout may already have tensors of others.
  for (TensorHandle handle = static_cast<TensorHandle>(before); handle < tensors_.size();
       ++handle) {
    const auto index = layout_.Find(tensors_[handle].spec.name);
    if (index.has_value()) MapTensor(scope, handle, *index);
  }
  if (scope.welcomed) SayTensors(scope, first);
}

void Lane::SayTensors(const Scope& scope, size_t first) const {
  do {  // A lane without tensors is named too.
    basin::Register message{name_, kind_, {}};
    const size_t end = std::min<size_t>(tensors_.size(), first + scope.config.register_batch);
    for (; first < end; ++first) message.tensors.push_back(tensors_[first].spec);
    scope.Tell(std::move(message));
  } while (first < tensors_.size());
}

Error Lane::Begin(const Scope& scope, const BeginRound& begin) {
  if (round_.has_value()) {
    return RefuseCall(ErrorCode::kFailedPrecondition,
                      round_->IsPushing()
                          ? "it has already begun; commit or withdraw it first."
                          : "its outcome is not known yet; wait for it, or abandon the round.");
  }
  if (!index_.has_value()) {
    for (const RegisteredTensor& tensor : tensors_) {
      if (tensor.refusal.code != ErrorCode::kOk) return tensor.refusal;
    }
  }
  // The aggregator would refuse it, and the work of the backward would be lost.
  std::string why = WhyNotCounted(begin.counts);
  if (why.empty()) why = WhyNotRanks(begin.ranks, begin.carries);
  const auto& others = begin.reduced_with;
  if (why.empty() && std::find(others.begin(), others.end(), scope.config.worker) != others.end()) {
    why = "names the worker itself among those that it was reduced with; leave it out";
  }
  if (!why.empty()) {
    return RefuseCall(ErrorCode::kInvalidArgument,
                      absl::StrCat("the contribution of worker ", scope.config.worker, " of job ",
                                   scope.config.job, " ", why, "."));
  }
  StartAtLayout();
  RoundNumber number = started_ ? next() : 0;
  if (undelivered_.has_value()) number = undelivered_->round;
  round_.emplace(number, begin);
  round_->SetWindow(window_);
  if (undelivered_.has_value()) {
    round_->Apply(RoundInput::kCommittedVerdict);
  } else if (settlement_.phase() != SettlePhase::kCollecting) {
    round_->OnPrepared();
  }
  Advance(scope);
  return {};
}

Error Lane::WhyNotTensor(TensorHandle tensor) const {
  if (!round_.has_value()) {
    return RefuseCall(ErrorCode::kFailedPrecondition,
                      "no round is in flight; begin a round first.");
  }
  if (tensor >= tensors_.size()) {
    return RefuseCall(ErrorCode::kNotFound,
                      absl::StrCat("tensor handle ", tensor, " is not registered; it has ",
                                   tensors_.size(), " tensors."));
  }
  const std::string& name = tensors_[tensor].spec.name;
  if (round_->state() == RoundState::kWithdrawn) {
    return RefuseCall(
        ErrorCode::kFailedPrecondition,
        absl::StrCat("tensor ", name, " was pushed or skipped after the round was withdrawn."));
  }
  if (!round_->IsPushing()) {
    return RefuseCall(
        ErrorCode::kFailedPrecondition,
        absl::StrCat("tensor ", name, " was pushed or skipped after the round was committed."));
  }
  if (round_->Has(tensor)) {
    return RefuseCall(
        ErrorCode::kFailedPrecondition,
        absl::StrCat("tensor ", name, " was ", round_->Skips(tensor) ? "skipped" : "pushed",
                     " already in this round."));
  }
  return {};
}

Error Lane::WhyNotPush(TensorHandle tensor) const {
  if (Error error = WhyNotTensor(tensor); error.code != ErrorCode::kOk) return error;
  const Error& refusal = tensors_[tensor].refusal;
  if (refusal.code != ErrorCode::kMismatch) return refusal;
  return RefuseCall(ErrorCode::kMismatch, refusal.text);
}

// REQUIRES: it can be pushed.
void Lane::AddPush(const Scope& scope, const client::PushTensor& push) {
  if (round_->state() == RoundState::kRefused) return;  // Nothing of it is sent.
  const RegisteredTensor& tensor = tensors_[push.tensor];
  const uint64_t bytes = *TensorBytes(tensor.spec);
  const uint32_t chunks = ChunkCount(bytes);
  round_->PushTensor(push.tensor, bytes, std::min(push.chunks.value_or(chunks), chunks),
                     push.digest, push.squared_norm);
  if (tensor.index.has_value()) round_->SetIndex(scope, Id(), push.tensor, *tensor.index);
}

Error Lane::PushTensor(const Scope& scope, const client::PushTensor& push) {
  if (Error error = WhyNotPush(push.tensor); error.code != ErrorCode::kOk) return error;
  AddPush(scope, push);
  Advance(scope);
  return {};
}

Error Lane::PushTensors(const Scope& scope, const client::PushTensors& push) {
  std::vector<bool> named(tensors_.size());
  for (const client::PushTensor& tensor : push.tensors) {
    if (Error error = WhyNotPush(tensor.tensor); error.code != ErrorCode::kOk) return error;
    if (named[tensor.tensor]) {
      return RefuseCall(ErrorCode::kFailedPrecondition,
                        absl::StrCat("tensor ", tensors_[tensor.tensor].spec.name,
                                     " was pushed already in this round."));
    }
    named[tensor.tensor] = true;
  }
  for (const client::PushTensor& tensor : push.tensors) AddPush(scope, tensor);
  Advance(scope);
  return {};
}

Error Lane::PushMore(const Scope& scope, const client::PushMore& more) {
  if (!round_.has_value()) return {};
  for (const client::PushMore::Part& part : more.parts) round_->PushMore(Id(), part);
  Advance(scope);
  return {};
}

Error Lane::SkipTensor(const Scope& scope, const client::SkipTensor& skip) {
  if (Error error = WhyNotTensor(skip.tensor); error.code != ErrorCode::kOk) return error;
  round_->SkipTensor(skip.tensor);
  const RegisteredTensor& tensor = tensors_[skip.tensor];
  if (tensor.index.has_value()) round_->SetIndex(scope, Id(), skip.tensor, *tensor.index);
  return {};
}

Error Lane::Commit(const Scope& scope) {
  if (!round_.has_value()) {
    return RefuseCall(ErrorCode::kFailedPrecondition, "commit without begin; begin a round first.");
  }
  if (!round_->Apply(RoundInput::kCommit)) {
    return RefuseCall(ErrorCode::kFailedPrecondition,
                      round_->state() == RoundState::kWithdrawn
                          ? "the round is withdrawn; wait for its outcome instead of a commit."
                          : "it is already committed; wait for its outcome.");
  }
  if (round_->state() == RoundState::kEnded) {
    Deliver(scope, *undelivered_);
  } else {
    Advance(scope);
  }
  return {};
}

Error Lane::Withdraw(const Scope& scope, const WithdrawRound& withdraw) {
  if (!round_.has_value()) {
    return RefuseCall(ErrorCode::kFailedPrecondition,
                      "withdraw without begin; begin a round first.");
  }
  const bool refused = round_->state() == RoundState::kRefused;  // The aggregator knows it.
  if (!round_->Apply(RoundInput::kWithdraw)) {
    return RefuseCall(ErrorCode::kFailedPrecondition,
                      round_->state() == RoundState::kWithdrawn
                          ? "it is already withdrawn; wait for its outcome."
                          : "withdraw after commit; the commit holds.");
  }
  if (round_->state() == RoundState::kEnded) {
    Deliver(scope, *undelivered_);
    return {};
  }
  if (refused) return {};
  // Without one it would say that another worker contributes its gradients.
  const bool lacks_reason = withdraw.reason.empty() && !withdraw.without_results;
  round_->SetReason(lacks_reason ? "it gave no reason" : withdraw.reason);
  if (withdraw.without_results) round_->GoWithoutResults();
  round_->Stop(scope);
  if (scope.welcomed && in_session_) round_->SayWithdraw(scope, Id());
  Advance(scope);
  return {};
}

Error Lane::RequestResults(const Scope& scope) {
  if (!round_.has_value()) return {};  // It has ended and was delivered.
  if (!round_->IsWithdrawn()) {
    return RefuseCall(ErrorCode::kFailedPrecondition,
                      "its results were requested, but it is not withdrawn; they arrive without "
                      "that.");
  }
  RequestResultsNow(scope);
  return {};
}

void Lane::RequestResultsNow(const Scope& scope) {
  if (!round_->RequestResults()) return;
  // Those of this attempt that are still held for others, and all of the next one.
  const bool lacks = settlement_.phase() != SettlePhase::kStaged;
  if (lacks && scope.welcomed && in_session_) round_->SayWithdraw(scope, Id());
  settlement_.Ask(scope, Id());
}

Error Lane::Wait(absl::Time now, absl::Time until) {
  if (!round_.has_value()) return {};  // It has ended and was delivered.
  if (round_->IsPushing()) {
    return RefuseCall(ErrorCode::kFailedPrecondition,
                      "wait before commit; commit or withdraw it first.");
  }
  round_->Wait(now, until);
  return {};
}

void Lane::FailRoundInFlight(const Scope& scope, const Error& error) {
  if (!round_.has_value()) return;
  round_->Apply(RoundInput::kFail);
  round_->Stop(scope);
  scope.actions.push_back(FailRound{handle_, round_->number(), error});
  round_.reset();
  undelivered_.reset();
}

void Lane::EndMembership(const Scope& scope) {
  if (!round_.has_value() || undelivered_.has_value()) return;
  FailRoundInFlight(
      scope, RefuseCall(ErrorCode::kFailedPrecondition,
                        absl::StrCat("worker ", scope.config.worker, " of job ", scope.config.job,
                                     " is no longer a member, and the round had not opened. The "
                                     "gradients are kept; begin again once this worker is a "
                                     "member.")));
}

void Lane::Tick(const Scope& scope) {
  EndWaits(scope, std::nullopt);
  if (round_.has_value() && scope.now >= round_->request_at()) RequestResultsNow(scope);
}

void Lane::EndWaits(const Scope& scope, const std::optional<Error>& error) {
  if (!round_.has_value() || !round_->wait_until().has_value()) return;
  if (!error.has_value() && scope.now < *round_->wait_until()) return;
  round_->EndWait(scope.now);
  scope.actions.push_back(FailRound{
      handle_, round_->number(),
      error.has_value()
          ? *error
          : RefuseCall(
                ErrorCode::kOutcomeUnknown,
                absl::StrCat(
                    "no verdict arrived in time", Obstacle(scope),
                    ". The round continues: wait again, or abandon it and rejoin with state."))});
}

// The known cause of the delay of a round.
std::string Lane::Obstacle(const Scope& scope) const {
  if (!scope.welcomed) return ", and the aggregator is not connected";
  if (!scope.pause.empty()) return absl::StrCat("; ", absl::StripSuffix(scope.pause, "."));
  if (const auto why = scope.streams.Trouble(); !why.empty()) return absl::StrCat("; ", why);
  const std::string& held_up_by = round_->held_up_by();
  return held_up_by.empty() ? "" : absl::StrCat("; it waits for ", held_up_by);
}

std::optional<RoundWait> Lane::TrainerWaits(absl::Time now) const {
  if (!in_session_ || !round_.has_value() || round_->number() == 0) return std::nullopt;
  if (!round_->TrainerWaits(now)) return std::nullopt;
  return RoundWait{*index_, round_->number()};
}

void Lane::OnHeldUp(const Scope& scope, const HeldUp& held_up) {
  if (!round_.has_value() || round_->number() != held_up.round) return;
  round_->SetHeldUpBy(held_up.text);
  scope.actions.push_back(RoundHeldUp{
      handle_, held_up.round,
      absl::StrCat("Round ", held_up.round, " of lane ", name_, " waits for ", held_up.text, ".")});
}

// ---- membership

void Lane::Start(RoundNumber round, std::optional<uint64_t> chain) {
  started_ = true;
  last_verdict_ = round == 0 ? 0 : round - 1;
  chain_ = chain;
  verdicts_.clear();
  settlement_.Forget();
  undelivered_.reset();
  early_.reset();
}

void Lane::StartAtLayout() {
  if (started_ || told_round_ == 0) return;
  Start(told_round_, told_round_ == 1 ? std::optional<uint64_t>(0) : std::nullopt);
}

void Lane::Finish() {
  finished_ = true;
  // The trainer begins no round that could take the outcome, and the next results of the others
  // come here too.
  if (!round_.has_value()) undelivered_.reset();
}

void Lane::Forget() {
  started_ = false;
  last_verdict_ = 0;
  chain_.reset();
  verdicts_.clear();
  settlement_.Forget();
  undelivered_.reset();
  early_.reset();
  index_.reset();
  in_session_ = false;
  layout_ = Layout();
  window_ = 0;
  told_round_ = 0;
  for (RegisteredTensor& tensor : tensors_) {
    tensor.index.reset();
    tensor.refusal = {};
  }
}

// ---- the aggregator's side

Finding Lane::OnLayout(const Scope& scope, const LaneLayout& layout) {
  // Other workers added tensors while this worker's own registration is in flight; its answer has
  // the whole layout.
  if (!index_.has_value() && layout.first > layout_.version()) return {};
  // An aggregator that recovered a job of two others may number its lanes anew; their names and
  // tensors stay.
  const bool named = !index_.has_value() || *index_ == layout.lane || layout.first == 0;
  // A call lane that was idle for long, and any lane without history, may be laid out anew, even
  // with the same first tensors: this aggregator does not know the other tensors.
  const bool anew = layout.first == 0 && (kind_ == LaneKind::kCall || !started_);
  const bool shorter = anew && !in_session_ && layout.tensors.size() < layout_.version();
  bool fits =
      named && !shorter && layout_.Extend(layout.first, layout.tensors, scope.config.max_tensors);
  if (!fits && anew) {
    layout_ = Layout();
    settlement_.EndSession();
    for (RegisteredTensor& tensor : tensors_) tensor.index.reset();
    if (round_.has_value()) round_->ForgetIndexes(scope);
    fits = layout_.Extend(0, layout.tensors, scope.config.max_tensors);
  }
  if (!fits) {
    return {Consequence::kReconnect,
            {ErrorCode::kInvalidArgument,
             absl::StrCat("The layout of lane ", name_, " from entry ", layout.first,
                          " does not continue the layout that this worker received before.")}};
  }
  // A call that this worker joined, and that was made before its trainer named it.
  if (!index_.has_value() && started_ && kind_ == LaneKind::kCall && layout.round > next()) {
    Start(layout.round, std::nullopt);
    if (round_.has_value()) round_->SetNumber(next());
  }
  index_ = layout.lane;
  in_session_ = true;
  window_ = layout.window;
  told_round_ = layout.round;
  if (round_.has_value() && (!round_->said() || round_->push().window() == 0)) {
    round_->SetWindow(window_);
  }
  for (TensorIndex index = layout.first; index < layout_.version(); ++index) {
    const auto it = by_name_.find(layout_.tensors()[index].name);
    if (it != by_name_.end()) MapTensor(scope, it->second, index);
  }
  scope.Tell(LayoutSeen{*index_, layout_.version()});
  return OnEarly(scope, settlement_.OnLayout(scope, Id()));
}

void Lane::MapTensor(const Scope& scope, TensorHandle handle, TensorIndex index) {
  RegisteredTensor& tensor = tensors_[handle];
  if (tensor.index.has_value() || tensor.refusal.code == ErrorCode::kMismatch) return;
  const TensorSpec& theirs = layout_.tensors()[index];
  if (theirs == tensor.spec) {
    tensor.index = index;
    tensor.refusal = {};
    if (round_.has_value()) round_->SetIndex(scope, Id(), handle, index);
    return;
  }
  RefuseTensor(
      scope, handle,
      {ErrorCode::kMismatch,
       absl::StrCat("tensor ", tensor.spec.name, " is ", DescribeSpec(tensor.spec), " here, but ",
                    DescribeSpec(theirs), " in the job. Build the same model on every worker.")});
}

void Lane::OnRegistrationRefused(const Scope& scope, const std::string& tensor,
                                 const Error& error) {
  for (TensorHandle handle = 0; handle < tensors_.size(); ++handle) {
    const RegisteredTensor& known = tensors_[handle];
    if (known.index.has_value() || known.refusal.code != ErrorCode::kOk) continue;
    if (tensor.empty() || known.spec.name == tensor) RefuseTensor(scope, handle, error);
  }
  // The aggregator has received nothing of a round in a lane that it does not have.
  if (!index_.has_value()) FailRoundInFlight(scope, error);
}

void Lane::RefuseTensor(const Scope& scope, TensorHandle handle, const Error& why) {
  tensors_[handle].refusal = why;
  if (!index_.has_value() || !round_.has_value() || !round_->push().Has(handle)) return;
  if (!round_->Apply(RoundInput::kRefused)) return;
  const Error error =
      why.code == ErrorCode::kMismatch ? RefuseCall(ErrorCode::kMismatch, why.text) : why;
  scope.actions.push_back(RoundRejected{handle_, round_->number(), error});
  round_->OnRefusal(error.text);
  round_->SetReason(error.text);
  round_->Stop(scope);
  round_->SayWithdraw(scope, Id());
}

void Lane::OnOpen(const Scope& scope, const OpenRound& open) {
  if (!started_) return;
  if (open.round != next()) return;
  if (open.phase == RoundPhase::kPrepared) {
    settlement_.AskWhenPrepared();
  } else {
    settlement_.OnRestart(next(), open.ballot);
  }
  if (round_.has_value() && round_->number() == open.round) round_->OnOpen(scope, Id(), open);
}

void Lane::OnCredit(const Scope& scope, const Credit& credit) {
  const bool in_flight = round_.has_value() && round_->number() == credit.round;
  const uint64_t before = scope.streams.in_flight();
  if (in_flight) round_->OnCredit(scope, Id(), credit);
  scope.streams.Acknowledged(before - scope.streams.in_flight(), scope.now);
  // A window that arrived without a frame is the initial window of a round.
  if (credit.acked.empty() && credit.refused.empty()) window_ = std::max(window_, credit.window);
  if (in_flight) Advance(scope);
}

void Lane::OnPull(const Scope& scope, const Pull& pull) {
  if (!round_.has_value() || round_->number() != pull.round) return;
  round_->OnPull(scope, Id(), pull);
  Advance(scope);
}

Finding Lane::OnRestart(const Scope& scope, const AttemptRestarted& restart) {
  if (!started_ || restart.round != next()) return {};
  settlement_.OnRestart(next(), restart.ballot);
  if (round_.has_value() && round_->number() == restart.round) {
    round_->OnRestart(scope, Id(), restart);
    Advance(scope);
  }
  return {};
}

Finding Lane::OnResult(const Scope& scope, const ResultReceived& frame) {
  if (!started_ || !in_session_) return {};
  if (undelivered_.has_value() && frame.round == next()) {
    return {Consequence::kReconnect,
            {ErrorCode::kInvalidArgument,
             absl::StrCat(Where(), ": a result arrived before this worker began the round.")}};
  }
  return OnEarly(scope, settlement_.OnResult(scope, Id(), next(), frame));
}

Finding Lane::OnPrepared(const Scope& scope, const Prepared& prepared) {
  if (!started_ || !in_session_) return {};
  if (prepared.round < next()) return {};
  if (prepared.round > next()) {
    return {Consequence::kReconnect,
            {ErrorCode::kInvalidArgument,
             absl::StrCat(Where(), ": round ", prepared.round,
                          " was prepared before the verdict of this round arrived.")}};
  }
  if (Finding wrong = CheckDecision(scope, prepared.round, prepared.value);
      wrong.consequence != Consequence::kNone) {
    return wrong;
  }
  if (round_.has_value() && round_->number() == prepared.round) {
    round_->OnPrepared();
    if (round_->requests_results()) settlement_.AskWhenPrepared();
    round_->AwaitResults(scope.now);
  }
  return settlement_.OnPrepared(scope, Id(), prepared);
}

Finding Lane::CheckDecision(const Scope& scope, RoundNumber round, const RoundValue& value) const {
  if (!IsAsDecided(value)) {
    return {Consequence::kReconnect,
            {ErrorCode::kDataCorrupt, absl::StrCat(Where(), ": what arrived of the value of round ",
                                                   round, " is not what was decided.")}};
  }
  if (!round_.has_value() || round_->number() != round) return {};
  for (const Contributor& contributor : value.contributors) {
    if (contributor.worker != scope.config.worker || contributor.incarnation != scope.incarnation ||
        round_->IsBegunAs(value.spec, contributor.weight)) {
      continue;
    }
    return {Consequence::kGiveUp,
            {ErrorCode::kDataCorrupt,
             absl::StrCat(Where(), ": round ", round, " counts this worker with weight ",
                          contributor.weight,
                          ", or with another operation, which is not what it began the round with. "
                          "Check this worker's memory and network, and rejoin with state.")}};
  }
  return {};
}

void Lane::OnSupply(const Scope& scope, const Supply& supply) {
  if (in_session_) settlement_.OnSupply(scope, Id(), supply);
}

bool Lane::Holds(const VerdictRecord& record) const {
  const std::optional<StagedValue>& staged = settlement_.staged();
  return staged.has_value() && staged->round == record.round &&
         staged->value_ballot == record.value_ballot;
}

Finding Lane::OnVerdict(const Scope& scope, const VerdictRecord& record, bool late) {
  if (!started_) return {};
  const auto conflict = [&] {
    return Finding{
        Consequence::kFatal,
        {ErrorCode::kLineageConflict,
         absl::StrCat(
             "Lane ", name_, ": the verdict of round ", record.round,
             " contradicts the verdicts that this worker received before. Two histories of "
             "this job exist. Restart this worker; it then loads the state of the other "
             "workers.")}};
  };
  if (record.round <= last_verdict_) {
    for (const VerdictRecord& known : verdicts_) {
      if (known.round == record.round && known.chain != record.chain) return conflict();
    }
    return {};
  }
  if (record.round != next()) {
    return {late ? Consequence::kGiveUp : Consequence::kReconnect,
            {ErrorCode::kEvicted,
             absl::StrCat(Where(), ": the next known verdict is that of round ", record.round,
                          ". This worker has missed rounds and rejoins with state.")}};
  }
  if (chain_.has_value() && ExtendChain(*chain_, record.round, record.value) != record.chain) {
    return conflict();
  }
  if (Finding wrong = CheckDecision(scope, record.round, record.value);
      wrong.consequence != Consequence::kNone) {
    return wrong;
  }
  if (WentWithout(scope, record)) {
    Pass(scope, record);
    return {};
  }
  const bool needed =
      record.value.outcome == Outcome::kCommitted && !(finished_ && !round_.has_value());
  if (!needed || Holds(record)) {
    Record(scope, record);
    return {};
  }
  if (late) {
    return {
        Consequence::kGiveUp,
        {ErrorCode::kEvicted,
         absl::StrCat(
             Where(),
             " is COMMITTED, but this worker does not have its result. It rejoins with state.")}};
  }
  early_ = record;
  return OnEarly(scope, settlement_.OnPrepared(scope, Id(),
                                               Prepared{*index_, record.round, record.ballot,
                                                        record.value_ballot, record.value}));
}

Finding Lane::OnEarly(const Scope& scope, Finding finding) {
  if (finding.consequence == Consequence::kNone && early_.has_value() && Holds(*early_)) {
    const VerdictRecord record = *early_;
    Record(scope, record);
  }
  return finding;
}

// Whether this call was made, or aborted, without this worker, which joined while it was open: the
// trainer has begun it too late, or not at all. A worker that took part, if only to withdraw, has
// staged the outcome.
bool Lane::WentWithout(const Scope& scope, const VerdictRecord& record) const {
  if (kind_ != LaneKind::kCall || settlement_.phase() != SettlePhase::kCollecting) return false;
  if (Holds(record)) return false;
  return !IsCounted(record.value, scope.config.worker, scope.incarnation);
}

// The trainer's call, if any, is the next one.
void Lane::Pass(const Scope& scope, const VerdictRecord& record) {
  Extend(record);
  if (!round_.has_value() || round_->number() != record.round) return;
  round_->Postpone(scope, next());
  round_->SetWindow(window_);
  Advance(scope);
}

void Lane::Extend(const VerdictRecord& record) {
  last_verdict_ = record.round;
  chain_ = record.chain;
  verdicts_.push_back(record);
  if (verdicts_.size() > kRememberedVerdicts) verdicts_.erase(verdicts_.begin());
  early_.reset();
  settlement_.EndRound();
}

void Lane::Record(const Scope& scope, const VerdictRecord& record) {
  Extend(record);
  const bool in_flight = round_.has_value() && round_->number() == record.round;
  if (record.value.outcome != Outcome::kCommitted) {
    if (!in_flight) return;
    const std::string& refusal = round_->refusal();
    FailRoundInFlight(
        scope, {ErrorCode::kRoundAborted,
                absl::StrCat("Lane ", name_, ", round ", record.round,
                             " is ABORTED: ", record.value.reason, ". The gradients are kept; ",
                             refusal.empty() ? "retry to send them as the next round."
                                             : "before a retry, correct what was refused: ",
                             refusal),
                record.value.abort_cause});
    return;
  }
  if (!in_flight) {
    if (!finished_) undelivered_ = record;
    return;
  }
  round_->Apply(RoundInput::kCommittedVerdict);
  round_->Stop(scope);
  if (round_->state() == RoundState::kEnded) {
    Deliver(scope, record);
  } else {
    undelivered_ = record;
  }
}

void Lane::Deliver(const Scope& scope, const VerdictRecord& record) {
  scope.actions.push_back(client::Deliver{handle_, record});
  round_.reset();
  undelivered_.reset();
}

void Lane::RegisterAgain(const Scope& scope) {
  if (!round_.has_value() || !round_->said() || asked_again_ == round_->number()) return;
  asked_again_ = round_->number();
  in_session_ = false;
  round_->Stop(scope);
  round_->EndSession();
  SayRegister(scope);
}

void Lane::EndSession() {
  in_session_ = false;
  asked_again_ = 0;
  early_.reset();
  settlement_.EndSession();
  if (round_.has_value()) round_->EndSession();
  // Everything is registered again with the next aggregator.
  for (RegisteredTensor& tensor : tensors_) {
    if (tensor.refusal.code != ErrorCode::kMismatch) tensor.refusal = {};
  }
}

void Lane::LoseStream(const Scope& scope, uint32_t stream) {
  if (!index_.has_value()) return;
  if (round_.has_value()) round_->LoseStream(scope, Id(), stream);
  settlement_.LoseStream(stream);
}

void Lane::Advance(const Scope& scope) {
  if (!scope.welcomed || !in_session_) return;
  settlement_.PumpSupply(scope, Id());
  if (!round_.has_value()) return;
  if (round_->number() == 0 && started_) round_->SetNumber(next());
  if (round_->number() > 0) round_->Advance(scope, Id());
}

std::optional<LaneHistory> Lane::History() const {
  if (!started_ || !chain_.has_value() || !index_.has_value()) return std::nullopt;
  LaneHistory history;
  history.name = name_;
  history.kind = kind_;
  history.lane = *index_;
  history.layout = layout_.tensors();
  history.verdicts = verdicts_;
  history.last_verdict = last_verdict_;
  history.chain = *chain_;
  history.staged = settlement_.staged();
  history.begun = round_.has_value() && round_->number() == next() ? next() : 0;
  if (settlement_.held_round() == next()) {
    history.held_ballot = settlement_.held_ballot();
    for (const Interval& run : settlement_.held().Runs()) {
      for (const ChunkRange& range : layout_.Ranges(run)) history.held.push_back(range);
    }
  }
  return history;
}

}  // namespace basin::client
