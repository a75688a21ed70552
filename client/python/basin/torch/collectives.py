# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""Collective calls on torch tensors and on Python objects."""

import io
import pickle
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import torch

from basin import _abi
from basin.client import CALL_PREFIX, Handle, Op
from basin.torch import tensors
from basin.torch.context import current
from basin.worker import Result, TensorSpec

_TIMEOUT_SECONDS = 300.0

Named = torch.nn.Module | Mapping[str, Any] | Iterable[tuple[str, Any]]


def allreduce_async(
    tensor: torch.Tensor,
    name: str,
    *,
    op: Op,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> Handle[torch.Tensor]:
    """As basin.Client.allreduce_async(), for a torch tensor of the CPU."""
    return _start(tensor, name, None, op, prescale_factor, postscale_factor)


def allreduce(
    tensor: torch.Tensor,
    name: str,
    *,
    op: Op,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> torch.Tensor:
    """Reduces a tensor over all workers; returns a new one. No gradient flows through it."""
    return _start(tensor, name, None, op, prescale_factor, postscale_factor).wait(current().timeout)


def allreduce_async_(
    tensor: torch.Tensor,
    name: str,
    *,
    op: Op,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> Handle[torch.Tensor]:
    """As allreduce_async(); wait() writes the result to `tensor` and returns it."""
    return _start(tensor, name, tensor, op, prescale_factor, postscale_factor)


def allreduce_(
    tensor: torch.Tensor,
    name: str,
    *,
    op: Op,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> torch.Tensor:
    """As allreduce(), in place."""
    return _start(tensor, name, tensor, op, prescale_factor, postscale_factor).wait(
        current().timeout
    )


def _start(
    tensor: torch.Tensor,
    name: str,
    target: torch.Tensor | None,
    op: Op,
    prescale: float,
    postscale: float,
) -> Handle[torch.Tensor]:
    tensors.check(name, tensor)
    memory = tensor.detach().contiguous()

    def output(result: Result) -> torch.Tensor:
        received = torch.empty(memory.shape, dtype=memory.dtype)
        result.copy(0, received.data_ptr(), tensors.bytes_of(received))
        if target is None:
            return received
        with torch.no_grad():
            target.copy_(received)
        return target

    return current().client.start(
        CALL_PREFIX + name,
        [(tensors.spec_of(name, memory), memory.data_ptr())],
        memory,
        output,
        op=op,
        prescale=prescale,
        postscale=postscale,
    )


def barrier(name: str = "barrier") -> None:
    """Returns when every worker has called it."""
    current().client.barrier(name, current().timeout)


def broadcast_parameters(parameters: Named, root_rank: int = 0) -> None:
    """Gives all workers the root's values, bit for bit, of any dtype.

    parameters: a module (its parameters and buffers), a state_dict, or pairs of name and tensor.
    """
    _broadcast("parameters", _named_tensors(parameters), root_rank)


def broadcast_buffers(module: torch.nn.Module, root_rank: int = 0) -> None:
    """As broadcast_parameters(), for the buffers of a module alone."""
    _broadcast("buffers", list(module.named_buffers()), root_rank)


def broadcast_optimizer_state(optimizer: torch.optim.Optimizer, root_rank: int = 0) -> None:
    """Gives all workers' optimizers the root's state: options of the groups, moments, steps."""
    stream = io.BytesIO()
    torch.save(optimizer.state_dict(), stream)
    received = broadcast_object(stream.getvalue(), root_rank, name="optimizer")
    optimizer.load_state_dict(torch.load(io.BytesIO(received), weights_only=True))


def broadcast_object(value: Any, root_rank: int = 0, *, name: str = "object") -> Any:
    """The root's object, pickled: only among workers that trust each other."""
    client = current().client
    data = np.frombuffer(pickle.dumps(value), np.uint8)
    size = client.broadcast(np.array([data.size], np.int64), name + ".size", root_rank=root_rank)
    if client.rank != root_rank:
        data = np.zeros(int(size[0]), np.uint8)
    received = client.broadcast(data, f"{name}.{int(size[0])}", root_rank=root_rank)
    return pickle.loads(received.tobytes())


def allgather_object(value: Any, *, name: str = "gathered") -> list[Any]:
    """The objects of all workers, by rank."""
    size = current().client.world_size
    return [broadcast_object(value, root, name=f"{name}.{root}") for root in range(size)]


def _named_tensors(parameters: Named) -> list[tuple[str, torch.Tensor]]:
    if isinstance(parameters, torch.nn.Module):
        pairs: Iterable[tuple[str, Any]] = parameters.state_dict().items()
    elif isinstance(parameters, Mapping):
        pairs = parameters.items()
    else:
        pairs = parameters
    return [(name, value) for name, value in pairs if isinstance(value, torch.Tensor)]


def _broadcast(name: str, named: list[tuple[str, torch.Tensor]], root_rank: int) -> None:
    here = current()
    staged = []
    for key, tensor in named:
        data = tensor.detach()
        if data.numel() > 0:
            staged.append((key, data, data.contiguous()))
    here.client.broadcast_memory(
        name,
        [
            (_value_spec(f"{name}/{key}", memory), memory.data_ptr(), tensors.bytes_of(memory))
            for key, _, memory in staged
        ],
        root_rank,
        here.timeout if here.timeout is not None else _TIMEOUT_SECONDS,
    )
    for _, data, memory in staged:
        if memory is not data and memory.data_ptr() != data.data_ptr():
            data.copy_(memory)


def _value_spec(name: str, memory: torch.Tensor) -> TensorSpec:
    if memory.dtype in tensors.DTYPES:
        return tensors.spec_of(name, memory)
    return TensorSpec(name, _abi.U8, (tensors.bytes_of(memory),))
