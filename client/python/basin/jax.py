# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""Basin for JAX: trees of arrays are reduced over the workers of a job, also within jit.

with basin.connect() as client:
    parameters = basin.jax.broadcast_tree(client, parameters)
    optimizer = optax.chain(basin.jax.average_gradients(client), optax.adam(1e-3))

Each process is one worker with one device. jax.distributed, pmap and meshes are not used.
"""

import time
from typing import TYPE_CHECKING, Any

import numpy as np

from basin import _abi, arrays
from basin.arguments import seconds, string_of
from basin.client import Client
from basin.described import Described
from basin.spec import Op, ReductionOptions, RoundSpec
from basin.taken import take
from basin.worker import TensorSpec

try:
    import jax
    from jax.experimental import io_callback
except ModuleNotFoundError as missing:
    raise ModuleNotFoundError(
        f"basin.jax needs JAX, but there is no module {missing.name}. Install it: "
        "pip install jax optax",
        name=missing.name,
    ) from missing

if TYPE_CHECKING:
    from typing_extensions import Unpack

_Array = np.ndarray[Any, np.dtype[Any]]


def allreduce_tree(
    client: Client,
    tree: Any,
    name: str = "gradients",
    *,
    op: Op = Op.AVERAGE,
    **options: "Unpack[ReductionOptions]",
) -> Any:
    """Returns the tree with each array reduced over all workers, in one round. It may be called
    within jit, where it runs once for each run of the compiled function, in the order of the
    program.

    client:  of basin.connect()
    tree:    arrays, or nested dicts, lists and the like of them, of float64, float32, float16,
             bfloat16, int64, int32 or uint8. Shapes, dtypes and keys are equal on all workers, and
             those of a name never change
    name:    all workers use the same; another tree needs another one
    op:      basin.Average, basin.Sum, basin.Min, basin.Max or basin.Product
    options: as for Client.allreduce()

    No gradient flows through it: call it on gradients. vmap, pmap and shard_map around it are
    refused by JAX.

    Raises InvalidArgument for an op that needs counts, and for other dtypes. The errors of
    Client.allreduce() are raised as they are outside of jit; within, JAX raises its
    JaxRuntimeError, whose text has that of Basin.
    """
    string_of("name", name)
    call = "allreduce_tree()"
    return reduce_tree(client, call, tree, f"tree/{name}", arrays.spec_of(call, op, options))


def reduce_tree(
    client: Client, call: str, tree: Any, lane: str, spec: RoundSpec, left_out: str = ""
) -> Any:
    """See allreduce_tree(). Calls are matched by their lane.

    call:     for messages
    left_out: as for arrays.allreduce()
    """
    leaves, structure = jax.tree_util.tree_flatten_with_path(tree)
    if not leaves:
        return tree
    keys = [jax.tree_util.keystr(path) or "array" for path, _ in leaves]
    given = [leaf for _, leaf in leaves]

    def reduce(*leaves: Any) -> list[_Array]:
        host = [np.asarray(leaf) for leaf in leaves]
        received, _ = arrays.allreduce(client, call, lane, keys, host, spec, left_out)
        return received

    if any(isinstance(leaf, jax.core.Tracer) for leaf in given):
        given = [jax.numpy.asarray(leaf) for leaf in given]
        shapes = [jax.ShapeDtypeStruct(leaf.shape, leaf.dtype) for leaf in given]
        reduced = io_callback(reduce, shapes, *given, ordered=True)
    else:
        reduced = [jax.numpy.asarray(array) for array in reduce(*given)]
    return jax.tree_util.tree_unflatten(structure, reduced)


def average_gradients(
    client: Client,
    name: str = "gradients",
    *,
    op: Op = Op.AVERAGE,
    **options: "Unpack[ReductionOptions]",
) -> Any:
    """Returns an optax.GradientTransformation whose updates are those of all workers, reduced with
    allreduce_tree(). Put it first in optax.chain(), so that clipping and moments see the result.
    optax.MultiSteps around it runs it for each micro-batch, and uses the last result of a window:
    to send less, add micro-batches up before update()."""
    import optax

    def update(updates: Any, state: Any, parameters: Any = None) -> tuple[Any, Any]:
        return allreduce_tree(client, updates, name, op=op, **options), state

    return optax.GradientTransformation(lambda parameters: optax.EmptyState(), update)


def broadcast_tree(
    client: Client,
    tree: Any,
    name: str = "parameters",
    *,
    root_rank: int = 0,
    timeout: float | None = 300.0,
) -> Any:
    """Returns the tree of the worker with rank `root_rank`, bit for bit. Call it outside of jit.

    tree:    arrays of numbers of any dtype; shapes, dtypes and keys are equal on all workers
    timeout: seconds until DeadlineExceeded; None: forever

    Raises Mismatch on all workers, with the first difference, if the trees differ.
    """
    string_of("name", name)
    seconds("timeout", timeout)
    client.take_part("broadcast_tree()")
    end = None if timeout is None else time.monotonic() + timeout
    leaves, structure = jax.tree_util.tree_flatten_with_path(tree)
    taken = [
        take(f"{name}{jax.tree_util.keystr(path)}", np.array(leaf, order="C", copy=True))
        for path, leaf in leaves
    ]
    described = Described.of(
        "broadcast_tree()",
        client.check_root(root_rank),
        [(each.name, each.dtype_name, each.array.shape) for each in taken],
    )
    version = client.agree_on_version(name, described, timeout)
    client.broadcast_memory(
        name,
        version,
        described,
        [
            (TensorSpec(each.name, _abi.U8, (each.array.nbytes,)), *_memory(each.array))
            for each in taken
            if each.array.nbytes
        ],
        None if end is None else max(0.0, end - time.monotonic()),
    )
    return jax.tree_util.tree_unflatten(
        structure, [jax.numpy.asarray(each.array) for each in taken]
    )


def _memory(array: _Array) -> tuple[int, int]:
    return array.ctypes.data, array.nbytes
