// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "client/core/shuffle.h"

namespace basin::client {
namespace {

constexpr int kRounds = 8;

// The finaliser of SplitMix64.
uint64_t Mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

// How many bits each half of a number has, so that both halves hold every position.
int HalfBits(uint64_t samples) {
  int bits = 1;
  while (bits < 32 && (samples - 1) >> (2 * bits) != 0) ++bits;
  return bits;
}

}  // namespace

uint64_t Shuffled(const SampleEpoch& epoch, uint64_t position) {
  const int bits = HalfBits(epoch.samples);
  const uint64_t mask = (uint64_t{1} << bits) - 1;
  const uint64_t key = Mix(epoch.order + Mix(epoch.number));
  // A Feistel network permutes the numbers of 2 * bits bits. What it maps beyond the samples is
  // mapped again until it is a sample; the result is a permutation of the samples.
  do {
    uint64_t left = position >> bits;
    uint64_t right = position & mask;
    for (int round = 1; round <= kRounds; ++round) {
      const uint64_t mixed = Mix(key + static_cast<uint64_t>(round) * 0x9e3779b97f4a7c15 + right);
      const uint64_t next = left ^ (mixed & mask);
      left = right;
      right = next;
    }
    position = (left << bits) | right;
  } while (position >= epoch.samples);
  return position;
}

}  // namespace basin::client
