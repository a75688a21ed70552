# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""Shared parts of the tests of basin.torch: a small model, its batches, and the average of the
gradients that one process computes in sequence, which the workers must match.

The arguments of each test program: BASIND LIBBASIN
"""

import contextlib
import os
from collections import Counter
from collections.abc import Iterator
from typing import Any
from unittest import mock

from jobs import JobsTest, message, require
from jobs import main as main

require("numpy", "torch")
import torch  # noqa: E402 - ends above when there is none
from torch import nn  # noqa: E402

WORKERS = 3


_sessions: Counter[str] = Counter()


@contextlib.contextmanager
def session(**options: Any) -> Iterator[Any]:
    """Initializes basin.torch. All workers stay until all have ended. A second session is another
    job, because an early worker would join the old one late."""
    import basin.torch

    torch.set_num_threads(1)  # A pool of threads does not survive a fork.
    job = os.environ["BASIN_JOB"]
    options.setdefault("job", f"{job}-{_sessions[job]}" if _sessions[job] else job)
    _sessions[job] += 1
    basin.torch.init(**options)
    try:
        yield basin.torch
        if basin.torch.is_initialized():
            basin.torch.barrier("end of test")
    finally:
        basin.torch.shutdown()


@contextlib.contextmanager
def commits_refused() -> Iterator[None]:
    """Makes this worker's commits of gradients and of buffers fail."""
    from basin import Unavailable
    from basin.worker import Worker

    def refuse(worker: Worker, lane: int) -> Unavailable:
        worker.withdraw(lane, "not now")
        return Unavailable("not now")

    with mock.patch.object(Worker, "commit", refuse):
        yield


def model() -> Any:
    """Equal on all workers."""
    torch.manual_seed(7)
    return nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 3)).double()


def batch(rank: int, step: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(1000 * rank + step)
    return torch.randn(4, 5, dtype=torch.float64, generator=generator)


def loss_of(net: Any, rank: int, step: int = 0) -> torch.Tensor:
    loss: torch.Tensor = net(batch(rank, step)).square().mean()
    return loss


def take_step(call: Any, optimizer: Any, rank: int, step: int = 0) -> None:
    """A step of a training with the gradients of `call`, which is the model or wraps it."""
    optimizer.zero_grad()
    loss_of(call, rank, step).backward()
    optimizer.step()


def gradients(net: nn.Module) -> list[Any]:
    return [None if p.grad is None else p.grad.clone() for p in net.parameters()]


def local_gradients(rank: int, step: int = 0) -> list[torch.Tensor]:
    net = model()
    loss_of(net, rank, step).backward()
    return gradients(net)


def average(step: int = 0, ranks: tuple[int, ...] = tuple(range(WORKERS))) -> list[torch.Tensor]:
    each = [local_gradients(rank, step) for rank in ranks]
    return [torch.stack(of_all).sum(0) / len(ranks) for of_all in zip(*each)]


def sgd(net: nn.Module, bt: Any, **options: Any) -> Any:
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    return bt.DistributedOptimizer(optimizer, net.named_parameters(), **options)


@contextlib.contextmanager
def trainer(**options: Any) -> Iterator[tuple[Any, Any, Any]]:
    """A session of a worker with a model and its optimizer."""
    with session() as bt:
        net = model()
        yield bt, net, sgd(net, bt, **options)


@contextlib.contextmanager
def process_group_of_one() -> Iterator[None]:
    """A process group of torch that has only this process."""
    from torch import distributed

    distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
    try:
        yield
    finally:
        distributed.destroy_process_group()


def hooked(bt: Any, net: nn.Module, state: dict[str, Any] | None = None, **options: Any) -> Any:
    """The model in torch's DistributedDataParallel with Basin's hook, and its state."""
    ddp = nn.parallel.DistributedDataParallel(net, **options)
    made = bt.DDPState(ddp, **(state or {}))
    ddp.register_comm_hook(made, bt.ddp_comm_hook)
    return ddp, made


def wrap(bt: Any, net: Any, way: str, **options: Any) -> tuple[Any, Any, Any]:
    """Reduces the gradients of a model in one of three ways: "optimizer", "model", or "hook", which
    needs process_group_of_one(). Returns the model to call, the optimizer, and which of them, or of
    others, has the calls of the lane."""
    if way == "optimizer":
        optimizer = sgd(net, bt, **options)
        return net, optimizer, optimizer
    if way == "model":
        wrapped = owner = bt.DistributedDataParallel(net, **options)
    else:
        wrapped, owner = hooked(bt, net, options)
    return wrapped, torch.optim.SGD(wrapped.parameters(), lr=0.1), owner


def expect(name: str, call: Any, *arguments: Any) -> str:
    """The message of the basin error that the call raises."""
    if text := message(name, call, *arguments):
        return text
    raise AssertionError(f"{name} was not raised")


class TorchTest(JobsTest):
    def run_job(self, function: Any, *arguments: Any) -> list[Any]:
        return self.jobs.run(function, WORKERS, *arguments)

    def assert_close(self, expected: list[Any], got: list[Any], bound: float = 1e-14) -> None:
        self.assertEqual(len(expected), len(got))
        for a, b in zip(expected, got):
            self.assertEqual((a.dtype, a.shape), (b.dtype, b.shape))
            self.assertLessEqual(float((a - b).abs().max()), bound)

    def assert_same_bits(self, each: list[list[Any]]) -> None:
        for other in each[1:]:
            for a, b in zip(each[0], other):
                self.assertTrue(torch.equal(a, b))
