// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "aggregator/engine/payloads.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <variant>

#include "aggregator/core/delivery.h"

namespace basin::aggregator {
namespace {

absl::Status Complete(bool complete, const char* wrong) {
  return complete ? absl::OkStatus() : absl::InternalError(wrong);
}

// The frame's header, if it is of this kind.
template <typename Header>
const Header* HeaderOf(const Payloads::Arrived* arrived) {
  return arrived == nullptr ? nullptr : std::get_if<Header>(&arrived->frame.header);
}

// `count` chunks of the frame, after `skip` others and their `begin` bytes, as a frame of their
// own.
OutgoingFrame PartOf(const Payloads::Arrived& arrived, uint64_t begin, uint64_t bytes,
                     uint32_t skip, uint32_t count) {
  OutgoingFrame part;
  part.digests.assign(arrived.digests.begin() + skip, arrived.digests.begin() + skip + count);
  part.payload.Append({arrived.frame.payload, begin, bytes});
  return part;
}

}  // namespace

absl::Status Payloads::Keep(Round& round, const KeepChunks& keep, const Arrived* arrived) {
  const auto* header = HeaderOf<ContributionHeader>(arrived);
  if (header == nullptr || !Covers(RangesOf(header->runs), keep.ranges)) {
    return absl::InternalError("it keeps chunks that did not arrive");
  }
  round.Keep(keep.contributor, keep.ranges, *header, arrived->frame);
  return absl::OkStatus();
}

absl::Status Payloads::Discard(Round& round, const DiscardChunks& discard) {
  return Complete(round.Discard(discard.contributor, discard.ranges),
                  "it discards chunks that it lacks");
}

absl::StatusOr<Payloads::Reduction> Payloads::Take(Round& round, const Reduce& reduce) {
  Reduction reduction = round.TakeInputs(reduce);
  if (reduction == nullptr) return absl::InternalError("it reduces chunks that it lacks");
  return reduction;
}

void Payloads::Hold(Round& round, const aggregator::Reduction& reduction) {
  if (!reduction.done.failure.has_value()) round.Hold(reduction);
}

absl::StatusOr<Payloads::Frame> Payloads::FrameOf(const Round& round, const Publish& publish,
                                                  const ChunkRanges& ranges) {
  std::optional<OutgoingFrame> frame = round.FrameOf(publish.lane, publish.round, ranges);
  if (!frame.has_value()) return absl::InternalError("it publishes a result that it lacks");
  return *std::move(frame);
}

absl::Status Payloads::Release(Round& round, const ReleaseResult& release) {
  return Complete(round.Release(release.ballot, release.range), "it frees a result that it lacks");
}

absl::StatusOr<Payloads::Frame> Payloads::Relayed(const RelayResult& relay,
                                                  const Arrived* arrived) {
  const auto* header = HeaderOf<SupplyHeader>(arrived);
  if (header == nullptr) return absl::InternalError("it relays a result that did not arrive");
  if (relay.ranges == RangesOf(header->runs)) {
    OutgoingFrame all =
        PartOf(*arrived, 0, arrived->frame.payload_bytes, 0, CountChunks(header->runs));
    all.header = ResultHeader{relay.lane, relay.round, relay.ballot, header->runs};
    return all;
  }
  uint64_t begin = 0;
  uint32_t skip = 0;
  for (const ChunkRun& run : header->runs) {
    if (relay.ranges == ChunkRanges{run.range}) {
      OutgoingFrame part = PartOf(*arrived, begin, run.bytes, skip, run.range.count);
      part.header = ResultHeader{relay.lane, relay.round, relay.ballot, run.range};
      return part;
    }
    begin += run.bytes;
    skip += run.range.count;
  }
  return absl::InternalError("it relays a result that did not arrive");
}

absl::StatusOr<Payloads::Frame> Payloads::Relayed(const RelayBlob& relay, const Arrived* arrived) {
  const auto* header = HeaderOf<BlobHeader>(arrived);
  if (header == nullptr || relay.first < header->first ||
      relay.first + relay.count > header->first + header->count) {
    return absl::InternalError("it relays a blob that did not arrive");
  }
  const uint32_t skip = relay.first - header->first;
  const uint64_t begin = skip * kChunkBytes;
  const uint64_t end = std::min(begin + relay.count * kChunkBytes, arrived->frame.payload_bytes);
  OutgoingFrame part = PartOf(*arrived, begin, end - begin, skip, relay.count);
  part.header = BlobHeader{relay.key, relay.first, relay.count};
  return part;
}

void Payloads::Keep(Blob& blob, const RelayBlob& relay, const Arrived& arrived) {
  const uint32_t skip = relay.first - std::get<BlobHeader>(arrived.frame.header).first;
  for (uint32_t i = 0; i < relay.count; ++i) {
    const uint64_t offset = uint64_t{skip + i} * kChunkBytes;
    blob[relay.first + i] = {{arrived.frame.payload, offset,
                              std::min(kChunkBytes, arrived.frame.payload_bytes - offset)},
                             arrived.digests[skip + i]};
  }
}

absl::StatusOr<Payloads::Frame> Payloads::FrameOf(const Blob& blob, const SendBlob& send) {
  OutgoingFrame frame;
  frame.header = BlobHeader{send.key, send.first, send.count};
  for (uint32_t i = 0; i < send.count; ++i) {
    const auto chunk = blob.find(send.first + i);
    if (chunk == blob.end()) return absl::InternalError("it sends a blob that it lacks");
    frame.digests.push_back(chunk->second.digest);
    frame.payload.Append(chunk->second.part);
  }
  return frame;
}

}  // namespace basin::aggregator
