// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The measurements of each process of an all-reduce, and the line of JSON for allreduce.py.

#ifndef BASIN_TESTS_BENCH_ALLREDUCE_STOPWATCH_H_
#define BASIN_TESTS_BENCH_ALLREDUCE_STOPWATCH_H_

#include <sys/resource.h>

#include <chrono>
#include <cstdio>
#include <vector>

namespace basin::bench {

constexpr int kWarmUp = 1;  // Rounds that are not counted.

// The total of this process so far.
inline double CpuSeconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) / 1e6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

// The time and the CPU time of each counted round. The work of a trainer between two rounds is in
// neither.
class Stopwatch {
 public:
  void RoundBegins() {
    begin_ = std::chrono::steady_clock::now();
    cpu_begin_ = CpuSeconds();
  }
  void RoundEnded() {
    if (++ended_ <= kWarmUp) return;
    const auto now = std::chrono::steady_clock::now();
    seconds_.push_back(std::chrono::duration<double>(now - begin_).count());
    cpu_ += CpuSeconds() - cpu_begin_;
  }
  void Print() const {
    std::printf("{\"cpu_seconds\": %.6f, \"seconds\": [", cpu_);
    for (size_t i = 0; i < seconds_.size(); ++i) {
      std::printf("%s%.6f", i == 0 ? "" : ", ", seconds_[i]);
    }
    std::printf("]}\n");
    std::fflush(stdout);
  }

 private:
  int ended_ = 0;
  double cpu_ = 0;
  double cpu_begin_ = 0;
  std::chrono::steady_clock::time_point begin_;
  std::vector<double> seconds_;
};

}  // namespace basin::bench

#endif  // BASIN_TESTS_BENCH_ALLREDUCE_STOPWATCH_H_
