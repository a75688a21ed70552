# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""Calls of a process group as rounds: each has some arrays, which all members give or one of them,
and of which a member takes some."""

from collections.abc import Sequence
from typing import NamedTuple

import torch

from basin import _abi
from basin.client import Client
from basin.errors import Unsupported
from basin.gathering import shortened
from basin.handle import Handle
from basin.spec import Op, RoundSpec
from basin.torch import raw, tensors
from basin.worker import PartedResult, TensorSpec

Tensors = list[torch.Tensor]


class Array(NamedTuple):
    """An array of a call.

    numbers: on the host, in C order. They are the shape and dtype of an array that is not given
    given:   whether this member contributes them
    into:    takes the result; None: it is not taken
    """

    numbers: torch.Tensor
    given: bool
    into: torch.Tensor | None


def on_host(call: str, tensor: torch.Tensor) -> torch.Tensor:
    """The numbers of a tensor of a `call`, in C order; a copy only if it must be. Raises
    Unsupported if it is not a whole tensor in the memory of the CPU."""
    tensors.check_memory(f"of {call}", tensor)
    if tensor.device.type != "cpu":
        raise Unsupported(
            f"{call} was given a tensor on {tensor.device}, and the backend basin is one for the "
            "CPU. Pass tensor.cpu(), or use basin.torch.init(), which takes tensors of GPUs."
        )
    return raw.on_host(tensor)


def reduce(
    client: Client,
    call: str,
    spec: RoundSpec,
    arrays: Sequence[Array],
    timeout: float | None,
) -> Handle[Tensors]:
    """Begins a reduction of arrays of dtypes that Basin can reduce. `call` is what workers compare,
    beside op, dtypes and shapes; "": nothing else. wait() returns what was taken."""
    named = [(tensors.spec_of(f"{i}", each.numbers), each) for i, each in enumerate(arrays)]
    if call:
        shapes = ", ".join(_shape_of(each.numbers) for each in arrays)
        call = shortened(f"{call}: {spec.op.name} of {shapes}")
        spec = RoundSpec(spec.op, call=call)
    return _begin(client, spec, named, timeout)


def move(
    client: Client, call: str, arrays: Sequence[Array], timeout: float | None
) -> Handle[Tensors]:
    """Begins a call that moves arrays of any dtype, bit for bit: one member gives each. `call` is
    what workers compare, beside dtypes and shapes."""
    shapes = ", ".join(_shape_of(each.numbers) for each in arrays)
    spec = RoundSpec(Op.MAX, call=shortened(f"{call} of {shapes}"))
    named = [
        (TensorSpec(f"{i}", _abi.U8, (tensors.bytes_of(each.numbers),)), each)
        for i, each in enumerate(arrays)
    ]
    return _begin(client, spec, named, timeout)


def _begin(
    client: Client,
    spec: RoundSpec,
    named: list[tuple[TensorSpec, Array]],
    timeout: float | None,
) -> Handle[Tensors]:
    arrays = [each for _, each in named]

    def output(result: PartedResult) -> Tensors:
        taken = []
        for i, each in enumerate(arrays):
            if each.into is not None:
                _take(result, i, each)
                taken.append(each.into)
        return taken

    sent = [
        (spec_, each.numbers.data_ptr() if each.given else None, tensors.bytes_of(each.numbers))
        for spec_, each in named
    ]
    return client.start_unnamed(sent, arrays, output, spec, False, timeout)


def _take(result: PartedResult, i: int, array: Array) -> None:
    into, numbers = array.into, array.numbers
    assert into is not None
    received = raw.empty_on_host(tuple(numbers.shape), numbers.dtype)
    if received.numel() > 0:
        result.copy(i, received.data_ptr(), tensors.bytes_of(received))
    raw.write("of the call", into, received.to(into.dtype).reshape(into.shape))


def _shape_of(tensor: torch.Tensor) -> str:
    dtype = str(tensor.dtype).removeprefix("torch.")
    return f"{dtype}[{', '.join(map(str, tensor.shape))}]"
