# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""The numbers in the groups of an optimizer, as a text that is equal on workers that make equal
steps.

It has the options that the optimizer itself knows (its defaults), because a script may keep numbers
of its own in a group. It has plain numbers only: to read a tensor could wait for a device. Some
options choose an implementation, and may differ between a worker with a GPU and one without. Those
that are False are left out: an older release of torch may not have them. Two machines may compute
the last bits of a schedule differently, so six digits are compared. Groups are known by a
parameter, not by their order.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch

# Options that change nothing but how a step is computed.
IMPLEMENTATION = {"foreach", "fused", "capturable", "differentiable"}
_MOST_NAMED = 5
# Made once: they are used for each number in each step.
_NUMBER = (int, float)
_NUMBERS = (list, tuple)


class OptimizerNumbers:
    """Those of one optimizer. `names`: of its parameters; those of a group are in its text."""

    def __init__(self, optimizer: torch.optim.Optimizer, names: Mapping[torch.Tensor, str]) -> None:
        self._optimizer = optimizer
        self._keys = _keys_of(optimizer)
        # Groups are not added later, and a parameter that is replaced keeps its place.
        self._places = [_place_of(group, names) for group in optimizer.param_groups]
        self._seen: list[Any] = []
        self._text = ""

    def text(self) -> str:
        """One line for each number, or for each group in which it differs. It is called in each
        step."""
        groups = self._optimizer.param_groups
        seen = [_frozen(group[key]) for group in groups for key in self._keys if key in group]
        if seen != self._seen or not self._text:
            self._seen = seen
            self._text = "\n".join(
                line for key in self._keys for line in _lines(key, groups, self._places)
            )
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
    """The learning rate first, because an error names only some numbers."""
    keys = optimizer.defaults.keys() - IMPLEMENTATION
    if isinstance(optimizer, torch.optim.AdamW):
        keys -= {"decoupled_weight_decay"}  # Always, whether a release of torch has it or not.
    return sorted(keys, key=lambda key: (key != "lr", key))


def _place_of(group: Mapping[str, Any], names: Mapping[torch.Tensor, str]) -> str | None:
    """None: it has no parameters."""
    known = [names[each] for each in group["params"] if each in names]
    return f"in the group of parameter {min(known)}" if known else None


def _lines(
    key: str, groups: Iterable[Mapping[str, Any]], places: Iterable[str | None]
) -> list[str]:
    """How one number is written, if it is one."""
    written = [
        (None if key not in group else _written(group[key]), place)
        for group, place in zip(groups, places, strict=False)
        if place is not None
    ]
    values = {value for value, _ in written}
    if len(values) == 1 and None not in values:
        # Also of a single group: another worker may have the same number in two.
        return [f"{key}={values.pop()} in all groups"]
    # By place: where a text is cut, that of another worker ends with the same group.
    sent = [(place, value) for value, place in written if place is not None and value is not None]
    return [f"{key}={value} {place}" for place, value in sorted(sent)]


def _text_of(
    groups: Iterable[Mapping[str, Any]], keys: Sequence[str], names: Mapping[torch.Tensor, str]
) -> str:
    """All numbers of all groups: those of several optimizers are told apart."""
    return "\n".join(
        line
        for group in groups
        for key in keys
        for line in _lines_of_group(key, group, _place_of(group, names))
    )


def _lines_of_group(key: str, group: Mapping[str, Any], place: str | None) -> list[str]:
    value = _written(group[key]) if key in group else None
    return [] if place is None or value is None else [f"{key}={value} {place}"]


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
    if isinstance(value, _NUMBER):
        return value
    return tuple(map(_frozen, value)) if isinstance(value, _NUMBERS) else id(value)


def _copied(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.detach().clone()
    return list(value) if isinstance(value, list) else value


def _written(value: Any) -> str | None:
    """None if it is False, or not made of plain numbers only."""
    if isinstance(value, bool):
        return "True" if value else None
    if isinstance(value, _NUMBER):
        return f"{float(value):.6g}"
    if isinstance(value, _NUMBERS):
        parts = [_written(each) for each in value]
        if parts and None not in parts:
            return f"({', '.join(str(part) for part in parts)})"
    return None
