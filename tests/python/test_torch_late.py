# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""Rounds that go on without a worker that is late.

Usage: test_torch_late.py BASIND LIBBASIN
"""

import contextlib
import sys
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from jobs import Jobs, hear, make_events, require, say

require("numpy", "torch")
from torch_jobs import (  # noqa: E402 - ends above when there is none
    TorchTest,
    average,
    gradients,
    main,
    take_step,
    trainer,
)

STEPS = 5
HELD = 2  # In this step, w2 is late.

# Longer than a worker that is not late needs on a busy machine.
GRACE = "10s"


@contextlib.contextmanager
def warned() -> Iterator[list[str]]:
    """What is warned of meanwhile."""
    lines: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield lines
    lines += [f"{warning.category.__name__}: {warning.message}" for warning in caught]


# ---- workers


def step_of_the_held(net: Any, optimizer: Any, rank: int, step: int, event: str) -> Any:
    """One step, which w2 makes only after the others if it is the held one. The round's facts."""
    if rank == 2 and step == HELD:
        hear(Path(event))
    take_step(net, optimizer, rank, step)
    if rank == 0 and step == HELD:
        say(Path(event))
    return optimizer.last_round()


def steps(rank: int, event: str) -> Any:
    """w2 makes its backward of one step only when the others have made that step."""
    with trainer() as (_, net, optimizer), warned() as lines:
        late, contributors, after = [], [], []
        for step in range(STEPS):
            info = step_of_the_held(net, optimizer, rank, step, event)
            late.append(info.late)
            contributors.append(len(info.contributors))
            after.append(gradients(net))
        parameters = [parameter.detach().clone() for parameter in net.parameters()]
    return parameters, late, contributors, after, lines


def samples(rank: int, event: str, size: int) -> Any:
    """The samples of an epoch that the contributions of this worker have committed."""
    from torch.utils.data import DataLoader

    with trainer() as (bt, net, optimizer):
        data: Any = range(size)
        sampler = bt.ElasticSampler(data, optimizer, seed=3)
        loader = DataLoader(data, batch_size=2, sampler=sampler)
        mine, late = [], []
        for step, batch in enumerate(loader):
            info = step_of_the_held(net, optimizer, rank, step, event)
            late.append(info.late)
            if f"w{rank}" in info.contributors:
                mine += batch.tolist()
        return mine, late


# ---- checks


class LateTest(TorchTest):
    @classmethod
    def setUpClass(cls) -> None:
        options = ("--round-late-policy=leave_out", f"--round-grace={GRACE}")
        cls.jobs = Jobs(Path(sys.argv[1]), Path(sys.argv[2]), *options)

    def run_held(self, function: Any, *arguments: Any) -> list[Any]:
        with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as kept:
            make_events(folder, ["made"], kept)
            event = str(Path(folder) / "made")
            return self.jobs.run(function, 3, event, *arguments, BASIN_MIN_WORKERS="1")

    def test_the_others_go_on_and_the_late_one_has_their_result_and_is_told(self) -> None:
        each = self.run_held(steps)
        self.assert_same_bits([parameters for parameters, *_ in each])
        for _, late, contributors, *_ in each:
            self.assertEqual([("w2",) if step == HELD else () for step in range(STEPS)], late)
            self.assertEqual([2 if step == HELD else 3 for step in range(STEPS)], contributors)
        told = [line for line in each[2][4] if "went on without the gradients of worker w2" in line]
        self.assertRegex("".join(told), r"^ContributorsChanged: Round \d+ of lane")
        for rank in (0, 1):
            self.assertNotIn("went on without", "".join(each[rank][4]))

    def test_the_result_is_the_average_of_the_others(self) -> None:
        first = [after[0] for _, _, _, after, _ in self.run_held(steps)]
        self.assert_same_bits(first)
        self.assert_close(average(0), first[0])

    def test_the_samples_of_the_late_one_come_again(self) -> None:
        each = self.run_held(samples, 48)
        self.assertEqual(list(range(48)), sorted(one for mine, _ in each for one in mine))
        self.assertIn(("w2",), each[0][1])


if __name__ == "__main__":
    main()
