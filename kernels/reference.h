// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The canonical reduction as it is written in plan.h, one element and one operation after the
// other, on any machine. The other backends are compared with it, and it is itself compared with
// NumPy and PyTorch; it need not be fast.

#ifndef BASIN_KERNELS_REFERENCE_H_
#define BASIN_KERNELS_REFERENCE_H_

#include <cstddef>
#include <memory>

#include "kernels/reducer.h"

namespace basin::kernels {

// Named "reference". Stateless; never fails.
std::unique_ptr<Reducer> MakeReferenceReducer();

// The squared norm of a whole tensor by the definition in facts.h, element by element. 0 for
// integers, which have none.
double ReferenceSquaredNorm(DType dtype, const void* data, size_t count);

}  // namespace basin::kernels

#endif  // BASIN_KERNELS_REFERENCE_H_
