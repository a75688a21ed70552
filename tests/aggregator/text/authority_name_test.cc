// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "aggregator/text/authority_name.h"

#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace basin::aggregator {
namespace {

TEST(AuthorityName, IsADirectoryALeaseOrAKeyOfEtcd) {
  const auto directory = ParseAuthorityName("file:/run/basin/leader/");
  ASSERT_TRUE(directory.ok());
  EXPECT_EQ(directory->kind, AuthorityName::Kind::kDirectory);
  EXPECT_EQ(directory->directory, "/run/basin/leader");
  const auto lease = ParseAuthorityName("kubernetes:training/basin.one");
  ASSERT_TRUE(lease.ok());
  EXPECT_EQ(lease->kind, AuthorityName::Kind::kLease);
  EXPECT_EQ(lease->space, "training");
  EXPECT_EQ(lease->lease, "basin.one");
  const auto own = ParseAuthorityName("kubernetes:basin");
  ASSERT_TRUE(own.ok());
  EXPECT_EQ(own->space, "");
  EXPECT_EQ(own->lease, "basin");
  const auto key = ParseAuthorityName("etcd:etcd-0.etcd:2379,[::1]:2380/basin/leader");
  ASSERT_TRUE(key.ok());
  EXPECT_EQ(key->kind, AuthorityName::Kind::kEtcd);
  EXPECT_EQ(key->endpoints, (std::vector<std::string>{"etcd-0.etcd:2379", "[::1]:2380"}));
  EXPECT_EQ(key->key, "/basin/leader");
}

TEST(AuthorityName, AnythingElseIsRefused) {
  for (const char* wrong : {"",
                            "none",
                            "/run/basin",
                            "file:",
                            "file:/",
                            "file:run",
                            "file:/a\tb",
                            "etcd:a",
                            "etcd:",
                            "etcd:/a",
                            "etcd:a:2379",
                            "etcd:a:2379/",
                            "etcd:a:0/b",
                            "etcd:a:1,/b",
                            "etcd:a:1/b/",
                            "etcd:a:1/b c",
                            "kubernetes:",
                            "kubernetes:/a",
                            "kubernetes:a/",
                            "kubernetes:a/b/c",
                            "kubernetes:A",
                            "kubernetes:a_b"}) {
    EXPECT_TRUE(absl::IsInvalidArgument(ParseAuthorityName(wrong).status())) << wrong;
  }
}

}  // namespace
}  // namespace basin::aggregator
