// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "aggregator/http/http_server.h"

#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <deque>
#include <list>
#include <optional>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "aggregator/http/http_request.h"
#include "runtime/mutex.h"

namespace basin::aggregator {
namespace {

using Clock = std::chrono::steady_clock;

// The time for a request to arrive, for a peer to read some more of the answer, and to close after
// it.
constexpr std::chrono::seconds kTimeout{1};

// Far more than the probes of a kubelet and some scrapers need, and few beside the descriptors that
// are kept for them.
constexpr size_t kMostConnections = 128;
constexpr size_t kMostOfAnAddress = 48;

// Pages that wait to be made.
constexpr size_t kMostWaitingPages = 32;

const char* ReasonOf(int status) {
  switch (status) {
    case 200:
      return "OK";
    case 400:
      return "Bad Request";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 431:
      return "Request Header Fields Too Large";
    default:
      return "Service Unavailable";
  }
}

std::string TextOf(const HttpPage& page, bool with_body) {
  // A browser must not guess a type other than Content-Type, and must neither run nor load anything
  // but the page and its style sheet.
  const std::string head = absl::StrCat(
      "HTTP/1.1 ", page.status, " ", ReasonOf(page.status), "\r\nContent-Type: ", page.type,
      "\r\nContent-Length: ", page.body.size(), "\r\nCache-Control: no-store\r\n",
      page.status == 405 ? "Allow: GET, HEAD\r\n" : "",
      "X-Content-Type-Options: nosniff\r\nContent-Security-Policy: default-src 'none'; style-src "
      "'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors "
      "'none'\r\nReferrer-Policy: no-referrer\r\nConnection: close\r\n\r\n");
  return with_body ? head + page.body : head;
}

HttpPage Plain(int status, std::string text) {
  HttpPage page;
  page.status = status;
  page.body = std::move(text);
  return page;
}

// The other end's address, without its port.
std::string AddressOf(int descriptor) {
  sockaddr_storage peer = {};
  socklen_t length = sizeof peer;
  if (getpeername(descriptor, reinterpret_cast<sockaddr*>(&peer), &length) != 0) return "";
  if (peer.ss_family == AF_INET) {
    const auto& address = reinterpret_cast<const sockaddr_in&>(peer).sin_addr;
    return std::string(reinterpret_cast<const char*>(&address), sizeof address);
  }
  const auto& address = reinterpret_cast<const sockaddr_in6&>(peer).sin6_addr;
  return std::string(reinterpret_cast<const char*>(&address), sizeof address);
}

struct Connection {
  enum class State : uint8_t {
    kReading,  // Its request has not come yet.
    kWaiting,  // For its page.
    kWriting,
    kClosing,  // All is written: until the other end has read it, and closes.
  };
  uint64_t id = 0;
  int descriptor = -1;
  std::string address;
  State state = State::kReading;
  Clock::time_point until;  // Then it is closed.
  std::string request;
  std::string answer;
  size_t written = 0;
};

}  // namespace

class HttpServer::Loop {
 public:
  Loop(Pages probes, Pages pages)
      : probes_(std::move(probes)),
        pages_(std::move(pages)),
        wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    if (wake_ < 0) return;
    thread_ = std::thread([this] {
      pthread_setname_np(pthread_self(), "basin-http");
      Run();
    });
    page_thread_ = std::thread([this] {
      pthread_setname_np(pthread_self(), "basin-pages");
      MakePages();
    });
  }

  ~Loop() {
    {
      MutexLock lock(mutex_);
      stopping_ = true;
      changed_.NotifyAll();
    }
    if (page_thread_.joinable()) page_thread_.join();
    Wake();
    if (thread_.joinable()) thread_.join();
    if (wake_ >= 0) close(wake_);
  }

  bool ok() const { return wake_ >= 0; }

  // A new connection. From any thread.
  void OnConnection(int descriptor) {
    {
      MutexLock lock(mutex_);
      arrived_.push_back(descriptor);
    }
    Wake();
  }

 private:
  struct Order {
    uint64_t connection;
    std::string path;
    bool with_body;
  };
  using State = Connection::State;

  void Wake() const { eventfd_write(wake_, 1); }

  // ---- the thread of the connections

  void Run() {
    std::vector<pollfd> waits;
    while (true) {
      waits.assign(1, {wake_, POLLIN, 0});
      Clock::time_point next = Clock::time_point::max();
      for (const Connection& connection : connections_) {
        const short events = connection.state == State::kWriting   ? POLLOUT
                             : connection.state == State::kWaiting ? 0
                                                                   : POLLIN;
        waits.push_back({connection.descriptor, events, 0});
        if (connection.state != State::kWaiting) next = std::min(next, connection.until);
      }
      poll(waits.data(), waits.size(), MillisecondsUntil(next));
      size_t at = 1;
      for (auto it = connections_.begin(); it != connections_.end(); ++at) {
        const auto connection = it++;
        if (waits[at].revents != 0) {
          // While it waits for its page, only the end of the peer matters.
          if (connection->state == State::kWaiting) {
            End(*connection);
          } else {
            Serve(*connection);
          }
        }
        if (connection->descriptor < 0 || Overdue(*connection)) Drop(connection);
      }
      if (waits[0].revents != 0 && !TakeNews()) break;
    }
    while (!connections_.empty()) Drop(connections_.begin());
  }

  static int MillisecondsUntil(Clock::time_point time) {
    if (time == Clock::time_point::max()) return -1;
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(time - Clock::now());
    return std::max(0, static_cast<int>(left.count()));
  }

  static bool Overdue(const Connection& connection) {
    return connection.state != State::kWaiting && Clock::now() >= connection.until;
  }

  void Drop(std::list<Connection>::iterator connection) {
    if (connection->descriptor >= 0) close(connection->descriptor);
    connections_.erase(connection);
  }

  // Connections that came, pages that were made. False: it is over.
  bool TakeNews() {
    eventfd_t count = 0;
    eventfd_read(wake_, &count);
    std::vector<int> arrived;
    std::vector<std::pair<uint64_t, std::string>> made;
    bool stopping = false;
    {
      MutexLock lock(mutex_);
      arrived.swap(arrived_);
      made.swap(made_);
      stopping = stopping_;
    }
    for (const int descriptor : arrived) Add(descriptor);
    for (auto& [id, answer] : made) {
      for (Connection& connection : connections_) {
        if (connection.id != id) continue;
        Reply(connection, std::move(answer));
        break;  // Unique.
      }
    }
    return !stopping;
  }

  void Add(int descriptor) {
    std::string address = AddressOf(descriptor);
    const auto of_address = [&](const Connection& other) { return other.address == address; };
    const auto is_silent = [](const Connection& other) { return other.state == State::kReading; };
    const bool crowded = static_cast<size_t>(std::count_if(connections_.begin(), connections_.end(),
                                                           of_address)) >= kMostOfAnAddress;
    if (crowded || connections_.size() >= kMostConnections) {
      // The oldest stands first.
      const auto oldest =
          std::find_if(connections_.begin(), connections_.end(), [&](const Connection& other) {
            return is_silent(other) && (!crowded || of_address(other));
          });
      if (oldest == connections_.end()) {
        close(descriptor);
        return;
      }
      Drop(oldest);
    }
    Connection connection;
    connection.id = ++last_id_;
    connection.descriptor = descriptor;
    connection.address = std::move(address);
    connection.until = Clock::now() + kTimeout;
    connections_.push_back(std::move(connection));
    Serve(connections_.back());  // Its request may be there already.
  }

  // Goes on with a connection as far as it can be without waiting.
  void Serve(Connection& connection) {
    if (connection.state == State::kReading) Read(connection);
    if (connection.state == State::kWriting) Write(connection);
    if (connection.state == State::kClosing) Discard(connection);
  }

  void End(Connection& connection) {
    close(connection.descriptor);
    connection.descriptor = -1;
  }

  void Read(Connection& connection) {
    char bytes[kMostRequestBytes];
    while (connection.state == State::kReading) {
      const ssize_t count = recv(connection.descriptor, bytes, sizeof(bytes), 0);
      if (count < 0 && errno == EINTR) continue;
      if (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
      if (count <= 0) return End(connection);
      connection.request.append(bytes, static_cast<size_t>(count));
      const RequestSoFar request = ReadRequest(connection.request);
      if (request.complete) Answer(connection, request);
    }
  }

  void Answer(Connection& connection, const RequestSoFar& request) {
    connection.request.clear();
    if (request.refusal != 0) {
      return Reply(connection, TextOf(Plain(request.refusal, request.why + "\n"), true));
    }
    const bool with_body = request.method == "GET";
    if (!with_body && request.method != "HEAD") {
      return Reply(connection, TextOf(Plain(405, "Only GET and HEAD.\n"), true));
    }
    if (const auto probe = probes_.find(request.path); probe != probes_.end()) {
      return Reply(connection, TextOf(probe->second(), with_body));
    }
    if (pages_.count(request.path) == 0) {
      std::string paths = "There is:";
      for (const auto& [path, page] : probes_) absl::StrAppend(&paths, " ", path);
      for (const auto& [path, page] : pages_) absl::StrAppend(&paths, " ", path);
      return Reply(connection, TextOf(Plain(404, paths + "\n"), with_body));
    }
    bool ordered = false;
    {
      MutexLock lock(mutex_);
      ordered = orders_.size() < kMostWaitingPages;
      if (ordered) orders_.push_back({connection.id, request.path, with_body});
      changed_.NotifyAll();
    }
    if (!ordered) {
      return Reply(connection,
                   TextOf(Plain(503, "Too many requests for this page are open.\n"), with_body));
    }
    connection.state = State::kWaiting;
  }

  void Reply(Connection& connection, std::string answer) {
    connection.answer = std::move(answer);
    connection.state = State::kWriting;
    connection.until = Clock::now() + kTimeout;
    Write(connection);
  }

  void Write(Connection& connection) {
    while (connection.written < connection.answer.size()) {
      const ssize_t count =
          send(connection.descriptor, connection.answer.data() + connection.written,
               connection.answer.size() - connection.written, MSG_NOSIGNAL);
      if (count < 0 && errno == EINTR) continue;
      if (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
      if (count < 0) return End(connection);
      connection.written += static_cast<size_t>(count);
      connection.until = Clock::now() + kTimeout;
    }
    // Closed with something unread, the connection would be reset, and the answer lost.
    shutdown(connection.descriptor, SHUT_WR);
    connection.state = State::kClosing;
  }

  void Discard(Connection& connection) {
    char bytes[kMostRequestBytes];
    while (true) {
      const ssize_t count = recv(connection.descriptor, bytes, sizeof(bytes), 0);
      if (count > 0 || (count < 0 && errno == EINTR)) continue;
      if (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
      return End(connection);
    }
  }

  // ---- the thread of the pages

  void MakePages() {
    while (true) {
      std::optional<Order> order;
      {
        MutexLock lock(mutex_);
        while (!stopping_ && orders_.empty()) changed_.Wait(mutex_);
        if (stopping_) return;
        order = std::move(orders_.front());
        orders_.pop_front();
      }
      std::string answer = TextOf(pages_.at(order->path)(), order->with_body);
      {
        MutexLock lock(mutex_);
        made_.emplace_back(order->connection, std::move(answer));
      }
      Wake();
    }
  }

  // Constant after construction.
  const Pages probes_;
  const Pages pages_;
  const int wake_;  // An eventfd: readable when there is work.

  // For the thread of the connections only.
  std::list<Connection> connections_;  // In the order in which they came.
  uint64_t last_id_ = 0;

  Mutex mutex_;
  Condition changed_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<int> arrived_ ABSL_GUARDED_BY(mutex_);
  std::deque<Order> orders_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::pair<uint64_t, std::string>> made_ ABSL_GUARDED_BY(mutex_);

  std::thread thread_;
  std::thread page_thread_;
};

absl::StatusOr<std::unique_ptr<HttpServer>> HttpServer::Start(const Address& address, Pages probes,
                                                              Pages pages) {
  std::unique_ptr<HttpServer> server(new HttpServer());
  absl::StatusOr<std::unique_ptr<Listener>> listener =
      Listener::Open(ToString(address), server->accept_failures_);
  if (!listener.ok()) {
    return absl::UnavailableError(
        absl::StrCat("http.listen: cannot listen on ", ToString(address), ": ",
                     std::string(listener.status().message()),
                     ". Check that the address belongs to this host and that no other process uses "
                     "the port, or choose another with --http-listen."));
  }
  server->loop_ = std::make_unique<Loop>(std::move(probes), std::move(pages));
  if (!server->loop_->ok()) {
    return absl::UnavailableError(absl::StrCat("http.listen: ", std::strerror(errno), "."));
  }
  server->listener_ = *std::move(listener);
  server->address_ = {address.host, static_cast<uint16_t>(server->listener_->port())};
  server->listener_->Start(
      [loop = server->loop_.get()](int descriptor) { loop->OnConnection(descriptor); });
  return server;
}

HttpServer::~HttpServer() {
  listener_.reset();  // Ends before the loop that it gives connections to.
}

}  // namespace basin::aggregator
