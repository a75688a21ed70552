# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""DistributedDataParallel: a model whose gradients are reduced over all workers."""

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

    module:            the model, which becomes `.module`; state_dict() prefixes its names with
                       "module."; gradients of different workers are matched by its names
    op:                basin.Average, basin.Sum, or basin.WeightedAverage; this,
                       backward_passes_per_step, same_parameters and options are as for
                       DistributedOptimizer
    wire_dtype:        None, torch.bfloat16 or torch.float16: the dtype in which float32 gradients
                       are sent; the sum is computed in float32
    broadcast_buffers: after a backward() that reduces, all workers have the buffers of rank 0.
                       Torch sends them at the next forward; here a forward does not wait, so one
                       worker alone can evaluate. A buffer that a graph has saved for another
                       backward is written later: by the next forward, or by step().
    init_sync:         all workers start with the parameters and buffers of rank 0, and those of
                       lazy modules have its values from their first forward on
    batch_size:        samples of this worker in a step, only for the line that is written at the
                       start

    Parameters that a backward does not reach need no option: they are skipped, and the average is
    still over all workers. Two backwards before a step, a step() without a backward and a backward
    that raises behave as with DistributedOptimizer.

    Raises Unsupported, with the parameter and an alternative, if Basin cannot reduce the model.
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
        self._lane = start_lane(
            {parameter: name for name, parameter in tensors.parameters_of(module)},
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
        if init_sync:
            # A late joiner loads the state in it, and the others need not wait if it has a lane.
            try:
                broadcast_parameters(module)
            except BaseException:
                self.close()
                context.current().lanes_made -= 1  # It had no round, so its name is free.
                raise

    def close(self) -> None:
        """Gives the model back, as free as before it was wrapped: gradients of later backwards are
        local. All workers do so after the same step."""
        context.current().close_lane(self._lane)

    def forward(self, *inputs: Any, **options: Any) -> Any:
        if torch.is_grad_enabled():  # Evaluation is allowed after shutdown().
            self._lane.usage.check_open("forward()")
        if not torch.compiler.is_compiling():  # step() does it as well.
            self._lane.write_buffers()
        return self.module(*inputs, **options)

    @property
    def require_backward_grad_sync(self) -> bool:
        """Whether a backward reduces the gradients. Setting it to False for all micro-batches but
        the last has the effect of no_sync(), as in loops for torch's DistributedDataParallel."""
        return self._lane.usage.pushing

    @require_backward_grad_sync.setter
    def require_backward_grad_sync(self, reduces: bool) -> None:
        self._lane.usage.check_takes_part("require_backward_grad_sync")
        self._lane.usage.pushing = bool(reduces)

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        """Keeps the gradients of backwards within it local; the first backward after it reduces
        them together with its own. step() is refused within it."""
        with self._lane.usage.no_sync():
            yield

    @contextlib.contextmanager
    def join(
        self,
        divide_by_initial_world_size: bool = False,
        enable: bool = True,
        throw_on_early_termination: bool = False,
    ) -> Iterator[None]:
        """Encloses a loop over uneven data, and calls basin.torch.finished() at its end. Unlike
        torch's join(), it does not wait for the others, averages are over the contributors, and the
        model keeps its present parameters.

        divide_by_initial_world_size: False; True raises Unsupported, because a round is divided by
                                      its contributors
        enable:                       False: it does nothing
        throw_on_early_termination:   False; True raises Unsupported, because the others continue
        """
        if enable:
            self._lane.usage.check_takes_part("join()")
        if divide_by_initial_world_size:
            raise Unsupported(
                "join(divide_by_initial_world_size=True) would divide by workers that no longer "
                "contribute, but a round is divided by its contributors. Pass False, or keep a "
                "worker without data in the average: call step() without a backward there."
            )
        if throw_on_early_termination:
            raise Unsupported(
                "join(throw_on_early_termination=True) would stop all workers when the first one "
                "runs out of data, but here the others continue. Pass False, and give all the same "
                "number of steps: basin.torch.allreduce() of the number of batches, op=basin.Min."
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
                f"The model already contains a {type(part).__module__}.{type(part).__name__}, so "
                "gradients would be reduced twice. Wrap its .module instead."
            )
    for name, tensor in tensors.of_module(module):
        tensors.check_memory(name, tensor)
