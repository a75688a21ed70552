// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "client/core/link.h"

#include <algorithm>

#include "protocol/tensor.h"

namespace basin::client {
namespace {

// What a frame may occupy the link for. Shorter frames cost processor time for each, and longer
// ones delay the first result and what waits behind them.
constexpr absl::Duration kFrame = absl::Milliseconds(8);
// A frame is acknowledged so much later than the link alone would let it, because processes take
// turns on processors.
constexpr absl::Duration kScheduling = absl::Milliseconds(1);
// A trip is not shorter, so that one late thread does not change its rate much.
constexpr absl::Duration kTrip = absl::Milliseconds(4);

}  // namespace

void Link::Sent(uint64_t bytes, uint64_t in_flight, absl::Time now) {
  const bool idle = in_flight == 0;
  if (idle) {
    trip_ = Trip{};
    trip_.since = now;
    probe_.ahead = 0;
  }
  if (probe_.ahead == 0) probe_ = {now, bytes, in_flight + bytes, idle};
}

bool Link::MaySend(uint64_t bytes, uint64_t in_flight, uint32_t most) {
  if (in_flight == 0 || in_flight + bytes <= Window(most)) return true;
  trip_.limited = true;
  trip_.target = std::max(trip_.target, in_flight);
  return false;
}

void Link::Acknowledged(uint64_t bytes, absl::Time now) {
  if (bytes == 0) return;
  if (probe_.ahead > 0) {
    probe_.ahead -= std::min(probe_.ahead, bytes);
    if (probe_.ahead == 0) EndProbe(now);
  }
  trip_.acknowledged += bytes;
  if (trip_.acknowledged >= trip_.target && now - trip_.since >= kTrip) EndTrip(now);
}

void Link::EndProbe(absl::Time now) {
  const Delay found{now - probe_.sent, probe_.bytes};
  if (probe_.from_idle) {
    delay_at_ = (delay_at_ + 1) % kProbes;
    delays_[delay_at_] = found;
  } else if (found.time < delays_[delay_at_].time) {
    delays_[delay_at_] = found;
  }
}

void Link::EndTrip(absl::Time now) {
  const double found =
      static_cast<double>(trip_.acknowledged) / absl::ToDoubleSeconds(now - trip_.since);
  if (!trip_.from_idle || rate() == 0) {
    if (trip_.limited) {
      rate_at_ = (rate_at_ + 1) % kTrips;
      rates_[rate_at_] = 0;
    }
    rates_[rate_at_] = std::max(rates_[rate_at_], found);
  }
  trip_ = {now, 0, 0, false, false};
}

double Link::rate() const { return *std::max_element(rates_.begin(), rates_.end()); }

absl::Duration Link::delay() const {
  const auto shortest =
      std::min_element(delays_.begin(), delays_.end(),
                       [](const Delay& a, const Delay& b) { return a.time < b.time; });
  if (shortest->time == absl::InfiniteDuration() || rate() == 0) return absl::ZeroDuration();
  return std::max(absl::ZeroDuration(),
                  shortest->time - absl::Seconds(static_cast<double>(shortest->bytes) / rate()));
}

uint32_t Link::FrameChunks(uint32_t most) const {
  const double chunks = rate() * absl::ToDoubleSeconds(kFrame) / kChunkBytes;
  return static_cast<uint32_t>(std::clamp<double>(chunks, 1, most));
}

uint64_t Link::Window(uint32_t most) const {
  const double held = rate() * absl::ToDoubleSeconds(delay() + kScheduling);
  return 2 * (FrameChunks(most) * kChunkBytes + static_cast<uint64_t>(held));
}

bool Link::NeedsOneStream(uint32_t most) const { return Window(most) <= 2 * most * kChunkBytes; }

}  // namespace basin::client
