# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""The numbers in docs/arithmetic.md, through a real aggregator.

Usage: test_arithmetic_page.py BASIND LIBBASIN
"""

import os
import re
import sys
import threading
import unittest
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

from jobs import Aggregator, require

require("numpy")
import numpy as np  # noqa: E402 - ends above when there is none

PAGE = Path(__file__).resolve().parents[2] / "docs" / "arithmetic.md"


class Reduced:
    """What a round came to: on all workers the same. `value`: a float; None: no result."""

    def __init__(self, value: Any, info: Any) -> None:
        self.value = value
        self.info = info


class ArithmeticPage(unittest.TestCase):
    aggregator: ClassVar[Aggregator]
    jobs: ClassVar[int] = 0

    @classmethod
    def setUpClass(cls) -> None:
        os.environ["BASIN_LIBRARY"] = sys.argv[2]
        cls.aggregator = Aggregator(Path(sys.argv[1]))

    @classmethod
    def tearDownClass(cls) -> None:
        cls.aggregator.close()

    def reduce(self, values: Sequence[Any], specs: Any, **common: Any) -> Reduced:
        """One round of one number. `values`: by worker, None skips. `specs`: an op, or a RoundSpec
        for each worker."""
        from basin import _abi
        from basin.spec import Op, RoundSpec
        from basin.worker import TensorSpec, Worker

        if isinstance(specs, Op):
            specs = [RoundSpec(specs, **common)] * len(values)
        given = [None if value is None else np.asarray([value]).reshape(1) for value in values]
        dtype = next(array.dtype for array in given if array is not None)
        kind = {"float16": _abi.F16, "float32": _abi.F32, "float64": _abi.F64}[dtype.name]
        type(self).jobs += 1
        outcomes: list[Any] = [None] * len(values)

        def train(rank: int) -> None:
            worker = Worker(
                {
                    "address": self.aggregator.address,
                    "job": f"page-{type(self).jobs}",
                    "worker_id": f"w{rank}",
                    "max_workers": str(len(values)),
                    "fresh": "true",
                }
            )
            try:
                worker.ready()
                worker.await_member(60)
                lane, (tensor,) = worker.register("g", _abi.GRADIENT, [TensorSpec("x", kind, (1,))])
                worker.begin(lane, specs[rank])
                array = given[rank]
                if array is not None:
                    worker.push(lane, tensor, array.ctypes.data)
                worker.commit(lane)
                result = worker.wait(lane, 60)
                value = None
                if result.has(tensor):
                    received = np.empty(1, dtype)
                    result.copy(tensor, received.ctypes.data, received.nbytes)
                    value = float(received[0])
                outcomes[rank] = (value, result.info, result.rejection)
                worker.finished()
                worker.leave()
            finally:
                worker.close()

        threads = [threading.Thread(target=train, args=(rank,)) for rank in range(len(values))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for value, info, rejection in outcomes:
            self.assertIsNone(rejection)
            self.assertEqual(repr(outcomes[0][0]), repr(value))
            self.assertEqual(outcomes[0][1].chain, info.chain)
        return Reduced(*outcomes[0][:2])

    def trap(self, number: int) -> str:
        found = re.search(rf"\*\*{number}\. .*?(?=\n\n|\Z)", PAGE.read_text(), re.DOTALL)
        assert found is not None
        return found[0]

    def assert_told(self, number: int, *values: float) -> None:
        for value in values:
            self.assertIn(f"{value}", self.trap(number))

    def test_criterion_1_1_a_sum_that_became_an_average(self) -> None:
        from basin.spec import Op

        ones = [np.float32(1)] * 4
        divided_by_the_script = self.reduce(ones, Op.SUM).value / 4
        divided_again = self.reduce(ones, Op.AVERAGE)
        self.assertEqual((1.0, 0.25), (divided_by_the_script, divided_again.value / 4))
        self.assertEqual((Op.AVERAGE, 4), (divided_again.info.spec.op, divided_again.info.divisor))
        self.assert_told(1, 1.0, 0.25)

    def test_criterion_5_1_a_divisor_of_yesterday(self) -> None:
        from basin.spec import Op

        ones = [np.float32(1)] * 8
        self.assertEqual(2.0, self.reduce(ones, Op.SUM).value / 4)
        self.assertEqual(1.0, self.reduce(ones, Op.AVERAGE).value)
        self.assert_told(2, 2.0, 1.0)

    def test_criterion_3_2_micro_batches_that_add_up(self) -> None:
        from basin.spec import Counts, Op, Weight

        accumulated = [np.float32(1 + 1)] * 2
        self.assertEqual(2.0, self.reduce(accumulated, Op.AVERAGE).value)
        weighted = self.reduce(
            accumulated,
            Op.WEIGHTED_AVERAGE,
            weight=Weight.MICRO_BATCHES,
            contributes_sum=True,
            counts=Counts(micro_batches=2),
        )
        self.assertEqual((1.0, 4), (weighted.value, weighted.info.divisor))
        self.assert_told(3, 2.0, 1.0)

    def test_criterion_3_3_a_mean_of_means(self) -> None:
        from basin.spec import Counts, Op, RoundSpec, Weight

        self.assertEqual(3.0, self.reduce([np.float32(1), np.float32(5)], Op.AVERAGE).value)
        for sums in (False, True):
            specs = [
                RoundSpec(
                    Op.WEIGHTED_AVERAGE,
                    weight=Weight.TOKENS,
                    contributes_sum=sums,
                    counts=Counts(tokens=tokens),
                )
                for tokens in (3, 1)
            ]
            values = [np.float32(3 if sums else 1), np.float32(5)]
            reduced = self.reduce(values, specs)
            self.assertEqual(2.0, reduced.value)
            self.assertEqual((4, (3, 1)), (reduced.info.spec.counts.tokens, reduced.info.weights))
        self.assert_told(4, 3.0, 2.0)

    def test_criterion_3_5_a_layer_that_was_skipped(self) -> None:
        from basin.spec import Op

        values = [np.float32(6), None]
        self.assertEqual(3.0, self.reduce(values, Op.AVERAGE).value)
        self.assertEqual(6.0, self.reduce(values, Op.AVERAGE, divide_by_present=True).value)
        self.assert_told(5, 3.0, 6.0)

    def test_criterion_1_7_a_sum_in_half_precision(self) -> None:
        from basin.spec import Op

        with np.errstate(over="ignore"):
            half = np.cumsum(np.full(8, 16384, np.float16), dtype=np.float16)
        self.assertEqual(3, int(np.flatnonzero(np.isinf(half))[0]), "at the fourth")
        reduced = self.reduce([np.float16(16384)] * 8, Op.AVERAGE)
        self.assertEqual(16384.0, reduced.value)
        self.assertFalse(reduced.info.overflow)
        ones = np.cumsum(np.ones(4096, np.float16), dtype=np.float16)
        self.assertEqual((2048, 0.5), (ones[-1], ones[-1] / 4096))
        self.assert_told(6, 16384.0, 0.5, 1.0)

    def test_criterion_5_7_a_sum_beyond_the_range(self) -> None:
        from basin.spec import Op

        values = [np.float32(3e38)] * 8
        reduced = self.reduce(values, Op.AVERAGE)
        self.assertEqual(float("inf"), reduced.value)
        self.assertTrue(reduced.info.overflow)
        divided = self.reduce(values, Op.AVERAGE, predivide=8)
        self.assertAlmostEqual(1.0, divided.value / float(values[0]), delta=4 * 2**-23)
        self.assertFalse(divided.info.overflow)

    def test_criterion_5_5_a_scale_that_was_rounded(self) -> None:
        from basin.spec import Op

        self.assertEqual(0, np.float16(1e-8))
        scaled = self.reduce([np.float16(500)] * 2, Op.SUM, prescale=1e-8, postscale=1e8)
        self.assertEqual(1000.0, scaled.value)
        self.assert_told(8, 1000.0)

    def test_criterion_3_3_a_worker_without_data(self) -> None:
        from basin.spec import Counts, Op, RoundSpec, Weight

        def by(tokens: int) -> RoundSpec:
            counts = Counts(tokens=tokens)
            return RoundSpec(Op.WEIGHTED_AVERAGE, weight=Weight.TOKENS, counts=counts)

        values = [np.float32(2), np.float32("nan")]
        reduced = self.reduce(values, [by(7), by(0)])
        self.assertEqual(2.0, reduced.value)
        self.assertIsNone(reduced.info.nonfinite)
        self.assertIsNone(self.reduce(values, [by(0), by(0)]).value)
        self.assert_told(9, 2.0)

    def test_the_version_is_that_of_the_replies(self) -> None:
        from basin.spec import Op

        version = self.reduce([np.float32(1)], Op.SUM).info.contract_version
        self.assertIn(f"This is version **{version}** of the contract", PAGE.read_text())


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
