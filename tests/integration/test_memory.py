# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""Compares the memory that basind says it uses with what the system says.

Usage: test_memory.py BASIND BASINCTL COMMANDED_TRAINER [SECONDS]

basin_buffer_bytes adds up to what the process has taken since it began to serve, whatever shapes,
names, lanes, jobs and workers come and go. With SECONDS, they come and go at random for that time.
"""

import contextlib
import random
import re
import subprocess
import sys
import threading
import time
import unittest
from pathlib import Path

from commanded import Trainer, job, read_log, resident
from programs import PATIENCE, Basind, clean_environment

BASIND = BASINCTL = Path()
SECONDS = 0.0

MIB = 1 << 20

# What is beside all kinds: connections, threads, the code of gRPC that is used for the first time.
BESIDE = 16 * MIB
SHARE = 0.10

# The longest that gRPC takes to end what nobody needs any more.
SETTLES = 10.0


class Memory(unittest.TestCase):
    # Tests of a class that derives from this one share memory.
    local = "none"

    def setUp(self) -> None:
        self.basind = Basind(
            BASIND,
            "--memory-budget=1GiB",
            "--limits-jobs=4",
            "--job-idle-timeout=1s",
            patience=PATIENCE + SECONDS,
            BASIN_LOCAL_LISTEN=self.local,
        )
        self.addCleanup(self.basind.__exit__, None, None, None)
        self.basind.await_serving()
        self.addCleanup(read_log(self.basind).join)
        self.addCleanup(self.basind.process.kill)
        # What is used for the first time stays.
        with job(self.basind, "first", 2) as workers:
            workers.all("register first 2 100000 10")
            workers.round("first")
        self.sizes, self.kinds = self.look()

    def look(self) -> tuple[dict[str, int], dict[str, int]]:
        """What the system says of the memory of the process, and what the process says itself."""
        _, page = self.basind.get("/metrics")
        kinds = {
            kind: int(float(value))
            for kind, value in re.findall(r'^basin_buffer_bytes\{kind="(\w+)"\} (\S+)$', page, re.M)
        }
        return resident(self.basind), kinds

    def compare(self, when: str) -> None:
        """Fails if the two are apart. Nothing says when memory has been given back."""
        deadline = time.monotonic() + SETTLES
        while True:
            sizes, kinds = self.look()
            grown = {name: sizes[name] - self.sizes[name] for name in sizes}
            used = {kind: kinds[kind] - self.kinds[kind] for kind in kinds}
            # Memory of a worker counts for this process once it has been read here.
            shared = (used["shared"], used["shared"] + used["mapped"])
            own = sum(used.values()) - shared[1]
            texts = []
            for name, low, high in (("RssAnon", own, own), ("RssShmem", *shared)):
                apart = max(low - grown[name], grown[name] - high)
                if apart > SHARE * max(grown[name], high) + BESIDE:
                    texts.append(
                        f"{name} has grown by {grown[name] / MIB:.1f} MiB, and "
                        f"{high / MIB:.1f} are accounted for"
                    )
            if not texts:
                break
            if time.monotonic() > deadline:
                each = ", ".join(f"{kind} {size / MIB:.1f}" for kind, size in used.items())
                self.fail(f"{when}: {'; '.join(texts)}: {each}")
            threading.Event().wait(0.2)
        print(
            f"{when}: {sum(grown.values()) / MIB:.1f} MiB, "
            f"of which {sum(used.values()) / MIB:.1f} are accounted for",
            flush=True,
        )

    def test_names(self) -> None:
        with job(self.basind, "names", 2) as workers:
            for lane in range(2):
                workers.all(f"register lane{lane} 20000 1 200")
                self.compare(f"{lane + 1} lanes of 20,000 tensors with long names")
            workers.round("lane0")
            self.compare("after a round of one of them")
        self.compare("after the job")

    def test_gradients(self) -> None:
        with job(self.basind, "gradients", 4) as workers:
            workers.all("register model 8 2000000 10")
            for i, trainer in enumerate(workers[:3]):
                trainer.say("push model")
                trainer.expect()
                self.compare(f"gradients of {i + 1} workers wait")
            workers[3].say("push model")
            workers[3].expect()
            workers.all("commit model")
            self.compare("after the round")
            workers.round("model")
            self.compare("after another round")
        self.compare("after the job")

    def test_values(self) -> None:
        with job(self.basind, "values", 3) as workers:
            for i in range(4):
                workers[0].say(f"announce value{i} {32 * MIB}")
                workers[0].expect()
                for trainer in workers[1:]:
                    trainer.say(f"get value{i} {32 * MIB}")
                    trainer.expect()
            self.compare("values that were passed on")
        self.compare("after the job")

    def test_jobs_shapes_and_lanes(self) -> None:
        for i in range(4):
            with job(self.basind, f"job{i}", 2) as workers:
                for lane in range(3):
                    workers.all(f"register lane{lane} {1 + i} {(1 + lane) * 1_000_000} 20")
                    workers.round(f"lane{lane}")
                self.compare(f"job {i}")
        self.compare("after the jobs")

    def test_limits_show_the_same_kinds(self) -> None:
        with job(self.basind, "vision", 2) as workers:
            workers.all("register model 1 1000000 10")
            shown = subprocess.run(
                [BASINCTL, "limits", f"--address={self.basind.admin}"],
                env=clean_environment(),
                capture_output=True,
                text=True,
                timeout=PATIENCE,
                check=True,
            ).stdout
            _, kinds = self.look()
        limits, memory = shown.split("\n\n")
        self.assertRegex(limits, r"\nmemory.budget +- +\S+MiB +1.0GiB")
        self.assertRegex(limits, r"\nmemory.budget +vision +\S+MiB +1.0GiB")
        rows = [line.split()[0] for line in memory.splitlines()]
        self.assertEqual(["MEMORY", *kinds, "all"], rows)

    def test_anything(self) -> None:
        end = time.monotonic() + SECONDS
        seed = int(time.time())
        while True:
            with self.subTest(seed=seed):
                self.churn(seed)
            seed += 1
            if time.monotonic() >= end:
                return

    def churn(self, seed: int) -> None:
        at_random = random.Random(seed)
        with contextlib.ExitStack() as stack:
            jobs = [
                stack.enter_context(
                    job(
                        self.basind,
                        f"{seed}-{i}",
                        at_random.randint(1, 3),
                        patience=PATIENCE + SECONDS,
                    )
                )
                for i in range(at_random.randint(1, 3))
            ]
            for step in range(6):
                workers = at_random.choice(jobs)
                lane = f"lane{at_random.randint(0, 9)}-{step}"
                tensors = at_random.choice((1, 10, 1000, 20000 if SECONDS else 100))
                elements = at_random.randint(1, 8_000_000 // tensors)
                workers.all(
                    f"register {lane} {tensors} {elements} {at_random.choice((5, 50, 200))}"
                )
                for _ in range(at_random.randint(0, 3)):
                    workers.round(lane)
                self.compare(f"seed {seed}, step {step}")
        self.compare(f"seed {seed}, after the jobs")


class SharedMemory(Memory):
    local = "auto"


if __name__ == "__main__":
    BASIND, BASINCTL, Trainer.program = (Path(sys.argv.pop(1)).resolve() for _ in range(3))
    SECONDS = float(sys.argv.pop(1)) if sys.argv[1:] and sys.argv[1][:1].isdigit() else 0.0
    unittest.main(verbosity=2)
