// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The descriptions of tensors, rounds and results.
//
// Thread contract: plain values.

#ifndef BASIN_TYPES_H_
#define BASIN_TYPES_H_

#include <basin/basin.h>

#include <chrono>
#include <cstdint>
#include <locale>
#include <map>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

namespace basin {
inline namespace abi1 {

using Duration = std::chrono::nanoseconds;
inline constexpr Duration kForever{BASIN_FOREVER};

// In place of an exponent for f16; see BASIN_FIT_EXPONENT.
inline constexpr std::int32_t kFitExponent = BASIN_FIT_EXPONENT;

enum class DType {
  kF64 = BASIN_F64,
  kF32 = BASIN_F32,
  kF16 = BASIN_F16,
  kBF16 = BASIN_BF16,
  kI64 = BASIN_I64,
  kI32 = BASIN_I32,
  kU8 = BASIN_U8,
};

// Contiguous, in C order. Workers' tensors are matched by name.
struct Tensor {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<std::uint64_t> shape;
};

// Every member takes part in every round of a gradient lane; there is one per optimizer. A call
// lane, whose name begins with "call/", is for occasional rounds.
enum class LaneKind { kGradient = BASIN_GRADIENT, kCall = BASIN_CALL };

enum class Op {
  kSum = BASIN_SUM,
  kAverage = BASIN_AVERAGE,
  kWeightedAverage = BASIN_WEIGHTED_AVERAGE,
  kMin = BASIN_MIN,
  kMax = BASIN_MAX,
  kProduct = BASIN_PRODUCT,
};

enum class Weight {
  kNone = BASIN_NO_WEIGHT,
  kSamples = BASIN_BY_SAMPLES,
  kTokens = BASIN_BY_TOKENS,
  kMicroBatches = BASIN_BY_MICRO_BATCHES,
};

// How the workers of a node were reduced to one contribution before it was pushed.
enum class LocalReduction {
  kNone = BASIN_LOCAL_NONE,  // It is of one worker, or the worker did not say.
  kDeterministic = BASIN_LOCAL_DETERMINISTIC,
  kFast = BASIN_LOCAL_FAST,
};

// How many samples, tokens and micro-batches, of one contribution at most 2^48; absent is unknown,
// which is not zero.
struct Counts {
  std::optional<std::int64_t> samples;
  std::optional<std::int64_t> tokens;
  std::optional<std::int64_t> micro_batches;
};

// Positions of an epoch; see the part of basin.h about samples.
using SampleRange = basin_sample_range;
using SampleEpoch = basin_sample_epoch;

enum class LeaseOutcome {
  kLeased = BASIN_SAMPLES_LEASED,
  kNoneNow = BASIN_SAMPLES_NONE_NOW,  // Others hold what is left, or an earlier epoch goes on.
  kEnded = BASIN_SAMPLES_ENDED,       // All is committed, or the lane is at a later epoch.
};

struct LeasedSamples {
  LeaseOutcome outcome = LeaseOutcome::kLeased;
  std::vector<SampleRange> ranges;  // Ascending.
};

// The batch of a round that waits for a number of samples.
struct BatchProgress {
  std::uint64_t samples = 0;  // Those of all workers.
  bool closed = false;        // Every worker begins the round with what it has.
};

// What Lane::NextSamples gives; without positions unless they are leased.
struct SampleBatch {
  LeaseOutcome outcome = LeaseOutcome::kLeased;
  std::vector<std::uint64_t> positions;  // Ascending.
};

// The index of the sample at this position of a shuffled epoch, whose seed is its `order`; see
// basin_samples_shuffled.
inline std::uint64_t Shuffled(const SampleEpoch& epoch, std::uint64_t position) {
  return basin_samples_shuffled(&epoch, position);
}

// What is committed of an epoch.
struct SampleProgress {
  SampleEpoch epoch{};
  std::vector<SampleRange> ranges;  // Ascending, and no two touch.
};

// What a round did to an epoch.
struct RoundSamples {
  std::uint64_t epoch = 0;
  std::uint64_t committed = 0;        // Samples that the round has committed.
  std::uint64_t epoch_committed = 0;  // Samples of the epoch that are committed after it.
  bool epoch_ended = false;
};

// What the step of an optimizer depends on, by name: {{"lr", 0.1}, {"momentum", 0.9}}.
using OptimizerNumbers = std::map<std::string, double>;

// The numbers as RoundSpec::optimizer has them. Six digits of each are compared, because two
// machines may compute the last bits of a schedule differently.
inline std::string OptimizerText(const OptimizerNumbers& numbers) {
  std::ostringstream text;
  text.imbue(std::locale::classic());  // A worker may run with other decimal points.
  for (const auto& [name, number] : numbers) text << name << '=' << number << '\n';
  return text.str();
}

// The settings on which all contributors of a round must agree, and the counts of this one.
struct RoundSpec {
  // The operation has no default, so that nothing is divided silently.
  explicit RoundSpec(Op operation) : op(operation) {}

  Op op;
  double prescale = 1;
  double postscale = 1;
  double predivide = 1;            // Divides before the sum, multiplies after it.
  bool auto_predivide = false;     // The aggregator chooses predivide, and reports it.
  bool contributes_sum = false;    // A sum over this worker's samples instead of their mean.
  Weight weight = Weight::kNone;   // For a kWeightedAverage.
  bool divide_by_present = false;  // Divide by the workers that pushed it.
  double loss_scale = 1;           // Compared, never applied.
  std::uint64_t layout = 0;        // A hash of the tensors with gradients. Compared.
  Counts counts;                   // In this contribution.
  std::uint64_t step = 0;          // The trainer's own number; a label, unless compares_step.
  std::uint32_t carries = 0;       // See basin_round_spec.
  LocalReduction local_reduction = LocalReduction::kNone;
  std::vector<std::string> reduced_with;  // The other workers in it, in byte order.
  bool compares_step = false;             // See basin_round_spec.
  std::vector<SampleRange> samples;       // Those that the contribution was computed from, ...
  std::uint64_t sample_epoch = 0;         // ... as positions of this epoch.
  // The numbers of the optimizer, one in each line, as OptimizerText writes them. Compared, unless
  // empty; see basin_round_spec.
  std::string optimizer;
  std::string call;            // What a call is for. Compared; see basin_round_spec.
  std::uint32_t deferred = 0;  // See basin_round_spec.
};

// The first counted input that was not finite. Contributions with weight 0 are not read; the norm
// in their Contributor shows such numbers.
struct NonFinite {
  std::string worker;
  std::string tensor;  // Its name; it may not be registered here.
  std::uint64_t element = 0;
};

enum class Role { kJoiner = BASIN_JOINER, kSpare = BASIN_SPARE, kMember = BASIN_MEMBER };

// Members by rank change together: a new generation has others. It never goes back.
struct Generation {
  std::uint64_t term = 0;
  std::uint64_t counter = 0;
  friend bool operator==(const Generation& a, const Generation& b) {
    return a.term == b.term && a.counter == b.counter;
  }
  friend bool operator!=(const Generation& a, const Generation& b) { return !(a == b); }
};

// Where a worker stands in its job.
struct Place {
  Role role = Role::kJoiner;
  std::uint32_t rank = 0;        // That of this trainer, if it is a member.
  std::uint32_t world_size = 0;  // 0 before the first members are known.
  Generation generation;
  std::uint64_t joins = 0;  // How often this process became a member.
  // Serves the state to the newest members, which load it before their first round.
  std::optional<std::string> donor;
  bool is_donor = false;
  Generation donor_since;  // With which they joined: a version for their state.
  bool draining = false;   // It will not be among the next members.
  bool left = false;
  // A member that stands for several trainers (Worker::SetRanks) has the ranks from first_rank on.
  std::uint32_t first_rank = 0;
  std::uint32_t ranks = 0;    // As of this generation; 0 for a worker that is not a member.
  std::uint32_t members = 0;  // The number of members.
  // For a worker that is not a member of a job that goes on without it: what it would have if it
  // became one now. expected_world_size is 0 while the job waits for workers.
  std::uint32_t expected_rank = 0;
  std::uint32_t expected_world_size = 0;
};

// One that was counted in a round.
struct Contributor {
  std::string worker;
  std::uint64_t weight = 1;  // 1 unless the round was weighted; with 0 it added nothing.
  // The squared norm of its tensors, also with weight 0; infinite if a number was not finite.
  // Absent if it is unknown, and for integers.
  std::optional<double> squared_norm;
  std::uint32_t ranks = 1;  // The trainers in the contribution.
  // The reduction plan: how it was reduced on its node, and with which other workers. The same plan
  // gives the same bits, unless a part of it is kFast.
  LocalReduction local_reduction = LocalReduction::kNone;
  std::vector<std::string> reduced_with;
  // The trainers whose tensors for the round before are in it as well; see basin_round_spec.
  std::uint32_t deferred = 0;
};

// The specification of a round, and its result without the tensors.
struct RoundInfo {
  std::uint64_t round = 0;
  Generation generation;               // When it was reduced.
  std::uint32_t world_size = 0;        // Trainers of that generation, contributors or not.
  std::uint32_t contract_version = 0;  // That of the arithmetic.
  // The spec as used; the counts are sums over all contributors, absent if one is unknown.
  RoundSpec spec{Op::kSum};
  std::vector<Contributor> contributors;  // In byte order of their ids.
  // The ids of workers whose contributions were left out because they were late; see
  // basin_result_late.
  std::vector<std::string> late;
  bool late_carries = false;           // Their next contributions may have these as well.
  std::uint32_t trainers = 0;          // In their contributions.
  std::uint64_t divisor = 0;           // The divisor of an average.
  std::uint64_t weights = 0;           // The sum over the contributors.
  std::optional<double> squared_norm;  // The result's; absent for integers.
  bool overflow = false;
  std::optional<NonFinite> nonfinite;
  std::uint64_t chain = 0;              // Equal on all workers that have the same history.
  std::optional<RoundSamples> samples;  // Absent: the contributions name none.
};

enum class LogLevel {
  kDebug = BASIN_LOG_DEBUG,
  kInfo = BASIN_LOG_INFO,
  kWarning = BASIN_LOG_WARNING,
  kError = BASIN_LOG_ERROR,
};

// Whether announced memory is copied at once or read when a worker requests it.
enum class Hold { kCopy = BASIN_COPY, kInPlace = BASIN_IN_PLACE };

}  // namespace abi1
}  // namespace basin

#endif  // BASIN_TYPES_H_
