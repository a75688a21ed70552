# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""allreduce and reducescatter with Horovod's arguments.

Basin itself does not average or scale integers. Here a scale multiplies them in float64 and cuts
off the fraction. An average divides the sum, which has wrapped around if it had no room, and cuts
off the fraction once, after the scale.
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
from basin.tensorflow import reducing
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
    cannot be divided evenly. Raises Mismatch or Unavailable, on all workers, if members have
    changed meanwhile: then call it again."""
    call = "reducescatter()"
    job.check_global(call, process_set)
    op = op_of(call, op)
    return _scatter(call, [tensor], compression, op, prescale_factor, postscale_factor)[0]


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
    return _scatter(call, tensors, compression, op, prescale_factor, postscale_factor)


def _scatter(
    call: str,
    given: Sequence[Any],
    compression: Any,
    op: Op,
    prescale: float,
    postscale: float,
) -> list[Any]:
    tensors = [tf.convert_to_tensor(each) for each in given]
    for each in tensors:
        if each.shape.rank == 0:
            raise Unsupported(f"{call} was given a number, which has no rows. Use allreduce().")
    return _reduce(call, tensors, compression, op, prescale, postscale, scatters=True)


@tf.autograph.experimental.do_not_convert
def _reduce(
    call: str,
    given: Sequence[Any],
    compression: Any,
    op: Op,
    prescale: float,
    postscale: float,
    *,
    scatters: bool = False,
) -> list[Any]:
    client = job.current(call)
    tensors = [
        each if isinstance(each, tf.IndexedSlices) else tf.convert_to_tensor(each) for each in given
    ]
    sent, contexts = [], []
    for each in tensors:
        compressed, context = compression.compress(each)
        sent.append(compressed)
        contexts.append(context)

    def reduce(of: list[Any], chosen: Op, **scales: float) -> tuple[list[Any], Any]:
        spec = arrays.spec_of(call, chosen, scales)  # type: ignore[arg-type]
        return reducing.reduce(client, call, of, None, spec, False, scatters=scatters)

    made: list[Any] = [None] * len(tensors)
    floating = [i for i, each in enumerate(sent) if not each.dtype.is_integer]
    whole = [i for i, each in enumerate(sent) if each.dtype.is_integer]
    if floating:
        received, facts = reduce(
            [sent[i] for i in floating], op, prescale_factor=prescale, postscale_factor=postscale
        )
        for i, each in zip(floating, received):
            made[i] = _rows_of(each, facts) if scatters else each
    if whole:
        received, facts = reduce(
            [_before(sent[i], prescale) for i in whole], Sum if op == Average else op
        )
        for i, each in zip(whole, received):
            result = _after(each, sent[i].dtype, facts.trainers if op == Average else 1, postscale)
            made[i] = _rows_of(result, facts) if scatters else result
    return [compression.decompress(each, context) for each, context in zip(made, contexts)]


def _before(tensor: Any, prescale: float) -> Any:
    scaled = tensor
    if prescale != 1.0:
        scaled = tf.cast(tf.cast(tensor, tf.float64) * prescale, tensor.dtype)
    return tf.cast(scaled, tf.int32) if scaled.dtype in _NARROW else scaled


def _after(received: Any, dtype: Any, divisor: Any, postscale: float) -> Any:
    total = tf.cast(received, dtype)
    if postscale != 1.0:
        # Divided last: a product with postscale / divisor may be one too small.
        scaled = tf.cast(total, tf.float64) * postscale / tf.cast(divisor, tf.float64)
        return tf.cast(scaled, dtype)
    # A narrow dtype may have no room for the divisor.
    return tf.cast(tf.truncatediv(tf.cast(total, tf.int64), tf.cast(divisor, tf.int64)), dtype)


def _rows_of(tensor: Any, facts: reducing.Facts) -> Any:
    """This worker's rows. Its rank and the number of workers are those of the round, because both
    may change."""
    rows = tf.shape(tensor, tf.int64)[0]
    share, more = rows // facts.workers, rows % facts.workers
    begin = facts.rank * share + tf.minimum(facts.rank, more)
    return tensor[begin : begin + share + tf.cast(facts.rank < more, tf.int64)]
