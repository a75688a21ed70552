# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""A script of Horovod for MXNet, as one of three workers. Worker 1 is killed after the first step.
The averages are then over the two that are left."""

import os
import signal
from typing import Any

import horovod.mxnet as hvd
import mxnet as mx
from mxnet import autograd, gluon

GRADIENTS = (1.0, 8.0, 3.0)  # Of the workers: 4 on average, and 2 without worker 1.


def weight_of(name: str) -> Any:
    weight = gluon.Parameter(name, shape=(1,))
    weight.initialize(mx.init.Zero())
    return weight


def main() -> None:
    number = int(os.environ["BASIN_RUN_RANK"])
    hvd.init()
    rate = {"learning_rate": 1.0}
    weights = [weight_of("of_trainer"), weight_of("of_optimizer")]
    optimizer = hvd.DistributedOptimizer(mx.optimizer.create("sgd", **rate))
    trainers = [
        hvd.DistributedTrainer([weights[0]], "sgd", rate),
        gluon.Trainer([weights[1]], optimizer, kvstore=None),
    ]
    for step in range(3):
        if step == 1 and number == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        for weight, trainer in zip(weights, trainers):
            with autograd.record():
                loss = weight.data() * GRADIENTS[number]
            loss.backward()
            trainer.step(1)
    assert hvd.size() == 2
    for weight in weights:
        assert weight.data().asscalar() == -(4.0 + 2.0 + 2.0), (weight.name, weight.data())
    print("averaged", flush=True)


if __name__ == "__main__":
    main()
