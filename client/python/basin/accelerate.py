# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""Basin for Accelerate: its Accelerator, with the workers of a Basin job as its processes.

accelerator = basin.accelerate.Accelerator()
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)

Accelerate decides by the variables of torchrun or mpirun whether a program is distributed. It sees
none of them here, so it opens no process group, and this class does what one would be for.
"""

import contextlib
import os
from collections.abc import Iterator
from typing import Any

import torch

import basin.torch
from basin.errors import Unsupported
from basin.spec import Op
from basin.torch import context

try:
    import accelerate
    from accelerate.state import AcceleratorState, PartialState
    from accelerate.utils import DistributedType
    from accelerate.utils.operations import recursively_apply
except ModuleNotFoundError as missing:
    raise ModuleNotFoundError(
        f"basin.accelerate needs Accelerate, but there is no module {missing.name}. Install it: "
        "pip install 'accelerate==1.15.*'",
        name=missing.name,
    ) from missing

# By these Accelerate knows that a launcher has started several processes.
_OF_LAUNCHERS = (
    "LOCAL_RANK",
    "RANK",
    "WORLD_SIZE",
    "PMI_SIZE",
    "OMPI_COMM_WORLD_SIZE",
    "MV2_COMM_WORLD_SIZE",
)
_OPS = {"sum": Op.SUM, "mean": Op.AVERAGE, "max": Op.MAX}


class Accelerator(accelerate.Accelerator):
    """As accelerate.Accelerator, whose arguments it takes. Calls basin.torch.init(), unless the
    script has done so; the script calls basin.torch.shutdown() at its end.

    prepare() makes optimizers reduce the gradients of all workers, gives models the parameters of
    rank 0, and divides the batches of data loaders among the workers. accumulate() and no_sync()
    keep gradients local; clip_grad_norm_() sees those of all. gather(), gather_for_metrics(),
    reduce(), pad_across_processes() and wait_for_everyone() are calls of all workers. Each worker
    has the order of the samples that rank 0 has, as with use_seedable_sampler=True.

    Raises Unsupported where Accelerate has begun to use a process group of torch.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        if not basin.torch.is_initialized():
            basin.torch.init()
        self._shared: list[torch.nn.Module] = []
        with _without_launcher():
            super().__init__(*args, **options)
        self._check()
        config = self.dataloader_config
        config.dispatch_batches = False
        config.use_seedable_sampler = True
        self._place()

    def _check(self) -> None:
        kind = self.state.distributed_type
        if kind != DistributedType.NO:
            raise Unsupported(
                f"Accelerate has chosen {kind.value} and its own communication, so gradients would "
                "be reduced twice. Make the Accelerator of Basin before anything else asks "
                "Accelerate for its state, as TrainingArguments do; or start the script with "
                "basin-run without --torchrun-variables. Leave plugins for DeepSpeed and FSDP away."
            )
        if self.dispatch_batches:
            raise Unsupported(
                "dispatch_batches=True has rank 0 read the data for all, which Basin does not "
                "send. Leave it away: each worker reads its own part."
            )

    # ---- who this worker is

    def _place(self) -> Any:
        """The state of Accelerate, with the present rank and size in it: they change when workers
        come or go."""
        partial = PartialState()
        if basin.torch.is_initialized():
            place = {
                "num_processes": basin.torch.size(),
                "process_index": basin.torch.rank(),
                "local_process_index": basin.torch.local_rank(),
            }
            # Each has a copy.
            for state in (partial, AcceleratorState()):
                for name, value in place.items():
                    setattr(state, name, value)
        return partial

    @property
    def num_processes(self) -> int:
        return int(self._place().num_processes)

    @property
    def process_index(self) -> int:
        return int(self._place().process_index)

    @property
    def is_main_process(self) -> bool:
        return bool(self._place().is_main_process)

    @property
    def is_last_process(self) -> bool:
        return bool(self._place().is_last_process)

    # ---- what is prepared

    def prepare(self, *args: Any, **options: Any) -> Any:
        """As accelerate.Accelerator.prepare(). All workers make this call."""
        prepared = super().prepare(*args, **options)
        self._reduce_gradients()
        self._share_models()
        return prepared

    def _reduce_gradients(self) -> None:
        """Makes optimizers that were prepared with their models reduce gradients."""
        new = [each for each in self._optimizers if not _reduces(each.optimizer)]
        models = self._models
        named = [
            (name if len(models) == 1 else f"{number}.{name}", parameter)
            for number, model in enumerate(models)
            for name, parameter in model.named_parameters()
        ]
        for optimizer in new:
            basin.torch.DistributedOptimizer(optimizer.optimizer, named or None)

    def _share_models(self) -> None:
        """Gives models that were prepared since the last call the parameters of rank 0."""
        for model in self._models:
            if not any(model is each for each in self._shared):
                basin.torch.broadcast_parameters(model)
                self._shared.append(model)

    def prepare_data_loader(self, data_loader: Any, *args: Any, **options: Any) -> Any:
        config = self.dataloader_config
        if config.data_seed is None:
            config.data_seed = basin.torch.broadcast_object(
                torch.initial_seed() % 2**31, name="accelerate"
            )
        return super().prepare_data_loader(data_loader, *args, **options)

    @contextlib.contextmanager
    def no_sync(self, model: Any = None) -> Iterator[None]:
        """Keeps the gradients of backwards within it local, of all models."""
        with contextlib.ExitStack() as stack:
            for optimizer in self._optimizers:
                stack.enter_context(optimizer.optimizer.no_sync())
            yield

    def free_memory(self, *objects: Any) -> Any:
        """Lets go of what was prepared. Its optimizers step again when they are prepared again."""
        for optimizer in self._optimizers:
            lane = getattr(optimizer.optimizer, "basin_lane", None)
            if basin.torch.is_initialized() and lane in context.current().lanes:
                context.current().close_lane(lane)
        self._shared.clear()
        return super().free_memory(*objects)

    # ---- calls of all workers

    def gather(self, tensor: Any) -> Any:
        """The tensors of all workers, one after the other, by rank. Their first sizes may differ;
        the other sizes are equal, see pad_across_processes()."""
        return recursively_apply(_gather, tensor, error_on_other_type=True)

    def gather_for_metrics(self, input_data: Any, use_gather_object: bool = False) -> Any:
        """As gather(), without what was added to the last batch to make its parts equal."""
        if use_gather_object or not _has_only_tensors(input_data):
            raise Unsupported(
                "gather_for_metrics() takes tensors. For objects use "
                "basin.torch.allgather_object(), which returns those of all workers by rank."
            )
        self._place()
        return super().gather_for_metrics(input_data)

    def reduce(self, tensor: Any, reduction: str = "sum", scale: float = 1.0) -> Any:
        """The sum, mean or max of the tensors of all workers, times the scale. With "none" it is
        what this worker has."""
        if reduction != "none" and reduction not in _OPS:
            raise Unsupported(f"reduce() has no {reduction}. Use one of: none, {', '.join(_OPS)}.")

        def one(mine: torch.Tensor) -> torch.Tensor:
            if reduction == "none":
                return mine * scale
            return basin.torch.allreduce(mine.detach(), op=_OPS[reduction]) * scale

        return recursively_apply(one, tensor, error_on_other_type=True)

    def pad_across_processes(
        self, tensor: Any, dim: int = 0, pad_index: int = 0, pad_first: bool = False
    ) -> Any:
        """Makes the tensors as long in this dimension as the longest of all workers."""

        def one(mine: torch.Tensor) -> torch.Tensor:
            if not -mine.dim() <= dim < mine.dim():
                return mine
            axis = dim % mine.dim()
            longest = int(basin.torch.allreduce(torch.tensor(mine.shape[axis]), op=Op.MAX))
            missing = longest - mine.shape[axis]
            sides = [0, 0] * (mine.dim() - 1 - axis) + ([missing, 0] if pad_first else [0, missing])
            return torch.nn.functional.pad(mine, sides, value=pad_index)

        return recursively_apply(one, tensor, error_on_other_type=True)

    def wait_for_everyone(self) -> None:
        """Returns when all workers have called it."""
        basin.torch.barrier("accelerate")


@contextlib.contextmanager
def _without_launcher() -> Iterator[None]:
    """Accelerate looks for variables of launchers, and finds none."""
    hidden = {name: os.environ.pop(name) for name in _OF_LAUNCHERS if name in os.environ}
    try:
        yield
    finally:
        os.environ.update(hidden)


def _reduces(optimizer: Any) -> bool:
    """Whether it reduces gradients already, and was not let go of."""
    lane = getattr(optimizer, "basin_lane", None)
    return lane is not None and not lane.usage.closed


def _gather(tensor: torch.Tensor) -> torch.Tensor:
    mine = tensor.detach().cpu()
    given = basin.torch.allgather_object(mine[None] if mine.dim() == 0 else mine, name="accelerate")
    return torch.cat(given).to(tensor.device)


def _has_only_tensors(data: Any) -> bool:
    try:
        recursively_apply(lambda tensor: tensor, data, error_on_other_type=True)
    except TypeError:
        return False
    return True
