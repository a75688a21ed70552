// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "aggregator/transport/server.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "aggregator/transport/exchange_reactor.h"
#include "aggregator/transport/hand_over.h"
#include "aggregator/transport/session_reactor.h"
#include "basin/v1/exchange.grpc.pb.h"
#include "basin/v1/session.grpc.pb.h"
#include "basin/v1/shard.grpc.pb.h"
#include "grpc/support/time.h"
#include "grpcpp/health_check_service_interface.h"
#include "proto/wire/session_stream.h"
#include "runtime/failpoint.h"
#include "runtime/frames/reader.h"
#include "runtime/grpc/byte_buffer.h"
#include "runtime/grpc/greeting.h"

namespace basin::aggregator {
namespace {

using RawReactor = grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>;

template <typename Reactor, typename... Args>
RawReactor* StartReactor(Args&&... args) {
  const auto reactor = std::make_shared<Reactor>(std::forward<Args>(args)...);
  reactor->Start();
  return reactor.get();
}

}  // namespace

namespace {

// The frame for a worker that has mapped the segment in which its payload lies; nothing for others.
std::optional<SharedFrame> ReferenceFor(const ExchangeReactor& stream, const OutgoingFrame& frame,
                                        TransportCounters& counters) {
  if (frame.segment == nullptr) return std::nullopt;
  const std::shared_ptr<Segments> segments = stream.shared();
  if (segments == nullptr) return std::nullopt;
  segments->Offer(frame.segment);
  const std::optional<SharedPlaces> places = PlacesOf(frame, *segments);
  if (!places.has_value()) return std::nullopt;
  absl::StatusOr<std::string> head = EncodeReference(frame, *places);
  if (!head.ok()) return std::nullopt;
  ++counters.local_results;
  return SharedFrame(*std::move(head), {}, counters.message_memory);
}

}  // namespace

// The handshakes of one address that gRPC performs at a time.
constexpr size_t kMostHandshakes = 32;

uint64_t QuotaFor(uint64_t memory_bytes) {
  constexpr uint64_t kWindows = uint64_t{256} << 20;
  return 2 * memory_bytes + kWindows;
}

uint64_t ExpandingFor(uint64_t memory_bytes) {
  return std::clamp(memory_bytes / 2, uint64_t{64} << 20, uint64_t{1} << 30);
}

// A message that is small enough to be copied into a batch for each receiver.
constexpr size_t kMaxBatchedBytes = size_t{16} << 10;

class GrpcServer::SessionService
    : public v1::Session::WithRawCallbackMethod_Run<v1::Session::Service> {
 public:
  explicit SessionService(GrpcServer& server) : server_(server) {}
  RawReactor* Run(grpc::CallbackServerContext* context) override {
    // A caller without a valid credential learns nothing about the aggregator.
    Presented presented = PresentedBy(*context);
    const Credentials caller = CredentialsOf(presented.token, std::move(presented.sans));
    const Gatekeeper* gatekeeper = server_.options_.gatekeeper;
    if (gatekeeper == nullptr || gatekeeper->MayCall(caller, Rpc::kExchange, "")) {
      Greet(*context, server_.options_.version,
            server_.local_ == nullptr ? "" : server_.local_->name());
    }
    return StartReactor<SessionReactor>(context, server_.options_.session, server_.counters_,
                                        server_.newcomers_, *server_.registry_,
                                        server_.reader_budgets_);
  }

 private:
  GrpcServer& server_;
};

class GrpcServer::ExchangeService
    : public v1::Exchange::WithRawCallbackMethod_Run<v1::Exchange::Service> {
 public:
  explicit ExchangeService(GrpcServer& server) : server_(server) {}
  RawReactor* Run(grpc::CallbackServerContext* context) override {
    return StartReactor<ExchangeReactor>(context, server_.options_.exchange, server_.counters_,
                                         server_.newcomers_, *server_.registry_);
  }

 private:
  GrpcServer& server_;
};

class GrpcServer::ShardService : public v1::Shard::WithRawCallbackMethod_Run<v1::Shard::Service> {
 public:
  explicit ShardService(GrpcServer& server) : server_(server) {}
  RawReactor* Run(grpc::CallbackServerContext* context) override {
    return StartReactor<ShardReactor>(context, server_.options_.shard, server_.counters_,
                                      server_.newcomers_, *server_.registry_, *server_.shards_);
  }

 private:
  GrpcServer& server_;
};

GrpcServer::GrpcServer(ServerOptions options)
    : options_(std::move(options)),
      reader_budgets_{wire::ByteBudget(kMaxAssemblingBytes),
                      wire::ByteBudget(options_.expanding_bytes)},
      large_layouts_(kMostLayoutBytes),
      overhead_(options_.grpc.common.window_bytes + kMaxMessageBytes,
                options_.watch_newcomers ? options_.most_newcomers : 0,
                [this](const std::string& address, const std::string& what) {
                  ++counters_.floods;
                  held_back_.Add(address);
                  Report(address, what);
                }),
      newcomers_(
          options_.most_newcomers,
          [this](const std::string& address, const std::string& what, bool flooded) {
            ++counters_.floods;
            if (flooded) held_back_.Add(address);
            Report(address, what);
          },
          [this](const std::string& address) {
            if (options_.tls == nullptr) return;
            ++counters_.tls_failures;
            Report(address,
                   "Its TLS handshake failed, or it left before its first call. If it is a worker, "
                   "check its BASIN_TLS_CA, and its BASIN_TLS_CERT if tls.client_ca is set.");
          },
          options_.tls != nullptr ? kMostHandshakes : std::numeric_limits<size_t>::max(),
          &overhead_) {}

GrpcServer::~GrpcServer() { Stop(); }

void GrpcServer::Report(const std::string& address, const std::string& what) const {
  if (options_.report != nullptr) options_.report(address, "", what);
}

// ---- life

absl::StatusOr<int> GrpcServer::Start(Engine& engine) { return Start(engine, &engine); }

absl::StatusOr<int> GrpcServer::Start(StreamSink& sink) { return Start(sink, nullptr); }

absl::StatusOr<int> GrpcServer::Start(StreamSink& sink, Engine* engine) {
  absl::StatusOr<std::unique_ptr<Listener>> listener =
      Listener::Open(options_.address, counters_.accept_failures, options_.kept_descriptors);
  if (!listener.ok()) {
    return absl::UnavailableError(absl::StrCat(
        "Cannot listen on ", options_.address, ": ", std::string(listener.status().message()),
        ". Check that the address belongs to this host and that no other process uses the port."));
  }
  if (options_.local) {
    auto local =
        LocalServer::Start(options_.local_socket, options_.local_bytes, counters_,
                           options_.on_local_refused, options_.devices, options_.on_device_refused);
    // Without it workers on this machine are served like others.
    if (local.ok()) {
      local_ = *std::move(local);
    } else if (options_.on_local_failed != nullptr) {
      options_.on_local_failed(absl::StrCat(local.status().message(),
                                            ". Workers on this machine use the network instead."));
    }
  }
  engine_ = engine;
  registry_ =
      std::make_unique<Registry>(sink, engine, options_.gatekeeper, local_.get(), options_.report);
  registry_->RefuseAll(options_.refusal);
  {
    MutexLock lock(mutex_);
    drained_ = !options_.refusal.ok();
  }
  exchange_service_ = std::make_unique<ExchangeService>(*this);
  if (engine != nullptr) {
    session_service_ = std::make_unique<SessionService>(*this);
    shards_ = std::make_unique<ShardPeers>(*engine);
    shard_service_ = std::make_unique<ShardService>(*this);
    engine->OnDrained([this] {
      MutexLock lock(mutex_);
      drained_ = true;
      changed_.NotifyAll();
    });
    engine->Start(*this);
    overhead_.ReportTo(
        [engine](std::vector<UnheardSession> sessions) { engine->OnUnheard(std::move(sessions)); });
  }

  grpc::EnableDefaultHealthCheckService(true);
  grpc::ServerBuilder builder;
  Apply(options_.grpc, builder);
  acceptor_ = builder.experimental().AddExternalConnectionAcceptor(
      grpc::ServerBuilder::experimental_type::ExternalConnectionType::FROM_FD,
      ServerCredentialsOf(options_.tls));
  builder.RegisterService(exchange_service_.get());
  if (session_service_ != nullptr) builder.RegisterService(session_service_.get());
  if (shard_service_ != nullptr) builder.RegisterService(shard_service_.get());
  server_ = builder.BuildAndStart();
  if (server_ == nullptr) {
    Stop();
    return absl::UnavailableError(
        absl::StrCat("Cannot serve on ", options_.address, ". Check the certificate and its key."));
  }
  server_->GetHealthCheckService()->SetServingStatus(options_.refusal.ok());
  listener_ = *std::move(listener);
  const auto serve = [this, socket = listener_->socket()](int fd) {
    if (options_.watch_newcomers) newcomers_.Add(fd);
    HandOver(fd, socket, *acceptor_);
  };
  const auto refuse = [this](Counter TransportCounters::*counter, const std::string& address,
                             const std::string& what) {
    ++(counters_.*counter);
    Report(address, what);
  };
  preface_ = std::make_unique<PrefaceCheck>(
      options_.tls != nullptr ? PrefaceCheck::Protocol::kTls : PrefaceCheck::Protocol::kPlain,
      options_.grpc.handshake_timeout, options_.most_newcomers, held_back_, serve, refuse,
      [this](const std::string& source) { return newcomers_.HasRoom(source); });
  // `newcomers_` takes a second descriptor of each when gRPC gets it.
  listener_->Start([this](int fd) { preface_->OnConnection(fd); }, options_.on_descriptors,
                   [this] { return preface_->waiting(); });
  return port();
}

void GrpcServer::Lead(Term term) {
  engine_->Restart(term);
  {
    // Only now, because the engine before would forget an order to drain.
    MutexLock lock(mutex_);
    drained_ = false;
    ++leads_;
  }
  registry_->RefuseAll(absl::OkStatus());
  server_->GetHealthCheckService()->SetServingStatus(true);
}

void GrpcServer::Follow(const absl::Status& why) {
  server_->GetHealthCheckService()->SetServingStatus(false);
  // First, so that no session is left in the engine that starts again.
  registry_->RefuseAll(why);
  registry_->EndAll(why);
  shards_->EndAll(why);
  engine_->Restart(engine_->term());
  MutexLock lock(mutex_);
  drained_ = true;
  changed_.NotifyAll();
}

void GrpcServer::EndRounds(bool keeps_sessions) {
  uint64_t lead = 0;
  {
    MutexLock lock(mutex_);
    if (drained_) return;
    lead = leads_;
  }
  server_->GetHealthCheckService()->SetServingStatus(false);
  engine_->Command(DrainService{keeps_sessions});
  MutexLock lock(mutex_);
  // A later lead has rounds of its own, and no order to end them.
  while (!drained_ && leads_ == lead) changed_.Wait(mutex_);
}

void GrpcServer::Drain() {
  EndRounds();
  ShutDown(options_.goaway_grace);
}

// GOAWAY to all connections; streams that are left after the grace are cancelled. Returns when gRPC
// has released every call.
void GrpcServer::ShutDown(absl::Duration grace) {
  listener_.reset();
  preface_.reset();
  server_->Shutdown(
      gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC),
                   gpr_time_from_millis(absl::ToInt64Milliseconds(grace), GPR_TIMESPAN)));
  server_->Wait();
}

void GrpcServer::Stop() {
  if (server_ != nullptr) ShutDown(absl::ZeroDuration());
  server_.reset();
  overhead_.ReportTo(nullptr);
  if (engine_ == nullptr) return;
  engine_->Stop();
  engine_ = nullptr;
}

// ---- the engine's

void GrpcServer::Send(absl::Span<const SessionId> sessions, const ToWorker& message) {
  Send(sessions, message, false);
}

void GrpcServer::SendLater(SessionId session, const ToWorker& message) {
  Send({session}, message, true);
}

absl::StatusOr<std::vector<grpc::ByteBuffer>> GrpcServer::LargePiecesOf(const ToWorker& message) {
  const absl::StatusOr<std::vector<wire::LargeLayouts::Piece>> pieces =
      large_layouts_.Encode(message);
  if (!pieces.ok()) return pieces.status();
  std::vector<grpc::ByteBuffer> buffers;
  for (const wire::LargeLayouts::Piece& piece : *pieces) buffers.push_back(BufferOf(piece));
  return buffers;
}

void GrpcServer::Send(absl::Span<const SessionId> sessions, const ToWorker& message,
                      bool can_wait) {
  const bool large = wire::LargeLayouts::AreIn(message);
  absl::StatusOr<std::vector<std::string>> encoded = std::vector<std::string>();
  absl::StatusOr<std::vector<grpc::ByteBuffer>> pieces =
      std::vector<grpc::ByteBuffer>();  // Shared by all receivers.
  if (!large) encoded = wire::EncodePieces(message);
  const bool small =
      !large && encoded.ok() && encoded->size() == 1 && encoded->front().size() <= kMaxBatchedBytes;
  if (large) {
    pieces = LargePiecesOf(message);
  } else if (!encoded.ok()) {
    pieces = encoded.status();
  } else if (!small) {
    for (std::string& piece : *encoded) {
      pieces->push_back(BufferOf(wire::Sealed(std::move(piece)), counters_.message_memory));
    }
  }
  if (!pieces.ok()) {
    ++counters_.unsendable_messages;
    for (const SessionId session : sessions) {
      if (const auto reactor = registry_->FindSession(session)) {
        reactor->FlushAll();
        reactor->Close(pieces.status(), StreamReactor::Rest::kSend);
      }
    }
    return;
  }
  const auto* welcome = std::get_if<Welcome>(&message);
  for (const SessionId session : sessions) {
    if (welcome != nullptr) registry_->Welcome(session, welcome->token);
    const auto reactor = registry_->FindSession(session);
    if (reactor == nullptr) continue;
    if (small) {
      reactor->Send(encoded->front(), can_wait);
      if (reactor->due()) unflushed_.push_back(reactor);
    }
    for (const grpc::ByteBuffer& piece : *pieces) reactor->SendNow(piece);
#ifdef BASIN_FAILPOINTS
    if (std::holds_alternative<Verdict>(message)) reactor->FlushAll();
#endif
    if (std::holds_alternative<Verdict>(message)) BASIN_FAILPOINT("verdict.told");
  }
}

void GrpcServer::Flush() {
  for (const auto& reactor : unflushed_) reactor->Flush();
  unflushed_.clear();
}

void GrpcServer::CloseSession(SessionId session) {
  const auto reactor = registry_->FindSession(session);
  if (reactor == nullptr) return;
  // First, because what still arrives is refused once the session is not in the registry.
  reactor->FlushAll();
  reactor->Close(absl::OkStatus(), StreamReactor::Rest::kSend);
  registry_->TakeSession(session);
}

void GrpcServer::AcceptStream(StreamId stream, SessionId session, const JobName& job) {
  const auto reactor = registry_->FindStream(stream);
  if (reactor == nullptr) return;
  const absl::Status admitted = registry_->AdmitTo(*reactor, session, job);
  if (!admitted.ok()) {
    // Nothing is sent to it from here on.
    registry_->CloseStream(stream);
    reactor->Close(admitted, StreamReactor::Rest::kDrop);
    return;
  }
  reactor->Accept(stream, session, job, registry_->FindSession(session));
}

bool GrpcServer::Shares(StreamId stream) const {
  if (local_ == nullptr) return false;
  const auto reactor = registry_->FindStream(stream);
  return reactor != nullptr && reactor->shared() != nullptr;
}

void GrpcServer::WithdrawUnused() {
  if (local_ != nullptr) local_->WithdrawUnused();
}

void GrpcServer::Send(absl::Span<const StreamId> streams, const OutgoingFrame& frame) {
  std::optional<SharedFrame> whole;  // For all that do not share the memory.
  for (const StreamId stream : streams) {
    if (const auto reactor = registry_->FindStream(stream)) {
      const std::optional<SharedFrame> reference = ReferenceFor(*reactor, frame, counters_);
      if (!reference.has_value() && !whole.has_value()) {
        absl::StatusOr<std::string> head = EncodeHead(frame);
        if (!head.ok()) {
          ++counters_.unsendable_messages;
          reactor->Close(head.status(), StreamReactor::Rest::kDrop);
          continue;
        }
        ++counters_.frames_encoded;
        whole.emplace(*std::move(head), frame.payload, counters_.message_memory);
      }
      const SharedFrame& sent = reference.has_value() ? *reference : *whole;
      // The frames of a value arrive in order, and some are too large for the session.
      const bool may = !std::holds_alternative<BlobHeader>(frame.header);
      if (auto session = may ? reactor->SendInSession(sent) : nullptr) {
        unflushed_.push_back(std::move(session));
      } else {
        reactor->Send(sent);
      }
    }
    if (std::holds_alternative<ResultHeader>(frame.header)) BASIN_FAILPOINT("result.sent");
  }
}

void GrpcServer::CloseStream(StreamId stream, const absl::Status& why) {
  if (const auto reactor = registry_->TakeStream(stream)) {
    if (why.code() == absl::StatusCode::kNotFound && !registry_->IsPast(reactor->token())) {
      ++counters_.unknown_tokens;
      registry_->ReportPeer(reactor->peer(), std::string(why.message()));
    }
    reactor->Close(why, StreamReactor::Rest::kDrop);
  }
}

void GrpcServer::EndRevoked() {
  registry_->EndRevoked();
  if (shards_ != nullptr) shards_->EndRevoked(*options_.gatekeeper);
}

void GrpcServer::WelcomeShard(ShardId shard, Term term) {
  if (const auto reactor = shards_->Find(shard)) reactor->Send(ShardWelcome{shard, term});
}

void GrpcServer::SendToShard(ShardId shard, const std::vector<ShardStep>& steps) {
  if (const auto reactor = shards_->Find(shard)) reactor->Send(steps);
}

void GrpcServer::CloseShard(ShardId shard, const absl::Status& why) {
  if (const auto reactor = shards_->Take(shard)) reactor->Close(why, StreamReactor::Rest::kDrop);
}

void GrpcServer::ShardConsumed(ShardId shard, uint64_t bytes) {
  if (const auto reactor = shards_->Find(shard)) reactor->Consumed(bytes);
}

void GrpcServer::Consumed(uint64_t connection, uint64_t bytes) {
  if (const auto reactor = registry_->Find(connection)) reactor->Consumed(bytes);
}

}  // namespace basin::aggregator
