// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The directory of a socket: who can enter it, and which ones a start removes.

#include "runtime/shared_memory/private_directory.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <memory>
#include <string>

#include "gtest/gtest.h"
#include "runtime/shared_memory/socket.h"

namespace basin {
namespace {

bool Exists(const std::string& path) {
  struct stat status = {};
  return lstat(path.c_str(), &status) == 0;
}

class PrivateDirectoryTest : public testing::Test {
 protected:
  PrivateDirectoryTest() {
    EXPECT_NE(mkdtemp(base_.data()), nullptr);
    const char* const before = std::getenv("TMPDIR");
    before_ = before == nullptr ? "" : before;
    setenv("TMPDIR", base_.c_str(), 1);
  }
  ~PrivateDirectoryTest() override {
    before_.empty() ? unsetenv("TMPDIR") : setenv("TMPDIR", before_.c_str(), 1);
    EXPECT_EQ(rmdir(base_.c_str()), 0) << "a test removes what it has made";
  }

  // What a killed process leaves behind: a directory, and the socket in it.
  std::string Abandon(const std::string& name, mode_t mode = 0700) const {
    const std::string path = base_ + "/" + name;
    EXPECT_EQ(mkdir(path.c_str(), mode), 0);
    EXPECT_EQ(chmod(path.c_str(), mode), 0);
    const auto listener = ListenLocal(path + "/workers");
    EXPECT_TRUE(listener.ok()) << listener.status();
    close(listener.value_or(-1));
    return path;
  }
  static void Remove(const std::string& path) {
    unlink((path + "/workers").c_str());
    EXPECT_EQ(rmdir(path.c_str()), 0) << path;
  }

  std::string base_ = testing::TempDir() + "/private-XXXXXX";
  std::string before_;
};

TEST_F(PrivateDirectoryTest, IsForItsUserAloneAndGoesWithItsOwner) {
  auto directory = *PrivateDirectory::Make();
  const std::string socket = directory->SocketName();
  const std::string path = socket.substr(0, socket.rfind('/'));
  struct stat status = {};
  ASSERT_EQ(stat(path.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 07777, 0700u);
  directory.reset();
  EXPECT_FALSE(Exists(path));
}

TEST_F(PrivateDirectoryTest, ThoseOfKilledProcessesAreRemoved) {
  const std::string one = Abandon("basin-abcdef");
  const std::string other = Abandon("basin-A1b2C3");
  EXPECT_EQ(PrivateDirectory::RemoveAbandoned(), 2);
  EXPECT_FALSE(Exists(one));
  EXPECT_FALSE(Exists(other));
  EXPECT_EQ(PrivateDirectory::RemoveAbandoned(), 0);
}

// The lock of the owner counts also while its socket exists and does not listen yet.
TEST_F(PrivateDirectoryTest, ThatOfALivingProcessStaysFromItsFirstMoment) {
  const auto directory = *PrivateDirectory::Make();
  EXPECT_EQ(PrivateDirectory::RemoveAbandoned(), 0) << "before the socket";
  const auto listener = ListenLocal(directory->SocketName());
  ASSERT_TRUE(listener.ok()) << listener.status();
  EXPECT_EQ(PrivateDirectory::RemoveAbandoned(), 0);
  close(*listener);
  EXPECT_EQ(PrivateDirectory::RemoveAbandoned(), 0) << "without a listener";
  EXPECT_TRUE(Exists(directory->SocketName()));
  unlink(directory->SocketName().c_str());
}

// As on a file system without locks.
TEST_F(PrivateDirectoryTest, OneWhoseSocketHasAListenerStaysWithoutALock) {
  const std::string path = base_ + "/basin-abcdef";
  ASSERT_EQ(mkdir(path.c_str(), 0700), 0);
  const auto listener = ListenLocal(path + "/workers");
  ASSERT_TRUE(listener.ok()) << listener.status();
  EXPECT_EQ(PrivateDirectory::RemoveAbandoned(), 0);
  EXPECT_TRUE(Exists(path + "/workers"));
  close(*listener);
  Remove(path);
}

TEST_F(PrivateDirectoryTest, WhatLooksDifferentStays) {
  const std::string open_to_others = Abandon("basin-aaaaaa", 0755);
  const std::string longer = Abandon("basin-aaaaaaa");
  const std::string elsewhere = Abandon("other-aaaaaa");
  const std::string more = Abandon("basin-bbbbbb");
  const std::string file = more + "/notes";
  close(open(file.c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
  const std::string empty = base_ + "/basin-cccccc";
  ASSERT_EQ(mkdir(empty.c_str(), 0700), 0);
  const std::string no_socket = base_ + "/basin-dddddd";
  ASSERT_EQ(mkdir(no_socket.c_str(), 0700), 0);
  close(open((no_socket + "/workers").c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
  const std::string link_target = Abandon("target");
  const std::string link = base_ + "/basin-eeeeee";
  ASSERT_EQ(symlink(link_target.c_str(), link.c_str()), 0);

  EXPECT_EQ(PrivateDirectory::RemoveAbandoned(), 0);
  EXPECT_TRUE(Exists(file));
  EXPECT_TRUE(Exists(link_target + "/workers"));
  unlink(file.c_str());
  unlink(link.c_str());
  for (const std::string& path :
       {open_to_others, longer, elsewhere, more, empty, no_socket, link_target}) {
    Remove(path);
  }
}

TEST_F(PrivateDirectoryTest, OneThatAnotherUserOwnsStays) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can give a directory away";
  const std::string path = Abandon("basin-abcdef");
  ASSERT_EQ(chown(path.c_str(), 12345, 12345), 0);
  EXPECT_EQ(PrivateDirectory::RemoveAbandoned(), 0);
  EXPECT_TRUE(Exists(path + "/workers"));
  Remove(path);
}

}  // namespace
}  // namespace basin
