// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// What a value made of Fields() structs, standard containers, numbers and times takes of memory,
// near enough to charge it to a budget: its size, and what its strings and containers hold. It
// depends on what the value is, never on how it came to be (capacities do not count).
//
// Thread contract: pure functions.

#ifndef BASIN_AGGREGATOR_CORE_FOOTPRINT_H_
#define BASIN_AGGREGATOR_CORE_FOOTPRINT_H_

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "absl/container/inlined_vector.h"

namespace basin::aggregator {

class Footprint {
 public:
  template <typename T>
  static uint64_t Of(const T& value) {
    return sizeof(T) + Beyond(value);
  }
  // What an entry of a map takes, without what its strings and containers hold.
  template <typename K, typename V>
  static constexpr uint64_t OfEntry() {
    return sizeof(std::pair<const K, V>) + kNode;
  }

 private:
  // What a node of a tree takes besides its content.
  static constexpr uint64_t kNode = 4 * sizeof(void*);

  // What the value holds beyond its own size.
  template <typename T>
  static uint64_t Beyond(const T& value) {
    if constexpr (std::is_trivially_copyable_v<T>) {
      return 0;
    } else {
      return std::apply([](const auto&... field) { return (uint64_t{0} + ... + Beyond(field)); },
                        value.Fields());
    }
  }
  static uint64_t Beyond(const std::string& text) {
    return text.size() < sizeof(std::string) / 2 ? 0 : text.size() + 1;
  }
  template <typename T>
  static uint64_t Beyond(const std::optional<T>& value) {
    return value.has_value() ? Beyond(*value) : 0;
  }
  template <typename A, typename B>
  static uint64_t Beyond(const std::pair<A, B>& value) {
    return Beyond(value.first) + Beyond(value.second);
  }
  template <typename... T>
  static uint64_t Beyond(const std::variant<T...>& value) {
    return std::visit([](const auto& held) { return Beyond(held); }, value);
  }
  template <typename T>
  static uint64_t Beyond(const std::vector<T>& values) {
    return Elements(values, sizeof(T));
  }
  template <typename T, size_t N>
  static uint64_t Beyond(const absl::InlinedVector<T, N>& values) {
    return Elements(values, values.size() > N ? sizeof(T) : 0);
  }
  template <typename T>
  static uint64_t Beyond(const std::set<T>& values) {
    return Elements(values, sizeof(T) + kNode);
  }
  template <typename K, typename V>
  static uint64_t Beyond(const std::map<K, V>& values) {
    return Elements(values, OfEntry<K, V>());
  }

  template <typename C>
  static uint64_t Elements(const C& values, uint64_t each) {
    uint64_t bytes = values.size() * each;
    if constexpr (!std::is_trivially_copyable_v<typename C::value_type>) {
      for (const auto& value : values) bytes += Beyond(value);
    }
    return bytes;
  }
};

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_CORE_FOOTPRINT_H_
