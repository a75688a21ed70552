# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""Trains with Keras as one of three workers. Worker 1 is killed in the middle of an epoch."""

import os
import signal
from pathlib import Path
from typing import Any

import basin
import basin.keras
import keras
import torch
from sklearn.datasets import load_digits

EPOCHS = 3


class Death(keras.callbacks.Callback):
    """Kills this process before a step."""

    def __init__(self, step: int) -> None:
        super().__init__()
        self._left = step

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        self._left -= 1
        if self._left == 0:
            os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    number = os.environ["BASIN_RUN_RANK"]
    x, y = load_digits(return_X_y=True)
    with basin.connect() as client:
        keras.utils.set_random_seed(client.rank)
        model = keras.Sequential([keras.Input((64,)), keras.layers.Dense(10)])
        optimizer = basin.keras.DistributedOptimizer(client, keras.optimizers.Adam(0.01))
        model.compile(optimizer, keras.losses.SparseCategoricalCrossentropy(from_logits=True))
        mine = slice(int(number), 300, 3)
        history = model.fit(
            x[mine] / 16.0,
            y[mine],
            batch_size=20,
            epochs=EPOCHS,
            verbose=0,
            callbacks=[
                basin.keras.BroadcastGlobalVariables(client),
                basin.keras.MetricAverage(client),
                *([Death(7)] if number == "1" else []),
            ],
        )
        results = {
            "workers": client.world_size,
            "losses": history.history["loss"],
            "weights": {
                each.path: torch.tensor(keras.ops.convert_to_numpy(each)) for each in model.weights
            },
        }
    torch.save(results, Path(f"results-{number}.pt"))


if __name__ == "__main__":
    main()
