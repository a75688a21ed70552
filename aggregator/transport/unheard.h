// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Which sessions the kernel hears nothing of. Silence alone cannot tell a stopped process from a
// machine that is gone, but its kernel can: it acknowledges what arrives for a process that is
// stopped, swapped out or starved. So each look at the connections of workers is also a look at
// when the last packet of any kind came on any connection of a session. After a second without one,
// the kernel is made to probe at every look, because one lost packet means nothing. A connection
// with data on their way cannot probe; its kernel sends the data again, ever more seldom.
//
// It decides nothing: the core gets the numbers (SessionsUnheard).
//
// A kernel between the two machines, such as that of a proxy which ends TCP, answers for a machine
// that is gone, and so does this machine for a worker on it. Such workers are lost by their
// silence.
//
// Thread contract: for one thread.

#ifndef BASIN_AGGREGATOR_TRANSPORT_UNHEARD_H_
#define BASIN_AGGREGATOR_TRANSPORT_UNHEARD_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "aggregator/core/event.h"
#include "aggregator/transport/kernel_view.h"

namespace basin::aggregator {

class Unheard {
 public:
  using Clock = std::chrono::steady_clock;

  // `probe`: what has the kernel probe on a connection.
  explicit Unheard(std::function<void(int descriptor)> probe = ProbeNow)
      : probe_(std::move(probe)) {}

  // ---- a look: Begin, Add for each connection, End
  void Begin(Clock::time_point now);
  // A connection of a session. `descriptor`: open until End.
  void Add(SessionId session, const KernelView& view, int descriptor);
  // Has the kernel probe, and returns the sessions unheard for longer than the kernel waits until
  // it probes.
  std::vector<UnheardSession> End();

 private:
  // The connections of a session.
  struct Connections {
    uint32_t count = 0;
    std::chrono::milliseconds unheard = std::chrono::milliseconds::max();  // The shortest.
    std::chrono::milliseconds round_trip{0};                               // The longest.
    uint32_t packets = 0;                                                  // The sum, modulo 2^32,
    uint32_t packets_heard = 0;  // and what it was when something was heard.
    std::vector<int> descriptors;
  };

  const std::function<void(int descriptor)> probe_;

  // Since when the looks have followed each other. What this process has slept through does not
  // count: a machine whose clock went on meanwhile has not been able to hear anything.
  Clock::time_point awake_since_;
  Clock::time_point looked_;
  absl::flat_hash_map<SessionId, Connections> sessions_;
  absl::flat_hash_map<SessionId, Connections> before_;  // At the last look.
};

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_TRANSPORT_UNHEARD_H_
