// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Parts of payloads, and the kept parts.

#include "client/transport/staging.h"

#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "client/transport/outcome.h"
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

TEST(StagedTensor, IsCopiedInParts) {
  StagedTensor tensor;
  tensor.Keep(0, {{std::make_shared<OwnPayload>("xx01234"), 2, 5}, 0});
  tensor.Keep(1, {{std::make_shared<OwnPayload>("56789"), 0, 5}, 0});
  const std::string whole = "0123456789";
  for (uint64_t begin = 0; begin <= whole.size(); ++begin) {
    for (uint64_t count = 0; begin + count <= whole.size(); ++count) {
      std::string copy(count + 1, '-');
      ASSERT_TRUE(tensor.CopyPart(whole.size(), begin, copy.data(), count).ok());
      EXPECT_EQ(copy, whole.substr(begin, count) + "-");
    }
  }
  EXPECT_EQ(tensor.CopyPart(9, 0, nullptr, 0).code(), absl::StatusCode::kInvalidArgument);
}

// A result of one tensor of ten bytes in the memory of an aggregator.
struct SharedResult {
  SharedResult() {
    segment->SetVersion(1);
    std::memcpy(segment->writable() + 64, "0123456789", 10);
    const auto payload =
        std::make_shared<const SharedPayload>(mapped, std::string_view(mapped->data() + 64, 10), 1);
    staged->Keep(0, 0, {{payload, 0, 10}, 0, payload});
  }
  std::string Copied() const {
    std::string copy(10, '-');
    EXPECT_TRUE(staged->content()->Find(0).CopyTo(copy.data(), 10).ok());
    return copy;
  }
  void UseAgain() const {
    segment->SetVersion(2);
    std::memcpy(segment->writable() + 64, "abcdefghij", 10);
  }

  const std::shared_ptr<Segment> segment = *Segment::Create(4096);
  const std::shared_ptr<Segment> mapped = *Segment::Open(segment->descriptor(), 4096);
  const std::shared_ptr<StagedRound> staged = std::make_shared<StagedRound>(7);
};

TEST(StagedRound, AReaderLearnsThatTheAggregatorHasUsedItsMemoryAgain) {
  const SharedResult result;
  EXPECT_EQ(result.Copied(), "0123456789");
  EXPECT_TRUE(result.staged->content()->Find(0).intact());
  result.UseAgain();
  EXPECT_FALSE(result.staged->content()->Find(0).intact());
  result.staged->MakePrivate();  // Too late.
  EXPECT_FALSE(result.staged->content()->Find(0).intact());
}

TEST(StagedRound, WhatWasMadePrivateStays) {
  const SharedResult result;
  result.staged->MakePrivate();
  result.UseAgain();
  EXPECT_EQ(result.Copied(), "0123456789");
  EXPECT_TRUE(result.staged->content()->Find(0).intact());
}

TEST(RoundResult, IsNotTakenFromMemoryThatTheAggregatorHasUsedAgain) {
  const SharedResult shared;
  VerdictRecord record;
  record.round = 7;
  record.value.outcome = Outcome::kCommitted;
  record.value.divisor = 2;
  record.value.layout_version = 1;
  const RoundResult result(record, std::nullopt, {{"a", DType::kU8, 0}}, {{"a", DType::kU8, {10}}},
                           shared.staged);
  std::string copy(10, '-');
  ASSERT_TRUE(result.CopyTo(0, copy.data(), 10).ok());
  EXPECT_EQ(copy, "0123456789");
  shared.UseAgain();
  const absl::Status late = result.CopyTo(0, copy.data(), 10);
  EXPECT_EQ(late.code(), absl::StatusCode::kDataLoss);
  EXPECT_NE(late.message().find("Round 7, tensor a: the aggregator has used its memory again"),
            std::string::npos)
      << late;
  EXPECT_TRUE(result.Pieces(0).empty());
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
