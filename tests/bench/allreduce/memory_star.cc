// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The least cost of an all-reduce through a hub on one machine that does what Basin promises: each
// worker copies its model into memory that the hub maps, and computes its digest and norm; the hub
// averages each block once every worker has written it, with digest and norm of the result; the
// workers copy it out when all of it is there, as if a verdict had come. The kernels are Basin's.
// There are no messages: counters in the same memory are waited for with futexes.
//
// --copies=0 leaves out the copies at both ends, as for a trainer whose gradients lie in shared
// memory and who reads the results there.
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
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "kernels/checksum.h"
#include "kernels/copy.h"
#include "kernels/cpu/cpu_reducer.h"
#include "kernels/facts.h"
#include "kernels/norm.h"
#include "kernels/plan.h"
#include "protocol/tensor.h"
#include "tests/bench/allreduce/stopwatch.h"

namespace basin::bench {
namespace {

constexpr size_t kBlock = size_t{1} << 20;

struct Options {
  std::string port;
  uint32_t workers = 0;
  size_t bytes = size_t{64} << 20;
  int rounds = 5;
  bool copies = true;
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
volatile double g_norm;

// Calls each(offset, size) for every chunk in [at, at + size).
template <typename F>
void ForEachChunk(size_t at, size_t size, F&& each) {
  for (const size_t end = at + size; at < end; at += kChunkBytes) {
    each(at, std::min<size_t>(kChunkBytes, end - at));
  }
}

void Write(const Options& options, const Memory& memory, uint32_t rank, const char* from) {
  Control& control = memory.control();
  kernels::ContentDigest content;
  std::vector<double> leaves;
  for (uint32_t block = 0; block < options.blocks(); ++block) {
    const size_t at = block * kBlock;
    ForEachChunk(at, std::min(kBlock, options.bytes - at), [&](size_t begin, size_t size) {
      char* const to = memory.model(rank) + begin;
      if (options.copies) std::memcpy(to, from + begin, size);
      content.Update(to, size);
      g_digest = content.Finish().low;
      kernels::AppendNormLeaves(DType::kF32, to, size / sizeof(float), &leaves);
    });
    Add(control.written[rank]);
  }
  g_norm = kernels::SquaredNorm(leaves.data(), leaves.size());
}

void RunWorker(const Options& options) {
  const int fd = open(options.port.c_str(), O_RDWR);
  if (fd < 0) Fail("open");
  const Memory memory(fd, options);
  Control& control = memory.control();
  const uint32_t rank = control.joined.fetch_add(1);
  std::fill_n(reinterpret_cast<float*>(memory.model(rank)), options.bytes / sizeof(float), 1.0F);
  Add(control.read);  // The hub waits for all.
  std::vector<float> gradient(options.bytes / sizeof(float));
  auto* bytes = reinterpret_cast<char*>(gradient.data());
  Stopwatch stopwatch;
  for (int round = 0; round < kWarmUp + options.rounds; ++round) {
    if (options.copies) gradient.assign(gradient.size(), 1);
    const uint32_t before = static_cast<uint32_t>(round) * options.blocks();
    stopwatch.RoundBegins();
    Write(options, memory, rank, bytes);
    Await(control.reduced, before + options.blocks());
    if (options.copies) kernels::CopyPastCache(bytes, memory.result(), options.bytes);
    if (*reinterpret_cast<const float*>(options.copies ? bytes : memory.result()) != 1) {
      std::exit(1);
    }
    Add(control.read);
    Await(control.read, (static_cast<uint32_t>(round) + 2) * options.workers);
    stopwatch.RoundEnded();
  }
  stopwatch.Print();
}

class Hub {
 public:
  Hub(const Memory& memory, uint32_t workers)
      : memory_(memory),
        reducer_(kernels::MakeCpuReducer()),
        plan_(PlanOf(workers)),
        slices_(workers),
        leaves_(kernels::NormLeaves(kChunkBytes / sizeof(float))) {
    for (const kernels::Slice& slice : slices_) inputs_.push_back({&slice, 1});
  }

  void Reduce(size_t at, size_t size) {
    char* const to = memory_.result() + at;
    for (uint32_t worker = 0; worker < slices_.size(); ++worker) {
      slices_[worker] = {memory_.model(worker) + at, size};
    }
    const kernels::Span span{at / sizeof(float), size / sizeof(float)};
    if (reducer_->Reduce(plan_, inputs_.data(), span, {to, leaves_.data(), false}, &facts_)) {
      std::exit(1);
    }
    content_.Update(to, size);
    g_digest = content_.Finish().low;
    g_norm = kernels::SquaredNorm(leaves_.data(), kernels::NormLeaves(span.count));
  }

 private:
  static kernels::ReductionPlan PlanOf(uint32_t workers) {
    kernels::ReductionSpec spec;
    spec.op = ReduceOp::kAverage;
    spec.tensor_dtype = DType::kF32;
    spec.result_dtype = DType::kF32;
    spec.divisor = workers;
    spec.contributions.resize(workers);
    for (kernels::Contribution& each : spec.contributions) each.wire_dtype = DType::kF32;
    return kernels::ReductionPlan::Make(std::move(spec)).value();
  }

  const Memory& memory_;
  const std::unique_ptr<kernels::Reducer> reducer_;
  const kernels::ReductionPlan plan_;
  std::vector<kernels::Slice> slices_;
  std::vector<kernels::Input> inputs_;
  std::vector<double> leaves_;
  kernels::ContentDigest content_;
  kernels::Facts facts_;
};

void RunHub(const Options& options) {
  const int fd = memfd_create("star", 0);
  if (fd < 0 || ftruncate(fd, static_cast<off_t>(Memory::Size(options))) != 0) Fail("memfd");
  const Memory memory(fd, options);
  Control& control = memory.control();
  Hub reduction(memory, options.workers);
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
      ForEachChunk(at, std::min(kBlock, options.bytes - at),
                   [&](size_t begin, size_t size) { reduction.Reduce(begin, size); });
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
    if (name == "--copies") options.copies = value != "0";
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
