# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""Trains with TensorFlow and gradient tapes: as one worker of two, or with ALONE=1 in one process
with their batch. As a worker it also checks what calls return, and what they refuse."""

import contextlib
import os
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
import torch
from sklearn.datasets import load_digits

ALONE = "ALONE" in os.environ
STEPS = 6
BATCH = 16


def start(rank: int) -> list[Any]:
    rng = np.random.default_rng(7 + rank)
    return [
        tf.Variable(rng.normal(size=shape) * 0.1, name=name)
        for name, shape in [("table", (20, 3)), ("hidden", (67, 8)), ("scores", (8, 10))]
    ]


def loss_of(variables: list[Any], x: Any, words: Any, y: Any) -> Any:
    table, hidden, scores = variables
    meaning = tf.reduce_mean(tf.gather(table, words), 1)
    inner = tf.tanh(tf.concat([x, meaning], 1) @ hidden)
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(y, inner @ scores)
    return tf.reduce_mean(losses)


def batch(step: int, client: Any) -> Any:
    x, y = load_digits(return_X_y=True)
    chosen = slice(step * BATCH, (step + 1) * BATCH)
    x, y = x[chosen], y[chosen]
    if client is not None:
        x, y = x[client.rank :: client.world_size], y[client.rank :: client.world_size]
    words = x[:, 20:24].astype(np.int64)
    return tf.constant(x / 16.0), tf.constant(words), tf.constant(y)


def train(client: Any, *, compiled: bool = True, records: bool = False, **options: Any) -> Any:
    import basin.tensorflow

    variables = start(0 if client is None else client.rank)
    velocity = [tf.Variable(tf.zeros_like(each)) for each in variables]
    if client is not None:
        basin.tensorflow.broadcast_variables(client, variables)

    def step(x: Any, words: Any, y: Any) -> Any:
        tape: Any = tf.GradientTape()
        if client is not None and records:
            tape = basin.tensorflow.DistributedGradientTape(client, tape, **options)
        with tape:
            loss = loss_of(variables, x, words, y)
        if client is not None and not records:
            tape = basin.tensorflow.DistributedGradientTape(client, tape, **options)
        gradients = tape.gradient(loss, variables)
        if client is not None and not options.get("sparse_as_dense"):
            assert isinstance(gradients[0], tf.IndexedSlices), gradients[0]
        for variable, moment, gradient in zip(variables, velocity, gradients):
            moment.assign(0.9 * moment + tf.convert_to_tensor(gradient))
            variable.assign_sub(0.3 * moment)
        return loss

    run = tf.function(step) if compiled else step
    for number in range(STEPS):
        run(*batch(number, client))
    return result(variables)


def result(variables: list[Any]) -> dict[str, torch.Tensor]:
    return {each.name: torch.tensor(each.numpy()) for each in variables}


def check_calls(client: Any) -> None:
    """What allreduce() and broadcast_variables() return."""
    import basin
    from basin.tensorflow import allreduce, broadcast_variables, grouped_allreduce

    mine = float(client.rank + 1)
    for run in (lambda f: f, tf.function):
        for dtype in (tf.float64, tf.float32, tf.float16, tf.bfloat16, tf.int64, tf.int32):
            total = run(lambda x: allreduce(client, x, op=basin.Sum))(
                tf.fill([2, 3], tf.cast(mine, dtype))
            )
            assert total.dtype == dtype and total.shape == (2, 3), total
            assert (tf.cast(total, tf.float64).numpy() == 3.0).all(), total
        both = run(lambda x: grouped_allreduce(client, [x, x[0] + 1], op=basin.Average))(
            tf.constant([mine, 0.0])
        )
        assert both[0].numpy().tolist() == [1.5, 0.0] and float(both[1]) == 2.5, both
        assert float(run(lambda x: allreduce(client, x, "max", op=basin.Max))(mine)) == 2.0
        empty = run(lambda x: allreduce(client, x, op=basin.Sum))(tf.zeros([0, 4]))
        assert empty.shape == (0, 4), empty

        slices = run(
            lambda values, indices: allreduce(
                client, tf.IndexedSlices(values, indices, tf.constant([9, 2])), op=basin.Average
            )
        )(tf.fill([2, 2], mine), tf.constant([8, client.rank]))
        assert slices.indices.numpy().tolist() == [0, 1, 8], slices
        assert slices.values.numpy().tolist() == [[0.5, 0.5], [1.0, 1.0], [1.5, 1.5]], slices

        # The gradient of a result of all workers is of the results of all of them.
        def derived(x: Any) -> Any:
            with tf.GradientTape() as tape:
                tape.watch(x)
                y = allreduce(client, x, op=basin.Sum) * (client.rank + 1.0)
            return tape.gradient(y, x)

        assert float(run(derived)(tf.constant(mine))) == 3.0

    check_order(client)

    state = tf.Variable([client.rank, 7]), tf.Variable(client.rank == 1)
    broadcast_variables(client, state, root_rank=1)
    assert state[0].numpy().tolist() == [1, 7] and bool(state[1]), state
    later = tf.Variable(mine)
    tf.function(lambda: broadcast_variables(client, [later]))()
    assert float(later) == 1.0


def check_order(client: Any) -> None:
    """Calls without names follow the order of the program, also through functions, conditions and
    loops, where no data flows from one to the next."""
    import basin
    from basin.tensorflow import allreduce

    state = tf.Variable(0.0)

    @tf.function
    def inner(x: Any) -> Any:
        state.assign_add(1.0)
        return allreduce(client, x, op=basin.Sum)

    @tf.function
    def program(n: Any) -> Any:
        seen = tf.TensorArray(tf.float32, n + 3)
        seen = seen.write(0, allreduce(client, tf.constant([1.0]), op=basin.Sum)[0])
        seen = seen.write(1, inner(tf.constant([2.0, 0.0]))[0])
        if n > 3:
            seen = seen.write(2, allreduce(client, tf.constant([3.0, 0.0, 0.0]), op=basin.Sum)[0])
        else:
            seen = seen.write(2, 0.0)
        for i in tf.range(n):
            each = allreduce(client, tf.cast(tf.fill([2, 2], i), tf.float32), op=basin.Sum)
            seen = seen.write(3 + i, each[0, 0])
        return seen.stack()

    for _ in range(3):
        seen = program(tf.constant(8)).numpy().tolist()
        assert seen == [2.0, 4.0, 6.0, *(2.0 * i for i in range(8))], seen


def check_refusals(client: Any) -> None:
    import basin
    from basin.tensorflow import DistributedGradientTape, allreduce, broadcast_variables

    def sum_of(x: Any) -> Any:
        return allreduce(client, x, op=basin.Sum)

    with refused(basin.InvalidArgument, "complex128"):
        sum_of(tf.constant(1j))
    with refused(basin.InvalidArgument, "no counts for a weighted average"):
        allreduce(client, 1.0, op=basin.WeightedAverage)
    with refused(basin.InvalidArgument, "tf.GradientTape"):
        DistributedGradientTape(client, None)
    with refused(basin.InvalidArgument, "wire_dtype"):
        DistributedGradientTape(client, tf.GradientTape(), wire_dtype=tf.float64)
    with refused(basin.InvalidArgument, "no variable"):
        broadcast_variables(client, [tf.constant(1.0)])
    with refused(basin.Unsupported, "XLA"):
        tf.function(sum_of, jit_compile=True)(1.0)
    with (
        refused(basin.Unsupported, "tf.distribute"),
        tf.distribute.OneDeviceStrategy("CPU").scope(),
    ):
        sum_of(1.0)
    with refused(basin.Unsupported, "TensorFlow 1"), tf.Graph().as_default():
        sum_of(1.0)
    with refused(basin.Unsupported, "MAX"):
        allreduce(client, tf.IndexedSlices(tf.ones([1, 1]), tf.constant([0])), op=basin.Max)
    with refused(basin.Unsupported, "no gradient"), tf.GradientTape() as tape:
        x = tf.Variable(1.0)
        tape.gradient(allreduce(client, x, op=basin.Max), x)
    client.barrier()

    # All workers hear that they differ.
    rank = client.rank
    with refused(basin.Mismatch, "f32[1]" if rank else "f32[2]"):
        sum_of(tf.zeros([1 + rank]))
    with refused(basin.Mismatch, "f64"):
        sum_of(tf.cast(1.0, tf.float64 if rank else tf.float32))
    with refused(tf.errors.OpError, "Mismatch"):
        tf.function(sum_of)(tf.zeros([1 + rank]))
    variables = [tf.Variable(1.0), tf.Variable(1.0)]
    tape = tf.GradientTape()
    with tape:
        loss = variables[rank] * 2.0
    with refused(basin.Mismatch, f"gradients {rank} of 2"):
        DistributedGradientTape(client, tape).gradient(loss, variables)
    with (tape := tf.GradientTape()):
        loss = variables[0] * 2.0 if rank == 0 else tf.constant(0.0)
    with refused(basin.Mismatch, "gradients none of 2"):
        DistributedGradientTape(client, tape).gradient(loss, variables)
    tables = [tf.Variable(tf.ones([3, 1])) for _ in range(2)]
    with (tape := tf.GradientTape()):
        loss = tf.reduce_sum(tf.gather(tables[rank], [0]))
    with refused(basin.Mismatch, f"gradients {rank} of 2"):
        DistributedGradientTape(client, tape).gradient(loss, tables)
    with refused(basin.Mismatch, "broadcast"):
        broadcast_variables(client, [tf.Variable(tf.zeros([1 + rank]))])


@contextlib.contextmanager
def refused(kind: type[Exception], text: str) -> Any:
    try:
        yield
    except kind as error:
        assert text in str(error), error
        return
    raise AssertionError(f"{kind.__name__} was not raised")


def main() -> None:
    import basin

    with contextlib.nullcontext(None) if ALONE else basin.connect() as client:
        results = {
            "start": result(start(0)),
            "plain": train(client),
            "eager": train(client, compiled=False),
            "recorded": train(client, records=True),
            "dense": train(client, sparse_as_dense=True),
            "half": train(client, wire_dtype=tf.float16),
            "scaled": train(client, gradient_predivide_factor=2.0, sparse_as_dense=True),
        }
        if client is not None:
            check_calls(client)
            check_refusals(client)
        rank = 0 if client is None else client.rank
    torch.save(results, Path(f"results-{rank}.pt"))


if __name__ == "__main__":
    main()
