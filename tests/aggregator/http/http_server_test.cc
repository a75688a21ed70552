// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The HTTP server over real sockets, with valid and invalid requests.

#include "aggregator/http/http_server.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "aggregator/http/http_client.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/mutex.h"

namespace basin::aggregator {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

// A connection that has sent nothing yet.
int Connect(const HttpServer& server) {
  const int descriptor = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(server.address().port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(0, connect(descriptor, reinterpret_cast<sockaddr*>(&address), sizeof(address)));
  return descriptor;
}

// The server's answer to these bytes, until it closes the connection.
std::string Ask(const HttpServer& server, const std::string& request) {
  const int descriptor = Connect(server);
  EXPECT_EQ(static_cast<ssize_t>(request.size()),
            send(descriptor, request.data(), request.size(), MSG_NOSIGNAL));
  // The client sends nothing more: a server must not wait for the rest of the request.
  shutdown(descriptor, SHUT_WR);
  std::string answer;
  char piece[4096];
  ssize_t count = 0;
  while ((count = recv(descriptor, piece, sizeof(piece), 0)) > 0) {
    answer.append(piece, static_cast<size_t>(count));
  }
  close(descriptor);
  return answer;
}

HttpOptions Anywhere() {
  static HttpCounters counters;
  HttpOptions options;
  options.address = {"127.0.0.1", 0};
  options.counters = &counters;
  return options;
}

std::unique_ptr<HttpServer> Serve() {
  absl::StatusOr<std::unique_ptr<HttpServer>> server =
      HttpServer::Start(Anywhere(), {{"/livez",
                                      [] {
                                        return HttpPage{200, "text/plain", "ok\n"};
                                      }},
                                     {"/readyz", [] {
                                        return HttpPage{503, "text/plain", "draining\n"};
                                      }}});
  EXPECT_TRUE(server.ok()) << server.status();
  return server.ok() ? *std::move(server) : nullptr;
}

TEST(HttpServerTest, AnswersItsPages) {
  const std::unique_ptr<HttpServer> server = Serve();
  ASSERT_NE(nullptr, server);
  EXPECT_THAT(Ask(*server, "GET /livez HTTP/1.1\r\nHost: a\r\n\r\n"),
              AllOf(StartsWith("HTTP/1.1 200 OK\r\n"), HasSubstr("Content-Length: 3\r\n"),
                    HasSubstr("\r\n\r\nok\n")));
  EXPECT_THAT(Ask(*server, "GET /readyz?verbose HTTP/1.0\r\n\r\n"),
              AllOf(StartsWith("HTTP/1.1 503"), HasSubstr("draining")));
  EXPECT_THAT(Ask(*server, "HEAD /livez HTTP/1.1\r\nHost: a\r\n\r\n"),
              AllOf(StartsWith("HTTP/1.1 200"), Not(HasSubstr("ok\n"))));
}

TEST(HttpServerTest, RefusesEverythingElse) {
  const std::unique_ptr<HttpServer> server = Serve();
  ASSERT_NE(nullptr, server);
  for (const char* path : {"/", "/etc/passwd", "/../../etc/passwd", "/livez/x", "/%2e%2e/x"}) {
    const std::string answer =
        Ask(*server, std::string("GET ") + path + " HTTP/1.1\r\nHost: a\r\n\r\n");
    EXPECT_THAT(answer, StartsWith("HTTP/1.1 404")) << path;
    EXPECT_THAT(answer, Not(HasSubstr("root:"))) << path;
  }
  EXPECT_THAT(Ask(*server, "POST /livez HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n"),
              AllOf(StartsWith("HTTP/1.1 405"), HasSubstr("Allow: GET, HEAD")));
  EXPECT_THAT(Ask(*server, "DELETE /livez HTTP/1.1\r\nHost: a\r\n\r\n"),
              StartsWith("HTTP/1.1 405"));
}

TEST(HttpServerTest, SurvivesWhatIsNoRequest) {
  const std::unique_ptr<HttpServer> server = Serve();
  ASSERT_NE(nullptr, server);
  Ask(*server, "\x16\x03\x01\x02 not http at all\r\n\r\n");
  Ask(*server, "GET /" + std::string(100000, 'a') + " HTTP/1.1\r\n\r\n");
  Ask(*server, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
  EXPECT_THAT(Ask(*server, "GET /livez HTTP/1.1\r\nHost: a\r\n\r\n"), StartsWith("HTTP/1.1 200"));
}

TEST(HttpServerTest, AnswersAProbeWhileOthersSayNothing) {
  const std::unique_ptr<HttpServer> server = Serve();
  ASSERT_NE(nullptr, server);
  std::vector<int> silent(8);
  for (int& descriptor : silent) descriptor = Connect(*server);
  // Sooner than the first of them is given up: a kubelet waits a second.
  const absl::StatusOr<HttpPage> page =
      GetPage(server->address(), false, "/livez", absl::Milliseconds(900));
  for (const int descriptor : silent) close(descriptor);
  ASSERT_TRUE(page.ok()) << page.status();
  EXPECT_EQ(200, page->status);
}

// Enough to occupy every thread of a usual server, and its queue.
TEST(HttpServerTest, Fault_S6_ProbesComeBeforeAnyNumberOfSilentConnections) {
  const std::unique_ptr<HttpServer> server = Serve();
  ASSERT_NE(nullptr, server);
  std::vector<int> silent(400);
  for (int& descriptor : silent) descriptor = Connect(*server);
  // Half of a request counts as silence too.
  for (const int descriptor : silent) send(descriptor, "GET /li", 7, MSG_NOSIGNAL);
  for (int i = 0; i < 20; ++i) {
    const absl::StatusOr<HttpPage> page =
        GetPage(server->address(), false, "/livez", absl::Milliseconds(900));
    ASSERT_TRUE(page.ok()) << page.status();
    EXPECT_EQ(200, page->status);
    silent.push_back(Connect(*server));
  }
  for (const int descriptor : silent) close(descriptor);
}

// A page that takes long holds up no probe.
TEST(HttpServerTest, ProbesDoNotWaitForPages) {
  Mutex mutex;
  Condition changed;
  bool asked = false;
  bool go_on = false;
  const auto slow = [&] {
    MutexLock lock(mutex);
    asked = true;
    changed.NotifyAll();
    while (!go_on) changed.Wait(mutex);
    return HttpPage{200, "text/plain", std::string(3 << 20, 'm')};
  };
  absl::StatusOr<std::unique_ptr<HttpServer>> server =
      HttpServer::Start(Anywhere(),
                        {{"/livez",
                          [] {
                            return HttpPage{200, "text/plain", "ok\n"};
                          }}},
                        {{"/metrics", slow}});
  ASSERT_TRUE(server.ok()) << server.status();
  std::string answer;
  std::thread scraper([&] { answer = Ask(**server, "GET /metrics HTTP/1.1\r\n\r\n"); });
  {
    MutexLock lock(mutex);
    while (!asked) changed.Wait(mutex);
  }
  EXPECT_THAT(Ask(**server, "GET /livez HTTP/1.1\r\n\r\n"), StartsWith("HTTP/1.1 200"));
  {
    MutexLock lock(mutex);
    go_on = true;
    changed.NotifyAll();
  }
  scraper.join();
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 200"));
  EXPECT_GT(answer.size(), size_t{3} << 20);
}

TEST(HttpServerTest, AnswersWhatAProxyAsks) {
  const std::unique_ptr<HttpServer> server = Serve();
  ASSERT_NE(nullptr, server);
  EXPECT_THAT(Ask(*server, "GET http://somewhere:29601/livez?x HTTP/1.1\r\nHost: a\r\n\r\n"),
              StartsWith("HTTP/1.1 200"));
  EXPECT_THAT(Ask(*server, "GET http://somewhere HTTP/1.1\r\n\r\n"), StartsWith("HTTP/1.1 404"));
}

TEST(HttpServerTest, SaysWhatIsWrongWithARequest) {
  const std::unique_ptr<HttpServer> server = Serve();
  ASSERT_NE(nullptr, server);
  EXPECT_THAT(Ask(*server, "\x16\x03\x01"),
              AllOf(StartsWith("HTTP/1.1 400"), HasSubstr("without TLS")));
  EXPECT_THAT(Ask(*server, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
              AllOf(StartsWith("HTTP/1.1 400"), HasSubstr("not HTTP/2")));
  EXPECT_THAT(Ask(*server, "GET /" + std::string(5000, 'a')), StartsWith("HTTP/1.1 431"));
  EXPECT_THAT(Ask(*server, "GET\r\n\r\n"), StartsWith("HTTP/1.1 400"));
}

TEST(HttpServerTest, APortThatSomebodyHasIsAnErrorWithAWayOut) {
  const std::unique_ptr<HttpServer> first = Serve();
  ASSERT_NE(nullptr, first);
  HttpOptions options = Anywhere();
  options.address = first->address();
  const auto second = HttpServer::Start(options, {});
  ASSERT_FALSE(second.ok());
  EXPECT_THAT(std::string(second.status().message()),
              AllOf(HasSubstr(ToString(first->address())), HasSubstr("--http-listen")));
}

}  // namespace
}  // namespace basin::aggregator
