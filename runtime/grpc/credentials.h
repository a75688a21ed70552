// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The files of TLS, and the credentials that gRPC makes of them, for both ends.
//
// A server asks for its certificates at each connection, so they are rotated while it runs; a
// client reads its files for each connection. Only new connections use the new certificates.
//
// Thread contract: safe from any thread.
// Failure: a client gets INVALID_ARGUMENT with the option, the file and what to do. What a server
// gets was checked before (aggregator/tls/sessions.h), because gRPC reports nothing about it.

#ifndef BASIN_RUNTIME_GRPC_CREDENTIALS_H_
#define BASIN_RUNTIME_GRPC_CREDENTIALS_H_

#include <functional>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "absl/status/statusor.h"
#include "grpcpp/security/credentials.h"
#include "grpcpp/security/server_credentials.h"
#include "grpcpp/server_context.h"

namespace basin {

// Paths of PEM files; empty: none.
struct ServerTls {
  std::string cert;       // With the chain to the CA, its own certificate first.
  std::string key;        // The private key of `cert`.
  std::string client_ca;  // Clients must present a certificate of this CA.

  bool on() const { return !cert.empty(); }
};

// What is in the files of a server, PEM.
struct ServerPems {
  std::string cert;
  std::string key;
  std::string client_ca;  // Empty: clients need no certificate.
  bool operator==(const ServerPems& other) const {
    return std::tie(cert, key, client_ca) == std::tie(other.cert, other.key, other.client_ca);
  }
};
// The certificates in force: another pointer when they have changed. From any thread; never null,
// and never without an authority of the clients if it was with one before.
using PemSource = std::function<std::shared_ptr<const ServerPems>()>;

struct ClientTls {
  std::string ca;    // The certificate of the server must be of this CA.
  std::string cert;  // For a server that requires one; with its chain.
  std::string key;   // The private key of `cert`.

  bool on() const { return !ca.empty(); }
};

// Asks the source at each handshake; no source: without TLS. REQUIRES: used for one port of one
// server; the source outlives that server.
std::shared_ptr<grpc::ServerCredentials> ServerCredentialsOf(PemSource source);

// Reads the files now.
absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> ChannelCredentialsOf(
    const ClientTls& tls);

// A token travels in the metadata of each call: "authorization: Bearer TOKEN".
inline constexpr char kAuthorizationMetadata[] = "authorization";
inline constexpr char kBearer[] = "Bearer ";

// The token in the file of BASIN_TOKEN_FILE, for calls to `address`; empty for an empty path.
// Failure: INVALID_ARGUMENT, as above; also without TLS, unless the address is on this machine,
// because every machine on the way, and any server that answers, could use the token.
absl::StatusOr<std::string> ReadToken(const std::string& path, const ClientTls& tls,
                                      const std::string& address);

// What the caller presented: its token, and the names in its certificate if that was verified.
struct Presented {
  std::string token;
  std::vector<std::string> sans;
};
Presented PresentedBy(const grpc::ServerContextBase& context);

}  // namespace basin

#endif  // BASIN_RUNTIME_GRPC_CREDENTIALS_H_
