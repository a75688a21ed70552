// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// One life of one worker in an explored world: its process (tests/world), and a tiny trainer with
// one tensor in one lane that runs a given number of rounds. `wrong` reports what a real trainer
// would take for a broken core.
//
// Thread contract: a plain value.

#ifndef BASIN_TESTS_EXPLORE_WORKER_PROCESS_H_
#define BASIN_TESTS_EXPLORE_WORKER_PROCESS_H_

#include <cstdint>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "tests/explore/item.h"
#include "tests/world/worker_process.h"

namespace basin::explore {

inline constexpr char kLane[] = "g";

struct WorkerOutput {
  enum class Kind : uint8_t {
    kMessage,
    kFrame,
    kOpenSession,
    kCloseSession,
    kOpenStream,   // To the aggregator when its number is 0, or else to a shard.
    kCloseStream,  // To a shard.
  };
  Kind kind = Kind::kMessage;
  uint32_t stream = 0;
  uint32_t slot = 0;  // kOpenStream: that of the shard.
  Item item = {};
};

// A round that a worker applied; the chain stands for the whole history up to it.
struct Applied {
  RoundNumber round = 0;
  uint64_t chain = 0;
  bool operator==(const Applied& other) const {
    return round == other.round && chain == other.chain;
  }
  auto Fields() const { return std::tie(round, chain); }
};

enum class TrainerPhase : uint8_t {
  kWaiting = 0,  // It is ready, but not a member.
  kIdle = 1,     // It is a member between rounds.
  kBegun = 2,    // It has begun its round and pushed nothing yet.
  kInRound = 3,  // It has committed and waits.
  kStopped = 4,  // An error made it stop for good.
  kWithout = 5,  // It has withdrawn without results, and has not requested them yet.
};

// How several trainers are one contributor.
enum class Node : uint8_t {
  kNone = 0,
  kShrinks = 1,  // Worker w0 stands for two trainers in every odd round, and for one in the others.
  kRepresents =
      2,  // It contributes for w1, too, which withdraws without results and requests them.
};

// What all trainers of a world have in common.
struct Trainers {
  JobSettings settings;
  Node node = Node::kNone;
  uint32_t chunks = 1;        // Of the tensor.
  bool knows_shards = false;  // Their clients do.
};

class WorkerProcess : public world::WorkerProcess<Sums> {
 public:
  // REQUIRES: `trainers` outlives it and its copies.
  WorkerProcess(uint32_t job, uint32_t worker, uint32_t life, const Trainers& trainers);

  // The process starts: it opens a session, registers its tensor and is ready.
  void Start(LaneKind kind);
  void SessionUp();
  void SessionDown();
  void StreamUp(uint32_t stream);  // To a shard.
  void StreamDown(uint32_t stream);
  // Whether it reports the shard at the end of this stream as out of reach.
  bool ReportsUnreachable(uint32_t stream) const;
  void Take(const Item& item);
  // The trainer's next call. With `whole`, it begins, pushes, commits and waits in one step.
  bool TrainerCanStep(RoundNumber last_round) const;
  void StepTrainer(bool whole);

  uint32_t life() const { return life_; }
  Nonce nonce() const { return core_.config().nonce; }
  TrainerPhase trainer() const { return trainer_; }
  RoundNumber last_verdict() const;
  // Returns whether it has applied or staged this version of the round and remembers it.
  bool Holds(const Applied& version) const;

  std::vector<WorkerOutput> TakeOutputs() { return std::move(outputs_); }
  // The verdicts that the last step applied.
  const std::vector<Applied>& applied() const { return applied_; }
  // Describes the fault of the last step; empty if there is none.
  const std::string& wrong() const { return wrong_; }
  // It received the error that its history is not the job's.
  bool conflict() const { return conflict_; }

  auto Fields() const {
    return std::tie(worker_, life_, core_, trainer_, loads_, generation_, shell_, conflict_);
  }

 private:
  using Base = world::WorkerProcess<Sums>;
  friend Base;
  using Kind = WorkerOutput::Kind;

  // Forgets the outputs of the step before.
  void BeginStep();
  void Step(const client::Event& event);
  void SendOn(uint32_t stream, PushFrame frame) {
    outputs_.push_back({Kind::kFrame, stream, 0, Item(std::move(frame))});
  }
  void SendOn(uint32_t /*stream*/, const BlobFrame&) { Wrong("no explored world has values"); }
  Chunk ChunkOf(const client::SendContribution& send, const TensorSpec&, uint32_t chunk) const {
    return ContributionOf(worker_, life_, send.round, chunk);
  }
  void Require(const absl::Status& status) {
    if (!status.ok()) Wrong(std::string(status.message()));
  }
  void Do(client::Send& send) {
    outputs_.push_back({Kind::kMessage, 0, 0, Item(std::move(send.message))});
  }
  void Do(const client::OpenSession&) { outputs_.push_back({Kind::kOpenSession}); }
  void Do(const client::CloseSession&) { outputs_.push_back({Kind::kCloseSession}); }
  void Do(const client::OpenStream& open);
  void Do(const client::CloseStream& close) {
    outputs_.push_back({Kind::kCloseStream, close.stream});
  }
  void Do(const client::Deliver& deliver);
  void Do(const client::FailRound& fail);
  void Do(const client::RoundRejected& rejected);
  void Do(const client::Refused& refused);
  void Do(const client::MembershipNow& place);
  void Do(const client::Fatal& fatal);
  template <typename Other>
  void Do(const Other&) {
    Wrong("it asks for something that no explored world leads to");
  }
  void SetRanks(RoundNumber round);
  // The trainers in a contribution.
  uint32_t TrainersOf(uint32_t worker, RoundNumber round) const;
  void Wrong(std::string what);

  uint32_t worker_;
  uint32_t life_;
  const Trainers* trainers_;
  TrainerPhase trainer_ = TrainerPhase::kWaiting;
  bool loads_ = false;  // It must load a donor's state before it begins.
  Generation generation_;
  bool conflict_ = false;
  // Outputs of the last step.
  bool declare_ready_ = false;
  bool opens_ = false;  // Its data stream to the aggregator.
  std::vector<WorkerOutput> outputs_;
  std::vector<Applied> applied_;
  std::string wrong_;
};

}  // namespace basin::explore

#endif  // BASIN_TESTS_EXPLORE_WORKER_PROCESS_H_
