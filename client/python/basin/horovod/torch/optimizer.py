# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""DistributedOptimizer with Horovod's arguments and methods.

Horovod has reduced the gradients when synchronize() or step() returns, and Basin already when
the last backward() returns. Scripts that follow Horovod's rules cannot tell the difference: they
read or change .grad only after synchronize().
"""

import contextlib
import warnings
from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

import torch

import basin.torch
from basin.errors import Unsupported
from basin.horovod.compression import wire_dtype_of
from basin.horovod.ops import Average, op_of_gradients
from basin.horovod.torch.compression import Compression
from basin.horovod.torch.process_sets import AnySet, basins, global_process_set

OptimizerT = TypeVar("OptimizerT", bound=torch.optim.Optimizer)


def DistributedOptimizer(
    optimizer: OptimizerT,
    named_parameters: Iterable[tuple[str, torch.Tensor]] | None = None,
    compression: Any = Compression.none,
    backward_passes_per_step: int = 1,
    op: Any = Average,
    gradient_predivide_factor: float = 1.0,
    num_groups: int = 0,
    groups: Any = None,
    sparse_as_dense: bool = False,
    process_set: AnySet = global_process_set,
) -> OptimizerT:
    """Returns the same optimizer, whose gradients are reduced over all workers.

    named_parameters: model.named_parameters(); None: parameters are named by their place
    compression:      Compression.none or Compression.fp16, which sends float32 gradients as float16
    backward_passes_per_step:
                      the gradients of this many backwards are added up, and then reduced. Nothing
                      is divided by it
    op:               hvd.Average or hvd.Sum
    gradient_predivide_factor:
                      divides gradients before the sum and multiplies the average after it
    num_groups, groups:
                      checked, and not used: all gradients of a step are one round
    sparse_as_dense:  makes sparse gradients dense before they are reduced; otherwise workers send
                      only their rows
    process_set:      only global_process_set

    The optimizer gets synchronize(), skip_synchronize() and set_backward_passes_per_step(), and all
    methods that basin.torch.DistributedOptimizer() adds. Nothing is reduced twice: a step() after
    synchronize() needs no skip_synchronize(). zero_grad() between a backward and the step() or
    synchronize() raises AssertionError. A parameter that no worker has reached keeps .grad None.

    Raises ValueError for arguments that contradict each other, and Unsupported, with the way out,
    for what Basin cannot do.
    """
    call = "DistributedOptimizer()"
    chosen = op_of_gradients(call, op, gradient_predivide_factor)
    _check_groups(call, num_groups, groups)
    if basins(process_set) is not None:
        raise Unsupported(
            f"{call} reduces gradients over all workers of a job, not of {process_set}. Start its "
            "workers as a job of their own, or average the gradients with grouped_allreduce_() of "
            "the set before each step()."
        )
    named = _named(call, optimizer, named_parameters)
    wire_dtype = wire_dtype_of(call, compression)
    made = basin.torch.DistributedOptimizer(
        optimizer,
        named,
        op=chosen,
        backward_passes_per_step=backward_passes_per_step,
        wire_dtype=None if wire_dtype is None else getattr(torch, wire_dtype),
        check_optimizer=False,  # Horovod does not, and a worker in join() has an older schedule.
        gradient_predivide_factor=gradient_predivide_factor,
        sparse_as_dense=sparse_as_dense,
        sparse_gradients=True,  # Horovod's scripts share tensors, not the model that says so.
    )
    _attach(made)
    return made


def _check_groups(call: str, num_groups: int, groups: Any) -> None:
    if num_groups != 0:
        warnings.warn(
            f"num_groups of {call} is deprecated, and has no effect: all gradients of a step are "
            "one round. Omit it.",
            DeprecationWarning,
            stacklevel=3,
        )
    is_number = isinstance(groups, int) and not isinstance(groups, bool) and groups >= 0
    if groups is not None and not is_number and not isinstance(groups, (list, tuple)):
        raise ValueError(
            f"{call} was given {groups!r} as groups. Use a whole number from 0, or a list of lists "
            "of tensors."
        )


def _named(
    call: str,
    optimizer: torch.optim.Optimizer,
    named_parameters: Iterable[tuple[str, torch.Tensor]] | None,
) -> Any:
    if named_parameters is None:
        return None
    named = list(named_parameters)
    if any(not isinstance(each, tuple) or len(each) != 2 for each in named):
        raise ValueError(
            f"named_parameters of {call} are not pairs of name and parameter. Use "
            "model.named_parameters()."
        )
    names = [name for name, _ in named]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ValueError(
            f"named_parameters of {call} have a name twice: {', '.join(twice)}. Use unique names."
        )
    known = {id(parameter) for _, parameter in named}
    missing = [
        f"{g}.{i}"
        for g, group in enumerate(optimizer.param_groups)
        for i, parameter in enumerate(group["params"])
        if id(parameter) not in known
    ]
    if missing:
        raise ValueError(
            f"named_parameters of {call} lack parameters of the optimizer: those at "
            f"{', '.join(missing)} (group and place). Pass all that it optimizes."
        )
    return named


def _attach(optimizer: Any) -> None:
    """Adds Horovod's methods. What was synchronized is known by the facts of its round."""
    lane = optimizer.basin_lane
    synchronized: list[Any] = [None]
    zero_grad = optimizer.zero_grad

    def synchronize() -> None:
        """Returns when .grad is the reduced gradient, also after fewer backwards than
        backward_passes_per_step."""
        lane.sync_gradients()
        synchronized[0] = lane.rounds.info

    @contextlib.contextmanager
    def skip_synchronize() -> Iterator[None]:
        """Says that the step() within it follows synchronize()."""
        yield

    def checked_zero_grad(*arguments: Any, **options: Any) -> Any:
        gradients = lane.gradients
        reduced = gradients.has_round_for([optimizer])
        if gradients.has_local() or (reduced and lane.rounds.info is not synchronized[0]):
            raise AssertionError(
                "zero_grad() was called after a backward() whose gradients no step() has applied. "
                "Call step(), or synchronize() to skip the step."
            )
        return zero_grad(*arguments, **options)

    def set_backward_passes_per_step(passes: int) -> None:
        """Changes the number of backwards between two steps. Call it after a step()."""
        lane.set_passes(passes)

    optimizer.synchronize = synchronize
    optimizer.skip_synchronize = skip_synchronize
    optimizer.zero_grad = checked_zero_grad
    optimizer.set_backward_passes_per_step = set_backward_passes_per_step
