// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "aggregator/leadership/file_authority.h"

#include <dirent.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <fstream>
#include <memory>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace basin::aggregator {
namespace {

constexpr absl::Duration kTimeout = absl::Seconds(1);

class FileAuthorityTest : public testing::Test {
 protected:
  FileAuthorityTest() {
    std::string name = testing::TempDir() + "leader-XXXXXX";
    root_ = mkdtemp(name.data());
    directory_ = root_ + "/leader";
  }
  ~FileAuthorityTest() override { Remove(root_); }

  static void Remove(const std::string& path) {
    for (const std::string& name : NamesIn(path)) {
      if (std::remove((path + "/" + name).c_str()) != 0) Remove(path + "/" + name);
    }
    rmdir(path.c_str());
  }
  static std::vector<std::string> NamesIn(const std::string& path) {
    std::vector<std::string> names;
    DIR* const listing = opendir(path.c_str());
    if (listing == nullptr) return names;
    while (const dirent* entry = readdir(listing)) {
      const std::string name = entry->d_name;
      if (name != "." && name != "..") names.push_back(name);
    }
    closedir(listing);
    return names;
  }

  std::unique_ptr<FileAuthority> Open(const std::string& holder) {
    auto authority = FileAuthority::Open(directory_, holder);
    EXPECT_TRUE(authority.ok()) << authority.status();
    return *std::move(authority);
  }
  static RecordState Read(FileAuthority& authority) {
    const absl::StatusOr<RecordState> state = authority.Read(kTimeout);
    EXPECT_TRUE(state.ok()) << state.status();
    return *state;
  }
  static LeaderRecord Of(const std::string& holder, uint64_t fence = 7) {
    return {fence, holder, "127.0.0.1:29600", absl::Seconds(3)};
  }
  static std::string Write(FileAuthority& authority, const LeaderRecord& record,
                           const std::string& version) {
    const absl::StatusOr<std::string> written = authority.Write(record, version, kTimeout);
    EXPECT_TRUE(written.ok()) << written.status();
    return written.value_or("");
  }

  std::string root_;
  std::string directory_;
};

TEST_F(FileAuthorityTest, KeepsWhatWasWritten) {
  const auto a = Open("a");
  const auto b = Open("b");
  EXPECT_FALSE(Read(*a).record.has_value());
  EXPECT_EQ(Read(*a).version, "");
  const std::string version = Write(*a, Of("a"), "");
  const RecordState state = Read(*b);
  ASSERT_TRUE(state.record.has_value());
  EXPECT_EQ(state.record->Fields(), Of("a").Fields());
  EXPECT_EQ(state.version, version);
  EXPECT_FALSE(state.holder_ended);
}

TEST_F(FileAuthorityTest, OfTwoWritersOneFails) {
  const auto a = Open("a");
  const auto b = Open("b");
  const std::string version = Write(*a, Of("a"), "");
  EXPECT_TRUE(absl::IsAborted(b->Write(Of("b"), "", kTimeout).status()));
  const std::string next = Write(*b, Of("b", 8), version);
  EXPECT_NE(next, version);
  EXPECT_TRUE(absl::IsAborted(a->Write(Of("a"), version, kTimeout).status()));
  EXPECT_EQ(Read(*a).record->holder, "b");
}

TEST_F(FileAuthorityTest, EqualRecordsHaveDifferentVersions) {
  const auto a = Open("a");
  const std::string first = Write(*a, Of("a"), "");
  const std::string second = Write(*a, Of("a"), first);
  EXPECT_NE(first, second);
  Remove(directory_);  // The record is lost.
  EXPECT_FALSE(Read(*a).record.has_value());
  EXPECT_NE(Write(*a, Of("a"), ""), first);
}

// As on a full disk, a part is written, and only the attempt to write the rest has the reason.
TEST_F(FileAuthorityTest, ARecordThatDoesNotFitOnTheDiskIsNotWrittenAndSaysWhy) {
  const auto a = Open("a");
  const std::string version = Write(*a, Of("a"), "");
  rlimit before = {};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = signal(SIGXFSZ, SIG_IGN);
  const rlimit small = {64, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  errno = 0;
  const absl::Status status = a->Write(Of("a"), version, kTimeout).status();
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  signal(SIGXFSZ, handler);
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_THAT(std::string(status.message()),
              testing::HasSubstr(std::generic_category().message(EFBIG)));
  EXPECT_EQ(Read(*a).version, version);
}

TEST_F(FileAuthorityTest, FewFilesAreKept) {
  const auto a = Open("a");
  std::string version;
  for (int i = 0; i < 50; ++i) version = Write(*a, Of("a"), version);
  EXPECT_LE(NamesIn(directory_).size(), 3u) << testing::PrintToString(NamesIn(directory_));
}

TEST_F(FileAuthorityTest, ManyThreadsWriteInTurn) {
  constexpr int kWriters = 4;
  constexpr int kWrites = 50;
  std::atomic<uint64_t> unknown{0};  // Writes that may have happened.
  std::vector<std::thread> writers;
  for (int i = 0; i < kWriters; ++i) {
    writers.emplace_back([this, i, &unknown] {
      const auto authority = Open("w" + std::to_string(i));
      for (int done = 0; done < kWrites;) {
        const RecordState before = Read(*authority);
        const uint64_t fence = before.record.has_value() ? before.record->fence : 0;
        const auto written =
            authority->Write(Of("w" + std::to_string(i), fence + 1), before.version, kTimeout);
        if (written.ok()) ++done;
        if (!written.ok() && !absl::IsAborted(written.status())) ++unknown;
      }
    });
  }
  for (std::thread& writer : writers) writer.join();
  // Each write that succeeded replaced the one before it, and one that was refused did nothing.
  const uint64_t fence = Read(*Open("reader")).record->fence;
  EXPECT_GE(fence, uint64_t{kWriters} * kWrites);
  EXPECT_LE(fence, uint64_t{kWriters} * kWrites + unknown);
}

TEST_F(FileAuthorityTest, AFileThatCannotBeReadNamesNobody) {
  const auto a = Open("a");
  Write(*a, Of("a"), "");
  for (const std::string& name : NamesIn(directory_)) {
    if (name.size() == 20) std::ofstream(directory_ + "/" + name) << "half a rec";
  }
  const RecordState state = Read(*a);
  ASSERT_TRUE(state.record.has_value());
  EXPECT_EQ(state.record->holder, kNobody);
  Write(*a, Of("a", 9), state.version);
  EXPECT_EQ(Read(*a).record->fence, 9u);
}

TEST_F(FileAuthorityTest, Fault_A1_AHolderThatWasKilledHasEnded) {
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t child = fork();
  if (child == 0) {
    const auto mine = FileAuthority::Open(directory_, "child");
    const bool written = mine.ok() && (*mine)->Write(Of("child"), "", kTimeout).ok();
    const char byte = written ? 'y' : 'n';
    if (write(ready[1], &byte, 1) != 1) _exit(1);
    while (true) pause();
  }
  char byte = 0;
  ASSERT_EQ(read(ready[0], &byte, 1), 1);
  ASSERT_EQ(byte, 'y');
  const auto a = Open("a");
  EXPECT_FALSE(Read(*a).holder_ended);
  kill(child, SIGSTOP);
  EXPECT_FALSE(Read(*a).holder_ended) << "a process that is stopped may go on";
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  const RecordState state = Read(*a);
  EXPECT_TRUE(state.holder_ended);
  Write(*a, Of("a", 8), state.version);
  EXPECT_THAT(NamesIn(directory_), testing::Not(testing::Contains("child.alive")));
  close(ready[0]);
  close(ready[1]);
}

TEST_F(FileAuthorityTest, AProcessThatLeftIsNotKnownToHaveEnded) {
  auto b = Open("b");
  Write(*b, Of("b"), "");
  b->Leave();
  EXPECT_FALSE(Read(*Open("a")).holder_ended);
}

TEST_F(FileAuthorityTest, ADirectoryThatCannotBeMadeIsNamed) {
  const auto none = FileAuthority::Open(root_ + "/not/there", "a");
  ASSERT_FALSE(none.ok());
  EXPECT_THAT(std::string(none.status().message()),
              testing::AllOf(testing::HasSubstr(root_ + "/not/there"),
                             testing::HasSubstr("standby.authority")));
}

}  // namespace
}  // namespace basin::aggregator
