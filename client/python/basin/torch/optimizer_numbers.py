# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""The numbers in the groups of an optimizer, as a text that is equal on workers that make equal
steps.

It has the options that the optimizer itself knows (its defaults), because a script may keep numbers
of its own in a group. It has plain numbers only: to read a tensor could wait for a device. Some
options choose an implementation, and may differ between a worker with a GPU and one without. Two
machines may compute the last bits of a schedule differently, so six digits are compared. Groups are
known by a parameter, not by their order.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import torch

# Options that change nothing but how a step is computed.
IMPLEMENTATION = {"foreach", "fused", "capturable", "differentiable"}
_MOST_NAMED = 5


class OptimizerNumbers:
    """Those of one optimizer. `names`: of its parameters; those of a group are in its text."""

    def __init__(self, optimizer: torch.optim.Optimizer, names: Mapping[torch.Tensor, str]) -> None:
        self._optimizer = optimizer
        self._names = names
        self._keys = _keys_of(optimizer)
        self._seen: list[Any] = []
        self._text = ""

    def text(self) -> str:
        """One line for each number. It is called in each step."""
        groups = self._optimizer.param_groups
        seen = [_frozen(group[key]) for group in groups for key in self._keys if key in group]
        if seen != self._seen or not self._text:
            self._seen = seen
            self._text = _text_of(groups, self._keys, self._names)
        return self._text


class LoadedNumbers:
    """The numbers that a late joiner has loaded into the groups of its optimizers.

    A scheduler writes its first learning rate into the groups when it is created, also if that is
    after the optimizer was loaded, and the others are at a later one.
    """

    def __init__(self) -> None:
        # Their groups, with the parameters and the numbers.
        self._loaded: list[tuple[torch.optim.Optimizer, list[dict[str, Any]]]] = []

    def take(self, optimizer: torch.optim.Optimizer) -> None:
        """The optimizer was loaded."""
        keys = _keys_of(optimizer)
        groups = [
            {"params": group["params"], **{k: _copied(group[k]) for k in keys if k in group}}
            for group in optimizer.param_groups
        ]
        self._loaded.append((optimizer, groups))

    def forget(self) -> None:
        self._loaded.clear()

    def write(self) -> None:
        """Writes them into the groups again."""
        for optimizer, loaded in self._loaded:
            for group, numbers in zip(optimizer.param_groups, loaded, strict=False):
                for key in numbers.keys() - {"params"}:
                    held = group.get(key)
                    if isinstance(held, torch.Tensor):
                        held.data.copy_(torch.as_tensor(numbers[key]))  # Others may refer to it.
                    else:
                        group[key] = _copied(numbers[key])

    def changes(self, names: Mapping[torch.Tensor, str]) -> tuple[str, str] | None:
        """The numbers that differ by now, as they are and as they were loaded, in the words of an
        error. `names`: of the parameters."""
        now = loaded = ""
        for optimizer, groups in self._loaded:
            keys = _keys_of(optimizer)
            now += _text_of(optimizer.param_groups, keys, names) + "\n"
            loaded += _text_of(groups, keys, names) + "\n"
        return None if now == loaded else (differences(now, loaded), differences(loaded, now))


def _keys_of(optimizer: torch.optim.Optimizer) -> list[str]:
    return sorted(optimizer.defaults.keys() - IMPLEMENTATION)


def _text_of(
    groups: Iterable[dict[str, Any]], keys: Iterable[str], names: Mapping[torch.Tensor, str]
) -> str:
    return "\n".join(sorted(line for group in groups for line in _lines(group, keys, names)))


def _lines(
    group: dict[str, Any], keys: Iterable[str], names: Mapping[torch.Tensor, str]
) -> list[str]:
    known = [names[each] for each in group["params"] if each in names]
    if not known:
        return []
    where = f"in the group of parameter {min(known)}"
    written = {key: _written(group[key]) for key in keys if key in group}
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


def _copied(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.detach().clone()
    return list(value) if isinstance(value, list) else value


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
