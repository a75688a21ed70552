# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""allgather, broadcast, alltoall and numbers of the place with Horovod's arguments. Gradients do
not flow through these calls."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from basin import arrays
from basin.errors import Unsupported
from basin.horovod import job
from basin.horovod.job import global_process_set
from basin.tensorflow import host, variables
from basin.tensorflow.host import tf


def allgather(
    tensor: Any,
    name: str | None = None,
    ignore_name_scope: bool = False,
    process_set: Any = global_process_set,
) -> Any:
    """Returns the rows of the tensors of all workers, by rank. The numbers of rows may differ. Any
    dtype of numbers.

    name, ignore_name_scope: not used: calls are matched by their order in the program
    """
    call = "allgather()"
    job.check_global(call, process_set)
    client = job.current(call)
    given = tf.convert_to_tensor(tensor)

    def on_host(arrays: list[Any]) -> list[Any]:
        return [client.allgather(arrays[0])]

    row = given.shape[1:] if given.shape.rank else tf.TensorShape([])
    outputs = [(given.dtype, tf.TensorShape([None]).concatenate(row))]
    return _without_gradient(call, given, lambda it: host.run(client, call, on_host, it, outputs))[
        0
    ]


def grouped_allgather(
    tensors: Sequence[Any],
    name: str | None = None,
    ignore_name_scope: bool = False,
    process_set: Any = global_process_set,
) -> list[Any]:
    """Like allgather() of each tensor."""
    return [allgather(each, process_set=process_set) for each in tensors]


def broadcast(
    tensor: Any,
    root_rank: int,
    name: str | None = None,
    ignore_name_scope: bool = False,
    process_set: Any = global_process_set,
) -> Any:
    """Returns the root's values in a new tensor. Any dtype of numbers.

    name, ignore_name_scope: not used: calls are matched by their order in the program
    """
    call = "broadcast()"
    job.check_global(call, process_set)
    client = job.current(call)
    given = tf.convert_to_tensor(tensor)

    def on_host(mine: list[Any]) -> list[Any]:
        return list(arrays.broadcast(client, call, ["tensor"], mine, root_rank))

    outputs = [(given.dtype, given.shape)]
    return _without_gradient(call, given, lambda it: host.run(client, call, on_host, it, outputs))[
        0
    ]


def broadcast_(
    variables_: Iterable[Any],
    root_rank: int,
    name: str | None = None,
    process_set: Any = global_process_set,
) -> list[Any]:
    """Like broadcast_variables(); returns the variables."""
    given = list(variables_)
    broadcast_variables(given, root_rank, process_set)
    return given


def broadcast_variables(
    variables_: Iterable[Any],
    root_rank: int,
    process_set: Any = global_process_set,
    inplace: bool = False,
) -> None:
    """Gives all workers the root's values, bit for bit.

    variables_: of TensorFlow or Keras
    inplace:    not used: it always is
    """
    call = "broadcast_variables()"
    job.check_global(call, process_set)
    variables.broadcast_variables(job.current(call), variables_, root_rank)


def alltoall(
    tensor: Any,
    splits: Any = None,
    name: str | None = None,
    ignore_name_scope: bool = False,
    process_set: Any = global_process_set,
) -> Any:
    """Sends rows to each worker. Returns those for this one, by the rank that sent them; with
    splits, a tuple of them and of how many are of each rank.

    splits: how many rows go to each rank; None: all get as many
    """
    call = "alltoall()"
    job.check_global(call, process_set)
    client = job.current(call)
    given = tf.convert_to_tensor(tensor)
    inputs = [given] if splits is None else [given, tf.convert_to_tensor(splits)]

    def on_host(arrays: list[Any]) -> list[Any]:
        mine = None if splits is None else arrays[1]
        received, counts = client.alltoall(arrays[0], mine)
        return [received, np.array(counts, np.int32)]

    shape = tf.TensorShape([None]).concatenate(given.shape[1:])
    outputs = [(given.dtype, shape), (tf.int32, tf.TensorShape([None]))]
    received, counts = _without_gradient(
        call, given, lambda it: host.run(client, call, on_host, [*it, *inputs[1:]], outputs)
    )
    return received if splits is None else (received, counts)


def size_op(process_set_id: int = 0, name: str | None = None) -> Any:
    """The number of workers, when the program runs."""
    return _number("size_op()", job.size)


def rank_op(name: str | None = None) -> Any:
    """The rank of this worker, when the program runs."""
    return _number("rank_op()", job.rank)


def local_size_op(name: str | None = None) -> Any:
    """The number of workers on this machine."""
    return _number("local_size_op()", job.local_size)


def local_rank_op(name: str | None = None) -> Any:
    """The rank of this worker on its machine."""
    return _number("local_rank_op()", job.local_rank)


def _number(call: str, ask: Any) -> Any:
    client = job.current(call)
    return host.run(client, call, lambda _: [np.array(ask(), np.int32)], [], [(tf.int32, ())])[0]


def _without_gradient(call: str, tensor: Any, run: Any) -> Any:
    """What the call returns; a gradient through it raises Unsupported, where TensorFlow would take
    it for zero."""

    @tf.custom_gradient
    def made(given: Any) -> Any:
        def gradient(*upstream: Any) -> Any:
            raise Unsupported(
                f"{call} has no gradient here. Give it tf.stop_gradient(tensor), or use "
                "allreduce(), which has one."
            )

        return run([given]), gradient

    return made(tensor)
