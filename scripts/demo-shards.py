# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""The part of scripts/demo.sh that has shards: trains twice, once with one aggregator and once with
shards beside it, and fails unless both runs end with the same parameters, bit for bit.

usage: demo-shards.py --workers N --shards N [--kill-shard] -- [ARGUMENT of examples/digits.py...]
"""

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import urllib.request
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "client/python"))
from basin import programs  # noqa: E402 - found by the line before

SCRIPT = ROOT / "examples/digits.py"
# That of the hidden layer, for each process that holds gradients: 1.3 MB of parameters. With less
# than 1 MiB for each, all of them would stay with the aggregator.
WIDTH_FOR_EACH = 640
# For a basind to serve, or to notice another one. It takes a fraction of a second.
PATIENCE = 60.0
# A busy machine may leave a process without time, and no trainer dies in this demonstration.
LEASES = ("--worker-lease=60s", "--worker-closed-lease=60s")
PORTS = ("--grpc-listen=127.0.0.1:0", "--http-listen=127.0.0.1:0")


class Failed(Exception):
    """The demonstration did not show what it should."""


def environment(*needed: str) -> dict[str, str]:
    """This process's, without variables for another aggregator, but with those that are needed."""
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("BASIN_") or name in needed
    }


class Basind:
    """A running aggregator or shard, whose log is read on a thread."""

    def __init__(self, program: Path, name: str, *arguments: str) -> None:
        self.name = name
        self.process = subprocess.Popen(
            [program, *arguments, *PORTS],
            env=environment(),
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,  # Ctrl-C ends the trainers first.
        )
        self._changed = threading.Condition()
        self._entries: list[dict[str, Any]] = []
        self._over = False
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if not line.endswith("\n"):
                break  # It was killed while it wrote.
            with self._changed:
                self._entries.append(json.loads(line))
                self._changed.notify_all()
        with self._changed:
            self._over = True
            self._changed.notify_all()

    def await_events(self, event: str, count: int = 1) -> dict[str, Any]:
        """The entry of the log with which the event has been logged this many times."""

        def found() -> list[dict[str, Any]]:
            return [entry for entry in self._entries if entry["event"] == event]

        with self._changed:
            self._changed.wait_for(lambda: self._over or len(found()) >= count, PATIENCE)
            if len(found()) < count:
                last = self._entries[-1]["reason"] if self._entries else "nothing"
                raise Failed(f"{self.name} has not logged {event}; its last words: {last}")
            return found()[count - 1]

    def carried(self) -> int:
        """Bytes of gradients that it has received until now."""
        address = self.await_events("serving")["addresses"]["http"]
        with urllib.request.urlopen(f"http://{address}/metrics", timeout=PATIENCE) as answer:
            page = answer.read().decode()
        sample = re.search(r"^basin_contribution_bytes_total (\d+)", page, re.MULTILINE)
        if sample is None:
            raise Failed(f"{self.name} has no basin_contribution_bytes_total")
        return int(sample[1])

    def end(self) -> None:
        self.process.terminate()
        self.process.wait()


class Killing:
    """Kills a shard when a trainer is in the middle of a step, and asks by SIGUSR1 for it."""

    def __init__(self, shard: Basind) -> None:
        self.shard = shard
        self.carried = 0
        self._asked = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        signal.signal(signal.SIGUSR1, lambda *_: self._asked.set())
        self._thread.start()

    def _run(self) -> None:
        self._asked.wait()
        self.carried = self.shard.carried()
        self.shard.process.kill()
        print(f"demo: {self.shard.name} is killed with SIGKILL", flush=True)

    def await_end(self) -> None:
        """REQUIRES: the training is over."""
        if not self._asked.is_set():
            raise Failed("no shard was killed: the training was over before")
        self._thread.join()


def train(address: str, workers: int, arguments: list[str], *, kill: bool) -> str:
    """Trains under basin-run. Returns the hash of the parameters with which the trainers end."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "hash"
        command = [
            *(sys.executable, "-m", "basin.launch", "--workers", str(workers)),
            *("--aggregator", address, "--job", "demo", "--", sys.executable, str(SCRIPT)),
            *("--hash-file", str(file), *(["--signal", str(os.getpid())] if kill else [])),
            *arguments,
        ]
        paths = [str(ROOT / "client/python"), os.environ.get("PYTHONPATH", "")]
        process = subprocess.Popen(
            command,
            env=environment("BASIN_LIBRARY") | {"PYTHONPATH": os.pathsep.join(filter(None, paths))},
        )
        try:
            code = process.wait()
        except BaseException:
            process.terminate()
            process.wait()
            raise
        if code != 0 or not file.exists():
            raise Failed(f"the training has ended with {code}")
        return file.read_text()


def run(
    start: Callable[..., Basind], workers: int, shards: int, arguments: list[str], *, kill: bool
) -> str:
    """One training, with a new aggregator. Returns the hash of the parameters."""
    listen = ("--admin-listen=none", "--local-listen=none")
    aggregator = start("aggregator", "serve", *listen, *LEASES)
    address = aggregator.await_events("serving")["addresses"]["grpc"]
    names = [f"shard-{number}" for number in range(1, shards + 1)]
    held = [start(name, "shard", f"--coordinator={address}", f"--name={name}") for name in names]
    if held:
        aggregator.await_events("shard_up", len(held))
    killing = Killing(held[-1]) if kill else None
    found = train(address, workers, arguments, kill=kill)
    carried = {process.name: process.carried() for process in (aggregator, *held[: shards - kill])}
    if killing is not None:
        killing.await_end()
        print(f"demo: {aggregator.await_events('shard_lost')['reason']}")
        carried[killing.shard.name] = killing.carried
    if held:
        for name, size in carried.items():
            when = " until it was killed" if killing and name == killing.shard.name else ""
            print(f"demo: {name} received {size / 1e6:.1f} MB of gradients{when}")
        idle = [name for name, size in carried.items() if size < 1 << 20]
        if idle:
            raise Failed(f"{', '.join(idle)} received no gradients")
    return found


def demonstrate(program: Path, options: argparse.Namespace) -> None:
    def both(shards: int) -> str:
        with ExitStack() as ends:

            def start(name: str, *arguments: str) -> Basind:
                process = Basind(program, name, *arguments)
                ends.callback(process.end)
                return process

            kill = options.kill_shard and shards > 0
            return run(start, options.workers, shards, arguments, kill=kill)

    arguments = ["--width", str(WIDTH_FOR_EACH * (options.shards + 1)), *options.arguments]
    print("demo: with one aggregator", flush=True)
    alone = both(0)
    print(f"\ndemo: with {options.shards} shards beside it", flush=True)
    together = both(options.shards)
    if together != alone:
        raise Failed(f"the parameters are {together}, and {alone} with one aggregator")
    print(f"demo: the parameters are those of the run with one aggregator: {together}")


def main() -> int:
    parser = argparse.ArgumentParser(description="Trains with and without shards.")
    parser.add_argument("--workers", type=int, required=True)
    parser.add_argument("--shards", type=int, required=True)
    parser.add_argument("--kill-shard", action="store_true")
    parser.add_argument("arguments", nargs="*")
    options = parser.parse_args()
    program = os.environ.get("BASIN_BASIND") or programs.find("basind")
    if program is None:
        print("demo: basind is not built", file=sys.stderr)
        return 1
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        demonstrate(Path(program), options)
    except Failed as failure:
        print(f"demo: FAILED: {failure}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    return 0


if __name__ == "__main__":
    sys.exit(main())
