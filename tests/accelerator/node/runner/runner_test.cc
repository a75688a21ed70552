// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The ranks of a node in one process, each with a device of its own and a thread that trains, and a
// library that stands in for NCCL. Their connections are real.

#include "accelerator/node/runner/runner.h"

#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <map>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/plan.h"
#include "tests/accelerator/device/emulated_device.h"
#include "tests/accelerator/node/nccl/load_stand_in.h"
#include "tests/runtime/await.h"

namespace basin::accelerator::node {
namespace {

using kernels::Contribution;
using kernels::ReductionPlan;
using kernels::ReductionSpec;
using nccl::Communicator;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;

constexpr int kSize = 3;
constexpr size_t kCount = 8;
using Values = std::array<float, kCount>;

// A process of the node. Its contribution to a round is the number of the round, and its rank in
// the place of that number, so that a sum says who has contributed.
struct Trainer {
  std::shared_ptr<FaultPlan> faults = std::make_shared<FaultPlan>();
  std::shared_ptr<Device> device = MakeEmulatedDevice(faults);
  Values input = {};
  Values sum = {};  // At the leader.

  // One round. Returns its turn, and whether it was reduced.
  absl::StatusOr<std::pair<Turn, bool>> Round() {
    absl::StatusOr<Turn> turn = runner->NextTurn();
    if (!turn.ok()) return turn.status();
    begun = turn->round;
    if (turn->communicator != nullptr) {
      const absl::Status done = Reduce(*turn);
      if (!done.ok()) {
        runner->Fail(*turn, done);
      } else if (turn->leader == rank) {
        runner->Reduced(*turn);
      }
    }
    auto reduced = runner->End(std::chrono::steady_clock::now() + std::chrono::minutes(2));
    if (!reduced.ok()) return reduced.status();
    if (!*reduced) return absl::DeadlineExceededError("the round is not over");
    return std::pair(*std::move(turn), **reduced);
  }

  absl::Status Reduce(const Turn& turn) {
    ReductionSpec spec;
    spec.op = ReduceOp::kSum;
    spec.tensor_dtype = spec.result_dtype = DType::kF32;
    spec.contributions.resize(turn.members.size());
    for (Contribution& each : spec.contributions) each.wire_dtype = DType::kF32;
    auto plan = ReductionPlan::Make(std::move(spec));
    if (!plan.ok()) return absl::InternalError(plan.failure().message);
    input = {static_cast<float>(turn.round)};
    input[1 + static_cast<size_t>(rank)] = 1;
    nccl::GroupTensor tensor;
    tensor.plan = std::make_shared<const ReductionPlan>(std::move(plan).value());
    tensor.count = kCount;
    tensor.input = input.data();
    tensor.result = sum.data();
    return turn.communicator->Reduce({tensor}, {}).Wait();
  }

  int rank = 0;
  std::atomic<GroupRound> begun{0};  // The last one.
  std::unique_ptr<Runner> runner;    // Ends before what it uses.
};

class RunnerTest : public testing::Test {
 protected:
  RunnerTest() {
    nccl::LibrarySearch search;
    search.path = STAND_IN_NCCL;
    auto loaded = nccl::Library::Load(search);
    EXPECT_TRUE(loaded.ok()) << loaded.status();
    library_ = *loaded;
    control_->set_enqueue([](nccl::Stream stream, void (*run)(void*), void* argument) {
      static_cast<EmulatedStream*>(stream)->Add([run, argument] { run(argument); });
    });
    directory_ = testing::TempDir() + "basin-runner-XXXXXX";
    EXPECT_NE(mkdtemp(directory_.data()), nullptr);
  }
  ~RunnerTest() override {
    control_->release();
    for (auto& trainer : trainers_) trainer.reset();
    Await([this] { return control_->waiting_calls() == 0; });
    control_->reset();
    rmdir(directory_.c_str());
  }

  RunnerOptions OptionsOf(LocalRank rank) {
    RunnerOptions options;
    options.config.self = {rank, absl::StrCat("worker-", 9 - rank), ++nonces_};
    options.config.size = kSize;
    options.config.agreed = {{"BASIN_JOB", job_}};
    options.config.gather_within = gather_within_;
    options.directory = directory_;
    options.make_id = [this]() -> absl::StatusOr<std::string> {
      const auto id = nccl::MakeUniqueId(library_, std::chrono::milliseconds(60000));
      if (!id.ok()) return id.status();
      return std::string(reinterpret_cast<const char*>(&*id), sizeof(*id));
    };
    Trainer* const trainer = trainers_[static_cast<size_t>(rank)].get();
    options.start = [this, trainer](const FormCommunicator& form) {
      return StartCommunicator(*trainer, form);
    };
    return options;
  }

  absl::StatusOr<CommunicatorPtr> StartCommunicator(Trainer& trainer,
                                                    const FormCommunicator& form) {
    nccl::CommunicatorOptions options;
    options.position = {form.index, static_cast<int>(form.members.size()), form.leader};
    options.id = *reinterpret_cast<const nccl::UniqueId*>(form.unique_id.data());
    options.scratch_bytes = nccl::LeastScratchBytes();
    auto started = Communicator::Start(library_, trainer.device, options);
    if (!started.ok()) return started.status();
    return CommunicatorPtr(std::move(*started));
  }

  Trainer& At(LocalRank rank) { return *trainers_[static_cast<size_t>(rank)]; }
  void Start(LocalRank rank) {
    trainers_[static_cast<size_t>(rank)] = std::make_unique<Trainer>();
    At(rank).rank = rank;
    auto started = Runner::Start(OptionsOf(rank));
    ASSERT_TRUE(started.ok()) << started.status();
    At(rank).runner = std::move(*started);
  }
  void StartAll() {
    for (LocalRank rank = 0; rank < kSize; ++rank) Start(rank);
  }

  // A round of these ranks, which is reduced: the leader has the sum of all of them. Or it is not.
  void ExpectRound(GroupRound round, const std::vector<LocalRank>& ranks, bool reduced = true) {
    std::vector<std::thread> threads;
    for (const LocalRank rank : ranks) {
      threads.emplace_back([this, rank, round, reduced, &ranks] {
        const auto ended = At(rank).Round();
        ASSERT_TRUE(ended.ok()) << ended.status();
        const auto& [turn, was_reduced] = *ended;
        EXPECT_EQ(turn.round, round);
        EXPECT_EQ(was_reduced, reduced);
        if (reduced) {
          EXPECT_EQ(turn.leader, ranks.front());
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    if (!reduced) return;
    Values expected = {static_cast<float>(round) * static_cast<float>(ranks.size())};
    for (const LocalRank rank : ranks) expected[1 + static_cast<size_t>(rank)] = 1;
    EXPECT_EQ(At(ranks.front()).sum, expected);
  }

  const nccl::StandInControl* const control_ = nccl::LoadStandIn(STAND_IN_NCCL);
  std::shared_ptr<const nccl::Library> library_;
  std::string directory_;
  std::string job_ = "j";
  absl::Duration gather_within_ = absl::Seconds(60);
  std::array<std::unique_ptr<Trainer>, kSize> trainers_;
  uint64_t nonces_ = 0;
};

TEST_F(RunnerTest, Item3_TheRanksOfANodeReduceRounds) {
  StartAll();
  for (GroupRound round = 1; round <= 20; ++round) ExpectRound(round, {0, 1, 2});
}

TEST_F(RunnerTest, Item3_ARankThatLeavesIsLeftOutAndItsReplacementRefused) {
  StartAll();
  ExpectRound(1, {0, 1, 2});
  trainers_[0].reset();
  ExpectRound(2, {1, 2});
  Start(0);
  const auto turn = At(0).runner->NextTurn();
  EXPECT_EQ(turn.status().code(), absl::StatusCode::kFailedPrecondition) << turn.status();
  ExpectRound(3, {1, 2});
}

TEST_F(RunnerTest, Fault_A13_WhereARankIsLostInARoundEachContributesForItself) {
  for (const LocalRank who : {2, 0}) {
    const std::vector<LocalRank> left = {who == 0 ? 1 : 0, who == 0 ? 2 : 1};
    for (auto& trainer : trainers_) trainer.reset();
    StartAll();
    ExpectRound(1, {0, 1, 2});
    // The others wait for its contribution.
    std::vector<std::thread> threads;
    for (const LocalRank rank : left) {
      threads.emplace_back([this, rank] {
        const auto ended = At(rank).Round();
        ASSERT_TRUE(ended.ok()) << ended.status();
        EXPECT_FALSE(ended->second);
      });
    }
    EXPECT_TRUE(At(who).runner->NextTurn().ok());
    // Ranks that begin the round afterwards reduce it without the one that is lost.
    for (const LocalRank rank : left) Await([&] { return At(rank).begun == 2; });
    trainers_[static_cast<size_t>(who)].reset();
    for (std::thread& thread : threads) thread.join();
    ExpectRound(3, left);
  }
}

// The leader is lost when it has told the others; they take its word for it.
TEST_F(RunnerTest, Fault_A13_ARoundThatTheLeaderHasReportedIsReducedForAll) {
  StartAll();
  ExpectRound(1, {0, 1, 2});
  std::array<absl::StatusOr<Turn>, kSize> turns;
  for (LocalRank rank = 0; rank < kSize; ++rank) {
    turns[static_cast<size_t>(rank)] = At(rank).runner->NextTurn();
    ASSERT_TRUE(turns[static_cast<size_t>(rank)].ok());
  }
  At(0).runner->Reduced(*turns[0]);
  const auto soon = std::chrono::steady_clock::now() + std::chrono::minutes(2);
  auto reduced = At(0).runner->End(soon);
  ASSERT_TRUE(reduced.ok() && *reduced) << reduced.status();
  EXPECT_TRUE(**reduced);
  trainers_[0].reset();
  for (const LocalRank rank : {1, 2}) {
    reduced = At(rank).runner->End(soon);
    ASSERT_TRUE(reduced.ok() && *reduced) << reduced.status();
    EXPECT_TRUE(**reduced);
  }
  ExpectRound(3, {1, 2});
}

// Also for a rank that begins the round afterwards.
TEST_F(RunnerTest, Fault_A13_ARoundThatARankGivesUpIsReducedByNobody) {
  StartAll();
  ExpectRound(1, {0, 1, 2});
  const auto turn = At(1).runner->NextTurn();
  ASSERT_TRUE(turn.ok()) << turn.status();
  At(1).runner->GiveUp(*turn, "no memory");
  std::thread first([this] {
    const auto reduced =
        At(1).runner->End(std::chrono::steady_clock::now() + std::chrono::minutes(2));
    ASSERT_TRUE(reduced.ok() && *reduced) << reduced.status();
    EXPECT_FALSE(**reduced);
  });
  first.join();
  ExpectRound(2, {0, 2}, false);
  ExpectRound(3, {0, 1, 2});
}

TEST_F(RunnerTest, Fault_A13_ACallOfNcclThatFailsCostsTheSumsOfOneRound) {
  StartAll();
  ExpectRound(1, {0, 1, 2});
  control_->fail("ncclGroupEnd", nccl::kAnyRank, 0, nccl::kInternalError);
  ExpectRound(2, {0, 1, 2}, false);
  ExpectRound(3, {0, 1, 2});
}

TEST_F(RunnerTest, Fault_A13_NcclThatAlwaysFailsIsATypedErrorOnEveryRank) {
  for (int i = 0; i < 30; ++i) {
    control_->fail("ncclCommInitRankConfig", nccl::kAnyRank, 0, nccl::kInternalError);
  }
  StartAll();
  std::vector<std::thread> threads;
  for (LocalRank rank = 0; rank < kSize; ++rank) {
    threads.emplace_back([this, rank] {
      const auto turn = At(rank).Round();
      ASSERT_FALSE(turn.ok());
      EXPECT_EQ(turn.status().code(), absl::StatusCode::kUnavailable);
      EXPECT_THAT(std::string(turn.status().message()),
                  AllOf(HasSubstr("failed 3 times"), HasSubstr("ncclCommInitRankConfig")));
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST_F(RunnerTest, BadInput_RanksThatDisagreeGetAnErrorThatNamesTheValue) {
  Start(0);
  Start(1);
  job_ = "k";
  Start(2);
  for (LocalRank rank = 0; rank < kSize; ++rank) {
    const auto turn = At(rank).runner->NextTurn();
    EXPECT_EQ(turn.status(),
              absl::InvalidArgumentError(
                  "the ranks of this node disagree on BASIN_JOB: j (local ranks 0, 1), k (local "
                  "rank 2); start them with the same value"));
  }
}

TEST_F(RunnerTest, BadInput_ARankThatDoesNotComeIsNamed) {
  gather_within_ = absl::Milliseconds(50);
  Start(0);
  Start(2);
  for (const LocalRank rank : {0, 2}) {
    const auto turn = At(rank).runner->NextTurn();
    EXPECT_EQ(turn.status().code(), absl::StatusCode::kDeadlineExceeded);
    // On a busy machine the first one may be over before the other has begun.
    EXPECT_THAT(std::string(turn.status().message()),
                MatchesRegex("local ranks? (0, )?1(, 2)? ha(s|ve) not come within 50ms.*"));
  }
}

}  // namespace
}  // namespace basin::accelerator::node
