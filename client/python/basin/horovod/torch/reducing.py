# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""allreduce and reducescatter with Horovod's arguments."""

import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
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


@dataclass(frozen=True)
class _How:
    """What a call does with its tensors."""

    op: Op
    name: str | None
    prescale: float
    postscale: float
    process_set: AnySet

    @property
    def options(self) -> dict[str, Any]:
        """Those of a call of Basin on floating numbers."""
        return {
            "op": self.op,
            "process_set": basins(self.process_set),
            "prescale_factor": self.prescale,
            "postscale_factor": self.postscale,
        }

    @property
    def options_of_integers(self) -> dict[str, Any]:
        """Those of one on integers, which integers.py averages and scales."""
        op = Sum if self.op == Average else self.op
        return {"op": op, "process_set": basins(self.process_set)}

    def divisor(self, handle: Handle[Any]) -> int:
        """Returns what divides a sum of integers that has been received."""
        return handle.info.trainers if self.op == Average else 1


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
    how = _How(op, name, prescale_factor, postscale_factor, process_set)
    return _one(tensor.detach(), how)


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
    how = _How(op, name, prescale_factor, postscale_factor, process_set)
    sent, context = compression.compress(tensor)
    made: torch.Tensor = compression.decompress(synchronize(_one(sent, how)), context)
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
    how = _How(op, name, prescale_factor, postscale_factor, process_set)
    return _into(tensor, how)


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
    how = _How(op, name, prescale_factor, postscale_factor, process_set)
    made: torch.Tensor = synchronize(_into(tensor, how))
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
    how = _How(op, name, prescale_factor, postscale_factor, process_set)
    return _group([tensor.detach() for tensor in tensors], how)


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
    how = _How(op, name, prescale_factor, postscale_factor, process_set)
    return _compressed(tensors, compression, lambda sent: _group(sent, how))


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
    how = _How(op, name, prescale_factor, postscale_factor, process_set)
    return _all_into(tensors, how)


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
    how = _How(op, name, prescale_factor, postscale_factor, process_set)
    made: list[torch.Tensor] = synchronize(_all_into(tensors, how))
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
    how = _How(op, name, prescale_factor, postscale_factor, process_set)
    return _scatter([tensor.detach()], how).then(_only)


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
    how = _How(op, name, prescale_factor, postscale_factor, process_set)
    return _compressed([tensor], compression, lambda sent: _scatter(sent, how))[0]


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
    how = _How(op, name, prescale_factor, postscale_factor, process_set)
    return _scatter([tensor.detach() for tensor in tensors], how)


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
    how = _How(op, name, prescale_factor, postscale_factor, process_set)
    return _compressed(tensors, compression, lambda sent: _scatter(sent, how))


def _compressed(
    tensors: Sequence[torch.Tensor],
    compression: Any,
    begin: Callable[[list[torch.Tensor]], Pending],
) -> list[torch.Tensor]:
    """The results of a call on tensors that are compressed before it."""
    sent = [compression.compress(tensor) for tensor in tensors]
    received = synchronize(begin([tensor for tensor, _ in sent]))
    return [compression.decompress(each, context) for each, (_, context) in zip(received, sent)]


def _only(received: list[torch.Tensor]) -> torch.Tensor:
    return received[0]


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


def _one(tensor: torch.Tensor, how: _How) -> Pending:
    _check(tensor)
    name = _with_shapes(how.name, [tensor])
    if not integers.is_integer(tensor):
        return handles.of(basin.torch.allreduce_async(tensor, name, **how.options))
    started = basin.torch.allreduce_async(
        integers.before(tensor, how.prescale), name, **how.options_of_integers
    )

    def finish(begun: list[Handle[Any]], received: list[Any]) -> torch.Tensor:
        return integers.after(received[0], tensor.dtype, how.divisor(begun[0]), how.postscale)

    return Pending([started], finish)


def _group(tensors: Sequence[torch.Tensor], how: _How) -> Pending:
    return _groups(basin.torch.grouped_allreduce_async, tensors, how)


def _scatter(tensors: Sequence[torch.Tensor], how: _How) -> Pending:
    return _groups(basin.torch.grouped_reducescatter_async, tensors, how)


def _groups(call: Any, tensors: Sequence[torch.Tensor], how: _How) -> Pending:
    """One round for the tensors of floating numbers, and another one for integers, if there are
    any."""
    if not tensors:
        raise ValueError("A group has no tensors. Give it at least one.")
    for tensor in tensors:
        _check(tensor)
    name = _with_shapes(how.name, tensors)
    floating = [i for i, each in enumerate(tensors) if not integers.is_integer(each)]
    whole = [i for i, each in enumerate(tensors) if integers.is_integer(each)]
    started, places = [], []
    if floating:
        started.append(call([tensors[i] for i in floating], name, **how.options))
        places.append(floating)
    if whole:
        sent = [integers.before(tensors[i], how.prescale) for i in whole]
        name_of_whole = None if name is None else f"{name}.integers"
        started.append(call(sent, name_of_whole, **how.options_of_integers))
        places.append(whole)

    def finish(begun: list[Handle[Any]], received: list[Any]) -> list[torch.Tensor]:
        made: dict[int, torch.Tensor] = {}
        for handle, results, indices in zip(begun, received, places):
            for i, result in zip(indices, results):
                made[i] = result
                if integers.is_integer(tensors[i]):
                    dtype, divisor = tensors[i].dtype, how.divisor(handle)
                    made[i] = integers.after(result, dtype, divisor, how.postscale)
        return [made[i] for i in range(len(tensors))]

    return Pending(started, finish)


def _into(tensor: torch.Tensor, how: _How) -> Pending:
    """Writes the result to the tensor, also to one that autograd knows, as Horovod does."""
    target = tensor.detach()

    def finish(result: torch.Tensor) -> torch.Tensor:
        target.copy_(result)
        return tensor

    return _one(target, how).then(finish)


def _all_into(tensors: Sequence[torch.Tensor], how: _How) -> Pending:
    """Like _into(), for a group."""
    targets = [tensor.detach() for tensor in tensors]

    def finish(results: list[torch.Tensor]) -> list[torch.Tensor]:
        for target, result in zip(targets, results):
            target.copy_(result)
        return list(tensors)

    return _group(targets, how).then(finish)
