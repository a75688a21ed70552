# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""Trains with Lightning: as one worker of two, or with ALONE=1 in one process with their batch."""

import logging
import os
import warnings
from pathlib import Path
from typing import Any

import lightning
import torch
import torchmetrics
from lightning.pytorch.callbacks import ModelCheckpoint
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

ALONE = "ALONE" in os.environ
BATCH = 8 if ALONE else 4
EPOCHS = 2


class Model(lightning.LightningModule):
    def __init__(self, size: int = 8) -> None:
        super().__init__()
        torch.manual_seed(7)
        self.net = torch.nn.Sequential(
            torch.nn.Linear(5, size), torch.nn.Tanh(), torch.nn.Linear(size, 3)
        )
        self.accuracy = torchmetrics.Accuracy(task="multiclass", num_classes=3)

    def training_step(self, batch: Any, index: int) -> Any:
        x, y = batch
        loss = torch.nn.functional.cross_entropy(self.net(x), y)
        self.log("loss", loss, sync_dist=True)
        return loss

    def validation_step(self, batch: Any, index: int) -> None:
        x, y = batch
        scores = self.net(x)
        self.accuracy(scores, y)
        self.log("accuracy", self.accuracy)
        self.log("val_loss", torch.nn.functional.cross_entropy(scores, y), sync_dist=True)

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.AdamW(self.parameters(), lr=0.01)
        return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)]


class Plain(Model):
    """Without Adam, which enlarges the rounding of bfloat16."""

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), lr=0.1)


class TwoOptimizers(Model):
    """Steps two optimizers itself."""

    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = False

    def training_step(self, batch: Any, index: int) -> Any:
        x, y = batch
        for optimizer in self.optimizers():
            optimizer.zero_grad()
        self.manual_backward(torch.nn.functional.cross_entropy(self.net(x), y))
        for optimizer in self.optimizers():
            optimizer.step()

    def configure_optimizers(self) -> Any:
        return [torch.optim.SGD(self.net[i].parameters(), lr=0.1) for i in (0, 2)]


def loader(samples: int = 64) -> Any:
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(samples, 5, generator=generator)
    y = torch.randint(3, (samples,), generator=generator)
    return DataLoader(TensorDataset(x, y), BATCH)


def training_data() -> Any:
    """Lightning shuffles the training data of workers, whatever the loader says."""
    data = loader().dataset
    alone: Any = DistributedSampler(data, num_replicas=1, rank=0, seed=0) if ALONE else None
    return DataLoader(data, BATCH, sampler=alone)


def trainer(**options: Any) -> lightning.Trainer:
    if not ALONE:
        from basin.lightning import BasinStrategy

        options["strategy"] = BasinStrategy()
    settings: dict[str, Any] = {
        "max_epochs": EPOCHS,
        "precision": "64-true",
        "accelerator": "cpu",
        "devices": 1,
        "logger": False,
        "enable_checkpointing": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
        **options,
    }
    return lightning.Trainer(**settings)


def parameters(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    return {name: each.detach().clone().double() for name, each in model.named_parameters()}


def fit(model: Model | None = None, **options: Any) -> dict[str, torch.Tensor]:
    model = model or Model()
    trainer(**options).fit(model, training_data())
    return parameters(model)


def resumed() -> dict[str, torch.Tensor]:
    """Trains an epoch, and goes on in another Trainer from its checkpoint."""
    keep = ModelCheckpoint(dirpath="kept", filename="first")
    first = trainer(max_epochs=1, enable_checkpointing=True, callbacks=[keep])
    first.fit(Model(), training_data())
    model = Model()
    trainer().fit(model, training_data(), ckpt_path=keep.best_model_path)
    return parameters(model)


def evaluated() -> dict[str, torch.Tensor]:
    """What a validation during a training, and one after it, have measured."""
    model = Model()
    it = trainer()
    it.fit(model, training_data(), loader(32))
    seen = dict(it.callback_metrics)
    again = it.validate(model, loader(48), verbose=False)[0]
    return {
        **{name: torch.as_tensor(value).double() for name, value in seen.items()},
        **{f"again {name}": torch.tensor(value).double() for name, value in again.items()},
    }


def main() -> None:
    for name in ("lightning", "lightning.pytorch"):
        logging.getLogger(name).setLevel(logging.ERROR)
    warnings.simplefilter("ignore")
    torch.set_default_dtype(torch.float64)
    results = {
        "start": parameters(Model()),
        "plain": fit(),
        "accumulation": fit(accumulate_grad_batches=3),
        "clipping": fit(accumulate_grad_batches=2, gradient_clip_val=0.05),
        "two optimizers": fit(TwoOptimizers()),
        "resumed": resumed(),
        "evaluation": evaluated(),
    }
    torch.set_default_dtype(torch.float32)
    results["bf16"] = fit(Plain(), precision="bf16-mixed")
    rank = 0
    if not ALONE:
        import basin.torch

        rank = basin.torch.rank()
        basin.torch.shutdown()
    torch.save(results, Path(f"results-{rank}.pt"))


if __name__ == "__main__":
    main()
