# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""The links of all pages lead somewhere, the tests that they name exist, and the check finds those
that do not."""

import unittest

import pages
from planted_tree import ROOT, PlantedTree

PAGE = """# A page

## What `basind` says: errors, logs

```sh
# Not a heading
```
"""


class TheTree(unittest.TestCase):
    maxDiff = None

    def test_every_link_leads_to_a_page_and_a_heading(self) -> None:
        self.assertEqual([], pages.violations(ROOT))


class PlantedBreaches(PlantedTree):
    def setUp(self) -> None:
        super().setUp()
        self.plant("docs/page.md", PAGE)

    def test_links_that_lead_nowhere_are_found(self) -> None:
        for path, text, part in (
            ("README.md", "[x](docs/paeg.md)", "there is no docs/paeg.md"),
            ("docs/b.md", "[x](../docs/paeg.md#a-page)", "there is no docs/paeg.md"),
            ("docs/b.md", "[x](page.md#another)", "docs/page.md has no heading"),
            ("docs/b.md", "[x](page.md#not-a-heading)", "docs/page.md has no heading"),
            ("docs/b.md", "[x](#another)", "docs/b.md has no heading"),
            ("client/a.cc", "// See docs/paeg.md.", "there is no docs/paeg.md"),
            ("helm/a.yaml", "runbook: docs/page.md#another", "docs/page.md has no heading"),
            ("docs/b.md", "`Fault_W1_AnotherTest`", "there is no test Fault_W1_AnotherTest"),
        ):
            with self.subTest(text):
                self.plant(path, text + "\n")
                self.assert_found(pages.violations(self.root), f"{path}:1", part)
                (self.root / path).unlink()

    def test_links_that_lead_somewhere_are_not(self) -> None:
        self.plant(
            "docs/b.md",
            "[x](page.md#what-basind-says-errors-logs), [y](../docs), [z](page.md#a-page),\n"
            "[site](https://example/docs/paeg.md#another)\n",
        )
        self.plant("client/a.cc", "// docs/page.md#a-page, and other/docs/paeg.md\n")
        self.plant("docs/c.md", "`Fault_W1_ATest`\n")
        self.plant("tests/core/a_test.cc", "TEST(Core, Fault_W1_ATest) {}\n")
        self.assertEqual([], pages.violations(self.root))


if __name__ == "__main__":
    unittest.main(verbosity=2)
