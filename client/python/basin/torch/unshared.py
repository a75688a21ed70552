# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""Warns once of state that each worker has for itself although the training changes it: the buffers
of a model on the path of DistributedOptimizer, which shares them only at the start, averages of a
model that late joiners do not get, and parameters whose gradients no lane reduces beside others of
the same model or optimizer."""

import functools
import os
import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

import torch
from torch.optim.swa_utils import AveragedModel

from basin.torch import raw, tensors
from basin.worker import logger

# Larger buffers, such as masks, are not compared.
_MOST_BYTES = 1 << 20
# At how many steps an optimizer's parameters are looked at. One may have no gradient at first.
_LOOKS = 3


class _Lane(Protocol):
    """A lane of gradients."""

    def knows(self, parameter: torch.Tensor) -> bool: ...


class _Shared(Protocol):
    """What this process shares with late joiners."""

    def modules(self) -> list[torch.nn.Module]: ...


class UnsharedWatch:
    """Watches until close().

    shared:     what late joiners get
    world_size: returns the number of workers of the job
    """

    def __init__(self, shared: _Shared, world_size: Callable[[], int]) -> None:
        self._shared = shared
        self._world_size = world_size
        self._process = os.getpid()
        self._reported: set[str] = set()
        # By identity of a module: the buffers after the first step, to see whether they change.
        self._first: dict[int, dict[str, torch.Tensor]] = {}
        self._compared: set[int] = set()
        self._looks: weakref.WeakKeyDictionary[torch.optim.Optimizer, int] = (
            weakref.WeakKeyDictionary()
        )
        self._average = AveragedModel.update_parameters
        self._replace(self._watched(self._average))

    def close(self) -> None:
        self._replace(self._average)

    def broadcasts_buffers(self, module: torch.nn.Module) -> None:
        """The script shares them itself."""
        self._compared.update(id(part) for part in module.modules())

    def before_step(self, optimizer: torch.optim.Optimizer, lanes: Sequence[_Lane]) -> None:
        """Looks at the first steps of each optimizer."""
        looks = self._looks.get(optimizer, 0)
        if not lanes or looks >= _LOOKS or "gradients" in self._reported:
            return
        self._looks[optimizer] = looks + 1
        stepped = [p for group in optimizer.param_groups for p in group["params"]]
        local = [
            parameter
            for parameter in stepped
            if parameter.grad is not None and not any(lane.knows(parameter) for lane in lanes)
        ]
        if not local:
            return
        beside = set(stepped)
        for module in self._shared.modules():
            mine = {each for _, each in tensors.parameters_of(module)}
            beside |= mine if not mine.isdisjoint(local) else set()
        if any(lane.knows(parameter) for lane in lanes for parameter in beside):
            self._report(
                "gradients",
                f"{type(optimizer).__name__} steps a parameter of shape {tuple(local[0].shape)} "
                "whose gradient is not reduced, beside others that are: every worker trains its "
                "own. Create DistributedOptimizer or DistributedDataParallel when all parameters "
                "are there.",
            )

    def after_step(self, trained: Iterable[torch.Tensor]) -> None:
        """An optimizer has stepped these parameters, whose buffers are not sent with a round."""
        modules = [each for each in self._shared.modules() if id(each) not in self._compared]
        mine = set(trained) if modules else set()
        for module in modules:
            if mine.isdisjoint(each for _, each in tensors.parameters_of(module)):
                continue
            now = {
                name: buffer
                for name, buffer in tensors.buffers_of(module)
                if buffer.is_floating_point() and 0 < buffer.nbytes <= _MOST_BYTES
            }
            before = self._first.pop(id(module), None)
            if before is None:
                self._first[id(module)] = {n: raw.plain(b).clone() for n, b in now.items()}
                continue
            self._compared.add(id(module))
            for name in now.keys() & before.keys():
                if not raw.has_bits_of(now[name], before[name]):
                    self._report(
                        "buffers",
                        f"Buffer {name} changes in each step, and every worker has its own: "
                        "DistributedOptimizer shares buffers only at the start. Use "
                        "basin.torch.DistributedDataParallel, or call "
                        "basin.torch.broadcast_buffers(model) before you evaluate or save it.",
                    )
                    break

    def _watched(self, update: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(update)
        def watched(average: Any, model: Any) -> Any:
            known = (part for module in self._shared.modules() for part in module.modules())
            if all(part is not average and part is not average.module for part in known):
                self._report(
                    "average",
                    "An AveragedModel is not shared, so workers that join late would have another "
                    "one. Give it to basin.torch.broadcast_parameters() before the first step.",
                )
            return update(average, model)

        return watched

    def _replace(self, update: Any) -> None:
        setattr(AveragedModel, "update_parameters", update)  # noqa: B010 - mypy has it as constant

    def _report(self, kind: str, text: str) -> None:
        if kind in self._reported or os.getpid() != self._process:
            return
        self._reported.add(kind)
        if self._world_size() > 1:
            logger.warning("%s", text)
