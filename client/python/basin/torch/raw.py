# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""The memory of torch tensors: how a tensor is read and written as plain numbers.

The library is given an address and reads or writes numbers in C order there. What torch shows as a
tensor may be something else: a conjugate or a negative of its memory, a view in which many elements
share one number, a subclass. Everything that enters the library goes through plain() or is refused
by tensors.check_memory(), and everything that is received goes through write().
"""

import contextlib
import ctypes
import mmap
import operator
from collections.abc import Callable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from basin.errors import Unsupported

# torch.Tensor.grad_dtype, where torch has it: by default the dtype of the parameter; None allows
# any.
grad_dtype_of: Callable[[torch.Tensor], torch.dtype | None] = operator.attrgetter(
    "grad_dtype" if hasattr(torch.Tensor, "grad_dtype") else "dtype"
)


_madvise = ctypes.CDLL(None).madvise
_madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
_MADV_POPULATE_WRITE = 23  # Since Linux 5.14.

_MASK = (1 << 64) - 1
_BETWEEN_BLOCKS = 0x100000001B3
_FACTORS = np.arange(1, 1 << 17, 2, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)


def has_memory(tensor: torch.Tensor) -> bool:
    """Whether all its elements lie in memory of its own: not so for a subclass that wraps other
    tensors, and for a tensor whose storage was freed."""
    with torch._C.DisableTorchFunctionSubclass():
        if tensor.numel() == 0:
            return True
        steps = zip(tensor.shape, tensor.stride(), strict=True)
        last = tensor.storage_offset() + sum((size - 1) * step for size, step in steps)
        try:
            storage = tensor.untyped_storage()
            there = storage.data_ptr() != 0
        except (RuntimeError, NotImplementedError):
            return False
        return there and storage.nbytes() >= (last + 1) * tensor.element_size()


def plain(tensor: torch.Tensor) -> torch.Tensor:
    """The same numbers without autograd, as a torch.Tensor whose memory holds them; a copy only if
    it must be. REQUIRES: tensors.check_memory() has passed."""
    with torch._C.DisableTorchFunctionSubclass():
        bare = tensor.detach()
        if type(bare) is not torch.Tensor:
            bare = bare.as_subclass(torch.Tensor)
        return bare.resolve_conj().resolve_neg()


def on_host(tensor: torch.Tensor) -> torch.Tensor:
    """The same numbers in CPU memory, in C order; a copy only if it must be."""
    return plain(tensor).cpu().contiguous()


def bytes_on_host(tensor: torch.Tensor) -> torch.Tensor:
    """The bytes of the same numbers in CPU memory; a copy only if it must be."""
    memory = on_host(tensor)
    # One element is in C order whatever its stride, which view() would keep and then refuse.
    flat = memory.as_strided((memory.numel(),), (1,))
    return flat.view(torch.uint8)


def checksum(tensor: torch.Tensor) -> int:
    """A checksum of 64 bits, which takes one pass over the memory: a sum of its words, each times
    an odd number that depends on its place. It finds what differs by mistake, not by intent."""
    content = bytes_on_host(tensor).numpy()
    whole = content.size // 8 * 8
    # NumPy reads words at any address, which torch refuses in a view of other numbers.
    words = content[:whole].view(np.uint64)
    total = int.from_bytes(content[whole:].tobytes(), "little")
    for start in range(0, words.size, _FACTORS.size):
        block = words[start : start + _FACTORS.size]
        total = (_BETWEEN_BLOCKS * total + int(np.dot(block, _FACTORS[: block.size]))) & _MASK
    return total


def empty_on_host(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """CPU memory in C order, whatever the default device is."""
    return torch.empty(shape, dtype=dtype, device="cpu")


def numbers_of(
    content: NDArray[np.uint8], dtype: torch.dtype, shape: Sequence[int]
) -> torch.Tensor:
    """A tensor in the memory of these bytes."""
    if content.size == 0:  # torch refuses to see it as other numbers.
        return empty_on_host(tuple(shape), dtype)
    return torch.from_numpy(content).view(dtype).reshape(tuple(shape))


def touch(address: int, size: int) -> None:
    """Makes the pages of CPU memory that nothing was written to yet; its bytes mean nothing. Other
    threads of Python run meanwhile."""
    begin, end = -(-address // mmap.PAGESIZE) * mmap.PAGESIZE, address + size
    if end <= begin or _madvise(begin, end - begin, _MADV_POPULATE_WRITE) != 0:
        # An older kernel. This takes about twice as long.
        ctypes.memset(address, 0, size)


def shares_elements(tensor: torch.Tensor) -> bool:
    """Whether several elements share one place in memory, as those of expand() do."""
    return any(
        size > 1 and step == 0 for size, step in zip(tensor.shape, tensor.stride(), strict=True)
    )


def write(name: str, target: torch.Tensor, numbers: torch.Tensor) -> None:
    """Writes these plain numbers, of the same shape, into the tensor. Autograd notices: a graph
    that has saved the tensor and is used later raises an error of torch.

    Raises Unsupported if elements share memory and their numbers differ; nothing is written then.
    """
    with torch.no_grad(), torch._C.DisableTorchFunctionSubclass():
        place = target.detach()
        if shares_elements(place):
            place, numbers = _without_repetition(name, place, numbers)
        inference = torch.inference_mode() if place.is_inference() else contextlib.nullcontext()
        with inference:
            place.copy_(numbers)


def _without_repetition(
    name: str, place: torch.Tensor, numbers: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """One element of those that share memory, and its number."""
    whole = numbers
    for dimension, (size, step) in enumerate(zip(place.shape, place.stride(), strict=True)):
        if size > 1 and step == 0:
            place = place.narrow(dimension, 0, 1)
            numbers = numbers.narrow(dimension, 0, 1)
    if not has_bits_of(numbers.expand(whole.shape), whole):
        raise Unsupported(
            f"Several elements of tensor {name} share memory (expand() does that), so it cannot "
            "take the different values of another worker. Make it a whole tensor: "
            "tensor.contiguous()."
        )
    return place, numbers


def has_bits_of(tensor: torch.Tensor, numbers: torch.Tensor) -> bool:
    """Whether these plain numbers, of the same shape, are the tensor's, bit for bit."""
    return torch.equal(bytes_on_host(tensor), bytes_on_host(numbers))


def was_written(tensor: torch.Tensor) -> None:
    """Tells autograd that the library has written to the tensor's memory."""
    if not tensor.is_inference():
        torch.autograd.graph.increment_version(tensor)


def is_held(tensor: torch.Tensor) -> bool:
    """Whether something other than Python's own reference holds the tensor or its memory: a graph
    of autograd that has saved it, or a view. True where torch cannot tell."""
    base = tensor._base
    try:
        # One user is Python's object. A view is a user of its base, and both of the storage.
        users: int = tensor._use_count()  # type: ignore[attr-defined]
        of_base: int = 0 if base is None else base._use_count()  # type: ignore[attr-defined]
        storage = tensor.untyped_storage()  # Another user, for now.
        of_storage = torch._C._storage_Use_Count(storage._cdata) - (base is not None)
        return users > 1 or of_base > 2 or of_storage > 2
    except AttributeError:
        return True


def gradient_dtype(parameter: torch.Tensor) -> torch.dtype:
    """The dtype of the parameter's .grad; the parameter's own if any is allowed."""
    return grad_dtype_of(parameter) or parameter.dtype


def may_hold(parameter: torch.Tensor, gradient: torch.Tensor) -> bool:
    """Whether torch allows a gradient of this dtype."""
    return grad_dtype_of(parameter) in (None, gradient.dtype)
