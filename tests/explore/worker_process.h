// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// One life of one worker in an explored world: the client's core, the shell that holds what stands
// for result bytes, and a tiny trainer with one tensor in one lane that runs a given number of
// rounds. What a real trainer would take for a broken core is reported in `wrong`.
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
#include "client/core/client.h"
#include "tests/explore/item.h"
#include "tests/shell/client_shell.h"

namespace basin::explore {

inline constexpr char kLane[] = "g";

struct WorkerOutput {
  enum class Kind : uint8_t {
    kMessage,
    kFrame,
    kOpenSession,
    kCloseSession,
    kOpenStream,  // The data stream.
  };
  Kind kind = Kind::kMessage;
  Item item;
};

// A round as a worker applied it: its chain stands for the whole history up to it.
struct Applied {
  RoundNumber round = 0;
  uint64_t chain = 0;
  bool operator==(const Applied& other) const {
    return round == other.round && chain == other.chain;
  }
  auto Fields() const { return std::tie(round, chain); }
};

enum class TrainerPhase : uint8_t {
  kWaiting = 0,  // Ready, and not a member.
  kIdle = 1,     // A member between rounds.
  kBegun = 2,    // Has begun its round and pushes nothing yet.
  kInRound = 3,  // Has committed and waits.
  kStopped = 4,  // Was told that it cannot go on.
};

class WorkerProcess {
 public:
  WorkerProcess(uint32_t job, uint32_t worker, uint32_t life, const JobSettings& settings);

  // The process starts: it opens a session, registers its tensor and is ready.
  void Start(LaneKind kind);
  void SessionUp();
  void SessionDown();
  void StreamDown();
  void Take(const Item& item);
  // The trainer's next call. With `whole`, it begins, pushes, commits and waits in one.
  bool TrainerCanStep(RoundNumber last_round) const;
  void StepTrainer(bool whole);

  uint32_t life() const { return life_; }
  Nonce nonce() const { return client_.config().nonce; }
  const client::Client& client() const { return client_; }
  TrainerPhase trainer() const { return trainer_; }
  RoundNumber last_verdict() const;
  // Whether it remembers this version of the round: applied, or staged.
  bool Holds(const Applied& version) const;

  std::vector<WorkerOutput> TakeOutputs() { return std::move(outputs_); }
  // Verdicts that the last step applied.
  const std::vector<Applied>& applied() const { return applied_; }
  // What is wrong with the last step; empty when nothing is.
  const std::string& wrong() const { return wrong_; }
  // It was told that its history is not the job's.
  bool conflict() const { return conflict_; }

  auto Fields() const {
    return std::tie(worker_, life_, client_, trainer_, loads_, generation_, shell_, conflict_);
  }

 private:
  void Step(const client::Event& event, const ResultFrame* arrived);
  void Call(const client::Event& event);
  void Do(const client::Action& action, const ResultFrame* arrived);
  void Deliver(const VerdictRecord& record);
  void Fail(const client::FailRound& fail);
  void TakePlace(const client::MembershipNow& place);
  void Wrong(std::string what);

  uint32_t worker_;
  uint32_t life_;
  client::Client client_;
  TrainerPhase trainer_ = TrainerPhase::kWaiting;
  bool loads_ = false;  // The state of a donor, until it begins.
  Generation generation_;
  shell::ClientShell<Chunk> shell_;
  bool conflict_ = false;
  // In the last step.
  bool declare_ready_ = false;
  std::vector<WorkerOutput> outputs_;
  std::vector<Applied> applied_;
  std::string wrong_;
};

}  // namespace basin::explore

#endif  // BASIN_TESTS_EXPLORE_WORKER_PROCESS_H_
