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

With --shards it measures one aggregator with so many shards, itself included, each with a cable of
the workers' rate of its own, and with --beside one cable for each pair of a worker and a shard.
With --backward it measures steps in which the layers come one after the other.

"sockets" moves the same bytes in the same pattern over bare TCP, in blocks of 256 KiB: what a star
can have on these links.

Needs root, and the programs ip and tc.

examples:
  links.py --build build/release
  links.py --workers 4 --rate 200 --aggregator 800,200 --mib 32
  links.py --order --workers 4 --forward 50
  links.py --shards 1,2,4,8 --workers 8 --mib 64
  links.py --shards 8 --beside --workers 8 --mib 64
  links.py --shards 8 --workers 8 --mib 64 --only sockets --window 1024
  links.py --shards 4 --workers 4 --rate 100 --mib 32 --backward 3000
"""

import argparse
import itertools
import json
import signal
import statistics
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "allreduce"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "cables"))
from allreduce import (
    Case,
    finish,
    median_round,
    numbers,
    running_basind,
    start,
    start_worker,
)
from cables import ADDRESS, BUCKET, Network, missing, network
from shard_rounds import print_shards, print_steps

HERE = Path(__file__).resolve().parent
GRADIENTS = 0.92  # The part of a rate that is left for them.
EMBEDDING_FIRST = [8192] + [64, 128, 192, 256] * 5


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
    parser.add_argument("--shards", type=numbers, help="measure with so many instead, by commas")
    parser.add_argument(
        "--beside", action="store_true", help="--shards: each shares the cable of a worker"
    )
    parser.add_argument(
        "--backward", type=int, help="--shards: ms of a step in which layers of 1 MiB are pushed"
    )
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
    parser.add_argument(
        "--window",
        type=int,
        default=0,
        help="--shards, sockets: KiB sent to a hub ahead of what came from it, at least 256 for "
        "each stream (default: any)",
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
    if options.shards and options.backward:
        print_steps(options)
    elif options.shards:
        print_shards(options)
    elif options.order:
        print_order(options)
    else:
        print_rounds(options)


if __name__ == "__main__":
    main()
