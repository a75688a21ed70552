// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Checks the first bytes of a connection before gRPC gets it: only a connection that begins with
// the preface of HTTP/2 is passed on. A peer that speaks another protocol (TLS, HTTP/1) is refused
// with a reason that is counted and logged, which gRPC would not do; and a silent peer costs a
// descriptor, but no memory of gRPC.
//
// Thread contract: Take from any thread. `pass` and `refuse` are called on the thread that waits;
// `pass` owns the descriptor then.
// Failure: none; a connection of which nothing comes in time is closed.

#ifndef BASIN_AGGREGATOR_TRANSPORT_PREFACE_H_
#define BASIN_AGGREGATOR_TRANSPORT_PREFACE_H_

#include <chrono>
#include <functional>
#include <list>
#include <string>
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

  PrefaceCheck(absl::Duration timeout, Pass pass, Refuse refuse);
  // Connections that wait are closed.
  ~PrefaceCheck();
  PrefaceCheck(const PrefaceCheck&) = delete;
  PrefaceCheck& operator=(const PrefaceCheck&) = delete;

  void Take(int descriptor);

 private:
  struct Waiting {
    int descriptor;
    std::chrono::steady_clock::time_point until;
  };

  void Run();
  // False once the descriptor has been closed, for example because its time has passed.
  bool Look(int descriptor, bool time_is_up);
  void RefuseFor(int descriptor, const std::string& what);

  // Constant after construction.
  const std::chrono::steady_clock::duration timeout_;
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
