# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""Trains with Accelerate and Basin's sampler. Worker 1 is killed once; another takes its place."""

import os
import signal
from pathlib import Path

import basin.torch
import torch
from basin.accelerate import Accelerator

EPOCHS = 3


def main() -> None:
    number = os.environ["BASIN_RUN_RANK"]
    accelerator = Accelerator(cpu=True)
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(64, 5, generator=generator)
    data = torch.utils.data.TensorDataset(x, torch.randint(3, (64,), generator=generator))
    model = torch.nn.Linear(5, 3)
    model, optimizer = accelerator.prepare(model, torch.optim.AdamW(model.parameters(), lr=0.01))
    inner = optimizer.optimizer
    sampler = basin.torch.ElasticSampler(data, inner)
    loader = torch.utils.data.DataLoader(data, batch_size=4, sampler=sampler)
    state = basin.torch.State(model, inner, sampler=sampler)
    samples = []
    while state.epoch < EPOCHS:
        sampler.set_epoch(state.epoch)
        for inputs, labels in loader:
            optimizer.zero_grad()
            accelerator.backward(torch.nn.functional.cross_entropy(model(inputs), labels))
            if number == "1" and state.step == 3 and not Path("died").exists():
                Path("died").touch()
                os.kill(os.getpid(), signal.SIGKILL)
            optimizer.step()
            state.step += 1
        samples.append(sampler.epoch_report().committed)
        state.epoch += 1
    steps = state.step
    basin.torch.shutdown()
    torch.save(
        {"steps": steps, "samples": samples, "parameters": dict(model.state_dict())},
        f"results-{number}.pt",
    )


if __name__ == "__main__":
    main()
