// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The ranks of a node in one process, each with a device of its own, and a library that stands in
// for NCCL.

#include "accelerator/node/nccl/communicator.h"

#include <atomic>
#include <cstring>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/reference.h"
#include "tests/accelerator/device/emulated_device.h"
#include "tests/accelerator/node/nccl/load_stand_in.h"
#include "tests/runtime/await.h"

namespace basin::accelerator::nccl {
namespace {

using kernels::Contribution;
using kernels::ContributionKind;
using kernels::kNormLeafElements;
using kernels::ReductionPlan;
using kernels::ReductionSpec;
using std::chrono::milliseconds;
using ::testing::AllOf;
using ::testing::HasSubstr;

using Bytes = std::vector<unsigned char>;

// A process of the node.
struct Rank {
  std::shared_ptr<FaultPlan> faults = std::make_shared<FaultPlan>();
  std::shared_ptr<Device> device = MakeEmulatedDevice(faults);
  EmulatedStream stream;  // The trainer's.
  std::unique_ptr<Communicator> communicator;

  EventPtr Record() {
    auto event = device->MakeEvent();
    EXPECT_TRUE(event.ok());
    EventPtr recorded = std::move(event).value();
    EXPECT_FALSE(recorded->Record(&stream));
    return recorded;
  }
  Order Ordered() { return {Record(), &stream}; }
};

// A tensor of every rank, with pseudo-random contents, and what the oracle makes of it.
struct Case {
  std::shared_ptr<const ReductionPlan> plan;
  uint64_t count = 0;
  bool finish = true;
  std::vector<Bytes> inputs;
  std::vector<Bytes> results;  // By rank; the leader's is written.

  Case(ReductionSpec spec, uint64_t elements, bool finished = true)
      : count(elements), finish(finished) {
    auto made = ReductionPlan::Make(std::move(spec));
    EXPECT_TRUE(made.ok()) << made.failure().message;
    plan = std::make_shared<const ReductionPlan>(std::move(made).value());
    uint64_t state = count + 7;
    for (const Contribution& contribution : plan->spec().contributions) {
      inputs.push_back(Values(contribution.wire_dtype, &state));
      results.emplace_back(count * 8, 0xaa);
    }
  }

  Bytes Values(DType dtype, uint64_t* state) const {
    Bytes bytes(count * ElementSize(dtype));
    for (uint64_t i = 0; i < count; ++i) {
      *state = *state * 6364136223846793005u + 1442695040888963407u;
      const uint64_t drawn = *state >> 20;
      unsigned char* const at = bytes.data() + i * ElementSize(dtype);
      if (dtype == DType::kF32) {
        const float value = static_cast<float>(static_cast<int64_t>(drawn % 2000003) - 1000001) / 7;
        std::memcpy(at, &value, sizeof(value));
      } else if (dtype == DType::kF64) {
        const double value = static_cast<double>(static_cast<int64_t>(drawn) - (1LL << 42)) / 7;
        std::memcpy(at, &value, sizeof(value));
      } else if (dtype == DType::kBF16 || dtype == DType::kF16) {
        // Any sign and fraction, and an exponent near that of 1.
        const auto value = static_cast<uint16_t>(dtype == DType::kF16 ? 0x3800 | (drawn & 0x87ff)
                                                                      : 0x3f00 | (drawn & 0x80ff));
        std::memcpy(at, &value, sizeof(value));
      } else {
        std::memcpy(at, &drawn, ElementSize(dtype));
      }
    }
    return bytes;
  }

  Bytes Expected() const {
    std::vector<kernels::Slice> slices;
    for (const Bytes& input : inputs) slices.push_back({input.data(), input.size()});
    std::vector<kernels::Input> all;
    for (const kernels::Slice& slice : slices) all.push_back({&slice, 1});
    Bytes result(count * ElementSize(plan->spec().result_dtype));
    kernels::Facts facts;
    kernels::Output output;
    output.data = result.data();
    const auto failure =
        kernels::MakeReferenceReducer()->Reduce(*plan, all.data(), {0, count}, output, &facts);
    EXPECT_FALSE(failure);
    return result;
  }

  GroupTensor Of(int rank) {
    return {plan, finish, count, inputs[static_cast<size_t>(rank)].data(),
            results[static_cast<size_t>(rank)].data()};
  }
};

ReductionSpec Spec(ReduceOp op, DType dtype, int ranks) {
  ReductionSpec spec;
  spec.op = op;
  spec.tensor_dtype = dtype;
  spec.result_dtype = dtype;
  spec.divisor = static_cast<uint64_t>(ranks);
  for (int i = 0; i < ranks; ++i) {
    Contribution contribution;
    contribution.wire_dtype = dtype;
    spec.contributions.push_back(contribution);
  }
  return spec;
}

class CommunicatorTest : public testing::Test {
 protected:
  CommunicatorTest() {
    LibrarySearch search;
    search.path = STAND_IN_NCCL;
    auto loaded = Library::Load(search);
    EXPECT_TRUE(loaded.ok()) << loaded.status();
    library_ = *loaded;
    control_->set_enqueue([](Stream stream, void (*run)(void*), void* argument) {
      static_cast<EmulatedStream*>(stream)->Add([run, argument] { run(argument); });
    });
    options_.scratch_bytes = LeastScratchBytes();
  }
  ~CommunicatorTest() override {
    control_->release();
    ranks_.clear();
    Await([this] { return control_->waiting_calls() == 0; });
    // Threads that were left behind end when their calls have returned.
    Await([this] { return control_->communicators() <= leaked_; });
    control_->reset();
  }

  // Starts a communicator of these ranks; the first one leads unless another place is named.
  void Start(const std::vector<int>& members, int leader = 0) {
    const auto id = MakeUniqueId(library_, milliseconds(5000));
    ASSERT_TRUE(id.ok()) << id.status();
    for (size_t position = 0; position < members.size(); ++position) {
      Rank& rank = At(members[position]);
      CommunicatorOptions options = options_;
      options.id = *id;
      options.position = {static_cast<int>(position), static_cast<int>(members.size()), leader};
      auto started = Communicator::Start(library_, rank.device, options);
      ASSERT_TRUE(started.ok()) << started.status();
      rank.communicator = std::move(*started);
    }
  }
  void Form(int ranks, int leader = 0) {
    std::vector<int> all;
    for (int i = 0; i < ranks; ++i) all.push_back(i);
    Start(all, leader);
    for (const int i : all) ASSERT_TRUE(At(i).communicator->WaitUntilFormed().ok());
  }

  Rank& At(int rank) {
    while (ranks_.size() <= static_cast<size_t>(rank)) ranks_.push_back(std::make_unique<Rank>());
    return *ranks_[static_cast<size_t>(rank)];
  }

  // Starts place 0 of a group of `size` ranks, with a queue that calls `prepare` on each thread
  // that is to use the device.
  std::unique_ptr<Communicator> StartAlone(int size, std::function<void()> prepare) {
    CommunicatorOptions options = options_;
    const auto id = MakeUniqueId(library_, milliseconds(5000));
    EXPECT_TRUE(id.ok()) << id.status();
    options.id = *id;
    options.position = {0, size, 0};
    At(0).faults->on_use = std::move(prepare);
    auto started = Communicator::Start(library_, At(0).device, options);
    EXPECT_TRUE(started.ok()) << started.status();
    return std::move(*started);
  }

  // Reduces the tensors as one bucket, and checks the bits at the leader.
  void ExpectBits(std::vector<Case>& cases, int ranks, int leader) {
    std::vector<Communicator::Work> works;
    for (int i = 0; i < ranks; ++i) {
      std::vector<GroupTensor> bucket;
      for (Case& one : cases) bucket.push_back(one.Of(i));
      works.push_back(At(i).communicator->Reduce(bucket, At(i).Ordered()));
    }
    for (const Communicator::Work& work : works) ASSERT_EQ(work.Wait(), absl::OkStatus());
    for (size_t i = 0; i < cases.size(); ++i) {
      if (cases[i].plan->outcome() != kernels::PlanOutcome::kReduce) continue;
      const Bytes expected = cases[i].Expected();
      Bytes& result = cases[i].results[static_cast<size_t>(leader)];
      result.resize(expected.size());
      EXPECT_EQ(result, expected) << "tensor " << i;
    }
  }

  const StandInControl* const control_ = LoadStandIn(STAND_IN_NCCL);
  std::shared_ptr<const Library> library_;
  CommunicatorOptions options_;
  std::vector<std::unique_ptr<Rank>> ranks_;
  int leaked_ = 0;  // The most communicators whose last call failed.
};

// ---- bits

TEST_F(CommunicatorTest, Item3_DeterministicModeHasTheBitsOfTheCanonicalReduction) {
  for (const int ranks : {1, 2, 3, 8}) {
    SCOPED_TRACE(ranks);
    const int leader = ranks / 2;
    Form(ranks, leader);
    std::vector<Case> cases;
    for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16, DType::kF64}) {
      ReductionSpec average = Spec(ReduceOp::kAverage, dtype, ranks);
      average.prescale = 0.3;
      average.predivide = 3;
      average.postscale = 1.7;
      cases.emplace_back(average, 1000);
      cases.emplace_back(Spec(ReduceOp::kSum, dtype, ranks), 37);
      cases.emplace_back(Spec(ReduceOp::kMax, dtype, ranks), 5);
      ReductionSpec weighted = Spec(ReduceOp::kWeightedAverage, dtype, ranks);
      weighted.divisor = 0;
      for (size_t i = 0; i < weighted.contributions.size(); ++i) {
        weighted.contributions[i].weight = 3 * i + 1;
        if (i == 1) weighted.contributions[i].kind = ContributionKind::kSum;
        weighted.divisor += 3 * i + 1;
      }
      cases.emplace_back(weighted, 333);
    }
    for (const DType dtype : {DType::kI64, DType::kI32, DType::kU8}) {
      cases.emplace_back(Spec(ReduceOp::kSum, dtype, ranks), 100);
      cases.emplace_back(Spec(ReduceOp::kProduct, dtype, ranks), 101);
    }
    // Narrowed by one of the ranks, with a wire scale.
    ReductionSpec narrowed = Spec(ReduceOp::kAverage, DType::kF32, ranks);
    narrowed.contributions[0].wire_dtype = DType::kBF16;
    narrowed.contributions[0].wire_scale_exponent = 5;
    cases.emplace_back(narrowed, 129);
    ExpectBits(cases, ranks, leader);
    for (int i = 0; i < ranks; ++i) EXPECT_EQ(At(i).communicator->status(), absl::OkStatus());
    ranks_.clear();
  }
}

TEST_F(CommunicatorTest, Item3_TensorsThatARankSkippedAddNothing) {
  for (const GroupMode mode : {GroupMode::kDeterministic, GroupMode::kFast}) {
    options_.mode = mode;
    Form(3, 1);
    std::vector<Case> cases;
    for (size_t skipping = 0; skipping < 3; ++skipping) {
      ReductionSpec spec = Spec(ReduceOp::kAverage, DType::kF32, 3);
      spec.contributions[skipping].skipped = true;
      spec.divisor = 2;
      cases.emplace_back(spec, 100);
    }
    ReductionSpec nothing = Spec(ReduceOp::kAverage, DType::kF32, 3);
    for (Contribution& contribution : nothing.contributions) contribution.skipped = true;
    cases.emplace_back(nothing, 100);
    ExpectBits(cases, 3, 1);
    ranks_.clear();
  }
}

TEST_F(CommunicatorTest, Item3_TensorsLargerThanTheScratchMemoryAreReducedInPieces) {
  Form(3);
  const uint64_t large = LeastScratchBytes() / 2 / 8 + 3 * kNormLeafElements + 11;
  std::vector<Case> cases;
  cases.emplace_back(Spec(ReduceOp::kAverage, DType::kF32, 3), 17);
  cases.emplace_back(Spec(ReduceOp::kAverage, DType::kF64, 3), large);
  cases.emplace_back(Spec(ReduceOp::kSum, DType::kBF16, 3), 2 * large);
  cases.emplace_back(Spec(ReduceOp::kSum, DType::kI32, 3), 17);
  ExpectBits(cases, 3, 0);
}

TEST_F(CommunicatorTest, Item3_ManySmallTensorsTakeFewGroups) {
  Form(2);
  std::vector<Case> cases;
  for (uint64_t i = 1; i <= 300; ++i) {
    cases.emplace_back(Spec(ReduceOp::kAverage, DType::kF32, 2), i);
  }
  ExpectBits(cases, 2, 0);
  EXPECT_EQ(control_->calls("ncclGroupEnd"), 2);
}

// The sum of a group has the bits of the fold, in the accumulator's type, with no rounding to the
// tensor's.
TEST_F(CommunicatorTest, Item3_ASumThatIsNotFinishedIsThatOfTheFold) {
  Form(3);
  ReductionSpec spec = Spec(ReduceOp::kAverage, DType::kBF16, 3);
  spec.prescale = 0.3;
  spec.predivide = 3;
  Case unfinished(spec, 100, false);
  std::vector<Communicator::Work> works;
  for (int i = 0; i < 3; ++i) {
    works.push_back(At(i).communicator->Reduce({unfinished.Of(i)}, At(i).Ordered()));
  }
  for (const Communicator::Work& work : works) ASSERT_EQ(work.Wait(), absl::OkStatus());
  const auto factor = static_cast<float>(0.3 / 3);
  for (size_t k = 0; k < 100; ++k) {
    float sum = 0;
    for (size_t i = 0; i < 3; ++i) {
      uint16_t input = 0;
      std::memcpy(&input, unfinished.inputs[i].data() + 2 * k, sizeof(input));
      const uint32_t bits = uint32_t{input} << 16;
      float value = 0;
      std::memcpy(&value, &bits, sizeof(value));
      sum = i == 0 ? value * factor : sum + value * factor;
    }
    float result = 0;
    std::memcpy(&result, unfinished.results[0].data() + 4 * k, sizeof(result));
    EXPECT_EQ(result, sum) << k;
  }
}

TEST_F(CommunicatorTest, Item3_FastModeScalesAsThePlanSaysAndAddsInItsOwnOrder) {
  options_.mode = GroupMode::kFast;
  Form(3, 2);
  ReductionSpec spec = Spec(ReduceOp::kWeightedAverage, DType::kF32, 3);
  spec.predivide = 3;
  spec.divisor = 6;
  for (size_t i = 0; i < 3; ++i) spec.contributions[i].weight = i + 1;
  // Integers have one result in any order.
  std::vector<Case> exact;
  exact.emplace_back(Spec(ReduceOp::kSum, DType::kI32, 3), 1000);
  exact.emplace_back(Spec(ReduceOp::kMax, DType::kI64, 3), 1000);
  ExpectBits(exact, 3, 2);
  Case rounded(spec, 1000);
  std::vector<Communicator::Work> works;
  for (int i = 0; i < 3; ++i) {
    works.push_back(At(i).communicator->Reduce({rounded.Of(i)}, At(i).Ordered()));
  }
  for (const Communicator::Work& work : works) ASSERT_EQ(work.Wait(), absl::OkStatus());
  EXPECT_GT(control_->calls("ncclReduce"), 0);
  EXPECT_EQ(control_->calls("ncclSend"), 0);
  const Bytes expected = rounded.Expected();
  bool differs = false;
  for (size_t k = 0; k < 1000; ++k) {
    float a = 0;
    float b = 0;
    std::memcpy(&a, expected.data() + 4 * k, sizeof(a));
    std::memcpy(&b, rounded.results[2].data() + 4 * k, sizeof(b));
    EXPECT_NEAR(a, b, 0.05);
    differs = differs || a != b;
  }
  EXPECT_TRUE(differs) << "the stand-in adds in another order than the plan";
}

TEST_F(CommunicatorTest, Item3_MinimaAndMaximaOfFloatsKeepNanInFastMode) {
  options_.mode = GroupMode::kFast;
  Form(3, 2);
  std::vector<Case> cases;
  for (const ReduceOp op : {ReduceOp::kMin, ReduceOp::kMax}) {
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      Case& one = cases.emplace_back(Spec(op, dtype, 3), 1000);
      // Each rank has a NaN where the others have numbers: all bits are set.
      for (size_t rank = 0; rank < 3; ++rank) {
        std::memset(one.inputs[rank].data() + 40 * (rank + 1), 0xff, ElementSize(dtype));
      }
    }
  }
  ExpectBits(cases, 3, 2);
}

TEST_F(CommunicatorTest, Item3_TheResultIsBroadcastFromTheLeader) {
  Form(3, 1);
  std::vector<std::vector<Bytes>> memory(3);
  std::vector<Communicator::Work> works;
  for (size_t i = 0; i < 3; ++i) {
    for (const size_t bytes : {1000, 0, 3}) memory[i].emplace_back(bytes, i);
    std::vector<GroupBytes> parts;
    for (Bytes& part : memory[i]) parts.push_back({part.data(), part.size()});
    Rank& rank = At(static_cast<int>(i));
    works.push_back(rank.communicator->Broadcast(parts, rank.Ordered()));
  }
  for (const Communicator::Work& work : works) ASSERT_EQ(work.Wait(), absl::OkStatus());
  EXPECT_EQ(memory[0], memory[1]);
  EXPECT_EQ(memory[2], memory[1]);
  EXPECT_EQ(memory[1][0][0], 1);
}

TEST_F(CommunicatorTest, Item3_ManyPartsAreBroadcastInGroupsOfABoundedSize) {
  Form(2);
  std::vector<Bytes> memory = {Bytes(kMostMessages + 1, 1), Bytes(kMostMessages + 1, 2)};
  std::vector<Communicator::Work> works;
  for (size_t i = 0; i < 2; ++i) {
    std::vector<GroupBytes> parts;
    for (unsigned char& byte : memory[i]) parts.push_back({&byte, 1});
    Rank& rank = At(static_cast<int>(i));
    works.push_back(rank.communicator->Broadcast(parts, rank.Ordered()));
  }
  for (const Communicator::Work& work : works) ASSERT_EQ(work.Wait(), absl::OkStatus());
  EXPECT_EQ(memory[1], memory[0]);
  EXPECT_EQ(control_->calls("ncclGroupEnd"), 4);
}

// ---- order

TEST_F(CommunicatorTest, Item3_WorkIsOrderedByTheTrainersStreamsAndByNothingElse) {
  Form(2);
  Case one(Spec(ReduceOp::kSum, DType::kF32, 2), 100);
  const Bytes expected = one.Expected();
  // The streams have not written the gradients yet.
  const std::vector<Bytes> written = one.inputs;
  for (Bytes& input : one.inputs) input.assign(input.size(), 0xff);
  std::vector<Communicator::Work> works;
  Bytes read;
  for (int i = 0; i < 2; ++i) {
    At(i).stream.Hold();
    At(i).stream.Add([&one, &written, i] {
      const auto at = static_cast<size_t>(i);
      std::memcpy(one.inputs[at].data(), written[at].data(), written[at].size());
    });
    works.push_back(At(i).communicator->Reduce({one.Of(i)}, At(i).Ordered()));
  }
  // Work is added while the streams are held.
  for (const Communicator::Work& work : works) ASSERT_EQ(work.WaitUntilAdded(), absl::OkStatus());
  At(0).stream.Add([&] { read.assign(one.results[0].begin(), one.results[0].begin() + 400); });
  At(1).stream.Release();
  At(0).stream.Release();
  At(0).stream.Synchronize();
  EXPECT_EQ(read, expected);
  for (const Communicator::Work& work : works) EXPECT_EQ(work.Wait(), absl::OkStatus());
}

TEST_F(CommunicatorTest, BucketsOneAfterAnother) {
  Form(2);
  std::vector<Case> cases;
  for (uint64_t i = 0; i < 20; ++i) {
    cases.emplace_back(Spec(ReduceOp::kAverage, DType::kF32, 2), 1000 + i);
  }
  std::vector<Communicator::Work> works;
  for (Case& one : cases) {
    for (int i = 0; i < 2; ++i) {
      works.push_back(At(i).communicator->Reduce({one.Of(i)}, At(i).Ordered()));
    }
  }
  for (const Communicator::Work& work : works) ASSERT_EQ(work.Wait(), absl::OkStatus());
  for (Case& one : cases) {
    one.results[0].resize(one.count * 4);
    EXPECT_EQ(one.results[0], one.Expected());
  }
  for (int i = 0; i < 2; ++i) EXPECT_EQ(At(i).communicator->Close(), absl::OkStatus());
  EXPECT_EQ(control_->communicators(), 0);
  EXPECT_EQ(control_->calls("ncclCommAbort"), 0);
}

// With a pause of half a millisecond after each look, none of the rounds would take less than ten.
TEST_F(CommunicatorTest, WorkThatNcclSoonGivesToTheDeviceIsNotPausedFor) {
  options_.mode = GroupMode::kFast;
  Form(1);
  Case one(Spec(ReduceOp::kAverage, DType::kF32, 1), 10);
  auto shortest = milliseconds::max();
  for (int round = 0; round < 50; ++round) {
    control_->stay_in_progress(0, 20);
    const auto began = std::chrono::steady_clock::now();
    const Communicator::Work work = At(0).communicator->Reduce({one.Of(0)}, At(0).Ordered());
    ASSERT_EQ(work.WaitUntilAdded(), absl::OkStatus());
    const auto took = std::chrono::steady_clock::now() - began;
    shortest = std::min(shortest, std::chrono::duration_cast<milliseconds>(took));
    ASSERT_EQ(work.Wait(), absl::OkStatus());
  }
  EXPECT_LT(shortest, milliseconds(10));
}

TEST_F(CommunicatorTest, TwoThreadsMayCloseIt) {
  Form(1);
  At(0).stream.Hold();
  const Communicator::Work work = At(0).communicator->Broadcast({}, At(0).Ordered());
  std::vector<absl::Status> closed(2, absl::UnknownError("not closed"));
  std::vector<std::thread> closers;
  for (absl::Status& status : closed) {
    closers.emplace_back([this, &status] { status = At(0).communicator->Close(); });
  }
  Await([this] {
    return At(0).communicator->Broadcast({}, {}).WaitUntilAdded().code() ==
           absl::StatusCode::kFailedPrecondition;
  });
  At(0).stream.Release();
  for (std::thread& closer : closers) closer.join();
  for (const absl::Status& status : closed) EXPECT_EQ(status, absl::OkStatus());
  EXPECT_EQ(work.Wait(), absl::OkStatus());
}

// The runtime may wait for its callbacks when an event is destroyed, and a callback waits for the
// state of the communicator.
TEST_F(CommunicatorTest, EventsAreReleasedWhileCallbacksMayRun) {
  Form(1);
  Communicator& communicator = *At(0).communicator;
  std::atomic<bool> answered{false};
  std::atomic<bool> released{false};
  std::thread callback;
  EventPtr recorded = At(0).Record();
  Event* const event = recorded.get();
  EventPtr watched(event, [&, recorded = std::move(recorded)](Event*) {
    callback = std::thread([&] {
      (void)communicator.status();
      answered = true;
    });
    Await([&] { return answered.load(); });
    released = true;
  });
  ASSERT_EQ(communicator.Broadcast({}, {std::move(watched), {}}).Wait(), absl::OkStatus());
  ASSERT_EQ(communicator.Broadcast({}, {}).Wait(), absl::OkStatus());
  Await([&] { return released.load(); });
  callback.join();
}

// ---- what is refused

TEST_F(CommunicatorTest, BucketsThatDoNotFitTheGroupAreRefused) {
  Form(2);
  Case three(Spec(ReduceOp::kSum, DType::kF32, 3), 10);
  const absl::Status planned = At(0).communicator->Reduce({three.Of(0)}, {}).Wait();
  EXPECT_EQ(planned.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(planned.message()),
              HasSubstr("tensor 0 of the bucket is planned for 3 ranks, and the group has 2"));
  // Every rank refuses it, and the group goes on.
  std::vector<Case> cases;
  cases.emplace_back(Spec(ReduceOp::kSum, DType::kF32, 2), 10);
  ExpectBits(cases, 2, 0);
}

// The other ranks reduce the bucket. If this one left it out and went on, its next bucket would
// meet what they have sent of this one.
TEST_F(CommunicatorTest, ABucketThatOnlyOneRankCannotReduceEndsTheCommunicator) {
  struct Wrong {
    int rank;
    void (*spoil)(GroupTensor*);
    const char* message;
  };
  const Wrong wrongs[] = {
      {0, [](GroupTensor* tensor) { tensor->result = nullptr; }, "no memory for its result"},
      {1, [](GroupTensor* tensor) { tensor->input = nullptr; }, "has no data"},
      {1, [](GroupTensor* tensor) { tensor->plan = nullptr; }, "has no plan"},
  };
  for (const Wrong& wrong : wrongs) {
    SCOPED_TRACE(wrong.message);
    Form(2);
    Case first(Spec(ReduceOp::kSum, DType::kF32, 2), 10);
    Case second(Spec(ReduceOp::kAverage, DType::kF32, 2), 10);
    Communicator& good = *At(1 - wrong.rank).communicator;
    Communicator& bad = *At(wrong.rank).communicator;
    const Communicator::Work of_good = good.Reduce({first.Of(1 - wrong.rank)}, {});
    GroupTensor spoiled = first.Of(wrong.rank);
    wrong.spoil(&spoiled);
    const absl::Status refused = bad.Reduce({spoiled}, {}).Wait();
    EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(refused.message()), HasSubstr(wrong.message));
    EXPECT_EQ(bad.status(), refused);
    EXPECT_EQ(bad.Reduce({second.Of(wrong.rank)}, {}).Wait(), refused);
    good.Abort(absl::AbortedError("another local rank has failed"));
    EXPECT_EQ(of_good.Wait(), absl::AbortedError("another local rank has failed"));
    ranks_.clear();
  }
}

TEST_F(CommunicatorTest, MoreWorkThanIsKeptEndsTheCommunicator) {
  const auto id = MakeUniqueId(library_, milliseconds(5000));
  ASSERT_TRUE(id.ok());
  CommunicatorOptions options = options_;
  options.id = *id;
  options.position = {0, 2, 0};  // The other rank does not come, so that nothing ends.
  auto started = Communicator::Start(library_, At(0).device, options);
  ASSERT_TRUE(started.ok());
  for (uint64_t i = 0; i < kMostWork; ++i) (void)(*started)->Broadcast({}, {});
  EXPECT_EQ((*started)->status(), absl::OkStatus());
  const absl::Status refused = (*started)->Broadcast({}, {}).Wait();
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ((*started)->status(), refused);
}

TEST_F(CommunicatorTest, OptionsThatContradictThemselvesAreRefused) {
  const auto start = [this](Position position, size_t scratch) {
    CommunicatorOptions options = options_;
    options.position = position;
    options.scratch_bytes = scratch;
    return Communicator::Start(library_, At(0).device, options).status().code();
  };
  const size_t enough = LeastScratchBytes();
  EXPECT_EQ(start({0, 65, 0}, enough), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(start({2, 2, 0}, enough), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(start({0, 2, 2}, enough), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(start({0, 2, 0}, enough - 1), absl::StatusCode::kInvalidArgument);
  At(0).faults->device_bytes = 1000;
  EXPECT_EQ(start({0, 2, 0}, enough), absl::StatusCode::kUnavailable);
}

// ---- failures

TEST_F(CommunicatorTest, Fault_A13_APeerThatNeverComesEndsTheForming) {
  options_.form_within = milliseconds(100);
  const auto id = MakeUniqueId(library_, milliseconds(5000));
  ASSERT_TRUE(id.ok());
  CommunicatorOptions options = options_;
  options.id = *id;
  options.position = {0, 2, 0};
  auto started = Communicator::Start(library_, At(0).device, options);
  ASSERT_TRUE(started.ok());
  const absl::Status status = (*started)->WaitUntilFormed();
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("of 2 ranks was not formed within 0.1 s: a rank has not come"));
  started->reset();
  EXPECT_EQ(control_->communicators(), 0);
}

TEST_F(CommunicatorTest, Fault_A13_APeerThatReducesNothingEndsTheWork) {
  options_.work_within = milliseconds(100);
  Form(2);
  Case one(Spec(ReduceOp::kSum, DType::kF32, 2), 10);
  const absl::Status status = At(0).communicator->Reduce({one.Of(0)}, At(0).Ordered()).Wait();
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(status.message()), HasSubstr("has not ended within 0.1 s"));
  EXPECT_TRUE(At(0).communicator->quiet());
  EXPECT_EQ(control_->calls("ncclCommAbort"), 1);
  // Later work gets the same answer at once.
  EXPECT_EQ(At(0).communicator->Reduce({one.Of(0)}, {}).Wait(), status);
}

TEST_F(CommunicatorTest, Fault_A13_TheTrainersOwnWorkHasNoDeadlineHere) {
  options_.work_within = milliseconds(100);
  Form(2);
  Case one(Spec(ReduceOp::kSum, DType::kF32, 2), 10);
  for (int i = 0; i < 2; ++i) At(i).stream.Hold();
  std::vector<Communicator::Work> works;
  for (int i = 0; i < 2; ++i) {
    works.push_back(At(i).communicator->Reduce({one.Of(i)}, At(i).Ordered()));
    EXPECT_EQ(works.back().WaitUntilAdded(), absl::OkStatus());
  }
  // Work that is given later, with more time, has a deadline: its peer reduces nothing.
  options_.work_within = milliseconds(300);
  Start({2, 3});
  EXPECT_EQ(At(2).communicator->Reduce({one.Of(0)}, At(2).Ordered()).Wait().code(),
            absl::StatusCode::kDeadlineExceeded);
  for (int i = 0; i < 2; ++i) EXPECT_EQ(At(i).communicator->status(), absl::OkStatus());
  for (int i = 0; i < 2; ++i) At(i).communicator->Abort(absl::AbortedError("the test ends"));
  for (int i = 0; i < 2; ++i) At(i).stream.Release();
  for (const Communicator::Work& work : works) {
    EXPECT_EQ(work.Wait(), absl::AbortedError("the test ends"));
  }
}

TEST_F(CommunicatorTest, Fault_A13_ALostPeerIsAnsweredByAnAbortAndTheRestFormsAgain) {
  Form(3);
  Case of_three(Spec(ReduceOp::kSum, DType::kF32, 3), 10);
  std::vector<Communicator::Work> works;
  for (int i = 1; i < 3; ++i) {
    works.push_back(At(i).communicator->Reduce({of_three.Of(i)}, At(i).Ordered()));
  }
  At(0).communicator.reset();  // The leader is lost before it reduces.
  for (int i = 1; i < 3; ++i) {
    At(i).communicator->Abort(absl::AbortedError("local rank 0 was lost"));
    EXPECT_EQ(works[static_cast<size_t>(i) - 1].Wait(),
              absl::AbortedError("local rank 0 was lost"));
    EXPECT_TRUE(At(i).communicator->quiet());
  }
  Start({1, 2});
  Case of_two(Spec(ReduceOp::kAverage, DType::kF32, 2), 10);
  works.clear();
  for (int i = 0; i < 2; ++i) {
    works.push_back(At(i + 1).communicator->Reduce({of_two.Of(i)}, At(i + 1).Ordered()));
  }
  for (const Communicator::Work& work : works) EXPECT_EQ(work.Wait(), absl::OkStatus());
  of_two.results[0].resize(40);
  EXPECT_EQ(of_two.results[0], of_two.Expected());
}

TEST_F(CommunicatorTest, Fault_A13_AnErrorOfAPeerIsSeenWhileWorkRuns) {
  Form(2);
  Case one(Spec(ReduceOp::kSum, DType::kF32, 2), 10);
  const Communicator::Work work = At(0).communicator->Reduce({one.Of(0)}, At(0).Ordered());
  ASSERT_EQ(work.WaitUntilAdded(), absl::OkStatus());
  control_->break_rank(0, kRemoteError);
  const absl::Status status = work.Wait();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("emulated device: "), HasSubstr("remote process exited")));
}

// Runs a whole life of three ranks, and aborts the others when one fails, as a runner does that
// sees the connection of a rank close.
class AnyCallTest : public CommunicatorTest, public testing::WithParamInterface<const char*> {
 protected:
  AnyCallTest() {
    // A call that ends a communicator, and fails, leaves it to NCCL.
    if (Destroys()) leaked_ = 1;
  }

  static bool Destroys() { return std::string(GetParam()) == "ncclCommDestroy"; }

  // For calls that do not return.
  void HurryUp() {
    options_.call_within = milliseconds(200);
    options_.quiet_within = milliseconds(1000);
  }

  // Whether every rank came to its end without a failure.
  bool Live() {
    Start({0, 1, 2});
    Case one(Spec(ReduceOp::kAverage, DType::kF32, 3), 100);
    std::vector<Bytes> memory(3, Bytes(10));
    std::vector<Communicator::Work> works;
    for (int i = 0; i < 3; ++i) {
      Communicator& communicator = *At(i).communicator;
      works.push_back(communicator.Reduce({one.Of(i)}, At(i).Ordered()));
      works.push_back(
          communicator.Broadcast({{memory[static_cast<size_t>(i)].data(), 10}}, At(i).Ordered()));
    }
    Await([&] {
      bool all = true;
      for (const auto& rank : ranks_) all = all && !rank->communicator->status().ok();
      if (all) return true;
      for (const auto& rank : ranks_) {
        if (rank->communicator->status().ok()) continue;
        for (const auto& other : ranks_) {
          other->communicator->Abort(absl::AbortedError("another local rank has failed"));
        }
      }
      return control_->calls("ncclGroupEnd") >= 6 || !ranks_[0]->communicator->status().ok();
    });
    bool ok = true;
    for (const Communicator::Work& work : works) ok = work.Wait().ok() && ok;
    for (const auto& rank : ranks_) {
      if (!ok) rank->communicator->Abort(absl::AbortedError("another local rank has failed"));
    }
    for (const auto& rank : ranks_) ok = rank->communicator->Close().ok() && ok;
    return ok;
  }
};

TEST_P(AnyCallTest, Fault_A13_ACallThatFailsIsATypedErrorOnEveryRank) {
  control_->fail(GetParam(), 1, 0, kSystemError);
  EXPECT_FALSE(Live());
}

TEST_P(AnyCallTest, Fault_A13_ACallThatHangsIsAborted) {
  HurryUp();
  control_->hang(GetParam(), 1, 0);
  EXPECT_FALSE(Live());
  // With these calls there is no communicator, yet or still, that could be aborted.
  const bool none = Destroys() || std::string(GetParam()) == "ncclCommInitRankConfig";
  if (!none) Await([this] { return control_->waiting_calls() == 0; });
}

// The test ends.
TEST_P(AnyCallTest, Fault_A13_ACallThatNeverReturnsWedgesNobody) {
  HurryUp();
  control_->hang_for_good(GetParam(), 1, 0);
  EXPECT_FALSE(Live());
  ranks_.clear();
}

INSTANTIATE_TEST_SUITE_P(Calls, AnyCallTest,
                         testing::Values("ncclCommInitRankConfig", "ncclCommGetAsyncError",
                                         "ncclSend", "ncclGroupEnd", "ncclBroadcast",
                                         "ncclCommFinalize", "ncclCommDestroy"),
                         [](const auto& info) { return std::string(info.param); });

TEST_F(CommunicatorTest, Fault_A13_AnAbortThatNeverReturnsWedgesNobody) {
  options_.quiet_within = milliseconds(200);
  Form(2);
  Case one(Spec(ReduceOp::kSum, DType::kF32, 2), 10);
  const Communicator::Work work = At(0).communicator->Reduce({one.Of(0)}, At(0).Ordered());
  control_->hang_for_good("ncclCommAbort", 0, 0);
  At(0).communicator->Abort(absl::AbortedError("local rank 1 was lost"));
  EXPECT_EQ(work.Wait(), absl::AbortedError("local rank 1 was lost"));
  EXPECT_FALSE(At(0).communicator->quiet());
  ranks_.clear();
  leaked_ = 1;
}

TEST_F(CommunicatorTest, Fault_A13_AnAbortThatFailsSettlesNothing) {
  options_.quiet_within = milliseconds(200);
  leaked_ = 1;
  Form(2);
  Case one(Spec(ReduceOp::kSum, DType::kF32, 2), 10);
  const Communicator::Work work = At(1).communicator->Reduce({one.Of(1)}, {});
  control_->fail("ncclCommAbort", 1, 0, kSystemError);
  At(1).communicator->Abort(absl::AbortedError("local rank 0 was lost"));
  EXPECT_EQ(work.Wait(), absl::AbortedError("local rank 0 was lost"));
  EXPECT_EQ(At(1).communicator->Close(), absl::AbortedError("local rank 0 was lost"));
  EXPECT_FALSE(At(1).communicator->quiet());
}

// NCCL frees with the communicator what a call of another thread uses.
TEST_F(CommunicatorTest, Fault_A13_AnAbortWaitsForACallThatMayReturn) {
  options_.call_within = milliseconds(1500);
  options_.quiet_within = milliseconds(60000);
  Form(2);
  Case one(Spec(ReduceOp::kSum, DType::kF32, 2), 10);
  control_->hang_for_good("ncclGroupEnd", 0, 0);
  const auto begun = std::chrono::steady_clock::now();
  const Communicator::Work work = At(0).communicator->Reduce({one.Of(0)}, {});
  Await([this] { return control_->waiting_calls() == 1; });
  At(0).communicator->Abort(absl::AbortedError("local rank 1 was lost"));
  Await([this] { return control_->calls("ncclCommAbort") == 1; });
  EXPECT_GE(std::chrono::steady_clock::now() - begun, options_.call_within);
  control_->release();
  EXPECT_FALSE(work.Wait().ok());
}

// NCCL's abort calls the device, so its thread is prepared for that as the other one is.
TEST_F(CommunicatorTest, TheThreadThatAbortsIsPreparedForTheDevice) {
  std::mutex mutex;
  std::set<std::thread::id> prepared;
  auto started = StartAlone(1, [&] {
    const std::lock_guard<std::mutex> lock(mutex);
    prepared.insert(std::this_thread::get_id());
  });
  ASSERT_TRUE(started->WaitUntilFormed().ok());
  started->Abort(absl::AbortedError("local rank 1 was lost"));
  started.reset();
  EXPECT_EQ(control_->calls("ncclCommAbort"), 1);
  EXPECT_EQ(prepared.size(), 2u);
}

TEST_F(CommunicatorTest, Fault_A13_ADeviceThatDoesNotAnswerEndsTheForming) {
  options_.form_within = options_.call_within = milliseconds(50);
  std::promise<void> answers;
  auto started = StartAlone(2, [answered = answers.get_future().share()] { answered.wait(); });
  const absl::Status status = started->WaitUntilFormed();
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(status.message()), HasSubstr("was not formed within 0.1 s"));
  answers.set_value();
}

TEST_F(CommunicatorTest, Fault_A13_EveryCallOfTheDeviceMayFail) {
  int64_t call = 0;
  for (;; ++call) {
    SCOPED_TRACE(call);
    Form(2);
    FaultPlan& faults = *At(0).faults;
    std::vector<Order> orders;
    for (int i = 0; i < 2; ++i) orders.push_back(At(i).Ordered());
    faults.failing_call = faults.calls + call;
    Case one(Spec(ReduceOp::kSum, DType::kF32, 2), 10);
    std::vector<Communicator::Work> works;
    for (int i = 0; i < 2; ++i) {
      const auto rank = static_cast<size_t>(i);
      works.push_back(At(i).communicator->Reduce({one.Of(i)}, orders[rank]));
    }
    const absl::Status status = works[0].Wait();
    At(1).communicator->Abort(absl::AbortedError("another local rank has failed"));
    (void)works[1].Wait();
    ranks_.clear();
    if (status.ok()) break;
    EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
    ASSERT_LT(call, 100);
  }
  // The wait for the event, two notifications, the reduction, and the order of the stream.
  EXPECT_GE(call, 5);
}

TEST_F(CommunicatorTest, Item3_AnIdThatCannotBeMadeIsATypedError) {
  control_->fail("ncclGetUniqueId", kAnyRank, 0, kSystemError);
  EXPECT_EQ(MakeUniqueId(library_, milliseconds(5000)).status().code(),
            absl::StatusCode::kUnavailable);
  control_->hang_for_good("ncclGetUniqueId", kAnyRank, 0);
  EXPECT_EQ(MakeUniqueId(library_, milliseconds(50)).status().code(),
            absl::StatusCode::kDeadlineExceeded);
}

}  // namespace
}  // namespace basin::accelerator::nccl
