// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "client/core/target_batch.h"

#include "client/core/lane.h"

namespace basin::client {

Error Take(Lane& lane, const Scope& scope, const AccumulateBatch& batch) {
  if (lane.report.has_value()) {
    return lane.RefuseCall(ErrorCode::kFailedPrecondition,
                           "another thread already reports the batch of this lane.");
  }
  if (lane.round.has_value()) {
    return lane.RefuseCall(
        ErrorCode::kFailedPrecondition,
        "the batch of the next round was reported before the outcome of this one. Wait for it.");
  }
  lane.report = BatchReport{batch.samples, batch.target, false};
  AdvanceReport(lane, scope);
  return {};
}

void AdvanceReport(Lane& lane, const Scope& scope) {
  if (!scope.welcomed || !lane.in_session || !lane.started) return;
  if (!lane.report.has_value() || lane.report->sent) return;
  if (lane.undelivered.has_value()) {
    // The round went on without this worker, so its batch is closed.
    const uint64_t samples = lane.report->samples;
    lane.report.reset();
    scope.actions.push_back(BatchAnswered{lane.handle, samples, true, {}});
    return;
  }
  if (!scope.knows_samples) {
    FailReport(lane, scope,
               lane.RefuseCall(ErrorCode::kVersionMismatch,
                               "the aggregator is too old to know target batches. Update it."));
    return;
  }
  lane.report->sent = true;
  scope.Send(ReportBatch{*lane.index, lane.next(), lane.report->samples, lane.report->target});
}

void OnReported(Lane& lane, const Scope& scope, const BatchReported& reported) {
  if (!lane.report.has_value() || !lane.report->sent) return;
  if (reported.round != lane.next()) {
    // That round has ended meanwhile: it was aborted, and this worker had joined in it; or it went
    // on without this worker.
    lane.report->sent = false;
    AdvanceReport(lane, scope);
    return;
  }
  lane.report.reset();
  scope.actions.push_back(
      BatchAnswered{lane.handle, reported.samples, reported.closed, reported.error});
}

void FailReport(Lane& lane, const Scope& scope, const Error& error) {
  if (!lane.report.has_value()) return;
  lane.report.reset();
  scope.actions.push_back(BatchAnswered{lane.handle, 0, false, error});
}

}  // namespace basin::client
