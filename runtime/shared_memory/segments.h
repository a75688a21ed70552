// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The segments that two processes share during one session: those of this end, which the other end
// has mapped, and those of the other end. They are memory of the host, or of a device if the other
// end can read that. They are passed over a Unix socket; the frames that refer to them travel
// elsewhere.
//
// The worker opens with the token of its session, which the aggregator checks. From then on both
// ends offer segments, and answer whether they have mapped one. A frame refers to a segment only
// after its receiver has reported that it mapped it, so no order between socket and stream is
// needed.
//
// Ownership: a payload keeps the segment in which it lies. Thread contract: safe from any thread;
// Receive from one. Failure: messages of a peer that breaks the rules of the socket are no longer
// read; mapped segments stay, and everything else goes over the network.

#ifndef BASIN_RUNTIME_SHARED_MEMORY_SEGMENTS_H_
#define BASIN_RUNTIME_SHARED_MEMORY_SEGMENTS_H_

#include <atomic>
#include <cstdint>
#include <deque>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/failure.h"
#include "protocol/ids.h"
#include "protocol/shared_place.h"
#include "protocol/version.h"
#include "runtime/device_segment.h"
#include "runtime/mutex.h"
#include "runtime/payload.h"
#include "runtime/shared_memory/segment.h"

namespace basin {

// A message of the socket. Its numbers are in the order of the bytes of the machine, which both
// ends are on.
struct SegmentMessage {
  enum class Kind : uint32_t {
    kToken = 1,     // The worker's first one; `number` is the token.
    kWelcome = 2,   // Its answer.
    kOffer = 3,     // With the descriptor of segment `number`, which has `size` bytes.
    kMapped = 4,    // The receiver has mapped segment `number`,
    kRefused = 5,   // or cannot.
    kWithdraw = 6,  // Segment `number` is not referred to any more.
    // The same as kOffer, in memory of a device. Only to an end with FEATURE_DEVICE_MEMORY.
    kOfferDevice = 7,
  };
  Kind kind = Kind::kToken;
  uint64_t number = 0;
  uint64_t size = 0;
};

std::string EncodeSegmentMessage(const SegmentMessage& message);
// INVALID_ARGUMENT for bytes that are none.
absl::StatusOr<SegmentMessage> DecodeSegmentMessage(std::string_view bytes);

// Segments that one end may offer in a session.
inline constexpr size_t kMaxSegments = 160;

// What opens memory of a device of another process. Thread contract: any thread.
class DeviceOpener {
 public:
  virtual ~DeviceOpener() = default;
  // Failure: a sentence why this end cannot read it.
  virtual kernels::Result<std::shared_ptr<DeviceSegment>> Open(int descriptor,
                                                               uint64_t size) const = 0;
  // Whether what was opened can no longer be read.
  virtual bool failed() const = 0;
};

class Segments {
 public:
  // Takes the socket, which is connected and passes whole messages (SOCK_SEQPACKET). Maps at most
  // `most_bytes` of the other end. `opener`: null if memory of devices is refused; outlives this.
  explicit Segments(int socket, uint64_t most_bytes = std::numeric_limits<uint64_t>::max(),
                    const DeviceOpener* opener = nullptr)
      : socket_(socket), most_bytes_(most_bytes), opener_(opener) {}
  ~Segments();
  Segments(const Segments&) = delete;
  Segments& operator=(const Segments&) = delete;

  // ---- of this end
  // Offers the segment to the other end; nothing if it was offered before. Withdraws the segments
  // that are no longer used here. False if the other end cannot get or map it.
  bool Offer(const std::shared_ptr<Segment>& segment);
  // The same for memory of a device. REQUIRES: takes_devices().
  bool Offer(const std::shared_ptr<DeviceSegment>& segment);
  // Withdraws the segments that are no longer used here, without an offer.
  void WithdrawUnused();
  std::vector<std::shared_ptr<Segment>> offered() const;
  std::vector<std::shared_ptr<DeviceSegment>> offered_devices() const;
  // Where the other end finds these bytes, one place for each; absent when some are in no segment
  // that it has mapped. They may have an address of a device, which is none of the host.
  std::optional<SharedPlaces> Find(absl::Span<const std::string_view> pieces) const;
  // What the other end of the session has of the features.
  void TakeFeatures(uint64_t features) { features_ = features; }
  bool takes_devices() const { return (features_ & kFeatureDeviceMemory) != 0; }
  bool takes_places() const { return (features_ & kFeaturePlaces) != 0; }

  // ---- of the other end
  // The bytes at the place, which keep their segment. INVALID_ARGUMENT when there was no such
  // segment, or the place is not within it; NOT_FOUND when it was withdrawn: its owner uses it no
  // more, so the frame that refers to it is of the past.
  absl::StatusOr<std::shared_ptr<const SharedPayload>> At(const SharedPlace& place);
  // The memory of devices among it.
  uint64_t device_bytes() const;
  // The memory of the host that this end has mapped of the other one's.
  uint64_t mapped_bytes() const;
  // Why memory of a device was refused last; once.
  std::string TakeRefusal();

  // ---- the socket
  int socket() const { return socket_; }
  absl::Status Send(const SegmentMessage& message) const;
  // Waits for the next message and answers it, or until earlier answers can be sent for which the
  // socket had no room. UNAVAILABLE when the other end has gone, INVALID_ARGUMENT when it broke the
  // rules.
  absl::Status Receive();
  // What Receive waits for, as events of poll(). While the other end leaves too many answers
  // unread, its messages wait. REQUIRES: the thread of Receive.
  int16_t events() const;
  // The first message of the other end. Descriptors that come with it are dropped unseen.
  absl::StatusOr<SegmentMessage> ReceiveOpening();
  // Ends Receive in another thread. What is mapped stays, but nothing new is offered or referred
  // to, as when Receive has failed.
  void Close();
  bool closed() const { return closed_; }

 private:
  struct Offered {
    std::weak_ptr<Segment> segment;  // One of these.
    std::weak_ptr<DeviceSegment> device;
    std::string_view bytes;  // All of it.
    bool mapped = false;
    bool refused = false;
    bool expired() const { return segment.expired() && device.expired(); }
  };
  struct Theirs {
    std::shared_ptr<Segment> segment;  // One of these.
    std::shared_ptr<DeviceSegment> device;
    uint64_t size() const { return segment != nullptr ? segment->size() : device->size(); }
  };
  // Sends an answer, or keeps it while the socket is full.
  absl::Status Answer(const SegmentMessage& answer);
  absl::Status SendUnsent();
  void DropUnused() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool Offer(SegmentMessage::Kind kind, int descriptor, Offered offered);
  // That of one piece.
  std::optional<SharedPlace> FindOne(std::string_view bytes) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Opens what the other end offers; nothing if this end cannot have it.
  absl::StatusOr<std::optional<Theirs>> Open(const SegmentMessage& message, int descriptor);
  // Answers an offer.
  absl::Status Take(const SegmentMessage& message, int descriptor);
  absl::StatusOr<SegmentMessage> Next(int* descriptor) const;
  absl::Status OnMessage(const SegmentMessage& message, int descriptor);

  const int socket_;
  const uint64_t most_bytes_;
  const DeviceOpener* const opener_;
  std::atomic<bool> closed_{false};
  std::atomic<uint64_t> features_{0};
  std::deque<SegmentMessage> unsent_;  // Answers, in order. For the thread of Receive.
  mutable Mutex mutex_;
  uint64_t next_ ABSL_GUARDED_BY(mutex_) = 1;
  std::map<uint64_t, Offered> offered_ ABSL_GUARDED_BY(mutex_);
  std::map<uint64_t, Theirs> theirs_ ABSL_GUARDED_BY(mutex_);
  uint64_t their_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  std::string refusal_ ABSL_GUARDED_BY(mutex_);
  uint64_t their_last_ ABSL_GUARDED_BY(mutex_) = 0;  // The highest number that was mapped.
};

}  // namespace basin

#endif  // BASIN_RUNTIME_SHARED_MEMORY_SEGMENTS_H_
