// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The criteria of a benchmark on a device: shares of what the device itself reaches in the same
// run. Each is printed, as it is judged or with the others.
//
// Thread contract: one thread.

#ifndef BASIN_TESTS_KERNELS_CUDA_BENCH_VERDICTS_H_
#define BASIN_TESTS_KERNELS_CUDA_BENCH_VERDICTS_H_

#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

namespace basin::kernels::cuda {

class Verdicts {
 public:
  // `least`: the share that is enough.
  explicit Verdicts(double least) : least_(least) {}

  void Judge(const std::string& what, double share) { judged_.push_back({what, share}); }

  // Prints all of them, and returns the exit status: 0, or 1 if a share was too small.
  int Report() const {
    int status = judged_.empty() ? 1 : 0;
    for (const auto& [what, share] : judged_) {
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
