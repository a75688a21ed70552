// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The connection of a command to the admin service, and its arguments.
//
// Thread contract: one thread.
// Failure: the status of the aggregator, or gRPC's if none arrived.

#ifndef BASIN_AGGREGATOR_CTL_CLIENT_H_
#define BASIN_AGGREGATOR_CTL_CLIENT_H_

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "aggregator/ctl/arguments.h"
#include "aggregator/ctl/output.h"
#include "aggregator/ctl/show.h"
#include "basin/v1/admin.grpc.pb.h"
#include "proto/status/status.h"
#include "protocol/limits/limits.h"
#include "protocol/version.h"

namespace basin::aggregator {

class Client {
 public:
  // Connects with the first call. Failure: INVALID_ARGUMENT for files of TLS and tokens.
  static absl::StatusOr<Client> Open(Arguments arguments);

  const Arguments& arguments() const { return arguments_; }
  // An argument of the command; the command itself is word 0. REQUIRES: it exists.
  const std::string& word(size_t i) const { return arguments_.words[i]; }
  v1::Admin::Stub& stub() { return *stub_; }

  template <typename Request>
  static Request With() {
    Request request;
    request.mutable_header()->set_magic(kMagic);
    request.mutable_header()->set_protocol_version(kProtocolVersion);
    return request;
  }

  // Calls `method` of the stub.
  template <typename Method, typename Request, typename Response>
  absl::Status Call(Method method, const Request& request, Response& response) {
    grpc::ClientContext context;
    Prepare(context);
    return FromGrpc((stub_.get()->*method)(&context, request, &response));
  }

  // For a call that needs its context: the token, and the deadline.
  void Identify(grpc::ClientContext& context) const;
  void SetDeadline(grpc::ClientContext& context) const;
  void Prepare(grpc::ClientContext& context) const {
    Identify(context);
    SetDeadline(context);
  }

  template <typename Response>
  void Answer(const Response& response) const {
    const Format format = arguments_.format;
    Print(format == Format::kTable ? Show(response) : Structured(Json(response), format));
  }

 private:
  Client(Arguments arguments, std::string token, std::unique_ptr<v1::Admin::Stub> stub);

  Arguments arguments_;
  std::string token_;  // Empty: none.
  std::unique_ptr<v1::Admin::Stub> stub_;
};

// What a user should know beside gRPC's text when nothing answers.
void ExplainUnreachable(const Arguments& arguments);

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_CTL_CLIENT_H_
