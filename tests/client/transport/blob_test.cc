// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Broadcast values: served from the trainer's memory, and fetched.

#include <future>

#include <gtest/gtest.h>

#include "tests/client/transport/fake_aggregator.h"

namespace basin::client {
namespace {

const BlobKey kKey = {"g", "a", 4};

void ExpectServed(Rig& rig, uint32_t first, const std::string& bytes) {
  const TakenFrame frame = rig.aggregator.AwaitFrame();
  const auto& header = std::get<wire::BlobHeader>(frame.header.kind);
  EXPECT_EQ(header.key, kKey);
  EXPECT_EQ(header.first, first);
  EXPECT_EQ(frame.payload, bytes.substr(first * kChunkBytes, header.count * kChunkBytes));
}

TEST(Blob, IsServedFromTheTrainersMemoryBetweenSteps) {
  Rig rig;
  rig.Join();
  std::string value = rig.gradients[0];
  ASSERT_TRUE(rig.worker->values()
                  .Announce(kKey, rig.model[0], value.data(), value.size(), Hold::kInPlace)
                  .ok());
  const Announce announce = rig.aggregator.Await<Announce>();
  EXPECT_EQ(announce.key, kKey);
  EXPECT_EQ(announce.digest, DigestOf("a", value));

  rig.worker->values().BeginStep();
  rig.aggregator.Send(Ask{kKey, 1, 2});
  rig.Until([&](const Runner&) { return rig.aggregator.unconsumed() == 0; });
  EXPECT_EQ(rig.aggregator.queued(), 0u);
  rig.worker->values().EndStep();
  ExpectServed(rig, 1, value);

  // Memory that changed without a new version is not served.
  rig.worker->values().BeginStep();
  const std::string before = value;
  value[0] = static_cast<char>(value[0] ^ 1);
  rig.worker->values().EndStep();
  rig.aggregator.Send(Ask{kKey, 0, 1});
  rig.aggregator.Send(Ask{kKey, 2, 1});
  ExpectServed(rig, 2, before);
  rig.Until([](const Runner& runner) { return runner.counters().values_changed == 1; });

  ASSERT_TRUE(rig.worker->values().StopServing("g", "a").ok());
  value = std::string();  // The trainer's again.
  rig.aggregator.Send(Ask{kKey, 2, 1});
  rig.Until([&](const Runner&) { return rig.aggregator.unconsumed() == 0; });
  EXPECT_EQ(rig.aggregator.queued(), 0u);
}

TEST(Blob, ThatHasBecomeSmallerIsNotReadBeyondItsEnd) {
  Rig rig;
  rig.Join();
  const std::string value = rig.gradients[0];
  ASSERT_TRUE(rig.worker->values()
                  .Announce(kKey, rig.model[0], value.data(), value.size(), Hold::kInPlace)
                  .ok());
  rig.worker->values().BeginStep();
  rig.aggregator.Send(Ask{kKey, 2, 1});
  rig.Until([&](const Runner&) { return rig.aggregator.unconsumed() == 0; });
  // The ask is held back while the same version gets another shape.
  const std::string smaller = value.substr(0, 100);
  ASSERT_TRUE(rig.worker->values()
                  .Announce(kKey, F32("a", 25), smaller.data(), smaller.size(), Hold::kInPlace)
                  .ok());
  rig.worker->values().EndStep();
  rig.aggregator.Send(Ask{kKey, 0, 1});
  ExpectServed(rig, 0, smaller);
}

TEST(Blob, ThatWasCopiedIsServedAtAnyTime) {
  Rig rig;
  rig.Join();
  {
    const std::string value = rig.gradients[0];
    ASSERT_TRUE(rig.worker->values()
                    .Announce(kKey, rig.model[0], value.data(), value.size(), Hold::kCopy)
                    .ok());
  }
  rig.worker->values().BeginStep();
  rig.aggregator.Send(Ask{kKey, 0, 3});
  ExpectServed(rig, 0, rig.gradients[0]);
  ExpectServed(rig, 2, rig.gradients[0]);
  rig.worker->values().EndStep();
  BlobKey older = kKey;
  older.version = 3;
  EXPECT_EQ(CodeOf(rig.worker->values().Announce(older, rig.model[0], rig.gradients[0].data(),
                                                 rig.gradients[0].size(), Hold::kCopy)),
            ErrorCode::kFailedPrecondition);
  older.tensor = "";
  EXPECT_EQ(CodeOf(rig.worker->values().Announce(older, rig.model[0], rig.gradients[0].data(),
                                                 rig.gradients[0].size(), Hold::kCopy)),
            ErrorCode::kInvalidArgument);
}

TEST(Blob, IsFetchedChecksBitsAndIsCopiedOut) {
  Rig rig;
  rig.Join();
  const std::string value = rig.gradients[0];
  auto getting = std::async(std::launch::async, [&] {
    return rig.worker->values().Get(kKey, rig.model[0], "w1", absl::InfiniteDuration());
  });
  const Get what = rig.aggregator.Await<Get>();
  EXPECT_EQ(what.key, kKey);
  EXPECT_EQ(what.source, "w1");
  EXPECT_EQ(what.count, 0u);
  rig.aggregator.Send(BlobKnown{kKey, rig.model[0], DigestOf("a", value), "w1"});
  EXPECT_EQ(rig.aggregator.Await<Get>().count, 3u);
  rig.aggregator.SendBlob(0, kKey, 2, 1, value.substr(2 * kChunkBytes));
  std::string broken = value.substr(0, 2 * kChunkBytes);
  broken[7] = static_cast<char>(broken[7] ^ 1);
  rig.aggregator.SendBlob(0, kKey, 0, 2, broken);
  EXPECT_EQ(rig.aggregator.Await<Get>().count, 3u);  // Once more, all of it.
  rig.aggregator.SendBlob(0, kKey, 0, 3, value);
  const BlobOutcome outcome = getting.get();
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_EQ((*outcome)->source(), "w1");
  EXPECT_EQ((*outcome)->spec(), rig.model[0]);
  std::string copy(value.size(), '\0');
  ASSERT_TRUE((*outcome)->CopyTo(copy.data(), copy.size()).ok());
  EXPECT_EQ(copy, value);
  EXPECT_EQ((*outcome)->CopyTo(copy.data(), 3).code(), absl::StatusCode::kInvalidArgument);
}

TEST(Blob, ManyCanBeOnTheirWayAndFailWithAReason) {
  Rig rig;
  rig.Join();
  BlobKey other = kKey;
  other.tensor = "b";
  const absl::Duration timeout = absl::Seconds(20);
  const auto get = [&](const BlobKey& key) {
    auto getting = std::async(std::launch::async, [&rig, key, timeout] {
      return CodeOf(rig.worker->values().Get(key, {}, {}, timeout).status());
    });
    EXPECT_EQ(rig.aggregator.Await<Get>().key, key);
    return getting;
  };
  auto first = get(kKey);
  auto second = get(other);
  EXPECT_EQ(CodeOf(rig.worker->values().Get(kKey, {}, {}, timeout).status()),
            ErrorCode::kFailedPrecondition);  // One is on its way.
  rig.aggregator.Send(GetFailed{kKey, {ErrorCode::kNotFound, "nobody has it"}});
  EXPECT_EQ(first.get(), ErrorCode::kNotFound);
  rig.clock.Advance(timeout);
  EXPECT_EQ(second.get(), ErrorCode::kDeadlineExceeded);
}

}  // namespace
}  // namespace basin::client
