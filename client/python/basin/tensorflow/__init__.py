# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""Basin for TensorFlow: gradients are reduced over the workers of a job, also within tf.function.

with basin.connect() as client:
    basin.tensorflow.broadcast_variables(client, model.trainable_variables)
    with basin.tensorflow.DistributedGradientTape(client, tf.GradientTape()) as tape:
        loss = loss_of(model, batch)
    gradients = tape.gradient(loss, model.trainable_variables)

Each process is one worker. tf.distribute is not used.
"""

from basin.tensorflow.optimizer import DistributedOptimizer
from basin.tensorflow.reducing import allreduce, grouped_allreduce
from basin.tensorflow.tape import DistributedGradientTape
from basin.tensorflow.variables import broadcast_variables

__all__ = [
    "DistributedGradientTape",
    "DistributedOptimizer",
    "allreduce",
    "broadcast_variables",
    "grouped_allreduce",
]
