// Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0

#include "protocol/limits/names.h"

#include <regex>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "protocol/limits/limits.h"
#include "tests/proto/random_messages.h"

namespace basin {
namespace {

using ::testing::HasSubstr;

// Texts that are invalid names of every kind.
const std::string kHostile[] = {
    "",
    "a\nb",
    "a\rb",
    "a\tb",
    std::string("a\0b", 3),
    "a\x1b[31mb",
    "a\x7f",
    "\xff\xfe",
    "\xc0\xaf",          // Overlong '/'.
    "\xed\xa0\x80",      // A surrogate.
    "\xf4\x90\x80\x80",  // Beyond Unicode.
    "\xe2\x82",          // Cut.
    "a\u0085b",          // Next line.
    "a\u2028b",          // Line separator.
    "a\u202eb",          // Right to left from here.
    "a\u2066b",
    "a\u200bb",  // Zero width space.
    "\ufeffa",
    "a\uffff",
    std::string(1 << 20, 'a'),
};

TEST(Names, Fault_S7_HostileNamesAreRefused) {
  for (const std::string& name : kHostile) {
    SCOPED_TRACE(QuoteForError(name));
    EXPECT_FALSE(CheckJobName(name).ok());
    EXPECT_FALSE(CheckWorkerId(name).ok());
    EXPECT_FALSE(CheckName(name).ok());
    EXPECT_EQ(CheckRunId(name).ok(), name.empty());
  }
}

TEST(Names, Fault_S7_JobAndWorkerNamesAreLabels) {
  for (const char* good : {"a", "0", "trainer-0", "a.b-c.9", "xn--p1ai"}) {
    EXPECT_TRUE(CheckJobName(good).ok()) << good;
    EXPECT_TRUE(CheckWorkerId(good).ok()) << good;
  }
  for (const char* bad : {"-a", "a-", ".a", "a.", "A", "a_b", "a b", "é", "..", "../a", "a/", "/a",
                          "a//b", "a/b/c", "a\\b", "a\"b", "a{b", "a<b", "%2e"}) {
    EXPECT_FALSE(CheckJobName(bad).ok()) << bad;
    EXPECT_FALSE(CheckWorkerId(bad).ok()) << bad;
  }
  EXPECT_TRUE(CheckJobName("team-a/bert").ok());
  EXPECT_FALSE(CheckWorkerId("team-a/bert").ok());
  const std::string longest(kMaxLabelBytes, 'a');
  EXPECT_TRUE(CheckWorkerId(longest).ok());
  EXPECT_FALSE(CheckWorkerId(longest + "a").ok());
  EXPECT_TRUE(CheckJobName(longest + "/" + longest).ok());
  EXPECT_FALSE(CheckJobName(longest + "/" + longest + "a").ok());
}

// The rule as it is written in the protocol, against the code.
TEST(Names, LabelsMatchTheirRegularExpression) {
  const std::regex label("[a-z0-9]([-a-z0-9.]{0,61}[a-z0-9])?");
  const std::string alphabet = "a0-.Z_/ ";
  testing::RandomMessages random(1);
  int good = 0;
  for (int i = 0; i < 20000; ++i) {
    std::string name(random.Below(5), '\0');
    for (char& c : name) c = alphabet[random.Below(random.Coin() ? 4 : alphabet.size())];
    const bool matches = std::regex_match(name, label);
    good += matches;
    ASSERT_EQ(CheckWorkerId(name).ok(), matches) << name;
  }
  EXPECT_GT(good, 1000);
}

TEST(Names, RunIdsAreOpaqueButPlain) {
  for (const char* good : {"", "f81d4fae-7dec-11d0-a765-00a0c91e6bf6", "run_1.2:3", "A"}) {
    EXPECT_TRUE(CheckRunId(good).ok()) << good;
  }
  for (const char* bad : {".", "..", "-a", "a/b", "a b", "é"}) {
    EXPECT_FALSE(CheckRunId(bad).ok()) << bad;
  }
  EXPECT_TRUE(CheckRunId(std::string(kMaxRunIdBytes, 'a')).ok());
  EXPECT_FALSE(CheckRunId(std::string(kMaxRunIdBytes + 1, 'a')).ok());
}

TEST(Names, TensorNamesArePrintableUtf8) {
  for (const char* good : {"w", "encoder.layer[3]/attention weight", "gewicht_ß", "層.重み", "∇𝛁",
                           "<b>", "../x", "\"quoted\"", "a\\b"}) {
    EXPECT_TRUE(CheckName(good).ok()) << good;
  }
  EXPECT_TRUE(CheckName(std::string(kMaxNameBytes, 'w')).ok());
  EXPECT_FALSE(CheckName(std::string(kMaxNameBytes + 1, 'w')).ok());
}

TEST(Names, Fault_S7_ErrorsQuoteNamesHarmlessly) {
  const absl::Status status = CheckName("x\n<b>\u202e" + std::string(1 << 20, 'a'));
  const std::string message(status.message());
  EXPECT_LT(message.size(), 400u);
  EXPECT_TRUE(IsPrintable(message)) << message;
  EXPECT_THAT(message, HasSubstr("(1048584 bytes)"));
}

TEST(PrintableText, Fault_S7_KeepsWhatCanBeShownAndNothingElse) {
  EXPECT_EQ(PrintableText("plain 層", 100), "plain 層");
  EXPECT_EQ(PrintableText("two\nlines\x1b[2J", 100), "two?lines?[2J");
  EXPECT_EQ(PrintableText("\xff\xfe ok \xe2\x82", 100), "?? ok ??");
  EXPECT_EQ(PrintableText("a\u202eb", 100), "a?b");
}

TEST(PrintableText, CutsAtACharacter) {
  EXPECT_EQ(PrintableText("ab層", 4), "ab");
  EXPECT_EQ(PrintableText("ab層", 5), "ab層");
  EXPECT_EQ(PrintableText("abc", 0), "");
}

TEST(PrintableText, IsPrintableAndStaysAsItIs) {
  testing::RandomMessages random(2);
  for (int i = 0; i < 5000; ++i) {
    const std::string text = random.Bytes(random.Below(40));
    const size_t most = random.Below(40);
    const std::string shown = PrintableText(text, most);
    ASSERT_LE(shown.size(), most);
    ASSERT_TRUE(IsPrintable(shown));
    ASSERT_EQ(PrintableText(shown, most), shown);
    if (text.size() <= most && IsPrintable(text)) {
      ASSERT_EQ(shown, text);
    }
  }
}

}  // namespace
}  // namespace basin
