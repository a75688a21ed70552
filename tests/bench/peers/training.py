# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""The same training with each system. Model, data, optimizer and checkpoints are the same.

The environment has, for all of them:

  WORKERS     how many workers there are at most
  STEP        seconds of each step in which the processor is idle, as it is while an accelerator
              computes
  PATIENCE    seconds after which a collective call fails
  CHECKPOINT  a file that one of the workers saves after each SAVE_EVERY steps; a training that
              starts again continues from it, and a worker that joins others gets their state
"""

import os
import signal
import sys
import threading
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
from torch import nn
from trainer import Log

INPUTS, CLASSES, BATCH = 256, 10, 64


def make_model() -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(INPUTS, 512), nn.ReLU(), nn.Linear(512, CLASSES))


def make_optimizer(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.01)


class Data:
    """The batch of a worker, and what it costs to compute with it."""

    def __init__(self, worker: int) -> None:
        generator = torch.Generator().manual_seed(worker)
        self._inputs = torch.randn(BATCH, INPUTS, generator=generator)
        self._classes = torch.randint(CLASSES, (BATCH,), generator=generator)
        self._seconds = float(os.environ["STEP"])

    def loss(self, model: Any) -> torch.Tensor:
        threading.Event().wait(self._seconds)
        return nn.functional.cross_entropy(model(self._inputs), self._classes)


class Checkpoint:
    def __init__(self) -> None:
        self.path = Path(os.environ["CHECKPOINT"])
        self._every = int(os.environ["SAVE_EVERY"])

    def is_due(self, step: int) -> bool:
        return step % self._every == 0

    def save(self, state: dict[str, Any]) -> None:
        new = self.path.with_suffix(f".{os.getpid()}")
        torch.save(state, new)
        new.replace(self.path)

    def load(self) -> dict[str, Any] | None:
        return torch.load(self.path) if self.path.exists() else None


def patience() -> timedelta:
    return timedelta(seconds=float(os.environ["PATIENCE"]))


def train_with_basin(worker: int, log: Log) -> None:
    """BASIN_ADDRESS is the aggregator's; START_WORKERS how many workers start the job; LEAVE_ON the
    signals at which a worker leaves when its step has ended."""
    sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "client/python"))
    import basin.torch

    basin.torch.init(
        os.environ["BASIN_ADDRESS"],
        worker_id=f"w{worker}",
        min_workers=1,
        max_workers=int(os.environ["WORKERS"]),
        start_workers=int(os.environ["START_WORKERS"]),
        leave_on=tuple(signal.Signals[name] for name in os.environ["LEAVE_ON"].split()),
        log_level="error",
    )
    model = make_model()
    optimizer = basin.torch.DistributedOptimizer(make_optimizer(model), model.named_parameters())
    state = basin.torch.State(model, optimizer, start=False)
    checkpoint = Checkpoint()
    if basin.torch.rank() == 0 and checkpoint.path.exists():
        state.load_checkpoint(checkpoint.path)
    state.start()
    data = Data(worker)
    while not state.leaving:
        log.begin(BATCH)
        optimizer.zero_grad()
        try:
            data.loss(model).backward()
            optimizer.step()
        except basin.RoundAborted:
            log.discarded()
            continue
        except basin.Evicted:
            log.discarded()
            basin.torch.rejoin()
            continue
        state.step += 1
        log.step(state.step)
        if checkpoint.is_due(state.step) and basin.torch.rank() == 0:
            state.save_checkpoint(checkpoint.path)
    basin.torch.shutdown()


def train_with_torchelastic(worker: int, log: Log) -> None:
    """Started by torchrun, again after each failure."""
    import torch.distributed as dist

    dist.init_process_group("gloo", timeout=patience())
    plain = make_model()
    optimizer = make_optimizer(plain)
    checkpoint = Checkpoint()
    step = 0
    if state := checkpoint.load():
        plain.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        step = state["step"]
    model = nn.parallel.DistributedDataParallel(plain)
    data = Data(worker)
    while True:
        log.begin(BATCH)
        optimizer.zero_grad()
        data.loss(model).backward()
        optimizer.step()
        step += 1
        log.step(step)
        if checkpoint.is_due(step) and dist.get_rank() == 0:
            checkpoint.save(
                {
                    "model": plain.state_dict(),
                    "optimizer": optimizer.state_dict(),
                    "step": step,
                }
            )


def train_with_torchft(worker: int, log: Log) -> None:
    """A replica group of one process. TORCHFT_LIGHTHOUSE is the address of the lighthouse.

    The gradients are reduced by the manager, because torchft's DistributedDataParallel ends the
    trainer with an AssertionError when a reduction fails (torchft 0.2.0 with torch 2.13). The calls
    of torchft's Optimizer are written out, because the log needs the verdict of should_commit().
    """
    import torch.distributed as dist
    from torchft import Manager, ProcessGroupGloo

    store = dist.TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
    model = make_model()
    optimizer = make_optimizer(model)

    def load(state: Any) -> None:
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])

    def state() -> dict[str, Any]:
        return {"model": model.state_dict(), "optimizer": optimizer.state_dict()}

    manager = Manager(
        pg=ProcessGroupGloo(timeout=patience()),
        load_state_dict=load,
        state_dict=state,
        min_replica_size=1,
        timeout=patience(),
        quorum_retries=int(os.environ["QUORUM_RETRIES"]),
        replica_id=f"r{worker}",
        store_addr="localhost",
        store_port=store.port,
        rank=0,
        world_size=1,
    )
    checkpoint = Checkpoint()
    if saved := checkpoint.load():
        load(saved)
        manager.load_state_dict(saved["manager"])
    data = Data(worker)
    while True:
        log.begin(BATCH)
        manager.start_quorum()
        optimizer.zero_grad()
        data.loss(model).backward()
        gradients = [p.grad for p in model.parameters() if p.grad is not None]
        flat = torch.cat([gradient.flatten() for gradient in gradients])
        manager.allreduce(flat).wait()
        sizes = [gradient.numel() for gradient in gradients]
        for gradient, part in zip(gradients, flat.split(sizes), strict=True):
            gradient.copy_(part.view_as(gradient))
        if not manager.should_commit():
            log.discarded()
            continue
        optimizer.step()
        step = manager.current_step()
        log.step(step)
        if checkpoint.is_due(step) and manager.participating_rank() == 0:
            checkpoint.save({**state(), "manager": manager.state_dict()})


TRAININGS: dict[str, Callable[[int, Log], None]] = {
    "basin": train_with_basin,
    "torchelastic": train_with_torchelastic,
    "torchft": train_with_torchft,
}
