// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// The file of grants (auth.file): which token or certificate has which role for which jobs.
//
//   # ROLE    JOBS      CREDENTIAL                  NAME (optional, for the log)
//   worker    vision*   sha256:9f86d081884c7d65...  vision trainers
//   observer  *         san:spiffe://cluster.local/ns/monitoring/sa/grafana
//   admin     *         sha256:60303ae22b998861...  on-call
//   shard     *         sha256:5e884898da280471...  shards
//
// Tokens have 256 random bits (NewToken), so the file keeps their SHA-256 without salt or
// stretching: an attacker cannot try 2^256 tokens, and a slow hash would only help a flood of wrong
// ones. A credential may have several lines; the first that allows a call counts.
//
// Thread contract: plain values and pure functions, but NewToken, which reads random numbers.

#ifndef BASIN_AGGREGATOR_AUTH_GRANTS_H_
#define BASIN_AGGREGATOR_AUTH_GRANTS_H_

#include <array>
#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "aggregator/auth/access.h"

namespace basin::aggregator {

using TokenHash = std::array<uint8_t, 32>;

TokenHash HashOf(std::string_view token);
// "sha256:" and 64 hexadecimal digits.
std::string ToString(const TokenHash& hash);

// A new token, "basin_" and 43 characters. Failure: INTERNAL without random numbers.
absl::StatusOr<std::string> NewToken();

// "vision", "team-a/*", "*". INVALID_ARGUMENT names what is allowed.
absl::Status CheckJobs(std::string_view jobs);
absl::StatusOr<CallerRole> ParseRole(std::string_view text);

// What a caller presented; the token itself is not kept.
struct Credentials {
  bool has_token = false;
  TokenHash token{};
  std::vector<std::string> sans;  // Subject alternative names of a certificate that was verified.

  bool empty() const { return !has_token && sans.empty(); }
};

// Empty `token`: none.
Credentials CredentialsOf(std::string_view token, std::vector<std::string> sans);

class Grants {
 public:
  // Failure: INVALID_ARGUMENT names the line and the rule.
  static absl::StatusOr<Grants> Parse(std::string_view text);

  struct Answer {
    Decision decision = Decision::kNoCredential;
    const Grant* grant = nullptr;  // The one that allowed or refused it; null: there is none.
  };

  // Whether a call is allowed. Takes the same time for every token.
  Answer Check(const Credentials& credentials, Rpc rpc, std::string_view job) const;

  size_t size() const { return entries_.size(); }

  // What workers were granted that names jobs of any number of teams, such as "vision*": a limit
  // for each team does not bound it.
  std::set<std::string> JobsOfManyTeams() const;

 private:
  struct Entry {
    Grant grant;
    bool is_token = false;
    TokenHash token{};
    std::string san;
  };

  static bool Fits(const Entry& entry, const Credentials& credentials);

  std::vector<Entry> entries_;
};

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_AUTH_GRANTS_H_
