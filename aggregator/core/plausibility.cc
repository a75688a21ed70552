// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "aggregator/core/plausibility.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <set>

#include "absl/strings/str_cat.h"
#include "aggregator/core/lane.h"
#include "aggregator/core/lanes.h"
#include "aggregator/core/recovery.h"

namespace basin::aggregator {
namespace {

// How far ahead of this aggregator's own term another one's can be. Terms are seconds since 1970,
// and at most 2^20 more for each time that an aggregator learned of a higher one.
constexpr Term kTermsAhead = Term{1} << 40;

// Bytes in a message, at most; protocol/limits/limits.h bounds what they are made of.
constexpr uint64_t kWorkerIdBytes = 63 + 3;
constexpr uint64_t kMemberBytes = kWorkerIdBytes + 2;  // With its ranks.
constexpr uint64_t kContributorBytes =
    kWorkerIdBytes + 51;                // Its incarnation, weight, norm, ranks, reduction.
constexpr uint64_t kDivisorBytes = 19;  // For each tensor.
constexpr uint64_t kNormBytes = 8;      // For each tensor.
constexpr uint64_t kRangeBytes = 22;
constexpr uint64_t kMostRanges = 65536;
constexpr uint64_t kFixedBytes = 4096;  // Names, reasons, numbers, facts.

// A value names its contributors, and gives a norm, and perhaps a divisor, for each tensor.
uint64_t ValueBytes(uint64_t tensors, uint64_t workers) {
  return workers * kContributorBytes + tensors * (kDivisorBytes + kNormBytes) + kFixedBytes;
}

std::string WhyNotLayout(const LaneHistory& lane, const Config& config) {
  if (lane.layout.size() > config.max_tensors) return "has more tensors than this server allows";
  std::set<std::string> names;
  uint64_t bytes = 0;
  for (const TensorSpec& spec : lane.layout) {
    if (!names.insert(spec.name).second) return absl::StrCat("has two tensors ", spec.name);
    const std::optional<uint64_t> size = TensorBytes(spec);
    if (!size.has_value()) return absl::StrCat("has tensor ", spec.name, " without a size");
    if (*size > config.max_lane_bytes - bytes) return "is larger than this server allows";
    bytes += *size;
  }
  return "";
}

std::string WhyNotVerdicts(const LaneHistory& lane) {
  if (lane.verdicts.empty()) return "";
  if (lane.verdicts.size() > kRememberedVerdicts)
    return "has more verdicts than a worker remembers";
  const VerdictRecord& last = lane.verdicts.back();
  if (last.round != lane.last_verdict || last.chain != lane.chain) {
    return "does not end with the verdict that it names as the last";
  }
  for (const VerdictRecord& record : lane.verdicts) {
    if (!IsAsDecided(record.value)) return "has a verdict that is not the one that was decided";
  }
  for (size_t i = 1; i < lane.verdicts.size(); ++i) {
    const VerdictRecord& before = lane.verdicts[i - 1];
    const VerdictRecord& record = lane.verdicts[i];
    if (record.round != before.round + 1 ||
        record.chain != ExtendChain(before.chain, record.round, record.value)) {
      return "has verdicts that are not consecutive";
    }
  }
  return "";
}

}  // namespace

std::string WhyNotPlausible(const Hello& hello, Term term, const Config& config) {
  if (hello.nonce == 0) return "has no nonce";
  if (std::string why = WhyNotRanks(hello.ranks); !why.empty()) return why;
  const Term highest = HighestTerm(hello);
  if (highest > term && highest - term > kTermsAhead) return "names an impossible term";
  if (hello.membership.members.size() > config.max_workers) return "names too many members";
  const std::set<WorkerId> members(hello.membership.members.begin(),
                                   hello.membership.members.end());
  if (members.size() != hello.membership.members.size()) return "names a member twice";
  if (hello.lanes.size() > config.max_lane_names) return "remembers too many lanes";
  std::set<std::string> names;
  std::set<LaneIndex> indexes;
  for (const LaneHistory& lane : hello.lanes) {
    if (lane.name.empty() || lane.lane >= kMostLaneIndexes || !names.insert(lane.name).second ||
        !indexes.insert(lane.lane).second) {
      return absl::StrCat("reports an impossible first round for lane ", lane.name);
    }
    if (const std::string why = WhyNotLayout(lane, config); !why.empty()) {
      return absl::StrCat("remembers a lane ", lane.name, " that ", why);
    }
    if (const std::string why = WhyNotVerdicts(lane); !why.empty()) {
      return absl::StrCat("remembers a lane ", lane.name, " that ", why);
    }
  }
  return "";
}

uint64_t HistoryBytes(const Layout& layout, const LayoutBytes& bytes, const TensorSpec* next,
                      uint64_t workers) {
  uint64_t tensors = layout.version();
  uint64_t specs = bytes.sent;
  uint64_t chunks = layout.chunks();
  if (next != nullptr) {
    tensors += 1;
    specs += SpecBytes(*next);
    chunks += ChunkCount(TensorBytes(*next).value_or(0));
  }
  const uint64_t value = ValueBytes(tensors, workers);
  const uint64_t verdict = value + workers * kMemberBytes;  // With the next members.
  const uint64_t held = std::min(chunks, kMostRanges) * kRangeBytes;
  return specs + kRememberedVerdicts * verdict + value + held + kFixedBytes;
}

uint64_t HelloBytes(uint64_t workers) { return workers * kMemberBytes + kFixedBytes; }

}  // namespace basin::aggregator
