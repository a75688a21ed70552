#!/usr/bin/env python3
# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""Counts test cases from the JUnit file that ctest writes.

A ctest test is one program. Its cases are counted from the closing lines of GoogleTest and Python's
unittest, so that a program with 200 cases counts as 200. A program without such lines counts as
one. A program that ran no case counts as failed, because it asserts nothing.

Appends lines "<stage> <outcome> <count> <name>" to the results file. Appends what each failed
program printed to the failures file: the lines of its failed cases, and its last ones.
"""

import argparse
import re
import sys
import xml.etree.ElementTree as ElementTree
from dataclasses import dataclass, field
from pathlib import Path

GTEST_RAN = re.compile(r"^\[=+\] (\d+) tests? from \d+ test suites? ran\.", re.M)
GTEST_PASSED = re.compile(r"^\[  PASSED  \] (\d+) tests?\.", re.M)
GTEST_SKIPPED = re.compile(r"^\[  SKIPPED \] ([\w/.]+)(?:, where .*)?$", re.M)
GTEST_FAILED = re.compile(r"^\[  FAILED  \] ([\w/.]+)(?:, where .*)?$", re.M)
GTEST_BEGIN = re.compile(r"^\[ RUN      \] ")
GTEST_END = re.compile(r"^\[ +(OK|SKIPPED|FAILED) +\] .*\(\d+ ms\)$")
UNITTEST_RAN = re.compile(r"^Ran (\d+) tests? in ", re.M)
UNITTEST_COUNT = re.compile(r"\b(failures|errors|skipped)=(\d+)")
UNITTEST_SKIPPED = re.compile(r"^(\w+) \(.*\) \.\.\. skipped", re.M)
UNITTEST_FAILED = re.compile(r"^(?:FAIL|ERROR): (\w+) \(", re.M)


LINES_OF_A_FAILURE = 25
FAILURES_OF_A_PROGRAM = 4


@dataclass
class Count:
    passed: int = 0
    failed: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    endings: dict[str, list[str]] = field(default_factory=dict)
    """By failed program: the lines that say why."""


def count_gtest(name: str, output: str) -> Count | None:
    """Cases of one GoogleTest program, or None if `output` is not that of one."""
    if not GTEST_RAN.search(output):
        return None
    # A program may run GoogleTest more than once; its closing lines are added up.
    count = Count(passed=sum(int(n) for n in GTEST_PASSED.findall(output)))
    # The closing list, after the last "tests ran" line, has each name once.
    closing = output[[m.end() for m in GTEST_RAN.finditer(output)][-1] :]
    count.skipped = [f"{name}: {case}" for case in GTEST_SKIPPED.findall(closing)]
    count.failed = [f"{name}: {case}" for case in GTEST_FAILED.findall(closing)]
    return count


def count_unittest(name: str, output: str) -> Count | None:
    """Cases of one unittest program, or None if `output` is not that of one."""
    ran = UNITTEST_RAN.findall(output)
    if not ran:
        return None
    closing = output[[m.end() for m in UNITTEST_RAN.finditer(output)][-1] :]
    numbers = {key: int(value) for key, value in UNITTEST_COUNT.findall(closing)}
    failed = _names(UNITTEST_FAILED, output, numbers.get("failures", 0) + numbers.get("errors", 0))
    skipped = _names(UNITTEST_SKIPPED, output, numbers.get("skipped", 0))
    return Count(
        passed=max(0, int(ran[-1]) - len(failed) - len(skipped)),
        failed=[f"{name}: {case}" for case in failed],
        skipped=[f"{name}: {case}" for case in skipped],
    )


def _names(pattern: re.Pattern[str], output: str, count: int) -> list[str]:
    """The names of cases in the output, padded or cut to `count`."""
    names = pattern.findall(output)
    return (names + ["a case"] * count)[:count]


def count_program(case: ElementTree.Element) -> Count:
    """Cases of one ctest test. ctest's verdict overrides the program's output."""
    name = case.get("name", "?")
    status = case.get("status")
    output = case.findtext("system-out") or ""
    inner = count_gtest(name, output) or count_unittest(name, output)

    if status == "disabled":
        return Count(skipped=[f"{name} (disabled)"])
    if status == "notrun":
        skipped = case.find("skipped")
        reason = skipped.get("message", "") if skipped is not None else ""
        if reason.startswith(("SKIP_RETURN_CODE", "SKIP_REGULAR_EXPRESSION")):
            return Count(skipped=inner.skipped if inner and inner.skipped else [name])
        return Count(failed=[f"{name} (did not run: {reason})"])
    if status == "run":
        if inner is None:
            return Count(passed=1)
        if inner.failed:
            # The program reported failed cases but exited with 0.
            return inner
        if inner.passed + len(inner.skipped) == 0:
            return Count(failed=[f"{name} (ran no case)"])
        return inner
    if inner is None or not inner.failed:
        # A crash, a time-out, or a program that fails without a failed case.
        return Count(passed=inner.passed if inner else 0, failed=[name])
    return inner


def failure_lines(output: str) -> list[str]:
    """The first lines of each failed case of GoogleTest, and the last lines of the program.

    A program may run many cases after the one that failed.
    """
    lines = output.splitlines()
    tail = max(0, len(lines) - LINES_OF_A_FAILURE)
    chosen: list[str] = []
    failures = 0
    begin = None
    for number, line in enumerate(lines[:tail]):
        if GTEST_BEGIN.match(line):
            begin = number
            continue
        end = GTEST_END.match(line)
        if end is None or begin is None:
            continue
        if end[1] == "FAILED" and failures < FAILURES_OF_A_PROGRAM:
            failures += 1
            case = lines[begin : number + 1]
            chosen += case[:LINES_OF_A_FAILURE]
            if len(case) > LINES_OF_A_FAILURE:
                chosen += ["..."]
        begin = None
    if chosen:
        chosen.append("...")
    return chosen + lines[tail:]


def count_file(path: Path) -> Count:
    total = Count()
    for case in ElementTree.parse(path).getroot().iter("testcase"):
        count = count_program(case)
        total.passed += count.passed
        total.failed += count.failed
        total.skipped += count.skipped
        if count.failed:
            total.endings[case.get("name", "?")] = failure_lines(case.findtext("system-out") or "")
    return total


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("junit", type=Path)
    parser.add_argument("--stage", required=True)
    parser.add_argument("--ctest-status", type=int, required=True)
    parser.add_argument("--results", type=Path, required=True)
    parser.add_argument("--failures", type=Path, required=True)
    arguments = parser.parse_args()

    if not arguments.junit.exists():
        print("count-tests: ctest wrote no report", file=sys.stderr)
        return 1
    total = count_file(arguments.junit)
    if arguments.ctest_status != 0 and not total.failed:
        total.failed.append("ctest (failed without a failed test)")
    if total.passed + len(total.failed) + len(total.skipped) == 0:
        total.failed.append("ctest (ran no test)")

    with arguments.results.open("a", encoding="utf-8") as results:
        results.write(f"{arguments.stage} passed {total.passed} all\n")
        for outcome, names in (("failed", total.failed), ("skipped", total.skipped)):
            results.writelines(f"{arguments.stage} {outcome} 1 {name}\n" for name in names)
    with arguments.failures.open("a", encoding="utf-8") as failures:
        for name, lines in total.endings.items():
            failures.write(f"{arguments.stage}: {name}\n")
            failures.writelines(f"    | {line}\n" for line in lines)
    print(
        f"  {arguments.stage:<10} {total.passed} passed, {len(total.failed)} failed, "
        f"{len(total.skipped)} skipped"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
