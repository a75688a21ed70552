// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The C++ interface of the Basin client: basin.h with destructors, values and typed errors. Headers
// only, over the C interface, so it works with any compiler and standard library.
//
//   basin::Options options;                                     // and what BASIN_* sets
//   basin::Result<basin::Worker> worker = basin::Worker::Connect(options);
//   basin::Result<basin::Lane> lane = worker->Register("model", tensors);
//   basin::Status status = worker->Ready();
//   status = worker->AwaitMember(5min);
//   each step:
//     status = lane->Begin(basin::RoundSpec(basin::Op::kAverage));
//     status = lane->Push(i, gradient, bytes);                  // as each gradient is ready
//     status = lane->Commit();
//     basin::Result<basin::RoundResult> result = lane->Wait(60s);
//     status = result->Copy(i, gradient, bytes);
//
// Tensors are named by their position among the registered ones.
//
// Buffers, threads and fork are as in basin.h. In short: the library may read a pushed tensor until
// Wait or the callback has reported the outcome of the round, or Abandon or the worker's destructor
// has returned; a tensor that is announced in place, until it is announced again, or StopServing or
// the destructor has returned; other memory is used during the call only.
//
// Thread contract: every function may be called from any thread at any time; the worker's
// destructor comes last. In a callback the destructor returns at once: the library may then read
// pushed tensors until the callback of their round is called. Failure: a Status whose message ends
// with what to do next. Nothing throws, except if memory cannot be allocated.

#ifndef BASIN_CLIENT_H_
#define BASIN_CLIENT_H_

#include <basin/basin.h>
#include <basin/status.h>
#include <basin/types.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace basin {
inline namespace abi1 {

// ---- options

class Options {
 public:
  enum class Environment { kRead, kIgnore };

  explicit Options(Environment environment = Environment::kRead)
      : options_(
            basin_options_new(environment == Environment::kRead ? BASIN_READ_ENVIRONMENT : 0)) {}

  // Keys and values are listed in docs/client.md.
  Status Set(const std::string& key, const std::string& value) {
    internal::Taken error;
    basin_options_set(options_.get(), key.c_str(), value.c_str(), error.out());
    return error.Take();
  }
  // The value that Connect would use; absent if there is none.
  std::optional<std::string> Get(const std::string& key) const {
    const char* value = basin_options_get(options_.get(), key.c_str());
    return value == nullptr ? std::nullopt : std::optional<std::string>(value);
  }

  // Called from threads of the library, also at once; it must not block. Null: silence.
  using Log = std::function<void(LogLevel level, const std::string& message)>;
  void SetLog(Log log) {
    log_ = log == nullptr ? nullptr : std::make_shared<Log>(std::move(log));
    basin_options_set_log(options_.get(), log_ == nullptr ? nullptr : &Forward, log_.get());
  }

 private:
  friend class Worker;

  static void Forward(void* user, basin_log_level level, const char* message) {
    (*static_cast<Log*>(user))(static_cast<LogLevel>(level), message);
  }

  struct Free {
    void operator()(basin_options* options) const { basin_options_free(options); }
  };
  std::shared_ptr<Log> log_;  // Kept by each worker, too.
  std::unique_ptr<basin_options, Free> options_;
};

// ---- results

// The result of a committed round. It holds the received bytes: destroy it before the results of
// the next round arrive, or both stay in memory. Constant, so safe from any thread.
class RoundResult {
 public:
  // Takes ownership of a result of the C interface.
  RoundResult(basin_result* result, std::shared_ptr<const std::vector<std::uint32_t>> handles)
      : result_(result), handles_(std::move(handles)) {}

  RoundInfo info() const {
    basin_round_info from = BASIN_ROUND_INFO_INIT;
    basin_result_info(result_.get(), &from);
    RoundInfo info;
    info.round = from.round;
    info.generation = {from.generation_term, from.generation_counter};
    info.world_size = from.world_size;
    info.contract_version = from.contract_version;
    info.spec.op = static_cast<Op>(from.op);
    info.spec.prescale = from.prescale;
    info.spec.postscale = from.postscale;
    info.spec.predivide = from.predivide;
    info.spec.auto_predivide = from.auto_predivide != 0;
    info.spec.contributes_sum = from.contributes_sum != 0;
    info.spec.weight = static_cast<Weight>(from.weight);
    info.spec.divide_by_present = from.divide_by_present != 0;
    info.spec.loss_scale = from.loss_scale;
    info.spec.layout = from.layout;
    info.spec.counts = {Known(from.samples), Known(from.tokens), Known(from.micro_batches)};
    for (std::uint32_t i = 0; i < from.contributors; ++i) {
      info.contributors.push_back(ContributorAt(i));
    }
    for (std::uint32_t i = 0;; ++i) {
      const char* const worker = basin_result_late(result_.get(), i);
      if (worker == nullptr) break;
      info.late.emplace_back(worker);
    }
    info.late_carries = from.late_carries != 0;
    info.trainers = from.trainers;
    info.divisor = from.divisor;
    info.weights = from.weights;
    info.squared_norm = Norm(from.squared_norm);
    info.overflow = from.overflow != 0;
    if (from.has_nonfinite != 0) {
      info.nonfinite =
          NonFinite{basin_result_nonfinite_worker(result_.get()),
                    basin_result_nonfinite_tensor(result_.get()), from.nonfinite_element};
    }
    info.chain = from.chain;
    if (from.has_sample_epoch != 0) {
      info.samples = RoundSamples{from.sample_epoch, from.samples_committed, from.epoch_committed,
                                  from.epoch_ended != 0};
    }
    return info;
  }

  // Why this worker's contribution was not counted as it was sent; OK: it was.
  Status rejection() const { return Status(basin_result_rejection(result_.get())); }

  // Whether the tensor has a result: a worker with a weight above 0 contributed to it.
  bool Has(std::size_t tensor) const {
    return tensor < handles_->size() && basin_result_has(result_.get(), (*handles_)[tensor]) != 0;
  }

  // The divisor of the tensor's average, 0 without a result; and the squared norm of its result,
  // absent without a result and for integers. The norms of all tensors sum to that of the round.
  std::uint64_t Divisor(std::size_t tensor) const {
    return basin_result_divisor(result_.get(), HandleOf(tensor));
  }
  std::optional<double> SquaredNorm(std::size_t tensor) const {
    return Norm(basin_result_squared_norm(result_.get(), HandleOf(tensor)));
  }

  // Copies the tensor, `bytes` in C order and the tensor's dtype. kNotFound without a result.
  Status Copy(std::size_t tensor, void* to, std::size_t bytes) const {
    internal::Taken error;
    basin_result_copy(result_.get(), HandleOf(tensor), to, bytes, error.out());
    return error.Take();
  }

  // For functions that this class lacks.
  const basin_result* c() const { return result_.get(); }

  // Instead of a copy: calls take(data, bytes) for each piece of the tensor, in order, where it was
  // received.
  template <typename Take>
  void ForEachPiece(std::size_t tensor, Take&& take) const {
    const void* data = nullptr;
    std::size_t bytes = 0;
    for (std::size_t i = 0;
         basin_result_piece(result_.get(), HandleOf(tensor), i, &data, &bytes) != 0; ++i) {
      take(data, bytes);
    }
  }

 private:
  static std::optional<std::int64_t> Known(std::int64_t count) {
    return count < 0 ? std::nullopt : std::optional<std::int64_t>(count);
  }
  // A norm may be NaN, which is there.
  static std::optional<double> Norm(double squared_norm) {
    return squared_norm < 0 ? std::nullopt : std::optional<double>(squared_norm);
  }
  Contributor ContributorAt(std::uint32_t index) const {
    Contributor contributor;
    contributor.worker = basin_result_contributor(result_.get(), index);
    contributor.weight = basin_result_contributor_weight(result_.get(), index);
    contributor.squared_norm = Norm(basin_result_contributor_squared_norm(result_.get(), index));
    contributor.ranks = basin_result_contributor_ranks(result_.get(), index);
    contributor.deferred = basin_result_contributor_deferred(result_.get(), index);
    contributor.local_reduction =
        static_cast<LocalReduction>(basin_result_contributor_local_reduction(result_.get(), index));
    for (std::uint32_t i = 0;; ++i) {
      const char* const other = basin_result_contributor_reduced_with(result_.get(), index, i);
      if (other == nullptr) break;
      contributor.reduced_with.emplace_back(other);
    }
    return contributor;
  }
  // An invalid handle for a tensor that was not registered: the library refuses it.
  std::uint32_t HandleOf(std::size_t tensor) const {
    return tensor < handles_->size() ? (*handles_)[tensor] : UINT32_MAX;
  }

  struct Free {
    void operator()(basin_result* result) const { basin_result_free(result); }
  };
  std::unique_ptr<basin_result, Free> result_;
  std::shared_ptr<const std::vector<std::uint32_t>> handles_;
};

// ---- lanes

namespace internal {

// A specification for the C interface. Refers to the one that it was made of.
class SpecInC {
 public:
  explicit SpecInC(const RoundSpec& spec) {
    others_.reserve(spec.reduced_with.size());
    for (const std::string& id : spec.reduced_with) others_.push_back(id.c_str());
    c_.op = static_cast<basin_op>(spec.op);
    c_.prescale = spec.prescale;
    c_.postscale = spec.postscale;
    c_.predivide = spec.predivide;
    c_.auto_predivide = spec.auto_predivide ? 1 : 0;
    c_.contributes_sum = spec.contributes_sum ? 1 : 0;
    c_.weight = static_cast<basin_weight>(spec.weight);
    c_.divide_by_present = spec.divide_by_present ? 1 : 0;
    c_.loss_scale = spec.loss_scale;
    c_.layout = spec.layout;
    c_.samples = spec.counts.samples.value_or(-1);
    c_.tokens = spec.counts.tokens.value_or(-1);
    c_.micro_batches = spec.counts.micro_batches.value_or(-1);
    c_.step = spec.step;
    c_.carries = spec.carries;
    c_.local_reduction = static_cast<basin_local_reduction>(spec.local_reduction);
    c_.reduced_with_count = static_cast<std::uint32_t>(others_.size());
    c_.reduced_with = others_.data();
    c_.compares_step = spec.compares_step ? 1 : 0;
    c_.sample_ranges = spec.samples.data();
    c_.sample_range_count = spec.samples.size();
    c_.sample_epoch = spec.sample_epoch;
    c_.optimizer = spec.optimizer.c_str();
    c_.call = spec.call.c_str();
    c_.deferred = spec.deferred;
  }
  SpecInC(const SpecInC&) = delete;
  SpecInC& operator=(const SpecInC&) = delete;

  const basin_round_spec* get() const { return &c_; }

 private:
  std::vector<const char*> others_;
  basin_round_spec c_ = BASIN_ROUND_SPEC_INIT;
};

}  // namespace internal

// A lane of a worker, with the tensors that it was registered with. A plain handle: copies refer to
// the same lane. REQUIRES: the worker exists while it is used.
class Lane {
 public:
  struct Buffer {
    std::size_t tensor = 0;
    const void* in = nullptr;
    void* out = nullptr;    // May be `in`. Unchanged if no worker contributed to the tensor.
    std::size_t bytes = 0;  // At `in`, and at `out`.
  };

  // Called once, on the library's thread; it must not block.
  using Done = std::function<void(Result<RoundResult> outcome)>;

  // A worker that joined with a donor has loaded the state before its first round.
  Status Begin(const RoundSpec& spec) {
    const internal::SpecInC c(spec);
    internal::Taken error;
    basin_begin(worker_, lane_, c.get(), error.out());
    return error.Take();
  }
  // kInvalidArgument for another number of bytes than the tensor has.
  Status Push(std::size_t tensor, const void* data, std::size_t bytes) {
    internal::Taken error;
    basin_push(worker_, lane_, HandleOf(tensor), data, bytes, error.out());
    return error.Take();
  }
  // An f32 tensor travels as f16 or bf16, times 2^exponent, which is undone on arrival. For f16 the
  // exponent may be kFitExponent. `bytes` are those of f32.
  Status PushNarrow(std::size_t tensor, const void* data, std::size_t bytes, DType as,
                    std::int32_t exponent = 0) {
    internal::Taken error;
    basin_push_narrow(worker_, lane_, HandleOf(tensor), data, bytes, static_cast<basin_dtype>(as),
                      exponent, error.out());
    return error.Take();
  }
  // Where the tensors of a call are: a CUDA device, and the cudaStream_t that uses them, null for
  // the default stream.
  struct Cuda {
    std::int32_t device = 0;
    void* stream = nullptr;
  };
  // Pushes tensors that are on a device, each from `in`; returns at once, and Commit waits for the
  // copies. See basin_push_device.
  Status PushDevice(const std::vector<Buffer>& tensors, Cuda where) {
    std::vector<basin_pushed> list;
    list.reserve(tensors.size());
    for (const Buffer& tensor : tensors) {
      list.push_back({HandleOf(tensor.tensor), tensor.in, tensor.bytes, BASIN_SAME_DTYPE, 0});
    }
    internal::Taken error;
    basin_push_device(worker_, lane_, list.data(), list.size(), where.device, where.stream,
                      error.out());
    return error.Take();
  }
  // Copies tensors of a result of this lane to the device, each to `out`, in the order of the
  // stream. See basin_result_copy_device.
  Status CopyDevice(const RoundResult& result, const std::vector<Buffer>& tensors, Cuda where) {
    const std::vector<basin_buffer> list = ToC(tensors);
    internal::Taken error;
    basin_result_copy_device(worker_, result.c(), list.data(), list.size(), where.device,
                             where.stream, error.out());
    return error.Take();
  }
  Status Skip(std::size_t tensor) {
    internal::Taken error;
    basin_skip(worker_, lane_, HandleOf(tensor), error.out());
    return error.Take();
  }
  Status Commit() {
    internal::Taken error;
    basin_commit(worker_, lane_, nullptr, nullptr, error.out());
    return error.Take();
  }
  Status Commit(Done done) {
    auto pending = std::make_unique<Pending>(Pending{std::move(done), handles_});
    internal::Taken error;
    if (basin_commit(worker_, lane_, &Report, pending.get(), error.out()) == BASIN_OK) {
      static_cast<void>(pending.release());  // Report deletes it.
    }
    return error.Take();
  }
  Status Withdraw(const std::string& reason) {
    internal::Taken error;
    basin_withdraw(worker_, lane_, reason.c_str(), nullptr, nullptr, error.out());
    return error.Take();
  }
  Status Withdraw(const std::string& reason, Done done) {
    auto pending = std::make_unique<Pending>(Pending{std::move(done), handles_});
    internal::Taken error;
    if (basin_withdraw(worker_, lane_, reason.c_str(), &Report, pending.get(), error.out()) ==
        BASIN_OK) {
      static_cast<void>(pending.release());
    }
    return error.Take();
  }
  // After kOutcomeUnknown (the timeout) and kPaused (the job is paused) the round continues: wait
  // again.
  Result<RoundResult> Wait(Duration timeout) {
    internal::Taken error;
    basin_result* result = nullptr;
    if (basin_wait(worker_, lane_, timeout.count(), &result, error.out()) != BASIN_OK) {
      return error.Take();
    }
    return RoundResult(result, handles_);
  }

  // Begin, Push, Commit, Wait and Copy in one.
  Result<RoundResult> Allreduce(const RoundSpec& spec, const std::vector<Buffer>& buffers,
                                Duration timeout) {
    const internal::SpecInC c(spec);
    const std::vector<basin_buffer> list = ToC(buffers);
    internal::Taken error;
    basin_result* result = nullptr;
    if (basin_allreduce(worker_, lane_, c.get(), list.data(), list.size(), timeout.count(), &result,
                        error.out()) != BASIN_OK) {
      return error.Take();
    }
    return RoundResult(result, handles_);
  }

  // ---- samples; see basin.h
  // The batch of the next round, which names it.
  Result<SampleBatch> NextSamples(const SampleEpoch& epoch, std::size_t count) {
    SampleBatch batch;
    batch.positions.resize(count);
    std::size_t written = 0;
    int outcome = 0;
    internal::Taken error;
    if (basin_samples_next(worker_, lane_, &epoch, count, batch.positions.data(), &written,
                           &outcome, error.out()) != BASIN_OK) {
      return error.Take();
    }
    batch.positions.resize(written);
    batch.outcome = static_cast<LeaseOutcome>(outcome);
    return batch;
  }
  Result<LeasedSamples> LeaseSamples(const SampleEpoch& epoch, std::uint64_t count) {
    return Lease(&basin_samples_lease, epoch, count);
  }
  // This worker's share of each step of `global_batch` samples over all workers.
  Result<LeasedSamples> LeaseStep(const SampleEpoch& epoch, std::uint64_t global_batch) {
    return Lease(&basin_samples_lease_step, epoch, global_batch);
  }
  Status ReturnSamples(std::uint64_t epoch, const std::vector<SampleRange>& ranges) {
    internal::Taken error;
    basin_samples_return(worker_, lane_, epoch, ranges.data(), ranges.size(), error.out());
    return error.Take();
  }
  Result<SampleProgress> CommittedSamples() {
    SampleProgress progress;
    std::size_t written = kMostSampleRanges;
    while (progress.ranges.size() < written) {  // More may be committed meanwhile.
      progress.ranges.resize(written);
      internal::Taken error;
      if (basin_samples_committed(worker_, lane_, &progress.epoch, progress.ranges.data(),
                                  progress.ranges.size(), &written, error.out()) != BASIN_OK) {
        return error.Take();
      }
    }
    progress.ranges.resize(written);
    return progress;
  }
  Status ResumeSamples(const SampleProgress& committed) {
    internal::Taken error;
    basin_samples_resume(worker_, lane_, &committed.epoch, committed.ranges.data(),
                         committed.ranges.size(), error.out());
    return error.Take();
  }
  Result<BatchProgress> ReportBatch(std::uint64_t samples, std::uint64_t target) {
    BatchProgress batch;
    int closed = 0;
    internal::Taken error;
    if (basin_report_batch(worker_, lane_, samples, target, &batch.samples, &closed, error.out()) !=
        BASIN_OK) {
      return error.Take();
    }
    batch.closed = closed != 0;
    return batch;
  }

 private:
  friend class Worker;

  static constexpr std::size_t kMostSampleRanges = 4096;  // In one answer.

  struct Pending {
    Done done;
    std::shared_ptr<const std::vector<std::uint32_t>> handles;
  };

  Lane(basin_worker* worker, std::uint32_t lane, std::vector<std::uint32_t> handles)
      : worker_(worker),
        lane_(lane),
        handles_(std::make_shared<const std::vector<std::uint32_t>>(std::move(handles))) {}

  Result<LeasedSamples> Lease(decltype(&basin_samples_lease) call, const SampleEpoch& epoch,
                              std::uint64_t samples) {
    LeasedSamples leased;
    leased.ranges.resize(kMostSampleRanges);
    std::size_t written = 0;
    int outcome = 0;
    internal::Taken error;
    if (call(worker_, lane_, &epoch, samples, leased.ranges.data(), leased.ranges.size(), &written,
             &outcome, error.out()) != BASIN_OK) {
      return error.Take();
    }
    leased.ranges.resize(written);
    leased.outcome = static_cast<LeaseOutcome>(outcome);
    return leased;
  }

  static void Report(void* user, std::uint32_t, basin_result* result, const basin_error* error) {
    const std::unique_ptr<Pending> pending(static_cast<Pending*>(user));
    if (result != nullptr) {
      pending->done(RoundResult(result, pending->handles));
    } else {
      pending->done(Status(error));
    }
  }

  std::vector<basin_buffer> ToC(const std::vector<Buffer>& buffers) const {
    std::vector<basin_buffer> list;
    list.reserve(buffers.size());
    for (const Buffer& buffer : buffers) {
      list.push_back({HandleOf(buffer.tensor), buffer.in, buffer.out, buffer.bytes});
    }
    return list;
  }

  std::uint32_t HandleOf(std::size_t tensor) const {
    return tensor < handles_->size() ? (*handles_)[tensor] : UINT32_MAX;
  }

  basin_worker* worker_;
  std::uint32_t lane_;
  std::shared_ptr<const std::vector<std::uint32_t>> handles_;
};

// ---- workers

class Worker {
 public:
  // Starts to connect and returns at once; the worker reconnects by itself until it is destroyed.
  static Result<Worker> Connect(const Options& options) {
    internal::Taken error;
    basin_worker* worker = nullptr;
    if (basin_connect(options.options_.get(), &worker, error.out()) != BASIN_OK) {
      return error.Take();
    }
    return Worker(worker, options.log_);
  }

  Worker(Worker&&) = default;
  // Closes the old worker before what it calls until then is destroyed.
  Worker& operator=(Worker&& from) noexcept {
    worker_ = std::move(from.worker_);
    log_ = std::move(from.log_);
    states_ = std::move(from.states_);
    return *this;
  }

  // ---- the place in the job
  // An error that is fatal, once this process cannot go on with the job.
  Result<Place> place() const {
    basin_place from = BASIN_PLACE_INIT;
    internal::Taken error;
    if (basin_get_place(worker_.get(), &from, error.out()) != BASIN_OK) return error.Take();
    Place place;
    place.role = static_cast<Role>(from.role);
    place.rank = from.rank;
    place.world_size = from.world_size;
    place.generation = {from.generation_term, from.generation_counter};
    place.joins = from.joins;
    if (from.has_donor != 0) {
      place.donor = Text(
          [this](char* to, std::size_t size) { return basin_donor_id(worker_.get(), to, size); });
    }
    place.is_donor = from.is_donor != 0;
    place.donor_since = {from.donor_term, from.donor_counter};
    place.draining = from.draining != 0;
    place.left = from.left != 0;
    place.first_rank = from.first_rank;
    place.ranks = from.ranks;
    place.members = from.members;
    place.expected_rank = from.expected_rank;
    place.expected_world_size = from.expected_world_size;
    return place;
  }
  std::string id() const {
    return Text(
        [this](char* to, std::size_t size) { return basin_worker_id(worker_.get(), to, size); });
  }
  // Empty if there is no such rank.
  std::string MemberId(std::uint32_t rank) const {
    return Text([this, rank](char* to, std::size_t size) {
      return basin_member_id(worker_.get(), rank, to, size);
    });
  }
  // The worker stands for so many trainers, this one with the number `local_rank` among them; see
  // basin_set_ranks in basin.h.
  Status SetRanks(std::uint32_t ranks, std::uint32_t local_rank) {
    internal::Taken error;
    basin_set_ranks(worker_.get(), ranks, local_rank, error.out());
    return error.Take();
  }
  // Declares that the model is built and state can be loaded; necessary again after an eviction.
  Status Ready(std::uint64_t step = 0, std::uint64_t state_hash = 0) {
    internal::Taken error;
    basin_ready(worker_.get(), step, state_hash, error.out());
    return error.Take();
  }
  // Returns when the aggregator has welcomed the worker, which need not be ready.
  Status AwaitWelcome(Duration timeout) {
    internal::Taken error;
    basin_await_welcome(worker_.get(), timeout.count(), error.out());
    return error.Take();
  }
  Status AwaitMember(Duration timeout) {
    internal::Taken error;
    basin_await_member(worker_.get(), timeout.count(), error.out());
    return error.Take();
  }
  // Readable when a round has ended or the place has changed; reading its eight bytes resets it.
  Result<int> EventFd() {
    internal::Taken error;
    int fd = -1;
    if (basin_event_fd(worker_.get(), &fd, error.out()) != BASIN_OK) return error.Take();
    return fd;
  }

  // ---- memory
  // For gradients that an aggregator on the same machine reads where they lie, without a copy; see
  // basin_allocate in basin.h. Valid until Free, or until the worker is destroyed.
  Result<void*> Allocate(std::size_t bytes) {
    internal::Taken error;
    void* memory = nullptr;
    if (basin_allocate(worker_.get(), bytes, &memory, error.out()) != BASIN_OK) return error.Take();
    return memory;
  }
  Status Free(void* memory) {
    internal::Taken error;
    basin_free(worker_.get(), memory, error.out());
    return error.Take();
  }

  // ---- tensors and rounds
  // Idempotent; may be called again with more tensors. A program with thousands of names of calls
  // registers each of them again before it uses it; see basin_register.
  Result<Lane> Register(const std::string& lane, const std::vector<Tensor>& tensors,
                        LaneKind kind = LaneKind::kGradient) {
    std::vector<basin_tensor> list;
    list.reserve(tensors.size());
    for (const Tensor& tensor : tensors) list.push_back(ToC(tensor));
    std::vector<std::uint32_t> handles(tensors.size());
    std::uint32_t handle = 0;
    internal::Taken error;
    if (basin_register(worker_.get(), lane.c_str(), static_cast<basin_lane_kind>(kind), list.data(),
                       list.size(), &handle, handles.data(), error.out()) != BASIN_OK) {
      return error.Take();
    }
    return Lane(worker_.get(), handle, std::move(handles));
  }
  // Calls without a name are matched by their order in the program of each worker; see
  // basin_next_call.
  struct Array {
    DType dtype = DType::kF32;
    std::vector<std::uint64_t> shape;  // Any.
    const void* in = nullptr;
    void* out = nullptr;  // May be `in`. Unchanged if no worker contributed to the array.
  };
  // The parts of the arrays are the tensors of the lane.
  struct UnnamedCall {
    Lane lane;
    std::vector<Lane::Buffer> parts;
  };
  // The next one of this worker, until its round has begun; one thread at a time makes these calls.
  Result<UnnamedCall> NextCall(const std::vector<Array>& arrays, Duration timeout) {
    std::vector<basin_tensor> list;
    list.reserve(arrays.size());
    for (const Array& array : arrays) {
      list.push_back({nullptr, static_cast<basin_dtype>(array.dtype),
                      static_cast<std::uint32_t>(array.shape.size()), array.shape.data()});
    }
    std::vector<basin_part> parts(arrays.size() * BASIN_MOST_PARTS);
    std::size_t count = 0;
    std::uint32_t lane = 0;
    internal::Taken error;
    if (basin_next_call(worker_.get(), list.data(), list.size(), timeout.count(), &lane,
                        parts.data(), parts.size(), &count, error.out()) != BASIN_OK) {
      return error.Take();
    }
    std::vector<std::uint32_t> handles;
    std::vector<Lane::Buffer> buffers;
    for (std::size_t i = 0; i < count; ++i) {
      const Array& array = arrays[parts[i].array];
      char* const out = static_cast<char*>(array.out);
      buffers.push_back({i, static_cast<const char*>(array.in) + parts[i].offset,
                         out == nullptr ? nullptr : out + parts[i].offset, parts[i].bytes});
      handles.push_back(parts[i].tensor);
    }
    return UnnamedCall{Lane(worker_.get(), lane, std::move(handles)), std::move(buffers)};
  }
  // The next call without a name: begins it and waits for the result.
  Result<RoundResult> Allreduce(const RoundSpec& spec, const std::vector<Array>& arrays,
                                Duration timeout) {
    Result<UnnamedCall> call = NextCall(arrays, timeout);
    if (!call.ok()) return call.status();
    return call->lane.Allreduce(spec, call->parts, timeout);
  }
  // Returns when every member has called it with this name.
  Status Barrier(const std::string& name, Duration timeout) {
    internal::Taken error;
    basin_barrier(worker_.get(), name.c_str(), timeout.count(), error.out());
    return error.Take();
  }
  // Gives up every round in flight, and the membership with them. All memory is free afterwards.
  Status Abandon() {
    internal::Taken error;
    basin_abandon(worker_.get(), error.out());
    return error.Take();
  }

  // ---- values
  Status Announce(const std::string& lane, const Tensor& tensor, std::uint64_t version,
                  const void* data, std::size_t bytes, Hold hold = Hold::kCopy) {
    const basin_tensor c = ToC(tensor);
    internal::Taken error;
    basin_announce(worker_.get(), lane.c_str(), &c, version, data, bytes,
                   static_cast<basin_hold>(hold), error.out());
    return error.Take();
  }
  Status StopServing(const std::string& lane, const std::string& tensor) {
    internal::Taken error;
    basin_stop_serving(worker_.get(), lane.c_str(), tensor.c_str(), error.out());
    return error.Take();
  }
  // The value that `source` announced, or any worker if it is empty.
  Status Get(const std::string& lane, const Tensor& tensor, std::uint64_t version,
             const std::string& source, Duration timeout, void* to, std::size_t bytes) {
    const basin_tensor c = ToC(tensor);
    internal::Taken error;
    basin_get(worker_.get(), lane.c_str(), &c, version, source.empty() ? nullptr : source.c_str(),
              timeout.count(), to, bytes, error.out());
    return error.Take();
  }
  // The worker of rank `root` announces `data`, the others receive it there.
  Status Broadcast(const std::string& lane, const Tensor& tensor, std::uint64_t version,
                   std::uint32_t root, void* data, std::size_t bytes, Duration timeout) {
    const basin_tensor c = ToC(tensor);
    internal::Taken error;
    basin_broadcast(worker_.get(), lane.c_str(), &c, version, root, data, bytes, timeout.count(),
                    error.out());
    return error.Take();
  }

  // ---- states: what a worker that joins late must have; see basin_state_register in basin.h
  // Before Ready. Begin and Wait serve the memory, which AwaitMember writes in a joiner.
  Status RegisterState(const std::string& name, void* memory, std::size_t bytes) {
    internal::Taken error;
    basin_state_register_memory(worker_.get(), name.c_str(), memory, bytes, error.out());
    return error.Take();
  }
  // The same for a content of any size. `model`: equal on all workers. The functions must not call
  // the worker.
  using GetState = std::function<Result<std::string>()>;
  using SetState = std::function<Status(std::string_view content)>;
  Status RegisterState(const std::string& name, const std::string& model, GetState get,
                       SetState set) {
    auto state = std::make_unique<State>(State{std::move(get), std::move(set), "", ""});
    internal::Taken error;
    if (basin_state_register(worker_.get(), name.c_str(), model.c_str(), &State::Get, &State::Set,
                             state.get(), error.out()) == BASIN_OK) {
      states_.push_back(std::move(state));
    }
    return error.Take();
  }

  // ---- how it is going
  Status Busy(const std::string& reason, Duration expected) {
    internal::Taken error;
    basin_busy(worker_.get(), reason.c_str(), expected.count(), error.out());
    return error.Take();
  }
  Status Finished() {
    internal::Taken error;
    basin_finished(worker_.get(), error.out());
    return error.Take();
  }
  // The trainer leaves at the end of its step; in a paused job its waits end. See basin_will_leave.
  Status WillLeave() {
    internal::Taken error;
    basin_will_leave(worker_.get(), error.out());
    return error.Take();
  }
  Status Leave() {
    internal::Taken error;
    basin_leave(worker_.get(), error.out());
    return error.Take();
  }

  // For functions that this header lacks.
  basin_worker* c() const { return worker_.get(); }

 private:
  Worker(basin_worker* worker, std::shared_ptr<Options::Log> log)
      : log_(std::move(log)), worker_(worker) {}

  static basin_tensor ToC(const Tensor& tensor) {
    return {tensor.name.c_str(), static_cast<basin_dtype>(tensor.dtype),
            static_cast<std::uint32_t>(tensor.shape.size()), tensor.shape.data()};
  }

  // An id, by a function that copies it to (char*, size) and returns its length.
  template <typename Copy>
  static std::string Text(Copy copy) {
    char id[256];
    return std::string(id, copy(id, sizeof id) == 0 ? 0 : std::char_traits<char>::length(id));
  }

  // The functions of a state, and what they have returned last, which the library copies.
  struct State {
    GetState get;
    SetState set;
    std::string content;
    std::string failure;

    static const char* Get(void* user, const void** data, std::size_t* bytes) {
      auto* const state = static_cast<State*>(user);
      Result<std::string> content = state->get();
      if (!content.ok()) return state->Fail(content.status());
      state->content = *std::move(content);
      *data = state->content.data();
      *bytes = state->content.size();
      return nullptr;
    }
    static const char* Set(void* user, const void* data, std::size_t bytes) {
      auto* const state = static_cast<State*>(user);
      const Status set = state->set({static_cast<const char*>(data), bytes});
      return set.ok() ? nullptr : state->Fail(set);
    }
    const char* Fail(const Status& status) {
      failure = status.message();
      return failure.c_str();
    }
  };

  struct Close {
    void operator()(basin_worker* worker) const { basin_close(worker); }
  };
  std::shared_ptr<Options::Log> log_;
  std::vector<std::unique_ptr<State>> states_;
  std::unique_ptr<basin_worker, Close> worker_;
};

// An optimizer's step: while it lives, memory that was announced in place is not read. REQUIRES:
// the worker outlives it.
class Step {
 public:
  explicit Step(Worker& worker) : worker_(worker.c()) { basin_step_begin(worker_); }
  ~Step() { basin_step_end(worker_); }
  Step(const Step&) = delete;
  Step& operator=(const Step&) = delete;

 private:
  basin_worker* const worker_;
};

}  // namespace abi1
}  // namespace basin

#endif  // BASIN_CLIENT_H_
