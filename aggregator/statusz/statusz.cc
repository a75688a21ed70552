// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "aggregator/statusz/statusz.h"

#include <optional>
#include <utility>

#include "aggregator/statusz/page.h"
#include "aggregator/statusz/status_view.h"

namespace basin::aggregator {
namespace {

// People do not see a page of a second ago as old.
constexpr std::chrono::seconds kFresh{1};

// A loop that takes longer hangs.
constexpr std::chrono::seconds kLoopTimeout{2};

}  // namespace

Statusz::Statusz(Engine& engine, const EventHistory& events, std::string version)
    : engine_(engine), events_(events), version_(std::move(version)), started_(Clock::now()) {}

const Statusz::Page& Statusz::Look() {
  if (page_.ok && Clock::now() - made_ < kFresh) return page_;
  std::optional<StatusView> view = LookForStatus(engine_, events_, kLoopTimeout);
  page_.ok = view.has_value();
  if (view.has_value()) {
    view->service.set_version(version_);
    view->service.set_uptime_ns(
        static_cast<uint64_t>(std::chrono::nanoseconds(Clock::now() - started_).count()));
  }
  page_.html = view.has_value() ? StatusPage(*view) : NoStatusPage();
  made_ = Clock::now();
  return page_;
}

}  // namespace basin::aggregator
