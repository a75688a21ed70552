# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""A network of namespaces: one for the aggregator and one for each worker, with a cable between.

All addresses and rules are inside the namespaces; the machine's own are not changed.
"""

import os
import re
import shutil
import subprocess

_TOOLS = ("ip", "nft", "ss")


def _run(*command: str, check: bool = True) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if check and done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()}")
    return done.stdout


def missing() -> str:
    """Why this machine cannot have such a network; empty if it can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    for tool in _TOOLS:
        if shutil.which(tool) is None:
            return f"{tool} is not installed (packages iproute2, nftables)"
    try:
        with_rules = Network(1)
    except RuntimeError as error:
        return f"no network namespaces here: {error}"
    try:
        with_rules.partition(0)
    except RuntimeError as error:
        return f"no packet filter here: {error}"
    finally:
        with_rules.close()
    return ""


class Network:
    """Worker i's end of its cable is 10.77.i.2, the aggregator's 10.77.i.1."""

    def __init__(self, workers: int) -> None:
        self._prefix = f"basin-{os.getpid()}"
        self._names = [f"{self._prefix}-aggregator"]
        self._names += [self._name(worker) for worker in range(workers)]
        try:
            for name in self._names:
                _run("ip", "netns", "add", name)
                _run("ip", "-n", name, "link", "set", "lo", "up")
            for worker in range(workers):
                self._connect(worker)
        except RuntimeError:
            self.close()
            raise

    def _name(self, worker: int) -> str:
        return f"{self._prefix}-w{worker}"

    def _connect(self, worker: int) -> None:
        here, there = self._names[0], self._name(worker)
        cable = ("type", "veth", "peer", "name", "eth0", "netns", there)
        _run("ip", "-n", here, "link", "add", f"w{worker}", *cable)
        _run("ip", "-n", here, "address", "add", f"10.77.{worker}.1/30", "dev", f"w{worker}")
        _run("ip", "-n", here, "link", "set", f"w{worker}", "up")
        _run("ip", "-n", there, "address", "add", f"10.77.{worker}.2/30", "dev", "eth0")
        _run("ip", "-n", there, "link", "set", "eth0", "up")

    def close(self) -> None:
        for name in self._names:
            _run("ip", "netns", "del", name, check=False)

    # ---- where programs run

    def at_aggregator(self) -> tuple[str, ...]:
        return ("ip", "netns", "exec", self._names[0])

    def at_worker(self, worker: int) -> tuple[str, ...]:
        return ("ip", "netns", "exec", self._name(worker))

    def move(self, worker: int) -> str:
        """The aggregator's end of the cable gets another address and loses its own. Returns the new
        one."""
        here, there = self._names[0], self._name(worker)
        _run("ip", "-n", here, "address", "flush", "dev", f"w{worker}")
        _run("ip", "-n", here, "address", "add", f"10.78.{worker}.1/30", "dev", f"w{worker}")
        _run("ip", "-n", there, "address", "add", f"10.78.{worker}.2/30", "dev", "eth0")
        return f"10.78.{worker}.1"

    def join(self) -> None:
        """Lets the ends of all cables reach each other, through the aggregator's namespace."""
        _run(*self.at_aggregator(), "sysctl", "-q", "-w", "net.ipv4.ip_forward=1")
        for worker, name in enumerate(self._names[1:]):
            _run("ip", "-n", name, "route", "add", "default", "via", f"10.77.{worker}.1")

    # ---- faults of a worker's cable

    def _rules(self, worker: int, *rules: str) -> None:
        self.heal(worker)
        _run(*self.at_worker(worker), "nft", "add", "table", "ip", "fault")
        for hook in ("input", "output"):
            chain = f"{{ type filter hook {hook} priority 0; }}"
            _run(*self.at_worker(worker), "nft", "add", "chain", "ip", "fault", hook, chain)
        for rule in rules:
            _run(*self.at_worker(worker), "nft", "add", "rule", "ip", "fault", *rule.split())

    def heal(self, worker: int) -> None:
        _run(*self.at_worker(worker), "nft", "delete", "table", "ip", "fault", check=False)

    def partition(self, worker: int) -> None:
        self._rules(worker, "input drop", "output drop")

    def partition_from(self, worker: int, address: str) -> None:
        """Drops packets between this end of a cable and the address, and no others."""
        self._rules(worker, f"input ip saddr {address} drop", f"output ip daddr {address} drop")

    def lose_results(self, worker: int) -> None:
        """Drops packets to the worker, but not those from it."""
        self._rules(worker, "input drop")

    def lose_pushes(self, worker: int) -> None:
        """Drops packets from the worker, but not those to it."""
        self._rules(worker, "output drop")

    def lose(self, worker: int, percent: int) -> None:
        """Drops this percentage of packets in each direction."""
        some = f"numgen random mod 100 < {percent} counter drop"
        self._rules(worker, f"input {some}", f"output {some}")

    def lost(self, worker: int) -> int:
        """The number of packets since lose()."""
        table = _run(*self.at_worker(worker), "nft", "list", "table", "ip", "fault")
        return sum(int(count) for count in re.findall(r"counter packets (\d+)", table))

    def refuse(self, worker: int) -> None:
        """Answers every packet from the worker with RST."""
        self._rules(worker, "output meta l4proto tcp reject with tcp reset")

    def kill_sockets(self, worker: int) -> int:
        """Kills the worker's connections, as an administrator would, and returns their number."""
        killed = _run(*self.at_worker(worker), "ss", "-K", "-H", "-n", "-t", "state", "established")
        return len(killed.splitlines())
