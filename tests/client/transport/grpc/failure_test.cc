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
  return std::string(DescribeFailure("basin:29600", false, status).message());
}

TEST(DescribeFailure, AnEndWithoutAnErrorIsOneToo) {
  const absl::Status status = DescribeFailure("basin:29600", false, grpc::Status::OK);
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()), HasSubstr("basin:29600"));
}

TEST(DescribeFailure, KeepsTheAggregatorsWordsAndItsTypedError) {
  const Error error{ErrorCode::kSuperseded, "Process 2 has taken worker w1 of job train."};
  const absl::Status status = DescribeFailure("basin:29600", false, ToGrpc(wire::ToStatus(error)));
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

TEST(DescribeFailure, SaysWhichEndLacksTlsOrACertificate) {
  const auto text = [](bool tls, const std::string& cause) {
    const grpc::Status status(grpc::StatusCode::UNAVAILABLE,
                              "failed to connect to all addresses; last error: UNKNOWN: " + cause);
    return std::string(DescribeFailure("basin:29600", tls, status).message());
  };
  for (const char* cause : {"Ssl handshake failed: SSL_ERROR_SSL: error:0A000086:SSL "
                            "routines::certificate verify failed",
                            "Ssl handshake failed: SSL_ERROR_SSL: CERTIFICATE_VERIFY_FAILED"}) {
    EXPECT_THAT(text(true, cause), AllOf(HasSubstr("does not trust"), HasSubstr("BASIN_TLS_CA")));
  }
  EXPECT_THAT(text(true, "SSL_ERROR_SSL: WRONG_VERSION_NUMBER"),
              AllOf(HasSubstr("answers without TLS"), HasSubstr("tls.cert")));
  EXPECT_THAT(text(true, "Socket closed"), HasSubstr("set BASIN_TLS_CERT and BASIN_TLS_KEY"));
  EXPECT_THAT(text(false, "Socket closed"), HasSubstr("cannot be reached"));
  EXPECT_THAT(text(false, "Trying to connect an http1.x server (HTTP status 400)"),
              HasSubstr("Set BASIN_TLS_CA"));
}

// Two attempts may ask for different addresses; the log has one line for both.
TEST(DescribeFailure, NamesTheShardThatIsTheOtherEnd) {
  const auto text = [](const grpc::Status& status) {
    return std::string(DescribeFailure("host:29700", true, status, "s-1").message());
  };
  EXPECT_THAT(text(grpc::Status::OK), HasSubstr("shard s-1 at host:29700 ended the stream"));
  const grpc::Status name(grpc::StatusCode::UNAVAILABLE,
                          "failed to connect: Hostname Verification Check failed: host is not in "
                          "peer certificate");
  EXPECT_THAT(text(name), AllOf(HasSubstr("shard s-1 at host:29700 has a certificate for another "
                                          "name"),
                                HasSubstr("advertise a name in its certificate")));
}

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
