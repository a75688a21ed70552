// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "tests/client/core/harness.h"

#include "absl/strings/str_join.h"
#include "gtest/gtest.h"
#include "tests/world/message_names.h"

namespace basin::client {

TensorSpec F32(std::string name, uint64_t elements) {
  return {std::move(name), DType::kF32, {elements}};
}

std::vector<TensorSpec> Model() {
  return {F32("a", 2 * kChunkBytes / 4 + 10), F32("b", 100), F32("c", 0)};
}

Config TestConfig() {
  Config config;
  config.follows_link = false;
  config.aggregator = "a-0:7070";
  config.job = "train";
  config.run = "run-1";
  config.worker = "w-0";
  config.nonce = 99;
  config.settings = {2, 3, 3};
  config.streams = 2;
  return config;
}

std::vector<ChunkRange> Ranges(const Actions& actions) {
  std::vector<ChunkRange> ranges;
  for (const SendContribution& send : actions.Of<SendContribution>()) {
    ranges.insert(ranges.end(), send.ranges.begin(), send.ranges.end());
  }
  return ranges;
}

void ReportCount(size_t count, const char* type) {
  ADD_FAILURE() << "wanted exactly one, found " << count << ": " << type;
}

std::string Actions::MessageNames() const {
  std::vector<std::string> names;
  for (const Send& send : Of<Send>()) names.push_back(world::NameOf(send.message));
  return absl::StrJoin(names, " ");
}

Actions Harness::Do(const Event& event) {
  Actions actions;
  client.Step(event, now, actions.all);
  return actions;
}

Actions Harness::Pass(absl::Duration duration) {
  now += duration;
  return Do(Tick{});
}

Welcome Harness::MakeWelcome(Role role) const {
  Welcome welcome;
  welcome.token = 4711;
  welcome.incarnation = {kTerm, 1};
  welcome.run = "run-1";
  welcome.term = kTerm;
  welcome.role = role;
  welcome.settings = {2, 3, 3};
  welcome.frame_bytes = kFrameBytes;
  welcome.heartbeat = absl::Milliseconds(500);
  return welcome;
}

void Harness::StreamsUp() {
  for (uint32_t i = 0; i < client.config().streams; ++i) Do(StreamUp{i});
}

Actions Harness::Connect(const Welcome& welcome) {
  if (client.session().phase() == SessionPhase::kNew) Do(Tick{});
  Do(SessionUp{});
  Actions actions = Receive(welcome);
  StreamsUp();
  return actions;
}

LaneLayout Harness::MakeLayout(uint32_t first, RoundNumber round) const {
  LaneLayout layout;
  layout.lane = kLane;
  layout.name = "g";
  layout.kind = LaneKind::kGradient;
  layout.first = first;
  const std::vector<TensorSpec> model = Model();
  layout.tensors.Own().assign(model.begin() + first, model.end());
  layout.round = round;
  layout.window = kWindow;
  return layout;
}

Membership Harness::Members(uint64_t counter) const {
  return {{kTerm, counter}, {{"w-0", "w-1", "w-2"}}};
}

void Harness::RegisterModel() {
  Do(RegisterTensors{"g", LaneKind::kGradient, Model()});
  Receive(MakeLayout());
}

void Harness::BecomeMember() {
  Connect();
  RegisterModel();
  Do(DeclareReady{});
  Receive(MembershipChanged{Members(), Role::kMember, std::nullopt, {{"g", kLane, 1, 0}}});
}

RoundSpec Harness::Average() {
  RoundSpec spec;
  spec.op = ReduceOp::kAverage;
  return spec;
}

void Harness::Contribute() {
  Begin();
  for (const TensorHandle tensor : {kA, kB, kC}) PushOne(tensor);
  Do(CommitRound{0});
}

RoundValue Harness::Value() const {
  RoundValue value;
  value.outcome = Outcome::kCommitted;
  value.spec = Average();
  for (const char* worker : {"w-0", "w-1", "w-2"}) value.contributors.push_back({worker, {}, 1});
  value.divisor = 3;
  value.layout_version = 3;
  value.digest = ResultDigest(0, 0) + ResultDigest(0, 1) + ResultDigest(0, 2) + ResultDigest(1, 0);
  return value;
}

RoundValue Harness::AbortedValue() const {
  RoundValue value;
  value.outcome = Outcome::kAborted;
  value.reason = "worker w-2 was lost";
  value.layout_version = 3;
  return value;
}

Prepared Harness::MakePrepared(uint64_t attempt, RoundNumber round) const {
  return {kLane, round, {kTerm, attempt}, {kTerm, attempt}, Value()};
}

ResultReceived Harness::Result(ChunkRange range, uint64_t attempt, RoundNumber round) const {
  ResultReceived result{kLane, round, {kTerm, attempt}, {range}, {}};
  for (uint32_t i = 0; i < range.count; ++i) {
    result.digests.push_back(ResultDigest(range.tensor, range.first + i));
  }
  return result;
}

Verdict Harness::MakeVerdict(const RoundValue& value, uint64_t attempt) const {
  Verdict verdict;
  verdict.lane = kLane;
  verdict.record.round = lane().last_verdict + 1;
  verdict.record.ballot = {kTerm, attempt};
  verdict.record.value_ballot = {kTerm, attempt};
  verdict.record.value = value;
  verdict.record.next = client.membership();
  verdict.record.chain = ExtendChain(lane().chain.value_or(0), verdict.record.round, value);
  return verdict;
}

void Harness::ReceiveAllResults(uint64_t attempt, RoundNumber round) {
  Do(Result({0, 0, 2}, attempt, round));
  Do(Result({0, 2, 1}, attempt, round));
  Do(Result({1, 0, 1}, attempt, round));
}

Actions Harness::Stage(RoundNumber round) {
  ReceiveAllResults(1, round);
  return Receive(MakePrepared(1, round));
}

Actions Harness::FinishRound() {
  Contribute();
  Stage(lane().last_verdict + 1);
  return Receive(MakeVerdict(Value()));
}

}  // namespace basin::client
