# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""The arrays that calls are given: of NumPy, or of anything that supports DLPack."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from basin import _abi, dlpack
from basin.arguments import string_of
from basin.dlpack import SupportsDLPack
from basin.errors import InvalidArgument
from basin.gathering import Bytes, Piece
from basin.worker import TensorSpec

Array = NDArray[Any]

_DTYPES = {
    np.dtype(np.float64): _abi.F64,
    np.dtype(np.float32): _abi.F32,
    np.dtype(np.float16): _abi.F16,
    np.dtype(np.int64): _abi.I64,
    np.dtype(np.int32): _abi.I32,
    np.dtype(np.uint8): _abi.U8,
}

# What `isbuiltin` is of dtypes that a package has added to NumPy: numbers, such as bfloat16.
_DTYPE_OF_A_PACKAGE = 2


@dataclass(frozen=True)
class Taken:
    """A caller's array, in C order.

    widened: the array came through DLPack as bfloat16, which NumPy does not have; `array` holds its
             bits, and the caller gets float32
    """

    name: str
    array: Array
    widened: bool

    @property
    def spec(self) -> TensorSpec:
        if self.widened or self.array.dtype.name == "bfloat16":  # The dtype of ml_dtypes.
            return TensorSpec(self.name, _abi.BF16, self.array.shape)
        dtype = _DTYPES.get(self.array.dtype)
        if dtype is None:
            known = ", ".join(str(each) for each in _DTYPES)
            raise InvalidArgument(
                f"Array {self.name} has dtype {self.array.dtype}, which Basin cannot reduce. "
                f"Convert it to one of {known}, bfloat16."
            )
        return TensorSpec(self.name, dtype, self.array.shape)

    @property
    def dtype_name(self) -> str:
        """Also for dtypes that cannot be reduced. Raises InvalidArgument if the elements are not
        plain numbers, whose bits are all there is of them."""
        dtype = self.array.dtype
        if dtype.kind not in "biufc" and dtype.isbuiltin != _DTYPE_OF_A_PACKAGE:
            raise InvalidArgument(
                f"Array {self.name} has dtype {dtype}, whose elements are not plain numbers. "
                "Broadcast numbers: dates as array.view(numpy.int64), a structure field by field; "
                "basin.torch.broadcast_object() takes other objects."
            )
        if self.widened:
            return "bfloat16"
        return dtype.name if dtype.isnative else f"{dtype.name} in the other byte order"

    @property
    def piece(self) -> Piece:
        dtype = self.dtype_name  # Raises before the bits are read.
        content = self.array.reshape(-1).view(np.uint8)
        return Piece(dtype, self.array.shape, self.array.itemsize, content)

    def give(self, received: Array) -> Array:
        return dlpack.widen(received) if self.widened else received

    def give_rows(self, content: Bytes, rows: int) -> Array:
        """An array of so many rows, which are otherwise like those of this one."""
        return self.give(content.view(self.array.dtype).reshape(rows, *self.array.shape[1:]))


def take(name: str, array: ArrayLike | SupportsDLPack) -> Taken:
    """Raises InvalidArgument if the array is none, or has more than numbers."""
    string_of("name", name)
    if isinstance(array, SupportsDLPack) and not isinstance(array, np.ndarray):
        memory, is_bfloat16 = dlpack.view(name, array)
        return Taken(name, np.asarray(memory, order="C"), is_bfloat16)
    if isinstance(array, np.ma.MaskedArray):
        raise InvalidArgument(
            f"Array {name} is masked, and would lose its mask. Give it array.filled(value)."
        )
    try:
        return Taken(name, np.asarray(array, order="C"), False)
    except ValueError as error:
        raise InvalidArgument(
            f"Array {name} is not an array: {str(error).rstrip('.')}. Give it numbers in one shape."
        ) from None


def take_for(name: str | None, array: ArrayLike | SupportsDLPack) -> Taken:
    """That of a call with this name, or with none."""
    return take("without a name" if name is None else name, array)
