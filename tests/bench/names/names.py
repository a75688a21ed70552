#!/usr/bin/env python3
# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""What a call under a fresh name costs, against one under a name that all workers have used.

Workers on this machine make calls of --bytes, one after the other, through basin.connect(): in
turns, some under one name and as many under names that were never used. A fresh name has to be
registered by each worker before its round. There are more than half of limits.lane_names before the
first turn, so that an idle name is let go for each fresh one. It prints the time of a call with
either, the median of the turns, and the ratio.

examples:
  names.py --build build/release
  names.py --calls 1000 --turns 2
  names.py --workers 4 --bytes 65536
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "allreduce"))
from allreduce import finish, running_basind

WORKER = Path(__file__).resolve().parent / "names_worker.py"
NAMES = 1100  # More than half of the names that a job may have by default.


def start_worker(options: argparse.Namespace, address: str, rank: int) -> subprocess.Popen[str]:
    numbers = (rank, options.workers, options.bytes, options.calls, options.turns, NAMES)
    library = options.build.resolve() / "client" / "c" / "libbasin.so.2"
    return subprocess.Popen(
        [sys.executable, str(WORKER), address, *map(str, numbers)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "BASIN_LIBRARY": str(library)},
    )


def microseconds(lines: list[str], kind: str, calls: int) -> float:
    """One call in the median turn, which ends when the slowest worker has ended it."""
    turns = zip(*(json.loads(line)[kind] for line in lines))
    return statistics.median(max(turn) for turn in turns) / calls * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--build", type=Path, default=Path("build/release"))
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--bytes", type=int, default=1024, help="of a call: a multiple of 4")
    parser.add_argument("--calls", type=int, default=5000, help="of each kind, in all turns")
    parser.add_argument("--turns", type=int, default=5)
    options = parser.parse_args()
    if options.bytes % 4 != 0 or not 0 < options.turns <= options.calls:
        parser.error("--bytes is a multiple of 4, and each turn has a call")
    with running_basind(options.build) as (_, address):
        lines = finish([start_worker(options, address, rank) for rank in range(options.workers)])
    calls = options.calls // options.turns
    used, fresh = (microseconds(lines, kind, calls) for kind in ("used", "fresh"))
    print("| workers | bytes | calls | us, a used name | us, a fresh name | ratio |")
    print("|---|---|---|---|---|---|")
    print(
        f"| {options.workers} | {options.bytes} | {calls * options.turns} | {used:.0f} "
        f"| {fresh:.0f} | {fresh / used:.2f} |"
    )


if __name__ == "__main__":
    main()
