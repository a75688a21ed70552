// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// What an aggregator reports about itself in the initial metadata of a call: its version and its
// clock, which only `basinctl doctor` reads, and the socket at which a worker on the same machine
// can share memory with it. Nothing else depends on it. `basinctl doctor` in turn names a job, in
// the metadata of a session without a hello, to learn whether its credential is good for it.
//
// Thread contract: Greet before the call's first answer is sent; GreetingIn is a pure function.

#ifndef BASIN_RUNTIME_GRPC_GREETING_H_
#define BASIN_RUNTIME_GRPC_GREETING_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/time/time.h"
#include "grpcpp/client_context.h"
#include "grpcpp/server_context.h"

namespace basin {

struct Greeting {
  std::string version;            // The program's.
  uint32_t protocol_version = 0;  // See protocol/version.h.
  absl::Time time;                // By the wall clock of the aggregator.
  std::string job;                // That the credential was checked for; empty: for none.
};

// The caller asks about this job. REQUIRES: it is a valid name; before the call.
void AskAbout(const std::string& job, grpc::ClientContext& context);
// Empty if the caller asks about none.
std::string JobAskedIn(const grpc::ServerContextBase& context);

// Also repeats the job that the caller asks about: the call must check it. `local`: the name of the
// socket (runtime/shared_memory/socket.h); empty for none.
void Greet(grpc::ServerContextBase& context, const std::string& version,
           const std::string& local = "");

// Nothing if the aggregator sent none, or one that cannot be read. REQUIRES: the initial metadata
// has arrived.
std::optional<Greeting> GreetingIn(const grpc::ClientContext& context);
// The name of the socket; empty if there is none.
std::string LocalSocketIn(const grpc::ClientContext& context);

}  // namespace basin

#endif  // BASIN_RUNTIME_GRPC_GREETING_H_
