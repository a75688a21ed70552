// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The HTTP server with TLS: over real sockets, with certificates made in the test.

#include <arpa/inet.h>
#include <netinet/in.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/time/clock.h"
#include "aggregator/http/http_client.h"
#include "aggregator/http/http_server.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/mutex.h"
#include "tests/aggregator/tls/pki.h"

namespace basin::aggregator {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

// A client's end of a connection, over which nothing was sent yet.
int ConnectTo(const Address& address, const char* from = "127.0.0.1") {
  const int descriptor = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in to = {};
  to.sin_family = AF_INET;
  to.sin_port = htons(address.port);
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  sockaddr_in own = {};
  own.sin_family = AF_INET;
  EXPECT_EQ(1, inet_pton(AF_INET, from, &own.sin_addr));
  EXPECT_EQ(0, bind(descriptor, reinterpret_cast<sockaddr*>(&own), sizeof(own)));
  EXPECT_EQ(0, connect(descriptor, reinterpret_cast<sockaddr*>(&to), sizeof(to)));
  return descriptor;
}

// What a browser or a scraper does: checks the certificate, and sends one request.
class Client {
 public:
  explicit Client(const ClientTls& tls) : context_(SSL_CTX_new(TLS_client_method())) {
    EXPECT_EQ(1, SSL_CTX_load_verify_file(context_.get(), tls.ca.c_str()));
    SSL_CTX_set_verify(context_.get(), SSL_VERIFY_PEER, nullptr);
    if (tls.cert.empty()) return;
    EXPECT_EQ(1, SSL_CTX_use_certificate_chain_file(context_.get(), tls.cert.c_str()));
    EXPECT_EQ(1, SSL_CTX_use_PrivateKey_file(context_.get(), tls.key.c_str(), SSL_FILETYPE_PEM));
  }

  void AtMost(int version) const { SSL_CTX_set_max_proto_version(context_.get(), version); }

  // The answer; nothing if the connection failed.
  std::string Get(const Address& address, const std::string& path) {
    const int descriptor = ConnectTo(address);
    const TlsSessionPtr session(SSL_new(context_.get()));
    SSL_set_fd(session.get(), descriptor);
    SSL_set1_host(session.get(), "127.0.0.1");
    std::string answer;
    const std::string request = "GET " + path + " HTTP/1.1\r\nHost: a\r\n\r\n";
    if (SSL_connect(session.get()) == 1 &&
        SSL_write(session.get(), request.data(), static_cast<int>(request.size())) > 0) {
      char piece[4096];
      int count = 0;
      while ((count = SSL_read(session.get(), piece, sizeof(piece))) > 0) {
        answer.append(piece, static_cast<size_t>(count));
      }
      closed_in_order_ = SSL_get_error(session.get(), count) == SSL_ERROR_ZERO_RETURN;
      serial_ = SerialOf(session.get());
      version_ = SSL_get_version(session.get());
    }
    close(descriptor);
    ERR_clear_error();
    return answer;
  }

  // Facts about the connection before.
  bool closed_in_order() const { return closed_in_order_; }
  const std::string& serial() const { return serial_; }
  const std::string& version() const { return version_; }

 private:
  static std::string SerialOf(const SSL* session) {
    const ASN1_INTEGER* const serial = X509_get0_serialNumber(SSL_get0_peer_certificate(session));
    return std::string(reinterpret_cast<const char*>(serial->data),
                       static_cast<size_t>(serial->length));
  }

  TlsContextPtr context_;
  bool closed_in_order_ = false;
  std::string serial_;
  std::string version_;
};

// A server with a probe and a page.
class HttpTlsTest : public ::testing::Test {
 protected:
  void Serve(const ServerTls& tls) {
    absl::StatusOr<std::unique_ptr<TlsSessions>> sessions = TlsSessions::Open(tls);
    ASSERT_TRUE(sessions.ok()) << sessions.status();
    sessions_ = *std::move(sessions);
    HttpOptions options;
    options.address = {"127.0.0.1", 0};
    options.counters = &counters_;
    options.tls = sessions_.get();
    options.report = [this](const std::string& address, const std::string& what) {
      MutexLock lock(mutex_);
      reports_.push_back(address + ": " + what);
      changed_.NotifyAll();
    };
    const auto page = [](std::string text) {
      return [text = std::move(text)] { return HttpPage{200, "text/plain", text}; };
    };
    auto server = HttpServer::Start(std::move(options), {{"/livez", page("ok\n")}},
                                    {{"/metrics", page(std::string(3 << 20, 'm'))}});
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }

  ServerTls WithClients(ServerTls tls) const {
    tls.client_ca = pki_.path("ca.crt");
    return tls;
  }

  const Address& address() const { return server_->address(); }

  bool HasReport(const std::string& what) {
    MutexLock lock(mutex_);
    return ::testing::Value(reports_, Contains(HasSubstr(what)));
  }
  void AwaitReport(const std::string& what) {
    MutexLock lock(mutex_);
    while (!::testing::Value(reports_, Contains(HasSubstr(what)))) changed_.Wait(mutex_);
  }

  Pki pki_;
  HttpCounters counters_;
  std::unique_ptr<TlsSessions> sessions_;
  Mutex mutex_;
  Condition changed_;
  std::vector<std::string> reports_;
  std::unique_ptr<HttpServer> server_;
};

TEST_F(HttpTlsTest, AnswersEveryVersionFrom12OnAndSaysGoodbye) {
  Serve(pki_.Server());
  Client client(pki_.Trust());
  EXPECT_THAT(client.Get(address(), "/livez"), StartsWith("HTTP/1.1 200 OK\r\n"));
  EXPECT_EQ("TLSv1.3", client.version());
  // A cut answer is not mistaken for a whole one.
  EXPECT_TRUE(client.closed_in_order());
  EXPECT_GT(client.Get(address(), "/metrics").size(), size_t{3} << 20);
  EXPECT_TRUE(client.closed_in_order());
  client.AtMost(TLS1_2_VERSION);
  EXPECT_THAT(client.Get(address(), "/livez"), StartsWith("HTTP/1.1 200 OK\r\n"));
  EXPECT_EQ("TLSv1.2", client.version());
  client.AtMost(TLS1_1_VERSION);
  EXPECT_EQ("", client.Get(address(), "/livez"));
  // The probe of a process's own port.
  const absl::StatusOr<HttpPage> page = GetPage(address(), true, "/livez", absl::Seconds(10));
  ASSERT_TRUE(page.ok()) << page.status();
  EXPECT_EQ(200, page->status);
  EXPECT_EQ("ok\n", page->body);
}

TEST_F(HttpTlsTest, Fault_S1_WhoDoesNotSpeakTlsIsCountedAndNamed) {
  Serve(pki_.Server());
  const absl::StatusOr<HttpPage> plain = GetPage(address(), false, "/livez", absl::Seconds(10));
  EXPECT_FALSE(plain.ok());
  AwaitReport("127.0.0.1: a TLS handshake with http.listen failed: the client spoke HTTP");
  EXPECT_EQ(1u, counters_.tls_failures);
  // The other way round: the client names the address and that it used TLS.
  const absl::StatusOr<HttpPage> nowhere =
      GetPage({"127.0.0.1", 1}, true, "/livez", absl::Seconds(10));
  EXPECT_THAT(std::string(nowhere.status().message()),
              AllOf(HasSubstr("127.0.0.1:1"), HasSubstr("TLS")));
}

TEST_F(HttpTlsTest, Fault_S1_PagesAreForClientsWithACertificateAndProbesForAll) {
  Serve(WithClients(pki_.Server()));
  Client without(pki_.Trust());
  EXPECT_THAT(without.Get(address(), "/livez"), StartsWith("HTTP/1.1 200"));
  EXPECT_THAT(without.Get(address(), "/metrics"), StartsWith("HTTP/1.1 403"));
  EXPECT_THAT(without.Get(address(), "/other"), StartsWith("HTTP/1.1 403"));
  EXPECT_EQ(2u, counters_.uncertified);
  AwaitReport("127.0.0.1: a request to http.listen came without a client certificate");
  Client with(pki_.Client());
  EXPECT_THAT(with.Get(address(), "/metrics"), StartsWith("HTTP/1.1 200"));
  EXPECT_EQ(0u, counters_.tls_failures);
  // One of another authority fails the handshake.
  const Pki other;
  ClientTls foreign = other.Client();
  foreign.ca = pki_.path("ca.crt");
  EXPECT_EQ("", Client(foreign).Get(address(), "/livez"));
  AwaitReport("127.0.0.1: a TLS handshake with http.listen failed: certificate verify failed");
  EXPECT_EQ(1u, counters_.tls_failures);
}

TEST_F(HttpTlsTest, Fault_S3_AnExpiredCertificateOfAClientIsRefused) {
  Serve(WithClients(pki_.Server()));
  CertificateRequest request = Valid();
  request.not_before = absl::Now() - absl::Hours(2);
  request.not_after = absl::Now() - absl::Hours(1);
  EXPECT_EQ("", Client(pki_.Client("old", request)).Get(address(), "/metrics"));
  AwaitReport("a TLS handshake with http.listen failed");
}

TEST_F(HttpTlsTest, Fault_S4_NewCertificatesAreForNewConnections) {
  Serve(pki_.Server());
  Client client(pki_.Trust());
  EXPECT_THAT(client.Get(address(), "/livez"), StartsWith("HTTP/1.1 200"));
  const std::string before = client.serial();
  pki_.Server();  // Other files under the same names.
  // A file may be read while it is being written.
  EXPECT_TRUE(sessions_->Refresh().ok());
  EXPECT_THAT(client.Get(address(), "/livez"), StartsWith("HTTP/1.1 200"));
  EXPECT_EQ(before, client.serial());
  EXPECT_TRUE(sessions_->Refresh().ok());
  EXPECT_THAT(client.Get(address(), "/livez"), StartsWith("HTTP/1.1 200"));
  EXPECT_NE(before, client.serial());
}

TEST_F(HttpTlsTest, Fault_S4_AFileThatBecameWrongChangesNothing) {
  const ServerTls tls = WithClients(pki_.Server());
  Serve(tls);
  const auto mistaken = [&](const std::string& name, const std::string& text) {
    pki_.Write(name, text);
    sessions_->Refresh().IgnoreError();
    const absl::Status refreshed = sessions_->Refresh();
    EXPECT_THAT(std::string(refreshed.message()), HasSubstr(name)) << text;
  };
  mistaken("server.crt", "certificate\n");
  pki_.Server();
  mistaken("server.key", "key\n");
  mistaken("server.key", Pki().ca().key);  // The key of another certificate.
  pki_.Server();
  mistaken("ca.crt", "");
  unlink(tls.client_ca.c_str());
  EXPECT_THAT(std::string(sessions_->Refresh().message()), HasSubstr("ca.crt"));
  pki_.Write("ca.crt", pki_.ca().cert);
  EXPECT_THAT(Client(pki_.Client()).Get(address(), "/metrics"), StartsWith("HTTP/1.1 200"));
  EXPECT_FALSE(TlsSessions::Open({pki_.Write("text", "x"), tls.key, ""}).ok());
}

// A host has a /64 of IPv6, and could take another address for each connection. A probe from
// elsewhere, which came first, is not the one that makes room for them.
TEST_F(HttpTlsTest, Fault_S6_TheAddressesOfAHostCountTogether) {
  Serve(pki_.Server());
  std::vector<int> silent = {ConnectTo(address())};
  const std::string refused = "2001:db8:1:2::";  // One of them, whichever.
  // More than there is room for: on a busy machine the first ones end before the last ones come.
  for (int i = 0; i < 800 && !HasReport(refused); ++i) {
    silent.push_back(ConnectTo(address(), ("127.1.2." + std::to_string(1 + i % 200)).c_str()));
  }
  AwaitReport(refused);
  {
    MutexLock lock(mutex_);
    EXPECT_THAT(reports_, Not(Contains(AllOf(StartsWith("127.0.0.1: "),
                                             HasSubstr("there were too many connections")))));
  }
  for (const int descriptor : silent) close(descriptor);
}

TEST_F(HttpTlsTest, Fault_S6_ProbesComeBeforeAnyNumberOfSilentHandshakes) {
  Serve(pki_.Server());
  std::vector<int> silent(400);
  for (int& descriptor : silent) {
    descriptor = ConnectTo(address());
    send(descriptor, "\x16\x03\x01", 3, MSG_NOSIGNAL);  // The beginning of a handshake.
  }
  for (int i = 0; i < 20; ++i) {
    const absl::StatusOr<HttpPage> page =
        GetPage(address(), true, "/livez", absl::Milliseconds(900));
    ASSERT_TRUE(page.ok()) << page.status();
    EXPECT_EQ(200, page->status);
    silent.push_back(ConnectTo(address()));
  }
  for (const int descriptor : silent) close(descriptor);
}

}  // namespace
}  // namespace basin::aggregator
