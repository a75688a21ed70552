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
using kernels::cuda::kNoPlace;
using kernels::cuda::SourceOf;

using Status = std::optional<Failure>;  // Nothing, or why not.

// Where the tasks and the facts of a load begin is rounded up, once per load.
constexpr size_t kLoadBytes = 2 * kAlignment;

// Where the term's input is on the device; null: in host memory.
const void* OnDevice(const HostPass& pass, const Term& term) {
  return pass.on_device == nullptr ? nullptr : pass.on_device[term.contribution];
}

// The bytes of a lane that the inputs of a piece take.
size_t InputBytes(const HostPass& pass, size_t count) {
  size_t bytes = 0;
  for (const Term& term : pass.plan->terms()) {
    if (OnDevice(pass, term) == nullptr) bytes += RoundUp(count * ElementSize(term.wire_dtype));
  }
  return bytes;
}

// The bytes of a lane that a piece takes besides its inputs. Leaves are counted even if there are
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
class DevicePipeline::Lane {
 public:
  static Result<std::unique_ptr<Lane>> Make(Device* device, size_t size) {
    auto lane = std::make_unique<Lane>();
    Result<std::unique_ptr<Queue>> queue = device->MakeQueue();
    if (!queue.ok()) return queue.failure();
    Result<Memory> pinned = device->AllocatePinned(size);
    if (!pinned.ok()) return pinned.failure();
    Result<Memory> on_device = device->AllocateOnDevice(size);
    if (!on_device.ok()) return on_device.failure();
    lane->size_ = size;
    lane->queue_ = std::move(queue).value();
    lane->pinned_ = std::move(pinned).value();
    lane->device_ = std::move(on_device).value();
    return lane;
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
    const size_t end = PlaceOutputs();
    auto* const tasks = reinterpret_cast<ReduceTask*>(At(pinned_, inputs_));
    const auto* on_device = reinterpret_cast<const ReduceTask*>(At(device_, inputs_));
    const DeviceFacts nothing = {kNoPlace, 0, 0};
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

  // Copies the outputs to where they belong, and empties the lane. REQUIRES: Wait() succeeded.
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
  // Elements [first, first + count) of a pass. The others are offsets in the lane.
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
  size_t PlaceOutputs() {
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
  auto pipeline = std::unique_ptr<DevicePipeline>(new DevicePipeline(options.lane_bytes));
  while (pipeline->lanes_.size() < options.lanes) {
    Result<std::unique_ptr<Lane>> lane = Lane::Make(device, options.lane_bytes);
    if (!lane.ok()) {
      if (pipeline->lanes_.empty()) return lane.failure();
      break;  // Slower, but it works.
    }
    pipeline->free_.push_back(lane.value().get());
    pipeline->lanes_.push_back(std::move(lane).value());
  }
  return pipeline;
}

DevicePipeline::DevicePipeline(size_t lane_bytes) : lane_bytes_(lane_bytes) {}

DevicePipeline::~DevicePipeline() {
  if (next_ticket_ > 0) Finish(next_ticket_ - 1);
}

bool DevicePipeline::Fits(const ReductionPlan& plan) const {
  return plan.terms().size() <= kMaxTermsPerTask &&
         plan.spec().contributions.size() <= kMaxContributions &&
         PieceBytes({&plan, nullptr, {}, {}}, kNormLeafElements) + kLoadBytes <= lane_bytes_;
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
  Lane* lane = nullptr;
  for (const HostPass& pass : work->passes) {
    std::vector<SliceReader> readers;
    for (const Term& term : pass.plan->terms())
      readers.emplace_back(pass.inputs[term.contribution]);
    for (size_t first = 0; first < pass.span.count;) {
      if (lane == nullptr) {
        const Result<Lane*> taken = TakeLane();
        if (!taken.ok()) return taken.failure();
        lane = taken.value();
      }
      const size_t count = lane->Room(pass, pass.span.count - first);
      if (count > 0) {
        lane->Gather(pass, first, count, &readers);
        first += count;
        continue;
      }
      if (Status failure = Launch(work, lane)) return failure;
      lane = nullptr;
    }
  }
  return lane == nullptr ? std::nullopt : Launch(work, lane);
}

Result<DevicePipeline::Lane*> DevicePipeline::TakeLane() {
  if (free_.empty()) {
    if (Status failure = FinishOldestLoad()) return *std::move(failure);
  }
  Lane* const lane = free_.back();
  free_.pop_back();
  return lane;
}

std::optional<Failure> DevicePipeline::Launch(Work* work, Lane* lane) {
  if (lane->empty()) {
    return Failure{FailureCode::kUnsupported, "a leaf of a pass does not fit into a lane"};
  }
  if (Status failure = lane->Launch(work)) return failure;
  ++work->loads;
  in_flight_.push_back(lane);
  return std::nullopt;
}

std::optional<Failure> DevicePipeline::FinishOldestLoad() {
  Lane* const lane = in_flight_.front();
  in_flight_.pop_front();
  if (Status failure = lane->Wait()) return failure;
  --lane->work()->loads;
  lane->Deliver();
  free_.push_back(lane);
  return std::nullopt;
}

void DevicePipeline::Break(const Failure& failure) {
  ReportDone();
  failure_ = failure;
  // A lane whose launch failed may have a copy in flight.
  for (const auto& lane : lanes_) (void)lane->Wait();
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
