// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Messages from the aggregator to a worker.

#include <set>

#include "absl/strings/str_cat.h"
#include "basin/v1/session.pb.h"
#include "google/protobuf/arena.h"
#include "proto/wire/bytes.h"
#include "proto/wire/protobuf_names.h"
#include "proto/wire/session.h"
#include "proto/wire/session_types.h"
#include "proto/wire/types.h"

namespace basin::wire {

void Encode(const PlacedShard& in, v1::PlacedShard* out) {
  out->set_shard(in.shard);
  out->set_name(in.name);
  out->set_endpoint(in.endpoint);
}

PlacedShard Decode(const v1::PlacedShard& in, Checker& checker) {
  PlacedShard out{in.shard(), in.name(), in.endpoint()};
  if (in.shard() == kCoordinatorShard) return out;
  checker.Worker("name", in.name());
  checker.Required("endpoint", in.endpoint());
  checker.AtMost("size(endpoint)", in.endpoint().size(), kMaxEndpointBytes);
  return out;
}

void Encode(const Placement& in, v1::Placement* out) {
  out->set_number(in.number);
  out->set_least_bytes(in.least_bytes);
  for (const PlacedShard& shard : in.shards) Encode(shard, out->add_shards());
  for (const ShardId shard : in.lost) out->add_lost(shard);
}

Placement Decode(const v1::Placement& in, Checker& checker) {
  Placement out;
  out.number = checker.Required("number", in.number());
  out.least_bytes = in.least_bytes();
  checker.Count("shards", static_cast<size_t>(in.shards_size()), kMaxShards);
  out.shards = DecodeList("shards", in.shards(), checker);
  if (out.shards.empty()) checker.Fail("shards", "is required");
  std::set<ShardId> left;
  for (const PlacedShard& shard : out.shards) {
    if (!left.insert(shard.shard).second) {
      checker.Fail("shards", absl::StrCat("has shard ", shard.shard, " twice"));
    }
  }
  for (const ShardId shard : in.lost()) {
    if (left.erase(shard) == 0) {
      checker.Fail("lost", absl::StrCat("has shard ", shard,
                                        ", which is not in the list, or was lost before"));
    }
    out.lost.push_back(shard);
  }
  if (left.empty() && !out.shards.empty()) checker.Fail("lost", "has all shards");
  return out;
}

namespace {

void EncodePlacement(const RoundPlacement& in, v1::RoundPlacement* out) {
  out->set_number(in.number);
  out->set_layout(in.layout);
}

}  // namespace

RoundPlacement Decode(const v1::RoundPlacement& in, Checker& checker) {
  return {checker.Required("number", in.number()),
          checker.AtMost("layout", in.layout(), kMaxTensors)};
}

void Encode(const OpenRound& in, v1::OpenRound* out) {
  out->set_lane(in.lane);
  out->set_round(in.round);
  out->set_phase(EncodeEnum(in.phase));
  Encode(in.ballot, out->mutable_ballot());
  for (const ChunkRange& range : in.have) Encode(range, out->add_have());
  out->set_window(in.window);
}

OpenRound Decode(const v1::OpenRound& in, Checker& checker) {
  OpenRound out;
  out.lane = DecodeLane("lane", in.lane(), checker);
  out.round = checker.Required("round", in.round());
  out.phase = DecodeEnum<RoundPhase>("phase", in.phase(), checker);
  out.ballot = DecodeField("ballot", in.ballot(), checker);
  out.have = DecodeList("have", in.have(), checker);
  out.window = in.window();
  return out;
}

void Encode(const LaneLayout& in, v1::LaneLayout* out) {
  out->set_lane(in.lane);
  out->set_name(in.name);
  out->set_kind(EncodeEnum(in.kind));
  out->set_first(in.first);
  for (const TensorSpec& spec : in.tensors) Encode(spec, out->add_tensors());
  out->set_round(in.round);
  out->set_window(in.window);
  if (in.placement.number != 0) EncodePlacement(in.placement, out->mutable_placement());
}

LaneLayout Decode(const v1::LaneLayout& in, Checker& checker) {
  LaneLayout out;
  out.lane = DecodeLane("lane", in.lane(), checker);
  out.name = checker.Name("name", in.name());
  out.kind = DecodeEnum<LaneKind>("kind", in.kind(), checker);
  out.first = in.first();
  out.tensors = DecodeSpecs("tensors", in.tensors(), checker);
  checker.AtMost("first + size(tensors)", uint64_t{in.first()} + out.tensors.size(), kMaxTensors);
  out.round = in.round();
  out.window = in.window();
  if (in.has_placement()) out.placement = DecodeField("placement", in.placement(), checker);
  return out;
}

void Encode(const LastVerdicts& in, v1::LastVerdicts* out) {
  out->set_lane(in.lane);
  for (const VerdictRecord& record : in.verdicts) Encode(record, out->add_verdicts());
}

LastVerdicts Decode(const v1::LastVerdicts& in, Checker& checker) {
  return {DecodeLane("lane", in.lane(), checker), DecodeList("verdicts", in.verdicts(), checker)};
}

void Encode(const Welcome& in, v1::Welcome* out) {
  out->set_token(in.token);
  Encode(in.incarnation, out->mutable_incarnation());
  out->set_run(in.run);
  out->set_term(in.term);
  out->set_role(EncodeEnum(in.role));
  Encode(in.membership, out->mutable_membership());
  Encode(in.settings, out->mutable_settings());
  out->set_frame_bytes(in.frame_bytes);
  out->set_heartbeat_ns(EncodeDuration(in.heartbeat));
  for (const LaneLayout& layout : in.layouts) Encode(layout, out->add_layouts());
  for (const OpenRound& round : in.open) Encode(round, out->add_open());
  for (const LastVerdicts& last : in.verdicts) Encode(last, out->add_verdicts());
  out->set_contract_version(in.contract_version);
  out->set_features(in.features);
  out->set_job_runs(in.job_runs);
  for (const Placement& placement : in.placements) Encode(placement, out->add_placement());
}

namespace {

using google::protobuf::Arena;

// Features that the protocol reserves and this version does not support.
void RefuseFeatures(const v1::Welcome& in, Checker& checker) {
  if (!in.redirect().empty()) checker.Fail("redirect", "is not in use in this session");
}

}  // namespace

Welcome Decode(const v1::Welcome& in, Checker& checker) {
  Welcome out;
  out.token = checker.Required("token", in.token());
  out.incarnation = DecodeRequired("incarnation", in.has_incarnation(), in.incarnation(), checker);
  out.run = checker.Run("run", in.run());
  out.term = checker.Required("term", in.term());
  out.role = DecodeEnum<Role>("role", in.role(), checker);
  out.membership = DecodeField("membership", in.membership(), checker);
  out.settings = DecodeField("settings", in.settings(), checker);
  out.frame_bytes = checker.Required(
      "frame_bytes", checker.AtMost("frame_bytes", in.frame_bytes(), uint64_t{kMaxPayloadBytes}));
  if (in.frame_bytes() % kChunkBytes != 0) {
    checker.Fail("frame_bytes", absl::StrCat("is not a multiple of ", kChunkBytes));
  }
  out.heartbeat = DecodeDuration(checker.Required("heartbeat_ns", in.heartbeat_ns()));
  out.layouts = DecodeList("layouts", in.layouts(), checker);
  out.open = DecodeList("open", in.open(), checker);
  out.verdicts = DecodeList("verdicts", in.verdicts(), checker);
  out.contract_version = checker.Required("contract_version", in.contract_version());
  out.features = in.features();
  out.job_runs = in.job_runs();
  checker.Count("placement", static_cast<size_t>(in.placement_size()), kMaxLanes);
  for (int i = 0; i < in.placement_size(); ++i) {
    if (in.placement(i).number() == 0) continue;
    const Checker::Scope scope(checker, "placement", i);
    out.placements.push_back(Decode(in.placement(i), checker));
  }
  RefuseFeatures(in, checker);
  return out;
}

void Encode(const StartRound& in, v1::StartRound* out) {
  out->set_lane(in.lane);
  out->set_index(in.index);
  out->set_round(in.round);
  out->set_chain(in.chain);
  if (in.committed.epoch.exists()) Encode(in.committed, out->mutable_committed());
  if (in.placement.number != 0) EncodePlacement(in.placement, out->mutable_placement());
}

StartRound Decode(const v1::StartRound& in, Checker& checker) {
  StartRound out{checker.Name("lane", in.lane()), DecodeLane("index", in.index(), checker),
                 checker.Required("round", in.round()), in.chain()};
  if (in.has_committed()) out.committed = DecodeField("committed", in.committed(), checker);
  if (in.has_placement()) out.placement = DecodeField("placement", in.placement(), checker);
  return out;
}

void Encode(const MembershipChanged& in, v1::MembershipChanged* out) {
  Encode(in.membership, out->mutable_membership());
  out->set_role(EncodeEnum(in.role));
  if (in.donor) out->set_donor(*in.donor);
  for (const StartRound& start : in.start) Encode(start, out->add_start());
}

MembershipChanged Decode(const v1::MembershipChanged& in, Checker& checker) {
  MembershipChanged out;
  out.membership = DecodeField("membership", in.membership(), checker);
  out.role = DecodeEnum<Role>("role", in.role(), checker);
  if (in.has_donor()) out.donor = checker.Worker("donor", in.donor());
  out.start = DecodeList("start", in.start(), checker);
  return out;
}

void Encode(const Credit& in, v1::Credit* out) {
  out->set_lane(in.lane);
  out->set_round(in.round);
  out->set_window(in.window);
  for (const ChunkRange& range : in.acked) Encode(range, out->add_acked());
  for (const ChunkRange& range : in.refused) Encode(range, out->add_refused());
  if (in.shard.has_value()) out->set_shard(*in.shard);
}

Credit Decode(const v1::Credit& in, Checker& checker) {
  Credit out{DecodeLane("lane", in.lane(), checker), checker.Required("round", in.round()),
             in.window(), DecodeList("acked", in.acked(), checker),
             DecodeList("refused", in.refused(), checker)};
  if (in.has_shard()) out.shard = in.shard();
  return out;
}

void Encode(const Pull& in, v1::Pull* out) {
  out->set_lane(in.lane);
  out->set_round(in.round);
  for (const ChunkRange& range : in.wanted) Encode(range, out->add_wanted());
  for (const ChunkRange& range : in.discarded) Encode(range, out->add_discarded());
  out->set_window(in.window);
}

Pull Decode(const v1::Pull& in, Checker& checker) {
  return {DecodeLane("lane", in.lane(), checker), checker.Required("round", in.round()),
          DecodeList("wanted", in.wanted(), checker),
          DecodeList("discarded", in.discarded(), checker), in.window()};
}

void Encode(const AttemptRestarted& in, v1::AttemptRestarted* out) {
  out->set_lane(in.lane);
  out->set_round(in.round);
  Encode(in.ballot, out->mutable_ballot());
  out->set_reason(EncodeText(in.reason));
  for (const ChunkRange& range : in.redo) Encode(range, out->add_redo());
  out->set_window(in.window);
}

AttemptRestarted Decode(const v1::AttemptRestarted& in, Checker& checker) {
  AttemptRestarted out;
  out.lane = DecodeLane("lane", in.lane(), checker);
  out.round = checker.Required("round", in.round());
  out.ballot = DecodeField("ballot", in.ballot(), checker);
  out.reason = DecodeText(in.reason());
  out.redo = DecodeList("redo", in.redo(), checker);
  out.window = in.window();
  return out;
}

void Encode(const Prepared& in, v1::Prepared* out) {
  out->set_lane(in.lane);
  out->set_round(in.round);
  Encode(in.ballot, out->mutable_ballot());
  Encode(in.value_ballot, out->mutable_value_ballot());
  Encode(in.value, out->mutable_value());
}

Prepared Decode(const v1::Prepared& in, Checker& checker) {
  Prepared out;
  out.lane = DecodeLane("lane", in.lane(), checker);
  out.round = checker.Required("round", in.round());
  out.ballot = DecodeField("ballot", in.ballot(), checker);
  out.value_ballot = DecodeField("value_ballot", in.value_ballot(), checker);
  out.value = DecodeRequired("value", in.has_value(), in.value(), checker);
  return out;
}

void Encode(const Supply& in, v1::Supply* out) {
  out->set_lane(in.lane);
  out->set_round(in.round);
  Encode(in.ballot, out->mutable_ballot());
  for (const ChunkRange& range : in.ranges) Encode(range, out->add_ranges());
}

Supply Decode(const v1::Supply& in, Checker& checker) {
  return {DecodeLane("lane", in.lane(), checker), checker.Required("round", in.round()),
          DecodeField("ballot", in.ballot(), checker), DecodeList("ranges", in.ranges(), checker)};
}

void Encode(const Verdict& in, v1::Verdict* out) {
  out->set_lane(in.lane);
  Encode(in.record, out->mutable_record());
  if (in.donor) out->set_donor(*in.donor);
  if (in.placement.number != 0) EncodePlacement(in.placement, out->mutable_placement());
}

Verdict Decode(const v1::Verdict& in, Checker& checker) {
  Verdict out;
  out.lane = DecodeLane("lane", in.lane(), checker);
  out.record = DecodeRequired("record", in.has_record(), in.record(), checker);
  if (in.has_donor()) out.donor = checker.Worker("donor", in.donor());
  if (in.has_placement()) out.placement = DecodeField("placement", in.placement(), checker);
  return out;
}

void Encode(const Rejected& in, v1::Rejected* out) {
  Encode(in.error, out->mutable_error());
  if (in.lane) out->set_lane(*in.lane);
  out->set_round(in.round);
  out->set_lane_name(in.lane_name);
  out->set_tensor(in.tensor);
}

Rejected Decode(const v1::Rejected& in, Checker& checker) {
  Rejected out;
  out.error = DecodeRequired("error", in.has_error(), in.error(), checker);
  if (in.has_lane()) out.lane = DecodeLane("lane", in.lane(), checker);
  out.round = in.round();
  if (!in.lane_name().empty()) out.lane_name = checker.Name("lane_name", in.lane_name());
  if (!in.tensor().empty()) out.tensor = checker.Name("tensor", in.tensor());
  return out;
}

void Encode(const Ended& in, v1::Ended* out) {
  if (in.error.code != ErrorCode::kOk) Encode(in.error, out->mutable_error());
}

Ended Decode(const v1::Ended& in, Checker& checker) {
  if (!in.has_error()) return {};
  return {DecodeRequired("error", true, in.error(), checker)};
}

void Encode(const Drain& in, v1::Drain* out) { out->set_service(in.service); }

Drain Decode(const v1::Drain& in, Checker&) { return {in.service()}; }

void Encode(const Ask& in, v1::Ask* out) {
  Encode(in.key, out->mutable_key());
  out->set_first(in.first);
  out->set_count(in.count);
}

Ask Decode(const v1::Ask& in, Checker& checker) {
  CheckChunks(in.first(), in.count(), checker);
  return {DecodeRequired("key", in.has_key(), in.key(), checker), in.first(),
          checker.Required("count", in.count())};
}

void Encode(const BlobKnown& in, v1::ValueKnown* out) {
  Encode(in.key, out->mutable_key());
  Encode(in.spec, out->mutable_spec());
  out->set_digest(in.digest);
  out->set_source(in.source);
}

BlobKnown Decode(const v1::ValueKnown& in, Checker& checker) {
  return {DecodeRequired("key", in.has_key(), in.key(), checker),
          DecodeRequired("spec", in.has_spec(), in.spec(), checker), in.digest(),
          checker.Worker("source", in.source())};
}

void Encode(const GetFailed& in, v1::GetFailed* out) {
  Encode(in.key, out->mutable_key());
  Encode(in.error, out->mutable_error());
}

GetFailed Decode(const v1::GetFailed& in, Checker& checker) {
  return {DecodeRequired("key", in.has_key(), in.key(), checker),
          DecodeRequired("error", in.has_error(), in.error(), checker)};
}

void Encode(const HeldUp& in, v1::HeldUp* out) {
  out->set_lane(in.lane);
  out->set_round(in.round);
  out->set_text(EncodeText(in.text));
}

HeldUp Decode(const v1::HeldUp& in, Checker& checker) {
  return {DecodeLane("lane", in.lane(), checker), in.round(), DecodeText(in.text())};
}

void Encode(const SamplesLeased& in, v1::SamplesLeased* out) {
  out->set_lane(in.lane);
  out->set_request(in.request);
  out->set_epoch(in.epoch);
  out->set_outcome(EncodeEnum(in.outcome));
  EncodePositions(in.ranges, out->mutable_ranges());
  EncodePositions(in.resumed, out->mutable_resumed());
  if (in.outcome == LeaseOutcome::kRefused) Encode(in.error, out->mutable_error());
}

SamplesLeased Decode(const v1::SamplesLeased& in, Checker& checker) {
  SamplesLeased out;
  out.lane = DecodeLane("lane", in.lane(), checker);
  out.request = in.request();
  out.epoch = in.epoch();
  out.outcome = DecodeEnum<LeaseOutcome>("outcome", in.outcome(), checker);
  out.ranges = DecodePositions("ranges", in.ranges(), kMaxEpochSamples, checker);
  out.resumed = DecodePositions("resumed", in.resumed(), kMaxEpochSamples, checker);
  if (out.outcome == LeaseOutcome::kRefused) {
    out.error = DecodeRequired("error", in.has_error(), in.error(), checker);
  }
  return out;
}

void Encode(const BatchReported& in, v1::BatchReported* out) {
  out->set_lane(in.lane);
  out->set_round(in.round);
  out->set_samples(in.samples);
  out->set_closed(in.closed);
  if (in.error.code != ErrorCode::kOk) Encode(in.error, out->mutable_error());
}

BatchReported Decode(const v1::BatchReported& in, Checker& checker) {
  BatchReported out;
  out.lane = DecodeLane("lane", in.lane(), checker);
  out.round = checker.Required("round", in.round());
  out.samples = in.samples();
  out.closed = in.closed();
  if (in.has_error()) out.error = DecodeField("error", in.error(), checker);
  return out;
}

void Encode(const LaneGone& in, v1::LaneGone* out) { out->set_lane(in.lane); }

LaneGone Decode(const v1::LaneGone& in, Checker& checker) {
  return {DecodeLane("lane", in.lane(), checker)};
}

namespace {

// Where each alternative goes in the oneof.
struct PutToWorker {
  v1::ToWorker* out;
  void operator()(const Welcome& in) { Encode(in, out->mutable_welcome()); }
  void operator()(const MembershipChanged& in) { Encode(in, out->mutable_membership_changed()); }
  void operator()(const LaneLayout& in) { Encode(in, out->mutable_lane_layout()); }
  void operator()(const Credit& in) { Encode(in, out->mutable_credit()); }
  void operator()(const Pull& in) { Encode(in, out->mutable_pull()); }
  void operator()(const AttemptRestarted& in) { Encode(in, out->mutable_attempt_restarted()); }
  void operator()(const Prepared& in) { Encode(in, out->mutable_prepared()); }
  void operator()(const Supply& in) { Encode(in, out->mutable_supply()); }
  void operator()(const Verdict& in) { Encode(in, out->mutable_verdict()); }
  void operator()(const Rejected& in) { Encode(in, out->mutable_rejected()); }
  void operator()(const Ended& in) { Encode(in, out->mutable_ended()); }
  void operator()(const Drain& in) { Encode(in, out->mutable_drain()); }
  void operator()(const Ask& in) { Encode(in, out->mutable_ask()); }
  void operator()(const BlobKnown& in) { Encode(in, out->mutable_value_known()); }
  void operator()(const GetFailed& in) { Encode(in, out->mutable_get_failed()); }
  void operator()(const HeldUp& in) { Encode(in, out->mutable_held_up()); }
  void operator()(const SamplesLeased& in) { Encode(in, out->mutable_samples_leased()); }
  void operator()(const BatchReported& in) { Encode(in, out->mutable_batch_reported()); }
  void operator()(const LetGo& in) { Encode(in, out->mutable_let_go()); }
  void operator()(const LaneGone& in) { Encode(in, out->mutable_lane_gone()); }
  void operator()(const Placement& in) { Encode(in, out->mutable_placement()); }
};

ToWorker Take(const v1::ToWorker& in, Checker& checker) {
  switch (in.message_case()) {
    case v1::ToWorker::kWelcome:
      return DecodeField("welcome", in.welcome(), checker);
    case v1::ToWorker::kMembershipChanged:
      return DecodeField("membership_changed", in.membership_changed(), checker);
    case v1::ToWorker::kLaneLayout:
      return DecodeField("lane_layout", in.lane_layout(), checker);
    case v1::ToWorker::kCredit:
      return DecodeField("credit", in.credit(), checker);
    case v1::ToWorker::kPull:
      return DecodeField("pull", in.pull(), checker);
    case v1::ToWorker::kAttemptRestarted:
      return DecodeField("attempt_restarted", in.attempt_restarted(), checker);
    case v1::ToWorker::kPrepared:
      return DecodeField("prepared", in.prepared(), checker);
    case v1::ToWorker::kSupply:
      return DecodeField("supply", in.supply(), checker);
    case v1::ToWorker::kVerdict:
      return DecodeField("verdict", in.verdict(), checker);
    case v1::ToWorker::kRejected:
      return DecodeField("rejected", in.rejected(), checker);
    case v1::ToWorker::kEnded:
      return DecodeField("ended", in.ended(), checker);
    case v1::ToWorker::kDrain:
      return DecodeField("drain", in.drain(), checker);
    case v1::ToWorker::kAsk:
      return DecodeField("ask", in.ask(), checker);
    case v1::ToWorker::kValueKnown:
      return DecodeField("value_known", in.value_known(), checker);
    case v1::ToWorker::kGetFailed:
      return DecodeField("get_failed", in.get_failed(), checker);
    case v1::ToWorker::kHeldUp:
      return DecodeField("held_up", in.held_up(), checker);
    case v1::ToWorker::kSamplesLeased:
      return DecodeField("samples_leased", in.samples_leased(), checker);
    case v1::ToWorker::kBatchReported:
      return DecodeField("batch_reported", in.batch_reported(), checker);
    case v1::ToWorker::kLetGo:
      return DecodeField("let_go", in.let_go(), checker);
    case v1::ToWorker::kLaneGone:
      return DecodeField("lane_gone", in.lane_gone(), checker);
    case v1::ToWorker::kPlacement:
      return DecodeField("placement", in.placement(), checker);
    case v1::ToWorker::kBatch:
      checker.Fail("batch", "is not allowed here; a single message is expected");
      return {};
    case v1::ToWorker::kPiece:
      checker.Fail("piece", "is not allowed here; a whole message is expected");
      return {};
    case v1::ToWorker::MESSAGE_NOT_SET:
      break;
  }
  checker.Fail("message", "is empty, or of a kind that is unknown to this version");
  return {};
}

}  // namespace

absl::Status Encode(const ToWorker& in, v1::ToWorker* out) {
  std::visit(PutToWorker{out}, in);
  return CheckSize(*out, kMaxAssembledBytes);
}

absl::StatusOr<ToWorker> Decode(const v1::ToWorker& in) {
  Checker checker;
  ToWorker out = Take(in, checker);
  if (!checker.ok()) return checker.status();
  return out;
}

absl::StatusOr<std::string> Encode(const ToWorker& in) {
  Arena arena;
  v1::ToWorker& message = NewIn<v1::ToWorker>(arena);
  if (absl::Status status = Encode(in, &message); !status.ok()) return status;
  return message.SerializeAsString();
}

absl::StatusOr<ToWorker> DecodeToWorker(std::string_view bytes) {
  Arena arena;
  v1::ToWorker& message = NewIn<v1::ToWorker>(arena);
  const absl::StatusOr<uint64_t> expanded = Weigh(bytes, kMaxAssembledBytes, message);
  if (!expanded.ok()) return expanded.status();
  if (absl::Status status = Parse(bytes, kMaxAssembledBytes, &message); !status.ok()) return status;
  return Decode(message);
}

}  // namespace basin::wire
