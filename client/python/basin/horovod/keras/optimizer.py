# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""DistributedOptimizer with Horovod's arguments, for optimizers of Keras 3."""

from typing import Any

import basin.keras
from basin.errors import FailedPrecondition, Unsupported
from basin.horovod import job
from basin.horovod.compression import Compression, wire_dtype_of
from basin.horovod.job import global_process_set
from basin.horovod.ops import Average, op_of_gradients
from basin.keras.backend import keras

_CALL = "DistributedOptimizer()"


def DistributedOptimizer(
    optimizer: Any,
    name: str | None = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = Compression.none,
    sparse_as_dense: bool = False,
    gradient_predivide_factor: float = 1.0,
    op: Any = Average,
    backward_passes_per_step: int = 1,
    average_aggregated_gradients: bool = False,
    num_groups: int = 0,
    groups: Any = None,
    process_set: Any = global_process_set,
    scale_local_gradients: bool = True,
) -> Any:
    """Returns the same optimizer of Keras, whose gradients are reduced over all workers.

    name, device_dense, device_sparse, num_groups, groups, scale_local_gradients:
                 not used
    compression: Compression.none or Compression.fp16
    op:          hvd.Average or hvd.Sum
    backward_passes_per_step:
                 the gradients of so many batches are added up, and then reduced and applied: the
                 optimizer's gradient_accumulation_steps
    average_aggregated_gradients:
                 they are divided by that number

    Raises ValueError for arguments that contradict each other, and Unsupported, with the way out,
    for what Basin cannot do.
    """
    chosen = op_of_gradients(_CALL, op, gradient_predivide_factor)
    job.check_global(_CALL, process_set)
    client = job.current(_CALL)
    if not isinstance(optimizer, keras.optimizers.Optimizer):
        raise Unsupported(
            f"{_CALL} was given a {type(optimizer).__name__}. It takes optimizers of Keras 3; with "
            "others take the gradients from hvd.DistributedGradientTape, and apply them."
        )
    factor = 1.0
    if backward_passes_per_step != 1:
        _accumulate(optimizer, backward_passes_per_step)
        if not average_aggregated_gradients:  # Keras divides by their number.
            factor = float(backward_passes_per_step)
    return basin.keras.DistributedOptimizer(
        client,
        optimizer,
        op=chosen,
        sparse_as_dense=sparse_as_dense,
        wire_dtype=wire_dtype_of(_CALL, compression),
        gradient_predivide_factor=gradient_predivide_factor,
        postscale_factor=factor,
    )


def _accumulate(optimizer: Any, passes: int) -> None:
    if not isinstance(passes, int) or passes < 1:
        raise ValueError(
            f"{_CALL} was given backward_passes_per_step={passes!r}. Use a whole number from 1."
        )
    inner = getattr(optimizer, "inner_optimizer", optimizer)
    if inner.gradient_accumulation_steps:
        raise ValueError(
            f"{_CALL} was given backward_passes_per_step={passes}, and the optimizer has "
            f"gradient_accumulation_steps={inner.gradient_accumulation_steps}. Use one of both."
        )
    if inner.built:
        raise FailedPrecondition(
            f"{_CALL} was given backward_passes_per_step={passes} and an optimizer that is built, "
            "which has no room to add gradients up. Make it distributed before the training."
        )
    inner.gradient_accumulation_steps = passes
