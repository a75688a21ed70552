# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""basin.keras, on each backend: two workers train what one process trains with their batch.

Usage: test_keras.py BASIND LIBBASIN
"""

import tempfile
import unittest
from pathlib import Path
from typing import ClassVar

from framework_jobs import HERE, FrameworkTest, as_workers, main, require_frameworks

require_frameworks("keras", "tensorflow", "jax", "sklearn")
import torch  # noqa: E402 - ends above when there is none


class OnBackend(FrameworkTest):
    """The cases of each backend."""

    bound: ClassVar[float] = 1e-12

    def test_a_training_is_that_of_one_process(self) -> None:
        self.assert_equal_to_one_process("plain", self.bound)
        self.assert_trained("plain")

    def test_a_training_that_is_not_compiled(self) -> None:
        self.assert_equal_to_one_process("eager", self.bound)
        self.assert_trained("eager")

    def test_clipping(self) -> None:
        self.assert_equal_to_one_process("clipping", max(1e-9, self.bound))
        self.assert_trained("clipping")

    def test_accumulation_is_before_the_reduction_and_clipping_after_it(self) -> None:
        self.assert_equal_to_one_process("accumulation", max(1e-9, self.bound))
        self.assert_trained("accumulation")

    def test_sum(self) -> None:
        self.assert_equal_to_one_process("sum", self.bound)

    def test_embeddings(self) -> None:
        self.assert_equal_to_one_process("words", max(1e-9, self.bound))
        self.assert_equal_to_one_process("dense words", max(1e-9, self.bound))

    def test_gradients_that_are_sent_as_float16(self) -> None:
        self.assert_equal_to_one_process("half", 1e-3)

    def test_metrics_are_means_over_all_workers(self) -> None:
        names = {"loss", "accuracy", "val_loss", "val_accuracy"}
        self.assertLessEqual(names, self.alone["measured"].keys())
        self.assert_equal_to_one_process("measured", 1e-6)

    def test_a_saved_model_goes_on_with_its_optimizer(self) -> None:
        self.assert_equal_to_one_process("resumed", self.bound)


class TensorFlow(OnBackend):
    script = "train_keras.py"
    variables = {"KERAS_BACKEND": "tensorflow"}  # noqa: RUF012 - of the base


class PyTorch(OnBackend):
    script = "train_keras.py"
    variables = {"KERAS_BACKEND": "torch"}  # noqa: RUF012 - of the base
    bound = 1e-6  # Also a single process computes parts of a step in float32 there.


class Jax(OnBackend):
    script = "train_keras.py"
    variables = {"KERAS_BACKEND": "jax", "JAX_ENABLE_X64": "1"}  # noqa: RUF012 - of the base


class Losses(unittest.TestCase):
    def test_the_others_go_on_without_a_worker_that_dies(self) -> None:
        with tempfile.TemporaryDirectory() as made:
            folder = Path(made)
            options = ("-n", "3", "--min-workers", "2")
            script = HERE / "train_keras_loss.py"
            as_workers(script, folder, *options, KERAS_BACKEND="tensorflow")
            results = [torch.load(folder / f"results-{number}.pt") for number in (0, 2)]
        self.assertEqual([2, 2], [each["workers"] for each in results])
        self.assertEqual(results[0]["losses"], results[1]["losses"])
        for name, value in results[0]["weights"].items():
            self.assertTrue(value.equal(results[1]["weights"][name]), name)

    def test_a_worker_that_comes_late_is_told_to_start_all_again(self) -> None:
        with tempfile.TemporaryDirectory() as made:
            folder = Path(made)
            options = ("-n", "2", "--min-workers", "1", "--max-restarts", "1")
            script = HERE / "train_keras_late.py"
            as_workers(script, folder, *options, KERAS_BACKEND="tensorflow")
            self.assertIn("joins a job that trains already", (folder / "refused").read_text())


if __name__ == "__main__":
    main()
