// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The cost of gRPC itself: the pattern of socket_star over bidirectional streams of gRPC with the
// settings of Basin, without arithmetic, checksums, membership or messages of a protocol. Payloads
// are neither copied nor read.
//
//   grpc_star hub --workers=4 --streams=2 --bytes=67108864 --rounds=5
//   grpc_star worker --port=12345 --streams=2 --bytes=67108864 --rounds=5
//
// With --phases=2 every worker acknowledges its result with a message of one byte, and its round
// ends when the hub reports that all have: with --bytes=1024 the difference is the cost of a second
// phase.

#include <grpcpp/alarm.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>
#include <malloc.h>

#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "runtime/grpc/settings.h"
#include "tests/bench/allreduce/stopwatch.h"

namespace basin::bench {
namespace {

constexpr size_t kBlock = size_t{1} << 20;
constexpr char kStreamKey[] = "stream";

struct Options {
  int port = 0;
  int workers = 0;
  size_t streams = 1;
  size_t bytes = kBlock;
  int rounds = 5;
  int phases = 1;
  size_t per_stream() const { return bytes / streams; }
  size_t blocks() const { return (per_stream() + kBlock - 1) / kBlock; }
  size_t block_bytes(size_t block) const { return std::min(kBlock, per_stream() - block * kBlock); }
  // Messages of one stream in one round; the second phase is on stream 0.
  size_t messages(size_t stream) const { return blocks() + (phases == 2 && stream == 0 ? 1 : 0); }
};

grpc::ByteBuffer BufferOf(const char* bytes, size_t size) {
  const grpc::Slice slice(bytes, size, grpc::Slice::STATIC_SLICE);
  return grpc::ByteBuffer(&slice, 1);
}

// One direction of a stream: a queue, of which one message is being written.
class Outgoing {
 public:
  // Returns the message to start writing, if none is on its way.
  grpc::ByteBuffer* Add(grpc::ByteBuffer message) {
    std::lock_guard<std::mutex> lock(mutex_);
    queue_.push_back(std::move(message));
    if (queue_.size() > 1) return nullptr;
    return &queue_.front();
  }
  grpc::ByteBuffer* Written() {
    std::lock_guard<std::mutex> lock(mutex_);
    queue_.pop_front();
    return queue_.empty() ? nullptr : &queue_.front();
  }

 private:
  std::mutex mutex_;
  std::deque<grpc::ByteBuffer> queue_;
};

// ---- hub

class HubStream;

// Sends message `m` of a stream to every worker once all of them have sent theirs.
class Hub : public grpc::CallbackGenericService {
 public:
  explicit Hub(const Options& options)
      : options_(options), result_(kBlock, 1), streams_(options.streams) {
    stopwatch_.RoundBegins();
  }

  grpc::ServerGenericBidiReactor* CreateReactor(
      grpc::GenericCallbackServerContext* context) override;

  void Join(size_t stream, HubStream* reactor) {
    std::lock_guard<std::mutex> lock(mutex_);
    streams_[stream].reactors.push_back(reactor);
  }
  void Received(size_t stream, size_t message);
  // A worker has ended one of its streams.
  void Left() {
    std::lock_guard<std::mutex> lock(mutex_);
    ++left_;
    changed_.notify_all();
  }
  void AwaitEnd() {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [&] { return left_ == options_.streams * options_.workers; });
    stopwatch_.Print();
  }

 private:
  struct Stream {
    std::vector<HubStream*> reactors;
    std::map<size_t, int> arrived;  // By message.
  };

  const Options options_;
  const std::vector<char> result_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Stream> streams_;
  size_t left_ = 0;
  size_t sent_ = 0;
  Stopwatch stopwatch_;
};

class HubStream : public grpc::ServerGenericBidiReactor {
 public:
  HubStream(Hub& hub, size_t stream) : hub_(hub), stream_(stream) {
    hub_.Join(stream, this);
    StartRead(&incoming_);
  }
  void Send(grpc::ByteBuffer message) {
    if (grpc::ByteBuffer* next = outgoing_.Add(std::move(message))) StartWrite(next);
  }
  void OnReadDone(bool ok) override {
    if (!ok) return Finish(grpc::Status::OK);
    incoming_.Clear();
    hub_.Received(stream_, received_++);
    StartRead(&incoming_);
  }
  void OnWriteDone(bool ok) override {
    if (!ok) return;
    if (grpc::ByteBuffer* next = outgoing_.Written()) StartWrite(next);
  }
  void OnDone() override {
    hub_.Left();
    delete this;
  }

 private:
  Hub& hub_;
  const size_t stream_;
  grpc::ByteBuffer incoming_;
  size_t received_ = 0;
  Outgoing outgoing_;
};

grpc::ServerGenericBidiReactor* Hub::CreateReactor(grpc::GenericCallbackServerContext* context) {
  const auto& metadata = context->client_metadata();
  const auto found = metadata.find(kStreamKey);
  const std::string number(found->second.data(), found->second.size());
  return new HubStream(*this, std::strtoul(number.c_str(), nullptr, 10));
}

void Hub::Received(size_t stream, size_t message) {
  std::vector<HubStream*> receivers;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    Stream& here = streams_[stream];
    if (++here.arrived[message] < options_.workers) return;
    here.arrived.erase(message);
    receivers = here.reactors;
    size_t in_round = 0;
    for (size_t i = 0; i < options_.streams; ++i) in_round += options_.messages(i);
    if (++sent_ == in_round) {
      sent_ = 0;
      stopwatch_.RoundEnded();
      stopwatch_.RoundBegins();
    }
  }
  const size_t place = message % options_.messages(stream);
  const size_t size = place < options_.blocks() ? options_.block_bytes(place) : 1;
  for (HubStream* receiver : receivers) receiver->Send(BufferOf(result_.data(), size));
}

void RunHub(const Options& options) {
  Hub hub(options);
  grpc::ServerBuilder builder;
  Apply(GrpcServerSettings(), builder);
  int port = 0;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  builder.RegisterCallbackGenericService(&hub);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  std::printf("%d\n", port);
  std::fflush(stdout);
  hub.AwaitEnd();
  server->Shutdown();
}

// ---- worker

class WorkerStream : public grpc::ClientBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  WorkerStream(const Options& options, size_t stream, const std::vector<char>& gradient)
      : options_(options), stream_(stream), gradient_(gradient) {
    grpc::ChannelArguments arguments = ClientArguments(GrpcSettings());
    channel_ = grpc::CreateCustomChannel("127.0.0.1:" + std::to_string(options.port),
                                         grpc::InsecureChannelCredentials(), arguments);
    context_.AddMetadata(kStreamKey, std::to_string(stream));
    grpc::GenericStub(channel_).PrepareBidiStreamingCall(&context_, "/basin.bench.Star/Run",
                                                         grpc::StubOptions(), this);
    AddHold();
    StartCall();
    StartRead(&incoming_);
  }

  void PushAll() {
    for (size_t block = 0; block < options_.blocks(); ++block) {
      const size_t at = stream_ * options_.per_stream() + block * kBlock;
      Send(BufferOf(gradient_.data() + at, options_.block_bytes(block)));
    }
    awaited_ += options_.blocks();
  }
  void SendOne() {
    Send(BufferOf(gradient_.data(), 1));
    ++awaited_;
  }
  // Waits until everything that was sent has been answered.
  void Await() {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [&] { return received_ >= awaited_ || ended_; });
    if (received_ < awaited_) {
      std::fprintf(stderr, "grpc_star: the hub has ended a stream\n");
      std::exit(1);
    }
  }
  void End() {
    StartWritesDone();
    RemoveHold();
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [&] { return done_; });
  }

  void OnReadDone(bool ok) override {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      incoming_.Clear();
      received_ += ok ? 1 : 0;
      ended_ = !ok;
      changed_.notify_all();
    }
    if (ok) StartRead(&incoming_);
  }
  void OnWriteDone(bool ok) override {
    if (!ok) return;
    if (grpc::ByteBuffer* next = outgoing_.Written()) StartWrite(next);
  }
  void OnDone(const grpc::Status&) override {
    std::lock_guard<std::mutex> lock(mutex_);
    done_ = true;
    changed_.notify_all();
  }

 private:
  void Send(grpc::ByteBuffer message) {
    if (grpc::ByteBuffer* next = outgoing_.Add(std::move(message))) StartWrite(next);
  }

  const Options options_;
  const size_t stream_;
  const std::vector<char>& gradient_;
  std::shared_ptr<grpc::Channel> channel_;
  grpc::ClientContext context_;
  grpc::ByteBuffer incoming_;
  Outgoing outgoing_;
  size_t awaited_ = 0;

  std::mutex mutex_;
  std::condition_variable changed_;
  size_t received_ = 0;
  bool ended_ = false;
  bool done_ = false;
};

void RunWorker(const Options& options) {
  const std::vector<char> gradient(options.bytes, 1);
  std::vector<std::unique_ptr<WorkerStream>> streams;
  for (size_t i = 0; i < options.streams; ++i) {
    streams.push_back(std::make_unique<WorkerStream>(options, i, gradient));
  }
  Stopwatch stopwatch;
  for (int round = 0; round < kWarmUp + options.rounds; ++round) {
    stopwatch.RoundBegins();
    for (const auto& stream : streams) stream->PushAll();
    for (const auto& stream : streams) stream->Await();
    if (options.phases == 2) {
      streams[0]->SendOne();
      streams[0]->Await();
    }
    stopwatch.RoundEnded();
  }
  for (const auto& stream : streams) stream->End();
  stopwatch.Print();
}

bool Take(const std::string& argument, const std::string& name, size_t* value) {
  if (argument.compare(0, name.size(), name) != 0) return false;
  *value = std::strtoul(argument.c_str() + name.size(), nullptr, 10);
  return true;
}

int Main(int argc, char** argv) {
  // As in basind and a trainer's process, freed messages are used again, not unmapped.
  mallopt(M_MMAP_THRESHOLD, 32 << 20);
  mallopt(M_TRIM_THRESHOLD, 256 << 20);

  Options options;
  for (int i = 2; i < argc; ++i) {
    size_t value = 0;
    if (Take(argv[i], "--port=", &value)) options.port = static_cast<int>(value);
    if (Take(argv[i], "--workers=", &value)) options.workers = static_cast<int>(value);
    if (Take(argv[i], "--streams=", &value)) options.streams = value;
    if (Take(argv[i], "--bytes=", &value)) options.bytes = value;
    if (Take(argv[i], "--rounds=", &value)) options.rounds = static_cast<int>(value);
    if (Take(argv[i], "--phases=", &value)) options.phases = static_cast<int>(value);
  }
  if (argc > 1 && std::string(argv[1]) == "hub" && options.workers > 0) {
    RunHub(options);
  } else if (argc > 1 && std::string(argv[1]) == "worker" && options.port > 0) {
    RunWorker(options);
  } else {
    std::fprintf(stderr,
                 "usage: grpc_star hub|worker --port= --workers= --streams= --bytes= --rounds= "
                 "--phases=\n");
    return 2;
  }
  return 0;
}

}  // namespace
}  // namespace basin::bench

int main(int argc, char** argv) { return basin::bench::Main(argc, argv); }
