// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The order of a queue with a trainer's stream, captures, memory, and every kind of work.

#include "tests/accelerator/device/device_suite.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <condition_variable>
#include <cstdint>
#include <cstring>
#include <limits>
#include <mutex>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/cast.h"
#include "kernels/checksum.h"
#include "kernels/cuda/measure.h"
#include "kernels/facts.h"
#include "kernels/fit.h"
#include "kernels/norm.h"

namespace basin::accelerator {
namespace {

using kernels::AppendNormLeaf;
using kernels::AppendNormLeaves;
using kernels::CastToWire;
using kernels::ContentDigest;
using kernels::kDigestBlockBytes;
using kernels::kNormLanes;
using kernels::kNormLeafElements;
using kernels::LargestMagnitude;
using kernels::NormLeaves;
using kernels::cuda::ChunkRecord;
using kernels::cuda::ContentOf;
using kernels::cuda::DeviceFacts;
using kernels::cuda::KeysOfXxh3;
using kernels::cuda::kMaxCopies;
using kernels::cuda::kNoElement;
using kernels::cuda::MeasureItem;

class DeviceSuite : public testing::Test {
 protected:
  static constexpr size_t kBytes = size_t{8} << 20;

  void SetUp() override {
    std::string why_not;
    trainer_ = MakeTrainer(&why_not);
    if (trainer_ == nullptr) GTEST_SKIP() << why_not;
    device_ = trainer_->Open();
    tensor_ = device_->AllocateOnDevice(kBytes).value();
    host_ = device_->AllocatePinned(kBytes).value();
    queue_ = device_->MakeQueue().value();
    event_ = device_->MakeEvent().value();
  }
  // Whether all bytes on the host are this one.
  bool HostIs(unsigned char byte) const {
    const auto* const bytes = static_cast<const unsigned char*>(host_.get());
    return std::all_of(bytes, bytes + kBytes, [byte](unsigned char each) { return each == byte; });
  }

  std::unique_ptr<Trainer> trainer_;
  std::unique_ptr<Device> device_;
  Memory tensor_;
  Memory host_;
  std::unique_ptr<Queue> queue_;
  std::unique_ptr<Event> event_;
};

// ---- the order with a stream

TEST_F(DeviceSuite, ACopyToTheHostSeesWhatTheStreamWroteBefore) {
  trainer_->Fill(tensor_.get(), 1, kBytes);
  trainer_->Hold();
  trainer_->Fill(tensor_.get(), 2, kBytes);
  ASSERT_FALSE(event_->Record(trainer_->stream()));
  ASSERT_FALSE(queue_->After(event_.get()));
  ASSERT_FALSE(queue_->CopyToHost(host_.get(), tensor_.get(), kBytes));
  std::thread waiter([this] { EXPECT_FALSE(queue_->Wait()); });
  trainer_->Release();
  waiter.join();
  EXPECT_TRUE(HostIs(2));
}

TEST_F(DeviceSuite, AStreamSeesWhatWasCopiedToTheDeviceBefore) {
  trainer_->Fill(tensor_.get(), 1, kBytes);
  ASSERT_FALSE(event_->Record(trainer_->stream()));
  std::memset(host_.get(), 3, kBytes);
  ASSERT_FALSE(queue_->After(event_.get()));
  ASSERT_FALSE(queue_->CopyToDevice(tensor_.get(), host_.get(), kBytes));
  ASSERT_FALSE(queue_->Before(trainer_->stream()));
  const Memory seen = device_->AllocatePinned(kBytes).value();
  trainer_->CopyToHost(seen.get(), tensor_.get(), kBytes);
  EXPECT_FALSE(queue_->Wait());
  trainer_->Synchronize();
  EXPECT_EQ(std::memcmp(seen.get(), host_.get(), kBytes), 0);
}

TEST_F(DeviceSuite, MarksAreReachedInTheirOrder) {
  trainer_->Fill(tensor_.get(), 5, kBytes);
  trainer_->Synchronize();
  auto* const host = static_cast<unsigned char*>(host_.get());
  std::memset(host, 0, kBytes);
  constexpr size_t kPart = kBytes / 4;
  for (int round = 0; round < 2; ++round) {
    for (size_t at = 0; at < kBytes; at += kPart) {
      ASSERT_FALSE(queue_->CopyToHost(host + at, static_cast<char*>(tensor_.get()) + at, kPart));
      ASSERT_FALSE(queue_->Mark());
    }
    for (size_t at = 0; at < kBytes - kPart; at += kPart) {
      ASSERT_FALSE(queue_->AwaitMark());
      EXPECT_EQ(host[at], 5);
      EXPECT_EQ(host[at + kPart - 1], 5);
    }
    // One mark is left, and forgotten.
    ASSERT_FALSE(queue_->Wait());
    EXPECT_TRUE(HostIs(5));
  }
}

// The capture is refused as the place of a copy, and other calls leave it whole.
TEST_F(DeviceSuite, ACaptureIsRefusedAndSurvives) {
  trainer_->BeginCapture();
  const auto refused = event_->Record(trainer_->stream());
  std::thread other([this] {
    EXPECT_TRUE(device_->AllocatePinned(4096).ok());
    EXPECT_FALSE(queue_->CopyToHost(host_.get(), tensor_.get(), kBytes));
    EXPECT_FALSE(queue_->Wait());
  });
  other.join();
  trainer_->EndCapture();
  ASSERT_TRUE(refused);
  EXPECT_EQ(refused->code, FailureCode::kUnsupported);
  EXPECT_FALSE(event_->Record(trainer_->stream()));
}

// Nobody waits for the queue: its end is reported, and the stream runs behind it.
TEST_F(DeviceSuite, AQueueThatNobodyWaitsForReportsItsEnd) {
  std::memset(host_.get(), 4, kBytes);
  const Memory seen = device_->AllocatePinned(kBytes).value();
  std::mutex mutex;
  std::condition_variable changed;
  bool arrived = false;
  std::thread([&] {
    ASSERT_FALSE(queue_->UseOnThisThread());
    EXPECT_NE(queue_->stream(), nullptr);
    ASSERT_FALSE(event_->Record(trainer_->stream()));
    ASSERT_FALSE(queue_->After(event_.get()));
    ASSERT_FALSE(queue_->CopyToDevice(tensor_.get(), host_.get(), kBytes));
    ASSERT_FALSE(queue_->Before(trainer_->stream()));
    ASSERT_FALSE(queue_->Notify([&] {
      const std::lock_guard<std::mutex> lock(mutex);
      arrived = true;
      changed.notify_all();
    }));
    EXPECT_FALSE(queue_->Check());
  }).join();
  trainer_->CopyToHost(seen.get(), tensor_.get(), kBytes);
  trainer_->Synchronize();
  EXPECT_EQ(std::memcmp(seen.get(), host_.get(), kBytes), 0);
  std::unique_lock<std::mutex> lock(mutex);
  EXPECT_TRUE(changed.wait_for(lock, kPatience, [&] { return arrived; }));
}

// ---- memory

TEST_F(DeviceSuite, RefusesMemoryThatIsNotOfTheDevice) {
  EXPECT_FALSE(device_->CheckMemory(tensor_.get(), kBytes));
  EXPECT_EQ(device_->CheckMemory(host_.get(), kBytes)->code, FailureCode::kInvalidArgument);
  int local = 0;
  EXPECT_EQ(device_->CheckMemory(&local, sizeof(local))->code, FailureCode::kInvalidArgument);
}

TEST_F(DeviceSuite, AnotherDeviceObjectReadsASegment) {
  auto made = device_->AllocateShared(1000);
  if (!made.ok()) GTEST_SKIP() << made.failure().message;
  const std::shared_ptr<DeviceSegment> segment = made.value();
  EXPECT_GE(segment->size(), 1000u);
  std::memset(host_.get(), 7, 1000);
  ASSERT_FALSE(queue_->CopyToDevice(segment->data(), host_.get(), 1000));
  ASSERT_FALSE(queue_->Wait());
  const auto device = trainer_->Open();
  // On a thread that has made no call yet: the driver's functions need a context.
  std::thread([&] {
    auto opened = device->Open(segment->descriptor(), segment->size());
    ASSERT_TRUE(opened.ok()) << opened.failure().message;
    std::vector<char> seen(1000);
    const auto failure = opened.value()->Read(seen.data(), 0, seen.size());
    ASSERT_FALSE(failure.has_value()) << failure->message;
    EXPECT_EQ(seen, std::vector<char>(1000, 7));
    EXPECT_TRUE(device->AllocateShared(1000).ok());
  }).join();

  const auto too_large = device->Open(segment->descriptor(), 64 * segment->size());
  ASSERT_FALSE(too_large.ok());
  EXPECT_EQ(too_large.failure().code, FailureCode::kInvalidArgument);
  const int null = open("/dev/null", O_RDWR | O_CLOEXEC);
  const auto no_memory = device->Open(null, segment->size());
  close(null);
  ASSERT_FALSE(no_memory.ok());
  EXPECT_EQ(no_memory.failure().code, FailureCode::kInvalidArgument);
}

// ---- work

TEST_F(DeviceSuite, AReductionAddsUp) {
  constexpr size_t kCount = 1000;
  auto* const from = static_cast<float*>(host_.get());
  for (size_t i = 0; i < kCount; ++i) from[i] = static_cast<float>(i);
  DeviceFacts facts = {kNoElement, 0, 0};
  ReduceTask task = {};
  task.combine = kernels::Combine::kAdd;
  task.finish = kernels::Finish::kNone;
  task.result_dtype = DType::kF32;
  task.term_count = 2;
  for (uint32_t i = 0; i < 2; ++i) {
    task.terms[i] = {tensor_.get(), 1.0, 1.0, i, DType::kF32};
  }
  const Memory result = device_->AllocateOnDevice(kCount * sizeof(float)).value();
  const Memory seen = device_->AllocateOnDevice(sizeof(facts)).value();
  task.output = result.get();
  task.facts = static_cast<DeviceFacts*>(seen.get());
  task.count = kCount;
  std::vector<float> sums(kCount);
  ASSERT_FALSE(queue_->CopyToDevice(tensor_.get(), from, kCount * sizeof(float)));
  ASSERT_FALSE(queue_->CopyToDevice(seen.get(), &facts, sizeof(facts)));
  ASSERT_FALSE(queue_->Run(task));
  ASSERT_FALSE(queue_->CopyToHost(sums.data(), result.get(), kCount * sizeof(float)));
  ASSERT_FALSE(queue_->CopyToHost(&facts, seen.get(), sizeof(facts)));
  ASSERT_FALSE(queue_->Wait());
  for (size_t i = 0; i < kCount; ++i) EXPECT_EQ(sums[i], 2 * from[i]) << i;
  EXPECT_EQ(facts.first_non_finite, kNoElement);
}

// Items of all sizes and alignments, gathered and scattered again.
TEST_F(DeviceSuite, TheCopyKernelCopiesWhatItIsGiven) {
  auto* const from = static_cast<unsigned char*>(host_.get());
  for (size_t i = 0; i < kBytes; ++i) from[i] = static_cast<unsigned char>(i * 7 + i / 251);
  const Memory second = device_->AllocateOnDevice(kBytes).value();
  const Memory third = device_->AllocateOnDevice(kBytes).value();
  CopyTask gather = {};
  CopyTask scatter = {};
  std::vector<std::pair<uint64_t, uint64_t>> places;  // In the tensor: begin, size.
  uint64_t begin = 0;
  uint64_t at = 0;
  for (uint32_t i = 0; i < kMaxCopies; ++i) {
    const uint64_t bytes = i < 100 ? i : i * 977;
    auto* const source = static_cast<unsigned char*>(tensor_.get()) + begin;
    auto* const gathered = static_cast<unsigned char*>(second.get()) + at;
    auto* const scattered = static_cast<unsigned char*>(third.get()) + begin;
    gather.items[i] = {source, gathered, bytes};
    scatter.items[i] = {gathered, scattered, bytes};
    places.emplace_back(begin, bytes);
    begin += bytes + 1 + i % 16;
    at += bytes + 16 - bytes % 16;
  }
  gather.count = scatter.count = kMaxCopies;
  ASSERT_LT(begin, kBytes);
  const Memory back = device_->AllocatePinned(kBytes).value();
  ASSERT_FALSE(queue_->CopyToDevice(tensor_.get(), host_.get(), kBytes));
  ASSERT_FALSE(queue_->Run(gather));
  ASSERT_FALSE(queue_->Run(scatter));
  ASSERT_FALSE(queue_->CopyToHost(back.get(), third.get(), kBytes));
  ASSERT_FALSE(queue_->Wait());
  for (const auto& [first, bytes] : places) {
    ASSERT_EQ(std::memcmp(static_cast<char*>(back.get()) + first, from + first, bytes), 0) << first;
  }
}

// Several tensors in one launch, of less than a leaf and more: the bits of the CPU.
TEST_F(DeviceSuite, TheCastKernelHasTheBitsOfTheCpu) {
  constexpr size_t kElements = kBytes / sizeof(float);
  auto* const from = static_cast<float*>(host_.get());
  for (size_t i = 0; i < kElements; ++i) {
    from[i] = std::ldexp(1.0F + static_cast<float>(i % 8191) / 8192, static_cast<int>(i % 60) - 35);
  }
  const Memory wires = device_->AllocateOnDevice(kBytes / 2).value();
  const Memory lanes = device_->AllocateOnDevice(kBytes).value();
  NarrowTask task = {};
  size_t begin = 0;
  size_t leaves = 0;
  for (const size_t count : {size_t{1}, size_t{1000}, 5 * kNormLeafElements + 77}) {
    for (const DType dtype : {DType::kF16, DType::kBF16}) {
      task.items[task.count++] = {static_cast<float*>(tensor_.get()) + begin,
                                  static_cast<uint16_t*>(wires.get()) + begin,
                                  static_cast<double*>(lanes.get()) + leaves * kNormLanes,
                                  count,
                                  2.0F,
                                  dtype};
      begin += count;
      leaves += NormLeaves(count);
    }
  }
  ASSERT_LT(begin, kElements);
  const Memory narrow = device_->AllocatePinned(kBytes / 2).value();
  const Memory sums = device_->AllocatePinned(kBytes).value();
  ASSERT_FALSE(queue_->CopyToDevice(tensor_.get(), from, kBytes));
  ASSERT_FALSE(queue_->Run(task));
  ASSERT_FALSE(queue_->CopyToHost(narrow.get(), wires.get(), 2 * begin));
  ASSERT_FALSE(queue_->CopyToHost(sums.get(), lanes.get(), leaves * kNormLanes * sizeof(double)));
  ASSERT_FALSE(queue_->Wait());
  size_t at = 0;
  const auto* sum = static_cast<const double*>(sums.get());
  for (uint32_t i = 0; i < task.count; ++i) {
    const size_t count = task.items[i].count;
    std::vector<uint16_t> wanted(count);
    CastToWire(from + at, count, task.items[i].wire_dtype, 1, wanted.data());
    const auto* const got = static_cast<const uint16_t*>(narrow.get()) + at;
    EXPECT_TRUE(std::equal(wanted.begin(), wanted.end(), got)) << i;
    std::vector<double> wanted_leaves;
    std::vector<double> got_leaves;
    AppendNormLeaves(DType::kF32, from + at, count, &wanted_leaves);
    for (size_t leaf = 0; leaf < NormLeaves(count); ++leaf, sum += kNormLanes) {
      AppendNormLeaf(sum, &got_leaves);
    }
    EXPECT_EQ(got_leaves, wanted_leaves) << i;
    at += count;
  }
}

// The magnitude that the CPU finds, of tensors that take one block and many.
TEST_F(DeviceSuite, TheSearchForTheLargestMagnitudeFindsThatOfTheCpu) {
  constexpr size_t kElements = kBytes / sizeof(float);
  auto* const from = static_cast<float*>(host_.get());
  for (size_t i = 0; i < kElements; ++i) {
    from[i] = std::ldexp(i % 3 == 0 ? -1.0F : 1.5F, -static_cast<int>((i * 31) % 160));
  }
  from[7] = std::numeric_limits<float>::quiet_NaN();
  from[kElements - 1] = 3e38F;
  const std::vector<std::pair<size_t, size_t>> ranges = {
      {0, 1}, {1, 0}, {3, 5}, {8, 1000}, {1, kElements - 1}, {8, kElements - 8}};
  const Memory found = device_->AllocateOnDevice(ranges.size() * sizeof(uint32_t)).value();
  std::vector<uint32_t> got(ranges.size(), 0);
  MagnitudeTask task = {};
  for (const auto& [begin, count] : ranges) {
    task.items[task.count] = {static_cast<float*>(tensor_.get()) + begin,
                              static_cast<uint32_t*>(found.get()) + task.count, count};
    ++task.count;
  }
  const size_t bytes = got.size() * sizeof(uint32_t);
  ASSERT_FALSE(queue_->CopyToDevice(tensor_.get(), from, kBytes));
  ASSERT_FALSE(queue_->CopyToDevice(found.get(), got.data(), bytes));
  ASSERT_FALSE(queue_->Run(task));
  ASSERT_FALSE(queue_->CopyToHost(got.data(), found.get(), bytes));
  ASSERT_FALSE(queue_->Wait());
  for (size_t i = 0; i < ranges.size(); ++i) {
    EXPECT_EQ(got[i], LargestMagnitude(from + ranges[i].first, ranges[i].second)) << i;
  }
}

TEST_F(DeviceSuite, MeasuresAreThoseOfTheHost) {
  std::mt19937_64 random(1);
  const size_t bytes = 5 * kDigestBlockBytes + 1020;
  auto* const values = static_cast<float*>(host_.get());
  for (size_t i = 0; i < bytes / sizeof(float); ++i) {
    values[i] = static_cast<float>(static_cast<int32_t>(random()));
  }
  const size_t chunks = (bytes + kDigestBlockBytes - 1) / kDigestBlockBytes;
  const size_t leaves = NormLeaves(bytes / sizeof(float));
  const Memory measures =
      device_->AllocateOnDevice(chunks * sizeof(ChunkRecord) + leaves * kNormLanes * 8).value();
  auto* const records = static_cast<ChunkRecord*>(measures.get());
  auto* const lanes = reinterpret_cast<double*>(records + chunks);
  ASSERT_FALSE(queue_->CopyToDevice(tensor_.get(), host_.get(), bytes));
  const MeasureItem item = {tensor_.get(), bytes, records, lanes, kDigestBlockBytes, DType::kF32};
  ASSERT_FALSE(queue_->Run(MeasureTask{KeysOfXxh3(), {item}, 1}));
  std::vector<ChunkRecord> seen(chunks);
  std::vector<double> sums(leaves * kNormLanes);
  ASSERT_FALSE(queue_->CopyToHost(seen.data(), records, chunks * sizeof(ChunkRecord)));
  ASSERT_FALSE(queue_->CopyToHost(sums.data(), lanes, sums.size() * sizeof(double)));
  ASSERT_FALSE(queue_->Wait());
  for (size_t chunk = 0; chunk < chunks; ++chunk) {
    const size_t size = std::min(kDigestBlockBytes, bytes - chunk * kDigestBlockBytes);
    ContentDigest expected;
    expected.Update(static_cast<char*>(host_.get()) + chunk * kDigestBlockBytes, size);
    EXPECT_EQ(ContentOf(seen[chunk], size), expected.Finish()) << chunk;
  }
  std::vector<double> got;
  std::vector<double> expected;
  for (size_t leaf = 0; leaf < leaves; ++leaf) {
    AppendNormLeaf(sums.data() + leaf * kNormLanes, &got);
  }
  AppendNormLeaves(DType::kF32, values, bytes / sizeof(float), &expected);
  EXPECT_EQ(got, expected);
}

}  // namespace
}  // namespace basin::accelerator
