# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""Sparse gradients, such as those of Embedding(sparse=True): only their rows are sent.

They are no tensors of the lane's round, whose tensors have one shape. Instead a worker that has
some pushes a mark in that round. When the round has an outcome with the mark, all members bring
each other their rows in a call, and each of them adds up the rows of those workers that the round
has counted, with its weights and its divisor. So the round alone decides who is in a step, and
every worker has the same bits. Members that join with the round's outcome are out of step, and the
call goes on without them.
"""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import torch

from basin import _abi
from basin.client import Client
from basin.errors import Error, Mismatch, OutcomeUnknown, Paused, Unavailable, Unsupported
from basin.gathering import Bytes, Gathered, gather
from basin.handle import Handle
from basin.spec import Op, RoundSpec
from basin.torch import differentiable, merging, raw
from basin.torch.parameters import TensorGradient
from basin.worker import Result, RoundInfo, TensorSpec

_MARK = TensorSpec("rows of sparse gradients", _abi.F32, (1,))
_HEAD = 8  # The bytes of the length of a header.


class _Part(NamedTuple):
    """The rows of one worker for one parameter: `places` has one row for each row of `values`."""

    worker: str
    places: torch.Tensor
    values: torch.Tensor


def may_be_sparse(
    optimizer: torch.optim.Optimizer | None,
    modules: Iterable[torch.nn.Module],
    parameters: Mapping[torch.Tensor, str],
) -> bool:
    """Whether an optimizer, or a layer with one of the parameters, says that gradients are sparse.
    The same on all workers that build the same model."""
    if isinstance(optimizer, torch.optim.SparseAdam):
        return True
    return any(
        getattr(part, "sparse", None) is True and getattr(part, "weight", None) in parameters
        for module in modules
        for part in module.modules()
    )


class RowGradients:
    """Those of one lane, whose handle is `lane`."""

    def __init__(self, client: Client, name: str, lane: int) -> None:
        self._client = client
        self._name = name
        self._lane = lane
        (self._mark,) = client.worker.register(name, _abi.GRADIENT, [_MARK])[1]
        self._nothing = np.zeros(1, np.float32)  # The mark adds nothing to the norm of the result.
        self._sent: list[tuple[TensorGradient, torch.Tensor]] = []  # With the places of the rows.
        self._handle: Handle[list[tuple[str, _Part]]] | None = None
        self._parts: dict[str, list[_Part]] | None = None  # After the call: by parameter.

    def begin(self) -> None:
        """A round of the lane has begun."""
        self._sent.clear()
        self._handle = self._parts = None

    def check(self, name: str, spec: RoundSpec, *, groups_ranks: bool) -> None:
        """Raises Unsupported if rounds like this one cannot have the sparse gradient of `name`."""
        if groups_ranks:
            raise Unsupported(
                f"The gradient of parameter {name} is sparse, and the ranks of a node reduce "
                "together (local_group=). Set local_group to off, or pass sparse_as_dense=True."
            )
        if spec.divide_by_present:
            raise Unsupported(
                f"The gradient of parameter {name} is sparse, and divide_by_present divides by the "
                "workers that have reached a parameter, which rows do not say. Omit it, or pass "
                "sparse_as_dense=True."
            )

    def add(self, each: TensorGradient, places: torch.Tensor) -> None:
        """The rows are those of each.sent, at these places: one row of indices for each."""
        self._sent.append((each, places))

    def commit(self) -> None:
        """Pushes the mark if there are rows. Called before the round is committed."""
        if self._sent:
            address = self._nothing.ctypes.data
            self._client.worker.push(self._lane, self._mark, address, self._nothing.nbytes)

    def withdraw(self) -> None:
        """This worker is not counted in the round."""
        self._sent.clear()

    def receive(self, result: Result, info: RoundInfo, timeout: float | None) -> None:
        """Brings the rows of all workers, if the round has any. After OutcomeUnknown or Paused,
        call it again. Raises the same error on all workers if they do not come."""
        if self._parts is not None:
            return
        if not result.has(self._mark):
            self._parts = {}
            return
        for _ in range(len(info.contributors) + 1):
            if self._handle is None:
                self._handle = self._gather(info.round, timeout)
            try:
                parts = self._handle.wait(timeout)
            except (OutcomeUnknown, Paused):
                self._handle.go_on()
                raise
            except Unavailable as error:
                # A worker was lost in the call, for all of them. They make it again: the rows of
                # the others still count.
                lost, self._handle = error, None
                continue
            except Error:
                self._handle = None
                raise
            self._parts = {}
            for name, part in parts:
                self._parts.setdefault(name, []).append(part)
            return
        raise lost

    def start_again(self) -> None:
        """Drops a call in progress, which the worker has abandoned."""
        self.begin()

    def has_any(self) -> bool:
        """Whether the round has brought rows."""
        return bool(self._parts)

    def total_for(self, each: TensorGradient, name: str, info: RoundInfo) -> torch.Tensor | None:
        """The reduced rows of a parameter, as a coalesced sparse tensor on its device; None if no
        counted worker has any. Raises Mismatch, on all workers, if they cannot be of this
        parameter."""
        counted = []
        for part in (self._parts or {}).get(name, []):
            factor = _factor(info, part.worker)
            if part.worker not in info.contributors or factor == 0.0:
                continue
            _check_part(part, each, name)
            counted.append((part, factor))
        if not counted:
            return None
        # In byte order of the ids, as the tensors of a round are added.
        counted.sort(key=lambda of: of[0].worker.encode())
        total = merging.merge(
            torch.cat([part.places for part, _ in counted]),
            torch.cat([merging.wide(part.values) * factor for part, factor in counted]),
            1.0,
            tuple(each.shape),
            each.dtype,
        )
        return total.to(each.parameter.device)

    # ---- the call

    def _gather(self, number: int, timeout: float | None) -> Handle[list[tuple[str, _Part]]]:
        client = self._client
        # It is a part of the step: joiners get the state after it.
        before, client.before_call = client.before_call, None
        try:
            return gather(
                client,
                client.place,
                "rows",
                self._name,
                f"rows of the gradients of round {number} of lane {self._name}",
                [],
                self._packed(),
                _parts_of,
                waits=True,
                timeout=timeout,
            )
        finally:
            client.before_call = before

    def _packed(self) -> Bytes:
        header, content = [], []
        for each, places in self._sent:
            values = each.sent
            assert values is not None
            dtype = str(values.dtype).removeprefix("torch.")
            header.append([each.spec.name, dtype, list(places.shape), list(values.shape)])
            content += [raw.bytes_on_host(places), raw.bytes_on_host(values)]
        text = json.dumps(header).encode()
        head = len(text).to_bytes(_HEAD, "little") + text
        return np.concatenate(
            [np.frombuffer(head, np.uint8), *(each.numpy() for each in content)], dtype=np.uint8
        )


def _parts_of(gathered: Gathered) -> list[tuple[str, _Part]]:
    parts = []
    for share, content in zip(gathered.shares, gathered.all()):
        size = int.from_bytes(content[:_HEAD].tobytes(), "little")
        header = json.loads(content[_HEAD : _HEAD + size].tobytes())
        begin = _HEAD + size

        def next_tensor(dtype: torch.dtype, shape: Sequence[int]) -> torch.Tensor:
            nonlocal begin
            size = math.prod(shape) * dtype.itemsize
            # A copy, because numbers of this dtype may not begin at any address.
            memory = content[begin : begin + size].copy()  # noqa: B023 - it is called at once.
            begin += size
            return raw.numbers_of(memory, dtype, shape)

        for name, dtype, places, values in header:
            of_places = next_tensor(torch.int64, places)
            of_values = next_tensor(getattr(torch, dtype), values)
            parts.append((name, _Part(share.worker, of_places, of_values)))
    return parts


def _check_part(part: _Part, each: TensorGradient, name: str) -> None:
    dimensions = part.places.shape[1]
    shape = tuple(each.shape)
    sizes = torch.tensor(shape[:dimensions], dtype=torch.int64)
    fits = (
        part.values.dtype == each.dtype
        and tuple(part.values.shape[1:]) == shape[dimensions:]
        and bool((part.places < sizes).all())
    )
    if not fits:
        raise Mismatch(
            f"The rows of worker {part.worker} for parameter {name} do not fit it: it has shape "
            f"{shape} and {each.dtype} here. Build the same model on all workers."
        )


def _factor(info: RoundInfo, worker: str) -> float:
    spec = info.spec
    factor = spec.prescale * spec.postscale * differentiable.factor_of_gradient(info, worker)
    return factor / max(1, info.divisor) if spec.op == Op.AVERAGE else factor
