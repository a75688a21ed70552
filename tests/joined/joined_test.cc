// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Jobs of real workers and the real engine, without sockets: threads, locks and bytes as in the
// service, under ThreadSanitizer.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <future>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "aggregator/engine/engine.h"
#include "client/group/sharing/sharing.h"
#include "client/transport/worker.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/cpu/cpu_reducer.h"
#include "proto/wire/status_detail.h"
#include "runtime/clock.h"
#include "tests/client/group/nccl/load_stand_in.h"
#include "tests/joined/network.h"
#include "tests/kernels/cuda/emulated_trainer_device.h"

namespace basin::joined {
namespace {

namespace nccl = client::nccl;
using kernels::cuda::EmulatedStream;
using kernels::cuda::FaultPlan;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr absl::Duration kLong = absl::Minutes(1);
constexpr char kLane[] = "model";

class Notes : public aggregator::NoteSink {
 public:
  void OnNote(const aggregator::Note&, absl::Time) override {}
};

ErrorCode CodeOf(const absl::Status& status) { return wire::ToError(status).code; }

// The service's side.
class Service {
 public:
  Service(Network& network, Clock& clock, aggregator::Config config) : network_(network) {
    aggregator::EngineOptions options;
    options.core = std::move(config);
    options.reduce_threads = 2;
    engine_ = std::make_unique<aggregator::Engine>(options, clock, *reducer_, notes_, nullptr);
    engine_->Start(network_);
    network_.Serve(engine_.get());
  }
  ~Service() {
    network_.Serve(nullptr);
    engine_->Stop();
  }
  aggregator::Engine& engine() { return *engine_; }

 private:
  Network& network_;
  Notes notes_;
  std::unique_ptr<kernels::Reducer> reducer_ = kernels::MakeCpuReducer();
  std::unique_ptr<aggregator::Engine> engine_;
};

// A trainer with two tensors, "weight" (several chunks and a rest) and "bias".
class Trainer {
 public:
  Trainer(Network& network, Clock& clock, const std::string& id, JobSettings settings)
      : connector_(network.ConnectorFor(id)) {
    client::WorkerOptions options;
    options.core.job = "job";
    options.core.run = "run";
    options.core.worker = id;
    options.core.fresh = true;  // A new job: no window of recovery at the start.
    options.core.settings = settings;
    absl::StatusOr<std::unique_ptr<client::Worker>> worker =
        client::Worker::Connect(std::move(options), *connector_, clock);
    EXPECT_TRUE(worker.ok()) << worker.status();
    worker_ = *std::move(worker);
    const auto model =
        worker_->Register(kLane, LaneKind::kGradient,
                          {{"weight", DType::kF32, {kWeights}}, {"bias", DType::kF32, {3}}});
    EXPECT_TRUE(model.ok()) << model.status();
    lane_ = model->lane;
    EXPECT_TRUE(worker_->Ready().ok());
  }

  client::Worker& worker() { return *worker_; }
  client::LaneHandle lane() const { return lane_; }
  void Die() { worker_.reset(); }
  absl::Status AwaitMember() { return worker_->AwaitMember(kLong); }

  // One round whose gradients are `value` everywhere; the result is in `weight` and `bias`.
  client::RoundOutcome Step(float value, RoundSpec spec = Sum()) {
    Contribute(value, spec);
    return Finish();
  }
  void Contribute(float value, RoundSpec spec = Sum(), uint32_t carries = 0) {
    sent_weight_.assign(kWeights, value);
    sent_bias_.assign(3, value);
    client::BeginRound begin;
    begin.lane = lane_;
    begin.spec = spec;
    begin.carries = carries;
    EXPECT_TRUE(worker_->Begin(begin).ok());
    EXPECT_TRUE(worker_->Push(lane_, 1, sent_bias_.data(), sent_bias_.size() * sizeof(float)).ok());
    EXPECT_TRUE(
        worker_->Push(lane_, 0, sent_weight_.data(), sent_weight_.size() * sizeof(float)).ok());
    const absl::Status committed = worker_->Commit(lane_);
    EXPECT_TRUE(committed.ok()) << committed;
  }
  client::RoundOutcome Finish(absl::Duration timeout = kLong) {
    client::RoundOutcome outcome = worker_->Wait(lane_, timeout);
    if (outcome.ok()) {
      weight.resize(kWeights);
      bias.resize(3);
      EXPECT_TRUE((*outcome)->CopyTo(0, weight.data(), weight.size() * sizeof(float)).ok());
      EXPECT_TRUE((*outcome)->CopyTo(1, bias.data(), bias.size() * sizeof(float)).ok());
    }
    return outcome;
  }
  // The value that the whole result has; NaN when it is not the same everywhere.
  float result() const {
    for (const float x : weight) {
      if (x != bias[0]) return std::nanf("");
    }
    return bias[0];
  }

  static RoundSpec Sum() {
    RoundSpec spec;
    spec.op = ReduceOp::kSum;
    return spec;
  }

  static constexpr size_t kWeights = 5 * kChunkBytes / sizeof(float) + 1234;
  std::vector<float> weight;
  std::vector<float> bias;

 private:
  const std::unique_ptr<client::Connector> connector_;
  std::unique_ptr<client::Worker> worker_;
  client::LaneHandle lane_ = 0;
  std::vector<float> sent_weight_;
  std::vector<float> sent_bias_;
};

// Runs `step` for all trainers at once, as their processes would, and returns the results.
template <typename F>
auto Together(const std::vector<Trainer*>& trainers, F step) {
  using Result = decltype(step(*trainers[0], size_t{0}));
  std::vector<std::future<Result>> running;
  running.reserve(trainers.size());
  for (size_t i = 0; i < trainers.size(); ++i) {
    running.push_back(std::async(std::launch::async,
                                 [&step, trainer = trainers[i], i] { return step(*trainer, i); }));
  }
  std::vector<Result> results;
  results.reserve(running.size());
  for (auto& one : running) results.push_back(one.get());
  return results;
}

// Worker i contributes 2^i, so a sum shows the counted workers.
float Bit(size_t i) { return std::ldexp(1.0F, static_cast<int>(i)); }

class Joined : public testing::TestWithParam<uint64_t> {
 protected:
  Joined() : network(GetParam()) {
    config.frame_bytes = 2 * kChunkBytes;
    service = std::make_unique<Service>(network, clock, config);
  }
  ~Joined() override {
    trainers.clear();
    service.reset();
  }

  // Workers "w0", "w1", ...; all are members when this returns.
  std::vector<Trainer*> Launch(size_t count, JobSettings settings) {
    std::vector<Trainer*> launched;
    for (size_t i = 0; i < count; ++i) launched.push_back(Add(settings));
    for (const absl::Status& status :
         Together(launched, [](Trainer&trainer, size_t) { return trainer.AwaitMember(); })) {
      EXPECT_TRUE(status.ok()) << status;
    }
    return launched;
  }
  Trainer* Add(JobSettings settings) {
    trainers.push_back(
        std::make_unique<Trainer>(network, clock, "w" + std::to_string(trainers.size()), settings));
    return trainers.back().get();
  }
  // A round of these, each with the bit of its place in the list.
  std::vector<client::RoundOutcome> Round(const std::vector<Trainer*>& members) {
    return Together(members, [](Trainer& trainer, size_t i) { return trainer.Step(Bit(i)); });
  }
  static void ExpectSum(const std::vector<Trainer*>& members,
                        const std::vector<client::RoundOutcome>& outcomes, float sum) {
    for (size_t i = 0; i < members.size(); ++i) {
      ASSERT_TRUE(outcomes[i].ok()) << outcomes[i].status();
      EXPECT_EQ(members[i]->result(), sum);
      EXPECT_EQ((*outcomes[i])->record(), (*outcomes[0])->record());
    }
  }

  MonotonicClock clock;
  aggregator::Config config;
  Network network;
  std::unique_ptr<Service> service;
  std::vector<std::unique_ptr<Trainer>> trainers;
};

INSTANTIATE_TEST_SUITE_P(Seeds, Joined, testing::Range<uint64_t>(1, 4));

TEST_P(Joined, EveryMemberIsCountedOnceInEveryRound) {
  const auto members = Launch(3, {3, 3, 3});
  for (int round = 1; round <= 4; ++round) ExpectSum(members, Round(members), 7);
  EXPECT_LE(network.most_unconsumed(), Network::kWindow + kMaxMessageBytes);
}

TEST_P(Joined, AveragesNarrowContributions) {
  const auto members = Launch(2, {2, 2, 2});
  RoundSpec spec;
  spec.op = ReduceOp::kAverage;
  const auto outcomes = Together(members, [&](Trainer& trainer, size_t i) {
    const std::vector<float> weight(Trainer::kWeights, Bit(i));
    client::BeginRound begin;
    begin.lane = trainer.lane();
    begin.spec = spec;
    EXPECT_TRUE(trainer.worker().Begin(begin).ok());
    EXPECT_TRUE(trainer.worker()
                    .Push(trainer.lane(), 0, weight.data(), weight.size() * sizeof(float),
                          {DType::kBF16, 0})
                    .ok());
    EXPECT_TRUE(trainer.worker().Commit(trainer.lane()).ok());
    return trainer.worker().Wait(trainer.lane(), kLong);
  });
  for (const auto& outcome : outcomes) {
    ASSERT_TRUE(outcome.ok()) << outcome.status();
    EXPECT_EQ((*outcome)->record().value.divisor, 2u);
    EXPECT_FALSE((*outcome)->Has(1)) << "everybody skipped it";
    std::vector<float> weight(Trainer::kWeights);
    ASSERT_TRUE((*outcome)->CopyTo(0, weight.data(), weight.size() * sizeof(float)).ok());
    EXPECT_EQ(std::count(weight.begin(), weight.end(), 1.5F), int64_t{Trainer::kWeights});
  }
}

// Two workers of one node, and one of another. The first contributes for both.
class JoinedNode : public Joined {
 protected:
  void Begin(uint32_t workers = 3) {
    if (members.empty()) members = Launch(workers, {1, workers, workers});
    RoundSpec spec;
    spec.op = ReduceOp::kAverage;
    client::BeginRound begin;
    begin.lane = members[1]->lane();
    begin.spec = spec;
    ASSERT_TRUE(follower().Begin(begin).ok());
    ASSERT_TRUE(follower().WithdrawWithoutResults(members[1]->lane(), "w0 has its gradients").ok());
    members[0]->Contribute(3, spec, 1);
    if (workers > 2) members[2]->Contribute(6, spec);
  }
  // What the leader holds is the result, and nobody has its verdict.
  std::shared_ptr<const client::RoundResult> Held() {
    const auto held = leader().WaitForResults(members[0]->lane(), kLong);
    EXPECT_TRUE(held.ok()) << held.status();
    return *held;
  }
  void Give(const client::RoundResult& held, bool wrong = false) {
    std::string weight(Trainer::kWeights * sizeof(float), 0);
    std::string bias(3 * sizeof(float), 0);
    ASSERT_TRUE(held.CopyTo(0, weight.data(), weight.size()).ok());
    ASSERT_TRUE(held.CopyTo(1, bias.data(), bias.size()).ok());
    if (wrong) ++weight.back();
    const VerdictRecord& record = held.record();
    const absl::Status given =
        follower().GiveResults(members[1]->lane(), record.round, record.value_ballot,
                               {{0, std::move(weight)}, {1, std::move(bias)}});
    ASSERT_TRUE(given.ok()) << given;
  }
  void ExpectAverage() {
    const auto outcomes =
        Together(members, [](Trainer& trainer, size_t) { return trainer.Finish(); });
    ExpectSum(members, outcomes, 3);
    EXPECT_EQ((*outcomes[0])->record().value.divisor, 3u);
    EXPECT_EQ((*outcomes[0])->record().value.contributors.size(), 2u);
  }
  client::Worker& leader() { return members[0]->worker(); }
  client::Worker& follower() { return members[1]->worker(); }

  std::vector<Trainer*> members;
};

INSTANTIATE_TEST_SUITE_P(Seeds, JoinedNode, testing::Range<uint64_t>(1, 4));

TEST_P(JoinedNode, TheResultsOfOneWorkerAreThoseOfTheOther) {
  Begin();
  EXPECT_TRUE(follower().WaitForValue(members[1]->lane(), kLong).ok());
  Give(*Held());
  ASSERT_TRUE(follower().RequestResults(members[1]->lane()).ok());
  ExpectAverage();
}

TEST_P(JoinedNode, ResultsThatAreNotGivenAreRequested) {
  Begin();
  ASSERT_TRUE(follower().RequestResults(members[1]->lane()).ok());
  ExpectAverage();
}

TEST_P(JoinedNode, WrongBytesAreNoticedAndRequested) {
  Begin();
  Give(*Held(), true);
  ExpectAverage();
}

// Its verdict needs the follower, so the others wait until it has the results.
TEST_P(JoinedNode, Fault_W1_ALeaderThatDiesWithTheResultsLosesNothing) {
  Begin();
  Held();
  members[0]->Die();
  ASSERT_TRUE(follower().RequestResults(members[1]->lane()).ok());
  members.erase(members.begin());
  const auto outcomes =
      Together(members, [](Trainer& trainer, size_t) { return trainer.Finish(); });
  ExpectSum(members, outcomes, 3);
  EXPECT_EQ((*outcomes[0])->record().value.contributors.size(), 2u) << "its contribution counts";
}

// The aggregator may still hold them for the leader, whose acknowledgements are under way. If not,
// nobody is left who could contribute again.
TEST_P(JoinedNode, Fault_W1_ALeaderThatDiesWithTheOnlyResultsCostsItsRoundAtMost) {
  Begin(2);
  Held();
  members[0]->Die();
  ASSERT_TRUE(follower().RequestResults(members[1]->lane()).ok());
  const auto outcome = members[1]->Finish();
  if (outcome.ok()) {
    EXPECT_EQ(members[1]->result(), 1.5F) << "the gradients of the leader, for two trainers";
  } else {
    EXPECT_EQ(CodeOf(outcome.status()), ErrorCode::kRoundAborted) << outcome.status();
    EXPECT_THAT(outcome.status().message(), HasSubstr("no contributor is left"));
  }
  EXPECT_TRUE(members[1]->Step(1).ok()) << "the next round has its gradients";
}

TEST_P(JoinedNode, TheOutcomeIsTheResultIfTheRoundEndsFirst) {
  Begin();
  ASSERT_TRUE(follower().RequestResults(members[1]->lane()).ok());
  ExpectAverage();
  const auto late = leader().WaitForResults(members[0]->lane(), kLong);
  EXPECT_EQ(CodeOf(late.status()), ErrorCode::kFailedPrecondition) << "it was taken";
  members[0]->Contribute(1);
  const client::LaneHandle lane = members[0]->lane();
  EXPECT_EQ(leader().WaitForResults(lane, absl::ZeroDuration()).status().code(),
            absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(leader().WaitForValue(lane, absl::ZeroDuration()).code(),
            absl::StatusCode::kDeadlineExceeded);
}

// The same, over a communicator, with a library that stands in for NCCL and emulated devices.
class JoinedGroup : public JoinedNode {
 protected:
  struct Rank {
    std::shared_ptr<FaultPlan> faults = std::make_shared<FaultPlan>();
    std::shared_ptr<kernels::cuda::TrainerDevice> device =
        kernels::cuda::MakeEmulatedTrainerDevice(faults);
    std::unique_ptr<nccl::Communicator> communicator;
    std::unique_ptr<client::group::Sharing> sharing;
    std::vector<float> weight = std::vector<float>(Trainer::kWeights);
    std::vector<float> bias = std::vector<float>(3);
    std::vector<client::group::SharedTensor> tensors() {
      return {{0, weight.data(), weight.size() * sizeof(float)},
              {1, bias.data(), bias.size() * sizeof(float)}};
    }
  };

  JoinedGroup() {
    stand_in_->set_enqueue([](nccl::Stream stream, void (*run)(void*), void* argument) {
      static_cast<EmulatedStream*>(stream)->Add([run, argument] { run(argument); });
    });
    nccl::LibrarySearch search;
    search.path = STAND_IN_NCCL;
    const auto library = nccl::Library::Load(search);
    EXPECT_TRUE(library.ok()) << library.status();
    library_ = *library;
    Form();
  }
  // Communicators of two ranks whose devices are in order.
  void Form() {
    const auto id = nccl::MakeUniqueId(library_, std::chrono::minutes(1));
    EXPECT_TRUE(id.ok()) << id.status();
    for (int place = 0; place < 2; ++place) {
      Rank& rank = ranks_[place];
      rank.communicator.reset();
      rank.sharing.reset();  // Before its device.
      rank = Rank();
      nccl::CommunicatorOptions options;
      options.place = {place, 2, 0};
      options.id = *id;
      options.scratch_bytes = nccl::LeastScratchBytes();
      auto started = nccl::Communicator::Start(
          library_, rank.device, kernels::cuda::MakeEmulatedGroupQueue(rank.faults), options);
      EXPECT_TRUE(started.ok()) << started.status();
      rank.communicator = *std::move(started);
      auto sharing = client::group::Sharing::Make(rank.device, 2);
      EXPECT_TRUE(sharing.ok()) << sharing.status();
      rank.sharing = *std::move(sharing);
    }
    for (Rank& rank : ranks_) EXPECT_TRUE(rank.communicator->WaitUntilFormed().ok());
  }
  ~JoinedGroup() override {
    stand_in_->release();
    for (Rank& rank : ranks_) rank.communicator.reset();
    stand_in_->reset();
  }

  // What both ranks do after they have begun. Returns the statuses of the leader and the follower.
  std::pair<absl::Status, absl::Status> Share() {
    auto leads = std::async(std::launch::async, [&] {
      absl::Status status = ranks_[0].sharing->Lead(
          *ranks_[0].communicator, leader(), members[0]->lane(), ranks_[0].tensors(), {}, kLong);
      EndIfFailed();
      return status;
    });
    const absl::Status follows = ranks_[1].sharing->Follow(
        *ranks_[1].communicator, follower(), members[1]->lane(), ranks_[1].tensors(), {}, kLong);
    EndIfFailed();
    EXPECT_TRUE(follower().RequestResults(members[1]->lane()).ok());
    return {leads.get(), follows};
  }
  // The ranks of a node tell each other when a communicator has failed.
  void EndIfFailed() {
    for (const Rank& failed : ranks_) {
      if (failed.communicator->status().ok()) continue;
      for (const Rank& rank : ranks_) rank.communicator->Abort(failed.communicator->status());
    }
  }

  const nccl::StandInControl* const stand_in_ = nccl::LoadStandIn(STAND_IN_NCCL);
  std::shared_ptr<const nccl::Library> library_;
  Rank ranks_[2];
};

INSTANTIATE_TEST_SUITE_P(Seeds, JoinedGroup, testing::Range<uint64_t>(1, 4));

TEST_P(JoinedGroup, Item3_TheResultsReachTheOtherRankOverTheCommunicator) {
  Begin();
  const auto [leads, follows] = Share();
  EXPECT_TRUE(leads.ok()) << leads;
  EXPECT_TRUE(follows.ok()) << follows;
  ExpectAverage();
  EXPECT_EQ(ranks_[1].weight, members[1]->weight) << "they came through the device";
}

TEST_P(JoinedGroup, Item3_ACommunicatorThatFailsCostsNoResult) {
  Begin();
  for (Rank& rank : ranks_) rank.communicator->Abort(absl::UnavailableError("lost"));
  const auto [leads, follows] = Share();
  EXPECT_FALSE(leads.ok());
  EXPECT_FALSE(follows.ok());
  ExpectAverage();
}

// Every call of either device fails once.
TEST_P(JoinedGroup, Item3_ADeviceThatFailsCostsNoResult) {
  for (const size_t rank : {size_t{0}, size_t{1}}) {
    bool failed = true;
    for (int64_t call = 0; failed; ++call) {
      SCOPED_TRACE(testing::Message() << "call " << call << " of rank " << rank);
      FaultPlan& faults = *ranks_[rank].faults;
      const int64_t failing = faults.calls + call;
      faults.failing_call = failing;
      Begin();
      Share();
      ExpectAverage();
      failed = faults.calls > failing;
      if (failed) Form();
    }
  }
}

TEST_P(JoinedGroup, Item3_ARoundWithoutResultsHoldsNobodyUp) {
  members = Launch(2, {1, 2, 2});
  for (Trainer* member : members) {
    client::BeginRound begin;
    begin.lane = member->lane();
    begin.spec = Trainer::Sum();
    ASSERT_TRUE(member->worker().Begin(begin).ok());
    ASSERT_TRUE(member->worker().WithdrawWithoutResults(member->lane(), "a backward failed").ok());
  }
  const auto [leads, follows] = Share();
  EXPECT_EQ(CodeOf(leads), ErrorCode::kRoundAborted) << leads;
  EXPECT_TRUE(follows.ok()) << follows;
}

TEST_P(Joined, CallsRunBesideTheGradients) {
  const auto members = Launch(3, {3, 3, 3});
  const auto sums = Together(members, [](Trainer& trainer, size_t i) {
    const auto call =
        trainer.worker().Register("call/metrics", LaneKind::kCall, {{"loss", DType::kF64, {2}}});
    EXPECT_TRUE(call.ok()) << call.status();
    trainer.Contribute(Bit(i));
    double loss[2] = {1.0 + static_cast<double>(i), 10};
    client::BeginRound begin;
    begin.lane = call->lane;
    begin.spec = Trainer::Sum();
    const auto outcome =
        trainer.worker().Allreduce(begin, {{call->tensors[0], loss, loss, sizeof(loss)}}, kLong);
    EXPECT_TRUE(outcome.ok()) << outcome.status();
    EXPECT_TRUE(trainer.Finish().ok());
    return loss[0] + loss[1];
  });
  EXPECT_THAT(sums, ElementsAre(36, 36, 36));
}

TEST_P(Joined, Fault_W1_AWorkerThatDiesBeforeItsCommitIsNotCounted) {
  const auto members = Launch(3, {2, 3, 3});
  ExpectSum(members, Round(members), 7);
  // It pushes its tensors, and ends before the commit.
  const std::vector<float> weight(Trainer::kWeights, Bit(2));
  client::BeginRound begin;
  begin.lane = members[2]->lane();
  begin.spec = Trainer::Sum();
  ASSERT_TRUE(members[2]->worker().Begin(begin).ok());
  ASSERT_TRUE(members[2]
                  ->worker()
                  .Push(members[2]->lane(), 0, weight.data(), weight.size() * sizeof(float))
                  .ok());
  members[2]->Die();
  const std::vector<Trainer*> survivors = {members[0], members[1]};
  ExpectSum(survivors, Round(survivors), 3);
  ExpectSum(survivors, Round(survivors), 3);
}

TEST_P(Joined, Fault_W6_WhoLeavesIsNotWaitedFor) {
  const auto members = Launch(3, {2, 3, 3});
  ExpectSum(members, Round(members), 7);
  EXPECT_TRUE(members[2]->worker().Leave().ok());
  const std::vector<Trainer*> survivors = {members[0], members[1]};
  ExpectSum(survivors, Round(survivors), 3);
  EXPECT_EQ(members[0]->worker().place().membership.members.size(), 2u);
}

TEST_P(Joined, Fault_W17_AJoinerIsCountedFromTheNextRoundOnAndGetsTheState) {
  auto members = Launch(2, {2, 3, 2});
  ExpectSum(members, Round(members), 3);
  Trainer* joiner = Add({2, 3, 2});
  // It becomes a member at a verdict, of which there are as many as it takes.
  auto joined = std::async(std::launch::async, [&] { return joiner->AwaitMember(); });
  while (members[0]->worker().place().membership.members.size() < 3) {
    ExpectSum(members, Round(members), 3);
  }
  ASSERT_TRUE(joined.get().ok());
  const client::Place place = joiner->worker().place();
  ASSERT_TRUE(place.donor.has_value());
  EXPECT_EQ(place.rank, 2u);
  members.push_back(joiner);
  ExpectSum(members, Round(members), 7);
}

TEST_P(Joined, Fault_N2_WhatALostConnectionCarriedIsCountedOnce) {
  const auto members = Launch(3, {3, 3, 3});
  network.BreakAfterEvery(40);
  while (network.broken() < 20) ExpectSum(members, Round(members), 7);
}

TEST_P(Joined, Fault_A1_EveryRoundIsAppliedOnceAcrossACrashOfTheAggregator) {
  const auto members = Launch(3, {3, 3, 3});
  ExpectSum(members, Round(members), 7);
  for (int crash = 1; crash <= 2; ++crash) {
    for (size_t i = 0; i < 3; ++i) members[i]->Contribute(Bit(i));
    service.reset();
    config.term += 10;
    service = std::make_unique<Service>(network, clock, config);
    const auto outcomes =
        Together(members, [](Trainer& trainer, size_t) { return trainer.Finish(); });
    ExpectSum(members, outcomes, 7);
    EXPECT_EQ((*outcomes[0])->record().round, static_cast<RoundNumber>(2 * crash));
    ExpectSum(members, Round(members), 7);
  }
}

TEST_P(Joined, ADeadlineLeavesTheOutcomeOpenAndTheMemoryTaken) {
  const auto members = Launch(2, {2, 2, 2});
  members[0]->Contribute(Bit(0));
  const auto outcome = members[0]->Finish(absl::Milliseconds(50));
  EXPECT_EQ(CodeOf(outcome.status()), ErrorCode::kOutcomeUnknown) << outcome.status();
  members[1]->Contribute(Bit(1));
  const auto outcomes =
      Together(members, [](Trainer& trainer, size_t) { return trainer.Finish(); });
  ExpectSum(members, outcomes, 3);
}

TEST_P(Joined, Fault_W10_AnotherOpIsNotCountedAndNamesBothSides) {
  const auto members = Launch(3, {3, 3, 3});
  const auto outcomes = Together(members, [](Trainer& trainer, size_t i) {
    RoundSpec spec = Trainer::Sum();
    if (i == 2) spec.op = ReduceOp::kMax;
    return trainer.Step(Bit(i), spec);
  });
  ExpectSum(members, outcomes, 3);
  ASSERT_TRUE((*outcomes[2])->rejected().has_value());
  EXPECT_EQ((*outcomes[2])->rejected()->code, ErrorCode::kMismatch);
  EXPECT_THAT((*outcomes[2])->rejected()->text, HasSubstr("w0"));
}

TEST_P(Joined, Criterion_2_5_ABroadcastCopiesBits) {
  const auto members = Launch(3, {3, 3, 3});
  const std::vector<float> value = {std::nanf("0x123"), -0.0F,
                                    std::numeric_limits<float>::infinity(),
                                    std::numeric_limits<float>::denorm_min(), 1};
  std::vector<float> large(3 * kChunkBytes / sizeof(float) + 7);
  for (size_t i = 0; i < large.size(); ++i) large[i] = static_cast<float>(i);
  const TensorSpec small_spec = {"small", DType::kF32, {value.size()}};
  const TensorSpec large_spec = {"large", DType::kF32, {large.size()}};
  client::Worker& root = members[0]->worker();
  // Some request it before it is announced.
  auto received = std::async(std::launch::async, [&] {
    return Together({members[1], members[2]}, [&](Trainer& trainer, size_t) {
      std::vector<float> small(value.size());
      std::vector<float> big(large.size());
      const auto one = trainer.worker().Get({kLane, "small", 1}, small_spec, "w0", kLong);
      EXPECT_TRUE(one.ok()) << one.status();
      if (one.ok()) {
        EXPECT_TRUE((*one)->CopyTo(small.data(), small.size() * sizeof(float)).ok());
      }
      const auto other = trainer.worker().Get({kLane, "large", 1}, large_spec, std::nullopt, kLong);
      EXPECT_TRUE(other.ok()) << other.status();
      if (other.ok()) {
        EXPECT_TRUE((*other)->CopyTo(big.data(), big.size() * sizeof(float)).ok());
      }
      return std::memcmp(small.data(), value.data(), value.size() * sizeof(float)) == 0 &&
             big == large;
    });
  });
  EXPECT_TRUE(root.Announce({kLane, "large", 1}, large_spec, large.data(),
                            large.size() * sizeof(float), client::Hold::kInPlace)
                  .ok());
  EXPECT_TRUE(root.Announce({kLane, "small", 1}, small_spec, value.data(),
                            value.size() * sizeof(float), client::Hold::kCopy)
                  .ok());
  EXPECT_THAT(received.get(), ElementsAre(true, true));
  EXPECT_EQ(CodeOf(root.Get({kLane, "small", 1}, small_spec, "w0", kLong).status()),
            ErrorCode::kFailedPrecondition);
  EXPECT_TRUE(root.StopServing(kLane, "large").ok());
}

TEST_P(Joined, Criterion_2_2_AValueThatIsNeverAnnouncedEndsInATypedError) {
  const auto members = Launch(2, {2, 2, 2});
  const auto value =
      members[1]->worker().Get({kLane, "never", 1}, std::nullopt, "w0", absl::Milliseconds(50));
  EXPECT_EQ(CodeOf(value.status()), ErrorCode::kDeadlineExceeded);
  EXPECT_THAT(value.status().message(), HasSubstr("never"));
  EXPECT_THAT(value.status().message(), HasSubstr("w0"));
}

TEST_P(Joined, NothingIsHeldBetweenRounds) {
  const auto members = Launch(3, {3, 3, 3});
  ExpectSum(members, Round(members), 7);
  ExpectSum(members, Round(members), 7);
  // The acknowledgements of the last results may still be on their way.
  uint64_t held = 1;
  for (const absl::Time until = clock.Now() + kLong; held != 0 && clock.Now() < until;) {
    std::promise<uint64_t> bytes;
    service->engine().Inspect([&](const aggregator::Runner& runner, absl::Time) {
      bytes.set_value(runner.parked_bytes() + runner.result_bytes());
    });
    held = bytes.get_future().get();
  }
  EXPECT_EQ(held, 0u);
}

}  // namespace
}  // namespace basin::joined
