#!/usr/bin/env python3
# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""Instructions of the client and of the aggregator for each MB of a gradient and for each small
tensor, counted by callgrind, and those of Python's interpreter in basin.torch: numbers that do not
depend on how busy the machine is.

A job of two workers runs twice, with few rounds and with many, so that what happens once cancels
out. One of its processes runs in callgrind; the others run as usual.

  client      a worker's process: copies, checksums, protocol, gRPC
  aggregator  basind, for the two workers together
  per MB      one tensor of 8 MiB
  per tensor  400 tensors of 4 KiB, which go in batches
  hooks       what basin.torch executes for each of 200 small tensors in a step, which depends on
              the version of Python

With --check the numbers are compared with those in expected.json: 5 % more fails. A change that is
meant to cost more, or that costs less, changes that file by --write.

examples:
  instructions.py --build build/release
  instructions.py --build build/release --check
"""

import argparse
import json
import re
import shutil
import signal
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "allreduce"))
from allreduce import Case, finish, running_basind, start, start_worker

HERE = Path(__file__).resolve().parent
EXPECTED = HERE / "expected.json"
TOLERANCE = 0.05
WORKERS = 2
FEW, MANY = 3, 15
REPEATS = 3  # The least of them counts: how often a thread wakes is up to the machine.
MIB = 8
TENSORS, TENSOR_BYTES = 400, 4096


def count_in(out: Path) -> int:
    found = re.search(r"^(?:summary|totals): (\d+)", out.read_text(), re.MULTILINE)
    if found is None:
        raise SystemExit(f"instructions: callgrind wrote no total into {out}")
    return int(found[1])


def count(build: Path, counted: str, rounds: int, tensors: int, size: int, shared: bool) -> int:
    """Instructions of one process of a job with so many rounds of tensors of `size` bytes."""
    case = Case(build, WORKERS, tensors * size, rounds)
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "callgrind.out"
        callgrind = ("valgrind", "--tool=callgrind", "-q", f"--callgrind-out-file={out}")
        # It writes its numbers when the process ends by itself.
        with running_basind(
            build,
            f"--local-listen={'auto' if shared else 'none'}",
            "--worker-lease=10m",
            within=callgrind if counted == "aggregator" else (),
            end=signal.SIGTERM,
        ) as (_, address):
            workers = [
                start_worker(
                    case,
                    address,
                    rank,
                    f"--tensors={tensors}",
                    within=callgrind if counted == "client" and rank == 0 else (),
                )
                for rank in range(WORKERS)
            ]
            finish(workers)
        return count_in(out)


def count_hooks(build: Path) -> float:
    with running_basind(build) as (_, address):
        workers = [
            start(
                [
                    sys.executable,
                    str(HERE / "hooks_worker.py"),
                    f"--address={address}",
                    f"--rank={rank}",
                    f"--workers={WORKERS}",
                ],
                BASIN_LIBRARY=str(build / "client" / "c" / "libbasin.so.2"),
            )
            for rank in range(WORKERS)
        ]
        return min(json.loads(line)["instructions"] for line in finish(workers))


def measure(build: Path) -> dict[str, int]:
    name = f"hooks per tensor, Python {sys.version_info.major}.{sys.version_info.minor}"
    numbers = {name: round(count_hooks(build))}
    print(f"| {name} | {numbers[name]:,} |", flush=True)
    for path, shared in (("network", False), ("shared memory", True)):
        for counted in ("client", "aggregator"):
            for unit, tensors, size, units in (
                ("MB", 1, MIB << 20, (MIB << 20) / 1e6),
                ("tensor", TENSORS, TENSOR_BYTES, TENSORS),
            ):
                few, many = (
                    min(
                        count(build, counted, rounds, tensors, size, shared) for _ in range(REPEATS)
                    )
                    for rounds in (FEW, MANY)
                )
                per_unit = (many - few) / (MANY - FEW) / units
                name = f"{counted} per {unit}, {path}"
                numbers[name] = round(per_unit)
                print(f"| {name} | {per_unit:,.0f} |", flush=True)
    return numbers


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--build", type=Path, default=Path("build/release"))
    parser.add_argument("--check", action="store_true", help="fail if a number has grown by 5 %%")
    parser.add_argument("--write", action="store_true", help="write the numbers to expected.json")
    options = parser.parse_args()
    if shutil.which("valgrind") is None:
        raise SystemExit("instructions: valgrind is not installed (package valgrind)")
    print("| instructions | of this build |")
    print("|---|---|")
    numbers = measure(options.build.resolve())
    if options.write:
        EXPECTED.write_text(json.dumps(numbers, indent=2) + "\n")
    if options.check:
        expected = json.loads(EXPECTED.read_text())
        grown = [
            f"{name}: {numbers[name]:,} where {was:,} were expected"
            for name, was in expected.items()
            if name in numbers and numbers[name] > was * (1 + TOLERANCE)
        ]
        for name in expected.keys() - numbers.keys():
            print(f"not compared: {name}, which this run does not have")
        if grown:
            raise SystemExit("instructions: more than 5 % more: " + "; ".join(grown))


if __name__ == "__main__":
    main()
