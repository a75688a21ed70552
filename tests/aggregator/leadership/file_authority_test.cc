// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "aggregator/leadership/file_authority.h"

#include <dirent.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <fstream>
#include <memory>
#include <string>
#include <system_error>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/aggregator/leadership/authority_contract.h"

namespace basin::aggregator {
namespace {

// A directory that is not there yet, in a folder that is removed at the end.
class Directory {
 public:
  Directory() {
    std::string name = testing::TempDir() + "leader-XXXXXX";
    root_ = mkdtemp(name.data());
  }
  ~Directory() { Remove(root_); }
  Directory(const Directory&) = delete;
  Directory& operator=(const Directory&) = delete;

  std::string path() const { return root_ + "/leader"; }

  std::unique_ptr<Authority> Open(const std::string& holder) {
    auto authority = FileAuthority::Open(path(), holder);
    EXPECT_TRUE(authority.ok()) << authority.status();
    return *std::move(authority);
  }
  void Lose() { Remove(path()); }
  // A file has its name, as when another program was faster.
  void GoAway() {
    ASSERT_EQ(std::rename(path().c_str(), (root_ + "/aside").c_str()), 0);
    std::ofstream(path()) << "a file";
  }
  // A file is there or not.
  void Disturb() {}
  void ComeBack() {
    std::remove(path().c_str());
    std::rename((root_ + "/aside").c_str(), path().c_str());
  }
  std::string why_not() const { return ""; }

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

 private:
  static void Remove(const std::string& path) {
    for (const std::string& name : NamesIn(path)) {
      if (std::remove((path + "/" + name).c_str()) != 0) Remove(path + "/" + name);
    }
    rmdir(path.c_str());
  }

  std::string root_;
};

INSTANTIATE_TYPED_TEST_SUITE_P(File, AuthorityContract, Directory);

class FileAuthorityTest : public testing::Test {
 protected:
  std::unique_ptr<Authority> Open(const std::string& holder) { return directory_.Open(holder); }
  std::vector<std::string> Names() const { return Directory::NamesIn(directory_.path()); }

  Directory directory_;
};

// As on a full disk, a part is written, and only the attempt to write the rest has the reason.
TEST_F(FileAuthorityTest, ARecordThatDoesNotFitOnTheDiskIsNotWrittenAndSaysWhy) {
  const auto a = Open("a");
  const std::string version = WriteTo(*a, LedBy("a"), "");
  rlimit before = {};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = signal(SIGXFSZ, SIG_IGN);
  const rlimit small = {64, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  errno = 0;
  const absl::Status status = a->Write(LedBy("a"), version, kPatience).status();
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  signal(SIGXFSZ, handler);
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_THAT(std::string(status.message()),
              testing::HasSubstr(std::generic_category().message(EFBIG)));
  EXPECT_EQ(ReadFrom(*a).version, version);
}

TEST_F(FileAuthorityTest, FewFilesAreKept) {
  const auto a = Open("a");
  std::string version;
  for (int i = 0; i < 50; ++i) version = WriteTo(*a, LedBy("a"), version);
  EXPECT_LE(Names().size(), 3u) << testing::PrintToString(Names());
}

TEST_F(FileAuthorityTest, AFileThatCannotBeReadNamesNobody) {
  const auto a = Open("a");
  WriteTo(*a, LedBy("a"), "");
  for (const std::string& name : Names()) {
    if (name.size() == 20) std::ofstream(directory_.path() + "/" + name) << "half a rec";
  }
  const RecordState state = ReadFrom(*a);
  ASSERT_TRUE(state.record.has_value());
  EXPECT_EQ(state.record->holder, kNobody);
  WriteTo(*a, LedBy("a", 2), state.version);
  EXPECT_EQ(ReadFrom(*a).record->fence, kSomeFence + 2);
}

TEST_F(FileAuthorityTest, Fault_A1_AHolderThatWasKilledHasEnded) {
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t child = fork();
  if (child == 0) {
    const auto mine = FileAuthority::Open(directory_.path(), "child");
    const bool written = mine.ok() && (*mine)->Write(LedBy("child"), "", kPatience).ok();
    const char byte = written ? 'y' : 'n';
    if (write(ready[1], &byte, 1) != 1) _exit(1);
    while (true) pause();
  }
  char byte = 0;
  ASSERT_EQ(read(ready[0], &byte, 1), 1);
  ASSERT_EQ(byte, 'y');
  const auto a = Open("a");
  EXPECT_FALSE(ReadFrom(*a).holder_ended);
  kill(child, SIGSTOP);
  EXPECT_FALSE(ReadFrom(*a).holder_ended) << "a process that is stopped may go on";
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  const RecordState state = ReadFrom(*a);
  EXPECT_TRUE(state.holder_ended);
  WriteTo(*a, LedBy("a", 1), state.version);
  EXPECT_THAT(Names(), testing::Not(testing::Contains("child.alive")));
  close(ready[0]);
  close(ready[1]);
}

TEST_F(FileAuthorityTest, ADirectoryThatCannotBeMadeIsNamed) {
  const auto none = FileAuthority::Open(directory_.path() + "/not/there", "a");
  ASSERT_FALSE(none.ok());
  EXPECT_THAT(std::string(none.status().message()),
              testing::AllOf(testing::HasSubstr(directory_.path() + "/not/there"),
                             testing::HasSubstr("standby.authority")));
}

}  // namespace
}  // namespace basin::aggregator
