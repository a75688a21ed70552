// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// A worker on the C++ interface that acts like examples/plain_python/worker.py, and prints the same
// lines. Options come from the environment.
//
// usage: cpp_worker VALUE ROUNDS ELEMENTS

#include <basin/client.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

namespace {

constexpr std::chrono::seconds kPatience(60);

void Check(const basin::Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "cpp_worker: %s\n", status.message().c_str());
  std::exit(1);
}

template <typename T>
T Valid(basin::Result<T> result) {
  Check(result.status());
  return std::move(*result);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) {
    std::fprintf(stderr, "usage: cpp_worker VALUE ROUNDS ELEMENTS\n");
    return 2;
  }
  const float value = std::strtof(argv[1], nullptr);
  const int rounds = std::atoi(argv[2]);
  const size_t elements = std::strtoull(argv[3], nullptr, 10);

  basin::Worker worker = Valid(basin::Worker::Connect(basin::Options()));
  basin::Lane lane = Valid(worker.Register(
      "model", {{"weight", basin::DType::kF32, {elements}}, {"bias", basin::DType::kF32, {3}}}));
  Check(worker.Ready());
  Check(worker.AwaitMember(kPatience));
  for (int i = 0; i < rounds; ++i) {
    std::vector<float> weight(elements, value);
    std::vector<float> bias(3, value);
    Check(lane.Begin(basin::RoundSpec(basin::Op::kAverage)));
    Check(lane.Push(0, weight.data(), weight.size() * sizeof(float)));
    Check(lane.Push(1, bias.data(), bias.size() * sizeof(float)));
    Check(lane.Commit());
    const basin::RoundResult result = Valid(lane.Wait(kPatience));
    Check(result.Copy(0, weight.data(), weight.size() * sizeof(float)));
    const basin::RoundInfo info = result.info();
    std::string contributors;
    for (const basin::Contributor& contributor : info.contributors) {
      contributors += (contributors.empty() ? "" : ", ") + contributor.worker;
    }
    const bool even = std::count(weight.begin(), weight.end(), weight[0]) ==
                      static_cast<std::ptrdiff_t>(elements);
    std::printf("round %llu: COMMITTED over %s; divisor %llu; weight = %s\n",
                static_cast<unsigned long long>(info.round), contributors.c_str(),
                static_cast<unsigned long long>(info.divisor),
                even ? std::to_string(weight[0]).c_str() : "uneven");
    std::fflush(stdout);
  }
  Check(worker.Leave());
  return 0;
}
