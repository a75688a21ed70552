// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Events, and calls of the trainer. The core's actions are in runner_actions.cc.

#include "client/transport/runner.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "client/core/unnamed.h"
#include "proto/wire/status_detail.h"

namespace basin::client {
namespace {

// A working channel releases written messages within a round trip. A channel that holds them for
// longer is stuck, and is closed.
constexpr absl::Duration kReturnTime = absl::Milliseconds(200);

absl::Status ToStatus(const std::optional<Error>& error) {
  return error.has_value() ? wire::ToStatus(*error) : absl::OkStatus();
}

absl::Status NoLane(LaneHandle lane) {
  return wire::ToStatus(
      {ErrorCode::kNotFound,
       absl::StrCat("Lane handle ", lane,
                    " is not registered, or was that of an idle call, which a job with many names "
                    "lets go. Register the name, again if need be.")});
}

Config WithFeatures(Config config, const Connector& connector) {
  config.features |= kFeatureRuns | connector.features();
  return config;
}

}  // namespace

Runner::Runner(Config config, RunnerDependencies dependencies)
    : dependencies_(std::move(dependencies)),
      core_(WithFeatures(std::move(config), *dependencies_.connector)) {
  streams_.resize(core_.session().streams().size());
}

// ---- connections

void Runner::SessionUp(uint64_t connection, absl::Time now) {
  if (connection == session_connection_) Step(client::SessionUp{}, now);
}

void Runner::SessionDown(uint64_t connection, const std::string& why, absl::Time now) {
  if (connection != session_connection_) return;
  const bool welcomed = core_.session().phase() == SessionPhase::kWelcomed;
  CloseConnections();
  Step(client::SessionDown{absl::StrCat(
           welcomed ? "The session ended " : "The session cannot be opened ", why)},
       now);
}

void Runner::MessageReceived(uint64_t connection, ToWorker message, uint64_t bytes,
                             absl::Time now) {
  if (connection != session_connection_) return;
  OnMessage(std::move(message), now);
  if (connection == session_connection_) session_->Consumed(bytes);
}

void Runner::BatchReceived(uint64_t connection, Batch batch, uint64_t bytes, absl::Time now) {
  for (ToWorker& message : batch.messages) {
    if (connection == session_connection_) OnMessage(std::move(message), now);
  }
  // Whether the stream is up is not asked: the aggregator may have opened it before this end has
  // noticed, and would not send the frame again.
  for (const IncomingFrame& frame : batch.frames) {
    if (connection == session_connection_) OnFrame(frame, now);
  }
  if (connection == session_connection_) session_->Consumed(bytes);
}

void Runner::OnMessage(ToWorker message, absl::Time now) {
  Observe(message);
  if (const auto refused = Step(client::MessageReceived{std::move(message)}, now)) {
    view_.refused = *refused;
    view_changed_ = true;
    PublishView();
  }
}

void Runner::StreamUp(uint64_t connection, uint32_t stream, absl::Time now) {
  if (connection != streams_[stream].connection) return;
  stream_refused_ = false;
  Step(client::StreamUp{stream}, now);
}

void Runner::StreamDown(uint64_t connection, uint32_t stream, const std::string& why,
                        absl::Time now) {
  if (connection != streams_[stream].connection) return;
  streams_[stream] = Stream();
  stream_refused_ = stream_refused_ || !core_.session().streams().IsUp(stream);
  Step(client::StreamDown{stream, why}, now);
}

void Runner::FrameReceived(uint64_t connection, uint32_t stream, const IncomingFrame& frame,
                           absl::Time now) {
  if (connection != streams_[stream].connection) return;
  OnFrame(frame, now);
  if (connection == streams_[stream].connection) {
    streams_[stream].channel->Consumed(frame.message_bytes);
  }
}

void Runner::OnFrame(const IncomingFrame& frame, absl::Time now) {
  if (const auto* result = std::get_if<wire::ResultHeader>(&frame.header)) {
    OnResult(*result, frame, now);
  } else if (const auto* value = std::get_if<wire::BlobHeader>(&frame.header)) {
    OnBlob(*value, frame, now);
  }
}

void Runner::OpenDue(absl::Time now) {
  // Passes the events of a connection to the loop, with its number.
  class Session : public SessionListener {
   public:
    Session(uint64_t connection, std::function<void(Task)> post, std::function<void(Task)> post_now)
        : connection_(connection), post_(std::move(post)), post_now_(std::move(post_now)) {}
    void OnUp() override {
      post_([id = connection_](Runner& runner, absl::Time at) { runner.SessionUp(id, at); });
    }
    void OnMessage(ToWorker message, uint64_t bytes) override {
      post_now_([id = connection_, message = std::move(message), bytes](Runner& runner,
                                                                        absl::Time at) mutable {
        runner.MessageReceived(id, std::move(message), bytes, at);
      });
    }
    void OnBatch(Batch batch, uint64_t bytes) override {
      post_now_([id = connection_, batch = std::move(batch), bytes](Runner& runner,
                                                                    absl::Time at) mutable {
        runner.BatchReceived(id, std::move(batch), bytes, at);
      });
    }
    void OnDown(const absl::Status& why) override {
      post_([id = connection_, text = absl::StrCat("(", absl::StatusCodeToString(why.code()), "): ",
                                                   absl::StripSuffix(why.message(), "."), ".")](
                Runner& runner, absl::Time at) { runner.SessionDown(id, text, at); });
    }

   private:
    const uint64_t connection_;
    const std::function<void(Task)> post_;
    const std::function<void(Task)> post_now_;
  };
  class Data : public StreamListener {
   public:
    Data(uint64_t connection, uint32_t stream, std::function<void(Task)> post)
        : connection_(connection), stream_(stream), post_(std::move(post)) {}
    void OnUp() override {
      post_([id = connection_, stream = stream_](Runner& runner, absl::Time at) {
        runner.StreamUp(id, stream, at);
      });
    }
    void OnFrame(IncomingFrame frame) override {
      post_([id = connection_, stream = stream_, frame = std::move(frame)](
                Runner& runner, absl::Time at) { runner.FrameReceived(id, stream, frame, at); });
    }
    void OnDown(const absl::Status& why) override {
      post_([id = connection_, stream = stream_,
             reason = absl::StrCat(absl::StripSuffix(why.message(), "."), " (",
                                   absl::StatusCodeToString(why.code()), ")")](
                Runner& runner, absl::Time at) { runner.StreamDown(id, stream, reason, at); });
    }

   private:
    const uint64_t connection_;
    const uint32_t stream_;
    const std::function<void(Task)> post_;
  };

  if (open_session_at_ <= now) {
    open_session_at_ = absl::InfiniteFuture();
    session_connection_ = ++connections_;
    session_ = dependencies_.connector->OpenSession(
        std::make_shared<Session>(session_connection_, dependencies_.post, dependencies_.post_now));
  }
  for (uint32_t i = 0; i < streams_.size(); ++i) {
    Stream& stream = streams_[i];
    if (stream.open_at > now) continue;
    stream.open_at = absl::InfiniteFuture();
    stream.connection = ++connections_;
    stream.channel = dependencies_.connector->OpenStream(
        stream.number, stream.token, stream.shard,
        std::make_shared<Data>(stream.connection, i, dependencies_.post));
  }
}

// ---- time

absl::Time Runner::NextDeadline() const {
  absl::Time next = open_session_at_;
  if (!closed_) next = std::min(next, core_.NextDeadline());
  for (const Stream& stream : streams_) next = std::min(next, stream.open_at);
  for (const auto& [handle, lane] : lanes_) {
    if (lane.round.has_value()) next = std::min(next, lane.round->return_by);
    if (lane.value_waiter.has_value()) next = std::min(next, lane.value_waiter->deadline);
  }
  for (const MemberWaiter& waiter : member_waiters_) next = std::min(next, waiter.deadline);
  for (const CallWaiter& waiter : call_waiters_) next = std::min(next, waiter.deadline);
  return next;
}

void Runner::Tick(absl::Time now) {
  now_ = now;
  if (!closed_ && core_.NextDeadline() <= now) Step(client::Tick{}, now);
  RecallLoans(now);
  OpenDue(now);
  ReportMembers();
  ReportPrepared();
  ReportCallers();
}

// ---- calls

absl::Status Runner::Call(const Event& call, absl::Time now) {
  absl::Status status = ToStatus(Step(call, now));
  ReportMembers();
  return status;
}

absl::StatusOr<Registration> Runner::Register(const RegisterTensors& request, absl::Time now) {
  if (const auto refused = Step(request, now)) return wire::ToStatus(*refused);
  Registration registration;
  registration.lane = core_.FindLane(request.lane)->handle;
  if (dependencies_.timeline != nullptr) {
    dependencies_.timeline->Register(registration.lane, request.lane, request.kind);
  }
  LaneShell& lane = lanes_[registration.lane];
  lane.name = request.lane;
  const std::vector<RegisteredTensor>& tensors = core_.lanes()[registration.lane].tensors;
  for (size_t handle = lane.handles.size(); handle < tensors.size(); ++handle) {
    lane.handles.emplace(tensors[handle].spec.name, static_cast<TensorHandle>(handle));
  }
  for (const TensorSpec& spec : request.tensors) {
    registration.tensors.push_back(lane.handles.at(spec.name));
  }
  return registration;
}

Runner::LaneShell* Runner::Find(LaneHandle lane) {
  const auto found = lanes_.find(lane);
  return found == lanes_.end() ? nullptr : &found->second;
}

void Runner::FreeIfGone(LaneHandle handle) {
  LaneShell* lane = Find(handle);
  if (lane == nullptr || !lane->gone || lane->IsAwaited()) return;
  const bool leaves = lane->ended.has_value();
  if (leaves) {
    const auto dropped = left_.Keep(handle, std::move(lane->name), *std::move(lane->ended));
    if (dropped.has_value()) Forget(*dropped);
  }
  lanes_.erase(handle);
  if (dependencies_.timeline != nullptr) dependencies_.timeline->Forget(handle);
  if (!leaves) Forget(handle);
}

std::optional<RoundOutcome> Runner::TakeLeft(LaneHandle handle) {
  std::optional<RoundOutcome> outcome = left_.Take(handle);
  if (outcome.has_value()) Forget(handle);
  return outcome;
}

void Runner::Forget(LaneHandle handle) {
  if (dependencies_.forget != nullptr) dependencies_.forget(handle);
}

absl::Status Runner::Begin(const BeginRound& begin, absl::Time now) {
  LaneShell* lane = Find(begin.lane);
  if (lane == nullptr) return NoLane(begin.lane);
  if (lane->round.has_value()) {
    return wire::ToStatus({ErrorCode::kFailedPrecondition,
                           absl::StrCat("Lane ", lane->name,
                                        ": the outcome of its last round is not known yet; wait "
                                        "for it, or abandon it.")});
  }
  RoundShell& round = lane->round.emplace(++lane->begins);
  round.loan = std::make_shared<Loan>(
      [post = dependencies_.post, handle = begin.lane, number = round.begin] {
        post([handle, number](Runner& runner, absl::Time) { runner.LoanReturned(handle, number); });
      });
  BeginRound passed = begin;
  passed.in_place = dependencies_.connector->shared() != nullptr;
  if (const auto refused = Step(passed, now)) {
    lane->round.reset();
    dependencies_.memory->EndRound(begin.lane, false);
    return wire::ToStatus(*refused);
  }
  dependencies_.memory->BeginRound(begin.lane);
  KeepResultsOf(*lane);
  // Those of the call before, if nobody has waited for it.
  lane->ended.reset();
  if (const auto before = left_.Named(lane->name); before.has_value()) TakeLeft(*before);
  return absl::OkStatus();
}

// The results of the round before stay where they are: the aggregator writes those of two rounds in
// turns, and those of this one only when this worker has contributed.
void Runner::KeepResultsOf(LaneShell& lane) {
  auto& delivered = lane.delivered;
  for (auto& [begin, result] : delivered) {
    const std::shared_ptr<StagedRound> staged = result.lock();
    if (staged != nullptr && begin + 1 < lane.begins) {
      staged->MakePrivate();
      result.reset();
    }
  }
  delivered.erase(std::remove_if(delivered.begin(), delivered.end(),
                                 [](const auto& entry) { return entry.second.expired(); }),
                  delivered.end());
}

// The memory of a contribution, for as long as the round lends it; `begin`: where it is in there.
PayloadPtr Runner::Lend(RoundShell& round, Contribution& contribution, uint64_t& begin) {
  if (contribution.place.has_value()) {
    const ArenaPlace& place = *contribution.place;
    PayloadPtr& segment = round.segments[place.segment.get()];
    if (segment == nullptr) segment = std::make_shared<LentPayload>(round.loan, place.segment);
    begin = place.offset;
    return segment;
  }
  if (contribution.on_device.has_value()) {
    const DevicePlace& place = *contribution.on_device;
    PayloadPtr& segment = round.segments[place.segment.get()];
    if (segment == nullptr) {
      segment = std::make_shared<LentPayload>(round.loan, DevicePlace{place.segment, 0});
    }
    begin = place.offset;
    round.on_device = true;
    return segment;
  }
  std::shared_ptr<const void> owner = std::move(contribution.owner);
  if (owner == nullptr) owner = round.loan;
  return std::make_shared<LentPayload>(std::move(owner), contribution.data,
                                       contribution.wire_bytes);
}

void Runner::Push(LaneHandle lane, PushedParts&& parts, absl::Time now) {
  if (!parts.begun.empty()) PushBegun(lane, parts, now);
  if (!parts.more.empty()) PushMore(lane, parts, now);
}

void Runner::PushBegun(LaneHandle handle, PushedParts& parts, absl::Time now) {
  LaneShell* lane = Find(handle);
  // The round has failed meanwhile: Commit reports it.
  if (lane == nullptr || !lane->round.has_value() || lane->round->outcome.has_value()) return;
  RoundShell& round = *lane->round;
  PushTensors push{handle, {}};
  push.tensors.reserve(parts.begun.size());
  std::vector<TensorHandle> fresh;
  for (auto& [tensor, contribution] : parts.begun) {
    PushTensor& one = push.tensors.emplace_back();
    one.lane = handle;
    one.tensor = tensor;
    one.squared_norm = contribution.squared_norm;
    for (const Digest digest : contribution.digests) one.digest += digest;
    if (contribution.growing != 0) {
      one.chunks = static_cast<uint32_t>(contribution.digests.size());
    }
    RoundShell::Pushed pushed;
    pushed.payload = Lend(round, contribution, pushed.begin);
    pushed.contribution = std::move(contribution);
    if (round.pushed.emplace(tensor, std::move(pushed)).second) fresh.push_back(tensor);
  }
  const std::optional<Error> refused = Step(push, now);
  // The step may have ended the round, and `round` with it; a refusal never does.
  if (!refused.has_value()) return;
  for (const TensorHandle tensor : fresh) round.pushed.erase(tensor);
  if (round.refused.ok()) round.refused = wire::ToStatus(*refused);
}

void Runner::PushMore(LaneHandle handle, const PushedParts& parts, absl::Time now) {
  LaneShell* lane = Find(handle);
  if (lane == nullptr || !lane->round.has_value()) return;
  client::PushMore more{handle, {}};
  more.parts.reserve(parts.more.size());
  for (const auto& [tensor, growth] : parts.more) {
    const auto found = lane->round->pushed.find(tensor);
    // Its push was refused, or was one of a round that has ended.
    if (found == lane->round->pushed.end()) continue;
    Contribution& contribution = found->second.contribution;
    if (contribution.growing != growth.number) continue;
    std::vector<Digest>& digests = contribution.digests;
    digests.insert(digests.end(), growth.digests.begin(), growth.digests.end());
    client::PushMore::Part part{tensor, static_cast<uint32_t>(digests.size()), 0,
                                growth.squared_norm};
    if (growth.last) {
      contribution.growing = 0;
      for (const Digest digest : digests) part.digest += digest;
    }
    more.parts.push_back(part);
  }
  if (!more.parts.empty()) Step(more, now);
}

void Runner::Skip(LaneHandle handle, TensorHandle tensor, absl::Time now) {
  LaneShell* lane = Find(handle);
  if (lane == nullptr || !lane->round.has_value() || lane->round->outcome.has_value()) return;
  const std::optional<Error> refused = Step(SkipTensor{handle, tensor}, now);
  if (!refused.has_value()) return;
  if (lane->round->refused.ok()) lane->round->refused = wire::ToStatus(*refused);
}

absl::Status Runner::Commit(LaneHandle handle, RoundDone ended, absl::Time now) {
  if (const LaneShell* lane = Find(handle); lane != nullptr && lane->round.has_value()) {
    if (!lane->round->outcome.has_value() && !lane->round->refused.ok()) {
      return lane->round->refused;
    }
  }
  return EndTrainerSide(handle, std::move(ended), CommitRound{handle}, now);
}

absl::Status Runner::Withdraw(const WithdrawRound& withdraw, RoundDone ended, absl::Time now) {
  return EndTrainerSide(withdraw.lane, std::move(ended), withdraw, now);
}

absl::Status Runner::EndTrainerSide(LaneHandle handle, RoundDone ended, const Event& call,
                                    absl::Time now) {
  LaneShell* lane = Find(handle);
  if (lane == nullptr) {
    // It has failed, and the lane is gone.
    const RoundOutcome* left = left_.Find(handle);
    return left != nullptr && !left->ok() ? left->status() : NoLane(handle);
  }
  // The round failed while the trainer was pushing.
  if (lane->round.has_value() && lane->round->outcome.has_value()) {
    return lane->round->outcome->status();
  }
  if (!lane->round.has_value() && lane->ended.has_value() && !lane->ended->ok()) {
    return lane->ended->status();
  }
  RoundDone before;
  if (lane->round.has_value()) {
    before = std::exchange(lane->round->ended, std::move(ended));
  }
  const std::optional<Error> refused = Step(call, now);
  if (refused.has_value() && lane->round.has_value()) lane->round->ended = std::move(before);
  return ToStatus(refused);
}

void Runner::Wait(LaneHandle handle, absl::Time deadline, RoundDone done, absl::Time now) {
  LaneShell* lane = Find(handle);
  if (lane == nullptr) {
    const std::optional<RoundOutcome> left = TakeLeft(handle);
    return done(left.has_value() ? *left : RoundOutcome(NoLane(handle)));
  }
  const auto refuse = [&](const std::string& why) {
    done(wire::ToStatus(
        {ErrorCode::kFailedPrecondition, absl::StrCat("Lane ", lane->name, ": ", why)}));
  };
  if (lane->ended.has_value()) {
    const RoundOutcome outcome = *std::exchange(lane->ended, std::nullopt);
    FreeIfGone(handle);
    return done(outcome);
  }
  if (!lane->round.has_value()) return refuse("no round is in flight; begin a round first.");
  if (lane->waiter != nullptr) return refuse("another thread already waits for its round.");
  lane->waiter = std::move(done);
  if (lane->round->outcome.has_value()) return;
  if (const auto refused = Step(WaitRound{handle, deadline}, now)) {
    std::exchange(lane->waiter, nullptr)(wire::ToStatus(*refused));
  }
}

void Runner::AwaitResults(LaneHandle lane, absl::Time deadline, RoundDone done, absl::Time now) {
  Await(lane, {std::move(done), deadline, true}, now);
}

void Runner::AwaitValue(LaneHandle lane, absl::Time deadline, const StatusDone& done,
                        absl::Time now) {
  Await(lane, {[done](const RoundOutcome& outcome) { done(outcome.status()); }, deadline}, now);
}

void Runner::Await(LaneHandle handle, ValueWaiter waiter, absl::Time now) {
  LaneShell* lane = Find(handle);
  if (lane == nullptr) {
    const RoundOutcome* left = left_.Find(handle);
    return waiter.done(left != nullptr ? *left : RoundOutcome(NoLane(handle)));
  }
  if (lane->ended.has_value()) return waiter.done(RoundOutcome(*lane->ended));
  if (!lane->round.has_value() || lane->value_waiter.has_value()) {
    const char* why = lane->round.has_value() ? "another thread already waits for its value."
                                              : "no round is in flight; begin a round first.";
    return waiter.done(wire::ToStatus(
        {ErrorCode::kFailedPrecondition, absl::StrCat("Lane ", lane->name, ": ", why)}));
  }
  lane->value_waiter = std::move(waiter);
  value_awaited_ = true;
  now_ = now;
  ReportPrepared();
}

void Runner::ReportPrepared() {
  if (!value_awaited_) return;
  value_awaited_ = false;
  for (auto& [handle, lane] : lanes_) {
    if (!lane.value_waiter.has_value()) continue;
    RoundOutcome outcome;
    if (lane.round.has_value() && lane.round->outcome.has_value()) {
      const RoundDone done = std::move(lane.value_waiter->done);
      outcome = *lane.round->outcome;
      lane.value_waiter.reset();
      done(outcome);
      continue;
    }
    const Settlement& settlement = core_.lanes()[handle].settlement;
    const std::optional<StagedValue>& held = settlement.staged();
    const bool here = settlement.phase() == SettlePhase::kStaged && held.has_value() &&
                      held->value.outcome == Outcome::kCommitted;
    if (lane.value_waiter->results && here) {
      VerdictRecord record;  // As far as it is known: the next members are not.
      record.round = held->round;
      record.ballot = held->ballot;
      record.value_ballot = held->value_ballot;
      record.value = held->value;
      outcome = MakeResult(handle, record);
    } else if (!lane.value_waiter->results && settlement.phase() != SettlePhase::kCollecting) {
      outcome = std::shared_ptr<const RoundResult>();
    } else if (lane.value_waiter->deadline <= now_) {
      outcome = wire::ToStatus(
          {ErrorCode::kDeadlineExceeded,
           absl::StrCat("Lane ", lane.name,
                        lane.value_waiter->results ? ": the results were not here in time."
                                                   : ": the round had no value in time.")});
    } else {
      value_awaited_ = true;
      continue;
    }
    const RoundDone done = std::move(lane.value_waiter->done);
    lane.value_waiter.reset();
    done(outcome);
  }
}

bool Runner::Outstanding(LaneHandle lane) const {
  const auto found = lanes_.find(lane);
  if (found == lanes_.end()) return left_.Find(lane) != nullptr;
  return found->second.round.has_value() || found->second.ended.has_value();
}

void Runner::Abandon(StatusDone done, absl::Time now) {
  const absl::Status status = Call(AbandonRounds{}, now);
  // A worker that has ended refuses, and its rounds may still hold memory.
  idle_waiters_.push_back([status, done = std::move(done)](const absl::Status&) { done(status); });
  ReportIdle();
}

void Runner::Leave(bool forget, StatusDone done, absl::Time now) {
  const absl::Status status = Call(LeaveJob{forget}, now);
  if (!status.ok()) return done(status);
  leave_waiters_.push_back(std::move(done));
  ReportIdle();
}

void Runner::AwaitWelcome(absl::Time deadline, StatusDone done, absl::Time now) {
  now_ = now;
  member_waiters_.push_back({deadline, std::move(done), /*welcome=*/true});
  ReportMembers();
}

void Runner::AwaitMember(absl::Time deadline, StatusDone done, absl::Time now) {
  now_ = now;
  member_waiters_.push_back({deadline, std::move(done), /*welcome=*/false});
  ReportMembers();
}

void Runner::Get(const GetBlob& get, BlobDone done, absl::Time now) {
  if (fetches_.count(get.key) > 0) {
    done(wire::ToStatus(
        {ErrorCode::kFailedPrecondition,
         absl::StrCat("Already getting tensor ", get.key.tensor, " (lane ", get.key.lane,
                      ", version ", get.key.version, "); wait for it.")}));
    return;
  }
  fetches_[get.key].done = std::move(done);
  if (const auto refused = Step(get, now)) EndBlob(get.key, wire::ToStatus(*refused));
}

absl::Status Runner::Announce(const BlobKey& key, const TensorSpec& spec, ServedBlob value,
                              absl::Time now) {
  AnnounceBlob announce{key, spec, 0};
  for (const Digest digest : value.digests) announce.digest += digest;
  if (const auto refused = Step(announce, now)) return wire::ToStatus(*refused);
  value.version = key.version;
  served_[{key.lane, key.tensor}] = std::move(value);
  return absl::OkStatus();
}

void Runner::StopServing(const std::string& lane, const std::string& tensor, absl::Time now) {
  served_.erase({lane, tensor});
  Step(client::StopServing{lane, tensor}, now);
}

void Runner::LeaseSamples(const TakeSamples& take, const LeaseDone& done, absl::Time now) {
  LaneShell* lane = Find(take.lane);
  if (lane == nullptr) return done(NoLane(take.lane));
  // The core refuses a second request, so that of the first thread stays.
  LeaseDone before = std::exchange(lane->lease_waiter, done);
  if (const auto refused = Step(take, now)) {
    lanes_[take.lane].lease_waiter = std::move(before);
    done(wire::ToStatus(*refused));
  }
}

void Runner::ReportBatch(const AccumulateBatch& batch, const BatchDone& done, absl::Time now) {
  LaneShell* lane = Find(batch.lane);
  if (lane == nullptr) return done(NoLane(batch.lane));
  // The core refuses a second report, so that of the first thread stays.
  BatchDone before = std::exchange(lane->batch_waiter, done);
  if (const auto refused = Step(batch, now)) {
    lanes_[batch.lane].batch_waiter = std::move(before);
    done(wire::ToStatus(*refused));
  }
}

absl::StatusOr<SampleProgress> Runner::CommittedSamples(LaneHandle lane) const {
  if (!core_.lanes().Has(lane)) return NoLane(lane);
  return core_.lanes()[lane].samples.progress();
}

absl::StatusOr<SampleProgress> Runner::HeldSamples(LaneHandle lane) const {
  if (!core_.lanes().Has(lane)) return NoLane(lane);
  const Lane& of = core_.lanes()[lane];
  if (!Outstanding(lane)) return of.samples.Leased();
  return wire::ToStatus(of.RefuseCall(
      ErrorCode::kFailedPrecondition,
      "the next batch of samples was asked for before the outcome of the last round. Wait for the "
      "outcome first. To lease ahead, use leases without batches."));
}

void Runner::NextCall(std::vector<LaneHandle> lanes, absl::Time deadline, PlaceDone done,
                      absl::Time now) {
  now_ = now;
  call_waiters_.push_back({std::move(lanes), deadline, std::move(done)});
  ReportCallers();
}

void Runner::GateOpened(absl::Time now) {
  now_ = now;
  for (const SendBlob& send : std::exchange(held_back_, {})) Do(send);
}

void Runner::Shutdown(StatusDone done) {
  closed_ = true;
  CloseConnections();
  open_session_at_ = absl::InfiniteFuture();
  const absl::Status closed = wire::ToStatus(
      {ErrorCode::kUnavailable, "The client of this worker was closed before the outcome."});
  for (const auto& [handle, lane] : lanes_) {
    if (!lane.round.has_value()) continue;
    const bool known = core_.lanes().Has(handle) && core_.lanes()[handle].round.has_value();
    Decide(handle, known ? core_.lanes()[handle].round->number() : 0, closed);
  }
  for (auto& [handle, lane] : lanes_) {
    if (const LeaseDone done = std::exchange(lane.lease_waiter, nullptr)) done(closed);
    if (const BatchDone done = std::exchange(lane.batch_waiter, nullptr)) done(closed);
  }
  ReportPrepared();
  while (!fetches_.empty()) EndBlob(BlobKey(fetches_.begin()->first), closed);
  for (const MemberWaiter& waiter : std::exchange(member_waiters_, {})) waiter.done(closed);
  for (const CallWaiter& waiter : std::exchange(call_waiters_, {})) waiter.done(closed);
  for (const StatusDone& waiter : std::exchange(leave_waiters_, {})) waiter(closed);
  idle_waiters_.push_back(std::move(done));
  ReportIdle();
}

// ---- the end of rounds

// The round has ended. Its outcome is delivered when the trainer's memory is no longer read.
void Runner::Decide(LaneHandle handle, RoundNumber number, RoundOutcome outcome) {
  LaneShell& lane = lanes_[handle];
  if (!lane.round.has_value() || lane.round->outcome.has_value()) return;
  if (dependencies_.timeline != nullptr) {
    dependencies_.timeline->Decided(handle, number, lane.round->result_bytes, outcome, now_);
  }
  lane.round->outcome = std::move(outcome);
  lane.round->return_by = now_ + kReturnTime;
  lane.round->pushed.clear();
  lane.round->segments.clear();
  lane.round->loan.reset();
}

void Runner::LoanReturned(LaneHandle handle, uint64_t begin) {
  const LaneShell* lane = Find(handle);
  // Its begin was refused.
  if (lane == nullptr || !lane->round.has_value() || lane->round->begin != begin) return;
  dependencies_.memory->EndRound(handle, lane->round->outcome->ok());
  if (lane->round->outcome->ok()) {
    const std::shared_ptr<Segments> shared = dependencies_.connector->shared();
    const bool shares = shared != nullptr;
    // A round of tensors that are on the host changes nothing.
    const bool on_device =
        shares && shared->takes_devices() && (view_.on_device || lane->round->on_device);
    view_changed_ |= view_.shares != shares || view_.on_device != on_device;
    view_.shares = shares;
    view_.on_device = on_device;
    PublishView();
  }
  ReportOutcome(handle);
  dependencies_.ended(handle);
  ReportIdle();
}

void Runner::ReportOutcome(LaneHandle handle) {
  if (dependencies_.timeline != nullptr) dependencies_.timeline->Delivered(handle);
  LaneShell& lane = lanes_[handle];
  const RoundOutcome outcome = *std::move(lane.round->outcome);
  const RoundDone ended = std::move(lane.round->ended);
  lane.round.reset();
  const RoundDone waiter = std::exchange(lane.waiter, nullptr);
  if (waiter != nullptr) waiter(outcome);
  if (ended != nullptr) ended(outcome);
  if (waiter == nullptr && ended == nullptr) lane.ended = outcome;
  FreeIfGone(handle);
}

void Runner::ReportIdle() {
  for (const auto& [handle, lane] : lanes_) {
    if (lane.round.has_value()) return;
  }
  for (const StatusDone& done : std::exchange(idle_waiters_, {})) done(absl::OkStatus());
  if (!core_.left() && !core_.fatal().has_value()) return;
  for (const StatusDone& done : std::exchange(leave_waiters_, {})) {
    done(core_.left() ? absl::OkStatus() : wire::ToStatus(*core_.fatal()));
  }
}

// A channel that does not release the memory of an ended round is closed; its frames of other
// rounds are sent again.
void Runner::RecallLoans(absl::Time now) {
  bool late = false;
  for (auto& [handle, lane] : lanes_) {
    if (!lane.round.has_value() || lane.round->return_by > now) continue;
    lane.round->return_by = absl::InfiniteFuture();
    late = true;
  }
  if (!late) return;
  for (uint32_t i = 0; i < streams_.size(); ++i) {
    if (streams_[i].channel == nullptr) continue;
    streams_[i].channel->Close();
    streams_[i] = Stream();
    ++counters_.streams_closed;
    Step(client::StreamDown{i, "it did not release a round that had ended, and was closed"}, now);
  }
}

// ---- the view of the job

void Runner::PublishView() {
  // A lost stream is opened again at once. It often goes just before its session does, and always
  // when the worker leaves.
  std::string stream_trouble;
  ShardId stream_shard = kCoordinatorShard;
  if (leave_waiters_.empty()) {
    const Streams& streams = core_.session().streams();
    const ShardStreams* const troubled =
        stream_refused_ ? streams.Troubled() : streams.OutOfReach();
    if (troubled != nullptr) {
      stream_trouble = troubled->Trouble();
      stream_shard = troubled->shard().shard;
    }
  }
  const std::optional<ExpectedRank> expected = core_.expected();
  if (!(view_.trouble == core_.trouble()) || view_.draining != core_.draining() ||
      view_.welcomed != core_.was_welcomed() || view_.expected != expected ||
      view_.stream_trouble != stream_trouble) {
    view_.trouble = core_.trouble();
    view_.draining = core_.draining();
    view_.welcomed = core_.was_welcomed();
    view_.expected = expected;
    view_.stream_trouble = std::move(stream_trouble);
    view_.stream_shard = stream_shard;
    view_changed_ = true;
  }
  if (!view_changed_) return;
  view_changed_ = false;
  if (dependencies_.timeline != nullptr) dependencies_.timeline->OnJobView(view_);
  dependencies_.on_view(view_);
  ReportMembers();
}

std::string Runner::WhyNoMember() const {
  if (!view_.paused.empty()) return view_.paused;
  if (!core_.connected()) return view_.trouble.text;
  return "The aggregator waits for other workers, or the job already has max_workers: see "
         "`basinctl "
         "status`. Wait longer, or start the missing workers; a restart of this worker does not "
         "help.";
}

void Runner::ReportMembers() {
  std::vector<MemberWaiter> still;
  for (MemberWaiter& waiter : std::exchange(member_waiters_, {})) {
    if (view_.fatal.has_value()) {
      waiter.done(wire::ToStatus(*view_.fatal));
    } else if (view_.left) {
      waiter.done(wire::ToStatus({ErrorCode::kFailedPrecondition, "The worker has left the job."}));
    } else if (view_.role == Role::kMember || (waiter.welcome && view_.welcomed)) {
      waiter.done(absl::OkStatus());
    } else if (const Config& config = core_.config(); core_.evicted() && !waiter.welcome) {
      waiter.done(wire::ToStatus(
          {ErrorCode::kEvicted,
           absl::StrCat("Worker ", config.worker, " of job ", config.job,
                        " is no longer a member, and waits to become one without being ready. "
                        "Declare ready first, and rejoin with state; no restart needed.")}));
    } else if (core_.will_leave()) {
      waiter.done(wire::ToStatus(
          {ErrorCode::kFailedPrecondition,
           absl::StrCat("Worker ", config.worker, " of job ", config.job,
                        " is about to leave, so it does not wait to become a member. Leave "
                        "now.")}));
    } else if (waiter.deadline <= now_) {
      waiter.done(
          wire::ToStatus({ErrorCode::kDeadlineExceeded,
                          absl::StrCat("Worker ", config.worker, " of job ", config.job,
                                       waiter.welcome ? " was not welcomed" : " is not a member",
                                       " in time. ", WhyNoMember())}));
    } else {
      still.push_back(std::move(waiter));
    }
  }
  member_waiters_ = std::move(still);
}

std::optional<absl::StatusOr<uint32_t>> Runner::PlaceFor(const CallWaiter& waiter) const {
  const Config& config = core_.config();
  const auto refuse = [&](ErrorCode code, const std::string& why) {
    return absl::StatusOr<uint32_t>(
        wire::ToStatus({code, absl::StrCat("Job ", config.job, ", worker ", config.worker,
                                           ": the next call without a name cannot begin: ", why)}));
  };
  if (view_.fatal.has_value()) return absl::StatusOr<uint32_t>(wire::ToStatus(*view_.fatal));
  if (view_.role != Role::kMember) {
    if (core_.evicted()) {
      return refuse(ErrorCode::kEvicted,
                    "the worker is no longer a member; the others continue. Declare ready and "
                    "rejoin with state; no restart needed.");
    }
    return refuse(
        ErrorCode::kFailedPrecondition,
        "the worker is not a member of the job; declare ready, and wait until it is one.");
  }
  std::vector<const Lane*> lanes;
  for (const LaneHandle handle : waiter.lanes) lanes.push_back(&core_.lanes()[handle]);
  if (const std::optional<uint32_t> place = NextPlace(lanes); place.has_value()) {
    const LaneShell& lane = lanes_.at(waiter.lanes[*place]);
    if (!lane.round.has_value() && !lane.ended.has_value()) return absl::StatusOr<uint32_t>(*place);
    return refuse(ErrorCode::kFailedPrecondition,
                  absl::StrCat("the outcome of the one ", waiter.lanes.size(),
                               " calls before was not waited for. Wait for it first."));
  }
  for (const Lane* lane : lanes) {
    const Error& refusal = lane->tensors.front().refusal;
    if (refusal.code != ErrorCode::kOk) return absl::StatusOr<uint32_t>(wire::ToStatus(refusal));
  }
  if (waiter.deadline > now_) return std::nullopt;
  return refuse(ErrorCode::kDeadlineExceeded,
                absl::StrCat("the aggregator has not said in time where the others are. ",
                             core_.connected() ? "Wait longer." : view_.trouble.text));
}

void Runner::ReportCallers() {
  if (call_waiters_.empty()) return;
  std::vector<CallWaiter> still;
  for (CallWaiter& waiter : std::exchange(call_waiters_, {})) {
    if (const auto place = PlaceFor(waiter); place.has_value()) {
      waiter.done(*place);
    } else {
      still.push_back(std::move(waiter));
    }
  }
  for (CallWaiter& waiter : still) call_waiters_.push_back(std::move(waiter));
}

}  // namespace basin::client
