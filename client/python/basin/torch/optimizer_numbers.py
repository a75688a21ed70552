# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""The numbers in the groups of an optimizer, as a text that is equal on workers that make equal
steps.

It has the options that the optimizer itself knows (its defaults), because a script may keep numbers
of its own in a group. It has plain numbers only: to read a tensor could wait for a device. Some
options choose an implementation, and may differ between a worker with a GPU and one without. Two
machines may compute the last bits of a schedule differently, so six digits are compared. Groups are
known by a parameter, not by their order.
"""

from collections.abc import Mapping
from typing import Any

import torch

_IMPLEMENTATION = {"foreach", "fused", "capturable", "differentiable"}
_MOST_NAMED = 5


class OptimizerNumbers:
    """Those of one optimizer. `names`: of its parameters; those of a group are in its text."""

    def __init__(self, optimizer: torch.optim.Optimizer, names: Mapping[torch.Tensor, str]) -> None:
        self._optimizer = optimizer
        self._names = names
        self._keys = sorted(optimizer.defaults.keys() - _IMPLEMENTATION)
        self._seen: list[Any] = []
        self._text = ""

    def text(self) -> str:
        """One line for each number. It is called in each step."""
        groups = self._optimizer.param_groups
        seen = [_frozen(group[key]) for group in groups for key in self._keys if key in group]
        if seen != self._seen or not self._text:
            self._seen = seen
            self._text = "\n".join(sorted(line for group in groups for line in self._lines(group)))
        return self._text

    def _lines(self, group: dict[str, Any]) -> list[str]:
        known = [self._names[each] for each in group["params"] if each in self._names]
        if not known:
            return []
        where = f"in the group of parameter {min(known)}"
        written = {key: _written(group[key]) for key in self._keys if key in group}
        return [f"{key}={text} {where}" for key, text in written.items() if text is not None]


def differences(mine: str, theirs: str) -> str:
    """What only `mine` has, in the words of an error."""
    only = sorted(set(mine.split("\n")) - set(theirs.split("\n")) - {""})
    more = len(only) - _MOST_NAMED
    return (", ".join(only[:_MOST_NAMED]) or "no such number") + (
        f" and {more} more" if more > 0 else ""
    )


def _frozen(value: Any) -> Any:
    """What is compared with the value in the next step. A list may be changed in place, and only
    the identity of other objects is compared, because a tensor is not to be read."""
    if isinstance(value, list | tuple):
        return tuple(map(_frozen, value))
    return value if isinstance(value, int | float) else id(value)


def _written(value: Any) -> str | None:
    """None if it is not made of plain numbers only."""
    if isinstance(value, bool):
        return str(value)
    if isinstance(value, int | float):
        return f"{float(value):.6g}"
    if isinstance(value, list | tuple):
        parts = [_written(each) for each in value]
        if parts and None not in parts:
            return f"({', '.join(str(part) for part in parts)})"
    return None
