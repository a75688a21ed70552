# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""Broadcasts of parameters, optimizers and objects with Horovod's arguments."""

from collections.abc import Callable, Mapping
from typing import Any

import torch

import basin.torch
from basin.horovod.torch import rows
from basin.horovod.torch.process_sets import AnySet, basins, global_process_set


def broadcast_parameters(
    params: Any, root_rank: int, process_set: AnySet = global_process_set
) -> None:
    """Gives all workers the root's values, bit for bit.

    params: a state_dict, or pairs of name and tensor such as model.named_parameters()

    Raises ValueError for anything else. A worker that joins later gets the values too.
    """
    if isinstance(params, Mapping):
        named = sorted(params.items())
    elif isinstance(params, (str, bytes, torch.Tensor)):
        raise ValueError(_no_parameters(params))
    else:
        try:
            named = [(name, value) for name, value in params]
        except (TypeError, ValueError) as error:
            raise ValueError(_no_parameters(params)) from error
    tensors = [(name, value) for name, value in named if isinstance(value, torch.Tensor)]
    if basins(process_set) is None:
        basin.torch.broadcast_parameters(tensors, root_rank)
        return
    for _, tensor in tensors:
        rows.broadcast_(tensor, root_rank, process_set=process_set)


def _no_parameters(params: Any) -> str:
    return (
        f"broadcast_parameters() was given a {type(params).__name__}. Give it "
        "model.state_dict(), or model.named_parameters()."
    )


def broadcast_optimizer_state(
    optimizer: torch.optim.Optimizer, root_rank: int, model: Any = None
) -> None:
    """Gives the optimizers of all workers the root's state and options. Raises ValueError for
    LBFGS, as Horovod does.

    model: not used
    """
    if isinstance(optimizer, torch.optim.LBFGS):
        raise ValueError(
            "broadcast_optimizer_state() was given LBFGS, whose state cannot be broadcast. Use "
            "another optimizer."
        )
    basin.torch.broadcast_optimizer_state(optimizer, root_rank)


def broadcast_object(
    obj: Any,
    root_rank: int = 0,
    name: str | None = None,
    process_set: AnySet = global_process_set,
) -> Any:
    """Returns the root's object. It is pickled, so use this only among workers that trust each
    other."""
    return basin.torch.broadcast_object(
        obj,
        rows.root_of(root_rank, process_set),
        name=name or "object",
        process_set=basins(process_set),
    )


def broadcast_object_fn(
    root_rank: int = 0, name: str | None = None, process_set: AnySet = global_process_set
) -> Callable[[Any], Any]:
    """Returns a function that broadcasts its argument."""
    return lambda obj: broadcast_object(obj, root_rank, name, process_set)


def allgather_object(
    obj: Any, name: str | None = None, process_set: AnySet = global_process_set
) -> list[Any]:
    """Returns the objects of all workers, by rank. They are pickled; see broadcast_object()."""
    return basin.torch.allgather_object(
        obj, name=name or "gathered", process_set=basins(process_set)
    )
