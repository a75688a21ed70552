# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""A script of Horovod for Keras: a small network for handwritten digits, with model.fit().

It has nothing of Basin: basin-run --horovod -np 2 examples/horovod/keras_digits.py
"""

from typing import Any

import horovod.keras as hvd
import keras
from sklearn.datasets import load_digits

hvd.init()
keras.utils.set_random_seed(hvd.rank())
x, y = load_digits(return_X_y=True)
x = x / 16.0
mine = slice(hvd.rank(), 1500, hvd.size())
model = keras.Sequential(
    [keras.Input((64,)), keras.layers.Dense(32, "relu"), keras.layers.Dense(10)]
)
rate = 0.002 * hvd.size()
model.compile(
    optimizer=hvd.DistributedOptimizer(keras.optimizers.Adam(rate)),
    loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    metrics=["accuracy"],
)
callbacks: list[Any] = [
    hvd.callbacks.BroadcastGlobalVariablesCallback(0),
    hvd.callbacks.MetricAverageCallback(),
    hvd.callbacks.LearningRateWarmupCallback(initial_lr=rate, warmup_epochs=2),
]
model.fit(x[mine], y[mine], batch_size=25, epochs=5, verbose=0, callbacks=callbacks)
_, right = model.evaluate(x[1500:], y[1500:], verbose=0)
if hvd.rank() == 0:
    print(f"{100 * right:.1f} % right", flush=True)

total = sum(
    float(keras.ops.convert_to_numpy(each).astype("float64").sum()) for each in model.weights
)
print(f"parameters {total!r}", flush=True)
