# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""Arrays of other frameworks, through DLPack (https://dmlc.github.io/dlpack), without a copy and
without an import of the framework."""

import ctypes
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from basin.errors import InvalidArgument, Unsupported


@runtime_checkable
class SupportsDLPack(Protocol):
    """Any object with these two methods: a tensor of PyTorch, an array of JAX, CuPy or MXNet."""

    def __dlpack__(self, *, stream: Any = None) -> Any: ...

    def __dlpack_device__(self) -> tuple[Any, int]: ...


_CPU = 1
_BFLOAT = 4
_CAPSULE = b"dltensor"


class _DataType(ctypes.Structure):
    _fields_ = (("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16))


class _Tensor(ctypes.Structure):
    """DLTensor, with which the DLManagedTensor of a capsule begins."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("dtype", _DataType),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


_get_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)


class _Bfloat16:
    """A bfloat16 tensor that NumPy, which has no bfloat16, sees as 16-bit integers.

    The capsule is kept instead of consumed: its destructor releases the memory.
    """

    def __init__(self, capsule: object, tensor: _Tensor) -> None:
        self._capsule = capsule
        shape = tuple(tensor.shape[: tensor.ndim])
        strides = (
            tuple(2 * each for each in tensor.strides[: tensor.ndim]) if tensor.strides else None
        )
        self.__array_interface__ = {
            "version": 3,
            "typestr": "<u2",
            "shape": shape,
            "strides": strides,
            "data": ((tensor.data or 0) + tensor.byte_offset, True),
        }


def view(name: str, array: SupportsDLPack) -> tuple[NDArray[Any], bool]:
    """Returns the memory of `array` as a NumPy array, which keeps it alive, and whether its numbers
    are bfloat16; then the NumPy array holds their bits as uint16.

    Raises Unsupported for a device other than the CPU, and InvalidArgument if the framework refuses
    to export the array.
    """
    device = int(array.__dlpack_device__()[0])
    if device != _CPU:
        raise Unsupported(
            f"Array {name} is on a device of DLPack's type {device}. Basin takes arrays in CPU "
            "memory (type 1): copy it there."
        )
    try:
        capsule = array.__dlpack__()
        tensor = _Tensor.from_address(_get_pointer(capsule, _CAPSULE))
        if (tensor.dtype.code, tensor.dtype.bits, tensor.dtype.lanes) == (_BFLOAT, 16, 1):
            return np.asarray(_Bfloat16(capsule, tensor)), True
        return np.from_dlpack(array), False
    except (BufferError, RuntimeError, ValueError) as error:
        raise InvalidArgument(f"Array {name} cannot be read through DLPack: {error}") from error


def widen(bits: NDArray[Any]) -> NDArray[np.float32]:
    """Converts bfloat16 numbers, given as the bits in uint16, to equal float32 numbers."""
    return np.asarray(bits.astype(np.uint32) << np.uint32(16)).view(np.float32)
