// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "kernels/facts.h"

#include <cmath>
#include <cstring>
#include <tuple>

#include "kernels/float16.h"
#include "kernels/float_environment.h"

namespace basin::kernels {
namespace {

double BlockOf(const double* leaves, size_t count, size_t block) {
  const size_t leaf = 2 * block;
  return leaf + 1 < count ? leaves[leaf] + leaves[leaf + 1] : leaves[leaf];
}

double Canonical(double value) {
  if (std::isnan(value)) std::memcpy(&value, &kCanonicalNanF64, sizeof(value));
  return value;
}

}  // namespace

void Facts::Merge(const Facts& other) {
  const auto place = [](const NonFiniteInput& input) {
    return std::tie(input.contribution, input.element);
  };
  if (other.first_non_finite_input &&
      (!first_non_finite_input ||
       place(*other.first_non_finite_input) < place(*first_non_finite_input))) {
    first_non_finite_input = other.first_non_finite_input;
  }
  overflows += other.overflows;
  integer_wraps += other.integer_wraps;
}

bool operator==(const Facts& a, const Facts& b) {
  const auto same_input = [&a, &b] {
    if (!a.first_non_finite_input || !b.first_non_finite_input) {
      return a.first_non_finite_input.has_value() == b.first_non_finite_input.has_value();
    }
    return a.first_non_finite_input->element == b.first_non_finite_input->element &&
           a.first_non_finite_input->contribution == b.first_non_finite_input->contribution;
  };
  return same_input() && a.overflows == b.overflows && a.integer_wraps == b.integer_wraps;
}

double NormBlock(const double* leaves, size_t count, size_t block) {
  const ScopedFloatEnvironment environment;
  return Canonical(BlockOf(leaves, count, block));
}

double SquaredNorm(const double* leaves, size_t count) {
  const ScopedFloatEnvironment environment;
  double norm = 0.0;
  for (size_t block = 0; 2 * block < count; ++block) norm = norm + BlockOf(leaves, count, block);
  return Canonical(norm);
}

}  // namespace basin::kernels
