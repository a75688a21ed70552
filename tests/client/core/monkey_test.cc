// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The trainer and the aggregator may call and send anything, in any order, with indexes and ranges
// that may not exist. The client must not crash, must keep its books, and must repeat its actions
// when it runs again.

#include <random>

#include "gtest/gtest.h"
#include "tests/client/core/harness.h"

namespace basin::client {
namespace {

class Monkey {
 public:
  explicit Monkey(uint64_t seed) : random_(seed) {}

  Event Next(const Harness& worker) { return Pick(2) == 0 ? Helpful(worker) : Any(worker); }

  uint32_t Pick(uint32_t bound) { return static_cast<uint32_t>(random_() % bound); }

 private:
  // Returns an event that moves the worker on from its state.
  Event Helpful(const Harness& worker) {
    const Client& client = worker.client;
    switch (client.session().phase()) {
      case SessionPhase::kConnecting:
        return SessionUp{};
      case SessionPhase::kGreeting: {
        Welcome welcome = worker.MakeWelcome(client.role());
        welcome.incarnation.counter = std::max<uint64_t>(1, client.incarnation().counter);
        welcome.membership = client.membership();
        if (Pick(4) > 0) welcome.placements = {SomePlacement()};
        return MessageReceived{welcome};
      }
      default:
        break;
    }
    const Streams& streams = client.session().streams();
    for (uint32_t i = 0; i < streams.size(); ++i) {
      if (streams.Names(i) && !streams.IsUp(i)) return StreamUp{i};
    }
    if (client.role() != Role::kMember) {
      return MessageReceived{MembershipChanged{
          worker.Members(9), Role::kMember, std::nullopt, {{"g", kLane, 1 + Pick(3), 0}}}};
    }
    const struct Lane& lane = worker.lane();
    if (lane.layout.version() < 3 || Pick(9) == 0) {
      LaneLayout layout = worker.MakeLayout(0, lane.last_verdict + 1);
      layout.placement = SomeRoundPlacement(worker);
      return MessageReceived{layout};
    }
    if (!lane.round.has_value()) return BeginRound{0, Harness::Average(), {}, 0, {}};
    switch (Pick(7)) {
      case 0:
        return PushTensor{0, Pick(3), 1};
      case 5:
        return Pick(3) == 0 ? Event(PushTensor{0, Pick(3), 0, std::nullopt, Pick(3)})
                            : Event(PushMore{0, {{Pick(3), 1 + Pick(4), 1, 1.0}}});
      case 1:
        return Pick(3) == 0 ? Event(CommitRound{0}) : Event(Tick{});
      case 2:
        return worker.Result({0, 0, 3}, 1, lane.last_verdict + 1);
      case 3:
        return worker.Result({1, 0, 1}, 1, lane.last_verdict + 1);
      case 4:
        return MessageReceived{worker.MakePrepared(1, lane.last_verdict + 1)};
      default:
        if (!lane.settlement.staged().has_value()) return Tick{};
        Verdict verdict = worker.MakeVerdict(lane.settlement.staged()->value);
        verdict.record.value_ballot = lane.settlement.staged()->value_ballot;
        return MessageReceived{verdict};
    }
  }

  Event Any(const Harness& worker) {
    const bool sane = Pick(4) > 0;  // Most events are plausible.
    switch (Pick(36)) {
      case 0:
        return Tick{};
      case 1:
        return SessionUp{};
      case 2:
        return Pick(4) == 0 ? Event(SessionDown{"monkey"}) : Event(Tick{});
      case 3:
        return StreamUp{Pick(7)};
      case 4:
        return StreamDown{Pick(7)};
      case 5:
      case 6:
        return MessageReceived{SomeWelcome(worker)};
      case 7:
      case 8:
        return MessageReceived{SomeLayout(worker)};
      case 9:
        return MessageReceived{Credit{Lane(), Round(worker), Pick(6) * kChunkBytes, Ranges(),
                                      Pick(3) == 0 ? Ranges() : std::vector<ChunkRange>{}}};
      case 10:
        return MessageReceived{
            Pull{Lane(), Round(worker), Ranges(), Ranges(), Pick(6) * kChunkBytes}};
      case 11:
        return MessageReceived{
            AttemptRestarted{Lane(), Round(worker), SomeBallot(), "", Ranges(), kWindow}};
      case 12:
      case 13: {
        Prepared prepared{Lane(), Round(worker), SomeBallot(), SomeBallot(), SomeValue(worker)};
        if (sane) prepared.value_ballot = prepared.ballot;
        return MessageReceived{prepared};
      }
      case 14:
        return MessageReceived{Supply{Lane(), Round(worker), SomeBallot(), Ranges()}};
      case 15:
      case 16: {
        Verdict verdict = worker.MakeVerdict(SomeValue(worker), 1 + Pick(3));
        if (!sane) verdict.record.round += Pick(3);
        if (Pick(20) == 0) ++verdict.record.chain;
        verdict.record.next.generation.counter += Pick(2);
        verdict.placement = SomeRoundPlacement(worker);
        return MessageReceived{verdict};
      }
      case 17:
        return MessageReceived{Rejected{{static_cast<ErrorCode>(Pick(19)), "no"},
                                        sane ? std::nullopt : std::optional<LaneIndex>(Lane()),
                                        Round(worker)}};
      case 18:
        return Pick(5) > 0
                   ? Event(Tick{})
                   : Event(MessageReceived{Ended{
                         {Pick(2) == 0 ? ErrorCode::kEvicted : ErrorCode::kUnavailable, ""}}});
      case 19:
        return MessageReceived{MembershipChanged{worker.Members(1 + Pick(4)),
                                                 Pick(4) == 0 ? Role::kSpare : Role::kMember,
                                                 std::nullopt,
                                                 {{"g", kLane, 1 + Pick(3), Pick(2)}}}};
      case 20:
      case 21:
      case 22: {
        const TensorIndex tensor = Pick(2);
        ResultReceived frame =
            worker.Result(tensor == 0 ? ChunkRange{0, Pick(2), 1 + Pick(2)} : ChunkRange{1, 0, 1},
                          1 + Pick(2), Round(worker));
        if (Pick(12) == 0) frame.ranges = {Range()};
        if (Pick(12) == 0 && !frame.digests.empty()) ++frame.digests[0];
        return frame;
      }
      case 23:
        return DeclareReady{};
      case 24:
        return RegisterTensors{"g", LaneKind::kGradient, Model()};
      case 25:
        return RegisterTensors{
            "g", LaneKind::kGradient, {F32(std::string(1, static_cast<char>('d' + Pick(3))), 9)}};
      case 26:
      case 27:
        return BeginRound{0, Harness::Average(), {}, 0, {}};
      case 28:
      case 29:
        return PushTensor{0, Pick(7), Pick(5)};
      case 33:
        return PushMore{0, {{Pick(7), Pick(5), Pick(5), 2.0}, {Pick(7), Pick(5), 1, {}}}};
      case 30:
        return SkipTensor{0, Pick(7)};
      case 31:
        return Pick(3) == 0 ? Event(WithdrawRound{0, ""}) : Event(CommitRound{0});
      case 32:
        return Pick(10) == 0 ? Event(AbandonRounds{})
                             : Event(WaitRound{0, worker.now + absl::Seconds(Pick(9))});
      case 34:
        return MessageReceived{SomePlacement()};
      default:
        return SomeBlobEvent(worker);
    }
  }

  LaneIndex Lane() { return Pick(15) == 0 ? 9 : kLane; }
  RoundNumber Round(const Harness& worker) {
    const RoundNumber next = worker.client.lanes()[0].last_verdict + 1;
    return Pick(10) == 0 ? Pick(4) : next;
  }
  Ballot SomeBallot() { return {kTerm + Pick(8) / 7, 1 + Pick(3)}; }
  ChunkRange Range() { return {Pick(5), Pick(4), Pick(4)}; }
  std::vector<ChunkRange> Ranges() {
    std::vector<ChunkRange> ranges;
    for (uint32_t i = Pick(4); i > 0; --i) ranges.push_back(Range());
    return ranges;
  }
  RoundValue SomeValue(const Harness& worker) {
    RoundValue value = Pick(5) == 0 ? worker.AbortedValue() : worker.Value();
    if (Pick(10) == 0) value.layout_version = Pick(7);
    if (Pick(10) == 0) value.tensor_divisors = {{Pick(5), Pick(2)}};
    return value;
  }
  Welcome SomeWelcome(const Harness& worker) {
    Welcome welcome = worker.MakeWelcome(Pick(2) == 0 ? Role::kMember : Role::kJoiner);
    welcome.incarnation.counter = Pick(10) == 0 ? 2 : worker.client.incarnation().counter;
    welcome.membership = worker.client.membership();
    for (uint32_t i = Pick(3); i > 0; --i) welcome.placements.push_back(SomePlacement());
    if (Pick(3) > 0) welcome.layouts = {SomeLayout(worker)};
    if (Pick(2) == 0) {
      welcome.open = {{Lane(), Round(worker), static_cast<RoundPhase>(Pick(3)), SomeBallot(),
                       Ranges(), Pick(6) * kChunkBytes}};
    }
    if (Pick(4) == 0) {
      welcome.verdicts = {{Lane(), {worker.MakeVerdict(SomeValue(worker)).record}}};
    }
    return welcome;
  }
  LaneLayout SomeLayout(const Harness& worker) {
    LaneLayout layout = worker.MakeLayout(0, worker.lane().last_verdict + 1);
    for (uint32_t i = 0; i < Pick(4); ++i) {
      layout.tensors.push_back(F32(std::string(1, static_cast<char>('d' + i)), 9 + Pick(20) / 19));
    }
    if (Pick(20) == 0) layout.tensors.Own().pop_back();
    if (Pick(40) == 0) layout.first = Pick(3);
    if (Pick(40) == 0) layout.lane = 9;
    layout.window = Pick(6) * kChunkBytes;
    layout.placement = SomeRoundPlacement(worker);
    return layout;
  }
  // It names some of the shards 0 to 3, and some of these are lost.
  Placement SomePlacement() {
    Placement placement{1 + Pick(3), 1 + Pick(2) * kChunkBytes, {PlacedShard{}}, {}};
    if (Pick(4) == 0) placement.shards.clear();
    for (ShardId shard = 1 + Pick(3); shard < 4; ++shard) {
      placement.shards.push_back({shard, "s", "host:29700"});
      if (Pick(3) == 0 && placement.lost.size() + 1 < placement.shards.size()) {
        placement.lost.push_back(shard);
      }
    }
    return placement;
  }
  // One that the worker knows, mostly.
  RoundPlacement SomeRoundPlacement(const Harness& worker) {
    if (Pick(200) == 0) return {1 + Pick(4), Pick(5)};
    const Placement* last = worker.client.placements().Present();
    if (last == nullptr || Pick(3) == 0) return {};
    return {last->number, Pick(worker.lane().layout.version() + 1)};
  }
  Event SomeBlobEvent(const Harness& worker) {
    const BlobKey key{"g", std::string(1, static_cast<char>('a' + Pick(2))), Pick(2)};
    switch (Pick(6)) {
      case 0:
        return AnnounceBlob{key, F32("v", Pick(3) * kChunkBytes), Pick(2)};
      case 1:
        return GetBlob{key, std::nullopt, std::nullopt, worker.now + absl::Seconds(Pick(20))};
      case 2:
        return MessageReceived{BlobKnown{key, F32("v", Pick(3) * kChunkBytes), Pick(40), "w-1"}};
      case 3:
        return MessageReceived{Ask{key, Pick(5), Pick(5)}};
      case 4:
        return MessageReceived{GetFailed{key, {ErrorCode::kUnavailable, ""}}};
      default:
        return BlobReceived{key, Pick(6), 1, {Pick(10)}};
    }
  }

  std::mt19937_64 random_;
};

// The bytes charged to the streams are the unacknowledged bytes of the rounds in flight.
void CheckBooks(const Harness& worker) {
  uint64_t charged = 0;
  const Streams& streams = worker.client.session().streams();
  for (uint32_t i = 0; i < streams.size(); ++i) {
    if (streams.Names(i)) charged += streams.unacked(i);
  }
  uint64_t unacked = 0;
  for (const struct Lane& lane : worker.client.lanes()) {
    if (lane.round.has_value()) unacked += lane.round->push().unacked_bytes();
  }
  ASSERT_EQ(charged, unacked);
}

// The client sends messages only in an open session, and frames only on streams that are up, of the
// shard that holds all their chunks.
void CheckActions(const Client& before, const Harness& worker, const Actions& actions) {
  bool open = before.session().phase() == SessionPhase::kGreeting || before.connected();
  for (const Action& action : actions.all) {
    if (std::holds_alternative<CloseSession>(action)) open = false;
    if (const Send* send = std::get_if<Send>(&action)) {
      ASSERT_TRUE(open || std::holds_alternative<Hello>(send->message));
    }
    if (const SendContribution* send = std::get_if<SendContribution>(&action)) {
      const Streams& streams = worker.client.session().streams();
      ASSERT_TRUE(streams.IsUp(send->stream));
      const struct Lane& lane = worker.client.lanes()[send->lane];
      for (const ChunkRange& range : send->ranges) {
        ASSERT_EQ(lane.shares.Head(lane.layout, range),
                  (std::pair(streams.ShardOf(send->stream), range.count)));
      }
    }
  }
}

TEST(MonkeyTest, NothingBreaksTheClient) {
  uint64_t delivered = 0;
  uint64_t sent = 0;
  uint64_t elsewhere = 0;  // Those of them to shards beside the coordinator's own.
  for (uint64_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(seed);
    Monkey monkey(seed);
    Harness worker;
    worker.BecomeMember();
    for (int step = 0; step < 400; ++step) {
      const Client before = worker.client;
      Event event = monkey.Next(worker);
      worker.now += absl::Milliseconds(monkey.Pick(100));
      const Actions actions = worker.Do(event);
      Client again = before;
      std::vector<Action> same;
      again.Step(event, worker.now, same);
      ASSERT_EQ(again, worker.client) << "the same state, event and time give the same state";
      ASSERT_EQ(same.size(), actions.all.size());
      ASSERT_NO_FATAL_FAILURE(CheckBooks(worker));
      ASSERT_NO_FATAL_FAILURE(CheckActions(before, worker, actions));
      if (std::holds_alternative<Tick>(event)) {
        ASSERT_GT(worker.client.NextDeadline(), worker.now) << "a tick settles what is due";
      }
      delivered += actions.Of<Deliver>().size();
      for (const SendContribution& send : actions.Of<SendContribution>()) {
        ++sent;
        const Streams& streams = worker.client.session().streams();
        if (streams.ShardOf(send.stream) != kCoordinatorShard) ++elsewhere;
      }
      if (worker.client.fatal().has_value()) break;
    }
  }
  EXPECT_GT(delivered, 100u) << "the monkey gets somewhere";
  EXPECT_GT(sent, 500u);
  EXPECT_GT(elsewhere, 100u);
}

}  // namespace
}  // namespace basin::client
