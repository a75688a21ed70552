# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""JAX: a small network for handwritten digits, whose gradients are averaged over several workers.

    basin-run -n 2 -- python examples/jax/digits.py

The step is compiled, with the reduction in it; there is neither pmap nor jax.distributed. All
workers print the same digest of their parameters.
"""

import hashlib

import basin
import basin.jax
import jax
import jax.numpy as jnp
import numpy as np
import optax
from sklearn.datasets import load_digits

BATCH, EPOCHS = 64, 10


def loss(parameters: dict, images: jax.Array, labels: jax.Array) -> jax.Array:
    hidden = jnp.tanh(images @ parameters["w1"] + parameters["b1"])
    scores = hidden @ parameters["w2"] + parameters["b2"]
    return optax.softmax_cross_entropy_with_integer_labels(scores, labels).mean()


def main() -> None:
    digits = load_digits()
    images, labels = digits.data.astype(np.float32) / 16, digits.target
    with basin.connect() as client:
        # Workers draw different parameters, and go on with those of rank 0.
        first, second = jax.random.split(jax.random.key(client.rank))
        parameters = basin.jax.broadcast_tree(
            client,
            {
                "w1": jax.random.normal(first, (64, 32)) / 8,
                "b1": jnp.zeros(32),
                "w2": jax.random.normal(second, (32, 10)) / 6,
                "b2": jnp.zeros(10),
            },
        )
        optimizer = optax.chain(
            basin.jax.average_gradients(client),
            optax.clip_by_global_norm(1.0),
            optax.adam(3e-3),
        )

        @jax.jit
        def step(parameters, state, images, labels):
            value, gradients = jax.value_and_grad(loss)(parameters, images, labels)
            updates, state = optimizer.update(gradients, state, parameters)
            value = basin.jax.allreduce_tree(client, value, "loss")
            return optax.apply_updates(parameters, updates), state, value

        state = optimizer.init(parameters)
        for epoch in range(EPOCHS):
            order = np.random.default_rng(epoch).permutation(len(images))
            steps = len(order) // (BATCH * client.world_size)
            mine = order[client.rank :: client.world_size][: steps * BATCH].reshape(steps, BATCH)
            for batch in mine:
                parameters, state, value = step(parameters, state, images[batch], labels[batch])
            if client.rank == 0:
                print(f"epoch {epoch + 1}/{EPOCHS}  loss {float(value):.4f}")
        digest = hashlib.sha256(b"".join(np.asarray(parameters[k]).tobytes() for k in parameters))
        print(f"parameters {digest.hexdigest()[:16]}")


if __name__ == "__main__":
    main()
