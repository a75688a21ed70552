# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""Learning rates that follow the batch of each step, for jobs whose size changes.

A rate is changed while its optimizer steps, and only then. So schedulers, states, checkpoints and
late joiners know the rate of the base alone, and no factor is ever multiplied onto another one.
"""

import math
from typing import Any

import torch

from basin.arguments import whole_number
from basin.errors import FailedPrecondition, InvalidArgument
from basin.torch.samples import lane_of
from basin.worker import RoundInfo


class _Scaling:
    """What the rules have in common. Each step of the optimizer is made with the learning rates
    that the script or its scheduler has set, times factor(). It counts the contributors or the
    samples of the round whose result the step applies, which are the same on all workers."""

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        *,
        base_batch: int | None = None,
        base_workers: int | None = None,
    ) -> None:
        self._call = f"{type(self).__name__}()"
        if (base_batch is None) == (base_workers is None):
            raise InvalidArgument(
                f"{self._call} was given base_batch={base_batch!r} and "
                f"base_workers={base_workers!r}. Give it one of them: that for which the learning "
                "rate was chosen."
            )
        for name, value in (("base_batch", base_batch), ("base_workers", base_workers)):
            if value is not None and not whole_number(value):
                raise InvalidArgument(
                    f"{self._call}: {name} cannot be {value!r}. Use a whole number from 1."
                )
        self._lane = lane_of(optimizer, self._call)
        if self._lane.store.optimizer not in (None, optimizer):
            raise InvalidArgument(
                f"{self._call} was given another optimizer of the same parameters than "
                "DistributedOptimizer(), whose step() applies the gradients. Give it that one."
            )
        if self._lane.scales_rates:
            raise FailedPrecondition(
                f"{self._call}: the learning rates of this optimizer are scaled already. Make one "
                "LinearScaling() or SqrtScaling() for each optimizer."
            )
        self._lane.scales_rates = True
        self._base_batch, self._base_workers = base_batch, base_workers
        # The rates that the script has set, by group, while the optimizer steps.
        self._base: list[Any] | None = None
        optimizer.register_step_pre_hook(torch.compiler.disable(self._before_step))
        optimizer.register_step_post_hook(torch.compiler.disable(self._after_step))

    def factor(self) -> float:
        """That of the step of the last round; 1 before the first one. Raises FailedPrecondition if
        its samples are not known."""
        info = self._lane.rounds.info
        return 1.0 if info is None else self._rule(self._times(info))

    def _rule(self, times: float) -> float:
        """The factor for so many times the base."""
        raise NotImplementedError

    def _times(self, info: RoundInfo) -> float:
        if self._base_workers is not None:
            return info.trainers / self._base_workers
        assert self._base_batch is not None
        samples = info.spec.counts.samples
        if samples is None:
            raise FailedPrecondition(
                f"{self._call} needs the samples of each step, but those of round {info.round} of "
                f"lane {self._lane.name} are not known. Call contribute(samples=...) before each "
                "backward(), or use an elastic sampler, or give it base_workers= in place of "
                "base_batch=."
            )
        return samples / self._base_batch

    def _before_step(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        self._restore(optimizer)  # If the step before this one has raised an error.
        factor = self.factor()
        if factor == 1.0:
            return
        self._base = [_copy(group["lr"]) for group in optimizer.param_groups]
        for group, base in zip(optimizer.param_groups, self._base, strict=True):
            _set(group, base * factor)

    def _after_step(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        self._restore(optimizer)

    def _restore(self, optimizer: torch.optim.Optimizer) -> None:
        base, self._base = self._base, None
        # A group that was added meanwhile has a rate of its own.
        for group, rate in zip(optimizer.param_groups, base or []):
            _set(group, rate)


def _copy(rate: Any) -> Any:
    return rate.clone() if isinstance(rate, torch.Tensor) else rate


def _set(group: dict[str, Any], rate: Any) -> None:
    if isinstance(group["lr"], torch.Tensor):  # Which a captured step reads.
        group["lr"].copy_(rate)
    else:
        group["lr"] = rate


class LinearScaling(_Scaling):
    """From now on each step of this optimizer is made with its learning rates times k, where the
    step has k times the samples of `base_batch`, or k times `base_workers` contributors:

        optimizer = basin.torch.DistributedOptimizer(optimizer, model.named_parameters())
        basin.torch.LinearScaling(optimizer, base_batch=256)

    It is the linear scaling rule of Goyal et al., "Accurate, Large Minibatch SGD: Training ImageNet
    in 1 Hour", 2017 (arXiv:1706.02677), section 2.1. They add a warm-up, which stays to your
    scheduler, and find that the rule ends at some batch, which depends on the training. Torch's SGD
    keeps the rate out of its momentum, so their correction of the momentum is not needed.

    optimizer:    the one that applies the gradients
    base_batch:   the samples of a step for which its rates were chosen
    base_workers: in place of base_batch: the number of workers for which they were chosen

    Outside of step(), group["lr"] is the rate of the base: schedulers, State and the comparison of
    optimizers are not concerned. All workers make it, once, late joiners too. It also scales the
    steps that an elastic sampler makes. Raises FailedPrecondition if the optimizer's gradients are
    not reduced or its rates are scaled already; a step does so if its samples are not known.
    """

    def _rule(self, times: float) -> float:
        return times


class SqrtScaling(_Scaling):
    """Like LinearScaling, with the square root of k, which keeps the variance of a step: see
    Krizhevsky, "One weird trick for parallelizing convolutional neural networks", 2014
    (arXiv:1404.5997), who derives it and then finds the linear rule better for his batches."""

    def _rule(self, times: float) -> float:
        return math.sqrt(times)
