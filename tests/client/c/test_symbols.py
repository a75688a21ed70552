# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""libbasin.so exports exactly the functions of basin.h, each with the version of the release that
added it, so that a program that needs a newer library does not start."""

import re
import subprocess
import sys
import unittest
from pathlib import Path

LIBRARY = sys.argv.pop(1)
CLIENT = Path(__file__).resolve().parents[3] / "client/c"
HEADER = CLIENT / "include/basin/basin.h"
MAP = CLIENT / "basin.map"


def shown() -> list[str]:
    """The `name@@version` of each symbol."""
    listed = subprocess.run(
        ["nm", "--dynamic", "--defined-only", "--with-symbol-versions", LIBRARY],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    return [line.split()[2] for line in listed.splitlines() if line.split()[1] != "A"]


class Symbols(unittest.TestCase):
    def test_are_those_of_the_header(self) -> None:
        visible = {name.split("@")[0] for name in shown()}
        declared = set(
            re.findall(r"^BASIN_API[^(;]*?\b(basin_\w+)\(", HEADER.read_text(), re.MULTILINE)
        )
        self.assertGreater(len(declared), 40)
        self.assertEqual(visible, declared)

    def test_have_the_release_of_the_interface_that_brought_them(self) -> None:
        unnamed = [name for name in shown() if not re.search(r"@@BASIN_2(\.\d+)?$", name)]
        self.assertEqual(unnamed, [])

    def test_no_name_is_a_pattern(self) -> None:
        """A pattern would assign a new function to an old release."""
        names = re.findall(r"^ +(basin_\S*);", MAP.read_text(), re.MULTILINE)
        self.assertGreater(len(names), 40)
        self.assertEqual([name for name in names if not re.fullmatch(r"\w+", name)], [])


if __name__ == "__main__":
    unittest.main()
