# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""Trains a tiny GPT-2 with the Trainer of Transformers, from random parameters: as one worker of
two, or with ALONE=1 in one process with their batch."""

import os
from pathlib import Path
from typing import Any

import torch
from transformers import GPT2Config, GPT2LMHeadModel, TrainerCallback, TrainingArguments

if "ALONE" in os.environ:
    from transformers import Trainer
else:
    from basin.transformers import Trainer

BATCH = 4 if "ALONE" in os.environ else 2


def make() -> Any:
    torch.manual_seed(7)
    config = GPT2Config(
        vocab_size=32,
        n_positions=8,
        n_embd=16,
        n_layer=1,
        n_head=2,
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
        bos_token_id=0,
        eos_token_id=0,
    )
    return GPT2LMHeadModel(config).to(torch.get_default_dtype())


def data(samples: int, seed: int) -> Any:
    """Texts of different lengths: -100 is no label, so workers have different numbers of tokens."""
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.randint(32, (samples, 8), generator=generator)
    labels = tokens.clone()
    for i, length in enumerate(torch.randint(2, 9, (samples,), generator=generator)):
        labels[i, length:] = -100
    return [{"input_ids": a, "labels": b} for a, b in zip(tokens, labels)]


def trainer(model: Any, samples: int = 24, **options: Any) -> Any:
    settings: dict[str, Any] = {
        "output_dir": "kept",
        "num_train_epochs": 2,
        "per_device_train_batch_size": BATCH,
        "per_device_eval_batch_size": BATCH,
        "learning_rate": 1e-2,
        "max_grad_norm": 0.0,
        "save_strategy": "no",
        "report_to": "none",
        "use_cpu": True,
        "disable_tqdm": True,
        "logging_strategy": "epoch",
        "seed": 5,
        "data_seed": 5,
        **options,
    }
    return Trainer(
        model,
        TrainingArguments(**settings),
        train_dataset=data(samples, 1),
        eval_dataset=data(10, 2),
    )


def parameters(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    return {name: each.detach().clone().double() for name, each in model.named_parameters()}


def trained(**options: Any) -> dict[str, torch.Tensor]:
    model = make()
    trainer(model, **options).train()
    return parameters(model)


def trained_again() -> dict[str, torch.Tensor]:
    """One Trainer trains twice."""
    model = make()
    it = trainer(model)
    it.train()
    it.train()
    return parameters(model)


def logged() -> dict[str, torch.Tensor]:
    """The losses that the Trainer logs, with means over all workers."""
    it = trainer(make(), label_names=["labels"], average_tokens_across_devices=False)
    it.train()
    measured = it.evaluate()
    losses = [entry["loss"] for entry in it.state.log_history if "loss" in entry]
    return {
        "eval_loss": torch.tensor(measured["eval_loss"]).double(),
        "losses": torch.tensor(losses).double(),
    }


class OneEpoch(TrainerCallback):
    def on_epoch_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        control.should_training_stop = True


def resumed() -> dict[str, torch.Tensor]:
    """Trains the first epoch, and goes on in another Trainer from its checkpoint."""
    options: dict[str, Any] = {
        "save_strategy": "epoch",
        "eval_strategy": "epoch",
        "load_best_model_at_end": True,
    }
    first = trainer(make(), output_dir="resumed", **options)
    first.add_callback(OneEpoch())
    first.train()
    model = make()
    trainer(model, output_dir="resumed").train(resume_from_checkpoint=True)
    return parameters(model)


def main() -> None:
    torch.set_num_threads(1)
    torch.set_default_dtype(torch.float64)
    results = {
        "start": parameters(make()),
        "plain": trained(),
        "accumulation": trained(gradient_accumulation_steps=4),
        "clipping": trained(gradient_accumulation_steps=4, max_grad_norm=0.1),
        "again": trained_again(),
        "logged": logged(),
        "resumed": resumed(),
    }
    torch.set_default_dtype(torch.float32)
    results["bf16"] = trained(bf16=True, optim="sgd", learning_rate=0.1)  # Adam enlarges rounding.
    rank = 0
    if "ALONE" not in os.environ:
        import basin.torch

        rank = basin.torch.rank()
        basin.torch.shutdown()
    torch.save(results, Path(f"results-{rank}.pt"))


if __name__ == "__main__":
    main()
