// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The frames of a data stream as both ends read and write them. A frame is checked and hashed on
// the thread that received it, while its bytes are in the cache. There is no gRPC here, so that
// other transports and tests with ThreadSanitizer use the same code.
//
// Thread contract: a reader belongs to one stream, and is used by one thread at a time; EncodeHead
// is a pure function. Failure: a status that ends the stream: INVALID_ARGUMENT for violations of
// the protocol, DATA_LOSS for a wrong checksum and for a gap in the sequence. Only NOT_FOUND does
// not end it: the frame refers to shared memory that its sender has withdrawn meanwhile, because
// what the frame was for has ended. It is dropped, and the stream goes on.

#ifndef BASIN_RUNTIME_FRAMES_READER_H_
#define BASIN_RUNTIME_FRAMES_READER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "protocol/shared_place.h"
#include "runtime/frames/frame.h"
#include "runtime/payload.h"
#include "runtime/shared_memory/segments.h"

namespace basin {

enum class FrameSender : uint8_t { kWorker, kAggregator };

class FrameReader {
 public:
  // What the sender shares in its session; null if nothing.
  using Shared = std::function<std::shared_ptr<Segments>()>;

  explicit FrameReader(FrameSender sender, Shared shared = nullptr)
      : sender_(sender), shared_(std::move(shared)) {}
  // For frames that travel with a session, which have no opening among them.
  static FrameReader InSession(FrameSender sender, Shared shared) {
    FrameReader reader(sender, std::move(shared));
    reader.open_ = true;
    return reader;
  }

  // Reads the next message of the stream. The first must be the sender's opening (Bind of a worker,
  // Bound of the aggregator), and no other may.
  absl::StatusOr<IncomingFrame> Read(PayloadPtr message);

  // The next frame is dropped unread.
  void Skip() { ++sequence_; }

 private:
  absl::StatusOr<std::shared_ptr<const SharedPayload>> Find(const SharedPlace& place) const;

  FrameSender sender_;
  Shared shared_;
  bool open_ = false;
  uint64_t sequence_ = 0;  // The number of the last frame.
};

// A frame but for its sequence number and its payload; the same for every receiver.
// Failure: INVALID_ARGUMENT when the receiver would refuse the frame.
absl::StatusOr<std::string> EncodeHead(const OutgoingFrame& frame);

// Where a receiver finds the frame's payload that shares `segments`; absent when it is not all in
// memory that it has mapped, or in several places and the receiver does not take those, or is so
// small that it travels faster in the frame.
std::optional<SharedPlaces> PlacesOf(const OutgoingFrame& frame, const Segments& segments);
// The same frame for that receiver: all of it but for its sequence number.
absl::StatusOr<std::string> EncodeReference(const OutgoingFrame& frame, const SharedPlaces& places);

}  // namespace basin

#endif  // BASIN_RUNTIME_FRAMES_READER_H_
