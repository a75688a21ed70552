# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""Basin for PyTorch.

basin.torch.init()
basin.torch.broadcast_parameters(model)
optimizer = basin.torch.DistributedOptimizer(optimizer, model.named_parameters())

From then on, when backward() returns, .grad is the gradient averaged over all workers.
"""

import os
import sys
from typing import Any

from basin import client
from basin.arguments import seconds
from basin.errors import FailedPrecondition
from basin.spec import Counts, Op
from basin.torch import context
from basin.torch.clip import clip_grad_norm_
from basin.torch.collectives import (
    allgather_object,
    allreduce,
    allreduce_,
    allreduce_async,
    allreduce_async_,
    barrier,
    broadcast_buffers,
    broadcast_object,
    broadcast_optimizer_state,
    broadcast_parameters,
    broadcast_state,
    grouped_allreduce,
    grouped_allreduce_,
    grouped_allreduce_async,
    grouped_allreduce_async_,
    poll,
    synchronize,
)
from basin.torch.comm_hook import DDPState, ddp_comm_hook
from basin.torch.data_parallel import DistributedDataParallel
from basin.torch.lane import ContributorsChanged
from basin.torch.optimizer import DistributedOptimizer
from basin.torch.scaler import GradScaler
from basin.torch.state import State
from basin.torch.totals import total_counts

Average = Op.AVERAGE
WeightedAverage = Op.WEIGHTED_AVERAGE
Sum = Op.SUM
Min = Op.MIN
Max = Op.MAX
Product = Op.PRODUCT


def init(
    address: str | None = None,
    *,
    round_timeout: float | None = None,
    own_state: bool = False,
    **options: Any,
) -> None:
    """Connects this process as a worker of its job, and returns when it has a rank.

    options:       those of basin.connect(); what is not given comes from the environment
    round_timeout: seconds that a backward waits for the outcome of its round until it raises
                   OutcomeUnknown; None: for ever, with a log of whom it waits for
    own_state:     when it joins late, this worker has the state of the others already, and calls
                   what they call; otherwise it gets the state with the first broadcasts
    """
    seconds("round_timeout", round_timeout)
    if context.is_started():
        raise FailedPrecondition("Basin is initialized already. Call shutdown() before.")
    context.start(client.connect(address, **options), round_timeout, own_state)


def shutdown() -> None:
    """Leaves the job and takes all hooks away. Nothing happens the second time.

    The others go on without this worker. While an exception is being handled they count it as lost
    instead, and wait for another one if they need all.
    """
    context.stop(finished=sys.exc_info()[0] is None)


def finished() -> None:
    """This worker is out of data: it contributes to no further round, and the others go on without
    it; an average is over those that contribute. It keeps what it has, gets no later results, and
    may evaluate or save, but neither train nor call what all workers call. It has no rank any more:
    rank() and size() raise FailedPrecondition."""
    context.current().finish()


def join() -> None:
    """As finished(), by Horovod's name. It does not wait for the others."""
    finished()


def rejoin(timeout: float | None = 300.0) -> None:
    """After Evicted: comes back as a member, with everything that was broadcast as the others have
    it now. Gradients are gone; go on with the step that broadcast_state() says.

    After OutcomeUnknown it gives up the round as well. Raises DeadlineExceeded when nobody lets
    this worker in within `timeout` seconds.
    """
    context.current().rejoin(timeout)


def is_initialized() -> bool:
    return context.is_started()


def rank() -> int:
    """0 to size() - 1; it may change when workers come or go. Raises FailedPrecondition after
    finished()."""
    return context.current().place("rank()").rank


def size() -> int:
    """How many workers there are. Raises FailedPrecondition after finished()."""
    return context.current().place("size()").world_size


def local_rank() -> int:
    """Of this worker on its machine, as its launcher says."""
    return int(os.environ.get("LOCAL_RANK", "0"))


def local_size() -> int:
    return int(os.environ.get("LOCAL_WORLD_SIZE", "1"))


__all__ = [
    "Average",
    "ContributorsChanged",
    "Counts",
    "DDPState",
    "DistributedDataParallel",
    "DistributedOptimizer",
    "GradScaler",
    "Max",
    "Min",
    "Op",
    "Product",
    "State",
    "Sum",
    "WeightedAverage",
    "allgather_object",
    "allreduce",
    "allreduce_",
    "allreduce_async",
    "allreduce_async_",
    "barrier",
    "broadcast_buffers",
    "broadcast_object",
    "broadcast_optimizer_state",
    "broadcast_parameters",
    "broadcast_state",
    "clip_grad_norm_",
    "ddp_comm_hook",
    "finished",
    "grouped_allreduce",
    "grouped_allreduce_",
    "grouped_allreduce_async",
    "grouped_allreduce_async_",
    "init",
    "is_initialized",
    "join",
    "local_rank",
    "local_size",
    "poll",
    "rank",
    "rejoin",
    "shutdown",
    "size",
    "synchronize",
    "total_counts",
]
