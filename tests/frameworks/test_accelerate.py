# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""basin.accelerate: two workers train what one process trains with their batch.

Usage: test_accelerate.py BASIND LIBBASIN
"""

import tempfile
import unittest
from pathlib import Path

from framework_jobs import HERE, WORKERS, FrameworkTest, as_workers, main, require_frameworks

require_frameworks("accelerate")
import torch  # noqa: E402 - ends above when there is none


class Accelerate(FrameworkTest):
    script = "train_accelerate.py"

    def test_a_training_is_that_of_one_process(self) -> None:
        self.assert_equal_to_one_process("plain", 1e-12)
        self.assert_trained("plain")

    def test_micro_batches_also_in_a_short_window(self) -> None:
        self.assert_equal_to_one_process("accumulation", 1e-12)
        self.assert_trained("accumulation")

    def test_clipping_also_in_a_short_window(self) -> None:
        self.assert_equal_to_one_process("clipping", 1e-12)
        self.assert_trained("clipping")

    def test_a_checkpoint_continues_the_training(self) -> None:
        self.assert_equal_to_one_process("resumed", 1e-12)
        for name, value in self.alone["plain"].items():
            self.assertLess(float((value - self.alone["resumed"][name]).abs().max()), 1e-12)

    def test_a_model_that_is_prepared_after_its_optimizer_is_that_of_rank_0(self) -> None:
        self.assert_equal_to_one_process("apart", 1e-12)
        self.assert_trained("apart")

    def test_metrics_count_each_sample_once(self) -> None:
        self.assertEqual(50, len(self.alone["evaluation"]["labels"]))
        self.assert_equal_to_one_process("evaluation", 0.0)

    def test_the_order_of_samples_is_that_of_rank_0(self) -> None:
        self.assert_equal_to_one_process("shuffled", 1e-12)
        epochs = self.alone["shuffled"]
        self.assertFalse(epochs["epoch 0"].equal(epochs["epoch 1"]))

    def test_bf16(self) -> None:
        self.assert_equal_to_one_process("bf16", 2e-2)


class Elastic(unittest.TestCase):
    def test_a_worker_that_dies_is_replaced_in_the_middle_of_an_epoch(self) -> None:
        with tempfile.TemporaryDirectory() as made:
            folder = Path(made)
            options = ("-n", str(WORKERS), "--max-restarts", "1")
            as_workers(HERE / "train_accelerate_elastic.py", folder, *options)
            self.assertTrue((folder / "died").exists())
            results = [torch.load(folder / f"results-{i}.pt") for i in range(WORKERS)]
        for each in results:
            self.assertEqual(results[0]["steps"], each["steps"])
            self.assertEqual([64, 64, 64], each["samples"][-3:])
            for name, value in each["parameters"].items():
                self.assertTrue(value.equal(results[0]["parameters"][name]), name)


if __name__ == "__main__":
    main()
