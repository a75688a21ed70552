#!/usr/bin/env python3
# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""What a snapshot of basin.torch.State costs the training that it is taken of.

One worker trains a perceptron of --million parameters in float32 with Adam, through basind. It
prints, with the medians over the snapshots:

  step         of the training between two snapshots
  pause        how long the training waited for a snapshot, and its share of a step
  step during  of the training, while a snapshot is copied, and while one is written
  bare copy    of the same bytes by the thread that trains: the pause of a snapshot that it makes
               itself, into memory that was written before
  write        from the begin of a snapshot until its file is durable

The machine does both at once, so a step takes longer while a snapshot is copied or written even if
it waits for nothing.

example:
  snapshot.py build/release/aggregator/basind/basind build/release/client/c/libbasin.so.2
"""

import argparse
import ctypes
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "python"))
import jobs

WARM_UP = 3
PATIENCE = 3600.0


def train(rank: int, million: float, batch: int, every: int, count: int, folder: str) -> Any:
    """The seconds of each step, whether a snapshot began before it or was written in it, and the
    other figures."""
    import basin.torch as bt
    import torch

    torch.set_num_threads(1)
    bt.init()
    width = round((million * 1e6 / 4) ** 0.5)
    layers = (layer for _ in range(4) for layer in (torch.nn.Linear(width, width), torch.nn.ReLU()))
    net = torch.nn.Sequential(*layers)
    optimizer: Any = torch.optim.Adam(net.parameters(), lr=1e-4)
    bt.DistributedOptimizer(optimizer, net.named_parameters())
    state = bt.State(net, optimizer)
    images = torch.randn(batch, width)

    def step() -> float:
        began = time.perf_counter()
        optimizer.zero_grad()
        net(images).square().mean().backward()
        optimizer.step()
        state.step += 1
        return time.perf_counter() - began

    for _ in range(WARM_UP):
        step()
    alone = []
    kept = [each.detach() for each in (*net.parameters(), *_moments(optimizer))]
    copies = [torch.zeros_like(each) for each in kept]
    bare = []
    for _ in range(5):
        began = time.perf_counter()
        for source, target in zip(kept, copies):
            size = source.numel() * source.element_size()
            ctypes.memmove(target.data_ptr(), source.data_ptr(), size)
        bare.append(time.perf_counter() - began)
    del copies
    snapshots = state.snapshots(folder, every=every, keep=1)
    pauses: list[float] = []
    copying, writing, writes = [], [], []
    while len(pauses) < count + 1:  # The first one also makes the memory.
        before = snapshots.pause_seconds
        while state.step % every != every - 1:
            alone.append(step())
        step()  # Ends with the begin of a snapshot.
        began = time.perf_counter()
        during = [step()]
        pauses.append(snapshots.pause_seconds - before)
        while snapshots.written < len(pauses):
            if snapshots.failed:
                raise RuntimeError("A snapshot has failed; the log says why.")
            during.append(step())
        writes.append(time.perf_counter() - began)
        copying.append(during[0])
        writing += during[1:-1]
    bt.shutdown()
    size = sum(each.numel() * each.element_size() for each in kept)
    return alone, pauses[1:], copying[1:], writing, bare, writes[1:], size


def _moments(optimizer: Any) -> Any:
    import torch

    values = (each for state in optimizer.state.values() for each in state.values())
    return [each for each in values if isinstance(each, torch.Tensor)]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("basind", type=Path)
    parser.add_argument("library", type=Path)
    parser.add_argument("--million", type=float, default=50.0, help="parameters (50)")
    parser.add_argument("--batch", type=int, default=64, help="samples in a step (64)")
    parser.add_argument("--every", type=int, default=5, help="steps between snapshots (5)")
    parser.add_argument("--count", type=int, default=5, help="snapshots that are measured (5)")
    parser.add_argument("--folder", help="of the snapshots; a temporary one if it is not given")
    options = parser.parse_args()
    jobs.PATIENCE = PATIENCE
    job = jobs.Jobs(options.basind, options.library)
    try:
        with tempfile.TemporaryDirectory(dir=options.folder) as folder:
            given = (options.million, options.batch, options.every, options.count, folder)
            ((alone, pauses, copying, writing, bare, writes, size),) = job.run(train, 1, *given)
    finally:
        job.close()
    step = statistics.median(alone)
    pause, floor = statistics.median(pauses), statistics.median(bare)
    print(f"state        {size / 1e6:8.0f} MB, of {options.million:g} million parameters")
    print(f"step         {1000 * step:8.1f} ms")
    print(f"pause        {1000 * pause:8.1f} ms, {100 * pause / step:.2f} % of a step")
    print(f"  largest    {1000 * max(pauses):8.1f} ms, {100 * max(pauses) / step:.2f} % of a step")
    print(f"bare copy    {1000 * floor:8.1f} ms, {100 * floor / step:.2f} % of a step")
    print(f"step during  {1000 * statistics.median(copying):8.1f} ms, while it is copied")
    if writing:
        print(f"             {1000 * statistics.median(writing):8.1f} ms, while it is written")
    print(f"write        {1000 * statistics.median(writes):8.1f} ms")


if __name__ == "__main__":
    main()
