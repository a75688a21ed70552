# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""A trainer that never ends and prints when each of its steps ended; run by loss.py."""

import sys
import time
from pathlib import Path

import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "client/python"))
import basin.torch


def main() -> None:
    address, rank, workers = sys.argv[1:]
    torch.set_num_threads(1)
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10))
    basin.torch.init(
        address,
        worker_id=f"w{rank}",
        min_workers=1,
        max_workers=int(workers),
        start_workers=int(workers),
        fresh=True,
        log_level="error",
    )
    plain = torch.optim.SGD(model.parameters(), lr=0.01)
    optimizer = basin.torch.DistributedOptimizer(plain, model.named_parameters())
    inputs, targets = torch.randn(64, 256), torch.randint(10, (64,))
    while True:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs), targets).backward()
        optimizer.step()
        print("step", time.monotonic(), flush=True)


if __name__ == "__main__":
    main()
