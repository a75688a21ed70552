// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The worker's channels over gRPC: a session is a call of basin.v1.Session/Run, a data stream one
// of basin.v1.Exchange/Run, each on its own TCP connection. Messages are gRPC's bytes without a
// copy: a trainer's tensors are sent from its memory, and received bytes are kept where gRPC put
// them.
//
// Ownership: gRPC's threads exist while a connector does. A channel releases lent memory when gRPC
// has released it; a channel that is closed gets it back at once, by closing its connection. Thread
// contract: as in channel.h. The destructor ends the remaining connections. Failure: as in
// channel.h; failure.h writes the texts.

#ifndef BASIN_CLIENT_TRANSPORT_GRPC_CONNECTOR_H_
#define BASIN_CLIENT_TRANSPORT_GRPC_CONNECTOR_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "client/transport/channel.h"
#include "client/transport/grpc/call.h"
#include "client/transport/grpc/local.h"
#include "runtime/grpc/credentials.h"
#include "runtime/grpc/settings.h"

namespace basin::client {

// The addresses of aggregators, of which one leads: those between commas.
std::vector<std::string> AddressesIn(const std::string& text);

class GrpcConnector : public Connector {
 public:
  // `addresses`: host:port, or another target that gRPC understands, or several of them with commas
  // between. Each is resolved anew for each connection, so an aggregator may move. One of several
  // aggregators leads: after a session that got no welcome, or that the worker has closed, the next
  // one is opened at the next address.
  // `tls` and `token_file`: read for each connection, so they are rotated without a restart; a file
  // that cannot be read ends the connection with the reason.
  // `local`: whether memory is shared with an aggregator on this machine that offers it.
  explicit GrpcConnector(const std::string& addresses, ClientTls tls = {},
                         const GrpcSettings& settings = {}, const StreamWindow& window = {},
                         std::string token_file = "", bool local = true);
  ~GrpcConnector() override;
  GrpcConnector(const GrpcConnector&) = delete;
  GrpcConnector& operator=(const GrpcConnector&) = delete;

  // The session is up at once: the hello waits for the connection, which may yet fail.
  std::shared_ptr<SessionChannel> OpenSession(std::shared_ptr<SessionListener> listener) override;
  // Memory is shared, and frames travel on the session, only where the shard is the aggregator of
  // the session.
  std::shared_ptr<StreamChannel> OpenStream(uint32_t number, SessionToken token,
                                            const PlacedShard& shard,
                                            std::shared_ptr<StreamListener> listener) override;

  uint64_t features() const override;
  void Flush() override;
  std::shared_ptr<Segments> shared() override;

  // What a session has received about the aggregator's local socket.
  struct Local {
    Mutex mutex;
    std::string name ABSL_GUARDED_BY(mutex);
    std::unique_ptr<LocalLink> link ABSL_GUARDED_BY(mutex);
    uint64_t features ABSL_GUARDED_BY(mutex) = 0;  // The aggregator's in the session.
    bool refused ABSL_GUARDED_BY(mutex) = false;   // A session that used it: not again.

    // What the present session shares; null if nothing.
    std::shared_ptr<Segments> segments();
  };

  // What waits to be sent on the present session. Sends it, and takes no more, once the session is
  // closed.
  class Sending;

  // How a session went, which decides where the next one is opened.
  enum class Course : uint8_t {
    kNotWelcome,  // Nobody has welcomed the worker, or the worker has ended the session.
    kWelcome,
    kLost,  // It was welcome, and then the connection broke, or the other side ended the stream.
  };

 private:
  const std::vector<std::string> addresses_;
  const std::shared_ptr<Local> local_;  // Null: no memory is shared.
  // The loop's: where the present session is, and how it goes.
  CallOptions options_;
  size_t place_ = 0;
  std::shared_ptr<std::atomic<Course>> course_;
  std::weak_ptr<Sending> sending_;  // That of the present session; the loop's.
};

}  // namespace basin::client

#endif  // BASIN_CLIENT_TRANSPORT_GRPC_CONNECTOR_H_
