# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""Trains with JAX and optax: as one worker of two, or with ALONE=1 in one process with their batch.
As a worker it also checks what trees may have."""

import contextlib
import os
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import torch

ALONE = "ALONE" in os.environ
STEPS = 6

jax.config.update("jax_enable_x64", True)


def start() -> Any:
    rng = np.random.default_rng(7)
    return {
        "layers": [jnp.asarray(rng.normal(size=(5, 8))), jnp.asarray(rng.normal(size=(8, 3)))],
        "scale": jnp.asarray(1.0),
    }


def loss(parameters: Any, x: Any, y: Any) -> Any:
    hidden = jnp.tanh(x @ parameters["layers"][0]) * parameters["scale"]
    scores = hidden @ parameters["layers"][1]
    return optax.softmax_cross_entropy_with_integer_labels(scores, y).mean()


def batch(step: int, client: Any) -> tuple[Any, Any]:
    rng = np.random.default_rng(step)
    x, y = rng.normal(size=(8, 5)), rng.integers(3, size=8)
    if client is None:
        return x, y
    return x[client.rank :: client.world_size], y[client.rank :: client.world_size]


def train(client: Any, name: str, *, clip: float | None = None, window: int = 1) -> Any:
    import basin.jax

    averaged = [] if client is None else [basin.jax.average_gradients(client, name)]
    clipped = [] if clip is None else [optax.clip_by_global_norm(clip)]
    optimizer: Any = optax.chain(*averaged, *clipped, optax.adam(1e-2))
    if window > 1:
        optimizer = optax.MultiSteps(optimizer, window, accumulator_dtype=jnp.float64)

    @jax.jit
    def step(parameters: Any, state: Any, x: Any, y: Any) -> Any:
        gradients = jax.grad(loss)(parameters, x, y)
        updates, state = optimizer.update(gradients, state, parameters)
        return optax.apply_updates(parameters, updates), state

    parameters = start()
    if client is not None:
        if client.rank != 0:
            parameters = jax.tree.map(jnp.zeros_like, parameters)
        parameters = basin.jax.broadcast_tree(client, parameters)
    state = optimizer.init(parameters)
    for number in range(STEPS):
        parameters, state = step(parameters, state, *batch(number, client))
    return result(parameters)


def result(tree: Any) -> dict[str, torch.Tensor]:
    leaves, _ = jax.tree_util.tree_flatten_with_path(tree)
    return {
        jax.tree_util.keystr(path): torch.tensor(np.asarray(leaf, np.float64))
        for path, leaf in leaves
    }


def check_trees(client: Any) -> None:
    """What allreduce_tree() and broadcast_tree() return, and what they refuse."""
    import basin
    from basin.jax import allreduce_tree, broadcast_tree

    mine = float(client.rank + 1)
    tree = {
        "half": jnp.full((2, 3), mine, jnp.bfloat16),
        "whole": jnp.asarray([client.rank], jnp.int32),
        "empty": jnp.zeros((0, 4)),
    }
    total = allreduce_tree(client, tree, "sums", op=basin.Sum)
    assert total["half"].dtype == jnp.bfloat16 and (total["half"] == 3.0).all(), total
    assert total["whole"].dtype == jnp.int32 and total["whole"].tolist() == [1], total
    assert total["empty"].shape == (0, 4), total
    assert allreduce_tree(client, {}, "nothing") == {}
    largest = jax.jit(lambda x: allreduce_tree(client, x, "largest", op=basin.Max))(mine)
    assert float(largest) == 2.0, largest

    # In a loop of the compiled program, rounds are in its order.
    def body(i: Any, x: Any) -> Any:
        return allreduce_tree(client, x + i, "loop")

    looped = jax.jit(lambda x: jax.lax.fori_loop(0, 4, body, x))(mine)
    assert float(looped) == 1.5 + 6, looped

    keys = broadcast_tree(client, {"count": jnp.asarray([client.rank + 5]), "b": mine}, "others")
    assert keys["count"].tolist() == [5] and float(keys["b"]) == 1.0, keys
    with refused(basin.Mismatch, "The broadcast of shapes differs"):
        broadcast_tree(client, jnp.zeros(client.rank + 1), "shapes")
    with refused(basin.InvalidArgument, "no counts for a weighted average"):
        allreduce_tree(client, mine, op=basin.WeightedAverage)
    with refused(basin.InvalidArgument, "complex128"):
        allreduce_tree(client, jnp.zeros(2, complex), "complex")
    with refused(jax.errors.JaxRuntimeError, "complex128"):
        jax.block_until_ready(jax.jit(lambda x: allreduce_tree(client, x, "c"))(1j))


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
            "start": result(start()),
            "plain": train(client, "plain"),
            "clipping": train(client, "clipped", clip=0.05),
            "accumulation": train(client, "windows", clip=0.05, window=2),
        }
        if client is not None:
            check_trees(client)
        rank = 0 if client is None else client.rank
    torch.save(results, Path(f"results-{rank}.pt"))


if __name__ == "__main__":
    main()
