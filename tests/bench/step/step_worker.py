# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""One worker of step_time.py: trains a multilayer perceptron on noise, and prints a line of JSON.

seconds  of each counted step: forward, backward, waits, and the optimizer's step
early    the fraction of its backward that was still to come when an average byte was pushed;
         null if it is unknown
"""

import argparse
import itertools
import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

# Widths of the layers, by millions of parameters.
LAYERS = {5: (784, 1600, 1600, 800), 50: (1024, 4096, 4096, 4096, 3000)}
WARM_UP = 2


class Pushes:
    """Records when gradients are pushed, from the lane's calls to the library."""

    def __init__(self, worker: Any) -> None:
        self._weighted = 0.0
        self._bytes = 0
        self._times: list[tuple[float, int]] = []
        self._begin = 0.0
        self.early: list[float] = []
        push, commit = worker.push, worker.commit

        def pushing(lane: int, tensor: int, address: int, size: int) -> None:
            self._times.append((time.perf_counter(), size))
            push(lane, tensor, address, size)

        def committing(lane: int) -> None:
            end = time.perf_counter()
            total = sum(size for _, size in self._times)
            left = sum(size * (end - at) for at, size in self._times)
            self.early.append(left / total / (end - self._begin))
            self._times.clear()
            commit(lane)

        worker.push, worker.commit = pushing, committing

    def backward_begins(self) -> None:
        self._begin = time.perf_counter()


def make_model(millions: int) -> nn.Sequential:
    torch.manual_seed(1)
    widths = LAYERS[millions]
    layers: list[nn.Module] = []
    for inputs, outputs in itertools.pairwise(widths):
        layers += [nn.Linear(inputs, outputs), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def end_gloo(store: torch.distributed.Store, options: argparse.Namespace) -> None:
    """Waits, so that no worker closes its connections while another is in its last step, which
    could then wait forever."""
    store.set(f"over/{options.rank}", "")
    store.wait([f"over/{rank}" for rank in range(options.workers)])
    torch.distributed.destroy_process_group()


def train(options: argparse.Namespace) -> tuple[list[float], float | None]:
    model: nn.Module = make_model(options.millions)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    pushes: Pushes | None = None
    end: Callable[[], None] = lambda: None  # noqa: E731
    if options.through == "basin":
        sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "client/python"))
        import basin.torch

        basin.torch.init(
            options.address,
            worker_id=f"w{options.rank}",
            max_workers=options.workers,
            fresh=True,
            log_level="error",
        )
        pushes = Pushes(basin.torch.context.current().client.worker)
        optimizer = basin.torch.DistributedOptimizer(optimizer, model.named_parameters())
        end = basin.torch.shutdown
    elif options.through == "gloo":
        store = torch.distributed.FileStore(options.store, options.workers)
        torch.distributed.init_process_group(
            "gloo", store=store, rank=options.rank, world_size=options.workers
        )
        model = nn.parallel.DistributedDataParallel(model)
        end = lambda: end_gloo(store, options)  # noqa: E731

    torch.manual_seed(options.rank)
    widths = LAYERS[options.millions]
    inputs = torch.randn(options.batch, widths[0])
    targets = torch.randint(widths[-1], (options.batch,))
    seconds = []
    for _ in range(WARM_UP + options.steps):
        begin = time.perf_counter()
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(inputs), targets)
        if pushes is not None:
            pushes.backward_begins()
        loss.backward()
        optimizer.step()
        seconds.append(time.perf_counter() - begin)
    end()
    early = None if pushes is None else statistics.median(pushes.early[WARM_UP:])
    return seconds[WARM_UP:], early


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--through", choices=("alone", "basin", "gloo"), required=True)
    parser.add_argument("--millions", type=int, required=True)
    parser.add_argument("--rank", type=int, required=True)
    parser.add_argument("--workers", type=int, required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--batch", type=int, required=True)
    parser.add_argument("--address", help="of basind")
    parser.add_argument("--store", help="a file for torch.distributed")
    options = parser.parse_args()
    torch.set_num_threads(1)
    seconds, early = train(options)
    print(json.dumps({"seconds": seconds, "early": early}), flush=True)


if __name__ == "__main__":
    main()
