// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "aggregator/basind/descriptors.h"

#include <sys/resource.h>

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace basin::aggregator {
namespace {

// The descriptors that the process itself opens.
constexpr uint64_t kOwn = 40;

constexpr uint64_t kOfAWorker = 3;

}  // namespace

uint64_t Descriptors::workers() const {
  // The listener of the workers does the same.
  const uint64_t kept = std::min<uint64_t>(kKeptDescriptors, now / 4);
  return now <= kept + kOwn ? 0 : (now - kept - kOwn) / kOfAWorker;
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
