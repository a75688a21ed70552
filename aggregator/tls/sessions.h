// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The certificates of a port: read again while it serves, and in force only if they fit together.
// For connections that are not gRPC's, a session of OpenSSL for each, with the certificates that
// are in force when it begins; gRPC gets the certificates themselves.
//
// Thread contract: safe from any thread.
// Failure: INVALID_ARGUMENT with the file and the reason of OpenSSL.

#ifndef BASIN_AGGREGATOR_TLS_SESSIONS_H_
#define BASIN_AGGREGATOR_TLS_SESSIONS_H_

#include <openssl/ssl.h>

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "aggregator/tls/openssl.h"
#include "runtime/grpc/credentials.h"
#include "runtime/mutex.h"

namespace basin::aggregator {

using TlsContextPtr = OpensslPtr<SSL_CTX, SSL_CTX_free>;
using TlsSessionPtr = OpensslPtr<SSL, SSL_free>;

class TlsSessions {
 public:
  // A server's, which reads its files now. A client may present no certificate, but none of another
  // authority than those in `client_ca`. REQUIRES: tls.on().
  static absl::StatusOr<std::unique_ptr<TlsSessions>> Open(const ServerTls& tls);

  // Reads the files again. A file may be read while it is being written, so a change counts when it
  // is read twice. A failure changes nothing: new connections get the earlier certificates.
  absl::Status Refresh();

  // For a new connection; null if OpenSSL has no memory for it.
  TlsSessionPtr Begin() const;

  // The certificates in force; another pointer when they have changed.
  std::shared_ptr<const ServerPems> InForce() const;

  // Whether clients have certificates of a known authority.
  bool verifies_clients() const { return !tls_.client_ca.empty(); }

 private:
  explicit TlsSessions(const ServerTls& tls) : tls_(tls) {}
  absl::StatusOr<ServerPems> Read() const;
  absl::StatusOr<TlsContextPtr> ContextOf(const ServerPems& texts) const;

  const ServerTls tls_;
  mutable Mutex mutex_;
  TlsContextPtr context_ ABSL_GUARDED_BY(mutex_);
  std::shared_ptr<const ServerPems> in_force_ ABSL_GUARDED_BY(mutex_);
  ServerPems last_read_ ABSL_GUARDED_BY(mutex_);
};

// Whether the client of a session that has begun presented a certificate, which was then verified.
bool HasClientCertificate(const SSL* session);

// A client's that does not check who the server is: for a process that asks its own port.
TlsSessionPtr BeginUnverifiedClient();

// A client's for a server with a certificate for `host`, a name or an address, of an authority in
// the file.
absl::StatusOr<TlsSessionPtr> BeginClient(const std::string& ca_path, const std::string& host);

// Why the certificate of the other side was not accepted; empty if it was, or there was none yet.
std::string WhyNotVerified(const SSL* session);

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_TLS_SESSIONS_H_
