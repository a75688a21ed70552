# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""Callbacks of model.fit()."""

from typing import Any

import numpy as np

from basin import arrays
from basin.client import Client
from basin.errors import FailedPrecondition
from basin.keras.backend import keras
from basin.keras.optimizer import is_distributed
from basin.spec import Op, RoundSpec


class BroadcastGlobalVariables(keras.callbacks.Callback):
    """Gives all workers the weights of the model and the state of the optimizer of one of them,
    bit for bit, when fit() begins. The states of random generators, such as those of Dropout, stay
    each worker's own.

    client:    of basin.connect()
    root_rank: the worker that has loaded a checkpoint, if any has

    fit() raises Mismatch, on all workers, if their models differ; Unsupported in a worker that
    joins a job which trains already; FailedPrecondition if the optimizer is not that of
    DistributedOptimizer(), and the model has no train_step() of its own, which may reduce.
    """

    def __init__(self, client: Client, root_rank: int = 0) -> None:
        super().__init__()
        self._client = client
        self._root_rank = root_rank

    def on_train_begin(self, logs: Any = None) -> None:
        call = "BroadcastGlobalVariables"
        model = self.model
        trains_itself = type(model).train_step is not keras.Model.train_step
        if not is_distributed(model.optimizer) and not trains_itself:
            raise FailedPrecondition(
                f"{call} was used in the fit() of a model whose optimizer, {model.optimizer.name}, "
                "reduces nothing, so each worker would train alone. Compile the model with "
                "basin.keras.DistributedOptimizer(client, optimizer); with mixed_float16 the "
                "optimizer is a keras.optimizers.LossScaleOptimizer."
            )
        self._client.check_begins(call)
        if not model.optimizer.built:
            model.optimizer.build(model.trainable_variables)
        variables = [*model.weights, *model.optimizer.variables]
        mine = [keras.ops.convert_to_numpy(each.value) for each in variables]
        keys = [each.path for each in variables]
        received = arrays.broadcast(self._client, call, keys, mine, self._root_rank)
        for variable, value in zip(variables, received):
            variable.assign(value)


class MetricAverage(keras.callbacks.Callback):
    """Replaces what an epoch has measured, such as loss and val_loss, by the mean over all
    workers. Put it before callbacks that read it, such as ReduceLROnPlateau: all workers then
    decide alike.

    client: of basin.connect()

    Workers count alike, whatever the number of their samples. All of them measure the same things,
    by the same names: otherwise fit() raises RoundAborted on all of them.
    """

    def __init__(self, client: Client) -> None:
        super().__init__()
        self._client = client

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        names = sorted(name for name, value in (logs or {}).items() if np.ndim(value) == 0)
        if not names:
            return
        mine = np.array([float(logs[name]) for name in names], np.float64)
        averaged, _ = arrays.allreduce(
            self._client,
            "MetricAverage",
            f"keras/metrics/{','.join(names)}",
            ["metrics"],
            [mine],
            RoundSpec(Op.AVERAGE),
        )
        logs.update(zip(names, averaged[0].tolist()))
