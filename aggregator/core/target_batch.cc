// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "aggregator/core/target_batch.h"

#include "absl/strings/str_cat.h"

namespace basin::aggregator {

BatchReported TargetBatch::Report(const Incarnation& incarnation, const WorkerId& worker,
                                  const ReportBatch& report, RoundNumber next, bool begun) {
  BatchReported answer{report.lane, report.round, report.samples, false, {}};
  if (report.round != next) {
    // Its round has ended, or an aggregator that recovers does not know it yet.
    answer.closed = report.round < next;
    return answer;
  }
  if (target_ != 0 && target_ != report.target) {
    answer.error = {
        ErrorCode::kMismatch,
        absl::StrCat("accumulates for a target batch of ", report.target, " samples, but worker ",
                     set_by_, " for one of ", target_, ". Use the same target on every worker")};
    return answer;
  }
  if (target_ == 0) {
    target_ = report.target;
    set_by_ = worker;
  }
  samples_[incarnation] = report.samples;
  answer.samples = 0;
  for (const auto& [each, samples] : samples_) answer.samples += samples;
  closed_ = closed_ || begun || answer.samples >= target_;
  answer.closed = closed_;
  return answer;
}

}  // namespace basin::aggregator
