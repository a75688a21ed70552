// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The speed of a trainer's copies between a device and the host, as a share of that of one copy
// from or to pinned memory of the same device in the same run: in each direction, and in both at
// once. The copies are those of the client, in loads of 8 MiB through a Courier with the pinned
// memory that it has by default. Each figure is the median of several runs after a warm-up, in time
// of the host, from the first call until the last byte is there.
//
// Those are judged in which nobody writes the pinned memory. For results the thread that calls does
// so, from what was received; that is measured as well, beside a copy within the host by one
// thread, which bounds it.
//
// With --emulated a few bytes are copied on the emulated device, to see that the program runs.
//
// usage: copy_bench [--device=INDEX] [--emulated] [--least=SHARE]
//   --least  the share that is enough (default: 0.85; with 0 nothing is judged)
// Exit status: 0, 1 on an error, a wrong byte or a smaller share, 77 skipped: there is no device.

#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "accelerator/device/cuda_device.h"
#include "accelerator/transfer/courier.h"
#include "tests/accelerator/device/driver_is_loaded.h"
#include "tests/accelerator/device/emulated_device.h"
#include "tests/kernels/cuda/bench_verdicts.h"

namespace basin::accelerator {
namespace {

using kernels::cuda::BenchOptions;
using kernels::cuda::MedianSeconds;

constexpr double kEnough = 0.85;
constexpr uint64_t kPinnedBytes = uint64_t{512} << 20;

struct Sizes {
  uint64_t load_bytes;
  size_t loads;
  int runs;

  uint64_t bytes() const { return load_bytes * loads; }
};
constexpr Sizes kLarge = {uint64_t{8} << 20, 64, 11};
constexpr Sizes kTiny = {uint64_t{128} << 10, 3, 1};

void Check(const std::optional<kernels::Failure>& failure) {
  if (!failure) return;
  std::printf("failed: %s\n", failure->message.c_str());
  std::exit(1);
}

template <typename T>
T Checked(kernels::Result<T> result) {
  if (!result.ok()) Check(result.failure());
  return std::move(result).value();
}

char* At(const Memory& memory, uint64_t offset) {
  return static_cast<char*>(memory.get()) + offset;
}

class Bench {
 public:
  Bench(std::unique_ptr<Device> device, const Sizes& sizes)
      : sizes_(sizes),
        courier_(std::move(device), std::make_shared<PinnedBudget>(kPinnedBytes)),
        device_(courier_.device()) {
    content_.resize(sizes.bytes());
    for (uint64_t i = 0; i < content_.size(); ++i) {
      content_[i] = static_cast<char>(i * 7 + i / 65521);
    }
    fetched_.resize(sizes.bytes());
    gradients_ = Checked(device_.AllocateOnDevice(sizes.bytes()));
    results_ = Checked(device_.AllocateOnDevice(sizes.bytes()));
    up_ = Checked(device_.MakeQueue());
    down_ = Checked(device_.MakeQueue());
    for (size_t i = 0; i < sizes.loads; ++i) {
      from_.push_back(LoadOf(gradients_, i));
      to_.push_back(LoadOf(results_, i));
    }
  }

  int Run(double least) {
    kernels::cuda::Verdicts verdicts(least);
    const double bytes = 1e-9 * static_cast<double>(sizes_.bytes());
    std::printf("%s, %zu loads of %llu KiB, median of %d\n", std::string(device_.name()).c_str(),
                sizes_.loads, static_cast<unsigned long long>(sizes_.load_bytes >> 10),
                sizes_.runs);
    if (!IsRight()) {
      std::printf("failed: the copies have changed bytes\n");
      return 1;
    }
    const Plain plain = MeasurePlain();
    std::printf("%-20s %16s %16s %8s\n", "", "one copy, GB/s", "courier, GB/s", "share");
    const auto row = [&](const char* what, double amount, double reference, double seconds) {
      std::printf("%-20s %16.1f %16.1f %7.1f%%\n", what, amount / reference, amount / seconds,
                  100 * reference / seconds);
      verdicts.Judge(std::string("copies ") + what + ", as a share of one pinned copy",
                     reference / seconds);
    };
    row("to the host", bytes, plain.to_host, Measure([&] { FetchAll(false); }));
    row("to the device", bytes, plain.to_device, Measure([&] { BringAll(false); }));
    // Counted are the bytes of both.
    row("both ways at once", 2 * bytes, plain.both, Measure([&] {
          StartFetch(false);
          BringAll(false);
          AwaitFetch();
        }));
    const double within =
        Measure([&] { std::memcpy(fetched_.data(), content_.data(), sizes_.bytes()); });
    const double filled = Measure([&] { BringAll(true); });
    std::printf("to the device, written by the caller: %.1f GB/s; a copy within the host: %.1f\n",
                bytes / filled, bytes / within);
    return verdicts.Report();
  }

 private:
  LoadLayout LoadOf(const Memory& memory, size_t load) const {
    LoadLayout layout;
    layout.pieces.push_back({At(memory, load * sizes_.load_bytes), sizes_.load_bytes});
    layout.Arrange();
    return layout;
  }

  template <typename Function>
  double Measure(Function run) const {
    return MedianSeconds(sizes_.runs, run);
  }

  // ---- one copy

  struct Plain {
    double to_host;
    double to_device;
    double both;
  };
  Plain MeasurePlain() {
    const Memory from = Checked(device_.AllocatePinned(sizes_.bytes()));
    const Memory to = Checked(device_.AllocatePinned(sizes_.bytes()));
    std::memset(from.get(), 1, sizes_.bytes());
    std::memset(to.get(), 1, sizes_.bytes());
    const auto copy = [&](bool to_host, bool to_device) {
      return Measure([&, to_host, to_device] {
        if (to_host) Check(down_->CopyToHost(to.get(), gradients_.get(), sizes_.bytes()));
        if (to_device) Check(up_->CopyToDevice(results_.get(), from.get(), sizes_.bytes()));
        Check(down_->Wait());
        Check(up_->Wait());
      });
    };
    return {copy(true, false), copy(false, true), copy(true, true)};
  }

  // ---- the courier

  void StartFetch(bool keep) {
    const Courier::EventPtr now = Checked(courier_.Record(nullptr));
    left_ = sizes_.loads;
    for (size_t i = 0; i < sizes_.loads; ++i) {
      courier_.Fetch(from_[i], now,
                     [this, i, keep](const std::optional<kernels::Failure>& failure,
                                     const LoadLayout& layout, const std::shared_ptr<char>& host) {
                       Check(failure);
                       if (keep) {
                         std::memcpy(fetched_.data() + i * sizes_.load_bytes,
                                     host.get() + layout.pieces[0].at, sizes_.load_bytes);
                       }
                       const std::lock_guard<std::mutex> lock(mutex_);
                       --left_;
                       changed_.notify_all();
                     });
    }
  }
  void AwaitFetch() {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [this] { return left_ == 0; });
  }
  void FetchAll(bool keep) {
    StartFetch(keep);
    AwaitFetch();
  }

  // Returns when the stream could use what was brought.
  void BringAll(bool written) {
    const Courier::EventPtr now = Checked(courier_.Record(nullptr));
    const Courier::Refused refused =
        courier_.Bring(to_, now, nullptr, [this, written](size_t load, char* host) {
          if (written) {
            std::memcpy(host + to_[load].pieces[0].at, content_.data() + load * sizes_.load_bytes,
                        sizes_.load_bytes);
          }
          return absl::OkStatus();
        });
    Check(refused.failure);
    const Courier::EventPtr brought = Checked(courier_.Record(nullptr));
    Check(up_->After(brought.get()));
    Check(up_->Wait());
    Check(courier_.TakeLateFailure());
  }

  // Whether what is brought is there, and can be fetched.
  bool IsRight() {
    BringAll(true);
    std::swap(from_, to_);
    FetchAll(true);
    std::swap(from_, to_);
    return fetched_ == content_;
  }

  const Sizes sizes_;
  std::vector<char> content_;
  std::vector<char> fetched_;
  std::mutex mutex_;
  std::condition_variable changed_;
  size_t left_ = 0;  // Loads that have not come; guarded by mutex_ while they come.
  Courier courier_;
  Device& device_;
  Memory gradients_;
  Memory results_;
  std::unique_ptr<Queue> up_;
  std::unique_ptr<Queue> down_;
  std::vector<LoadLayout> from_;
  std::vector<LoadLayout> to_;
};

int Run(const BenchOptions& options) {
  if (options.emulated) {
    const auto faults = std::make_shared<FaultPlan>();
    return Bench(MakeEmulatedDevice(faults), kTiny).Run(options.least);
  }
  auto opened = OpenCudaDevice(options.device);
  if (!opened.ok()) {
    const bool fails = DriverIsLoaded();
    std::printf("%s: %s\n", fails ? "failed" : "skipped", opened.failure().message.c_str());
    return fails ? 1 : 77;
  }
  return Bench(std::move(opened).value(), kLarge).Run(options.least);
}

}  // namespace
}  // namespace basin::accelerator

int main(int argc, char** argv) {
  setvbuf(stdout, nullptr, _IOLBF, 0);  // What is known when it is ended shall be seen.
  return basin::accelerator::Run(
      basin::kernels::cuda::BenchOptions::Parse(argc, argv, basin::accelerator::kEnough));
}
