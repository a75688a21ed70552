# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""basin.accelerate: two workers train what one process trains with their batch.

Usage: test_accelerate.py BASIND LIBBASIN
"""

import sys
import tempfile
import unittest
from pathlib import Path

from framework_jobs import (
    HERE,
    PYTHON,
    WORKERS,
    FrameworkTest,
    as_workers,
    blocks,
    main,
    require_frameworks,
    run,
)
from jobs import Aggregator

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


class Launched(unittest.TestCase):
    def test_accelerate_launch_starts_the_workers(self) -> None:
        """Without GPUs, too: it leaves that to torchrun, whose variables the processes get."""
        aggregator = Aggregator(Path(sys.argv[1]))
        self.addCleanup(aggregator.close)
        folder = Path(self.enterContext(tempfile.TemporaryDirectory()))
        script = folder / "train.py"
        script.write_text(blocks("accelerate.md")[0])
        launch = [str(PYTHON), "-m", "accelerate.commands.launch", "--multi_gpu"]
        numbers = ["--num_processes", str(WORKERS), "--num_machines", "1"]
        others = ["--mixed_precision", "no", "--dynamo_backend", "no"]
        said = run(
            [*launch, *numbers, *others, str(script)], folder, BASIN_ADDRESS=aggregator.address
        )
        self.assertEqual(1, said.count("% of 64 are right"), said)
        for worker in ("worker-0", "worker-1"):
            self.assertIn(f'"worker":"{worker}"', "".join(aggregator.lines))


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
