// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// What an engine holds for the aggregator's core, in worlds without bytes: a stand-in for each
// chunk. The engine's own code carries out the actions (aggregator/engine/held.h); the simulator,
// the explorer, the scenarios and the core's tests decide when things happen. An action that asks
// for what is not there, or for something twice, is an error that says what is wrong.
//
// What differs from the engine: an input of a reduction stays here, marked, until the reduction
// ends or its attempt is over, so that an action which names it again is found; and each of keep
// and relay is compared with the whole header of what arrived.
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
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "aggregator/core/delivery.h"
#include "aggregator/core/event.h"
#include "aggregator/engine/held.h"
#include "tests/world/frame.h"

namespace basin::world {

// One contribution to a chunk that is reduced.
template <typename C>
struct Given {
  const Contributor& contributor;
  const C& chunk;
};

// See `Bytes` in held.h.
template <typename Bytes>
struct StandIns {
  using Chunk = typename Bytes::Chunk;
  using Push = PushFrame<Chunk>;
  using Result = ResultFrame<Chunk>;
  using Frame = std::variant<Result, BlobFrame>;
  struct Arrived {  // One of them, or none.
    const Push* push = nullptr;
    const BlobFrame* value = nullptr;
  };
  using Tensor = uint64_t;  // The size of its bytes.
  struct Reduction {
    aggregator::Reduce what;
    Chunks<Chunk> result;
    auto Fields() const {
      return std::tie(what.job, what.lane, what.round, what.ballot, what.ranges, result);
    }
  };
  using Place = std::pair<TensorIndex, uint32_t>;  // Where a chunk is.
  struct HeldChunk {
    Chunk chunk;
    uint64_t size = 0;  // That of the bytes that it stands for.
    bool reducing = false;
    auto Fields() const { return std::tie(chunk, size, reducing); }
  };
  struct Round {
    aggregator::StartAttempt attempt;  // The last one.
    std::map<Incarnation, std::map<Place, HeldChunk>> parked;
    std::map<Place, HeldChunk> results;
    auto Fields() const {
      return std::tie(attempt.ballot, attempt.spec, attempt.contributors, parked, results);
    }
  };
  using Blob = std::map<uint32_t, uint64_t>;  // Content by chunk.

  static Tensor TensorOf(const TensorSpec& spec) { return *TensorBytes(spec); }
  static absl::Status Keep(Round& round, const aggregator::KeepChunks& keep,
                           const Arrived* arrived);
  static absl::Status Discard(Round& round, const aggregator::DiscardChunks& discard);
  // A new ballot ends the reductions of the attempt before, and its results are of no use.
  static absl::Status Start(Round& round, const aggregator::StartAttempt& start);
  static absl::StatusOr<Reduction> Take(Round& round, const aggregator::Reduce& reduce);
  static void Hold(Round& round, const Reduction& reduction);
  static absl::StatusOr<Frame> FrameOf(const Round& round, const aggregator::Publish& publish,
                                       const ChunkRanges& ranges);
  static absl::Status Release(Round& round, const aggregator::ReleaseResult& release);
  static absl::StatusOr<Frame> Relayed(const aggregator::RelayResult& relay,
                                       const Arrived* arrived);
  static absl::StatusOr<Frame> Relayed(const aggregator::RelayBlob& relay, const Arrived* arrived);
  static void Keep(Blob& blob, const aggregator::RelayBlob& relay, const Arrived& arrived) {
    for (uint32_t i = 0; i < relay.count; ++i) blob[relay.first + i] = arrived.value->content;
  }
  static absl::StatusOr<Frame> FrameOf(const Blob& blob, const aggregator::SendBlob& send);

 private:
  static const ChunkRange& FirstOf(const ChunkRange& range) { return range; }
  static const ChunkRange& FirstOf(const ChunkRanges& ranges) { return ranges.front(); }
  template <typename Action, typename Ranges>
  static absl::Status Wrong(const Action& action, const Ranges& ranges, const std::string& what) {
    const ChunkRange& range = FirstOf(ranges);
    return absl::InternalError(absl::StrCat(what, " (lane ", action.lane, ", round ", action.round,
                                            ", tensor ", range.tensor, ", chunks ", range.first,
                                            "+", range.count, ")"));
  }
  // Frees the inputs of reductions for which `over` holds.
  template <typename Over>
  static void FreeInputs(Round& round, Over&& over);
};

template <typename Bytes>
class AggregatorShell : public aggregator::Held<StandIns<Bytes>> {
 public:
  using Chunk = typename Bytes::Chunk;
  using Arrived = typename StandIns<Bytes>::Arrived;
  using Frame = typename StandIns<Bytes>::Frame;
  using Push = typename StandIns<Bytes>::Push;
  using Reduction = typename StandIns<Bytes>::Reduction;
  using Result = typename StandIns<Bytes>::Result;
  using Round = typename StandIns<Bytes>::Round;

  // ---- what arrives
  static aggregator::FrameReceived EventOf(aggregator::SessionId session, const Push& frame) {
    return {session,      frame.kind,   frame.lane,  frame.round,
            frame.ballot, frame.ranges, frame.bytes, DigestsOf(Bytes(), frame)};
  }
  static aggregator::BlobReceived EventOf(aggregator::SessionId session, const BlobFrame& frame) {
    return {session, frame.key, frame.first, frame.count, frame.bytes};
  }

  // Carries out an action that is about bytes. `Host` has SendOn(stream, frame), which is called
  // for each stream that a frame goes on, and Started(reduction).
  template <typename Action, typename Host>
  absl::Status CarryOut(const Action& action, const Arrived& arrived, Host& host) {
    ForHeld<Host> here{host};
    return aggregator::Held<StandIns<Bytes>>::CarryOut(action, &arrived, here);
  }

  // Result chunks that the Step was given, as a frame.
  static absl::StatusOr<Frame> Relayed(const aggregator::RelayResult& relay,
                                       const Arrived& arrived) {
    return StandIns<Bytes>::Relayed(relay, &arrived);
  }

  // Whether the attempt of a reduction still goes on; what it came to is of use only then.
  bool IsLive(const Reduction& reduction) const {
    const auto* attempt = AttemptOf(reduction.what.job, reduction.what.lane, reduction.what.round);
    return attempt != nullptr && attempt->ballot == reduction.what.ballot;
  }
  // The reduction has ended: frees its inputs and holds the result, if it is live.
  aggregator::ReduceDone Finish(const Reduction& reduction);
  // The attempt's contributors; null when none was started.
  const aggregator::StartAttempt* AttemptOf(aggregator::JobId job, LaneIndex lane,
                                            RoundNumber number) const {
    const Round* round = this->FindRound(job, lane, number);
    return round == nullptr ? nullptr : &round->attempt;
  }

  // ---- what is held
  uint64_t parked_bytes() const;  // Inputs that are reduced included.
  uint64_t result_bytes() const;
  size_t parked_chunks() const;  // Without the inputs that are reduced.
  size_t result_chunks() const;

 private:
  template <typename Host>
  struct ForHeld {
    Host& host;
    void SendOn(absl::Span<const aggregator::StreamId> streams, const Frame& frame) {
      for (const aggregator::StreamId stream : streams) host.SendOn(stream, frame);
    }
    static absl::Status Start(Round& round, const aggregator::StartAttempt& start) {
      return StandIns<Bytes>::Start(round, start);
    }
    void Started(Reduction reduction) { host.Started(std::move(reduction)); }
  };
};

// ---- rounds

template <typename Bytes>
absl::Status StandIns<Bytes>::Keep(Round& round, const aggregator::KeepChunks& keep,
                                   const Arrived* arrived) {
  const Push* const push = arrived == nullptr ? nullptr : arrived->push;
  if (push == nullptr || push->kind != aggregator::FrameKind::kContribution ||
      push->round != keep.round || push->lane != keep.lane ||
      !aggregator::Covers(push->ranges, keep.ranges)) {
    return Wrong(keep, keep.ranges, "it keeps chunks that did not arrive");
  }
  auto& parked = round.parked[keep.contributor];
  absl::Status status = absl::OkStatus();
  ForEachChunk(keep.ranges, [&](TensorIndex tensor, uint32_t chunk) {
    const HeldChunk held{push->At(tensor, chunk), push->SizeOf(tensor, chunk), false};
    if (!parked.emplace(Place{tensor, chunk}, held).second) {
      status = Wrong(keep, ChunkRange{tensor, chunk, 1}, "it keeps chunks that it already has");
    }
  });
  return status;
}

template <typename Bytes>
absl::Status StandIns<Bytes>::Discard(Round& round, const aggregator::DiscardChunks& discard) {
  const auto contribution = round.parked.find(discard.contributor);
  absl::Status status = absl::OkStatus();
  ForEachChunk(discard.ranges, [&](TensorIndex tensor, uint32_t chunk) {
    const Place place{tensor, chunk};
    const bool known = contribution != round.parked.end() && contribution->second.count(place) > 0;
    if (!known || contribution->second.at(place).reducing) {
      status = Wrong(discard, ChunkRange{tensor, chunk, 1}, "it discards a chunk that it lacks");
    } else {
      contribution->second.erase(place);
    }
  });
  if (contribution != round.parked.end() && contribution->second.empty()) {
    round.parked.erase(contribution);
  }
  return status;
}

template <typename Bytes>
template <typename Over>
void StandIns<Bytes>::FreeInputs(Round& round, Over&& over) {
  for (auto contribution = round.parked.begin(); contribution != round.parked.end();) {
    auto& chunks = contribution->second;
    for (auto it = chunks.begin(); it != chunks.end();) {
      it = it->second.reducing && over(it->first) ? chunks.erase(it) : std::next(it);
    }
    contribution = chunks.empty() ? round.parked.erase(contribution) : std::next(contribution);
  }
}

template <typename Bytes>
absl::Status StandIns<Bytes>::Start(Round& round, const aggregator::StartAttempt& start) {
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
    FreeInputs(round, [](const Place&) { return true; });
    round.results.clear();
  }
  round.attempt = start;
  return absl::OkStatus();
}

template <typename Bytes>
auto StandIns<Bytes>::Take(Round& round, const aggregator::Reduce& reduce)
    -> absl::StatusOr<Reduction> {
  if (!(round.attempt.ballot == reduce.ballot)) {
    return Wrong(reduce, reduce.ranges,
                 absl::StrCat("it reduces at ballot ", ToString(reduce.ballot),
                              ", which it has not started"));
  }
  Reduction reduction{reduce, {}};
  absl::Status status = absl::OkStatus();
  ForEachChunk(reduce.ranges, [&](TensorIndex tensor, uint32_t chunk) {
    const Place place{tensor, chunk};
    const auto wrong = [&](const std::string& what) {
      if (status.ok()) status = Wrong(reduce, ChunkRange{tensor, chunk, 1}, what);
    };
    if (round.results.count(place) > 0) return wrong("it reduces chunks twice");
    std::vector<Given<Chunk>> given;  // In the order of the contributors.
    auto skipped = reduce.skipped.begin();
    for (uint32_t position = 0; position < round.attempt.contributors.size(); ++position) {
      if (skipped != reduce.skipped.end() && *skipped == position) {
        ++skipped;
        continue;
      }
      const Contributor& contributor = round.attempt.contributors[position];
      const auto parked = round.parked.find(contributor.incarnation);
      if (parked == round.parked.end() || parked->second.count(place) == 0) {
        return wrong(
            absl::StrCat("it reduces chunks of worker ", contributor.worker, " that it lacks"));
      }
      HeldChunk& held = parked->second.at(place);
      if (held.reducing) return wrong("it reduces chunks that are being reduced");
      held.reducing = true;
      given.push_back({contributor, held.chunk});
    }
    reduction.result.push_back(Bytes().Reduce(round.attempt.spec, reduce.divisor, given));
  });
  if (!status.ok()) return status;
  return reduction;
}

template <typename Bytes>
void StandIns<Bytes>::Hold(Round& round, const Reduction& reduction) {
  if (!(round.attempt.ballot == reduction.what.ballot)) return;
  size_t index = 0;
  ForEachChunk(reduction.what.ranges, [&](TensorIndex tensor, uint32_t chunk) {
    const Place place{tensor, chunk};
    uint64_t size = 0;
    for (const auto& [contributor, chunks] : round.parked) {
      const auto input = chunks.find(place);
      if (input != chunks.end() && input->second.reducing) size = input->second.size;
    }
    FreeInputs(round, [&](const Place& input) { return input == place; });
    round.results[place] = {reduction.result[index++], size, false};
  });
}

template <typename Bytes>
auto StandIns<Bytes>::FrameOf(const Round& round, const aggregator::Publish& publish,
                              const ChunkRanges& ranges) -> absl::StatusOr<Frame> {
  Result frame{publish.lane, publish.round, publish.ballot, ranges, {}};
  bool lacks = !(round.attempt.ballot == publish.ballot);
  ForEachChunk(ranges, [&](TensorIndex tensor, uint32_t chunk) {
    const auto held = round.results.find({tensor, chunk});
    lacks = lacks || held == round.results.end();
    if (!lacks) frame.chunks.push_back(held->second.chunk);
  });
  if (lacks) return Wrong(publish, ranges, "it publishes a result that it lacks");
  return Frame(std::move(frame));
}

template <typename Bytes>
absl::Status StandIns<Bytes>::Release(Round& round, const aggregator::ReleaseResult& release) {
  for (uint32_t i = 0; i < release.range.count; ++i) {
    if (round.results.erase({release.range.tensor, release.range.first + i}) == 0) {
      return Wrong(release, release.range, "it frees a result that it lacks");
    }
  }
  return absl::OkStatus();
}

template <typename Bytes>
auto StandIns<Bytes>::Relayed(const aggregator::RelayResult& relay, const Arrived* arrived)
    -> absl::StatusOr<Frame> {
  const Push* const push = arrived == nullptr ? nullptr : arrived->push;
  if (push == nullptr || push->kind != aggregator::FrameKind::kSupply || push->lane != relay.lane ||
      push->round != relay.round || !(push->ballot == relay.ballot) ||
      !aggregator::Covers(push->ranges, relay.ranges)) {
    return Wrong(relay, relay.ranges, "it relays a result that did not arrive");
  }
  Result frame{relay.lane, relay.round, relay.ballot, relay.ranges, {}};
  ForEachChunk(relay.ranges, [&](TensorIndex tensor, uint32_t chunk) {
    frame.chunks.push_back(push->At(tensor, chunk));
  });
  return Frame(std::move(frame));
}

// ---- broadcast values

template <typename Bytes>
auto StandIns<Bytes>::Relayed(const aggregator::RelayBlob& relay, const Arrived* arrived)
    -> absl::StatusOr<Frame> {
  if (arrived == nullptr || arrived->value == nullptr || !(arrived->value->key == relay.key)) {
    return absl::InternalError("it relays a blob that did not arrive");
  }
  return Frame(*arrived->value);
}

template <typename Bytes>
auto StandIns<Bytes>::FrameOf(const Blob& blob, const aggregator::SendBlob& send)
    -> absl::StatusOr<Frame> {
  BlobFrame frame{send.key, send.first, send.count, 0, 0};
  for (uint32_t i = 0; i < send.count; ++i) {
    const auto kept = blob.find(send.first + i);
    if (kept == blob.end() || (i > 0 && kept->second != frame.content)) {
      return absl::InternalError(
          absl::StrCat("it sends chunk ", send.first + i, " of a blob, which it lacks"));
    }
    frame.content = kept->second;
  }
  return Frame(std::move(frame));
}

// ---- the shell

template <typename Bytes>
aggregator::ReduceDone AggregatorShell<Bytes>::Finish(const Reduction& reduction) {
  const aggregator::Reduce& what = reduction.what;
  aggregator::ReduceDone done{what.job, what.lane, what.round, what.ballot, what.ranges, {}, {}};
  size_t index = 0;
  ForEachChunk(what.ranges, [&](TensorIndex tensor, uint32_t chunk) {
    const Chunk& result = reduction.result[index++];
    done.digests.push_back(Bytes().DigestOf(tensor, chunk, result));
    done.facts.squared_norms.push_back({Bytes().SquaredNormOf(result), 0});
  });
  this->Hold(what, reduction);
  return done;
}

template <typename Bytes>
uint64_t AggregatorShell<Bytes>::parked_bytes() const {
  uint64_t bytes = 0;
  for (const auto& [key, round] : this->rounds()) {
    for (const auto& [contributor, chunks] : round.parked) {
      for (const auto& [place, held] : chunks) bytes += held.size;
    }
  }
  return bytes;
}

template <typename Bytes>
uint64_t AggregatorShell<Bytes>::result_bytes() const {
  uint64_t bytes = 0;
  for (const auto& [key, round] : this->rounds()) {
    for (const auto& [place, held] : round.results) bytes += held.size;
  }
  return bytes;
}

template <typename Bytes>
size_t AggregatorShell<Bytes>::parked_chunks() const {
  size_t count = 0;
  for (const auto& [key, round] : this->rounds()) {
    for (const auto& [contributor, chunks] : round.parked) {
      for (const auto& [place, held] : chunks) count += !held.reducing;
    }
  }
  return count;
}

template <typename Bytes>
size_t AggregatorShell<Bytes>::result_chunks() const {
  size_t count = 0;
  for (const auto& [key, round] : this->rounds()) count += round.results.size();
  return count;
}

}  // namespace basin::world

#endif  // BASIN_TESTS_WORLD_AGGREGATOR_SHELL_H_
