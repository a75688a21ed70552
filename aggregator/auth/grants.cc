// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "aggregator/auth/grants.h"

#include <openssl/crypto.h>
#include <openssl/rand.h>
#include <openssl/sha.h>

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "protocol/limits/limits.h"
#include "protocol/limits/names.h"

namespace basin::aggregator {
namespace {

constexpr size_t kMostGrants = 10000;
constexpr std::string_view kHashPrefix = "sha256:";
constexpr std::string_view kSanPrefix = "san:";

absl::string_view Absl(std::string_view text) { return {text.data(), text.size()}; }

absl::Status Wrong(size_t line, const std::string& why) {
  return absl::InvalidArgumentError(absl::StrCat("line ", line, ": ", why));
}

bool IsHex(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return absl::ascii_isxdigit(c); });
}

// REQUIRES: `hex` has two hexadecimal digits for each byte.
TokenHash BytesOf(std::string_view hex) {
  TokenHash bytes{};
  for (size_t i = 0; i < bytes.size(); ++i) {
    uint32_t byte = 0;
    static_cast<void>(absl::SimpleHexAtoi(Absl(hex.substr(2 * i, 2)), &byte));
    bytes[i] = static_cast<unsigned char>(byte);
  }
  return bytes;
}

}  // namespace

TokenHash HashOf(std::string_view token) {
  TokenHash hash{};
  SHA256(reinterpret_cast<const unsigned char*>(token.data()), token.size(), hash.data());
  return hash;
}

std::string ToString(const TokenHash& hash) {
  return absl::StrCat(Absl(kHashPrefix),
                      absl::BytesToHexString(absl::string_view(
                          reinterpret_cast<const char*>(hash.data()), hash.size())));
}

absl::StatusOr<std::string> NewToken() {
  std::array<unsigned char, 32> random = {};
  if (RAND_bytes(random.data(), random.size()) != 1) {
    return absl::InternalError("OpenSSL has no random numbers");
  }
  return absl::StrCat("basin_", absl::WebSafeBase64Escape(absl::string_view(
                                    reinterpret_cast<const char*>(random.data()), random.size())));
}

Credentials CredentialsOf(std::string_view token, std::vector<std::string> sans) {
  Credentials credentials;
  credentials.has_token = !token.empty();
  if (credentials.has_token) credentials.token = HashOf(token);
  credentials.sans = std::move(sans);
  return credentials;
}

absl::Status CheckJobs(std::string_view jobs) {
  const bool pattern = !jobs.empty() && jobs.back() == '*';
  const std::string_view begin = jobs.substr(0, jobs.size() - (pattern ? 1 : 0));
  // A letter after the beginning of a name continues it, so that it is a name.
  const std::string name = absl::StrCat(Absl(begin), pattern ? "x" : "");
  if (CheckJobName(name).ok()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(QuoteForError(jobs),
                   " is neither the name of a job nor the beginning of names and \"*\" "
                   "(\"vision\", \"team-a/*\", \"*\")"));
}

absl::StatusOr<CallerRole> ParseRole(std::string_view text) {
  for (int i = 0; i < kRoles; ++i) {
    if (text == RoleName(static_cast<CallerRole>(i))) return static_cast<CallerRole>(i);
  }
  return absl::InvalidArgumentError(
      absl::StrCat(QuoteForError(text), " is no role; write worker, observer, admin or shard"));
}

absl::StatusOr<Grants> Grants::Parse(std::string_view text) {
  Grants grants;
  size_t number = 0;
  for (const absl::string_view line : absl::StrSplit(Absl(text), '\n')) {
    ++number;
    const std::vector<std::string> words =
        absl::StrSplit(line, absl::ByAnyChar(" \t\r"), absl::SkipEmpty());
    if (words.empty() || words[0][0] == '#') continue;
    if (words.size() < 3) return Wrong(number, "write ROLE JOBS CREDENTIAL [NAME]");
    Entry entry;
    const absl::StatusOr<CallerRole> role = ParseRole(words[0]);
    if (!role.ok()) return Wrong(number, std::string(role.status().message()));
    entry.grant.role = *role;
    if (const absl::Status jobs = CheckJobs(words[1]); !jobs.ok()) {
      return Wrong(number, std::string(jobs.message()));
    }
    entry.grant.jobs = words[1];
    const std::string& credential = words[2];
    const std::string_view hex =
        std::string_view(credential).substr(std::min(credential.size(), kHashPrefix.size()));
    if (absl::StartsWith(credential, Absl(kSanPrefix)) && credential.size() > kSanPrefix.size()) {
      entry.san = credential.substr(kSanPrefix.size());
      entry.grant.name = PrintableText(credential, kMaxTextBytes);
    } else if (absl::StartsWith(credential, Absl(kHashPrefix)) &&
               hex.size() == 2 * entry.token.size() && IsHex(hex)) {
      entry.token = BytesOf(hex);
      entry.is_token = true;
      entry.grant.name = credential.substr(0, kHashPrefix.size() + 8);
    } else {
      // Not quoted: it may be a token.
      return Wrong(number,
                   "the credential must be sha256: with 64 hexadecimal digits, as `basinctl token "
                   "new` prints it, or san: with a name in a certificate");
    }
    if (words.size() > 3) {
      const size_t at = line.find(words[3], line.find(credential) + credential.size());
      entry.grant.name = PrintableText(std::string(absl::StripAsciiWhitespace(line.substr(at))),
                                       kMaxTextBytes / 8);
    }
    if (grants.entries_.size() == kMostGrants) {
      return Wrong(number, absl::StrCat("there are more than ", kMostGrants, " grants"));
    }
    grants.entries_.push_back(std::move(entry));
  }
  return grants;
}

bool Grants::Fits(const Entry& entry, const Credentials& credentials) {
  if (!entry.is_token) {
    return std::find(credentials.sans.begin(), credentials.sans.end(), entry.san) !=
           credentials.sans.end();
  }
  const bool same =
      CRYPTO_memcmp(entry.token.data(), credentials.token.data(), entry.token.size()) == 0;
  return same && credentials.has_token;
}

Grants::Answer Grants::Check(const Credentials& credentials, Rpc rpc, std::string_view job) const {
  if (credentials.empty()) return {};
  Answer answer{Decision::kUnknownCredential, nullptr};
  for (const Entry& entry : entries_) {
    if (!Fits(entry, credentials) || answer.decision == Decision::kAllowed) continue;
    const Decision decision = Decide(entry.grant, rpc, job);
    // Reports the nearest miss: a wrong job is more useful to know than a wrong role.
    if (decision == Decision::kAllowed || answer.grant == nullptr ||
        decision == Decision::kWrongJob) {
      answer = {decision, &entry.grant};
    }
  }
  return answer;
}

std::set<std::string> Grants::JobsOfManyTeams() const {
  std::set<std::string> found;
  for (const Entry& entry : entries_) {
    const std::string& jobs = entry.grant.jobs;
    if (entry.grant.role != CallerRole::kWorker || jobs.back() != '*') continue;
    if (jobs.find('/') == std::string::npos) found.insert(jobs);
  }
  return found;
}

}  // namespace basin::aggregator
