# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""Calls on values, such as metrics, and the loading of models, with Horovod's arguments."""

from typing import Any

import numpy as np

from basin.arrays import Array
from basin.horovod import job, values
from basin.horovod.compression import Compression
from basin.horovod.job import global_process_set
from basin.horovod.keras.optimizer import DistributedOptimizer
from basin.horovod.ops import op_of
from basin.keras.backend import keras


def allreduce(
    value: Any,
    name: str | None = None,
    average: bool | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    op: Any = None,
    compression: Any = Compression.none,
    process_set: Any = global_process_set,
) -> Any:
    """Returns a number or an array reduced over all workers, as an array of NumPy. Integers are
    averaged and scaled as basin/horovod/values.py says.

    name:        not used: calls are matched by their order in the program
    compression: not used: values are sent as they are
    """
    call = "allreduce()"
    chosen = op_of(call, op, average)
    job.check_global(call, process_set)
    client, given = job.current(call), [_array_of(value)]
    return values.allreduce(client, call, given, chosen, prescale_factor, postscale_factor)[0]


def allgather(value: Any, name: str | None = None, process_set: Any = global_process_set) -> Any:
    """Returns the rows of the arrays of all workers, by rank, as an array of NumPy."""
    call = "allgather()"
    job.check_global(call, process_set)
    return job.current(call).allgather(_array_of(value))


def broadcast(
    value: Any, root_rank: int, name: str | None = None, process_set: Any = global_process_set
) -> Any:
    """Returns the root's number or array, as an array of NumPy."""
    call = "broadcast()"
    job.check_global(call, process_set)
    # The others wait for the root as long as it takes, as in all calls of Horovod.
    return job.current(call).broadcast(_array_of(value), root_rank=root_rank, timeout=None)


def reducescatter(
    value: Any,
    name: str | None = None,
    op: Any = None,
    process_set: Any = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> Any:
    """Like allreduce(), but returns only this worker's rows."""
    call = "reducescatter()"
    chosen = op_of(call, op)
    job.check_global(call, process_set)
    client, given = job.current(call), [_array_of(value)]
    return values.reducescatter(client, call, given, chosen, prescale_factor, postscale_factor)[0]


def _array_of(value: Any) -> Array:
    return np.asarray(keras.ops.convert_to_numpy(value))


def load_model(
    filepath: Any,
    custom_optimizers: Any = None,
    custom_objects: dict[str, Any] | None = None,
    compression: Any = Compression.none,
    process_set: Any = global_process_set,
) -> Any:
    """Loads a model that was saved, with an optimizer whose gradients are reduced over all
    workers.

    custom_optimizers: classes of optimizers that Keras does not know by their names
    """
    known = {each.__name__: each for each in custom_optimizers or ()}
    model = keras.models.load_model(filepath, {**known, **(custom_objects or {})})
    if model.optimizer is not None:
        DistributedOptimizer(model.optimizer, compression=compression, process_set=process_set)
    return model
