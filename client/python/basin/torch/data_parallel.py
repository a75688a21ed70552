# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""DistributedDataParallel: a model whose gradients are those of all workers."""

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch

from basin.errors import FailedPrecondition, InvalidArgument, Unsupported
from basin.spec import Op, ReductionOptions
from basin.torch import context, tensors
from basin.torch.collectives import broadcast_parameters
from basin.torch.lane import LaneOwner
from basin.torch.start import start_lane

if TYPE_CHECKING:
    from typing_extensions import Unpack


class DistributedDataParallel(torch.nn.Module, LaneOwner):
    """Wraps a model as torch.nn.parallel.DistributedDataParallel does, without a process group:
    when backward() returns, .grad of its parameters is the gradient reduced over all workers, for
    any optimizer.

    module:            the model, which becomes `.module`; state_dict() has its names after
                       "module."; gradients of different workers are matched by its names
    op:                basin.Average, basin.Sum, or basin.WeightedAverage; this,
                       backward_passes_per_step, same_parameters and options are as for
                       DistributedOptimizer
    wire_dtype:        None, torch.bfloat16 or torch.float16: how float32 gradients travel. The sum
                       is made in float32.
    broadcast_buffers: when backward() has reduced, all workers have the buffers of rank 0. With
                       torch that is at the next forward; here it waits for nobody in a forward,
                       so one worker alone may evaluate.
    init_sync:         all workers start with the parameters and buffers of rank 0
    batch_size:        samples of this worker in a step; only told in the line that is written here

    Parameters that a backward does not reach need no option: they are skipped, and the average is
    over all workers all the same. Two backwards before a step, a step() without a backward and a
    backward that raises are as with DistributedOptimizer.

    Raises Unsupported, which names the parameter and a way out, for what Basin cannot reduce.
    """

    def __init__(
        self,
        module: torch.nn.Module,
        *,
        op: Op = Op.AVERAGE,
        backward_passes_per_step: int = 1,
        wire_dtype: torch.dtype | None = None,
        broadcast_buffers: bool = True,
        init_sync: bool = True,
        batch_size: int | None = None,
        same_parameters: bool = True,
        **options: "Unpack[ReductionOptions]",
    ) -> None:
        super().__init__()
        context.member("DistributedDataParallel()")
        _check(module)
        self.module = module
        self.broadcast_buffers = broadcast_buffers
        if init_sync:
            broadcast_parameters(module)
        self._lane = start_lane(
            {parameter: name for name, parameter in module.named_parameters()},
            op,
            wire_dtype,
            batch_size,
            call="DistributedDataParallel()",
            options=options,
            same_parameters=same_parameters,
            passes=backward_passes_per_step,
            owner="the model",
            module=module,
            send_buffers=broadcast_buffers,
        )

    def forward(self, *inputs: Any, **options: Any) -> Any:
        if torch.is_grad_enabled():  # One may evaluate after shutdown().
            self._lane.usage.check_open("forward()")
        return self.module(*inputs, **options)

    @property
    def require_backward_grad_sync(self) -> bool:
        """Whether a backward reduces the gradients. False for all micro-batches but the last is
        no_sync() without a context, as loops for torch's DistributedDataParallel have it."""
        return self._lane.usage.pushing

    @require_backward_grad_sync.setter
    def require_backward_grad_sync(self, reduces: bool) -> None:
        self._lane.usage.check_takes_part("require_backward_grad_sync")
        self._lane.usage.pushing = bool(reduces)

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        """Gradients of backwards within stay local, and are reduced with those of the first
        backward after it. step() is refused within."""
        with self._lane.no_sync():
            yield

    @contextlib.contextmanager
    def join(
        self,
        divide_by_initial_world_size: bool = False,
        enable: bool = True,
        throw_on_early_termination: bool = False,
    ) -> Iterator[None]:
        """A loop over data of which others have more or less; basin.torch.finished() at its end. As
        torch's join(), but for this: it does not wait for the others, who divide by those who
        contribute, and the model keeps what it has.

        divide_by_initial_world_size: False; True raises Unsupported: a round is divided by those
                                      who contribute to it
        enable:                       False: it does nothing
        throw_on_early_termination:   False; True raises Unsupported: the others are not stopped
        """
        if enable:
            self._lane.usage.check_takes_part("join()")
        if divide_by_initial_world_size:
            raise Unsupported(
                "join(divide_by_initial_world_size=True) would divide by workers that contribute "
                "nothing any more, and a round is divided by those who contribute to it. Pass "
                "False, or keep a worker that has run out in the average: call step() without a "
                "backward there."
            )
        if throw_on_early_termination:
            raise Unsupported(
                "join(throw_on_early_termination=True) would stop all workers when the first one "
                "runs out, and here the others go on. Pass False, and give all the same number of "
                "steps: basin.torch.allreduce() of the number of batches, op=basin.Min."
            )
        yield
        if enable:
            context.current().finish()

    def __getstate__(self) -> dict[str, Any]:
        raise FailedPrecondition(
            "A DistributedDataParallel cannot be copied or pickled: it belongs to its process. Use "
            ".module or state_dict()."
        )


def _check(module: torch.nn.Module) -> None:
    if not isinstance(module, torch.nn.Module):
        raise InvalidArgument(
            f"DistributedDataParallel() was given a {type(module).__name__}. Give it the model."
        )
    for part in module.modules():
        if isinstance(part, torch.nn.parallel.DistributedDataParallel | DistributedDataParallel):
            raise Unsupported(
                f"The model contains a {type(part).__module__}.{type(part).__name__} already, and "
                "gradients would be reduced twice. Wrap its .module instead."
            )
    for name, parameter in module.named_parameters():
        if torch.nn.parameter.is_lazy(parameter):
            raise Unsupported(
                f"Parameter {name} has no shape yet, so that it cannot start with the values of "
                "rank 0. Run one forward before you wrap the model."
            )
    for name, tensor in module.state_dict(keep_vars=True).items():
        if isinstance(tensor, torch.Tensor):
            tensors.check_memory(name, tensor)
