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
using ::testing::SizeIs;

std::string ProblemOf(const ServerTls& tls) {
  return std::string(CheckServerTls(tls, "tls.", absl::Now()).status.message());
}

TEST(TlsFiles, ValidFilesAreAcceptedWithTheirFirstExpiry) {
  const Pki pki;
  CertificateRequest request = Valid();
  request.not_after = absl::FromUnixSeconds(absl::ToUnixSeconds(absl::Now()) + 600);
  ServerTls tls = pki.Server("server", request);
  EXPECT_EQ(CheckServerTls(tls, "tls.", absl::Now()).expires, request.not_after);
  tls.client_ca = pki.path("ca.crt");
  EXPECT_EQ(CheckServerTls(tls, "tls.", absl::Now()).expires, request.not_after);
  EXPECT_EQ(CheckServerTls({}, "tls.", absl::Now()).expires, absl::InfiniteFuture());
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

absl::Time InSeconds(int64_t seconds) {
  return absl::FromUnixSeconds(absl::ToUnixSeconds(absl::Now()) + seconds);
}

TEST(TlsFiles, Fault_S3_ACertificateThatHasExpiredKeepsItsTime) {
  const Pki pki;
  CertificateRequest request = Valid();
  request.not_before = InSeconds(-7200);
  request.not_after = InSeconds(-3600);
  ServerTls tls = pki.Server("old", request);
  EXPECT_EQ(CheckServerTls(tls, "tls.", absl::Now()).expires, request.not_after);
  tls.client_ca = pki.path("missing.crt");
  EXPECT_EQ(CheckServerTls(tls, "tls.", absl::Now()).expires, absl::InfiniteFuture());
  EXPECT_THAT(ProblemOf(tls), HasSubstr("it expired at")) << "the first problem counts";
}

std::string CaThatEnds(const std::string& name, absl::Time not_after) {
  CertificateRequest request;
  request.name = name;
  request.not_before = InSeconds(-86400);
  request.not_after = not_after;
  return MintCa(request)->cert;
}

TEST(TlsFiles, Fault_S4_AnExpiredCaBesideAValidOneIsAWarningThatNamesIt) {
  const Pki pki;
  CertificateRequest request = Valid();
  request.not_after = InSeconds(900000);
  ServerTls tls = pki.Server("server", request);
  const std::string expired = CaThatEnds("the old CA", InSeconds(-60));
  const std::string soon = CaThatEnds("a CA", InSeconds(600));
  const absl::Time end = InSeconds(1200);
  const std::string late = CaThatEnds("the new CA", end);
  for (const std::string& bundle : {expired + soon + late, late + soon + expired}) {
    tls.client_ca = pki.Write("bundle.crt", bundle);
    const TlsCheck check = CheckServerTls(tls, "tls.", absl::Now());
    EXPECT_TRUE(check.status.ok()) << check.status;
    EXPECT_EQ(check.expires, end) << "the last CA counts";
    ASSERT_THAT(check.warnings, SizeIs(1));
    EXPECT_THAT(check.warnings[0], AllOf(HasSubstr("tls.client_ca is " + tls.client_ca),
                                         HasSubstr("the old CA"), HasSubstr("it expired at 20")));
  }
  tls.client_ca = pki.Write("bundle.crt", expired + expired);
  const TlsCheck check = CheckServerTls(tls, "tls.", absl::Now());
  EXPECT_THAT(std::string(check.status.message()),
              AllOf(HasSubstr("tls.client_ca is"), HasSubstr("it expired at 20")));
  EXPECT_LT(check.expires, absl::Now());
  EXPECT_THAT(check.warnings, SizeIs(0));
}

}  // namespace
}  // namespace basin::aggregator
