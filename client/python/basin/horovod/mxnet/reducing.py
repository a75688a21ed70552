# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""allreduce and reducescatter with Horovod's arguments. All calls return when they are done, and
integers are averaged and scaled as values.py says."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from basin.horovod import job, values
from basin.horovod.job import global_process_set
from basin.horovod.ops import Average, Sum, op_of
from basin.mxnet import nd
from basin.spec import Op


@dataclass(frozen=True)
class _How:
    """What a call does with its arrays."""

    call: str
    op: Op
    prescale: float
    postscale: float

    @staticmethod
    def of(
        call: str, average: bool | None, op: Any, prescale: float, postscale: float, sets: Any
    ) -> "_How":
        """Takes the arguments of a call of the user; `sets` is its process_set."""
        job.check_global(call, sets)
        # Here `average` is an argument like others, not an old one.
        if average is not None and op is None:
            op, average = (Average if average else Sum), None
        return _How(call, op_of(call, op, average), prescale, postscale)

    def allreduce(self, tensors: Sequence[Any]) -> list[Any]:
        return self._made(values.allreduce, tensors)

    def allreduce_in_place(self, tensors: Sequence[Any]) -> list[Any]:
        for tensor, result in zip(tensors, self._results(values.allreduce, tensors)):
            nd.write(tensor, result)
        return list(tensors)

    def reducescatter(self, tensors: Sequence[Any]) -> list[Any]:
        return self._made(values.reducescatter, tensors)

    def _made(self, function: Any, tensors: Sequence[Any]) -> list[Any]:
        results = self._results(function, tensors)
        return [nd.new(result, tensor) for result, tensor in zip(results, tensors)]

    def _results(self, function: Any, tensors: Sequence[Any]) -> list[Any]:
        client = job.current(self.call)
        given = [nd.read(f"{i}", each) for i, each in enumerate(tensors)]
        results: list[Any] = function(
            client, self.call, given, self.op, self.prescale, self.postscale
        )
        return results


def allreduce(
    tensor: Any,
    average: bool | None = None,
    name: str | None = None,
    priority: int = 0,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: Any = global_process_set,
    op: Any = None,
) -> Any:
    """Returns the array reduced over all workers.

    tensor:      an array of mxnet.nd or mxnet.np
    average:     True: hvd.Average, as with neither average nor op; False: hvd.Sum
    name:        not used: calls are matched by their order in the program
    priority:    not used
    prescale_factor, postscale_factor:
                 multiply each array before, and the result
    process_set: only global_process_set

    Raises ValueError before hvd.init(), Unsupported for another dtype, and Mismatch, on all
    workers, if shapes or dtypes differ.
    """
    how = _How.of("allreduce()", average, op, prescale_factor, postscale_factor, process_set)
    return how.allreduce([tensor])[0]


def allreduce_(
    tensor: Any,
    average: bool | None = None,
    name: str | None = None,
    priority: int = 0,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: Any = global_process_set,
    op: Any = None,
) -> Any:
    """Like allreduce(), in place."""
    how = _How.of("allreduce_()", average, op, prescale_factor, postscale_factor, process_set)
    return how.allreduce_in_place([tensor])[0]


def grouped_allreduce(
    tensors: Sequence[Any],
    average: bool | None = None,
    name: str | None = None,
    priority: int = 0,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: Any = global_process_set,
    op: Any = None,
) -> list[Any]:
    """Like allreduce() of each array, in one round; integers have another one."""
    call = "grouped_allreduce()"
    how = _How.of(call, average, op, prescale_factor, postscale_factor, process_set)
    return how.allreduce(tensors)


def grouped_allreduce_(
    tensors: Sequence[Any],
    average: bool | None = None,
    name: str | None = None,
    priority: int = 0,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: Any = global_process_set,
    op: Any = None,
) -> list[Any]:
    """Like grouped_allreduce(), in place."""
    call = "grouped_allreduce_()"
    how = _How.of(call, average, op, prescale_factor, postscale_factor, process_set)
    return how.allreduce_in_place(tensors)


def reducescatter(
    tensor: Any,
    op: Any = Average,
    name: str | None = None,
    priority: int = 0,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: Any = global_process_set,
) -> Any:
    """Like allreduce(), but returns only this worker's rows: the first ranks get one more if they
    cannot be divided evenly. Raises Mismatch or Unavailable, on all workers, if members have
    changed meanwhile: then call it again."""
    how = _How.of("reducescatter()", None, op, prescale_factor, postscale_factor, process_set)
    return how.reducescatter([tensor])[0]


def grouped_reducescatter(
    tensors: Sequence[Any],
    op: Any = Average,
    name: str | None = None,
    priority: int = 0,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: Any = global_process_set,
) -> list[Any]:
    """Like reducescatter() of each array, in one round."""
    call = "grouped_reducescatter()"
    how = _How.of(call, None, op, prescale_factor, postscale_factor, process_set)
    return how.reducescatter(tensors)
