# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""allreduce and reducescatter with Horovod's arguments."""

import zlib
from collections.abc import Sequence
from typing import Any

import torch

import basin.torch
from basin.handle import Handle
from basin.horovod.ops import Average, Sum, op_of
from basin.horovod.torch import handle as handles
from basin.horovod.torch import integers
from basin.horovod.torch.compression import Compression
from basin.horovod.torch.handle import Pending, synchronize
from basin.horovod.torch.process_sets import AnySet, basins, global_process_set
from basin.spec import Op

_DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64, *integers.DTYPES)


def allreduce_async(
    tensor: torch.Tensor,
    average: bool | None = None,
    name: str | None = None,
    op: Any = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: AnySet = global_process_set,
) -> Pending:
    """Begins an allreduce(), without a gradient; synchronize() returns its result."""
    op = op_of("allreduce_async()", op, average)
    return _one(tensor.detach(), name, op, prescale_factor, postscale_factor, process_set)


def allreduce(
    tensor: torch.Tensor,
    average: bool | None = None,
    name: str | None = None,
    compression: Any = Compression.none,
    op: Any = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: AnySet = global_process_set,
) -> torch.Tensor:
    """Reduces a tensor over all workers, or those of a set; returns a new one.

    average:          deprecated: True for hvd.Average, False for hvd.Sum
    name:             calls are matched by it; without a name by their order in the program
    compression:      Compression.fp16 sends float16
    op:               None: hvd.Average. Averages of integers have no fraction; see integers.py
    prescale_factor:  multiplies each tensor before
    postscale_factor: multiplies the result

    A sum or an average is differentiable. Raises ValueError for a dtype that is not reduced, such
    as bool; the other errors are those of basin.torch.allreduce().
    """
    op = op_of("allreduce()", op, average)
    sent, context = compression.compress(tensor)
    pending = _one(sent, name, op, prescale_factor, postscale_factor, process_set)
    made: torch.Tensor = compression.decompress(synchronize(pending), context)
    return made


def allreduce_async_(
    tensor: torch.Tensor,
    average: bool | None = None,
    name: str | None = None,
    op: Any = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: AnySet = global_process_set,
) -> Pending:
    """Like allreduce_async(), but synchronize() writes the result to the tensor and returns it."""
    op = op_of("allreduce_async_()", op, average)
    return _into([tensor], name, op, prescale_factor, postscale_factor, process_set, grouped=False)


def allreduce_(
    tensor: torch.Tensor,
    average: bool | None = None,
    name: str | None = None,
    op: Any = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: AnySet = global_process_set,
) -> torch.Tensor:
    """Like allreduce(), in place."""
    op = op_of("allreduce_()", op, average)
    pending = _into(
        [tensor], name, op, prescale_factor, postscale_factor, process_set, grouped=False
    )
    made: torch.Tensor = synchronize(pending)
    return made


def grouped_allreduce_async(
    tensors: Sequence[torch.Tensor],
    average: bool | None = None,
    name: str | None = None,
    op: Any = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: AnySet = global_process_set,
) -> Pending:
    """Begins a grouped_allreduce(), without gradients; synchronize() returns its results."""
    op = op_of("grouped_allreduce_async()", op, average)
    return _group(
        [tensor.detach() for tensor in tensors],
        name,
        op,
        prescale_factor,
        postscale_factor,
        process_set,
    )


def grouped_allreduce(
    tensors: Sequence[torch.Tensor],
    average: bool | None = None,
    name: str | None = None,
    compression: Any = Compression.none,
    op: Any = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: AnySet = global_process_set,
) -> list[torch.Tensor]:
    """Like allreduce() of each tensor, in one round."""
    op = op_of("grouped_allreduce()", op, average)
    sent = [compression.compress(tensor) for tensor in tensors]
    pending = _group(
        [tensor for tensor, _ in sent], name, op, prescale_factor, postscale_factor, process_set
    )
    received = synchronize(pending)
    return [compression.decompress(each, context) for each, (_, context) in zip(received, sent)]


def grouped_allreduce_async_(
    tensors: Sequence[torch.Tensor],
    average: bool | None = None,
    name: str | None = None,
    op: Any = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: AnySet = global_process_set,
) -> Pending:
    """Like grouped_allreduce_async(), but synchronize() writes the results to the tensors."""
    op = op_of("grouped_allreduce_async_()", op, average)
    return _into(tensors, name, op, prescale_factor, postscale_factor, process_set, grouped=True)


def grouped_allreduce_(
    tensors: Sequence[torch.Tensor],
    average: bool | None = None,
    name: str | None = None,
    op: Any = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: AnySet = global_process_set,
) -> list[torch.Tensor]:
    """Like grouped_allreduce(), in place."""
    op = op_of("grouped_allreduce_()", op, average)
    pending = _into(tensors, name, op, prescale_factor, postscale_factor, process_set, grouped=True)
    made: list[torch.Tensor] = synchronize(pending)
    return made


def sparse_allreduce_async(
    tensor: torch.Tensor, name: str | None, op: Any, process_set: AnySet = global_process_set
) -> Any:
    """Begins a sum or an average of sparse tensors. Returns a function that waits for the result,
    as Horovod does."""
    op = op_of("sparse_allreduce_async()", op)
    started = basin.torch.allreduce_async(
        tensor.detach(), name, op=op, process_set=basins(process_set)
    )
    return handles.of(started).wait


def reducescatter_async(
    tensor: torch.Tensor,
    name: str | None = None,
    op: Any = Average,
    process_set: AnySet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> Pending:
    """Begins a reducescatter(), without a gradient; synchronize() returns its result."""
    op = op_of("reducescatter_async()", op)
    return _scatter(
        [tensor.detach()], name, op, prescale_factor, postscale_factor, process_set, grouped=False
    )


def reducescatter(
    tensor: torch.Tensor,
    name: str | None = None,
    compression: Any = Compression.none,
    op: Any = Average,
    process_set: AnySet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> torch.Tensor:
    """Like allreduce(), but returns only this worker's rows: the first ranks get one more if they
    cannot be divided evenly."""
    op = op_of("reducescatter()", op)
    sent, context = compression.compress(tensor)
    pending = _scatter(
        [sent], name, op, prescale_factor, postscale_factor, process_set, grouped=False
    )
    made: torch.Tensor = compression.decompress(synchronize(pending), context)
    return made


def grouped_reducescatter_async(
    tensors: Sequence[torch.Tensor],
    name: str | None = None,
    op: Any = Average,
    process_set: AnySet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> Pending:
    """Begins a grouped_reducescatter(), without gradients; synchronize() returns its results."""
    op = op_of("grouped_reducescatter_async()", op)
    given = [tensor.detach() for tensor in tensors]
    return _scatter(given, name, op, prescale_factor, postscale_factor, process_set, grouped=True)


def grouped_reducescatter(
    tensors: Sequence[torch.Tensor],
    name: str | None = None,
    compression: Any = Compression.none,
    op: Any = Average,
    process_set: AnySet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> list[torch.Tensor]:
    """Like reducescatter() of each tensor, in one round."""
    op = op_of("grouped_reducescatter()", op)
    sent = [compression.compress(tensor) for tensor in tensors]
    pending = _scatter(
        [tensor for tensor, _ in sent],
        name,
        op,
        prescale_factor,
        postscale_factor,
        process_set,
        grouped=True,
    )
    received = synchronize(pending)
    return [compression.decompress(each, context) for each, (_, context) in zip(received, sent)]


def _with_shapes(name: str | None, tensors: Sequence[torch.Tensor]) -> str | None:
    """The name for Basin, where a name belongs to one dtype and shape. With Horovod both may change
    from call to call."""
    if name is None:
        return None
    shapes = " ".join(f"{each.dtype}{list(each.shape)}".replace("torch.", "") for each in tensors)
    return f"{name} {shapes}" if len(tensors) == 1 else f"{name} {zlib.crc32(shapes.encode()):08x}"


def _check(tensor: Any) -> None:
    if not isinstance(tensor, torch.Tensor):
        raise ValueError(f"A {type(tensor).__name__} is not reduced. Give the call a torch.Tensor.")
    if tensor.dtype not in _DTYPES:
        raise ValueError(
            f"A tensor of {tensor.dtype} is not reduced. Convert it to a dtype that has sums: "
            "floating, or an integer one."
        )


def _one(
    tensor: torch.Tensor,
    name: str | None,
    op: Op,
    prescale: float,
    postscale: float,
    process_set: AnySet,
) -> Pending:
    _check(tensor)
    name = _with_shapes(name, [tensor])
    chosen = basins(process_set)
    if not integers.is_integer(tensor):
        return handles.of(
            basin.torch.allreduce_async(
                tensor,
                name,
                op=op,
                process_set=chosen,
                prescale_factor=prescale,
                postscale_factor=postscale,
            )
        )
    started = basin.torch.allreduce_async(
        integers.before(tensor, prescale),
        name,
        op=Sum if op == Average else op,
        process_set=chosen,
    )

    def finish(begun: list[Handle[Any]], received: list[Any]) -> torch.Tensor:
        return integers.after(received[0], tensor.dtype, _divisor(op, begun[0]), postscale)

    return Pending([started], finish)


def _divisor(op: Op, handle: Handle[Any]) -> int:
    return handle.info.trainers if op == Average else 1


def _group(
    tensors: Sequence[torch.Tensor],
    name: str | None,
    op: Op,
    prescale: float,
    postscale: float,
    process_set: AnySet,
) -> Pending:
    return _groups(
        basin.torch.grouped_allreduce_async, tensors, name, op, prescale, postscale, process_set
    )


def _groups(
    call: Any,
    tensors: Sequence[torch.Tensor],
    name: str | None,
    op: Op,
    prescale: float,
    postscale: float,
    process_set: AnySet,
) -> Pending:
    """One round for the tensors of floating numbers, and another one for integers, if there are
    any."""
    if not tensors:
        raise ValueError("A group has no tensors. Give it at least one.")
    for tensor in tensors:
        _check(tensor)
    name = _with_shapes(name, tensors)
    chosen = basins(process_set)
    floating = [i for i, each in enumerate(tensors) if not integers.is_integer(each)]
    whole = [i for i, each in enumerate(tensors) if integers.is_integer(each)]
    started, places = [], []
    if floating:
        started.append(
            call(
                [tensors[i] for i in floating],
                name,
                op=op,
                process_set=chosen,
                prescale_factor=prescale,
                postscale_factor=postscale,
            )
        )
        places.append(floating)
    if whole:
        started.append(
            call(
                [integers.before(tensors[i], prescale) for i in whole],
                None if name is None else f"{name}.integers",
                op=Sum if op == Average else op,
                process_set=chosen,
            )
        )
        places.append(whole)

    def finish(begun: list[Handle[Any]], received: list[Any]) -> list[torch.Tensor]:
        made: dict[int, torch.Tensor] = {}
        for handle, results, indices in zip(begun, received, places):
            for i, result in zip(indices, results):
                made[i] = result
                if integers.is_integer(tensors[i]):
                    divisor = _divisor(op, handle)
                    made[i] = integers.after(result, tensors[i].dtype, divisor, postscale)
        return [made[i] for i in range(len(tensors))]

    return Pending(started, finish)


def _into(
    tensors: Sequence[torch.Tensor],
    name: str | None,
    op: Op,
    prescale: float,
    postscale: float,
    process_set: AnySet,
    *,
    grouped: bool,
) -> Pending:
    """Writes the results to the tensors, also to those that autograd knows, as Horovod does."""
    given = [tensor.detach() for tensor in tensors]
    if grouped:
        begun = _group(given, name, op, prescale, postscale, process_set)
    else:
        begun = _one(given[0], name, op, prescale, postscale, process_set)

    def finish(received: Any) -> Any:
        for target, result in zip(given, received if grouped else [received]):
            target.copy_(result)
        return list(tensors) if grouped else tensors[0]

    return begun.then(finish)


def _scatter(
    tensors: Sequence[torch.Tensor],
    name: str | None,
    op: Op,
    prescale: float,
    postscale: float,
    process_set: AnySet,
    *,
    grouped: bool,
) -> Pending:
    begun = _groups(
        basin.torch.grouped_reducescatter_async,
        tensors,
        name,
        op,
        prescale,
        postscale,
        process_set,
    )
    return begun if grouped else begun.then(lambda received: received[0])
