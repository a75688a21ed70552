# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""An ordinary PyTorch training loop with several workers.

    basin-run -n 2 -- python examples/pytorch_loop.py

The four lines that it needs for this are numbered. The model learns the sum of two digits from
noisy pictures of them: each worker takes its part of the data, accumulates two micro-batches, and
applies the average of all workers' gradients. All end with the same parameters, bit for bit.
"""

import hashlib

import basin.torch
import torch
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

MICRO_BATCHES = 2


def make_data(pairs: int) -> TensorDataset:
    """Two digits as one-hot vectors with noise, (pairs, 20), and their sums."""
    generator = torch.Generator().manual_seed(1)
    digits = torch.randint(10, (pairs, 2), generator=generator)
    pictures = nn.functional.one_hot(digits, 10).float().flatten(1)
    noise = 0.2 * torch.randn(pictures.shape, generator=generator)
    return TensorDataset(pictures + noise, digits.sum(1))


def hash_of(model: nn.Module) -> str:
    digest = hashlib.sha256()
    for parameter in model.parameters():
        digest.update(parameter.detach().numpy().tobytes())
    return digest.hexdigest()[:16]


def main(leaving: object) -> None:
    torch.set_num_threads(1)
    basin.torch.init()  # 1
    data = make_data(2048)
    sampler = DistributedSampler(data, basin.torch.size(), basin.torch.rank())  # 2
    loader = DataLoader(data, batch_size=16, sampler=sampler)
    model = nn.Sequential(nn.Linear(20, 128), nn.ReLU(), nn.Linear(128, 19))
    basin.torch.broadcast_parameters(model)  # 3
    optimizer = torch.optim.Adam(model.parameters(), lr=0.03)
    optimizer = basin.torch.DistributedOptimizer(  # 4
        optimizer, model.named_parameters(), batch_size=16 * MICRO_BATCHES
    )
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=4, gamma=0.3)
    for epoch in range(6):
        sampler.set_epoch(epoch)
        right = torch.zeros(1)
        for step, (pictures, sums) in enumerate(loader):
            scores = model(pictures)
            loss = nn.functional.cross_entropy(scores, sums) / MICRO_BATCHES
            right += (scores.argmax(1) == sums).sum()
            if (step + 1) % MICRO_BATCHES:
                with optimizer.no_sync():
                    loss.backward()
                continue
            loss.backward()
            # .grad is now the average over all workers.
            nn.utils.clip_grad_norm_(model.parameters(), max_norm=1.0)
            optimizer.step()
            optimizer.zero_grad()
            if leaving:
                return  # SIGTERM has come: this worker leaves, and the others continue.
        scheduler.step()
        everybody = basin.torch.allreduce(right, "right", op=basin.Sum)
        if basin.torch.rank() == 0:
            percent = 100 * float(everybody) / len(data)
            print(f"epoch {epoch + 1}: {percent:.1f} % right")
    print(f"parameters {hash_of(model)}")
    basin.torch.barrier("end")
    basin.torch.shutdown()


if __name__ == "__main__":
    with basin.leave_on_sigterm() as leaving:
        main(leaving)
