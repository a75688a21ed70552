# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""What a round computes, from the workers' arrays to their results.

Usage: test_arithmetic.py BASIND LIBBASIN
"""

import os
import sys
import threading
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from jobs import PATIENCE, JobsTest, main, message, require

require("numpy")
import numpy as np  # noqa: E402 - ends above when there is none

WORKERS = 3
SEEDS = range(8)


# ---- workers


def refusals(rank: int) -> Any:
    import basin

    array, whole = np.ones(3, np.float32), np.ones(3, np.int32)
    weighted: dict[str, Any] = {"op": basin.WeightedAverage, "counts": basin.Counts(samples=1)}
    said = {}
    with basin.connect() as client:
        for expected, given, options in (
            ("weight_by", array, {**weighted, "contributes": "sum"}),
            ("weight_by", array, {**weighted, "contributes": "sum", "weight_by": "rows"}),
            ("weight_by", array, {"op": basin.Average, "weight_by": "samples"}),
            ("contributes", array, {**weighted, "weight_by": "samples"}),
            ("contributes", array, {**weighted, "weight_by": "samples", "contributes": True}),
            ("contributes", array, {"op": basin.Sum, "contributes": "sum"}),
            ("tokens", array, {**weighted, "weight_by": "tokens", "contributes": "sum"}),
            ("prescale_factor", array, {"op": basin.Sum, "prescale_factor": 0.0}),
            ("postscale_factor", array, {"op": basin.Sum, "postscale_factor": np.inf}),
            ("gradient_predivide", array, {"op": basin.Sum, "gradient_predivide_factor": -2.0}),
            ("gradient_predivide", array, {"op": basin.Sum, "gradient_predivide_factor": "sqrt"}),
            ("gradient_predivide", array, {"op": basin.Max, "gradient_predivide_factor": "auto"}),
            ("divide_by_present", array, {"op": basin.Sum, "divide_by_present": True}),
            ("integers", whole, {"op": basin.Average}),
            ("integers", whole, {"op": basin.Sum, "prescale_factor": 2.0}),
        ):
            text = message("InvalidArgument", client.allreduce, given, "x", **options)
            said[f"{given.dtype} {options}"] = (expected, text)
        for name, count in (("samples", -1), ("tokens", 1.5)):
            text = message("InvalidArgument", basin.Counts, **{name: count})
            said[f"{name} {count}"] = (f"{name} cannot be {count}", text)
        values: dict[str, dict[str, Any]] = {
            "name cannot be 5": {"name": 5},
            "timeout cannot be 'x'": {"timeout": "x"},
            "timeout cannot be nan": {"timeout": np.nan},
            "gradient_predivide_factor cannot be array": {"gradient_predivide_factor": array},
            "prescale_factor cannot be None": {"prescale_factor": None},
            "op cannot be array": {"op": array},
            "counts cannot be array": {"counts": array},
            f"tokens cannot be {2**48 + 1}": {"counts": basin.Counts(tokens=2**48 + 1)},
            f"samples cannot be {2**64}": {"counts": basin.Counts(samples=2**64)},
            "Array x is not an array": {"array": [[1.0], [1.0, 2.0]]},
        }
        for words, options in values.items():
            arguments = {"array": array, "name": "x", "op": basin.Sum, **options}
            text = message("InvalidArgument", lambda a=arguments: client.allreduce(**a))
            said[words] = (words, text)
        for root in (None, 0.0, array, -1):
            text = message("InvalidArgument", client.broadcast, array, "x", root_rank=root)
            said[f"root_rank {root}"] = ("root_rank cannot be", text)
        # None of these calls has begun a round.
        after = client.allreduce(array, "x", op=basin.Sum).tolist()
        client.barrier()
    return said, after


def differing(rank: int) -> Any:
    """The last worker differs from the others in one option of each round."""
    import basin

    weighted: dict[str, Any] = {
        "op": basin.WeightedAverage,
        "weight_by": "samples",
        "contributes": "sum",
        "counts": basin.Counts(samples=2, tokens=2),
    }
    others: list[dict[str, Any]] = [
        weighted,
        weighted,
        {"op": basin.Average},
        {"op": basin.Average, "gradient_predivide_factor": "auto"},
        {"op": basin.Average},
    ]
    odd: list[dict[str, Any]] = [
        {"weight_by": "tokens"},
        {"contributes": "mean"},
        {"gradient_predivide_factor": 4.0},
        {"gradient_predivide_factor": 4.0},
        {"divide_by_present": True},
    ]
    said = []
    with basin.connect() as client:
        for i, options in enumerate(others):
            if rank == WORKERS - 1:
                options = {**options, **odd[i]}
            handle = client.allreduce_async(np.ones(2), f"round {i}", **options)
            text = message("Mismatch", handle.wait)
            said.append((text, handle.info.contributors))
        client.barrier()
    return said


def averages_and_sums(rank: int) -> Any:
    """The same arrays averaged and summed, with and without scales."""
    import basin

    results = []
    with basin.connect() as client:
        for seed in SEEDS:
            random = np.random.default_rng([seed, rank])
            for dtype in (np.float32, np.float64):
                array = (random.standard_normal(257) * 10.0 ** random.integers(-6, 7, 257)).astype(
                    dtype
                )
                for scales in (
                    {},
                    {"prescale_factor": 1 / 3, "postscale_factor": 4.0},
                    {"gradient_predivide_factor": "auto"},
                ):
                    name = dtype.__name__
                    mean = client.allreduce_async(array, name, op=basin.Average, **scales)
                    total = client.allreduce_async(array, name + "sum", op=basin.Sum, **scales)
                    results.append((mean.wait(), total.wait(), mean.info.divisor))
        client.barrier()
    return results


ROWS, WIDTH = 40, 5


class Batch:
    """A linear regression over tokens, in float32: the loss is the mean of those that the mask
    counts. The seed distributes its rows among micro-batches of workers; some get none."""

    def __init__(self, seed: int) -> None:
        random = np.random.default_rng(seed)
        self.x = random.standard_normal((ROWS, WIDTH)).astype(np.float32)
        self.y = random.standard_normal(ROWS).astype(np.float32)
        self.w = random.standard_normal(WIDTH).astype(np.float32)
        self.counted = random.random(ROWS) < 0.7
        self.micro_batches = random.integers(1, 4, WORKERS)
        self.worker = random.choice(WORKERS, ROWS, p=random.dirichlet(np.ones(WORKERS)))
        self.micro_batch = random.integers(0, self.micro_batches[self.worker])
        # A worker whose rows all do not count.
        if seed % 2 == 0:
            self.counted[self.worker == seed % WORKERS] = False

    def gradient_sum(self, rows: Any) -> tuple[Any, int]:
        """The sum over the counted rows, and their number."""
        rows = rows & self.counted
        x = self.x[rows]
        return x.T @ (x @ self.w - self.y[rows]), int(rows.sum())

    def whole(self) -> Any:
        total, count = self.gradient_sum(np.full(ROWS, True))
        return total / np.float32(count)

    def parts(self, rank: int) -> list[tuple[Any, int]]:
        """The sums of the worker's micro-batches."""
        return [
            self.gradient_sum((self.worker == rank) & (self.micro_batch == k))
            for k in range(self.micro_batches[rank])
        ]


def split_batches(rank: int) -> Any:
    """The gradient of each batch from sums, from means, and as a mean of means."""
    import basin

    results = []
    with basin.connect() as client, np.errstate(invalid="ignore"):
        for seed in SEEDS:
            parts = Batch(seed).parts(rank)
            total = np.sum([part for part, _ in parts], axis=0, dtype=np.float32)
            tokens = sum(count for _, count in parts)
            mean = total / np.float32(tokens)  # NaN without tokens.
            counts = basin.Counts(tokens=tokens, micro_batches=len(parts))
            weighted: dict[str, Any] = {
                "op": basin.WeightedAverage,
                "weight_by": "tokens",
                "counts": counts,
            }
            of_sums = client.allreduce_async(total, "sums", contributes="sum", **weighted)
            of_means = client.allreduce_async(mean, "means", contributes="mean", **weighted)
            plain = client.allreduce_async(np.nan_to_num(mean), "plain", op=basin.Average)
            results.append(
                (of_sums.wait(), of_means.wait(), plain.wait(), of_sums.info, of_means.info)
            )
        client.barrier()
    return results


def weights_of_nothing(rank: int) -> Any:
    """NaN from a worker without samples; then no worker has samples."""
    import basin

    weighted: dict[str, Any] = {
        "op": basin.WeightedAverage,
        "weight_by": "samples",
        "contributes": "mean",
    }
    array = np.full(4, np.nan if rank == 1 else 2.0 + rank, np.float32)
    with basin.connect() as client:
        counts = basin.Counts(samples=0 if rank == 1 else 3)
        some = client.allreduce_async(array, "some", counts=counts, **weighted)
        result = some.wait().tolist()
        nobody = client.allreduce_async(array, "none", counts=basin.Counts(samples=0), **weighted)
        text = message("NotFound", nobody.wait)
        client.barrier()
        return result, some.info, text, nobody.info


def present(rank: int) -> Any:
    """One worker skips an average, which is divided by all, and then by those that sent it."""
    import basin

    array = np.full(2, 6.0 * (rank + 1), np.float32)
    results = []
    with basin.connect() as client:
        for name, option in (("all", False), ("present", True)):
            call = client.skip_round if rank == 2 else client.allreduce
            results.append(call(array, name, op=basin.Average, divide_by_present=option).tolist())
        weighted: dict[str, Any] = {
            "op": basin.WeightedAverage,
            "weight_by": "samples",
            "contributes": "mean",
        }
        if rank == 2:
            results.append(client.skip_round(array, "weighted", **weighted).tolist())
        else:
            counts = basin.Counts(samples=rank + 1)
            results.append(client.allreduce(array, "weighted", counts=counts, **weighted).tolist())
        client.barrier()
    return results


# ---- checks


class ArithmeticTest(JobsTest):
    def test_criterion_1_1_what_no_round_computes_is_refused_before_it_is_sent(self) -> None:
        [(said, after)] = self.jobs.run(refusals, 1)
        for given, (expected, text) in said.items():
            with self.subTest(given):
                self.assertIn(expected, text)
                self.assertRegex(text, r"(Use|Pass|Omit|Give) .*\.$")
        self.assertEqual([1.0] * 3, after)

    def test_criterion_5_3_a_worker_with_another_declaration_gets_both_values(self) -> None:
        expected = [
            ("weights by tokens against samples",),
            ("contribution kind MEAN against SUM",),
            ("predivide 4 against 1",),
            ("predivide 4 against AUTO",),
            ("denominator PRESENT against ALL",),
        ]
        *others, odd = self.jobs.run(differing, WORKERS)
        for i, (words,) in enumerate(expected):
            self.assertIn(words, odd[i][0])
            for said in others:
                self.assertEqual(("", ("w0", "w1")), said[i])

    def test_criterion_1_2_an_average_times_its_divisor_is_the_sum(self) -> None:
        for workers in (2, 3):
            for results in self.jobs.run(averages_and_sums, workers):
                for mean, total, divisor in results:
                    self.assertEqual(workers, divisor)
                    # Exact in the wider type.
                    product = mean.astype(np.longdouble) * divisor
                    apart = np.abs(product - total)
                    self.assertTrue((apart <= np.spacing(np.abs(total))).all())

    def test_criterion_3_3_any_split_gives_the_gradient_of_the_whole_batch(self) -> None:
        each = self.jobs.run(split_batches, WORKERS)
        means_of_means_apart = 0
        for seed, results in zip(SEEDS, zip(*each)):
            batch = Batch(seed)
            expected = batch.whole()
            bound = 1e-6 * np.abs(expected).max()
            for of_sums, of_means, plain, sums_info, means_info in results:
                self.assertLessEqual(np.abs(of_sums - expected).max(), bound)
                self.assertLessEqual(np.abs(of_means - expected).max(), bound)
                means_of_means_apart += bool(np.abs(plain - expected).max() > 1e-2)
                for info, is_sum in ((sums_info, True), (means_info, False)):
                    tokens = int(batch.counted.sum())
                    self.assertEqual((tokens, tokens), (info.divisor, info.spec.counts.tokens))
                    self.assertEqual(batch.micro_batches.sum(), info.spec.counts.micro_batches)
                    self.assertIsNone(info.spec.counts.samples)
                    self.assertEqual(is_sum, info.spec.contributes_sum)
        self.assertEqual(WORKERS * len(SEEDS), means_of_means_apart)

    def test_criterion_3_3_a_weight_of_zero_adds_nothing_and_zeros_alone_are_empty(self) -> None:
        for result, info, text, nothing in self.jobs.run(weights_of_nothing, WORKERS):
            self.assertEqual([3.0] * 4, result)
            self.assertEqual(((3, 0, 3), 6), (info.contributor_weights, info.divisor))
            self.assertIsNone(info.nonfinite)
            self.assertIn("none", text)
            self.assertEqual(((0, 0, 0), 0), (nothing.contributor_weights, nothing.divisor))
            self.assertIsNone(nothing.norm)

    def test_criterion_3_5_a_skip_counts_in_the_divisor_unless_present_is_asked_for(self) -> None:
        for of_all, of_present, weighted in self.jobs.run(present, WORKERS):
            self.assertEqual([6.0] * 2, of_all)
            self.assertEqual([9.0] * 2, of_present)
            self.assertEqual([10.0] * 2, weighted)


class ResizeTest(JobsTest):
    """Workers are threads here: 4, then 8, then 3, then 2."""

    @staticmethod
    def contribution(worker: str) -> Any:
        return np.random.default_rng(int(worker[1:])).standard_normal(1000).astype(np.float32)

    def test_criterion_5_2_each_round_is_the_mean_of_its_contributors(self) -> None:
        os.environ["BASIN_LIBRARY"] = sys.argv[2]
        import basin

        records: dict[str, list[tuple[Any, Any]]] = {f"w{i}": [] for i in range(8)}
        trainings: list[Future[None]] = []

        def start(numbers: Iterable[int]) -> None:
            trainings.extend(threads.submit(train, number) for number in numbers)

        def train(number: int) -> None:
            """Runs until there were 8 workers; then those from 3 on leave, and w2 when there are
            3."""
            worker = f"w{number}"
            with basin.connect(
                self.jobs.aggregator.address,
                "resized",
                worker,
                min_workers=1,
                max_workers=8,
                start_workers=4,
            ) as client:
                most = 0
                while True:
                    handle = client.allreduce_async(
                        self.contribution(worker),
                        "x",
                        op=basin.Average,
                        gradient_predivide_factor="auto",
                        counts=basin.Counts(samples=16),
                    )
                    records[worker].append((handle.wait(PATIENCE), handle.info))
                    count = len(handle.info.contributors)
                    most = max(most, count)
                    if number == 0 and len(records[worker]) == 2:
                        start(range(4, 8))
                    done = number >= 3 or (number == 2 and count == 3) or count == 2
                    if most == 8 and done:
                        return

        with ThreadPoolExecutor(8) as threads:
            start(range(4))
            for training in trainings:  # The job grows meanwhile.
                training.result()

        counts = [len(info.contributors) for _, info in records["w0"]]
        for expected in (4, 8, 3, 2):
            self.assertIn(expected, counts)
        by_round = {info.round: result for result, info in records["w0"]}
        for rounds in records.values():
            for result, info in rounds:
                each = [self.contribution(worker) for worker in info.contributors]
                count = len(each)
                mean = np.mean(np.array(each, np.float64), axis=0)
                self.assertLessEqual(np.abs(result - mean).max(), 1e-6)
                self.assertEqual((count, 16 * count), (info.divisor, info.spec.counts.samples))
                self.assertEqual(2.0 if 3 <= count <= 8 else 1.0, info.spec.predivide)
                np.testing.assert_array_equal(by_round[info.round], result)

    def test_criterion_5_3_a_joiner_with_other_factors_gets_those_of_the_job(self) -> None:
        """Two workers train until a third one contributes, whose first scale differs."""
        import basin

        seen: dict[str, list[tuple[int, float]]] = {"w0": [], "w1": [], "w2": []}
        texts: list[str] = []
        has_trained = threading.Event()

        def train(worker: str) -> None:
            if worker == "w2":
                has_trained.wait(PATIENCE)
            with basin.connect(
                *(self.jobs.aggregator.address, "joined", worker),
                min_workers=2,
                max_workers=3,
                start_workers=2,
            ) as client:
                if worker == "w2":
                    handle = client.allreduce_async(
                        np.ones(2), "x", op=basin.Average, prescale_factor=2.0
                    )
                    texts.append(message("Mismatch", handle.wait, PATIENCE))
                    seen[worker].append((len(handle.info.contributors), 0.0))
                while not seen[worker] or seen[worker][-1][0] < 3:
                    handle = client.allreduce_async(np.ones(2), "x", op=basin.Average)
                    result = handle.wait(PATIENCE)
                    seen[worker].append((len(handle.info.contributors), float(result[0])))
                    has_trained.set()

        with ThreadPoolExecutor(len(seen)) as threads:
            list(threads.map(train, seen))
        self.assertRegex(texts[0], "prescale 2 against 1")
        self.assertEqual([(2, 0.0), (3, 1.0)], seen["w2"])
        for worker in ("w0", "w1"):
            self.assertEqual((3, 1.0), seen[worker][-1])
            self.assertEqual({(2, 1.0)}, set(seen[worker][:-1]))


if __name__ == "__main__":
    main()
