# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""The parameters of a gradient lane and their .grad: in which form a gradient is sent, and how the
result of a round gets to its place."""

import operator
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import torch

from basin.errors import FailedPrecondition, InvalidArgument, Unsupported
from basin.lane.deferred import Shares
from basin.torch import device, merging, raw
from basin.torch.layout import LayoutCheck
from basin.torch.lazily import LazyTensors
from basin.torch.optimizer_numbers import OptimizerNumbers
from basin.torch.parameter_values import ParameterValues
from basin.torch.parameters import Hook, Parameters, TensorGradient
from basin.worker import Worker

_held_by = operator.attrgetter("parameter.grad")


class TensorStore:
    """
    lane, owner:
               those of the lane: its name, and see basin.lane.Lane
    own_hooks: see basin.lane.gradients.Store
    names:     the parameters, with the names by which workers match them
    modules:   models that may contain the parameters
    optimizer: the optimizer that all parameters belong to, if it is known
    lazy:      those that the first forward of a shared model gives values to
    compared:  whether all workers must have gradients of the same tensors
    optimizer_compared:
               whether they must then have the same numbers in their optimizers, too
    parameters_compared:
               the steps from one comparison of the parameters to the next; 0: none
    sparse_as_dense:
               makes sparse gradients dense when a backward has accumulated them
    """

    def __init__(
        self,
        worker: Worker,
        lane: str,
        names: Mapping[torch.Tensor, str],
        *,
        owner: str,
        own_hooks: bool,
        modules: Callable[[], Iterable[torch.nn.Module]],
        optimizer: torch.optim.Optimizer | None,
        lazy: LazyTensors,
        compared: bool,
        optimizer_compared: bool,
        parameters_compared: int = 0,
        sparse_as_dense: bool = False,
    ) -> None:
        self._lane = lane
        self._sparse_as_dense = sparse_as_dense
        # Raises Unsupported if the sparse gradient of the parameter with this name cannot be sent.
        self.check_sparse: Callable[[str], None] = lambda _: None
        self._owner = owner
        self.own_hooks = own_hooks
        self.optimizer = optimizer
        # Each CUDA device has a thread of autograd, and their hooks come at the same time.
        self._hooked = threading.RLock()
        self._in_hook = False
        self.parameters = Parameters(
            worker, lane, names, self._hook_on_device, modules, optimizer, lazy
        )
        # Groups are known by the names of parameters.
        self.numbers: OptimizerNumbers | None = None
        if optimizer is not None and optimizer_compared and compared:
            self.numbers = OptimizerNumbers(optimizer, names)
        values = None
        if parameters_compared:
            values = ParameterValues(self.parameters.settled, parameters_compared)
        self.layout = LayoutCheck(worker, lane, compared, values)

    # ---- parameters

    def connect(self, hook_of: Callable[[TensorGradient], Hook], reached: Hook) -> None:
        self._hook_of, self.parameters.reached = hook_of, reached

    @property
    def gradients(self) -> Mapping[torch.Tensor, TensorGradient]:
        return self.parameters.gradients

    def scan(self) -> bool:
        if not self.parameters.scan():
            return False
        self.parameters.register()
        # Not during a backward, where compiled autograd would trace it.
        self.layout.take(self.parameters.layout())
        self.parameters.finish_scan()
        return True

    def _hook_on_device(self, each: TensorGradient) -> Hook:
        """The hook of a parameter. If any is on a CUDA device, hooks come at the same time. One
        that is there notes the stream in which its gradient was accumulated: it may be sent from a
        thread or a hook with another one."""
        hook = self._hook_of(each)
        if self._sparse_as_dense:
            hook = _densely(hook)
        if not self.parameters.on_cuda:
            return hook

        def hook_on_cuda(of: torch.Tensor) -> None:
            with self._hooked:
                if each.cuda >= 0:
                    each.stream = device.stream_of(each.cuda)
                self._in_hook = True
                try:
                    hook(of)
                finally:
                    self._in_hook = False

        return hook_on_cuda

    def name_of(self, parameter: torch.Tensor) -> str:
        return self.parameters.name_of(parameter)

    def not_reduced(self, parameter: torch.Tensor) -> str:
        return (
            f"A parameter of shape {tuple(parameter.shape)} is not one of lane {self._lane}. "
            f"Create {self._owner} from the model with which it is used."
        )

    def parameters_of(self, optimizer: torch.optim.Optimizer) -> Iterator[torch.Tensor]:
        return parameters_of(optimizer)

    def check_optimizer(self, optimizer: torch.optim.Optimizer, call: str) -> None:
        if self.parameters.are_present(parameters_of(optimizer), optimizer is self.optimizer):
            return
        for parameter in parameters_of(optimizer):
            if self.parameters.was_replaced(parameter):
                raise FailedPrecondition(
                    f"{call} was called on an optimizer with a parameter of shape "
                    f"{tuple(parameter.shape)} that the model has replaced by another object (an "
                    "assignment, or load_state_dict(assign=True)), so the new one would not be "
                    "trained. Create the optimizer after parameters are replaced, or put the new "
                    "one into its param_groups."
                )
            if optimizer is self.optimizer and not self.parameters.knows(parameter):
                raise InvalidArgument(
                    f"A parameter of shape {tuple(parameter.shape)} was added to the optimizer "
                    "after DistributedOptimizer(). Add parameter groups before that."
                )

    # ---- .grad

    def grad(self, parameter: torch.Tensor) -> torch.Tensor | None:
        return parameter.grad

    def held(self, gradients: Iterable[TensorGradient]) -> list[torch.Tensor | None]:
        return list(map(_held_by, gradients))

    def set_grad(self, parameter: torch.Tensor, gradient: torch.Tensor | None) -> None:
        if gradient is not None and not raw.may_hold(parameter, gradient):
            gradient = gradient.to(raw.gradient_dtype(parameter))
        parameter.grad = gradient

    def copy(self, gradient: torch.Tensor) -> torch.Tensor:
        return gradient.clone()

    def is_zero(self, gradient: torch.Tensor) -> bool:
        if merging.is_sparse(gradient):
            return not gradient._values().any()
        # Most gradients are not zero, which a small part shows.
        if gradient.dim() > 1 and len(gradient) > 1 and gradient[0].any():
            return False
        return not gradient.any()

    def is_far(self, gradient: torch.Tensor) -> bool:
        return not gradient.is_cpu

    def look_later(self, gradients: Sequence[torch.Tensor]) -> Callable[[], bool]:
        flags = [merging.numbers_of(gradient).any() for gradient in gradients]
        return lambda: not any(flags)

    def mark(self, gradient: torch.Tensor) -> object:
        return weakref.ref(gradient), gradient._version

    def is_as(self, gradient: torch.Tensor, mark: Any) -> bool:
        marked, version = mark
        return marked() is gradient and gradient._version == version

    def squared_norm(self, parameter: torch.Tensor) -> float | None:
        """The squared norm of .grad; None if it is not the result of one round."""
        each = self.gradients.get(parameter)
        return None if each is None else each.result.norm_in(parameter.grad)

    # ---- the way out

    def memory_of(self, gradients: Sequence[TensorGradient]) -> list[torch.Tensor]:
        memory = []
        for each in gradients:
            gradient = each.parameter.grad
            if gradient is None:
                raise Unsupported(
                    f"The gradient of parameter {self.name_of(each.parameter)} was removed during "
                    "the backward. Remove it after backward() has returned."
                )
            if merging.is_sparse(gradient):
                if each.deferred is None:
                    memory.append(self._rows_of(each, gradient))
                    continue
                # That of an earlier round, which is added to it, was dense.
                gradient = gradient.to_dense()
                self.set_grad(each.parameter, gradient)
            each.places = None
            storage = None
            if type(gradient) is torch.Tensor and gradient.layout is torch.strided:
                storage = gradient.untyped_storage()
            if (
                storage is None
                or storage.nbytes() != each.bytes
                or gradient.dtype is not each.dtype
                or gradient.shape != each.shape
                or gradient.requires_grad
                or not (gradient.is_cpu or each.cuda >= 0)
                or (each.cuda >= 0 and device.cuda_index(gradient) != each.cuda)
                or not gradient.is_contiguous()
                or gradient.is_neg()
                or not self.own_hooks
            ):
                gradient = self._memory_of_unusual(each, gradient)
            memory.append(gradient)
        return memory

    def _rows_of(self, each: TensorGradient, gradient: torch.Tensor) -> torch.Tensor:
        """The rows of a sparse gradient, merged. Their memory is their own."""
        self.check_sparse(self.name_of(each.parameter))
        self.parameters.check_gradient(each.parameter, gradient)
        each.home = gradient
        merged = gradient.detach().coalesce()
        each.places = merged.indices().t().contiguous()
        return merged.values().contiguous().clone()

    def _memory_of_unusual(self, each: TensorGradient, gradient: torch.Tensor) -> torch.Tensor:
        """A copy in C order. The gradient may share its memory with others, such as those of one
        flat tensor, or be a part of a graph, so neither its memory nor its version says what
        happens to it alone."""
        self.parameters.check_gradient(each.parameter, gradient)
        each.home = gradient
        if each.cuda < 0:
            return _copy_of(gradient)
        # The present stream may be another one, when several gradients are sent together.
        with device.in_stream(self.stream_of(each), each.cuda):
            return _copy_of(gradient)

    def stream_of(self, each: TensorGradient) -> int:
        """The stream of a CUDA device that has written the gradient."""
        if device.is_captured():
            raise FailedPrecondition(
                f"The gradient of parameter {each.spec.name} of lane {self._lane} on "
                f"cuda:{each.cuda} was accumulated while a CUDA graph is captured, which would "
                "repeat the copy without the round. Capture the forward and the backward under "
                f"no_sync(), replay the graph, and call sync_gradients() of {self._owner}."
            )
        # After a backward its streams have been joined with the caller's.
        return each.stream if self._in_hook else device.stream_of(each.cuda)

    def computed(self, gradients: Sequence[TensorGradient]) -> list[torch.Tensor]:
        kept = []
        with torch.no_grad():
            for each in gradients:
                computed = each.home if each.added else each.sent
                assert computed is not None
                kept.append(_copy_of(computed))
        # They are added to another gradient in the stream that has written that.
        device.wait_for({each.cuda for each in gradients if each.cuda >= 0})
        return kept

    def can_add(self, gradients: Sequence[TensorGradient]) -> bool:
        kept = ((each.deferred, each.parameter) for each in gradients)
        return all(deferred is None or _is_like(deferred, now) for deferred, now in kept)

    def add_deferred(
        self, gradients: Sequence[TensorGradient], memory: list[torch.Tensor], shares: Shares
    ) -> list[torch.Tensor]:
        return [
            self._add_deferred(each, present, shares)
            for each, present in zip(gradients, memory, strict=True)
        ]

    def _add_deferred(
        self, each: TensorGradient, present: torch.Tensor, shares: Shares
    ) -> torch.Tensor:
        deferred, each.deferred = each.deferred, None
        if deferred is None and shares.present == 1.0:
            return present
        each.home = each.parameter.grad if each.home is None else each.home
        each.added = True
        on_cuda = each.cuda >= 0
        stream = device.in_stream(self.stream_of(each), each.cuda) if on_cuda else nullcontext()
        with torch.no_grad(), stream:
            if deferred is None:
                return present * shares.present
            return _add(deferred, present, shares)

    def scale_deferred(
        self, gradients: Sequence[TensorGradient], shares: Shares
    ) -> list[torch.Tensor]:
        memory = []
        for each in gradients:
            deferred, each.deferred = each.deferred, None
            assert deferred is not None
            memory.append(deferred.mul_(shares.deferred) if shares.deferred != 1.0 else deferred)
        return memory

    # ---- the way back

    def put_result(self, each: TensorGradient, result: torch.Tensor) -> tuple[torch.Tensor, bool]:
        """Puts the result, plus what is aside, into .grad. Returns .grad, and whether it is the
        result alone, of the dtype that was reduced."""
        parameter, present = each.parameter, each.parameter.grad
        if each.aside is None and present is result:
            return result, True
        with torch.no_grad():
            if each.aside is not None:
                return self._put_sum(each, result, each.aside)
            home = each.home if present is None and self.own_hooks else present
            if home is not None and _takes(parameter, home, result):
                home.copy_(result)
            else:
                home = _like(parameter, result)
        self.set_grad(parameter, home)
        assert parameter.grad is not None
        return parameter.grad, parameter.grad.dtype is result.dtype

    def put_rows(self, each: TensorGradient, rows: torch.Tensor, *, beside: bool) -> None:
        """Puts sparse rows, plus what is aside, into .grad; `beside`: to what put_result() has put
        there."""
        parameter = each.parameter
        with torch.no_grad():
            other = parameter.grad if beside else each.aside
            self.set_grad(parameter, rows if other is None else other + rows)

    def _put_sum(
        self, each: TensorGradient, result: torch.Tensor, aside: torch.Tensor
    ) -> tuple[torch.Tensor, bool]:
        parameter = each.parameter
        whole = aside.dtype is result.dtype and not self.is_far(aside) and self.is_zero(aside)
        # The caller of push_ready() has the memory for .grad; what is aside is only a copy then.
        home = aside if self.own_hooks else parameter.grad
        if home is None or not _takes(parameter, home, result):
            home = _like(parameter, result).add_(aside)
        elif home is aside:
            home.add_(result)
        else:
            home.copy_(result).add_(aside)
        self.set_grad(parameter, home)
        assert parameter.grad is not None
        return parameter.grad, whole and parameter.grad.dtype is result.dtype


def _densely(hook: Hook) -> Hook:
    def hook_of_dense(parameter: torch.Tensor) -> None:
        if merging.is_sparse(parameter.grad):
            assert parameter.grad is not None
            parameter.grad = parameter.grad.to_dense()
        hook(parameter)

    return hook_of_dense


def _copy_of(gradient: torch.Tensor) -> torch.Tensor:
    """Its numbers in C order, in memory of their own."""
    memory = raw.plain(gradient).contiguous()
    return memory.clone() if memory.data_ptr() == gradient.data_ptr() else memory


def _is_like(one: torch.Tensor, other: torch.Tensor) -> bool:
    return (one.dtype, one.shape, one.device) == (other.dtype, other.shape, other.device)


def _add(deferred: torch.Tensor, present: torch.Tensor, shares: Shares) -> torch.Tensor:
    """The sum of both by their shares, in the memory of what is deferred."""
    if shares == Shares():
        return deferred.add_(present)
    # Rounded once where the gradients are narrow.
    wide = torch.promote_types(deferred.dtype, torch.float32)
    total = deferred.to(wide) * shares.deferred + present.to(wide) * shares.present
    return deferred.copy_(total)


def _takes(parameter: torch.Tensor, home: torch.Tensor, result: torch.Tensor) -> bool:
    """Whether the result can be written to this .grad, which is no part of a graph then."""
    return (
        not home.requires_grad
        and home.layout is torch.strided
        and (home.dtype, home.shape, home.device) == (result.dtype, result.shape, result.device)
        and raw.may_hold(parameter, home)
        and raw.has_memory(home)
        and not raw.shares_elements(home)
        and not home.is_inference()
    )


def _like(parameter: torch.Tensor, result: torch.Tensor) -> torch.Tensor:
    """The result with the strides of the parameter."""
    if parameter.is_contiguous():
        return result
    return torch.empty_like(parameter, dtype=result.dtype, requires_grad=False).copy_(result)


def parameters_of(optimizer: torch.optim.Optimizer) -> Iterator[torch.Tensor]:
    for group in optimizer.param_groups:
        yield from group["params"]
