// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Equality for plain structs. A struct that offers
//
//   auto Fields() const { return std::tie(a, b, c); }
//
// gets == and != over exactly these members, and a fingerprint (fingerprint.h), so that a member
// cannot take part in one and be forgotten in the other.

#ifndef BASIN_PROTOCOL_FIELDS_H_
#define BASIN_PROTOCOL_FIELDS_H_

#include <tuple>
#include <utility>

namespace basin {

template <typename T, typename = decltype(std::declval<const T&>().Fields())>
bool operator==(const T& a, const T& b) {
  return a.Fields() == b.Fields();
}

template <typename T, typename = decltype(std::declval<const T&>().Fields())>
bool operator!=(const T& a, const T& b) {
  return !(a == b);
}

}  // namespace basin

#endif  // BASIN_PROTOCOL_FIELDS_H_
