// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Parts of payloads, and the kept parts.

#include "client/transport/staging.h"

#include <memory>
#include <string>

#include "gtest/gtest.h"

namespace basin::client {
namespace {

TEST(StagedTensor, IsCopiedOnlyWhenItIsWhole) {
  StagedTensor tensor;
  const auto bytes = std::make_shared<OwnPayload>("0123456789");
  tensor.Keep(1, {{bytes, 5, 5}, 0});
  std::string copy = "----------";
  EXPECT_EQ(tensor.CopyTo(copy.data(), 10).code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(tensor.Find(0), nullptr);
  tensor.Keep(0, {{bytes, 0, 5}, 0});
  EXPECT_EQ(tensor.CopyTo(copy.data(), 9).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(copy, "----------");
  EXPECT_TRUE(tensor.CopyTo(copy.data(), 10).ok());
  EXPECT_EQ(copy, "0123456789");
  tensor.Truncate(1);
  EXPECT_TRUE(tensor.CopyTo(copy.data(), 5).ok());
}

TEST(StagedTensor, ThatNoCacheHoldsIsCopiedAsSmallOnesAre) {
  std::string model(uint64_t{3} << 20, '\0');
  for (size_t i = 0; i < model.size(); ++i) model[i] = static_cast<char>(i * 131 + i / 4096);
  const auto bytes = std::make_shared<OwnPayload>(model);
  StagedTensor tensor;
  for (uint32_t chunk = 0; chunk < model.size() / kChunkBytes; ++chunk) {
    tensor.Keep(chunk, {{bytes, chunk * kChunkBytes, kChunkBytes}, 0});
  }
  std::string copy(model.size() + 1, '-');
  EXPECT_TRUE(tensor.CopyTo(copy.data() + 1, model.size()).ok());
  EXPECT_EQ(copy, "-" + model);
}

TEST(PayloadParts, JoinNeighbours) {
  const auto bytes = std::make_shared<OwnPayload>("0123456789");
  PayloadParts parts;
  parts.Append({bytes, 0, 3});
  parts.Append({bytes, 3, 0});
  parts.Append({bytes, 3, 3});
  parts.Append({bytes, 7, 2});
  EXPECT_EQ(parts.bytes(), 8u);
  EXPECT_EQ(parts.Pieces(), (Pieces{"012345", "78"}));
}

}  // namespace
}  // namespace basin::client
