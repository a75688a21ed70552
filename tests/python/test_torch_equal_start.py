# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""What moves when a job starts and its workers have loaded the same checkpoint: what differs.

Usage: test_torch_equal_start.py BASIND LIBBASIN
"""

import contextlib
import sys
import tempfile
from pathlib import Path
from typing import Any
from unittest import mock

from jobs import Aggregator, JobsTest, hear, make_events, say
from test_state import hash_of
from test_torch_rejoin import requests
from test_torch_shared_memory import totals_of
from torch_jobs import main, session

import torch  # isort: skip - torch_jobs ends the program when there is none
from torch import nn  # isort: skip

LARGE = 8 * 1000 * 1000  # The bytes of the first layer, and of each of its moments.
DIGESTS = 32 * 3  # Those of the parameters.
WORKERS = 3


def build(seed: int) -> tuple[Any, Any]:
    torch.manual_seed(seed)
    net: Any = nn.Sequential(nn.Linear(1000, 1000, bias=False), nn.Tanh(), nn.Linear(1000, 20))
    net.double()
    return net, torch.optim.Adam(net.parameters(), lr=0.01)


def step(net: Any, optimizer: Any, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    optimizer.zero_grad()
    net(torch.randn(4, 1000, dtype=torch.float64, generator=generator)).square().mean().backward()
    optimizer.step()


def save(path: str) -> None:
    import basin.torch

    net, optimizer = build(7)
    for number in range(2):
        step(net, optimizer, number)
    basin.torch.State(net, optimizer, start=False, best=0.5, seed=7).save_checkpoint(path)


def describe(state: Any) -> Any:
    moments = state.optimizer.state_dict()["state"].values()
    return (
        hash_of(state.model.parameters()),
        hash_of(value for each in moments for value in each.values()),
        state.best,
    )


# ---- workers


def starts(rank: int, folder: str, metrics: str, case: str) -> Any:
    """All load the checkpoint, and then rank 1 changes something of its own. Rank 2 comes later."""
    from basin.torch import context, digests
    from basin.torch.given import Given

    with session() as bt:
        me = bt.rank()
        net, optimizer = build(me)
        bt.DistributedOptimizer(optimizer, net.named_parameters())
        state = bt.State(net, optimizer, start=False, best=float(me), seed=7)
        if case != "root alone" or me == 0:
            state.load_checkpoint(Path(folder) / "checkpoint")
        if me == 1:
            change(case, state)
        bt.barrier("loaded")
        before = totals_of(metrics)["received_bytes"]
        bt.barrier("measured")
        if me == 2:
            hear(Path(folder) / "starts")
        elif me == 0:
            say(Path(folder) / "starts")
        fails = mock.patch.object(digests, "of_all", side_effect=MemoryError("no memory"))
        if case == "not compared" and me == 0:
            fails.start()
        gave: list[int] = []
        give = Given.give

        def counted(given: Given, large: Any) -> int:
            gave.append(len(large))
            return give(given, large)

        mock.patch.object(Given, "give", counted).start()
        with requests() as made:
            state.start()
        mock.patch.stopall()
        bt.barrier("started")
        received = totals_of(metrics)["received_bytes"] - before
        began = describe(state)
        given = context.current().state.given

        def copies() -> list[int]:
            """By the number of the broadcast that has given them."""
            return [len(given.copies(1 + i)) for i in range(len(gave))]

        at_start = copies()
        step(net, optimizer, me)
        return me, began, describe(state), made, received, (sum(gave), at_start, copies())


def change(case: str, state: Any) -> None:
    with torch.no_grad():
        if case == "parameter":
            state.model[0].weight[3, 4] += 1.0
        elif case == "moment":
            state.optimizer.state[state.model[0].weight]["exp_avg_sq"][5, 6] += 1.0
        elif case == "bias":
            state.model[2].bias[0] = 9.0
        elif case == "value":
            state.best = 77.0


def asks_again(rank: int) -> Any:
    """Rank 1 has too little time for the moments of rank 0, and calls again."""
    import basin
    from basin.worker import Worker

    with session() as bt:
        me = bt.rank()
        net, optimizer = build(me)
        if me == 0:
            step(net, optimizer, 0)
        late = []
        if me == 1:
            with mock.patch.object(Worker, "get", side_effect=basin.DeadlineExceeded("late")):
                try:
                    bt.broadcast_optimizer_state(optimizer)
                except basin.DeadlineExceeded as error:
                    late.append(str(error))
        bt.broadcast_optimizer_state(optimizer)
        moments = optimizer.state_dict()["state"].values()
        return late, hash_of(value for each in moments for value in each.values())


class EqualStart(JobsTest):
    def outcomes_of(self, case: str) -> tuple[dict[int, dict[str, int]], float]:
        """What each rank has requested, by name, and the bytes that the aggregator received."""
        with contextlib.ExitStack() as kept:
            folder = kept.enter_context(tempfile.TemporaryDirectory())
            save(f"{folder}/checkpoint")
            make_events(folder, ["starts"], kept)
            aggregator = Aggregator(Path(sys.argv[1]), http="127.0.0.1:0")
            kept.callback(aggregator.close)
            outcomes = self.jobs.run(
                starts,
                WORKERS,
                folder,
                aggregator.metrics,
                case,
                BASIN_ADDRESS=aggregator.address,
                BASIN_START_WORKERS=str(WORKERS),
            )
        ranks = {me: rest for me, *rest in outcomes}
        self.assertEqual([0, 1, 2], sorted(ranks))
        for began, after, _, _, (gave, at_start, after_a_step) in ranks.values():
            self.assertEqual(ranks[0][:2], [began, after])
            self.assertEqual(0, sum(at_start[:-1]), "everybody has what the others gave")
            self.assertEqual(0, sum(after_a_step), "after the first round, everybody has it")
            self.assertIn(gave, (0, 4))
        self.assertEqual(4, ranks[0][4][0], "two moments of each large parameter")
        self.assertEqual({}, ranks[0][2], "the root requests nothing")
        return {me: ranks[me][2] for me in ranks}, ranks[0][3]

    def test_what_is_equal_is_compared_and_not_moved(self) -> None:
        made, received = self.outcomes_of("equal")
        self.assertEqual({"parameters": DIGESTS}, made[1])
        self.assertEqual({"parameters": DIGESTS}, made[2])
        self.assertLess(received, 20_000)

    def test_who_differs_requests_only_that(self) -> None:
        for case, name, size in (
            ("parameter", "0.weight", LARGE),
            ("moment", "1.1", LARGE),
            ("bias", "2.bias", 8 * 20),
            ("value", None, 0),
        ):
            with self.subTest(case):
                made, received = self.outcomes_of(case)
                more = {} if name is None else {name: size}
                self.assertEqual({"parameters": DIGESTS, **more}, made[1])
                self.assertEqual({"parameters": DIGESTS}, made[2])
                self.assertLess(received, size + 20_000)
                self.assertGreaterEqual(received, size)

    def test_if_the_root_alone_has_loaded_it_all_of_it_moves(self) -> None:
        made, _ = self.outcomes_of("root alone")
        for me in (1, 2):
            self.assertEqual(8, len(made[me]), made[me])
            self.assertEqual(3 * LARGE, sum(size for size in made[me].values() if size == LARGE))

    def test_what_cannot_be_compared_moves(self) -> None:
        made, _ = self.outcomes_of("not compared")
        for me in (1, 2):
            self.assertEqual(3 * LARGE, sum(size for size in made[me].values() if size == LARGE))

    def test_after_too_little_time_another_call_gets_it(self) -> None:
        outcomes = self.jobs.run(asks_again, 2)
        self.assertEqual(1, len({moments for _, moments in outcomes}))
        self.assertEqual([["late"]], [late for late, _ in outcomes if late])


if __name__ == "__main__":
    main()
