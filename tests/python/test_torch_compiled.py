# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""Compiled functions that call backward() and step().

Usage: test_torch_compiled.py BASIND LIBBASIN
"""

from typing import Any

from jobs import require

require("numpy", "torch")
import torch  # noqa: E402 - ends above when there is none
from torch_jobs import (  # noqa: E402
    TorchTest,
    expect,
    loss_of,
    main,
    model,
    session,
)

BACKEND = "aot_eager"  # Traces as the default does, and compiles no code.
STEPS = 3


# ---- workers


def trained(rank: int, form: str) -> Any:
    """Training with a compiled part; then what a step within no_sync() says."""
    with session() as bt:
        torch._dynamo.reset()
        net: Any = model()
        if form == "wrapped":
            net = bt.DistributedDataParallel(net)
            owner, optimizer = net, torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
        else:
            sgd = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
            owner = optimizer = bt.DistributedOptimizer(sgd, net.named_parameters())
        step: Any = optimizer.step
        if form == "step":
            step = torch.compile(optimizer.step, backend=BACKEND)
        elif form == "function":

            def call() -> None:
                optimizer.step()

            step = torch.compile(call, backend=BACKEND)

        def train(i: int) -> None:
            optimizer.zero_grad()
            loss_of(net, rank, i).backward()
            step()

        if form in ("whole", "wrapped"):
            train = torch.compile(train, backend=BACKEND)
        for i in range(STEPS):
            train(i)
        after = [p.detach().clone() for p in net.parameters()]
        text = ""
        if form in ("step", "function"):
            with owner.no_sync():
                loss_of(net, rank).backward()
                text = expect("FailedPrecondition", step)
            optimizer.zero_grad()
        return after, owner.last_round().spec.step, text


# ---- tests


class Compiled(TorchTest):
    def test_compiled_steps_and_backwards_are_those_of_all_workers(self) -> None:
        alone = model()
        other = torch.optim.SGD(alone.parameters(), lr=0.1, momentum=0.9)
        for i in range(STEPS):
            other.zero_grad()
            torch.stack([loss_of(alone, rank, i) for rank in range(3)]).mean().backward()
            other.step()
        expected = [p.detach() for p in alone.parameters()]
        for form in ("step", "function", "whole", "wrapped"):
            for after, step, text in self.run_job(trained, form):
                self.assert_close(expected, after, 1e-12)
                self.assertEqual(STEPS - 1, step)
                if form in ("step", "function"):
                    self.assertIn("within no_sync()", text)


if __name__ == "__main__":
    main()
