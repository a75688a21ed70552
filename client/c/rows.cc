// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The part of basin.h about calls on rows.

#include <utility>
#include <vector>

#include "client/c/begin.h"
#include "client/c/error.h"
#include "client/c/result.h"
#include "client/c/worker.h"
#include "client/transport/row_calls.h"

struct basin_received {
  explicit basin_received(basin::client::ReceivedRows of)
      : rows(std::move(of)), result(rows.facts) {}

  const basin::client::ReceivedRows rows;
  const basin_result result;
};

namespace {

using basin::c::Check;
using basin::c::Return;
using basin::client::LaneHandle;
using basin::client::RowArray;

// Begins a call with this array, by begin(array, *call).
template <typename F>
basin_code BeginCall(basin_worker* worker, const basin_tensor* rows, const void* data, size_t bytes,
                     uint32_t* call, basin_error** error, F begin) {
  absl::Status status = Check(worker);
  if (status.ok() && call == nullptr) {
    status = absl::InvalidArgumentError(
        "The place for the handle of the call is null. Pass its address.");
  }
  if (!status.ok()) return Return(status, error);
  auto spec = basin::c::SpecOf(rows);
  if (!spec.ok()) return Return(spec.status(), error);
  return Return(begin(RowArray{*std::move(spec), data, bytes}, *call), error);
}

}  // namespace

extern "C" {

basin_code basin_allgather(basin_worker* worker, const basin_tensor* rows, const void* data,
                           size_t bytes, uint32_t* call, basin_error** error) {
  return BeginCall(worker, rows, data, bytes, call, error, [&](RowArray array, LaneHandle& handle) {
    return worker->rows().Allgather(std::move(array), handle);
  });
}

basin_code basin_alltoall(basin_worker* worker, const basin_tensor* rows, const void* data,
                          size_t bytes, const uint64_t* splits, size_t count, uint32_t* call,
                          basin_error** error) {
  if (splits == nullptr && count > 0) {
    return Return(absl::InvalidArgumentError(
                      "The splits of the all-to-all are null. Pass the number of rows for each "
                      "rank."),
                  error);
  }
  const std::vector<uint64_t> numbers(splits, splits + count);
  return BeginCall(worker, rows, data, bytes, call, error, [&](RowArray array, LaneHandle& handle) {
    return worker->rows().AllToAll(std::move(array), numbers, handle);
  });
}

basin_code basin_reducescatter(basin_worker* worker, const basin_tensor* rows,
                               const basin_round_spec* spec, const void* data, size_t bytes,
                               uint32_t* call, basin_error** error) {
  const auto begin = basin::c::RoundOf(spec);
  if (!begin.ok()) return Return(begin.status(), error);
  return BeginCall(worker, rows, data, bytes, call, error, [&](RowArray array, LaneHandle& handle) {
    return worker->rows().ReduceScatter(std::move(array), *begin, handle);
  });
}

basin_code basin_broadcast_rows(basin_worker* worker, const basin_tensor* rows, uint32_t root,
                                const void* data, size_t bytes, uint32_t* call,
                                basin_error** error) {
  return BeginCall(worker, rows, data, bytes, call, error, [&](RowArray array, LaneHandle& handle) {
    return worker->rows().Broadcast(std::move(array), root, handle);
  });
}

basin_code basin_wait_rows(basin_worker* worker, uint32_t call, int64_t timeout,
                           basin_received** received, basin_error** error) {
  absl::Status status = Check(worker);
  if (status.ok() && received == nullptr) {
    status = absl::InvalidArgumentError(
        "The place for the received rows is null. Pass the address of a pointer.");
  }
  if (!status.ok()) return Return(status, error);
  auto rows = worker->rows().Wait(call, basin::c::Timeout(timeout));
  if (!rows.ok()) return Return(rows.status(), error);
  *received = new basin_received(*std::move(rows));
  return BASIN_OK;
}

size_t basin_received_parts(const basin_received* received) {
  return received == nullptr ? 0 : received->rows.rows.size();
}

uint64_t basin_received_rows(const basin_received* received, size_t part) {
  return part < basin_received_parts(received) ? received->rows.rows[part] : 0;
}

const void* basin_received_data(const basin_received* received, size_t part, size_t* bytes) {
  const bool there = part < basin_received_parts(received);
  if (bytes != nullptr) *bytes = there ? received->rows.rows[part] * received->rows.row_bytes : 0;
  return there ? received->rows.At(part) : nullptr;
}

const basin_result* basin_received_result(const basin_received* received) {
  return received == nullptr ? nullptr : &received->result;
}

void basin_received_free(basin_received* received) { delete received; }

}  // extern "C"
