# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""What a worker that was evicted and comes back loads of the state of the others: what differs.

Usage: test_torch_rejoin.py BASIND LIBBASIN
"""

import contextlib
import sys
import unittest
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from jobs import Aggregator, hear, message, say
from test_state import LateJoinersTest, hash_of
from test_torch_shared_memory import totals_of
from torch_jobs import main, session

import torch  # isort: skip - torch_jobs ends the program when there is none
from torch import nn  # isort: skip

FROZEN = 8 * 1000 * 1000  # The bytes of a layer that is not trained.
TRAINED = 8 * 1000 * 20  # Those of the one that is, of its average and of each of its moments.
RECORD = 512


class Training:
    def __init__(self, bt: Any, rank: int) -> None:
        self.rank = rank
        torch.manual_seed(rank)
        self.net: Any = nn.Sequential(
            nn.Linear(1000, 1000, bias=False), nn.Tanh(), nn.Linear(1000, 20, bias=False)
        ).double()
        self.net[0].requires_grad_(False)
        self.optimizer: Any = torch.optim.Adam(self.net[2].parameters(), lr=0.01)
        bt.DistributedOptimizer(self.optimizer, self.net[2].named_parameters())
        self.state: Any = bt.State(
            self.net, self.optimizer, ema=torch.optim.swa_utils.AveragedModel(self.net[2]), best=0.0
        )

    def step(self) -> None:
        self.optimizer.zero_grad()
        batch = torch.randn(4, 1000, dtype=torch.float64)
        (self.net(batch).square().mean() * (1 + self.rank)).backward()
        self.optimizer.step()
        self.state.ema.update_parameters(self.net[2])
        self.state.best = np.float32(self.state.step)
        self.state.step += 1

    def describe(self) -> Any:
        moments = self.optimizer.state_dict()["state"].values()
        return (
            hash_of(self.net.parameters()),
            hash_of(self.state.ema.parameters()),
            hash_of(value for each in moments for value in each.values()),
            float(self.state.best),
            self.state.step,
        )


@contextlib.contextmanager
def requests() -> Iterator[dict[str, int]]:
    """What this worker requests meanwhile, without the name of the source: bytes by name."""
    from basin.worker import Worker

    made: dict[str, int] = {}
    get = Worker.get

    def noted(self: Any, lane: str, tensor: Any, *more: Any) -> None:
        get(self, lane, tensor, *more)
        made[tensor.name.partition("/")[2] or tensor.name] = more[-1]

    with mock.patch.object(Worker, "get", noted):
        yield made


def come_back(bt: Any) -> None:
    from basin.torch import context

    context.current().client.worker.abandon()
    bt.rejoin()


# ---- workers


def nothing(training: Training) -> None:
    pass


def parameter(training: Training) -> None:
    training.net[0].weight[0, 0] = 1.0


def moment(training: Training) -> None:
    (state,) = training.optimizer.state.values()
    state["exp_avg"][0, 0] += 1.0


def value(training: Training) -> None:
    training.state.best = 77.0


CHANGES: list[Callable[[Training], None]] = [nothing, parameter, moment, value]


def away_in_a_pause(rank: int, folder: str, metrics: str) -> Any:
    """Rank 1 is away before some of the steps, in which the other one waits for it. Before it comes
    back, it changes something of its own. The last time it compares nothing."""
    from basin.torch.state import JobState, _Kept

    with session() as bt:
        training = Training(bt, rank)
        for _ in range(3):
            training.step()
        moved = []
        changes: list[Callable[[Training], None] | None] = [*CHANGES, None]
        for change in changes:
            if rank == 1:
                before, received = training.describe(), totals_of(metrics)["received_bytes"]
                with requests() as made, contextlib.ExitStack() as kept, torch.no_grad():
                    if change is None:
                        kept.enter_context(
                            mock.patch.object(JobState, "_compare_all", lambda *_: _Kept())
                        )
                    else:
                        change(training)
                    come_back(bt)
                received = totals_of(metrics)["received_bytes"] - received
                moved.append((made, received, before == training.describe()))
            training.step()
        return training.describe(), moved


def away_while_the_others_train(rank: int, folder: str) -> Any:
    away, trained = Path(folder) / "go", Path(folder) / "trained"
    with session() as bt:
        training = Training(bt, rank)
        for _ in range(3):
            training.step()
        made: dict[str, int] = {}
        if rank == 1:
            from basin.torch import context

            context.current().client.worker.abandon()
            say(away)
            hear(trained)
            with requests() as made:
                bt.rejoin()
        else:
            hear(away)
            while bt.size() == 2:
                training.step()
            training.step()
            say(trained)
            while bt.size() == 1:
                training.step()
        history: dict[int, Any] = {}
        while len(history) < 4:
            history[training.state.step] = training.describe()
            training.step()
        return history, made


def digests_fail(rank: int, _: str) -> Any:
    """Those of the member that serves."""
    from basin.torch import digests

    with session() as bt, contextlib.ExitStack() as kept:
        training = Training(bt, rank)
        training.step()
        made: dict[str, int] = {}
        if rank == 0:
            fails = mock.patch.object(digests, "of_all", side_effect=MemoryError("no memory"))
            kept.enter_context(fails)
        else:
            with requests() as made:
                come_back(bt)
        training.step()
        return training.describe(), made


class ComesBack(LateJoinersTest):
    def test_criterion_2_4_what_is_equal_is_compared_and_not_moved(self) -> None:
        aggregator = Aggregator(Path(sys.argv[1]), http="127.0.0.1:0")
        try:
            outcomes = self.jobs.run(
                away_in_a_pause,
                2,
                "",
                aggregator.metrics,
                BASIN_ADDRESS=aggregator.address,
                BASIN_START_WORKERS="2",
                BASIN_MIN_WORKERS="2",
            )
        finally:
            aggregator.close()
        (of_one, _), (of_other, moved) = outcomes
        self.assertEqual(of_one, of_other)
        self.assertEqual([True] * len(moved), [same for *_, same in moved])
        names = ("nothing", "parameter", "moment", "value", "all")
        got = {name: made for name, (made, _, _) in zip(names, moved)}
        received = {name: total for name, (_, total, _) in zip(names, moved)}
        compared = {"record", "index", "digests"}
        self.assertEqual(compared, got["nothing"].keys())
        self.assertLess(sum(got["nothing"].values()), RECORD + 2000)
        for name, size in (("parameter", FROZEN), ("moment", TRAINED)):
            (fetched,) = got[name].keys() - compared
            self.assertEqual((True, size), (fetched.isdecimal(), got[name][fetched]), name)
        # What is not large travels in one piece.
        self.assertEqual(compared | {"content"}, got["value"].keys())
        whole = FROZEN + 4 * TRAINED
        self.assertEqual(whole, sum(size for name, size in got["all"].items() if name.isdecimal()))
        # With the gradients of the other worker, which may be sent again.
        self.assertLess(received["nothing"], FROZEN / 4)
        self.assertGreater(received["parameter"], FROZEN)
        self.assertLess(received["moment"], FROZEN / 4)
        self.assertGreater(received["all"], whole)

    def test_who_was_behind_loads_what_is_trained(self) -> None:
        outcomes = self.run_job(away_while_the_others_train, 2, start=2, least=1, most=2)
        (history, _), (of_joiner, made) = outcomes
        common = history.keys() & of_joiner.keys()
        self.assertGreaterEqual(len(common), 3)
        for step in common:
            self.assertEqual(history[step], of_joiner[step])
        large = sorted(size for name, size in made.items() if name.isdecimal())
        self.assertEqual([TRAINED] * 4, large)
        self.assertIn("content", made)

    def test_without_digests_everything_is_loaded(self) -> None:
        outcomes = self.run_job(digests_fail, 2, start=2, least=2, most=2)
        (of_one, _), (of_other, made) = outcomes
        self.assertEqual(of_one, of_other)
        self.assertIn("content", made)
        self.assertEqual(5, sum(name.isdecimal() for name in made))


class KnownTest(unittest.TestCase):
    def test_who_was_a_member_before_comes_back(self) -> None:
        from basin.torch.digests import Known

        known = Known()
        self.assertFalse(known.note("ab"))
        self.assertFalse(known.note("abc"), "c is new")
        known.note("ab")
        self.assertTrue(known.note("abc"), "c was away")
        self.assertTrue(known.note("abc"), "one was away between two looks")
        known.note("ab")
        self.assertFalse(known.note("abd"), "d is new, and c stays away")
        self.assertTrue(known.note("abcde"), "so is e, but c is back")

    def test_equal_content_has_one_digest_whatever_its_place(self) -> None:
        from basin.torch import digests

        mine = [torch.arange(40_000.0).view(200, 200).t(), torch.zeros(70_000)]
        theirs = [torch.zeros(70_000), torch.ones(3), mine[0].clone(), torch.zeros(70_000)]
        published = b"".join(digests.of_all(theirs))
        self.assertEqual(len(theirs) * digests.BYTES, len(published))
        kept = digests.by_number(zip(digests.of_all(mine), mine), published)
        self.assertEqual(
            {0: 1, 2: 0, 3: 1}, {i: [*map(id, mine)].index(id(t)) for i, t in kept.items()}
        )
        self.assertEqual("", message("Error", lambda: digests.of_all([b"", torch.empty(0)])))


if __name__ == "__main__":
    main()
