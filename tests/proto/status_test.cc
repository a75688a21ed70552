// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "proto/status/status.h"

#include <string>

#include "absl/strings/cord.h"
#include "basin/v1/admin.pb.h"
#include "gtest/gtest.h"
#include "proto/status/detail.h"
#include "proto/wire/status_detail.h"
#include "protocol/limits/limits.h"
#include "tests/proto/random_messages.h"

namespace basin {
namespace {

TEST(Status, EveryErrorSurvivesGrpc) {
  for (int code = 1; code <= static_cast<int>(ErrorCode::kNotFound); ++code) {
    const Error error{static_cast<ErrorCode>(code), "job bert, worker w-1: tensor 層.weight"};
    const grpc::Status sent = ToGrpc(wire::ToStatus(error));
    EXPECT_FALSE(sent.ok());
    EXPECT_EQ(sent.error_message(), error.text);
    EXPECT_TRUE(wire::ToError(FromGrpc(sent)) == error) << ErrorCodeName(error.code);
  }
}

TEST(Status, OkStaysOk) {
  EXPECT_TRUE(ToGrpc(absl::OkStatus()).ok());
  EXPECT_TRUE(FromGrpc(grpc::Status::OK).ok());
  EXPECT_TRUE(wire::ToStatus({}).ok());
  EXPECT_EQ(wire::ToError(absl::OkStatus()).code, ErrorCode::kOk);
}

TEST(Status, CodesAreTheSameNumbers) {
  for (int code = 1; code <= 16; ++code) {
    const absl::Status status(static_cast<absl::StatusCode>(code), "text");
    EXPECT_EQ(ToGrpc(status).error_code(), code);
    EXPECT_EQ(FromGrpc(ToGrpc(status)), status);
  }
  // One above the last; the enum cannot hold a much larger number.
  EXPECT_EQ(FromGrpc(grpc::Status(static_cast<grpc::StatusCode>(17), "text")).code(),
            absl::StatusCode::kUnknown);
}

TEST(Status, TheDetailIsAGoogleRpcStatus) {
  const grpc::Status sent = ToGrpc(wire::ToStatus({ErrorCode::kStale, "late"}));
  v1::StatusDetail detail;
  ASSERT_TRUE(detail.ParseFromString(sent.error_details()));
  EXPECT_EQ(detail.code(), sent.error_code());
  EXPECT_EQ(detail.message(), "late");
  ASSERT_EQ(detail.details_size(), 1);
  EXPECT_EQ(detail.details(0).type_url(), "type.googleapis.com/basin.v1.Error");
}

TEST(Status, Fault_N10_DetailsOfOthersAreNoError) {
  testing::RandomMessages random(1);
  for (int i = 0; i < 2000; ++i) {
    absl::Status status = absl::UnavailableError("connection refused");
    status.SetPayload(kStatusDetailUrl, absl::Cord(random.Bytes(random.Below(40))));
    const Error error = wire::ToError(status);
    ASSERT_EQ(error.code, ErrorCode::kUnavailable);
    ASSERT_EQ(error.text, "connection refused");
  }
}

TEST(Status, Fault_S7_TextsOfOthersAreMadePrintable) {
  const Error error = wire::ToError(absl::InternalError("a\nb" + std::string(5000, 'x')));
  EXPECT_EQ(error.text.size(), kMaxTextBytes);
  EXPECT_EQ(error.text.substr(0, 4), "a?bx");
}

}  // namespace
}  // namespace basin
