// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// What a runner holds for the client's core, in worlds without bytes: the staged results of each
// lane, and the values that arrive or are served. An action that asks for what is not there is an
// error that says what is wrong.
//
// The client's own runner does not share this code as the engine does (aggregator/engine/held.h),
// because little of it is left without bytes. It sends a contribution from memory that the trainer
// lends for a round, in frames by encoding and by device; results are shared with the trainer, or
// overwritten by the aggregator, so that a supply may quietly come to nothing; a value is served
// under a gate, and only while its memory is what was announced. Here each of these is an error.
//
// `C` stands for the bytes of a chunk.
//
// Thread contract: a plain value.

#ifndef BASIN_TESTS_WORLD_CLIENT_SHELL_H_
#define BASIN_TESTS_WORLD_CLIENT_SHELL_H_

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/utility/utility.h"
#include "aggregator/core/delivery.h"
#include "client/core/action.h"
#include "protocol/counted.h"
#include "tests/world/frame.h"

namespace basin::world {

// The result chunks of a lane's newest round, at one ballot.
template <typename C>
struct StagedChunks {
  RoundNumber round = 0;
  Ballot ballot;
  std::map<std::pair<TensorIndex, uint32_t>, C> chunks;
  auto Fields() const { return std::tie(round, ballot, chunks); }

  // Null when it is not staged.
  const C* Find(TensorIndex tensor, uint32_t chunk) const {
    const auto found = chunks.find({tensor, chunk});
    return found == chunks.end() ? nullptr : &found->second;
  }
};

// The size of the bytes of a range of chunks.
inline uint64_t SizeOf(const TensorSpec& spec, const ChunkRange& range) {
  uint64_t size = 0;
  for (uint32_t i = 0; i < range.count; ++i) size += ChunkSize(*TensorBytes(spec), range.first + i);
  return size;
}

// Adds a range, whose stand-ins are there already, to a frame of one tensor or of `several`.
template <typename C>
void AddRange(PushFrame<C>& frame, const TensorSpec& spec, const ChunkRange& range, bool several) {
  frame.ranges.push_back(range);
  frame.bytes += SizeOf(spec, range);
  if (!several) return;
  for (uint32_t i = 0; i < range.count; ++i) {
    frame.sizes.push_back(ChunkSize(*TensorBytes(spec), range.first + i));
  }
}

// What a client is given when a result arrives. `Bytes`: see AggregatorShell.
template <typename Bytes>
client::ResultReceived EventOf(const Bytes& bytes,
                               const ResultFrame<typename Bytes::Chunk>& frame) {
  return {frame.lane, frame.round, frame.ballot, frame.ranges, DigestsOf(bytes, frame)};
}

template <typename C>
class ClientShell {
 public:
  // `arrived`: the frame that the Step was given; null when there was none.
  absl::Status Do(const client::KeepResult& keep, const ResultFrame<C>* arrived);
  // `spec_of(handle)`: the tensor as the trainer knows it. `chunk_of(spec, chunk)`: what stands for
  // the bytes that it contributes.
  template <typename SpecOf, typename ChunkOf>
  static PushFrame<C> FrameOf(const client::SendContribution& send, SpecOf&& spec_of,
                              ChunkOf&& chunk_of);
  // `spec_of(index)`: the tensor as the job knows it.
  template <typename SpecOf>
  absl::StatusOr<PushFrame<C>> FrameOf(const client::SendSupply& send, SpecOf&& spec_of) const;
  // The trainer serves a value of this content and so many bytes.
  void Serve(const BlobKey& key, uint64_t bytes, uint64_t content) {
    served_[{key.lane, key.tensor, key.version}] = {content, bytes};
  }
  absl::StatusOr<BlobFrame> FrameOf(const client::SendBlob& send) const;
  absl::Status Do(const client::KeepBlob& keep, const BlobFrame* arrived);
  // The content of a value that was received whole.
  absl::StatusOr<uint64_t> ContentOf(const BlobKey& key, const TensorSpec& tensor) const;
  void ForgetBlobs() { blobs_.clear(); }

  const StagedChunks<C>& staged(client::LaneHandle lane) const {
    static const StagedChunks<C> none;
    const auto found = staged_.find(lane);
    return found == staged_.end() ? none : found->second;
  }

  auto Fields() const { return std::tie(staged_, blobs_, served_); }

 private:
  using BlobId = std::tuple<std::string, std::string, uint64_t>;

  std::map<client::LaneHandle, StagedChunks<C>> staged_;
  std::map<BlobId, std::map<uint32_t, uint64_t>> blobs_;    // Content by chunk.
  std::map<BlobId, std::pair<uint64_t, uint64_t>> served_;  // Content, and bytes.
};

template <typename C>
absl::Status ClientShell<C>::Do(const client::KeepResult& keep, const ResultFrame<C>* arrived) {
  if (arrived == nullptr || arrived->round != keep.round ||
      !aggregator::Covers(arrived->ranges, {keep.range})) {
    return absl::InternalError("it keeps a result that did not arrive");
  }
  StagedChunks<C>& staged = staged_[keep.lane];
  // The core says which ballot is of use; after an eviction it may be a lower one than before.
  if (staged.round != keep.round || !(staged.ballot == arrived->ballot)) {
    staged = {keep.round, arrived->ballot, {}};
  }
  for (uint32_t i = 0; i < keep.range.count; ++i) {
    const uint32_t chunk = keep.range.first + i;
    staged.chunks[{keep.range.tensor, chunk}] = arrived->At(keep.range.tensor, chunk);
  }
  return absl::OkStatus();
}

template <typename C>
template <typename SpecOf, typename ChunkOf>
PushFrame<C> ClientShell<C>::FrameOf(const client::SendContribution& send, SpecOf&& spec_of,
                                     ChunkOf&& chunk_of) {
  PushFrame<C> frame;
  frame.lane = send.lane_index;
  frame.round = send.round;
  for (size_t at = 0; at < send.ranges.size(); ++at) {
    const ChunkRange& range = send.ranges[at];
    const TensorSpec& spec = spec_of(send.tensors[at]);
    for (uint32_t i = 0; i < range.count; ++i) {
      frame.chunks.push_back(chunk_of(spec, range.first + i));
    }
    AddRange(frame, spec, range, send.ranges.size() > 1);
  }
  return frame;
}

template <typename C>
template <typename SpecOf>
absl::StatusOr<PushFrame<C>> ClientShell<C>::FrameOf(const client::SendSupply& send,
                                                     SpecOf&& spec_of) const {
  const StagedChunks<C>& held = staged(send.lane);
  absl::StatusOr<PushFrame<C>> made(absl::in_place);
  PushFrame<C>& frame = *made;
  frame.kind = aggregator::FrameKind::kSupply;
  frame.lane = send.lane_index;
  frame.round = send.round;
  frame.ballot = send.ballot;
  for (const ChunkRange& range : send.ranges) {
    const TensorSpec& tensor = spec_of(range.tensor);
    for (uint32_t i = 0; i < range.count; ++i) {
      const C* chunk = held.Find(range.tensor, range.first + i);
      if (held.round != send.round || !(held.ballot == send.ballot) || chunk == nullptr) {
        made = absl::InternalError(absl::StrCat("it supplies chunk ", range.first + i,
                                                " of tensor ", tensor.name, " of round ",
                                                send.round, ", which it lacks"));
        return made;
      }
      frame.chunks.push_back(*chunk);
    }
    AddRange(frame, tensor, range, send.ranges.size() > 1);
  }
  return made;
}

template <typename C>
absl::StatusOr<BlobFrame> ClientShell<C>::FrameOf(const client::SendBlob& send) const {
  const auto served = served_.find({send.key.lane, send.key.tensor, send.key.version});
  if (served == served_.end()) {
    return absl::InternalError("it serves a value that its trainer did not announce");
  }
  const auto [content, bytes] = served->second;
  const uint64_t begin = send.first * kChunkBytes;
  const uint64_t end = std::min(bytes, begin + send.count * kChunkBytes);
  return BlobFrame{send.key, send.first, send.count, content, end - begin};
}

template <typename C>
absl::Status ClientShell<C>::Do(const client::KeepBlob& keep, const BlobFrame* arrived) {
  if (arrived == nullptr || !(arrived->key == keep.key)) {
    return absl::InternalError("it keeps a value that did not arrive");
  }
  auto& chunks = blobs_[{keep.key.lane, keep.key.tensor, keep.key.version}];
  for (uint32_t i = 0; i < keep.count; ++i) chunks[keep.first + i] = arrived->content;
  return absl::OkStatus();
}

template <typename C>
absl::StatusOr<uint64_t> ClientShell<C>::ContentOf(const BlobKey& key,
                                                   const TensorSpec& tensor) const {
  const auto value = blobs_.find({key.lane, key.tensor, key.version});
  const uint32_t count = ChunkCount(*TensorBytes(tensor));
  if (value == blobs_.end() || value->second.size() != count) {
    return absl::InternalError("it lacks chunks of a value");
  }
  for (const auto& [chunk, content] : value->second) {
    if (content != value->second.begin()->second) {
      return absl::InternalError("it mixes two contents of one value");
    }
  }
  return value->second.begin()->second;
}

}  // namespace basin::world

#endif  // BASIN_TESTS_WORLD_CLIENT_SHELL_H_
