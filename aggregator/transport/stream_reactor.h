// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// One stream of a worker: what the aggregator's side adds to a StreamMachine.
//
// The first message is waited for until `introduction`. Finish is called once, after the last write
// has ended, and nothing is started after it.
//
// How a stream ends: Close() decides the status and whether waiting messages are still sent. The
// connection of a peer that does not receive them within `linger` is closed.
//
// Ownership and thread contract: as for StreamMachine; gRPC calls OnDone last.

#ifndef BASIN_AGGREGATOR_TRANSPORT_STREAM_REACTOR_H_
#define BASIN_AGGREGATOR_TRANSPORT_STREAM_REACTOR_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "aggregator/auth/grants.h"
#include "aggregator/transport/counters.h"
#include "aggregator/transport/newcomers.h"
#include "grpcpp/alarm.h"
#include "grpcpp/server_context.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/server_callback.h"
#include "runtime/grpc/stream_machine.h"
#include "runtime/mutex.h"

namespace basin::aggregator {

struct StreamLimits {
  StreamWindow window;
  uint64_t queue_bytes = 0;  // StreamOptions::most_waiting_bytes.
  // For the first message to come.
  absl::Duration introduction = absl::Seconds(10);
  // For the last messages to be taken.
  absl::Duration linger = absl::Seconds(2);
};

class StreamReactor : public grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>,
                      public StreamMachine {
 public:
  enum class Rest : uint8_t { kDrop, kSend };  // The fate of waiting messages.

  // `inbox`: the one of `counters` for what it holds. REQUIRES: `context` is that of the call;
  // `counters` and `newcomers` outlive the reactor.
  StreamReactor(grpc::CallbackServerContext* context, const StreamLimits& limits,
                TransportCounters& counters, Counter& inbox, Newcomers& newcomers);
  ~StreamReactor() override;

  // Begins to read. REQUIRES: called once, by its creator, before it is returned to gRPC.
  void Start();

  // Ends the stream. The first one counts.
  void Close(const absl::Status& why, Rest rest);

  // gRPC's name for the other end.
  const std::string& peer() const { return peer_; }

  // What the caller presented.
  const Credentials& credentials() const { return credentials_; }

  // ---- gRPC's
  void OnReadDone(bool ok) final;
  void OnWriteDone(bool ok) final;
  void OnCancel() final;
  void OnDone() final;

 protected:
  // The stream is over, or will be; called exactly once, on a thread of gRPC. `ended`: why it was
  // closed here; OK if the peer or the network ended it.
  virtual void Over(const absl::Status& ended) = 0;

  // Counts why OnMessage was not OK.
  virtual void Count(const absl::Status& why) = 0;

  // The begin of the first message made sense: the peer learns that it may go on.
  void OnFirstBytes();
  // The first message made sense: the peer is given time.
  void Introduced();

  // The messages of its connection are of this session from now on. REQUIRES: it was introduced.
  void BelongsTo(SessionId session);

  // Reads nothing until Resume.
  void Pause();
  void Resume();

  TransportCounters& counters() { return counters_; }

 private:
  void StartOperation(Operation operation) final;
  Operation NextOfSide() final ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void AfterMessage(const absl::Status& taken) final;
  void OnSlowReader(uint64_t waiting_bytes) final;
  // Ends the stream because of an act or an omission of the peer.
  void Fail(const absl::Status& why);
  void IntroductionIsOverdue();
  // The connection is that of a worker.
  void CountTraffic();
  // Calls Over, unless OnMessage is running; then it is called after that.
  void ReportOver();

  // Constant after construction.
  grpc::CallbackServerContext* const context_;  // Used until Finish.
  const std::string peer_;
  const Credentials credentials_;
  const StreamLimits limits_;
  TransportCounters& counters_;
  Newcomers& newcomers_;

  std::shared_ptr<OverheadGuard::Traffic> traffic_;  // That of reading; null: nobody counts.
  grpc::Alarm introduction_alarm_;

  bool first_bytes_read_ ABSL_GUARDED_BY(mutex_) = false;
  bool greeted_ ABSL_GUARDED_BY(mutex_) = false;  // The initial metadata were sent.
  bool introduced_ ABSL_GUARDED_BY(mutex_) = false;
  uint64_t introduction_bytes_ ABSL_GUARDED_BY(mutex_) = 0;      // An incomplete first one.
  std::optional<absl::Status> closing_ ABSL_GUARDED_BY(mutex_);  // The status, once decided.
  bool over_ ABSL_GUARDED_BY(mutex_) = false;                    // To be sent,
  bool over_reported_ ABSL_GUARDED_BY(mutex_) = false;           // and has been.
};

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_TRANSPORT_STREAM_REACTOR_H_
