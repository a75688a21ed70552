# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""How each system is started, with its defaults or tuned. README.md has the sources."""

import contextlib
import importlib.metadata
import importlib.util
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path

from account import History
from processes import end_descendants, kill_with_descendants

TRAINER = Path(__file__).resolve().parent / "trainer.py"
WORKERS = 4
SAVE_EVERY = 100  # Steps from one checkpoint to the next, by default.
TUNED_PATIENCE = 5  # Seconds.
_LOOK_EVERY = 0.02  # Seconds between two looks at the log.


@dataclass(frozen=True)
class Conditions:
    """What all systems have in common.

    build: the folder of a build of Basin
    tuned: with the best settings of each system for faults
    step:  seconds of each step in which the processor is idle
    """

    build: Path
    tuned: bool
    step: float


class System:
    """One system in a folder of its own, with its workers.

    workers: how many of them start with it
    """

    def __init__(self, conditions: Conditions, folder: Path, workers: int) -> None:
        self.conditions = conditions
        self.start_with = workers
        self.history = History()
        self.restarts = 0  # What restart_ended() has started again.
        self.port = free_port()
        self._folder = folder
        self._log = folder / "log"
        self._log.touch()
        self._new = self._log.open()
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._starts: dict[str, Callable[[], None]] = {}
        self.start_coordinator()
        for worker in range(workers):
            self.start_worker(worker)

    # ---- what differs

    @classmethod
    def missing(cls) -> str:
        """Why it cannot run here; empty if it can."""
        return ""

    @classmethod
    def version(cls, build: Path) -> str:
        raise NotImplementedError

    def start_coordinator(self) -> None:
        """Starts what all workers need, if that is a process of its own."""
        raise NotImplementedError

    def start_worker(self, worker: int) -> None:
        raise NotImplementedError

    coordinator = "coordinator"  # The process that coordinates.
    patience = 0.0  # Seconds after which a collective call fails, by default.
    save_every_if_tuned = SAVE_EVERY  # Steps from one checkpoint to the next.

    @staticmethod
    def process_of(worker: int) -> str:
        """The process that ends when the trainer of this worker ends; empty if there is none."""
        return f"worker-{worker}"

    # ---- the same for all

    @classmethod
    def name(cls) -> str:
        return cls.__name__.lower()

    def trainer(self, worker: int) -> list[str]:
        return [str(TRAINER), self.name(), str(worker), str(self._log)]

    def start(self, key: str, command: list[str], **environment: str) -> None:
        """Starts a process of the system, which restart_ended() can start again in the same way."""

        def start() -> None:
            with (self._folder / f"{key}.txt").open("ab") as output:
                self._processes[key] = subprocess.Popen(
                    command,
                    stdout=output,
                    stderr=output,
                    env={**os.environ, **self._environment(), **environment},
                    start_new_session=True,
                )

        self._starts[key] = start
        start()

    def _environment(self) -> dict[str, str]:
        conditions = self.conditions
        return {
            "WORKERS": str(WORKERS),
            "STEP": str(conditions.step),
            "PATIENCE": str(TUNED_PATIENCE if conditions.tuned else self.patience),
            "CHECKPOINT": str(self._folder / "checkpoint"),
            "SAVE_EVERY": str(self.save_every_if_tuned if conditions.tuned else SAVE_EVERY),
            "TMPDIR": str(self._folder),
            "GLOO_SOCKET_IFNAME": "lo",
            "OMP_NUM_THREADS": "1",
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONWARNINGS": "ignore",
        }

    def ended(self) -> list[str]:
        """The processes, of those that it was started as, that have ended."""
        return [key for key, each in self._processes.items() if each.poll() is not None]

    def restart_ended(self) -> None:
        for key in self.ended():
            self.restarts += 1
            self._starts[key]()

    def signal_worker(self, worker: int, kind: signal.Signals) -> None:
        """Sends a signal to the trainer, if it has not just ended."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.history.processes[worker], kind)

    def kill_coordinator(self) -> None:
        """With everything that it has started, as if its container had ended."""
        process = self._processes[self.coordinator]
        kill_with_descendants(process.pid)
        process.wait()

    def look(self) -> bool:
        """Reads what is new in the log. Whether there was anything."""
        new = self._new.read()
        self.history.feed(new)
        return bool(new)

    def wait(
        self,
        until: Callable[[History], bool],
        seconds: float,
        restart: bool = False,
        may_end: Collection[str] = (),
    ) -> bool:
        """Whether it is so within this time.

        restart: starts what has ended again meanwhile. Otherwise, this stops to wait when a process
                 has ended that may not.
        """
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            ended = set(self.ended()) - set(may_end)
            if self.look() and until(self.history):
                return True
            if restart:
                self.restart_ended()
            elif ended:
                return False
            threading.Event().wait(_LOOK_EVERY)
        return False

    def outputs(self) -> str:
        """The ends of what its processes have printed."""
        return "\n".join(
            f"{path.name}:\n{path.read_text(errors='replace')[-2000:]}"
            for path in sorted(self._folder.glob("*.txt"))
        )

    def copy_to(self, folder: Path) -> None:
        """Its log and its outputs."""
        folder.mkdir(parents=True, exist_ok=True)
        for path in (self._log, *self._folder.glob("*.txt")):
            shutil.copy(path, folder)

    def end(self) -> None:
        end_descendants()
        self._new.close()


class Basin(System):
    patience = 0  # It has none: a round waits for all who are not lost.

    @classmethod
    def version(cls, build: Path) -> str:
        command = [str(_basind(build)), "version"]
        printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        return printed.splitlines()[0]

    def start_coordinator(self) -> None:
        command = [
            str(_basind(self.conditions.build)),
            "serve",
            f"--grpc-listen=127.0.0.1:{self.port}",
            "--admin-listen=none",
            "--http-listen=none",
        ]
        if self.conditions.tuned:
            command += ["--worker-heartbeat=100ms", "--worker-lease=1s"]
        self.start("coordinator", command)

    def start_worker(self, worker: int) -> None:
        self.start(
            f"worker-{worker}",
            [sys.executable, *self.trainer(worker)],
            BASIN_ADDRESS=f"127.0.0.1:{self.port}",
            BASIN_LIBRARY=str(self.conditions.build / "client" / "c" / "libbasin.so.2"),
            START_WORKERS=str(self.start_with),
            LEAVE_ON="SIGTERM" if self.conditions.tuned else "",
        )


class TorchElastic(System):
    """One agent for each worker, as on machines of their own. The agent of worker 0 also has the
    store of the rendezvous."""

    coordinator = "agent-0"
    patience = 1800
    save_every_if_tuned = 1  # Each restart is from a checkpoint.

    @staticmethod
    def process_of(worker: int) -> str:
        return ""  # Its agent starts it again.

    @classmethod
    def version(cls, build: Path) -> str:
        return f"torch {importlib.metadata.version('torch')}"

    def start_coordinator(self) -> None:
        """It starts with the first worker."""

    def start_worker(self, worker: int) -> None:
        rendezvous = [f"is_host={int(worker == 0)}"]
        options = []
        environment = {}
        if self.conditions.tuned:
            rendezvous += ["last_call_timeout=2", "keep_alive_interval=1"]
            options += ["--shutdown-timeout=1"]
            # Otherwise, workers that were started again find the addresses of those before them in
            # the store, which all rounds of the rendezvous share.
            environment["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] = "1"
        self.start(
            f"agent-{worker}",
            [
                sys.executable,
                "-m",
                "torch.distributed.run",
                f"--nnodes=1:{WORKERS}",
                "--nproc-per-node=1",
                "--max-restarts=1000",
                "--rdzv-backend=c10d",
                f"--rdzv-endpoint=127.0.0.1:{self.port}",
                "--rdzv-id=peers",
                f"--rdzv-conf={','.join(rendezvous)}",
                "--local-addr=127.0.0.1",
                *options,
                *self.trainer(worker),
            ],
            **environment,
        )


class TorchFT(System):
    patience = 60

    @classmethod
    def missing(cls) -> str:
        if importlib.util.find_spec("torchft") is None or _lighthouse() is None:
            return "torchft is not installed in the Python that runs this (pip install torchft)"
        return ""

    @classmethod
    def version(cls, build: Path) -> str:
        return f"torchft {importlib.metadata.version('torchft')}"

    def start_coordinator(self) -> None:
        heartbeats, joins = (1000, 1000) if self.conditions.tuned else (5000, 10000)
        lighthouse = _lighthouse()
        assert lighthouse is not None
        self.start(
            "coordinator",
            [
                lighthouse,
                "--min_replicas=1",
                "--quorum_tick_ms=100",
                f"--heartbeat_timeout_ms={heartbeats}",
                f"--join_timeout_ms={joins}",
                f"--bind=[::]:{self.port}",
            ],
        )

    def start_worker(self, worker: int) -> None:
        self.start(
            f"worker-{worker}",
            [sys.executable, *self.trainer(worker)],
            TORCHFT_LIGHTHOUSE=f"http://localhost:{self.port}",
            QUORUM_RETRIES="100" if self.conditions.tuned else "0",
        )


class Horovod(System):
    @classmethod
    def missing(cls) -> str:
        return (
            "Horovod 0.28.1, its last release, does not build with torch 2.1 or newer: it asks for "
            'C++14, and the headers of torch end the compilation with "C++17 or later compatible '
            'compiler is required to use PyTorch"'
        )


SYSTEMS: dict[str, type[System]] = {
    each.name(): each for each in (Basin, TorchElastic, TorchFT, Horovod)
}


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


def _basind(build: Path) -> Path:
    return build / "aggregator" / "basind" / "basind"


def _lighthouse() -> str | None:
    return shutil.which("torchft_lighthouse", path=str(Path(sys.executable).parent))
