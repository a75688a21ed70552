// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "client/transport/worker.h"

#include <optional>
#include <random>

#include "absl/strings/str_cat.h"
#include "proto/wire/session.h"
#include "proto/wire/status_detail.h"
#include "protocol/limits/names.h"
#include "runtime/contents.h"
#include "runtime/payload.h"

namespace basin::client {
namespace {

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

// What it sends, as far as a call decides it.
basin::Begin MessageOf(const BeginRound& begin) {
  return {0,
          1,
          begin.spec,
          begin.counts,
          begin.step_label,
          begin.samples,
          1,
          begin.represents,
          begin.local_reduction,
          begin.reduced_with,
          begin.compares_step,
          begin.sample_epoch,
          begin.call,
          begin.optimizer,
          begin.optimizer_numbers,
          begin.deferred};
}

// A round in one call, as the loop sees it: it begins with the first tensors that are ready.
class RoundCall {
 public:
  explicit RoundCall(BeginRound begin) : begin_(std::move(begin)) {}

  void Push(Runner& runner, PushedParts&& parts, absl::Time now) {
    if (!begun_.has_value()) begun_ = runner.Begin(begin_, now);
    if (begun_->ok()) runner.Push(begin_.lane, std::move(parts), now);
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

uint64_t BytesRead(absl::Span<const Source> sources) {
  uint64_t bytes = 0;
  for (const Source& source : sources) bytes += source.bytes_read();
  return bytes;
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
    : timeline_(options.timeline),
      memory_(connector),
      loop_(clock),
      runner_(std::move(options.core),
              {&connector, loop_.poster(), loop_.now_poster(),
               [this, on_view = std::move(options.on_view)](const JobView& view) {
                 {
                   MutexLock lock(mutex_);
                   view_ = view;
                 }
                 if (on_view == nullptr) return;
                 if (!loop_.InCall()) return on_view(view);
                 // The trainer may hold a lock in its call that its callback needs.
                 loop_.poster()([on_view, view](Runner&, absl::Time) { on_view(view); });
               },
               options.ended != nullptr ? std::move(options.ended) : [](LaneHandle) {}, &gate_,
               &memory_, timeline_,
               [this](LaneHandle lane) {
                 memory_.Remove(lane);
                 MutexLock lock(mutex_);
                 tensors_.erase(lane);
               }}) {}

Worker::~Worker() {
  const auto quiet = std::make_shared<Answer<absl::Status>>();
  loop_.poster()([quiet](Runner& runner, absl::Time) {
    runner.Shutdown([quiet](const absl::Status& status) { quiet->Give(status); });
  });
  quiet->Await().IgnoreError();
  loop_.Stop();
}

// ---- the view of the job

JobView Worker::view() const {
  MutexLock lock(mutex_);
  return view_;
}

absl::Status Worker::Call(const Event& call) {
  return calls_.Do([&call](Runner& runner, absl::Time now) { return runner.Call(call, now); });
}

absl::Status Worker::AwaitWelcome(absl::Duration timeout) {
  return calls_.Ask<absl::Status>(
      [timeout](Runner& runner, absl::Time now, Runner::StatusDone done) {
        runner.AwaitWelcome(now + timeout, std::move(done), now);
      });
}

absl::Status Worker::AwaitMember(absl::Duration timeout) {
  return calls_.Ask<absl::Status>(
      [timeout](Runner& runner, absl::Time now, Runner::StatusDone done) {
        runner.AwaitMember(now + timeout, std::move(done), now);
      });
}

// ---- tensors

absl::StatusOr<Registration> Worker::Register(const std::string& lane, LaneKind kind,
                                              const std::vector<TensorSpec>& tensors) {
  basin::Register message{lane, kind, tensors};
  if (absl::Status status = CheckCall(message); !status.ok()) return status;
  const RegisterTensors request{lane, kind, std::move(message.tensors)};
  absl::StatusOr<Registration> registered = calls_.Do(
      [&request](Runner& runner, absl::Time now) { return runner.Register(request, now); });
  if (!registered.ok()) return registered;
  MutexLock lock(mutex_);
  auto& known = tensors_[registered->lane];
  for (size_t i = 0; i < tensors.size(); ++i) {
    const TensorHandle handle = registered->tensors[i];
    if (known.size() <= handle) known.resize(size_t{handle} + 1);
    if (known[handle] != nullptr) continue;
    known[handle] = std::make_shared<const TensorInfo>(
        TensorInfo{tensors[i], *TensorBytes(tensors[i]), kernels::TensorKey(tensors[i].name)});
    memory_.Add(registered->lane, handle, *known[handle]);
  }
  return registered;
}

bool Worker::IsRegistered(LaneHandle lane) const {
  MutexLock lock(mutex_);
  return tensors_.count(lane) > 0;
}

absl::StatusOr<Worker::TensorInfoPtr> Worker::Find(LaneHandle lane, TensorHandle tensor) const {
  MutexLock lock(mutex_);
  return FindLocked(lane, tensor);
}

absl::StatusOr<Worker::TensorInfoPtr> Worker::FindLocked(LaneHandle lane,
                                                         TensorHandle tensor) const {
  const auto found = tensors_.find(lane);
  if (found != tensors_.end() && tensor < found->second.size() &&
      found->second[tensor] != nullptr) {
    return found->second[tensor];
  }
  return wire::ToStatus(
      {ErrorCode::kNotFound,
       absl::StrCat("Tensor handle ", tensor, " of lane handle ", lane, " is not registered.")});
}

absl::StatusOr<std::vector<Worker::TensorInfoPtr>> Worker::Check(
    LaneHandle lane, absl::Span<const Source> sources) const {
  std::vector<TensorInfoPtr> infos;
  infos.reserve(sources.size());
  {
    MutexLock lock(mutex_);
    for (const Source& source : sources) {
      absl::StatusOr<TensorInfoPtr> info = FindLocked(lane, source.tensor());
      if (!info.ok()) return info.status();
      infos.push_back(*std::move(info));
    }
  }
  for (size_t i = 0; i < sources.size(); ++i) {
    if (absl::Status status = sources[i].Check(*infos[i]); !status.ok()) return status;
  }
  return infos;
}

// ---- rounds

absl::Status Worker::Begin(const BeginRound& begin) {
  const basin::Begin message = MessageOf(begin);
  if (absl::Status status = CheckCall(message); !status.ok()) return status;
  const bool recorded = timeline_ != nullptr && timeline_->Begin(begin.lane);
  absl::Status status =
      calls_.Do([&begin](Runner& runner, absl::Time now) { return runner.Begin(begin, now); });
  if (recorded && !status.ok()) timeline_->Refused(begin.lane);
  return status;
}

void Worker::Open(LaneHandle lane, absl::Span<Source> sources,
                  const std::vector<TensorInfoPtr>& infos, bool may_copy) {
  for (size_t i = 0; i < sources.size(); ++i) {
    Source& source = sources[i];
    if (source.opened()) continue;
    std::optional<ArenaPlace> place;
    if (source.on_host()) place = memory_.PlaceOf(lane, source, *infos[i], may_copy);
    source.Open(++opened_, infos[i], std::move(place));
  }
}

void Worker::RecordPush(LaneHandle lane, absl::Time began, absl::Span<const Source> sources,
                        uint64_t read_before) {
  if (timeline_ == nullptr) return;
  const auto done = std::count_if(sources.begin(), sources.end(),
                                  [](const Source& source) { return source.done(); });
  timeline_->Pushed(lane, began, static_cast<uint32_t>(done), BytesRead(sources) - read_before);
}

absl::Status Worker::Push(LaneHandle lane, absl::Span<Source> sources) {
  const auto infos = Check(lane, sources);
  if (!infos.ok()) return infos.status();
  const absl::Time began = StartOfPush();
  const uint64_t read_before = BytesRead(sources);
  Open(lane, sources, *infos, true);
  absl::Status status = Read(sources, [&](PushedParts parts) {
    return calls_.Post([lane, parts = std::move(parts)](Runner& runner, absl::Time now) mutable {
      runner.Push(lane, std::move(parts), now);
    });
  });
  RecordPush(lane, began, sources, read_before);
  return status;
}

absl::Status Worker::Skip(LaneHandle lane, TensorHandle tensor) {
  if (const auto info = Find(lane, tensor); !info.ok()) return info.status();
  return calls_.Post(
      [lane, tensor](Runner& runner, absl::Time now) { runner.Skip(lane, tensor, now); });
}

absl::Status Worker::Commit(LaneHandle lane, RoundDone ended) {
  if (timeline_ != nullptr) timeline_->Commit(lane);
  return calls_.Do([lane, ended = std::move(ended)](Runner& runner, absl::Time now) {
    return runner.Commit(lane, ended, now);
  });
}

absl::Status Worker::Withdraw(const WithdrawRound& withdraw, RoundDone ended) {
  if (timeline_ != nullptr) timeline_->Commit(withdraw.lane);
  return calls_.Do([&withdraw, ended = std::move(ended)](Runner& runner, absl::Time now) {
    return runner.Withdraw(withdraw, ended, now);
  });
}

RoundOutcome Worker::WaitForResults(LaneHandle lane, absl::Duration timeout) {
  return calls_.Ask<RoundOutcome>([lane, timeout](Runner& runner, absl::Time now, RoundDone done) {
    runner.AwaitResults(lane, now + timeout, std::move(done), now);
  });
}

absl::Status Worker::WaitForValue(LaneHandle lane, absl::Duration timeout) {
  return calls_.Ask<absl::Status>(
      [lane, timeout](Runner& runner, absl::Time now, const Runner::StatusDone& done) {
        runner.AwaitValue(lane, now + timeout, done, now);
      });
}

absl::Status Worker::GiveResult(LaneHandle lane, TensorHandle tensor, RoundNumber round,
                                Ballot value_ballot, PayloadPtr bytes) {
  const auto info = Find(lane, tensor);
  if (!info.ok()) return info.status();
  Runner::GivenResult given;
  for (const std::string_view piece : bytes->pieces()) given.size += piece.size();
  absl::Status status = CheckData((*info)->spec, (*info)->bytes, bytes.get(), given.size);
  if (!status.ok()) return status;
  given.lane = lane;
  given.tensor = tensor;
  given.round = round;
  given.ballot = value_ballot;
  given.bytes = std::move(bytes);
  given.contents = HashChunks(given.bytes->pieces(), kChunkBytes);
  return calls_.Post(
      [given = std::move(given)](Runner& runner, absl::Time now) { runner.Give(given, now); });
}

RoundOutcome Worker::Wait(LaneHandle lane, absl::Duration timeout) {
  return calls_.Ask<RoundOutcome>([lane, timeout](Runner& runner, absl::Time now, RoundDone done) {
    runner.Wait(lane, now + timeout, std::move(done), now);
  });
}

absl::StatusOr<bool> Worker::Outstanding(LaneHandle lane) {
  return calls_.Do([lane](Runner& runner, absl::Time) -> absl::StatusOr<bool> {
    return runner.Outstanding(lane);
  });
}

absl::StatusOr<std::optional<LaneHandle>> Worker::Left(const std::string& name) {
  using Handle = absl::StatusOr<std::optional<LaneHandle>>;
  return calls_.Do([&name](Runner& runner, absl::Time) { return Handle(runner.LeftBy(name)); });
}

RoundOutcome Worker::Allreduce(const BeginRound& begin, absl::Span<Source> sources,
                               absl::Span<const RoundResult::Destination> destinations,
                               absl::Duration timeout) {
  absl::Status status = CheckCall(MessageOf(begin));
  if (status.ok()) status = calls_.CheckMayWait();
  if (!status.ok()) return status;
  // Errors of the tensors are reported before the round begins, so that the call can be repeated.
  const auto infos = Check(begin.lane, sources);
  if (!infos.ok()) return infos.status();

  const bool recorded = timeline_ != nullptr && timeline_->Begin(begin.lane);
  const absl::Time began = StartOfPush();
  // Takes the lane before the round begins, because the tensors are copied before. If another round
  // is in flight, this one will be refused.
  Open(begin.lane, sources, *infos, memory_.TryBeginRound(begin.lane));
  const auto call = std::make_shared<RoundCall>(begin);
  // The last part waits for the end of the call, so that a small round wakes the loop once.
  PushedParts last;
  status = Read(sources, [&](PushedParts parts) {
    parts.swap(last);
    if (parts.empty()) return absl::OkStatus();
    return calls_.Post([call, parts = std::move(parts)](Runner& runner, absl::Time now) mutable {
      call->Push(runner, std::move(parts), now);
    });
  });
  if (recorded) {
    RecordPush(begin.lane, began, sources, 0);
    timeline_->Commit(begin.lane);
  }
  RoundOutcome outcome =
      calls_.Ask<RoundOutcome>([&](Runner& runner, absl::Time now, RoundDone done) {
        call->Push(runner, std::move(last), now);
        call->End(runner, status, now + timeout, std::move(done), now);
      });
  if (recorded && !outcome.ok() && !GoesOn(outcome.status())) timeline_->Refused(begin.lane);
  if (!outcome.ok()) return outcome;
  status = (*outcome)->CopyPresentTo(destinations);
  return status.ok() ? outcome : status;
}

absl::StatusOr<Worker::UnnamedCall> Worker::NextCall(const std::vector<TensorSpec>& arrays,
                                                     absl::Duration timeout) {
  for (const TensorSpec& array : arrays) {
    if (!HasUsableSize(array) || *TensorBytes(array) > basin::kMaxTensorBytes) {
      return wire::ToStatus(
          {ErrorCode::kInvalidArgument,
           absl::StrCat("An array of a call without a name is ", DescribeSpec(array),
                        ", which has no usable size; the limit is ", basin::kMaxTensorBytes,
                        " bytes.")});
    }
  }
  std::vector<LaneHandle> lanes;
  {
    MutexLock lock(mutex_);
    lanes = unnamed_;
  }
  if (lanes.empty()) {
    for (uint32_t place = 0; place < kUnnamedLanes; ++place) {
      const auto lane = Register(UnnamedLane(place), LaneKind::kCall, {FirstUnnamedTensor()});
      if (!lane.ok()) return lane.status();
      lanes.push_back(lane->lane);
    }
  }
  const auto place = calls_.Ask<absl::StatusOr<uint32_t>>(
      [&](Runner& runner, absl::Time now, const Runner::PlaceDone& done) {
        runner.NextCall(lanes, now + timeout, done, now);
      });
  if (!place.ok()) return place.status();
  UnnamedCall call{lanes[*place], PartsOf(arrays), {}};
  {
    MutexLock lock(mutex_);
    unnamed_ = std::move(lanes);
  }
  std::vector<TensorSpec> specs;
  specs.reserve(call.parts.size());
  for (const CallPart& part : call.parts) specs.push_back(part.spec);
  absl::StatusOr<Registration> registered = Register(UnnamedLane(*place), LaneKind::kCall, specs);
  if (!registered.ok()) return registered.status();
  call.tensors = std::move(registered->tensors);
  return call;
}

// ---- samples

absl::StatusOr<LeasedSamples> Worker::LeaseSamples(const TakeSamples& take) {
  const basin::LeaseSamples message{0, 0, take.epoch, take.count, {}};
  if (absl::Status status = CheckCall(message); !status.ok()) return status;
  return calls_.Ask<absl::StatusOr<LeasedSamples>>(
      [&](Runner& runner, absl::Time now, const Runner::LeaseDone& done) {
        runner.LeaseSamples(take, done, now);
      });
}

absl::Status Worker::ReturnSamples(const GiveBackSamples& back) {
  const basin::ReturnSamples message{0, back.epoch, back.ranges};
  if (absl::Status status = CheckCall(message); !status.ok()) return status;
  return Call(back);
}

absl::Status Worker::ResumeSamples(const client::ResumeSamples& resume) {
  const basin::LeaseSamples message{0, 0, resume.committed.epoch, 1, resume.committed.ranges};
  if (absl::Status status = CheckCall(message); !status.ok()) return status;
  return Call(resume);
}

absl::StatusOr<BatchProgress> Worker::ReportBatch(const AccumulateBatch& batch) {
  const basin::ReportBatch message{0, 0, batch.samples, batch.target};
  if (absl::Status status = CheckCall(message); !status.ok()) return status;
  return calls_.Ask<absl::StatusOr<BatchProgress>>(
      [&](Runner& runner, absl::Time now, const Runner::BatchDone& done) {
        runner.ReportBatch(batch, done, now);
      });
}

absl::StatusOr<SampleProgress> Worker::CommittedSamples(LaneHandle lane) {
  return calls_.Do([lane](Runner& runner, absl::Time) { return runner.CommittedSamples(lane); });
}

absl::StatusOr<SampleProgress> Worker::HeldSamples(LaneHandle lane) {
  return calls_.Do([lane](Runner& runner, absl::Time) { return runner.HeldSamples(lane); });
}

absl::Status Worker::Abandon() {
  return calls_.Ask<absl::Status>([](Runner& runner, absl::Time now, Runner::StatusDone done) {
    runner.Abandon(std::move(done), now);
  });
}

absl::Status Worker::Leave(bool forget) {
  return calls_.Ask<absl::Status>(
      [forget](Runner& runner, absl::Time now, Runner::StatusDone done) {
        runner.Leave(forget, std::move(done), now);
      });
}

absl::Status Worker::Inspect(const std::function<void(const Runner&)>& look) {
  return calls_.Do([&look](Runner& runner, absl::Time) {
    look(runner);
    return absl::OkStatus();
  });
}

}  // namespace basin::client
