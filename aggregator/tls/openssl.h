// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
//
// Ownership of OpenSSL's objects, and the text of its errors.
//
// Thread contract: plain values; errors are per thread.

#ifndef BASIN_AGGREGATOR_TLS_OPENSSL_H_
#define BASIN_AGGREGATOR_TLS_OPENSSL_H_

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

#include <memory>
#include <string>

namespace basin::aggregator {

template <typename T, void (*free_object)(T*)>
struct OpensslDelete {
  void operator()(T* object) const { free_object(object); }
};
template <typename T, void (*free_object)(T*)>
using OpensslPtr = std::unique_ptr<T, OpensslDelete<T, free_object>>;

using CertificatePtr = OpensslPtr<X509, X509_free>;
using KeyPtr = OpensslPtr<EVP_PKEY, EVP_PKEY_free>;
using ExtensionPtr = OpensslPtr<X509_EXTENSION, X509_EXTENSION_free>;
using BioPtr = OpensslPtr<BIO, BIO_free_all>;

// REQUIRES: `text` outlives it.
inline BioPtr BioOf(const std::string& text) {
  return BioPtr(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
}

// The reason of the last error of this thread, which is then forgotten.
inline std::string TakeOpensslError() {
  const unsigned long code = ERR_peek_last_error();
  ERR_clear_error();
  const char* reason = ERR_reason_error_string(code);
  return reason == nullptr ? "unknown error" : reason;
}

}  // namespace basin::aggregator

#endif  // BASIN_AGGREGATOR_TLS_OPENSSL_H_
