// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The base of server credentials that are made with gRPC's C interface. Their class in C++ differs:
// in current versions (such as 1.83) it holds the object of the C interface; in 1.51, which Debian
// 12 has, its subclasses do.
//
// Internal to runtime/grpc.
//
// Ownership: of the object of the C interface. Thread contract: gRPC's.

#ifndef BASIN_RUNTIME_GRPC_OWN_SERVER_CREDENTIALS_H_
#define BASIN_RUNTIME_GRPC_OWN_SERVER_CREDENTIALS_H_

#include <string>

#include "grpc/grpc.h"
#include "grpc/grpc_security.h"
#include "grpcpp/security/server_credentials.h"
#include "grpcpp/version_info.h"

namespace basin {

#if GRPC_CPP_VERSION_MAJOR == 1 && GRPC_CPP_VERSION_MINOR <= 51

class OwnServerCredentials : public grpc::ServerCredentials {
 protected:
  explicit OwnServerCredentials(grpc_server_credentials* credentials) : credentials_(credentials) {}
  ~OwnServerCredentials() override { grpc_server_credentials_release(credentials_); }

 private:
  int AddPortToServer(const std::string& address, grpc_server* server) override {
    return grpc_server_add_http2_port(server, address.c_str(), credentials_);
  }

  grpc_server_credentials* const credentials_;
};

#else

class OwnServerCredentials : public grpc::ServerCredentials {
 protected:
  using grpc::ServerCredentials::ServerCredentials;
};

#endif

}  // namespace basin

#endif  // BASIN_RUNTIME_GRPC_OWN_SERVER_CREDENTIALS_H_
