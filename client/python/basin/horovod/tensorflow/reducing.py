# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""allreduce and reducescatter with Horovod's arguments.

Basin itself does not average or scale integers. Here a scale multiplies them in float64 and cuts
off the fraction, and an average divides the sum and cuts off the fraction as well.
"""

from collections.abc import Sequence
from typing import Any

from basin import arrays
from basin.errors import Unsupported
from basin.horovod import job
from basin.horovod.compression import Compression
from basin.horovod.job import global_process_set
from basin.horovod.ops import Average, Sum, op_of
from basin.spec import Op
from basin.tensorflow import host, reducing
from basin.tensorflow.host import tf

# Basin adds no numbers of these widths, so they are added as int32.
_NARROW = (tf.uint8, tf.int8, tf.int16)


def allreduce(
    tensor: Any,
    average: bool | None = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = Compression.none,
    op: Any = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    name: str | None = None,
    process_set: Any = global_process_set,
) -> Any:
    """Reduces a tensor or tf.IndexedSlices over all workers.

    average:     deprecated: True for hvd.Average, False for hvd.Sum
    device_dense, device_sparse:
                 not used
    compression: Compression.fp16 sends float16
    op:          None: hvd.Average
    prescale_factor, postscale_factor:
                 multiply each tensor before, and the result
    name:        not used: calls are matched by their order in the program
    process_set: only global_process_set

    A sum or an average is differentiable. Raises ValueError before hvd.init(); the other errors are
    those of basin.tensorflow.allreduce().
    """
    call = "allreduce()"
    op = op_of(call, op, average)
    job.check_global(call, process_set)
    return _reduce(call, [tensor], compression, op, prescale_factor, postscale_factor)[0]


def grouped_allreduce(
    tensors: Sequence[Any],
    average: bool | None = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = Compression.none,
    op: Any = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: Any = global_process_set,
) -> list[Any]:
    """Like allreduce() of each tensor, in one round; integers have another one."""
    call = "grouped_allreduce()"
    op = op_of(call, op, average)
    job.check_global(call, process_set)
    if not tensors:
        return []
    return _reduce(call, tensors, compression, op, prescale_factor, postscale_factor)


def reducescatter(
    tensor: Any,
    device_dense: str = "",
    compression: Any = Compression.none,
    op: Any = Average,
    name: str | None = None,
    process_set: Any = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> Any:
    """Like allreduce(), but returns only this worker's rows: the first ranks get one more if they
    cannot be divided evenly."""
    call = "reducescatter()"
    job.check_global(call, process_set)
    op = op_of(call, op)
    return _rows(call, _reduce(call, [tensor], compression, op, prescale_factor, postscale_factor))[
        0
    ]


def grouped_reducescatter(
    tensors: Sequence[Any],
    device_dense: str = "",
    compression: Any = Compression.none,
    op: Any = Average,
    process_set: Any = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> list[Any]:
    """Like reducescatter() of each tensor, in one round."""
    call = "grouped_reducescatter()"
    job.check_global(call, process_set)
    op = op_of(call, op)
    if not tensors:
        return []
    return _rows(call, _reduce(call, tensors, compression, op, prescale_factor, postscale_factor))


def _reduce(
    call: str,
    given: Sequence[Any],
    compression: Any,
    op: Op,
    prescale: float,
    postscale: float,
) -> list[Any]:
    tensors = [
        each if isinstance(each, tf.IndexedSlices) else tf.convert_to_tensor(each) for each in given
    ]
    made: list[Any] = [None] * len(tensors)
    floating = [i for i, each in enumerate(tensors) if not each.dtype.is_integer]
    whole = [i for i, each in enumerate(tensors) if each.dtype.is_integer]
    client = job.current(call)
    if floating:
        sent = [compression.compress(tensors[i]) for i in floating]
        options = {"prescale_factor": prescale, "postscale_factor": postscale}
        spec = arrays.spec_of(call, op, options)  # type: ignore[arg-type]
        received, _ = reducing.reduce(client, call, [each for each, _ in sent], None, spec, False)
        for i, each, (_, context) in zip(floating, received, sent):
            made[i] = compression.decompress(each, context)
    if whole:
        given = [_before(tensors[i], prescale) for i in whole]
        spec = arrays.spec_of(call, Sum if op == Average else op, {})
        received, workers = reducing.reduce(client, call, given, None, spec, False)
        for i, each in zip(whole, received):
            divisor = workers if op == Average else None
            made[i] = _after(each, tensors[i].dtype, divisor, postscale)
    return made


def _before(tensor: Any, prescale: float) -> Any:
    scaled = _scaled(tensor, prescale)
    return tf.cast(scaled, tf.int32) if scaled.dtype in _NARROW else scaled


def _after(received: Any, dtype: Any, divisor: Any, postscale: float) -> Any:
    total = tf.cast(received, dtype)
    if divisor is not None:
        wide = tf.truncatediv(tf.cast(total, tf.int64), divisor)
        total = tf.cast(wide, dtype)
    return _scaled(total, postscale)


def _scaled(tensor: Any, factor: float) -> Any:
    if factor == 1.0:
        return tensor
    return tf.cast(tf.cast(tensor, tf.float64) * factor, tensor.dtype)


def _rows(call: str, tensors: list[Any]) -> list[Any]:
    """This worker's rows of each. Its rank and the number of workers are read when the program
    runs, because both may change."""
    client = job.current(call)
    for each in tensors:
        if each.shape.rank == 0:
            raise Unsupported(f"{call} was given a number, which has no rows. Use allreduce().")

    def place(_: list[Any]) -> list[Any]:
        now = client.place
        return [now.rank, now.world_size]

    rank, size = host.run(client, call, place, [], [(tf.int64, ()), (tf.int64, ())])
    made = []
    for each in tensors:
        rows = tf.shape(each, tf.int64)[0]
        more = rows % size
        begin = rank * (rows // size) + tf.minimum(rank, more)
        count = rows // size + tf.cast(rank < more, tf.int64)
        made.append(each[begin : begin + count])
    return made
