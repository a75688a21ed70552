// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "tests/aggregator/leadership/etcd/real_etcd.h"

#include <memory>
#include <string>
#include <utility>

#include "aggregator/leadership/etcd/etcd_authority.h"
#include "gtest/gtest.h"
#include "tests/aggregator/leadership/authority_contract.h"

namespace basin::aggregator {
namespace {

constexpr char kKeyInRealEtcd[] = "/basin/leader";

class RealPlace {
 public:
  std::unique_ptr<Authority> Open(const std::string&) {
    auto authority = EtcdAuthority::Open(etcd_.place(), kKeyInRealEtcd);
    EXPECT_TRUE(authority.ok()) << authority.status();
    return *std::move(authority);
  }
  void Lose() { etcd_.Delete(kKeyInRealEtcd); }
  void GoAway() {
    etcd_.Kill();
    away_ = true;
  }
  // The fake one has the faults.
  void Disturb() {}
  void ComeBack() {
    if (std::exchange(away_, false)) etcd_.Start();
  }
  const std::string& why_not() const { return etcd_.why_not(); }

 private:
  RealEtcd etcd_;
  bool away_ = false;
};

INSTANTIATE_TYPED_TEST_SUITE_P(RealEtcd, AuthorityContract, RealPlace);

}  // namespace
}  // namespace basin::aggregator
