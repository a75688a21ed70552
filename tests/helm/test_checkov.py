# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""checkov finds in chart, manifests and Dockerfile what the reference lists, and no more.

Usage: test_checkov.py

checkov is in .cache/tools, or installed elsewhere; without it the test is skipped.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from tools import CHART, ROOT, SKIPPED, require, tool

PAGE = ROOT / "docs/kubernetes-reference.md"
VOLCANO = "trainer-volcano.yaml"


def checkov() -> str | None:
    """Path of the program."""
    return shutil.which("checkov", path=f"{Path(tool('checkov')).parent}:{os.environ['PATH']}")


class Checkov(unittest.TestCase):
    def setUp(self) -> None:
        self.folder = Path(self.enterContext(tempfile.TemporaryDirectory()))

    def findings(self) -> set[tuple[str, str]]:
        """Runs the commands of the page. Each check that failed, with the file."""
        shutil.copytree(ROOT / "deploy", self.folder / "deploy")
        shutil.copytree(CHART, self.folder / "helm/basin")
        shutil.copy(ROOT / "Dockerfile", self.folder)
        programs = self.folder / "programs"
        programs.mkdir()
        (programs / "helm").symlink_to(tool("helm-4"))
        found = checkov()
        assert found is not None
        (programs / "checkov").symlink_to(found)
        blocks = re.findall(r"```sh\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.S)
        (block,) = [one for one in blocks if "checkov --directory" in one]
        path = f"{programs}:{os.environ['PATH']}"
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", block],
            check=False,
            capture_output=True,
            text=True,
            cwd=self.folder,
            env={**os.environ, "PATH": path, "HOME": str(self.folder)},
        )
        # 1 with findings, of which there are some.
        self.assertEqual(1, done.returncode, done.stdout + done.stderr)
        return set(
            re.findall(
                r"^Check: (\w+):.*\n\tFAILED for resource: .*\n\tFile: \S*?([\w.-]+):\d+",
                done.stdout,
                re.M,
            )
        )

    def test_the_table_of_the_page_has_every_finding(self) -> None:
        page = PAGE.read_text(encoding="utf-8")
        table = page.split("| check | where | why it stays |\n", 1)[1].split("\n\n", 1)[0]
        (of_volcano,) = [row for row in table.splitlines() if "the Job of Volcano" in row]
        told = set(re.findall(r"`(CKV\w+)`", table))
        only_in_volcano = set(re.findall(r"`(CKV\w+)`", of_volcano))
        findings = self.findings()
        print(f"{len(findings)} findings")
        self.assertEqual(told, {check for check, _ in findings})
        self.assertEqual(
            {(check, VOLCANO) for check in only_in_volcano},
            {one for one in findings if one[0] in only_in_volcano or one[1] == VOLCANO},
        )


if __name__ == "__main__":
    require("helm-4")
    if checkov() is None:
        print("skipped: checkov is not installed; scripts/setup.sh does that")
        sys.exit(SKIPPED)
    unittest.main(verbosity=2)
