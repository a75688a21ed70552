// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "aggregator/config/machine.h"

#include <algorithm>
#include <fstream>
#include <limits>
#include <sstream>
#include <string_view>
#include <thread>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace basin::aggregator {
namespace {

constexpr uint64_t kUnbounded = std::numeric_limits<uint64_t>::max();

// Empty if there is no such file.
std::string Read(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  if (file) text << file.rdbuf();
  return text.str();
}

std::vector<std::string> Words(const std::string& text) {
  return absl::StrSplit(text, absl::ByAnyChar(" \t\n"), absl::SkipEmpty());
}

// The `index`-th word of a file, as a number; unbounded if it is not a number ("max", "-1").
uint64_t NumberIn(const std::string& path, size_t index = 0) {
  const std::vector<std::string> words = Words(Read(path));
  uint64_t number = 0;
  if (index >= words.size() || !absl::SimpleAtoi(words[index], &number)) return kUnbounded;
  return number;
}

// The group itself and every group above it, below where the hierarchy is mounted. In a container
// the path may be one of the host, of which only the top is to be seen.
std::vector<std::string> GroupsAbove(const std::string& mount, const std::string& group) {
  std::vector<std::string> groups;
  for (size_t end = group.size(); end > 0 && end != std::string::npos;) {
    groups.push_back(mount + group.substr(0, end));
    end = group.rfind('/', end - 1);
  }
  groups.push_back(mount);
  return groups;
}

// CPUs of a quota: rounded up, because half a CPU is one that is used half of the time.
uint64_t CpusOf(uint64_t quota, uint64_t period) {
  if (quota == kUnbounded || period == kUnbounded || quota == 0 || period == 0) return kUnbounded;
  return (quota - 1) / period + 1;
}

struct Bounds {
  uint64_t memory = kUnbounded;
  uint64_t cpus = kUnbounded;
};

void BoundByUnified(const std::string& root, const std::string& group, Bounds& bounds) {
  for (const std::string& path : GroupsAbove(root + "/sys/fs/cgroup", group)) {
    bounds.memory = std::min(bounds.memory, NumberIn(path + "/memory.max"));
    bounds.cpus =
        std::min(bounds.cpus, CpusOf(NumberIn(path + "/cpu.max"), NumberIn(path + "/cpu.max", 1)));
  }
}

void BoundByMemory(const std::string& root, const std::string& group, Bounds& bounds) {
  for (const std::string& path : GroupsAbove(root + "/sys/fs/cgroup/memory", group)) {
    bounds.memory = std::min(bounds.memory, NumberIn(path + "/memory.limit_in_bytes"));
  }
}

void BoundByCpu(const std::string& root, const std::string& group, Bounds& bounds) {
  for (const std::string& path : GroupsAbove(root + "/sys/fs/cgroup/cpu", group)) {
    bounds.cpus = std::min(bounds.cpus, CpusOf(NumberIn(path + "/cpu.cfs_quota_us"),
                                               NumberIn(path + "/cpu.cfs_period_us")));
  }
}

// Lines of /proc/self/cgroup: "number:controllers:path"; without controllers, version 2.
Bounds BoundsOfGroups(const std::string& root) {
  Bounds bounds;
  const std::string text = Read(root + "/proc/self/cgroup");
  const std::vector<std::string> lines = absl::StrSplit(text, '\n', absl::SkipEmpty());
  for (const std::string& line : lines) {
    const std::vector<std::string> parts = absl::StrSplit(line, absl::MaxSplits(':', 2));
    if (parts.size() != 3) continue;
    if (parts[1].empty()) BoundByUnified(root, parts[2], bounds);
    const std::vector<std::string> controllers = absl::StrSplit(parts[1], ',');
    for (const std::string& controller : controllers) {
      if (controller == "memory") BoundByMemory(root, parts[2], bounds);
      if (controller == "cpu") BoundByCpu(root, parts[2], bounds);
    }
  }
  return bounds;
}

// "MemTotal:  24610376 kB" is the first line.
uint64_t MemoryOfMachine(const std::string& root) {
  const std::vector<std::string> words = Words(Read(root + "/proc/meminfo"));
  uint64_t kibibytes = 0;
  if (words.size() < 2 || words[0] != "MemTotal:" || !absl::SimpleAtoi(words[1], &kibibytes)) {
    return kUnbounded;
  }
  return kibibytes << 10;
}

}  // namespace

Machine LookAtMachine(const std::string& root) {
  const Bounds bounds = BoundsOfGroups(root);
  const uint64_t memory = std::min(bounds.memory, MemoryOfMachine(root));
  const uint64_t cpus = std::min<uint64_t>(bounds.cpus, std::thread::hardware_concurrency());
  Machine machine;
  machine.memory_bytes = memory == kUnbounded ? 0 : memory;
  machine.cpus = static_cast<uint32_t>(std::max<uint64_t>(cpus, 1));
  return machine;
}

}  // namespace basin::aggregator
