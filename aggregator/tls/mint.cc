// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "aggregator/tls/mint.h"

#include <openssl/pem.h>
#include <openssl/rand.h>

#include <array>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "aggregator/tls/openssl.h"

namespace basin::aggregator {
namespace {

absl::Status Failed(const char* what) {
  return absl::InternalError(absl::StrCat("OpenSSL cannot ", what, ": ", TakeOpensslError()));
}

bool AddExtension(X509* certificate, X509* issuer, int id, const std::string& value) {
  X509V3_CTX context;
  X509V3_set_ctx(&context, issuer, certificate, nullptr, nullptr, 0);
  const ExtensionPtr extension(X509V3_EXT_conf_nid(nullptr, &context, id, value.c_str()));
  return extension != nullptr && X509_add_ext(certificate, extension.get(), -1) == 1;
}

bool SetSerial(X509* certificate) {
  std::array<unsigned char, 16> bytes = {};
  if (RAND_bytes(bytes.data(), bytes.size()) != 1) return false;
  bytes[0] &= 0x7f;  // Not negative.
  OpensslPtr<BIGNUM, BN_free> number(BN_bin2bn(bytes.data(), bytes.size(), nullptr));
  return number != nullptr &&
         BN_to_ASN1_INTEGER(number.get(), X509_get_serialNumber(certificate)) != nullptr;
}

bool SetTime(ASN1_TIME* to, absl::Time time) {
  return ASN1_TIME_set(to, absl::ToTimeT(time)) != nullptr;
}

template <typename Write>
std::string Pem(Write write) {
  const BioPtr bio(BIO_new(BIO_s_mem()));
  if (bio == nullptr || write(bio.get()) != 1) return "";
  char* bytes = nullptr;
  const long count = BIO_get_mem_data(bio.get(), &bytes);
  return std::string(bytes, static_cast<size_t>(count));
}

struct Authority {
  CertificatePtr certificate;
  KeyPtr key;
};

// Without an authority, the certificate is one itself.
absl::StatusOr<KeyPair> Make(const CertificateRequest& request, const Authority* authority) {
  ERR_clear_error();
  const KeyPtr key(EVP_EC_gen("P-256"));
  const CertificatePtr certificate(X509_new());
  if (key == nullptr || certificate == nullptr) return Failed("make a key");
  X509* const x509 = certificate.get();
  X509* const issuer = authority == nullptr ? x509 : authority->certificate.get();
  X509_NAME* const name = X509_get_subject_name(x509);
  bool ok = X509_set_version(x509, X509_VERSION_3) == 1 && SetSerial(x509) &&
            SetTime(X509_getm_notBefore(x509), request.not_before) &&
            SetTime(X509_getm_notAfter(x509), request.not_after) &&
            X509_set_pubkey(x509, key.get()) == 1 &&
            X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_UTF8,
                                       reinterpret_cast<const unsigned char*>(request.name.c_str()),
                                       -1, -1, 0) == 1 &&
            X509_set_issuer_name(x509, X509_get_subject_name(issuer)) == 1 &&
            AddExtension(x509, issuer, NID_subject_key_identifier, "hash");
  if (authority == nullptr) {
    ok = ok && AddExtension(x509, issuer, NID_basic_constraints, "critical,CA:TRUE") &&
         AddExtension(x509, issuer, NID_key_usage, "critical,keyCertSign,cRLSign");
  } else {
    std::vector<std::string> uses;
    if (request.for_server) uses.push_back("serverAuth");
    if (request.for_client) uses.push_back("clientAuth");
    ok = ok && AddExtension(x509, issuer, NID_basic_constraints, "critical,CA:FALSE") &&
         AddExtension(x509, issuer, NID_key_usage, "critical,digitalSignature") &&
         AddExtension(x509, issuer, NID_authority_key_identifier, "keyid") &&
         AddExtension(x509, issuer, NID_ext_key_usage, absl::StrJoin(uses, ",")) &&
         (request.names.empty() ||
          AddExtension(x509, issuer, NID_subject_alt_name, absl::StrJoin(request.names, ",")));
  }
  EVP_PKEY* const signer = authority == nullptr ? key.get() : authority->key.get();
  if (!ok || X509_sign(x509, signer, EVP_sha256()) == 0) return Failed("make a certificate");
  KeyPair pair;
  pair.cert = Pem([&](BIO* bio) { return PEM_write_bio_X509(bio, x509); });
  pair.key = Pem([&](BIO* bio) {
    return PEM_write_bio_PKCS8PrivateKey(bio, key.get(), nullptr, nullptr, 0, nullptr, nullptr);
  });
  if (pair.cert.empty() || pair.key.empty()) return Failed("write a certificate");
  return pair;
}

}  // namespace

absl::StatusOr<KeyPair> MintCa(const CertificateRequest& request) { return Make(request, nullptr); }

absl::StatusOr<KeyPair> Mint(const KeyPair& ca, const CertificateRequest& request) {
  const BioPtr cert = BioOf(ca.cert);
  const BioPtr key = BioOf(ca.key);
  Authority authority;
  authority.certificate.reset(PEM_read_bio_X509(cert.get(), nullptr, nullptr, nullptr));
  authority.key.reset(PEM_read_bio_PrivateKey(key.get(), nullptr, nullptr, nullptr));
  if (authority.certificate == nullptr || authority.key == nullptr) {
    return Failed("read the certificate authority");
  }
  return Make(request, &authority);
}

}  // namespace basin::aggregator
