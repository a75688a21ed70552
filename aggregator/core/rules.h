// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The rules of the protocol and of delivery that can be broken, only to show what goes wrong then.
// Here they are constants. Explorer and simulator compile the core with another file in place of
// this one (tests/world/rules), in which they are variables.

#ifndef BASIN_AGGREGATOR_CORE_RULES_H_
#define BASIN_AGGREGATOR_CORE_RULES_H_

namespace basin::aggregator {

struct Rules {
  // Send a verdict only after all have STAGED.
  static constexpr bool two_phases = true;
  // Prepare an adopted value again before its verdict.
  static constexpr bool second_prepare = true;
  // Count processes without memory towards recovery.
  static constexpr bool memoryless_counts = false;
  // Recover with the first worker that sends a hello.
  static constexpr bool recover_with_first = false;
  // Drop frames of rounds that opened in an older generation.
  static constexpr bool fence_by_generation = false;
  // Count a worker that may go back to an older aggregator.
  static constexpr bool hello_promises = false;
  // Ask a joiner to stage before its trainer has the state.
  static constexpr bool stages_without_state = false;
  // Take what a lost stream carried for delivered.
  static constexpr bool forgets_lost_frames = false;
  // Send it again to the first session there is.
  static constexpr bool resends_to_anyone = false;
  // Take a closed session for lost before it has lingered.
  static constexpr bool loses_at_once = false;
  // Count an acknowledgement for the next session, too.
  static constexpr bool counts_acks_twice = false;
  // Keep the samples that a lost worker held.
  static constexpr bool keeps_lost_samples = false;
  // Free those, too, that an open round counts.
  static constexpr bool frees_counted_samples = false;
  // Commit what the contributions name of a step of a global batch.
  static constexpr bool commits_parts_of_steps = false;
  // Send a verdict before those who were late have STAGED.
  static constexpr bool leaves_out_of_staging = false;
  // Reduce unnamed calls together that are not the same.
  static constexpr bool reduces_different_calls = false;
  // Count what a verdict names as late, too.
  static constexpr bool counts_late = false;
  // Count a contribution without what was deferred to it.
  static constexpr bool forgets_deferred = false;
  // Take what a lost shard had for what the shard has that takes its place.
  static constexpr bool keeps_lost_chunks = false;
  // Leave members without the prepared results that a lost shard had.
  static constexpr bool leaves_results_lost = false;
  // Wait for what a lost shard had of a contributor that cannot push it again.
  static constexpr bool awaits_lost_contributors = false;
};

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_CORE_RULES_H_
