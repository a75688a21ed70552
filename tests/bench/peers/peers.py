#!/usr/bin/env python3
# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""What a fault costs a training of four workers: Basin beside TorchElastic and torchft.

Each run starts the system anew, waits until all workers train, does one fault, and waits until all
survivors have made their next step, beyond the step at which the fault found them.

  kill         kill -9 of one worker
  stop         SIGSTOP of one worker, which stays stopped
  term         SIGTERM of one worker
  join         one more worker starts while three train
  coordinator  kill -9 of what coordinates, which is started again at once: basind, the lighthouse
               of torchft, the agent of torchrun

Printed for each: the seconds to the next step of all survivors without a median step (for a join:
the longest step of the others while it joins), as median and most of the runs; the steps that were
made again or discarded by a survivor; and the runs in which a survivor made no step within --limit.
With --storm one worker is killed every 15 s for so many seconds, and started again where the system
does not do it itself; goodput is the share of the steps that it would have made undisturbed.

Systems. basin: basind and basin.torch with all defaults, and min_workers=1. torchelastic: torchrun
with DistributedDataParallel on Gloo and a checkpoint in each step; no worker can join. torchft:
replica groups of one process, Gloo, and the lighthouse as in its README. --tuned: their shortest
sensible timeouts instead (Gloo and torchft 5 s, heartbeats of the lighthouse 1 s, its join 1 s;
silent workers of Basin 1.5 s).

torchft must be in the Python that runs this (pip install torchft); without it, it is left out, and
said. Horovod does not build with the PyTorch of today, and is left out.

examples:
  peers.py --build build/release
  peers.py --build build/release --runs 20 --tuned
  peers.py --build build/release --systems basin,torchft --faults kill,stop
  peers.py --build build/release --storm 300
"""

import argparse
import contextlib
import importlib.util
import itertools
import os
import random
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

TRAINER = Path(__file__).resolve().parent / "trainer.py"
WORKERS = 4
STEPS_BEFORE = 20
FAULTS = ("kill", "stop", "term", "join", "coordinator")
LOOK_EVERY = 0.02  # Seconds between two looks at the log.


@dataclass
class Line:
    what: str  # "step", or "discarded".
    rank: int
    process: int
    step: int
    end: float


class System:
    """One system in a folder of its own.

    spare: how many of its workers do not start with it
    """

    def __init__(self, options: argparse.Namespace, folder: Path, spare: int) -> None:
        self.options = options
        self.folder = folder
        self.start_with = WORKERS - spare
        self.log = folder / "log"
        self.log.touch()
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.port = free_port()
        self.coordinator_starts()
        for rank in range(self.start_with):
            self.start_worker(rank)

    # ---- what differs

    def coordinator_starts(self) -> None: ...

    def command(self, rank: int) -> list[str]:
        return [sys.executable, str(TRAINER), self.name(), str(rank), str(self.log)]

    def environment(self) -> dict[str, str]:
        return {}

    def kill_coordinator(self) -> None:
        self.processes["coordinator"].kill()
        self.processes["coordinator"].wait()
        self.coordinator_starts()

    def restarts_workers(self) -> bool:
        """Whether it starts a worker that was killed again by itself."""
        return False

    # ---- the same for all

    @classmethod
    def name(cls) -> str:
        return cls.__name__.lower()

    @property
    def patience(self) -> float:
        """Seconds after which a collective of Gloo fails; otherwise the default of the system."""
        return 5 if self.options.tuned else 60 if self.name() == "torchft" else 1800

    def start(self, key: str, command: list[str], **environment: str) -> None:
        output = (self.folder / f"{key}.txt").open("ab")
        self.processes[key] = subprocess.Popen(
            command,
            stdout=output,
            stderr=output,
            env={
                **os.environ,
                "WORKERS": str(WORKERS),
                "PATIENCE": str(self.patience),
                "PYTHONWARNINGS": "ignore",
                **environment,
            },
            start_new_session=True,
        )
        output.close()

    def start_worker(self, rank: int) -> None:
        self.start(f"worker-{rank}", self.command(rank), **self.environment())

    def lines(self) -> list[Line]:
        lines = []
        for text in self.log.read_text().splitlines():
            what, rank, process, step, end = text.split()
            lines.append(Line(what, int(rank), int(process), int(step), float(end)))
        return lines

    def wait(self, until: Callable[[list[Line]], bool], seconds: float) -> bool:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if until(self.lines()):
                return True
            threading.Event().wait(LOOK_EVERY)
        return False

    def has_ended(self) -> bool:
        """Whether one of its processes has ended."""
        return any(process.poll() is not None for process in self.processes.values())

    def end(self) -> None:
        for process in self.processes.values():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        for line in self.lines():  # Children of torchrun have sessions of their own.
            with contextlib.suppress(ProcessLookupError):
                os.kill(line.process, signal.SIGKILL)


class Basin(System):
    def coordinator_starts(self) -> None:
        options = ["--worker-lease=1.5s"] if self.options.tuned else []
        self.start(
            "coordinator",
            [
                str(self.options.build / "aggregator" / "basind" / "basind"),
                "serve",
                f"--grpc-listen=127.0.0.1:{self.port}",
                "--admin-listen=none",
                "--http-listen=none",
                *options,
            ],
            TMPDIR=str(self.folder),
        )

    def environment(self) -> dict[str, str]:
        return {
            "BASIN_ADDRESS": f"127.0.0.1:{self.port}",
            "BASIN_START": str(self.start_with),
            "BASIN_LIBRARY": str(self.options.build / "client" / "c" / "libbasin.so.2"),
        }


class TorchElastic(System):
    """One agent has all workers, because agents of one worker each kept restarting each other's
    workers after a kill. So no worker can join."""

    def coordinator_starts(self) -> None:
        self.start(
            "coordinator",
            [
                sys.executable,
                "-m",
                "torch.distributed.run",
                "--standalone",
                f"--nproc-per-node={WORKERS}",
                "--max-restarts=1000",
                *self.command(0)[1:],
            ],
            CHECKPOINTS=str(self.folder),
            OMP_NUM_THREADS="1",
        )

    def start_worker(self, rank: int) -> None:
        """The agent starts them."""

    def restarts_workers(self) -> bool:
        return True


class TorchFT(System):
    def coordinator_starts(self) -> None:
        heartbeats, joins = ("1000", "1000") if self.options.tuned else ("5000", "10000")
        program = shutil.which("torchft_lighthouse", path=str(Path(sys.executable).parent))
        assert program is not None
        self.start(
            "coordinator",
            [
                program,
                "--min_replicas=1",
                "--quorum_tick_ms=100",
                f"--heartbeat_timeout_ms={heartbeats}",
                f"--join_timeout_ms={joins}",
                f"--bind=[::]:{self.port}",
            ],
        )

    def environment(self) -> dict[str, str]:
        return {"TORCHFT_LIGHTHOUSE": f"http://localhost:{self.port}"}


SYSTEMS: dict[str, type[System]] = {each.name(): each for each in (Basin, TorchElastic, TorchFT)}


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


@dataclass
class Cost:
    seconds: float | None  # None: a survivor made no step.
    again: int = 0  # Steps that a survivor made again, or discarded.


@contextlib.contextmanager
def training(options: argparse.Namespace, name: str, spare: int = 0) -> Iterator[System]:
    """A system whose workers all train."""
    with tempfile.TemporaryDirectory() as folder:
        system = SYSTEMS[name](options, Path(folder), spare)
        try:
            ranks = range(system.start_with)

            def all_train(lines: list[Line]) -> bool:
                return all(sum(line.rank == r for line in lines) > STEPS_BEFORE for r in ranks)

            def over(lines: list[Line]) -> bool:
                return system.has_ended() or all_train(lines)

            if not system.wait(over, 180) or system.has_ended():
                texts = "\n".join(p.read_text()[-2000:] for p in Path(folder).glob("*.txt"))
                raise SystemExit(f"peers: {name} did not start to train:\n{texts}")
            yield system
        finally:
            system.end()


def median_step(lines: list[Line], rank: int) -> float:
    ends = [line.end for line in lines if line.rank == rank][-STEPS_BEFORE:]
    return statistics.median(b - a for a, b in itertools.pairwise(ends))


def cost_of(options: argparse.Namespace, name: str, fault: str) -> Cost:
    if fault == "join":
        if name == "torchelastic":
            return Cost(None)
        return cost_of_a_join(options, name)
    with training(options, name) as system:
        lines = system.lines()
        step = median_step(lines, 0)
        threading.Event().wait(random.uniform(0, step))  # A random moment of a step.
        victim = WORKERS - 1
        survivors = range(WORKERS) if fault == "coordinator" else range(victim)
        process = [line.process for line in lines if line.rank == victim][-1]
        begun = time.monotonic()
        if fault == "coordinator":
            system.kill_coordinator()
        else:
            kinds = {"kill": signal.SIGKILL, "stop": signal.SIGSTOP, "term": signal.SIGTERM}
            os.kill(process, kinds[fault])
        reached = max(line.step for line in system.lines() if line.end <= begun)

        def ends_of_next(lines: list[Line]) -> list[float]:
            """When each survivor ended its first step beyond those at the fault."""
            firsts: dict[int, float] = {}
            for line in lines:
                if line.end > begun and line.what == "step" and line.step > reached + 1:
                    firsts.setdefault(line.rank, line.end)
            return [firsts[rank] for rank in survivors if rank in firsts]

        if not system.wait(lambda lines: len(ends_of_next(lines)) == len(survivors), options.limit):
            return Cost(None)
        lines = system.lines()
        again = max(
            sum(
                line.rank == rank
                and line.end > begun
                and (line.what == "discarded" or line.step <= reached - 1)
                for line in lines
            )
            for rank in survivors
        )
        return Cost(max(0.0, max(ends_of_next(lines)) - begun - 2 * step), again)


def cost_of_a_join(options: argparse.Namespace, name: str) -> Cost:
    with training(options, name, spare=1) as system:
        begun = time.monotonic()
        joiner = WORKERS - 1
        system.start_worker(joiner)
        others = range(joiner)
        if not system.wait(
            lambda lines: sum(line.rank == joiner for line in lines) >= 2, options.limit
        ):
            return Cost(None)
        joined = [line.end for line in system.lines() if line.rank == joiner][1]
        if not system.wait(
            lambda lines: all(any(x.rank == r and x.end > joined for x in lines) for r in others),
            options.limit,
        ):
            return Cost(None)
        lines = system.lines()
        longest, again = 0.0, 0
        for rank in others:
            mine = [line for line in lines if line.rank == rank]
            for a, b in itertools.pairwise(mine):
                if b.end > begun and a.end < joined:
                    longest = max(longest, b.end - a.end)
            again = max(again, len(mine) - len({line.step for line in mine}))
        return Cost(longest, again)


def goodput(options: argparse.Namespace, name: str) -> float | None:
    """The share of the steps that the workers would have made in a storm of kills."""
    with training(options, name) as system:
        step = median_step(system.lines(), 0)
        first = max(line.step for line in system.lines())
        begun = time.monotonic()
        for number in itertools.count():
            left = begun + options.storm - time.monotonic()
            if left <= 0:
                break
            threading.Event().wait(min(15, left))
            if time.monotonic() - begun >= options.storm:
                break
            rank = number % WORKERS
            process = [line.process for line in system.lines() if line.rank == rank][-1]
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
            if not system.restarts_workers():
                system.processes[f"worker-{rank}"].wait()
                system.start_worker(rank)
        last = max(line.step for line in system.lines())
        return (last - first) * step / (time.monotonic() - begun)


def report(name: str, fault: str, costs: list[Cost]) -> None:
    known = sorted(cost.seconds for cost in costs if cost.seconds is not None)
    median = f"{statistics.median(known):.2f}" if known else "-"
    most = f"{known[-1]:.2f}" if known else "-"
    again = max((cost.again for cost in costs if cost.seconds is not None), default=0)
    never = len(costs) - len(known)
    cells = (f"{fault:11}", f"{name:12}", f"{median:>6}", f"{most:>6}", f"{again:5}")
    print(f"| {' | '.join(cells)} | {never} of {len(costs)} |", flush=True)


def listed(known: tuple[str, ...]) -> Callable[[str], list[str]]:
    def parse(text: str) -> list[str]:
        names = text.split(",")
        if unknown := set(names) - set(known):
            raise argparse.ArgumentTypeError(
                f"{', '.join(sorted(unknown))} is not known; choose from {', '.join(known)}"
            )
        return names

    return parse


def main() -> None:
    assert __doc__ is not None
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--build", type=Path, required=True, help="the folder of a build of Basin")
    parser.add_argument("--systems", type=listed(tuple(SYSTEMS)), default=list(SYSTEMS))
    parser.add_argument("--faults", type=listed(FAULTS), default=list(FAULTS))
    parser.add_argument("--runs", type=int, default=3, help="of each fault (default: 3)")
    parser.add_argument("--limit", type=float, default=120, help="seconds (default: 120)")
    parser.add_argument("--tuned", action="store_true", help="with the shortest timeouts")
    parser.add_argument("--storm", type=float, metavar="SECONDS", help="only this; see above")
    options = parser.parse_args()
    options.build = options.build.resolve()
    systems = options.systems
    if "torchft" in systems and importlib.util.find_spec("torchft") is None:
        print("torchft is not installed (pip install torchft), and is left out.")
        systems = [name for name in systems if name != "torchft"]
    if options.storm:
        print("| system       | goodput |\n|---|---|")
        for name in systems:
            print(f"| {name:12} | {goodput(options, name):.2f} |", flush=True)
        return
    print("| fault       | system       | median | most   | again | never |")
    print("|---|---|---|---|---|---|")
    for fault in options.faults:
        costs: dict[str, list[Cost]] = defaultdict(list)
        for _, name in itertools.product(range(options.runs), systems):
            costs[name].append(cost_of(options, name, fault))
        for name in systems:
            report(name, fault, costs[name])


if __name__ == "__main__":
    main()
