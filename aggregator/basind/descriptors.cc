// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "aggregator/basind/descriptors.h"

#include <sys/resource.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "aggregator/engine/result_arena.h"
#include "aggregator/transport/server.h"

namespace basin::aggregator {
namespace {

// The descriptors that the process itself opens.
constexpr uint64_t kOwn = 40;

constexpr uint64_t kOfAWorker = 3;

// gRPC and `Newcomers` hold a descriptor each for a newcomer; a connection that waits for its turn
// and a silent one are one each, for which the listener counts two. So the newcomers of one
// address, those of it that wait, and the silent connections have at most half of all, and with
// those that are kept for operators, at most three quarters.
constexpr uint64_t kLimitOverNewcomers = 12;

}  // namespace

namespace {

// The listener of the workers does the same.
uint64_t KeptOf(uint64_t now) { return std::min<uint64_t>(kKeptDescriptors, now / 4); }

}  // namespace

uint32_t Descriptors::kept_for_probes() const { return static_cast<uint32_t>(KeptOf(now) / 4 * 3); }

uint64_t Descriptors::workers() const {
  const uint64_t watched = newcomers();  // Connections of workers.
  const uint64_t kept = KeptOf(now) + kOwn + arenas() * kArenaDescriptors + watched;
  return now <= kept ? 0 : (now - kept) / kOfAWorker;
}

uint64_t Descriptors::arenas() const { return std::max<uint64_t>(now / 16 / kArenaDescriptors, 1); }

size_t Descriptors::newcomers() const {
  return std::clamp<uint64_t>(now / kLimitOverNewcomers, 1, kMostNewcomers);
}

Descriptors RaiseDescriptors() {
  rlimit limit = {};
  getrlimit(RLIMIT_NOFILE, &limit);
  Descriptors descriptors;
  descriptors.before = limit.rlim_cur;
  limit.rlim_cur = limit.rlim_max;
  static_cast<void>(setrlimit(RLIMIT_NOFILE, &limit));
  getrlimit(RLIMIT_NOFILE, &limit);
  descriptors.now = limit.rlim_cur;
  return descriptors;
}

std::string Describe(const Descriptors& descriptors) {
  return absl::StrCat(descriptors.now, " file descriptors",
                      descriptors.now > descriptors.before
                          ? absl::StrCat(" (raised from ", descriptors.before, ")")
                          : "",
                      ", for about ", descriptors.workers(), " workers");
}

}  // namespace basin::aggregator
