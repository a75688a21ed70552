# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""Trainings of the digits example with one random fault after another, for the given time: workers
are killed, stopped, added and told to leave, and the aggregator is restarted.

Usage: test_soak_digits.py BASIND LIBBASIN SECONDS [SEED]

Each training prints its seed, which draws the faults; with SEED, only that one runs.
"""

import json
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from jobs import PATIENCE, Aggregator, environment, require

SAMPLES = 1437  # For training.
EPOCHS = 30
PACE_MS = 30
FIRST = 3
MOST = 5
LEASE = 3.0
# One process with random batches of 1 to 160 has 90.8 to 98.6 % in its last ten epochs of 30.
WANTED_ACCURACY = 0.9
# What the allocator keeps may vary by this.
SLACK_BYTES = 24 << 20


class Worker:
    """A process, and how far it says that it has come."""

    def __init__(self, name: str, address: str, job: str, folder: str, news: threading.Condition):
        self.name = name
        self.steps = self.epoch = 0
        self.is_ready = self.is_calm = self.has_ended = False
        self.end = ""  # Its hash and accuracy.
        self._news = news
        self.errors = open(f"{folder}.{name}.err", "a+")  # noqa: SIM115 - open to the end
        self.process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("soak_trainer.py")), folder,
             str(EPOCHS), str(PACE_MS)],
            env=environment(
                BASIN_ADDRESS=address, BASIN_JOB=job, BASIN_WORKER_ID=name, BASIN_MIN_WORKERS="1",
                BASIN_START_WORKERS=str(FIRST), BASIN_MAX_WORKERS=str(MOST + 1),
            ),
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors, text=True,
        )  # fmt: skip
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as lines:
            for line in lines:
                what, *words = line.split()
                with self._news:
                    if what == "step":
                        self.steps, self.epoch = self.steps + 1, int(words[0])
                    elif what == "end":
                        self.end = " ".join(words)
                    self.is_ready = True
                    self.is_calm = self.is_calm or what == "calm"
                    self._news.notify_all()
        self.process.wait()
        with self._news:
            self.has_ended = True
            self._news.notify_all()

    @property
    def was_evicted(self) -> bool:
        return self.has_ended and "basin.errors.Evicted" in self.said()

    def said(self) -> str:
        self.errors.seek(0)
        return self.errors.read()

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.kill()
        self.process.wait()
        self.process.stdin.close()
        self.errors.close()


class Soak(unittest.TestCase):
    seconds = 60.0
    seed: int | None = None

    def setUp(self) -> None:
        self.folder = self.enterContext(tempfile.TemporaryDirectory())
        self.news = threading.Condition()
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.address = f"127.0.0.1:{free.getsockname()[1]}"
        self.serve()
        self.addCleanup(lambda: self.aggregator.close())
        self.workers: list[Worker] = []
        self.addCleanup(self.end_workers)

    def serve(self) -> None:
        self.aggregator = Aggregator(
            Path(sys.argv[1]),
            "--recovery-window=3s",
            listen=self.address,
            http="127.0.0.1:0",
            leases=(f"--worker-lease={LEASE}s", "--worker-closed-lease=1s"),
        )

    def end_workers(self) -> None:
        for worker in self.workers:
            worker.close()

    def test_trainings_end_as_without_faults(self) -> None:
        first_seed = int(time.time()) if self.seed is None else self.seed
        trainings, began = 0, time.monotonic()
        usage = []
        while trainings == 0 or (self.seed is None and time.monotonic() - began < self.seconds):
            # In the second half, the aggregator lives on, so that its growth can be seen.
            restarts = time.monotonic() - began < self.seconds / 2
            self.train(first_seed + trainings, restarts)
            if not restarts:
                usage.append(self.usage())
            trainings += 1
        if len(usage) < 2:
            print("the aggregator's growth was not compared: it takes more time", flush=True)
            return
        limits = zip(
            ("bytes", "descriptors", "series"), (SLACK_BYTES, 4, 0), *usage[:: len(usage) - 1]
        )
        for what, slack, early, late in limits:
            self.assertLessEqual(late, early + slack, f"{what} of basind: {usage}")

    def usage(self) -> tuple[int, int, int]:
        """The memory, the descriptors and the metric series of the aggregator."""
        process = self.aggregator.process.pid
        status = Path(f"/proc/{process}/status").read_text()
        kib = int(status.split("VmRSS:")[1].split()[0])
        with urllib.request.urlopen(f"http://{self.aggregator.metrics}/metrics") as page:
            lines = page.read().decode().splitlines()
        series = sum(not line.startswith("#") for line in lines)
        return kib << 10, len(os.listdir(f"/proc/{process}/fd")), series

    def train(self, seed: int, restarts: bool) -> None:
        self.random = random.Random(seed)
        self.happened: list[str] = []
        self.job = "digits"
        self.records = f"{self.folder}/{seed}"
        Path(self.records).mkdir()
        self.named = 0
        self.workers = [self.start() for _ in range(FIRST)]
        faults = [self.kill, self.stop, self.add, self.leave] + [self.restart] * restarts
        try:
            self.await_progress()
            while not self.is_calm():
                self.random.choice(faults)()
                self.await_progress()
            self.wait(lambda: all(each.is_ready for each in self.alive()))
            for each in self.alive():
                assert each.process.stdin is not None
                each.process.stdin.close()
            self.check()
        except AssertionError as error:
            said = "\n".join(f"{each.name}: {each.said()[-2000:]}" for each in self.workers)
            log = "".join(self.aggregator.lines[-30:])
            raise AssertionError(
                f"seed {seed}, {'; '.join(self.happened)}: {error}\n{said}\n{log}"
            ) from error
        finally:
            self.end_workers()
        print(f"seed {seed}: {'; '.join(self.happened)}: {self.workers[-1].end}", flush=True)
        print(f"  {self.usage()} bytes, descriptors and series of basind", flush=True)

    def start(self, name: str = "") -> Worker:
        if not name:
            name, self.named = f"w{self.named}", self.named + 1
        return Worker(name, self.address, self.job, self.records, self.news)

    def alive(self) -> list[Worker]:
        return [each for each in self.workers if not each.has_ended]

    def is_calm(self) -> bool:
        return any(each.is_calm for each in self.workers)

    def wait(self, happened: Callable[[], bool]) -> None:
        """Waits for an event of the workers. Meanwhile starts those again that were evicted."""
        with self.news:
            until = time.monotonic() + PATIENCE
            while not happened():
                for each in [each for each in self.workers if each.has_ended]:
                    self.assertTrue(each.was_evicted, f"{each.name} has ended")
                    self.happened.append(f"{each.name} comes back")
                    self.workers.remove(each)
                    each.close()
                    self.workers.append(self.start(each.name))
                if not self.news.wait(until - time.monotonic()):
                    raise AssertionError(
                        f"no progress: {[(w.name, w.steps) for w in self.workers]}"
                    )

    def await_progress(self) -> None:
        """Returns when all have made two more steps, or the faults are over."""
        wanted = {each: each.steps + 2 for each in self.workers}
        # One that has come back begins at no step.
        self.wait(lambda: self.is_calm() or all(w.steps >= wanted.get(w, 2) for w in self.workers))

    # ---- faults

    def lose(self) -> Worker:
        lost = self.random.choice(self.workers)
        self.workers.remove(lost)
        return lost

    def kill(self) -> None:
        lost = self.lose()
        lost.close()
        self.happened.append(f"{lost.name} killed")
        self.workers.append(self.start())

    def stop(self) -> None:
        """For an instant, or until the others have gone on without it."""
        one = self.random.choice(self.workers)
        others = [each for each in self.workers if each is not one]
        long = bool(others) and self.random.random() < 0.5
        one.process.send_signal(signal.SIGSTOP)
        self.happened.append(f"{one.name} stopped {'for long' if long else 'shortly'}")
        if long:
            wanted = {each: each.steps + 3 for each in others}
            self.wait(lambda: self.is_calm() or any(each.steps >= n for each, n in wanted.items()))
        one.process.send_signal(signal.SIGCONT)

    def add(self) -> None:
        if len(self.workers) < MOST:
            self.workers.append(self.start())
            self.happened.append(f"{self.workers[-1].name} added")

    def leave(self) -> None:
        if len(self.workers) > 2:
            lost = self.lose()
            lost.process.send_signal(signal.SIGTERM)
            self.happened.append(f"{lost.name} leaves")
            self.assertIn(lost.process.wait(PATIENCE), (0, 128 + signal.SIGTERM), lost.said())
            lost.close()

    def restart(self) -> None:
        self.happened.append("aggregator restarted")
        self.aggregator.close()
        self.serve()

    # ---- what must hold

    def check(self) -> None:
        with self.news:
            ended = self.news.wait_for(lambda: not self.alive(), PATIENCE)
        self.assertTrue(ended, "a worker goes on")
        ends = {each.end for each in self.workers if not each.was_evicted}
        self.assertEqual(1, len(ends), "the workers differ")
        self.assertGreaterEqual(float(ends.pop().split()[1]), WANTED_ACCURACY)
        seen = Counter(self.used())
        whole = Counter((epoch, i) for epoch in range(EPOCHS) for i in range(SAMPLES))
        self.assertEqual([], sorted((whole - seen).items())[:9], "samples are missing")
        self.assertEqual([], sorted((seen - whole).items())[:9], "samples are used twice")

    def used(self) -> Iterator[tuple[int, int]]:
        """The samples of all rounds. The last ones that a process has named count, although it died
        before it knew, if the others know it as a contributor of a round since."""
        contributors: dict[int, set[str]] = {}
        recorded: dict[str, set[int]] = {}
        owed: list[tuple[str, dict[str, Any]]] = []
        for file in Path(self.records).iterdir():
            name = file.name.partition("-")[0]
            named = None
            for line in file.read_text().splitlines():
                record = json.loads(line)
                if "named" in record:
                    named = record
                    continue
                named = None
                contributors.setdefault(record["round"], set()).update(record["contributors"])
                recorded.setdefault(name, set()).add(record["round"])
                yield from ((record["epoch"], i) for i in record["used"])
            if named is not None:
                owed.append((name, named))
        for name, named in owed:
            rounds = {each for each, those in contributors.items() if name in those}
            if any(each >= named["before"] for each in rounds - recorded.get(name, set())):
                yield from ((named["epoch"], i) for i in named["named"])


if __name__ == "__main__":
    require("numpy", "torch", "sklearn")
    Soak.seconds = float(sys.argv[3])
    Soak.seed = int(sys.argv[4]) if len(sys.argv) > 4 else None
    unittest.main(argv=sys.argv[:1])
