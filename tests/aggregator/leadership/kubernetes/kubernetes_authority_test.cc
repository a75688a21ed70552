// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "aggregator/leadership/kubernetes/kubernetes_authority.h"

#include <algorithm>
#include <cstdio>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "aggregator/leadership/candidate.h"
#include "aggregator/leadership/kubernetes/lease.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/clock.h"
#include "runtime/mutex.h"
#include "tests/aggregator/leadership/kubernetes/fake_api_server.h"
#include "tests/runtime/await.h"
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

constexpr absl::Duration kPatience = absl::Seconds(30);

class KubernetesAuthorityTest : public testing::Test {
 protected:
  std::unique_ptr<KubernetesAuthority> Open(const std::string& space = "training") {
    auto authority = KubernetesAuthority::Open(server_.place(), space, "basin");
    EXPECT_TRUE(authority.ok()) << authority.status();
    return *std::move(authority);
  }
  static RecordState Read(KubernetesAuthority& authority) {
    const absl::StatusOr<RecordState> state = authority.Read(kPatience);
    EXPECT_TRUE(state.ok()) << state.status();
    return state.value_or(RecordState());
  }
  static std::string Trouble(KubernetesAuthority& authority, absl::Duration timeout = kPatience) {
    const absl::Status failed = authority.Read(timeout).status();
    EXPECT_TRUE(absl::IsUnavailable(failed)) << failed;
    return std::string(failed.message());
  }
  static LeaderRecord Of(const std::string& holder, uint64_t more = 7) {
    return {kFirstFence + more, holder, holder + ":29600", absl::Seconds(3)};
  }
  static std::string Write(KubernetesAuthority& authority, const LeaderRecord& record,
                           const std::string& version) {
    const absl::StatusOr<std::string> written = authority.Write(record, version, kPatience);
    EXPECT_TRUE(written.ok()) << written.status();
    return written.value_or("");
  }

  FakeApiServer server_;
};

TEST_F(KubernetesAuthorityTest, KeepsWhatWasWritten) {
  const auto a = Open();
  const auto b = Open();
  EXPECT_FALSE(Read(*a).record.has_value());
  EXPECT_EQ(Read(*a).version, "");
  const std::string version = Write(*a, Of("a"), "");
  const RecordState state = Read(*b);
  ASSERT_TRUE(state.record.has_value());
  EXPECT_EQ(state.record->Fields(), Of("a").Fields());
  EXPECT_EQ(state.version, version);
  EXPECT_FALSE(state.holder_ended);
  EXPECT_NE(Write(*b, Of("a"), version), version) << "equal records have different versions";
}

TEST_F(KubernetesAuthorityTest, OfTwoWritersOneFails) {
  const auto a = Open();
  const auto b = Open();
  EXPECT_EQ(Read(*b).version, "");
  const std::string version = Write(*a, Of("a"), "");
  // Both believed that there is none, and both knew the same one.
  EXPECT_TRUE(absl::IsAborted(b->Write(Of("b"), "", kPatience).status()));
  EXPECT_EQ(Read(*b).version, version);
  const std::string next = Write(*b, Of("b", 8), version);
  EXPECT_TRUE(absl::IsAborted(a->Write(Of("a"), version, kPatience).status()));
  EXPECT_EQ(Read(*a).record->holder, "b");
  EXPECT_EQ(Read(*a).version, next);
}

TEST_F(KubernetesAuthorityTest, ALeaseOfTheChartIsTakenAndKeepsItsLabels) {
  server_.Put("training", "basin", Json::parse(R"({"metadata": {"labels": {"chart": "basin"}}})"));
  const auto a = Open();
  const RecordState state = Read(*a);
  EXPECT_FALSE(state.record.has_value());
  EXPECT_NE(state.version, "");
  Write(*a, Of("a"), state.version);
  const Json lease = server_.Lease("training", "basin");
  EXPECT_EQ(lease["metadata"]["labels"]["chart"], "basin");
  EXPECT_EQ(lease["spec"]["holderIdentity"], "a");
}

TEST_F(KubernetesAuthorityTest, ALeaseThatIsDeletedIsNoRecord) {
  const auto a = Open();
  const std::string version = Write(*a, Of("a"), "");
  server_.Put("training", "basin", nullptr);
  EXPECT_TRUE(absl::IsAborted(a->Write(Of("a"), version, kPatience).status()));
  EXPECT_EQ(Read(*a).version, "");
  Write(*a, Of("a", 9), "");
}

TEST_F(KubernetesAuthorityTest, TheNamespaceMayBeThatOfThePod) {
  Write(*Open(""), Of("a"), "");
  EXPECT_EQ(server_.Lease("training", "basin")["spec"]["holderIdentity"], "a");
}

TEST_F(KubernetesAuthorityTest, OneConnectionIsKept) {
  const auto a = Open();
  std::string version = Write(*a, Of("a"), "");
  for (int i = 0; i < 5; ++i) version = Write(*a, Of("a"), version);
  EXPECT_EQ(Read(*a).version, version);
  EXPECT_EQ(server_.connections(), 1u);
  // A server that closes it is asked on another one, without a failure.
  server_.DecideNext(ApiFate::kClosedAfterwards);
  Read(*a);
  EXPECT_EQ(Read(*a).version, version);
  EXPECT_EQ(server_.connections(), 2u);
  // Also when that is noticed only with the answer that does not come.
  server_.DecideNext(ApiFate::kHungUp);
  EXPECT_EQ(Read(*a).version, version);
  EXPECT_EQ(server_.connections(), 3u);
}

TEST_F(KubernetesAuthorityTest, TheTokenIsReadForEachRequest) {
  const auto a = Open();
  const std::string version = Write(*a, Of("a"), "");
  server_.ReplaceToken("second-token");
  EXPECT_EQ(Read(*a).version, version);
  // One that the server does not know.
  server_.pki().Write("token", "old");
  EXPECT_THAT(Trouble(*a), AllOf(HasSubstr("training/basin"), HasSubstr("status 401"),
                                 HasSubstr("service account"), Not(EndsWith("."))));
  std::remove(server_.pki().path("token").c_str());
  EXPECT_THAT(Trouble(*a), HasSubstr("token"));
}

TEST_F(KubernetesAuthorityTest, ARefusalNamesTheRightsThatAreNeeded) {
  const auto a = Open();
  server_.DecideNext(ApiFate::kForbidden);
  EXPECT_THAT(Trouble(*a), AllOf(HasSubstr("status 403"), HasSubstr("is forbidden. "),
                                 HasSubstr("get and update")));
  server_.DecideNext(ApiFate::kForbidden);
  const absl::Status refused = a->Write(Of("a"), "", kPatience).status();
  EXPECT_TRUE(absl::IsUnavailable(refused)) << refused;
  server_.DecideNext(ApiFate::kBroken);
  EXPECT_THAT(Trouble(*a), HasSubstr("status 500: etcdserver: request timed out"));
  Write(*a, Of("a"), "");
}

TEST_F(KubernetesAuthorityTest, AServerThatDoesNotAnswerIsNotWaitedFor) {
  const auto a = Open();
  server_.Decide([] { return ApiFate::kSilent; });
  EXPECT_THAT(Trouble(*a, absl::Milliseconds(50)),
              AllOf(HasSubstr("127.0.0.1:"), HasSubstr("no answer came within")));
  server_.Decide(nullptr);
  // A late answer to it would be on another connection.
  EXPECT_FALSE(Read(*a).record.has_value());
}

TEST_F(KubernetesAuthorityTest, AWriteWhoseAnswerIsLostMayHaveHappened) {
  const auto a = Open();
  const std::string version = Write(*a, Of("a"), "");
  server_.DecideNext(ApiFate::kAnswerLost);
  const absl::Status lost = a->Write(Of("a", 8), version, kPatience).status();
  EXPECT_TRUE(absl::IsUnavailable(lost)) << lost;
  server_.DecideNext(ApiFate::kNonsense);
  EXPECT_THAT(Trouble(*a), HasSubstr("no Lease"));
  EXPECT_EQ(Read(*a).record->fence, kFirstFence + 8);
  // It was sent once.
  const std::vector<std::string> asked = server_.Asked();
  EXPECT_EQ(std::count_if(asked.begin(), asked.end(),
                          [](const std::string& one) { return one[0] == 'P' && one[1] == 'U'; }),
            1);
}

TEST_F(KubernetesAuthorityTest, Fault_S1_AServerWithAnotherCertificateIsNotAsked) {
  const auto a = Open();
  EXPECT_FALSE(Read(*a).record.has_value());
  const Pki other;
  server_.pki().Write("ca.crt", other.ca().cert);
  // The next connection is to somebody else.
  const auto b = Open();
  EXPECT_THAT(Trouble(*b), HasSubstr("its certificate is not accepted"));
  EXPECT_THAT(server_.Asked(), ElementsAre(StartsWith("GET ")));
  // It must be for the address of the server, too.
  const FakeApiServer elsewhere({"IP:127.0.0.2", "DNS:elsewhere"});
  const auto c = KubernetesAuthority::Open(elsewhere.place(), "training", "basin");
  ASSERT_TRUE(c.ok());
  EXPECT_THAT(Trouble(**c), HasSubstr("its certificate is not accepted"));
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

// Several write, each for itself, and anything may happen to their requests.
TEST_F(KubernetesAuthorityTest, EachWriteReplacesTheOneBeforeItWhateverHappens) {
  const uint64_t seed = std::random_device()();
  std::printf("seed %llu\n", static_cast<unsigned long long>(seed));
  constexpr int kWriters = 3;
  constexpr int kWrites = 40;
  const auto random = std::make_shared<simulation::Random>(seed);
  server_.Decide([random] {  // Called with the lock of the server.
    return random->Chance(25) ? static_cast<ApiFate>(random->Below(kApiFates)) : ApiFate::kWell;
  });
  Mutex mutex;
  std::vector<uint64_t> succeeded;  // The fences of writes that succeeded.
  std::vector<std::thread> writers;
  for (int i = 0; i < kWriters; ++i) {
    writers.emplace_back([&, i] {
      const auto authority = Open();
      for (int done = 0; done < kWrites;) {
        const absl::StatusOr<RecordState> before = authority->Read(absl::Milliseconds(100));
        if (!before.ok()) continue;
        const uint64_t more =
            before->record.has_value() ? before->record->fence - kFirstFence + 1 : 1;
        const auto written = authority->Write(Of("w" + std::to_string(i), more), before->version,
                                              absl::Milliseconds(100));
        if (!written.ok()) continue;
        ++done;
        MutexLock lock(mutex);
        succeeded.push_back(more);
      }
    });
  }
  for (std::thread& writer : writers) writer.join();
  server_.Decide(nullptr);
  MutexLock lock(mutex);
  std::sort(succeeded.begin(), succeeded.end());
  EXPECT_EQ(std::adjacent_find(succeeded.begin(), succeeded.end()), succeeded.end())
      << "two writes replaced the same version";
  // Others have happened without an answer.
  EXPECT_GE(Read(*Open()).record->fence, kFirstFence + succeeded.back());
  EXPECT_EQ(succeeded.size(), size_t{kWriters} * kWrites);
}

// A candidate with this authority, and when it may decide.
class Contender {
 public:
  Contender(FakeApiServer& server, const std::string& holder) {
    auto authority = KubernetesAuthority::Open(server.place(), "training", "basin");
    EXPECT_TRUE(authority.ok()) << authority.status();
    authority_ = *std::move(authority);
    CandidateActions actions;
    actions.begin_leading = [this](uint64_t) { Count(begun_); };
    actions.decide_until = [](absl::Time) {};
    actions.end_leading = [this](const std::string&) { Count(ended_); };
    actions.changed = [](const LeaderView&) {};
    candidate = std::make_unique<Candidate>(
        LeadershipConfig{holder, holder + ":1", absl::Seconds(1), absl::ZeroDuration()},
        *authority_, clock_, std::move(actions));
    candidate->Start();
  }
  ~Contender() { candidate.reset(); }

  // Until its view says so, too, which comes after what it does then.
  void AwaitLead(int times = 1) {
    Await(begun_, times);
    basin::Await([this] { return candidate->view().leads; });
  }
  void AwaitEnd(int times = 1) { Await(ended_, times); }

 private:
  void Count(int& count) {
    MutexLock lock(mutex_);
    ++count;
    changed_.NotifyAll();
  }
  void Await(int& count, int times) {
    MutexLock lock(mutex_);
    while (count < times) changed_.Wait(mutex_);
  }

  BootClock clock_;
  std::unique_ptr<KubernetesAuthority> authority_;
  Mutex mutex_;
  Condition changed_;
  int begun_ = 0;
  int ended_ = 0;

 public:
  std::unique_ptr<Candidate> candidate;
};

TEST_F(KubernetesAuthorityTest, Fault_A3_TheLeadIsHandedOver) {
  Contender a(server_, "a");
  a.AwaitLead();
  Contender b(server_, "b");
  ASSERT_TRUE(a.candidate->StepDown().ok());
  b.AwaitLead();
  EXPECT_EQ(server_.Lease("training", "basin")["spec"]["holderIdentity"], "b");
  // Somebody deletes the Lease: the leader ends, and one leads again.
  server_.Put("training", "basin", nullptr);
  b.AwaitEnd();
  basin::Await([&] { return b.candidate->view().Names(); });
}

TEST_F(KubernetesAuthorityTest, Fault_A1_ALeaderThatIsSilentIsReplacedWhenItsLeaseIsOver) {
  // Its process has ended: nobody renews.
  server_.Put("training", "basin",
              Json::parse(*LeaseWith(Of("gone"), "", NewLease("training", "basin"),
                                     absl::FromUnixSeconds(0))));
  Contender a(server_, "a");
  a.AwaitLead();
  const Json spec = server_.Lease("training", "basin")["spec"];
  EXPECT_EQ(spec["holderIdentity"], "a");
  EXPECT_GT(spec["leaseTransitions"], 7);
}

}  // namespace
}  // namespace basin::aggregator
