// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Brings the results of a round from one rank of a node to the others over their communicator,
// instead of over the network once for each.
//
// The leader has contributed for all of them, and they have withdrawn without results. The leader
// waits until all results are here, and broadcasts them from memory of the device. The others copy
// them to pinned memory of the host, all at once, and stage them like results that the aggregator
// has sent; from there they go to the trainer's tensors. So every member of the job holds the
// results before there is a verdict, as always, and whatever fails here costs time only: the caller
// then requests what its rank lacks (RequestResults).
//
// A head is broadcast first, in every round: it reports whether results follow, and which.
//
// Ownership: the tensors' memory is used until the call returns, or for good if stuck(); then this
// object's own memory is never freed. Thread contract: one thread at a time.

#ifndef BASIN_CLIENT_DEVICE_SHARING_H_
#define BASIN_CLIENT_DEVICE_SHARING_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "accelerator/device/device.h"
#include "accelerator/node/nccl/communicator.h"
#include "accelerator/transfer/pinned_pool.h"
#include "client/transport/worker.h"

namespace basin::client::group {

namespace nccl = accelerator::nccl;

// Where the results of a tensor pass through the device. The same tensors, in the same order, with
// the same sizes on every rank.
struct SharedTensor {
  TensorHandle tensor = 0;
  void* memory = nullptr;  // Its content is lost.
  uint64_t bytes = 0;
};

class Sharing {
 public:
  // For rounds of at most `tensors` tensors. `pinned_bytes`: the most pinned memory for results;
  // those that it does not hold are in other memory. UNAVAILABLE without memory on the device.
  static absl::StatusOr<std::unique_ptr<Sharing>> Make(std::shared_ptr<accelerator::Device> device,
                                                       size_t tensors, uint64_t pinned_bytes);

  ~Sharing();
  Sharing(const Sharing&) = delete;
  Sharing& operator=(const Sharing&) = delete;

  // Whether it is of use for rounds of so many tensors.
  bool Fits(size_t tensors) const { return WordsOf(tensors) <= words_; }
  // Whether the device may still write to the tensors' memory, or to this object's.
  bool stuck() const { return stuck_; }

  // The leader's part. Waits for the results, and returns when the others have them. If the round
  // has no results, they are told that.
  // Failure: DEADLINE_EXCEEDED, with a communicator in order: the time has passed before there were
  // results, and nothing was done; call again. Another error is that of the communicator or the
  // device, or says why there were no results, as the round's outcome does.
  absl::Status Lead(nccl::Communicator& communicator, Worker& worker, LaneHandle lane,
                    const std::vector<SharedTensor>& tensors, const nccl::Order& order,
                    absl::Duration timeout);
  // The part of another rank. Waits until the round has a value. Failure: the same.
  absl::Status Follow(nccl::Communicator& communicator, Worker& worker, LaneHandle lane,
                      const std::vector<SharedTensor>& tensors, const nccl::Order& order,
                      absl::Duration timeout);

 private:
  using Words = std::vector<uint64_t>;  // A head.

  static size_t WordsOf(size_t tensors);

  Sharing(std::shared_ptr<accelerator::Device> device, uint64_t pinned_bytes);

  absl::Status Receive(nccl::Communicator& communicator, Worker& worker, LaneHandle lane,
                       const std::vector<SharedTensor>& tensors, const nccl::Order& order);
  // Memory of the host for so many bytes.
  std::shared_ptr<char> TakeMemory(uint64_t bytes);
  // The results that the head names.
  absl::Status BroadcastResults(nccl::Communicator& communicator, const Words& head,
                                const std::vector<SharedTensor>& tensors, const nccl::Order& order);
  absl::Status Broadcast(nccl::Communicator& communicator, std::vector<nccl::GroupBytes> parts,
                         const nccl::Order& order);
  absl::Status BroadcastHead(nccl::Communicator& communicator);
  absl::Status Wait(const std::optional<kernels::Failure>& adding);

  const std::shared_ptr<accelerator::Device> device_;
  const std::shared_ptr<accelerator::PinnedPool> pinned_;
  bool stuck_ = false;
  size_t words_ = 0;                           // The size of a head.
  accelerator::Memory head_;                   // On the device.
  std::unique_ptr<accelerator::Queue> queue_;  // Ends before the memory.
};

}  // namespace basin::client::group

#endif  // BASIN_CLIENT_DEVICE_SHARING_H_
