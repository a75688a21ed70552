# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""A gradient tape whose gradients are reduced over all workers."""

from types import TracebackType
from typing import TYPE_CHECKING, Any

from basin import arrays
from basin.client import Client
from basin.errors import InvalidArgument
from basin.spec import Op, ReductionOptions
from basin.tensorflow.host import tf
from basin.tensorflow.reducing import reduce_gradients, wire_dtype_of

if TYPE_CHECKING:
    from typing_extensions import Unpack


class DistributedGradientTape:
    """A tf.GradientTape whose gradient() is reduced over all workers, in one round. It can wrap a
    tape that has recorded, or record itself: `with DistributedGradientTape(client, tape) as tape`.

    client:     of basin.connect()
    tape:       the tf.GradientTape
    op:         basin.Average or basin.Sum
    sparse_as_dense:
                as for allreduce()
    wire_dtype: None, tf.float16 or tf.bfloat16: the dtype in which gradients of float32 and
                float64 are sent
    options:    as for Client.allreduce()

    All else is as in the tape. Raises InvalidArgument for contradictory arguments.
    """

    def __init__(
        self,
        client: Client,
        tape: Any,
        *,
        op: Op = Op.AVERAGE,
        sparse_as_dense: bool = False,
        wire_dtype: Any = None,
        **options: "Unpack[ReductionOptions]",
    ) -> None:
        call = "DistributedGradientTape()"
        if not isinstance(tape, tf.GradientTape):
            raise InvalidArgument(
                f"{call} was given a {type(tape).__name__} as tape. Give it a tf.GradientTape."
            )
        self._client = client
        self._tape = tape
        self._spec = arrays.spec_of(call, op, options)
        self._sparse_as_dense = sparse_as_dense
        self._wire_dtype = wire_dtype_of(call, wire_dtype)

    def __enter__(self) -> "DistributedGradientTape":
        self._tape.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._tape.__exit__(kind, error, trace)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tape, name)

    def gradient(self, target: Any, sources: Any, *arguments: Any, **options: Any) -> Any:
        """Like tf.GradientTape.gradient(), reduced over all workers, which all call it. A source
        without a gradient, which is None, has none on any worker: otherwise all get Mismatch.
        Errors are those of allreduce()."""
        mine = self._tape.gradient(target, sources, *arguments, **options)
        reduced = reduce_gradients(
            self._client,
            "DistributedGradientTape.gradient()",
            tf.nest.flatten(mine),
            self._spec,
            sparse_as_dense=self._sparse_as_dense,
            wire_dtype=self._wire_dtype,
        )
        return tf.nest.pack_sequence_as(mine, reduced)
