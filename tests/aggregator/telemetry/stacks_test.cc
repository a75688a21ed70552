// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "aggregator/telemetry/stacks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pthread.h>

#include <string>
#include <thread>
#include <vector>

#include "runtime/mutex.h"

namespace basin::aggregator {

// Not in the anonymous namespace, so that it has a name for the linker.
struct StandStill {
  Mutex mutex;
  Condition changed;
  bool stands ABSL_GUARDED_BY(mutex) = false;
  bool ends ABSL_GUARDED_BY(mutex) = false;

  [[gnu::noinline]] void WaitForItsEnd() {
    MutexLock lock(mutex);
    stands = true;
    changed.NotifyAll();
    while (!ends) changed.Wait(mutex);
  }
};

namespace {

using testing::AllOf;
using testing::Contains;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

TEST(StacksTest, NamesEachThreadAndWhatItDoes) {
  PrepareStacks();
  StandStill still;
  std::thread thread([&] {
    pthread_setname_np(pthread_self(), "basin-still");
    still.WaitForItsEnd();
  });
  {
    MutexLock lock(still.mutex);
    while (!still.stands) still.changed.Wait(still.mutex);
  }
  for (int i = 0; i < 3; ++i) {
    std::vector<std::string> stacks;
    ShowStacks([&](const std::string& stack) { stacks.push_back(stack); });
    EXPECT_THAT(stacks, Contains(AllOf(StartsWith("basin-still (thread "), HasSubstr("_test+0x"),
                                       HasSubstr("StandStill::WaitForItsEnd"))));
    EXPECT_THAT(stacks, Not(Contains(HasSubstr("ShowStacks"))));
  }
  {
    MutexLock lock(still.mutex);
    still.ends = true;
    still.changed.NotifyAll();
  }
  thread.join();
}

}  // namespace
}  // namespace basin::aggregator
