# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""Workers that join a running PyTorch job late, and get the state of the others.

Usage: test_state.py BASIND LIBBASIN
"""

import contextlib
import hashlib
import os
import signal
import tempfile
import threading
import time
import unittest
from pathlib import Path
from typing import Any
from unittest import mock

from jobs import JobsTest, hear, make_events, say
from torch_jobs import expect, main, model, session, sgd
from torch_jobs import loss_of as of_model

import torch  # isort: skip - torch_jobs ends the program when there is none
from torch import nn  # isort: skip

NEVER = 10**6


def hash_of(values: Any) -> str:
    digest = hashlib.sha256()
    for value in values:
        digest.update(value.detach().reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()[:12]


def make_net() -> Any:
    """A model with different values on each worker, and with large tensors, including buffers."""
    torch.manual_seed(os.getpid())
    return nn.Sequential(
        nn.Linear(5, 10_000), nn.BatchNorm1d(10_000), nn.Tanh(), nn.Linear(10_000, 3)
    ).double()


def loss_of(net: Any, rank: int, step: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(1000 * rank + step)
    loss: torch.Tensor = net(torch.randn(4, 5, dtype=torch.float64, generator=generator))
    return loss.square().mean()


class Training:
    """The start of one worker, and its state after each step."""

    def __init__(self, bt: Any, rank: int, way: str = "DistributedOptimizer") -> None:
        self.bt, self.rank = bt, rank
        self.net = make_net()
        self.optimizer: Any = torch.optim.Adam(self.net.parameters(), lr=0.01)
        self.scheduler = torch.optim.lr_scheduler.StepLR(self.optimizer, step_size=3, gamma=0.9)
        if way == "DistributedOptimizer":
            bt.broadcast_parameters(self.net)
            bt.DistributedOptimizer(self.optimizer, self.net.named_parameters())
            self.lane: Any = self.optimizer
        else:
            self.lane = self.net = bt.DistributedDataParallel(self.net)
        bt.broadcast_optimizer_state(self.optimizer)
        self.state = bt.broadcast_state(step=0, end=NEVER, scheduler=self.scheduler)
        self.began = self.state.step
        self.history = {self.began: self.describe()}

    def describe(self) -> tuple[str, ...]:
        moments = self.optimizer.state_dict()["state"].values()
        return (
            hash_of(self.net.parameters()),
            hash_of(value for each in moments for value in each.values()),
            str(self.optimizer.param_groups[0]["lr"]),
            str(self.scheduler.last_epoch),
            hash_of(self.net.buffers()),
        )

    def step(self) -> None:
        self.optimizer.zero_grad()
        loss_of(self.net, self.rank, self.state.step).backward()
        self.optimizer.step()
        self.scheduler.step()
        counted = self.lane.last_round().spec.step
        assert counted == self.state.step, f"step {self.state.step} was counted as {counted}"
        self.state.step += 1
        self.history[self.state.step] = self.describe()

    def end_soon(self) -> None:
        if self.state.end == NEVER:
            self.state.end = self.state.step + 6

    def outcome(self) -> Any:
        return self.began, self.history, self.lane.last_round().contributors


def place() -> Any:
    from basin.torch import context

    return context.current().client.place


def someone_has_joined() -> bool:
    joined: bool = place().donor_since != (0, 0)
    return joined


def vanish() -> None:
    """Ends like a process, from the others' view."""
    from basin.torch import context

    context.stop(finished=False)


# ---- workers


def members_and_joiners(rank: int, folder: str, members: int, total: int, way: str) -> Any:
    go = Path(folder) / "go"
    if rank >= members:
        hear(go)
    with session() as bt:
        config = bt.broadcast_object({"rank": rank}, name="config")
        training = Training(bt, rank, way)
        while training.state.step < training.state.end:
            if training.state.step == 3 and rank == 0:
                say(go)
            training.step()
            if bt.size() == total:
                training.end_soon()
        return training.outcome(), config


def a_joiner_is_alone_when_the_next_one_comes(rank: int, folder: str) -> Any:
    """Rank 2 joins ranks 0 and 1, which leave after its first step. Then rank 3 joins it."""
    go, left = Path(folder) / "go", Path(folder) / "trained"
    if rank >= 2:
        hear(go if rank == 2 else left)
    with session() as bt:
        objects = [bt.broadcast_object((name, rank), name="config") for name in "ab"]
        training = Training(bt, rank)
        were_three = False
        while training.state.step < training.state.end:
            if training.state.step == 3 and rank == 0:
                say(go)
            training.step()
            were_three |= len(training.lane.last_round().contributors) == 3
            if were_three and rank < 2:
                bt.shutdown()
                return training.outcome(), objects
            if were_three and rank == 2 and bt.size() == 1:
                say(left)
                were_three = False
            if "w3" in training.lane.last_round().contributors:
                training.end_soon()
        return training.outcome(), objects


def joins_with_its_own_state(rank: int, folder: str) -> Any:
    """The parameters are equal on all, and nothing steps."""
    go = Path(folder) / "go"
    if rank == 2:
        hear(go)
    with session(own_state=rank == 2) as bt:
        objects = [bt.broadcast_object((name, rank), name="config") for name in "ab"]
        refused = expect("Unsupported", bt.barrier, "alone") if rank == 2 else ""
        net = model()
        optimizer = sgd(net, bt)
        rounds = 0
        while rounds == 0 or len(optimizer.last_round().contributors) < 3:
            of_model(net, rank).backward()
            rounds += 1
            if rank == 0 and rounds == 1:
                say(go)
        bt.barrier("together")
        return objects, refused, rounds


def killed_and_replaced(rank: int, folder: str) -> Any:
    if rank == 3:  # Another process replaces rank 2.
        hear(Path(folder) / "killed")
        os.environ["BASIN_WORKER_ID"] = "w2"
    with session() as bt:
        training = Training(bt, min(rank, 2))
        generations = set()
        while training.state.step < training.state.end:
            if rank == 2 and training.state.step == 4:
                say(Path(folder) / "killed")
                os.kill(os.getpid(), signal.SIGKILL)
            training.step()
            # The round says it to all in the same step, and the place of a worker does not.
            generations.add(training.lane.last_round().generation)
            if rank == 3 or len(generations) > 1:
                training.end_soon()
        return training.outcome()


def evicted_and_back(rank: int, _: str) -> Any:
    import basin
    from basin.torch import context

    with session() as bt:
        training = Training(bt, rank)
        evictions = 0
        while training.state.step < training.state.end:
            if rank == 2 and training.state.step == 4 and evictions == 0:
                context.current().client.worker.abandon()
            try:
                training.step()
            except basin.Evicted as evicted:
                assert "basin.torch.rejoin() makes this worker a member again" in str(evicted)
                evictions += 1
                bt.rejoin()
                training.began = training.state.step
                training.history = {training.began: training.describe()}
            if someone_has_joined():
                training.end_soon()
        return training.outcome(), evictions


def joins_as_a_turn_ends(rank: int, folder: str) -> Any:
    """A turn of waiting ends without the outcome; then the outcome arrives and admits a joiner,
    and then the members look for joiners."""
    go = Path(folder) / "go"
    from basin import errors, worker

    call = worker.call
    committed = False

    def late_call(name: str, *arguments: Any) -> None:
        nonlocal committed
        if name == "wait" and committed:
            committed = False
            end = time.monotonic() + 0.5
            while not someone_has_joined() and time.monotonic() < end:
                pass
            raise errors.OutcomeUnknown("A turn has ended.")
        call(name, *arguments)
        committed = committed or name == "commit"

    if rank == 2:
        hear(go)
        late_call = call
    with mock.patch.object(worker, "call", late_call), session() as bt:
        training = Training(bt, rank)
        while training.state.step < training.state.end:
            if training.state.step == 3 and rank == 0:
                say(go)
            training.step()
            if someone_has_joined():
                training.end_soon()
        return training.outcome()


def donor_is_gone(rank: int, folder: str, when: str) -> Any:
    """The donor is rank 0. It dies when it learns that it is one, or while it serves."""
    go, die = Path(folder) / "go", Path(folder) / "die"
    if rank == 3:
        hear(go)
    if rank == 0 and when == "serving":

        def watch() -> None:
            hear(die)
            os.kill(os.getpid(), signal.SIGKILL)

        threading.Thread(target=watch, daemon=True).start()
    if rank == 3 and when == "serving":
        from basin.worker import Worker

        get = Worker.get

        def get_from_who_dies(self: Any, lane: str, tensor: Any, *more: Any) -> None:
            if tensor.name == "w0/2":
                say(die)
                while True:  # Waits until its death is known.
                    with contextlib.suppress(Exception):
                        get(self, lane, tensor, *more)
                        continue
                    break
            get(self, lane, tensor, *more)

        Worker.get = get_from_who_dies  # type: ignore[method-assign,assignment]
    import basin.torch as bt

    bt.init()
    training = Training(bt, rank)
    while training.state.step < training.state.end:
        if training.state.step == 3 and rank == 1:
            say(go)
        training.step()
        if someone_has_joined():
            if rank == 0 and when == "named":
                vanish()
                return training.outcome()
            training.end_soon()
    bt.barrier("end of test")
    bt.shutdown()
    return training.outcome()


def prepares_after_init(rank: int, folder: str) -> Any:
    """Rank 2 comes while the others train, and is not ready before they have trained on."""
    go, welcomed, trained = (Path(folder) / event for event in ("go", "welcomed", "trained"))
    if rank == 2:
        hear(go)
    import basin.torch as bt

    bt.init()
    told = [(bt.rank(), bt.size(), place().is_member)]
    if rank == 2:
        bt.shutdown()  # A worker that was never ready is missed by nobody.
        bt.init()
        say(welcomed)
        hear(trained)
    training = Training(bt, rank)
    told.append((bt.rank(), bt.size(), place().is_member))
    while training.state.step < training.state.end:
        if training.state.step == 3 and rank == 0:
            say(go)
            hear(welcomed)
        training.step()
        if training.state.step == 10 and rank == 0:
            say(trained)
        if bt.size() == 3:
            training.end_soon()
    bt.barrier("end of test")
    bt.shutdown()
    return training.outcome(), told


def two_prepare_after_init(rank: int, folder: str) -> Any:
    """Ranks 2 and 3 come while the others train, and rank 3 is ready after rank 2 has joined."""
    go, welcomed, trained = (Path(folder) / event for event in ("go", "welcomed", "trained"))
    if rank >= 2:
        hear(go)
    import basin.torch as bt
    from basin import notices

    warnings: list[Any] = []
    with mock.patch.object(notices.logger, "warning", lambda *said: warnings.append(said)):
        bt.init()
        told = [(bt.rank(), bt.size())]
        if rank == 3:
            say(welcomed)
            hear(trained)
        elif rank == 2:
            hear(welcomed)
        training = Training(bt, rank)
        told.append((bt.rank(), bt.size()))
    if rank == 2:
        say(trained)
    while training.state.step < training.state.end:
        if training.state.step == 3 and rank == 0:
            say(go)
        training.step()
        if bt.size() == 4:
            training.end_soon()
    bt.barrier("end of test")
    bt.shutdown()
    about = [text % tuple(values) for text, *values in warnings if "Read rank" in text]
    return training.outcome(), told, about


SCHEDULERS: dict[str, Any] = {
    # The first rate of each is another than that of a group which is further on.
    "LambdaLR": lambda lr, o: lr.LambdaLR(o, lambda epoch: 1 / (1 + epoch)),
    "LinearLR": lambda lr, o: lr.LinearLR(o, start_factor=0.5, total_iters=50),
    "OneCycleLR": lambda lr, o: lr.OneCycleLR(o, max_lr=0.1, total_steps=1000),
    "SequentialLR": lambda lr, o: lr.SequentialLR(
        o, [lr.LinearLR(o, total_iters=5), lr.ExponentialLR(o, gamma=0.9)], milestones=[5]
    ),
}


def schedules(rank: int, folder: str, kind: str, order: str) -> Any:
    """Rank 1 joins late and creates its scheduler in this order. The numbers with which each step
    was made, and the parameters after it."""
    import basin

    go = Path(folder) / "go"
    if rank == 1:
        hear(go)
    with session() as bt:
        torch.manual_seed(os.getpid())
        net = nn.Linear(5, 3).double()
        optimizer: Any = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)

        def make_scheduler() -> Any:
            return SCHEDULERS[kind](torch.optim.lr_scheduler, optimizer)

        scheduler = make_scheduler() if order.startswith("first") else None
        bt.DistributedOptimizer(optimizer, net.named_parameters())
        if order == "assigned":
            state = bt.State(net, optimizer, end=NEVER)
            state.scheduler = scheduler = make_scheduler()
        else:
            scheduler = scheduler or make_scheduler()
            if order.endswith("State"):
                state = bt.State(net, optimizer, scheduler=scheduler, end=NEVER)
            else:
                bt.broadcast_parameters(net)
                state = bt.broadcast_state(step=0, end=NEVER, scheduler=scheduler)
        if order.startswith("changed"):
            optimizer.param_groups[0]["lr"] = 0.25 * (rank + 1)
        history = {}
        while state.step < state.end:
            if state.step == 7 and rank == 0:
                say(go)
            optimizer.zero_grad()
            try:
                loss_of(net, rank, state.step).backward()
            except basin.Error as error:
                vanish()
                return str(error)
            (group,) = optimizer.param_groups
            numbers = group["lr"], group["momentum"], scheduler.last_epoch
            optimizer.step()
            scheduler.step()
            state.step += 1
            history[state.step] = *numbers, hash_of(net.parameters())
            if someone_has_joined() and state.end == NEVER:
                state.end = state.step + 5
        return history


def joins_wrongly(rank: int, folder: str, mistake: str) -> Any:
    """Rank 2 tries to join late but cannot; the others continue."""
    go = Path(folder) / "go"
    if rank == 2:
        hear(go)
    import basin.torch as bt

    def train(net: Any, optimizer: Any, begun: Any = None) -> int:
        left = NEVER
        for step in range(NEVER):
            if step == 3 and rank == 0:
                say(go)
            if begun is not None:
                begun(step)
            optimizer.zero_grad()
            net(torch.ones(1, 2)).sum().backward()
            if mistake == "call in a step":
                bt.allreduce(torch.ones(1), "loss", op=bt.Sum)
            optimizer.step()
            if mistake == "call after a step":
                bt.allreduce(torch.ones(1), "loss", op=bt.Sum)
            left -= 1
            if left > 5 and someone_has_joined():
                left = 5
            if left == 0:
                break
        return step

    def work() -> int:
        net = nn.Linear(2, 1)
        if mistake != "nothing loaded":
            bt.broadcast_parameters(net)
        if mistake == "call at the start" and rank == 2:
            bt.barrier("start")
        if mistake == "optimizer not shared":
            wrapped = bt.DistributedDataParallel(net)
            return train(wrapped, torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9))
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        if mistake == "scheduler not shared":
            torch.optim.lr_scheduler.StepLR(optimizer, step_size=1)
        optimizer = bt.DistributedOptimizer(optimizer, net.named_parameters())
        if mistake == "not the same" and rank != 2:
            bt.broadcast_state(step=0)
        if mistake == "not picklable":
            state = bt.broadcast_state(batches=None)
            state.batches = (number for number in range(2))
        return train(net, optimizer)

    bt.init()
    if rank == 2:
        kind = "FailedPrecondition" if mistake == "not the same" else "Unsupported"
        text = expect(kind, work)
        vanish()
        return text
    try:
        work()
        return bt.size()
    finally:
        bt.shutdown()


def joins_between_optimizers(rank: int, folder: str) -> Any:
    """Two optimizers take turns. A worker that joins between them gets an error, and can start
    again."""
    go = Path(folder) / "go"
    if rank == 2:
        hear(go)
    import basin
    import basin.torch as bt

    refused = 0
    while True:
        bt.init()
        nets = [nn.Linear(2, 1).double() for _ in range(2)]
        for net in nets:
            bt.broadcast_parameters(net)
        optimizers: list[Any] = [
            bt.DistributedOptimizer(
                torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9), net.named_parameters()
            )
            for net in nets
        ]
        state = bt.broadcast_state(step=0, end=NEVER)
        try:
            while state.step < state.end:
                if state.step == 3 and rank == 0:
                    say(go)
                for net, optimizer in zip(nets, optimizers):
                    optimizer.zero_grad()
                    net(torch.full((1, 2), float(rank), dtype=torch.float64)).sum().backward()
                    optimizer.step()
                    contributors = len(optimizer.last_round().contributors)
                state.step += 1
                if contributors == 3 and state.end == NEVER:
                    state.end = state.step + 5
        except basin.Unsupported as error:
            assert "between two optimizers" in str(error), error
            refused += 1
            vanish()
            continue
        result = state.step, hash_of(p for net in nets for p in net.parameters()), refused
        bt.barrier("end of test")
        bt.shutdown()
        return result


class LateJoinersTest(JobsTest):
    """Runs members and late joiners, and compares them."""

    def run_job(
        self,
        function: Any,
        processes: int,
        *arguments: Any,
        start: int,
        least: int,
        most: int,
        mortal: tuple[int, ...] = (),
    ) -> list[Any]:
        with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as kept:
            make_events(folder, ("go", "die", "killed", "welcomed", "trained"), kept)
            return self.jobs.run(
                function,
                processes,
                folder,
                *arguments,
                mortal=mortal,
                BASIN_START_WORKERS=str(start),
                BASIN_MIN_WORKERS=str(least),
                BASIN_MAX_WORKERS=str(most),
            )

    def assert_level(self, outcomes: list[Any], joiners: list[int]) -> None:
        """After each step all workers have the same parameters, moments and learning rate, and a
        joiner began with the others' state, and with the buffers of one of them."""
        ends = [max(history) for _, history, _ in outcomes]
        self.assertEqual(len(set(ends)), 1, ends)
        first = outcomes[0]
        for i, (began, history, contributors) in enumerate(outcomes):
            self.assertEqual(len(outcomes), len(contributors))
            self.assertEqual(list(range(began, ends[0] + 1)), sorted(history))
            for step, described in history.items():
                self.assertEqual(first[1][step][:4], described[:4], f"worker {i}, step {step}")
            if i in joiners:
                self.assertGreaterEqual(began, 3)
                # Different verdicts may admit two workers that arrive at the same time.
                there = [other for _, other, _ in outcomes if other is not history]
                buffers = [other[began][4] for other in there if began in other]
                self.assertIn(history[began][4], buffers)
            else:
                self.assertEqual(0, began)


class StateTest(LateJoinersTest):
    # It is chance whether a joiner comes between two optimizers. Each time counts as fruitless, and
    # after five of them in a row, one run in thirty, it would be refused for ten minutes.
    OPTIONS = ("--worker-fruitless-joins=0",)

    def test_a_late_joiner_continues_with_the_state_of_the_others(self) -> None:
        for way in ("DistributedOptimizer", "DistributedDataParallel"):
            with self.subTest(way):
                outcomes = self.run_job(members_and_joiners, 4, 3, 4, way, start=3, least=3, most=4)
                self.assert_level([outcome for outcome, _ in outcomes], [3])
                self.assertEqual([{"rank": 0}] * 4, [config for _, config in outcomes])
                last = {history[max(history)][4] for (_, history, _), _ in outcomes}
                self.assertEqual(1 if way == "DistributedDataParallel" else 4, len(last))

    def test_the_others_train_on_until_a_joiner_is_ready(self) -> None:
        outcomes = self.run_job(prepares_after_init, 3, start=2, least=2, most=3)
        self.assert_level([outcome for outcome, _ in outcomes], [2])
        (began, _, _), told = outcomes[2]
        self.assertGreaterEqual(began, 10)
        self.assertEqual([(2, 3, False), (2, 3, True)], told)
        for rank in range(2):
            self.assertEqual((rank, 2, True), outcomes[rank][1][0], "it is final in a new job")

    def test_a_joiner_is_warned_if_it_gets_another_rank_than_it_was_told(self) -> None:
        outcomes = self.run_job(two_prepare_after_init, 4, start=2, least=2, most=4)
        self.assert_level([outcome for outcome, _, _ in outcomes], [2, 3])
        self.assertEqual([(2, 3), (3, 4)], outcomes[3][1])
        for i, (_, _, warnings) in enumerate(outcomes):
            self.assertEqual(1 if i == 3 else 0, len(warnings), warnings)
        self.assertIn("rank 3 of 4, and was told before that it would be rank 2 of 3", *warnings)

    def test_a_joiner_gives_the_next_one_the_objects_of_the_start(self) -> None:
        outcomes = self.run_job(
            a_joiner_is_alone_when_the_next_one_comes, 4, start=2, least=1, most=4
        )
        for _, objects in outcomes:
            self.assertEqual([("a", 0), ("b", 0)], objects)
        (of_joiner, _), (of_next, _) = outcomes[2:]
        began, history, _ = of_next
        self.assertGreater(began, 3)
        self.assertEqual(
            {step: of_joiner[1][step][:4] for step in history},
            {step: described[:4] for step, described in history.items()},
        )

    def test_a_worker_that_brings_its_state_gets_the_objects_and_no_wait_without_end(self) -> None:
        outcomes = self.run_job(joins_with_its_own_state, 3, start=2, least=2, most=3)
        for objects, _, _ in outcomes:
            self.assertEqual([("a", 0), ("b", 0)], objects)
        self.assertRegex(
            outcomes[2][1],
            "w2 has joined a job in progress with own_state=True.* call/barrier/alone",
        )
        self.assertEqual(1, outcomes[2][2])

    def test_two_join_at_once(self) -> None:
        way = "DistributedOptimizer"
        outcomes = self.run_job(members_and_joiners, 4, 2, 4, way, start=2, least=2, most=4)
        self.assert_level([outcome for outcome, _ in outcomes], [2, 3])

    def test_a_paused_job_goes_on_with_a_replacement(self) -> None:
        outcomes = self.run_job(killed_and_replaced, 4, start=3, least=3, most=3, mortal=(2,))
        self.assertIsNone(outcomes[2])
        self.assert_level([outcomes[0], outcomes[1], outcomes[3]], [2])

    def test_an_evicted_worker_comes_back_with_state(self) -> None:
        outcomes = self.run_job(evicted_and_back, 3, start=3, least=2, most=3)
        self.assertEqual([0, 0, 1], [evictions for _, evictions in outcomes])
        self.assert_level([outcome for outcome, _ in outcomes], [2])

    def test_a_joiner_at_the_end_of_a_turn_gets_the_state_after_the_round(self) -> None:
        outcomes = self.run_job(joins_as_a_turn_ends, 3, start=2, least=2, most=3)
        self.assert_level(outcomes, [2])

    def test_another_member_takes_over_when_the_donor_goes_before_it_serves(self) -> None:
        outcomes = self.run_job(donor_is_gone, 4, "named", start=3, least=2, most=4)
        self.assert_level(outcomes[1:], [2])

    def test_another_member_takes_over_when_the_donor_dies_serving(self) -> None:
        outcomes = self.run_job(donor_is_gone, 4, "serving", start=3, least=2, most=4, mortal=(0,))
        self.assertIsNone(outcomes[0])
        self.assert_level(outcomes[1:], [2])

    def test_a_worker_that_cannot_join_gets_the_reason_and_the_others_continue(self) -> None:
        for mistake, words in (
            ("nothing loaded", "broadcast_parameters(model)"),
            ("not the same", "has not loaded these shared objects of the others: state 0"),
            ("call at the start", "the others do not make its call call/barrier/start"),
            ("call after a step", "make the call call/loss"),
            ("call in a step", "not applied yet"),
            ("scheduler not shared", "broadcast_state(scheduler=scheduler)"),
            ("optimizer not shared", "broadcast_optimizer_state(optimizer)"),
            ("not picklable", "cannot pickle their shared state"),
        ):
            with self.subTest(mistake):
                *sizes, text = self.run_job(joins_wrongly, 3, mistake, start=2, least=2, most=3)
                self.assertIn(words, text)
                self.assertEqual([2, 2], sizes)

    def test_optimizers_that_take_turns(self) -> None:
        outcomes = self.run_job(joins_between_optimizers, 3, start=2, least=2, most=3)
        self.assertEqual(1, len({outcome[:2] for outcome in outcomes}), outcomes)
        self.assertEqual([0, 0], [refused for *_, refused in outcomes[:2]])

    def test_a_joiner_has_the_rates_of_the_others_wherever_it_creates_its_scheduler(self) -> None:
        cases = [(kind, "second, State") for kind in SCHEDULERS]
        cases += [("LinearLR", each) for each in ("first, State", "first", "second", "assigned")]
        for kind, order in cases:
            with self.subTest(f"{kind} {order}"):
                of_member, of_joiner = self.run_job(
                    schedules, 2, kind, order, start=1, least=1, most=2
                )
                self.assertGreater(min(of_joiner), 7)
                self.assertGreaterEqual(len(of_joiner), 4)
                self.assertEqual({step: of_member[step] for step in of_joiner}, of_joiner)

    def test_a_joiner_that_changes_its_rate_is_refused_with_both_values(self) -> None:
        _, text = self.run_job(schedules, 2, "LambdaLR", "changed", start=1, least=1, most=2)
        self.assertRegex(
            text,
            "worker w1 has lr=0.5 in the group of parameter bias, and the others have lr=0.0[0-9]+ "
            "in the group of parameter bias",
        )


class BoundaryTest(unittest.TestCase):
    def test_no_two_boundaries_have_the_same_lane_and_version(self) -> None:
        """A term has up to 51 bits, and a version has 64."""
        from basin.torch.state import boundary_of
        from basin.worker import Place

        terms = [1, 2, 1 << 44, (1 << 44) + 1, (1 << 51) - 2, (1 << 51) - 1]
        counters = [1, 2, (1 << 20) - 1, 1 << 20, 1 << 40]
        seen = set()
        for term in terms:
            versions = []
            for counter in counters:
                place = Place(True, 0, 2, (term, counter), 1, False, donor_since=(term, counter))
                lane, version = boundary_of(place)
                versions.append(version)
                seen.add((lane, version & ((1 << 64) - 1)))
            self.assertEqual(sorted(set(versions)), versions, "they grow")
        self.assertEqual(len(terms) * len(counters), len(seen))


class PackTest(unittest.TestCase):
    def test_everything_comes_back_bit_for_bit(self) -> None:
        from basin.torch.packing import pack, unpack

        bits = torch.tensor([0x7FC0, 0xFF81, 0x8000, 1], dtype=torch.int32).to(torch.int16)
        values = {
            "bf16": bits.view(torch.bfloat16),
            "scalar": torch.tensor(float("nan"), dtype=torch.float64),
            "empty": torch.empty(0, 3),
            "bool": torch.tensor([[True], [False]]),
            "across": torch.arange(6.0).view(2, 3).t(),
            "large": torch.arange(100_000.0),
        }
        got = unpack(pack({"values": values, "more": [1, "x", None]}))
        self.assertEqual([1, "x", None], got["more"])
        for name, value in values.items():
            self.assertEqual((value.shape, value.dtype), (got["values"][name].shape, value.dtype))
            self.assertEqual(hash_of([value]), hash_of([got["values"][name]]), name)

    def test_one_element_of_a_larger_tensor_is_packed_and_compared_whatever_its_stride(
        self,
    ) -> None:
        from basin.torch import raw
        from basin.torch.packing import pack, unpack

        for one in (torch.arange(6.0)[2:3:2], torch.tensor([2.0j]).conj().imag):
            self.assertEqual(one.tolist(), unpack(pack({"one": one}))["one"].tolist())
            self.assertTrue(raw.has_bits_of(one, torch.tensor(one.tolist())))
            self.assertFalse(raw.has_bits_of(one, torch.tensor([3.0])))

    def test_a_shared_tensor_stays_on_its_device(self) -> None:
        from basin.torch.packing import pack
        from basin.torch.shared import SharedValues

        state = SharedValues(there=torch.empty(3, device="meta"), here=torch.zeros(3))
        state.restore(pack({"there": torch.ones(3), "here": torch.ones(3), "new": torch.ones(3)}))
        self.assertEqual("meta", state.there.device.type)
        self.assertEqual([1.0] * 3, state.here.tolist())
        self.assertEqual([1.0] * 3, state.new.tolist())


if __name__ == "__main__":
    main()
