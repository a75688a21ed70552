// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Segments: what a peer may pass as one, and that only the creator can change it.

#include "runtime/shared_memory/segment.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace basin {
namespace {

using ::testing::HasSubstr;

constexpr int kSealFutureWrite = 0x0010;  // F_SEAL_FUTURE_WRITE
constexpr int kAllSeals = F_SEAL_SHRINK | F_SEAL_GROW | kSealFutureWrite;

// A memory file that another process might pass, whose first `filled` bytes have memory.
class Foreign {
 public:
  Foreign(uint64_t size, int seals, uint64_t filled)
      : descriptor_(memfd_create("foreign", MFD_CLOEXEC | MFD_ALLOW_SEALING)) {
    EXPECT_EQ(ftruncate(descriptor_, static_cast<off_t>(size)), 0);
    if (filled > 0) {
      EXPECT_EQ(fallocate(descriptor_, 0, 0, static_cast<off_t>(filled)), 0);
    }
    EXPECT_EQ(fcntl(descriptor_, F_ADD_SEALS, seals), 0);
  }
  ~Foreign() { close(descriptor_); }
  int descriptor() const { return descriptor_; }

 private:
  const int descriptor_;
};

absl::Status Opened(int descriptor, uint64_t size) {
  return Segment::Open(descriptor, size).status();
}

TEST(Segment, IsSeenByTheOtherEnd) {
  const auto segment = Segment::Create(100'000);
  ASSERT_TRUE(segment.ok()) << segment.status();
  std::memcpy((*segment)->writable() + 70'000, "gradient", 8);
  const auto opened = Segment::Open((*segment)->descriptor(), 100'000);
  ASSERT_TRUE(opened.ok()) << opened.status();
  EXPECT_EQ(std::string((*opened)->data() + 70'000, 8), "gradient");
  std::memcpy((*segment)->writable() + 70'000, "next one", 8);
  EXPECT_EQ(std::string((*opened)->data() + 70'000, 8), "next one");
}

TEST(Segment, LivesAsLongAsOneEndHasIt) {
  auto segment = *Segment::Create(5000);
  std::memcpy(segment->writable(), "result", 6);
  const auto opened = *Segment::Open(segment->descriptor(), 5000);
  segment.reset();
  EXPECT_EQ(std::string(opened->data(), 6), "result");
}

TEST(Segment, OnlyItsCreatorCanWriteAndNobodyCanResizeIt) {
  const auto segment = *Segment::Create(8192);
  EXPECT_EQ(mmap(nullptr, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, segment->descriptor(), 0),
            MAP_FAILED);
  EXPECT_EQ(pwrite(segment->descriptor(), "x", 1, 0), -1);
  EXPECT_NE(ftruncate(segment->descriptor(), 4096), 0);
  EXPECT_NE(ftruncate(segment->descriptor(), 16384), 0);
  EXPECT_NE(fcntl(segment->descriptor(), F_ADD_SEALS, F_SEAL_WRITE), 0);
}

TEST(Segment, KnowsItsOwnBytes) {
  const auto segment = *Segment::Create(8192);
  const char* data = segment->data();
  EXPECT_TRUE(segment->Has({data, 8192}));
  EXPECT_TRUE(segment->Has({data + 8192, 0}));
  EXPECT_FALSE(segment->Has({data + 1, 8192}));
  EXPECT_FALSE(segment->Has({data - 1, 10}));
}

TEST(Segment, ALyingSizeIsRefused) {
  const Foreign foreign(8192, kAllSeals, 8192);
  EXPECT_TRUE(Opened(foreign.descriptor(), 8192).ok());
  for (const uint64_t size : {uint64_t{0}, uint64_t{4096}, uint64_t{8193}, ~uint64_t{0}}) {
    const absl::Status status = Opened(foreign.descriptor(), size);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << size;
    EXPECT_THAT(status.message(), HasSubstr("has 8192 bytes")) << size;
  }
}

TEST(Segment, OneThatMayStillShrinkIsRefused) {
  for (const int seals : {0, F_SEAL_GROW, F_SEAL_SHRINK | kSealFutureWrite}) {
    const Foreign foreign(8192, seals, 8192);
    const absl::Status status = Opened(foreign.descriptor(), 8192);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(status.message(), HasSubstr("may still change its size"));
  }
}

TEST(Segment, OneThatOthersMayStillMapToWriteIsRefused) {
  const Foreign foreign(8192, F_SEAL_SHRINK | F_SEAL_GROW, 8192);
  const absl::Status status = Opened(foreign.descriptor(), 8192);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("map to write"));
}

TEST(Segment, PagesWithoutMemoryAreRefused) {
  for (const uint64_t filled : {uint64_t{0}, uint64_t{4096}}) {
    const Foreign foreign(uint64_t{1} << 30, kAllSeals, filled);
    const absl::Status status = Opened(foreign.descriptor(), uint64_t{1} << 30);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(status.message(), HasSubstr("pages without memory"));
  }
}

TEST(Segment, NobodyCanMakeAHoleInIt) {
  const auto segment = *Segment::Create(8192);
  EXPECT_NE(fallocate(segment->descriptor(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096),
            0);
  EXPECT_EQ(errno, EPERM);
}

TEST(Segment, OtherDescriptorsAreRefused) {
  int pipes[2];
  ASSERT_EQ(pipe(pipes), 0);
  int sockets[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets), 0);
  const int file = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
  const int folder = open("/", O_RDONLY | O_CLOEXEC);
  for (const int descriptor : {pipes[0], sockets[0], file, folder, -1}) {
    EXPECT_EQ(Opened(descriptor, 4096).code(), absl::StatusCode::kInvalidArgument) << descriptor;
  }
  for (const int descriptor : {pipes[0], pipes[1], sockets[0], sockets[1], file, folder}) {
    close(descriptor);
  }
}

}  // namespace
}  // namespace basin
