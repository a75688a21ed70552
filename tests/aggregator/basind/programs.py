# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""Starts, queries and ends the programs basind and basinctl for tests."""

import http.client
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from types import TracebackType
from typing import Any

# Longer than anything here takes on a busy machine; a test that reaches it has failed.
PATIENCE = 120.0

ANY_PORTS = (
    "--grpc-listen=127.0.0.1:0",
    "--http-listen=127.0.0.1:0",
    "--admin-listen=127.0.0.1:0",
)


def clean_environment(**variables: str) -> dict[str, str]:
    """This process's environment without variables that would configure the programs."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("BASIN_")}
    return {**kept, **variables}


def run(program: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """A program that ends by itself."""
    return subprocess.run(
        [program, *arguments],
        env=clean_environment(**variables),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )


class Basind:
    """A running aggregator on free ports, whose log is read line by line."""

    def __init__(
        self,
        program: Path,
        *arguments: str,
        ports: tuple[str, ...] = ANY_PORTS,
        before: tuple[str, ...] = (),
        patience: float = PATIENCE,
        **variables: str,
    ) -> None:
        """`before`: a program with arguments that runs basind; `patience`: for the whole test."""
        self.errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the process
        self.process = subprocess.Popen(
            [*before, program, *arguments, *ports],
            # Workers use the network, unless a test shares memory.
            env=clean_environment(**{"BASIN_LOCAL_LISTEN": "none", **variables}),
            stdout=subprocess.PIPE,
            stderr=self.errors,
            text=True,
        )
        # Every wait of a test ends when the process ends.
        self._patience = patience
        self._watchdog = threading.Timer(patience, self._end_test)
        self._watchdog.start()
        self.lines: list[dict[str, Any]] = []
        self.grpc = self.admin = self.http = ""

    def __enter__(self) -> "Basind":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.process.kill()
        self.process.wait()
        self._watchdog.cancel()
        if self.process.stdout is not None:
            self.process.stdout.close()
        self.errors.close()

    def _end_test(self) -> None:
        print(
            f"The test takes longer than {self._patience} s, and basind is killed.", file=sys.stderr
        )
        self.process.kill()

    def next_line(self) -> dict[str, Any] | None:
        """The next line of the log; None at its end."""
        assert self.process.stdout is not None
        text = self.process.stdout.readline()
        if not text:
            return None
        line: dict[str, Any] = json.loads(text)
        self.lines.append(line)
        return line

    def await_event(self, event: str) -> dict[str, Any]:
        """Reads the log up to the next line of this event."""
        while (line := self.next_line()) is not None:
            if line["event"] == event:
                return line
        raise AssertionError(f"no event {event} in {self.lines}; stderr: {self.stderr()}")

    def await_serving(self) -> dict[str, Any]:
        line = self.await_event("serving")
        addresses = line["addresses"]
        self.grpc = addresses["grpc"]
        self.admin = addresses.get("admin", "")
        self.http = addresses.get("http", "")
        return line

    def get(self, path: str) -> tuple[int, str]:
        connection = http.client.HTTPConnection(self.http, timeout=PATIENCE)
        try:
            connection.request("GET", path)
            response = connection.getresponse()
            return response.status, response.read().decode()
        finally:
            connection.close()

    def end(self, number: int = signal.SIGTERM) -> int:
        """Sends a signal and waits; the rest of the log is in `lines`."""
        self.process.send_signal(number)
        while self.next_line() is not None:
            pass
        return self.process.wait()

    def stderr(self) -> str:
        self.errors.seek(0)
        return self.errors.read().decode()


class Commanded:
    """A program that reads a command a line and answers each with a line. It is killed when it has
    run for `patience` seconds.

    stderr: as for subprocess.Popen
    """

    def __init__(
        self,
        command: list[str | Path],
        patience: float,
        stderr: int | None = None,
        /,
        **variables: str,
    ) -> None:
        self.process = subprocess.Popen(
            command,
            env=clean_environment(**variables),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
        )
        self._watchdog = threading.Timer(patience, self.process.kill)
        self._watchdog.start()

    def say(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def answer(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().rstrip("\n")

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        self._watchdog.cancel()
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            if stream is not None:
                stream.close()


class Trainer(Commanded):
    """A worker in its own process that runs one command after the other; see trainer.cc."""

    def __init__(
        self,
        program: Path,
        address: str,
        job: str,
        worker: str,
        least: int,
        most: int,
        **variables: str,
    ) -> None:
        command: list[str | Path] = [program, address, job, worker, str(least), str(most)]
        super().__init__(command, PATIENCE, **variables)

    def ask(self, verb: str) -> str:
        self.say(verb)
        return self.answer()
