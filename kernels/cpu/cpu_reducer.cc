// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "kernels/cpu/cpu_reducer.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include "kernels/cpu/kernels.h"
#include "kernels/float16.h"
#include "kernels/float_environment.h"

namespace basin::kernels {
namespace {

using cpu::FoldTerm;
using cpu::KernelTable;
using cpu::kUnitElements;

// A block's accumulators take half of a first-level cache of 32 KiB at most, and each contribution
// is read in runs of a page or more.
constexpr size_t kBlockElements = 2048;
static_assert(kBlockElements % kUnitElements == 0);
static_assert(kNormLeafElements % kBlockElements == 0, "a leaf ends where a block ends");

// Contributions that one loop folds at once: enough that accumulators are seldom stored and loaded
// again, few enough for the processor to follow every stream.
constexpr size_t kGroupTerms = 8;

constexpr size_t kMaxElementSize = 8;
constexpr size_t kBlockBytes = kBlockElements * kMaxElementSize;

constexpr size_t RoundUpToUnit(size_t elements) {
  return (elements + kUnitElements - 1) / kUnitElements * kUnitElements;
}

// A term and how far its slices have been read.
struct Stream {
  const Term* term;
  Input input;
  size_t slice = 0;   // The slice of the next byte,
  size_t offset = 0;  // and its place in there.

  void Advance(size_t bytes) {
    while (bytes > 0) {
      const size_t step = std::min(bytes, input.slices[slice].size - offset);
      offset += step;
      bytes -= step;
      if (offset == input.slices[slice].size) {
        ++slice;
        offset = 0;
      }
    }
  }

  // The next `bytes` bytes in one piece: where they lie or, if they lie in several slices, copied
  // to `scratch`. Does not advance.
  const unsigned char* Peek(size_t bytes, unsigned char* scratch) const {
    size_t at = slice;
    while (input.slices[at].size == 0) ++at;
    const size_t skip = at == slice ? offset : 0;
    const auto* data = static_cast<const unsigned char*>(input.slices[at].data) + skip;
    if (input.slices[at].size - skip >= bytes) return data;
    Copy(bytes, scratch);
    return scratch;
  }

  void Copy(size_t bytes, unsigned char* to) const {
    for (size_t at = slice, skip = offset; bytes > 0; ++at, skip = 0) {
      const size_t step = std::min(bytes, input.slices[at].size - skip);
      if (step == 0) continue;
      std::memcpy(to, static_cast<const unsigned char*>(input.slices[at].data) + skip, step);
      to += step;
      bytes -= step;
    }
  }
};

bool IsFiniteAt(DType dtype, const unsigned char* data, size_t index) {
  switch (dtype) {
    case DType::kF64: {
      double value;
      std::memcpy(&value, data + index * sizeof(value), sizeof(value));
      return std::isfinite(value);
    }
    case DType::kF32: {
      float value;
      std::memcpy(&value, data + index * sizeof(value), sizeof(value));
      return std::isfinite(value);
    }
    default: {
      uint16_t bits;
      std::memcpy(&bits, data + index * sizeof(bits), sizeof(bits));
      return std::isfinite(dtype == DType::kF16 ? WidenF16(bits) : WidenBF16(bits));
    }
  }
}

// Folds spans block by block. One object per call; it lives on the caller's stack.
class BlockFolder {
 public:
  BlockFolder(const KernelTable& kernels, const ReductionPlan& plan, const Input* inputs,
              size_t begin, size_t end, const Span& span, const void* accumulator, Facts* facts)
      : kernels_(kernels), plan_(plan), span_(span), facts_(facts) {
    for (const Term& term : plan.terms()) {
      if (term.contribution < begin || term.contribution >= end) continue;
      streams_.push_back(Stream{&term, inputs[term.contribution]});
    }
    if (plan.terms().front().contribution < begin) {
      before_ = static_cast<const unsigned char*>(accumulator);
    }
  }

  bool HasTerms() const { return !streams_.empty(); }
  size_t accumulator_size() const { return ElementSize(plan_.accumulator_dtype()); }
  const unsigned char* acc() const { return acc_; }
  const cpu::Watch& watch() const { return watch_; }
  cpu::Watch* mutable_watch() { return &watch_; }

  // Takes the next `count` elements into acc(), whose length is then rounded up to a unit, filled
  // with whatever zeros fold to.
  void FoldBlock(size_t count) {
    count_ = count;
    watch_ = cpu::Watch();
    bool fresh = LoadBefore();
    ForEachGroup([&](const FoldTerm* terms, const Stream* streams, size_t group_count) {
      Lookup(kernels_.fold, streams[0])(terms, group_count, fresh, RoundUpToUnit(count_), acc_,
                                        &watch_);
      fresh = false;
    });
  }

  // Goes through the block again to find out what was not finite. acc() comes out the same.
  void CountBlock() {
    bool fresh = LoadBefore();
    ForEachGroup([&](const FoldTerm* terms, const Stream* streams, size_t group_count) {
      bool non_finite[kGroupTerms] = {};
      cpu::Count found{0, non_finite};
      Lookup(kernels_.fold_count, streams[0])(terms, group_count, fresh, RoundUpToUnit(count_),
                                              acc_, &found);
      fresh = false;
      facts_->overflows += found.overflows;
      for (size_t k = 0; k < group_count; ++k) {
        if (non_finite[k]) FindNonFinite(streams[k], terms[k].data);
      }
    });
  }

  // Goes on to the next block.
  void Advance() {
    for (Stream& stream : streams_) stream.Advance(count_ * ElementSize(stream.term->wire_dtype));
    done_ += count_;
    facts_->integer_wraps += watch_.integer_wraps;
  }

 private:
  template <typename Function>
  Function Lookup(const Function (&table)[cpu::kDTypes][cpu::kCombines],
                  const Stream& stream) const {
    return table[static_cast<size_t>(stream.term->wire_dtype)]
                [static_cast<size_t>(plan_.combine())];
  }

  // Puts the accumulators of earlier folds into acc(); true if there are none.
  bool LoadBefore() {
    if (before_ == nullptr) return true;
    const size_t size = accumulator_size();
    std::memcpy(acc_, before_ + done_ * size, count_ * size);
    std::memset(acc_ + count_ * size, 0, (RoundUpToUnit(count_) - count_) * size);
    return false;
  }

  // Calls fold(terms, streams, count) for each run of terms of one wire dtype, in order.
  template <typename FoldGroup>
  void ForEachGroup(const FoldGroup& fold) {
    for (size_t first = 0; first < streams_.size();) {
      FoldTerm terms[kGroupTerms];
      size_t k = 0;
      do {
        terms[k] = MakeTerm(streams_[first + k], scratch_[k]);
        ++k;
      } while (k < kGroupTerms && first + k < streams_.size() &&
               streams_[first + k].term->wire_dtype == streams_[first].term->wire_dtype);
      fold(terms, &streams_[first], k);
      first += k;
    }
  }

  FoldTerm MakeTerm(const Stream& stream, unsigned char* scratch) const {
    const Term& term = *stream.term;
    const size_t size = ElementSize(term.wire_dtype);
    FoldTerm fold;
    if (count_ % kUnitElements == 0) {
      fold.data = stream.Peek(count_ * size, scratch);
    } else {  // The loops read whole units.
      stream.Copy(count_ * size, scratch);
      std::memset(scratch + count_ * size, 0, (RoundUpToUnit(count_) - count_) * size);
      fold.data = scratch;
    }
    fold.factor = term.factor;
    fold.factor_f32 = static_cast<float>(term.factor);
    fold.unscale_f32 = static_cast<float>(term.unscale);
    return fold;
  }

  void FindNonFinite(const Stream& stream, const unsigned char* data) {
    const Term& term = *stream.term;
    // Elements come in order, so only a lesser contribution can still be a better find.
    const auto& known = facts_->first_non_finite_input;
    if (known && known->contribution <= term.contribution && known->element < span_.first + done_) {
      return;
    }
    for (size_t i = 0; i < count_; ++i) {
      if (IsFiniteAt(term.wire_dtype, data, i)) continue;
      Facts found;
      found.first_non_finite_input = NonFiniteInput{term.contribution, span_.first + done_ + i};
      facts_->Merge(found);
      return;
    }
  }

  const KernelTable& kernels_;
  const ReductionPlan& plan_;
  const Span span_;
  Facts* const facts_;
  const unsigned char* before_ = nullptr;  // Accumulators of earlier folds, from the span's start.
  std::vector<Stream> streams_;
  size_t done_ = 0;   // Elements of the blocks before this one.
  size_t count_ = 0;  // Elements of this block.
  cpu::Watch watch_;
  alignas(64) unsigned char acc_[kBlockBytes];
  alignas(64) unsigned char scratch_[kGroupTerms][kBlockBytes];
};

// The norm's leaves, fed block by block.
class NormLeafSums {
 public:
  NormLeafSums(cpu::NormFunction add, const Output& output)
      : add_(output.norm_leaves != nullptr ? add : nullptr), leaves_(output.norm_leaves) {}

  // `count` results of a span from its element `first`; a unit's rest behind them is 0.
  void Add(size_t first, const unsigned char* out, size_t count, bool ends_span) {
    if (add_ == nullptr) return;
    add_(out, RoundUpToUnit(count), lanes_);
    if (ends_span || (first + count) % kNormLeafElements == 0) Close(first / kNormLeafElements);
  }

 private:
  void Close(size_t leaf) {
    for (size_t half = kNormLanes / 2; half > 0; half /= 2) {
      for (size_t l = 0; l < half; ++l) lanes_[l] = lanes_[l] + lanes_[l + half];
    }
    leaves_[leaf] = std::isnan(lanes_[0]) ? std::numeric_limits<double>::quiet_NaN() : lanes_[0];
    std::fill(std::begin(lanes_), std::end(lanes_), 0.0);
  }

  const cpu::NormFunction add_;  // Null if no norm is wanted.
  double* const leaves_;
  alignas(64) double lanes_[kNormLanes] = {};
};

class CpuReducer final : public Reducer {
 public:
  explicit CpuReducer(const cpu::Target& target)
      : name_("cpu/" + target.name), kernels_(*target.kernels) {}

  std::string_view name() const override { return name_; }

  std::optional<Failure> Fold(const ReductionPlan& plan, const Input* inputs, size_t begin,
                              size_t end, const Span& span, void* accumulator,
                              Facts* facts) const override {
    const ScopedFloatEnvironment environment;
    BlockFolder folder(kernels_, plan, inputs, begin, end, span, accumulator, facts);
    if (!folder.HasTerms()) return std::nullopt;
    auto* to = static_cast<unsigned char*>(accumulator);
    for (size_t done = 0; done < span.count; done += kBlockElements) {
      const size_t count = std::min(kBlockElements, span.count - done);
      folder.FoldBlock(count);
      if (folder.watch().non_finite) folder.CountBlock();
      folder.Advance();
      const size_t size = folder.accumulator_size();
      std::memcpy(to + done * size, folder.acc(), count * size);
    }
    return std::nullopt;
  }

  std::optional<Failure> Reduce(const ReductionPlan& plan, const Input* inputs, size_t begin,
                                const void* accumulator, const Span& span, const Output& output,
                                Facts* facts) const override {
    const ScopedFloatEnvironment environment;
    const size_t result_type = static_cast<size_t>(plan.spec().result_dtype);
    const size_t size = ElementSize(plan.spec().result_dtype);
    BlockFolder folder(kernels_, plan, inputs, begin, plan.spec().contributions.size(), span,
                       accumulator, facts);
    NormLeafSums norm(kernels_.norm[result_type], output);
    alignas(64) unsigned char tail[kBlockBytes];
    for (size_t done = 0; done < span.count; done += kBlockElements) {
      const size_t count = std::min(kBlockElements, span.count - done);
      folder.FoldBlock(count);

      // The loops write whole units.
      unsigned char* const out = static_cast<unsigned char*>(output.data) + done * size;
      unsigned char* const to = count % kUnitElements == 0 ? out : tail;
      kernels_.finish[result_type](folder.acc(), plan.finish(), plan.finish_constant(),
                                   RoundUpToUnit(count), to, folder.mutable_watch());
      if (to == tail) {
        std::memcpy(out, tail, count * size);
        std::memset(tail + count * size, 0, (RoundUpToUnit(count) - count) * size);
      }
      norm.Add(done, to, count, done + count == span.count);

      if (folder.watch().non_finite) {
        folder.CountBlock();
        facts->overflows += kernels_.finish_count[result_type](
            folder.acc(), plan.finish(), plan.finish_constant(), RoundUpToUnit(count));
      }
      folder.Advance();
    }
    return std::nullopt;
  }

 private:
  const std::string name_;
  const KernelTable& kernels_;
};

}  // namespace

std::vector<std::string> CpuTargets() {
  std::vector<std::string> names;
  for (const cpu::Target& target : cpu::SupportedTargets()) names.push_back(target.name);
  return names;
}

std::unique_ptr<Reducer> MakeCpuReducer() {
  return std::make_unique<CpuReducer>(cpu::SupportedTargets().front());
}

std::unique_ptr<Reducer> MakeCpuReducer(std::string_view target) {
  for (const cpu::Target& supported : cpu::SupportedTargets()) {
    if (supported.name == target) return std::make_unique<CpuReducer>(supported);
  }
  return nullptr;
}

}  // namespace basin::kernels
