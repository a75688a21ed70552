# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""What users give, of whatever kind: a number of NumPy or torch too. Errors name the argument."""

import math
import numbers
import operator
from collections.abc import Iterable, Mapping
from typing import Any

from basin.errors import InvalidArgument


def whole_number(count: object) -> int | None:
    """The count as an int, of whatever kind of whole number; None when it is none from 0 on, or a
    bool."""
    if isinstance(count, bool) or str(getattr(count, "dtype", "")).endswith("bool"):
        return None  # A mask that was to be summed.
    try:
        whole = operator.index(count)  # type: ignore[arg-type]
    except (TypeError, RuntimeError):  # A tensor without a value.
        return None
    return whole if whole >= 0 else None


def number_of(value: object) -> float:
    """The value as a float, of whatever kind of number, an array or tensor of no dimension too; NaN
    when it is none, or a bool."""
    if getattr(value, "ndim", None) == 0 and hasattr(value, "item"):
        try:
            value = value.item()
        except RuntimeError:  # A tensor without a value.
            return math.nan
    is_number = isinstance(value, numbers.Real) and not isinstance(value, bool)
    try:
        return float(value) if is_number else math.nan  # type: ignore[arg-type]
    except OverflowError:
        return math.inf


def seconds(argument: str, value: object) -> float | None:
    """Raises InvalidArgument for what is no time."""
    if value is None:
        return None
    number = number_of(value)
    if math.isnan(number):
        raise InvalidArgument(
            f"{argument} cannot be {value!r}. Use a number of seconds, or None to wait for ever."
        )
    return number


def string_of(argument: str, value: object) -> str:
    """Raises InvalidArgument for what is no text, or none that the C interface can be given."""
    if not isinstance(value, str) or "\0" in value:
        raise InvalidArgument(f"{argument} cannot be {value!r}. Use a string.")
    return value


def check_known(call: str, options: Mapping[str, Any], known: Iterable[str]) -> None:
    """Raises TypeError, as Python does for its own functions, and names the `call` of the user."""
    known = list(known)
    for name in options:
        if name not in known:
            raise TypeError(
                f"{call} got an unexpected keyword argument {name!r}. How to reduce is said by "
                f"{', '.join(known)}."
            )
