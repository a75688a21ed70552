#!/usr/bin/env python3
# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""What the death of a worker costs the others: the time from kill -9 of one PyTorch worker until
all others have ended their next step, without the median step. With --joins, what a worker costs
the others that joins late: their longest step from the start of its process to its second step.

All options of basind and of the client have their defaults, if no other is given. A worker is
killed at a random moment of a step.

examples:
  loss.py --build build/release
  loss.py --build build/release --workers 4 --kills 10
  loss.py --joins 3 --workers 3 --megabytes 200
"""

import argparse
import itertools
import os
import random
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "allreduce"))
from allreduce import running_basind

WORKER = Path(__file__).resolve().parent / "loss_worker.py"
STEPS_BEFORE = 20


class Worker:
    """A trainer of its own; knows when each of its steps ended, on the machine's steady clock.

    numbers: the arguments of loss_worker.py after the address
    """

    def __init__(self, build: Path, address: str, *numbers: int) -> None:
        self.ends: list[float] = []
        self.process = subprocess.Popen(
            [sys.executable, str(WORKER), address, *map(str, numbers)],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "BASIN_LIBRARY": str(build / "client" / "c" / "libbasin.so.2")},
        )
        self._changed = threading.Condition()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if not line.startswith("step "):
                continue
            with self._changed:
                self.ends.append(float(line.split()[1]))
                self._changed.notify_all()
        with self._changed:
            self._changed.notify_all()

    def wait(self, steps: int) -> None:
        """Until so many steps have ended."""
        with self._changed:
            alive = self._changed.wait_for(
                lambda: len(self.ends) >= steps or not self._reader.is_alive(), timeout=120
            )
        if not alive or len(self.ends) < steps:
            raise SystemExit(f"loss: a worker ended, or made no step: {self.process.args!r}")

    def first_after(self, moment: float) -> float:
        """When its first step ended that ended after this moment."""
        while True:
            for end in self.ends:
                if end > moment:
                    return end
            self.wait(len(self.ends) + 1)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        self._reader.join()


def cost(build: Path, workers: int, arguments: list[str]) -> tuple[float, float]:
    """Seconds of the median step, and from the kill to the next step of all others without it."""
    with running_basind(build, *arguments) as (_, address):
        trainers = [Worker(build, address, rank, workers, workers, 0, 0) for rank in range(workers)]
        try:
            for trainer in trainers:
                trainer.wait(STEPS_BEFORE)
            ends = trainers[0].ends[-STEPS_BEFORE:]
            step = statistics.median(b - a for a, b in itertools.pairwise(ends))
            threading.Event().wait(random.uniform(0, step))  # A random moment of a step.
            killed = time.monotonic()
            trainers[-1].kill()
            after = max(trainer.first_after(killed) for trainer in trainers[:-1])
            return step, after - killed - step
        finally:
            for trainer in trainers:
                trainer.kill()


def cost_of_a_join(
    options: argparse.Namespace, build: Path, arguments: list[str]
) -> tuple[float, float]:
    """Seconds of the median step before it, and of the longest one during it."""
    with running_basind(build, *arguments) as (_, address):
        workers, start = options.workers, options.workers - 1
        trainers = [
            Worker(build, address, rank, workers, start, options.megabytes, 0)
            for rank in range(start)
        ]
        try:
            for trainer in trainers:
                trainer.wait(STEPS_BEFORE)
            ends = trainers[0].ends[-STEPS_BEFORE:]
            step = statistics.median(b - a for a, b in itertools.pairwise(ends))
            began = time.monotonic()
            joiner = Worker(
                build, address, start, workers, start, options.megabytes, options.prepare
            )
            trainers.append(joiner)
            joiner.wait(2)
            joined = joiner.ends[1]
            for trainer in trainers[:-1]:
                trainer.first_after(joined)
            return step, max(
                b - a
                for trainer in trainers[:-1]
                for a, b in itertools.pairwise(trainer.ends)
                if b > began and a < joined
            )
        finally:
            for trainer in trainers:
                trainer.kill()


def report_joins(options: argparse.Namespace, build: Path, arguments: list[str]) -> None:
    runs = [cost_of_a_join(options, build, arguments) for _ in range(options.joins)]
    longest = sorted(longest for _, longest in runs)
    print("| workers | MB | s of preparation | ms per step | longest, median | most |")
    print("|---|---|---|---|---|---|")
    print(
        f"| {options.workers} | {options.megabytes} | {options.prepare} "
        f"| {statistics.median(step for step, _ in runs) * 1e3:.0f} "
        f"| {statistics.median(longest) * 1e3:.0f} | {longest[-1] * 1e3:.0f} |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--build", type=Path, default=Path("build/release"))
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--kills", type=int, default=5)
    parser.add_argument("--joins", type=int, default=0, help="measure joins instead, so many")
    parser.add_argument(
        "--megabytes", type=int, default=200, help="the model of a worker that joins"
    )
    parser.add_argument(
        "--prepare", type=int, default=5, help="seconds between its init() and its model"
    )
    parser.add_argument("--basind", default="", help="flags for it, by spaces")
    options = parser.parse_args()
    build, arguments = options.build.resolve(), options.basind.split()
    if options.joins > 0:
        return report_joins(options, build, arguments)
    runs = [cost(build, options.workers, arguments) for _ in range(options.kills)]
    step = statistics.median(step for step, _ in runs)
    costs = sorted(cost for _, cost in runs)
    print("| workers | ms per step | ms lost, median | most |")
    print("|---|---|---|---|")
    print(
        f"| {options.workers} | {step * 1e3:.0f} | {statistics.median(costs) * 1e3:.0f} "
        f"| {costs[-1] * 1e3:.0f} |"
    )


if __name__ == "__main__":
    main()
