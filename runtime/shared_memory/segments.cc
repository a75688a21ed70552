// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "runtime/shared_memory/segments.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/shared_memory/socket.h"

namespace basin {
namespace {

constexpr uint32_t kMagic = 0x4d534142;  // "BASM"

// A message as it travels.
struct Raw {
  uint32_t magic = kMagic;
  uint32_t kind = 0;
  uint64_t number = 0;
  uint64_t size = 0;
};
static_assert(sizeof(Raw) == 24, "no gaps");

absl::Status Wrong(const std::string& what) {
  return absl::InvalidArgumentError(absl::StrCat("Shared memory: ", what, "."));
}

}  // namespace

std::string EncodeSegmentMessage(const SegmentMessage& message) {
  Raw raw;
  raw.kind = static_cast<uint32_t>(message.kind);
  raw.number = message.number;
  raw.size = message.size;
  return {reinterpret_cast<const char*>(&raw), sizeof(raw)};
}

absl::StatusOr<SegmentMessage> DecodeSegmentMessage(std::string_view bytes) {
  Raw raw;
  if (bytes.size() != sizeof(raw)) {
    return Wrong(absl::StrCat("a message has ", bytes.size(), " bytes, not ", sizeof(raw)));
  }
  std::memcpy(&raw, bytes.data(), sizeof(raw));
  using Kind = SegmentMessage::Kind;
  if (raw.magic != kMagic) return Wrong("a message is not Basin's");
  if (raw.kind < static_cast<uint32_t>(Kind::kToken) ||
      raw.kind > static_cast<uint32_t>(Kind::kOfferDevice)) {
    return Wrong(absl::StrCat("there is no message of kind ", raw.kind));
  }
  return SegmentMessage{static_cast<Kind>(raw.kind), raw.number, raw.size};
}

Segments::~Segments() { close(socket_); }

void Segments::Close() {
  closed_ = true;
  shutdown(socket_, SHUT_RDWR);
}

absl::Status Segments::Send(const SegmentMessage& message) const {
  return SendMessage(socket_, EncodeSegmentMessage(message), -1);
}

bool Segments::Offer(const std::shared_ptr<Segment>& segment) {
  return Offer(SegmentMessage::Kind::kOffer, segment->descriptor(),
               {segment, {}, {segment->data(), segment->size()}});
}

bool Segments::Offer(const std::shared_ptr<DeviceSegment>& segment) {
  return Offer(SegmentMessage::Kind::kOfferDevice, segment->descriptor(),
               {{}, segment, {segment->data(), segment->size()}});
}

bool Segments::Offer(SegmentMessage::Kind kind, int descriptor, Offered offered) {
  if (closed_) return false;
  MutexLock lock(mutex_);
  DropUnused();
  for (const auto& [number, known] : offered_) {
    if (known.bytes.data() == offered.bytes.data()) return !known.refused;
  }
  if (offered_.size() >= kMaxSegments) return false;
  const uint64_t number = next_++;
  const SegmentMessage offer{kind, number, offered.bytes.size()};
  if (!SendMessage(socket_, EncodeSegmentMessage(offer), descriptor).ok()) return false;
  offered_[number] = std::move(offered);
  return true;
}

void Segments::WithdrawUnused() {
  if (closed_) return;
  MutexLock lock(mutex_);
  DropUnused();
}

void Segments::DropUnused() {
  for (auto it = offered_.begin(); it != offered_.end();) {
    if (!it->second.expired()) {
      ++it;
      continue;
    }
    // A peer that does not receive this keeps the segment until its session ends.
    Send({SegmentMessage::Kind::kWithdraw, it->first, 0}).IgnoreError();
    it = offered_.erase(it);
  }
}

std::vector<std::shared_ptr<Segment>> Segments::offered() const {
  std::vector<std::shared_ptr<Segment>> segments;
  MutexLock lock(mutex_);
  for (const auto& [number, offered] : offered_) {
    if (auto segment = offered.segment.lock()) segments.push_back(std::move(segment));
  }
  return segments;
}

std::vector<std::shared_ptr<DeviceSegment>> Segments::offered_devices() const {
  std::vector<std::shared_ptr<DeviceSegment>> segments;
  MutexLock lock(mutex_);
  for (const auto& [number, offered] : offered_) {
    if (auto segment = offered.device.lock()) segments.push_back(std::move(segment));
  }
  return segments;
}

std::optional<SharedPlaces> Segments::Find(absl::Span<const std::string_view> pieces) const {
  if (closed_) return std::nullopt;
  SharedPlaces places;
  MutexLock lock(mutex_);
  for (const std::string_view bytes : pieces) {
    const std::optional<SharedPlace> place = FindOne(bytes);
    if (!place.has_value()) return std::nullopt;
    places.push_back(*place);
  }
  return places;
}

std::optional<SharedPlace> Segments::FindOne(std::string_view bytes) const {
  for (const auto& [number, offered] : offered_) {
    if (!offered.mapped) continue;
    if (offered.expired() || bytes.data() < offered.bytes.data() ||
        bytes.data() + bytes.size() > offered.bytes.data() + offered.bytes.size()) {
      continue;
    }
    return SharedPlace{number, static_cast<uint64_t>(bytes.data() - offered.bytes.data()),
                       bytes.size()};
  }
  return std::nullopt;
}

absl::StatusOr<std::shared_ptr<const SharedPayload>> Segments::At(const SharedPlace& place) {
  MutexLock lock(mutex_);
  const auto found = theirs_.find(place.segment);
  if (found == theirs_.end() && place.segment > 0 && place.segment <= their_last_) {
    return absl::NotFoundError(
        absl::StrCat("A frame refers to segment ", place.segment, ", which was withdrawn."));
  }
  if (found == theirs_.end()) {
    return Wrong(absl::StrCat("a frame refers to segment ", place.segment,
                              ", which its sender does not share"));
  }
  const Theirs& theirs = found->second;
  const uint64_t begin = place.version == 0 ? 0 : Segment::kVersionBytes;
  if (place.length > theirs.size() || place.offset > theirs.size() - place.length ||
      place.offset < begin) {
    return Wrong(absl::StrCat("a frame refers to ", place.length, " bytes at ", place.offset,
                              " of segment ", place.segment, ", which has ", theirs.size()));
  }
  if (theirs.segment != nullptr) {
    return std::make_shared<const SharedPayload>(
        theirs.segment, std::string_view(theirs.segment->data() + place.offset, place.length),
        place.version);
  }
  if (place.version != 0) return Wrong("a frame gives a version to memory of a device");
  if (opener_->failed()) {
    return Wrong(
        "a frame refers to memory of a device, but the device of the aggregator has failed");
  }
  return std::make_shared<const SharedPayload>(DevicePlace{theirs.device, place.offset});
}

uint64_t Segments::mapped_bytes() const {
  uint64_t bytes = 0;
  MutexLock lock(mutex_);
  for (const auto& [number, theirs] : theirs_) {
    if (theirs.segment != nullptr) bytes += theirs.size();
  }
  return bytes;
}

uint64_t Segments::device_bytes() const {
  uint64_t bytes = 0;
  MutexLock lock(mutex_);
  for (const auto& [number, theirs] : theirs_) {
    if (theirs.device != nullptr) bytes += theirs.size();
  }
  return bytes;
}

std::string Segments::TakeRefusal() {
  MutexLock lock(mutex_);
  return std::exchange(refusal_, "");
}

absl::StatusOr<SegmentMessage> Segments::Next(int* descriptor) const {
  std::array<char, sizeof(Raw) + 1> bytes;  // A longer message is seen to be longer.
  iovec part = {bytes.data(), bytes.size()};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control = {};
  msghdr header = {};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  if (descriptor != nullptr) {
    *descriptor = -1;
    header.msg_control = control.data();
    header.msg_controllen = CMSG_LEN(sizeof(int));  // No room for a second descriptor.
  }
  ssize_t got;
  do {
    got = recvmsg(socket_, &header, MSG_CMSG_CLOEXEC);
  } while (got < 0 && errno == EINTR);
  if (got < 0) {
    return absl::UnavailableError(absl::StrCat("Shared memory: ", std::strerror(errno)));
  }
  for (cmsghdr* rights = CMSG_FIRSTHDR(&header); rights != nullptr;
       rights = CMSG_NXTHDR(&header, rights)) {
    if (rights->cmsg_level != SOL_SOCKET || rights->cmsg_type != SCM_RIGHTS) continue;
    std::memcpy(descriptor, CMSG_DATA(rights), sizeof(int));
  }
  if (got == 0) return absl::UnavailableError("Shared memory: the other end has gone.");
  return DecodeSegmentMessage({bytes.data(), static_cast<size_t>(got)});
}

absl::StatusOr<SegmentMessage> Segments::ReceiveOpening() { return Next(nullptr); }

int16_t Segments::events() const {
  if (unsent_.empty()) return POLLIN;
  // An end that keeps the rules has no more offers without an answer.
  return unsent_.size() < kMaxSegments ? POLLIN | POLLOUT : POLLOUT;
}

absl::Status Segments::Answer(const SegmentMessage& answer) {
  unsent_.push_back(answer);
  return SendUnsent();
}

absl::Status Segments::SendUnsent() {
  while (!unsent_.empty()) {
    absl::Status sent = Send(unsent_.front());
    if (absl::IsResourceExhausted(sent)) break;  // The other end will read.
    if (!sent.ok()) return sent;
    unsent_.pop_front();
  }
  return absl::OkStatus();
}

absl::Status Segments::Receive() {
  bool readable = true;
  absl::Status taken;
  if (!unsent_.empty()) {
    pollfd ready = {socket_, events(), 0};
    while (poll(&ready, 1, -1) < 0 && errno == EINTR) {
    }
    readable = ready.revents != POLLOUT;
    taken = SendUnsent();
  }
  if (taken.ok() && readable) {
    int descriptor = -1;
    const absl::StatusOr<SegmentMessage> message = Next(&descriptor);
    taken = message.ok() ? OnMessage(*message, descriptor) : message.status();
    if (descriptor >= 0) close(descriptor);
  }
  if (!taken.ok()) closed_ = true;
  return taken;
}

absl::StatusOr<std::optional<Segments::Theirs>> Segments::Open(const SegmentMessage& message,
                                                               int descriptor) {
  if (message.kind == SegmentMessage::Kind::kOffer) {
    absl::StatusOr<std::shared_ptr<Segment>> opened = Segment::Open(descriptor, message.size);
    if (absl::IsInvalidArgument(opened.status())) return opened.status();
    if (!opened.ok()) return std::nullopt;
    return Theirs{*std::move(opened), nullptr};
  }
  if (message.size == 0) return Wrong("memory of a device without bytes was offered");
  if (opener_ == nullptr) return std::nullopt;
  auto opened = opener_->Open(descriptor, message.size);
  if (opened.ok()) return Theirs{nullptr, std::move(opened).value()};
  MutexLock lock(mutex_);
  refusal_ = opened.failure().message;
  return std::nullopt;
}

absl::Status Segments::Take(const SegmentMessage& message, int descriptor) {
  using Kind = SegmentMessage::Kind;
  bool room = false;
  {
    MutexLock lock(mutex_);
    if (theirs_.count(message.number) > 0 || theirs_.size() >= kMaxSegments) {
      return Wrong("a segment was offered twice, or too many were");
    }
    room = message.size <= most_bytes_ - their_bytes_;
    if (!room && message.kind == Kind::kOfferDevice) {
      refusal_ = absl::StrCat("with its ", message.size, " bytes the session would share ",
                              their_bytes_ + message.size, ", and may share ", most_bytes_);
    }
  }
  absl::StatusOr<std::optional<Theirs>> opened = std::optional<Theirs>();
  // What is too much for the session is looked at, because it may be no segment at all.
  if (room || message.kind == Kind::kOffer) opened = Open(message, descriptor);
  if (!opened.ok()) return opened.status();
  if (!room || !opened->has_value()) return Answer({Kind::kRefused, message.number, 0});
  {
    MutexLock lock(mutex_);
    their_bytes_ += message.size;
    theirs_[message.number] = **std::move(opened);
    their_last_ = std::max(their_last_, message.number);
  }
  return Answer({Kind::kMapped, message.number, 0});
}

absl::Status Segments::OnMessage(const SegmentMessage& message, int descriptor) {
  using Kind = SegmentMessage::Kind;
  switch (message.kind) {
    case Kind::kOffer:
    case Kind::kOfferDevice:
      return Take(message, descriptor);
    case Kind::kMapped:
    case Kind::kRefused: {
      MutexLock lock(mutex_);
      const auto found = offered_.find(message.number);
      if (found == offered_.end()) return absl::OkStatus();
      found->second.mapped = message.kind == Kind::kMapped;
      found->second.refused = !found->second.mapped;
      return absl::OkStatus();
    }
    case Kind::kWithdraw: {
      Theirs gone;  // Unmapped without the lock.
      MutexLock lock(mutex_);
      const auto found = theirs_.find(message.number);
      if (found == theirs_.end()) return absl::OkStatus();
      gone = std::move(found->second);
      their_bytes_ -= gone.size();
      theirs_.erase(found);
      return absl::OkStatus();
    }
    case Kind::kToken:
    case Kind::kWelcome:
      break;
  }
  return Wrong("a session was opened twice");
}

}  // namespace basin
