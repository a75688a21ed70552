// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "client/core/lane.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace basin::client {

std::string Lane::Where() const {
  const RoundNumber number = round.has_value() ? round->number() : next();
  if (number == 0) return absl::StrCat("Lane ", name);
  return absl::StrCat("Lane ", name, ", round ", number);
}

Error Lane::RefuseCall(ErrorCode code, const std::string& why) const {
  return {code, absl::StrCat(Where(), ": ", why)};
}

Finding Lane::UnknownPlacement() const {
  return {Consequence::kReconnect,
          RefuseCall(ErrorCode::kInvalidArgument,
                     absl::StrCat("its chunks are where placement ", placement.number,
                                  " says, which the aggregator has not sent."))};
}

std::optional<RoundWait> Lane::TrainerWaits(absl::Time now) const {
  if (!in_session || !round.has_value() || round->number() == 0) return std::nullopt;
  if (!round->wait().Lasts(now)) return std::nullopt;
  return RoundWait{*index, round->number()};
}

void Lane::Start(RoundNumber at, std::optional<uint64_t> start_chain, SampleProgress committed) {
  started = true;
  last_verdict = at == 0 ? 0 : at - 1;
  chain = start_chain;
  known_optimizer = 0;
  verdicts.clear();
  settlement.Forget();
  samples.committed = std::move(committed);
  undelivered.reset();
  early.reset();
}

bool Lane::Use(const Placements& placements, const RoundPlacement& of_next) {
  if (placed && placement == of_next) return true;
  placement = of_next;
  return Place(placements);
}

bool Lane::Place(const Placements& placements) {
  shares = Shares();
  placed = true;
  if (placement.number != 0) {
    const Placement* known = placements.Find(placement.number);
    if (known == nullptr) return false;
    placed = placement.layout <= layout.version();
    if (placed) shares = Shares(*known, layout, placement.layout);
  }
  if (round.has_value() && index.has_value()) round->Place(Id());
  return true;
}

void Lane::StartAtLayout() {
  if (started || layout_round == 0) return;
  Start(layout_round, layout_round == 1 ? std::optional<uint64_t>(0) : std::nullopt);
}

void Lane::Finish() {
  finished = true;
  claimed = false;
  // The trainer begins no round that could take the outcome, and the next results of the others
  // come here too.
  if (!round.has_value()) undelivered.reset();
}

void Lane::Forget() {
  Start(0, std::nullopt);
  started = false;
  samples = Samples();
  index.reset();
  in_session = laid_out = false;
  layout = Layout();
  window = 0;
  placement = {};
  shares = Shares();
  placed = true;
  layout_round = 0;
  asked_to_let_go.reset();
  let_go.reset();
  for (RegisteredTensor& tensor : tensors) {
    tensor.index.reset();
    tensor.refusal = {};
  }
}

void Lane::EndSession() {
  in_session = laid_out = false;
  asked_again = 0;
  asked_to_let_go.reset();
  known_optimizer = 0;
  early.reset();
  settlement.EndSession();
  // Those of the next session follow with its layout.
  placement = {};
  shares = Shares();
  placed = true;
  samples.returning.Clear();
  if (samples.request.has_value()) samples.request->sent = false;
  if (report.has_value()) report->sent = false;
  if (round.has_value()) round->EndSession();
  // Everything is registered again with the next aggregator.
  for (RegisteredTensor& tensor : tensors) {
    if (tensor.refusal.code != ErrorCode::kMismatch) tensor.refusal = {};
  }
}

std::optional<LaneHistory> Lane::History() const {
  if (!started || !chain.has_value() || !index.has_value()) return std::nullopt;
  LaneHistory history;
  history.name = name;
  history.kind = kind;
  history.lane = *index;
  history.layout = layout.tensors();
  history.verdicts = verdicts;
  history.last_verdict = last_verdict;
  history.chain = *chain;
  history.staged = settlement.staged();
  history.committed = samples.committed;
  history.leased = samples.Leased();
  history.resumed = samples.ResumedOf(history.leased.epoch);
  history.begun = round.has_value() && round->number() == next() ? next() : 0;
  history.let_go = HasLetGo();
  if (settlement.held_round() == next()) {
    history.held_ballot = settlement.held_ballot();
    for (const Interval& run : settlement.held().Runs()) {
      for (const ChunkRange& range : layout.Ranges(FlatOf(run))) history.held.push_back(range);
    }
  }
  return history;
}

}  // namespace basin::client
