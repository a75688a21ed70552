// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "aggregator/leadership/etcd/etcd_authority.h"

#include <cstdio>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/aggregator/leadership/authority_contract.h"
#include "tests/aggregator/leadership/etcd/fake_etcd.h"
#include "tests/aggregator/tls/pki.h"
#include "tests/simulation/random.h"

namespace basin::aggregator {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kKey[] = "/basin/leader";

std::unique_ptr<Authority> OpenAt(const EtcdPlace& place) {
  auto authority = EtcdAuthority::Open(place, kKey);
  EXPECT_TRUE(authority.ok()) << authority.status();
  return *std::move(authority);
}

// A key that nobody has written, in a cluster of three members.
class Cluster {
 public:
  std::unique_ptr<Authority> Open(const std::string&) { return OpenAt(fake.place()); }
  void Lose() { fake.Delete(); }
  void GoAway() {
    fake.Decide([](size_t) { return EtcdFate::kNoLeader; });
  }
  void Disturb() {
    const uint64_t seed = std::random_device()();
    std::printf("seed %llu\n", static_cast<unsigned long long>(seed));
    const auto random = std::make_shared<simulation::Random>(seed);
    fake.Decide([random](size_t) {  // Called with the lock of the fake.
      return random->Chance(25) ? static_cast<EtcdFate>(random->Below(kEtcdFates))
                                : EtcdFate::kWell;
    });
  }
  void ComeBack() { fake.Decide(nullptr); }
  std::string why_not() const { return ""; }

  FakeEtcd fake{FakeEtcd::Options{3, {}, "", ""}};
};

INSTANTIATE_TYPED_TEST_SUITE_P(FakeEtcd, AuthorityContract, Cluster);

TEST(EtcdAuthority, Fault_A4_AnotherMemberIsAskedWhenOneIsGone) {
  FakeEtcd etcd({3, {}, "", ""});
  const auto a = OpenAt(etcd.place());
  std::string version = WriteTo(*a, LedBy("a"), "");
  etcd.Stop(0);
  EXPECT_EQ(ReadFrom(*a).version, version);
  version = WriteTo(*a, LedBy("a", 1), version);
  etcd.Stop(1);
  EXPECT_EQ(ReadFrom(*a).version, version);
  etcd.Stop(2);
  const std::vector<std::string> endpoints = etcd.endpoints();
  EXPECT_THAT(TroubleOf(*a), AllOf(HasSubstr("the key /basin/leader"), HasSubstr(endpoints[0]),
                                   HasSubstr(endpoints[1]), HasSubstr(endpoints[2]),
                                   HasSubstr("Connection refused")));
  etcd.Start(1);
  EXPECT_EQ(ReadFrom(*a).version, version);
}

// One is silent, and one is cut off from the other members.
TEST(EtcdAuthority, Fault_A4_AMemberThatIsOfNoUseDoesNotTakeAllOfTheTime) {
  for (const EtcdFate fate : {EtcdFate::kSilent, EtcdFate::kNoLeader}) {
    FakeEtcd etcd({2, {}, "", ""});
    const auto a = OpenAt(etcd.place());
    const std::string version = WriteTo(*a, LedBy("a"), "");
    etcd.Decide([fate](size_t member) { return member == 0 ? fate : EtcdFate::kWell; });
    const absl::StatusOr<RecordState> state = a->Read(absl::Seconds(2));
    ASSERT_TRUE(state.ok()) << state.status();
    EXPECT_EQ(state->version, version);
    // It is not asked again.
    const size_t asked = etcd.Asked().size();
    WriteTo(*a, LedBy("a"), version);
    EXPECT_EQ(etcd.Asked().size(), asked + 1);
    EXPECT_EQ(etcd.Asked().back(), "1 Txn");
  }
}

TEST(EtcdAuthority, AWriteWhoseAnswerIsLostMayHaveHappenedAndIsSentOnce) {
  FakeEtcd etcd({3, {}, "", ""});
  const auto a = OpenAt(etcd.place());
  const std::string version = WriteTo(*a, LedBy("a"), "");
  const size_t asked = etcd.Asked().size();
  for (const EtcdFate fate : {EtcdFate::kAnswerLost, EtcdFate::kTimedOut, EtcdFate::kNoLeader}) {
    const RecordState before = ReadFrom(*a);
    etcd.DecideNext(fate);
    const absl::Status lost = a->Write(LedBy("a", before.record->fence - kSomeFence + 1),
                                       before.version, absl::Milliseconds(200))
                                  .status();
    EXPECT_TRUE(absl::IsUnavailable(lost)) << lost;
  }
  EXPECT_EQ(ReadFrom(*a).record->fence, kSomeFence + 2);
  EXPECT_EQ(etcd.Asked().size(), asked + 3 * 2 + 1);
}

// A backup counts revisions again that others have seen with other values.
TEST(EtcdAuthority, Fault_A5_DataThatIsRestoredIsNotMistakenForLaterData) {
  FakeEtcd etcd;
  const auto a = OpenAt(etcd.place());
  const auto b = OpenAt(etcd.place());
  const std::string first = WriteTo(*a, LedBy("a"), "");
  const FakeEtcd::Data backup = etcd.Backup();
  const std::string second = WriteTo(*a, LedBy("a", 1), first);
  etcd.Restore(backup);
  EXPECT_EQ(ReadFrom(*b).version, first);
  const std::string others = WriteTo(*b, LedBy("b", 2), first);
  EXPECT_NE(others, second);
  EXPECT_TRUE(IsRefused(*a, LedBy("a", 1), second));
  EXPECT_EQ(ReadFrom(*a).record->holder, "b");
}

TEST(EtcdAuthority, AnotherClusterIsNamedAndNotBelieved) {
  FakeEtcd etcd({2, {}, "", ""});
  const auto a = OpenAt(etcd.place());
  const std::string version = WriteTo(*a, LedBy("a"), "");
  etcd.MoveToCluster(1, 0xbee);
  etcd.Stop(0);
  EXPECT_THAT(TroubleOf(*a), AllOf(HasSubstr("belongs to the cluster bee"),
                                   HasSubstr(etcd.endpoints()[0] + " belonged to the cluster c1"),
                                   HasSubstr("members of one cluster")));
  EXPECT_TRUE(absl::IsUnavailable(a->Write(LedBy("a"), version, kPatience).status()));
}

TEST(EtcdAuthority, AKeyOfSomethingElseIsNamedAndLeftAsItIs) {
  FakeEtcd etcd;
  etcd.Put("10.0.0.7:2379");
  const auto a = OpenAt(etcd.place());
  EXPECT_THAT(TroubleOf(*a), AllOf(HasSubstr("the key /basin/leader"),
                                   HasSubstr("\"10.0.0.7:2379\" is no record of a leader"),
                                   HasSubstr("a key of its own")));
  EXPECT_TRUE(IsRefused(*a, LedBy("a"), ""));
  EXPECT_EQ(etcd.value(), "10.0.0.7:2379");
}

TEST(EtcdAuthority, LogsInAndAgainWhenItsTokenIsForgotten) {
  FakeEtcd etcd({1, {}, "basin", "se:cret"});
  const Pki files;
  EtcdPlace place = etcd.place();
  EXPECT_THAT(TroubleOf(*OpenAt(place)),
              AllOf(HasSubstr("user name is empty"), HasSubstr("standby.etcd_user_file")));
  place.user_path = files.Write("user", "basin:se:cret\n");
  const auto a = OpenAt(place);
  const std::string version = WriteTo(*a, LedBy("a"), "");
  etcd.ForgetTokens();
  const std::string next = WriteTo(*a, LedBy("a"), version);
  EXPECT_THAT(etcd.Asked(), ElementsAre("0 Range", "0 Authenticate", "0 Txn", "0 Txn",
                                        "0 Authenticate", "0 Txn"));
  // The password is read for each login.
  files.Write("user", "basin:another");
  etcd.ForgetTokens();
  EXPECT_THAT(TroubleOf(*a),
              AllOf(HasSubstr("invalid user ID or password"),
                    HasSubstr("in standby.etcd_user_file"), Not(HasSubstr("another"))));
  files.Write("user", "basin:se:cret");
  EXPECT_EQ(ReadFrom(*a).version, next);
}

TEST(EtcdAuthority, ALoginThatEtcdDoesNotWantIsNamed) {
  FakeEtcd etcd;
  const Pki files;
  EtcdPlace place = etcd.place();
  place.user_path = files.Write("user", "basin:secret");
  EXPECT_THAT(TroubleOf(*OpenAt(place)), HasSubstr("authentication is not enabled"));
}

TEST(EtcdAuthority, ARefusalNamesThePermissionThatIsNeeded) {
  FakeEtcd etcd({2, {}, "", ""});
  const auto a = OpenAt(etcd.place());
  etcd.Decide([](size_t) { return EtcdFate::kForbidden; });
  EXPECT_THAT(TroubleOf(*a), AllOf(HasSubstr("permission denied"), HasSubstr("readwrite")));
  etcd.Decide(nullptr);
  EXPECT_EQ(ReadFrom(*a).version, "");
}

TEST(EtcdAuthority, Fault_S1_AnEtcdWithAnotherCertificateIsNotAsked) {
  const Pki pki;
  ServerTls tls = pki.Server();
  tls.client_ca = pki.path("ca.crt");
  FakeEtcd etcd({1, tls, "", ""});
  EtcdPlace place = etcd.place();
  place.tls = pki.Client();
  const std::string version = WriteTo(*OpenAt(place), LedBy("a"), "");
  // Without a certificate of its own, without TLS, and with an authority that did not sign etcd's.
  const size_t asked = etcd.Asked().size();
  const Pki other;
  for (const ClientTls& wrong : {pki.Trust(), ClientTls(), other.Client()}) {
    place.tls = wrong;
    EXPECT_THAT(TroubleOf(*OpenAt(place), absl::Seconds(5)), HasSubstr(place.endpoints[0]));
  }
  EXPECT_EQ(etcd.Asked().size(), asked);
  place.tls = pki.Client();
  const auto a = OpenAt(place);
  EXPECT_EQ(ReadFrom(*a).version, version);
}

TEST(EtcdAuthority, FilesThatCannotBeUsedAreNamedWithTheirOption) {
  const Pki pki;
  EtcdPlace place{{"127.0.0.1:1"}, pki.Client(), ""};
  const auto problem = [&place] {
    const auto opened = EtcdAuthority::Open(place, kKey);
    EXPECT_TRUE(absl::IsFailedPrecondition(opened.status())) << opened.status();
    return std::string(opened.status().message());
  };
  place.tls.ca = "/not/there";
  EXPECT_THAT(problem(), HasSubstr("standby.etcd_ca is /not/there: it cannot be read"));
  place.tls = pki.Client();
  place.tls.key = pki.Write("empty", "");
  EXPECT_THAT(problem(), AllOf(HasSubstr("standby.etcd_key"), HasSubstr("not a PEM file")));
  place.tls = pki.Client();
  for (const char* wrong : {"", "basin", ":secret", "basin:", "basin:secret\nother:secret"}) {
    place.user_path = pki.Write("user", wrong);
    EXPECT_THAT(problem(), AllOf(HasSubstr("standby.etcd_user_file"), HasSubstr("NAME:PASSWORD"),
                                 Not(HasSubstr("secret"))));
  }
}

}  // namespace
}  // namespace basin::aggregator
