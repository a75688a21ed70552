# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""Hosts with a cable of a given rate each, and one switch: network namespaces with token buckets.

All addresses are inside the namespaces; the machine's own network is not changed.
"""

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PREFIX = "basin-links-"  # The names of the namespaces begin with it; the process follows.
ADDRESS = "10.78.0.{}"
BUCKET = 256 << 10


def run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()}")


def missing() -> str:
    """Why this machine cannot have such links; empty if it can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    for tool in ("ip", "tc"):
        if shutil.which(tool) is None:
            return f"{tool} is not installed (package iproute2)"
    remove_those_of_killed_runs()
    try:
        with network([(100, 100)]):
            return ""
    except RuntimeError as error:
        return f"no links of a given rate here: {error}"


def remove(namespace: str) -> None:
    subprocess.run(["ip", "netns", "del", namespace], capture_output=True, check=False)


def remove_those_of_killed_runs() -> None:
    listed = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=False)
    for name, process in re.findall(rf"^({PREFIX}(\d+)\S*)", listed.stdout, re.M):
        if not Path(f"/proc/{process}").exists():
            remove(name)


class Network:
    """A switch and its cables."""

    def __init__(self, rates: list[tuple[int, int]]) -> None:
        """Rates up and down of each host, in Mbit/s."""
        self._switch = f"{PREFIX}{os.getpid()}"
        self._hosts: list[str] = []
        try:
            run("ip", "netns", "add", self._switch)
            run("ip", "-n", self._switch, "link", "add", "switch", "type", "bridge")
            run("ip", "-n", self._switch, "link", "set", "switch", "up")
            for host, (up, down) in enumerate(rates):
                self._connect(host, up, down)
        except RuntimeError:
            self.close()
            raise

    def _connect(self, host: int, up: int, down: int) -> None:
        name, port = f"{self._switch}-{host}", f"port{host}"
        run("ip", "netns", "add", name)
        self._hosts.append(name)
        end = ("type", "veth", "peer", "name", "eth0", "netns", name)
        run("ip", "-n", self._switch, "link", "add", port, *end)
        run("ip", "-n", self._switch, "link", "set", port, "master", "switch", "up")
        run("ip", "-n", name, "address", "add", f"{ADDRESS.format(host + 1)}/24", "dev", "eth0")
        run("ip", "-n", name, "link", "set", "eth0", "up")
        run("ip", "-n", name, "link", "set", "lo", "up")
        for namespace, device, rate in ((name, "eth0", up), (self._switch, port, down)):
            bucket = ("rate", f"{rate}mbit", "burst", str(BUCKET), "latency", "50ms")
            run("tc", "-n", namespace, "qdisc", "add", "dev", device, "root", "tbf", *bucket)

    def at(self, host: int) -> list[str]:
        return ["ip", "netns", "exec", self._hosts[host]]

    def close(self) -> None:
        for name in (*self._hosts, self._switch):
            remove(name)


@contextmanager
def network(rates: list[tuple[int, int]]) -> Iterator[Network]:
    made = Network(rates)
    try:
        yield made
    finally:
        made.close()
