// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Runs reductions that it reads on standard input and writes the bits of the results, so that a
// script can compare them with other implementations. Text, one reduction per line:
//
//   <backend> <op> <tensor dtype> <result dtype> <prescale> <postscale> <predivide> <divisor>
//   <elements> <contributions>, then per contribution: <wire dtype> <wire exponent> <weight>
//   <bytes in hexadecimal>
//
// separated by blanks; scales are decimal or hexadecimal floating-point numbers; dtypes and ops are
// named as everywhere. The backend is "reference" or one of CpuTargets(). The answer is the bytes
// of the result in hexadecimal, or "error" and a sentence.

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "kernels/cpu/cpu_reducer.h"
#include "kernels/reference.h"

namespace basin::kernels {
namespace {

using Bytes = std::vector<unsigned char>;

DType DTypeFromName(const std::string& name) {
  for (int i = 1; i <= static_cast<int>(DType::kF8E5M2); ++i) {
    if (name == DTypeName(static_cast<DType>(i))) return static_cast<DType>(i);
  }
  return DType::kUnspecified;
}

ReduceOp OpFromName(const std::string& name) {
  for (int i = 1; i <= static_cast<int>(ReduceOp::kProduct); ++i) {
    if (name == ReduceOpName(static_cast<ReduceOp>(i))) return static_cast<ReduceOp>(i);
  }
  return ReduceOp::kUnspecified;
}

Bytes FromHex(const std::string& text) {
  Bytes bytes;
  for (size_t i = 0; i + 1 < text.size(); i += 2) {
    bytes.push_back(static_cast<unsigned char>(std::stoi(text.substr(i, 2), nullptr, 16)));
  }
  return bytes;
}

std::string ToHex(const Bytes& bytes) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (const unsigned char byte : bytes) {
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  return text;
}

double ReadScale(std::istream& line) {
  std::string text;
  line >> text;
  return std::strtod(text.c_str(), nullptr);
}

std::string Answer(std::istream& line) {
  std::string backend, op, tensor, result_dtype;
  line >> backend >> op >> tensor >> result_dtype;
  ReductionSpec spec;
  spec.op = OpFromName(op);
  spec.tensor_dtype = DTypeFromName(tensor);
  spec.result_dtype = DTypeFromName(result_dtype);
  spec.prescale = ReadScale(line);
  spec.postscale = ReadScale(line);
  spec.predivide = ReadScale(line);
  size_t elements = 0, contributions = 0;
  line >> spec.divisor >> elements >> contributions;
  std::vector<Bytes> bytes;
  for (size_t i = 0; i < contributions; ++i) {
    std::string wire, hex;
    Contribution contribution;
    line >> wire >> contribution.wire_scale_exponent >> contribution.weight >> hex;
    contribution.wire_dtype = DTypeFromName(wire);
    bytes.push_back(FromHex(hex));
    if (bytes.back().size() != elements * ElementSize(contribution.wire_dtype)) {
      return "error contribution " + std::to_string(i) + " has another length";
    }
    spec.contributions.push_back(contribution);
  }
  const std::unique_ptr<Reducer> reducer =
      backend == "reference" ? MakeReferenceReducer() : MakeCpuReducer(backend);
  if (reducer == nullptr) return "error no backend " + backend;
  const size_t result_size = ElementSize(spec.result_dtype);
  const Result<ReductionPlan> plan = ReductionPlan::Make(std::move(spec));
  if (!plan.ok()) return "error " + plan.failure().message;
  if (plan.value().outcome() != PlanOutcome::kReduce) return "error nothing to reduce";

  std::vector<Slice> slices;
  for (const Bytes& contribution : bytes) {
    slices.push_back(Slice{contribution.data(), contribution.size()});
  }
  std::vector<Input> inputs;
  for (const Slice& slice : slices) inputs.push_back(Input{&slice, 1});
  Bytes result(elements * result_size);
  Facts facts;
  const auto failure = reducer->Reduce(plan.value(), inputs.data(), Span{0, elements},
                                       Output{result.data()}, &facts);
  return failure ? "error " + failure->message : ToHex(result);
}

}  // namespace
}  // namespace basin::kernels

int main(int argc, char** argv) {
  if (argc == 2 && std::string(argv[1]) == "--targets") {
    for (const std::string& target : basin::kernels::CpuTargets()) std::cout << target << "\n";
    return 0;
  }
  for (std::string text; std::getline(std::cin, text);) {
    std::istringstream line(text);
    std::cout << basin::kernels::Answer(line) << "\n";
  }
  return 0;
}
