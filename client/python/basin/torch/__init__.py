# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""Basin for PyTorch.

basin.torch.init()
basin.torch.broadcast_parameters(model)
optimizer = basin.torch.DistributedOptimizer(optimizer, model.named_parameters())

When backward() returns, .grad is then the gradient averaged over all workers.
"""

import importlib
import os
import sys
from collections.abc import Iterable
from typing import Any

import torch

from basin import client, descent, exit_code, machine
from basin.arguments import seconds
from basin.errors import FailedPrecondition
from basin.notices import ContributorsChanged
from basin.process_set import ProcessSet
from basin.spec import Counts, Op
from basin.torch import context, loaders
from basin.torch.broadcasting import (
    broadcast,
    broadcast_,
    broadcast_async,
    broadcast_async_,
    grouped_broadcast,
    grouped_broadcast_,
    grouped_broadcast_async,
    grouped_broadcast_async_,
)
from basin.torch.clip import clip_grad_norm_
from basin.torch.collectives import (
    allreduce,
    allreduce_,
    allreduce_async,
    allreduce_async_,
    barrier,
    broadcast_buffers,
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
from basin.torch.gathering import (
    allgather,
    allgather_async,
    alltoall,
    alltoall_async,
    grouped_allgather,
    grouped_allgather_async,
    grouped_alltoall,
    grouped_alltoall_async,
)
from basin.torch.learning_rate import LinearScaling, SqrtScaling
from basin.torch.leave import Leave
from basin.torch.objects import allgather_object, broadcast_object, gather_object
from basin.torch.optimizer import DistributedOptimizer
from basin.torch.process_sets import add_process_set, remove_process_set
from basin.torch.samples import ElasticBatchSampler, ElasticSampler, elastic_shards
from basin.torch.scaler import GradScaler
from basin.torch.scattering import (
    grouped_reducescatter,
    grouped_reducescatter_async,
    reducescatter,
    reducescatter_async,
)
from basin.torch.snapshots import Snapshots
from basin.torch.totals import total_counts
from basin.torch.training_state import State

loaders.watch()

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
    leave_on: Iterable[int] = (),
    notice: str | os.PathLike[str] | None = None,
    notice_seconds: float | None = None,
    strict_data: bool = False,
    **options: Any,
) -> None:
    """Connects this process as a worker of its job, and returns when it has a rank.

    If the others train already, they go on without this worker until its first broadcast or other
    collective call, DistributedOptimizer() or DistributedDataParallel(): until then it may build
    its model. rank() and size() are then those that it would have if it joined now; they change
    when other workers join or leave. In a new job they are final.

    options:       the options of basin.connect(); missing ones come from the environment.
                   ready=True: a late joiner is a member when init() returns
    round_timeout: seconds that a backward waits for the outcome of its round before it raises
                   OutcomeUnknown; None: forever, while late workers are logged
    own_state:     if it joins late, this worker already has the state of the others and makes the
                   same calls as they do; only broadcast_object() before its first step returns what
                   they got. Otherwise it gets the state with the first broadcasts
    leave_on:      signals, for example (signal.SIGTERM,), after which this worker leaves at the end
                   of its step, until shutdown(); see leaving(). Needs the main thread. A signal
                   before the worker is a member ends the process with 0
    notice:        a path, or a URL of the machine's provider, that exists once this worker has to
                   leave. It is looked at each second. A page that says nothing, or false, is none
    notice_seconds:
                   from the signal or the notice until the process has to be gone; None: it has
                   time for its step. See will_leave()
    strict_data:   True: a DistributedSampler that divides the data among another number of workers
                   than the job has, because the job was resized, raises FailedPrecondition, on all
                   workers after the same step; otherwise a warning is logged once

    In a process that a worker has started with its own environment, such as one of a data loader
    that imports the script again, init() does nothing but set rank() and size() to the worker's.
    """
    exit_code.install()
    seconds("round_timeout", round_timeout)
    if context.is_helper():
        return
    if context.is_started():
        raise FailedPrecondition("Basin is initialized already. Call shutdown() first.")
    if not descent.follows_a_worker():
        # Torch imports it with the first optimizer, for seconds in which the others may wait.
        importlib.import_module("torch._dynamo")
    options.setdefault("ready", False)
    options.setdefault("software", f"torch {torch.__version__}")
    leave = Leave(leave_on, notice, notice_seconds)
    try:
        connected = client.connect(address, **options)
    except descent.IsHelper as why:
        leave.close()
        context.start_helper(why)
        return
    except BaseException:
        leave.close()
        raise
    context.start(connected, round_timeout, own_state, leave, bool(strict_data))


def shutdown() -> None:
    """Leaves the job and removes all hooks. A second call does nothing.

    The others continue without this worker. While an exception is being handled, other than Paused
    after will_leave(), the worker counts as lost instead, and the others wait for a replacement if
    they need all workers.
    """
    if context.is_helper():
        context.stop(finished=False)
    elif context.is_started():
        context.stop(context.current().client.leaves_with(sys.exc_info()[0]))


def will_leave(by: float | None = None) -> None:
    """Declares that this worker leaves at the end of its step; a signal handler may call it.

    The step continues, except in a paused job, where the missing workers may never come: there,
    backward(), step() and every other wait end with Paused, about five seconds after the pause
    began. Then call shutdown(): the round goes on without this worker. Raises FailedPrecondition
    before init() has returned, when there is no step to finish.

    by: in how many seconds the process has to be gone; None: it has time for its step. If the step
        takes longer, the thread that called init() gets a SystemExit with the code 0 before that,
        in the last half of this time, at most five seconds before its end. Its open round is
        withdrawn, and the others go on. A script that catches neither it nor that Paused ends with
        0
    """
    context.current().leave.will_leave(by)


def leaving() -> bool:
    """Whether this worker is to leave: after will_leave(), a signal of init(leave_on=...), a
    notice, or `basinctl drain worker`. The loop ends its step, and calls shutdown():

        while state.step < steps and not basin.torch.leaving():
    """
    return not context.is_helper() and bool(context.current().leave)


def busy(reason: str, expected: float) -> None:
    """Reports that this worker does something else, for example an evaluation or a checkpoint.
    Workers that wait for it get the reason.

    expected: about how many seconds it takes; 0: it is over
    """
    context.current().client.busy(reason, expected)


def report_progress(done: float, **metrics: float) -> None:
    """Reports how far the training is, where something shows it: a TrainJob of Kubeflow Trainer
    does, with the estimated time that is left. Elsewhere it does nothing. All workers may call it,
    in each step; rank 0 sends the latest report every five seconds, in the background.

    done:    the share of the whole training that is done, from 0 to 1
    metrics: numbers to show beside it, by name, such as loss=0.3; the number of workers is one
    """
    if not context.is_helper():
        context.current().client.report_progress(done, **metrics)


def finished() -> None:
    """Declares that this worker is out of data. It contributes to no further round, and the others
    continue without it; averages are over the contributors. The worker keeps its present parameters
    and gets no later results. It may evaluate or save, but not train or take part in calls of all
    workers. It has no rank: rank() and size() raise FailedPrecondition."""
    context.current().finish()


def join() -> None:
    """Horovod's name for finished(). It does not wait for the others."""
    finished()


def rejoin(timeout: float | None = 300.0) -> None:
    """After Evicted: joins as a member again, with the others' present values of everything that
    was broadcast; those that are equal here are compared and not moved. Gradients are lost;
    continue with the step in broadcast_state().

    After OutcomeUnknown it also gives up the round. Raises DeadlineExceeded if this worker does not
    become a member within `timeout` seconds.
    """
    context.current().rejoin(timeout)


def is_initialized() -> bool:
    return context.is_started()


def rank() -> int:
    """From 0 to size() - 1; it may change when workers join or leave. That of a late joiner is an
    expected one until its first collective call. Raises FailedPrecondition after finished()."""
    return context.rank_and_size("rank()")[0]


def size() -> int:
    """The number of trainers. Raises FailedPrecondition after finished()."""
    return context.rank_and_size("size()")[1]


def local_rank() -> int:
    """The rank of this worker on its machine, from its launcher."""
    return machine.local_rank()


def local_size() -> int:
    return machine.local_size()


__all__ = [
    "Average",
    "ContributorsChanged",
    "Counts",
    "DDPState",
    "DistributedDataParallel",
    "DistributedOptimizer",
    "ElasticBatchSampler",
    "ElasticSampler",
    "GradScaler",
    "LinearScaling",
    "Max",
    "Min",
    "Op",
    "ProcessSet",
    "Product",
    "Snapshots",
    "SqrtScaling",
    "State",
    "Sum",
    "WeightedAverage",
    "add_process_set",
    "allgather",
    "allgather_async",
    "allgather_object",
    "allreduce",
    "allreduce_",
    "allreduce_async",
    "allreduce_async_",
    "alltoall",
    "alltoall_async",
    "barrier",
    "broadcast",
    "broadcast_",
    "broadcast_async",
    "broadcast_async_",
    "broadcast_buffers",
    "broadcast_object",
    "broadcast_optimizer_state",
    "broadcast_parameters",
    "broadcast_state",
    "busy",
    "clip_grad_norm_",
    "ddp_comm_hook",
    "elastic_shards",
    "finished",
    "gather_object",
    "grouped_allgather",
    "grouped_allgather_async",
    "grouped_allreduce",
    "grouped_allreduce_",
    "grouped_allreduce_async",
    "grouped_allreduce_async_",
    "grouped_alltoall",
    "grouped_alltoall_async",
    "grouped_broadcast",
    "grouped_broadcast_",
    "grouped_broadcast_async",
    "grouped_broadcast_async_",
    "grouped_reducescatter",
    "grouped_reducescatter_async",
    "init",
    "is_initialized",
    "join",
    "leaving",
    "local_rank",
    "local_size",
    "poll",
    "rank",
    "reducescatter",
    "reducescatter_async",
    "rejoin",
    "remove_process_set",
    "report_progress",
    "shutdown",
    "size",
    "synchronize",
    "total_counts",
    "will_leave",
]
