# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""Jobs of real worker processes with a real aggregator.

The processes are started once per test program and reused, and are forks of the program, because
importing torch takes long; each job has its own name. A test passes the same function of its module
to each process.

A program whose arguments begin with BASIND LIBBASIN ends with a call of main().
"""

import contextlib
import importlib.util
import json
import logging
import multiprocessing
import os
import subprocess
import sys
import threading
import traceback
import unittest
from collections.abc import Callable, Collection, Iterator
from multiprocessing import forkserver, resource_tracker
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, ClassVar
from unittest import mock

# Longer than anything here takes on a busy machine; a test that reaches it has failed.
PATIENCE = 120.0

# With the defaults, a worker that a busy machine gives no CPU for 5 s, or that needs more than
# 0.2 s to reconnect, is evicted, which is correct. These tests expect no eviction of a live worker.
_LEASES = ("--worker-lease=60s", "--worker-closed-lease=2s")

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "client/python"

sys.path.insert(0, str(PACKAGE))
# The process that forks the workers finds modules like this one.
os.environ["PYTHONPATH"] = os.pathsep.join([str(PACKAGE), str(Path(__file__).parent)])


def require(*modules: str) -> None:
    """Ends this program as skipped when one of them is not installed."""
    missing = [module for module in modules if importlib.util.find_spec(module) is None]
    if missing:
        print(f"skipped: {', '.join(missing)} not installed; scripts/setup.sh installs it")
        sys.exit(77)


def environment(**more: str) -> dict[str, str]:
    """In which programs find the package, and the basind and the library of the command line."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("BASIN_")}
    return {
        **kept,
        "PYTHONPATH": str(PACKAGE),
        "BASIN_BASIND": sys.argv[1],
        "BASIN_LIBRARY": sys.argv[2],
        **more,
    }


@contextlib.contextmanager
def logged(level: int = logging.NOTSET) -> Iterator[list[str]]:
    """What the package logs at this level or above, meanwhile."""
    lines: list[str] = []
    handler = logging.Handler(level)
    handler.emit = lambda record: lines.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("basin").addHandler(handler)
    try:
        yield lines
    finally:
        logging.getLogger("basin").removeHandler(handler)


def message(kind: str, call: Any, *arguments: Any, **options: Any) -> str:
    """The message of the basin error that the call raises; "" if it raises none."""
    import basin

    try:
        call(*arguments, **options)
    except getattr(basin, kind) as error:
        return str(error)
    return ""


def make_events(folder: str, names: Collection[str], kept: contextlib.ExitStack) -> None:
    """Makes events by which the processes of a test wait for each other: pipes in the folder. What
    is written to one is `kept` for processes that come late."""
    for name in names:
        os.mkfifo(Path(folder) / name)
        kept.callback(os.close, os.open(Path(folder) / name, os.O_RDWR))


def say(event: Path) -> None:
    """The event has happened; up to eight processes can hear it."""
    with event.open("wb", buffering=0) as pipe:
        pipe.write(b"." * 8)


def hear(event: Path) -> None:
    """Waits for the event."""
    with event.open("rb", buffering=0) as pipe:
        pipe.read(1)


class Aggregator:
    """A running basind at `listen`, which is a free port by default. Metrics are served at `http`,
    if at all, operators are served at `admin`, and memory is shared with `local`."""

    def __init__(
        self,
        program: Path,
        *arguments: str,
        listen: str = "127.0.0.1:0",
        http: str = "none",
        local: str = "none",
        admin: str = "none",
        leases: Collection[str] = _LEASES,
    ) -> None:
        kept = {name: value for name, value in os.environ.items() if "BASIN" not in name}
        given = {argument.partition("=")[0] for argument in arguments}
        leases = [lease for lease in _LEASES if lease.partition("=")[0] not in given]
        self.process = subprocess.Popen(
            [
                program,
                f"--grpc-listen={listen}",
                f"--http-listen={http}",
                f"--admin-listen={admin}",
                f"--local-listen={local}",
                *leases,
                *arguments,
            ],
            env=kept,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.lines: list[str] = []  # The log.
        self._came = threading.Condition()  # Guards what is added to them.
        self.address = ""
        self.admin = ""  # The address for operators, if there is one.
        self.metrics = ""  # The address of the metrics, if they are served.
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line)
            entry = json.loads(line)
            if entry["event"] == "serving":
                self.address = entry["addresses"]["grpc"]
                self.metrics = entry["addresses"].get("http", "")
                self.admin = entry["addresses"].get("admin", "")
                break
        # The log is read continuously, so that it never blocks the aggregator.
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as lines:
            for line in lines:
                with self._came:
                    self.lines.append(line)
                    self._came.notify_all()

    def wait_for(self, event: str, worker: str) -> None:
        """Returns when the log has this event of this worker."""

        def has_come() -> bool:
            entries = map(json.loads, self.lines)
            return any((e["event"], e.get("worker")) == (event, worker) for e in entries)

        with self._came:
            assert self._came.wait_for(has_come, PATIENCE), f"no {event} of {worker}"

    def close(self) -> None:
        self.process.kill()
        self.process.wait()


Outcome = tuple[bool, Any]
_DEAD: Outcome = (False, "the process has died")


def _serve(connection: Connection) -> None:
    """A worker process, which calls functions until it is asked to end."""
    # Its own processes, such as those of a data loader, start as in any program, and not as it did.
    multiprocessing.set_start_method(None, force=True)
    while (task := connection.recv()) is not None:
        function, environment, arguments = task
        before = dict(os.environ)
        os.environ.update(environment)
        outcome: Outcome
        try:
            outcome = (True, function(*arguments))
        except BaseException:
            outcome = (False, traceback.format_exc())
        os.environ.clear()
        os.environ.update(before)
        connection.send(outcome)


def _start_server() -> None:
    """Starts the process that forks workers. It is a fork of this process, not a new interpreter,
    which would import everything once more."""

    def fork(_executable: bytes, arguments: list[str], given: Collection[int]) -> int:
        sys.stdout.flush()
        sys.stderr.flush()
        if (pid := os.fork()) != 0:
            return pid
        try:
            instead.stop()
            # As in a new process, only these descriptors are open. While another one is, the end of
            # this test would not be noticed.
            kept = sorted({0, 1, 2, *given})
            for below, above in zip(kept, [*kept[1:], os.sysconf("SC_OPEN_MAX")]):
                os.closerange(below + 1, above)
            exec(arguments[-1], {})
        except SystemExit:
            pass
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(0)

    resource_tracker.ensure_running()
    instead = mock.patch("multiprocessing.util.spawnv_passfds", fork)
    instead.start()
    try:
        forkserver.ensure_running()
    finally:
        instead.stop()


def fork_context() -> multiprocessing.context.ForkServerContext:
    """Forks the workers from a copy of this process, as it is at the first call.
    REQUIRES: this process has no threads then, because a fork has none of them."""
    context = multiprocessing.get_context("forkserver")
    # basin.torch imports it, too, and this takes as long as torch itself.
    context.set_forkserver_preload(["torch._dynamo"] if "torch" in sys.modules else [])
    _start_server()
    return context


def main() -> None:
    """Runs the tests of this program. What follows BASIND LIBBASIN names some of them."""
    os.environ["BASIN_LIBRARY"] = sys.argv[2]
    fork_context()
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])


class _Process:
    def __init__(self) -> None:
        context = fork_context()
        self.connection, theirs = context.Pipe()
        self.process = context.Process(target=_serve, args=(theirs,), daemon=True)
        self.process.start()
        theirs.close()

    def receive(self) -> Outcome:
        try:
            if self.connection.poll(PATIENCE):
                outcome: Outcome = self.connection.recv()
                return outcome
            return False, f"no answer within {PATIENCE} s"
        except EOFError:
            return _DEAD


class Jobs:
    """An aggregator and worker processes."""

    def __init__(self, program: Path, library: Path, *arguments: str) -> None:
        os.environ["BASIN_LIBRARY"] = str(library)
        self.aggregator = Aggregator(program, *arguments)
        self._processes: list[_Process] = []
        self._count = 0

    def run(
        self,
        function: Callable[..., Any],
        workers: int,
        *arguments: Any,
        mortal: Collection[int] = (),
        **environment: str,
    ) -> list[Any]:
        """Calls function(rank, *arguments) in this many processes, which are the workers of a new
        job, and returns their results. Fails if one of them fails. The `mortal` ranks
        are to die, and return None."""
        self._count += 1
        while len(self._processes) < workers:
            self._processes.append(_Process())
        for rank in range(workers):
            identity = self._identity(f"job-{self._count}", rank, workers)
            self._processes[rank].connection.send(
                (function, {**identity, **environment}, (rank, *arguments))
            )
        outcomes = [process.receive() for process in self._processes[:workers]]
        for rank in mortal:
            outcomes[rank] = (outcomes[rank] == _DEAD, None)
        failed = [f"worker {i}: {text}" for i, (good, text) in enumerate(outcomes) if not good]
        if mortal:
            self.end_processes()
        if failed:
            self.end_processes()
            raise AssertionError("\n".join(failed))
        return [value for _, value in outcomes]

    def environment(self, job: str, rank: int, workers: int) -> dict[str, str]:
        """The whole environment of a process that a test starts itself as a worker of `job`."""
        path = {"PYTHONPATH": str(PACKAGE)}
        return {**os.environ, **path, **self._identity(job, rank, workers)}

    def _identity(self, job: str, rank: int, workers: int) -> dict[str, str]:
        return {
            "BASIN_ADDRESS": self.aggregator.address,
            "BASIN_JOB": job,
            "BASIN_FRESH": "true",
            "BASIN_WORKER_ID": f"w{rank}",
            "BASIN_MAX_WORKERS": str(workers),
            "LOCAL_RANK": str(rank),
            "LOCAL_WORLD_SIZE": str(workers),
        }

    def end_processes(self) -> None:
        for process in self._processes:
            process.process.kill()
            process.process.join()
        self._processes.clear()

    def close(self) -> None:
        self.end_processes()
        self.aggregator.close()


class JobsTest(unittest.TestCase):
    """A test of jobs, with the aggregator and the library from the command line."""

    OPTIONS: ClassVar[tuple[str, ...]] = ()  # What its aggregator is given.
    jobs: ClassVar[Jobs]

    @classmethod
    def setUpClass(cls) -> None:
        cls.jobs = Jobs(Path(sys.argv[1]), Path(sys.argv[2]), *cls.OPTIONS)

    @classmethod
    def tearDownClass(cls) -> None:
        cls.jobs.close()
