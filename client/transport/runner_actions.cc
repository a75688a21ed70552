// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// How the core's actions are carried out.

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "client/transport/runner.h"
#include "proto/wire/session_stream.h"
#include "proto/wire/status_detail.h"
#include "runtime/failpoint.h"

namespace basin::client {
namespace {

// Values wait in a stream's queue as copies. An aggregator that requests more than is taken from
// there requests again.
constexpr uint64_t kMaxQueuedBlobBytes = uint64_t{64} << 20;
constexpr size_t kMaxHeldBack = 4096;

// The tensors of a frame that is to be sent.
struct ContributionPart {
  wire::Encoding encoding;
  wire::ChunkRuns runs;
  ChunkDigests digests;
  PayloadParts payload;             // Neighbours in one segment are one part.
  const Payload* device = nullptr;  // If the tensors are in memory of a device: the payload, ...
  uint64_t payload_end = 0;         // ... and where the last of them ends in it.

  // `owner`: of the contribution, from `at` on.
  void Add(const ChunkRange& range, const Contribution& contribution, const PayloadPtr& owner,
           uint64_t at) {
    const uint64_t chunk_bytes = contribution.wire_chunk_bytes();
    const uint64_t begin = range.first * chunk_bytes;
    const uint64_t end =
        std::min(contribution.wire_bytes, (uint64_t{range.first} + range.count) * chunk_bytes);
    runs.push_back({range, static_cast<uint32_t>(end - begin)});
    const auto first = contribution.digests.begin() + range.first;
    digests.insert(digests.end(), first, first + range.count);
    payload.Append({owner, at + begin, end - begin});
    payload_end = at + end;
  }
};

}  // namespace

// Returns the trainer's error when the event was refused.
std::optional<Error> Runner::Step(const Event& event, absl::Time now) {
  now_ = now;
  refused_.reset();
  actions_.clear();
  core_.Step(event, now, actions_);
  // Update the view before reporting the verdict, so that a callback sees the new rank.
  for (const Action& action : actions_) {
    if (const auto* membership = std::get_if<MembershipNow>(&action)) Do(*membership);
  }
  if (view_changed_) PublishView();
  for (const Action& action : actions_) {
    if (std::holds_alternative<MembershipNow>(action)) continue;
    std::visit([this](const auto& what) { Do(what); }, action);
  }
  std::optional<Error> refused = std::move(refused_);
  PublishView();
  ReportPrepared();
  ReportCallers();
  if (!broken_.empty()) {
    CloseConnections();
    Step(client::SessionDown{std::exchange(broken_, std::string())}, now);
  }
  return refused;
}

// ---- connections

void Runner::Do(const OpenSession& open) { open_session_at_ = now_ + open.delay; }

void Runner::Do(const CloseSession&) { CloseConnections(); }

void Runner::CloseConnections() {
  if (session_ != nullptr) session_->Close();
  session_.reset();
  session_connection_ = 0;
  for (Stream& stream : streams_) {
    if (stream.channel != nullptr) stream.channel->Close();
    stream = Stream();
  }
  stream_refused_ = false;
  held_back_.clear();
}

void Runner::Do(const OpenStream& open) {
  if (open.stream >= streams_.size()) streams_.resize(open.stream + 1);
  Stream& stream = streams_[open.stream];
  stream.open_at = now_ + open.delay;
  stream.token = open.token;
  stream.shard = open.shard;
  stream.number = open.number;
}

void Runner::Do(const CloseStream& close) {
  Stream& stream = streams_[close.stream];
  if (stream.channel != nullptr) stream.channel->Close();
  stream = Stream();
}

void Runner::Do(const Send& send) {
  if (const auto* staged = std::get_if<Staged>(&send.message)) {
    BASIN_FAILPOINT("staged.unsent");
    if (dependencies_.timeline != nullptr) RecordStaged(*staged);
  }
  absl::StatusOr<std::vector<std::string>> pieces = wire::EncodePieces(send.message);
  if (!pieces.ok()) {
    broken_ =
        absl::StrCat("A message to the aggregator cannot be sent: ", pieces.status().message());
    return;
  }
  if (session_ == nullptr) return;
  for (std::string& piece : *pieces) session_->Send(std::move(piece));
}

void Runner::SendFrame(uint32_t stream, OutgoingFrame frame) {
  const std::shared_ptr<StreamChannel>& channel = streams_[stream].channel;
  if (channel == nullptr) return;
  const absl::Status sent = channel->Send(std::move(frame));
  if (sent.ok()) return;
  broken_ = absl::StrCat("A frame to the aggregator cannot be sent: ", sent.message());
}

// ---- outgoing

void Runner::Do(const SendContribution& send) {
  const LaneShell& lane = lanes_[send.lane];
  if (!lane.round.has_value()) return;
  // Tensors of different encodings travel apart; the core counts chunks, whatever their frames.
  std::vector<ContributionPart> frames;
  for (size_t i = 0; i < send.ranges.size(); ++i) {
    const auto found = lane.round->pushed.find(send.tensors[i]);
    if (found == lane.round->pushed.end()) return;
    const Contribution& contribution = found->second.contribution;
    // And so do those that are not in one piece in memory of a device: a frame can refer to one.
    const uint64_t at =
        found->second.begin + send.ranges[i].first * contribution.wire_chunk_bytes();
    const Payload* const device =
        contribution.on_device.has_value() ? found->second.payload.get() : nullptr;
    const auto same = [&](const ContributionPart& part) {
      return part.encoding == contribution.encoding && part.device == device &&
             (device == nullptr || part.payload_end == at);
    };
    auto frame = std::find_if(frames.begin(), frames.end(), same);
    if (frame == frames.end()) {
      frames.emplace_back();
      frame = std::prev(frames.end());
      frame->encoding = contribution.encoding;
      frame->device = device;
    }
    frame->Add(send.ranges[i], contribution, found->second.payload, found->second.begin);
  }
  for (ContributionPart& frame : frames) {
    if (frame.runs.size() == 1) frame.runs.front().bytes = 0;
    counters_.contribution_bytes += frame.payload.bytes();
    SendFrame(send.stream, {ContributionHeader{send.lane_index, send.round, std::move(frame.runs)},
                            frame.encoding, std::move(frame.digests), std::move(frame.payload)});
  }
  BASIN_FAILPOINT("contribution.sent");
}

void Runner::Do(const SendSupply& send) {
  const LaneShell& lane = lanes_[send.lane];
  if (lane.staged == nullptr || lane.staged->round != send.round) return;
  const auto content = lane.staged->content();
  OutgoingFrame frame;
  SupplyHeader supply{send.lane_index, send.round, send.ballot, {}};
  for (const ChunkRange& range : send.ranges) {
    const StagedTensor& tensor = content->Find(range.tensor);
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < range.count; ++i) {
      const StagedChunk* chunk = tensor.Find(range.first + i);
      // A chunk that the aggregator has overwritten meanwhile is not here.
      if (chunk == nullptr || !chunk->intact()) return;
      frame.digests.push_back(chunk->digest);
      frame.payload.Append(chunk->part);
      bytes += chunk->part.size;
    }
    supply.runs.push_back({range, send.ranges.size() == 1 ? 0 : static_cast<uint32_t>(bytes)});
  }
  frame.header = std::move(supply);
  SendFrame(send.stream, std::move(frame));
}

void Runner::Do(const SendBlob& send) {
  const auto found = served_.find({send.key.lane, send.key.tensor});
  if (found == served_.end() || found->second.version != send.key.version) return;
  const ServedBlob& value = found->second;
  if (value.own != nullptr) return ServeNow(send, value);
  const bool open = dependencies_.gate->Read([&] { ServeNow(send, value); });
  if (!open && held_back_.size() < kMaxHeldBack) held_back_.push_back(send);
}

// A copy of the trainer's memory is sent, so that the gate is held only during the copy, and only
// if the content is still the announced one.
void Runner::ServeNow(const SendBlob& send, const ServedBlob& value) {
  // Requested before the same version was announced again with a smaller size.
  if (send.first + uint64_t{send.count} > value.digests.size()) return;
  const std::shared_ptr<StreamChannel>& channel = streams_[send.stream].channel;
  if (channel == nullptr || channel->queued_bytes() > kMaxQueuedBlobBytes) return;
  const uint64_t begin = send.first * kChunkBytes;
  const uint64_t end = std::min(value.bytes, (uint64_t{send.first} + send.count) * kChunkBytes);
  OutgoingFrame frame;
  frame.header = BlobHeader{send.key, send.first, send.count};
  const auto first = value.digests.begin() + send.first;
  frame.digests.assign(first, first + send.count);
  if (value.own != nullptr) {
    frame.payload.Append({value.own, begin, end - begin});
  } else {
    std::string copy(value.data + begin, end - begin);
    kernels::ContentDigest content;
    const kernels::TensorKey key(send.key.tensor);
    for (uint64_t at = 0; at < copy.size(); at += kChunkBytes) {
      content.Update(copy.data() + at, std::min(kChunkBytes, copy.size() - at));
      const uint32_t chunk = send.first + static_cast<uint32_t>(at / kChunkBytes);
      if (basin::DigestOf(key, chunk, content.Finish()) == value.digests[chunk]) continue;
      ++counters_.values_changed;
      return;
    }
    frame.payload.Append({std::make_shared<OwnPayload>(std::move(copy)), 0, end - begin});
  }
  SendFrame(send.stream, std::move(frame));
  BASIN_FAILPOINT("value.sent");
}

// ---- incoming

// The core also reads names from these messages; the runner needs them earlier, to compute digests.
void Runner::Observe(const ToWorker& message) {
  if (const auto* welcome = std::get_if<Welcome>(&message)) {
    lane_names_.clear();
    for (const LaneLayout& layout : welcome->layouts) ObserveLayout(layout);
  } else if (const auto* layout = std::get_if<LaneLayout>(&message)) {
    ObserveLayout(*layout);
  } else if (const auto* gone = std::get_if<LaneGone>(&message)) {
    lane_names_.erase(gone->lane);
  }
}

void Runner::ObserveLayout(const LaneLayout& layout) { lane_names_[layout.lane] = layout.name; }

// The digests of the actual bytes, not those of the sender: the digest of the round then reveals a
// mistake.
Digest Runner::DigestOf(const IncomingFrame& frame, const kernels::TensorKey& key, uint32_t chunk,
                        size_t index) {
  const Digest digest = frame.DigestOf(key, chunk, index);
  if (index < frame.claimed.size() && frame.claimed[index] != digest) ++counters_.corrupt_chunks;
  return digest;
}

void Runner::OnResult(const wire::ResultHeader& header, const IncomingFrame& frame,
                      absl::Time now) {
  counters_.result_bytes += frame.payload_bytes;
  const auto name = lane_names_.find(header.lane);
  if (name == lane_names_.end()) return;
  const client::Lane* lane = core_.FindLane(name->second);
  if (lane == nullptr) return;  // A lane of others.
  const LaneHandle handle = lane->handle;
  if (dependencies_.timeline != nullptr) RecordResult(handle, frame.payload_bytes, now);
  auto& keys = lanes_[handle].keys;
  const std::vector<TensorSpec>& layout = lane->layout.tensors();
  while (keys.size() < layout.size()) keys.emplace_back("", kernels::TensorKey(""));
  // Without digests the core sees a frame that names chunks which do not exist.
  ChunkDigests digests;
  parts_.clear();
  uint64_t offset = 0;
  for (const wire::ChunkRun& run : header.runs) {
    const TensorIndex index = run.range.tensor;
    const uint64_t bytes = header.runs.size() == 1 ? frame.payload_bytes : run.bytes;
    if (index >= layout.size() ||
        bytes != RangeBytes(TensorBytes(layout[index]).value_or(0), run.range) ||
        digests.size() + run.range.count > frame.digests()) {
      digests.clear();
      break;
    }
    auto& key = keys[index];
    if (key.first != layout[index].name) {
      key = {layout[index].name, kernels::TensorKey(layout[index].name)};
    }
    parts_.push_back({run.range, digests.size(), offset, bytes});
    for (uint32_t i = 0; i < run.range.count; ++i) {
      digests.push_back(DigestOf(frame, key.second, run.range.first + i, digests.size()));
    }
    offset += bytes;
  }
  frame_ = &frame;
  digests_ = &digests;
  Step(ResultReceived{header.lane, header.round, header.ballot, RangesOf(header.runs), digests},
       now);
  frame_ = nullptr;
  digests_ = nullptr;
}

void Runner::Give(const GivenResult& result, absl::Time now) {
  const LaneShell* shell = Find(result.lane);
  if (shell == nullptr || !shell->round.has_value() || result.size == 0) return;
  if (!core_.lanes().Has(result.lane)) return;  // The round has its outcome.
  const client::Lane& lane = core_.lanes()[result.lane];
  const std::optional<TensorIndex> index = lane.tensors[result.tensor].index;
  if (!lane.index.has_value() || !index.has_value()) return;
  wire::ResultHeader header{*lane.index, result.round, result.ballot, {}};
  header.runs.push_back({{*index, 0, ChunkCount(result.size)}, 0});
  IncomingFrame frame;
  frame.payload = result.bytes;
  frame.payload_bytes = result.size;
  frame.contents = result.contents;
  OnResult(header, frame, now);
}

void Runner::OnBlob(const wire::BlobHeader& header, const IncomingFrame& frame, absl::Time now) {
  if (fetches_.count(header.key) == 0) return;
  const kernels::TensorKey key(header.key.tensor);
  ChunkDigests digests;
  for (size_t i = 0; i < frame.chunks(); ++i) {
    digests.push_back(DigestOf(frame, key, header.first + static_cast<uint32_t>(i), i));
  }
  frame_ = &frame;
  digests_ = &digests;
  frame_first_ = header.first;
  Step(BlobReceived{header.key, header.first, header.count, digests}, now);
  frame_ = nullptr;
  digests_ = nullptr;
}

void Runner::RecordResult(LaneHandle handle, uint64_t bytes, absl::Time now) {
  LaneShell& lane = lanes_[handle];
  if (!lane.round.has_value() || lane.round->outcome.has_value()) return;
  if (lane.round->result_bytes == 0) dependencies_.timeline->FirstResult(handle, now);
  lane.round->result_bytes += bytes;
}

void Runner::RecordStaged(const Staged& staged) {
  for (const Lane& lane : core_.lanes()) {
    if (lane.index != staged.lane) continue;
    dependencies_.timeline->Staged(lane.handle, now_);
  }
}

// Chunk `skip` of the frame of this Step.
PayloadPart Runner::PartOf(uint32_t skip) const {
  const uint64_t begin = skip * kChunkBytes;
  return frame_->Part(begin, std::min(kChunkBytes, frame_->payload_bytes - begin));
}

void Runner::Do(const KeepResult& keep) {
  LaneShell& lane = lanes_[keep.lane];
  if (lane.sealed || lane.staged == nullptr || lane.staged->round != keep.round) {
    lane.staged = std::make_shared<StagedRound>(keep.round);
    lane.sealed = false;
  }
  const auto part = std::lower_bound(
      parts_.begin(), parts_.end(), keep.range.tensor,
      [](const FramePart& at, TensorIndex tensor) { return at.range.tensor < tensor; });
  for (uint32_t i = 0; i < keep.range.count; ++i) {
    const uint32_t skip = keep.range.first + i - part->range.first;
    const uint64_t begin = skip * kChunkBytes;
    const uint64_t size = std::min(kChunkBytes, part->bytes - begin);
    const uint64_t at = part->offset + begin;
    StagedChunk chunk{frame_->Part(at, size), (*digests_)[part->digest + skip]};
    if (!frame_->shared.empty()) chunk.shared = frame_->shared.Find(at).part;
    lane.staged->Keep(keep.range.tensor, keep.range.first + i, std::move(chunk));
  }
}

void Runner::Do(const KeepBlob& keep) {
  const auto fetch = fetches_.find(keep.key);
  if (fetch == fetches_.end()) return;
  for (uint32_t i = 0; i < keep.count; ++i) {
    const uint32_t skip = keep.first + i - frame_first_;
    fetch->second.bytes.Keep(keep.first + i, {PartOf(skip), (*digests_)[skip]});
  }
}

// ---- reports to the trainer

void Runner::Do(const Deliver& deliver) {
  if (!lanes_[deliver.lane].round.has_value()) return;
  Decide(deliver.lane, deliver.record.round, MakeResult(deliver.lane, deliver.record));
}

// What is held of the round, which from now on nobody changes. REQUIRES: a round is in flight.
RoundOutcome Runner::MakeResult(LaneHandle handle, const VerdictRecord& record) {
  LaneShell& lane = lanes_[handle];
  const Lane& known = core_.lanes()[handle];
  std::vector<RoundResult::Tensor> tensors;
  for (const RegisteredTensor& tensor : known.tensors) {
    tensors.push_back({tensor.spec.name, tensor.spec.dtype, tensor.index});
  }
  auto staged = std::make_shared<StagedRound>();
  if (lane.staged != nullptr && lane.staged->round == record.round) {
    staged = lane.staged;
    lane.sealed = true;
    lane.delivered.emplace_back(lane.begins, staged);
  }
  return std::make_shared<RoundResult>(record, lane.round->rejected, std::move(tensors),
                                       known.layout.tensors(), std::move(staged), handle,
                                       dependencies_.timeline);
}

void Runner::Do(const FailRound& fail) {
  const bool goes_on =
      fail.error.code == ErrorCode::kOutcomeUnknown || fail.error.code == ErrorCode::kPaused;
  if (!goes_on) return Decide(fail.lane, fail.round, wire::ToStatus(fail.error));
  const RoundDone waiter = std::exchange(lanes_[fail.lane].waiter, nullptr);
  if (waiter != nullptr) waiter(wire::ToStatus(fail.error));
}

void Runner::Do(const RoundRejected& rejected) {
  LaneShell& lane = lanes_[rejected.lane];
  if (lane.round.has_value()) lane.round->rejected = rejected.error;
}

void Runner::Do(const RoundHeldUp& held_up) {
  view_.held_up = held_up.text;
  view_changed_ = true;
}

void Runner::Do(const JobPaused& paused) {
  view_.paused = paused.text;
  view_changed_ = true;
}

void Runner::Do(const ForgetLane& forget) {
  LaneShell* lane = Find(forget.lane);
  if (lane == nullptr) return;
  lane->gone = true;
  lane->staged.reset();  // Nobody needs it from here.
  FreeIfGone(forget.lane);
}

void Runner::Do(const Refused& refused) { refused_ = refused.error; }

void Runner::Do(const MembershipNow& now) {
  view_.membership = now.membership;
  view_.role = now.role;
  view_.rank = now.rank;
  if (now.joined) ++view_.joins;
  // A worker that is no longer a member does not serve its state.
  if (now.joined || now.donor.has_value() || now.role != Role::kMember) {
    view_.donor = now.donor;
    view_.donor_since = now.donor_since;
  }
  view_changed_ = true;
}

void Runner::EndBlob(const BlobKey& key, const BlobOutcome& outcome) {
  const auto fetch = fetches_.find(key);
  if (fetch == fetches_.end()) return;
  const BlobDone done = std::move(fetch->second.done);
  fetches_.erase(fetch);
  done(outcome);
}

void Runner::Do(const BlobReady& ready) {
  const auto fetch = fetches_.find(ready.key);
  if (fetch == fetches_.end()) return;
  // The chunk belongs to an earlier answer with a larger size.
  fetch->second.bytes.Truncate(ChunkCount(TensorBytes(ready.spec).value_or(0)));
  EndBlob(ready.key,
          std::make_shared<Blob>(ready.spec, ready.source, std::move(fetch->second.bytes)));
}

void Runner::Do(const BlobFailed& failed) { EndBlob(failed.key, wire::ToStatus(failed.error)); }

void Runner::Do(const SamplesAnswered& answered) {
  const LeaseDone done = std::exchange(lanes_[answered.lane].lease_waiter, nullptr);
  if (done == nullptr) return;
  if (answered.outcome == LeaseOutcome::kRefused) return done(wire::ToStatus(answered.error));
  done(LeasedSamples{answered.outcome, answered.ranges});
}

void Runner::Do(const BatchAnswered& answered) {
  const BatchDone done = std::exchange(lanes_[answered.lane].batch_waiter, nullptr);
  if (done == nullptr) return;
  if (answered.error.code != ErrorCode::kOk) return done(wire::ToStatus(answered.error));
  done(BatchProgress{answered.samples, answered.closed});
}

void Runner::Do(const Fatal& fatal) {
  view_.fatal = fatal.error;
  EndView();
}

void Runner::Do(const Left&) {
  view_.left = true;
  EndView();
}

// A worker that has ended is not a member, although the core reports nothing more about its
// membership.
void Runner::EndView() {
  view_.role = Role::kJoiner;
  view_.rank.reset();
  view_.donor.reset();
  view_.donor_since = {};
  view_changed_ = true;
  PublishView();  // Before the callbacks, which read it.
  ReportIdle();
}

}  // namespace basin::client
