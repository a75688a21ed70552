# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""The digits example with an elastic sampler, as test_soak_digits.py runs it.

Usage: soak_trainer.py FOLDER EPOCHS PACE_MS

Prints what it does, and writes to FOLDER, before each backward, the round and the samples that are
to be in it, and after each round who contributed. A process that dies between the two leaves it to
the records of the others whether its samples were used. Before the last two epochs it waits until
its input ends.
"""

import importlib
import json
import os
import sys
import threading
from pathlib import Path
from typing import Any

import basin
import basin.torch as bt
import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "examples"))
digits: Any = importlib.import_module("digits")

BATCH = 32
CALM_EPOCHS = 2


class Records:
    """One line for each batch and for each round."""

    def __init__(self, folder: str, worker: str) -> None:
        self._file = open(f"{folder}/{worker}-{os.getpid()}", "a")  # noqa: SIM115 - open to the end

    def write(self, **record: Any) -> None:
        self._file.write(json.dumps(record) + "\n")
        self._file.flush()


def main(leaving: object) -> None:
    folder, epochs, pace = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]) / 1000
    torch.set_num_threads(1)
    data = digits.load(torch.float32)
    bt.init()
    print("ready", flush=True)
    torch.manual_seed(7)
    net = digits.Net()
    # With the rate of the example, the last short batches of an epoch cost some epochs 5 %.
    made = torch.optim.SGD(net.parameters(), lr=0.02, momentum=0.9)
    optimizer: Any = bt.DistributedOptimizer(made, net.named_parameters())
    sampler = bt.ElasticBatchSampler(len(data.train_digits), optimizer, BATCH, seed=3)
    records = Records(folder, os.environ["BASIN_WORKER_ID"])
    end_round = sampler.samples.end_round

    def recording(named: Any, counted: bool) -> None:
        end_round(named, counted)
        info = optimizer.last_round()
        if counted:
            records.write(
                round=info.round,
                contributors=list(info.contributors),
                epoch=sampler.epoch,
                used=sampler.indices(named),
            )
            print("step", sampler.epoch, flush=True)

    sampler.samples.end_round = recording  # type: ignore[method-assign]
    state = bt.State(net, optimizer, sampler=sampler, epoch=0)
    while state.epoch < epochs and not leaving:
        if state.epoch == epochs - CALM_EPOCHS:
            print("calm", flush=True)
            sys.stdin.read()
        sampler.set_epoch(state.epoch)
        for indices in sampler:
            records.write(before=sampler.lane.next_round, epoch=sampler.epoch, named=indices)
            optimizer.zero_grad()
            scores = net(data.train_images[indices])
            nn.functional.cross_entropy(scores, data.train_digits[indices]).backward()
            optimizer.step()
            state.step += 1
            threading.Event().wait(pace)
            if leaving:
                break
        else:
            state.epoch += 1
    if leaving:
        print("left", flush=True)
    else:
        print("end", digits.hash_of(net), digits.accuracy(net, data), flush=True)
    bt.shutdown()


if __name__ == "__main__":
    with basin.leave_on_sigterm() as leaving:
        main(leaving)
