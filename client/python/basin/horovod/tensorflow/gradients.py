# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""DistributedGradientTape with Horovod's arguments."""

from typing import Any

import basin.tensorflow
from basin.horovod import job
from basin.horovod.compression import Compression, wire_dtype_of
from basin.horovod.job import global_process_set
from basin.horovod.ops import Average, op_of_gradients


def DistributedGradientTape(
    gradtape: Any,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = Compression.none,
    sparse_as_dense: bool = False,
    op: Any = Average,
    gradient_predivide_factor: float = 1.0,
    num_groups: int = 0,
    groups: Any = None,
    process_set: Any = global_process_set,
    scale_local_gradients: bool = True,
) -> Any:
    """Returns a tape whose gradient() is reduced over all workers, in one round.

    device_dense, device_sparse, num_groups, groups, scale_local_gradients:
                 not used
    compression: Compression.none or Compression.fp16
    op:          hvd.Average or hvd.Sum

    Raises ValueError for arguments that contradict each other, and Unsupported, with the way out,
    for what Basin cannot do.
    """
    call = "DistributedGradientTape()"
    chosen = op_of_gradients(call, op, gradient_predivide_factor)
    job.check_global(call, process_set)
    return basin.tensorflow.DistributedGradientTape(
        job.current(call),
        gradtape,
        op=chosen,
        sparse_as_dense=sparse_as_dense,
        wire_dtype=wire_dtype_of(call, compression),
        gradient_predivide_factor=gradient_predivide_factor,
    )
