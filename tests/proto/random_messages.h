// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Random values that obey the rules of basin/v1, every field of them, from a seed. Numbers are
// drawn from the edges of their ranges as often as from within.
//
// Thread contract: one thread.

#ifndef BASIN_TESTS_PROTO_RANDOM_MESSAGES_H_
#define BASIN_TESTS_PROTO_RANDOM_MESSAGES_H_

#include <algorithm>
#include <cstdint>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "protocol/limits/limits.h"
#include "protocol/messages.h"

namespace basin::testing {

class RandomMessages {
 public:
  explicit RandomMessages(uint64_t seed) : random_(seed) {}

  // A value of any struct of protocol that travels.
  template <typename T>
  T Make() {
    T value;
    Fill(&value);
    return value;
  }

  // The variant's alternative with this index.
  template <typename Variant>
  Variant MakeAlternative(size_t index) {
    return MakeAlternative<Variant>(index,
                                    std::make_index_sequence<std::variant_size_v<Variant>>());
  }

  uint64_t Below(uint64_t bound) {
    return std::uniform_int_distribution<uint64_t>(0, bound - 1)(random_);
  }
  bool Coin() { return Below(2) == 0; }
  // Any 64 bits; small, huge and in between.
  uint64_t Number();
  // 0 to bound; both are likely.
  uint64_t UpTo(uint64_t bound);
  std::string Bytes(size_t size);

  std::string Label();  // A worker id.
  std::string Name();   // A lane's or tensor's name.
  std::string Text();   // A reason that is printable as it is.

  void Fill(Generation* out);
  void Fill(Incarnation* out);
  void Fill(Ballot* out);
  void Fill(Error* out);
  void Fill(Membership* out);
  void Fill(TensorSpec* out);
  void Fill(ChunkRange* out);
  void Fill(Bitmap* out);
  void Fill(BlobKey* out);
  void Fill(RoundSpec* out);
  void Fill(Counts* out);
  void Fill(SampleRange* out);
  void Fill(SampleEpoch* out);
  void Fill(SampleProgress* out);
  void Fill(RoundSamples* out);
  template <typename Message>
  void FillPlan(Message* out);
  void Fill(Contributor* out);
  void Fill(TensorDivisor* out);
  void Fill(NonFinite* out);
  void Fill(RoundFacts* out);
  void Fill(RoundValue* out);
  void Fill(VerdictRecord* out);
  void Fill(JobSettings* out);

  void Fill(StagedValue* out);
  void Fill(LaneHistory* out);
  void Fill(Hello* out);
  void Fill(Ready* out);
  void Fill(RoundWait* out);
  void Fill(Heartbeat* out);
  void Fill(Register* out);
  void Fill(LayoutSeen* out);
  void Fill(Begin* out);
  void Fill(Skip* out);
  void Fill(Commit* out);
  void Fill(Withdraw* out);
  void Fill(Staged* out);
  void Fill(ResultAck* out);
  void Fill(Need* out);
  void Fill(Busy* out);
  void Fill(Abandon*) {}
  void Fill(Finished*) {}
  void Fill(Leave* out);
  void Fill(Announce* out);
  void Fill(Get* out);
  void Fill(LeaseSamples* out);
  void Fill(ReturnSamples* out);
  void Fill(ReportBatch* out);
  void Fill(LetGo* out);  // In both directions.

  void Fill(StartRound* out);
  void Fill(OpenRound* out);
  void Fill(LaneLayout* out);
  void Fill(LastVerdicts* out);
  void Fill(Welcome* out);
  void Fill(MembershipChanged* out);
  void Fill(Credit* out);
  void Fill(Pull* out);
  void Fill(AttemptRestarted* out);
  void Fill(Prepared* out);
  void Fill(Supply* out);
  void Fill(Verdict* out);
  void Fill(Rejected* out);
  void Fill(Ended* out);
  void Fill(Drain* out);
  void Fill(Ask* out);
  void Fill(BlobKnown* out);
  void Fill(GetFailed* out);
  void Fill(HeldUp* out);
  void Fill(SamplesLeased* out);
  void Fill(BatchReported* out);
  void Fill(LaneGone* out);
  void Fill(Placement* out);
  void Fill(RoundPlacement* out);
  void Fill(ShardUnreachable* out);

 private:
  template <typename Variant, size_t... I>
  Variant MakeAlternative(size_t index, std::index_sequence<I...>) {
    Variant out;
    ((I == index ? void(out = Make<std::variant_alternative_t<I, Variant>>()) : void()), ...);
    return out;
  }

  // Ascending, none touches the next, and all below `samples`.
  std::vector<SampleRange> Positions(uint64_t samples);
  template <typename E>
  E Enum(E first, E last) {
    const int low = static_cast<int>(first);
    return static_cast<E>(low + static_cast<int>(Below(static_cast<int>(last) - low + 1)));
  }
  template <typename T>
  std::vector<T> List(size_t most = 3) {
    std::vector<T> out(Below(most + 1));
    for (T& entry : out) Fill(&entry);
    return out;
  }
  template <typename T>
  std::optional<T> Maybe() {
    return Coin() ? std::optional<T>(Make<T>()) : std::nullopt;
  }
  std::optional<WorkerId> MaybeWorker();
  std::vector<WorkerId> Workers();
  uint32_t Ranks();
  std::vector<TensorSpec> Specs();
  absl::Duration MakeDuration();
  double Scale();
  uint64_t Round() { return std::max<uint64_t>(1, Number()); }
  LaneIndex Lane() { return static_cast<LaneIndex>(UpTo(kMaxLaneIndexes - 1)); }
  TensorIndex Tensor() { return static_cast<TensorIndex>(UpTo(kMaxTensors - 1)); }

  std::mt19937_64 random_;
};

}  // namespace basin::testing

#endif  // BASIN_TESTS_PROTO_RANDOM_MESSAGES_H_
