# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""Reductions of tensors and of indexed slices."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from basin import arrays
from basin.arguments import string_of
from basin.client import Client
from basin.errors import InvalidArgument, Unsupported
from basin.spec import Op, ReductionOptions, RoundSpec
from basin.tensorflow import host
from basin.tensorflow.host import tf

if TYPE_CHECKING:
    from typing_extensions import Unpack


class Facts(NamedTuple):
    """What a round says, as tensors: how many trainers are in its result, and the rank of this
    worker among so many workers, when it was begun."""

    trainers: Any
    rank: Any
    workers: Any


DTYPES = (
    tf.float64,
    tf.float32,
    tf.float16,
    tf.bfloat16,
    tf.int64,
    tf.int32,
    tf.uint8,
)


def allreduce(
    client: Client,
    tensor: Any,
    name: str | None = None,
    *,
    op: Op,
    sparse_as_dense: bool = False,
    **options: "Unpack[ReductionOptions]",
) -> Any:
    """Returns the tensor reduced over all workers; each gets the same bits. It may be called within
    tf.function, where it runs each time the function runs.

    client:  of basin.connect()
    tensor:  of float64, float32, float16, bfloat16, int64, int32 or uint8, or what becomes one; or
             tf.IndexedSlices, of which each worker has the rows that it has
    name:    None: calls are matched by their order in the program of each worker. All workers give
             a call the same name, if any, and a name has one shape and dtype
    op:      basin.Average, basin.Sum, basin.Min, basin.Max or basin.Product
    sparse_as_dense:
             indexed slices are made a dense tensor first. Otherwise the rows of all workers are
             gathered, and rows of the same index are added up
    options: as for Client.allreduce()

    A sum or an average of a tensor is differentiable: its gradient is reduced as it is.

    Raises InvalidArgument for another dtype or op, and Unsupported as host.run() does. Eagerly,
    the errors of Client.allreduce() are raised as they are, such as Mismatch on all workers if
    shapes differ; within tf.function TensorFlow raises an error of its own, whose text has that of
    Basin.
    """
    call = "allreduce()"
    spec = arrays.spec_of(call, op, options)
    if name is not None:
        string_of("name", name)
    made, _ = reduce(client, call, [_tensor_of(tensor)], name, spec, sparse_as_dense)
    return made[0]


def grouped_allreduce(
    client: Client,
    tensors: Sequence[Any],
    name: str | None = None,
    *,
    op: Op,
    sparse_as_dense: bool = False,
    **options: "Unpack[ReductionOptions]",
) -> list[Any]:
    """Like allreduce() of each tensor, in one round. Indexed slices have a call each."""
    call = "grouped_allreduce()"
    spec = arrays.spec_of(call, op, options)
    if name is not None:
        string_of("name", name)
    given = [_tensor_of(each) for each in tensors]
    made, _ = reduce(client, call, given, name, spec, sparse_as_dense)
    return made


@tf.autograph.experimental.do_not_convert
def reduce_gradients(
    client: Client,
    call: str,
    gradients: Sequence[Any],
    spec: RoundSpec,
    *,
    sparse_as_dense: bool,
    wire_dtype: Any,
) -> list[Any]:
    """The reduced gradients: tensors, indexed slices, or None for what has no gradient, which has
    to be the same on all workers.

    wire_dtype: None, or the dtype in which gradients of float32 and float64 are sent
    """
    places = [i for i, each in enumerate(gradients) if each is not None]
    left_out = arrays.text_of_left_out(places, len(gradients))
    sent = [_narrowed(gradients[i], wire_dtype) for i in places]
    # Without any there is a round as well, because the others may have some.
    nothing = [tf.zeros([1])] if left_out and not sent else []
    received, _ = reduce(client, call, sent or nothing, None, spec, sparse_as_dense, left_out)
    made: list[Any] = [None] * len(gradients)
    for i, each in zip(places, received):
        made[i] = tf.cast(each, gradients[i].dtype)
    return made


def wire_dtype_of(call: str, wire_dtype: Any) -> Any:
    """Raises InvalidArgument for another dtype than None, float16 and bfloat16."""
    if wire_dtype is None:
        return None
    try:
        dtype = tf.as_dtype(wire_dtype)
    except TypeError:
        dtype = None
    if dtype not in (tf.float16, tf.bfloat16):
        raise InvalidArgument(
            f"{call} was given wire_dtype={wire_dtype!r}. Use None, tf.float16 or tf.bfloat16."
        )
    return dtype


def _narrowed(gradient: Any, wire_dtype: Any) -> Any:
    wide = gradient.dtype in (tf.float32, tf.float64)
    return tf.cast(gradient, wire_dtype) if wide and wire_dtype is not None else gradient


def _tensor_of(value: Any) -> Any:
    return value if isinstance(value, tf.IndexedSlices) else tf.convert_to_tensor(value)


@tf.autograph.experimental.do_not_convert
def reduce(
    client: Client,
    call: str,
    given: Sequence[Any],
    name: str | None,
    spec: RoundSpec,
    sparse_as_dense: bool,
    left_out: str = "",
    scatters: bool = False,
) -> tuple[list[Any], Facts | None]:
    """The reduced tensors and slices, and the facts of the round of the tensors; None if there are
    only slices. One round for all tensors, and then a call for each of the slices.

    left_out: as for arrays.allreduce()
    scatters: the caller keeps rows by rank: an error, on all workers, if members have changed
    """
    made = list(given)
    slices = [i for i, each in enumerate(given) if isinstance(each, tf.IndexedSlices)]
    if sparse_as_dense:
        for i in slices:
            made[i] = tf.convert_to_tensor(given[i])
        slices = []
    dense = [i for i in range(len(made)) if i not in set(slices)]
    for i in range(len(made)):
        _check(call, made[i].dtype)
    if slices:
        arrays.check_rows(call, spec)
        if name is not None:
            raise Unsupported(
                f"{call} of {name} was given indexed slices, whose calls have no name. Omit the "
                "name, or use sparse_as_dense=True."
            )
    facts = None
    if dense:
        tensors = [made[i] for i in dense]
        *reduced, numbers = _reduce_dense(client, call, tensors, name, spec, left_out, scatters)
        facts = Facts(*(numbers[i] for i in range(3)))
        for i, each in zip(dense, reduced):
            made[i] = each
    for i in slices:
        made[i] = _reduce_slices(client, call, f"slices {i}", made[i], spec, left_out)
    return made, facts


def _check(call: str, dtype: Any) -> None:
    if dtype not in DTYPES:
        known = ", ".join(each.name for each in DTYPES)
        raise InvalidArgument(
            f"{call} was given a tensor of {dtype.name}, which Basin cannot reduce. Convert it to "
            f"one of {known}."
        )


def _reduce_dense(
    client: Client,
    call: str,
    tensors: list[Any],
    name: str | None,
    spec: RoundSpec,
    left_out: str,
    scatters: bool = False,
) -> list[Any]:
    """The reduced tensors, and then the numbers of Facts."""
    keys = [f"tensor {i}" for i in range(len(tensors))]
    lane = None if name is None else f"tensorflow/{name}"

    def on_host(given: list[Any]) -> list[Any]:
        client.take_part(call)
        place = client.place
        among = place if scatters else None
        received, info = arrays.allreduce(client, call, lane, keys, given, spec, left_out, among)
        return [*received, np.array([info.trainers, place.rank, place.world_size], np.int64)]

    outputs = [*((each.dtype, each.shape) for each in tensors), (tf.int64, (3,))]

    @tf.custom_gradient
    def reduced(*inputs: Any) -> Any:
        made = host.run(client, call, on_host, inputs, outputs)

        def gradient(*upstream: Any) -> list[Any]:
            return _gradients(client, call, upstream[: len(tensors)], tensors, name, spec)

        return made, gradient

    made: list[Any] = reduced(*tensors)
    return made


def _gradients(
    client: Client,
    call: str,
    upstream: Sequence[Any],
    tensors: Sequence[Any],
    name: str | None,
    spec: RoundSpec,
) -> list[Any]:
    """What flows back: the same reduction of what flows into the results of all workers."""
    if spec.op not in (Op.SUM, Op.AVERAGE):
        raise Unsupported(
            f"{call} with {spec.op.name} has no gradient. Use basin.Sum or basin.Average, or give "
            "it tf.stop_gradient(tensor)."
        )
    places = [i for i, each in enumerate(tensors) if each.dtype.is_floating]
    if not places:
        return [None] * len(tensors)
    back = None if name is None else f"{name}/gradient"
    given = [tf.convert_to_tensor(upstream[i]) for i in places]
    *received, _ = _reduce_dense(client, call, given, back, spec, "")
    made: list[Any] = [None] * len(tensors)
    for i, each in zip(places, received):
        made[i] = each
    return made


def _reduce_slices(
    client: Client, call: str, key: str, given: Any, spec: RoundSpec, left_out: str
) -> Any:
    if not given.dtype.is_floating:
        raise InvalidArgument(
            f"{call} was given indexed slices of {given.dtype.name}. Convert them to a floating "
            "dtype, or use sparse_as_dense=True."
        )

    def on_host(received: list[Any]) -> list[Any]:
        indices, values = received
        return list(arrays.allreduce_rows(client, call, key, indices, values, spec, left_out))

    values, indices = given.values, given.indices
    outputs = [
        (indices.dtype, tf.TensorShape([None])),
        (values.dtype, tf.TensorShape([None]).concatenate(values.shape[1:])),
    ]
    places, rows = host.run(client, call, on_host, [indices, values], outputs)
    return tf.IndexedSlices(rows, places, given.dense_shape)
