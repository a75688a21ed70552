# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""The rendered chart is the committed text, so that a review shows what a change installs.

Usage: test_goldens.py [--rewrite]   with it, the text in goldens/ is written anew
"""

import sys
import unittest
from pathlib import Path

import chart
from chart import VALUE_SETS, Values
from tools import CHART, require

GOLDENS = Path(__file__).resolve().parent / "goldens"

# What the chart takes from these files as it is. The text has only their names.
FILES = (
    "alerts.yaml",
    "dashboards/fleet.json",
    "dashboards/internals.json",
    "dashboards/job.json",
)


def name_of(values: str) -> str:
    return values.replace(" ", "-")


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


def rewrite() -> None:
    for old in GOLDENS.glob("*.yaml"):
        old.unlink()
    GOLDENS.mkdir(exist_ok=True)
    for name, values in VALUE_SETS.items():
        (GOLDENS / f"{name_of(name)}.yaml").write_text(rendered(values), encoding="utf-8")


class Goldens(unittest.TestCase):
    maxDiff = None

    def test_chart_renders_the_committed_text(self) -> None:
        for name, values in VALUE_SETS.items():
            with self.subTest(name):
                golden = (GOLDENS / f"{name_of(name)}.yaml").read_text(encoding="utf-8")
                self.assertEqual(golden, rendered(values), "run: test_goldens.py --rewrite")

    def test_there_is_no_other_text(self) -> None:
        names = {file.stem for file in GOLDENS.iterdir()}
        self.assertEqual({name_of(name) for name in VALUE_SETS}, names)


if __name__ == "__main__":
    require("helm-4")
    if "--rewrite" in sys.argv:
        rewrite()
    else:
        unittest.main(verbosity=2)
