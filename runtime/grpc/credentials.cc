// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "runtime/grpc/credentials.h"

#include <algorithm>
#include <cstring>
#include <string_view>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "grpc/grpc.h"
#include "grpc/grpc_security.h"
#include "runtime/grpc/own_server_credentials.h"
#include "runtime/text_file.h"

namespace basin {
namespace {

constexpr size_t kMostTokenBytes = 1024;

bool IsOnThisMachine(std::string_view address) {
  for (const std::string_view start : {"127.", "localhost:", "[::1]:", "unix:"}) {
    if (absl::StartsWith(absl::string_view(address.data(), address.size()),
                         absl::string_view(start.data(), start.size()))) {
      return true;
    }
  }
  return false;
}

// A server's credentials with certificates that may change. gRPC's own reader of files would take a
// key that does not fit its certificate, and refuse every client from then on.
class ChangingCredentials : public OwnServerCredentials {
 public:
  explicit ChangingCredentials(PemSource source)
      : OwnServerCredentials(Create(source()->client_ca.empty(), this)),
        source_(std::move(source)) {}

  // Certificates and tokens are checked call by call (PresentedBy).
  void SetAuthMetadataProcessor(const std::shared_ptr<grpc::AuthMetadataProcessor>&) override {}

 private:
  static grpc_server_credentials* Create(bool any_client, void* self) {
    const auto clients = any_client ? GRPC_SSL_DONT_REQUEST_CLIENT_CERTIFICATE
                                    : GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY;
    return grpc_ssl_server_credentials_create_with_options(
        grpc_ssl_server_credentials_create_options_using_config_fetcher(clients, Fetch, self));
  }

  // gRPC calls it under a lock of the port.
  static grpc_ssl_certificate_config_reload_status Fetch(
      void* self, grpc_ssl_server_certificate_config** config) {
    auto& credentials = *static_cast<ChangingCredentials*>(self);
    std::shared_ptr<const ServerPems> now = credentials.source_();
    if (now == credentials.given_) return GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_UNCHANGED;
    const grpc_ssl_pem_key_cert_pair pair{now->key.c_str(), now->cert.c_str()};
    // A debug assertion of gRPC, which Debian's build has, wants roots also where no certificate of
    // a client is asked for; they are not used then.
    const std::string& roots = now->client_ca.empty() ? now->cert : now->client_ca;
    *config = grpc_ssl_server_certificate_config_create(roots.c_str(), &pair, 1);
    credentials.given_ = std::move(now);
    return GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_NEW;
  }

  const PemSource source_;
  std::shared_ptr<const ServerPems> given_;  // To gRPC, last.
};

// Stands in every PEM file.
constexpr std::string_view kBegin = "-----BEGIN ";

absl::StatusOr<std::string> ReadPem(const char* option, const char* variable,
                                    const std::string& path, const char* fix) {
  const auto refused = [&](const std::string& why) {
    return absl::InvalidArgumentError(
        absl::StrCat(option, " (", variable, ") is ", path, ": ", why, "; ", fix, "."));
  };
  absl::StatusOr<std::string> text = ReadTextFile(path);
  if (!text.ok()) return refused(std::string(text.status().message()));
  if (text->find(kBegin) == std::string::npos) return refused("it is not a PEM file");
  return text;
}

}  // namespace

std::shared_ptr<grpc::ServerCredentials> ServerCredentialsOf(PemSource source) {
  if (source == nullptr) return grpc::InsecureServerCredentials();
  return std::make_shared<ChangingCredentials>(std::move(source));
}

absl::StatusOr<std::string> ReadToken(const std::string& path, const ClientTls& tls,
                                      const std::string& address) {
  if (path.empty()) return std::string();
  if (absl::StartsWith(path, "basin_")) {  // Not shown, because it may be a secret.
    return absl::InvalidArgumentError(
        "token_file (BASIN_TOKEN_FILE) has a token instead of the path of a file. Write the token "
        "to a file that only you can read, and set token_file to its path.");
  }
  if (!tls.on() && !IsOnThisMachine(address)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "token_file (BASIN_TOKEN_FILE) is set, but tls_ca (BASIN_TLS_CA) is not, so the token "
        "would "
        "be sent to ",
        address,
        " without encryption. Set tls_ca, or no token_file if the aggregator has no TLS."));
  }
  const auto refused = [&](const std::string& why) {
    return absl::InvalidArgumentError(
        absl::StrCat("token_file (BASIN_TOKEN_FILE) is ", path, ": ", why,
                     "; name the file with the token that `basinctl token new` printed."));
  };
  const absl::StatusOr<std::string> text = ReadTextFile(path);
  if (!text.ok()) return refused(std::string(text.status().message()));
  const std::string token(absl::StripAsciiWhitespace(*text));
  const bool good = !token.empty() && token.size() <= kMostTokenBytes &&
                    std::all_of(token.begin(), token.end(),
                                [](unsigned char c) { return absl::ascii_isgraph(c); });
  if (!good) return refused("it must have one token and nothing else");
  return token;
}

Presented PresentedBy(const grpc::ServerContextBase& context) {
  Presented presented;
  const auto& metadata = context.client_metadata();
  // More than one is no valid request; none of them counts then.
  if (metadata.count(kAuthorizationMetadata) == 1) {
    const grpc::string_ref value = metadata.find(kAuthorizationMetadata)->second;
    if (value.starts_with(kBearer)) {
      const grpc::string_ref token = value.substr(std::strlen(kBearer));
      presented.token.assign(token.data(), token.size());
    }
  }
  const auto peer = context.auth_context();
  if (peer != nullptr && peer->IsPeerAuthenticated()) {
    for (const grpc::string_ref& name : peer->FindPropertyValues(GRPC_X509_SAN_PROPERTY_NAME)) {
      presented.sans.emplace_back(name.data(), name.size());
    }
  }
  return presented;
}

absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> ChannelCredentialsOf(
    const ClientTls& tls) {
  if (tls.cert.empty() != tls.key.empty()) {
    return absl::InvalidArgumentError(
        "Only one of tls_cert (BASIN_TLS_CERT) and tls_key (BASIN_TLS_KEY) is set. Set both, or "
        "neither if the aggregator requires no certificate of a client.");
  }
  if (!tls.on()) {
    if (tls.cert.empty()) return grpc::InsecureChannelCredentials();
    return absl::InvalidArgumentError(
        "tls_cert (BASIN_TLS_CERT) is set, but tls_ca (BASIN_TLS_CA) is not. Set it to the file "
        "with the CA of the aggregator's certificate.");
  }
  grpc::SslCredentialsOptions options;
  absl::StatusOr<std::string> pem =
      ReadPem("tls_ca", "BASIN_TLS_CA", tls.ca,
              "name the PEM file with the CA of the aggregator's certificate");
  if (!pem.ok()) return pem.status();
  options.pem_root_certs = *std::move(pem);
  if (!tls.cert.empty()) {
    pem = ReadPem("tls_cert", "BASIN_TLS_CERT", tls.cert,
                  "name the PEM file with the certificate of this client");
    if (!pem.ok()) return pem.status();
    options.pem_cert_chain = *std::move(pem);
    pem = ReadPem("tls_key", "BASIN_TLS_KEY", tls.key,
                  "name the PEM file with the private key of tls_cert");
    if (!pem.ok()) return pem.status();
    options.pem_private_key = *std::move(pem);
  }
  return grpc::SslCredentials(options);
}

}  // namespace basin
