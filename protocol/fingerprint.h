// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// A 128-bit fingerprint of any value made of Fields() structs, standard containers, numbers and
// times: it distinguishes explored states. Two equal values have equal fingerprints; two unequal
// ones collide with probability 2^-128 per pair. Not stable across versions, not for adversaries.
//
// absl::Hash is not used: it is seeded per process, 64 bits wide, and knows neither std::optional
// nor std::variant where Abseil is built with types of its own.
//
// Thread contract: a plain value.

#ifndef BASIN_PROTOCOL_FINGERPRINT_H_
#define BASIN_PROTOCOL_FINGERPRINT_H_

#include <cstdint>
#include <cstring>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/container/btree_set.h"
#include "absl/container/inlined_vector.h"
#include "absl/time/time.h"

namespace basin {

class Fingerprint {
 public:
  template <typename T>
  static Fingerprint Of(const T& value) {
    Fingerprint print;
    print.Add(value);
    return print;
  }

  // Numbers and enums.
  template <typename T>
  std::enable_if_t<std::is_integral_v<T> || std::is_enum_v<T>> Add(T value) {
    Word(static_cast<uint64_t>(value));
  }
  void Add(double value) {
    uint64_t bits;
    std::memcpy(&bits, &value, sizeof(bits));
    Word(bits);
  }
  void Add(absl::Time time) { Word(static_cast<uint64_t>(absl::ToUnixNanos(time))); }
  void Add(absl::Duration duration) {
    Word(static_cast<uint64_t>(absl::ToInt64Nanoseconds(duration)));
  }
  void Add(const std::string& text) {
    Word(text.size());
    size_t at = 0;
    for (; at + 8 <= text.size(); at += 8) {
      uint64_t word;
      std::memcpy(&word, text.data() + at, 8);
      Word(word);
    }
    if (at < text.size()) {
      uint64_t word = 0;
      std::memcpy(&word, text.data() + at, text.size() - at);
      Word(word);
    }
  }

  // Structs.
  template <typename T>
  auto Add(const T& value) -> std::void_t<decltype(value.Fields())> {
    std::apply([this](const auto&... field) { (this->Add(field), ...); }, value.Fields());
  }

  // Containers.
  template <typename T>
  void Add(const std::optional<T>& value) {
    Word(value.has_value());
    if (value) Add(*value);
  }
  template <typename A, typename B>
  void Add(const std::pair<A, B>& value) {
    Add(value.first);
    Add(value.second);
  }
  template <typename... T>
  void Add(const std::tuple<T...>& value) {
    std::apply([this](const auto&... element) { (this->Add(element), ...); }, value);
  }
  template <typename... T>
  void Add(const std::variant<T...>& value) {
    Word(value.index());
    std::visit([this](const auto& held) { this->Add(held); }, value);
  }
  template <typename T>
  void Add(const std::vector<T>& values) {
    Range(values);
  }
  template <typename T>
  void Add(const std::deque<T>& values) {
    Range(values);
  }
  template <typename T, typename Less>
  void Add(const std::set<T, Less>& values) {
    Range(values);
  }
  template <typename K, typename V, typename Less>
  void Add(const std::map<K, V, Less>& values) {
    Range(values);
  }
  template <typename K, typename V>
  void Add(const absl::btree_map<K, V>& values) {
    Range(values);
  }
  template <typename T>
  void Add(const absl::btree_set<T>& values) {
    Range(values);
  }
  template <typename T, size_t N>
  void Add(const absl::InlinedVector<T, N>& values) {
    Range(values);
  }

  friend bool operator==(const Fingerprint& a, const Fingerprint& b) {
    return a.low_ == b.low_ && a.high_ == b.high_;
  }
  friend bool operator<(const Fingerprint& a, const Fingerprint& b) {
    return a.low_ != b.low_ ? a.low_ < b.low_ : a.high_ < b.high_;
  }
  uint64_t low() const { return low_; }

 private:
  template <typename C>
  void Range(const C& values) {
    Word(values.size());
    for (const auto& value : values) Add(value);
  }

  // Two independent multiply-rotate lanes.
  void Word(uint64_t word) {
    low_ = (low_ ^ word) * 0x9e3779b97f4a7c15;
    low_ ^= low_ >> 32;
    high_ = (high_ + word) * 0xc2b2ae3d27d4eb4f;
    high_ ^= high_ >> 29;
  }

  uint64_t low_ = 0x243f6a8885a308d3;
  uint64_t high_ = 0x13198a2e03707344;
};

// For hash tables.
struct FingerprintHash {
  size_t operator()(const Fingerprint& print) const { return print.low(); }
};

}  // namespace basin

#endif  // BASIN_PROTOCOL_FINGERPRINT_H_
