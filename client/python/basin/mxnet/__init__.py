# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""Basin for MXNet Gluon: a Trainer whose gradients are reduced over the workers of a job.

with basin.connect() as client:
    basin.mxnet.broadcast_parameters(client, net.collect_params())
    trainer = basin.mxnet.DistributedTrainer(
        client, net.collect_params(), "sgd", {"learning_rate": 0.1}, op=basin.Average
    )

Each process is one worker with one context. No kvstore is used.
"""

from basin.mxnet.parameters import broadcast_parameters
from basin.mxnet.states import broadcast_states
from basin.mxnet.trainer import DistributedTrainer

__all__ = ["DistributedTrainer", "broadcast_parameters", "broadcast_states"]
