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
struct Place {
  std::string option;
  const std::string& path;
  std::string fix;

  absl::Status Refused(const std::string& why) const {
    return absl::InvalidArgumentError(absl::StrCat(option, " is ", path, ": ", why, "; ", fix));
  }
};

absl::StatusOr<std::string> Read(const Place& place) {
  absl::StatusOr<std::string> text = ReadTextFile(place.path);
  if (!text.ok()) return place.Refused(std::string(text.status().message()));
  return text;
}

absl::StatusOr<std::vector<CertificatePtr>> ReadCertificates(const Place& place) {
  const absl::StatusOr<std::string> text = Read(place);
  if (!text.ok()) return text.status();
  const BioPtr bio = BioOf(*text);
  std::vector<CertificatePtr> found;
  while (X509* next = PEM_read_bio_X509(bio.get(), nullptr, nullptr, nullptr)) {
    found.emplace_back(next);
  }
  const unsigned long error = ERR_peek_last_error();
  const bool at_end = ERR_GET_REASON(error) == PEM_R_NO_START_LINE;
  const std::string reason = TakeOpensslError();
  if (found.empty() && at_end) return place.Refused("it has no certificate in PEM format");
  if (!at_end) {
    return place.Refused(
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

// When the first of them expires; an error if one is not valid at `now`.
absl::StatusOr<absl::Time> CheckValidity(const Place& place,
                                         const std::vector<CertificatePtr>& certificates,
                                         absl::Time now) {
  absl::Time first = absl::InfiniteFuture();
  for (const CertificatePtr& certificate : certificates) {
    const absl::Time begins = TimeOf(X509_get0_notBefore(certificate.get()));
    const absl::Time ends = TimeOf(X509_get0_notAfter(certificate.get()));
    if (now < begins) {
      return place.Refused(absl::StrCat("it is not valid before ", Show(begins)));
    }
    if (now > ends) return place.Refused(absl::StrCat("it expired at ", Show(ends)));
    first = std::min(first, ends);
  }
  return first;
}

absl::Status CheckKey(const Place& place, const Place& cert, X509* certificate) {
  const absl::StatusOr<std::string> text = Read(place);
  if (!text.ok()) return text.status();
  const BioPtr bio = BioOf(*text);
  // An encrypted key must not ask a terminal for its password.
  const auto no_password = [](char*, int, int, void*) { return 0; };
  const KeyPtr key(PEM_read_bio_PrivateKey(bio.get(), nullptr, no_password, nullptr));
  if (key == nullptr) {
    return place.Refused(
        absl::StrCat("it has no private key without a password (", TakeOpensslError(), ")"));
  }
  if (X509_check_private_key(certificate, key.get()) != 1) {
    ERR_clear_error();
    return place.Refused(absl::StrCat("it is not the key of the certificate in ", cert.option));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<absl::Time> CheckServerTls(const ServerTls& tls, const std::string& prefix,
                                          absl::Time now) {
  if (!tls.on()) return absl::InfiniteFuture();
  ERR_clear_error();
  const Place cert{prefix + "cert", tls.cert,
                   "name the PEM file with the certificate of this server and its chain"};
  const auto chain = ReadCertificates(cert);
  if (!chain.ok()) return chain.status();
  absl::StatusOr<absl::Time> expires = CheckValidity(cert, *chain, now);
  if (!expires.ok()) return expires.status();
  X509* own = chain->front().get();
  if ((X509_get_extended_key_usage(own) & XKU_SSL_SERVER) == 0) {
    return cert.Refused("its certificate is not for servers (extended key usage)");
  }
  const Place key{prefix + "key", tls.key,
                  absl::StrCat("name the PEM file with the private key of ", cert.option)};
  if (const absl::Status fits = CheckKey(key, cert, own); !fits.ok()) return fits;
  if (tls.client_ca.empty()) return expires;
  const Place ca{prefix + "client_ca", tls.client_ca,
                 "name the PEM file with the CA of the certificates of clients"};
  const auto authorities = ReadCertificates(ca);
  if (!authorities.ok()) return authorities.status();
  const absl::StatusOr<absl::Time> ca_expires = CheckValidity(ca, *authorities, now);
  if (!ca_expires.ok()) return ca_expires.status();
  return std::min(*expires, *ca_expires);
}

}  // namespace basin::aggregator
