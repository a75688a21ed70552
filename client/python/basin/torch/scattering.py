# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""Reduce-scatter of torch tensors, with gradients."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

import torch

from basin import scattering
from basin.errors import Unsupported
from basin.handle import CALL_PREFIX, Handle
from basin.process_set import ProcessSet
from basin.spec import AVERAGES, Counts, Op, ReductionOptions, RoundSpec, contribution, reduction
from basin.torch import differentiable, pieces, raw, tensors
from basin.torch.gathering import allgather
from basin.worker import PartedResult, Result, RoundInfo

if TYPE_CHECKING:
    from typing_extensions import Unpack

T = TypeVar("T")


def reducescatter_async(
    tensor: torch.Tensor,
    name: str | None = None,
    *,
    op: Op,
    counts: Counts | None = None,
    process_set: ProcessSet | None = None,
    **options: "Unpack[ReductionOptions]",
) -> Handle[torch.Tensor]:
    """Like reducescatter(), but returns at once. Do not change the tensor until the handle is
    done."""
    return _reducescatter(
        "reducescatter_async()", [tensor], name, pieces.only, op, counts, options, process_set
    )


def reducescatter(
    tensor: torch.Tensor,
    name: str | None = None,
    *,
    op: Op,
    counts: Counts | None = None,
    process_set: ProcessSet | None = None,
    **options: "Unpack[ReductionOptions]",
) -> torch.Tensor:
    """Like allreduce(), but returns only this worker's rows of the result, by rank: as many as the
    others get, or one more for the first ranks.

    A sum or an average is differentiable: the backward is an allgather of the gradients of the
    rows. Every worker receives the whole result, and keeps its rows. Raises InvalidArgument for a
    number, which has no rows; Unavailable, on all workers, if one was lost meanwhile, and Mismatch
    if members have changed between the calls of two workers: then call it again.
    """
    return pieces.complete(
        _reducescatter(
            "reducescatter()", [tensor], name, pieces.only, op, counts, options, process_set
        )
    )


def grouped_reducescatter_async(
    group: Sequence[torch.Tensor],
    name: str | None = None,
    *,
    op: Op,
    counts: Counts | None = None,
    process_set: ProcessSet | None = None,
    **options: "Unpack[ReductionOptions]",
) -> Handle[list[torch.Tensor]]:
    """Like grouped_reducescatter(), but returns at once."""
    return _reducescatter(
        "grouped_reducescatter_async()", group, name, list, op, counts, options, process_set
    )


def grouped_reducescatter(
    group: Sequence[torch.Tensor],
    name: str | None = None,
    *,
    op: Op,
    counts: Counts | None = None,
    process_set: ProcessSet | None = None,
    **options: "Unpack[ReductionOptions]",
) -> list[torch.Tensor]:
    """Like reducescatter() of each tensor, in one round."""
    return pieces.complete(
        _reducescatter(
            "grouped_reducescatter()", group, name, list, op, counts, options, process_set
        )
    )


def _reducescatter(
    call: str,
    group: Sequence[torch.Tensor],
    name: str | None,
    finish: Callable[[list[torch.Tensor]], T],
    op: Op,
    counts: Counts | None,
    options: ReductionOptions,
    process_set: ProcessSet | None,
) -> Handle[T]:
    reducing = contribution(reduction(call, op, options), counts)
    client = pieces.client_of(call, name, process_set)
    given = pieces.group_of(call, name, group)
    called = "without a name" if name is None else name
    for i, tensor in enumerate(group):
        tensors.check_dtype(f"{called}.{i}", tensor.dtype)
    place = client.place
    mine = [scattering.rows_of(call, piece.shape, place) for piece in given]
    spec = scattering.spec_of(reducing, place, [(piece.dtype, piece.shape) for piece in given])
    tracked = [pieces.tracks(tensor) for tensor in group]

    def output(result: Result | PartedResult) -> T:
        scattering.check_contributors(call, place, result.info)
        made = []
        for i, (tensor, (begin, end)) in enumerate(zip(group, mine)):
            whole = raw.empty_on_host(tuple(tensor.shape), tensor.dtype)
            result.copy(i, whole.data_ptr(), tensors.bytes_of(whole))
            rows = whole[begin:end].clone().to(tensor.device)
            if tracked[i]:
                named = None if name is None else f"{name}.{i}"
                of_rows = _gradient_of_rows(
                    named, reducing, result.info, client.worker_id, process_set
                )
                rows = differentiable.attach(tensor, rows, of_rows)
            made.append(rows)
        return finish(made)

    waits = "_async" not in call
    sent = [
        (tensors.spec_of(f"{called}.{i}", tensor), piece.content.ctypes.data, piece.content.nbytes)
        for i, (tensor, piece) in enumerate(zip(group, given))
    ]
    memory = [piece.content for piece in given]
    if name is None:
        return client.start_unnamed(sent, memory, output, spec, waits, pieces.timeout())
    kind = "grouped_reducescatter" if call.startswith("grouped") else "reducescatter"
    lane = f"{CALL_PREFIX}{kind}/{name}"
    return client.start(lane, sent, memory, output, spec, waits, over_all=True)


def _gradient_of_rows(
    name: str | None, spec: RoundSpec, info: RoundInfo, worker: str, process_set: ProcessSet | None
) -> Callable[[torch.Tensor], torch.Tensor]:
    named = None if name is None else f"gradient/reducescatter/{name}"

    def gradient_of(gradient: torch.Tensor) -> torch.Tensor:
        if spec.op not in (Op.SUM, *AVERAGES):
            raise Unsupported(
                f"The backward reached a reducescatter() of {spec.op.name}, which has no gradient "
                "here. Use a sum or an average, or give it a tensor.detach()."
            )
        factor = spec.prescale * spec.postscale * differentiable.factor_of_gradient(info, worker)
        if spec.op == Op.AVERAGE:
            factor /= info.divisor
        return allgather(gradient, named, process_set=process_set) * factor

    return gradient_of
