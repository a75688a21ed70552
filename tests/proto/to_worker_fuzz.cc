// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// A decoded message to the worker can be encoded, and is decoded again to the same value.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "proto/wire/session.h"
#include "tests/proto/quiet_protobuf.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const basin::testing::QuietProtobuf quiet;
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const absl::StatusOr<basin::ToWorker> decoded = basin::wire::DecodeToWorker(bytes);
  if (!decoded.ok()) return 0;
  const absl::StatusOr<std::string> encoded = basin::wire::Encode(*decoded);
  if (!encoded.ok()) std::abort();
  const absl::StatusOr<basin::ToWorker> again = basin::wire::DecodeToWorker(*encoded);
  // Bytes, not values, are compared: a norm may be NaN.
  if (!again.ok() || *basin::wire::Encode(*again) != *encoded) std::abort();
  return 0;
}
