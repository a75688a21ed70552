// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The part of basin.h about tensors and rounds.

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/c/begin.h"
#include "client/c/error.h"
#include "client/c/result.h"
#include "client/c/worker.h"
#include "client/core/unnamed.h"
#include "proto/wire/status_detail.h"

namespace {

using basin::c::Check;
using basin::c::EnumOf;
using basin::c::Return;
using basin::c::Timeout;
using basin::client::RoundOutcome;
using basin::client::Source;

static_assert(basin::client::kUnnamedLanes == BASIN_MOST_CALLS);
static_assert(basin::client::kMostParts == BASIN_MOST_PARTS);

// What a round of this lane begins with.
absl::StatusOr<basin::client::BeginRound> BeginOf(const basin_worker& worker, uint32_t lane,
                                                  const basin_round_spec* given) {
  auto begin = basin::c::RoundOf(given);
  if (!begin.ok()) return begin.status();
  begin->lane = lane;
  if (begin->samples.empty()) {
    basin::SampleProgress batch = worker.Batch(lane);
    if (!batch.ranges.empty()) begin->sample_epoch = batch.epoch.number;
    begin->samples = std::move(batch.ranges);
  }
  std::string call = begin->call;
  if (const auto arrays = worker.Call(lane); arrays.has_value() && call.empty()) {
    call = basin::client::DescribeCall(begin->spec.op, *arrays);
  }
  if (absl::Status status = basin::client::SetCall(*begin, std::move(call)); !status.ok()) {
    return status;
  }
  return begin;
}

// Passes an outcome to a callback of basin.h.
basin::client::Worker::RoundDone Reporter(uint32_t lane, basin_round_done done, void* user) {
  if (done == nullptr) return nullptr;
  return [lane, done, user](const RoundOutcome& outcome) {
    if (outcome.ok()) {
      done(user, lane, new basin_result(*outcome), nullptr);
      return;
    }
    basin_error* error = nullptr;
    Return(outcome.status(), &error);
    done(user, lane, nullptr, error);
    basin_error_free(error);
  };
}

basin_code Hand(const RoundOutcome& outcome, basin_result** result, basin_error** error) {
  if (!outcome.ok()) return Return(outcome.status(), error);
  if (result != nullptr) *result = new basin_result(*outcome);
  return BASIN_OK;
}

absl::StatusOr<std::vector<Source>> SourcesOf(uint32_t lane, const basin_pushed* tensors,
                                              size_t count) {
  if (tensors == nullptr && count > 0) {
    return absl::InvalidArgumentError(absl::StrCat("The list of ", count,
                                                   " tensors to push (lane handle ", lane,
                                                   ") is null. Pass one entry for each."));
  }
  std::vector<Source> sources;
  sources.reserve(count);
  for (size_t i = 0; i < count; ++i) {
    const basin_pushed& in = tensors[i];
    const auto dtype = EnumOf<basin::DType>(
        absl::StrCat("The dtype to send tensor ", in.tensor, " of lane handle ", lane, " in"),
        in.as, BASIN_U8);
    if (!dtype.ok()) return dtype.status();
    sources.push_back({in.tensor, in.data, in.bytes, {*dtype, in.exponent}});
  }
  return sources;
}

// Waits for tensors of the lane that are on their way from a device.
absl::Status WaitUntilPassed(basin_worker* worker, uint32_t lane) {
  basin::client::DeviceTransfers* const transfers = worker->used_transfers();
  return transfers == nullptr ? absl::OkStatus() : transfers->WaitUntilPassed(lane);
}

// The same, and the worker does not get them.
void Drop(basin_worker* worker, uint32_t lane) {
  basin::client::DeviceTransfers* const transfers = worker->used_transfers();
  if (transfers == nullptr) return;
  transfers->Drop(lane);
  transfers->WaitUntilPassed(lane).IgnoreError();
}

// Serves the registered states in gradient lanes.
absl::Status BeforeRound(basin_worker* worker, uint32_t lane) {
  basin::client::States& states = worker->states();
  return states.ServedIn(lane) ? states.BeforeRound() : absl::OkStatus();
}

RoundOutcome Wait(basin_worker* worker, uint32_t lane, absl::Duration timeout) {
  basin::client::States& states = worker->states();
  return states.ServedIn(lane) ? states.Wait(lane, timeout) : worker->client().Wait(lane, timeout);
}

basin_code Withdraw(basin_worker* worker, const basin::client::WithdrawRound& withdraw,
                    basin_round_done done, void* user, basin_error** error) {
  if (absl::Status status = Check(worker); !status.ok()) return Return(status, error);
  Drop(worker, withdraw.lane);
  return Return(worker->client().Withdraw(withdraw, Reporter(withdraw.lane, done, user)), error);
}

}  // namespace

extern "C" {

basin_code basin_register(basin_worker* worker, const char* lane, basin_lane_kind kind,
                          const basin_tensor* tensors, size_t count, uint32_t* lane_handle,
                          uint32_t* handles, basin_error** error) {
  if (absl::Status status = Check(worker); !status.ok()) return Return(status, error);
  const auto lane_kind = EnumOf<basin::LaneKind>(
      absl::StrCat("The kind of lane ", basin::c::Text(lane)), kind, BASIN_CALL);
  if (!lane_kind.ok()) return Return(lane_kind.status(), error);
  std::vector<basin::TensorSpec> specs;
  specs.reserve(count);
  for (size_t i = 0; i < count; ++i) {
    absl::StatusOr<basin::TensorSpec> spec =
        basin::c::SpecOf(tensors == nullptr ? nullptr : tensors + i);
    if (!spec.ok()) return Return(spec.status(), error);
    specs.push_back(*std::move(spec));
  }
  const auto registered = worker->client().Register(basin::c::Text(lane), *lane_kind, specs);
  if (!registered.ok()) return Return(registered.status(), error);
  worker->states().AddLane(registered->lane, *lane_kind);
  if (lane_handle != nullptr) *lane_handle = registered->lane;
  if (handles != nullptr) {
    std::copy(registered->tensors.begin(), registered->tensors.end(), handles);
  }
  return BASIN_OK;
}

basin_code basin_allocate(basin_worker* worker, size_t bytes, void** memory, basin_error** error) {
  absl::Status status = Check(worker);
  if (status.ok() && memory == nullptr) {
    status = absl::InvalidArgumentError(
        "The place for the address of the allocated memory is null. Pass the address of a "
        "pointer.");
  }
  if (!status.ok()) return Return(status, error);
  const absl::StatusOr<void*> allocated = worker->client().memory().Allocate(bytes);
  if (!allocated.ok()) return Return(allocated.status(), error);
  *memory = *allocated;
  return BASIN_OK;
}

basin_code basin_free(basin_worker* worker, void* memory, basin_error** error) {
  absl::Status status = Check(worker);
  if (status.ok() && memory != nullptr) status = worker->client().memory().Free(memory);
  return Return(status, error);
}

basin_code basin_begin(basin_worker* worker, uint32_t lane, const basin_round_spec* spec,
                       basin_error** error) {
  if (absl::Status status = Check(worker); !status.ok()) return Return(status, error);
  const auto begin = BeginOf(*worker, lane, spec);
  if (!begin.ok()) return Return(begin.status(), error);
  if (absl::Status status = BeforeRound(worker, lane); !status.ok()) return Return(status, error);
  basin::client::DeviceTransfers* const transfers = worker->used_transfers();
  return Return(transfers == nullptr ? worker->client().Begin(*begin) : transfers->Begin(*begin),
                error);
}

basin_code basin_push(basin_worker* worker, uint32_t lane, uint32_t tensor, const void* data,
                      size_t bytes, basin_error** error) {
  const basin_pushed pushed = {tensor, data, bytes, BASIN_SAME_DTYPE, 0};
  return basin_push_many(worker, lane, &pushed, 1, error);
}

basin_code basin_push_narrow(basin_worker* worker, uint32_t lane, uint32_t tensor, const void* data,
                             size_t bytes, basin_dtype as, int32_t exponent, basin_error** error) {
  const basin_pushed pushed = {tensor, data, bytes, as, exponent};
  return basin_push_many(worker, lane, &pushed, 1, error);
}

basin_code basin_push_many(basin_worker* worker, uint32_t lane, const basin_pushed* tensors,
                           size_t count, basin_error** error) {
  if (absl::Status status = Check(worker); !status.ok()) return Return(status, error);
  auto sources = SourcesOf(lane, tensors, count);
  return Return(
      sources.ok() ? worker->client().Push(lane, absl::MakeSpan(*sources)) : sources.status(),
      error);
}

basin_code basin_push_device(basin_worker* worker, uint32_t lane, const basin_pushed* tensors,
                             size_t count, int32_t device, void* stream, basin_error** error) {
  if (absl::Status status = Check(worker); !status.ok()) return Return(status, error);
  const auto sources = SourcesOf(lane, tensors, count);
  if (!sources.ok()) return Return(sources.status(), error);
  return Return(worker->transfers().Push(lane, *sources, {device, stream}), error);
}

basin_code basin_skip(basin_worker* worker, uint32_t lane, uint32_t tensor, basin_error** error) {
  absl::Status status = Check(worker);
  if (status.ok()) status = worker->client().Skip(lane, tensor);
  return Return(status, error);
}

basin_code basin_commit(basin_worker* worker, uint32_t lane, basin_round_done done, void* user,
                        basin_error** error) {
  absl::Status status = Check(worker);
  if (status.ok()) status = WaitUntilPassed(worker, lane);
  if (status.ok()) status = worker->client().Commit(lane, Reporter(lane, done, user));
  return Return(status, error);
}

basin_code basin_withdraw(basin_worker* worker, uint32_t lane, const char* reason,
                          basin_round_done done, void* user, basin_error** error) {
  return Withdraw(worker, {lane, basin::c::Text(reason)}, done, user, error);
}

basin_code basin_withdraw_without_results(basin_worker* worker, uint32_t lane, const char* reason,
                                          basin_round_done done, void* user, basin_error** error) {
  return Withdraw(worker, {lane, basin::c::Text(reason), true}, done, user, error);
}

basin_code basin_wait(basin_worker* worker, uint32_t lane, int64_t timeout, basin_result** result,
                      basin_error** error) {
  if (absl::Status status = Check(worker); !status.ok()) return Return(status, error);
  const RoundOutcome outcome = Wait(worker, lane, Timeout(timeout));
  // A round that has failed may have tensors on their way.
  if (!outcome.ok() && worker->used_transfers() != nullptr) {
    const absl::StatusOr<bool> outstanding = worker->client().Outstanding(lane);
    if (outstanding.ok() && !*outstanding) Drop(worker, lane);
  }
  return Hand(outcome, result, error);
}

basin_code basin_abandon(basin_worker* worker, basin_error** error) {
  if (absl::Status status = Check(worker); !status.ok()) return Return(status, error);
  basin::client::DeviceTransfers* const transfers = worker->used_transfers();
  if (transfers != nullptr) transfers->DropAll();
  const absl::Status status = worker->client().Abandon();
  worker->rows().GiveUp();
  if (transfers != nullptr) transfers->WaitUntilAllPassed();
  return Return(status, error);
}

basin_code basin_allreduce(basin_worker* worker, uint32_t lane, const basin_round_spec* spec,
                           const basin_buffer* buffers, size_t count, int64_t timeout,
                           basin_result** result, basin_error** error) {
  if (absl::Status status = Check(worker); !status.ok()) return Return(status, error);
  const auto begin = BeginOf(*worker, lane, spec);
  if (!begin.ok()) return Return(begin.status(), error);
  if (buffers == nullptr && count > 0) {
    return Return(absl::InvalidArgumentError(absl::StrCat("The buffers of an allreduce of ", count,
                                                          " tensors (lane handle ", lane,
                                                          ") are null. Pass one for each tensor.")),
                  error);
  }
  std::vector<Source> sources;
  std::vector<basin::client::RoundResult::Destination> destinations;
  sources.reserve(count);
  for (size_t i = 0; i < count; ++i) {
    const basin_buffer& buffer = buffers[i];
    sources.push_back({buffer.tensor, buffer.in, buffer.bytes});
    if (buffer.out != nullptr) destinations.push_back({buffer.tensor, buffer.out, buffer.bytes});
  }
  basin::client::Worker& client = worker->client();
  if (!worker->states().ServedIn(lane)) {
    return Hand(client.Allreduce(*begin, absl::MakeSpan(sources), destinations, Timeout(timeout)),
                result, error);
  }
  if (absl::Status status = worker->states().BeforeRound(); !status.ok()) {
    return Return(status, error);
  }
  // Without the wait, in which the states are served.
  RoundOutcome outcome =
      client.Allreduce(*begin, absl::MakeSpan(sources), destinations, absl::ZeroDuration());
  const basin_code code = static_cast<basin_code>(basin::wire::ToError(outcome.status()).code);
  if (code != BASIN_OUTCOME_UNKNOWN && code != BASIN_PAUSED) return Hand(outcome, result, error);
  outcome = worker->states().Wait(lane, Timeout(timeout));
  if (!outcome.ok()) return Return(outcome.status(), error);
  const absl::Status copied = (*outcome)->CopyPresentTo(destinations);
  return copied.ok() ? Hand(outcome, result, error) : Return(copied, error);
}

basin_code basin_next_call(basin_worker* worker, const basin_tensor* arrays, size_t count,
                           int64_t timeout, uint32_t* lane, basin_part* parts, size_t most,
                           size_t* part_count, basin_error** error) {
  if (absl::Status status = Check(worker); !status.ok()) return Return(status, error);
  std::vector<basin::TensorSpec> specs;
  for (size_t i = 0; i < count; ++i) {
    basin_tensor array = arrays == nullptr ? basin_tensor{} : arrays[i];
    if (arrays != nullptr) array.name = "of a call without a name";
    absl::StatusOr<basin::TensorSpec> spec = basin::c::SpecOf(&array);
    if (!spec.ok()) return Return(spec.status(), error);
    specs.push_back(*std::move(spec));
  }
  const auto call = worker->client().NextCall(specs, Timeout(timeout));
  if (!call.ok()) return Return(call.status(), error);
  if (call->parts.size() > most || (parts == nullptr && !call->parts.empty())) {
    return Return(
        absl::InvalidArgumentError(absl::StrCat(
            "The arrays of the call have ", call->parts.size(), " parts, and there is room for ",
            parts == nullptr ? 0 : most, ". Pass room for BASIN_MOST_PARTS of each array.")),
        error);
  }
  worker->SetCall(call->lane, std::move(specs));
  for (size_t i = 0; i < call->parts.size(); ++i) {
    const basin::client::CallPart& part = call->parts[i];
    parts[i] = {part.array, part.offset, part.bytes, call->tensors[i]};
  }
  if (lane != nullptr) *lane = call->lane;
  if (part_count != nullptr) *part_count = call->parts.size();
  return BASIN_OK;
}

basin_code basin_barrier(basin_worker* worker, const char* name, int64_t timeout,
                         basin_error** error) {
  if (absl::Status status = Check(worker); !status.ok()) return Return(status, error);
  // Every worker contributes one byte: the sum is complete when all have called.
  const std::string lane = absl::StrCat("call/barrier/", basin::c::Text(name));
  // One that stayed open has ended meanwhile, and its name was let go: this call is for that one.
  const auto left = worker->client().Left(lane);
  if (!left.ok()) return Return(left.status(), error);
  if (left->has_value()) {
    return Hand(worker->client().Wait(**left, Timeout(timeout)), nullptr, error);
  }
  const auto registered =
      worker->client().Register(lane, basin::LaneKind::kCall, {{"here", basin::DType::kU8, {1}}});
  if (!registered.ok()) return Return(registered.status(), error);
  basin::client::BeginRound begin;
  begin.lane = registered->lane;
  begin.spec.op = basin::ReduceOp::kMax;
  // After a timeout or a pause the same call continues; otherwise this worker would be one ahead.
  const absl::StatusOr<bool> outstanding = worker->client().Outstanding(begin.lane);
  if (!outstanding.ok()) return Return(outstanding.status(), error);
  if (*outstanding) {
    return Hand(worker->client().Wait(begin.lane, Timeout(timeout)), nullptr, error);
  }
  static constexpr uint8_t here = 1;  // It is read after a timeout as well.
  Source source(registered->tensors[0], &here, sizeof(here));
  return Hand(worker->client().Allreduce(begin, {&source, 1}, {}, Timeout(timeout)), nullptr,
              error);
}

}  // extern "C"
