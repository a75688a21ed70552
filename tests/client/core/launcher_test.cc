// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "client/core/launcher.h"

#include <map>
#include <string>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace basin::client {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

using Environment = std::map<std::string, std::string>;

// As each launcher sets them for one of its processes: Open MPI 4.1, MPICH 4.0, Slurm 22.05.
const Environment& Torchrun() {
  static const Environment variables = {
      {"RANK", "3"},       {"WORLD_SIZE", "4"},
      {"LOCAL_RANK", "1"}, {"LOCAL_WORLD_SIZE", "2"},
      {"GROUP_RANK", "1"}, {"GROUP_WORLD_SIZE", "2"},
      {"ROLE_RANK", "3"},  {"ROLE_WORLD_SIZE", "4"},
  };
  return variables;
}

const Environment& OpenMpi() {
  static const Environment variables = {
      {"OMPI_COMM_WORLD_RANK", "5"},
      {"OMPI_COMM_WORLD_SIZE", "8"},
      {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
      {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"},
      {"OMPI_COMM_WORLD_NODE_RANK", "1"},
      {"OMPI_UNIVERSE_SIZE", "8"},
      {"PMIX_RANK", "5"},
  };
  return variables;
}

const Environment& Mpich() {
  static const Environment variables = {
      {"PMI_RANK", "1"},        {"PMI_SIZE", "2"},        {"PMI_FD", "8"},
      {"MPI_LOCALRANKID", "1"}, {"MPI_LOCALNRANKS", "2"},
  };
  return variables;
}

// The last task of `srun -N2 -n3`.
const Environment& Slurm() {
  static const Environment variables = {
      {"SLURM_PROCID", "2"},
      {"SLURM_NTASKS", "3"},
      {"SLURM_LOCALID", "0"},
      {"SLURM_NODEID", "1"},
      {"SLURM_NNODES", "2"},
      {"SLURM_STEP_ID", "0"},
      {"SLURM_STEP_NUM_TASKS", "3"},
      {"SLURM_STEP_NUM_NODES", "2"},
      {"SLURM_STEP_TASKS_PER_NODE", "2,1"},
  };
  return variables;
}

// The script of `sbatch -N2 -n4`.
const Environment& SlurmBatch() {
  static const Environment variables = {
      {"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "4"},           {"SLURM_LOCALID", "0"},
      {"SLURM_NODEID", "0"}, {"SLURM_TASKS_PER_NODE", "3,1"},
  };
  return variables;
}

Environment Both(const Environment& first, const Environment& other) {
  Environment both = first;
  both.insert(other.begin(), other.end());
  return both;
}

auto In(const Environment& environment) {
  return [&environment](const char* name) -> std::optional<std::string> {
    const auto found = environment.find(name);
    return found == environment.end() ? std::nullopt : std::optional(found->second);
  };
}

LaunchedIdentity Identity(const Environment& environment) {
  const auto identity = ReadIdentity(In(environment));
  EXPECT_TRUE(identity.ok()) << identity.status();
  if (!identity.ok() || !identity->has_value()) return {~0u, std::nullopt, "none"};
  return **identity;
}

std::string Refusal(const Environment& environment) {
  const absl::Status status = ReadIdentity(In(environment)).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  return std::string(status.message());
}

// local rank, local size, machine, machines; - if absent.
std::string Place(const Environment& environment) {
  const LaunchedPlace place = ReadPlace(In(environment));
  std::string text;
  for (const auto& value : {place.local_rank, place.local_size, place.machine, place.machines}) {
    text += (text.empty() ? "" : " ") + value.value_or("-");
  }
  return text;
}

struct Case {
  const Environment& environment;
  uint32_t rank;
  uint32_t size;
  const char* place;
};

TEST(LauncherTest, EachLauncherNamesTheWorkerAndItsPlace) {
  for (const Case& each : {Case{Torchrun(), 3, 4, "1 2 1 2"}, Case{OpenMpi(), 5, 8, "1 4 1 2"},
                           Case{Mpich(), 1, 2, "1 2 0 1"}, Case{Slurm(), 2, 3, "0 1 1 2"}}) {
    const LaunchedIdentity identity = Identity(each.environment);
    EXPECT_EQ(identity.rank, each.rank);
    EXPECT_EQ(identity.size, each.size);
    EXPECT_EQ(identity.decision, "");
    EXPECT_EQ(Place(each.environment), each.place);
  }
}

// mpirun --map-by node: consecutive ranks are on different machines, and only some of them could be
// where the machines fill up one after the other.
TEST(LauncherTest, AllRanksOfAMachineAreOnOneMachineOfTheirHost) {
  for (const auto& [first, second] : {std::pair{"0", "2"}, std::pair{"1", "3"}}) {
    Environment environment = OpenMpi();
    environment["OMPI_COMM_WORLD_SIZE"] = "4";
    environment["OMPI_COMM_WORLD_LOCAL_SIZE"] = "2";
    environment["OMPI_COMM_WORLD_RANK"] = first;
    environment["OMPI_COMM_WORLD_LOCAL_RANK"] = "0";
    const std::string one = MachineOnHost(ReadPlace(In(environment)));
    environment["OMPI_COMM_WORLD_RANK"] = second;
    environment["OMPI_COMM_WORLD_LOCAL_RANK"] = "1";
    EXPECT_EQ(MachineOnHost(ReadPlace(In(environment))), one) << first << " and " << second;
  }
  EXPECT_EQ(MachineOnHost(ReadPlace(In(Torchrun()))), "1") << "it may start several on a host";
  EXPECT_EQ(MachineOnHost(ReadPlace(In(Environment()))), "0");
}

TEST(LauncherTest, NoneIsNoIdentity) {
  const Environment environment = {{"HOME", "x"}};
  EXPECT_FALSE(ReadIdentity(In(environment)).value().has_value());
  EXPECT_EQ(Place(environment), "- - - -");
}

TEST(LauncherTest, AnIndexedJobDoesNotSayHowManyWorkersThereAre) {
  const LaunchedIdentity identity = Identity({{"JOB_COMPLETION_INDEX", "2"}});
  EXPECT_EQ(identity.rank, 2u);
  EXPECT_FALSE(identity.size.has_value());
}

TEST(LauncherTest, TheScriptOfABatchJobIsNoTask) {
  EXPECT_FALSE(ReadIdentity(In(SlurmBatch())).value().has_value());
  EXPECT_EQ(Place(SlurmBatch()), "- - - -");
  const LaunchedIdentity identity = Identity(Both(Mpich(), SlurmBatch()));
  EXPECT_EQ(identity.rank, 1u);
  EXPECT_EQ(identity.decision, "");
}

TEST(LauncherTest, LaunchersThatAgreeAreOne) {
  Environment pmi2 = Slurm();
  pmi2.insert({{"PMI_RANK", "2"}, {"PMI_SIZE", "3"}});
  EXPECT_EQ(Identity(pmi2).decision, "");
  EXPECT_EQ(Place(pmi2), "0 1 1 2");
  Environment by_hand = Slurm();
  by_hand.insert({{"RANK", "2"}, {"WORLD_SIZE", "3"}});
  EXPECT_EQ(Identity(by_hand).decision, "");
}

TEST(LauncherTest, TheInnerOneOfTwoDecidesAndSaysSo) {
  EXPECT_EQ(Identity(Both(OpenMpi(), Slurm())).decision,
            "this worker is OMPI_COMM_WORLD_RANK=5 of 8 (Open MPI); not counted: SLURM_PROCID=2 of "
            "3 (Slurm)");
  const Environment all =
      Both(Both(Torchrun(), OpenMpi()), Both(Slurm(), {{"JOB_COMPLETION_INDEX", "7"}}));
  const LaunchedIdentity identity = Identity(all);
  EXPECT_EQ(identity.rank, 3u);
  EXPECT_EQ(identity.size, 4u);
  EXPECT_THAT(identity.decision, AllOf(HasSubstr("RANK=3 of 4 (torchrun)"), HasSubstr("Open MPI"),
                                       HasSubstr("Slurm"), HasSubstr("JOB_COMPLETION_INDEX=7")));
  EXPECT_EQ(Place(all), "1 2 1 2");
}

TEST(LauncherTest, LaunchersOfWhichEitherMayBeTheInnerOneMustAgree) {
  const Environment by_hand = {{"RANK", "0"}, {"WORLD_SIZE", "2"}};
  for (const auto& [environment, other] :
       {std::pair(Both(by_hand, OpenMpi()), "OMPI_COMM_WORLD_RANK=5 of 8 (Open MPI)"),
        std::pair(Both(by_hand, Mpich()), "PMI_RANK=1 of 2 (PMI)"),
        std::pair(Both(by_hand, Slurm()), "SLURM_PROCID=2 of 3 (Slurm)")}) {
    EXPECT_THAT(Refusal(environment),
                AllOf(HasSubstr("RANK=0 of 2 (the environment)"), HasSubstr(other),
                      HasSubstr("BASIN_WORKER_ID"), HasSubstr("BASIN_MAX_WORKERS")));
  }
  EXPECT_THAT(Refusal(Both(OpenMpi(), Mpich())), AllOf(HasSubstr("Open MPI"), HasSubstr("PMI")));
  // Only the number of workers differs.
  Environment sizes = Slurm();
  sizes.insert({{"RANK", "2"}, {"WORLD_SIZE", "4"}});
  EXPECT_THAT(Refusal(sizes), AllOf(HasSubstr("RANK=2 of 4"), HasSubstr("SLURM_PROCID=2 of 3")));
  // What an operator has numbered may run in pods that have other numbers.
  EXPECT_EQ(Identity(Both(by_hand, {{"JOB_COMPLETION_INDEX", "1"}})).rank, 0u);
}

TEST(LauncherTest, ValuesThatCannotBeAreRefused) {
  EXPECT_THAT(Refusal({{"RANK", "first"}}), HasSubstr("RANK=first"));
  EXPECT_THAT(Refusal({{"RANK", "1"}, {"WORLD_SIZE", "-"}}), HasSubstr("WORLD_SIZE=-"));
  EXPECT_THAT(Refusal({{"PMI_RANK", "2"}, {"PMI_SIZE", "2"}}),
              AllOf(HasSubstr("PMI_RANK=2"), HasSubstr("PMI_SIZE=2")));
}

TEST(LauncherTest, ThePlaceIsFromTheInnermostLauncher) {
  EXPECT_EQ(Place(Both(Torchrun(), Slurm())), "1 2 1 2");
  EXPECT_EQ(Place(Both(OpenMpi(), Slurm())), "1 4 1 2");
  const Environment basin_run = {{"BASIN_RUN_RANK", "0"},
                                 {"BASIN_RUN_SIZE", "8"},
                                 {"BASIN_RUN_MACHINE", "2"},
                                 {"BASIN_RUN_MACHINES", "3"}};
  EXPECT_EQ(Place(Both(basin_run, Torchrun())), "0 8 2 3");
  // By hand, without the number of the machine.
  EXPECT_EQ(Place({{"LOCAL_RANK", "1"}, {"LOCAL_WORLD_SIZE", "2"}}), "1 2 - -");
}

TEST(LauncherTest, MachinesThatMpiFillsInAnotherWayAreNotCounted) {
  Environment round_robin = OpenMpi();
  round_robin["OMPI_COMM_WORLD_LOCAL_RANK"] = "2";
  EXPECT_EQ(Place(round_robin), "2 4 - -");
  EXPECT_FALSE(ReadPlace(In(round_robin)).numbers_machines);
  Environment uneven = OpenMpi();
  uneven["OMPI_COMM_WORLD_SIZE"] = "7";
  EXPECT_EQ(Place(uneven), "1 4 - -");
}

TEST(LauncherTest, SlurmListsTheTasksOfEachNode) {
  Environment task = Slurm();
  task["SLURM_STEP_TASKS_PER_NODE"] = "2(x3),5,1(x2)";
  for (const auto& [node, tasks] : {std::pair("0", "2"), std::pair("2", "2"), std::pair("3", "5"),
                                    std::pair("5", "1"), std::pair("6", "-")}) {
    task["SLURM_NODEID"] = node;
    EXPECT_THAT(Place(task), HasSubstr(std::string("0 ") + tasks));
  }
  task["SLURM_STEP_TASKS_PER_NODE"] = "2(x";
  task["SLURM_NODEID"] = "0";
  EXPECT_EQ(Place(task), "0 2 0 2");
  task["SLURM_STEP_TASKS_PER_NODE"] = "2(x?)";
  EXPECT_EQ(Place(task), "0 - 0 2");
}

}  // namespace
}  // namespace basin::client
