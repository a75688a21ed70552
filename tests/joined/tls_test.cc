// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

// Workers and the aggregator with certificates that the test makes.

#include <string>

#include "absl/strings/match.h"
#include "aggregator/tls/mint.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/text_file.h"
#include "tests/aggregator/tls/pki.h"
#include "tests/client/transport/grpc/listeners.h"
#include "tests/joined/over_grpc.h"
#include "tests/runtime/await.h"

namespace basin::joined {
namespace {

using aggregator::CertificateRequest;
using aggregator::Pki;
using aggregator::Valid;
using ::testing::AllOf;
using ::testing::HasSubstr;

// How a session of a client with these files ends if it sends something else than a hello: because
// of that message, if TLS is fine.
std::string EndOfSession(int port, const ClientTls& tls) {
  client::GrpcConnector connector("127.0.0.1:" + std::to_string(port), tls);
  const auto ears = std::make_shared<client::Ears>();
  const auto session = connector.OpenSession(ears);
  session->Send("\xff\xff");
  return ears->down.Await().value_or("");
}
constexpr char kTlsIsFine[] = "INVALID_ARGUMENT";

void RunARound(const std::vector<std::unique_ptr<Trainer>>& trainers) {
  for (size_t k = 0; k < trainers.size(); ++k) {
    trainers[k]->Contribute(static_cast<float>(1 << k));
    trainers[k]->Commit();
  }
  for (const auto& trainer : trainers) {
    EXPECT_EQ(trainer->Finish(), static_cast<float>((1 << trainers.size()) - 1));
  }
}

TEST(OverTls, RoundsAreSummed) {
  const Pki pki;
  Aggregator aggregator(1, 0, pki.Server());
  RunARound(Join(aggregator.port(), 2, 2, pki.Trust()));
}

TEST(OverTls, Fault_S1_AServerOfAnotherCaIsNotTrusted) {
  const Pki pki;
  const Pki other;
  Aggregator aggregator(1, 0, pki.Server());
  EXPECT_THAT(EndOfSession(aggregator.port(), other.Trust()), HasSubstr("BASIN_TLS_CA"));
  EXPECT_EQ(aggregator.counters().calls_begun, 0u);
}

TEST(OverTls, Fault_S1_AServerOfAnotherNameIsNotTrusted) {
  const Pki pki;
  CertificateRequest request = Valid();
  request.names = {"DNS:elsewhere.example"};
  Aggregator aggregator(1, 0, pki.Server("server", request));
  EXPECT_THAT(EndOfSession(aggregator.port(), pki.Trust()), HasSubstr("BASIN_ADDRESS"));
}

TEST(OverTls, Fault_S1_TlsOnOneEndOnlyIsNamed) {
  const Pki pki;
  Aggregator encrypted(1, 0, pki.Server());
  EXPECT_THAT(EndOfSession(encrypted.port(), {}), HasSubstr("BASIN_TLS_CA"));
  Await([&] { return encrypted.counters().foreign_connections == 1; });
  Aggregator plain(1);
  EXPECT_THAT(EndOfSession(plain.port(), pki.Trust()),
              AllOf(HasSubstr("answers without TLS"), HasSubstr("BASIN_TLS_CA")));
  Await([&] { return plain.counters().foreign_connections == 1; });
}

TEST(OverTls, Fault_S1_AClientNeedsACertificateOfTheClientCa) {
  const Pki pki;
  const Pki other;
  ServerTls tls = pki.Server();
  tls.client_ca = pki.path("ca.crt");
  Aggregator aggregator(1, 0, tls);
  EXPECT_THAT(EndOfSession(aggregator.port(), pki.Trust()), HasSubstr("BASIN_TLS_CERT"));
  ClientTls foreign = other.Client();
  foreign.ca = pki.path("ca.crt");
  EXPECT_THAT(EndOfSession(aggregator.port(), foreign), HasSubstr("BASIN_TLS_CERT"));
  Await([&] { return aggregator.counters().tls_failures >= 2; });
  EXPECT_EQ(aggregator.counters().calls_begun, 0u);
  RunARound(Join(aggregator.port(), 1, 1, pki.Client()));
}

TEST(OverTls, Fault_S3_CertificatesThatAreNotValidNowAreRefused) {
  const Pki pki;
  CertificateRequest old = Valid();
  old.not_before = absl::Now() - absl::Hours(2);
  old.not_after = absl::Now() - absl::Minutes(1);
  CertificateRequest early = Valid();
  early.not_before = absl::Now() + absl::Minutes(10);
  for (const CertificateRequest& request : {old, early}) {
    Aggregator server(1, 0, pki.Server("server", request));
    EXPECT_THAT(EndOfSession(server.port(), pki.Trust()), HasSubstr("BASIN_TLS_CA"));
    ServerTls tls = pki.Server();
    tls.client_ca = pki.path("ca.crt");
    Aggregator strict(1, 0, tls);
    EXPECT_THAT(EndOfSession(strict.port(), pki.Client("client", request)),
                HasSubstr("BASIN_TLS_CERT"));
    EXPECT_EQ(strict.counters().calls_begun, 0u);
  }
}

// The client's files are checked for each connection.
TEST(OverTls, Fault_S1_AFileThatCannotBeReadIsNamed) {
  const Pki pki;
  Aggregator aggregator(1, 0, pki.Server());
  EXPECT_THAT(EndOfSession(aggregator.port(), {pki.path("missing"), "", ""}),
              AllOf(HasSubstr("tls_ca (BASIN_TLS_CA) is " + pki.path("missing")),
                    HasSubstr("No such file")));
}

// Server certificate, CA and client certificates are all replaced while rounds go on, without one
// that fails; then only the new CA is accepted.
TEST(OverTls, Fault_S4_CertificatesAndCaAreRotatedUnderLoad) {
  const Pki old;
  const Pki fresh;
  ServerTls tls = old.Server();
  tls.client_ca = old.Write("clients.crt", old.ca().cert);
  ClientTls client = old.Client();
  client.ca = old.Write("servers.crt", old.ca().cert);
  Aggregator aggregator(1, 0, tls);
  const auto trainers = Join(aggregator.port(), 2, 2, client);
  RunARound(trainers);
  // First both ends trust both, then the certificates change, then the old CA goes.
  old.Write("servers.crt", old.ca().cert + fresh.ca().cert);
  old.Write("clients.crt", old.ca().cert + fresh.ca().cert);
  RunARound(trainers);
  const ServerTls new_server = fresh.Server();
  const ClientTls new_client = fresh.Client();
  const auto replace = [&](const std::string& with, const std::string& name) {
    old.Write(name, *ReadTextFile(with));
  };
  replace(new_server.cert, "server.crt");
  replace(new_server.key, "server.key");
  replace(new_client.cert, "client.crt");
  replace(new_client.key, "client.key");
  RunARound(trainers);
  old.Write("servers.crt", fresh.ca().cert);
  old.Write("clients.crt", fresh.ca().cert);
  Await([&] {
    RunARound(trainers);
    return absl::StrContains(EndOfSession(aggregator.port(), fresh.Client()), kTlsIsFine);
  });
  RunARound(trainers);
  // The server no longer accepts the old CA, and a client that trusts only the old CA refuses the
  // server.
  ClientTls late = old.Client("late");
  EXPECT_THAT(EndOfSession(aggregator.port(), late), HasSubstr("BASIN_TLS_CA"));
  late.ca = fresh.path("ca.crt");
  EXPECT_THAT(EndOfSession(aggregator.port(), late), HasSubstr("BASIN_TLS_CERT"));
  RunARound(trainers);
}

}  // namespace
}  // namespace basin::joined
