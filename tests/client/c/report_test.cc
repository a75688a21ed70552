// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// What the library logs about data streams that are not open.

#include "client/c/report.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace basin::c {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class ReportTest : public ::testing::Test {
 protected:
  ReportTest() : report_(ToLines(), "worker w of job j") {}

  Log ToLines() {
    Log log;
    log.write = [](void* lines, basin_log_level, const char* message) {
      static_cast<std::vector<std::string>*>(lines)->emplace_back(message);
    };
    log.user = &lines_;
    log.least = BASIN_LOG_INFO;
    return log;
  }

  void No(const std::string& why) { None(kCoordinatorShard, why); }
  void None(ShardId shard, const std::string& why) {
    view_.stream_trouble = why;
    view_.stream_shard = why.empty() ? kCoordinatorShard : shard;
    report_.OnView(view_);
  }

  std::vector<std::string> lines_;
  client::JobView view_;
  Report report_;
};

TEST_F(ReportTest, AShardThatCannotBeReachedIsNamedOnce) {
  for (int again = 0; again < 3; ++again) {
    None(3, "no data stream to shard s-3 is open: it cannot be reached");
    None(3, "no data stream to shard s-3 is open: it closed the connection");
    None(3, "");
  }
  EXPECT_THAT(lines_, ElementsAre(HasSubstr("shard s-3 is open: it cannot be reached. The client"),
                                  HasSubstr("The shard is not waited for any more")));
}

TEST_F(ReportTest, EachShardIsNamed) {
  None(3, "no data stream to shard s-3 is open: why");
  None(4, "no data stream to shard s-4 is open: why");
  None(3, "no data stream to shard s-3 is open: why");
  EXPECT_THAT(lines_, ElementsAre(HasSubstr("s-3"), HasSubstr("s-4")));
}

TEST_F(ReportTest, StreamsToTheAggregatorAreNamedWheneverTheyEnd) {
  for (int again = 0; again < 2; ++again) {
    No("no data stream to the aggregator is open: why");
    No("");
  }
  EXPECT_THAT(lines_,
              ElementsAre(HasSubstr("no data stream to the aggregator"), HasSubstr("open again"),
                          HasSubstr("no data stream to the aggregator"), HasSubstr("open again")));
}

TEST_F(ReportTest, TheEndOfTheSessionSaysEnough) {
  None(3, "no data stream to shard s-3 is open: why");
  lines_.clear();
  view_.left = true;
  None(3, "");
  EXPECT_THAT(lines_, ElementsAre(HasSubstr("left the job")));
  report_.Silence();
  lines_.clear();
  None(5, "no data stream to shard s-5 is open: why");
  EXPECT_THAT(lines_, IsEmpty());
}

}  // namespace
}  // namespace basin::c
