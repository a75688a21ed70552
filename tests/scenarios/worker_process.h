// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// One trainer process: a Client, its gradients, and the results that it has staged.
//
// Thread contract: one world, one thread.

#ifndef BASIN_TESTS_SCENARIOS_WORKER_PROCESS_H_
#define BASIN_TESTS_SCENARIOS_WORKER_PROCESS_H_

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "client/core/client.h"
#include "tests/scenarios/payload.h"
#include "tests/shell/client_shell.h"

namespace basin::scenarios {

class World;

class WorkerProcess {
 public:
  // `number` selects this worker's digit of a sum (oracle.h).
  WorkerProcess(World& world, std::string name, uint32_t number, client::Config config);

  void Step(const client::Event& event);
  void OnMessage(const ToWorker& message);
  void OnFrame(const ResultFrame& frame);
  void OnValue(const ValueFrame& frame);

  // The trainer's calls. They name lanes and tensors; an unknown name is an error of the script.
  void Register(const std::string& lane, LaneKind kind, const std::vector<TensorSpec>& tensors);
  bool HasLane(const std::string& lane) const { return lanes_by_name_.count(lane) > 0; }
  bool HasTensor(const std::string& lane, const std::string& tensor) const;
  std::vector<std::string> TensorsOf(const std::string& lane) const;
  client::LaneHandle Handle(const std::string& lane) const { return lanes_by_name_.at(lane); }
  client::TensorHandle Handle(const std::string& lane, const std::string& tensor) const;
  // With `lie`, the digest does not fit the bytes, as with broken memory.
  void Push(const std::string& lane, const std::string& tensor, bool lie);
  void Announce(const ValueKey& key, const TensorSpec& spec, uint64_t content);

  const std::string& name() const { return name_; }
  const client::Config& config() const { return config_; }
  client::Client& core() { return core_; }

  bool alive = true;
  bool stopped = false;               // By SIGSTOP.
  bool cut_up = false;                // Nothing that it sends arrives.
  bool cut_down = false;              // Nothing arrives at it.
  std::string target = "aggregator";  // The aggregator that it connects to.

 private:
  struct TrainerLane {
    std::string name;
    std::vector<TensorSpec> tensors;
    std::map<std::string, client::TensorHandle> by_name;
  };
  void CarryOut(const client::Action& action);
  void Require(const absl::Status& status);
  void Deliver(const client::Deliver& deliver);
  std::string DescribeResults(const client::Deliver& deliver) const;
  void SayMembership(const client::MembershipNow& now);
  void SendContribution(const client::SendContribution& send);
  void SendSupply(const client::SendSupply& send);

  World& world_;
  const std::string name_;
  const uint32_t number_;
  const client::Config config_;
  client::Client core_;
  std::vector<TrainerLane> lanes_;
  std::map<std::string, client::LaneHandle> lanes_by_name_;
  std::map<LaneIndex, std::vector<TensorSpec>> layouts_;  // As received.
  shell::ClientShell<Element> shell_;
  std::map<std::tuple<std::string, std::string, uint64_t>, std::pair<uint64_t, uint64_t>>
      values_;                          // Announced content, and its bytes.
  const ResultFrame* frame_ = nullptr;  // The frame of the Step in progress.
  const ValueFrame* value_frame_ = nullptr;
};

}  // namespace basin::scenarios

#endif  // BASIN_TESTS_SCENARIOS_WORKER_PROCESS_H_
