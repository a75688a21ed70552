// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The ranks of a node in one process, each with a device of its own and a thread that trains, and a
// library that stands in for NCCL. Their connections are real.

#include "client/group/runner/runner.h"

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
#include "tests/client/group/nccl/load_stand_in.h"
#include "tests/kernels/cuda/emulated_trainer_device.h"
#include "tests/runtime/await.h"

namespace basin::client::group {
namespace {

using kernels::Contribution;
using kernels::ReductionPlan;
using kernels::ReductionSpec;
using kernels::cuda::EmulatedStream;
using kernels::cuda::FaultPlan;
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
  std::shared_ptr<kernels::cuda::TrainerDevice> device =
      kernels::cuda::MakeEmulatedTrainerDevice(faults);
  Mutex mutex;
  std::map<GroupRound, Values> results ABSL_GUARDED_BY(mutex);
  Values next = {};     // The result that is being received.
  Values dropped = {};  // What others are supplied with.
  std::atomic<int> supplied{0};

  // One round; the result is that of all ranks that were in its last turn.
  absl::StatusOr<Turn> Round() {
    while (true) {
      absl::StatusOr<Turn> turn = runner->NextTurn();
      if (!turn.ok()) return turn;
      const absl::Status done = turn->supplier ? Take(*turn) : Reduce(*turn);
      if (!done.ok()) {
        runner->Fail(*turn, done);
        continue;
      }
      // From its end on the result may have to be supplied.
      Keep(turn->round);
      if (runner->End(*turn)) return turn;
    }
  }

  void Keep(GroupRound round) {
    MutexLock lock(mutex);
    results[round] = next;
  }
  Values Result(GroupRound round) {
    MutexLock lock(mutex);
    return results[round];
  }
  GroupRound Last() {
    MutexLock lock(mutex);
    return results.rbegin()->first;
  }

  Communicator::Work Supply(const Turn& turn) {
    if (turn.supplier != rank) return Broadcast(turn, dropped);
    ++supplied;
    MutexLock lock(mutex);
    return Broadcast(turn, results[turn.round]);
  }

  absl::Status Reduce(const Turn& turn) {
    ReductionSpec spec;
    spec.op = ReduceOp::kSum;
    spec.tensor_dtype = spec.result_dtype = DType::kF32;
    spec.contributions.resize(turn.members.size());
    for (Contribution& each : spec.contributions) each.wire_dtype = DType::kF32;
    auto plan = ReductionPlan::Make(std::move(spec));
    if (!plan.ok()) return absl::InternalError(plan.failure().message);
    Values input = {static_cast<float>(turn.round)};
    input[1 + static_cast<size_t>(rank)] = 1;
    nccl::GroupTensor tensor;
    tensor.plan = std::make_shared<const ReductionPlan>(std::move(plan).value());
    tensor.count = kCount;
    tensor.input = input.data();
    tensor.result = next.data();
    const Communicator::Work reduced = turn.communicator->Reduce({tensor}, {});
    if (absl::Status status = reduced.Wait(); !status.ok()) return status;
    return Take(turn);
  }

  absl::Status Take(const Turn& turn) { return Broadcast(turn, next).Wait(); }

  Communicator::Work Broadcast(const Turn& turn, Values& values) const {
    std::optional<int> root;
    for (size_t i = 0; i < turn.members.size(); ++i) {
      if (turn.supplier == turn.members[i].rank) root = static_cast<int>(i);
    }
    return turn.communicator->Broadcast({{values.data(), sizeof(values)}}, {}, root);
  }

  int rank = 0;
  std::unique_ptr<Runner> runner;  // Ends before what it uses.
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
    options.supply = [trainer](const Turn& turn) { return trainer->Supply(turn); };
    return options;
  }

  absl::StatusOr<CommunicatorPtr> StartCommunicator(Trainer& trainer,
                                                    const FormCommunicator& form) {
    nccl::CommunicatorOptions options;
    options.place = {form.place, static_cast<int>(form.members.size()), form.leader};
    options.id = *reinterpret_cast<const nccl::UniqueId*>(form.unique_id.data());
    options.scratch_bytes = nccl::LeastScratchBytes();
    auto started = Communicator::Start(
        library_, trainer.device, kernels::cuda::MakeEmulatedGroupQueue(trainer.faults), options);
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

  // A round of these ranks, whose sum is that of all of them.
  void ExpectRound(GroupRound round, const std::vector<LocalRank>& ranks) {
    std::vector<std::thread> threads;
    for (const LocalRank rank : ranks) {
      threads.emplace_back([this, rank, round, &ranks] {
        const auto turn = At(rank).Round();
        ASSERT_TRUE(turn.ok()) << turn.status();
        EXPECT_EQ(turn->round, round);
        EXPECT_EQ(turn->leader, ranks.front());
      });
    }
    for (std::thread& thread : threads) thread.join();
    Values expected = {static_cast<float>(round) * static_cast<float>(ranks.size())};
    for (const LocalRank rank : ranks) expected[1 + static_cast<size_t>(rank)] = 1;
    for (const LocalRank rank : ranks) EXPECT_EQ(At(rank).Result(round), expected) << rank;
  }

  const nccl::StandInControl* const control_ = nccl::LoadStandIn(STAND_IN_NCCL);
  std::shared_ptr<const nccl::Library> library_;
  std::string directory_;
  std::string job_ = "j";
  absl::Duration gather_within_ = absl::Seconds(60);
  std::array<std::unique_ptr<Trainer>, kSize> trainers_;
  uint64_t nonces_ = 0;
};

TEST_F(RunnerTest, Item3_TheRanksOfANodeReduceAndBroadcastRounds) {
  StartAll();
  for (GroupRound round = 1; round <= 20; ++round) ExpectRound(round, {0, 1, 2});
}

TEST_F(RunnerTest, Item3_ARankThatLeavesIsLeftOutAndItsReplacementTakenIn) {
  StartAll();
  ExpectRound(1, {0, 1, 2});
  trainers_[0].reset();
  ExpectRound(2, {1, 2});
  Start(0);
  // It is taken in between two rounds, whichever these are.
  std::vector<std::thread> others;
  for (const LocalRank rank : {1, 2}) {
    others.emplace_back([this, rank] {
      // All end with the same round, the first that three have reduced.
      for (bool joined = false; !joined;) {
        const auto turn = At(rank).Round();
        ASSERT_TRUE(turn.ok()) << turn.status();
        joined = !turn->supplier && turn->members.size() == kSize;
      }
    });
  }
  const auto turn = At(0).Round();
  for (std::thread& thread : others) thread.join();
  ASSERT_TRUE(turn.ok()) << turn.status();
  EXPECT_EQ(turn->members.size(), static_cast<size_t>(kSize));
  for (LocalRank rank = 0; rank < kSize; ++rank) {
    EXPECT_EQ(At(rank).Last(), turn->round);
    EXPECT_EQ(At(rank).Result(turn->round)[1], 1) << "without rank 0";
  }
  ExpectRound(turn->round + 1, {0, 1, 2});
}

TEST_F(RunnerTest, Fault_A13_ARankThatIsLostInARoundIsLeftOutOfIt) {
  StartAll();
  ExpectRound(1, {0, 1, 2});
  // Ranks 0 and 1 wait for the contribution of rank 2.
  std::vector<std::thread> threads;
  for (const LocalRank rank : {0, 1}) {
    threads.emplace_back([this, rank] { EXPECT_TRUE(At(rank).Round().ok()); });
  }
  EXPECT_TRUE(At(2).runner->NextTurn().ok());
  trainers_[2].reset();
  for (std::thread& thread : threads) thread.join();
  for (const LocalRank rank : {0, 1}) EXPECT_EQ(At(rank).Result(2), (Values{4, 1, 1, 0}));
  ExpectRound(3, {0, 1});
}

TEST_F(RunnerTest, Fault_A13_ALeaderThatIsLostIsReplacedAndAResultIsSupplied) {
  StartAll();
  ExpectRound(1, {0, 1, 2});
  // Ranks 0 and 1 have the result of round 2, and rank 2 does not know that it is there.
  std::vector<std::thread> threads;
  for (const LocalRank rank : {0, 1}) {
    threads.emplace_back([this, rank] { EXPECT_TRUE(At(rank).Round().ok()); });
  }
  const auto turn = At(2).runner->NextTurn();
  EXPECT_TRUE(turn.ok() && At(2).Reduce(*turn).ok());
  for (std::thread& thread : threads) thread.join();
  trainers_[0].reset();
  At(2).next = {};
  const auto again = At(2).runner->NextTurn();
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->round, 2u);
  EXPECT_EQ(again->supplier, 1);
  EXPECT_EQ(again->leader, 1);
  ASSERT_TRUE(At(2).Take(*again).ok());
  EXPECT_TRUE(At(2).runner->End(*again));
  EXPECT_EQ(At(1).supplied, 1);
  EXPECT_EQ(At(2).next, At(1).Result(2));
  ExpectRound(3, {1, 2});
}

TEST_F(RunnerTest, Fault_A13_ACallOfNcclThatFailsIsTriedAgainInANewCommunicator) {
  StartAll();
  ExpectRound(1, {0, 1, 2});
  control_->fail("ncclBroadcast", nccl::kAnyRank, 0, nccl::kInternalError);
  ExpectRound(2, {0, 1, 2});
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
}  // namespace basin::client::group
