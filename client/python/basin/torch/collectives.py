# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""Collective calls on torch tensors and on Python objects."""

import io
import pickle
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import torch

from basin import _abi
from basin.arguments import string_of
from basin.client import CALL_PREFIX, Handle
from basin.errors import InvalidArgument, Unsupported
from basin.spec import Counts, Op, ReductionOptions, RoundSpec, contribution, reduction
from basin.torch import device, differentiable, objects, tensors
from basin.torch.context import current, member
from basin.torch.state import State, Tensors, optimizer_key
from basin.worker import Result, RoundInfo, TensorSpec

if TYPE_CHECKING:
    from typing_extensions import Unpack

_TIMEOUT_SECONDS = 300.0

T = TypeVar("T")
Named = torch.nn.Module | Mapping[str, Any] | Iterable[tuple[str, Any]]


def allreduce_async(
    tensor: torch.Tensor,
    name: str,
    *,
    op: Op,
    counts: Counts | None = None,
    **options: "Unpack[ReductionOptions]",
) -> Handle[torch.Tensor]:
    """Like basin.Client.allreduce_async(), with its counts and options, for a torch CPU tensor."""
    call = "allreduce_async()"
    spec = _spec(call, op, counts, options)
    return _start(call, [(name, tensor)], name, _first, False, spec)


def allreduce(
    tensor: torch.Tensor,
    name: str,
    *,
    op: Op,
    counts: Counts | None = None,
    **options: "Unpack[ReductionOptions]",
) -> torch.Tensor:
    """Reduces a tensor over all workers; returns a new one.

    A sum or an average is differentiable: the backward through it is a separate round over the
    gradients of all workers, which all of them have to run. For a number that is only displayed,
    such as a loss, pass tensor.detach(). The same holds for the asynchronous and grouped calls.

    After OutcomeUnknown or Paused the round continues: another call waits for the same round and
    ignores the tensor that it is given. The same holds for allreduce_() and the grouped calls.
    """
    call = "allreduce()"
    spec = _spec(call, op, counts, options)
    return _complete(_start(call, [(name, tensor)], name, _first, False, spec, goes_on=True))


def allreduce_async_(
    tensor: torch.Tensor,
    name: str,
    *,
    op: Op,
    counts: Counts | None = None,
    **options: "Unpack[ReductionOptions]",
) -> Handle[torch.Tensor]:
    """Like allreduce_async(), but wait() writes the result to `tensor` and returns it."""
    call = "allreduce_async_()"
    spec = _spec(call, op, counts, options)
    return _start(call, [(name, tensor)], name, _first, True, spec)


def allreduce_(
    tensor: torch.Tensor,
    name: str,
    *,
    op: Op,
    counts: Counts | None = None,
    **options: "Unpack[ReductionOptions]",
) -> torch.Tensor:
    """Like allreduce(), in place."""
    call = "allreduce_()"
    spec = _spec(call, op, counts, options)
    return _complete(_start(call, [(name, tensor)], name, _first, True, spec, goes_on=True))


def grouped_allreduce_async(
    group: Sequence[torch.Tensor],
    name: str,
    *,
    op: Op,
    counts: Counts | None = None,
    **options: "Unpack[ReductionOptions]",
) -> Handle[list[torch.Tensor]]:
    """Reduces several tensors in one round, all of them over the same workers.

    Tensors are matched by their position in the group, whose name is `name`. wait() returns new
    tensors in the same order. Counts and options are those of basin.Client.allreduce(), for each
    tensor.
    """
    call = "grouped_allreduce_async()"
    return _start_group(call, group, name, False, _spec(call, op, counts, options))


def grouped_allreduce(
    group: Sequence[torch.Tensor],
    name: str,
    *,
    op: Op,
    counts: Counts | None = None,
    **options: "Unpack[ReductionOptions]",
) -> list[torch.Tensor]:
    """Like grouped_allreduce_async(), but waits for the result."""
    call = "grouped_allreduce()"
    spec = _spec(call, op, counts, options)
    return _complete(_start_group(call, group, name, False, spec, goes_on=True))


def grouped_allreduce_async_(
    group: Sequence[torch.Tensor],
    name: str,
    *,
    op: Op,
    counts: Counts | None = None,
    **options: "Unpack[ReductionOptions]",
) -> Handle[list[torch.Tensor]]:
    """Like grouped_allreduce_async(), but wait() writes the results to the tensors and returns
    them."""
    call = "grouped_allreduce_async_()"
    return _start_group(call, group, name, True, _spec(call, op, counts, options))


def grouped_allreduce_(
    group: Sequence[torch.Tensor],
    name: str,
    *,
    op: Op,
    counts: Counts | None = None,
    **options: "Unpack[ReductionOptions]",
) -> list[torch.Tensor]:
    """Like grouped_allreduce(), in place."""
    call = "grouped_allreduce_()"
    spec = _spec(call, op, counts, options)
    return _complete(_start_group(call, group, name, True, spec, goes_on=True))


def poll(handle: Handle[Any]) -> bool:
    """Whether synchronize() would return at once."""
    return _handle("poll()", handle).done()


def synchronize(handle: Handle[T]) -> T:
    """Waits for the result of an asynchronous call, for init()'s round_timeout, and returns it."""
    return _handle("synchronize()", handle).wait(current().timeout)


def _complete(handle: Handle[T]) -> T:
    here = current()
    return here.client.complete(handle, here.timeout)


def _handle(call: str, handle: Handle[T]) -> Handle[T]:
    if not isinstance(handle, Handle):
        raise InvalidArgument(
            f"{call} was given a {type(handle).__name__}. Give it what allreduce_async() returned."
        )
    return handle


def _first(received: list[torch.Tensor]) -> torch.Tensor:
    return received[0]


def _spec(call: str, op: Op, counts: Counts | None, options: ReductionOptions) -> RoundSpec:
    return contribution(reduction(call, op, options), counts)


def _start_group(
    call: str,
    group: Sequence[torch.Tensor],
    name: str,
    in_place: bool,
    spec: RoundSpec,
    goes_on: bool = False,
) -> Handle[list[torch.Tensor]]:
    string_of("name", name)
    if not isinstance(group, Sequence):
        raise InvalidArgument(
            f"{call} was given a {type(group).__name__} as group {name}. Give it a list of tensors."
        )
    if not group:
        raise InvalidArgument(f"Group {name} has no tensors. Give it at least one.")
    named = [(f"{name}.{i}", tensor) for i, tensor in enumerate(group)]
    # A separate lane, because a tensor with the same name would otherwise be its first tensor.
    return _start(call, named, "group/" + name, list, in_place, spec, goes_on)


def _start(
    call: str,
    named: list[tuple[str, torch.Tensor]],
    lane: str,
    finish: Callable[[list[torch.Tensor]], T],
    in_place: bool,
    spec: RoundSpec,
    goes_on: bool = False,
) -> Handle[T]:
    string_of("name", lane)
    client = member(call).client
    for name, tensor in named:
        if not isinstance(tensor, torch.Tensor):
            raise InvalidArgument(
                f"{call} was given a {type(tensor).__name__} as {name}. Give it a torch.Tensor; "
                "basin.connect() is for NumPy arrays."
            )
        tensors.check(name, tensor)
        if in_place and tensor.requires_grad and not tensor.is_leaf and torch.is_grad_enabled():
            raise Unsupported(
                f"{call} would write the result to tensor {name}, whose gradient would then be "
                "that of its old value. Use the call without the underscore, whose result is "
                "differentiable, or pass tensor.detach()."
            )
    sent = [device.on_host(tensor) for _, tensor in named]
    tracked = [
        not in_place and torch.is_grad_enabled() and tensor.requires_grad for _, tensor in named
    ]

    def gradient_of(name: str, info: RoundInfo) -> Callable[[torch.Tensor], torch.Tensor]:
        def reduce(gradient: torch.Tensor) -> torch.Tensor:
            reducing = differentiable.spec_of_gradient(name, spec)
            named = [(f"{name} (gradient)", gradient)]
            handle = _start("backward()", named, f"gradient/{name}", _first, False, reducing)
            reduced: torch.Tensor = _complete(handle)
            return reduced * differentiable.factor_of_gradient(info, client.worker_id)

        return reduce

    def output(result: Result) -> T:
        outputs = []
        for i, ((name, target), memory) in enumerate(zip(named, sent)):
            received = torch.empty(memory.shape, dtype=memory.dtype)
            result.copy(i, received.data_ptr(), tensors.bytes_of(received))
            if in_place:
                with torch.no_grad():
                    received = target.copy_(received)
                outputs.append(received)
                continue
            received = received.to(target.device)
            if tracked[i]:
                received = differentiable.attach(target, received, gradient_of(name, result.info))
            outputs.append(received)
        return finish(outputs)

    return client.start(
        CALL_PREFIX + lane,
        [
            (tensors.spec_of(name, memory), memory.data_ptr(), tensors.bytes_of(memory))
            for (name, _), memory in zip(named, sent)
        ],
        sent,
        output,
        spec,
        goes_on,
    )


def barrier(name: str = "barrier") -> None:
    """Returns when every worker has called it."""
    here = member("barrier()")
    here.client.barrier(name, here.timeout)


def broadcast_parameters(parameters: Named, root_rank: int = 0) -> None:
    """Gives all workers the root's values, bit for bit, of any dtype.

    parameters: a module (its parameters and buffers), a state_dict, or pairs of name and tensor.

    A late joiner gets the present values of the others, which need not call it again. Pass the
    module if there is one: its buffers change in a forward, and are copied before that.
    """
    state = member("broadcast_parameters()").state
    if isinstance(parameters, torch.nn.Module):
        key: Hashable = ("module", id(parameters))
        owner: Any = parameters
        named = Tensors(parameters, lambda: _named_tensors(parameters))
    else:
        owner = listed = _named_tensors(parameters)
        key = ("tensors", *(tensor.data_ptr() for _, tensor in listed))
        named = Tensors(None, lambda: listed)
    state.share(
        "parameters",
        key,
        owner,
        named.capture,
        named.restore,
        lambda: _broadcast("parameters", named.list_all(), root_rank),
        named,
    )


def broadcast_buffers(module: torch.nn.Module, root_rank: int = 0) -> None:
    """Like broadcast_parameters(), for only the buffers of a module. It is meant for the training
    loop: all workers call it, and it registers nothing for late joiners."""
    member("broadcast_buffers()")
    if not isinstance(module, torch.nn.Module):
        raise InvalidArgument(
            f"broadcast_buffers() was given a {type(module).__name__}. Give it the model."
        )
    named = list(module.named_buffers())
    _check_memory(named)
    _broadcast("buffers", named, root_rank)


def broadcast_optimizer_state(optimizer: torch.optim.Optimizer, root_rank: int = 0) -> None:
    """Gives the optimizers of all workers the root's state: options of the groups, moments, steps.
    A late joiner gets the others' present state."""

    here = member("broadcast_optimizer_state()")
    if not hasattr(optimizer, "load_state_dict"):
        raise InvalidArgument(
            f"broadcast_optimizer_state() was given a {type(optimizer).__name__}. Give it the "
            "optimizer."
        )

    def broadcast() -> None:
        stream = io.BytesIO()
        torch.save(optimizer.state_dict(), stream)
        received = objects.broadcast(here, "optimizer", stream.getvalue(), root_rank)
        optimizer.load_state_dict(torch.load(io.BytesIO(received), weights_only=True))

    share_optimizer(optimizer, broadcast)


def share_optimizer(
    optimizer: torch.optim.Optimizer, broadcast: Callable[[], None] = lambda: None
) -> None:
    """Shares the optimizer with late joiners, which load it here; the others broadcast."""
    current().state.share(
        "optimizer",
        optimizer_key(optimizer),
        optimizer,
        optimizer.state_dict,
        optimizer.load_state_dict,
        broadcast,
    )


def broadcast_state(root_rank: int = 0, **values: Any) -> State:
    """Shares the root's values with all workers, as attributes.

        state = basin.torch.broadcast_state(step=0, scheduler=scheduler)
        while state.step < steps:
            ...
            state.step += 1

    A late joiner gets the values that the others have when they begin its first round, so it
    continues at the same step. Objects with state_dict() and load_state_dict(), such as schedulers
    and GradScaler, keep their identity. Values are pickled, so use this only among workers that
    trust each other.
    """
    here = member("broadcast_state()")
    made = State(**values)

    def broadcast() -> None:
        made.restore(objects.broadcast(here, "state", made.capture(), root_rank))

    here.state.share("state", ("state", id(made)), made, made.capture, made.restore, broadcast)
    return made


def broadcast_object(value: Any, root_rank: int = 0, *, name: str = "object") -> Any:
    """Returns the root's object. It is pickled, so use this only among workers that trust each
    other.

    Before the first step, a late joiner gets the same object as the others did.
    """
    here = member("broadcast_object()")
    packed = here.state.take_object(name)
    if packed is None:
        packed = objects.broadcast(here, string_of("name", name), pickle.dumps(value), root_rank)
        here.state.keep_object(name, packed)
    return pickle.loads(packed)


def allgather_object(value: Any, *, name: str = "gathered") -> list[Any]:
    """Returns the objects of all workers, by rank."""
    here = member("allgather_object()")
    given = objects.gather(here, string_of("name", name), pickle.dumps(value))
    return [pickle.loads(content) for content in given]


def _named_tensors(parameters: Named) -> list[tuple[str, torch.Tensor]]:
    if isinstance(parameters, torch.nn.Module):
        pairs: Iterable[tuple[str, Any]] = parameters.state_dict().items()
    elif isinstance(parameters, Mapping):
        pairs = parameters.items()
    else:
        pairs = tensors.pairs_of(
            "broadcast_parameters()", parameters, "the model, or its state_dict()"
        )
    named = [(name, value) for name, value in pairs if isinstance(value, torch.Tensor)]
    _check_memory(named)
    return named


def _check_memory(named: Iterable[tuple[str, torch.Tensor]]) -> None:
    for name, tensor in named:
        tensors.check_memory(name, tensor)


def _broadcast(name: str, named: list[tuple[str, torch.Tensor]], root_rank: int) -> None:
    here = current()
    staged = []
    for key, tensor in named:
        data = tensor.detach()
        if data.numel() > 0:
            staged.append((key, data, device.on_host(data)))
    here.client.broadcast_memory(
        name,
        here.client.next_version(name, None),  # Workers may start minutes apart.
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
