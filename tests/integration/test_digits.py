# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""examples/cpp/digits.cc with one worker, then eight, then three, as real processes: the Trainer of
the C++ headers trains every image once in an epoch, ends with the same parameters on all workers,
and with the accuracy of one worker alone.

Usage: test_digits.py BASIND DIGITS
"""

import importlib
import importlib.util
import re
import signal
import sys
import tempfile
import threading
import unittest
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "aggregator/basind"))
from programs import PATIENCE, Basind, Commanded

BASIND = Path()
DIGITS = Path()

EPOCHS = 30
PACE_MS = 20
MOST = 8


class Worker(Commanded):
    """Its lines are read as they come."""

    def __init__(self, address: str, job: str, worker: str, data: Path, pace: int) -> None:
        super().__init__(
            [DIGITS, data, str(EPOCHS), str(pace), "list"],
            PATIENCE,
            BASIN_ADDRESS=address,
            BASIN_JOB=job,
            BASIN_WORKER_ID=worker,
            BASIN_MIN_WORKERS="1",
            BASIN_START_WORKERS="1",
            BASIN_MAX_WORKERS=str(MOST),
            BASIN_RUN_ID="run",
            BASIN_FRESH="true",
        )
        self._changed = threading.Condition()
        self._lines: list[str] = []
        self._ended = False
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        while True:
            line = self.answer()
            with self._changed:
                self._lines.append(line)
                self._ended = not line
                self._changed.notify_all()
                if self._ended:
                    return

    def await_line(self, pattern: str) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._ended or self._has(pattern))
            if not self._has(pattern):
                raise AssertionError(f"no line {pattern!r} in {self._lines[-3:]}")

    def _has(self, pattern: str) -> bool:
        return any(re.match(pattern, line) for line in self._lines)

    def finish(self) -> tuple[int, list[str]]:
        """The exit status, and all lines."""
        self._reader.join()
        status = self.process.wait()
        return status, self._lines[:-1]


def trained_in(lines: list[str]) -> dict[int, Counter[int]]:
    """How often each image was trained, by epoch."""
    epochs: dict[int, Counter[int]] = {}
    for line in lines:
        if line.startswith("trained "):
            epoch, *images = map(int, line.split()[1:])
            epochs.setdefault(epoch, Counter()).update(images)
    return epochs


class Digits(unittest.TestCase):
    def setUp(self) -> None:
        self.basind = Basind(BASIND, "--log-level=info")
        self.addCleanup(self.basind.__exit__, None, None, None)
        self.basind.await_serving()
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.data = Path(folder.name) / "digits.txt"
        bunch = load_digits()
        lines = [
            " ".join(str(int(number)) for number in (digit, *pixels))
            for digit, pixels in zip(bunch.target, bunch.data, strict=True)
        ]
        self.data.write_text("\n".join(lines) + "\n", encoding="ascii")
        self.images = sum(i % 5 != 4 for i in range(len(lines)))  # For the training.

    def add(self, job: str, worker: str, pace: int = PACE_MS) -> Worker:
        added = Worker(self.basind.grpc, job, worker, self.data, pace)
        self.addCleanup(added.kill)
        return added

    def accuracy_of(self, lines: list[str]) -> float:
        match = re.match(rf"epoch {EPOCHS}, step \d+, accuracy ([\d.]+), parameters", lines[-1])
        assert match is not None, lines[-1]
        return float(match[1])

    def expect_each_once(self, lines: list[str]) -> None:
        epochs = trained_in(lines)
        self.assertEqual(set(range(EPOCHS)), set(epochs))
        once = Counter(range(self.images))
        for epoch, images in epochs.items():
            self.assertEqual(once, images, f"epoch {epoch}")

    def test_one_then_eight_then_three_workers(self) -> None:
        status, alone = self.add("alone", "w0", pace=0).finish()
        self.assertEqual(0, status)
        self.expect_each_once(alone)

        workers = [self.add("scaled", "w0")]
        workers[0].await_line("trained 1 ")
        workers += [self.add("scaled", f"w{i}") for i in range(1, MOST)]
        for worker in workers:
            worker.await_line(rf"epoch \d+, {MOST} workers")
        for worker in workers[3:]:
            worker.process.send_signal(signal.SIGTERM)
        ends = [worker.finish() for worker in workers]
        self.assertEqual([0] * 3 + [128 + signal.SIGTERM] * 5, [status for status, _ in ends])
        sizes = [line for line in ends[0][1] if line.endswith(" workers")]
        self.assertRegex(sizes[-1], ", 3 workers$")
        self.expect_each_once([line for _, lines in ends for line in lines])
        self.assertEqual(1, len({lines[-1] for _, lines in ends[:3]}), "the workers differ")
        scaled, fixed = self.accuracy_of(ends[0][1]), self.accuracy_of(alone)
        self.assertGreater(fixed, 0.95)
        self.assertGreater(scaled, fixed - 0.02)


if __name__ == "__main__":
    if importlib.util.find_spec("sklearn") is None:
        print("skipped: sklearn not installed; scripts/setup.sh installs it")
        sys.exit(77)
    load_digits = importlib.import_module("sklearn.datasets").load_digits
    BASIND, DIGITS = (Path(argument).resolve() for argument in (sys.argv.pop(1), sys.argv.pop(1)))
    unittest.main(verbosity=2)
