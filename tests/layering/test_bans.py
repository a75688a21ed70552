# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""The tree follows the rules of bans.py, and each rule finds its violations."""

import unittest

import bans
from planted_tree import ROOT, PlantedTree

LICENSE = f"// {bans.LICENSE_LINE}\n"


# Path -> forbidden lines, each with a part of the reason.
PLANTED_LINES = {
    "docs/a.md": (
        ("TODO: write this", "open ends"),
        ("FIXME", "open ends"),
        ("see /home/somebody/basin", "absolute path"),
        ("cd /root/basin", "absolute path"),
        ("ends with a blank ", "trailing blanks"),
        ("one\rtwo", "carriage return"),
    ),
    "kernels/a.cc": (
        ('std::cout << "x";', "do not print"),
        ('std::cerr << "x";', "do not print"),
        ('printf("x");', "do not print"),
        ("throw std::bad_alloc();", "not exceptions"),
        ("} catch (...) {", "not exceptions"),
        ("return Registry::GetInstance();", "singletons"),
        ("static int counter = 0;", "static state"),
        ("  static std::map<int, int> cache;", "static state"),
        ("thread_local int depth = 0;", "static state"),
        ("using namespace std;", "using-directives"),
        ("\tint a;", "tab"),
        ("#pragma once", "include guard"),
        ("int a;  // NOLINT", "name the check"),
        ("std::this_thread::sleep_for(delay);", "wait for an event"),
        ("x" * 101 + ";", "columns"),
    ),
    "tests/kernels/a_test.cc": (
        ("absl::SleepFor(absl::Seconds(1));", "wait for an event"),
        ("TEST(A, DISABLED_b) {}", "hidden skip"),
        ("EXPECT_TRUE(true);", "asserts nothing"),
        ("SUCCEED();", "asserts nothing"),
    ),
    "tests/python/test_a.py": (("time.sleep(1)", "wait for an event"),),
}


class TheTree(unittest.TestCase):
    maxDiff = None

    def test_keeps_the_rules(self) -> None:
        self.assertEqual([], list(bans.violations(ROOT)))


class PlantedBreaches(PlantedTree):
    def test_lines(self) -> None:
        for path, cases in PLANTED_LINES.items():
            comment = "//" if path.endswith(".cc") else "#"
            for line, part in cases:
                with self.subTest(line):
                    self.plant(path, f"{comment} {bans.LICENSE_LINE}\n\n{line}\n")
                    self.assert_found(list(bans.violations(self.root)), f"{path}:3", part)
            (self.root / path).unlink()

    def test_every_ban_has_a_planted_line(self) -> None:
        parts = {part for cases in PLANTED_LINES.values() for _, part in cases}
        for ban in bans.BANS:
            with self.subTest(ban.reason):
                self.assertTrue(any(part in ban.reason for part in parts), ban.reason)

    def test_whole_files(self) -> None:
        for path, text, part in (
            ("kernels/a.cc", "int a;\n", "first line"),
            ("kernels/a.cc", LICENSE + "int a;", "no newline"),
            ("kernels/a.cc", LICENSE + "int a;\n\n", "blank lines"),
            ("kernels/a.h", LICENSE + "int a;\n", "BASIN_KERNELS_A_H_"),
            ("kernels/utils.cc", LICENSE + "int a;\n", "utils"),
        ):
            with self.subTest(part):
                self.plant(path, text)
                self.assert_found(list(bans.violations(self.root)), path, part)
                (self.root / path).unlink()

    def test_what_is_allowed_stays_allowed(self) -> None:
        self.plant(
            "kernels/a.cc",
            LICENSE + '#include "kernels/a.h"\n\nnamespace basin {\n\n'
            "// It does not throw (it returns); std::cout is for programs. Sleep (a little).\n"
            "static constexpr int kSize = 3;\n"
            "static const char* const kName = nullptr;\n"
            "static int Twice(int a) { return 2 * a; }\n"
            'const char* Text() { return "std::cout << sleep(1)"; }\n'
            "static_assert(kSize == 3);\n"
            "int a;  // NOLINT(google-explicit-constructor)\n\n"
            "}  // namespace basin\n",
        )
        self.plant("tests/fuzz/corpus/a.txt", "TODO \r")
        self.assertEqual([], list(bans.violations(self.root)))


if __name__ == "__main__":
    unittest.main(verbosity=2)
