// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The pushed chunks of one round: when each may be sent, over which stream, and how messages of the
// aggregator and the loss of a stream change that.
//
// Pushed chunks are numbered in the order in which they are to be sent: tensors in the order of
// their push, chunks in order inside. Each shard gets frames of its own chunks and has a window of
// its own, so one that is slow or cannot be reached holds up no chunk of another. Each chunk is in
// exactly one of these states:
//
//   state     leaves it when                           goes to
//   --------  ---------------------------------------  ---------------------------------
//   waiting   the tensor has its index, and the chunk  ready, or held (pull mode)
//             can be sent
//   ready     a frame takes it, the window of its      unacked, charged to a stream of the shard
//             shard has room
//   held      pull mode: the aggregator wants it       ready
//   unacked   acknowledged                             done
//             refused, or its stream is lost           ready, or held
//   done      discarded, or to be redone               ready, or held
//   any       a new session                            done what the aggregator has, else ready
//
// Thread contract: a plain value.

#ifndef BASIN_CLIENT_CORE_PUSH_H_
#define BASIN_CLIENT_CORE_PUSH_H_

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <tuple>
#include <vector>

#include "absl/time/time.h"
#include "client/core/lane_id.h"
#include "client/core/lead.h"
#include "client/core/streams.h"
#include "protocol/intervals.h"

namespace basin::client {

class Push {
 public:
  // ---- the trainer's side
  // Its first `chunks` can be sent; if these are not all, digest and norm come with the last ones.
  // REQUIRES: the tensor was not added before.
  void Add(TensorHandle handle, uint64_t bytes, uint32_t chunks, Digest digest,
           std::optional<double> squared_norm);
  // Its first `chunks` can be sent. Nothing if that is known.
  void Grow(TensorHandle handle, uint32_t chunks, Digest digest, std::optional<double> squared_norm,
            const LaneId& lane);
  // The tensor has got its index. REQUIRES: it was added, and had no index.
  void SetIndex(TensorHandle handle, TensorIndex index, const LaneId& lane);
  bool Has(TensorHandle handle) const { return order_.count(handle) > 0; }

  // ---- the aggregator's side
  // The session has ended, and its streams were reset: nothing is in flight, and the aggregator has
  // only the chunks that the next session acknowledges. Pull mode ends until the aggregator
  // requests it again.
  void EndSession();
  // That of every shard.
  void SetWindow(uint64_t window);
  // That of one shard.
  void SetWindow(ShardId shard, uint64_t window);
  // The lane's chunks are held by other shards from now on. What is in flight stays that.
  void Place(const LaneId& lane);
  void Acknowledge(const LaneId& lane, const ChunkRange& range, Streams& streams);
  void Refuse(const LaneId& lane, const ChunkRange& range, Streams& streams);
  // The aggregator has dropped chunks that it acknowledged: they are sent again, in pull mode when
  // requested again.
  void TakeBack(const LaneId& lane, const ChunkRange& range, Streams& streams);
  void EnterPull();
  // The round is reduced again: in pull mode, the aggregator requests chunks anew.
  void RestartPull();
  void Want(const LaneId& lane, const ChunkRange& range);
  void LoseStream(const LaneId& lane, uint32_t stream, Streams& streams);
  // The round needs no more chunks of the tensor.
  void Stop(Streams& streams);
  // The lane's indexes were given anew: every tensor waits for its index again.
  void ForgetIndexes(Streams& streams);

  // The results of these chunks have come. Returns whether chunks may be sent that had to wait for
  // that.
  bool OnResults(const LaneId& lane, const ChunkRanges& ranges, absl::Time now);

  // Sends the chunks that may be sent.
  void Pump(const Scope& scope, const LaneId& lane, RoundNumber round);

  // Every pushed chunk has been sent, or was with the aggregator already, in this session.
  bool AllSentOnce() const { return waiting_ == 0 && growing_ == 0 && unsent_.empty(); }

  // When chunks may be sent that wait for results (lead.h), if none comes before.
  absl::Time resume_at() const { return resume_at_; }
  // Whether that time has come. Forgets it; the next Pump finds another one.
  bool TakeResume(absl::Time now) {
    if (now < resume_at_) return false;
    resume_at_ = absl::InfiniteFuture();
    return true;
  }

  uint64_t window() const { return window_; }
  uint64_t unacked_bytes() const;
  uint64_t unacked_bytes(ShardId shard) const {
    const auto it = by_shard_.find(shard);
    return it == by_shard_.end() ? 0 : it->second.unacked_bytes;
  }
  bool pull() const { return pull_; }
  uint64_t chunks() const { return chunks_; }
  uint64_t bytes() const { return bytes_; }
  Digest digest() const { return digest_; }
  // The sum over all pushed tensors that have a norm, in the order of registration, so that it does
  // not depend on the order of the pushes. Absent if none has one.
  std::optional<double> SquaredNorm() const;
  struct Tensor {
    TensorHandle handle = 0;
    std::optional<TensorIndex> index;
    uint64_t base = 0;  // Number of its first chunk.
    uint64_t bytes = 0;
    uint32_t chunks = 0;  // The first ones, which can be sent.
    std::optional<double> squared_norm;
    auto Fields() const { return std::tie(handle, index, base, bytes, chunks, squared_norm); }
  };
  const std::vector<Tensor>& tensors() const { return tensors_; }

  auto Fields() const {
    return std::tie(tensors_, order_, by_index_, waiting_, growing_, by_shard_, held_, unsent_,
                    unacked_, wanted_, pull_, window_, widest_, resume_at_, chunks_, bytes_,
                    digest_);
  }

 private:
  // What goes to one shard.
  struct ToShard {
    IntervalSet ready;
    uint64_t unacked_bytes = 0;
    std::optional<uint64_t> window;  // Absent: that of every shard.
    IntervalSet awaited;             // Chunks that were sent, whose results are not here,
    Lead lead;                       // and what follows from their number.
    auto Fields() const { return std::tie(ready, unacked_bytes, window, awaited, lead); }
  };

  // The numbers of the range's chunks; nothing when its tensor was not pushed.
  std::optional<Interval> Numbers(const Layout& layout, const ChunkRange& range) const;
  const Tensor& TensorOf(uint64_t number) const;
  uint64_t BytesOf(Interval numbers) const;  // Within one tensor.
  Interval NumbersOf(const Tensor& tensor) const {
    return {tensor.base, tensor.base + ChunkCount(tensor.bytes)};
  }
  std::vector<Interval> NextFrame(const Scope& scope, ShardId shard, const ToShard& to) const;
  // Whether the frame has room for the chunk that follows it, which cannot be sent yet.
  bool CanGrow(const Scope& scope, const LaneId& lane, ShardId shard,
               const std::vector<Interval>& frame, uint64_t bytes) const;
  // Whether so many more bytes for the shard may be sent ahead of its results. If not, notes when.
  bool MayLead(const Scope& scope, ShardId shard, const ToShard& to, uint64_t bytes);
  // Sends the next frame of a shard, if it may be sent.
  bool SendFrame(const Scope& scope, const LaneId& lane, RoundNumber round, ShardId shard,
                 ToShard& to);
  SendContribution FrameOf(const std::vector<Interval>& parts, uint32_t stream, const LaneId& lane,
                           RoundNumber round) const;
  // Those of the chunks that can be sent.
  void MakeReady(const Tensor& tensor, Interval numbers, const LaneId& lane);
  // All of them, each to the shard that holds it.
  void AddReady(const Tensor& tensor, Interval numbers, const LaneId& lane);
  void HoldReady();  // In pull mode: until they are wanted.
  void SetReady(Tensor& tensor, uint32_t chunks, Digest digest,
                const std::optional<double>& squared_norm);
  // Takes the chunks out of every set; afterwards they count as done.
  void MarkDone(Interval numbers, Streams& streams);
  void ReleaseUnacked(Interval numbers, Streams& streams);
  // Empties one stream; returns its chunks, split at tensors.
  std::vector<Interval> TakeUnacked(uint32_t stream, Streams& streams);

  std::vector<Tensor> tensors_;               // In order of push.
  std::map<TensorHandle, uint32_t> order_;    // Position in tensors_.
  std::map<TensorIndex, uint32_t> by_index_;  // Position in tensors_.
  uint32_t waiting_ = 0;                      // Tensors without an index.
  uint32_t growing_ = 0;                      // Tensors with chunks that cannot be sent yet.
  std::map<ShardId, ToShard> by_shard_;
  IntervalSet held_;
  IntervalSet unsent_;                // Not sent yet in this session; a part of ready and held_.
  std::vector<IntervalSet> unacked_;  // By stream.
  IntervalSet wanted_;                // Pull mode: by flat number of the layout.
  bool pull_ = false;
  uint64_t window_ = 0;  // Of each shard that has none of its own.
  uint64_t widest_ = 0;  // The largest window so far.
  absl::Time resume_at_ = absl::InfiniteFuture();
  uint64_t chunks_ = 0;
  uint64_t bytes_ = 0;
  Digest digest_ = 0;
};

}  // namespace basin::client

#endif  // BASIN_CLIENT_CORE_PUSH_H_
