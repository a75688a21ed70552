# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""Rounds that go on without a worker that is late.

Usage: test_torch_late.py BASIND LIBBASIN
"""

import contextlib
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

from jobs import hear, make_events, require, say

require("numpy", "torch")
import torch  # noqa: E402 - ends above when there is none
from torch import nn  # noqa: E402
from torch_jobs import (  # noqa: E402
    WORKERS,
    TorchTest,
    average,
    gradients,
    loss_of,
    main,
    model,
    session,
    take_step,
    trainer,
)

STEPS = 5
HELD = 2  # In this step, w2 is late.
ROWS = 6  # Of a table with sparse gradients.

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


def carried(rank: int, event: str) -> Any:
    """The same, with what is carried."""
    with trainer() as (_, net, optimizer), warned() as lines:
        deferred, divisors = [], []
        for step in range(STEPS):
            info = step_of_the_held(net, optimizer, rank, step, event)
            deferred.append(dict(zip(info.contributors, info.contributor_deferred)))
            divisors.append(info.divisor)
        parameters = [parameter.detach().clone() for parameter in net.parameters()]
    return parameters, deferred, divisors, lines


def rows_of(step: int) -> torch.Tensor:
    """All rows of a table in the held step, and one in each other step."""
    return torch.arange(ROWS) if step == HELD else torch.tensor([step % ROWS])


def sparse(rank: int, event: str) -> Any:
    """Sparse gradients, of which w2 computes those of one step only when the round of the others
    has its outcome, before the rows come."""
    from basin.torch.row_gradients import RowGradients

    receive = RowGradients.receive

    def tell_and_receive(rows: Any, *arguments: Any) -> None:
        if rank == 0 and step == HELD:
            say(Path(event))
        receive(rows, *arguments)

    with (
        session() as bt,
        warned() as lines,
        mock.patch.object(RowGradients, "receive", tell_and_receive),
    ):
        net: Any = nn.Embedding(ROWS, 2, sparse=True).double()
        bt.broadcast_parameters(net)
        nn.init.zeros_(net.weight)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        bt.DistributedOptimizer(optimizer, net.named_parameters())
        for step in range(STEPS):
            if rank == 2 and step == HELD:
                hear(Path(event))
            optimizer.zero_grad()
            (net(rows_of(step)).sum() * (rank + 1.0)).backward()
            optimizer.step()
    return net.weight.detach(), lines


def samples(rank: int, event: str, size: int) -> Any:
    """The samples of an epoch that the contributions of this worker have committed."""
    from torch.utils.data import DataLoader

    with trainer() as (bt, net, optimizer):
        data: Any = range(size)
        sampler = bt.ElasticSampler(data, optimizer, seed=3)
        loader = DataLoader(data, batch_size=2, sampler=sampler)
        mine, late = [], []
        kept: list[int] = []  # What the next contribution has as well.
        for step, batch in enumerate(loader):
            info = step_of_the_held(net, optimizer, rank, step, event)
            late.append(info.late)
            if f"w{rank}" in info.contributors:
                mine += kept + batch.tolist()
            kept = batch.tolist() if f"w{rank}" in info.late and info.late_carries else []
        return mine, late


# ---- checks


def by_hand() -> list[torch.Tensor]:
    """The parameters after the steps in which w2 is late once and its gradient is in the next one,
    computed in one process."""
    net = model()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    kept: list[list[torch.Tensor]] = []
    for step in range(STEPS):
        each = []
        for rank in range(WORKERS):
            net.zero_grad()
            loss_of(net, rank, step).backward()
            each.append(gradients(net))
        late = [each.pop()] if step == HELD else []
        counted, kept = each + kept, late
        for parameter, of_all in zip(net.parameters(), zip(*counted)):
            parameter.grad = torch.stack(of_all).sum(0) / len(counted)
        optimizer.step()
    return [parameter.detach().clone() for parameter in net.parameters()]


class Held(TorchTest):
    """Jobs in which w2 is late in one step."""

    def run_held(self, function: Any, *arguments: Any) -> list[Any]:
        with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as kept:
            make_events(folder, ["made"], kept)
            event = str(Path(folder) / "made")
            return self.jobs.run(function, WORKERS, event, *arguments, BASIN_MIN_WORKERS="1")


class LeaveOutTest(Held):
    OPTIONS = ("--round-late-policy=leave_out", f"--round-grace={GRACE}")

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


class CarryTest(Held):
    OPTIONS = ("--round-late-policy=carry", f"--round-grace={GRACE}")

    def test_the_next_step_has_the_late_gradient(self) -> None:
        each = self.run_held(carried)
        self.assert_same_bits([parameters for parameters, *_ in each])
        self.assert_close(by_hand(), each[0][0])
        expected: list[dict[str, int]] = [{"w0": 0, "w1": 0, "w2": 0} for _ in range(STEPS)]
        del expected[HELD]["w2"]
        expected[HELD + 1]["w2"] = 1
        for _, deferred, divisors, _ in each:
            self.assertEqual(expected, deferred)
            self.assertEqual([3, 3, 2, 4, 3], divisors)
        self.assertRegex("".join(each[2][3]), "w2, which were late .* its next round has these")
        self.assertNotIn("not added", "".join(each[2][3]))
        self.jobs.aggregator.wait_for("contribution_deferred", "w2")

    def test_rows_of_sparse_gradients_are_dropped(self) -> None:
        each = self.run_held(sparse)
        expected = torch.zeros(ROWS, 2, dtype=torch.float64)
        for step in range(STEPS):
            expected[rows_of(step)] -= 0.1 * (1.5 if step == HELD else 2.0)
        self.assert_same_bits([[table] for table, _ in each])
        self.assert_close([expected], [each[0][0]])
        told = "".join(each[2][1])
        self.assertIn("went on without the gradients of worker w2", told)
        self.assertNotIn("its next round has these gradients", told)

    def test_the_samples_of_the_late_one_are_committed_once(self) -> None:
        each = self.run_held(samples, 48)
        self.assertEqual(list(range(48)), sorted(one for mine, _ in each for one in mine))
        self.assertIn(("w2",), each[0][1])


if __name__ == "__main__":
    main()
