# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""Plain data: what a worker can give to another one, or to a file, and get back equal without
running code of its own. Numbers, strings, tensors, arrays, and containers of these."""

import collections
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from basin.errors import InvalidArgument
from basin.torch import tensors

_SCALARS = (bool, int, float, complex, str, bytes, type(None))
_TORCH = (torch.dtype, torch.device, torch.Size)
_MAPPINGS = (dict, collections.OrderedDict, collections.Counter)
_LISTS = (list, tuple, set, frozenset)

# What a pickle of plain data refers to, by module; the modules of NumPy 1 have other names.
_ALLOWED = {
    "builtins": {"bytearray", "complex", "frozenset", "set"},
    "collections": {"Counter", "OrderedDict"},
    "numpy": {"dtype", "ndarray"},
    "numpy._core.multiarray": {"_reconstruct", "scalar"},
    "numpy._core.numeric": {"_frombuffer"},
    "numpy.core.multiarray": {"_reconstruct", "scalar"},
    "numpy.core.numeric": {"_frombuffer"},
    "torch": {"Size", "device"},
}


def has_state(value: Any) -> bool:
    """Whether it is shared as its state_dict(), and not as plain data."""
    return hasattr(value, "state_dict") and hasattr(value, "load_state_dict")


def check(name: str, value: Any) -> None:
    """Raises InvalidArgument, with the name of the part, unless the value is plain data, and
    Unsupported for a tensor that is not a whole one in memory."""
    kind = type(value)
    if kind in _SCALARS or kind in _TORCH:
        return
    if isinstance(value, torch.Tensor):
        tensors.check_memory(name, value)
    elif isinstance(value, np.ndarray | np.generic) and value.dtype.kind in "biufcSU":
        return
    elif kind in _MAPPINGS:
        for key, each in value.items():
            check(f"{name}[{key!r}]", key)
            check(f"{name}[{key!r}]", each)
    elif kind in _LISTS:
        for i, each in enumerate(value):
            check(f"{name}[{i}]", each)
    else:
        raise InvalidArgument(
            f"{name} is a {kind.__module__}.{kind.__qualname__}, which is neither plain data "
            "(numbers, strings, tensors, and lists and dicts of these) nor an object with "
            "state_dict() and load_state_dict(). Leave it out, or give it these methods."
        )


def is_allowed(module: str, name: str) -> bool:
    """Whether a pickle of plain data may refer to this object."""
    if module == "torch" and isinstance(getattr(torch, name, None), torch.dtype):
        return True
    return name in _ALLOWED.get(module, set())


def names(values: Mapping[str, Any]) -> str:
    return ", ".join(sorted(values))
