// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The tokens of the sessions that have ended last. A stream or a socket of such a session may come
// after its end, which is no violation.
//
// Thread contract: a plain value.

#ifndef BASIN_AGGREGATOR_TRANSPORT_PAST_TOKENS_H_
#define BASIN_AGGREGATOR_TRANSPORT_PAST_TOKENS_H_

#include <cstddef>
#include <deque>

#include "absl/container/flat_hash_set.h"
#include "protocol/ids.h"

namespace basin::aggregator {

class PastTokens {
 public:
  void Add(SessionToken token) {
    if (!known_.insert(token).second) return;
    order_.push_back(token);
    if (order_.size() <= kMost) return;
    known_.erase(order_.front());
    order_.pop_front();
  }
  bool Has(SessionToken token) const { return known_.contains(token); }

 private:
  // As many sessions may end within the moments that a stream takes to come.
  static constexpr size_t kMost = 4096;

  absl::flat_hash_set<SessionToken> known_;
  std::deque<SessionToken> order_;  // The oldest first.
};

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_TRANSPORT_PAST_TOKENS_H_
