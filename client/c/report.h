// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Writes changes of a worker's view of its job to the log of the library, each once.
//
// Thread contract: one thread.

#ifndef BASIN_CLIENT_C_REPORT_H_
#define BASIN_CLIENT_C_REPORT_H_

#include <string>

#include "client/c/options.h"
#include "client/transport/outcome.h"

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
  Log log_;
  const std::string who_;
  client::JobView last_;
};

}  // namespace basin::c

#endif  // BASIN_CLIENT_C_REPORT_H_
