// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "client/transport/worker.h"

#include <algorithm>
#include <random>

#include "absl/strings/str_cat.h"
#include "kernels/cast.h"
#include "proto/wire/session.h"
#include "proto/wire/status_detail.h"
#include "protocol/limits/names.h"
#include "runtime/contents.h"
#include "runtime/payload.h"

namespace basin::client {
namespace {

// The same in memory of its own. Statuses share their memory among copies. That is correct, but
// ThreadSanitizer reports it, because it does not see how a system build of Abseil counts the
// references.
absl::Status Unshared(const absl::Status& status) { return wire::ToStatus(wire::ToError(status)); }
template <typename T>
absl::StatusOr<T> Unshared(const absl::StatusOr<T>& value) {
  return value.ok() ? value : Unshared(value.status());
}

// A result for which one thread waits and which another provides.
template <typename T>
class Answer {
 public:
  void Give(const T& value) {
    MutexLock lock(mutex_);
    value_ = Unshared(value);
    given_.NotifyAll();
  }
  T Await() {
    MutexLock lock(mutex_);
    while (!value_.has_value()) given_.Wait(mutex_);
    return *std::exchange(value_, std::nullopt);
  }

 private:
  Mutex mutex_;
  Condition given_;
  std::optional<T> value_ ABSL_GUARDED_BY(mutex_);
};

uint64_t RandomNumber() {
  std::random_device device;
  uint64_t number = 0;
  while (number == 0) number = uint64_t{device()} << 32 | device();
  return number;
}

absl::Status CheckNames(const Config& config) {
  absl::Status status = CheckJobName(config.job);
  if (status.ok()) status = CheckWorkerId(config.worker);
  if (status.ok() && !config.run.empty()) status = CheckRunId(config.run);
  if (status.ok() && config.streams > kMaxStreams) {
    status = absl::InvalidArgumentError(absl::StrCat(
        config.streams, " data streams were requested, but the limit is ", kMaxStreams, "."));
  }
  return status.ok() ? status
                     : wire::ToStatus({ErrorCode::kInvalidArgument, std::string(status.message())});
}

// A call that would send an invalid message is refused here, because the aggregator would end the
// session.
template <typename Call>
absl::Status CheckCall(const Call& call) {
  absl::Status status = wire::Check(call);
  if (status.ok()) return status;
  return wire::ToStatus({ErrorCode::kInvalidArgument,
                         absl::StrCat("The protocol does not allow this call: ", status.message(),
                                      ". Correct the argument.")});
}

// What it sends, as far as a call decides it.
basin::Begin MessageOf(const BeginRound& begin) {
  return {0,
          1,
          begin.spec,
          begin.counts,
          begin.step_label,
          begin.samples,
          1,
          begin.carries,
          begin.local_reduction,
          begin.reduced_with,
          begin.compares_step};
}

absl::Status Closed() {
  return wire::ToStatus({ErrorCode::kFailedPrecondition, "This worker is being closed."});
}

absl::Status CannotWait() {
  return wire::ToStatus({ErrorCode::kFailedPrecondition,
                         "A callback made a call that waits; make it from another thread."});
}

// Whether the trainer's memory has the size of the tensor, so that nothing is read beyond it. A
// tensor without bytes is not read.
absl::Status CheckData(const TensorSpec& spec, uint64_t needed, const void* data, uint64_t bytes) {
  if (bytes == needed && (data != nullptr || needed == 0)) return absl::OkStatus();
  const std::string given = data == nullptr ? "null" : absl::StrCat(bytes, " bytes");
  return wire::ToStatus(
      {ErrorCode::kInvalidArgument,
       absl::StrCat("The data given for tensor ", spec.name, " (", DescribeSpec(spec), ") is ",
                    given, ". Pass the address of its ", needed, " bytes.")});
}

// Whether the trainer gets this instead of an outcome, and the round continues.
bool GoesOn(const absl::Status& status) {
  const ErrorCode code = wire::ToError(status).code;
  return code == ErrorCode::kOutcomeUnknown || code == ErrorCode::kPaused;
}

// The default size of a frame; only a hint here.
constexpr uint64_t kFrameBytes = uint64_t{1} << 20;

// A round in one call, as the loop sees it: it begins with the first tensors that are ready.
class RoundCall {
 public:
  // What is to be pushed at once.
  struct Tensors {
    Runner::Contributions begun;
    Runner::Growths more;
  };
  explicit RoundCall(BeginRound begin) : begin_(std::move(begin)) {}

  void Push(Runner& runner, Tensors& tensors, absl::Time now) {
    if (!begun_.has_value()) begun_ = runner.Begin(begin_, now);
    if (!begun_->ok()) return;
    if (!tensors.more.empty()) runner.PushMore(begin_.lane, tensors.more, now);
    if (!tensors.begun.empty()) runner.PushMany(begin_.lane, std::move(tensors.begun), now);
  }

  // Commits, unless something was `wrong` with a tensor, and waits. REQUIRES: Push was called.
  void End(Runner& runner, const absl::Status& wrong, absl::Time deadline, Runner::RoundDone done,
           absl::Time now) {
    if (!begun_->ok()) return done(*begun_);
    absl::Status status = wrong;
    if (status.ok()) status = runner.Commit(begin_.lane, nullptr, now);
    if (status.ok()) return runner.Wait(begin_.lane, deadline, std::move(done), now);
    // The round continues without this worker, or has ended; its outcome releases the memory.
    runner.Withdraw({begin_.lane, std::string(status.message())}, nullptr, now).IgnoreError();
    const auto ended = [status, done = std::move(done)](const RoundOutcome& outcome) {
      done(GoesOn(outcome.status()) ? outcome : RoundOutcome(status));
    };
    runner.Wait(begin_.lane, deadline, ended, now);
  }

 private:
  const BeginRound begin_;
  std::optional<absl::Status> begun_;
};

absl::Status CheckEncoding(const TensorSpec& spec, const wire::Encoding& encoding) {
  if (encoding.wire_dtype == DType::kUnspecified && encoding.wire_exponent == 0) {
    return absl::OkStatus();
  }
  if (spec.dtype == DType::kF32 && kernels::CanCast(encoding.wire_dtype, encoding.wire_exponent)) {
    return absl::OkStatus();
  }
  if (encoding.wire_exponent == kernels::kFitExponent) {
    if (spec.dtype == DType::kF32 && encoding.wire_dtype == DType::kF16) return absl::OkStatus();
    return wire::ToStatus(
        {ErrorCode::kInvalidArgument,
         absl::StrCat("Tensor ", spec.name, " (", DescribeSpec(spec), ") cannot be sent as ",
                      DTypeName(encoding.wire_dtype),
                      " with the fitted exponent: only f32 that is sent as f16 has one.")});
  }
  return wire::ToStatus(
      {ErrorCode::kInvalidArgument,
       absl::StrCat(
           "Tensor ", spec.name, " (", DescribeSpec(spec), ") cannot be sent as ",
           DTypeName(encoding.wire_dtype), " scaled by 2^", encoding.wire_exponent,
           ": only f32 can be sent narrower, as f16 or bf16, scaled by 2^-126 to 2^126.")});
}

}  // namespace

// ---- life

absl::StatusOr<std::unique_ptr<Worker>> Worker::Connect(WorkerOptions options, Connector& connector,
                                                        Clock& clock) {
  if (absl::Status status = CheckNames(options.core); !status.ok()) return status;
  if (options.core.nonce == 0) options.core.nonce = RandomNumber();
  if (options.core.jitter_seed == 0) options.core.jitter_seed = RandomNumber();
  std::unique_ptr<Worker> worker(new Worker(std::move(options), connector, clock));
  worker->loop_.Start(worker->runner_);
  return worker;
}

Worker::Worker(WorkerOptions options, Connector& connector, Clock& clock)
    : connector_(connector),
      timeline_(options.timeline),
      loop_(clock),
      runner_(std::move(options.core),
              {&connector, loop_.poster(), loop_.now_poster(),
               [this, placed = std::move(options.placed)](const Place& place) {
                 {
                   MutexLock lock(mutex_);
                   place_ = place;
                 }
                 if (placed == nullptr) return;
                 if (!loop_.InCall()) return placed(place);
                 // The trainer may hold a lock in its call that its callback needs.
                 loop_.poster()([placed, place](Runner&, absl::Time) { placed(place); });
               },
               options.ended != nullptr ? std::move(options.ended) : [](LaneHandle) {}, &gate_,
               &arenas_, timeline_}) {}

Worker::~Worker() {
  const auto quiet = std::make_shared<Answer<absl::Status>>();
  loop_.poster()([quiet](Runner& runner, absl::Time) {
    runner.Shutdown([quiet](const absl::Status& status) { quiet->Give(status); });
  });
  quiet->Await().IgnoreError();
  loop_.Stop();
}

// ---- how calls reach the loop

absl::Status Worker::Post(Task task) {
  if (loop_.InLoop()) {
    loop_.poster()(std::move(task));
    return absl::OkStatus();
  }
  return loop_.PostWithRoom(std::move(task)) ? absl::OkStatus() : Closed();
}

template <typename T>
T Worker::Ask(std::function<void(Runner&, absl::Time, std::function<void(const T&)>)> ask) {
  if (loop_.InLoop()) return CannotWait();
  const auto answer = std::make_shared<Answer<T>>();
  const bool posted = loop_.Call([ask = std::move(ask), answer](Runner& runner, absl::Time now) {
    ask(runner, now, [answer](const T& value) { answer->Give(value); });
  });
  return posted ? answer->Await() : T(Closed());
}

absl::Status Worker::Do(std::function<absl::Status(Runner&, absl::Time)> call) {
  return Ask<absl::Status>(
      [call = std::move(call)](Runner& runner, absl::Time now, const Runner::StatusDone& done) {
        done(call(runner, now));
      });
}

// ---- the place in the job

Place Worker::place() const {
  MutexLock lock(mutex_);
  return place_;
}

absl::Status Worker::Ready(uint64_t step_label, uint64_t state_hash) {
  return Do([=](Runner& runner, absl::Time now) {
    return runner.Call(DeclareReady{step_label, state_hash}, now);
  });
}

absl::Status Worker::AwaitWelcome(absl::Duration timeout) {
  return Ask<absl::Status>([timeout](Runner& runner, absl::Time now, Runner::StatusDone done) {
    runner.AwaitWelcome(now + timeout, std::move(done), now);
  });
}

absl::Status Worker::AwaitMember(absl::Duration timeout) {
  return Ask<absl::Status>([timeout](Runner& runner, absl::Time now, Runner::StatusDone done) {
    runner.AwaitMember(now + timeout, std::move(done), now);
  });
}

// ---- tensors

absl::StatusOr<Registration> Worker::Register(const std::string& lane, LaneKind kind,
                                              const std::vector<TensorSpec>& tensors) {
  using Registered = absl::StatusOr<Registration>;
  basin::Register message{lane, kind, tensors};
  if (absl::Status status = CheckCall(message); !status.ok()) return status;
  const RegisterTensors request{lane, kind, std::move(message.tensors)};
  Registered registered =
      Ask<Registered>([&request](Runner& runner, absl::Time now,
                                 const std::function<void(const Registered&)>& done) {
        done(runner.Register(request, now));
      });
  if (!registered.ok()) return registered;
  MutexLock lock(mutex_);
  auto& known = tensors_[registered->lane];
  for (size_t i = 0; i < tensors.size(); ++i) {
    const TensorHandle handle = registered->tensors[i];
    if (known.size() <= handle) known.resize(size_t{handle} + 1);
    if (known[handle] != nullptr) continue;
    known[handle] = std::make_shared<const TensorInfo>(
        TensorInfo{tensors[i], *TensorBytes(tensors[i]), kernels::TensorKey(tensors[i].name)});
    arenas_.host().Add(registered->lane, handle, known[handle]->bytes,
                       ElementSize(tensors[i].dtype));
  }
  return registered;
}

absl::StatusOr<std::shared_ptr<const Worker::TensorInfo>> Worker::Find(LaneHandle lane,
                                                                       TensorHandle tensor) const {
  MutexLock lock(mutex_);
  return FindLocked(lane, tensor);
}

absl::StatusOr<std::shared_ptr<const Worker::TensorInfo>> Worker::FindLocked(
    LaneHandle lane, TensorHandle tensor) const {
  const auto found = tensors_.find(lane);
  if (found != tensors_.end() && tensor < found->second.size() &&
      found->second[tensor] != nullptr) {
    return found->second[tensor];
  }
  return wire::ToStatus(
      {ErrorCode::kNotFound,
       absl::StrCat("Tensor handle ", tensor, " of lane handle ", lane, " is not registered.")});
}

// ---- memory

absl::StatusOr<void*> Worker::Allocate(uint64_t bytes) { return registered_.Allocate(bytes); }

absl::Status Worker::Free(const void* memory) {
  if (registered_.Free(memory)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      "This memory was not allocated by this worker, or was freed before. Free what basin_allocate "
      "has returned, once.");
}

// ---- rounds

absl::Status Worker::Begin(const BeginRound& begin) {
  const basin::Begin message = MessageOf(begin);
  if (absl::Status status = CheckCall(message); !status.ok()) return status;
  const bool recorded = timeline_ != nullptr && timeline_->Begin(begin.lane);
  absl::Status status =
      Do([&begin](Runner& runner, absl::Time now) { return runner.Begin(begin, now); });
  if (recorded && !status.ok()) timeline_->Refused(begin.lane);
  return status;
}

std::optional<ArenaPlace> Worker::PlaceFor(LaneHandle lane, TensorHandle tensor) {
  const std::shared_ptr<Segments> shared = connector_.shared();
  if (shared == nullptr) return std::nullopt;
  std::optional<ArenaPlace> place = arenas_.host().Take(lane, tensor);
  // What the aggregator does not map is sent from the trainer's memory, without a copy.
  if (place.has_value() && !shared->Offer(place->segment)) return std::nullopt;
  return place;
}

std::optional<ArenaPlace> Worker::PlaceInMemoryOfTrainer(const TensorInfo& info, const void* data) {
  const std::shared_ptr<Segments> shared = connector_.shared();
  if (shared == nullptr) return std::nullopt;
  std::optional<ArenaPlace> place =
      registered_.Find(data, info.bytes, ElementSize(info.spec.dtype));
  if (place.has_value() && !shared->Offer(place->segment)) return std::nullopt;
  return place;
}

Preparation Worker::Prepare(const TensorInfo& info, LaneHandle lane, const PushedTensor& pushed,
                            bool shared) {
  std::optional<ArenaPlace> place;
  if (registered_.any() && pushed.encoding.wire_dtype == DType::kUnspecified) {
    place = PlaceInMemoryOfTrainer(info, pushed.data);
  }
  if (!place.has_value() && shared) place = PlaceFor(lane, pushed.tensor);
  wire::Encoding encoding = pushed.encoding;
  if (encoding.wire_exponent == kernels::kFitExponent) {
    const uint32_t largest = kernels::LargestMagnitude(pushed.data, info.bytes / sizeof(float));
    encoding.wire_exponent = kernels::FittedExponent(largest);
  }
  return Preparation(++preparations_, info.key, info.spec.dtype, info.bytes, pushed.data, encoding,
                     std::move(place), pushed.narrowed);
}

absl::Status Worker::Push(LaneHandle lane, TensorHandle tensor, const void* data, uint64_t bytes,
                          wire::Encoding encoding) {
  const auto info = Find(lane, tensor);
  if (!info.ok()) return info.status();
  absl::Status status = CheckEncoding((*info)->spec, encoding);
  if (status.ok()) status = CheckData((*info)->spec, (*info)->bytes, data, bytes);
  if (!status.ok()) return status;
  const absl::Time began = StartOfPush();
  Preparation preparation = Prepare(**info, lane, {tensor, data, bytes, encoding}, true);
  preparation.Advance(kFrameBytes);
  status = Post(
      [lane, tensor, contribution = preparation.Begin()](Runner& runner, absl::Time now) mutable {
        runner.Push(lane, tensor, std::move(contribution), now);
      });
  while (status.ok() && !preparation.done()) {
    preparation.Advance(kFrameBytes);
    status = Post([lane, growths = Runner::Growths{{tensor, preparation.TakeGrowth()}}](
                      Runner& runner, absl::Time now) { runner.PushMore(lane, growths, now); });
  }
  if (timeline_ != nullptr) timeline_->Pushed(lane, began, 1, bytes);
  return status;
}

absl::StatusOr<Worker::Infos> Worker::FindPushed(LaneHandle lane,
                                                 absl::Span<const PushedTensor> tensors) const {
  Infos infos;
  infos.reserve(tensors.size());
  {
    MutexLock lock(mutex_);
    for (const PushedTensor& tensor : tensors) {
      auto info = FindLocked(lane, tensor.tensor);
      if (!info.ok()) return info.status();
      infos.push_back(*std::move(info));
    }
  }
  for (size_t i = 0; i < tensors.size(); ++i) {
    absl::Status status = CheckEncoding(infos[i]->spec, tensors[i].encoding);
    if (status.ok()) {
      status = CheckData(infos[i]->spec, infos[i]->bytes, tensors[i].data, tensors[i].bytes);
    }
    if (!status.ok()) return status;
  }
  return infos;
}

absl::Status Worker::CheckPush(LaneHandle lane, absl::Span<const PushedTensor> tensors) const {
  return FindPushed(lane, tensors).status();
}

std::optional<DevicePlace> Worker::TakeDevicePlace(LaneHandle lane, TensorHandle tensor, int device,
                                                   const DeviceArena::Make& make) {
  const std::shared_ptr<Segments> shared = connector_.shared();
  const auto info = Find(lane, tensor);
  if (shared == nullptr || !shared->takes_devices() || !info.ok()) return std::nullopt;
  DeviceArena& arena = arenas_.OfDevice(device, make);
  arena.Add(lane, tensor, (*info)->bytes, ElementSize((*info)->spec.dtype));
  std::optional<DevicePlace> place = arena.Take(lane, tensor);
  if (!place.has_value()) return std::nullopt;
  if (!shared->Offer(place->segment)) {
    arena.Refuse(place->segment);
    return std::nullopt;
  }
  // Until it is mapped, its bytes would have to be read by the host.
  if (!shared->Find({{place->at(), 1}}).has_value()) return std::nullopt;
  return place;
}

absl::Status Worker::PushMeasured(LaneHandle lane, std::vector<MeasuredTensor> tensors) {
  const absl::Time began = StartOfPush();
  uint64_t bytes = 0;
  Runner::Contributions contributions;
  contributions.reserve(tensors.size());
  for (MeasuredTensor& tensor : tensors) {
    const auto info = Find(lane, tensor.tensor);
    if (!info.ok()) return info.status();
    bytes += (*info)->bytes;
    const TensorHandle handle = tensor.tensor;
    contributions.emplace_back(handle,
                               ContributionOf((*info)->key, (*info)->bytes, std::move(tensor)));
  }
  const auto count = static_cast<uint32_t>(contributions.size());
  absl::Status status = Post(
      [lane, contributions = std::move(contributions)](Runner& runner, absl::Time now) mutable {
        runner.PushMany(lane, std::move(contributions), now);
      });
  if (timeline_ != nullptr) timeline_->Pushed(lane, began, count, bytes);
  return status;
}

DType Worker::DTypeOf(LaneHandle lane, TensorHandle tensor) const {
  const auto info = Find(lane, tensor);
  return info.ok() ? (*info)->spec.dtype : DType::kUnspecified;
}

std::string Worker::NameOf(LaneHandle lane, TensorHandle tensor) const {
  const auto info = Find(lane, tensor);
  return info.ok() ? (*info)->spec.name : "";
}

absl::Status Worker::PushMany(LaneHandle lane, absl::Span<const PushedTensor> tensors) {
  const absl::StatusOr<Infos> found = FindPushed(lane, tensors);
  if (!found.ok()) return found.status();
  const Infos& infos = *found;
  const absl::Time began = StartOfPush();
  uint64_t bytes = 0;
  std::vector<Preparation> preparations;
  preparations.reserve(tensors.size());
  for (size_t i = 0; i < tensors.size(); ++i) {
    bytes += tensors[i].bytes;
    preparations.push_back(Prepare(*infos[i], lane, tensors[i], true));
  }
  // Those that are ready are sent while the rest is copied and hashed. The loop gets all of them at
  // once, because it refuses all or none.
  size_t next = 0;
  const auto prepare_a_frame = [&] {
    for (uint64_t ready = 0; next < tensors.size() && ready < kFrameBytes;) {
      ready += preparations[next].Advance(kFrameBytes - ready);
      if (preparations[next].done()) ++next;
    }
  };
  prepare_a_frame();
  Runner::Contributions begun;
  begun.reserve(tensors.size());
  for (size_t i = 0; i < tensors.size(); ++i) {
    begun.emplace_back(tensors[i].tensor, preparations[i].Begin());
    if (begun.back().second.data != nullptr) begun.back().second.owner = tensors[i].owner;
  }
  absl::Status status =
      Post([lane, begun = std::move(begun)](Runner& runner, absl::Time now) mutable {
        runner.PushMany(lane, std::move(begun), now);
      });
  while (status.ok() && next < tensors.size()) {
    const size_t first = next;
    prepare_a_frame();
    Runner::Growths growths;
    for (size_t i = first; i < tensors.size() && i <= next; ++i) {
      growths.emplace_back(tensors[i].tensor, preparations[i].TakeGrowth());
    }
    status = Post([lane, growths = std::move(growths)](Runner& runner, absl::Time now) {
      runner.PushMore(lane, growths, now);
    });
  }
  if (timeline_ != nullptr) {
    timeline_->Pushed(lane, began, static_cast<uint32_t>(tensors.size()), bytes);
  }
  return status;
}

absl::StatusOr<std::unique_ptr<Worker::GrowingPush>> Worker::PushGrowing(
    LaneHandle lane, const PushedTensor& tensor) {
  const absl::StatusOr<Infos> found = FindPushed(lane, {&tensor, 1});
  if (!found.ok()) return found.status();
  return std::unique_ptr<GrowingPush>(
      new GrowingPush(*this, lane, tensor, Prepare(*found->front(), lane, tensor, true)));
}

Worker::GrowingPush::GrowingPush(Worker& worker, LaneHandle lane, const PushedTensor& pushed,
                                 Preparation preparation)
    : worker_(worker),
      lane_(lane),
      tensor_(pushed.tensor),
      owner_(pushed.owner),
      began_(worker.StartOfPush()),
      preparation_(std::move(preparation)) {}

absl::Status Worker::GrowingPush::Grow(uint64_t bytes, std::optional<double> narrowed) {
  const bool all = bytes == preparation_.bytes();
  if (!all && preparation_.reads_all()) return absl::OkStatus();
  if (narrowed.has_value()) preparation_.SetNarrowed(*narrowed);
  absl::Status status;
  while (status.ok() && preparation_.at() < bytes) {
    preparation_.Advance(std::min(kFrameBytes, bytes - preparation_.at()));
    if (begun_) {
      status = worker_.Post(
          [lane = lane_, growths = Runner::Growths{{tensor_, preparation_.TakeGrowth()}}](
              Runner& runner, absl::Time now) { runner.PushMore(lane, growths, now); });
      continue;
    }
    begun_ = true;
    Contribution contribution = preparation_.Begin();
    if (contribution.data != nullptr) contribution.owner = owner_;
    status = worker_.Post([lane = lane_, tensor = tensor_, contribution = std::move(contribution)](
                              Runner& runner, absl::Time now) mutable {
      runner.Push(lane, tensor, std::move(contribution), now);
    });
  }
  if (all && worker_.timeline_ != nullptr) worker_.timeline_->Pushed(lane_, began_, 1, bytes);
  return status;
}

absl::Status Worker::Skip(LaneHandle lane, TensorHandle tensor) {
  if (const auto info = Find(lane, tensor); !info.ok()) return info.status();
  return Post([lane, tensor](Runner& runner, absl::Time now) { runner.Skip(lane, tensor, now); });
}

absl::Status Worker::Commit(LaneHandle lane, RoundDone ended) {
  if (timeline_ != nullptr) timeline_->Commit(lane);
  return Do([lane, ended = std::move(ended)](Runner& runner, absl::Time now) {
    return runner.Commit(lane, ended, now);
  });
}

absl::Status Worker::Withdraw(LaneHandle lane, const std::string& reason, RoundDone ended) {
  if (timeline_ != nullptr) timeline_->Commit(lane);
  return Do([lane, &reason, ended = std::move(ended)](Runner& runner, absl::Time now) {
    return runner.Withdraw({lane, reason}, ended, now);
  });
}

absl::Status Worker::WithdrawWithoutResults(LaneHandle lane, const std::string& reason,
                                            RoundDone ended) {
  if (timeline_ != nullptr) timeline_->Commit(lane);
  return Do([lane, &reason, ended = std::move(ended)](Runner& runner, absl::Time now) {
    return runner.Withdraw({lane, reason, true}, ended, now);
  });
}

RoundOutcome Worker::WaitForResults(LaneHandle lane, absl::Duration timeout) {
  return Ask<RoundOutcome>([lane, timeout](Runner& runner, absl::Time now, RoundDone done) {
    runner.AwaitResults(lane, now + timeout, std::move(done), now);
  });
}

absl::Status Worker::WaitForValue(LaneHandle lane, absl::Duration timeout) {
  return Ask<absl::Status>(
      [lane, timeout](Runner& runner, absl::Time now, const Runner::StatusDone& done) {
        runner.AwaitValue(lane, now + timeout, done, now);
      });
}

absl::Status Worker::GiveResults(LaneHandle lane, RoundNumber round, Ballot value_ballot,
                                 std::vector<GivenResult> results) {
  for (GivenResult& result : results) {
    const auto info = Find(lane, result.tensor);
    absl::Status status = info.status();
    if (status.ok()) {
      status = CheckData((*info)->spec, (*info)->bytes, result.bytes.data(), result.bytes.size());
    }
    if (!status.ok()) return status;
    Runner::GivenResult given;
    given.lane = lane;
    given.tensor = result.tensor;
    given.round = round;
    given.ballot = value_ballot;
    given.size = result.bytes.size();
    given.bytes = std::make_shared<OwnPayload>(std::move(result.bytes));
    given.contents = HashChunks(given.bytes->pieces(), kChunkBytes);
    status = Post(
        [given = std::move(given)](Runner& runner, absl::Time now) { runner.Give(given, now); });
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status Worker::RequestResults(LaneHandle lane) {
  return Do([lane](Runner& runner, absl::Time now) {
    return runner.Call(client::RequestResults{lane}, now);
  });
}

RoundOutcome Worker::Wait(LaneHandle lane, absl::Duration timeout) {
  return Ask<RoundOutcome>([lane, timeout](Runner& runner, absl::Time now, RoundDone done) {
    runner.Wait(lane, now + timeout, std::move(done), now);
  });
}

absl::StatusOr<bool> Worker::Outstanding(LaneHandle lane) {
  using Answered = absl::StatusOr<bool>;
  return Ask<Answered>(
      [lane](Runner& runner, absl::Time, const std::function<void(const Answered&)>& done) {
        done(runner.Outstanding(lane));
      });
}

RoundOutcome Worker::Allreduce(const BeginRound& begin, absl::Span<const CallTensor> tensors,
                               absl::Duration timeout) {
  const basin::Begin message = MessageOf(begin);
  absl::Status status = CheckCall(message);
  if (status.ok() && loop_.InLoop()) status = CannotWait();
  // Errors of the tensors are reported before the round begins, so that the call can be repeated.
  for (const CallTensor& tensor : tensors) {
    if (!status.ok()) break;
    const auto info = Find(begin.lane, tensor.tensor);
    status = info.ok() ? CheckData((*info)->spec, (*info)->bytes, tensor.in, tensor.bytes)
                       : info.status();
  }
  if (!status.ok()) return status;

  const bool recorded = timeline_ != nullptr && timeline_->Begin(begin.lane);
  const absl::Time began = StartOfPush();
  uint64_t bytes = 0;
  const auto call = std::make_shared<RoundCall>(begin);
  // Takes the lane before the round begins, because the tensors are copied before. If another round
  // is in flight, this one will be refused.
  const bool free = arenas_.host().TryBegin(begin.lane);
  // What is prepared is sent while the rest is copied and hashed. Less than a frame waits, so that
  // a small round wakes the loop once.
  RoundCall::Tensors ready;
  uint64_t ready_bytes = 0;
  for (size_t i = 0; i < tensors.size() && status.ok(); ++i) {
    const TensorHandle tensor = tensors[i].tensor;
    Preparation preparation = Prepare(**Find(begin.lane, tensor), begin.lane,
                                      {tensor, tensors[i].in, tensors[i].bytes, {}}, free);
    for (bool begun = false; status.ok() && (!begun || !preparation.done()); begun = true) {
      if (ready_bytes >= kFrameBytes) {
        ready_bytes = 0;
        status =
            Post([call, pushed = std::exchange(ready, {})](Runner& runner, absl::Time now) mutable {
              call->Push(runner, pushed, now);
            });
      }
      ready_bytes += preparation.Advance(kFrameBytes - ready_bytes);
      if (begun) {
        ready.more.emplace_back(tensor, preparation.TakeGrowth());
      } else {
        ready.begun.emplace_back(tensor, preparation.Begin());
      }
    }
    bytes += tensors[i].bytes;
  }
  if (recorded) {
    timeline_->Pushed(begin.lane, began, static_cast<uint32_t>(tensors.size()), bytes);
    timeline_->Commit(begin.lane);
  }
  RoundOutcome outcome = Ask<RoundOutcome>([&](Runner& runner, absl::Time now, RoundDone done) {
    call->Push(runner, ready, now);
    call->End(runner, status, now + timeout, std::move(done), now);
  });
  if (recorded && !outcome.ok() && !GoesOn(outcome.status())) timeline_->Refused(begin.lane);
  if (!outcome.ok()) return outcome;
  for (const CallTensor& tensor : tensors) {
    if (tensor.out == nullptr || !(*outcome)->Has(tensor.tensor)) continue;
    status = (*outcome)->CopyTo(tensor.tensor, tensor.out, tensor.bytes);
    if (!status.ok()) return status;
  }
  return outcome;
}

absl::Status Worker::Abandon() {
  return Ask<absl::Status>([](Runner& runner, absl::Time now, Runner::StatusDone done) {
    runner.Abandon(std::move(done), now);
  });
}

// ---- values

absl::Status Worker::Announce(const ValueKey& key, const TensorSpec& spec, const void* data,
                              uint64_t bytes, Hold hold) {
  const std::optional<uint64_t> needed = TensorBytes(spec);
  if (!needed.has_value()) {
    return wire::ToStatus(
        {ErrorCode::kInvalidArgument, absl::StrCat("Cannot announce tensor ", key.tensor, ": ",
                                                   DescribeSpec(spec), " has no usable size.")});
  }
  absl::Status status = CheckCall(basin::Announce{key, spec, 0});
  if (status.ok()) status = CheckData(spec, *needed, data, bytes);
  if (!status.ok()) return status;
  ServedValue value;
  value.bytes = bytes;
  value.digests = DigestChunks(kernels::TensorKey(key.tensor), data, bytes);
  if (hold == Hold::kInPlace) {
    value.data = static_cast<const char*>(data);
  } else {
    value.own = std::make_shared<OwnPayload>(std::string(static_cast<const char*>(data), bytes));
  }
  return Do([&](Runner& runner, absl::Time now) {
    return runner.Announce(key, spec, std::move(value), now);
  });
}

absl::Status Worker::StopServing(const std::string& lane, const std::string& tensor) {
  return Do([&](Runner& runner, absl::Time now) {
    runner.StopServing(lane, tensor, now);
    return absl::OkStatus();
  });
}

void Worker::BeginStep() { gate_.Close(); }

void Worker::EndStep() {
  gate_.Open();
  loop_.poster()([](Runner& runner, absl::Time now) { runner.GateOpened(now); });
}

ValueOutcome Worker::Get(const ValueKey& key, const std::optional<TensorSpec>& expected,
                         const std::optional<WorkerId>& source, absl::Duration timeout) {
  const basin::Get message{key, expected, source, 0, 0, absl::Seconds(1)};
  if (absl::Status status = CheckCall(message); !status.ok()) return status;
  return Ask<ValueOutcome>([&](Runner& runner, absl::Time now, ValueDone done) {
    runner.Get(GetValue{key, expected, source, now + timeout}, std::move(done), now);
  });
}

absl::Status Worker::StartGet(const ValueKey& key, const std::optional<TensorSpec>& expected,
                              const std::optional<WorkerId>& source, absl::Duration timeout,
                              ValueDone done) {
  const basin::Get message{key, expected, source, 0, 0, absl::Seconds(1)};
  if (absl::Status status = CheckCall(message); !status.ok()) return status;
  return Post([=, done = std::move(done)](Runner& runner, absl::Time now) {
    runner.Get(GetValue{key, expected, source, now + timeout}, done, now);
  });
}

// ---- how it is going

absl::Status Worker::Busy(const std::string& reason, absl::Duration expected) {
  return Do([&](Runner& runner, absl::Time now) {
    return runner.Call(SetBusy{reason, expected}, now);
  });
}

absl::Status Worker::SetRanks(uint32_t ranks, uint32_t local_rank) {
  return Do([&](Runner& runner, absl::Time now) {
    return runner.Call(client::SetRanks{ranks, local_rank}, now);
  });
}

absl::Status Worker::Progress() {
  return Post(
      [](Runner& runner, absl::Time now) { runner.Call(client::Progress{}, now).IgnoreError(); });
}

absl::Status Worker::Finished() {
  return Do([](Runner& runner, absl::Time now) { return runner.Call(Finish{}, now); });
}

absl::Status Worker::WillLeave() {
  return Do([](Runner& runner, absl::Time now) { return runner.WillLeave(now); });
}

absl::Status Worker::Leave(bool forget) {
  return Ask<absl::Status>([forget](Runner& runner, absl::Time now, Runner::StatusDone done) {
    runner.Leave(forget, std::move(done), now);
  });
}

absl::Status Worker::Inspect(const std::function<void(const Runner&)>& look) {
  return Do([&look](Runner& runner, absl::Time) {
    look(runner);
    return absl::OkStatus();
  });
}

}  // namespace basin::client
