# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""Broadcasts of variables."""

from collections.abc import Iterable
from typing import Any

from basin import arrays
from basin.client import Client
from basin.errors import InvalidArgument
from basin.tensorflow import host
from basin.tensorflow.host import tf


@tf.autograph.experimental.do_not_convert
def broadcast_variables(client: Client, variables: Iterable[Any], root_rank: int = 0) -> None:
    """Gives the variables of all workers the values of the worker with rank `root_rank`, bit for
    bit, in one round. It may be called within tf.function.

    variables: of TensorFlow or Keras, of any dtype of numbers; those of a model, then those of its
               optimizer. All workers give as many, of equal dtypes and shapes, in the same order

    Raises Mismatch, on all workers, if they differ; Unsupported in a worker that joins a job which
    trains already; InvalidArgument for something else than variables, and if no worker has the
    rank. Within tf.function errors arrive as for allreduce().
    """
    call = "broadcast_variables()"
    given = list(variables)
    for each in given:
        if not hasattr(each, "assign"):
            raise InvalidArgument(
                f"{call} was given a {type(each).__name__}, which is no variable. Give it "
                "model.variables, or a list of tf.Variable."
            )
    if not given:
        return
    client.check_begins(call)
    keys = [str(getattr(each, "path", None) or each.name) for each in given]
    tensors = [tf.convert_to_tensor(each) for each in given]

    def on_host(mine: list[Any]) -> list[Any]:
        return list(arrays.broadcast(client, call, keys, mine, root_rank))

    outputs = [(each.dtype, each.shape) for each in tensors]
    received = host.run(client, call, on_host, tensors, outputs)
    for variable, value in zip(given, received):
        variable.assign(value)
