// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// One function object out of several lambdas, to visit a variant with.

#ifndef BASIN_PROTOCOL_OVERLOADED_H_
#define BASIN_PROTOCOL_OVERLOADED_H_

namespace basin {

template <typename... F>
struct Overloaded : F... {
  using F::operator()...;
};
template <typename... F>
Overloaded(F...) -> Overloaded<F...>;

}  // namespace basin

#endif  // BASIN_PROTOCOL_OVERLOADED_H_
