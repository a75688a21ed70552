# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""A script of Horovod for TensorFlow, which basin-run --horovod runs as it is. It also checks what
Horovod's calls return."""

import contextlib
from pathlib import Path
from typing import Any

import horovod.tensorflow as hvd
import keras
import numpy as np
import tensorflow as tf
import torch
from sklearn.datasets import load_digits

BATCH = 16


def train(**options: Any) -> dict[str, torch.Tensor]:
    """In the form of Horovod's example for TensorFlow 2: the broadcast follows the first step."""
    keras.utils.set_random_seed(hvd.rank())
    x, y = load_digits(return_X_y=True)
    dataset = tf.data.Dataset.from_tensor_slices((x / 16.0, y))
    dataset = dataset.shard(hvd.size(), hvd.rank()).repeat().batch(BATCH)
    model = keras.Sequential(
        [keras.Input((64,)), keras.layers.Dense(16, "tanh"), keras.layers.Dense(10)]
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    optimizer = keras.optimizers.Adam(0.001 * hvd.size())

    @tf.function
    def step(images: Any, labels: Any, first_batch: bool) -> Any:
        with tf.GradientTape() as tape:
            value = loss(labels, model(images, training=True))
        tape = hvd.DistributedGradientTape(tape, **options)
        gradients = tape.gradient(value, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))
        if first_batch:
            hvd.broadcast_variables(model.variables, root_rank=0)
            hvd.broadcast_variables(optimizer.variables, root_rank=0)
        return value

    losses = []
    for number, (images, labels) in enumerate(dataset.take(40)):
        losses.append(float(hvd.allreduce(step(images, labels, number == 0), name="loss")))
    assert np.mean(losses[-5:]) < np.mean(losses[:5]), losses
    return {each.path: torch.tensor(keras.ops.convert_to_numpy(each)) for each in model.weights}


def check_reductions() -> None:
    rank, size = hvd.rank(), hvd.size()
    for run in (lambda f: f, tf.function):
        for dtype in (tf.float16, tf.float32, tf.float64, tf.int32, tf.int64):
            x = tf.cast([rank + 1, 3], dtype)
            total = run(lambda x: hvd.allreduce(x, op=hvd.Sum))(x)
            assert total.dtype == dtype and total.numpy().tolist() == [3, 6], total
        narrow = tf.constant([-1 - rank, 100], tf.int8)
        assert run(hvd.allreduce)(narrow).numpy().tolist() == [-1, -28], narrow
        whole = tf.constant([rank + 2, -rank])
        assert run(hvd.allreduce)(whole).numpy().tolist() == [2, 0]
        doubled = run(lambda x: hvd.allreduce(x, postscale_factor=2.0))(whole)
        assert doubled.numpy().tolist() == [5, -1], doubled
        scaled = run(lambda x: hvd.allreduce(x, op=hvd.Sum, prescale_factor=1.5))(whole)
        assert scaled.numpy().tolist() == [3 + 4, -1], scaled
        half = hvd.allreduce(tf.constant([1.0 + rank]), compression=hvd.Compression.fp16)
        assert half.dtype == tf.float32 and half.numpy().tolist() == [1.5]
        both = hvd.grouped_allreduce([tf.constant(1.0 * rank), tf.constant([rank])], op=hvd.Max)
        assert float(both[0]) == 1.0 and both[1].numpy().tolist() == [1]
        rows = run(lambda x: hvd.reducescatter(x, op=hvd.Sum))(tf.constant([1.0, 2.0, 3.0]))
        assert rows.numpy().tolist() == ([2.0, 4.0], [6.0])[rank], rows
        rows = run(hvd.reducescatter)(tf.constant([1, 2, 4]) + rank)
        assert rows.numpy().tolist() == ([1, 2], [4])[rank], rows
        assert run(slope_of_rows)(tf.constant([1.0, 2.0, 3.0])).numpy().tolist() == [1, 1, 2]
        all_rows = run(hvd.allgather)(tf.fill([rank + 1, 2], rank))
        assert all_rows.numpy().tolist() == [[0, 0], [1, 1], [1, 1]], all_rows
        roots = run(lambda x: hvd.broadcast(x, 1))(tf.constant([rank]))
        assert roots.numpy().tolist() == [1]
        received, counts = run(lambda x: hvd.alltoall(x, [1, 2]))(
            tf.constant([0, 1, 2]) + 10 * rank
        )
        assert received.numpy().tolist() == ([0, 10], [1, 2, 11, 12])[rank], received
        assert counts.numpy().tolist() == [rank + 1] * 2, counts
        place = run(lambda: (hvd.rank_op(), hvd.size_op()))()
        assert [int(each) for each in place] == [rank, size]
    assert hvd.broadcast_object({"of": rank}, 1) == {"of": 1}
    assert hvd.broadcast_object_fn(0)([rank]) == [0]
    assert hvd.allgather_object("a" * rank) == ["", "a"]
    hvd.barrier()
    assert hvd.is_homogeneous() and hvd.local_rank() == rank and hvd.cross_size() == 1


def slope_of_rows(x: Any) -> Any:
    """Each row of the result is one worker's, so the gradient has what that one multiplies by."""
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = tf.reduce_sum(hvd.reducescatter(x, op=hvd.Sum)) * (hvd.rank() + 1.0)
    return tape.gradient(y, x)


def check_positions() -> None:
    """The arguments of DistributedOptimizer() by their place."""
    made = hvd.DistributedOptimizer(
        keras.optimizers.SGD(0.1), None, False, "", "", hvd.Compression.none, False, 2, hvd.Sum
    )
    assert made.gradient_accumulation_steps == 2


def check_refusals() -> None:
    for call in (
        lambda: hvd.join(),
        lambda: hvd.elastic.run(print),
        lambda: hvd.SyncBatchNormalization(),
        lambda: hvd.allreduce(1.0, op=hvd.Adasum),
        lambda: hvd.allreduce(1.0, process_set=object()),
        lambda: hvd.ProcessSet([0]),
        lambda: hvd.BroadcastGlobalVariablesHook(0),
        lambda: hvd.DistributedOptimizer(tf.compat.v1.train.AdamOptimizer()),
        lambda: hvd.PartialDistributedGradientTape(None),
        lambda: hvd.start_timeline("here"),
        lambda: hvd.reducescatter(1.0),
    ):
        with refused(NotImplementedError):
            call()
    with refused(ValueError):
        hvd.DistributedGradientTape(tf.GradientTape(), op=hvd.Max)
    with refused(ValueError):
        hvd.allreduce(1.0, op=1)  # Horovod's number of a sum.
    with refused(NotImplementedError), tf.GradientTape() as tape:
        x = tf.Variable([1.0])
        tape.gradient(hvd.allgather(x), x)
    with refused(InvalidObject):
        hvd.broadcast_object(Unpicklable(), 0)
    with refused(ModuleNotFoundError):
        import horovod.spark  # noqa: F401


class Unpicklable:
    def __reduce__(self) -> Any:
        raise TypeError("it cannot")


@contextlib.contextmanager
def refused(kind: type[Exception]) -> Any:
    try:
        yield
    except kind:
        return
    raise AssertionError(f"{kind.__name__} was not raised")


if __name__ == "__main__":
    from basin import InvalidArgument as InvalidObject

    with refused(ValueError):
        hvd.rank()
    hvd.init()
    hvd.init()
    check_reductions()
    check_positions()
    results = {
        "plain": train(),
        "fp16": train(compression=hvd.Compression.fp16),
    }
    check_refusals()
    torch.save(results, Path(f"results-{hvd.rank()}.pt"))
    hvd.shutdown()
    assert not hvd.is_initialized()
