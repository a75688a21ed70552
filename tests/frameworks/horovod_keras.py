# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""A script of Horovod for Keras, which basin-run --horovod runs as it is."""

from pathlib import Path
from typing import Any

import horovod.tensorflow.keras as hvd
import keras
import numpy as np
import torch
from horovod.keras.callbacks import MetricAverageCallback
from sklearn.datasets import load_digits


class Rates(keras.callbacks.Callback):
    """Remembers the learning rate of each step."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[float] = []

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.seen.append(round(float(self.model.optimizer.learning_rate), 6))


def main() -> None:
    hvd.init()
    keras.utils.set_random_seed(hvd.rank())
    x, y = load_digits(return_X_y=True)
    x, y = x[hvd.rank() : 512 : hvd.size()] / 16.0, y[hvd.rank() : 512 : hvd.size()]
    model = keras.Sequential(
        [keras.Input((64,)), keras.layers.Dense(16, "tanh"), keras.layers.Dense(10)]
    )
    rate = 0.01 * hvd.size()
    optimizer = hvd.DistributedOptimizer(
        keras.optimizers.Adam(rate), backward_passes_per_step=2, average_aggregated_gradients=True
    )
    model.compile(
        optimizer,
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    rates = Rates()
    calls: list[Any] = [
        hvd.callbacks.BroadcastGlobalVariablesCallback(0),
        MetricAverageCallback(),
        hvd.callbacks.LearningRateWarmupCallback(initial_lr=rate, warmup_epochs=2, verbose=1),
        hvd.callbacks.LearningRateScheduleCallback(rate, 0.5, start_epoch=2),
        rates,
    ]
    if hvd.rank() == 0:
        calls.append(keras.callbacks.ModelCheckpoint("checkpoint-{epoch}.keras"))
    history = model.fit(x, y, batch_size=32, epochs=5, verbose=0, callbacks=calls).history
    losses = history["loss"]
    assert losses[-1] < losses[0], losses
    steps = len(x) // 32
    # From that of one worker to that of both over two epochs; then halved with each epoch.
    assert rates.seen[2 * steps - 1] == rate and rates.seen[0] < 0.6 * rate, rates.seen
    halved = [rate] * steps + [rate / 2] * steps + [rate / 4] * steps
    assert rates.seen[2 * steps :] == halved, rates.seen

    if hvd.rank() == 0:
        loaded = hvd.load_model("checkpoint-4.keras")
        assert isinstance(loaded.optimizer, keras.optimizers.Adam)
    assert hvd.allreduce(hvd.rank() + 1.0).tolist() == 1.5
    whole = np.array([3, -3], np.int32) + 3 * hvd.rank()
    assert hvd.allreduce(whole).tolist() == [4, -1], whole
    assert hvd.allreduce(whole, postscale_factor=2.0).tolist() == [9, -3]
    assert hvd.allreduce(hvd.rank() + 2).tolist() == 2
    narrow = np.array([-1, 100], np.int8)
    assert hvd.allreduce(narrow, op=hvd.Sum).tolist() == [-2, -56]
    rows = hvd.reducescatter(np.array([1, 2, 4]), op=hvd.Average, postscale_factor=0.5)
    assert rows.tolist() == ([0, 1], [2])[hvd.rank()], rows
    assert hvd.broadcast([hvd.rank()], 1).tolist() == [1]
    assert hvd.allgather([hvd.rank()]).tolist() == [0, 1]
    for call in (
        lambda: hvd.broadcast_global_variables(0),
        lambda: hvd.elastic.KerasState(model),
        lambda: hvd.DistributedOptimizer("adam"),
        lambda: hvd.start_timeline("here"),
        lambda: hvd.reducescatter(1.0),
    ):
        try:
            call()
        except NotImplementedError:
            continue
        raise AssertionError("nothing was raised")
    results = {
        "losses": losses,
        "weights": {
            each.path: torch.tensor(keras.ops.convert_to_numpy(each)) for each in model.weights
        },
    }
    torch.save(results, Path(f"results-{hvd.rank()}.pt"))


if __name__ == "__main__":
    main()
