# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""join(): a worker without data takes part in the steps of the others with zeros.

A worker in join() sends, for each step of the others, the gradients of a backward that makes zeros,
and says that they are of 0 samples. The others say no number, and then that of the round is
unknown. So all workers see in the same round that everybody is in join(): its number is 0.
"""

import time
from typing import Any

import torch

import basin.torch
from basin.errors import Unsupported
from basin.torch.context import member


def join(device: int = -1) -> int:
    """Waits until all workers have called it, and returns the rank that came last.

    device: not used

    Meanwhile the steps of the others go on: this worker's gradients are zeros, so an average is
    still divided by the number of all workers. Unlike with Horovod its optimizer applies the
    results, so that its parameters stay equal to the others' as long as they do not change their
    learning rate meanwhile, which this worker does not see: otherwise call broadcast_parameters()
    after join(). Any other call of the others, such as
    allreduce(), ends with RoundAborted, because all would wait for each other. Raises Unsupported
    if there are several DistributedOptimizers.
    """
    optimizers = [
        lane.store.optimizer for lane in member("join()").lanes if lane.store.optimizer is not None
    ]
    if len(optimizers) > 1:
        raise Unsupported(
            f"join() does not know which of {len(optimizers)} optimizers the others step. Give all "
            "workers the same number of batches, and omit it."
        )
    came = time.time()
    steps = 0
    while optimizers and not _step_without_data(optimizers[0]):
        steps += 1
    each = basin.torch.allgather_object((-steps, came), name="join")
    return max(range(len(each)), key=lambda rank: (*each[rank], rank))


def _step_without_data(optimizer: Any) -> bool:
    """Takes part in one step. Returns whether all workers are in join(), and did nothing else."""
    optimizer.zero_grad()
    optimizer.contribute(samples=0)
    parts = [
        (parameter * torch.zeros_like(parameter)).sum()
        for group in optimizer.param_groups
        for parameter in group["params"]
        if parameter.requires_grad
    ]
    for part in parts[1:]:
        parts[0] = parts[0] + part.to(parts[0])
    parts[0].backward()
    optimizer.synchronize()
    if optimizer.last_round().spec.counts.samples == 0:
        optimizer.zero_grad()
        return True
    optimizer.step()
    return False
