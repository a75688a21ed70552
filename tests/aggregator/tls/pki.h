// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Certificates for a test, made in it, in files of a folder that is removed with it.
//
// Thread contract: one thread.

#ifndef BASIN_TESTS_AGGREGATOR_TLS_PKI_H_
#define BASIN_TESTS_AGGREGATOR_TLS_PKI_H_

#include <string>

#include "absl/time/clock.h"
#include "aggregator/tls/mint.h"
#include "runtime/grpc/credentials.h"

namespace basin::aggregator {

// A certificate for 127.0.0.1 that is valid now.
CertificateRequest Valid(const std::string& name = "test");

// A certificate authority.
class Pki {
 public:
  Pki();
  ~Pki();
  Pki(const Pki&) = delete;
  Pki& operator=(const Pki&) = delete;

  const KeyPair& ca() const { return ca_; }
  std::string path(const std::string& name) const { return folder_ + "/" + name; }

  // Writes the file by renaming, and returns its path.
  std::string Write(const std::string& name, const std::string& text) const;

  // Certificates of this CA; files PREFIX.crt and PREFIX.key, and ca.crt.
  ServerTls Server(const std::string& prefix = "server",
                   const CertificateRequest& request = Valid()) const;
  ClientTls Client(const std::string& prefix = "client",
                   const CertificateRequest& request = Valid()) const;
  // Only the CA, no certificate.
  ClientTls Trust() const;

 private:
  KeyPair ca_;
  std::string folder_;
};

}  // namespace basin::aggregator

#endif  // BASIN_TESTS_AGGREGATOR_TLS_PKI_H_
