# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""Each script in docs/frameworks runs as it stands, with two workers.

Usage: test_framework_pages.py BASIND LIBBASIN
"""

import tempfile
import unittest
from pathlib import Path

from framework_jobs import PAGES, WORKERS, as_workers, blocks, main, require_frameworks

require_frameworks("accelerate", "jax", "keras", "lightning", "optax", "tensorflow", "transformers")

# Ray is not installed: its page says so. MXNet has an environment and a test of its own.
NOT_RUN = {"mxnet.md", "ray.md"}
# Its script has the variables of torchrun.
OPTIONS = {"torch-distributed.md": ("-n", str(WORKERS), "--torchrun-variables")}


class Pages(unittest.TestCase):
    def test_each_script_runs(self) -> None:
        pages = sorted(PAGES.glob("*.md"))
        self.assertLess(len(NOT_RUN), len(pages))
        for page in pages:
            scripts = blocks(page.name)
            self.assertTrue(scripts, page.name)
            for number, text in enumerate(scripts):
                if page.name in NOT_RUN:
                    compile(text, page.name, "exec")
                    continue
                with self.subTest(page.name, number=number), tempfile.TemporaryDirectory() as made:
                    script = Path(made) / "train.py"
                    script.write_text(text)
                    as_workers(script, Path(made), *OPTIONS.get(page.name, ()))


if __name__ == "__main__":
    main()
