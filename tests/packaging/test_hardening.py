# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""The executables of a release have the protections, and the check finds one without them.

Usage: test_hardening.py C++_COMPILER EXECUTABLE...
"""

import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from hardening import missing_protections

COMPILER = ""
EXECUTABLES: list[Path] = []


class Release(unittest.TestCase):
    def test_executables_are_protected(self) -> None:
        if not EXECUTABLES:
            self.skipTest("this build has no executable of a release")
        for path in EXECUTABLES:
            with self.subTest(path.name):
                self.assertEqual([], list(missing_protections(path)))


class PlantedBreaches(unittest.TestCase):
    FLAGS = ("-pie", "-fPIE", "-Wl,-z,relro,-z,now", "-fstack-protector-strong")

    def missing(self, *flags: str) -> list[str]:
        """The protections that a small program built with `flags` lacks."""
        with tempfile.TemporaryDirectory() as folder:
            source, program = Path(folder) / "a.cc", Path(folder) / "a"
            source.write_text(
                "void Use(char*);\nvoid Use(char* p) { *p = 1; }\n"
                "int main() { char a[64]; Use(a); return a[0] - 1; }\n"
            )
            subprocess.run([COMPILER, *flags, "-o", program, source], check=True)
            return list(missing_protections(program))

    def test_protected_program(self) -> None:
        self.assertEqual([], self.missing(*self.FLAGS))

    def test_each_missing_protection(self) -> None:
        for flag, name in (
            ("-no-pie", "position independent (PIE)"),
            ("-Wl,-z,lazy", "full RELRO"),
            ("-Wl,-z,execstack", "stack that is not executable"),
            ("-fno-stack-protector", "stack protector"),
            ("-Wl,-rpath,/tmp", "no run path"),
        ):
            with self.subTest(flag):
                self.assertEqual([name], self.missing(*self.FLAGS, flag))


if __name__ == "__main__":
    COMPILER = sys.argv.pop(1)
    EXECUTABLES = [Path(argument) for argument in sys.argv[1:]]
    unittest.main(argv=sys.argv[:1], verbosity=2)
