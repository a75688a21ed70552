# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""Trains a perceptron of many small tensors through basin.torch and prints a line of JSON:

instructions  of Python's interpreter in package basin, for each tensor of a step: hooks, batches,
              results, and what step() checks

They are counted by a trace function, which is called before each of them, so the numbers depend on
the version of Python and on nothing else of the machine.
"""

import argparse
import json
import sys
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "client/python"))
import basin
import basin.torch

PACKAGE = str(Path(basin.__file__).parent)
LAYERS, WIDTH = 100, 8  # Two tensors in each layer.
WARM_UP, STEPS = 3, 5


class Counter:
    def __init__(self) -> None:
        self.count = 0

    def on_call(self, frame: FrameType, event: str, argument: Any) -> Any:
        if not frame.f_code.co_filename.startswith(PACKAGE):
            return None
        frame.f_trace_lines, frame.f_trace_opcodes = False, True
        return self.on_opcode

    def on_opcode(self, frame: FrameType, event: str, argument: Any) -> Any:
        self.count += event == "opcode"
        return self.on_opcode


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--address", required=True, help="of basind")
    parser.add_argument("--rank", type=int, required=True)
    parser.add_argument("--workers", type=int, required=True)
    options = parser.parse_args()
    torch.set_num_threads(1)
    basin.torch.init(
        options.address,
        worker_id=f"w{options.rank}",
        max_workers=options.workers,
        fresh=True,
        log_level="error",
    )
    layers = [nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS)]
    model = nn.Sequential(*layers)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    optimizer = basin.torch.DistributedOptimizer(optimizer, model.named_parameters())
    counter = Counter()
    for step in range(WARM_UP + STEPS):
        if step == WARM_UP:
            sys.settrace(counter.on_call)
        optimizer.zero_grad()
        model(torch.ones(1, WIDTH)).sum().backward()
        optimizer.step()
    sys.settrace(None)
    basin.torch.shutdown()
    print(json.dumps({"instructions": counter.count / STEPS / (2 * LAYERS)}))


if __name__ == "__main__":
    main()
