# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""A script of Horovod that measures how many images a second all workers train on. The images and
the labels are random.

It has nothing of Basin: basin-run --horovod -np 2 examples/horovod/synthetic_benchmark.py
"""

import argparse
import timeit

import horovod.torch as hvd
import numpy as np
import torch
from torch import nn

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--fp16-allreduce", action="store_true", help="send gradients as float16")
parser.add_argument("--batch-size", type=int, default=16, help="of each worker (16)")
parser.add_argument("--num-warmup-batches", type=int, default=5, help="that do not count (5)")
parser.add_argument("--num-batches-per-iter", type=int, default=5, help="of one number (5)")
parser.add_argument("--num-iters", type=int, default=5, help="how many numbers (5)")
arguments = parser.parse_args()

hvd.init()
torch.manual_seed(7)
torch.set_num_threads(1)
model = nn.Sequential(
    *(nn.Conv2d(3, 16, 3, stride=2), nn.BatchNorm2d(16), nn.ReLU()),
    *(nn.Conv2d(16, 64, 3, stride=2), nn.BatchNorm2d(64), nn.ReLU()),
    *(nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(1024, 100)),
)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01 * hvd.size())
compression = hvd.Compression.fp16 if arguments.fp16_allreduce else hvd.Compression.none
optimizer = hvd.DistributedOptimizer(
    optimizer, named_parameters=model.named_parameters(), compression=compression
)
hvd.broadcast_parameters(model.state_dict(), root_rank=0)
hvd.broadcast_optimizer_state(optimizer, root_rank=0)
images = torch.randn(arguments.batch_size, 3, 64, 64)
labels = torch.randint(100, (arguments.batch_size,))


def benchmark_step() -> None:
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(images), labels).backward()
    optimizer.step()


def log(text: str) -> None:
    if hvd.rank() == 0:
        print(text, flush=True)


timeit.timeit(benchmark_step, number=arguments.num_warmup_batches)
rates = []
for number in range(arguments.num_iters):
    seconds = timeit.timeit(benchmark_step, number=arguments.num_batches_per_iter)
    rates.append(arguments.batch_size * arguments.num_batches_per_iter / seconds)
    log(f"Iter #{number}: {rates[-1]:.1f} img/sec per worker")
mean, spread = float(np.mean(rates)), 1.96 * float(np.std(rates))
log(f"Img/sec per worker: {mean:.1f} +- {spread:.1f}")
log(f"Total img/sec on {hvd.size()} workers: {hvd.size() * mean:.1f} +- {hvd.size() * spread:.1f}")
