// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Addresses that have flooded gRPC. New connections from there wait before gRPC gets them: for a
// second, and for twice as long, up to half a minute, each time that it happens again within a
// minute. Addresses that runtime/grpc/peer.h counts as one wait together.
//
// Thread contract: safe from any thread. Failure: none; when as many addresses wait as fit, no more
// are added.

#ifndef BASIN_AGGREGATOR_TRANSPORT_HELD_BACK_H_
#define BASIN_AGGREGATOR_TRANSPORT_HELD_BACK_H_

#include <chrono>
#include <map>
#include <string>

#include "runtime/mutex.h"

namespace basin::aggregator {

class HeldBack {
 public:
  using Clock = std::chrono::steady_clock;

  // A connection from this address (without a port) was closed for what it did to gRPC.
  void Add(const std::string& address);
  // Until when the connections of a source (SourceOf an address) wait; in the past if they do not.
  Clock::time_point Until(const std::string& source) const;

 private:
  struct Hold {
    Clock::time_point until;
    Clock::duration time = Clock::duration::zero();
  };
  mutable Mutex mutex_;
  std::map<std::string, Hold> holds_ ABSL_GUARDED_BY(mutex_);  // By source.
};

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_TRANSPORT_HELD_BACK_H_
