// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Credit, pull mode, and how lanes share memory.

#include <algorithm>
#include <deque>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "aggregator/core/memory.h"
#include "tests/aggregator/core/harness.h"

namespace basin::aggregator {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// Each worker and lane has room for `chunks` chunks; a frame has one chunk.
Config Narrow(uint64_t chunks) {
  Config config;
  config.frame_bytes = kChunkBytes;
  config.window_bytes = config.result_window_bytes = chunks * kChunkBytes;
  return config;
}

// Two workers and a lane of `chunks` tensors with one chunk each.
struct NarrowPair : Cluster {
  NarrowPair(Config config, uint32_t chunks)
      : Cluster(Settings(1, 2, 2), std::move(config)), a(Worker("a")), b(Worker("b")) {
    std::vector<TensorSpec> tensors;
    for (uint32_t i = 0; i < chunks; ++i) tensors.push_back(Tensor("t" + std::to_string(i)));
    for (TestWorker* worker : {&a, &b}) {
      worker->Connect();
      worker->Register(tensors);
      worker->Ready();
    }
  }
  TestWorker& a;
  TestWorker& b;
};

TEST(Pull, OppositeOrdersWithSmallWindowsEnd) {
  NarrowPair t(Narrow(2), 8);
  for (TestWorker* worker : {&t.a, &t.b}) {
    worker->Begin();
    for (TensorIndex i = 0; i < 8; ++i) worker->lane().pushed.insert({i, 0});
  }
  // Each fills its window from its own end, so no chunk is complete.
  for (TensorIndex i : {0u, 1u}) t.a.SendFrame(1, {i, 0, 1});
  EXPECT_EQ(t.Notes(NoteKind::kPullMode), 0u);
  for (TensorIndex i : {7u, 6u}) t.b.SendFrame(1, {i, 0, 1});
  EXPECT_EQ(t.Notes(NoteKind::kPullMode), 1u);
  EXPECT_TRUE(t.round() == nullptr || t.round()->pull_mode());
  const auto pulls = t.b.All<Pull>();
  ASSERT_FALSE(pulls.empty());
  EXPECT_THAT(pulls[0].discarded, ElementsAre(ChunkRange{6, 0, 1}, ChunkRange{7, 0, 1}));
  EXPECT_THAT(pulls[0].wanted, ElementsAre(ChunkRange{0, 0, 1}, ChunkRange{1, 0, 1}));
  // The workers push what is pulled without a call from the test; then they commit.
  t.a.Commit();
  t.b.Commit();
  ASSERT_EQ(t.a.lane().last, 1u);
  for (TensorIndex i = 0; i < 8; ++i) {
    EXPECT_EQ(t.a.lane().delivered[1].at({i, 0}), (Reduced{3, 2})) << i;
  }
  // The next round starts in eager mode.
  t.a.Begin();
  EXPECT_FALSE(t.round()->pull_mode());
}

// The window had enough room for all that a worker still had to send, until the layout grew. A
// worker that only waits for room must not count as one that may send.
TEST(Pull, ALayoutThatGrowsFillsAWindow) {
  Config config;
  config.frame_bytes = config.window_bytes = config.result_window_bytes = 3 * kChunkBytes;
  constexpr int64_t kSmall = 16384;
  const auto tensor = [](const std::string& name, int64_t elements) {
    return TensorSpec{name, DType::kF32, {static_cast<uint64_t>(elements)}};
  };
  const int64_t large = static_cast<int64_t>(3 * kChunkBytes / 4) - kSmall;
  Cluster t(Settings(1, 2, 2), config);
  TestWorker& a = t.Worker("a");
  TestWorker& b = t.Worker("b");
  for (TestWorker* worker : {&a, &b}) {
    worker->Connect();
    worker->Register({tensor("t0", kSmall), tensor("t1", large)});
    worker->Ready();
  }
  a.repushes = b.repushes = false;
  a.Begin();
  a.PushTensor(1);
  b.Register({tensor("t2", 2 * large / 3)});
  b.Begin();
  b.PushTensor(2);
  a.Skip({0});
  b.Skip({0});
  EXPECT_EQ(t.Notes(NoteKind::kPullMode), 1u) << "each has what the other one lacks, and no room";
}

// A window that had enough room for the rest is too small once the layout has grown.
TEST(Pull, AWorkerHearsOfItsRoomWhenTheLayoutGrows) {
  Config config;
  config.frame_bytes = config.window_bytes = config.result_window_bytes = 3 * kChunkBytes;
  const TensorSpec small{"t0", DType::kF32, {16384}};
  const TensorSpec large{"t1", DType::kF32, {3 * kChunkBytes / 4 - 16384}};
  Cluster t(Settings(1, 2, 2), config);
  TestWorker& a = t.Worker("a");
  TestWorker& b = t.Worker("b");
  for (TestWorker* worker : {&a, &b}) {
    worker->Connect();
    worker->Register({small, large});
    worker->Ready();
  }
  for (TestWorker* worker : {&a, &b}) {
    worker->Begin();
    worker->PushTensor(1);
  }
  ASSERT_EQ(a.Last<Credit>().window, 4 * 16384u) << "the rest of the window is enough for t0";
  b.Register({Tensor("t2", 2)});
  EXPECT_EQ(a.Last<Credit>().window, 3 * kChunkBytes);
}

// Room for less than the next frame is not worth a message. It is once the worker has less to send.
TEST(Pull, AWorkerThatSkipsHearsOfTheRoomItHas) {
  Config config;
  config.frame_bytes = config.window_bytes = config.result_window_bytes = 3 * kChunkBytes;
  Cluster t(Settings(1, 2, 2), config);
  TestWorker& a = t.Worker("a");
  TestWorker& b = t.Worker("b");
  for (TestWorker* worker : {&a, &b}) {
    worker->Connect();
    worker->Register({Tensor("t0"), Tensor("t1", 2), Tensor("t2", 3), Tensor("t3")});
    worker->Ready();
  }
  for (TestWorker* worker : {&a, &b}) worker->Begin();
  a.PushTensor(0);
  a.PushTensor(1);
  ASSERT_EQ(a.Last<Credit>().window, 0u);
  b.PushTensor(0);
  EXPECT_EQ(a.Last<Credit>().window, 0u) << "a frame may have three chunks";
  a.Skip({2});
  EXPECT_EQ(a.Last<Credit>().window, kChunkBytes);
}

TEST(Pull, AFrameThatWasNotAskedForIsRefused) {
  NarrowPair t(Narrow(2), 8);
  t.a.repushes = t.b.repushes = false;
  t.a.Begin();
  t.b.Begin();
  for (TensorIndex i : {0u, 1u}) t.a.SendFrame(1, {i, 0, 1});
  for (TensorIndex i : {7u, 6u}) t.b.SendFrame(1, {i, 0, 1});
  ASSERT_TRUE(t.round()->pull_mode());
  t.b.SendFrame(1, {5, 0, 1});  // It was on its way already.
  EXPECT_THAT(t.b.Last<Credit>().refused, ElementsAre(ChunkRange{5, 0, 1}));
  t.b.SendFrame(1, {0, 0, 1});
  EXPECT_THAT(t.b.Last<Credit>().acked, ElementsAre(ChunkRange{0, 0, 1}));
  EXPECT_EQ(t.a.lane().results.count({0, 0}), 1u);
}

TEST(Pull, GoesOnAfterALossAndOnANewSession) {
  NarrowPair t(Narrow(2), 6);
  t.a.repushes = t.b.repushes = false;
  for (TestWorker* worker : {&t.a, &t.b}) {
    worker->Begin();
    for (TensorIndex i = 0; i < 6; ++i) worker->lane().pushed.insert({i, 0});
  }
  for (TensorIndex i : {0u, 1u}) t.a.SendFrame(1, {i, 0, 1});
  for (TensorIndex i : {5u, 4u}) t.b.SendFrame(1, {i, 0, 1});
  ASSERT_TRUE(t.round()->pull_mode());
  t.b.SendFrame(1, {0, 0, 1});
  // A new session receives the outstanding pulls again.
  t.b.Cut();
  t.b.inbox.clear();
  t.b.Connect();
  EXPECT_THAT(t.b.Last<Pull>().wanted, ElementsAre(ChunkRange{1, 0, 1}, ChunkRange{2, 0, 1}));
  t.a.repushes = true;
  t.Step(WorkerExited{kJob, "b"});
  EXPECT_EQ(t.a.Count<AttemptRestarted>(), 1u);
  for (TensorIndex i = 0; i < 6; ++i) t.a.SendFrame(1, {i, 0, 1});
  t.a.Commit();
  EXPECT_EQ(t.a.lane().last, 1u);
  EXPECT_EQ(t.a.lane().delivered[1].at({5, 0}), (Reduced{1, 1}));
}

// After a restart, a chunk that no worker must push again may fill the window that the front needs.
TEST(Pull, RoomForLessThanAFrameIsToldToo) {
  Config config = Narrow(2);
  config.frame_bytes = 2 * kChunkBytes;
  Cluster t(Settings(1, 3, 3), config);
  std::vector<TensorSpec> tensors;
  for (uint32_t i = 0; i < 6; ++i) tensors.push_back(Tensor("t" + std::to_string(i)));
  TestWorker& a = t.Worker("a");
  TestWorker& b = t.Worker("b");
  TestWorker& c = t.Worker("c");
  for (TestWorker* worker : {&a, &b, &c}) {
    worker->repushes = worker->acks = false;
    worker->Connect();
    worker->Register(tensors);
    worker->Ready();
  }
  for (TestWorker* worker : {&a, &b, &c}) worker->Begin();
  for (TensorIndex i : {0u, 1u}) a.SendFrame(1, {i, 0, 1});
  for (TensorIndex i : {5u, 4u}) b.SendFrame(1, {i, 0, 1});
  for (TensorIndex i : {5u, 4u}) c.SendFrame(1, {i, 0, 1});
  ASSERT_TRUE(t.round()->pull_mode());
  for (TensorIndex i : {0u, 1u}) {
    for (TestWorker* worker : {&b, &c}) worker->SendFrame(1, {i, 0, 1});
  }
  ASSERT_EQ(a.lane().results.size(), 2u) << "no worker acknowledges them, so there is no more room";
  for (TestWorker* worker : {&a, &b, &c}) worker->SendFrame(1, {2, 0, 1});
  ASSERT_EQ(a.lane().results.size(), 2u);
  t.reduces = false;
  c.Withdraw();
  EXPECT_THAT(a.Last<Pull>().wanted, ElementsAre(ChunkRange{0, 0, 1}, ChunkRange{1, 0, 1}));
  a.SendFrame(1, {0, 0, 1});
  EXPECT_EQ(a.Last<Credit>().window, 0u) << "the chunk that is being reduced still fills it";
  t.FinishReduces();
  EXPECT_EQ(a.Last<Credit>().window, kChunkBytes);
}

TEST(Pull, TensorsThatEveryoneSkipsAreNotPulled) {
  NarrowPair t(Narrow(2), 6);
  for (TestWorker* worker : {&t.a, &t.b}) {
    worker->Begin();
    worker->Skip({0, 3});
    for (TensorIndex i : {1u, 2u, 4u, 5u}) worker->lane().pushed.insert({i, 0});
  }
  for (TensorIndex i : {1u, 2u}) t.a.SendFrame(1, {i, 0, 1});
  for (TensorIndex i : {5u, 4u}) t.b.SendFrame(1, {i, 0, 1});
  for (const Pull& pull : t.b.All<Pull>()) {
    for (const ChunkRange& range : pull.wanted) {
      EXPECT_NE(range.tensor, 0u);
      EXPECT_NE(range.tensor, 3u);
    }
  }
  t.a.Commit();
  t.b.Commit();
  EXPECT_EQ(t.a.lane().last, 1u);
}

TEST(Pull, ALayoutThatGrowsGrowsTheFront) {
  NarrowPair t(Narrow(2), 4);
  t.a.repushes = t.b.repushes = false;
  for (TestWorker* worker : {&t.a, &t.b}) worker->Begin();
  for (TensorIndex i : {0u, 1u}) t.a.SendFrame(1, {i, 0, 1});
  for (TensorIndex i : {3u, 2u}) t.b.SendFrame(1, {i, 0, 1});
  ASSERT_TRUE(t.round()->pull_mode());
  t.a.Register({Tensor("late")});
  t.a.repushes = t.b.repushes = true;
  for (TestWorker* worker : {&t.a, &t.b}) {
    for (TensorIndex i = 0; i < 5; ++i) worker->lane().pushed.insert({i, 0});
  }
  for (TensorIndex i : {0u, 1u}) t.b.SendFrame(1, {i, 0, 1});
  t.a.Commit();
  t.b.Commit();
  EXPECT_EQ(t.a.lane().last, 1u);
  EXPECT_EQ(t.a.lane().delivered[1].at({4, 0}), (Reduced{3, 2}));
}

// A job needs no more than the memory that it is admitted with: whatever order its workers push in,
// the round ends, and the shell never holds more than one parked frame for each worker and one
// frame of results.
class LeastMemory {
 public:
  LeastMemory(uint32_t workers, uint32_t frame_chunks, uint32_t seed)
      : frame_chunks_(frame_chunks),
        random_(seed),
        t_(Settings(1, workers, workers), ConfigFor(workers, frame_chunks)) {
    std::vector<TensorSpec> tensors;
    for (uint32_t i = 0; i < kChunks; ++i) tensors.push_back(Tensor("t" + std::to_string(i)));
    for (uint32_t i = 0; i < workers; ++i) {
      workers_.push_back(&t_.Worker(std::string(1, static_cast<char>('a' + i))));
      workers_.back()->Connect();
      workers_.back()->Register(tensors);
    }
    for (TestWorker* worker : workers_) worker->Ready();
  }

  void Run() {
    t_.reduces = false;
    for (TestWorker* worker : workers_) {
      worker->Begin();
      for (TensorIndex i = 0; i < kChunks; ++i) worker->lane().pushed.insert({i, 0});
      std::vector<TensorIndex>& order = orders_.emplace_back(kChunks);
      std::iota(order.begin(), order.end(), 0);
      std::shuffle(order.begin(), order.end(), random_);
    }
    std::vector<bool> committed(workers_.size());
    for (int turn = 0; turn < 5000 && workers_[0]->lane().last == 0; ++turn) {
      const size_t who = random_() % (workers_.size() + 1);
      if (who == workers_.size()) {
        t_.FinishReduces();
      } else if (!orders_[who].empty()) {
        Push(*workers_[who], orders_[who]);
      } else if (!committed[who]) {
        committed[who] = true;  // The core pulls the discarded chunks later.
        workers_[who]->Commit();
      }
      ASSERT_LE(t_.kept_chunks(), workers_.size() * frame_chunks_) << "parked, turn " << turn;
      ASSERT_LE(t_.held_results(), frame_chunks_) << "results, turn " << turn;
    }
    for (TestWorker* worker : workers_) {
      ASSERT_EQ(worker->lane().last, 1u) << worker->id << " waits";
      for (TensorIndex i = 0; i < kChunks; ++i) {
        const uint64_t sum = (uint64_t{1} << workers_.size()) - 1;
        ASSERT_EQ(worker->lane().delivered[1].at({i, 0}), (Reduced{sum, workers_.size()}));
      }
    }
    pulled_ += t_.Notes(NoteKind::kPullMode);
  }
  size_t pulled() const { return pulled_; }

 private:
  static constexpr uint32_t kChunks = 12;

  static Config ConfigFor(uint32_t workers, uint32_t frame_chunks) {
    Config config;
    config.frame_bytes = frame_chunks * kChunkBytes;
    config.memory_bytes = LeastLaneMemory(config, workers, kChunks * kChunkBytes).reserved +
                          TrackingBytes(workers, kChunks) + kChunks * EntryBytes(Tensor("t00"));
    return config;
  }

  // Pushes the next chunk in this worker's own order, unless pull mode decides what to push.
  void Push(TestWorker& worker, std::vector<TensorIndex>& order) {
    if (t_.round() == nullptr || t_.round()->pull_mode()) {
      order.clear();
      return;
    }
    const ChunkRange range{order.back(), 0, 1};
    worker.inbox.clear();
    worker.SendFrame(1, range);
    for (const Credit& credit : worker.All<Credit>()) {
      for (const ChunkRange& refused : credit.refused) {
        if (refused == range) return;  // It is pushed again later.
      }
    }
    order.pop_back();
  }

  const uint32_t frame_chunks_;
  std::mt19937 random_;
  Cluster t_;
  std::vector<TestWorker*> workers_;
  std::vector<std::vector<TensorIndex>> orders_;  // The chunks still to push, the last one first.
  size_t pulled_ = 0;
};

TEST(Pull, TheLeastMemoryIsEnoughAndIsNotExceeded) {
  for (const uint32_t workers : {2, 3, 7}) {
    for (const uint32_t frame_chunks : {1, 2}) {
      size_t pulled = 0;
      for (uint32_t seed = 0; seed < 40; ++seed) {
        SCOPED_TRACE(std::to_string(workers) + " workers, frames of " +
                     std::to_string(frame_chunks) + ", seed " + std::to_string(seed));
        LeastMemory run(workers, frame_chunks, seed);
        run.Run();
        if (testing::Test::HasFailure()) return;
        pulled += run.pulled();
      }
      EXPECT_GT(pulled, 20u) << "too few of the orders fill the windows";
    }
  }
}

TEST(Results, TheWindowHoldsReductionsBack) {
  NarrowPair t(Narrow(1), 3);
  t.a.acks = t.b.acks = false;
  for (TestWorker* worker : {&t.a, &t.b}) {
    worker->Begin();
    worker->PushTensor(0);
  }
  for (TestWorker* worker : {&t.a, &t.b}) worker->PushTensor(1);
  EXPECT_EQ(t.Actions<Reduce>().size(), 1u);
  const Ballot ballot = t.round()->ballot;
  t.a.Send(ResultAck{0, 1, ballot, {{0, 0, 1}}});
  EXPECT_EQ(t.Actions<Reduce>().size(), 1u) << "b has not acknowledged it";
  t.b.Send(ResultAck{0, 1, ballot, {{0, 0, 1}}});
  EXPECT_EQ(t.Actions<Reduce>().size(), 2u);
  EXPECT_EQ(t.Actions<ReleaseResult>().size(), 1u);
}

TEST(Results, NeighboursAreReducedTogetherUpToAFrame) {
  Config config;
  config.frame_bytes = 2 * kChunkBytes;
  Cluster t(Settings(1, 1, 1), config);
  t.Worker("a").Connect();
  t["a"].Register({Tensor("w", 5)});
  t["a"].Ready();
  t["a"].SendFrame(1, {0, 0, 2});
  t["a"].SendFrame(1, {0, 2, 2});
  t["a"].SendFrame(1, {0, 4, 1});
  t.ClearLog();
  t["a"].Begin();
  std::vector<ChunkRange> ranges;
  for (const Reduce& reduce : t.Actions<Reduce>()) ranges.push_back(reduce.ranges.front());
  EXPECT_THAT(ranges, ElementsAre(ChunkRange{0, 0, 2}, ChunkRange{0, 2, 2}, ChunkRange{0, 4, 1}));
}

// ---- memory

TEST(Memory, Fault_A7_AJobThatCannotFitIsRefusedWithTheNumbers) {
  Config config;
  config.memory_bytes = uint64_t{16} << 20;
  Cluster t(Settings(1, 8, 1), config);
  t.Join("a");
  ASSERT_TRUE(t["a"].ended.has_value());
  EXPECT_EQ(t["a"].ended->code, ErrorCode::kResourceExhausted);
  // N parked frames, one frame widened eightfold, and one of results: (8 + 8 + 1) MiB.
  EXPECT_THAT(t["a"].ended->text, HasSubstr("needs at least 17825792 bytes for 8 workers"));
  EXPECT_THAT(
      t["a"].ended->text,
      HasSubstr(
          "16777216 of 16777216 are free. Give the aggregator more memory, or lower max_workers."));
  EXPECT_EQ(t.core->FindJob(kJob), nullptr);
}

TEST(Memory, ALaneThatDoesNotFitWaitsForAnother) {
  Config config = Narrow(1);
  config.memory_bytes = 11 * kChunkBytes;
  Cluster t(Settings(1, 1, 1), config);
  t.Worker("a").Connect();
  t["a"].Register({Tensor("w")}, "first");
  t["a"].Register({Tensor("w")}, "call/second", LaneKind::kCall);
  t["a"].Ready();
  EXPECT_EQ(t["a"].lane("first").window, kChunkBytes);
  EXPECT_EQ(t["a"].lane("call/second").window, 0u);
  EXPECT_GE(t.Notes(NoteKind::kLaneWaitsForMemory), 1u);
  EXPECT_THAT(t.NoteText(NoteKind::kLaneWaitsForMemory),
              AllOf(HasSubstr("Lane call/second waits for memory of the aggregator: "),
                    HasSubstr("Raise memory.budget")));
  // The round waits, and nothing is lost. Its trainer is told for what it waits.
  t["a"].Begin(Spec(ReduceOp::kSum), "call/second");
  EXPECT_EQ(t["a"].Last<HeldUp>().round, 1u);
  EXPECT_THAT(t["a"].Last<HeldUp>().text,
              AllOf(HasSubstr("memory of the aggregator: "), HasSubstr("Raise memory.budget")));
  t["a"].Push(0, 0, 1, "call/second");
  EXPECT_THAT(t["a"].Last<Credit>().refused, ElementsAre(ChunkRange{0, 0, 1}));
  EXPECT_EQ(t.core->reserved_bytes(),
            10 * kChunkBytes + 2 * (TrackingBytes(1, 1) + EntryBytes(Tensor("w"))));
}

TEST(Memory, WhatIsKnownOfChunksIsCharged) {
  Config config;
  config.frame_bytes = config.window_bytes = config.result_window_bytes = kChunkBytes;
  config.memory_bytes = uint64_t{64} << 20;
  Cluster t(Settings(1, 100, 1), config);
  TestWorker& a = t.Worker("a");
  a.Connect();
  a.Register({Tensor("huge", 200000)});
  EXPECT_EQ(a.rejected(), ErrorCode::kResourceExhausted);
  EXPECT_THAT(a.Last<Rejected>().error.text,
              HasSubstr("would need at least 216573968 bytes for 100 workers, 188000000 of them to "
                        "track 200000 chunks and 272 to describe its tensors, but "
                        "the aggregator has 67108864"));
  EXPECT_TRUE(a.lane().tensors.empty());
  a.Register({Tensor("large", 20000)});
  EXPECT_EQ(a.lane().tensors.size(), 1u);
  EXPECT_GE(t.core->reserved_bytes(), TrackingBytes(100, 20000));
  a.Register({Tensor("large", 30000)}, "second");
  EXPECT_THAT(a.Last<Rejected>().error.text,
              HasSubstr("needs 28200272 more bytes to track its 30000 chunks"));
}

// Empty tensors have no chunks, but they have names and shapes.
TEST(Memory, Fault_S6_WhatTensorsAreCalledIsCharged) {
  Config config;
  config.frame_bytes = config.window_bytes = config.result_window_bytes = kChunkBytes;
  config.memory_bytes = uint64_t{16} << 20;
  Cluster t(Settings(1, 1, 1), config);
  TestWorker& a = t.Worker("a");
  a.Connect();
  const uint64_t before = t.core->reserved_bytes();
  std::vector<TensorSpec> tensors;
  for (int i = 0; i < 1000; ++i) {
    std::string name = absl::StrCat("t", i, "/");
    name.resize(256, 'n');
    tensors.push_back({name, DType::kF32, std::vector<uint64_t>(16, 0)});
  }
  a.Register(tensors, "call/names", LaneKind::kCall);
  ASSERT_EQ(t.job().lanes[0].layout.version(), 1000u);
  // Each tensor holds its name twice, and sixteen sizes.
  EXPECT_GE(t.core->reserved_bytes(), before + 1000 * (2 * 256 + 16 * 8));
  // An idle lane keeps its names.
  t.Sleep(config.idle_lane_timeout + absl::Seconds(1));
  EXPECT_GE(t.core->reserved_bytes(), before + 1000 * (2 * 256 + 16 * 8));
  // A lane that does not fit is refused.
  for (int lane = 0; a.Count<Rejected>() == 0; ++lane) {
    ASSERT_LT(lane, 60);
    a.Register(tensors, absl::StrCat("call/", lane), LaneKind::kCall);
  }
  EXPECT_EQ(a.rejected(), ErrorCode::kResourceExhausted);
  EXPECT_LE(t.core->reserved_bytes(), config.memory_bytes);
  // A forgotten job returns all memory.
  a.Cut();
  t.Sleep(config.idle_job_timeout + absl::Minutes(1));
  EXPECT_EQ(t.core->FindJob(kJob), nullptr);
  EXPECT_EQ(t.core->reserved_bytes(), 0u);
}

TEST(Memory, AJobThatCannotBeKeptTrackOfIsNotRecoveredUntilItCan) {
  Config config;
  config.frame_bytes = config.window_bytes = config.result_window_bytes = kChunkBytes;
  Cluster t(Settings(1, 2, 1), config);
  TestWorker& a = t.Join("a");
  a.Contribute();
  a.Register({Tensor("large", 200000)});
  t.config.memory_bytes = uint64_t{8} << 20;
  t.Crash(5000);
  a.fresh = false;
  a.Connect();
  EXPECT_EQ(t.job().state(), JobState::kHalted);
  EXPECT_THAT(t.job().reason, HasSubstr("its lanes need 11600932 bytes"));
  EXPECT_THAT(t.job().reason, HasSubstr("give the aggregator more"));
  t.config.memory_bytes = uint64_t{64} << 20;
  t.Crash(5001);
  a.Connect();
  EXPECT_EQ(t.job().state(), JobState::kRunning);
  EXPECT_GE(t.core->reserved_bytes(), TrackingBytes(2, 200000));
}

TEST(Memory, AnIdleCallLaneGivesItsMemoryAtOnceAndKeepsItsNumber) {
  Config config = Narrow(1);
  config.memory_bytes = 11 * kChunkBytes;
  Cluster t(Settings(1, 1, 1), config);
  t.Worker("a").Connect();
  t["a"].Register({Tensor("w")}, "call/first", LaneKind::kCall);
  t["a"].Ready();
  t["a"].Contribute(Spec(ReduceOp::kSum), "call/first");
  EXPECT_EQ(t["a"].lane("call/first").last, 1u);
  t["a"].Register({Tensor("w")}, "second");
  EXPECT_EQ(t["a"].lane("second").window, kChunkBytes) << "the other lane has its memory now";
  t["a"].Begin(Spec(ReduceOp::kSum), "second");
  t["a"].PushTensor(0, "second");
  t["a"].Commit("second");
  EXPECT_EQ(t["a"].lane("second").last, 1u);
  // The call lane is used again, because there is memory, and continues with its next round.
  t["a"].Begin(Spec(ReduceOp::kSum), "call/first");
  EXPECT_EQ(t.round(0)->number, 2u);
}

// Calls with many chunks, and memory for one of them.
constexpr uint64_t kManyChunks = 20000;
Config RoomForOneLarge() {
  Config config = Narrow(1);
  config.memory_bytes = 10 * kChunkBytes + TrackingBytes(1, kManyChunks) * 3 / 2;
  return config;
}

TEST(Memory, AnIdleCallGivesWayToWhatIsKnownOfAnother) {
  Cluster t(Settings(1, 1, 1), RoomForOneLarge());
  TestWorker& a = t.Worker("a");
  a.Connect();
  a.Register({Tensor("w", kManyChunks)}, "call/first", LaneKind::kCall);
  a.Ready();
  a.Contribute(Spec(ReduceOp::kSum), "call/first", {0});
  a.Register({Tensor("w", kManyChunks)}, "call/second", LaneKind::kCall);
  EXPECT_EQ(a.Count<Rejected>(), 0u);
  EXPECT_TRUE(t.job().lanes[0].expired);
  a.Contribute(Spec(ReduceOp::kSum), "call/second", {0});
  EXPECT_EQ(a.lane("call/second").last, 1u);
  // Each takes the place of the other.
  a.Contribute(Spec(ReduceOp::kSum), "call/first", {0});
  EXPECT_EQ(a.lane("call/first").last, 2u);
  EXPECT_TRUE(t.job().lanes[1].expired);
  EXPECT_EQ(a.Count<Rejected>(), 0u);
}

TEST(Memory, ACallWhoseMemoryAGradientLaneHasForGoodEndsAndSaysSo) {
  Cluster t(Settings(1, 1, 1), RoomForOneLarge());
  TestWorker& a = t.Worker("a");
  a.Connect();
  a.Register({Tensor("w", kManyChunks)}, "call/first", LaneKind::kCall);
  a.Ready();
  a.Contribute(Spec(ReduceOp::kSum), "call/first", {0});
  a.Register({Tensor("w", kManyChunks)}, "second");
  ASSERT_TRUE(t.job().lanes[0].expired);
  // A frame before its begin must come again, should there be memory for that.
  a.Push(0, 0, 1, "call/first");
  EXPECT_EQ(a.Last<Credit>().window, 0u);
  EXPECT_THAT(a.Last<Credit>().refused, ElementsAre(ChunkRange{0, 0, 1}));
  ASSERT_EQ(a.Count<Rejected>(), 0u);
  a.Begin(Spec(ReduceOp::kSum), "call/first");
  const Rejected rejected = a.Last<Rejected>();
  EXPECT_EQ(rejected.error.code, ErrorCode::kFailedPrecondition) << "no verdict will come";
  EXPECT_EQ(rejected.lane, 0u);
  EXPECT_EQ(rejected.round, 2u);
  EXPECT_THAT(rejected.error.text,
              AllOf(HasSubstr("lane call/first, round 2"), HasSubstr("raise memory.budget")));
}

// A job that is remembered only to show how it ended takes no memory from others. Its workers may
// have finished, or may have been lost.
TEST(Memory, Fault_A7_AJobThatAllWorkersHaveLeftGivesItsMemoryBack) {
  for (const bool finished : {true, false}) {
    Config config = Narrow(1);
    config.memory_bytes = 11 * kChunkBytes;
    Cluster t(Settings(1, 1, 1), config);
    t.Join("a").Contribute(Spec(ReduceOp::kSum));
    t.Worker("b").job = "other";
    t["b"].Connect();
    EXPECT_TRUE(t["b"].ended.has_value()) << "the first job has all the memory";
    const auto end = [&] {
      t.Step(finished ? Input{MessageReceived{t["a"].session, Leave{}}}
                      : Input{WorkerExited{kJob, "a"}});
    };
    end();
    ASSERT_NE(t.core->FindJob(kJob), nullptr);
    t.Join("b").Contribute(Spec(ReduceOp::kSum));
    EXPECT_EQ(t["b"].lane().last, 1u);
    // The next run of the first job uses its lane again, as soon as there is memory.
    t.Step(MessageReceived{t["b"].session, Leave{}});
    t["a"].Restart();
    t.Join("a").Contribute(Spec(ReduceOp::kSum));
    EXPECT_EQ(t["a"].lane().last, 2u);
    end();
  }
}

// A joiner of the lane knows the window of the next rounds, even if it came while there was none.
TEST(Memory, AWorkerOutsideTheOpenRoundLearnsThatItsLaneHasMemoryNow) {
  Config config = Narrow(2);
  config.memory_bytes = 13 * kChunkBytes;
  Cluster t(Settings(1, 2, 1), config);
  t.Worker("a").Connect();
  t["a"].Register({Tensor("w")}, "call/first", LaneKind::kCall);
  t["a"].Ready();
  t["a"].Begin(Spec(ReduceOp::kSum), "call/first");
  t["a"].Register({Tensor("w")}, "second");
  t["a"].Begin(Spec(ReduceOp::kSum), "second");
  t.Worker("b").Connect();
  t["b"].Register({Tensor("w")}, "second");
  ASSERT_EQ(t["b"].lane("second").window, 0u) << "this test has to begin without memory";
  t.ClearLog();
  t["a"].PushTensor(0, "call/first");
  t["a"].Commit("call/first");
  t.Sleep(config.idle_lane_timeout + absl::Seconds(1));
  ASSERT_EQ(t["b"].Count<Credit>(), 1u);
  EXPECT_EQ(t["b"].Last<Credit>().window, kChunkBytes);
}

TEST(Memory, ALaneThatOutgrowsItsFrameGetsMore) {
  Cluster t(Settings(1, 1, 1));
  t.Worker("a").Connect();
  t["a"].Register({{"small", DType::kF32, {4}}});
  t["a"].Ready();
  EXPECT_EQ(t["a"].lane().window, 16u);
  t["a"].Begin();
  t["a"].Register({Tensor("large", 4)});
  EXPECT_EQ(t["a"].Last<Credit>().window, 16 + 4 * kChunkBytes) << "it grows during the round";
  t["a"].PushTensor(0);
  t["a"].PushTensor(1);
  t["a"].Commit();
  EXPECT_EQ(t["a"].lane().last, 1u);
}

TEST(Memory, ThePlanNeverExceedsWhatIsFree) {
  Config config;
  for (uint64_t workers : {1, 2, 7, 64}) {
    for (uint64_t bytes : {uint64_t{0}, uint64_t{5}, kChunkBytes, uint64_t{1} << 30}) {
      for (uint64_t free : {uint64_t{0}, uint64_t{100}, uint64_t{1} << 24, uint64_t{1} << 33}) {
        const auto plan = PlanLaneMemory(config, workers, 1, bytes, free, LaneMemory{});
        const LaneMemory least = LeastLaneMemory(config, workers, bytes);
        ASSERT_EQ(plan.has_value(), least.reserved <= free);
        if (!plan.has_value()) continue;
        EXPECT_LE(plan->reserved, free);
        EXPECT_GE(plan->window, least.frame);
        EXPECT_GE(plan->result_window, least.frame);
        EXPECT_EQ(plan->reserved,
                  workers * plan->window + kWidening * plan->frame + plan->result_window);
        const auto spread = PlanLaneMemory(config, workers, 64, bytes, free, LaneMemory{});
        ASSERT_TRUE(spread.has_value()) << "shards never make the least larger";
        EXPECT_LE(spread->reserved, free);
        EXPECT_GE(spread->result_window, plan->result_window);
      }
    }
  }
}

TEST(Memory, TheWindowOfResultsHasTwoFramesForEachShard) {
  const Config config;
  constexpr uint64_t kModel = uint64_t{1} << 30;
  const auto window = [&](uint64_t shards, uint64_t bytes, const LaneMemory& held = {}) {
    constexpr uint64_t kPlenty = uint64_t{1} << 40;
    return PlanLaneMemory(config, 4, shards, bytes, kPlenty, held)->result_window;
  };
  EXPECT_EQ(window(1, kModel), config.result_window_bytes);
  EXPECT_EQ(window(4, kModel), config.result_window_bytes) << "which is two frames for each";
  EXPECT_EQ(window(64, kModel), 128 * config.frame_bytes);
  EXPECT_EQ(window(64, 20 * config.frame_bytes), 20 * config.frame_bytes) << "no more than all";
  const auto held = PlanLaneMemory(config, 4, 64, kModel, uint64_t{1} << 40, LaneMemory{});
  EXPECT_EQ(window(1, kModel, *held), 128 * config.frame_bytes) << "it is not taken back";
}

}  // namespace
}  // namespace basin::aggregator
