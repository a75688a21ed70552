// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "client/core/round.h"

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
    push_.SetIndex(tensor, index, lane.layout);
    return;
  }
  const auto it = skipped_.find(tensor);
  if (it == skipped_.end()) return;
  it->second = index;
  if (said_ && state_ == RoundState::kPushing) scope.Tell(Skip{lane.index, number_, {index}});
}

void Round::OnCredit(const Scope& scope, const LaneId& lane, const Credit& credit) {
  push_.SetWindow(credit.window);
  for (const ChunkRange& range : credit.acked) {
    push_.Acknowledge(lane.layout, range, scope.streams);
  }
  for (const ChunkRange& range : credit.refused) push_.Refuse(lane.layout, range, scope.streams);
}

void Round::OnPull(const Scope& scope, const LaneId& lane, const Pull& pull) {
  push_.SetWindow(pull.window);
  push_.EnterPull();
  for (const ChunkRange& range : pull.discarded) {
    push_.TakeBack(lane.layout, range, scope.streams);
  }
  for (const ChunkRange& range : pull.wanted) push_.Want(lane.layout, range);
}

void Round::OnRestart(const Scope& scope, const LaneId& lane, const AttemptRestarted& restart) {
  push_.SetWindow(restart.window);
  push_.RestartPull();
  for (const ChunkRange& range : restart.redo) push_.TakeBack(lane.layout, range, scope.streams);
  if (!prepared_) return;
  // The aggregator may have adopted the value without ever receiving this contribution.
  prepared_ = false;
  said_ = false;
  rest_said_ = 0;
  Apply(RoundInput::kSayAgain);
}

void Round::OnOpen(const Scope& scope, const LaneId& lane, const OpenRound& open) {
  push_.SetWindow(open.window);
  prepared_ = open.phase == RoundPhase::kPrepared;
  for (const ChunkRange& range : open.have) push_.Acknowledge(lane.layout, range, scope.streams);
}

void Round::EndSession() {
  push_.EndSession();
  said_ = false;
  rest_said_ = 0;
  prepared_ = false;
  Apply(RoundInput::kSayAgain);
}

void Round::ForgetIndexes(const Scope& scope) {
  push_.ForgetIndexes(scope.streams);
  for (auto& [tensor, index] : skipped_) index.reset();
  said_ = false;
  rest_said_ = 0;
  Apply(RoundInput::kSayAgain);
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
  if (!said_) SayBegin(scope, lane);
  if (prepared_ || IsWithdrawn()) return;
  push_.Pump(scope, lane.handle, lane.index, number_);
  if (push_.AllSentOnce() && Apply(RoundInput::kAllSent)) {
    SayCommit(scope, lane);
  } else if (state_ == RoundState::kCommitting) {
    SayRest(scope, lane);
  }
}

// The commit waits for room for the last frames, and room may depend on the skips of this worker:
// the aggregator would wait for a chunk that no worker pushes.
void Round::SayRest(const Scope& scope, const LaneId& lane) {
  const uint32_t version = lane.layout.version();
  if (rest_said_ >= version) return;
  Bitmap pushed(version);
  for (const Push::Tensor& tensor : push_.tensors()) {
    if (tensor.index.has_value()) pushed.Set(*tensor.index);
  }
  Skip skip{lane.index, number_, {}};
  for (TensorIndex tensor = rest_said_; tensor < version; ++tensor) {
    if (!pushed.Test(tensor)) skip.tensors.push_back(tensor);
  }
  rest_said_ = version;
  if (!skip.tensors.empty()) scope.Tell(std::move(skip));
}

void Round::SayBegin(const Scope& scope, const LaneId& lane) {
  said_ = true;
  scope.Tell(Begin{lane.index, number_, begin_.spec, begin_.counts, begin_.step_label,
                   begin_.samples, begin_.ranks, begin_.carries, begin_.local_reduction,
                   begin_.reduced_with, begin_.compares_step});
  if (IsWithdrawn()) {
    SayWithdraw(scope, lane);
    return;
  }
  Skip skip{lane.index, number_, {}};
  for (const auto& [tensor, index] : skipped_) {
    if (index.has_value()) skip.tensors.push_back(*index);
  }
  if (!skip.tensors.empty()) scope.Tell(std::move(skip));
}

void Round::SayWithdraw(const Scope& scope, const LaneId& lane) const {
  if (!said_) return;
  scope.Tell(Withdraw{lane.index, number_, reason_, elsewhere_.without()});
}

void Round::SayCommit(const Scope& scope, const LaneId& lane) const {
  Commit commit{lane.index,     number_,       lane.layout.version(), Bitmap(lane.layout.version()),
                push_.chunks(), push_.bytes(), push_.digest(),        push_.SquaredNorm()};
  for (const Push::Tensor& tensor : push_.tensors()) commit.present.Set(*tensor.index);
  scope.Tell(std::move(commit));
}

}  // namespace basin::client
