// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Calls in which workers bring each other rows: allgather, all-to-all, reduce-scatter and
// broadcast. Headers only, over client.h.
//
//   basin::RowCalls calls(*worker);
//   auto rows = calls.Allgather("features", {basin::DType::kF32, {64}, data, count}, 60s);
//
// All members make a call, by the same name. A name is for one kind of call, whose number of rows
// may change, except in a reduce-scatter. Workers of basin.Client in Python may make the same
// allgather, all-to-all and reduce-scatter. Every worker receives what all have sent, also in an
// all-to-all.
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
#include <map>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
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
    const std::string text = "allgather of " + TextOf(rows, "*");
    Result<std::vector<Share>> shares = Gather(
        "allgather/" + name, text, {static_cast<std::int64_t>(rows.count)}, rows, 0, timeout);
    if (!shares.ok()) return shares.status();
    std::vector<Bytes> by_rank;
    for (Share& share : *shares) by_rank.push_back(std::move(share.bytes));
    return by_rank;
  }

  // Sends the first splits[0] rows to rank 0, the next splits[1] to rank 1, and so on. Returns the
  // rows for this worker, by the rank that has sent them.
  Result<std::vector<Bytes>> AllToAll(const std::string& name, const Rows& rows,
                                      const std::vector<std::size_t>& splits, Duration timeout) {
    const Result<Place> place = worker_->place();
    if (!place.ok()) return place.status();
    const std::size_t sum = std::accumulate(splits.begin(), splits.end(), std::size_t{0});
    // A call that goes on was begun for the members of that time.
    const bool goes_on = open_.count("alltoall/" + name) > 0;
    if (!goes_on && (splits.size() != place->world_size || sum != rows.count)) {
      return Status(Code::kInvalidArgument,
                    "The all-to-all " + name + " has " + std::to_string(rows.count) + " rows and " +
                        std::to_string(splits.size()) + " splits of " + std::to_string(sum) +
                        ". Give each of the " + std::to_string(place->world_size) +
                        " ranks a number of rows, which add up to the rows.");
    }
    const std::string text = "alltoall among " + TextOf(*place) + " of " + TextOf(rows, "*");
    Result<std::vector<Share>> shares = Gather(
        "alltoall/" + name, text, {splits.begin(), splits.end()}, rows, splits.size(), timeout);
    if (!shares.ok()) return shares.status();
    std::size_t mine = 0;
    while ((*shares)[mine].worker != worker_->id()) ++mine;
    const std::size_t row = RowBytes(rows);
    std::vector<Bytes> by_rank;
    for (const Share& share : *shares) {
      const auto before = share.numbers.begin() + static_cast<std::ptrdiff_t>(mine);
      const auto first =
          static_cast<std::ptrdiff_t>(row * static_cast<std::size_t>(std::accumulate(
                                                share.numbers.begin(), before, std::int64_t{0})));
      const auto size = static_cast<std::ptrdiff_t>(row * static_cast<std::size_t>(*before));
      by_rank.emplace_back(share.bytes.begin() + first, share.bytes.begin() + first + size);
    }
    return by_rank;
  }

  // Reduces the rows, as many on all workers, and returns those of this one: as many as the others
  // get, or one more for the first ranks.
  Result<Bytes> ReduceScatter(const std::string& name, RoundSpec spec, const Rows& rows,
                              Duration timeout) {
    const Result<Place> place = worker_->place();
    if (!place.ok()) return place.status();
    const std::string key = "reducescatter/" + name;
    spec.call = "reducescatter among " + TextOf(*place) + ": " + NameOf(spec.op) + " of " +
                TextOf(rows, std::to_string(rows.count));
    std::vector<std::uint64_t> shape{rows.count};
    shape.insert(shape.end(), rows.row_shape.begin(), rows.row_shape.end());
    Open& open = open_[key];
    if (!open.lane.has_value()) {
      const Status begun = Begin(open, key, {{name, rows.dtype, shape}}, spec,
                                 {{rows.data, rows.count * RowBytes(rows)}});
      if (!begun.ok()) return Drop(key, begun);
      open.place = *place;
    }
    const Result<RoundResult> result = open.lane->Wait(timeout);
    if (!result.ok()) return DropUnlessOpen(key, result.status());
    const Place began = open.place;
    open_.erase(key);
    if (const Status rejection = result->rejection(); !rejection.ok()) return rejection;
    if (result->info().trainers != began.world_size) {
      return Status(Code::kUnavailable,
                    "The reduce-scatter " + name + " was begun for " +
                        std::to_string(began.world_size) + " workers, and " +
                        std::to_string(result->info().trainers) +
                        " took part, because members have changed. Call it again, on all workers.");
    }
    const std::size_t row = RowBytes(rows);
    Bytes whole(rows.count * row);
    if (Status copied = result->Copy(0, whole.data(), whole.size()); !copied.ok()) return copied;
    const std::size_t least = rows.count / began.world_size;
    const std::size_t more = rows.count % began.world_size;
    const std::size_t first = began.rank * least + std::min<std::size_t>(began.rank, more);
    const std::size_t count = least + (began.rank < more ? 1 : 0);
    const auto begin = whole.begin() + static_cast<std::ptrdiff_t>(first * row);
    return Bytes(begin, begin + static_cast<std::ptrdiff_t>(count * row));
  }

  // Gives all workers the root's rows, in `to`, of as many bytes as the rows, which may be theirs.
  Status Broadcast(const std::string& name, std::uint32_t root, const Rows& rows, void* to,
                   Duration timeout) {
    const std::string key = "broadcast of values/" + name;
    const std::size_t bytes = rows.count * RowBytes(rows);
    Open& open = open_[key];
    if (!open.lane.has_value()) {
      const std::string source = worker_->MemberId(root);
      if (source.empty()) {
        return Drop(key,
                    Status(Code::kInvalidArgument,
                           "The broadcast " + name + " has no root: there is no rank " +
                               std::to_string(root) + ". Name a rank of the present workers."));
      }
      open.source = source;
      RoundSpec spec(Op::kMax);
      spec.call = "broadcast from rank " + std::to_string(root) + " (worker " + source + ") of " +
                  TextOf(rows, std::to_string(rows.count));
      const void* data = source == worker_->id() ? rows.data : nullptr;
      const Status begun = Begin(open, key, PartsOf({bytes}), spec, PiecesOf({{data, bytes}}));
      if (!begun.ok()) return Drop(key, begun);
    }
    const Result<RoundResult> result = open.lane->Wait(timeout);
    if (!result.ok()) return DropUnlessOpen(key, result.status());
    const std::string source = open.source;
    open_.erase(key);
    if (const Status rejection = result->rejection(); !rejection.ok()) return rejection;
    std::size_t tensor = 0;
    Bytes received;
    if (!CopyParts(*result, bytes, tensor, received)) {
      return Status(Code::kUnavailable, "Worker " + source + ", the root of the broadcast " + name +
                                            ", was lost before it had sent its rows. Call it " +
                                            "again, on all workers, with a root that is there.");
    }
    std::copy(received.begin(), received.end(), static_cast<char*>(to));
    return Status();
  }

 private:
  struct Piece {
    const void* data = nullptr;  // Null: skipped.
    std::size_t bytes = 0;
  };
  struct Size {
    std::string worker;
    std::size_t bytes = 0;
  };
  struct Share {
    std::string worker;
    std::int64_t rank = 0;
    std::vector<std::int64_t> numbers;
    Bytes bytes;
  };
  // A call in progress.
  struct Open {
    std::optional<Lane> lane;
    Place place;                     // When it was begun.
    std::string source;              // The root of a broadcast.
    float nothing = 0;               // What the first round of a gathering adds up.
    std::vector<std::int64_t> head;  // The rank of this worker, and its numbers.
    std::vector<Size> sizes;         // After the first round.
  };

  static const char* NameOf(Op op) {
    switch (op) {
      case Op::kSum:
        return "SUM";
      case Op::kAverage:
        return "AVERAGE";
      case Op::kWeightedAverage:
        return "WEIGHTED_AVERAGE";
      case Op::kMin:
        return "MIN";
      case Op::kMax:
        return "MAX";
      case Op::kProduct:
        return "PRODUCT";
    }
    return "?";
  }
  // As Python names it.
  static std::pair<const char*, std::size_t> NameAndSize(DType dtype) {
    switch (dtype) {
      case DType::kF64:
        return {"float64", 8};
      case DType::kF32:
        return {"float32", 4};
      case DType::kF16:
        return {"float16", 2};
      case DType::kBF16:
        return {"bfloat16", 2};
      case DType::kI64:
        return {"int64", 8};
      case DType::kI32:
        return {"int32", 4};
      case DType::kU8:
        return {"uint8", 1};
    }
    return {"?", 1};
  }
  static std::size_t RowBytes(const Rows& rows) {
    std::size_t bytes = NameAndSize(rows.dtype).second;
    for (const std::uint64_t size : rows.row_shape) bytes *= size;
    return bytes;
  }
  static std::string TextOf(const Rows& rows, const std::string& count) {
    std::string text = std::string(NameAndSize(rows.dtype).first) + "[" + count;
    for (const std::uint64_t size : rows.row_shape) text += ", " + std::to_string(size);
    return text + "]";
  }
  static std::string TextOf(const Place& place) {
    return std::to_string(place.world_size) + " workers (generation " +
           std::to_string(place.generation.term) + "." + std::to_string(place.generation.counter) +
           ")";
  }

  // Calls `take(offset, length)` for the parts of so many bytes, whose lengths are powers of two,
  // so that a lane needs few tensors.
  template <typename Take>
  static void ForEachPart(std::size_t bytes, Take&& take) {
    std::size_t offset = 0;
    for (std::size_t length = std::size_t{1} << 62; length > 0; length >>= 1) {
      if ((bytes & length) == 0) continue;
      take(offset, length);
      offset += length;
    }
  }
  static std::vector<Tensor> PartsOf(const std::vector<std::size_t>& sizes) {
    std::vector<Tensor> tensors;
    std::map<std::size_t, std::size_t> used;
    for (const std::size_t size : sizes) {
      ForEachPart(size, [&](std::size_t, std::size_t length) {
        tensors.push_back({"u8/" + std::to_string(length) + "/" + std::to_string(used[length]++),
                           DType::kU8,
                           {length}});
      });
    }
    return tensors;
  }
  static std::vector<Piece> PiecesOf(const std::vector<Piece>& arrays) {
    std::vector<Piece> pieces;
    for (const Piece& array : arrays) {
      ForEachPart(array.bytes, [&](std::size_t offset, std::size_t length) {
        const char* data = static_cast<const char*>(array.data);
        pieces.push_back({data == nullptr ? nullptr : data + offset, length});
      });
    }
    return pieces;
  }
  // Copies an array, whose first part is `tensor`, which becomes that of the next one. False if
  // nobody has sent it.
  static bool CopyParts(const RoundResult& result, std::size_t bytes, std::size_t& tensor,
                        Bytes& to) {
    to.resize(bytes);
    bool all = true;
    ForEachPart(bytes, [&](std::size_t offset, std::size_t length) {
      all = all && result.Has(tensor) && result.Copy(tensor, to.data() + offset, length).ok();
      ++tensor;
    });
    return all;
  }

  Status Begin(Open& open, const std::string& key, const std::vector<Tensor>& tensors,
               const RoundSpec& spec, const std::vector<Piece>& pieces) {
    Result<Lane> lane = worker_->Register("call/" + key, tensors, LaneKind::kCall);
    if (!lane.ok()) return lane.status();
    if (Status begun = lane->Begin(spec); !begun.ok()) return begun;
    open.lane = *lane;
    for (std::size_t i = 0; i < pieces.size(); ++i) {
      if (pieces[i].data == nullptr) continue;
      // A round that was aborted drops the rest, and Wait has the reason.
      const Status pushed = lane->Push(i, pieces[i].data, pieces[i].bytes);
      if (!pushed.ok() && pushed.code() != Code::kRoundAborted) {
        lane->Withdraw(pushed.message()).IgnoreError();
        return pushed;
      }
    }
    const Status committed = lane->Commit();
    if (committed.ok() || committed.code() == Code::kRoundAborted) return Status();
    lane->Withdraw(committed.message()).IgnoreError();
    return committed;
  }
  Status Drop(const std::string& key, Status status) {
    open_.erase(key);
    return status;
  }
  Status DropUnlessOpen(const std::string& key, Status status) {
    const bool goes_on = status.code() == Code::kOutcomeUnknown || status.code() == Code::kPaused;
    return goes_on ? status : Drop(key, std::move(status));
  }

  // The bytes of all workers, by rank, in two rounds: in the first one each says how many bytes it
  // has, as a weight; in the second one each contributes tensors of its own. `workers`: how many
  // have to take part; 0: any number.
  Result<std::vector<Share>> Gather(const std::string& key, const std::string& text,
                                    std::vector<std::int64_t> numbers, const Rows& rows,
                                    std::size_t workers, Duration timeout) {
    const std::size_t bytes = rows.count * RowBytes(rows);
    Open& open = open_[key];
    if (!open.lane.has_value()) {
      const Result<Place> place = worker_->place();
      if (!place.ok()) return Drop(key, place.status());
      open.head = std::move(numbers);
      open.head.insert(open.head.begin(), place->first_rank);
      RoundSpec spec(Op::kWeightedAverage);
      spec.weight = Weight::kSamples;
      spec.contributes_sum = true;
      spec.counts.samples = static_cast<std::int64_t>(bytes) + 1;
      spec.call = text;
      const Status begun = Begin(open, key, {{"sizes", DType::kF32, {1}}}, spec,
                                 {{&open.nothing, sizeof open.nothing}});
      if (!begun.ok()) return Drop(key, begun);
    }
    if (open.sizes.empty()) {
      const Result<RoundResult> result = open.lane->Wait(timeout);
      if (!result.ok()) return DropUnlessOpen(key, result.status());
      if (Status rejection = result->rejection(); !rejection.ok()) return Drop(key, rejection);
      for (const Contributor& each : result->info().contributors) {
        open.sizes.push_back({each.worker, each.weight - 1});
      }
      if (workers != 0 && open.sizes.size() != workers) {
        return Drop(key, Status(Code::kUnavailable,
                                key + " was begun for " + std::to_string(workers) +
                                    " workers, and " + std::to_string(open.sizes.size()) +
                                    " take part, because members have changed. Call it again, on " +
                                    "all workers."));
      }
      if (Status begun = BeginContents(open, key, rows.data, bytes); !begun.ok()) {
        return Drop(key, begun);
      }
    }
    const Result<RoundResult> result = open.lane->Wait(timeout);
    if (!result.ok()) return DropUnlessOpen(key, result.status());
    const Open done = std::move(open);
    open_.erase(key);
    if (Status rejection = result->rejection(); !rejection.ok()) return rejection;
    return SharesOf(done, key, *result);
  }
  Status BeginContents(Open& open, const std::string& key, const void* data, std::size_t bytes) {
    const std::size_t head = open.head.size() * sizeof(std::int64_t);
    std::vector<std::size_t> sizes;
    std::vector<Piece> arrays;
    for (const Size& each : open.sizes) {
      const bool mine = each.worker == worker_->id();
      sizes.insert(sizes.end(), {head, each.bytes});
      arrays.push_back({mine ? open.head.data() : nullptr, head});
      arrays.push_back({mine ? data : nullptr, mine ? bytes : each.bytes});
    }
    return Begin(open, "contents/" + key, PartsOf(sizes), RoundSpec(Op::kMax), PiecesOf(arrays));
  }
  static Result<std::vector<Share>> SharesOf(const Open& done, const std::string& key,
                                             const RoundResult& result) {
    std::vector<Share> shares;
    std::size_t tensor = 0;
    for (const Size& each : done.sizes) {
      Share share{each.worker, 0, std::vector<std::int64_t>(done.head.size()), {}};
      Bytes head;
      if (!CopyParts(result, done.head.size() * sizeof(std::int64_t), tensor, head) ||
          !CopyParts(result, each.bytes, tensor, share.bytes)) {
        return Status(Code::kUnavailable, "Worker " + each.worker +
                                              " was lost before it had sent its part of " + key +
                                              ". Call it again, on all workers.");
      }
      std::copy(head.begin(), head.end(), reinterpret_cast<char*>(share.numbers.data()));
      share.rank = share.numbers.front();
      share.numbers.erase(share.numbers.begin());
      shares.push_back(std::move(share));
    }
    // They are in the order of the ids.
    std::stable_sort(shares.begin(), shares.end(),
                     [](const Share& a, const Share& b) { return a.rank < b.rank; });
    return shares;
  }

  Worker* worker_;
  std::map<std::string, Open> open_;  // By key.
};

}  // namespace abi1
}  // namespace basin

#endif  // BASIN_ROWS_H_
