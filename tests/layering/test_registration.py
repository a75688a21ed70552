# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""The build builds and runs every test file, and a planted one that it does not is found.

Usage: test_registration.py BUILD_FOLDER
"""

import sys
import unittest
from pathlib import Path

import links
from links import Target
from planted_tree import ROOT, PlantedTree

BUILD = Path()


class TheBuild(unittest.TestCase):
    maxDiff = None

    def test_builds_and_runs_every_test_file(self) -> None:
        self.assertEqual([], list(links.registration_violations_of_build(ROOT, BUILD)))


class PlantedBreaches(PlantedTree):
    def found(self, targets: list[Target], ctest: str) -> list[str]:
        return list(links.registration_violations(self.root, targets, ctest))

    def executable(self, name: str, source: str) -> Target:
        return Target(name, "EXECUTABLE", "tests/kernels", (source,), ())

    def test_file_that_no_target_builds(self) -> None:
        for path in ("a_test.cc", "a_fuzz.cc", "a_bench.cc"):
            with self.subTest(path):
                self.plant(f"tests/kernels/{path}", "")
                self.assert_found(self.found([], ""), f"tests/kernels/{path}", "no target")
                (self.root / "tests/kernels" / path).unlink()

    def test_target_that_ctest_does_not_run(self) -> None:
        self.plant("tests/kernels/a_test.cc", "")
        target = self.executable("a_test", "tests/kernels/a_test.cc")
        found = self.found([target], 'add_test([=[a_test_too]=] "a_test_too")')
        self.assert_found(found, "tests/kernels/a_test.cc", "ctest does not run a_test")

    def test_script_that_ctest_does_not_run(self) -> None:
        self.plant("tests/kernels/test_a.py", "")
        found = self.found([], 'add_test([=[b]=] "python3" "/x/tests/kernels/test_ab.py")')
        self.assert_found(found, "tests/kernels/test_a.py", "ctest does not run it")

    def test_registered_files(self) -> None:
        self.plant("tests/kernels/a_test.cc", "")
        self.plant("tests/kernels/test_a.py", "")
        self.plant("tests/kernels/a_bench.cc", "")
        targets = [
            self.executable("a_test", "tests/kernels/a_test.cc"),
            self.executable("a_bench", "tests/kernels/a_bench.cc"),
        ]
        ctest = (
            'add_test([=[a_test]=] "/x/build/a_test")\n'
            'add_test([=[a]=] "python3" "/x/tests/kernels/test_a.py")\n'
        )
        self.assertEqual([], self.found(targets, ctest))


if __name__ == "__main__":
    BUILD = Path(sys.argv.pop(1)).resolve()
    unittest.main(verbosity=2)
