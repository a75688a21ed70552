// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// One bidirectional stream of messages in gRPC's callback API, on either side, and the only place
// that knows the rules that both share:
//
//   - at most one read and one write are in flight;
//   - gRPC may call from any of its threads, also while a loop calls from its own;
//   - how a side ends its stream is its own (NextOfSide), and nothing is started after that.
//
// How operations are started: each is chosen under the lock and started outside of it, by one
// thread at a time. If another thread is already starting operations, it also starts those of this
// thread. So gRPC is never called under a lock, no two threads start operations out of order, and
// nothing can follow the end.
//
// Reading needs room. Bytes that are held, and not yet reported as Consumed, fill the window; then
// no read is started, HTTP/2's own window fills up, and the peer stops. The end of the stream is
// noticed when there is room again.
//
// Ownership: a stream owns itself from Activate() until Release(); other users hold a shared
// pointer. Messages that wait are released outside of the lock. Thread contract: safe from any
// thread.

#ifndef BASIN_RUNTIME_GRPC_STREAM_MACHINE_H_
#define BASIN_RUNTIME_GRPC_STREAM_MACHINE_H_

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "grpcpp/alarm.h"
#include "grpcpp/support/byte_buffer.h"
#include "runtime/mutex.h"

namespace basin {

// By the clock that an operator cannot set. `done` gets whether the time has passed.
void SetAfter(grpc::Alarm& alarm, absl::Duration duration, std::function<void(bool)> done);

// Bytes and messages that are held at a time; the message that exceeds it is still read.
struct StreamWindow {
  uint64_t bytes = uint64_t{8} << 20;
  uint32_t messages = 1024;
};

struct StreamOptions {
  StreamWindow window;
  // The bytes of messages that may wait to be sent, with the overhead of each. A message beyond it
  // ends the stream: its reader is too slow.
  uint64_t most_waiting_bytes = 0;
  // Gauges over several streams: what waits or is being written, and what is held. Null: none.
  std::atomic<uint64_t>* outbox = nullptr;
  std::atomic<uint64_t>* inbox = nullptr;
};

class StreamMachine : public std::enable_shared_from_this<StreamMachine> {
 public:
  StreamMachine(const StreamMachine&) = delete;
  StreamMachine& operator=(const StreamMachine&) = delete;

  // One message, for which so much was held, has been dealt with: room for reading on.
  void Consumed(uint64_t bytes);

  // Bytes of messages that gRPC has not released, with the overhead of each.
  uint64_t queued_bytes() const;

 protected:
  enum class Operation : uint8_t {
    kNone,
    kRead,     // Into incoming().
    kWrite,    // Sends outgoing().
    kCancel,   // The call.
    kGreet,    // At a server: the initial metadata.
    kEnd,      // At a server: the status. At a client: the end of its messages.
    kRelease,  // At a client: the hold, without which gRPC would end the call early.
  };

  // REQUIRES: the gauges outlive it.
  explicit StreamMachine(const StreamOptions& options) : options_(options) {}
  virtual ~StreamMachine();

  // ---- what a side adds

  virtual void StartOperation(Operation operation) = 0;
  // The next operation of those that the sides do not share, if it can be started.
  virtual Operation NextOfSide() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) = 0;
  // Whether the first waiting message may be sent.
  virtual bool MaySend() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return true; }
  // Handles a message; in order, never two at once, and none once the stream is deaf.
  virtual absl::Status OnMessage(const grpc::ByteBuffer& message) = 0;
  // OnMessage has returned this. The next read is started after it.
  virtual void AfterMessage(const absl::Status& taken) = 0;
  // So many bytes would wait: more than allowed.
  virtual void OnSlowReader(uint64_t waiting_bytes) = 0;

  // ---- what a side calls

  // Begins to start operations. REQUIRES: called once.
  void Activate();
  // Gives up what keeps the stream alive: it may be gone when this returns.
  void Release();
  // Starts all operations that can be started.
  void Drive();
  // Sends after all earlier messages. Dropped when the stream is deaf or cannot send.
  void Write(grpc::ByteBuffer message);
  // A message is held with so many bytes until they are Consumed. Called before they can be.
  void Hold(uint64_t bytes);
  // gRPC's answers. Not `ok`: nothing more comes, or can be sent.
  void ReadDone(bool ok);
  void WriteDone(bool ok);
  // Cancels the call, and drops what waits.
  void Cancel();
  // The same after this time, unless the stream has ended by itself. REQUIRES: called once.
  void CancelAfter(absl::Duration linger);
  // Removes the waiting messages, to be released outside of the lock.
  [[nodiscard]] std::deque<grpc::ByteBuffer> Drop() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  grpc::ByteBuffer& incoming() { return incoming_; }
  grpc::ByteBuffer& outgoing() { return outgoing_; }

  mutable Mutex mutex_;
  bool active_ ABSL_GUARDED_BY(mutex_) = false;   // Operations may be started.
  bool reading_ ABSL_GUARDED_BY(mutex_) = false;  // In flight, or being taken.
  bool taking_ ABSL_GUARDED_BY(mutex_) = false;   // OnMessage runs.
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;  // Or ending the messages.
  bool wrote_ ABSL_GUARDED_BY(mutex_) = false;    // A first write was started.
  bool receives_ ABSL_GUARDED_BY(mutex_) = true;  // Reads are started.
  bool sends_ ABSL_GUARDED_BY(mutex_) = true;     // Writes are started.
  bool deaf_ ABSL_GUARDED_BY(mutex_) = false;     // Takes no message any more, from either end.
  std::deque<grpc::ByteBuffer> queue_ ABSL_GUARDED_BY(mutex_);

 private:
  Operation Next() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const StreamOptions options_;
  // Each belongs to the operation in flight, so to one thread at a time.
  grpc::ByteBuffer incoming_;
  grpc::ByteBuffer outgoing_;
  grpc::Alarm linger_;

  bool driving_ ABSL_GUARDED_BY(mutex_) = false;    // A thread is starting operations.
  bool cancel_ ABSL_GUARDED_BY(mutex_) = false;     // The call is to be cancelled,
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;  // and has been.
  uint64_t held_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  uint32_t held_messages_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t waiting_bytes_ ABSL_GUARDED_BY(mutex_) = 0;           // Those of queue_.
  uint64_t written_bytes_ ABSL_GUARDED_BY(mutex_) = 0;           // Those of the write in flight.
  std::shared_ptr<StreamMachine> self_ ABSL_GUARDED_BY(mutex_);  // While it is active.
};

}  // namespace basin

#endif  // BASIN_RUNTIME_GRPC_STREAM_MACHINE_H_
