// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "aggregator/shard/wire/codec.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "basin/v1/shard.pb.h"
#include "google/protobuf/arena.h"
#include "proto/wire/bytes.h"
#include "proto/wire/protobuf_names.h"
#include "proto/wire/types.h"
#include "protocol/limits/limits.h"
#include "protocol/limits/names.h"

namespace basin::aggregator {
namespace {

using google::protobuf::Arena;
using wire::Checker;
using wire::Decode;
using wire::DecodeField;
using wire::DecodeLane;
using wire::DecodeRequired;
using wire::Encode;

// ---- parts

// Messages about a round begin with these.
template <typename In, typename Out>
void EncodeRound(const In& in, Out* out) {
  out->set_job(in.job);
  out->set_lane(in.lane);
  out->set_round(in.round);
}
template <typename Out, typename In>
Out DecodeRound(const In& in, Checker& checker) {
  Out out;
  out.job = in.job();
  out.lane = DecodeLane("lane", in.lane(), checker);
  out.round = checker.Required("round", in.round());
  return out;
}
template <typename In, typename Out>
void EncodeAttempt(const In& in, Out* out) {
  EncodeRound(in, out);
  Encode(in.ballot, out->mutable_ballot());
}
template <typename Out, typename In>
Out DecodeAttempt(const In& in, Checker& checker) {
  Out out = DecodeRound<Out>(in, checker);
  out.ballot = DecodeField("ballot", in.ballot(), checker);
  return out;
}

// `Ranges`: a ChunkRanges, or a vector of them.
template <typename Ranges, typename List>
void EncodeRanges(const Ranges& in, List* out) {
  for (const ChunkRange& range : in) Encode(range, out->Add());
}
template <typename Ranges, typename List>
Ranges DecodeRanges(const List& in, Checker& checker) {
  Ranges out;
  out.reserve(static_cast<size_t>(in.size()));
  for (const auto& range : in) {
    const Checker::Scope scope(checker, "ranges", static_cast<ptrdiff_t>(out.size()));
    out.push_back(Decode(range, checker));
  }
  return out;
}

// Those of a frame, and one digest for each of its chunks.
ChunkDigests DecodeDigests(const google::protobuf::RepeatedField<uint64_t>& in,
                           const ChunkRanges& ranges, Checker& checker) {
  uint64_t chunks = 0;
  for (const ChunkRange& range : ranges) chunks += range.count;
  checker.Equal("size(digests)", static_cast<uint64_t>(in.size()), chunks);
  return {in.begin(), in.end()};
}

void EncodeRoute(const Route& in, v1::ShardRoute* out) {
  EncodeRanges(in.ranges, out->mutable_ranges());
  out->mutable_streams()->Add(in.streams.begin(), in.streams.end());
  out->set_frame(in.frame);
}
Route DecodeRoute(const v1::ShardRoute& in, Checker& checker) {
  return {DecodeRanges<ChunkRanges>(in.ranges(), checker),
          {in.streams().begin(), in.streams().end()},
          in.frame()};
}

// ---- events

void EncodeEvent(const StreamOpened& in, v1::ShardEvent* event) {
  auto* const out = event->mutable_stream_opened();
  out->set_stream(in.stream);
  out->set_token(in.token);
}
StreamOpened DecodeEvent(const v1::ShardStreamOpened& in, Checker& checker) {
  StreamOpened out;
  out.stream = checker.Required("stream", in.stream());
  out.token = checker.Required("token", in.token());
  return out;
}

void EncodeEvent(const StreamLost& in, v1::ShardEvent* event) {
  event->mutable_stream_lost()->set_stream(in.stream);
}
StreamLost DecodeEvent(const v1::ShardStreamLost& in, Checker& checker) {
  return {checker.Required("stream", in.stream())};
}

void EncodeEvent(const ShardFrameReceived& in, v1::ShardEvent* event) {
  auto* const out = event->mutable_frame_received();
  out->set_frame(in.frame);
  out->set_stream(in.stream);
  out->set_kind(in.what.kind == FrameKind::kSupply ? v1::SHARD_FRAME_KIND_SUPPLY
                                                   : v1::SHARD_FRAME_KIND_CONTRIBUTION);
  out->set_lane(in.what.lane);
  out->set_round(in.what.round);
  if (in.what.kind == FrameKind::kSupply) Encode(in.what.ballot, out->mutable_ballot());
  EncodeRanges(in.what.ranges, out->mutable_ranges());
  out->set_bytes(in.what.bytes);
  out->mutable_digests()->Add(in.what.digests.begin(), in.what.digests.end());
}
ShardFrameReceived DecodeEvent(const v1::ShardFrameReceived& in, Checker& checker) {
  ShardFrameReceived out;
  out.frame = checker.Required("frame", in.frame());
  out.stream = checker.Required("stream", in.stream());
  out.what.kind = checker.Enum<FrameKind>("kind", in.kind(), v1::ShardFrameKind_MAX, /*shift=*/1);
  out.what.lane = DecodeLane("lane", in.lane(), checker);
  out.what.round = in.round();
  out.what.ballot = DecodeField("ballot", in.ballot(), checker);
  out.what.ranges = DecodeRanges<ChunkRanges>(in.ranges(), checker);
  if (out.what.ranges.empty()) checker.Fail("ranges", "is required");
  out.what.bytes = in.bytes();
  out.what.digests = DecodeDigests(in.digests(), out.what.ranges, checker);
  return out;
}

void EncodeEvent(const ShardFrameUnknown& in, v1::ShardEvent* event) {
  event->mutable_frame_unknown()->set_frame(in.frame);
  event->mutable_frame_unknown()->set_stream(in.stream);
}
ShardFrameUnknown DecodeEvent(const v1::ShardFrameUnknown& in, Checker& checker) {
  return {checker.Required("frame", in.frame()), checker.Required("stream", in.stream())};
}

void EncodeEvent(const ReduceDone& in, v1::ShardEvent* event) {
  auto* const out = event->mutable_reduce_done();
  EncodeAttempt(in, out);
  EncodeRanges(in.ranges, out->mutable_ranges());
  out->mutable_digests()->Add(in.digests.begin(), in.digests.end());
  for (const ChunkNorm& norm : in.facts.squared_norms) {
    out->add_squared_norms(norm.first);
    out->add_squared_norms(norm.second);
  }
  out->set_overflow(in.facts.overflow);
  if (in.facts.nonfinite) Encode(*in.facts.nonfinite, out->mutable_nonfinite());
  if (in.failure) out->set_failure(wire::EncodeText(*in.failure));
  out->set_failed(in.failed);
}
ReduceDone DecodeEvent(const v1::ShardReduceDone& in, Checker& checker) {
  auto out = DecodeAttempt<ReduceDone>(in, checker);
  out.ranges = DecodeRanges<ChunkRanges>(in.ranges(), checker);
  if (out.ranges.empty()) checker.Fail("ranges", "is required");
  if (in.has_failure()) {
    out.failure = wire::DecodeText(in.failure());
    checker.Equal("size(digests)", in.digests_size(), 0);
  } else {
    out.digests = DecodeDigests(in.digests(), out.ranges, checker);
  }
  if (in.squared_norms_size() > 0) {
    checker.Equal("size(squared_norms)", in.squared_norms_size(), 2 * in.digests_size());
  }
  for (int i = 0; checker.ok() && i < in.squared_norms_size(); i += 2) {
    out.facts.squared_norms.push_back({in.squared_norms(i), in.squared_norms(i + 1)});
  }
  out.facts.overflow = in.overflow();
  if (in.has_nonfinite()) {
    out.facts.nonfinite = DecodeField("nonfinite", in.nonfinite(), checker);
  }
  out.failed = wire::DecodeTensor("failed", in.failed(), checker);
  return out;
}

void EncodeEvent(const ShardDraining&, v1::ShardEvent* event) { event->mutable_draining(); }
ShardDraining DecodeEvent(const v1::ShardDraining&, Checker&) { return {}; }
void EncodeEvent(const ShardUse& in, v1::ShardEvent* event) {
  auto* const out = event->mutable_use();
  out->set_contribution_bytes(in.contribution_bytes);
  out->set_result_bytes(in.result_bytes);
  out->set_reductions(in.reductions);
  out->set_parked_bytes(in.parked_bytes);
  out->set_held_result_bytes(in.held_result_bytes);
}
ShardUse DecodeEvent(const v1::ShardUse& in, Checker&) {
  return {in.contribution_bytes(), in.result_bytes(), in.reductions(), in.parked_bytes(),
          in.held_result_bytes()};
}

template <typename In>
ShardEvent DecodeEventIn(const char* field, const In& in, Checker& checker) {
  const Checker::Scope scope(checker, field);
  return DecodeEvent(in, checker);
}

ShardEvent DecodeAnyEvent(const v1::ShardEvent& in, Checker& checker) {
  switch (in.event_case()) {
    case v1::ShardEvent::kStreamOpened:
      return DecodeEventIn("stream_opened", in.stream_opened(), checker);
    case v1::ShardEvent::kStreamLost:
      return DecodeEventIn("stream_lost", in.stream_lost(), checker);
    case v1::ShardEvent::kFrameReceived:
      return DecodeEventIn("frame_received", in.frame_received(), checker);
    case v1::ShardEvent::kFrameUnknown:
      return DecodeEventIn("frame_unknown", in.frame_unknown(), checker);
    case v1::ShardEvent::kReduceDone:
      return DecodeEventIn("reduce_done", in.reduce_done(), checker);
    case v1::ShardEvent::kDraining:
      return DecodeEventIn("draining", in.draining(), checker);
    case v1::ShardEvent::kUse:
      return DecodeEventIn("use", in.use(), checker);
    case v1::ShardEvent::EVENT_NOT_SET:
      break;
  }
  checker.Fail("event", "is required");
  return {};
}

// ---- actions

void EncodeAction(const NameTensors& in, v1::ShardAction* action) {
  auto* const out = action->mutable_name_tensors();
  out->set_job(in.job);
  out->set_lane(in.lane);
  out->set_first(in.first);
  for (const TensorSpec& spec : in.tensors) Encode(spec, out->add_tensors());
}
NameTensors DecodeAction(const v1::ShardNameTensors& in, Checker& checker) {
  NameTensors out;
  out.job = in.job();
  out.lane = DecodeLane("lane", in.lane(), checker);
  out.first = in.first();
  out.tensors = wire::DecodeSpecs("tensors", in.tensors(), checker);
  checker.AtMost("first + size(tensors)", uint64_t{in.first()} + out.tensors.size(), kMaxTensors);
  return out;
}

void EncodeAction(const IdleLane& in, v1::ShardAction* action) {
  action->mutable_idle_lane()->set_job(in.job);
  action->mutable_idle_lane()->set_lane(in.lane);
}
IdleLane DecodeAction(const v1::ShardIdleLane& in, Checker& checker) {
  return {in.job(), DecodeLane("lane", in.lane(), checker)};
}

void EncodeAction(const EndJob& in, v1::ShardAction* action) {
  action->mutable_end_job()->set_job(in.job);
}
EndJob DecodeAction(const v1::ShardEndJob& in, Checker&) { return {in.job()}; }

void EncodeAction(const KeepChunks& in, v1::ShardAction* action) {
  auto* const out = action->mutable_keep_chunks();
  EncodeRound(in, out);
  Encode(in.contributor, out->mutable_contributor());
  EncodeRanges(in.ranges, out->mutable_ranges());
}
KeepChunks DecodeAction(const v1::ShardKeepChunks& in, Checker& checker) {
  auto out = DecodeRound<KeepChunks>(in, checker);
  out.contributor = DecodeField("contributor", in.contributor(), checker);
  out.ranges = DecodeRanges<ChunkRanges>(in.ranges(), checker);
  return out;
}

void EncodeAction(const DiscardChunks& in, v1::ShardAction* action) {
  auto* const out = action->mutable_discard_chunks();
  EncodeRound(in, out);
  Encode(in.contributor, out->mutable_contributor());
  EncodeRanges(in.ranges, out->mutable_ranges());
}
DiscardChunks DecodeAction(const v1::ShardDiscardChunks& in, Checker& checker) {
  auto out = DecodeRound<DiscardChunks>(in, checker);
  out.contributor = DecodeField("contributor", in.contributor(), checker);
  out.ranges = DecodeRanges<std::vector<ChunkRange>>(in.ranges(), checker);
  return out;
}

void EncodeAction(const StartAttempt& in, v1::ShardAction* action) {
  auto* const out = action->mutable_start_attempt();
  EncodeAttempt(in, out);
  Encode(in.spec, out->mutable_spec());
  for (const Contributor& contributor : in.contributors) {
    Encode(contributor, out->add_contributors());
  }
}
StartAttempt DecodeAction(const v1::ShardStartAttempt& in, Checker& checker) {
  auto out = DecodeAttempt<StartAttempt>(in, checker);
  out.spec = DecodeRequired("spec", in.has_spec(), in.spec(), checker);
  out.contributors = wire::DecodeList("contributors", in.contributors(), checker);
  return out;
}

void EncodeAction(const Reduce& in, v1::ShardAction* action) {
  auto* const out = action->mutable_reduce();
  EncodeAttempt(in, out);
  EncodeRanges(in.ranges, out->mutable_ranges());
  out->set_divisor(in.divisor);
  out->mutable_skipped()->Add(in.skipped.begin(), in.skipped.end());
}
Reduce DecodeAction(const v1::ShardReduce& in, Checker& checker) {
  auto out = DecodeAttempt<Reduce>(in, checker);
  out.ranges = DecodeRanges<ChunkRanges>(in.ranges(), checker);
  if (out.ranges.empty()) checker.Fail("ranges", "is required");
  out.divisor = in.divisor();
  out.skipped.assign(in.skipped().begin(), in.skipped().end());
  if (!std::is_sorted(out.skipped.begin(), out.skipped.end())) {
    checker.Fail("skipped", "does not ascend");
  }
  return out;
}

void EncodeAction(const Publish& in, v1::ShardAction* action) {
  auto* const out = action->mutable_publish();
  EncodeAttempt(in, out);
  for (const Route& route : in.routes) EncodeRoute(route, out->add_routes());
}
Publish DecodeAction(const v1::ShardPublish& in, Checker& checker) {
  auto out = DecodeAttempt<Publish>(in, checker);
  out.routes.reserve(static_cast<size_t>(in.routes_size()));
  for (const v1::ShardRoute& route : in.routes()) {
    const Checker::Scope scope(checker, "routes", static_cast<ptrdiff_t>(out.routes.size()));
    out.routes.push_back(DecodeRoute(route, checker));
  }
  return out;
}

void EncodeAction(const ReleaseResult& in, v1::ShardAction* action) {
  EncodeAttempt(in, action->mutable_release_result());
  Encode(in.range, action->mutable_release_result()->mutable_range());
}
ReleaseResult DecodeAction(const v1::ShardReleaseResult& in, Checker& checker) {
  auto out = DecodeAttempt<ReleaseResult>(in, checker);
  out.range = DecodeRequired("range", in.has_range(), in.range(), checker);
  return out;
}

void EncodeAction(const RelayResult& in, v1::ShardAction* action) {
  auto* const out = action->mutable_relay_result();
  EncodeAttempt(in, out);
  EncodeRanges(in.ranges, out->mutable_ranges());
  EncodeRoute(in.route, out->mutable_route());
}
RelayResult DecodeAction(const v1::ShardRelayResult& in, Checker& checker) {
  auto out = DecodeAttempt<RelayResult>(in, checker);
  out.ranges = DecodeRanges<ChunkRanges>(in.ranges(), checker);
  const Checker::Scope scope(checker, "route");
  out.route = DecodeRoute(in.route(), checker);
  return out;
}

void EncodeAction(const EndRound& in, v1::ShardAction* action) {
  EncodeRound(in, action->mutable_end_round());
}
EndRound DecodeAction(const v1::ShardEndRound& in, Checker& checker) {
  return DecodeRound<EndRound>(in, checker);
}

void EncodeAction(const ShardAcceptStream& in, v1::ShardAction* action) {
  auto* const out = action->mutable_accept_stream();
  out->set_stream(in.accept.stream);
  out->set_session(in.accept.session);
  out->set_job(in.accept.job);
  out->set_job_name(in.job_name);
}
ShardAcceptStream DecodeAction(const v1::ShardAcceptStream& in, Checker& checker) {
  ShardAcceptStream out;
  out.accept.stream = checker.Required("stream", in.stream());
  out.accept.session = checker.Required("session", in.session());
  out.accept.job = in.job();
  out.job_name = checker.Job("job_name", in.job_name());
  return out;
}

void EncodeAction(const CloseStream& in, v1::ShardAction* action) {
  auto* const out = action->mutable_close_stream();
  out->set_stream(in.stream);
  out->set_code(static_cast<uint32_t>(in.why.code()));
  out->set_text(wire::EncodeText(std::string(in.why.message())));
}
CloseStream DecodeAction(const v1::ShardCloseStream& in, Checker& checker) {
  CloseStream out;
  out.stream = checker.Required("stream", in.stream());
  const uint32_t code =
      checker.AtMost("code", in.code(), static_cast<uint32_t>(absl::StatusCode::kUnauthenticated));
  out.why = absl::Status(static_cast<absl::StatusCode>(code), wire::DecodeText(in.text()));
  return out;
}

void EncodeAction(const SendFrame& in, v1::ShardAction* action) {
  action->mutable_send_frame()->set_frame(in.frame);
  action->mutable_send_frame()->set_stream(in.stream);
}
SendFrame DecodeAction(const v1::ShardSendFrame& in, Checker& checker) {
  SendFrame out;
  out.frame = checker.Required("frame", in.frame());
  out.stream = checker.Required("stream", in.stream());
  return out;
}

void EncodeAction(const ForgetFrames& in, v1::ShardAction* action) {
  action->mutable_forget_frames()->mutable_frames()->Add(in.frames.begin(), in.frames.end());
}
ForgetFrames DecodeAction(const v1::ShardForgetFrames& in, Checker&) {
  ForgetFrames out;
  out.frames.assign(in.frames().begin(), in.frames().end());
  return out;
}

template <typename In>
ShardAction DecodeActionIn(const char* field, const In& in, Checker& checker) {
  const Checker::Scope scope(checker, field);
  return DecodeAction(in, checker);
}

ShardAction DecodeAnyAction(const v1::ShardAction& in, Checker& checker) {
  switch (in.action_case()) {
    case v1::ShardAction::kNameTensors:
      return DecodeActionIn("name_tensors", in.name_tensors(), checker);
    case v1::ShardAction::kIdleLane:
      return DecodeActionIn("idle_lane", in.idle_lane(), checker);
    case v1::ShardAction::kEndJob:
      return DecodeActionIn("end_job", in.end_job(), checker);
    case v1::ShardAction::kKeepChunks:
      return DecodeActionIn("keep_chunks", in.keep_chunks(), checker);
    case v1::ShardAction::kDiscardChunks:
      return DecodeActionIn("discard_chunks", in.discard_chunks(), checker);
    case v1::ShardAction::kStartAttempt:
      return DecodeActionIn("start_attempt", in.start_attempt(), checker);
    case v1::ShardAction::kReduce:
      return DecodeActionIn("reduce", in.reduce(), checker);
    case v1::ShardAction::kPublish:
      return DecodeActionIn("publish", in.publish(), checker);
    case v1::ShardAction::kReleaseResult:
      return DecodeActionIn("release_result", in.release_result(), checker);
    case v1::ShardAction::kRelayResult:
      return DecodeActionIn("relay_result", in.relay_result(), checker);
    case v1::ShardAction::kEndRound:
      return DecodeActionIn("end_round", in.end_round(), checker);
    case v1::ShardAction::kAcceptStream:
      return DecodeActionIn("accept_stream", in.accept_stream(), checker);
    case v1::ShardAction::kCloseStream:
      return DecodeActionIn("close_stream", in.close_stream(), checker);
    case v1::ShardAction::kSendFrame:
      return DecodeActionIn("send_frame", in.send_frame(), checker);
    case v1::ShardAction::kForgetFrames:
      return DecodeActionIn("forget_frames", in.forget_frames(), checker);
    case v1::ShardAction::ACTION_NOT_SET:
      break;
  }
  checker.Fail("action", "is required");
  return {};
}

// ---- lists that are too long for one message

// So many tensors, chunk ranges or frames of a list are far below a message.
constexpr size_t kPartEntries = 2048;
// What a message has before another one is begun. Small against a connection's window.
constexpr size_t kTargetBytes = kPieceBytes;

// The action as several that do the same one after another; the action itself, if it is short.
std::vector<ShardAction> Parts(const ShardAction& action) {
  std::vector<ShardAction> parts;
  const auto cut = [&parts](auto part, auto& list, const auto& whole, const auto& next) {
    for (size_t begin = 0; begin < whole.size(); begin += kPartEntries) {
      const size_t end = std::min(begin + kPartEntries, whole.size());
      list(part).assign(whole.begin() + static_cast<ptrdiff_t>(begin),
                        whole.begin() + static_cast<ptrdiff_t>(end));
      next(part, begin);
      parts.emplace_back(part);
    }
  };
  if (const auto* names = std::get_if<NameTensors>(&action);
      names != nullptr && names->tensors.size() > kPartEntries) {
    auto list = [](NameTensors & part) -> auto& { return part.tensors; };
    cut(NameTensors{names->job, names->lane, names->first, {}}, list, names->tensors,
        [names](NameTensors& part, size_t begin) {
          part.first = names->first + static_cast<TensorIndex>(begin);
        });
  } else if (const auto* discard = std::get_if<DiscardChunks>(&action);
             discard != nullptr && discard->ranges.size() > kPartEntries) {
    DiscardChunks part = *discard;
    part.ranges.clear();
    auto list = [](DiscardChunks & of) -> auto& { return of.ranges; };
    cut(std::move(part), list, discard->ranges, [](DiscardChunks&, size_t) {});
  } else if (const auto* forget = std::get_if<ForgetFrames>(&action);
             forget != nullptr && forget->frames.size() > kPartEntries) {
    ForgetFrames part = *forget;
    part.frames.clear();
    auto list = [](ForgetFrames & of) -> auto& { return of.frames; };
    cut(std::move(part), list, forget->frames, [](ForgetFrames&, size_t) {});
  } else {
    parts.push_back(action);
  }
  return parts;
}

// Collects entries until a message is full.
template <typename Message>
class Packer {
 public:
  Message& message() { return message_; }
  // `bytes` were added.
  bool IsFull(size_t bytes, size_t entries) {
    bytes_ += bytes;
    return bytes_ >= kTargetBytes || entries >= kMaxShardEntries;
  }
  absl::Status Finish() {
    if (absl::Status status = wire::CheckSize(message_, kMaxMessageBytes); !status.ok()) {
      return status;
    }
    done_.push_back(message_.SerializeAsString());
    message_.Clear();
    bytes_ = 0;
    return absl::OkStatus();
  }
  std::vector<std::string> Take() { return std::move(done_); }

 private:
  Message message_;
  size_t bytes_ = 0;
  std::vector<std::string> done_;
};

absl::Status Pack(const ShardHello& in, Packer<v1::FromShard>& packer) {
  v1::ShardHello* const out = packer.message().mutable_hello();
  out->set_magic(kMagic);
  out->set_protocol_version(in.protocol_version);
  out->set_contract_version(in.contract_version);
  out->set_name(in.name);
  out->set_endpoint(in.endpoint);
  out->set_software(in.software);
  out->set_memory(in.memory);
  return packer.Finish();
}

absl::Status Pack(const std::vector<ShardEvent>& in, Packer<v1::FromShard>& packer) {
  for (const ShardEvent& event : in) {
    v1::ShardEvent* const out = packer.message().mutable_events()->add_events();
    std::visit([out](const auto& what) { EncodeEvent(what, out); }, event);
    const auto entries = static_cast<size_t>(packer.message().events().events_size());
    if (!packer.IsFull(out->ByteSizeLong(), entries)) continue;
    if (absl::Status status = packer.Finish(); !status.ok()) return status;
  }
  return packer.message().has_events() ? packer.Finish() : absl::OkStatus();
}

absl::Status Pack(const ShardWelcome& in, Packer<v1::ToShard>& packer) {
  packer.message().mutable_welcome()->set_shard(in.shard);
  packer.message().mutable_welcome()->set_term(in.term);
  return packer.Finish();
}

absl::Status Pack(const std::vector<ShardStep>& in, Packer<v1::ToShard>& packer) {
  for (const ShardStep& step : in) {
    const auto begin = [&packer, &step] {
      v1::ShardStep* const out = packer.message().mutable_steps()->add_steps();
      out->set_frame(step.frame);
      out->set_continues(step.continues);
      return out;
    };
    v1::ShardStep* out = begin();
    for (const ShardAction& whole : step.actions) {
      for (const ShardAction& action : Parts(whole)) {
        v1::ShardAction* const entry = out->add_actions();
        std::visit([entry](const auto& what) { EncodeAction(what, entry); }, action);
        const size_t bytes = entry->ByteSizeLong();
        if (!packer.IsFull(bytes, 0) && out->actions_size() < static_cast<int>(kMaxStepActions)) {
          continue;
        }
        out->set_continues(true);
        if (absl::Status status = packer.Finish(); !status.ok()) return status;
        out = begin();
      }
    }
    const auto entries = static_cast<size_t>(packer.message().steps().steps_size());
    if (!packer.IsFull(0, entries)) continue;
    if (absl::Status status = packer.Finish(); !status.ok()) return status;
  }
  return packer.message().has_steps() ? packer.Finish() : absl::OkStatus();
}

template <typename Wire, typename In>
absl::StatusOr<std::vector<std::string>> EncodeAll(const In& in) {
  Packer<Wire> packer;
  absl::Status status = std::visit([&packer](const auto& what) { return Pack(what, packer); }, in);
  if (!status.ok()) return status;
  return packer.Take();
}

// ---- whole messages

ShardHello DecodeHello(const v1::ShardHello& in, Checker& checker) {
  const Checker::Scope scope(checker, "hello");
  checker.Equal("magic", in.magic(), kMagic);
  ShardHello out;
  out.protocol_version = checker.Required("protocol_version", in.protocol_version());
  out.contract_version = checker.Required("contract_version", in.contract_version());
  out.name = checker.Worker("name", in.name());
  out.endpoint = checker.Required("endpoint", in.endpoint());
  checker.AtMost("size(endpoint)", in.endpoint().size(), kMaxEndpointBytes);
  out.endpoint = PrintableText(in.endpoint(), kMaxEndpointBytes);
  out.software = PrintableText(in.software(), kMaxSoftwareBytes);
  out.memory = in.memory();
  return out;
}

std::vector<ShardEvent> DecodeEvents(const v1::ShardEvents& in, Checker& checker) {
  std::vector<ShardEvent> out;
  out.reserve(static_cast<size_t>(in.events_size()));
  for (const v1::ShardEvent& event : in.events()) {
    const Checker::Scope scope(checker, "events", static_cast<ptrdiff_t>(out.size()));
    out.push_back(DecodeAnyEvent(event, checker));
  }
  if (out.empty()) checker.Fail("events", "is required");
  return out;
}

std::vector<ShardStep> DecodeSteps(const v1::ShardSteps& in, Checker& checker) {
  std::vector<ShardStep> out;
  out.reserve(static_cast<size_t>(in.steps_size()));
  for (const v1::ShardStep& step : in.steps()) {
    const Checker::Scope scope(checker, "steps", static_cast<ptrdiff_t>(out.size()));
    ShardStep& decoded = out.emplace_back();
    decoded.frame = step.frame();
    decoded.continues = step.continues();
    decoded.actions.reserve(static_cast<size_t>(step.actions_size()));
    for (const v1::ShardAction& action : step.actions()) {
      const Checker::Scope at(checker, "actions", static_cast<ptrdiff_t>(decoded.actions.size()));
      decoded.actions.push_back(DecodeAnyAction(action, checker));
    }
  }
  if (out.empty()) checker.Fail("steps", "is required");
  return out;
}

FromShard DecodeMessage(const v1::FromShard& in, Checker& checker) {
  if (in.has_hello()) return DecodeHello(in.hello(), checker);
  if (in.has_events()) return DecodeEvents(in.events(), checker);
  checker.Fail("message", "is required");
  return {};
}

ToShard DecodeMessage(const v1::ToShard& in, Checker& checker) {
  if (in.has_welcome()) {
    const Checker::Scope scope(checker, "welcome");
    return ShardWelcome{checker.Required("shard", in.welcome().shard()),
                        checker.Required("term", in.welcome().term())};
  }
  if (in.has_steps()) return DecodeSteps(in.steps(), checker);
  checker.Fail("message", "is required");
  return {};
}

template <typename Wire, typename Out>
absl::StatusOr<Out> DecodeBytes(std::string_view bytes) {
  // Some have thousands of parts.
  Arena arena;
  Wire& message = wire::NewIn<Wire>(arena);
  const absl::StatusOr<uint64_t> weight = wire::Weigh(bytes, kMaxMessageBytes, message);
  if (!weight.ok()) return weight.status();
  if (absl::Status status = wire::Parse(bytes, kMaxMessageBytes, &message); !status.ok()) {
    return status;
  }
  Checker checker;
  Out out = DecodeMessage(message, checker);
  if (!checker.ok()) return checker.status();
  return out;
}

}  // namespace

absl::StatusOr<std::vector<std::string>> Encode(const FromShard& in) {
  return EncodeAll<v1::FromShard>(in);
}
absl::StatusOr<std::vector<std::string>> Encode(const ToShard& in) {
  return EncodeAll<v1::ToShard>(in);
}
absl::StatusOr<FromShard> DecodeFromShard(std::string_view bytes) {
  return DecodeBytes<v1::FromShard, FromShard>(bytes);
}
absl::StatusOr<ToShard> DecodeToShard(std::string_view bytes) {
  return DecodeBytes<v1::ToShard, ToShard>(bytes);
}

}  // namespace basin::aggregator
