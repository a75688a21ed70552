# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""The tensors that a gradient lane reduces: the present parameters of a model.

They may change between rounds: a lazy parameter gets a shape, a frozen one is unfrozen, the model
is converted to another dtype, a parameter is replaced by another object. scan() detects this before
anything is pushed, and register() reports it to the job. In a job, a tensor has one dtype and shape
forever, so a parameter that changes them is registered again, under a name that contains them.
"""

import itertools
import operator
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

import torch
from torch.utils.hooks import RemovableHandle

from basin import _abi
from basin.errors import FailedPrecondition, Mismatch, Unsupported
from basin.torch import device, tensors
from basin.torch.delivered import Delivered
from basin.worker import TensorSpec, Worker


@dataclass(slots=True, eq=False)
class Reduced:
    """A parameter whose gradients are reduced, as of the last scan.

    bytes:   of a gradient
    cuda:    the index of the CUDA device that it is on; negative on the CPU
    result:  the last result, if .grad is one
    handle:  its tensor in the client; -1 until it is registered
    address: of the gradient that was sent last
    stream:  of the CUDA device, in which the gradient was accumulated last
    """

    spec: TensorSpec
    dtype: torch.dtype
    shape: torch.Size
    bytes: int
    cuda: int
    result: Delivered
    handle: int = -1
    address: int = 0
    stream: int = 0

    def become(self, other: "Reduced") -> None:
        for name in self.__slots__:
            setattr(self, name, getattr(other, name))


@dataclass
class _Place:
    """The present parameters of one submodule, and those of the last scan."""

    now: Mapping[str, torch.Tensor | None]
    seen: dict[str, torch.Tensor | None]


# What may change between two scans without another object.
_dtype_of = operator.attrgetter("dtype")
_shape_of = operator.attrgetter("shape")
_requires_grad_of = operator.attrgetter("requires_grad")
_hooks_of = operator.attrgetter("_post_accumulate_grad_hooks")


class Parameters:
    """
    lane:      the name of their lane
    names:     the names by which gradients of different workers are matched
    hook_of:   returns the hook of a parameter, to be called when its gradient was accumulated
    modules:   models that may contain them, to detect replaced parameters
    optimizer: the optimizer that all parameters belong to, if it is known
    """

    def __init__(
        self,
        worker: Worker,
        lane: str,
        names: Mapping[torch.Tensor, str],
        hook_of: Callable[[torch.Tensor], Callable[[torch.Tensor], None]],
        modules: Callable[[], Iterable[torch.nn.Module]],
        optimizer: torch.optim.Optimizer | None,
    ) -> None:
        self._worker = worker
        self._lane = lane
        self._names = dict(names)
        self._hook_of = hook_of
        self._modules = modules
        self._optimizer = optimizer
        self._hooks: dict[torch.Tensor, RemovableHandle] = {}
        self._taken: dict[torch.Tensor, Reduced] = {}
        # From the last scan that was finished, to see quickly that nothing has changed since.
        self._finished = False
        self._dtypes: list[torch.dtype] = []
        self._shapes: list[torch.Size] = []
        self._devices: list[int] = []
        self.on_cuda = False  # Whether any of them is on a CUDA device.
        self._requiring: list[bool] = []  # Whether each requires a gradient.
        self._contained: list[torch.Tensor | None] = []  # The parameters of all submodules.
        self._registered: dict[str, TensorSpec] = {}  # By name: the first registration.
        self._places: dict[int, list[_Place]] = {}  # By model.
        self._replaced: dict[int, weakref.ref[torch.Tensor]] = {}  # By identity.
        for parameter in self._names:
            self._can_be_reduced(parameter)

    # ---- queries

    def name_of(self, parameter: torch.Tensor) -> str:
        return self._names[parameter]

    def knows(self, parameter: torch.Tensor) -> bool:
        return parameter in self._names

    def was_replaced(self, parameter: torch.Tensor) -> bool:
        """Whether another object has replaced the parameter in the model."""
        replaced = self._replaced.get(id(parameter))
        return replaced is not None and replaced() is parameter

    def are_present(self, parameters: Iterable[torch.Tensor], known: bool) -> bool:
        """Whether no parameter was ever replaced and, if `known`, these are all parameters of this
        lane. Called in each step."""
        return not self._replaced and (not known or all(map(self._names.__contains__, parameters)))

    def __iter__(self) -> Iterator[torch.Tensor]:
        """The parameters that can be reduced, as of the last scan."""
        return iter(self._taken)

    def __contains__(self, parameter: torch.Tensor) -> bool:
        return parameter in self._taken

    def facts(self, parameter: torch.Tensor) -> Reduced:
        """Those of a parameter that can be reduced, in an object that scan() updates."""
        return self._taken[parameter]

    def result_of(self, parameter: torch.Tensor) -> Delivered | None:
        """Its last result; None for a parameter without."""
        taken = self._taken.get(parameter)
        return None if taken is None else taken.result

    def layout(self) -> list[TensorSpec]:
        """The tensors that require gradients."""
        return [taken.spec for parameter, taken in self._taken.items() if parameter.requires_grad]

    def check_gradient(self, parameter: torch.Tensor, gradient: torch.Tensor) -> None:
        """Raises Unsupported if the gradient cannot be reduced, and Mismatch if its dtype or shape
        differs from the registered parameter's."""
        name = self._names[parameter]
        tensors.check(f"{name}.grad", gradient)
        taken = self._taken[parameter]
        if gradient.dtype == taken.dtype and gradient.shape == taken.shape:
            return
        raise Mismatch(
            f"The gradient of parameter {name} is {gradient.dtype} of shape "
            f"{tuple(gradient.shape)}, but lane {self._lane} reduces it as "
            f"{taken.dtype} of shape {tuple(taken.shape)}: the parameter was converted "
            "during the step. Convert the model between step() and the next backward()."
        )

    # ---- changes

    def scan(self) -> list[torch.Tensor] | None:
        """Adopts the present parameters. Returns those that were replaced; None if nothing has
        changed since the scan before finish_scan(). REQUIRES: no round is in flight."""
        if self._finished and not self._has_changed():
            return None
        self._finished = False
        replaced = self._take_over()
        for parameter in self._names:
            taken = self._taken.get(parameter)
            if taken is None:
                if self._can_be_reduced(parameter):
                    self._taken[parameter] = self._take(parameter)
                continue
            if parameter.dtype != taken.dtype or parameter.shape != taken.shape:
                self._can_be_reduced(parameter)  # Raises if it cannot be reduced.
                taken.become(self._take(parameter))
            elif device.cuda_index(parameter) != taken.cuda:
                self._can_be_reduced(parameter)
                taken.cuda = device.cuda_index(parameter)
                taken.result.drop()
        self._add_hooks()
        for parameter in self._taken:
            if len(_hooks_of(parameter) or ()) > 1:
                raise Unsupported(
                    f"Parameter {self._names[parameter]} has another post-accumulate hook, which "
                    "would see or change the gradient before it is reduced (an optimizer fused "
                    "into the backward does that). Remove it, and use .grad after backward() has "
                    "returned."
                )
        return replaced

    def register(self) -> None:
        """Gives each adopted parameter a handle. REQUIRES: no round is in flight."""
        new = [parameter for parameter, taken in self._taken.items() if taken.handle < 0]
        if not new:
            return
        specs = []
        for parameter in new:
            spec = self._taken[parameter].spec
            first = self._registered.setdefault(self._names[parameter], spec)
            if (first.dtype, first.shape) != (spec.dtype, spec.shape):
                dtype = str(tensors.torch_dtype(spec.dtype)).removeprefix("torch.")
                spec = replace(spec, name=f"{spec.name} as {dtype} {spec.shape}")
            specs.append(spec)
        _, handles = self._worker.register(self._lane, _abi.GRADIENT, specs)
        for parameter, handle in zip(new, handles, strict=True):
            self._taken[parameter].handle = handle

    def finish_scan(self) -> None:
        """The parameters are registered, and all else that depends on them is done."""
        self._dtypes = list(map(_dtype_of, self._taken))
        self._shapes = list(map(_shape_of, self._taken))
        self._devices = device.cuda_indices(self._taken)
        self._requiring = list(map(_requires_grad_of, self._taken))
        self._contained = self._now_contained()
        self._finished = True

    def close(self) -> None:
        """Removes the hooks."""
        for hook in self._hooks.values():
            hook.remove()
        self._hooks.clear()

    def _take(self, parameter: torch.Tensor) -> Reduced:
        dtype, shape = parameter.dtype, parameter.shape
        return Reduced(
            tensors.spec_of(self._names[parameter], parameter),
            dtype,
            shape,
            tensors.bytes_of(parameter),
            device.cuda_index(parameter),
            Delivered(parameter.numel(), parameter.element_size()),
        )

    def _add_hooks(self) -> None:
        """Adds the hooks that are missing. Adds all of them again if some are called in threads of
        CUDA devices from now on, or none is any more: then the others differ as well."""
        on_cuda = any(taken.cuda >= 0 for taken in self._taken.values())
        if on_cuda != self.on_cuda:
            self.on_cuda = on_cuda
            self.close()
        for parameter in self._taken:
            if parameter not in self._hooks:
                hook = self._hook_of(parameter)
                self._hooks[parameter] = parameter.register_post_accumulate_grad_hook(hook)

    def _has_changed(self) -> bool:
        """Whether anything that scan() looks at is different. Called often: the loops are those of
        builtin functions."""
        contained = self._now_contained()
        return (
            len(contained) != len(self._contained)
            or not all(map(operator.is_, contained, self._contained))
            or any(id(module) not in self._places for module in self._modules())
            or not all(map(operator.is_, map(_dtype_of, self._taken), self._dtypes))
            or not all(map(operator.eq, map(_shape_of, self._taken), self._shapes))
            or device.cuda_indices(self._taken) != self._devices
            or not all(map(operator.is_, map(_requires_grad_of, self._taken), self._requiring))
            or max(map(len, filter(None, map(_hooks_of, self._taken))), default=0) > 1
            or (
                len(self._taken) < len(self._names)
                and any(
                    self._can_be_reduced(parameter)
                    for parameter in self._names
                    if parameter not in self._taken
                )
            )
        )

    def _now_contained(self) -> list[torch.Tensor | None]:
        places = itertools.chain.from_iterable(self._places.values())
        return list(itertools.chain.from_iterable(place.now.values() for place in places))

    def _can_be_reduced(self, parameter: torch.Tensor) -> bool:
        if not parameter.requires_grad or torch.nn.parameter.is_lazy(parameter):
            return False
        tensors.check(self._names[parameter], parameter)
        return parameter.numel() > 0

    def _take_over(self) -> list[torch.Tensor]:
        """Finds parameters that were replaced by other objects, adopts the new ones, and returns
        the old ones."""
        gone = []
        for place in itertools.chain.from_iterable(self._places.values()):
            for key, now in place.now.items():
                before = place.seen.get(key)
                if now is before:
                    continue
                if now is not None and now not in self._names:
                    if before is None or before not in self._names or self._is_in_use(before):
                        self._check_added(key, now)
                    else:
                        self._replace(before, now)
                        gone.append(before)
                place.seen[key] = now
        for module in self._modules():
            if id(module) not in self._places:
                self._places[id(module)] = [
                    _Place(part._parameters, dict(part._parameters)) for part in module.modules()
                ]
        return gone

    def _is_in_use(self, parameter: torch.Tensor) -> bool:
        """Whether the model still contains it in another place, to which it was tied."""
        return any(
            now is parameter
            for place in itertools.chain.from_iterable(self._places.values())
            for now in place.now.values()
        )

    def _check_added(self, key: str, parameter: torch.Tensor) -> None:
        if self._optimizer is None and parameter.requires_grad:
            raise FailedPrecondition(
                f"Parameter {key} of shape {tuple(parameter.shape)} was added to the model after "
                f"lane {self._lane} was created, which does not reduce it. Add parameters before "
                "that."
            )

    def _replace(self, before: torch.Tensor, now: torch.Tensor) -> None:
        name = self._names[before]
        if self._optimizer is not None and all(
            each is not now for group in self._optimizer.param_groups for each in group["params"]
        ):
            raise FailedPrecondition(
                f"Parameter {name} of the model was replaced by another object (an assignment, or "
                "load_state_dict(assign=True)), but the optimizer still has the old one, which is "
                "no longer trained. Replace parameters before the optimizer is created, or put "
                "the new one into its param_groups."
            )
        self._names = {now if each is before else each: n for each, n in self._names.items()}
        self._taken.pop(before, None)
        if (hook := self._hooks.pop(before, None)) is not None:
            hook.remove()
        self._replaced[id(before)] = weakref.ref(before)
        self._replaced.pop(id(now), None)
