# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""basin.jax: two workers train what one process trains with their batch, within jit.

Usage: test_jax.py BASIND LIBBASIN
"""

import tempfile
from pathlib import Path

from framework_jobs import ROOT, WORKERS, FrameworkTest, as_workers, main, require_frameworks

require_frameworks("jax", "optax")


class Jax(FrameworkTest):
    script = "train_jax.py"

    def test_a_training_is_that_of_one_process(self) -> None:
        self.assert_equal_to_one_process("plain", 1e-12)
        self.assert_trained("plain")

    def test_clipping(self) -> None:
        self.assert_equal_to_one_process("clipping", 1e-12)
        self.assert_trained("clipping")

    def test_micro_batches(self) -> None:
        self.assert_equal_to_one_process("accumulation", 1e-12)
        self.assert_trained("accumulation")

    def test_the_example_trains_the_same_on_all_workers(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            text = as_workers(ROOT / "examples/jax/digits.py", Path(folder))
        lines = [line.partition("] ")[2] for line in text.splitlines()]
        digests = [line for line in lines if line.startswith("parameters ")]
        self.assertEqual(WORKERS, len(digests), text)
        self.assertEqual(1, len(set(digests)), text)
        losses = [float(line.split()[-1]) for line in lines if line.startswith("epoch ")]
        self.assertLess(losses[-1], losses[0] / 4, text)


if __name__ == "__main__":
    main()
