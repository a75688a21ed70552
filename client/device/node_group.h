// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The ranks of one node that reduce among themselves before one of them contributes for all: what
// a trainer with its gradients on a device uses of the group. Each rank of the node has one.
//
// The LOCAL PHASE of a round: NextTurn, then the same buckets in the same order on every rank with
// Reduce, then End. When End says kEnded, the leader of the turn has the results of all buckets in
// its memory, and contributes them; the other ranks have nothing to contribute. When it says
// kAlone, something has failed before that, on any rank: each rank contributes its inputs for
// itself. The next phase is one of all ranks that are left.
//
// A rank that cannot go on, because it has no memory for what it reduces or its backward has
// failed, calls Fail.
//
// Then the results of the round come to the leader, and Share brings them to the other ranks.
//
// A rank that starts after its node's group has formed is not taken in: rounds of the job and local
// phases would have to be matched. NextTurn of that rank returns FAILED_PRECONDITION, and it
// contributes for itself.
//
// Failure: a status is the end of the group for this rank, with the exceptions at the calls.
//   NOT_FOUND            Open: there is no NCCL
//   ALREADY_EXISTS       Open: another process has this rank
//   INVALID_ARGUMENT     the ranks do not agree; Reduce: memory of another device
//   DEADLINE_EXCEEDED    a rank has not come
//   UNAVAILABLE          NCCL or the device has failed several times
//
// Ownership of memory: inputs and results are used until End has returned kEnded or kAlone, or the
// object is gone. Thread contract: one thread at a time.

#ifndef BASIN_CLIENT_DEVICE_NODE_GROUP_H_
#define BASIN_CLIENT_DEVICE_NODE_GROUP_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "accelerator/device/device.h"
#include "accelerator/node/core/settings.h"
#include "accelerator/node/nccl/communicator.h"
#include "accelerator/node/nccl/library.h"
#include "accelerator/node/runner/runner.h"
#include "client/device/sharing.h"
#include "client/transport/worker.h"
#include "kernels/plan.h"
#include "protocol/dtype.h"

namespace basin::client::group {

namespace node = accelerator::node;

struct NodeGroupOptions {
  node::LocalSettings settings;  // REQUIRES: grouped.
  std::string worker;            // The id of this rank in its job.
  // What must be the same on every rank besides the settings, by the name that a user knows.
  std::map<std::string, std::string> agreed;
  std::string directory;  // For the sockets of the ranks.
  std::shared_ptr<const nccl::Library> library;
  std::shared_ptr<accelerator::Device> device;
  // See GroupConfig and CommunicatorOptions. Ranks begin a round as far apart as their batches
  // take, so the time for work is that of PyTorch's process groups.
  absl::Duration gather_within = absl::Seconds(60);
  std::chrono::milliseconds work_within{600000};
  std::chrono::milliseconds call_within{30000};
  std::chrono::milliseconds quiet_within{10000};
  size_t scratch_bytes = size_t{64} << 20;
  uint64_t pinned_bytes = uint64_t{512} << 20;  // See Sharing.
};

// One tensor of a bucket. Everything but the memory and the stream is the same on every rank.
struct NodeTensor {
  DType dtype = DType::kUnspecified;   // That of the input.
  DType result = DType::kUnspecified;  // The input's, or a smaller one of floats.
  uint64_t count = 0;                  // Elements.
  const void* input = nullptr;
  void* output = nullptr;                // At the leader; unused elsewhere.
  accelerator::Stream stream = nullptr;  // In which the input is written.
};

struct NodeTurn {
  int members = 1;
  bool leads = false;
  std::string leader;  // Its worker id.
  // Those of the other members, in byte order, and how they are reduced: the plan that the leader
  // reports with its contribution.
  std::vector<std::string> others;
  LocalReduction reduction = LocalReduction::kUnspecified;
};

enum class PhaseEnd : uint8_t { kEnded, kAlone };

// This rank cannot take part in the group of its node, for this reason: reports it to the other
// ranks as they come, so that they do not wait for it. NextTurn of the runner returns the reason
// when it has reported to all, or after `gather_within`; to end the runner earlier leaves the rest
// to wait. The options need no library and no device. Failure: as NodeGroup::Open.
absl::StatusOr<std::unique_ptr<node::Runner>> ReportWhyNot(const NodeGroupOptions& options,
                                                           const absl::Status& why);

class NodeGroup {
 public:
  // Begins to gather the ranks of the node.
  static absl::StatusOr<std::unique_ptr<NodeGroup>> Open(NodeGroupOptions options);
  // Leaves the group; the other ranks go on.
  ~NodeGroup();
  NodeGroup(const NodeGroup&) = delete;
  NodeGroup& operator=(const NodeGroup&) = delete;

  // Begins a local phase. Returns nothing if there is no turn at the time `until`. A turn of one
  // member that does not lead is that of a phase which has failed already. REQUIRES: no turn is
  // open.
  absl::StatusOr<std::optional<NodeTurn>> NextTurn(node::SteadyTime until);
  // Gives a bucket to the communicator and returns at once; the streams' present work comes first.
  // A failure of the communicator is only reported by End. An error here (INVALID_ARGUMENT, or
  // FAILED_PRECONDITION for a stream that is being captured) leaves the bucket out on this rank:
  // Fail, or the other ranks wait. The op is SUM, MIN, MAX or PRODUCT. REQUIRES: a turn is open.
  absl::Status Reduce(ReduceOp op, absl::Span<const NodeTensor> tensors);
  // Waits for the buckets. Returns nothing if neither is known at the time `until`. REQUIRES: a
  // turn is open; it no longer is if there is an answer.
  absl::StatusOr<std::optional<PhaseEnd>> End(node::SteadyTime until);
  // This rank cannot go on with the turn that is open: the phase ends with kAlone for all, unless
  // the leader had everything before. Buckets that follow are ignored.
  void Fail(const std::string& why);

  // Brings the results of the lane's round to the ranks that did not lead the phase that has ended
  // last; see sharing.h. Called once after each phase: by the leader when it has committed what it
  // contributes for all, by the others when they have withdrawn without results. A rank that does
  // not call it before the next phase makes the others request their results.
  // Failure: DEADLINE_EXCEEDED if the time has passed before the round had results; call again.
  // Otherwise why the results come from the aggregator, which they do in any case.
  absl::Status Share(Worker& worker, LaneHandle lane, const std::vector<SharedTensor>& tensors,
                     accelerator::Stream stream, absl::Duration timeout);

 private:
  using PlanPtr = std::shared_ptr<const kernels::ReductionPlan>;

  explicit NodeGroup(NodeGroupOptions options) : options_(std::move(options)) {}

  absl::StatusOr<node::CommunicatorPtr> Form(const node::FormCommunicator& form);
  absl::StatusOr<PlanPtr> PlanOf(ReduceOp op, const NodeTensor& tensor);
  kernels::Result<nccl::EventPtr> Mark(accelerator::Stream stream);
  absl::Status ShareNow(Worker& worker, LaneHandle lane, const std::vector<SharedTensor>& tensors,
                        accelerator::Stream stream, absl::Duration timeout);
  // Ends the communicator of the phase that has ended, so that no rank waits for this one.
  void EndSharing(const absl::Status& why);

  const NodeGroupOptions options_;

  std::optional<node::Turn> turn_;  // That is open.
  bool leads_ = false;              // It.
  bool reported_ = false;           // That it leads, and has everything.
  bool failed_ = false;             // Nothing more is given to its communicator.
  std::vector<nccl::Communicator::Work> works_;
  std::map<std::tuple<ReduceOp, DType, DType>, PlanPtr> plans_;  // For the turn's members.

  // That of the phase that has ended, until its results are shared; none if its communicator has
  // failed since.
  std::optional<node::Turn> shares_;
  std::unique_ptr<Sharing> sharing_;
  absl::Status stuck_;  // Why memory of results must not be used again.

  std::unique_ptr<node::Runner> runner_;  // Ends first.
};

}  // namespace basin::client::group

#endif  // BASIN_CLIENT_DEVICE_NODE_GROUP_H_
