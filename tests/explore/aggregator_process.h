// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// One life of the aggregator in an explored world: its process (tests/world), whose clock moves
// only when a step of the world says so, and the shards that are connected with it, which forget
// everything when it ends. `wrong` reports what a real runner would take for a broken
// core, such as a reduction of bytes that it does not hold.
//
// Thread contract: a plain value.

#ifndef BASIN_TESTS_EXPLORE_AGGREGATOR_PROCESS_H_
#define BASIN_TESTS_EXPLORE_AGGREGATOR_PROCESS_H_

#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "tests/explore/aggregator_output.h"
#include "tests/explore/item.h"
#include "tests/explore/shard_process.h"
#include "tests/world/aggregator_process.h"

namespace basin::explore {

// The name of a job contains its number.
inline JobName NameOfJob(uint32_t job) { return absl::StrCat("j", job); }

class AggregatorProcess : public world::AggregatorProcess<Sums> {
 public:
  AggregatorProcess(const aggregator::Config& config, uint32_t jobs, absl::Time started,
                    absl::Time now)
      : Base(config, started), jobs_(jobs), started_(started), now_(now) {}

  void Open(aggregator::SessionId session);
  // Opens its data stream, which has the number of the session.
  void OpenStream(aggregator::SessionId session);
  void LoseStream(aggregator::SessionId session);
  void Take(aggregator::SessionId session, const Item& item);
  // The session ends and is lost.
  void Lose(aggregator::SessionId session);
  void Evict(uint32_t job, const WorkerId& worker);
  // Ends the oldest reduction in progress. REQUIRES: Reducing().
  void FinishReduction();
  bool Reducing() const { return !reductions_.empty(); }

  // Returns whether the recovery window of a job can pass: the job recovers, or it has received no
  // hello yet.
  bool WindowRuns() const;
  void PassWindow();
  // When a round leaves out those who are late; InfiniteFuture if none waits for that.
  absl::Time GraceEnd() const;
  void PassGrace();
  // Returns whether a job waits for the start timeout.
  bool StartTimeoutRuns() const;
  void PassStartTimeout();

  // ---- shards, by slot
  // It connects under this number.
  void TakeShard(uint32_t slot, ShardId id);
  // The process ends. Nobody has noticed that yet.
  void KillShard(uint32_t slot) { shards_.at(slot).Die(); }
  // The aggregator notices it.
  void LoseShard(uint32_t slot);
  void DrainShard(uint32_t slot) { shards_.at(slot).Drain(); }
  void FinishReductionOf(uint32_t slot) { shards_.at(slot).FinishReduction(); }
  // Its oldest report arrives.
  void HearShard(uint32_t slot);
  void OpenStreamOf(uint32_t slot, aggregator::StreamId stream, SessionToken token) {
    shards_.at(slot).Open(stream, token);
  }
  // A worker closes a data stream, or sends on one, to whichever shard has it.
  void CloseShardStream(aggregator::StreamId stream);
  void TakeAtShard(aggregator::StreamId stream, const Item& item);
  const std::map<uint32_t, ShardProcess>& shards() const { return shards_; }
  // When a shard that drains is taken from lanes that rest; InfiniteFuture if none waits for that.
  absl::Time VacateAt() const;
  // When a job goes on without a shard that a worker cannot reach; InfiniteFuture as above.
  absl::Time UnreachableEnd() const;
  void PassUntil(absl::Time time);

  uint32_t jobs() const { return jobs_; }
  const aggregator::Job* FindJob(uint32_t job) const { return core().FindJob(NameOfJob(job)); }
  Term term() const { return core().config().term; }
  absl::Time now() const { return now_; }

  std::vector<AggregatorOutput> TakeOutputs() { return std::exchange(outputs_, {}); }
  // Describes the fault of the last step; empty if there is none.
  const std::string& wrong() const { return wrong_; }

  auto Fields() const {
    return std::tie(core().config().term, core_, now_, shell_, reductions_, shards_);
  }

 private:
  using Base = world::AggregatorProcess<Sums>;
  friend Base;
  friend Base::Shell;
  using Kind = AggregatorOutput::Kind;

  void Step(const aggregator::Event& event);
  // Carries it out where it is for.
  void Route(aggregator::Action& action);
  // A shard has been released, and its connection is closed.
  void EndReleased(ShardId id);
  void Require(const absl::Status& status);
  void SendOn(aggregator::StreamId stream, const Frame& frame) {
    outputs_.push_back({Kind::kFrame, stream, Item(std::get<ResultFrame>(frame))});
  }
  void Started(Reduction reduction) { reductions_.push_back(std::move(reduction)); }
  void Do(aggregator::Send& send) {
    outputs_.push_back({Kind::kMessage, send.session, Item(std::move(send.message))});
  }
  void Do(const aggregator::SendAll& send);
  void Do(aggregator::EndSession& end) {
    outputs_.push_back({Kind::kEnd, end.session, Item(ToWorker(Ended{std::move(end.error)}))});
  }
  void Do(const aggregator::ReleaseShard& release) {
    Require(absl::InternalError(absl::StrCat("it releases shard ", release.shard, " here")));
  }
  // A worker sees nothing of these.
  void Do(const aggregator::Note&) {}
  void Do(const aggregator::ResultsTaken&) {}
  void Do(const aggregator::AcceptStream&) {}
  void Do(const aggregator::CloseStream&) {}
  void Do(const aggregator::Drained&) {}
  // No explored world writes a state file.
  void Do(const aggregator::SaveState&) { wrong_ = "it saves a state that nobody reads"; }
  void Do(const aggregator::SaveSettings&) { wrong_ = "it saves settings that nobody reads"; }

  uint32_t jobs_;
  absl::Time started_;
  absl::Time now_;
  std::vector<Reduction> reductions_;  // In progress, the oldest first.
  std::map<uint32_t, ShardProcess> shards_;
  const PushFrame* reported_ = nullptr;  // The frame whose report is taken.
  std::vector<AggregatorOutput> outputs_;
  std::string wrong_;
};

}  // namespace basin::explore

#endif  // BASIN_TESTS_EXPLORE_AGGREGATOR_PROCESS_H_
