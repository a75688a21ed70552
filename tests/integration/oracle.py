# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""Jobs of oracle trainers (see oracle_trainer.cc), and the invariants that hold after any fault."""

import json
import re
import signal
import subprocess
import sys
import threading
import time
import unittest
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Protocol

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "aggregator/basind"))
from programs import PATIENCE, Basind, clean_environment

Line = dict[str, Any]

MOST = 8  # The number of workers of a job.


def bit_of(worker: str) -> int:
    """What this worker is in a mask, by the number at the end of its id."""
    found = re.search(r"\d+$", worker)
    assert found is not None, worker
    return 1 << int(found[0])


class Oracle:
    """A trainer in its own process. Its output is read as it is written."""

    def __init__(
        self,
        program: Path,
        address: str,
        worker: str,
        *arguments: str,
        least: int,
        first: int,
        before: tuple[str, ...] = (),
        changed: threading.Condition | None = None,
        **variables: str,
    ) -> None:
        """`before`: a program that runs the trainer; `changed`: is called for each line."""
        self.worker = worker
        self.stopped = False  # Ever: then its clock does not measure its calls.
        self.lines: list[Line] = []
        self._changed = changed or threading.Condition()
        self._over = False
        settings = {
            "BASIN_ADDRESS": address,
            "BASIN_WORKER_ID": worker,
            "BASIN_MIN_WORKERS": str(least),
            "BASIN_START_WORKERS": str(first),
            "BASIN_MAX_WORKERS": str(MOST),
            "BASIN_RUN_ID": "run",
            "BASIN_FRESH": "true",
            "BASIN_LOG_LEVEL": "info",
        }
        self.process = subprocess.Popen(
            [*before, str(program), *arguments],
            env=clean_environment(**{**settings, **variables}),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.said = ""  # On standard error.
        self._watchdog = threading.Timer(PATIENCE, self.process.kill)
        self._watchdog.start()
        self._readers = [
            threading.Thread(target=self._read),
            threading.Thread(target=self._read_answers),
        ]
        for reader in self._readers:
            reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for text in self.process.stdout:
            self.take(json.loads(text))
        with self._changed:
            self._over = True
            self._changed.notify_all()

    def take(self, line: Line) -> None:
        """Keeps a line that it has written."""
        with self._changed:
            self.lines.append(line)
            self._changed.notify_all()

    def _read_answers(self) -> None:
        assert self.process.stderr is not None
        for text in self.process.stderr:
            with self._changed:
                self.said += text
                self._changed.notify_all()

    def find(self, event: str, **fields: Any) -> list[Line]:
        with self._changed:
            return [
                line
                for line in self.lines
                if line["event"] == event
                and all(line.get(name) == value for name, value in fields.items())
            ]

    def await_event(self, event: str, **fields: Any) -> Line:
        """Waits for and returns the first line of this event with these fields."""
        with self._changed:
            while True:
                if found := self.find(event, **fields):
                    return found[0]
                if self._over:
                    raise AssertionError(
                        f"{self.worker}: no {event} {fields} in {self.lines[-5:]}; {self.said}"
                    )
                self._changed.wait()

    def await_more(self, event: str, count: int, **fields: Any) -> None:
        """Waits until it has written this event, with these fields, this many times in total."""
        with self._changed:
            while len(self.find(event, **fields)) < count:
                if self._over or not self._changed.wait(PATIENCE):
                    raise AssertionError(
                        f"{self.worker}: {len(self.find(event, **fields))} of {count} {event}; "
                        f"{self.lines[-5:]}; {self.said[-3000:]}"
                    )

    def await_said(self, text: str) -> None:
        """Waits until it has written this text on standard error."""
        with self._changed:
            if not self._changed.wait_for(lambda: text in self.said, PATIENCE):
                raise AssertionError(f"{self.worker}: no {text} in {self.said[-3000:]}")

    def tell(self, word: str = "") -> None:
        """Sends a command to a trainer that runs step by step."""
        assert self.process.stdin is not None
        self.process.stdin.write(word + "\n")
        self.process.stdin.flush()

    def send(self, number: int) -> None:
        self.stopped |= number == signal.SIGSTOP
        self.process.send_signal(number)

    def finish(self) -> int:
        status = self.process.wait()
        for reader in self._readers:
            reader.join()
        return status

    def kill(self) -> None:
        self.process.kill()
        self.finish()
        self._watchdog.cancel()
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            if stream is not None:
                stream.close()


class History(Protocol):
    """A process whose output can be queried."""

    worker: str
    stopped: bool

    def find(self, event: str, **fields: Any) -> list[Line]: ...


class Jobs(unittest.TestCase):
    """Starts programs, and ends them at the end of the test."""

    basind = Path()
    trainer = Path()

    def setUp(self) -> None:
        self._changed = threading.Condition()

    def start(self, *arguments: str, program: Path | None = None, **more: Any) -> Basind:
        basind = Basind(program or self.basind, "--log-level=debug", *arguments, **more)
        self.addCleanup(basind.__exit__, None, None, None)
        basind.await_serving()
        return basind

    def restart(self, old: Basind, *arguments: str) -> Basind:
        """Starts another aggregator in place of a dead one."""
        old.process.wait()
        return self.start(
            *arguments,
            ports=(
                f"--grpc-listen={old.grpc}",
                "--http-listen=127.0.0.1:0",
                "--admin-listen=127.0.0.1:0",
            ),
        )

    def add(
        self,
        address: str,
        worker: str,
        *arguments: str,
        least: int = 1,
        first: int = 1,
        **more: Any,
    ) -> Oracle:
        trainer = Oracle(
            self.trainer,
            address,
            worker,
            *arguments,
            least=least,
            first=first,
            changed=self._changed,
            **more,
        )
        self.addCleanup(trainer.kill)
        return trainer

    def train(self, address: str, workers: int, *arguments: str, **more: Any) -> list[Oracle]:
        return [
            self.add(address, f"w{i}", *arguments, first=workers, **more) for i in range(workers)
        ]

    def first_of(self, trainers: Sequence[Oracle], event: str, **fields: Any) -> Oracle:
        """The first trainer that writes this event."""
        with self._changed:
            while True:
                for trainer in trainers:
                    if trainer.find(event, **fields):
                        return trainer
                self.assertTrue(self._changed.wait(PATIENCE), f"no trainer writes {event} {fields}")

    # ---- invariants

    def expect_ends(self, trainers: Iterable[Oracle]) -> None:
        """The trainers end, with one history; see expect_one_history."""
        trainers = list(trainers)
        for trainer in trainers:
            self.assertEqual(
                0, trainer.finish(), (trainer.worker, trainer.lines[-3:], trainer.said)
            )
        self.expect_one_history(trainers)
        ends = {trainer.find("end")[0]["history"] for trainer in trainers}
        self.assertEqual(1, len(ends), [trainer.find("end") for trainer in trainers])

    def expect_whole(self, basind: Basind, trainers: list[Oracle], steps: int) -> None:
        """The two trainers end, and nobody was lost: both were counted in every step."""
        self.expect_ends(trainers)
        self.assertEqual([3] * steps, self.masks(trainers[0]))
        self.expect_nobody_lost(basind)

    def expect_nobody_lost(self, basind: Basind) -> None:
        """Ends the aggregator. It lost no worker and aborted no round."""
        basind.end()
        said = [line for line in basind.lines if line["event"].startswith("worker_")]
        self.assertEqual([], self.events(basind, "worker_lost"), said)
        self.assertEqual([], self.events(basind, "round_aborted"))

    def expect_one_history(self, trainers: Iterable[History]) -> None:
        """Checks everything that any trainer, dead or alive, has applied.

        I1: no worker is counted twice; I2: all bytes of a round have one set of contributors, and
        the library reports that set and its divisor; I3: all workers that apply a step apply
        the same bytes; I4: no call is late; I5: round numbers increase, with one verdict each.
        """
        rounds: dict[int, tuple[Any, ...]] = {}
        steps: dict[int, int] = {}
        for trainer in trainers:
            if not trainer.stopped:
                self.assertEqual([], trainer.find("overdue"), trainer.worker)
            self.assertEqual([], trainer.find("member", mixed=1), trainer.worker)
            last = 0
            for line in trainer.find("applied"):
                self.assertEqual(0, line["mixed"], (trainer.worker, line))
                mask = sum(map(bit_of, line["contributors"]))
                self.assertEqual(mask, line["mask"], (trainer.worker, line))
                self.assertEqual(len(line["contributors"]), line["divisor"], line)
                self.assertGreater(line["round"], last, (trainer.worker, line))
                last = line["round"]
                bytes_of = (line["step"], line["digest"], line["history"], line["chain"], mask)
                self.assertEqual(bytes_of, rounds.setdefault(last, bytes_of), trainer.worker)
                self.assertEqual(last, steps.setdefault(line["step"], last), trainer.worker)

    def masks(self, trainer: Oracle) -> list[int]:
        return [line["mask"] for line in trainer.find("applied")]

    def events(self, basind: Basind, event: str) -> list[str]:
        return [line.get("worker", "") for line in basind.lines if line["event"] == event]

    # ---- metrics

    def metric(self, basind: Basind, sample: str) -> float:
        """The value of the metric; 0 if it is absent, as counters are until they count."""
        _, page = basind.get("/metrics")
        found = re.search(rf"^{re.escape(sample)} (\S+)$", page, re.MULTILINE)
        return float(found.group(1)) if found else 0.0

    def await_metric(self, basind: Basind, sample: str, reached: Callable[[float], bool]) -> float:
        deadline = time.monotonic() + PATIENCE
        while not reached(value := self.metric(basind, sample)):
            self.assertLess(time.monotonic(), deadline, f"{sample} is {value}")
            # There is no event for a change of a metric.
            threading.Event().wait(0.02)
        return value
