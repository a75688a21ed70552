# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""What libbasin.so shows: the functions of basin.h, all of them, and nothing else."""

import re
import subprocess
import sys
import unittest
from pathlib import Path

LIBRARY = sys.argv.pop(1)
HEADER = Path(__file__).resolve().parents[3] / "client/c/include/basin/basin.h"


class Symbols(unittest.TestCase):
    def test_are_those_of_the_header(self) -> None:
        listed = subprocess.run(
            ["nm", "--dynamic", "--defined-only", "--without-symbol-versions", LIBRARY],
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        visible = {line.split()[2] for line in listed.splitlines() if line.split()[1] != "A"}
        declared = set(
            re.findall(r"^BASIN_API[^(;]*?\b(basin_\w+)\(", HEADER.read_text(), re.MULTILINE)
        )
        self.assertGreater(len(declared), 40)
        self.assertEqual(visible, declared)


if __name__ == "__main__":
    unittest.main()
