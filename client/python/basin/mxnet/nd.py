# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""MXNet, and how its arrays are read and written."""

from typing import Any

import numpy as np

from basin.arrays import Array
from basin.errors import Unsupported

try:
    import mxnet
except ModuleNotFoundError as missing:
    raise ModuleNotFoundError(
        f"basin.mxnet needs MXNet, but there is no module {missing.name}. Install it: "
        "pip install mxnet==1.9.1 numpy==1.23.5",
        name=missing.name,
    ) from missing
except AttributeError as error:  # It uses numpy.bool, which NumPy 1.24 has removed.
    raise ImportError(
        f"MXNet cannot be imported with NumPy {np.__version__}: {error}. Install what it was made "
        "for: pip install numpy==1.23.5",
        name="mxnet",
    ) from error

gluon = mxnet.gluon


def read(name: str, array: Any) -> Array:
    """A copy in the memory of this process, after the work that MXNet still does on the array."""
    values: Array = array.asnumpy()
    if values.dtype.kind not in "fiub":
        raise Unsupported(
            f"Array {name} has dtype {values.dtype}, which NumPy cannot represent. Convert it to "
            "float32: cast('float32')."
        )
    return values


def write(array: Any, values: Array) -> None:
    """Gives the array these values, of its dtype and shape."""
    if values.size > 0:
        array[() if values.ndim == 0 else slice(None)] = values


def new(values: Array, like: Any) -> Any:
    """An array with these values, of the kind of `like` and on its device."""
    kind = mxnet.np if isinstance(like, mxnet.np.ndarray) else mxnet.nd
    return kind.array(values, dtype=values.dtype, ctx=like.context)
