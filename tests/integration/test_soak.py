# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""Jobs with one random fault after another, for the given time.

Usage: test_soak.py BASIND ORACLE_TRAINER SECONDS [SEED]

Each job prints its seed, which repeats the same faults at different moments.
With SEED, only that job runs.
"""

import random
import signal
import sys
import threading
import time
import unittest
from pathlib import Path

from oracle import Jobs, Oracle
from programs import Basind
from proxy import Proxy

SECONDS = 60.0
SEEDS: list[int] = []

# At most one worker is lost at a time, so that more than half remember.
WORKERS = 4
FAULTS = 8
# The job does not run to its end; the test checks what was applied until then.
ENDLESS = ("1000000", "--pace-ms=5", "--elements=100000")
LEASE = 2.0


class Soak(Jobs):
    def test_one_history_whatever_happens(self) -> None:
        if SEEDS:
            return self.job(SEEDS[0])
        end = time.monotonic() + SECONDS
        seed = int(time.time())
        while time.monotonic() < end:
            with self.subTest(seed=seed):
                self.job(seed)
            seed += 1
        return None

    def job(self, seed: int) -> None:
        self.random = random.Random(seed)
        # If all are needed, every loss is a pause, and its replacement joins an open round.
        self.least = self.random.choice((2, WORKERS))
        self.happened = [f"at least {self.least}"]
        self.service = self.serve(None)
        self.proxy = Proxy(self.service.grpc)
        self.alive: list[Oracle] = []
        self.everybody: list[Oracle] = []
        for _ in range(WORKERS):
            self.join(f"w{len(self.everybody)}")
        faults = (
            self.kill_worker,
            self.replace_worker,
            self.stop_worker,
            self.cut_links,
            self.silence_links,
            self.damage_streams,
            self.slow_links,
            self.kill_aggregator,
            self.stop_aggregator,
            self.kill_both,
        )
        try:
            self.await_progress()
            for _ in range(FAULTS):
                self.random.choice(faults)()
                self.await_progress()
            self.expect_one_history(self.everybody)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}, {', '.join(self.happened)}: {error}") from error
        finally:
            for trainer in self.everybody:
                trainer.kill()
            self.proxy.close()
            self.doCleanups()
        steps = max(len(trainer.find("applied")) for trainer in self.everybody)
        print(f"seed {seed}: {steps} steps; {', '.join(self.happened)}", flush=True)

    def serve(self, old: Basind | None) -> Basind:
        settings = (f"--worker-lease={LEASE}s", "--recovery-window=3s")
        basind = self.start(*settings) if old is None else self.restart(old, *settings)
        # The log must be read, because a full pipe would drop lines.
        reader = threading.Thread(target=self.read_log, args=(basind,))
        reader.start()
        self.addCleanup(reader.join)
        self.addCleanup(basind.process.kill)
        return basind

    def read_log(self, basind: Basind) -> None:
        while basind.next_line() is not None:
            pass

    def join(self, worker: str) -> None:
        trainer = self.add(self.proxy.address, worker, *ENDLESS, first=WORKERS, least=self.least)
        self.alive.append(trainer)
        self.everybody.append(trainer)

    def await_progress(self) -> None:
        """Waits until all workers are members and train."""
        for trainer in self.alive:
            trainer.await_more("applied", len(trainer.find("applied")) + 4)

    def pause(self, most: float) -> None:
        """The duration of a fault."""
        threading.Event().wait(self.random.uniform(0, most))

    def note(self, what: str) -> None:
        self.happened.append(what)

    # ---- faults

    def lose_worker(self) -> str:
        trainer = self.alive.pop(self.random.randrange(len(self.alive)))
        trainer.send(signal.SIGKILL)
        return trainer.worker

    def kill_worker(self) -> None:
        lost = self.lose_worker()
        self.note(f"{lost} killed")
        self.pause(1.0)
        self.join(f"w{len(self.everybody)}")

    def replace_worker(self) -> None:
        """Starts a replacement at once, with the same id."""
        lost = self.lose_worker()
        self.note(f"{lost} restarted")
        self.join(lost)

    def stop_worker(self) -> None:
        trainer = self.random.choice(self.alive)
        self.note(f"{trainer.worker} stopped")
        trainer.send(signal.SIGSTOP)
        self.pause(2 * LEASE)
        trainer.send(signal.SIGCONT)

    def some_links(self) -> list[int]:
        count = len(self.proxy.open())
        return self.random.sample(range(count), self.random.randint(1, max(1, count // 3)))

    def cut_links(self) -> None:
        links = self.proxy.open()
        some = self.some_links()
        self.note(f"{len(some)} links cut")
        for i in some:
            links[i].cut()

    def silence_links(self) -> None:
        links = self.proxy.open()
        some = self.some_links()
        self.note(f"{len(some)} links silent")
        for i in some:
            links[i].up.hold()
            links[i].down.hold()
        self.pause(2 * LEASE)
        for i in some:
            links[i].up.release()
            links[i].down.release()

    def damage_streams(self) -> None:
        streams = self.proxy.streams()
        self.note("streams damaged")
        for stream in self.random.sample(streams, min(2, len(streams))):
            self.random.choice((stream.up, stream.down)).flip_next()

    def slow_links(self) -> None:
        self.note("links slow")
        for link in self.proxy.open():
            link.up.jitter = self.random.uniform(0, 0.02)
            link.down.delay = self.random.uniform(0, 0.01)

    def kill_aggregator(self) -> None:
        self.note("aggregator killed")
        self.service.process.kill()
        self.pause(1.0)
        self.service = self.serve(self.service)

    def stop_aggregator(self) -> None:
        self.note("aggregator stopped")
        self.service.process.send_signal(signal.SIGSTOP)
        self.pause(2 * LEASE)
        self.service.process.send_signal(signal.SIGCONT)

    def kill_both(self) -> None:
        lost = self.lose_worker()
        self.note(f"aggregator and {lost} killed")
        self.service.process.kill()
        self.service = self.serve(self.service)
        if self.least < WORKERS:
            self.await_progress()
        self.join(f"w{len(self.everybody)}")


if __name__ == "__main__":
    Jobs.basind, Jobs.trainer = (Path(sys.argv.pop(1)).resolve() for _ in range(2))
    SECONDS = float(sys.argv.pop(1))
    SEEDS = [int(argument) for argument in sys.argv[1:]]
    del sys.argv[1:]
    unittest.main(verbosity=2)
