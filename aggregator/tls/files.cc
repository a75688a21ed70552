// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "aggregator/tls/files.h"

#include <openssl/pem.h>

#include <algorithm>
#include <ctime>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "aggregator/tls/openssl.h"
#include "runtime/text_file.h"

namespace basin::aggregator {
namespace {

// An option, the file that it names, and what to do about a mistake.
struct OptionFile {
  std::string option;
  const std::string& path;
  std::string fix;

  absl::Status Refused(const std::string& why) const {
    return absl::InvalidArgumentError(absl::StrCat(option, " is ", path, ": ", why, "; ", fix));
  }
};

absl::StatusOr<std::string> Read(const OptionFile& file) {
  absl::StatusOr<std::string> text = ReadTextFile(file.path);
  if (!text.ok()) return file.Refused(std::string(text.status().message()));
  return text;
}

absl::StatusOr<std::vector<CertificatePtr>> ReadCertificates(const OptionFile& file) {
  const absl::StatusOr<std::string> text = Read(file);
  if (!text.ok()) return text.status();
  const BioPtr bio = BioOf(*text);
  std::vector<CertificatePtr> found;
  while (X509* next = PEM_read_bio_X509(bio.get(), nullptr, nullptr, nullptr)) {
    found.emplace_back(next);
  }
  const unsigned long error = ERR_peek_last_error();
  const bool at_end = ERR_GET_REASON(error) == PEM_R_NO_START_LINE;
  const std::string reason = TakeOpensslError();
  if (found.empty() && at_end) return file.Refused("it has no certificate in PEM format");
  if (!at_end) {
    return file.Refused(
        absl::StrCat("certificate ", found.size() + 1, " in it cannot be read (", reason, ")"));
  }
  return found;
}

absl::Time TimeOf(const ASN1_TIME* time) {
  std::tm parts = {};
  if (ASN1_TIME_to_tm(time, &parts) != 1) return absl::InfinitePast();
  return absl::FromTimeT(timegm(&parts));
}

std::string Show(absl::Time time) {
  return absl::FormatTime("%Y-%m-%d %H:%M UTC", time, absl::UTCTimeZone());
}

std::string SubjectOf(X509* certificate) {
  const BioPtr bio(BIO_new(BIO_s_mem()));
  if (bio == nullptr) return "";
  X509_NAME_print_ex(bio.get(), X509_get_subject_name(certificate), 0, XN_FLAG_ONELINE);
  char* bytes = nullptr;
  const long count = BIO_get_mem_data(bio.get(), &bytes);
  return std::string(bytes, static_cast<size_t>(count));
}

// Why a certificate is not valid at `now`; empty if it is.
std::string WhyNotValid(X509* certificate, absl::Time now) {
  const absl::Time begins = TimeOf(X509_get0_notBefore(certificate));
  const absl::Time ends = TimeOf(X509_get0_notAfter(certificate));
  if (now < begins) return absl::StrCat("it is not valid before ", Show(begins));
  if (now > ends) return absl::StrCat("it expired at ", Show(ends));
  return "";
}

// All of a chain must be valid.
void CheckChain(const OptionFile& file, const std::vector<CertificatePtr>& chain, absl::Time now,
                TlsCheck& check) {
  for (const CertificatePtr& certificate : chain) {
    check.expires = std::min(check.expires, TimeOf(X509_get0_notAfter(certificate.get())));
    const std::string why = WhyNotValid(certificate.get(), now);
    if (check.status.ok() && !why.empty()) check.status = file.Refused(why);
  }
}

// One CA must be valid: while a CA is replaced, its file has the old one and the new one.
void CheckAuthorities(const OptionFile& file, const std::vector<CertificatePtr>& authorities,
                      absl::Time now, TlsCheck& check) {
  absl::Time last = absl::InfinitePast();
  std::string first_why;
  for (const CertificatePtr& authority : authorities) {
    last = std::max(last, TimeOf(X509_get0_notAfter(authority.get())));
    const std::string why = WhyNotValid(authority.get(), now);
    if (why.empty()) continue;
    if (first_why.empty()) first_why = why;
    check.warnings.push_back(absl::StrCat(file.option, " is ", file.path, ": its CA ",
                                          SubjectOf(authority.get()), " is not valid (", why,
                                          "); clients with certificates of this CA are refused"));
  }
  check.expires = std::min(check.expires, last);
  if (check.warnings.size() < authorities.size()) return;
  check.warnings.clear();
  if (check.status.ok()) check.status = file.Refused(first_why);
}

absl::Status CheckKey(const OptionFile& file, const OptionFile& cert, X509* certificate) {
  const absl::StatusOr<std::string> text = Read(file);
  if (!text.ok()) return text.status();
  const BioPtr bio = BioOf(*text);
  // An encrypted key must not ask a terminal for its password.
  const auto no_password = [](char*, int, int, void*) { return 0; };
  const KeyPtr key(PEM_read_bio_PrivateKey(bio.get(), nullptr, no_password, nullptr));
  if (key == nullptr) {
    return file.Refused(
        absl::StrCat("it has no private key without a password (", TakeOpensslError(), ")"));
  }
  if (X509_check_private_key(certificate, key.get()) != 1) {
    ERR_clear_error();
    return file.Refused(absl::StrCat("it is not the key of the certificate in ", cert.option));
  }
  return absl::OkStatus();
}

}  // namespace

TlsCheck CheckServerTls(const ServerTls& tls, const std::string& prefix, absl::Time now) {
  TlsCheck check;
  if (!tls.on()) return check;
  ERR_clear_error();
  const OptionFile cert{prefix + "cert", tls.cert,
                        "name the PEM file with the certificate of this server and its chain"};
  const auto chain = ReadCertificates(cert);
  if (!chain.ok()) {
    check.status = chain.status();
    return check;
  }
  CheckChain(cert, *chain, now, check);
  X509* own = chain->front().get();
  if (check.status.ok() && (X509_get_extended_key_usage(own) & XKU_SSL_SERVER) == 0) {
    check.status = cert.Refused("its certificate is not for servers (extended key usage)");
  }
  const OptionFile key{prefix + "key", tls.key,
                       absl::StrCat("name the PEM file with the private key of ", cert.option)};
  check.status.Update(CheckKey(key, cert, own));
  if (tls.client_ca.empty()) return check;
  const OptionFile ca{prefix + "client_ca", tls.client_ca,
                      "name the PEM file with the CA of the certificates of clients"};
  const auto authorities = ReadCertificates(ca);
  if (authorities.ok()) {
    CheckAuthorities(ca, *authorities, now, check);
  } else {
    check.status.Update(authorities.status());
    check.expires = absl::InfiniteFuture();
  }
  return check;
}

}  // namespace basin::aggregator
