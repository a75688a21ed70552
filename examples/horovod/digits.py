# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""A script of Horovod: a small network for handwritten digits, with an accuracy over all workers.

It has nothing of Basin: basin-run --horovod -np 2 examples/horovod/digits.py
"""

import horovod.torch as hvd
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

hvd.init()
torch.manual_seed(7)
digits = load_digits()
pixels = torch.tensor(digits.data / 16.0, dtype=torch.float32)
labels = torch.tensor(digits.target)
training = TensorDataset(pixels[:1500], labels[:1500])
sampler = DistributedSampler(training, num_replicas=hvd.size(), rank=hvd.rank())
loader = DataLoader(training, batch_size=25, sampler=sampler)

model = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05 * hvd.size(), momentum=0.9)
optimizer = hvd.DistributedOptimizer(
    optimizer,
    named_parameters=model.named_parameters(),
    compression=hvd.Compression.fp16,
    op=hvd.Average,
)
hvd.broadcast_parameters(model.state_dict(), root_rank=0)
hvd.broadcast_optimizer_state(optimizer, root_rank=0)


def average(value: float, name: str) -> float:
    return hvd.allreduce(torch.tensor(value), name=name).item()


for epoch in range(5):
    sampler.set_epoch(epoch)
    model.train()
    for x, y in loader:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
    model.eval()
    with torch.no_grad():
        mine = slice(1500 + hvd.rank(), None, hvd.size())
        right = (model(pixels[mine]).argmax(1) == labels[mine]).float().mean().item()
    accuracy = average(right, "accuracy")
    if hvd.rank() == 0:
        print(f"epoch {epoch}: {100 * accuracy:.1f} % right", flush=True)

total = sum(float(parameter.double().sum()) for parameter in model.parameters())
print(f"parameters {total!r}", flush=True)
