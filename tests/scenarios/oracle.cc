// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "tests/scenarios/oracle.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace basin::scenarios {
namespace {

bool Divides(ReduceOp op) { return op == ReduceOp::kAverage || op == ReduceOp::kWeightedAverage; }

bool Adds(ReduceOp op) { return op == ReduceOp::kSum || Divides(op); }

}  // namespace

double GradientOf(uint32_t worker) { return std::ldexp(1.0, static_cast<int>(8 * worker)); }

std::string WhoIsIn(double sum, const std::vector<std::string>& workers) {
  const double whole = std::round(sum);
  const bool fits = whole >= 0 && whole < GradientOf(kMaxWorkers) &&
                    std::abs(whole - sum) <= 1e-6 * std::max(1.0, sum);
  if (!fits) return absl::StrCat("(", sum, ")");
  std::vector<std::string> counted;
  uint64_t rest = static_cast<uint64_t>(whole);
  for (size_t k = 0; rest > 0; ++k, rest >>= 8) {
    const uint64_t weight = rest & 255;
    if (weight == 0) continue;
    const std::string name = k < workers.size() ? workers[k] : absl::StrCat("nobody#", k);
    counted.push_back(weight == 1 ? name : absl::StrCat(weight, "*", name));
  }
  std::sort(counted.begin(), counted.end());
  return absl::StrCat("{", absl::StrJoin(counted, ","), "}");
}

double ReduceValues(const RoundSpec& spec, const std::vector<double>& values,
                    const std::vector<uint64_t>& weights, uint64_t divisor) {
  double result = 0;
  bool first = true;
  for (size_t i = 0; i < values.size(); ++i) {
    const bool weighted =
        spec.op == ReduceOp::kWeightedAverage && spec.kind == ContributionKind::kMean;
    if (spec.op == ReduceOp::kWeightedAverage && weights[i] == 0) continue;
    const double factor =
        (weighted ? static_cast<double>(weights[i]) : 1.0) * spec.prescale / spec.predivide;
    const double value = values[i] * factor;
    if (first) {
      result = value;
    } else if (spec.op == ReduceOp::kMin) {
      result = std::min(result, value);
    } else if (spec.op == ReduceOp::kMax) {
      result = std::max(result, value);
    } else if (spec.op == ReduceOp::kProduct) {
      result *= value;
    } else {
      result += value;
    }
    first = false;
  }
  if (Divides(spec.op)) {
    return result / (static_cast<double>(divisor) / (spec.predivide * spec.postscale));
  }
  return result * spec.predivide * spec.postscale;
}

Digest ChunkDigest(std::string_view tensor, uint32_t chunk, double value) {
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(bits));
  uint64_t hash = MixChain(chunk, bits);
  for (const char c : tensor) hash = MixChain(hash, static_cast<uint8_t>(c));
  return hash;
}

std::string DescribeResult(const RoundSpec& spec, uint64_t divisor, double value,
                           const std::vector<std::string>& workers) {
  if (!Adds(spec.op)) return absl::StrCat(ReduceOpName(spec.op), " is ", WhoIsIn(value, workers));
  const double scale = spec.prescale * spec.postscale;
  const double sum = value * static_cast<double>(Divides(spec.op) ? divisor : 1) / scale;
  std::string text = absl::StrCat("sum of ", WhoIsIn(sum, workers));
  if (Divides(spec.op)) absl::StrAppend(&text, " divisor ", divisor);
  if (scale != 1) absl::StrAppend(&text, " times ", scale);
  return text;
}

}  // namespace basin::scenarios
