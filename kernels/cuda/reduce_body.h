// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The code of the threads of the reduction kernel, without the launch: the device runs it in
// reduce.cu, and the tests run it on the host.
//
// A BLOCK takes one leaf of the norm (a tile run of kNormLeafElements), or a shorter run of tiles
// where no norm is wanted. It goes from TILE to tile. In a tile each of kProducers threads reduces
// a VECTOR of consecutive elements, whose inputs are 16 bytes per contribution, and leaves the
// results in a buffer that the block shares. Meanwhile sixteen more threads add the squares of the
// tile before, one thread a lane of the norm, in the order that the norm's definition demands. So
// inputs and outputs cross the memory bus once.
//
// Sums of floats are folded without any test. A value that is not finite never becomes finite again
// in a sum, so a finite result proves that nothing happened, and only elements whose result is not
// finite are gone through again, step by step, for the facts.
//
// Thread contract: as the launch, one call per thread.

#ifndef BASIN_KERNELS_CUDA_REDUCE_BODY_H_
#define BASIN_KERNELS_CUDA_REDUCE_BODY_H_

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "kernels/cuda/element.h"
#include "kernels/cuda/host_device.h"
#include "kernels/cuda/task.h"
#include "kernels/facts.h"

namespace basin::kernels::cuda {

constexpr unsigned kProducers = 256;  // Threads that reduce.
constexpr unsigned kAdders = 32;      // One warp, of which kNormLanes threads add squares.
constexpr unsigned kTermsInFlight = 4;

// ---- Sources: how a contribution's elements become values of the accumulator type ---------------

struct FromF32 {
  using Raw = float;
  using Accumulator = float;
  static BASIN_HOST_DEVICE float Widen(float raw) { return raw; }
};
struct FromF64 {
  using Raw = double;
  using Accumulator = double;
  static BASIN_HOST_DEVICE double Widen(double raw) { return raw; }
};
struct FromF16 {
  using Raw = uint16_t;
  using Accumulator = float;
  static BASIN_HOST_DEVICE float Widen(uint16_t raw) { return BranchlessF16::Widen(raw); }
};
struct FromBF16 {
  using Raw = uint16_t;
  using Accumulator = float;
  static BASIN_HOST_DEVICE float Widen(uint16_t raw) { return BranchlessBF16::Widen(raw); }
};
template <typename Integer>
struct FromInteger {
  using Raw = Integer;
  using Accumulator = int64_t;
  static BASIN_HOST_DEVICE int64_t Widen(Integer raw) { return static_cast<int64_t>(raw); }
};
// Contributions of several float dtypes in one task.
struct FromMixed {
  using Raw = float;  // For the size of a vector.
  using Accumulator = float;
};

// Elements of a thread's vector: 16 bytes of input, but no more accumulators than registers.
template <typename Source>
constexpr unsigned kVector = sizeof(typename Source::Raw) == 1
                                 ? 4
                                 : 16 / static_cast<unsigned>(sizeof(typename Source::Raw));

// The type of a result in the shared buffer: it represents every float result exactly.
template <typename Source>
using Rounded =
    std::conditional_t<std::is_same_v<typename Source::Accumulator, double>, double, float>;

template <typename Source>
constexpr unsigned kTile = kProducers* kVector<Source>;

// A block's share where no norm is wanted.
template <typename Source>
constexpr uint64_t kTilesWithoutNorm = 4;

// ---- Memory -------------------------------------------------------------------------------------

template <typename T, unsigned N>
struct alignas(sizeof(T) * N <= 16 ? sizeof(T) * N : 16) Pack {
  T values[N];
};

// REQUIRES: the address is aligned to the pack, except for N = 1, where T's alignment suffices.
template <typename T, unsigned N>
BASIN_HOST_DEVICE Pack<T, N> LoadPack(const void* data, uint64_t element) {
  return *reinterpret_cast<const Pack<T, N>*>(static_cast<const T*>(data) + element);
}

template <typename T, unsigned N>
BASIN_HOST_DEVICE void StorePack(void* data, uint64_t element, const Pack<T, N>& pack) {
  *reinterpret_cast<Pack<T, N>*>(static_cast<T*>(data) + element) = pack;
}

// x of N elements of one term.
template <typename Source, unsigned N>
struct TermValues {
  using A = typename Source::Accumulator;

  static BASIN_HOST_DEVICE Pack<A, N> Load(const TaskTerm& term, uint64_t element) {
    const auto raw = LoadPack<typename Source::Raw, N>(term.data, element);
    Pack<A, N> x;
    BASIN_UNROLL
    for (unsigned k = 0; k < N; ++k) x.values[k] = Source::Widen(raw.values[k]);
    return x;
  }
};

template <unsigned N>
struct TermValues<FromMixed, N> {
  static BASIN_HOST_DEVICE Pack<float, N> Load(const TaskTerm& term, uint64_t element) {
    if (term.wire_dtype == DType::kF16) return TermValues<FromF16, N>::Load(term, element);
    if (term.wire_dtype == DType::kBF16) return TermValues<FromBF16, N>::Load(term, element);
    return TermValues<FromF32, N>::Load(term, element);
  }
};

// ---- Facts --------------------------------------------------------------------------------------

// The observations of one thread.
struct ThreadFacts {
  uint64_t first_non_finite = kNoElement;
  uint64_t overflows = 0;
  uint64_t integer_wraps = 0;

  BASIN_HOST_DEVICE void SeeNonFinite(uint32_t contribution, uint64_t element) {
    const uint64_t place = (uint64_t{contribution} << kElementBits) | element;
    if (place < first_non_finite) first_non_finite = place;
  }
};

// ---- Folding ------------------------------------------------------------------------------------

template <typename Source>
struct Reduction {
  using A = typename Source::Accumulator;
  static constexpr bool kFloat = !std::is_same_v<A, int64_t>;

  // Whether the fold is gone through without tests, and again where its result is not finite.
  static BASIN_HOST_DEVICE bool TestsAfterwards(const ReduceTask& task) {
    return kFloat && task.combine == Combine::kAdd;
  }

  template <unsigned N>
  static BASIN_HOST_DEVICE Pack<A, N> StartOf(const ReduceTask& task) {
    Pack<A, N> start;
    BASIN_UNROLL
    for (unsigned k = 0; k < N; ++k) start.values[k] = Identity<A>(task.combine);
    return start;
  }

  // A sum of floats. Several terms are loaded before the first is used, to keep the memory busy.
  template <unsigned N>
  static BASIN_HOST_DEVICE void FoldSum(const ReduceTask& task, uint64_t element, Pack<A, N>* acc) {
    uint32_t t = 0;
    for (; t + kTermsInFlight <= task.term_count; t += kTermsInFlight) {
      AddTerms<kTermsInFlight>(task, t, element, acc);
    }
    if (t + 2 <= task.term_count) {
      AddTerms<2>(task, t, element, acc);
      t += 2;
    }
    if (t < task.term_count) AddTerms<1>(task, t, element, acc);
  }

  // Adds terms [first, first + kTerms), in order.
  template <unsigned kTerms, unsigned N>
  static BASIN_HOST_DEVICE void AddTerms(const ReduceTask& task, uint32_t first, uint64_t element,
                                         Pack<A, N>* acc) {
    Pack<A, N> x[kTerms];
    BASIN_UNROLL
    for (unsigned j = 0; j < kTerms; ++j) {
      x[j] = TermValues<Source, N>::Load(task.terms[first + j], element);
    }
    BASIN_UNROLL
    for (unsigned j = 0; j < kTerms; ++j) AddTerm(task.terms[first + j], x[j], acc);
  }

  template <unsigned N>
  static BASIN_HOST_DEVICE void AddTerm(const TaskTerm& term, const Pack<A, N>& x,
                                        Pack<A, N>* acc) {
    BASIN_UNROLL
    for (unsigned k = 0; k < N; ++k) {
      acc->values[k] = acc->values[k] + Scale(x.values[k], term.unscale, term.factor);
    }
  }

  // Any fold, with the facts of each step. `acc` is the start, and then the end.
  template <unsigned N>
  static BASIN_HOST_DEVICE void FoldAndSee(const ReduceTask& task, uint64_t element,
                                           Pack<A, N>* acc, ThreadFacts* facts) {
    bool started = false;
    for (uint32_t t = 0; t < task.term_count; ++t) {
      const TaskTerm& term = task.terms[t];
      const Pack<A, N> x = TermValues<Source, N>::Load(term, element);
      BASIN_UNROLL
      for (unsigned k = 0; k < N; ++k) {
        const A before = acc->values[k];
        const A p = Scale(x.values[k], term.unscale, term.factor);
        acc->values[k] = Next(task.combine, before, p);
        if (Wraps(task.combine, before, p)) ++facts->integer_wraps;
        if (!IsFinite(x.values[k])) {
          facts->SeeNonFinite(term.contribution, element + k);
        } else if ((!started || IsFinite(before)) && !IsFinite(acc->values[k])) {
          ++facts->overflows;
        }
      }
      started = true;
    }
  }

  // ---- Finishing --------------------------------------------------------------------------------

  // Writes N results and returns them as they were rounded, for the norm; integers have none.
  template <unsigned N>
  static BASIN_HOST_DEVICE Pack<Rounded<Source>, N> Store(const ReduceTask& task, uint64_t element,
                                                          const Pack<A, N>& acc,
                                                          ThreadFacts* facts) {
    Pack<Rounded<Source>, N> rounded = {};
    if constexpr (kFloat) {
      Pack<A, N> y;
      BASIN_UNROLL
      for (unsigned k = 0; k < N; ++k) {
        y.values[k] = FinishedValue(task.finish, acc.values[k], task.finish_constant);
      }
      rounded = StoreFloats(task, element, y);
      BASIN_UNROLL
      for (unsigned k = 0; k < N; ++k) {
        if (IsFinite(acc.values[k]) && !IsFinite(rounded.values[k])) ++facts->overflows;
      }
    } else {
      StoreIntegers(task, element, acc, facts);
    }
    return rounded;
  }

  template <unsigned N>
  static BASIN_HOST_DEVICE Pack<A, N> StoreFloats(const ReduceTask& task, uint64_t element,
                                                  const Pack<A, N>& y) {
    Pack<A, N> rounded;
    if constexpr (std::is_same_v<A, float>) {
      if (task.result_dtype == DType::kF16) return StoreNarrow<BranchlessF16>(task, element, y);
      if (task.result_dtype == DType::kBF16) return StoreNarrow<BranchlessBF16>(task, element, y);
    }
    BASIN_UNROLL
    for (unsigned k = 0; k < N; ++k) rounded.values[k] = Canonical(y.values[k]);
    StorePack<A, N>(task.output, element, rounded);
    return rounded;
  }

  template <typename Narrow, unsigned N>
  static BASIN_HOST_DEVICE Pack<float, N> StoreNarrow(const ReduceTask& task, uint64_t element,
                                                      const Pack<float, N>& y) {
    Pack<uint16_t, N> bits;
    Pack<float, N> rounded;
    BASIN_UNROLL
    for (unsigned k = 0; k < N; ++k) {
      bits.values[k] = Narrow::Narrow(y.values[k]);
      rounded.values[k] = Narrow::Widen(bits.values[k]);
    }
    StorePack<uint16_t, N>(task.output, element, bits);
    return rounded;
  }

  template <unsigned N>
  static BASIN_HOST_DEVICE void StoreIntegers(const ReduceTask& task, uint64_t element,
                                              const Pack<A, N>& acc, ThreadFacts* facts) {
    if (task.result_dtype == DType::kI64) {
      StorePack<int64_t, N>(task.output, element, acc);
    } else if (task.result_dtype == DType::kI32) {
      StoreLowBits<int32_t>(task, element, acc, facts);
    } else {
      StoreLowBits<uint8_t>(task, element, acc, facts);
    }
  }

  template <typename Integer, unsigned N>
  static BASIN_HOST_DEVICE void StoreLowBits(const ReduceTask& task, uint64_t element,
                                             const Pack<A, N>& acc, ThreadFacts* facts) {
    Pack<Integer, N> out;
    BASIN_UNROLL
    for (unsigned k = 0; k < N; ++k) {
      out.values[k] = static_cast<Integer>(acc.values[k]);
      if (static_cast<A>(out.values[k]) != acc.values[k]) ++facts->integer_wraps;
    }
    StorePack<Integer, N>(task.output, element, out);
  }

  // ---- A vector, from the inputs to the output --------------------------------------------------

  template <unsigned N>
  static BASIN_HOST_DEVICE void ReduceElements(const ReduceTask& task, uint64_t element,
                                               Rounded<Source>* shared, ThreadFacts* facts) {
    Pack<A, N> acc = StartOf<N>(task);
    if (TestsAfterwards(task)) {
      FoldSum(task, element, &acc);
      SeeAfterwards(task, element, acc, facts);
    } else {
      FoldAndSee(task, element, &acc, facts);
    }
    const Pack<Rounded<Source>, N> rounded = Store(task, element, acc, facts);
    if (task.norm_leaves != nullptr) StorePack<Rounded<Source>, N>(shared, 0, rounded);
  }

  template <unsigned N>
  static BASIN_HOST_DEVICE void SeeAfterwards(const ReduceTask& task, uint64_t element,
                                              const Pack<A, N>& acc, ThreadFacts* facts) {
    BASIN_UNROLL
    for (unsigned k = 0; k < N; ++k) {
      if (IsFinite(acc.values[k])) continue;
      Pack<A, 1> again = StartOf<1>(task);
      FoldAndSee(task, element + k, &again, facts);
    }
  }
};

// The dtype that a task's terms have in common; kUnspecified if they have none.
inline DType SourceOf(const ReduceTask& task) {
  const DType dtype = task.terms[0].wire_dtype;
  for (uint32_t t = 1; t < task.term_count; ++t) {
    if (task.terms[t].wire_dtype != dtype) return DType::kUnspecified;
  }
  return dtype;
}

// Calls visitor(Source{}) with the source of a task.
template <typename Visitor>
auto VisitSource(const ReduceTask& task, Visitor visitor) {
  switch (SourceOf(task)) {
    case DType::kUnspecified:
      return visitor(FromMixed{});
    case DType::kF64:
      return visitor(FromF64{});
    case DType::kF16:
      return visitor(FromF16{});
    case DType::kBF16:
      return visitor(FromBF16{});
    case DType::kI64:
      return visitor(FromInteger<int64_t>{});
    case DType::kI32:
      return visitor(FromInteger<int32_t>{});
    case DType::kU8:
      return visitor(FromInteger<uint8_t>{});
    default:
      return visitor(FromF32{});
  }
}

// ---- What a thread does in a tile ---------------------------------------------------------------

// Elements [begin, end) of the span are the block's; `tile` counts from its begin.
struct BlockShare {
  uint64_t begin;
  uint64_t end;
};

template <typename Source>
BASIN_HOST_DEVICE BlockShare ShareOf(const ReduceTask& task, uint64_t block) {
  const uint64_t size = task.norm_leaves != nullptr ? uint64_t{kNormLeafElements}
                                                    : kTilesWithoutNorm<Source> * kTile<Source>;
  const uint64_t begin = block * size;
  return {begin, begin + size < task.count ? begin + size : task.count};
}

template <typename Source>
BASIN_HOST_DEVICE uint64_t BlocksOf(const ReduceTask& task) {
  const uint64_t size = ShareOf<Source>(task, 0).end;
  return size == 0 ? 0 : (task.count + size - 1) / size;
}

// `shared` is the tile's buffer of kTile results.
template <typename Source>
BASIN_HOST_DEVICE void Produce(const ReduceTask& task, const BlockShare& share, uint64_t tile,
                               unsigned producer, Rounded<Source>* shared, ThreadFacts* facts) {
  constexpr unsigned kElements = kVector<Source>;
  const uint64_t element = share.begin + tile * kTile<Source> + uint64_t{producer} * kElements;
  Rounded<Source>* const results = shared + producer * kElements;
  if (task.aligned && element + kElements <= share.end) {
    Reduction<Source>::template ReduceElements<kElements>(task, element, results, facts);
    return;
  }
  for (unsigned k = 0; k < kElements && element + k < share.end; ++k) {
    Reduction<Source>::template ReduceElements<1>(task, element + k, results + k, facts);
  }
}

// Adds the squares of one lane of a tile. A tile is a whole number of batches of rows, and a row is
// kNormLanes elements. Only the sums wait for each other: in a full tile the squares of a batch are
// there before the first is added.
template <typename Source>
BASIN_HOST_DEVICE double AddSquares(const BlockShare& share, uint64_t tile, unsigned lane,
                                    const Rounded<Source>* shared, double sum) {
  const uint64_t first = share.begin + tile * kTile<Source>;
  const uint64_t left = share.end - first;
  if (left < kTile<Source>) {
    for (unsigned i = lane; i < left; i += kNormLanes) sum = sum + Square(shared[i]);
    return sum;
  }
  constexpr unsigned kBatch = 16;
  static_assert(kTile<Source> % (kBatch * kNormLanes) == 0);
  for (unsigned begin = lane; begin < kTile<Source>; begin += kBatch * kNormLanes) {
    double squares[kBatch];
    BASIN_UNROLL
    for (unsigned j = 0; j < kBatch; ++j) squares[j] = Square(shared[begin + j * kNormLanes]);
    BASIN_UNROLL
    for (unsigned j = 0; j < kBatch; ++j) sum = sum + squares[j];
  }
  return sum;
}

// ---- A thread of a block ------------------------------------------------------------------------

// The code of one thread of one block. `Block` is the interface of the device:
//   Wait()             returns when every thread of the block has called it
//   FromLane(x, down)  the x of the thread `down` places further in the warp; all of the warp call
//   Publish(facts)     adds what the thread has seen to the task's facts
template <typename Source, typename Block>
BASIN_DEVICE void RunThread(const ReduceTask& task, uint64_t block_index, unsigned thread,
                            Rounded<Source> (&tiles)[2][kTile<Source>], Block block) {
  const BlockShare share = ShareOf<Source>(task, block_index);
  const bool is_producer = thread < kProducers;
  const bool with_norm = task.norm_leaves != nullptr;
  const unsigned lane = thread - kProducers;  // The lane of an adder.
  ThreadFacts facts;
  double sum = 0.0;
  for (uint64_t tile = 0; share.begin + tile * kTile<Source> < share.end; ++tile) {
    // Two buffers: while one is added up, the other is filled.
    Rounded<Source>* const shared = tiles[tile % 2];
    if (is_producer) Produce<Source>(task, share, tile, thread, shared, &facts);
    if (with_norm) {
      // Behind it this tile is full, and the adders are done with the tile before: its buffer is
      // the one that is filled next.
      block.Wait();
      if (!is_producer && lane < kNormLanes) {
        sum = AddSquares<Source>(share, tile, lane, shared, sum);
      }
    }
  }
  if (is_producer) {
    block.Publish(facts);
    return;
  }
  for (unsigned half = kNormLanes / 2; half > 0; half /= 2) sum = sum + block.FromLane(sum, half);
  if (lane == 0) task.norm_leaves[block_index] = Canonical(sum);
}

// The threads of a block, for a launch.
BASIN_HOST_DEVICE unsigned ThreadsOf(const ReduceTask& task) {
  return kProducers + (task.norm_leaves != nullptr ? kAdders : 0);
}

}  // namespace basin::kernels::cuda

#endif  // BASIN_KERNELS_CUDA_REDUCE_BODY_H_
