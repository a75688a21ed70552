# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
import sys

import horovod.torch as hvd
import torch
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

hvd.init()
torch.manual_seed(0)
inputs = torch.randn(256, 8, dtype=torch.float64)
data = TensorDataset(inputs, inputs.sum(1, keepdim=True).sin())
sampler = DistributedSampler(data, num_replicas=hvd.size(), rank=hvd.rank())
loader = DataLoader(data, batch_size=16, sampler=sampler)

model = nn.Sequential(nn.Linear(8, 32), nn.BatchNorm1d(32), nn.Tanh(), nn.Linear(32, 1)).double()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
hvd.broadcast_parameters(model.state_dict(), root_rank=0)
hvd.broadcast_optimizer_state(optimizer, root_rank=0)
for epoch in range(3):
    sampler.set_epoch(epoch)
    for x, y in loader:
        optimizer.zero_grad()
        nn.functional.mse_loss(model(x), y).backward()
        optimizer.synchronize()
        nn.utils.clip_grad_norm_(model.parameters(), max_norm=0.1)
        with optimizer.skip_synchronize():
            optimizer.step()

if hvd.rank() == 0:
    torch.save(model.state_dict(), sys.argv[1])
hvd.shutdown()
