// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "client/core/push.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace basin::client {

void Push::Add(TensorHandle handle, uint64_t bytes, uint32_t chunks, Digest digest,
               std::optional<double> squared_norm) {
  order_.emplace(handle, static_cast<uint32_t>(tensors_.size()));
  tensors_.push_back({handle, std::nullopt, chunks_, bytes, 0, std::nullopt});
  ++waiting_;
  ++growing_;
  chunks_ += ChunkCount(bytes);
  bytes_ += bytes;
  SetReady(tensors_.back(), chunks, digest, squared_norm);
}

void Push::Grow(TensorHandle handle, uint32_t chunks, Digest digest,
                std::optional<double> squared_norm, const LaneId& lane) {
  const auto it = order_.find(handle);
  if (it == order_.end()) return;
  Tensor& tensor = tensors_[it->second];
  const uint32_t before = tensor.chunks;
  if (chunks <= before || chunks > ChunkCount(tensor.bytes)) return;
  SetReady(tensor, chunks, digest, squared_norm);
  if (!tensor.index.has_value()) return;
  MakeReady(tensor, {tensor.base + before, tensor.base + chunks}, lane);
}

void Push::SetReady(Tensor& tensor, uint32_t chunks, Digest digest,
                    const std::optional<double>& squared_norm) {
  tensor.chunks = chunks;
  if (chunks != ChunkCount(tensor.bytes)) return;
  --growing_;
  digest_ += digest;
  tensor.squared_norm = squared_norm;
}

std::optional<double> Push::SquaredNorm() const {
  std::optional<double> sum;
  for (const auto& [handle, position] : order_) {
    const std::optional<double>& norm = tensors_[position].squared_norm;
    if (norm.has_value()) sum = sum.value_or(0) + *norm;
  }
  return sum;
}

void Push::SetIndex(TensorHandle handle, TensorIndex index, const LaneId& lane) {
  const uint32_t position = order_.at(handle);
  Tensor& tensor = tensors_[position];
  tensor.index = index;
  by_index_.emplace(index, position);
  --waiting_;
  unsent_.Add(NumbersOf(tensor));
  MakeReady(tensor, NumbersOf(tensor), lane);
}

void Push::MakeReady(const Tensor& tensor, Interval numbers, const LaneId& lane) {
  numbers.end = std::min(numbers.end, tensor.base + tensor.chunks);
  if (numbers.begin >= numbers.end) return;
  if (!pull_) return AddReady(tensor, numbers, lane);
  const uint64_t flat = lane.layout.FirstChunk(*tensor.index);
  const Interval in_layout{flat + numbers.begin - tensor.base, flat + numbers.end - tensor.base};
  for (auto& [shard, to] : by_shard_) to.ready.Remove(numbers);
  held_.Add(numbers);
  for (const Interval& part : wanted_.Inside(in_layout)) {
    const Interval wanted{part.begin - flat + tensor.base, part.end - flat + tensor.base};
    held_.Remove(wanted);
    AddReady(tensor, wanted, lane);
  }
}

void Push::AddReady(const Tensor& tensor, Interval numbers, const LaneId& lane) {
  const ChunkRange range{*tensor.index, static_cast<uint32_t>(numbers.begin - tensor.base),
                         static_cast<uint32_t>(numbers.size())};
  lane.shares.Split(lane.layout, range, [&](ShardId shard, const ChunkRange& part) {
    const uint64_t begin = tensor.base + part.first;
    by_shard_[shard].ready.Add({begin, begin + part.count});
  });
}

void Push::SetWindow(uint64_t window) {
  window_ = window;
  widest_ = std::max(widest_, window);
  for (auto& [shard, to] : by_shard_) to.window.reset();
}

void Push::SetWindow(ShardId shard, uint64_t window) {
  by_shard_[shard].window = window;
  widest_ = std::max(widest_, window);
}

uint64_t Push::unacked_bytes() const {
  uint64_t bytes = 0;
  for (const auto& [shard, to] : by_shard_) bytes += to.unacked_bytes;
  return bytes;
}

void Push::Place(const LaneId& lane) {
  std::vector<Interval> ready;
  for (auto& [shard, to] : by_shard_) {
    for (const Interval& run : to.ready.Runs()) ready.push_back(run);
    to.ready.Clear();
  }
  for (Interval run : ready) {
    while (!run.empty()) {
      const Tensor& tensor = TensorOf(run.begin);
      const Interval part{run.begin, std::min(run.end, NumbersOf(tensor).end)};
      AddReady(tensor, part, lane);
      run.begin = part.end;
    }
  }
}

std::optional<Interval> Push::Numbers(const Layout& layout, const ChunkRange& range) const {
  const auto it = by_index_.find(range.tensor);
  if (it == by_index_.end() || !layout.Contains(range)) return std::nullopt;
  const uint64_t begin = tensors_[it->second].base + range.first;
  return Interval{begin, begin + range.count};
}

const Push::Tensor& Push::TensorOf(uint64_t number) const {
  const auto after =
      std::upper_bound(tensors_.begin(), tensors_.end(), number,
                       [](uint64_t value, const Tensor& tensor) { return value < tensor.base; });
  return *std::prev(after);
}

uint64_t Push::BytesOf(Interval numbers) const {
  const Tensor& tensor = TensorOf(numbers.begin);
  return std::min((numbers.end - tensor.base) * kChunkBytes, tensor.bytes) -
         (numbers.begin - tensor.base) * kChunkBytes;
}

void Push::ReleaseUnacked(Interval numbers, Streams& streams) {
  for (uint32_t stream = 0; stream < unacked_.size(); ++stream) {
    for (const Interval& part : unacked_[stream].Remove(numbers)) {
      const uint64_t bytes = BytesOf(part);
      by_shard_[streams.ShardOf(stream)].unacked_bytes -= bytes;
      streams.Release(stream, bytes);
    }
  }
}

void Push::MarkDone(Interval numbers, Streams& streams) {
  ReleaseUnacked(numbers, streams);
  for (auto& [shard, to] : by_shard_) to.ready.Remove(numbers);
  held_.Remove(numbers);
  unsent_.Remove(numbers);
}

void Push::EndSession() {
  unacked_.clear();
  by_shard_.clear();
  pull_ = false;
  wanted_.Clear();
  held_.Clear();
  for (const Tensor& tensor : tensors_) {
    if (!tensor.index.has_value()) continue;
    // Until the next session says where; see Place.
    by_shard_[kCoordinatorShard].ready.Add({tensor.base, tensor.base + tensor.chunks});
    unsent_.Add(NumbersOf(tensor));
  }
}

void Push::Acknowledge(const LaneId& lane, const ChunkRange& range, Streams& streams) {
  if (const auto numbers = Numbers(lane.layout, range)) MarkDone(*numbers, streams);
}

void Push::Refuse(const LaneId& lane, const ChunkRange& range, Streams& streams) {
  const auto numbers = Numbers(lane.layout, range);
  if (!numbers.has_value()) return;
  ReleaseUnacked(*numbers, streams);
  MakeReady(TensorOf(numbers->begin), *numbers, lane);
}

void Push::TakeBack(const LaneId& lane, const ChunkRange& range, Streams& streams) {
  // The aggregator requests chunks anew, also of a tensor that is not pushed yet.
  if (lane.layout.Contains(range)) wanted_.Remove(lane.layout.Chunks(range));
  Refuse(lane, range, streams);
}

void Push::HoldReady() {
  for (auto& [shard, to] : by_shard_) {
    for (const Interval& run : to.ready.Runs()) held_.Add(run);
    to.ready.Clear();
  }
}

void Push::EnterPull() {
  if (pull_) return;
  pull_ = true;
  HoldReady();
}

void Push::RestartPull() {
  if (!pull_) return;
  wanted_.Clear();
  HoldReady();
}

void Push::Want(const LaneId& lane, const ChunkRange& range) {
  if (!lane.layout.Contains(range)) return;
  wanted_.Add(lane.layout.Chunks(range));
  const auto numbers = Numbers(lane.layout, range);
  if (!numbers.has_value()) return;
  for (const Interval& part : held_.Remove(*numbers)) AddReady(TensorOf(part.begin), part, lane);
}

std::vector<Interval> Push::TakeUnacked(uint32_t stream, Streams& streams) {
  std::vector<Interval> parts;
  if (stream >= unacked_.size()) return parts;
  for (Interval run : unacked_[stream].Runs()) {
    while (!run.empty()) {
      const Interval part{run.begin, std::min(run.end, NumbersOf(TensorOf(run.begin)).end)};
      by_shard_[streams.ShardOf(stream)].unacked_bytes -= BytesOf(part);
      streams.Release(stream, BytesOf(part));
      parts.push_back(part);
      run.begin = part.end;
    }
  }
  unacked_[stream].Clear();
  return parts;
}

void Push::LoseStream(const LaneId& lane, uint32_t stream, Streams& streams) {
  for (const Interval& part : TakeUnacked(stream, streams)) {
    MakeReady(TensorOf(part.begin), part, lane);
  }
}

void Push::Stop(Streams& streams) {
  for (uint32_t stream = 0; stream < unacked_.size(); ++stream) TakeUnacked(stream, streams);
  for (auto& [shard, to] : by_shard_) to.ready.Clear();
  held_.Clear();
  unsent_.Clear();
}

void Push::ForgetIndexes(Streams& streams) {
  Stop(streams);
  EndSession();
  by_shard_.clear();
  unsent_.Clear();
  by_index_.clear();
  for (Tensor& tensor : tensors_) tensor.index.reset();
  waiting_ = static_cast<uint32_t>(tensors_.size());
}

// The chunks of the next frame: the first of the shard that are ready, whole tensors as far as they
// fit, and of each tensor chunks that follow each other.
std::vector<Interval> Push::NextFrame(const Scope& scope, ShardId shard, const ToShard& to) const {
  std::vector<Interval> parts;  // Each within one tensor.
  const uint64_t most = scope.streams.FrameChunks(shard, scope.frame.chunks) * kChunkBytes;
  uint64_t bytes = 0;
  for (Interval run = to.ready.First(); !run.empty(); run = to.ready.FirstFrom(run.end)) {
    while (!run.empty()) {
      const Tensor& tensor = TensorOf(run.begin);
      if (parts.size() == scope.frame.tensors) return parts;
      if (!parts.empty() && tensor.base <= parts.back().begin) return parts;  // With a gap.
      Interval part{run.begin, std::min(run.end, NumbersOf(tensor).end)};
      // All chunks but the last one of the tensor are whole, so at most that one is too much.
      part.end = std::min(
          part.end,
          part.begin + static_cast<uint32_t>((most - bytes + kChunkBytes - 1) / kChunkBytes));
      if (bytes + BytesOf(part) > most) --part.end;
      if (part.empty()) return parts;
      bytes += BytesOf(part);
      const bool whole = part.end == std::min(run.end, NumbersOf(tensor).end);
      parts.push_back(part);
      if (!whole) return parts;
      run.begin = part.end;
    }
  }
  return parts;
}

bool Push::CanGrow(const Scope& scope, const LaneId& lane, ShardId shard,
                   const std::vector<Interval>& frame, uint64_t bytes) const {
  const uint64_t next = frame.back().end;
  if (growing_ == 0 || next >= chunks_ ||
      bytes >= scope.streams.FrameChunks(shard, scope.frame.chunks) * kChunkBytes) {
    return false;
  }
  const Tensor& tensor = TensorOf(next);
  if (frame.size() == scope.frame.tensors && tensor.base > frame.back().begin) return false;
  if (next < tensor.base + tensor.chunks) return false;
  // The chunk may be another shard's; that of a tensor without an index is not known yet.
  if (!tensor.index.has_value()) return true;
  const ChunkRange chunk{*tensor.index, static_cast<uint32_t>(next - tensor.base), 1};
  return lane.shares.Head(lane.layout, chunk).first == shard;
}

void Push::Pump(const Scope& scope, const LaneId& lane, RoundNumber round) {
  resume_at_ = absl::InfiniteFuture();
  // In turns, so that no shard waits for all frames of another.
  for (bool sent = true; sent;) {
    sent = false;
    for (auto& [shard, to] : by_shard_) sent |= SendFrame(scope, lane, round, shard, to);
  }
}

bool Push::MayLead(const Scope& scope, ShardId shard, const ToShard& to, uint64_t bytes) {
  const Link* link = scope.streams.FollowedLink(shard);
  if (link == nullptr) return true;
  // Within the window, but with room for two frames.
  const uint64_t window =
      std::max(widest_, 2 * scope.streams.FrameChunks(shard, scope.frame.chunks) * kChunkBytes);
  const absl::Time at = to.lead.MaySendAt(bytes, *link, window, scope.frame.chunks);
  if (at <= scope.now) return true;
  resume_at_ = std::min(resume_at_, at);
  return false;
}

bool Push::OnResults(const LaneId& lane, const ChunkRanges& ranges, absl::Time now) {
  for (const ChunkRange& range : ranges) {
    const auto numbers = Numbers(lane.layout, range);
    if (!numbers.has_value()) continue;
    for (auto& [shard, to] : by_shard_) {
      for (const Interval& part : to.awaited.Remove(*numbers)) {
        to.lead.Returned(BytesOf(part), now);
      }
    }
  }
  return resume_at_ != absl::InfiniteFuture();
}

bool Push::SendFrame(const Scope& scope, const LaneId& lane, RoundNumber round, ShardId shard,
                     ToShard& to) {
  if (to.ready.empty()) return false;
  const std::optional<uint32_t> stream = scope.streams.Pick(shard, scope.frame.chunks);
  if (!stream.has_value()) return false;
  std::vector<Interval> parts = NextFrame(scope, shard, to);
  uint64_t bytes = 0;
  for (const Interval& part : parts) bytes += BytesOf(part);
  // Fewer messages cost less than the time until the frame is full.
  if (CanGrow(scope, lane, shard, parts, bytes)) return false;
  // Frames are cut to the window only when nothing else could open it.
  while (to.unacked_bytes + bytes > to.window.value_or(window_)) {
    Interval& last = parts.back();
    if (to.unacked_bytes > 0 || (parts.size() == 1 && last.size() == 1)) return false;
    bytes -= BytesOf({last.end - 1, last.end});
    if (--last.end == last.begin) parts.pop_back();
  }
  if (!MayLead(scope, shard, to, bytes)) return false;
  if (!scope.streams.MaySend(shard, bytes, scope.frame.chunks)) return false;
  unacked_.resize(scope.streams.size());
  for (const Interval& part : parts) {
    to.ready.Remove(part);
    unsent_.Remove(part);
    unacked_[*stream].Add(part);
    if (scope.streams.FollowedLink(shard) == nullptr) continue;
    for (const Interval& fresh : to.awaited.Outside(part)) to.lead.Sent(BytesOf(fresh), scope.now);
    to.awaited.Add(part);
  }
  to.unacked_bytes += bytes;
  scope.streams.Charge(*stream, bytes, scope.now);
  scope.actions.push_back(FrameOf(parts, *stream, lane, round));
  return true;
}

SendContribution Push::FrameOf(const std::vector<Interval>& parts, uint32_t stream,
                               const LaneId& lane, RoundNumber round) const {
  // The search for a tensor costs more than a comparison, so each is searched once, before the
  // sort.
  std::vector<std::pair<ChunkRange, TensorHandle>> of_tensors;
  of_tensors.reserve(parts.size());
  for (const Interval& part : parts) {
    const Tensor& tensor = TensorOf(part.begin);
    of_tensors.push_back({{*tensor.index, static_cast<uint32_t>(part.begin - tensor.base),
                           static_cast<uint32_t>(part.size())},
                          tensor.handle});
  }
  std::sort(of_tensors.begin(), of_tensors.end(),
            [](const auto& a, const auto& b) { return a.first.tensor < b.first.tensor; });
  SendContribution send{stream, lane.handle, {}, lane.index, round, {}};
  send.tensors.reserve(of_tensors.size());
  send.ranges.reserve(of_tensors.size());
  for (const auto& [range, handle] : of_tensors) {
    send.tensors.push_back(handle);
    send.ranges.push_back(range);
  }
  return send;
}

}  // namespace basin::client
