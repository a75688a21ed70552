// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The parts of the engine by themselves.

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "aggregator/engine/buffer_pool.h"
#include "aggregator/engine/fair_queue.h"
#include "aggregator/engine/result_arena.h"
#include "aggregator/engine/round_store.h"
#include "aggregator/engine/thread_pool.h"
#include "runtime/payload.h"
#include "tests/aggregator/engine/in_process.h"

namespace basin::aggregator {
namespace {

// In parts of one chunk, as if other jobs had their turns between them.
void ReduceWhole(Reduction& reduction, const kernels::Reducer& reducer, BufferPool& pool) {
  size_t parts = 1;
  while (!RunPart(reduction, reducer, pool, 1)) ++parts;
  EXPECT_EQ(parts, reduction.chunks.size());
}

std::string Join(const PayloadParts& parts) {
  std::string bytes;
  for (const std::string_view piece : parts.Pieces()) bytes.append(piece);
  return bytes;
}

TEST(Payload, PartsAreCutAcrossPieces) {
  const auto payload = std::make_shared<StringPayload>("abcdefghij", 3);
  for (uint64_t offset = 0; offset <= 10; ++offset) {
    for (uint64_t size = 0; offset + size <= 10; ++size) {
      PayloadParts parts;
      parts.Append({payload, offset, size});
      EXPECT_EQ(Join(parts), std::string("abcdefghij").substr(offset, size));
    }
  }
}

TEST(Payload, NeighboursAreJoined) {
  const auto one = std::make_shared<StringPayload>("abcdef", 6);
  const auto other = std::make_shared<StringPayload>("ghi", 3);
  PayloadParts parts;
  parts.Append({one, 0, 2});
  parts.Append({one, 2, 3});
  EXPECT_EQ(parts.parts().size(), 1u);
  parts.Append({other, 0, 3});
  parts.Append({one, 0, 1});
  EXPECT_EQ(parts.parts().size(), 3u);
  EXPECT_EQ(Join(parts), "abcdeghia");
  EXPECT_EQ(parts.bytes(), 9u);
}

TEST(BufferPool, UsesBuffersAgainAndKeepsNoMoreThanItMay) {
  BufferPool pool(1 << 20);
  char* first = nullptr;
  {
    const auto buffer = pool.Take(300000);
    first = buffer->data();
    EXPECT_EQ(buffer->size(), 300000u);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(first) % 64, 0u);
    EXPECT_EQ(pool.used_bytes(), 512u * 1024);
    std::memset(first, 1, 300000);
  }
  EXPECT_EQ(pool.used_bytes(), 0u);
  EXPECT_EQ(pool.idle_bytes(), 512u * 1024);
  EXPECT_EQ(pool.Take(400000)->data(), first);
  {
    std::vector<std::shared_ptr<Buffer>> many;
    for (int i = 0; i < 5; ++i) many.push_back(pool.Take(400000));
  }
  EXPECT_EQ(pool.idle_bytes(), 1024u * 1024);
}

TEST(BufferPool, BuffersOutliveIt) {
  std::shared_ptr<Buffer> buffer;
  {
    BufferPool pool(1 << 20);
    buffer = pool.Take(10);
  }
  buffer->data()[9] = 'x';
  EXPECT_EQ(buffer->pieces()[0][9], 'x');
}

TEST(Frame, ContentsAreThoseOfTheChunksWhateverThePieces) {
  std::string bytes(2 * kChunkBytes + 100, '\0');
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(i * 31 >> 3);
  const ChunkContents whole = HashChunks(StringPayload(bytes, bytes.size()).pieces(), kChunkBytes);
  ASSERT_EQ(whole.size(), 3u);
  for (const size_t piece : {size_t{1000}, size_t{kChunkBytes}, size_t{kChunkBytes + 1}}) {
    EXPECT_EQ(HashChunks(StringPayload(bytes, piece).pieces(), kChunkBytes), whole);
  }
  // The term made of a content is that of the bytes.
  const kernels::TensorKey key("weight");
  kernels::RangeDigest range(key, 1);
  range.Update(bytes.data() + kChunkBytes, kChunkBytes);
  EXPECT_EQ(kernels::TermOf(key, 1, whole[1]), range.Finish());
}

TEST(ThreadPool, RunEverythingInOrderPerKey) {
  std::atomic<int> ran{0};
  std::vector<std::vector<int>> seen(5);
  {
    ThreadPool threads("test", 3);
    EXPECT_EQ(threads.count(), 3u);
    for (int i = 0; i < 500; ++i) {
      threads.Submit(i % 5, [&, i] {
        seen[i % 5].push_back(i);
        ran.fetch_add(1);
      });
    }
  }
  EXPECT_EQ(ran.load(), 500);
  for (const auto& order : seen) {
    EXPECT_EQ(order.size(), 100u);
    EXPECT_TRUE(std::is_sorted(order.begin(), order.end()));
  }
}

// One thread, which runs nothing before all tasks are there.
class OneThread {
 public:
  OneThread() {
    threads_->Submit(0, 99, 0, [this] {
      MutexLock lock(mutex_);
      while (held_) released_.Wait(mutex_);
    });
  }
  // A task of a job, which reads so many KiB.
  void Add(uint64_t job, uint64_t kib, char name) {
    threads_->Submit(0, job, kib << 10, [this, name] { ran_ += name; });
  }
  // The names in the order in which the tasks ran.
  std::string Run() {
    {
      MutexLock lock(mutex_);
      held_ = false;
      released_.NotifyAll();
    }
    threads_.reset();
    return ran_;
  }

 private:
  Mutex mutex_;
  Condition released_;
  bool held_ ABSL_GUARDED_BY(mutex_) = true;
  std::string ran_;  // The thread's until it has ended.
  std::unique_ptr<ThreadPool> threads_ = std::make_unique<ThreadPool>("test", 1);
};

TEST(ThreadPool, AJobsFloodDelaysAnotherJobByOneTask) {
  OneThread thread;
  for (int i = 0; i < 100; ++i) thread.Add(1, 4096, 'f');
  thread.Add(2, 1024, 'x');
  const std::string ran = thread.Run();
  EXPECT_EQ(ran.size(), 101u);
  EXPECT_LE(ran.find('x'), 1u) << ran;
}

TEST(ThreadPool, JobsShareAThreadByBytes) {
  OneThread thread;
  for (int i = 0; i < 10; ++i) thread.Add(1, 4096, 'L');
  for (int i = 0; i < 40; ++i) thread.Add(2, 1024, 's');
  const std::string ran = thread.Run();
  // After any number of tasks, neither is ahead of the other by more than the longest task, and by
  // what rounding to turns costs.
  int ahead = 0;
  for (const char name : ran) {
    ahead += name == 'L' ? 4 : -1;
    EXPECT_LE(std::abs(ahead), 5) << ran;
  }
}

TEST(ThreadPool, TheTasksOfAJobKeepTheirOrder) {
  OneThread thread;
  for (const char name : {'a', 'b', 'c', 'd'}) thread.Add(1, name == 'b' ? 8192 : 64, name);
  for (const char name : {'w', 'x', 'y', 'z'}) thread.Add(2, name == 'y' ? 8192 : 64, name);
  const std::string ran = thread.Run();
  std::string one;
  std::string other;
  for (const char name : ran) (name < 'w' ? one : other) += name;
  EXPECT_EQ(one, "abcd");
  EXPECT_EQ(other, "wxyz");
}

// Takes items, in order, until none waits.
std::string All(FairQueue<char>& turns) {
  std::string taken;
  while (!turns.empty()) taken += turns.Next();
  return taken;
}

TEST(FairQueue, EachConnectionHasOneInTurn) {
  FairQueue<char> turns;
  for (const char item : {'a', 'b', 'c', 'd'}) turns.Add(1, item);
  turns.Add(2, 'x');
  turns.Add(3, 'y');
  turns.Add(2, 'z');
  EXPECT_EQ(turns.size(), 7u);
  EXPECT_EQ(All(turns), "axybzcd");
}

TEST(FairQueue, WhoComesToAFloodWaitsForOneOfIt) {
  FairQueue<char> turns;
  for (int i = 0; i < 1000; ++i) turns.Add(1, 'f');
  for (int i = 0; i < 500; ++i) EXPECT_EQ(turns.Next(), 'f');
  for (int i = 0; i < 10; ++i) {
    turns.Add(2, 'x');
    turns.Add(1, 'f');
    std::string next(1, turns.Next());
    next += turns.Next();
    EXPECT_NE(next.find('x'), std::string::npos) << next;
  }
}

TEST(FairQueue, WhatIsOfNoConnectionIsTakenNowOrLast) {
  FairQueue<char> turns;
  for (const char item : {'a', 'b', 'c'}) turns.Add(1, item);
  turns.AddLast('z');
  turns.Add(1, 'd');
  turns.Add(2, 'x');
  turns.AddNow('n');
  EXPECT_EQ(All(turns), "naxbczd") << "z waits for a, b and c";
  turns.AddLast('z');
  turns.Add(1, 'a');
  EXPECT_EQ(All(turns), "za");
}

TEST(FairQueue, WhatTookLongIsCharged) {
  FairQueue<char> turns;
  for (const char item : {'a', 'b', 'c'}) turns.Add(1, item);
  EXPECT_EQ(turns.Next(), 'a');
  turns.Charge(1, 3);
  for (const char item : {'u', 'v', 'w', 'x', 'y'}) turns.Add(2, item);
  EXPECT_EQ(All(turns), "uvwbxcy");
  turns.Charge(1, 2);
  turns.Add(1, 'd');
  for (const char item : {'u', 'v', 'w', 'x'}) turns.Add(2, item);
  EXPECT_EQ(All(turns).find('d'), 2u) << "also when it had nothing waiting";
}

// As the loop charges them: each event of a job costs as many turns as the job has workers.
TEST(FairQueue, Fault_A6_AJobOfManyConnectionsDelaysAnotherAsOneConnectionDoes) {
  constexpr uint64_t kFlood = 60;
  FairQueue<uint64_t> turns;
  for (int i = 0; i < 100; ++i) {
    for (uint64_t connection = 1; connection <= kFlood; ++connection) {
      turns.Add(connection, connection);
    }
  }
  const auto take = [&turns] {
    const uint64_t connection = turns.Next();
    turns.Charge(connection, (connection > kFlood ? 2 : kFlood) - 1);
    return connection;
  };
  for (uint64_t i = 0; i < 10 * kFlood; ++i) EXPECT_LE(take(), kFlood);
  for (int round = 0; round < 20; ++round) {
    const uint64_t small = kFlood + 1 + static_cast<uint64_t>(round % 2);
    turns.Add(small, small);
    int waits = 0;
    while (take() != small) ++waits;
    EXPECT_LE(waits, 6) << "round " << round;
  }
}

TEST(FairQueue, WhoKeepsComingDoesNotShutOutWhoWaits) {
  FairQueue<char> turns;
  for (int i = 0; i < 100; ++i) turns.Add(1, 'a');
  int taken = 0;
  for (uint64_t connection = 2; connection < 1000; ++connection) {
    turns.Add(connection, 'b');
    taken += turns.Next() == 'a';
  }
  EXPECT_GE(taken, 40);
}

class RoundStoreTest : public ::testing::Test {
 protected:
  // Keeps `count` chunks of tensor 0 from `first`, all of the byte `fill`.
  void Keep(const Incarnation& who, uint32_t first, uint32_t count, char fill) {
    IncomingFrame incoming;
    const ContributionHeader frame{0, 1, {0, first, count}};
    incoming.payload =
        std::make_shared<StringPayload>(std::string(count * kChunkBytes, fill), 1 << 20);
    incoming.payload_bytes = count * kChunkBytes;
    incoming.header = frame;
    store_.Keep(who, RangesOf(frame.runs), frame, incoming);
  }
  static StartAttempt Attempt(uint64_t number) {
    StartAttempt start;
    start.ballot = {1, number};
    start.spec.op = ReduceOp::kSum;
    start.contributors = {{"a", {1, 1}, 1}, {"b", {1, 2}, 1}};
    return start;
  }
  static Reduce ReduceOf(uint64_t attempt, uint32_t first, uint32_t count,
                         std::vector<uint32_t> skipped = {}) {
    Reduce reduce;
    reduce.ballot = {1, attempt};
    reduce.ranges = {{0, first, count}};
    reduce.skipped = std::move(skipped);
    return reduce;
  }
  std::unique_ptr<Reduction> Reduced(const Reduce& reduce) {
    auto reduction = store_.TakeInputs(reduce);
    if (reduction == nullptr) return nullptr;
    reduction->tensors = {{{"t", DType::kU8, {8 * kChunkBytes}}, kernels::TensorKey("t")}};
    ReduceWhole(*reduction, *reducer_, pool_);
    return reduction;
  }

  RoundStore store_;
  BufferPool pool_{0};
  const std::unique_ptr<kernels::Reducer> reducer_ = kernels::MakeCpuReducer();
};

TEST_F(RoundStoreTest, InputsAreTakenOnce) {
  store_.Start(Attempt(1));
  Keep({1, 1}, 0, 2, 1);
  EXPECT_EQ(store_.TakeInputs(ReduceOf(1, 0, 2)), nullptr);  // b's are missing.
  Keep({1, 1}, 0, 2, 1);
  Keep({1, 2}, 0, 2, 2);
  EXPECT_EQ(store_.parked_bytes(), 4 * kChunkBytes);
  const auto reduction = Reduced(ReduceOf(1, 0, 2));
  ASSERT_NE(reduction, nullptr);
  EXPECT_EQ(reduction->done.failure, std::nullopt);
  EXPECT_EQ(reduction->result->data()[kChunkBytes], 3);
  EXPECT_EQ(store_.parked_bytes(), 0u);
  EXPECT_EQ(store_.TakeInputs(ReduceOf(1, 0, 2)), nullptr);
}

TEST_F(RoundStoreTest, KeepingAChunkAgainCountsItOnce) {
  Keep({1, 1}, 0, 2, 1);
  Keep({1, 1}, 1, 2, 1);
  EXPECT_EQ(store_.parked_bytes(), 3 * kChunkBytes);
  EXPECT_TRUE(store_.Discard({1, 1}, {{0, 0, 3}}));
  EXPECT_EQ(store_.parked_bytes(), 0u);
  EXPECT_FALSE(store_.Discard({1, 1}, {{0, 0, 1}}));
}

// Overlapping frames would otherwise pin more than their worker is charged for.
TEST_F(RoundStoreTest, Fault_N11_OfAFrameThatIsNotAllNewOnlyThatIsKept) {
  const ContributionHeader frame{0, 1, {0, 0, 4}};
  IncomingFrame incoming;
  incoming.header = frame;
  incoming.payload = std::make_shared<StringPayload>(
      std::string(3 * kChunkBytes, 1) + std::string(kChunkBytes, 2), 1 << 20);
  incoming.payload_bytes = 4 * kChunkBytes;
  store_.Keep({1, 1}, {{0, 3, 1}}, frame, incoming);
  const std::weak_ptr<const Payload> whole = incoming.payload;
  incoming.payload.reset();
  EXPECT_TRUE(whole.expired());
  EXPECT_EQ(store_.parked_bytes(), kChunkBytes);
  store_.Start(Attempt(1));
  const auto reduction = Reduced(ReduceOf(1, 3, 1, {1}));
  ASSERT_NE(reduction, nullptr);
  EXPECT_EQ(reduction->result->data()[kChunkBytes - 1], 2);
}

// The window counts no chunk that was reduced, so a small one that waits must not keep its frame.
TEST_F(RoundStoreTest, Fault_N11_ASmallTensorThatWaitsDoesNotKeepTheLargeOnesOfItsFrame) {
  constexpr uint32_t kSmall = 1000;
  ContributionHeader frame;
  frame.runs = {{{0, 0, 2}, 2 * kChunkBytes}, {{1, 0, 1}, kSmall}};
  IncomingFrame incoming;
  incoming.header = frame;
  incoming.payload_bytes = 2 * kChunkBytes + kSmall;
  incoming.payload =
      std::make_shared<StringPayload>(std::string(incoming.payload_bytes, 1), 1 << 20);
  store_.Keep({1, 1}, RangesOf(frame.runs), frame, incoming);
  const std::weak_ptr<const Payload> whole = incoming.payload;
  incoming.payload.reset();
  incoming = {};
  EXPECT_FALSE(whole.expired());
  EXPECT_TRUE(store_.Discard({1, 1}, {{0, 0, 2}}));
  EXPECT_TRUE(whole.expired());
  EXPECT_EQ(store_.parked_bytes(), kSmall);
}

// Each chunk lies in one place, and stays there: the memory is the worker's.
TEST_F(RoundStoreTest, WhatIsInSharedMemoryIsReadWhereItLies) {
  constexpr uint32_t kSmall = 1000;
  const auto one = *Segment::Create(kChunkBytes);
  const auto other = *Segment::Create(3 * kChunkBytes);
  std::memset(one->writable(), 5, one->size());
  std::memset(other->writable(), 7, other->size());
  ContributionHeader frame;
  frame.runs = {{{0, 0, 2}, kChunkBytes + kSmall}, {{1, 0, 1}, kSmall}};
  IncomingFrame incoming;
  incoming.header = frame;
  incoming.payload_bytes = kChunkBytes + 2 * kSmall;
  const auto share = [&](const std::shared_ptr<Segment>& segment, uint64_t offset, uint64_t bytes) {
    incoming.shared.Append(std::make_shared<SharedPayload>(
                               segment, std::string_view(segment->data() + offset, bytes), 0),
                           bytes);
  };
  share(other, 64, kChunkBytes);
  share(one, 0, kSmall);
  share(other, 2 * kChunkBytes, kSmall);
  store_.Keep({1, 1}, RangesOf(frame.runs), frame, incoming);
  store_.Start(Attempt(1));
  Reduce reduce = ReduceOf(1, 0, 2, {1});
  reduce.ranges.push_back({1, 0, 1});
  const auto reduction = store_.TakeInputs(reduce);
  ASSERT_NE(reduction, nullptr);
  const auto at = [&](size_t chunk) {
    const PayloadPart& part = reduction->inputs[chunk][0].part;
    return part.owner->pieces()[0].data() + part.offset;
  };
  EXPECT_EQ(at(0), other->data() + 64);
  EXPECT_EQ(at(1), one->data());
  EXPECT_EQ(at(2), other->data() + 2 * kChunkBytes);
}

// The tensor between them was reduced in another frame.
TEST_F(RoundStoreTest, ResultsWithAGapBetweenThemAreInTheSegmentOfTheArena) {
  const auto spec = [](std::string name) {
    return TensorSpec{std::move(name), DType::kU8, {1000}};
  };
  const auto arena = *ResultArena::Create(PlacesOf({spec("t"), spec("u"), spec("v")}), {});
  store_.Start(Attempt(1), arena.get());
  ContributionHeader frame;
  frame.runs = {{{0, 0, 1}, 1000}, {{2, 0, 1}, 1000}};
  IncomingFrame incoming;
  incoming.header = frame;
  incoming.payload_bytes = 2000;
  incoming.payload = std::make_shared<StringPayload>(std::string(2000, 3), 1 << 20);
  store_.Keep({1, 1}, RangesOf(frame.runs), frame, incoming);
  Reduce reduce = ReduceOf(1, 0, 1, {1});
  reduce.ranges.push_back({2, 0, 1});
  const auto reduction = store_.TakeInputs(reduce);
  ASSERT_NE(reduction, nullptr);
  reduction->tensors = {{spec("t"), kernels::TensorKey("t")}, {spec("v"), kernels::TensorKey("v")}};
  ReduceWhole(*reduction, *reducer_, pool_);
  store_.Hold(*reduction);
  const auto result = store_.FrameOf(0, 1, reduce.ranges);
  ASSERT_TRUE(result.has_value());
  EXPECT_EQ(result->payload.parts().size(), 2u);
  ASSERT_NE(result->segment, nullptr);
  for (const std::string_view piece : result->payload.Pieces()) {
    EXPECT_TRUE(result->segment->Has(piece));
    EXPECT_EQ(piece, std::string(1000, 3));
  }
}

TEST_F(RoundStoreTest, AnInputOfAnotherSizeFailsTheReductionAndIsNotRead) {
  store_.Start(Attempt(1));
  Keep({1, 2}, 0, 1, 7);
  const ContributionHeader frame{0, 1, {0, 0, 1}};
  IncomingFrame incoming;
  incoming.encoding = {DType::kBF16, 0};
  incoming.header = frame;
  incoming.payload = std::make_shared<StringPayload>(std::string(100, 1), 1 << 20);
  incoming.payload_bytes = 100;
  store_.Keep({1, 1}, RangesOf(frame.runs), frame, incoming);
  auto reduction = store_.TakeInputs(ReduceOf(1, 0, 1));
  ASSERT_NE(reduction, nullptr);
  reduction->tensors = {{{"t", DType::kF32, {8 * kChunkFloats}}, kernels::TensorKey("t")}};
  ReduceWhole(*reduction, *reducer_, pool_);
  ASSERT_TRUE(reduction->done.failure.has_value());
  EXPECT_NE(reduction->done.failure->find("has 100 bytes from worker a, not 131072"),
            std::string::npos)
      << *reduction->done.failure;
}

TEST_F(RoundStoreTest, SkippedContributionsAreNotNeeded) {
  store_.Start(Attempt(1));
  Keep({1, 2}, 0, 1, 7);
  const auto reduction = Reduced(ReduceOf(1, 0, 1, {0}));
  ASSERT_NE(reduction, nullptr);
  EXPECT_EQ(reduction->result->data()[0], 7);
}

TEST_F(RoundStoreTest, ANewBallotFreesResultsAndVoidsReductions) {
  store_.Start(Attempt(1));
  for (const uint64_t who : {1, 2}) Keep({1, who}, 0, 2, 1);
  const auto first = Reduced(ReduceOf(1, 0, 1));
  const auto second = Reduced(ReduceOf(1, 1, 1));
  store_.Hold(*first);
  EXPECT_EQ(store_.result_bytes(), kChunkBytes);
  store_.Start(Attempt(2));
  EXPECT_EQ(store_.result_bytes(), 0u);
  store_.Hold(*second);  // It belongs to the previous attempt.
  EXPECT_EQ(store_.result_bytes(), 0u);
  EXPECT_EQ(store_.TakeInputs(ReduceOf(1, 0, 1)), nullptr);
  EXPECT_FALSE(store_.Release({1, 1}, {0, 0, 1}));
}

TEST_F(RoundStoreTest, ChunksOfSeveralTensorsAreReducedAndFramedTogether) {
  store_.Start(Attempt(1));
  const std::vector<uint64_t> sizes = {5, 100, kChunkBytes + 7};
  for (const uint64_t who : {1, 2}) {
    ContributionHeader frame{0, 1, {}};
    IncomingFrame incoming;
    std::string bytes;
    for (TensorIndex tensor = 0; tensor < 3; ++tensor) {
      frame.runs.push_back(
          {{2 * tensor, 0, ChunkCount(sizes[tensor])}, static_cast<uint32_t>(sizes[tensor])});
      bytes += std::string(sizes[tensor], static_cast<char>(10 * (tensor + 1) + who));
    }
    incoming.header = frame;
    incoming.payload_bytes = bytes.size();
    incoming.payload = std::make_shared<StringPayload>(bytes, 70);
    store_.Keep({1, who}, RangesOf(frame.runs), frame, incoming);
  }
  Reduce reduce;
  reduce.ballot = {1, 1};
  reduce.ranges = {{0, 0, 1}, {2, 0, 1}, {4, 0, 2}};
  auto reduction = store_.TakeInputs(reduce);
  ASSERT_NE(reduction, nullptr);
  for (const uint64_t size : sizes) {
    const std::string name = std::string("t") + std::to_string(size);
    reduction->tensors.push_back({{name, DType::kU8, {size}}, kernels::TensorKey(name)});
  }
  ReduceWhole(*reduction, *reducer_, pool_);
  ASSERT_EQ(reduction->done.failure, std::nullopt);
  EXPECT_EQ(reduction->done.digests.size(), 4u);
  store_.Hold(*reduction);
  EXPECT_EQ(store_.result_bytes(), 112 + kChunkBytes);
  const std::optional<OutgoingFrame> frame = store_.FrameOf(0, 1, {{0, 0, 1}, {4, 0, 2}});
  ASSERT_TRUE(frame.has_value());
  EXPECT_EQ(Join(frame->payload), std::string(5, 23) + std::string(kChunkBytes + 7, 63));
  const ChunkRuns& runs = std::get<ResultHeader>(frame->header).runs;
  EXPECT_EQ(runs[0].bytes, 5u);
  EXPECT_EQ(runs[1].bytes, kChunkBytes + 7);
}

TEST_F(RoundStoreTest, ResultsAreFramedAndReleased) {
  store_.Start(Attempt(1));
  for (const uint64_t who : {1, 2}) Keep({1, who}, 0, 5, static_cast<char>(who));
  store_.Hold(*Reduced(ReduceOf(1, 0, 3)));
  store_.Hold(*Reduced(ReduceOf(1, 3, 2)));
  const std::optional<OutgoingFrame> frame = store_.FrameOf(0, 1, {{0, 2, 2}});
  ASSERT_TRUE(frame.has_value());
  EXPECT_EQ(RangesOf(std::get<ResultHeader>(frame->header).runs), (ChunkRanges{{0, 2, 2}}));
  EXPECT_EQ(frame->payload.parts().size(), 2u) << "of two buffers";
  EXPECT_EQ(Join(frame->payload), std::string(2 * kChunkBytes, 3));
  EXPECT_EQ(store_.FrameOf(0, 1, {{0, 4, 1}})->payload.bytes(), kChunkBytes);
  EXPECT_FALSE(store_.FrameOf(0, 1, {{0, 4, 2}}).has_value()) << "the second is not here";
  EXPECT_TRUE(store_.Release({1, 1}, {0, 0, 5}));
  EXPECT_FALSE(store_.Release({1, 1}, {0, 0, 1}));
  EXPECT_EQ(store_.result_bytes(), 0u);
}

}  // namespace
}  // namespace basin::aggregator
