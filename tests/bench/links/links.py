#!/usr/bin/env python3
# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""All-reduce of f32 over links of a given rate: Basin beside Gloo's ring.

Each process has a network namespace of its own, with a cable to one switch. Token buckets of 256
KiB limit both directions of each cable. "of the link" is the time of a round over the time that the
slowest cable needs for the bytes of one model in one direction: 1 is a star that sends and receives
at the same time and never waits. A ring of N workers cannot be better than 2 (N - 1) / N.

With --order it measures instead what the order of gradients is worth in a training step, for a
model whose first layer is its largest: an embedding of 8 MiB and twenty layers of 64 to 256 KiB.
Among the gradients that are ready, those of the last layers are sent first, as the backward makes
them, or those of the first layers, which the next forward needs first. Results have the same order,
because one leaves when the last gradient for it has arrived. "rounds" is "one" if all layers are
one round, as in any training, and "each" if every layer has a round of its own, so that its results
are handed over without those of the others. The table has the milliseconds of a step, and of a step
until the results of the first layer are handed over. In the last column, a forward computes each
layer as soon as the results of its round are there, without waiting for the verdict; it is computed
from the workers' timelines.

"sockets" moves the same bytes in the same pattern over bare TCP, in blocks of 256 KiB: what a star
can have on these links.

Needs root, and the programs ip and tc.

examples:
  links.py --build build/release
  links.py --workers 4 --rate 200 --aggregator 800,200 --mib 32
  links.py --order --workers 4 --forward 50
"""

import argparse
import itertools
import json
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "allreduce"))
from allreduce import (
    Case,
    finish,
    median_round,
    numbers,
    running_basind,
    start,
    start_worker,
)

HERE = Path(__file__).resolve().parent
PREFIX = "basin-links-"  # The names of the namespaces begin with it; the process follows.
ADDRESS = "10.78.0.{}"
BUCKET = 256 << 10
GRADIENTS = 0.92  # The part of a rate that is left for them.
EMBEDDING_FIRST = [8192] + [64, 128, 192, 256] * 5


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
    """A switch and its cables. Host 0 is the aggregator, host i worker i - 1."""

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


@contextmanager
def aggregator(net: Network, options: argparse.Namespace) -> Iterator[str]:
    """The address of a basind at the first host."""
    with running_basind(
        options.build,
        "--grpc-insecure=true",
        *options.basind.split(),
        within=net.at(0),
        listen=f"{ADDRESS.format(1)}:29600",
    ) as (_, address):
        yield address


def basin(net: Network, options: argparse.Namespace, workers: int, streams: int) -> float:
    case = Case(options.build, workers, options.mib << 20, options.rounds, streams)
    with aggregator(net, options) as address:
        trainers = [
            start_worker(case, address, rank, within=net.at(1 + rank), BASIN_INSECURE="true")
            for rank in range(workers)
        ]
        return median_round(finish(trainers))


def gloo(net: Network, options: argparse.Namespace, workers: int, _: int) -> float:
    with tempfile.TemporaryDirectory() as folder:
        trainers = [
            start(
                [
                    *net.at(1 + worker),
                    sys.executable,
                    str(HERE.parent / "allreduce" / "gloo_worker.py"),
                    f"--store={folder}/store",
                    f"--rank={worker}",
                    f"--workers={workers}",
                    f"--bytes={options.mib << 20}",
                    f"--rounds={options.rounds}",
                ],
                GLOO_SOCKET_IFNAME="eth0",
            )
            for worker in range(workers)
        ]
        return median_round(finish(trainers))


def sockets(net: Network, options: argparse.Namespace, workers: int, streams: int) -> float:
    star = str(options.build / "allreduce" / "socket_star")
    shape = [
        f"--address={ADDRESS.format(1)}",
        f"--streams={streams}",
        f"--bytes={options.mib << 20}",
        f"--rounds={options.rounds}",
        f"--block={BUCKET}",
        f"--buffer={options.buffer << 10}",
    ]
    hub = start([*net.at(0), star, "hub", f"--workers={workers}", *shape])
    assert hub.stdout is not None
    port = hub.stdout.readline().strip()
    command = [star, "worker", f"--port={port}", *shape]
    trainers = [start([*net.at(1 + worker), *command]) for worker in range(workers)]
    return median_round(finish([*trainers, hub]))


def train(net: Network, options: argparse.Namespace, workers: int, *of_worker: str) -> list[float]:
    """The seconds of the columns of --order."""
    with aggregator(net, options) as address:
        trainers = [
            start(
                [
                    *net.at(1 + rank),
                    sys.executable,
                    str(HERE / "order_worker.py"),
                    f"--address={address}",
                    f"--rank={rank}",
                    f"--workers={workers}",
                    f"--streams={options.streams}",
                    f"--steps={options.rounds}",
                    f"--kib={','.join(str(kib) for kib in options.kib)}",
                    *of_worker,
                ],
                BASIN_INSECURE="true",
                BASIN_LIBRARY=str(options.build / "client" / "c" / "libbasin.so.2"),
            )
            for rank in range(workers)
        ]
        reports = [json.loads(line) for line in finish(trainers)]
    return [
        statistics.median(max(step) for step in zip(*(report[column] for report in reports)))
        for column in ("seconds", "first", "without_verdict")
    ]


def print_order(options: argparse.Namespace) -> None:
    print("| workers | aggregator | forward | rounds | first goes | step | first layer ", end="")
    print("| without a verdict |")
    print("|---|---|---|---|---|---|---|---|")
    for workers in options.workers:
        for aggregator in options.aggregator or [workers * options.rate, options.rate]:
            down = options.down or options.rate
            rates = [(aggregator, aggregator)] + [(options.rate, down)] * workers
            share = min(options.rate, aggregator / workers) * 1e6 / 8
            for forward, rounds, order in itertools.product(
                options.forward, ("one", "each"), ("last", "first")
            ):
                with network(rates) as net:
                    columns = train(
                        net,
                        options,
                        workers,
                        f"--backward={forward * 2e-3}",
                        f"--forward={forward * 1e-3}",
                        f"--rounds={rounds}",
                        f"--order={order}",
                        f"--rate={share * GRADIENTS}",
                    )
                cells = " | ".join(f"{column * 1e3:.0f}" for column in columns)
                case = f"| {workers} | {aggregator} | {forward} | {rounds} | {order}"
                print(f"{case} | {cells} |", flush=True)


def print_rounds(options: argparse.Namespace) -> None:
    programs = {"basin": basin, "gloo": gloo, "sockets": sockets}
    print("| workers | Mbit/s up, down | aggregator | through | s per round | of the link |")
    print("|---|---|---|---|---|---|")
    for workers in options.workers:
        for aggregator in options.aggregator or [workers * options.rate, options.rate]:
            down = options.down or options.rate
            rates = [(aggregator, aggregator)] + [(options.rate, down)] * workers
            bits = options.mib * (8 << 20) / 1e6
            least = max(bits / options.rate, bits / down, workers * bits / aggregator)
            for name in options.only.split(","):
                with network(rates) as net:
                    seconds = programs[name](net, options, workers, options.streams)
                links = f"| {workers} | {options.rate}, {down} | {aggregator}"
                print(f"{links} | {name} | {seconds:.2f} | {seconds / least:.2f} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--build", type=Path, default=Path("build/release"))
    parser.add_argument("--workers", type=numbers, default=[4, 8])
    parser.add_argument("--rate", type=int, default=200, help="Mbit/s of a worker's cable")
    parser.add_argument("--down", type=int, help="the same towards the worker, if another")
    parser.add_argument(
        "--aggregator", type=numbers, help="Mbit/s of its cable (default: N times, and once)"
    )
    parser.add_argument("--mib", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--streams", type=int, default=2)
    parser.add_argument("--order", action="store_true", help="measure that instead")
    parser.add_argument(
        "--kib", type=numbers, default=EMBEDDING_FIRST, help="--order: of each layer, by commas"
    )
    parser.add_argument(
        "--forward",
        type=numbers,
        default=[50, 150],
        help="--order: ms; a backward takes twice as long",
    )
    parser.add_argument(
        "--only",
        default="basin,gloo",
        help="basin, gloo or sockets, by commas (default: %(default)s)",
    )
    parser.add_argument(
        "--buffer",
        type=int,
        default=0,
        help="sockets: KiB that a socket holds (default: the kernel decides)",
    )
    parser.add_argument("--basind", default="", help="more flags for it, by spaces")
    parser.add_argument(
        "--can-run", action="store_true", help="only say whether this machine can have such links"
    )
    options = parser.parse_args()
    options.build = options.build.resolve()
    # Leaves the context managers, which end the processes and remove the namespaces.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    why_not = missing()
    if options.can_run:
        print(why_not)
        sys.exit(1 if why_not else 0)
    if why_not:
        raise SystemExit(f"links: {why_not}")
    (print_order if options.order else print_rounds)(options)


if __name__ == "__main__":
    main()
