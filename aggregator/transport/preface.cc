// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "aggregator/transport/preface.h"

#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <iterator>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "aggregator/transport/newcomers.h"
#include "runtime/grpc/peer.h"
#include "runtime/grpc/room.h"

namespace basin::aggregator {
namespace {

using Clock = std::chrono::steady_clock;

// The first bytes of every HTTP/2 connection.
constexpr std::string_view kPreface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

// The first bytes of every TLS connection: a handshake record.
constexpr std::string_view kHandshake = "\x16\x03";

constexpr std::string_view kAnswerToHttp1 =
    "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: "
    "close\r\n\r\nThis port speaks gRPC, for workers or operators. Probes and metrics are on "
    "another port "
    "(http.listen).\n";

// Until an address without room is looked at again.
constexpr std::chrono::milliseconds kUntilThereMayBeRoom{5};

void SetLowWater(int descriptor, int bytes) {
  setsockopt(descriptor, SOL_SOCKET, SO_RCVLOWAT, &bytes, sizeof bytes);
}

bool StartsWith(std::string_view text, std::string_view begin) {
  return text.substr(0, begin.size()) == begin;
}

// Closed with something unread, the connection would be reset, and the answer lost.
void Answer(int descriptor, std::string_view text) {
  static_cast<void>(send(descriptor, text.data(), text.size(), MSG_NOSIGNAL | MSG_DONTWAIT));
  shutdown(descriptor, SHUT_WR);
  char unread[4096];
  while (recv(descriptor, unread, sizeof unread, MSG_DONTWAIT) > 0) {
  }
}

bool LooksLikeHttp1(std::string_view bytes) {
  const size_t method = bytes.find(' ');
  return method != std::string_view::npos && method > 0 && method < 10 &&
         std::all_of(bytes.begin(), bytes.begin() + static_cast<ptrdiff_t>(method),
                     [](char c) { return c >= 'A' && c <= 'Z'; });
}

// For poll: rounded up, negative for ever.
int MillisecondsUntil(Clock::time_point time) {
  if (time == Clock::time_point::max()) return -1;
  const Clock::time_point now = Clock::now();
  if (time <= now) return 0;
  return static_cast<int>(std::chrono::ceil<std::chrono::milliseconds>(time - now).count());
}

}  // namespace

PrefaceCheck::PrefaceCheck(Protocol protocol, absl::Duration timeout, size_t most,
                           const HeldBack& held_back, Pass pass, Refuse refuse, HasRoom has_room)
    : protocol_(protocol),
      timeout_(absl::ToChronoMilliseconds(timeout)),
      most_(most),
      held_back_(held_back),
      pass_(std::move(pass)),
      refuse_(std::move(refuse)),
      has_room_(std::move(has_room)),
      wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  thread_ = std::thread([this] {
    pthread_setname_np(pthread_self(), "basin-preface");
    Run();
  });
}

PrefaceCheck::~PrefaceCheck() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
  }
  eventfd_write(wake_, 1);
  thread_.join();
  for (const auto& [source, connections] : arrived_) {
    for (const Connection& connection : connections) close(connection.descriptor);
  }
  for (const Silent& silent : silent_) close(silent.connection.descriptor);
  close(wake_);
}

void PrefaceCheck::OnConnection(int descriptor) {
  ++waiting_;
  Connection connection = {descriptor, AddressOf(descriptor), ""};
  connection.source = SourceOf(connection.address);
  Queue(std::move(connection));
}

bool PrefaceCheck::MayPass(const std::string& source) const {
  return has_room_ == nullptr || has_room_(source);
}

void PrefaceCheck::Queue(Connection connection) {
  std::optional<Connection> displaced;
  {
    MutexLock lock(mutex_);
    std::deque<Connection>& others = arrived_[connection.source];
    if (others.size() >= most_) {
      displaced = std::move(others.front());
      others.pop_front();
    }
    others.push_back(std::move(connection));
  }
  eventfd_write(wake_, 1);
  if (displaced.has_value()) RefuseFor(&TransportCounters::floods, *displaced, CrowdOf(most_));
}

Clock::time_point PrefaceCheck::NextArrival() const {
  Clock::time_point next = Clock::time_point::max();
  const Clock::time_point soon = Clock::now() + kUntilThereMayBeRoom;
  for (const auto& [source, connections] : arrived_) {
    const Clock::time_point until = held_back_.Until(source);
    next = std::min(next, MayPass(source) ? until : std::max(until, soon));
  }
  return next;
}

std::vector<PrefaceCheck::Connection> PrefaceCheck::TakeArrived() {
  std::vector<Connection> taken;
  const Clock::time_point now = Clock::now();
  for (auto it = arrived_.begin(); it != arrived_.end();) {
    if (now < held_back_.Until(it->first) || !MayPass(it->first)) {
      ++it;
      continue;
    }
    std::deque<Connection>& connections = it->second;
    taken.push_back(std::move(connections.front()));
    connections.pop_front();
    it = connections.empty() ? arrived_.erase(it) : std::next(it);
  }
  return taken;
}

void PrefaceCheck::Run() {
  std::vector<pollfd> waits;
  Clock::time_point next_arrival = Clock::time_point::max();
  while (true) {
    waits.assign(1, {wake_, POLLIN, 0});
    for (const Silent& silent : silent_) {
      waits.push_back({silent.connection.descriptor, POLLIN, 0});
    }
    const Clock::time_point next =
        silent_.empty() ? next_arrival : std::min(next_arrival, silent_.front().until);
    poll(waits.data(), waits.size(), MillisecondsUntil(next));
    const Clock::time_point now = Clock::now();
    size_t at = 1;
    std::set<std::string> served;  // Sources that had their turn.
    for (auto it = silent_.begin(); it != silent_.end(); ++at) {
      const auto silent = it++;
      const bool time_is_up = now >= silent->until;
      if (waits[at].revents == 0 && !time_is_up) continue;
      if (!time_is_up && !served.insert(silent->connection.source).second) continue;
      if (!Look(silent->connection, time_is_up)) silent_.erase(silent);
    }
    eventfd_t count = 0;
    if (waits[0].revents != 0) eventfd_read(wake_, &count);
    std::vector<Connection> admitted;
    {
      MutexLock lock(mutex_);
      if (stopping_) return;
      admitted = TakeArrived();
      next_arrival = NextArrival();
    }
    for (Connection& connection : admitted) {
      // Readable once all of it is there, or the other end has closed.
      SetLowWater(connection.descriptor, static_cast<int>(kPreface.size()));
      if (Look(connection, false)) WaitForBytes(std::move(connection));
    }
  }
}

void PrefaceCheck::WaitForBytes(Connection connection) {
  if (silent_.size() >= most_) {
    std::vector<HeldConnection> held;
    for (const Silent& silent : silent_) held.push_back({silent.connection.source});
    const ConnectionRoom room = RoomFor(connection.source, held, most_, most_);
    const auto longest = std::next(silent_.begin(), static_cast<ptrdiff_t>(*room.in_place));
    RefuseFor(&TransportCounters::floods, longest->connection,
              absl::StrCat("More than ", most_,
                           " connections had sent nothing yet, no address had more of them, and it "
                           "was silent for the longest time."));
    silent_.erase(longest);
  }
  silent_.push_back({std::move(connection), Clock::now() + timeout_});
}

bool PrefaceCheck::Look(const Connection& connection, bool time_is_up) {
  const int descriptor = connection.descriptor;
  char bytes[kPreface.size()];
  const ssize_t count = recv(descriptor, bytes, sizeof bytes, MSG_PEEK | MSG_DONTWAIT);
  if (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) {
    if (time_is_up) {
      RefuseFor(&TransportCounters::foreign_connections, connection,
                "It connected and sent nothing.");
    }
    return !time_is_up;
  }
  if (count <= 0) {  // Gone again, without a byte: a probe of the port.
    Close(connection);
    return false;
  }
  const std::string_view begin(bytes, static_cast<size_t>(count));
  switch (Judge(begin)) {
    case Verdict::kPass:
      if (!MayPass(connection.source)) {
        Queue(connection);
        return false;
      }
      SetLowWater(descriptor, 1);
      pass_(descriptor);
      --waiting_;
      return false;
    case Verdict::kWait: {
      pollfd end = {descriptor, POLLRDHUP, 0};
      if (!time_is_up && poll(&end, 1, 0) == 0) return true;
      break;
    }
    case Verdict::kRefuse:
      break;
  }
  RefuseBeginning(connection, begin);
  return false;
}

PrefaceCheck::Verdict PrefaceCheck::Judge(std::string_view begin) const {
  if (protocol_ == Protocol::kTls) {
    if (begin.size() >= kHandshake.size() && StartsWith(begin, kHandshake)) return Verdict::kPass;
    return StartsWith(kHandshake, begin) ? Verdict::kWait : Verdict::kRefuse;
  }
  if (begin == kPreface) return Verdict::kPass;
  return StartsWith(kPreface, begin) ? Verdict::kWait : Verdict::kRefuse;
}

void PrefaceCheck::RefuseBeginning(const Connection& connection, std::string_view begin) {
  if (StartsWith(begin, kHandshake)) {
    // This is not TLS, and the client reports that.
    Answer(connection.descriptor, kAnswerToHttp1);
    RefuseFor(
        &TransportCounters::foreign_connections, connection,
        "It speaks TLS, but tls.cert is none: set tls.cert and tls.key, or unset BASIN_TLS_CA "
        "of the client.");
  } else if (begin == kPreface) {
    // This is not HTTP/2, and the client reports that.
    Answer(connection.descriptor, kAnswerToHttp1);
    RefuseFor(&TransportCounters::foreign_connections, connection,
              "It speaks gRPC without TLS, but tls.cert is set: set BASIN_TLS_CA of the client.");
  } else if (LooksLikeHttp1(begin) && !StartsWith(begin, "PRI ")) {
    Answer(connection.descriptor, kAnswerToHttp1);
    RefuseFor(&TransportCounters::foreign_connections, connection,
              "It speaks HTTP/1, but this port speaks gRPC; probes and metrics are on another port "
              "(http.listen).");
  } else {
    RefuseFor(&TransportCounters::foreign_connections, connection, "It does not speak gRPC.");
  }
}

void PrefaceCheck::RefuseFor(Counter TransportCounters::*counter, const Connection& connection,
                             const std::string& what) {
  refuse_(counter, connection.address, what);
  Close(connection);
}

void PrefaceCheck::Close(const Connection& connection) {
  close(connection.descriptor);
  --waiting_;
}

}  // namespace basin::aggregator
