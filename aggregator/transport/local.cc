// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "aggregator/transport/local.h"

#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

namespace basin::aggregator {
namespace {

using std::chrono::steady_clock;

// For the token, which a worker sends with the connection.
constexpr auto kTokenTime = std::chrono::seconds(2);

// Connections without a token: more than workers that start together in one moment.
constexpr size_t kMaxWaiting = 128;

// The wait before the next attempt after accepting a connection has failed.
constexpr auto kAcceptPause = std::chrono::milliseconds(100);

}  // namespace

absl::StatusOr<std::unique_ptr<LocalServer>> LocalServer::Start(
    const std::string& name, uint64_t most_bytes, TransportCounters& counters, Report report,
    const DeviceOpener* devices, Report refused) {
  std::unique_ptr<PrivateDirectory> directory;
  if (name.empty()) {
    PrivateDirectory::RemoveAbandoned();
    absl::StatusOr<std::unique_ptr<PrivateDirectory>> made = PrivateDirectory::Make();
    if (!made.ok()) return made.status();
    directory = *std::move(made);
  }
  std::string chosen = directory == nullptr ? name : directory->SocketName();
  const absl::StatusOr<int> listener = ListenLocal(chosen);
  if (!listener.ok()) return listener.status();
  const int wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  std::unique_ptr<LocalServer> server(
      new LocalServer(std::move(chosen), std::move(directory), most_bytes, *listener, wake,
                      counters, std::move(report), devices, std::move(refused)));
  if (wake < 0) {
    return absl::ResourceExhaustedError("No file descriptor is left for the local socket.");
  }
  server->thread_ = std::thread([raw = server.get()] {
    pthread_setname_np(pthread_self(), "basin-local");
    raw->Run();
  });
  return server;
}

LocalServer::LocalServer(std::string name, std::unique_ptr<PrivateDirectory> directory,
                         uint64_t most_bytes, int listener, int wake, TransportCounters& counters,
                         Report report, const DeviceOpener* devices, Report refused)
    : directory_(std::move(directory)),
      name_(std::move(name)),
      file_(SocketFileAt(name_)),
      most_bytes_(most_bytes),
      listener_(listener),
      wake_(wake),
      counters_(counters),
      report_(std::move(report)),
      devices_(devices),
      refused_(std::move(refused)) {}

LocalServer::~LocalServer() {
  if (thread_.joinable()) {
    const uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = write(wake_, &one, sizeof(one));
    thread_.join();
    close(wake_);
  }
  close(listener_);
  RemoveSocket(name_, file_);
}

void LocalServer::Admit(SessionToken token) {
  MutexLock lock(mutex_);
  sessions_.try_emplace(token, nullptr);
}

void LocalServer::Forget(SessionToken token) {
  std::shared_ptr<Segments> gone;  // Unmapped without the lock.
  MutexLock lock(mutex_);
  const auto found = sessions_.find(token);
  if (found == sessions_.end()) return;
  gone = std::move(found->second);
  sessions_.erase(found);
  past_.Add(token);
  if (gone != nullptr) gone->Close();
}

std::shared_ptr<Segments> LocalServer::Find(SessionToken token) const {
  MutexLock lock(mutex_);
  const auto found = sessions_.find(token);
  return found == sessions_.end() ? nullptr : found->second;
}

void LocalServer::WithdrawUnused() const {
  MutexLock lock(mutex_);
  for (const auto& [token, segments] : sessions_) {
    if (segments != nullptr) segments->WithdrawUnused();
  }
}

uint64_t LocalServer::SumOf(uint64_t (Segments::*bytes)() const) const {
  uint64_t sum = 0;
  MutexLock lock(mutex_);
  for (const auto& [token, segments] : sessions_) {
    if (segments != nullptr) sum += (segments.get()->*bytes)();
  }
  return sum;
}

void LocalServer::Run() {
  std::vector<pollfd> polled;
  while (true) {
    size_t waiting = 0;
    int timeout = -1;
    const auto now = steady_clock::now();
    for (auto it = connections_.begin(); it != connections_.end();) {
      if (!it->token.has_value() && it->until <= now) {
        Refuse("It opened the local socket and presented no token in time.");
        it = connections_.erase(it);
        continue;
      }
      if (!it->token.has_value()) {
        ++waiting;
        const auto left =
            std::chrono::duration_cast<std::chrono::milliseconds>(it->until - now).count() + 1;
        timeout = timeout < 0 ? static_cast<int>(left) : std::min(timeout, static_cast<int>(left));
      }
      ++it;
    }
    polled.clear();
    polled.push_back({wake_, POLLIN, 0});
    // While too many connections are silent, no other is accepted.
    const bool pausing = now < accept_again_;
    if (pausing && timeout < 0) timeout = static_cast<int>(kAcceptPause.count());
    polled.push_back({waiting < kMaxWaiting && !pausing ? listener_ : -1, POLLIN, 0});
    for (const Connection& connection : connections_) {
      polled.push_back({connection.segments->socket(), connection.segments->events(), 0});
    }
    if (poll(polled.data(), polled.size(), timeout) < 0) continue;
    if (polled[0].revents != 0) return;
    auto next = polled.begin() + 2;
    for (auto it = connections_.begin(); it != connections_.end(); ++next) {
      it = next->revents == 0 || OnReadable(*it) ? std::next(it) : connections_.erase(it);
    }
    if (polled[1].revents != 0) Accept();
  }
}

void LocalServer::Accept() {
  const int socket = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
  if (socket < 0) {
    // The peer has gone, or no descriptor is left, which may last.
    accept_again_ = steady_clock::now() + kAcceptPause;
    return;
  }
  connections_.push_back({std::make_shared<Segments>(socket, most_bytes_, devices_),
                          steady_clock::now() + kTokenTime, std::nullopt});
}

bool LocalServer::OnReadable(Connection& connection) {
  absl::Status status;
  if (!connection.token.has_value()) {
    const absl::StatusOr<SegmentMessage> message = connection.segments->ReceiveOpening();
    if (message.ok()) return Open(connection, *message);
    status = message.status();
  } else {
    status = connection.segments->Receive();
    const std::string refusal = connection.segments->TakeRefusal();
    if (!refusal.empty() && refused_ != nullptr) refused_(refusal);
  }
  if (status.ok()) return true;
  if (absl::IsInvalidArgument(status)) Refuse(std::string(status.message()));
  connection.segments->Close();  // The session may keep it, for what is mapped.
  return false;
}

bool LocalServer::Open(Connection& connection, const SegmentMessage& message) {
  bool known = false;
  bool past = false;
  if (message.kind == SegmentMessage::Kind::kToken) {
    MutexLock lock(mutex_);
    const auto found = sessions_.find(message.number);
    known = found != sessions_.end() && found->second == nullptr;
    if (known) found->second = connection.segments;
    past = past_.Has(message.number);
  }
  if (past && !known) return false;
  if (!known) {
    Refuse("It opened the local socket with the token of no session.");
    return false;
  }
  connection.token = message.number;
  ++counters_.local_sessions;
  return connection.segments->Send({SegmentMessage::Kind::kWelcome, 0, 0}).ok();
}

void LocalServer::Refuse(const std::string& what) {
  ++counters_.local_refused;
  if (report_ != nullptr) report_(what);
}

}  // namespace basin::aggregator
