# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""A script of Horovod for TensorFlow 2: a small network for handwritten digits, with a loop of its
own.

It has nothing of Basin: basin-run --horovod -np 2 examples/horovod/tensorflow_digits.py
"""

from typing import Any

import horovod.tensorflow as hvd
import keras
import tensorflow as tf
from sklearn.datasets import load_digits

BATCH = 25
EPOCHS = 5

hvd.init()
keras.utils.set_random_seed(hvd.rank())
x, y = load_digits(return_X_y=True)
x = (x / 16.0).astype("float32")
dataset = tf.data.Dataset.from_tensor_slices((x[:1500], y[:1500]))
dataset = dataset.shard(hvd.size(), hvd.rank()).batch(BATCH)
model = keras.Sequential(
    [keras.Input((64,)), keras.layers.Dense(32, "relu"), keras.layers.Dense(10)]
)
loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
optimizer = keras.optimizers.Adam(0.002 * hvd.size())


@tf.function
def training_step(images: Any, labels: Any, first_batch: bool) -> Any:
    with tf.GradientTape() as tape:
        value = loss(labels, model(images, training=True))
    tape = hvd.DistributedGradientTape(tape)
    gradients = tape.gradient(value, model.trainable_variables)
    optimizer.apply_gradients(zip(gradients, model.trainable_variables))
    # The optimizer has its variables after the first step.
    if first_batch:
        hvd.broadcast_variables(model.variables, root_rank=0)
        hvd.broadcast_variables(optimizer.variables, root_rank=0)
    return value


for epoch in range(EPOCHS):
    for number, (images, labels) in enumerate(dataset):
        training_step(images, labels, epoch == 0 and number == 0)
    found = tf.argmax(model(x[1500:]), 1)
    right = float(tf.reduce_mean(tf.cast(found == y[1500:], tf.float32)))
    if hvd.rank() == 0:
        print(f"epoch {epoch}: {100 * right:.1f} % right", flush=True)

total = sum(float(tf.reduce_sum(tf.cast(each, tf.float64))) for each in model.variables)
print(f"parameters {total!r}", flush=True)
