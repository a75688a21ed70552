// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "accelerator/device/releases.h"

#include <gtest/gtest.h>

#include <future>
#include <memory>
#include <thread>
#include <vector>

namespace basin::accelerator {
namespace {

using std::chrono::milliseconds;

class ReleasesTest : public ::testing::Test {
 protected:
  std::shared_ptr<std::atomic<bool>> hangs_ = std::make_shared<std::atomic<bool>>(false);
};

TEST_F(ReleasesTest, NobodyWaitsForARelease) {
  std::promise<void> go_on;
  std::thread::id released_by;
  {
    Releases releases(hangs_);
    releases.Add([&] {
      released_by = std::this_thread::get_id();
      go_on.get_future().wait();
    });
    go_on.set_value();  // Would not be reached.
  }
  EXPECT_NE(released_by, std::thread::id());
  EXPECT_NE(released_by, std::this_thread::get_id());
  EXPECT_FALSE(*hangs_);
}

TEST_F(ReleasesTest, TheEndWaitsForAllOfThemInTheirOrder) {
  std::vector<int> released;
  {
    Releases releases(hangs_);
    for (int i = 0; i < 100; ++i) {
      releases.Add([&released, i] { released.push_back(i); });
    }
  }
  ASSERT_EQ(released.size(), 100u);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(released[static_cast<size_t>(i)], i);
}

TEST_F(ReleasesTest, Fault_A13_AReleaseThatDoesNotReturnIsLeftBehind) {
  auto go_on = std::make_shared<std::promise<void>>();
  auto returned = std::make_shared<std::promise<void>>();
  {
    Releases releases(hangs_, milliseconds(20));
    releases.Add([go_on, returned] {
      go_on->get_future().wait();
      returned->set_value();
    });
  }
  EXPECT_TRUE(*hangs_);
  go_on->set_value();
  returned->get_future().wait();
}

// The device counts as one that hangs while it is still in use.
TEST_F(ReleasesTest, Fault_A13_TheNextReleaseNotesThatOneDoesNotReturn) {
  auto go_on = std::make_shared<std::promise<void>>();
  Releases releases(hangs_, milliseconds(1));
  releases.Add([go_on] { go_on->get_future().wait(); });
  while (!*hangs_) {
    releases.Add([] {});
    std::this_thread::yield();
  }
  go_on->set_value();
}

}  // namespace
}  // namespace basin::accelerator
