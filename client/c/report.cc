// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "client/c/report.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "protocol/plural.h"

namespace basin::c {

void Report::OnPlace(const client::Place& place) {
  const auto say = [this](basin_log_level level, const std::string& text) {
    log_(level, absl::StrCat(who_, ": ", text));
  };
  const bool in_trouble = place.trouble.code != ErrorCode::kOk;
  if (in_trouble && place.trouble != last_.trouble) {
    say(BASIN_LOG_WARNING, place.trouble.text);
  } else if (!in_trouble && last_.trouble.code != ErrorCode::kOk) {
    say(BASIN_LOG_WARNING, "The aggregator answers again.");  // Logged at the trouble's level.
  }
  // Logged once, regardless of later failures and their reasons. When the session ends, all streams
  // end, and the message about the session is enough.
  if (!place.stream_trouble.empty() && last_.stream_trouble.empty()) {
    say(BASIN_LOG_WARNING, absl::StrCat("The session is open, but ", place.stream_trouble,
                                        ". The client keeps trying."));
  } else if (place.stream_trouble.empty() && !last_.stream_trouble.empty() && !in_trouble &&
             !place.left) {
    say(BASIN_LOG_WARNING, "A data stream to the aggregator is open again.");
  }
  const Membership& now = place.membership;
  if (now.generation != last_.membership.generation) {
    const std::string rank =
        place.rank.has_value() ? absl::StrCat("rank ", *place.rank, " of ") : std::string();
    const uint32_t trainers = now.members.trainers();
    const std::string grouped =
        trainers == now.members.size() ? "" : absl::StrCat(CountOf(trainers, "trainer"), " in ");
    say(BASIN_LOG_INFO,
        absl::StrCat(rank, grouped, CountOf(now.members.size(), "member"), ", generation ",
                     now.generation.term, ".", now.generation.counter, "."));
  }
  if (place.shares != last_.shares && place.shares.has_value()) {
    say(BASIN_LOG_INFO, *place.shares
                            ? "Gradients pass through memory that is shared with the aggregator."
                            : "Gradients go over the network.");
  }
  if (place.on_device != last_.on_device) {
    say(BASIN_LOG_INFO, place.on_device
                            ? "The aggregator reads gradients in the memory of their device."
                            : "Gradients on a device are copied to memory of the host again.");
  }
  if (place.draining && !last_.draining) {
    say(BASIN_LOG_WARNING,
        "An operator is draining this worker; it will not be in the next generation.");
  }
  if (place.held_up != last_.held_up) say(BASIN_LOG_WARNING, place.held_up);
  if (!place.paused.empty() && place.paused != last_.paused) say(BASIN_LOG_WARNING, place.paused);
  if (place.paused.empty() && !last_.paused.empty() && !in_trouble) {
    say(BASIN_LOG_WARNING, "The job continues.");
  }
  if (place.refused != last_.refused && place.refused.has_value()) {
    say(BASIN_LOG_ERROR, place.refused->text);
  }
  if (place.fatal != last_.fatal && place.fatal.has_value()) {
    say(BASIN_LOG_ERROR, place.fatal->text);
  }
  if (place.left && !last_.left) say(BASIN_LOG_INFO, "It has left the job.");
  last_ = place;
}

}  // namespace basin::c
