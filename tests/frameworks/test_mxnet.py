# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""basin.mxnet and basin.horovod.mxnet: two workers train what one process trains with their batch.

Usage: test_mxnet.py BASIND LIBBASIN
"""

import json
import tempfile
import unittest
from pathlib import Path
from typing import ClassVar

from framework_jobs import (
    HERE,
    MXNET,
    ROOT,
    WORKERS,
    FrameworkTest,
    as_workers,
    blocks,
    main,
    require_frameworks,
)

require_frameworks("mxnet", python=MXNET)

PAGE = "mxnet.md"


class Trainings(FrameworkTest):
    script = "train_mxnet.py"
    python = MXNET

    def test_a_training_is_that_of_one_process(self) -> None:
        for case in ("sum", "average", "hybrid"):
            self.assert_equal_to_one_process(case, 1e-12)

    def test_clipping_between_reduction_and_update(self) -> None:
        for case in ("clipping", "clipping an average"):
            self.assert_equal_to_one_process(case, 1e-12)

    def test_micro_batches(self) -> None:
        self.assert_equal_to_one_process("accumulation", 1e-12)

    def test_criterion_3_4_and_3_5_layers_that_some_or_all_workers_skip(self) -> None:
        self.assert_equal_to_one_process("layers", 1e-12)

    def test_criterion_3_3_workers_with_different_numbers_of_samples(self) -> None:
        self.assert_equal_to_one_process("weighted", 1e-12)

    def test_sparse_gradients(self) -> None:
        self.assert_equal_to_one_process("sparse", 1e-5)

    def test_criterion_1_8_two_losses_with_different_normalisers(self) -> None:
        self.assert_equal_to_one_process("two losses", 1e-12)


class Checks(unittest.TestCase):
    outcomes: ClassVar[list[dict[str, str]]]

    @classmethod
    def setUpClass(cls) -> None:
        with tempfile.TemporaryDirectory() as folder:
            as_workers(HERE / "check_mxnet.py", Path(folder), python=MXNET)
            texts = [Path(folder, f"checks-{rank}.json").read_text() for rank in range(WORKERS)]
        cls.outcomes = [json.loads(text) for text in texts]

    def assert_passed(self, *checks: str) -> None:
        for check in checks:
            for rank, outcomes in enumerate(self.outcomes):
                self.assertEqual("", outcomes.get(check, "it was not run"), (check, rank))

    def test_no_check_has_failed(self) -> None:
        for outcomes in self.outcomes:
            self.assert_passed(*outcomes)

    def test_criterion_1_3_a_step_is_a_reduction_and_an_update(self) -> None:
        self.assert_passed("rescale")

    def test_criterion_1_4_a_division_by_the_workers_is_reported_once(self) -> None:
        self.assert_passed("divided_again")

    def test_no_gradient_is_reduced_twice_or_not_at_all(self) -> None:
        self.assert_passed("nothing_is_reduced_twice", "an_update_that_is_left_out")

    def test_a_worker_without_data_stays_equal_to_the_others(self) -> None:
        self.assert_passed("a_worker_without_data")

    def test_trainers_of_two_nets_take_turns(self) -> None:
        self.assert_passed("two_trainers")

    def test_criterion_1_7_half_precision_does_not_overflow(self) -> None:
        self.assert_passed("half_precision")

    def test_arrays_of_mxnet_numpy(self) -> None:
        self.assert_passed("numpy_arrays")

    def test_criterion_2_1_a_parameter_waits_for_the_root_alone(self) -> None:
        self.assert_passed("any_order")

    def test_criterion_2_2_values_that_do_not_come_or_do_not_fit(self) -> None:
        self.assert_passed("never_given", "another_shape")

    def test_criterion_2_3_the_first_forward_reads_the_values_of_the_root(self) -> None:
        self.assert_passed("deferred", "again")

    def test_criterion_2_4_rank_0_alone_restores(self) -> None:
        self.assert_passed("restored_on_rank_0", "all_have_loaded")

    def test_criterion_2_5_a_broadcast_copies_bits(self) -> None:
        self.assert_passed("bits")

    def test_bad_input_is_a_typed_error(self) -> None:
        self.assert_passed(
            "refused_parameters", "refused_trainers", "a_parameter_without_a_gradient"
        )

    def test_workers_that_differ_are_told(self) -> None:
        self.assert_passed("workers_that_differ")


class Horovod(FrameworkTest):
    script = "train_horovod_mxnet.py"
    python = MXNET
    options = ("--horovod", "-np", str(WORKERS))

    def test_a_training_is_that_of_one_process(self) -> None:
        for case in ("plain", "predivided", "clipping", "optimizer"):
            self.assert_equal_to_one_process(case, 1e-5)


class Losses(unittest.TestCase):
    def test_averages_are_over_those_that_are_left(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            script = HERE / "train_horovod_mxnet_loss.py"
            options = ("--horovod", "-np", "3", "--min-workers", "2")
            text = as_workers(script, Path(folder), *options, python=MXNET)
        self.assertEqual(2, text.count("averaged"), text)


class Scripts(unittest.TestCase):
    def test_the_example_trains_the_same_on_all_workers(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            script = ROOT / "examples/horovod/gluon_patterns.py"
            text = as_workers(script, Path(folder), *Horovod.options, python=MXNET)
        lines = [line.partition("] ")[2] for line in text.splitlines()]
        digests = [line for line in lines if line.startswith("parameters ")]
        self.assertEqual(WORKERS, len(digests), text)
        self.assertEqual(1, len(set(digests)), text)
        right = [float(line.split()[2]) for line in lines if line.startswith("epoch ")]
        self.assertGreater(right[-1], 90.0, text)

    def test_each_script_of_the_page_runs(self) -> None:
        scripts = blocks(PAGE)
        self.assertTrue(scripts)
        for number, text in enumerate(scripts):
            with self.subTest(number=number), tempfile.TemporaryDirectory() as made:
                script = Path(made) / "train.py"
                script.write_text(text)
                as_workers(script, Path(made), python=MXNET)


if __name__ == "__main__":
    main()
