# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""An optimizer whose gradients are reduced over all workers.

An optimizer of Keras first adds gradients up, if it has gradient_accumulation_steps, then clips
them, and then applies them. The reduction comes right before the clipping, so that it is over whole
windows, and clips what all workers have. Only this method of the one optimizer is replaced, and the
one that leaves out what has no gradient: its class, its configuration and what is saved of it stay
those of Keras.
"""

import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from basin import arrays
from basin.client import Client
from basin.errors import InvalidArgument, Unsupported
from basin.keras.backend import keras, reduce_of
from basin.spec import Op, ReductionOptions, RoundSpec

if TYPE_CHECKING:
    from typing_extensions import Unpack

_CALL = "DistributedOptimizer()"
# By client: how many optimizers were made for it. All workers make them alike, while names that
# Keras gives depend on what else a process has made or loaded.
_made: "weakref.WeakKeyDictionary[Client, int]" = weakref.WeakKeyDictionary()
_WIRE_DTYPES = (None, "float16", "bfloat16")


def DistributedOptimizer(
    client: Client,
    optimizer: Any,
    *,
    op: Op = Op.AVERAGE,
    sparse_as_dense: bool = False,
    wire_dtype: str | None = None,
    **options: "Unpack[ReductionOptions]",
) -> Any:
    """Returns the same optimizer, whose gradients are reduced over all workers, in one round for
    each step that it applies.

    client:     of basin.connect()
    optimizer:  of keras.optimizers, before or after it is built. A LossScaleOptimizer scales the
                loss of all workers alike: a step that is not finite on one is skipped on all
    op:         basin.Average or basin.Sum
    sparse_as_dense:
                with TensorFlow, gradients of embeddings are made dense before they are sent;
                otherwise the rows that the workers have are gathered
    wire_dtype: None, "float16" or "bfloat16": the dtype in which gradients of float32 and float64
                are sent
    options:    as for Client.allreduce()

    All workers make it, and step, alike: a step in which they have gradients of different variables
    is a Mismatch, on all of them. Raises InvalidArgument for something else than such an optimizer,
    for one that reduces already, and for contradictory arguments; Unsupported for an optimizer of
    several others, for other backends of Keras, and with keras.distribution. Errors of a step are
    those of Client.allreduce(); within a compiled function TensorFlow and JAX raise errors of their
    own, whose text has that of Basin.
    """
    if not isinstance(optimizer, keras.optimizers.Optimizer):
        raise InvalidArgument(
            f"{_CALL} was given a {type(optimizer).__name__} as optimizer. Give it an optimizer of "
            "keras.optimizers, such as keras.optimizers.Adam(1e-3)."
        )
    if is_distributed(optimizer):
        raise InvalidArgument(
            f"{_CALL} was given {optimizer.name}, whose gradients are reduced already. Use it as "
            "it is."
        )
    if wire_dtype not in _WIRE_DTYPES:
        raise InvalidArgument(
            f'{_CALL} was given wire_dtype={wire_dtype!r}. Use None, "float16" or "bfloat16".'
        )
    scales_loss = isinstance(optimizer, keras.optimizers.LossScaleOptimizer)
    if not scales_loss and keras.config.dtype_policy().name == "mixed_float16":
        raise InvalidArgument(
            f"{_CALL} was given {optimizer.name} under mixed_float16, where compile() would wrap "
            "it, and each worker would skip steps of its own. Give it "
            "keras.optimizers.LossScaleOptimizer(optimizer), or use mixed_bfloat16."
        )
    inner = optimizer.inner_optimizer if scales_loss else optimizer
    _check_applies(inner)
    reduce_of(_CALL)  # Raises if nothing can be reduced.
    spec = arrays.spec_of(_CALL, op, options)
    number = _made[client] = _made.get(client, 0) + 1
    lane = f"optimizer {number}"
    inner._filter_empty_gradients = filtered = _FilteredGradients(inner)
    inner._clip_gradients = _ReducedGradients(
        client, lane, inner, filtered, spec, sparse_as_dense, wire_dtype
    )
    if scales_loss:
        optimizer.check_finite = _FiniteEverywhere(client, lane, optimizer)
    return optimizer


def is_distributed(optimizer: Any) -> bool:
    """Whether DistributedOptimizer() has returned this optimizer."""
    if isinstance(optimizer, keras.optimizers.LossScaleOptimizer):
        return isinstance(optimizer.check_finite, _FiniteEverywhere)
    return isinstance(getattr(optimizer, "_clip_gradients", None), _ReducedGradients)


def _check_applies(optimizer: Any) -> None:
    """Raises Unsupported for an optimizer that hands its gradients to others, such as a
    MultiOptimizer: it would never clip, and so never reduce, them."""
    base = keras.optimizers.Optimizer
    own = [getattr(type(optimizer), name) for name in ("apply", "stateless_apply")]
    if base.apply not in own and base.stateless_apply not in own:
        raise Unsupported(
            f"{_CALL} was given {optimizer.name}, a {type(optimizer).__name__}, which applies "
            "gradients with other optimizers. Use one optimizer for all variables."
        )


class _FilteredGradients:
    """Leaves out gradients that are None, as Keras does, and remembers which: those of other
    variables may have the same shapes."""

    def __init__(self, optimizer: Any) -> None:
        self._filter = optimizer._filter_empty_gradients
        self.left_out = ""  # As for arrays.allreduce().

    def __call__(self, gradients: Sequence[Any], variables: Sequence[Any]) -> Any:
        given = list(gradients)
        places = [i for i, each in enumerate(given) if each is not None]
        self.left_out = arrays.text_of_left_out(places, len(given))
        return self._filter(given, variables)


class _ReducedGradients:
    """Clips gradients, after they are reduced."""

    def __init__(
        self,
        client: Client,
        lane: str,
        optimizer: Any,
        filtered: _FilteredGradients,
        spec: RoundSpec,
        sparse_as_dense: bool,
        wire_dtype: str | None,
    ) -> None:
        self._client = client
        self._lane = lane
        self._optimizer = optimizer
        self._filtered = filtered
        self._clip = optimizer._clip_gradients
        self._spec = spec
        self._sparse_as_dense = sparse_as_dense
        self._wire_dtype = wire_dtype

    def __call__(self, gradients: Sequence[Any]) -> Any:
        given = list(gradients)
        steps = self._optimizer.gradient_accumulation_steps
        if keras.backend.backend() == "jax" and steps:
            return self._clip(self._at_end_of_window(given, steps))
        return self._clip(self._reduced(given))

    def _at_end_of_window(self, gradients: list[Any], steps: int) -> Any:
        """With JAX, Keras clips also what is in the middle of a window, and then drops it."""
        import jax

        is_end = (self._optimizer._iterations + 1) % steps == 0
        return jax.lax.cond(is_end, self._reduced, lambda given: given, gradients)

    def _reduced(self, gradients: list[Any]) -> list[Any]:
        dtypes = [keras.backend.standardize_dtype(each.dtype) for each in gradients]
        sent = [self._narrowed(each, dtype) for each, dtype in zip(gradients, dtypes)]
        received = reduce_of(_CALL)(
            self._client,
            f"a step of {self._optimizer.name}",
            self._lane,
            sent,
            self._spec,
            self._sparse_as_dense,
            self._filtered.left_out,
        )
        return [keras.ops.cast(each, dtype) for each, dtype in zip(received, dtypes)]

    def _narrowed(self, gradient: Any, dtype: str) -> Any:
        if self._wire_dtype is None or dtype not in ("float32", "float64"):
            return gradient
        return keras.ops.cast(gradient, self._wire_dtype)


class _FiniteEverywhere:
    """Whether the gradients of all workers are finite, so that all of them apply the step or
    none."""

    def __init__(self, client: Client, lane: str, optimizer: Any) -> None:
        self._client = client
        self._lane = lane
        self._name = optimizer.name
        self._check = optimizer.check_finite

    def __call__(self, gradients: Sequence[Any]) -> Any:
        mine = keras.ops.cast(self._check(gradients), "uint8")
        everywhere = reduce_of(_CALL)(
            self._client,
            f"a step of {self._name}",
            f"{self._lane}/finite",
            [mine],
            RoundSpec(Op.MIN),
            False,
            "",
        )
        return keras.ops.cast(everywhere[0], "bool")
