// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The part of basin.h about samples and target batches.

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/c/error.h"
#include "client/c/worker.h"
#include "client/core/shuffle.h"

namespace {

using basin::c::Check;
using basin::c::Return;

}  // namespace

namespace basin::c {

absl::StatusOr<std::vector<SampleRange>> RangesOf(const basin_sample_range* ranges, size_t count) {
  if (ranges == nullptr && count > 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("The list of ", count, " ranges of samples is null. Pass the ranges."));
  }
  std::vector<SampleRange> list;
  list.reserve(count);
  for (size_t i = 0; i < count; ++i) list.push_back({ranges[i].begin, ranges[i].end});
  return list;
}

}  // namespace basin::c

namespace {

absl::StatusOr<basin::SampleEpoch> EpochOf(const basin_sample_epoch* epoch) {
  if (epoch == nullptr) {
    return absl::InvalidArgumentError(
        "The epoch is null. Pass its number, its number of samples, and the hash of their order.");
  }
  return basin::SampleEpoch{epoch->number, epoch->samples, epoch->order};
}

void CopyRanges(const std::vector<basin::SampleRange>& from, basin_sample_range* to,
                size_t capacity) {
  for (size_t i = 0; i < std::min(from.size(), capacity); ++i) {
    to[i] = {from[i].begin, from[i].end};
  }
}

absl::Status CheckOutputs(const void* ranges, size_t capacity, const void* written) {
  if ((ranges != nullptr || capacity == 0) && written != nullptr) return absl::OkStatus();
  return absl::InvalidArgumentError(
      "The memory for the ranges of samples, or for their number, is null. Pass both.");
}

// Where a lease goes.
struct LeaseOutputs {
  basin_sample_range* ranges;
  size_t capacity;
  size_t* written;
  int* outcome;
};

absl::Status CheckLease(basin_worker* worker, const LeaseOutputs& to) {
  absl::Status status = Check(worker);
  if (status.ok()) status = CheckOutputs(to.ranges, to.capacity, to.written);
  if (status.ok() && (to.capacity == 0 || to.outcome == nullptr)) {
    status = absl::InvalidArgumentError(
        "A lease of samples needs room for one range at least, and for the outcome. Pass both.");
  }
  return status;
}

// REQUIRES: what is leased fits.
void CopyLease(const basin::client::LeasedSamples& leased, const LeaseOutputs& to) {
  CopyRanges(leased.ranges, to.ranges, to.capacity);
  *to.written = leased.ranges.size();
  *to.outcome = static_cast<int>(leased.outcome);
}

// Leases the batch, unless the worker holds samples that it has not trained on: those of a round
// that was aborted, or that did not count it, come again.
absl::StatusOr<basin::client::LeasedSamples> NextBatch(basin::client::Worker& client, uint32_t lane,
                                                       const basin::SampleEpoch& epoch,
                                                       uint64_t count) {
  const auto held = client.HeldSamples(lane);
  if (!held.ok()) return held.status();
  if (count == 0 || held->ranges.empty() || held->epoch != epoch) {
    auto leased = client.LeaseSamples({lane, epoch, count});
    if (!leased.ok()) return leased;
    uint64_t positions = 0;
    for (const basin::SampleRange& range : leased->ranges) positions += range.size();
    if (positions <= count) return leased;
    // The caller's memory has room for `count`.
    return absl::DataLossError(absl::StrCat("The aggregator leased ", positions, " samples where ",
                                            count, " were asked for. Update or restart it."));
  }
  basin::client::LeasedSamples batch;
  for (const basin::SampleRange& range : held->ranges) {
    if (count == 0) break;
    const uint64_t taken = std::min(count, range.size());
    batch.ranges.emplace_back(range.begin, range.begin + taken);
    count -= taken;
  }
  return batch;
}

}  // namespace

extern "C" {

basin_code basin_samples_next(basin_worker* worker, uint32_t lane, const basin_sample_epoch* epoch,
                              uint64_t count, uint64_t* positions, size_t* written, int* outcome,
                              basin_error** error) {
  absl::Status status = Check(worker);
  if (status.ok() && (positions == nullptr || written == nullptr || outcome == nullptr)) {
    status = absl::InvalidArgumentError(
        "The memory for the positions of a batch, for their number or for the outcome is null. "
        "Pass all three.");
  }
  if (!status.ok()) return Return(status, error);
  const auto of = EpochOf(epoch);
  if (!of.ok()) return Return(of.status(), error);
  auto batch = NextBatch(worker->client(), lane, *of, count);
  if (!batch.ok()) return Return(batch.status(), error);
  *outcome = static_cast<int>(batch->outcome);
  *written = 0;
  for (const basin::SampleRange& range : batch->ranges) {
    for (uint64_t i = range.begin; i < range.end; ++i) positions[(*written)++] = i;
  }
  worker->SetBatch(lane, {*of, std::move(batch->ranges)});
  return BASIN_OK;
}

uint64_t basin_samples_shuffled(const basin_sample_epoch* epoch, uint64_t position) {
  if (epoch == nullptr || position >= epoch->samples) return UINT64_MAX;
  return basin::client::Shuffled({epoch->number, epoch->samples, epoch->order}, position);
}

basin_code basin_samples_lease(basin_worker* worker, uint32_t lane, const basin_sample_epoch* epoch,
                               uint64_t count, basin_sample_range* ranges, size_t capacity,
                               size_t* written, int* outcome, basin_error** error) {
  const LeaseOutputs to{ranges, capacity, written, outcome};
  if (absl::Status status = CheckLease(worker, to); !status.ok()) return Return(status, error);
  const auto of = EpochOf(epoch);
  if (!of.ok()) return Return(of.status(), error);
  auto leased = worker->client().LeaseSamples({lane, *of, count});
  if (!leased.ok()) return Return(leased.status(), error);
  if (leased->ranges.size() > capacity) {
    const auto end = leased->ranges.begin() + static_cast<std::ptrdiff_t>(capacity);
    const absl::Status status =
        worker->client().ReturnSamples({lane, of->number, {end, leased->ranges.end()}});
    if (!status.ok()) return Return(status, error);
    leased->ranges.erase(end, leased->ranges.end());
  }
  CopyLease(*leased, to);
  return BASIN_OK;
}

basin_code basin_samples_lease_step(basin_worker* worker, uint32_t lane,
                                    const basin_sample_epoch* epoch, uint64_t global_batch,
                                    basin_sample_range* ranges, size_t capacity, size_t* written,
                                    int* outcome, basin_error** error) {
  const LeaseOutputs to{ranges, capacity, written, outcome};
  if (absl::Status status = CheckLease(worker, to); !status.ok()) return Return(status, error);
  auto of = EpochOf(epoch);
  if (!of.ok()) return Return(of.status(), error);
  if (global_batch == 0) {
    return Return(absl::InvalidArgumentError(
                      "The global batch is 0. Pass the number of samples of a step, or use "
                      "basin_samples_lease()."),
                  error);
  }
  of->global_batch = global_batch;
  auto leased = worker->client().LeaseSamples({lane, *of, global_batch});
  if (!leased.ok()) return Return(leased.status(), error);
  if (leased->ranges.size() > capacity) {
    const size_t size = leased->ranges.size();
    const absl::Status status =
        worker->client().ReturnSamples({lane, of->number, std::move(leased->ranges)});
    if (!status.ok()) return Return(status, error);
    return Return(absl::ResourceExhaustedError(absl::StrCat(
                      "The share of a step is ", size, " ranges of samples, and there is room for ",
                      capacity, ". Pass room for all; 4096 are always enough.")),
                  error);
  }
  CopyLease(*leased, to);
  return BASIN_OK;
}

basin_code basin_samples_return(basin_worker* worker, uint32_t lane, uint64_t epoch,
                                const basin_sample_range* ranges, size_t count,
                                basin_error** error) {
  if (absl::Status status = Check(worker); !status.ok()) return Return(status, error);
  auto list = basin::c::RangesOf(ranges, count);
  if (!list.ok()) return Return(list.status(), error);
  return Return(worker->client().ReturnSamples({lane, epoch, *std::move(list)}), error);
}

basin_code basin_samples_committed(basin_worker* worker, uint32_t lane, basin_sample_epoch* epoch,
                                   basin_sample_range* ranges, size_t capacity, size_t* written,
                                   basin_error** error) {
  absl::Status status = Check(worker);
  if (status.ok()) status = CheckOutputs(ranges, capacity, written);
  if (status.ok() && epoch == nullptr) status = EpochOf(epoch).status();
  if (!status.ok()) return Return(status, error);
  const auto progress = worker->client().CommittedSamples(lane);
  if (!progress.ok()) return Return(progress.status(), error);
  *epoch = {progress->epoch.number, progress->epoch.samples, progress->epoch.order};
  CopyRanges(progress->ranges, ranges, capacity);
  *written = progress->ranges.size();
  return BASIN_OK;
}

basin_code basin_samples_resume(basin_worker* worker, uint32_t lane,
                                const basin_sample_epoch* epoch,
                                const basin_sample_range* committed, size_t count,
                                basin_error** error) {
  if (absl::Status status = Check(worker); !status.ok()) return Return(status, error);
  const auto of = EpochOf(epoch);
  if (!of.ok()) return Return(of.status(), error);
  auto list = basin::c::RangesOf(committed, count);
  if (!list.ok()) return Return(list.status(), error);
  return Return(worker->client().ResumeSamples({lane, {*of, *std::move(list)}}), error);
}

basin_code basin_report_batch(basin_worker* worker, uint32_t lane, uint64_t samples,
                              uint64_t target, uint64_t* total, int* closed, basin_error** error) {
  absl::Status status = Check(worker);
  if (status.ok() && (total == nullptr || closed == nullptr)) {
    status = absl::InvalidArgumentError(
        "The memory for the samples of all workers, or for whether the batch is closed, is null. "
        "Pass both.");
  }
  if (!status.ok()) return Return(status, error);
  const auto batch = worker->client().ReportBatch({lane, samples, target});
  if (!batch.ok()) return Return(batch.status(), error);
  *total = batch->samples;
  *closed = batch->closed ? 1 : 0;
  return BASIN_OK;
}

}  // extern "C"
