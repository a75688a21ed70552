#!/usr/bin/env python3
# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""Rounds of many workers with real bytes on one aggregator.

A round of N workers moves N contributions to the aggregator and N results back, and reads N
contributions, so its time divided by N stays the same as long as the number of workers by itself
costs nothing. "MiB" is the most memory that basind had, beside what the contributions of a round
have. Workers are threads, 16 in a process.

examples:
  many.py --build build/release
  many.py --workers 4,64 --kib 1 --rounds 100
"""

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "allreduce"))
from allreduce import Case, cpu_of, finish, median_round, numbers, running_basind, start_worker

IN_A_PROCESS = 16


def peak_mib(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) >> 10
    raise SystemExit("many: this kernel does not count the memory of a process")


def measure(options: argparse.Namespace, workers: int, local: str) -> str:
    case = Case(options.build, workers, options.kib << 10, options.rounds)
    with running_basind(options.build, f"--local-listen={local}") as (aggregator, address):
        clients = min(IN_A_PROCESS, workers)
        processes = [
            start_worker(case, address, process, f"--clients={clients}")
            for process in range(workers // clients)
        ]
        seconds = median_round(finish(processes))
        rounds = options.rounds + 1  # The warm-up is in what the process has used.
        cpu = cpu_of(aggregator.pid) * 1e3 / rounds / workers
        return (
            f"| {workers} | {'memory' if local == 'auto' else 'network'} | {seconds * 1e3:.1f} "
            f"| {seconds * 1e3 / workers:.2f} | {cpu:.2f} "
            f"| {peak_mib(aggregator.pid)} | {(workers * case.bytes) >> 20} |"
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--build", type=Path, default=Path("build/release"))
    parser.add_argument(
        "--workers", type=numbers, default=[4, 16, 64, 256], help="multiples of 16 above 16"
    )
    parser.add_argument("--kib", type=int, default=4096, help="of the model")
    parser.add_argument("--rounds", type=int, default=5, help="that are counted, after one")
    parser.add_argument("--through", default="auto,none", help="values of local.listen")
    options = parser.parse_args()
    print("| workers | through | ms per round | ms / workers | CPU ms of basind / workers ", end="")
    print("| MiB of basind | MiB of contributions |")
    print("|---|---|---|---|---|---|---|")
    for local in options.through.split(","):
        for workers in options.workers:
            print(measure(options, workers, local), flush=True)


if __name__ == "__main__":
    main()
