// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Trains a linear regression with any number of workers, which may die, leave and join meanwhile.
//
//   basind &
//   BASIN_ADDRESS=127.0.0.1:29600 BASIN_MAX_WORKERS=2 BASIN_WORKER_ID=a ./linear_regression &
//   BASIN_ADDRESS=127.0.0.1:29600 BASIN_MAX_WORKERS=2 BASIN_WORKER_ID=b ./linear_regression
//
// usage: linear_regression [STEPS [STEP_MILLISECONDS]]
//
// In each step every worker computes the gradient over samples that it leases, and all apply the
// average, weighted by the number of samples. All workers therefore hold the same parameters, bit
// for bit, and end with the same last line, whichever workers took part meanwhile; and each sample
// is used once in an epoch.
// A worker that gets SIGTERM leaves after the step that it is in, or during the step if the job is
// paused, with exit code 143. After an error it ends with the error's exit code, by which a Job of
// Kubernetes decides whether to restart it.

#include <basin/client.h>

#include <array>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <utility>
#include <vector>

namespace {

constexpr std::chrono::minutes kPatience(5);
constexpr std::chrono::seconds kSlice(1);  // The part of a wait between checks for new members.
constexpr std::size_t kInputs = 8;
constexpr std::uint64_t kSamples = 1024;  // In the data set.
constexpr std::size_t kBatch = 32;        // Samples of a worker in a step.
constexpr std::uint64_t kSeed = 1;        // Determines the order of the samples.
constexpr double kLearningRate = 0.1;

volatile std::sig_atomic_t leaving = 0;

// The state that a joiner has to load.
struct State {
  std::array<double, kInputs> weight = {};
  double bias = 0;
  double step = 0;  // The number of applied steps.
  double epoch = 0;
};
constexpr std::size_t kGradientBytes = sizeof(State::weight) + sizeof(State::bias);

// The true model, which generates the samples.
double Weight(std::size_t input) { return static_cast<double>(input) - 3.5; }
constexpr double kBias = 2;

// A number in [-1, 1) that depends only on the arguments (SplitMix64's finaliser).
double Noise(std::uint64_t sample, std::uint64_t input) {
  std::uint64_t z = sample * 0x9e3779b97f4a7c15 + input * 0xd1b54a32d192ed03;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  z ^= z >> 31;
  return static_cast<double>(z >> 11) * 0x1p-52 - 1;
}

// The mean gradient of the squared error over these samples of the epoch.
struct Gradient {
  std::array<double, kInputs + 1> value = {};  // The gradients of the weights and of the bias.
  double loss = 0;
};
Gradient Compute(const State& state, const basin::SampleEpoch& epoch,
                 const std::vector<std::uint64_t>& positions) {
  Gradient gradient;
  for (const std::uint64_t position : positions) {
    const std::uint64_t sample = basin::Shuffled(epoch, position);
    double error = state.bias - kBias;
    for (std::size_t k = 0; k < kInputs; ++k) {
      error += (state.weight[k] - Weight(k)) * Noise(sample, k);
    }
    for (std::size_t k = 0; k < kInputs; ++k) gradient.value[k] += 2 * error * Noise(sample, k);
    gradient.value[kInputs] += 2 * error;
    gradient.loss += error * error;
  }
  const auto count = static_cast<double>(positions.size());
  for (double& x : gradient.value) x /= count;
  gradient.loss /= count;
  return gradient;
}

class Trainer {
 public:
  Trainer(basin::Worker worker, basin::Lane lane)
      : worker_(std::move(worker)), lane_(std::move(lane)) {}

  // Becomes a member that has the state.
  basin::Status Join() {
    basin::Status status = worker_.Ready(static_cast<std::uint64_t>(state_.step));
    if (status.ok()) status = worker_.AwaitMember(kPatience);
    return status.ok() ? Load() : status;
  }

  // Runs one round: sends the gradient and applies the average.
  basin::Status Step() {
    const basin::SampleEpoch epoch = {static_cast<std::uint64_t>(state_.epoch), kSamples, kSeed};
    const basin::Result<basin::SampleBatch> batch = lane_.NextSamples(epoch, kBatch);
    if (!batch.ok()) return batch.status();

    basin::RoundSpec spec(basin::Op::kWeightedAverage);
    spec.weight = basin::Weight::kSamples;
    spec.counts.samples = static_cast<std::int64_t>(batch->positions.size());
    spec.step = static_cast<std::uint64_t>(state_.step);
    basin::Status status = lane_.Begin(spec);
    Gradient gradient;
    if (status.ok() && batch->positions.empty()) {
      status = lane_.Withdraw("other workers have the rest of the epoch");
    } else if (status.ok()) {
      gradient = Compute(state_, epoch, batch->positions);
      loss_ = gradient.loss;
      status = lane_.Push(0, gradient.value.data(), kGradientBytes);
      if (status.ok()) status = lane_.Commit();
    }
    if (!status.ok()) return status;

    // A round with too few workers continues with new ones once they have the state. This serves
    // workers that joined before a wait without an outcome; a worker that joins with the verdict
    // needs the state after it. The library still owns the gradient.
    basin::Result<basin::Place> before = worker_.place();
    basin::Result<basin::RoundResult> result = lane_.Wait(kSlice);
    while (!result.ok() && (result.status().code() == basin::Code::kOutcomeUnknown ||
                            result.status().code() == basin::Code::kPaused)) {
      if (result.status().code() == basin::Code::kPaused) {
        std::fprintf(stderr, "%s\n", result.status().message().c_str());
      }
      if (!before.ok()) return before.status();
      if (leaving != 0) {
        if (result.status().code() == basin::Code::kPaused) return result.status();
        status = worker_.WillLeave();
      }
      if (status.ok()) status = Serve(*before);
      if (!status.ok()) return status;
      before = worker_.place();
      result = lane_.Wait(kSlice);
    }
    if (!result.ok()) return result.status();
    status = result->Copy(0, gradient.value.data(), kGradientBytes);
    if (status.ok()) Apply(gradient, result->info());
    if (status.ok()) status = ServeNewMembers();
    return status;
  }

  const State& state() const { return state_; }
  double loss() const { return loss_; }
  basin::Worker& worker() { return worker_; }

 private:
  static inline const basin::Tensor kState = {"state", basin::DType::kF64, {kInputs + 3}};

  // Grows with the generation; a term has room for 4096.
  static std::uint64_t Version(const basin::Place& place) {
    return (place.donor_since.term << 12) + place.donor_since.counter;
  }

  // Gets the state from any worker that has it. It waits in slices, because the version of the
  // state changes when more workers join.
  basin::Status Load() {
    for (;;) {
      const basin::Result<basin::Place> place = worker_.place();
      if (!place.ok()) return place.status();
      generation_ = place->generation;
      if (!place->donor.has_value() || place->is_donor) return Announce(*place);
      const basin::Status status =
          worker_.Get("model", kState, Version(*place), "", kSlice, &state_, sizeof state_);
      if (status.ok()) return Announce(*place);
      const bool not_yet = status.code() == basin::Code::kDeadlineExceeded ||
                           status.code() == basin::Code::kUnavailable;
      if (!not_yet) return status;
    }
  }

  void Apply(const Gradient& gradient, const basin::RoundInfo& info) {
    for (std::size_t k = 0; k < kInputs; ++k) {
      state_.weight[k] -= kLearningRate * gradient.value[k];
    }
    state_.bias -= kLearningRate * gradient.value[kInputs];
    ++state_.step;
    // On all workers at the same step.
    if (info.samples.has_value() && info.samples->epoch_ended) ++state_.epoch;
  }

  // A worker that joined with this round begins with the state after it.
  basin::Status ServeNewMembers() {
    const basin::Result<basin::Place> place = worker_.place();
    return place.ok() ? Serve(*place) : place.status();
  }
  basin::Status Serve(const basin::Place& place) {
    if (!(place.generation == generation_)) {
      generation_ = place.generation;
      std::fprintf(stderr, "%u workers, rank %u\n", place.world_size, place.rank);
    }
    return Announce(place);
  }
  // Serves the state to the newest members. Every worker with the state does so, so that the loss
  // of one does not matter.
  basin::Status Announce(const basin::Place& place) {
    if (!place.donor.has_value() || Version(place) == version_) return basin::Status();
    version_ = Version(place);
    return worker_.Announce("model", kState, Version(place), &state_, sizeof(state_));
  }

  basin::Worker worker_;
  basin::Lane lane_;
  State state_;
  std::uint64_t version_ = 0;  // The version of the last announced state.
  basin::Generation generation_;
  double loss_ = 0;
};

int Fail(const basin::Status& status) {
  std::fprintf(stderr, "%s: %s\n", basin::CodeName(status.code()), status.message().c_str());
  return status.exit_code();
}

}  // namespace

int main(int argc, char** argv) {
  const double steps = argc > 1 ? std::atof(argv[1]) : 200;
  const std::chrono::milliseconds pace(argc > 2 ? std::atoi(argv[2]) : 0);

  basin::Result<basin::Worker> worker = basin::Worker::Connect(basin::Options());
  if (!worker.ok()) return Fail(worker.status());
  basin::Result<basin::Lane> lane =
      worker->Register("model", {{"gradient", basin::DType::kF64, {kInputs + 1}}});
  if (!lane.ok()) return Fail(lane.status());
  Trainer trainer(*std::move(worker), *std::move(lane));
  std::signal(SIGTERM, [](int) { leaving = 1; });

  bool joins = true;
  while (leaving == 0 && (joins || trainer.state().step < steps)) {
    std::this_thread::sleep_for(pace);
    const basin::Status status = joins ? trainer.Join() : trainer.Step();
    joins = status.code() == basin::Code::kEvicted;  // The others continued without this worker.
    // No worker has applied an aborted round, so it can be run again.
    const bool goes_on = joins || status.code() == basin::Code::kRoundAborted ||
                         (leaving != 0 && status.code() == basin::Code::kPaused);
    if (!status.ok() && !goes_on) return Fail(status);
  }
  std::printf("step %.0f, loss %.3g, parameters", trainer.state().step, trainer.loss());
  for (const double weight : trainer.state().weight) std::printf(" %a", weight);
  std::printf(" %a\n", trainer.state().bias);
  // The others continue without this worker.
  basin::Status status = trainer.worker().Finished();
  if (status.ok()) status = trainer.worker().Leave();
  if (!status.ok()) return Fail(status);
  return leaving == 0 ? 0 : 128 + SIGTERM;
}
