# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""DistributedTrainer, DistributedOptimizer and broadcast_parameters() with Horovod's arguments and
arithmetic: gradients are summed, and the update divides them by the number of workers."""

import warnings
from collections.abc import Mapping
from typing import Any

import basin.mxnet
from basin.horovod import job
from basin.horovod.compression import wire_dtype_of
from basin.horovod.job import global_process_set
from basin.horovod.mxnet import reducing
from basin.horovod.mxnet.compression import Compression
from basin.horovod.ops import Average, Sum
from basin.mxnet.nd import gluon, mxnet


class DistributedTrainer(basin.mxnet.DistributedTrainer):
    """As gluon.Trainer, whose gradients are summed over all workers and averaged in the update.

    optimizer:  also a DistributedOptimizer, whose own optimizer is then taken
    compression: Compression.none or Compression.fp16, which sends float16
    gradient_predivide_factor:
                divides gradients before the sum, and multiplies them in the update
    prefix:     the name of the trainer, which all workers give it
    num_groups: not used: the gradients of a step are one round
    process_set: only global_process_set

    allreduce_grads() leaves the sum, divided by gradient_predivide_factor, in the gradients. The
    number of workers in the update is that of the workers in the sum. What basin.mxnet has beyond
    Horovod holds here as well.
    """

    def __init__(
        self,
        params: Any,
        optimizer: Any,
        optimizer_params: Any = None,
        compression: Any = Compression.none,
        gradient_predivide_factor: float = 1.0,
        prefix: str | None = None,
        num_groups: int = 0,
        process_set: Any = global_process_set,
    ) -> None:
        call = "DistributedTrainer()"
        job.check_global(call, process_set)
        if isinstance(optimizer, DistributedOptimizer):
            optimizer = optimizer._optimizer
            warnings.warn(
                f"{call} was given a DistributedOptimizer, and takes the optimizer in it: the "
                "trainer reduces gradients itself. Give it the optimizer.",
                stacklevel=2,
            )
        if isinstance(params, (list, tuple)):
            params = sorted(params, key=lambda each: str(each.name))
        super().__init__(
            job.current(call),
            params,
            optimizer,
            optimizer_params,
            op=Sum,
            name=f"{prefix or ''}gradients",
            wire_dtype=wire_dtype_of(call, compression),
            check_optimizer=False,  # Horovod does not.
            prescale_factor=1.0 / gradient_predivide_factor,
        )
        self._factor = gradient_predivide_factor

    def _update(self, ignore_stale_grad: bool = False) -> None:
        # Only the facts of the round say how many workers are in the sum.
        workers = 1 if self._info is None else self._info.trainers
        rescale = self._optimizer.rescale_grad
        self._optimizer.rescale_grad = rescale * (self._factor / workers)
        try:
            super()._update(ignore_stale_grad)
        finally:
            self._optimizer.rescale_grad = rescale


class DistributedOptimizer(mxnet.optimizer.Optimizer):
    """An optimizer that sums each gradient over all workers before it updates its parameter with
    the average, for modules and trainers of MXNet without a kvstore. When workers have left, the
    average is over those that are there.

    optimizer:  of MXNet
    gradient_predivide_factor:
                divides gradients before the sum, and multiplies them in the update
    num_groups: not used
    process_set: only global_process_set
    """

    def __init__(
        self,
        optimizer: Any,
        gradient_predivide_factor: float = 1.0,
        num_groups: int = 0,
        process_set: Any = global_process_set,
    ) -> None:
        call = "DistributedOptimizer()"
        job.check_global(call, process_set)
        self._optimizer = optimizer
        self._workers = job.size()
        self._optimizer.rescale_grad *= gradient_predivide_factor / self._workers
        self._factor = gradient_predivide_factor

    def __getattr__(self, name: str) -> Any:
        if name == "_optimizer":  # A copy is being made, and has none yet.
            raise AttributeError(name)
        return getattr(self._optimizer, name)

    # A trainer writes these two.

    @property
    def rescale_grad(self) -> float:
        """That of the optimizer."""
        return float(self._optimizer.rescale_grad)

    @rescale_grad.setter
    def rescale_grad(self, rescale_grad: float) -> None:
        self._optimizer.rescale_grad = rescale_grad

    @property
    def param_dict(self) -> Any:
        """That of the optimizer."""
        return self._optimizer.param_dict

    @param_dict.setter
    def param_dict(self, param_dict: Any) -> None:
        self._optimizer.param_dict = param_dict

    def create_state(self, index: Any, weight: Any) -> Any:
        """That of the optimizer."""
        return self._optimizer.create_state(index, weight)

    def create_state_multi_precision(self, index: Any, weight: Any) -> Any:
        """That of the optimizer."""
        return self._optimizer.create_state_multi_precision(index, weight)

    def update(self, index: Any, weight: Any, grad: Any, state: Any) -> None:
        """Sums the gradients in place, and updates."""
        self._reduce(grad)
        self._optimizer.update(index, weight, grad, state)

    def update_multi_precision(self, index: Any, weight: Any, grad: Any, state: Any) -> None:
        """Sums the gradients in place, and updates."""
        self._reduce(grad)
        self._optimizer.update_multi_precision(index, weight, grad, state)

    def set_learning_rate(self, lr: float) -> None:
        """That of the optimizer."""
        self._optimizer.set_learning_rate(lr)

    def set_lr_mult(self, args_lr_mult: Any) -> None:
        """That of the optimizer."""
        self._optimizer.set_lr_mult(args_lr_mult)

    def set_wd_mult(self, args_wd_mult: Any) -> None:
        """That of the optimizer."""
        self._optimizer.set_wd_mult(args_wd_mult)

    def _reduce(self, grad: Any) -> None:
        gradients = list(grad) if isinstance(grad, (list, tuple)) else [grad]
        # The update divides by the workers of the start, so this is the average times their number:
        # the sum, as long as all of them are in it.
        reducing.grouped_allreduce_(
            gradients,
            op=Average,
            prescale_factor=1.0 / self._factor,
            postscale_factor=float(self._workers),
        )


def broadcast_parameters(
    params: Any,
    root_rank: int = 0,
    prefix: str | None = None,
    process_set: Any = global_process_set,
) -> None:
    """Gives the parameters of all workers the root's values, bit for bit, also those whose
    initialization is deferred; see basin.mxnet.broadcast_parameters().

    params: net.collect_params(), or a dict of names and parameters or arrays
    prefix: another one for other parameters of the same names

    Raises ValueError for anything else.
    """
    call = "broadcast_parameters()"
    job.check_global(call, process_set)
    if not isinstance(params, (Mapping, gluon.ParameterDict)):
        raise ValueError(
            f"{call} was given {type(params).__name__} as params. Use net.collect_params(), or a "
            "dict of names and parameters."
        )
    basin.mxnet.broadcast_parameters(
        job.current(call), params, root_rank, name=f"{prefix or ''}parameters"
    )
