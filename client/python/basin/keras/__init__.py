# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""Basin for Keras 3, on its backends TensorFlow, PyTorch and JAX.

with basin.connect() as client:
    model.compile(basin.keras.DistributedOptimizer(client, keras.optimizers.Adam(1e-3)), loss)
    model.fit(
        x[client.rank :: client.world_size],
        y[client.rank :: client.world_size],
        callbacks=[
            basin.keras.BroadcastGlobalVariables(client),
            basin.keras.MetricAverage(client),
        ],
    )

Each process is one worker with one device. keras.distribution is not used.
"""

from basin.keras.callbacks import BroadcastGlobalVariables, MetricAverage
from basin.keras.optimizer import DistributedOptimizer

__all__ = ["BroadcastGlobalVariables", "DistributedOptimizer", "MetricAverage"]
