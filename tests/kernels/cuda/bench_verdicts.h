// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// What the benchmarks on a device share: the median of several runs, and their criteria, which are
// shares of what the device itself reaches in the same run.
//
// Thread contract: one thread.

#ifndef BASIN_TESTS_KERNELS_CUDA_BENCH_VERDICTS_H_
#define BASIN_TESTS_KERNELS_CUDA_BENCH_VERDICTS_H_

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

namespace basin::kernels::cuda {

inline double Median(std::vector<double> times) {
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

// After a run that does not count.
template <typename Function>
double MedianSeconds(int runs, Function run) {
  run();
  std::vector<double> times;
  for (int i = 0; i < runs; ++i) {
    const auto began = std::chrono::steady_clock::now();
    run();
    times.push_back(
        std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count());
  }
  return Median(std::move(times));
}

class Verdicts {
 public:
  // `least`: the share that is enough; 0: the shares are only shown.
  explicit Verdicts(double least) : least_(least) {}

  void Judge(const std::string& what, double share) { judged_.push_back({what, share}); }

  // Prints all of them, and returns the exit status: 0, or 1 if a share was too small.
  int Report() const {
    int status = judged_.empty() ? 1 : 0;
    for (const auto& [what, share] : judged_) {
      if (least_ <= 0) {
        std::printf("%s: %.1f%%\n", what.c_str(), 100 * share);
        continue;
      }
      const bool passed = share >= least_;
      if (!passed) status = 1;
      std::printf("%s %s: %.1f%%, and %.0f%% is enough\n", passed ? "PASS" : "FAIL", what.c_str(),
                  100 * share, 100 * least_);
    }
    return status;
  }

 private:
  struct Judged {
    std::string what;
    double share;
  };
  const double least_;
  std::vector<Judged> judged_;
};

// The options of such a benchmark.
struct BenchOptions {
  int device = 0;
  bool emulated = false;
  double least = 0;

  // Ends the program after a mistake.
  static BenchOptions Parse(int argc, char** argv, double least) {
    BenchOptions options;
    options.least = least;
    for (int i = 1; i < argc; ++i) {
      const std::string argument = argv[i];
      if (argument == "--emulated") {
        options.emulated = true;
      } else if (argument.rfind("--device=", 0) == 0) {
        options.device = std::atoi(argument.c_str() + 9);
      } else if (argument.rfind("--least=", 0) == 0) {
        options.least = std::atof(argument.c_str() + 8);
      } else {
        std::fprintf(stderr, "usage: %s [--device=INDEX] [--emulated] [--least=SHARE]\n", argv[0]);
        std::exit(2);
      }
    }
    return options;
  }
};

}  // namespace basin::kernels::cuda

#endif  // BASIN_TESTS_KERNELS_CUDA_BENCH_VERDICTS_H_
