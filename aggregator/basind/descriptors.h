// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The file descriptors of the process: their number and their use.
//
// Thread contract: functions; RaiseDescriptors while there is one thread. Failure: none; a limit
// that cannot be raised stays as it was.

#ifndef BASIN_AGGREGATOR_BASIND_DESCRIPTORS_H_
#define BASIN_AGGREGATOR_BASIND_DESCRIPTORS_H_

#include <cstddef>
#include <cstdint>
#include <string>

namespace basin::aggregator {

// For operators, probes, scrapers and the state file, while workers take all others.
inline constexpr uint32_t kKeptDescriptors = 160;

struct Descriptors {
  uint64_t before = 0;  // The limit that the process was started with,
  uint64_t now = 0;     // and the one that it has set.

  // Workers that can be connected: a session and two data streams each.
  uint64_t workers() const;
  // Those among the kept ones that operators leave to probes, scrapers and the state file.
  uint32_t kept_for_probes() const;
  // Lanes whose results may be in memory that workers on this machine map. Their descriptors are a
  // sixteenth of all, so that they leave room to workers, and those that are kept to operators.
  uint64_t arenas() const;
  // Connections that may be open before their first valid message; see ServerOptions. As many of
  // one address, and as many silent ones, leave most descriptors to others.
  size_t newcomers() const;
};

// Takes as many as the process may have without asking: the soft limit, which is often 1024,
// becomes the hard one.
Descriptors RaiseDescriptors();

// "4096 file descriptors (raised from 1024), for about 1300 workers".
std::string Describe(const Descriptors& descriptors);

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_BASIND_DESCRIPTORS_H_
