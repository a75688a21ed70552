# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""horovod.torch.elastic is not there: what it does with a restart of the training function, Basin
does without one. Each name raises Unsupported with the way out."""

from typing import Any, NoReturn

from basin.errors import Unsupported
from basin.torch import ElasticSampler


def run(function: Any) -> NoReturn:
    """Raises Unsupported."""
    _refuse("elastic.run()")


class ObjectState:
    """Making one raises Unsupported."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        _refuse("elastic.ObjectState()")


class TorchState:
    """Making one raises Unsupported."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        _refuse("elastic.TorchState()")


def _refuse(call: str) -> NoReturn:
    raise Unsupported(
        f"{call} is not supported: Basin restarts nothing when workers come or go. Share the state "
        "with basin.torch.State(model, optimizer), and loop over basin.torch.ElasticSampler; "
        "docs/migrating.md shows it."
    )


__all__ = ["ElasticSampler", "ObjectState", "TorchState", "run"]
