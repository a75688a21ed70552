# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""Whether this process was started by a worker and has that worker's environment, so that it would
take the worker's place in the job.

The processes of a data loader do so if they are spawned: they import the training script again, and
with it a call of init() or connect() at its top level. A worker says in its environment which
process it is; a process with that environment is a helper of it as long as the worker runs, unless
it has another identity in the job.
"""

import contextlib
import json
import multiprocessing
import os
from collections.abc import Iterator, Mapping
from typing import Any

from basin.errors import FailedPrecondition

_VARIABLE = "BASIN_WORKER_PROCESS"
# The options that say which place in which job a worker takes.
IDENTITY = ("address", "job", "worker_id")


class IsHelper(FailedPrecondition):
    """This process was started by a worker, with the worker's identity."""


def follows_a_worker() -> bool:
    """Whether a worker that still runs has started this process, whatever its identity."""
    worker = _worker()
    return worker is not None and worker["process"] != os.getpid() and _runs(worker)


def claim(options: Mapping[str, str]) -> None:
    """This process is the worker with these options. Called before it connects; raises IsHelper if
    the process that has started it is that worker."""
    worker = _worker()
    if worker is not None and _has_place_of(worker, options):
        raise IsHelper(
            f"Process {os.getpid()} was started by process {worker['process']}, which is worker "
            f"{worker['worker_id']} of job {worker['job']}, and would take its place. Processes of "
            "a data loader import the script again: put the training, with init() or connect(), "
            'under `if __name__ == "__main__":`. Give a process that is to be another worker its '
            "own worker_id."
        )
    _write({name: options[name] for name in IDENTITY}, 0, 1)


def place_of_worker() -> tuple[int, int]:
    """In a helper: the rank and the world size of its worker when that last asked for them before
    it started this process."""
    worker = _worker()
    if worker is None:
        raise FailedPrecondition(
            f"Process {os.getpid()} is no worker, and its environment no longer names the worker "
            "that has started it. Pass it the rank."
        )
    return worker["rank"], worker["world_size"]


def place(options: Mapping[str, str], rank: int, world_size: int) -> None:
    """Sets what helpers get as the rank and world size of the worker with these options. Does
    nothing if the helpers of this process are those of another worker in it."""
    worker = _worker()
    if worker is None or not _is_here(worker, options):
        return
    if (worker["rank"], worker["world_size"]) != (rank, world_size):
        _write({name: worker[name] for name in IDENTITY}, rank, world_size)


@contextlib.contextmanager
def kept() -> Iterator[None]:
    """For another worker that connects in this process, and has no helpers."""
    worker = os.environ.get(_VARIABLE)
    try:
        yield
    finally:
        if worker is not None:
            os.environ[_VARIABLE] = worker


def release(options: Mapping[str, str]) -> None:
    """This process is no longer the worker with these options."""
    worker = _worker()
    if worker is not None and _is_here(worker, options):
        del os.environ[_VARIABLE]


def _is_here(worker: dict[str, Any], options: Mapping[str, str]) -> bool:
    same = all(worker[name] == options[name] for name in IDENTITY)
    return same and worker["process"] == os.getpid()


def _has_place_of(worker: dict[str, Any], options: Mapping[str, str]) -> bool:
    if not follows_a_worker() or any(worker[name] != options[name] for name in ("address", "job")):
        return False
    if worker["worker_id"] == options["worker_id"]:
        return True
    # Without an identity from a launcher, the id is made of the number of the process.
    return options["worker_id"].endswith(f"-{os.getpid()}") and _is_of_multiprocessing()


def _is_of_multiprocessing() -> bool:
    """Also while a spawned process imports the script."""
    inherits = getattr(multiprocessing.current_process(), "_inheriting", False)
    return multiprocessing.parent_process() is not None or inherits


def _worker() -> dict[str, Any] | None:
    try:
        found = json.loads(os.environ[_VARIABLE])
        return found if isinstance(found, dict) else None
    except (KeyError, ValueError):
        return None


def _write(identity: dict[str, str], rank: int, world_size: int) -> None:
    process = os.getpid()
    worker = {
        "process": process,
        "began": _began(process),
        **identity,
        "rank": rank,
        "world_size": world_size,
    }
    os.environ[_VARIABLE] = json.dumps(worker)


def _runs(worker: dict[str, Any]) -> bool:
    return worker["began"] is not None and _began(worker["process"]) == worker["began"]


def _began(process: int) -> str | None:
    """When the process began, in ticks since the machine did; None if it has ended. Another process
    with its number began at another time."""
    try:
        # No Path: it interns its parts, and a process that connects again and again would make
        # Python's table of such strings grow by 4 MB.
        with open(f"/proc/{process}/stat") as file:
            words = file.read().rpartition(")")[2].split()
    except OSError:
        return None
    return None if words[0] in "ZX" else words[19]
