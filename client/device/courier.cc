// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "client/device/courier.h"

#include <pthread.h>

#include <algorithm>
#include <utility>

#include "runtime/signals_blocked.h"

namespace basin::client {
namespace {

using kernels::cuda::CopyTask;
using kernels::cuda::kMaxCopies;
using kernels::cuda::TrainerStream;

// Loads of a direction that are on their way at once: one is copied, one is delivered, and the next
// ones are ready for the device.
constexpr int kFetchingSlots = 4;
constexpr int kBringingSlots = 3;

// Where pieces begin in a block.
constexpr uint64_t kPieceAlignment = 64;

uint64_t Aligned(uint64_t at) {
  return (at + kPieceAlignment - 1) / kPieceAlignment * kPieceAlignment;
}

std::shared_ptr<char> OrdinaryMemory(uint64_t bytes) {
  return {new char[bytes], [](const char* data) { delete[] data; }};
}

// Calls run(task) for copies between the small pieces and `gathered`.
template <typename Run>
std::optional<kernels::Failure> ForEachCopyTask(const LoadLayout& layout, char* gathered,
                                                bool to_gathered, Run run) {
  CopyTask task = {};
  for (const LoadPiece& piece : layout.pieces) {
    if (piece.at >= layout.gathered || piece.bytes == 0) continue;
    char* const there = gathered + piece.at;
    task.items[task.count++] = to_gathered
                                   ? kernels::cuda::CopyItem{piece.device, there, piece.bytes}
                                   : kernels::cuda::CopyItem{there, piece.device, piece.bytes};
    if (task.count < kMaxCopies) continue;
    if (auto failure = run(task)) return failure;
    task.count = 0;
  }
  return task.count == 0 ? std::nullopt : run(task);
}

}  // namespace

void LoadLayout::Place() {
  bytes = 0;
  gathered = 0;
  std::vector<LoadPiece*> large;
  for (LoadPiece& piece : pieces) {
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
  for (LoadPiece* const piece : large) {
    piece->at = bytes;
    bytes = Aligned(bytes + piece->bytes);
  }
  bytes = std::max<uint64_t>(bytes, 1);
}

Courier::Courier(std::unique_ptr<kernels::cuda::TrainerDevice> device,
                 std::shared_ptr<PinnedBudget> budget)
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

kernels::Result<Courier::EventPtr> Courier::Record(TrainerStream stream) {
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
  auto gathered = device_->AllocateOnDevice(kMostGathered);
  if (gathered.ok()) load.slot->gathered = std::move(gathered).value();
}

// ---- to the host

void Courier::Fetch(LoadLayout layout, EventPtr after, Fetched done) {
  auto load = std::make_unique<Load>();
  load->layout = std::move(layout);
  load->after = std::move(after);
  load->done = std::move(done);
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

std::optional<Courier::Failure> Courier::StartFetch(Load& load) {
  kernels::cuda::TransferQueue& queue = *load.slot->queue;
  const LoadLayout& layout = load.layout;
  if (auto failure = queue.After(load.after.get())) return failure;
  auto* const gathered = static_cast<char*>(load.slot->gathered.get());
  if (gathered != nullptr && layout.gathered > 0) {
    auto failure = ForEachCopyTask(layout, gathered, true,
                                   [&](const CopyTask& task) { return queue.Run(task); });
    if (failure) return failure;
    failure = queue.CopyToHost(load.host.get(), gathered, layout.gathered);
    if (failure) return failure;
  }
  for (const LoadPiece& piece : layout.pieces) {
    if (piece.bytes == 0 || (gathered != nullptr && piece.at < layout.gathered)) continue;
    auto failure = queue.CopyToHost(load.host.get() + piece.at, piece.device, piece.bytes);
    if (failure) return failure;
  }
  return std::nullopt;
}

// ---- to the device

Courier::Refused Courier::Bring(const std::vector<LoadLayout>& loads, const EventPtr& after,
                                TrainerStream stream, const Fill& fill) {
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

std::optional<Courier::Failure> Courier::StartBring(Load& load, TrainerStream stream) {
  kernels::cuda::TransferQueue& queue = *load.slot->queue;
  const LoadLayout& layout = load.layout;
  if (auto failure = queue.After(load.after.get())) return failure;
  auto* const gathered = static_cast<char*>(load.slot->gathered.get());
  if (gathered != nullptr && layout.gathered > 0) {
    auto failure = queue.CopyToDevice(gathered, load.host.get(), layout.gathered);
    if (failure) return failure;
    failure = ForEachCopyTask(layout, gathered, false,
                              [&](const CopyTask& task) { return queue.Run(task); });
    if (failure) return failure;
  }
  for (const LoadPiece& piece : layout.pieces) {
    if (piece.bytes == 0 || (gathered != nullptr && piece.at < layout.gathered)) continue;
    auto failure = queue.CopyToDevice(piece.device, load.host.get() + piece.at, piece.bytes);
    if (failure) return failure;
  }
  return queue.Before(stream);
}

std::optional<Courier::Failure> Courier::TakeLateFailure() {
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

void Courier::Deliver(LoadPtr load) {
  std::optional<Failure> failure;
  if (load->slot != nullptr) failure = load->slot->queue->Wait();
  if (load->failure) failure = std::move(load->failure);
  if (load->to_host()) {
    Release(*load);
    StartWaiting(true);
    load->done(failure, failure ? nullptr : std::move(load->host));
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
      dropped->done(Failure{kernels::FailureCode::kDevice,
                            std::string(device_->name()) + ": the worker was closed"},
                    nullptr);
    } else {
      StartWaiting(false);
    }
  }
}

}  // namespace basin::client
