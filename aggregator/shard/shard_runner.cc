// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "aggregator/shard/shard_runner.h"

#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"

namespace basin::aggregator {

ShardRunner::ShardRunner(ShardDependencies dependencies)
    : dependencies_(std::move(dependencies)), bytes_(DependenciesOfBytes()) {}

ByteDependencies ShardRunner::DependenciesOfBytes() const {
  ByteDependencies bytes = dependencies_.bytes;
  bytes.name_of = [this](JobId job) {
    const auto found = names_.find(job);
    return found == names_.end() ? JobName() : found->second;
  };
  return bytes;
}

void ShardRunner::Flush() {
  if (!events_.empty()) dependencies_.report(std::exchange(events_, {}));
}

void ShardRunner::ReportUse() {
  const ByteCounters& counters = bytes_.counters();
  const ShardUse use{counters.contribution_bytes, counters.result_bytes, counters.reductions,
                     bytes_.parked_bytes(), bytes_.result_bytes()};
  if (use == use_) return;
  use_ = use;
  events_.emplace_back(use);
}

// ---- what happened

void ShardRunner::StreamOpened(StreamId stream, SessionToken token) {
  streams_[stream] = false;
  basin::aggregator::StreamOpened opened;
  opened.stream = stream;
  opened.token = token;
  events_.emplace_back(opened);
}

void ShardRunner::StreamClosed(StreamId stream) {
  if (streams_.erase(stream) == 0) return;
  bytes_.StreamClosed(stream);
  events_.emplace_back(StreamLost{stream});
}

void ShardRunner::Refuse(StreamId stream, const absl::Status& why) {
  transport().CloseStream(stream, why);
  StreamClosed(stream);
}

void ShardRunner::FrameReceived(StreamId stream, IncomingFrame frame) {
  const ByteRunner::Origin* const origin = bytes_.OriginOf(stream);
  if (origin != nullptr) Take(stream, *origin, std::move(frame), false);
}

void ShardRunner::Take(StreamId stream, const ByteRunner::Origin& origin, IncomingFrame frame,
                       bool again) {
  if (std::holds_alternative<BlobHeader>(frame.header)) {
    return Refuse(stream, absl::InvalidArgumentError(absl::StrCat(
                              "A data frame of job ", names_[origin.job],
                              " has a value, and came to a shard. Send values to the coordinator, "
                              "on a data stream of shard 0.")));
  }
  if (!again && !bytes_.KnowsTensorsOf(origin.job, frame)) {
    events_.emplace_back(ShardFrameUnknown{++last_frame_, stream});
    frames_.emplace(last_frame_, Unanswered{stream, std::move(frame), {}, true});
    return;
  }
  absl::StatusOr<ByteRunner::Arrival> arrival = bytes_.Arrived(origin, frame);
  if (!arrival.ok()) return Refuse(stream, arrival.status());
  auto what =
      std::get<basin::aggregator::FrameReceived>(std::get<Input>(std::move(arrival->event)));
  what.session = 0;  // The coordinator knows it by the stream.
  events_.emplace_back(ShardFrameReceived{++last_frame_, stream, std::move(what)});
  frames_.emplace(last_frame_, Unanswered{stream, std::move(frame), std::move(arrival->digests)});
}

void ShardRunner::Reduced(const Reduction& reduction) {
  bytes_.Reduced(reduction);
  events_.emplace_back(reduction.done);
}

void ShardRunner::ArenaMade(JobId job, LaneIndex lane, uint64_t bytes,
                            std::shared_ptr<ResultArena> arena, absl::Time now) {
  bytes_.ArenaMade(job, lane, bytes, std::move(arena), now);
}

// ---- what the coordinator has decided

absl::Status ShardRunner::Step(const ShardStep& step, absl::Time now) {
  const auto found = frames_.find(step.frame);
  if (step.frame != 0 && found == frames_.end()) {
    return absl::InternalError(
        absl::StrCat("it answers frame ", step.frame, ", which is not held here"));
  }
  const bool answers = step.frame != 0 && !found->second.unknown;
  {
    std::optional<Payloads::Arrived> arrived;
    if (answers) arrived.emplace(Payloads::Arrived{found->second.frame, found->second.digests});
    for (const ShardAction& action : step.actions) {
      absl::Status done = std::visit(
          [&](const auto& what) { return Do(what, arrived ? &*arrived : nullptr, now); }, action);
      if (!done.ok()) return done;
    }
  }
  if (step.frame == 0 || step.continues) return absl::OkStatus();
  Unanswered answered = std::move(found->second);
  frames_.erase(found);
  const ByteRunner::Origin* const origin = bytes_.OriginOf(answered.stream);
  if (answers || origin == nullptr) {
    transport().Consumed(answered.stream, answered.frame.payload_bytes);
  } else {
    Take(answered.stream, *origin, std::move(answered.frame), true);
  }
  return absl::OkStatus();
}

absl::Status ShardRunner::Do(const ShardAcceptStream& accept, const Payloads::Arrived* arrived,
                             absl::Time now) {
  const auto found = streams_.find(accept.accept.stream);
  if (found == streams_.end()) return absl::OkStatus();  // It was lost meanwhile.
  found->second = true;
  names_[accept.accept.job] = accept.job_name;
  return bytes_.CarryOut(accept.accept, arrived, now);
}

absl::Status ShardRunner::Do(const CloseStream& close, const Payloads::Arrived* arrived,
                             absl::Time now) {
  if (streams_.erase(close.stream) == 0) return absl::OkStatus();
  return bytes_.CarryOut(close, arrived, now);
}

absl::Status ShardRunner::Do(const EndJob& end, const Payloads::Arrived* arrived, absl::Time now) {
  names_.erase(end.job);
  return bytes_.CarryOut(end, arrived, now);
}

}  // namespace basin::aggregator
