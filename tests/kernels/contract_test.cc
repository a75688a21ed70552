// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The contract suite on the reference and on CPU targets that this machine runs: the best one, or
// every one. The golden vectors are for every one.
// Usage: kernels_contract_test --golden=<folder of the golden vectors> [--every-target]

#include <cstdio>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/cpu/cpu_reducer.h"
#include "kernels/reference.h"
#include "tests/kernels/contract.h"
#include "tests/kernels/golden.h"

namespace basin::kernels {
namespace {

// Set by main.
std::string golden_folder;
bool every_target = false;

// Every backend under test.
class Backends {
 public:
  explicit Backends(bool with_every_target) {
    owned_.push_back(MakeReferenceReducer());
    for (const std::string& target : CpuTargets()) {  // The best one is first.
      owned_.push_back(MakeCpuReducer(target));
      if (!with_every_target) break;
    }
    for (const auto& reducer : owned_) all_.push_back(reducer.get());
  }
  const std::vector<const Reducer*>& all() const { return all_; }

 private:
  std::vector<std::unique_ptr<Reducer>> owned_;
  std::vector<const Reducer*> all_;
};

TEST(ContractTest, EveryTargetOfThisMachineIsListedBestFirst) {
  const std::vector<std::string> targets = CpuTargets();
  ASSERT_FALSE(targets.empty());
  EXPECT_EQ(MakeCpuReducer()->name(), "cpu/" + targets.front());
  EXPECT_EQ(MakeCpuReducer("no such target"), nullptr);
  std::printf("targets:");
  for (const std::string& target : targets) std::printf(" %s", target.c_str());
  std::printf("\n");
  if (!every_target && targets.size() > 1) {
    std::printf("left to --every-target: all but the first\n");
  }
}

class ContractByDTypeTest : public testing::TestWithParam<DType> {};

TEST_P(ContractByDTypeTest, BitEqualToTheReference) {
  const Backends backends(every_target);
  const contract::Report report = contract::CheckAgainstReference(backends.all(), GetParam());
  EXPECT_TRUE(report.ok()) << report.Summary();
}

INSTANTIATE_TEST_SUITE_P(DTypes, ContractByDTypeTest,
                         testing::Values(DType::kF64, DType::kF32, DType::kF16, DType::kBF16,
                                         DType::kI64, DType::kI32, DType::kU8),
                         [](const auto& info) { return std::string(DTypeName(info.param)); });

TEST(ContractTest, Criterion_5_7_GoldenVectorsOnEveryBackend) {
  const Backends backends(true);
  for (const Reducer* reducer : backends.all()) {
    for (const std::string& file : contract::GoldenFiles()) {
      const contract::Report report = contract::CheckGolden(*reducer, golden_folder + "/" + file);
      EXPECT_TRUE(report.ok()) << file << ": " << report.Summary();
    }
  }
}

// A suite that cannot fail shows nothing: it must catch a backend that is wrong in the least bit.
class WrongReducer final : public Reducer {
 public:
  enum class Error { kLastBit, kNorm, kFact, kGuard };
  explicit WrongReducer(Error error) : error_(error) {}

  std::string_view name() const override { return "wrong"; }
  std::optional<Failure> Reduce(const ReductionPlan& plan, const Input* inputs, const Span& span,
                                const Output& output, Facts* facts) const override {
    auto failure = right_->Reduce(plan, inputs, span, output, facts);
    if (span.count == 0) return failure;
    auto* bytes = static_cast<unsigned char*>(output.data);
    const size_t size = span.count * ElementSize(plan.spec().result_dtype);
    if (error_ == Error::kLastBit) bytes[size / 2] ^= 1;
    if (error_ == Error::kNorm && output.norm_leaves != nullptr) output.norm_leaves[0] += 1e-300;
    if (error_ == Error::kFact) ++facts->overflows;
    if (error_ == Error::kGuard) bytes[size] ^= 1;
    return failure;
  }

 private:
  const Error error_;
  const std::unique_ptr<Reducer> right_ = MakeReferenceReducer();
};

TEST(ContractTest, TheSuiteCatchesAWrongBackend) {
  contract::Case c;
  c.spec.op = ReduceOp::kSum;
  c.spec.tensor_dtype = c.spec.result_dtype = DType::kF64;
  c.spec.contributions.resize(2);
  for (Contribution& contribution : c.spec.contributions) contribution.wire_dtype = DType::kF64;
  c.count = 17;
  c.values = contract::Values::kSubnormals;
  for (const auto error : {WrongReducer::Error::kLastBit, WrongReducer::Error::kNorm,
                           WrongReducer::Error::kFact, WrongReducer::Error::kGuard}) {
    contract::Report report;
    const WrongReducer wrong(error);
    contract::CheckCase({&wrong}, c, &report);
    EXPECT_FALSE(report.ok()) << static_cast<int>(error);
    EXPECT_EQ(report.failures(), report.comparisons());
  }
}

}  // namespace
}  // namespace basin::kernels

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  constexpr std::string_view kGolden = "--golden=";
  for (int i = 1; i < argc; ++i) {
    const std::string_view arg = argv[i];
    if (arg.substr(0, kGolden.size()) == kGolden) {
      basin::kernels::golden_folder = arg.substr(kGolden.size());
    }
    basin::kernels::every_target |= arg == "--every-target";
  }
  return RUN_ALL_TESTS();
}
