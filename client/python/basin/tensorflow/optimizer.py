# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""DistributedOptimizer: optimizers of TensorFlow are those of Keras."""

from typing import Any

from basin.client import Client
from basin.errors import Unsupported
from basin.tensorflow.host import tf


def DistributedOptimizer(client: Client, optimizer: Any, **options: Any) -> Any:
    """Returns the same optimizer of Keras, whose gradients are reduced over all workers; see
    basin.keras.DistributedOptimizer(), which has the options. Raises Unsupported for an optimizer
    of TensorFlow 1, which reduces with a DistributedGradientTape."""
    if isinstance(optimizer, tf.compat.v1.train.Optimizer):
        raise Unsupported(
            f"DistributedOptimizer() was given {type(optimizer).__name__} of tf.compat.v1. Take "
            "its gradients from a DistributedGradientTape, and call apply_gradients()."
        )
    import basin.keras

    return basin.keras.DistributedOptimizer(client, optimizer, **options)
