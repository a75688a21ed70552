// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "client/core/lane_verdict.h"

#include "absl/strings/str_cat.h"
#include "client/core/lane_let_go.h"
#include "client/core/lane_round.h"
#include "protocol/counted.h"

namespace basin::client {
namespace {

// What is wrong with a value that the aggregator announces, compared with what it decided and with
// what this worker asked for.
Finding CheckDecision(const Lane& lane, const Scope& scope, RoundNumber round,
                      const RoundValue& value) {
  if (!IsAsDecided(value)) {
    return {
        Consequence::kReconnect,
        lane.RefuseCall(ErrorCode::kDataCorrupt, absl::StrCat("what arrived of the value of round ",
                                                              round, " is not what was decided."))};
  }
  if (!lane.round.has_value() || lane.round->number() != round) return {};
  for (const Contributor& contributor : value.contributors) {
    if (contributor.worker != scope.config.worker || contributor.incarnation != scope.incarnation ||
        lane.round->IsBegunAs(value.spec, contributor.weight)) {
      continue;
    }
    return {
        Consequence::kGiveUp,
        lane.RefuseCall(
            ErrorCode::kDataCorrupt,
            absl::StrCat("round ", round, " counts this worker with weight ", contributor.weight,
                         ", or with another operation, which is not what it began the round with. "
                         "Check this worker's memory and network, and rejoin with state."))};
  }
  return {};
}

Finding Conflict(const Lane& lane, const VerdictRecord& record) {
  return {Consequence::kFatal,
          {ErrorCode::kLineageConflict,
           absl::StrCat("Lane ", lane.name, ": the verdict of round ", record.round,
                        " contradicts the verdicts that this worker received before. Two histories "
                        "of this job exist. Restart this worker; it then loads the state of the "
                        "other workers.")}};
}

// Whether the checked bytes of a committed value are here.
bool Holds(const Lane& lane, const VerdictRecord& record) {
  const std::optional<StagedValue>& staged = lane.settlement.staged();
  return staged.has_value() && staged->round == record.round &&
         staged->value_ballot == record.value_ballot;
}

// Whether this call was made, or aborted, without this worker, which joined while it was open: the
// trainer has begun it too late, or not at all. A worker that took part, if only to withdraw, has
// staged the outcome.
bool WentWithout(const Lane& lane, const Scope& scope, const VerdictRecord& record) {
  if (lane.kind != LaneKind::kCall || lane.settlement.phase() != SettlePhase::kCollecting)
    return false;
  if (Holds(lane, record)) return false;
  return !IsCounted(record.value, scope.config.worker, scope.incarnation);
}

void Extend(Lane& lane, const Scope& scope, const VerdictRecord& record) {
  const Round* round = lane.InFlight(record.round);
  const bool counted = record.value.outcome == Outcome::kCommitted && round != nullptr &&
                       round->begin_sent() &&
                       IsCounted(record.value, scope.config.worker, scope.incarnation);
  lane.known_optimizer = counted ? round->begin().optimizer : 0;
  lane.last_verdict = record.round;
  lane.chain = record.chain;
  lane.verdicts.push_back(record);
  if (lane.verdicts.size() > kRememberedVerdicts) lane.verdicts.erase(lane.verdicts.begin());
  lane.early.reset();
  lane.settlement.EndRound();
  OnVerdictSamples(lane.samples, record.value);
}

// The trainer's call, if any, is the next one.
void Pass(Lane& lane, const Scope& scope, const VerdictRecord& record) {
  Extend(lane, scope, record);
  Round* round = lane.InFlight(record.round);
  if (round == nullptr) return AnswerLetGo(lane, scope);
  round->Postpone(scope, lane.next());
  round->Place(lane.Id());
  round->SetWindow(lane.window);
  Advance(lane, scope);
}

void Record(Lane& lane, const Scope& scope, const VerdictRecord& record) {
  Extend(lane, scope, record);
  Round* round = lane.InFlight(record.round);
  if (record.value.outcome != Outcome::kCommitted) {
    if (round == nullptr) return AnswerLetGo(lane, scope);
    if (record.value.abort_cause == AbortCause::kMismatch) {
      FailRoundInFlight(
          lane, scope,
          {ErrorCode::kMismatch, absl::StrCat("Job ", scope.config.job, ", lane ", lane.name,
                                              ", round ", record.round, ": ", record.value.reason,
                                              ". No worker has a result; the next calls are "
                                              "matched as before.")});
      return;
    }
    const std::string& refusal = round->refusal();
    std::string next = " The gradients are kept; retry to send them as the next round.";
    if (!refusal.empty()) {
      next = absl::StrCat(" The gradients are kept; before a retry, correct what was refused: ",
                          refusal);
    } else if (record.value.abort_cause == AbortCause::kStepAgain) {
      next.clear();  // The reason says what to do.
    }
    FailRoundInFlight(lane, scope,
                      {ErrorCode::kRoundAborted,
                       absl::StrCat("Lane ", lane.name, ", round ", record.round,
                                    " is ABORTED: ", record.value.reason, ".", next),
                       // What was refused is refused again when the step comes again.
                       refusal.empty() ? record.value.abort_cause : AbortCause::kUnspecified});
    return;
  }
  if (round == nullptr) {
    if (!lane.finished) lane.undelivered = record;
    return AnswerLetGo(lane, scope);
  }
  round->Apply(RoundInput::kCommittedVerdict);
  round->Stop(scope);
  if (round->state() == RoundState::kEnded) {
    DeliverVerdict(lane, scope, record);
  } else {
    lane.undelivered = record;
  }
}

}  // namespace

Finding OnResult(Lane& lane, const Scope& scope, const ResultReceived& frame) {
  if (!lane.started || !lane.in_session) return {};
  if (lane.undelivered.has_value() && frame.round == lane.next()) {
    return {Consequence::kReconnect,
            lane.RefuseCall(ErrorCode::kInvalidArgument,
                            "a result arrived before this worker began the round.")};
  }
  Finding finding =
      OnEarly(lane, scope, lane.settlement.OnResult(scope, lane.Id(), lane.next(), frame));
  Round* round = lane.InFlight(frame.round);
  if (round != nullptr && round->OnResults(scope, lane.Id(), frame.ranges)) Advance(lane, scope);
  return finding;
}

Finding OnPrepared(Lane& lane, const Scope& scope, const Prepared& prepared) {
  if (!lane.started || !lane.in_session) return {};
  if (prepared.round < lane.next()) return {};
  if (prepared.round > lane.next()) {
    return {
        Consequence::kReconnect,
        lane.RefuseCall(ErrorCode::kInvalidArgument,
                        absl::StrCat("round ", prepared.round,
                                     " was prepared before the verdict of this round arrived."))};
  }
  if (Finding wrong = CheckDecision(lane, scope, prepared.round, prepared.value);
      wrong.consequence != Consequence::kNone) {
    return wrong;
  }
  if (Round* round = lane.InFlight(prepared.round)) {
    round->OnPrepared();
    if (round->elsewhere().requested()) lane.settlement.AskWhenPrepared();
    round->elsewhere().Await(scope.now);
  }
  return lane.settlement.OnPrepared(scope, lane.Id(), prepared);
}

void OnSupply(Lane& lane, const Scope& scope, const Supply& supply) {
  if (lane.in_session) lane.settlement.OnSupply(scope, lane.Id(), supply);
}

Finding OnVerdict(Lane& lane, const Scope& scope, const VerdictRecord& record, bool late) {
  if (!lane.started) return {};
  if (record.round <= lane.last_verdict) {
    for (const VerdictRecord& known : lane.verdicts) {
      if (known.round == record.round && known.chain != record.chain) return Conflict(lane, record);
    }
    return {};
  }
  if (record.round != lane.next()) {
    return {
        late ? Consequence::kGiveUp : Consequence::kReconnect,
        lane.RefuseCall(ErrorCode::kEvicted,
                        absl::StrCat("the next known verdict is that of round ", record.round,
                                     ". This worker has missed rounds and rejoins with state."))};
  }
  if (lane.chain.has_value() &&
      ExtendChain(*lane.chain, record.round, record.value) != record.chain) {
    return Conflict(lane, record);
  }
  if (Finding wrong = CheckDecision(lane, scope, record.round, record.value);
      wrong.consequence != Consequence::kNone) {
    return wrong;
  }
  if (WentWithout(lane, scope, record)) {
    Pass(lane, scope, record);
    return {};
  }
  const bool needed =
      record.value.outcome == Outcome::kCommitted && !(lane.finished && !lane.round.has_value());
  if (!needed || Holds(lane, record)) {
    Record(lane, scope, record);
    return {};
  }
  if (late) {
    return {
        Consequence::kGiveUp,
        {ErrorCode::kEvicted,
         absl::StrCat(
             lane.Where(),
             " is COMMITTED, but this worker does not have its result. It rejoins with state.")}};
  }
  lane.early = record;
  return OnEarly(lane, scope,
                 lane.settlement.OnPrepared(scope, lane.Id(),
                                            Prepared{*lane.index, record.round, record.ballot,
                                                     record.value_ballot, record.value}));
}

Finding OnEarly(Lane& lane, const Scope& scope, Finding finding) {
  if (finding.consequence == Consequence::kNone && lane.early.has_value() &&
      Holds(lane, *lane.early)) {
    const VerdictRecord record = *lane.early;
    Record(lane, scope, record);
  }
  return finding;
}

void DeliverVerdict(Lane& lane, const Scope& scope, const VerdictRecord& record) {
  scope.actions.push_back(Deliver{lane.handle, record});
  lane.round.reset();
  lane.undelivered.reset();
  AnswerLetGo(lane, scope);
}

}  // namespace basin::client
