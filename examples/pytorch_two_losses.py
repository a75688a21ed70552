# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""A loss of two parts, each divided by its own number, in mixed precision.

    basin-run -n 2 -- python examples/pytorch_two_losses.py

One head is trained on all rows and the other on the rows with a label, whose number differs among
micro-batches. No single weight fits both. The workers therefore total their counts before the
backward, divide each part by its own total, and sum the gradients. The gradient scaler begins much
too high: all workers find the same infinities, skip the same steps and reach the same scale. The
aggregator names workers whose contribution is not finite (`contribution_unusual`), so it warns in
these steps; see docs/pytorch.md, "When a gradient is unusual".
"""

import hashlib
import math

import basin.torch
import torch
from torch import nn

ROWS, MICRO_BATCHES, STEPS = 32, 2, 120


class TwoHeads(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(8, 32), nn.Tanh())
        self.copy = nn.Linear(32, 8)
        self.sign = nn.Linear(32, 1)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        hidden = self.trunk(x)
        return self.copy(hidden), self.sign(hidden).squeeze(1)


def make_batch(step: int, k: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Vectors of 8, and which of them have a label; each worker has a different batch."""
    seed = 10_000 * basin.torch.rank() + MICRO_BATCHES * step + k
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(ROWS, 8, generator=generator)
    share = torch.rand(1, generator=generator)
    return x, torch.rand(ROWS, generator=generator) < share


def hash_of(model: nn.Module) -> str:
    digest = hashlib.sha256()
    for parameter in model.parameters():
        digest.update(parameter.detach().numpy().tobytes())
    return digest.hexdigest()[:16]


def main(leaving: object) -> None:
    torch.set_num_threads(1)
    basin.torch.init()
    model = TwoHeads()
    basin.torch.broadcast_parameters(model)
    optimizer = basin.torch.DistributedOptimizer(
        torch.optim.Adam(model.parameters(), lr=0.01),
        model.named_parameters(),
        op=basin.torch.Sum,
        backward_passes_per_step=MICRO_BATCHES,
    )
    scaler = basin.torch.GradScaler(init_scale=2.0**30, growth_interval=1000)
    left_out = 0
    for step in range(STEPS):
        batches = [make_batch(step, k) for k in range(MICRO_BATCHES)]
        totals = basin.torch.total_counts(
            {
                "rows": sum(len(x) for x, _ in batches),
                "labels": sum(int(labelled.sum()) for _, labelled in batches),
            }
        )
        mine = torch.zeros(1)
        for x, labelled in batches:
            with torch.autocast("cpu", torch.float16):
                copies, signs = model(x)
            copy = (copies.float() - x).square().mean(1).sum() / totals["rows"]
            truth = (x.sum(1) > 0).float()[labelled]
            sign = nn.functional.binary_cross_entropy_with_logits(
                signs.float()[labelled], truth, reduction="sum"
            )
            loss = copy + sign / max(1, totals["labels"])
            mine += loss.detach()
            optimizer.contribute(samples=len(x))
            scaler.scale(loss).backward()  # The last one of the window sends.
        scaler.unscale_(optimizer)
        norm = basin.torch.clip_grad_norm_(optimizer, max_norm=1.0)
        scale = scaler.get_scale()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        if leaving:
            return  # SIGTERM has come: this worker leaves, and the others continue.
        left_out += scaler.get_scale() < scale
        done = optimizer.last_round()
        if step in (0, STEPS - 1) and basin.torch.rank() == 0:
            told = f"norm {norm:.3f}" if math.isfinite(norm) else "overflow, the step is left out"
            print(
                f"step {step}: {totals['labels']} labels in {done.spec.counts.samples} rows of "
                f"{len(done.contributors)} workers, {done.spec.op} with a scale of "
                f"{done.spec.loss_scale:.0f}; {told}; this worker's part of the loss "
                f"{float(mine):.3f}"
            )
    print(f"scale {scaler.get_scale():.0f}, {left_out} steps left out")
    print(f"parameters {hash_of(model)}")
    basin.torch.barrier("end")
    basin.torch.shutdown()


if __name__ == "__main__":
    with basin.leave_on_sigterm() as leaving:
        main(leaving)
