// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "aggregator/transport/overhead.h"

#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "aggregator/transport/kernel_view.h"
#include "aggregator/transport/socket_calls.h"
#include "runtime/grpc/peer.h"

namespace basin::aggregator {
namespace {

constexpr std::chrono::milliseconds kLookEvery{50};
// gRPC is asked for calls only where something unusual arrives, or a large message, and so often.
constexpr std::chrono::milliseconds kAskEvery{250};

// What any connection may bring at once: the first messages, and the headers of some calls.
constexpr uint64_t kFreeBytes = 64 << 10;
// And between two looks: answers to PING, changes of windows.
constexpr uint64_t kFreeBytesPerLook = 1 << 10;
// The share of framing and TLS in large messages, what a small one costs beside its own bytes, and
// the changes of windows for what was sent.
constexpr uint64_t kMessageBytesPerByte = 32;
constexpr uint64_t kBytesPerMessage = 256;
constexpr uint64_t kSentBytesPerByte = 64;

// A peer learns a while later that a call is over, and sends messages until then. This is the time
// that it has, and the number of calls that may be in this state.
constexpr std::chrono::seconds kLinger{2};
constexpr uint32_t kMostLingering = 4;

// Calls that may begin at once. A worker begins one, a proxy those of many workers.
constexpr uint64_t kMostBegun = 64;

}  // namespace

OverheadGuard::OverheadGuard(uint64_t window, size_t most, Refuse refuse)
    : window_(window), most_(most), refuse_(std::move(refuse)) {
  thread_ = std::thread([this] {
    pthread_setname_np(pthread_self(), "basin-overhead");
    Run();
  });
}

OverheadGuard::~OverheadGuard() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
    changed_.NotifyAll();
  }
  thread_.join();
  for (const auto& [peer, watched] : watched_) close(watched.descriptor);
}

void OverheadGuard::ReportTo(ReportUnheard report) {
  MutexLock lock(mutex_);
  report_ = std::move(report);
}

void OverheadGuard::Add(int descriptor, const std::string& peer) {
  MutexLock lock(mutex_);
  if (watched_.size() >= most_) return;
  const int own = fcntl(descriptor, F_DUPFD_CLOEXEC, 0);
  if (own < 0) return;
  ProbeWhenIdle(own);
  // What came before has been counted.
  const KernelView view = KernelViewOf(own);
  Watched& watched = watched_[peer];
  watched.descriptor = own;
  watched.traffic = std::make_shared<Traffic>();
  watched.received = view.received;
  watched.sent = view.sent;
  if (watched_.size() == 1) changed_.NotifyAll();
}

void OverheadGuard::Forget(const std::string& peer) {
  MutexLock lock(mutex_);
  const auto found = watched_.find(peer);
  if (found == watched_.end()) return;
  close(found->second.descriptor);
  watched_.erase(found);
}

void OverheadGuard::Began(const std::string& peer) {
  MutexLock lock(mutex_);
  const auto found = watched_.find(peer);
  if (found != watched_.end()) ++found->second.traffic->begun;
}

std::shared_ptr<OverheadGuard::Traffic> OverheadGuard::Introduced(const std::string& peer) {
  MutexLock lock(mutex_);
  const auto found = watched_.find(peer);
  if (found == watched_.end()) return nullptr;
  ++found->second.traffic->calls;
  return found->second.traffic;
}

void OverheadGuard::Run() {
  while (true) {
    std::vector<std::pair<std::string, std::string>> violations;  // Address, sentence.
    {
      MutexLock lock(mutex_);
      while (!stopping_ && watched_.empty()) changed_.Wait(mutex_);
      if (stopping_) return;
      unheard_.Begin(std::chrono::steady_clock::now());
      for (auto it = watched_.begin(); it != watched_.end();) {
        std::string what;
        if (Look(it->first, it->second, what)) {
          ++it;
          continue;
        }
        if (!what.empty()) {
          CutOff(it->second.descriptor);
          violations.emplace_back(AddressIn(it->first), std::move(what));
        }
        close(it->second.descriptor);
        it = watched_.erase(it);
      }
      std::vector<UnheardSession> unheard = unheard_.End();
      if (!unheard.empty() && report_ != nullptr) report_(std::move(unheard));
    }
    for (const auto& [address, what] : violations) refuse_(address, what);
    MutexLock lock(mutex_);
    const auto next = std::chrono::steady_clock::now() + kLookEvery;
    while (!stopping_ && std::chrono::steady_clock::now() < next) changed_.WaitUntil(mutex_, next);
  }
}

bool OverheadGuard::HidesCalls(const std::string& peer, Watched& watched) {
  const auto now = std::chrono::steady_clock::now();
  if (now - watched.counted < kAskEvery) return false;
  watched.counted = now;
  if (!watched.socket.has_value()) watched.socket = SocketOf(peer);
  if (!watched.socket.has_value()) return false;
  const std::optional<uint64_t> begun = CallsBegunOn(*watched.socket);
  // Some began before the connection was watched.
  return begun.has_value() && *begun > watched.traffic->begun + 2 * kMostBegun;
}

uint64_t OverheadGuard::AllowanceOf(Watched& watched) const {
  const uint32_t ended = watched.traffic->ended;
  const uint32_t calls = watched.traffic->calls;
  const auto now = std::chrono::steady_clock::now();
  if (ended != watched.ended) {
    watched.lingering = std::min(kMostLingering, watched.lingering + (ended - watched.ended));
    watched.lingers_until = now + kLinger;
    watched.ended = ended;
  } else if (watched.lingering > 0 && now > watched.lingers_until) {
    // What was on its way came to nothing.
    watched.excess -= std::min(watched.excess, watched.lingering * window_);
    watched.lingering = 0;
  }
  return kFreeBytes + (calls - ended + watched.lingering) * window_;
}

bool OverheadGuard::Look(const std::string& peer, Watched& watched, std::string& violation) {
  const Traffic& traffic = *watched.traffic;
  const uint64_t begun = traffic.begun;
  watched.lately += begun - watched.begun;
  watched.begun = begun;
  if (watched.lately > kMostBegun) {
    violation = absl::StrCat("It began ", watched.lately, " calls at once.");
    return false;
  }
  // A proxy passes on the calls of many for a long time.
  if (watched.lately > 0) --watched.lately;
  // The messages are counted before the second view, so they are never more than what the kernel
  // has received.
  const uint64_t before = KernelViewOf(watched.descriptor).received;
  const uint64_t messages = traffic.messages;
  const uint64_t bytes = traffic.bytes;
  const KernelView view = KernelViewOf(watched.descriptor);
  if (view.ended) return false;
  const SessionId session = traffic.session;
  if (session != kNoSession) unheard_.Add(session, view, watched.descriptor);
  // This thread had to wait meanwhile, and messages that it has not counted have arrived.
  if (view.received - before > window_ / 8) return true;
  const uint64_t more = bytes - watched.bytes;
  const uint64_t usual = more + more / kMessageBytesPerByte +
                         (messages - watched.messages) * kBytesPerMessage +
                         (view.sent - watched.sent) / kSentBytesPerByte + kFreeBytesPerLook;
  const uint64_t total = watched.excess + (view.received - watched.received);
  watched.excess = total > usual ? total - usual : 0;
  watched.received = view.received;
  watched.sent = view.sent;
  watched.messages = messages;
  watched.bytes = bytes;
  const uint64_t allowance = AllowanceOf(watched);
  if (watched.excess <= kFreeBytes) return true;
  if (HidesCalls(peer, watched)) {
    violation = "It began calls and reset them at once.";
    return false;
  }
  if (watched.excess <= allowance) return true;
  violation = absl::StrCat("It sent ", watched.excess,
                           " bytes that belong to no message, beside those of its worker.");
  return false;
}

}  // namespace basin::aggregator
