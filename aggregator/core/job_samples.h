// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The samples of a job's lanes: who leases them, what becomes of them when a worker goes or
// returns, and how many a round waits for.
//
// Thread contract: functions of a Job with a JobScope; see job_scope.h.

#ifndef BASIN_AGGREGATOR_CORE_JOB_SAMPLES_H_
#define BASIN_AGGREGATOR_CORE_JOB_SAMPLES_H_

#include <cstdint>
#include <optional>
#include <string>

#include "aggregator/core/job_scope.h"

namespace basin::aggregator {

void OnLeaseSamples(Job& job, const JobScope& scope, Slot slot, const LeaseSamples& ask);
void OnReturnSamples(Job& job, const JobScope& scope, Slot slot, const ReturnSamples& back);
void OnReportBatch(Job& job, const JobScope& scope, Slot slot, const ReportBatch& report);

// The worker takes part in no later round: it is lost, it has finished, or it is no member any
// more.
void ReturnAllSamples(Job& job, const JobScope& scope, Slot slot);
// The worker has a new session in the same life.
void ResumeSamples(Job& job, const JobScope& scope, Slot slot, const Hello& hello);
// It is told what it holds, if its hello named more: another worker may have leased that since,
// from an aggregator that had lost this worker. REQUIRES: it was welcomed.
void CorrectSamples(const Job& job, const JobScope& scope, Slot slot, const Hello& hello);
// The open round of the lane has ended; `samples` if it is committed, and commits some.
void EndRoundSamples(const Job& job, const JobScope& scope, Lane& lane,
                     const std::optional<RoundSamples>& samples);

// Why there is no memory for what becomes of the samples that the begin names, as the end of a
// sentence; empty if there is.
std::string WhyNoMemoryForSamples(const Job& job, const JobScope& scope, const Lane& lane,
                                  Slot slot, const Begin& begin);
// Charges what the ledger of the lane needs now. What has grown since the last call was checked:
// only leases, returns, hellos and begins make it need more.
void ChargeSamples(const Job& job, const JobScope& scope, Lane& lane);

// Why a worker whose client has these features cannot be admitted, as the end of a sentence; empty
// if it can. Verdicts name samples while a lane has an epoch, so every worker must know them.
std::string WhyNotKnowsSamples(const Job& job, uint64_t features);

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_CORE_JOB_SAMPLES_H_
