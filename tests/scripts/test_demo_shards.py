# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""scripts/demo-shards.py with real processes: the parameters are those of one aggregator, also when
a shard is killed, and it says so when it cannot show that.

Usage: test_demo_shards.py BASIND LIBBASIN
"""

import importlib.util
import os
import re
import subprocess
import sys
import unittest
from pathlib import Path

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "demo-shards.py"
PATIENCE = 500.0  # Seconds. A demonstration takes some twenty.
# Steps until after the one in which the shard is killed, and until the network knows its digits.
EPOCHS = ("--epochs", "8")


class Shards(unittest.TestCase):
    def demonstrate(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        kept = {name: value for name, value in os.environ.items() if name[:6] != "BASIN_"}
        return subprocess.run(
            [sys.executable, "-B", str(SCRIPT), *arguments],
            env=kept | {"BASIN_BASIND": sys.argv[1], "BASIN_LIBRARY": sys.argv[2]},
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )

    def test_one_that_is_killed_changes_no_bit(self) -> None:
        done = self.demonstrate(*"--workers 2 --shards 2 --kill-shard --".split(), *EPOCHS)
        self.assertEqual(0, done.returncode, done.stdout + done.stderr)
        hashes = set(re.findall(r"^\[0\] +\d  ([0-9a-f]{16})  ", done.stdout, re.MULTILINE))
        self.assertEqual(1, len(hashes), done.stdout)
        self.assertIn(f"those of the run with one aggregator: {hashes.pop()}", done.stdout)
        self.assertIn("demo: shard-2 is killed with SIGKILL", done.stdout)
        self.assertRegex(done.stdout, r"demo: shard-1 received [1-9]")
        self.assertRegex(done.stdout, r"demo: shard-2 received [1-9].* until it was killed")

    def test_shards_that_get_no_part_are_a_failure(self) -> None:
        small = ("--width", "64")
        done = self.demonstrate(*"--workers 2 --shards 1 --".split(), *EPOCHS, *small)
        self.assertEqual(1, done.returncode, done.stdout + done.stderr)
        self.assertIn("demo: FAILED: shard-1 received no gradients", done.stderr)

    def test_a_training_that_is_over_before_the_kill_is_a_failure(self) -> None:
        done = self.demonstrate(*"--workers 2 --shards 1 --kill-shard -- --epochs 4".split())
        self.assertEqual(1, done.returncode, done.stdout + done.stderr)
        self.assertIn("demo: FAILED: ", done.stderr)


if __name__ == "__main__":
    if any(importlib.util.find_spec(module) is None for module in ("torch", "sklearn")):
        print("skipped: torch or scikit-learn is not installed; scripts/setup.sh installs them")
        sys.exit(77)
    unittest.main(argv=sys.argv[:1], verbosity=2)
