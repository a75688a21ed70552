// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The messages between a coordinator and a shard: random ones arrive as they were sent, long ones
// in several parts, and what breaks a rule is refused with the name of the field.

#include "aggregator/shard/wire/codec.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "basin/v1/shard.pb.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "protocol/limits/limits.h"
#include "tests/aggregator/shard/random_shard.h"
#include "tests/proto/quiet_protobuf.h"

namespace basin::aggregator {

// Where containers look for it.
using basin::operator==;

namespace {

using ::testing::HasSubstr;

// ---- values that can be compared

auto Tied(const NameTensors& a) { return std::tie(a.job, a.lane, a.first, a.tensors); }
auto Tied(const IdleLane& a) { return std::tie(a.job, a.lane); }
auto Tied(const EndJob& a) { return std::tie(a.job); }
auto Tied(const KeepChunks& a) { return std::tie(a.job, a.lane, a.round, a.contributor, a.ranges); }
auto Tied(const DiscardChunks& a) {
  return std::tie(a.job, a.lane, a.round, a.contributor, a.ranges);
}
auto Tied(const StartAttempt& a) {
  return std::tie(a.job, a.lane, a.round, a.ballot, a.spec, a.contributors);
}
auto Tied(const Reduce& a) {
  return std::tie(a.job, a.lane, a.round, a.ballot, a.ranges, a.divisor, a.skipped);
}
auto Tied(const Route& a) { return std::tie(a.ranges, a.streams, a.frame); }
auto Tied(const ReleaseResult& a) { return std::tie(a.job, a.lane, a.round, a.ballot, a.range); }
auto Tied(const EndRound& a) { return std::tie(a.job, a.lane, a.round); }
auto Tied(const ShardAcceptStream& a) {
  return std::tie(a.accept.stream, a.accept.session, a.accept.job, a.job_name);
}
auto Tied(const CloseStream& a) { return std::tie(a.stream, a.why); }
auto Tied(const SendFrame& a) { return std::tie(a.frame, a.stream); }
auto Tied(const ForgetFrames& a) { return std::tie(a.frames); }
auto Tied(const StreamOpened& a) { return std::tie(a.stream, a.token); }
auto Tied(const StreamLost& a) { return std::tie(a.stream); }
auto Tied(const ShardFrameReceived& a) {
  return std::tie(a.frame, a.stream, a.what.kind, a.what.lane, a.what.round, a.what.ballot,
                  a.what.ranges, a.what.bytes, a.what.digests);
}
auto Tied(const ShardFrameUnknown& a) { return std::tie(a.frame, a.stream); }
auto Tied(const ShardDraining&) { return std::tuple<>(); }
auto Tied(const ReduceDone& a) {
  return std::tie(a.job, a.lane, a.round, a.ballot, a.ranges, a.digests, a.facts, a.failure,
                  a.failed);
}
auto Tied(const ShardUse& a) { return a.Fields(); }
auto Tied(const ShardHello& a) {
  return std::tie(a.protocol_version, a.contract_version, a.name, a.endpoint, a.software, a.memory);
}
auto Tied(const ShardWelcome& a) { return std::tie(a.shard, a.term); }

template <typename T>
bool Same(const T& a, const T& b) {
  return Tied(a) == Tied(b);
}
bool Same(const Publish& a, const Publish& b) {
  return std::tie(a.job, a.lane, a.round, a.ballot) == std::tie(b.job, b.lane, b.round, b.ballot) &&
         std::equal(a.routes.begin(), a.routes.end(), b.routes.begin(), b.routes.end(),
                    [](const Route& x, const Route& y) { return Tied(x) == Tied(y); });
}
bool Same(const RelayResult& a, const RelayResult& b) {
  return std::tie(a.job, a.lane, a.round, a.ballot, a.ranges) ==
             std::tie(b.job, b.lane, b.round, b.ballot, b.ranges) &&
         Tied(a.route) == Tied(b.route);
}
template <typename... T>
bool Same(const std::variant<T...>& a, const std::variant<T...>& b) {
  return a.index() == b.index() &&
         std::visit([&b](const auto& x) { return Same(x, std::get<std::decay_t<decltype(x)>>(b)); },
                    a);
}
template <typename T>
bool SameLists(const std::vector<T>& a, const std::vector<T>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const T& x, const T& y) { return Same(x, y); });
}

constexpr size_t kEvents = std::variant_size_v<ShardEvent>;
constexpr size_t kActions = std::variant_size_v<ShardAction>;

template <typename T, typename Message>
T Only(const absl::StatusOr<std::vector<std::string>>& encoded,
       absl::StatusOr<Message> (*decode)(std::string_view)) {
  EXPECT_TRUE(encoded.ok()) << encoded.status();
  if (!encoded.ok() || encoded->size() != 1) {
    ADD_FAILURE() << "not one message";
    return {};
  }
  absl::StatusOr<Message> decoded = decode(encoded->front());
  EXPECT_TRUE(decoded.ok()) << decoded.status();
  if (!decoded.ok()) return {};
  EXPECT_TRUE(std::holds_alternative<T>(*decoded));
  return std::get<T>(*std::move(decoded));
}

// ---- what was sent arrives

TEST(ShardWire, EventsArriveAsTheyWere) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    RandomShard random(seed);
    std::vector<ShardEvent> sent;
    for (size_t kind = 0; kind < kEvents; ++kind) {
      sent.push_back(random.Event(kind));
      ASSERT_EQ(sent.back().index(), kind);
    }
    const auto arrived = Only<std::vector<ShardEvent>>(Encode(FromShard(sent)), DecodeFromShard);
    EXPECT_TRUE(SameLists(sent, arrived)) << "seed " << seed;
  }
}

TEST(ShardWire, StepsArriveAsTheyWere) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    RandomShard random(seed);
    std::vector<ShardStep> sent(2);
    sent[0].frame = random.Positive();
    for (size_t kind = 0; kind < kActions; ++kind) {
      sent[1].actions.push_back(random.Action(kind));
      ASSERT_EQ(sent[1].actions.back().index(), kind);
    }
    const auto arrived = Only<std::vector<ShardStep>>(Encode(ToShard(sent)), DecodeToShard);
    ASSERT_EQ(arrived.size(), 2u) << "seed " << seed;
    EXPECT_EQ(arrived[0].frame, sent[0].frame);
    EXPECT_TRUE(arrived[0].actions.empty());
    EXPECT_EQ(arrived[1].frame, 0u);
    EXPECT_TRUE(SameLists(sent[1].actions, arrived[1].actions)) << "seed " << seed;
  }
}

TEST(ShardWire, TheFirstMessagesArriveAsTheyWere) {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    RandomShard random(seed);
    const ShardHello hello{static_cast<uint32_t>(1 + random.Below(9)),
                           static_cast<uint32_t>(1 + random.Below(9)),
                           random.Label(),
                           "host:4711",
                           random.Text(),
                           random.Positive()};
    EXPECT_TRUE(Same(hello, Only<ShardHello>(Encode(FromShard(hello)), DecodeFromShard)));
    const ShardWelcome welcome{static_cast<uint32_t>(1 + random.Below(99)), random.Positive()};
    EXPECT_TRUE(Same(welcome, Only<ShardWelcome>(Encode(ToShard(welcome)), DecodeToShard)));
  }
}

// ---- long ones

TEST(ShardWire, ALongStepArrivesInParts) {
  RandomShard random(1);
  NameTensors names{7, 3, 0, {}};
  for (uint32_t i = 0; i < kMaxTensors; ++i) {
    TensorSpec spec{std::string(kMaxNameBytes - 8, 'n') + std::to_string(i), DType::kF32, {1, 2}};
    names.tensors.push_back(spec);
  }
  ForgetFrames forget;
  for (uint64_t i = 1; i <= 3 * uint64_t{kMaxRanges}; ++i) forget.frames.push_back(i);
  DiscardChunks discard = random.OfRound<DiscardChunks>();
  for (uint32_t i = 0; i < 2 * kMaxRanges; ++i) discard.ranges.push_back({i / 2, i % 2 * 2, 1});
  const std::vector<ShardStep> sent = {{5, {names, forget, discard}, false},
                                       {6, {EndJob{9}}, false}};
  const auto encoded = Encode(ToShard(sent));
  ASSERT_TRUE(encoded.ok()) << encoded.status();
  EXPECT_GT(encoded->size(), 10u);
  std::vector<ShardStep> arrived;
  for (const std::string& message : *encoded) {
    EXPECT_LE(message.size(), kMaxMessageBytes);
    absl::StatusOr<ToShard> decoded = DecodeToShard(message);
    ASSERT_TRUE(decoded.ok()) << decoded.status();
    for (ShardStep& step : std::get<std::vector<ShardStep>>(*decoded)) {
      arrived.push_back(std::move(step));
    }
  }
  std::vector<TensorSpec> tensors;
  std::vector<uint64_t> frames;
  std::vector<ChunkRange> ranges;
  for (size_t i = 0; i + 1 < arrived.size(); ++i) {
    EXPECT_EQ(arrived[i].frame, 5u);
    // All parts but the last say that another one follows.
    EXPECT_EQ(arrived[i].continues, i + 2 < arrived.size());
    for (const ShardAction& action : arrived[i].actions) {
      if (const auto* part = std::get_if<NameTensors>(&action)) {
        EXPECT_EQ(part->first, tensors.size());
        tensors.insert(tensors.end(), part->tensors.begin(), part->tensors.end());
      } else if (const auto* forgotten = std::get_if<ForgetFrames>(&action)) {
        frames.insert(frames.end(), forgotten->frames.begin(), forgotten->frames.end());
      } else {
        const auto& some = std::get<DiscardChunks>(action).ranges;
        ranges.insert(ranges.end(), some.begin(), some.end());
      }
    }
  }
  EXPECT_TRUE(tensors == names.tensors);
  EXPECT_TRUE(frames == forget.frames);
  EXPECT_TRUE(ranges == discard.ranges);
  EXPECT_EQ(arrived.back().frame, 6u);
  EXPECT_FALSE(arrived.back().continues);
}

TEST(ShardWire, ManyEventsArriveInSeveralMessages) {
  const std::vector<ShardEvent> sent(3 * kMaxShardEntries, StreamLost{4});
  const auto encoded = Encode(FromShard(sent));
  ASSERT_TRUE(encoded.ok());
  EXPECT_EQ(encoded->size(), 3u);
  size_t arrived = 0;
  for (const std::string& message : *encoded) {
    const absl::StatusOr<FromShard> decoded = DecodeFromShard(message);
    ASSERT_TRUE(decoded.ok()) << decoded.status();
    arrived += std::get<std::vector<ShardEvent>>(*decoded).size();
  }
  EXPECT_EQ(arrived, sent.size());
}

// ---- what breaks a rule

std::string WhyNot(const v1::FromShard& message) {
  const auto decoded = DecodeFromShard(message.SerializeAsString());
  EXPECT_FALSE(decoded.ok());
  EXPECT_EQ(decoded.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(decoded.status().message());
}
std::string WhyNot(const v1::ToShard& message) {
  const auto decoded = DecodeToShard(message.SerializeAsString());
  EXPECT_FALSE(decoded.ok());
  EXPECT_EQ(decoded.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(decoded.status().message());
}

v1::FromShard ValidHello() {
  const auto encoded = Encode(FromShard(ShardHello{1, 1, "s-1", "host:1", "basin 1"}));
  v1::FromShard message;
  EXPECT_TRUE(message.ParseFromString(encoded->front()));
  return message;
}
v1::FromShard ValidEvent(size_t kind) {
  RandomShard random(kind + 10);
  const auto encoded = Encode(FromShard(std::vector<ShardEvent>{random.Event(kind)}));
  v1::FromShard message;
  EXPECT_TRUE(message.ParseFromString(encoded->front()));
  return message;
}

TEST(ShardWire, NamesTheFieldThatBreaksARule) {
  EXPECT_THAT(WhyNot(v1::FromShard()), HasSubstr("message is required"));
  EXPECT_THAT(WhyNot(v1::ToShard()), HasSubstr("message is required"));

  v1::FromShard hello = ValidHello();
  hello.mutable_hello()->set_magic(7);
  EXPECT_THAT(WhyNot(hello), HasSubstr("hello.magic is 7 instead of"));
  hello = ValidHello();
  hello.mutable_hello()->set_name("Not A Name");
  EXPECT_THAT(WhyNot(hello), HasSubstr("hello.name is no"));
  hello = ValidHello();
  hello.mutable_hello()->clear_endpoint();
  EXPECT_THAT(WhyNot(hello), HasSubstr("hello.endpoint is required"));
  hello = ValidHello();
  hello.mutable_hello()->set_endpoint(std::string(kMaxEndpointBytes + 1, 'h'));
  EXPECT_THAT(WhyNot(hello), HasSubstr("hello.size(endpoint) is 301, more than 300"));

  v1::FromShard event = ValidEvent(2);
  event.mutable_events()->mutable_events(0)->mutable_frame_received()->add_digests(1);
  EXPECT_THAT(WhyNot(event), HasSubstr("events[0].frame_received.size(digests) is"));
  event = ValidEvent(2);
  event.mutable_events()->mutable_events(0)->mutable_frame_received()->clear_ranges();
  EXPECT_THAT(WhyNot(event), HasSubstr("events[0].frame_received.ranges is required"));
  event = ValidEvent(0);
  event.mutable_events()->mutable_events(0)->mutable_stream_opened()->set_stream(0);
  EXPECT_THAT(WhyNot(event), HasSubstr("events[0].stream_opened.stream is required"));

  v1::ToShard steps;
  steps.mutable_steps();
  EXPECT_THAT(WhyNot(steps), HasSubstr("steps is required"));
  auto* const action = steps.mutable_steps()->add_steps()->add_actions();
  EXPECT_THAT(WhyNot(steps), HasSubstr("steps[0].actions[0].action is required"));
  action->mutable_close_stream()->set_stream(1);
  action->mutable_close_stream()->set_code(17);
  EXPECT_THAT(WhyNot(steps), HasSubstr("actions[0].close_stream.code is 17, more than 16"));
  action->mutable_reduce()->set_round(1);
  EXPECT_THAT(WhyNot(steps), HasSubstr("actions[0].reduce.ranges is required"));
  action->mutable_reduce()->add_ranges()->set_count(1);
  action->mutable_reduce()->add_skipped(2);
  action->mutable_reduce()->add_skipped(1);
  EXPECT_THAT(WhyNot(steps), HasSubstr("actions[0].reduce.skipped does not ascend"));
}

// Two bytes of a list become a hundred in memory, so lists are counted before they are read.
TEST(ShardWire, CountsListsBeforeItReadsThem) {
  v1::FromShard events;
  for (uint32_t i = 0; i <= kMaxShardEntries; ++i) {
    events.mutable_events()->add_events()->mutable_stream_lost()->set_stream(1);
  }
  EXPECT_THAT(WhyNot(events), HasSubstr("events has more than 4096 entries"));
  v1::ToShard steps;
  auto* const reduce = steps.mutable_steps()->add_steps()->add_actions()->mutable_reduce();
  for (uint32_t i = 0; i <= kMaxRunsPerFrame; ++i) reduce->add_ranges()->set_count(1);
  EXPECT_THAT(WhyNot(steps), HasSubstr("reduce.ranges has more than 1024 entries"));
  EXPECT_FALSE(DecodeToShard(std::string(kMaxMessageBytes + 1, '\0')).ok());
}

// Bytes that were changed anywhere are refused, or are another message; nothing else happens.
TEST(ShardWire, TakesGarbage) {
  basin::testing::QuietProtobuf quiet;
  for (uint64_t seed = 0; seed < 300; ++seed) {
    RandomShard random(seed);
    std::vector<ShardEvent> events;
    std::vector<ShardStep> steps(1);
    for (size_t kind = 0; kind < kEvents; ++kind) events.push_back(random.Event(kind));
    for (size_t kind = 0; kind < kActions; ++kind) steps[0].actions.push_back(random.Action(kind));
    const std::string from = Encode(FromShard(events))->front();
    const std::string to = Encode(ToShard(steps))->front();
    for (int i = 0; i < 30; ++i) {
      std::string broken = i % 2 == 0 ? from : to;
      for (uint64_t changes = 1 + random.Below(4); changes > 0; --changes) {
        broken[random.Below(broken.size())] = static_cast<char>(random.Below(256));
      }
      if (random.Coin()) broken.resize(random.Below(broken.size()));
      // What is taken could have been sent.
      if (const auto taken = DecodeFromShard(broken); taken.ok()) {
        EXPECT_TRUE(Encode(*taken).ok());
      }
      if (const auto taken = DecodeToShard(broken); taken.ok()) {
        EXPECT_TRUE(Encode(*taken).ok());
      }
    }
    const std::string noise = random.Bytes(random.Below(300));
    DecodeFromShard(noise).IgnoreError();
    DecodeToShard(noise).IgnoreError();
  }
}

}  // namespace
}  // namespace basin::aggregator
