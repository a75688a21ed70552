// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "client/device/transfers.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/wire/status_detail.h"

namespace basin::client {
namespace {

using accelerator::LoadPiece;

// Large enough for the full bandwidth of a bus, and small enough that a load is pushed while the
// next one is copied.
constexpr uint64_t kLoadBytes = uint64_t{8} << 20;

// What stays on the device: large enough that all of it is hashed at once, and so little that what
// is measured fits into the memory of a load.
constexpr uint64_t kStagedBytes = uint64_t{64} << 20;

absl::Status ErrorOf(ErrorCode code, const std::string& text) {
  return wire::ToStatus({code, text});
}

// The error of a call that a device has refused. `what`: the subject, "tensor a of lane handle 0".
absl::Status Explain(const kernels::Failure& failure, const std::string& what) {
  switch (failure.code) {
    case kernels::FailureCode::kUnsupported:
      return ErrorOf(ErrorCode::kFailedPrecondition,
                     absl::StrCat("Cannot copy ", what, ": ", failure.message,
                                  ". A graph would repeat the copy without the round. Capture the "
                                  "forward and the backward without the reduction, and reduce "
                                  "after the replay."));
    case kernels::FailureCode::kInvalidArgument:
      return ErrorOf(ErrorCode::kInvalidArgument,
                     absl::StrCat("Cannot copy ", what, ": ", failure.message,
                                  ". Pass the index of the device that the tensors are on, and one "
                                  "of its streams."));
    case kernels::FailureCode::kDevice:
      break;
  }
  return ErrorOf(ErrorCode::kFailedPrecondition,
                 absl::StrCat("Cannot copy ", what, ": ", failure.message,
                              ". Withdraw the round if it is open. If the device fails again, "
                              "restart this process, or train on the CPU."));
}

// "tensor a and 2 more", by the name of the first one.
std::string Subject(const std::string& first, size_t count) {
  if (count == 0) return "no tensors";
  return absl::StrCat("tensor ", first, count < 2 ? "" : absl::StrCat(" and ", count - 1, " more"));
}

// The source with its data on the host, or with what was measured on the device. `host`: the block
// of its load.
Source Arrived(const Source& source, const LoadPiece& piece, const std::shared_ptr<char>& host) {
  const Encoding& encoding = piece.is_narrow() ? piece.narrow : source.encoding();
  return {source.tensor(), host.get() + piece.at, source.bytes(), encoding, host};
}
Source Arrived(const Source& source, const LoadPiece& piece, const DevicePlace& place,
               const char* host) {
  Source::Measured measured;
  measured.place = place;
  measured.encoding = piece.narrow;
  measured.contents = LoadLayout::Contents(piece, host);
  if (IsFloatingPoint(piece.dtype)) measured.squared_norm = LoadLayout::SquaredNorm(piece, host);
  return {source.tensor(), source.bytes(), std::move(measured)};
}

absl::Status CannotWaitHere() {
  return ErrorOf(ErrorCode::kFailedPrecondition,
                 "A callback made a call that waits for a device; make it from another thread.");
}

}  // namespace

DeviceTransfers::DeviceTransfers(Worker& worker, Open open, uint64_t pinned_bytes)
    : worker_(worker),
      open_(std::move(open)),
      budget_(std::make_shared<PinnedBudget>(pinned_bytes)) {}

DeviceTransfers::~DeviceTransfers() {
  DropAll();
  std::map<int, std::unique_ptr<Courier>> couriers;
  {
    MutexLock lock(mutex_);
    couriers.swap(couriers_);
  }
}

// ---- lanes

DeviceTransfers::LanePtr DeviceTransfers::LaneOf(LaneHandle handle) {
  MutexLock lock(mutex_);
  const auto found = lanes_.find(handle);
  if (found != lanes_.end()) return found->second;
  if (lanes_.size() >= most_lanes_) ForgetGone();
  return lanes_.emplace(handle, std::make_shared<Lane>()).first->second;
}

void DeviceTransfers::ForgetGone() {
  for (auto it = lanes_.begin(); it != lanes_.end();) {
    // A call that is under way holds it, and so does what is on its way.
    const bool is_used = it->second.use_count() > 1 || worker_.IsRegistered(it->first);
    it = is_used ? std::next(it) : lanes_.erase(it);
  }
  most_lanes_ = 2 * lanes_.size() + kLanesAtFirst;  // So that each is looked at a few times.
}

size_t DeviceTransfers::lanes() const {
  MutexLock lock(mutex_);
  return lanes_.size();
}

std::vector<DeviceTransfers::LanePtr> DeviceTransfers::Lanes() {
  MutexLock lock(mutex_);
  std::vector<LanePtr> lanes;
  for (const auto& [handle, lane] : lanes_) lanes.push_back(lane);
  return lanes;
}

absl::Status DeviceTransfers::Begin(const BeginRound& begin) {
  if (worker_.InLoop()) return worker_.Begin(begin);  // Refuses.
  const LanePtr lane = LaneOf(begin.lane);
  MutexLock passing(lane->passing);
  absl::Status status = worker_.Begin(begin);
  if (!status.ok()) return status;
  MutexLock lock(lane->mutex);
  ++lane->round;
  lane->failed = absl::OkStatus();
  lane->places = lane->staging == 0;
  return status;
}

absl::Status DeviceTransfers::WaitUntilPassed(LaneHandle handle) {
  const LanePtr lane = LaneOf(handle);
  MutexLock lock(lane->mutex);
  if (lane->on_their_way > 0 && worker_.InLoop()) return CannotWaitHere();
  while (lane->on_their_way > 0) lane->changed.Wait(lane->mutex);
  return lane->failed;
}

void DeviceTransfers::Drop(const LanePtr& lane) {
  MutexLock lock(lane->mutex);
  ++lane->round;
  if (lane->on_their_way == 0) return;
  // Without its tensors the round must not be committed.
  lane->failed = ErrorOf(ErrorCode::kFailedPrecondition,
                         "The round has ended, or was withdrawn, while its tensors were copied "
                         "from the device. Begin another round.");
}

void DeviceTransfers::Drop(LaneHandle lane) { Drop(LaneOf(lane)); }

void DeviceTransfers::DropAll() {
  for (const LanePtr& lane : Lanes()) Drop(lane);
}

void DeviceTransfers::WaitUntilAllPassed() {
  if (worker_.InLoop()) return;
  for (const LanePtr& lane : Lanes()) {
    MutexLock lock(lane->mutex);
    while (lane->on_their_way > 0) lane->changed.Wait(lane->mutex);
  }
}

// ---- devices

absl::StatusOr<Courier*> DeviceTransfers::CourierOf(int device) {
  MutexLock lock(mutex_);
  std::unique_ptr<Courier>& courier = couriers_[device];
  if (courier == nullptr) {
    auto opened = open_(device);
    if (!opened.ok()) {
      couriers_.erase(device);
      return ErrorOf(
          ErrorCode::kFailedPrecondition,
          absl::StrCat("Cannot use the tensors of CUDA device ", device, ": ",
                       opened.failure().message, ". Correct this, or train on the CPU."));
    }
    courier = std::make_unique<Courier>(std::move(opened).value(), budget_);
  }
  return courier.get();
}

absl::StatusOr<Courier::EventPtr> DeviceTransfers::Prepare(Courier& courier, const OnDevice& where,
                                                           const std::string& what) {
  if (const auto late = courier.TakeLateFailure()) {
    return Explain(*late, "the results of the last round");
  }
  auto event = courier.Record(where.stream);
  if (!event.ok()) return Explain(event.failure(), what);
  return std::move(event).value();
}

// ---- pushes

std::vector<DeviceTransfers::Part> DeviceTransfers::Divide(
    LaneHandle lane, absl::Span<const Source> sources,
    const std::vector<Worker::TensorInfoPtr>& infos, int device, Courier& courier, bool places) {
  const auto make = [&courier](uint64_t bytes) -> std::shared_ptr<DeviceSegment> {
    auto made = courier.device().AllocateShared(bytes);
    return made.ok() ? std::move(made).value() : nullptr;
  };
  std::vector<Part> staged;
  std::vector<Part> fetched;
  for (size_t i = 0; i < sources.size(); ++i) {
    const Source& source = sources[i];
    const TensorInfo& info = *infos[i];
    const bool is_aligned = reinterpret_cast<uintptr_t>(source.data()) % sizeof(float) == 0;
    LoadPiece piece;
    piece.device = const_cast<void*>(source.data());
    piece.bytes = source.bytes();
    piece.narrow = is_aligned ? source.encoding() : Encoding();
    std::optional<DevicePlace> place;
    if (places && source.bytes() > 0) {
      place = worker_.memory().TakeOnDevice(lane, source.tensor(), info, device, make);
    }
    if (place.has_value()) {
      piece.staged = place->segment->data() + place->offset;
      piece.dtype = info.spec.dtype;
    }
    std::vector<Part>& parts = place.has_value() ? staged : fetched;
    const uint64_t most = place.has_value() ? kStagedBytes : kLoadBytes;
    if (parts.empty() || parts.back().passage->bytes + source.bytes() > most ||
        parts.back().layout.pieces.size() == Courier::kMostPieces) {
      parts.emplace_back().passage->subject = info.spec.name;
    }
    Passage& passage = *parts.back().passage;
    passage.sources.push_back(source);
    passage.bytes += source.bytes();
    if (place.has_value()) passage.places.push_back(*std::move(place));
    parts.back().layout.pieces.push_back(piece);
  }
  staged.insert(staged.end(), std::make_move_iterator(fetched.begin()),
                std::make_move_iterator(fetched.end()));
  for (Part& part : staged) {
    part.layout.Arrange();
    part.passage->subject = Subject(part.passage->subject, part.passage->sources.size());
  }
  return staged;
}

absl::Status DeviceTransfers::Push(LaneHandle handle, absl::Span<const Source> sources,
                                   const OnDevice& where) {
  const auto infos = worker_.Check(handle, sources);
  if (!infos.ok()) return infos.status();
  const absl::StatusOr<Courier*> courier = CourierOf(where.index);
  if (!courier.ok()) return courier.status();
  for (size_t i = 0; i < sources.size(); ++i) {
    const auto failure = (*courier)->device().CheckMemory(sources[i].data(), sources[i].bytes());
    if (failure) return Explain(*failure, absl::StrCat("tensor ", (*infos)[i]->spec.name));
  }
  const std::string first = sources.empty() ? "" : infos->front()->spec.name;
  const absl::StatusOr<Courier::EventPtr> event =
      Prepare(**courier, where, Subject(first, sources.size()));
  if (!event.ok()) return event.status();

  const LanePtr lane = LaneOf(handle);
  uint64_t round = 0;
  bool places = false;
  {
    MutexLock lock(lane->mutex);
    if (!lane->failed.ok()) return lane->failed;
    round = lane->round;
    places = lane->places;
  }
  std::vector<Part> parts = Divide(handle, sources, *infos, where.index, **courier, places);
  {
    MutexLock lock(lane->mutex);
    lane->on_their_way += parts.size();
    for (const Part& part : parts) lane->staging += part.layout.is_staged() ? 1 : 0;
  }
  for (Part& part : parts) {
    const PassagePtr& passage = part.passage;
    passage->lane = lane;
    passage->handle = handle;
    passage->round = round;
    Courier::Grown grown;
    if (passage->bytes > kLoadBytes && !part.layout.is_staged()) {
      grown = [this, passage](const LoadLayout& layout, const std::shared_ptr<char>& host,
                              uint64_t host_bytes) {
        PassPart(*passage, layout, host, host_bytes);
      };
    }
    (*courier)->Fetch(
        std::move(part.layout), *event,
        [this, passage](const std::optional<kernels::Failure>& failure, const LoadLayout& layout,
                        const std::shared_ptr<char>& host) {
          Pass(*passage, layout, failure, host);
        },
        std::move(grown));
  }
  return absl::OkStatus();
}

bool DeviceTransfers::IsWanted(const Passage& passage) {
  MutexLock lock(passage.lane->mutex);
  return passage.lane->round == passage.round && passage.lane->failed.ok();
}

void DeviceTransfers::Fail(const Passage& passage, const absl::Status& status) {
  MutexLock lock(passage.lane->mutex);
  const bool first = passage.lane->round == passage.round && passage.lane->failed.ok();
  if (first) passage.lane->failed = status;
}

void DeviceTransfers::PassPart(Passage& passage, const LoadLayout& layout,
                               const std::shared_ptr<char>& host, uint64_t host_bytes) {
  const LoadPiece& piece = layout.pieces.front();
  const Source& source = passage.sources.front();
  // The host casts a tensor when all of it is there.
  const bool casts = source.encoding().wire_dtype != DType::kUnspecified && !piece.is_narrow();
  MutexLock passing(passage.lane->passing);
  if (casts || !IsWanted(passage)) return;
  if (!passage.growing.has_value()) {
    passage.growing.emplace(Arrived(source, piece, host));
    if (piece.is_narrow()) passage.growing->SetNarrowed(0);  // It comes with the last part.
  }
  passage.growing->SetThere(piece.is_narrow() ? 2 * host_bytes : host_bytes);
  Fail(passage, worker_.Push(passage.handle, {&*passage.growing, 1}));
}

void DeviceTransfers::Pass(Passage& passage, const LoadLayout& layout,
                           const std::optional<kernels::Failure>& failure,
                           const std::shared_ptr<char>& host) {
  absl::Status status;
  if (failure) {
    status = Explain(*failure, absl::StrCat(passage.subject, " to the host"));
  } else {
    std::vector<Source> arrived;
    if (passage.growing.has_value()) arrived.push_back(*std::move(passage.growing));
    for (size_t i = arrived.size(); i < passage.sources.size(); ++i) {
      const Source& source = passage.sources[i];
      const LoadPiece& piece = layout.pieces[i];
      arrived.push_back(layout.is_staged() ? Arrived(source, piece, passage.places[i], host.get())
                                           : Arrived(source, piece, host));
    }
    for (size_t i = 0; i < arrived.size() && !layout.is_staged(); ++i) {
      const LoadPiece& piece = layout.pieces[i];
      arrived[i].SetThere(arrived[i].bytes());
      if (piece.is_narrow()) arrived[i].SetNarrowed(LoadLayout::SquaredNorm(piece, host.get()));
    }
    MutexLock passing(passage.lane->passing);
    if (IsWanted(passage)) status = worker_.Push(passage.handle, absl::MakeSpan(arrived));
  }
  passage.growing.reset();
  passage.sources.clear();  // With their hold on the block.
  Fail(passage, status);
  MutexLock lock(passage.lane->mutex);
  --passage.lane->on_their_way;
  if (!passage.places.empty()) --passage.lane->staging;
  passage.lane->changed.NotifyAll();
}

// ---- results

absl::Status DeviceTransfers::Copy(const RoundResult& result,
                                   absl::Span<const RoundResult::Destination> to,
                                   const OnDevice& where) {
  const absl::StatusOr<Courier*> courier = CourierOf(where.index);
  if (!courier.ok()) return courier.status();
  for (const RoundResult::Destination& one : to) {
    absl::Status status = result.CopyPart(one.tensor, one.size, 0, nullptr, 0);
    if (!status.ok()) return status;
    if (const auto failure = (*courier)->device().CheckMemory(one.to, one.size)) {
      return Explain(*failure, absl::StrCat("the result of tensor ", result.NameOf(one.tensor)));
    }
  }
  const std::string first = to.empty() ? "" : result.NameOf(to.front().tensor);
  const std::string what = absl::StrCat("the result of ", Subject(first, to.size()));
  const absl::StatusOr<Courier::EventPtr> event = Prepare(**courier, where, what);
  if (!event.ok()) return event.status();

  // Where a piece is in its result.
  struct Source {
    const RoundResult::Destination* of;
    uint64_t begin;
  };
  std::vector<LoadLayout> loads;
  std::vector<std::vector<Source>> sources;
  uint64_t bytes = kLoadBytes;  // What the last load has.
  for (const RoundResult::Destination& one : to) {
    for (uint64_t begin = 0; begin < one.size;) {
      if (bytes >= kLoadBytes) {
        loads.emplace_back();
        sources.emplace_back();
        bytes = 0;
      }
      const uint64_t count = std::min(one.size - begin, kLoadBytes - bytes);
      loads.back().pieces.push_back({static_cast<char*>(one.to) + begin, count});
      sources.back().push_back({&one, begin});
      begin += count;
      bytes += count;
    }
  }
  for (LoadLayout& load : loads) load.Arrange();
  const absl::Time began = result.StartOfCopy();
  const Courier::Refused refused =
      (*courier)->Bring(loads, *event, where.stream, [&](size_t index, char* host) {
        absl::Status status;
        for (size_t i = 0; i < sources[index].size() && status.ok(); ++i) {
          const Source& source = sources[index][i];
          const LoadPiece& piece = loads[index].pieces[i];
          status = result.CopyPart(source.of->tensor, source.of->size, source.begin,
                                   host + piece.at, piece.bytes);
        }
        return status;
      });
  result.RecordCopy(began);
  if (!refused.status.ok()) return refused.status;
  if (refused.failure) return Explain(*refused.failure, absl::StrCat(what, " to the device"));
  return absl::OkStatus();
}

}  // namespace basin::client
