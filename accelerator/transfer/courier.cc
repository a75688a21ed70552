// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "accelerator/transfer/courier.h"

#include <pthread.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "accelerator/device/task_batch.h"
#include "kernels/cuda/measure.h"
#include "kernels/norm.h"
#include "runtime/signals_blocked.h"

namespace basin::accelerator {
namespace {

using kernels::cuda::ChunkRecord;
using kernels::cuda::kMaxNarrows;
using kernels::cuda::NarrowItem;

// Loads of a direction that are on their way at once: one is copied, one is delivered, and the next
// ones are ready for the device.
constexpr int kFetchingSlots = 4;
constexpr int kBringingSlots = 3;

// Where pieces begin in a block.
constexpr uint64_t kPieceAlignment = 64;

uint64_t Aligned(uint64_t at) {
  return (at + kPieceAlignment - 1) / kPieceAlignment * kPieceAlignment;
}

// What a launch of casts writes to the memory of the device: elements, then sums of squares.
constexpr uint64_t kLeafBytes = kernels::kNormLeafElements * sizeof(uint16_t);
constexpr uint64_t kLanesOfLeaf = kernels::kNormLanes * sizeof(double);
constexpr uint64_t kMostNarrow = uint64_t{3} << 20;
static_assert(kMostNarrow >= kLeafBytes);
static_assert((kMostNarrow / kLeafBytes + kMaxNarrows) * kLanesOfLeaf <=
              Courier::kMostGathered - kMostNarrow);

// Behind them, the largest magnitudes.
constexpr uint64_t kDeviceBytes = Courier::kMostGathered + Courier::kMostPieces * sizeof(uint32_t);

uint64_t LeavesOf(const LoadPiece& piece) {
  // A staged piece of fp8, which no job reduces, is not measured.
  const bool has_norm = IsFloatingPoint(piece.dtype) && ElementSize(piece.dtype) > 1;
  return has_norm ? kernels::NormLeaves(piece.bytes / ElementSize(piece.dtype)) : 0;
}

uint64_t ChunksOf(const LoadPiece& piece) {
  const uint64_t chunk = WireChunkBytes(piece.narrow.wire_dtype);
  return (piece.host_bytes() + chunk - 1) / chunk;
}

// A large piece is copied within the device in parts, by many blocks of a kernel.
constexpr uint64_t kCopiedPart = uint64_t{1} << 20;

std::shared_ptr<char> OrdinaryMemory(uint64_t bytes) {
  return {new char[bytes], [](const char* data) { delete[] data; }};
}

// Copies between the small pieces and `gathered`.
std::optional<Failure> CopySmall(const LoadLayout& layout, char* gathered, bool to_gathered,
                                 Queue& queue) {
  TaskBatch copies(queue, CopyTask{});
  for (const LoadPiece& piece : layout.pieces) {
    if (piece.at >= layout.gathered || piece.bytes == 0) continue;
    char* const there = gathered + piece.at;
    auto failure = to_gathered ? copies.Add({piece.device, there, piece.bytes})
                               : copies.Add({there, piece.device, piece.bytes});
    if (failure) return failure;
  }
  return copies.Finish();
}

// Adds a copy, which may be of any length.
template <typename Batch>
std::optional<Failure> AddCopy(Batch& copies, const char* from, char* to, uint64_t bytes) {
  std::optional<Failure> failure;
  for (uint64_t begin = 0; begin < bytes && !failure; begin += kCopiedPart) {
    failure = copies.Add({from + begin, to + begin, std::min(kCopiedPart, bytes - begin)});
  }
  return failure;
}

}  // namespace

void LoadLayout::Arrange() {
  bytes = 0;
  gathered = 0;
  if (is_staged()) {
    for (LoadPiece& piece : pieces) {
      piece.records = bytes;
      piece.lanes = piece.records + ChunksOf(piece) * sizeof(ChunkRecord);
      bytes = piece.lanes + LeavesOf(piece) * kLanesOfLeaf;
    }
    ArrangeMagnitudes();
    bytes = std::max<uint64_t>(bytes, 1);
    return;
  }
  std::vector<LoadPiece*> large;
  for (LoadPiece& piece : pieces) {
    if (piece.is_narrow()) continue;
    const bool small =
        piece.bytes < Courier::kLargePiece && bytes + piece.bytes <= Courier::kMostGathered;
    if (!small) {
      large.push_back(&piece);
      continue;
    }
    piece.at = bytes;
    bytes = Aligned(bytes + piece.bytes);
    gathered = piece.at + piece.bytes;
  }
  for (LoadPiece& piece : pieces) {
    if (!piece.is_narrow()) continue;
    piece.at = bytes;
    bytes = Aligned(bytes + piece.host_bytes());
  }
  for (LoadPiece& piece : pieces) {
    if (!piece.is_narrow()) continue;
    piece.lanes = bytes;
    bytes += LeavesOf(piece) * kLanesOfLeaf;
  }
  ArrangeMagnitudes();
  bytes = Aligned(bytes);
  for (LoadPiece* const piece : large) {
    piece->at = bytes;
    bytes = Aligned(bytes + piece->bytes);
  }
  bytes = std::max<uint64_t>(bytes, 1);
}

void LoadLayout::ArrangeMagnitudes() {
  magnitudes = bytes;
  for (LoadPiece& piece : pieces) {
    if (!piece.is_fitted()) continue;
    piece.magnitude = bytes;
    bytes += sizeof(uint32_t);
  }
  magnitude_bytes = bytes - magnitudes;
}

void LoadLayout::Widen() {
  for (LoadPiece& piece : pieces) piece.narrow = {};
  Arrange();
}

void LoadLayout::Unstage() {
  for (LoadPiece& piece : pieces) piece.staged = nullptr;
  Arrange();
}

std::vector<kernels::Digest> LoadLayout::Contents(const LoadPiece& piece, const char* host) {
  const auto* const records = reinterpret_cast<const ChunkRecord*>(host + piece.records);
  const uint64_t chunk_bytes = WireChunkBytes(piece.narrow.wire_dtype);
  std::vector<kernels::Digest> contents;
  for (uint64_t chunk = 0; chunk < ChunksOf(piece); ++chunk) {
    const uint64_t left = piece.host_bytes() - chunk * chunk_bytes;
    contents.push_back(kernels::cuda::ContentOf(records[chunk], std::min(left, chunk_bytes)));
  }
  return contents;
}

void LoadLayout::Fit(const char* host) {
  for (LoadPiece& piece : pieces) {
    if (!piece.is_fitted()) continue;
    uint32_t largest = 0;
    std::memcpy(&largest, host + piece.magnitude, sizeof(largest));
    piece.narrow.wire_exponent = kernels::FittedExponent(largest);
  }
}

double LoadLayout::SquaredNorm(const LoadPiece& piece, const char* host) {
  std::vector<double> leaves;
  const auto* lanes = reinterpret_cast<const double*>(host + piece.lanes);
  for (uint64_t leaf = 0; leaf < LeavesOf(piece); ++leaf, lanes += kernels::kNormLanes) {
    kernels::AppendNormLeaf(lanes, &leaves);
  }
  return kernels::SquaredNorm(leaves.data(), leaves.size());
}

Courier::Courier(std::unique_ptr<Device> device, std::shared_ptr<PinnedBudget> budget)
    : device_(std::move(device)), pool_(std::make_shared<PinnedPool>(device_, std::move(budget))) {
  const SignalsBlocked blocked;
  thread_ = std::thread([this] {
    pthread_setname_np(pthread_self(), "basin-device");
    Run();
  });
}

Courier::~Courier() {
  {
    MutexLock lock(mutex_);
    ended_ = true;
    changed_.NotifyAll();
  }
  device_->LosePatience();
  thread_.join();
}

Result<Courier::EventPtr> Courier::Record(Stream stream) {
  auto event = device_->MakeEvent();
  if (!event.ok()) return event.failure();
  EventPtr recorded = std::move(event).value();
  if (auto failure = recorded->Record(stream)) return *std::move(failure);
  return recorded;
}

bool Courier::TakeSlot(Load& load, Slots& slots, int most) {
  if (slots.idle.empty() && slots.made == most) return false;
  if (slots.idle.empty()) {
    ++slots.made;
  } else {
    load.slot = std::move(slots.idle.back());
    slots.idle.pop_back();
  }
  return true;
}

void Courier::MakeSlot(Load& load) {
  if (load.slot != nullptr) return;
  auto queue = device_->MakeQueue();
  if (!queue.ok()) {
    load.failure = queue.failure();
    return;
  }
  load.slot = std::make_unique<Slot>();
  load.slot->queue = std::move(queue).value();
  auto gathered = device_->AllocateOnDevice(kDeviceBytes);
  if (gathered.ok()) load.slot->gathered = std::move(gathered).value();
}

// ---- to the host

void Courier::Fetch(LoadLayout layout, EventPtr after, Fetched done, Grown grown) {
  auto load = std::make_unique<Load>();
  load->layout = std::move(layout);
  load->after = std::move(after);
  load->done = std::move(done);
  load->grown = std::move(grown);
  {
    MutexLock lock(mutex_);
    waiting_.push_back(std::move(load));
  }
  StartWaiting(true);
}

void Courier::StartWaiting(bool patient) {
  while (true) {
    LoadPtr load;
    {
      MutexLock lock(mutex_);
      if (waiting_.empty() || ended_) return;
      if (!TakeSlot(*waiting_.front(), fetching_, kFetchingSlots)) return;
      load = std::move(waiting_.front());
      waiting_.pop_front();
      ++starting_;
    }
    MakeSlot(*load);
    bool waits = false;
    if (!load->failure) {
      const bool measures =
          load->slot->gathered != nullptr && load->layout.magnitudes <= kMostGathered;
      if (load->layout.is_staged() && !measures) load->layout.Unstage();
      if (load->slot->gathered == nullptr && !load->layout.is_staged()) load->layout.Widen();
      load->host = pool_->Take(load->layout.bytes);
      waits = load->host == nullptr && patient;
      if (load->host == nullptr && !patient) load->host = OrdinaryMemory(load->layout.bytes);
    }
    if (!waits && !load->failure) load->failure = StartFetch(*load);
    MutexLock lock(mutex_);
    --starting_;
    if (waits) {
      fetching_.idle.push_back(std::move(load->slot));
      waiting_.push_front(std::move(load));
    } else {
      on_their_way_.push_back(std::move(load));
    }
    changed_.NotifyAll();
    if (waits) return;
  }
}

std::optional<Failure> Courier::StartFetch(Load& load) {
  Queue& queue = *load.slot->queue;
  const LoadLayout& layout = load.layout;
  if (auto failure = queue.After(load.after.get())) return failure;
  if (layout.is_staged()) return StartStaged(load);
  auto* const gathered = static_cast<char*>(load.slot->gathered.get());
  if (gathered != nullptr && layout.gathered > 0) {
    auto failure = CopySmall(layout, gathered, true, queue);
    if (failure) return failure;
    failure = queue.CopyToHost(load.host.get(), gathered, layout.gathered);
    if (failure) return failure;
  }
  for (const LoadPiece& piece : layout.pieces) {
    if (piece.bytes == 0 || (gathered != nullptr && piece.at < layout.gathered)) continue;
    if (piece.is_narrow()) continue;
    const uint64_t part = load.grown == nullptr ? piece.bytes : kPart;
    for (uint64_t begin = 0; begin < piece.bytes; begin += part) {
      if (begin > 0) {
        if (auto failure = Mark(load, begin)) return failure;
      }
      auto failure = queue.CopyToHost(load.host.get() + piece.at + begin,
                                      static_cast<const char*>(piece.device) + begin,
                                      std::min(part, piece.bytes - begin));
      if (failure) return failure;
    }
  }
  if (auto failure = StartMagnitudes(load)) return failure;
  return StartNarrow(load);
}

std::optional<Failure> Courier::Mark(Load& load, uint64_t host_bytes) {
  if (auto failure = load.slot->queue->Mark()) return failure;
  load.marks.push_back(host_bytes);
  return std::nullopt;
}

uint32_t* Courier::MagnitudeOf(const Load& load, const LoadPiece& piece) {
  char* const magnitudes = static_cast<char*>(load.slot->gathered.get()) + kMostGathered;
  return reinterpret_cast<uint32_t*>(magnitudes + (piece.magnitude - load.layout.magnitudes));
}

NarrowItem Courier::CastOf(const Load& load, const LoadPiece& piece) {
  NarrowItem item = {};
  item.wire_dtype = piece.narrow.wire_dtype;
  if (piece.is_fitted()) {
    item.largest = MagnitudeOf(load, piece);
  } else {
    item.scale = std::ldexp(1.0F, piece.narrow.wire_exponent);
  }
  return item;
}

// All of them come to the host before the first part of a narrow piece, which needs its exponent.
std::optional<Failure> Courier::StartMagnitudes(Load& load) {
  const LoadLayout& layout = load.layout;
  if (layout.magnitude_bytes == 0) return std::nullopt;
  Queue& queue = *load.slot->queue;
  char* const host = load.host.get() + layout.magnitudes;
  char* const device = static_cast<char*>(load.slot->gathered.get()) + kMostGathered;
  std::memset(host, 0, layout.magnitude_bytes);
  if (auto failure = queue.CopyToDevice(device, host, layout.magnitude_bytes)) return failure;
  TaskBatch magnitudes(queue, MagnitudeTask{});
  for (const LoadPiece& piece : layout.pieces) {
    if (!piece.is_fitted()) continue;
    auto failure =
        magnitudes.Add({piece.device, MagnitudeOf(load, piece), piece.bytes / sizeof(float)});
    if (failure) return failure;
  }
  if (auto failure = magnitudes.Finish()) return failure;
  return queue.CopyToHost(host, device, layout.magnitude_bytes);
}

// Launch after launch: the memory of the device is used again behind the copies of the one before.
std::optional<Failure> Courier::StartNarrow(Load& load) {
  Queue& queue = *load.slot->queue;
  auto* const wires = static_cast<char*>(load.slot->gathered.get());
  if (wires == nullptr) return std::nullopt;  // Then no piece is narrow.
  char* const lanes = wires + kMostNarrow;
  NarrowTask task = {};
  // What the launch writes, in the block.
  uint64_t wires_begin = 0;
  uint64_t wires_end = 0;
  uint64_t lanes_begin = 0;
  uint64_t lanes_end = 0;
  const auto launch = [&]() -> std::optional<Failure> {
    if (auto failure = queue.Run(task)) return failure;
    auto failure = queue.CopyToHost(load.host.get() + wires_begin, wires, wires_end - wires_begin);
    if (failure) return failure;
    return queue.CopyToHost(load.host.get() + lanes_begin, lanes, lanes_end - lanes_begin);
  };
  for (const LoadPiece& piece : load.layout.pieces) {
    if (!piece.is_narrow()) continue;
    const uint64_t bytes = piece.host_bytes();
    for (uint64_t begin = 0; begin < bytes;) {
      const uint64_t at = piece.at + begin;
      const bool fits = at + std::min(bytes - begin, kLeafBytes) - wires_begin <= kMostNarrow;
      if (task.count == kMaxNarrows || (task.count > 0 && !fits)) {
        if (auto failure = launch()) return failure;
        task.count = 0;
        if (load.grown != nullptr) {
          if (auto failure = Mark(load, begin)) return failure;
        }
      }
      const uint64_t lanes_at = piece.lanes + begin / kLeafBytes * kLanesOfLeaf;
      if (task.count == 0) {
        wires_begin = at;
        lanes_begin = lanes_at;
      }
      // Whole leaves, except at the end of the tensor.
      const uint64_t room = kMostNarrow - (at - wires_begin);
      const uint64_t part = bytes - begin <= room ? bytes - begin : room / kLeafBytes * kLeafBytes;
      NarrowItem item = CastOf(load, piece);
      item.source = static_cast<const char*>(piece.device) + 2 * begin;
      item.destination = wires + (at - wires_begin);
      item.lanes = reinterpret_cast<double*>(lanes + (lanes_at - lanes_begin));
      item.count = part / sizeof(uint16_t);
      task.items[task.count++] = item;
      begin += part;
      wires_end = at + part;
      lanes_end = lanes_at + (part + kLeafBytes - 1) / kLeafBytes * kLanesOfLeaf;
    }
  }
  return task.count == 0 ? std::nullopt : launch();
}

// Copies or casts within the device, and then measures the copies: a tensor that changes meanwhile
// has the right digests.
std::optional<Failure> Courier::StartStaged(Load& load) {
  Queue& queue = *load.slot->queue;
  auto* const measures = static_cast<char*>(load.slot->gathered.get());
  if (auto failure = StartMagnitudes(load)) return failure;
  TaskBatch copies(queue, CopyTask{});
  TaskBatch narrows(queue, NarrowTask{});
  TaskBatch measured(queue, MeasureTask{kernels::cuda::KeysOfXxh3(), {}, 0});
  for (const LoadPiece& piece : load.layout.pieces) {
    auto* const lanes = reinterpret_cast<double*>(measures + piece.lanes);
    if (piece.is_narrow()) {
      NarrowItem item = CastOf(load, piece);
      item.source = piece.device;
      item.destination = piece.staged;
      item.lanes = lanes;
      item.count = piece.bytes / sizeof(float);
      if (auto failure = narrows.Add(item)) return failure;
      continue;
    }
    const auto* const from = static_cast<const char*>(piece.device);
    if (auto failure = AddCopy(copies, from, piece.staged, piece.bytes)) return failure;
  }
  if (auto failure = narrows.Finish()) return failure;
  if (auto failure = copies.Finish()) return failure;
  for (const LoadPiece& piece : load.layout.pieces) {
    const bool has_norm = !piece.is_narrow() && LeavesOf(piece) > 0;
    auto failure = measured.Add(
        {piece.staged, piece.host_bytes(), reinterpret_cast<ChunkRecord*>(measures + piece.records),
         has_norm ? reinterpret_cast<double*>(measures + piece.lanes) : nullptr,
         static_cast<uint32_t>(WireChunkBytes(piece.narrow.wire_dtype)), piece.dtype});
    if (failure) return failure;
  }
  if (auto failure = measured.Finish()) return failure;
  return queue.CopyToHost(load.host.get(), measures, load.layout.magnitudes);
}

// ---- to the device

Courier::Refused Courier::Bring(const std::vector<LoadLayout>& loads, const EventPtr& after,
                                Stream stream, const Fill& fill) {
  Refused refused;
  for (size_t i = 0; i < loads.size() && refused.ok(); ++i) {
    auto load = std::make_unique<Load>();
    load->layout = loads[i];
    load->after = after;
    {
      MutexLock lock(mutex_);
      while (!TakeSlot(*load, bringing_, kBringingSlots)) changed_.Wait(mutex_);
    }
    MakeSlot(*load);
    if (load->slot != nullptr) {
      load->host = pool_->Take(load->layout.bytes);
      if (load->host == nullptr) load->host = OrdinaryMemory(load->layout.bytes);
      refused.status = fill(i, load->host.get());
      if (refused.status.ok()) load->failure = StartBring(*load, stream);
    }
    refused.failure = load->failure;
    MutexLock lock(mutex_);
    on_their_way_.push_back(std::move(load));
    changed_.NotifyAll();
  }
  if (refused.ok()) return refused;
  // What is on its way would write to memory that the trainer believes is its own again.
  MutexLock lock(mutex_);
  while (bringing_.idle.size() != static_cast<size_t>(bringing_.made)) changed_.Wait(mutex_);
  late_.reset();
  return refused;
}

std::optional<Failure> Courier::StartBring(Load& load, Stream stream) {
  Queue& queue = *load.slot->queue;
  const LoadLayout& layout = load.layout;
  if (auto failure = queue.After(load.after.get())) return failure;
  auto* const gathered = static_cast<char*>(load.slot->gathered.get());
  if (gathered != nullptr && layout.gathered > 0) {
    auto failure = queue.CopyToDevice(gathered, load.host.get(), layout.gathered);
    if (failure) return failure;
    failure = CopySmall(layout, gathered, false, queue);
    if (failure) return failure;
  }
  for (const LoadPiece& piece : layout.pieces) {
    if (piece.bytes == 0 || (gathered != nullptr && piece.at < layout.gathered)) continue;
    auto failure = queue.CopyToDevice(piece.device, load.host.get() + piece.at, piece.bytes);
    if (failure) return failure;
  }
  return queue.Before(stream);
}

std::optional<Failure> Courier::TakeLateFailure() {
  MutexLock lock(mutex_);
  return std::exchange(late_, std::nullopt);
}

// ---- the thread

void Courier::Release(Load& load) {
  MutexLock lock(mutex_);
  Slots& slots = load.to_host() ? fetching_ : bringing_;
  if (load.slot != nullptr) {
    slots.idle.push_back(std::move(load.slot));
  } else {
    --slots.made;
  }
  changed_.NotifyAll();
}

std::optional<Failure> Courier::Await(Load& load) {
  if (load.slot == nullptr) return load.failure;
  std::optional<Failure> failure = load.failure;
  for (size_t i = 0; i < load.marks.size() && !failure; ++i) {
    failure = load.slot->queue->AwaitMark();
    if (failure) break;
    load.layout.Fit(load.host.get());
    load.grown(load.layout, load.host, load.marks[i]);
  }
  std::optional<Failure> last = load.slot->queue->Wait();
  if (!failure) failure = last;
  if (!failure) load.layout.Fit(load.host.get());
  return failure;
}

void Courier::Deliver(LoadPtr load) {
  const std::optional<Failure> failure = Await(*load);
  if (load->to_host()) {
    Release(*load);
    StartWaiting(true);
    load->done(failure, load->layout, failure ? nullptr : std::move(load->host));
    return;
  }
  load->host.reset();
  if (failure) {
    MutexLock lock(mutex_);
    if (!late_) late_ = failure;
  }
  Release(*load);
}

void Courier::Run() {
  while (true) {
    LoadPtr started;
    LoadPtr dropped;
    {
      MutexLock lock(mutex_);
      // A load that waits for a block that is in use is started after those on their way.
      while (on_their_way_.empty() && (starting_ > 0 || waiting_.empty()) && !(ended_ && Quiet())) {
        changed_.Wait(mutex_);
      }
      if (ended_ && Quiet()) return;
      if (!on_their_way_.empty()) {
        started = std::move(on_their_way_.front());
        on_their_way_.pop_front();
      } else if (ended_) {
        dropped = std::move(waiting_.front());
        waiting_.pop_front();
      }
    }
    if (started != nullptr) {
      Deliver(std::move(started));
    } else if (dropped != nullptr) {
      dropped->done(
          Failure{FailureCode::kDevice, std::string(device_->name()) + ": the worker was closed"},
          dropped->layout, nullptr);
    } else {
      StartWaiting(false);
    }
  }
}

}  // namespace basin::accelerator
