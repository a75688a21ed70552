// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "aggregator/ctl/watch.h"

#include <unistd.h>

#include "absl/time/clock.h"
#include "aggregator/ctl/output.h"

namespace basin::aggregator {
namespace {

// Moves to the first line, and clears the screen.
constexpr char kClear[] = "\x1b[H\x1b[2J";

}  // namespace

bool OnTerminal() { return isatty(STDOUT_FILENO) == 1; }

absl::Status Repeat(const Arguments& arguments, const std::function<absl::Status()>& show) {
  const bool clear = arguments.format == Format::kTable && OnTerminal();
  for (uint64_t shown = 1;; ++shown) {
    if (clear) Print(kClear);
    absl::Status done = show();
    if (!done.ok() || shown == arguments.times) return done;
    absl::SleepFor(arguments.interval);
  }
}

}  // namespace basin::aggregator
