// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "aggregator/admin/admin_server.h"

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "aggregator/admin/admin_service.h"
#include "grpcpp/resource_quota.h"
#include "grpcpp/security/server_credentials.h"
#include "grpcpp/server.h"
#include "grpcpp/server_builder.h"
#include "proto/limits/limits.h"

namespace basin::aggregator {
namespace {

// A handful of operators and dashboards; what they ask for is small.
constexpr int kMostThreads = 64;
constexpr size_t kMostBytes = size_t{64} << 20;

}  // namespace

AdminServer::AdminServer() = default;

absl::StatusOr<std::unique_ptr<AdminServer>> AdminServer::Start(AdminOptions options,
                                                                Engine& engine,
                                                                EventHistory& events) {
  std::unique_ptr<AdminServer> admin(new AdminServer());
  const std::string address = options.address;
  admin->service_ = std::make_unique<AdminService>(std::move(options), engine, events);
  grpc::ServerBuilder builder;
  grpc::ResourceQuota quota("basin-admin");
  quota.SetMaxThreads(kMostThreads);
  quota.Resize(kMostBytes);
  builder.SetResourceQuota(quota);
  builder.SetMaxReceiveMessageSize(static_cast<int>(kMaxMessageBytes));
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  builder.AddListeningPort(address, grpc::InsecureServerCredentials(), &admin->port_);
  builder.RegisterService(admin->service_.get());
  admin->server_ = builder.BuildAndStart();
  if (admin->server_ == nullptr || admin->port_ == 0) {
    return absl::UnavailableError(
        absl::StrCat("admin.listen: cannot listen on ", address,
                     ". Check that the address is one of this host's and that nobody else has the "
                     "port, or choose another with --admin-listen."));
  }
  return admin;
}

AdminServer::~AdminServer() { Stop(); }

void AdminServer::Stop() {
  if (server_ == nullptr) return;
  service_->Stop();
  server_->Shutdown(std::chrono::system_clock::now() + std::chrono::seconds(1));
  server_->Wait();
  server_.reset();
}

}  // namespace basin::aggregator
