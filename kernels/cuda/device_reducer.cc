// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "kernels/cuda/device_reducer.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <utility>

#include "kernels/cuda/staging.h"

namespace basin::kernels::cuda {
namespace {

using Status = std::optional<Failure>;  // Nothing, or why not.

constexpr size_t kMaxElementSize = 8;
constexpr size_t kMaxLeavesPerPiece = 32;
constexpr size_t kMaxPieceElements = kMaxLeavesPerPiece * kNormLeafElements;
constexpr size_t kLeastStagingBytes =
    kMaxTermsPerTask * (kNormLeafElements * kMaxElementSize + kAlignment);

// The output of a piece, in one copy: facts, leaves, then the result.
constexpr size_t kLeavesOffset = kAlignment;
constexpr size_t kResultOffset = kLeavesOffset + kMaxLeavesPerPiece * sizeof(double);
constexpr size_t kOutputBytes = kResultOffset + kMaxPieceElements * kMaxElementSize;
static_assert(sizeof(DeviceFacts) <= kLeavesOffset && kResultOffset % kAlignment == 0);

Status CheckContributions(const ReductionPlan& plan, const std::string& name) {
  if (plan.spec().contributions.size() <= kMaxContributions) return std::nullopt;
  return Failure{FailureCode::kUnsupported,
                 name + " reduces at most " + std::to_string(kMaxContributions) +
                     " contributions, not " + std::to_string(plan.spec().contributions.size())};
}

// A call on host memory.
struct HostWork {
  const ReductionPlan& plan;
  const Span& span;
  const Output& output;
  Facts* const facts;
  std::vector<SliceReader> readers;  // One per term.

  HostWork(const ReductionPlan& the_plan, const Input* inputs, const Span& the_span,
           const Output& the_output, Facts* the_facts)
      : plan(the_plan), span(the_span), output(the_output), facts(the_facts) {
    for (const Term& term : plan.terms()) readers.emplace_back(inputs[term.contribution]);
  }

  size_t result_size() const { return ElementSize(plan.spec().result_dtype); }
};

// One half of a workspace: takes a piece of the span from the host to the device and back.
class PieceRunner {
 public:
  static Result<std::unique_ptr<PieceRunner>> Make(Device* device, size_t staging_bytes) {
    auto runner = std::unique_ptr<PieceRunner>(new PieceRunner);
    Result<std::unique_ptr<Queue>> queue = device->MakeQueue();
    if (!queue.ok()) return queue.failure();
    runner->queue_ = std::move(queue).value();
    const std::pair<Pair*, size_t> pairs[] = {{&runner->input_, staging_bytes},
                                              {&runner->output_, kOutputBytes}};
    for (const auto& [pair, size] : pairs) {
      Result<Memory> pinned = device->AllocatePinned(size);
      if (!pinned.ok()) return pinned.failure();
      Result<Memory> on_device = device->AllocateOnDevice(size);
      if (!on_device.ok()) return on_device.failure();
      pair->pinned = std::move(pinned).value();
      pair->device = std::move(on_device).value();
    }
    Result<Memory> accumulator = device->AllocateOnDevice(kMaxPieceElements * kMaxElementSize);
    if (!accumulator.ok()) return accumulator.failure();
    runner->accumulator_ = std::move(accumulator).value();
    return runner;
  }

  // Starts elements [first, first + count) of the span. REQUIRES: Finish() after the one before.
  Status Start(HostWork* work, size_t first, size_t count) {
    first_ = first;
    count_ = count;
    if (Status failure = ResetFacts()) return failure;
    const size_t terms = work->plan.terms().size();
    for (size_t begin = 0; begin < terms; begin += kMaxTermsPerTask) {
      // The staging is used again for each further group of terms.
      if (begin > 0) {
        if (Status failure = queue_->Wait()) return failure;
      }
      const size_t group = std::min(terms - begin, kMaxTermsPerTask);
      if (Status failure = RunGroup(work, begin, group)) return failure;
    }
    started_ = true;
    return queue_->CopyToHost(output_.pinned.get(), output_.device.get(),
                              kResultOffset + count_ * work->result_size());
  }

  // Waits for the started piece, if any, and delivers its output.
  Status Finish(const HostWork& work) {
    if (!started_) return std::nullopt;
    started_ = false;
    if (Status failure = queue_->Wait()) return failure;
    DeviceFacts seen;
    std::memcpy(&seen, At(output_.pinned, 0), sizeof(seen));
    MergeFacts(seen, work.span.first + first_, work.facts);
    const size_t size = work.result_size();
    std::memcpy(static_cast<unsigned char*>(work.output.data) + first_ * size,
                At(output_.pinned, kResultOffset), count_ * size);
    if (HasNorm(work.plan, work.output)) {
      std::memcpy(work.output.norm_leaves + first_ / kNormLeafElements,
                  At(output_.pinned, kLeavesOffset), NormLeaves(count_) * sizeof(double));
    }
    return std::nullopt;
  }

  // Reduces elements [first, first + count) of arrays on the device, and waits for it.
  Status RunInPlace(const ReductionPlan& plan, const void* const* inputs, size_t first,
                    size_t count, const Output& output, DeviceFacts* seen) {
    if (Status failure = ResetFacts()) return failure;
    const std::vector<Term>& terms = plan.terms();
    for (size_t begin = 0; begin < terms.size(); begin += kMaxTermsPerTask) {
      const size_t group = std::min(terms.size() - begin, kMaxTermsPerTask);
      ReduceTask task = TaskOf(plan);
      PutTermsInPlace(&terms[begin], group, inputs, first, &task);
      task.count = count;
      task.facts = static_cast<DeviceFacts*>(output_.device.get());
      if (begin > 0) task.accumulator_in = accumulator_.get();
      if (begin + group < terms.size()) {
        task.accumulator_out = accumulator_.get();
      } else {
        const size_t size = ElementSize(plan.spec().result_dtype);
        task.output = static_cast<unsigned char*>(output.data) + first * size;
        task.aligned = task.aligned && IsAligned(task.output);
        if (HasNorm(plan, output))
          task.norm_leaves = output.norm_leaves + first / kNormLeafElements;
      }
      if (Status failure = queue_->Run(task)) return failure;
    }
    Status failure = queue_->CopyToHost(output_.pinned.get(), output_.device.get(), sizeof(*seen));
    if (failure) return failure;
    if (Status waited = queue_->Wait()) return waited;
    std::memcpy(seen, output_.pinned.get(), sizeof(*seen));
    return std::nullopt;
  }

  // After a failure: waits until nothing runs, whether it succeeded or not.
  void Abandon() {
    started_ = false;
    (void)queue_->Wait();
  }

 private:
  struct Pair {
    Memory pinned;
    Memory device;
  };

  // Sets the facts on the device to nothing seen. The pinned copy is overwritten by what comes
  // back.
  Status ResetFacts() {
    const DeviceFacts nothing = {kNoPlace, 0, 0};
    std::memcpy(output_.pinned.get(), &nothing, sizeof(nothing));
    return queue_->CopyToDevice(output_.device.get(), output_.pinned.get(), sizeof(nothing));
  }

  // Terms with inputs on the device.
  static void PutTermsInPlace(const Term* terms, size_t group, const void* const* inputs,
                              size_t first, ReduceTask* task) {
    task->term_count = static_cast<uint32_t>(group);
    task->aligned = true;
    for (size_t i = 0; i < group; ++i) {
      const auto* data = static_cast<const unsigned char*>(inputs[terms[i].contribution]) +
                         first * ElementSize(terms[i].wire_dtype);
      task->terms[i] = ToTaskTerm(terms[i], data);
      task->aligned = task->aligned && IsAligned(data);
    }
  }

  // Gathers the inputs of a group of terms, and reduces them on top of the groups before.
  Status RunGroup(HostWork* work, size_t begin, size_t group) {
    const std::vector<Term>& terms = work->plan.terms();
    ReduceTask task = TaskOf(work->plan);
    size_t used = 0;
    for (size_t i = 0; i < group; ++i) {
      const Term& term = terms[begin + i];
      const size_t size = count_ * ElementSize(term.wire_dtype);
      work->readers[begin + i].Read(At(input_.pinned, used), size);
      task.terms[i] = ToTaskTerm(term, At(input_.device, used));
      used += RoundUp(size);
    }
    Status failure = queue_->CopyToDevice(input_.device.get(), input_.pinned.get(), used);
    if (failure) return failure;
    task.term_count = static_cast<uint32_t>(group);
    task.aligned = true;
    task.count = count_;
    task.facts = reinterpret_cast<DeviceFacts*>(At(output_.device, 0));
    if (begin > 0) task.accumulator_in = accumulator_.get();
    if (begin + group < terms.size()) {
      task.accumulator_out = accumulator_.get();
    } else {
      task.output = At(output_.device, kResultOffset);
      if (HasNorm(work->plan, work->output)) {
        task.norm_leaves = reinterpret_cast<double*>(At(output_.device, kLeavesOffset));
      }
    }
    return queue_->Run(task);
  }

  std::unique_ptr<Queue> queue_;
  Pair input_;
  Pair output_;
  Memory accumulator_;    // On the device, between two groups of terms.
  bool started_ = false;  // A piece is on its way:
  size_t first_ = 0;      // its first element in the span,
  size_t count_ = 0;      // and its elements.
};

// Elements of a piece: as many leaves as the staging holds of the widest group of terms.
size_t PieceElements(const std::vector<Term>& terms, size_t staging_bytes) {
  size_t widest = 0;
  for (size_t begin = 0; begin < terms.size(); begin += kMaxTermsPerTask) {
    size_t bytes = 0;  // The size of one element.
    for (size_t i = begin; i < std::min(terms.size(), begin + kMaxTermsPerTask); ++i) {
      bytes += ElementSize(terms[i].wire_dtype);
    }
    widest = std::max(widest, bytes);
  }
  const size_t usable = staging_bytes - kMaxTermsPerTask * kAlignment;
  const size_t leaves = usable / (widest * kNormLeafElements);
  return std::min(leaves, kMaxLeavesPerPiece) * kNormLeafElements;
}

}  // namespace

struct DeviceReducer::Workspace {
  std::unique_ptr<PieceRunner> halves[2];

  // Runs the pieces of `work`, on the halves by turns.
  std::optional<Failure> Run(HostWork* work, size_t staging_bytes) {
    const size_t piece = PieceElements(work->plan.terms(), staging_bytes);
    size_t turn = 0;
    for (size_t first = 0; first < work->span.count; first += piece, ++turn) {
      PieceRunner& half = *halves[turn % 2];
      if (Status failure = half.Finish(*work)) return failure;
      const size_t count = std::min(piece, work->span.count - first);
      if (Status failure = half.Start(work, first, count)) return failure;
    }
    for (size_t i = 0; i < 2; ++i, ++turn) {
      if (Status failure = halves[turn % 2]->Finish(*work)) return failure;
    }
    return std::nullopt;
  }
};

DeviceReducer::DeviceReducer(std::unique_ptr<Device> device, DeviceReducerOptions options)
    : device_(std::move(device)),
      options_([&options] {
        options.staging_bytes = std::max(options.staging_bytes, kLeastStagingBytes);
        return options;
      }()),
      name_(device_->name()) {}

DeviceReducer::~DeviceReducer() = default;

std::optional<Failure> DeviceReducer::Reduce(const ReductionPlan& plan, const Input* inputs,
                                             const Span& span, const Output& output,
                                             Facts* facts) const {
  if (Status failure = CheckContributions(plan, name_)) return failure;
  HostWork work(plan, inputs, span, output, facts);
  return WithWorkspace(
      [&](Workspace* workspace) { return workspace->Run(&work, options_.staging_bytes); });
}

std::optional<Failure> DeviceReducer::ReduceOnDevice(const ReductionPlan& plan,
                                                     const void* const* inputs, const Span& span,
                                                     const Output& output, Facts* facts) const {
  if (Status failure = CheckContributions(plan, name_)) return failure;
  // One task does it all if there are few terms; more need an accumulator, and so are cut.
  const bool is_one_task = plan.terms().size() <= kMaxTermsPerTask;
  const size_t piece = is_one_task ? span.count : kMaxPieceElements;
  if (piece >= kMaxElements) {
    return Failure{
        FailureCode::kUnsupported,
        name_ + " reduces at most " + std::to_string(kMaxElements) + " elements at once"};
  }
  return WithWorkspace([&](Workspace* workspace) -> Status {
    for (size_t first = 0; first < span.count; first += piece) {
      const size_t count = std::min(piece, span.count - first);
      DeviceFacts seen;
      Status failure = workspace->halves[0]->RunInPlace(plan, inputs, first, count, output, &seen);
      if (failure) return failure;
      MergeFacts(seen, span.first + first, facts);
    }
    return std::nullopt;
  });
}

template <typename Function>
std::optional<Failure> DeviceReducer::WithWorkspace(Function function) const {
  std::unique_ptr<Workspace> workspace;
  {
    std::unique_lock<std::mutex> lock(mutex_);
    released_.wait(lock, [this] { return running_ < options_.parallel_calls; });
    ++running_;
    if (!idle_.empty()) {
      workspace = std::move(idle_.back());
      idle_.pop_back();
    }
  }
  Status failure;
  if (workspace == nullptr) {
    Result<std::unique_ptr<Workspace>> made = MakeWorkspace();
    if (made.ok()) {
      workspace = std::move(made).value();
    } else {
      failure = made.failure();
    }
  }
  if (workspace != nullptr) {
    failure = function(workspace.get());
    if (failure) {
      for (const auto& half : workspace->halves) half->Abandon();
    }
  }
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    --running_;
    if (workspace != nullptr) idle_.push_back(std::move(workspace));
  }
  released_.notify_one();
  return failure;
}

Result<std::unique_ptr<DeviceReducer::Workspace>> DeviceReducer::MakeWorkspace() const {
  auto workspace = std::make_unique<Workspace>();
  for (auto& half : workspace->halves) {
    Result<std::unique_ptr<PieceRunner>> made =
        PieceRunner::Make(device_.get(), options_.staging_bytes);
    if (!made.ok()) return made.failure();
    half = std::move(made).value();
  }
  return workspace;
}

}  // namespace basin::kernels::cuda
