// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The peer of a stream, without knowledge of Basin: it sends and receives bytes. A test decides
// what it sends, and whether it reads. On a session, all but the first message waits for the
// initial metadata.
//
// Thread contract: safe from any thread; the callbacks come on threads of gRPC's.

#ifndef BASIN_TESTS_AGGREGATOR_TRANSPORT_RAW_STREAM_H_
#define BASIN_TESTS_AGGREGATOR_TRANSPORT_RAW_STREAM_H_

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "grpcpp/channel.h"
#include "grpcpp/client_context.h"
#include "grpcpp/generic/generic_stub.h"
#include "grpcpp/support/client_callback.h"
#include "runtime/grpc/settings.h"
#include "runtime/mutex.h"

namespace basin::aggregator {

inline constexpr char kSessionMethod[] = "/basin.v1.Session/Run";
inline constexpr char kExchangeMethod[] = "/basin.v1.Exchange/Run";

// A channel with a connection to itself, with the settings that are shipped.
std::shared_ptr<grpc::Channel> ChannelTo(int port, const GrpcSettings& settings = {});
std::shared_ptr<grpc::Channel> ChannelTo(int port, const grpc::ChannelArguments& arguments);

class RawStream : public grpc::ClientBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  struct Options {
    // Instead of keeping messages for Read.
    std::function<void(const grpc::ByteBuffer&)> on_message;
    std::function<void(const absl::Status&)> on_done;
    grpc_compression_algorithm compression = GRPC_COMPRESS_NONE;
  };

  RawStream(const std::shared_ptr<grpc::Channel>& channel, const std::string& method,
            Options options);
  RawStream(const std::shared_ptr<grpc::Channel>& channel, const std::string& method)
      : RawStream(channel, method, Options()) {}
  ~RawStream() override;  // Cancels.

  // Queues it. Nothing is sent after Finish.
  void Write(grpc::ByteBuffer message);
  void Write(std::string bytes);
  void CloseWrites();  // After the queued messages.
  void Cancel();
  // Reads one more message at most, until Read, AwaitEnd or ReadOn is called.
  void StopReading();
  void ReadOn();

  // The next message; nothing when the stream is over. Fails the test after a minute.
  std::optional<std::string> Read();
  // How the stream ended. Fails the test after a minute.
  absl::Status AwaitEnd();
  // Waits until `writes` messages have been taken by gRPC, or the stream is over, or for so long.
  // Returns how many were.
  uint64_t AwaitWrites(uint64_t writes, absl::Duration timeout);

  void OnReadInitialMetadataDone(bool ok) override;
  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnDone(const grpc::Status& status) override;

 private:
  void StartWriting() ABSL_LOCKS_EXCLUDED(mutex_);

  const Options options_;
  grpc::GenericStub stub_;
  grpc::ClientContext context_;
  grpc::ByteBuffer incoming_;
  grpc::ByteBuffer outgoing_;

  Mutex mutex_;
  Condition changed_;
  std::deque<grpc::ByteBuffer> queue_ ABSL_GUARDED_BY(mutex_);
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool may_go_on_ ABSL_GUARDED_BY(mutex_);
  bool began_ ABSL_GUARDED_BY(mutex_) = false;  // The first message was written.
  bool reads_ ABSL_GUARDED_BY(mutex_) = true;
  bool reading_ ABSL_GUARDED_BY(mutex_) = false;
  bool close_writes_ ABSL_GUARDED_BY(mutex_) = false;
  uint64_t written_ ABSL_GUARDED_BY(mutex_) = 0;
  std::deque<std::string> received_ ABSL_GUARDED_BY(mutex_);
  bool reads_over_ ABSL_GUARDED_BY(mutex_) = false;
  std::optional<absl::Status> end_ ABSL_GUARDED_BY(mutex_);
  bool holds_ ABSL_GUARDED_BY(mutex_) = true;  // The hold under which writes are started.
};

}  // namespace basin::aggregator

#endif  // BASIN_TESTS_AGGREGATOR_TRANSPORT_RAW_STREAM_H_
