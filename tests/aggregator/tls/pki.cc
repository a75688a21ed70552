// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "tests/aggregator/tls/pki.h"

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <vector>

#include "gtest/gtest.h"

namespace basin::aggregator {

CertificateRequest Valid(const std::string& name) {
  CertificateRequest request;
  request.name = name;
  request.names = {"IP:127.0.0.1", "DNS:localhost"};
  request.not_before = absl::Now() - absl::Hours(1);
  request.not_after = absl::Now() + absl::Hours(1);
  request.for_server = request.for_client = true;
  return request;
}

Pki::Pki() {
  const absl::StatusOr<KeyPair> ca = MintCa(Valid("ca"));
  EXPECT_TRUE(ca.ok()) << ca.status();
  ca_ = ca.value_or(KeyPair{});
  std::string folder = testing::TempDir() + "/pki-XXXXXX";
  folder_ = mkdtemp(folder.data());
  Write("ca.crt", ca_.cert);
}

Pki::~Pki() {
  std::error_code ignored;
  std::filesystem::remove_all(folder_, ignored);
}

std::string Pki::Write(const std::string& name, const std::string& text) const {
  const std::string fresh = path(name) + ".new";
  std::ofstream(fresh, std::ios::binary) << text;
  EXPECT_EQ(std::rename(fresh.c_str(), path(name).c_str()), 0);
  return path(name);
}

ServerTls Pki::Server(const std::string& prefix, const CertificateRequest& request) const {
  const absl::StatusOr<KeyPair> pair = Mint(ca_, request);
  EXPECT_TRUE(pair.ok()) << pair.status();
  return {Write(prefix + ".crt", pair.value_or(KeyPair{}).cert),
          Write(prefix + ".key", pair.value_or(KeyPair{}).key), ""};
}

ClientTls Pki::Client(const std::string& prefix, const CertificateRequest& request) const {
  const ServerTls pair = Server(prefix, request);
  return {path("ca.crt"), pair.cert, pair.key};
}

ClientTls Pki::Trust() const { return {path("ca.crt"), "", ""}; }

}  // namespace basin::aggregator
