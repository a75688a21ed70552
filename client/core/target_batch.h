// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The report of a worker that accumulates gradients until all workers together have a target batch.
// A report that is not answered is repeated in the next session.
//
// Thread contract: a plain value. The functions of a Lane with a Scope change its report, append
// actions, and have no other effect.

#ifndef BASIN_CLIENT_CORE_TARGET_BATCH_H_
#define BASIN_CLIENT_CORE_TARGET_BATCH_H_

#include <cstdint>
#include <tuple>

#include "client/core/event.h"
#include "client/core/streams.h"
#include "protocol/messages.h"

namespace basin::client {

struct Lane;

struct BatchReport {
  uint64_t samples = 0;
  uint64_t target = 0;
  bool sent = false;  // In this session.
  auto Fields() const { return std::tie(samples, target, sent); }
};

// Takes a call of the trainer. An error that is not kOk refuses it, and nothing has changed.
Error Take(Lane& lane, const Scope& scope, const AccumulateBatch& batch);
// Sends what this session lacks. REQUIRES: the lane has its index in this session.
void AdvanceReport(Lane& lane, const Scope& scope);
void OnReported(Lane& lane, const Scope& scope, const BatchReported& reported);
// The report, if any, gets no other answer.
void FailReport(Lane& lane, const Scope& scope, const Error& error);

}  // namespace basin::client

#endif  // BASIN_CLIENT_CORE_TARGET_BATCH_H_
