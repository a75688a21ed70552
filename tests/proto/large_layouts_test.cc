// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Welcomes and layouts of many tensors: they arrive as they were, and receivers share their memory.

#include "proto/wire/large_layouts.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "proto/wire/session_stream.h"
#include "tests/proto/random_messages.h"

namespace basin::wire {
namespace {

using ::basin::testing::RandomMessages;

SharedList<TensorSpec> Tensors(size_t count) {
  std::vector<TensorSpec> tensors;
  for (size_t i = 0; i < count; ++i) {
    tensors.push_back({absl::StrCat(i, std::string(200, 'n')), DType::kF32, {i, 3}});
  }
  return tensors;
}

LaneLayout LayoutOf(LaneIndex lane, SharedList<TensorSpec> tensors) {
  return {lane, absl::StrCat("lane", lane), LaneKind::kCall, 0, std::move(tensors), 7, 4711};
}

// What arrives of the pieces.
ToWorker Read(const std::vector<LargeLayouts::Piece>& pieces) {
  MessageReader<ToWorker> reader;
  EXPECT_TRUE(reader.RequireSeals().ok());
  std::vector<ToWorker> messages;
  for (const LargeLayouts::Piece& piece : pieces) {
    auto received = reader.Read(*piece);
    EXPECT_TRUE(received.ok()) << received.status();
    if (!received.ok()) break;
    for (auto& one : received->messages) messages.push_back(std::move(one.message));
  }
  EXPECT_EQ(messages.size(), 1u);
  EXPECT_EQ(reader.held(), 0u);
  return messages.empty() ? ToWorker(Drain{}) : std::move(messages.front());
}

ToWorker WelcomeWith(std::vector<LaneLayout> layouts) {
  Welcome welcome;
  while (welcome.frame_bytes == 0) {
    welcome = std::get<Welcome>(RandomMessages(5).MakeAlternative<ToWorker>(0));
  }
  welcome.layouts = std::move(layouts);
  return welcome;
}

TEST(LargeLayouts, ArriveAsTheyWere) {
  LargeLayouts large(uint64_t{1} << 30);
  const SharedList<TensorSpec> many = Tensors(20'000);
  for (const ToWorker& message :
       {WelcomeWith({LayoutOf(0, many)}), WelcomeWith({LayoutOf(0, Tensors(3)), LayoutOf(1, many)}),
        WelcomeWith({LayoutOf(0, many), LayoutOf(1, {}), LayoutOf(2, Tensors(5'000))}),
        ToWorker(LayoutOf(1, many))}) {
    ASSERT_TRUE(LargeLayouts::AreIn(message));
    const auto pieces = large.Encode(message);
    ASSERT_TRUE(pieces.ok()) << pieces.status();
    EXPECT_TRUE(Read(*pieces) == message);
    for (const auto& piece : *pieces) EXPECT_LE(piece->size(), kMaxMessageBytes);
  }
  EXPECT_FALSE(LargeLayouts::AreIn(WelcomeWith({LayoutOf(0, Tensors(3))})));
  EXPECT_FALSE(LargeLayouts::AreIn(Drain{}));
}

TEST(LargeLayouts, Fault_N11_ReceiversShareOneEncodingUntilTheLastHasReadIt) {
  LargeLayouts large(uint64_t{1} << 30);
  SharedList<TensorSpec> tensors = Tensors(20'000);
  auto first = *large.Encode(WelcomeWith({LayoutOf(0, tensors)}));
  const uint64_t once = large.bytes();
  EXPECT_GT(once, uint64_t{20'000} * 200);
  EXPECT_LT(once, uint64_t{20'000} * 500);
  std::vector<std::vector<LargeLayouts::Piece>> others;
  for (int i = 0; i < 30; ++i) others.push_back(*large.Encode(WelcomeWith({LayoutOf(0, tensors)})));
  EXPECT_EQ(large.bytes(), once);
  others.clear();
  EXPECT_EQ(large.bytes(), once);

  // What has grown meanwhile is another encoding, also when it grows in its place.
  tensors.push_back({"late", DType::kU8, {1}});
  const ToWorker grown = WelcomeWith({LayoutOf(0, tensors)});
  auto second = *large.Encode(grown);
  EXPECT_TRUE(Read(second) == grown);
  EXPECT_GT(large.bytes(), once);
  first.clear();
  second.clear();
  EXPECT_EQ(large.bytes(), 0u);
  EXPECT_TRUE(Read(*large.Encode(grown)) == grown);
}

TEST(LargeLayouts, Fault_N11_WhatNobodyReadsIsBounded) {
  LargeLayouts large(uint64_t{8} << 20);
  std::vector<std::vector<LargeLayouts::Piece>> unread;
  absl::Status refused;
  while (refused.ok() && unread.size() < 100) {
    auto pieces = large.Encode(ToWorker(LayoutOf(0, Tensors(10'000))));
    refused = pieces.status();
    if (pieces.ok()) unread.push_back(*std::move(pieces));
  }
  EXPECT_TRUE(absl::IsResourceExhausted(refused)) << refused;
  EXPECT_LE(large.bytes(), uint64_t{8} << 20);
  unread.pop_back();
  EXPECT_TRUE(large.Encode(ToWorker(LayoutOf(0, Tensors(10'000)))).ok());
  // One that is larger than all the room still gets through alone.
  unread.clear();
  EXPECT_TRUE(large.Encode(ToWorker(LayoutOf(0, Tensors(60'000)))).ok());
}

}  // namespace
}  // namespace basin::wire
