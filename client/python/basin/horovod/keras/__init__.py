# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""The names of horovod.keras over basin.keras.

import basin.horovod.keras as hvd

hvd.init()
model.compile(hvd.DistributedOptimizer(keras.optimizers.Adam(1e-3 * hvd.size())), loss)
model.fit(x, y, callbacks=[hvd.callbacks.BroadcastGlobalVariablesCallback(0)])

docs/frameworks/horovod.md has what differs.
"""

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
from basin.horovod.keras import callbacks, elastic
from basin.horovod.keras.functions import (
    allgather,
    allreduce,
    broadcast,
    load_model,
    reducescatter,
)
from basin.horovod.keras.optimizer import DistributedOptimizer
from basin.horovod.objects import allgather_object, broadcast_object
from basin.horovod.ops import Adasum, Average, Max, Min, Product, Sum, Unoffered

broadcast_global_variables = Unoffered(
    "broadcast_global_variables()",
    "Keras 3 keeps no list of all variables. Give fit() the callback "
    "hvd.callbacks.BroadcastGlobalVariablesCallback(0).",
)
PartialDistributedOptimizer = Unoffered(
    "PartialDistributedOptimizer()",
    "all gradients of an optimizer are reduced. Train the local layers with an optimizer of "
    "their own, which is not distributed.",
)
ProcessSet = Unoffered(
    "ProcessSet()",
    "calls on some of the workers are there for PyTorch only. Start these workers as a job of "
    "their own.",
)

__all__ = [
    "Adasum",
    "Average",
    "Compression",
    "DistributedOptimizer",
    "Max",
    "Min",
    "PartialDistributedOptimizer",
    "ProcessSet",
    "Product",
    "Sum",
    "add_process_set",
    "allgather",
    "allgather_object",
    "allreduce",
    "barrier",
    "broadcast",
    "broadcast_global_variables",
    "broadcast_object",
    "callbacks",
    "ccl_built",
    "cross_rank",
    "cross_size",
    "cuda_built",
    "ddl_built",
    "elastic",
    "global_process_set",
    "gloo_built",
    "gloo_enabled",
    "init",
    "is_homogeneous",
    "is_initialized",
    "load_model",
    "local_rank",
    "local_size",
    "mpi_built",
    "mpi_enabled",
    "mpi_threads_supported",
    "nccl_built",
    "rank",
    "reducescatter",
    "remove_process_set",
    "rocm_built",
    "shutdown",
    "size",
    "start_timeline",
    "stop_timeline",
]
