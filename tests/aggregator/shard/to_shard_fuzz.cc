// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// A decoded message of the coordinator can be encoded, and is decoded again to the same value.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "aggregator/shard/wire/codec.h"
#include "tests/proto/quiet_protobuf.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const basin::testing::QuietProtobuf quiet;
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const absl::StatusOr<basin::aggregator::ToShard> decoded =
      basin::aggregator::DecodeToShard(bytes);
  if (!decoded.ok()) return 0;
  // A small one is not cut.
  const absl::StatusOr<std::vector<std::string>> encoded = basin::aggregator::Encode(*decoded);
  if (!encoded.ok() || encoded->size() != 1) std::abort();
  const absl::StatusOr<basin::aggregator::ToShard> again =
      basin::aggregator::DecodeToShard(encoded->front());
  // Bytes, not values, are compared: a norm may be NaN.
  if (!again.ok() || *basin::aggregator::Encode(*again) != *encoded) std::abort();
  return 0;
}
