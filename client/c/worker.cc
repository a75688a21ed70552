// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "client/c/worker.h"

#include <pthread.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "accelerator/device/cuda_device.h"
#include "client/c/error.h"
#include "proto/wire/status_detail.h"
#include "runtime/grpc/ending.h"
#include "runtime/signals_blocked.h"
#include "runtime/standard_streams.h"

namespace {

using basin::c::Check;
using basin::c::Return;

// How long gRPC takes at most to end: its threads look around once a second.
constexpr absl::Duration kGrpcEnds = absl::Seconds(2);

// The workers of this process, which share gRPC, as it is global itself.
std::atomic<int> open_workers{0};

std::string NameOf(const basin::c::Settings& settings) {
  return absl::StrCat("worker ", settings.core.worker, " of job ", settings.core.job);
}

basin::client::JobView ViewOf(basin_worker* worker) {
  return Check(worker).ok() ? worker->client().view() : basin::client::JobView();
}

}  // namespace

namespace basin::c {

size_t CopyText(const std::string& text, char* to, size_t size) {
  if (to != nullptr && size > 0) {
    const size_t copied = std::min(text.size(), size - 1);
    std::memcpy(to, text.data(), copied);
    to[copied] = '\0';
  }
  return text.size();
}

absl::Status Check(const basin_worker* worker) {
  if (worker == nullptr) {
    return absl::InvalidArgumentError(
        "The worker is null. Pass the worker that basin_connect returned.");
  }
  if (!worker->here()) {
    return absl::FailedPreconditionError(
        "The parent of this process connected the worker, and a child cannot use it. Call from the "
        "parent, or connect in a new program.");
  }
  return absl::OkStatus();
}

absl::StatusOr<TensorSpec> SpecOf(const basin_tensor* tensor) {
  if (tensor == nullptr || tensor->name == nullptr ||
      (tensor->rank > 0 && tensor->shape == nullptr)) {
    return absl::InvalidArgumentError("A tensor has no name or no shape. Give it both.");
  }
  const auto dtype =
      EnumOf<DType>(absl::StrCat("The dtype of tensor ", tensor->name), tensor->dtype, BASIN_U8);
  if (!dtype.ok()) return dtype.status();
  TensorSpec spec;
  spec.name = tensor->name;
  spec.dtype = *dtype;
  spec.shape.assign(tensor->shape, tensor->shape + tensor->rank);
  return spec;
}

}  // namespace basin::c

absl::StatusOr<std::unique_ptr<basin_worker>> basin_worker::Connect(basin::c::Settings settings,
                                                                    basin::c::Log log) {
  const basin::SignalsBlocked blocked;
  std::unique_ptr<basin_worker> worker(new basin_worker(settings, log));
  if (worker->event_fd_ < 0) {
    return absl::ResourceExhaustedError(
        "No file descriptor is left for the worker's events. Raise the limit of open files.");
  }
  if (!settings.launcher_decision.empty()) {
    log(BASIN_LOG_INFO, absl::StrCat(NameOf(settings), ": ", settings.launcher_decision));
  }
  basin::client::WorkerOptions options;
  if (!settings.timeline.path.empty()) {
    auto opened = basin::c::TimelineFile::Open(settings, log, NameOf(settings));
    if (!opened.ok()) return opened.status();
    worker->timeline_ = *std::move(opened);
    options.timeline = worker->timeline_->timeline();
  }
  options.core = std::move(settings.core);
  options.on_view = [self = worker.get()](const basin::client::JobView& view) {
    self->report_.OnView(view);
    self->Signal();
  };
  options.ended = [self = worker.get()](basin::client::LaneHandle) { self->Signal(); };
  auto connected =
      basin::client::Worker::Connect(std::move(options), *worker->connector_, worker->clock_);
  if (!connected.ok()) return connected.status();
  worker->worker_ = *std::move(connected);
  worker->states_ = std::make_unique<basin::client::States>(*worker->worker_, worker->clock_,
                                                            worker->id_, worker->job_);
  worker->rows_ =
      std::make_unique<basin::client::RowCalls>(*worker->worker_, worker->clock_, worker->id_);
  worker->transfers_ = std::make_unique<basin::client::DeviceTransfers>(
      *worker->worker_, basin::accelerator::OpenCudaDevice, settings.pinned_bytes);
  return worker;
}

basin_worker::basin_worker(const basin::c::Settings& settings, basin::c::Log log)
    : process_(getpid()),
      alone_(!basin::IsGrpcInUse()),
      id_(settings.core.worker),
      job_(settings.core.job),
      run_(settings.core.run),
      group_(settings.group),
      log_(log),
      event_fd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      report_(log, NameOf(settings)),
      connector_(std::make_unique<basin::client::GrpcConnector>(
          settings.address, settings.tls, basin::GrpcSettings{}, basin::StreamWindow{},
          settings.token_file, settings.local)) {
  ++open_workers;
}

basin_worker::~basin_worker() {
  transfers_.reset();  // Before the worker, to which it passes tensors.
  worker_.reset();
  timeline_.reset();  // After the worker, whose last rounds it has.
  connector_.reset();
  --open_workers;
  if (event_fd_ >= 0) close(event_fd_);
}

void basin_worker::Delete(std::unique_ptr<basin_worker> worker) {
  const bool alone = worker->alone_;
  worker.reset();
  if (alone && open_workers == 0) basin::AwaitGrpcEnd(kGrpcEnds);
}

void basin_worker::Close(std::unique_ptr<basin_worker> worker) {
  if (!worker->client().InLoop()) return Delete(std::move(worker));
  // After this, memory that the caller may free when this returns is not used: the log's user data,
  // and values that were announced in place.
  worker->report_.Silence();
  if (worker->timeline_ != nullptr) worker->timeline_->Silence();
  worker->client().values().BeginStep();
  // The thread is never joined. When the process ends meanwhile, it is like the thread of a worker
  // that was not closed: nothing of this library is destroyed at the end of a process.
  const basin::SignalsBlocked blocked;
  std::thread([worker = std::move(worker)]() mutable {
    pthread_setname_np(pthread_self(), "basin-close");
    worker.reset();
  }).detach();
}

bool basin_worker::here() const { return getpid() == process_; }

void basin_worker::KeepReporting(std::unique_ptr<basin::accelerator::node::Runner> why_not) {
  {
    const basin::MutexLock lock(mutex_);
    why_not_.swap(why_not);
  }
  // The earlier one ends without the lock.
}

void basin_worker::SetBatch(uint32_t lane, basin::SampleProgress batch) {
  const basin::MutexLock lock(mutex_);
  batches_[lane] = std::move(batch);
}

void basin_worker::SetCall(uint32_t lane, std::vector<basin::TensorSpec> arrays) {
  basin::MutexLock lock(mutex_);
  calls_[lane] = std::move(arrays);
}

std::optional<std::vector<basin::TensorSpec>> basin_worker::Call(uint32_t lane) const {
  basin::MutexLock lock(mutex_);
  const auto found = calls_.find(lane);
  if (found == calls_.end()) return std::nullopt;
  return found->second;
}

basin::SampleProgress basin_worker::Batch(uint32_t lane) const {
  const basin::MutexLock lock(mutex_);
  const auto it = batches_.find(lane);
  return it == batches_.end() ? basin::SampleProgress{} : it->second;
}

void basin_worker::Signal() const {
  const uint64_t one = 1;
  // Fails only when the counter is full, and then the descriptor is readable anyway.
  [[maybe_unused]] const ssize_t written = write(event_fd_, &one, sizeof(one));
}

extern "C" {

uint32_t basin_abi_version(void) { return BASIN_ABI_VERSION; }

const char* basin_version(void) { return BASIN_VERSION; }

basin_code basin_connect(const basin_options* options, basin_worker** worker, basin_error** error) {
  if (options == nullptr || worker == nullptr) {
    return Return(absl::InvalidArgumentError("The options, or the place for the worker, are null. "
                                             "Create options with basin_options_new."),
                  error);
  }
  auto settings = options->Resolve();
  if (!settings.ok()) return Return(settings.status(), error);
  basin::OpenMissingStreams();
  auto connected = basin_worker::Connect(*std::move(settings), options->log());
  if (!connected.ok()) return Return(connected.status(), error);
  *worker = connected->release();
  return BASIN_OK;
}

void basin_close(basin_worker* worker) {
  // In a child there are no threads that could be stopped.
  if (worker != nullptr && worker->here()) {
    basin_worker::Close(std::unique_ptr<basin_worker>(worker));
  }
}

basin_code basin_get_place(basin_worker* worker, basin_place* place, basin_error** error) {
  if (absl::Status status = Check(worker); !status.ok()) return Return(status, error);
  if (place == nullptr) return Return(absl::InvalidArgumentError("The place is null."), error);
  const basin::client::JobView now = worker->client().view();
  basin_place out = BASIN_PLACE_INIT;
  out.role = static_cast<basin_role>(now.role);
  out.rank = now.rank.value_or(0);
  const basin::MemberList& members = now.membership.members;
  out.world_size = members.trainers();
  out.members = static_cast<uint32_t>(members.size());
  if (now.rank.has_value()) {
    const size_t position = members.PositionOf(*now.rank).value_or(0);
    out.first_rank = members.FirstRank(position);
    out.ranks = members.RanksOf(position);
  }
  out.generation_term = now.membership.generation.term;
  out.generation_counter = now.membership.generation.counter;
  out.joins = now.joins;
  out.has_donor = now.donor.has_value() ? 1 : 0;
  out.is_donor = now.donor == worker->id() ? 1 : 0;
  out.draining = now.draining ? 1 : 0;
  out.left = now.left ? 1 : 0;
  out.donor_term = now.donor_since.term;
  out.donor_counter = now.donor_since.counter;
  if (now.expected.has_value()) {
    out.expected_rank = now.expected->rank;
    out.expected_world_size = now.expected->world_size;
  }
  // The part that fits the structure of an older caller.
  const size_t size = std::min(place->size, sizeof(out));
  out.size = place->size;
  std::memcpy(place, &out, size);
  return now.fatal.has_value() ? Return(*now.fatal, error) : BASIN_OK;
}

size_t basin_member_id(basin_worker* worker, uint32_t rank, char* id, size_t size) {
  const basin::client::JobView view = ViewOf(worker);
  const basin::MemberList& members = view.membership.members;
  const std::optional<size_t> position = members.PositionOf(rank);
  return basin::c::CopyText(position.has_value() ? members[*position] : "", id, size);
}

size_t basin_donor_id(basin_worker* worker, char* id, size_t size) {
  return basin::c::CopyText(ViewOf(worker).donor.value_or(""), id, size);
}

size_t basin_worker_id(basin_worker* worker, char* id, size_t size) {
  return basin::c::CopyText(worker == nullptr ? "" : worker->id(), id, size);
}

basin_code basin_ready(basin_worker* worker, uint64_t step, uint64_t state_hash,
                       basin_error** error) {
  absl::Status status = Check(worker);
  if (status.ok()) status = worker->states().Ready(step, state_hash);
  return Return(status, error);
}

basin_code basin_set_ranks(basin_worker* worker, uint32_t ranks, uint32_t local_rank,
                           basin_error** error) {
  absl::Status status = Check(worker);
  if (status.ok()) status = worker->client().Call(basin::client::SetRanks{ranks, local_rank});
  return Return(status, error);
}

basin_code basin_await_welcome(basin_worker* worker, int64_t timeout, basin_error** error) {
  absl::Status status = Check(worker);
  if (status.ok()) status = worker->client().AwaitWelcome(basin::c::Timeout(timeout));
  return Return(status, error);
}

basin_code basin_await_member(basin_worker* worker, int64_t timeout, basin_error** error) {
  absl::Status status = Check(worker);
  if (status.ok()) status = worker->states().AwaitMember(basin::c::Timeout(timeout));
  return Return(status, error);
}

basin_code basin_event_fd(basin_worker* worker, int* fd, basin_error** error) {
  absl::Status status = Check(worker);
  if (status.ok() && fd == nullptr) status = absl::InvalidArgumentError("The descriptor is null.");
  if (status.ok()) *fd = worker->event_fd();
  return Return(status, error);
}

basin_code basin_busy(basin_worker* worker, const char* reason, int64_t expected,
                      basin_error** error) {
  absl::Status status = Check(worker);
  if (status.ok()) {
    status = worker->client().Call(
        basin::client::SetBusy{basin::c::Text(reason), basin::c::Timeout(expected)});
  }
  return Return(status, error);
}

basin_code basin_finished(basin_worker* worker, basin_error** error) {
  absl::Status status = Check(worker);
  if (status.ok()) status = worker->client().Call(basin::client::Finish{});
  return Return(status, error);
}

basin_code basin_will_leave(basin_worker* worker, basin_error** error) {
  absl::Status status = Check(worker);
  if (status.ok()) status = worker->client().Call(basin::client::WillLeave{});
  return Return(status, error);
}

basin_code basin_leave(basin_worker* worker, basin_error** error) {
  absl::Status status = Check(worker);
  if (status.ok()) status = worker->client().Leave();
  return Return(status, error);
}

}  // extern "C"
