# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""Basin for Lightning: a strategy for the Trainer.

trainer = lightning.Trainer(strategy=basin.lightning.BasinStrategy(), ...)

Each process of basin-run is one worker with one device. torch.distributed is not used.
"""

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch

import basin.torch
from basin.errors import FailedPrecondition, InvalidArgument, Unsupported
from basin.spec import Op, ReductionOptions
from basin.torch import context

try:
    from lightning.fabric.plugins.environments import ClusterEnvironment
    from lightning.pytorch.strategies import ParallelStrategy
    from lightning.pytorch.trainer.states import TrainerFn
    from lightning.pytorch.utilities.rank_zero import rank_zero_only
    from lightning_utilities.core.rank_zero import rank_zero_only as utilities_rank_zero_only
except ModuleNotFoundError as missing:
    raise ModuleNotFoundError(
        f"basin.lightning needs Lightning, but there is no module {missing.name}. Install it: "
        "pip install 'lightning==2.6.*'",
        name=missing.name,
    ) from missing

if TYPE_CHECKING:
    from typing_extensions import Unpack

_OPS = {"mean": Op.AVERAGE, "avg": Op.AVERAGE, "sum": Op.SUM, "max": Op.MAX, "min": Op.MIN}


class BasinStrategy(ParallelStrategy):
    """Trains with the workers of a Basin job, as DDPStrategy does with those of a process group:
    the model is wrapped into basin.torch.DistributedDataParallel, and the Trainer divides the data
    with a DistributedSampler.

    The constructor calls basin.torch.init(), unless the script has done so. Call
    basin.torch.shutdown() when the script needs the Trainer no longer.

    op:                basin.Average, basin.Sum or basin.WeightedAverage
    wire_dtype:        None, torch.bfloat16 or torch.float16: the dtype in which float32 gradients
                       are sent
    broadcast_buffers: all workers have the buffers of rank 0 after each step
    checkpoint_io, precision_plugin:
                       as for other strategies of Lightning
    options:           how gradients are reduced, as for basin.torch.DistributedOptimizer

    Raises Unsupported in a worker that joins a job which trains already: the Trainer counts epochs
    and batches itself, and cannot begin in the middle. Start the job again from a checkpoint.
    """

    strategy_name = "basin"
    model: Any  # The base has it.

    def __init__(
        self,
        *,
        op: Op = Op.AVERAGE,
        wire_dtype: torch.dtype | None = None,
        broadcast_buffers: bool = True,
        checkpoint_io: Any = None,
        precision_plugin: Any = None,
        **options: "Unpack[ReductionOptions]",
    ) -> None:
        if not basin.torch.is_initialized():
            basin.torch.init()
        context.check_begins(
            "the Trainer of Lightning counts epochs and batches itself, and cannot begin in the "
            "middle",
            "ckpt_path",
        )
        super().__init__(
            cluster_environment=_Environment(),
            checkpoint_io=checkpoint_io,
            precision_plugin=precision_plugin,
        )
        self._reduction: dict[str, Any] = {
            "op": op,
            "wire_dtype": wire_dtype,
            "broadcast_buffers": broadcast_buffers,
            **options,
        }

    # ---- who this worker is

    @property
    def is_distributed(self) -> bool:
        """True: the Trainer gives its loaders a DistributedSampler."""
        return True

    @property
    def root_device(self) -> torch.device:
        """The only device of this worker."""
        devices = self.parallel_devices or [torch.device("cpu")]
        if len(devices) == 1:
            return devices[0]
        index = basin.torch.local_rank()
        if index >= len(devices):
            raise InvalidArgument(
                f"The Trainer has {len(devices)} devices, and this worker is number {index} on its "
                "machine. Give the Trainer devices=1, or as many as there are workers on a machine."
            )
        return devices[index]

    @property
    def distributed_sampler_kwargs(self) -> dict[str, Any]:
        """The present number of workers, and the rank of this one. Loaders keep what they got until
        the Trainer makes them again (reload_dataloaders_every_n_epochs)."""
        return {"num_replicas": self.world_size, "rank": self.global_rank}

    def set_world_ranks(self) -> None:
        """Tells Lightning's functions for rank 0 which rank this is. It changes when a worker is
        lost."""
        rank_zero_only.rank = utilities_rank_zero_only.rank = self.global_rank

    def on_train_batch_start(self, batch: Any, batch_idx: int) -> None:
        self.set_world_ranks()

    # ---- the model

    def model_to_device(self) -> None:
        assert self.model is not None
        self.model.to(self.root_device)

    def setup(self, trainer: Any) -> None:
        super().setup(trainer)
        if trainer.state.fn != TrainerFn.FITTING:
            basin.torch.broadcast_parameters(self.lightning_module)
        _reduce_metrics(self.lightning_module)

    def _setup_model(self, model: torch.nn.Module) -> torch.nn.Module:
        assert self.lightning_module is not None
        if self.lightning_module._trainer.state.fn != TrainerFn.FITTING:
            return model
        return basin.torch.DistributedDataParallel(model, **self._reduction)

    @contextlib.contextmanager
    def block_backward_sync(self) -> Iterator[None]:
        """Keeps the gradients of micro-batches local."""
        if isinstance(self.model, basin.torch.DistributedDataParallel):
            with self.model.no_sync():
                yield
        else:
            yield

    def teardown(self) -> None:
        model = self.model
        if isinstance(model, basin.torch.DistributedDataParallel):
            self.model = self.lightning_module
            if basin.torch.is_initialized():
                model.close()
        super().teardown()

    # ---- calls of all workers

    def reduce(self, tensor: Any, group: Any = None, reduce_op: Any = "mean") -> Any:
        """The mean of a tensor over the workers, or what reduce_op names: "sum", "max", "min". All
        workers call it. Anything but a tensor is returned as it is."""
        if not isinstance(tensor, torch.Tensor):
            return tensor
        name = str(getattr(reduce_op, "name", reduce_op)).rpartition(".")[2].lower()
        if name not in _OPS:
            raise Unsupported(
                f"BasinStrategy cannot reduce with {reduce_op}. Use one of: {', '.join(_OPS)}."
            )
        op, mine = _OPS[name], tensor.detach()
        if not mine.is_floating_point():
            # A mean of whole numbers is none.
            mine = mine.to(torch.get_default_dtype() if op == Op.AVERAGE else torch.int64)
        return basin.torch.allreduce(mine, op=op)

    def reduce_boolean_decision(self, decision: bool, all: bool = True) -> bool:
        """Whether all workers have decided so, or with all=False any of them."""
        mine = torch.tensor(int(decision))
        return bool(basin.torch.allreduce(mine, op=Op.MIN if all else Op.MAX))

    def barrier(self, name: str | None = None) -> None:
        if basin.torch.is_initialized():
            basin.torch.barrier("lightning")

    def broadcast(self, obj: Any, src: int = 0) -> Any:
        """The object of the worker with rank `src`. All workers make this call."""
        return basin.torch.broadcast_object(obj, src, name="lightning")

    def all_gather(
        self, tensor: torch.Tensor, group: Any = None, sync_grads: bool = False
    ) -> torch.Tensor:
        """The tensors of all workers, of equal shapes, stacked by rank."""
        if sync_grads:
            raise Unsupported(
                "all_gather(sync_grads=True) has no backward in Basin's strategy. Use "
                "basin.torch.allgather(), through which gradients flow."
            )
        return torch.stack(_gather(tensor))


class _Environment(ClusterEnvironment):
    """Ranks are those of Basin, and change when workers are lost."""

    @property
    def creates_processes_externally(self) -> bool:
        return True

    @property
    def main_address(self) -> str:
        raise FailedPrecondition(
            "A job of Basin has no main process that others connect to. Something asks for one, "
            "such as init_process_group(): use BasinStrategy without torch.distributed."
        )

    @property
    def main_port(self) -> int:
        raise FailedPrecondition("A job of Basin has no main process, and so no main port.")

    @staticmethod
    def detect() -> bool:
        return basin.torch.is_initialized()

    def world_size(self) -> int:
        return _place()[1]

    def set_world_size(self, size: int) -> None:
        """Basin knows it."""

    def global_rank(self) -> int:
        return _place()[0]

    def set_global_rank(self, rank: int) -> None:
        """Basin knows it."""

    def local_rank(self) -> int:
        return basin.torch.local_rank()

    def node_rank(self) -> int:
        return 0

    def teardown(self) -> None:
        """Nothing: the script may go on with another call of the Trainer."""


def _place() -> tuple[int, int]:
    """Rank and size; after shutdown() this process is alone."""
    if not basin.torch.is_initialized():
        return 0, 1
    return basin.torch.rank(), basin.torch.size()


def _gather(tensor: torch.Tensor, group: Any = None) -> list[torch.Tensor]:
    """The tensors of all workers, by rank. Their shapes may differ."""
    given = basin.torch.allgather_object(tensor.detach().cpu(), name="lightning")
    return [each.to(tensor.device) for each in given]


def _reduce_metrics(model: torch.nn.Module) -> None:
    """Lets the metrics of torchmetrics in the model count what all workers have seen."""
    from torchmetrics import Metric

    for module in model.modules():
        if isinstance(module, Metric):
            module.distributed_available_fn = basin.torch.is_initialized
            module.dist_sync_fn = _gather
