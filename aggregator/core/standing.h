// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The leadership of this aggregator over a job rests on one of these: a first generation that it
// formed because no worker remembered the run, a recovery, or a verdict that it sent.
//
// A run that this aggregator took for new can turn out to be older when a worker with a history
// comes late. If this aggregator has neither recovered the run nor sent a verdict, the worker is
// right: the generations formed here are void, and a later hello that remembers one of them counts
// as a hello without history.
//
// Thread contract: a plain value.

#ifndef BASIN_AGGREGATOR_CORE_STANDING_H_
#define BASIN_AGGREGATOR_CORE_STANDING_H_

#include <set>
#include <tuple>
#include <utility>

#include "aggregator/core/promises.h"
#include "protocol/ids.h"
#include "protocol/messages.h"

namespace basin::aggregator {

class Standing {
 public:
  // Returns whether the run has a history that this aggregator knows or made.
  bool established() const { return recovered_ || sent_verdict_; }
  bool sent_verdict() const { return sent_verdict_; }
  // Returns whether the last recovery stands; see Promises.
  bool stands() const { return promises_.suffice(); }
  // The counted workers of the last recovery that have not promised yet.
  const std::set<WorkerId>& awaited() const { return promises_.awaited(); }

  // ---- genesis
  // The job begins with this generation.
  void Form(const Generation& first) { formed_ = first; }
  // A worker remembers the run, so what was formed here is no part of it.
  void Void() { voided_ = formed_; }
  // Returns whether this is a void generation.
  bool IsVoid(const Generation& generation) const {
    return generation.term == voided_.term && !(generation < voided_);
  }

  // ---- recovery
  // The recovery counts these workers.
  void Await(std::set<WorkerId> counted) { promises_.Await(std::move(counted)); }
  void Recover() { recovered_ = true; }
  // A message of the worker arrived after its welcome. Returns whether the recovery stands from now
  // on, and did not yet.
  bool Promise(const WorkerId& worker, const JobSettings& settings) {
    return promises_.Give(worker, settings);
  }

  void SendVerdict() { sent_verdict_ = true; }

  // No worker that holds the state is left. A late worker may still hold it, and the job accepts
  // its history until the new lineage has a verdict.
  void EndLineage() { recovered_ = false; }

  // The job recovers. Void generations stay void.
  void Forget() {
    promises_.Clear();
    recovered_ = sent_verdict_ = false;
  }

  auto Fields() const { return std::tie(formed_, voided_, recovered_, sent_verdict_, promises_); }

 private:
  // The first generation that this aggregator formed when no worker remembered the run.
  Generation formed_;
  // The first void generation.
  Generation voided_;
  bool recovered_ = false;     // In this term.
  bool sent_verdict_ = false;  // In this term.
  Promises promises_;          // The workers that the last recovery counted give them.
};

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_CORE_STANDING_H_
