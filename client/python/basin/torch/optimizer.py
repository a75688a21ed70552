# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""DistributedOptimizer: an optimizer whose gradients are those of all workers."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, TypeVar

import torch

from basin.errors import InvalidArgument, Unsupported
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
    wire_dtype: torch.dtype | None = None,
    batch_size: int | None = None,
    same_parameters: bool = True,
    **options: "Unpack[ReductionOptions]",
) -> OptimizerT:
    """Returns the same optimizer: from now on, when backward() returns, .grad of its parameters is
    the gradient reduced over all workers.

    named_parameters: model.named_parameters(); gradients of different workers are matched by name.
                      Without it parameters are named by their place in the optimizer.
    op:               basin.Average, as DistributedDataParallel does, or basin.Sum. An average is
                      over the workers, and nothing is divided by the number of micro-batches.
                      basin.WeightedAverage divides by all workers' samples, tokens or
                      micro-batches instead; contribute() tells how many there are.
    backward_passes_per_step:
                      micro-batches: the gradients of so many backwards accumulate, and the last
                      one sends them; so does a step() before it, with those that there are, unless
                      .grad was written to: call sync_gradients() before you clip. Another backward
                      before the step() is refused
    wire_dtype:       None, torch.bfloat16 or torch.float16: how float32 gradients travel. The sum
                      is made in float32.
    batch_size:       samples of this worker in a step; only told in the line that is written here
    same_parameters:
                      False: workers may have gradients of different tensors, each averaged as it
                      comes; otherwise the one that differs gets Mismatch with the names. The same
                      on all workers
    options:          how gradients are reduced, the same on all workers:
    weight_by:        of a weighted average: "samples", "tokens" or "micro_batches"
    contributes:      of a weighted average, never guessed: "sum" when gradients are sums over what
                      weight_by names, "mean" when they are means. A window of several micro-batches
                      takes sums: the sum of their means is no mean, and is refused
    prescale_factor:  each gradient is multiplied by it before the sum
    postscale_factor: and the result after it
    gradient_predivide_factor:
                      gradients are divided by it before the sum and multiplied after it; by the
                      number of workers, no average leaves the range. "auto": the power of two
                      nearest to the root of the number of contributors, chosen for each round and
                      told in last_round(): it halves the way to either end of the range
    divide_by_present:
                      an average is divided, for each parameter, by the workers that have reached
                      it, not by all

    The optimizer gets some methods:
      contribute()   before a backward: how many samples and tokens its loss is made of
      no_sync()      a context: gradients of backwards within stay local. For all micro-batches but
                     the last, or when the backward of another model passes through this one.
      sync_gradients()
                     reduces what was accumulated, without another backward
      wait_round()   waits again, after OutcomeUnknown or Paused
      retry_round()  sends the gradients of a round that was aborted again; those of a backward that
                     had failed are refused
      last_round()   what was done in the last round
      totals()       bytes and seconds of all rounds so far

    A worker that joins late takes the optimizer's state from the others.

    A parameter that a backward does not reach is skipped: the average is over all workers all the
    same. When nobody has reached it, its .grad stays None. A step() without a backward before it
    takes part in the round with nothing, and applies what the others have.

    When backward() raises, this worker's gradients are withdrawn and .grad is what the others have
    come to: call step(), as they do. When nobody has contributed, what is left of it is refused by
    step() and retry_round(): call zero_grad() and run the backward again.

    Raises Unsupported, which names the parameter and a way out, for what Basin cannot reduce.
    """
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise InvalidArgument(
            f"DistributedOptimizer() was given a {type(optimizer).__name__}. Give it an optimizer "
            "of torch.optim, then model.named_parameters()."
        )
    if isinstance(optimizer, torch.optim.LBFGS):
        raise Unsupported(
            "LBFGS evaluates the model several times in a step, as often as it likes, and workers "
            "would have different numbers of rounds. Use an optimizer without a closure."
        )
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        size = torch.distributed.get_world_size()
        if size > 1:
            raise Unsupported(
                f"This process is in a group of {size} of torch.distributed, whose gradients "
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
        passes=backward_passes_per_step,
        owner="the optimizer",
        optimizer=optimizer,
    )
    _attach(optimizer, lane)
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
            raise InvalidArgument(f"Two parameters have the name {name}. Give each its own.")
        seen.add(name)
    names: dict[torch.Tensor, str] = {p: name for name, p in given if p in own}
    for parameter, place in own.items():
        if parameter not in names:
            raise InvalidArgument(
                f"Parameter {place} of the optimizer, of shape {tuple(parameter.shape)}, is not "
                "in named_parameters. Pass model.named_parameters() of all that it optimizes."
            )
    return names


def _attach(optimizer: Any, lane: GradientLane) -> None:
    """Methods, so that it stays the object that LR schedulers know."""
    if not hasattr(optimizer, "basin_lane"):
        optimizer.register_step_pre_hook(_check_open)
    optimizer.basin_lane = lane
    optimizer.contribute = lane.contribute
    optimizer.no_sync = lane.no_sync
    optimizer.sync_gradients = lane.sync_gradients
    optimizer.wait_round = lane.wait_round
    optimizer.retry_round = lane.retry_round
    optimizer.last_round = lambda: lane.info
    optimizer.totals = lambda: lane.totals


def _check_open(optimizer: Any, *_: Any) -> None:
    optimizer.basin_lane.usage.check_open("step()")
