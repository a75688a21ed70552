# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""An elastic script of Horovod: workers join and leave while it trains on handwritten digits.

It has nothing of Basin: basin-run --horovod -np 2 examples/horovod/elastic_digits.py
"""

from typing import Any

import horovod.torch as hvd
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

EPOCHS = 5
RATE = 0.05

hvd.init()
torch.manual_seed(7)
digits = load_digits()
pixels = torch.tensor(digits.data / 16.0, dtype=torch.float32)
labels = torch.tensor(digits.target)
training = TensorDataset(pixels[:1500], labels[:1500])
sampler = hvd.elastic.ElasticSampler(training)
loader = DataLoader(training, batch_size=25, sampler=sampler)

model = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=RATE * hvd.size(), momentum=0.9)
optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())


def on_state_reset() -> None:
    for group in optimizer.param_groups:
        group["lr"] = RATE * hvd.size()


@hvd.elastic.run
def train(state: Any) -> None:
    while state.epoch < EPOCHS:
        sampler.set_epoch(state.epoch)
        model.train()
        for number, (x, y) in enumerate(loader):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()
            sampler.record_batch(number, len(x))
            state.commit()
        state.epoch += 1
        model.eval()
        with torch.no_grad():
            right = (model(pixels[1500:]).argmax(1) == labels[1500:]).float().mean().item()
        if hvd.rank() == 0:
            print(f"epoch {state.epoch}: {100 * right:.1f} % right", flush=True)


state = hvd.elastic.TorchState(model=model, optimizer=optimizer, sampler=sampler, epoch=0)
state.register_reset_callbacks([on_state_reset])
train(state)
total = sum(float(parameter.detach().double().sum()) for parameter in model.parameters())
print(f"parameters {total!r}", flush=True)
