// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "aggregator/leadership/one_deployment.h"

#include <memory>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/aggregator/leadership/authority_contract.h"

namespace basin::aggregator {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// What the authorities of one place share.
struct Record {
  RecordState state;
  int writes = 0;
};

class Shared : public Authority {
 public:
  explicit Shared(Record& record) : record_(record) {}
  absl::StatusOr<RecordState> Read(absl::Duration) override { return record_.state; }
  absl::StatusOr<std::string> Write(const LeaderRecord& record, const std::string& version,
                                    absl::Duration) override {
    if (version != record_.state.version) return absl::AbortedError("It has changed.");
    record_.state = {record, absl::StrCat(++record_.writes), false};
    return record_.state.version;
  }

 private:
  Record& record_;
};

std::unique_ptr<Authority> Of(Record& record, const std::string& deployment) {
  return std::make_unique<OneDeployment>(std::make_unique<Shared>(record), "etcd:h:1/leader",
                                         deployment);
}

TEST(OneDeployment, TheRecordOfAnotherOneIsAnErrorThatNamesBoth) {
  Record record;
  const auto a = Of(record, "cluster-a");
  const auto same = Of(record, "cluster-a");
  const auto b = Of(record, "cluster-b");
  const auto unnamed = Of(record, "");
  const std::string version = WriteTo(*a, LedBy("a"), "");
  EXPECT_EQ(ReadFrom(*a).version, version);
  EXPECT_EQ(ReadFrom(*same).record->holder, "a");
  EXPECT_THAT(TroubleOf(*b), AllOf(HasSubstr("etcd:h:1/leader"), HasSubstr("cluster-a"),
                                   HasSubstr("this aggregator is of cluster-b")));
  EXPECT_THAT(TroubleOf(*unnamed),
              AllOf(HasSubstr("cluster-a"), HasSubstr("has no standby.deployment")));
}

TEST(OneDeployment, ARecordWithoutANameMayBeTaken) {
  Record record;
  const auto before = Of(record, "");
  const auto a = Of(record, "cluster-a");
  const std::string version = WriteTo(*before, LedBy("before"), "");
  EXPECT_EQ(ReadFrom(*before).version, version);
  WriteTo(*a, LedBy("a", 1), ReadFrom(*a).version);
  EXPECT_THAT(TroubleOf(*before), HasSubstr("cluster-a"));
}

TEST(OneDeployment, Fault_A4_ACandidateTakesNoLeadOfAnotherOne) {
  Record record;
  const auto a = Of(record, "cluster-a");
  // It has given up the lead, so any aggregator of its own may take it at once.
  WriteTo(*a, {kSomeFence, "", "", absl::Milliseconds(200)}, "");
  Contender other(Of(record, "cluster-b"), "other");
  basin::Await([&] { return !other.candidate->view().trouble.empty(); });
  EXPECT_THAT(other.candidate->view().trouble, HasSubstr("cluster-b"));
  other.candidate->Stop();
  EXPECT_EQ(record.writes, 1);
}

}  // namespace
}  // namespace basin::aggregator
