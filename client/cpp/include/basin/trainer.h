// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// A training loop whose workers may die, leave and join meanwhile: every sample of an epoch is
// trained exactly once, and all workers hold the same parameters.
//
//   basin::Result<basin::Trainer> trainer = basin::Trainer::Create(
//       basin::Options(), {{{"gradient", basin::DType::kF32, {n}}, gradient.data()}});
//   trainer->worker().RegisterState("model", parameters.data(), parameters.size() * sizeof(float));
//   trainer->OnResize([](const basin::Place& place) { ... });
//   trainer->LeaveIf([] { return terminated != 0; });
//   basin::Status status = trainer->Run(
//       {samples, 32, seed, epochs},
//       [&](const basin::Batch& batch) { ...; return basin::Status(); },      // writes `gradient`
//       [&](const basin::RoundResult& result) { ...; return basin::Status(); });  // applies it
//
// The loop. Each step is one round: the worker leases a batch, computes its gradients, and all
// workers apply the average, weighted by the number of samples. A worker for which no sample is
// left at the end of an epoch takes part without a contribution, and applies the average as well.
// Whether the loop goes on is decided by what the round has done, so that all workers end at the
// same step.
//   aborted round       nobody has applied it; the samples of the batch come again, unless a tensor
//                       cannot be reduced
//   evicted             the worker joins again, and loads the state of the others
//   joined late         it loads the states that worker() has registered, step() and epoch()
//   LeaveIf             the worker leaves after its step, or during it if the job is paused
//   another step        a worker that is not at the step of the others is not counted, and ends
//                       with kMismatch: it would train another model
//   other numbers       the same for a worker whose CheckOptimizer gives other numbers
//   any other error     the worker leaves, so that the others go on without it, and Run returns it
//
// Ownership: the memory of the gradients is the caller's. It is the trainer's, to read and write,
// from the return of the compute function until the apply function is called, and when Run has
// returned an error, until the trainer is destroyed. Thread contract: one thread; all functions are
// called on it, in Run. Failure: a Status, as in client.h; one that a function returns ends Run
// with it.

#ifndef BASIN_TRAINER_H_
#define BASIN_TRAINER_H_

#include <basin/client.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace basin {
inline namespace abi1 {

// A tensor of the gradient, and the memory where it is computed and where the average arrives.
struct Gradient {
  Tensor tensor;
  void* memory = nullptr;
};

// Equal on all workers, except for the batch.
struct Training {
  std::uint64_t samples = 0;  // In an epoch.
  std::size_t batch = 1;      // The most samples of this worker in a step.
  std::uint64_t seed = 0;     // Determines the order of the samples.
  std::uint64_t epochs = UINT64_MAX;
  std::uint64_t steps = UINT64_MAX;  // The training ends at whichever comes first.
};

// What a worker computes in a step.
struct Batch {
  std::uint64_t epoch = 0;
  std::uint64_t step = 0;
  std::vector<std::uint64_t> samples;  // Indices into the data set; at least one.
};

class Trainer {
 public:
  using Compute = std::function<Status(const Batch& batch)>;
  using Apply = std::function<Status(const RoundResult& result)>;

  // Connects. `lane`: equal on all workers.
  static Result<Trainer> Create(const Options& options, std::vector<Gradient> gradients,
                                const std::string& lane = "model") {
    Result<Worker> worker = Worker::Connect(options);
    if (!worker.ok()) return worker.status();
    std::vector<Tensor> tensors;
    tensors.reserve(gradients.size());
    for (const Gradient& gradient : gradients) tensors.push_back(gradient.tensor);
    Result<Lane> registered = worker->Register(lane, tensors);
    if (!registered.ok()) return registered.status();
    Trainer trainer(*std::move(worker), *std::move(registered), std::move(gradients));
    const Status status =
        trainer.worker_.RegisterState("basin.trainer", trainer.counters_.get(), sizeof(Counters));
    if (!status.ok()) return status;
    return trainer;
  }

  // Called when this worker has joined, and whenever the members have changed, between two steps.
  void OnResize(std::function<void(const Place& place)> resize) { resize_ = std::move(resize); }
  // Asked before each step, and once a second while it waits for the job or for the others. While
  // the aggregator restarts, the lease of the next batch waits for it, and this is asked after.
  void LeaveIf(std::function<bool()> leaves) { leaves_ = std::move(leaves); }
  // Asked before each step for the numbers with which its average will be applied: what the
  // schedule, the command line or the checkpoint of only one worker could change. A worker that
  // gives other numbers than most others do is not counted, and its Run ends with kMismatch, which
  // names both workers and both values.
  void CheckOptimizer(std::function<OptimizerNumbers()> numbers) { numbers_ = std::move(numbers); }
  // How long to wait until the job has enough workers for this one to be a member.
  void SetPatience(std::chrono::seconds patience) { patience_ = patience; }

  // To register states before Run, and for what this class lacks.
  Worker& worker() { return worker_; }
  // The steps of the job, and the epochs that have ended; in the apply function with its own step.
  std::uint64_t step() const { return counters_->step; }
  std::uint64_t epoch() const { return counters_->epoch; }

  // What is committed of the epoch, for a checkpoint that is written with step() and the parameters
  // at the end of the apply function; and, before Run, how to go on from one. All workers that
  // start together resume from the same.
  Result<SampleProgress> Progress() { return lane_.CommittedSamples(); }
  Status Resume(std::uint64_t step, const SampleProgress& progress) {
    *counters_ = {step, progress.epoch.number};
    return progress.epoch.samples == 0 ? Status() : lane_.ResumeSamples(progress);
  }

  // Trains until the end, or until LeaveIf is true; the worker has left the job then. REQUIRES: it
  // is called once.
  Status Run(const Training& training, const Compute& compute, const Apply& apply) {
    bool joins = true;
    while (!Leaves() && (joins || !IsOver(training))) {
      Status status = joins ? Join() : Step(training, compute, apply);
      joins = !failed_ && status.code() == Code::kEvicted;  // The others continued without it.
      if (status.ok() || joins || (!failed_ && GoesOn(status))) continue;
      worker_.Leave().IgnoreError();
      return status;
    }
    const Status status = worker_.Finished();  // The others continue without this worker.
    return status.ok() ? worker_.Leave() : status;
  }

 private:
  static constexpr std::chrono::seconds kSlice{1};

  // Loaded by a joiner.
  struct Counters {
    std::uint64_t step = 0;
    std::uint64_t epoch = 0;
  };

  Trainer(Worker worker, Lane lane, std::vector<Gradient> gradients)
      : gradients_(std::move(gradients)), worker_(std::move(worker)), lane_(std::move(lane)) {}

  bool Leaves() const { return leaves_ != nullptr && leaves_(); }
  bool IsOver(const Training& training) const {
    return step() >= training.steps || epoch() >= training.epochs;
  }

  // No worker has applied an aborted round. One that leaves does not wait for others.
  bool GoesOn(const Status& status) const {
    const Code code = status.code();
    if (code == Code::kRoundAborted) return status.abort_cause() != AbortCause::kReduction;
    return Leaves() && (code == Code::kPaused || code == Code::kDeadlineExceeded);
  }

  // What a function of the caller has returned. The code of its error says nothing about the round.
  Status Returned(Status status) {
    failed_ = !status.ok();
    return status;
  }

  // Becomes a member that has the state.
  Status Join() {
    Status status = worker_.Ready(step());
    if (!status.ok()) return status;
    for (Duration waited{}; waited < patience_ && !Leaves(); waited += kSlice) {
      const Result<Place> place = worker_.place();
      if (!place.ok()) return place.status();
      // A member is loading the state, for which it needs the time.
      const bool member = place->role == Role::kMember;
      status = worker_.AwaitMember(member ? patience_ : Duration(kSlice));
      if (status.code() != Code::kDeadlineExceeded || member) break;
    }
    return status.ok() ? Resized() : status;
  }

  Status Step(const Training& training, const Compute& compute, const Apply& apply) {
    const SampleEpoch epoch = {counters_->epoch, training.samples, training.seed};
    Result<SampleBatch> batch = Begin(epoch, training.batch);
    if (!batch.ok()) return batch.status();
    if (batch->outcome == LeaseOutcome::kEnded) {
      ++counters_->epoch;
      return Status();
    }
    Status status = Contribute(epoch, *batch, compute);
    if (!status.ok()) return status;
    const Result<RoundResult> result = Wait();
    if (!result.ok()) return result.status();
    // It is at another step than the others, or would make another one of the same average.
    if (status = result->rejection(); status.code() == Code::kMismatch) return status;
    for (std::size_t i = 0; i < gradients_.size(); ++i) {
      status = result->Copy(i, gradients_[i].memory, BytesOf(gradients_[i].tensor));
      if (!status.ok()) return status;
    }
    ++counters_->step;
    const std::optional<RoundSamples> samples = result->info().samples;
    if (samples.has_value() && samples->epoch_ended) ++counters_->epoch;
    status = Returned(apply(*result));
    return status.ok() ? Resized() : status;
  }

  // Leases the next batch, and begins the round of it. An aggregator that has restarted may have
  // leased some samples of the batch to others: then there is another batch.
  Result<SampleBatch> Begin(const SampleEpoch& epoch, std::size_t count) {
    for (bool again = false;; again = true) {
      Result<SampleBatch> batch = lane_.NextSamples(epoch, count);
      if (!batch.ok() || batch->outcome == LeaseOutcome::kEnded) return batch;
      RoundSpec spec(Op::kWeightedAverage);
      spec.weight = Weight::kSamples;
      spec.counts.samples = static_cast<std::int64_t>(batch->positions.size());
      spec.step = step();
      spec.compares_step = true;
      if (numbers_ != nullptr) spec.optimizer = OptimizerText(numbers_());
      const Status status = lane_.Begin(spec);
      if (status.ok()) return batch;
      if (again || status.code() != Code::kFailedPrecondition) return status;
    }
  }

  Status Contribute(const SampleEpoch& epoch, const SampleBatch& leased, const Compute& compute) {
    if (leased.positions.empty()) {
      return UnlessEnded(lane_.Withdraw("other workers have the rest of the epoch"));
    }
    Batch batch = {counters_->epoch, counters_->step, {}};
    batch.samples.reserve(leased.positions.size());
    for (const std::uint64_t position : leased.positions) {
      batch.samples.push_back(Shuffled(epoch, position));
    }
    Status status = Returned(compute(batch));
    if (!status.ok()) return status;
    for (std::size_t i = 0; i < gradients_.size() && status.ok(); ++i) {
      status = lane_.Push(i, gradients_[i].memory, BytesOf(gradients_[i].tensor));
    }
    return UnlessEnded(status.ok() ? lane_.Commit() : status);
  }

  // A round that has ended meanwhile says so here, and again in the wait, which takes its outcome.
  static Status UnlessEnded(const Status& status) {
    const Code code = status.code();
    return code == Code::kEvicted || code == Code::kRoundAborted ? Status() : status;
  }

  Result<RoundResult> Wait() {
    for (;;) {
      Result<RoundResult> result = lane_.Wait(kSlice);
      const Code code = result.status().code();
      if (result.ok() || (code != Code::kOutcomeUnknown && code != Code::kPaused)) return result;
      if (!Leaves()) continue;
      if (code == Code::kPaused) return result;
      const Status status = worker_.WillLeave();
      if (!status.ok()) return status;
    }
  }

  Status Resized() {
    const Result<Place> place = worker_.place();
    if (!place.ok()) return place.status();
    if (generation_ == place->generation) return Status();
    generation_ = place->generation;
    if (resize_ != nullptr) resize_(*place);
    return Status();
  }

  static std::size_t BytesOf(const Tensor& tensor) {
    std::size_t bytes = 1;
    if (tensor.dtype == DType::kF64 || tensor.dtype == DType::kI64) bytes = 8;
    if (tensor.dtype == DType::kF32 || tensor.dtype == DType::kI32) bytes = 4;
    if (tensor.dtype == DType::kF16 || tensor.dtype == DType::kBF16) bytes = 2;
    for (const std::uint64_t size : tensor.shape) bytes *= size;
    return bytes;
  }

  // The worker reads the counters until it is closed.
  std::unique_ptr<Counters> counters_ = std::make_unique<Counters>();
  std::vector<Gradient> gradients_;
  std::function<void(const Place&)> resize_;
  std::function<bool()> leaves_;
  std::function<OptimizerNumbers()> numbers_;
  Duration patience_ = std::chrono::minutes(5);
  std::optional<Generation> generation_;
  bool failed_ = false;  // A function of the caller has returned an error.
  Worker worker_;
  Lane lane_;
};

}  // namespace abi1
}  // namespace basin

#endif  // BASIN_TRAINER_H_
