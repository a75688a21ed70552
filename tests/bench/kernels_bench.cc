// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The CPU reduction against the memory bandwidth of the machine it runs on.
//
// A reduction of N contributions must read N streams and write one. The reference does just that
// and next to nothing else: it combines the streams with XOR, in four ways (all streams in step or
// a page of each in turn; ordinary or streaming stores), of which the fastest counts. Reference and
// reduction take turns, some MiB at a time, on buffers that do not fit the caches; all dtypes share
// them, because it matters which pages of memory they got. The result is the median of the ratios
// of neighbours, because the load of other tenants of a machine changes.

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <sys/mman.h>

#if defined(__x86_64__)
#include <emmintrin.h>
#endif

#include "kernels/cpu/cpu_reducer.h"
#include "kernels/reducer.h"

namespace basin::kernels {
namespace {

constexpr size_t kChunkBytes = size_t{256} << 10;  // The bytes that the aggregator reduces at once.
constexpr size_t kPieceBytes = size_t{2} << 20;    // Per stream, core and turn.
constexpr size_t kPageBytes = 4096;
constexpr size_t kHugePageBytes = size_t{2} << 20;
static_assert(kPieceBytes % kHugePageBytes == 0);

struct Options {
  std::string target;  // Empty: the best.
  std::string dtype = "all";
  std::string op = "all";
  std::vector<size_t> contributors = {2, 4, 8, 16};
  std::vector<size_t> cores = {1, 2};
  size_t mebibytes = 384;  // All streams together.
  int rounds = 9;
  bool norm = true;
  bool poison = false;
  bool huge_pages = false;
  bool json = false;
};

constexpr char kHelp[] =
    "Measures the CPU reduction against memory bandwidth (see the head of the source).\n"
    "  --target=NAME   instruction set, AVX3 for example; default: the best\n"
    "  --dtype=NAME    f64 f32 f16 bf16 i64 i32 u8; default: all\n"
    "  --op=NAME       SUM AVERAGE WEIGHTED_AVERAGE MIN MAX PRODUCT; default: all\n"
    "  --n=A,B,...     contributors; default 2,4,8,16\n"
    "  --cores=A,B     threads, each with its part of the buffers; default 1,2\n"
    "  --mib=M         size of all streams together; default 384\n"
    "  --rounds=R      how often each row goes through the buffers; default 9\n"
    "  --no-norm       do not compute the squared norm\n"
    "  --huge-pages    buffers in pages of 2 MiB, where the system gives them\n"
    "  --poison        one contribution is NaN throughout\n"
    "  --json          one JSON object per row\n";

// ---- Buffers -----------------------------------------------------------------------------------

struct FreeDeleter {
  void operator()(unsigned char* data) const { std::free(data); }
};
using Buffer = std::unique_ptr<unsigned char, FreeDeleter>;

// REQUIRES: `size` is a multiple of kHugePageBytes.
Buffer MakeBuffer(size_t size, bool huge_pages) {
  auto* data = static_cast<unsigned char*>(
      std::aligned_alloc(huge_pages ? kHugePageBytes : kPageBytes, size));
  if (data == nullptr) std::abort();
#if defined(MADV_HUGEPAGE)
  if (huge_pages && madvise(data, size, MADV_HUGEPAGE) != 0) std::perror("no huge pages");
#endif
  return Buffer(data);
}

// The same moderate values for every type: no special value slows anything down or speeds it up.
void Fill(DType dtype, size_t stream, unsigned char* data, size_t bytes) {
  uint64_t state = 0x9e3779b97f4a7c15 * (stream + 1);
  const size_t size = ElementSize(dtype);
  for (size_t at = 0; at < bytes; at += size) {
    state = state * 6364136223846793005 + 1442695040888963407;
    const uint64_t noise = state >> 20;
    uint64_t bits = noise & 0x7f;
    if (dtype == DType::kF64) bits = 0x3ff0000000000000 | (noise << 8 & 0xfffffffffffff);
    if (dtype == DType::kF32) bits = 0x3f800000 | (noise & 0x7fffff);
    if (dtype == DType::kF16) bits = 0x3c00 | (noise & 0x3ff);
    if (dtype == DType::kBF16) bits = 0x3f80 | (noise & 0x7f);
    std::memcpy(data + at, &bits, size);
  }
}

void FillWithNan(DType dtype, unsigned char* data, size_t bytes) {
  if (IsFloatingPoint(dtype)) std::memset(data, 0xff, bytes);
}

struct Streams {
  std::vector<Buffer> inputs;
  Buffer output;
  size_t bytes = 0;  // Size of one stream.
};

// ---- The reference -----------------------------------------------------------------------------

// out = XOR of the inputs over [begin, begin + bytes), a multiple of 64 bytes.
template <bool kStreaming>
void XorInStep(const Streams& streams, size_t begin, size_t bytes) {
  const size_t n = streams.inputs.size();
  unsigned char* out = streams.output.get() + begin;
#if defined(__x86_64__)
  for (size_t at = 0; at < bytes; at += 64) {
    __m128i sum[4] = {};
    for (size_t k = 0; k < n; ++k) {
      const auto* in = reinterpret_cast<const __m128i*>(streams.inputs[k].get() + begin + at);
      for (int j = 0; j < 4; ++j) sum[j] = _mm_xor_si128(sum[j], _mm_load_si128(in + j));
    }
    for (int j = 0; j < 4; ++j) {
      auto* to = reinterpret_cast<__m128i*>(out + at) + j;
      kStreaming ? _mm_stream_si128(to, sum[j]) : _mm_store_si128(to, sum[j]);
    }
  }
  if (kStreaming) _mm_sfence();
#else
  for (size_t at = 0; at < bytes; at += 64) {
    uint64_t sum[8] = {};
    for (size_t k = 0; k < n; ++k) {
      uint64_t in[8];
      std::memcpy(in, streams.inputs[k].get() + begin + at, sizeof(in));
      for (int j = 0; j < 8; ++j) sum[j] ^= in[j];
    }
    std::memcpy(out + at, sum, sizeof(sum));
  }
#endif
}

// The same with a page of each stream in turn, gathered in the first-level cache.
template <bool kStreaming>
void XorByPages(const Streams& streams, size_t begin, size_t bytes) {
  alignas(64) uint64_t page[kPageBytes / 8];
  for (size_t at = begin; at < begin + bytes; at += kPageBytes) {
    const size_t words = std::min(kPageBytes, begin + bytes - at) / 8;
    std::memset(page, 0, sizeof(page));
    for (const Buffer& input : streams.inputs) {
      const auto* in = reinterpret_cast<const uint64_t*>(input.get() + at);
      for (size_t i = 0; i < words; ++i) page[i] ^= in[i];
    }
#if defined(__x86_64__)
    if (kStreaming) {
      for (size_t i = 0; i < words; i += 2) {
        _mm_stream_si128(reinterpret_cast<__m128i*>(streams.output.get() + at + i * 8),
                         _mm_load_si128(reinterpret_cast<const __m128i*>(page + i)));
      }
      continue;
    }
#endif
    std::memcpy(streams.output.get() + at, page, words * 8);
  }
#if defined(__x86_64__)
  if (kStreaming) _mm_sfence();
#endif
}

using Pass = std::function<void(size_t begin, size_t bytes)>;

std::vector<Pass> References(const Streams& streams) {
  std::vector<Pass> passes;
  for (const auto pass : {XorInStep<false>, XorInStep<true>, XorByPages<false>, XorByPages<true>}) {
    passes.push_back([&streams, pass](size_t begin, size_t bytes) { pass(streams, begin, bytes); });
  }
  return passes;
}

// ---- The reduction -----------------------------------------------------------------------------

ReductionPlan MakePlan(ReduceOp op, DType dtype, size_t contributors) {
  ReductionSpec spec;
  spec.op = op;
  spec.tensor_dtype = spec.result_dtype = dtype;
  spec.contributions.resize(contributors);
  for (size_t i = 0; i < contributors; ++i) {
    spec.contributions[i].wire_dtype = dtype;
    if (op == ReduceOp::kWeightedAverage) spec.contributions[i].weight = 3 + i;
  }
  spec.divisor = Divisor(op, DivisorPolicy::kAll, spec.contributions).value();
  Result<ReductionPlan> plan = ReductionPlan::Make(std::move(spec));
  if (!plan.ok()) {
    std::fprintf(stderr, "%s\n", plan.failure().message.c_str());
    std::exit(1);
  }
  return std::move(plan).value();
}

// Reduces [begin, begin + bytes) of each stream chunk by chunk, as the aggregator does.
void ReduceChunks(const Reducer& reducer, const ReductionPlan& plan, const Streams& streams,
                  bool norm, size_t begin, size_t bytes) {
  const size_t size = ElementSize(plan.spec().tensor_dtype);
  std::vector<Slice> slices(streams.inputs.size());
  std::vector<Input> inputs;
  for (const Slice& slice : slices) inputs.push_back(Input{&slice, 1});
  std::vector<double> leaves(NormLeaves(kChunkBytes / size));
  Facts facts;
  for (size_t at = begin; at < begin + bytes; at += kChunkBytes) {
    for (size_t k = 0; k < slices.size(); ++k) {
      slices[k] = Slice{streams.inputs[k].get() + at, kChunkBytes};
    }
    const auto failure = reducer.Reduce(
        plan, inputs.data(), Span{at / size, kChunkBytes / size},
        Output{streams.output.get() + at, norm ? leaves.data() : nullptr, true}, &facts);
    if (failure) std::abort();
  }
}

// ---- Measuring ---------------------------------------------------------------------------------

double ThreadSeconds() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// Runs `pass` on `cores` threads at once, each with an equal part of [begin, begin + bytes), and
// returns the seconds that the slowest of them computed or waited for memory. Time in which the
// machine ran something else in its place does not count.
double Time(size_t cores, size_t begin, size_t bytes, const Pass& pass) {
  std::atomic<size_t> ready{0};
  std::vector<double> seconds(cores);
  const size_t part = bytes / cores;
  const auto work = [&](size_t core) {
    ++ready;
    while (ready.load() < cores) std::this_thread::yield();
    const double start = ThreadSeconds();
    pass(begin + core * part, part);
    seconds[core] = ThreadSeconds() - start;
  };
  std::vector<std::thread> threads;
  for (size_t core = 1; core < cores; ++core) threads.emplace_back(work, core);
  work(0);
  for (std::thread& thread : threads) thread.join();
  return *std::max_element(seconds.begin(), seconds.end());
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

struct Row {
  double gigabytes_per_second;
  double roofline;
  double ratio;
};

// The reference that is fastest on these streams.
Pass BestReference(const Streams& streams, size_t cores) {
  Pass best;
  double least = 1e30;
  for (const Pass& pass : References(streams)) {
    const double seconds = Time(cores, 0, streams.bytes, pass);
    if (seconds < least) {
      least = seconds;
      best = pass;
    }
  }
  return best;
}

Row Measure(const Options& options, const Reducer& reducer, const ReductionPlan& plan,
            const Streams& streams, size_t cores) {
  const Pass reference = BestReference(streams, cores);
  const Pass reduction = [&](size_t begin, size_t bytes) {
    ReduceChunks(reducer, plan, streams, options.norm, begin, bytes);
  };
  const size_t piece = kPieceBytes * cores;
  const size_t pieces = streams.bytes / piece;
  const double gigabytes =
      static_cast<double>(piece) * static_cast<double>(streams.inputs.size() + 1) * 1e-9;
  std::vector<double> speeds, rooflines, ratios;
  for (size_t i = 0; i < pieces * static_cast<size_t>(options.rounds); ++i) {
    // Half the streams come between the two, so that neither finds its piece in a cache.
    const double referred = Time(cores, i % pieces * piece, piece, reference);
    const double reduced = Time(cores, (i + pieces / 2) % pieces * piece, piece, reduction);
    speeds.push_back(gigabytes / reduced);
    rooflines.push_back(gigabytes / referred);
    ratios.push_back(referred / reduced);
  }
  return Row{Median(speeds), Median(rooflines), Median(ratios)};
}

void Print(const Options& options, const Reducer& reducer, const ReductionPlan& plan, size_t cores,
           const Row& row) {
  const char* format =
      options.json
          ? "{\"backend\": \"%s\", \"dtype\": \"%s\", \"op\": \"%s\", \"contributors\": %zu, "
            "\"cores\": %zu, \"gb_per_s\": %.2f, \"roofline_gb_per_s\": %.2f, \"ratio\": %.3f}\n"
          : "%-10s %-5s %-17s %3zu %6zu %9.2f %9.2f %7.2f\n";
  std::printf(format, std::string(reducer.name()).c_str(), DTypeName(plan.spec().tensor_dtype),
              ReduceOpName(plan.spec().op), plan.spec().contributions.size(), cores,
              row.gigabytes_per_second, row.roofline, row.ratio);
  std::fflush(stdout);
}

std::vector<ReduceOp> OpsOf(const Options& options, DType dtype) {
  std::vector<ReduceOp> ops;
  for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kAverage, ReduceOp::kWeightedAverage,
                            ReduceOp::kMin, ReduceOp::kMax, ReduceOp::kProduct}) {
    const bool average = op == ReduceOp::kAverage || op == ReduceOp::kWeightedAverage;
    if (average && !IsFloatingPoint(dtype)) continue;
    if (options.op == "all" || options.op == ReduceOpName(op)) ops.push_back(op);
  }
  return ops;
}

// All dtypes and operations with so many contributors.
void Run(const Options& options, const Reducer& reducer, size_t contributors) {
  Streams streams;
  const size_t cores = *std::max_element(options.cores.begin(), options.cores.end());
  const size_t step = kPieceBytes * cores;
  streams.bytes = std::max((options.mebibytes << 20) / (contributors + 1) / step, size_t{2}) * step;
  for (size_t k = 0; k < contributors; ++k)
    streams.inputs.push_back(MakeBuffer(streams.bytes, options.huge_pages));
  streams.output = MakeBuffer(streams.bytes, options.huge_pages);
  std::memset(streams.output.get(), 0, streams.bytes);
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16, DType::kF64, DType::kI64,
                            DType::kI32, DType::kU8}) {
    if (options.dtype != "all" && options.dtype != DTypeName(dtype)) continue;
    for (size_t k = 0; k < contributors; ++k) {
      Fill(dtype, k, streams.inputs[k].get(), streams.bytes);
    }
    if (options.poison) FillWithNan(dtype, streams.inputs.back().get(), streams.bytes);
    for (const ReduceOp op : OpsOf(options, dtype)) {
      const ReductionPlan plan = MakePlan(op, dtype, contributors);
      for (const size_t used_cores : options.cores) {
        Print(options, reducer, plan, used_cores,
              Measure(options, reducer, plan, streams, used_cores));
      }
    }
  }
}

// ---- Command line ------------------------------------------------------------------------------

std::vector<size_t> Numbers(const std::string& text) {
  std::vector<size_t> numbers;
  for (size_t at = 0; at < text.size();) {
    const size_t comma = std::min(text.find(',', at), text.size());
    numbers.push_back(std::strtoull(text.substr(at, comma - at).c_str(), nullptr, 10));
    at = comma + 1;
  }
  numbers.erase(std::remove(numbers.begin(), numbers.end(), size_t{0}), numbers.end());
  return numbers;
}

bool Parse(int argc, char** argv, Options* options) {
  for (int i = 1; i < argc; ++i) {
    const std::string arg = argv[i];
    const size_t equals = std::min(arg.find('='), arg.size());
    const std::string name = arg.substr(0, equals);
    const std::string value = equals < arg.size() ? arg.substr(equals + 1) : "";
    if (name == "--target") {
      options->target = value;
    } else if (name == "--dtype") {
      options->dtype = value;
    } else if (name == "--op") {
      options->op = value;
    } else if (name == "--n") {
      options->contributors = Numbers(value);
    } else if (name == "--cores") {
      options->cores = Numbers(value);
    } else if (name == "--mib") {
      options->mebibytes = std::strtoull(value.c_str(), nullptr, 10);
    } else if (name == "--rounds") {
      options->rounds = std::max(1, std::atoi(value.c_str()));
    } else if (name == "--no-norm") {
      options->norm = false;
    } else if (name == "--huge-pages") {
      options->huge_pages = true;
    } else if (name == "--poison") {
      options->poison = true;
    } else if (name == "--json") {
      options->json = true;
    } else {
      return false;
    }
  }
  return !options->contributors.empty() && !options->cores.empty() && options->mebibytes >= 32;
}

int Main(int argc, char** argv) {
  Options options;
  if (!Parse(argc, argv, &options)) {
    std::fputs(kHelp, argc == 2 && std::string(argv[1]) == "--help" ? stdout : stderr);
    return argc == 2 && std::string(argv[1]) == "--help" ? 0 : 2;
  }
  const std::unique_ptr<Reducer> reducer =
      options.target.empty() ? MakeCpuReducer() : MakeCpuReducer(options.target);
  if (reducer == nullptr) {
    std::fprintf(stderr, "no such target on this machine: %s\n", options.target.c_str());
    return 2;
  }
  if (!options.json) {
    std::printf("%-10s %-5s %-17s %3s %6s %9s %9s %7s\n", "backend", "dtype", "op", "N", "cores",
                "GB/s", "roofline", "ratio");
  }
  for (const size_t contributors : options.contributors) Run(options, *reducer, contributors);
  return 0;
}

}  // namespace
}  // namespace basin::kernels

int main(int argc, char** argv) { return basin::kernels::Main(argc, argv); }
