// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Random numbers that are the same on every platform and with every standard library, so that a
// seed names one run for good. The generator is SplitMix64 (Steele, Lea, Flood: "Fast Splittable
// Pseudorandom Number Generators", 2014).
//
// Thread contract: a plain value.

#ifndef BASIN_TESTS_SIMULATION_RANDOM_H_
#define BASIN_TESTS_SIMULATION_RANDOM_H_

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace basin::simulation {

// One step of a stable hash.
constexpr uint64_t Mix(uint64_t hash, uint64_t word) {
  uint64_t z = (hash ^ word) + 0x9e3779b97f4a7c15;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}

  uint64_t Next() {
    state_ += 0x9e3779b97f4a7c15;
    uint64_t z = state_;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
  }

  // In [0, bound). REQUIRES: bound > 0.
  uint64_t Below(uint64_t bound) {
    return static_cast<uint64_t>((static_cast<unsigned __int128>(Next()) * bound) >> 64);
  }

  // In [low, high]. REQUIRES: low <= high.
  int64_t Between(int64_t low, int64_t high) {
    return low + static_cast<int64_t>(Below(static_cast<uint64_t>(high - low) + 1));
  }

  bool Chance(uint32_t percent) { return Below(100) < percent; }

  template <typename T>
  void Shuffle(std::vector<T>& values) {
    for (size_t i = values.size(); i > 1; --i) std::swap(values[i - 1], values[Below(i)]);
  }

  template <typename T>
  const T& Pick(const std::vector<T>& values) {
    return values[Below(values.size())];
  }

 private:
  uint64_t state_;
};

}  // namespace basin::simulation

#endif  // BASIN_TESTS_SIMULATION_RANDOM_H_
