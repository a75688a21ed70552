// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Peers that send anything: random messages with random fields, out of order, on sessions that open
// and close. Whatever they send, the core must not crash, exceed its bounds, or ask for a tick that
// does not clear its deadline.

#include <algorithm>
#include <iterator>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "aggregator/core/coordinator.h"

namespace basin::aggregator {
namespace {

constexpr int kSeeds = 400;
constexpr int kEvents = 400;

using Taken = std::variant<Input, SessionLost>;

class Peers {
 public:
  explicit Peers(uint32_t seed) : random_(seed), config_(MakeConfig()), core_(config_, now_) {}

  void Run() {
    for (int i = 0; i < kEvents && !testing::Test::HasFailure(); ++i) Step(Next());
  }

 private:
  Config MakeConfig() {
    Config config;
    config.frame_bytes = kChunkBytes;
    config.window_bytes = config.result_window_bytes = (1 + Below(3)) * kChunkBytes;
    config.memory_bytes = (30 + Below(100)) * kChunkBytes;
    config.state_file = Coin();
    config.late_policy = SomeLatePolicy();
    config.quorum_percent = 1 + Below(100);
    config.evict_late_after = absl::Seconds(20);
    config.loss_policy = Coin() ? LossPolicy::kAbort : LossPolicy::kShrink;
    config.pause_timeout = absl::Seconds(30);
    if (Coin()) config.max_job_rounds = 1 + Below(20);
    if (Coin()) config.max_job_bytes = (30 + Below(100)) * kChunkBytes;
    config.recovery_policy = Coin() ? RecoveryPolicy::kAny : RecoveryPolicy::kMajority;
    return config;
  }

  uint32_t Below(uint32_t bound) { return static_cast<uint32_t>(random_() % bound); }
  bool Coin() { return Below(2) == 0; }
  bool Seldom() { return Below(12) == 0; }
  // Mostly small values, and sometimes values far out of range.
  uint32_t Index() { return Seldom() ? ~Below(3) : Below(3); }
  WorkerId Id() { return std::string(1, static_cast<char>('a' + Below(4))); }
  LatePolicy SomeLatePolicy() { return static_cast<LatePolicy>(Below(3)); }
  SetJob Setting() {
    SetJob set;
    set.job = "job";
    if (Coin()) set.min_workers = Index();
    if (Coin()) set.max_workers = Index() + Below(20);
    if (Seldom()) set.loss_policy = Coin() ? LossPolicy::kAbort : LossPolicy::kShrink;
    if (Seldom()) set.late_policy = SomeLatePolicy();
    return set;
  }
  RoundNumber Round() {
    const Job* job = core_.FindJob("job");
    if (job == nullptr || job->lanes.size() == 0 || Seldom()) return Below(4);
    return std::next(job->lanes.begin(), Below(static_cast<uint32_t>(job->lanes.size())))->next;
  }
  Ballot SomeBallot() {
    const Job* job = core_.FindJob("job");
    if (job != nullptr && !Seldom()) {
      for (const Lane& lane : job->lanes) {
        if (lane.round.has_value()) {
          return Coin() ? lane.round->ballot : lane.round->value_ballot;
        }
      }
    }
    return {Below(3), Below(3)};
  }
  ChunkRange Range() { return {Index(), Index(), Seldom() ? Index() : 1}; }
  std::vector<ChunkRange> Ranges() {
    std::vector<ChunkRange> ranges(Below(3));
    for (ChunkRange& range : ranges) range = Range();
    return ranges;
  }
  TensorSpec Tensor() {
    const char* names[] = {"t0", "t1", "t2"};
    const uint32_t which = Below(3);
    TensorSpec spec{names[which], DType::kF32, {(kChunkBytes / 4) * (which + 1)}};
    if (Seldom()) spec.dtype = static_cast<DType>(Below(10));
    if (Seldom()) spec.shape = {uint64_t{1} << Below(64), Below(3)};
    return spec;
  }
  RoundSpec SomeSpec() {
    RoundSpec spec;
    spec.op = Seldom() ? static_cast<ReduceOp>(Below(7)) : ReduceOp::kAverage;
    if (Seldom()) spec.denominator = Denominator::kPresent;
    if (Seldom()) spec.prescale = Below(3);
    return spec;
  }
  RoundValue SomeValue() {
    RoundValue value;
    value.outcome = static_cast<Outcome>(Below(3));
    value.layout_version = Index();
    value.digest = Below(3);
    return value;
  }

  Hello SomeHello() {
    Hello hello;
    hello.job = "job";
    hello.run = Seldom() ? "other" : "";
    hello.worker = Id();
    hello.nonce = Below(3);
    hello.fresh = Coin();
    if (Coin()) hello.settings = {1, 3, 2};
    if (Coin()) {
      const auto known = incarnations_.find(hello.worker);
      if (known != incarnations_.end()) {
        hello.incarnation = known->second;
        hello.nonce = 1;
      }
    }
    if (Below(3) != 0) return hello;
    const Job* job = core_.FindJob("job");
    hello.membership =
        job != nullptr && Coin() ? job->membership() : Membership{{1 + Below(2), 1}, {{"a", "b"}}};
    if (Seldom()) hello.membership.generation.term = core_.config().term + Below(3);
    for (uint32_t i = 0; i < Below(3); ++i) {
      LaneHistory lane;
      lane.name = Coin() ? "lane" : "call/x";
      lane.kind = lane.name == "lane" ? LaneKind::kGradient : LaneKind::kCall;
      lane.lane = Index() % 70;
      for (uint32_t t = 0; t < Below(3); ++t) lane.layout.push_back(Tensor());
      lane.last_verdict = Below(3);
      lane.chain = Below(2);
      if (job != nullptr && job->lanes.size() > 0 && Coin()) {
        lane.last_verdict = job->lanes.begin()->next - 1;
        lane.chain = job->lanes.begin()->chain;
      }
      if (Coin()) {
        lane.staged = StagedValue{lane.last_verdict + 1, {1, Below(3)}, {1, Below(3)}, SomeValue()};
      }
      lane.let_go = Seldom();
      lane.held = Ranges();
      lane.held_ballot = SomeBallot();
      hello.lanes.push_back(std::move(lane));
    }
    return hello;
  }

  ToAggregator Message() {
    switch (Below(21)) {
      case 0:
        return Ready{Below(2), Below(2)};
      case 1:
        return Register{Seldom() ? "call/x" : "lane",
                        Seldom() ? LaneKind::kCall : LaneKind::kGradient,
                        {Tensor(), Tensor()}};
      case 2:
        return LayoutSeen{Index(), Below(5)};
      case 3:
      case 4:
      case 5:
        return Begin{Index(), Round(), SomeSpec(), {}, 0, {}};
      case 6:
        return Skip{Index(), Round(), {Index()}};
      case 7:
      case 8: {
        Commit commit{Index(), Round(), Below(5), {}, Below(7), Below(3) * kChunkBytes, Below(9)};
        commit.present.Resize(Below(5));
        for (size_t i = 0; i < commit.present.size(); ++i) {
          if (Coin()) commit.present.Set(i);
        }
        return commit;
      }
      case 9:
        return Withdraw{Index(), Round(), "why"};
      case 10:
      case 11:
        return Staged{Index(), Round(), SomeBallot()};
      case 12:
        return ResultAck{Index(), Round(), SomeBallot(), Ranges()};
      case 13:
        return Need{Index(), Round(), SomeBallot(), Ranges()};
      case 14:
        return Busy{"busy", absl::Seconds(Below(2))};
      case 15:
        if (Seldom()) return Abandon{};
        if (Seldom()) return Leave{};
        if (Seldom()) return Finished{};
        return Heartbeat{};
      case 16:
        return Announce{{"lane", "t0", Below(3)}, Tensor(), Below(2)};
      case 17:
        return Get{{"lane", "t0", Below(3)}, std::nullopt, std::nullopt, Index(), Index(),
                   absl::Seconds(Below(9))};
      case 18:
        return SomeHello();
      case 19:
        return LetGo{Index(), Round()};
      default:
        return Ready{};
    }
  }

  void Drop(SessionId session) {
    sessions_.erase(std::remove(sessions_.begin(), sessions_.end(), session), sessions_.end());
  }

  Taken Next() {
    const SessionId session =
        sessions_.empty() ? 1 : sessions_[Below(static_cast<uint32_t>(sessions_.size()))];
    const uint32_t what = Below(40);
    if (sessions_.empty() || what == 0) {
      sessions_.push_back(++last_session_);
      hello_next_ = last_session_;
      return SessionOpened{last_session_, Below(100)};
    }
    if (hello_next_ != 0) return MessageReceived{std::exchange(hello_next_, 0), SomeHello()};
    if (what == 1) {
      Drop(session);
      return SessionLost{session, Coin()};
    }
    if (what < 4) return Tick{};
    if (what < 10 && !pending_.empty()) {
      const size_t at = Below(static_cast<uint32_t>(pending_.size()));
      Taken event = pending_[at];
      pending_.erase(pending_.begin() + static_cast<std::ptrdiff_t>(at));
      return event;
    }
    if (what < 18) {
      FrameReceived frame;
      frame.session = session;
      frame.kind = Seldom() ? FrameKind::kSupply : FrameKind::kContribution;
      frame.lane = Index();
      frame.round = Round();
      frame.ballot = SomeBallot();
      frame.ranges = {Range()};
      if (Seldom()) frame.ranges.push_back(Range());
      frame.bytes = kChunkBytes;
      frame.digests = {Seldom() ? Digest{8} : Digest{1}};
      return frame;
    }
    if (what == 18) return BlobReceived{session, {"lane", "t0", Below(3)}, Index(), Index()};
    if (what == 19 && Seldom()) {
      switch (Below(8)) {
        case 0:
          return EvictWorker{"job", Id(), "why"};
        case 1:
          return WorkerExited{"job", Id()};
        case 2:
          return DrainWorker{"job", Id()};
        case 3:
          return RecoverJob{"job"};
        case 4:
          return SuspendJob{"job"};
        case 5:
          return ResumeJob{"job"};
        case 6:
          return Setting();
        default:
          return Seldom() ? Input{DrainService{}} : Input{Tick{}};
      }
    }
    return MessageReceived{session, Message()};
  }

  void Step(const Taken& taken) {
    now_ += absl::Milliseconds(Seldom() ? Below(20000) : Below(300));
    std::vector<Action> actions;
    std::visit([&](const auto& what) { core_.Step(what, now_, actions); }, taken);
    Take(actions);
    if (core_.NextDeadline() <= now_) {
      actions.clear();
      core_.Step(Tick{}, now_, actions);
      Take(actions);
      ASSERT_GT(core_.NextDeadline(), now_) << "a deadline that has passed is not cleared";
    }
    ASSERT_LE(core_.reserved_bytes(), config_.memory_bytes);
    for (const auto& [id, job] : core_.jobs()) {
      for (const Lane& lane : job.lanes) {
        if (!lane.round.has_value()) continue;
        ASSERT_LE(lane.round->held.bytes(), lane.memory.result_window);
        for (const RoundMember& member : lane.round->members()) {
          for (const auto& [shard, bytes] : member.contribution.parked()) {
            ASSERT_LE(bytes, lane.memory.window) << shard;
          }
          ASSERT_LE(member.contribution.missing().total(), lane.layout.bytes());
        }
      }
    }
  }

  void Take(const std::vector<Action>& actions) {
    for (const Action& action : actions) {
      if (const auto* reduce = std::get_if<Reduce>(&action)) {
        ReduceDone done{
            reduce->job, reduce->lane, reduce->round, reduce->ballot, reduce->ranges, {}, {}};
        done.digests.assign(CountChunks(reduce->ranges), 1);
        pending_.push_back(std::move(done));
      } else if (const auto* save = std::get_if<SaveState>(&action)) {
        pending_.push_back(StateSaved{save->job, save->membership.generation, Coin()});
      } else if (const auto* set = std::get_if<SaveSettings>(&action)) {
        pending_.push_back(SettingsSaved{set->job, Coin()});
      } else if (const auto* end = std::get_if<EndSession>(&action)) {
        Drop(end->session);
      } else if (const auto* send = std::get_if<Send>(&action)) {
        if (const auto* welcome = std::get_if<Welcome>(&send->message)) {
          const Job* job = core_.FindJob("job");
          if (job == nullptr) continue;
          for (const auto& [id, slot] : job->workers.by_id()) {
            if (job->workers[slot].incarnation == welcome->incarnation) {
              incarnations_[id] = welcome->incarnation;
            }
          }
        }
      }
    }
  }

  std::mt19937 random_;
  absl::Time now_ = absl::FromUnixSeconds(1000);
  Config config_;
  Coordinator core_;
  SessionId last_session_ = 0;
  SessionId hello_next_ = 0;
  std::vector<SessionId> sessions_;
  std::vector<Taken> pending_;
  std::map<WorkerId, Incarnation> incarnations_;
};

TEST(Hostile, NothingThatPeersSayBreaksTheCore) {
  for (uint32_t seed = 1; seed <= kSeeds; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Peers peers(seed);
    peers.Run();
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace basin::aggregator
