// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "aggregator/leadership/file_authority.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <random>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "kernels/checksum.h"

namespace basin::aggregator {
namespace {

constexpr char kFirstLine[] = "basin-leader 1";
constexpr char kAlive[] = ".alive";
constexpr char kNew[] = ".new";
constexpr char kDeployment[] = "deployment";
constexpr size_t kNumberDigits = 20;
constexpr size_t kMostBytes = 4096;
constexpr size_t kLines = 10;  // Where there is no deployment; the last one is empty.
// How often a listing is repeated whose file was removed before it was read. Each time, others have
// written twice.
constexpr int kTries = 10;

class File {
 public:
  File(const std::string& path, int flags) : number_(open(path.c_str(), flags | O_CLOEXEC, 0600)) {}
  ~File() {
    if (number_ >= 0) close(number_);
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  bool ok() const { return number_ >= 0; }
  int number() const { return number_; }
  int Release() { return std::exchange(number_, -1); }

 private:
  int number_;
};

struct flock WholeFile() {
  struct flock lock = {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  return lock;
}

// Whether this file has it now; another process may hold it.
bool Lock(int file) {
  struct flock lock = WholeFile();
  return fcntl(file, F_OFD_SETLK, &lock) == 0;
}

bool IsLocked(int file) {
  struct flock lock = WholeFile();
  return fcntl(file, F_OFD_GETLK, &lock) != 0 || lock.l_type != F_UNLCK;
}

// Whether this is the file that has the path now.
bool IsAt(int file, const std::string& path) {
  struct stat held = {};
  struct stat found = {};
  return fstat(file, &held) == 0 && stat(path.c_str(), &found) == 0 &&
         held.st_dev == found.st_dev && held.st_ino == found.st_ino;
}

// False: errno has the reason why not all of it was written, which the system only gives with the
// rest.
bool WriteAll(int file, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = write(file, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return false;
    text.remove_prefix(static_cast<size_t>(written));
  }
  return true;
}

std::string NameOf(uint64_t number) {
  std::string name = absl::StrCat(number);
  return name.insert(0, kNumberDigits - name.size(), '0');
}

// 0: it is not the name of a state.
uint64_t NumberOf(std::string_view name) {
  uint64_t number = 0;
  const bool good = name.size() == kNumberDigits &&
                    absl::SimpleAtoi(absl::string_view(name.data(), name.size()), &number);
  return good ? number : 0;
}

// Changes when the machine starts again.
std::string BootOf() {
  const File file("/proc/sys/kernel/random/boot_id", O_RDONLY);
  char text[64] = {};
  const ssize_t size = file.ok() ? read(file.number(), text, sizeof text - 1) : 0;
  return std::string(absl::StripTrailingAsciiWhitespace(
      absl::string_view(text, static_cast<size_t>(std::max<ssize_t>(size, 0)))));
}

// `replaced`: the version before it.
std::string Encode(const LeaderRecord& record, const std::string& replaced) {
  // Two states with the same content differ by this.
  std::random_device random;
  const std::string body = absl::StrCat(
      "fence ", record.fence, "\nholder ", record.holder, "\naddress ", record.address, "\nlease ",
      absl::ToInt64Nanoseconds(record.lease), "\nboot ", BootOf(), "\nreplaced ", replaced,
      "\nonce ", random(), "\n",
      record.deployment.empty() ? "" : absl::StrCat(kDeployment, " ", record.deployment, "\n"));
  return absl::StrCat(kFirstLine, "\n",
                      absl::Hex(kernels::ChecksumOf(body.data(), body.size()), absl::kZeroPad16),
                      "\n", body);
}

struct Decoded {
  LeaderRecord record;
  std::string boot;
  std::string replaced;
};

std::string VersionOf(uint64_t number, const std::string& text) {
  return absl::StrCat(number, ":", absl::Hex(kernels::ChecksumOf(text.data(), text.size())));
}

bool Take(absl::string_view line, absl::string_view key, std::string& value) {
  if (!absl::ConsumePrefix(&line, key) || !absl::ConsumePrefix(&line, " ")) return false;
  value = std::string(line);
  return true;
}

bool Decode(const std::string& text, Decoded& decoded) {
  const std::vector<std::string> lines = absl::StrSplit(text, '\n');
  const bool has_deployment = lines.size() == kLines + 1;
  if (lines.size() != kLines && !has_deployment) return false;
  if (lines[0] != kFirstLine) return false;
  const std::string body = text.substr(lines[0].size() + lines[1].size() + 2);
  if (lines[1] !=
      absl::StrCat(absl::Hex(kernels::ChecksumOf(body.data(), body.size()), absl::kZeroPad16))) {
    return false;
  }
  std::string fence;
  std::string lease;
  int64_t nanoseconds = 0;
  const bool good =
      Take(lines[2], "fence", fence) && absl::SimpleAtoi(fence, &decoded.record.fence) &&
      Take(lines[3], "holder", decoded.record.holder) &&
      Take(lines[4], "address", decoded.record.address) && Take(lines[5], "lease", lease) &&
      absl::SimpleAtoi(lease, &nanoseconds) && Take(lines[6], "boot", decoded.boot) &&
      Take(lines[7], "replaced", decoded.replaced) &&
      (!has_deployment || Take(lines[9], kDeployment, decoded.record.deployment));
  decoded.record.lease = absl::Nanoseconds(nanoseconds);
  return good;
}

}  // namespace

absl::StatusOr<std::unique_ptr<FileAuthority>> FileAuthority::Open(const std::string& directory,
                                                                   const std::string& holder) {
  std::unique_ptr<FileAuthority> authority(new FileAuthority(directory, holder));
  if (absl::Status made = authority->MakeDirectory(); !made.ok()) return made;
  if (absl::Status lives = authority->Live(); !lives.ok()) return lives;
  return authority;
}

FileAuthority::~FileAuthority() { Leave(); }

absl::Status FileAuthority::Cannot(const std::string& what) const {
  return absl::UnavailableError(absl::StrCat(
      "The directory ", directory_, " of standby.authority cannot be ", what, ": ",
      std::generic_category().message(errno),
      ". All aggregators of the group need a directory of this machine that they can write"));
}

absl::Status FileAuthority::MakeDirectory() const {
  if (mkdir(directory_.c_str(), 0700) != 0 && errno != EEXIST) return Cannot("made");
  return absl::OkStatus();
}

absl::Status FileAuthority::Live() {
  const std::string path = PathOf(holder_ + kAlive);
  if (alive_ >= 0 && IsAt(alive_, path)) return absl::OkStatus();
  if (alive_ >= 0) close(std::exchange(alive_, -1));
  for (int left = kTries; left > 0; --left) {
    File file(path, O_RDWR | O_CREAT);
    if (!file.ok()) return Cannot("written");
    // Another process may be removing it.
    if (!Lock(file.number()) || !IsAt(file.number(), path)) continue;
    alive_ = file.Release();
    return absl::OkStatus();
  }
  return Cannot("locked");
}

void FileAuthority::Leave() {
  if (alive_ < 0) return;
  unlink(PathOf(holder_ + kAlive).c_str());
  close(std::exchange(alive_, -1));
}

// A process whose file is gone is not known to have ended.
bool FileAuthority::HasEnded(const std::string& holder) const {
  if (holder.empty() || holder == kNobody || holder == holder_) return false;
  const std::string path = PathOf(holder + kAlive);
  const File file(path, O_RDWR);
  return file.ok() && !IsLocked(file.number()) && IsAt(file.number(), path);
}

absl::StatusOr<uint64_t> FileAuthority::HighestNumber() const {
  DIR* const listing = opendir(directory_.c_str());
  if (listing == nullptr) {
    if (errno == ENOENT) return uint64_t{0};
    return Cannot("read");
  }
  uint64_t highest = 0;
  errno = 0;
  while (const dirent* entry = readdir(listing)) {
    highest = std::max(highest, NumberOf(entry->d_name));
    errno = 0;
  }
  // A listing that broke off may lack the record.
  const int error = errno;
  closedir(listing);
  errno = error;
  if (error != 0) return Cannot("read");
  return highest;
}

absl::StatusOr<std::string> FileAuthority::ReadState(uint64_t number) const {
  const File file(PathOf(NameOf(number)), O_RDONLY);
  if (!file.ok() && errno == ENOENT) return absl::NotFoundError("It has been removed.");
  if (!file.ok()) return Cannot("read");
  std::string text(kMostBytes, '\0');
  const ssize_t size = read(file.number(), text.data(), text.size());
  if (size < 0) return Cannot("read");
  text.resize(static_cast<size_t>(size));
  return text;
}

absl::StatusOr<FileAuthority::Newest> FileAuthority::ReadNewest() const {
  for (int left = kTries; left > 0; --left) {
    const absl::StatusOr<uint64_t> number = HighestNumber();
    if (!number.ok()) return number.status();
    Newest newest;
    newest.number = *number;
    if (*number == 0) return newest;
    const absl::StatusOr<std::string> text = ReadState(*number);
    if (absl::IsNotFound(text.status())) continue;
    if (!text.ok()) return text.status();
    newest.state.version = VersionOf(*number, *text);
    Decoded decoded;
    if (Decode(*text, decoded)) {
      newest.state.record = decoded.record;
      newest.state.holder_ended = decoded.boot == BootOf() && HasEnded(decoded.record.holder);
    } else {
      newest.state.record = LeaderRecord{0, kNobody, "", absl::ZeroDuration()};
    }
    return newest;
  }
  errno = EAGAIN;
  return Cannot("read");
}

absl::StatusOr<RecordState> FileAuthority::Read(absl::Duration) {
  absl::StatusOr<Newest> newest = ReadNewest();
  if (!newest.ok()) return newest.status();
  return newest->state;
}

absl::StatusOr<std::string> FileAuthority::Write(const LeaderRecord& record,
                                                 const std::string& version, absl::Duration) {
  if (absl::Status made = MakeDirectory(); !made.ok()) return made;
  if (absl::Status lives = Live(); !lives.ok()) return lives;
  const absl::StatusOr<Newest> before = ReadNewest();
  if (!before.ok()) return before.status();
  const absl::Status changed = absl::AbortedError("The record of the leader has changed.");
  if (before->state.version != version) return changed;
  const uint64_t number = before->number + 1;
  const std::string text = Encode(record, version);
  const std::string written = VersionOf(number, text);
  const std::string beside = PathOf(holder_ + kNew);
  const std::string path = PathOf(NameOf(number));
  {
    const File file(beside, O_WRONLY | O_CREAT | O_TRUNC);
    if (!file.ok() || !WriteAll(file.number(), text)) return Cannot("written");
    // A change of the leader must survive a crash of the machine; a renewal need not.
    const bool renews =
        before->state.record.has_value() && before->state.record->holder == record.holder;
    if (!renews && fdatasync(file.number()) != 0) return Cannot("written");
  }
  const bool linked = link(beside.c_str(), path.c_str()) == 0;
  const int error = errno;
  unlink(beside.c_str());
  errno = error;
  if (!linked) return error == EEXIST ? changed : Cannot("written");
  const absl::StatusOr<uint64_t> highest = HighestNumber();
  if (!highest.ok()) return highest.status();
  if (*highest == number) {
    RemoveOld(number);
    return written;
  }
  // Others have gone on: from this state, or before it was linked.
  const absl::StatusOr<std::string> next = ReadState(number + 1);
  Decoded decoded;
  if (next.ok() && Decode(*next, decoded)) {
    if (decoded.replaced == written) return written;
    unlink(path.c_str());
    return changed;
  }
  errno = EAGAIN;
  return Cannot("written");
}

void FileAuthority::RemoveOld(uint64_t number) const {
  DIR* const listing = opendir(directory_.c_str());
  if (listing == nullptr) return;
  std::vector<std::string> names;
  while (const dirent* entry = readdir(listing)) names.emplace_back(entry->d_name);
  closedir(listing);
  for (const std::string& name : names) {
    const uint64_t old = NumberOf(name);
    // The one before is kept for whoever has just found it.
    if (old != 0 && old + 1 < number) unlink(PathOf(name).c_str());
    if (!absl::EndsWith(name, kAlive) || name == holder_ + kAlive) continue;
    const File file(PathOf(name), O_RDWR);
    // With the lock, no process can begin to use the file that is removed.
    if (!file.ok() || !Lock(file.number())) continue;
    unlink(PathOf(absl::StrCat(absl::StripSuffix(name, kAlive), kNew)).c_str());
    unlink(PathOf(name).c_str());
  }
}

}  // namespace basin::aggregator
