# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""Rounds with shards, over links of one rate: the part of links.py for --shards.

Shard 0 is the aggregator. By itself each shard has a host of its own, and so has each worker;
beside a worker, shard i is at the host of worker i, so both share its cable.

"of the bound" is the time of a round over the one that no placement of equal parts can be faster
than: the busiest cable's bytes in one direction over its rate. Without others on its cable, a
worker's has one model, and a shard's one S-th of all workers' models. Beside a worker, what stays
on the host needs no cable. "of a ring's" is the same over the bound of a ring of the workers,
2 (N - 1) / N models. "cores" are the processors in use meanwhile, by everything on the machine: a
number near that of the machine's processors says that they were the limit, not the cables.

With --only sockets it moves the same bytes in the same pattern over bare TCP, with a hub for each
shard: what shards can have on these links. --window bounds what a worker sends to a hub ahead of
what it has received from it.

With --backward each worker pushes the layers of a model, the last one first, over so many
milliseconds. The bound is that of the bytes alone.
"""

import argparse
import json
import os
import statistics
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from allreduce import Case, cpu_of, finish, running_basind, seconds_of_rounds, start, start_worker
from cables import ADDRESS, BUCKET, Network, network

PORT = 29600
PORT_OF_SHARDS = 29700


@dataclass
class Hosts:
    """Which host has what."""

    workers: int
    shards: int
    beside: bool

    @property
    def count(self) -> int:
        return self.workers if self.beside else self.shards + self.workers

    def of_worker(self, rank: int) -> int:
        return rank if self.beside else self.shards + rank

    def models(self) -> float:
        """How many models the busiest cable carries in one direction."""
        if not self.beside:
            return max(1.0, self.workers / self.shards)
        # The worker's own for the other shards, and the results of its shard for the other workers.
        return (self.shards - 1) / self.shards + (self.workers - 1) / self.shards


@dataclass
class Measured:
    seconds: list[float]
    cores: float
    basind: list[float]  # The CPU seconds of each shard, the aggregator first.


@contextmanager
def running_shard(net: Network, host: int, options: argparse.Namespace) -> Iterator[int]:
    listen = f"{ADDRESS.format(host + 1)}:{PORT_OF_SHARDS}"
    shard = start(
        [
            *net.at(host),
            str(options.build / "aggregator" / "basind" / "basind"),
            "shard",
            f"--coordinator={ADDRESS.format(1)}:{PORT}",
            f"--name=s-{host}",
            f"--grpc-listen={listen}",
            "--grpc-insecure=true",
            "--http-listen=none",
        ]
    )
    try:
        yield shard.pid
    finally:
        shard.kill()
        shard.communicate()


def busy_seconds() -> float:
    """What all processors of the machine have worked so far."""
    fields = [int(field) for field in Path("/proc/stat").read_text().split("\n")[0].split()[1:]]
    idle = fields[3] + fields[4]
    return (sum(fields[:8]) - idle) / os.sysconf("SC_CLK_TCK")


def uptime() -> float:
    return float(Path("/proc/uptime").read_text().split()[0])


@contextmanager
def running(
    net: Network, hosts: Hosts, options: argparse.Namespace
) -> Iterator[tuple[str, list[int]]]:
    """The aggregator's address, and the processes of all shards, the aggregator first."""
    with ExitStack() as stack:
        aggregator, address = stack.enter_context(
            running_basind(
                options.build,
                "--grpc-insecure=true",
                *options.basind.split(),
                within=net.at(0),
                listen=f"{ADDRESS.format(1)}:{PORT}",
            )
        )
        pids = [aggregator.pid]
        for host in range(1, hosts.shards):
            pids.append(stack.enter_context(running_shard(net, host, options)))
        assert aggregator.stdout is not None
        for _ in range(1, hosts.shards):
            while json.loads(aggregator.stdout.readline())["event"] != "shard_up":
                pass
        yield address, pids


def measure(net: Network, hosts: Hosts, options: argparse.Namespace) -> Measured:
    case = Case(options.build, hosts.workers, options.mib << 20, options.rounds, options.streams)
    with running(net, hosts, options) as (address, pids):
        before, since = busy_seconds(), uptime()
        workers = [
            start_worker(
                case, address, rank, within=net.at(hosts.of_worker(rank)), BASIN_INSECURE="true"
            )
            for rank in range(hosts.workers)
        ]
        lines = finish(workers)
        cores = (busy_seconds() - before) / (uptime() - since)
        return Measured(seconds_of_rounds(lines), cores, [cpu_of(pid) for pid in pids])


def sockets(net: Network, hosts: Hosts, options: argparse.Namespace) -> Measured:
    star = str(options.build / "allreduce" / "socket_star")
    model = options.mib << 20
    shape = [
        f"--port={PORT}",
        f"--streams={options.streams}",
        f"--rounds={options.rounds}",
        f"--block={BUCKET}",
        f"--buffer={options.buffer << 10}",
    ]
    addresses = [ADDRESS.format(host + 1) for host in range(hosts.shards)]
    hub = [star, "hub", f"--workers={hosts.workers}", f"--bytes={model // hosts.shards}", *shape]
    hubs = [
        start([*net.at(host), *hub, f"--address={address}"])
        for host, address in enumerate(addresses)
    ]
    for started in hubs:
        assert started.stdout is not None
        started.stdout.readline()
    worker = [
        *(star, "worker", f"--address={','.join(addresses)}", f"--bytes={model}"),
        *(f"--window={options.window << 10}", *shape),
    ]
    before, since = busy_seconds(), uptime()
    workers = [start([*net.at(hosts.of_worker(rank)), *worker]) for rank in range(hosts.workers)]
    lines = finish(workers)
    cores = (busy_seconds() - before) / (uptime() - since)
    # A hub does not count the warm-up.
    whole = (options.rounds + 1) / options.rounds
    hub_seconds = [json.loads(line)["cpu_seconds"] * whole for line in finish(hubs)]
    return Measured(seconds_of_rounds(lines), cores, hub_seconds)


def train(net: Network, hosts: Hosts, options: argparse.Namespace) -> list[float]:
    """The seconds of steps whose backward pushes the layers, of 1 MiB each, one after the other."""
    trainer = str(Path(__file__).resolve().parents[1] / "links" / "order_worker.py")
    with running(net, hosts, options) as (address, _):
        workers = [
            start(
                [
                    *net.at(hosts.of_worker(rank)),
                    sys.executable,
                    trainer,
                    f"--address={address}",
                    f"--rank={rank}",
                    f"--workers={hosts.workers}",
                    f"--streams={options.streams}",
                    f"--steps={options.rounds}",
                    f"--kib={','.join(['1024'] * options.mib)}",
                    f"--backward={options.backward * 1e-3}",
                    "--forward=0",
                    "--rounds=one",
                    "--order=last",
                    # It pushes a layer as soon as it is there, whatever its cable has to send.
                    f"--rate={options.mib << 30}",
                ],
                BASIN_INSECURE="true",
                BASIN_LIBRARY=str(options.build / "client" / "c" / "libbasin.so.2"),
            )
            for rank in range(hosts.workers)
        ]
        reports = [json.loads(line) for line in finish(workers)]
    return [max(step) for step in zip(*(report["seconds"] for report in reports))]


def print_steps(options: argparse.Namespace) -> None:
    print("| workers | shards | MiB | Mbit/s | ms of the backward | bound, s | s per step |")
    print("|---|---|---|---|---|---|---|")
    for workers in options.workers:
        for shards in options.shards:
            hosts = Hosts(workers, shards, options.beside)
            with network([(options.rate, options.rate)] * hosts.count) as net:
                step = statistics.median(train(net, hosts, options))
            bound = hosts.models() * options.mib * (8 << 20) / 1e6 / options.rate
            print(
                f"| {workers} | {shards} | {options.mib} | {options.rate} | {options.backward} "
                f"| {bound:.2f} | {step:.2f} |",
                flush=True,
            )


def print_shards(options: argparse.Namespace) -> None:
    print("| workers | shards | MiB | Mbit/s | bound, s | s per round | of the bound ", end="")
    print("| of a ring's | cores | CPU s of basind per GB reduced |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    for workers in options.workers:
        for shards in options.shards:
            hosts = Hosts(workers, shards, options.beside)
            if hosts.beside and shards > workers:
                raise SystemExit(f"links: {shards} shards beside {workers} workers")
            measured_by = sockets if options.only == "sockets" else measure
            with network([(options.rate, options.rate)] * hosts.count) as net:
                measured = measured_by(net, hosts, options)
            model = options.mib * (8 << 20) / 1e6 / options.rate  # Seconds.
            bound, ring = hosts.models() * model, 2 * (workers - 1) / workers * model
            median = statistics.median(measured.seconds)
            # The warm-up is one more round.
            reduced = workers * (options.mib << 20) / 1e9 * (options.rounds + 1)
            print(
                f"| {workers} | {shards} | {options.mib} | {options.rate} | {bound:.2f} "
                f"| {median:.2f} | {median / bound:.2f} | {median / ring:.2f} "
                f"| {measured.cores:.2f} | {sum(measured.basind) / reduced:.2f} |",
                flush=True,
            )
