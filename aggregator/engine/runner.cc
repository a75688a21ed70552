// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "aggregator/engine/runner.h"

#include <algorithm>
#include <cstdlib>
#include <optional>

#include "absl/strings/str_cat.h"
#include "proto/limits/limits.h"

namespace basin::aggregator {
namespace {

// A process that ends closes all its connections within some milliseconds of each other; a network
// that breaks leaves some of them open.
constexpr absl::Duration kSettle = absl::Milliseconds(10);

// Our own broken invariant: core and runner disagree about what is held.
void Require(bool condition) {
  if (!condition) std::abort();
}

bool Covers(const ChunkRange& outer, const ChunkRange& inner) {
  return outer.tensor == inner.tensor && inner.first >= outer.first &&
         inner.first + inner.count <= outer.first + outer.count;
}

struct FrameRange {
  uint32_t first = 0;
  uint32_t count = 0;
};

FrameRange RangeOf(const IncomingFrame& frame) {
  if (const auto* value = std::get_if<ValueFrame>(&frame.what)) return {value->first, value->count};
  const auto* contribution = std::get_if<ContributionFrame>(&frame.what);
  const ChunkRange& range =
      contribution != nullptr ? contribution->range : std::get<ResultFrame>(frame.what).range;
  return {range.first, range.count};
}

uint64_t WireChunkBytesOf(const IncomingFrame& frame) {
  const auto* contribution = std::get_if<ContributionFrame>(&frame.what);
  return contribution == nullptr ? kChunkBytes : WireChunkBytes(contribution->wire_dtype);
}

}  // namespace

Runner::Runner(Config config, RunnerDependencies dependencies, absl::Time start)
    : dependencies_(std::move(dependencies)), core_(std::move(config), start), now_(start) {}

// ---- what happened

void Runner::Step(const Event& event, absl::Time now) {
  now_ = now;
  actions_.clear();
  core_.Step(event, now, actions_);
  for (const Action& action : actions_) {
    std::visit([this](const auto& what) { Do(what); }, action);
  }
  if (job_ended_) ForgetJobs();
  job_ended_ = false;
}

void Runner::SessionOpened(SessionId session, absl::Time now) {
  SessionShell& shell = sessions_[session];
  do {
    shell.token = dependencies_.new_token();
  } while (!by_token_.emplace(shell.token, session).second);
  Step(basin::aggregator::SessionOpened{session, shell.token}, now);
}

void Runner::MessageReceived(SessionId session, ToAggregator message, uint64_t bytes,
                             absl::Time now) {
  const auto found = sessions_.find(session);
  if (found == sessions_.end()) return;
  SessionShell& shell = found->second;
  // A session is of the job that it named first; the core refuses another hello.
  if (const auto* hello = std::get_if<Hello>(&message); hello != nullptr && shell.job.empty()) {
    shell.job = hello->job;
  }
  if (const auto* ack = std::get_if<ResultAck>(&message)) Acknowledge(shell, *ack);
  Step(basin::aggregator::MessageReceived{session, std::move(message)}, now);
  if (sessions_.count(session) > 0) dependencies_.transport->Consumed(session, bytes);
}

void Runner::SessionClosed(SessionId session, std::string ended, absl::Time now) {
  const auto found = sessions_.find(session);
  if (found == sessions_.end() || found->second.closed) return;
  found->second.closed = true;
  found->second.ended = std::move(ended);
  by_token_.erase(found->second.token);
  settling_.emplace_back(now + kSettle, session);
}

void Runner::StreamOpened(StreamId stream, SessionToken token, absl::Time now) {
  now_ = now;
  const auto owner = by_token_.find(token);
  if (owner == by_token_.end()) {
    dependencies_.transport->CloseStream(
        stream, absl::NotFoundError(
                    "The session that this data stream names is over or never was. Open a session "
                    "first and present the token of its welcome."));
    return;
  }
  SessionShell& session = sessions_.at(owner->second);
  if (session.streams.size() >= kMaxStreams) {
    dependencies_.transport->CloseStream(
        stream, absl::ResourceExhaustedError(absl::StrCat(
                    "The session of job ", session.job, " has ", session.streams.size(),
                    " data streams, which is the limit. Close those that are not used.")));
    return;
  }
  streams_[stream] = {owner->second, 0};
  session.streams.push_back(stream);
  dependencies_.transport->AcceptStream(stream);
  for (const Frame& frame : std::exchange(session.waiting, {})) {
    dependencies_.transport->Send({Place(session, frame)}, *frame);
  }
}

void Runner::FrameReceived(StreamId stream, IncomingFrame frame, absl::Time now) {
  const auto found = streams_.find(stream);
  if (found == streams_.end()) return;
  const SessionId session = found->second.session;
  const absl::StatusOr<ChunkDigests> digests = DigestsOf(sessions_.at(session), frame);
  if (!digests.ok()) {
    EndStream(stream, digests.status());
    return;
  }
  frame_ = &frame;
  digests_ = &*digests;
  if (const auto* contribution = std::get_if<ContributionFrame>(&frame.what)) {
    counters_.contribution_bytes += frame.bytes;
    // The core counts in the tensor's own bytes, however narrow they came.
    const uint64_t widening = kChunkBytes / WireChunkBytes(contribution->wire_dtype);
    Step(basin::aggregator::FrameReceived{session, FrameKind::kContribution, contribution->lane,
                                          contribution->round, Ballot{}, contribution->range,
                                          frame.bytes * widening, *digests},
         now);
  } else if (const auto* supply = std::get_if<ResultFrame>(&frame.what)) {
    Step(basin::aggregator::FrameReceived{session, FrameKind::kSupply, supply->lane, supply->round,
                                          supply->ballot, supply->range, frame.bytes, *digests},
         now);
  } else {
    const ValueFrame& value = std::get<ValueFrame>(frame.what);
    Step(ValueReceived{session, value.key, value.first, value.count, frame.bytes}, now);
  }
  frame_ = nullptr;
  digests_ = nullptr;
  if (streams_.count(stream) > 0) dependencies_.transport->Consumed(stream, frame.bytes);
}

void Runner::StreamClosed(StreamId stream, absl::Time now) {
  now_ = now;
  const auto found = streams_.find(stream);
  if (found == streams_.end()) return;
  SessionShell& session = sessions_.at(found->second.session);
  streams_.erase(found);
  session.streams.erase(std::find(session.streams.begin(), session.streams.end(), stream));
  if (session.closed) return;
  // What was sent on it and is not acknowledged goes out again, in the same order.
  std::vector<Frame> again;
  auto& sent = session.unacknowledged;
  for (const SentResult& result : sent) {
    if (result.stream == stream) again.push_back(result.frame);
  }
  sent.erase(std::remove_if(sent.begin(), sent.end(),
                            [&](const SentResult& result) { return result.stream == stream; }),
             sent.end());
  counters_.results_resent += again.size();
  for (const Frame& frame : again) {
    if (const StreamId other = Place(session, frame); other != 0) {
      dependencies_.transport->Send({other}, *frame);
    }
  }
}

void Runner::Reduced(const std::shared_ptr<const Reduction>& reduction, absl::Time now) {
  ++counters_.reductions;
  counters_.reduce_seconds += reduction->seconds;
  if (reduction->done.facts.nonfinite.has_value()) ++counters_.nonfinite_reductions;
  const Reduce& action = reduction->action;
  const auto round = rounds_.find({action.job, action.lane, action.round});
  if (round != rounds_.end() && !reduction->done.failure.has_value())
    round->second.Hold(*reduction);
  Step(reduction->done, now);
}

void Runner::Saved(const StateSaved& saved, absl::Time now) { Step(saved, now); }

void Runner::Command(const Event& command, absl::Time now) { Step(command, now); }

void Runner::Tick(absl::Time now) {
  Settle(now);
  if (core_.NextDeadline() <= now) Step(aggregator::Tick{}, now);
}

// The moment after a session stream ended in which its data streams would end too, if the process
// is gone.
void Runner::Settle(absl::Time now) {
  while (!settling_.empty() && settling_.front().first <= now) {
    const SessionId session = settling_.front().second;
    settling_.pop_front();
    const auto found = sessions_.find(session);
    if (found == sessions_.end()) continue;
    const std::vector<StreamId> left = std::move(found->second.streams);
    std::string ended = std::move(found->second.ended);
    for (const StreamId stream : left) {
      streams_.erase(stream);
      dependencies_.transport->CloseStream(stream, absl::OkStatus());
    }
    sessions_.erase(found);
    Step(SessionLost{session, left.empty(), std::move(ended)}, now);
  }
}

absl::Time Runner::NextDeadline() const {
  const absl::Time core = core_.NextDeadline();
  return settling_.empty() ? core : std::min(core, settling_.front().first);
}

uint64_t Runner::parked_bytes() const {
  uint64_t bytes = 0;
  for (const auto& [key, round] : rounds_) bytes += round.parked_bytes();
  return bytes;
}

uint64_t Runner::result_bytes() const {
  uint64_t bytes = 0;
  for (const auto& [key, round] : rounds_) bytes += round.result_bytes();
  return bytes;
}

// ---- frames

const kernels::TensorKey* Runner::KeyOf(const Job& job, LaneIndex lane, TensorIndex tensor) {
  if (lane >= job.lanes().size()) return nullptr;
  const std::vector<TensorSpec>& tensors = job.lanes()[lane].layout.tensors();
  if (tensor >= tensors.size()) return nullptr;
  std::vector<NamedKey>& keys = keys_[{job.id(), lane}];
  keys.resize(tensors.size());
  NamedKey& key = keys[tensor];
  const std::string& name = tensors[tensor].name;
  if (key.name != name) key = {name, kernels::TensorKey(name)};
  return &key.key;
}

// What was kept for jobs that are over.
void Runner::ForgetJobs() {
  const auto over = [this](JobId job) { return core_.jobs().count(job) == 0; };
  for (auto it = keys_.begin(); it != keys_.end();) {
    it = over(it->first.first) ? keys_.erase(it) : std::next(it);
  }
  for (auto it = values_.begin(); it != values_.end();) {
    it = over(std::get<0>(it->first)) ? values_.erase(it) : std::next(it);
  }
  for (auto it = rounds_.begin(); it != rounds_.end();) {
    it = over(std::get<0>(it->first)) ? rounds_.erase(it) : std::next(it);
  }
}

absl::StatusOr<ChunkDigests> Runner::DigestsOf(const SessionShell& session,
                                               const IncomingFrame& frame) {
  const FrameRange range = RangeOf(frame);
  const Job* job = core_.FindJob(session.job);
  if (job == nullptr) {
    return absl::FailedPreconditionError("A data frame came before the session's welcome.");
  }
  std::optional<kernels::TensorKey> of_value;
  const kernels::TensorKey* key = nullptr;
  std::string name;
  if (const auto* value = std::get_if<ValueFrame>(&frame.what)) {
    of_value.emplace(value->key.tensor);
    key = &*of_value;
    name = value->key.tensor;
  } else {
    const auto* contribution = std::get_if<ContributionFrame>(&frame.what);
    const LaneIndex lane =
        contribution != nullptr ? contribution->lane : std::get<ResultFrame>(frame.what).lane;
    const TensorIndex tensor = contribution != nullptr
                                   ? contribution->range.tensor
                                   : std::get<ResultFrame>(frame.what).range.tensor;
    key = KeyOf(*job, lane, tensor);
    if (key == nullptr) {
      return absl::InvalidArgumentError(absl::StrCat(
          "A data frame of job ", session.job, " names tensor ", tensor, " of lane ", lane,
          ", which the job does not have. Register it, and use the index that "
          "the layout gives it."));
    }
    const TensorSpec& spec = job->lanes()[lane].layout.tensors()[tensor];
    name = spec.name;
    if (contribution != nullptr && contribution->wire_dtype != DType::kUnspecified &&
        spec.dtype != DType::kF32) {
      return absl::InvalidArgumentError(
          absl::StrCat("A data frame of job ", session.job, " for tensor ", name, " is sent as ",
                       DTypeName(contribution->wire_dtype), ", but the tensor is ",
                       DescribeSpec(spec), ". Only f32 tensors can be sent narrower."));
    }
  }
  if (frame.contents.size() != range.count) {
    return absl::InvalidArgumentError(
        absl::StrCat("A data frame of job ", session.job, " for tensor ", name, " claims ",
                     range.count, " chunks and has the bytes of ", frame.contents.size(), "."));
  }
  ChunkDigests digests;
  for (uint32_t i = 0; i < range.count; ++i) {
    digests.push_back(kernels::TermOf(*key, range.first + i, frame.contents[i]).low);
  }
  if (!frame.claimed.empty() && frame.claimed != digests) {
    ++counters_.corrupt_frames;
    return absl::DataLossError(
        absl::StrCat("The bytes of a data frame of job ", session.job, " for tensor ", name,
                     " are not those that were sent: a chunk's digest differs. Send them again on "
                     "another stream; if it happens often, check memory and network of the host."));
  }
  return digests;
}

void Runner::EndStream(StreamId stream, const absl::Status& why) {
  const auto found = streams_.find(stream);
  if (found == streams_.end()) return;
  dependencies_.transport->CloseStream(stream, why);
  StreamClosed(stream, now_);
}

StreamId Runner::Place(SessionShell& session, const Frame& frame) {
  if (session.streams.empty()) {
    session.waiting.push_back(frame);
    return 0;
  }
  // The least loaded one; of equals, the one that was opened first.
  const StreamId chosen = *std::min_element(
      session.streams.begin(), session.streams.end(), [this](StreamId a, StreamId b) {
        return streams_.at(a).unacknowledged < streams_.at(b).unacknowledged;
      });
  if (std::holds_alternative<ResultFrame>(frame->what)) {
    counters_.result_bytes += frame->payload.bytes();
    streams_.at(chosen).unacknowledged += frame->payload.bytes();
    session.unacknowledged.push_back({frame, chosen});
  }
  return chosen;
}

void Runner::SendFrame(const std::vector<SessionId>& sessions, OutgoingFrame frame) {
  const auto shared = std::make_shared<const OutgoingFrame>(std::move(frame));
  std::vector<StreamId> streams;
  for (const SessionId session : sessions) {
    const auto found = sessions_.find(session);
    if (found == sessions_.end() || found->second.closed) continue;
    if (const StreamId stream = Place(found->second, shared); stream != 0) {
      streams.push_back(stream);
    }
  }
  if (!streams.empty()) dependencies_.transport->Send(streams, *shared);
}

void Runner::Acknowledge(SessionShell& session, const ResultAck& ack) {
  auto& sent = session.unacknowledged;
  sent.erase(
      std::remove_if(
          sent.begin(), sent.end(),
          [&](const SentResult& result) {
            const auto& frame = std::get<ResultFrame>(result.frame->what);
            if (frame.lane != ack.lane || frame.round != ack.round || frame.ballot != ack.ballot) {
              return false;
            }
            const bool covered =
                std::any_of(ack.ranges.begin(), ack.ranges.end(),
                            [&](const ChunkRange& range) { return Covers(range, frame.range); });
            if (covered) {
              streams_.at(result.stream).unacknowledged -= result.frame->payload.bytes();
            }
            return covered;
          }),
      sent.end());
}

// Results of a round that is over, or of attempts below a ballot, are not sent again.
void Runner::ForgetResults(const RoundKey& key, const Ballot* below) {
  const auto of_no_use = [&](const OutgoingFrame& outgoing) {
    const auto* frame = std::get_if<ResultFrame>(&outgoing.what);
    return frame != nullptr && frame->lane == std::get<1>(key) &&
           frame->round == std::get<2>(key) && (below == nullptr || frame->ballot < *below);
  };
  const auto job = core_.jobs().find(std::get<0>(key));
  for (auto& [id, session] : sessions_) {
    if (job != core_.jobs().end() && session.job != job->second.name()) continue;
    auto& sent = session.unacknowledged;
    sent.erase(std::remove_if(sent.begin(), sent.end(),
                              [&](const SentResult& result) {
                                if (!of_no_use(*result.frame)) return false;
                                const auto stream = streams_.find(result.stream);
                                if (stream != streams_.end()) {
                                  stream->second.unacknowledged -= result.frame->payload.bytes();
                                }
                                return true;
                              }),
               sent.end());
    auto& waiting = session.waiting;
    waiting.erase(std::remove_if(waiting.begin(), waiting.end(),
                                 [&](const Frame& frame) { return of_no_use(*frame); }),
                  waiting.end());
  }
}

OutgoingFrame Runner::PartOfFrame(uint32_t skip, uint32_t count) const {
  OutgoingFrame part;
  const uint64_t chunk_bytes = WireChunkBytesOf(*frame_);
  const uint64_t begin = skip * chunk_bytes;
  const uint64_t end = std::min<uint64_t>(begin + count * chunk_bytes, frame_->bytes);
  part.digests.assign(digests_->begin() + skip, digests_->begin() + skip + count);
  part.payload.Append({frame_->payload, begin, end - begin});
  return part;
}

// ---- actions

void Runner::Do(const basin::aggregator::Send& send) {
  const auto found = sessions_.find(send.session);
  if (found == sessions_.end() || found->second.closed) return;
  dependencies_.transport->Send({send.session}, send.message);
}

void Runner::Do(const SendAll& send) {
  std::vector<SessionId> open;
  for (const SessionId session : send.sessions) {
    const auto found = sessions_.find(session);
    if (found != sessions_.end() && !found->second.closed) open.push_back(session);
  }
  if (!open.empty()) dependencies_.transport->Send(open, send.message);
}

void Runner::Do(const EndSession& end) {
  const auto found = sessions_.find(end.session);
  if (found == sessions_.end()) return;
  if (!found->second.closed) {
    dependencies_.transport->Send({end.session}, Ended{end.error});
    dependencies_.transport->CloseSession(end.session);
  }
  for (const StreamId stream : found->second.streams) {
    streams_.erase(stream);
    dependencies_.transport->CloseStream(stream, absl::OkStatus());
  }
  by_token_.erase(found->second.token);
  sessions_.erase(found);
}

void Runner::Do(const KeepChunks& keep) {
  const auto* frame = frame_ == nullptr ? nullptr : std::get_if<ContributionFrame>(&frame_->what);
  Require(frame != nullptr && Covers(frame->range, keep.range));
  rounds_[{keep.job, keep.lane, keep.round}].Keep(keep.contributor, keep.range, *frame, *frame_);
}

void Runner::Do(const DiscardChunks& discard) {
  Require(rounds_[{discard.job, discard.lane, discard.round}].Discard(discard.contributor,
                                                                      discard.ranges));
}

void Runner::Do(const StartAttempt& start) {
  const RoundKey key{start.job, start.lane, start.round};
  ForgetResults(key, &start.ballot);
  rounds_[key].Start(start);
}

void Runner::Do(const Reduce& reduce) {
  std::unique_ptr<Reduction> reduction =
      rounds_[{reduce.job, reduce.lane, reduce.round}].TakeInputs(reduce);
  Require(reduction != nullptr);
  // The step that asked for it may have ended the lane as well: a loss that completes a chunk of
  // one lane can send the job into recovery for another. Nobody waits for its result then.
  const Job& job = core_.jobs().at(reduce.job);
  const kernels::TensorKey* key = KeyOf(job, reduce.lane, reduce.range.tensor);
  if (key == nullptr) return;
  reduction->tensor = job.lanes()[reduce.lane].layout.tensors()[reduce.range.tensor];
  reduction->key = *key;
  dependencies_.reduce(std::move(reduction));
}

void Runner::Do(const Publish& publish) {
  const auto round = rounds_.find({publish.job, publish.lane, publish.round});
  Require(round != rounds_.end());
  const uint32_t most = static_cast<uint32_t>(core_.config().frame_bytes / kChunkBytes);
  std::vector<OutgoingFrame> frames =
      round->second.ResultFrames(publish.lane, publish.round, publish.range, most);
  Require(!frames.empty());
  for (OutgoingFrame& frame : frames) SendFrame(publish.sessions, std::move(frame));
}

void Runner::Do(const ReleaseResult& release) {
  const auto round = rounds_.find({release.job, release.lane, release.round});
  Require(round != rounds_.end() && round->second.Release(release.ballot, release.range));
}

void Runner::Do(const RelayResult& relay) {
  const auto* frame = frame_ == nullptr ? nullptr : std::get_if<ResultFrame>(&frame_->what);
  Require(frame != nullptr && Covers(frame->range, relay.range));
  OutgoingFrame part = PartOfFrame(relay.range.first - frame->range.first, relay.range.count);
  part.what = ResultFrame{relay.lane, relay.round, relay.ballot, relay.range};
  SendFrame(relay.sessions, std::move(part));
}

void Runner::Do(const EndRound& end) {
  const RoundKey key{end.job, end.lane, end.round};
  ForgetResults(key, nullptr);
  rounds_.erase(key);
}

void Runner::Do(const RelayValue& relay) {
  const auto* frame = frame_ == nullptr ? nullptr : std::get_if<ValueFrame>(&frame_->what);
  Require(frame != nullptr && relay.first >= frame->first &&
          relay.first + relay.count <= frame->first + frame->count);
  OutgoingFrame part = PartOfFrame(relay.first - frame->first, relay.count);
  part.what = ValueFrame{relay.key, relay.first, relay.count};
  if (relay.cache) {
    Value& value = values_[IdOf(relay.job, relay.key)];
    const uint64_t begin = uint64_t{relay.first - frame->first} * kChunkBytes;
    for (uint32_t i = 0; i < relay.count; ++i) {
      const uint64_t offset = begin + uint64_t{i} * kChunkBytes;
      value[relay.first + i] = {
          {frame_->payload, offset, std::min(kChunkBytes, frame_->bytes - offset)},
          part.digests[i]};
    }
  }
  SendFrame(relay.sessions, std::move(part));
}

void Runner::Do(const SendValue& send) {
  const auto value = values_.find(IdOf(send.job, send.key));
  Require(value != values_.end());
  OutgoingFrame frame;
  frame.what = ValueFrame{send.key, send.first, send.count};
  for (uint32_t i = 0; i < send.count; ++i) {
    const auto chunk = value->second.find(send.first + i);
    Require(chunk != value->second.end());
    frame.digests.push_back(chunk->second.digest);
    frame.payload.Append(chunk->second.part);
  }
  SendFrame({send.session}, std::move(frame));
}

void Runner::Do(const DropValue& drop) { values_.erase(IdOf(drop.job, drop.key)); }

void Runner::Do(const SaveState& save) { dependencies_.save(save); }

void Runner::Do(const Note& note) {
  job_ended_ |= note.kind == NoteKind::kJobEnded;
  dependencies_.observer->OnNote(note, now_);
}

void Runner::Do(const Drained&) { dependencies_.drained(); }

}  // namespace basin::aggregator
