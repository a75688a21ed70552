# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""Data loaders of torch that have an elastic sampler.

A loader asks its sampler for indices long before it hands out their batch, and only it knows when
it does. So `DataLoader.__iter__` is wrapped, for loaders with a sampler of ours alone: batches come
in the order in which the sampler gave their indices, with and without worker processes, which never
see the sampler.
"""

import functools
from collections.abc import Callable, Iterator
from typing import Any

from torch.utils.data import BatchSampler, DataLoader

from basin.errors import InvalidArgument, Unsupported
from basin.torch.samples import (
    Elastic,
    ElasticBatchSampler,
    ElasticSampler,
    ElasticShards,
    Loop,
)


class LoaderLoop(Loop):
    """What iter() of such a loader returns."""

    def __init__(
        self,
        loader: "DataLoader[Any]",
        sampler: Elastic,
        start: Callable[[], Iterator[Any]],
        unit: int | None,
    ) -> None:
        self._loader = loader
        super().__init__(sampler, start, unit, has_loader=True)

    def __len__(self) -> int:
        return len(self._loader)


def watch() -> None:
    """Wraps DataLoader.__iter__, once in a process."""
    iterate: Any = DataLoader.__iter__
    if not hasattr(iterate, "basin"):
        setattr(DataLoader, "__iter__", _watched(iterate))  # noqa: B010 - mypy has it as constant


def _watched(iterate: Callable[[Any], Iterator[Any]]) -> Callable[..., Any]:
    @functools.wraps(iterate)
    def watched(loader: "DataLoader[Any]") -> Iterator[Any]:
        sampler = _sampler_of(loader)
        if sampler is None:
            return iterate(loader)
        _check(loader, sampler)
        start = functools.partial(iterate, loader)
        if isinstance(sampler, ElasticBatchSampler):
            return LoaderLoop(loader, sampler, start, None)
        unit = 1 if loader.batch_sampler is None else int(_of(loader).batch_size)
        if isinstance(sampler, ElasticSampler) and sampler.batch_size is None:
            sampler.batch = unit
        return LoaderLoop(loader, sampler, start, unit)

    setattr(watched, "basin", True)  # noqa: B010 - mypy knows no attributes of functions
    return watched


def _of(loader: "DataLoader[Any]") -> BatchSampler:
    found: Any = loader.batch_sampler
    assert isinstance(found, BatchSampler)
    return found


def _sampler_of(loader: "DataLoader[Any]") -> Elastic | None:
    if loader.batch_sampler is None:
        return loader.sampler if isinstance(loader.sampler, Elastic) else None
    if isinstance(loader.batch_sampler, Elastic):
        return loader.batch_sampler
    inner = getattr(loader.batch_sampler, "sampler", None)
    return inner if isinstance(inner, Elastic) else None


def _check(loader: "DataLoader[Any]", sampler: Elastic) -> None:
    if isinstance(sampler, ElasticShards):
        raise Unsupported(
            "A DataLoader has elastic_shards() as its sampler. Loop over them, and give each shard "
            "to a DataLoader."
        )
    batches: Any = loader.batch_sampler
    if not isinstance(batches, Elastic | None):
        if type(batches) is not BatchSampler:
            raise Unsupported(
                f"A DataLoader has a batch_sampler of type {type(batches).__name__} around an "
                "elastic sampler, and it is not known which samples its batches have. Use "
                "batch_sampler=ElasticBatchSampler(...)."
            )
        if batches.drop_last:
            raise InvalidArgument(
                "A DataLoader with an elastic sampler has drop_last=True, which would leave out "
                "samples, so that the epoch never ends. Use drop_last=False: a short batch counts "
                "with the samples that it has."
            )
    if loader.num_workers > 0 and not loader.in_order:
        raise Unsupported(
            "A DataLoader with an elastic sampler has in_order=False, and it is not known which "
            "samples its batches have. Use in_order=True."
        )
