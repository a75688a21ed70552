#!/usr/bin/env python3
# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""What the CPU does during an all-reduce: where perf's samples of basind and of one worker fall.

Needs `perf`, and the right to use it (kernel.perf_event_paranoid). A share is that of the process's
own CPU time.

examples:
  profile.py --build build/release
  profile.py --build build/release --workers 4 --mib 64
"""

import argparse
import collections
import signal
import subprocess
import tempfile
from pathlib import Path

from allreduce import Case, run_basin

# The first row that matches a sample's "symbol (object)" has it.
ROWS = (
    ("copies between the kernel and the process", ("_copy_to_iter", "_copy_from_iter")),
    ("other copies", ("memmove", "memcpy")),
    ("reduction", ("basin::kernels::cpu", "CpuReducer")),
    ("checksums and digests", ("libxxhash", "XXH3", "xxh3")),
    ("fresh pages", ("clear_page", "page_fault", "anonymous_page", "handle_mm_fault")),
    ("malloc and free", ("malloc", "cfree", "_int_free", "unlink_chunk")),
    ("switches and wake-ups", ("finish_task_switch", "futex", "schedule", "wake_up")),
    ("the rest of the kernel: TCP, loopback", ("kernel.kallsyms",)),
    ("gRPC", ("libgrpc", "libgpr", "libabsl", "libprotobuf", "grpc::", "absl::")),
)
REST = "the rest of Basin"


def row_of(sample: str) -> str:
    for name, marks in ROWS:
        if any(mark in sample for mark in marks):
            return name
    return REST


class Recorder:
    """A `perf record` of one process."""

    def __init__(self, pid: int, data: Path) -> None:
        self._data = data
        command = ["perf", "record", "-q", "-F", "1999", "-o", str(data), "-p", str(pid)]
        self._process = subprocess.Popen(command, stderr=subprocess.DEVNULL)

    def shares(self) -> dict[str, float]:
        """Stops it. By row; they add up to 1."""
        self._process.send_signal(signal.SIGINT)
        self._process.wait()
        command = ["perf", "script", "-i", str(self._data), "-F", "ip,sym,dso"]
        samples = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        counts = collections.Counter(row_of(line) for line in samples.splitlines() if line.strip())
        return {row: count / counts.total() for row, count in counts.items()}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--build", type=Path, default=Path("build/release"))
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--mib", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args()

    case = Case(options.build, options.workers, options.mib << 20, options.rounds)
    shares: list[dict[str, float]] = []
    with tempfile.TemporaryDirectory() as folder:
        recorders: list[Recorder] = []

        def started(pids: list[int]) -> None:
            recorders.extend(Recorder(pid, Path(folder) / str(pid)) for pid in pids[:2])

        def ended() -> None:
            shares.extend(recorder.shares() for recorder in recorders)

        run_basin(case, started, ended)
    print("| what | basind | worker |")
    print("|---|---|---|")
    for row in (*(name for name, _ in ROWS), REST):
        print(f"| {row} | {shares[0].get(row, 0):.0%} | {shares[1].get(row, 0):.0%} |")


if __name__ == "__main__":
    main()
