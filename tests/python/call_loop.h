// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The loop of a worker of test_calls_after_loss.py, for each interface of the client: repeats calls
// and prints a line per call, until one of the workers has read a line.

#ifndef BASIN_TESTS_PYTHON_CALL_LOOP_H_
#define BASIN_TESTS_PYTHON_CALL_LOOP_H_

#include <array>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <thread>

namespace basin::testing {

inline void PrintLine(const std::string& line) {
  std::printf("%s\n", line.c_str());
  std::fflush(stdout);
}

// `loop`: a letter is a sum by that name, `|` is a barrier. `join()` makes this worker a member;
// `sum(letter, value)` returns the sum of all values; `meet()` returns the number of members. Does
// not wait for its thread, which may still listen: the process must end without it.
template <typename Join, typename Sum, typename Meet>
void RepeatCalls(const std::string& loop, Join join, Sum sum, Meet meet) {
  const auto stop = std::make_shared<std::atomic<bool>>(false);
  std::thread([stop] {
    while (std::getchar() != '\n') {
      if (std::feof(stdin) != 0) return;
    }
    *stop = true;
  }).detach();
  join();
  PrintLine("member");
  for (;;) {
    for (const char letter : loop) {
      if (letter == '|') {
        PrintLine("call " + std::to_string(meet()));
        continue;
      }
      const bool ends = *stop && letter == loop[0];
      const std::array<float, 2> all = sum(letter, std::array<float, 2>{1, ends ? 1.F : 0.F});
      PrintLine("call " + std::to_string(static_cast<uint32_t>(all[0])));
      if (all[1] != 0) return;
    }
  }
}

}  // namespace basin::testing

#endif  // BASIN_TESTS_PYTHON_CALL_LOOP_H_
