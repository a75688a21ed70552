// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The part of basin.h about the group of a node.

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "accelerator/device/cuda_device.h"
#include "accelerator/node/nccl/library.h"
#include "client/c/error.h"
#include "client/c/worker.h"
#include "client/device/node_group.h"

namespace {

using basin::accelerator::node::SteadyTime;
using basin::c::EnumOf;
using basin::c::Return;
using basin::client::group::NodeGroup;
using basin::client::group::NodeGroupOptions;
using basin::client::group::NodeTensor;
using basin::client::group::NodeTurn;
using basin::client::group::PhaseEnd;
using basin::client::group::SharedTensor;

}  // namespace

struct basin_group {
  pid_t process = getpid();
  std::unique_ptr<NodeGroup> node;
  NodeTurn turn;
  bool open = false;  // The turn.
};

namespace {

// 64-bit FNV-1a, which is the same in every process.
uint64_t HashOf(const std::string& text) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return hash;
}

// Ranks of one node, user, job and run meet here. Short, because it is in the names of sockets.
std::string DirectoryOf(const basin_worker& worker, const std::string& name) {
  const std::string meeting =
      absl::StrCat(worker.job(), "\n", worker.run(), "\n", worker.group().node, "\n", name);
  return absl::StrCat("/tmp/basin-group-", getuid(), "-",
                      absl::Hex(HashOf(meeting), absl::kZeroPad16));
}

// What the group needs of this machine.
absl::Status FindDeviceAndLibrary(const basin_worker& worker, int32_t device,
                                  NodeGroupOptions& options) {
  auto opened = basin::accelerator::OpenCudaDevice(device);
  if (!opened.ok()) return absl::FailedPreconditionError(opened.failure().message);
  options.device = std::move(opened).value();
  basin::accelerator::nccl::LibrarySearch search;
  search.path = worker.group().nccl_library;
  if (const std::string own = basin::accelerator::nccl::OwnPackageFolder(); !own.empty()) {
    search.package_folders.push_back(own);
  }
  auto library = basin::accelerator::nccl::Library::Load(search);
  if (!library.ok()) return library.status();
  options.library = *std::move(library);
  return absl::OkStatus();
}

// The other ranks would wait for this one, which has no group for this reason.
void ReportToOthers(basin_worker& worker, const NodeGroupOptions& options,
                    const absl::Status& why) {
  auto reporting = basin::client::group::ReportWhyNot(
      options, absl::FailedPreconditionError(std::string(why.message())));
  if (!reporting.ok()) return;  // Without connections the others cannot be told.
  if (!options.settings.required) return worker.KeepReporting(*std::move(reporting));
  // The error of this call is likely to end the process, so that ranks that come later would find
  // nobody. The others wait as long for a rank that does not come.
  (*reporting)
      ->NextTurn(std::chrono::steady_clock::now() +
                 absl::ToChronoMilliseconds(options.gather_within))
      .IgnoreError();
}

absl::StatusOr<std::unique_ptr<NodeGroup>> Open(basin_worker& worker, int32_t device,
                                                const std::string& name,
                                                const std::string& layout) {
  const basin::c::GroupSettings& settings = worker.group();
  NodeGroupOptions options;
  options.settings = settings.local;
  options.worker = worker.id();
  options.agreed = {{"BASIN_JOB", worker.job()}, {absl::StrCat("the layout of ", name), layout}};
  options.directory = DirectoryOf(worker, name);
  options.pinned_bytes = settings.pinned_bytes;
  absl::Status status = FindDeviceAndLibrary(worker, device, options);
  if (status.ok()) {
    auto opened = NodeGroup::Open(options);
    if (opened.ok()) return opened;
    status = opened.status();
  }
  const std::string why =
      absl::StrCat("The ranks of this node do not reduce among themselves: ", status.message(),
                   " (BASIN_LOCAL_GROUP is ", settings.wish);
  if (!settings.local.required) {
    worker.log()(BASIN_LOG_WARNING,
                 absl::StrCat("worker ", worker.id(), " of job ", worker.job(), ": ", why,
                              "; each rank contributes for itself)."));
  }
  ReportToOthers(worker, options, status);
  if (!settings.local.required) return nullptr;
  return absl::Status(status.code(), absl::StrCat(why, "; off leaves out the group)."));
}

absl::Status Check(const basin_group* group) {
  if (group == nullptr) {
    return absl::InvalidArgumentError(
        "The group is null. Pass the group that basin_group_open returned.");
  }
  if (group->process != getpid()) {
    return absl::FailedPreconditionError(
        "The parent of this process opened the group, and a child cannot use it. Call from the "
        "parent.");
  }
  return absl::OkStatus();
}

absl::Status CheckOpen(const basin_group* group) {
  if (absl::Status status = Check(group); !status.ok()) return status;
  if (group->open) return absl::OkStatus();
  return absl::FailedPreconditionError("The group has no open turn. Call basin_group_turn first.");
}

SteadyTime Until(int64_t timeout) {
  // A wait that never ends would overflow the clock; nobody notices the end of this one.
  constexpr std::chrono::hours kForever{24 * 365};
  const auto now = std::chrono::steady_clock::now();
  const std::chrono::nanoseconds most = kForever;
  if (timeout < 0 || timeout > most.count()) return now + kForever;
  return now + std::chrono::nanoseconds(timeout);
}

absl::StatusOr<NodeTensor> TensorOf(const basin_grouped& in, size_t index) {
  const std::string what = absl::StrCat("The dtype of tensor ", index, " of the bucket");
  const auto dtype = EnumOf<basin::DType>(what, in.dtype, BASIN_U8);
  if (!dtype.ok()) return dtype.status();
  const auto result = EnumOf<basin::DType>(what, in.result, BASIN_U8);
  if (!result.ok()) return result.status();
  NodeTensor tensor;
  tensor.dtype = *dtype;
  tensor.result = *result;
  tensor.count = in.count;
  tensor.input = in.in;
  tensor.output = in.out;
  tensor.stream = in.stream;
  return tensor;
}

}  // namespace

extern "C" {

basin_code basin_group_open(basin_worker* worker, int32_t device, const char* name,
                            const char* layout, basin_group** group, basin_error** error) {
  absl::Status status = basin::c::Check(worker);
  if (status.ok() && group == nullptr) {
    status = absl::InvalidArgumentError("The place for the group is null. Pass its address.");
  }
  if (!status.ok()) return Return(status, error);
  *group = nullptr;
  if (!worker->group().local.grouped) return BASIN_OK;
  auto opened = Open(*worker, device, basin::c::Text(name), basin::c::Text(layout));
  if (!opened.ok()) return Return(opened.status(), error);
  if (*opened == nullptr) return BASIN_OK;
  *group = new basin_group;
  (*group)->node = *std::move(opened);
  return BASIN_OK;
}

void basin_group_close(basin_group* group) {
  if (group == nullptr) return;
  // In a child the threads do not exist, and waiting for them would never end.
  if (group->process != getpid()) static_cast<void>(group->node.release());
  delete group;
}

basin_code basin_group_turn(basin_group* group, int64_t timeout, basin_turn* turn,
                            basin_error** error) {
  absl::Status status = Check(group);
  if (status.ok() && turn == nullptr) {
    status = absl::InvalidArgumentError("The turn is null. Begin with BASIN_TURN_INIT.");
  }
  if (status.ok() && group->open) {
    status = absl::FailedPreconditionError("The turn has not ended. Call basin_group_end first.");
  }
  if (!status.ok()) return Return(status, error);
  auto next = group->node->NextTurn(Until(timeout));
  if (!next.ok()) return Return(next.status(), error);
  basin_turn out = BASIN_TURN_INIT;
  if (*next) {
    group->turn = *std::move(*next);
    group->open = true;
    out.members = static_cast<uint32_t>(group->turn.members);
    out.leads = group->turn.leads ? 1 : 0;
  }
  out.size = std::min(turn->size, sizeof(out));
  std::memcpy(turn, &out, out.size);
  return BASIN_OK;
}

size_t basin_group_leader(const basin_group* group, char* id, size_t size) {
  if (!Check(group).ok()) return 0;
  return basin::c::CopyText(group->turn.leader, id, size);
}

basin_local_reduction basin_group_reduction(const basin_group* group) {
  if (!Check(group).ok()) return BASIN_LOCAL_NONE;
  return static_cast<basin_local_reduction>(group->turn.reduction);
}

size_t basin_group_reduced_with(const basin_group* group, uint32_t index, char* id, size_t size) {
  if (!Check(group).ok() || index >= group->turn.others.size()) return 0;
  return basin::c::CopyText(group->turn.others[index], id, size);
}

basin_code basin_group_reduce(basin_group* group, basin_op op, const basin_grouped* tensors,
                              size_t count, basin_error** error) {
  absl::Status status = CheckOpen(group);
  if (status.ok() && tensors == nullptr && count > 0) {
    status = absl::InvalidArgumentError("The tensors of the bucket are null. Pass them.");
  }
  if (!status.ok()) return Return(status, error);
  const auto combines = EnumOf<basin::ReduceOp>("The op of the bucket", op, BASIN_PRODUCT);
  if (!combines.ok()) return Return(combines.status(), error);
  std::vector<NodeTensor> bucket;
  bucket.reserve(count);
  for (size_t i = 0; i < count; ++i) {
    auto tensor = TensorOf(tensors[i], i);
    if (!tensor.ok()) return Return(tensor.status(), error);
    bucket.push_back(*std::move(tensor));
  }
  return Return(group->node->Reduce(*combines, bucket), error);
}

basin_code basin_group_end(basin_group* group, int64_t timeout, basin_phase* phase,
                           basin_error** error) {
  absl::Status status = CheckOpen(group);
  if (status.ok() && phase == nullptr) {
    status = absl::InvalidArgumentError("The place for the phase is null. Pass its address.");
  }
  if (!status.ok()) return Return(status, error);
  const auto end = group->node->End(Until(timeout));
  if (!end.ok()) return Return(end.status(), error);
  *phase = BASIN_PHASE_OPEN;
  if (!*end) return BASIN_OK;
  group->open = false;
  switch (**end) {
    case PhaseEnd::kEnded:
      *phase = BASIN_PHASE_ENDED;
      break;
    case PhaseEnd::kAlone:
      *phase = BASIN_PHASE_ALONE;
      break;
  }
  return BASIN_OK;
}

basin_code basin_group_fail(basin_group* group, const char* reason, basin_error** error) {
  absl::Status status = CheckOpen(group);
  if (status.ok()) group->node->Fail(basin::c::Text(reason));
  return Return(status, error);
}

basin_code basin_group_share(basin_group* group, basin_worker* worker, uint32_t lane,
                             const basin_shared* tensors, size_t count, void* stream,
                             int64_t timeout, basin_error** error) {
  absl::Status status = Check(group);
  if (status.ok()) status = basin::c::Check(worker);
  if (status.ok() && group->open) {
    status = absl::FailedPreconditionError("The turn has not ended. Call basin_group_end first.");
  }
  if (status.ok() && tensors == nullptr && count > 0) {
    status = absl::InvalidArgumentError("The tensors to share are null. Pass them.");
  }
  if (!status.ok()) return Return(status, error);
  std::vector<SharedTensor> shared;
  shared.reserve(count);
  for (size_t i = 0; i < count; ++i) {
    shared.push_back({tensors[i].tensor, tensors[i].memory, tensors[i].bytes});
  }
  return Return(
      group->node->Share(worker->client(), lane, shared, stream, basin::c::Timeout(timeout)),
      error);
}

}  // extern "C"
