// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "runtime/shared_memory/private_directory.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "runtime/shared_memory/socket.h"

namespace basin {
namespace {

constexpr char kPrefix[] = "basin-";
constexpr char kPattern[] = "XXXXXX";  // In place of which mkdtemp puts a name that is free.
constexpr char kSocket[] = "workers";

// The entries of a temporary directory that are read at most, so that a start takes milliseconds.
constexpr int kMostEntries = 65536;

std::string Base() {
  const char* const base = std::getenv("TMPDIR");
  return base == nullptr || base[0] != '/' ? "/tmp" : base;
}

bool IsSpecial(const char* name) {
  return std::strcmp(name, ".") == 0 || std::strcmp(name, "..") == 0;
}

int OpenDirectory(const std::string& path) {
  return open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

// Whether the directory holds the socket and nothing else.
bool HoldsOneSocket(int directory) {
  const int copy = openat(directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR* const entries = copy < 0 ? nullptr : fdopendir(copy);
  if (entries == nullptr) {
    if (copy >= 0) close(copy);
    return false;
  }
  bool found = false;
  bool others = false;
  while (const dirent* entry = readdir(entries)) {
    if (IsSpecial(entry->d_name)) continue;
    const bool socket = std::strcmp(entry->d_name, kSocket) == 0;
    found |= socket;
    others |= !socket;
    if (others) break;
  }
  closedir(entries);
  struct stat status = {};
  return found && !others && fstatat(directory, kSocket, &status, AT_SYMLINK_NOFOLLOW) == 0 &&
         S_ISSOCK(status.st_mode) && status.st_uid == geteuid();
}

bool IsPrivate(int directory, struct stat& status) {
  return fstat(directory, &status) == 0 && S_ISDIR(status.st_mode) && status.st_uid == geteuid() &&
         (status.st_mode & 07777) == 0700;
}

// Only a socket without a listener refuses a connection.
bool HasNoListener(const std::string& name) {
  errno = 0;
  const absl::StatusOr<int> used = ConnectLocal(name);
  if (!used.ok()) return errno == ECONNREFUSED;
  close(*used);
  return false;
}

// A directory is removed only under its lock, so the path keeps its meaning while this process
// holds the lock. The lock is tried only if the socket exists. Its owner makes the socket under the
// lock, and therefore never finds the lock taken.
bool RemoveIfAbandoned(const std::string& path) {
  const int directory = OpenDirectory(path);
  if (directory < 0) return false;
  struct stat opened = {};
  struct stat there = {};
  const bool removed = IsPrivate(directory, opened) && HoldsOneSocket(directory) &&
                       flock(directory, LOCK_EX | LOCK_NB) == 0 && HoldsOneSocket(directory) &&
                       lstat(path.c_str(), &there) == 0 && there.st_dev == opened.st_dev &&
                       there.st_ino == opened.st_ino &&
                       HasNoListener(absl::StrCat(path, "/", kSocket)) &&
                       unlinkat(directory, kSocket, 0) == 0 && rmdir(path.c_str()) == 0;
  close(directory);
  return removed;
}

}  // namespace

absl::StatusOr<std::unique_ptr<PrivateDirectory>> PrivateDirectory::Make() {
  std::string path = absl::StrCat(Base(), "/", kPrefix, kPattern);
  if (mkdtemp(path.data()) == nullptr) {
    return absl::UnavailableError(absl::StrCat(
        "The local socket ", path, ": cannot make its directory: ", std::strerror(errno)));
  }
  // A file system without locks, as some that are mounted from other machines: no process can take
  // the lock there, so none removes the directory.
  const int lock = OpenDirectory(path);
  if (lock >= 0) flock(lock, LOCK_EX | LOCK_NB);
  return std::unique_ptr<PrivateDirectory>(new PrivateDirectory(std::move(path), lock));
}

PrivateDirectory::~PrivateDirectory() {
  rmdir(path_.c_str());
  if (lock_ >= 0) close(lock_);
}

std::string PrivateDirectory::SocketName() const { return absl::StrCat(path_, "/", kSocket); }

int PrivateDirectory::RemoveAbandoned() {
  const std::string base = Base();
  DIR* const entries = opendir(base.c_str());
  if (entries == nullptr) return 0;
  int removed = 0;
  for (int read = 0; read < kMostEntries; ++read) {
    const dirent* const entry = readdir(entries);
    if (entry == nullptr) break;
    const std::string name = entry->d_name;
    if (name.size() != std::strlen(kPrefix) + std::strlen(kPattern)) continue;
    if (!absl::StartsWith(name, kPrefix)) continue;
    removed += RemoveIfAbandoned(absl::StrCat(base, "/", name)) ? 1 : 0;
  }
  closedir(entries);
  return removed;
}

}  // namespace basin
