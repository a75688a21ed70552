// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "aggregator/text/units.h"

#include <string>

#include "absl/time/time.h"
#include "aggregator/text/address.h"
#include "aggregator/text/nearest.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace basin::aggregator {
namespace {

using ::testing::HasSubstr;

std::string MessageOf(const absl::Status& status) { return std::string(status.message()); }

TEST(Units, DurationsAreReadWithTheirUnit) {
  EXPECT_EQ(absl::Milliseconds(500), *ParseDuration("500ms"));
  EXPECT_EQ(absl::Seconds(90), *ParseDuration("1m30s"));
  EXPECT_EQ(absl::Minutes(90), *ParseDuration("1.5h"));
  EXPECT_EQ(absl::ZeroDuration(), *ParseDuration("0s"));
}

TEST(Units, ADurationWithoutUnitIsRefusedWithTheOnesThatExist) {
  const absl::Status status = ParseDuration("30").status();
  EXPECT_THAT(MessageOf(status), HasSubstr("30s, 30ms, 30m or 30h"));
  EXPECT_FALSE(ParseDuration("0").ok());
}

TEST(Units, WhatIsNoDurationIsRefused) {
  for (const char* text :
       {"", "s", "-5s", "+5s", "5 s", "inf", "5sec", "5s ", "99999999999999999h"}) {
    EXPECT_FALSE(ParseDuration(text).ok()) << text;
  }
}

TEST(Units, SizesAreReadWithTheirUnit) {
  EXPECT_EQ(0u, *ParseBytes("0B"));
  EXPECT_EQ(512u << 10, *ParseBytes("512KiB"));
  EXPECT_EQ(uint64_t{3} << 40, *ParseBytes("3TiB"));
}

TEST(Units, WhatIsNoSizeIsRefused) {
  EXPECT_THAT(MessageOf(ParseBytes("64").status()), HasSubstr("64MiB"));
  for (const char* text : {"", "B", "64MB", "64M", "64mib", "1.5GiB", "-1B", "64 MiB",
                           "16777216TiB", "99999999999999999999B"}) {
    EXPECT_FALSE(ParseBytes(text).ok()) << text;
  }
}

TEST(Units, WhatIsShownIsReadAsTheSame) {
  for (const uint64_t bytes : {uint64_t{0}, uint64_t{1}, uint64_t{1024}, uint64_t{1536},
                               uint64_t{5} << 30, ~uint64_t{0}}) {
    EXPECT_EQ(bytes, *ParseBytes(ShowBytes(bytes))) << bytes;
  }
  for (const absl::Duration duration :
       {absl::ZeroDuration(), absl::Microseconds(1500), absl::Minutes(5), absl::Hours(168)}) {
    EXPECT_EQ(duration, *ParseDuration(ShowDuration(duration))) << duration;
  }
  EXPECT_EQ("1536B", ShowBytes(1536));
  EXPECT_EQ("64MiB", ShowBytes(uint64_t{64} << 20));
}

TEST(Units, TimesHaveThreeDigits) {
  EXPECT_EQ("0ms", ShowTime(absl::ZeroDuration()));
  EXPECT_EQ("0.25ns", ShowTime(absl::Nanoseconds(1) / 4));
  EXPECT_EQ("61ns", ShowTime(absl::Nanoseconds(61)));
  EXPECT_EQ("999ns", ShowTime(absl::Nanoseconds(999)));
  EXPECT_EQ("1us", ShowTime(absl::Nanoseconds(1000)));
  EXPECT_EQ("86.1us", ShowTime(absl::Nanoseconds(86'100)));
  EXPECT_EQ("999us", ShowTime(absl::Nanoseconds(999'400)));
  EXPECT_EQ("1ms", ShowTime(absl::Nanoseconds(999'600)));
  EXPECT_EQ("-2.69s", ShowTime(-absl::Milliseconds(2'689)));
  EXPECT_EQ("594ms", ShowTime(absl::Microseconds(594'300)));
  EXPECT_EQ("999ms", ShowTime(absl::Microseconds(999'400)));
  EXPECT_EQ("1s", ShowTime(absl::Microseconds(999'600)));
  EXPECT_EQ("2.69s", ShowTime(absl::Milliseconds(2'689)));
  EXPECT_EQ("999s", ShowTime(absl::Milliseconds(999'400)));
  EXPECT_EQ("1000s", ShowTime(absl::Milliseconds(999'600)));
  EXPECT_EQ("86400s", ShowTime(absl::Hours(24)));
}

TEST(Units, TimesThatAreShownAreRead) {
  for (const int64_t ns :
       {int64_t{61}, int64_t{86'100}, int64_t{594'300'000}, int64_t{1'234'000'000'000}}) {
    const absl::Duration time = absl::Nanoseconds(ns);
    const absl::StatusOr<absl::Duration> read = ParseDuration(ShowTime(time));
    ASSERT_TRUE(read.ok()) << ShowTime(time);
    EXPECT_LE(absl::AbsDuration(*read - time), time / 100);
  }
}

TEST(Units, ShownSizesHaveDecimals) {
  EXPECT_EQ(uint64_t{3} << 29, *ParseShownBytes("1.5GiB"));
  EXPECT_EQ(uint64_t{1} << 20, *ParseShownBytes("1MiB"));
  EXPECT_EQ(377'592'218u, *ParseShownBytes("360.1MiB"));  // Rounded.
  EXPECT_EQ(~uint64_t{0}, *ParseShownBytes("18446744073709551615B"));
}

TEST(Units, WhatIsNoShownSizeIsRefused) {
  EXPECT_THAT(MessageOf(ParseShownBytes("1.5").status()), HasSubstr("1.5GiB"));
  EXPECT_THAT(MessageOf(ParseShownBytes("64").status()), HasSubstr("64MiB"));
  for (const char* text :
       {"", ".", "1.5", "1.5GB", "1.5 GiB", "1.5.5GiB", "-1.5GiB", "1e3.5GiB", "16777216.0TiB"}) {
    EXPECT_FALSE(ParseShownBytes(text).ok()) << text;
  }
}

TEST(Units, BandwidthsAreReadAsTheyAreShown) {
  EXPECT_EQ(2.5e9, *ParseBandwidth("2.5Gbit/s"));
  EXPECT_EQ(2.5e9, *ParseBandwidth("2.5Gbit"));
  EXPECT_EQ(1e8, *ParseBandwidth("100Mbit/s"));
  EXPECT_EQ(1.6e12, *ParseBandwidth("1.6Tbit/s"));
  EXPECT_EQ("11.3Gbit/s", ShowBandwidth(11.27e9));
  EXPECT_EQ("1.62Tbit/s", ShowBandwidth(1.62e12));
  EXPECT_EQ("0.5Mbit/s", ShowBandwidth(5e5));
  EXPECT_EQ("0.00005Mbit/s", ShowBandwidth(50));
  for (const double bits : {5e5, 1e6, 999.6e6, 11.27e9, 100e9, 1.62e12, 999e12}) {
    const absl::StatusOr<double> read = ParseBandwidth(ShowBandwidth(bits));
    ASSERT_TRUE(read.ok()) << ShowBandwidth(bits);
    EXPECT_NEAR(bits, *read, bits / 100);
  }
}

TEST(Units, WhatIsNoBandwidthIsRefused) {
  EXPECT_THAT(MessageOf(ParseBandwidth("10").status()), HasSubstr("2.5Gbit/s"));
  for (const char* text : {"", "Gbit/s", "0Gbit/s", "-1Gbit/s", "nanGbit", "infGbit", "10Gb",
                           "10GBit", "10 Gbit/s", "10Gbit/s/s", "1001Tbit/s", "0x1Gbit"}) {
    EXPECT_FALSE(ParseBandwidth(text).ok()) << text;
  }
}

TEST(Units, CountsAreDigitsOnly) {
  EXPECT_EQ(64u, *ParseCount("64"));
  for (const char* text : {"", "-1", "+1", "0x10", "1e3", "64 ", "99999999999999999999"}) {
    EXPECT_FALSE(ParseCount(text).ok()) << text;
  }
}

TEST(Address, IsReadAndShown) {
  for (const char* text : {"127.0.0.1:29600", "[::1]:0", "basin-0.basin.svc:29600"}) {
    ASSERT_TRUE(ParseAddress(text).ok()) << text;
    EXPECT_EQ(text, ToString(*ParseAddress(text)));
  }
}

TEST(Address, WhatIsNoAddressIsRefused) {
  for (const char* text :
       {"", "29600", ":29600", "127.0.0.1", "127.0.0.1:", "127.0.0.1:x", "127.0.0.1:65536",
        "::1:29600", "[::1:29600", "[x]:1", "a b:1", "1.2:3", "a\n:1", "unix:/tmp/x"}) {
    EXPECT_FALSE(ParseAddress(text).ok()) << text;
  }
}

TEST(Address, LoopbackIsWhatOtherMachinesCannotReach) {
  for (const char* text : {"127.0.0.1:1", "127.1.2.3:1", "[::1]:1", "localhost:1"}) {
    EXPECT_TRUE(IsLoopback(*ParseAddress(text))) << text;
  }
  for (const char* text : {"0.0.0.0:1", "[::]:1", "10.0.0.1:1", "127.example.org:1"}) {
    EXPECT_FALSE(IsLoopback(*ParseAddress(text))) << text;
  }
}

TEST(Nearest, CountsWhatAHandDoesWrong) {
  EXPECT_EQ(0u, EditDistance("lease", "lease"));
  EXPECT_EQ(1u, EditDistance("lease", "leas"));
  EXPECT_EQ(1u, EditDistance("lease", "laese"));
  EXPECT_EQ(1u, EditDistance("lease", "lexase"));
  EXPECT_EQ(1u, EditDistance("lease", "leade"));
  EXPECT_EQ(5u, EditDistance("lease", ""));
  EXPECT_EQ(3u, EditDistance("kitten", "sitting"));
}

TEST(Nearest, FindsTheNearestAndNothingWhenNoneIsNear) {
  const std::vector<std::string> known = {"worker.lease", "worker.closed_lease", "log.level"};
  EXPECT_EQ("worker.lease", Nearest("worker.leese", known));
  EXPECT_EQ("worker.closed_lease", Nearest("worker.closedlease", known));
  EXPECT_EQ("log.level", Nearest("loglevel", known));
  EXPECT_EQ("log.level", Nearest("level", known));
  EXPECT_EQ("worker.lease", Nearest("lease", known));  // The shorter of two names.
  EXPECT_EQ("", Nearest("gradient", known));
  EXPECT_EQ("", Nearest(std::string(100000, 'a'), known));
}

}  // namespace
}  // namespace basin::aggregator
