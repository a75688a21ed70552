# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""Samples of an epoch that workers lease, with real workers and a real aggregator.

Usage: test_leases.py BASIND LIBBASIN
"""

import os
import signal
from collections import Counter
from typing import Any

from jobs import PATIENCE, JobsTest, main, message, require

require("numpy")
import numpy as np  # noqa: E402 - ends above when there is none

SAMPLES = 23
BATCH = 3


class Loop:
    """A loop that trains on the samples that it leases, and remembers what was committed."""

    def __init__(self, client: Any) -> None:
        from basin import _abi
        from basin.worker import TensorSpec

        self.worker = client.worker
        self.lane, (self.handle,) = self.worker.register(
            "gradients", _abi.GRADIENT, [TensorSpec("w", _abi.F32, (4,))]
        )
        self.trained: list[tuple[int, int]] = []  # Epoch and position of what this one trained on.

    def epoch(self, number: int) -> Any:
        from basin.worker import SampleEpoch

        return SampleEpoch(number, SAMPLES, 99)

    def round(self, epoch: int, ranges: list[tuple[int, int]]) -> Any:
        """Contributes if there are ranges; returns the info of the round, None if it was
        aborted."""
        import basin
        from basin.spec import Counts, RoundSpec

        count = sum(end - begin for begin, end in ranges)
        spec = RoundSpec(
            basin.Average, counts=Counts(samples=count), samples=tuple(ranges), sample_epoch=epoch
        )
        self.worker.begin(self.lane, spec)
        gradient = np.ones(4, np.float32)
        if ranges:
            self.worker.push(self.lane, self.handle, gradient.ctypes.data, gradient.nbytes)
            self.worker.commit(self.lane)
        else:
            self.worker.withdraw(self.lane, "no samples are free")
        try:
            info = self.worker.wait(self.lane, PATIENCE).info
        except basin.RoundAborted:
            return None
        self.trained += [(epoch, i) for begin, end in ranges for i in range(begin, end)]
        return info

    def run(self, epochs: int, dies_after: int | None = None) -> None:
        from basin.worker import LeaseOutcome

        rounds = 0
        number = 0
        while number < epochs:
            outcome, ranges = self.worker.samples_lease(self.lane, self.epoch(number), BATCH)
            if outcome is LeaseOutcome.ENDED:
                number += 1
                continue
            if rounds == dies_after:
                os.kill(os.getpid(), signal.SIGKILL)
            info = self.round(number, ranges)
            rounds += 1
            if info is not None and info.samples is not None and info.samples.epoch_ended:
                assert info.samples.epoch_committed == SAMPLES, info.samples
                number += 1


def whole_epochs(_: int) -> Any:
    import basin

    with basin.connect(max_workers=3, timeout=PATIENCE) as client:
        loop = Loop(client)
        loop.run(2)
        progress = loop.worker.samples_committed(loop.lane)
        client.barrier("end")
        return loop.trained, progress


def with_a_loss(rank: int) -> Any:
    import basin

    with basin.connect(max_workers=3, min_workers=2, timeout=PATIENCE) as client:
        loop = Loop(client)
        client.barrier()
        loop.run(1, dies_after=2 if rank == 2 else None)
        return loop.trained


def calls(rank: int) -> Any:
    import basin
    from basin.worker import LeaseOutcome, SampleEpoch

    with basin.connect(max_workers=2, timeout=PATIENCE) as client:
        loop = Loop(client)
        worker, lane, epoch = loop.worker, loop.lane, loop.epoch(4)
        worker.samples_resume(lane, epoch, [(0, 10)])
        assert worker.samples_committed(lane) == (epoch, [(0, 10)])
        if rank == 0:
            assert worker.samples_lease(lane, epoch, 5) == (LeaseOutcome.LEASED, [(10, 15)])
            worker.samples_return(lane, 4, [(11, 13)])
            assert worker.samples_lease(lane, epoch, 2) == (LeaseOutcome.LEASED, [(11, 13)])
            text = message("FailedPrecondition", loop.round, 4, [(14, 16)])
            assert "sample 15 of epoch 4" in text, text
        client.barrier()
        if rank == 1:
            text = message("Mismatch", worker.samples_lease, lane, SampleEpoch(4, 22, 99), 1)
            assert "22 samples" in text and "23 samples" in text, text
            worker.samples_lease(lane, epoch, 1)
        client.barrier("leased")
        info = loop.round(4, [(10, 15)] if rank == 0 else [(15, 16)])
        progress = worker.samples_committed(lane)
        client.barrier("end")
        return tuple(info.samples), progress


class SamplesTest(JobsTest):
    def check(self, trained: list[tuple[int, int]], epochs: int) -> None:
        """Every sample of each epoch exactly once."""
        expected = {(epoch, i): 1 for epoch in range(epochs) for i in range(SAMPLES)}
        self.assertEqual(expected, dict(Counter(trained)))

    def test_are_trained_exactly_once(self) -> None:
        outcomes = self.jobs.run(whole_epochs, 3)
        self.check([each for trained, _ in outcomes for each in trained], 2)
        for _, progress in outcomes:
            self.assertEqual(progress, ((1, SAMPLES, 99), [(0, SAMPLES)]))

    def test_of_a_killed_worker_are_trained_by_the_others(self) -> None:
        outcomes = self.jobs.run(with_a_loss, 3, mortal=[2])
        trained = Counter(each for outcome in outcomes[:2] for each in outcome)
        # Those of the first two rounds of the worker that died were committed.
        self.assertTrue(all(count == 1 for count in trained.values()), trained)
        self.assertGreaterEqual(len(trained), SAMPLES - 2 * BATCH)

    def test_calls_are_checked(self) -> None:
        for samples, (_, ranges) in self.jobs.run(calls, 2):
            self.assertEqual(samples, (4, 6, 16, False))
            self.assertEqual(ranges, [(0, 16)])


if __name__ == "__main__":
    main()
