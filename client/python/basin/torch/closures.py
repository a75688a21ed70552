# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""Closures of optimizer.step(): they run before the step, because their backward is a round, and a
step applies the result of one.

An optimizer that evaluates its closure once does the same with the value. One that evaluates it
again, at other parameters, would have another number of rounds than the other workers.
"""

from typing import Any

import torch

from basin.errors import Unsupported


def evaluate(
    optimizer: torch.optim.Optimizer, arguments: tuple[Any, ...], options: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
    """Runs the closure in these arguments of step(), the first of which is the optimizer, and
    returns them with its value in its place. Returns None if there is no closure."""
    named = "closure" in options
    closure = options["closure"] if named else next(iter(arguments[1:]), None)
    if not callable(closure):
        return None
    if isinstance(optimizer, torch.optim.LBFGS):
        _refuse(optimizer)
    with torch.enable_grad():
        value = _Value(optimizer, closure())
    if named:
        return arguments, {**options, "closure": value}
    return (arguments[0], value, *arguments[2:]), options


class _Value:
    """A closure that was run: returns its value, once."""

    def __init__(self, optimizer: torch.optim.Optimizer, value: Any) -> None:
        self._optimizer = optimizer
        self._value = value
        self._is_taken = False

    def __call__(self) -> Any:
        if self._is_taken:
            _refuse(self._optimizer)
        self._is_taken = True
        return self._value


def _refuse(optimizer: torch.optim.Optimizer) -> None:
    raise Unsupported(
        f"{type(optimizer).__name__} evaluates its closure several times in a step, so workers "
        "would have different numbers of rounds. Use an optimizer that evaluates it once, or call "
        "backward() yourself, then step() without a closure."
    )
