// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "proto/wire/protobuf_log.h"

#include <string>
#include <vector>

#include "basin/v1/session.pb.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace basin::wire {
namespace {

using ::testing::HasSubstr;

TEST(ProtobufLog, TakesWhatProtobufWouldPrint) {
  std::vector<std::string> lines;
  const ProtobufLog log([&](const std::string& text) { lines.push_back(text); });
  v1::Register message;
  EXPECT_FALSE(message.ParseFromString("\x0a\x01\xff"));
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_THAT(lines[0], HasSubstr("basin.v1.Register.lane"));
  EXPECT_THAT(lines[0], HasSubstr("UTF-8"));
}

}  // namespace
}  // namespace basin::wire
