// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// A shard's connection with its coordinator: opened, opened again with backoff when it ends, and
// read. One of several coordinators leads; the next one is tried when one refuses.
//
// Thread contract: Start and Stop from one thread, one after the other; everything else from any
// thread. The listener is called from threads of gRPC and from that of the link, one call at a
// time, and not after Stop has returned.
// Failure: none of its own; why there is no connection is in view().

#ifndef BASIN_AGGREGATOR_SHARD_COORDINATOR_LINK_H_
#define BASIN_AGGREGATOR_SHARD_COORDINATOR_LINK_H_

#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "aggregator/engine/shard_messages.h"
#include "client/transport/grpc/call.h"
#include "runtime/grpc/credentials.h"
#include "runtime/grpc/settings.h"
#include "runtime/mutex.h"

namespace basin::aggregator {

struct LinkOptions {
  std::vector<std::string> coordinators;  // host:port; at least one.
  ClientTls tls;
  std::string token_file;
  GrpcSettings grpc;
  ShardHello hello;
  // Events that wait to be sent have at most this much. More, and the connection ends.
  uint64_t most_waiting_bytes = uint64_t{256} << 20;
  // Doubles from the least to the most, with each attempt in vain.
  absl::Duration least_backoff = absl::Milliseconds(100);
  absl::Duration most_backoff = absl::Seconds(2);
};

class CoordinatorLink {
 public:
  class Listener {
   public:
    virtual ~Listener() = default;
    // `link` names the connection; it is never used for two.
    virtual void OnLinked(uint64_t link, const ShardWelcome& welcome) = 0;
    // `bytes` are to be given to Consumed.
    virtual void OnSteps(uint64_t link, std::vector<ShardStep> steps, uint64_t bytes) = 0;
    // Comes once after each OnLinked, unless Stop was called.
    virtual void OnUnlinked(const absl::Status& why) = 0;
    // An attempt failed, or was refused, for another reason than the one before.
    virtual void OnRefused(const absl::Status& why) = 0;
  };

  explicit CoordinatorLink(LinkOptions options);
  ~CoordinatorLink();
  CoordinatorLink(const CoordinatorLink&) = delete;
  CoordinatorLink& operator=(const CoordinatorLink&) = delete;

  // REQUIRES: the listener outlives Stop.
  void Start(Listener& listener, std::string endpoint);
  // The shard is to end: reports ShardDraining to the coordinator, and opens no other connection.
  // Returns whether there is none any more: at once if there was none, and false when it has lasted
  // for so long. Then Stop.
  bool Drain(absl::Duration most);
  void Stop();

  // ---- of this connection; they have no effect when it is over
  void Send(uint64_t link, const std::vector<ShardEvent>& events);
  void Consumed(uint64_t link, uint64_t bytes);
  // Ends it for this reason.
  void Break(uint64_t link, const absl::Status& why);

  // OK: connected. Otherwise why not.
  absl::Status view() const;

 private:
  class LinkCall;

  void Run();
  // Opens a connection, and returns when it is over; whether it was welcome.
  bool Attempt(const std::string& address);
  // The call of the connection; null if it is over.
  std::shared_ptr<LinkCall> Find(uint64_t link);
  // ---- of the present call
  absl::Status Take(LinkCall* call, const std::string& bytes);
  void Over(LinkCall* call, const absl::Status& why);
  void End(LinkCall* call, const absl::Status& why);

  LinkOptions options_;
  const std::shared_ptr<client::Calls> calls_ = std::make_shared<client::Calls>();
  Listener* listener_ = nullptr;  // Constant from Start to Stop.

  mutable Mutex mutex_;
  Condition changed_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  bool draining_ ABSL_GUARDED_BY(mutex_) = false;
  std::shared_ptr<LinkCall> call_ ABSL_GUARDED_BY(mutex_);  // Null: there is none.
  bool linked_ ABSL_GUARDED_BY(mutex_) = false;             // It was welcome,
  uint64_t link_ ABSL_GUARDED_BY(mutex_) = 0;               // and is this connection.
  bool ending_ ABSL_GUARDED_BY(mutex_) = false;             // Its end is being reported.
  absl::Status why_ ABSL_GUARDED_BY(mutex_);                // There is no connection.
  std::string refusal_ ABSL_GUARDED_BY(mutex_);             // The last that was reported.
  std::thread thread_;
};

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_SHARD_COORDINATOR_LINK_H_
