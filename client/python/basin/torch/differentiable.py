# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""Gradients through an allreduce.

Each worker's result depends on the tensors of all workers, so the gradient of a worker's tensor is
the sum of the gradients of all results, scaled as the tensor was. The backward computes it in a
separate round, which all workers have to run.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch.autograd.function import once_differentiable

from basin.errors import Unsupported
from basin.spec import AVERAGES, Op, RoundSpec
from basin.worker import RoundInfo


class _Reduced(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        tensor: torch.Tensor,
        result: tuple[torch.Tensor],
        gradient_of: Callable[[torch.Tensor], torch.Tensor],
    ) -> torch.Tensor:
        ctx.gradient_of = gradient_of
        return result[0]  # In a tuple, so that autograd does not treat it as an input.

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        return ctx.gradient_of(gradient), None, None


def attach(
    tensor: torch.Tensor, result: torch.Tensor, gradient_of: Callable[[torch.Tensor], torch.Tensor]
) -> torch.Tensor:
    """Makes the result a function of the sent tensor: `gradient_of` computes the gradient of the
    tensor from the gradient of the result."""
    attached: torch.Tensor = _Reduced.apply(tensor, (result,), gradient_of)
    return attached


def spec_of_gradient(name: str, spec: RoundSpec) -> RoundSpec:
    """The spec of the round that reduces the gradients of a round of `spec`. For a weighted average
    it is a sum, which is multiplied by `factor_of_gradient` afterwards, because the weights are
    those of the other round."""
    if spec.op not in (Op.SUM, *AVERAGES):
        raise Unsupported(
            f"The backward reached the {spec.op.name} of {name} over all workers, which has no "
            "gradient here. Use a sum or an average, or give allreduce() a tensor.detach()."
        )
    if spec.op == Op.WEIGHTED_AVERAGE:
        return RoundSpec(Op.SUM, spec.prescale, spec.postscale, spec.predivide)
    return RoundSpec(
        spec.op,
        spec.prescale,
        spec.postscale,
        spec.predivide,
        divide_by_present=spec.divide_by_present,
    )


def factor_of_gradient(info: RoundInfo, worker: str) -> float:
    """The factor of the reduced gradients for this worker, after a round with the reply `info`. It
    is that of the worker's tensor in the result: its weight, or 1 if the tensor is a sum already,
    as that of a worker with several trainers is; 0 if the round did not count it."""
    if info.spec.op != Op.WEIGHTED_AVERAGE:
        return 1.0
    if worker not in info.contributors:
        return 0.0
    place = info.contributors.index(worker)
    weight = info.contributor_weights[place]
    is_sum = info.spec.contributes_sum or info.contributor_ranks[place] > 1
    return (min(1, weight) if is_sum else weight) / max(1, info.divisor)
