# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""Trainers that do what they are told (commanded_trainer.cc), and the memory of basind."""

import contextlib
import re
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "aggregator/basind"))
from programs import PATIENCE, Basind, Commanded


class Trainer(Commanded):
    program = Path()

    def __init__(
        self,
        address: str,
        job: str,
        worker: str,
        workers: int,
        most: int | None = None,
        patience: float = PATIENCE,
    ) -> None:
        super().__init__(
            [self.program],
            patience,
            BASIN_ADDRESS=address,
            BASIN_JOB=job,
            BASIN_WORKER_ID=worker,
            BASIN_MIN_WORKERS="1",
            BASIN_START_WORKERS=str(workers),
            BASIN_MAX_WORKERS=str(most or workers),
            BASIN_RUN_ID="run",
            BASIN_FRESH="true",
        )

    def expect(self, answer: str = "ok") -> str:
        """Waits for an answer that begins so, and returns the rest of it."""
        said = self.answer()
        if not said.startswith(answer):
            raise AssertionError(f"the trainer said {said!r}")
        return said[len(answer) :]


class Workers(list[Trainer]):
    """The workers of one job."""

    def all(self, *lines: str) -> None:
        for line in lines:
            for trainer in self:
                trainer.say(line)
            for trainer in self:
                trainer.expect()

    def round(self, lane: str) -> None:
        self.all(f"push {lane}", f"commit {lane}")


@contextlib.contextmanager
def job(
    basind: Basind,
    name: str,
    workers: int,
    most: int | None = None,
    patience: float = PATIENCE,
) -> Iterator[Workers]:
    trainers = Workers(
        Trainer(basind.grpc, name, f"w{i}", workers, most, patience) for i in range(workers)
    )
    try:
        for trainer in trainers:
            trainer.expect("member")
        yield trainers
        with contextlib.suppress(BrokenPipeError, AssertionError):
            trainers.all("leave")
    finally:
        for trainer in trainers:
            trainer.kill()


def resident(basind: Basind) -> dict[str, int]:
    """The memory that the system says the process has, without its program."""
    status = Path(f"/proc/{basind.process.pid}/status").read_text(encoding="ascii")
    sizes = re.findall(r"^(RssAnon|RssShmem):\s+(\d+) kB$", status, re.M)
    return {name: 1024 * int(size) for name, size in sizes}


def read_log(basind: Basind) -> threading.Thread:
    """A thread that reads the log into `basind.lines`: a full pipe would stop the process."""

    def read() -> None:
        while basind.next_line() is not None:
            pass

    reader = threading.Thread(target=read)
    reader.start()
    return reader
