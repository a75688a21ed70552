// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// How a worker becomes a member: at genesis, as a joiner with a start round, or after an eviction;
// and how its membership ends.

#include "gtest/gtest.h"
#include "tests/client/core/harness.h"

namespace basin::client {
namespace {

TEST(JoiningTest, GenesisStartsLanesAtRoundOne) {
  Harness worker;
  worker.Connect();
  worker.RegisterModel();
  EXPECT_EQ(worker.Do(DeclareReady{3, 4}).OneSent<Ready>(), (Ready{3, 4}));
  const MembershipNow now =
      worker.Receive(MembershipChanged{worker.Members(), Role::kMember, std::nullopt, {}})
          .One<MembershipNow>();
  EXPECT_EQ(now.role, Role::kMember);
  EXPECT_EQ(now.rank, 0u);
  EXPECT_TRUE(now.joined);
  EXPECT_EQ(now.donor, std::nullopt);
  EXPECT_TRUE(worker.lane().started);
  EXPECT_EQ(worker.lane().last_verdict, 0u);
  EXPECT_EQ(worker.lane().chain, 0u);
  const basin::Begin begin =
      worker.Do(BeginRound{0, Harness::Average(), {}, 17, {{1, 2}}}).OneSent<basin::Begin>();
  EXPECT_EQ(begin.lane, kLane);
  EXPECT_EQ(begin.round, 1u);
  EXPECT_EQ(begin.spec, Harness::Average());
  EXPECT_EQ(begin.step_label, 17u);
  EXPECT_EQ(begin.samples, (std::vector<SampleRange>{{1, 2}}));
}

// A trainer may need a place before its worker is ready.
TEST(JoiningTest, AWorkerThatIsNotReadyHasThePlaceThatItWouldGet) {
  Config config = TestConfig();
  config.worker = "w-3";
  Harness worker(config);
  Welcome welcome = worker.MakeWelcome();
  EXPECT_FALSE(worker.client.was_welcomed());
  welcome.settings.max_workers = 4;
  worker.Connect(welcome);
  EXPECT_TRUE(worker.client.was_welcomed());
  EXPECT_EQ(worker.client.expected(), std::nullopt) << "the job waits for it";

  worker.Do(SessionDown{"reset"});
  worker.Do(SessionUp{});
  welcome.job_runs = true;
  welcome.membership = worker.Members();
  worker.Receive(welcome);
  EXPECT_EQ(worker.client.expected(), (ExpectedRank{3, 4})) << "joiners are appended";
  worker.Receive(
      MembershipChanged{{{kTerm, 2}, {{"w-0", "w-2"}}}, Role::kJoiner, std::nullopt, {}});
  EXPECT_EQ(worker.client.expected(), (ExpectedRank{2, 3})) << "one has left";
  worker.Receive(
      MembershipChanged{{{kTerm, 3}, {{"w-0", "w-2", "w-3"}}}, Role::kJoiner, std::nullopt, {}});
  EXPECT_EQ(worker.client.expected(), (ExpectedRank{2, 3})) << "an earlier process is a member";
  worker.Receive(MembershipChanged{
      {{kTerm, 4}, {{"w-0", "w-1", "w-2", "w-4"}}}, Role::kJoiner, std::nullopt, {}});
  EXPECT_EQ(worker.client.expected(), (ExpectedRank{3, 4})) << "there is no room for a fifth";
  worker.Receive(
      MembershipChanged{{{kTerm, 5}, {{"w-0", "w-2", "w-3"}}}, Role::kMember, std::nullopt, {}});
  EXPECT_EQ(worker.client.expected(), std::nullopt);
  EXPECT_EQ(worker.client.rank(), 2u);
}

TEST(JoiningTest, OfSeveralTrainersEachHasAnExpectedRank) {
  Config config = TestConfig();
  config.worker = "w-9";
  config.ranks = 4;
  config.local_rank = 1;
  Harness worker(config);
  Welcome welcome = worker.MakeWelcome();
  welcome.features |= kFeatureRanks;
  welcome.settings.max_workers = 4;
  welcome.job_runs = true;
  welcome.membership = {{kTerm, 1}, MemberList::WithRanks({"w-0", "w-1"}, {2, 3})};
  worker.Connect(welcome);
  EXPECT_EQ(worker.client.expected(), (ExpectedRank{6, 9}));
}

TEST(JoiningTest, Fault_W17_AJoinerStartsWhereItIsTold) {
  Harness worker;
  worker.Connect();
  worker.Do(RegisterTensors{"g", LaneKind::kGradient, Model()});
  worker.Receive(worker.MakeLayout(0, 6));
  worker.Do(DeclareReady{});
  EXPECT_FALSE(worker.lane().started);
  EXPECT_TRUE(worker.Do(worker.Result({1, 0, 1}, 1, 6)).all.empty()) << "not its round";
  EXPECT_TRUE(worker.Receive(worker.MakePrepared(1, 6)).all.empty());
  EXPECT_TRUE(worker.Receive(worker.MakeVerdict(worker.Value())).all.empty());
  EXPECT_TRUE(worker.Receive(AttemptRestarted{kLane, 6, {kTerm, 2}, "", {}, 0}).all.empty());
  const MembershipNow now = worker
                                .Receive(MembershipChanged{
                                    worker.Members(4), Role::kMember, "w-1", {{"g", kLane, 8, 77}}})
                                .One<MembershipNow>();
  EXPECT_TRUE(now.joined);
  EXPECT_EQ(now.donor, "w-1");
  EXPECT_EQ(worker.lane().last_verdict, 7u);
  EXPECT_EQ(worker.lane().chain, 77u);
  worker.Begin();
  EXPECT_EQ(worker.lane().round->number(), 8u);
}

TEST(JoiningTest, Fault_W18_AnotherDonorIsNews) {
  Harness worker;
  worker.Connect();
  worker.RegisterModel();
  MembershipChanged told{worker.Members(4), Role::kMember, "w-1", {{"g", kLane, 8, 77}}};
  worker.Receive(told);
  told.donor = "w-2";
  told.start.clear();
  const MembershipNow now = worker.Receive(told).One<MembershipNow>();
  EXPECT_EQ(now.donor, "w-2");
  EXPECT_FALSE(now.joined);
  told.donor.reset();
  EXPECT_TRUE(worker.Receive(told).all.empty());
}

// An aggregator that has lost its memory must not wait for a worker that has the state already, and
// must not let a worker serve a state that it lacks.
TEST(JoiningTest, SaysInItsHelloThatItLacksTheStateUntilItHasBegun) {
  const auto says = [](Harness& worker) {
    worker.Do(SessionDown{});
    const Hello hello = worker.Do(SessionUp{}).OneSent<Hello>();
    Welcome welcome = worker.MakeWelcome(Role::kMember);
    welcome.membership = worker.Members(4);
    worker.Receive(welcome);
    return hello.lacks_state;
  };
  for (const std::optional<WorkerId>& donor : {std::optional<WorkerId>(), {"w-0"}, {"w-1"}}) {
    Harness worker;
    worker.Connect();
    worker.RegisterModel();
    const bool is_donor = donor == worker.client.config().worker;
    worker.Receive(
        MembershipChanged{worker.Members(4), Role::kMember, donor, {{"g", kLane, 8, 77}}});
    EXPECT_EQ(says(worker), donor.has_value() && !is_donor);
    worker.Begin();
    EXPECT_FALSE(says(worker));
  }
}

TEST(JoiningTest, ALaneThatIsRegisteredAfterTheStartWasToldStartsThere) {
  Harness worker;
  worker.Connect();
  worker.Receive(MembershipChanged{worker.Members(), Role::kMember, "w-1", {{"g", kLane, 8, 77}}});
  worker.Do(RegisterTensors{"g", LaneKind::kGradient, Model()});
  EXPECT_EQ(worker.lane().chain, 77u);
  worker.Begin();
  EXPECT_EQ(worker.lane().round->number(), 8u);
  EXPECT_EQ(worker.Receive(worker.MakeLayout(0, 8)).MessageNames(), "LayoutSeen Begin");
}

TEST(JoiningTest, BeginWaitsForTheLanesIndex) {
  Harness worker;
  worker.Connect();
  worker.Receive(MembershipChanged{worker.Members(), Role::kMember, std::nullopt, {}});
  worker.Do(RegisterTensors{"g", LaneKind::kGradient, Model()});
  EXPECT_TRUE(worker.Do(BeginRound{0, Harness::Average(), {}, 0, {}}).all.empty());
  EXPECT_TRUE(worker.PushOne(kB).all.empty());
  EXPECT_TRUE(worker.Do(CommitRound{0}).all.empty());
  const Actions actions = worker.Receive(worker.MakeLayout());
  EXPECT_EQ(actions.MessageNames(), "LayoutSeen Begin Commit");
  EXPECT_EQ(actions.One<SendContribution>().ranges, (ChunkRanges{{1, 0, 1}}));
  EXPECT_EQ(worker.lane().round->number(), 1u);
}

TEST(JoiningTest, ALaneWhoseChainIsNotKnownTakesItFromTheFirstVerdict) {
  Harness worker;
  worker.Connect();
  worker.Receive(MembershipChanged{worker.Members(), Role::kMember, std::nullopt, {}});
  worker.Do(RegisterTensors{"g", LaneKind::kGradient, Model()});
  worker.Receive(worker.MakeLayout(0, 5));
  EXPECT_EQ(worker.lane().last_verdict, 4u);
  EXPECT_EQ(worker.lane().chain, std::nullopt);
  worker.Do(SessionDown{""});
  EXPECT_TRUE(worker.Do(SessionUp{}).OneSent<Hello>().lanes.empty()) << "nothing to tell of it";
  worker.Receive(worker.MakeWelcome(Role::kMember));
  worker.StreamsUp();
  worker.Receive(worker.MakeLayout(0, 5));
  EXPECT_TRUE(worker.FinishRound().Has<Deliver>());
  EXPECT_EQ(worker.lane().chain, ExtendChain(0, 5, worker.Value()));
}

TEST(JoiningTest, ASpareIsTold) {
  Harness worker;
  worker.Connect();
  worker.Do(DeclareReady{});
  const MembershipNow now =
      worker.Receive(MembershipChanged{{{kTerm, 1}, {{"w-1"}}}, Role::kSpare, std::nullopt, {}})
          .One<MembershipNow>();
  EXPECT_EQ(now.role, Role::kSpare);
  EXPECT_EQ(now.rank, std::nullopt);
  EXPECT_FALSE(now.joined);
  worker.Do(SessionDown{""});
  const Hello hello = worker.Do(SessionUp{}).OneSent<Hello>();
  EXPECT_EQ(hello.membership, Membership{}) << "it has no history";
  EXPECT_EQ(hello.incarnation, (Incarnation{kTerm, 1}));
  EXPECT_TRUE(worker.Receive(worker.MakeWelcome(Role::kSpare)).HasSent<Ready>());
}

TEST(JoiningTest, MembershipOfOthersIsToldAndAnOlderOneIsIgnored) {
  Harness worker;
  worker.BecomeMember();
  const Membership two{{kTerm, 2}, {{"w-1", "w-0"}}};
  const MembershipNow now =
      worker.Receive(MembershipChanged{two, Role::kMember, "w-1", {}}).One<MembershipNow>();
  EXPECT_EQ(now.rank, 1u);
  EXPECT_FALSE(now.joined);
  EXPECT_TRUE(
      worker.Receive(MembershipChanged{worker.Members(1), Role::kMember, {}, {}}).all.empty());
  EXPECT_TRUE(worker.Receive(MembershipChanged{two, Role::kMember, "w-1", {}}).all.empty());
  EXPECT_EQ(worker.client.rank(), 1u);
}

TEST(JoiningTest, AWelcomeDoesNotMakeAMemberWithoutStartRounds) {
  Harness worker;
  worker.Connect();
  worker.RegisterModel();
  worker.Do(DeclareReady{});
  worker.Do(SessionDown{""});
  Welcome welcome = worker.MakeWelcome(Role::kMember);
  welcome.membership = worker.Members(4);
  const Actions actions = worker.Connect(welcome);
  EXPECT_FALSE(actions.HasSent<Ready>()) << "it is known to be ready";
  EXPECT_EQ(worker.client.role(), Role::kJoiner);
  worker.Receive(MembershipChanged{worker.Members(4), Role::kMember, "w-1", {{"g", kLane, 3, 5}}});
  EXPECT_EQ(worker.client.role(), Role::kMember);
  EXPECT_EQ(worker.lane().last_verdict, 2u);
}

TEST(JoiningTest, AVerdictWithoutTheWorkerEndsItsMembership) {
  Harness worker;
  worker.BecomeMember();
  worker.Receive(Drain{false});
  worker.Contribute();
  worker.Stage();
  Verdict verdict = worker.MakeVerdict(worker.Value());
  verdict.record.next = {{kTerm, 2}, {{"w-1", "w-2"}}};
  const Actions actions = worker.Receive(verdict);
  EXPECT_TRUE(actions.Has<Deliver>());
  const MembershipNow now = actions.One<MembershipNow>();
  EXPECT_EQ(now.role, Role::kJoiner);
  EXPECT_EQ(now.rank, std::nullopt);
  EXPECT_EQ(worker.Do(BeginRound{}).One<Refused>().error.code, ErrorCode::kFailedPrecondition);
  worker.Do(SessionDown{""});
  EXPECT_FALSE(worker.Connect().HasSent<Ready>()) << "a drained worker stays away";
  // The worker is ready again, and starts with state like any joiner.
  worker.Do(DeclareReady{});
  worker.Receive(MembershipChanged{worker.Members(5), Role::kMember, "w-2", {{"g", kLane, 9, 1}}});
  EXPECT_EQ(worker.lane().last_verdict, 8u);
}

// The round of a call lane may be open past the boundary at which the worker is drained.
TEST(JoiningTest, ARoundOfAnEarlierMembershipFailsWhenTheWorkerJoinsAnew) {
  Harness worker;
  worker.BecomeMember();
  worker.Begin();
  worker.Stage();
  Verdict verdict = worker.MakeVerdict(worker.Value());
  verdict.record.next = {{kTerm, 2}, {{"w-1", "w-2"}}};
  worker.Receive(verdict);
  ASSERT_EQ(worker.lane().round->state(), RoundState::kDecided);
  const Actions actions = worker.Receive(
      MembershipChanged{worker.Members(3), Role::kMember, "w-2", {{"g", kLane, 4, 1}}});
  EXPECT_EQ(actions.One<FailRound>().error.code, ErrorCode::kEvicted);
  EXPECT_TRUE(worker.Do(CommitRound{0}).Has<Refused>());
  EXPECT_EQ(worker.lane().last_verdict, 3u);
}

TEST(JoiningTest, AVerdictNamesWhoJoinsAndTheDonor) {
  Harness worker;
  worker.BecomeMember();
  worker.Contribute();
  worker.Stage();
  Verdict verdict = worker.MakeVerdict(worker.Value());
  verdict.record.next = {{kTerm, 2}, {{"w-0", "w-1", "w-2", "w-3"}}};
  verdict.donor = "w-0";
  const Actions actions = worker.Receive(verdict);
  const MembershipNow now = actions.One<MembershipNow>();
  EXPECT_EQ(now.membership, verdict.record.next);
  EXPECT_FALSE(now.joined);
  EXPECT_EQ(now.donor, "w-0");
  EXPECT_TRUE(std::holds_alternative<Deliver>(actions.all[0])) << "results first";
}

// What the trainer has when it begins round 1 is the state before it, and those who have joined
// begin with round 2.
TEST(JoiningTest, Fault_W17_ATrainerThatIsBehindServesItsStateOneRoundLater) {
  const auto behind = [](Harness& worker) {
    worker.BecomeMember();
    worker.Stage();
    worker.Receive(worker.MakeVerdict(worker.Value()));
  };
  const auto donor_of = [](const Actions& actions) {
    const std::vector<MembershipNow> now = actions.Of<MembershipNow>();
    return now.empty() ? std::nullopt : now.back().donor;
  };
  Harness worker;
  behind(worker);
  const MembershipNow paused =
      worker.Receive(MembershipChanged{worker.Members(2), Role::kMember, "w-0", {}})
          .One<MembershipNow>();
  EXPECT_EQ(paused.membership, worker.Members(2));
  EXPECT_EQ(paused.donor, std::nullopt);
  EXPECT_EQ(donor_of(worker.Do(BeginRound{0, Harness::Average(), {}, 17, {}})), std::nullopt);
  // Another change, in which nobody joins, is not the one that the state is served for.
  worker.Receive(MembershipChanged{worker.Members(3), Role::kMember, std::nullopt, {}});
  const Actions taken = worker.Do(CommitRound{0});
  EXPECT_TRUE(taken.Has<Deliver>());
  EXPECT_EQ(donor_of(taken), "w-0");
  EXPECT_EQ(taken.One<MembershipNow>().donor_since, worker.Members(2).generation);
  EXPECT_EQ(taken.One<MembershipNow>().membership, worker.Members(3));
  EXPECT_EQ(donor_of(worker.Do(BeginRound{0, Harness::Average(), {}, 18, {}})), std::nullopt);

  Harness finished;
  behind(finished);
  finished.Receive(MembershipChanged{finished.Members(2), Role::kMember, "w-0", {}});
  EXPECT_EQ(donor_of(finished.Do(Finish{})), std::nullopt) << "it never takes the result";

  Harness evicted;
  behind(evicted);
  evicted.Receive(MembershipChanged{evicted.Members(2), Role::kMember, "w-0", {}});
  EXPECT_EQ(donor_of(evicted.Receive(Ended{{ErrorCode::kEvicted, "silent"}})), std::nullopt);
}

// The verdict that admits others may also be the one whose result the trainer has not taken.
TEST(JoiningTest, Fault_W17_ATrainerThatIsBehindByTheVerdictThatAdmitsServesOneRoundLater) {
  for (const bool begun : {false, true}) {
    Harness worker;
    worker.BecomeMember();
    if (begun) worker.Begin();
    worker.Stage();
    Verdict verdict = worker.MakeVerdict(worker.Value());
    verdict.record.next = {{kTerm, 2}, {{"w-0", "w-1", "w-2", "w-3"}}};
    verdict.donor = "w-0";
    EXPECT_EQ(worker.Receive(verdict).One<MembershipNow>().donor, std::nullopt);
    if (!begun) worker.Begin();
    EXPECT_EQ(worker.Do(CommitRound{0}).One<MembershipNow>().donor, "w-0");
  }
}

void ExpectEvicted(Harness& worker, const Actions& actions) {
  EXPECT_EQ(actions.One<FailRound>().error.code, ErrorCode::kEvicted);
  const MembershipNow now = actions.Of<MembershipNow>().at(0);
  EXPECT_EQ(now.role, Role::kJoiner);
  EXPECT_EQ(now.membership.generation, Generation{});
  EXPECT_FALSE(worker.client.has_history());
  EXPECT_FALSE(worker.lane().started);
}

TEST(JoiningTest, Fault_W3_AnEvictedWorkerRejoinsWithState) {
  Harness worker;
  worker.BecomeMember();
  worker.FinishRound();
  worker.Contribute();
  ExpectEvicted(worker, worker.Receive(Ended{{ErrorCode::kEvicted, "silent for 6 s"}}));
  EXPECT_EQ(worker.Do(BeginRound{}).One<Refused>().error.code, ErrorCode::kEvicted);
  const Hello hello = worker.Do(SessionUp{}).OneSent<Hello>();
  EXPECT_EQ(hello.nonce, 99u);
  EXPECT_EQ(hello.incarnation, Incarnation{});
  EXPECT_EQ(hello.membership, Membership{});
  EXPECT_TRUE(hello.lanes.empty());
  Welcome welcome = worker.MakeWelcome();
  welcome.incarnation = {kTerm, 7};
  welcome.layouts = {worker.MakeLayout(0, 4)};
  welcome.verdicts = {{kLane, {worker.MakeVerdict(worker.Value()).record}}};
  const Actions welcomed = worker.Receive(welcome);
  EXPECT_FALSE(welcomed.HasSent<Ready>());
  EXPECT_FALSE(welcomed.HasSent<basin::Begin>());
  worker.StreamsUp();
  EXPECT_EQ(worker.Do(BeginRound{}).One<Refused>().error.code, ErrorCode::kEvicted);
  EXPECT_TRUE(worker.Do(DeclareReady{}).HasSent<Ready>());
  EXPECT_EQ(worker.Do(BeginRound{}).One<Refused>().error.code, ErrorCode::kFailedPrecondition)
      << "it rejoins, and has to wait";
  worker.Receive(MembershipChanged{worker.Members(9), Role::kMember, "w-2", {{"g", kLane, 4, 11}}});
  EXPECT_EQ(worker.lane().last_verdict, 3u);
  EXPECT_TRUE(worker.FinishRound().Has<Deliver>());
}

TEST(JoiningTest, Fault_W3_AnotherIncarnationInTheWelcomeIsAnEviction) {
  Harness worker;
  worker.BecomeMember();
  worker.Contribute();
  worker.Do(SessionDown{""});
  Welcome welcome = worker.MakeWelcome();
  welcome.incarnation = {kTerm, 2};
  welcome.membership = {{kTerm, 3}, {{"w-1", "w-2"}}};
  welcome.layouts = {worker.MakeLayout(0, 2)};
  const Actions actions = worker.Connect(welcome);
  ExpectEvicted(worker, actions);
  EXPECT_FALSE(actions.HasSent<basin::Begin>());
  EXPECT_EQ(worker.client.incarnation(), (Incarnation{kTerm, 2}));
  EXPECT_EQ(worker.client.membership().members.size(), 2u) << "and then that of the others";
}

TEST(JoiningTest, WhoWasNoMemberYetIsAsReadyAfterAnEviction) {
  Harness worker;
  worker.Connect();
  worker.RegisterModel();
  EXPECT_TRUE(worker.Do(DeclareReady{}).HasSent<Ready>());
  worker.Receive(Ended{{ErrorCode::kEvicted, "by an operator"}});
  worker.Do(SessionUp{});
  Welcome welcome = worker.MakeWelcome();
  welcome.incarnation = {kTerm, 7};
  EXPECT_TRUE(worker.Receive(welcome).HasSent<Ready>()) << "the trainer was told nothing to load";
}

TEST(JoiningTest, WhoIsNoMemberFollowsAnAggregatorOfALowerTerm) {
  Harness worker;
  Welcome higher = worker.MakeWelcome();
  higher.term = kTerm + 5;
  higher.membership = {{kTerm + 5, 1}, {{"w-1", "w-2"}}};
  worker.Connect(higher);
  worker.RegisterModel();
  worker.Do(DeclareReady{});
  worker.Do(SessionDown{""});
  Welcome welcome = worker.MakeWelcome();
  welcome.incarnation = {kTerm, 9};
  worker.Connect(welcome);
  const MembershipNow now =
      worker.Receive(MembershipChanged{worker.Members(), Role::kMember, std::nullopt, {}})
          .One<MembershipNow>();
  EXPECT_TRUE(now.joined);
  EXPECT_EQ(now.membership, worker.Members());
}

TEST(JoiningTest, TwoLanesMaySwapTheirNumbers) {
  Harness worker;
  worker.Connect();
  worker.RegisterModel();
  worker.Do(RegisterTensors{"h", LaneKind::kGradient, {F32("h", 4)}});
  LaneLayout g = worker.MakeLayout();
  LaneLayout h{kLane + 1, "h", LaneKind::kGradient, 0, {F32("h", 4)}, 1, kWindow};
  worker.Receive(g);
  worker.Receive(h);
  worker.Do(SessionDown{"reset"});
  worker.Do(SessionUp{});
  std::swap(g.lane, h.lane);
  Welcome welcome = worker.MakeWelcome();
  welcome.layouts = {g, h};
  worker.Receive(welcome);
  worker.StreamsUp();
  worker.Receive(MembershipChanged{
      worker.Members(), Role::kMember, std::nullopt, {{"g", g.lane, 1, 0}, {"h", h.lane, 1, 0}}});
  worker.Begin();
  ASSERT_TRUE(worker.PushOne(kB).HasSent<basin::Begin>() ||
              worker.lane().round->push().unacked_bytes() > 0);
  worker.Receive(Credit{g.lane, 1, kWindow, {{1, 0, 1}}, {}});
  EXPECT_EQ(worker.lane().round->push().unacked_bytes(), 0u) << "it hears what is meant for it";
}

// Until the first generation is announced, another aggregator may lay the lane out differently.
TEST(JoiningTest, WithoutHistoryALayoutMayBeginAnew) {
  Harness worker;
  worker.Connect();
  worker.RegisterModel();
  worker.Do(SessionDown{""});
  Welcome welcome = worker.MakeWelcome();
  LaneLayout layout = worker.MakeLayout();
  layout.lane = 8;
  layout.tensors = {F32("c", 0), F32("b", 100)};
  welcome.layouts = {layout};
  EXPECT_EQ(worker.Connect(welcome).OneSent<LayoutSeen>(), (LayoutSeen{8, 2}));
  EXPECT_EQ(worker.lane().index, LaneIndex{8});
  EXPECT_EQ(worker.lane().tensors[kB].index, TensorIndex{1});
  EXPECT_EQ(worker.lane().tensors[kA].index, std::nullopt);
}

// A worker joined a job whose other workers make the call x; the aggregator lets it start at round
// 3.
struct JoinedCall : Harness {
  JoinedCall() {
    Connect();
    Do(DeclareReady{});
    Receive(MembershipChanged{Members(), Role::kMember, "w-1", {{"x", kLane, 3, 77}}});
  }
  // The answer to its registration.
  LaneLayout Layout(RoundNumber round) const {
    return LaneLayout{kLane, "x", LaneKind::kCall, 0, {F32("a", 5)}, round, kWindow};
  }
  void Register(RoundNumber round) {
    Do(RegisterTensors{"x", LaneKind::kCall, {F32("a", 5)}});
    Receive(Layout(round));
  }
  // The verdict of the other workers for round 3.
  Verdict VerdictWithout() const {
    RoundValue value = Value();
    value.layout_version = 1;
    value.contributors = {{"w-0", {kTerm, 9}, 1}, {"w-1", {kTerm, 2}, 1}};
    Verdict verdict{kLane, {}, std::nullopt};
    verdict.record.round = 3;
    verdict.record.ballot = verdict.record.value_ballot = {kTerm, 1};
    verdict.record.value = value;
    verdict.record.next = client.membership();
    verdict.record.chain = ExtendChain(77, 3, value);
    return verdict;
  }
};

TEST(JoiningTest, Fault_W19_ACallThatWasMadeBeforeTheTrainerNamesItIsOver) {
  JoinedCall worker;
  worker.Receive(worker.VerdictWithout());
  worker.Register(4);
  EXPECT_EQ(worker.lane().last_verdict, 3u);
  EXPECT_EQ(worker.Do(BeginRound{0, Harness::Average(), {}, 0, {}}).OneSent<basin::Begin>().round,
            4u);
}

TEST(JoiningTest, Fault_W19_ACallThatWasBegunBeforeItIsAnsweredIsTheNextOne) {
  JoinedCall worker;
  worker.Do(RegisterTensors{"x", LaneKind::kCall, {F32("a", 5)}});
  worker.Do(BeginRound{0, Harness::Average(), {}, 0, {}});
  EXPECT_EQ(worker.Receive(worker.Layout(4)).OneSent<basin::Begin>().round, 4u);
}

TEST(JoiningTest, Fault_W19_ACallThatIsMadeWithoutItIsNotDelivered) {
  JoinedCall worker;
  worker.Register(3);
  EXPECT_TRUE(worker.Receive(worker.VerdictWithout()).Of<client::Deliver>().empty());
  EXPECT_EQ(worker.lane().last_verdict, 3u);
  EXPECT_FALSE(worker.lane().undelivered.has_value());
  const Actions begin = worker.Do(BeginRound{0, Harness::Average(), {}, 0, {}});
  EXPECT_EQ(begin.OneSent<basin::Begin>().round, 4u);
  EXPECT_FALSE(begin.Has<client::Deliver>());
}

TEST(JoiningTest, Fault_W19_ACallThatIsBegunTooLateIsTheNextOne) {
  JoinedCall worker;
  worker.Register(3);
  worker.Begin();
  worker.Do(PushTensor{0, 0, 5, 1.0});
  worker.Do(CommitRound{0});
  worker.Do(WaitRound{0, absl::InfiniteFuture()});
  worker.Receive(Credit{kLane, 3, kWindow, {{0, 0, 1}}, {}});
  const Actions actions = worker.Receive(worker.VerdictWithout());
  EXPECT_EQ(actions.MessageNames(), "Begin Commit");
  EXPECT_EQ(actions.OneSent<basin::Begin>().round, 4u);
  EXPECT_EQ(actions.One<SendContribution>().round, 4u);
  EXPECT_FALSE(actions.Has<FailRound>());
  EXPECT_TRUE(worker.lane().round->wait().until().has_value()) << "its trainer waits on";
}

// It has no result of the call that was made without it, so it withdraws from the next one.
TEST(JoiningTest, Fault_W19_ACallThatItWithdrewFromTooLateIsTheNextOne) {
  JoinedCall worker;
  worker.Register(3);
  worker.Begin();
  worker.Do(WithdrawRound{0, "no data"});
  worker.Do(WaitRound{0, absl::InfiniteFuture()});
  const Actions actions = worker.Receive(worker.VerdictWithout());
  EXPECT_EQ(actions.OneSent<Withdraw>().round, 4u);
  EXPECT_FALSE(actions.Has<FailRound>());
}

TEST(JoiningTest, Fault_W19_HeartbeatsSayWhatTheTrainerWaitsFor) {
  JoinedCall worker;
  worker.Register(3);
  worker.Begin();
  worker.Do(CommitRound{0});
  EXPECT_TRUE(worker.Pass(absl::Milliseconds(500)).OneSent<Heartbeat>().waits.empty());
  worker.Do(WaitRound{0, absl::InfiniteFuture()});
  EXPECT_EQ(worker.Pass(absl::Milliseconds(500)).OneSent<Heartbeat>().waits,
            (std::vector<RoundWait>{{kLane, 3}}));
  worker.Do(SessionDown{"reset"});
  worker.Do(SessionUp{});
  Welcome welcome = worker.MakeWelcome(Role::kMember);
  welcome.membership = worker.Members();
  worker.Receive(welcome);
  EXPECT_TRUE(worker.Pass(absl::Milliseconds(500)).OneSent<Heartbeat>().waits.empty())
      << "this aggregator has not been told of the lane";
}

// A trainer does nothing else between two such waits.
TEST(JoiningTest, ATrainerThatWaitsInTurnsWaits) {
  JoinedCall worker;
  worker.Register(3);
  worker.Begin();
  worker.Do(CommitRound{0});
  worker.Do(WaitRound{0, worker.now + absl::Milliseconds(500)});
  EXPECT_EQ(worker.Pass(absl::Milliseconds(500)).OneSent<Heartbeat>().waits.size(), 1u);
  EXPECT_FALSE(worker.lane().round->wait().until().has_value());
  EXPECT_EQ(worker.Pass(absl::Milliseconds(500)).OneSent<Heartbeat>().waits.size(), 1u);
  EXPECT_TRUE(worker.Pass(absl::Milliseconds(500)).OneSent<Heartbeat>().waits.empty());
}

TEST(JoiningTest, ATrainerThatOnlyLooksDoesNotWait) {
  JoinedCall worker;
  worker.Register(3);
  worker.Begin();
  worker.Do(CommitRound{0});
  worker.Do(WaitRound{0, worker.now});
  EXPECT_TRUE(worker.Pass(absl::Milliseconds(500)).OneSent<Heartbeat>().waits.empty());
}

}  // namespace
}  // namespace basin::client
