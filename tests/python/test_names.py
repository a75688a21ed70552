# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""Calls with names, by the thousand.

Usage: test_names.py BASIND LIBBASIN [CLASS...]
"""

import contextlib
import os
import random
import signal
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

from jobs import Aggregator, JobsTest, hear, main, make_events, require, say

require("numpy")
import numpy as np  # noqa: E402 - ends above when there is none

NAMES = 10_000
BLOCK = 250
IN_FLIGHT = 512


def _part(rank: int, call: int) -> Any:
    return ((np.arange(8) + call + 3 * rank) % 11).astype(np.float32)


def _sum(call: int, ranks: int) -> Any:
    return sum(_part(rank, call) for rank in range(ranks))


def _block(client: Any, rank: int, block: int, names: int = BLOCK) -> list[Any]:
    """Makes calls with as many new names, each worker in an order of its own, and returns their
    handles in the order of the calls."""
    import basin

    calls = list(range(block * names, (block + 1) * names))
    order = list(calls)
    random.Random(1000 * rank + block).shuffle(order)
    begun = {
        call: client.allreduce_async(_part(rank, call), f"call {call}", op=basin.Sum)
        for call in order
    }
    return [begun[call] for call in calls]


def _resident() -> int:
    """The bytes of memory of this process that are in use."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def thousands(rank: int, workers: int) -> Any:
    import basin

    wrong, resident = [], 0
    with basin.connect() as client:
        for block in range(NAMES // BLOCK):
            if block == NAMES // BLOCK // 2:
                resident = _resident()
            for i, handle in enumerate(_block(client, rank, block)):
                call = block * BLOCK + i
                if not np.array_equal(handle.wait(), _sum(call, workers)):
                    wrong.append(call)
        grown = _resident() - resident
        # A name that all have let go is free for a call of another kind.
        other = client.allreduce(np.full((2, 3), rank + 1), "call 0", op=basin.Max)
        # One after the other, each worker a new name at a time.
        after = [client.allreduce(rank + i, f"one {i}", op=basin.Max).item() for i in range(300)]
    return wrong, grown, other.tolist(), after


def in_flight(rank: int, events: str) -> Any:
    """All of them are in flight before any has an outcome."""
    import basin

    with basin.connect() as client:
        client.allreduce(np.ones(1), "first", op=basin.Sum)
        if rank > 0:
            hear(Path(events) / "begun")
        handles = _block(client, rank, 0, IN_FLIGHT)
        done = sum(handle.done() for handle in handles) if rank == 0 else 0
        say(Path(events) / "begun")
        return done, [handle.wait().tolist() for handle in handles]


def some_go(rank: int, how: str) -> Any:
    """The last worker is lost, or leaves, in the middle of calls with many names."""
    import basin

    counted: list[Any] = []
    with basin.connect() as client:
        for block in range(12):
            handles = _block(client, rank, block)
            if rank == 2 and block == 6:
                if how == "lost":
                    os.kill(os.getpid(), signal.SIGKILL)
                for handle in handles:
                    handle.wait()
                return counted
            for i, handle in enumerate(handles):
                got = handle.wait()
                ranks = len(handle.info.contributors)
                assert np.array_equal(got, _sum(block * BLOCK + i, ranks)), (block, i, ranks)
                counted.append(ranks)
    return counted


def goes_on(rank: int, events: str) -> Any:
    """The aggregator is replaced in the middle of calls with many names."""
    import basin

    with basin.connect() as client:
        for block in range(16):
            handles = _block(client, rank, block)
            if block in (6, 9) and rank == 0:
                say(Path(events) / f"at {block}")
            for i, handle in enumerate(handles):
                if not np.array_equal(handle.wait(), _sum(block * BLOCK + i, 3)):
                    return block, i
    return "all"


def one_comes(rank: int, events: str) -> Any:
    """The last worker joins in the middle of calls with many names."""
    import basin

    counted, here = [], 0
    if rank == 2:
        hear(Path(events) / "come")
    with basin.connect() as client:
        block = 0
        while block < 12 or (here < 4 and block < 200):
            # A newcomer learns where the others are.
            place = client.allreduce(np.int64(block), "place", op=basin.Max)
            block = int(place)
            if block == 5 and rank == 0:
                say(Path(events) / "come")
            handles = _block(client, rank, block, 100)
            for handle in handles:
                handle.wait()
            counted.append({len(handle.info.contributors) for handle in handles})
            here += counted[-1] == {3}
            block += 1
    return here


class Thousands(JobsTest):
    """These take minutes on two processors."""

    def _check_thousands(self, workers: int) -> None:
        for wrong, grown, other, after in self.jobs.run(thousands, workers, workers):
            self.assertEqual(wrong, [])
            self.assertLess(grown, NAMES // 2 * 1000)
            self.assertEqual(other, [[workers] * 3] * 2)
            self.assertEqual(after, [workers - 1 + i for i in range(300)])

    def test_ten_thousand_names_of_two_workers(self) -> None:
        self._check_thousands(2)

    def test_ten_thousand_names_of_three_workers(self) -> None:
        self._check_thousands(3)


class Names(JobsTest):
    def _check_in_flight(self, workers: int) -> None:
        with tempfile.TemporaryDirectory() as events, contextlib.ExitStack() as kept:
            make_events(events, ["begun"], kept)
            for done, sums in self.jobs.run(in_flight, workers, events):
                self.assertEqual(done, 0)
                expected = [_sum(call, workers).tolist() for call in range(IN_FLIGHT)]
                self.assertEqual(sums, expected)

    def test_512_are_in_flight_at_once_of_two_workers(self) -> None:
        self._check_in_flight(2)

    def test_512_are_in_flight_at_once_of_three_workers(self) -> None:
        self._check_in_flight(3)

    def test_the_others_go_on_without_a_worker_that_is_killed(self) -> None:
        first, second, _ = self.jobs.run(some_go, 3, "lost", mortal={2}, BASIN_MIN_WORKERS="1")
        self.assertEqual(first, second)
        self.assertEqual(set(first[: 6 * BLOCK]), {3})
        self.assertEqual(set(first[7 * BLOCK :]), {2})

    def test_the_others_go_on_without_a_worker_that_leaves(self) -> None:
        first, second, third = self.jobs.run(some_go, 3, "leaves", BASIN_MIN_WORKERS="1")
        self.assertEqual(first, second)
        self.assertEqual(third, [3] * (6 * BLOCK))
        self.assertEqual(set(first[7 * BLOCK :]), {2})

    def test_the_calls_go_on_after_a_restart_of_the_aggregator(self) -> None:
        with tempfile.TemporaryDirectory() as events, contextlib.ExitStack() as kept:
            make_events(events, ["at 6", "at 9"], kept)

            def restart() -> None:
                for event in ("at 6", "at 9"):
                    hear(Path(events) / event)
                    address = self.jobs.aggregator.address
                    self.jobs.aggregator.close()
                    self.jobs.aggregator = Aggregator(Path(sys.argv[1]), listen=address)

            thread = threading.Thread(target=restart)
            thread.start()
            self.assertEqual(self.jobs.run(goes_on, 3, events), ["all"] * 3)
            thread.join()

    def test_a_worker_joins_in_the_middle(self) -> None:
        with tempfile.TemporaryDirectory() as events, contextlib.ExitStack() as kept:
            make_events(events, ["come"], kept)
            for here in self.jobs.run(
                one_comes, 3, events, BASIN_MIN_WORKERS="2", BASIN_START_WORKERS="2"
            ):
                self.assertGreaterEqual(here, 3)


if __name__ == "__main__":
    main()
