// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "proto/wire/types.h"

#include <algorithm>
#include <limits>

#include "absl/strings/str_cat.h"

namespace basin::wire {

// ---------------------------------------------------------------------------- single fields

uint64_t EncodeDuration(absl::Duration duration) {
  return static_cast<uint64_t>(absl::ToInt64Nanoseconds(std::max(duration, absl::ZeroDuration())));
}

absl::Duration DecodeDuration(uint64_t ns) {
  constexpr uint64_t kMost = std::numeric_limits<int64_t>::max();
  return absl::Nanoseconds(static_cast<int64_t>(std::min(ns, kMost)));
}

LaneIndex DecodeLane(const char* field, uint32_t lane, Checker& checker) {
  return checker.AtMost(field, lane, kMaxLaneIndexes - 1);
}

TensorIndex DecodeTensor(const char* field, uint32_t tensor, Checker& checker) {
  return checker.AtMost(field, tensor, kMaxTensors - 1);
}

void CheckChunks(uint32_t first, uint32_t count, Checker& checker) {
  checker.AtMost("first", first, kMaxChunksPerTensor);
  checker.AtMost("first + count", uint64_t{first} + count, kMaxChunksPerTensor);
}

// --------------------------------------------------------------------------------------- ids

void Encode(const Generation& in, v1::Generation* out) {
  out->set_term(in.term);
  out->set_counter(in.counter);
}

Generation Decode(const v1::Generation& in, Checker&) { return {in.term(), in.counter()}; }

void Encode(const Incarnation& in, v1::Incarnation* out) {
  out->set_term(in.term);
  out->set_counter(in.counter);
}

Incarnation Decode(const v1::Incarnation& in, Checker&) { return {in.term(), in.counter()}; }

void Encode(const Ballot& in, v1::Ballot* out) {
  out->set_term(in.term);
  out->set_attempt(in.attempt);
}

Ballot Decode(const v1::Ballot& in, Checker&) { return {in.term(), in.attempt()}; }

namespace {

// The cause is a hint, so one that a later release has added is no reason to refuse a message.
AbortCause DecodeAbortCause(v1::AbortCause cause) {
  return v1::AbortCause_IsValid(cause) ? static_cast<AbortCause>(cause) : AbortCause::kUnspecified;
}

}  // namespace

void Encode(const Error& in, v1::Error* out) {
  out->set_code(EncodeEnum(in.code));
  out->set_text(EncodeText(in.text));
  out->set_abort_cause(EncodeEnum(in.abort_cause));
}

Error Decode(const v1::Error& in, Checker& checker) {
  Error out;
  out.code = DecodeEnum<ErrorCode>("code", in.code(), checker);
  out.text = DecodeText(in.text());
  out.abort_cause = DecodeAbortCause(in.abort_cause());
  return out;
}

void Encode(const Membership& in, v1::Membership* out) {
  Encode(in.generation, out->mutable_generation());
  for (const WorkerId& member : in.members) out->add_members(member);
  out->mutable_ranks()->Add(in.members.ranks().begin(), in.members.ranks().end());
}

Membership Decode(const v1::Membership& in, Checker& checker) {
  Membership out;
  out.generation = DecodeField("generation", in.generation(), checker);
  std::vector<WorkerId> members;
  members.reserve(in.members_size());
  for (const std::string& member : in.members()) {
    members.push_back(checker.Worker("members", member));
  }
  checker.Distinct("members", members, [](const WorkerId& id) -> const std::string& { return id; });
  if (in.ranks_size() > 0 && in.ranks_size() != in.members_size()) {
    checker.Fail("ranks", "are not one for each member");
  }
  for (const uint32_t ranks : in.ranks()) {
    checker.AtMost("ranks", checker.Required("ranks", ranks), kMaxRanks);
  }
  if (checker.ok()) {
    out.members = MemberList::WithRanks(std::move(members), {in.ranks().begin(), in.ranks().end()});
  }
  return out;
}

// ----------------------------------------------------------------------------------- tensors

void Check(const TensorSpec& spec, Checker& checker) {
  checker.Name("name", spec.name);
  CheckEnum("dtype", spec.dtype, checker);
  if (spec.shape.size() > kMaxRank) checker.FailEntries("shape", kMaxRank);
  const std::optional<uint64_t> bytes = TensorBytes(spec);
  if (checker.ok() && (!bytes || *bytes > kMaxTensorBytes)) {
    checker.Fail("shape", absl::StrCat("of tensor ", QuoteForError(spec.name),
                                       " makes it larger than ", kMaxTensorBytes, " bytes"));
  }
}

void Encode(const TensorSpec& in, v1::TensorSpec* out) {
  out->set_name(in.name);
  out->set_dtype(EncodeEnum(in.dtype));
  out->mutable_shape()->Add(in.shape.begin(), in.shape.end());
}

TensorSpec Decode(const v1::TensorSpec& in, Checker& checker) {
  TensorSpec out;
  out.name = in.name();
  out.dtype = DecodeEnum<DType>("dtype", in.dtype(), checker);
  out.shape.assign(in.shape().begin(), in.shape().end());
  Check(out, checker);
  return out;
}

void Encode(const ChunkRange& in, v1::ChunkRange* out) {
  out->set_tensor(in.tensor);
  out->set_first(in.first);
  out->set_count(in.count);
}

ChunkRange Decode(const v1::ChunkRange& in, Checker& checker) {
  CheckChunks(in.first(), in.count(), checker);
  return {DecodeTensor("tensor", in.tensor(), checker), in.first(),
          checker.Required("count", in.count())};
}

void Encode(const Bitmap& in, v1::Bitmap* out) {
  out->set_size(static_cast<uint32_t>(in.size()));
  std::string bits((in.size() + 7) / 8, '\0');
  for (size_t i = 0; i < in.size(); ++i) {
    if (in.Test(i)) bits[i / 8] = static_cast<char>(bits[i / 8] | 1 << i % 8);
  }
  out->set_bits(std::move(bits));
}

Bitmap Decode(const v1::Bitmap& in, Checker& checker) {
  if (!checker.Count("size", in.size(), kMaxTensors)) return {};
  const size_t bytes = (size_t{in.size()} + 7) / 8;
  if (checker.Equal("size(bits)", in.bits().size(), bytes) != bytes) return {};
  Bitmap out(in.size());
  for (size_t i = 0; i < bytes * 8; ++i) {
    if ((in.bits()[i / 8] >> i % 8 & 1) == 0) continue;
    if (i >= in.size()) {
      checker.Fail("bits", "has a bit set beyond size");
      break;
    }
    out.Set(i);
  }
  return out;
}

void Check(const BlobKey& key, Checker& checker) {
  checker.Name("lane", key.lane);
  checker.Name("tensor", key.tensor);
}

void Encode(const BlobKey& in, v1::ValueKey* out) {
  out->set_lane(in.lane);
  out->set_tensor(in.tensor);
  out->set_version(in.version);
}

BlobKey Decode(const v1::ValueKey& in, Checker& checker) {
  BlobKey out{in.lane(), in.tensor(), in.version()};
  Check(out, checker);
  return out;
}

// ------------------------------------------------------------------------------------ rounds

void Check(const RoundSpec& spec, Checker& checker) {
  const auto scale = [&checker](const char* field, double value) {
    checker.Required(field, checker.Finite(field, value));
  };
  const auto positive = [&](const char* field, double value) {
    if (value < 0) checker.Fail(field, "is negative");
    scale(field, value);
  };
  CheckEnum("op", spec.op, checker);
  scale("prescale", spec.prescale);
  scale("postscale", spec.postscale);
  positive("predivide", spec.predivide);
  CheckEnum("kind", spec.kind, checker);
  CheckEnum("weight_by", spec.weight_by, checker);
  CheckEnum("denominator", spec.denominator, checker);
  positive("loss_scale", spec.loss_scale);
}

void Encode(const RoundSpec& in, v1::RoundSpec* out) {
  out->set_op(EncodeEnum(in.op));
  out->set_prescale(in.prescale);
  out->set_postscale(in.postscale);
  out->set_predivide(in.predivide);
  out->set_auto_predivide(in.auto_predivide);
  out->set_kind(EncodeEnum(in.kind));
  out->set_weight_by(EncodeEnum(in.weight_by));
  out->set_denominator(EncodeEnum(in.denominator));
  out->set_loss_scale(in.loss_scale);
  out->set_layout(in.layout);
}

RoundSpec Decode(const v1::RoundSpec& in, Checker& checker) {
  RoundSpec out;
  out.op = DecodeEnum<ReduceOp>("op", in.op(), checker);
  out.prescale = in.prescale();
  out.postscale = in.postscale();
  out.predivide = in.predivide();
  out.auto_predivide = in.auto_predivide();
  out.kind = DecodeEnum<ContributionKind>("kind", in.kind(), checker);
  out.weight_by = DecodeEnum<WeightBy>("weight_by", in.weight_by(), checker);
  out.denominator = DecodeEnum<Denominator>("denominator", in.denominator(), checker);
  out.loss_scale = in.loss_scale();
  out.layout = in.layout();
  Check(out, checker);
  return out;
}

void Encode(const Counts& in, v1::Counts* out) {
  if (in.samples) out->set_samples(*in.samples);
  if (in.tokens) out->set_tokens(*in.tokens);
  if (in.micro_batches) out->set_micro_batches(*in.micro_batches);
}

Counts Decode(const v1::Counts& in, Checker&) {
  Counts out;
  if (in.has_samples()) out.samples = in.samples();
  if (in.has_tokens()) out.tokens = in.tokens();
  if (in.has_micro_batches()) out.micro_batches = in.micro_batches();
  return out;
}

void Check(const SampleRange& range, Checker& checker) {
  if (range.end <= range.begin) checker.Fail("end", "is not above begin");
}

void Encode(const SampleRange& in, v1::SampleRange* out) {
  out->set_begin(in.begin);
  out->set_end(in.end);
}

SampleRange Decode(const v1::SampleRange& in, Checker& checker) {
  SampleRange out{in.begin(), in.end()};
  Check(out, checker);
  return out;
}

void CheckPositions(const char* field, const std::vector<SampleRange>& ranges, uint64_t samples,
                    Checker& checker) {
  for (size_t i = 0; i < ranges.size() && checker.ok(); ++i) {
    if (i > 0 && ranges[i].begin <= ranges[i - 1].end) {
      checker.Fail(field, "does not ascend, or has two ranges that touch");
    }
  }
  if (!ranges.empty()) checker.AtMost(field, ranges.back().end, samples);
}

void Check(const SampleEpoch& epoch, Checker& checker) {
  checker.AtMost("samples", checker.Required("samples", epoch.samples), kMaxEpochSamples);
  checker.AtMost("global_batch", epoch.global_batch, kMaxEpochSamples);
}

void Encode(const SampleEpoch& in, v1::SampleEpoch* out) {
  out->set_number(in.number);
  out->set_samples(in.samples);
  out->set_order(in.order);
  out->set_global_batch(in.global_batch);
}

SampleEpoch Decode(const v1::SampleEpoch& in, Checker& checker) {
  SampleEpoch out{in.number(), in.samples(), in.order(), in.global_batch()};
  Check(out, checker);
  return out;
}

void Encode(const SampleProgress& in, v1::SampleProgress* out) {
  Encode(in.epoch, out->mutable_epoch());
  EncodePositions(in.ranges, out->mutable_ranges());
}

SampleProgress Decode(const v1::SampleProgress& in, Checker& checker) {
  SampleProgress out;
  out.epoch = DecodeRequired("epoch", in.has_epoch(), in.epoch(), checker);
  out.ranges = DecodePositions("ranges", in.ranges(), out.epoch.samples, checker);
  return out;
}

void Encode(const RoundSamples& in, v1::RoundSamples* out) {
  Encode(in.epoch, out->mutable_epoch());
  EncodePositions(in.ranges, out->mutable_ranges());
  EncodePositions(in.resumed, out->mutable_resumed());
  out->set_committed(in.committed);
}

RoundSamples Decode(const v1::RoundSamples& in, Checker& checker) {
  RoundSamples out;
  out.epoch = DecodeRequired("epoch", in.has_epoch(), in.epoch(), checker);
  out.ranges = DecodePositions("ranges", in.ranges(), out.epoch.samples, checker);
  out.resumed = DecodePositions("resumed", in.resumed(), out.epoch.samples, checker);
  out.committed = checker.AtMost("committed", in.committed(), out.epoch.samples);
  return out;
}

void Encode(const Contributor& in, v1::Contributor* out) {
  out->set_worker(in.worker);
  Encode(in.incarnation, out->mutable_incarnation());
  out->set_weight(in.weight);
  if (in.squared_norm) out->set_squared_norm(*in.squared_norm);
  out->set_ranks(EncodeRanks(in.ranks));
  EncodePlan(in, out);
  out->set_deferred(in.deferred);
}

Contributor Decode(const v1::Contributor& in, Checker& checker) {
  Contributor out;
  out.worker = checker.Worker("worker", in.worker());
  out.incarnation = DecodeRequired("incarnation", in.has_incarnation(), in.incarnation(), checker);
  out.weight = checker.AtMost("weight", in.weight(), kMaxCount);
  if (in.has_squared_norm()) {
    out.squared_norm = checker.NotNegative("squared_norm", in.squared_norm());
  }
  out.ranks = checker.AtMost("ranks", DecodeRanks(in.ranks()), kMaxRanks);
  DecodePlan(in, out, checker);
  out.deferred = checker.AtMost("deferred", in.deferred(), kMaxRanks);
  return out;
}

void Encode(const TensorDivisor& in, v1::TensorDivisor* out) {
  out->set_tensor(in.tensor);
  out->set_divisor(in.divisor);
}

TensorDivisor Decode(const v1::TensorDivisor& in, Checker& checker) {
  return {DecodeTensor("tensor", in.tensor(), checker), in.divisor()};
}

void Encode(const NonFinite& in, v1::NonFinite* out) {
  out->set_worker(in.worker);
  out->set_tensor(in.tensor);
  out->set_element(in.element);
}

NonFinite Decode(const v1::NonFinite& in, Checker& checker) {
  return {checker.Worker("worker", in.worker()), DecodeTensor("tensor", in.tensor(), checker),
          in.element()};
}

void Encode(const RoundFacts& in, v1::RoundFacts* out) {
  out->set_squared_norm(in.squared_norm);
  out->set_overflow(in.overflow);
  if (in.nonfinite) Encode(*in.nonfinite, out->mutable_nonfinite());
  Encode(in.totals, out->mutable_totals());
  for (const double norm : in.tensor_squared_norms) out->add_tensor_squared_norms(norm);
}

RoundFacts Decode(const v1::RoundFacts& in, Checker& checker) {
  RoundFacts out;
  out.squared_norm = in.squared_norm();
  out.overflow = in.overflow();
  if (in.has_nonfinite()) out.nonfinite = DecodeField("nonfinite", in.nonfinite(), checker);
  out.totals = DecodeField("totals", in.totals(), checker);
  checker.AtMost("totals.samples", out.totals.samples.value_or(0), kMaxTotalCount);
  checker.AtMost("totals.tokens", out.totals.tokens.value_or(0), kMaxTotalCount);
  checker.AtMost("totals.micro_batches", out.totals.micro_batches.value_or(0), kMaxTotalCount);
  out.tensor_squared_norms.assign(in.tensor_squared_norms().begin(),
                                  in.tensor_squared_norms().end());
  return out;
}

void Encode(const RoundValue& in, v1::RoundValue* out) {
  out->set_outcome(EncodeEnum(in.outcome));
  out->set_reason(EncodeText(in.reason));
  out->set_abort_cause(EncodeEnum(in.abort_cause));
  if (in.spec.op != ReduceOp::kUnspecified) Encode(in.spec, out->mutable_spec());
  for (const Contributor& entry : in.contributors) Encode(entry, out->add_contributors());
  for (const WorkerId& worker : in.dropped) out->add_dropped(worker);
  for (const WorkerId& worker : in.late) out->add_late(worker);
  out->set_late_carries(in.late_carries);
  out->set_divisor(in.divisor);
  for (const TensorDivisor& entry : in.tensor_divisors) Encode(entry, out->add_tensor_divisors());
  out->set_layout_version(in.layout_version);
  out->set_digest(in.digest);
  Encode(in.facts, out->mutable_facts());
  if (in.generation != Generation{}) Encode(in.generation, out->mutable_generation());
  out->set_contract_version(in.contract_version);
  out->set_world_size(in.world_size);
  out->set_decision(in.decision);
  if (in.samples) Encode(*in.samples, out->mutable_samples());
}

RoundValue Decode(const v1::RoundValue& in, Checker& checker) {
  RoundValue out;
  out.outcome = DecodeEnum<Outcome>("outcome", in.outcome(), checker);
  out.reason = DecodeText(in.reason());
  out.abort_cause = DecodeAbortCause(in.abort_cause());
  if (in.has_spec() || out.outcome != Outcome::kAborted) {
    out.spec = DecodeRequired("spec", in.has_spec(), in.spec(), checker);
  }
  out.contributors = DecodeList("contributors", in.contributors(), checker);
  const auto out_of_order = [](const Contributor& a, const Contributor& b) {
    return a.worker >= b.worker;
  };
  if (std::adjacent_find(out.contributors.begin(), out.contributors.end(), out_of_order) !=
      out.contributors.end()) {
    checker.Fail("contributors", "are not in order of the worker id");
  }
  for (const std::string& worker : in.dropped()) {
    out.dropped.push_back(checker.Worker("dropped", worker));
  }
  for (const std::string& worker : in.late()) {
    out.late.push_back(checker.Worker("late", worker));
  }
  out.late_carries = in.late_carries();
  out.divisor = in.divisor();
  out.tensor_divisors = DecodeList("tensor_divisors", in.tensor_divisors(), checker);
  out.layout_version = checker.AtMost("layout_version", in.layout_version(), kMaxTensors);
  out.digest = in.digest();
  out.facts = DecodeField("facts", in.facts(), checker);
  out.generation = DecodeField("generation", in.generation(), checker);
  out.contract_version = in.contract_version();
  out.world_size = checker.AtMost("world_size", in.world_size(), kMaxTrainers);
  out.decision = in.decision();
  if (in.has_samples()) out.samples = DecodeField("samples", in.samples(), checker);
  return out;
}

void Encode(const VerdictRecord& in, v1::VerdictRecord* out) {
  out->set_round(in.round);
  Encode(in.ballot, out->mutable_ballot());
  Encode(in.value_ballot, out->mutable_value_ballot());
  Encode(in.value, out->mutable_value());
  Encode(in.next, out->mutable_next());
  out->set_chain(in.chain);
}

VerdictRecord Decode(const v1::VerdictRecord& in, Checker& checker) {
  VerdictRecord out;
  out.round = checker.Required("round", in.round());
  out.ballot = DecodeField("ballot", in.ballot(), checker);
  out.value_ballot = DecodeField("value_ballot", in.value_ballot(), checker);
  out.value = DecodeRequired("value", in.has_value(), in.value(), checker);
  out.next = DecodeField("next", in.next(), checker);
  out.chain = in.chain();
  return out;
}

}  // namespace basin::wire
