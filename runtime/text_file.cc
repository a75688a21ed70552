// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "runtime/text_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace basin {
namespace {

constexpr size_t kMostBytes = size_t{4} << 20;

absl::Status Unreadable() {
  return absl::InvalidArgumentError(absl::StrCat("it cannot be read (", std::strerror(errno), ")"));
}

}  // namespace

absl::StatusOr<std::string> ReadTextFile(const std::string& path) {
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file < 0) return Unreadable();
  struct stat about = {};
  if (fstat(file, &about) != 0 || !S_ISREG(about.st_mode)) {
    close(file);
    return absl::InvalidArgumentError("it is not a regular file");
  }
  std::string text;
  char bytes[16384];
  ssize_t count = 0;
  while (text.size() <= kMostBytes) {
    count = read(file, bytes, sizeof bytes);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) break;
    text.append(bytes, static_cast<size_t>(count));
  }
  const absl::Status unreadable = count < 0 ? Unreadable() : absl::OkStatus();
  close(file);
  if (!unreadable.ok()) return unreadable;
  if (text.size() > kMostBytes) {
    return absl::InvalidArgumentError("it has more than 4 MiB");
  }
  return text;
}

}  // namespace basin
