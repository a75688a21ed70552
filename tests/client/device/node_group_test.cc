// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The ranks of a node in one process, each with a device of its own and a thread that trains, and a
// library that stands in for NCCL. Their connections are real.

#include "client/device/node_group.h"

#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/accelerator/device/emulated_device.h"
#include "tests/accelerator/node/nccl/load_stand_in.h"
#include "tests/runtime/await.h"

namespace basin::client::group {
namespace {

using accelerator::EmulatedStream;
using accelerator::FaultPlan;
using accelerator::Memory;
using accelerator::node::GroupMode;
using accelerator::node::LocalRank;
using accelerator::node::SteadyTime;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int kSize = 3;
constexpr size_t kCount = 4;

SteadyTime Soon() { return std::chrono::steady_clock::now() + std::chrono::minutes(2); }

// A process of the node, with two tensors on its device, which are two buckets, and a count.
struct Trainer {
  explicit Trainer(LocalRank the_rank) : rank(the_rank) {
    for (float*& input : inputs) input = Allocate<float>(kCount);
    for (float*& sum : sums) sum = Allocate<float>(kCount);
    count = Allocate<int64_t>(1);
    total = Allocate<int64_t>(1);
    *count = 10 + rank;
    for (size_t i = 0; i < kCount; ++i) {
      inputs[0][i] = static_cast<float>(i);
      inputs[1][i] = static_cast<float>(1 << rank);
    }
  }

  template <typename T>
  T* Allocate(size_t of) {
    memory.push_back(accelerator::AllocateForTrainer(faults, of * sizeof(T)));
    return static_cast<T*>(memory.back().get());
  }

  absl::Status ReduceFloats(int bucket) {
    NodeTensor tensor{DType::kF32, DType::kF32, kCount, inputs[bucket], sums[bucket], &stream};
    return group->Reduce(ReduceOp::kSum, {tensor});
  }
  absl::Status ReduceCount() {
    const NodeTensor tensor{DType::kI64, DType::kI64, 1, count, total, &other_stream};
    // Only the order with its stream.
    const NodeTensor nothing{DType::kU8, DType::kU8, 0, nullptr, nullptr, &stream};
    return group->Reduce(ReduceOp::kSum, {tensor, nothing});
  }
  absl::Status ReduceAll() {
    for (const int bucket : {0, 1}) {
      if (absl::Status status = ReduceFloats(bucket); !status.ok()) return status;
    }
    return ReduceCount();
  }

  // A local phase. Returns its turn; ABORTED: each rank contributes for itself.
  absl::StatusOr<NodeTurn> Phase() {
    auto turn = group->NextTurn(Soon());
    if (!turn.ok()) return turn.status();
    if (!*turn) return absl::DeadlineExceededError("no turn");
    ++turns;
    if (absl::Status status = ReduceAll(); !status.ok()) return status;
    auto end = group->End(Soon());
    if (!end.ok()) return end.status();
    if (!*end) return absl::DeadlineExceededError("no end");
    if (**end == PhaseEnd::kAlone) return absl::AbortedError("alone");
    return **turn;
  }

  const LocalRank rank;
  std::shared_ptr<FaultPlan> faults = std::make_shared<FaultPlan>();
  std::shared_ptr<accelerator::Device> device = accelerator::MakeEmulatedDevice(faults);
  std::vector<Memory> memory;
  std::array<float*, 2> inputs;
  std::array<float*, 2> sums;
  int64_t* count = nullptr;
  int64_t* total = nullptr;
  EmulatedStream stream;
  EmulatedStream other_stream;
  std::atomic<int> turns{0};         // That Phase() has had.
  std::unique_ptr<NodeGroup> group;  // Ends before what it uses.
};

class NodeGroupTest : public testing::Test {
 protected:
  NodeGroupTest() {
    nccl::LibrarySearch search;
    search.path = STAND_IN_NCCL;
    auto loaded = nccl::Library::Load(search);
    EXPECT_TRUE(loaded.ok()) << loaded.status();
    library_ = *loaded;
    control_->set_enqueue([](nccl::Stream stream, void (*run)(void*), void* argument) {
      static_cast<EmulatedStream*>(stream)->Add([run, argument] { run(argument); });
    });
    directory_ = testing::TempDir() + "basin-node-XXXXXX";
    EXPECT_NE(mkdtemp(directory_.data()), nullptr);
  }
  ~NodeGroupTest() override {
    control_->release();
    for (auto& trainer : trainers_) trainer.reset();
    Await([this] { return control_->waiting_calls() == 0; });
    control_->reset();
    rmdir(directory_.c_str());
  }

  NodeGroupOptions OptionsOf(LocalRank rank) {
    NodeGroupOptions options;
    options.settings = {true, true, mode_, rank, kSize};
    options.worker = absl::StrCat("worker-", 9 - rank);
    options.agreed = {{"BASIN_JOB", "j"}, {"the tensors", layout_}};
    options.directory = directory_;
    options.library = library_;
    options.device = At(rank).device;
    options.call_within = call_within_;
    options.scratch_bytes = nccl::LeastScratchBytes();
    return options;
  }
  Trainer& At(LocalRank rank) { return *trainers_[static_cast<size_t>(rank)]; }
  void Open(LocalRank rank) {
    trainers_[static_cast<size_t>(rank)] = std::make_unique<Trainer>(rank);
    auto opened = NodeGroup::Open(OptionsOf(rank));
    ASSERT_TRUE(opened.ok()) << opened.status();
    At(rank).group = *std::move(opened);
  }
  void OpenAll() {
    for (LocalRank rank = 0; rank < kSize; ++rank) Open(rank);
  }
  void Lose(LocalRank rank) { trainers_[static_cast<size_t>(rank)].reset(); }

  std::thread Begin(LocalRank rank, absl::StatusOr<NodeTurn>& turn) {
    return std::thread([this, rank, &turn] { turn = At(rank).Phase(); });
  }
  // A rank that has not begun when another one is lost begins in the group without it, and that
  // group has sums.
  void AwaitTurns(const std::vector<LocalRank>& ranks, int turns) {
    for (const LocalRank rank : ranks) Await([&] { return At(rank).turns == turns; });
  }
  // A local phase of these ranks; the first one leads and has the sums over all of them.
  void ExpectPhase(const std::vector<LocalRank>& ranks) {
    std::vector<absl::StatusOr<NodeTurn>> turns(ranks.size());
    std::vector<std::thread> threads;
    for (size_t i = 0; i < ranks.size(); ++i) threads.push_back(Begin(ranks[i], turns[i]));
    for (std::thread& thread : threads) thread.join();
    Expect(ranks, turns);
  }
  // There are no sums, also for the ranks that begin only now.
  void ExpectAlone(const std::vector<LocalRank>& ranks) {
    std::vector<absl::StatusOr<NodeTurn>> turns(ranks.size());
    std::vector<std::thread> threads;
    for (size_t i = 0; i < ranks.size(); ++i) threads.push_back(Begin(ranks[i], turns[i]));
    for (std::thread& thread : threads) thread.join();
    ExpectAborted(turns);
  }
  static void ExpectAborted(const std::vector<absl::StatusOr<NodeTurn>>& turns) {
    for (const auto& turn : turns) EXPECT_TRUE(absl::IsAborted(turn.status())) << turn.status();
  }
  void ExpectEnd(LocalRank rank, PhaseEnd expected) {
    auto end = At(rank).group->End(Soon());
    ASSERT_TRUE(end.ok() && *end) << end.status();
    EXPECT_EQ(**end, expected);
  }
  void Expect(const std::vector<LocalRank>& ranks,
              const std::vector<absl::StatusOr<NodeTurn>>& turns) {
    float ones = 0;
    int64_t total = 0;
    for (size_t i = 0; i < ranks.size(); ++i) {
      ASSERT_TRUE(turns[i].ok()) << turns[i].status();
      EXPECT_EQ(turns[i]->members, static_cast<int>(ranks.size()));
      EXPECT_EQ(turns[i]->leads, i == 0);
      EXPECT_EQ(turns[i]->leader, absl::StrCat("worker-", 9 - ranks.front()));
      ones += static_cast<float>(1 << ranks[i]);
      total += 10 + ranks[i];
    }
    Trainer& leader = At(ranks.front());
    const auto n = static_cast<float>(ranks.size());
    EXPECT_THAT(std::vector<float>(leader.sums[0], leader.sums[0] + kCount),
                ElementsAre(0, n, 2 * n, 3 * n));
    EXPECT_THAT(std::vector<float>(leader.sums[1], leader.sums[1] + kCount), testing::Each(ones));
    EXPECT_EQ(*leader.total, total);
  }

  const nccl::StandInControl* const control_ = nccl::LoadStandIn(STAND_IN_NCCL);
  std::shared_ptr<const nccl::Library> library_;
  std::string directory_;
  std::string layout_ = "1";
  GroupMode mode_ = GroupMode::kDeterministic;
  std::chrono::milliseconds call_within_{30000};
  std::array<std::unique_ptr<Trainer>, kSize> trainers_;
};

TEST_F(NodeGroupTest, Item3_TheLeaderGetsTheSumsOfAllRanks) {
  OpenAll();
  for (int round = 0; round < 10; ++round) ExpectPhase({0, 1, 2});
}

TEST_F(NodeGroupTest, Item3_FastModeGivesTheSameSumsOfThese) {
  mode_ = GroupMode::kFast;
  OpenAll();
  for (int round = 0; round < 3; ++round) ExpectPhase({0, 1, 2});
}

TEST_F(NodeGroupTest, Item3_ABucketComesAfterTheWorkOfItsStream) {
  OpenAll();
  std::vector<absl::StatusOr<NodeTurn>> turns(kSize);
  std::vector<std::thread> threads;
  At(1).stream.Hold();
  At(1).inputs[1][0] = -1;
  float* const late = At(1).inputs[1];
  At(1).stream.Add([late] { late[0] = 2; });
  for (LocalRank rank = 0; rank < kSize; ++rank) {
    threads.push_back(Begin(rank, turns[static_cast<size_t>(rank)]));
  }
  Await([this] { return control_->calls("ncclGroupEnd") > 0; });
  At(1).stream.Release();
  for (std::thread& thread : threads) thread.join();
  Expect({0, 1, 2}, turns);
}

TEST_F(NodeGroupTest, Fault_A13_WhereAFollowerIsLostInTheLocalPhaseEachContributesForItself) {
  OpenAll();
  ExpectPhase({0, 1, 2});
  std::vector<absl::StatusOr<NodeTurn>> turns(2);
  std::vector<std::thread> threads;
  for (const LocalRank rank : {0, 1}) {
    threads.push_back(Begin(rank, turns[static_cast<size_t>(rank)]));
  }
  auto turn = At(2).group->NextTurn(Soon());
  ASSERT_TRUE(turn.ok() && *turn);
  ASSERT_TRUE(At(2).ReduceFloats(0).ok());
  AwaitTurns({0, 1}, 2);
  Lose(2);
  for (std::thread& thread : threads) thread.join();
  ExpectAborted(turns);
  ExpectPhase({0, 1});
}

TEST_F(NodeGroupTest, Fault_A13_WhereTheLeaderIsLostInTheLocalPhaseEachContributesForItself) {
  OpenAll();
  ExpectPhase({0, 1, 2});
  std::vector<absl::StatusOr<NodeTurn>> turns(2);
  std::vector<std::thread> threads;
  for (const LocalRank rank : {1, 2}) {
    threads.push_back(Begin(rank, turns[static_cast<size_t>(rank - 1)]));
  }
  auto turn = At(0).group->NextTurn(Soon());
  ASSERT_TRUE(turn.ok() && *turn);
  ASSERT_TRUE((*turn)->leads);
  ASSERT_TRUE(At(0).ReduceFloats(0).ok());
  ASSERT_TRUE(At(0).ReduceFloats(1).ok());
  AwaitTurns({1, 2}, 2);
  Lose(0);
  for (std::thread& thread : threads) thread.join();
  ExpectAborted(turns);
  ExpectPhase({1, 2});
}

// The leader has what rank 1 gave, and lacks something of rank 2.
TEST_F(NodeGroupTest, Fault_A13_APhaseHasNotEndedBeforeTheLeaderHasEverything) {
  OpenAll();
  std::vector<absl::StatusOr<NodeTurn>> turns(1);
  std::thread leader = Begin(0, turns[0]);
  for (const LocalRank rank : {1, 2}) {
    auto turn = At(rank).group->NextTurn(Soon());
    ASSERT_TRUE(turn.ok() && *turn);
  }
  ASSERT_TRUE(At(1).ReduceAll().ok());
  for (const int bucket : {0, 1}) ASSERT_TRUE(At(2).ReduceFloats(bucket).ok());
  Await([this] { return control_->calls("ncclGroupEnd") == 2 + 3 + 3; });
  auto end = At(1).group->End(std::chrono::steady_clock::now() + std::chrono::milliseconds(200));
  ASSERT_TRUE(end.ok()) << end.status();
  EXPECT_FALSE(end->has_value());
  Lose(2);
  ExpectEnd(1, PhaseEnd::kAlone);
  leader.join();
  ExpectAborted(turns);
  ExpectPhase({0, 1});
}

// Another rank's communicator fails when the leader has everything: it contributes for all.
TEST_F(NodeGroupTest, Fault_A13_APhaseThatHasEndedForTheLeaderHasEndedForAll) {
  OpenAll();
  ExpectPhase({0, 1, 2});
  auto turn = At(2).group->NextTurn(Soon());
  std::vector<absl::StatusOr<NodeTurn>> turns(2);
  std::vector<std::thread> threads;
  for (const LocalRank rank : {0, 1}) {
    threads.push_back(Begin(rank, turns[static_cast<size_t>(rank)]));
  }
  ASSERT_TRUE(turn.ok());
  if (!*turn) turn = At(2).group->NextTurn(Soon());
  ASSERT_TRUE(At(2).ReduceAll().ok());
  for (std::thread& thread : threads) thread.join();
  for (const auto& one : turns) EXPECT_TRUE(one.ok()) << one.status();
  At(2).group->Fail("planned");
  ExpectEnd(2, PhaseEnd::kEnded);
  ExpectPhase({0, 1, 2});
}

TEST_F(NodeGroupTest, Fault_A13_ACallOfNcclThatHangsCostsTheSumsOfOnePhase) {
  call_within_ = std::chrono::milliseconds(200);
  OpenAll();
  ExpectPhase({0, 1, 2});
  control_->hang("ncclGroupEnd", nccl::kAnyRank, 1);
  ExpectAlone({0, 1, 2});
  ExpectPhase({0, 1, 2});
}

// One rank has given its first bucket when its backward fails, or it finds no memory for the rest.
TEST_F(NodeGroupTest, Item3_WhereARankFailsItsTurnThereAreNoSumsOnAnyRankAndTheGroupGoesOn) {
  OpenAll();
  for (const LocalRank who : {0, 2, 2, 1, 0}) {
    std::vector<absl::StatusOr<NodeTurn>> turns(2);
    std::vector<std::thread> threads;
    for (const LocalRank rank : {0, 1, 2}) {
      if (rank != who) threads.push_back(Begin(rank, turns[threads.size()]));
    }
    auto turn = At(who).group->NextTurn(Soon());
    ASSERT_TRUE(turn.ok() && *turn) << turn.status();
    At(who).inputs[0][0] = 99;  // A wrong gradient.
    ASSERT_TRUE(At(who).ReduceFloats(0).ok());
    At(who).group->Fail("its backward has failed");
    EXPECT_TRUE(At(who).ReduceFloats(1).ok()) << "it is ignored";
    ExpectEnd(who, PhaseEnd::kAlone);
    At(who).inputs[0][0] = 0;
    for (std::thread& thread : threads) thread.join();
    ExpectAborted(turns);
  }
  ExpectPhase({0, 1, 2});
}

// Ranks that have not begun when another one fails.
TEST_F(NodeGroupTest, Item3_ATurnOfAPhaseThatHasFailedIsOverAtOnce) {
  OpenAll();
  ExpectPhase({0, 1, 2});
  auto turn = At(2).group->NextTurn(Soon());
  ASSERT_TRUE(turn.ok() && *turn) << turn.status();
  At(2).group->Fail("its backward has failed");
  ExpectEnd(2, PhaseEnd::kAlone);
  ExpectAlone({0, 1});
  ExpectPhase({0, 1, 2});
}

TEST_F(NodeGroupTest, Item3_ARankThatStartsAgainContributesForItself) {
  OpenAll();
  ExpectPhase({0, 1, 2});
  Lose(1);
  ExpectPhase({0, 2});
  Open(1);
  const auto turn = At(1).group->NextTurn(Soon());
  EXPECT_EQ(turn.status().code(), absl::StatusCode::kFailedPrecondition) << turn.status();
  EXPECT_THAT(std::string(turn.status().message()), HasSubstr("have a group already"));
  ExpectPhase({0, 2});
}

TEST_F(NodeGroupTest, Fault_A13_ARankThatCannotTakePartIsTheErrorOfAllAtOnce) {
  Open(0);
  trainers_[1] = std::make_unique<Trainer>(1);
  auto reporting = ReportWhyNot(OptionsOf(1), absl::FailedPreconditionError("there is no NCCL"));
  ASSERT_TRUE(reporting.ok()) << reporting.status();
  for (const LocalRank rank : {0, 2}) {
    if (rank == 2) Open(2);
    // Long before a rank that does not come is given up.
    const auto turn =
        At(rank).group->NextTurn(std::chrono::steady_clock::now() + std::chrono::seconds(30));
    EXPECT_EQ(turn.status(),
              absl::FailedPreconditionError("local rank 1 (worker-8) cannot take part in the local "
                                            "group: there is no NCCL"));
  }
  EXPECT_EQ((*reporting)->NextTurn(Soon()).status(),
            absl::FailedPreconditionError("there is no NCCL"));
}

TEST_F(NodeGroupTest, BadInput_RanksThatDisagreeGetAnErrorThatNamesTheValue) {
  Open(0);
  Open(1);
  layout_ = "2";
  Open(2);
  for (LocalRank rank = 0; rank < kSize; ++rank) {
    const auto turn = At(rank).group->NextTurn(Soon());
    EXPECT_EQ(turn.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(turn.status().message()),
                HasSubstr("disagree on the tensors: 1 (local ranks 0, 1), 2 (local rank 2)"));
  }
}

TEST_F(NodeGroupTest, BadInput_MemoryOfTheHostAndAnAverageAreRefused) {
  OpenAll();
  auto turn = At(0).group->NextTurn(Soon());
  ASSERT_TRUE(turn.ok() && *turn);
  std::array<float, kCount> host = {};
  const NodeTensor tensor{DType::kF32, DType::kF32, kCount, host.data(), At(0).sums[0], nullptr};
  const NodeTensor right{DType::kF32,     DType::kF32,   kCount,
                         At(0).inputs[0], At(0).sums[0], &At(0).stream};
  EXPECT_EQ(At(0).group->Reduce(ReduceOp::kSum, {right, tensor}),
            absl::InvalidArgumentError(
                "Cannot reduce tensor 1 of the bucket within the node: emulated device: the memory "
                "is not of it. Pass memory of the device that the group was opened for, and one of "
                "its streams."));
  EmulatedStream foreign(1);
  NodeTensor elsewhere = right;
  elsewhere.stream = &foreign;
  EXPECT_EQ(At(0).group->Reduce(ReduceOp::kSum, {elsewhere}),
            absl::InvalidArgumentError(
                "Cannot reduce tensor 0 of the bucket within the node: emulated device: the stream "
                "is another's. Pass memory of the device that the group was opened for, and one of "
                "its streams."));
  At(0).stream.captured = true;
  const absl::Status captured = At(0).group->Reduce(ReduceOp::kSum, {right});
  EXPECT_EQ(captured.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(captured.message()),
              AllOf(HasSubstr("tensor 0 of the bucket"), HasSubstr("reduce after the replay")));
  At(0).stream.captured = false;
  EXPECT_THAT(std::string(At(0).group->Reduce(ReduceOp::kAverage, {}).message()),
              HasSubstr("divide afterwards"));
}

}  // namespace
}  // namespace basin::client::group
