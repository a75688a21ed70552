# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""A network of namespaces: the aggregator in one, each worker in its own, a cable between.

Whatever is done to it is done inside: no address and no rule is the machine's.
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
    """Why there can be no such network here; empty when there can."""
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

    def lose_results(self, worker: int) -> None:
        """Nothing reaches the worker; what it sends arrives."""
        self._rules(worker, "input drop")

    def lose_pushes(self, worker: int) -> None:
        """Nothing that the worker sends arrives; it is reached."""
        self._rules(worker, "output drop")

    def lose(self, worker: int, percent: int) -> None:
        """So many of a hundred packets, each way."""
        some = f"numgen random mod 100 < {percent} counter drop"
        self._rules(worker, f"input {some}", f"output {some}")

    def lost(self, worker: int) -> int:
        """Packets since lose()."""
        table = _run(*self.at_worker(worker), "nft", "list", "table", "ip", "fault")
        return sum(int(count) for count in re.findall(r"counter packets (\d+)", table))

    def refuse(self, worker: int) -> None:
        """Every packet that the worker sends is answered by RST."""
        self._rules(worker, "output meta l4proto tcp reject with tcp reset")

    def kill_sockets(self, worker: int) -> int:
        """Those of the worker's connections, as an administrator would; how many."""
        killed = _run(*self.at_worker(worker), "ss", "-K", "-H", "-n", "-t", "state", "established")
        return len(killed.splitlines())
