// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The specification of a round, its value, and the record of its verdict.
//
// Thread contract: plain values and pure functions.

#ifndef BASIN_PROTOCOL_ROUND_H_
#define BASIN_PROTOCOL_ROUND_H_

#include <cstdint>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "protocol/dtype.h"
#include "protocol/error.h"
#include "protocol/fields.h"
#include "protocol/ids.h"
#include "protocol/member_list.h"
#include "protocol/samples.h"

namespace basin {

// Commutative sum, modulo 2^64, of keyed hashes of 256 KiB blocks. Adding the digests of disjoint
// parts gives the digest of the whole, in any order.
using Digest = uint64_t;

// Whether a contribution is the mean or the sum over the worker's own samples.
enum class ContributionKind : uint8_t { kMean = 0, kSum = 1 };

// The count that is the weight of a WEIGHTED_AVERAGE.
enum class WeightBy : uint8_t { kNone = 0, kSamples = 1, kTokens = 2, kMicroBatches = 3 };

// The workers that the divisor of a tensor counts: all contributors, or those that pushed it.
enum class Denominator : uint8_t { kAll = 0, kPresent = 1 };

// The part of begin on which all contributors of a round must agree.
struct RoundSpec {
  ReduceOp op = ReduceOp::kUnspecified;
  double prescale = 1;
  double postscale = 1;
  double predivide = 1;
  bool auto_predivide = false;
  ContributionKind kind = ContributionKind::kMean;
  WeightBy weight_by = WeightBy::kNone;
  Denominator denominator = Denominator::kAll;
  double loss_scale = 1;
  uint64_t layout = 0;  // A hash of the tensors that have gradients; 0: not compared.
  auto Fields() const {
    return std::tie(op, prescale, postscale, predivide, auto_predivide, kind, weight_by,
                    denominator, loss_scale, layout);
  }
};

// The highest count of one contribution: that of all workers of a job, kMaxWorkers of them, fits 63
// bits, so no sum of counts or weights ever wraps.
inline constexpr uint64_t kMaxCount = uint64_t{1} << 48;

// The counts of one worker's contribution, each at most kMaxCount. An absent count is unknown, not
// zero.
struct Counts {
  std::optional<uint64_t> samples;
  std::optional<uint64_t> tokens;
  std::optional<uint64_t> micro_batches;
  auto Fields() const { return std::tie(samples, tokens, micro_batches); }
};

// Why a contribution cannot have these counts, as the end of a sentence that begins with it; empty
// when it can.
std::string WhyNotCounted(const Counts& counts);

// The most trainers that one worker stands for, or one contribution: those of a node. All of a job
// fit 32 bits.
inline constexpr uint32_t kMaxRanks = 1024;

// Why a worker cannot stand for so many trainers, or contribute for so many of other workers, as
// the end of a sentence that begins with the worker or its contribution; empty when it can.
std::string WhyNotRanks(uint32_t ranks, uint32_t represents = 0);

// How the workers of a node were reduced to one contribution before it was sent.
enum class LocalReduction : uint8_t {
  kUnspecified = 0,    // It is of one worker, or the worker did not say.
  kDeterministic = 1,  // In byte order of the worker ids, by the same arithmetic.
  kFast = 2,           // In an order that the library of the node has chosen.
};

enum class Outcome : uint8_t { kUnspecified = 0, kCommitted = 1, kAborted = 2 };

const char* OutcomeName(Outcome outcome);

// The divisor of one tensor if it differs from the round's. Zero: every contributor skipped it, or
// the weights sum to zero, so it has no result.
struct TensorDivisor {
  TensorIndex tensor = 0;
  uint64_t divisor = 0;
  auto Fields() const { return std::tie(tensor, divisor); }
};

// The first counted input that was not finite, in the order of tensor, worker id and element. A
// contribution with weight 0 is not read, but its norm in the contributors is infinite if it has a
// number that is not finite.
struct NonFinite {
  WorkerId worker;
  TensorIndex tensor = 0;
  uint64_t element = 0;
  auto Fields() const { return std::tie(worker, tensor, element); }
};

// Found out in the reduction pass, at no extra read. None of it changes the result.
struct RoundFacts {
  double squared_norm = 0;  // That of the results, without integers.
  bool overflow = false;
  std::optional<NonFinite> nonfinite;
  Counts totals;  // A total is absent if one contributor did not report it.
  std::vector<double> tensor_squared_norms;  // By index in the layout; 0 for a tensor without a
                                             // result, and for integers.
  auto Fields() const {
    return std::tie(squared_norm, overflow, nonfinite, totals, tensor_squared_norms);
  }
};

struct Contributor {
  WorkerId worker;
  Incarnation incarnation;
  uint64_t weight = 1;
  // The norm of its tensors, as it reported it, also with weight 0; infinite if a number is not
  // finite. Absent: it was not reported, or all tensors are integers.
  std::optional<double> squared_norm = std::nullopt;
  uint32_t ranks = 1;  // The trainers in it.
  // The reduction plan: the group has the worker and these others, in byte order.
  LocalReduction local_reduction = LocalReduction::kUnspecified;
  std::vector<WorkerId> reduced_with = {};
  // The trainers whose gradients of the round before are in it as well; see Begin.
  uint32_t deferred = 0;
  // What it holds is then reduced over its trainers already: multiplied by their weights, too.
  bool is_partial() const { return ranks > 1; }
  auto Fields() const {
    return std::tie(worker, incarnation, weight, squared_norm, ranks, local_reduction, reduced_with,
                    deferred);
  }
};

// The value of a round, which is prepared, staged and announced. It is fixed once prepared; a later
// ballot may prepare it again but never changes it.
struct RoundValue {
  Outcome outcome = Outcome::kUnspecified;
  std::string reason;  // Why it was aborted; empty when committed.
  AbortCause abort_cause = AbortCause::kUnspecified;
  RoundSpec spec;
  std::vector<Contributor> contributors;  // In byte order of the worker id.
  std::vector<WorkerId> dropped;          // Effective once, but could not feed a later attempt.
  std::vector<WorkerId> late;             // Left out because they were late; in byte order.
  bool late_carries = false;  // The next contribution of each of these may have this one as well.
  uint64_t divisor = 0;
  std::vector<TensorDivisor> tensor_divisors;
  uint32_t layout_version = 0;  // Tensors from this index on are not part of the round.
  Digest digest = 0;            // Over the result bytes of all tensors that have a result.
  RoundFacts facts;
  Generation generation;          // The generation when it was reduced.
  uint32_t contract_version = 0;  // The version of the arithmetic.
  uint32_t world_size = 0;        // Trainers of that generation, contributors or not.
  uint64_t decision = 0;  // DecisionOf, by the aggregator that decided; 0: by an earlier one.
  std::optional<RoundSamples> samples;  // Absent: the contributions name no positions.
  auto Fields() const {
    return std::tie(outcome, reason, abort_cause, spec, contributors, dropped, late, late_carries,
                    divisor, tensor_divisors, layout_version, digest, facts, generation,
                    contract_version, world_size, decision, samples);
  }
};

// A hash of what was decided: outcome, spec, contributors with their weights, totals of the counts,
// divisors, layout, generation, samples and the digest of the result. The digest alone would also
// fit bytes that were reduced with other weights. Never 0. Stable across processes and versions.
// What older clients do not know, such as `late`, has no part in it.
uint64_t DecisionOf(const RoundValue& value);
// Whether the value is the one that was decided, as far as is known.
inline bool IsAsDecided(const RoundValue& value) {
  return value.decision == 0 || value.decision == DecisionOf(value);
}

// The count that is the weight, if it is known.
std::optional<uint64_t> CountFor(WeightBy by, const Counts& counts);
// The integer weight of a contribution: by its counts for WEIGHTED_AVERAGE, else 1.
uint64_t WeightOf(const RoundSpec& spec, const Counts& counts);

// The divisor of the tensor's result; 0: it has no result in this round.
uint64_t DivisorOf(const RoundValue& value, TensorIndex tensor);
// The same of all tensors of the round, by index.
std::vector<uint64_t> DivisorsOf(const RoundValue& value);
inline bool HasResult(const RoundValue& value, TensorIndex tensor) {
  return DivisorOf(value, tensor) != 0;
}

// The trainers in the contributions.
uint32_t TrainersOf(const RoundValue& value);

// "3 contributors", "3 contributors of 6 trainers": for people.
std::string DescribeContributors(const RoundValue& value);

// Over the contributors; their number where nothing is weighted. No weight is above kMaxCount.
uint64_t SumOfWeights(const RoundValue& value);

struct Membership {
  Generation generation;
  MemberList members;
  auto Fields() const { return std::tie(generation, members); }
};

// A verdict as it is sent and remembered. `chain` commits to the lane's whole history.
struct VerdictRecord {
  RoundNumber round = 0;
  Ballot ballot;        // The ballot at which it was staged.
  Ballot value_ballot;  // At which its bytes were reduced.
  RoundValue value;
  Membership next;  // Members and ranks after this round.
  uint64_t chain = 0;
  auto Fields() const { return std::tie(round, ballot, value_ballot, value, next, chain); }
};

// Why a contribution to rounds of this spec cannot have what `deferred` of its trainers had
// computed for the round before as well, as the end of a sentence that begins with it; empty when
// it can.
std::string WhyNotAdded(const RoundSpec& spec, uint32_t deferred);
// The same, by the verdict of that round; null if there was none. What the worker had computed for
// it is then in this round or in none: what was counted, or was too late for another one than the
// last, is never in two.
std::string WhyNotLate(const WorkerId& worker, const VerdictRecord* before);

// h_r = H(h_(r-1), round, outcome, contributors, samples, digest). Stable across processes and
// versions.
uint64_t ExtendChain(uint64_t chain, RoundNumber round, const RoundValue& value);

// One step of the stable hash that chains and genesis markers use (SplitMix64's finaliser over a
// multiply-xor fold). Not for adversaries: it detects accidental forks.
uint64_t MixChain(uint64_t chain, uint64_t word);

}  // namespace basin

#endif  // BASIN_PROTOCOL_ROUND_H_
