// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "runtime/shared_memory/segments.h"

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
      raw.kind > static_cast<uint32_t>(Kind::kWithdraw)) {
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
  if (closed_) return false;
  MutexLock lock(mutex_);
  const Offered* known = nullptr;
  for (auto it = offered_.begin(); it != offered_.end();) {
    if (!it->second.segment.expired()) {
      if (it->second.bytes.data() == segment->data()) known = &it->second;
      ++it;
      continue;
    }
    // A peer that does not receive this keeps the segment until its session ends.
    Send({SegmentMessage::Kind::kWithdraw, it->first, 0}).IgnoreError();
    it = offered_.erase(it);
  }
  if (known != nullptr) return !known->refused;
  if (offered_.size() >= kMaxSegments) return false;
  const uint64_t number = next_++;
  const SegmentMessage offer{SegmentMessage::Kind::kOffer, number, segment->size()};
  if (!SendMessage(socket_, EncodeSegmentMessage(offer), segment->descriptor()).ok()) return false;
  offered_[number] = {segment, {segment->data(), segment->size()}, false, false};
  return true;
}

std::vector<std::shared_ptr<Segment>> Segments::offered() const {
  std::vector<std::shared_ptr<Segment>> segments;
  MutexLock lock(mutex_);
  for (const auto& [number, offered] : offered_) {
    if (auto segment = offered.segment.lock()) segments.push_back(std::move(segment));
  }
  return segments;
}

std::optional<SharedPlace> Segments::Find(std::string_view bytes) const {
  if (closed_) return std::nullopt;
  MutexLock lock(mutex_);
  for (const auto& [number, offered] : offered_) {
    if (!offered.mapped) continue;
    const std::shared_ptr<Segment> segment = offered.segment.lock();
    if (segment == nullptr || !segment->Has(bytes)) continue;
    return SharedPlace{number, static_cast<uint64_t>(bytes.data() - segment->data()), bytes.size()};
  }
  return std::nullopt;
}

absl::StatusOr<std::shared_ptr<const SharedPayload>> Segments::At(const SharedPlace& place) const {
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
  const Segment& segment = *found->second;
  const uint64_t begin = place.version == 0 ? 0 : Segment::kVersionBytes;
  if (place.length > segment.size() || place.offset > segment.size() - place.length ||
      place.offset < begin) {
    return Wrong(absl::StrCat("a frame refers to ", place.length, " bytes at ", place.offset,
                              " of segment ", place.segment, ", which has ", segment.size()));
  }
  return std::make_shared<const SharedPayload>(
      found->second, std::string_view(segment.data() + place.offset, place.length), place.version);
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

absl::Status Segments::Receive() {
  int descriptor = -1;
  const absl::StatusOr<SegmentMessage> message = Next(&descriptor);
  absl::Status taken = message.ok() ? OnMessage(*message, descriptor) : message.status();
  if (descriptor >= 0) close(descriptor);
  if (!taken.ok()) closed_ = true;
  return taken;
}

absl::Status Segments::OnMessage(const SegmentMessage& message, int descriptor) {
  using Kind = SegmentMessage::Kind;
  switch (message.kind) {
    case Kind::kOffer: {
      absl::StatusOr<std::shared_ptr<Segment>> opened = Segment::Open(descriptor, message.size);
      {
        MutexLock lock(mutex_);
        if (theirs_.count(message.number) > 0 || theirs_.size() >= kMaxSegments) {
          return Wrong("a segment was offered twice, or too many were");
        }
        if (opened.ok() && (*opened)->size() > most_bytes_ - their_bytes_) {
          opened = absl::ResourceExhaustedError("The session shares as much as it may.");
        }
        if (opened.ok()) {
          their_bytes_ += (*opened)->size();
          theirs_[message.number] = *opened;
          their_last_ = std::max(their_last_, message.number);
        }
      }
      if (absl::IsInvalidArgument(opened.status())) return opened.status();
      return Send({opened.ok() ? Kind::kMapped : Kind::kRefused, message.number, 0});
    }
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
      std::shared_ptr<Segment> gone;  // Unmapped without the lock.
      MutexLock lock(mutex_);
      const auto found = theirs_.find(message.number);
      if (found == theirs_.end()) return absl::OkStatus();
      gone = std::move(found->second);
      their_bytes_ -= gone->size();
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
