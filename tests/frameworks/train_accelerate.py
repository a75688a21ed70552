# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""Trains with Accelerate: as one worker of two, or with ALONE=1 in one process with their batch."""

import os
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader, TensorDataset

if "ALONE" in os.environ:
    from accelerate import Accelerator
else:
    from basin.accelerate import Accelerator

from accelerate.utils import DataLoaderConfiguration, set_seed

BATCH = 8 if "ALONE" in os.environ else 4
EPOCHS = 2


def make(size: int = 8) -> tuple[Any, Any]:
    torch.manual_seed(7)
    model = torch.nn.Sequential(torch.nn.Linear(5, size), torch.nn.Tanh(), torch.nn.Linear(size, 3))
    return model, torch.optim.AdamW(model.parameters(), lr=0.01)


def loader(samples: int = 64, shuffle: bool = False) -> Any:
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(samples, 5, generator=generator)
    y = torch.randint(3, (samples,), generator=generator)
    return DataLoader(TensorDataset(x, y), BATCH, shuffle=shuffle)


def parameters(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    return {name: each.detach().clone().double() for name, each in model.named_parameters()}


def train(it: Any, model: Any, optimizer: Any, data: Any, clip: float | None = None) -> None:
    for x, y in data:
        with it.accumulate(model):
            it.backward(torch.nn.functional.cross_entropy(model(x), y))
            if clip is not None and it.sync_gradients:
                it.clip_grad_norm_(model.parameters(), clip)
            optimizer.step()
            optimizer.zero_grad()


def trained(clip: float | None = None, **options: Any) -> dict[str, torch.Tensor]:
    it = Accelerator(cpu=True, **options)
    model, optimizer = make()
    if "mixed_precision" in options:  # Adam would enlarge the rounding.
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model, optimizer, data = it.prepare(model, optimizer, loader())
    for _ in range(EPOCHS):
        train(it, model, optimizer, data, clip)
    it.end_training()
    it.free_memory()
    return parameters(model)


def shuffled() -> dict[str, torch.Tensor]:
    """The samples of all batches, in order: those of all workers together."""
    set_seed(3 if BATCH == 8 else 3 + int(os.environ["BASIN_RUN_RANK"]))  # Rank 0's is used.
    config = DataLoaderConfiguration(use_seedable_sampler=True)
    it = Accelerator(cpu=True, dataloader_config=config)
    data = it.prepare(loader(shuffle=True))
    seen = {}
    for epoch in range(2):
        batches = [it.gather(y + 10 * x[:, 0]) for x, y in data]
        seen[f"epoch {epoch}"] = torch.stack([each.sort().values for each in batches]).double()
    it.free_memory()
    return seen


def resumed() -> dict[str, torch.Tensor]:
    """Trains an epoch, and goes on with other objects from its checkpoint."""
    it = Accelerator(cpu=True)
    model, optimizer, data = it.prepare(*make(), loader())
    train(it, model, optimizer, data)
    it.save_state("kept")
    it.wait_for_everyone()
    it.free_memory()
    it = Accelerator(cpu=True)
    model, optimizer, data = it.prepare(*make(), loader())
    it.load_state("kept")
    train(it, model, optimizer, data)
    it.free_memory()
    return parameters(model)


def apart() -> dict[str, torch.Tensor]:
    """The optimizer is prepared before its model, which differs between the workers until then."""
    it = Accelerator(cpu=True)
    model, optimizer = make()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(it.process_index)
    optimizer = it.prepare(optimizer)
    model, data = it.prepare(model, loader())
    train(it, model, optimizer, data)
    it.free_memory()
    return parameters(model)


def evaluated() -> dict[str, torch.Tensor]:
    """What metrics count; 50 samples fill no whole batches."""
    it = Accelerator(cpu=True)
    model, data = it.prepare(make()[0], loader(50))
    right, labels = [], []
    with torch.no_grad():
        for x, y in data:
            given = it.gather_for_metrics({"right": model(x).argmax(-1) == y, "labels": y})
            right.append(given["right"])
            labels.append(given["labels"])
    it.free_memory()
    ends = torch.full((2, 1 + it.process_index), 5.0)
    padded = it.gather(it.pad_across_processes(ends, dim=-1, pad_index=-1))
    mean = it.reduce(torch.tensor([1.0 + it.process_index]), "mean")
    if it.num_processes == 2:
        assert padded.tolist() == [[5, -1], [5, -1], [5, 5], [5, 5]], padded
        assert mean.tolist() == [1.5], mean
        assert it.is_main_process == (it.process_index == 0)
    return {
        "right": torch.cat(right).sum().double(),
        "labels": torch.cat(labels).sort().values.double(),
    }


def main() -> None:
    torch.set_num_threads(1)
    torch.set_default_dtype(torch.float64)
    results = {
        "start": parameters(make()[0]),
        "plain": trained(),
        "accumulation": trained(gradient_accumulation_steps=3),
        "clipping": trained(clip=0.05, gradient_accumulation_steps=3),
        "resumed": resumed(),
        "apart": apart(),
        "evaluation": evaluated(),
        "shuffled": shuffled(),
    }
    torch.set_default_dtype(torch.float32)
    Accelerator().state._reset_state(True)
    results["bf16"] = trained(mixed_precision="bf16")
    rank = 0
    if "ALONE" not in os.environ:
        import basin.torch

        rank = basin.torch.rank()
        basin.torch.shutdown()
    torch.save(results, Path(f"results-{rank}.pt"))


if __name__ == "__main__":
    main()
