# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""One worker of layerdrop.py: trains a transformer whose layers are dropped at random, and prints
a line of JSON: for each p a list of [seconds, bytes pushed, layers kept], one for each step."""

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "client/python"))

LAYERS = 12
WIDTH = 192
WARM_UP = 2


class Transformer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(WIDTH, 4, 4 * WIDTH, dropout=0.0, batch_first=True)
            for _ in range(LAYERS)
        )
        self.head = nn.Linear(WIDTH, 8)

    def forward(self, x: torch.Tensor, kept: list[bool]) -> torch.Tensor:
        for layer, keeps in zip(self.layers, kept):
            x = layer(x) if keeps else x
        y: torch.Tensor = self.head(x.mean(1))
        return y


def train(options: argparse.Namespace) -> list[list[tuple[float, int, int]]]:
    import basin.torch

    basin.torch.init(
        options.address,
        worker_id=f"w{options.rank}",
        max_workers=options.workers,
        fresh=True,
        log_level="error",
    )
    torch.manual_seed(1)
    model = Transformer()
    sgd = torch.optim.SGD(model.parameters(), lr=0.01)
    optimizer: Any = basin.torch.DistributedOptimizer(sgd, model.named_parameters())
    generator = torch.Generator().manual_seed(options.rank)
    inputs = torch.randn(4, 32, WIDTH, generator=generator)
    targets = torch.randint(8, (4,), generator=generator)
    measured: list[list[tuple[float, int, int]]] = [[] for _ in options.p]
    for step in range(WARM_UP + options.steps):
        for p, rows in zip(options.p, measured):
            kept = [bool(draw >= p) for draw in torch.rand(LAYERS, generator=generator)]
            basin.torch.barrier("step")
            before = optimizer.totals().bytes_pushed
            begin = time.perf_counter()
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(inputs, kept), targets).backward()
            optimizer.step()
            seconds = time.perf_counter() - begin
            if step >= WARM_UP:
                rows.append((seconds, optimizer.totals().bytes_pushed - before, sum(kept)))
    basin.torch.shutdown()
    return measured


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--p", type=float, nargs="+", required=True)
    parser.add_argument("--rank", type=int, required=True)
    parser.add_argument("--workers", type=int, required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--address", required=True, help="of basind")
    options = parser.parse_args()
    torch.set_num_threads(1)
    print(json.dumps(train(options)), flush=True)


if __name__ == "__main__":
    main()
