// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "client/transport/grpc/failure.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/status/status.h"
#include "proto/wire/status_detail.h"

namespace basin::client {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string TextOf(const grpc::Status& status) {
  return std::string(DescribeFailure("basin:29600", status).message());
}

TEST(DescribeFailure, AnEndWithoutAnErrorIsOneToo) {
  const absl::Status status = DescribeFailure("basin:29600", grpc::Status::OK);
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()), HasSubstr("basin:29600"));
}

TEST(DescribeFailure, KeepsTheAggregatorsWordsAndItsTypedError) {
  const Error error{ErrorCode::kSuperseded, "Process 2 has taken worker w1 of job train."};
  const absl::Status status = DescribeFailure("basin:29600", ToGrpc(wire::ToStatus(error)));
  EXPECT_EQ(status.code(), absl::StatusCode::kAborted);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr(error.text), HasSubstr("basin:29600")));
  EXPECT_EQ(wire::ToError(status).code, ErrorCode::kSuperseded);
}

TEST(DescribeFailure, NamesWhatHttp2OnlyNumbers) {
  EXPECT_THAT(
      TextOf({grpc::StatusCode::RESOURCE_EXHAUSTED, "Received RST_STREAM with error code 11"}),
      AllOf(HasSubstr("no memory left"), HasSubstr("memory budget"), HasSubstr("error code 11")));
}

TEST(DescribeFailure, TellsAbuseByPingsFromLackOfMemory) {
  EXPECT_THAT(TextOf({grpc::StatusCode::UNAVAILABLE, "Too many pings: too_many_pings"}),
              AllOf(HasSubstr("pinged more often"), HasSubstr("keepalive settings")));
}

TEST(DescribeFailure, SaysWhatToLookAtWhenNobodyIsThere) {
  EXPECT_THAT(TextOf({grpc::StatusCode::UNAVAILABLE,
                      "failed to connect to all addresses; last error: Connection refused"}),
              AllOf(HasSubstr("cannot be reached"), HasSubstr("address is right"),
                    HasSubstr("Connection refused")));
  EXPECT_THAT(TextOf({grpc::StatusCode::UNAVAILABLE, "DNS resolution failed for basin:29600"}),
              HasSubstr("cannot be resolved"));
  EXPECT_THAT(TextOf({grpc::StatusCode::UNAVAILABLE, "keepalive watchdog timeout"}),
              HasSubstr("did not answer"));
}

// Two attempts may ask for different addresses; the log has one line for both.
TEST(DescribeFailure, IsTheSameForTheSameCause) {
  const auto failed = [](const std::string& query) {
    return TextOf(
        {grpc::StatusCode::UNAVAILABLE,
         "DNS resolution failed for basin:29600: C-ares status is not ARES_SUCCESS qtype=" + query +
             " name=basin is_balancer=0: Domain name not found"});
  };
  EXPECT_EQ(failed("A"), failed("AAAA"));
  EXPECT_THAT(failed("A"), HasSubstr("cannot be resolved (Domain name not found). Check"));
}

TEST(DescribeFailure, QuotesWhatItDoesNotKnow) {
  EXPECT_THAT(TextOf({grpc::StatusCode::INTERNAL, "a teapot"}), HasSubstr("a teapot"));
}

}  // namespace
}  // namespace basin::client
