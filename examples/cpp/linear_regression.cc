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
// is used once in an epoch. A worker that joins late loads the parameters of the others.
// A worker that gets SIGTERM leaves after the step that it is in, or during the step if the job is
// paused, with exit code 143. After an error it ends with the error's exit code, by which a Job of
// Kubernetes decides whether to restart it.

#include <basin/trainer.h>

#include <array>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <thread>

namespace {

constexpr std::size_t kInputs = 8;
constexpr std::uint64_t kSamples = 1024;  // In the data set.
constexpr std::size_t kBatch = 32;        // Samples of a worker in a step.
constexpr std::uint64_t kSeed = 1;        // Determines the order of the samples.
constexpr double kLearningRate = 0.1;

volatile std::sig_atomic_t leaving = 0;

using Parameters = std::array<double, kInputs + 1>;  // The weights, then the bias.

// The true parameters, which generate the samples.
double TrueParameter(std::size_t k) { return k < kInputs ? static_cast<double>(k) - 3.5 : 2; }

// An input in [-1, 1) that depends only on the arguments (SplitMix64's finaliser); 1 for the bias.
double Input(std::uint64_t sample, std::uint64_t k) {
  if (k == kInputs) return 1;
  std::uint64_t z = sample * 0x9e3779b97f4a7c15 + k * 0xd1b54a32d192ed03;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  z ^= z >> 31;
  return static_cast<double>(z >> 11) * 0x1p-52 - 1;
}

// The mean gradient of the squared error over the batch. Returns the mean loss.
double Compute(const Parameters& parameters, const basin::Batch& batch, Parameters& gradient) {
  const auto count = static_cast<double>(batch.samples.size());
  gradient.fill(0);
  double loss = 0;
  for (const std::uint64_t sample : batch.samples) {
    double error = 0;
    for (std::size_t k = 0; k <= kInputs; ++k) {
      error += (parameters[k] - TrueParameter(k)) * Input(sample, k);
    }
    for (std::size_t k = 0; k <= kInputs; ++k) gradient[k] += 2 * error * Input(sample, k) / count;
    loss += error * error / count;
  }
  return loss;
}

int Fail(const basin::Status& status) {
  std::fprintf(stderr, "%s: %s\n", basin::CodeName(status.code()), status.message().c_str());
  return status.exit_code();
}

}  // namespace

int main(int argc, char** argv) {
  basin::Training training = {kSamples, kBatch, kSeed};
  training.steps = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 200;
  const std::chrono::milliseconds pace(argc > 2 ? std::atoi(argv[2]) : 0);
  std::signal(SIGTERM, [](int) { leaving = 1; });

  Parameters parameters = {};
  Parameters gradient = {};
  double loss = 0;
  auto trainer = basin::Trainer::Create(
      basin::Options(), {{{"gradient", basin::DType::kF64, {kInputs + 1}}, gradient.data()}});
  if (!trainer.ok()) return Fail(trainer.status());
  basin::Status status =
      trainer->worker().RegisterState("parameters", parameters.data(), sizeof parameters);
  if (!status.ok()) return Fail(status);
  trainer->LeaveIf([] { return leaving != 0; });
  trainer->OnResize([](const basin::Place& place) {
    std::fprintf(stderr, "%u workers, rank %u\n", place.world_size, place.rank);
  });
  status = trainer->Run(
      training,
      [&](const basin::Batch& batch) {
        std::this_thread::sleep_for(pace);
        loss = Compute(parameters, batch, gradient);
        return basin::Status();
      },
      [&](const basin::RoundResult&) {
        for (std::size_t k = 0; k <= kInputs; ++k) parameters[k] -= kLearningRate * gradient[k];
        return basin::Status();
      });
  if (!status.ok()) return Fail(status);

  std::printf("step %llu, loss %.3g, parameters", static_cast<unsigned long long>(trainer->step()),
              loss);
  for (const double parameter : parameters) std::printf(" %a", parameter);
  std::printf("\n");
  return leaving == 0 ? 0 : 128 + SIGTERM;
}
