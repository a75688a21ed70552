// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "aggregator/leadership/kubernetes/lease.h"

#include <nlohmann/json.hpp>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace basin::aggregator {
namespace {

using ::testing::HasSubstr;
using Json = nlohmann::json;

const absl::Time kNow = absl::FromUnixSeconds(1800000000) + absl::Microseconds(5);

LeaderRecord LedBy(const std::string& holder, uint64_t fence = kFirstFence + 7) {
  return {fence, holder, "basin-0.basin:29600", absl::Seconds(3)};
}

// As the server has it, with a version.
std::string Stored(const absl::StatusOr<std::string>& written) {
  EXPECT_TRUE(written.ok()) << written.status();
  Json lease = Json::parse(*written);
  lease["metadata"]["resourceVersion"] = "41";
  return lease.dump();
}

TEST(Lease, HasWhatOthersExpectOfALease) {
  const auto written = LeaseWith(LedBy("a"), "", NewLease("training", "basin"), kNow);
  ASSERT_TRUE(written.ok()) << written.status();
  EXPECT_EQ(Json::parse(*written), Json::parse(R"({
    "apiVersion": "coordination.k8s.io/v1",
    "kind": "Lease",
    "metadata": {
      "name": "basin",
      "namespace": "training",
      "annotations": {"basin/address": "basin-0.basin:29600"}
    },
    "spec": {
      "holderIdentity": "a",
      "leaseTransitions": 7,
      "leaseDurationSeconds": 3,
      "acquireTime": "2027-01-15T08:00:00.000005Z",
      "renewTime": "2027-01-15T08:00:00.000005Z"
    }
  })"));
}

TEST(Lease, IsReadAsItWasWritten) {
  const std::string lease = Stored(LeaseWith(LedBy("a"), "", NewLease("training", "basin"), kNow));
  const absl::StatusOr<RecordState> state = StateInLease(lease);
  ASSERT_TRUE(state.ok()) << state.status();
  EXPECT_EQ(state->version, "41");
  ASSERT_TRUE(state->record.has_value());
  EXPECT_EQ(state->record->Fields(), LedBy("a").Fields());
  EXPECT_FALSE(state->holder_ended);
}

TEST(Lease, KeepsWhatOthersHavePutIntoIt) {
  const std::string before = R"({
    "apiVersion": "coordination.k8s.io/v1",
    "kind": "Lease",
    "metadata": {
      "name": "basin",
      "resourceVersion": "40",
      "labels": {"helm.sh/chart": "basin"},
      "annotations": {"meta.helm.sh/release-name": "basin"},
      "managedFields": [{"manager": "helm"}]
    }
  })";
  const absl::StatusOr<RecordState> state = StateInLease(before);
  ASSERT_TRUE(state.ok()) << state.status();
  EXPECT_FALSE(state->record.has_value()) << "a Lease of the chart names nobody at first";
  EXPECT_EQ(state->version, "40");
  const Json after = Json::parse(*LeaseWith(LedBy("a"), "40", before, kNow));
  EXPECT_EQ(after["metadata"]["resourceVersion"], "40");
  EXPECT_EQ(after["metadata"]["labels"]["helm.sh/chart"], "basin");
  EXPECT_EQ(after["metadata"]["annotations"]["meta.helm.sh/release-name"], "basin");
  EXPECT_FALSE(after["metadata"].contains("managedFields"));
}

TEST(Lease, TellsSinceWhenItsHolderLeads) {
  const std::string first = Stored(LeaseWith(LedBy("a"), "", NewLease("training", "basin"), kNow));
  const std::string renewed = Stored(LeaseWith(LedBy("a"), "41", first, kNow + absl::Seconds(1)));
  EXPECT_EQ(Json::parse(renewed)["spec"]["acquireTime"], "2027-01-15T08:00:00.000005Z");
  EXPECT_EQ(Json::parse(renewed)["spec"]["renewTime"], "2027-01-15T08:00:01.000005Z");
  const Json taken = Json::parse(*LeaseWith(LedBy("b"), "41", renewed, kNow + absl::Seconds(2)));
  EXPECT_EQ(taken["spec"]["acquireTime"], "2027-01-15T08:00:02.000005Z");
}

TEST(Lease, ALeadThatWasGivenUpKeepsItsFence) {
  const std::string lease = Stored(LeaseWith({kFirstFence + 9, "", "", absl::Milliseconds(2500)},
                                             "", NewLease("training", "basin"), kNow));
  EXPECT_EQ(Json::parse(lease)["spec"]["leaseDurationSeconds"], 3) << "it is rounded up";
  const RecordState state = *StateInLease(lease);
  ASSERT_TRUE(state.record.has_value());
  EXPECT_EQ(state.record->holder, "");
  EXPECT_EQ(state.record->fence, kFirstFence + 9);
}

TEST(Lease, AFenceThatItCannotHaveIsRefused) {
  const std::string fresh = NewLease("training", "basin");
  EXPECT_TRUE(LeaseWith(LedBy("a", kFirstFence + 0x7fffffff), "", fresh, kNow).ok());
  for (const uint64_t fence :
       {uint64_t{0}, kFirstFence - 1, kFirstFence + 0x80000000, ~uint64_t{0}}) {
    const auto refused = LeaseWith(LedBy("a", fence), "", fresh, kNow);
    EXPECT_THAT(std::string(refused.status().message()), HasSubstr("set the clock")) << fence;
  }
}

TEST(Lease, WhatIsNoneIsAnError) {
  for (const char* wrong : {"", "<html>", "[]", "{}", R"({"metadata": 3})",
                            R"({"metadata": {"resourceVersion": 7}})"}) {
    EXPECT_TRUE(absl::IsUnavailable(StateInLease(wrong).status())) << wrong;
  }
  // What has a version and no number names nobody.
  for (const char* empty :
       {R"("spec": null)", R"("spec": [])", R"("spec": {"leaseTransitions": "7"})",
        R"("spec": {"leaseTransitions": -1, "holderIdentity": "x"})"}) {
    const auto state =
        StateInLease(std::string(R"({"metadata": {"resourceVersion": "7"}, )") + empty + "}");
    ASSERT_TRUE(state.ok()) << empty;
    EXPECT_FALSE(state->record.has_value()) << empty;
  }
}

}  // namespace
}  // namespace basin::aggregator
