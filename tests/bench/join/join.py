#!/usr/bin/env python3
# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""How long two workers pause for a third one that joins them with its state.

They train a perceptron in float32 with Adam, through basind. --trained percent of the --megabytes
of its state are its parameters and their moments; the rest are parameters that are not trained. For
--device-ms of each step the trainer waits, as it does while an accelerator computes; otherwise two
cores would compute for three workers and for the transfer. The third worker has built the same
before it joins. It prints the median step of the two before that, their longest one from the step
in which it joins to the one after its first contribution, and the ratio; with --catch-up they do
not wait while it loads. `after` is the median step with three: on few cores, their share of the
cores makes steps longer, too. The last lines say what the two did in the median step and in each of
these.

With --apart the third process has the lowest priority, so that it costs the two about as much as
one on a machine of its own, except for memory.

With --bystander nobody joins. The third process only does beside the two what a joiner has to do
at least: it copies a state of this size into fresh memory, takes its SHA-256, and makes two steps
of the optimizer. How long their next three steps become is then a matter of the cores alone.

With --megabytes 1000 the three workers and basind need about 14 GB.

example:
  join.py build/release/aggregator/basind/basind build/release/client/c/libbasin.so.2
"""

import argparse
import contextlib
import functools
import hashlib
import os
import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "python"))
import jobs

NEVER = 10**6
# What a survivor does for the joiner, in the step: the method of JobState, and its name here.
PARTS = {"_announce": "prepares", "before_step": "awaits copies", "_sum": "compares"}
BEFORE = 8
AFTER = 8
BESIDE = 3  # Steps that a bystander's work takes at most.
FIXED = 8  # Tensors that are not trained.


def train(
    rank: int,
    folder: str,
    megabytes: float,
    trained: float,
    device_ms: float,
    catch_up: bool,
    rounds: int,
    bystander: bool,
    apart: bool,
) -> tuple[list[tuple[float, int, bool, dict[str, float]]], float]:
    """The seconds of each step, with the workers, whether the third has contributed, and the
    seconds of its parts; and the bytes of the state."""
    import basin.torch as bt
    import torch
    from basin.torch.state import JobState

    parts: dict[str, float] = {}

    def timed(name: str, method: Any) -> Any:
        @functools.wraps(method)
        def call(*arguments: Any) -> Any:
            began = time.perf_counter()
            try:
                return method(*arguments)
            finally:
                parts[name] = parts.get(name, 0.0) + time.perf_counter() - began

        return call

    for method, name in PARTS.items():
        setattr(JobState, method, timed(name, getattr(JobState, method)))

    torch.set_num_threads(1)
    width = round((megabytes * 1e6 * trained / 12 / 4) ** 0.5)
    layers = (layer for _ in range(4) for layer in (torch.nn.Linear(width, width), torch.nn.ReLU()))
    net = torch.nn.Sequential(*layers)
    optimizer: Any = torch.optim.Adam(net.parameters(), lr=1e-4)
    rest = round(megabytes * 1e6 * (1 - trained) / 4 / FIXED)
    for i in range(FIXED if rest > 0 else 0):
        fixed = torch.nn.Parameter(torch.ones(rest), requires_grad=False)
        net.register_parameter(f"fixed{i}", fixed)
    images = torch.randn(8, width)

    def run() -> None:
        began = time.perf_counter()
        optimizer.zero_grad()
        loss = net(images).square().mean()
        # The part of a step that an accelerator computes.
        threading.Event().wait(device_ms / 1000)
        parts["forward"] = time.perf_counter() - began - device_ms / 1000
        loss.backward()
        parts["backward"] = time.perf_counter() - began - device_ms / 1000 - parts["forward"]

    if rank == 2 and apart:
        os.nice(19)
    if rank == 2:
        run()
        jobs.hear(Path(folder) / "go")
    if rank == 2 and bystander:
        optimizer.step()
        moments = [each for those in optimizer.state.values() for each in those.values()]
        for each in [*net.parameters(), *moments]:
            hashlib.sha256(each.detach().clone().numpy()).digest()
        run()
        optimizer.step()
        return [], 0.0
    bt.init()
    bt.DistributedOptimizer(optimizer, net.named_parameters())

    def finish_step(state: Any) -> None:
        began = time.perf_counter()
        optimizer.step()
        parts["step"] = time.perf_counter() - began
        if bt.size() == 3 and state.end == NEVER:
            state.end = state.step + rounds + AFTER
        state.step += 1

    given: dict[str, Any] = {"catch_up": finish_step, "catch_up_rounds": rounds}
    end = BEFORE + BESIDE + AFTER if bystander else NEVER
    state: Any = bt.State(net, optimizer, end=end, **(given if catch_up else {}))
    steps: list[tuple[float, int, bool, dict[str, float]]] = []
    while state.step < state.end:
        if state.step == BEFORE and rank == 0:
            jobs.say(Path(folder) / "go")
        parts.clear()
        began, waited = time.perf_counter(), optimizer.totals().wait_seconds
        run()
        contributed = "w2" in optimizer.last_round().contributors
        parts["awaits the round"] = optimizer.totals().wait_seconds - waited
        finish_step(state)
        steps.append((time.perf_counter() - began, bt.size(), contributed, dict(parts)))
    size = sum(4 * each.numel() * (3 if each.requires_grad else 1) for each in net.parameters())
    bt.barrier("end")
    bt.shutdown()
    return steps, size


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("basind", type=Path)
    parser.add_argument("library", type=Path)
    parser.add_argument("--megabytes", type=float, default=200.0, help="of the state (200)")
    parser.add_argument("--trained", type=float, default=100.0, help="percent of it (100)")
    parser.add_argument(
        "--device-ms", type=float, default=1000.0, help="in which a step needs no CPU (1000)"
    )
    parser.add_argument("--catch-up", action="store_true", help="the others do not wait")
    parser.add_argument("--rounds", type=int, default=8, help="that the third may be behind (8)")
    parser.add_argument("--bystander", action="store_true", help="the third does not join")
    parser.add_argument("--apart", action="store_true", help="the third takes no cores from others")
    options = parser.parse_args()
    jobs.PATIENCE = 600.0
    job = jobs.Jobs(options.basind, options.library)
    try:
        with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as kept:
            jobs.make_events(folder, ("go",), kept)
            given = (
                *(folder, options.megabytes, options.trained / 100),
                *(
                    options.device_ms,
                    options.catch_up,
                    options.rounds,
                    options.bystander,
                    options.apart,
                ),
            )
            numbers: Any = {"BASIN_START_WORKERS": "2", "BASIN_MIN_WORKERS": "2"}
            outcomes = job.run(train, 3, *given, **numbers)
    finally:
        job.close()
    size = outcomes[0][1]
    before: list[float] = []
    after: list[float] = []
    usual: dict[str, list[float]] = {}
    during: list[tuple[float, dict[str, float]]] = []
    behind = 0
    for steps, _ in outcomes[:2]:
        first, end = BEFORE, BEFORE + BESIDE
        if not options.bystander:
            first = next(i for i, (_, workers, *_) in enumerate(steps) if workers == 3)
            behind = next(i for i, (_, _, done, _) in enumerate(steps[first:]) if done)
            end = first + behind + 2
        for seconds, _, _, parts in steps[3:first]:
            before.append(seconds)
            for name, part in parts.items():
                usual.setdefault(name, []).append(part)
        during += [(seconds, parts) for seconds, _, _, parts in steps[first:end]]
        after += [seconds for seconds, *_ in steps[end:]]
    median, longest = statistics.median(before), max(seconds for seconds, _ in during)
    print(f"state     {size / 1e6:8.0f} MB")
    print(f"step      {1000 * median:8.1f} ms, median of two workers")
    third = "works beside them" if options.bystander else "joins"
    print(f"longest   {1000 * longest:8.1f} ms, while the third one {third}")
    print(f"ratio     {longest / median:8.2f}")
    print(f"after     {1000 * statistics.median(after):8.1f} ms, median of the steps after that")
    if not options.bystander:
        print(f"behind    {behind - 1:8d} steps of the others without the third one")
    medians = {name: statistics.median(each) for name, each in usual.items()}
    print(f"before    {1000 * median:8.1f} ms: {_shown(medians)}")
    for seconds, parts in during:
        print(f"during    {1000 * seconds:8.1f} ms: {_shown(parts)}")


def _shown(parts: dict[str, float]) -> str:
    return ", ".join(f"{name} {1000 * part:.0f}" for name, part in parts.items() if part > 0.001)


if __name__ == "__main__":
    main()
