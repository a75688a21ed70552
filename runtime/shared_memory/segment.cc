// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "runtime/shared_memory/segment.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "absl/strings/str_cat.h"

namespace basin {
namespace {

// Newer than the oldest headers that the code is built with.
constexpr int kSealFutureWrite = 0x0010;     // F_SEAL_FUTURE_WRITE
constexpr int kPopulateWrite = 23;           // MADV_POPULATE_WRITE
constexpr int64_t kTmpfsMagic = 0x01021994;  // TMPFS_MAGIC

constexpr int kSizeSeals = F_SEAL_SHRINK | F_SEAL_GROW;
constexpr uint64_t kMostBytes = uint64_t{1} << 46;  // More than any address space has room for.

class Descriptor {
 public:
  explicit Descriptor(int number) : number_(number) {}
  ~Descriptor() {
    if (number_ >= 0) close(number_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return number_; }
  int Release() {
    const int number = number_;
    number_ = -1;
    return number;
  }

 private:
  int number_;
};

absl::Status Failed(const char* what) {
  return absl::ResourceExhaustedError(
      absl::StrCat("Shared memory: ", what, " failed: ", std::strerror(errno)));
}

absl::Status NotOurs(const std::string& why) {
  return absl::InvalidArgumentError(absl::StrCat("A peer offered shared memory that ", why, "."));
}

}  // namespace

absl::StatusOr<std::shared_ptr<Segment>> Segment::Create(uint64_t size) {
  if (size > kMostBytes) return NotOurs("is larger than any memory");
  Descriptor file(memfd_create("basin", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (file.get() < 0) return Failed("memfd_create");
  if (fallocate(file.get(), 0, 0, static_cast<off_t>(size)) != 0) return Failed("fallocate");
  void* data = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
  if (data == MAP_FAILED) return Failed("mmap");
  const std::shared_ptr<Segment> segment(
      new Segment(static_cast<char*>(data), size, file.Release()));
  if (fcntl(segment->descriptor_, F_ADD_SEALS, kSizeSeals | kSealFutureWrite | F_SEAL_SEAL) != 0) {
    return Failed("sealing it");
  }
  // The pages have memory; what fails here is done when they are used.
  (void)madvise(segment->data_, size, kPopulateWrite);
  (void)madvise(segment->data_, size, MADV_DONTFORK);
  return segment;
}

absl::StatusOr<std::shared_ptr<Segment>> Segment::Open(int descriptor, uint64_t size) {
  // The seals come first: without them, the size could change after it was looked at. Asking for
  // them also refuses the files of other systems, whose answers could take any time.
  const int seals = fcntl(descriptor, F_GET_SEALS);
  if (seals < 0) return NotOurs("is no memory file");
  if ((seals & kSizeSeals) != kSizeSeals) return NotOurs("may still change its size");
  if ((seals & kSealFutureWrite) == 0) return NotOurs("others may still map to write to it");
  struct stat status = {};
  struct statfs system = {};
  if (fstat(descriptor, &status) != 0 || !S_ISREG(status.st_mode) ||
      fstatfs(descriptor, &system) != 0 || int64_t{system.f_type} != kTmpfsMagic) {
    return NotOurs("is no memory file");
  }
  if (size == 0 || size > kMostBytes || static_cast<uint64_t>(status.st_size) != size) {
    return NotOurs(absl::StrCat("has ", status.st_size, " bytes and not ", size));
  }
  // Reading a hole would allocate memory here, outside of every budget. The seal prevents later
  // holes.
  if (static_cast<uint64_t>(status.st_blocks) * 512 < size) {
    return NotOurs("has pages without memory");
  }
  void* data = mmap(nullptr, size, PROT_READ, MAP_SHARED, descriptor, 0);
  if (data == MAP_FAILED) return Failed("mmap");
  (void)madvise(data, size, MADV_DONTFORK);
  return std::shared_ptr<Segment>(new Segment(static_cast<char*>(data), size, -1));
}

Segment::~Segment() {
  munmap(data_, size_);
  if (descriptor_ >= 0) close(descriptor_);
}

}  // namespace basin
