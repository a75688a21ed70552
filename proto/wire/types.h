// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Translation of the values that several services share (basin/v1/types.proto). For each there is
//
//   void Encode(const X& in, v1::X* out);       out is empty before
//   X Decode(const v1::X& in, Checker& checker);
//
// and for what a trainer gives also
//
//   void Check(const X& value, Checker& checker);
//
// whose rules hold for decoded values and for a call of which nothing was sent yet.
//
// Internal to the wire layer.
//
// Thread contract: pure functions.

#ifndef BASIN_PROTO_WIRE_TYPES_H_
#define BASIN_PROTO_WIRE_TYPES_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "basin/v1/types.pb.h"
#include "proto/wire/checker.h"
#include "protocol/messages.h"

namespace basin::wire {

// ---- enums: the wire has 0 for "unspecified", which the plain types have only where it helps

template <typename E>
struct EnumOnWire;
#define BASIN_WIRE_ENUM(Type, Shift)             \
  template <>                                    \
  struct EnumOnWire<Type> {                      \
    using Wire = v1::Type;                       \
    static constexpr int kLast = v1::Type##_MAX; \
    static constexpr int kShift = Shift;         \
  }
BASIN_WIRE_ENUM(DType, 0);
BASIN_WIRE_ENUM(ReduceOp, 0);
BASIN_WIRE_ENUM(Outcome, 0);
BASIN_WIRE_ENUM(ErrorCode, 0);
BASIN_WIRE_ENUM(ContributionKind, 1);
BASIN_WIRE_ENUM(WeightBy, 1);
BASIN_WIRE_ENUM(Denominator, 1);
BASIN_WIRE_ENUM(LaneKind, 1);
BASIN_WIRE_ENUM(LocalReduction, 0);
BASIN_WIRE_ENUM(AbortCause, 0);

template <typename E>
typename EnumOnWire<E>::Wire EncodeEnum(E value) {
  return static_cast<typename EnumOnWire<E>::Wire>(static_cast<int>(value) + EnumOnWire<E>::kShift);
}
template <typename E>
E DecodeEnum(const char* field, typename EnumOnWire<E>::Wire value, Checker& checker) {
  return checker.Enum<E>(field, value, EnumOnWire<E>::kLast, EnumOnWire<E>::kShift);
}
template <typename E>
void CheckEnum(const char* field, E value, Checker& checker) {
  DecodeEnum<E>(field, EncodeEnum(value), checker);
}

// ---- single fields

// A finite duration of at least zero, in nanoseconds.
uint64_t EncodeDuration(absl::Duration duration);
absl::Duration DecodeDuration(uint64_t ns);

// The same on both ends.
inline std::string EncodeText(const std::string& text) {
  return PrintableText(text, kMaxTextBytes);
}
inline std::string DecodeText(const std::string& text) { return EncodeText(text); }

LaneIndex DecodeLane(const char* field, uint32_t lane, Checker& checker);
TensorIndex DecodeTensor(const char* field, uint32_t tensor, Checker& checker);

// [first, first + count) within the chunks that a tensor may have.
void CheckChunks(uint32_t first, uint32_t count, Checker& checker);

// ---- lists and messages inside messages

// Its entries were counted before it was read (expansion.h).
template <typename List>
auto DecodeList(const char* field, const List& in, Checker& checker) {
  std::vector<decltype(Decode(*in.begin(), checker))> out;
  out.reserve(in.size());
  for (const auto& entry : in) {
    Checker::Scope scope(checker, field, static_cast<ptrdiff_t>(out.size()));
    out.push_back(Decode(entry, checker));
  }
  return out;
}

// Checks each entry of a list of at most `most`.
template <typename T>
void CheckList(const char* field, const std::vector<T>& list, size_t most, Checker& checker) {
  if (list.size() > most) checker.FailEntries(field, most);
  for (size_t i = 0; i < list.size() && checker.ok(); ++i) {
    Checker::Scope scope(checker, field, static_cast<ptrdiff_t>(i));
    Check(list[i], checker);
  }
}

template <typename T>
void CheckField(const char* field, const T& value, Checker& checker) {
  Checker::Scope scope(checker, field);
  Check(value, checker);
}

template <typename Message>
auto DecodeField(const char* field, const Message& in, Checker& checker) {
  Checker::Scope scope(checker, field);
  return Decode(in, checker);
}

template <typename Message>
auto DecodeRequired(const char* field, bool present, const Message& in, Checker& checker) {
  if (!present) checker.Fail(field, "is required");
  return DecodeField(field, in, checker);
}

// ---- messages

void Encode(const Generation& in, v1::Generation* out);
Generation Decode(const v1::Generation& in, Checker& checker);
void Encode(const Incarnation& in, v1::Incarnation* out);
Incarnation Decode(const v1::Incarnation& in, Checker& checker);
void Encode(const Ballot& in, v1::Ballot* out);
Ballot Decode(const v1::Ballot& in, Checker& checker);
void Encode(const Error& in, v1::Error* out);
Error Decode(const v1::Error& in, Checker& checker);  // Fails for OK.
void Encode(const Membership& in, v1::Membership* out);
Membership Decode(const v1::Membership& in, Checker& checker);

// A worker or a contribution of one trainer has no field for it on the wire.
inline uint32_t EncodeRanks(uint32_t ranks) { return ranks == 1 ? 0 : ranks; }
inline uint32_t DecodeRanks(uint32_t ranks) { return ranks == 0 ? 1 : ranks; }

template <typename List>
void CheckReducedWith(const List& workers, Checker& checker) {
  checker.Count("reduced_with", static_cast<size_t>(workers.size()), kMaxRanks - 1);
  const std::string* before = nullptr;
  for (const std::string& worker : workers) {
    if (!checker.ok()) return;
    checker.Worker("reduced_with", worker);
    if (before != nullptr && worker <= *before) {
      checker.Fail("reduced_with", "is not in byte order, or names a worker twice");
    }
    before = &worker;
  }
}
// How the workers of a node were reduced to one contribution, for a message that says so.
template <typename In, typename Out>
void EncodePlan(const In& in, Out* out) {
  out->set_local_reduction(EncodeEnum(in.local_reduction));
  out->mutable_reduced_with()->Add(in.reduced_with.begin(), in.reduced_with.end());
}
template <typename In, typename Out>
void DecodePlan(const In& in, Out& out, Checker& checker) {
  if (in.local_reduction() != v1::LOCAL_REDUCTION_UNSPECIFIED) {
    out.local_reduction =
        DecodeEnum<LocalReduction>("local_reduction", in.local_reduction(), checker);
  }
  CheckReducedWith(in.reduced_with(), checker);
  if (checker.ok()) out.reduced_with.assign(in.reduced_with().begin(), in.reduced_with().end());
}

void Check(const TensorSpec& spec, Checker& checker);
void Encode(const TensorSpec& in, v1::TensorSpec* out);
TensorSpec Decode(const v1::TensorSpec& in, Checker& checker);
void Encode(const ChunkRange& in, v1::ChunkRange* out);
ChunkRange Decode(const v1::ChunkRange& in, Checker& checker);
void Encode(const Bitmap& in, v1::Bitmap* out);
Bitmap Decode(const v1::Bitmap& in, Checker& checker);  // At most kMaxTensors bits.
void Check(const BlobKey& key, Checker& checker);
void Encode(const BlobKey& in, v1::ValueKey* out);
BlobKey Decode(const v1::ValueKey& in, Checker& checker);

void Check(const RoundSpec& spec, Checker& checker);
void Encode(const RoundSpec& in, v1::RoundSpec* out);
RoundSpec Decode(const v1::RoundSpec& in, Checker& checker);
void Encode(const Counts& in, v1::Counts* out);
Counts Decode(const v1::Counts& in, Checker& checker);
void Check(const SampleRange& range, Checker& checker);
void Encode(const SampleRange& in, v1::SampleRange* out);
SampleRange Decode(const v1::SampleRange& in, Checker& checker);
// Positions of an epoch of `samples` samples: they ascend, and none touches the next.
void CheckPositions(const char* field, const std::vector<SampleRange>& ranges, uint64_t samples,
                    Checker& checker);
template <typename List>
void EncodePositions(const std::vector<SampleRange>& in, List* out) {
  for (const SampleRange& range : in) Encode(range, out->Add());
}
template <typename List>
std::vector<SampleRange> DecodePositions(const char* field, const List& in, uint64_t samples,
                                         Checker& checker) {
  std::vector<SampleRange> out = DecodeList(field, in, checker);
  CheckPositions(field, out, samples, checker);
  return out;
}
void Check(const SampleEpoch& epoch, Checker& checker);
void Encode(const SampleEpoch& in, v1::SampleEpoch* out);
SampleEpoch Decode(const v1::SampleEpoch& in, Checker& checker);
void Encode(const SampleProgress& in, v1::SampleProgress* out);
SampleProgress Decode(const v1::SampleProgress& in, Checker& checker);
void Encode(const RoundSamples& in, v1::RoundSamples* out);
RoundSamples Decode(const v1::RoundSamples& in, Checker& checker);
void Encode(const Contributor& in, v1::Contributor* out);
Contributor Decode(const v1::Contributor& in, Checker& checker);
void Encode(const TensorDivisor& in, v1::TensorDivisor* out);
TensorDivisor Decode(const v1::TensorDivisor& in, Checker& checker);
void Encode(const NonFinite& in, v1::NonFinite* out);
NonFinite Decode(const v1::NonFinite& in, Checker& checker);
void Encode(const RoundFacts& in, v1::RoundFacts* out);
RoundFacts Decode(const v1::RoundFacts& in, Checker& checker);
void Encode(const RoundValue& in, v1::RoundValue* out);
RoundValue Decode(const v1::RoundValue& in, Checker& checker);
void Encode(const VerdictRecord& in, v1::VerdictRecord* out);
VerdictRecord Decode(const v1::VerdictRecord& in, Checker& checker);

// The names of a list of tensors: none appears twice.
inline void CheckDistinct(const char* field, const std::vector<TensorSpec>& specs,
                          Checker& checker) {
  checker.Distinct(field, specs,
                   [](const TensorSpec& spec) -> const std::string& { return spec.name; });
}
template <typename List>
std::vector<TensorSpec> DecodeSpecs(const char* field, const List& in, Checker& checker) {
  std::vector<TensorSpec> specs = DecodeList(field, in, checker);
  CheckDistinct(field, specs, checker);
  return specs;
}

}  // namespace basin::wire

#endif  // BASIN_PROTO_WIRE_TYPES_H_
