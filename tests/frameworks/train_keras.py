# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""Trains with Keras on the backend that KERAS_BACKEND names: as one worker of two, or with ALONE=1
in one process with their batch. As a worker it also checks what is refused."""

import contextlib
import os
from pathlib import Path
from typing import Any

import keras
import numpy as np
import torch
from sklearn.datasets import load_digits

ALONE = "ALONE" in os.environ
BATCH = 16
SAMPLES = 160
EPOCHS = 2

keras.config.set_floatx("float64")


def data(client: Any, samples: int = SAMPLES) -> tuple[Any, Any]:
    """Digits. Workers have alternating ones, so that a batch of each is one of a single process."""
    x, y = load_digits(return_X_y=True)
    x, y = x[:samples] / 16.0, y[:samples]
    if client is None:
        return x, y
    return x[client.rank :: client.world_size], y[client.rank :: client.world_size]


def make(seed: int) -> Any:
    keras.utils.set_random_seed(seed)
    return keras.Sequential(
        [
            keras.Input((64,)),
            keras.layers.Dense(12, activation="tanh"),
            keras.layers.Dense(10),
        ]
    )


def words(seed: int) -> Any:
    """A model with an embedding, whose gradients are indexed slices with TensorFlow."""
    keras.utils.set_random_seed(seed)
    return keras.Sequential(
        [
            keras.Input((64,), dtype="int32"),
            keras.layers.Embedding(20, 3),
            keras.layers.GlobalAveragePooling1D(),
            keras.layers.Dense(10),
        ]
    )


def loss() -> Any:
    return keras.losses.SparseCategoricalCrossentropy(from_logits=True)


def fit(client: Any, model: Any, optimizer: Any, **options: Any) -> Any:
    """Returns the history."""
    from basin.keras import BroadcastGlobalVariables, MetricAverage

    reduction = options.pop("reduction", {})
    if client is not None:
        import basin.keras

        made = basin.keras.DistributedOptimizer(client, optimizer, **reduction)
        assert made is optimizer
    x, y = data(client)
    if options.pop("of_words", False):
        x = (x * 16).astype("int32")
    eagerly = options.pop("run_eagerly", False)
    model.compile(optimizer, loss(), metrics=["accuracy"], run_eagerly=eagerly)
    calls = [] if client is None else [BroadcastGlobalVariables(client), MetricAverage(client)]
    return model.fit(
        x,
        y,
        batch_size=BATCH if client is None else BATCH // client.world_size,
        epochs=EPOCHS,
        shuffle=False,
        verbose=0,
        callbacks=calls,
        **options,
    )


def weights(model: Any) -> dict[str, torch.Tensor]:
    return {
        f"{i} {each.name}": torch.tensor(np.asarray(keras.ops.convert_to_numpy(each), np.float64))
        for i, each in enumerate(model.trainable_variables)
    }


def train(client: Any, optimizer: Any, **options: Any) -> dict[str, torch.Tensor]:
    # Other weights on each worker, until rank 0 gives its own.
    model = make(7 + (0 if client is None else client.rank))
    fit(client, model, optimizer, **options)
    return weights(model)


def train_words(client: Any, **options: Any) -> dict[str, torch.Tensor]:
    model = words(7 + (0 if client is None else client.rank))
    fit(client, model, keras.optimizers.SGD(0.5), of_words=True, **options)
    return weights(model)


def measured(client: Any) -> dict[str, torch.Tensor]:
    """What the epochs of a training have measured."""
    model = make(7)
    history = fit(
        client, model, keras.optimizers.SGD(0.1), validation_data=data(client, SAMPLES // 2)
    ).history
    return {name: torch.tensor(values).double() for name, values in history.items()}


def resumed(client: Any) -> dict[str, torch.Tensor]:
    """Trains, saves model and optimizer on rank 0, and trains what was loaded there. The file needs
    no Basin."""
    model = make(7)
    fit(client, model, keras.optimizers.SGD(0.1, momentum=0.9))
    path = Path("kept.keras")
    if client is None or client.rank == 0:
        model.save(path)
        model = keras.models.load_model(path)
        assert isinstance(model.optimizer, keras.optimizers.SGD)
    else:
        model = make(11)
        model.compile(keras.optimizers.SGD(0.1, momentum=0.9), loss())
    fit(client, model, model.optimizer)
    return weights(model)


class InfinityOnce(keras.callbacks.Callback):
    """Makes the gradients of one worker infinite in a step."""

    def __init__(self, layer: Any, is_here: bool) -> None:
        super().__init__()
        self._layer = layer
        self._is_here = is_here

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self._layer.scale.assign(np.inf if self._is_here and epoch == 1 else 1.0)


class Scaled(keras.layers.Layer):
    """Multiplies by a number that is not trained."""

    def build(self, shape: Any) -> None:
        self.scale = self.add_weight(shape=(), initializer="ones", trainable=False)

    def call(self, x: Any) -> Any:
        return x * keras.ops.cast(self.scale, x.dtype)


def check_loss_scale(client: Any) -> None:
    """In the second epoch the gradients of rank 1 are infinite, so nobody steps."""
    import basin.keras

    keras.utils.set_random_seed(3)
    layer = Scaled()
    model = keras.Sequential([keras.Input((64,)), keras.layers.Dense(10), layer])
    inner = keras.optimizers.SGD(0.1)
    optimizer = keras.optimizers.LossScaleOptimizer(inner, initial_scale=4.0)
    basin.keras.DistributedOptimizer(client, optimizer)
    model.compile(optimizer, loss())
    x, y = data(client, 32)
    seen = []
    remember = keras.callbacks.LambdaCallback(
        on_epoch_end=lambda epoch, logs: seen.append(int(np.asarray(_number(inner.iterations))))
    )
    model.fit(
        x,
        y,
        batch_size=8,
        epochs=3,
        shuffle=False,
        verbose=0,
        callbacks=[
            basin.keras.BroadcastGlobalVariables(client),
            InfinityOnce(layer, client.rank == 1),
            remember,
        ],
    )
    steps = len(x) // 8
    assert seen == [steps, steps, 2 * steps], (steps, seen)
    assert all(bool(torch.isfinite(each).all()) for each in weights(model).values())


def _number(value: Any) -> Any:
    return keras.ops.convert_to_numpy(value)


class Handing(keras.optimizers.SGD):
    """Would hand its gradients to another optimizer."""

    def apply(self, *arguments: Any, **options: Any) -> Any:
        raise NotImplementedError

    def stateless_apply(self, *arguments: Any, **options: Any) -> Any:
        raise NotImplementedError


class TrainsItself(keras.Sequential):
    """Has a step of its own, in which a script may reduce."""

    def train_step(self, *arguments: Any) -> Any:
        return super().train_step(*arguments)


def check_refusals(client: Any) -> None:
    import basin
    from basin.keras import BroadcastGlobalVariables, DistributedOptimizer

    with refused(basin.InvalidArgument, "keras.optimizers"):
        DistributedOptimizer(client, object())
    with refused(basin.InvalidArgument, "no counts for a weighted average"):
        DistributedOptimizer(client, keras.optimizers.SGD(), op=basin.WeightedAverage)
    with refused(basin.InvalidArgument, "float8"):
        DistributedOptimizer(client, keras.optimizers.SGD(), wire_dtype="float8")
    twice = DistributedOptimizer(client, keras.optimizers.SGD(0.1))
    with refused(basin.InvalidArgument, "reduced already"):
        DistributedOptimizer(client, twice)
    with refused(basin.Unsupported, "with other optimizers"):
        DistributedOptimizer(client, Handing(0.1))
    keras.config.set_dtype_policy("mixed_float16")
    with refused(basin.InvalidArgument, "LossScaleOptimizer"):
        DistributedOptimizer(client, keras.optimizers.SGD())
    keras.config.set_dtype_policy("float64")

    model = make(7)
    model.compile(keras.optimizers.SGD(0.1), loss())
    x, y = data(client)
    with refused(basin.FailedPrecondition, "each worker would train alone"):
        model.fit(x, y, verbose=0, callbacks=[BroadcastGlobalVariables(client)])

    own = TrainsItself([keras.Input((64,)), keras.layers.Dense(10)])
    own.compile(keras.optimizers.SGD(0.1), loss())
    own.fit(x, y, verbose=0, callbacks=[BroadcastGlobalVariables(client)])

    # Gradients of other variables, of the same shape.
    pair = [keras.Variable([1.0, 2.0]) for _ in range(2)]
    optimizer = DistributedOptimizer(client, keras.optimizers.SGD(0.1))
    ones = keras.ops.ones((2,))
    with refused(basin.Mismatch, f"gradients {client.rank} of 2"):
        optimizer.apply([None, ones] if client.rank else [ones, None], pair)

    # Models that differ: all workers hear it.
    other = keras.Sequential([keras.Input((64,)), keras.layers.Dense(10 + client.rank)])
    other.compile(DistributedOptimizer(client, keras.optimizers.SGD(0.1)), loss())
    with refused(basin.Mismatch, "broadcast"):
        other.fit(x, y, verbose=0, callbacks=[BroadcastGlobalVariables(client)])


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

    torch.set_num_threads(1)
    with contextlib.nullcontext(None) if ALONE else basin.connect() as client:
        sgd, adam = keras.optimizers.SGD, keras.optimizers.Adam
        results = {
            "start": weights(make(7)),
            "plain": train(client, sgd(0.1, momentum=0.9)),
            "eager": train(client, sgd(0.1, momentum=0.9), run_eagerly=True),
            "clipping": train(client, adam(0.01, global_clipnorm=0.05)),
            "accumulation": train(
                client, adam(0.01, gradient_accumulation_steps=3, global_clipnorm=0.05)
            ),
            "sum": train(
                client,
                sgd(0.05 if client is not None else 0.1),
                reduction={"op": basin.Sum},
            ),
            "words": train_words(client),
            "dense words": train_words(client, reduction={"sparse_as_dense": True}),
            "half": train(client, sgd(0.1), reduction={"wire_dtype": "float16"}),
            "measured": measured(client),
            "resumed": resumed(client),
        }
        if client is not None:
            check_loss_scale(client)
            check_refusals(client)
        rank = 0 if client is None else client.rank
    torch.save(results, Path(f"results-{rank}.pt"))


if __name__ == "__main__":
    main()
