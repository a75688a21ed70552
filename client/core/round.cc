// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "client/core/round.h"

#include <string>
#include <vector>

#include "protocol/transitions.h"

namespace basin::client {

bool Round::Apply(RoundInput input) {
  const RoundTransition* row = FindRow(kRoundTransitions, state_, input);
  if (row == nullptr) return false;
  state_ = row->to;
  return true;
}

void Round::SetIndex(const Scope& scope, const LaneId& lane, TensorHandle tensor,
                     TensorIndex index) {
  if (push_.Has(tensor)) {
    push_.SetIndex(tensor, index, lane);
    return;
  }
  const auto it = skipped_.find(tensor);
  if (it == skipped_.end()) return;
  it->second = index;
  if (begin_sent_ && state_ == RoundState::kPushing) scope.Send(Skip{lane.index, number_, {index}});
}

void Round::OnCredit(const Scope& scope, const LaneId& lane, const Credit& credit) {
  if (!credit.shard.has_value()) {
    push_.SetWindow(credit.window);
  } else if (scope.streams.Has(*credit.shard)) {
    push_.SetWindow(*credit.shard, credit.window);
  }
  for (const ChunkRange& range : credit.acked) {
    push_.Acknowledge(lane, range, scope.streams);
  }
  for (const ChunkRange& range : credit.refused) push_.Refuse(lane, range, scope.streams);
}

void Round::OnPull(const Scope& scope, const LaneId& lane, const Pull& pull) {
  push_.SetWindow(pull.window);
  push_.EnterPull();
  for (const ChunkRange& range : pull.discarded) {
    push_.TakeBack(lane, range, scope.streams);
  }
  for (const ChunkRange& range : pull.wanted) push_.Want(lane, range);
}

void Round::OnRestart(const Scope& scope, const LaneId& lane, const AttemptRestarted& restart) {
  push_.SetWindow(restart.window);
  push_.RestartPull();
  for (const ChunkRange& range : restart.redo) push_.TakeBack(lane, range, scope.streams);
  if (!prepared_) return;
  // The aggregator may have adopted the value without ever receiving this contribution.
  prepared_ = false;
  SendAgain();
}

void Round::OnOpen(const Scope& scope, const LaneId& lane, const OpenRound& open) {
  push_.SetWindow(open.window);
  prepared_ = open.phase == RoundPhase::kPrepared;
  for (const ChunkRange& range : open.have) push_.Acknowledge(lane, range, scope.streams);
}

void Round::EndSession() {
  push_.EndSession();
  prepared_ = false;
  SendAgain();
}

void Round::ForgetIndexes(const Scope& scope) {
  push_.ForgetIndexes(scope.streams);
  for (auto& [tensor, index] : skipped_) index.reset();
  SendAgain();
}

void Round::SendAgain() {
  begin_sent_ = false;
  numbers_known_ = begin_.optimizer == 0;  // There are none to be known.
  rest_sent_ = 0;
  Apply(RoundInput::kSendAgain);
}

void Round::Postpone(const Scope& scope, RoundNumber number) {
  push_.Stop(scope.streams);
  EndSession();
  number_ = number;
  wait_.SetHeldUpBy("");
  refusal_.clear();
  // They would be those of the round before.
  elsewhere_.GiveUp();
}

void Round::Advance(const Scope& scope, const LaneId& lane) {
  if (!scope.welcomed || state_ == RoundState::kDecided) return;
  if (!begin_sent_) SendBegin(scope, lane);
  if (prepared_ || IsWithdrawn()) return;
  push_.Pump(scope, lane, number_);
  if (push_.AllSentOnce() && Apply(RoundInput::kAllSent)) {
    SendCommit(scope, lane);
  } else if (state_ == RoundState::kCommitting) {
    SendRest(scope, lane);
  }
}

// The commit waits for room for the last frames, and room may depend on the skips of this worker:
// the aggregator would wait for a chunk that no worker pushes.
void Round::SendRest(const Scope& scope, const LaneId& lane) {
  const uint32_t version = lane.layout.version();
  if (rest_sent_ >= version) return;
  Bitmap pushed(version);
  for (const Push::Tensor& tensor : push_.tensors()) {
    if (tensor.index.has_value()) pushed.Set(*tensor.index);
  }
  Skip skip{lane.index, number_, {}};
  for (TensorIndex tensor = rest_sent_; tensor < version; ++tensor) {
    if (!pushed.Test(tensor)) skip.tensors.push_back(tensor);
  }
  rest_sent_ = version;
  if (!skip.tensors.empty()) scope.Send(std::move(skip));
}

void Round::SendBegin(const Scope& scope, const LaneId& lane) {
  begin_sent_ = true;
  scope.Send(Begin{
      lane.index, number_, begin_.spec, begin_.counts, begin_.step_label, begin_.samples,
      begin_.ranks, begin_.represents, begin_.local_reduction, begin_.reduced_with,
      begin_.compares_step, begin_.sample_epoch, begin_.call, begin_.optimizer,
      numbers_known_ ? std::vector<std::string>() : begin_.optimizer_numbers, begin_.deferred});
  if (IsWithdrawn()) {
    SendWithdraw(scope, lane);
    return;
  }
  Skip skip{lane.index, number_, {}};
  for (const auto& [tensor, index] : skipped_) {
    if (index.has_value()) skip.tensors.push_back(*index);
  }
  if (!skip.tensors.empty()) scope.Send(std::move(skip));
}

void Round::SendWithdraw(const Scope& scope, const LaneId& lane) const {
  if (!begin_sent_) return;
  scope.Send(Withdraw{lane.index, number_, reason_, elsewhere_.without()});
}

void Round::SendCommit(const Scope& scope, const LaneId& lane) const {
  Commit commit{lane.index,     number_,       lane.layout.version(), Bitmap(lane.layout.version()),
                push_.chunks(), push_.bytes(), push_.digest(),        push_.SquaredNorm()};
  for (const Push::Tensor& tensor : push_.tensors()) commit.present.Set(*tensor.index);
  scope.Send(std::move(commit));
}

}  // namespace basin::client
