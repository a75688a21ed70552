// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The inner loops of the CPU reducer, one table of functions per instruction set. They work on a
// few Ki contiguous elements; the reducer does everything else (slices, tails, groups, facts by
// name).

#ifndef BASIN_KERNELS_CPU_KERNELS_H_
#define BASIN_KERNELS_CPU_KERNELS_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "kernels/facts.h"
#include "kernels/plan.h"

namespace basin::kernels::cpu {

// Every element count below is a multiple of this: four of the widest vectors of f32.
constexpr size_t kUnitElements = 64;

// The most contributions that one call takes, and the most elements that one call of a
// ReduceFunction takes.
constexpr size_t kMaxTerms = 16;  // Few enough for the processor to follow every stream.
constexpr size_t kMaxReduceElements = kNormLeafElements;

// One contribution's share of a block, and its constants in the accumulator's type.
struct FoldTerm {
  const unsigned char* data;  // At any address.
  double factor;
  float factor_f32;
  float unscale_f32;
};

// The findings of the fast loops. They only detect a value that is not finite; if there is one, the
// counting loops repeat the block.
struct Watch {
  bool non_finite = false;     // Some acc or out may not be finite.
  bool redo = false;           // A ReduceFunction met values that it cannot handle.
  uint64_t integer_wraps = 0;  // Exact, unless `redo`.
};

// The findings of the counting loops.
struct Count {
  uint64_t overflows = 0;           // As Facts::overflows.
  bool* term_non_finite = nullptr;  // One per term: set where an input is not finite.
};

// acc := fold of `terms`, all of one wire dtype, starting from the first one if `fresh` and from
// acc otherwise.
using FoldFunction = void (*)(const FoldTerm* terms, size_t term_count, bool fresh, size_t count,
                              void* acc, Watch* watch);
// The same, counting.
using FoldCountFunction = void (*)(const FoldTerm* terms, size_t term_count, bool fresh,
                                   size_t count, void* acc, Count* found);
// Where the one-pass loop puts results.
struct Sink {
  unsigned char* out;
  bool bypass_cache;   // Only if `out` is aligned to 64 bytes; needs FlushStores() afterwards.
  double* norm_lanes;  // The 16 lanes of facts.h; never null.
};

// Fold on top of `acc` (null: afresh; always null for integers), finish, round, store and square,
// for results of the terms' dtype. If watch->redo comes out set (some acc, p or out may not be
// finite, or an integer may have wrapped), what was stored, squared and counted is void.
using ReduceFunction = void (*)(const FoldTerm* terms, size_t term_count, const void* acc,
                                Finish finish, double constant, size_t count, const Sink& sink,
                                Watch* watch);
// out := RN_result(finish(acc)).
using FinishFunction = void (*)(const void* acc, Finish finish, double constant, size_t count,
                                unsigned char* out, Watch* watch);
// How many elements have a finite acc and an out that is not.
using FinishCountFunction = uint64_t (*)(const void* acc, Finish finish, double constant,
                                         size_t count);
// Adds the squares of results to the 16 lanes of facts.h.
using NormFunction = void (*)(const unsigned char* out, size_t count, double* lanes);

constexpr size_t kDTypes = 8;    // Indices up to DType::kU8.
constexpr size_t kCombines = 4;  // Indices of Combine.

// The loops of one instruction set, by the values of DType and Combine. Null where there is no such
// loop: integers have no counting loops and no norm.
struct KernelTable {
  ReduceFunction reduce[kDTypes][kCombines];         // By wire dtype, which is the result's.
  FoldFunction fold[kDTypes][kCombines];             // By wire dtype.
  FoldCountFunction fold_count[kDTypes][kCombines];  // By wire dtype.
  FinishFunction finish[kDTypes];                    // By result dtype.
  FinishCountFunction finish_count[kDTypes];         // By result dtype.
  NormFunction norm[kDTypes];                        // By result dtype.
};

// Makes stores that bypassed the cache visible to other threads like ordinary ones.
void FlushStores();

// An instruction set that this machine runs.
struct Target {
  std::string name;
  const KernelTable* kernels;  // Lives as long as the program.
};

// Best first; at least one.
std::vector<Target> SupportedTargets();

}  // namespace basin::kernels::cpu

#endif  // BASIN_KERNELS_CPU_KERNELS_H_
