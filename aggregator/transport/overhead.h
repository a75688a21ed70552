// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Limits what the connection of a worker brings beside messages. gRPC says nothing of calls that
// are reset at once, headers that do not end, or PING, and bounds none of them. So the bytes that
// the kernel has received on a connection are compared with those of the messages that arrived: the
// difference is what is on its way, which the windows of its calls bound, and a small share for
// framing and for answers to what was sent. A connection that brings more, or begins many calls
// without a valid message, is reset.
//
// The same looks show which sessions the kernel hears nothing of (unheard.h).
//
// A connection is watched through a separate descriptor, so that never another one is closed.
//
// Thread contract: safe from any thread; `refuse` and `report` are called on the thread that
// watches, `report` under a lock. Failure: connections beyond the number that is watched are not.

#ifndef BASIN_AGGREGATOR_TRANSPORT_OVERHEAD_H_
#define BASIN_AGGREGATOR_TRANSPORT_OVERHEAD_H_

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "aggregator/core/event.h"
#include "aggregator/transport/unheard.h"
#include "runtime/mutex.h"

namespace basin::aggregator {

class OverheadGuard {
 public:
  // An engine gives no session this number.
  static constexpr SessionId kNoSession = 0;

  // The address of the peer, without its port, and its violation, as a sentence.
  using Refuse = std::function<void(const std::string& address, const std::string& what)>;

  using ReportUnheard = std::function<void(std::vector<UnheardSession> sessions)>;

  // What the calls of a connection count.
  struct Traffic {
    std::atomic<uint64_t> messages = 0;
    std::atomic<uint64_t> bytes = 0;  // The size of these messages.
    std::atomic<uint32_t> calls = 0;  // Calls that had a valid message.
    std::atomic<uint32_t> ended = 0;  // Calls among them that are over.
    std::atomic<uint64_t> begun = 0;  // Calls that a handler has learned of.
    // The session to which the last call belongs; none before its hello, or its welcome of a data
    // stream.
    std::atomic<SessionId> session = kNoSession;
  };

  // `window`: the bytes that a call may have on their way; `most`: the connections that are
  // watched.
  OverheadGuard(uint64_t window, size_t most, Refuse refuse);
  ~OverheadGuard();
  OverheadGuard(const OverheadGuard&) = delete;
  OverheadGuard& operator=(const OverheadGuard&) = delete;

  // `report` gets what the looks show (SessionsUnheard), and must not block; null: nobody does.
  void ReportTo(ReportUnheard report);

  // A connection, by its descriptor and by gRPC's name for its other end, has brought its first
  // valid message.
  void Add(int descriptor, const std::string& peer);
  // A new connection has this name, so an earlier one is over.
  void Forget(const std::string& peer);

  // A call began on a connection; nothing happens if it is not watched.
  void Began(const std::string& peer);
  // A call had its first valid message. Null if the connection is not watched. The call counts its
  // messages there, and its end.
  std::shared_ptr<Traffic> Introduced(const std::string& peer);

 private:
  struct Watched {
    int descriptor = -1;
    std::shared_ptr<Traffic> traffic;
    uint64_t received = 0;  // At the last look, as are the next four.
    uint64_t sent = 0;
    uint64_t messages = 0;
    uint64_t bytes = 0;
    uint64_t begun = 0;
    uint64_t excess = 0;     // Bytes that are neither of messages nor a usual overhead.
    uint64_t lately = 0;     // Calls that began, less one for each look.
    uint32_t ended = 0;      // At the last look.
    uint32_t lingering = 0;  // Calls that are over, and whose messages may still be on their way,
    std::chrono::steady_clock::time_point lingers_until;  // until then.
    std::optional<int64_t> socket;                        // As SocketOf.
    std::chrono::steady_clock::time_point counted;        // When gRPC was last asked for its calls.
  };
  using ByPeer = std::map<std::string, Watched>;

  void Run();
  // Looks at one; returns whether its connection goes on. `violation` stays empty without one.
  bool Look(const std::string& peer, Watched& watched, std::string& violation);
  // The bytes that may be on their way.
  uint64_t AllowanceOf(Watched& watched) const;
  // Whether gRPC counts many more calls on the connection than handlers have learned of.
  static bool HidesCalls(const std::string& peer, Watched& watched);

  const uint64_t window_;
  const size_t most_;
  const Refuse refuse_;

  Unheard unheard_;  // For the thread only.

  Mutex mutex_;
  Condition changed_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  ReportUnheard report_ ABSL_GUARDED_BY(mutex_);
  ByPeer watched_ ABSL_GUARDED_BY(mutex_);

  std::thread thread_;
};

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_TRANSPORT_OVERHEAD_H_
