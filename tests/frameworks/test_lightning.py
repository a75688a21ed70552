# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""basin.lightning: two workers train what one process trains with their batch.

Usage: test_lightning.py BASIND LIBBASIN
"""

import unittest

from framework_jobs import FrameworkTest, main, require_frameworks

require_frameworks("lightning")


class Lightning(FrameworkTest):
    script = "train_lightning.py"

    def test_a_training_is_that_of_one_process(self) -> None:
        self.assert_equal_to_one_process("plain", 1e-12)
        self.assert_trained("plain")

    def test_micro_batches_also_in_a_short_window(self) -> None:
        self.assert_equal_to_one_process("accumulation", 1e-12)
        self.assert_trained("accumulation")

    def test_clipping(self) -> None:
        self.assert_equal_to_one_process("clipping", 1e-12)
        self.assert_trained("clipping")

    def test_two_optimizers_that_the_module_steps(self) -> None:
        self.assert_equal_to_one_process("two optimizers", 1e-12)

    def test_a_checkpoint_continues_the_training(self) -> None:
        self.assert_equal_to_one_process("resumed", 1e-12)
        for name, value in self.alone["plain"].items():
            self.assertLess(float((value - self.alone["resumed"][name]).abs().max()), 1e-12)

    def test_evaluation_counts_what_all_workers_have_seen(self) -> None:
        names = {"loss", "val_loss", "accuracy", "again val_loss", "again accuracy"}
        self.assertLessEqual(names, self.alone["evaluation"].keys())
        self.assert_equal_to_one_process("evaluation", 1e-6)

    def test_bf16(self) -> None:
        self.assert_equal_to_one_process("bf16", 2e-2)


if __name__ == "__main__":
    unittest.TestCase.maxDiff = None
    main()
