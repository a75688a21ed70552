# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""The rendered chart is the committed text, so that a review shows what a change installs.

goldens/ has the whole text for the smallest values, and for each other set of values what it
changes in that text, as a unified diff.

Usage: test_goldens.py [--rewrite]   with it, the text in goldens/ is written anew
"""

import difflib
import re
import sys
import unittest
from pathlib import Path

import chart
from chart import VALUE_SETS, Values
from tools import CHART, require

GOLDENS = Path(__file__).resolve().parent / "goldens"
BASE = "smallest"
HUNK = re.compile(r"@@ -(\d+)(?:,(\d+))? \+\d+(?:,\d+)? @@")

# What the chart takes from these files as it is. The text has only their names.
FILES = (
    "alerts.yaml",
    "dashboards/fleet.json",
    "dashboards/internals.json",
    "dashboards/job.json",
)


def golden(name: str) -> Path:
    return GOLDENS / f"{name.replace(' ', '-')}.{'yaml' if name == BASE else 'diff'}"


def without_files(text: str) -> str:
    for name in FILES:
        lines = (CHART / "files" / name).read_text(encoding="utf-8").splitlines()
        for indent in ("  ", "    "):
            copied = "".join(f"{indent}{line}".rstrip() + "\n" for line in lines)
            text = text.replace(copied, f"{indent}# files/{name}\n")
    return text


def rendered(values: Values) -> str:
    """What Helm prints, without the spaces at the end of lines."""
    done = chart.template("helm-4", values)
    if done.returncode != 0:
        raise AssertionError(done.stderr)
    return without_files("\n".join(line.rstrip() for line in done.stdout.splitlines()) + "\n")


def changes(base: str, text: str) -> str:
    diff = difflib.unified_diff(base.splitlines(), text.splitlines(), n=1, lineterm="")
    return "".join(f"{line.rstrip()}\n" for line in list(diff)[2:])


def patched(base: str, diff: str) -> str:
    """What `base` is with the changes."""
    lines = base.splitlines()
    text: list[str] = []
    at = 0
    for line in diff.splitlines():
        kind, content = line[:1], line[1:]
        if hunk := HUNK.fullmatch(line):
            # An empty range has the number of the line before it.
            first = int(hunk[1]) - (hunk[2] != "0")
            text += lines[at:first]
            at = first
        elif kind == "+":
            text.append(content)
        elif lines[at] != content:
            raise AssertionError(
                f"line {at + 1} is not {content!r}; run: test_goldens.py --rewrite"
            )
        else:
            text += [] if kind == "-" else [content]
            at += 1
    return "".join(f"{line}\n" for line in text + lines[at:])


def rewrite() -> None:
    for old in GOLDENS.iterdir():
        old.unlink()
    base = rendered(VALUE_SETS[BASE])
    for name, values in VALUE_SETS.items():
        text = base if name == BASE else changes(base, rendered(values))
        golden(name).write_text(text, encoding="utf-8")


class Goldens(unittest.TestCase):
    maxDiff = None

    def test_chart_renders_the_committed_text(self) -> None:
        base = golden(BASE).read_text(encoding="utf-8")
        for name, values in VALUE_SETS.items():
            with self.subTest(name):
                text = golden(name).read_text(encoding="utf-8")
                expected = base if name == BASE else patched(base, text)
                self.assertEqual(expected, rendered(values), "run: test_goldens.py --rewrite")

    def test_there_is_no_other_text(self) -> None:
        self.assertEqual({golden(name) for name in VALUE_SETS}, set(GOLDENS.iterdir()))

    def test_a_change_is_taken_back_exactly(self) -> None:
        base = "".join(f"{line}\n" for line in "abcdefgh")
        for text in ("abcdefgh", "bcdefgh", "xabcdefgh", "abcdefgh\n\nx", "abXcdYefgZ", "a\nh", ""):
            other = "".join(f"{line}\n" for line in text)
            with self.subTest(text):
                self.assertEqual(other, patched(base, changes(base, other)))
        with self.assertRaises(AssertionError):
            patched(base, "@@ -2,1 +2,0 @@\n-x\n")


if __name__ == "__main__":
    require("helm-4")
    if "--rewrite" in sys.argv:
        rewrite()
    else:
        unittest.main(verbosity=2)
