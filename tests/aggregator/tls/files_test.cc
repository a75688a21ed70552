// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "aggregator/tls/files.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/aggregator/tls/pki.h"

namespace basin::aggregator {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string ProblemOf(const ServerTls& tls) {
  const absl::StatusOr<absl::Time> checked = CheckServerTls(tls, "tls.", absl::Now());
  return checked.ok() ? "" : std::string(checked.status().message());
}

TEST(TlsFiles, ValidFilesAreAcceptedWithTheirFirstExpiry) {
  const Pki pki;
  CertificateRequest request = Valid();
  request.not_after = absl::FromUnixSeconds(absl::ToUnixSeconds(absl::Now()) + 600);
  ServerTls tls = pki.Server("server", request);
  EXPECT_EQ(*CheckServerTls(tls, "tls.", absl::Now()), request.not_after);
  tls.client_ca = pki.path("ca.crt");
  EXPECT_EQ(*CheckServerTls(tls, "tls.", absl::Now()), request.not_after);
  EXPECT_EQ(*CheckServerTls({}, "tls.", absl::Now()), absl::InfiniteFuture());
}

TEST(TlsFiles, MistakesNameTheOptionTheFileAndTheFix) {
  const Pki pki;
  const Pki other;
  const ServerTls good = pki.Server();
  ServerTls tls = good;
  tls.cert = pki.path("missing.crt");
  EXPECT_THAT(ProblemOf(tls), AllOf(HasSubstr("tls.cert is " + tls.cert), HasSubstr("No such file"),
                                    HasSubstr("name the PEM file")));
  tls.cert = pki.Write("text.crt", "certificate\n");
  EXPECT_THAT(ProblemOf(tls), HasSubstr("no certificate in PEM format"));
  tls.cert = pki.Write("torn.crt", pki.ca().cert.substr(0, pki.ca().cert.size() / 2));
  EXPECT_THAT(ProblemOf(tls), HasSubstr("certificate 1 in it cannot be read"));
  tls = good;
  tls.key = pki.Write("text.key", "key\n");
  EXPECT_THAT(ProblemOf(tls), AllOf(HasSubstr("tls.key is " + tls.key), HasSubstr("private key")));
  tls.key = other.Server().key;
  EXPECT_THAT(ProblemOf(tls), HasSubstr("not the key of the certificate in tls.cert"));
  tls = good;
  tls.client_ca = pki.Write("empty.crt", "");
  EXPECT_THAT(ProblemOf(tls), HasSubstr("tls.client_ca is " + tls.client_ca));
  CertificateRequest request = Valid();
  request.for_server = false;
  EXPECT_THAT(ProblemOf(pki.Server("client", request)), HasSubstr("not for servers"));
}

TEST(TlsFiles, Fault_S3_ACertificateThatIsNotValidNowIsRefused) {
  const Pki pki;
  CertificateRequest request = Valid();
  request.not_before = absl::Now() - absl::Hours(2);
  request.not_after = absl::Now() - absl::Hours(1);
  EXPECT_THAT(ProblemOf(pki.Server("old", request)), HasSubstr("it expired at 20"));
  request.not_before = absl::Now() + absl::Hours(1);
  request.not_after = absl::Now() + absl::Hours(2);
  EXPECT_THAT(ProblemOf(pki.Server("early", request)), HasSubstr("it is not valid before 20"));
}

}  // namespace
}  // namespace basin::aggregator
