# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""A script that keeps torch's DistributedDataParallel, with Basin as its communication hook.

    basin-run -n 2 -- python examples/pytorch_ddp.py

Each worker has its own process group, so the hook averages gradients instead of torch. The model
has batch normalisation and a branch that every second batch skips. All workers end with the same
parameters and buffers, bit for bit.
"""

import hashlib

import basin.torch
import torch
from torch import distributed, nn


class TwoBranches(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Linear(8, 32), nn.BatchNorm1d(32), nn.ReLU())
        self.even = nn.Linear(32, 1)
        self.odd = nn.Linear(32, 1)

    def forward(self, x: torch.Tensor, odd: bool) -> torch.Tensor:
        branch = self.odd if odd else self.even
        y: torch.Tensor = branch(self.stem(x))
        return y


def make_batch(step: int) -> tuple[torch.Tensor, torch.Tensor]:
    """64 vectors of 8 with their targets; each worker has a different batch."""
    generator = torch.Generator().manual_seed(1000 * basin.torch.rank() + step)
    x = torch.randn(64, 8, generator=generator)
    return x, x[:, :2].prod(1, keepdim=True)


def hash_of(model: nn.Module) -> str:
    digest = hashlib.sha256()
    for tensor in model.state_dict().values():
        digest.update(tensor.numpy().tobytes())
    return digest.hexdigest()[:16]


def main(leaving: object) -> None:
    torch.set_num_threads(1)
    basin.torch.init()
    alone = distributed.HashStore()
    distributed.init_process_group("gloo", store=alone, rank=0, world_size=1)
    torch.manual_seed(basin.torch.rank())  # Values differ among workers until DDPState.
    model = nn.parallel.DistributedDataParallel(TwoBranches(), find_unused_parameters=True)
    state = basin.torch.DDPState(model, batch_size=64)
    model.register_comm_hook(state, basin.torch.ddp_comm_hook)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    losses = []
    for step in range(200):
        x, y = make_batch(step)
        optimizer.zero_grad()
        # The workers take different branches.
        loss = nn.functional.mse_loss(model(x, odd=(step + basin.torch.rank()) % 2 == 1), y)
        loss.backward()
        optimizer.step()
        losses.append(float(loss))
        if leaving:
            return  # SIGTERM has come: this worker leaves, and the others continue.
    if basin.torch.rank() == 0:
        print(f"loss {sum(losses[:20]) / 20:.3f}, at the end {sum(losses[-20:]) / 20:.3f}")
    print(f"parameters {hash_of(model)}")
    basin.torch.barrier("end")
    basin.torch.shutdown()
    distributed.destroy_process_group()


if __name__ == "__main__":
    with basin.leave_on_sigterm() as leaving:
        main(leaving)
