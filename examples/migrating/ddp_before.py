# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
import sys

import torch
from torch import distributed, nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

distributed.init_process_group("gloo")
torch.manual_seed(0)
inputs = torch.randn(256, 8, dtype=torch.float64)
data = TensorDataset(inputs, inputs.sum(1, keepdim=True).sin())
sampler = DistributedSampler(data)
loader = DataLoader(data, batch_size=16, sampler=sampler)

model = nn.Sequential(nn.Linear(8, 32), nn.BatchNorm1d(32), nn.Tanh(), nn.Linear(32, 1)).double()
model = nn.parallel.DistributedDataParallel(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
for epoch in range(3):
    sampler.set_epoch(epoch)
    for x, y in loader:
        optimizer.zero_grad()
        nn.functional.mse_loss(model(x), y).backward()
        nn.utils.clip_grad_norm_(model.parameters(), max_norm=0.1)
        optimizer.step()

if distributed.get_rank() == 0:
    torch.save(model.module.state_dict(), sys.argv[1])
distributed.destroy_process_group()
