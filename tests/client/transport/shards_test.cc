// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Rounds whose chunks are on the aggregator and on another shard: chunk 0 of tensor a is on the
// aggregator, the others and tensor b on shard 1.

#include <future>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/client/transport/fake_aggregator.h"

namespace basin::client {
namespace {

using ::testing::HasSubstr;

constexpr uint32_t kAtShard = kMaxStreams;  // StreamAt(1, 0).

Placement OnTwo(std::vector<ShardId> lost = {}) {
  return {1, 1, {PlacedShard{}, {1, "s-1", "host-1:29700"}}, std::move(lost)};
}

// A member whose streams are accepted, but for that to the shard.
void Join(Rig& rig) {
  rig.placements = {OnTwo()};
  rig.Join();
}

std::map<TensorIndex, std::string> SomeResults(const Rig& rig) {
  std::map<TensorIndex, std::string> results;
  for (TensorIndex tensor = 0; tensor < rig.model.size(); ++tensor) {
    results[tensor] = Noise(*TensorBytes(rig.model[tensor]), 1 + tensor);
  }
  return results;
}

// Sends each result from where it was reduced.
void SendResults(Rig& rig, const std::map<TensorIndex, std::string>& results, uint32_t shard) {
  for (const auto& [tensor, bytes] : results) {
    for (uint32_t chunk = 0; chunk < ChunkCount(bytes.size()); ++chunk) {
      const std::string part = bytes.substr(chunk * kChunkBytes, kChunkBytes);
      rig.aggregator.SendResult(tensor == 0 && chunk == 0 ? 0 : shard, 1, {kTerm, 1},
                                {tensor, chunk, 1}, rig.model[tensor].name, part, part);
    }
  }
}

void ExpectDelivered(Rig& rig, const std::map<TensorIndex, std::string>& results) {
  auto waiting = std::async(std::launch::async, [&] {
    return rig.worker->Wait(rig.lane.lane, absl::InfiniteDuration());
  });
  rig.Conclude(rig.ValueOf(results), 1, 0);
  const RoundOutcome outcome = waiting.get();
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  for (const auto& [tensor, expected] : results) {
    std::string bytes(expected.size(), '\0');
    ASSERT_TRUE((*outcome)->CopyTo(tensor, bytes.data(), bytes.size()).ok());
    EXPECT_EQ(bytes, expected);
  }
}

TEST(Shards, ARoundOfTwoHasTheBitsOfBoth) {
  Rig rig;
  Join(rig);
  rig.aggregator.AcceptStream(kAtShard, rig.token);
  rig.Begin();
  rig.PushAll();
  ASSERT_TRUE(rig.worker->Commit(rig.lane.lane).ok());
  std::map<uint32_t, uint32_t> chunks;  // By stream.
  rig.aggregator.AwaitQueued(3);
  for (int frame = 0; frame < 3; ++frame) {
    const TakenFrame taken = rig.aggregator.AwaitFrame();
    const auto& header = std::get<wire::ContributionHeader>(taken.header.kind);
    for (const ChunkRun& run : header.runs) {
      const bool first = run.range.tensor == 0 && run.range.first == 0;
      EXPECT_EQ(taken.stream, first ? 0u : kAtShard);
      chunks[taken.stream] += run.range.count;
    }
  }
  EXPECT_EQ(chunks, (std::map<uint32_t, uint32_t>{{0, 1}, {kAtShard, 3}}));
  const auto results = SomeResults(rig);
  SendResults(rig, results, kAtShard);
  ExpectDelivered(rig, results);
}

TEST(Shards, WhatWasOnItsWayToALostOneIsSentToTheAggregatorFromTheTrainersMemory) {
  Rig rig;
  Join(rig);
  rig.aggregator.AcceptStream(kAtShard, rig.token);
  rig.Begin();
  rig.PushAll();
  ASSERT_TRUE(rig.worker->Commit(rig.lane.lane).ok());
  rig.aggregator.AwaitQueued(3);
  rig.aggregator.DropQueued();  // Nothing of it arrives.
  rig.aggregator.Send(OnTwo({1}));
  rig.aggregator.AwaitStreamClosed(kAtShard);
  rig.aggregator.AwaitQueued(2);
  std::map<TensorIndex, uint32_t> chunks;
  for (int frame = 0; frame < 2; ++frame) {
    const TakenFrame taken = rig.aggregator.AwaitFrame();
    EXPECT_EQ(taken.stream, 0u);
    for (const ChunkRun& run : std::get<wire::ContributionHeader>(taken.header.kind).runs) {
      chunks[run.range.tensor] += run.range.count;
    }
  }
  EXPECT_EQ(chunks, (std::map<TensorIndex, uint32_t>{{0, 2}, {1, 1}}));
  const auto results = SomeResults(rig);
  SendResults(rig, results, 0);
  ExpectDelivered(rig, results);
}

TEST(Shards, OneThatIsOutOfReachIsNamedWhileTheOthersWork) {
  Rig rig;
  Join(rig);
  const auto trouble = [&] { return rig.worker->view().stream_trouble; };
  rig.aggregator.RefuseStream(kAtShard, rig.token);
  rig.aggregator.RefuseStream(kAtShard, rig.token);
  const ShardUnreachable report = rig.aggregator.Await<ShardUnreachable>();
  EXPECT_EQ(report.shard, 1u);
  EXPECT_THAT(report.why, HasSubstr("connection refused"));
  EXPECT_THAT(trouble(), HasSubstr("no data stream to shard s-1 at host-1:29700 is open"));
  rig.clock.Advance(absl::Seconds(5));
  rig.aggregator.AcceptStream(kAtShard, rig.token);
  EXPECT_EQ(rig.aggregator.Await<ShardUnreachable>(), (ShardUnreachable{1, ""}));
  rig.Until([&](const Runner&) { return trouble().empty(); });
}

}  // namespace
}  // namespace basin::client
