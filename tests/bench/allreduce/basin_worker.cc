// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// One worker of an all-reduce through basind; run by allreduce.py.
//
//   basin_worker --address=127.0.0.1:29600 --worker=w0 --workers=4 --streams=2 --bytes=N --rounds=5
//
// Prints the same line as socket_star. With --bytes of a few it measures the latency of a round.
// With --uncopied=1 gradients and results stay in memory that is shared with the aggregator. With
// --tensors=N the bytes are those of N tensors. With --clients=N it is N workers, each on a
// thread of its own and with "-0", "-1", ... after its id; the first one measures.

#include <basin/basin.h>
#include <malloc.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "tests/bench/allreduce/stopwatch.h"

namespace {

// The error is read when the call before it, in the same expression, has set it.
void Check(basin_code code, basin_error* const& error) {
  if (code == BASIN_OK) return;
  std::fprintf(stderr, "basin_worker: %s\n", basin_error_message(error));
  std::exit(1);
}

using Flags = std::map<std::string, std::string>;

Flags Parse(int argc, char** argv) {
  Flags flags;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    const size_t equals = word.find('=');
    if (word.compare(0, 2, "--") != 0 || equals == std::string::npos) {
      std::fprintf(stderr, "basin_worker: %s is no --FLAG=VALUE\n", argv[i]);
      std::exit(2);
    }
    flags[word.substr(2, equals - 2)] = word.substr(equals + 1);
  }
  return flags;
}

basin_worker* Connect(const Flags& flags, const std::string& id) {
  basin_error* error = nullptr;
  basin_options* options = basin_options_new(0);
  for (const auto& [key, flag] :
       {std::pair("address", "address"), std::pair("max_workers", "workers"),
        std::pair("streams", "streams")}) {
    Check(basin_options_set(options, key, flags.at(flag).c_str(), &error), error);
  }
  Check(basin_options_set(options, "worker_id", id.c_str(), &error), error);
  Check(basin_options_set(options, "fresh", "true", &error), error);
  basin_worker* worker = nullptr;
  Check(basin_connect(options, &worker, &error), error);
  basin_options_free(options);
  return worker;
}

// The rounds of one worker; `measures`: prints what they took.
void Train(const Flags& flags, const std::string& id, bool measures) {
  const size_t bytes = std::strtoull(flags.at("bytes").c_str(), nullptr, 10);
  const int rounds = std::atoi(flags.at("rounds").c_str());
  basin_error* error = nullptr;
  basin_worker* worker = Connect(flags, id);
  const size_t count =
      flags.count("tensors") == 0 ? 1 : std::strtoull(flags.at("tensors").c_str(), nullptr, 10);
  const uint64_t elements = bytes / sizeof(float) / count;
  std::vector<std::string> names;
  for (size_t i = 0; i < count; ++i) names.push_back("gradient" + std::to_string(i));
  std::vector<basin_tensor> tensors;
  for (const std::string& name : names) {
    tensors.push_back({name.c_str(), BASIN_F32, 1, &elements});
  }
  uint32_t lane = 0;
  std::vector<uint32_t> handles(count);
  Check(basin_register(worker, "model", BASIN_GRADIENT, tensors.data(), count, &lane,
                       handles.data(), &error),
        error);
  Check(basin_ready(worker, 0, 0, &error), error);
  Check(basin_await_member(worker, BASIN_SECONDS(60), &error), error);

  const size_t total = elements * count;
  std::vector<float> own;
  void* memory = nullptr;
  if (flags.count("uncopied") == 0) {
    own.resize(total);
    memory = own.data();
  } else {
    Check(basin_allocate(worker, total * sizeof(float), &memory, &error), error);
  }
  float* const gradient = static_cast<float*>(memory);
  std::vector<basin_buffer> buffers;
  for (size_t i = 0; i < count; ++i) {
    float* const part = gradient + i * elements;
    buffers.push_back({handles[i], part, own.empty() ? nullptr : part, elements * sizeof(float)});
  }
  basin_round_spec spec = BASIN_ROUND_SPEC_INIT;
  spec.op = BASIN_AVERAGE;
  basin::bench::Stopwatch stopwatch;
  for (int round = 0; round < basin::bench::kWarmUp + rounds; ++round) {
    std::fill_n(gradient, total, 1.0F);
    stopwatch.RoundBegins();
    basin_result* result = nullptr;
    Check(basin_allreduce(worker, lane, &spec, buffers.data(), buffers.size(), BASIN_SECONDS(300),
                          &result, &error),
          error);
    stopwatch.RoundEnded();
    float average = gradient[0];
    if (own.empty()) {
      const void* piece = nullptr;
      size_t size = 0;
      basin_result_piece(result, handles[0], 0, &piece, &size);
      std::memcpy(&average, piece, sizeof(average));
    }
    basin_result_free(result);
    if (average != 1) {
      std::fprintf(stderr, "basin_worker: the average of ones is %g\n", double{average});
      std::exit(1);
    }
  }
  if (measures) stopwatch.Print();
  Check(basin_finished(worker, &error), error);
  Check(basin_leave(worker, &error), error);
  basin_close(worker);
}

}  // namespace

int main(int argc, char** argv) {
  // Like the launcher for a trainer's process: freed messages are reused, not unmapped.
  mallopt(M_MMAP_THRESHOLD, 32 << 20);
  mallopt(M_TRIM_THRESHOLD, 512 << 20);

  const Flags flags = Parse(argc, argv);
  if (flags.count("clients") == 0) {
    Train(flags, flags.at("worker"), true);
    return 0;
  }
  std::vector<std::thread> threads;
  for (int i = 0; i < std::atoi(flags.at("clients").c_str()); ++i) {
    threads.emplace_back(
        [&flags, i] { Train(flags, flags.at("worker") + "-" + std::to_string(i), i == 0); });
  }
  for (std::thread& thread : threads) thread.join();
  return 0;
}
