// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "proto/wire/admin.h"

#include <string>

#include "basin/v1/admin.pb.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "protocol/limits/limits.h"
#include "tests/proto/admin_requests.h"

namespace basin::wire {
namespace {

using basin::testing::AdminRequests;
using basin::testing::GoodRequest;
using ::testing::HasSubstr;

template <typename Request>
class AdminRequest : public ::testing::Test {};
TYPED_TEST_SUITE(AdminRequest, AdminRequests::As<::testing::Types>);

// Finds a request type that is not in the list, and so in no test.
TEST(AdminService, EveryMethodIsTested) {
  const google::protobuf::ServiceDescriptor* service =
      v1::GetStatusRequest::descriptor()->file()->FindServiceByName("Admin");
  ASSERT_NE(service, nullptr);
  EXPECT_EQ(service->method_count(), AdminRequests::kCount);
  for (int i = 0; i < service->method_count(); ++i) {
    EXPECT_TRUE(AdminRequests::Contains(service->method(i)->input_type()->name()))
        << service->method(i)->name();
  }
}

TYPED_TEST(AdminRequest, AGoodOneIsLetThrough) {
  const absl::Status status = Check(GoodRequest<TypeParam>());
  EXPECT_TRUE(status.ok()) << status;
}

TYPED_TEST(AdminRequest, Fault_N10_TheDefaultMessageIsRefused) {
  const absl::Status status = Check(TypeParam());
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("header.magic"));
}

TYPED_TEST(AdminRequest, Fault_N10_MagicAndVersionAreRequired) {
  TypeParam request = GoodRequest<TypeParam>();
  request.mutable_header()->clear_magic();
  EXPECT_EQ(Check(request).code(), absl::StatusCode::kInvalidArgument);
  request = GoodRequest<TypeParam>();
  request.mutable_header()->clear_protocol_version();
  EXPECT_EQ(Check(request).code(), absl::StatusCode::kInvalidArgument);
}

TYPED_TEST(AdminRequest, Fault_A12_AnotherVersionIsRefusedWithBoth) {
  TypeParam request = GoodRequest<TypeParam>();
  request.mutable_header()->set_protocol_version(2);
  const absl::Status status = Check(request);
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("version 2 was requested, but this is 1"));
}

// Every string field of every request but free text, by reflection.
TYPED_TEST(AdminRequest, Fault_S7_HostileNamesAreRefused) {
  const google::protobuf::Descriptor* type = TypeParam::descriptor();
  for (int i = 0; i < type->field_count(); ++i) {
    const google::protobuf::FieldDescriptor* field = type->field(i);
    if (field->type() != google::protobuf::FieldDescriptor::TYPE_STRING ||
        field->name() == "reason") {
      continue;
    }
    for (const std::string& name : {std::string("a\nb"), std::string(1 << 20, 'a')}) {
      TypeParam request = GoodRequest<TypeParam>();
      request.GetReflection()->SetString(&request, field, name);
      const absl::Status status = Check(request);
      EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << field->name();
      EXPECT_THAT(std::string(status.message()), HasSubstr(std::string(field->name())));
    }
  }
}

TEST(AdminRules, WhatMayBeEmptyAndWhatMayNot) {
  auto members = GoodRequest<v1::ListMembersRequest>();
  members.clear_job();
  EXPECT_FALSE(Check(members).ok());
  auto events = GoodRequest<v1::WatchEventsRequest>();
  events.clear_job();
  EXPECT_TRUE(Check(events).ok());
  auto rounds = GoodRequest<v1::ListRoundsRequest>();
  rounds.clear_lane();
  EXPECT_TRUE(Check(rounds).ok());
  rounds.set_last(kMaxPastRounds + 1);
  EXPECT_FALSE(Check(rounds).ok());
  auto evict = GoodRequest<v1::EvictRequest>();
  evict.clear_worker();
  EXPECT_FALSE(Check(evict).ok());
}

TEST(AdminRules, SetJobNeedsNumbersThatFit) {
  const auto check = [](int min, int max) {
    auto request = GoodRequest<v1::SetJobRequest>();
    request.clear_min_workers();
    request.clear_max_workers();
    if (min >= 0) request.set_min_workers(min);
    if (max >= 0) request.set_max_workers(max);
    return Check(request).ok();
  };
  EXPECT_TRUE(check(1, 4));
  EXPECT_TRUE(check(4, 4));
  EXPECT_TRUE(check(2, -1));
  EXPECT_TRUE(check(-1, kMaxWorkers));
  EXPECT_FALSE(check(-1, -1));
  EXPECT_FALSE(check(0, 4));
  EXPECT_FALSE(check(5, 4));
  EXPECT_FALSE(check(-1, kMaxWorkers + 1));
}

TEST(AdminRules, SetJobMayChangeAPolicyAlone) {
  auto request = GoodRequest<v1::SetJobRequest>();
  request.clear_min_workers();
  request.clear_max_workers();
  EXPECT_FALSE(Check(request).ok());
  request.set_loss_policy(v1::LOSS_POLICY_ABORT);
  EXPECT_TRUE(Check(request).ok());
  request.set_loss_policy(static_cast<v1::LossPolicy>(17));
  EXPECT_THAT(std::string(Check(request).message()), HasSubstr("loss_policy"));
  request.set_loss_policy(v1::LOSS_POLICY_UNSPECIFIED);
  request.set_late_policy(v1::LATE_POLICY_WAIT);
  EXPECT_TRUE(Check(request).ok());
}

TEST(AdminRules, ExitStatusIsACodeOrASignal) {
  const auto check = [](int status) {
    auto request = GoodRequest<v1::ReportExitRequest>();
    request.set_exit_status(status);
    return Check(request).ok();
  };
  for (const int good : {0, 1, 255, -9, -64}) EXPECT_TRUE(check(good)) << good;
  for (const int bad : {256, -65, 1 << 30}) EXPECT_FALSE(check(bad)) << bad;
}

}  // namespace
}  // namespace basin::wire
