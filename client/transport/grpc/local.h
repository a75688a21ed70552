// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// A worker's end of the local socket of an aggregator on the same machine, in one session.
//
// Thread contract: safe from any thread; has one thread of its own, which takes what comes on the
// socket. Failure: without the socket, or when the aggregator does not answer, nothing is shared.

#ifndef BASIN_CLIENT_TRANSPORT_GRPC_LOCAL_H_
#define BASIN_CLIENT_TRANSPORT_GRPC_LOCAL_H_

#include <atomic>
#include <memory>
#include <string>
#include <thread>

#include "protocol/ids.h"
#include "runtime/shared_memory/segments.h"

namespace basin::client {

class LocalLink {
 public:
  // Null when no process listens at `name`. Does not wait for the aggregator.
  // `features`: the aggregator's in this session.
  static std::unique_ptr<LocalLink> Open(const std::string& name, SessionToken token,
                                         uint64_t features);
  ~LocalLink();
  LocalLink(const LocalLink&) = delete;
  LocalLink& operator=(const LocalLink&) = delete;

  SessionToken token() const { return token_; }
  // What is shared in the session; null before the aggregator has accepted the token.
  std::shared_ptr<Segments> segments() const { return bound_ ? segments_ : nullptr; }

 private:
  LocalLink(int socket, SessionToken token, uint64_t features);

  const SessionToken token_;
  const std::shared_ptr<Segments> segments_;
  std::atomic<bool> bound_{false};
  std::thread thread_;
};

}  // namespace basin::client

#endif  // BASIN_CLIENT_TRANSPORT_GRPC_LOCAL_H_
