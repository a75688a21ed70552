# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""DistributedOptimizer: an optimizer whose gradients are those of all workers."""

import sys
from collections.abc import Iterable
from typing import Any, TypeVar

import torch

from basin import __version__
from basin.client import Op
from basin.errors import InvalidArgument, Unsupported
from basin.torch import context
from basin.torch.lane import GradientLane

OptimizerT = TypeVar("OptimizerT", bound=torch.optim.Optimizer)

_LANE = "gradients"


def DistributedOptimizer(
    optimizer: OptimizerT,
    named_parameters: Iterable[tuple[str, torch.nn.Parameter]] | None = None,
    *,
    op: Op = Op.AVERAGE,
    wire_dtype: torch.dtype | None = None,
) -> OptimizerT:
    """Returns the same optimizer: from now on, when backward() returns, .grad of its parameters is
    the gradient reduced over all workers.

    named_parameters: model.named_parameters(); gradients of different workers are matched by name.
                      Without it parameters are named by their place in the optimizer.
    op:               basin.Average, as DistributedDataParallel does, or basin.Sum. An average is
                      over the workers, and nothing is divided by the number of micro-batches.
    wire_dtype:       None, torch.bfloat16 or torch.float16: how float32 gradients travel. The sum
                      is made in float32.

    The optimizer gets some methods:
      no_push()      a context: gradients of backwards within stay local. For all micro-batches but
                     the last, or when the backward of another model passes through this one.
      wait_round()   waits again, after OutcomeUnknown or Paused
      retry_round()  sends the gradients of a round that was aborted again
      last_round()   what was done in the last round
      totals()       bytes and seconds of all rounds so far

    A parameter that a backward does not reach is skipped: the average is over all workers all the
    same. When nobody has reached it, its .grad stays None. A step() without a backward before it
    takes part in the round with nothing, and applies what the others have.

    When backward() raises, this worker's gradients are withdrawn and .grad is what the others have
    come to: call step(), as they do.

    Raises Unsupported, which names the parameter and a way out, for what Basin cannot reduce.
    """
    if isinstance(optimizer, torch.optim.LBFGS):
        raise Unsupported(
            "LBFGS evaluates the model several times in a step, as often as it likes, and workers "
            "would have different numbers of rounds. Use an optimizer without a closure."
        )
    if wire_dtype not in (None, torch.float32, torch.bfloat16, torch.float16):
        raise InvalidArgument(
            f"wire_dtype cannot be {wire_dtype}. Use torch.bfloat16, torch.float16 or None."
        )
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        size = torch.distributed.get_world_size()
        if size > 1:
            raise Unsupported(
                f"This process is in a group of {size} of torch.distributed, whose gradients "
                "would be reduced twice. Use DistributedOptimizer without "
                "DistributedDataParallel, and without init_process_group()."
            )
    here = context.current()
    names = _names(optimizer, named_parameters)
    count = len(here.lanes)
    lane = GradientLane(
        here.client.worker,
        _LANE if count == 0 else f"{_LANE}.{count}",
        names,
        Op(op),
        None if wire_dtype == torch.float32 else wire_dtype,
        here.timeout,
    )
    here.lanes.append(lane)
    _attach(optimizer, lane)
    _tell(here, op, wire_dtype)
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
    given = list(named_parameters)
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
    """Hooks and methods, so that it stays the object that LR schedulers know."""

    def before(_: Any, arguments: tuple[Any, ...], options: dict[str, Any]) -> None:
        if any(each is not None for each in (*arguments[1:], options.get("closure"))):
            raise Unsupported(
                "step() was called with a closure, whose backward would begin another round. Call "
                "backward() yourself, then step() without a closure."
            )
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                if not lane.knows(parameter):
                    raise InvalidArgument(
                        f"The optimizer was given a parameter of shape {tuple(parameter.shape)} "
                        "after DistributedOptimizer. Add parameter groups before it."
                    )
        lane.before_step()

    def after(*_: Any) -> None:
        lane.after_step()

    optimizer.register_step_pre_hook(before)
    optimizer.register_step_post_hook(after)
    optimizer.no_push = lane.no_push
    optimizer.wait_round = lane.wait_round
    optimizer.retry_round = lane.retry_round
    optimizer.last_round = lambda: lane.info
    optimizer.totals = lambda: lane.totals


def _tell(here: context.Context, op: Op, wire_dtype: torch.dtype | None) -> None:
    """One line, by which a wrong start is seen at once."""
    place = here.client.place
    options = here.client.worker.options
    wire = "same" if wire_dtype is None else str(wire_dtype).removeprefix("torch.")
    divisor = "the number of workers" if op == Op.AVERAGE else "nothing"
    least = options["min_workers"] if options["min_workers"] not in ("", "0") else "max"
    line = (
        f"basin: worker {here.client.worker_id} of job {options['job']}: rank {place.rank} of "
        f"{place.world_size} (min {least}, max {options['max_workers']}), op {Op(op).name}, "
        f"divided by {divisor}, wire dtype {wire}, batch unknown, basin {__version__}, torch "
        f"{torch.__version__}\n"
    )
    sys.stderr.write(line)  # In one piece, among those of other workers.
    sys.stderr.flush()
