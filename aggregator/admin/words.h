// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// How the values of basin/v1/admin.proto are written for people, in tables and on pages.
//
// Thread contract: pure functions.

#ifndef BASIN_AGGREGATOR_ADMIN_WORDS_H_
#define BASIN_AGGREGATOR_ADMIN_WORDS_H_

#include <cstdint>
#include <string>

#include "basin/v1/admin.pb.h"

namespace basin::aggregator {

// "3.1s", "120ms", "2h3m0s".
std::string Span(uint64_t ns);

// "12.5MiB".
std::string Size(uint64_t bytes);

// "JOB_STATE_RUNNING" without the name of its enum: "running".
std::string Word(v1::JobState state);
std::string Word(v1::Role role);
std::string Word(v1::RoundPhase phase);
std::string Word(v1::Outcome outcome);
std::string Word(v1::ReduceOp op);

// "3", or "3-5" for a member that stands for three trainers; empty if it is no member.
std::string Ranks(const v1::MemberStatus& member);

// "aggregator" for shard 0.
std::string NameOf(const v1::ShardStatus& shard);
// "draining", "slow", and which jobs or workers do without it: empty if there is nothing to say.
std::string TroubleOf(const v1::ShardStatus& shard);
std::string TroubleOf(const v1::ShardOfJob& shard);
// "33.3%"; empty for a job without gradients.
std::string ShareOf(const v1::ShardOfJob& shard);

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_ADMIN_WORDS_H_
