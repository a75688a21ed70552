// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The workers of one node: one of them contributes for the others, and brings them the results, as
// they do by themselves, over a communicator, and as a group. A library stands in for NCCL, and the
// devices are emulated.

#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/device/node_group.h"
#include "client/device/sharing.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/accelerator/device/emulated_device.h"
#include "tests/accelerator/node/nccl/load_stand_in.h"
#include "tests/joined/joined.h"
#include "tests/runtime/await.h"

namespace basin::joined {
namespace {

namespace nccl = accelerator::nccl;
using accelerator::EmulatedStream;
using accelerator::FaultPlan;
using client::group::NodeGroup;
using client::group::NodeGroupOptions;
using client::group::NodeTurn;
using client::group::PhaseEnd;

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
    ASSERT_TRUE(follower().Withdraw({members[1]->lane(), "w0 has its gradients", true}).ok());
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
    for (const client::TensorHandle tensor : {0u, 1u}) {
      const absl::Status given = follower().GiveResult(
          members[1]->lane(), tensor, record.round, record.value_ballot,
          std::make_shared<OwnPayload>(std::move(tensor == 0 ? weight : bias)));
      ASSERT_TRUE(given.ok()) << given;
    }
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
  ASSERT_TRUE(follower().Call(client::RequestResults{members[1]->lane()}).ok());
  ExpectAverage();
}

TEST_P(JoinedNode, ResultsThatAreNotGivenAreRequested) {
  Begin();
  ASSERT_TRUE(follower().Call(client::RequestResults{members[1]->lane()}).ok());
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
  ASSERT_TRUE(follower().Call(client::RequestResults{members[1]->lane()}).ok());
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
  ASSERT_TRUE(follower().Call(client::RequestResults{members[1]->lane()}).ok());
  const auto outcome = members[1]->Finish();
  if (outcome.ok()) {
    EXPECT_EQ(members[1]->result(), 1.5F) << "the gradients of the leader, for two trainers";
  } else {
    EXPECT_EQ(CodeOf(outcome.status()), ErrorCode::kRoundAborted) << outcome.status();
    EXPECT_EQ(wire::ToError(outcome.status()).abort_cause, AbortCause::kNoContributor)
        << outcome.status();
  }
  EXPECT_TRUE(members[1]->Step(1).ok()) << "the next round has its gradients";
}

TEST_P(JoinedNode, TheOutcomeIsTheResultIfTheRoundEndsFirst) {
  Begin();
  ASSERT_TRUE(follower().Call(client::RequestResults{members[1]->lane()}).ok());
  ExpectAverage();
  const auto late = leader().WaitForResults(members[0]->lane(), kLong);
  EXPECT_EQ(CodeOf(late.status()), ErrorCode::kFailedPrecondition) << "it was taken";
  members[0]->Contribute(1);
  const client::LaneHandle lane = members[0]->lane();
  EXPECT_EQ(leader().WaitForResults(lane, absl::ZeroDuration()).status().code(),
            absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(leader().WaitForValue(lane, absl::ZeroDuration()).code(),
            absl::StatusCode::kDeadlineExceeded);
  members[0]->Die();  // Before its gradients, which it sends.
}

// The same, over a communicator, with a library that stands in for NCCL and emulated devices.
class JoinedGroup : public JoinedNode {
 protected:
  struct Rank {
    std::shared_ptr<FaultPlan> faults = std::make_shared<FaultPlan>();
    std::shared_ptr<accelerator::Device> device = accelerator::MakeEmulatedDevice(faults);
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
    for (int index = 0; index < 2; ++index) {
      Rank& rank = ranks_[index];
      rank.communicator.reset();
      rank.sharing.reset();  // Before its device.
      rank = Rank();
      nccl::CommunicatorOptions options;
      options.position = {index, 2, 0};
      options.id = *id;
      options.scratch_bytes = nccl::LeastScratchBytes();
      auto started = nccl::Communicator::Start(library_, rank.device, options);
      EXPECT_TRUE(started.ok()) << started.status();
      rank.communicator = *std::move(started);
      auto sharing = client::group::Sharing::Make(rank.device, 2, pinned_bytes_);
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
    EXPECT_TRUE(follower().Call(client::RequestResults{members[1]->lane()}).ok());
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
  uint64_t pinned_bytes_ = uint64_t{1} << 20;
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

TEST_P(JoinedGroup, Item3_ResultsThatPinnedMemoryDoesNotHoldReachTheOtherRankAsWell) {
  pinned_bytes_ = 0;
  Form();
  Begin();
  const auto [leads, follows] = Share();
  EXPECT_TRUE(leads.ok()) << leads;
  EXPECT_TRUE(follows.ok()) << follows;
  ExpectAverage();
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
    ASSERT_TRUE(member->worker().Withdraw({member->lane(), "a backward failed", true}).ok());
  }
  const auto [leads, follows] = Share();
  EXPECT_EQ(CodeOf(leads), ErrorCode::kRoundAborted) << leads;
  EXPECT_TRUE(follows.ok()) << follows;
}

// Two ranks of a node with their group, and a worker of another node.
class JoinedNodeGroup : public Joined {
 protected:
  struct Rank {
    Trainer* trainer = nullptr;
    std::shared_ptr<FaultPlan> faults = std::make_shared<FaultPlan>();
    std::shared_ptr<accelerator::Device> device = accelerator::MakeEmulatedDevice(faults);
    EmulatedStream stream;
    std::vector<accelerator::Memory> memory;  // Gradients, sums, and where results pass.
    std::unique_ptr<NodeGroup> group;

    float* At(size_t index) { return static_cast<float*>(memory[index].get()); }
  };
  static constexpr size_t kBytes[2] = {Trainer::kWeights * sizeof(float), 3 * sizeof(float)};

  JoinedNodeGroup() {
    nccl::LibrarySearch search;
    search.path = STAND_IN_NCCL;
    const auto library = nccl::Library::Load(search);
    EXPECT_TRUE(library.ok()) << library.status();
    stand_in_->set_enqueue([](nccl::Stream stream, void (*run)(void*), void* argument) {
      static_cast<EmulatedStream*>(stream)->Add([run, argument] { run(argument); });
    });
    directory_ = testing::TempDir() + "basin-joined-XXXXXX";
    EXPECT_NE(mkdtemp(directory_.data()), nullptr);
    members = Launch(3, {1, 3, 3});
    for (size_t i = 0; i < 2; ++i) {
      auto rank = std::make_unique<Rank>();
      rank->trainer = members[i];
      for (size_t part = 0; part < 3; ++part) {
        for (const size_t bytes : kBytes) {
          rank->memory.push_back(accelerator::AllocateForTrainer(rank->faults, bytes));
        }
      }
      NodeGroupOptions options;
      options.settings = {true, true, accelerator::node::GroupMode::kDeterministic,
                          static_cast<int>(i), 2};
      options.worker = absl::StrCat("w", i);
      options.directory = directory_;
      options.library = *library;
      options.device = rank->device;
      options.scratch_bytes = nccl::LeastScratchBytes();
      auto opened = NodeGroup::Open(std::move(options));
      EXPECT_TRUE(opened.ok()) << opened.status();
      rank->group = *std::move(opened);
      ranks.push_back(std::move(rank));
    }
  }
  ~JoinedNodeGroup() override {
    stand_in_->release();
    ranks.clear();
    Await([this] { return stand_in_->waiting_calls() == 0; });
    stand_in_->reset();
    rmdir(directory_.c_str());
  }

  static accelerator::node::SteadyTime Soon() {
    return std::chrono::steady_clock::now() + std::chrono::minutes(1);
  }

  // The local phase of a rank whose gradients are `value`. Returns the turn in which it has ended.
  static NodeTurn Reduce(Rank& rank, float value) {
    std::fill_n(rank.At(0), Trainer::kWeights, value);
    std::fill_n(rank.At(1), 3, value);
    while (true) {
      const auto turn = rank.group->NextTurn(Soon());
      if (!turn.ok() || !*turn) {
        ADD_FAILURE() << turn.status();
        return {};
      }
      for (const size_t part : {size_t{1}, size_t{0}}) {
        const absl::Status given = rank.group->Reduce(
            ReduceOp::kSum, {{DType::kF32, DType::kF32, kBytes[part] / sizeof(float), rank.At(part),
                              rank.At(2 + part), &rank.stream}});
        EXPECT_TRUE(given.ok()) << given;
      }
      const auto end = rank.group->End(Soon());
      if (!end.ok() || !*end) {
        ADD_FAILURE() << end.status();
        return {};
      }
      if (**end == PhaseEnd::kEnded) return **turn;
    }
  }
  // What the rank tells the aggregator after it.
  static void Contribute(Rank& rank, const NodeTurn& turn) {
    client::Worker& worker = rank.trainer->worker();
    client::BeginRound begin;
    begin.lane = rank.trainer->lane();
    begin.spec = Average();
    if (turn.leads) {
      begin.represents = static_cast<uint32_t>(turn.members - 1);
      begin.local_reduction = turn.reduction;
      begin.reduced_with = turn.others;
    }
    EXPECT_TRUE(worker.Begin(begin).ok());
    if (!turn.leads) {
      EXPECT_TRUE(worker.Withdraw({begin.lane, "the leader has its gradients", true}).ok());
      return;
    }
    for (const uint32_t part : {1U, 0U}) {
      EXPECT_TRUE(worker.Push(begin.lane, {part, rank.At(2 + part), kBytes[part]}).ok());
    }
    EXPECT_TRUE(worker.Commit(begin.lane).ok());
  }
  static absl::Status Share(Rank& rank) {
    return rank.group->Share(rank.trainer->worker(), rank.trainer->lane(),
                             {{0, rank.At(4), kBytes[0]}, {1, rank.At(5), kBytes[1]}}, &rank.stream,
                             kLong);
  }
  static RoundSpec Average() {
    RoundSpec spec;
    spec.op = ReduceOp::kAverage;
    return spec;
  }
  // A round of these ranks with the gradients 1 and 2, and of the other worker with 6.
  void ExpectRound(const std::vector<Rank*>& of, float average, bool shared = true) {
    std::vector<std::future<absl::Status>> running;
    for (Rank* const rank : of) {
      running.push_back(std::async(std::launch::async, [this, rank] {
        Contribute(*rank, Reduce(*rank, rank == ranks[0].get() ? 1 : 2));
        absl::Status status = Share(*rank);
        EXPECT_TRUE(rank->trainer->Finish().ok());
        return status;
      }));
    }
    const auto outcome = members[2]->Step(6, Average());
    ASSERT_TRUE(outcome.ok()) << outcome.status();
    EXPECT_EQ(members[2]->result(), average);
    // Where both ranks of the node are in it, the reply has the plan of their contribution.
    const Contributor& node = (*outcome)->record().value.contributors[0];
    const bool both = of.size() == 2;
    EXPECT_EQ(node.local_reduction, LocalReduction::kDeterministic);
    EXPECT_EQ(node.reduced_with, both ? std::vector<WorkerId>{"w1"} : std::vector<WorkerId>());
    for (auto& one : running) {
      const absl::Status status = one.get();
      EXPECT_EQ(status.ok(), shared) << status;
    }
    for (Rank* const rank : of) EXPECT_EQ(rank->trainer->weight, members[2]->weight);
  }

  const nccl::StandInControl* const stand_in_ = nccl::LoadStandIn(STAND_IN_NCCL);
  std::string directory_;
  std::vector<Trainer*> members;
  std::vector<std::unique_ptr<Rank>> ranks;
};

INSTANTIATE_TEST_SUITE_P(Seeds, JoinedNodeGroup, testing::Range<uint64_t>(1, 4));

TEST_P(JoinedNodeGroup, Item3_TheNodeContributesOnceAndAllRanksGetTheResults) {
  for (int round = 0; round < 5; ++round) {
    ExpectRound({ranks[0].get(), ranks[1].get()}, 3);
    // Nothing came to the second rank over the network.
    EXPECT_EQ(std::memcmp(ranks[1]->At(4), ranks[1]->trainer->weight.data(), kBytes[0]), 0);
  }
}

// The end of the local phase is the first broadcast, then come the head and the results.
TEST_P(JoinedNodeGroup, Fault_A13_ABroadcastThatFailsCostsNoResult) {
  ExpectRound({ranks[0].get(), ranks[1].get()}, 3);
  for (const int call : {1, 2}) {
    SCOPED_TRACE(call);
    stand_in_->fail("ncclBroadcast", 1, call, nccl::kInternalError);
    ExpectRound({ranks[0].get(), ranks[1].get()}, 3, false);
    ExpectRound({ranks[0].get(), ranks[1].get()}, 3);
  }
}

TEST_P(JoinedNodeGroup, Fault_W1_ALeaderThatIsLostAfterTheLocalPhaseCostsItsRoundTheNode) {
  ExpectRound({ranks[0].get(), ranks[1].get()}, 3);
  auto leads = std::async(std::launch::async, [this] { return Reduce(*ranks[0], 1); });
  Contribute(*ranks[1], Reduce(*ranks[1], 2));
  EXPECT_TRUE(leads.get().leads);
  ranks[0]->group.reset();
  members[0]->Die();
  auto shares = std::async(std::launch::async, [this] { return Share(*ranks[1]); });
  ASSERT_TRUE(members[2]->Step(6, Average()).ok());
  EXPECT_EQ(members[2]->result(), 6);
  EXPECT_FALSE(shares.get().ok());
  ASSERT_TRUE(ranks[1]->trainer->Finish().ok());
  EXPECT_EQ(ranks[1]->trainer->result(), 6);
  ExpectRound({ranks[1].get()}, 4);
}

TEST_P(JoinedNodeGroup, Fault_W1_ALeaderThatIsLostWithTheResultsCostsNothing) {
  ExpectRound({ranks[0].get(), ranks[1].get()}, 3);
  auto leads = std::async(std::launch::async, [this] { return Reduce(*ranks[0], 1); });
  Contribute(*ranks[1], Reduce(*ranks[1], 2));
  Contribute(*ranks[0], leads.get());
  auto other = std::async(std::launch::async, [this] { return members[2]->Step(6, Average()); });
  ASSERT_TRUE(members[0]->worker().WaitForResults(members[0]->lane(), kLong).ok());
  ranks[0]->group.reset();
  members[0]->Die();
  EXPECT_FALSE(Share(*ranks[1]).ok());
  ASSERT_TRUE(ranks[1]->trainer->Finish().ok());
  EXPECT_EQ(ranks[1]->trainer->result(), 3) << "with the gradients of the leader";
  ASSERT_TRUE(other.get().ok());
  ExpectRound({ranks[1].get()}, 4);
}

// Otherwise the others would wait for it.
TEST_P(JoinedNodeGroup, Item3_ARankThatDoesNotShareMakesTheOthersRequestTheirResults) {
  std::vector<std::future<NodeTurn>> phases;
  for (auto& rank : ranks) {
    phases.push_back(std::async(std::launch::async, [&] { return Reduce(*rank, 1); }));
  }
  const NodeTurn first = phases[0].get();
  const NodeTurn second = phases[1].get();
  Contribute(*ranks[0], first);
  Contribute(*ranks[1], second);
  auto other = std::async(std::launch::async, [this] { return members[2]->Step(4, Average()); });
  auto shares = std::async(std::launch::async, [this] { return Share(*ranks[1]); });
  auto finishes = std::async(std::launch::async, [this] { return members[0]->Finish(); });
  const auto next = ranks[0]->group->NextTurn(std::chrono::steady_clock::now());
  EXPECT_TRUE(next.ok()) << next.status();
  EXPECT_FALSE(shares.get().ok());
  EXPECT_TRUE(finishes.get().ok());
  EXPECT_TRUE(members[1]->Finish().ok());
  EXPECT_EQ(members[1]->result(), 2);
  EXPECT_TRUE(other.get().ok());
}

TEST_P(JoinedNodeGroup, Item3_AWaitForResultsMayBeBrokenOffAndGoOn) {
  auto leads = std::async(std::launch::async, [this] { return Reduce(*ranks[0], 1); });
  Contribute(*ranks[1], Reduce(*ranks[1], 2));
  Contribute(*ranks[0], leads.get());
  for (auto& rank : ranks) {
    const absl::Status status =
        rank->group->Share(rank->trainer->worker(), rank->trainer->lane(),
                           {{0, rank->At(4), kBytes[0]}, {1, rank->At(5), kBytes[1]}},
                           &rank->stream, absl::ZeroDuration());
    EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded) << status;
  }
  std::vector<std::future<absl::Status>> sharing;
  for (auto& rank : ranks) {
    sharing.push_back(std::async(std::launch::async, [&] { return Share(*rank); }));
  }
  EXPECT_TRUE(members[2]->Step(6, Average()).ok());
  for (auto& one : sharing) EXPECT_TRUE(one.get().ok());
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_TRUE(members[i]->Finish().ok());
    EXPECT_EQ(members[i]->result(), 3);
  }
}

}  // namespace
}  // namespace basin::joined
