// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Messages from a worker to the aggregator.

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "basin/v1/session.pb.h"
#include "google/protobuf/arena.h"
#include "proto/wire/bytes.h"
#include "proto/wire/protobuf_names.h"
#include "proto/wire/session.h"
#include "proto/wire/session_types.h"
#include "proto/wire/types.h"

namespace basin::wire {

void Encode(const StagedValue& in, v1::StagedValue* out) {
  out->set_round(in.round);
  Encode(in.ballot, out->mutable_ballot());
  Encode(in.value_ballot, out->mutable_value_ballot());
  Encode(in.value, out->mutable_value());
}

StagedValue Decode(const v1::StagedValue& in, Checker& checker) {
  StagedValue out;
  out.round = checker.Required("round", in.round());
  out.ballot = DecodeField("ballot", in.ballot(), checker);
  out.value_ballot = DecodeField("value_ballot", in.value_ballot(), checker);
  out.value = DecodeRequired("value", in.has_value(), in.value(), checker);
  return out;
}

void Encode(const LaneHistory& in, v1::LaneHistory* out) {
  out->set_name(in.name);
  out->set_kind(EncodeEnum(in.kind));
  out->set_lane(in.lane);
  for (const TensorSpec& spec : in.layout) Encode(spec, out->add_layout());
  for (const VerdictRecord& record : in.verdicts) Encode(record, out->add_verdicts());
  out->set_last_verdict(in.last_verdict);
  out->set_chain(in.chain);
  if (in.staged) Encode(*in.staged, out->mutable_staged());
  out->set_begun(in.begun);
  Encode(in.held_ballot, out->mutable_held_ballot());
  for (const ChunkRange& range : in.held) Encode(range, out->add_held());
  if (in.committed.epoch.exists()) Encode(in.committed, out->mutable_committed());
  if (in.leased.epoch.exists()) Encode(in.leased, out->mutable_leased());
  EncodePositions(in.resumed, out->mutable_resumed());
  out->set_let_go(in.let_go);
}

LaneHistory Decode(const v1::LaneHistory& in, Checker& checker) {
  LaneHistory out;
  out.name = checker.Name("name", in.name());
  out.kind = DecodeEnum<LaneKind>("kind", in.kind(), checker);
  out.lane = DecodeLane("lane", in.lane(), checker);
  out.layout = DecodeSpecs("layout", in.layout(), checker);
  out.verdicts = DecodeList("verdicts", in.verdicts(), checker);
  out.last_verdict = in.last_verdict();
  out.chain = in.chain();
  if (in.has_staged()) out.staged = DecodeField("staged", in.staged(), checker);
  out.begun = in.begun();
  out.held_ballot = DecodeField("held_ballot", in.held_ballot(), checker);
  out.held = DecodeList("held", in.held(), checker);
  if (in.has_committed()) out.committed = DecodeField("committed", in.committed(), checker);
  if (in.has_leased()) out.leased = DecodeField("leased", in.leased(), checker);
  out.resumed = DecodePositions("resumed", in.resumed(), out.leased.epoch.samples, checker);
  out.let_go = in.let_go();
  return out;
}

void Encode(const Hello& in, v1::Hello* out) {
  out->set_magic(kMagic);
  out->set_protocol_version(in.protocol_version);
  out->set_contract_version(in.contract_version);
  out->set_features(in.features);
  out->set_job(in.job);
  out->set_run(in.run);
  out->set_worker(in.worker);
  out->set_nonce(in.nonce);
  out->set_fresh(in.fresh);
  out->set_from_start(in.from_start);
  out->set_lacks_state(in.lacks_state);
  Encode(in.settings, out->mutable_settings());
  Encode(in.incarnation, out->mutable_incarnation());
  Encode(in.membership, out->mutable_membership());
  for (const LaneHistory& lane : in.lanes) Encode(lane, out->add_lanes());
  out->set_ranks(EncodeRanks(in.ranks));
  out->set_group(in.group.name);
  out->set_group_size(in.group.size == 1 ? 0 : in.group.size);
  out->set_software(in.software);
}

// Another protocol version is let through: the core refuses it, and names both.
Hello Decode(const v1::Hello& in, Checker& checker) {
  Hello out;
  checker.Equal("magic", in.magic(), kMagic);
  out.protocol_version = checker.Required("protocol_version", in.protocol_version());
  out.contract_version = checker.Required("contract_version", in.contract_version());
  out.features = in.features();
  out.job = checker.Job("job", in.job());
  out.run = checker.Run("run", in.run());
  out.worker = checker.Worker("worker", in.worker());
  out.nonce = checker.Required("nonce", in.nonce());
  out.fresh = in.fresh();
  out.from_start = in.from_start();
  out.lacks_state = in.lacks_state();
  out.settings = DecodeField("settings", in.settings(), checker);
  out.incarnation = DecodeField("incarnation", in.incarnation(), checker);
  out.membership = DecodeField("membership", in.membership(), checker);
  out.lanes = DecodeList("lanes", in.lanes(), checker);
  out.ranks = DecodeRanks(in.ranks());
  if (!in.group().empty()) out.group.name = checker.Worker("group", in.group());
  out.group.size = checker.AtMost("group_size", std::max(1U, in.group_size()), kMaxGroup);
  if (checker.Count("software", in.software().size(), kMaxSoftwareBytes)) {
    out.software = in.software();
  }
  return out;
}

void Encode(const Ready& in, v1::Ready* out) {
  out->set_step_label(in.step_label);
  out->set_state_hash(in.state_hash);
}

Ready Decode(const v1::Ready& in, Checker&) { return {in.step_label(), in.state_hash()}; }

void Encode(const RoundWait& in, v1::RoundWait* out) {
  out->set_lane(in.lane);
  out->set_round(in.round);
}

RoundWait Decode(const v1::RoundWait& in, Checker& checker) {
  return {DecodeLane("lane", in.lane(), checker), checker.Required("round", in.round())};
}

void Encode(const Heartbeat& in, v1::Heartbeat* out) {
  out->set_progress(in.progress);
  for (const RoundWait& wait : in.waits) Encode(wait, out->add_waits());
}

Heartbeat Decode(const v1::Heartbeat& in, Checker& checker) {
  return {in.progress(), DecodeList("waits", in.waits(), checker)};
}

void Encode(const Register& in, v1::Register* out) {
  out->set_lane(in.lane);
  out->set_kind(EncodeEnum(in.kind));
  for (const TensorSpec& spec : in.tensors) Encode(spec, out->add_tensors());
}

Register Decode(const v1::Register& in, Checker& checker) {
  return {checker.Name("lane", in.lane()), DecodeEnum<LaneKind>("kind", in.kind(), checker),
          DecodeSpecs("tensors", in.tensors(), checker)};
}

void Encode(const LayoutSeen& in, v1::LayoutSeen* out) {
  out->set_lane(in.lane);
  out->set_version(in.version);
}

LayoutSeen Decode(const v1::LayoutSeen& in, Checker& checker) {
  return {DecodeLane("lane", in.lane(), checker),
          checker.AtMost("version", in.version(), kMaxTensors)};
}

namespace {

// As many whole lines as a begin may have. The same on both ends.
template <typename Lines>
std::vector<std::string> CutNumbers(const Lines& lines) {
  std::vector<std::string> cut;
  size_t bytes = 0;
  for (const std::string& line : lines) {
    std::string text = EncodeText(line);
    bytes += text.size() + 1;
    if (bytes > kMaxOptimizerBytes || cut.size() == kMaxOptimizerLines) break;
    cut.push_back(std::move(text));
  }
  return cut;
}

}  // namespace

void Encode(const Begin& in, v1::Begin* out) {
  out->set_lane(in.lane);
  out->set_round(in.round);
  Encode(in.spec, out->mutable_spec());
  Encode(in.counts, out->mutable_counts());
  out->set_step_label(in.step_label);
  for (const SampleRange& range : in.samples) Encode(range, out->add_samples());
  out->set_ranks(EncodeRanks(in.ranks));
  out->set_carries(in.represents);
  EncodePlan(in, out);
  out->set_compares_step(in.compares_step);
  if (in.sample_epoch) out->set_sample_epoch(*in.sample_epoch);
  out->set_call(EncodeText(in.call));
  out->set_optimizer(in.optimizer);
  for (std::string& line : CutNumbers(in.optimizer_numbers)) {
    out->add_optimizer_numbers(std::move(line));
  }
  out->set_deferred(in.deferred);
}

Begin Decode(const v1::Begin& in, Checker& checker) {
  Begin out;
  out.lane = DecodeLane("lane", in.lane(), checker);
  out.round = checker.Required("round", in.round());
  out.spec = DecodeRequired("spec", in.has_spec(), in.spec(), checker);
  out.counts = DecodeField("counts", in.counts(), checker);
  out.step_label = in.step_label();
  out.samples = DecodeList("samples", in.samples(), checker);
  out.ranks = DecodeRanks(in.ranks());
  out.represents = in.carries();
  DecodePlan(in, out, checker);
  out.compares_step = in.compares_step();
  if (in.has_sample_epoch()) out.sample_epoch = in.sample_epoch();
  out.call = DecodeText(in.call());
  out.optimizer = in.optimizer();
  out.optimizer_numbers = CutNumbers(in.optimizer_numbers());
  out.deferred = in.deferred();
  return out;
}

void Encode(const Skip& in, v1::Skip* out) {
  out->set_lane(in.lane);
  out->set_round(in.round);
  out->mutable_tensors()->Add(in.tensors.begin(), in.tensors.end());
}

Skip Decode(const v1::Skip& in, Checker& checker) {
  Skip out;
  out.lane = DecodeLane("lane", in.lane(), checker);
  out.round = checker.Required("round", in.round());
  Bitmap named(kMaxTensors);
  for (const uint32_t tensor : in.tensors()) {
    out.tensors.push_back(DecodeTensor("tensors", tensor, checker));
    if (checker.ok() && !named.Set(out.tensors.back())) {
      checker.Fail("tensors", absl::StrCat("names tensor ", tensor, " twice"));
    }
  }
  return out;
}

void Encode(const Commit& in, v1::Commit* out) {
  out->set_lane(in.lane);
  out->set_round(in.round);
  out->set_layout_version(in.layout_version);
  if (in.present.size() != 0) Encode(in.present, out->mutable_present());
  out->set_chunks(in.chunks);
  out->set_bytes(in.bytes);
  out->set_digest(in.digest);
  if (in.squared_norm) out->set_squared_norm(*in.squared_norm);
}

Commit Decode(const v1::Commit& in, Checker& checker) {
  Commit out;
  out.lane = DecodeLane("lane", in.lane(), checker);
  out.round = checker.Required("round", in.round());
  out.layout_version = checker.AtMost("layout_version", in.layout_version(), kMaxTensors);
  out.present = DecodeField("present", in.present(), checker);
  out.chunks = in.chunks();
  out.bytes = in.bytes();
  out.digest = in.digest();
  if (in.has_squared_norm()) {
    out.squared_norm = checker.NotNegative("squared_norm", in.squared_norm());
  }
  return out;
}

void Encode(const Withdraw& in, v1::Withdraw* out) {
  out->set_lane(in.lane);
  out->set_round(in.round);
  out->set_reason(EncodeText(in.reason));
  out->set_without_results(in.without_results);
}

Withdraw Decode(const v1::Withdraw& in, Checker& checker) {
  return {DecodeLane("lane", in.lane(), checker), checker.Required("round", in.round()),
          DecodeText(in.reason()), in.without_results()};
}

void Encode(const Staged& in, v1::Staged* out) {
  out->set_lane(in.lane);
  out->set_round(in.round);
  Encode(in.ballot, out->mutable_ballot());
}

Staged Decode(const v1::Staged& in, Checker& checker) {
  return {DecodeLane("lane", in.lane(), checker), checker.Required("round", in.round()),
          DecodeField("ballot", in.ballot(), checker)};
}

namespace {

using google::protobuf::Arena;

// ResultAck and Need have the same fields.
template <typename In, typename Out>
void EncodeRanges(const In& in, Out* out) {
  out->set_lane(in.lane);
  out->set_round(in.round);
  Encode(in.ballot, out->mutable_ballot());
  for (const ChunkRange& range : in.ranges) Encode(range, out->add_ranges());
}

template <typename Out, typename In>
Out DecodeRanges(const In& in, Checker& checker) {
  return {DecodeLane("lane", in.lane(), checker), checker.Required("round", in.round()),
          DecodeField("ballot", in.ballot(), checker), DecodeList("ranges", in.ranges(), checker)};
}

}  // namespace

void Encode(const ResultAck& in, v1::ResultAck* out) { EncodeRanges(in, out); }

ResultAck Decode(const v1::ResultAck& in, Checker& checker) {
  return DecodeRanges<ResultAck>(in, checker);
}

void Encode(const Need& in, v1::Need* out) { EncodeRanges(in, out); }

Need Decode(const v1::Need& in, Checker& checker) { return DecodeRanges<Need>(in, checker); }

void Encode(const Busy& in, v1::Busy* out) {
  out->set_reason(EncodeText(in.reason));
  if (in.expected != absl::InfiniteDuration()) out->set_expected_ns(EncodeDuration(in.expected));
}

Busy Decode(const v1::Busy& in, Checker&) {
  return {DecodeText(in.reason()),
          in.has_expected_ns() ? DecodeDuration(in.expected_ns()) : absl::InfiniteDuration()};
}

void Encode(const Abandon&, v1::Abandon*) {}
Abandon Decode(const v1::Abandon&, Checker&) { return {}; }
void Encode(const Finished&, v1::Finished*) {}
Finished Decode(const v1::Finished&, Checker&) { return {}; }
void Encode(const Leave& in, v1::Leave* out) { out->set_forget(in.forget); }
Leave Decode(const v1::Leave& in, Checker&) { return {in.forget()}; }

void Encode(const Announce& in, v1::Announce* out) {
  Encode(in.key, out->mutable_key());
  Encode(in.spec, out->mutable_spec());
  out->set_digest(in.digest);
}

Announce Decode(const v1::Announce& in, Checker& checker) {
  return {DecodeRequired("key", in.has_key(), in.key(), checker),
          DecodeRequired("spec", in.has_spec(), in.spec(), checker), in.digest()};
}

void Encode(const Get& in, v1::Get* out) {
  Encode(in.key, out->mutable_key());
  if (in.expected) Encode(*in.expected, out->mutable_expected());
  if (in.source) out->set_source(*in.source);
  out->set_first(in.first);
  out->set_count(in.count);
  if (in.timeout != absl::InfiniteDuration()) out->set_timeout_ns(EncodeDuration(in.timeout));
}

Get Decode(const v1::Get& in, Checker& checker) {
  Get out;
  out.key = DecodeRequired("key", in.has_key(), in.key(), checker);
  if (in.has_expected()) out.expected = DecodeField("expected", in.expected(), checker);
  if (in.has_source()) out.source = checker.Worker("source", in.source());
  CheckChunks(in.first(), in.count(), checker);
  out.first = in.first();
  out.count = in.count();
  out.timeout = in.has_timeout_ns() ? DecodeDuration(in.timeout_ns()) : absl::InfiniteDuration();
  return out;
}

void Encode(const LeaseSamples& in, v1::LeaseSamples* out) {
  out->set_lane(in.lane);
  out->set_request(in.request);
  Encode(in.epoch, out->mutable_epoch());
  out->set_count(in.count);
  EncodePositions(in.resumed, out->mutable_resumed());
  out->set_after(in.after);
}

LeaseSamples Decode(const v1::LeaseSamples& in, Checker& checker) {
  LeaseSamples out;
  out.lane = DecodeLane("lane", in.lane(), checker);
  out.request = in.request();
  out.epoch = DecodeRequired("epoch", in.has_epoch(), in.epoch(), checker);
  out.count = checker.Required("count", in.count());
  out.resumed = DecodePositions("resumed", in.resumed(), out.epoch.samples, checker);
  out.after = checker.AtMost("after", in.after(), kMaxEpochSamples);
  return out;
}

void Encode(const ReturnSamples& in, v1::ReturnSamples* out) {
  out->set_lane(in.lane);
  out->set_epoch(in.epoch);
  EncodePositions(in.ranges, out->mutable_ranges());
}

ReturnSamples Decode(const v1::ReturnSamples& in, Checker& checker) {
  return {DecodeLane("lane", in.lane(), checker), in.epoch(),
          DecodePositions("ranges", in.ranges(), kMaxEpochSamples, checker)};
}

void Encode(const ReportBatch& in, v1::ReportBatch* out) {
  out->set_lane(in.lane);
  out->set_round(in.round);
  out->set_samples(in.samples);
  out->set_target(in.target);
}

ReportBatch Decode(const v1::ReportBatch& in, Checker& checker) {
  return {DecodeLane("lane", in.lane(), checker), checker.Required("round", in.round()),
          checker.AtMost("samples", in.samples(), kMaxEpochSamples),
          checker.AtMost("target", checker.Required("target", in.target()), kMaxEpochSamples)};
}

void Encode(const LetGo& in, v1::LetGo* out) {
  out->set_lane(in.lane);
  out->set_round(in.round);
}

LetGo Decode(const v1::LetGo& in, Checker& checker) {
  return {DecodeLane("lane", in.lane(), checker), in.round()};
}

void Encode(const ShardUnreachable& in, v1::ShardUnreachable* out) {
  out->set_shard(in.shard);
  out->set_why(EncodeText(in.why));
}

ShardUnreachable Decode(const v1::ShardUnreachable& in, Checker& checker) {
  return {checker.Required("shard", in.shard()), DecodeText(in.why())};
}

namespace {

// Where each alternative goes in the oneof.
struct PutToAggregator {
  v1::ToAggregator* out;
  void operator()(const Hello& in) { Encode(in, out->mutable_hello()); }
  void operator()(const Ready& in) { Encode(in, out->mutable_ready()); }
  void operator()(const Heartbeat& in) { Encode(in, out->mutable_heartbeat()); }
  void operator()(const Register& in) { Encode(in, out->mutable_register_()); }
  void operator()(const LayoutSeen& in) { Encode(in, out->mutable_layout_seen()); }
  void operator()(const Begin& in) { Encode(in, out->mutable_begin()); }
  void operator()(const Skip& in) { Encode(in, out->mutable_skip()); }
  void operator()(const Commit& in) { Encode(in, out->mutable_commit()); }
  void operator()(const Withdraw& in) { Encode(in, out->mutable_withdraw()); }
  void operator()(const Staged& in) { Encode(in, out->mutable_staged()); }
  void operator()(const ResultAck& in) { Encode(in, out->mutable_result_ack()); }
  void operator()(const Need& in) { Encode(in, out->mutable_need()); }
  void operator()(const Busy& in) { Encode(in, out->mutable_busy()); }
  void operator()(const Abandon& in) { Encode(in, out->mutable_abandon()); }
  void operator()(const Finished& in) { Encode(in, out->mutable_finished()); }
  void operator()(const Leave& in) { Encode(in, out->mutable_leave()); }
  void operator()(const Announce& in) { Encode(in, out->mutable_announce()); }
  void operator()(const Get& in) { Encode(in, out->mutable_get()); }
  void operator()(const LeaseSamples& in) { Encode(in, out->mutable_lease_samples()); }
  void operator()(const ReturnSamples& in) { Encode(in, out->mutable_return_samples()); }
  void operator()(const ReportBatch& in) { Encode(in, out->mutable_report_batch()); }
  void operator()(const LetGo& in) { Encode(in, out->mutable_let_go()); }
  void operator()(const ShardUnreachable& in) { Encode(in, out->mutable_shard_unreachable()); }
};

ToAggregator Take(const v1::ToAggregator& in, Checker& checker) {
  switch (in.message_case()) {
    case v1::ToAggregator::kHello:
      return DecodeField("hello", in.hello(), checker);
    case v1::ToAggregator::kReady:
      return DecodeField("ready", in.ready(), checker);
    case v1::ToAggregator::kHeartbeat:
      return DecodeField("heartbeat", in.heartbeat(), checker);
    case v1::ToAggregator::kRegister:
      return DecodeField("register", in.register_(), checker);
    case v1::ToAggregator::kLayoutSeen:
      return DecodeField("layout_seen", in.layout_seen(), checker);
    case v1::ToAggregator::kBegin:
      return DecodeField("begin", in.begin(), checker);
    case v1::ToAggregator::kSkip:
      return DecodeField("skip", in.skip(), checker);
    case v1::ToAggregator::kCommit:
      return DecodeField("commit", in.commit(), checker);
    case v1::ToAggregator::kWithdraw:
      return DecodeField("withdraw", in.withdraw(), checker);
    case v1::ToAggregator::kStaged:
      return DecodeField("staged", in.staged(), checker);
    case v1::ToAggregator::kResultAck:
      return DecodeField("result_ack", in.result_ack(), checker);
    case v1::ToAggregator::kNeed:
      return DecodeField("need", in.need(), checker);
    case v1::ToAggregator::kBusy:
      return DecodeField("busy", in.busy(), checker);
    case v1::ToAggregator::kAbandon:
      return DecodeField("abandon", in.abandon(), checker);
    case v1::ToAggregator::kFinished:
      return DecodeField("finished", in.finished(), checker);
    case v1::ToAggregator::kLeave:
      return DecodeField("leave", in.leave(), checker);
    case v1::ToAggregator::kAnnounce:
      return DecodeField("announce", in.announce(), checker);
    case v1::ToAggregator::kGet:
      return DecodeField("get", in.get(), checker);
    case v1::ToAggregator::kLeaseSamples:
      return DecodeField("lease_samples", in.lease_samples(), checker);
    case v1::ToAggregator::kReturnSamples:
      return DecodeField("return_samples", in.return_samples(), checker);
    case v1::ToAggregator::kReportBatch:
      return DecodeField("report_batch", in.report_batch(), checker);
    case v1::ToAggregator::kLetGo:
      return DecodeField("let_go", in.let_go(), checker);
    case v1::ToAggregator::kShardUnreachable:
      return DecodeField("shard_unreachable", in.shard_unreachable(), checker);
    case v1::ToAggregator::kBatch:
      checker.Fail("batch", "is not allowed here; a single message is expected");
      return {};
    case v1::ToAggregator::kPiece:
      checker.Fail("piece", "is not allowed here; a whole message is expected");
      return {};
    case v1::ToAggregator::MESSAGE_NOT_SET:
      break;
  }
  checker.Fail("message", "is empty, or of a kind that is unknown to this version");
  return {};
}

}  // namespace

absl::Status Check(const Register& call) {
  Checker checker;
  const Checker::Scope scope(checker, "register");
  checker.Name("lane", call.lane);
  CheckEnum("kind", call.kind, checker);
  CheckList("tensors", call.tensors, kMaxTensors, checker);
  CheckDistinct("tensors", call.tensors, checker);
  return checker.status();
}

absl::Status Check(const Begin& call) {
  Checker checker;
  const Checker::Scope scope(checker, "begin");
  CheckField("spec", call.spec, checker);
  CheckList("samples", call.samples, kMaxSampleRanges, checker);
  CheckReducedWith(call.reduced_with, checker);
  return checker.status();
}

absl::Status Check(const Announce& call) {
  Checker checker;
  const Checker::Scope scope(checker, "announce");
  CheckField("key", call.key, checker);
  CheckField("spec", call.spec, checker);
  return checker.status();
}

absl::Status Check(const Get& call) {
  Checker checker;
  const Checker::Scope scope(checker, "get");
  CheckField("key", call.key, checker);
  if (call.expected) CheckField("expected", *call.expected, checker);
  if (call.source) checker.Worker("source", *call.source);
  return checker.status();
}

absl::Status Check(const LeaseSamples& call) {
  Checker checker;
  const Checker::Scope scope(checker, "lease_samples");
  CheckField("epoch", call.epoch, checker);
  checker.Required("count", call.count);
  CheckList("resumed", call.resumed, kMaxLedgerRanges, checker);
  CheckPositions("resumed", call.resumed, call.epoch.samples, checker);
  return checker.status();
}

absl::Status Check(const ReturnSamples& call) {
  Checker checker;
  const Checker::Scope scope(checker, "return_samples");
  CheckList("ranges", call.ranges, kMaxSampleRanges, checker);
  CheckPositions("ranges", call.ranges, kMaxEpochSamples, checker);
  return checker.status();
}

absl::Status Check(const ReportBatch& call) {
  Checker checker;
  const Checker::Scope scope(checker, "report_batch");
  checker.AtMost("samples", call.samples, kMaxEpochSamples);
  checker.AtMost("target", checker.Required("target", call.target), kMaxEpochSamples);
  return checker.status();
}

absl::Status Encode(const ToAggregator& in, v1::ToAggregator* out) {
  std::visit(PutToAggregator{out}, in);
  return CheckSize(*out, kMaxAssembledBytes);
}

absl::StatusOr<ToAggregator> Decode(const v1::ToAggregator& in) {
  Checker checker;
  ToAggregator out = Take(in, checker);
  if (!checker.ok()) return checker.status();
  return out;
}

absl::StatusOr<std::string> Encode(const ToAggregator& in) {
  Arena arena;
  v1::ToAggregator& message = NewIn<v1::ToAggregator>(arena);
  if (absl::Status status = Encode(in, &message); !status.ok()) return status;
  return message.SerializeAsString();
}

absl::StatusOr<ToAggregator> DecodeToAggregator(std::string_view bytes) {
  Arena arena;
  v1::ToAggregator& message = NewIn<v1::ToAggregator>(arena);
  const absl::StatusOr<uint64_t> expanded = Weigh(bytes, kMaxAssembledBytes, message);
  if (!expanded.ok()) return expanded.status();
  if (absl::Status status = Parse(bytes, kMaxAssembledBytes, &message); !status.ok()) return status;
  return Decode(message);
}

}  // namespace basin::wire
