# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""A trainer that never ends and prints when each of its steps ended; run by loss.py.

Arguments: the aggregator's address, the rank, max_workers, start_workers, the size of the model in
MB (0: a small one), and the seconds that it prepares itself after init().
"""

import sys
import threading
import time
from pathlib import Path

import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "client/python"))
import basin.torch


def main() -> None:
    address, rank, workers, start, megabytes, prepare = sys.argv[1:]
    torch.set_num_threads(1)
    torch.manual_seed(1)
    basin.torch.init(
        address,
        worker_id=f"w{rank}",
        min_workers=1,
        max_workers=int(workers),
        start_workers=int(start),
        fresh=True,
        log_level="error",
    )
    threading.Event().wait(int(prepare))  # As if it read its data.
    large = [nn.Linear(1024, 1024) for _ in range(int(megabytes) // 4)]  # 4 MB each.
    width = 1024 if large else 256
    model = nn.Sequential(nn.Linear(256, width), *large, nn.ReLU(), nn.Linear(width, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    basin.torch.broadcast_parameters(model)
    optimizer = basin.torch.DistributedOptimizer(optimizer, model.named_parameters())
    inputs, targets = torch.randn(64, 256), torch.randint(10, (64,))
    while True:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs), targets).backward()
        optimizer.step()
        print("step", time.monotonic(), flush=True)


if __name__ == "__main__":
    main()
