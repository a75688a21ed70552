// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Loads of many pieces in both directions: gathered or not, with pinned memory or without.

#include "accelerator/transfer/courier.h"

#include <cmath>
#include <condition_variable>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/cast.h"
#include "kernels/norm.h"
#include "tests/accelerator/device/emulated_device.h"

namespace basin::accelerator {
namespace {

std::string Noise(size_t size, uint64_t seed) {
  std::string bytes(size, '\0');
  uint64_t state = seed * 0x9e3779b97f4a7c15 + 1;
  for (char& byte : bytes) {
    state = state * 6364136223846793005 + 1442695040888963407;
    byte = static_cast<char>(state >> 56);
  }
  return bytes;
}

// The outcome of a load to the host.
class Arrived {
 public:
  Courier::Fetched Callback() {
    return [this](const std::optional<kernels::Failure>& failure, const LoadLayout& layout,
                  std::shared_ptr<char> host) {
      const std::lock_guard<std::mutex> lock(mutex_);
      failure_ = failure;
      layout_ = layout;
      host_ = std::move(host);
      done_ = true;
      changed_.notify_all();
    };
  }
  std::shared_ptr<char> Await() {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [this] { return done_; });
    return host_;
  }
  std::optional<kernels::Failure> failure() {
    Await();
    return failure_;
  }
  const LoadLayout& layout() {
    Await();
    return layout_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool done_ = false;
  std::optional<kernels::Failure> failure_;
  LoadLayout layout_;
  std::shared_ptr<char> host_;
};

class CourierTest : public testing::Test {
 protected:
  // Sizes below, at and above the limit of a small piece, and of none.
  void MakeTensors(size_t small) {
    std::vector<uint64_t> sizes = {Courier::kLargePiece, 0, 3 * Courier::kLargePiece + 5};
    for (size_t i = 0; i < small; ++i) sizes.push_back(1 + 97 * i % 5000);
    sizes.push_back(Courier::kLargePiece - 1);
    for (size_t i = 0; i < sizes.size(); ++i) {
      tensors_.push_back(AllocateForTrainer(faults_, sizes[i]));
      content_.push_back(Noise(sizes[i], i));
      content_[i].copy(static_cast<char*>(tensors_.back().get()), sizes[i]);
      layout_.pieces.push_back({tensors_.back().get(), sizes[i]});
    }
    layout_.Arrange();
  }
  void Start(uint64_t pinned_bytes = uint64_t{64} << 20) {
    courier_ = std::make_unique<Courier>(MakeEmulatedDevice(faults_),
                                         std::make_shared<PinnedBudget>(pinned_bytes));
  }
  Courier::EventPtr Now() { return courier_->Record(&stream_).value(); }
  // Fetches the tensors, and compares.
  void Fetch() {
    Arrived arrived;
    courier_->Fetch(layout_, Now(), arrived.Callback());
    const std::shared_ptr<char> host = arrived.Await();
    ASSERT_NE(host, nullptr) << arrived.failure()->message;
    for (size_t i = 0; i < tensors_.size(); ++i) {
      ASSERT_EQ(std::string(host.get() + layout_.pieces[i].at, layout_.pieces[i].bytes),
                content_[i]);
    }
  }
  // Adds tensors of f32 that are sent narrow.
  void MakeNarrowTensors(const std::vector<uint64_t>& counts) {
    for (size_t i = 0; i < counts.size(); ++i) {
      std::vector<float> floats(counts[i]);
      for (size_t k = 0; k < floats.size(); ++k) {
        floats[k] = std::ldexp(1.0F + static_cast<float>((k * 37 + i) % 4099) / 4099,
                               static_cast<int>(k % 30) - 15);
      }
      const uint64_t bytes = counts[i] * sizeof(float);
      tensors_.push_back(AllocateForTrainer(faults_, bytes));
      content_.emplace_back(reinterpret_cast<const char*>(floats.data()), bytes);
      content_.back().copy(static_cast<char*>(tensors_.back().get()), bytes);
      const DType dtype = i % 2 == 0 ? DType::kBF16 : DType::kF16;
      layout_.pieces.push_back({tensors_.back().get(), bytes, {dtype, static_cast<int>(i % 3)}});
    }
    layout_.Arrange();
  }
  // Adds tensors of f32 that are sent as f16 with the exponent that fits them. The first element
  // of each is a special value or not.
  void MakeFittedTensors(const std::vector<uint64_t>& counts) {
    MakeNarrowTensors(counts);
    const std::vector<float> first = {0.0F,
                                      std::numeric_limits<float>::denorm_min(),
                                      -std::numeric_limits<float>::max(),
                                      std::numeric_limits<float>::infinity(),
                                      std::numeric_limits<float>::quiet_NaN(),
                                      -0.0F,
                                      65520.0F};
    for (size_t i = 0; i < counts.size(); ++i) {
      const size_t at = tensors_.size() - counts.size() + i;
      layout_.pieces[at].narrow = {DType::kF16, kernels::kFitExponent};
      if (content_[at].empty()) continue;
      std::memcpy(content_[at].data(), &first[i % first.size()], sizeof(float));
      content_[at].copy(static_cast<char*>(tensors_[at].get()), content_[at].size());
    }
    layout_.Arrange();
  }
  // Fetches the tensors; those that are narrow have the bits and the norms of the CPU.
  void FetchNarrow(bool narrow) {
    Arrived arrived;
    courier_->Fetch(layout_, Now(), arrived.Callback());
    const std::shared_ptr<char> host = arrived.Await();
    ASSERT_NE(host, nullptr) << arrived.failure()->message;
    for (size_t i = 0; i < tensors_.size(); ++i) {
      SCOPED_TRACE(i);
      const LoadPiece& asked = layout_.pieces[i];
      const LoadPiece& piece = arrived.layout().pieces[i];
      EXPECT_EQ(piece.is_narrow(), narrow && asked.is_narrow());
      const std::string got(host.get() + piece.at, piece.host_bytes());
      if (!piece.is_narrow()) {
        EXPECT_TRUE(got == content_[i]);
        continue;
      }
      const size_t count = content_[i].size() / sizeof(float);
      std::string wanted(piece.host_bytes(), '\0');
      int exponent = asked.narrow.wire_exponent;
      if (asked.is_fitted()) {
        exponent = kernels::FittedExponent(kernels::LargestMagnitude(content_[i].data(), count));
      }
      EXPECT_EQ(piece.narrow.wire_exponent, exponent);
      kernels::CastToWire(content_[i].data(), count, asked.narrow.wire_dtype, exponent,
                          wanted.data());
      EXPECT_TRUE(got == wanted);
      std::vector<double> leaves;
      kernels::AppendNormLeaves(DType::kF32, content_[i].data(), count, &leaves);
      const double norm = LoadLayout::SquaredNorm(piece, host.get());
      const double wanted_norm = kernels::SquaredNorm(leaves.data(), leaves.size());
      EXPECT_EQ(std::isnan(norm), std::isnan(wanted_norm));
      EXPECT_TRUE(std::isnan(norm) || norm == wanted_norm);
    }
  }
  // Brings other content, and compares in the stream.
  void Bring() {
    for (size_t i = 0; i < content_.size(); ++i) content_[i] = Noise(content_[i].size(), 1000 + i);
    const auto refused = courier_->Bring({layout_}, Now(), &stream_, [&](size_t, char* host) {
      for (size_t i = 0; i < content_.size(); ++i) {
        content_[i].copy(host + layout_.pieces[i].at, content_[i].size());
      }
      return absl::OkStatus();
    });
    ASSERT_TRUE(refused.ok());
    bool same = true;
    stream_.Add([&] {
      for (size_t i = 0; i < tensors_.size(); ++i) {
        same &= std::memcmp(tensors_[i].get(), content_[i].data(), content_[i].size()) == 0;
      }
    });
    stream_.Synchronize();
    EXPECT_TRUE(same);
  }

  const std::shared_ptr<FaultPlan> faults_ = std::make_shared<FaultPlan>();
  EmulatedStream stream_;
  std::vector<Memory> tensors_;
  std::vector<std::string> content_;
  LoadLayout layout_;
  std::unique_ptr<Courier> courier_;
};

TEST_F(CourierTest, SmallPiecesAreGatheredIntoOneCopy) {
  MakeTensors(300);
  Start();
  Fetch();
  // 301 small pieces and one without bytes, 160 in each launch.
  EXPECT_EQ(faults_->launches, 2);
  // A queue, its memory, an event and its record, the pinned block, the order after the event, two
  // launches, three copies, and the wait.
  EXPECT_EQ(faults_->calls, 12);
  Bring();
  EXPECT_EQ(faults_->launches, 4);
}

// More tensors than a launch takes, and more elements than the memory of the device has room for:
// a tensor begins where the last one has ended, and goes over several launches.
TEST_F(CourierTest, NarrowPiecesAreCastOnTheDevice) {
  MakeTensors(20);
  std::vector<uint64_t> counts;
  for (uint64_t i = 0; i < 2 * kernels::cuda::kMaxNarrows; ++i) counts.push_back(i * i);
  counts.insert(counts.end(), {0, 40'000, 1'500'000, 3'000'001, 7});
  MakeNarrowTensors(counts);
  Start();
  FetchNarrow(true);
  EXPECT_GT(faults_->launches, 4);
}

// The device computes the exponents, of more tensors than one launch takes, and of tensors that go
// over several. The second load has the memory of the first, and smaller values.
TEST_F(CourierTest, ExponentsAreFittedOnTheDevice) {
  MakeTensors(20);
  MakeNarrowTensors({1000, 1001});
  std::vector<uint64_t> counts(kernels::cuda::kMaxMagnitudes + 5, 1);
  counts.insert(counts.end(), {0, 40'000, 1'500'000, 3'000'001, 7});
  MakeFittedTensors(counts);
  Start();
  FetchNarrow(true);
  for (size_t i = 0; i < tensors_.size(); ++i) {
    content_[i].assign(content_[i].size(), '\0');
    content_[i].copy(static_cast<char*>(tensors_[i].get()), content_[i].size());
  }
  FetchNarrow(true);
}

// As many tensors as a load may have.
TEST_F(CourierTest, EveryPieceOfALoadMayBeFitted) {
  MakeFittedTensors(std::vector<uint64_t>(Courier::kMostPieces, 3));
  Start();
  FetchNarrow(true);
}

TEST_F(CourierTest, WithoutMemoryOfTheDeviceNarrowPiecesComeAsTheyAre) {
  faults_->device_bytes = 0;
  MakeTensors(20);
  MakeNarrowTensors({0, 1, 40'000, 1'500'000});
  MakeFittedTensors({3});
  Start();
  FetchNarrow(false);
  EXPECT_EQ(faults_->launches, 0);
}

TEST_F(CourierTest, WithoutMemoryOfTheDeviceSmallPiecesAreCopiedOneByOne) {
  faults_->device_bytes = 0;
  MakeTensors(20);
  Start();
  Fetch();
  Bring();
  EXPECT_EQ(faults_->launches, 0);
}

TEST_F(CourierTest, WithoutPinnedMemoryOrdinaryMemoryIsUsed) {
  MakeTensors(20);
  Start(0);
  Fetch();
  Bring();
  EXPECT_EQ(faults_->pinned_bytes, int64_t{1} << 40);
}

TEST_F(CourierTest, MoreSmallPiecesThanFitIntoTheArrayAreCopiedOneByOne) {
  constexpr uint64_t kPiece = Courier::kLargePiece - 64;
  for (uint64_t bytes = 0; bytes < Courier::kMostGathered + 3 * kPiece; bytes += kPiece) {
    tensors_.push_back(AllocateForTrainer(faults_, kPiece));
    content_.push_back(Noise(kPiece, bytes));
    std::memcpy(tensors_.back().get(), content_.back().data(), kPiece);
    layout_.pieces.push_back({tensors_.back().get(), kPiece});
  }
  layout_.Arrange();
  EXPECT_LE(layout_.gathered, Courier::kMostGathered);
  Start();
  Fetch();
  Bring();
}

// The device gets several loads at once; the callers wait for none of them.
TEST_F(CourierTest, SeveralLoadsAreOnTheirWayAtOnce) {
  MakeTensors(3);
  Start();
  stream_.Hold();
  std::vector<Arrived> arrived(10);
  for (Arrived& one : arrived) courier_->Fetch(layout_, Now(), one.Callback());
  EXPECT_GT(faults_->most_busy, 1);
  stream_.Release();
  for (Arrived& one : arrived) EXPECT_NE(one.Await(), nullptr);
}

// Blocks that others hold are waited for while loads are on their way, and then done without.
TEST_F(CourierTest, LoadsGoOnWhileAllPinnedMemoryIsHeld) {
  MakeTensors(3);
  Start(layout_.bytes * 2);
  std::vector<Arrived> arrived(6);
  for (Arrived& one : arrived) courier_->Fetch(layout_, Now(), one.Callback());
  for (Arrived& one : arrived) EXPECT_NE(one.Await(), nullptr) << "each holds its block";
}

TEST_F(CourierTest, Fault_A13_TheEndDoesNotWaitForAStreamThatNeverRuns) {
  MakeTensors(3);
  Start();
  stream_.Hold();
  std::vector<Arrived> arrived(8);
  for (Arrived& one : arrived) courier_->Fetch(layout_, Now(), one.Callback());
  courier_.reset();
  for (Arrived& one : arrived) EXPECT_TRUE(one.failure().has_value());
  stream_.Release();
}

// A failure that the device reports when Bring has returned is reported by the next call.
TEST_F(CourierTest, Fault_A13_ALateFailureIsNotLost) {
  MakeTensors(3);
  Start();
  stream_.Hold();
  const Courier::EventPtr now = Now();
  ASSERT_TRUE(
      courier_->Bring({layout_}, now, &stream_, [](size_t, char*) { return absl::OkStatus(); })
          .ok());
  faults_->hangs = true;
  faults_->hung = true;
  stream_.Release();
  std::optional<kernels::Failure> late;
  while (!late) late = courier_->TakeLateFailure();
  EXPECT_EQ(late->code, kernels::FailureCode::kDevice);
}

}  // namespace
}  // namespace basin::accelerator
