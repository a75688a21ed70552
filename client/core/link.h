// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// How fast the way to the aggregator is, and what follows for frames: their size, how many bytes of
// them are on their way at once, and over how many connections.
//
// A result cannot leave before its frame has arrived from every worker, and what waits before a
// cable delays every message behind it. So a slow link needs small frames, few of them, on one
// connection. A fast or a long one needs large ones, and as many as the link holds: its rate times
// its delay. Neither is known beforehand; both follow from when frames are acknowledged, as in
// congestion control that is based on bandwidth and delay (BBR, Cardwell et al. 2016). The window
// is twice what the link holds, so the rate is found to be higher within two round trips where it
// is.
//
// The rate is the highest of the last trips in which the window was the limit; a trip lasts until a
// window of bytes is acknowledged. A trip that begins on an idle link shows less, because the
// buckets and buffers on the way are empty then; it counts only as long as nothing is known. The
// delay is the lowest of the last frames that were sent on an idle link.
//
// Thread contract: a plain value.

#ifndef BASIN_CLIENT_CORE_LINK_H_
#define BASIN_CLIENT_CORE_LINK_H_

#include <cstddef>
#include <cstdint>
#include <tuple>
#include <vector>

#include "absl/time/time.h"

namespace basin::client {

class Link {
 public:
  // A frame is sent; `in_flight` is without it.
  void Sent(uint64_t bytes, uint64_t in_flight, absl::Time now);
  // The aggregator has acknowledged frames of so many bytes.
  void Acknowledged(uint64_t bytes, absl::Time now);
  // Whether a frame may be sent now. One always may if nothing is in flight.
  bool MaySend(uint64_t bytes, uint64_t in_flight, uint32_t most);

  // All for frames of at most `most` chunks.
  uint32_t FrameChunks(uint32_t most) const;
  uint64_t Window(uint32_t most) const;
  bool NeedsOneStream(uint32_t most) const;

  // Bytes per second; 0 as long as nothing is known.
  double rate() const;
  absl::Duration delay() const;  // Without the time of the frame's own bytes.

  auto Fields() const { return std::tie(rates_, rate_at_, delays_, delay_at_, trip_, probe_); }

 private:
  static constexpr size_t kTrips = 4;
  static constexpr size_t kProbes = 8;

  struct Delay {
    absl::Duration time = absl::InfiniteDuration();  // From the frame to its acknowledgement.
    uint64_t bytes = 0;
    auto Fields() const { return std::tie(time, bytes); }
  };
  struct Trip {
    absl::Time since = absl::InfiniteFuture();
    uint64_t acknowledged = 0;
    uint64_t target = 0;
    bool from_idle = true;
    bool limited = false;  // The window was full at some time.
    auto Fields() const { return std::tie(since, acknowledged, target, from_idle, limited); }
  };
  // The frame whose acknowledgement is timed.
  struct Probe {
    absl::Time sent = absl::InfinitePast();
    uint64_t bytes = 0;
    uint64_t ahead = 0;  // Bytes to be acknowledged until it is, itself included; 0: none.
    bool from_idle = false;
    auto Fields() const { return std::tie(sent, bytes, ahead, from_idle); }
  };

  void EndTrip(absl::Time now);
  void EndProbe(absl::Time now);

  std::vector<double> rates_ = std::vector<double>(kTrips);
  uint32_t rate_at_ = 0;
  std::vector<Delay> delays_ = std::vector<Delay>(kProbes);
  uint32_t delay_at_ = 0;
  Trip trip_;
  Probe probe_;
};

}  // namespace basin::client

#endif  // BASIN_CLIENT_CORE_LINK_H_
