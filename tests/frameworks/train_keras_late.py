# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""Trains with Keras as one of two workers. Worker 1 is killed once; what takes its place cannot
begin in the middle, and says so. Worker 0 trains until then."""

import os
import signal
from pathlib import Path
from typing import Any

import basin
import basin.keras
import keras
import numpy as np

REFUSED = Path("refused")
DIED = Path("died")


class Watch(keras.callbacks.Callback):
    """Kills worker 1 once, and ends the training of the other one when it may end."""

    def __init__(self, number: str) -> None:
        super().__init__()
        self._number = number

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if self._number == "1" and batch == 2:
            DIED.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        if REFUSED.exists():
            self.model.stop_training = True


def main() -> None:
    number = os.environ["BASIN_RUN_RANK"]
    assert not REFUSED.exists()
    with basin.connect() as client:
        model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
        model.compile(basin.keras.DistributedOptimizer(client, keras.optimizers.SGD(0.01)), "mse")
        try:
            model.fit(
                np.ones((64, 4)),
                np.ones((64, 1)),
                batch_size=4,
                epochs=1_000_000,
                verbose=0,
                callbacks=[basin.keras.BroadcastGlobalVariables(client), Watch(number)],
            )
        except basin.Unsupported as error:
            assert DIED.exists()
            REFUSED.write_text(str(error))
            raise


if __name__ == "__main__":
    main()
