// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The least cost of an all-reduce through a hub on one machine that does what Basin promises: each
// worker copies its model into memory that the hub maps and hashes it; the hub averages each block
// once every worker has written it, with the norm of the result, and hashes that; the workers copy
// it out. There are no messages: counters in the same memory are waited for with futexes.
//
//   memory_star hub --workers=4 --bytes=67108864 --rounds=5        prints where its memory is, then
//   a line memory_star worker --port=/proc/123/fd/3 --bytes=67108864 --rounds=5   prints a line

#include <fcntl.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <climits>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "kernels/xxh3.h"
#include "tests/bench/allreduce/stopwatch.h"

namespace basin::bench {
namespace {

constexpr size_t kBlock = size_t{1} << 20;

struct Options {
  std::string port;
  uint32_t workers = 0;
  size_t bytes = size_t{64} << 20;
  int rounds = 5;
  uint32_t blocks() const { return static_cast<uint32_t>((bytes + kBlock - 1) / kBlock); }
};

// At the beginning of the memory; the workers' models follow, and then the result.
struct Control {
  std::atomic<uint32_t> joined{0};
  std::atomic<uint32_t> written[64];  // By worker: blocks in all rounds.
  std::atomic<uint32_t> reduced{0};   // Likewise.
  std::atomic<uint32_t> read{0};      // Workers that have ended rounds.
};
constexpr size_t kControlBytes = 4096;
static_assert(sizeof(Control) <= kControlBytes, "one page");

void Await(std::atomic<uint32_t>& counter, uint32_t least) {
  for (uint32_t now = counter.load(); now < least; now = counter.load()) {
    syscall(SYS_futex, &counter, FUTEX_WAIT, now, nullptr, nullptr, 0);
  }
}

void Add(std::atomic<uint32_t>& counter) {
  counter.fetch_add(1);
  syscall(SYS_futex, &counter, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

[[noreturn]] void Fail(const char* what) {
  std::perror(what);
  std::exit(1);
}

class Memory {
 public:
  Memory(int fd, const Options& options) : options_(options) {
    void* all = mmap(nullptr, Size(options), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (all == MAP_FAILED) Fail("mmap");
    bytes_ = static_cast<char*>(all);
  }
  static size_t Size(const Options& options) {
    return kControlBytes + (options.workers + 1) * options.bytes;
  }
  Control& control() const { return *reinterpret_cast<Control*>(bytes_); }
  char* model(uint32_t worker) const { return bytes_ + kControlBytes + worker * options_.bytes; }
  char* result() const { return model(options_.workers); }

 private:
  const Options& options_;
  char* bytes_ = nullptr;
};

volatile uint64_t g_digest;  // Forces the computation.

void RunWorker(const Options& options) {
  const int fd = open(options.port.c_str(), O_RDWR);
  if (fd < 0) Fail("open");
  const Memory memory(fd, options);
  Control& control = memory.control();
  const uint32_t rank = control.joined.fetch_add(1);
  Add(control.read);  // The hub waits for all.
  std::vector<float> gradient(options.bytes / sizeof(float), 1);
  auto* bytes = reinterpret_cast<char*>(gradient.data());
  Stopwatch stopwatch;
  for (int round = 0; round < kWarmUp + options.rounds; ++round) {
    const uint32_t before = static_cast<uint32_t>(round) * options.blocks();
    stopwatch.RoundBegins();
    std::thread writer([&] {
      for (uint32_t block = 0; block < options.blocks(); ++block) {
        const size_t at = block * kBlock;
        const size_t size = std::min(kBlock, options.bytes - at);
        std::memcpy(memory.model(rank) + at, bytes + at, size);
        g_digest = kernels::Xxh3Hash128(memory.model(rank) + at, size).low64;
        Add(control.written[rank]);
      }
    });
    writer.join();  // Waits like a trainer, whose result replaces its gradient.
    for (uint32_t block = 0; block < options.blocks(); ++block) {
      const size_t at = block * kBlock;
      Await(control.reduced, before + block + 1);
      std::memcpy(bytes + at, memory.result() + at, std::min(kBlock, options.bytes - at));
    }
    Add(control.read);
    Await(control.read, (static_cast<uint32_t>(round) + 2) * options.workers);
    stopwatch.RoundEnded();
    if (gradient[0] != 1) std::exit(1);
  }
  stopwatch.Print();
}

void Reduce(const Memory& memory, uint32_t workers, size_t at, size_t size) {
  auto* to = reinterpret_cast<float*>(memory.result() + at);
  const size_t count = size / sizeof(float);
  const float divisor = static_cast<float>(workers);
  double squares[8] = {};
  constexpr size_t kStep = 4096;
  float sums[kStep];
  for (size_t first = 0; first < count; first += kStep) {
    const size_t length = std::min(kStep, count - first);
    std::fill(sums, sums + length, 0.0F);
    for (uint32_t worker = 0; worker < workers; ++worker) {
      const auto* from = reinterpret_cast<const float*>(memory.model(worker) + at) + first;
      for (size_t i = 0; i < length; ++i) sums[i] += from[i];
    }
    for (size_t i = 0; i < length; ++i) {
      to[first + i] = sums[i] / divisor;
      squares[i % 8] += static_cast<double>(to[first + i]) * to[first + i];
    }
  }
  double square = 0;
  for (const double each : squares) square += each;
  g_digest = kernels::Xxh3Hash128(to, size).low64 ^ static_cast<uint64_t>(square);
}

void RunHub(const Options& options) {
  const int fd = memfd_create("star", 0);
  if (fd < 0 || ftruncate(fd, static_cast<off_t>(Memory::Size(options))) != 0) Fail("memfd");
  const Memory memory(fd, options);
  Control& control = memory.control();
  std::printf("/proc/%d/fd/%d\n", getpid(), fd);
  std::fflush(stdout);
  Await(control.read, options.workers);
  Stopwatch stopwatch;
  for (int round = 0; round < kWarmUp + options.rounds; ++round) {
    const uint32_t before = static_cast<uint32_t>(round) * options.blocks();
    stopwatch.RoundBegins();
    for (uint32_t block = 0; block < options.blocks(); ++block) {
      for (uint32_t worker = 0; worker < options.workers; ++worker) {
        Await(control.written[worker], before + block + 1);
      }
      const size_t at = block * kBlock;
      Reduce(memory, options.workers, at, std::min(kBlock, options.bytes - at));
      Add(control.reduced);
    }
    Await(control.read, (static_cast<uint32_t>(round) + 2) * options.workers);
    stopwatch.RoundEnded();
  }
  stopwatch.Print();
}

int Main(int argc, char** argv) {
  Options options;
  for (int i = 2; i < argc; ++i) {
    const std::string word = argv[i];
    const size_t equals = word.find('=');
    if (equals == std::string::npos) continue;
    const std::string name = word.substr(0, equals);
    const std::string value = word.substr(equals + 1);
    if (name == "--port") options.port = value;
    if (name == "--workers") options.workers = static_cast<uint32_t>(std::stoul(value));
    if (name == "--bytes") options.bytes = std::stoull(value);
    if (name == "--rounds") options.rounds = std::stoi(value);
  }
  const std::string side = argc > 1 ? argv[1] : "";
  if (options.workers == 0 || options.workers > 64 || (side != "hub" && side != "worker")) {
    std::fprintf(stderr, "usage: memory_star hub|worker --port= --workers= --bytes= --rounds=\n");
    return 2;
  }
  side == "hub" ? RunHub(options) : RunWorker(options);
  return 0;
}

}  // namespace
}  // namespace basin::bench

int main(int argc, char** argv) { return basin::bench::Main(argc, argv); }
