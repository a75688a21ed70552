// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "tests/kernels/golden_case.h"

#include <cstring>
#include <fstream>
#include <sstream>

namespace basin::kernels::contract {
namespace {

uint64_t FromHex(const std::string& text) { return std::stoull(text, nullptr, 16); }

std::vector<uint64_t> HexValues(std::istream& line) {
  std::vector<uint64_t> values;
  for (std::string word; line >> word;) values.push_back(FromHex(word));
  return values;
}

GoldenWorker ParseWorker(std::istream& line) {
  GoldenWorker worker;
  std::string word, form;
  line >> worker.id >> word >> worker.contribution.weight >> form;
  worker.contribution.skipped = form == "skip";
  if (!worker.contribution.skipped) {
    std::string dtype;
    line >> dtype >> worker.contribution.wire_scale_exponent;
    worker.contribution.wire_dtype = DTypeFromName(dtype);
    worker.values = HexValues(line);
  }
  return worker;
}

}  // namespace

const std::string& GoldenCase::Line(const std::string& word) const {
  static const std::string kAbsent = "(no line)";
  const auto line = lines.find(word);
  return line == lines.end() ? kAbsent : line->second;
}

std::vector<uint64_t> GoldenCase::Values() const {
  std::istringstream line(Line("values"));
  return HexValues(line);
}

std::vector<GoldenCase> ReadGoldenCases(const std::string& path) {
  std::ifstream file(path);
  std::vector<GoldenCase> cases;
  for (std::string text; std::getline(file, text);) {
    if (text.empty() || text[0] == '#') continue;
    std::istringstream line(text);
    std::string word;
    line >> word;
    std::string rest;
    if (word == "worker") {
      cases.back().workers.push_back(ParseWorker(line));
      continue;
    }
    std::getline(line >> std::ws, rest);
    if (word == "case") {
      cases.push_back(GoldenCase{rest, {}, {}});
    } else if (!cases.empty()) {
      cases.back().lines[word] = rest;
    }
  }
  return cases;
}

double DoubleFromHex(const std::string& text) {
  const uint64_t bits = FromHex(text);
  double value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

DType DTypeFromName(const std::string& name) {
  for (const DType dtype : {DType::kF64, DType::kF32, DType::kF16, DType::kBF16, DType::kI64,
                            DType::kI32, DType::kU8, DType::kF8E4M3FN, DType::kF8E5M2}) {
    if (name == DTypeName(dtype)) return dtype;
  }
  return DType::kUnspecified;
}

ReduceOp OpFromName(const std::string& name) {
  for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kAverage, ReduceOp::kWeightedAverage,
                            ReduceOp::kMin, ReduceOp::kMax, ReduceOp::kProduct}) {
    if (name == ReduceOpName(op)) return op;
  }
  return ReduceOp::kUnspecified;
}

ElementBytes Repeat(const std::vector<uint64_t>& values, DType dtype, size_t count, size_t first) {
  const size_t size = ElementSize(dtype);
  ElementBytes bytes(count * size);
  for (size_t i = 0; i < count; ++i) {
    std::memcpy(&bytes[i * size], &values[(first + i) % values.size()], size);
  }
  return bytes;
}

}  // namespace basin::kernels::contract
