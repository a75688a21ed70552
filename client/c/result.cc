// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "client/c/result.h"

#include <algorithm>
#include <cstring>
#include <string_view>
#include <vector>

#include "client/c/worker.h"

namespace {

// The number in basin.h's form: negative if there is none.
double Norm(const std::optional<double>& squared_norm) { return squared_norm.value_or(-1); }

int64_t Known(const std::optional<uint64_t>& count) {
  return count.has_value() ? static_cast<int64_t>(*count) : -1;
}

using Destinations = std::vector<basin::client::RoundResult::Destination>;

absl::StatusOr<Destinations> DestinationsOf(const basin_result* result, const basin_buffer* buffers,
                                            size_t count) {
  if (result == nullptr || (buffers == nullptr && count > 0)) {
    return absl::InvalidArgumentError("The result or the list of destinations is null. Pass both.");
  }
  Destinations destinations;
  destinations.reserve(count);
  for (size_t i = 0; i < count; ++i) {
    if (buffers[i].out == nullptr && buffers[i].bytes > 0) {
      return absl::InvalidArgumentError("A destination of the result is null. Set out.");
    }
    destinations.push_back({buffers[i].tensor, buffers[i].out, buffers[i].bytes});
  }
  return destinations;
}

}  // namespace

extern "C" {

void basin_result_info(const basin_result* result, basin_round_info* info) {
  if (result == nullptr || info == nullptr) return;
  const basin::VerdictRecord& record = result->round->record();
  const basin::RoundValue& value = record.value;
  basin_round_info out = BASIN_ROUND_INFO_INIT;
  out.round = record.round;
  out.op = static_cast<basin_op>(value.spec.op);
  out.prescale = value.spec.prescale;
  out.postscale = value.spec.postscale;
  out.predivide = value.spec.predivide;
  out.contributors = static_cast<uint32_t>(value.contributors.size());
  out.divisor = value.divisor;
  out.squared_norm = Norm(result->round->squared_norm());
  out.overflow = value.facts.overflow ? 1 : 0;
  if (value.facts.nonfinite.has_value()) {
    out.has_nonfinite = 1;
    out.nonfinite_tensor =
        result->round->HandleOf(value.facts.nonfinite->tensor).value_or(UINT32_MAX);
    out.nonfinite_element = value.facts.nonfinite->element;
  }
  out.samples = Known(value.facts.totals.samples);
  out.tokens = Known(value.facts.totals.tokens);
  out.micro_batches = Known(value.facts.totals.micro_batches);
  out.chain = record.chain;
  out.auto_predivide = value.spec.auto_predivide ? 1 : 0;
  out.contributes_sum = value.spec.kind == basin::ContributionKind::kSum ? 1 : 0;
  out.weight = static_cast<basin_weight>(value.spec.weight_by);
  out.divide_by_present = value.spec.denominator == basin::Denominator::kPresent ? 1 : 0;
  out.loss_scale = value.spec.loss_scale;
  out.layout = value.spec.layout;
  out.weights = basin::SumOfWeights(value);
  out.generation_term = value.generation.term;
  out.generation_counter = value.generation.counter;
  out.contract_version = value.contract_version;
  out.world_size = value.world_size;
  out.trainers = basin::TrainersOf(value);
  out.late_carries = value.late_carries ? 1 : 0;
  if (value.samples.has_value()) {
    out.has_sample_epoch = 1;
    out.sample_epoch = value.samples->epoch.number;
    out.samples_committed = basin::IntervalSet(value.samples->ranges).count();
    out.epoch_committed = value.samples->committed;
    out.epoch_ended = value.samples->ends_epoch() ? 1 : 0;
  }
  // The part that fits the structure of an older caller.
  const size_t size = std::min(info->size, sizeof(out));
  out.size = info->size;
  std::memcpy(info, &out, size);
}

const char* basin_result_contributor(const basin_result* result, uint32_t index) {
  if (result == nullptr) return nullptr;
  const auto& contributors = result->round->record().value.contributors;
  return index < contributors.size() ? contributors[index].worker.c_str() : nullptr;
}

uint64_t basin_result_contributor_weight(const basin_result* result, uint32_t index) {
  if (result == nullptr) return 0;
  const auto& contributors = result->round->record().value.contributors;
  return index < contributors.size() ? contributors[index].weight : 0;
}

uint32_t basin_result_contributor_ranks(const basin_result* result, uint32_t index) {
  if (result == nullptr) return 0;
  const auto& contributors = result->round->record().value.contributors;
  return index < contributors.size() ? contributors[index].ranks : 0;
}

uint32_t basin_result_contributor_deferred(const basin_result* result, uint32_t index) {
  if (result == nullptr) return 0;
  const auto& contributors = result->round->record().value.contributors;
  return index < contributors.size() ? contributors[index].deferred : 0;
}

basin_local_reduction basin_result_contributor_local_reduction(const basin_result* result,
                                                               uint32_t index) {
  if (result == nullptr) return BASIN_LOCAL_NONE;
  const auto& contributors = result->round->record().value.contributors;
  if (index >= contributors.size()) return BASIN_LOCAL_NONE;
  return static_cast<basin_local_reduction>(contributors[index].local_reduction);
}

const char* basin_result_contributor_reduced_with(const basin_result* result, uint32_t index,
                                                  uint32_t other) {
  if (result == nullptr) return nullptr;
  const auto& contributors = result->round->record().value.contributors;
  if (index >= contributors.size()) return nullptr;
  const auto& others = contributors[index].reduced_with;
  return other < others.size() ? others[other].c_str() : nullptr;
}

double basin_result_contributor_squared_norm(const basin_result* result, uint32_t index) {
  if (result == nullptr) return -1;
  const auto& contributors = result->round->record().value.contributors;
  return index < contributors.size() ? Norm(contributors[index].squared_norm) : -1;
}

const char* basin_result_nonfinite_worker(const basin_result* result) {
  if (result == nullptr) return nullptr;
  const auto& nonfinite = result->round->record().value.facts.nonfinite;
  return nonfinite.has_value() ? nonfinite->worker.c_str() : nullptr;
}

const char* basin_result_nonfinite_tensor(const basin_result* result) {
  if (basin_result_nonfinite_worker(result) == nullptr) return nullptr;
  return result->round->nonfinite_tensor().c_str();
}

const char* basin_result_late(const basin_result* result, uint32_t index) {
  if (result == nullptr) return nullptr;
  const auto& late = result->round->record().value.late;
  return index < late.size() ? late[index].c_str() : nullptr;
}

const basin_error* basin_result_rejection(const basin_result* result) {
  return result != nullptr && result->rejection.has_value() ? &*result->rejection : nullptr;
}

int basin_result_has(const basin_result* result, uint32_t tensor) {
  return result != nullptr && result->round->Has(tensor) ? 1 : 0;
}

uint64_t basin_result_divisor(const basin_result* result, uint32_t tensor) {
  return result != nullptr ? result->round->FactsOf(tensor).divisor : 0;
}

double basin_result_squared_norm(const basin_result* result, uint32_t tensor) {
  return result != nullptr ? Norm(result->round->FactsOf(tensor).squared_norm) : -1;
}

size_t basin_result_tensors(const basin_result* result, size_t count, uint64_t* divisors,
                            double* squared_norms) {
  if (result == nullptr) return 0;
  const std::vector<basin::client::RoundResult::TensorFacts> facts = result->round->AllFacts();
  for (size_t i = 0; i < std::min(count, facts.size()); ++i) {
    if (divisors != nullptr) divisors[i] = facts[i].divisor;
    if (squared_norms != nullptr) squared_norms[i] = Norm(facts[i].squared_norm);
  }
  return facts.size();
}

basin_code basin_result_copy(const basin_result* result, uint32_t tensor, void* to, size_t bytes,
                             basin_error** error) {
  if (result == nullptr || (to == nullptr && bytes > 0)) {
    return basin::c::Return(
        absl::InvalidArgumentError("The result or its destination is null. Pass both."), error);
  }
  return basin::c::Return(result->round->CopyTo(tensor, to, bytes), error);
}

basin_code basin_result_copy_many(const basin_result* result, const basin_buffer* buffers,
                                  size_t count, basin_error** error) {
  const auto destinations = DestinationsOf(result, buffers, count);
  return basin::c::Return(
      destinations.ok() ? result->round->CopyTo(*destinations) : destinations.status(), error);
}

basin_code basin_result_copy_device(basin_worker* worker, const basin_result* result,
                                    const basin_buffer* buffers, size_t count, int32_t device,
                                    void* stream, basin_error** error) {
  absl::Status status = basin::c::Check(worker);
  if (!status.ok()) return basin::c::Return(status, error);
  const auto destinations = DestinationsOf(result, buffers, count);
  if (!destinations.ok()) return basin::c::Return(destinations.status(), error);
  return basin::c::Return(worker->transfers().Copy(*result->round, *destinations, {device, stream}),
                          error);
}

int basin_result_piece(const basin_result* result, uint32_t tensor, size_t index, const void** data,
                       size_t* bytes) {
  if (result == nullptr || data == nullptr || bytes == nullptr) return 0;
  const std::vector<std::string_view> pieces = result->round->Pieces(tensor);
  if (index >= pieces.size()) return 0;
  *data = pieces[index].data();
  *bytes = pieces[index].size();
  return 1;
}

void basin_result_free(basin_result* result) { delete result; }

}  // extern "C"
