# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""The script of docs/frameworks/ray.md, with two workers that Ray starts.

Usage: test_ray.py BASIND LIBBASIN
"""

import sys
import tempfile
import unittest
from pathlib import Path

from framework_jobs import PYTHON, blocks, main, require_frameworks, run
from jobs import Aggregator

require_frameworks("ray")


class Ray(unittest.TestCase):
    def test_the_workers_of_ray_train_together(self) -> None:
        aggregator = Aggregator(Path(sys.argv[1]))
        self.addCleanup(aggregator.close)
        (text,) = blocks("ray.md")
        self.assertIn("basin.example:29600", text)
        # A short path, because Ray makes sockets below it.
        folder = Path(self.enterContext(tempfile.TemporaryDirectory(prefix="ray")))
        script = folder / "train.py"
        script.write_text(text.replace("basin.example:29600", aggregator.address))
        said = run(
            [str(PYTHON), "-B", str(script)],
            folder,
            HOME=str(folder),
            RAY_TMPDIR=str(folder),
            RAY_TRAIN_V2_ENABLED="1",
            RAY_USAGE_STATS_ENABLED="0",
            RAY_worker_niceness="0",  # Otherwise a busy machine has no time for the workers.
        )
        self.assertRegex(said, r"'workers': 2\b")
        joined = [line for line in aggregator.lines if '"worker":"w1"' in line]
        self.assertTrue(joined, "the second worker was never there")


if __name__ == "__main__":
    main()
