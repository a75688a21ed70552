// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Memory that two processes on one machine share. One of them creates it and writes to it; the
// other one opens the descriptor that it got from the first and can only read.
//
// The segment is sealed: no process can change its size, so a peer cannot make this process fail
// with SIGBUS, and no process can map it writable after that, so only its creator writes. All its
// pages have memory, which was taken from its creator. A child process does not inherit the
// mapping.
//
// Ownership: shared; the memory is unmapped with the last reference, and freed with the last
// process that has it. Thread contract: size and place are constant; the users define when which
// thread reads and writes which bytes. Failure: a status with a sentence; the bytes then travel
// over the network.

#ifndef BASIN_RUNTIME_SHARED_MEMORY_SEGMENT_H_
#define BASIN_RUNTIME_SHARED_MEMORY_SEGMENT_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <string_view>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "runtime/payload.h"

namespace basin {

class Segment {
 public:
  // Zeros, in memory that the system has already allocated, so that no later access waits for it.
  // REQUIRES: size > 0.
  static absl::StatusOr<std::shared_ptr<Segment>> Create(uint64_t size);

  // Opens the segment of another process; the descriptor stays the caller's. INVALID_ARGUMENT when
  // it is no memory of the kind that Create makes, may change its size, or has another one than
  // `size`.
  static absl::StatusOr<std::shared_ptr<Segment>> Open(int descriptor, uint64_t size);

  ~Segment();
  Segment(const Segment&) = delete;
  Segment& operator=(const Segment&) = delete;

  const char* data() const { return data_; }
  uint64_t size() const { return size_; }
  // REQUIRES: it was created here.
  char* writable() { return data_; }
  // To be passed to another process; -1 if it was opened.
  int descriptor() const { return descriptor_; }

  // ---- a segment whose content its creator replaces from time to time. Its first kVersionBytes
  // are not content: the creator sets a new version before it changes the first byte, and a reader
  // that finds the former version after it has read has not read anything newer.
  static constexpr uint64_t kVersionBytes = 64;
  uint64_t version() const {
    std::atomic_thread_fence(std::memory_order_acquire);
    return __atomic_load_n(reinterpret_cast<const uint64_t*>(data_), __ATOMIC_RELAXED);
  }
  // REQUIRES: it was created here.
  void SetVersion(uint64_t version) {
    __atomic_store_n(reinterpret_cast<uint64_t*>(data_), version, __ATOMIC_RELAXED);
    std::atomic_thread_fence(std::memory_order_release);
  }

  // Whether these bytes lie in it.
  bool Has(std::string_view bytes) const {
    return bytes.data() >= data_ && bytes.size() <= size_ &&
           static_cast<uint64_t>(bytes.data() - data_) <= size_ - bytes.size();
  }

 private:
  Segment(char* data, uint64_t size, int descriptor)
      : data_(data), size_(size), descriptor_(descriptor) {}

  char* const data_;
  const uint64_t size_;
  const int descriptor_;
};

// Bytes in a segment of another process, in memory of the host or of a device.
class SharedPayload : public Payload {
 public:
  // REQUIRES: `piece` lies in the segment, which has kVersionBytes if there is a version.
  SharedPayload(std::shared_ptr<const Segment> segment, std::string_view piece, uint64_t version)
      : segment_(std::move(segment)), piece_(piece), version_(version) {}
  explicit SharedPayload(DevicePlace place) : version_(0), place_(std::move(place)) {}
  absl::Span<const std::string_view> pieces() const override {
    return {&piece_, piece_.empty() ? size_t{0} : size_t{1}};
  }
  const DevicePlace* on_device() const override {
    return place_.segment == nullptr ? nullptr : &place_;
  }
  // Whether the bytes that were read so far are those that the sender meant.
  bool intact() const { return version_ == 0 || segment_->version() == version_; }

 private:
  const std::shared_ptr<const Segment> segment_;  // Null: the bytes are on a device.
  const std::string_view piece_;
  const uint64_t version_;
  const DevicePlace place_;
};

}  // namespace basin

#endif  // BASIN_RUNTIME_SHARED_MEMORY_SEGMENT_H_
