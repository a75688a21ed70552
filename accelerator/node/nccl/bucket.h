// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// How the tensors of one bucket are reduced among the ranks of a node: in which steps, through
// which scratch memory, and with which launches of our kernel.
//
// Every rank derives the same steps from the same plans, so that messages have the same sizes at
// both ends.
//
// Thread contract: plain values and pure functions.

#ifndef BASIN_ACCELERATOR_NODE_NCCL_BUCKET_H_
#define BASIN_ACCELERATOR_NODE_NCCL_BUCKET_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "accelerator/node/core/settings.h"
#include "accelerator/node/nccl/abi.h"
#include "kernels/cuda/task.h"
#include "kernels/plan.h"

namespace basin::accelerator::nccl {

// A task folds the contributions of all ranks in one launch.
using node::kMostRanks;
static_assert(kMostRanks <= kernels::cuda::kMaxTermsPerTask);

// Positions are the ranks of the communicator. They are given in the byte order of the worker ids,
// so that position i has contribution i of every plan.
struct Position {
  int index = 0;
  int size = 1;
  int leader = 0;

  bool leads() const { return index == leader; }
};

// Deterministic: the leader gathers the contributions and folds them with our kernel. Fast:
// ncclReduce adds; each contribution is scaled as the plan says, and sums of 16-bit floats are
// computed in f32.
using node::GroupMode;

struct GroupTensor {
  // What all ranks contribute. The same on every rank.
  std::shared_ptr<const kernels::ReductionPlan> plan;
  // Whether the result is that of the plan. If not, it is the sum itself, without postscale,
  // predivision and divisor, of the accumulator's type (integers: of the tensor's).
  bool finish = true;
  uint64_t count = 0;           // Elements.
  const void* input = nullptr;  // This rank's contribution. Unused if it is no term of the plan.
  void* result = nullptr;       // At the leader; unused at other ranks. Overlaps no input.
};

// The element type of a tensor's result.
DType ResultType(const GroupTensor& tensor);

// Both fail if a tensor cannot be reduced in this group; the message names its place in the bucket.
// Every rank comes to the same answer about the plans, ...
absl::Status CheckPlans(const std::vector<GroupTensor>& tensors, const Position& position);
// ... and only this rank knows that it has given no plan or no memory. REQUIRES: CheckPlans.
absl::Status CheckOwnPart(const std::vector<GroupTensor>& tensors, const Position& position);

// A part of a tensor, and where its part of the scratch memory begins.
struct Piece {
  size_t tensor = 0;
  uint64_t first = 0;
  uint64_t count = 0;
  size_t scratch = 0;
};

// Pieces that are reduced together.
struct Step {
  GroupMode mode = GroupMode::kDeterministic;
  std::vector<Piece> pieces;
};

// The least scratch memory with which every bucket can be reduced in a group of kMostRanks.
size_t LeastScratchBytes();

// Messages and collectives of one group call. NCCL keeps state for each.
constexpr size_t kMostMessages = 1024;

// Tensors without a result, by their plan's outcome, are left out. In fast mode a tensor that a
// rank has skipped is reduced as in deterministic mode, because ncclReduce takes something of every
// rank; so are minima and maxima of floats, because ncclReduce drops NaN. REQUIRES: CheckPlans,
// CheckOwnPart; scratch_bytes >= LeastScratchBytes().
std::vector<Step> StepsOf(const std::vector<GroupTensor>& tensors, GroupMode mode,
                          const Position& position, size_t scratch_bytes);

// What a piece needs of the library and of the kernel. `scratch` is the scratch memory of this
// rank.
class PieceWork {
 public:
  PieceWork(const GroupTensor& tensor, const Piece& piece, const Position& position, void* scratch,
            kernels::cuda::DeviceFacts* facts)
      : tensor_(tensor), piece_(piece), position_(position), scratch_(scratch), facts_(facts) {}

  // Deterministic: what comes from another position, or goes to the leader.
  struct Message {
    int peer = 0;
    void* data = nullptr;
    size_t bytes = 0;
  };
  std::vector<Message> Messages() const;
  // The fold at the leader.
  kernels::cuda::ReduceTask Fold() const;

  // Fast: the launch that scales this rank's contribution, if it is needed, ...
  std::optional<kernels::cuda::ReduceTask> Scale() const;
  // ... the reduction, ...
  struct Collective {
    const void* from = nullptr;
    void* to = nullptr;
    size_t count = 0;
    DataType type = kFloat32;
    RedOp op = kSum;
  };
  Collective Reduction() const;
  // ... and the launch at the leader that finishes it, if it is needed.
  std::optional<kernels::cuda::ReduceTask> Finish() const;

 private:
  kernels::cuda::ReduceTask Task() const;  // Without terms and output.
  void* Result() const;
  bool Scales() const;
  bool Finishes() const;
  unsigned char* Sum() const;  // In the scratch memory.

  const GroupTensor& tensor_;
  const Piece& piece_;
  const Position& position_;
  void* const scratch_;
  kernels::cuda::DeviceFacts* const facts_;
};

}  // namespace basin::accelerator::nccl

#endif  // BASIN_ACCELERATOR_NODE_NCCL_BUCKET_H_
