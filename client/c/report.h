// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Writes changes of a worker's view of its job to the log of the library, each once.
//
// Thread contract: one thread.

#ifndef BASIN_CLIENT_C_REPORT_H_
#define BASIN_CLIENT_C_REPORT_H_

#include <optional>
#include <set>
#include <string>

#include "client/c/options.h"
#include "client/transport/outcome.h"
#include "protocol/placement.h"

namespace basin::c {

class Report {
 public:
  // `who`: "worker w of job j".
  Report(Log log, std::string who) : log_(log), who_(std::move(who)) {}

  // The view has changed to this one.
  void OnView(const client::JobView& view);

  // Writes nothing after this. Called on the thread that calls OnView.
  void Silence() { log_ = Log(); }

 private:
  void OnStreams(const client::JobView& view, bool in_trouble);

  Log log_;
  const std::string who_;
  client::JobView last_;
  std::optional<ShardId> troubled_;  // To which no data stream is open.
  bool says_so_ = false;             // The log has it.
  std::set<ShardId> shards_;         // About which that was logged, each once.
};

}  // namespace basin::c

#endif  // BASIN_CLIENT_C_REPORT_H_
