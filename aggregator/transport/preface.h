// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Checks the first bytes of a connection before gRPC gets it: only a connection that begins with
// the preface of HTTP/2, or with a handshake where the port speaks TLS, is passed on. A peer that
// speaks another protocol is refused with a reason that is counted and logged, which gRPC would not
// do; and a silent peer costs a descriptor, but no memory of gRPC.
//
// A client that speaks gRPC with TLS to a port without, or the reverse, gets an answer from which
// it can conclude that (client/transport/grpc/failure.cc).
//
// Thread contract: OnConnection from any thread. `pass` and `refuse` are called on the thread that
// waits; `pass` owns the descriptor then.
// Failure: none; a connection that sends nothing in time is closed, and so is the oldest one when
// too many wait.

#ifndef BASIN_AGGREGATOR_TRANSPORT_PREFACE_H_
#define BASIN_AGGREGATOR_TRANSPORT_PREFACE_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "absl/time/time.h"
#include "runtime/mutex.h"

namespace basin::aggregator {

class PrefaceCheck {
 public:
  using Pass = std::function<void(int descriptor)>;
  // The address of the peer, without its port, and its violation, as a sentence.
  using Refuse = std::function<void(const std::string& address, const std::string& what)>;

  enum class Protocol : uint8_t { kPlain, kTls };

  PrefaceCheck(Protocol protocol, absl::Duration timeout, size_t most_waiting, Pass pass,
               Refuse refuse);
  // Connections that wait are closed.
  ~PrefaceCheck();
  PrefaceCheck(const PrefaceCheck&) = delete;
  PrefaceCheck& operator=(const PrefaceCheck&) = delete;

  void OnConnection(int descriptor);

 private:
  struct Waiting {
    int descriptor;
    std::chrono::steady_clock::time_point until;
  };

  void Run();
  // False once the descriptor has been closed, for example because its time has passed.
  bool Look(int descriptor, bool time_is_up);
  // What the bytes that a peer began with mean for it.
  enum class Verdict : uint8_t { kPass, kWait, kRefuse };
  Verdict Judge(std::string_view begin) const;
  void RefuseBeginning(int descriptor, std::string_view begin);
  void RefuseFor(int descriptor, const std::string& what);

  // Constant after construction.
  const Protocol protocol_;
  const std::chrono::steady_clock::duration timeout_;
  const size_t most_waiting_;
  const Pass pass_;
  const Refuse refuse_;
  const int wake_;  // An eventfd: readable when there is work.

  std::list<Waiting> waiting_;  // For the thread only; in the order of arrival.

  Mutex mutex_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<int> arrived_ ABSL_GUARDED_BY(mutex_);

  std::thread thread_;
};

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_TRANSPORT_PREFACE_H_
