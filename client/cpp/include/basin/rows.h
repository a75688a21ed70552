// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Calls in which workers bring each other rows: allgather, all-to-all, reduce-scatter and
// broadcast. Headers only, over the calls on rows of basin.h.
//
//   basin::RowCalls calls(*worker);
//   auto rows = calls.Allgather("features", {basin::DType::kF32, {64}, data, count}, 60s);
//
// All members make a call, by the same name. A name is for one kind of call, whose number of rows
// may change, except in a reduce-scatter. Workers in C and in Python (basin.Client) may take part:
// there, the broadcast is broadcast_async() with a name. Every worker receives what all have sent,
// also in an all-to-all.
//
// Failure: kMismatch, on all workers, if they differ in the dtype, the shape of a row, or the root;
// kUnavailable, on all of them, if one was lost before it had sent its rows, or if members have
// changed where ranks matter: call it again. After kOutcomeUnknown (the timeout) and kPaused the
// call goes on: the same call waits for it. Its rows must not change until then.
//
// Thread contract: one thread at a time. REQUIRES: the worker exists while this is used.

#ifndef BASIN_ROWS_H_
#define BASIN_ROWS_H_

#include <basin/client.h>
#include <basin/status.h>
#include <basin/types.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace basin {
inline namespace abi1 {

// Rows of this worker, contiguous, in C order.
struct Rows {
  DType dtype = DType::kF32;
  std::vector<std::uint64_t> row_shape;  // Empty: a row is a number.
  const void* data = nullptr;
  std::size_t count = 0;
};

class RowCalls {
 public:
  using Bytes = std::vector<char>;

  explicit RowCalls(Worker& worker) : worker_(&worker) {}

  // The rows of all workers, by rank. Each may have another number of them.
  Result<std::vector<Bytes>> Allgather(const std::string& name, const Rows& rows,
                                       Duration timeout) {
    return ByRank(Make(timeout, [&](std::uint32_t* call, basin_error** error) {
      const Array array(name, rows);
      return basin_allgather(worker_->c(), &array.c, rows.data, array.bytes, call, error);
    }));
  }

  // Sends the first splits[0] rows to rank 0, the next splits[1] to rank 1, and so on. Returns the
  // rows for this worker, by the rank that has sent them.
  Result<std::vector<Bytes>> AllToAll(const std::string& name, const Rows& rows,
                                      const std::vector<std::size_t>& splits, Duration timeout) {
    return ByRank(Make(timeout, [&](std::uint32_t* call, basin_error** error) {
      const Array array(name, rows);
      const std::vector<std::uint64_t> numbers(splits.begin(), splits.end());
      return basin_alltoall(worker_->c(), &array.c, rows.data, array.bytes, numbers.data(),
                            numbers.size(), call, error);
    }));
  }

  // Reduces the rows, as many on all workers, and returns those of this one: as many as the others
  // get, or one more for the first ranks. `call` of the specification is not used.
  Result<Bytes> ReduceScatter(const std::string& name, const RoundSpec& spec, const Rows& rows,
                              Duration timeout) {
    const auto begin = [&](std::uint32_t* call, basin_error** error) {
      const Array array(name, rows);
      const internal::SpecInC c(spec);
      return basin_reducescatter(worker_->c(), &array.c, c.get(), rows.data, array.bytes, call,
                                 error);
    };
    const Result<Received> received = Make(timeout, begin);
    if (!received.ok()) return received.status();
    return Part(*received, 0);
  }

  // Gives all workers the root's rows, in `to`, of as many bytes as the rows, which may be theirs.
  Status Broadcast(const std::string& name, std::uint32_t root, const Rows& rows, void* to,
                   Duration timeout) {
    const auto begin = [&](std::uint32_t* call, basin_error** error) {
      const Array array(name, rows);
      return basin_broadcast_rows(worker_->c(), &array.c, root, rows.data, array.bytes, call,
                                  error);
    };
    const Result<Received> received = Make(timeout, begin);
    if (!received.ok()) return received.status();
    std::size_t bytes = 0;
    const void* const data = basin_received_data(received->get(), 0, &bytes);
    std::copy_n(static_cast<const char*>(data), bytes, static_cast<char*>(to));
    return Status();
  }

 private:
  struct Free {
    void operator()(basin_received* received) const { basin_received_free(received); }
  };
  using Received = std::unique_ptr<basin_received, Free>;

  // Rows for the C interface. Refers to the name.
  struct Array {
    Array(const std::string& name, const Rows& rows) : shape{rows.count}, bytes(rows.count) {
      shape.insert(shape.end(), rows.row_shape.begin(), rows.row_shape.end());
      for (const std::uint64_t size : rows.row_shape) bytes *= size;
      bytes *= SizeOf(rows.dtype);
      c = {name.c_str(), static_cast<basin_dtype>(rows.dtype),
           static_cast<std::uint32_t>(shape.size()), shape.data()};
    }
    Array(const Array&) = delete;
    Array& operator=(const Array&) = delete;

    std::vector<std::uint64_t> shape;
    std::size_t bytes;
    basin_tensor c{};
  };

  static std::size_t SizeOf(DType dtype) {
    switch (dtype) {
      case DType::kF64:
      case DType::kI64:
        return 8;
      case DType::kF32:
      case DType::kI32:
        return 4;
      case DType::kF16:
      case DType::kBF16:
        return 2;
      case DType::kU8:
        return 1;
    }
    return 1;
  }

  // Begins a call, by begin(handle, error), unless it goes on; and waits for it.
  template <typename Begin>
  Result<Received> Make(Duration timeout, Begin begin) {
    std::uint32_t call = UINT32_MAX;
    internal::Taken refused;
    // A call that goes on cannot be begun, but its handle is there.
    const bool begun = begin(&call, refused.out()) == BASIN_OK;
    if (!begun && call == UINT32_MAX) return refused.Take();
    basin_received* received = nullptr;
    internal::Taken error;
    if (basin_wait_rows(worker_->c(), call, timeout.count(), &received, error.out()) != BASIN_OK) {
      return error.Take();
    }
    return Received(received);
  }
  static Bytes Part(const Received& received, std::size_t part) {
    std::size_t bytes = 0;
    const void* const data = basin_received_data(received.get(), part, &bytes);
    const char* const begin = static_cast<const char*>(data);
    return Bytes(begin, begin + bytes);
  }
  static Result<std::vector<Bytes>> ByRank(const Result<Received>& received) {
    if (!received.ok()) return received.status();
    std::vector<Bytes> by_rank;
    for (std::size_t i = 0; i < basin_received_parts(received->get()); ++i) {
      by_rank.push_back(Part(*received, i));
    }
    return by_rank;
  }

  Worker* worker_;
};

}  // namespace abi1
}  // namespace basin

#endif  // BASIN_ROWS_H_
