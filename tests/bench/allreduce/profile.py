#!/usr/bin/env python3
# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""Where the CPU time of an all-reduce goes: CPU seconds per GB on the wire, by purpose, of
basind and its workers, over the network or through shared memory, and of the hub of gRPC alone and
its workers.

Needs `perf`, and the right to use it (kernel.perf_event_paranoid). The shares are those of perf's
samples of the hub and of one worker, once they run; they are multiplied with the CPU time of the
hub and of all workers.

examples:
  profile.py --build build/release
  profile.py --build build/release --workers 4 --mib 64
  profile.py --build build/release --through memory
"""

import argparse
import collections
import signal
import subprocess
import tempfile
from pathlib import Path

from allreduce import THROUGH_MEMORY, THROUGH_NETWORK, Case, Result, run_basin, run_star

# A sample counts for the first row that matches its "symbol (object)".
ROWS = (
    ("copies between the kernel and the process", ("_copy_to_iter", "_copy_from_iter")),
    ("other copies", ("memmove", "memcpy", "CopyPastCache", "CopyLines")),
    ("norm of contributions", ("AddF32", "AddF64", "AddBF16", "AddSquares")),
    ("reduction", ("basin::kernels::cpu", "CpuReducer")),
    ("checksums and digests", ("libxxhash", "XXH3", "xxh3")),
    ("fresh pages", ("clear_page", "page_fault", "anonymous_page", "handle_mm_fault")),
    ("malloc and free", ("malloc", "cfree", "_int_free", "unlink_chunk")),
    # A virtual machine's timer attributes time without interrupts to where they are enabled again.
    (
        "switches and wake-ups",
        ("finish_task_switch", "futex", "schedule", "wake_up", "spin_unlock_irqrestore"),
    ),
    ("the rest of the kernel: TCP, loopback", ("kernel.kallsyms",)),
    ("gRPC", ("libgrpc", "libgpr", "libabsl", "libprotobuf", "grpc::", "absl::")),
)
REST = "the rest of Basin"
BETWEEN_ROUNDS = (" main (", "::Train (")


def row_of(sample: str) -> str:
    for name, marks in ROWS:
        if any(mark in sample for mark in marks):
            return name
    return REST


# By then the processes have completed their start.
BEGUN_MILLISECONDS = 500


class Profile:
    """The profiles of the hub and of the workers, in CPU seconds per GB on the wire, from a `perf
    record` of the whole machine: a record of one process would miss its later threads."""

    def __init__(self, data: Path) -> None:
        self._data = data
        self._recorder: subprocess.Popen[bytes] | None = None
        self._pids: list[int] = []

    def started(self, pids: list[int]) -> None:
        self._pids = pids[:2]  # The hub and one of the workers.
        command = ["perf", "record", "-q", "-a", "-F", "1999", f"--delay={BEGUN_MILLISECONDS}"]
        self._recorder = subprocess.Popen([*command, "-o", str(self._data)])

    def ended(self) -> None:
        assert self._recorder is not None
        self._recorder.send_signal(signal.SIGINT)
        self._recorder.wait()

    def _shares(self, pid: int) -> dict[str, float]:
        """The shares by row, which add up to 1."""
        command = ["perf", "script", "-i", str(self._data), f"--pid={pid}", "-F", "ip,sym,dso"]
        samples = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        # The work of a worker between two rounds is excluded.
        lines = [
            line
            for line in samples.splitlines()
            if line.strip() and not any(each in line for each in BETWEEN_ROUNDS)
        ]
        counts = collections.Counter(row_of(line) for line in lines)
        return {row: count / counts.total() for row, count in counts.items()}

    def columns(self, result: Result) -> list[dict[str, float]]:
        seconds = [result.hub_cpu_seconds, result.cpu_seconds - result.hub_cpu_seconds]
        return [
            {row: share * each / (result.wire_bytes / 1e9) for row, share in shares.items()}
            for shares, each in zip(map(self._shares, self._pids), seconds)
        ]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--build", type=Path, default=Path("build/release"))
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--mib", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--through", choices=("network", "memory"), default="network")
    options = parser.parse_args()

    case = Case(options.build, options.workers, options.mib << 20, options.rounds)
    with tempfile.TemporaryDirectory() as folder:
        ours, star = Profile(Path(folder) / "ours"), Profile(Path(folder) / "star")
        arguments = THROUGH_NETWORK if options.through == "network" else THROUGH_MEMORY
        columns = ours.columns(run_basin(case, ours.started, ours.ended, arguments))
        result = run_star("grpc_star", case, started=star.started)
        star.ended()
        columns += star.columns(result)
    print("| what | basind | its workers | hub of gRPC alone | its workers |")
    print("|---|---|---|---|---|")
    for row in (*(name for name, _ in ROWS), REST):
        print(f"| {row} | " + " | ".join(f"{each.get(row, 0):.3f}" for each in columns) + " |")
    print("| all | " + " | ".join(f"{sum(each.values()):.3f}" for each in columns) + " |")


if __name__ == "__main__":
    main()
