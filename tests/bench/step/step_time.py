#!/usr/bin/env python3
# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""The time of a training step of PyTorch with several workers on this machine.

  alone  the same number of independent processes: the cost of computing
  hooks  the same with an empty hook for each parameter, the least that any hook in Python costs
  basin  basin.torch.DistributedOptimizer, through basind
  gloo   torch's DistributedDataParallel over Gloo

Models are perceptrons of 5 and 50 million parameters in float32 (5M, 50M), one of 600 tensors of
32x32 and 32 (600x32), and the tensors of ResNet-50 and of BERT-base (resnet50, bert), whose
gradients cost next to nothing to compute; one thread for each worker. The processes share the
cores, so the CPU time of communication adds to the step, overlapped or not; only the ratios are
meaningful. "CPU ms" are those of all processes in a step, and in brackets those of a trainer's
thread, so of Python and torch, and of the aggregator. "early" is the fraction of a backward that
was still to come when an average byte of its gradients was pushed; 0 means that all was pushed at
the end.

With --timeline, each model runs through basin without and with BASIN_TIMELINE instead, in turns, so
that both meet the same load; the ratio is that of the medians of all turns. With --most, it fails
if the trainers' CPU time grew by more than so many percent: if the mean over the turns, less twice
its standard error, is above that.

examples:
  step_time.py --build build/release
  step_time.py --build build/release --workers 2 --models 600x32,resnet50 --steps 50
  step_time.py --build build/release --workers 2 --models 5M --timeline --turns 9 --most 1
"""

import argparse
import json
import statistics
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "allreduce"))
from allreduce import cpu_of, finish, numbers, running_basind, start

HERE = Path(__file__).resolve().parent
WARM_UP = 2  # The same as in step_worker.py.
THROUGH = ("alone", "hooks", "basin", "gloo")


@dataclass
class Case:
    build: Path
    model: str
    workers: int
    steps: int
    batch: int


@dataclass
class Result:
    seconds: float  # In the median step; a step is over when its slowest worker has ended it.
    trainer: float  # CPU seconds of a trainer's thread in a step, the mean of the workers.
    workers: float  # CPU seconds of all workers in a step.
    early: float | None
    aggregator: float = 0.0  # CPU seconds of the aggregator in a step.

    def row(self, alone: float) -> str:
        all_cpu = self.workers + self.aggregator
        early = "" if self.early is None else f"{self.early:.2f}"
        return (
            f"{self.seconds * 1e3:.0f} | {self.seconds / alone:.2f} | {all_cpu * 1e3:.0f} "
            f"({self.trainer * 1e3:.0f}, {self.aggregator * 1e3:.0f}) | {early}"
        )


def run_workers(case: Case, through: str, *arguments: str, **environment: str) -> Result:
    workers = [
        start(
            [
                sys.executable,
                str(HERE / "step_worker.py"),
                f"--through={through}",
                f"--model={case.model}",
                f"--rank={rank}",
                f"--workers={case.workers}",
                f"--steps={case.steps}",
                f"--batch={case.batch}",
                *arguments,
            ],
            GLOO_SOCKET_IFNAME="lo",
            BASIN_LIBRARY=str(case.build / "client" / "c" / "libbasin.so.2"),
            # The launcher does the same.
            MALLOC_MMAP_THRESHOLD_=str(32 << 20),
            MALLOC_TRIM_THRESHOLD_=str(512 << 20),
            **environment,
        )
        for rank in range(case.workers)
    ]
    reports = [json.loads(line) for line in finish(workers)]
    steps = zip(*(report["seconds"] for report in reports))
    early = [report["early"] for report in reports]
    return Result(
        seconds=statistics.median(max(step) for step in steps),
        trainer=statistics.mean(report["trainer"] for report in reports),
        workers=sum(report["process"] for report in reports),
        early=None if early[0] is None else statistics.mean(early),
    )


def run(case: Case, through: str, **environment: str) -> Result:
    if through == "basin":
        with running_basind(case.build) as (aggregator, address):
            result = run_workers(case, through, f"--address={address}", **environment)
            result.aggregator = cpu_of(aggregator.pid) / (WARM_UP + case.steps)
            return result
    with tempfile.TemporaryDirectory() as folder:
        return run_workers(case, through, f"--store={folder}/store")


def compare_timeline(case: Case, turns: int) -> tuple[str, list[float]]:
    """A row with the step without a timeline, and what it takes with one; and by how many percent
    the trainers' CPU time grew in each turn."""
    without: list[Result] = []
    recorded: list[Result] = []
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(turns):
            without.append(run(case, "basin"))
            recorded.append(run(case, "basin", BASIN_TIMELINE=folder))
        size = statistics.mean(path.stat().st_size for path in Path(folder).iterdir())

    def ratio(number: Callable[[Result], float]) -> str:
        median = statistics.median(map(number, without))
        return f"{median * 1e3:.1f} | {statistics.median(map(number, recorded)) / median:.3f}"

    rounds = WARM_UP + case.steps
    grew = [
        (with_it.trainer / plain.trainer - 1) * 100 for plain, with_it in zip(without, recorded)
    ]
    row = (
        f"{ratio(lambda each: each.seconds)} | {ratio(lambda each: each.trainer)} | "
        f"{ratio(lambda each: each.workers)} | {size / rounds / 1024:.1f}"
    )
    return row, grew


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--build", type=Path, default=Path("build/release"))
    parser.add_argument("--models", default="600x32,resnet50,bert,5M,50M", help="names, by commas")
    parser.add_argument("--workers", type=numbers, default=[2, 4])
    parser.add_argument("--steps", type=int, default=15)
    parser.add_argument("--batch", type=int, default=64, help="samples of each worker")
    parser.add_argument("--timeline", action="store_true", help="what a timeline costs")
    parser.add_argument("--turns", type=int, default=5, help="of --timeline (default: 5)")
    parser.add_argument("--most", type=float, help="of --timeline: percent of the CPU time")
    options = parser.parse_args()
    if options.most is not None and options.turns < 2:
        parser.error("--most needs --turns of at least 2")

    if options.timeline:
        costly = []
        print(
            "| model | workers | ms per step | with | trainer CPU | with | all CPU | with | KiB |"
        )
        print("|---|---|---|---|---|---|---|---|---|")
        for model in options.models.split(","):
            for workers in options.workers:
                case = Case(options.build.resolve(), model, workers, options.steps, options.batch)
                row, grew = compare_timeline(case, options.turns)
                print(f"| {model} | {workers} | {row} |", flush=True)
                if options.most is None:
                    continue
                least = statistics.mean(grew) - 2 * statistics.stdev(grew) / len(grew) ** 0.5
                if least > options.most:
                    costly.append(f"{model}, {workers} workers: at least {least:.1f} %")
        if costly:
            sys.exit(f"A timeline costs more than {options.most} %: " + "; ".join(costly))
        return

    print("| model | workers | through | ms per step | of alone | CPU ms | early |")
    print("|---|---|---|---|---|---|---|")
    for model in options.models.split(","):
        for workers in options.workers:
            case = Case(options.build.resolve(), model, workers, options.steps, options.batch)
            alone = 0.0
            for through in THROUGH:
                result = run(case, through)
                alone = alone or result.seconds
                row = result.row(alone)
                print(f"| {model} | {workers} | {through} | {row} |", flush=True)


if __name__ == "__main__":
    main()
