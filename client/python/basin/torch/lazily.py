# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""The tensors of lazy modules, such as torch.nn.LazyLinear. They get shape and values in the first
forward of their module, so no call before it can share them.

Rank 0 gives its values when its forward has made them. Another worker takes them in its own
forward, before it reads them, and waits for nobody else. Until then they are pending on each
worker, also where a checkpoint has given them values: they are in no layout, and in no state that
a late joiner loads. One that joins later gets them with the state, and neither gives nor takes
them.

The version of a value is the round that the forward is for, which all workers know. They have the
same tensors in a round, so all have taken a value before the step after it, and it is dropped then.

Threads. One thread at a time: the one that runs forward and step.
"""

import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn.modules.lazy import LazyModuleMixin
from torch.utils.hooks import RemovableHandle

from basin import _abi
from basin.errors import DeadlineExceeded, Mismatch, Unavailable
from basin.torch import raw, tensors
from basin.worker import TensorSpec, Worker

_LANE = "lazy"
_TIMEOUT_SECONDS = 300.0


@dataclass
class _Pending:
    """A lazy module before its first forward: its own tensors, with their full names."""

    module: torch.nn.Module
    model: torch.nn.Module  # That it belongs to: two models may have the same names.
    named: dict[str, torch.Tensor]
    handle: RemovableHandle


class LazyTensors:
    """Those of the models that this worker shares.

    next_round: returns the number of the round that the present forward is for
    """

    def __init__(self, worker: Worker, next_round: Callable[[], int]) -> None:
        self._worker, self._next_round = worker, next_round
        self._modules: dict[int, _Pending] = {}  # By identity of the module.
        self.pending: set[torch.Tensor] = set()
        self._shared: dict[int, weakref.ref[torch.Tensor]] = {}  # By identity.
        self._given: dict[str, int] = {}  # By name: the version.

    def watch(self, part: str, model: torch.nn.Module, timeout: float | None) -> None:
        """From now on the lazy modules of this model are shared in their first forward.

        part:    the name by which workers match the model
        timeout: how long a forward waits for rank 0
        """
        for path, module in model.named_modules():
            own = {**module._parameters, **module._buffers}
            prefix = f"{path}." if path else ""
            named = {prefix + name: each for name, each in own.items() if each is not None}
            waits = isinstance(module, LazyModuleMixin) and hasattr(module, "_initialize_hook")
            if (
                not waits
                or id(module) in self._modules
                or any(map(self.was_shared, named.values()))
            ):
                continue
            hook = _Hook(lambda of: self._was_initialized(part, of, timeout))
            # It comes after the hook that initializes the module, which is there already.
            handle = module.register_forward_pre_hook(hook)
            self._modules[id(module)] = _Pending(module, model, named, handle)
            self.pending.update(named.values())

    def was_shared(self, tensor: torch.Tensor) -> bool:
        """Whether it had no values at first, and has those of the others by now."""
        shared = self._shared.get(id(tensor))
        return shared is not None and shared() is tensor

    def load(
        self, model: torch.nn.Module | None, values: Mapping[str, torch.Tensor]
    ) -> list[tuple[str, torch.Tensor]]:
        """Makes room for the values of the others that are pending in this model, by full name, and
        returns these tensors: they are shared when the values are written to them."""
        loaded: list[tuple[str, torch.Tensor]] = []
        for each in [pending for pending in self._modules.values() if pending.model is model]:
            named = {name: tensor for name, tensor in each.named.items() if name in values}
            for name, tensor in named.items():
                materialize(name, tensor, values[name])
            if named:
                self._settle(each)
                loaded += named.items()
        return loaded

    def drop_given(self) -> None:
        """The step after a round begins: drops what everybody has."""
        for name, version in list(self._given.items()):
            if version < self._next_round():
                self._worker.stop_serving(_LANE, name)
                del self._given[name]

    def _settle(self, each: _Pending) -> None:
        each.handle.remove()
        del self._modules[id(each.module)]
        for tensor in each.named.values():
            self.pending.discard(tensor)
            self._shared[id(tensor)] = weakref.ref(tensor)

    def _was_initialized(self, part: str, module: torch.nn.Module, timeout: float | None) -> None:
        each = self._modules.get(id(module))
        place = self._worker.place()
        if each is None or each.module is not module or not place.is_member:
            return  # This worker does not train any more.
        version = self._next_round()
        for name, tensor in each.named.items():
            if tensor.numel() == 0:
                continue
            tensors.check_memory(name, tensor)
            if place.has(0):
                self._give(f"{part}/{name}", version, tensor)
            else:
                self._take(name, f"{part}/{name}", version, tensor, timeout)
        self._settle(each)

    def _give(self, name: str, version: int, tensor: torch.Tensor) -> None:
        memory = raw.on_host(tensor)
        size = tensors.bytes_of(memory)
        self._worker.announce(_LANE, _spec_of(name, memory), version, memory.data_ptr(), size)
        self._given[name] = version

    def _take(
        self, name: str, full: str, version: int, tensor: torch.Tensor, timeout: float | None
    ) -> None:
        memory = torch.empty_like(raw.on_host(tensor))
        size, root = tensors.bytes_of(memory), self._worker.member_id(0)
        seconds = _TIMEOUT_SECONDS if timeout is None else timeout
        try:
            self._worker.get(
                _LANE, _spec_of(full, memory), version, root, seconds, memory.data_ptr(), size
            )
        except DeadlineExceeded as error:
            raise DeadlineExceeded(
                f"Worker {self._worker.id} has waited {seconds:g} s in a forward for the values of "
                f"the lazy tensor {name}, which worker {root} of rank 0 gives in its own first "
                "forward of that module. Run the same forward on all workers, in the same step."
            ) from error
        except Unavailable as error:
            raise Unavailable(
                f"Worker {root} of rank 0 has left before worker {self._worker.id} had the values "
                f"of the lazy tensor {name}, which others may have. Start worker "
                f"{self._worker.id} again: it then gets them from the others. ({error})"
            ) from error
        raw.write(name, tensor, memory)


class _Hook:
    """The hook of a lazy module. A copy of the module, or one that was loaded from a file, shares
    nothing."""

    def __init__(self, call: Callable[[torch.nn.Module], None]) -> None:
        # A compiled model leaves its graph for it.
        self._call = torch.compiler.disable(call)

    def __call__(self, module: torch.nn.Module, inputs: Any) -> None:
        self._call(module)

    def __reduce__(self) -> tuple[Any, ...]:
        return _Hook, (_nothing,)


def _nothing(_: torch.nn.Module) -> None:
    pass


def check_lazy(name: str, tensor: torch.Tensor, value: torch.Tensor) -> None:
    """Raises Mismatch if the lazy tensor cannot take the value."""
    if tensor.dtype != value.dtype:
        raise Mismatch(
            f"Lazy tensor {name} is {tensor.dtype} here, and its value is {value.dtype}. Build the "
            "same model."
        )


def materialize(name: str, tensor: torch.Tensor, value: torch.Tensor) -> None:
    """Gives a tensor the shape of its value if it is lazy. Raises Mismatch as check_lazy() does."""
    if torch.nn.parameter.is_lazy(tensor):
        check_lazy(name, tensor, value)
        with torch.no_grad():
            tensor.materialize(value.shape)


def _spec_of(name: str, memory: torch.Tensor) -> TensorSpec:
    if memory.dtype in tensors.DTYPES:
        return tensors.spec_of(name, memory)
    return TensorSpec(name, _abi.U8, (tensors.bytes_of(memory),))
