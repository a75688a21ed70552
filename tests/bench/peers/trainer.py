# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""A trainer of one of the systems that peers.py compares. It appends what it does to a log, and
ends only if its system ends it.

Arguments: the system, the worker, and the log, whose lines account.py describes. The environment
has what the system needs (systems.py), and what training.py needs.
"""

import os
import sys
import time


class Log:
    """Appends whole lines, so that all trainers may write to one file."""

    def __init__(self, worker: int, path: str) -> None:
        self._worker = worker
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def born(self) -> None:
        self._write("born", 0)

    def begin(self, samples: int) -> None:
        self._write("begin", samples)

    def step(self, number: int) -> None:
        self._write("step", number)

    def discarded(self) -> None:
        self._write("discarded", 0)

    def _write(self, what: str, number: int) -> None:
        line = f"{what} {self._worker} {os.getpid()} {time.monotonic()} {number}\n"
        os.write(self._file, line.encode())


def main() -> None:
    system, worker, path = sys.argv[1:]
    log = Log(int(worker), path)
    log.born()  # Before what takes seconds, because it may be killed in the middle of that.
    from training import TRAININGS

    TRAININGS[system](int(worker), log)


if __name__ == "__main__":
    main()
