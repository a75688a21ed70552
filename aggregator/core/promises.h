// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Which workers must still promise to follow this aggregator, and no older one.
//
// A recovery is based on hellos, and a hello promises nothing: its worker does not know the term
// yet, so it may still go back to an older aggregator and stage there what this one does not know.
// Once it has read the welcome it refuses every lower term (as an acceptor does that has answered a
// prepare request: Lamport, "Paxos made simple", 2001), and its next message on that session proves
// it. Until the promises suffice, the recovery does not stand: no worker is asked to stage a value,
// and one that is lost before it has promised makes the job recover once more.
//
// They suffice when all counted workers have promised, or when so many have that min_workers of
// max_workers processes are not left for an older aggregator.
//
// Thread contract: a plain value.

#ifndef BASIN_AGGREGATOR_CORE_PROMISES_H_
#define BASIN_AGGREGATOR_CORE_PROMISES_H_

#include <cstddef>
#include <set>
#include <tuple>
#include <utility>

#include "protocol/ids.h"
#include "protocol/messages.h"

namespace basin::aggregator {

class Promises {
 public:
  // A recovery has counted these workers.
  void Await(std::set<WorkerId> counted) {
    awaited_ = std::move(counted);
    given_ = 0;
  }
  void Clear() { Await({}); }

  // A message of the worker has arrived after its welcome. Returns whether this promise makes the
  // recovery stand.
  bool Give(const WorkerId& worker, const JobSettings& settings) {
    if (awaited_.erase(worker) == 0) return false;
    if (++given_ + settings.min_workers > settings.max_workers) awaited_.clear();
    return awaited_.empty();
  }

  bool suffice() const { return awaited_.empty(); }
  const std::set<WorkerId>& awaited() const { return awaited_; }

  auto Fields() const { return std::tie(awaited_, given_); }

 private:
  std::set<WorkerId> awaited_;
  size_t given_ = 0;  // Meaningful while some are awaited.
};

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_CORE_PROMISES_H_
