// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "proto/wire/session_types.h"

namespace basin::wire {

void Encode(const JobSettings& in, v1::JobSettings* out) {
  out->set_min_workers(in.min_workers);
  out->set_max_workers(in.max_workers);
  out->set_start_workers(in.start_workers);
}

JobSettings Decode(const v1::JobSettings& in, Checker& checker) {
  JobSettings out;
  out.min_workers = checker.AtMost("min_workers", in.min_workers(), kMaxWorkers);
  out.max_workers = checker.AtMost("max_workers", in.max_workers(), kMaxWorkers);
  out.start_workers = checker.AtMost("start_workers", in.start_workers(), kMaxWorkers);
  // Zero is the default, whose value is unknown here.
  const auto ordered = [](uint32_t low, uint32_t high) { return high == 0 || low <= high; };
  if (!ordered(out.min_workers, out.start_workers) ||
      !ordered(out.start_workers, out.max_workers) || !ordered(out.min_workers, out.max_workers)) {
    checker.Fail("start_workers", "is not between min_workers and max_workers");
  }
  return out;
}

}  // namespace basin::wire
