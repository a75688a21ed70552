#!/usr/bin/env python3
# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""All-reduce of f32 between real processes on loopback: Basin and its references in one run.

  basin      basind and workers on the C++ client, which share memory with it
  registered the same with gradients in memory of basin_allocate and results that are not copied
  network    the same without shared memory, as between machines
  gloo       torch.distributed with Gloo: a ring, which moves fewer bytes
  grpc       the messages of a hub over gRPC alone, without arithmetic, checksums or a protocol
  sockets    the bytes of a hub over bare TCP sockets: the lowest cost of a hub
  kept       like sockets, but the hub keeps what it receives, in separate memory per connection
  memory     a hub over bare shared memory, with copies, arithmetic and checksums as Basin has them
  uncopied   the same for gradients and results that trainers keep in that memory

For each it prints the bandwidth as a trainer sees it (bytes of one model per second of a round, the
median of the rounds), the wire bandwidth, and the CPU seconds of all processes per GB on the wire.
All processes share the machine, so bandwidth also depends on its cores; only the ratios are
meaningful.

With --latency it prints the time of a round of 1 KiB instead, and that of gRPC alone: the same
exchange with one phase (send, receive when all have sent) and with two (like Basin: also
acknowledge the result, and receive a notice that all have it); and that of Gloo, whose ring has one
phase and no membership.

examples:
  allreduce.py --build build/release
  allreduce.py --build build/release --workers 2 --mib 64 --only basin,sockets
  allreduce.py --build build/release --latency --rounds 2000
  allreduce.py --build build/release --aggregator build/sid --within .cache/sid/root --only network
"""

import argparse
import contextlib
import functools
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
STREAMS = 2


@dataclass
class Case:
    build: Path
    workers: int
    bytes: int
    rounds: int
    streams: int = STREAMS
    aggregator: Path | None = None  # A build whose basind is used instead,
    within: tuple[str, ...] = ()  # and a command that runs it.


@dataclass
class Result:
    seconds: float  # In the median round.
    slow_seconds: float  # In the round than which 1 % are slower.
    cpu_seconds: float  # All processes, per round.
    hub_cpu_seconds: float  # The hub's part; for a ring, that of its last process.
    wire_bytes: float  # Per round, by all senders.

    def row(self, name: str, case: Case) -> str:
        return (
            f"| {case.workers} | {case.bytes >> 20} MiB | {name} "
            f"| {case.bytes / self.seconds / 1e9:.2f} "
            f"| {self.wire_bytes / self.seconds / 1e9:.2f} "
            f"| {self.cpu_seconds / (self.wire_bytes / 1e9):.3f} |"
        )


def seconds_of_rounds(lines: list[str]) -> list[float]:
    """A round ends when its slowest process has ended it."""
    return [max(each) for each in zip(*(json.loads(line)["seconds"] for line in lines))]


def median_round(lines: list[str]) -> float:
    return statistics.median(seconds_of_rounds(lines))


def summary(lines: list[str], case: Case, wire_bytes: float) -> Result:
    """Combines the output of the processes, the hub's last."""
    reports = [json.loads(line) for line in lines]
    seconds = sorted(seconds_of_rounds(lines))
    return Result(
        seconds=statistics.median(seconds),
        slow_seconds=seconds[len(seconds) * 99 // 100],
        cpu_seconds=sum(report["cpu_seconds"] for report in reports) / case.rounds,
        hub_cpu_seconds=reports[-1]["cpu_seconds"] / case.rounds,
        wire_bytes=wire_bytes,
    )


def star_bytes(case: Case) -> float:
    return 2.0 * case.workers * case.bytes


def finish(processes: list[subprocess.Popen[str]]) -> list[str]:
    """The last line of each process. Kills those that are left when one fails, or when this is
    interrupted."""
    lines = []
    try:
        for process in processes:
            out, _ = process.communicate(timeout=600)
            if process.returncode != 0:
                raise SystemExit(f"allreduce: {process.args!r} failed with {process.returncode}")
            lines.append(out.strip().splitlines()[-1])
    finally:
        for process in processes:
            process.kill()
    return lines


def start(command: list[str], **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env={**os.environ, **environment}
    )


def nothing(*_: object) -> None:
    pass


def run_star(
    program: str,
    case: Case,
    *arguments: str,
    started: Callable[[list[int]], None] = nothing,
) -> Result:
    """`started` receives the processes, the hub first."""
    binary = str(case.build / "allreduce" / program)
    shape = [
        f"--streams={case.streams}",
        f"--bytes={case.bytes}",
        f"--rounds={case.rounds}",
        *arguments,
    ]
    hub = start([binary, "hub", f"--workers={case.workers}", *shape])
    assert hub.stdout is not None
    port = hub.stdout.readline().strip()
    workers = [start([binary, "worker", f"--port={port}", *shape]) for _ in range(case.workers)]
    started([hub.pid, *(worker.pid for worker in workers)])
    return summary(finish([*workers, hub]), case, star_bytes(case))


def run_sockets(case: Case) -> Result:
    return run_star("socket_star", case)


def run_kept(case: Case) -> Result:
    return run_star("socket_star", case, "--keep=1")


def run_memory(case: Case) -> Result:
    return run_star("memory_star", case, f"--workers={case.workers}")


def run_uncopied(case: Case) -> Result:
    return run_star("memory_star", case, f"--workers={case.workers}", "--copies=0")


def run_grpc(case: Case) -> Result:
    return run_star("grpc_star", case)


def run_gloo(case: Case) -> Result:
    with tempfile.TemporaryDirectory() as folder:
        workers = [
            start(
                [
                    sys.executable,
                    str(HERE / "gloo_worker.py"),
                    f"--store={folder}/store",
                    f"--rank={rank}",
                    f"--workers={case.workers}",
                    f"--bytes={case.bytes}",
                    f"--rounds={case.rounds}",
                ],
                GLOO_SOCKET_IFNAME="lo",
                OMP_NUM_THREADS="1",
            )
            for rank in range(case.workers)
        ]
        ring = 2.0 * (case.workers - 1) * case.bytes
        return summary(finish(workers), case, ring)


def cpu_of(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def loader_of(root: Path | None) -> tuple[str, ...]:
    """A command that runs a program with the libraries of another root, if there is one."""
    if root is None:
        return ()
    libraries = root / "usr/lib/x86_64-linux-gnu"
    return (str(libraries / "ld-linux-x86-64.so.2"), "--library-path", str(libraries))


def add_aggregator_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--aggregator", type=Path, help="a build whose basind is used instead")
    parser.add_argument("--within", type=Path, help="a root with the libraries of that basind")


@contextlib.contextmanager
def running_basind(
    build: Path,
    *arguments: str,
    within: Sequence[str] = (),
    listen: str = "127.0.0.1:0",
    http: str = "none",
    admin: str = "none",
    end: signal.Signals = signal.SIGKILL,
) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Yields the process, which `end` ends, and the address for workers. `within` is a command that
    runs it."""
    folder = tempfile.TemporaryDirectory()  # A killed process leaves its socket there.
    aggregator = start(
        [
            *within,
            str(build / "aggregator" / "basind" / "basind"),
            "serve",
            f"--grpc-listen={listen}",
            f"--admin-listen={admin}",
            f"--http-listen={http}",
            *arguments,
        ],
        TMPDIR=folder.name,
    )
    try:
        assert aggregator.stdout is not None
        for line in aggregator.stdout:
            if addresses := json.loads(line).get("addresses"):
                break
        else:
            raise SystemExit("allreduce: basind ended before it served")
        yield aggregator, addresses["grpc"]
    finally:
        aggregator.send_signal(end)
        aggregator.communicate()
        folder.cleanup()


def start_worker(
    case: Case,
    address: str,
    rank: int,
    *arguments: str,
    within: Sequence[str] = (),
    **environment: str,
) -> subprocess.Popen[str]:
    return start(
        [
            *within,
            str(case.build / "allreduce" / "basin_worker"),
            f"--address={address}",
            f"--worker=w{rank}",
            f"--workers={case.workers}",
            f"--streams={case.streams}",
            f"--bytes={case.bytes}",
            f"--rounds={case.rounds}",
            *arguments,
        ],
        **environment,
    )


THROUGH_MEMORY = ("--local-listen=auto",)
THROUGH_NETWORK = ("--local-listen=none",)


def run_basin(
    case: Case,
    started: Callable[[list[int]], None] = nothing,
    ended: Callable[[], None] = nothing,
    arguments: tuple[str, ...] = THROUGH_MEMORY,
    of_worker: tuple[str, ...] = (),
) -> Result:
    """`started` receives the processes, basind first; `ended` is called before basind is killed."""
    build = case.aggregator or case.build
    with running_basind(build, *arguments, within=case.within) as (aggregator, address):
        workers = [start_worker(case, address, rank, *of_worker) for rank in range(case.workers)]
        started([aggregator.pid, *(worker.pid for worker in workers)])
        lines = finish(workers)
        ended()
        # Its CPU time includes the warm-up, which counts as one more round.
        cpu = cpu_of(aggregator.pid) * case.rounds / (case.rounds + 1)
        lines.append(json.dumps({"cpu_seconds": cpu, "seconds": [0] * case.rounds}))
        return summary(lines, case, star_bytes(case))


def run_network(case: Case) -> Result:
    return run_basin(case, arguments=THROUGH_NETWORK)


def run_registered(case: Case) -> Result:
    return run_basin(case, of_worker=("--uncopied=1",))


RUNNERS = {
    "basin": run_basin,
    "registered": run_registered,
    "network": run_network,
    "gloo": run_gloo,
    "grpc": run_grpc,
    "sockets": run_sockets,
    "kept": run_kept,
    "memory": run_memory,
    "uncopied": run_uncopied,
}


def print_bandwidth(options: argparse.Namespace) -> None:
    print("| workers | model | through | GB/s of a model | GB/s on the wire | CPU s per wire GB |")
    print("|---|---|---|---|---|---|")
    for workers in options.workers:
        for mib in options.mib:
            case = case_of(options, workers, mib << 20)
            for _ in range(options.repeats):
                for name in options.only.split(","):
                    print(RUNNERS[name](case).row(name, case), flush=True)


def case_of(options: argparse.Namespace, workers: int, size: int, streams: int = STREAMS) -> Case:
    within = loader_of(options.within)
    return Case(options.build, workers, size, options.rounds, streams, options.aggregator, within)


def print_latency(options: argparse.Namespace) -> None:
    print(
        "| workers | through | median round, us | 99 % below | CPU us of all processes per round |"
    )
    print("|---|---|---|---|---|")
    for workers in options.workers:
        case = case_of(options, workers, 1024, streams=1)
        for _ in range(options.repeats):
            measurements: dict[str, Callable[[], Result]] = {
                "basin": functools.partial(run_basin, case),
                "grpc, one phase": functools.partial(run_star, "grpc_star", case, "--phases=1"),
                "grpc, two phases": functools.partial(run_star, "grpc_star", case, "--phases=2"),
                "gloo": functools.partial(run_gloo, case),
            }
            for name, measure in measurements.items():
                if name.partition(",")[0] not in options.only.split(","):
                    continue
                result = measure()
                median, slow = result.seconds * 1e6, result.slow_seconds * 1e6
                cpu = result.cpu_seconds * 1e6
                print(f"| {workers} | {name} | {median:.0f} | {slow:.0f} | {cpu:.0f} |", flush=True)


def numbers(text: str) -> list[int]:
    return [int(part) for part in text.split(",")]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--build", type=Path, default=Path("build/release"))
    parser.add_argument("--workers", type=numbers, default=[2, 4])
    parser.add_argument("--mib", type=numbers, default=[64, 256])
    parser.add_argument("--rounds", type=int, default=7, help="that are counted, after one")
    parser.add_argument("--latency", action="store_true", help="of 1 KiB, instead of bandwidth")
    parser.add_argument("--repeats", type=int, default=1, help="of everything, in turns")
    parser.add_argument("--only", default=",".join(RUNNERS), help="which of: %(default)s")
    add_aggregator_options(parser)
    options = parser.parse_args()
    (print_latency if options.latency else print_bandwidth)(options)


if __name__ == "__main__":
    main()
