# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""The parts of a training's state, as a checkpoint has them: modules, optimizers, other objects
that have a state, and plain values. Each checks a restored value before anything is applied."""

import copy
from collections.abc import Iterable, Mapping
from typing import Any, Protocol

import torch

from basin.errors import DataCorrupt, Error, InvalidArgument, Mismatch
from basin.torch import apart, checkpoint, plain, raw, tensors
from basin.torch.apart import Apart
from basin.torch.checkpoint import Captured
from basin.torch.collectives import load_optimizer
from basin.torch.lazily import check_lazy, materialize
from basin.torch.packing import pack
from basin.torch.shared import SharedValues


class Part(Protocol):
    """
    name: as the user gave it
    kind: what the checkpoint says about its class
    """

    name: str
    kind: str

    def value(self) -> Any:
        """Plain data, whose tensors are not copied."""

    def apart(self, value: Any) -> Apart | None:
        """The value as tensors by key; None: it has no such form."""

    def joined(self, where: str, keys: Iterable[str], content: Mapping[str, Any]) -> Any:
        """The value of which apart() has made this content, with tensors of these keys. Raises
        DataCorrupt if it was made of something else."""

    def settled(self) -> Iterable[torch.Tensor]:
        """Tensors of the value that change in the step of an optimizer, and at no other time."""

    def check(self, where: str, value: Any) -> None:
        """Raises Mismatch unless the value fits."""

    def apply(self, value: Any) -> None:
        """May raise only if it has changed nothing. REQUIRES: check() has passed."""


class ModulePart:
    kind = "module"

    def __init__(self, name: str, module: torch.nn.Module) -> None:
        self.name, self.module = name, module
        self.trained: set[torch.Tensor] = set()  # The parameters that an optimizer steps.

    def value(self) -> dict[str, torch.Tensor]:
        return {name: tensor.detach() for name, tensor in tensors.of_module(self.module)}

    def apart(self, value: Any) -> Apart | None:
        return Apart(self.kind, value)

    def joined(self, where: str, keys: Iterable[str], content: Mapping[str, Any]) -> Any:
        return {key: content[key] for key in keys}

    def settled(self) -> Iterable[torch.Tensor]:
        return self.trained

    def check(self, where: str, value: Any) -> None:
        mine, lazy = self.value(), tensors.lazy_of_module(self.module)
        for name in sorted(mine.keys() ^ value.keys()):
            if name in lazy and name in value:
                check_lazy(name, lazy[name], value[name])
                continue
            side = "only here" if name in mine else f"only in {where}"
            raise Mismatch(
                f"Tensor {name} of {self.name} is {side}: it is the state of another model. Build "
                "the same model; if a forward adds tensors to it, run one first."
            )
        for name, tensor in mine.items():
            theirs = value[name]
            if (tensor.dtype, tensor.shape) != (theirs.dtype, theirs.shape):
                raise Mismatch(
                    f"Tensor {name} of {self.name} is {tensor.dtype} of shape "
                    f"{tuple(tensor.shape)} here and {theirs.dtype} of shape "
                    f"{tuple(theirs.shape)} in {where}: it is the state of another model."
                )
            if raw.shares_elements(tensor):
                raise Mismatch(
                    f"Several elements of tensor {name} of {self.name} share memory (expand() does "
                    "that), so it cannot be restored. Use tensor.contiguous()."
                )

    def apply(self, value: Any) -> None:
        for name, tensor in tensors.lazy_of_module(self.module).items():
            if name in value:
                materialize(name, tensor, value[name])
        with torch.no_grad():
            for name, tensor in tensors.of_module(self.module):
                raw.write(name, tensor, value[name])


class OptimizerPart:
    def __init__(self, name: str, optimizer: torch.optim.Optimizer) -> None:
        self.name, self.optimizer = name, optimizer
        self.kind = type(optimizer).__qualname__
        # The names of its parameters, in the order of their numbers, with that of the module.
        self.names: list[str] = []

    def _name_of(self, number: int) -> str:
        """Parameters may have been added since."""
        return self.names[number] if number < len(self.names) else str(number)

    def value(self) -> dict[str, Any]:
        return self.optimizer.state_dict()

    def apart(self, value: Any) -> Apart | None:
        if (zeros := apart.zeros_of(self.optimizer)) is None:
            return None
        found: dict[str, torch.Tensor] = {}
        places: dict[str, tuple[int, str]] = {}
        state: dict[int, Any] = {}
        for number, numbers in value["state"].items():
            state[number] = {}
            for name, each in numbers.items():
                if isinstance(each, torch.Tensor) and isinstance(name, str):
                    key = f"{self._name_of(number)}.{name}"
                    found[key], places[key] = each, (number, name)
                else:
                    state[number][name] = each
        missing = {
            f"{self._name_of(number)}.{name}": each
            for number, made in enumerate(zeros)
            for name, each in made.items()
        }
        rest = pack({"value": {**value, "state": state}, "places": places})
        zeros_left = {key: each for key, each in missing.items() if key not in found}
        return Apart(self.kind, found, rest, zeros_left)

    def joined(self, where: str, keys: Iterable[str], content: Mapping[str, Any]) -> Any:
        try:
            rest = checkpoint.plain_of(where, self.name, content[apart.REST])
            value, places = rest["value"], rest["places"]
            for key in keys:
                number, name = places[key]
                # The optimizer keeps it, and the content stays the caller's.
                value["state"][number][name] = content[key].clone()
        except (KeyError, TypeError, ValueError) as error:
            raise DataCorrupt(
                f"Part {self.name} of {where} cannot be read: {error!r} is wrong in it. Use an "
                "older checkpoint."
            ) from error
        return value

    def settled(self) -> Iterable[torch.Tensor]:
        for state in self.optimizer.state.values():
            yield from (each for each in state.values() if isinstance(each, torch.Tensor))

    def check(self, where: str, value: Any) -> None:
        mine = [len(group["params"]) for group in self.optimizer.param_groups]
        theirs = [len(group["params"]) for group in value["param_groups"]]
        if mine != theirs:
            raise Mismatch(
                f"The groups of {self.name} have {mine} parameters here and {theirs} in {where}. "
                "Make the same optimizer."
            )

    def apply(self, value: Any) -> None:
        load_optimizer(self.optimizer, value)


class ObjectPart:
    """An object with state_dict() and load_state_dict(), such as a scheduler or a sampler."""

    def __init__(self, name: str, owner: SharedValues) -> None:
        self.name, self._owner = name, owner
        self.kind = type(self._object()).__qualname__

    def _object(self) -> Any:
        return vars(self._owner)[self.name]

    def value(self) -> Any:
        return self._object().state_dict()

    def apart(self, value: Any) -> Apart | None:
        return None

    def joined(self, where: str, keys: Iterable[str], content: Mapping[str, Any]) -> Any:
        raise _not_apart(where, self.name)

    def settled(self) -> Iterable[torch.Tensor]:
        return ()

    def check(self, where: str, value: Any) -> None:
        check = getattr(self._object(), "check_state_dict", None)
        if check is None:
            return  # Only its load_state_dict() can say.
        try:
            check(value)
        except InvalidArgument as error:
            raise Mismatch(f"{self.name} of {where} does not fit: {error}") from error

    def apply(self, value: Any) -> None:
        before = copy.deepcopy(self.value())
        try:
            self._object().load_state_dict(value)
        except Exception as error:
            self._object().load_state_dict(before)
            if isinstance(error, Error):
                raise
            raise Mismatch(f"{self.name} cannot take the restored state: {error!r}.") from error


class ValuesPart:
    """The plain values: counters, the seed."""

    kind = "values"

    def __init__(self, name: str, owner: SharedValues) -> None:
        self.name, self._owner = name, owner

    def value(self) -> dict[str, Any]:
        shared = self._owner.shared().items()
        return {name: value for name, value in shared if not plain.has_state(value)}

    def apart(self, value: Any) -> Apart | None:
        return None

    def joined(self, where: str, keys: Iterable[str], content: Mapping[str, Any]) -> Any:
        raise _not_apart(where, self.name)

    def settled(self) -> Iterable[torch.Tensor]:
        return ()

    def check(self, where: str, value: Any) -> None:
        mine = self.value()
        for name in sorted(mine.keys() ^ value.keys()):
            side = "only here" if name in mine else f"only in {where}"
            raise Mismatch(f"The value {name} is {side}. Give State the same names.")

    def apply(self, value: Any) -> None:
        vars(self._owner).update(value)


def _not_apart(where: str, name: str) -> DataCorrupt:
    return DataCorrupt(
        f"Part {name} of {where} has tensors by key, and this State has none there. Make the same "
        "objects as the script that wrote it."
    )


def captured(parts: Mapping[str, Part]) -> dict[str, Captured | Apart]:
    """The values, as tensors by key where they have that form. Raises InvalidArgument, with the
    name of the part, for what is not plain data."""
    made: dict[str, Captured | Apart] = {}
    for name, part in parts.items():
        value = part.value()
        plain.check(name, value)
        made[name] = part.apart(value) or Captured.of(name, part.kind, value)
    return made


def unwrapped(module: torch.nn.Module) -> torch.nn.Module:
    """The module in a wrapper whose own tensors it has none of: DistributedDataParallel, here or in
    torch, or a compiled module."""
    while True:
        kind = type(module).__name__
        if kind in ("DistributedDataParallel", "DataParallel"):
            module = module.get_submodule("module")
        elif kind == "OptimizedModule":
            module = module.get_submodule("_orig_mod")
        else:
            return module


def check_belongs(modules: Iterable[ModulePart], optimizers: Iterable[OptimizerPart]) -> None:
    """Raises InvalidArgument for an optimizer that steps a parameter of no module here, and notes
    which parameters are stepped."""
    homes: dict[torch.Tensor, tuple[ModulePart, str]] = {}
    for part in modules:
        for name, parameter in tensors.parameters_of(part.module, remove_duplicate=False):
            homes.setdefault(parameter, (part, f"{part.name}.{name}"))
    for optimizer in optimizers:
        for g, group in enumerate(optimizer.optimizer.param_groups):
            for i, parameter in enumerate(group["params"]):
                home = homes.get(parameter)
                if home is None:
                    raise InvalidArgument(
                        f"Parameter {i} of group {g} of {optimizer.name}, of shape "
                        f"{tuple(parameter.shape)}, is in none of the modules that State was "
                        "given. Give it the module of that parameter, too."
                    )
                module, full = home
                module.trained.add(parameter)
                optimizer.names.append(full)


def apply_all(parts: Mapping[str, Part], where: str, values: Mapping[str, Any]) -> None:
    """Restores all parts or, if one of them refuses its value, none."""
    for name, part in parts.items():
        part.check(where, values[name])
    order: list[type[Any]] = [ObjectPart, OptimizerPart, ValuesPart, ModulePart]
    # Objects of the user may refuse, so they are first, and the modules, which cannot, are last.
    undo: list[tuple[Part, Any]] = []
    try:
        for name, part in sorted(parts.items(), key=lambda each: order.index(type(each[1]))):
            if not isinstance(part, ModulePart):
                undo.append((part, copy.deepcopy(part.value())))
            part.apply(values[name])
    except BaseException:
        for part, before in reversed(undo[:-1]):
            part.apply(before)
        raise


def check_plain(name: str, value: Any) -> None:
    """Raises InvalidArgument for what cannot be in the state, by name."""
    if isinstance(value, torch.nn.Module | torch.optim.Optimizer):
        raise InvalidArgument(
            f"{name} is a {type(value).__qualname__}. Give modules and optimizers to State() when "
            "it is made."
        )
    if not plain.has_state(value):
        plain.check(name, value)
