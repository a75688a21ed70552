#!/usr/bin/env python3
# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""The time of a training step of PyTorch with several workers on this machine.

  alone  the same number of independent processes: the cost of computing
  hooks  the same with an empty hook for each parameter, the least that any hook in Python costs
  basin  basin.torch.DistributedOptimizer, through basind
  gloo   torch's DistributedDataParallel over Gloo

Models are perceptrons of 5 and 50 million parameters in float32 (5M, 50M), one of 600 tensors of
32x32 and 32 (600x32), a transformer of 12 layers with 2 sequences of 32 tokens (transformer), and
the tensors of ResNet-50 and of BERT-base (resnet50, bert), whose gradients cost next to nothing to
compute; one thread for each worker. The processes share the cores, so the CPU time of communication
adds to the step, overlapped or not; only the ratios are meaningful. "CPU ms" are those of all
processes in a step, and in brackets those of a trainer's thread, so of Python and torch, and of the
aggregator. "early" is the fraction of a backward that was still to come when an average byte of its
gradients was pushed; 0 means that all was pushed at the end. "messages" are those that the
aggregator received and sent over gRPC in a step, and "in them" is their size relative to the bytes
of all contributions and results, most of which should be in shared memory.

With --turns, the four run in turns so many times, so that all meet the same load, and each row has
the medians.

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
import dataclasses
import json
import re
import socket
import statistics
import sys
import tempfile
import urllib.request
from collections.abc import Callable, Iterable
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
    messages: float | None = None  # Over gRPC in a step, both ways.
    in_them: float | None = None  # Their bytes, relative to those of contributions and results.

    def row(self, gloo: float) -> str:
        all_cpu = self.workers + self.aggregator
        early = "" if self.early is None else f"{self.early:.2f}"
        messages = "" if self.messages is None else f"{self.messages:.0f}"
        in_them = "" if self.in_them is None else f"{self.in_them:.1%}"
        return (
            f"{self.seconds * 1e3:.0f} | {self.seconds / gloo:.2f} | {all_cpu * 1e3:.0f} "
            f"({self.trainer * 1e3:.0f}, {self.aggregator * 1e3:.0f}) | {early} | {messages} | "
            f"{in_them}"
        )


def median_of(turns: list[Result]) -> Result:
    def median(values: Iterable[float | None]) -> float | None:
        known = [value for value in values if value is not None]
        return statistics.median(known) if known else None

    middle = dataclasses.replace(turns[0])
    for field in dataclasses.fields(Result):
        setattr(middle, field.name, median(getattr(turn, field.name) for turn in turns))
    return middle


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


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def totals_of(http: str) -> dict[str, float]:
    """The aggregator's totals without labels, by the middle of their names."""
    with urllib.request.urlopen(f"http://{http}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    found = re.findall(r"^basin_(\w+)_total (\S+)$", text, re.MULTILINE)
    return {name: float(value) for name, value in found}


def run(case: Case, through: str, **environment: str) -> Result:
    if through == "basin":
        http = f"127.0.0.1:{free_port()}"
        with running_basind(case.build, http=http) as (aggregator, address):
            result = run_workers(case, through, f"--address={address}", **environment)
            steps = WARM_UP + case.steps
            result.aggregator = cpu_of(aggregator.pid) / steps
            totals = totals_of(http)
            bytes_ = totals["received_bytes"] + totals["sent_bytes"]
            result.in_them = bytes_ / (totals["contribution_bytes"] + totals["result_bytes"])
            if "received_messages" in totals:
                result.messages = (totals["received_messages"] + totals["sent_messages"]) / steps
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
    parser.add_argument(
        "--models", default="600x32,transformer,resnet50,bert,5M,50M", help="names, by commas"
    )
    parser.add_argument("--workers", type=numbers, default=[2, 4])
    parser.add_argument("--steps", type=int, default=15)
    parser.add_argument("--batch", type=int, default=64, help="samples of each worker")
    parser.add_argument("--timeline", action="store_true", help="what a timeline costs")
    parser.add_argument("--turns", type=int, help="default: 1, and 5 with --timeline")
    parser.add_argument("--through", default=",".join(THROUGH), help="some of these, by commas")
    parser.add_argument("--most", type=float, help="of --timeline: percent of the CPU time")
    options = parser.parse_args()
    options.turns = options.turns or (5 if options.timeline else 1)
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

    print(
        "| model | workers | through | ms per step | / Gloo | CPU ms | early | messages | in them |"
    )
    print("|---|---|---|---|---|---|---|---|---|")
    for model in options.models.split(","):
        for workers in options.workers:
            case = Case(options.build.resolve(), model, workers, options.steps, options.batch)
            turns: dict[str, list[Result]] = {each: [] for each in options.through.split(",")}
            for _ in range(options.turns):
                for through, results in turns.items():
                    results.append(run(case, through))
            medians = {through: median_of(results) for through, results in turns.items()}
            gloo = medians["gloo"].seconds if "gloo" in medians else float("nan")
            for through, result in medians.items():
                print(f"| {model} | {workers} | {through} | {result.row(gloo)} |", flush=True)


if __name__ == "__main__":
    main()
