// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The batch of a lane's next round, if its workers share a target: each accumulates gradients of
// as many samples as it can, and the round closes when they have the target together. From then on
// each worker begins it with what it has, so the contributors are those of any other round. The
// idea is that of hivemind's target batch size.
//
// It is as soft as can be: a report says all that its worker has accumulated, and each micro-batch
// is followed by one. A round that somebody has begun is closed, so an aggregator without memory
// closes none again that was.
//
// Thread contract: a plain value.

#ifndef BASIN_AGGREGATOR_CORE_TARGET_BATCH_H_
#define BASIN_AGGREGATOR_CORE_TARGET_BATCH_H_

#include <cstdint>
#include <map>
#include <tuple>

#include "protocol/ids.h"
#include "protocol/messages.h"

namespace basin::aggregator {

// Makes values of this namespace comparable wherever they are nested, see protocol/fields.h.
using basin::operator==;
using basin::operator!=;

class TargetBatch {
 public:
  // The answer to a report of a member. `next`: the round that is open or opens next; `begun`:
  // somebody has begun it. A report about another round counts for none. The text of a refusal is
  // the end of a sentence about the worker.
  BatchReported Report(const Incarnation& incarnation, const WorkerId& worker,
                       const ReportBatch& report, RoundNumber next, bool begun);
  // The worker contributes no more, and its samples do not count. If nobody else has reported, its
  // target does not either.
  void Leave(const Incarnation& incarnation) {
    samples_.erase(incarnation);
    if (samples_.empty() && !closed_) *this = TargetBatch();
  }
  // The next round has a batch and a target of its own.
  void EndRound() { *this = TargetBatch(); }

  auto Fields() const { return std::tie(target_, set_by_, samples_, closed_); }

 private:
  uint64_t target_ = 0;  // The next round's; 0: nobody has reported.
  WorkerId set_by_;      // The worker that reported first.
  std::map<Incarnation, uint64_t> samples_;
  bool closed_ = false;
};

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_CORE_TARGET_BATCH_H_
