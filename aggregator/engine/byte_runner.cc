// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "aggregator/engine/byte_runner.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "protocol/limits/limits.h"

namespace basin::aggregator {
namespace {

constexpr uint64_t kLeastArena = uint64_t{64} << 10;

// A lane without a round for so long gives its arena to another one: to make an arena takes as long
// as some rounds, so lanes that take turns keep theirs.
constexpr absl::Duration kArenaRest = absl::Seconds(10);

// Those of a frame of a round; null for others.
std::pair<LaneIndex, const ChunkRuns*> RunsOf(const IncomingFrame& frame) {
  if (const auto* supply = std::get_if<SupplyHeader>(&frame.header)) {
    return {supply->lane, &supply->runs};
  }
  if (const auto* contribution = std::get_if<ContributionHeader>(&frame.header)) {
    return {contribution->lane, &contribution->runs};
  }
  return {0, nullptr};
}

}  // namespace

// ---- what happened

absl::StatusOr<ByteRunner::Arrival> ByteRunner::Arrived(const Origin& origin,
                                                        const IncomingFrame& frame) {
  const auto [session, job] = origin;
  absl::StatusOr<ChunkDigests> digests = DigestsOf(job, frame);
  if (!digests.ok()) return digests.status();
  Arrival arrival;
  if (const auto* contribution = std::get_if<ContributionHeader>(&frame.header)) {
    counters_.contribution_bytes += frame.payload_bytes;
    // The core counts in the tensor's own bytes, however narrow they came.
    const uint64_t widening = kChunkBytes / WireChunkBytes(frame.encoding.wire_dtype);
    arrival.event = FrameReceived{session,
                                  FrameKind::kContribution,
                                  contribution->lane,
                                  contribution->round,
                                  Ballot{},
                                  RangesOf(contribution->runs),
                                  frame.payload_bytes * widening,
                                  *digests};
  } else if (const auto* supply = std::get_if<SupplyHeader>(&frame.header)) {
    arrival.event =
        FrameReceived{session,        FrameKind::kSupply,     supply->lane,        supply->round,
                      supply->ballot, RangesOf(supply->runs), frame.payload_bytes, *digests};
  } else {
    const BlobHeader& value = std::get<BlobHeader>(frame.header);
    arrival.event = BlobReceived{session, value.key, value.first, value.count, frame.payload_bytes};
  }
  arrival.digests = *std::move(digests);
  return arrival;
}

bool ByteRunner::KnowsTensorsOf(JobId job, const IncomingFrame& frame) const {
  const auto [lane, runs] = RunsOf(frame);
  return runs == nullptr ||
         std::all_of(runs->begin(), runs->end(), [&, lane_of = lane](const ChunkRun& run) {
           return held_.FindTensor(job, lane_of, run.range.tensor) != nullptr;
         });
}

void ByteRunner::Reduced(const Reduction& reduction) {
  ++counters_.reductions;
  counters_.reduce_seconds[reduction.device] += reduction.seconds;
  if (reduction.done.facts.nonfinite.has_value()) ++counters_.nonfinite_reductions;
  held_.Hold(reduction.action, reduction);
}

// ---- memory for results that workers map

void ByteRunner::ArenaMade(JobId job, LaneIndex lane, uint64_t bytes,
                           std::shared_ptr<ResultArena> arena, absl::Time now) {
  const auto found = memory_.find({job, lane});
  // Otherwise the lane has changed, or has ended.
  if (found == memory_.end() || found->second.asked != bytes) return;
  if (arena == nullptr) {
    found->second.asked = 0;
    AskLater(found->second, now);
  } else {
    found->second.arena = std::move(arena);
  }
}

void ByteRunner::AskLater(LaneMemory& memory, absl::Time now) {
  memory.seen = 0;
  memory.next_request = now + kArenaRest;
}

void ByteRunner::WantArena(JobId job, LaneIndex lane, RoundNumber round) {
  LaneMemory& memory = memory_[{job, lane}];
  const std::vector<KeyedTensor>& tensors = held_.TensorsOf(job, lane);
  if (now_ < memory.next_request) return;
  const bool expires = round >= memory.considered + kResultExpiry;
  if (std::exchange(memory.seen, tensors.size()) == tensors.size() && !expires) return;
  if (expires) memory.considered = round;
  memory.reduced.resize(tensors.size(), round);
  ResultPlaces places;
  bool lacks_one = false;
  for (TensorIndex i = 0; i < tensors.size(); ++i) {
    if (memory.reduced[i] + kResultExpiry <= round) {
      places.AddNone();
      continue;
    }
    places.Add(tensors[i].spec);
    lacks_one = lacks_one || (memory.arena != nullptr && !memory.arena->Has(i));
  }
  const uint64_t bytes = 2 * places.end;
  const bool shrinks = expires && bytes <= memory.asked / 2;
  // Not for results that travel in a frame anyway.
  if (places.end < kLeastArena) {
    if (shrinks && memory_.erase({job, lane}) > 0) dependencies_.transport->WithdrawUnused();
    return;
  }
  // Not again for each tensor of a lane that grows.
  const bool grows = bytes >= memory.asked + memory.asked / 2 + 1;
  if (!grows && !shrinks && !(expires && lacks_one)) return;
  if (!MakeRoomForArena(job, lane, bytes, memory.asked)) {
    AskLater(memory, now_);
    return;
  }
  memory.used = now_;
  memory.asked = bytes;
  memory.arena.reset();
  dependencies_.make_arena(job, lane, std::move(places));
}

bool ByteRunner::MakeRoomForArena(JobId job, LaneIndex lane, uint64_t bytes, uint64_t instead) {
  // A job has its share of this memory, as of all.
  const uint64_t quota = dependencies_.job_arena_bytes;
  if (quota != 0 && ArenaBytesOf(job) - instead + bytes > quota) return false;
  const auto fits = [&] {
    const auto made = static_cast<uint64_t>(std::count_if(
        memory_.begin(), memory_.end(), [](const auto& one) { return one.second.asked > 0; }));
    return shared_bytes() - instead + bytes <= dependencies_.arena_bytes &&
           made - (instead > 0 ? 1 : 0) < dependencies_.most_arenas;
  };
  while (!fits()) {
    auto longest = memory_.end();
    for (auto it = memory_.begin(); it != memory_.end(); ++it) {
      const auto& [job_of, lane_of] = it->first;
      if (it->second.asked == 0 || it->first == std::pair(job, lane)) continue;
      if (now_ < it->second.used + kArenaRest) continue;
      // Its results are still wanted.
      const auto round = held_.rounds().lower_bound({job_of, lane_of, 0});
      if (round != held_.rounds().end() && std::get<0>(round->first) == job_of &&
          std::get<1>(round->first) == lane_of) {
        continue;
      }
      if (longest == memory_.end() || it->second.used < longest->second.used) longest = it;
    }
    if (longest == memory_.end()) return false;
    memory_.erase(longest);
    dependencies_.transport->WithdrawUnused();
  }
  return true;
}

uint64_t ByteRunner::ArenaBytesOf(JobId job) const {
  uint64_t bytes = 0;
  for (auto it = memory_.lower_bound({job, 0}); it != memory_.end() && it->first.first == job;
       ++it) {
    bytes += it->second.asked;
  }
  return bytes;
}

uint64_t ByteRunner::parked_bytes() const {
  uint64_t bytes = 0;
  for (const auto& [key, round] : held_.rounds()) bytes += round.parked_bytes();
  return bytes;
}

uint64_t ByteRunner::result_bytes() const {
  uint64_t bytes = 0;
  for (const auto& [key, round] : held_.rounds()) bytes += round.result_bytes();
  return bytes;
}

// ---- frames

std::string ByteRunner::Named(JobId job, const std::string& tensor) const {
  return absl::StrCat("A data frame of job ", dependencies_.name_of(job), " for tensor ", tensor);
}

absl::StatusOr<ChunkDigests> ByteRunner::DigestsOf(JobId job, const IncomingFrame& frame) {
  const auto [lane, runs] = RunsOf(frame);
  if (runs != nullptr) return DigestsOf(job, lane, *runs, frame);
  return DigestsOfBlob(job, std::get<BlobHeader>(frame.header), frame);
}

absl::StatusOr<ChunkDigests> ByteRunner::DigestsOfBlob(JobId job, const BlobHeader& value,
                                                       const IncomingFrame& frame) {
  const std::string& name = value.key.tensor;
  if (frame.chunks() != value.count) {
    return absl::InvalidArgumentError(absl::StrCat(Named(job, name), " claims ", value.count,
                                                   " chunks and has the bytes of ", frame.chunks(),
                                                   "."));
  }
  const kernels::TensorKey key(name);
  ChunkDigests digests;
  for (uint32_t i = 0; i < value.count; ++i) {
    digests.push_back(frame.DigestOf(key, value.first + i, i));
  }
  return Compared(std::move(digests), frame, Named(job, name));
}

absl::StatusOr<ChunkDigests> ByteRunner::DigestsOf(JobId job, LaneIndex lane, const ChunkRuns& runs,
                                                   const IncomingFrame& frame) {
  const bool narrow = frame.encoding.wire_dtype != DType::kUnspecified;
  const uint64_t widening = kChunkBytes / WireChunkBytes(frame.encoding.wire_dtype);
  ChunkDigests digests;
  std::string first;
  uint64_t frame_begin = 0;  // Where the run is in the payload.
  for (const ChunkRun& run : runs) {
    const KeyedTensor* tensor = held_.FindTensor(job, lane, run.range.tensor);
    if (tensor == nullptr) {
      return absl::InvalidArgumentError(absl::StrCat(
          "A data frame of job ", dependencies_.name_of(job), " names tensor ", run.range.tensor,
          " of lane ", lane,
          ", which the job does not have. Register it, and use the index that the layout gives "
          "it."));
    }
    const TensorSpec& spec = tensor->spec;
    if (first.empty()) first = spec.name;
    if (narrow && spec.dtype != DType::kF32) {
      return absl::InvalidArgumentError(absl::StrCat(
          Named(job, spec.name), " is sent as ", DTypeName(frame.encoding.wire_dtype),
          ", but the tensor is ", DescribeSpec(spec), ". Only f32 tensors can be sent narrower."));
    }
    const uint64_t whole = TensorBytes(spec).value_or(0);
    const uint64_t bytes = RangeBytes(whole, run.range);
    if (runs.size() > 1 && run.bytes * widening != bytes) {
      return absl::InvalidArgumentError(absl::StrCat(
          Named(job, spec.name), " has ", run.bytes, " bytes for ", run.range.count,
          " chunks from ", run.range.first, ", but these have ", bytes / widening, "."));
    }
    // Those of a list match its sizes, which were just compared.
    const uint32_t count = runs.size() == 1 ? run.range.count : ChunkCount(bytes);
    if (count != run.range.count || digests.size() + count > frame.digests() ||
        (runs.size() == 1 && count != frame.chunks())) {
      return absl::InvalidArgumentError(
          absl::StrCat(Named(job, spec.name), " claims ", run.range.count,
                       " chunks and has the bytes of ", frame.chunks(), "."));
    }
    const uint64_t chunk_bytes = WireChunkBytes(frame.encoding.wire_dtype);
    const uint64_t element = ElementSize(narrow ? frame.encoding.wire_dtype : spec.dtype);
    for (uint32_t i = 0; i < count; ++i) {
      digests.push_back(frame.DigestOf(tensor->key, run.range.first + i, digests.size()));
      if (frame.shared.empty()) continue;
      // The kernels read whole elements.
      const SharedParts::At at = frame.shared.Find(frame_begin + i * chunk_bytes);
      const DevicePlace* const place = at.part->on_device();
      if (place != nullptr && reinterpret_cast<uintptr_t>(place->at() + at.offset) % element != 0) {
        return absl::InvalidArgumentError(
            absl::StrCat(Named(job, spec.name),
                         " refers to memory of a device that is not aligned to the elements."));
      }
    }
    frame_begin += run.bytes;
  }
  return Compared(std::move(digests), frame, Named(job, first));
}

absl::StatusOr<ChunkDigests> ByteRunner::Compared(ChunkDigests digests, const IncomingFrame& frame,
                                                  const std::string& what) {
  if (!frame.claimed.empty() && frame.claimed != digests) {
    ++counters_.corrupt_frames;
    const std::string& text = what;
    return absl::DataLossError(
        absl::StrCat("The bytes of a", text.substr(1),
                     " are not those that were sent: a chunk's digest differs. Send them again on "
                     "another stream; if it happens often, check memory and network of the host."));
  }
  return digests;
}

// ---- actions on what is held

void ByteRunner::SendOn(absl::Span<const StreamId> streams, const OutgoingFrame& frame) {
  dependencies_.transport->Send(streams, frame);
  if (std::holds_alternative<ResultHeader>(frame.header)) {
    counters_.result_bytes += streams.size() * frame.payload.bytes();
  }
}

absl::Status ByteRunner::Start(RoundStore& round, const StartAttempt& start) {
  const auto memory = memory_.find({start.job, start.lane});
  if (memory != memory_.end()) memory->second.used = now_;
  round.Start(start, memory == memory_.end() ? nullptr : memory->second.arena.get());
  return absl::OkStatus();
}

void ByteRunner::Started(std::unique_ptr<Reduction> reduction) {
  const Reduce& reduce = reduction->action;
  reduction->tensors.reserve(reduce.ranges.size());
  const auto memory = memory_.find({reduce.job, reduce.lane});
  for (const ChunkRange& range : reduce.ranges) {
    reduction->tensors.push_back(*held_.FindTensor(reduce.job, reduce.lane, range.tensor));
    if (memory != memory_.end() && range.tensor < memory->second.reduced.size()) {
      memory->second.reduced[range.tensor] = reduce.round;
    }
  }
  reduction->ordered = now_;
  dependencies_.reduce(std::move(reduction));
}

// ---- actions that also concern memory which workers map

// Its tensors get other places.
absl::Status ByteRunner::Do(const NameTensors& names) {
  const bool replaces = names.first < held_.TensorsOf(names.job, names.lane).size();
  if (replaces && memory_.erase({names.job, names.lane}) > 0) {
    dependencies_.transport->WithdrawUnused();
  }
  return held_.CarryOut(names, arrived_, *this);
}

absl::Status ByteRunner::Do(const IdleLane& idle) {
  if (memory_.erase({idle.job, idle.lane}) > 0) dependencies_.transport->WithdrawUnused();
  return held_.CarryOut(idle, arrived_, *this);
}

absl::Status ByteRunner::Do(const EndJob& end) {
  absl::Status ended = held_.CarryOut(end, arrived_, *this);
  for (auto it = memory_.begin(); it != memory_.end();) {
    it = it->first.first == end.job ? memory_.erase(it) : std::next(it);
  }
  dependencies_.transport->WithdrawUnused();
  return ended;
}

absl::Status ByteRunner::Do(const Publish& publish) {
  const auto shares = [this](const Route& route) {
    return std::any_of(route.streams.begin(), route.streams.end(),
                       [this](StreamId stream) { return dependencies_.transport->Shares(stream); });
  };
  if (dependencies_.make_arena != nullptr &&
      std::any_of(publish.routes.begin(), publish.routes.end(), shares)) {
    WantArena(publish.job, publish.lane, publish.round);
  }
  return held_.CarryOut(publish, arrived_, *this);
}

// ---- other actions

absl::Status ByteRunner::Do(const AcceptStream& accept) {
  streams_[accept.stream] = {accept.session, accept.job};
  dependencies_.transport->AcceptStream(accept.stream, accept.session,
                                        dependencies_.name_of(accept.job));
  return absl::OkStatus();
}

absl::Status ByteRunner::Do(const CloseStream& close) {
  streams_.erase(close.stream);
  dependencies_.transport->CloseStream(close.stream, close.why);
  return absl::OkStatus();
}

// What is not held need not be freed.
absl::Status ByteRunner::Do(const DropBlob& drop) {
  held_.CarryOut(drop, arrived_, *this).IgnoreError();
  return absl::OkStatus();
}

absl::Status ByteRunner::Do(const ForgetFrames& forget) {
  held_.CarryOut(forget, arrived_, *this).IgnoreError();
  return absl::OkStatus();
}

}  // namespace basin::aggregator
