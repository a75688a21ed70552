// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "client/c/report.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "protocol/plural.h"

namespace basin::c {

void Report::OnStreams(const client::JobView& view, bool in_trouble) {
  // Logged once, regardless of later failures and their reasons. When the session ends, all streams
  // end, and the message about the session is enough.
  if (!view.stream_trouble.empty()) {
    if (troubled_ == view.stream_shard) return;
    troubled_ = view.stream_shard;
    // A shard has another number when it comes again.
    says_so_ = *troubled_ == kCoordinatorShard || shards_.insert(*troubled_).second;
    if (!says_so_) return;
    log_(BASIN_LOG_WARNING, absl::StrCat(who_, ": The session is open, but ", view.stream_trouble,
                                         ". The client keeps trying."));
    return;
  }
  if (!troubled_.has_value()) return;
  const bool of_aggregator = *troubled_ == kCoordinatorShard;
  troubled_.reset();
  if (!says_so_ || in_trouble || view.left) return;
  log_(BASIN_LOG_WARNING,
       absl::StrCat(who_, of_aggregator
                              ? ": Data streams are open again where there were none."
                              : ": The shard is not waited for any more: it answers, or the job "
                                "goes on without it."));
}

void Report::OnView(const client::JobView& view) {
  const auto log = [this](basin_log_level level, const std::string& text) {
    log_(level, absl::StrCat(who_, ": ", text));
  };
  const bool in_trouble = view.trouble.code != ErrorCode::kOk;
  if (in_trouble && view.trouble != last_.trouble) {
    log(BASIN_LOG_WARNING, view.trouble.text);
  } else if (!in_trouble && last_.trouble.code != ErrorCode::kOk) {
    log(BASIN_LOG_WARNING, "The aggregator answers again.");  // Logged at the trouble's level.
  }
  OnStreams(view, in_trouble);
  const Membership& now = view.membership;
  if (now.generation != last_.membership.generation) {
    const std::string rank =
        view.rank.has_value() ? absl::StrCat("rank ", *view.rank, " of ") : std::string();
    const uint32_t trainers = now.members.trainers();
    const std::string grouped =
        trainers == now.members.size() ? "" : absl::StrCat(CountOf(trainers, "trainer"), " in ");
    log(BASIN_LOG_INFO,
        absl::StrCat(rank, grouped, CountOf(now.members.size(), "member"), ", generation ",
                     now.generation.term, ".", now.generation.counter, "."));
  }
  if (view.shares != last_.shares && view.shares.has_value()) {
    log(BASIN_LOG_INFO, *view.shares
                            ? "Gradients pass through memory that is shared with the aggregator."
                            : "Gradients go over the network.");
  }
  if (view.on_device != last_.on_device) {
    log(BASIN_LOG_INFO, view.on_device
                            ? "The aggregator reads gradients in the memory of their device."
                            : "Gradients on a device are copied to memory of the host again.");
  }
  if (view.draining && !last_.draining) {
    log(BASIN_LOG_WARNING,
        "An operator is draining this worker; it will not be in the next generation.");
  }
  if (view.held_up != last_.held_up) log(BASIN_LOG_WARNING, view.held_up);
  if (!view.paused.empty() && view.paused != last_.paused) log(BASIN_LOG_WARNING, view.paused);
  if (view.paused.empty() && !last_.paused.empty() && !in_trouble) {
    log(BASIN_LOG_WARNING, "The job continues.");
  }
  if (view.refused != last_.refused && view.refused.has_value()) {
    log(BASIN_LOG_ERROR, view.refused->text);
  }
  if (view.fatal != last_.fatal && view.fatal.has_value()) {
    log(BASIN_LOG_ERROR, view.fatal->text);
  }
  if (view.left && !last_.left) log(BASIN_LOG_INFO, "It has left the job.");
  last_ = view;
}

}  // namespace basin::c
