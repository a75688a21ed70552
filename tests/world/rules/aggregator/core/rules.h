// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The rules of aggregator/core/rules.h, in whose place this file is compiled, as variables.

#ifndef BASIN_TESTS_WORLD_RULES_AGGREGATOR_CORE_RULES_H_
#define BASIN_TESTS_WORLD_RULES_AGGREGATOR_CORE_RULES_H_

namespace basin::aggregator {

struct Rules {
  bool two_phases = true;
  bool second_prepare = true;
  bool memoryless_counts = false;
  bool recover_with_first = false;
  bool fence_by_generation = false;
  bool hello_promises = false;
  bool stages_without_state = false;
  bool forgets_lost_frames = false;
  bool resends_to_anyone = false;
  bool loses_at_once = false;
  bool counts_acks_twice = false;
  bool keeps_lost_samples = false;
  bool frees_counted_samples = false;
  bool commits_parts_of_steps = false;
  bool leaves_out_of_staging = false;
  bool reduces_different_calls = false;
  bool counts_late = false;
  bool forgets_deferred = false;
  bool keeps_lost_chunks = false;
  bool leaves_results_lost = false;
  bool awaits_lost_contributors = false;
};

}  // namespace basin::aggregator

#endif  // BASIN_TESTS_WORLD_RULES_AGGREGATOR_CORE_RULES_H_
