// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The state file: it can be read back, and a file that is damaged or cannot be written is reported
// and survived.

#include <signal.h>
#include <sys/resource.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "aggregator/state/disk_state_file.h"
#include "aggregator/state/format.h"
#include "aggregator/state/state_lock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace basin::aggregator {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

SaveState Members(const JobName& job, Term term, uint64_t counter,
                  const std::vector<WorkerId>& workers) {
  SaveState save;
  save.name = job;
  save.run = "run-1";
  save.term = term;
  save.membership = {{term, counter}, workers};
  return save;
}

SaveSettings MinOf(const JobName& job, const RunId& run, uint32_t min) {
  SaveSettings save;
  save.name = job;
  save.run = run;
  save.term = 7;
  save.settings = ChangedSettings{{2, 4, 2}, {min, 4, 2}, LossPolicy::kAbort, LatePolicy::kCarry};
  return save;
}

class StateFileTest : public ::testing::Test {
 protected:
  StateFileTest() : folder_(std::filesystem::path(::testing::TempDir()) / "basin-state-test") {
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
  }
  ~StateFileTest() override { std::filesystem::remove_all(folder_); }

  std::string path() const { return (folder_ / "state").string(); }
  // Without the lock: a test opens the file several times.
  DiskStateFile Open(size_t max_jobs = 10) {
    return DiskStateFile(path(), StateLock(), max_jobs,
                         [this](const absl::Status& status) { reports_.push_back(status); });
  }
  std::string Text() const {
    std::ifstream file(path(), std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  void Overwrite(const std::string& text) const { std::ofstream(path(), std::ios::binary) << text; }
  std::vector<std::string> FilesThere() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(folder_)) {
      names.push_back(entry.path().filename().string());
    }
    return names;
  }

  std::filesystem::path folder_;
  std::vector<absl::Status> reports_;
};

TEST_F(StateFileTest, IsEmptyWhereThereIsNone) {
  const absl::StatusOr<WrittenState> state = Open().Load();
  ASSERT_TRUE(state.ok()) << state.status();
  EXPECT_EQ(0u, state->term);
  EXPECT_THAT(state->jobs, IsEmpty());
}

TEST_F(StateFileTest, WhatAnOperatorHasSetIsWrittenBesideTheMembers) {
  DiskStateFile first = Open();
  ASSERT_TRUE(first.Save(Members("a", 7, 1, {"w0", "w1"})).ok());
  EXPECT_THAT(Text(), HasSubstr("basin-state 1\n"));
  ASSERT_TRUE(first.Save(MinOf("a", "run-1", 1)).ok());
  EXPECT_THAT(Text(), AllOf(HasSubstr("basin-state 2\n"),
                            HasSubstr("w1\nset min 2 start 2 max 4 to min 1 start 2 max 4 loss "
                                      "abort late carry\n")));
  ASSERT_TRUE(first.Save(MinOf("b", "", 2)).ok()) << "a job that has no members yet";
  const absl::StatusOr<WrittenState> state = Open().Load();
  ASSERT_TRUE(state.ok()) << state.status();
  EXPECT_THAT(state->jobs.at("a").membership.members, ElementsAre("w0", "w1"));
  EXPECT_TRUE(*MinOf("a", "", 1).settings == state->jobs.at("a").settings.value());
  EXPECT_TRUE(*MinOf("b", "", 2).settings == state->jobs.at("b").settings.value());
  EXPECT_THAT(state->jobs.at("b").membership.members, IsEmpty());
  // The members of another run are not those of this one.
  ASSERT_TRUE(first.Save(MinOf("a", "run-2", 1)).ok());
  EXPECT_THAT(Open().Load()->jobs.at("a").membership.members, IsEmpty());
  // A generation that is written has the settings of its moment.
  ASSERT_TRUE(first.Save(Members("a", 7, 2, {"w0"})).ok());
  ASSERT_TRUE(first.Save(Members("b", 7, 2, {"w0"})).ok());
  EXPECT_THAT(Text(), HasSubstr("basin-state 1\n"));
}

TEST_F(StateFileTest, SettingsThatCannotBeAreDamage) {
  WrittenState state;
  state.jobs["a"].settings = ChangedSettings{{2, 4, 2}, {3, 4, 2}, std::nullopt, std::nullopt};
  const absl::Status status = DecodeState(EncodeState(state)).status();
  EXPECT_TRUE(absl::IsDataLoss(status)) << status;
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("line 5: it is not what an operator has set"));
}

TEST_F(StateFileTest, ANewProcessReadsWhatTheLastOneSaved) {
  DiskStateFile first = Open();
  ASSERT_TRUE(first.Begin(7).ok());
  ASSERT_TRUE(first.Save(Members("a", 7, 1, {"w0"})).ok());
  ASSERT_TRUE(first.Save(Members("team/b", 7, 4, {"w2", "w1"})).ok());
  ASSERT_TRUE(first.Save(Members("a", 7, 2, {"w0", "w1"})).ok());

  const absl::StatusOr<WrittenState> state = Open().Load();
  ASSERT_TRUE(state.ok()) << state.status();
  EXPECT_EQ(7u, state->term);
  ASSERT_THAT(state->jobs, SizeIs(2));
  EXPECT_EQ("run-1", state->jobs.at("a").run);
  EXPECT_EQ((Generation{7, 2}).Fields(), state->jobs.at("a").membership.generation.Fields());
  EXPECT_THAT(state->jobs.at("a").membership.members, ElementsAre("w0", "w1"));
  EXPECT_THAT(state->jobs.at("team/b").membership.members, ElementsAre("w2", "w1"));
  EXPECT_THAT(FilesThere(), ElementsAre("state"));
}

// The file of a job of single trainers is that of earlier releases.
TEST_F(StateFileTest, RanksOfMembersAreKept) {
  SaveState save = Members("a", 7, 1, {"w0", "w1", "w2"});
  ASSERT_TRUE(Open().Save(save).ok());
  EXPECT_THAT(Text(), HasSubstr(" members 3\nw0\nw1\nw2\n"));
  save.membership.members = MemberList::WithRanks({"w0", "w1", "w2"}, {2, 1, 3});
  ASSERT_TRUE(Open().Save(save).ok());
  EXPECT_THAT(Text(), HasSubstr(" members 3\nw0 2\nw1\nw2 3\n"));
  const absl::StatusOr<WrittenState> state = Open().Load();
  ASSERT_TRUE(state.ok()) << state.status();
  EXPECT_EQ(state->jobs.at("a").membership.members, save.membership.members);
}

TEST_F(StateFileTest, WhatWasLoadedIsKept) {
  ASSERT_TRUE(Open().Save(Members("a", 7, 1, {"w0"})).ok());
  DiskStateFile second = Open();
  ASSERT_TRUE(second.Load().ok());
  ASSERT_TRUE(second.Begin(9).ok());
  ASSERT_TRUE(second.Save(Members("b", 9, 1, {"w1"})).ok());
  const absl::StatusOr<WrittenState> state = Open().Load();
  ASSERT_TRUE(state.ok()) << state.status();
  EXPECT_EQ(9u, state->term);
  EXPECT_THAT(state->jobs, SizeIs(2));
}

TEST_F(StateFileTest, TheJobsSavedLongestAgoAreForgotten) {
  DiskStateFile file = Open(2);
  ASSERT_TRUE(file.Save(Members("a", 7, 1, {})).ok());
  ASSERT_TRUE(file.Save(Members("b", 7, 1, {})).ok());
  ASSERT_TRUE(file.Save(Members("a", 7, 2, {})).ok());
  ASSERT_TRUE(file.Save(Members("c", 7, 1, {})).ok());
  const absl::StatusOr<WrittenState> state = Open().Load();
  ASSERT_TRUE(state.ok()) << state.status();
  EXPECT_THAT(state->jobs, SizeIs(2));
  EXPECT_EQ(0u, state->jobs.count("b"));
}

TEST_F(StateFileTest, Fault_A9_EveryFlippedByteIsSeen) {
  ASSERT_TRUE(Open().Save(Members("a", 7, 1, {"w0", "w1"})).ok());
  const std::string good = Text();
  for (size_t i = 0; i < good.size(); ++i) {
    std::string bad = good;
    bad[i] = static_cast<char>(bad[i] ^ 0x10);
    EXPECT_TRUE(absl::IsDataLoss(DecodeState(bad).status())) << i;
  }
}

TEST_F(StateFileTest, Fault_A9_EveryTruncationIsSeen) {
  ASSERT_TRUE(Open().Save(Members("a", 7, 1, {"w0", "w1"})).ok());
  const std::string good = Text();
  for (size_t size = 0; size < good.size(); ++size) {
    EXPECT_TRUE(absl::IsDataLoss(DecodeState(good.substr(0, size)).status())) << size;
  }
  EXPECT_TRUE(absl::IsDataLoss(DecodeState(good + "w2\n").status()));
}

TEST_F(StateFileTest, Fault_A9_ADamagedFileIsRefusedInWordsAndSetAside) {
  ASSERT_TRUE(Open().Save(Members("a", 7, 1, {"w0", "w1"})).ok());
  std::string bad = Text();
  bad[bad.size() / 2] ^= 1;
  Overwrite(bad);
  DiskStateFile file = Open();
  const absl::StatusOr<WrittenState> state = file.Load();
  EXPECT_TRUE(absl::IsDataLoss(state.status()));
  EXPECT_THAT(std::string(state.status().message()),
              AllOf(HasSubstr(path()), HasSubstr("damaged"), HasSubstr("new term"),
                    HasSubstr("checksum"), HasSubstr("state.damaged")));
  EXPECT_THAT(FilesThere(), ElementsAre("state.damaged"));
  // The process continues with an empty state.
  ASSERT_TRUE(file.Begin(8).ok());
  EXPECT_THAT(Open().Load()->jobs, IsEmpty());
}

// While it exists, an intact file cannot be opened, even by root: the path is a link in a loop.
class CannotBeOpened {
 public:
  explicit CannotBeOpened(const std::string& path) : real_(path + ".real"), kept_(path + ".kept") {
    std::filesystem::rename(path, kept_);
    std::filesystem::create_symlink(real_, path);
    std::filesystem::create_symlink(real_, real_);
  }
  ~CannotBeOpened() { std::filesystem::rename(kept_, real_); }
  CannotBeOpened(const CannotBeOpened&) = delete;
  CannotBeOpened& operator=(const CannotBeOpened&) = delete;

 private:
  const std::string real_;
  const std::string kept_;
};

TEST_F(StateFileTest, Fault_A9_AFileThatCannotBeReadIsSetAsideAndKept) {
  ASSERT_TRUE(Open().Save(Members("a", 7, 1, {"w0", "w1"})).ok());
  const std::string good = Text();
  DiskStateFile file = Open();
  absl::Status failed;
  {
    const CannotBeOpened broken(path());
    failed = file.Load().status();
  }
  EXPECT_TRUE(absl::IsUnavailable(failed));
  EXPECT_THAT(
      std::string(failed.message()),
      AllOf(HasSubstr("cannot be opened"), HasSubstr("new term"), HasSubstr("state.damaged")));
  ASSERT_TRUE(file.Begin(8).ok());
  EXPECT_THAT(Open().Load()->jobs, IsEmpty());
  // Its text is whole, so it is valid in its old place.
  std::filesystem::rename(path() + ".damaged", path());
  EXPECT_EQ(good, Text());
}

TEST_F(StateFileTest, Fault_A9_AFileThatCannotBeReadNorSetAsideIsNotReplaced) {
  ASSERT_TRUE(Open().Save(Members("a", 7, 1, {"w0", "w1"})).ok());
  const std::string good = Text();
  const std::string in_its_way = path() + ".damaged";
  std::filesystem::create_directory(in_its_way);
  DiskStateFile file = Open();
  {
    const CannotBeOpened broken(path());
    EXPECT_TRUE(absl::IsUnavailable(file.Load().status()));
  }
  EXPECT_THAT(std::string(file.Begin(8).message()),
              AllOf(HasSubstr(path()), HasSubstr("moved aside"), HasSubstr("Is a directory")));
  EXPECT_FALSE(file.Save(Members("b", 8, 1, {"w2"})).ok());
  EXPECT_THAT(reports_, SizeIs(1));
  EXPECT_EQ(good, Text());

  // Once there is room for it, nothing is missing.
  std::filesystem::remove(in_its_way);
  ASSERT_TRUE(file.Save(Members("c", 8, 1, {"w3"})).ok());
  ASSERT_THAT(reports_, SizeIs(2));
  EXPECT_TRUE(reports_[1].ok());
  EXPECT_THAT(Open().Load()->jobs, SizeIs(2));
  std::filesystem::rename(in_its_way, path());
  EXPECT_EQ(good, Text());
}

TEST_F(StateFileTest, Fault_A9_ADamagedFileThatCannotBeSetAsideIsNotReplaced) {
  Overwrite("basin-state 1\nmuch that may be read by eye\n");
  const std::string bad = Text();
  std::filesystem::create_directory(path() + ".damaged");
  DiskStateFile file = Open();
  EXPECT_TRUE(absl::IsDataLoss(file.Load().status()));
  EXPECT_FALSE(file.Begin(8).ok());
  EXPECT_THAT(reports_, SizeIs(1));
  EXPECT_EQ(bad, Text());
}

TEST_F(StateFileTest, Fault_A9_ASecondProcessIsRefusedUntilTheFirstHasEnded) {
  {
    const absl::StatusOr<StateLock> first = StateLock::Take(path());
    ASSERT_TRUE(first.ok()) << first.status();
    const absl::Status second = StateLock::Take(path()).status();
    EXPECT_TRUE(absl::IsFailedPrecondition(second)) << second;
    EXPECT_THAT(std::string(second.message()),
                AllOf(HasSubstr(path()), HasSubstr("another basind"), HasSubstr("another file")));
  }
  EXPECT_TRUE(StateLock::Take(path()).ok());
  std::filesystem::remove_all(folder_);
  EXPECT_TRUE(StateLock::Take(path()).ok()) << "where no file can be, none is shared";
}

TEST_F(StateFileTest, Fault_A9_AFileWhoseTermWentBackIsRefusedAndSetAside) {
  const auto open = [this] {
    return DiskStateFile(path(), *StateLock::Take(path()), 10, [](const absl::Status&) {});
  };
  ASSERT_TRUE(open().Save(Members("a", 7, 1, {"w0", "w1"})).ok());
  const std::string old = Text();
  EXPECT_TRUE(open().Load().ok());
  ASSERT_TRUE(open().Save(Members("a", 123456789012, 2, {"w2"})).ok());
  EXPECT_TRUE(open().Load().ok());

  Overwrite(old);  // Somebody restores a copy.
  const absl::Status refused = open().Load().status();
  EXPECT_TRUE(absl::IsDataLoss(refused)) << refused;
  EXPECT_THAT(std::string(refused.message()),
              AllOf(HasSubstr("its term is 7"), HasSubstr("term 123456789012"),
                    HasSubstr("older copy"), HasSubstr("state.damaged")));
  EXPECT_EQ(StateLock::Take(path())->written(), 123456789012u);
  // What the lock file says about terms is not needed to hold the lock.
  std::ofstream(path() + ".lock") << "nonsense";
  EXPECT_EQ(StateLock::Take(path())->written(), 0u);
}

TEST_F(StateFileTest, Fault_A8_AFullDiskLeavesTheLastFileWholeAndIsReportedOnce) {
  DiskStateFile file = Open();
  ASSERT_TRUE(file.Save(Members("a", 7, 1, {"w0"})).ok());
  EXPECT_THAT(reports_, IsEmpty());

  // A limit on the size of files fails in the middle of a write, as a full disk does.
  struct rlimit before = {};
  ASSERT_EQ(0, getrlimit(RLIMIT_FSIZE, &before));
  struct sigaction ignore = {};
  struct sigaction action = {};
  ignore.sa_handler = SIG_IGN;
  ASSERT_EQ(0, sigaction(SIGXFSZ, &ignore, &action));
  struct rlimit full = before;
  full.rlim_cur = 40;
  ASSERT_EQ(0, setrlimit(RLIMIT_FSIZE, &full));
  const absl::Status failed = file.Save(Members("a", 7, 2, {"w0", "w1"}));
  const absl::Status again = file.Save(Members("a", 7, 3, {"w0", "w1"}));
  ASSERT_EQ(0, setrlimit(RLIMIT_FSIZE, &before));
  ASSERT_EQ(0, sigaction(SIGXFSZ, &action, nullptr));

  EXPECT_THAT(std::string(failed.message()), HasSubstr("cannot be written: File too large"));
  EXPECT_FALSE(again.ok());
  EXPECT_THAT(reports_, SizeIs(1));
  EXPECT_THAT(FilesThere(), ElementsAre("state"));
  EXPECT_EQ(1u, Open().Load()->jobs.at("a").membership.generation.counter);

  // When there is room again, nothing is missing.
  ASSERT_TRUE(file.Save(Members("b", 7, 1, {"w5"})).ok());
  ASSERT_THAT(reports_, SizeIs(2));
  EXPECT_TRUE(reports_[1].ok());
  EXPECT_EQ(3u, Open().Load()->jobs.at("a").membership.generation.counter);
}

TEST_F(StateFileTest, Fault_A8_AFolderThatCannotBeWrittenIsSaidAtOnce) {
  // Root may write where modes forbid it, but no user can write into a folder that does not exist.
  std::filesystem::remove_all(folder_);
  DiskStateFile file = Open();
  EXPECT_TRUE(file.Load().ok());
  const absl::Status failed = file.Begin(7);
  EXPECT_THAT(std::string(failed.message()), AllOf(HasSubstr(path()), HasSubstr("No such file")));
  EXPECT_THAT(reports_, SizeIs(1));
}

TEST(StateFormat, WhatIsNotOursIsRefused) {
  for (const char* text : {"", "\n", "basin-state 2\n", "basin-state 1\n",
                           "basin-state 1\nchecksum 0000000000000000\nterm 1\n"}) {
    EXPECT_TRUE(absl::IsDataLoss(DecodeState(text).status())) << text;
  }
}

}  // namespace
}  // namespace basin::aggregator
