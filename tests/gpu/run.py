#!/usr/bin/env python3
# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""Trains with real processes on a GPU, and compares Basin with torch's DistributedDataParallel.

  results     averages of given gradients on the device, also sent as bfloat16 and float16, have the
              bits of those on the CPU
  plain       the losses and the final parameters of a convolutional network are those of DDP with
              the same data; the time of a step of both
  amp         the same in float16 with autocast and torch's GradScaler, whose first steps overflow
  accumulate  the same with two backwards for each step (backward_passes_per_step, no_sync)
  device      reduce.device cuda:0: results that stay in the memory of the GPU have the bits of
              reduce.device cpu
  group       BASIN_LOCAL_GROUP=auto: so have those of ranks that reduce with NCCL first
  expandable_segments, cudaMallocAsync
              "results" with these allocators of torch

DDP uses NCCL if that takes all ranks, and otherwise Gloo. Before 2.30 NCCL refuses two ranks on one
GPU; then the group is skipped, which is said. Without a CUDA device everything runs on the CPU:
Basin against Gloo, with reduce.device auto, and without the allocators of the device.

Needs torch, numpy, and the package basin with its programs, and no network.
Exit status: 0 passed, 1 failed.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import traceback
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from basin import programs

HERE = Path(__file__).resolve().parent
WARM_UP = 3  # Steps whose time does not count.

# The most by which losses may differ, and final parameters, by the norm of their difference
# relative to their norm. Where both add f32 in the same order, nothing differs.
LIMITS = {"plain": 1e-3, "accumulate": 1e-3, "amp": 1e-2}

# The first version of NCCL that takes two ranks on one GPU, and how earlier ones refuse them.
SHARES_GPUS = (2, 30)
REFUSALS = ("Duplicate GPU", "using the same GPU", "invalid usage")


class Failed(Exception):
    """A part has failed; the text says why."""


@dataclass(frozen=True)
class Size:
    steps: int
    batch: int
    width: int


class Aggregator:
    """A running basind, with the default of sharing memory with workers on its machine."""

    def __init__(self, reduce_device: str, program: str | None) -> None:
        command = program or programs.find("basind")
        if command is None:
            raise Failed("the package basin has no basind, and --basind is not given")
        kept = {name: value for name, value in os.environ.items() if "BASIN" not in name}
        self._process = subprocess.Popen(
            [
                command,
                "--grpc-listen=127.0.0.1:0",
                "--http-listen=127.0.0.1:0",
                "--admin-listen=none",
                "--worker-lease=60s",
                f"--reduce-device={reduce_device}",
            ],
            env=kept,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.log: list[str] = []
        self.address = ""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.log.append(line)
            if not line.startswith("{"):
                continue
            entry = json.loads(line)
            if entry["event"] == "serving":
                self.address = entry["addresses"]["grpc"]
                self._metrics = entry["addresses"]["http"]
                break
        if not self.address:
            raise Failed("basind has not started:\n" + "".join(self.log))
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        self.log += self._process.stdout

    def metrics(self) -> dict[str, float]:
        with urllib.request.urlopen(f"http://{self._metrics}/metrics", timeout=10) as reply:
            lines = reply.read().decode().splitlines()
        pairs = (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
        return {name: float(value) for name, value in pairs}

    def close(self) -> None:
        self._process.kill()
        self._process.wait()


@dataclass
class Run:
    """A job that has ended. `errors` is what its ranks wrote besides their reports."""

    reports: list[dict[str, Any]]
    errors: str
    parameters: list[torch.Tensor]
    metrics: dict[str, float]
    log: str

    @property
    def losses(self) -> list[float]:
        """The mean of the ranks in each step."""
        return [statistics.mean(each) for each in zip(*(r["losses"] for r in self.reports))]

    @property
    def step(self) -> float:
        """The median milliseconds of a step, which is over when its slowest rank has ended it."""
        steps = [max(each) for each in zip(*(r["seconds"] for r in self.reports))]
        return 1e3 * statistics.median(steps[WARM_UP:])


class Driver:
    def __init__(self, options: argparse.Namespace) -> None:
        self.workers: int = options.workers
        self._basind: str | None = options.basind
        self.on_gpu = options.device == "cuda"
        gpus = torch.cuda.device_count() if self.on_gpu else 0
        self.places = [f"cuda:{i % gpus}" if gpus else "cpu" for i in range(self.workers)]
        self._size = Size(options.steps, options.batch, options.width)
        self._backends = ["gloo"]
        if self.on_gpu and (self.workers <= gpus or torch.cuda.nccl.version() >= SHARES_GPUS):
            self._backends.insert(0, "nccl")
        self._patience: float = options.patience
        self._plain: Run | None = None

    # ---- runs

    def basin(self, case: str, reduce_device: str = "cpu", **environment: str) -> Run:
        aggregator = Aggregator(reduce_device, self._basind)
        try:
            run = self._run("basin", case, ["--address", aggregator.address], environment)
            run.metrics = aggregator.metrics()
        finally:
            aggregator.close()
        run.log = "".join(aggregator.log)
        if len({report["digest"] for report in run.reports}) > 1:
            raise Failed("the ranks have other parameters")
        return run

    def ddp(self, case: str) -> tuple[str, Run]:
        """Through the first backend that works."""
        while True:
            backend = self._backends[0]
            with tempfile.TemporaryDirectory() as folder:
                try:
                    return backend, self._run(backend, case, ["--store", f"{folder}/store"], {})
                except Failed as failure:
                    why = refusal(str(failure))
                    if why is None or len(self._backends) == 1:
                        raise
            print(f"DDP uses {self._backends[1]}: NCCL does not take these ranks: {why}")
            del self._backends[0]

    def _run(self, through: str, case: str, arguments: list[str], environment: Any) -> Run:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            ranks = []
            for rank in range(self.workers):
                command = [sys.executable, str(HERE / "train.py"), f"--through={through}"]
                command += [f"--case={case}", f"--rank={rank}", f"--workers={self.workers}"]
                command += [f"--device={self.places[rank]}", f"--steps={self._size.steps}"]
                command += [f"--batch={self._size.batch}", f"--width={self._size.width}"]
                command += [*arguments, *(["--out", f"{folder}/parameters"] if rank == 0 else [])]
                of_rank = {
                    "LOCAL_RANK": str(rank),
                    "LOCAL_WORLD_SIZE": str(self.workers),
                    "GROUP_RANK": "0",
                    "GLOO_SOCKET_IFNAME": "lo",
                    "NCCL_MULTI_RANK_GPU_ENABLE": "1",
                }
                with (
                    open(folder / f"out-{rank}", "wb") as out,
                    open(folder / f"errors-{rank}", "wb") as errors,
                ):
                    ranks.append(
                        subprocess.Popen(
                            command,
                            env={**os.environ, **of_rank, **environment},
                            stdin=subprocess.DEVNULL,
                            stdout=out,
                            stderr=errors,
                        )
                    )
            failure = wait_for(ranks, self._patience)
            written = [(folder / f"errors-{rank}").read_text() for rank in range(self.workers)]
            told = "".join(
                f"rank {rank}: {line}\n"
                for rank, text in enumerate(written)
                for line in text.splitlines()[-25:]
            )
            if failure is not None:
                raise Failed(f"{case} through {through}: {failure}\n{told}")
            reports = [
                json.loads((folder / f"out-{rank}").read_text().splitlines()[-1])
                for rank in range(self.workers)
            ]
            saved = folder / "parameters"
            parameters = torch.load(saved) if saved.exists() else []
            return Run(reports, "".join(written), parameters, {}, "")

    def plain(self) -> Run:
        """That of Basin, which several parts compare with."""
        if self._plain is None:
            self._plain = self.basin("plain")
        return self._plain

    # ---- parts: each returns what to say

    def results(self, **environment: str) -> str:
        self.basin("results", **environment)
        return "the averages on the device are those of the CPU, bit for bit"

    def allocator(self, settings: str) -> str:
        if not self.on_gpu:
            return "skipped: there is no CUDA device"
        return self.results(PYTORCH_CUDA_ALLOC_CONF=settings)

    def compare(self, case: str) -> str:
        basin = self.plain() if case == "plain" else self.basin(case)
        backend, ddp = self.ddp(case)
        losses = max(abs(a - b) for a, b in zip(basin.losses, ddp.losses, strict=True))
        parameters = distance(basin.parameters, ddp.parameters)
        limit = LIMITS[case]
        curve = " ".join(f"{loss:.4f}" for loss in basin.losses)
        facts = (
            f"{basin.reports[0]['bytes'] / 2**20:.1f} MiB of parameters; losses of Basin: {curve}\n"
            f"losses differ from DDP's by at most {losses:.3g}, final parameters by "
            f"{parameters:.3g} (limit of both: {limit:g})\n"
            f"ms per step: {basin.step:.2f} through Basin, {ddp.step:.2f} through DDP with "
            f"{backend}"
        )
        skipped = [[report["skipped"] for report in run.reports] for run in (basin, ddp)]
        if case == "amp":
            facts += f"\nsteps that the scalers skipped: {skipped[0]} and {skipped[1]}"
        if not (losses <= limit and parameters <= limit):
            raise Failed(f"{facts}\nthat is not what DDP computes")
        if skipped[0] != skipped[1] or (case == "amp") != (skipped[0][0] > 0):
            raise Failed(f"{facts}\nthe scalers did not skip the steps that they should skip")
        if not basin.losses[-1] < 0.8 * basin.losses[0]:
            raise Failed(f"{facts}\nthe model has not learned anything")
        if basin.metrics["basin_local_frames_total"] == 0:
            raise Failed(f"{facts}\nthe gradients did not travel through shared memory")
        return facts

    def device(self) -> str:
        other = "cuda:0" if self.on_gpu else "auto"
        run = self.basin("plain", other)
        there = int(run.metrics["basin_device_frames_total"])
        facts = (
            f"reduce.device {other}: {there} frames were read in the memory of the GPU; "
            f"ms per step: {run.step:.2f}, {self.plain().step:.2f} with cpu"
        )
        if run.reports[0]["digest"] != self.plain().reports[0]["digest"]:
            raise Failed(f"{facts}\nthe parameters have other bits than with reduce.device cpu")
        if "reduce_device_failed" in run.log:
            raise Failed(f"{facts}\n{run.log}")
        if self.on_gpu and there == 0:
            refused = [line for line in run.log.splitlines() if "device_memory_refused" in line]
            if not refused:
                raise Failed(f"{facts}\nand the log of basind does not say why:\n{run.log}")
            return f"{facts}\nskipped: memory of the GPU could not be shared: {refused[0]}"
        return f"{facts}; the parameters have the bits of reduce.device cpu"

    def group(self) -> str:
        try:
            run = self.basin("plain", BASIN_LOCAL_GROUP="auto")
        except Failed as failure:
            why = refusal(str(failure))
            if self.on_gpu and why is not None:
                return f"skipped: NCCL does not take these ranks: {why}"
            raise
        contributions = run.reports[0]["contributions"]
        facts = f"{self.workers} ranks made {contributions} contributions"
        if run.reports[0]["trainers"] != self.workers:
            raise Failed(f"{facts} for {run.reports[0]['trainers']} trainers")
        if run.reports[0]["digest"] != self.plain().reports[0]["digest"]:
            raise Failed(f"{facts}, and the parameters have other bits than without a group")
        if contributions == 1:
            return f"{facts}; ms per step: {run.step:.2f}; the bits are those without a group"
        warnings = [line for line in run.errors.splitlines() if "BASIN_LOCAL_GROUP is auto" in line]
        if not warnings or (self.on_gpu and refusal(warnings[0]) is None):
            raise Failed(f"{facts}, and NCCL did not refuse the ranks:\n{run.errors}")
        return f"skipped: there was no group: {warnings[0]}"


def refusal(text: str) -> str | None:
    """The line in which NCCL says that it does not take these ranks; None if there is none."""
    lines = [line for line in text.splitlines() if any(what in line for what in REFUSALS)]
    return lines[-1].strip() if lines else None


def wait_for(processes: list[subprocess.Popen[bytes]], patience: float) -> str | None:
    """Waits until all have ended, and returns what failed. The others end with the first one that
    fails. `patience`: the seconds that each may take."""
    failed = threading.Event()
    failures: list[str] = []

    def wait(rank: int, process: subprocess.Popen[bytes]) -> None:
        try:
            code = process.wait(patience)
        except subprocess.TimeoutExpired:
            code = None
        if code != 0:
            what = f"has not ended after {patience:.0f} s" if code is None else f"ended with {code}"
            failures.append(f"rank {rank} {what}")
            failed.set()

    threads = [threading.Thread(target=wait, args=each) for each in enumerate(processes)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        if failed.wait(0.05):
            # The others may be about to say what is wrong.
            for thread in threads:
                thread.join(5)
            for process in processes:
                process.kill()
            for thread in threads:
                thread.join()
    return failures[0] if failures else None


def distance(a: list[torch.Tensor], b: list[torch.Tensor]) -> float:
    difference = sum(float((x - y).double().square().sum()) for x, y in zip(a, b, strict=True))
    norm = sum(float(y.double().square().sum()) for y in b)
    return float((difference / norm) ** 0.5)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--device",
        choices=("auto", "cuda", "cpu"),
        default="auto",
        help="cuda: a failure without one",
    )
    parser.add_argument("--basind", help="the aggregator (default: that of the package)")
    parser.add_argument("--workers", type=int, default=2, help="ranks (default: 2)")
    parser.add_argument("--steps", type=int, help="of each run (default: 40, on the CPU 30)")
    parser.add_argument("--batch", type=int, help="samples (default: 64, on the CPU 16)")
    parser.add_argument("--width", type=int, help="of layers (default: 2048, on the CPU 256)")
    parser.add_argument("--parts", help="some of the parts, by commas (default: all)")
    parser.add_argument(
        "--patience", type=float, default=240, help="seconds of one run (default: 240)"
    )
    options = parser.parse_args()
    if options.device == "auto":
        options.device = "cuda" if torch.cuda.is_available() else "cpu"
    if options.device == "cuda" and not torch.cuda.is_available():
        print(f"failed: {sys.executable} has torch {torch.__version__}, which sees no CUDA device")
        return 1
    small = options.device == "cpu"
    options.steps = options.steps or (30 if small else 40)
    options.batch = options.batch or (16 if small else 64)
    options.width = options.width or (256 if small else 2048)

    driver = Driver(options)
    parts: dict[str, Callable[[], str]] = {
        "results": driver.results,
        "plain": lambda: driver.compare("plain"),
        "amp": lambda: driver.compare("amp"),
        "accumulate": lambda: driver.compare("accumulate"),
        "device": driver.device,
        "group": driver.group,
        "expandable_segments": lambda: driver.allocator("expandable_segments:True"),
        "cudaMallocAsync": lambda: driver.allocator("backend:cudaMallocAsync"),
    }
    names = options.parts.split(",") if options.parts else list(parts)
    where = torch.cuda.get_device_name() if driver.on_gpu else "no CUDA device"
    print(
        f"{where}; torch {torch.__version__}; {driver.workers} ranks on "
        f"{', '.join(driver.places)}; {options.steps} steps of {options.batch} samples each",
        flush=True,
    )
    failed = False
    for name in names:
        try:
            told = parts[name]()
        except Failed as failure:
            failed, told = True, f"failed: {failure}"
        except Exception:  # The other parts still run.
            failed, told = True, f"failed: {traceback.format_exc()}"
        first, *rest = told.splitlines()
        print("\n".join([f"{name}: {first}", *(f"  {line}" for line in rest)]), flush=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
