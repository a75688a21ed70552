// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "aggregator/ctl/merge_trace.h"

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"

namespace basin::aggregator {
namespace {

// Tracks of a process; more than one has.
constexpr uint64_t kTracks = 100000;

// A number of an event; 0 if there is none.
uint64_t NumberIn(const nlohmann::ordered_json& event, const char* key) {
  const auto found = event.find(key);
  return found != event.end() && found->is_number_unsigned() ? found->get<uint64_t>() : 0;
}

}  // namespace

absl::Status TraceMerger::Add(const std::string& name,
                              const std::function<bool(std::string& line)>& next_line) {
  renumbered_.clear();
  std::string line;
  uint64_t number = 0;
  uint64_t broken = 0;  // A line that may only be the last one.
  while (next_line(line)) {
    ++number;
    const auto wrong = [&](uint64_t at) {
      return absl::InvalidArgumentError(
          absl::StrCat(name, ":", at,
                       ": this is no event of a timeline; name files that BASIN_TIMELINE or "
                       "`basinctl timeline` wrote"));
    };
    if (broken != 0) return wrong(broken);
    absl::StripAsciiWhitespace(&line);
    if (line.empty() || line == "[" || line == "]") continue;
    if (line.back() == ',') line.pop_back();
    auto event = nlohmann::ordered_json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (!event.is_object()) {
      if (number == 1) return wrong(number);
      broken = number;
      continue;
    }
    uint64_t& process = renumbered_[NumberIn(event, "pid")];
    if (process == 0) process = ++processes_;
    event["pid"] = process;
    if (event.contains("tid")) event["tid"] = process * kTracks + NumberIn(event, "tid") % kTracks;
    const std::string text =
        event.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
    if (absl::Status written = write_(absl::StrCat(any_ ? ",\n" : "[\n", text)); !written.ok()) {
      return written;
    }
    any_ = true;
  }
  return absl::OkStatus();
}

}  // namespace basin::aggregator
