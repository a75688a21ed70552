// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "tests/kernels/contract.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <random>
#include <sstream>
#include <utility>

#include "kernels/float16.h"
#include "kernels/reference.h"

namespace basin::kernels::contract {
namespace {

constexpr size_t kMaxMessages = 12;
constexpr size_t kGuardBytes = 64;
constexpr unsigned char kGuard = 0xa5;

using Random = std::mt19937_64;
using Bytes = std::vector<unsigned char>;

size_t Below(Random& random, size_t limit) { return static_cast<size_t>(random() % limit); }

template <typename T>
T Pick(Random& random, std::initializer_list<T> choices) {
  return choices.begin()[Below(random, choices.size())];
}

// ---- Values ------------------------------------------------------------------------------------

// A floating-point format by its field widths, in which bit patterns can be built.
struct Format {
  int mantissa_bits;
  int exponent_bits;

  uint64_t sign() const { return uint64_t{1} << (mantissa_bits + exponent_bits); }
  uint64_t infinity() const { return ((uint64_t{1} << exponent_bits) - 1) << mantissa_bits; }
  uint64_t one() const { return ((uint64_t{1} << (exponent_bits - 1)) - 1) << mantissa_bits; }
  uint64_t mantissa_mask() const { return (uint64_t{1} << mantissa_bits) - 1; }
};

Format FormatOf(DType dtype) {
  switch (dtype) {
    case DType::kF64:
      return {52, 11};
    case DType::kF32:
      return {23, 8};
    case DType::kF16:
      return {10, 5};
    default:
      return {7, 8};
  }
}

uint64_t SpecialFloat(const Format& format, Random& random) {
  const uint64_t infinity = format.infinity();
  const uint64_t one = format.one();
  const uint64_t quarter_range = (infinity >> 2) & ~format.mantissa_mask();
  const uint64_t magnitude = Pick<uint64_t>(
      random, {0, 0, 1, 2, 3, format.mantissa_mask(), format.mantissa_mask() + 1, one, one, one + 1,
               one - 1, one + (format.mantissa_mask() >> 1), quarter_range, infinity - 1,
               infinity - 2, infinity, infinity + 1, infinity | (format.mantissa_mask() / 2 + 1),
               infinity | format.mantissa_mask()});
  return magnitude | (random() % 2 ? format.sign() : 0);
}

uint64_t DrawFloat(DType dtype, Values values, Random& random) {
  const Format format = FormatOf(dtype);
  const uint64_t noise = random();
  const uint64_t sign = (noise >> 63) ? format.sign() : 0;
  const uint64_t mantissa = noise & format.mantissa_mask();
  const uint64_t step = format.mantissa_mask() + 1;
  const auto near_one = [&] {
    const uint64_t spread = Below(random, 9);  // Exponents from -4 to 4.
    return sign | (format.one() + spread * step - 4 * step) | mantissa;
  };
  switch (values) {
    case Values::kOrdinary:
      return near_one();
    case Values::kAnyBits:
      return noise & (format.sign() | format.infinity() | format.mantissa_mask());
    case Values::kSpecials:
      return SpecialFloat(format, random);
    case Values::kSubnormals:
      return sign | (Below(random, 3) * step) | mantissa;
    case Values::kExtremes:
      return sign | (format.infinity() - (1 + Below(random, 3)) * step) | mantissa;
    case Values::kRareFaults:
      return Below(random, 3001) == 0 ? SpecialFloat(format, random) : near_one();
  }
  return 0;
}

uint64_t DrawInteger(Values values, Random& random) {
  switch (values) {
    case Values::kOrdinary:
    case Values::kRareFaults:
      return static_cast<uint64_t>(static_cast<int64_t>(random() % 2001) - 1000);
    case Values::kSpecials:
      return Pick<uint64_t>(random, {0, 1, ~uint64_t{0}, 0x7f, 0x80, 0x7fffffff, 0x80000000,
                                     0x7fffffffffffffff, 0x8000000000000000, 0xff, 2});
    case Values::kExtremes:
      return (random() % 2 ? 0x7fffffff7fffffff : 0x8000000080000000) ^ (random() % 1000);
    default:
      return random();
  }
}

Bytes DrawValues(DType dtype, Values values, size_t count, Random& random) {
  const size_t size = ElementSize(dtype);
  Bytes bytes(count * size);
  for (size_t i = 0; i < count; ++i) {
    const uint64_t bits =
        IsFloatingPoint(dtype) ? DrawFloat(dtype, values, random) : DrawInteger(values, random);
    std::memcpy(&bytes[i * size], &bits, size);  // Little-endian: the low bytes.
  }
  return bytes;
}

// ---- Buffers -----------------------------------------------------------------------------------

// The bytes of all contributions, laid out and cut into slices in one of several ways.
class Inputs {
 public:
  // Aligned, one slice each.
  explicit Inputs(const std::vector<Bytes>& contributions) {
    for (const Bytes& bytes : contributions) Append(bytes, 0, {});
  }

  // Each contribution starts at a random address and is cut at random places, also inside an
  // element, also into nothing.
  Inputs(const std::vector<Bytes>& contributions, Random& random) {
    for (const Bytes& bytes : contributions) {
      std::vector<size_t> cuts;
      const size_t pieces = Below(random, 5);
      for (size_t i = 0; i < pieces; ++i) cuts.push_back(Below(random, bytes.size() + 1));
      std::sort(cuts.begin(), cuts.end());
      Append(bytes, Below(random, 64), cuts);
    }
  }

  const Input* data() const { return inputs_.data(); }

 private:
  // Every slice is an allocation of its own, so that a read past its end is seen by a sanitizer.
  void Append(const Bytes& bytes, size_t offset, std::vector<size_t> cuts) {
    cuts.push_back(bytes.size());
    auto slices = std::make_unique<std::vector<Slice>>();
    size_t begin = 0;
    for (const size_t end : cuts) {
      auto storage = std::make_unique<unsigned char[]>(offset + (end - begin) + 1);
      unsigned char* data = storage.get() + offset;
      std::copy(bytes.begin() + static_cast<ptrdiff_t>(begin),
                bytes.begin() + static_cast<ptrdiff_t>(end), data);
      slices->push_back(Slice{data, end - begin});
      storages_.push_back(std::move(storage));
      begin = end;
    }
    inputs_.push_back(Input{slices->data(), slices->size()});
    slices_.push_back(std::move(slices));
  }

  std::vector<std::unique_ptr<unsigned char[]>> storages_;
  std::vector<std::unique_ptr<std::vector<Slice>>> slices_;
  std::vector<Input> inputs_;
};

// An output with guard bytes on both sides, at `offset` behind a multiple of 64 bytes.
class GuardedBuffer {
 public:
  GuardedBuffer(size_t size, size_t offset) : size_(size), bytes_(size + 4 * kGuardBytes, kGuard) {
    const size_t misalignment = reinterpret_cast<uintptr_t>(bytes_.data()) % 64;
    offset_ = kGuardBytes + (64 - misalignment) + offset;
  }

  unsigned char* data() { return bytes_.data() + offset_; }
  Bytes Contents() const {
    const auto begin = bytes_.begin() + static_cast<ptrdiff_t>(offset_);
    return Bytes(begin, begin + static_cast<ptrdiff_t>(size_));
  }
  bool Intact() const {
    const auto is_guard = [](unsigned char byte) { return byte == kGuard; };
    return std::all_of(bytes_.begin(), bytes_.begin() + static_cast<ptrdiff_t>(offset_),
                       is_guard) &&
           std::all_of(bytes_.begin() + static_cast<ptrdiff_t>(offset_ + size_), bytes_.end(),
                       is_guard);
  }

 private:
  size_t size_;
  size_t offset_;
  Bytes bytes_;
};

// ---- Comparison --------------------------------------------------------------------------------

// All that a reduction gives.
struct Outcome {
  Bytes result;
  std::vector<double> norm_leaves;
  Facts facts;
  std::string trouble;  // A failure, or a broken guard.
};

std::string Hex(const unsigned char* bytes, size_t size) {
  std::ostringstream text;
  for (size_t i = size; i-- > 0;) {
    static constexpr char kDigits[] = "0123456789abcdef";
    text << kDigits[bytes[i] >> 4] << kDigits[bytes[i] & 15];
  }
  return text.str();
}

std::string Describe(const Facts& facts) {
  std::ostringstream text;
  text << "{non-finite ";
  if (facts.first_non_finite_input) {
    text << facts.first_non_finite_input->contribution << "@"
         << facts.first_non_finite_input->element;
  } else {
    text << "-";
  }
  text << ", overflows " << facts.overflows << ", wraps " << facts.integer_wraps << "}";
  return text.str();
}

// The difference between two outcomes, or nothing.
std::string Difference(const Outcome& expected, const Outcome& actual, size_t element_size) {
  std::ostringstream text;
  if (!actual.trouble.empty()) return actual.trouble;
  if (expected.result != actual.result) {
    const auto [e, a] =
        std::mismatch(expected.result.begin(), expected.result.end(), actual.result.begin());
    (void)a;
    const size_t element = static_cast<size_t>(e - expected.result.begin()) / element_size;
    text << "element " << element << " is "
         << Hex(&actual.result[element * element_size], element_size) << ", not "
         << Hex(&expected.result[element * element_size], element_size);
    return text.str();
  }
  if (expected.facts != actual.facts) {
    text << "facts are " << Describe(actual.facts) << ", not " << Describe(expected.facts);
    return text.str();
  }
  for (size_t i = 0; i < expected.norm_leaves.size(); ++i) {
    if (__builtin_bit_cast(uint64_t, expected.norm_leaves[i]) !=
        __builtin_bit_cast(uint64_t, actual.norm_leaves[i])) {
      text.precision(17);
      text << "norm leaf " << i << " is " << actual.norm_leaves[i] << ", not "
           << expected.norm_leaves[i];
      return text.str();
    }
  }
  return {};
}

// ---- Ways to run a reduction -------------------------------------------------------------------

struct Run {
  const Reducer& reducer;
  const ReductionPlan& plan;
  const Case& c;

  size_t result_size() const { return ElementSize(c.spec.result_dtype); }
  size_t leaves() const {
    return plan.accumulator_dtype() == DType::kI64 ? 0 : NormLeaves(c.count);
  }

  Outcome Finish(GuardedBuffer& result, std::vector<double> leaves, Facts facts,
                 const std::optional<Failure>& failure) const {
    Outcome outcome{result.Contents(), std::move(leaves), std::move(facts), {}};
    if (failure) outcome.trouble = "failed: " + failure->message;
    if (!result.Intact()) outcome.trouble = "bytes outside the output were written";
    return outcome;
  }

  Outcome Whole(const Input* inputs, size_t output_offset, bool bypass_cache) const {
    GuardedBuffer result(c.count * result_size(), output_offset);
    std::vector<double> norm(leaves());
    Facts facts;
    const auto failure = reducer.Reduce(
        plan, inputs, Span{c.first, c.count},
        Output{result.data(), norm.empty() ? nullptr : norm.data(), bypass_cache}, &facts);
    return Finish(result, std::move(norm), facts, failure);
  }

  // Reduces the span chunk by chunk, last chunk first.
  Outcome Chunks(const std::vector<Bytes>& contributions, size_t chunk) const {
    GuardedBuffer result(c.count * result_size(), 0);
    std::vector<double> norm(leaves());
    Facts facts;
    std::optional<Failure> failure;
    const size_t chunks = (c.count + chunk - 1) / chunk;
    for (size_t i = chunks; i-- > 0 && !failure;) {
      const size_t begin = i * chunk;
      const size_t count = std::min(chunk, c.count - begin);
      std::vector<Bytes> parts;
      for (size_t k = 0; k < contributions.size(); ++k) {
        const size_t size = ElementSize(c.spec.contributions[k].wire_dtype);
        if (contributions[k].empty()) {
          parts.emplace_back();
          continue;
        }
        const auto from = contributions[k].begin() + static_cast<ptrdiff_t>(begin * size);
        parts.emplace_back(from, from + static_cast<ptrdiff_t>(count * size));
      }
      const Inputs inputs(parts);
      double* leaf = norm.empty() ? nullptr : norm.data() + begin / kNormLeafElements;
      failure = reducer.Reduce(plan, inputs.data(), Span{c.first + begin, count},
                               Output{result.data() + begin * result_size(), leaf}, &facts);
    }
    return Finish(result, std::move(norm), facts, failure);
  }
};

// ---- The matrix --------------------------------------------------------------------------------

std::vector<ReduceOp> OpsOf(DType dtype) {
  if (!IsFloatingPoint(dtype)) {
    return {ReduceOp::kSum, ReduceOp::kMin, ReduceOp::kMax, ReduceOp::kProduct};
  }
  return {ReduceOp::kSum, ReduceOp::kAverage, ReduceOp::kWeightedAverage,
          ReduceOp::kMin, ReduceOp::kMax,     ReduceOp::kProduct};
}

bool IsAverage(ReduceOp op) { return op == ReduceOp::kAverage || op == ReduceOp::kWeightedAverage; }

// Sets scales that the op allows; the first choice is none.
void ChooseScales(ReductionSpec* spec, size_t choice, Random& random) {
  if (!IsFloatingPoint(spec->tensor_dtype) || choice == 0) return;
  const bool may_predivide = spec->op == ReduceOp::kSum || IsAverage(spec->op);
  if (choice % 2 == 1) {
    spec->prescale = Pick<double>(random, {1.0 / 3, -2.0, 1e-3, 0.1, 1e-8, 0x1p-20, 7e5});
    spec->postscale = Pick<double>(random, {1.0, 0.5, -1.0 / 7, 3.0, 1e-9, 1e6});
  }
  if (may_predivide && choice != 1) {
    spec->predivide = Pick<double>(random, {2.0, 4.0, 8.0, 3.0, 7.0, 1e-3, 1.5});
  }
}

std::vector<Contribution> ChooseContributions(const ReductionSpec& spec, size_t count, bool mixed,
                                              Random& random) {
  const bool narrows = spec.tensor_dtype == DType::kF32 || spec.tensor_dtype == DType::kF16 ||
                       spec.tensor_dtype == DType::kBF16;
  std::vector<Contribution> contributions(count);
  for (Contribution& contribution : contributions) {
    contribution.wire_dtype = spec.tensor_dtype;
    if (!mixed) continue;
    contribution.skipped = Below(random, 6) == 0;
    if (narrows) {
      contribution.wire_dtype = Pick(random, {spec.tensor_dtype, DType::kF16, DType::kBF16});
      if (contribution.wire_dtype != spec.tensor_dtype && random() % 2 == 0) {
        contribution.wire_scale_exponent = Pick(random, {-126, -24, -1, 1, 10, 24, 60, 126});
      }
    }
  }
  if (spec.op == ReduceOp::kWeightedAverage) {
    for (Contribution& contribution : contributions) {
      contribution.weight =
          Pick<uint64_t>(random, {1, 1, 2, 3, 17, 8192, 0, (uint64_t{1} << 53) + 1});
      contribution.kind = random() % 4 == 0 ? ContributionKind::kSum : ContributionKind::kMean;
    }
  }
  return contributions;
}

DType ChooseResult(DType tensor_dtype, bool mixed, Random& random) {
  if (!mixed || !IsFloatingPoint(tensor_dtype) || tensor_dtype == DType::kF64) return tensor_dtype;
  return Pick(random, {tensor_dtype, DType::kF16, DType::kBF16});
}

Case MakeCase(DType dtype, ReduceOp op, size_t contributors, size_t count, size_t scales,
              Values values, bool mixed, uint64_t seed) {
  Random random(seed);
  Case c;
  c.spec.op = op;
  c.spec.tensor_dtype = dtype;
  c.spec.result_dtype = ChooseResult(dtype, mixed, random);
  ChooseScales(&c.spec, scales, random);
  c.spec.contributions = ChooseContributions(c.spec, contributors, mixed, random);
  const DivisorPolicy policy = random() % 2 ? DivisorPolicy::kAll : DivisorPolicy::kPresent;
  c.spec.divisor = Divisor(op, policy, c.spec.contributions).value();
  c.count = count;
  c.first = kNormLeafElements * Below(random, 4);
  c.values = values;
  c.seed = seed;
  return c;
}

const char* Name(Values values) {
  switch (values) {
    case Values::kOrdinary:
      return "ordinary";
    case Values::kAnyBits:
      return "any bits";
    case Values::kSpecials:
      return "specials";
    case Values::kSubnormals:
      return "subnormals";
    case Values::kExtremes:
      return "extremes";
    case Values::kRareFaults:
      return "rare faults";
  }
  return "?";
}

}  // namespace

void Report::Add(std::string message) {
  ++comparisons_;
  if (message.empty()) return;
  ++failures_;
  if (messages_.size() < kMaxMessages) messages_.push_back(std::move(message));
}

std::string Report::Summary() const {
  std::ostringstream text;
  text << failures_ << " of " << comparisons_ << " comparisons failed";
  for (const std::string& message : messages_) text << "\n  " << message;
  if (failures_ > messages_.size()) text << "\n  ...";
  return text.str();
}

std::string Describe(const Case& c) {
  std::ostringstream text;
  text.precision(17);
  text << DTypeName(c.spec.tensor_dtype) << " -> " << DTypeName(c.spec.result_dtype) << " "
       << ReduceOpName(c.spec.op) << ", " << c.spec.contributions.size() << " contributions, "
       << c.count << " elements from " << c.first << ", prescale " << c.spec.prescale
       << ", postscale " << c.spec.postscale << ", predivide " << c.spec.predivide << ", divisor "
       << c.spec.divisor << ", " << Name(c.values) << ", seed " << c.seed;
  return text.str();
}

std::vector<Case> MakeCases(DType dtype) {
  // Around every length at which an implementation changes gear: vectors, units of work, pages,
  // blocks, leaves. 17 and 64 contributions are more than it takes at once.
  static constexpr size_t kShort[] = {0, 1, 2, 7, 15, 16, 17, 31, 63, 64, 65, 127, 129, 255};
  static constexpr size_t kPages[] = {511, 512, 1023, 1024, 1025, 2047, 2048, 2049, 4096, 5003};
  static constexpr size_t kLarge[] = {kNormLeafElements, 2 * kNormLeafElements + 4097,
                                      kNormLeafElements - 1};
  static constexpr size_t kContributors[] = {1, 2, 3, 7, 17, 64};
  static constexpr Values kValues[] = {Values::kOrdinary,   Values::kAnyBits,  Values::kSpecials,
                                       Values::kSubnormals, Values::kExtremes, Values::kRareFaults};
  std::vector<Case> cases;
  uint64_t seed = static_cast<uint64_t>(dtype) << 32;
  for (const ReduceOp op : OpsOf(dtype)) {
    for (const size_t contributors : kContributors) {
      for (const Values values : kValues) {
        for (size_t scales = 0; scales < 4; ++scales) {
          for (const bool mixed : {false, true}) {
            Random random(++seed);
            const size_t short_length = kShort[Below(random, std::size(kShort))];
            const size_t page_length = kPages[Below(random, std::size(kPages))];
            for (const size_t count : {short_length, page_length}) {
              cases.push_back(
                  MakeCase(dtype, op, contributors, count, scales, values, mixed, ++seed));
            }
          }
        }
      }
      // Every short length and every page length once more, with everything mixed.
      for (const size_t count : kShort) {
        ++seed;
        cases.push_back(
            MakeCase(dtype, op, contributors, count, seed % 4, Values::kAnyBits, true, seed));
      }
      for (const size_t count : kPages) {
        ++seed;
        cases.push_back(
            MakeCase(dtype, op, contributors, count, seed % 4, Values::kOrdinary, true, seed));
      }
    }
    for (const size_t count : kLarge) {
      for (const size_t contributors : {size_t{1}, size_t{3}}) {
        ++seed;
        cases.push_back(MakeCase(dtype, op, contributors, count, seed % 4, Values::kRareFaults,
                                 seed % 2 == 0, seed));
      }
    }
  }
  return cases;
}

namespace {

void CompareRuns(const Reducer& reducer, const ReductionPlan& plan, const Case& c,
                 const std::vector<Bytes>& contributions, const Outcome& expected, Random random,
                 Report* report) {
  const Run run{reducer, plan, c};
  const auto compare = [&](const char* how, const Outcome& actual) {
    const std::string difference = Difference(expected, actual, run.result_size());
    report->Add(difference.empty() ? std::string()
                                   : std::string(reducer.name()) + ", " + how + ": " + Describe(c) +
                                         ": " + difference);
  };
  compare("whole inputs", run.Whole(Inputs(contributions).data(), 0, true));
  const Inputs sliced(contributions, random);
  compare("slices", run.Whole(sliced.data(), 0, false));
  compare("slices, misaligned result", run.Whole(sliced.data(), 1 + Below(random, 63), true));
  if (c.count > kNormLeafElements) {
    compare("chunks of one leaf", run.Chunks(contributions, kNormLeafElements));
    compare("chunks of two leaves", run.Chunks(contributions, kNormBlockElements));
  }
}

}  // namespace

void CheckContributions(const std::vector<const Reducer*>& reducers, const Case& c,
                        const std::vector<Bytes>& contributions, Report* report) {
  const Result<ReductionPlan> made = ReductionPlan::Make(c.spec);
  if (!made.ok()) {
    report->Add(Describe(c) + ": no plan: " + made.failure().message);
    return;
  }
  const ReductionPlan& plan = made.value();
  if (plan.outcome() != PlanOutcome::kReduce) return;  // Nothing to run.
  const Outcome expected =
      Run{*MakeReferenceReducer(), plan, c}.Whole(Inputs(contributions).data(), 0, false);
  for (const Reducer* reducer : reducers) {
    CompareRuns(*reducer, plan, c, contributions, expected, Random(~c.seed), report);
  }
}

void CheckCase(const std::vector<const Reducer*>& reducers, const Case& c, Report* report) {
  Random random(c.seed ^ 0x9e3779b97f4a7c15);
  std::vector<Bytes> contributions;
  for (const Contribution& contribution : c.spec.contributions) {
    contributions.push_back(contribution.skipped
                                ? Bytes{}
                                : DrawValues(contribution.wire_dtype, c.values, c.count, random));
  }
  CheckContributions(reducers, c, contributions, report);
}

Report CheckAgainstReference(const std::vector<const Reducer*>& reducers, DType tensor_dtype) {
  Report report;
  for (const Case& c : MakeCases(tensor_dtype)) CheckCase(reducers, c, &report);
  return report;
}

Report CheckAgainstReference(const Reducer& reducer, DType tensor_dtype) {
  return CheckAgainstReference(std::vector<const Reducer*>{&reducer}, tensor_dtype);
}

}  // namespace basin::kernels::contract
