// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "aggregator/transport/newcomers.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <iterator>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "aggregator/transport/kernel_view.h"
#include "proto/wire/session_stream.h"
#include "protocol/limits/limits.h"
#include "runtime/grpc/peer.h"

namespace basin::aggregator {
namespace {

// All connections are looked at when something has come on one of them, but not more often than
// this, and not for more than a twentieth of the time: a look at one takes half a microsecond.
constexpr std::chrono::microseconds kBetweenLooks{1000};
constexpr std::chrono::microseconds kBetweenLooksForEach{10};

// The preface, settings, the certificates of a TLS handshake, the headers of a call with a token,
// and the first message.
constexpr uint64_t kMostBytes = 64 << 10;
static_assert(kMostBytes >= 2 * (kMaxMetadataBytes + wire::kMaxFirstMessageBytes));

// For a handshake, where others of the address wait.
constexpr std::chrono::seconds kHandshakeTime{1};
constexpr int kLookAtCrowdsEvery = 100;  // Milliseconds.

// A worker begins one; a probe some.
constexpr uint32_t kMostCalls = 64;

// What connections of one address that end without a valid message may bring: so much, and for each
// second as much more. gRPC begins some of their calls only when they have ended.
constexpr double kMostUselessBytes = 128 << 10;

}  // namespace

std::string CrowdOf(size_t most) {
  return absl::StrCat("It had ", most,
                      " connections that had sent no valid message, and opened another; the oldest "
                      "was closed.");
}

Newcomers::Newcomers(size_t most_of_an_address, Refuse refuse, Left left, size_t most_waiting,
                     OverheadGuard* guard)
    : most_of_an_address_(most_of_an_address),
      refuse_(std::move(refuse)),
      left_(std::move(left)),
      most_waiting_(most_waiting),
      guard_(guard),
      news_(epoll_create1(EPOLL_CLOEXEC)),
      wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  epoll_event wake = {EPOLLIN, {}};
  wake.data.fd = wake_;
  epoll_ctl(news_, EPOLL_CTL_ADD, wake_, &wake);
  thread_ = std::thread([this] {
    pthread_setname_np(pthread_self(), "basin-newcomers");
    Run();
  });
}

Newcomers::~Newcomers() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
    changed_.NotifyAll();
  }
  Wake();
  thread_.join();
  for (const auto& [peer, newcomer] : newcomers_) {
    if (!newcomer.displaced()) close(newcomer.descriptor);
  }
  close(wake_);
  close(news_);
}

void Newcomers::Wake() { eventfd_write(wake_, 1); }

void Newcomers::Add(int descriptor) {
  std::string peer = PeerOf(descriptor);
  if (peer.empty()) return;
  const int own = fcntl(descriptor, F_DUPFD_CLOEXEC, 0);
  if (own < 0) return;
  if (guard_ != nullptr) guard_->Forget(peer);
  MutexLock lock(mutex_);
  const auto earlier = newcomers_.find(peer);
  if (earlier != newcomers_.end()) Forget(earlier);  // Its connection is over.
  const std::string source = SourceOf(AddressIn(peer));
  MakeRoom(source);
  Newcomer newcomer;
  newcomer.descriptor = own;
  newcomer.number = ++last_number_;
  newcomer.came = std::chrono::steady_clock::now();
  Source& among = sources_[source];
  among.peers.emplace(newcomer.number, peer);
  if (++among.waiting >= most_waiting_) Wake();  // They have little time from now on.
  newcomers_.emplace(std::move(peer), newcomer);
  // What has come before is news as well.
  epoll_event news = {EPOLLIN | EPOLLRDHUP | EPOLLET, {}};
  news.data.fd = own;
  epoll_ctl(news_, EPOLL_CTL_ADD, own, &news);
}

void Newcomers::Release(int descriptor) {
  // gRPC has the connection open, so this is not implied.
  epoll_ctl(news_, EPOLL_CTL_DEL, descriptor, nullptr);
  close(descriptor);
}

void Newcomers::MakeRoom(const std::string& source) {
  const auto found = sources_.find(source);
  if (found == sources_.end() || found->second.peers.size() < most_of_an_address_) return;
  Source& among = found->second;
  const auto first = among.peers.begin();
  Newcomer& displaced = newcomers_.at(first->second);
  CutOff(displaced.descriptor);
  // Until the next look, a flood would displace more of them than there are descriptors.
  Release(std::exchange(displaced.descriptor, -1));
  among.peers.erase(first);
  if (displaced.calls == 0) --among.waiting;
  Wake();
}

Newcomers::ByPeer::iterator Newcomers::Forget(ByPeer::iterator newcomer) {
  if (!newcomer->second.displaced()) {
    Release(newcomer->second.descriptor);
    const auto among = sources_.find(SourceOf(AddressIn(newcomer->first)));
    among->second.peers.erase(newcomer->second.number);
    if (newcomer->second.calls == 0) --among->second.waiting;
    if (among->second.peers.empty()) sources_.erase(among);
  }
  return newcomers_.erase(newcomer);
}

bool Newcomers::HasRoom(const std::string& source) {
  MutexLock lock(mutex_);
  const auto found = sources_.find(source);
  return found == sources_.end() || found->second.waiting < most_waiting_;
}

void Newcomers::Began(const std::string& peer) {
  {
    MutexLock lock(mutex_);
    const auto found = newcomers_.find(peer);
    if (found != newcomers_.end()) {
      if (++found->second.calls == 1 && !found->second.displaced()) {
        --sources_.at(SourceOf(AddressIn(peer))).waiting;
      }
      // At once: many begin between two looks.
      if (found->second.calls == kMostCalls + 1 && !found->second.displaced()) {
        CutOff(found->second.descriptor);
        Wake();
      }
      return;
    }
  }
  if (guard_ != nullptr) guard_->Began(peer);
}

std::shared_ptr<OverheadGuard::Traffic> Newcomers::Introduced(const std::string& peer) {
  {
    MutexLock lock(mutex_);
    const auto found = newcomers_.find(peer);
    if (found != newcomers_.end() && !found->second.displaced()) {
      if (guard_ != nullptr) guard_->Add(found->second.descriptor, peer);
      Forget(found);
    }
  }
  return guard_ == nullptr ? nullptr : guard_->Introduced(peer);
}

void Newcomers::Run() {
  bool crowded = false;
  while (true) {
    AwaitNews(crowded);
    Findings found;
    {
      MutexLock lock(mutex_);
      if (stopping_) return;
      found = Look();
    }
    crowded = found.crowded;
    for (const Violation& one : found.violations) refuse_(one.address, one.what, one.flooded);
    for (const std::string& address : found.left) left_(address);
    MutexLock lock(mutex_);
    const auto many = static_cast<int64_t>(newcomers_.size());
    const auto next =
        std::chrono::steady_clock::now() + std::max(kBetweenLooks, many * kBetweenLooksForEach);
    while (!stopping_ && std::chrono::steady_clock::now() < next) changed_.WaitUntil(mutex_, next);
  }
}

bool Newcomers::Exhausts(const std::string& source, uint64_t bytes) {
  const auto now = std::chrono::steady_clock::now();
  const auto left = [&](const Tally& tally) {
    const std::chrono::duration<double> since = now - tally.at;
    return std::max(0.0, tally.bytes - since.count() * kMostUselessBytes);
  };
  for (auto it = tallies_.begin(); it != tallies_.end();) {
    it = left(it->second) == 0 ? tallies_.erase(it) : std::next(it);
  }
  Tally& tally = tallies_[source];
  tally = {left(tally) + static_cast<double>(bytes), now};
  if (tally.bytes <= kMostUselessBytes) return false;
  tallies_.erase(source);
  return true;
}

void Newcomers::AwaitNews(bool crowded) {
  // Each connection is reported once for all that came since it was reported before.
  epoll_event news[256];
  epoll_wait(news_, news, std::size(news), crowded ? kLookAtCrowdsEvery : -1);
  eventfd_t count = 0;
  eventfd_read(wake_, &count);
}

Newcomers::Findings Newcomers::Look() {
  Findings found;
  const auto now = std::chrono::steady_clock::now();
  std::set<std::string> crowds;  // Sources.
  for (const auto& [source, among] : sources_) {
    if (among.waiting >= most_waiting_) crowds.insert(source);
  }
  found.crowded = !crowds.empty();
  std::set<std::string> blamed;
  for (auto it = newcomers_.begin(); it != newcomers_.end();) {
    const auto& [peer, newcomer] = *it;
    if (newcomer.displaced()) {
      found.violations.push_back({AddressIn(peer), CrowdOf(most_of_an_address_), false});
      it = Forget(it);
      continue;
    }
    std::string what;
    const KernelView view = KernelViewOf(newcomer.descriptor);
    if (newcomer.calls > kMostCalls) {
      what = absl::StrCat("It began ", newcomer.calls,
                          " calls on one connection, and none of them received a valid message.");
    } else if (view.received > kMostBytes) {
      what = absl::StrCat("It sent ", view.received, " bytes before its first valid message, for ",
                          newcomer.calls, " calls.");
    }
    bool flooded = true;
    if (what.empty() && newcomer.calls == 0 && now - newcomer.came > kHandshakeTime) {
      if (std::string source = SourceOf(AddressIn(peer)); crowds.count(source) > 0) {
        what = absl::StrCat("It began ", most_waiting_,
                            " TLS handshakes at a time, and did not finish this one for a second.");
        flooded = blamed.insert(std::move(source)).second;  // Once.
      }
    }
    const bool cut = !what.empty();
    if (cut) {
      CutOff(newcomer.descriptor);
      found.violations.push_back({AddressIn(peer), std::move(what), flooded});
    } else if (view.ended && Exhausts(SourceOf(AddressIn(peer)), view.received)) {
      found.violations.push_back(
          {AddressIn(peer),
           "It opened one connection after the other, and ended each without a valid message."});
    } else if (view.ended && newcomer.calls == 0) {
      found.left.push_back(AddressIn(peer));
    }
    if (cut || view.ended) {
      it = Forget(it);
    } else {
      ++it;
    }
  }
  return found;
}

}  // namespace basin::aggregator
