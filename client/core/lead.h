// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// How far a worker is ahead of the results of one shard, in one round, and what follows for frames
// to it.
//
// A result needs a chunk from every worker. A worker that is ahead of the others gains nothing by
// it, and takes from them what they share: the shard's link, which then serves those that are
// ahead before those that all wait for. So as long as results come, a worker sends no more than a
// few windows of its link ahead of them, and no more than the lane's window at the shard.
//
// Results that do not come are no reason to wait: another worker may have begun later, or push its
// tensors in another order. When none has come for as long as several of these windows take, what
// the lane allows may be sent.
//
// Thread contract: a plain value.

#ifndef BASIN_CLIENT_CORE_LEAD_H_
#define BASIN_CLIENT_CORE_LEAD_H_

#include <cstdint>
#include <tuple>

#include "absl/time/time.h"
#include "client/core/link.h"

namespace basin::client {

class Lead {
 public:
  // Chunks of so many bytes were sent, whose results are not here.
  void Sent(uint64_t bytes, absl::Time now);
  // The results of so many of these bytes have come.
  void Returned(uint64_t bytes, absl::Time now);

  // When so many more bytes may be sent, if no result comes before: the past, if they may be now.
  // `window`: the lane's at the shard. `most`: see Link.
  absl::Time MaySendAt(uint64_t bytes, const Link& link, uint64_t window, uint32_t most) const;

  uint64_t bytes() const { return bytes_; }

  auto Fields() const { return std::tie(bytes_, since_); }

 private:
  uint64_t bytes_ = 0;
  absl::Time since_ = absl::InfinitePast();  // The last result, or the first frame without one.
};

}  // namespace basin::client

#endif  // BASIN_CLIENT_CORE_LEAD_H_
