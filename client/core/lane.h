// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// One lane as this worker knows it: its tensors and their indexes, its history of verdicts, the
// round in flight, and how the next round is settled.
//
// Thread contract: a plain value.

#ifndef BASIN_CLIENT_CORE_LANE_H_
#define BASIN_CLIENT_CORE_LANE_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "client/core/layout.h"
#include "client/core/round.h"
#include "client/core/settlement.h"
#include "client/core/streams.h"

namespace basin::client {

// Verdicts in a hello, so that an aggregator without memory can send them again.
inline constexpr size_t kRememberedVerdicts = 2;

// A tensor that this process registered.
struct RegisteredTensor {
  TensorSpec spec;
  std::optional<TensorIndex> index;
  Error refusal;  // Why it has no index and gets none; kOk: it will get one.
  auto Fields() const { return std::tie(spec, index, refusal); }
};

class Lane {
 public:
  Lane(LaneHandle handle, std::string name, LaneKind kind)
      : handle_(handle), name_(std::move(name)), kind_(kind) {}

  const std::string& name() const { return name_; }
  LaneKind kind() const { return kind_; }
  std::optional<LaneIndex> index() const { return index_; }
  const Layout& layout() const { return layout_; }
  const std::vector<RegisteredTensor>& tensors() const { return tensors_; }
  // History. Meaningful once started().
  bool started() const { return started_; }
  RoundNumber last_verdict() const { return last_verdict_; }
  std::optional<uint64_t> chain() const { return chain_; }
  const std::vector<VerdictRecord>& verdicts() const { return verdicts_; }
  // The round in flight.
  const std::optional<Round>& round() const { return round_; }
  const Settlement& settlement() const { return settlement_; }
  // A received verdict, which is delivered when the trainer has committed or withdrawn.
  const std::optional<VerdictRecord>& undelivered() const { return undelivered_; }
  // The round in flight, if the trainer waits for it and the aggregator knows it.
  std::optional<RoundWait> TrainerWaits(absl::Time now) const;

  // ---- the trainer's side; an error that is not kOk refuses the call, and nothing has changed
  Error WhyNotRegister(const Config& config, LaneKind kind,
                       const std::vector<TensorSpec>& tensors) const;
  void Register(const Scope& scope, const std::vector<TensorSpec>& tensors);
  Error Begin(const Scope& scope, const BeginRound& begin);
  Error PushTensor(const Scope& scope, const client::PushTensor& push);
  Error PushTensors(const Scope& scope, const client::PushTensors& push);
  Error PushMore(const Scope& scope, const client::PushMore& more);
  Error SkipTensor(const Scope& scope, const client::SkipTensor& skip);
  Error Commit(const Scope& scope);
  Error Withdraw(const Scope& scope, const WithdrawRound& withdraw);
  Error RequestResults(const Scope& scope);
  Error Wait(absl::Time now, absl::Time until);
  // Ends the round in flight, if any, with an error.
  void FailRoundInFlight(const Scope& scope, const Error& error);
  void Tick(const Scope& scope);
  // Ends the waits that are over, or all waits with `error`, when it is given.
  void EndWaits(const Scope& scope, const std::optional<Error>& error);
  // This worker has ceased to be a member: fails the round that it began, unless the aggregator has
  // opened it with this worker.
  void EndMembership(const Scope& scope);

  // ---- membership
  // The worker counts in this lane from `round` on; `chain` is the chain of the earlier rounds.
  void Start(RoundNumber round, std::optional<uint64_t> chain);
  // Starts at the round of the layout, unless the start is already known.
  void StartAtLayout();
  // The worker takes part in no further round: results that it has not requested are not needed.
  void Finish();
  // The incarnation has ended: no information from the aggregator is valid any longer.
  void Forget();

  // ---- the aggregator's side
  Finding OnLayout(const Scope& scope, const LaneLayout& layout);
  void OnOpen(const Scope& scope, const OpenRound& open);
  void OnCredit(const Scope& scope, const Credit& credit);
  void OnPull(const Scope& scope, const Pull& pull);
  void OnHeldUp(const Scope& scope, const HeldUp& held_up);
  Finding OnRestart(const Scope& scope, const AttemptRestarted& restart);
  Finding OnResult(const Scope& scope, const ResultReceived& frame);
  Finding OnPrepared(const Scope& scope, const Prepared& prepared);
  // The aggregator refuses to register the tensor; "": every one that has no index.
  void OnRegistrationRefused(const Scope& scope, const std::string& tensor, const Error& error);
  // Whether a refusal of the round in flight is news to the trainer.
  bool OnRefusal(const Error& error) { return round_->OnRefusal(error.text); }
  void OnSupply(const Scope& scope, const Supply& supply);
  // `late`: it was in a welcome, so no result can be in flight.
  Finding OnVerdict(const Scope& scope, const VerdictRecord& record, bool late);
  // The aggregator has expired the lane: names it again, once for each round.
  void RegisterAgain(const Scope& scope);

  void EndSession();
  void LoseStream(const Scope& scope, uint32_t stream);
  // A new session or stream has opened, or a message allows more to be sent.
  void SayRegister(const Scope& scope) const { SayTensors(scope, 0); }
  void Advance(const Scope& scope);

  // For a hello; nullopt without a history.
  std::optional<LaneHistory> History() const;
  absl::Time NextDeadline() const {
    if (!round_.has_value()) return absl::InfiniteFuture();
    return std::min(round_->wait_until().value_or(absl::InfiniteFuture()), round_->request_at());
  }

  auto Fields() const {
    return std::tie(handle_, name_, kind_, tensors_, by_name_, index_, in_session_, layout_,
                    window_, told_round_, started_, last_verdict_, chain_, verdicts_, settlement_,
                    round_, undelivered_, early_, asked_again_, finished_);
  }

 private:
  // Repeats the withdrawal without the wish to go without results. REQUIRES: there is a round.
  void RequestResultsNow(const Scope& scope);
  LaneId Id() const { return {handle_, *index_, name_, layout_}; }
  RoundNumber next() const { return last_verdict_ + 1; }
  std::string Where() const;  // "lane g, round 7", for errors.
  std::string Obstacle(const Scope& scope) const;
  // What is wrong with a value that the aggregator announces, compared with what it decided and
  // with what this worker asked for.
  Finding CheckDecision(const Scope& scope, RoundNumber round, const RoundValue& value) const;
  Error RefuseCall(ErrorCode code, const std::string& why) const;
  // Why a tensor cannot be pushed or skipped now; kOk when it can.
  Error WhyNotTensor(TensorHandle tensor) const;
  Error WhyNotPush(TensorHandle tensor) const;
  void AddPush(const Scope& scope, const client::PushTensor& push);
  // The tensor has this index, unless the job has another tensor by that name.
  void MapTensor(const Scope& scope, TensorHandle tensor, TensorIndex index);
  // The tensor gets no index, so its pushed bytes cannot be sent.
  void RefuseTensor(const Scope& scope, TensorHandle tensor, const Error& error);
  void SayTensors(const Scope& scope, size_t first) const;
  // Whether the checked bytes of a committed value are here.
  bool Holds(const VerdictRecord& record) const;
  // A verdict that arrived before its results is recorded once they are here.
  Finding OnEarly(const Scope& scope, Finding finding);
  bool WentWithout(const Scope& scope, const VerdictRecord& record) const;
  void Pass(const Scope& scope, const VerdictRecord& record);
  void Extend(const VerdictRecord& record);
  void Record(const Scope& scope, const VerdictRecord& record);
  void Deliver(const Scope& scope, const VerdictRecord& record);

  LaneHandle handle_;
  std::string name_;
  LaneKind kind_;
  std::vector<RegisteredTensor> tensors_;  // By handle.
  std::map<std::string, TensorHandle> by_name_;

  std::optional<LaneIndex> index_;
  bool in_session_ = false;  // The aggregator of this session has sent the lane's index.
  Layout layout_;
  uint64_t window_ = 0;         // With which a round starts.
  RoundNumber told_round_ = 0;  // From the last layout.

  bool started_ = false;
  RoundNumber last_verdict_ = 0;
  std::optional<uint64_t> chain_;  // Unknown if the lane was joined without a chain.
  std::vector<VerdictRecord> verdicts_;

  Settlement settlement_;
  std::optional<Round> round_;
  std::optional<VerdictRecord> undelivered_;
  std::optional<VerdictRecord> early_;  // A verdict that arrived before its results.
  RoundNumber asked_again_ = 0;         // RegisterAgain was done for this round.
  bool finished_ = false;
};

}  // namespace basin::client

#endif  // BASIN_CLIENT_CORE_LANE_H_
