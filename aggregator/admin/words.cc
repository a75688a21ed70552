// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "aggregator/admin/words.h"

#include <set>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "protocol/plural.h"

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

std::string NameOf(const v1::ShardStatus& shard) {
  return shard.shard() == 0 ? "aggregator" : shard.name();
}

std::string TroubleOf(const v1::ShardStatus& shard) {
  uint64_t left_out = 0;
  std::set<std::string> workers;
  for (const v1::ShardOfJob& job : shard.jobs()) {
    left_out += job.left_out().empty() ? 0 : 1;
    for (const v1::ShardOutOfReach& by : job.out_of_reach()) {
      workers.insert(absl::StrCat(job.job(), " ", by.worker()));
    }
  }
  std::vector<std::string> words;
  if (shard.draining()) words.emplace_back("draining");
  if (shard.slow()) words.emplace_back("slow");
  if (left_out > 0) words.push_back(absl::StrCat("left out of ", CountOf(left_out, "job")));
  if (!workers.empty()) {
    words.push_back(absl::StrCat("out of reach of ", CountOf(workers.size(), "worker")));
  }
  return absl::StrJoin(words, ", ");
}

std::string TroubleOf(const v1::ShardOfJob& shard) {
  if (!shard.left_out().empty()) return absl::StrCat("left out: ", shard.left_out());
  if (shard.out_of_reach().empty()) return "";
  const v1::ShardOutOfReach& first = shard.out_of_reach(0);
  return absl::StrCat(
      "worker ", first.worker(), " says since ", Span(first.since_ns()), " that ", first.why(),
      shard.out_of_reach_size() == 1
          ? ""
          : absl::StrCat(", and ", CountOf(shard.out_of_reach_size() - 1, "other worker")));
}

std::string ShareOf(const v1::ShardOfJob& shard) {
  if (shard.job_bytes() == 0) return "";
  return absl::StrFormat("%.1f%%", 100.0 * static_cast<double>(shard.bytes()) /
                                       static_cast<double>(shard.job_bytes()));
}

}  // namespace basin::aggregator
