# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""Reductions of the tensors of Keras' backend."""

from collections.abc import Callable, Sequence
from typing import Any

from basin import arrays
from basin._library import check_beside_tensorflow
from basin.client import Client
from basin.errors import Unsupported
from basin.spec import RoundSpec

try:
    import keras
except ModuleNotFoundError as missing:
    raise ModuleNotFoundError(
        f"basin.keras needs Keras 3, but there is no module {missing.name}. Install it: "
        "pip install 'keras==3.*'",
        name=missing.name,
    ) from missing

if keras.backend.backend() == "tensorflow":
    check_beside_tensorflow()

Reduce = Callable[[Client, str, str, Sequence[Any], RoundSpec, bool, str], list[Any]]


def reduce_of(call: str) -> Reduce:
    """How tensors of the backend are reduced: a function of client, call, name, tensors, spec,
    sparse_as_dense, and left_out as for arrays.allreduce(). Raises Unsupported for a backend that
    does not train, and with keras.distribution."""
    if keras.distribution.distribution() is not None:
        raise Unsupported(
            f"{call} does not work with keras.distribution, which has its devices in one process. "
            "Omit set_distribution(), and start a worker for each device: basin-run -n 4"
        )
    name = keras.backend.backend()
    known: dict[str, Reduce] = {
        "tensorflow": _of_tensorflow,
        "torch": _of_torch,
        "jax": _of_jax,
    }
    if name not in known:
        raise Unsupported(
            f"{call} does not know the backend {name} of Keras. Set KERAS_BACKEND to one of "
            f"{', '.join(known)}."
        )
    return known[name]


def _of_tensorflow(
    client: Client,
    call: str,
    name: str,
    tensors: Sequence[Any],
    spec: RoundSpec,
    sparse_as_dense: bool,
    left_out: str,
) -> list[Any]:
    from basin.tensorflow import reducing

    made, _ = reducing.reduce(client, call, tensors, None, spec, sparse_as_dense, left_out)
    return made


def _of_torch(
    client: Client,
    call: str,
    name: str,
    tensors: Sequence[Any],
    spec: RoundSpec,
    sparse_as_dense: bool,
    left_out: str,
) -> list[Any]:
    import torch

    def reduce() -> list[Any]:
        given = [each.detach().cpu().contiguous() for each in tensors]
        keys = [f"tensor {i}" for i in range(len(given))]
        received, _ = arrays.allreduce(client, call, None, keys, given, spec, left_out)
        return [
            torch.from_numpy(array).to(like.device, like.dtype)
            for array, like in zip(received, tensors)
        ]

    made: list[Any] = torch.compiler.disable(reduce)()
    return made


def _of_jax(
    client: Client,
    call: str,
    name: str,
    tensors: Sequence[Any],
    spec: RoundSpec,
    sparse_as_dense: bool,
    left_out: str,
) -> list[Any]:
    """Compiled functions run while the program goes on, so their calls have no place in its order,
    and need a name."""
    import basin.jax

    lane = f"keras/{name}"
    made: list[Any] = basin.jax.reduce_tree(client, call, list(tensors), lane, spec, left_out)
    return made
