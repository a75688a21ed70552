# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""The tensors that a gradient lane reduces: the present parameters of a model.

They may change between rounds: a lazy parameter gets a shape, a frozen one is unfrozen, the model
is converted to another dtype, a parameter or a module is replaced by another object. scan() detects
this before anything is pushed, and register() reports it to the job. In a job, a tensor has one
dtype and shape forever, so a parameter that changes them is registered again, under a name that
contains them.

A new object in the place of a parameter is adopted. Workers compare its values in the next round,
through the layout, because each of them may have made its own. The same holds for the values that a
forward has given to a lazy parameter, unless it is in a model that is shared: then it has those of
rank 0, and is left out while it is pending (lazily.py). A parameter in a new place has no
counterpart, and is refused.
"""

import hashlib
import itertools
import operator
import weakref
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

import torch
from torch.utils.hooks import RemovableHandle

from basin import _abi
from basin.errors import FailedPrecondition, Mismatch, Unsupported
from basin.lane.gradient import Gradient
from basin.torch import device, merging, raw, tensors
from basin.torch.delivered import Delivered
from basin.torch.layout import WITH_VALUES
from basin.torch.lazily import LazyTensors
from basin.worker import TensorSpec, Worker

Hook = Callable[[torch.Tensor], None]


class TensorGradient(Gradient[torch.Tensor, torch.Tensor]):
    """The gradient of a parameter, as of the last scan.

    spec, dtype, shape:
             those of a gradient
    cuda:    the index of the CUDA device that it is on; negative on the CPU
    result:  the last result, if .grad is one
    handle:  its tensor in the client; -1 until it is registered
    address: of the memory that was sent last
    stream:  of the CUDA device, in which the gradient was accumulated last
    places:  of the rows that were sent, if the gradient is sparse; None: it is not
    """

    __slots__ = (
        "address",
        "cuda",
        "dtype",
        "handle",
        "places",
        "result",
        "shape",
        "spec",
        "stream",
    )

    def __init__(self, parameter: torch.Tensor, name: str) -> None:
        super().__init__(parameter, 0)
        self.adopt(name)

    def adopt(self, name: str) -> None:
        """The parameter has this dtype, shape and device from now on, and is to be registered."""
        parameter = self.parameter
        self.spec = tensors.spec_of_gradient(name, parameter)
        self.dtype, self.shape = raw.gradient_dtype(parameter), parameter.shape
        self.bytes = parameter.numel() * self.dtype.itemsize
        self.cuda = device.cuda_index(parameter)
        self.result = Delivered(parameter.numel(), self.dtype.itemsize)
        self.handle, self.address, self.stream = -1, 0, 0
        self.places: torch.Tensor | None = None


class _Model:
    """A model as of the last scan.

    parts:   what each of its submodules holds, by name: parameters, and other submodules
    seen:    its parameters, by full name; a tied one has several
    outside: those that were not to be reduced from the start
    """

    def __init__(self, module: torch.nn.Module, names: Mapping[torch.Tensor, str]) -> None:
        self.outside: set[torch.Tensor] = set()
        self.update(module)
        self.outside = {each for each in self.seen.values() if each not in names}

    def update(self, module: torch.nn.Module) -> None:
        self.parts: list[Mapping[str, object]] = []
        for part in module.modules():
            self.parts += (part._parameters, part._modules)
        self.seen = _parameters_of(module)


def _parameters_of(module: torch.nn.Module) -> dict[str, torch.Tensor]:
    return dict(tensors.parameters_of(module, remove_duplicate=False))


# What may change between two scans without another object.
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
    lazy:      the tensors that the first forward of a shared model gives values to
    """

    def __init__(
        self,
        worker: Worker,
        lane: str,
        names: Mapping[torch.Tensor, str],
        hook_of: Callable[[TensorGradient], Hook],
        modules: Callable[[], Iterable[torch.nn.Module]],
        optimizer: torch.optim.Optimizer | None,
        lazy: LazyTensors,
    ) -> None:
        self._worker = worker
        self._lane = lane
        self._shared_lazily = lazy
        self._names = dict(names)
        self._hook_of = hook_of
        self.reached: Hook = lambda _: None  # The hook of a parameter that was refused.
        self._modules = modules
        self._optimizer = optimizer
        self._hooks: dict[torch.Tensor, RemovableHandle] = {}
        self.gradients: dict[torch.Tensor, TensorGradient] = {}
        # From the last scan that was finished, to see quickly that nothing has changed since.
        self._finished = False
        self._dtypes: list[torch.dtype | None] = []
        self._shapes: list[torch.Size] = []
        self._devices: list[int] = []
        self.on_cuda = False  # Whether any of them is on a CUDA device.
        self._requiring: list[bool] = []  # Whether each requires a gradient.
        self._contained: list[object] = []  # What all submodules contain.
        self._registered: dict[str, TensorSpec] = {}  # By name: the first registration.
        self._models: dict[int, _Model] = {}  # By identity.
        # Added after the start: those that are refused, and those that would be, but are frozen.
        self._refused: list[RemovableHandle] = []
        self._frozen: list[torch.Tensor] = []
        # Whose values the others have to have, too, with a hash of them.
        self._adopted: dict[torch.Tensor, str] = {}
        self._replaced: dict[int, weakref.ref[torch.Tensor]] = {}  # By identity.
        # That had no values yet when the lane began.
        self._lazy = {each for each in self._names if torch.nn.parameter.is_lazy(each)}
        for parameter in self._names:
            self._can_be_reduced(parameter)

    # ---- queries

    def name_of(self, parameter: torch.Tensor) -> str:
        return self._names[parameter]

    def knows(self, parameter: torch.Tensor) -> bool:
        return parameter in self._names

    @property
    def names(self) -> Mapping[torch.Tensor, str]:
        """Those that are reduced, as of the last scan."""
        return self._names

    def settled(self) -> Mapping[torch.Tensor, str]:
        """Those of `names` that are the same on all workers."""
        pending = self._shared_lazily.pending
        return {each: name for each, name in self._names.items() if each not in pending}

    def was_replaced(self, parameter: torch.Tensor) -> bool:
        """Whether another object has replaced the parameter in the model."""
        replaced = self._replaced.get(id(parameter))
        return replaced is not None and replaced() is parameter

    def are_present(self, parameters: Iterable[torch.Tensor], known: bool) -> bool:
        """Whether no parameter was ever replaced and, if `known`, these are all parameters of this
        lane. Called in each step."""
        return not self._replaced and (not known or all(map(self._names.__contains__, parameters)))

    def layout(self) -> list[TensorSpec]:
        """The tensors that require gradients, with the values of those that were just adopted."""
        return [
            replace(taken.spec, name=taken.spec.name + self._adopted.get(parameter, ""))
            for parameter, taken in self.gradients.items()
            if parameter.requires_grad
        ]

    def have_compared(self) -> None:
        """A round has compared the layout, and the next one need not compare values."""
        if self._adopted:
            self._adopted.clear()
            self._finished = False

    def check_gradient(self, parameter: torch.Tensor, gradient: torch.Tensor) -> None:
        """Raises Unsupported if the gradient cannot be reduced, and Mismatch if its dtype or shape
        differs from the registered parameter's."""
        name = self._names[parameter]
        if not merging.is_sparse(gradient):
            tensors.check(f"{name}.grad", gradient)
        taken = self.gradients[parameter]
        if gradient.dtype == taken.dtype and gradient.shape == taken.shape:
            return
        raise Mismatch(
            f"The gradient of parameter {name} is {gradient.dtype} of shape "
            f"{tuple(gradient.shape)}, but lane {self._lane} reduces it as "
            f"{taken.dtype} of shape {tuple(taken.shape)}: the parameter was converted during the "
            "step, or its grad_dtype allows another dtype. Convert the model between step() and "
            "the next backward(), and set grad_dtype to the dtype of the gradient."
        )

    # ---- changes

    def scan(self) -> bool:
        """Adopts the present parameters. Returns whether anything has changed since the scan before
        finish_scan(). REQUIRES: no round is in flight."""
        if self._finished and not self._has_changed():
            return False
        self._finished = False
        for hook in self._refused:
            hook.remove()
        self._refused.clear()
        self._take_over()
        for parameter in self._names:
            taken = self.gradients.get(parameter)
            if taken is None:
                if self._can_be_reduced(parameter):
                    name = self._names[parameter]
                    self.gradients[parameter] = TensorGradient(parameter, name)
                    if parameter in self._lazy:
                        self._lazy.discard(parameter)
                        if not self._shared_lazily.was_shared(parameter):
                            self._adopt(parameter, "made by a forward")
                continue
            if parameter in self._shared_lazily.pending:
                del self.gradients[parameter]
                if parameter in self._hooks:
                    self._hooks.pop(parameter).remove()
                continue
            if (raw.gradient_dtype(parameter), parameter.shape) != (taken.dtype, taken.shape):
                self._can_be_reduced(parameter)  # Raises if it cannot be reduced.
                taken.adopt(self._names[parameter])
            elif device.cuda_index(parameter) != taken.cuda:
                self._can_be_reduced(parameter)
                taken.cuda = device.cuda_index(parameter)
                taken.result.drop()
        self._add_hooks()
        for parameter in self.gradients:
            if len(_hooks_of(parameter) or ()) > 1:
                raise Unsupported(
                    f"Parameter {self._names[parameter]} has another post-accumulate hook, which "
                    "would see or change the gradient before it is reduced (an optimizer fused "
                    "into the backward does that). Remove it, and use .grad after backward() has "
                    "returned."
                )
        return True

    def register(self) -> None:
        """Gives each adopted parameter a handle. REQUIRES: no round is in flight."""
        new = [parameter for parameter, taken in self.gradients.items() if taken.handle < 0]
        if not new:
            return
        specs = []
        for parameter in new:
            spec = self.gradients[parameter].spec
            first = self._registered.setdefault(self._names[parameter], spec)
            if (first.dtype, first.shape) != (spec.dtype, spec.shape):
                dtype = str(tensors.torch_dtype(spec.dtype)).removeprefix("torch.")
                spec = replace(spec, name=f"{spec.name} as {dtype} {spec.shape}")
            specs.append(spec)
        _, handles = self._worker.register(self._lane, _abi.GRADIENT, specs)
        for parameter, handle in zip(new, handles, strict=True):
            self.gradients[parameter].handle = handle

    def finish_scan(self) -> None:
        """The parameters are registered, and all else that depends on them is done."""
        self._dtypes = list(map(raw.grad_dtype_of, self.gradients))
        self._shapes = list(map(_shape_of, self.gradients))
        self._devices = device.cuda_indices(self.gradients)
        self._requiring = list(map(_requires_grad_of, self.gradients))
        self._contained = self._now_contained()
        self._finished = True

    def close(self) -> None:
        """Removes the hooks."""
        for hook in (*self._hooks.values(), *self._refused):
            hook.remove()
        self._hooks.clear()
        self._refused.clear()

    def _add_hooks(self) -> None:
        """Adds the hooks that are missing. Adds all of them again if some are called in threads of
        CUDA devices from now on, or none is any more: then the others differ as well."""
        on_cuda = any(taken.cuda >= 0 for taken in self.gradients.values())
        if on_cuda != self.on_cuda:
            self.on_cuda = on_cuda
            for hook in self._hooks.values():
                hook.remove()
            self._hooks.clear()
        for parameter, taken in self.gradients.items():
            if parameter not in self._hooks:
                called = self._hook_of(taken)
                self._hooks[parameter] = parameter.register_post_accumulate_grad_hook(called)

    def _has_changed(self) -> bool:
        """Whether anything that scan() looks at is different. Called often: the loops are those of
        builtin functions."""
        contained = self._now_contained()
        pending = self._shared_lazily.pending
        return (
            len(contained) != len(self._contained)
            or not all(map(operator.is_, contained, self._contained))
            or any(id(module) not in self._models for module in self._modules())
            or any(map(_requires_grad_of, self._frozen))
            or not all(map(operator.is_, map(raw.grad_dtype_of, self.gradients), self._dtypes))
            or not all(map(operator.eq, map(_shape_of, self.gradients), self._shapes))
            or device.cuda_indices(self.gradients) != self._devices
            or not all(map(operator.is_, map(_requires_grad_of, self.gradients), self._requiring))
            or max(map(len, filter(None, map(_hooks_of, self.gradients))), default=0) > 1
            or (bool(pending) and not pending.isdisjoint(self.gradients))
            or (
                len(self.gradients) < len(self._names)
                and any(
                    self._can_be_reduced(parameter)
                    for parameter in self._names
                    if parameter not in self.gradients
                )
            )
        )

    def _now_contained(self) -> list[object]:
        parts = itertools.chain.from_iterable(model.parts for model in self._models.values())
        return list(itertools.chain.from_iterable(part.values() for part in parts))

    def _can_be_reduced(self, parameter: torch.Tensor) -> bool:
        if not parameter.requires_grad or torch.nn.parameter.is_lazy(parameter):
            return False
        if parameter in self._shared_lazily.pending:
            return False
        tensors.check_memory(self._names[parameter], parameter)
        tensors.check_dtype(self._names[parameter], raw.gradient_dtype(parameter))
        return parameter.numel() > 0

    def _take_over(self) -> None:
        """Finds parameters that were replaced by other objects, and adopts the new ones. Refuses
        parameters in new places."""
        added: dict[torch.Tensor, str] = {}
        modules = list(self._modules())
        in_use = {each for module in modules for each in _parameters_of(module).values()}
        for module in modules:
            model = self._models.get(id(module))
            if model is None:
                self._models[id(module)] = _Model(module, self._names)
                continue
            for name, now in _parameters_of(module).items():
                if now in self._names or now in model.outside:
                    continue
                before = model.seen.get(name)
                if before is not None and before in self._names and before not in in_use:
                    self._replace(before, now)
                else:
                    added[now] = name
            model.update(module)
        self._check_added(added)

    def _check_added(self, added: Mapping[torch.Tensor, str]) -> None:
        """Refuses them, unless an optimizer says what is trained. They stay refused as long as they
        are in the model and require gradients."""
        self._frozen = []
        if self._optimizer is not None:
            return
        self._frozen = [parameter for parameter in added if not parameter.requires_grad]
        refused = [parameter for parameter in added if parameter.requires_grad]
        if not refused:
            return
        for parameter in refused:
            self._refuse(parameter)
        more = f" (and {len(refused) - 1} more)" if len(refused) > 1 else ""
        raise FailedPrecondition(
            f"Parameter {added[refused[0]]} of shape {tuple(refused[0].shape)}{more} was added to "
            f"the model after lane {self._lane} was created, which does not reduce it. Add "
            "parameters before that: modules, adapters and parametrizations belong into the model "
            "before it is wrapped."
        )

    def _refuse(self, parameter: torch.Tensor) -> None:
        """Lets the lane know of a backward that reaches it."""
        if not _hooks_of(parameter) and not torch.nn.parameter.is_lazy(parameter):
            self._refused.append(parameter.register_post_accumulate_grad_hook(self.reached))

    def _replace(self, before: torch.Tensor, now: torch.Tensor) -> None:
        name = self._names[before]
        if self._optimizer is not None and all(
            each is not now for group in self._optimizer.param_groups for each in group["params"]
        ):
            if now.requires_grad:
                self._refuse(now)
            raise FailedPrecondition(
                f"Parameter {name} of the model was replaced by another object (an assignment, or "
                "load_state_dict(assign=True)), but the optimizer still has the old one, which is "
                "no longer trained. Replace parameters before the optimizer is created, or put "
                "the new one into its param_groups."
            )
        self._names = {now if each is before else each: n for each, n in self._names.items()}
        self.gradients.pop(before, None)
        if (hook := self._hooks.pop(before, None)) is not None:
            hook.remove()
        self._replaced[id(before)] = weakref.ref(before)
        self._replaced.pop(id(now), None)
        self._adopted.pop(before, None)
        if torch.nn.parameter.is_lazy(now):
            self._lazy.add(now)
        elif self._can_be_reduced(now):
            self._adopt(now, "replaced by one")

    def _adopt(self, parameter: torch.Tensor, how: str) -> None:
        self._adopted[parameter] = f" {how}{WITH_VALUES}{_hash_of(parameter)}"


def _hash_of(parameter: torch.Tensor) -> str:
    """Returns a hash of its numbers."""
    numbers = raw.bytes_on_host(parameter).numpy()
    return hashlib.blake2b(numbers.data, digest_size=8).hexdigest()
