// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "aggregator/admin/admin_server.h"

#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "aggregator/admin/admin_service.h"
#include "aggregator/transport/hand_over.h"
#include "grpcpp/generic/async_generic_service.h"
#include "grpcpp/resource_quota.h"
#include "grpcpp/support/server_interceptor.h"
#include "protocol/limits/names.h"
#include "runtime/grpc/settings.h"

namespace basin::aggregator {
namespace {

// A few operators and dashboards send small requests.
constexpr int kMostThreads = 64;
constexpr size_t kMostBytes = size_t{64} << 20;

// A request holds names and a reason. A few megabytes of unknown fields would become a few hundred
// megabytes in memory.
constexpr int kMostRequestBytes = 64 << 10;

// The connections of one address that may be open before their first valid call, and those of all
// addresses before their first byte. Through a port-forward all operators have one address.
constexpr size_t kMostNewOperators = 32;
// Those that gRPC performs the TLS handshake of at a time.
constexpr size_t kMostHandshakes = 16;

}  // namespace

// Answers calls of unknown methods with a text.
class UnknownCalls : public grpc::CallbackGenericService {
 public:
  grpc::ServerGenericBidiReactor* CreateReactor(
      grpc::GenericCallbackServerContext* context) override {
    class Refusal : public grpc::ServerGenericBidiReactor {
     public:
      explicit Refusal(const std::string& text) { Finish({grpc::StatusCode::UNIMPLEMENTED, text}); }
      void OnDone() override { delete this; }
    };
    return new Refusal(
        absl::StrCat("There is no method ", QuoteForError(context->method()),
                     " here: this is the address for operators (admin.listen), which serves "
                     "basin.v1.Admin. Workers connect to grpc.listen."));
  }
};

namespace {

// Reports each call that begins, and answers a request that does not parse, for which gRPC has
// INTERNAL and no text.
class EachCall : public grpc::experimental::ServerInterceptorFactoryInterface {
 public:
  explicit EachCall(Newcomers& newcomers) : newcomers_(newcomers) {}

  grpc::experimental::Interceptor* CreateServerInterceptor(
      grpc::experimental::ServerRpcInfo* call) override {
    class Look : public grpc::experimental::Interceptor {
     public:
      Look(Newcomers& newcomers, grpc::experimental::ServerRpcInfo* call)
          : newcomers_(newcomers), call_(call), method_(call->method()) {}
      void Intercept(grpc::experimental::InterceptorBatchMethods* batch) override {
        using Hook = grpc::experimental::InterceptionHookPoints;
        if (batch->QueryInterceptionHookPoint(Hook::POST_RECV_INITIAL_METADATA)) {
          newcomers_.Began(call_->server_context()->peer());
        }
        if (batch->QueryInterceptionHookPoint(Hook::PRE_SEND_STATUS)) {
          const grpc::Status status = batch->GetSendStatus();
          if (status.error_code() == grpc::StatusCode::INTERNAL && status.error_message().empty()) {
            batch->ModifySendStatus(
                {grpc::StatusCode::INVALID_ARGUMENT,
                 absl::StrCat("The request of ", method_,
                              " is not a valid protobuf message. Use basinctl, or stubs generated "
                              "from proto/basin/v1/admin.proto.")});
          }
        }
        batch->Proceed();
      }

     private:
      Newcomers& newcomers_;
      grpc::experimental::ServerRpcInfo* const call_;  // Outlives this.
      const std::string method_;
    };
    return new Look(newcomers_, call);
  }

 private:
  Newcomers& newcomers_;
};

std::vector<std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface>> Interceptors(
    Newcomers& newcomers) {
  std::vector<std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface>> all;
  all.push_back(std::make_unique<EachCall>(newcomers));
  return all;
}

}  // namespace

AdminServer::AdminServer() = default;

absl::StatusOr<std::unique_ptr<AdminServer>> AdminServer::Start(AdminOptions options,
                                                                Engine& engine,
                                                                EventHistory& events) {
  std::unique_ptr<AdminServer> admin(new AdminServer());
  const std::string address = options.address;
  absl::StatusOr<std::unique_ptr<Listener>> listener =
      Listener::Open(address, admin->counters_.accept_failures, options.kept_descriptors);
  if (!listener.ok()) {
    return absl::UnavailableError(absl::StrCat(
        "admin.listen: cannot listen on ", address, ": ", std::string(listener.status().message()),
        ". Check that the address belongs to this host and that no other process uses the port, or "
        "choose another with --admin-listen."));
  }
  const PemSource tls = options.tls;
  const absl::Duration handshake_timeout = options.handshake_timeout;
  const absl::Duration keepalive_time = options.keepalive;
  const auto refused = [report = options.report,
                        &counters = admin->counters_](Counter TransportCounters::*counter) {
    return
        [report, &count = counters.*counter](const std::string& address, const std::string& what) {
          ++count;
          if (report != nullptr)
            report(address, "admin.listen", absl::StrCat("At admin.listen: ", what));
        };
  };
  const auto left = [tls_failed = refused(&TransportCounters::tls_failures),
                     on = tls != nullptr](const std::string& address) {
    if (!on) return;
    tls_failed(address,
               "Its TLS handshake failed, or it left before its first call. If it is an operator, "
               "check --tls-ca of basinctl, and --tls-cert if tls.client_ca is set.");
  };
  const auto flooded = [refuse = refused(&TransportCounters::floods),
                        &held_back = admin->held_back_](const std::string& address,
                                                        const std::string& what, bool flooded) {
    if (flooded) held_back.Add(address);
    refuse(address, what);
  };
  admin->newcomers_ = std::make_unique<Newcomers>(
      kMostNewOperators, flooded, left,
      tls != nullptr ? kMostHandshakes : std::numeric_limits<size_t>::max());
  admin->service_ =
      std::make_unique<AdminService>(std::move(options), engine, events, *admin->newcomers_);
  grpc::ServerBuilder builder;
  grpc::ResourceQuota quota("basin-admin");
  quota.SetMaxThreads(kMostThreads);
  quota.Resize(kMostBytes);
  builder.SetResourceQuota(quota);
  builder.SetMaxReceiveMessageSize(kMostRequestBytes);
  builder.AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS,
                             static_cast<int>(absl::ToInt64Milliseconds(handshake_timeout)));
  ApplyKeepalive(keepalive_time, keepalive_time, builder);
  admin->acceptor_ = builder.experimental().AddExternalConnectionAcceptor(
      grpc::ServerBuilder::experimental_type::ExternalConnectionType::FROM_FD,
      ServerCredentialsOf(tls));
  builder.RegisterService(admin->service_.get());
  admin->unknown_calls_ = std::make_unique<UnknownCalls>();
  builder.experimental().SetInterceptorCreators(Interceptors(*admin->newcomers_));
  builder.RegisterCallbackGenericService(admin->unknown_calls_.get());
  admin->server_ = builder.BuildAndStart();
  if (admin->server_ == nullptr) {
    return absl::UnavailableError(absl::StrCat("admin.listen: cannot serve on ", address, "."));
  }
  admin->listener_ = *std::move(listener);
  admin->port_ = admin->listener_->port();
  const auto serve = [server = admin.get(), socket = admin->listener_->socket()](int fd) {
    server->newcomers_->Add(fd);
    HandOver(fd, socket, *server->acceptor_);
  };
  const auto refuse = [refused](Counter TransportCounters::*counter, const std::string& address,
                                const std::string& what) { refused(counter)(address, what); };
  admin->preface_ = std::make_unique<PrefaceCheck>(
      tls != nullptr ? PrefaceCheck::Protocol::kTls : PrefaceCheck::Protocol::kPlain,
      handshake_timeout, kMostNewOperators, admin->held_back_, serve, refuse,
      [newcomers = admin->newcomers_.get()](const std::string& source) {
        return newcomers->HasRoom(source);
      });
  PrefaceCheck* const preface = admin->preface_.get();
  admin->listener_->Start([preface](int fd) { preface->OnConnection(fd); }, nullptr,
                          [preface] { return preface->waiting(); });
  return admin;
}

AdminServer::~AdminServer() { Stop(); }

void AdminServer::Stop() {
  if (server_ == nullptr) return;
  listener_.reset();
  preface_.reset();
  service_->Stop();
  server_->Shutdown(std::chrono::system_clock::now() + std::chrono::seconds(1));
  server_->Wait();
  server_.reset();
}

}  // namespace basin::aggregator
