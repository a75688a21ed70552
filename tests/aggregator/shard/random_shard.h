// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Random messages between a coordinator and a shard that obey the rules of basin/v1/shard.proto,
// from a seed.
//
// Thread contract: one thread.

#ifndef BASIN_TESTS_AGGREGATOR_SHARD_RANDOM_SHARD_H_
#define BASIN_TESTS_AGGREGATOR_SHARD_RANDOM_SHARD_H_

#include <algorithm>
#include <cstdint>
#include <string>
#include <variant>

#include "absl/status/status.h"
#include "aggregator/engine/shard_messages.h"
#include "protocol/limits/limits.h"
#include "tests/proto/random_messages.h"

namespace basin::aggregator {

class RandomShard : public basin::testing::RandomMessages {
 public:
  using RandomMessages::RandomMessages;

  // The alternative of ShardEvent with this index.
  ShardEvent Event(size_t kind) {
    switch (kind) {
      case 0:
        return StreamOpened{Positive(), Positive()};
      case 1:
        return StreamLost{Positive()};
      case 2: {
        ShardFrameReceived out{Positive(), Positive(), {}};
        out.what.kind = Coin() ? FrameKind::kSupply : FrameKind::kContribution;
        out.what.lane = static_cast<LaneIndex>(Below(kMaxLaneIndexes));
        out.what.round = Positive();
        if (out.what.kind == FrameKind::kSupply) out.what.ballot = Make<Ballot>();
        out.what.ranges = FrameRanges();
        out.what.bytes = Number();
        out.what.digests = Digests(out.what.ranges);
        return out;
      }
      case 3:
        return ShardFrameUnknown{Positive(), Positive()};
      case 5:
        return ShardDraining{};
      case 6:
        return ShardUse{Number(), Number(), Number(), Number(), Number()};
      default: {
        auto out = OfAttempt<ReduceDone>();
        out.ranges = FrameRanges();
        if (Coin()) {
          out.failure = Text();
          out.failed = static_cast<TensorIndex>(Below(kMaxTensors));
          return out;
        }
        out.digests = Digests(out.ranges);
        if (Coin()) {
          for (size_t i = 0; i < out.digests.size(); ++i) {
            out.facts.squared_norms.push_back({static_cast<double>(Number()), 0.5});
          }
        }
        out.facts.overflow = Coin();
        if (Coin()) out.facts.nonfinite = Make<NonFinite>();
        return out;
      }
    }
  }

  // That of ShardAction.
  ShardAction Action(size_t kind) {
    switch (kind) {
      case 0: {
        NameTensors out{Job(), Lane(), static_cast<TensorIndex>(Below(1000)), {}};
        for (uint64_t i = Below(4); i > 0; --i) {
          out.tensors.push_back(Make<TensorSpec>());
          out.tensors.back().name = "t" + std::to_string(i);
        }
        return out;
      }
      case 1:
        return IdleLane{Job(), Lane()};
      case 2:
        return EndJob{Job()};
      case 3: {
        auto out = OfRound<KeepChunks>();
        out.contributor = Make<Incarnation>();
        out.ranges = FrameRanges();
        return out;
      }
      case 4: {
        auto out = OfRound<DiscardChunks>();
        out.contributor = Make<Incarnation>();
        out.ranges = {Make<ChunkRange>(), Make<ChunkRange>()};
        return out;
      }
      case 5: {
        auto out = OfAttempt<StartAttempt>();
        out.spec = Make<RoundSpec>();
        for (uint64_t i = Below(4); i > 0; --i) out.contributors.push_back(Make<Contributor>());
        return out;
      }
      case 6: {
        auto out = OfAttempt<Reduce>();
        out.ranges = FrameRanges();
        out.divisor = Number();
        if (Coin()) out.skipped = {0, 3, 7};
        return out;
      }
      case 7: {
        auto out = OfAttempt<Publish>();
        for (uint64_t i = Below(4); i > 0; --i) out.routes.push_back(AnyRoute());
        return out;
      }
      case 8: {
        auto out = OfAttempt<ReleaseResult>();
        out.range = Make<ChunkRange>();
        return out;
      }
      case 9: {
        auto out = OfAttempt<RelayResult>();
        out.ranges = FrameRanges();
        out.route = AnyRoute();
        return out;
      }
      case 10:
        return OfRound<EndRound>();
      case 11:
        return ShardAcceptStream{{Positive(), Positive(), Job()}, Label()};
      case 12:
        return CloseStream{Positive(), Coin() ? absl::OkStatus() : absl::NotFoundError("no token")};
      case 13:
        return SendFrame{Positive(), Positive()};
      default:
        return ForgetFrames{{Positive(), Positive()}};
    }
  }

  template <typename T>
  T OfRound() {
    T out;
    out.job = Job();
    out.lane = Lane();
    out.round = Positive();
    return out;
  }
  template <typename T>
  T OfAttempt() {
    T out = OfRound<T>();
    out.ballot = Make<Ballot>();
    return out;
  }

  uint64_t Positive() { return std::max<uint64_t>(1, Number()); }
  JobId Job() { return static_cast<JobId>(Number()); }
  LaneIndex Lane() { return static_cast<LaneIndex>(Below(kMaxLaneIndexes)); }
  ChunkRanges FrameRanges() {
    ChunkRanges out;
    for (uint64_t i = 1 + Below(3); i > 0; --i) {
      out.push_back({static_cast<TensorIndex>(Below(kMaxTensors)),
                     static_cast<uint32_t>(Below(1000)), static_cast<uint32_t>(1 + Below(5))});
    }
    return out;
  }
  ChunkDigests Digests(const ChunkRanges& ranges) {
    ChunkDigests out;
    for (uint32_t i = CountChunks(ranges); i > 0; --i) out.push_back(Number());
    return out;
  }
  Route AnyRoute() {
    Route out{FrameRanges(), {}, Coin() ? 0 : Positive()};
    for (uint64_t i = Below(4); i > 0; --i) out.streams.push_back(Positive());
    return out;
  }
};

}  // namespace basin::aggregator

#endif  // BASIN_TESTS_AGGREGATOR_SHARD_RANDOM_SHARD_H_
