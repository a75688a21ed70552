// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "client/device/node_group.h"

#include <algorithm>
#include <cstring>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"

namespace basin::client::group {
namespace {

using accelerator::Stream;
using accelerator::node::CommunicatorPtr;
using accelerator::node::FormCommunicator;
using accelerator::node::GroupMember;
using accelerator::node::GroupMode;
using accelerator::node::Runner;
using accelerator::node::RunnerOptions;
using accelerator::node::SteadyTime;
using accelerator::node::Turn;
using kernels::Contribution;
using kernels::Failure;
using kernels::FailureCode;
using kernels::ReductionPlan;
using kernels::ReductionSpec;
using nccl::Communicator;

// Changes whenever ranks of different releases could not reduce together.
constexpr char kVersion[] = "3";

// From the moment that the leader begins to form the communicator on.
constexpr absl::Duration kFormWithin = absl::Seconds(90);

absl::Status ToStatus(const Failure& failure) {
  switch (failure.code) {
    case FailureCode::kInvalidArgument:
      return absl::InvalidArgumentError(failure.message);
    case FailureCode::kUnsupported:
      return absl::FailedPreconditionError(failure.message);
    default:
      return absl::UnavailableError(failure.message);
  }
}

// The error of a device for a tensor of a bucket, which has no name here.
absl::Status Explain(const Failure& failure, size_t index) {
  std::string way_out = ". If the device fails again, restart this process, or train on the CPU.";
  if (failure.code == FailureCode::kInvalidArgument) {
    way_out = ". Pass memory of the device that the group was opened for, and one of its streams.";
  } else if (failure.code == FailureCode::kUnsupported) {
    way_out =
        ". A graph would repeat the reduction without the round. Capture the forward and the "
        "backward without the reduction, and reduce after the replay.";
  }
  const absl::Status status = ToStatus(failure);
  return absl::Status(status.code(),
                      absl::StrCat("Cannot reduce tensor ", index,
                                   " of the bucket within the node: ", failure.message, way_out));
}

uint64_t RandomNonce() {
  std::random_device device;
  return (uint64_t{device()} << 32) | device();
}

std::string ModeName(GroupMode mode) { return mode == GroupMode::kFast ? "fast" : "deterministic"; }

RunnerOptions RunnerOptionsOf(const NodeGroupOptions& options) {
  RunnerOptions runner;
  runner.config.self = {options.settings.rank, options.worker, RandomNonce()};
  runner.config.size = options.settings.size;
  runner.config.agreed = options.agreed;
  runner.config.agreed["BASIN_LOCAL_GROUP"] = ModeName(options.settings.mode);
  runner.config.agreed["LOCAL_WORLD_SIZE"] = absl::StrCat(options.settings.size);
  runner.config.agreed["the version of local groups"] = kVersion;
  runner.config.gather_within = options.gather_within;
  runner.config.form_within = kFormWithin;
  runner.directory = options.directory;
  runner.make_id = [library = options.library,
                    within = options.call_within]() -> absl::StatusOr<std::string> {
    const absl::StatusOr<nccl::UniqueId> id = nccl::MakeUniqueId(library, within);
    if (!id.ok()) return id.status();
    return std::string(id->bytes, sizeof(id->bytes));
  };
  return runner;
}

// Waits until the device uses no memory for these works of a communicator, or returns that it may.
bool AllQuiet(const std::vector<Communicator::Work>& works, const CommunicatorPtr& communicator) {
  const bool ended = std::all_of(works.begin(), works.end(),
                                 [](const Communicator::Work& work) { return work.Wait().ok(); });
  return ended || communicator->quiet();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Runner>> ReportWhyNot(const NodeGroupOptions& options,
                                                     const absl::Status& why) {
  RunnerOptions runner = RunnerOptionsOf(options);
  runner.config.cannot = why;
  return Runner::Start(std::move(runner));
}

absl::StatusOr<std::unique_ptr<NodeGroup>> NodeGroup::Open(NodeGroupOptions options) {
  std::unique_ptr<NodeGroup> group(new NodeGroup(std::move(options)));
  RunnerOptions runner = RunnerOptionsOf(group->options_);
  runner.start = [self = group.get()](const FormCommunicator& form) { return self->Form(form); };
  auto started = Runner::Start(std::move(runner));
  if (!started.ok()) return started.status();
  group->runner_ = *std::move(started);
  return group;
}

NodeGroup::~NodeGroup() {
  EndSharing(absl::CancelledError("this rank leaves the local group"));
  CommunicatorPtr last = turn_ ? turn_->communicator : nullptr;
  if (last != nullptr) last->Abort(absl::CancelledError("this rank leaves the local group"));
  turn_.reset();
  runner_.reset();
  AllQuiet(works_, last);
}

absl::StatusOr<CommunicatorPtr> NodeGroup::Form(const FormCommunicator& form) {
  nccl::CommunicatorOptions options;
  options.position = {form.index, static_cast<int>(form.members.size()), form.leader};
  if (form.unique_id.size() != sizeof(options.id.bytes)) {
    return absl::InvalidArgumentError("the id of the communicator has the wrong size");
  }
  std::memcpy(options.id.bytes, form.unique_id.data(), sizeof(options.id.bytes));
  options.mode = options_.settings.mode;
  options.work_within = options_.work_within;
  options.call_within = options_.call_within;
  options.quiet_within = options_.quiet_within;
  options.scratch_bytes = options_.scratch_bytes;
  auto started = Communicator::Start(options_.library, options_.device, options);
  if (!started.ok()) return started.status();
  return CommunicatorPtr(*std::move(started));
}

// ---- a local phase

absl::StatusOr<std::optional<NodeTurn>> NodeGroup::NextTurn(SteadyTime until) {
  EndSharing(absl::CancelledError("this rank has begun its next round without sharing results"));
  if (!stuck_.ok()) return stuck_;
  absl::StatusOr<std::optional<Turn>> turn = runner_->NextTurn(until);
  if (!turn.ok()) return turn.status();
  if (!*turn) return std::nullopt;
  turn_ = *std::move(turn);
  works_.clear();
  plans_.clear();
  reported_ = false;
  failed_ = turn_->communicator == nullptr;
  leads_ = !failed_ && turn_->leader == options_.settings.rank;
  NodeTurn result;
  if (failed_) {
    result.leader = options_.worker;
    return result;
  }
  result.members = static_cast<int>(turn_->members.size());
  result.leads = leads_;
  for (const GroupMember& member : turn_->members) {
    if (member.rank == turn_->leader) result.leader = member.worker;
    if (member.rank != options_.settings.rank) result.others.push_back(member.worker);
  }
  std::sort(result.others.begin(), result.others.end());
  result.reduction = options_.settings.mode == GroupMode::kFast ? LocalReduction::kFast
                                                                : LocalReduction::kDeterministic;
  return result;
}

absl::StatusOr<NodeGroup::PlanPtr> NodeGroup::PlanOf(ReduceOp op, const NodeTensor& tensor) {
  PlanPtr& plan = plans_[{op, tensor.dtype, tensor.result}];
  if (plan != nullptr) return plan;
  ReductionSpec spec;
  spec.op = op;
  spec.tensor_dtype = tensor.dtype;
  spec.result_dtype = tensor.result;
  spec.contributions.resize(turn_->members.size());
  for (Contribution& each : spec.contributions) each.wire_dtype = tensor.dtype;
  auto made = ReductionPlan::Make(std::move(spec));
  if (!made.ok()) return ToStatus(made.failure());
  plan = std::make_shared<const ReductionPlan>(std::move(made).value());
  return plan;
}

kernels::Result<nccl::EventPtr> NodeGroup::Mark(Stream stream) {
  auto event = options_.device->MakeEvent();
  if (!event.ok()) return event.failure();
  nccl::EventPtr mark = std::move(event).value();
  if (const auto failure = mark->Record(stream)) return *failure;
  return mark;
}

absl::Status NodeGroup::Reduce(ReduceOp op, absl::Span<const NodeTensor> tensors) {
  const bool combines = op == ReduceOp::kSum || op == ReduceOp::kMin || op == ReduceOp::kMax ||
                        op == ReduceOp::kProduct;
  if (!combines) {
    return absl::InvalidArgumentError(
        "a local group computes sums, minima, maxima and products; divide afterwards");
  }
  if (failed_) return absl::OkStatus();
  std::vector<nccl::GroupTensor> bucket;
  bucket.reserve(tensors.size());
  std::map<Stream, size_t> streams;  // With the first tensor of each.
  for (size_t i = 0; i < tensors.size(); ++i) {
    const NodeTensor& tensor = tensors[i];
    absl::StatusOr<PlanPtr> plan = PlanOf(op, tensor);
    if (!plan.ok()) return plan.status();
    const auto check = [&](const void* data, DType dtype) -> absl::Status {
      const size_t bytes = tensor.count * ElementSize(dtype);
      if (bytes == 0) return absl::OkStatus();
      const auto failure = options_.device->CheckMemory(data, bytes);
      return failure ? Explain(*failure, i) : absl::OkStatus();
    };
    absl::Status status = check(tensor.input, tensor.dtype);
    if (status.ok() && leads_) status = check(tensor.output, tensor.result);
    if (!status.ok()) return status;
    nccl::GroupTensor part;
    part.plan = *std::move(plan);
    part.count = tensor.count;
    part.input = tensor.input;
    part.result = leads_ ? tensor.output : nullptr;
    bucket.push_back(std::move(part));
    streams.emplace(tensor.stream, i);
  }
  // Work of the communicator runs in order, so what waits for one stream may come before.
  nccl::EventPtr last;
  for (const auto& [stream, first] : streams) {
    kernels::Result<nccl::EventPtr> mark = Mark(stream);
    if (!mark.ok()) return Explain(mark.failure(), first);
    if (last != nullptr) works_.push_back(turn_->communicator->Broadcast({}, {last, {}}));
    last = std::move(mark).value();
  }
  works_.push_back(turn_->communicator->Reduce(std::move(bucket), {last, {}}));
  return absl::OkStatus();
}

void NodeGroup::Fail(const std::string& why) {
  if (failed_) return;
  failed_ = true;
  turn_->communicator->Abort(absl::CancelledError(why));
  runner_->GiveUp(*turn_, why);
}

absl::StatusOr<std::optional<PhaseEnd>> NodeGroup::End(SteadyTime until) {
  // The last one first: the others have ended before it.
  for (auto work = works_.rbegin(); work != works_.rend() && !failed_; ++work) {
    const std::optional<absl::Status> status = work->WaitUntil(until);
    if (!status) return std::nullopt;
    if (status->ok()) continue;
    failed_ = true;
    runner_->Fail(*turn_, *status);
  }
  if (leads_ && !failed_ && !reported_) {
    reported_ = true;
    runner_->Reduced(*turn_);
  }
  const absl::StatusOr<std::optional<bool>> reduced = runner_->End(until);
  if (!reduced.ok()) return reduced.status();
  if (!*reduced) return std::nullopt;
  if (!AllQuiet(works_, turn_->communicator)) {
    return absl::UnavailableError(
        absl::StrCat("the local group failed (", turn_->communicator->status().message(),
                     "), and the device may still use the gradients; start this process again"));
  }
  std::optional<Turn> ended = std::exchange(turn_, std::nullopt);
  if (!**reduced) return PhaseEnd::kAlone;
  shares_ = std::move(ended);
  return PhaseEnd::kEnded;
}

// ---- results

absl::Status NodeGroup::Share(Worker& worker, LaneHandle lane,
                              const std::vector<SharedTensor>& tensors, Stream stream,
                              absl::Duration timeout) {
  absl::Status status;
  const bool leads = shares_ && shares_->leader == options_.settings.rank;
  if (shares_ && shares_->members.size() > 1) {
    status = ShareNow(worker, lane, tensors, stream, timeout);
    const absl::Status failure = shares_->communicator->status();
    if (absl::IsDeadlineExceeded(status) && failure.ok()) return status;
    if (!failure.ok()) runner_->Fail(*shares_, failure);
    if (sharing_ != nullptr && sharing_->stuck()) {
      stuck_ = absl::UnavailableError(
          absl::StrCat("the local group failed (", failure.message(),
                       "), and the device may still use memory of results; start this process "
                       "again"));
    }
  }
  shares_.reset();
  // The leader is sent all of them.
  if (!leads) worker.Call(RequestResults{lane}).IgnoreError();
  // A deadline of the communicator is no reason to call again.
  return absl::IsDeadlineExceeded(status) ? absl::UnavailableError(status.message()) : status;
}

absl::Status NodeGroup::ShareNow(Worker& worker, LaneHandle lane,
                                 const std::vector<SharedTensor>& tensors, Stream stream,
                                 absl::Duration timeout) {
  Communicator& communicator = *shares_->communicator;
  kernels::Result<nccl::EventPtr> mark = Mark(stream);
  absl::Status status = mark.ok() ? absl::OkStatus() : ToStatus(mark.failure());
  if (status.ok() && (sharing_ == nullptr || !sharing_->Fits(tensors.size()))) {
    auto made = Sharing::Make(options_.device, tensors.size(), options_.pinned_bytes);
    status = made.status();
    if (status.ok()) sharing_ = *std::move(made);
  }
  if (!status.ok()) {
    communicator.Abort(status);  // The other ranks wait for this one.
    return status;
  }
  const nccl::Order order{std::move(mark).value(), {}};
  return shares_->leader == options_.settings.rank
             ? sharing_->Lead(communicator, worker, lane, tensors, order, timeout)
             : sharing_->Follow(communicator, worker, lane, tensors, order, timeout);
}

void NodeGroup::EndSharing(const absl::Status& why) {
  if (!shares_) return;
  shares_->communicator->Abort(why);
  if (runner_ != nullptr) runner_->GiveUp(*shares_, std::string(why.message()));
  shares_.reset();
}

}  // namespace basin::client::group
