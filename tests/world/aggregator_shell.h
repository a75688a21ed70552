// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// What an engine holds for the aggregator's core, in worlds without bytes: contributions, attempts,
// results, broadcast values, and the frames that may be sent again. The simulator, the explorer,
// the scenarios and the core's tests carry out actions with it, and decide when things happen. An
// action that asks for what is not there, or for something twice, is an error that says what is
// wrong.
//
// `Bytes` says what stands for the bytes of a chunk, and how they are reduced:
//
//   struct Bytes {
//     using Chunk = ...;  // A plain value with Fields().
//     Digest DigestOf(TensorIndex tensor, uint32_t chunk, const Chunk& bytes) const;
//     double SquaredNormOf(const Chunk& bytes) const;
//     // `given`: in the order of the contributors, without those that skip.
//     Chunk Reduce(const RoundSpec& spec, uint64_t divisor,
//                  const std::vector<world::Given<Chunk>>& given) const;
//   };
//
// Thread contract: a plain value.

#ifndef BASIN_TESTS_WORLD_AGGREGATOR_SHELL_H_
#define BASIN_TESTS_WORLD_AGGREGATOR_SHELL_H_

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "aggregator/core/action.h"
#include "aggregator/core/delivery.h"
#include "aggregator/core/event.h"
#include "tests/world/frame.h"

namespace basin::world {

// One contribution to a chunk that is reduced.
template <typename C>
struct Given {
  const Contributor& contributor;
  const C& chunk;
};

template <typename Bytes>
class AggregatorShell {
 public:
  using Chunk = typename Bytes::Chunk;
  using Push = PushFrame<Chunk>;
  using Result = ResultFrame<Chunk>;
  using Frame = std::variant<Result, BlobFrame>;  // To a worker.

  // A reduction under way. Its inputs are held until it ends.
  struct Reduction {
    aggregator::Reduce what;
    Chunks<Chunk> result;
    auto Fields() const {
      return std::tie(what.job, what.lane, what.round, what.ballot, what.ranges, result);
    }
  };

  // Whether the action alone says what to do to what is held.
  template <typename Action>
  static constexpr bool kHolds =
      std::is_same_v<Action, aggregator::NameTensors> ||
      std::is_same_v<Action, aggregator::IdleLane> || std::is_same_v<Action, aggregator::EndJob> ||
      std::is_same_v<Action, aggregator::DiscardChunks> ||
      std::is_same_v<Action, aggregator::StartAttempt> ||
      std::is_same_v<Action, aggregator::ReleaseResult> ||
      std::is_same_v<Action, aggregator::EndRound> ||
      std::is_same_v<Action, aggregator::DropBlob> ||
      std::is_same_v<Action, aggregator::ForgetFrames>;

  explicit AggregatorShell(Bytes bytes = {}) : bytes_(std::move(bytes)) {}

  // ---- what arrives
  aggregator::FrameReceived EventOf(aggregator::SessionId session, const Push& frame) const;
  aggregator::BlobReceived EventOf(aggregator::SessionId session, const BlobFrame& frame) const;

  // ---- rounds
  absl::Status Do(const aggregator::NameTensors& names);
  // It holds nothing that makes rounds fast.
  absl::Status Do(const aggregator::IdleLane&) { return absl::OkStatus(); }
  absl::Status Do(const aggregator::EndJob& end);
  // `arrived`: the frame that the Step was given; null when there was none.
  absl::Status Do(const aggregator::KeepChunks& keep, const Push* arrived);
  absl::Status Do(const aggregator::DiscardChunks& discard);
  absl::Status Do(const aggregator::StartAttempt& start);
  absl::StatusOr<Reduction> Do(const aggregator::Reduce& reduce);
  absl::Status Do(const aggregator::ReleaseResult& release);
  absl::Status Do(const aggregator::EndRound& end);
  // Whether the attempt of a reduction still goes on; what it came to is of use only then.
  bool IsLive(const Reduction& reduction) const;
  // The reduction has ended: frees its inputs and holds the result, if it is live.
  aggregator::ReduceDone Finish(const Reduction& reduction);
  // Held result chunks, as a frame.
  absl::StatusOr<Result> ResultOf(const aggregator::Publish& publish,
                                  const ChunkRanges& ranges) const;
  // Result chunks that the Step was given, as a frame.
  absl::StatusOr<Result> ResultOf(const aggregator::RelayResult& relay, const Push* arrived) const;

  // ---- broadcast values
  absl::Status Do(const aggregator::RelayBlob& relay, const BlobFrame* arrived);
  absl::StatusOr<BlobFrame> BlobOf(const aggregator::SendBlob& send) const;
  absl::Status Do(const aggregator::DropBlob& drop);

  // ---- frames, as delivery routes them
  // Each calls send_on(stream, frame) for every stream that a frame goes on, and keeps the frame
  // where its route says so.
  template <typename SendOn>
  absl::Status Do(const aggregator::Publish& publish, SendOn&& send_on);
  template <typename SendOn>
  absl::Status Do(const aggregator::RelayResult& relay, const Push* arrived, SendOn&& send_on);
  template <typename SendOn>
  absl::Status Do(const aggregator::RelayBlob& relay, const BlobFrame* arrived, SendOn&& send_on);
  template <typename SendOn>
  absl::Status Do(const aggregator::SendBlob& send, SendOn&& send_on);
  template <typename SendOn>
  absl::Status Do(const aggregator::SendFrame& send, SendOn&& send_on) const;
  absl::Status Do(const aggregator::ForgetFrames& forget);

  // ---- what is held
  // The attempt's contributors; null when none was started.
  const aggregator::StartAttempt* AttemptOf(aggregator::JobId job, LaneIndex lane,
                                            RoundNumber round) const;
  uint64_t parked_bytes() const { return parked_bytes_; }  // Inputs that are reduced included.
  uint64_t result_bytes() const { return result_bytes_; }
  size_t parked_chunks() const;  // Without the inputs that are reduced.
  size_t result_chunks() const;
  size_t blobs() const { return blobs_.size(); }
  size_t frames() const { return frames_.size(); }
  Bytes& bytes() { return bytes_; }

  auto Fields() const { return std::tie(tensors_, rounds_, blobs_, frames_); }

 private:
  using RoundKey = std::tuple<aggregator::JobId, LaneIndex, RoundNumber>;
  using ChunkKey = std::pair<TensorIndex, uint32_t>;
  using BlobId = std::tuple<aggregator::JobId, std::string, std::string, uint64_t>;
  struct Held {
    Chunk chunk;
    uint64_t size = 0;  // That of the bytes that it stands for.
    bool reducing = false;
    auto Fields() const { return std::tie(chunk, size, reducing); }
  };
  struct Round {
    aggregator::StartAttempt attempt;  // The last one.
    std::map<Incarnation, std::map<ChunkKey, Held>> parked;
    std::map<ChunkKey, Held> results;
    auto Fields() const {
      return std::tie(attempt.ballot, attempt.spec, attempt.contributors, parked, results);
    }
  };

  template <typename Action>
  static RoundKey KeyOf(const Action& action) {
    return {action.job, action.lane, action.round};
  }
  template <typename SendOn>
  absl::Status Route(const aggregator::Route& route, absl::StatusOr<Frame> frame, SendOn&& send_on);
  static BlobId IdOf(aggregator::JobId job, const BlobKey& key) {
    return {job, key.lane, key.tensor, key.version};
  }
  static const ChunkRange& FirstOf(const ChunkRange& range) { return range; }
  static const ChunkRange& FirstOf(const ChunkRanges& ranges) { return ranges.front(); }
  template <typename Action, typename Ranges>
  static absl::Status Wrong(const Action& action, const Ranges& ranges, const std::string& what) {
    const ChunkRange& range = FirstOf(ranges);
    return absl::InternalError(absl::StrCat(what, " (lane ", action.lane, ", round ", action.round,
                                            ", tensor ", range.tensor, ", chunks ", range.first,
                                            "+", range.count, ")"));
  }
  Round* Find(const RoundKey& key) {
    const auto found = rounds_.find(key);
    return found == rounds_.end() ? nullptr : &found->second;
  }
  const Round* Find(const RoundKey& key) const {
    return const_cast<AggregatorShell*>(this)->Find(key);
  }

  Bytes bytes_;
  std::map<std::pair<aggregator::JobId, LaneIndex>, uint32_t> tensors_;  // How many there are.
  std::map<RoundKey, Round> rounds_;
  std::map<BlobId, std::map<uint32_t, uint64_t>> blobs_;  // Content by chunk.
  std::map<aggregator::FrameId, Frame> frames_;           // Those that may be sent again.
  uint64_t parked_bytes_ = 0;
  uint64_t result_bytes_ = 0;
};

// ---- what arrives

template <typename Bytes>
aggregator::FrameReceived AggregatorShell<Bytes>::EventOf(aggregator::SessionId session,
                                                          const Push& frame) const {
  return {session,      frame.kind,   frame.lane,  frame.round,
          frame.ballot, frame.ranges, frame.bytes, DigestsOf(bytes_, frame)};
}

template <typename Bytes>
aggregator::BlobReceived AggregatorShell<Bytes>::EventOf(aggregator::SessionId session,
                                                         const BlobFrame& frame) const {
  return {session, frame.key, frame.first, frame.count, frame.bytes};
}

// ---- rounds

template <typename Bytes>
absl::Status AggregatorShell<Bytes>::Do(const aggregator::NameTensors& names) {
  uint32_t& count = tensors_[{names.job, names.lane}];
  if (names.first > count) {
    return absl::InternalError(absl::StrCat("it names tensors from ", names.first, " of lane ",
                                            names.lane, ", which has ", count));
  }
  count = names.first + static_cast<uint32_t>(names.tensors.size());
  return absl::OkStatus();
}

template <typename Bytes>
absl::Status AggregatorShell<Bytes>::Do(const aggregator::EndJob& end) {
  const auto first = tensors_.lower_bound({end.job, 0});
  tensors_.erase(first, tensors_.lower_bound({end.job + 1, 0}));
  return absl::OkStatus();
}

template <typename Bytes>
absl::Status AggregatorShell<Bytes>::Do(const aggregator::KeepChunks& keep, const Push* arrived) {
  if (arrived == nullptr || arrived->kind != aggregator::FrameKind::kContribution ||
      arrived->round != keep.round || arrived->lane != keep.lane ||
      !aggregator::Covers(arrived->ranges, keep.ranges)) {
    return Wrong(keep, keep.ranges, "it keeps chunks that did not arrive");
  }
  auto& parked = rounds_[KeyOf(keep)].parked[keep.contributor];
  for (const ChunkRange& range : keep.ranges) {
    for (uint32_t i = 0; i < range.count; ++i) {
      const uint32_t chunk = range.first + i;
      const Held held{arrived->At(range.tensor, chunk), arrived->SizeOf(range.tensor, chunk),
                      false};
      if (!parked.emplace(ChunkKey{range.tensor, chunk}, held).second) {
        return Wrong(keep, range, "it keeps chunks that it already has");
      }
      parked_bytes_ += held.size;
    }
  }
  return absl::OkStatus();
}

template <typename Bytes>
absl::Status AggregatorShell<Bytes>::Do(const aggregator::DiscardChunks& discard) {
  Round& round = rounds_[KeyOf(discard)];
  const auto contribution = round.parked.find(discard.contributor);
  for (const ChunkRange& range : discard.ranges) {
    for (uint32_t i = 0; i < range.count; ++i) {
      const ChunkKey key{range.tensor, range.first + i};
      const bool known = contribution != round.parked.end() && contribution->second.count(key) > 0;
      if (!known || contribution->second.at(key).reducing) {
        return absl::InternalError(absl::StrCat("it discards chunk ", range.first + i,
                                                " of tensor ", range.tensor, ", which it lacks"));
      }
      parked_bytes_ -= contribution->second.at(key).size;
      contribution->second.erase(key);
    }
  }
  if (contribution != round.parked.end() && contribution->second.empty()) {
    round.parked.erase(contribution);
  }
  return absl::OkStatus();
}

// A new ballot ends the reductions of the attempt before, and its results are of no use.
template <typename Bytes>
absl::Status AggregatorShell<Bytes>::Do(const aggregator::StartAttempt& start) {
  Round& round = rounds_[KeyOf(start)];
  if (start.ballot < round.attempt.ballot) {
    return absl::InternalError(
        absl::StrCat("round ", start.round, " goes back to ballot ", ToString(start.ballot)));
  }
  const auto by_worker = [](const Contributor& a, const Contributor& b) {
    return a.worker < b.worker;
  };
  if (!std::is_sorted(start.contributors.begin(), start.contributors.end(), by_worker)) {
    return absl::InternalError("the contributors are not in the order of their ids");
  }
  if (!(round.attempt.ballot == start.ballot)) {
    for (auto contribution = round.parked.begin(); contribution != round.parked.end();) {
      auto& chunks = contribution->second;
      for (auto it = chunks.begin(); it != chunks.end();) {
        if (it->second.reducing) parked_bytes_ -= it->second.size;
        it = it->second.reducing ? chunks.erase(it) : std::next(it);
      }
      contribution = chunks.empty() ? round.parked.erase(contribution) : std::next(contribution);
    }
    for (const auto& [key, held] : round.results) result_bytes_ -= held.size;
    round.results.clear();
  }
  round.attempt = start;
  return absl::OkStatus();
}

template <typename Bytes>
auto AggregatorShell<Bytes>::Do(const aggregator::Reduce& reduce) -> absl::StatusOr<Reduction> {
  Round* round = Find(KeyOf(reduce));
  if (round == nullptr || !(round->attempt.ballot == reduce.ballot)) {
    return Wrong(reduce, reduce.ranges,
                 absl::StrCat("it reduces at ballot ", ToString(reduce.ballot),
                              ", which it has not started"));
  }
  const auto tensors = tensors_.find({reduce.job, reduce.lane});
  Reduction reduction{reduce, {}};
  absl::Status status = absl::OkStatus();
  ForEachChunk(reduce.ranges, [&](TensorIndex tensor, uint32_t chunk) {
    const ChunkRange range{tensor, chunk, 1};
    const auto wrong = [&](const std::string& what) {
      if (status.ok()) status = Wrong(reduce, range, what);
    };
    if (tensors == tensors_.end() || tensor >= tensors->second) {
      return wrong("it reduces a tensor that it has not named");
    }
    if (round->results.count({tensor, chunk}) > 0) return wrong("it reduces chunks twice");
    std::vector<Given<Chunk>> given;  // In the order of the contributors.
    auto skipped = reduce.skipped.begin();
    for (uint32_t position = 0; position < round->attempt.contributors.size(); ++position) {
      if (skipped != reduce.skipped.end() && *skipped == position) {
        ++skipped;
        continue;
      }
      const Contributor& contributor = round->attempt.contributors[position];
      const auto parked = round->parked.find(contributor.incarnation);
      const ChunkKey key{tensor, chunk};
      if (parked == round->parked.end() || parked->second.count(key) == 0) {
        return wrong(
            absl::StrCat("it reduces chunks of worker ", contributor.worker, " that it lacks"));
      }
      Held& held = parked->second.at(key);
      if (held.reducing) return wrong("it reduces chunks that are being reduced");
      held.reducing = true;
      given.push_back({contributor, held.chunk});
    }
    reduction.result.push_back(bytes_.Reduce(round->attempt.spec, reduce.divisor, given));
  });
  if (!status.ok()) return status;
  return reduction;
}

template <typename Bytes>
bool AggregatorShell<Bytes>::IsLive(const Reduction& reduction) const {
  const Round* round = Find(KeyOf(reduction.what));
  return round != nullptr && round->attempt.ballot == reduction.what.ballot;
}

template <typename Bytes>
aggregator::ReduceDone AggregatorShell<Bytes>::Finish(const Reduction& reduction) {
  const aggregator::Reduce& what = reduction.what;
  const bool live = IsLive(reduction);
  aggregator::ReduceDone done{what.job, what.lane, what.round, what.ballot, what.ranges, {}, {}};
  size_t index = 0;
  ForEachChunk(what.ranges, [&](TensorIndex tensor, uint32_t chunk) {
    const ChunkKey key{tensor, chunk};
    const Chunk& result = reduction.result[index++];
    done.digests.push_back(bytes_.DigestOf(tensor, chunk, result));
    done.facts.squared_norms.push_back({bytes_.SquaredNormOf(result), 0});
    if (!live) return;
    Round& round = *Find(KeyOf(what));
    uint64_t size = 0;
    for (auto contribution = round.parked.begin(); contribution != round.parked.end();) {
      auto& chunks = contribution->second;
      const auto input = chunks.find(key);
      if (input != chunks.end() && input->second.reducing) {
        size = input->second.size;
        parked_bytes_ -= size;
        chunks.erase(input);
      }
      contribution = chunks.empty() ? round.parked.erase(contribution) : std::next(contribution);
    }
    round.results[key] = {result, size, false};
    result_bytes_ += size;
  });
  return done;
}

template <typename Bytes>
auto AggregatorShell<Bytes>::ResultOf(const aggregator::Publish& publish,
                                      const ChunkRanges& ranges) const -> absl::StatusOr<Result> {
  const Round* round = Find(KeyOf(publish));
  if (round == nullptr || !(round->attempt.ballot == publish.ballot)) {
    return Wrong(publish, ranges, "it publishes a result that it lacks");
  }
  Result frame{publish.lane, publish.round, publish.ballot, ranges, {}};
  bool lacks = false;
  ForEachChunk(ranges, [&](TensorIndex tensor, uint32_t chunk) {
    const auto held = round->results.find({tensor, chunk});
    lacks = lacks || held == round->results.end();
    if (!lacks) frame.chunks.push_back(held->second.chunk);
  });
  if (lacks) return Wrong(publish, ranges, "it publishes a result that it lacks");
  return frame;
}

template <typename Bytes>
auto AggregatorShell<Bytes>::ResultOf(const aggregator::RelayResult& relay,
                                      const Push* arrived) const -> absl::StatusOr<Result> {
  if (arrived == nullptr || arrived->kind != aggregator::FrameKind::kSupply ||
      arrived->lane != relay.lane || arrived->round != relay.round ||
      !(arrived->ballot == relay.ballot) || !aggregator::Covers(arrived->ranges, relay.ranges)) {
    return Wrong(relay, relay.ranges, "it relays a result that did not arrive");
  }
  Result frame{relay.lane, relay.round, relay.ballot, relay.ranges, {}};
  ForEachChunk(relay.ranges, [&](TensorIndex tensor, uint32_t chunk) {
    frame.chunks.push_back(arrived->At(tensor, chunk));
  });
  return frame;
}

template <typename Bytes>
absl::Status AggregatorShell<Bytes>::Do(const aggregator::ReleaseResult& release) {
  Round* round = Find(KeyOf(release));
  for (uint32_t i = 0; i < release.range.count; ++i) {
    const ChunkKey key{release.range.tensor, release.range.first + i};
    if (round == nullptr || round->results.count(key) == 0) {
      return Wrong(release, release.range, "it frees a result that it lacks");
    }
    result_bytes_ -= round->results.at(key).size;
    round->results.erase(key);
  }
  return absl::OkStatus();
}

template <typename Bytes>
absl::Status AggregatorShell<Bytes>::Do(const aggregator::EndRound& end) {
  const auto found = rounds_.find(KeyOf(end));
  if (found == rounds_.end()) return absl::OkStatus();
  for (const auto& [contributor, chunks] : found->second.parked) {
    for (const auto& [key, held] : chunks) parked_bytes_ -= held.size;
  }
  for (const auto& [key, held] : found->second.results) result_bytes_ -= held.size;
  rounds_.erase(found);
  return absl::OkStatus();
}

template <typename Bytes>
const aggregator::StartAttempt* AggregatorShell<Bytes>::AttemptOf(aggregator::JobId job,
                                                                  LaneIndex lane,
                                                                  RoundNumber number) const {
  const Round* round = Find({job, lane, number});
  return round == nullptr ? nullptr : &round->attempt;
}

template <typename Bytes>
size_t AggregatorShell<Bytes>::parked_chunks() const {
  size_t count = 0;
  for (const auto& [key, round] : rounds_) {
    for (const auto& [contributor, chunks] : round.parked) {
      for (const auto& [chunk, held] : chunks) count += !held.reducing;
    }
  }
  return count;
}

template <typename Bytes>
size_t AggregatorShell<Bytes>::result_chunks() const {
  size_t count = 0;
  for (const auto& [key, round] : rounds_) count += round.results.size();
  return count;
}

// ---- broadcast values

template <typename Bytes>
absl::Status AggregatorShell<Bytes>::Do(const aggregator::RelayBlob& relay,
                                        const BlobFrame* arrived) {
  if (arrived == nullptr || !(arrived->key == relay.key)) {
    return absl::InternalError("it relays a value that did not arrive");
  }
  if (!relay.cache) return absl::OkStatus();
  auto& chunks = blobs_[IdOf(relay.job, relay.key)];
  for (uint32_t i = 0; i < relay.count; ++i) chunks[relay.first + i] = arrived->content;
  return absl::OkStatus();
}

template <typename Bytes>
absl::StatusOr<BlobFrame> AggregatorShell<Bytes>::BlobOf(const aggregator::SendBlob& send) const {
  const auto value = blobs_.find(IdOf(send.job, send.key));
  BlobFrame frame{send.key, send.first, send.count, 0, 0};
  for (uint32_t i = 0; i < send.count; ++i) {
    const bool kept = value != blobs_.end() && value->second.count(send.first + i) > 0;
    if (!kept || (i > 0 && value->second.at(send.first + i) != frame.content)) {
      return absl::InternalError(
          absl::StrCat("it sends chunk ", send.first + i, " of a value, which it lacks"));
    }
    frame.content = value->second.at(send.first + i);
  }
  return frame;
}

template <typename Bytes>
absl::Status AggregatorShell<Bytes>::Do(const aggregator::DropBlob& drop) {
  if (blobs_.erase(IdOf(drop.job, drop.key)) > 0) return absl::OkStatus();
  return absl::InternalError("it drops a value that it lacks");
}

// ---- frames, as delivery routes them

template <typename Bytes>
template <typename SendOn>
absl::Status AggregatorShell<Bytes>::Route(const aggregator::Route& route,
                                           absl::StatusOr<Frame> frame, SendOn&& send_on) {
  if (!frame.ok()) return frame.status();
  for (const aggregator::StreamId stream : route.streams) send_on(stream, *frame);
  if (route.frame != 0 && !frames_.emplace(route.frame, *std::move(frame)).second) {
    return absl::InternalError("it keeps two frames under one name");
  }
  return absl::OkStatus();
}

template <typename Bytes>
template <typename SendOn>
absl::Status AggregatorShell<Bytes>::Do(const aggregator::Publish& publish, SendOn&& send_on) {
  for (const aggregator::Route& route : publish.routes) {
    const absl::Status status = Route(route, ResultOf(publish, route.ranges), send_on);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

template <typename Bytes>
template <typename SendOn>
absl::Status AggregatorShell<Bytes>::Do(const aggregator::RelayResult& relay, const Push* arrived,
                                        SendOn&& send_on) {
  return Route(relay.route, ResultOf(relay, arrived), send_on);
}

template <typename Bytes>
template <typename SendOn>
absl::Status AggregatorShell<Bytes>::Do(const aggregator::RelayBlob& relay,
                                        const BlobFrame* arrived, SendOn&& send_on) {
  const absl::Status status = Do(relay, arrived);
  return status.ok() ? Route(relay.route, Frame(*arrived), send_on) : status;
}

template <typename Bytes>
template <typename SendOn>
absl::Status AggregatorShell<Bytes>::Do(const aggregator::SendBlob& send, SendOn&& send_on) {
  return Route(send.route, BlobOf(send), send_on);
}

template <typename Bytes>
template <typename SendOn>
absl::Status AggregatorShell<Bytes>::Do(const aggregator::SendFrame& send, SendOn&& send_on) const {
  const auto kept = frames_.find(send.frame);
  if (kept == frames_.end()) return absl::InternalError("it sends a frame that it does not keep");
  send_on(send.stream, kept->second);
  return absl::OkStatus();
}

template <typename Bytes>
absl::Status AggregatorShell<Bytes>::Do(const aggregator::ForgetFrames& forget) {
  for (const aggregator::FrameId frame : forget.frames) {
    if (frames_.erase(frame) == 0) {
      return absl::InternalError("it forgets a frame that it does not keep");
    }
  }
  return absl::OkStatus();
}

}  // namespace basin::world

#endif  // BASIN_TESTS_WORLD_AGGREGATOR_SHELL_H_
