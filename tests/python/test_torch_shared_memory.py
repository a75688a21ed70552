# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""Workers on the aggregator's machine: what goes through shared memory in a training step, and what
is left for gRPC, in bytes and in messages."""

import http.client
import re
import sys
from pathlib import Path
from typing import Any

from jobs import Aggregator, require

require("numpy", "torch")
import torch  # noqa: E402 - ends above when there is none
from torch import nn  # noqa: E402
from torch_jobs import TorchTest, gradients, main, session, sgd  # noqa: E402

WIDTH = 128
STEPS = 10
PATIENCE_STEPS = 2000  # Until both ends have mapped each other's memory.


def totals_of(address: str) -> dict[str, float]:
    connection = http.client.HTTPConnection(address)
    connection.request("GET", "/metrics")
    text = connection.getresponse().read().decode()
    connection.close()
    found = re.findall(r"^basin_(\w+)_total (\S+)$", text, re.MULTILINE)
    return {name: float(value) for name, value in found}


class Network(nn.Module):
    """Large tensors and small ones of odd sizes, whose gradients are not ready in the reverse order
    of the parameters: of each layer, the last used first."""

    def __init__(self) -> None:
        super().__init__()
        self.odd = nn.ParameterList(nn.Parameter(torch.ones(33 + i)) for i in range(12))
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(12))
        self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(12))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer, norm, odd in zip(self.layers, reversed(self.norms), self.odd):
            x = torch.relu(layer(norm(x))) + odd.mean()
        return x.sum()


def train(rank: int, metrics: str) -> Any:
    """The totals before and after the measured steps, and all gradients of the last one."""
    with session() as bt:
        torch.manual_seed(1)
        network = Network()
        sgd(network, bt)
        inputs = torch.full((4, WIDTH), float(rank + 1))

        def step() -> None:
            network.zero_grad()
            network(inputs).backward()

        in_a_row = 0
        for _ in range(PATIENCE_STEPS):
            before = totals_of(metrics)
            step()
            after = totals_of(metrics)
            shared = all(after[n] - before[n] >= 2 for n in ("local_frames", "local_results"))
            in_a_row = in_a_row + 1 if bt.broadcast_object(shared) else 0
            # Results lie in one of two segments in turns.
            if in_a_row == 2:
                break
        bt.barrier("before")
        before = totals_of(metrics)
        bt.barrier("measured")
        for _ in range(STEPS):
            step()
        bt.barrier("after")
        after = totals_of(metrics)
        bt.barrier("read")
        return {name: after[name] - before[name] for name in after}, gradients(network)


class SharedMemory(TorchTest):
    def test_less_than_one_percent_of_the_payload_and_few_messages_go_through_grpc(self) -> None:
        aggregator = Aggregator(Path(sys.argv[1]), http="127.0.0.1:0", local="auto")
        try:
            outcomes = self.jobs.run(train, 2, aggregator.metrics, BASIN_ADDRESS=aggregator.address)
        finally:
            aggregator.close()
        (totals, ours), (_, theirs) = outcomes
        self.assert_same_bits([ours, theirs])
        size = 4 * sum(parameter.numel() for parameter in Network().parameters())
        # A few bytes more are those of the barriers.
        self.assertGreaterEqual(totals["contribution_bytes"], 2 * STEPS * size)
        self.assertGreaterEqual(totals["result_bytes"], 2 * STEPS * size)
        # What is left are the messages themselves: frames that name places, and control.
        self.assertLess(totals["received_bytes"], 0.01 * totals["contribution_bytes"])
        self.assertLess(totals["sent_bytes"], 0.01 * totals["result_bytes"])
        # The gradients of a step are three batches and a rest. Each has four messages: its frame,
        # the credit, the result, and the acknowledgement; a round has six beside them. The barriers
        # are three further rounds.
        messages = totals["received_messages"] + totals["sent_messages"]
        self.assertLessEqual(messages / 2 / STEPS, 4 * 4 + 6 + 3)


if __name__ == "__main__":
    main()
