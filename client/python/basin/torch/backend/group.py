# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""The process group: the calls of torch.distributed, in terms of rounds.

torch calls the methods from Python and from C++, by these names and with these arguments. The
tensors of a call must not change until it has ended, and those that it fills have no meaning until
then.
"""

import atexit
import sys
import weakref
from collections.abc import Sequence
from typing import Any, NoReturn

import torch
from torch.distributed import ProcessGroup

from basin import exchange
from basin.errors import InvalidArgument, Unsupported
from basin.handle import Handle
from basin.torch import pieces, raw
from basin.torch.backend import calls, reductions
from basin.torch.backend.calls import Array, Tensors
from basin.torch.backend.membership import Membership
from basin.torch.backend.work import BasinWork, Waiters


class BasinGroup(ProcessGroup):
    """Some workers that make the same calls in the same order. All get Mismatch if they do not; all
    get Unavailable, from then on, if one of them was lost."""

    def __init__(self, membership: Membership, rank: int, size: int) -> None:
        super().__init__(rank, size)  # type: ignore[call-arg]
        self._membership = membership
        self._waiters = Waiters()
        self._rank, self._size = rank, size
        self._name = self._description = ""
        _open_groups.add(self)

    # ---- what it is

    def getBackendName(self) -> str:
        return "basin"

    # torch's own keeps its name in the backends of its devices, which this one does not have.

    def _set_group_name(self, name: Any) -> None:
        self._name = name

    def getGroupName(self) -> str:
        return self._name

    @property
    def group_name(self) -> Any:
        return self._name

    def _set_group_desc(self, desc: str) -> None:
        self._description = desc

    def getGroupDesc(self) -> str:
        return self._description

    @property
    def group_desc(self) -> str:
        return self._description

    def rank(self) -> int:
        return self._rank

    def size(self) -> int:
        return self._size

    def shutdown(self) -> None:
        """Leaves the group."""
        self._close(finished=True)

    def abort(self) -> None:
        """Leaves the group without an end: the others take this worker for lost."""
        self._close(finished=False)

    def _close(self, *, finished: bool) -> None:
        if self in _open_groups:
            _open_groups.discard(self)
            self._waiters.close()
            self._membership.close(finished=finished)

    # ---- reductions

    def allreduce(self, tensors: Any, opts: Any = None, timeout: Any = None) -> BasinWork:
        """Reduces each tensor in place; all members get the same bits."""
        listed = _listed(tensors)
        call = "allreduce()"
        spec = reductions.spec_of(call, _sum_or(opts))
        arrays = [Array(reductions.given(call, each), True, each) for each in listed]
        client = self._membership.member(call)
        return self._work(calls.reduce(client, "", spec, arrays, self._membership.timeout))

    def allreduce_coalesced(self, tensors: Any, opts: Any = None) -> BasinWork:
        """As allreduce(), which takes several tensors anyway."""
        return self.allreduce(tensors, opts)

    def reduce(
        self, tensors: Any, opts: Any = None, op: Any = None, timeout: Any = None
    ) -> BasinWork:
        """Reduces each tensor; only the root gets the result, in place."""
        call = "reduce()"
        root = self._root(call, opts)
        spec = reductions.spec_of(call, _sum_or(opts if op is None else op))
        arrays = [
            Array(reductions.given(call, each), True, each if root == self._rank else None)
            for each in _listed(tensors)
        ]
        client = self._membership.member(call)
        named = f"reduce to rank {root}"
        return self._work(calls.reduce(client, named, spec, arrays, self._membership.timeout))

    def reduce_scatter(
        self, output_tensors: Any, input_tensors: Any, opts: Any = None, timeout: Any = None
    ) -> BasinWork:
        """Reduces a list with a tensor for each rank; each rank gets its own."""
        call = "reduce_scatter()"
        outputs, inputs = _listed(output_tensors), _lists(input_tensors)
        arrays = []
        for output, parts in zip(outputs, inputs, strict=True):
            self._check_count(call, "inputs", parts)
            _check_same(call, output, parts[self._rank])
            arrays += [
                Array(reductions.given(call, part), True, output if i == self._rank else None)
                for i, part in enumerate(parts)
            ]
        spec = reductions.spec_of(call, _sum_or(opts))
        client = self._membership.member(call)
        return self._work(
            calls.reduce(client, "reduce_scatter", spec, arrays, self._membership.timeout)
        )

    def reduce_scatter_single(self, output: Any, input: Any, opts: Any = None) -> BasinWork:
        """As reduce_scatter(), of one tensor with equal parts for the ranks."""
        return self.reduce_scatter_single_coalesced([output], [input], opts)

    def reduce_scatter_single_coalesced(
        self, output_tensors: Any, input_tensors: Any, opts: Any = None
    ) -> BasinWork:
        """As reduce_scatter_single() of each pair, in one call."""
        divided = [
            self._divided("reduce_scatter_tensor()", each, output)
            for output, each in zip(output_tensors, input_tensors, strict=True)
        ]
        return self.reduce_scatter(list(output_tensors), divided, opts)

    # ---- calls that move tensors

    def broadcast(self, tensors: Any, opts: Any = None, timeout: Any = None) -> BasinWork:
        """Gives all members the root's tensors, bit for bit, in place."""
        call = "broadcast()"
        root = self._root(call, opts)
        mine = root == self._rank
        arrays = [
            Array(calls.on_host(call, each), mine, None if mine else each)
            for each in _listed(tensors)
        ]
        return self._move(call, f"broadcast from rank {root}", arrays)

    def allgather(  # type: ignore[override]
        self, output_tensors: Any, input_tensors: Any, opts: Any = None, timeout: Any = None
    ) -> BasinWork:
        """Gives all members the tensors of all ranks, which may differ in shape."""
        call = "allgather()"
        arrays = []
        for outputs, given in zip(_lists(output_tensors), _listed(input_tensors), strict=True):
            self._check_count(call, "outputs", outputs)
            _check_same(call, outputs[self._rank], given)
            arrays += [
                Array(
                    calls.on_host(call, given if i == self._rank else into), i == self._rank, into
                )
                for i, into in enumerate(outputs)
            ]
        return self._move(call, "allgather", arrays)

    def allgather_coalesced(
        self, output_lists: Any, input_list: Any, opts: Any = None
    ) -> BasinWork:
        """As allgather(), which takes several tensors anyway."""
        return self.allgather(output_lists, input_list, opts)

    def all_gather_single(self, output: Any, input: Any, opts: Any = None) -> BasinWork:
        """As allgather(), into one tensor with equal parts for the ranks."""
        return self.all_gather_single_coalesced([output], [input], opts)

    def all_gather_single_coalesced(
        self, output_tensors: Any, input_tensors: Any, opts: Any = None
    ) -> BasinWork:
        """As all_gather_single() of each pair, in one call."""
        divided = [
            self._divided("all_gather_into_tensor()", output, each)
            for output, each in zip(output_tensors, input_tensors, strict=True)
        ]
        return self.allgather(divided, list(input_tensors), opts)

    def gather(
        self, output_tensors: Any, input_tensors: Any, opts: Any = None, timeout: Any = None
    ) -> BasinWork:
        """Gives the root the tensors of all ranks."""
        call = "gather()"
        root = self._root(call, opts)
        inputs = _listed(input_tensors)
        lists = _lists(output_tensors) if root == self._rank else [[] for _ in inputs]
        arrays = []
        for outputs, given in zip(lists, inputs, strict=True):
            if root == self._rank:
                self._check_count(call, "outputs", outputs)
                _check_same(call, outputs[root], given)
            bits = calls.on_host(call, given)
            arrays += [
                Array(bits, i == self._rank, outputs[i] if outputs else None)
                for i in range(self._size)
            ]
        return self._move(call, f"gather to rank {root}", arrays)

    def scatter(
        self, output_tensors: Any, input_tensors: Any, opts: Any = None, timeout: Any = None
    ) -> BasinWork:
        """Gives each rank its tensor of the root's list."""
        call = "scatter()"
        root = self._root(call, opts)
        outputs = _listed(output_tensors)
        lists = _lists(input_tensors) if root == self._rank else [[] for _ in outputs]
        arrays = []
        for output, given in zip(outputs, lists, strict=True):
            if root == self._rank:
                self._check_count(call, "inputs", given)
                _check_same(call, output, given[root])
            arrays += [
                Array(
                    calls.on_host(call, given[i] if given else output),
                    root == self._rank,
                    output if i == self._rank else None,
                )
                for i in range(self._size)
            ]
        return self._move(call, f"scatter from rank {root}", arrays)

    def all_to_all_single(
        self,
        output: Any,
        input: Any,
        output_split_sizes: Any = None,
        input_split_sizes: Any = None,
        opts: Any = None,
    ) -> BasinWork:
        """Splits are numbers of rows; none: as many for each rank."""
        call = "all_to_all_single()"
        sent = self._elements(call, input, input_split_sizes)
        received = self._elements(call, output, output_split_sizes)
        return self._exchange(call, calls.on_host(call, input), sent, received, [output])

    def alltoall(  # type: ignore[override]
        self, output_tensors: Any, input_tensors: Any, opts: Any = None, timeout: Any = None
    ) -> BasinWork:
        """Sends a tensor to each rank, and receives one of each."""
        call = "all_to_all()"
        outputs, inputs = _listed(output_tensors), _listed(input_tensors)
        self._check_count(call, "outputs", outputs)
        self._check_count(call, "inputs", inputs)
        flat = torch.cat([calls.on_host(call, each).reshape(-1) for each in inputs])
        sent, received = ([each.numel() for each in listed] for listed in (inputs, outputs))
        return self._exchange(call, flat, sent, received, outputs)

    def barrier(self, opts: Any = None, timeout: Any = None) -> BasinWork:  # type: ignore[override]
        """Ends when every member has called it."""
        here = torch.zeros(1, dtype=torch.uint8, device="cpu")
        client = self._membership.member("barrier()")
        spec = reductions.spec_of("barrier()", torch.distributed.ReduceOp.MAX)
        arrays = [Array(here, True, here)]
        return self._work(calls.reduce(client, "barrier", spec, arrays, self._membership.timeout))

    # ---- calls between two workers

    def send(self, tensors: Any, dst: int, tag: int = 0) -> NoReturn:
        self._refuse_between_two("send()")

    def recv(self, tensors: Any, src: int, tag: int = 0) -> NoReturn:
        self._refuse_between_two("recv()")

    def recv_anysource(self, tensors: Any, tag: int = 0) -> NoReturn:
        self._refuse_between_two("recv()")

    def _refuse_between_two(self, call: str) -> NoReturn:
        raise Unsupported(
            f"{call} was called in a group of the backend basin, in which every call is one of all "
            "members. Use broadcast() in new_group() of the two workers, or all_to_all()."
        )

    # torch calls some of them by an older name.
    _allgather_base = all_gather_single
    allgather_into_tensor_coalesced = all_gather_single_coalesced  # type: ignore[assignment]
    _reduce_scatter_base = reduce_scatter_single  # type: ignore[assignment]
    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced  # type: ignore[assignment]
    alltoall_base = all_to_all_single  # type: ignore[assignment]

    # ---- shared

    def _work(self, handle: Handle[Tensors]) -> BasinWork:
        return BasinWork(handle, self._waiters, self._membership.timeout)

    def _move(self, call: str, named: str, arrays: Sequence[Array]) -> BasinWork:
        client = self._membership.member(call)
        return self._work(calls.move(client, named, arrays, self._membership.timeout))

    def _exchange(
        self,
        call: str,
        given: torch.Tensor,
        sent: list[int],
        received: list[int],
        outputs: Tensors,
    ) -> BasinWork:
        """Sends so many elements to each rank, and fills the outputs with those of each."""
        piece = pieces.of(call, None, given.reshape(-1))

        def output(rows: list[exchange.Received]) -> Tensors:
            content, counts = rows[0]
            if counts != received:
                raise InvalidArgument(
                    f"{call} has room for {received} elements of the ranks, in order, and they "
                    f"have sent {counts}. Make the output splits those of the senders."
                )
            numbers = raw.numbers_of(content, given.dtype, (sum(counts),))
            for into, part in zip(outputs, numbers.split([each.numel() for each in outputs])):
                raw.write("of the call", into, part.reshape(into.shape))
            return outputs

        client = self._membership.member(call)
        timeout = self._membership.timeout
        return self._work(
            exchange.alltoall(
                client,
                call,
                "alltoall",
                None,
                [piece],
                [sent],
                output,
                waits=False,
                timeout=timeout,
            )
        )

    def _elements(self, call: str, tensor: torch.Tensor, splits: Any) -> list[int]:
        """How many elements the rows for each rank have."""
        rows = tensor.shape[0] if tensor.dim() else 1
        if not splits:
            if rows % self._size:
                raise InvalidArgument(
                    f"{call} was given {rows} rows, which {self._size} workers cannot share "
                    "evenly. Pass the split sizes, the number of rows for each rank."
                )
            splits = [rows // self._size] * self._size
        if len(splits) != self._size or sum(splits) != rows or min(splits) < 0:
            raise InvalidArgument(
                f"{call} cannot use the splits {list(splits)} of {rows} rows. Pass {self._size} "
                "numbers from 0 that add up to the rows."
            )
        of_row = tensor.numel() // rows if rows else 0
        return [split * of_row for split in splits]

    def _divided(self, call: str, whole: torch.Tensor, part: torch.Tensor) -> Tensors:
        """The part of each rank in a tensor of the size of all parts."""
        if whole.numel() != self._size * part.numel():
            raise InvalidArgument(
                f"{call} was given tensors of {whole.numel()} and {part.numel()} elements. For "
                f"{self._size} workers, the larger one needs {self._size} times as many as the "
                "other."
            )
        if not whole.is_contiguous():
            raise InvalidArgument(
                f"{call} was given a tensor that is not contiguous. Pass tensor.contiguous()."
            )
        return list(whole.detach().view(self._size, *part.shape).unbind(0))

    def _root(self, call: str, options: Any) -> int:
        root = getattr(options, "rootRank", options)
        if not isinstance(root, int) or not 0 <= root < self._size:
            raise InvalidArgument(
                f"{call} cannot have rank {root} as its root. Use one from 0 to {self._size - 1}."
            )
        return root

    def _check_count(self, call: str, what: str, listed: Tensors) -> None:
        if len(listed) != self._size:
            raise InvalidArgument(
                f"{call} was given {len(listed)} {what} for {self._size} workers. Give it one for "
                "each."
            )


def create(options: Any, _: Any = None) -> BasinGroup:
    """Makes the group for torch.distributed, when all its members do."""
    membership = Membership(
        options.store,
        options.group_rank,
        options.group_size,
        options.timeout,
        is_default=not options.global_ranks_in_group,
    )
    return BasinGroup(membership, options.group_rank, options.group_size)


def _sum_or(options: Any) -> Any:
    return torch.distributed.ReduceOp.SUM if options is None else options


def _listed(given: Any) -> Tensors:
    """Some calls take a tensor in place of a list."""
    return [given] if isinstance(given, torch.Tensor) else list(given)


def _lists(given: Any) -> list[Tensors]:
    """The same for a list in place of a list of lists."""
    listed = list(given)
    return [listed] if listed and isinstance(listed[0], torch.Tensor) else listed


def _check_same(call: str, one: torch.Tensor, other: torch.Tensor) -> None:
    """An output may have another shape than its input, with as many elements."""
    if one.dtype != other.dtype or one.numel() != other.numel():
        raise InvalidArgument(
            f"{call} was given an input of {other.dtype}{list(other.shape)} and an output of "
            f"{one.dtype}{list(one.shape)}. Make them the same."
        )


# At exit, threads of Python must not be in the library.
_open_groups: "weakref.WeakSet[BasinGroup]" = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    failed = getattr(sys, "last_value", None) is not None
    for group in list(_open_groups):
        group._close(finished=not failed)
