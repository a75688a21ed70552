# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""Clipping by the norm in the reply of a round."""

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
    """Does the same as torch.nn.utils.clip_grad_norm_() with the 2-norm, without a pass over the
    gradients to compute the norm: scales the gradients so that their norm is at most `max_norm`,
    and returns the norm before scaling, a float64 scalar. This is the norm of the reduced
    gradients, so all workers clip alike without communication.

    parameters: an optimizer, a module, or parameters, whose gradients Basin reduces
    norm_type:  2, as in torch; a reply has no other norm
    error_if_nonfinite:
                raise FloatingPointError instead of scaling by a norm that is not finite

    Call it between backward() and step(), after unscale_() of a gradient scaler. Raises
    FailedPrecondition if a .grad has not been reduced (call sync_gradients()), or is no longer the
    result of one round because another backward was added or it was written to.
    torch.nn.utils.clip_grad_norm_() clips such gradients. Writes through .grad.data are detected
    only in a few elements: write to .grad instead.
    """
    if number_of(norm_type) != 2.0:
        raise Unsupported(
            f"norm_type cannot be {norm_type!r}: the reply of a round has only the 2-norm. Use "
            "torch.nn.utils.clip_grad_norm_() for it, after backward(), or after sync_gradients() "
            "of a short window: then .grad has the same bits on all workers."
        )
    most = number_of(max_norm)
    if not most >= 0:
        raise InvalidArgument(f"max_norm cannot be {max_norm!r}. Use a number from 0.")
    gradients = [
        (parameter, lane, squared_norm)
        for parameter in _list(parameters)
        if parameter.grad is not None
        for lane, squared_norm in [_known(parameter)]
    ]
    norm = math.sqrt(sum(squared_norm for *_, squared_norm in gradients))
    if error_if_nonfinite and not math.isfinite(norm):
        raise FloatingPointError(f"The norm of the gradients is {norm}, so they cannot be clipped.")
    for _, lane, _ in gradients:
        lane.changes_results = True
    factor = most / (norm + 1e-6)  # Torch does the same.
    if not factor >= 1.0 and gradients:
        with ExitStack() as scaling:
            for lane in {lane for _, lane, _ in gradients}:
                scaling.enter_context(lane.scaling([p for p, *_ in gradients], factor))
            torch._foreach_mul_([p.grad for p, *_ in gradients if p.grad is not None], factor)
    return torch.tensor(norm, dtype=torch.float64, device="cpu")


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
            "is unknown. Use torch.nn.utils.clip_grad_norm_()."
        )
    name = lane.store.name_of(parameter)
    if (owner := lane.owner_of_local(parameter)) is not None:
        raise FailedPrecondition(
            f"The gradient of parameter {name} has not been reduced: it is local, and workers that "
            f"clip local gradients diverge. Call sync_gradients() of {owner} first."
        )
    squared_norm = lane.store.squared_norm(parameter)
    if squared_norm is None:
        raise FailedPrecondition(
            f"The gradient of parameter {name} is not the result of one round: a second backward "
            "was added to it, or it was written to (unscale_() of a gradient scaler may do so). "
            "Clip right after the one backward that reduces, or use "
            "torch.nn.utils.clip_grad_norm_(), which computes the norm."
        )
    return lane, squared_norm
