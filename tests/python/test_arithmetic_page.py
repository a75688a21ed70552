# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""The numbers in docs/arithmetic.md, through a real aggregator.

Usage: test_arithmetic_page.py BASIND LIBBASIN
"""

import re
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar
from unittest import mock

from jobs import JobsTest, main, require

require("numpy", "torch")
import numpy as np  # noqa: E402 - ends above when there is none
import torch  # noqa: E402
from torch_jobs import expect, session  # noqa: E402

PAGE = Path(__file__).resolve().parents[2] / "docs" / "arithmetic.md"


# ---- PyTorch workers


class OneNumber(torch.nn.Module):
    """Its gradient is the input."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(1))

    def forward(self, gradient: float) -> torch.Tensor:
        return (gradient * self.weight).sum()

    @property
    def gradient(self) -> float:
        assert self.weight.grad is not None
        return float(self.weight.grad)


def optimizer_of(net: OneNumber, bt: Any, **options: Any) -> Any:
    return bt.DistributedOptimizer(
        torch.optim.SGD(net.parameters(), lr=0.0), net.named_parameters(), **options
    )


def divides_twice(rank: int) -> Any:
    # At least two elements are compared.
    with session() as bt, mock.patch("basin.worker.logger.warning") as warn:
        net = torch.nn.ModuleList([OneNumber(), OneNumber()])
        optimizer = bt.DistributedOptimizer(
            torch.optim.SGD(net.parameters(), lr=0.0), net.named_parameters(), op=bt.Average
        )
        applied = []
        for _ in range(2):
            optimizer.zero_grad()
            torch.stack([each(6.0) for each in net]).sum().backward()
            delivered = net[0].gradient
            for parameter in net.parameters():
                assert parameter.grad is not None
                parameter.grad.div_(2)
            optimizer.step()
            applied.append((delivered, net[0].gradient))
        return applied, [call.args[0] % call.args[1:] for call in warn.call_args_list]


def two_normalisers(rank: int) -> Any:
    sentences, sentence_sum = ((1, 2.0), (2, 7.0))[rank]
    words, word_sum = ((1, 3.0), (5, 3.0))[rank]
    mean = sentence_sum / sentences + word_sum / words
    results: list[float] = []
    for options, count in (
        ({"op": "Average"}, {}),
        *(
            ({"op": "WeightedAverage", "weight_by": weight, "contributes": "mean"}, {weight: n})
            for weight, n in (("samples", sentences), ("tokens", words))
        ),
    ):
        with session() as bt:
            net = OneNumber()
            optimizer = optimizer_of(net, bt, **{**options, "op": getattr(bt, options["op"])})
            optimizer.contribute(**count)
            net(mean).backward()
            results.append(net.gradient)
    with session() as bt:
        net = OneNumber()
        optimizer_of(net, bt, op=bt.Sum)
        totals = bt.total_counts({"sentences": sentences, "words": words})
        net(sentence_sum / totals["sentences"] + word_sum / totals["words"]).backward()
        return totals, [*results, net.gradient]


def window_of_means(rank: int) -> Any:
    seen: list[Any] = []
    for samples in ((3, 1), (1, 3), (2, 2)):
        for contributes in ("mean", "sum"):
            with session() as bt:
                net = OneNumber()
                optimizer = optimizer_of(
                    net,
                    bt,
                    op=bt.WeightedAverage,
                    weight_by="samples",
                    contributes=contributes,
                )
                losses = [
                    net(m * (1 if contributes == "mean" else n)) for m, n in zip((1, 5), samples)
                ]
                optimizer.contribute(samples=samples[0])
                with optimizer.no_sync():
                    losses[0].backward()
                optimizer.contribute(samples=samples[1])
                if contributes == "mean":
                    seen.append(expect("InvalidArgument", losses[1].backward))
                else:
                    losses[1].backward()
                seen.append(net.gradient)
    return seen


def other_loss_scales(rank: int) -> Any:
    import basin

    with session() as bt:
        net = OneNumber()
        optimizer = optimizer_of(net, bt)
        scaler = bt.GradScaler(init_scale=(1024.0, 512.0)[rank])
        text = ""
        try:
            scaler.scale(net(1.0)).backward()
        except basin.Mismatch as error:
            text = str(error)
        return text, net.gradient, optimizer.last_round()


# ---- the numbers of the page


class Reduced:
    """The result of a round, equal on all workers. `value`: a float; None: no result."""

    def __init__(self, value: Any, info: Any) -> None:
        self.value = value
        self.info = info


class ArithmeticPage(JobsTest):
    count: ClassVar[int] = 0

    def reduce(self, values: Sequence[Any], specs: Any, **common: Any) -> Reduced:
        """Runs a round of one number. `values`: by worker, None skips. `specs`: an op, or a
        RoundSpec for each worker."""
        from basin import _abi
        from basin.spec import Op, RoundSpec
        from basin.worker import TensorSpec, Worker

        if isinstance(specs, Op):
            specs = [RoundSpec(specs, **common)] * len(values)
        given = [None if value is None else np.asarray([value]).reshape(1) for value in values]
        dtype = next(array.dtype for array in given if array is not None)
        kind = {"float16": _abi.F16, "float32": _abi.F32, "float64": _abi.F64}[dtype.name]
        type(self).count += 1
        outcomes: list[Any] = [None] * len(values)

        def train(rank: int) -> None:
            worker = Worker(
                {
                    "address": self.jobs.aggregator.address,
                    "job": f"page-{type(self).count}",
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
                    worker.push(lane, tensor, array.ctypes.data, array.nbytes)
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
            weight_by=Weight.MICRO_BATCHES,
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
                    weight_by=Weight.TOKENS,
                    contributes_sum=sums,
                    counts=Counts(tokens=tokens),
                )
                for tokens in (3, 1)
            ]
            values = [np.float32(3 if sums else 1), np.float32(5)]
            reduced = self.reduce(values, specs)
            self.assertEqual(2.0, reduced.value)
            self.assertEqual(
                (4, (3, 1)), (reduced.info.spec.counts.tokens, reduced.info.contributor_weights)
            )
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
            return RoundSpec(Op.WEIGHTED_AVERAGE, weight_by=Weight.TOKENS, counts=counts)

        values = [np.float32(2), np.float32("nan")]
        reduced = self.reduce(values, [by(7), by(0)])
        self.assertEqual(2.0, reduced.value)
        self.assertIsNone(reduced.info.nonfinite)
        self.assertIsNone(self.reduce(values, [by(0), by(0)]).value)
        self.assert_told(9, 2.0)

    def test_criterion_1_4_divided_twice(self) -> None:
        for applied, told in self.jobs.run(divides_twice, 2):
            self.assertEqual([(6.0, 3.0)] * 2, applied)
            self.assertEqual(1, len(told), "once")
            self.assertRegex(told[0], r"^divided again: .* 1/2 of .* divided by 2 .*op=basin\.Sum")
        self.assert_told(10, 3.0, 6.0)

    def test_criterion_1_8_two_losses_two_normalisers(self) -> None:
        for totals, results in self.jobs.run(two_normalisers, 2):
            self.assertEqual({"sentences": 3, "words": 6}, totals)
            expected = [4.55, 4.4, 4.25, 4.0]
            for a, b in zip(expected, results):
                self.assertAlmostEqual(a, b, delta=1e-6)
            self.assert_told(11, *expected)

    def test_criterion_3_2_means_that_no_weight_recovers(self) -> None:
        [seen] = self.jobs.run(window_of_means, 1)
        # For each: the refusal of the second mean, the remaining gradient, and the result of the
        # sums.
        for text, first_mean in zip(seen[::3], seen[1::3]):
            self.assertRegex(text, "sum of K means.*Make each loss the sum over its samples")
            self.assertEqual(1.0, first_mean)
        self.assertEqual([2.0, 4.0, 3.0], seen[2::3])
        self.assert_told(12, 2.0, 4.0, 3.0)

    def test_criterion_5_3_loss_scales_that_differ(self) -> None:
        outcomes = self.jobs.run(other_loss_scales, 2)
        [odd] = [rank for rank, (text, *_) in enumerate(outcomes) if text]
        self.assertRegex(outcomes[odd][0], "loss scale (512 against 1024|1024 against 512)")
        scale = (1024.0, 512.0)[1 - odd]
        for _, gradient, info in outcomes:
            self.assertEqual((f"w{1 - odd}",), info.contributors)
            self.assertEqual((scale, 1.0), (info.spec.loss_scale, gradient / scale))
        self.assertEqual((0.75, 1.5), (768 / 1024, 768 / 512))
        self.assert_told(13, 0.75, 1.5, 1.0)

    def test_the_version_is_that_of_the_replies(self) -> None:
        from basin.spec import Op

        version = self.reduce([np.float32(1)], Op.SUM).info.contract_version
        self.assertIn(f"This is version **{version}** of the contract", PAGE.read_text())


if __name__ == "__main__":
    main()
