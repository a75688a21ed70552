# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""Does one fault to a training, and observes what it costs."""

import contextlib
import dataclasses
import functools
import itertools
import math
import os
import random
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

import account
from account import History
from results import Key, Measured, Run
from systems import SYSTEMS, WORKERS, Conditions, System

STEPS_BEFORE = 20  # What is measured of the undisturbed training.
STEPS_OF_A_JOINER = 2
START_LIMIT = 180  # Seconds.
KILL_EVERY = 15  # Seconds, in a storm.
SIGNALS = {"kill": signal.SIGKILL, "stop": signal.SIGSTOP, "term": signal.SIGTERM}
ALL = range(WORKERS)
VICTIM = WORKERS - 1
OTHERS = range(VICTIM)


@dataclass(frozen=True)
class Limits:
    """Seconds.

    recovery: after which a training is taken not to recover
    storm:    of kills
    """

    recovery: float
    storm: float


class DidNotStart(Exception):
    """With the reason, and what the processes have printed."""


@contextlib.contextmanager
def training(name: str, conditions: Conditions, workers: int) -> Iterator[System]:
    """A system whose workers all train."""

    def all_train(history: History) -> bool:
        return all(
            len(history.of[worker]) > STEPS_BEFORE and len(history.steps_of(worker)) > STEPS_BEFORE
            for worker in range(workers)
        )

    with tempfile.TemporaryDirectory(prefix="peers-") as folder:
        system = SYSTEMS[name](conditions, Path(folder), workers)
        try:
            if not system.wait(all_train, START_LIMIT):
                why = _note(system) or f"not all trained within {START_LIMIT} s"
                raise DidNotStart(f"{why}\n{system.outputs()}")
            yield system
        finally:
            system.end()


def run(key: Key, conditions: Conditions, limits: Limits, keep: Path | None = None) -> Run:
    """Raises DidNotStart.

    keep: a folder that gets the log and what the processes have printed
    """
    load = os.getloadavg()[0]
    begun = time.monotonic()
    workers = VICTIM if key.fault == "join" else WORKERS
    with training(key.system, conditions, workers) as system:
        step = account.median_step(system.history, 0, STEPS_BEFORE)
        threading.Event().wait(random.uniform(0, step))  # A random moment of a step.
        measured = _MEASURES[key.fault](system, step, limits)
        if keep:
            system.copy_to(keep / f"{key.fault}-{key.system}-{key.settings}-{int(begun)}")
    return Run(
        key=key,
        conditions=conditions_of(conditions, limits),
        measured=measured,
        step=step,
        load=load,
        took=time.monotonic() - begun,
    )


def _signal(kind: signal.Signals, system: System, step: float, limits: Limits) -> Measured:
    process = system.history.processes[VICTIM]
    fault = time.monotonic()
    system.signal_worker(VICTIM, kind)
    recovered = system.wait(
        lambda history: account.has_resumed(history, OTHERS, fault),
        limits.recovery,
        may_end=[system.process_of(VICTIM)],
    )
    is_gone = system.history.processes[VICTIM] == process
    return _cost(system, OTHERS, fault, step, recovered, gone=[VICTIM] if is_gone else [])


def _coordinator(system: System, step: float, limits: Limits) -> Measured:
    fault = time.monotonic()
    system.kill_coordinator()
    recovered = system.wait(
        lambda history: account.has_resumed(history, ALL, fault), limits.recovery, restart=True
    )
    return _cost(system, ALL, fault, step, recovered)


def _cost(
    system: System,
    survivors: Collection[int],
    fault: float,
    step: float,
    recovered: bool,
    gone: Collection[int] = (),
) -> Measured:
    if not recovered:
        return _never(system)
    cost = account.cost_of_a_fault(system.history, survivors, fault, step)
    measured = Measured(recovered=True, pause=cost.pause, delay=cost.delay)
    return _with_losses(measured, system.history, survivors, fault, gone)


def _join(system: System, step: float, limits: Limits) -> Measured:
    begun = time.monotonic()
    system.start_worker(VICTIM)

    def has_joined(history: History) -> bool:
        steps = history.steps_after(VICTIM, begun)[:STEPS_OF_A_JOINER]
        return len(steps) == STEPS_OF_A_JOINER and all(
            account.reached(history, worker, math.inf) > steps[-1].step for worker in OTHERS
        )

    if not system.wait(has_joined, START_LIMIT + limits.recovery):  # It has to start first.
        return _never(system)
    joined = system.history.steps_after(VICTIM, begun)[STEPS_OF_A_JOINER - 1].ended
    cost = account.cost_of_a_join(system.history, OTHERS, begun, joined, step)
    measured = Measured(recovered=True, pause=cost.pause, delay=cost.delay)
    return _with_losses(measured, system.history, OTHERS, begun)


def _storm(system: System, step: float, limits: Limits) -> Measured:
    """What was killed is started again at once, here if the system does not do it."""
    history = system.history
    begun = time.monotonic()
    end = begun + limits.storm
    for number in itertools.count(1):
        kill_at = begun + number * KILL_EVERY
        system.wait(lambda _: False, min(kill_at, end) - time.monotonic(), restart=True)
        if kill_at >= end:
            break
        system.signal_worker(number % WORKERS, signal.SIGKILL)
    recovered = system.wait(
        lambda history: account.has_resumed(history, ALL, end), limits.recovery, restart=True
    )
    samples = history.of[0][0].samples * WORKERS
    goodput = account.goodput(history, begun, end, samples / step)
    measured = Measured(
        recovered=recovered,
        goodput=goodput.share,
        steps=goodput.steps,
        note="" if recovered else _note(system),
    )
    return _with_losses(measured, history, ALL, begun)


_MEASURES: dict[str, Callable[[System, float, Limits], Measured]] = {
    **{name: functools.partial(_signal, kind) for name, kind in SIGNALS.items()},
    "join": _join,
    "coordinator": _coordinator,
    "storm": _storm,
}
FAULTS = tuple(_MEASURES)


def _with_losses(
    measured: Measured,
    history: History,
    survivors: Collection[int],
    since: float,
    gone: Collection[int] = (),
) -> Measured:
    lost = account.lost_attempts(history, since, gone)
    return dataclasses.replace(
        measured,
        again=max(sum(each.worker == worker for each in lost) for worker in survivors),
        samples=sum(each.samples for each in lost),
    )


def _never(system: System) -> Measured:
    return Measured(recovered=False, note=_note(system))


def _note(system: System) -> str:
    ended = system.ended()
    return f"{', '.join(ended)} ended" if ended else ""


def conditions_of(conditions: Conditions, limits: Limits) -> dict[str, float]:
    return {
        "step": conditions.step,
        "limit": limits.recovery,
        "storm": limits.storm,
    }
