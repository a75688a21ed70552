# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""Torch tensors as calls on bytes take them, and back. They may be of any dtype."""

from collections.abc import Sequence
from typing import TypeVar

import torch

from basin.arguments import string_of
from basin.client import Client
from basin.errors import InvalidArgument
from basin.gathering import Bytes, Piece
from basin.handle import Handle
from basin.process_set import ProcessSet
from basin.torch import raw, tensors
from basin.torch.context import current, member

T = TypeVar("T")


def client_of(call: str, name: str | None, process_set: ProcessSet | None = None) -> Client:
    """The client of a `call` that all workers make, or all of a set."""
    if name is not None:
        string_of("name", name)
    if process_set is None:
        return member(call).client
    if not isinstance(process_set, ProcessSet):
        raise InvalidArgument(
            f"{call} was given a {type(process_set).__name__} as process_set. Give it what "
            "add_process_set() returned."
        )
    return process_set.client_of(call)


def timeout() -> float | None:
    return current().timeout


def complete(handle: Handle[T]) -> T:
    """The result of a call that waits, with the timeout of basin.torch.init()."""
    return handle.client.complete(handle, timeout())


def only(received: list[torch.Tensor]) -> torch.Tensor:
    """The result of a call on one tensor."""
    return received[0]


def check_tensor(call: str, called: str, tensor: object) -> None:
    """Raises InvalidArgument if it is none."""
    if not isinstance(tensor, torch.Tensor):
        raise InvalidArgument(
            f"{call} was given a {type(tensor).__name__} as {called}. Give it a torch.Tensor; "
            "basin.connect() is for NumPy arrays."
        )


def of(call: str, name: str | None, tensor: torch.Tensor) -> Piece:
    """The bytes are those of the tensor if it is on the CPU and in C order, and a copy otherwise.
    Raises InvalidArgument or Unsupported if they are not all there is of it."""
    called = "without a name" if name is None else name
    check_tensor(call, called, tensor)
    tensors.check_memory(called, tensor)
    content: Bytes = raw.bytes_on_host(tensor).numpy()
    dtype = str(tensor.dtype).removeprefix("torch.")
    return Piece(dtype, tuple(tensor.shape), tensor.element_size(), content)


def named_in(
    call: str, name: str | None, group: Sequence[torch.Tensor]
) -> list[tuple[str, torch.Tensor]]:
    """The tensors of a group, and how they are called. Raises InvalidArgument if it has none."""
    called = "without a name" if name is None else name
    if not isinstance(group, Sequence):
        raise InvalidArgument(
            f"{call} was given a {type(group).__name__} as group {called}. Give it a list of "
            "tensors."
        )
    if not group:
        raise InvalidArgument(f"Group {called} has no tensors. Give it at least one.")
    return [(f"{called}.{i}", tensor) for i, tensor in enumerate(group)]


def group_of(call: str, name: str | None, group: Sequence[torch.Tensor]) -> list[Piece]:
    return [of(call, called, tensor) for called, tensor in named_in(call, name, group)]


def tensor_of(content: Bytes, like: torch.Tensor, shape: Sequence[int]) -> torch.Tensor:
    """A tensor of these bytes, with the dtype and on the device of another one."""
    return raw.numbers_of(content, like.dtype, shape).to(like.device)


def tracks(tensor: torch.Tensor) -> bool:
    """Whether autograd is to know the result."""
    return torch.is_grad_enabled() and tensor.requires_grad
