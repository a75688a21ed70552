# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""Clipping by the norm that the reply of a round has told already."""

import math
from collections.abc import Iterable, Iterator
from contextlib import ExitStack

import torch

from basin.arguments import number_of
from basin.errors import FailedPrecondition, InvalidArgument, Unsupported
from basin.torch.context import current
from basin.torch.lane import GradientLane, parameters_of

Owner = torch.optim.Optimizer | torch.nn.Module | torch.Tensor | Iterable[torch.Tensor]


def clip_grad_norm_(
    parameters: Owner,
    max_norm: float | torch.Tensor,
    norm_type: float = 2.0,
    *,
    error_if_nonfinite: bool = False,
) -> torch.Tensor:
    """As torch.nn.utils.clip_grad_norm_() with the 2-norm, without a pass over the gradients to
    find it: scales the gradients so that their norm is at most `max_norm`, and returns the norm
    that they had, a float64 scalar. It is that of the reduced gradients, so all workers clip alike,
    and nothing is sent.

    parameters: an optimizer, a module, or parameters; whose gradients Basin reduces
    norm_type:  2, as torch has it; a reply tells no other norm
    error_if_nonfinite:
                raise FloatingPointError instead of scaling by a norm that is not finite

    Call it between backward() and step(), after unscale_() of a gradient scaler. Raises
    FailedPrecondition when a .grad was not reduced, which sync_gradients() does, or is not the
    result of one round any more: another backward was added, or somebody has written to it.
    torch.nn.utils.clip_grad_norm_() clips those. What is written through .grad.data is seen in a
    few elements only: write to .grad.
    """
    if number_of(norm_type) != 2.0:
        raise Unsupported(
            f"norm_type cannot be {norm_type!r}: the reply of a round tells the 2-norm alone. Use "
            "torch.nn.utils.clip_grad_norm_() for it, after backward(), or sync_gradients() of a "
            "short window: .grad has the same bits on all workers then."
        )
    most = number_of(max_norm)
    if not most >= 0:
        raise InvalidArgument(f"max_norm cannot be {max_norm!r}. Use a number from 0 on.")
    gradients = [
        (parameter, lane, squared_norm)
        for parameter in _list(parameters)
        if parameter.grad is not None
        for lane, squared_norm in [_known(parameter)]
    ]
    norm = math.sqrt(sum(squared_norm for *_, squared_norm in gradients))
    if error_if_nonfinite and not math.isfinite(norm):
        raise FloatingPointError(f"The norm of the gradients is {norm}, so they cannot be clipped.")
    factor = most / (norm + 1e-6)  # As torch does.
    if not factor >= 1.0 and gradients:
        with ExitStack() as scaling:
            for lane in {lane for _, lane, _ in gradients}:
                scaling.enter_context(lane.scaling([p for p, *_ in gradients], factor))
            torch._foreach_mul_([p.grad for p, *_ in gradients if p.grad is not None], factor)
    return torch.tensor(norm, dtype=torch.float64)


def _list(parameters: Owner) -> Iterator[torch.Tensor]:
    if isinstance(parameters, torch.optim.Optimizer):
        yield from parameters_of(parameters)
    elif isinstance(parameters, torch.nn.Module):
        yield from parameters.parameters()
    elif isinstance(parameters, torch.Tensor):
        yield parameters
    elif not isinstance(parameters, Iterable):
        raise InvalidArgument(
            f"clip_grad_norm_() was given a {type(parameters).__name__}. Give it the optimizer, or "
            "model.parameters()."
        )
    else:
        for parameter in parameters:
            if not isinstance(parameter, torch.Tensor):
                raise InvalidArgument(
                    f"clip_grad_norm_() was given a {type(parameter).__name__} among the "
                    "parameters. Give it the optimizer, or model.parameters(), without names."
                )
            yield parameter


def _known(parameter: torch.Tensor) -> tuple[GradientLane, float]:
    lane = next((lane for lane in current().lanes if lane.knows(parameter)), None)
    if lane is None:
        raise InvalidArgument(
            f"A parameter of shape {tuple(parameter.shape)} is not reduced by Basin, so its norm "
            "is not known. Use torch.nn.utils.clip_grad_norm_()."
        )
    if (owner := lane.owner_of_local(parameter)) is not None:
        raise FailedPrecondition(
            f"The gradient of parameter {lane.name_of(parameter)} has not been reduced: it is this "
            f"worker's own, and workers that clip their own part. Call sync_gradients() of {owner} "
            "first."
        )
    squared_norm = lane.delivered.squared_norm(parameter)
    if squared_norm is None:
        raise FailedPrecondition(
            f"The gradient of parameter {lane.name_of(parameter)} is not the result of one round: "
            "a second backward was added to it, or somebody has written to it since (unscale_() of "
            "a gradient scaler may). Clip right after the one backward that reduces, or use "
            "torch.nn.utils.clip_grad_norm_(), which makes a pass over the gradients."
        )
    return lane, squared_norm
