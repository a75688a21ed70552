// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "accelerator/transfer/device_pipeline.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "accelerator/transfer/staging.h"
#include "kernels/cuda/reduce_body.h"

namespace basin::accelerator {
namespace {

using kernels::kNormLeafElements;
using kernels::NormLeaves;
using kernels::Term;
using kernels::cuda::kMaxContributions;
using kernels::cuda::kMaxTermsPerTask;
using kernels::cuda::kNoElement;
using kernels::cuda::SourceOf;

using Status = std::optional<Failure>;  // Nothing, or why not.

// Where the tasks and the facts of a load begin is rounded up, once per load.
constexpr size_t kLoadBytes = 2 * kAlignment;

// Where the term's input is on the device; null: in host memory.
const void* OnDevice(const HostPass& pass, const Term& term) {
  return pass.on_device == nullptr ? nullptr : pass.on_device[term.contribution];
}

// The bytes of a slot that the inputs of a piece take.
size_t InputBytes(const HostPass& pass, size_t count) {
  size_t bytes = 0;
  for (const Term& term : pass.plan->terms()) {
    if (OnDevice(pass, term) == nullptr) bytes += RoundUp(count * ElementSize(term.wire_dtype));
  }
  return bytes;
}

// The bytes of a slot that a piece takes besides its inputs. Leaves are counted even if there are
// none.
size_t OtherBytes(const ReductionPlan& plan, size_t count) {
  return sizeof(ReduceTask) + sizeof(DeviceFacts) + RoundUp(NormLeaves(count) * sizeof(double)) +
         RoundUp(count * ElementSize(plan.spec().result_dtype));
}

size_t PieceBytes(const HostPass& pass, size_t count) {
  return InputBytes(pass, count) + OtherBytes(*pass.plan, count);
}

}  // namespace

// A queue with memory, and the load that is in it. The memory holds, on the host and on the device:
//
//   inputs | tasks | facts | leaves and results of each piece
//
// Inputs, tasks and facts are copied to the device; facts, leaves and results are copied back.
class DevicePipeline::StagingSlot {
 public:
  static Result<std::unique_ptr<StagingSlot>> Make(Device* device, size_t size) {
    auto slot = std::make_unique<StagingSlot>();
    Result<std::unique_ptr<Queue>> queue = device->MakeQueue();
    if (!queue.ok()) return queue.failure();
    Result<Memory> pinned = device->AllocatePinned(size);
    if (!pinned.ok()) return pinned.failure();
    Result<Memory> on_device = device->AllocateOnDevice(size);
    if (!on_device.ok()) return on_device.failure();
    slot->size_ = size;
    slot->queue_ = std::move(queue).value();
    slot->pinned_ = std::move(pinned).value();
    slot->device_ = std::move(on_device).value();
    return slot;
  }

  // ---- the load. REQUIRES: nothing is in flight.

  bool empty() const { return pieces_.empty(); }

  // The most elements of a pass that still fit, `left` at most: all of them, or whole leaves.
  size_t Room(const HostPass& pass, size_t left) const {
    const size_t used = inputs_ + others_ + kLoadBytes;
    const size_t room = size_ > used ? size_ - used : 0;
    if (PieceBytes(pass, left) <= room) return left;
    size_t leaves = 0;  // By bisection: the largest number that fits.
    size_t too_many = NormLeaves(left);
    while (leaves + 1 < too_many) {
      const size_t middle = (leaves + too_many) / 2;
      (PieceBytes(pass, middle * kNormLeafElements) <= room ? leaves : too_many) = middle;
    }
    return leaves * kNormLeafElements;
  }

  // Copies elements [first, first + count) of a pass. `readers` are at the first, one per term.
  void Gather(const HostPass& pass, size_t first, size_t count, std::vector<SliceReader>* readers) {
    pieces_.push_back({&pass, first, count, inputs_, 0, 0});
    for (size_t i = 0; i < readers->size(); ++i) {
      const Term& term = pass.plan->terms()[i];
      if (OnDevice(pass, term) != nullptr) continue;
      const size_t bytes = count * ElementSize(term.wire_dtype);
      (*readers)[i].Read(At(pinned_, inputs_), bytes);
      inputs_ += RoundUp(bytes);
    }
    others_ += OtherBytes(*pass.plan, count);
  }

  // Adds the copies and launches to the queue.
  Status Launch(Work* work) {
    work_ = work;
    const size_t end = ArrangeOutputs();
    auto* const tasks = reinterpret_cast<ReduceTask*>(At(pinned_, inputs_));
    const auto* on_device = reinterpret_cast<const ReduceTask*>(At(device_, inputs_));
    const DeviceFacts nothing = {kNoElement, 0, 0};
    for (size_t i = 0; i < pieces_.size(); ++i) {
      tasks[i] = TaskOfPiece(i);
      std::memcpy(At(pinned_, FactsOf(i)), &nothing, sizeof(nothing));
    }
    Status failure = queue_->CopyToDevice(device_.get(), pinned_.get(), FactsOf(pieces_.size()));
    if (failure) return failure;
    for (size_t begin = 0; begin < pieces_.size();) {
      size_t batch_end = begin + 1;
      while (batch_end < pieces_.size() && Alike(tasks[begin], tasks[batch_end])) ++batch_end;
      const auto count = static_cast<uint32_t>(batch_end - begin);
      failure = queue_->Run(ReduceBatch{tasks + begin, on_device + begin, count});
      if (failure) return failure;
      begin = batch_end;
    }
    return queue_->CopyToHost(At(pinned_, facts_), At(device_, facts_), end - facts_);
  }

  // ---- afterwards

  Status Wait() { return queue_->Wait(); }
  Work* work() const { return work_; }

  // Copies the outputs to where they belong, and empties the slot. REQUIRES: Wait() succeeded.
  void Deliver() {
    for (size_t i = 0; i < pieces_.size(); ++i) {
      const Piece& piece = pieces_[i];
      const HostPass& pass = *piece.pass;
      DeviceFacts seen;
      std::memcpy(&seen, At(pinned_, FactsOf(i)), sizeof(seen));
      MergeFacts(seen, pass.span.first + piece.first, pass.facts);
      const size_t size = ElementSize(pass.plan->spec().result_dtype);
      std::memcpy(static_cast<unsigned char*>(pass.output.data) + piece.first * size,
                  At(pinned_, piece.result), piece.count * size);
      if (!HasNorm(*pass.plan, pass.output)) continue;
      std::memcpy(pass.output.norm_leaves + piece.first / kNormLeafElements,
                  At(pinned_, piece.leaves), NormLeaves(piece.count) * sizeof(double));
    }
    pieces_.clear();
    inputs_ = others_ = 0;
    work_ = nullptr;
  }

 private:
  // Elements [first, first + count) of a pass. The others are offsets in the slot.
  struct Piece {
    const HostPass* pass;
    size_t first;
    size_t count;
    size_t inputs;
    size_t leaves;
    size_t result;
  };

  static bool Alike(const ReduceTask& a, const ReduceTask& b) {
    return SourceOf(a) == SourceOf(b) && (a.norm_leaves == nullptr) == (b.norm_leaves == nullptr);
  }

  size_t FactsOf(size_t piece) const { return facts_ + piece * sizeof(DeviceFacts); }

  // Decides where facts, leaves and results are; returns where the results end.
  size_t ArrangeOutputs() {
    facts_ = RoundUp(inputs_ + pieces_.size() * sizeof(ReduceTask));
    size_t at = RoundUp(FactsOf(pieces_.size()));
    for (Piece& piece : pieces_) {
      piece.leaves = at;
      piece.result = piece.leaves + RoundUp(NormLeaves(piece.count) * sizeof(double));
      at = piece.result + RoundUp(piece.count * ElementSize(piece.pass->plan->spec().result_dtype));
    }
    return at;
  }

  ReduceTask TaskOfPiece(size_t index) const {
    const Piece& piece = pieces_[index];
    const ReductionPlan& plan = *piece.pass->plan;
    ReduceTask task = TaskOf(plan);
    size_t at = piece.inputs;
    task.aligned = true;
    for (const Term& term : plan.terms()) {
      const size_t size = ElementSize(term.wire_dtype);
      const void* data = OnDevice(*piece.pass, term);
      if (data != nullptr) {
        data = static_cast<const unsigned char*>(data) + piece.first * size;
        task.aligned = task.aligned && IsAligned(data);
      } else {
        data = At(device_, at);
        at += RoundUp(piece.count * size);
      }
      task.terms[task.term_count++] = ToTaskTerm(term, data);
    }
    task.count = piece.count;
    task.facts = reinterpret_cast<DeviceFacts*>(At(device_, FactsOf(index)));
    task.output = At(device_, piece.result);
    if (HasNorm(plan, piece.pass->output)) {
      task.norm_leaves = reinterpret_cast<double*>(At(device_, piece.leaves));
    }
    return task;
  }

  size_t size_ = 0;
  std::unique_ptr<Queue> queue_;
  Memory pinned_;
  Memory device_;

  Work* work_ = nullptr;
  std::vector<Piece> pieces_;
  size_t inputs_ = 0;  // Bytes of inputs, and so where the tasks begin.
  size_t others_ = 0;  // OtherBytes of all pieces.
  size_t facts_ = 0;   // Where the facts begin.
};

Result<std::unique_ptr<DevicePipeline>> DevicePipeline::Make(Device* device,
                                                             const PipelineOptions& options) {
  auto pipeline = std::unique_ptr<DevicePipeline>(new DevicePipeline(options.slot_bytes));
  while (pipeline->slots_.size() < options.slots) {
    Result<std::unique_ptr<StagingSlot>> slot = StagingSlot::Make(device, options.slot_bytes);
    if (!slot.ok()) {
      if (pipeline->slots_.empty()) return slot.failure();
      break;  // Slower, but it works.
    }
    pipeline->free_.push_back(slot.value().get());
    pipeline->slots_.push_back(std::move(slot).value());
  }
  return pipeline;
}

DevicePipeline::DevicePipeline(size_t slot_bytes) : slot_bytes_(slot_bytes) {}

DevicePipeline::~DevicePipeline() {
  if (next_ticket_ > 0) Finish(next_ticket_ - 1);
}

bool DevicePipeline::Fits(const ReductionPlan& plan) const {
  return plan.terms().size() <= kMaxTermsPerTask &&
         plan.spec().contributions.size() <= kMaxContributions &&
         PieceBytes({&plan, nullptr, {}, {}}, kNormLeafElements) + kLoadBytes <= slot_bytes_;
}

DevicePipeline::Ticket DevicePipeline::Start(std::vector<HostPass> passes, Done done) {
  works_.push_back(std::make_unique<Work>());
  Work* const work = works_.back().get();
  work->passes = std::move(passes);
  work->done = std::move(done);
  if (!failure_) {
    if (Status failure = StartPasses(work)) Break(*failure);
  }
  work->started = true;
  ReportDone();
  return next_ticket_++;
}

void DevicePipeline::Finish(Ticket ticket) {
  while (!works_.empty() && next_ticket_ - works_.size() <= ticket) {
    if (Status failure = FinishOldestLoad()) Break(*failure);
    ReportDone();
  }
}

std::optional<Failure> DevicePipeline::StartPasses(Work* work) {
  StagingSlot* slot = nullptr;
  for (const HostPass& pass : work->passes) {
    std::vector<SliceReader> readers;
    for (const Term& term : pass.plan->terms())
      readers.emplace_back(pass.inputs[term.contribution]);
    for (size_t first = 0; first < pass.span.count;) {
      if (slot == nullptr) {
        const Result<StagingSlot*> taken = TakeSlot();
        if (!taken.ok()) return taken.failure();
        slot = taken.value();
      }
      const size_t count = slot->Room(pass, pass.span.count - first);
      if (count > 0) {
        slot->Gather(pass, first, count, &readers);
        first += count;
        continue;
      }
      if (Status failure = Launch(work, slot)) return failure;
      slot = nullptr;
    }
  }
  return slot == nullptr ? std::nullopt : Launch(work, slot);
}

Result<DevicePipeline::StagingSlot*> DevicePipeline::TakeSlot() {
  if (free_.empty()) {
    if (Status failure = FinishOldestLoad()) return *std::move(failure);
  }
  StagingSlot* const slot = free_.back();
  free_.pop_back();
  return slot;
}

std::optional<Failure> DevicePipeline::Launch(Work* work, StagingSlot* slot) {
  if (slot->empty()) {
    return Failure{FailureCode::kUnsupported, "a leaf of a pass does not fit into a slot"};
  }
  if (Status failure = slot->Launch(work)) return failure;
  ++work->loads;
  in_flight_.push_back(slot);
  return std::nullopt;
}

std::optional<Failure> DevicePipeline::FinishOldestLoad() {
  StagingSlot* const slot = in_flight_.front();
  in_flight_.pop_front();
  if (Status failure = slot->Wait()) return failure;
  --slot->work()->loads;
  slot->Deliver();
  free_.push_back(slot);
  return std::nullopt;
}

void DevicePipeline::Break(const Failure& failure) {
  ReportDone();
  failure_ = failure;
  // A slot whose launch failed may have a copy in flight.
  for (const auto& slot : slots_) (void)slot->Wait();
  in_flight_.clear();
}

void DevicePipeline::ReportDone() {
  while (!works_.empty() && works_.front()->started && (failure_ || works_.front()->loads == 0)) {
    const std::unique_ptr<Work> work = std::move(works_.front());
    works_.pop_front();
    work->done(failure_);
  }
}

}  // namespace basin::accelerator
