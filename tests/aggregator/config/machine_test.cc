// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The machine as control groups of both versions show it, on a made-up /proc and /sys.

#include "aggregator/config/machine.h"

#include <filesystem>
#include <fstream>
#include <string>

#include "aggregator/text/units.h"
#include "gtest/gtest.h"

namespace basin::aggregator {
namespace {

class MachineTest : public ::testing::Test {
 protected:
  MachineTest() : root_(std::filesystem::path(::testing::TempDir()) / "basin-machine-test") {
    std::filesystem::remove_all(root_);
    Write("proc/meminfo", "MemTotal:       8388608 kB\nMemFree: 1 kB\n");
  }
  ~MachineTest() override { std::filesystem::remove_all(root_); }

  void Write(const std::string& path, const std::string& text) {
    std::filesystem::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text;
  }
  Machine Look() { return LookAtMachine(root_.string()); }

 private:
  std::filesystem::path root_;
};

TEST_F(MachineTest, WithoutControlGroupsItIsTheMachine) {
  EXPECT_EQ(8192 * kMiB, Look().memory_bytes);
  EXPECT_GE(Look().cpus, 1u);
}

TEST_F(MachineTest, InVersion2TheTightestGroupAboveCounts) {
  Write("proc/self/cgroup", "0::/kubepods/pod1/basin\n");
  Write("sys/fs/cgroup/kubepods/memory.max", "4294967296\n");
  Write("sys/fs/cgroup/kubepods/pod1/memory.max", "1073741824\n");
  Write("sys/fs/cgroup/kubepods/pod1/basin/memory.max", "max\n");
  EXPECT_EQ(1024 * kMiB, Look().memory_bytes);
}

TEST_F(MachineTest, InVersion2ContainersSeeTheirOwnTop) {
  Write("proc/self/cgroup", "0::/\n");
  Write("sys/fs/cgroup/memory.max", "536870912\n");
  Write("sys/fs/cgroup/cpu.max", "50000 100000\n");
  EXPECT_EQ(512 * kMiB, Look().memory_bytes);
  EXPECT_EQ(1u, Look().cpus);
}

TEST_F(MachineTest, InVersion1EachControllerHasItsPath) {
  Write("proc/self/cgroup", "4:memory:/docker/abc\n3:cpu,cpuacct:/docker/abc\n1:name=systemd:/\n");
  Write("sys/fs/cgroup/memory/docker/abc/memory.limit_in_bytes", "268435456\n");
  Write("sys/fs/cgroup/cpu/docker/abc/cpu.cfs_quota_us", "100000\n");
  Write("sys/fs/cgroup/cpu/docker/abc/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(256 * kMiB, Look().memory_bytes);
  EXPECT_EQ(1u, Look().cpus);
}

TEST_F(MachineTest, InVersion1APathOfTheHostIsNotThere) {
  Write("proc/self/cgroup", "4:memory:/docker/abc\n");
  Write("sys/fs/cgroup/memory/memory.limit_in_bytes", "134217728\n");
  EXPECT_EQ(128 * kMiB, Look().memory_bytes);
}

TEST_F(MachineTest, AQuotaOfMinusOneBoundsNothing) {
  const uint32_t without = Look().cpus;
  Write("proc/self/cgroup", "3:cpu:/\n");
  Write("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n");
  Write("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(without, Look().cpus);
}

TEST_F(MachineTest, WhatCannotBeReadBoundsNothing) {
  Write("proc/self/cgroup", "nonsense\n0::\n:::\n");
  Write("sys/fs/cgroup/memory.max", "\n");
  EXPECT_EQ(8192 * kMiB, Look().memory_bytes);
  Write("proc/meminfo", "");
  EXPECT_EQ(0u, Look().memory_bytes);
}

}  // namespace
}  // namespace basin::aggregator
