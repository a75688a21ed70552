# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""Checks of user arguments, which may be of any type, including numbers of NumPy and torch. Errors
name the argument."""

import math
import numbers
import operator
from collections.abc import Iterable, Mapping
from typing import Any

from basin.errors import InvalidArgument


def whole_number(count: object) -> int | None:
    """Converts a whole number of any type to an int; None for a bool, a negative number, and
    anything that is not a whole number."""
    if isinstance(count, bool) or str(getattr(count, "dtype", "")).endswith("bool"):
        return None  # Probably a mask that should have been summed.
    try:
        whole = operator.index(count)  # type: ignore[arg-type]
    except (TypeError, RuntimeError):  # A tensor without a value.
        return None
    return whole if whole >= 0 else None


def number_of(value: object) -> float:
    """Converts a number of any type to a float, including an array or tensor of no dimension; NaN
    for a bool and anything that is not a number."""
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
    """Raises InvalidArgument if the value is not a number of seconds."""
    if value is None:
        return None
    number = number_of(value)
    if math.isnan(number):
        raise InvalidArgument(
            f"{argument} cannot be {value!r}. Use a number of seconds, or None to wait forever."
        )
    return number


def string_of(argument: str, value: object) -> str:
    """Raises InvalidArgument if the value is not a string, or contains a NUL, which the C interface
    cannot take."""
    if not isinstance(value, str) or "\0" in value:
        raise InvalidArgument(f"{argument} cannot be {value!r}. Use a string.")
    return value


def check_known(call: str, options: Mapping[str, Any], known: Iterable[str]) -> None:
    """Raises TypeError for unknown options, as Python does, and names the user's `call`."""
    known = list(known)
    for name in options:
        if name not in known:
            raise TypeError(
                f"{call} got an unexpected keyword argument {name!r}. The options of a reduction "
                f"are {', '.join(known)}."
            )
