# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""The manual pages are what --help prints, are installed with the programs, and can be shown.

Usage: test_man_pages.py CMAKE BUILD_FOLDER
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CMAKE = ""
BUILD = Path()


class ManPages(unittest.TestCase):
    def test_they_are_what_help_prints(self) -> None:
        done = subprocess.run(
            [sys.executable, ROOT / "scripts/make-man-pages.py", "--build", BUILD, "--check"],
            capture_output=True,
            text=True,
        )
        self.assertEqual(0, done.returncode, done.stdout + done.stderr)

    def test_those_of_the_programs_are_installed_with_them(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run(
                [CMAKE, "--install", BUILD, "--component", "server", "--prefix", folder],
                check=True,
                capture_output=True,
            )
            found = {path.name for path in Path(folder).glob("share/man/man*/*")}
            programs = {path.name for path in Path(folder, "bin").iterdir()}
        self.assertEqual({"basind.8", "basinctl.1"}, found)
        self.assertEqual({"basind", "basinctl"}, programs)

    def test_they_are_shown_without_a_warning(self) -> None:
        groff = shutil.which("groff")
        if groff is None:
            self.skipTest("groff is not there")
        for name in ("basind.8", "basinctl.1", "basin-run.1"):
            with self.subTest(name):
                done = subprocess.run(
                    [groff, "-man", "-Tutf8", "-ww", "-rLL=100n", ROOT / "docs/man" / name],
                    capture_output=True,
                    text=True,
                    env={**os.environ, "LC_ALL": "C.UTF-8"},
                )
                self.assertEqual("", done.stderr)
                shown = re.sub(".\b", "", done.stdout)  # Bold is printed twice.
                for heading in ("NAME", "SYNOPSIS", "OPTIONS", "SEE ALSO"):
                    self.assertIn(heading, shown)


if __name__ == "__main__":
    CMAKE, BUILD = sys.argv[1], Path(sys.argv[2])
    unittest.main(argv=sys.argv[:1])
