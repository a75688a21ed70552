// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "aggregator/admin/admin_server.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "aggregator/admin/admin_service.h"
#include "grpcpp/generic/async_generic_service.h"
#include "grpcpp/resource_quota.h"
#include "grpcpp/support/server_interceptor.h"
#include "protocol/limits/names.h"

namespace basin::aggregator {
namespace {

// A few operators and dashboards send small requests.
constexpr int kMostThreads = 64;
constexpr size_t kMostBytes = size_t{64} << 20;

// A request holds names and a reason. A few megabytes of unknown fields would become a few hundred
// megabytes in memory.
constexpr int kMostRequestBytes = 64 << 10;

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

// gRPC answers a request that does not parse with INTERNAL and no text.
class MalformedRequests : public grpc::experimental::ServerInterceptorFactoryInterface {
 public:
  grpc::experimental::Interceptor* CreateServerInterceptor(
      grpc::experimental::ServerRpcInfo* call) override {
    class Explain : public grpc::experimental::Interceptor {
     public:
      explicit Explain(std::string method) : method_(std::move(method)) {}
      void Intercept(grpc::experimental::InterceptorBatchMethods* batch) override {
        using Hook = grpc::experimental::InterceptionHookPoints;
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
      const std::string method_;
    };
    return new Explain(call->method());
  }
};

std::vector<std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface>> Interceptors() {
  std::vector<std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface>> all;
  all.push_back(std::make_unique<MalformedRequests>());
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
      Listener::Open(address, admin->accept_failures_);
  if (!listener.ok()) {
    return absl::UnavailableError(absl::StrCat(
        "admin.listen: cannot listen on ", address, ": ", std::string(listener.status().message()),
        ". Check that the address belongs to this host and that no other process uses the port, or "
        "choose another with --admin-listen."));
  }
  const ServerTls tls = options.tls;
  admin->service_ = std::make_unique<AdminService>(std::move(options), engine, events);
  grpc::ServerBuilder builder;
  grpc::ResourceQuota quota("basin-admin");
  quota.SetMaxThreads(kMostThreads);
  quota.Resize(kMostBytes);
  builder.SetResourceQuota(quota);
  builder.SetMaxReceiveMessageSize(kMostRequestBytes);
  admin->acceptor_ = builder.experimental().AddExternalConnectionAcceptor(
      grpc::ServerBuilder::experimental_type::ExternalConnectionType::FROM_FD,
      ServerCredentialsOf(tls));
  builder.RegisterService(admin->service_.get());
  admin->unknown_calls_ = std::make_unique<UnknownCalls>();
  builder.experimental().SetInterceptorCreators(Interceptors());
  builder.RegisterCallbackGenericService(admin->unknown_calls_.get());
  admin->server_ = builder.BuildAndStart();
  if (admin->server_ == nullptr) {
    return absl::UnavailableError(absl::StrCat("admin.listen: cannot serve on ", address, "."));
  }
  admin->listener_ = *std::move(listener);
  admin->port_ = admin->listener_->port();
  admin->listener_->Start([acceptor = admin->acceptor_.get()](int fd) {
    grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters connection;
    connection.fd = fd;
    acceptor->HandleNewConnection(&connection);
  });
  return admin;
}

AdminServer::~AdminServer() { Stop(); }

void AdminServer::Stop() {
  if (server_ == nullptr) return;
  listener_.reset();
  service_->Stop();
  server_->Shutdown(std::chrono::system_clock::now() + std::chrono::seconds(1));
  server_->Wait();
  server_.reset();
}

}  // namespace basin::aggregator
