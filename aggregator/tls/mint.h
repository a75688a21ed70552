// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Makes keys and certificates, for development and tests: ECDSA on P-256.
//
// Thread contract: pure functions but for the random numbers of OpenSSL.
// Failure: INTERNAL, with the reason of OpenSSL.

#ifndef BASIN_AGGREGATOR_TLS_MINT_H_
#define BASIN_AGGREGATOR_TLS_MINT_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace basin::aggregator {

// Both in PEM format.
struct KeyPair {
  std::string cert;
  std::string key;
};

struct CertificateRequest {
  std::string name;                // The common name, for people.
  std::vector<std::string> names;  // In OpenSSL's form: "DNS:a", "IP:127.0.0.1", "URI:spiffe://b".
  absl::Time not_before;
  absl::Time not_after;
  bool for_server = false;
  bool for_client = false;
};

// A certificate authority, signed by itself. `names`, `for_server` and `for_client` do not count.
absl::StatusOr<KeyPair> MintCa(const CertificateRequest& request);

// A certificate of `ca`.
absl::StatusOr<KeyPair> Mint(const KeyPair& ca, const CertificateRequest& request);

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_TLS_MINT_H_
