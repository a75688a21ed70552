# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""What workers share: named tensors, values, and the parts that a late joiner loads by name."""

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch

from basin.errors import InvalidArgument, Mismatch
from basin.torch import plain, raw, tensors
from basin.torch.lazily import LazyTensors
from basin.torch.packing import pack, unpack


class SharedValues:
    """Values that all workers share, as attributes: counters of epochs and steps, schedulers.

    broadcast_state() creates it. A late joiner gets the values that the others have when they begin
    its first step.
    """

    def __init__(self, **values: Any) -> None:
        self.__dict__.update(values)

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...
        def __setattr__(self, name: str, value: Any) -> None: ...

    def shared(self) -> dict[str, Any]:
        """The values by name."""
        return self.__dict__

    def states(self) -> dict[str, Any]:
        """What is sent of each value, which is not copied."""
        return {
            name: value.state_dict() if plain.has_state(value) else value
            for name, value in self.shared().items()
        }

    def load_states(self, states: dict[str, Any]) -> None:
        """The inverse."""
        for name, value in states.items():
            held = self.__dict__.get(name)
            load = getattr(held, "load_state_dict", None)
            if load is not None:
                try:
                    load(value)
                except InvalidArgument as error:
                    raise Mismatch(f"{name} of the others does not fit: {error}") from error
            elif isinstance(held, torch.Tensor) and isinstance(value, torch.Tensor):
                self.__dict__[name] = value.to(held.device)
            else:
                self.__dict__[name] = value

    def capture(self) -> bytes:
        return pack(self.states())

    def restore(self, packed: bytes) -> None:
        self.load_states(unpack(packed))


class Tensors:
    """Named tensors, which may belong to a module. Pending ones of lazy modules are left out."""

    def __init__(
        self,
        owner: Any,
        list_present: Callable[[], list[tuple[str, torch.Tensor]]],
        lazy: LazyTensors,
    ) -> None:
        self._owner = owner if isinstance(owner, torch.nn.Module) else None
        self._list_present, self._lazy = list_present, lazy
        self._copies: dict[str, torch.Tensor] = {}

    def list_all(self) -> list[tuple[str, torch.Tensor]]:
        pending = self._lazy.pending
        return [each for each in self._list_present() if each[1] not in pending]

    def watch(self, part: str, timeout: float | None) -> None:
        """Shares lazy tensors in the first forward of their modules; see LazyTensors."""
        if self._owner is not None:
            self._lazy.watch(part, self._owner, timeout)

    def copy_buffers(self, trained: Callable[[torch.Tensor], bool]) -> None:
        """Copies the buffers after a step of the module's parameters. Modules that are not trained
        are left out, because they may change between step and forward: one may average another's
        parameters, for example."""
        if self._owner is None:
            return
        lazy = torch.nn.parameter.is_lazy
        present = ((n, b) for n, b in tensors.buffers_of(self._owner) if not lazy(b))
        buffers = {n: b for n, b in present if b.numel() > 0}
        if not buffers or not any(trained(p) for _, p in tensors.parameters_of(self._owner)):
            return
        with torch.no_grad():
            if {n: (b.shape, b.dtype) for n, b in buffers.items()} != {
                n: (c.shape, c.dtype) for n, c in self._copies.items()
            }:
                self._copies = {n: b.detach().clone() for n, b in buffers.items()}
            else:
                torch._foreach_copy_(list(self._copies.values()), list(buffers.values()))

    def capture(self) -> dict[str, torch.Tensor]:
        own = {} if self._owner is None else dict(tensors.buffers_of(self._owner))
        return {
            name: self._copies.get(name, tensor.detach().clone() if name in own else tensor)
            for name, tensor in self.list_all()
        }

    def restore(self, values: dict[str, torch.Tensor]) -> None:
        mine = dict(self.list_all())
        missing = {n: v for n, v in values.items() if n not in mine}
        mine.update(self._lazy.load(self._owner, missing))
        differing = sorted(mine.keys() ^ values.keys())
        if differing:
            raise Mismatch(
                f"Only this worker or only the others have tensor {differing[0]}. Build the same "
                "model; if a forward adds buffers to it, run one before this call."
            )
        with torch.no_grad():
            for name, value in values.items():
                target = mine[name]
                if target.shape != value.shape or target.dtype != value.dtype:
                    raise Mismatch(
                        f"Tensor {name} is {target.dtype} of shape {tuple(target.shape)} here and "
                        f"{value.dtype} of shape {tuple(value.shape)} at the others. Build the "
                        "same model."
                    )
                raw.write(name, target, value)


@dataclass
class Part:
    """A shared object: `key` identifies it in this process, `name` matches it with those of other
    workers."""

    key: Hashable
    name: str
    owner: Any  # Kept alive, so that its identity is not reused.
    capture: Callable[[], Any]
    restore: Callable[[Any], None]
    tensors: Tensors | None = None
    loaded: bool = False
    # What was loaded of SharedValues for names that had no object here.
    without_object: dict[str, Any] = field(default_factory=dict)

    def values(self) -> list[Any]:
        return list(vars(self.owner).values()) if isinstance(self.owner, SharedValues) else []

    def held(self) -> Iterable[torch.Tensor]:
        """The tensors of a model and of an optimizer, which are almost all of the state."""
        if self.tensors is not None:
            yield from (tensor for _, tensor in self.tensors.list_all())
        if isinstance(self.owner, torch.optim.Optimizer):
            for state in self.owner.state.values():
                yield from (each for each in state.values() if isinstance(each, torch.Tensor))
