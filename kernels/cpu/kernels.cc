// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Compiles the inner loops once per instruction set and collects them in tables. Highway includes
// this file again for each of its targets.

#include "kernels/cpu/kernels.h"

// Vectors of a length that is not known at compile time do not fit the register arrays used here;
// such processors run the 128-bit target.
#define BASIN_SCALABLE_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
// An instrumented build would take a quarter of an hour for all targets, so it has two: the most
// common one and the fallback, which is then the plain scalar one with every compiler.
#ifdef BASIN_FEW_TARGETS
#define HWY_DISABLED_TARGETS (BASIN_SCALABLE_TARGETS | HWY_AVX3 | HWY_SSE4 | HWY_SSSE3)
#define HWY_BROKEN_EMU128 1
#else
#define HWY_DISABLED_TARGETS BASIN_SCALABLE_TARGETS
#endif

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/kernels.cc"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/cpu/finish-inl.h"
#include "kernels/cpu/float-inl.h"
#include "kernels/cpu/fold-inl.h"
#include "kernels/cpu/integer-inl.h"
#include "kernels/cpu/integer_reduce-inl.h"
#include "kernels/cpu/reduce-inl.h"

HWY_BEFORE_NAMESPACE();
namespace basin::kernels::cpu {
namespace HWY_NAMESPACE {

template <class Type, class Op>
void SetFloatOp(DType dtype, Combine combine, KernelTable* table) {
  const size_t type = static_cast<size_t>(dtype);
  const size_t op = static_cast<size_t>(combine);
  table->reduce[type][op] = Reduce<Type, Op>;
  table->fold[type][op] = Fold<Type, Op>;
  table->fold_count[type][op] = FoldCount<Type, Op>;
}

template <class Type>
void SetFloat(DType dtype, KernelTable* table) {
  SetFloatOp<Type, AddOp>(dtype, Combine::kAdd, table);
  SetFloatOp<Type, MultiplyOp>(dtype, Combine::kMultiply, table);
  SetFloatOp<Type, ExtremeOp</*kMin=*/true>>(dtype, Combine::kMin, table);
  SetFloatOp<Type, ExtremeOp</*kMin=*/false>>(dtype, Combine::kMax, table);
  table->finish[static_cast<size_t>(dtype)] = FinishFloat<Type>;
  table->finish_count[static_cast<size_t>(dtype)] = FinishCount<Type>;
  table->norm[static_cast<size_t>(dtype)] = AddSquares<Type>;
}

template <class T, class Sum, class Product>
void SetInteger(DType dtype, KernelTable* table) {
  auto& reduce = table->reduce[static_cast<size_t>(dtype)];
  reduce[static_cast<size_t>(Combine::kAdd)] = ReduceInteger<T, Sum>;
  reduce[static_cast<size_t>(Combine::kMultiply)] = ReduceInteger<T, Product>;
  reduce[static_cast<size_t>(Combine::kMin)] = ReduceInteger<T, IntegerExtreme<T, /*kMin=*/true>>;
  reduce[static_cast<size_t>(Combine::kMax)] = ReduceInteger<T, IntegerExtreme<T, /*kMin=*/false>>;
  auto& fold = table->fold[static_cast<size_t>(dtype)];
  fold[static_cast<size_t>(Combine::kAdd)] = FoldInteger<T, Combine::kAdd>;
  fold[static_cast<size_t>(Combine::kMultiply)] = FoldInteger<T, Combine::kMultiply>;
  fold[static_cast<size_t>(Combine::kMin)] = FoldInteger<T, Combine::kMin>;
  fold[static_cast<size_t>(Combine::kMax)] = FoldInteger<T, Combine::kMax>;
  table->finish[static_cast<size_t>(dtype)] = FinishInteger<T>;
}

KernelTable MakeTable() {
  KernelTable table = {};
  SetFloat<TypeF64>(DType::kF64, &table);
  SetFloat<TypeF32>(DType::kF32, &table);
  SetFloat<TypeF16>(DType::kF16, &table);
  SetFloat<TypeBF16>(DType::kBF16, &table);
  SetInteger<int64_t, IntegerSum<int64_t>, IntegerProduct<int64_t>>(DType::kI64, &table);
  SetInteger<int32_t, IntegerSum<int32_t>, IntegerProduct<int32_t>>(DType::kI32, &table);
  SetInteger<uint8_t, U8Sum, U8Product>(DType::kU8, &table);
  return table;
}

const KernelTable* Table() {
  static const KernelTable table = MakeTable();
  return &table;
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace basin::kernels::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace basin::kernels::cpu {
namespace {

HWY_EXPORT(Table);

const KernelTable* TableFor(int64_t target) {
#if (HWY_TARGETS & (HWY_TARGETS - 1)) == 0
  (void)target;  // The only one.
  return HWY_STATIC_DISPATCH(Table)();
#else
  hwy::ChosenTarget chosen;
  chosen.Update(target);
  return HWY_DISPATCH_TABLE(Table)[chosen.GetIndex()]();
#endif
}

}  // namespace

void FlushStores() { hwy::FlushStream(); }

std::vector<Target> SupportedTargets() {
  std::vector<Target> targets;
  for (const int64_t target : hwy::SupportedAndGeneratedTargets()) {
    targets.push_back(Target{hwy::TargetName(target), TableFor(target)});
  }
  return targets;
}

}  // namespace basin::kernels::cpu
#endif  // HWY_ONCE
