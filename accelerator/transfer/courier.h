// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Carries tensors between the memory of one device and the host.
//
// A LOAD is a set of pieces of tensors that travel together, through one block of host memory and
// one queue of the device. Small pieces are gathered into one array by a kernel, or scattered from
// one, and take one copy together. A kernel casts what is to be sent narrow before it is copied, so
// that half of the bytes cross the bus. If the scale depends on the tensor, a kernel before the
// cast finds the largest magnitude, which comes to the host with the tensor. A STAGED load goes to
// memory of the device that is shared with the aggregator instead: only digests, norms and
// magnitudes come to the host. Several
// loads are on their way at once: while the thread of the courier delivers one, the device copies
// the next.
//
// No call waits for the device, except that Bring waits for a queue while all of them are in use.
//
// Thread contract: safe from any thread. Callbacks run on the courier's thread. Failure: of a call
// that the device refuses, with the failure of device.h; of a load, through its callback.
// Without memory of the device small pieces are copied one by one, and nothing is cast; without
// pinned memory a load waits for a block, or takes ordinary memory.

#ifndef BASIN_ACCELERATOR_TRANSFER_COURIER_H_
#define BASIN_ACCELERATOR_TRANSFER_COURIER_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "accelerator/device/device.h"
#include "accelerator/transfer/pinned_pool.h"
#include "kernels/checksum.h"
#include "kernels/fit.h"
#include "protocol/dtype.h"
#include "protocol/frame.h"
#include "runtime/mutex.h"

namespace basin::accelerator {

// Bytes of a tensor on the device, and where they are in the block of their load.
struct LoadPiece {
  void* device = nullptr;
  uint64_t bytes = 0;  // On the device.
  // If the dtype is specified, the piece is a whole tensor of f32, aligned to its elements, that
  // travels as this encoding. It may ask for the fitted exponent (fit.h), and has the exponent
  // itself when the piece has come.
  Encoding narrow = {};
  uint64_t at = 0;
  // Where the sums of squares of the leaves are, if the piece is narrow or staged; see norm.h.
  uint64_t lanes = 0;
  // Where a staged piece goes, as it travels; null: it goes to the host. Its elements, and where
  // the records of its chunks are (measure.h).
  char* staged = nullptr;
  DType dtype = DType::kF32;
  uint64_t records = 0;
  // Where the largest magnitude of a fitted piece is.
  uint64_t magnitude = 0;

  bool is_narrow() const { return narrow.wire_dtype != DType::kUnspecified; }
  bool is_fitted() const { return is_narrow() && narrow.wire_exponent == kernels::kFitExponent; }
  uint64_t host_bytes() const { return is_narrow() ? bytes / 2 : bytes; }
};

// The pieces of one load, laid out in its block: small ones first, then narrow ones. All of them or
// none are staged; then the block holds what was measured.
struct LoadLayout {
  std::vector<LoadPiece> pieces;
  uint64_t bytes = 0;
  uint64_t gathered = 0;  // Bytes of the block that hold small pieces.
  // The largest magnitudes, one after the other.
  uint64_t magnitudes = 0;
  uint64_t magnitude_bytes = 0;

  void Arrange();  // Sets where the pieces are, and the sizes.
  void Widen();    // The same, with all pieces as they are on the device.
  void Unstage();  // The same, with all pieces going to the host.
  bool is_staged() const { return !pieces.empty() && pieces.front().staged != nullptr; }
  // Replaces the request for a fitted exponent by what the magnitudes say. `host`: the block.
  void Fit(const char* host);
  // The squared norm that a narrow or staged piece had on the device. `host`: the block.
  static double SquaredNorm(const LoadPiece& piece, const char* host);
  // The contents of the chunks of a staged piece, as they travel.
  static std::vector<kernels::Digest> Contents(const LoadPiece& piece, const char* host);

 private:
  void ArrangeMagnitudes();
};

class Courier {
 public:
  using Failure = kernels::Failure;
  using EventPtr = std::shared_ptr<Event>;

  // Pieces of this size and above are copied one by one.
  static constexpr uint64_t kLargePiece = uint64_t{64} << 10;
  // A piece that grows is copied in parts of this size, as it is on the device.
  static constexpr uint64_t kPart = uint64_t{8} << 20;
  // The most that the small pieces of a load take, and the memory of the device for a load.
  static constexpr uint64_t kMostGathered = uint64_t{4} << 20;
  // The most pieces of a load to the host. The memory of the device has room for the largest
  // magnitude of each, and what is measured of so many staged ones takes only a part of it.
  static constexpr uint64_t kMostPieces = 2048;

  Courier(std::unique_ptr<Device> device, std::shared_ptr<PinnedBudget> budget);
  // Drops the loads that have not started, waits for the others, and reports all of them.
  ~Courier();
  Courier(const Courier&) = delete;
  Courier& operator=(const Courier&) = delete;

  Device& device() { return *device_; }

  // A point behind the work that the stream has been given.
  kernels::Result<EventPtr> Record(Stream stream);

  // `host`: the block with the pieces; null after a failure. The last holder releases it.
  // `layout`: as they are in it.
  using Fetched = std::function<void(const std::optional<Failure>& failure,
                                     const LoadLayout& layout, std::shared_ptr<char> host)>;
  // Copies the pieces to the host, after the event. REQUIRES: the layout is placed, and has at most
  // kMostPieces; the pieces stay valid and unchanged until `done` is called. Without memory of the
  // device for what is measured, a staged load goes to the host after all.
  //
  // `grown`, if there is one: is called before, each time that more of the only piece has come,
  // with the bytes of it that are in the block now, whole chunks of the tensor. REQUIRES then: one
  // piece.
  using Grown = std::function<void(const LoadLayout& layout, const std::shared_ptr<char>& host,
                                   uint64_t host_bytes)>;
  void Fetch(LoadLayout layout, EventPtr after, Fetched done, Grown grown = nullptr);

  // Copies loads to the device, each after the event, and makes the stream wait for them. `fill`
  // writes the pieces of load `index` to its block, and is called in this call.
  // Failure: that of `fill`, or of the device; then nothing is on its way, and the stream waits for
  // nothing.
  struct Refused {
    absl::Status status;             // What `fill` returned.
    std::optional<Failure> failure;  // What the device could not do.
    bool ok() const { return status.ok() && !failure.has_value(); }
  };
  using Fill = std::function<absl::Status(size_t index, char* host)>;
  Refused Bring(const std::vector<LoadLayout>& loads, const EventPtr& after, Stream stream,
                const Fill& fill);

  // The failure of a load that Bring had started before it returned. Reported once.
  std::optional<Failure> TakeLateFailure();

 private:
  struct Slot {
    std::unique_ptr<Queue> queue;
    Memory gathered;  // Null: there is no memory.
  };
  struct Load {
    LoadLayout layout;
    EventPtr after;
    std::shared_ptr<char> host;
    Fetched done;                 // Null if it goes to the device.
    Grown grown;                  // May be null.
    std::vector<uint64_t> marks;  // Bytes of the piece that are in the block at each mark.
    std::unique_ptr<Slot> slot;
    std::optional<Failure> failure;  // Why it has not started.

    bool to_host() const { return done != nullptr; }
  };
  using LoadPtr = std::unique_ptr<Load>;
  // Those of one direction.
  struct Slots {
    std::vector<std::unique_ptr<Slot>> idle;
    int made = 0;
  };

  // Gives the load a slot if one is idle, or may be made; then it has none yet.
  static bool TakeSlot(Load& load, Slots& slots, int most);
  // Makes its slot if it has none.
  void MakeSlot(Load& load);
  // Adds the copies to the load's queue.
  std::optional<Failure> StartFetch(Load& load);
  static std::optional<Failure> StartMagnitudes(Load& load);
  static std::optional<Failure> StartNarrow(Load& load);
  static std::optional<Failure> StartStaged(Load& load);
  // Where the device has the largest magnitude of a fitted piece.
  static uint32_t* MagnitudeOf(const Load& load, const LoadPiece& piece);
  // The item of a cast of the piece; the caller adds the arrays.
  static kernels::cuda::NarrowItem CastOf(const Load& load, const LoadPiece& piece);
  // What was added so far brings the first bytes of the piece, which are not all.
  static std::optional<Failure> Mark(Load& load, uint64_t host_bytes);
  std::optional<Failure> StartBring(Load& load, Stream stream);

  // Starts loads that wait, as long as there are slots and blocks. Called by the courier's thread
  // or a caller's. `patient`: a load may wait for a block that is in use.
  void StartWaiting(bool patient) ABSL_LOCKS_EXCLUDED(mutex_);
  // Returns the slot of a load that is over.
  void Release(Load& load) ABSL_LOCKS_EXCLUDED(mutex_);
  // Waits for a load that has started, reporting what comes; returns why not all of it has.
  static std::optional<Failure> Await(Load& load);
  // Waits for a load that has started, and reports it.
  void Deliver(LoadPtr load);
  void Run();

  // A load that is being started by a thread counts, so that the end waits for it.
  bool Quiet() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return waiting_.empty() && on_their_way_.empty() && starting_ == 0;
  }

  const std::shared_ptr<Device> device_;
  const std::shared_ptr<PinnedPool> pool_;

  Mutex mutex_;
  Condition changed_;
  std::deque<LoadPtr> waiting_ ABSL_GUARDED_BY(mutex_);
  std::deque<LoadPtr> on_their_way_ ABSL_GUARDED_BY(mutex_);  // Oldest first.
  int starting_ ABSL_GUARDED_BY(mutex_) = 0;
  // Loads of one direction do not wait for those of the other.
  Slots fetching_ ABSL_GUARDED_BY(mutex_);
  Slots bringing_ ABSL_GUARDED_BY(mutex_);
  std::optional<Failure> late_ ABSL_GUARDED_BY(mutex_);
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;

  std::thread thread_;
};

}  // namespace basin::accelerator

#endif  // BASIN_ACCELERATOR_TRANSFER_COURIER_H_
