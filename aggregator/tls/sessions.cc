// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "aggregator/tls/sessions.h"

#include <openssl/pem.h>

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/text_file.h"

namespace basin::aggregator {
namespace {

absl::Status CannotUse(const std::string& path) {
  return absl::InvalidArgumentError(
      absl::StrCat(path, " cannot be used for TLS: ", TakeOpensslError()));
}

std::vector<CertificatePtr> CertificatesIn(const std::string& text) {
  const BioPtr bio = BioOf(text);
  std::vector<CertificatePtr> found;
  while (X509* next = PEM_read_bio_X509(bio.get(), nullptr, nullptr, nullptr)) {
    found.emplace_back(next);
  }
  return found;
}

// The server's own certificate, then its chain.
bool UseChain(SSL_CTX* context, const std::string& text) {
  const std::vector<CertificatePtr> chain = CertificatesIn(text);
  if (chain.empty() || SSL_CTX_use_certificate(context, chain.front().get()) != 1) return false;
  for (size_t i = 1; i < chain.size(); ++i) {
    if (SSL_CTX_add1_chain_cert(context, chain[i].get()) != 1) return false;
  }
  return true;
}

bool UseKey(SSL_CTX* context, const std::string& text) {
  const BioPtr bio = BioOf(text);
  // An encrypted key must not ask a terminal for its password.
  const auto no_password = [](char*, int, int, void*) { return 0; };
  const KeyPtr key(PEM_read_bio_PrivateKey(bio.get(), nullptr, no_password, nullptr));
  return key != nullptr && SSL_CTX_use_PrivateKey(context, key.get()) == 1 &&
         SSL_CTX_check_private_key(context) == 1;
}

// A client may present a certificate of these authorities; a server must.
bool UseAuthorities(SSL_CTX* context, const std::string& text) {
  const std::vector<CertificatePtr> authorities = CertificatesIn(text);
  for (const CertificatePtr& authority : authorities) {
    if (X509_STORE_add_cert(SSL_CTX_get_cert_store(context), authority.get()) != 1 ||
        SSL_CTX_add_client_CA(context, authority.get()) != 1) {
      return false;
    }
  }
  SSL_CTX_set_verify(context, SSL_VERIFY_PEER, nullptr);
  return !authorities.empty();
}

}  // namespace

absl::StatusOr<ServerPems> TlsSessions::Read() const {
  ServerPems texts;
  for (const auto& [path, text] :
       {std::pair(&tls_.cert, &texts.cert), std::pair(&tls_.key, &texts.key),
        std::pair(&tls_.client_ca, &texts.client_ca)}) {
    if (path->empty()) continue;
    absl::StatusOr<std::string> read = ReadTextFile(*path);
    if (!read.ok()) {
      return absl::InvalidArgumentError(absl::StrCat(*path, ": ", read.status().message()));
    }
    *text = *std::move(read);
  }
  return texts;
}

absl::StatusOr<TlsContextPtr> TlsSessions::ContextOf(const ServerPems& texts) const {
  ERR_clear_error();
  TlsContextPtr context(SSL_CTX_new(TLS_server_method()));
  if (context == nullptr || SSL_CTX_set_min_proto_version(context.get(), TLS1_2_VERSION) != 1) {
    return CannotUse(tls_.cert);
  }
  // Each connection brings one request, and a certificate that was replaced must not live on in
  // sessions that are resumed.
  SSL_CTX_set_session_cache_mode(context.get(), SSL_SESS_CACHE_OFF);
  SSL_CTX_set_num_tickets(context.get(), 0);
  SSL_CTX_set_options(context.get(), SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_TICKET |
                                         SSL_OP_NO_COMPRESSION | SSL_OP_CIPHER_SERVER_PREFERENCE);
  if (!UseChain(context.get(), texts.cert)) return CannotUse(tls_.cert);
  if (!UseKey(context.get(), texts.key)) return CannotUse(tls_.key);
  if (!tls_.client_ca.empty() && !UseAuthorities(context.get(), texts.client_ca)) {
    return CannotUse(tls_.client_ca);
  }
  ERR_clear_error();  // The end of a PEM file is an error for OpenSSL.
  return context;
}

absl::StatusOr<std::unique_ptr<TlsSessions>> TlsSessions::Open(const ServerTls& tls) {
  std::unique_ptr<TlsSessions> sessions(new TlsSessions(tls));
  absl::StatusOr<ServerPems> texts = sessions->Read();
  if (!texts.ok()) return texts.status();
  absl::StatusOr<TlsContextPtr> context = sessions->ContextOf(*texts);
  if (!context.ok()) return context.status();
  MutexLock lock(sessions->mutex_);
  sessions->context_ = *std::move(context);
  sessions->in_force_ = std::make_shared<const ServerPems>(*texts);
  sessions->last_read_ = *std::move(texts);
  return sessions;
}

absl::Status TlsSessions::Refresh() {
  absl::StatusOr<ServerPems> texts = Read();
  if (!texts.ok()) return texts.status();
  MutexLock lock(mutex_);
  if (*texts == *in_force_) {
    last_read_ = *std::move(texts);
    return absl::OkStatus();
  }
  if (!(*texts == last_read_)) {
    last_read_ = *std::move(texts);
    return absl::OkStatus();
  }
  absl::StatusOr<TlsContextPtr> context = ContextOf(*texts);
  if (!context.ok()) return context.status();
  context_ = *std::move(context);
  in_force_ = std::make_shared<const ServerPems>(*std::move(texts));
  return absl::OkStatus();
}

std::shared_ptr<const ServerPems> TlsSessions::InForce() const {
  MutexLock lock(mutex_);
  return in_force_;
}

TlsSessionPtr TlsSessions::Begin() const {
  MutexLock lock(mutex_);
  return TlsSessionPtr(SSL_new(context_.get()));
}

bool HasClientCertificate(const SSL* session) {
  return SSL_get0_peer_certificate(session) != nullptr &&
         SSL_get_verify_result(session) == X509_V_OK;
}

TlsSessionPtr BeginUnverifiedClient() {
  const TlsContextPtr context(SSL_CTX_new(TLS_client_method()));
  if (context == nullptr) return nullptr;
  SSL_CTX_set_verify(context.get(), SSL_VERIFY_NONE, nullptr);
  // The session keeps the context.
  return TlsSessionPtr(SSL_new(context.get()));
}

absl::StatusOr<TlsSessionPtr> BeginClient(const std::string& ca_path, const std::string& host) {
  const absl::StatusOr<std::string> authorities = ReadTextFile(ca_path);
  if (!authorities.ok()) {
    return absl::InvalidArgumentError(absl::StrCat(ca_path, ": ", authorities.status().message()));
  }
  ERR_clear_error();
  const TlsContextPtr context(SSL_CTX_new(TLS_client_method()));
  if (context == nullptr || SSL_CTX_set_min_proto_version(context.get(), TLS1_2_VERSION) != 1 ||
      !UseAuthorities(context.get(), *authorities)) {
    return CannotUse(ca_path);
  }
  TlsSessionPtr session(SSL_new(context.get()));
  if (session == nullptr) return CannotUse(ca_path);
  // Fails for what is no address.
  const bool named =
      X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(session.get()), host.c_str()) == 1 ||
      (SSL_set1_host(session.get(), host.c_str()) == 1 &&
       SSL_set_tlsext_host_name(session.get(), host.c_str()) == 1);
  if (!named) return absl::InvalidArgumentError(absl::StrCat(host, " is no name of a host"));
  ERR_clear_error();  // The end of a PEM file is an error for OpenSSL.
  return session;
}

std::string WhyNotVerified(const SSL* session) {
  const long result = SSL_get_verify_result(session);
  return result == X509_V_OK ? "" : X509_verify_cert_error_string(result);
}

}  // namespace basin::aggregator
