# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""scripts/count-tests.py counts the cases that ran, and never reports a failure as a pass."""

import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from xml.sax.saxutils import escape

from loading import SCRIPTS, load

SCRIPT = SCRIPTS / "count-tests.py"


count_tests = load("count-tests.py")


def case(name: str, status: str, output: str = "", inner: str = "") -> str:
    return (
        f'<testcase name="{name}" status="{status}">{inner}'
        f"<system-out>{escape(output)}</system-out></testcase>"
    )


GTEST_CLEAN = """\
[ RUN      ] A.a
[       OK ] A.a (0 ms)
[==========] 3 tests from 1 test suite ran. (0 ms total)
[  PASSED  ] 3 tests.
"""
GTEST_SKIPPED = """\
[  SKIPPED ] A.b (0 ms)
[==========] 3 tests from 1 test suite ran. (0 ms total)
[  PASSED  ] 2 tests.
[  SKIPPED ] 1 test, listed below:
[  SKIPPED ] A.b
"""
GTEST_FAILED = """\
[  FAILED  ] A.c/1, where GetParam() = 7 (0 ms)
[==========] 3 tests from 1 test suite ran. (0 ms total)
[  PASSED  ] 2 tests.
[  FAILED  ] 1 test, listed below:
[  FAILED  ] A.c/1, where GetParam() = 7

 1 FAILED TEST
"""
GTEST_NOTHING = """\
[==========] 0 tests from 0 test suites ran. (0 ms total)
[  PASSED  ] 0 tests.
"""
UNITTEST_CLEAN = "Ran 5 tests in 0.1s\n\nOK\n"
UNITTEST_SKIPPED = (
    "test_gpu (__main__.A.test_gpu) ... skipped 'no gpu'\nRan 5 tests in 0.1s\n\nOK (skipped=1)\n"
)
UNITTEST_FAILED = (
    "FAIL: test_sum (__main__.A.test_sum)\nRan 5 tests in 0.1s\n\nFAILED (failures=1, errors=1)\n"
)


class Counting(unittest.TestCase):
    def count(self, *cases: str) -> tuple[int, list[str], list[str]]:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "junit.xml"
            path.write_text(f"<testsuite>{''.join(cases)}</testsuite>", encoding="utf-8")
            count = count_tests.count_file(path)
        return count.passed, count.failed, count.skipped

    def test_cases_inside_a_program_are_counted(self) -> None:
        self.assertEqual((3, [], []), self.count(case("a", "run", GTEST_CLEAN)))
        self.assertEqual((5, [], []), self.count(case("a", "run", UNITTEST_CLEAN)))
        self.assertEqual((1, [], []), self.count(case("a", "run", "replayed 3 inputs")))

    def test_programs_add_up(self) -> None:
        found = self.count(case("a", "run", GTEST_CLEAN), case("b", "run", UNITTEST_CLEAN))
        self.assertEqual((8, [], []), found)

    def test_skips_are_named(self) -> None:
        self.assertEqual((2, [], ["a: A.b"]), self.count(case("a", "run", GTEST_SKIPPED)))
        self.assertEqual((4, [], ["a: test_gpu"]), self.count(case("a", "run", UNITTEST_SKIPPED)))
        by_code = case("a", "notrun", "", '<skipped message="SKIP_RETURN_CODE=77"/>')
        self.assertEqual((0, [], ["a"]), self.count(by_code))
        self.assertEqual((0, [], ["a (disabled)"]), self.count(case("a", "disabled")))

    def test_failed_cases_are_named(self) -> None:
        self.assertEqual((2, ["a: A.c/1"], []), self.count(case("a", "fail", GTEST_FAILED)))
        found = self.count(case("a", "fail", UNITTEST_FAILED))
        self.assertEqual((3, ["a: test_sum", "a: a case"], []), found)

    def test_failed_program_counts_whatever_it_printed(self) -> None:
        self.assertEqual((3, ["a"], []), self.count(case("a", "fail", GTEST_CLEAN)))
        self.assertEqual((0, ["a"], []), self.count(case("a", "fail", "Segmentation fault")))

    def test_failed_case_counts_whatever_the_program_returned(self) -> None:
        self.assertEqual((2, ["a: A.c/1"], []), self.count(case("a", "run", GTEST_FAILED)))

    def test_program_without_a_case_is_a_failure(self) -> None:
        passed, failed, _ = self.count(case("a", "run", GTEST_NOTHING))
        self.assertEqual((0, ["a (ran no case)"]), (passed, failed))

    def test_program_that_could_not_start_is_a_failure(self) -> None:
        missing = case("a", "notrun", "", '<skipped message="Unable to find executable"/>')
        self.assertEqual(1, len(self.count(missing)[1]))


class CommandLine(unittest.TestCase):
    def run_script(self, junit: str | None, ctest_status: int) -> tuple[int, str, str]:
        """The exit status, the results file and the failures file."""
        with tempfile.TemporaryDirectory() as folder:
            path, results = Path(folder) / "junit.xml", Path(folder) / "results.txt"
            failures = Path(folder) / "failures.txt"
            failures.touch()
            results.touch()
            if junit is not None:
                path.write_text(junit, encoding="utf-8")
            command: list[str | Path] = [sys.executable, SCRIPT, "--stage", "asan"]
            command += ["--ctest-status", str(ctest_status), "--results", results]
            command += ["--failures", failures, path]
            status = subprocess.run(command, capture_output=True, check=False).returncode
            return (
                status,
                results.read_text(encoding="utf-8"),
                failures.read_text(encoding="utf-8"),
            )

    def test_results_file(self) -> None:
        status, results, failures = self.run_script(
            f"<testsuite>{case('a', 'run', GTEST_SKIPPED)}</testsuite>", 0
        )
        self.assertEqual(0, status)
        self.assertEqual("asan passed 2 all\nasan skipped 1 a: A.b\n", results)
        self.assertEqual("", failures)

    def test_what_a_failed_case_printed_is_kept_although_many_cases_ran_after_it(self) -> None:
        passed = "".join(f"[ RUN      ] A.b/{n}\n[       OK ] A.b/{n} (1 ms)\n" for n in range(50))
        wrong = "[ RUN      ] A.c/1\nExpected equality\n[  FAILED  ] A.c/1, where 2 (3 ms)\n"
        failed = case("a", "fail", passed + wrong + passed + GTEST_FAILED)
        _, _, failures = self.run_script(f"<testsuite>{failed}</testsuite>", 8)
        begin = "asan: a\n    | [ RUN      ] A.c/1\n    | Expected equality\n"
        self.assertTrue(failures.startswith(begin), failures)
        self.assertEqual(1, failures.count("A.c/1, where 2"))
        self.assertEqual(1, failures.count("    | ...\n"))

    def test_the_end_of_what_a_failed_program_printed_is_kept(self) -> None:
        printed = "".join(f"line {n}\n" for n in range(100)) + "abort\n"
        failed = case("a", "fail", printed) + case("b", "run", GTEST_CLEAN)
        _, _, failures = self.run_script(f"<testsuite>{failed}</testsuite>", 8)
        self.assertTrue(failures.startswith("asan: a\n    | line 76\n"), failures)
        self.assertTrue(failures.endswith("    | abort\n"), failures)

    def test_ctest_that_failed_is_never_clean(self) -> None:
        _, results, _ = self.run_script(
            f"<testsuite>{case('a', 'run', GTEST_CLEAN)}</testsuite>", 8
        )
        self.assertIn("asan failed 1 ctest", results)

    def test_no_test_is_a_failure(self) -> None:
        self.assertIn("asan failed 1 ctest", self.run_script("<testsuite/>", 0)[1])

    def test_no_report_is_an_error(self) -> None:
        self.assertEqual(1, self.run_script(None, 0)[0])


if __name__ == "__main__":
    unittest.main(verbosity=2)
