# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""basin-run: an aggregator and N workers, on this machine or with --hosts on several. With
--aggregator the workers use one that runs elsewhere.

Each worker has its own process group, and so has the aggregator: basin-run forwards signals to
them, and ends the processes that they leave behind.
"""

import argparse
import contextlib
import functools
import json
import os
import queue
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from basin import adding, hosts, programs
from basin.output import Errors, Output, Pipe, Relayed
from basin.story import Story

# How long workers have to end after a failure or a signal.
_GRACE_SECONDS = 10.0
# How long the first workers wait before the number of ready workers is reported.
_SILENT_SECONDS = 2.0
# The exit code of basinctl for a worker that the aggregator no longer knows.
_NOT_FOUND = 5
# How a worker reaches an aggregator that does not trust its network. The one that basin-run starts
# serves this machine alone, and has neither TLS nor tokens.
_CREDENTIALS = ("BASIN_TLS_CA", "BASIN_TLS_CERT", "BASIN_TLS_KEY", "BASIN_TOKEN_FILE")


def _variable(option: str) -> str:
    """That of an option of the aggregator."""
    return "BASIN_" + option.upper().replace("-", "_")


# Variables that would give it these, among other things.
_NOT_PASSED_ON = (*_CREDENTIALS, *map(_variable, ("tls-client-ca", "auth-file", "config")))
# On one machine there is no network, and ended workers are reported, so a silent worker lacks CPU
# time. Only a worker that is stopped for this long counts as lost.
_LEASES = {_variable(option): "60s" for option in ("worker-lease", "worker-closed-lease")}
# By default glibc returns freed messages to the kernel and maps memory again, which costs more than
# sending them. 32 MiB is the largest threshold that it accepts.
_MALLOC = {"MALLOC_MMAP_THRESHOLD_": "33554432", "MALLOC_TRIM_THRESHOLD_": "134217728"}

# In it is a package named horovod, which is basin.horovod.
_OF_HOROVOD = str(Path(__file__).parent / "horovod/path")

_EXAMPLES = """\
examples:
  basin-run -n 4 -- python train.py
  basin-run -n 4 --min-workers 2 --max-workers 8 --max-restarts 10 -- python train.py
  basin-run add
  basin-run --hosts localhost:2,gpu-1:8,gpu-2:8 --listen 10.0.0.5 -- python train.py
  basin-run --hosts hosts.txt --aggregator basin.example:29600 -- python train.py
  basin-run --hosts gpu-1:8 --listen 10.0.0.5 --ssh "ssh -p 2222" -n 4 -- python train.py
  basin-run --horovod -np 4 python train.py
"""


class _Help(argparse.HelpFormatter):
    """Keeps the lines of the examples."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return text if text is _EXAMPLES else super()._fill_text(text, width, indent)


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="basin-run",
        usage="basin-run -n N [OPTION...] -- COMMAND [ARGUMENT...]\n       basin-run add [PROCESS]",
        formatter_class=_Help,
        description="Starts an aggregator and N workers on this machine, or on --hosts. Each line "
        "of their output is prefixed with the worker's rank. When a worker fails, the others are "
        "ended and its exit code is returned, unless at least --min-workers are left and succeed, "
        "or --max-restarts allows another process in its place. The aggregator is open to this "
        f"machine alone, or with --listen, without TLS and tokens, so {', '.join(_CREDENTIALS)} "
        "are not passed to the workers. With --aggregator, which starts none, they are.",
        epilog=_EXAMPLES,
    )
    parser.add_argument(
        "-n",
        "-np",
        "--workers",
        type=int,
        metavar="N",
        help="number of workers (default with --hosts: the sum of their slots)",
    )
    parser.add_argument(
        "-H",
        "--hosts",
        metavar="LIST",
        help="start the workers on these machines, over ssh: HOST:SLOTS,HOST:SLOTS,... or a file "
        "with one a line. localhost is this machine, without ssh. The folder and the command must "
        "be the same on all, and ssh must not ask for a password",
    )
    parser.add_argument(
        "--listen",
        metavar="HOST",
        help="the address of this machine at which the hosts reach the aggregator. Whoever reaches "
        "it can read and change gradients; for a network that is not trusted, run basind with TLS "
        "and name it with --aggregator",
    )
    parser.add_argument(
        "--ssh",
        default=hosts.SSH,
        metavar="COMMAND",
        help="how to reach a host, before its name (default: %(default)s)",
    )
    parser.add_argument(
        "--pass",
        dest="passed",
        action="append",
        default=[],
        metavar="NAME",
        help="give the workers on other machines this variable too. They get all of BASIN_*, PATH, "
        "LD_LIBRARY_PATH, PYTHONPATH, VIRTUAL_ENV and OMP_NUM_THREADS",
    )
    parser.add_argument(
        "--min-workers",
        type=int,
        metavar="N",
        help="continue with at least N workers (default: all)",
    )
    parser.add_argument(
        "--max-workers",
        type=int,
        metavar="N",
        help="allow up to N workers; `basin-run add` starts one more",
    )
    parser.add_argument(
        "--job", help="name of the job (default: local; with --aggregator: BASIN_JOB, else local)"
    )
    parser.add_argument(
        "--aggregator",
        metavar="HOST:PORT",
        help="use this aggregator instead of starting one. BASIN_TLS_CA, BASIN_TOKEN_FILE and the "
        "like are for it",
    )
    parser.add_argument(
        "--basind",
        metavar="FILE",
        help="the aggregator (default: BASIN_BASIND, else the one in this package, else PATH)",
    )
    parser.add_argument(
        "--torchrun-variables",
        action="store_true",
        help="also set RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, GROUP_RANK, MASTER_ADDR and "
        "MASTER_PORT, as torchrun does. Libraries that see them take the job for one of "
        "torch.distributed",
    )
    parser.add_argument(
        "--horovod",
        action="store_true",
        help="run a script of Horovod as it is: `import horovod.torch` imports "
        "basin.horovod.torch. The command may be the script alone",
    )
    parser.add_argument(
        "--max-restarts",
        type=int,
        default=0,
        metavar="N",
        help="start a worker that fails again, with the same id, at most N times in all "
        "(default: 0). It joins the others, and gets their state",
    )
    parser.add_argument(
        "--max-rejoins",
        type=int,
        default=10,
        metavar="N",
        help="start a worker again that has ended because the aggregator had evicted it, at most N "
        "times in all (default: %(default)s). They do not count as restarts",
    )
    parser.add_argument(
        "--log-dir",
        metavar="FOLDER",
        help="also write the output of each worker to FOLDER/worker-RANK.log, and the log of the "
        "aggregator to FOLDER/basind.log. Files of an earlier run are replaced",
    )
    parser.add_argument("--verbose", action="store_true", help="show the aggregator's log")
    parser.add_argument("command", nargs=argparse.REMAINDER, metavar="COMMAND")
    options = parser.parse_args(arguments)
    if options.command[:1] == ["--"]:
        del options.command[0]
    if not options.command:
        parser.error(
            "there is no command. Put it after --, as in: basin-run -n 4 -- python train.py"
        )
    if options.horovod and options.command[0].endswith(".py"):
        options.command.insert(0, sys.executable)
    if options.aggregator is not None and (options.basind is not None or options.verbose):
        parser.error("--basind and --verbose are for an aggregator that basin-run starts")
    if options.job is None:
        given = os.environ.get("BASIN_JOB") if options.aggregator is not None else None
        options.job = given or "local"
    _set_hosts(parser, options)
    if options.workers < 1:
        parser.error("-n must be at least 1")
    if options.min_workers is not None and not 1 <= options.min_workers <= options.workers:
        parser.error(f"--min-workers must be from 1 to {options.workers}")
    if options.max_workers is None:
        options.max_workers = options.workers
    if options.max_workers < options.workers:
        parser.error(f"--max-workers must be at least {options.workers}")
    room = sum(host.slots for host in options.hosts)
    if options.hosts and options.max_workers > room:
        parser.error(f"--hosts has {room} slots, and {options.max_workers} workers need one each")
    if options.max_restarts < 0:
        parser.error("--max-restarts must be at least 0")
    if options.max_rejoins < 0:
        parser.error("--max-rejoins must be at least 0")
    return options


def _set_hosts(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    """Replaces --hosts by a list, which without it is empty, and completes -n."""
    if options.hosts is None:
        if options.workers is None:
            parser.error("-n or --hosts is needed")
        if options.listen is not None:
            parser.error("--listen is for --hosts")
        options.hosts = []
        return
    try:
        options.hosts = hosts.parse(options.hosts)
    except (ValueError, OSError) as error:
        parser.error(f"--hosts: {error}")
    if options.workers is None:
        options.workers = sum(host.slots for host in options.hosts)
    if options.listen is not None and options.aggregator is not None:
        parser.error("--listen is for an aggregator that basin-run starts")
    others = [host.name for host in options.hosts if not host.is_here]
    if others and options.listen is None and options.aggregator is None:
        parser.error(
            f"{', '.join(others)} cannot reach an aggregator that is open to this machine alone. "
            "On a trusted network, name this machine's address with --listen; otherwise run basind "
            "with TLS and name it with --aggregator"
        )


_NO_BASIND = """\
basin-run: the aggregator, basind, was not found. In the source tree of this package, build it:
  cmake --preset release && cmake --build --preset release --target basind basinctl
Or put it into PATH, or set --basind or BASIN_BASIND."""


def _find_basind(given: str | None) -> str:
    own = programs.find("basind")
    found = given or os.environ.get("BASIN_BASIND") or own or shutil.which("basind")
    if found is None:
        raise SystemExit(_NO_BASIND)
    return str(found)


def _find_basinctl(basind: str) -> str | None:
    """The basinctl that belongs to the aggregator: beside it, as installed or as built."""
    real = Path(shutil.which(basind) or basind).resolve()
    for name in (real.parent / "basinctl", real.parents[1] / "ctl/basinctl"):
        if name.exists():
            return str(name)
    return shutil.which("basinctl")


class _Group:
    """A program in its own process group."""

    def __init__(
        self, command: Sequence[str], environment: dict[str, str], stdin: int | None = None
    ) -> None:
        self._waiting = threading.Lock()
        self.process = subprocess.Popen(
            command,
            env=environment,
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        assert self.process.stdout is not None and self.process.stderr is not None
        self.stdout, self.stderr = Pipe(self.process.stdout), Pipe(self.process.stderr)

    def signal(self, number: int) -> None:
        # Until wait() has reaped it, no other process can have its number.
        if self.process.returncode is None:
            try:
                os.killpg(self.process.pid, number)
            except ProcessLookupError:
                return

    def wait(self) -> int:
        """Waits for the program, and ends the processes that it has left. Returns its exit code, or
        the negative number of the signal that ended it."""
        with self._waiting:
            if self.process.returncode is None:
                os.waitid(os.P_PID, self.process.pid, os.WEXITED | os.WNOWAIT)
                self.signal(signal.SIGKILL)
            code = self.process.wait()
        self.stdout.end()
        self.stderr.end()
        return code


class _Remote(_Group):
    """A worker on another machine: ssh here, and there what basin.hosts describes."""

    def __init__(self, command: Sequence[str], environment: dict[str, str], script: str) -> None:
        super().__init__(command, environment, subprocess.PIPE)
        self._writing = threading.Lock()  # Nothing is written to a descriptor after its end.
        self._write(script.encode())

    def signal(self, number: int) -> None:
        if number != signal.SIGKILL:
            self._write(signal.Signals(number).name.removeprefix("SIG").encode() + b"\n")
            return
        assert self.process.stdin is not None
        with self._writing:
            self.process.stdin.close()
        super().signal(number)

    def wait(self) -> int:
        code = super().wait()
        # The shell there has the code of a signal that ended the worker, as shells do.
        is_signal = 128 < code <= 128 + signal.SIGRTMAX
        return 128 - code if is_signal else code

    def _write(self, data: bytes) -> None:
        assert self.process.stdin is not None
        # It may have ended, or was killed.
        with self._writing, contextlib.suppress(OSError, ValueError):
            while data:
                data = data[os.write(self.process.stdin.fileno(), data) :]


_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
# The system drops a SIGUSR1 while another is pending, but queues real-time signals.
_ADDS_WORKER = (signal.SIGUSR1, signal.SIGRTMIN)


class _Signals:
    """Takes the signals of this process on a thread. A Python handler would run too late if a
    signal arrived just before the main thread begins to wait, or on another thread; and one that
    raised an exception would break locks of the standard library. Until there are workers to which
    signals are forwarded, the first one kills the aggregator, for which the main thread waits."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._number: int | None = None
        self._aggregator: _Group | None = None
        self._forward: Callable[[int], None] | None = None
        reader, writer = os.pipe()
        os.set_blocking(writer, False)
        signal.set_wakeup_fd(writer)
        for number in (*_SIGNALS, *_ADDS_WORKER):
            signal.signal(number, lambda *_: None)

        def listen() -> None:
            while True:
                for number in os.read(reader, 1):
                    self._on_signal(number)

        threading.Thread(target=listen, daemon=True).start()

    def _on_signal(self, number: int) -> None:
        with self._lock:
            if self._forward is not None:
                self._forward(number)
            elif number in _SIGNALS:
                self._number = self._number or number
                if self._aggregator is not None:
                    self._aggregator.signal(signal.SIGKILL)

    def watch(self, aggregator: _Group) -> None:
        """A signal kills the aggregator from now on; so does one that has arrived before."""
        with self._lock:
            self._aggregator = aggregator
            if self._number is not None:
                aggregator.signal(signal.SIGKILL)

    def forward(self, to: Callable[[int], None]) -> None:
        """Calls `to` with each signal from now on. Ends the program if one has arrived before."""
        with self._lock:
            self._forward = to
        self.check()

    def check(self) -> None:
        """Ends the program if a signal has arrived before there were workers."""
        if self._number is not None:
            raise SystemExit(128 + self._number)


class _Aggregator:
    """A running basind, which basin-run operates through basinctl."""

    def __init__(
        self,
        program: str,
        listen_at: str | None,
        output: Output,
        copy: TextIO | None,
        verbose: bool,
        signals: _Signals,
    ) -> None:
        """Returns when the aggregator serves, at an address of this machine that others reach or by
        default for this machine alone. Its log also goes to `copy`."""
        self._output = output
        self._copy = copy
        self._verbose = verbose
        self._ctl = _find_basinctl(program)
        kept = dict(_LEASES if self._ctl is not None and listen_at is None else {})
        kept.update(os.environ)
        for name in _NOT_PASSED_ON:
            kept.pop(name, None)
        # For the socket at which workers share memory, which a killed process leaves there.
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        with contextlib.suppress(OSError):
            self._folder = tempfile.TemporaryDirectory(prefix="basin-run-")
            kept["TMPDIR"] = self._folder.name
        listen = (
            f"--grpc-listen={_host_of(listen_at)}:0",
            f"--grpc-insecure={'false' if listen_at is None else 'true'}",
            "--admin-listen=127.0.0.1:0",
            "--http-listen=none",
            "--local-listen=none" if self._folder is None else "--local-listen=auto",
        )
        try:
            self._group = _Group([program, "serve", *listen, "--drain-grace=0s"], kept)
        except OSError as error:
            raise SystemExit(f"basin-run: {program} cannot be started: {error.strerror}") from error
        self._log = self._group.stdout.lines()
        signals.watch(self._group)
        try:
            self._await_serving(program, signals)
        except BaseException:
            self.close()
            raise

    def _await_serving(self, program: str, signals: _Signals) -> None:
        errors = Relayed("the aggregator", self._group.stderr, sys.stderr, copy=self._copy)
        self._output.relay("[basind] ", errors)
        for line in self._log:
            self._keep(line)
            if self._verbose:
                self._output.write(sys.stderr, "[basind] " + line)
            entry = json.loads(line)
            if entry["event"] == "serving":
                self.address = entry["addresses"]["grpc"]
                self._admin = entry["addresses"]["admin"]
                return
        code = self._group.wait()
        self._output.drain()
        signals.check()
        raise SystemExit(f"basin-run: {program} ended with {code} before it served.")

    def _keep(self, line: str) -> None:
        if self._copy is not None:
            self._output.write(self._copy, line)

    def watch(
        self, on_entry: Callable[[dict[str, Any]], None], on_end: Callable[[int], None]
    ) -> None:
        """Calls `on_entry` with each entry of the log from now on, and `on_end` with the exit code
        when the aggregator has ended, on a thread."""

        def read() -> None:
            for line in self._log:
                if not line.endswith("\n"):
                    break  # The aggregator was killed while it wrote.
                self._keep(line)
                entry = json.loads(line)
                if self._verbose:
                    self._output.write(sys.stderr, f"[basind] {entry['event']}: {entry['reason']}")
                on_entry(entry)
            on_end(self._group.wait())

        threading.Thread(target=read, daemon=True).start()

    def show(self, entry: dict[str, Any], told: str | None) -> None:
        """Shows the line `told` for an entry, or a warning unchanged. With --verbose all entries
        are shown already."""
        if self._verbose:
            return
        if told is not None:
            self._output.say(told)
        else:
            self._output.write(sys.stderr, f"[basind] {entry['event']}: {entry['reason']}")

    def report_exit(self, job: str, worker: str, code: int) -> None:
        """Reports the end of a worker's process, so that the others do not wait for its lease."""
        if self._ctl is None:
            self._output.say(
                "there is no basinctl beside basind to report this, so the others wait until its "
                "lease has passed"
            )
            return
        address = f"--address={self._admin}"
        command = [self._ctl, "report-exit", job, worker, f"--status={code}", address]
        done = subprocess.run(
            [*command, "--timeout=5s"], capture_output=True, text=True, start_new_session=True
        )
        # The worker may have left the job before its process ended.
        if done.returncode not in (0, _NOT_FOUND):
            self._output.say(done.stderr.strip())

    def close(self) -> None:
        if self._group.process.returncode is None:
            self._group.signal(signal.SIGKILL)  # There are no workers left to serve.
            self._group.wait()
        if self._folder is not None:
            self._folder.cleanup()


class _Elsewhere:
    """A running aggregator that basin-run does not operate. It notices itself when a process ends,
    because the connection is closed. The workers report what they wait for."""

    def __init__(self, address: str) -> None:
        self.address = address

    def watch(
        self, on_entry: Callable[[dict[str, Any]], None], on_end: Callable[[int], None]
    ) -> None:
        """It has no log here, and its end is not seen: the workers wait for it."""

    def show(self, entry: dict[str, Any], told: str | None) -> None:
        """There are no entries."""

    def report_exit(self, job: str, worker: str, code: int) -> None:
        """Nothing to do."""

    def close(self) -> None:
        """It goes on."""


def _worker_id(rank: int) -> str:
    return f"worker-{rank}"


def _environment(
    options: argparse.Namespace,
    address: str,
    run_id: str,
    master_port: int | None,
    rank: int,
    place: hosts.Place,
    *,
    run_is_new: bool,
) -> dict[str, str]:
    workers = options.workers
    environment = dict(_MALLOC)
    if place.host.is_here:
        # Otherwise each worker would use all cores. torchrun does the same.
        cores = len(os.sched_getaffinity(0))
        environment["OMP_NUM_THREADS"] = str(max(1, cores // place.size))
    environment["PYTHONUNBUFFERED"] = "1"
    environment.update(os.environ)
    if options.aggregator is None:
        for name in _CREDENTIALS:
            environment.pop(name, None)
    environment.update(
        BASIN_ADDRESS=address,
        BASIN_JOB=options.job,
        BASIN_RUN_ID=run_id,
        # One that runs elsewhere may be restarted, and then has to wait for the workers that
        # remember the run.
        BASIN_FRESH=str(run_is_new or options.aggregator is None).lower(),
        BASIN_WORKER_ID=_worker_id(rank),
        BASIN_RUN_PROCESS=str(os.getpid()),
        BASIN_RUN_RANK=str(place.slot),
        BASIN_RUN_SIZE=str(place.size),
        BASIN_RUN_MACHINE=str(place.number),
        BASIN_RUN_MACHINES=str(max(hosts.used(options.hosts, workers), place.number + 1)),
        BASIN_START_WORKERS=str(workers),
        BASIN_MAX_WORKERS=str(options.max_workers),
        BASIN_MIN_WORKERS=str(options.min_workers or workers),
    )
    if options.horovod:
        paths = (_OF_HOROVOD, environment.get("PYTHONPATH"))
        environment["PYTHONPATH"] = os.pathsep.join(path for path in paths if path)
    if master_port is not None:
        environment.update(
            RANK=str(rank),
            WORLD_SIZE=str(max(workers, rank + 1)),
            LOCAL_RANK=str(place.slot),
            LOCAL_WORLD_SIZE=str(place.size),
            GROUP_RANK=str(place.number),
            MASTER_ADDR=_master_address(options),
            MASTER_PORT=str(master_port),
        )
    return environment


def _master_address(options: argparse.Namespace) -> str:
    """That of the machine of rank 0, as the others know it."""
    first = options.hosts[0] if options.hosts else None
    if first is not None and not first.is_here:
        return str(first.name).rpartition("@")[2]
    return options.listen or "127.0.0.1"


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


def _name_of(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # Most real-time signals have no name.
        return f"signal {number}"


@dataclass(frozen=True)
class _Ended:
    """The end of a process, a worker's or without a rank the aggregator's. A negative code is the
    signal that ended it."""

    rank: int | None
    code: int
    host: hosts.Host | None = None  # Another machine.

    def __str__(self) -> str:
        who = "the aggregator" if self.rank is None else f"worker {self.rank}"
        if self.host is not None:
            who += f" on {self.host.name}"
            if self.code == hosts.SSH_FAILED:
                return f"{who} ended with {self.code}, as ssh does when it cannot reach a host"
        if self.code >= 0:
            return f"{who} ended with {self.code}"
        return f"{who} was ended by {_name_of(-self.code)}"

    @property
    def exit_code(self) -> int:
        """What a shell would return."""
        return self.code if self.code >= 0 else 128 - self.code


# Why a worker is not added, or is ended.
_OVER = "the workers of the job have just finished, so there is nothing left to join"


class _Late:
    """The first workers have waited for so long that this is reported."""


class _Job:
    """The workers, from start to end."""

    def __init__(
        self, options: argparse.Namespace, aggregator: _Aggregator | _Elsewhere, output: Output
    ) -> None:
        self._name = options.job
        self._aggregator = aggregator
        self._least = options.min_workers or options.workers
        self._restarts_left = self._most_restarts = options.max_restarts
        self._rejoins_left = self._most_rejoins = options.max_rejoins
        self._hosts: list[hosts.Host] = options.hosts
        self._ssh, self._passed = options.ssh, options.passed
        self._folder = options.log_dir
        self._output = output
        self._command = options.command
        self._most = options.max_workers
        self._workers = options.workers
        run_id = secrets.token_hex(8)
        master_port = _free_port() if options.torchrun_variables else None
        self._environment_of = functools.partial(
            _environment, options, aggregator.address, run_id, master_port
        )
        # The end of a process, a wait that is to be reported, a signal, or an entry of the log.
        self._events: queue.Queue[_Ended | _Late | int | dict[str, Any]] = queue.Queue()
        # The present process of each rank, and where it runs.
        self._groups: list[_Group] = []
        self._places: list[hosts.Place] = []
        self._errors: list[Errors] = []
        self._copies: list[TextIO | None] = []
        self._story = Story(self._name)
        self._running: set[int] = set()
        self._succeeded: set[int] = set()
        self._first_failure = 0
        self._aggregator_ended = False
        self._cause = ""  # Why the job has failed, if it has.
        self._patience: float | None = None  # How long the workers have to end, once signalled.
        aggregator.watch(self._events.put, lambda code: self._events.put(_Ended(None, code)))

    def start(self) -> None:
        """Starts one more worker."""
        rank = len(self._groups)
        self._copies.append(_open_copy(self._folder, f"{_worker_id(rank)}.log"))
        self._errors.append(Errors())
        self._places.append(self._next_place(rank))
        self._groups.append(self._start(rank, run_is_new=rank < self._workers))

    def _next_place(self, rank: int) -> hosts.Place:
        if not self._hosts:
            here = hosts.Host(hosts.HERE, self._most)
            return hosts.Place(here, 0, rank, max(self._workers, rank + 1))
        places = [self._places[each] for each in self._running]
        taken = {(place.host.name, place.slot) for place in places}
        return hosts.free_place(self._hosts, self._workers, taken)

    def _start_again(self, rank: int, code: int) -> None:
        # Only then does it not have to wait until its predecessor counts as lost.
        self._aggregator.report_exit(self._name, _worker_id(rank), code)
        self._errors[rank] = Errors()
        self._groups[rank] = self._start(rank, run_is_new=False)

    def _start(self, rank: int, *, run_is_new: bool) -> _Group:
        place = self._places[rank]
        environment = self._environment_of(rank, place, run_is_new=run_is_new)
        command = self._command
        try:
            if place.host.is_here:
                group = _Group(command, environment)
            else:
                script = hosts.remote_script(
                    command, environment, self._passed, place.size, os.getcwd()
                )
                command = hosts.ssh_command(self._ssh, place.host, script)
                group = _Remote(command, environment, script)
        except OSError as error:
            name = command[0]
            raise SystemExit(f"basin-run: {name} cannot be started: {error.strerror}") from error
        self._story.started(_worker_id(rank))
        self._running.add(rank)
        host = None if place.host.is_here else place.host
        prefix, who, copy = f"[{rank}] ", f"worker {rank}", self._copies[rank]
        self._output.relay(prefix, Relayed(who, group.stdout, sys.stdout, copy=copy))
        errors = Relayed(who, group.stderr, sys.stderr, self._errors[rank], copy)
        self._output.relay(prefix, errors)
        threading.Thread(
            target=lambda: self._events.put(_Ended(rank, group.wait(), host)), daemon=True
        ).start()
        return group

    def on_signal(self, number: int) -> None:
        self._events.put(number)

    def wait(self) -> int:
        """Returns when all workers have ended: 0 if enough have succeeded, otherwise the code of
        the first failure or signal."""
        while self._running:
            try:
                event = self._events.get(timeout=self._patience)
            except queue.Empty:
                self._signal(signal.SIGKILL)
                self._patience = None
                continue
            if isinstance(event, _Ended):
                if event.rank is None:
                    self._on_aggregator_end(event)
                else:
                    self._on_worker_end(event.rank, event)
            elif isinstance(event, _Late):
                if self._story.waits and self._patience is None:
                    ready, needed = self._story.ready, self._workers
                    self._output.say(f"{ready} of {needed} workers are ready; the job waits")
            elif isinstance(event, int):
                self._on_signal(event)
            else:
                self._on_entry(event)
        enough = len(self._succeeded) >= self._least and not self._cause
        return 0 if enough else self._first_failure

    def kill(self) -> None:
        """Ends the workers that are left. There are none after wait(), unless it has failed."""
        self._signal(signal.SIGKILL)

    def report_cause(self) -> None:
        """Writes the cause of a failure. This is called after all other output, so that it is the
        last line."""
        if self._cause:
            self._output.say(self._cause)

    def _signal(self, number: int) -> None:
        for group in self._groups:
            group.signal(number)

    def _end(self, number: int) -> None:
        self._signal(number)
        self._patience = _GRACE_SECONDS

    def _on_signal(self, number: int) -> None:
        if number in _ADDS_WORKER:
            if self._aggregator_ended:
                self._output.say("no worker is added: the aggregator has ended")
            elif self._story.over:
                self._output.say(f"no worker is added: {_OVER}")
            elif len(self._running) < self._most and self._patience is None:
                self.start()
            else:
                self._output.say(
                    f"no worker is added: there are {len(self._running)} workers already; "
                    "--max-workers makes room"
                )
            return
        for errors in self._errors:
            errors.interrupted.set()
        # A second signal kills.
        self._end(number if self._patience is None else signal.SIGKILL)
        self._first_failure = self._first_failure or 128 + number

    def _on_entry(self, entry: dict[str, Any]) -> None:
        waited = self._story.waits
        told = self._story.on_entry(entry)
        if self._story.waits and not waited:
            late = threading.Timer(_SILENT_SECONDS, self._events.put, (_Late(),))
            late.daemon = True
            late.start()
        # Later, workers leave one after the other; do not report that.
        if self._patience is None and (told is not None or self._story.warns(entry)):
            self._aggregator.show(entry, told)
        self._check_enough()
        self._check_late()

    def _on_worker_end(self, rank: int, ended: _Ended) -> None:
        self._running.discard(rank)
        if ended.code == 0:
            self._succeeded.add(rank)
        elif again := self._begin_again(rank, ended):
            self._output.say(f"{ended}; it is started again ({again})")
            self._start_again(rank, ended.code)
            return
        else:
            self._output.say(str(ended))
            self._first_failure = self._first_failure or ended.exit_code
        if self._patience is not None:
            return
        if len(self._running) + len(self._succeeded) < self._least:
            self._end(signal.SIGTERM)
            self._cause = f"the job has failed: {ended}"
            if ended.code > 0 and self._errors[rank].last:
                self._cause += f". The last line of its stderr: {self._errors[rank].last}"
        elif self._running:
            self._aggregator.report_exit(self._name, _worker_id(rank), ended.code)
            self._check_enough()
            self._check_late()

    def _begin_again(self, rank: int, ended: _Ended) -> str:
        """How a worker that has failed is counted when it is started again; empty if it is not."""
        if self._patience is not None or self._aggregator_ended:
            return ""
        # An evicted worker fails by itself, because of its error.
        evicted = ended.code > 0 and (
            _worker_id(rank) in self._story.evicted
            or self._errors[rank].last.startswith("basin.errors.Evicted")
        )
        if evicted and self._rejoins_left:
            self._rejoins_left -= 1
            number = self._most_rejoins - self._rejoins_left
            return f"it was evicted; rejoin {number} of {self._most_rejoins}"
        if self._restarts_left:
            self._restarts_left -= 1
            number = self._most_restarts - self._restarts_left
            return f"restart {number} of {self._most_restarts}"
        return ""

    def _on_aggregator_end(self, ended: _Ended) -> None:
        """Ends workers that would otherwise wait for another aggregator for ever."""
        self._aggregator_ended = True
        finished = all(_worker_id(rank) in self._story.finished for rank in self._running)
        if self._patience is not None or finished:
            return
        self._end(signal.SIGTERM)
        self._first_failure = self._first_failure or ended.exit_code or 1
        self._cause = f"the job has failed: {ended}, and its workers cannot continue without it"

    def _check_enough(self) -> None:
        """Ends a job whose workers wait for others that will not come, because a script has exited
        with 0 but without shutdown()."""
        if self._patience is not None or not (self._story.paused or self._story.waits):
            return
        done = sum(_worker_id(rank) in self._story.finished for rank in self._succeeded)
        if not self._succeeded or len(self._running) + done >= self._least:
            return
        left = sorted(
            rank for rank in self._succeeded if _worker_id(rank) not in self._story.finished
        )
        self._end(signal.SIGTERM)
        self._first_failure = self._first_failure or 1
        self._cause = (
            f"the job has failed: worker {', '.join(map(str, left))} ended with 0 without "
            f"basin.torch.shutdown(), or close() of its client, and the {len(self._running)} that "
            f"are left wait for others, because {self._least} are needed. Call it at the end of "
            "the script, or use --min-workers"
        )

    def _check_late(self) -> None:
        """Ends workers that were started when all others had just finished: they would wait for as
        many others as began the job."""
        late = {rank for rank in self._running if self._story.is_late(_worker_id(rank))}
        if self._patience is not None or late != self._running:
            return
        if not 0 < len(late) < self._workers:
            return
        self._output.say(f"worker {', '.join(map(str, sorted(late)))} is ended: {_OVER}")
        self._first_failure = self._first_failure or 1
        self._end(signal.SIGTERM)


def _open_missing_streams() -> None:
    """Python has no stream for a descriptor that was closed when it started."""
    sys.stdout = sys.stdout or open(os.devnull, "w")  # noqa: SIM115 - open until the end
    sys.stderr = sys.stderr or open(os.devnull, "w")  # noqa: SIM115 - open until the end


def _host_of(listen_at: str | None) -> str:
    """As an address has it: one of IPv6 is in brackets."""
    host = listen_at or "127.0.0.1"
    return f"[{host}]" if ":" in host and not host.startswith("[") else host


def _open_copy(folder: str | None, name: str) -> TextIO | None:
    """A file in the folder of --log-dir, if there is one."""
    if folder is None:
        return None
    path = Path(folder) / name
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return path.open("w")
    except OSError as error:
        raise SystemExit(f"basin-run: --log-dir: {path}: {error.strerror}") from error


def _aggregator(
    options: argparse.Namespace, output: Output, signals: _Signals
) -> _Aggregator | _Elsewhere:
    if options.aggregator is not None:
        return _Elsewhere(options.aggregator)
    ignored = [name for name in _NOT_PASSED_ON if os.environ.get(name)]
    if ignored:
        output.say(
            f"{', '.join(ignored)} ignored: the aggregator that basin-run starts "
            "is open to this machine alone, without TLS and tokens. --aggregator=HOST:PORT uses "
            "another one"
        )
    basind = _find_basind(options.basind)
    copy = _open_copy(options.log_dir, "basind.log")
    return _Aggregator(basind, options.listen, output, copy, options.verbose, signals)


def main(arguments: Sequence[str] | None = None) -> int:
    _open_missing_streams()
    arguments = sys.argv[1:] if arguments is None else arguments
    if arguments[:1] == ["add"]:
        return adding.main(arguments[1:])
    options = _parse(arguments)
    output = Output()
    signals = _Signals()
    aggregator = _aggregator(options, output, signals)
    job: _Job | None = None
    try:
        job = _Job(options, aggregator, output)
        signals.forward(job.on_signal)
        for _ in range(options.workers):
            job.start()
        return job.wait()
    finally:
        if job is not None:
            job.kill()
        aggregator.close()
        output.drain()
        if job is not None:
            job.report_cause()


if __name__ == "__main__":
    sys.exit(main())
