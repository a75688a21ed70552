// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The result of a round, as basin.h hands it out.
//
// Thread contract: constant, so safe from any thread.

#ifndef BASIN_CLIENT_C_RESULT_H_
#define BASIN_CLIENT_C_RESULT_H_

#include <memory>
#include <optional>
#include <utility>

#include "client/c/error.h"
#include "client/transport/outcome.h"

struct basin_result {
  explicit basin_result(std::shared_ptr<const basin::client::RoundResult> of)
      : round(std::move(of)) {
    if (round->rejected().has_value()) rejection = basin::c::ToError(*round->rejected());
  }

  const std::shared_ptr<const basin::client::RoundResult> round;
  std::optional<basin_error> rejection;
};

#endif  // BASIN_CLIENT_C_RESULT_H_
