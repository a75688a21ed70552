# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""DistributedOptimizer: an optimizer whose gradients are reduced over all workers."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, TypeVar

import torch

from basin.errors import FailedPrecondition, InvalidArgument, Unsupported
from basin.spec import Op, ReductionOptions
from basin.torch import tensors
from basin.torch.collectives import share_optimizer
from basin.torch.lane import GradientLane
from basin.torch.start import start_lane

if TYPE_CHECKING:
    from typing_extensions import Unpack

OptimizerT = TypeVar("OptimizerT", bound=torch.optim.Optimizer)


def DistributedOptimizer(
    optimizer: OptimizerT,
    named_parameters: Iterable[tuple[str, torch.nn.Parameter]] | None = None,
    *,
    op: Op = Op.AVERAGE,
    backward_passes_per_step: int = 1,
    target_batch: int | None = None,
    wire_dtype: torch.dtype | None = None,
    batch_size: int | None = None,
    same_parameters: bool = True,
    check_optimizer: bool = True,
    check_parameters: int = 0,
    sparse_as_dense: bool = False,
    sparse_gradients: bool | None = None,
    **options: "Unpack[ReductionOptions]",
) -> OptimizerT:
    """Returns the same optimizer. From now on, when backward() returns, .grad of its parameters is
    the gradient reduced over all workers.

    named_parameters: model.named_parameters(); gradients of different workers are matched by name.
                      Without it, parameters are named by their position in the optimizer.
    op:               basin.Average, as in DistributedDataParallel, or basin.Sum. An average is
                      over the workers, and is not divided by the number of micro-batches.
                      basin.WeightedAverage divides by all workers' samples, tokens or
                      micro-batches instead; contribute() declares their number.
    backward_passes_per_step:
                      micro-batches: the gradients of this many backwards accumulate, and the last
                      backward sends them. A step() before that sends the gradients so far, unless
                      .grad was written to: call sync_gradients() before you clip. Another backward
                      before the step() is refused
    target_batch:     the samples of a step of all workers together, however many they are: each
                      accumulates micro-batches until is_batch_complete(). Faster workers contribute
                      more. Needs op=basin.WeightedAverage, weight_by="samples", contributes="sum".
                      last_round().spec.counts has the samples that a step really had
    wire_dtype:       None, torch.bfloat16 or torch.float16: the dtype in which float32 gradients
                      are sent; the sum is computed in float32
    batch_size:       samples of this worker in a step, only for the line that is written at the
                      start
    same_parameters:
                      False: workers may have gradients of different tensors, and skip those that
                      they do not have; otherwise a worker that differs gets Mismatch with the
                      names. Must be the same on all workers
    check_optimizer:  a worker whose optimizer has other numbers than the others' gets Mismatch with
                      the group and both values: learning rate, momentum, betas, weight decay and
                      the optimizer's other options. False: those of this worker are not compared.
                      Without same_parameters nothing is
    check_parameters: compares the values of all parameters before every so many steps, such as 100:
                      a worker whose parameters are not, bit for bit, those of the others gets
                      Mismatch with their names. Takes one pass over their memory. 0: never. Must be
                      the same on all workers; without same_parameters nothing is compared
    sparse_as_dense:  makes sparse gradients, such as those of Embedding(sparse=True), dense as soon
                      as they are accumulated; SparseAdam takes none then. Otherwise workers send
                      only their rows, in a call after the round of the others, and .grad is a
                      coalesced sparse tensor
    sparse_gradients: whether some may be sparse; None: if the optimizer is SparseAdam, or a layer
                      of a model that is shared before the first backward has sparse=True. Must be
                      the same on all workers
    options:          how gradients are reduced; must be the same on all workers:
    weight_by:        for a weighted average: "samples", "tokens" or "micro_batches"
    contributes:      for a weighted average: "sum" if gradients are sums over what weight_by names,
                      "mean" if they are means. A window of several micro-batches takes sums: the
                      sum of means is not a mean, and is refused
    prescale_factor:  multiplies each gradient before the sum
    postscale_factor: multiplies the result after the sum
    gradient_predivide_factor:
                      divides gradients before the sum and multiplies the result after it; with the
                      number of workers, no average overflows. "auto": the power of two nearest to
                      the square root of the number of contributors, chosen for each round and
                      reported in last_round(); it balances both ends of the range
    divide_by_present:
                      divides the average of each parameter by the number of workers that have
                      reached it, not by all

    The optimizer gets these methods:
      contribute()   before a backward: the number of samples and tokens in its loss
      no_sync()      a context in which gradients stay local: for all micro-batches but the last, or
                     when the backward of another model passes through this one
      sync_gradients()
                     reduces the accumulated gradients without another backward
      is_batch_complete()
                     with target_batch, after each backward: whether step() is due
      wait_round()   waits again, after OutcomeUnknown or Paused
      retry_round()  sends the gradients of an aborted round again; those of a failed backward are
                     refused
      last_round()   the facts about the last round
      totals()       bytes and seconds of all rounds so far

    A late joiner gets the optimizer's state from the others.

    A parameter that a backward does not reach is skipped, but the average is still over all
    workers. When no worker has reached it, its .grad stays None. A step() without a backward before
    it takes part in the round without a contribution, and applies the others' result.

    When backward() raises, this worker's gradients are withdrawn and .grad is the others' result:
    call step(), as they do. When no worker has contributed, step() and retry_round() refuse the
    remaining partial gradients: call zero_grad() and run the backward again.

    Raises Unsupported, with the parameter and an alternative, if Basin cannot reduce the model.
    """
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise InvalidArgument(
            f"DistributedOptimizer() was given a {type(optimizer).__name__}. Give it an optimizer "
            "of torch.optim, then model.named_parameters()."
        )
    if isinstance(optimizer, torch.optim.LBFGS):
        raise Unsupported(
            "LBFGS evaluates the model a variable number of times in a step, so workers would have "
            "different numbers of rounds. Use an optimizer without a closure."
        )
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        size = torch.distributed.get_world_size()
        if size > 1:
            raise Unsupported(
                f"This process is in a torch.distributed group of {size} processes, so gradients "
                "would be reduced twice. Use DistributedOptimizer without "
                "DistributedDataParallel, and without init_process_group()."
            )
    names = _names(optimizer, named_parameters)
    lane = start_lane(
        names,
        op,
        wire_dtype,
        batch_size,
        call="DistributedOptimizer()",
        options=options,
        same_parameters=same_parameters,
        check_optimizer=check_optimizer,
        check_parameters=check_parameters,
        passes=backward_passes_per_step,
        target_batch=target_batch,
        owner="the optimizer",
        optimizer=optimizer,
        sparse_as_dense=sparse_as_dense,
        sparse_gradients=sparse_gradients,
    )
    _attach(optimizer, lane, target_batch)
    share_optimizer(optimizer)
    return optimizer


def _names(
    optimizer: torch.optim.Optimizer,
    named_parameters: Iterable[tuple[str, torch.nn.Parameter]] | None,
) -> dict[torch.Tensor, str]:
    own = {
        parameter: f"group{g}.{i}"
        for g, group in enumerate(optimizer.param_groups)
        for i, parameter in enumerate(group["params"])
    }
    if named_parameters is None:
        return own
    given = tensors.pairs_of("DistributedOptimizer()", named_parameters, "model.named_parameters()")
    seen: set[str] = set()
    for name, _ in given:
        if name in seen:
            raise InvalidArgument(f"Two parameters have the name {name}. Use unique names.")
        seen.add(name)
    names: dict[torch.Tensor, str] = {p: name for name, p in given if p in own}
    for parameter, place in own.items():
        if parameter not in names:
            raise InvalidArgument(
                f"Parameter {place} of the optimizer, of shape {tuple(parameter.shape)}, is not "
                "in named_parameters. Pass the named_parameters() of everything that it optimizes."
            )
    return names


def _attach(optimizer: Any, lane: GradientLane, target_batch: int | None) -> None:
    """Adds the methods to the optimizer itself, because LR schedulers refer to that object."""
    if not hasattr(optimizer, "basin_lane"):
        optimizer.register_step_pre_hook(_check_open)
    optimizer.basin_lane = lane
    optimizer.contribute = lane.contribute
    optimizer.no_sync = lane.usage.no_sync
    optimizer.sync_gradients = lane.sync_gradients
    optimizer.is_batch_complete = lambda: _is_batch_complete(lane, target_batch)
    optimizer.wait_round = lane.wait_round
    optimizer.retry_round = lane.retry_round
    optimizer.last_round = lambda: lane.rounds.info
    optimizer.totals = lambda: lane.rounds.totals


def _is_batch_complete(lane: GradientLane, target_batch: int | None) -> bool:
    if target_batch is None:
        raise FailedPrecondition(
            "is_batch_complete() was called on an optimizer without a batch of all workers. Give "
            "DistributedOptimizer() target_batch=, or call step() after each backward()."
        )
    return lane.is_batch_complete(target_batch)


def _check_open(optimizer: Any, *_: Any) -> None:
    optimizer.basin_lane.usage.check_open("step()")
