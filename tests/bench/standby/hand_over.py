# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""How long the training pauses when a leader hands over to a standby, and where the time goes.

Two aggregators, of which one leads, and trainers that check what they receive (tests/integration/
oracle_trainer.cc). `basinctl step-down` makes the two change places again and again. For each time,
in milliseconds:

  asked to leads   from the start of the command until the other one leads
  leads to ended   until the sessions at the former leader have ended
  ended to step    until the first trainer has its next step
  pause            the longest time between two steps of a trainer

The authority is a directory, a Lease of a pretended Kubernetes (as root), or a key of a real etcd.

Usage: hand_over.py BASIND BASINCTL ORACLE_TRAINER [--authority=file|lease|etcd]
                    [--lease=3s] [--workers=4] [--times=10] [--pace-ms=10] [--elements=4096]
"""

import argparse
import contextlib
import datetime
import itertools
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "integration"))
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "aggregator/basind"))
from etcd import Etcd
from fake_api import FakeApi
from oracle import Line, Oracle
from programs import Basind, run
from test_standby_lease import IN_A_POD

# Before and after a hand-over, so that each begins in a training that runs.
SOME_STEPS = 30


class TimedTrainer(Oracle):
    """A trainer whose lines have the times at which they were read."""

    def take(self, line: Line) -> None:
        super().take({**line, "read": time.time()})

    def steps(self) -> list[float]:
        return [line["read"] for line in self.find("applied")]


def logged_at(line: dict[str, Any]) -> float:
    return datetime.datetime.fromisoformat(line["time"].replace("Z", "+00:00")).timestamp()


def pause_after(trainers: list[TimedTrainer], start: float) -> float:
    """The longest time between two steps of a trainer, of which the second came after `start`."""
    return max(
        after - before
        for trainer in trainers
        for before, after in itertools.pairwise(trainer.steps())
        if after > start
    )


def await_steps(trainers: list[TimedTrainer]) -> None:
    for trainer in trainers:
        trainer.await_more("applied", len(trainer.find("applied")) + SOME_STEPS)


def hand_over(
    basinctl: Path, leader: Basind, standby: Basind, trainers: list[TimedTrainer]
) -> tuple[float, ...]:
    await_steps(trainers)
    start = time.time()
    done = run(basinctl, "step-down", f"--address={leader.admin}")
    if done.returncode != 0:
        raise SystemExit(f"step-down: {done.stderr}")
    ended = logged_at(leader.await_event("leads_no_more"))
    leads = logged_at(standby.await_event("leads"))
    await_steps(trainers)
    resumed = min(min(at for at in trainer.steps() if at > leads) for trainer in trainers)
    return leads - start, ended - leads, resumed - ended, pause_after(trainers, start)


def make_authority(
    stack: contextlib.ExitStack, kind: str, folder: Path, basinctl: Path
) -> tuple[str, dict[str, Any]]:
    """The value of standby.authority, and what else the aggregators need."""
    if kind == "file":
        return f"file:{folder / 'leader'}", {}
    if kind == "etcd":
        return f"etcd:{stack.enter_context(Etcd(folder)).clients}/basin/leader", {}
    run(basinctl, "dev-certs", str(folder / "certs"), "--host=127.0.0.1").check_returncode()
    api = FakeApi(folder / "certs", "secret")
    stack.callback(api.close)
    (folder / "ca.crt").write_bytes((folder / "certs/ca.crt").read_bytes())
    (folder / "token").write_text("secret", encoding="utf-8")
    (folder / "namespace").write_text("training", encoding="utf-8")
    return "kubernetes:basin", {
        "before": (*IN_A_POD, str(folder)),
        "KUBERNETES_SERVICE_HOST": "127.0.0.1",
        "KUBERNETES_SERVICE_PORT": str(api.port),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    for program in ("basind", "basinctl", "trainer"):
        parser.add_argument(program, type=Path)
    parser.add_argument("--authority", choices=("file", "lease", "etcd"), default="file")
    parser.add_argument("--lease", default="3s")
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--times", type=int, default=10)
    parser.add_argument("--pace-ms", type=int, default=10)
    parser.add_argument("--elements", type=int, default=4096)
    options = parser.parse_args()

    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        authority, more = make_authority(stack, options.authority, folder, options.basinctl)

        def candidate(event: str) -> Basind:
            flags = (f"--standby-authority={authority}", f"--standby-lease={options.lease}")
            basind = stack.enter_context(Basind(options.basind, *flags, **more))
            basind.await_serving()
            basind.await_event(event)
            return basind

        leader, standby = candidate("leads"), candidate("follows")
        addresses = f"{leader.grpc},{standby.grpc}"
        trainers = []
        for i in range(options.workers):
            trainer = TimedTrainer(
                options.trainer,
                addresses,
                f"w{i}",
                "1000000",
                f"--pace-ms={options.pace_ms}",
                f"--elements={options.elements}",
                least=options.workers,
                first=options.workers,
            )
            stack.callback(trainer.kill)
            trainers.append(trainer)

        names = ("asked to leads", "leads to ended", "ended to step", "pause")
        print("ms" + "".join(f"{name:>17}" for name in names))
        rows = []
        for i in range(options.times):
            rows.append(hand_over(options.basinctl, leader, standby, trainers))
            leader, standby = standby, leader
            print(f"{i + 1:>2}" + "".join(f"{1000 * value:>17.0f}" for value in rows[-1]))
        for name, of in (("median", statistics.median), ("most", max)):
            print(f"{name}: " + ", ".join(
                f"{column} {1000 * of(values):.0f} ms"
                for column, values in zip(names, zip(*rows, strict=True), strict=True)
            ))  # fmt: skip


if __name__ == "__main__":
    main()
