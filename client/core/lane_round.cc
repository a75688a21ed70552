// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "client/core/lane_round.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "client/core/lane_let_go.h"
#include "client/core/lane_verdict.h"
#include "protocol/counted.h"

namespace basin::client {
namespace {

Error NotNow(const Lane& lane, const std::string& why) {
  return lane.RefuseCall(ErrorCode::kFailedPrecondition, why);
}

// The verdict of the round before the one that the trainer begins next; null if it is not known.
const VerdictRecord* BeforeNext(const Lane& lane) {
  const RoundNumber next = lane.undelivered.has_value() ? lane.undelivered->round : lane.next();
  for (const VerdictRecord& record : lane.verdicts) {
    if (record.round + 1 == next) return &record;
  }
  return nullptr;
}

Error WhyNotTensor(const Lane& lane, TensorHandle tensor) {
  if (!lane.round.has_value()) {
    return NotNow(lane, "no round is in flight; begin a round first.");
  }
  if (tensor >= lane.tensors.size()) {
    return lane.RefuseCall(ErrorCode::kNotFound,
                           absl::StrCat("tensor handle ", tensor, " is not registered; it has ",
                                        lane.tensors.size(), " tensors."));
  }
  const std::string& name = lane.tensors[tensor].spec.name;
  if (lane.round->state() == RoundState::kWithdrawn) {
    return NotNow(lane, absl::StrCat("tensor ", name,
                                     " was pushed or skipped after the round was withdrawn."));
  }
  if (!lane.round->IsPushing()) {
    return NotNow(lane, absl::StrCat("tensor ", name,
                                     " was pushed or skipped after the round was committed."));
  }
  if (lane.round->Has(tensor)) {
    return NotNow(lane, absl::StrCat("tensor ", name, " was ",
                                     lane.round->Skips(tensor) ? "skipped" : "pushed",
                                     " already in this round."));
  }
  return {};
}

Error WhyNotPush(const Lane& lane, TensorHandle tensor) {
  if (Error error = WhyNotTensor(lane, tensor); error.code != ErrorCode::kOk) return error;
  const Error& refusal = lane.tensors[tensor].refusal;
  if (refusal.code != ErrorCode::kMismatch) return refusal;
  return lane.RefuseCall(ErrorCode::kMismatch, refusal.text);
}

// REQUIRES: it can be pushed.
void AddPush(Lane& lane, const Scope& scope, const PushTensor& push) {
  if (lane.round->state() == RoundState::kRefused) return;  // Nothing of it is sent.
  const RegisteredTensor& tensor = lane.tensors[push.tensor];
  const uint64_t bytes = *TensorBytes(tensor.spec);
  const uint32_t chunks = ChunkCount(bytes);
  lane.round->PushTensor(push.tensor, bytes, std::min(push.chunks.value_or(chunks), chunks),
                         push.digest, push.squared_norm);
  if (tensor.index.has_value()) lane.round->SetIndex(scope, lane.Id(), push.tensor, *tensor.index);
}

void RequestResultsNow(Lane& lane, const Scope& scope) {
  if (!lane.round->elsewhere().Request()) return;
  // Those of this attempt that are still held for others, and all of the next one.
  const bool lacks = lane.settlement.phase() != SettlePhase::kStaged;
  if (lacks && scope.welcomed && lane.in_session) lane.round->SendWithdraw(scope, lane.Id());
  lane.settlement.Ask(scope, lane.Id());
}

// The known cause of the delay of a round.
std::string Obstacle(const Lane& lane, const Scope& scope) {
  if (!scope.welcomed) return ", and the aggregator is not connected";
  if (!scope.pause.empty()) return absl::StrCat("; ", absl::StripSuffix(scope.pause, "."));
  if (const ShardStreams* troubled = scope.streams.Troubled(); troubled != nullptr) {
    if (troubled->shard().shard == kCoordinatorShard)
      return absl::StrCat("; ", troubled->Trouble());
    return absl::StrCat("; for worker ", scope.config.worker, " of job ", scope.config.job, ", ",
                        troubled->Trouble());
  }
  const std::string& held_up_by = lane.round->wait().held_up_by();
  return held_up_by.empty() ? "" : absl::StrCat("; it waits for ", held_up_by);
}

}  // namespace

Error Take(Lane& lane, const Scope& scope, const BeginRound& begin) {
  if (lane.round.has_value()) {
    return NotNow(lane, lane.round->IsPushing()
                            ? "it has already begun; commit or withdraw it first."
                            : "its outcome is not known yet; wait for it, or abandon the round.");
  }
  if (!lane.index.has_value()) {
    for (const RegisteredTensor& tensor : lane.tensors) {
      if (tensor.refusal.code != ErrorCode::kOk) return tensor.refusal;
    }
  }
  // The aggregator would refuse it, and the work of the backward would be lost.
  std::string why = WhyNotCounted(begin.counts);
  if (why.empty()) why = WhyNotRanks(begin.ranks, begin.represents);
  const auto& others = begin.reduced_with;
  if (why.empty() && std::find(others.begin(), others.end(), scope.config.worker) != others.end()) {
    why = "names the worker itself among those that it was reduced with; leave it out";
  }
  if (why.empty()) why = WhyNotAdded(begin.spec, begin.deferred);
  if (why.empty() && begin.deferred > 0) why = WhyNotLate(scope.config.worker, BeforeNext(lane));
  if (!why.empty()) {
    return lane.RefuseCall(ErrorCode::kInvalidArgument,
                           absl::StrCat("the contribution of worker ", scope.config.worker,
                                        " of job ", scope.config.job, " ", why, "."));
  }
  if (Error error = WhyNotBegin(lane, begin); error.code != ErrorCode::kOk) return error;
  lane.StartAtLayout();
  RoundNumber number = lane.started ? lane.next() : 0;
  if (lane.undelivered.has_value()) number = lane.undelivered->round;
  lane.round.emplace(number, begin, begin.optimizer == lane.known_optimizer);
  lane.claimed = false;
  lane.round->SetWindow(lane.window);
  if (lane.undelivered.has_value()) {
    lane.round->Apply(RoundInput::kCommittedVerdict);
  } else if (lane.settlement.phase() != SettlePhase::kCollecting) {
    lane.round->OnPrepared();
  }
  Advance(lane, scope);
  return {};
}

Error Take(Lane& lane, const Scope& scope, const PushTensor& push) {
  if (Error error = WhyNotPush(lane, push.tensor); error.code != ErrorCode::kOk) return error;
  AddPush(lane, scope, push);
  Advance(lane, scope);
  return {};
}

Error Take(Lane& lane, const Scope& scope, const PushTensors& push) {
  std::vector<bool> named(lane.tensors.size());
  for (const PushTensor& tensor : push.tensors) {
    if (Error error = WhyNotPush(lane, tensor.tensor); error.code != ErrorCode::kOk) return error;
    if (named[tensor.tensor]) {
      return NotNow(lane, absl::StrCat("tensor ", lane.tensors[tensor.tensor].spec.name,
                                       " was pushed already in this round."));
    }
    named[tensor.tensor] = true;
  }
  for (const PushTensor& tensor : push.tensors) AddPush(lane, scope, tensor);
  Advance(lane, scope);
  return {};
}

Error Take(Lane& lane, const Scope& scope, const PushMore& more) {
  if (!lane.round.has_value()) return {};
  // The lane may have no index any more: its name was let go, and is registered again.
  const LaneId id{lane.handle, lane.index.value_or(0), lane.name, lane.layout, lane.shares};
  for (const PushMore::Part& part : more.parts) lane.round->PushMore(id, part);
  Advance(lane, scope);
  return {};
}

Error Take(Lane& lane, const Scope& scope, const SkipTensor& skip) {
  if (Error error = WhyNotTensor(lane, skip.tensor); error.code != ErrorCode::kOk) return error;
  lane.round->SkipTensor(skip.tensor);
  const RegisteredTensor& tensor = lane.tensors[skip.tensor];
  if (tensor.index.has_value()) lane.round->SetIndex(scope, lane.Id(), skip.tensor, *tensor.index);
  return {};
}

Error Take(Lane& lane, const Scope& scope, const CommitRound&) {
  if (!lane.round.has_value()) {
    return NotNow(lane, "commit without begin; begin a round first.");
  }
  if (!lane.round->Apply(RoundInput::kCommit)) {
    return NotNow(lane, lane.round->state() == RoundState::kWithdrawn
                            ? "the round is withdrawn; wait for its outcome instead of a commit."
                            : "it is already committed; wait for its outcome.");
  }
  if (lane.round->state() == RoundState::kEnded) {
    DeliverVerdict(lane, scope, *lane.undelivered);
  } else {
    Advance(lane, scope);
  }
  return {};
}

Error Take(Lane& lane, const Scope& scope, const WithdrawRound& withdraw) {
  if (!lane.round.has_value()) {
    return NotNow(lane, "withdraw without begin; begin a round first.");
  }
  const bool refused = lane.round->state() == RoundState::kRefused;  // The aggregator knows it.
  if (!lane.round->Apply(RoundInput::kWithdraw)) {
    return NotNow(lane, lane.round->state() == RoundState::kWithdrawn
                            ? "it is already withdrawn; wait for its outcome."
                            : "withdraw after commit; the commit holds.");
  }
  if (lane.round->state() == RoundState::kEnded) {
    DeliverVerdict(lane, scope, *lane.undelivered);
    return {};
  }
  if (refused) return {};
  // Without one it would report that another worker contributes its gradients.
  const bool lacks_reason = withdraw.reason.empty() && !withdraw.without_results;
  lane.round->SetReason(lacks_reason ? "it gave no reason" : withdraw.reason);
  if (withdraw.without_results) lane.round->elsewhere().Go();
  lane.round->Stop(scope);
  if (scope.welcomed && lane.in_session) lane.round->SendWithdraw(scope, lane.Id());
  Advance(lane, scope);
  return {};
}

Error Take(Lane& lane, const Scope& scope, const RequestResults&) {
  if (!lane.round.has_value()) return {};  // It has ended and was delivered.
  if (!lane.round->IsWithdrawn()) {
    return NotNow(lane,
                  "its results were requested, but it is not withdrawn; they arrive without that.");
  }
  RequestResultsNow(lane, scope);
  return {};
}

Error Take(Lane& lane, const Scope& scope, const WaitRound& wait) {
  if (!lane.round.has_value()) return {};  // It has ended and was delivered.
  if (lane.round->IsPushing()) {
    return NotNow(lane, "wait before commit; commit or withdraw it first.");
  }
  lane.round->wait().Begin(scope.now, wait.deadline);
  return {};
}

void FailRoundInFlight(Lane& lane, const Scope& scope, const Error& error) {
  if (!lane.round.has_value()) return;
  lane.round->Apply(RoundInput::kFail);
  lane.round->Stop(scope);
  scope.actions.push_back(FailRound{lane.handle, lane.round->number(), error});
  lane.round.reset();
  lane.undelivered.reset();
  AnswerLetGo(lane, scope);
}

void EndMembership(Lane& lane, const Scope& scope) {
  if (!lane.round.has_value() || lane.undelivered.has_value()) return;
  FailRoundInFlight(
      lane, scope,
      NotNow(lane, absl::StrCat("worker ", scope.config.worker, " of job ", scope.config.job,
                                " is no longer a member, and the round had not opened. The "
                                "gradients are kept; begin again once this worker is a "
                                "member.")));
}

void OnTick(Lane& lane, const Scope& scope) {
  EndWaits(lane, scope, std::nullopt);
  if (lane.round.has_value() && scope.now >= lane.round->elsewhere().request_at())
    RequestResultsNow(lane, scope);
  if (lane.round.has_value() && lane.round->TakeResume(scope.now)) Advance(lane, scope);
}

void EndWaits(Lane& lane, const Scope& scope, const std::optional<Error>& error) {
  if (!lane.round.has_value()) return;
  TrainerWait& wait = lane.round->wait();
  if (!wait.until().has_value() || (!error.has_value() && scope.now < *wait.until())) return;
  wait.End(scope.now);
  scope.actions.push_back(FailRound{
      lane.handle, lane.round->number(),
      error.has_value()
          ? *error
          : lane.RefuseCall(
                ErrorCode::kOutcomeUnknown,
                absl::StrCat(
                    "no verdict arrived in time", Obstacle(lane, scope),
                    ". The round continues: wait again, or abandon it and rejoin with state."))});
}

void OnOpen(Lane& lane, const Scope& scope, const OpenRound& open) {
  if (!lane.started) return;
  if (open.round != lane.next()) return;
  if (open.phase == RoundPhase::kPrepared) {
    lane.settlement.AskWhenPrepared();
  } else {
    lane.settlement.OnRestart(lane.next(), open.ballot);
  }
  if (Round* round = lane.InFlight(open.round)) round->OnOpen(scope, lane.Id(), open);
}

void OnCredit(Lane& lane, const Scope& scope, const Credit& credit) {
  Round* round = lane.InFlight(credit.round);
  const Streams::Loads before = scope.streams.InFlight();
  if (round != nullptr) round->OnCredit(scope, lane.Id(), credit);
  scope.streams.Acknowledged(before, scope.now);
  // A window that arrived without a frame is the initial window of a round.
  if (credit.acked.empty() && credit.refused.empty())
    lane.window = std::max(lane.window, credit.window);
  if (round != nullptr) Advance(lane, scope);
}

void OnPull(Lane& lane, const Scope& scope, const Pull& pull) {
  Round* round = lane.InFlight(pull.round);
  if (round == nullptr) return;
  round->OnPull(scope, lane.Id(), pull);
  Advance(lane, scope);
}

void OnHeldUp(Lane& lane, const Scope& scope, const HeldUp& held_up) {
  Round* round = lane.InFlight(held_up.round);
  if (round == nullptr) return;
  round->wait().SetHeldUpBy(held_up.text);
  scope.actions.push_back(RoundHeldUp{lane.handle, held_up.round,
                                      absl::StrCat("Round ", held_up.round, " of lane ", lane.name,
                                                   " waits for ", held_up.text, ".")});
}

void OnRestart(Lane& lane, const Scope& scope, const AttemptRestarted& restart) {
  if (!lane.started || restart.round != lane.next()) return;
  lane.settlement.OnRestart(lane.next(), restart.ballot);
  if (Round* round = lane.InFlight(restart.round)) {
    round->OnRestart(scope, lane.Id(), restart);
    Advance(lane, scope);
  }
}

void LoseStream(Lane& lane, const Scope& scope, uint32_t stream) {
  if (!lane.index.has_value()) return;
  if (lane.round.has_value()) lane.round->LoseStream(scope, lane.Id(), stream);
  lane.settlement.LoseStream(stream);
}

void Advance(Lane& lane, const Scope& scope) {
  if (!scope.welcomed || !lane.in_session || !lane.placed) return;
  lane.settlement.PumpSupply(scope, lane.Id());
  AdvanceSamples(lane, scope);
  AdvanceReport(lane, scope);
  if (!lane.round.has_value()) return;
  if (lane.round->number() == 0 && lane.started) lane.round->SetNumber(lane.next());
  if (lane.round->number() > 0) lane.round->Advance(scope, lane.Id());
}

}  // namespace basin::client
