# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""Collective calls on torch tensors."""

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import torch

from basin import _abi
from basin.arguments import string_of
from basin.described import Described
from basin.errors import InvalidArgument, Mismatch, Unsupported
from basin.handle import CALL_PREFIX, Handle
from basin.process_set import ProcessSet
from basin.spec import Counts, Op, ReductionOptions, RoundSpec, contribution, reduction
from basin.torch import differentiable, differing, digests, merging, pieces, raw, sparse, tensors
from basin.torch.context import current, member
from basin.torch.shared import SharedValues, Tensors
from basin.torch.state import optimizer_key
from basin.worker import PartedResult, Result, RoundInfo, TensorSpec

if TYPE_CHECKING:
    from typing_extensions import Unpack

_TIMEOUT_SECONDS = 300.0

T = TypeVar("T")
Named = torch.nn.Module | Mapping[str, Any] | Iterable[tuple[str, Any]]


def allreduce_async(
    tensor: torch.Tensor,
    name: str | None = None,
    *,
    op: Op,
    counts: Counts | None = None,
    process_set: ProcessSet | None = None,
    **options: "Unpack[ReductionOptions]",
) -> Handle[torch.Tensor]:
    """Like basin.Client.allreduce_async(), with its counts and options, for a torch CPU tensor."""
    return _start(
        "allreduce_async()", [tensor], name, pieces.only, op, counts, options, process_set
    )


def allreduce(
    tensor: torch.Tensor,
    name: str | None = None,
    *,
    op: Op,
    counts: Counts | None = None,
    process_set: ProcessSet | None = None,
    **options: "Unpack[ReductionOptions]",
) -> torch.Tensor:
    """Reduces a tensor over all workers; returns a new one.

    A sum or an average is differentiable: the backward through it is a separate round over the
    gradients of all workers, which all of them have to run. For a number that is only displayed,
    such as a loss, pass tensor.detach(). The same holds for the asynchronous and grouped calls.

    Without a name, the calls of all workers are matched by their order in the program, also those
    of the backward; see basin.Client.allreduce(). The same holds for all calls of this kind.

    A sparse COO tensor, such as the gradient of Embedding(sparse=True), has a sum or an average:
    rows with the same index are merged, also those of one worker, and the result is a coalesced
    sparse tensor. Workers send only their rows. Its size is the same on all of them.

    process_set: of which workers the tensors are reduced, which make the call; None: all

    After OutcomeUnknown or Paused the round continues: another call waits for the same round and
    ignores the tensor that it is given. The same holds for allreduce_() and the grouped calls.
    """
    return pieces.complete(
        _start("allreduce()", [tensor], name, pieces.only, op, counts, options, process_set)
    )


def allreduce_async_(
    tensor: torch.Tensor,
    name: str | None = None,
    *,
    op: Op,
    counts: Counts | None = None,
    process_set: ProcessSet | None = None,
    **options: "Unpack[ReductionOptions]",
) -> Handle[torch.Tensor]:
    """Like allreduce_async(), but wait() writes the result to `tensor` and returns it."""
    return _start(
        "allreduce_async_()", [tensor], name, pieces.only, op, counts, options, process_set
    )


def allreduce_(
    tensor: torch.Tensor,
    name: str | None = None,
    *,
    op: Op,
    counts: Counts | None = None,
    process_set: ProcessSet | None = None,
    **options: "Unpack[ReductionOptions]",
) -> torch.Tensor:
    """Like allreduce(), in place."""
    return pieces.complete(
        _start("allreduce_()", [tensor], name, pieces.only, op, counts, options, process_set)
    )


def grouped_allreduce_async(
    group: Sequence[torch.Tensor],
    name: str | None = None,
    *,
    op: Op,
    counts: Counts | None = None,
    process_set: ProcessSet | None = None,
    **options: "Unpack[ReductionOptions]",
) -> Handle[list[torch.Tensor]]:
    """Reduces several tensors in one round, all of them over the same workers.

    Tensors are matched by their position in the group, whose name is `name`, or which is the next
    call without a name. wait() returns new tensors in the same order. Counts and options are those
    of basin.Client.allreduce(), for each tensor.
    """
    return _start("grouped_allreduce_async()", group, name, list, op, counts, options, process_set)


def grouped_allreduce(
    group: Sequence[torch.Tensor],
    name: str | None = None,
    *,
    op: Op,
    counts: Counts | None = None,
    process_set: ProcessSet | None = None,
    **options: "Unpack[ReductionOptions]",
) -> list[torch.Tensor]:
    """Like grouped_allreduce_async(), but waits for the result."""
    return pieces.complete(
        _start("grouped_allreduce()", group, name, list, op, counts, options, process_set)
    )


def grouped_allreduce_async_(
    group: Sequence[torch.Tensor],
    name: str | None = None,
    *,
    op: Op,
    counts: Counts | None = None,
    process_set: ProcessSet | None = None,
    **options: "Unpack[ReductionOptions]",
) -> Handle[list[torch.Tensor]]:
    """Like grouped_allreduce_async(), but wait() writes the results to the tensors and returns
    them."""
    return _start("grouped_allreduce_async_()", group, name, list, op, counts, options, process_set)


def grouped_allreduce_(
    group: Sequence[torch.Tensor],
    name: str | None = None,
    *,
    op: Op,
    counts: Counts | None = None,
    process_set: ProcessSet | None = None,
    **options: "Unpack[ReductionOptions]",
) -> list[torch.Tensor]:
    """Like grouped_allreduce(), in place."""
    return pieces.complete(
        _start("grouped_allreduce_()", group, name, list, op, counts, options, process_set)
    )


def poll(handle: Handle[Any]) -> bool:
    """Whether synchronize() would return at once."""
    return _handle("poll()", handle).done()


def synchronize(handle: Handle[T]) -> T:
    """Waits for the result of an asynchronous call, for init()'s round_timeout, and returns it."""
    return _handle("synchronize()", handle).wait(current().timeout)


def _handle(call: str, handle: Handle[T]) -> Handle[T]:
    if not isinstance(handle, Handle):
        raise InvalidArgument(
            f"{call} was given a {type(handle).__name__}. Give it what allreduce_async() returned."
        )
    return handle


def _start(
    call: str,
    given: Sequence[torch.Tensor],
    name: str | None,
    finish: Callable[[list[torch.Tensor]], T],
    op: Op,
    counts: Counts | None,
    options: ReductionOptions,
    process_set: ProcessSet | None,
) -> Handle[T]:
    """Starts a round for a `call` of the user, whose name says whether it is of a group, whether it
    is asynchronous, and with a last underscore that it is in place. `finish` makes its output from
    the results."""
    spec = contribution(reduction(call, op, options), counts)
    goes_on = "_async" not in call
    if name is not None:
        string_of("name", name)
    if not call.startswith("grouped_") and merging.is_sparse(given[0]):
        return sparse.allreduce(
            pieces.client_of(call, name, process_set), call, given[0], name, spec, finish
        )
    if not call.startswith("grouped_"):
        named = [("without a name" if name is None else name, given[0])]
        return _start_round(call, named, name, finish, spec, goes_on, process_set)
    named = pieces.named_in(call, name, given)
    # A separate lane, because a tensor with the same name would otherwise be its first tensor.
    lane = None if name is None else "group/" + name
    return _start_round(call, named, lane, finish, spec, goes_on, process_set)


def _start_round(
    call: str,
    named: list[tuple[str, torch.Tensor]],
    lane: str | None,
    finish: Callable[[list[torch.Tensor]], T],
    spec: RoundSpec,
    goes_on: bool = False,
    process_set: ProcessSet | None = None,
) -> Handle[T]:
    in_place = call.endswith("_()")
    client = pieces.client_of(call, None, process_set)
    for name, tensor in named:
        pieces.check_tensor(call, name, tensor)
        tensors.check(name, tensor)
        if in_place and tensor.requires_grad and not tensor.is_leaf and torch.is_grad_enabled():
            raise Unsupported(
                f"{call} would write the result to tensor {name}, whose gradient would then be "
                "that of its old value. Use the call without the underscore, whose result is "
                "differentiable, or pass tensor.detach()."
            )
        if in_place and raw.shares_elements(tensor):
            raise Unsupported(
                f"{call} would write the result to tensor {name}, several elements of which share "
                "memory (expand() does that). Use the call without the underscore, or pass "
                "tensor.contiguous()."
            )
    sent = [raw.on_host(tensor) for _, tensor in named]
    tracked = [
        not in_place and torch.is_grad_enabled() and tensor.requires_grad for _, tensor in named
    ]

    def gradient_of(name: str, info: RoundInfo) -> Callable[[torch.Tensor], torch.Tensor]:
        def reduce(gradient: torch.Tensor) -> torch.Tensor:
            reducing = differentiable.spec_of_gradient(name, spec)
            named = [(f"{name} (gradient)", gradient)]
            of_gradient = None if lane is None else f"gradient/{name}"
            handle = _start_round(
                "backward()", named, of_gradient, pieces.only, reducing, process_set=process_set
            )
            return pieces.complete(handle) * differentiable.factor_of_gradient(
                info, client.worker_id
            )

        return reduce

    def output(result: Result | PartedResult) -> T:
        outputs = []
        for i, ((name, target), mine) in enumerate(zip(named, sent)):
            received = raw.empty_on_host(mine.shape, mine.dtype)
            result.copy(i, received.data_ptr(), tensors.bytes_of(received))
            if in_place:
                raw.write(name, target, received)
                outputs.append(target)
                continue
            received = received.to(target.device)
            if tracked[i]:
                received = differentiable.attach(target, received, gradient_of(name, result.info))
            outputs.append(received)
        return finish(outputs)

    given = [
        (tensors.spec_of(name, mine), mine.data_ptr(), tensors.bytes_of(mine))
        for (name, _), mine in zip(named, sent)
    ]
    if lane is None:
        return client.start_unnamed(given, sent, output, spec, goes_on, current().timeout)
    return client.start(CALL_PREFIX + lane, given, sent, output, spec, goes_on, over_all=True)


def barrier(name: str = "barrier") -> None:
    """Returns when every worker has called it."""
    here = member("barrier()")
    here.client.barrier(name, here.timeout)


def broadcast_parameters(parameters: Named, root_rank: int = 0) -> None:
    """Gives all workers the root's values, bit for bit, of any dtype.

    parameters: a module (its parameters and buffers, also those that are not in its state_dict), a
                state_dict, or pairs of name and tensor.

    Only tensors that differ from the root's are moved: none after all have loaded one checkpoint.
    A late joiner gets the present values of the others, which need not call it again. Pass the
    module if there is one: its buffers change in a forward, and are copied before that. Tensors of
    lazy modules that it has get the values of rank 0 in the first forward of each.
    """
    here = member("broadcast_parameters()")
    state = here.state
    if isinstance(parameters, torch.nn.Module):
        key: Hashable = ("module", id(parameters))
        owner: Any = parameters
        named = Tensors(parameters, lambda: _named_tensors(parameters), state.lazy)
    else:
        owner = listed = _named_tensors(parameters)
        key = ("tensors", *(tensor.data_ptr() for _, tensor in listed))
        named = Tensors(None, lambda: listed, state.lazy)
    state.share(
        "parameters",
        key,
        owner,
        named.capture,
        named.restore,
        lambda: _broadcast("parameters", named.list_all(), root_rank, compares=True),
        named,
        here.timeout,
    )


def broadcast_buffers(module: torch.nn.Module, root_rank: int = 0) -> None:
    """Like broadcast_parameters(), for only the buffers of a module. It is meant for the training
    loop: all workers call it, and it registers nothing for late joiners."""
    here = member("broadcast_buffers()")
    if not isinstance(module, torch.nn.Module):
        raise InvalidArgument(
            f"broadcast_buffers() was given a {type(module).__name__}. Give it the model."
        )
    here.unshared.broadcasts_buffers(module)
    named = tensors.buffers_of(module)
    _check_memory(named)
    _broadcast("buffers", named, root_rank)


def broadcast_optimizer_state(optimizer: torch.optim.Optimizer, root_rank: int = 0) -> None:
    """Gives the optimizers of all workers the root's state: options of the groups, moments, steps.
    A late joiner gets the others' present state. It is pickled, so use this only among workers that
    trust each other."""

    here = member("broadcast_optimizer_state()")
    if not hasattr(optimizer, "load_state_dict"):
        raise InvalidArgument(
            f"broadcast_optimizer_state() was given a {type(optimizer).__name__}. Give it the "
            "optimizer."
        )

    kind = f"{type(optimizer).__module__}.{type(optimizer).__qualname__}"

    def broadcast() -> None:
        roots_kind, received = differing.broadcast(
            here,
            "broadcast_optimizer_state()",
            "optimizer",
            "the optimizer's state",
            lambda: (kind, optimizer.state_dict()),
            root_rank,
        )
        if roots_kind != kind:
            raise Mismatch(
                f"The optimizer is a {kind} here, and a {roots_kind} at the root. Make the same "
                "optimizer on all workers."
            )
        load_optimizer(optimizer, received)

    share_optimizer(optimizer, broadcast)


def load_optimizer(optimizer: torch.optim.Optimizer, received: dict[str, Any]) -> None:
    try:
        optimizer.load_state_dict(received)
    except (ValueError, KeyError) as error:
        raise Mismatch(
            f"The shared state does not fit the optimizer of this worker: {error}. Make the same "
            "optimizer on all workers."
        ) from error
    except TypeError as error:
        raise InvalidArgument(
            f"The optimizer cannot load the shared state: {error}.{_arrays_in(received)}"
        ) from error


def _arrays_in(state: dict[str, Any]) -> str:
    """Names an array of NumPy in the state of a parameter, which no optimizer of torch can load."""
    for number, values in state.get("state", {}).items():
        for name, value in values.items() if isinstance(values, Mapping) else ():
            if isinstance(value, np.ndarray):
                return (
                    f" State {name} of parameter {number} is an array of NumPy, and torch's "
                    "load_state_dict() takes none there: make it a tensor."
                )
    return ""


def share_optimizer(
    optimizer: torch.optim.Optimizer, broadcast: Callable[[], None] = lambda: None
) -> None:
    """Shares the optimizer with late joiners, which load it here; the others broadcast."""
    current().state.share(
        "optimizer",
        optimizer_key(optimizer),
        optimizer,
        optimizer.state_dict,
        lambda received: load_optimizer(optimizer, received),
        broadcast,
    )


def broadcast_state(root_rank: int = 0, **values: Any) -> SharedValues:
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
    made = SharedValues(**values)
    share_values(made, "broadcast_state()", root_rank)
    return made


def share_values(made: SharedValues, call: str, root_rank: int = 0) -> None:
    """Shares the values with all workers, and with late joiners, in a `call` that all make."""
    here = member(call)

    def broadcast() -> None:
        made.load_states(
            differing.broadcast(here, call, "state", "the shared state", made.states, root_rank)
        )

    here.state.share("state", ("state", id(made)), made, made.capture, made.restore, broadcast)


def _named_tensors(parameters: Named) -> list[tuple[str, torch.Tensor]]:
    if isinstance(parameters, torch.nn.Module):
        pairs: Iterable[tuple[str, Any]] = tensors.of_module(parameters)
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


def _broadcast(
    name: str, named: list[tuple[str, torch.Tensor]], root_rank: int, *, compares: bool = False
) -> None:
    """`compares`: the tensors are probably equal already, so only those that differ are moved."""
    here = current()
    staged = [(key, tensor, raw.on_host(tensor)) for key, tensor in named if tensor.numel() > 0]
    described = Described.of(
        f"broadcast_{name}()",
        here.client.check_root(root_rank),
        [(key, str(t.dtype).removeprefix("torch."), tuple(t.shape)) for key, t in named],
    )
    here.client.broadcast_memory(
        name,
        here.client.agree_on_version(name, described, None),  # Workers may start minutes apart.
        described,
        [
            (_value_spec(f"{name}/{key}", mine), mine.data_ptr(), tensors.bytes_of(mine))
            for key, _, mine in staged
        ],
        here.timeout if here.timeout is not None else _TIMEOUT_SECONDS,
        (lambda: digests.in_a_row([mine for *_, mine in staged])) if compares else None,
    )
    for key, tensor, mine in staged:
        if mine.data_ptr() == raw.plain(tensor).data_ptr():
            raw.was_written(tensor)
        else:
            raw.write(key, tensor, mine)


def _value_spec(name: str, mine: torch.Tensor) -> TensorSpec:
    if mine.dtype in tensors.DTYPES:
        return tensors.spec_of(name, mine)
    return TensorSpec(name, _abi.U8, (tensors.bytes_of(mine),))
