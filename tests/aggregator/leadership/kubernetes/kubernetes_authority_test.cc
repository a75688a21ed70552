// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "aggregator/leadership/kubernetes/kubernetes_authority.h"

#include <algorithm>
#include <cstdio>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/aggregator/leadership/authority_contract.h"
#include "tests/aggregator/leadership/kubernetes/fake_api_server.h"
#include "tests/simulation/random.h"

namespace basin::aggregator {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;
using Json = nlohmann::json;

// A Lease of the namespace training, which nobody has made yet.
class ApiServer {
 public:
  std::unique_ptr<Authority> Open(const std::string&) { return OpenIn("training"); }
  std::unique_ptr<Authority> OpenIn(const std::string& space) {
    auto authority = KubernetesAuthority::Open(fake.place(), space, "basin");
    EXPECT_TRUE(authority.ok()) << authority.status();
    return *std::move(authority);
  }
  void Lose() { fake.Put("training", "basin", nullptr); }
  void GoAway() {
    fake.Decide([] { return ApiFate::kHungUp; });
  }
  void Disturb() {
    const uint64_t seed = std::random_device()();
    std::printf("seed %llu\n", static_cast<unsigned long long>(seed));
    const auto random = std::make_shared<simulation::Random>(seed);
    fake.Decide([random] {  // Called with the lock of the server.
      return random->Chance(25) ? static_cast<ApiFate>(random->Below(kApiFates)) : ApiFate::kWell;
    });
  }
  void ComeBack() { fake.Decide(nullptr); }
  std::string why_not() const { return ""; }

  FakeApiServer fake;
};

INSTANTIATE_TYPED_TEST_SUITE_P(Kubernetes, AuthorityContract, ApiServer);

class KubernetesAuthorityTest : public testing::Test {
 protected:
  std::unique_ptr<Authority> Open(const std::string& space = "training") {
    return place_.OpenIn(space);
  }

  ApiServer place_;
  FakeApiServer& server_ = place_.fake;
};

TEST_F(KubernetesAuthorityTest, ALeaseOfTheChartIsTakenAndKeepsItsLabels) {
  server_.Put("training", "basin", Json::parse(R"({"metadata": {"labels": {"chart": "basin"}}})"));
  const auto a = Open();
  const RecordState state = ReadFrom(*a);
  EXPECT_FALSE(state.record.has_value());
  EXPECT_NE(state.version, "");
  WriteTo(*a, LedBy("a"), state.version);
  const Json lease = server_.Lease("training", "basin");
  EXPECT_EQ(lease["metadata"]["labels"]["chart"], "basin");
  EXPECT_EQ(lease["spec"]["holderIdentity"], "a");
}

TEST_F(KubernetesAuthorityTest, TheNamespaceMayBeThatOfThePod) {
  WriteTo(*Open(""), LedBy("a"), "");
  EXPECT_EQ(server_.Lease("training", "basin")["spec"]["holderIdentity"], "a");
}

TEST_F(KubernetesAuthorityTest, OneConnectionIsKept) {
  const auto a = Open();
  std::string version = WriteTo(*a, LedBy("a"), "");
  for (int i = 0; i < 5; ++i) version = WriteTo(*a, LedBy("a"), version);
  EXPECT_EQ(ReadFrom(*a).version, version);
  EXPECT_EQ(server_.connections(), 1u);
  // A server that closes it is asked on another one, without a failure.
  server_.DecideNext(ApiFate::kClosedAfterwards);
  ReadFrom(*a);
  EXPECT_EQ(ReadFrom(*a).version, version);
  EXPECT_EQ(server_.connections(), 2u);
  // Also when that is noticed only with the answer that does not come.
  server_.DecideNext(ApiFate::kHungUp);
  EXPECT_EQ(ReadFrom(*a).version, version);
  EXPECT_EQ(server_.connections(), 3u);
}

TEST_F(KubernetesAuthorityTest, TheTokenIsReadForEachRequest) {
  const auto a = Open();
  const std::string version = WriteTo(*a, LedBy("a"), "");
  server_.ReplaceToken("second-token");
  EXPECT_EQ(ReadFrom(*a).version, version);
  // One that the server does not know.
  server_.pki().Write("token", "old");
  EXPECT_THAT(TroubleOf(*a), AllOf(HasSubstr("training/basin"), HasSubstr("status 401"),
                                   HasSubstr("service account"), Not(EndsWith("."))));
  std::remove(server_.pki().path("token").c_str());
  EXPECT_THAT(TroubleOf(*a), HasSubstr("token"));
}

TEST_F(KubernetesAuthorityTest, ARefusalNamesTheRightsThatAreNeeded) {
  const auto a = Open();
  server_.DecideNext(ApiFate::kForbidden);
  EXPECT_THAT(TroubleOf(*a), AllOf(HasSubstr("status 403"), HasSubstr("is forbidden. "),
                                   HasSubstr("get and update")));
  server_.DecideNext(ApiFate::kForbidden);
  const absl::Status refused = a->Write(LedBy("a"), "", kPatience).status();
  EXPECT_TRUE(absl::IsUnavailable(refused)) << refused;
  server_.DecideNext(ApiFate::kBroken);
  EXPECT_THAT(TroubleOf(*a), HasSubstr("status 500: etcdserver: request timed out"));
  WriteTo(*a, LedBy("a"), "");
}

TEST_F(KubernetesAuthorityTest, AServerThatDoesNotAnswerIsNotWaitedFor) {
  const auto a = Open();
  server_.Decide([] { return ApiFate::kSilent; });
  EXPECT_THAT(TroubleOf(*a, absl::Milliseconds(50)),
              AllOf(HasSubstr("127.0.0.1:"), HasSubstr("no answer came within")));
  server_.Decide(nullptr);
  // A late answer to it would be on another connection.
  EXPECT_FALSE(ReadFrom(*a).record.has_value());
}

TEST_F(KubernetesAuthorityTest, AWriteWhoseAnswerIsLostMayHaveHappened) {
  const auto a = Open();
  const std::string version = WriteTo(*a, LedBy("a"), "");
  server_.DecideNext(ApiFate::kAnswerLost);
  const absl::Status lost = a->Write(LedBy("a", 8), version, kPatience).status();
  EXPECT_TRUE(absl::IsUnavailable(lost)) << lost;
  server_.DecideNext(ApiFate::kNonsense);
  EXPECT_THAT(TroubleOf(*a), HasSubstr("no Lease"));
  EXPECT_EQ(ReadFrom(*a).record->fence, kSomeFence + 8);
  // It was sent once.
  const std::vector<std::string> asked = server_.Asked();
  EXPECT_EQ(std::count_if(asked.begin(), asked.end(),
                          [](const std::string& one) { return one[0] == 'P' && one[1] == 'U'; }),
            1);
}

TEST_F(KubernetesAuthorityTest, Fault_S1_AServerWithAnotherCertificateIsNotAsked) {
  const auto a = Open();
  EXPECT_FALSE(ReadFrom(*a).record.has_value());
  const Pki other;
  server_.pki().Write("ca.crt", other.ca().cert);
  // The next connection is to somebody else.
  const auto b = Open();
  EXPECT_THAT(TroubleOf(*b), HasSubstr("its certificate is not accepted"));
  EXPECT_THAT(server_.Asked(), ElementsAre(StartsWith("GET ")));
  // It must be for the address of the server, too.
  const FakeApiServer elsewhere({"IP:127.0.0.2", "DNS:elsewhere"});
  const auto c = KubernetesAuthority::Open(elsewhere.place(), "training", "basin");
  ASSERT_TRUE(c.ok());
  EXPECT_THAT(TroubleOf(**c), HasSubstr("its certificate is not accepted"));
  EXPECT_THAT(elsewhere.Asked(), IsEmpty());
}

TEST_F(KubernetesAuthorityTest, OutsideOfPodsItSaysSo) {
  const auto nowhere = KubernetesAuthority::Open({{"", 0}, server_.place().account}, "", "basin");
  EXPECT_THAT(std::string(nowhere.status().message()),
              AllOf(HasSubstr("KUBERNETES_SERVICE_HOST"), HasSubstr("file:DIRECTORY")));
  const auto nobody = KubernetesAuthority::Open({{"127.0.0.1", 1}, "/not/there"}, "", "basin");
  EXPECT_THAT(std::string(nobody.status().message()),
              AllOf(HasSubstr("/not/there/token"), HasSubstr("automountServiceAccountToken")));
}

}  // namespace
}  // namespace basin::aggregator
