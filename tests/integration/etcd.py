# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""A cluster of real etcd on this machine, for tests.

It is found in PATH, or among the tools that scripts/setup.sh gets. Its data is not written to the
disk, and it elects its leader at once.
"""

import base64
import json
import os
import shutil
import signal
import socket
import ssl
import subprocess
import threading
import time
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PATIENCE = 60.0


def find_etcd() -> str | None:
    tools = ROOT / ".cache/tools/bin"
    return shutil.which("etcd", path=f"{tools}:{os.environ['PATH']}")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class Etcd:
    """`certs`: a folder with server.crt, server.key and ca.crt; clients need a certificate then."""

    def __init__(self, folder: Path, members: int = 1, certs: Path | None = None) -> None:
        program = find_etcd()
        assert program is not None, "there is no etcd; scripts/setup.sh gets one"
        self._program = program
        self._folder = folder
        self._certs = certs
        self._ports = [(free_port(), free_port()) for _ in range(members)]
        self.processes: list[subprocess.Popen[bytes] | None] = [None] * members
        self.users: tuple[str, str] | None = None
        for member in range(members):
            self.start(member)
        for member in range(members):
            self.await_answer(member)

    def __enter__(self) -> "Etcd":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for member in range(len(self.processes)):
            self.kill(member)

    @property
    def clients(self) -> str:
        """The addresses of all members, with commas between."""
        return ",".join(f"127.0.0.1:{client}" for client, _ in self._ports)

    def start(self, member: int) -> None:
        client, peer = self._ports[member]
        scheme = "https" if self._certs else "http"
        everybody = ",".join(
            f"m{i}=http://127.0.0.1:{port}" for i, (_, port) in enumerate(self._ports)
        )
        arguments = [
            f"--name=m{member}",
            f"--data-dir={self._folder / f'etcd-{member}'}",
            f"--listen-client-urls={scheme}://127.0.0.1:{client}",
            f"--advertise-client-urls={scheme}://127.0.0.1:{client}",
            f"--listen-peer-urls=http://127.0.0.1:{peer}",
            f"--initial-advertise-peer-urls=http://127.0.0.1:{peer}",
            f"--initial-cluster={everybody}",
            "--unsafe-no-fsync",
            "--heartbeat-interval=20",
            "--election-timeout=200",
            "--log-level=error",
        ]
        if self._certs is not None:
            arguments += [
                f"--cert-file={self._certs / 'server.crt'}",
                f"--key-file={self._certs / 'server.key'}",
                f"--trusted-ca-file={self._certs / 'ca.crt'}",
                "--client-cert-auth",
            ]
        with (self._folder / f"etcd-{member}.log").open("ab") as log:
            self.processes[member] = subprocess.Popen(
                [self._program, *arguments], stdout=log, stderr=log
            )

    def kill(self, member: int) -> None:
        if (process := self.processes[member]) is not None:
            process.kill()
            process.wait()
            self.processes[member] = None

    def be_away(self) -> None:
        """All members are stopped: their kernel accepts connections, and nothing answers."""
        self._signal(signal.SIGSTOP)

    def be_back(self) -> None:
        self._signal(signal.SIGCONT)

    def _signal(self, number: int) -> None:
        for process in self.processes:
            if process is not None:
                process.send_signal(number)

    def ask(self, path: str, **body: Any) -> dict[str, Any]:
        """One call of etcd's API, as JSON over HTTP. Not where clients need a certificate: etcd's
        gateway shows that of the server, which is none of a client."""
        headers = {"Content-Type": "application/json"}
        if self.users is not None and path != "auth/authenticate":
            name, password = self.users
            token = self.ask("auth/authenticate", name=name, password=password)["token"]
            headers["Authorization"] = token
        url = f"http://127.0.0.1:{self._ports[0][0]}/v3/{path}"
        request = urllib.request.Request(url, json.dumps(body).encode(), headers)
        with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
            found: dict[str, Any] = json.load(answer)
            return found

    def await_answer(self, member: int) -> None:
        url = f"http://127.0.0.1:{self._ports[member][0]}/health"
        context = None
        if self._certs is not None:
            url = url.replace("http", "https", 1)
            context = ssl.create_default_context(cafile=str(self._certs / "ca.crt"))
            context.load_cert_chain(self._certs / "client.crt", self._certs / "client.key")
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                with urllib.request.urlopen(url, timeout=PATIENCE, context=context) as answer:
                    if json.load(answer)["health"] == "true":
                        return
                why = "it is not healthy"
            except OSError as error:
                why = str(error)
            assert time.monotonic() < deadline, f"etcd does not answer: {why}"
            threading.Event().wait(0.02)  # There is no event for it.

    def value(self, key: str) -> str | None:
        found = self.ask("kv/range", key=encoded(key)).get("kvs", [])
        return base64.b64decode(found[0]["value"]).decode() if found else None

    def put(self, key: str, value: str) -> None:
        self.ask("kv/put", key=encoded(key), value=encoded(value))

    def delete(self, key: str) -> None:
        self.ask("kv/deleterange", key=encoded(key))

    def require_login(self, name: str, password: str, key: str) -> None:
        """From now on only users may ask; this one may read and write the key."""
        root = ("root", "root's password")
        self.ask("auth/user/add", name=root[0], password=root[1])
        self.ask("auth/role/add", name="root")
        self.ask("auth/user/grant", user="root", role="root")
        self.ask("auth/user/add", name=name, password=password)
        self.ask("auth/role/add", name="leader")
        permission = {"permType": "READWRITE", "key": encoded(key)}
        self.ask("auth/role/grant", name="leader", perm=permission)
        self.ask("auth/user/grant", user=name, role="leader")
        self.ask("auth/enable")
        self.users = root


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()
