// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Trains a small network on handwritten digits with any number of workers, which may die, leave and
// join meanwhile.
//
//   basind &
//   BASIN_ADDRESS=127.0.0.1:29600 BASIN_MIN_WORKERS=1 BASIN_MAX_WORKERS=2 ./digits digits.txt 30 &
//
// usage: digits FILE EPOCHS [STEP_MILLISECONDS [list]]
//
// Each line of the file is an image: its digit, then its 64 pixels from 0 to 16, as in the data
// that scikit-learn includes. Every fifth image is for the test. The network has one hidden layer,
// and is trained by SGD with momentum. A worker that joins late loads parameters and momentum of
// the others; all end with the same last line. With `list` each worker prints which images it has
// trained: "trained EPOCH INDEX...", once for each step.

#include <basin/trainer.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

namespace {

constexpr std::size_t kPixels = 64;
constexpr std::size_t kHidden = 32;
constexpr std::size_t kDigits = 10;
constexpr std::size_t kBatch = 16;  // Images of a worker in a step.
constexpr std::uint64_t kSeed = 1;
constexpr float kLearningRate = 0.1F;
constexpr float kMomentum = 0.9F;

volatile std::sig_atomic_t leaving = 0;

struct Image {
  std::array<float, kPixels> pixels = {};
  std::size_t digit = 0;
};

struct Data {
  std::vector<Image> train;
  std::vector<Image> test;
};

Data Read(const char* path) {
  Data data;
  std::ifstream file(path);
  Image image;
  for (std::size_t i = 0; file >> image.digit && image.digit < kDigits; ++i) {
    for (float& pixel : image.pixels) {
      file >> pixel;
      pixel /= 16;
    }
    (i % 5 == 4 ? data.test : data.train).push_back(image);
  }
  return data;
}

// The parameters, and anything that has their shape. Each row ends with the bias.
struct Network {
  std::array<std::array<float, kPixels + 1>, kHidden> hidden = {};
  std::array<std::array<float, kHidden + 1>, kDigits> output = {};
};
constexpr std::size_t kParameters = sizeof(Network) / sizeof(float);

float* Floats(Network& network) { return reinterpret_cast<float*>(&network); }

// Equal on all workers.
Network Initial() {
  Network network;
  std::uint32_t state = 1;
  for (std::size_t i = 0; i < kParameters; ++i) {
    state = state * 1664525 + 1013904223;
    Floats(network)[i] = (static_cast<float>(state >> 8) / float{1 << 24} - 0.5F) / 4;
  }
  return network;
}

struct Activity {
  std::array<float, kHidden> hidden = {};
  std::array<float, kDigits> output = {};  // Probabilities.
};

Activity Forward(const Network& network, const Image& image) {
  Activity activity;
  for (std::size_t j = 0; j < kHidden; ++j) {
    float sum = network.hidden[j][kPixels];
    for (std::size_t k = 0; k < kPixels; ++k) sum += network.hidden[j][k] * image.pixels[k];
    activity.hidden[j] = std::max(sum, 0.0F);
  }
  float total = 0;
  for (std::size_t i = 0; i < kDigits; ++i) {
    float sum = network.output[i][kHidden];
    for (std::size_t j = 0; j < kHidden; ++j) sum += network.output[i][j] * activity.hidden[j];
    total += activity.output[i] = std::exp(sum);
  }
  for (float& probability : activity.output) probability /= total;
  return activity;
}

// Adds the gradient of the cross entropy, divided by `count`.
void AddGradient(const Network& network, const Image& image, float count, Network& gradient) {
  const Activity activity = Forward(network, image);
  std::array<float, kHidden> back = {};
  for (std::size_t i = 0; i < kDigits; ++i) {
    const float error = (activity.output[i] - (i == image.digit ? 1.0F : 0.0F)) / count;
    for (std::size_t j = 0; j < kHidden; ++j) {
      gradient.output[i][j] += error * activity.hidden[j];
      back[j] += error * network.output[i][j];
    }
    gradient.output[i][kHidden] += error;
  }
  for (std::size_t j = 0; j < kHidden; ++j) {
    if (activity.hidden[j] <= 0) continue;
    for (std::size_t k = 0; k < kPixels; ++k) gradient.hidden[j][k] += back[j] * image.pixels[k];
    gradient.hidden[j][kPixels] += back[j];
  }
}

double Accuracy(const Network& network, const std::vector<Image>& images) {
  std::size_t right = 0;
  for (const Image& image : images) {
    const auto output = Forward(network, image).output;
    const auto best = std::max_element(output.begin(), output.end()) - output.begin();
    if (static_cast<std::size_t>(best) == image.digit) ++right;
  }
  return static_cast<double>(right) / static_cast<double>(images.size());
}

std::uint64_t HashOf(Network& network) {
  std::uint64_t hash = 0;
  for (std::size_t i = 0; i < kParameters; ++i) {
    std::uint32_t bits = 0;
    std::memcpy(&bits, Floats(network) + i, sizeof bits);
    hash = (hash ^ bits) * 0x100000001b3;
  }
  return hash;
}

int Fail(const basin::Status& status) {
  std::fprintf(stderr, "%s: %s\n", basin::CodeName(status.code()), status.message().c_str());
  return status.exit_code();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) {
    std::fprintf(stderr, "usage: digits FILE EPOCHS [STEP_MILLISECONDS [list]]\n");
    return 2;
  }
  const Data data = Read(argv[1]);
  if (data.test.empty()) {
    std::fprintf(stderr, "%s has no images.\n", argv[1]);
    return 1;
  }
  basin::Training training = {data.train.size(), kBatch, kSeed};
  training.epochs = std::strtoull(argv[2], nullptr, 10);
  const std::chrono::milliseconds pace(argc > 3 ? std::atoi(argv[3]) : 0);
  const bool lists = argc > 4;
  std::signal(SIGTERM, [](int) { leaving = 1; });

  Network network = Initial();
  Network momentum;
  Network gradient;
  auto trainer = basin::Trainer::Create(
      basin::Options(), {{{"gradient", basin::DType::kF32, {kParameters}}, &gradient}});
  if (!trainer.ok()) return Fail(trainer.status());
  basin::Worker& worker = trainer->worker();
  basin::Status status = worker.RegisterState("network", &network, sizeof network);
  if (status.ok()) status = worker.RegisterState("momentum", &momentum, sizeof momentum);
  if (!status.ok()) return Fail(status);
  trainer->LeaveIf([] { return leaving != 0; });
  // A worker of another build of this file, with another rate, would train another model.
  trainer->CheckOptimizer([] {
    return basin::OptimizerNumbers{{"lr", kLearningRate}, {"momentum", kMomentum}};
  });
  basin::Batch trained;  // In this step.
  trainer->OnResize([&](const basin::Place& place) {
    trained.samples.clear();  // It may have been evicted, and leases others now.
    std::printf("epoch %llu, %u workers\n", static_cast<unsigned long long>(trainer->epoch()),
                place.world_size);
    std::fflush(stdout);
  });

  status = trainer->Run(
      training,
      [&](const basin::Batch& batch) {
        std::this_thread::sleep_for(pace);
        gradient = Network();
        for (const std::uint64_t sample : batch.samples) {
          AddGradient(network, data.train[sample], static_cast<float>(batch.samples.size()),
                      gradient);
        }
        trained = batch;
        return basin::Status();
      },
      [&](const basin::RoundResult& result) {
        for (std::size_t i = 0; i < kParameters; ++i) {
          float& speed = Floats(momentum)[i];
          speed = kMomentum * speed + Floats(gradient)[i];
          Floats(network)[i] -= kLearningRate * speed;
        }
        if (lists && result.rejection().ok() && !trained.samples.empty()) {
          std::string line = "trained " + std::to_string(trained.epoch);
          for (const std::uint64_t sample : trained.samples) line += " " + std::to_string(sample);
          std::puts(line.c_str());
          std::fflush(stdout);
        }
        trained.samples.clear();
        return basin::Status();
      });
  if (!status.ok()) return Fail(status);
  std::printf("epoch %llu, step %llu, accuracy %.4f, parameters %016llx\n",
              static_cast<unsigned long long>(trainer->epoch()),
              static_cast<unsigned long long>(trainer->step()), Accuracy(network, data.test),
              static_cast<unsigned long long>(HashOf(network)));
  return leaving == 0 ? 0 : 128 + SIGTERM;
}
