// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "aggregator/engine/runner.h"

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <type_traits>
#include <utility>

#include "protocol/limits/limits.h"
#include "protocol/version.h"

namespace basin::aggregator {
namespace {

Config WithLimits(Config config) {
  config.max_streams = kMaxStreams;
  config.frame_tensors = kMaxRunsPerFrame;
  config.features |= kFeatureBatches | kFeatureChecksums | kFeaturePlaces;
  return config;
}

}  // namespace

Runner::Runner(Config config, RunnerDependencies dependencies, absl::Time start)
    : dependencies_(std::move(dependencies)),
      core_(WithLimits(std::move(config)), start),
      now_(start),
      bytes_(DependenciesOfBytes()),
      shards_(
          dependencies_.new_stream, [this](JobId job) { return NameOf(job); },
          [this](ShardId shard, const std::vector<ShardStep>& steps) {
            transport().SendToShard(shard, steps);
          }) {}

JobName Runner::NameOf(JobId job) const {
  // A session that lingers may shortly outlive its job.
  const auto found = core().jobs().find(job);
  return found == core().jobs().end() ? JobName() : found->second.name;
}

ByteDependencies Runner::DependenciesOfBytes() const {
  ByteDependencies bytes = dependencies_.bytes;
  bytes.name_of = [this](JobId job) { return NameOf(job); };
  // A job has its share of this memory, as of all.
  bytes.job_arena_bytes = core().config().max_job_bytes;
  return bytes;
}

// ---- what happened

void Runner::Step(const Event& event, absl::Time now) {
  now_ = now;
  shards_.SetTime(now);
  actions_.clear();
  core_.Step(event, now, actions_);
  for (const Action& action : actions_) {
    std::visit([this](const auto& what) { Do(what); }, action);
  }
  shards_.EndStep();
  for (const ShardId shard : std::exchange(released_, {})) {
    transport().CloseShard(shard, absl::OkStatus());
    ShardClosed(shard, "It was released.", now);
  }
}

void Runner::Flush() {
  shards_.Flush();
  transport().Flush();
}

void Runner::SessionOpened(SessionId session, std::string address, absl::Time now) {
  SessionToken token = 0;
  do {
    token = dependencies_.new_token();
  } while (core_.delivery().SessionOf(token).has_value());
  Step(basin::aggregator::SessionOpened{session, token, std::move(address)}, now);
}

void Runner::MessageReceived(SessionId session, ToAggregator message, uint64_t bytes,
                             absl::Time now) {
  Step(basin::aggregator::MessageReceived{session, std::move(message)}, now);
  transport().Consumed(session, bytes);
}

void Runner::BatchReceived(SessionId session, Batch&& batch, absl::Time now) {
  for (auto& [message, bytes] : batch.messages) {
    MessageReceived(session, std::move(message), bytes, now);
  }
  if (batch.frame_bytes == 0) return;
  for (const auto& [stream, frame] : batch.frames) FrameReceived(stream, frame, now);
  transport().Consumed(session, batch.frame_bytes);
}

void Runner::SessionEnded(SessionClosed closed, absl::Time now) { Step(std::move(closed), now); }

void Runner::StreamOpened(StreamId stream, SessionToken token, absl::Time now) {
  Step(basin::aggregator::StreamOpened{stream, token, kCoordinatorShard}, now);
}

void Runner::FrameReceived(StreamId stream, const IncomingFrame& frame, absl::Time now) {
  const ByteRunner::Origin* const origin = bytes_.OriginOf(stream);
  if (origin == nullptr) return;
  const absl::StatusOr<ByteRunner::Arrival> arrival = bytes_.Arrived(*origin, frame);
  if (!arrival.ok()) {
    transport().CloseStream(stream, arrival.status());
    StreamClosed(stream, now);
    return;
  }
  const Payloads::Arrived arrived{frame, arrival->digests};
  arrived_ = &arrived;
  Step(arrival->event, now);
  arrived_ = nullptr;
  transport().Consumed(stream, frame.payload_bytes);
}

void Runner::StreamClosed(StreamId stream, absl::Time now) {
  bytes_.StreamClosed(stream);
  Step(StreamLost{stream}, now);
}

void Runner::Reduced(const std::shared_ptr<const Reduction>& reduction, absl::Time now) {
  bytes_.Reduced(*reduction);
  reduce_times_.Add(now - reduction->ordered);
  Step(reduction->done, now);
}

void Runner::Saved(const StateSaved& saved, absl::Time now) { Step(saved, now); }
void Runner::Saved(const SettingsSaved& saved, absl::Time now) { Step(saved, now); }

void Runner::ArenaMade(JobId job, LaneIndex lane, uint64_t bytes,
                       std::shared_ptr<ResultArena> arena, absl::Time now) {
  bytes_.ArenaMade(job, lane, bytes, std::move(arena), now);
}

uint64_t Runner::SharersOf(uint64_t connection) const {
  std::optional<JobId> job = core().JobOf(connection);
  if (const ByteRunner::Origin* const origin = bytes_.OriginOf(connection)) job = origin->job;
  if (!job.has_value()) return 1;
  const auto found = core().jobs().find(*job);
  if (found == core().jobs().end()) return 1;
  const Workers& workers = found->second.workers;
  return std::max<uint64_t>(1, workers.size() - workers.Count(WorkerState::kLost));
}

void Runner::Command(const Event& command, absl::Time now) { Step(command, now); }

void Runner::Tick(absl::Time now) { Step(aggregator::Tick{}, now); }

void Runner::MessagesWait(std::vector<uint64_t> connections, std::vector<WaitingHello> hellos,
                          absl::Time now) {
  Step(basin::aggregator::MessagesWait{std::move(connections), std::move(hellos)}, now);
}

void Runner::SessionsUnheard(std::vector<UnheardSession> sessions, absl::Duration age,
                             absl::Time now) {
  Step(basin::aggregator::SessionsUnheard{std::move(sessions), age}, now);
}

// ---- shards

void Runner::ShardOpened(ShardId shard, const ShardHello& hello, absl::Time now) {
  shards_.Add(shard, now);
  transport().WelcomeShard(shard, core().config().term);
  Step(ShardUp{shard, hello.name, hello.endpoint, hello.memory}, now);
}

void Runner::ShardReported(ShardId shard, std::vector<ShardEvent> events, uint64_t bytes,
                           absl::Time now) {
  shards_.SetTime(now);
  if (shards_.Has(shard)) shards_.Heard(shard, now);
  for (ShardEvent& event : events) {
    if (!shards_.Has(shard)) return;
    const absl::Status taken =
        std::visit([&](auto& what) { return Report(shard, std::move(what), now); }, event);
    if (taken.ok()) continue;
    transport().CloseShard(shard, taken);
    return ShardClosed(shard, std::string(taken.message()), now);
  }
  transport().ShardConsumed(shard, bytes);
}

void Runner::ShardClosed(ShardId shard, std::string why, absl::Time now) {
  if (!shards_.Has(shard)) return;
  shards_.Remove(shard);
  Step(ShardLost{shard, std::move(why)}, now);
}

absl::Status Runner::Report(ShardId shard, const basin::aggregator::StreamOpened& opened,
                            absl::Time now) {
  const absl::StatusOr<StreamId> stream = shards_.Open(shard, opened.stream);
  if (!stream.ok()) return stream.status();
  Step(basin::aggregator::StreamOpened{*stream, opened.token, shard}, now);
  return absl::OkStatus();
}

absl::Status Runner::Report(ShardId shard, const StreamLost& lost, absl::Time now) {
  const absl::StatusOr<StreamId> stream = shards_.Find(shard, lost.stream);
  if (!stream.ok()) return stream.status();
  if (*stream == 0) return absl::OkStatus();
  shards_.Close(*stream);
  Step(StreamLost{*stream}, now);
  return absl::OkStatus();
}

absl::Status Runner::Report(ShardId shard, ShardFrameReceived received, absl::Time now) {
  const absl::StatusOr<StreamId> stream = shards_.Find(shard, received.stream);
  if (!stream.ok()) return stream.status();
  if (absl::Status begun = shards_.BeginStep(shard, received.frame); !begun.ok()) return begun;
  // Otherwise it was closed meanwhile, and the frame is only let go of.
  if (const std::optional<SessionId> session = shards_.SessionOf(*stream)) {
    received.what.session = *session;
    received.what.shard = shard;
    Step(std::move(received.what), now);
  }
  shards_.EndStep();
  return absl::OkStatus();
}

absl::Status Runner::Report(ShardId shard, const ShardFrameUnknown& unknown, absl::Time) {
  // What was named until now has been sent before this answer.
  if (absl::Status begun = shards_.BeginStep(shard, unknown.frame); !begun.ok()) return begun;
  shards_.EndStep();
  return absl::OkStatus();
}

absl::Status Runner::Report(ShardId shard, ReduceDone done, absl::Time now) {
  if (absl::Status asked = shards_.Reduced(shard, done); !asked.ok()) return asked;
  done.shard = shard;
  Step(std::move(done), now);
  return absl::OkStatus();
}

absl::Status Runner::Report(ShardId shard, ShardDraining draining, absl::Time now) {
  draining.shard = shard;
  Step(draining, now);
  return absl::OkStatus();
}

absl::Status Runner::Report(ShardId shard, const ShardUse& use, absl::Time) {
  shards_.Used(shard, use);
  return absl::OkStatus();
}

absl::Time Runner::NextDeadline() const { return core_.NextDeadline(); }

// ---- actions

void Runner::Do(const basin::aggregator::Send& send) {
  send.can_wait ? transport().SendLater(send.session, send.message)
                : transport().Send({send.session}, send.message);
}

void Runner::Do(const SendAll& send) { transport().Send(send.sessions, send.message); }

void Runner::Do(const EndSession& end) {
  transport().Send({end.session}, Ended{end.error});
  transport().CloseSession(end.session);
}

namespace {

// Actions that are for every shard, and for this process.
template <typename Action>
constexpr bool kIsForAll = std::is_same_v<Action, NameTensors> ||
                           std::is_same_v<Action, IdleLane> || std::is_same_v<Action, EndJob> ||
                           std::is_same_v<Action, StartAttempt> || std::is_same_v<Action, EndRound>;

// Values are on shard 0 alone.
template <typename Action>
constexpr bool kIsOfValue = std::is_same_v<Action, RelayBlob> || std::is_same_v<Action, SendBlob> ||
                            std::is_same_v<Action, DropBlob>;

}  // namespace

template <typename Other>
void Runner::Do(const Other& other) {
  if constexpr (kIsForAll<Other>) {
    shards_.DoAll(other);
  } else if constexpr (std::is_same_v<Other, NameTensors>) {
    if (other.shard != kEveryShard && other.shard != kCoordinatorShard) return shards_.Do(other);
    if (other.shard == kEveryShard) shards_.DoAll(other);
  } else if constexpr (!kIsOfValue<Other>) {
    if (other.shard != kCoordinatorShard) return shards_.Do(other);
  }
  // Our own broken invariant: core and bytes disagree about what is held.
  if (!bytes_.CarryOut(other, arrived_, now_).ok()) std::abort();
}

void Runner::Do(const SaveState& save) { dependencies_.save(save); }

void Runner::Do(const SaveSettings& save) { dependencies_.save_settings(save); }

void Runner::Do(const Note& note) { dependencies_.notes->OnNote(note, now_); }

void Runner::Do(const ReleaseShard& release) { released_.push_back(release.shard); }

void Runner::Do(const Drained&) { dependencies_.drained(); }

}  // namespace basin::aggregator
