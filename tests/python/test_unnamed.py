# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""Calls without a name, which are matched by their order in the program of each worker.

Usage: test_unnamed.py BASIND LIBBASIN
"""

import contextlib
import os
import random
import signal
import tempfile
from pathlib import Path
from typing import Any

from jobs import JobsTest, hear, main, make_events, message, require, say

require("numpy")
import numpy as np  # noqa: E402 - ends above when there is none

CALLS = 1500
LOST_AT = 40


def _shapes(count: int) -> list[tuple[Any, tuple[int, ...]]]:
    """The same on all workers: hardly two are the same."""
    generator = random.Random(7)
    kinds = [np.float32, np.float64, np.int64, np.uint8]
    return [
        (
            generator.choice(kinds),
            tuple(generator.randrange(0, 40) for _ in range(generator.randrange(0, 4))),
        )
        for _ in range(count)
    ]


def _part(rank: int, call: int, dtype: Any, shape: tuple[int, ...]) -> Any:
    size = int(np.prod(shape))
    return ((np.arange(size) + call + 3 * rank) % 11).astype(dtype).reshape(shape)


def _is_sum(got: Any, call: int, dtype: Any, shape: tuple[int, ...], ranks: int = 3) -> bool:
    expected = sum(_part(rank, call, dtype, shape) for rank in range(ranks))
    return got.dtype == dtype and got.shape == shape and np.array_equal(got, expected)


def thousands(rank: int) -> list[int]:
    import basin

    wrong = []
    with basin.connect() as client:
        for i, (dtype, shape) in enumerate(_shapes(CALLS)):
            if not _is_sum(
                client.allreduce(_part(rank, i, dtype, shape), op=basin.Sum), i, dtype, shape
            ):
                wrong.append(i)
    return wrong


def many_in_flight(rank: int) -> list[int]:
    import basin

    wrong = []
    shapes = _shapes(600)
    with basin.connect() as client:
        handles = [
            client.allreduce_async(_part(rank, i, *shape), op=basin.Sum)
            for i, shape in enumerate(shapes)
        ]
        # Each worker takes them in another order.
        order = list(range(len(handles)))
        random.Random(rank).shuffle(order)
        for i in order:
            if not _is_sum(handles[i].wait(), i, *shapes[i]):
                wrong.append(i)
    return wrong


def different(rank: int) -> Any:
    import basin

    with basin.connect() as client:
        before = client.allreduce(np.ones(3, np.float32), op=basin.Sum)
        mine = np.ones(2, np.int64) if rank == 1 else np.ones((3, 1), np.float32)
        text = message("Mismatch", client.allreduce, mine, op=basin.Sum)
        op = message("Mismatch", client.allreduce, before, op=basin.Max if rank == 2 else basin.Min)
        after = client.allreduce(np.ones(5, np.float64), op=basin.Average)
        return before.tolist(), text, op, after.tolist()


def one_is_lost(rank: int) -> Any:
    import basin

    contributors = []
    with basin.connect() as client:
        for i, (dtype, shape) in enumerate(_shapes(3 * LOST_AT)):
            if rank == 2 and i == LOST_AT:
                os.kill(os.getpid(), signal.SIGKILL)
            handle = client.allreduce_async(_part(rank, i, dtype, shape), op=basin.Sum)
            got = handle.wait()
            contributors.append(len(handle.info.contributors))
            assert _is_sum(got, i, dtype, shape, contributors[-1]), (i, contributors)
    return contributors


def continued(rank: int, events: str) -> Any:
    import basin

    with basin.connect() as client:
        mine = np.full(4, rank + 1.0)
        client.allreduce(mine, op=basin.Sum)
        if rank > 0:
            hear(Path(events) / "went")
            return client.allreduce(mine, op=basin.Sum).tolist()
        unknown = message("OutcomeUnknown", client.allreduce, mine, op=basin.Sum, timeout=0)
        other = message("FailedPrecondition", client.allreduce, np.ones(3), op=basin.Sum)
        later = message("FailedPrecondition", client.allreduce_async, mine, op=basin.Sum)
        say(Path(events) / "went")
        # The array is not read: the first one was sent.
        return unknown, other, later, client.allreduce(0 * mine, op=basin.Sum).tolist()


def facts(rank: int) -> Any:
    import basin

    with basin.connect() as client:
        handle = client.allreduce_async(np.full(1000, rank + 1.0), op=basin.Average)
        handle.wait()
        empty = client.allreduce(np.zeros((2, 0)), op=basin.Sum)
        named = client.allreduce(np.ones(2), "named", op=basin.Sum)
        return handle.info.tensor_divisors, handle.info.tensor_norms, empty.shape, named.tolist()


class Unnamed(JobsTest):
    def test_calls_of_any_shape_are_matched_by_their_order(self) -> None:
        self.assertEqual(self.jobs.run(thousands, 3), [[], [], []])

    def test_more_than_the_most_may_be_begun_and_taken_in_any_order(self) -> None:
        self.assertEqual(self.jobs.run(many_in_flight, 3), [[], [], []])

    def test_a_different_call_is_an_error_for_all_that_names_both_sides(self) -> None:
        for before, text, op, after in self.jobs.run(different, 3):
            self.assertEqual(before, [3.0] * 3)
            self.assertIn(
                "worker w0 calls SUM of f32[3,1], but worker w1 calls SUM of i64[2]", text
            )
            self.assertIn("or give each call a name", text)
            self.assertIn("worker w0 calls MIN of f32[3], but worker w2 calls MAX of f32[3]", op)
            self.assertEqual(after, [1.0] * 5)

    def test_the_others_go_on_without_a_worker_that_is_lost(self) -> None:
        first, second, _ = self.jobs.run(one_is_lost, 3, mortal={2}, BASIN_MIN_WORKERS="1")
        self.assertEqual(first, second)
        self.assertEqual(first[:LOST_AT], [3] * LOST_AT)
        self.assertEqual(first[LOST_AT:], [2] * (2 * LOST_AT))

    def test_after_a_timeout_the_same_call_goes_on_and_no_other(self) -> None:
        with tempfile.TemporaryDirectory() as events, contextlib.ExitStack() as kept:
            make_events(events, ["went"], kept)
            first, *others = self.jobs.run(continued, 3, events)
        unknown, other, later, total = first
        self.assertIn("no verdict arrived in time", unknown)
        self.assertIn("was not waited for. Make the same call again first", other)
        self.assertIn("was not waited for. Make the same call again first", later)
        self.assertEqual(total, [6.0] * 4)
        self.assertEqual(others, [[6.0] * 4] * 2)

    def test_the_facts_are_those_of_the_arrays(self) -> None:
        for divisors, norms, shape, named in self.jobs.run(facts, 3):
            self.assertEqual(divisors, {"0": 3})
            self.assertAlmostEqual(norms["0"], 2 * 1000**0.5)
            self.assertEqual(shape, (2, 0))
            self.assertEqual(named, [3.0, 3.0])


if __name__ == "__main__":
    main()
