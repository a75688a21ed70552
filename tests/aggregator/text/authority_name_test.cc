// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "aggregator/text/authority_name.h"

#include <string>

#include "gtest/gtest.h"

namespace basin::aggregator {
namespace {

TEST(AuthorityName, IsADirectoryOrALease) {
  const auto directory = ParseAuthorityName("file:/run/basin/leader/");
  ASSERT_TRUE(directory.ok());
  EXPECT_EQ(directory->directory, "/run/basin/leader");
  const auto lease = ParseAuthorityName("kubernetes:training/basin.one");
  ASSERT_TRUE(lease.ok());
  EXPECT_EQ(lease->directory, "");
  EXPECT_EQ(lease->space, "training");
  EXPECT_EQ(lease->lease, "basin.one");
  const auto own = ParseAuthorityName("kubernetes:basin");
  ASSERT_TRUE(own.ok());
  EXPECT_EQ(own->space, "");
  EXPECT_EQ(own->lease, "basin");
}

TEST(AuthorityName, AnythingElseIsRefused) {
  for (const char* wrong : {"", "none", "/run/basin", "file:", "file:/", "file:run", "file:/a\tb",
                            "etcd:a", "kubernetes:", "kubernetes:/a", "kubernetes:a/",
                            "kubernetes:a/b/c", "kubernetes:A", "kubernetes:a_b"}) {
    EXPECT_TRUE(absl::IsInvalidArgument(ParseAuthorityName(wrong).status())) << wrong;
  }
}

}  // namespace
}  // namespace basin::aggregator
