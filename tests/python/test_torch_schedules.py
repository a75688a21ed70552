# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""Random schedules of faults while workers share the epochs of an elastic sampler: each sample is
committed once in each epoch, all members end with the same parameters, bit for bit, and all
processes end.

A schedule follows from its seed, and each fault from an event: a step of its worker, a round, or
what the aggregator has said. Seeds are fresh; each is printed with the command that repeats it.

Usage: test_torch_schedules.py BASIND LIBBASIN [CLASS...]
       test_torch_schedules.py BASIND LIBBASIN schedules COUNT [FIRST_SEED]
"""

import contextlib
import faulthandler
import gc
import multiprocessing
import os
import random
import secrets
import shlex
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jobs import PATIENCE, Aggregator, Jobs, hear, main, make_events, require, say

require("numpy", "torch")
from test_torch_samples import NEVER, SamplesTest, Training, data, training  # noqa: E402
from torch_jobs import commits_refused, loss_of, model, session, sgd  # noqa: E402

KINDS = ("batches", "samples", "steps")
# Ends of a process. The worker that tells the time makes none of them, and is not evicted: if all
# members are lost, so is what they have trained.
KILLS = ("killed", "killed in backward")
ENDS = (*KILLS, "leaves")
OTHERS = ("stopped", "raises", "refused", "breaks", "evicted")
# A killed worker is missed soon; a live one that is evicted joins again. A job goes on without what
# dies while there is no aggregator.
LEASES = (
    "--worker-closed-lease=300ms",
    "--worker-lease=20s",
    "--recovery-window=5s",
    "--recovery-policy=any",
)


@dataclass
class Schedule:
    """What happens to the workers of one job.

    kind:    "steps" has a fixed global batch, of `batch` samples
    start:   how many workers it starts with; those of higher ranks join
    events:  by rank: what happens in which of its steps
    joins:   by rank: in which step of the worker that tells the time it is started
    tells:   the rank of that worker
    aborted: the number of the round before one that none commits
    restart: in which of its steps the aggregator is killed, and another one started
    """

    seed: int
    kind: str
    start: int
    samples: int
    batch: int
    processes: int
    events: dict[int, dict[int, str]] = field(default_factory=dict)
    joins: dict[int, int] = field(default_factory=dict)
    tells: int = 0
    aborted: int = NEVER
    restart: int = NEVER

    @property
    def workers(self) -> int:
        return self.start + len(self.joins)

    def with_event(self, kinds: tuple[str, ...]) -> list[int]:
        """The ranks to which one of these happens."""
        return [r for r in self.events if any(each in kinds for each in self.events[r].values())]

    @property
    def last(self) -> list[int]:
        """The ranks that are there at the end."""
        ending = self.with_event(ENDS)
        return [rank for rank in range(self.workers) if rank not in ending]


def schedule(seed: int) -> Schedule:
    draw = random.Random(seed)
    start = draw.randint(1, 3)
    workers = draw.randint(start, 4)
    made = Schedule(
        seed=seed,
        kind=draw.choice(KINDS),
        start=start,
        # Enough for all workers, each of which trains until its events have happened.
        samples=draw.randint(workers, 40),
        batch=draw.randint(workers, 8),
        processes=draw.choice((0, 0, 0, 2)),
        joins={rank: draw.randrange(8) for rank in range(start, workers)},
    )
    made.tells = draw.randrange(made.start)
    for rank in range(made.workers):
        steps = draw.sample(range(10), 4)
        others = OTHERS[:-1] if rank == made.tells else OTHERS
        mine = {step: draw.choice(others) for step in steps[: draw.randint(0, 3)]}
        if rank != made.tells and draw.random() < 0.4:
            # Nothing happens after it.
            end = max(steps)
            mine = {step: each for step, each in mine.items() if step < end}
            mine[end] = draw.choice(ENDS)
        made.events[rank] = mine
    if draw.random() < 0.3:
        made.aborted = draw.randrange(1, 8)
    if draw.random() < 0.3:
        made.restart = draw.randrange(8)
    return made


# What continues this process once it is stopped.
_CONTINUES = 'until grep -q "^State:.T" /proc/$1/status; do :; done; kill -CONT $1'


def stop_and_continue() -> None:
    me = os.getpid()
    with subprocess.Popen(["/bin/sh", "-c", _CONTINUES, "sh", str(me)]):
        os.kill(me, signal.SIGSTOP)


class Life:
    """One worker of a schedule. It trains until all that the schedule has has happened; the worker
    that tells the time says so in a round, as tokens, so that all see it in the same one."""

    def __init__(self, mine: Training, rank: int, folder: str, plan: Schedule) -> None:
        self.mine, self.plan, self.rank = mine, plan, rank
        self.folder = Path(folder)
        self.events = dict(plan.events[rank])
        self.tells = rank == plan.tells
        self.to_start = dict(plan.joins) if self.tells else {}
        self.to_restart = self.tells and plan.restart != NEVER
        self.steps = 0
        self.is_done = self.has_left = self.has_aborted = False
        self.raising = ""
        mine.data, mine.batch, mine.global_batch = data(plan.samples), plan.batch, plan.batch
        mine.sample(plan.kind)
        mine.on_round = self._on_round
        mine.net[0].weight.register_hook(self._in_backward)
        self.state = mine.bt.broadcast_state(epoch=0, end=NEVER, sampler=mine.sampler)

    def _on_round(self, info: Any) -> None:
        if info.spec.counts.tokens and self.state.end == NEVER:
            self.state.end = self.mine.sampler.epoch + 1

    def _in_backward(self, _: Any) -> None:
        raising, self.raising = self.raising, ""
        if raising == "raises":
            raise ZeroDivisionError
        if raising == "killed in backward":
            os.kill(os.getpid(), signal.SIGKILL)

    def run(self) -> bool:
        """Returns whether it is there at the end."""
        import basin

        state, mine = self.state, self.mine
        while state.epoch < state.end:
            mine.sampler.set_epoch(state.epoch)
            try:
                is_over = self._loop()
            except basin.Evicted:
                mine.bt.rejoin()
                mine.zero()
                continue
            if self.has_left:
                return False
            if is_over:
                state.epoch += 1
        return True

    def _loop(self) -> bool:
        """Goes through what is left of the epoch. Returns whether it is over."""
        for batch in self.mine.loader(self.plan.processes):
            event = self._event()
            if event == "leaves":
                self._say_done()
                self.has_left = True
                self.mine.bt.shutdown()
            if event in ("leaves", "breaks"):
                return False
            self._step(batch, event)
            if not (self.is_done or self.events or self.to_start or self.to_restart):
                self._say_done()
        return True

    def _say_done(self) -> None:
        """All has happened to this worker that should."""
        self.is_done = True
        say(self.folder / f"done-{self.rank}")

    def _event(self) -> str:
        """What happens in this step, before its backward."""
        step, self.steps = self.steps, self.steps + 1
        for rank, when in list(self.to_start.items()):
            if when <= step:
                del self.to_start[rank]
                say(self.folder / f"go-{rank}")
        if self.to_restart and step >= self.plan.restart:
            self.to_restart = False
            say(self.folder / "restart")
        if self.mine.rounds == self.plan.aborted and not self.has_aborted:
            self.has_aborted = True
            return "refused"
        due = [each for each in self.events if each <= step]
        event = self.events.pop(min(due)) if due else ""
        if event == "stopped":
            stop_and_continue()
        elif event == "evicted":
            self.mine.bt.context.current().client.worker.abandon()
        elif event in KILLS:
            self._say_done()
        if event == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        elif event in ("raises", "killed in backward"):
            self.raising = event
        return event

    def _step(self, batch: Any, event: str) -> None:
        import basin

        mine = self.mine
        mine.zero()
        is_last = self.tells and (self.folder / "finish").exists()
        mine.optimizer.contribute(tokens=int(is_last))
        try:
            with commits_refused() if event == "refused" else contextlib.nullcontext():
                mine.backward(batch)
        except basin.Evicted:
            raise
        except (basin.Error, ZeroDivisionError) as error:
            expected = isinstance(error, basin.RoundAborted) or event in ("refused", "raises")
            if not expected:
                raise
            if isinstance(error, basin.RoundAborted) or error.__cause__ is not None:
                mine.zero()  # No worker applies the round.
                return
            # Otherwise .grad has the result of the others.
        try:
            mine.optimizer.step()
        except (basin.RoundAborted, basin.FailedPrecondition):
            # A backward has failed, and the others had no result either.
            if event != "raises":
                raise
            mine.zero()


def live(rank: int, folder: str, plan: Schedule) -> Any:
    if rank in plan.joins:
        hear(Path(folder) / f"go-{rank}")
        os.environ["BASIN_FRESH"] = "false"  # The run is not new.
    faulthandler.dump_traceback_later(0.9 * PATIENCE)  # Where it hangs.
    try:
        with training(folder) as mine:
            life = Life(mine, rank, folder, plan)
            is_there = life.run()
            if not is_there:
                return None
            result = mine.parameters(), life.state.epoch
        gc.collect()
        # Also the processes of its loaders have ended.
        assert not multiprocessing.active_children(), multiprocessing.active_children()
        return result
    except BaseException:
        traceback.print_exc()  # The others may wait for this worker.
        raise
    finally:
        faulthandler.cancel_dump_traceback_later()


def joins_after_aborts(rank: int, folder: str) -> Any:
    """Rank 1 becomes a member with the verdict of an aborted round."""
    import basin

    if rank == 1:
        hear(Path(folder) / "go")
    with session() as bt:
        net = model()
        optimizer = sgd(net, bt)
        state = bt.State(net, optimizer)
        while state.step < 6:
            optimizer.zero_grad()
            refuses = rank == 0 and state.step == 3 and bt.size() == 1
            if refuses:
                say(Path(folder) / "go")
            try:
                with commits_refused() if refuses else contextlib.nullcontext():
                    loss_of(net, rank, state.step).backward()
            except basin.RoundAborted:
                assert refuses
                continue
            optimizer.step()
            state.step += 1
        return [p.detach().clone() for p in net.parameters()], optimizer.last_round().round


def fails_in_a_step(rank: int, folder: str) -> Any:
    """The backward of rank 0 fails in a step of a fixed global batch. Returns how often the round
    of a step was aborted."""
    import basin

    with training(folder) as mine:
        mine.sample("steps")
        failing = [rank == 0]

        def hook(_: Any) -> None:
            if failing[0] and mine.rounds == 2:
                failing[0] = False
                raise ZeroDivisionError

        mine.net[0].weight.register_hook(hook)
        aborted = 0
        for batch in mine.loader(0):
            mine.zero()
            try:
                with contextlib.suppress(ZeroDivisionError):
                    mine.backward(batch)
                mine.optimizer.step()
            except basin.RoundAborted as error:
                assert error.step_again
                aborted += 1
        return mine.parameters(), aborted


class EndingJobs(Jobs):
    """Jobs whose processes have to end by themselves, when they are asked to."""

    def end_processes(self) -> None:
        living = [each.process for each in self._processes if each.process.is_alive()]
        for each in self._processes:
            if each.process.is_alive():
                each.connection.send(None)
        for process in living:
            process.join(PATIENCE)
        codes = [process.exitcode for process in living]
        super().end_processes()
        assert not any(code != 0 for code in codes), f"processes did not end well: {codes}"


class SchedulesTest(SamplesTest):
    def setUp(self) -> None:
        super().setUp()
        self.own = EndingJobs(Path(sys.argv[1]), Path(sys.argv[2]), *LEASES)
        self.addCleanup(lambda: self.own.close())

    def _restart(self, folder: Path, over: threading.Event) -> None:
        hear(folder / "restart")
        if not over.is_set():
            address = self.own.aggregator.address
            self.own.aggregator.close()
            self.own.aggregator = Aggregator(Path(sys.argv[1]), *LEASES, listen=address)

    def _finish(self, folder: Path, plan: Schedule, over: threading.Event) -> None:
        for rank in range(plan.workers):
            hear(folder / f"done-{rank}")
        if not over.is_set():
            (folder / "finish").touch()

    @contextlib.contextmanager
    def _driven(self, folder: Path, plan: Schedule) -> Iterator[None]:
        names = ["restart"]
        names += [f"{what}-{rank}" for rank in range(plan.workers) for what in ("go", "done")]
        with contextlib.ExitStack() as kept:
            make_events(str(folder), names, kept)
            over = threading.Event()
            threads = [
                threading.Thread(target=self._restart, args=(folder, over)),
                threading.Thread(target=self._finish, args=(folder, plan, over)),
            ]
            for thread in threads:
                thread.start()
            try:
                yield
            finally:
                over.set()
                for name in names:
                    say(folder / name)
                for thread in threads:
                    thread.join()

    @contextlib.contextmanager
    def _log_if_it_fails(self) -> Iterator[None]:
        try:
            yield
        except BaseException:
            print(
                "the log of the aggregator ends with:", *self.own.aggregator.lines[-50:], sep="\n"
            )
            raise

    def check(self, plan: Schedule) -> None:
        folder = self.new_folder()
        with self._driven(Path(folder), plan), self._log_if_it_fails():
            results = self.own.run(
                live,
                plan.workers,
                folder,
                plan,
                mortal=plan.with_event(KILLS),
                BASIN_START_WORKERS=str(plan.start),
                BASIN_MIN_WORKERS="1",
            )
            self.own.end_processes()
        parameters, ends = zip(*(results[rank] for rank in plan.last))
        self.assertEqual(1, len(set(ends)), ends)
        self.assert_same_bits(list(parameters))
        used = self.used(folder)
        self.assert_each_once(used, range(ends[0]), plan.samples)
        self.assert_as_one_process(parameters[0], used, plan.samples)
        if plan.kind == "steps":
            self.assert_steps(folder, ends[0], plan.samples, plan.batch)


class Restarts(SchedulesTest):
    """The aggregator is killed in the middle of an epoch, and another one takes its place."""

    def check_restart(self, processes: int) -> None:
        for kind in KINDS:
            with self.subTest(kind=kind, processes=processes):
                events: dict[int, dict[int, str]] = {rank: {} for rank in range(3)}
                plan = Schedule(0, kind, 2, 30, 4, processes, events, joins={2: 1}, restart=2)
                self.check(plan)

    def test_in_mid_epoch(self) -> None:
        self.check_restart(0)

    def test_in_mid_epoch_with_loader_processes(self) -> None:
        self.check_restart(2)


class Found(SchedulesTest):
    """Schedules that have failed."""

    def test_a_batch_that_comes_again_after_a_short_one(self) -> None:
        plan = Schedule(0, "samples", 1, 36, 8, 2, {0: {0: "refused", 7: "breaks"}})
        self.check(plan)

    def test_a_worker_without_samples_commits_no_step_alone(self) -> None:
        """The last step has one sample, and the worker that has it is not counted at first."""
        plan = Schedule(0, "steps", 2, 7, 2, 0, {0: {}, 1: {3: "refused"}}, aborted=3)
        self.check(plan)

    def test_a_step_after_a_failed_backward_begins_no_other_round(self) -> None:
        folder = self.new_folder()
        parameters, aborted = zip(*self.own.run(fails_in_a_step, 2, folder))
        self.assertEqual((1, 1), aborted)
        self.assert_same_bits(list(parameters))
        self.assert_steps(folder, 1)

    def test_a_joiner_after_aborted_rounds(self) -> None:
        folder = self.new_folder()
        with contextlib.ExitStack() as kept:
            make_events(folder, ["go"], kept)
            results = self.own.run(
                joins_after_aborts,
                2,
                folder,
                BASIN_START_WORKERS="1",
                BASIN_MIN_WORKERS="1",
            )
        parameters, rounds = zip(*results)
        self.assert_same_bits(list(parameters))
        self.assertEqual(1, len(set(rounds)))
        self.assertLess(6, rounds[0], "no round was aborted")


class Schedules(SchedulesTest):
    count, first_seed = 1, 0

    def test_random_schedules(self) -> None:
        for seed in range(self.first_seed, self.first_seed + self.count):
            with self.subTest(seed=seed):
                program = [sys.executable, *sys.argv[:3], "schedules", "1", str(seed)]
                plan = schedule(seed)
                print(f"{plan}\nrepeat it: {shlex.join(program)}", flush=True)
                began = time.monotonic()
                self.check(plan)
                print(f"seed {seed}: {time.monotonic() - began:.1f} s", flush=True)


if __name__ == "__main__":
    if sys.argv[3:4] == ["schedules"]:
        Schedules.count = int(sys.argv[4])
        # It has 31 bits, so that the one after it is a seed as well.
        Schedules.first_seed = int(sys.argv[5]) if len(sys.argv) > 5 else secrets.randbits(31)
        sys.argv[3:] = ["Schedules"]
    main()
