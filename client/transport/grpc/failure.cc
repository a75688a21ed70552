// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "client/transport/grpc/failure.h"

#include "absl/strings/ascii.h"
#include "absl/strings/cord.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "proto/status/detail.h"
#include "proto/status/status.h"

namespace basin::client {
namespace {

// HTTP/2's ENHANCE_YOUR_CALM.
constexpr char kCalmDown[] = "error code 11";

struct Cause {
  // Part of gRPC's text, in lower case, with blanks for the underscores of BoringSSL.
  const char* text;
  const char* what;                  // What happened to the stream,
  const char* next;                  // and what to do about it.
  bool connecting_with_tls = false;  // Has this meaning only then.
  const char* at_shard = nullptr;    // What to do where the other end is one; null: the same.
};

constexpr char kOwnCertificate[] =
    "If it has tls.client_ca, set BASIN_TLS_CERT and BASIN_TLS_KEY to a certificate of that CA "
    "that is valid now; its log has the address of each refused peer";

// The first that fits.
constexpr Cause kCauses[] = {
    {"certificate verify failed", "presented a certificate that this worker does not trust",
     "Set BASIN_TLS_CA to the CA of that certificate, and check that it is valid now"},
    {"is not in peer certificate", "has a certificate for another name",
     "Set BASIN_ADDRESS to a name in its certificate, or add this one to the certificate", false,
     "Let it advertise a name in its certificate, or add this one to the certificate"},
    {"wrong version number", "answers without TLS",
     "Unset BASIN_TLS_CA, or set tls.cert and tls.key of the aggregator", false,
     "Set tls.cert and tls.key of the shard"},
    {"http1.x server", "does not answer without TLS",
     "Set BASIN_TLS_CA to the CA of its certificate, and check that the address is right"},
    {"alert", "refused the TLS handshake", kOwnCertificate, true},
    {"socket closed", "closed the connection in the TLS handshake", kOwnCertificate, true},
    {"connection reset", "closed the connection in the TLS handshake", kOwnCertificate, true},
    {"too many pings", "was pinged more often than it allows",
     "Give aggregator and workers the same keepalive settings"},
    {kCalmDown, "had no memory left for messages and ended the stream",
     "Give it a larger memory budget, or fewer and smaller jobs"},
    {"keepalive", "did not answer a keepalive ping",
     "Its process is stopped, or the network to it is broken; this worker keeps trying"},
    {"ping timeout", "did not answer a keepalive ping",
     "Its process is stopped, or the network to it is broken; this worker keeps trying"},
    {"dns resolution failed", "has a name that cannot be resolved",
     "Check the address and the name server; this worker keeps trying"},
    {"failed to connect", "cannot be reached",
     "Check that it runs and that the address is right; this worker keeps trying", false,
     "Check that it advertises an address that this worker can reach; this worker keeps trying"},
    {"received message larger than max", "sent a message that is larger than the protocol allows",
     "Check that the address is that of an aggregator"},
};

// The part of gRPC's text that names the cause. The parts before it name addresses and queries,
// which differ between two attempts that fail for the same reason.
absl::string_view Core(absl::string_view message) {
  const size_t colon = message.rfind(": ");
  return absl::StripSuffix(colon == absl::string_view::npos ? message : message.substr(colon + 2),
                           ".");
}

}  // namespace

std::string DescribePeer(const std::string& address, const std::string& shard) {
  if (shard.empty()) return absl::StrCat("the aggregator at ", address);
  return absl::StrCat("shard ", shard, " at ", address);
}

absl::Status DescribeFailure(const std::string& address, bool tls, const grpc::Status& status,
                             const std::string& shard) {
  const std::string peer = DescribePeer(address, shard);
  if (status.ok()) return absl::UnavailableError(absl::StrCat(peer, " ended the stream"));
  const absl::Status plain = FromGrpc(status);
  const std::string message(plain.message());
  std::string text = absl::StrCat(peer, " ended the stream: ", message);
  // A status with a detail has the aggregator's own text.
  if (!plain.GetPayload(kStatusDetailUrl)) {
    const std::string lower = absl::StrReplaceAll(absl::AsciiStrToLower(message), {{"_", " "}});
    const bool connecting_with_tls = tls && absl::StrContains(lower, "failed to connect");
    for (const Cause& cause : kCauses) {
      if (cause.connecting_with_tls && !connecting_with_tls) continue;
      if (!absl::StrContains(lower, cause.text)) continue;
      const bool other = !shard.empty() && cause.at_shard != nullptr;
      text = absl::StrCat(peer, " ", cause.what, " (", Core(message), "). ",
                          other ? cause.at_shard : cause.next);
      break;
    }
  }
  absl::Status described(plain.code(), text);
  plain.ForEachPayload([&](absl::string_view url, const absl::Cord& payload) {
    described.SetPayload(url, payload);
  });
  return described;
}

}  // namespace basin::client
