// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "client/transport/row_calls.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "client/core/rows.h"
#include "client/core/unnamed.h"
#include "client/transport/source.h"
#include "client/transport/trainer_calls.h"
#include "proto/wire/status_detail.h"

namespace basin::client {
namespace {

// What a worker has sent beside its rows.
struct GatheredShare {
  int64_t rank = 0;
  size_t contributor = 0;  // The worker's number among the contributors.
  std::vector<int64_t> numbers;
};

absl::Status CallError(ErrorCode code, const std::string& text) {
  return wire::ToStatus({code, text});
}

uint64_t SumOfFirst(const std::vector<int64_t>& numbers, size_t count) {
  uint64_t sum = 0;
  for (size_t i = 0; i < count; ++i) sum += static_cast<uint64_t>(numbers[i]);
  return sum;
}

}  // namespace

ReceivedRows::ReceivedRows(std::vector<uint64_t> rows_of_parts, uint64_t bytes_of_row)
    : rows(std::move(rows_of_parts)), row_bytes(bytes_of_row) {
  data.reset(new char[std::accumulate(rows.begin(), rows.end(), uint64_t{0}) * row_bytes]);
}

char* ReceivedRows::At(size_t part) const {
  const auto before = rows.begin() + static_cast<ptrdiff_t>(part);
  return data.get() + std::accumulate(rows.begin(), before, uint64_t{0}) * row_bytes;
}

// Belongs to the thread that begins or awaits the call.
struct RowCalls::Call {
  struct Share {
    WorkerId worker;
    uint64_t bytes = 0;
  };

  bool gathers() const { return kind == Kind::kAllgather || kind == Kind::kAllToAll; }
  uint32_t world_size() const { return members.members.trainers(); }
  std::string lane_name() const { return absl::StrCat(sized ? "call/contents/" : "call/", key); }

  // The parts of an array of the round are those from the first number up to the second one.
  std::pair<size_t, size_t> PartsOf(size_t array) const;
  // Whether each of them has a result.
  bool Has(const RoundResult& result, size_t array) const;
  // Copies bytes [begin, begin + count) of the array.
  absl::Status Copy(const RoundResult& result, size_t array, uint64_t begin, uint64_t count,
                    char* to) const;

  // ---- constant once it is begun
  Kind kind = Kind::kAllgather;
  std::string key;   // Its lane, without the prefix.
  std::string what;  // "all-to-all sent": for errors.
  RowArray rows;
  uint64_t bytes = 0;  // By its shape.
  uint64_t row_bytes = 0;
  Membership members;
  uint32_t rank = 0;
  WorkerId root;              // The one whose rows a broadcast sends.
  std::vector<int64_t> head;  // A gathering's first rank of this worker, and its numbers.
  float nothing = 0;          // What the first round of a gathering adds up.

  // ---- the round in flight
  LaneHandle lane = 0;
  std::vector<CallPart> parts;  // Those of the round's arrays, in their order.
  std::vector<TensorHandle> tensors;
  bool sized = false;  // It is the second round of a gathering, which has a head and rows of each:
  std::vector<Share> shares;
  absl::Status refusal;  // Why this worker has withdrawn its contribution.

  bool waited_for = false;  // Guarded by RowCalls::mutex_.
};

std::pair<size_t, size_t> RowCalls::Call::PartsOf(size_t array) const {
  const auto first = std::partition_point(
      parts.begin(), parts.end(), [array](const CallPart& part) { return part.array < array; });
  const auto end = std::partition_point(
      first, parts.end(), [array](const CallPart& part) { return part.array == array; });
  return {static_cast<size_t>(first - parts.begin()), static_cast<size_t>(end - parts.begin())};
}

bool RowCalls::Call::Has(const RoundResult& result, size_t array) const {
  const auto [first, last] = PartsOf(array);
  return std::all_of(tensors.begin() + static_cast<ptrdiff_t>(first),
                     tensors.begin() + static_cast<ptrdiff_t>(last),
                     [&](TensorHandle tensor) { return result.Has(tensor); });
}

absl::Status RowCalls::Call::Copy(const RoundResult& result, size_t array, uint64_t begin,
                                  uint64_t count, char* to) const {
  const auto [first, last] = PartsOf(array);
  for (size_t i = first; i < last; ++i) {
    const CallPart& part = parts[i];
    const uint64_t from = std::max(begin, part.offset);
    const uint64_t end = std::min(begin + count, part.offset + part.bytes);
    if (from >= end) continue;
    absl::Status status = result.CopyPart(tensors[i], part.bytes, from - part.offset,
                                          to + (from - begin), end - from);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

RowCalls::RowCalls(Worker& worker, const Clock& clock, WorkerId id)
    : worker_(worker), clock_(clock), id_(std::move(id)) {}

// ---- begin

absl::StatusOr<std::shared_ptr<RowCalls::Call>> RowCalls::Make(Kind kind, RowArray rows,
                                                               LaneHandle& handle) const {
  // The word for people, and that in the names of lanes.
  const auto [word, lane] = [kind]() -> std::pair<const char*, const char*> {
    switch (kind) {
      case Kind::kAllgather:
        return {"allgather", "allgather"};
      case Kind::kAllToAll:
        return {"all-to-all", "alltoall"};
      case Kind::kReduceScatter:
        return {"reduce-scatter", "reducescatter"};
      case Kind::kBroadcast:
        break;
    }
    return {"broadcast", "broadcast of values"};
  }();
  auto call = std::make_shared<Call>();
  call->kind = kind;
  call->key = absl::StrCat(lane, "/", rows.spec.name);
  call->what = absl::StrCat(word, " ", rows.spec.name);
  // It was begun for the members of that time, so the rest of the arguments does not matter.
  if (const auto open = HandleOf(call->key); open.has_value()) {
    handle = *open;
    return CallError(ErrorCode::kFailedPrecondition,
                     absl::StrCat("The ", call->what, " was begun before, and its outcome is not ",
                                  "known yet. Wait for it first."));
  }
  const std::optional<uint64_t> bytes = TensorBytes(rows.spec);
  const std::optional<uint64_t> row_bytes = RowBytes(rows.spec);
  if (!bytes.has_value() || !row_bytes.has_value()) {
    return CallError(ErrorCode::kInvalidArgument,
                     absl::StrCat("The array of the ", call->what, " is ", DescribeSpec(rows.spec),
                                  ", which has no usable size. Give it a dtype and a shape."));
  }
  const JobView view = worker_.view();
  if (view.fatal.has_value()) return wire::ToStatus(*view.fatal);
  call->members = view.membership;
  const MemberList& members = call->members.members;
  const auto position =
      view.rank.has_value() ? members.PositionOf(*view.rank) : std::optional<size_t>();
  if (position.has_value()) {
    call->rank = *view.rank;
    call->head = {members.FirstRank(*position)};
  } else {
    // The begin of the round refuses it, unless the worker becomes a member right now.
    call->head = {0};
    call->refusal = CallError(ErrorCode::kUnavailable,
                              absl::StrCat("Worker ", id_, " was no member when it began the ",
                                           call->what, ". Call it again, on all workers."));
  }
  const bool of_each_rank = kind == Kind::kAllToAll || kind == Kind::kReduceScatter;
  if (of_each_rank && position.has_value() && members.RanksOf(*position) > 1) {
    return CallError(ErrorCode::kFailedPrecondition,
                     absl::StrCat("The ", call->what, " has rows for each rank, and worker ", id_,
                                  " stands for ", members.RanksOf(*position),
                                  " of them. Connect a worker for each trainer."));
  }
  call->rows = std::move(rows);
  call->bytes = *bytes;
  call->row_bytes = *row_bytes;
  if (kind != Kind::kBroadcast) {  // There, only the root needs the data.
    absl::Status status = CheckData(call->rows.spec, *bytes, call->rows.data, call->rows.bytes);
    if (!status.ok()) return status;
  }
  // An array without bytes is contributed as well, and nothing of it is read.
  if (*bytes == 0) call->rows.data = &call->nothing;
  return call;
}

absl::Status RowCalls::Allgather(RowArray rows, LaneHandle& call) {
  const auto made = Make(Kind::kAllgather, std::move(rows), call);
  if (!made.ok()) return made.status();
  const TensorSpec& spec = (*made)->rows.spec;
  return Gather(*made, absl::StrCat("allgather of ", DescribeRows(spec)),
                {static_cast<int64_t>(RowsOf(spec))}, call);
}

absl::Status RowCalls::AllToAll(RowArray rows, const std::vector<uint64_t>& splits,
                                LaneHandle& call) {
  const auto made = Make(Kind::kAllToAll, std::move(rows), call);
  if (!made.ok()) return made.status();
  const Call& all = **made;
  const TensorSpec& spec = all.rows.spec;
  const std::vector<int64_t> numbers(splits.begin(), splits.end());
  const bool fit = numbers.size() == all.world_size() && AddUpTo(numbers, RowsOf(spec));
  if (!fit && all.refusal.ok()) {
    return CallError(
        ErrorCode::kInvalidArgument,
        absl::StrCat("The ", all.what, " has ", RowsOf(spec), " rows and ", splits.size(),
                     " splits of ", SumOfFirst(numbers, numbers.size()), ". Give each of the ",
                     all.world_size(), " ranks a number of rows, which add up to the rows."));
  }
  return Gather(
      *made,
      absl::StrCat("alltoall among ", DescribeMembers(all.members), " of ", DescribeRows(spec)),
      numbers, call);
}

absl::Status RowCalls::Gather(const std::shared_ptr<Call>& call, const std::string& text,
                              const std::vector<int64_t>& numbers, LaneHandle& handle) {
  call->head.insert(call->head.end(), numbers.begin(), numbers.end());
  BeginRound begin;
  begin.spec.op = ReduceOp::kWeightedAverage;
  begin.spec.weight_by = WeightBy::kSamples;
  begin.spec.kind = ContributionKind::kSum;
  begin.counts.samples = call->bytes + 1;  // A weight of 0 would not be counted.
  if (absl::Status status = SetCall(begin, text); !status.ok()) return status;
  call->parts = {{0, 0, sizeof call->nothing, {"sizes", DType::kF32, {1}}}};
  return Start(call, begin, {Memory{&call->nothing, call}}, handle);
}

absl::Status RowCalls::ReduceScatter(RowArray rows, BeginRound begin, LaneHandle& call) {
  const auto made = Make(Kind::kReduceScatter, std::move(rows), call);
  if (!made.ok()) return made.status();
  Call& scatter = **made;
  const TensorSpec& spec = scatter.rows.spec;
  if (spec.shape.empty()) {
    return CallError(ErrorCode::kInvalidArgument,
                     absl::StrCat("The ", scatter.what, " was given a number, which has no rows ",
                                  "to share. Reduce it in a round of its own."));
  }
  absl::Status status =
      SetCall(begin, absl::StrCat("reducescatter among ", DescribeMembers(scatter.members), ": ",
                                  ReduceOpName(begin.spec.op), " of ", DescribeArray(spec)));
  if (!status.ok()) return status;
  scatter.parts = {{0, 0, scatter.bytes, spec}};
  return Start(*made, begin, {Memory{scatter.rows.data}}, call);
}

absl::Status RowCalls::Broadcast(RowArray rows, uint32_t root, LaneHandle& call) {
  const auto made = Make(Kind::kBroadcast, std::move(rows), call);
  if (!made.ok()) return made.status();
  Call& broadcast = **made;
  const TensorSpec& spec = broadcast.rows.spec;
  const MemberList& members = broadcast.members.members;
  const std::optional<size_t> position = members.PositionOf(root);
  if (position.has_value()) {
    broadcast.root = members[*position];
  } else if (broadcast.refusal.ok()) {
    return CallError(ErrorCode::kInvalidArgument,
                     absl::StrCat("The ", broadcast.what, " has no root: there is no rank ", root,
                                  ". Name a rank of the present workers."));
  }
  const bool mine = broadcast.root == id_;
  absl::Status status;
  if (mine) {
    status = CheckData(spec, broadcast.bytes, broadcast.rows.data, broadcast.rows.bytes);
  }
  BeginRound begin;
  begin.spec.op = ReduceOp::kMax;
  if (status.ok()) {
    status = SetCall(begin, absl::StrCat("broadcast from rank ", root, " (worker ", broadcast.root,
                                         ") of ", DescribeArray(spec)));
  }
  if (!status.ok()) return status;
  broadcast.parts = PartsOfBytes({broadcast.bytes});
  return Start(*made, begin, {mine ? Memory{broadcast.rows.data} : Memory{}}, call);
}

absl::Status RowCalls::Start(const std::shared_ptr<Call>& call, const BeginRound& begin,
                             const std::vector<Memory>& arrays, LaneHandle& handle) {
  if (absl::Status begun = Contribute(call, begin, arrays); !begun.ok()) return begun;
  handle = call->lane;
  const MutexLock lock(mutex_);
  calls_[handle] = call;
  return absl::OkStatus();
}

absl::Status RowCalls::Contribute(const std::shared_ptr<Call>& call, BeginRound begin,
                                  const std::vector<Memory>& arrays) {
  std::vector<TensorSpec> specs;
  specs.reserve(call->parts.size());
  for (const CallPart& part : call->parts) specs.push_back(part.spec);
  auto registered = worker_.Register(call->lane_name(), LaneKind::kCall, specs);
  if (!registered.ok()) return registered.status();
  begin.lane = registered->lane;
  if (absl::Status begun = worker_.Begin(begin); !begun.ok()) return begun;
  call->lane = registered->lane;
  call->tensors = std::move(registered->tensors);
  std::vector<Source> sources;
  for (size_t i = 0; i < call->parts.size(); ++i) {
    const CallPart& part = call->parts[i];
    const Memory& array = arrays[part.array];
    if (array.data == nullptr) continue;
    sources.emplace_back(call->tensors[i], static_cast<const char*>(array.data) + part.offset,
                         part.bytes, wire::Encoding{}, array.owner);
  }
  if (call->refusal.ok() && !sources.empty()) {
    call->refusal = worker_.Push(call->lane, absl::MakeSpan(sources));
  }
  if (call->refusal.ok()) call->refusal = worker_.Commit(call->lane);
  if (!call->refusal.ok()) {
    // If the round has ended meanwhile, there is nothing to withdraw.
    worker_.Withdraw({call->lane, std::string(call->refusal.message())}).IgnoreError();
  }
  return absl::OkStatus();
}

std::optional<LaneHandle> RowCalls::HandleOf(const std::string& key) const {
  const MutexLock lock(mutex_);
  for (const auto& [handle, call] : calls_) {
    if (call->key == key) return handle;
  }
  return std::nullopt;
}

bool RowCalls::IsInFlight(const std::shared_ptr<Call>& call) const {
  const MutexLock lock(mutex_);
  return std::any_of(calls_.begin(), calls_.end(),
                     [&call](const auto& each) { return each.second == call; });
}

void RowCalls::GiveUp() {
  const MutexLock lock(mutex_);
  calls_.clear();
}

// ---- wait

absl::StatusOr<ReceivedRows> RowCalls::Wait(LaneHandle handle, absl::Duration timeout) {
  if (worker_.InLoop()) {
    return CallError(ErrorCode::kFailedPrecondition,
                     "A callback waits for a call on rows; wait for it in another thread.");
  }
  std::shared_ptr<Call> call;
  {
    const MutexLock lock(mutex_);
    const auto found = calls_.find(handle);
    if (found == calls_.end()) {
      return CallError(ErrorCode::kNotFound,
                       absl::StrCat("No call on rows with the handle ", handle,
                                    " is in flight. Begin one, and wait for it once."));
    }
    call = found->second;
    if (call->waited_for) {
      return CallError(
          ErrorCode::kFailedPrecondition,
          absl::StrCat("Another thread waits for the ", call->what, " already. Let one wait."));
    }
    call->waited_for = true;
  }
  absl::StatusOr<ReceivedRows> received = Take(call, clock_.Now() + timeout);
  const MutexLock lock(mutex_);
  call->waited_for = false;
  const auto found = calls_.find(handle);
  if (!GoesOn(received.status()) && found != calls_.end() && found->second == call) {
    calls_.erase(found);
  }
  return received;
}

absl::StatusOr<ReceivedRows> RowCalls::Take(const std::shared_ptr<Call>& call,
                                            absl::Time deadline) {
  const auto await = [&]() -> RoundOutcome {
    const absl::Duration left = std::max(deadline - clock_.Now(), absl::ZeroDuration());
    RoundOutcome outcome = worker_.Wait(call->lane, left);
    // What has failed on this worker comes first, whatever the round has ended with.
    const bool fails = !outcome.ok() && !GoesOn(outcome.status()) && !call->refusal.ok();
    return fails ? RoundOutcome(call->refusal) : outcome;
  };
  if (call->gathers() && !call->sized) {
    const RoundOutcome sizes = await();
    if (!sizes.ok()) return sizes.status();
    if (absl::Status begun = BeginContents(call, **sizes); !begun.ok()) return begun;
  }
  const RoundOutcome outcome = await();
  if (!outcome.ok()) return outcome.status();
  if (!call->refusal.ok()) return call->refusal;
  const RoundResult& result = **outcome;
  if (result.rejected().has_value()) return wire::ToStatus(*result.rejected());
  const absl::Time began = result.StartOfCopy();
  absl::StatusOr<ReceivedRows> received = CopyFrom(*call, result);
  result.RecordCopy(began);
  if (received.ok()) received->facts = result.WithoutTensors();
  return received;
}

absl::Status RowCalls::BeginContents(const std::shared_ptr<Call>& call, const RoundResult& sizes) {
  if (!IsInFlight(call)) {  // Its memory is the trainer's again.
    return CallError(ErrorCode::kFailedPrecondition,
                     absl::StrCat("The ", call->what, " was given up with all other rounds. Call ",
                                  "it again, on all workers."));
  }
  const std::vector<Contributor>& contributors = sizes.record().value.contributors;
  if (call->refusal.ok() && sizes.rejected().has_value()) {
    call->refusal = wire::ToStatus(*sizes.rejected());
  }
  if (call->kind == Kind::kAllToAll && contributors.size() != call->world_size()) {
    // It is so on all workers, and none begins the second round.
    if (!call->refusal.ok()) return call->refusal;
    return CallError(ErrorCode::kUnavailable,
                     absl::StrCat("The ", call->what, " was begun for ", call->world_size(),
                                  " workers, and ", contributors.size(), " take part, because ",
                                  "members have changed. Call it again, on all workers."));
  }
  call->sized = true;
  const uint64_t head = call->head.size() * sizeof(int64_t);
  std::vector<uint64_t> bytes;
  std::vector<Memory> arrays;
  for (const Contributor& each : contributors) {
    const bool mine = each.worker == id_;
    const uint64_t theirs = std::max<uint64_t>(each.weight, 1) - 1;
    call->shares.push_back({each.worker, mine ? call->bytes : theirs});
    bytes.insert(bytes.end(), {head, call->shares.back().bytes});
    arrays.push_back(mine ? Memory{call->head.data(), call} : Memory{});
    arrays.push_back(mine ? Memory{call->rows.data} : Memory{});
  }
  BeginRound begin;
  begin.spec.op = ReduceOp::kMax;
  call->parts = PartsOfBytes(bytes);
  absl::Status begun = call->refusal.ok() ? Contribute(call, begin, arrays) : call->refusal;
  if (begun.ok()) return begun;
  // The others wait until this worker has begun the second round.
  call->refusal = begun;
  call->parts.clear();
  return Contribute(call, begin, {}).ok() ? absl::OkStatus() : begun;
}

absl::StatusOr<ReceivedRows> RowCalls::CopyFrom(const Call& call, const RoundResult& result) const {
  switch (call.kind) {
    case Kind::kAllgather:
    case Kind::kAllToAll:
      return CopyGathered(call, result);
    case Kind::kReduceScatter:
      return CopyScattered(call, result);
    case Kind::kBroadcast:
      break;
  }
  return CopyBroadcast(call, result);
}

absl::StatusOr<ReceivedRows> RowCalls::CopyGathered(const Call& call,
                                                    const RoundResult& result) const {
  std::vector<GatheredShare> shares;
  for (size_t i = 0; i < call.shares.size(); ++i) {
    const auto& [worker, bytes] = call.shares[i];
    if (!call.Has(result, 2 * i) || !call.Has(result, 2 * i + 1)) {
      return CallError(ErrorCode::kUnavailable,
                       absl::StrCat("Worker ", worker, " was lost before it had sent its part of ",
                                    "the ", call.what, ". Call it again, on all workers."));
    }
    std::vector<int64_t> numbers(call.head.size());
    absl::Status status = call.Copy(result, 2 * i, 0, numbers.size() * sizeof(int64_t),
                                    reinterpret_cast<char*>(numbers.data()));
    if (!status.ok()) return status;
    const int64_t rank = numbers.front();
    numbers.erase(numbers.begin());
    const bool fits = call.row_bytes == 0
                          ? bytes == 0
                          : bytes % call.row_bytes == 0 && AddUpTo(numbers, bytes / call.row_bytes);
    if (!fits) {
      return CallError(
          ErrorCode::kDataCorrupt,
          absl::StrCat("Worker ", worker, " has sent ", bytes, " bytes in the ", call.what,
                       ", which are not the ", SumOfFirst(numbers, numbers.size()), " rows of ",
                       call.row_bytes,
                       " bytes that it names. Run the same release "
                       "on all workers."));
    }
    shares.push_back({rank, i, std::move(numbers)});
  }
  // Contributors are in the order of their ids.
  std::stable_sort(shares.begin(), shares.end(),
                   [](const GatheredShare& a, const GatheredShare& b) { return a.rank < b.rank; });
  const bool all = call.kind == Kind::kAllgather;
  const auto own = std::find_if(shares.begin(), shares.end(), [&](const GatheredShare& share) {
    return call.shares[share.contributor].worker == id_;
  });
  if (own == shares.end() && !all) {
    return CallError(ErrorCode::kUnavailable,
                     absl::StrCat("The ", call.what, " went on without worker ", id_,
                                  ". Call it again, on all workers."));
  }
  const size_t mine = all ? 0 : static_cast<size_t>(own - shares.begin());
  std::vector<uint64_t> rows;
  rows.reserve(shares.size());
  for (const GatheredShare& share : shares) {
    rows.push_back(static_cast<uint64_t>(share.numbers[mine]));
  }
  ReceivedRows received(std::move(rows), call.row_bytes);
  char* to = received.data.get();
  for (size_t i = 0; i < shares.size(); ++i) {
    const uint64_t begin = SumOfFirst(shares[i].numbers, mine) * call.row_bytes;
    const uint64_t count = received.rows[i] * call.row_bytes;
    absl::Status status = call.Copy(result, 2 * shares[i].contributor + 1, begin, count, to);
    if (!status.ok()) return status;
    to += count;
  }
  return received;
}

absl::StatusOr<ReceivedRows> RowCalls::CopyScattered(const Call& call, const RoundResult& result) {
  const uint32_t trainers = TrainersOf(result.record().value);
  if (trainers != call.world_size()) {
    return CallError(ErrorCode::kUnavailable,
                     absl::StrCat("The ", call.what, " was begun for ", call.world_size(),
                                  " workers, and ", trainers, " took part, because members have ",
                                  "changed. Call it again, on all workers."));
  }
  const TensorHandle tensor = call.tensors.front();
  // The error is that of all workers, also of one that gets no rows.
  if (!result.Has(tensor)) return result.CopyPart(tensor, call.bytes, 0, nullptr, 0);
  const RowRange mine = RowsOfRank(RowsOf(call.rows.spec), call.rank, trainers);
  ReceivedRows received({mine.count}, call.row_bytes);
  absl::Status status = call.Copy(result, 0, mine.begin * call.row_bytes,
                                  mine.count * call.row_bytes, received.data.get());
  if (!status.ok()) return status;
  return received;
}

absl::StatusOr<ReceivedRows> RowCalls::CopyBroadcast(const Call& call, const RoundResult& result) {
  if (!call.Has(result, 0)) {
    return CallError(ErrorCode::kUnavailable,
                     absl::StrCat("Worker ", call.root, ", the root of the ", call.what,
                                  ", was lost before it had sent its rows. Call it again, on all "
                                  "workers, with a root that is there."));
  }
  ReceivedRows received({RowsOf(call.rows.spec)}, call.row_bytes);
  absl::Status status = call.Copy(result, 0, 0, call.bytes, received.data.get());
  if (!status.ok()) return status;
  return received;
}

}  // namespace basin::client
