// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// How the one-pass loops write. Included once per instruction set.

#if defined(BASIN_KERNELS_CPU_STORE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef BASIN_KERNELS_CPU_STORE_INL_H_
#undef BASIN_KERNELS_CPU_STORE_INL_H_
#else
#define BASIN_KERNELS_CPU_STORE_INL_H_
#endif

#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace basin::kernels::cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <class T, class Tag>
HWY_INLINE void StoreOrStream(hn::Vec<Tag> v, Tag tag, bool bypass_cache, T* HWY_RESTRICT to) {
  bypass_cache ? hn::Stream(v, tag, to) : hn::StoreU(v, tag, to);
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace basin::kernels::cpu
HWY_AFTER_NAMESPACE();

#endif  // BASIN_KERNELS_CPU_STORE_INL_H_
