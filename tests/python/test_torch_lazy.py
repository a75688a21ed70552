# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""Lazy modules, whose tensors have no shape before the first forward: all workers have the values
of rank 0 from then on, and a late joiner has those of the others.

Usage: test_torch_lazy.py BASIND LIBBASIN
"""

import contextlib
import copy
import os
import pickle
import sys
import tempfile
import unittest
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

from jobs import hear, make_events, say
from test_state import LateJoinersTest, hash_of
from torch_jobs import TorchTest, expect, main, session

import torch  # isort: skip - torch_jobs ends the program when there is none
from torch import nn  # isort: skip

NEVER = 10**6
WAYS = ("DistributedOptimizer", "DistributedDataParallel")


class Net(nn.Module):
    """All of the first step is lazy but the head; `late` is used from the second step on."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.LazyLinear(300)
        self.norm = nn.LazyBatchNorm1d()
        self.late = nn.LazyLinear(300, bias=False)
        self.head = nn.Linear(300, 2)
        self.uses_late = False

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.norm(self.first(x))
        if self.uses_late:
            x = x + self.late(x)
        return self.head(torch.tanh(x))


class Training:
    """Built from another seed in each process, and before anything has a shape."""

    def __init__(self, bt: Any, rank: int, way: str, **options: Any) -> None:
        self.bt, self.rank = bt, rank
        torch.manual_seed(os.getpid())
        self.net: Any = Net().double()
        self.optimizer: Any = torch.optim.Adam(self.net.parameters(), lr=0.01)
        self.model = self.net
        if way == "DistributedOptimizer":
            bt.DistributedOptimizer(self.optimizer, self.net.named_parameters())
        else:
            self.model = bt.DistributedDataParallel(self.net)
        self.state = bt.State(self.net, self.optimizer, end=NEVER, **options)
        self.late_from = 1  # The first step that uses the late layer.
        self.made: dict[str, str] = {}  # What the first forward that used each has used.

    def backward(self) -> None:
        self.net.uses_late = self.state.step >= self.late_from
        self.optimizer.zero_grad()
        generator = torch.Generator().manual_seed(1000 * self.rank + self.state.step)
        out = self.model(torch.randn(4, 5, dtype=torch.float64, generator=generator))
        for name, parameter in self.net.named_parameters():
            if not nn.parameter.is_lazy(parameter):
                self.made.setdefault(name, hash_of([parameter]))
        out.square().mean().backward()

    def step(self) -> None:
        self.backward()
        self.optimizer.step()
        self.state.step += 1

    def describe(self) -> Any:
        moments = self.optimizer.state_dict()["state"].values()
        present = (p for p in self.net.parameters() if not nn.parameter.is_lazy(p))
        return hash_of(present), hash_of(value for each in moments for value in each.values())


@contextlib.contextmanager
def counted() -> Iterator[Counter[str]]:
    """What this worker gives and takes of lazy tensors meanwhile: how often each."""
    from basin.worker import Worker

    made: Counter[str] = Counter()

    def noted(kind: str, method: Any) -> Any:
        def call(self: Any, lane: str, tensor: Any, *more: Any, **options: Any) -> None:
            if lane == "lazy":
                made[f"{kind} {tensor.name}"] += 1
            method(self, lane, tensor, *more, **options)

        return mock.patch.object(Worker, kind, call)

    with noted("announce", Worker.announce), noted("get", Worker.get):
        yield made


# ---- workers


def trains(rank: int, way: str) -> Any:
    with session() as bt, counted() as made:
        training = Training(bt, rank, way)
        seen = []
        for _ in range(4):
            training.step()
            seen.append(training.describe())
        return seen, training.made, dict(made)


def waits_for_rank_0_alone(rank: int, folder: str) -> Any:
    """Rank 1 has forwarded before rank 2 begins to, which has not left then."""
    done = Path(folder) / "go"
    with session() as bt:
        training = Training(bt, rank, WAYS[0])
        if rank == 2:
            hear(done)
        x = torch.ones(4, 5, dtype=torch.float64)
        out = training.net(x)
        if rank == 1:
            say(done)
        out.sum().backward()
        training.optimizer.step()
        return training.describe()


def never_given(rank: int) -> Any:
    """Rank 0 runs no forward before the others give up."""
    from basin.torch import lazily

    with session() as bt, mock.patch.object(lazily, "_TIMEOUT_SECONDS", 0.5):
        net = nn.LazyLinear(3)
        bt.broadcast_parameters(net)
        text = "" if rank == 0 else expect("DeadlineExceeded", net, torch.ones(1, 4))
        bt.barrier("over")
        # Another try of the same forward succeeds.
        net(torch.full((1, 4), 1.0))
        return text, hash_of(net.parameters())


def other_shape(rank: int) -> Any:
    with session() as bt:
        net = nn.LazyLinear(3)
        bt.broadcast_parameters(net)
        x = torch.ones(1, 4 + (rank == 1))
        return expect("Mismatch", net, x) if rank == 1 else net(x).shape


def restored_on_rank_0(rank: int, path: str, way: str) -> Any:
    """Only rank 0 has the checkpoint, and its model has shapes before the others' have. The first
    step does not use the late layer."""
    with session() as bt:
        training = Training(bt, rank, way, start=False)
        training.late_from = 4
        if rank == 0:
            training.state.load_checkpoint(path)
        training.state.start()
        began = training.describe() if rank == 0 else None
        for _ in range(2):
            training.step()
        return began, training.made, training.describe(), training.state.step


def replaced(rank: int) -> Any:
    """A layer is replaced by a lazy one between two steps, and broadcast again."""
    with session() as bt:
        torch.manual_seed(rank)
        net = nn.Sequential(nn.LazyLinear(4), nn.Linear(4, 2))
        optimizer: Any = torch.optim.SGD(net.parameters(), lr=0.1)
        model = bt.DistributedDataParallel(net)
        seen = []
        for step in range(4):
            if step == 2:
                net[0] = nn.LazyLinear(4)
                bt.broadcast_parameters(net)
                optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
            optimizer.zero_grad()
            model(torch.full((1, 3), rank + 1.0)).sum().backward()
            optimizer.step()
            seen.append(hash_of(net.parameters()))
        return seen


def joins_late(rank: int, folder: str, way: str, at: int) -> Any:
    """Rank 2 comes when the others have made `at` steps; with 1 the second layer is lazy then."""
    go = Path(folder) / "go"
    if rank == 2:
        hear(go)
    with session() as bt, counted() as made:
        training = Training(bt, rank, way)
        history: dict[int, Any] = {}
        while training.state.step < training.state.end:
            if training.state.step == at and rank == 0:
                say(go)
            training.step()
            if bt.size() == 3 and training.state.end == NEVER:
                training.state.end = training.state.step + 4
            history[training.state.step] = training.describe()
        return history, dict(made)


def comes_back(rank: int, folder: str) -> Any:
    """Rank 1 is away before the step in which a layer gets its values."""
    from basin.torch import context

    with session() as bt:
        training = Training(bt, rank, WAYS[0])
        training.step()
        if rank == 1:
            context.current().client.worker.abandon()
            bt.rejoin()
        for _ in range(2):
            training.step()
        return training.describe()


class Lazy(TorchTest):
    def test_criterion_2_3_values_are_those_of_rank_0_from_the_first_forward_on(self) -> None:
        for way in WAYS:
            with self.subTest(way):
                outcomes = self.run_job(trains, way)
                seen, made, _ = outcomes[0]
                self.assertEqual(7, len(made))
                for i, (theirs, used, counts) in enumerate(outcomes):
                    self.assertEqual(made, used, f"what the forwards of worker {i} have read")
                    self.assertEqual(seen, theirs)
                    # Each once, with the three buffers of the norm.
                    self.assertEqual(8, len(counts), counts)
                    self.assertEqual({1}, set(counts.values()))
                    kind = "announce" if i == 0 else "get"
                    self.assertTrue(all(name.startswith(kind) for name in counts))

    def test_criterion_2_1_a_worker_waits_for_rank_0_alone(self) -> None:
        with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as kept:
            make_events(folder, ("go",), kept)
            outcomes = self.run_job(waits_for_rank_0_alone, folder)
        self.assertEqual(1, len(set(outcomes)), outcomes)

    def test_criterion_2_2_a_value_that_is_never_given_is_an_error_with_its_name(self) -> None:
        outcomes = self.run_job(never_given)
        for i, (text, _) in enumerate(outcomes[1:], 1):
            self.assertIn(f"Worker w{i} has waited 0.5 s in a forward", text)
            self.assertIn("the lazy tensor weight, which worker w0 of rank 0 gives", text)
        self.assertEqual(1, len({made for _, made in outcomes}))

    def test_criterion_2_2_another_shape_names_both_workers(self) -> None:
        text = self.run_job(other_shape)[1]
        for word in ("weight", "w0", "w1"):
            self.assertIn(word, text)

    def test_criterion_2_4_rank_0_alone_restores_into_lazy_modules(self) -> None:
        for way in WAYS:
            with self.subTest(way), tempfile.TemporaryDirectory() as folder:
                path = f"{folder}/last"
                ((saved, values),) = self.jobs.run(saves, 1, path)
                outcomes = self.run_job(restored_on_rank_0, path, way)
                self.assertEqual(saved, outcomes[0][0])
                for _, made, after, step in outcomes:
                    self.assertEqual((values["late.weight"], 5), (made["late.weight"], step))
                    self.assertEqual(values["first.weight"], made["first.weight"])
                    self.assertEqual(outcomes[0][2], after)

    def test_criterion_2_3_a_layer_that_is_made_again_is_shared_again(self) -> None:
        outcomes = self.run_job(replaced)
        self.assertEqual(4, len(set(outcomes[0])))
        for seen in outcomes[1:]:
            self.assertEqual(outcomes[0], seen)


def saves(rank: int, path: str) -> Any:
    with session() as bt:
        training = Training(bt, rank, WAYS[0])
        for _ in range(3):
            training.step()
        training.state.save_checkpoint(path)
        values = {name: hash_of([each]) for name, each in training.net.named_parameters()}
        return training.describe(), values


class LateJoiners(LateJoinersTest):
    def test_criterion_2_6_a_late_joiner_has_the_values_of_the_others(self) -> None:
        for way in WAYS:
            for at in (0, 3):
                with self.subTest(way, at=at):
                    outcomes = self.run_job(joins_late, 3, way, at, start=2, least=2, most=3)
                    history, made = outcomes[2]
                    for step, described in history.items():
                        for other, _ in outcomes[:2]:
                            self.assertEqual(other[step], described, f"step {step}")
                    if at == 3:
                        self.assertEqual({}, made, "they came with the state")

    def test_criterion_2_6_who_was_away_has_them_as_well(self) -> None:
        outcomes = self.run_job(comes_back, 2, start=2, least=2, most=2)
        self.assertEqual(outcomes[0], outcomes[1])


class HookTest(unittest.TestCase):
    def test_a_copy_of_a_watched_module_shares_nothing(self) -> None:
        os.environ["BASIN_LIBRARY"] = sys.argv[2]
        from basin.torch.lazily import LazyTensors

        worker = mock.Mock(**{"place.return_value.is_member": True})
        lazy = LazyTensors(worker, lambda: 1)
        net = nn.LazyLinear(2)
        lazy.watch("parameters 0", net, None)
        self.assertEqual(2, len(lazy.pending))
        for copied in (copy.deepcopy(net), pickle.loads(pickle.dumps(net))):
            copied(torch.ones(1, 3))
        worker.announce.assert_not_called()
        net(torch.ones(1, 3))
        self.assertEqual(2, worker.announce.call_count)
        self.assertEqual((set(), True), (lazy.pending, lazy.was_shared(net.weight)))
        # The step after the round that the forward was for has begun.
        lazy.drop_given()
        worker.stop_serving.assert_not_called()
        lazy._next_round = lambda: 2
        lazy.drop_given()
        self.assertEqual(2, worker.stop_serving.call_count)


if __name__ == "__main__":
    main()
