# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""Ranges of positions, and what one worker does with those that it has leased.

Usage: test_samples.py LIBBASIN
"""

import itertools
import os
import random
import sys
import unittest
from collections.abc import Sequence

from jobs import PACKAGE  # It makes the package importable.

os.environ["BASIN_LIBRARY"] = sys.argv[1]
assert PACKAGE.is_dir()
from basin.lane import ranges  # noqa: E402 - the library is named above
from basin.lane.ranges import Range  # noqa: E402
from basin.lane.samples import Samples  # noqa: E402
from basin.worker import LeaseOutcome, SampleEpoch  # noqa: E402


def places(of: Sequence[Range]) -> list[int]:
    return [place for begin, end in of for place in range(begin, end)]


class Ranges(unittest.TestCase):
    def test_against_sets(self) -> None:
        seed = random.randrange(1 << 32)
        chance = random.Random(seed)

        def some() -> list[Range]:
            begins = [chance.randrange(30) for _ in range(chance.randrange(6))]
            return [(begin, begin + chance.randrange(6)) for begin in begins]

        with self.subTest(seed=seed):
            for _ in range(2000):
                a, b = some(), some()
                self.assertEqual(sorted(set(places(a))), places(ranges.union(a)))
                left = ranges.without(a, b)
                self.assertEqual(sorted(set(places(a)) - set(places(b))), places(left))
                for (_, end), (begin, _) in itertools.pairwise(left):
                    self.assertLess(end, begin)
                count = chance.randrange(10)
                self.assertEqual(places(left)[:count], places(ranges.first(left, count)))
                self.assertEqual(len(places(left)), ranges.size(left))


class OneWorker:
    """A ledger of which this worker has all, or what `others` leave it, and a lane."""

    def __init__(self, samples: int) -> None:
        self.free: list[Range] = [(0, samples)]
        self.others: list[Range] = []
        self.done: list[Range] = []
        self.number = 0
        self.resumed: list[tuple[int, list[Range]]] = []
        self.returned: list[Range] = []
        # ---- as a lane
        self.changes = 0  # Of the members.
        self.claimed: list[Range] = []
        self.used: list[Range] = []

    def lease(self, epoch: SampleEpoch, count: int) -> tuple[LeaseOutcome, list[Range]]:
        if epoch.number > self.number:
            self.number, self.free, self.done = epoch.number, [(0, epoch.samples)], []
        leased = ranges.first(self.free, count)
        self.free = ranges.without(self.free, leased)
        if leased:
            return LeaseOutcome.LEASED, leased
        return (LeaseOutcome.NONE_NOW if self.others else LeaseOutcome.ENDED), []

    def lease_step(self, epoch: SampleEpoch, global_batch: int) -> tuple[LeaseOutcome, list[Range]]:
        """All of the step: this worker is alone."""
        return self.lease(epoch, global_batch)

    def generation(self) -> tuple[int, int]:
        return (1, self.changes)

    def give_back(self, number: int, given: Sequence[Range]) -> None:
        if number == self.number:
            self.returned += given
            self.free = ranges.union([*self.free, *given])

    def committed(self) -> tuple[SampleEpoch, list[Range]]:
        return SampleEpoch(self.number, 10, 7), self.done

    def resume(self, epoch: SampleEpoch, committed: Sequence[Range]) -> None:
        self.resumed.append((epoch.number, list(committed)))

    def claim(self, handed: Sequence[Range], is_batch: bool) -> None:
        self.claimed += handed

    def unclaim(self) -> None:
        self.claimed = []

    def unclaimed(self) -> bool:
        return bool(self.claimed)

    def in_use(self) -> list[Range]:
        return self.claimed + self.used

    def forget_positions(self) -> None:
        self.claimed, self.used = [], []

    # ---- what happens to a lane

    def backward(self) -> None:
        self.used, self.claimed = self.used + self.claimed, []

    def skip(self) -> None:
        """Takes part without a backward: what was handed out counts as used."""
        self.done = ranges.union([*self.done, *self.claimed])
        self.claimed = []

    def end_round(self, samples: Samples, counted: bool) -> None:
        named, self.used = self.used, []
        if counted:
            self.done = ranges.union([*self.done, *named])
        samples.end_round(named, counted)


class OfOneWorker(unittest.TestCase):
    def setUp(self) -> None:
        self.world = OneWorker(10)
        self.rounds = 0

        def take_part() -> None:
            self.rounds += 1
            if self.rounds == 2:  # Another worker is lost.
                self.world.free, self.world.others = self.world.others, []

        self.samples = Samples(self.world, self.world, 10, 7, True, take_part)

    def test_what_is_committed_does_not_come_again(self) -> None:
        self.assertEqual([(0, 4)], self.samples.take(4))
        self.assertEqual([(4, 8)], self.samples.take(4))
        for _ in range(2):
            self.samples.hand_out(None)
            self.world.backward()
            self.world.end_round(self.samples, counted=True)
        self.assertEqual([(8, 10)], self.samples.take(4))
        self.assertEqual(8, self.samples.report.mine)
        self.assertEqual([(0, 8)], self.samples.committed())

    def test_what_was_not_counted_comes_again(self) -> None:
        self.samples.take(4)
        self.samples.hand_out(None)
        self.world.backward()
        self.world.end_round(self.samples, counted=False)
        self.assertEqual([(0, 3)], self.samples.take(3))
        self.assertEqual([(3, 4)], self.samples.take(3))
        self.assertEqual([(4, 7)], self.samples.take(3))

    def test_a_backward_that_failed(self) -> None:
        self.samples.take(4)
        self.samples.hand_out(None)
        self.world.unclaim()  # By the failed backward.
        self.assertEqual([(0, 4)], self.samples.take(4))

    def test_a_loader_that_makes_batches_itself(self) -> None:
        self.samples.take(3)
        self.samples.take(3)
        self.samples.hand_out(4)
        self.assertEqual([(0, 3), (3, 4)], self.world.claimed)
        self.samples.hand_out(4)  # The last batch is short.
        self.assertEqual([(0, 3), (3, 4), (4, 6)], self.world.claimed)

    def test_a_loop_that_breaks_off(self) -> None:
        for _ in range(3):
            self.samples.take(2)
        self.samples.hand_out(None)
        self.world.backward()
        self.samples.hand_out(None)  # No backward comes for it.
        self.samples.stop()
        self.assertEqual([(2, 6)], self.world.returned)
        self.assertEqual(4, self.samples.report.returned)
        self.world.end_round(self.samples, counted=True)
        self.assertEqual([(2, 10)], self.samples.take(10))

    def test_leases_that_are_lost(self) -> None:
        self.samples.take(4)
        before = self.samples.life
        self.samples.forget()
        self.assertNotEqual(before, self.samples.life)  # So the loop drops what its loader has.
        self.world.free = [(0, 10)]
        self.samples.take(4)
        self.samples.hand_out(None)
        self.assertEqual([(0, 4)], self.world.claimed)

    def test_a_position_of_many_steps(self) -> None:
        shards = Samples(self.world, self.world, 10, 7, False, lambda: None)
        shards.take(1)
        shards.hand_out(None)
        self.assertEqual([], self.world.claimed)
        shards.take(1)
        shards.hand_out(None)
        self.assertEqual([(0, 1)], self.world.claimed)
        shards.stop()  # In the middle of the second one.
        self.assertEqual([(0, 2)], self.world.returned)

    def test_no_samples(self) -> None:
        none = Samples(self.world, self.world, 0, 7, True, lambda: None)
        self.assertEqual([], none.take(1))
        self.assertFalse(none.wait(1))

    def test_waits_while_others_hold_what_is_left(self) -> None:
        self.world.free, self.world.others = [], [(5, 7)]
        self.assertEqual([], self.samples.take(4))
        self.assertTrue(self.samples.wait(4))
        self.assertEqual((2, 2), (self.rounds, self.samples.report.idle))
        self.assertEqual([(5, 7)], self.samples.take(4))

    def test_steps_of_a_global_batch(self) -> None:
        samples = Samples(self.world, self.world, 10, 7, True, self.world.skip, 4)
        self.assertEqual([[(0, 4)], [(4, 8)]], [samples.take(4), samples.take(4)])
        samples.renew()
        samples.hand_out(None)
        self.world.backward()
        self.world.used = []  # The round was aborted, and its gradients were dropped.
        life = samples.life
        samples.renew()
        self.assertLess(life, samples.life)
        self.assertEqual([[(0, 4)], [(4, 8)]], [samples.take(4), samples.take(4)])
        samples.hand_out(None)
        self.world.backward()
        self.world.end_round(samples, True)
        life = samples.life
        samples.renew()
        self.assertEqual(life, samples.life, "nothing has changed")
        self.world.changes = 1
        samples.renew()
        self.assertLess(life, samples.life)
        self.assertEqual([(4, 8)], samples.take(4))
        samples.hand_out(None)
        samples.renew()  # The script has run no backward of it.
        self.assertEqual([(0, 8)], self.world.done)

    def test_the_next_epoch(self) -> None:
        self.world.free, self.world.done = [], [(0, 10)]
        self.assertFalse(self.samples.wait(4))
        self.samples.set_epoch(0)
        self.samples.begin()
        self.assertFalse(self.samples.wait(4))  # It was asked for again, and has ended.
        self.samples.begin()
        self.assertEqual(1, self.samples.epoch.number)
        self.assertEqual([(0, 4)], self.samples.take(4))

    def test_another_epoch_gives_up_the_present_one(self) -> None:
        self.samples.take(4)
        self.samples.set_epoch(3)
        self.assertEqual([(0, 4)], self.world.returned)
        self.assertEqual([(0, 4)], self.samples.take(4))
        self.assertEqual(3, self.world.number)

    def test_resumes_from_a_checkpoint(self) -> None:
        self.samples.resume(2, [(4, 6), (0, 4)])
        self.assertEqual([(0, 6)], self.samples.committed())
        self.samples.take(4)
        self.samples.take(4)
        self.assertEqual([(2, [(0, 6)])], self.world.resumed)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]])
