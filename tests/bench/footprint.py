# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""The cost of a worker for its trainer's process: memory, threads, descriptors, idle CPU time.

Usage: footprint.py BASIND LIBBASIN [--seconds S] [--mib M]

Loads the library into this process, joins a job of one worker, waits, and takes part in rounds of
one float32 tensor. Memory is from /proc/self/status: private (RssAnon), and mapped from files
(RssFile), which processes share. The tensor itself belongs to the trainer and is not counted.
"""

import argparse
import ctypes
import json
import os
import re
import resource
import runpy
import select
import subprocess
import time
from ctypes import byref, c_uint32, c_uint64, c_void_p
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

MIB = 1 << 20
SECOND = 1_000_000_000
ROUNDS = 5
# Without the package, which would add to the memory.
DECLARATIONS = Path(__file__).resolve().parents[2] / "client/python/basin/_abi.py"
ABI = SimpleNamespace(**runpy.run_path(str(DECLARATIONS)))


@dataclass(frozen=True)
class Usage:
    private: float  # MiB
    mapped: float
    threads: int
    descriptors: int

    @staticmethod
    def now() -> "Usage":
        status = Path("/proc/self/status").read_text()

        def field(name: str) -> int:
            found = re.search(rf"^{name}:\s+(\d+)", status, re.MULTILINE)
            assert found is not None, name
            return int(found.group(1))

        return Usage(
            field("RssAnon") / 1024,
            field("RssFile") / 1024,
            field("Threads"),
            len(os.listdir("/proc/self/fd")),
        )


class Worker:
    """A worker of a job of one, through the C interface."""

    def __init__(self, library: ctypes.CDLL, address: str) -> None:
        self._library = library
        for name, result, arguments in ABI.FUNCTIONS:
            function = getattr(library, "basin_" + name)
            function.restype, function.argtypes = result, arguments
        options = library.basin_options_new(0)
        for key, value in (("address", address), ("worker_id", "w"), ("fresh", "true")):
            self._call("options_set", options, key.encode(), value.encode())
        self._worker = c_void_p()
        self._call("connect", options, byref(self._worker))
        library.basin_options_free(options)

    def join(self, elements: int) -> None:
        tensor = ABI.Tensor(b"gradient", ABI.F32, 1, (c_uint64 * 1)(elements))
        self._lane, self._tensor = c_uint32(), c_uint32()
        self._bytes = 4 * elements
        handles = byref(self._lane), byref(self._tensor)
        self._call("register", self._worker, b"model", ABI.GRADIENT, byref(tensor), 1, *handles)
        self._call("ready", self._worker, 0, 0)
        self._call("await_member", self._worker, 60 * SECOND)

    def round(self, memory: int) -> None:
        spec = ABI.RoundSpec(ctypes.sizeof(ABI.RoundSpec), ABI.SUM, 1, 1, 1, loss_scale=1)
        spec.samples = spec.tokens = spec.micro_batches = -1
        buffer = ABI.Buffer(self._tensor, memory, memory, self._bytes)
        arguments = (self._lane, byref(spec), byref(buffer), 1, 60 * SECOND, None)
        self._call("allreduce", self._worker, *arguments)

    def close(self) -> None:
        self._call("leave", self._worker)
        self._library.basin_close(self._worker)

    def _call(self, name: str, *arguments: object) -> None:
        error = c_void_p()
        if getattr(self._library, "basin_" + name)(*arguments, byref(error)) != 0:
            raise SystemExit(self._library.basin_error_message(error).decode())


def shared_objects() -> set[Path]:
    lines = Path("/proc/self/maps").read_text().splitlines()
    return {Path(line.split()[-1]) for line in lines if ".so" in line.split()[-1]}


def cpu_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def start_aggregator(program: str) -> tuple["subprocess.Popen[str]", str]:
    quiet = ("--admin-listen=none", "--http-listen=none", "--local-listen=none")
    aggregator = subprocess.Popen(
        [program, "serve", "--grpc-listen=127.0.0.1:0", *quiet], stdout=subprocess.PIPE, text=True
    )
    assert aggregator.stdout is not None
    for line in aggregator.stdout:
        if addresses := json.loads(line).get("addresses"):
            return aggregator, addresses["grpc"]
    raise SystemExit(f"{program} ended.")


def show(what: str, before: Usage, after: Usage, more: str = "") -> None:
    print(
        f"{what:<26}{after.private - before.private:+7.1f} MiB private,"
        f"{after.mapped - before.mapped:+6.1f} MiB mapped{more}"
    )


def measure(
    library: Path, aggregator: "subprocess.Popen[str]", address: str, seconds: float, mib: int
) -> None:
    known = shared_objects()
    start = Usage.now()
    loaded = ctypes.CDLL(str(library))
    objects = shared_objects() - known
    size = sum(path.stat().st_size for path in objects) / MIB
    print(f"{library.name}: {library.stat().st_size / MIB:.1f} MiB on disk; with what it needs")
    print(f"beyond Python's own, {len(objects)} shared objects of {size:.1f} MiB")
    show("loaded", start, Usage.now())

    worker = Worker(loaded, address)
    worker.join(mib * MIB // 4)
    member = Usage.now()
    threads, descriptors = member.threads - start.threads, member.descriptors - start.descriptors
    show("member of a job", start, member, f", {threads} threads, {descriptors} descriptors")

    cpu, begun = cpu_seconds(), time.monotonic()
    # Idle for this time, unless the aggregator ends. (Its wait() would poll 20 times a second.)
    ended, _, _ = select.select([os.pidfd_open(aggregator.pid)], [], [], seconds)
    if ended:
        raise SystemExit("The aggregator ended.")
    took = time.monotonic() - begun
    share = 1000 * (cpu_seconds() - cpu) / took
    idle = Usage.now()
    show("idle", start, idle, f", {share:.2f} ms of CPU a second, over {took:.0f} s")

    memory = ctypes.create_string_buffer(mib * MIB)
    ctypes.memset(memory, 0, mib * MIB)
    before = Usage.now()
    for _ in range(ROUNDS):
        worker.round(ctypes.addressof(memory))
    after = Usage.now()
    show(f"after {ROUNDS} rounds of {mib} MiB", before, after)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"{'at most, meanwhile':<26}{peak - before.private - before.mapped:+7.1f} MiB")
    worker.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("basind")
    parser.add_argument("library", type=Path)
    parser.add_argument("--seconds", type=float, default=10, help="how long it is idle")
    parser.add_argument("--mib", type=int, default=64, help="of the tensor")
    arguments = parser.parse_args()
    aggregator, address = start_aggregator(arguments.basind)
    try:
        library = arguments.library.resolve()
        measure(library, aggregator, address, arguments.seconds, arguments.mib)
    finally:
        aggregator.kill()
        aggregator.communicate()


if __name__ == "__main__":
    main()
