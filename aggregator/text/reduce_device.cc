// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "aggregator/text/reduce_device.h"

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"

namespace basin::aggregator {

absl::StatusOr<ReduceDeviceOption> ParseReduceDevice(std::string_view text) {
  using Kind = ReduceDeviceOption::Kind;
  if (text == "cpu") return ReduceDeviceOption{Kind::kCpu, std::nullopt};
  if (text == "auto") return ReduceDeviceOption{Kind::kAuto, std::nullopt};
  if (text == "cuda") return ReduceDeviceOption{Kind::kCuda, std::nullopt};
  absl::string_view rest(text.data(), text.size());
  int index = 0;
  const bool digits = absl::ConsumePrefix(&rest, "cuda:") && !rest.empty() && rest.size() <= 4 &&
                      rest.find_first_not_of("0123456789") == rest.npos &&
                      absl::SimpleAtoi(rest, &index);
  if (digits) return ReduceDeviceOption{Kind::kCuda, index};
  return absl::InvalidArgumentError(
      "it must be cpu, cuda (all GPUs), cuda:N (one of them, from cuda:0 on), or auto");
}

}  // namespace basin::aggregator
