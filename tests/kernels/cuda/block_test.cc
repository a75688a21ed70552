// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The threads of a block at the same time: each thread of the kernel is a thread of the host. Under
// ThreadSanitizer this shows that the barrier between tiles separates the threads that fill a
// buffer from those that add it up.

#include <gtest/gtest.h>
#include <pthread.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

#include "kernels/cuda/reduce_body.h"
#include "kernels/float_environment.h"
#include "kernels/reference.h"

namespace basin::kernels::cuda {
namespace {

class Barrier {
 public:
  explicit Barrier(unsigned threads) { pthread_barrier_init(&barrier_, nullptr, threads); }
  ~Barrier() { pthread_barrier_destroy(&barrier_); }
  Barrier(const Barrier&) = delete;
  Barrier& operator=(const Barrier&) = delete;

  void Wait() { pthread_barrier_wait(&barrier_); }

 private:
  pthread_barrier_t barrier_;
};

// The data that the threads of a block share besides the tiles.
struct BlockState {
  explicit BlockState(unsigned threads) : all(threads), warp(kAdders) {}

  Barrier all;
  Barrier warp;  // The adders.
  double exchanged[kAdders] = {};
  std::mutex mutex;
  ThreadFacts facts;  // Guarded by mutex.
};

struct HostBlock {
  BlockState* state;
  unsigned thread;

  void Wait() const { state->all.Wait(); }

  double FromLane(double x, unsigned down) const {
    const unsigned lane = thread - kProducers;
    state->exchanged[lane] = x;
    state->warp.Wait();
    const double other = lane + down < kAdders ? state->exchanged[lane + down] : x;
    state->warp.Wait();
    return other;
  }

  void Publish(const ThreadFacts& seen) const {
    const std::lock_guard<std::mutex> lock(state->mutex);
    state->facts.first_non_finite = std::min(state->facts.first_non_finite, seen.first_non_finite);
    state->facts.overflows += seen.overflows;
    state->facts.integer_wraps += seen.integer_wraps;
  }
};

template <typename Source>
struct Tiles {
  alignas(16) Rounded<Source> values[2][kTile<Source>];
};

template <typename Source>
ThreadFacts RunBlock(const ReduceTask& task, uint64_t block) {
  const auto tiles = std::make_unique<Tiles<Source>>();
  BlockState state(ThreadsOf(task));
  std::vector<std::thread> threads;
  threads.reserve(ThreadsOf(task));
  for (unsigned thread = 0; thread < ThreadsOf(task); ++thread) {
    threads.emplace_back([&, thread] {
      const ScopedFloatEnvironment environment;
      RunThread<Source>(task, block, thread, tiles->values, HostBlock{&state, thread});
    });
  }
  for (std::thread& thread : threads) thread.join();
  return state.facts;
}

// Reduces `count` elements of three contributions, one block after the other, and compares.
template <typename Source>
void CheckBlocks(DType dtype, size_t count, bool with_norm) {
  ReductionSpec spec;
  spec.op = ReduceOp::kAverage;
  spec.tensor_dtype = spec.result_dtype = dtype;
  spec.divisor = 3;
  spec.prescale = 1.0 / 3;
  spec.contributions.resize(3);
  for (Contribution& contribution : spec.contributions) contribution.wire_dtype = dtype;
  const ReductionPlan plan = ReductionPlan::Make(spec).value();

  using Raw = typename Source::Raw;
  struct alignas(16) Vector {
    Raw values[16 / sizeof(Raw)];
  };
  const size_t vectors = count * sizeof(Raw) / 16 + 1;
  std::vector<std::vector<Vector>> data(4, std::vector<Vector>(vectors));
  std::mt19937_64 random(count);
  std::vector<Slice> slices;
  std::vector<Input> inputs;
  slices.reserve(3);
  inputs.reserve(3);
  ReduceTask task = {};
  for (uint32_t i = 0; i < 3; ++i) {
    auto* bytes = reinterpret_cast<unsigned char*>(data[i].data());
    for (size_t b = 0; b < count * sizeof(Raw); ++b) bytes[b] = static_cast<uint8_t>(random());
    slices.push_back({bytes, count * sizeof(Raw)});
    const Term& term = plan.terms()[i];
    task.terms[i] = {bytes, term.unscale, term.factor, i, dtype};
  }
  for (const Slice& slice : slices) inputs.push_back({&slice, 1});
  std::vector<double> leaves(NormLeaves(count));
  task.term_count = 3;
  task.combine = plan.combine();
  task.finish = plan.finish();
  task.finish_constant = plan.finish_constant();
  task.result_dtype = dtype;
  task.aligned = true;
  task.output = data[3].data();
  task.norm_leaves = with_norm ? leaves.data() : nullptr;
  task.count = count;
  ThreadFacts seen;
  for (uint64_t block = 0; block < BlocksOf<Source>(task); ++block) {
    const ThreadFacts facts = RunBlock<Source>(task, block);
    seen.first_non_finite = std::min(seen.first_non_finite, facts.first_non_finite);
    seen.overflows += facts.overflows;
  }

  std::vector<unsigned char> result(count * sizeof(Raw));
  std::vector<double> expected_leaves(leaves.size());
  Facts facts;
  const auto failure = MakeReferenceReducer()->Reduce(
      plan, inputs.data(), Span{0, count},
      Output{result.data(), with_norm ? expected_leaves.data() : nullptr}, &facts);
  ASSERT_FALSE(failure);
  EXPECT_EQ(std::memcmp(result.data(), data[3].data(), result.size()), 0);
  EXPECT_EQ(std::memcmp(leaves.data(), expected_leaves.data(), leaves.size() * sizeof(double)), 0);
  EXPECT_EQ(seen.overflows, facts.overflows);
  ASSERT_EQ(seen.first_non_finite != kNoElement, facts.first_non_finite_input.has_value());
  if (facts.first_non_finite_input) {
    EXPECT_EQ(seen.first_non_finite,
              uint64_t{facts.first_non_finite_input->contribution} << kElementBits |
                  facts.first_non_finite_input->element);
  }
}

// A full leaf and a short one.
constexpr size_t kElements = kNormLeafElements + 5003;

TEST(BlockTest, ThreadsAtTheSameTimeGiveTheReferencesBits) {
  for (bool with_norm : {true, false}) {
    CheckBlocks<FromF32>(DType::kF32, kElements, with_norm);
    CheckBlocks<FromF64>(DType::kF64, kElements, with_norm);
    CheckBlocks<FromBF16>(DType::kBF16, kElements, with_norm);
  }
}

}  // namespace
}  // namespace basin::kernels::cuda
