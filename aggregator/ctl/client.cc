// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "aggregator/ctl/client.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "aggregator/ctl/output.h"
#include "grpcpp/channel.h"
#include "grpcpp/create_channel.h"
#include "runtime/grpc/credentials.h"

namespace basin::aggregator {

absl::StatusOr<Client> Client::Open(Arguments arguments) {
  const auto credentials = ChannelCredentialsOf(arguments.tls);
  if (!credentials.ok()) return credentials.status();
  absl::StatusOr<std::string> token =
      ReadToken(arguments.token_file, arguments.tls, arguments.address);
  if (!token.ok()) return token.status();
  grpc::ChannelArguments channel;
  // A proxy that the environment names is for the internet, not for the aggregator.
  channel.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  auto stub =
      v1::Admin::NewStub(grpc::CreateCustomChannel(arguments.address, *credentials, channel));
  return Client(std::move(arguments), *std::move(token), std::move(stub));
}

Client::Client(Arguments arguments, std::string token, std::unique_ptr<v1::Admin::Stub> stub)
    : arguments_(std::move(arguments)), token_(std::move(token)), stub_(std::move(stub)) {}

void Client::Identify(grpc::ClientContext& context) const {
  if (!token_.empty()) context.AddMetadata(kAuthorizationMetadata, kBearer + token_);
}

void Client::SetDeadline(grpc::ClientContext& context) const {
  context.set_deadline(absl::ToChronoTime(absl::Now() + arguments_.timeout));
}

void ExplainUnreachable(const Arguments& arguments) {
  Complain(absl::StrCat("basinctl: nothing answers on ", arguments.address,
                        "; check that the aggregator runs, that this is its admin.listen, and ",
                        arguments.tls.on() ? "that BASIN_TLS_CA is the CA of its certificate"
                                           : "set BASIN_TLS_CA if it has tls.cert",
                        "; `basinctl doctor` finds the cause\n"));
}

}  // namespace basin::aggregator
