// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// One trainer process: its process (tests/world), its gradients, and what is reported to it.
//
// Thread contract: one world, one thread.

#ifndef BASIN_TESTS_SCENARIOS_WORKER_PROCESS_H_
#define BASIN_TESTS_SCENARIOS_WORKER_PROCESS_H_

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/scenarios/payload.h"
#include "tests/world/worker_process.h"

namespace basin::scenarios {

class World;

class WorkerProcess : public world::WorkerProcess<Elements> {
 public:
  // `number` selects this worker's digit of a sum (oracle.h).
  WorkerProcess(World& world, std::string name, uint32_t number, client::Config config);

  void Step(const client::Event& event);
  template <typename Frame>
  void OnFrame(const Frame& frame) {
    Base::Arrive(frame, *this);
  }

  // The trainer's calls. They name lanes and tensors; an unknown name is an error of the script.
  bool HasLane(const std::string& lane) const { return core_.FindLane(lane) != nullptr; }
  bool HasTensor(const std::string& lane, const std::string& tensor) const;
  std::vector<std::string> TensorsOf(const std::string& lane) const;
  client::LaneHandle Handle(const std::string& lane) const { return core_.FindLane(lane)->handle; }
  client::TensorHandle Handle(const std::string& lane, const std::string& tensor) const;
  // With `lie`, the digest does not fit the bytes, as with broken memory.
  void Push(const std::string& lane, const std::string& tensor, bool lie);
  void Announce(const BlobKey& key, const TensorSpec& spec, uint64_t content);

  const std::string& name() const { return name_; }
  const client::Config& config() const { return core_.config(); }

  bool alive = true;
  bool stopped = false;               // By SIGSTOP.
  bool cut_up = false;                // Nothing that it sends arrives.
  bool cut_down = false;              // Nothing arrives at it.
  std::string target = "aggregator";  // The aggregator that it connects to.

 private:
  using Base = world::WorkerProcess<Elements>;
  friend Base;

  template <typename Frame>
  void SendOn(uint32_t stream, Frame frame);
  Element ChunkOf(const client::SendContribution&, const TensorSpec& spec, uint32_t) const {
    return {spec.name, GradientOf(number_)};
  }
  void Require(const absl::Status& status);
  void Do(const client::OpenSession& open);
  void Do(const client::CloseSession&);
  void Do(const client::OpenStream& open);
  void Do(const client::CloseStream&) {}  // There are no shards.
  void Do(const client::Send& send);
  void Do(const client::Deliver& deliver);
  void Do(const client::FailRound& fail);
  void Do(const client::RoundRejected& rejected);
  void Do(const client::RoundHeldUp& held_up) { Print(held_up.text); }
  void Do(const client::JobPaused& paused) {
    Print(paused.text.empty() ? "the job goes on" : paused.text);
  }
  void Do(const client::ForgetLane& forget) {
    Print(absl::StrCat("forgets lane handle ", forget.lane));
  }
  void Do(const client::Refused& refused);
  void Do(const client::MembershipNow& now);
  void Do(const client::BlobReady& ready);
  void Do(const client::BlobFailed& failed);
  void Do(const client::SamplesAnswered&) {}
  void Do(const client::BatchAnswered&) {}
  void Do(const client::Fatal& fatal);
  void Do(const client::Left&) { Print("has left"); }
  void Print(const std::string& text);
  std::string DescribeResults(const client::Deliver& deliver) const;

  World& world_;
  const std::string name_;
  const uint32_t number_;
};

}  // namespace basin::scenarios

#endif  // BASIN_TESTS_SCENARIOS_WORKER_PROCESS_H_
