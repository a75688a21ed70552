// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// One stream of a worker in gRPC's callback API, and the only place that knows its rules:
//
//   - at most one read and one write are in flight;
//   - Finish is called once, after the last write has ended, and nothing is started after it;
//   - gRPC may call from any of its threads, also while the engine's loop calls from its own;
//   - OnDone is the last callback.
//
// Reading follows room. Bytes that were handed on and are not reported as Consumed are held; while
// they fill the window, no read is started, HTTP/2's own window fills up, and the peer stops.
//
// How operations are started: each is chosen under the lock and started outside of it, by one
// thread at a time. If another thread is already starting operations, it also starts those of this
// thread. So gRPC is never called under a lock, no two threads start operations out of order, and
// nothing can follow Finish.
//
// How a stream ends: Close() decides the status and whether waiting messages are still sent. The
// connection of a peer that does not receive them within `linger` is closed.
//
// Ownership: a reactor owns itself from Start() until gRPC has called OnDone; other users hold a
// shared pointer. Thread contract: safe from any thread.

#ifndef BASIN_AGGREGATOR_TRANSPORT_STREAM_REACTOR_H_
#define BASIN_AGGREGATOR_TRANSPORT_STREAM_REACTOR_H_

#include <cstdint>
#include <deque>
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
#include "runtime/mutex.h"

namespace basin::aggregator {

struct StreamLimits {
  // Bytes and messages that were read and are not dealt with; the message that passes it is still
  // read.
  uint64_t window_bytes = 0;
  uint32_t window_messages = 256;
  // Bytes that wait to be written, with the overhead of each message. A message beyond this limit
  // ends the stream: its reader is too slow.
  uint64_t queue_bytes = 0;
  // For the first message to come.
  absl::Duration introduction = absl::Seconds(10);
  // For the last messages to be taken.
  absl::Duration linger = absl::Seconds(2);
};

class StreamReactor : public grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>,
                      public std::enable_shared_from_this<StreamReactor> {
 public:
  enum class Rest : uint8_t { kDrop, kSend };  // The fate of waiting messages.

  // `inbox`: the one of `counters` for what it holds. REQUIRES: `context` is that of the call;
  // `counters` and `newcomers` outlive the reactor.
  StreamReactor(grpc::CallbackServerContext* context, const StreamLimits& limits,
                TransportCounters& counters, Counter& inbox, Newcomers& newcomers);
  ~StreamReactor() override;

  // Begins to read. REQUIRES: called once, by its creator, before it is returned to gRPC.
  void Start();

  // One message, for which so much was held, has been dealt with: room for reading on.
  void Consumed(uint64_t bytes);

  // Ends the stream. The first one counts.
  void Close(const absl::Status& why, Rest rest);

  // gRPC's name for the other end.
  const std::string& peer() const { return peer_; }

  // What the caller presented.
  const Credentials& credentials() const { return credentials_; }

  uint64_t queued_bytes() const;
  uint64_t held_bytes() const;

  // ---- gRPC's
  void OnReadDone(bool ok) final;
  void OnWriteDone(bool ok) final;
  void OnCancel() final;
  void OnDone() final;

 protected:
  // Handles a message; in order, never two at once, and none after Close. An error ends the stream.
  virtual absl::Status OnMessage(const grpc::ByteBuffer& message) = 0;

  // The stream is over, or will be; called exactly once, on a thread of gRPC. `ended`: why it was
  // closed here; OK if the peer or the network ended it.
  virtual void Over(const absl::Status& ended) = 0;

  // Counts why Take was not OK.
  virtual void Count(const absl::Status& why) = 0;

  // Sends after all earlier messages.
  void Write(grpc::ByteBuffer message);

  // A message is held with so many bytes until they are Consumed. Called before they can be.
  void Hold(uint64_t bytes);

  // The begin of the first message made sense: the peer is told that it may go on.
  void Heard();
  // The first message made sense: the peer is given time.
  void Introduced();

  // Reads nothing until Resume.
  void Pause();
  void Resume();

  TransportCounters& counters() { return counters_; }

 private:
  enum class Operation : uint8_t { kNone, kRead, kGreet, kWrite, kLinger, kCancel, kFinish };

  // Starts all operations that can be started.
  void Drive();
  Operation Next() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Start(Operation operation);
  // Ends the stream because of an act or an omission of the peer.
  void Fail(const absl::Status& why);
  void IntroductionIsOverdue();
  // The connection is that of a worker.
  void CountTraffic();
  void CutOff();
  // Calls Over, unless Take is running; then it is called after that.
  void TellOver();

  // Constant after construction.
  grpc::CallbackServerContext* const context_;  // Used until Finish.
  const std::string peer_;
  const Credentials credentials_;
  const StreamLimits limits_;
  TransportCounters& counters_;
  Counter& inbox_;
  Newcomers& newcomers_;

  // Each belongs to the operation in flight, so to one thread at a time.
  std::shared_ptr<OverheadGuard::Traffic> traffic_;  // That of reading; null: nobody counts.
  grpc::ByteBuffer incoming_;
  grpc::ByteBuffer outgoing_;
  grpc::Alarm introduction_alarm_;
  grpc::Alarm linger_alarm_;

  mutable Mutex mutex_;
  bool driving_ ABSL_GUARDED_BY(mutex_) = false;  // A thread is starting operations.
  bool reading_ ABSL_GUARDED_BY(mutex_) = false;  // In flight, or being taken.
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool paused_ ABSL_GUARDED_BY(mutex_) = false;
  bool heard_ ABSL_GUARDED_BY(mutex_) = false;
  bool greeted_ ABSL_GUARDED_BY(mutex_) = false;  // The initial metadata were sent.
  bool introduced_ ABSL_GUARDED_BY(mutex_) = false;
  uint64_t introduction_bytes_ ABSL_GUARDED_BY(mutex_) = 0;  // An incomplete first one.
  uint64_t held_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  uint32_t held_messages_ ABSL_GUARDED_BY(mutex_) = 0;
  std::deque<grpc::ByteBuffer> queue_ ABSL_GUARDED_BY(mutex_);
  uint64_t queued_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  std::optional<absl::Status> closing_ ABSL_GUARDED_BY(mutex_);  // The status, once decided.
  bool lingering_ ABSL_GUARDED_BY(mutex_) = false;               // The linger alarm was set.
  bool cut_off_ ABSL_GUARDED_BY(mutex_) = false;                 // The call is to be cancelled,
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;               // and has been.
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;                // No operation may be started.
  bool taking_ ABSL_GUARDED_BY(mutex_) = false;
  bool over_ ABSL_GUARDED_BY(mutex_) = false;                    // To be sent,
  bool told_over_ ABSL_GUARDED_BY(mutex_) = false;               // and has been.
  std::shared_ptr<StreamReactor> self_ ABSL_GUARDED_BY(mutex_);  // From Start to OnDone.
};

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_TRANSPORT_STREAM_REACTOR_H_
