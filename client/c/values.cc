// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The part of basin.h about values.

#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "client/c/error.h"
#include "client/c/worker.h"
#include "protocol/plural.h"

namespace {

using basin::c::Check;
using basin::c::Return;
using basin::c::SpecOf;
using basin::c::Text;

// Whether the caller's memory has the size of the tensor. The call itself refuses a tensor with an
// impossible size.
absl::Status CheckBuffer(const basin::TensorSpec& spec, const void* data, size_t bytes) {
  const std::optional<uint64_t> needed = basin::TensorBytes(spec);
  if (!needed.has_value() || (bytes == *needed && (data != nullptr || bytes == 0))) {
    return absl::OkStatus();
  }
  const std::string given = data == nullptr ? "null" : absl::StrCat(bytes, " bytes");
  return absl::InvalidArgumentError(absl::StrCat("The memory for tensor ", spec.name, " (",
                                                 basin::DescribeSpec(spec), ") is ", given,
                                                 ". Pass the address of its ", *needed, " bytes."));
}

absl::Status Announce(basin_worker* worker, const char* lane, const basin_tensor* tensor,
                      uint64_t version, const void* data, size_t bytes, basin_hold hold) {
  const auto spec = SpecOf(tensor);
  if (!spec.ok()) return spec.status();
  const auto held = basin::c::EnumOf<basin::client::Hold>(
      absl::StrCat("The hold of tensor ", spec->name), hold, BASIN_IN_PLACE);
  if (!held.ok()) return held.status();
  return worker->client().values().Announce({Text(lane), spec->name, version}, *spec, data, bytes,
                                            *held);
}

absl::Status Get(basin_worker* worker, const char* lane, const basin_tensor* tensor,
                 uint64_t version, const std::optional<basin::WorkerId>& source, int64_t timeout,
                 void* to, size_t bytes) {
  const auto spec = SpecOf(tensor);
  if (!spec.ok()) return spec.status();
  if (absl::Status status = CheckBuffer(*spec, to, bytes); !status.ok()) return status;
  const auto value = worker->client().values().Get({Text(lane), spec->name, version}, *spec, source,
                                                   basin::c::Timeout(timeout));
  return value.ok() ? (*value)->CopyTo(to, bytes) : value.status();
}

}  // namespace

extern "C" {

basin_code basin_announce(basin_worker* worker, const char* lane, const basin_tensor* tensor,
                          uint64_t version, const void* data, size_t bytes, basin_hold hold,
                          basin_error** error) {
  absl::Status status = Check(worker);
  if (status.ok()) status = Announce(worker, lane, tensor, version, data, bytes, hold);
  return Return(status, error);
}

basin_code basin_stop_serving(basin_worker* worker, const char* lane, const char* tensor,
                              basin_error** error) {
  absl::Status status = Check(worker);
  if (status.ok()) status = worker->client().values().StopServing(Text(lane), Text(tensor));
  return Return(status, error);
}

void basin_step_begin(basin_worker* worker) {
  if (Check(worker).ok()) worker->client().values().BeginStep();
}

void basin_step_end(basin_worker* worker) {
  if (Check(worker).ok()) worker->client().values().EndStep();
}

basin_code basin_get(basin_worker* worker, const char* lane, const basin_tensor* tensor,
                     uint64_t version, const char* source, int64_t timeout, void* to, size_t bytes,
                     basin_error** error) {
  absl::Status status = Check(worker);
  if (status.ok()) {
    status = Get(worker, lane, tensor, version,
                 source == nullptr ? std::nullopt : std::optional<basin::WorkerId>(source), timeout,
                 to, bytes);
  }
  return Return(status, error);
}

basin_code basin_broadcast(basin_worker* worker, const char* lane, const basin_tensor* tensor,
                           uint64_t version, uint32_t root, void* data, size_t bytes,
                           int64_t timeout, basin_error** error) {
  if (absl::Status status = Check(worker); !status.ok()) return Return(status, error);
  const basin::Membership membership = worker->client().view().membership;
  const std::optional<size_t> position = membership.members.PositionOf(root);
  if (!position.has_value()) {
    return Return(absl::InvalidArgumentError(
                      absl::StrCat("Rank ", root, " cannot be the root: the job has ",
                                   basin::CountOf(membership.members.trainers(), "trainer"), ".")),
                  error);
  }
  const basin::WorkerId& source = membership.members[*position];
  const absl::Status status =
      source == worker->id() ? Announce(worker, lane, tensor, version, data, bytes, BASIN_COPY)
                             : Get(worker, lane, tensor, version, source, timeout, data, bytes);
  return Return(status, error);
}

}  // extern "C"
