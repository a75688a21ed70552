// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

// Workers with tokens and the aggregator, which the test grants and revokes.

#include <memory>
#include <optional>
#include <string>
#include <variant>

#include "absl/strings/str_cat.h"
#include "aggregator/auth/gatekeeper.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/wire/session.h"
#include "tests/aggregator/tls/pki.h"
#include "tests/client/transport/grpc/listeners.h"
#include "tests/joined/over_grpc.h"
#include "tests/runtime/await.h"

namespace basin::joined {
namespace {

using aggregator::CertificateRequest;
using aggregator::Decision;
using aggregator::Gatekeeper;
using aggregator::Grants;
using aggregator::HashOf;
using aggregator::Pki;
using aggregator::Valid;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

std::string Line(const std::string& role, const std::string& jobs, const std::string& token) {
  return absl::StrCat(role, " ", jobs, " ", aggregator::ToString(HashOf(token)), " holder of ",
                      jobs, "\n");
}

// An aggregator with two tokens for jobs, and workers of the job "job".
class Tokens : public ::testing::Test {
 protected:
  Tokens() {
    gatekeeper_.Replace(*Grants::Parse(Line("worker", "job", "mine") +
                                       Line("worker", "other*", "theirs") +
                                       Line("observer", "*", "looks")));
  }

  std::string File(const std::string& token) { return pki_.Write(token, token + "\n"); }

  // How a session with this token ends if it sends a hello for this worker of the job.
  std::string RefusalOf(const std::string& token_file, const std::string& worker = "w0") {
    client::GrpcConnector connector("127.0.0.1:" + std::to_string(aggregator_.port()), {}, {}, {},
                                    token_file);
    const auto ears = std::make_shared<client::Ears>();
    const auto session = connector.OpenSession(ears);
    Hello hello;
    hello.job = "job";
    hello.worker = worker;
    hello.nonce = 4711;
    hello.settings = {1, 2, 1};
    session->Send(*wire::Encode(ToAggregator(hello)));
    return ears->down.Await().value_or("");
  }

  std::unique_ptr<Trainer> Member(const std::string& token = "mine") {
    auto trainer = std::make_unique<Trainer>(aggregator_.port(), "w0", JobSettings{1, 1, 1},
                                             ClientTls{}, File(token));
    const absl::Status member = trainer->worker().AwaitMember(kLong);
    EXPECT_TRUE(member.ok()) << member;
    return trainer;
  }

  static void RunARound(Trainer& trainer) {
    trainer.Contribute(3);
    trainer.Commit();
    EXPECT_EQ(trainer.Finish(), 3.0f);
  }

  const Pki pki_;  // For its folder.
  Gatekeeper gatekeeper_;
  Aggregator aggregator_{1, 0, {}, &gatekeeper_};
};

TEST_F(Tokens, AWorkerWithTheTokenOfItsJobTrains) { RunARound(*Member()); }

TEST_F(Tokens, Fault_S1_APeerWithoutATokenIsRefused) {
  EXPECT_THAT(RefusalOf(""), AllOf(HasSubstr("UNAUTHENTICATED"), HasSubstr("BASIN_TOKEN_FILE")));
  EXPECT_EQ(gatekeeper_.refused(Decision::kNoCredential), 1u);
  EXPECT_EQ(aggregator_.counters().sessions, 0u);
  EXPECT_EQ(aggregator_.counters().malformed_messages, 0u);
}

TEST_F(Tokens, Fault_S2_ATokenOfAnotherJobOrRoleOrNoneIsRefused) {
  EXPECT_THAT(RefusalOf(File("theirs")),
              AllOf(HasSubstr("PERMISSION_DENIED"), Not(HasSubstr("other"))));
  EXPECT_EQ(gatekeeper_.refused(Decision::kWrongJob), 1u);
  EXPECT_THAT(aggregator_.reports(),
              Contains(AllOf(HasSubstr("worker w0 of job job"), HasSubstr("wrong_job"),
                             HasSubstr("holder of other* has role worker for jobs other*"))));
  EXPECT_THAT(RefusalOf(File("looks")), HasSubstr("PERMISSION_DENIED"));
  EXPECT_EQ(gatekeeper_.refused(Decision::kWrongRole), 1u);
  EXPECT_THAT(RefusalOf(File("unknown")), HasSubstr("UNAUTHENTICATED"));
  EXPECT_EQ(gatekeeper_.refused(Decision::kUnknownCredential), 1u);
  EXPECT_EQ(aggregator_.counters().sessions, 0u);
}

// A worker id is taken over only with the token of the job.
TEST_F(Tokens, Fault_S2_AStrangerCannotTakeAWorkerIdThatIsInUse) {
  const auto trainer = Member();
  trainer->Contribute(3);
  EXPECT_THAT(RefusalOf(File("theirs"), "w0"), HasSubstr("PERMISSION_DENIED"));
  EXPECT_THAT(aggregator_.reports(), Contains(HasSubstr("worker w0 of job job")));
  trainer->Commit();
  EXPECT_EQ(trainer->Finish(), 3.0f);
  EXPECT_EQ(aggregator_.counters().sessions, 1u);
}

// A session's token, which may leak, is no credential: a data stream needs a grant for the job of
// that session, too.
TEST_F(Tokens, Fault_S2_ADataStreamNeedsAGrantForTheJobOfItsSession) {
  const std::string address = "127.0.0.1:" + std::to_string(aggregator_.port());
  client::GrpcConnector mine(address, {}, {}, {}, File("mine"));
  const auto ears = std::make_shared<client::Ears>();
  const auto session = mine.OpenSession(ears);
  Hello hello;
  hello.job = "job";
  hello.run = "run";
  hello.worker = "w0";
  hello.nonce = 4711;
  hello.fresh = true;
  hello.settings = {1, 2, 1};
  session->Send(*wire::Encode(ToAggregator(hello)));
  std::optional<Welcome> welcome;
  while (!welcome.has_value()) {
    const auto message = ears->messages.Await();
    ASSERT_TRUE(message.has_value());
    if (const auto* one = std::get_if<Welcome>(&message->message)) welcome = *one;
  }

  client::GrpcConnector theirs(address, {}, {}, {}, File("theirs"));
  const auto stranger = std::make_shared<client::DataEars>();
  const auto refused = theirs.OpenStream(0, welcome->token, PlacedShard{}, stranger);
  EXPECT_THAT(stranger->down.Await().value_or(""),
              AllOf(HasSubstr("PERMISSION_DENIED"), Not(HasSubstr("other"))));
  EXPECT_EQ(stranger->up.size(), 0u);
  EXPECT_EQ(gatekeeper_.refused(Decision::kWrongJob), 1u);
  EXPECT_THAT(aggregator_.reports(),
              Contains(AllOf(HasSubstr("a data stream of worker w0 of job job"),
                             HasSubstr("wrong_job"), HasSubstr("for jobs other*"))));

  const auto owner = std::make_shared<client::DataEars>();
  const auto accepted = mine.OpenStream(0, welcome->token, PlacedShard{}, owner);
  EXPECT_TRUE(owner->up.Await().value_or(false));

  // A stream ends when the grant for its job goes, even if its holder may train in others.
  gatekeeper_.Replace(*Grants::Parse(Line("worker", "other*", "mine")));
  aggregator_.server().EndRevoked();
  EXPECT_THAT(owner->down.Await().value_or(""), HasSubstr("revoked"));
}

TEST_F(Tokens, Fault_S2_RemovalRevokesAtOnceAndATokenFileIsReadAgain) {
  const auto trainer = Member();
  RunARound(*trainer);
  trainer->Contribute(3);
  gatekeeper_.Replace(*Grants::Parse(Line("worker", "job", "new")));
  aggregator_.server().EndRevoked();
  Await([&] { return gatekeeper_.refused(Decision::kUnknownCredential) > 0; });
  EXPECT_THAT(aggregator_.reports(), Contains(HasSubstr("was revoked")));
  // The worker connects again and again, each time with the present content of the file.
  pki_.Write("mine", "new\n");
  trainer->Commit();
  EXPECT_EQ(trainer->Finish(), 3.0f);
}

TEST_F(Tokens, Fault_S2_OnlyTheRevokedSessionsEnd) {
  const auto trainer = Member();
  gatekeeper_.Replace(*Grants::Parse(Line("worker", "job", "mine")));
  aggregator_.server().EndRevoked();
  RunARound(*trainer);
  EXPECT_EQ(aggregator_.counters().sessions, 1u);
}

TEST(Certificates, Fault_S2_ANameInTheCertificateHasARole) {
  const Pki pki;
  Gatekeeper gatekeeper;
  gatekeeper.Replace(*Grants::Parse("worker job san:spiffe://team-a/trainer\n"));
  ServerTls tls = pki.Server();
  tls.client_ca = pki.path("ca.crt");
  Aggregator aggregator(1, 0, tls, &gatekeeper);
  CertificateRequest request = Valid();
  request.names = {"URI:spiffe://team-a/trainer"};
  const auto trainers = Join(aggregator.port(), 1, 1, pki.Client("client", request));
  trainers[0]->Contribute(3);
  trainers[0]->Commit();
  EXPECT_EQ(trainers[0]->Finish(), 3.0f);
  request.names = {"URI:spiffe://team-b/trainer"};
  client::GrpcConnector connector("127.0.0.1:" + std::to_string(aggregator.port()),
                                  pki.Client("foreign", request));
  const auto ears = std::make_shared<client::Ears>();
  const auto session = connector.OpenSession(ears);
  session->Send("x");
  EXPECT_THAT(*ears->down.Await(), HasSubstr("UNAUTHENTICATED"));
}

}  // namespace
}  // namespace basin::joined
