// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// A message that is sent to workers if its cause lasts for a while, again after each change of the
// cause, and taken back when the cause is over.
//
// Thread contract: a plain value.

#ifndef BASIN_AGGREGATOR_CORE_NOTICE_H_
#define BASIN_AGGREGATOR_CORE_NOTICE_H_

#include <algorithm>
#include <tuple>
#include <utility>

#include "absl/time/time.h"

namespace basin::aggregator {

class Notice {
 public:
  // An earlier due time stays.
  void Plan(absl::Time due) { due_ = std::min(due_, due); }
  absl::Time due() const { return due_; }
  bool sent() const { return sent_; }

  // It was due, and has been sent, or there was no worker to send it to.
  void OnDue(bool sent) {
    due_ = absl::InfiniteFuture();
    sent_ |= sent;
  }
  // Its cause is over. Returns whether it was sent.
  bool Retract() {
    due_ = absl::InfiniteFuture();
    return std::exchange(sent_, false);
  }

  auto Fields() const { return std::tie(due_, sent_); }

 private:
  absl::Time due_ = absl::InfiniteFuture();
  bool sent_ = false;
};

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_CORE_NOTICE_H_
