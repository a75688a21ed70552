// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// libbasin.so with a real basind: the promises of basin.h, call by call.

#include <basin/basin.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <future>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/client/c/aggregator_process.h"
#include "tests/client/c/trainer.h"

namespace basin {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::Contains;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

std::string program;  // The path of basind, from the command line.

// Runs `step` for each of them at once.
template <typename F>
void Together(const std::vector<Trainer*>& trainers, F step) {
  std::vector<std::future<void>> running;
  running.reserve(trainers.size());
  for (size_t i = 0; i < trainers.size(); ++i) {
    running.push_back(std::async(std::launch::async, [&step, t = trainers[i], i] { step(*t, i); }));
  }
  for (auto& one : running) one.get();
}

class Abi : public testing::Test {
 protected:
  std::vector<Trainer*> Launch(int count, const OptionMap& more = {}) {
    std::vector<Trainer*> launched;
    for (int i = 0; i < count; ++i) {
      trainers.push_back(std::make_unique<Trainer>(
          aggregator.address(), "w" + std::to_string(trainers.size()), count, more));
      launched.push_back(trainers.back().get());
    }
    Together(launched, [](Trainer& t, size_t) {
      EXPECT_EQ(t.AwaitMember(), BASIN_OK) << t.failure.message();
    });
    return launched;
  }

  AggregatorProcess aggregator{program};
  std::vector<std::unique_ptr<Trainer>> trainers;
};

TEST(Library, SaysWhatItIs) {
  EXPECT_EQ(basin_abi_version(), uint32_t{BASIN_ABI_VERSION});
  EXPECT_THAT(basin_version(), testing::MatchesRegex("[0-9]+\\.[0-9]+\\.[0-9]+"));
  EXPECT_STREQ(basin_code_name(BASIN_OUTCOME_UNKNOWN), "OUTCOME_UNKNOWN");
  EXPECT_STREQ(basin_code_name(static_cast<basin_code>(1000)), "UNKNOWN");
}

// ---- options

class Options {
 public:
  explicit Options(uint32_t flags) : options_(basin_options_new(flags)) {}
  ~Options() { basin_options_free(options_); }
  Options(const Options&) = delete;
  Options& operator=(const Options&) = delete;
  basin_options* get() { return options_; }
  std::string operator[](const char* key) {
    const char* value = basin_options_get(options_, key);
    return value == nullptr ? "(none)" : value;
  }
  basin_code Connect(Failure& failure) {
    basin_worker* worker = nullptr;
    const basin_code code = basin_connect(options_, &worker, failure.out());
    basin_close(worker);
    return code;
  }

 private:
  basin_options* options_;
};

// Sets variables of the environment while it lives.
class Environment {
 public:
  explicit Environment(const OptionMap& variables) : variables_(variables) {
    for (const auto& [name, value] : variables_) setenv(name.c_str(), value.c_str(), 1);
  }
  ~Environment() {
    for (const auto& [name, value] : variables_) unsetenv(name.c_str());
  }
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;

 private:
  const OptionMap variables_;
};

TEST(Library, ExitCodesDistinguishWhatARestartChanges) {
  EXPECT_EQ(basin_exit_code(BASIN_OK), 0);
  EXPECT_EQ(basin_exit_code(BASIN_LINEAGE_CONFLICT), 75);
  for (const basin_code code : {BASIN_INVALID_ARGUMENT, BASIN_MISMATCH, BASIN_VERSION_MISMATCH}) {
    EXPECT_EQ(basin_exit_code(code), 78) << basin_code_name(code);
  }
  for (const basin_code code : {BASIN_SUPERSEDED, BASIN_EVICTED, BASIN_UNAVAILABLE, BASIN_NOT_FOUND,
                                static_cast<basin_code>(1000)}) {
    EXPECT_EQ(basin_exit_code(code), 1) << basin_code_name(code);
  }
}

TEST(OptionsTest, AWrongOneIsNamedWithWhatWouldBeRight) {
  Options options(0);
  Failure failure;
  EXPECT_EQ(basin_options_set(options.get(), "min_worker", "3", failure.out()),
            BASIN_INVALID_ARGUMENT);
  EXPECT_THAT(failure.message(), AllOf(HasSubstr("min_worker"), HasSubstr("min_workers")));
  for (const auto& [key, value] : OptionMap{{"min_workers", "-1"},
                                            {"max_workers", "many"},
                                            {"streams", "0"},
                                            {"address", "somewhere"},
                                            {"job", "Two Words"},
                                            {"worker_id", "UPPER"},
                                            {"fresh", "perhaps"},
                                            {"log_level", "loud"},
                                            {"timeline_every", "0"},
                                            {"timeline_max_bytes", "1000"}}) {
    EXPECT_EQ(basin_options_set(options.get(), key.c_str(), value.c_str(), failure.out()),
              BASIN_INVALID_ARGUMENT)
        << key;
    EXPECT_THAT(failure.message(), AllOf(HasSubstr(key), HasSubstr(value)));
  }
  EXPECT_EQ(basin_options_set(options.get(), "software", "torch\t2", failure.out()),
            BASIN_INVALID_ARGUMENT);
  EXPECT_THAT(failure.message(), AllOf(HasSubstr("software"), HasSubstr("printable")));
}

TEST(OptionsTest, TlsFilesAreCheckedBeforeItConnects) {
  const Environment environment(OptionMap{{"BASIN_TLS_CA", "/is/not/there"}});
  Options options(BASIN_READ_ENVIRONMENT);
  Failure failure;
  EXPECT_EQ(options.Connect(failure), BASIN_INVALID_ARGUMENT);
  EXPECT_THAT(failure.message(), AllOf(HasSubstr("BASIN_TLS_CA"), HasSubstr("/is/not/there"),
                                       HasSubstr("No such file")));
  ASSERT_EQ(basin_options_set(options.get(), "tls_ca", "", nullptr), BASIN_OK);
  ASSERT_EQ(basin_options_set(options.get(), "tls_key", "key.pem", nullptr), BASIN_OK);
  EXPECT_EQ(options.Connect(failure), BASIN_INVALID_ARGUMENT);
  EXPECT_THAT(failure.message(), HasSubstr("BASIN_TLS_CERT"));
}

TEST(OptionsTest, AFlagTakesTheWordsThatPeopleUse) {
  for (const char* const word : {"1", "0", "true", "false", "True", "YES", "no"}) {
    const Environment environment(OptionMap{{"BASIN_FRESH", word}});
    Options options(BASIN_READ_ENVIRONMENT);
    Failure failure;
    EXPECT_EQ(basin_options_set(options.get(), "fresh", word, failure.out()), BASIN_OK)
        << failure.message();
    EXPECT_EQ(options.Connect(failure), BASIN_OK) << failure.message();
  }
  const Environment environment(OptionMap{{"BASIN_FRESH", "2"}});
  Options options(BASIN_READ_ENVIRONMENT);
  Failure failure;
  EXPECT_EQ(options.Connect(failure), BASIN_INVALID_ARGUMENT);
  EXPECT_THAT(failure.message(),
              HasSubstr("BASIN_FRESH=2: true, false, yes, no, 1 or 0 is needed"));
}

TEST(OptionsTest, WhatIsSetComesBeforeTheEnvironmentAndThatBeforeTheLauncher) {
  const Environment environment({{"RANK", "3"},
                                 {"WORLD_SIZE", "8"},
                                 {"BASIN_JOB", "from-environment"},
                                 {"BASIN_ADDRESS", "host:1"}});
  Options options(BASIN_READ_ENVIRONMENT);
  EXPECT_EQ(options["worker_id"], "worker-3");
  EXPECT_EQ(options["max_workers"], "8");
  EXPECT_EQ(options["job"], "from-environment");
  ASSERT_EQ(basin_options_set(options.get(), "job", "mine", nullptr), BASIN_OK);
  EXPECT_EQ(options["job"], "mine");
  EXPECT_EQ(options["address"], "host:1");
}

TEST(OptionsTest, LaunchersThatContradictEachOtherAreRefusedUnlessTheWorkerIsNamed) {
  const Environment environment({{"RANK", "0"},
                                 {"WORLD_SIZE", "2"},
                                 {"OMPI_COMM_WORLD_RANK", "1"},
                                 {"OMPI_COMM_WORLD_SIZE", "4"}});
  Options options(BASIN_READ_ENVIRONMENT);
  Failure failure;
  EXPECT_EQ(options.Connect(failure), BASIN_INVALID_ARGUMENT);
  EXPECT_THAT(failure.message(), AllOf(HasSubstr("RANK=0 of 2"), HasSubstr("Open MPI")));
  ASSERT_EQ(basin_options_set(options.get(), "worker_id", "w1", nullptr), BASIN_OK);
  EXPECT_EQ(options.Connect(failure), BASIN_INVALID_ARGUMENT);
  ASSERT_EQ(basin_options_set(options.get(), "max_workers", "4", nullptr), BASIN_OK);
  EXPECT_EQ(options.Connect(failure), BASIN_OK) << failure.message();
}

TEST(OptionsTest, TheLogSaysWhichOfTwoLaunchersNamesTheWorker) {
  const Environment environment({{"OMPI_COMM_WORLD_RANK", "1"},
                                 {"OMPI_COMM_WORLD_SIZE", "4"},
                                 {"SLURM_STEP_ID", "0"},
                                 {"SLURM_PROCID", "0"},
                                 {"SLURM_NTASKS", "2"}});
  std::string log;
  const auto connect = [&](const char* worker_id) {
    Options options(BASIN_READ_ENVIRONMENT);
    EXPECT_EQ(basin_options_set(options.get(), "log_level", "info", nullptr), BASIN_OK);
    if (worker_id != nullptr) {
      EXPECT_EQ(basin_options_set(options.get(), "worker_id", worker_id, nullptr), BASIN_OK);
    }
    basin_options_set_log(
        options.get(),
        [](void* user, basin_log_level, const char* message) {
          static_cast<std::string*>(user)->append(message).append("\n");
        },
        &log);
    Failure failure;
    EXPECT_EQ(options.Connect(failure), BASIN_OK) << failure.message();
    return std::exchange(log, "");
  };
  EXPECT_THAT(connect(nullptr), HasSubstr("OMPI_COMM_WORLD_RANK=1 of 4 (Open MPI); not counted: "
                                          "SLURM_PROCID=0 of 2 (Slurm)"));
  EXPECT_THAT(connect("mine"), Not(HasSubstr("Slurm")));
}

TEST(OptionsTest, TheMachineIsThatOfTheLauncher) {
  const auto read = [](basin_machine* machine) {
    Failure failure;
    const basin_code code = basin_read_machine(machine, failure.out());
    return code == BASIN_OK ? "" : failure.message();
  };
  {
    const Environment environment(OptionMap{});
    basin_machine machine = BASIN_MACHINE_INIT;
    ASSERT_EQ(read(&machine), "");
    EXPECT_EQ(machine.local_rank, 0u);
    EXPECT_EQ(machine.local_size, 1u);
    EXPECT_EQ(machine.number, 0u);
    EXPECT_EQ(machine.machines, 1u);
  }
  {
    const Environment environment({{"SLURM_STEP_ID", "0"},
                                   {"SLURM_LOCALID", "1"},
                                   {"SLURM_NODEID", "3"},
                                   {"SLURM_STEP_NUM_NODES", "4"},
                                   {"SLURM_STEP_TASKS_PER_NODE", "2(x4)"}});
    basin_machine machine = BASIN_MACHINE_INIT;
    ASSERT_EQ(read(&machine), "");
    EXPECT_EQ(machine.local_rank, 1u);
    EXPECT_EQ(machine.local_size, 2u);
    EXPECT_EQ(machine.number, 3u);
    EXPECT_EQ(machine.machines, 4u);
    // An older caller, whose structure is shorter.
    machine = BASIN_MACHINE_INIT;
    machine.size = offsetof(basin_machine, number);
    ASSERT_EQ(read(&machine), "");
    EXPECT_EQ(machine.local_size, 2u);
    EXPECT_EQ(machine.machines, 0u);
  }
  {
    // Ranks that do not fill one machine after the other.
    const Environment environment({{"OMPI_COMM_WORLD_RANK", "1"},
                                   {"OMPI_COMM_WORLD_SIZE", "4"},
                                   {"OMPI_COMM_WORLD_LOCAL_RANK", "0"},
                                   {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}});
    basin_machine machine = BASIN_MACHINE_INIT;
    ASSERT_EQ(read(&machine), "");
    EXPECT_EQ(machine.machines, 0u);
  }
  const Environment environment(OptionMap{{"LOCAL_RANK", "two"}});
  basin_machine machine = BASIN_MACHINE_INIT;
  EXPECT_THAT(read(&machine), AllOf(HasSubstr("LOCAL_RANK"), HasSubstr("two")));
  EXPECT_THAT(read(nullptr), HasSubstr("null"));
}

TEST(OptionsTest, TheEnvironmentIsNotLookedAtUnasked) {
  const Environment environment({{"RANK", "3"}, {"BASIN_JOB", "x"}, {"BASIN_STREAMS", "wrong"}});
  Options options(0);
  EXPECT_EQ(options["job"], "default");
  EXPECT_NE(options["worker_id"], "worker-3");
  Failure failure;
  EXPECT_EQ(options.Connect(failure), BASIN_OK) << failure.message();
}

TEST(OptionsTest, AWrongEnvironmentIsToldByConnect) {
  const Environment environment(OptionMap{{"BASIN_STREAMS", "wrong"}});
  Options options(BASIN_READ_ENVIRONMENT);
  Failure failure;
  EXPECT_EQ(options.Connect(failure), BASIN_INVALID_ARGUMENT);
  EXPECT_THAT(failure.message(), HasSubstr("BASIN_STREAMS=wrong"));
}

TEST(OptionsTest, AWrongEnvironmentThatIsOverriddenIsNotUsed) {
  const Environment environment(
      OptionMap{{"BASIN_STREAMS", "wrong"}, {"BASIN_ADDRESS", "nowhere"}});
  Options options(BASIN_READ_ENVIRONMENT);
  ASSERT_EQ(basin_options_set(options.get(), "streams", "1", nullptr), BASIN_OK);
  Failure failure;
  EXPECT_EQ(options.Connect(failure), BASIN_INVALID_ARGUMENT);
  EXPECT_THAT(failure.message(), HasSubstr("BASIN_ADDRESS=nowhere"));
  ASSERT_EQ(basin_options_set(options.get(), "address", "127.0.0.1:1", nullptr), BASIN_OK);
  EXPECT_EQ(options.Connect(failure), BASIN_OK) << failure.message();
}

TEST(OptionsTest, AnAddressWithASchemeIsAnsweredWithWhatToLeaveOut) {
  Options options(0);
  Failure failure;
  for (const std::string scheme : {"http://", "https://", "grpc://"}) {
    EXPECT_EQ(basin_options_set(options.get(), "address", (scheme + "10.0.0.1:29600").c_str(),
                                failure.out()),
              BASIN_INVALID_ARGUMENT);
    EXPECT_THAT(failure.message(), HasSubstr("leave " + scheme + " out"));
  }
}

TEST(OptionsTest, ALauncherThatDoesNotSayHowManyNeedsMaxWorkers) {
  const Environment environment(OptionMap{{"JOB_COMPLETION_INDEX", "2"}});
  Options options(BASIN_READ_ENVIRONMENT);
  EXPECT_EQ(options["worker_id"], "worker-2");
  Failure failure;
  EXPECT_EQ(options.Connect(failure), BASIN_INVALID_ARGUMENT);
  EXPECT_THAT(failure.message(), HasSubstr("BASIN_MAX_WORKERS"));
}

TEST(OptionsTest, ContradictionsAreToldByConnect) {
  Options options(0);
  ASSERT_EQ(basin_options_set(options.get(), "min_workers", "4", nullptr), BASIN_OK);
  Failure failure;
  EXPECT_EQ(options.Connect(failure), BASIN_INVALID_ARGUMENT);
  EXPECT_THAT(failure.message(), HasSubstr("min_workers is 4"));
}

// ---- rounds

TEST_F(Abi, EveryMemberGetsTheAverageAndWhatItIsMadeOf) {
  const auto members = Launch(3);
  for (int round = 1; round <= 3; ++round) {
    Together(members, [&](Trainer& t, size_t i) {
      ASSERT_EQ(t.Step(static_cast<float>(1 << i), BASIN_AVERAGE), BASIN_OK) << t.failure.message();
      EXPECT_TRUE(t.ResultIs(7.0F / 3));
      EXPECT_EQ(t.info.round, static_cast<uint64_t>(round));
      EXPECT_EQ(t.info.op, BASIN_AVERAGE);
      EXPECT_EQ(t.info.divisor, 3u);
      EXPECT_EQ(t.info.contributors, 3u);
      EXPECT_EQ(t.info.samples, -1);
      EXPECT_EQ(t.info.world_size, 3u);
      EXPECT_NEAR(t.info.squared_norm, (Trainer::kWeights + 3) * 49.0 / 9, 1);
    });
    EXPECT_EQ(members[0]->info.chain, members[2]->info.chain);
  }
  EXPECT_EQ(members[1]->Place().rank, 1u);
  EXPECT_EQ(members[1]->Place().world_size, 3u);
  char id[64];
  EXPECT_EQ(basin_member_id(members[0]->worker, 2, id, sizeof(id)), 2u);
  EXPECT_STREQ(id, "w2");
  EXPECT_EQ(basin_member_id(members[0]->worker, 3, id, sizeof(id)), 0u);
}

TEST_F(Abi, AWeightedAverageCountsSamples) {
  const auto members = Launch(2);
  Together(members, [](Trainer& t, size_t i) {
    std::vector<float> bias(3, i == 0 ? 1.0F : 4.0F);
    basin_round_spec spec = Trainer::Spec(BASIN_WEIGHTED_AVERAGE);
    spec.weight = BASIN_BY_SAMPLES;
    spec.samples = i == 0 ? 1 : 2;
    ASSERT_EQ(basin_begin(t.worker, t.lane, &spec, t.failure.out()), BASIN_OK);
    ASSERT_EQ(basin_push(t.worker, t.lane, t.handles[1], bias.data(), 12, t.failure.out()),
              BASIN_OK);
    t.Commit();
    basin_result* result = nullptr;
    ASSERT_EQ(basin_wait(t.worker, t.lane, BASIN_SECONDS(60), &result, t.failure.out()), BASIN_OK);
    basin_result_info(result, &t.info);
    EXPECT_EQ(t.info.divisor, 3u);
    EXPECT_EQ(t.info.samples, 3);
    EXPECT_EQ(basin_result_has(result, t.handles[0]), 0) << "both skipped it";
    EXPECT_EQ(basin_result_copy(result, t.handles[0], bias.data(), 12, t.failure.out()),
              BASIN_NOT_FOUND);
    EXPECT_THAT(t.failure.message(), HasSubstr("weight"));
    ASSERT_EQ(basin_result_copy(result, t.handles[1], bias.data(), 12, t.failure.out()), BASIN_OK);
    EXPECT_EQ(bias, std::vector<float>(3, 3));
    EXPECT_STREQ(basin_result_contributor(result, 1), "w1");
    EXPECT_EQ(basin_result_contributor(result, 2), nullptr);
    EXPECT_EQ(basin_result_late(result, 0), nullptr) << "nobody was late";
    EXPECT_EQ(t.info.late_carries, 0);
    EXPECT_EQ(basin_result_contributor_deferred(result, 0), 0u);
    EXPECT_EQ(basin_result_contributor_deferred(result, 2), 0u) << "there is none";
    basin_result_free(result);
  });
}

// Nothing may be counted twice, so the verdict of the round before has to allow it.
TEST_F(Abi, OnlyWhatWasLateIsDeferred) {
  const auto members = Launch(1);
  Trainer& t = *members[0];
  basin_round_spec spec = Trainer::Spec(BASIN_AVERAGE);
  spec.deferred = 1;
  EXPECT_EQ(basin_begin(t.worker, t.lane, &spec, t.failure.out()), BASIN_INVALID_ARGUMENT);
  EXPECT_THAT(t.failure.message(),
              AllOf(HasSubstr("w0"), HasSubstr("gradients of the round before, "
                                               "whose verdict does not say")));
  spec.deferred = 0;
  EXPECT_EQ(basin_begin(t.worker, t.lane, &spec, t.failure.out()), BASIN_OK) << t.failure.message();
}

TEST_F(Abi, NarrowTensorsAreSummedInF32AndMayBeWrittenToAtOnce) {
  const auto members = Launch(2);
  Together(members, [](Trainer& t, size_t worker) {
    const basin_round_spec spec = Trainer::Spec(BASIN_SUM);
    ASSERT_EQ(basin_begin(t.worker, t.lane, &spec, t.failure.out()), BASIN_OK);
    std::vector<float> bias = {1.5F, 65536.0F, -3};
    const int32_t exponent = worker == 0 ? -4 : BASIN_FIT_EXPONENT;
    ASSERT_EQ(basin_push_narrow(t.worker, t.lane, t.handles[1], bias.data(), 12, BASIN_F16,
                                exponent, t.failure.out()),
              BASIN_OK)
        << t.failure.message();
    bias.assign(3, NAN);
    t.Commit();
    basin_result* result = nullptr;
    ASSERT_EQ(basin_wait(t.worker, t.lane, BASIN_SECONDS(60), &result, t.failure.out()), BASIN_OK)
        << t.failure.message();
    ASSERT_EQ(basin_result_copy(result, t.handles[1], bias.data(), 12, t.failure.out()), BASIN_OK);
    EXPECT_EQ(bias, (std::vector<float>{3, 131072, -6}));
    basin_result_free(result);
  });
}

TEST_F(Abi, ManyTensorsArePushedAndTakenInOneCallEach) {
  const auto members = Launch(2);
  Together(members, [](Trainer& t, size_t) {
    const basin_round_spec spec = Trainer::Spec(BASIN_SUM);
    ASSERT_EQ(basin_begin(t.worker, t.lane, &spec, t.failure.out()), BASIN_OK);
    std::vector<float> weight(Trainer::kWeights, 2);
    std::vector<float> bias = {1.5F, 4.0F, -3};
    const basin_pushed wrong[] = {
        {t.handles[0], weight.data(), 4 * Trainer::kWeights, BASIN_SAME_DTYPE, 0},
        {t.handles[1], bias.data(), 8, BASIN_SAME_DTYPE, 0}};
    EXPECT_EQ(basin_push_many(t.worker, t.lane, wrong, 2, t.failure.out()), BASIN_INVALID_ARGUMENT);
    EXPECT_THAT(t.failure.message(), HasSubstr("tensor bias"));
    EXPECT_EQ(basin_push_many(t.worker, t.lane, nullptr, 2, t.failure.out()),
              BASIN_INVALID_ARGUMENT);
    const basin_pushed both[] = {
        {t.handles[1], bias.data(), 12, BASIN_BF16, 0},
        {t.handles[0], weight.data(), 4 * Trainer::kWeights, BASIN_SAME_DTYPE, 0}};
    ASSERT_EQ(basin_push_many(t.worker, t.lane, both, 2, t.failure.out()), BASIN_OK)
        << t.failure.message();
    t.Commit();
    basin_result* result = nullptr;
    ASSERT_EQ(basin_wait(t.worker, t.lane, BASIN_SECONDS(60), &result, t.failure.out()), BASIN_OK)
        << t.failure.message();
    const basin_buffer out[] = {{t.handles[0], nullptr, weight.data(), 4 * Trainer::kWeights},
                                {t.handles[1], nullptr, bias.data(), 12}};
    ASSERT_EQ(basin_result_copy_many(result, out, 2, t.failure.out()), BASIN_OK)
        << t.failure.message();
    EXPECT_EQ(weight, std::vector<float>(Trainer::kWeights, 4));
    EXPECT_EQ(bias, (std::vector<float>{3, 8, -6}));
    EXPECT_EQ(basin_result_copy_many(result, nullptr, 2, t.failure.out()), BASIN_INVALID_ARGUMENT);
    basin_result_free(result);
  });
}

TEST_F(Abi, AWithdrawnContributionIsNotCountedAndGetsTheResult) {
  const auto members = Launch(3);
  Together(members, [](Trainer& t, size_t i) {
    t.Push(static_cast<float>(1 << i));
    if (i == 2) {
      ASSERT_EQ(basin_withdraw(t.worker, t.lane, "a bad batch", nullptr, nullptr, t.failure.out()),
                BASIN_OK);
    } else {
      t.Commit();
    }
    ASSERT_EQ(t.Wait(), BASIN_OK) << t.failure.message();
    EXPECT_TRUE(t.ResultIs(3));
    EXPECT_EQ(t.info.contributors, 2u);
  });
}

TEST_F(Abi, ARoundThatAllHaveWithdrawnFromIsAbortedForWantOfContributors) {
  const auto members = Launch(2);
  Together(members, [](Trainer& t, size_t) {
    t.Push(1);
    EXPECT_EQ(basin_withdraw(t.worker, t.lane, "a bad batch", nullptr, nullptr, t.failure.out()),
              BASIN_OK)
        << t.failure.message();
    EXPECT_EQ(t.Wait(), BASIN_ROUND_ABORTED);
    EXPECT_EQ(basin_error_abort_cause(t.failure.get()), BASIN_ABORT_NO_CONTRIBUTOR);
  });
  EXPECT_EQ(basin_error_abort_cause(nullptr), BASIN_ABORT_OTHER);
}

TEST_F(Abi, Fault_W10_AMismatchIsToldToTheOneWhoDiffers) {
  const auto members = Launch(3);
  Together(members, [](Trainer& t, size_t i) {
    t.Push(static_cast<float>(1 << i), i == 1 ? BASIN_MAX : BASIN_SUM);
    t.Commit();
    basin_result* result = nullptr;
    ASSERT_EQ(basin_wait(t.worker, t.lane, BASIN_SECONDS(60), &result, t.failure.out()), BASIN_OK);
    t.Take(result);
    EXPECT_TRUE(t.ResultIs(5));
    const basin_error* rejection = basin_result_rejection(result);
    EXPECT_EQ(basin_error_code(rejection), i == 1 ? BASIN_MISMATCH : BASIN_OK);
    if (i == 1) {
      EXPECT_THAT(basin_error_message(rejection), AllOf(HasSubstr("w1"), HasSubstr("w0")));
    }
    basin_result_free(result);
  });
}

TEST_F(Abi, Fault_W12_NamesTheFirstInputThatIsNotFinite) {
  const auto members = Launch(2);
  Together(members, [](Trainer& t, size_t i) {
    const basin_round_spec spec = Trainer::Spec(BASIN_SUM);
    std::vector<float> bias = {1, i == 1 ? INFINITY : 1, 1};
    ASSERT_EQ(basin_begin(t.worker, t.lane, &spec, t.failure.out()), BASIN_OK)
        << t.failure.message();
    ASSERT_EQ(basin_push(t.worker, t.lane, t.handles[1], bias.data(), 12, t.failure.out()),
              BASIN_OK);
    t.Commit();
    basin_result* result = nullptr;
    ASSERT_EQ(basin_wait(t.worker, t.lane, BASIN_SECONDS(60), &result, t.failure.out()), BASIN_OK);
    basin_result_info(result, &t.info);
    EXPECT_EQ(t.info.has_nonfinite, 1);
    EXPECT_EQ(t.info.nonfinite_tensor, t.handles[1]);
    EXPECT_EQ(t.info.nonfinite_element, 1u);
    EXPECT_STREQ(basin_result_nonfinite_worker(result), "w1");
    EXPECT_STREQ(basin_result_nonfinite_tensor(result), "bias");
    basin_result_free(result);
  });
}

TEST_F(Abi, WhatIsKnownOfTheTensorsCanBeCopiedAtOnce) {
  const auto members = Launch(2);
  Together(members, [](Trainer& t, size_t) {
    const basin_round_spec spec = Trainer::Spec(BASIN_AVERAGE);
    const std::vector<float> bias = {3, 0, 4};
    ASSERT_EQ(basin_begin(t.worker, t.lane, &spec, t.failure.out()), BASIN_OK)
        << t.failure.message();
    ASSERT_EQ(basin_push(t.worker, t.lane, t.handles[1], bias.data(), 12, t.failure.out()),
              BASIN_OK);
    t.Commit();
    basin_result* result = nullptr;
    ASSERT_EQ(basin_wait(t.worker, t.lane, BASIN_SECONDS(60), &result, t.failure.out()), BASIN_OK);
    EXPECT_EQ(basin_result_nonfinite_worker(result), nullptr);
    EXPECT_EQ(basin_result_nonfinite_tensor(result), nullptr);
    const size_t count = basin_result_tensors(result, 0, nullptr, nullptr);
    ASSERT_EQ(count, 2u);
    std::vector<uint64_t> divisors(count + 1, 99);
    std::vector<double> squared_norms(count + 1, 99);
    EXPECT_EQ(basin_result_tensors(result, count + 1, divisors.data(), squared_norms.data()),
              count);
    EXPECT_THAT(divisors, ElementsAre(0, 2, 99)) << "nobody pushed the weights";
    EXPECT_THAT(squared_norms, ElementsAre(-1, 25, 99)) << "there is none without a result";
    EXPECT_EQ(basin_result_tensors(result, 1, nullptr, squared_norms.data()), count);
    EXPECT_EQ(basin_result_tensors(nullptr, 1, nullptr, squared_norms.data()), 0u);
    basin_result_free(result);
  });
}

TEST_F(Abi, Criterion_3_8_IntegersHaveNoNorm) {
  const auto members = Launch(2);
  Together(members, [](Trainer& t, size_t) {
    const uint64_t shape = 2;
    const basin_tensor tensors[] = {{"whole", BASIN_I64, 1, &shape},
                                    {"real", BASIN_F32, 1, &shape}};
    uint32_t lane = 0;
    uint32_t handles[2] = {};
    ASSERT_EQ(basin_register(t.worker, "call/mixed", BASIN_CALL, tensors, 2, &lane, handles,
                             t.failure.out()),
              BASIN_OK)
        << t.failure.message();
    const std::vector<int64_t> whole = {3, 4};
    const std::vector<float> real = {3, 4};
    for (const bool both : {false, true}) {
      std::vector<int64_t> sums(2);
      std::vector<float> real_sums(2);
      const basin_buffer buffers[] = {{handles[0], whole.data(), sums.data(), 16},
                                      {handles[1], real.data(), real_sums.data(), 8}};
      const basin_round_spec spec = Trainer::Spec(BASIN_SUM);
      basin_result* result = nullptr;
      ASSERT_EQ(basin_allreduce(t.worker, lane, &spec, buffers, both ? 2 : 1, BASIN_SECONDS(60),
                                &result, t.failure.out()),
                BASIN_OK)
          << t.failure.message();
      EXPECT_THAT(sums, ElementsAre(6, 8));
      basin_result_info(result, &t.info);
      EXPECT_EQ(t.info.squared_norm, both ? 100 : -1);
      EXPECT_EQ(basin_result_squared_norm(result, handles[0]), -1);
      EXPECT_EQ(basin_result_squared_norm(result, handles[1]), both ? 100 : -1);
      EXPECT_EQ(basin_result_contributor_squared_norm(result, 1), both ? 25 : -1);
      basin_result_free(result);
    }
  });
}

TEST_F(Abi, Criterion_3_3_WhatIsNotFiniteWithWeightZeroIsSeenAndNotCounted) {
  const auto members = Launch(2);
  Together(members, [](Trainer& t, size_t i) {
    std::vector<float> bias(3, i == 0 ? NAN : 4.0F);
    basin_round_spec spec = Trainer::Spec(BASIN_WEIGHTED_AVERAGE);
    spec.weight = BASIN_BY_TOKENS;
    spec.tokens = i == 0 ? 0 : 7;
    ASSERT_EQ(basin_begin(t.worker, t.lane, &spec, t.failure.out()), BASIN_OK);
    ASSERT_EQ(basin_push(t.worker, t.lane, t.handles[1], bias.data(), 12, t.failure.out()),
              BASIN_OK);
    t.Commit();
    basin_result* result = nullptr;
    ASSERT_EQ(basin_wait(t.worker, t.lane, BASIN_SECONDS(60), &result, t.failure.out()), BASIN_OK);
    basin_result_info(result, &t.info);
    EXPECT_EQ(t.info.has_nonfinite, 0) << "it was not read";
    EXPECT_EQ(t.info.squared_norm, 48);
    EXPECT_EQ(basin_result_contributor_weight(result, 0), 0u);
    EXPECT_EQ(basin_result_contributor_squared_norm(result, 0), INFINITY) << "it was there";
    ASSERT_EQ(basin_result_copy(result, t.handles[1], bias.data(), 12, t.failure.out()), BASIN_OK);
    EXPECT_EQ(bias, std::vector<float>(3, 4));
    basin_result_free(result);
  });
}

TEST_F(Abi, Fault_W11_ACountIsAtMostTwoToThe48) {
  const auto members = Launch(1);
  Trainer& t = *members[0];
  basin_round_spec spec = Trainer::Spec(BASIN_SUM);
  spec.tokens = (int64_t{1} << 48) + 1;
  EXPECT_EQ(basin_begin(t.worker, t.lane, &spec, t.failure.out()), BASIN_INVALID_ARGUMENT);
  EXPECT_THAT(t.failure.message(), AllOf(HasSubstr("281474976710657 tokens"), HasSubstr("w0"),
                                         HasSubstr("coarser unit")));
  spec.tokens = int64_t{1} << 48;
  EXPECT_EQ(basin_begin(t.worker, t.lane, &spec, t.failure.out()), BASIN_OK) << t.failure.message();
}

TEST_F(Abi, AResultCanBeReadWhereItWasReceived) {
  const auto members = Launch(2);
  Together(members, [](Trainer& t, size_t) {
    t.Push(2);
    t.Commit();
    basin_result* result = nullptr;
    ASSERT_EQ(basin_wait(t.worker, t.lane, BASIN_SECONDS(60), &result, t.failure.out()), BASIN_OK);
    std::string bytes;
    const void* data = nullptr;
    size_t size = 0;
    for (size_t i = 0; basin_result_piece(result, t.handles[0], i, &data, &size) != 0; ++i) {
      bytes.append(static_cast<const char*>(data), size);
    }
    ASSERT_EQ(bytes.size(), Trainer::kWeights * sizeof(float));
    std::vector<float> weight(Trainer::kWeights);
    std::memcpy(weight.data(), bytes.data(), bytes.size());
    EXPECT_EQ(std::count(weight.begin(), weight.end(), 4.0F),
              static_cast<int64_t>(Trainer::kWeights));
    basin_result_free(result);
  });
}

TEST_F(Abi, AnAllreduceIsOneCallAndABarrierToo) {
  const auto members = Launch(3);
  Together(members, [](Trainer& t, size_t i) {
    const uint64_t two = 2;
    const basin_tensor tensor = {"loss", BASIN_F64, 1, &two};
    uint32_t lane = 0;
    uint32_t handle = 0;
    ASSERT_EQ(basin_register(t.worker, "call/loss", BASIN_CALL, &tensor, 1, &lane, &handle,
                             t.failure.out()),
              BASIN_OK);
    double loss[2] = {static_cast<double>(i), 1};
    const basin_round_spec spec = Trainer::Spec(BASIN_SUM);
    const basin_buffer buffer = {handle, loss, loss, sizeof(loss)};
    ASSERT_EQ(basin_allreduce(t.worker, lane, &spec, &buffer, 1, BASIN_SECONDS(60), nullptr,
                              t.failure.out()),
              BASIN_OK)
        << t.failure.message();
    EXPECT_EQ(loss[0], 3);
    EXPECT_EQ(loss[1], 3);
    EXPECT_EQ(basin_barrier(t.worker, "end", BASIN_SECONDS(60), t.failure.out()), BASIN_OK)
        << t.failure.message();
  });
}

TEST_F(Abi, AllocatesMemoryForGradients) {
  const auto members = Launch(1);
  Trainer& t = *members[0];
  void* memory = nullptr;
  ASSERT_EQ(basin_allocate(t.worker, 4096, &memory, t.failure.out()), BASIN_OK)
      << t.failure.message();
  EXPECT_EQ(static_cast<const char*>(memory)[4095], 0);
  EXPECT_EQ(basin_free(t.worker, memory, t.failure.out()), BASIN_OK);
  EXPECT_EQ(basin_free(t.worker, nullptr, t.failure.out()), BASIN_OK);
  EXPECT_EQ(basin_free(t.worker, memory, t.failure.out()), BASIN_INVALID_ARGUMENT);
  EXPECT_THAT(t.failure.message(), HasSubstr("freed before"));
  EXPECT_EQ(basin_allocate(t.worker, 0, &memory, t.failure.out()), BASIN_INVALID_ARGUMENT);
  EXPECT_EQ(basin_allocate(t.worker, 1, nullptr, t.failure.out()), BASIN_INVALID_ARGUMENT);
}

TEST_F(Abi, ABarrierWaitsForEverybody) {
  const auto members = Launch(2);
  Failure& failure = members[0]->failure;
  EXPECT_EQ(basin_barrier(members[0]->worker, "b", BASIN_SECONDS(1) / 20, failure.out()),
            BASIN_OUTCOME_UNKNOWN);
  EXPECT_THAT(failure.message(), HasSubstr("call/barrier/b"));
}

// ---- values

// After a timeout the same barrier continues: a worker that calls again is not one barrier ahead.
TEST_F(Abi, ABarrierThatTimedOutIsTheSameWhenItIsCalledAgain) {
  const auto members = Launch(2);
  const auto barrier = [](Trainer& t, int64_t timeout) {
    return basin_barrier(t.worker, "b", timeout, t.failure.out());
  };
  EXPECT_EQ(barrier(*members[0], BASIN_SECONDS(1) / 100), BASIN_OUTCOME_UNKNOWN);
  EXPECT_EQ(barrier(*members[0], BASIN_SECONDS(1) / 100), BASIN_OUTCOME_UNKNOWN);
  EXPECT_EQ(barrier(*members[1], BASIN_SECONDS(60)), BASIN_OK)
      << members[1]->failure.message();  // Both are there, though one of them does not wait.
  EXPECT_EQ(barrier(*members[0], BASIN_SECONDS(60)), BASIN_OK) << members[0]->failure.message();
  // The next one is for both again.
  EXPECT_EQ(barrier(*members[0], BASIN_SECONDS(1) / 100), BASIN_OUTCOME_UNKNOWN);
  EXPECT_EQ(barrier(*members[1], BASIN_SECONDS(60)), BASIN_OK) << members[1]->failure.message();
  EXPECT_EQ(barrier(*members[0], BASIN_SECONDS(60)), BASIN_OK) << members[0]->failure.message();
}

TEST_F(Abi, Criterion_2_5_ABroadcastCopiesTheRootsBits) {
  const auto members = Launch(3);
  const std::vector<float> value = {NAN, -0.0F, INFINITY, 1e-45F, 5};
  Together(members, [&](Trainer& t, size_t i) {
    const uint64_t five = 5;
    const basin_tensor tensor = {"p", BASIN_F32, 1, &five};
    std::vector<float> data(5, static_cast<float>(i));
    if (i == 1) data = value;
    ASSERT_EQ(basin_broadcast(t.worker, "model", &tensor, 0, 1, data.data(), 20, BASIN_SECONDS(60),
                              t.failure.out()),
              BASIN_OK)
        << t.failure.message();
    // NOLINTNEXTLINE(bugprone-suspicious-memory-comparison): bits are what is compared.
    EXPECT_EQ(std::memcmp(data.data(), value.data(), 20), 0);
  });
  Trainer& other = *members[0];
  const uint64_t six = 6;
  const basin_tensor wrong = {"p", BASIN_F32, 1, &six};
  std::vector<float> data(6);
  EXPECT_EQ(basin_get(other.worker, "model", &wrong, 0, "w1", BASIN_SECONDS(60), data.data(), 24,
                      other.failure.out()),
            BASIN_MISMATCH);
  EXPECT_THAT(other.failure.message(), AllOf(HasSubstr("f32[6]"), HasSubstr("f32[5]")));
  // It has the same size in bytes.
  const std::array<uint64_t, 2> shape = {5, 1};
  for (const basin_tensor& differs :
       {basin_tensor{"p", BASIN_I32, 1, shape.data()},
        basin_tensor{"p", BASIN_F32, 2, shape.data()}, basin_tensor{"p", BASIN_U8, 0, nullptr}}) {
    const size_t bytes = differs.dtype == BASIN_U8 ? 1 : 20;
    EXPECT_EQ(basin_broadcast(other.worker, "model", &differs, 0, 1, data.data(), bytes,
                              BASIN_SECONDS(60), other.failure.out()),
              BASIN_MISMATCH);
  }
  EXPECT_EQ(
      basin_broadcast(other.worker, "model", &wrong, 0, 9, data.data(), 24, 0, other.failure.out()),
      BASIN_INVALID_ARGUMENT);
}

// Both come from a checkpoint, and one of them is further: it learns that it serves its state, and
// the other gets the state from it before the first round.
TEST_F(Abi, WhoIsFurthestAtTheStartGivesItsStateToTheOthers) {
  const uint64_t one = 1;
  const basin_tensor state = {"state", BASIN_F32, 1, &one};
  std::vector<Trainer*> members;
  for (const uint64_t step : {3, 5}) {
    trainers.push_back(std::make_unique<Trainer>(aggregator.address(),
                                                 "w" + std::to_string(members.size()), 2,
                                                 OptionMap{}, nullptr, nullptr, step, 70 + step));
    members.push_back(trainers.back().get());
  }
  std::array<float, 2> values = {3, 5};
  std::array<uint64_t, 2> versions{};
  Together(members, [&](Trainer& t, size_t i) {
    ASSERT_EQ(t.AwaitMember(), BASIN_OK) << t.failure.message();
    basin_place place = BASIN_PLACE_INIT;
    ASSERT_EQ(basin_get_place(t.worker, &place, t.failure.out()), BASIN_OK);
    EXPECT_EQ(place.has_donor, 1);
    EXPECT_EQ(place.is_donor, i == 1 ? 1 : 0);
    versions[i] = place.donor_counter;
    std::array<char, 8> donor{};
    EXPECT_EQ(basin_donor_id(t.worker, donor.data(), donor.size()), 2U);
    EXPECT_STREQ(donor.data(), "w1");
    if (place.is_donor == 1) {
      EXPECT_EQ(basin_announce(t.worker, "state", &state, versions[i], &values[i],
                               sizeof(values[i]), BASIN_IN_PLACE, t.failure.out()),
                BASIN_OK)
          << t.failure.message();
    } else {
      EXPECT_EQ(basin_get(t.worker, "state", &state, versions[i], donor.data(), BASIN_SECONDS(60),
                          &values[i], sizeof(float), t.failure.out()),
                BASIN_OK)
          << t.failure.message();
    }
  });
  EXPECT_EQ(versions[0], versions[1]);
  EXPECT_GT(versions[0], 0U);
  EXPECT_EQ(values, (std::array<float, 2>{5, 5}));
  Together(members, [](Trainer& t, size_t) {
    EXPECT_EQ(t.Step(1), BASIN_OK) << t.failure.message();
    EXPECT_TRUE(t.ResultIs(2));
  });
}

TEST_F(Abi, AStateIsRegisteredOnceAndBeforeTheWorkerIsAMember) {
  Trainer t(aggregator.address(), "w0", 1, {}, nullptr, nullptr, 0, 0, /*ready=*/false);
  double memory = 0;
  const basin_state_get get = [](void*, const void**, size_t*) -> const char* { return "no"; };
  const basin_state_set set = [](void*, const void*, size_t) -> const char* { return "no"; };
  const auto registers = [&](const char* name, const char* model, basin_state_get g,
                             basin_state_set s) {
    return basin_state_register(t.worker, name, model, g, s, nullptr, t.failure.out());
  };
  EXPECT_EQ(basin_state_register(nullptr, "a", "m", get, set, nullptr, t.failure.out()),
            BASIN_INVALID_ARGUMENT);
  EXPECT_EQ(registers("a", "m", nullptr, set), BASIN_INVALID_ARGUMENT);
  EXPECT_EQ(registers("a", "m", get, nullptr), BASIN_INVALID_ARGUMENT);
  EXPECT_THAT(t.failure.message(), HasSubstr("State \"a\""));
  EXPECT_EQ(registers(nullptr, "m", get, set), BASIN_INVALID_ARGUMENT);
  EXPECT_EQ(registers("a\n", "m", get, set), BASIN_INVALID_ARGUMENT);
  EXPECT_EQ(registers("a", nullptr, get, set), BASIN_INVALID_ARGUMENT);
  EXPECT_THAT(t.failure.message(), AllOf(HasSubstr("Worker w0"), HasSubstr("state \"a\"")));
  const auto remembers = [&](const char* name, void* at) {
    return basin_state_register_memory(t.worker, name, at, sizeof memory, t.failure.out());
  };
  EXPECT_EQ(remembers("a", nullptr), BASIN_INVALID_ARGUMENT);
  EXPECT_EQ(remembers("a", &memory), BASIN_OK) << t.failure.message();
  EXPECT_EQ(remembers("a", &memory), BASIN_FAILED_PRECONDITION);
  EXPECT_THAT(t.failure.message(), HasSubstr("state \"a\" already"));
  EXPECT_EQ(registers("b", "m", get, set), BASIN_OK) << t.failure.message();
  // Without a hash, that of the states is computed.
  EXPECT_EQ(basin_ready(t.worker, 0, 0, t.failure.out()), BASIN_FAILED_PRECONDITION);
  EXPECT_THAT(t.failure.message(), HasSubstr("cannot get its state \"b\": no"));
  // Nobody joins, so no function is called any more.
  ASSERT_EQ(basin_ready(t.worker, 0, 1, t.failure.out()), BASIN_OK) << t.failure.message();
  ASSERT_EQ(t.AwaitMember(), BASIN_OK) << t.failure.message();
  EXPECT_EQ(t.Step(1), BASIN_OK) << t.failure.message();
  EXPECT_EQ(remembers("c", &memory), BASIN_FAILED_PRECONDITION);
  EXPECT_THAT(t.failure.message(), AllOf(HasSubstr("state \"c\""), HasSubstr("basin_ready")));
}

TEST_F(Abi, AnAllreduceOfAWorkerWithStatesLeavesWhatNobodyContributedUnchanged) {
  Trainer t(aggregator.address(), "w0", 1, {}, nullptr, nullptr, 0, 0, /*ready=*/false);
  double memory = 0;
  ASSERT_EQ(basin_state_register_memory(t.worker, "a", &memory, sizeof memory, t.failure.out()),
            BASIN_OK)
      << t.failure.message();
  ASSERT_EQ(basin_ready(t.worker, 0, 0, t.failure.out()), BASIN_OK) << t.failure.message();
  ASSERT_EQ(t.AwaitMember(), BASIN_OK) << t.failure.message();
  const std::vector<float> in(3, 4.0F);
  for (const int64_t samples : {0, 2}) {  // A contribution of no samples is not counted.
    basin_round_spec spec = Trainer::Spec(BASIN_WEIGHTED_AVERAGE);
    spec.weight = BASIN_BY_SAMPLES;
    spec.samples = samples;
    std::vector<float> out(3, 7.0F);
    const basin_buffer buffer = {t.handles[1], in.data(), out.data(), 12};
    basin_result* result = nullptr;
    ASSERT_EQ(basin_allreduce(t.worker, t.lane, &spec, &buffer, 1, BASIN_SECONDS(60), &result,
                              t.failure.out()),
              BASIN_OK)
        << t.failure.message();
    EXPECT_EQ(basin_result_has(result, t.handles[1]), samples > 0 ? 1 : 0);
    EXPECT_THAT(out, Each(samples > 0 ? 4.0F : 7.0F));
    basin_result_free(result);
  }
}

TEST_F(Abi, AWorkerThatIsNotReadyIsToldWhetherTheJobGoesOnWithoutIt) {
  const OptionMap room = {{"max_workers", "2"}, {"min_workers", "1"}, {"start_workers", "1"}};
  const auto outside = [&](const char* id) {
    auto t = std::make_unique<Trainer>(aggregator.address(), id, 2, room, nullptr, nullptr, 0, 0,
                                       /*ready=*/false);
    EXPECT_EQ(basin_await_welcome(t->worker, BASIN_SECONDS(60), t->failure.out()), BASIN_OK)
        << t->failure.message();
    return t;
  };
  const auto early = outside("w1");
  EXPECT_EQ(early->Place().expected_world_size, 0U) << "the job has not begun";
  early->Close();

  const auto members = Launch(1, room);
  EXPECT_EQ(members[0]->Step(1), BASIN_OK) << members[0]->failure.message();
  const auto late = outside("w1");
  EXPECT_EQ(late->Place().role, BASIN_JOINER);
  EXPECT_EQ(late->Place().expected_rank, 1U);
  EXPECT_EQ(late->Place().expected_world_size, 2U);
  EXPECT_EQ(members[0]->Step(1), BASIN_OK) << "it waits for no worker that is not ready";
  EXPECT_EQ(basin_ready(late->worker, 0, 0, late->failure.out()), BASIN_OK);
  while (members[0]->Place().world_size < 2) {
    EXPECT_EQ(members[0]->Step(1), BASIN_OK) << members[0]->failure.message();
  }
  ASSERT_EQ(late->AwaitMember(), BASIN_OK) << late->failure.message();
  EXPECT_EQ(late->Place().rank, 1U);
  EXPECT_EQ(late->Place().expected_world_size, 0U);
}

TEST_F(Abi, WhoJoinsLateIsNamedADonorAndAVersionOfItsState) {
  const OptionMap room = {{"max_workers", "3"}, {"min_workers", "2"}, {"start_workers", "2"}};
  const auto members = Launch(2, room);
  const auto place_of = [](Trainer& t) {
    basin_place place = BASIN_PLACE_INIT;
    EXPECT_EQ(basin_get_place(t.worker, &place, t.failure.out()), BASIN_OK) << t.failure.message();
    return place;
  };
  const auto version_of = [&](Trainer& t) {
    const basin_place place = place_of(t);
    return std::make_pair(place.donor_term, place.donor_counter);
  };
  EXPECT_EQ(version_of(*members[0]), std::make_pair(uint64_t{0}, uint64_t{0}));

  const auto train = [&] {
    Together(members, [](Trainer& t, size_t) {
      t.Push(1);
      t.Commit();
      ASSERT_EQ(t.Wait(), BASIN_OK) << t.failure.message();
    });
  };
  const auto train_until = [&](uint32_t members_wanted) {
    while (place_of(*members[0]).world_size != members_wanted) train();
  };
  train();  // A worker that joins before the first round is a member at once, and has nothing to
            // load.

  // The new worker becomes a member with a verdict; rounds go on until it is one.
  Trainer& late =
      *trainers.emplace_back(std::make_unique<Trainer>(aggregator.address(), "w2", 3, room));
  train_until(3);
  ASSERT_EQ(late.AwaitMember(), BASIN_OK) << late.failure.message();

  const auto version = version_of(late);
  EXPECT_EQ(version,
            std::make_pair(place_of(late).generation_term, place_of(late).generation_counter));
  std::array<char, 8> donor{};
  EXPECT_EQ(basin_donor_id(late.worker, donor.data(), donor.size()), 2U);
  EXPECT_STREQ(donor.data(), "w0");
  for (Trainer* member : members) {
    EXPECT_EQ(version_of(*member), version);
    EXPECT_EQ(place_of(*member).is_donor, member == members[0] ? 1 : 0);
  }

  // The state is that of the boundary, whenever it is fetched: no round can pass the joiner by.
  const uint64_t one = 1;
  const basin_tensor state = {"state", BASIN_F32, 1, &one};
  const float value = 42;
  float received = 0;
  EXPECT_EQ(basin_announce(members[0]->worker, "state", &state, version.second, &value,
                           sizeof(value), BASIN_IN_PLACE, members[0]->failure.out()),
            BASIN_OK)
      << members[0]->failure.message();
  EXPECT_EQ(basin_get(late.worker, "state", &state, version.second, "w0", BASIN_SECONDS(60),
                      &received, sizeof(received), late.failure.out()),
            BASIN_OK)
      << late.failure.message();
  EXPECT_EQ(received, value);
  EXPECT_EQ(basin_stop_serving(members[0]->worker, "state", "state", nullptr), BASIN_OK);

  // A worker leaves: the members change, and the version stays the same.
  late.Close();
  train_until(2);
  EXPECT_EQ(version_of(*members[1]), version);
}

// ---- waiting

TEST_F(Abi, ADeadlineKeepsTheRoundAndAbandonGivesTheMemoryBack) {
  const auto members = Launch(2);
  Trainer& t = *members[0];
  t.Push(1);
  t.Commit();
  EXPECT_EQ(t.Wait(0), BASIN_OUTCOME_UNKNOWN);
  EXPECT_THAT(t.failure.message(), HasSubstr("model"));
  EXPECT_EQ(basin_error_is_fatal(t.failure.get()), 0);
  const basin_round_spec spec = Trainer::Spec(BASIN_SUM);
  EXPECT_EQ(basin_begin(t.worker, t.lane, &spec, t.failure.out()), BASIN_FAILED_PRECONDITION);
  EXPECT_EQ(basin_abandon(t.worker, t.failure.out()), BASIN_OK) << t.failure.message();
  std::fill(t.weight.begin(), t.weight.end(), NAN);
}

// Ends of rounds as a callback counts them.
struct Outcome {
  std::promise<float> result;
  static void Take(void* user, uint32_t, basin_result* result, const basin_error* error) {
    EXPECT_EQ(error, nullptr);
    float first = 0;
    const void* data = nullptr;
    size_t size = 0;
    if (basin_result_piece(result, 0, 0, &data, &size) != 0) {
      std::memcpy(&first, data, sizeof(first));
    }
    static_cast<Outcome*>(user)->result.set_value(first);
    basin_result_free(result);
  }
};

TEST_F(Abi, ACallbackHearsTheOutcome) {
  const auto members = Launch(2);
  Outcome told[2];
  Together(members, [&](Trainer& t, size_t i) {
    t.Push(3);
    ASSERT_EQ(basin_commit(t.worker, t.lane, Outcome::Take, &told[i], t.failure.out()), BASIN_OK);
  });
  EXPECT_EQ(told[0].result.get_future().get(), 6);
  EXPECT_EQ(told[1].result.get_future().get(), 6);
}

TEST_F(Abi, TheDescriptorIsReadableWhenARoundHasEnded) {
  const auto members = Launch(2);
  Together(members, [](Trainer& t, size_t) {
    int fd = -1;
    ASSERT_EQ(basin_event_fd(t.worker, &fd, t.failure.out()), BASIN_OK);
    t.Push(3);
    t.Commit();
    basin_code code = BASIN_OUTCOME_UNKNOWN;
    while (code == BASIN_OUTCOME_UNKNOWN) {
      pollfd readable = {fd, POLLIN, 0};
      ASSERT_EQ(poll(&readable, 1, 60'000), 1);
      uint64_t events = 0;
      ASSERT_EQ(read(fd, &events, sizeof(events)), ssize_t{sizeof(events)});
      code = t.Wait(0);
    }
    EXPECT_EQ(code, BASIN_OK) << t.failure.message();
    EXPECT_TRUE(t.ResultIs(6));
  });
}

// ---- the promises to the process it lives in

std::multiset<std::string> ThreadNames() {
  std::multiset<std::string> names;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::string name;
    std::ifstream(task.path() / "comm") >> name;
    names.insert(name);
  }
  return names;
}

TEST_F(Abi, Promise_ItsThreadsAreFewAndNamed) {
  const auto before = ThreadNames();
  const auto members = Launch(1);
  ASSERT_EQ(members[0]->Step(1), BASIN_OK);
  std::multiset<std::string> names = ThreadNames();
  EXPECT_EQ(names.count("basin-client"), before.count("basin-client") + 1);
  for (const std::string& name : before) {
    if (const auto found = names.find(name); found != names.end()) names.erase(found);
  }
  names.erase("basin-client");
  for (const std::string& name : names) {
    EXPECT_THAT(name, AnyOf(StartsWith("default-exec"), StartsWith("resolver-exec"),
                            StartsWith("grpc"), StartsWith("event_engine"),
                            StartsWith("timer_manager"), StartsWith("nexting_thr")))
        << "a thread that basin.h does not mention";
  }
  // gRPC sizes its own by the number of cores, at most 16 of a kind.
  EXPECT_LE(names.size(), 16u + 2 * std::thread::hardware_concurrency());
}

TEST_F(Abi, Promise_NoSignalHandlerIsInstalledAndNoThreadOfItsTakesSignals) {
  struct sigaction before[NSIG] = {};
  for (int signal = 1; signal < NSIG; ++signal) sigaction(signal, nullptr, &before[signal]);
  const auto members = Launch(1);
  ASSERT_EQ(members[0]->Step(1), BASIN_OK);
  for (int signal = 1; signal < NSIG; ++signal) {
    struct sigaction now = {};
    sigaction(signal, nullptr, &now);
    EXPECT_EQ(now.sa_handler, before[signal].sa_handler) << signal;
  }
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::ifstream status(task.path() / "status");
    std::string name;
    std::string word;
    uint64_t blocked = 0;
    while (status >> word) {
      if (word == "Name:") status >> name;
      if (word == "SigBlk:") status >> std::hex >> blocked >> std::dec;
    }
    if (name == "basin-client") {
      EXPECT_NE(blocked & (uint64_t{1} << (SIGTERM - 1)), 0u);
    }
  }
}

TEST_F(Abi, Promise_InAChildEveryCallFailsAtOnce) {
  const auto members = Launch(1);
  Trainer& t = *members[0];
  ASSERT_EQ(t.Step(1), BASIN_OK);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    // The exit code reports failures: a child cannot use the test framework.
    alarm(20);
    basin_place place = BASIN_PLACE_INIT;
    basin_error* error = nullptr;
    const basin_round_spec spec = Trainer::Spec(BASIN_SUM);
    bool good = basin_get_place(t.worker, &place, &error) == BASIN_FAILED_PRECONDITION;
    good = good && std::strstr(basin_error_message(error), "child") != nullptr;
    good = good && basin_begin(t.worker, t.lane, &spec, nullptr) == BASIN_FAILED_PRECONDITION;
    good = good && basin_wait(t.worker, t.lane, BASIN_FOREVER, nullptr, nullptr) ==
                       BASIN_FAILED_PRECONDITION;
    good = good && basin_leave(t.worker, nullptr) == BASIN_FAILED_PRECONDITION;
    good = good && basin_member_id(t.worker, 0, nullptr, 0) == 0;
    basin_close(t.worker);
    _exit(good ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  EXPECT_EQ(t.Step(1), BASIN_OK) << "the parent goes on: " << t.failure.message();
}

// The log of the library, for the test.
class LogLines {
 public:
  static void Take(void* user, basin_log_level, const char* message) {
    auto* logged = static_cast<LogLines*>(user);
    const std::lock_guard<std::mutex> lock(logged->mutex_);
    logged->lines_.emplace_back(message);
    logged->changed_.notify_all();
  }
  // Returns when a line has this text, or false after a minute.
  bool Await(const std::string& text) {
    std::unique_lock<std::mutex> lock(mutex_);
    return changed_.wait_for(lock, std::chrono::minutes(1), [&] {
      return std::any_of(lines_.begin(), lines_.end(), [&](const std::string& line) {
        return line.find(text) != std::string::npos;
      });
    });
  }
  std::vector<std::string> lines() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return lines_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::string> lines_;
};

TEST_F(Abi, TheLogSaysWhatChangesAndNothingElse) {
  LogLines logged;
  {
    Trainer t(aggregator.address(), "w0", 1, {{"log_level", "info"}}, LogLines::Take, &logged);
    ASSERT_EQ(t.AwaitMember(), BASIN_OK);
    for (int round = 0; round < 3; ++round) ASSERT_EQ(t.Step(1), BASIN_OK);
    ASSERT_EQ(basin_leave(t.worker, t.failure.out()), BASIN_OK) << t.failure.message();
  }
  const auto lines = logged.lines();
  EXPECT_THAT(lines, Contains(HasSubstr("rank 0 of 1 member,")));
  EXPECT_THAT(lines, Contains(HasSubstr("Gradients go over the network.")));
  EXPECT_THAT(lines, Contains(HasSubstr("has left the job")));
  EXPECT_EQ(lines.size(), 3u) << testing::PrintToString(lines);
}

// A folder that is removed with its files.
class Folder {
 public:
  Folder() {
    std::string path = testing::TempDir() + "/timelineXXXXXX";
    EXPECT_NE(mkdtemp(path.data()), nullptr);
    path_ = path;
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  std::string path() const { return path_; }
  std::vector<std::string> names() const {
    std::vector<std::string> found;
    for (const auto& entry : std::filesystem::directory_iterator(path_)) {
      found.push_back(entry.path().filename());
    }
    return found;
  }
  std::string text(const std::string& name) const {
    std::ifstream file(path_ + "/" + name);
    return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  }

 private:
  std::string path_;
};

TEST_F(Abi, ATimelineHasTheRoundsOfAWorker) {
  const Folder folder;
  {
    Trainer t(aggregator.address(), "w0", 1, {{"timeline", folder.path()}});
    ASSERT_EQ(t.AwaitMember(), BASIN_OK);
    for (int round = 0; round < 3; ++round) ASSERT_EQ(t.Step(1), BASIN_OK);
    ASSERT_EQ(basin_leave(t.worker, t.failure.out()), BASIN_OK) << t.failure.message();
  }
  ASSERT_EQ(folder.names().size(), 1u);
  EXPECT_THAT(folder.names()[0], AllOf(HasSubstr(".w0."), EndsWith(".json")));
  const std::string text = folder.text(folder.names()[0]);
  for (const char* const what : {"round 1", "round 3", "push", "wait", "verdict", "compute",
                                 "contribution", "timeline ends"}) {
    EXPECT_THAT(text, HasSubstr(std::string("\"name\":\"") + what + "\"")) << text;
  }
  EXPECT_THAT(text, AllOf(StartsWith("[\n{"), EndsWith("}\n]\n")));
}

TEST_F(Abi, ATimelineEndsAtItsBoundAndTheTrainingGoesOn) {
  const Folder folder;
  const std::string file = folder.path() + "/trace.json";
  LogLines logged;
  Trainer t(aggregator.address(), "w0", 1, {{"timeline", file}, {"timeline_max_bytes", "8192"}},
            LogLines::Take, &logged);
  ASSERT_EQ(t.AwaitMember(), BASIN_OK);
  for (int round = 0; round < 20; ++round) ASSERT_EQ(t.Step(1), BASIN_OK);
  EXPECT_TRUE(logged.Await("has its 8192 bytes (timeline_max_bytes, BASIN_TIMELINE_MAX_BYTES)"));
  for (int round = 0; round < 3; ++round) ASSERT_EQ(t.Step(1), BASIN_OK);
  const std::string text = folder.text("trace.json");
  EXPECT_LE(text.size(), 8192u);
  EXPECT_THAT(text, AllOf(HasSubstr("timeline full"), EndsWith("}\n]\n")));
  size_t lines = 0;
  for (const std::string& line : logged.lines()) {
    lines += line.find("timeline_max_bytes") != std::string::npos ? 1 : 0;
  }
  EXPECT_EQ(lines, 1u);
}

TEST(Timeline, APathThatCannotBeWrittenIsNamedBeforeItConnects) {
  const Folder folder;
  Failure failure;
  {
    const Environment environment(OptionMap{{"BASIN_TIMELINE", folder.path() + "/no/t.json"}});
    Options options(BASIN_READ_ENVIRONMENT);
    EXPECT_EQ(options.Connect(failure), BASIN_INVALID_ARGUMENT);
    EXPECT_THAT(failure.message(), AllOf(HasSubstr("BASIN_TIMELINE"), HasSubstr("/no/t.json"),
                                         HasSubstr("No such file"), HasSubstr("Name a folder")));
  }
  Options options(0);
  ASSERT_EQ(basin_options_set(options.get(), "timeline", "/dev/null", nullptr), BASIN_OK);
  EXPECT_EQ(options.Connect(failure), BASIN_INVALID_ARGUMENT);
  EXPECT_THAT(failure.message(), HasSubstr("it is not a file"));
  EXPECT_THAT(folder.names(), IsEmpty());
}

TEST(Timeline, AFileOfAnotherProcessIsLeftAlone) {
  const Folder folder;
  const std::string file = folder.path() + "/trace.json";
  std::array<int, 2> locked = {};
  std::array<int, 2> done = {};
  ASSERT_EQ(pipe(locked.data()) | pipe(done.data()), 0);
  const pid_t child = fork();
  if (child == 0) {
    const int opened = open(file.c_str(), O_WRONLY | O_CREAT, 0644);
    struct flock lock = {};
    lock.l_type = F_WRLCK;
    char byte = 0;
    const bool good = fcntl(opened, F_SETLK, &lock) == 0 && write(opened, "theirs", 6) == 6 &&
                      write(locked[1], "x", 1) == 1 && read(done[0], &byte, 1) == 1;
    _exit(good ? 0 : 1);
  }
  char byte = 0;
  ASSERT_EQ(read(locked[0], &byte, 1), 1);
  Options options(0);
  Failure failure;
  ASSERT_EQ(basin_options_set(options.get(), "timeline", file.c_str(), nullptr), BASIN_OK);
  EXPECT_EQ(options.Connect(failure), BASIN_INVALID_ARGUMENT);
  EXPECT_THAT(failure.message(),
              AllOf(HasSubstr("another process writes it"), HasSubstr("Name a folder")));
  EXPECT_EQ(folder.text("trace.json"), "theirs");
  ASSERT_EQ(write(done[1], "x", 1), 1);
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  for (const int end : {locked[0], locked[1], done[0], done[1]}) close(end);
}

// With the default level, under which only warnings are logged.
TEST(Pause, ItsBeginAndItsEndAreWarnings) {
  const AggregatorProcess aggregator(program, "127.0.0.1:0", {"--round-late-warning=10ms"});
  LogLines logged;
  Trainer a(aggregator.address(), "w0", 2, {}, LogLines::Take, &logged);
  {
    Trainer b(aggregator.address(), "w1", 2);
    ASSERT_EQ(a.AwaitMember(), BASIN_OK) << a.failure.message();
    ASSERT_EQ(b.AwaitMember(), BASIN_OK) << b.failure.message();
  }
  a.Push(1);
  a.Commit();
  EXPECT_TRUE(logged.Await("is paused")) << testing::PrintToString(logged.lines());
  Trainer b(aggregator.address(), "w1", 2);
  ASSERT_EQ(b.AwaitMember(), BASIN_OK) << b.failure.message();
  b.Push(2);
  b.Commit();
  EXPECT_EQ(a.Wait(), BASIN_OK) << a.failure.message();
  EXPECT_TRUE(logged.Await("The job continues.")) << testing::PrintToString(logged.lines());
}

TEST(Away, AnAggregatorThatIsNotThereIsToldWithItsAddress) {
  LogLines logged;
  Trainer t("127.0.0.1:1", "w0", 1, {}, LogLines::Take, &logged);
  EXPECT_EQ(basin_await_member(t.worker, BASIN_SECONDS(1) / 5, t.failure.out()),
            BASIN_DEADLINE_EXCEEDED);
  const char* const text =
      "The session cannot be opened (UNAVAILABLE): the aggregator at 127.0.0.1:1 cannot be reached "
      "(Connection refused). Check that it runs and that the address is right; this worker keeps "
      "trying.";
  EXPECT_THAT(t.failure.message(), HasSubstr(text));
  EXPECT_THAT(logged.lines(), ElementsAre(HasSubstr(text)));
}

TEST_F(Abi, Fault_A1_ARoundGoesOnWithTheNextAggregator) {
  const auto members = Launch(2);
  const std::string address = aggregator.address();
  Together(members, [](Trainer& t, size_t i) { t.Push(static_cast<float>(1 << i)); });
  members[0]->Commit();
  aggregator.Kill(SIGKILL);
  members[1]->Commit();
  const AggregatorProcess next(program, address);
  Together(members, [](Trainer& t, size_t) {
    ASSERT_EQ(t.Wait(), BASIN_OK) << t.failure.message();
    EXPECT_TRUE(t.ResultIs(3));
    EXPECT_EQ(t.info.round, 1u);
  });
  EXPECT_EQ(members[0]->info.chain, members[1]->info.chain);
}

TEST_F(Abi, NullsAreErrorsAndNotCrashes) {
  Failure failure;
  basin_worker* none = nullptr;
  const basin_round_spec spec = Trainer::Spec(BASIN_SUM);
  EXPECT_EQ(basin_connect(nullptr, &none, failure.out()), BASIN_INVALID_ARGUMENT);
  EXPECT_EQ(basin_begin(nullptr, 0, &spec, failure.out()), BASIN_INVALID_ARGUMENT);
  EXPECT_EQ(basin_wait(nullptr, 0, 0, nullptr, failure.out()), BASIN_INVALID_ARGUMENT);
  EXPECT_EQ(basin_options_set(nullptr, "job", "x", failure.out()), BASIN_INVALID_ARGUMENT);
  EXPECT_EQ(basin_result_copy(nullptr, 0, nullptr, 4, failure.out()), BASIN_INVALID_ARGUMENT);
  basin_close(nullptr);
  basin_result_free(nullptr);
  basin_error_free(nullptr);
  basin_step_begin(nullptr);
  basin_step_end(nullptr);
  const auto members = Launch(1);
  Trainer& t = *members[0];
  EXPECT_EQ(basin_begin(t.worker, t.lane, nullptr, failure.out()), BASIN_INVALID_ARGUMENT);
  EXPECT_EQ(basin_begin(t.worker, 99, &spec, failure.out()), BASIN_NOT_FOUND);
  EXPECT_THAT(failure.message(), Not(IsEmpty()));
  EXPECT_EQ(basin_register(t.worker, nullptr, BASIN_GRADIENT, nullptr, 1, nullptr, nullptr,
                           failure.out()),
            BASIN_INVALID_ARGUMENT);
  const basin_round_spec no_op = BASIN_ROUND_SPEC_INIT;
  EXPECT_EQ(basin_begin(t.worker, t.lane, &no_op, failure.out()), BASIN_INVALID_ARGUMENT);
  EXPECT_THAT(failure.message(), HasSubstr("op"));

  const basin_sample_epoch epoch = {1, 10, 0};
  uint64_t positions[4];
  size_t written = 0;
  int outcome = 0;
  EXPECT_EQ(basin_samples_next(t.worker, t.lane, nullptr, 4, positions, &written, &outcome,
                               failure.out()),
            BASIN_INVALID_ARGUMENT);
  EXPECT_EQ(
      basin_samples_next(t.worker, t.lane, &epoch, 4, nullptr, &written, &outcome, failure.out()),
      BASIN_INVALID_ARGUMENT);
  EXPECT_EQ(
      basin_samples_next(t.worker, 99, &epoch, 4, positions, &written, &outcome, failure.out()),
      BASIN_NOT_FOUND);
  EXPECT_EQ(basin_samples_shuffled(nullptr, 0), UINT64_MAX);
  EXPECT_EQ(basin_samples_shuffled(&epoch, 10), UINT64_MAX);

  // An allreduce that is refused begins nothing.
  const basin_buffer no_data = {t.handles[1], nullptr, nullptr, 12};
  EXPECT_EQ(basin_allreduce(t.worker, t.lane, &spec, &no_data, 1, 0, nullptr, failure.out()),
            BASIN_INVALID_ARGUMENT);
  EXPECT_THAT(failure.message(), HasSubstr("tensor bias"));
  EXPECT_EQ(basin_allreduce(t.worker, t.lane, &spec, nullptr, 1, 0, nullptr, failure.out()),
            BASIN_INVALID_ARGUMENT);
  float bias[3] = {1, 1, 1};
  const basin_buffer too_short = {t.handles[1], bias, bias, 8};
  EXPECT_EQ(basin_allreduce(t.worker, t.lane, &spec, &too_short, 1, 0, nullptr, failure.out()),
            BASIN_INVALID_ARGUMENT);
  EXPECT_THAT(failure.message(), AllOf(HasSubstr("tensor bias"), HasSubstr("8 bytes")));
  const basin_buffer no_tensor[] = {{t.handles[1], bias, bias, 12}, {99, bias, bias, 12}};
  EXPECT_EQ(basin_allreduce(t.worker, t.lane, &spec, no_tensor, 2, 0, nullptr, failure.out()),
            BASIN_NOT_FOUND);

  ASSERT_EQ(basin_begin(t.worker, t.lane, &spec, failure.out()), BASIN_OK) << failure.message();
  EXPECT_EQ(basin_push(t.worker, t.lane, t.handles[1], nullptr, 12, failure.out()),
            BASIN_INVALID_ARGUMENT);
  EXPECT_THAT(failure.message(), AllOf(HasSubstr("tensor bias"), HasSubstr("12 bytes")));
  EXPECT_EQ(
      basin_push_narrow(t.worker, t.lane, t.handles[1], nullptr, 12, BASIN_F16, 0, failure.out()),
      BASIN_INVALID_ARGUMENT);
  // Memory of another size: too little would be read beyond its end, and too much belongs to
  // another tensor.
  for (const size_t bytes : {size_t{6}, size_t{0}, size_t{24}}) {
    EXPECT_EQ(basin_push(t.worker, t.lane, t.handles[1], bias, bytes, failure.out()),
              BASIN_INVALID_ARGUMENT);
    EXPECT_THAT(failure.message(),
                AllOf(HasSubstr("tensor bias"), HasSubstr(std::to_string(bytes) + " bytes"),
                      HasSubstr("its 12 bytes")));
  }
  EXPECT_EQ(basin_push_narrow(t.worker, t.lane, t.handles[1], bias, 6, BASIN_F16, 0, failure.out()),
            BASIN_INVALID_ARGUMENT);
  // The round is as before, and the lane's first one.
  ASSERT_EQ(basin_push(t.worker, t.lane, t.handles[1], bias, 12, failure.out()), BASIN_OK);
  t.Commit();
  basin_result* result = nullptr;
  ASSERT_EQ(basin_wait(t.worker, t.lane, BASIN_SECONDS(60), &result, failure.out()), BASIN_OK)
      << failure.message();
  basin_result_info(result, &t.info);
  EXPECT_EQ(t.info.round, 1u);
  basin_result_free(result);
}

// Each number has the low bits of a valid enumerator.
TEST_F(Abi, AnEnumeratorThatTheHeaderLacksIsAnError) {
  const auto members = Launch(1);
  Trainer& t = *members[0];
  Failure& failure = t.failure;
  const uint64_t three = 3;
  float value[3] = {1, 2, 3};
  const basin_tensor wrong = {"p", static_cast<basin_dtype>(256 + BASIN_F32), 1, &three};
  const basin_tensor right = {"p", BASIN_F32, 1, &three};
  const auto registered = [&](int kind, const basin_tensor& tensor) {
    return basin_register(t.worker, "call/x", static_cast<basin_lane_kind>(kind), &tensor, 1,
                          nullptr, nullptr, failure.out());
  };
  EXPECT_EQ(registered(BASIN_CALL, wrong), BASIN_INVALID_ARGUMENT);
  EXPECT_THAT(failure.message(), HasSubstr("The dtype of tensor p is 258"));
  EXPECT_EQ(registered(256 + BASIN_CALL, right), BASIN_INVALID_ARGUMENT);
  EXPECT_THAT(failure.message(), HasSubstr("The kind of lane call/x is 257"));
  EXPECT_EQ(basin_announce(t.worker, "x", &right, 1, value, 12, static_cast<basin_hold>(257),
                           failure.out()),
            BASIN_INVALID_ARGUMENT);
  EXPECT_THAT(failure.message(), HasSubstr("The hold of tensor p is 257"));

  basin_round_spec spec = Trainer::Spec(static_cast<basin_op>(512 + BASIN_SUM));
  EXPECT_EQ(basin_begin(t.worker, t.lane, &spec, failure.out()), BASIN_INVALID_ARGUMENT);
  EXPECT_THAT(failure.message(), HasSubstr("The op of the round is 513"));
  spec = Trainer::Spec(BASIN_WEIGHTED_AVERAGE);
  spec.weight = static_cast<basin_weight>(256 + BASIN_BY_SAMPLES);
  spec.samples = 1;
  EXPECT_EQ(basin_begin(t.worker, t.lane, &spec, failure.out()), BASIN_INVALID_ARGUMENT);
  EXPECT_THAT(failure.message(), HasSubstr("The weight of the round is 257"));
  spec = Trainer::Spec(BASIN_SUM);
  ASSERT_EQ(basin_begin(t.worker, t.lane, &spec, failure.out()), BASIN_OK) << failure.message();
  EXPECT_EQ(basin_push_narrow(t.worker, t.lane, t.handles[1], value, 12,
                              static_cast<basin_dtype>(256 + BASIN_F16), 0, failure.out()),
            BASIN_INVALID_ARGUMENT);
  EXPECT_THAT(failure.message(),
              HasSubstr("The dtype to send tensor 1 of lane handle 0 in is 259"));
  EXPECT_EQ(basin_push_narrow(t.worker, t.lane, t.handles[1], value, 12, BASIN_BF16,
                              BASIN_FIT_EXPONENT, failure.out()),
            BASIN_INVALID_ARGUMENT);
  EXPECT_THAT(failure.message(), HasSubstr("cannot be sent as bf16 with the fitted exponent"));
  basin_abandon(t.worker, nullptr);
}

TEST_F(Abi, MemoryThatIsNotTheValuesIsAnError) {
  const auto members = Launch(2);
  Trainer& t = *members[0];
  Failure& failure = t.failure;
  const uint64_t three = 3;
  const basin_tensor tensor = {"p", BASIN_F32, 1, &three};
  float value[3] = {1, 2, 3};
  EXPECT_EQ(basin_announce(t.worker, "model", &tensor, 1, nullptr, 12, BASIN_COPY, failure.out()),
            BASIN_INVALID_ARGUMENT);
  EXPECT_THAT(failure.message(), AllOf(HasSubstr("tensor p"), HasSubstr("12 bytes")));
  EXPECT_EQ(
      basin_announce(t.worker, "model", &tensor, 1, nullptr, 12, BASIN_IN_PLACE, failure.out()),
      BASIN_INVALID_ARGUMENT);
  EXPECT_EQ(basin_announce(t.worker, "model", &tensor, 1, value, 8, BASIN_COPY, failure.out()),
            BASIN_INVALID_ARGUMENT);
  EXPECT_THAT(failure.message(), AllOf(HasSubstr("tensor p"), HasSubstr("8 bytes")));
  for (const uint32_t root : {0U, 1U}) {  // This worker is the root, and then it is not.
    const auto broadcast = [&](void* data, size_t bytes) {
      return basin_broadcast(t.worker, "model", &tensor, 1, root, data, bytes, BASIN_SECONDS(60),
                             failure.out());
    };
    EXPECT_EQ(broadcast(value, 8), BASIN_INVALID_ARGUMENT);
    EXPECT_THAT(failure.message(),
                AllOf(HasSubstr("tensor p"), HasSubstr("8 bytes"), HasSubstr("12 bytes")));
    EXPECT_EQ(broadcast(nullptr, 12), BASIN_INVALID_ARGUMENT);
    EXPECT_THAT(failure.message(), HasSubstr("null"));
  }
  EXPECT_EQ(
      basin_get(t.worker, "model", &tensor, 1, "w1", BASIN_SECONDS(60), nullptr, 12, failure.out()),
      BASIN_INVALID_ARGUMENT);
  EXPECT_THAT(failure.message(), AllOf(HasSubstr("tensor p"), HasSubstr("null")));
  // A tensor without bytes needs no memory.
  const uint64_t none = 0;
  const basin_tensor empty = {"e", BASIN_F32, 1, &none};
  EXPECT_EQ(basin_announce(t.worker, "model", &empty, 1, nullptr, 0, BASIN_COPY, failure.out()),
            BASIN_OK)
      << failure.message();
  EXPECT_EQ(basin_get(members[1]->worker, "model", &empty, 1, "w0", BASIN_SECONDS(60), nullptr, 0,
                      failure.out()),
            BASIN_OK)
      << failure.message();
}

// The library starts without a driver, and with a build without CUDA; a tensor on a device is then
// refused. With a GPU, the memory of the host is not the device's.
TEST_F(Abi, ATensorOnADeviceThatIsNotThereIsRefused) {
  const auto members = Launch(1);
  Trainer& t = *members[0];
  t.Push(1);
  const basin_pushed weight = {t.handles[0], t.weight.data(), t.weight.size() * sizeof(float),
                               BASIN_SAME_DTYPE, 0};
  const basin_code code =
      basin_push_device(t.worker, t.lane, &weight, 1, 0, nullptr, t.failure.out());
  EXPECT_TRUE(code == BASIN_FAILED_PRECONDITION || code == BASIN_INVALID_ARGUMENT) << code;
  EXPECT_THAT(t.failure.message(), HasSubstr("CUDA"));
  t.Commit();
  ASSERT_EQ(t.Wait(), BASIN_OK) << t.failure.message();
  EXPECT_TRUE(t.ResultIs(1));
}

TEST_F(Abi, AnOlderCallersStructuresAreNotWrittenBeyond) {
  const auto members = Launch(1);
  basin_place place;
  std::memset(&place, 0x5a, sizeof(place));
  place.size = offsetof(basin_place, generation_term);
  ASSERT_EQ(basin_get_place(members[0]->worker, &place, members[0]->failure.out()), BASIN_OK);
  EXPECT_EQ(place.world_size, 1u);
  EXPECT_EQ(place.generation_term, 0x5a5a5a5a5a5a5a5aULL);
}

}  // namespace
}  // namespace basin

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  if (argc < 2) {
    std::fprintf(stderr, "usage: abi_test PATH_OF_BASIND\n");
    return 2;
  }
  basin::program = argv[1];
  return RUN_ALL_TESTS();
}
