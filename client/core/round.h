// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// This worker's contribution to the round in flight of one lane. Its states are the table below; a
// pair of state and input that is not in the table is refused (calls of the trainer) or ignored.
//
// Two things besides the table decide what is sent. Begin, Skip, Withdraw and Commit are session
// messages, which are sent again in each session. While the round is prepared, nothing is pushed,
// because its value is fixed; if it is restarted, everything is sent again.
//
// Thread contract: a plain value.

#ifndef BASIN_CLIENT_CORE_ROUND_H_
#define BASIN_CLIENT_CORE_ROUND_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <utility>

#include "client/core/layout.h"
#include "client/core/push.h"
#include "client/core/settlement.h"
#include "client/core/streams.h"

namespace basin::client {

enum class RoundState : uint8_t {
  kPushing = 0,     // The trainer begins, pushes, skips.
  kCommitting = 1,  // It has committed; some chunks were not sent in this session.
  kCommitted = 2,   // Commit was sent in this session.
  kWithdrawn = 3,   // Not counted, but the outcome is awaited.
  kDecided = 4,     // The verdict arrived while the trainer still pushes.
  kRefused = 5,     // Withdrawn for a tensor that is not the job's, while the trainer still pushes.
  kEnded = 6,       // The trainer's handle is done.
};

enum class RoundInput : uint8_t {
  kCommit = 0,     // The trainer's call.
  kWithdraw = 1,   // The trainer's call.
  kAllSent = 2,    // Every pushed chunk was sent in this session.
  kRefused = 3,    // A pushed tensor turns out not to be the job's.
  kSendAgain = 4,  // New session, or the round was restarted after it had been prepared.
  kCommittedVerdict = 5,
  kFail = 6,  // ABORTED, evicted, abandoned, corrupt, fatal.
};

struct RoundTransition {
  RoundState from;
  RoundInput input;
  RoundState to;
  const char* what;  // What is sent or delivered.
};

inline constexpr RoundTransition kRoundTransitions[] = {
    // from                    input                          to
    {RoundState::kPushing, RoundInput::kCommit, RoundState::kCommitting, "the rest of the frames"},
    {RoundState::kPushing, RoundInput::kWithdraw, RoundState::kWithdrawn, "Withdraw"},
    {RoundState::kPushing, RoundInput::kRefused, RoundState::kRefused, "Withdraw"},
    {RoundState::kPushing, RoundInput::kSendAgain, RoundState::kPushing, "Begin, Skip, frames"},
    {RoundState::kPushing, RoundInput::kCommittedVerdict, RoundState::kDecided, "nothing"},
    {RoundState::kPushing, RoundInput::kFail, RoundState::kEnded, "FailRound"},

    {RoundState::kCommitting, RoundInput::kAllSent, RoundState::kCommitted, "Commit"},
    {RoundState::kCommitting, RoundInput::kRefused, RoundState::kWithdrawn, "Withdraw"},
    {RoundState::kCommitting, RoundInput::kSendAgain, RoundState::kCommitting,
     "Begin, Skip, frames"},
    {RoundState::kCommitting, RoundInput::kCommittedVerdict, RoundState::kEnded, "Deliver"},
    {RoundState::kCommitting, RoundInput::kFail, RoundState::kEnded, "FailRound"},

    {RoundState::kCommitted, RoundInput::kSendAgain, RoundState::kCommitting,
     "Begin, Skip, frames"},
    {RoundState::kCommitted, RoundInput::kCommittedVerdict, RoundState::kEnded, "Deliver"},
    {RoundState::kCommitted, RoundInput::kFail, RoundState::kEnded, "FailRound"},

    {RoundState::kWithdrawn, RoundInput::kSendAgain, RoundState::kWithdrawn, "Begin, Withdraw"},
    {RoundState::kWithdrawn, RoundInput::kCommittedVerdict, RoundState::kEnded, "Deliver"},
    {RoundState::kWithdrawn, RoundInput::kFail, RoundState::kEnded, "FailRound"},

    {RoundState::kDecided, RoundInput::kCommit, RoundState::kEnded, "Deliver"},
    {RoundState::kDecided, RoundInput::kWithdraw, RoundState::kEnded, "Deliver"},
    {RoundState::kDecided, RoundInput::kSendAgain, RoundState::kDecided, "nothing"},
    {RoundState::kDecided, RoundInput::kFail, RoundState::kEnded, "FailRound"},

    {RoundState::kRefused, RoundInput::kCommit, RoundState::kWithdrawn, "nothing"},
    {RoundState::kRefused, RoundInput::kWithdraw, RoundState::kWithdrawn, "nothing"},
    {RoundState::kRefused, RoundInput::kSendAgain, RoundState::kRefused, "Begin, Withdraw"},
    {RoundState::kRefused, RoundInput::kCommittedVerdict, RoundState::kDecided, "nothing"},
    {RoundState::kRefused, RoundInput::kFail, RoundState::kEnded, "FailRound"},
};

// The trainer's wait for a round.
class TrainerWait {
 public:
  // Its deadline; nullopt when the trainer does not wait.
  std::optional<absl::Time> until() const { return until_; }
  void Begin(absl::Time now, absl::Time until) {
    until_ = until;
    polls_ = until <= now;
  }
  void End(absl::Time now) {
    until_.reset();
    if (!polls_) waited_at_ = now;
  }
  // Whether the trainer only waits, as far as is known: many trainers poll.
  bool Lasts(absl::Time now) const {
    return (until_.has_value() && !polls_) || now < waited_at_ + kBetweenPolls;
  }
  // The workers that the aggregator waits for; empty: none is late.
  const std::string& held_up_by() const { return held_up_by_; }
  void SetHeldUpBy(std::string text) { held_up_by_ = std::move(text); }

  auto Fields() const { return std::tie(until_, polls_, waited_at_, held_up_by_); }

 private:
  // Longer than a trainer that polls needs from one poll to the next.
  static constexpr absl::Duration kBetweenPolls = absl::Seconds(1);

  std::optional<absl::Time> until_;
  bool polls_ = false;                           // The last wait did not wait.
  absl::Time waited_at_ = absl::InfinitePast();  // When the last real wait ran out.
  std::string held_up_by_;
};

// Whether the results of a withdrawn contribution reach the worker another way.
class ResultsElsewhere {
 public:
  void Go() { goes_ = true; }
  // Not all of them have come. Returns whether this is news.
  bool Request() {
    request_at_ = absl::InfiniteFuture();
    return goes_ && !std::exchange(requested_, true);
  }
  bool requested() const { return requested_; }
  bool without() const { return goes_ && !requested_; }
  // The round has a value. Those who bring its results have this long, so that this worker is not
  // evicted for them.
  void Await(absl::Time now) {
    if (without()) request_at_ = now + kPatience;
  }
  absl::Time request_at() const { return request_at_; }
  // The round is restarted or postponed.
  void GiveUp() { requested_ = goes_; }

  auto Fields() const { return std::tie(goes_, requested_, request_at_); }

 private:
  // Shorter than a lease, which is 5 s unless it is set.
  static constexpr absl::Duration kPatience = absl::Seconds(2);

  bool goes_ = false;
  bool requested_ = false;
  absl::Time request_at_ = absl::InfiniteFuture();
};

class Round {
 public:
  // `number` is 0 until the lane's next number is known. `numbers_known`: the aggregator has the
  // numbers of the optimizer from an earlier round of this session.
  Round(RoundNumber number, BeginRound begin, bool numbers_known)
      : number_(number),
        begin_(std::move(begin)),
        numbers_known_(numbers_known || begin_.optimizer == 0) {}

  RoundNumber number() const { return number_; }
  RoundState state() const { return state_; }
  // Whether the trainer has neither committed nor withdrawn yet.
  bool IsPushing() const {
    return state_ == RoundState::kPushing || state_ == RoundState::kDecided ||
           state_ == RoundState::kRefused;
  }
  // Whether the aggregator is to leave this contribution out.
  bool IsWithdrawn() const {
    return state_ == RoundState::kWithdrawn || state_ == RoundState::kRefused;
  }
  // Whether this is how the worker has begun the round: another weight would have changed on its
  // way, or in a memory.
  bool IsBegunAs(const RoundSpec& spec, uint64_t weight) const {
    return begin_.spec.op == spec.op && begin_.spec.weight_by == spec.weight_by &&
           WeightOf(begin_.spec, begin_.counts) == weight;
  }
  const BeginRound& begin() const { return begin_; }
  const Push& push() const { return push_; }
  bool Has(TensorHandle tensor) const { return push_.Has(tensor) || Skips(tensor); }
  bool Skips(TensorHandle tensor) const { return skipped_.count(tensor) > 0; }
  bool begin_sent() const { return begin_sent_; }
  TrainerWait& wait() { return wait_; }
  const TrainerWait& wait() const { return wait_; }
  ResultsElsewhere& elsewhere() { return elsewhere_; }
  const ResultsElsewhere& elsewhere() const { return elsewhere_; }

  // Takes one input; returns whether the table has it in this state.
  bool Apply(RoundInput input);

  // ---- the trainer's side; REQUIRES: IsPushing()
  void PushTensor(TensorHandle tensor, uint64_t bytes, uint32_t chunks, Digest digest,
                  std::optional<double> squared_norm) {
    push_.Add(tensor, bytes, chunks, digest, squared_norm);
  }
  void SkipTensor(TensorHandle tensor) { skipped_.emplace(tensor, std::nullopt); }
  void SetReason(std::string reason) { reason_ = std::move(reason); }
  // Returns whether this is news: a refusal is repeated on a new session.
  bool OnRefusal(const std::string& text) { return std::exchange(refusal_, text) != text; }
  // The last refusal of a part of the contribution, with what to do; empty: none.
  const std::string& refusal() const { return refusal_; }
  void SetNumber(RoundNumber number) { number_ = number; }

  // ---- also after it: the trainer's call may overlap with those of other threads
  void PushMore(const LaneId& lane, const client::PushMore::Part& part) {
    push_.Grow(part.tensor, part.chunks, part.digest, part.squared_norm, lane);
  }

  // Sends a withdrawal to the aggregator, if it has received the round in this session.
  void SendWithdraw(const Scope& scope, const LaneId& lane) const;

  // ---- the aggregator's side
  // A pushed or skipped tensor now has its index.
  void SetIndex(const Scope& scope, const LaneId& lane, TensorHandle tensor, TensorIndex index);
  void SetWindow(uint64_t window) { push_.SetWindow(window); }
  // The lane's chunks are on other shards now.
  void Place(const LaneId& lane) { push_.Place(lane); }
  void OnCredit(const Scope& scope, const LaneId& lane, const Credit& credit);
  void OnPull(const Scope& scope, const LaneId& lane, const Pull& pull);
  // See Push, here and below.
  bool TakeResume(absl::Time now) { return push_.TakeResume(now); }
  bool OnResults(const Scope& scope, const LaneId& lane, const ChunkRanges& ranges) {
    return push_.OnResults(lane, ranges, scope.now);
  }
  void OnPrepared() {
    prepared_ = true;
    wait_.SetHeldUpBy("");
  }
  void OnRestart(const Scope& scope, const LaneId& lane, const AttemptRestarted& restart);
  // Where the round stands for this worker on a new session.
  void OnOpen(const Scope& scope, const LaneId& lane, const OpenRound& open);

  void EndSession();
  void LoseStream(const Scope& scope, const LaneId& lane, uint32_t stream) {
    push_.LoseStream(lane, stream, scope.streams);
  }
  void ForgetIndexes(const Scope& scope);
  // Its round ended without it: everything is sent again, for round `number`.
  void Postpone(const Scope& scope, RoundNumber number);
  // The contribution is no longer needed.
  void Stop(const Scope& scope) { push_.Stop(scope.streams); }

  // Sends the messages that this session lacks, and the frames that may be sent. REQUIRES: the lane
  // has its index in this session, and number() is known.
  void Advance(const Scope& scope, const LaneId& lane);

  auto Fields() const {
    return std::tie(number_, begin_.lane, begin_.spec, begin_.counts, begin_.step_label,
                    begin_.samples, begin_.represents, begin_.local_reduction, begin_.reduced_with,
                    begin_.ranks, begin_.compares_step, begin_.sample_epoch, begin_.call,
                    begin_.optimizer, begin_.optimizer_numbers, begin_.deferred, state_, push_,
                    skipped_, reason_, elsewhere_, refusal_, begin_sent_, numbers_known_,
                    rest_sent_, prepared_, wait_);
  }

 private:
  // All that this session has sent of it is sent again.
  void SendAgain();
  void SendBegin(const Scope& scope, const LaneId& lane);
  void SendRest(const Scope& scope, const LaneId& lane);
  void SendCommit(const Scope& scope, const LaneId& lane) const;

  RoundNumber number_;
  BeginRound begin_;
  RoundState state_ = RoundState::kPushing;
  Push push_;
  std::map<TensorHandle, std::optional<TensorIndex>> skipped_;
  std::string reason_;  // Why it is withdrawn.
  ResultsElsewhere elsewhere_;
  std::string refusal_;      // The last one.
  bool begin_sent_ = false;  // Begin was sent in this session.
  bool numbers_known_;       // The begin needs no numbers of the optimizer.
  uint32_t rest_sent_ = 0;   // Skips of tensors below it were sent in this session.
  bool prepared_ = false;    // Nothing is pushed meanwhile.
  TrainerWait wait_;
};

}  // namespace basin::client

#endif  // BASIN_CLIENT_CORE_ROUND_H_
