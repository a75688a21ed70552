# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""A trainer of one of the systems that peers.py compares. It never ends, and after each step
appends a line to the log: its rank, its process, the number of the step, and when it ended.

Arguments: the system, the rank (torchrun sets RANK instead), and the log. The environment has what
the system needs; see peers.py. The model, its data and the optimizer are the same in all of them.
"""

import os
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
from torch import nn

INPUTS, CLASSES, BATCH = 256, 10, 64


def make_model() -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(INPUTS, 512), nn.ReLU(), nn.Linear(512, CLASSES))


def make_optimizer(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.01)


class Log:
    """Appends whole lines, so that all trainers may write to one file."""

    def __init__(self, rank: int, path: str) -> None:
        self._rank = rank
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def write(self, step: int, what: str = "step") -> None:
        line = f"{what} {self._rank} {os.getpid()} {step} {time.monotonic()}\n"
        os.write(self._file, line.encode())


def loss_of(model: Any, data: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    return nn.functional.cross_entropy(model(data[0]), data[1])


def data_of(rank: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(rank)
    inputs = torch.randn(BATCH, INPUTS, generator=generator)
    return inputs, torch.randint(CLASSES, (BATCH,), generator=generator)


def basin_trainer(rank: int, log: Log) -> None:
    """BASIN_ADDRESS is the aggregator's; BASIN_START how many workers start the job."""
    sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "client/python"))
    import basin.torch

    basin.torch.init(
        os.environ["BASIN_ADDRESS"],
        worker_id=f"w{rank}",
        min_workers=1,
        max_workers=int(os.environ["WORKERS"]),
        start_workers=int(os.environ["BASIN_START"]),
        log_level="error",
    )
    model = make_model()
    optimizer = basin.torch.DistributedOptimizer(make_optimizer(model), model.named_parameters())
    state = basin.torch.State(model, optimizer)
    data = data_of(rank)
    while True:
        optimizer.zero_grad()
        try:
            loss_of(model, data).backward()
            optimizer.step()
        except basin.RoundAborted:
            log.write(state.step, "discarded")
            continue
        except basin.Evicted:
            basin.torch.rejoin()
            continue
        state.step += 1
        log.write(state.step)


def elastic_trainer(rank: int, log: Log) -> None:
    """Started by torchrun, again after each failure. It saves a checkpoint in each step, in the
    folder CHECKPOINTS, so that it repeats as few steps as it can."""
    import torch.distributed as dist

    dist.init_process_group("gloo", timeout=timedelta(seconds=float(os.environ["PATIENCE"])))
    plain = make_model()
    optimizer = make_optimizer(plain)
    saved = Path(os.environ["CHECKPOINTS"]) / "last.pt"
    step = 0
    if saved.exists():
        state = torch.load(saved)
        plain.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        step = state["step"]
    model = nn.parallel.DistributedDataParallel(plain)
    data = data_of(rank)
    while True:
        optimizer.zero_grad()
        loss_of(model, data).backward()
        optimizer.step()
        step += 1
        if dist.get_rank() == 0:
            state = {
                "model": plain.state_dict(),
                "optimizer": optimizer.state_dict(),
                "step": step,
            }
            torch.save(state, saved.with_suffix(".new"))
            saved.with_suffix(".new").replace(saved)
        log.write(step)


def torchft_trainer(rank: int, log: Log) -> None:
    """A replica group of one process. TORCHFT_LIGHTHOUSE is the address of the lighthouse. The
    gradients are reduced by the manager: torchft's DistributedDataParallel ends the trainer with an
    AssertionError when a reduction fails (torchft 0.2.0 with torch 2.13)."""
    import torch.distributed as dist
    from torchft import Manager, Optimizer, ProcessGroupGloo

    patience = timedelta(seconds=float(os.environ["PATIENCE"]))
    store = dist.TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
    model = make_model()
    inner = make_optimizer(model)

    def load(state: Any) -> None:
        model.load_state_dict(state["model"])
        inner.load_state_dict(state["optimizer"])

    manager = Manager(
        pg=ProcessGroupGloo(timeout=patience),
        load_state_dict=load,
        state_dict=lambda: {"model": model.state_dict(), "optimizer": inner.state_dict()},
        min_replica_size=1,
        timeout=patience,
        replica_id=f"r{rank}",
        store_addr="localhost",
        store_port=store.port,
        rank=0,
        world_size=1,
    )
    optimizer = Optimizer(manager, inner)
    data = data_of(rank)
    while True:
        before = manager.current_step()
        optimizer.zero_grad()
        loss_of(model, data).backward()
        gradients = [p.grad for p in model.parameters() if p.grad is not None]
        flat = torch.cat([gradient.flatten() for gradient in gradients])
        manager.allreduce(flat).wait()
        sizes = [gradient.numel() for gradient in gradients]
        for gradient, part in zip(gradients, flat.split(sizes), strict=True):
            gradient.copy_(part.view_as(gradient))
        optimizer.step()
        step = manager.current_step()
        log.write(step, "step" if step > before else "discarded")


TRAINERS: dict[str, Callable[[int, Log], None]] = {
    "basin": basin_trainer,
    "torchelastic": elastic_trainer,
    "torchft": torchft_trainer,
}


def main() -> None:
    system, rank, path = sys.argv[1:]
    rank = os.environ.get("RANK", rank)
    torch.set_num_threads(1)
    TRAINERS[system](int(rank), Log(int(rank), path))


if __name__ == "__main__":
    main()
