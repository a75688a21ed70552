# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""A communication hook for scripts that keep torch's DistributedDataParallel.

The model is in a process group of only this process, so that torch itself averages nothing:

    state = basin.torch.DDPState(model)
    model.register_comm_hook(state, basin.torch.ddp_comm_hook)

The hook sends the gradients of each bucket unchanged and returns at once. The result replaces them
when backward() returns, after torch has written the local ones. It is not returned through the
future, because a failed future loses its error, and because torch ignores the hook's result for a
parameter that it considers unused. Gradients are named by their parameters, because buckets change
after the first backward.
"""

from typing import TYPE_CHECKING

import torch
from torch import distributed

from basin.errors import InvalidArgument, Unsupported
from basin.spec import Op, ReductionOptions
from basin.torch import tensors
from basin.torch.collectives import broadcast_parameters
from basin.torch.context import member
from basin.torch.lane import LaneOwner
from basin.torch.start import start_lane

if TYPE_CHECKING:
    from typing_extensions import Unpack


class DDPState(LaneOwner):
    """The state of ddp_comm_hook(). All workers start with the parameters and buffers of rank 0.
    After each backward() that reduces, all have the buffers of rank 0, unless the model has
    broadcast_buffers=False.

    model:      a torch.nn.parallel.DistributedDataParallel in a process group of one process
    op:         basin.Average, basin.Sum or basin.WeightedAverage
    wire_dtype: None, torch.bfloat16 or torch.float16: the dtype in which float32 gradients are sent
    batch_size: samples of this worker in a step, only for the line that is written at the start
    same_parameters, options:
                as for DistributedOptimizer

    Raises Unsupported, with an alternative, if Basin cannot reduce the model.
    """

    def __init__(
        self,
        model: torch.nn.parallel.DistributedDataParallel,
        *,
        op: Op = Op.AVERAGE,
        wire_dtype: torch.dtype | None = None,
        batch_size: int | None = None,
        same_parameters: bool = True,
        **options: "Unpack[ReductionOptions]",
    ) -> None:
        member("DDPState()")
        if not isinstance(model, torch.nn.parallel.DistributedDataParallel):
            raise InvalidArgument(
                f"DDPState was given a {type(model).__name__}. Give it the "
                "torch.nn.parallel.DistributedDataParallel on which the hook is registered."
            )
        size = distributed.get_world_size(model.process_group)
        if size != 1:
            raise Unsupported(
                f"The model is in a process group of {size} processes, and the hook does not "
                "reduce within it. Call init_process_group(rank=0, world_size=1) in each worker, "
                "or use basin.torch.DistributedDataParallel without a process group."
            )
        if model.mixed_precision is not None:
            raise Unsupported(
                "The model has mixed_precision, whose buckets do not hold the gradients of its "
                "parameters. Use torch.autocast, and wire_dtype to send fewer bytes."
            )
        ignored = set(model.parameters_to_ignore)
        broadcast_parameters(model.module)
        self._lane = start_lane(
            {
                parameter: name
                for name, parameter in tensors.parameters_of(model.module)
                if name not in ignored
            },
            op,
            wire_dtype,
            batch_size,
            call="DDPState()",
            options=options,
            same_parameters=same_parameters,
            owner="the DDPState",
            own_hooks=False,
            module=model.module,
            send_buffers=model.broadcast_buffers,
        )

    def push(self, parameters: list[torch.Tensor]) -> None:
        """Sends the gradients of these parameters. Errors are raised when backward() returns."""
        self._lane.usage.check_takes_part("backward()")
        self._lane.push_ready(parameters)


def ddp_comm_hook(
    state: DDPState, bucket: distributed.GradBucket
) -> torch.futures.Future[torch.Tensor]:
    """For DistributedDataParallel.register_comm_hook(), with a DDPState."""
    if not isinstance(state, DDPState):
        raise InvalidArgument(
            f"ddp_comm_hook was registered with a state of type {type(state).__name__}. Use "
            "model.register_comm_hook(basin.torch.DDPState(model), basin.torch.ddp_comm_hook)."
        )
    state.push(bucket.parameters())
    unchanged: torch.futures.Future[torch.Tensor] = torch.futures.Future()
    unchanged.set_result(bucket.buffer())
    return unchanged
