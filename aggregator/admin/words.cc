// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "aggregator/admin/words.h"

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"

namespace basin::aggregator {
namespace {

std::string WithoutPrefix(const std::string& name, size_t prefix) {
  return absl::AsciiStrToLower(name.substr(prefix));
}

}  // namespace

std::string Span(uint64_t ns) {
  const absl::Duration span = absl::Nanoseconds(static_cast<int64_t>(ns));
  const absl::Duration unit = span >= absl::Minutes(1)   ? absl::Seconds(1)
                              : span >= absl::Seconds(1) ? absl::Milliseconds(100)
                                                         : absl::Milliseconds(1);
  return absl::FormatDuration(absl::Trunc(span, unit));
}

std::string Size(uint64_t bytes) {
  if (bytes >= uint64_t{1} << 30) return absl::StrFormat("%.1fGiB", bytes / double{1 << 30});
  if (bytes >= uint64_t{1} << 20) return absl::StrFormat("%.1fMiB", bytes / double{1 << 20});
  return absl::StrFormat("%.1fKiB", bytes / 1024.0);
}

std::string Word(v1::JobState state) {
  return WithoutPrefix(v1::JobState_Name(state), sizeof("JOB_STATE_") - 1);
}

std::string Word(v1::Role role) { return WithoutPrefix(v1::Role_Name(role), sizeof("ROLE_") - 1); }

std::string Word(v1::RoundPhase phase) {
  return WithoutPrefix(v1::RoundPhase_Name(phase), sizeof("ROUND_PHASE_") - 1);
}

std::string Word(v1::Outcome outcome) {
  return WithoutPrefix(v1::Outcome_Name(outcome), sizeof("OUTCOME_") - 1);
}

std::string Word(v1::ReduceOp op) {
  return WithoutPrefix(v1::ReduceOp_Name(op), sizeof("REDUCE_OP_") - 1);
}

std::string Ranks(const v1::MemberStatus& member) {
  if (!member.has_rank()) return "";
  if (member.ranks() < 2) return absl::StrCat(member.rank());
  return absl::StrCat(member.rank(), "-", member.rank() + member.ranks() - 1);
}

}  // namespace basin::aggregator
