# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""The names of horovod.tensorflow over basin.tensorflow.

import basin.horovod.tensorflow as hvd

hvd.init()
hvd.broadcast_variables(model.variables, root_rank=0)
tape = hvd.DistributedGradientTape(tape)

docs/frameworks/horovod.md has what differs.
"""

from typing import Any

from basin.horovod.built import (
    ccl_built,
    cuda_built,
    ddl_built,
    gloo_built,
    gloo_enabled,
    mpi_built,
    mpi_enabled,
    mpi_threads_supported,
    nccl_built,
    rocm_built,
)
from basin.horovod.compression import Compression
from basin.horovod.job import (
    add_process_set,
    barrier,
    cross_rank,
    cross_size,
    global_process_set,
    init,
    is_homogeneous,
    is_initialized,
    local_rank,
    local_size,
    rank,
    remove_process_set,
    shutdown,
    size,
    start_timeline,
    stop_timeline,
)
from basin.horovod.objects import allgather_object, broadcast_object, broadcast_object_fn
from basin.horovod.ops import Adasum, Average, Max, Min, Product, Sum, Unoffered
from basin.horovod.tensorflow import elastic
from basin.horovod.tensorflow.gradients import DistributedGradientTape
from basin.horovod.tensorflow.reducing import (
    allreduce,
    grouped_allreduce,
    grouped_reducescatter,
    reducescatter,
)
from basin.horovod.tensorflow.rows import (
    allgather,
    alltoall,
    broadcast,
    broadcast_,
    broadcast_variables,
    grouped_allgather,
    local_rank_op,
    local_size_op,
    rank_op,
    size_op,
)

_OF_TENSORFLOW_1 = (
    "it belongs to sessions of TensorFlow 1. Call hvd.broadcast_variables(variables, 0) after the "
    "first step."
)
_ON_SOME = (
    "calls on some of the workers are there for PyTorch only. Start these workers as a job of "
    "their own."
)
_PARTIAL = (
    "all gradients of a tape or an optimizer are reduced. Take those of local layers from a tape "
    "of their own, which is not distributed."
)

join = Unoffered(
    "join()",
    "a worker without data cannot take part in steps whose tensors it does not know. Give all "
    "workers the same number of batches, and omit it.",
)
SyncBatchNormalization = Unoffered(
    "SyncBatchNormalization",
    "use BatchNormalization, or a norm that does not depend on the batch, such as "
    "GroupNormalization.",
)
broadcast_global_variables = Unoffered("broadcast_global_variables()", _OF_TENSORFLOW_1)
BroadcastGlobalVariablesHook = Unoffered("BroadcastGlobalVariablesHook()", _OF_TENSORFLOW_1)
PartialDistributedGradientTape = Unoffered("PartialDistributedGradientTape()", _PARTIAL)
PartialDistributedOptimizer = Unoffered("PartialDistributedOptimizer()", _PARTIAL)
ProcessSet = Unoffered("ProcessSet()", _ON_SOME)


def DistributedOptimizer(
    optimizer: Any,
    name: str | None = None,
    use_locking: bool = False,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = Compression.none,
    sparse_as_dense: bool = False,
    backward_passes_per_step: int = 1,
    op: Any = Average,
    gradient_predivide_factor: float = 1.0,
    average_aggregated_gradients: bool = False,
    num_groups: int = 0,
    groups: Any = None,
    process_set: Any = global_process_set,
    scale_local_gradients: bool = True,
) -> Any:
    """See basin.horovod.keras.DistributedOptimizer(): optimizers of TensorFlow are those of Keras.

    name, use_locking, device_dense, device_sparse, num_groups, groups, scale_local_gradients:
        not used
    """
    from basin.horovod.keras.optimizer import DistributedOptimizer as OfKeras

    return OfKeras(
        optimizer,
        compression=compression,
        sparse_as_dense=sparse_as_dense,
        backward_passes_per_step=backward_passes_per_step,
        op=op,
        gradient_predivide_factor=gradient_predivide_factor,
        average_aggregated_gradients=average_aggregated_gradients,
        process_set=process_set,
    )


__all__ = [
    "Adasum",
    "Average",
    "BroadcastGlobalVariablesHook",
    "Compression",
    "DistributedGradientTape",
    "DistributedOptimizer",
    "Max",
    "Min",
    "PartialDistributedGradientTape",
    "PartialDistributedOptimizer",
    "ProcessSet",
    "Product",
    "Sum",
    "SyncBatchNormalization",
    "add_process_set",
    "allgather",
    "allgather_object",
    "allreduce",
    "alltoall",
    "barrier",
    "broadcast",
    "broadcast_",
    "broadcast_global_variables",
    "broadcast_object",
    "broadcast_object_fn",
    "broadcast_variables",
    "ccl_built",
    "cross_rank",
    "cross_size",
    "cuda_built",
    "ddl_built",
    "elastic",
    "global_process_set",
    "gloo_built",
    "gloo_enabled",
    "grouped_allgather",
    "grouped_allreduce",
    "grouped_reducescatter",
    "init",
    "is_homogeneous",
    "is_initialized",
    "join",
    "local_rank",
    "local_rank_op",
    "local_size",
    "local_size_op",
    "mpi_built",
    "mpi_enabled",
    "mpi_threads_supported",
    "nccl_built",
    "rank",
    "rank_op",
    "reducescatter",
    "remove_process_set",
    "rocm_built",
    "shutdown",
    "size",
    "size_op",
    "start_timeline",
    "stop_timeline",
]
