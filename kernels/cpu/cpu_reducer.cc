// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "kernels/cpu/cpu_reducer.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
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
using cpu::kMaxTerms;
using cpu::kUnitElements;

// A block's accumulators take half of a small first-level cache at most.
constexpr size_t kBlockElements = 1024;
static_assert(kBlockElements % kUnitElements == 0);
static_assert(kNormLeafElements % kBlockElements == 0, "a leaf ends where a block ends");

constexpr size_t kMaxElementSize = 8;
constexpr size_t kBlockBytes = kBlockElements * kMaxElementSize;

constexpr size_t RoundUpToUnit(size_t elements) {
  return (elements + kUnitElements - 1) / kUnitElements * kUnitElements;
}

// The next piece of work when `remaining` elements are left: whole units while there are any, so
// that less than one is left to be padded.
constexpr size_t WholeUnits(size_t limit, size_t remaining) {
  const size_t count = std::min(limit, remaining);
  return count < kUnitElements ? count : count / kUnitElements * kUnitElements;
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

  // The number of contiguous bytes from here.
  size_t Contiguous() const {
    for (size_t at = slice, skip = offset; at < input.slice_count; ++at, skip = 0) {
      if (input.slices[at].size > skip) return input.slices[at].size - skip;
    }
    return 0;
  }

  // The next `bytes` bytes, contiguous: in place or, if they are in several slices, copied to
  // `scratch`. Does not advance.
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

// Terms of one wire dtype, ready for a loop.
struct Group {
  const Stream* streams;
  size_t count;
  FoldTerm terms[kMaxTerms];
};

// Folds a span piece by piece. One object per call; it lives on the caller's stack.
class Folder {
 public:
  Folder(const KernelTable& kernels, const ReductionPlan& plan, const Input* inputs,
         const Span& span, Facts* facts)
      : kernels_(kernels), plan_(plan), span_(span), facts_(facts) {
    streams_.reserve(plan.terms().size());
    for (const Term& term : plan.terms()) {
      streams_.push_back(Stream{&term, inputs[term.contribution]});
    }
    for (size_t first = 0; first < streams_.size(); first += GroupSize(first)) last_group_ = first;
  }

  const void* acc() const { return acc_; }

  // The wire dtype of the last group.
  DType LastWireDType() const { return streams_[last_group_].term->wire_dtype; }

  // Whether all terms are one group.
  bool IsOneGroup() const { return last_group_ == 0; }

  // How many of the next `limit` elements to take at once in one pass: as many as lie in one piece
  // if IsOneGroup(), else a block.
  size_t OnePassLength(size_t limit) const {
    size_t length = kBlockElements;
    if (IsOneGroup()) {
      size_t contiguous = limit;
      for (const Stream& stream : streams_) {
        contiguous =
            std::min(contiguous, stream.Contiguous() / ElementSize(stream.term->wire_dtype));
      }
      length = std::max(length, contiguous);
    }
    return WholeUnits(length, limit);
  }

  // Sets the piece to work on: `count` elements, in whole units or less than one. More than a block
  // only as OnePassLength allows.
  void Begin(size_t count) { count_ = count; }

  // Folds all groups but the last one into acc(); returns what the last one starts from, null for
  // nothing.
  const void* FoldHead(cpu::Watch* watch) {
    FoldGroups(last_group_, watch);
    return IsOneGroup() ? nullptr : acc_;
  }

  // The last group, gathered. FoldHead comes first.
  Group LastGroup() { return Gather(last_group_); }

  // Folds all terms into acc(), whose length is rounded up to a unit, filled with what zeros give.
  void FoldAll(cpu::Watch* watch) { FoldGroups(streams_.size(), watch); }

  // The same, counting what is not finite into the facts. Integers have nothing to count.
  void CountAll() {
    ForGroups(streams_.size(), [&](const Group& group, bool fresh) {
      bool non_finite[kMaxTerms] = {};
      cpu::Count found{0, non_finite};
      Lookup(kernels_.fold_count, group)(group.terms, group.count, fresh, RoundUpToUnit(count_),
                                         acc_, &found);
      facts_->overflows += found.overflows;
      for (size_t k = 0; k < group.count; ++k) {
        if (non_finite[k]) FindNonFinite(*group.streams[k].term, group.terms[k].data);
      }
    });
  }

  // Goes on behind the piece.
  void Advance() {
    for (Stream& stream : streams_) stream.Advance(count_ * ElementSize(stream.term->wire_dtype));
    done_ += count_;
  }

 private:
  template <typename Function>
  Function Lookup(const Function (&table)[cpu::kDTypes][cpu::kCombines], const Group& group) const {
    return table[static_cast<size_t>(group.streams[0].term->wire_dtype)]
                [static_cast<size_t>(plan_.combine())];
  }

  // The number of terms in the group that starts at stream `first`.
  size_t GroupSize(size_t first) const {
    size_t size = 1;
    while (size < kMaxTerms && first + size < streams_.size() &&
           streams_[first + size].term->wire_dtype == streams_[first].term->wire_dtype) {
      ++size;
    }
    return size;
  }

  // Calls fold(group, fresh) for each group before stream `end`; the first one is fresh.
  template <typename FoldGroup>
  void ForGroups(size_t end, const FoldGroup& fold) {
    for (size_t first = 0; first < end;) {
      const Group group = Gather(first);
      fold(group, /*fresh=*/first == 0);
      first += group.count;
    }
  }

  // Folds the groups before stream `end` into acc().
  void FoldGroups(size_t end, cpu::Watch* watch) {
    ForGroups(end, [&](const Group& group, bool fresh) {
      Lookup(kernels_.fold, group)(group.terms, group.count, fresh, RoundUpToUnit(count_), acc_,
                                   watch);
    });
  }

  Group Gather(size_t first) {
    Group group;
    group.streams = &streams_[first];
    group.count = GroupSize(first);
    for (size_t k = 0; k < group.count; ++k) {
      group.terms[k] = MakeTerm(group.streams[k], scratch_[k]);
    }
    return group;
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

  void FindNonFinite(const Term& term, const unsigned char* data) {
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
  std::vector<Stream> streams_;
  size_t last_group_ = 0;  // Its first stream.
  size_t done_ = 0;        // Elements before the piece.
  size_t count_ = 0;       // Elements of the piece.
  alignas(64) unsigned char acc_[kBlockBytes];
  alignas(64) unsigned char scratch_[kMaxTerms][kBlockBytes];
};

// The lanes of the leaf in progress, and where leaves go.
class NormLeafSums {
 public:
  explicit NormLeafSums(double* leaves) : leaves_(leaves) {}

  double* lanes() { return lanes_; }

  // Called when the results up to element `end` of the span are in the lanes.
  void ReachedElement(size_t end, bool ends_span) {
    if (!ends_span && end % kNormLeafElements != 0) return;
    for (size_t half = kNormLanes / 2; half > 0; half /= 2) {
      for (size_t l = 0; l < half; ++l) lanes_[l] = lanes_[l] + lanes_[l + half];
    }
    if (leaves_ != nullptr) {
      leaves_[(end - 1) / kNormLeafElements] =
          std::isnan(lanes_[0]) ? std::numeric_limits<double>::quiet_NaN() : lanes_[0];
    }
    std::fill(std::begin(lanes_), std::end(lanes_), 0.0);
  }

 private:
  double* const leaves_;  // Null if not wanted.
  alignas(64) double lanes_[kNormLanes] = {};
};

// Where the loops, which write whole units, put `count` results.
class PaddedOutput {
 public:
  PaddedOutput(const Output& output, size_t first, size_t count, size_t element_size)
      : out_(static_cast<unsigned char*>(output.data) + first * element_size),
        tail_size_(count % kUnitElements == 0 ? 0 : count * element_size) {}

  unsigned char* to() { return tail_size_ == 0 ? out_ : tail_; }

  // Puts a tail where it belongs.
  void Flush() const { std::memcpy(out_, tail_, tail_size_); }

 private:
  unsigned char* const out_;
  const size_t tail_size_;  // Bytes in tail_; 0 if the results went to out_ directly.
  alignas(64) unsigned char tail_[kUnitElements * kMaxElementSize];
};

// One call of Reduce.
class Reduction {
 public:
  Reduction(const KernelTable& kernels, const ReductionPlan& plan, const Span& span,
            const Output& output, Folder* folder, Facts* facts)
      : kernels_(kernels),
        plan_(plan),
        span_(span),
        output_(output),
        folder_(*folder),
        facts_(facts),
        norm_(IsFloatingPoint(plan.spec().result_dtype) ? output.norm_leaves : nullptr) {
    const bool may_start_from_acc = IsFloatingPoint(plan.spec().result_dtype);
    if (folder_.LastWireDType() == plan.spec().result_dtype &&
        (may_start_from_acc || folder_.IsOneGroup())) {
      one_pass_ = kernels.reduce[result_type_][static_cast<size_t>(plan.combine())];
    }
  }

  void Run() {
    while (done_ < span_.count) {
      const size_t to_leaf_end = kNormLeafElements - done_ % kNormLeafElements;
      const size_t limit = std::min(span_.count - done_, to_leaf_end);
      const size_t count =
          one_pass_ != nullptr ? folder_.OnePassLength(limit) : WholeUnits(kBlockElements, limit);
      ReducePiece(count);
    }
    if (bypassed_) cpu::FlushStores();
  }

 private:
  void ReducePiece(size_t count) {
    if (one_pass_ == nullptr || !InOnePass(count)) {
      for (size_t done = 0; done < count;) {
        const size_t block = std::min(kBlockElements, count - done);
        InSteps(block);
        done += block;
      }
    }
    norm_.ReachedElement(done_, done_ == span_.count);
  }

  // Does the next `count` elements in one loop; false, and nothing is done, if something in them is
  // not finite or wraps.
  bool InOnePass(size_t count) {
    PaddedOutput out(output_, done_, count, result_size_);
    const bool bypass = output_.bypass_cache && reinterpret_cast<uintptr_t>(out.to()) % 64 == 0;
    bypassed_ = bypassed_ || bypass;
    double lanes[kNormLanes];
    std::copy(norm_.lanes(), norm_.lanes() + kNormLanes, lanes);
    cpu::Watch watch;
    folder_.Begin(count);
    const void* before = folder_.FoldHead(&watch);
    const Group group = folder_.LastGroup();
    one_pass_(group.terms, group.count, before, plan_.finish(), plan_.finish_constant(),
              RoundUpToUnit(count), cpu::Sink{out.to(), bypass, lanes}, &watch);
    if (watch.non_finite || watch.redo) return false;
    facts_->integer_wraps += watch.integer_wraps;
    std::copy(lanes, lanes + kNormLanes, norm_.lanes());
    out.Flush();
    folder_.Advance();
    done_ += count;
    return true;
  }

  // Does the next `count` elements, a block at most, step by step, whatever their values.
  void InSteps(size_t count) {
    PaddedOutput out(output_, done_, count, result_size_);
    const size_t padded_count = RoundUpToUnit(count);
    cpu::Watch watch;
    folder_.Begin(count);
    folder_.FoldAll(&watch);
    kernels_.finish[result_type_](folder_.acc(), plan_.finish(), plan_.finish_constant(),
                                  padded_count, out.to(), &watch);
    const cpu::NormFunction add_squares = kernels_.norm[result_type_];
    if (output_.norm_leaves != nullptr && add_squares != nullptr) {
      add_squares(out.to(), padded_count, norm_.lanes());
    }
    if (watch.non_finite) {
      folder_.CountAll();
      facts_->overflows += kernels_.finish_count[result_type_](
          folder_.acc(), plan_.finish(), plan_.finish_constant(), padded_count);
    }
    facts_->integer_wraps += watch.integer_wraps;
    out.Flush();
    folder_.Advance();
    done_ += count;
  }

  const KernelTable& kernels_;
  const ReductionPlan& plan_;
  const Span span_;
  const Output output_;
  Folder& folder_;
  Facts* const facts_;
  NormLeafSums norm_;
  const size_t result_type_ = static_cast<size_t>(plan_.spec().result_dtype);
  const size_t result_size_ = ElementSize(plan_.spec().result_dtype);
  cpu::ReduceFunction one_pass_ = nullptr;  // Null if there is no such loop.
  size_t done_ = 0;
  bool bypassed_ = false;
};

class CpuReducer final : public Reducer {
 public:
  explicit CpuReducer(const cpu::Target& target)
      : name_("cpu/" + target.name), kernels_(*target.kernels) {}

  std::string_view name() const override { return name_; }

  std::optional<Failure> Reduce(const ReductionPlan& plan, const Input* inputs, const Span& span,
                                const Output& output, Facts* facts) const override {
    const ScopedFloatEnvironment environment;
    Folder folder(kernels_, plan, inputs, span, facts);
    Reduction(kernels_, plan, span, output, &folder, facts).Run();
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
