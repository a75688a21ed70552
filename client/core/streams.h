// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The data streams of a session: which are up, their loads, and when a lost one is opened again.
// Also the context that every part of the core has during one Step.
//
// Thread contract: a plain value.

#ifndef BASIN_CLIENT_CORE_STREAMS_H_
#define BASIN_CLIENT_CORE_STREAMS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "client/core/action.h"
#include "client/core/config.h"

namespace basin::client {

// Where frames may go. A frame is charged to its stream until it is acknowledged.
class Streams {
 public:
  explicit Streams(uint32_t count) : streams_(count == 0 ? 1 : count) {}

  uint32_t size() const { return static_cast<uint32_t>(streams_.size()); }
  bool IsUp(uint32_t stream) const { return stream < size() && streams_[stream].up; }

  // The stream that is up and has the least unacknowledged bytes, the lowest of equals.
  std::optional<uint32_t> Pick() const {
    std::optional<uint32_t> best;
    for (uint32_t i = 0; i < size(); ++i) {
      if (!streams_[i].up) continue;
      if (!best.has_value() || streams_[i].unacked < streams_[*best].unacked) best = i;
    }
    return best;
  }
  uint64_t unacked(uint32_t stream) const { return streams_[stream].unacked; }
  void Charge(uint32_t stream, uint64_t bytes) { streams_[stream].unacked += bytes; }
  void Release(uint32_t stream, uint64_t bytes) { streams_[stream].unacked -= bytes; }

  void Up(uint32_t stream, absl::Time now) {
    streams_[stream].up = true;
    streams_[stream].up_since = now;
    why_down_.clear();
  }
  // Returns how often in a row the stream was lost, itself included; one that stayed up for
  // `settled` starts a new row.
  uint32_t Down(uint32_t stream, absl::Time now, absl::Duration settled,
                const std::string& reason) {
    why_down_ = reason;
    Stream& down = streams_[stream];
    if (down.up && now - down.up_since >= settled) down.failures = 0;
    down.up = false;
    return ++down.failures;
  }
  // All streams have ended, and with them their loads.
  void Reset() {
    streams_.assign(streams_.size(), Stream{});
    why_down_.clear();
  }

  // Why nothing can be sent, as a part of a sentence; empty while a stream is up, and before one
  // has failed.
  std::string Trouble() const {
    if (why_down_.empty() || Pick().has_value()) return "";
    return absl::StrCat("no data stream to the aggregator is open: ", why_down_);
  }

  auto Fields() const { return std::tie(streams_, why_down_); }

 private:
  struct Stream {
    bool up = false;
    uint64_t unacked = 0;
    uint32_t failures = 0;
    absl::Time up_since;
    auto Fields() const { return std::tie(up, unacked, failures, up_since); }
  };
  std::vector<Stream> streams_;
  std::string why_down_;  // The reason of the last failure since a stream came up.
};

// The context of the parts of the core during one Step.
struct Scope {
  absl::Time now;
  const Config& config;
  const Incarnation& incarnation;
  bool welcomed;             // Messages may be sent.
  const std::string& pause;  // Why the job is paused, as a sentence; empty when it is not.
  uint32_t frame_chunks;     // Chunks of the largest frame.
  uint32_t frame_tensors;    // Tensors that one frame may have.
  Streams& streams;
  std::vector<Action>& actions;

  void Tell(ToAggregator message) const { actions.push_back(Send{std::move(message)}); }
};

}  // namespace basin::client

#endif  // BASIN_CLIENT_CORE_STREAMS_H_
