// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "tests/kernels/golden.h"

#include <cstdio>
#include <cstring>
#include <map>
#include <sstream>
#include <utility>
#include <vector>

#include "tests/kernels/golden_case.h"

namespace basin::kernels::contract {
namespace {

std::string DescribeFirst(const ElementBytes& expected, const ElementBytes& actual, size_t size) {
  for (size_t i = 0; i < expected.size(); i += size) {
    if (std::memcmp(&expected[i], &actual[i], size) == 0) continue;
    uint64_t want = 0, got = 0;
    std::memcpy(&want, &expected[i], size);
    std::memcpy(&got, &actual[i], size);
    std::ostringstream text;
    text << std::hex << "element " << std::dec << i / size << " is " << std::hex << got << ", not "
         << want;
    return text.str();
  }
  return {};
}

// The facts lines as the file would have them.
std::map<std::string, std::string> FactLines(const GoldenCase& golden, const Facts& facts) {
  std::map<std::string, std::string> lines;
  lines["nonfinite"] = "-";
  if (facts.first_non_finite_input) {
    const NonFiniteInput& input = *facts.first_non_finite_input;
    lines["nonfinite"] =
        golden.workers[input.contribution].id + " " + std::to_string(input.element);
  }
  lines["overflow"] = std::to_string(facts.overflows);
  lines["wrapped"] = std::to_string(facts.integer_wraps);
  return lines;
}

class GoldenRun {
 public:
  GoldenRun(const Reducer& reducer, const GoldenCase& golden, Report* report)
      : reducer_(reducer), golden_(golden), report_(report) {}

  void Run() {
    const ReductionSpec spec = MakeSpec();
    const Result<uint64_t> divisor = Divisor(spec.op, policy_, spec.contributions);
    const std::string outcome = Line("outcome");
    ReductionSpec with_divisor = spec;
    if (divisor.ok()) with_divisor.divisor = divisor.value();
    const Result<ReductionPlan> plan = ReductionPlan::Make(std::move(with_divisor));
    if (outcome == "REJECTED") {
      Expect("outcome", "REJECTED", plan.ok() && divisor.ok() ? "accepted" : "REJECTED");
      return;
    }
    if (!divisor.ok() || !plan.ok()) {
      const Failure& failure = divisor.ok() ? plan.failure() : divisor.failure();
      return Expect("plan", "accepted", failure.message);
    }
    Expect("divisor", Line("divisor"), std::to_string(divisor.value()));
    static constexpr const char* kOutcomes[] = {"VALUES", "NONE", "EMPTY"};
    Expect("outcome", outcome, kOutcomes[static_cast<int>(plan.value().outcome())]);
    if (plan.value().outcome() == PlanOutcome::kReduce) Reduce(plan.value());
  }

 private:
  const std::string& Line(const std::string& word) const { return golden_.Line(word); }

  void Expect(const std::string& what, const std::string& expected, const std::string& actual) {
    report_->Add(expected == actual ? std::string()
                                    : std::string(reducer_.name()) + ", " + golden_.name + ": " +
                                          what + " is '" + actual + "', not '" + expected + "'");
  }

  ReductionSpec MakeSpec() {
    ReductionSpec spec;
    spec.op = OpFromName(Line("op"));
    spec.tensor_dtype = DTypeFromName(Line("tensor"));
    spec.result_dtype = DTypeFromName(Line("result"));
    spec.prescale = DoubleFromHex(Line("prescale"));
    spec.postscale = DoubleFromHex(Line("postscale"));
    spec.predivide = DoubleFromHex(Line("predivide"));
    policy_ = Line("denominator") == "ALL" ? DivisorPolicy::kAll : DivisorPolicy::kPresent;
    for (const GoldenWorker& worker : golden_.workers) {
      spec.contributions.push_back(worker.contribution);
      spec.contributions.back().kind =
          Line("kind") == "SUM" ? ContributionKind::kSum : ContributionKind::kMean;
    }
    return spec;
  }

  void Reduce(const ReductionPlan& plan) {
    const size_t count = std::stoull(Line("elements"));
    const DType result_dtype = plan.spec().result_dtype;
    const size_t size = ElementSize(result_dtype);
    std::vector<ElementBytes> bytes;
    for (const GoldenWorker& worker : golden_.workers) {
      bytes.push_back(worker.contribution.skipped
                          ? ElementBytes{}
                          : Repeat(worker.values, worker.contribution.wire_dtype, count));
    }
    std::vector<Slice> slices;
    for (const ElementBytes& contribution : bytes) {
      slices.push_back(Slice{contribution.data(), contribution.size()});
    }
    std::vector<Input> inputs;
    for (const Slice& slice : slices) inputs.push_back(Input{&slice, 1});

    ElementBytes result(count * size);
    std::vector<double> leaves(NormLeaves(count));
    Facts facts;
    const auto failure = reducer_.Reduce(plan, inputs.data(), Span{0, count},
                                         Output{result.data(), leaves.data()}, &facts);
    if (failure) return Expect("reduction", "done", failure->message);

    const ElementBytes expected = Repeat(golden_.Values(), result_dtype, count);
    report_->Add(Prefixed(DescribeFirst(expected, result, size)));
    ExpectNorm(result_dtype, leaves);
    for (const auto& [word, text] : FactLines(golden_, facts)) Expect(word, Line(word), text);
  }

  std::string Prefixed(const std::string& difference) const {
    if (difference.empty()) return difference;
    return std::string(reducer_.name()) + ", " + golden_.name + ": " + difference;
  }

  void ExpectNorm(DType result_dtype, const std::vector<double>& leaves) {
    std::string actual = "-";
    if (IsFloatingPoint(result_dtype)) {
      const double norm = SquaredNorm(leaves.data(), leaves.size());
      uint64_t bits;
      std::memcpy(&bits, &norm, sizeof(bits));
      char digits[17];
      std::snprintf(digits, sizeof(digits), "%016llx", static_cast<unsigned long long>(bits));
      actual = digits;
    }
    Expect("sum_of_squares", Line("sum_of_squares"), actual);
  }

  const Reducer& reducer_;
  const GoldenCase& golden_;
  Report* report_;
  DivisorPolicy policy_ = DivisorPolicy::kAll;
};

}  // namespace

Report CheckGolden(const Reducer& reducer, const std::string& path) {
  Report report;
  const std::vector<GoldenCase> cases = ReadGoldenCases(path);
  if (cases.empty()) report.Add(path + " cannot be read or holds no case");
  for (const GoldenCase& golden : cases) GoldenRun(reducer, golden, &report).Run();
  return report;
}

std::vector<std::string> GoldenFiles() {
  return {"reduce-f64.txt",  "reduce-f32.txt",   "reduce-f16.txt",
          "reduce-bf16.txt", "reduce-i64.txt",   "reduce-i32.txt",
          "reduce-u8.txt",   "reduce-mixed.txt", "rejected.txt"};
}

}  // namespace basin::kernels::contract
