// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "aggregator/text/flags.h"

#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace basin::aggregator {
namespace {

TEST(FlagReader, ReadsFlagsValuesAndWords) {
  const std::vector<std::string> arguments = {"serve=it", "--a=b=c", "--d", "e", "-w", "--f"};
  FlagReader flags(arguments);
  ASSERT_TRUE(flags.Next());
  EXPECT_FALSE(flags.is_flag());
  EXPECT_EQ("serve=it", flags.name());

  ASSERT_TRUE(flags.Next());
  EXPECT_TRUE(flags.is_flag());
  EXPECT_EQ("--a", flags.name());
  EXPECT_TRUE(flags.has_value());
  EXPECT_TRUE(flags.ReadValue());
  EXPECT_EQ("b=c", flags.value());

  ASSERT_TRUE(flags.Next());
  EXPECT_FALSE(flags.has_value());
  EXPECT_TRUE(flags.ReadValue());
  EXPECT_EQ("e", flags.value());

  ASSERT_TRUE(flags.Next());
  EXPECT_TRUE(flags.is_flag());
  EXPECT_EQ("-w", flags.name());
  EXPECT_FALSE(flags.ReadValue());  // The next argument is a flag.

  ASSERT_TRUE(flags.Next());
  EXPECT_EQ("--f", flags.name());
  EXPECT_FALSE(flags.ReadValue());  // There is none.
  EXPECT_FALSE(flags.Next());
}

TEST(FlagReader, ReadsAnEmptyAndANegativeValue) {
  const std::vector<std::string> arguments = {"--a=", "--b", "-5"};
  FlagReader flags(arguments);
  ASSERT_TRUE(flags.Next());
  EXPECT_TRUE(flags.ReadValue());
  EXPECT_EQ("", flags.value());
  ASSERT_TRUE(flags.Next());
  EXPECT_TRUE(flags.ReadValue());
  EXPECT_EQ("-5", flags.value());
}

TEST(WhyNoFlag, SuggestsTheNearest) {
  EXPECT_EQ("\"--leese\" is not a flag; did you mean --lease?",
            WhyNoFlag("--leese", {"--lease", "--listen"}));
  EXPECT_EQ("\"--xyzzy\" is not a flag; see --help", WhyNoFlag("--xyzzy", {"--lease"}));
  EXPECT_EQ("\"-h\" is not a flag; see --help", WhyNoFlag("-h", {"--lease"}));
}

}  // namespace
}  // namespace basin::aggregator
