// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "aggregator/http/http_server.h"

#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/bufferevent_ssl.h>
#include <event2/event.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <deque>
#include <iterator>
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
#include "aggregator/http/libevent.h"
#include "runtime/grpc/peer.h"
#include "runtime/grpc/room.h"
#include "runtime/mutex.h"

namespace basin::aggregator {
namespace {

// The time for a handshake, for a request to arrive, for a peer to read some more of the answer,
// and to close after it.
constexpr timeval kTimeout = {1, 0};

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
    case 403:
      return "Forbidden";
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

std::string_view ReceivedOn(bufferevent* stream) {
  evbuffer* const input = bufferevent_get_input(stream);
  const size_t size = evbuffer_get_length(input);
  if (size == 0) return {};
  return {reinterpret_cast<const char*>(evbuffer_pullup(input, -1)), size};
}

// What OpenSSL says about the failure of a handshake.
std::string WhyNoHandshake(bufferevent* stream) {
  const unsigned long error = bufferevent_get_openssl_error(stream);
  if (error == 0) return "the client ended it";
  if (ERR_GET_REASON(error) == SSL_R_HTTP_REQUEST) return "the client spoke HTTP; use https";
  const char* const reason = ERR_reason_error_string(error);
  return reason == nullptr ? "unknown error" : reason;
}

}  // namespace

class HttpServer::Loop {
 public:
  Loop(HttpOptions options, Pages probes, Pages pages)
      : options_(std::move(options)),
        probes_(std::move(probes)),
        pages_(std::move(pages)),
        wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
        base_(event_base_new()) {
    if (wake_ < 0 || base_ == nullptr) return;
    const auto on_wake = [](evutil_socket_t, short, void* loop) {
      static_cast<Loop*>(loop)->TakeNews();
    };
    woken_.reset(event_new(base_.get(), wake_, EV_READ | EV_PERSIST, on_wake, this));
    if (woken_ == nullptr || event_add(woken_.get(), nullptr) != 0) return;
    thread_ = std::thread([this] {
      pthread_setname_np(pthread_self(), "basin-http");
      event_base_dispatch(base_.get());
      connections_.clear();
      event_del(woken_.get());
      // A connection that still had something to say is freed when libevent has got to that.
      while (event_base_loop(base_.get(), EVLOOP_NONBLOCK) == 0) {
      }
    });
    page_thread_ = std::thread([this] {
      pthread_setname_np(pthread_self(), "basin-pages");
      MakePages();
    });
  }

  // REQUIRES: OnConnection is not called any more.
  ~Loop() {
    {
      MutexLock lock(mutex_);
      stopping_ = true;
      changed_.NotifyAll();
    }
    if (page_thread_.joinable()) page_thread_.join();
    if (wake_ >= 0) Wake();
    if (thread_.joinable()) thread_.join();
    MutexLock lock(mutex_);
    for (const Arrived& arrived : arrived_) close(arrived.descriptor);
    woken_.reset();
    base_.reset();  // Closes connections whose end it has put off.
    if (wake_ >= 0) close(wake_);
  }

  bool ok() const { return thread_.joinable(); }

  // A new connection. From any thread. Where they come faster than they can be taken, those that
  // wait are bounded as the others are.
  void OnConnection(int descriptor) {
    Arrived arrived = {descriptor, AddressOf(descriptor), ""};
    arrived.source = SourceOf(arrived.address);
    {
      MutexLock lock(mutex_);
      std::vector<HeldConnection> held;
      held.reserve(arrived_.size());
      for (const Arrived& each : arrived_) held.push_back({each.source});
      const ConnectionRoom room = RoomFor(arrived.source, held, kMostConnections, kMostOfAnAddress);
      if (room.in_place) {
        const auto gone = arrived_.begin() + static_cast<std::ptrdiff_t>(*room.in_place);
        close(gone->descriptor);
        arrived_.erase(gone);
      }
      arrived_.push_back(std::move(arrived));
    }
    Wake();
  }

 private:
  struct Arrived {
    int descriptor = -1;
    std::string address;
    std::string source;  // What is limited: SourceOf(address).
  };
  enum class State : uint8_t {
    kHandshake,  // That of TLS.
    kReading,    // Its request has not come yet.
    kWaiting,    // For its page.
    kWriting,
    kClosing,  // All is written: until the other end has read it, and closes.
  };
  struct Connection {
    Loop* loop = nullptr;
    std::list<Connection>::iterator self;
    uint64_t id = 0;
    std::string address;
    std::string source;
    State state = State::kReading;
    StreamPtr stream;   // libevent calls back later, never from within a call to it.
    TimerPtr deadline;  // Then the connection is closed.

    SSL* tls() const { return bufferevent_openssl_get_ssl(stream.get()); }
  };
  struct Order {
    uint64_t connection;
    std::string path;
    bool with_body;
  };

  void Wake() const { eventfd_write(wake_, 1); }

  // ---- the thread of the connections

  // Connections that came, pages that were made.
  void TakeNews() {
    eventfd_t count = 0;
    eventfd_read(wake_, &count);
    std::optional<Arrived> arrived;
    std::vector<std::pair<uint64_t, std::string>> made;
    bool stopping = false;
    {
      MutexLock lock(mutex_);
      // One at a time: the request of one that has just come is read before others displace it.
      if (!arrived_.empty()) {
        arrived = std::move(arrived_.front());
        arrived_.pop_front();
      }
      if (!arrived_.empty()) Wake();
      made.swap(made_);
      stopping = stopping_;
    }
    if (arrived) Add(*std::move(arrived));
    for (auto& [id, answer] : made) {
      for (Connection& connection : connections_) {
        if (connection.id != id) continue;
        Reply(connection, answer);
        break;  // Unique.
      }
    }
    if (stopping) event_base_loopbreak(base_.get());
  }

  void Add(Arrived arrived) {
    if (!MakeRoom(arrived.source)) {
      close(arrived.descriptor);
      return;
    }
    connections_.emplace_back();
    Connection& connection = connections_.back();
    connection.loop = this;
    connection.self = std::prev(connections_.end());
    connection.id = ++last_id_;
    connection.address = std::move(arrived.address);
    connection.source = std::move(arrived.source);
    connection.state = options_.tls == nullptr ? State::kReading : State::kHandshake;
    connection.stream = StreamOf(arrived.descriptor);
    const auto on_deadline = [](evutil_socket_t, short, void* late) {
      DropSilent(CastToConnection(late), "it took longer than a second");
    };
    connection.deadline.reset(event_new(base_.get(), -1, 0, on_deadline, &connection));
    if (connection.stream == nullptr) close(arrived.descriptor);
    if (connection.stream == nullptr || connection.deadline == nullptr) return Drop(connection);
    bufferevent_setcb(
        connection.stream.get(), [](bufferevent*, void* read) { OnRead(CastToConnection(read)); },
        [](bufferevent*, void* written) { OnWritten(CastToConnection(written)); },
        [](bufferevent*, short what, void* changed) { OnEvent(CastToConnection(changed), what); },
        &connection);
    bufferevent_setwatermark(connection.stream.get(), EV_READ, 0, kMostRequestBytes);
    bufferevent_set_timeouts(connection.stream.get(), nullptr, &kTimeout);
    AwaitUntilTimeout(connection);
  }

  static Connection& CastToConnection(void* connection) {
    return *static_cast<Connection*>(connection);
  }

  // Returns whether another connection from the source may come.
  bool MakeRoom(const std::string& source) {
    std::vector<HeldConnection> held;
    held.reserve(connections_.size());
    for (const Connection& each : connections_) {
      held.push_back({each.source, each.state != State::kWaiting && each.state != State::kWriting});
    }
    const ConnectionRoom room = RoomFor(source, held, kMostConnections, kMostOfAnAddress);
    if (room.in_place) {
      DropSilent(*std::next(connections_.begin(), static_cast<std::ptrdiff_t>(*room.in_place)),
                 "there were too many connections");
    }
    return room.comes;
  }

  // Owns the descriptor, unless it is null.
  StreamPtr StreamOf(int descriptor) const {
    constexpr int kOptions = BEV_OPT_CLOSE_ON_FREE | BEV_OPT_DEFER_CALLBACKS;
    if (options_.tls == nullptr) {
      return StreamPtr(bufferevent_socket_new(base_.get(), descriptor, kOptions));
    }
    TlsSessionPtr session = options_.tls->Begin();
    if (session == nullptr) return nullptr;
    StreamPtr stream(bufferevent_openssl_socket_new(base_.get(), descriptor, session.get(),
                                                    BUFFEREVENT_SSL_ACCEPTING, kOptions));
    if (stream == nullptr) return nullptr;
    (void)session.release();  // To the stream.
    // Clients that have got the whole answer often do not say goodbye.
    bufferevent_openssl_set_allow_dirty_shutdown(stream.get(), 1);
    return stream;
  }

  // One that its client has left waiting.
  static void DropSilent(Connection& connection, const char* why) {
    if (connection.state == State::kHandshake) connection.loop->CountFailure(connection, why);
    Drop(connection);
  }
  static void Drop(Connection& connection) { connection.loop->connections_.erase(connection.self); }

  // Reads from the connection, but not for long.
  static void AwaitUntilTimeout(Connection& connection) {
    event_add(connection.deadline.get(), &kTimeout);
    bufferevent_enable(connection.stream.get(), EV_READ);
  }

  static void OnRead(Connection& connection) {
    const std::string_view received = ReceivedOn(connection.stream.get());
    if (connection.state == State::kReading) {
      const RequestSoFar request = ReadRequest(received);
      if (!request.complete) return;
      // A full buffer would keep the end of the connection from being noticed.
      evbuffer_drain(bufferevent_get_input(connection.stream.get()), received.size());
      bufferevent_disable(connection.stream.get(), EV_READ);
      event_del(connection.deadline.get());
      connection.loop->Answer(connection, request);
    } else if (connection.state == State::kClosing) {
      evbuffer_drain(bufferevent_get_input(connection.stream.get()), received.size());
    }
  }

  static void OnEvent(Connection& connection, short what) {
    if ((what & BEV_EVENT_CONNECTED) != 0) {
      connection.state = State::kReading;
      return AwaitUntilTimeout(connection);
    }
    // A client that sends nothing more may still wait for its answer.
    const bool answers = connection.state == State::kWaiting || connection.state == State::kWriting;
    if (answers && what == (BEV_EVENT_EOF | BEV_EVENT_READING)) return;
    if (connection.state == State::kHandshake) {
      connection.loop->CountFailure(connection, WhyNoHandshake(connection.stream.get()));
    }
    Drop(connection);
  }

  void CountFailure(const Connection& connection, const std::string& why) {
    ++options_.counters->tls_failures;
    Report(connection, absl::StrCat("a TLS handshake with http.listen failed: ", why, "."));
  }

  void Report(const Connection& connection, const std::string& what) const {
    if (options_.report != nullptr) options_.report(connection.address, what);
  }

  void Answer(Connection& connection, const RequestSoFar& request) {
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
    if (options_.tls != nullptr && options_.tls->verifies_clients() &&
        !HasClientCertificate(connection.tls())) {
      ++options_.counters->uncertified;
      Report(connection, "a request to http.listen came without a client certificate.");
      return Reply(
          connection,
          TextOf(Plain(403, "Only clients with a certificate may see this page.\n"), with_body));
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

  static void Reply(Connection& connection, const std::string& answer) {
    connection.state = State::kWriting;
    if (bufferevent_write(connection.stream.get(), answer.data(), answer.size()) != 0) {
      Drop(connection);
    }
  }

  static void OnWritten(Connection& connection) {
    if (connection.state != State::kWriting) return;
    // Closed with something unread, the connection would be reset, and the answer lost.
    if (SSL* const tls = connection.tls(); tls != nullptr) SSL_shutdown(tls);
    shutdown(bufferevent_getfd(connection.stream.get()), SHUT_WR);
    connection.state = State::kClosing;
    AwaitUntilTimeout(connection);
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
  const HttpOptions options_;
  const Pages probes_;
  const Pages pages_;
  const int wake_;  // An eventfd: readable when there is work.

  // For the thread of the connections only.
  BasePtr base_;
  TimerPtr woken_;
  std::list<Connection> connections_;  // In the order in which they came.
  uint64_t last_id_ = 0;

  Mutex mutex_;
  Condition changed_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::deque<Arrived> arrived_ ABSL_GUARDED_BY(mutex_);
  std::deque<Order> orders_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::pair<uint64_t, std::string>> made_ ABSL_GUARDED_BY(mutex_);

  std::thread thread_;
  std::thread page_thread_;
};

absl::StatusOr<std::unique_ptr<HttpServer>> HttpServer::Start(HttpOptions options, Pages probes,
                                                              Pages pages) {
  std::unique_ptr<HttpServer> server(new HttpServer());
  const Address address = options.address;
  absl::StatusOr<std::unique_ptr<Listener>> listener =
      Listener::Open(ToString(address), options.counters->accept_failures);
  if (!listener.ok()) {
    return absl::UnavailableError(
        absl::StrCat("http.listen: cannot listen on ", ToString(address), ": ",
                     std::string(listener.status().message()),
                     ". Check that the address belongs to this host and that no other process uses "
                     "the port, or choose another with --http-listen."));
  }
  server->loop_ = std::make_unique<Loop>(std::move(options), std::move(probes), std::move(pages));
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
