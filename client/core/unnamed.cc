// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "client/core/unnamed.h"

#include <map>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "protocol/dtype.h"
#include "protocol/tensor.h"

namespace basin::client {
namespace {

constexpr absl::string_view kUnnamedPrefix = "call/unnamed/";

// A call with many arrays is described by the first ones, up to so many bytes, and a hash.
constexpr size_t kDescription = 250;

// A hash of what is not described.
uint64_t Fingerprint(const std::vector<TensorSpec>& arrays) {
  uint64_t hash = 0;
  for (const TensorSpec& array : arrays) {
    hash = MixChain(hash, static_cast<uint64_t>(array.dtype));
    hash = MixChain(hash, array.shape.size());
    for (const uint64_t size : array.shape) hash = MixChain(hash, size);
  }
  return hash;
}

}  // namespace

std::string UnnamedLane(uint32_t place) {
  return absl::StrCat(kUnnamedPrefix, kUnnamedLanes, "/", place);
}

bool IsUnnamedLane(const std::string& name) { return absl::StartsWith(name, kUnnamedPrefix); }

TensorSpec FirstUnnamedTensor() { return {"u8/1", DType::kU8, {1}}; }

std::optional<RoundNumber> RoundsMade(const Lane& lane) {
  // Before the layout, the lane may start at a round that has ended meanwhile.
  if (!lane.started || !lane.index.has_value()) return std::nullopt;
  if (lane.round.has_value()) return lane.round->number();
  if (lane.undelivered.has_value()) return lane.undelivered->round - 1;
  return lane.last_verdict;
}

std::optional<uint32_t> NextPlace(const std::vector<const Lane*>& lanes) {
  std::optional<uint32_t> next;
  RoundNumber least = 0;
  for (uint32_t place = 0; place < lanes.size(); ++place) {
    const std::optional<RoundNumber> made = RoundsMade(*lanes[place]);
    if (!made.has_value()) return std::nullopt;
    // Calls take the places in turns, so the lane with the fewest rounds has the lowest call.
    if (next.has_value() && *made >= least) continue;
    next = place;
    least = *made;
  }
  return next;
}

std::vector<CallPart> PartsOf(const std::vector<TensorSpec>& arrays) {
  std::vector<CallPart> parts;
  std::map<std::pair<DType, uint64_t>, size_t> used;  // How often in this call.
  for (size_t i = 0; i < arrays.size(); ++i) {
    const uint64_t size = ElementSize(arrays[i].dtype);
    const uint64_t elements = *TensorBytes(arrays[i]) / size;
    uint64_t done = 0;
    for (uint64_t length = uint64_t{1} << 40; length > 0; length >>= 1) {
      if ((elements & length) == 0) continue;
      const size_t before = used[{arrays[i].dtype, length}]++;
      std::string name = absl::StrCat(DTypeName(arrays[i].dtype), "/", length);
      if (before > 0) absl::StrAppend(&name, "/", before);
      parts.push_back(
          {i, done * size, length * size, TensorSpec{std::move(name), arrays[i].dtype, {length}}});
      done += length;
    }
  }
  return parts;
}

std::string DescribeCall(ReduceOp op, const std::vector<TensorSpec>& arrays) {
  std::string text = absl::StrCat(ReduceOpName(op), " of ");
  for (size_t i = 0; i < arrays.size(); ++i) {
    if (text.size() > kDescription) {
      return absl::StrCat(text, " and ", arrays.size() - i, " more (hash ",
                          absl::Hex(Fingerprint(arrays)), ")");
    }
    absl::StrAppend(&text, i == 0 ? "" : ", ", DescribeSpec(arrays[i]));
  }
  return arrays.empty() ? absl::StrCat(text, "nothing") : text;
}

uint64_t HashOfCall(const std::string& call) {
  uint64_t hash = call.size();
  for (const char letter : call) hash = MixChain(hash, static_cast<unsigned char>(letter));
  return hash == 0 ? 1 : hash;
}

absl::Status SetCall(BeginRound& begin, std::string call) {
  if (call.size() > kMostCallBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("What a round is for has ", call.size(), " bytes: \"", call.substr(0, 40),
                     "...\". Say it in at most ", kMostCallBytes, "."));
  }
  begin.call = std::move(call);
  if (!begin.call.empty() && begin.spec.layout == 0) begin.spec.layout = HashOfCall(begin.call);
  return absl::OkStatus();
}

}  // namespace basin::client
