# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""Warns of parts of torch that assume another number of workers than the job has.

They ask torch.distributed for the number of processes, which has none, or one if a model keeps
torch's DistributedDataParallel; or they keep the number that they were made with when the job is
resized. A script that was written for several then trains wrongly.
"""

import functools
import os
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils.data.distributed import DistributedSampler

from basin.worker import logger


class AloneWatch:
    """Watches these classes until close(), and warns once of each.

    world_size: returns the number of workers of the job
    """

    def __init__(self, world_size: Callable[[], int]) -> None:
        self._world_size = world_size
        self._process = os.getpid()
        self._reported: set[str] = set()
        self._sampler: weakref.ref[Any] | None = None  # That has last begun an epoch.
        self._iterate = DistributedSampler.__iter__
        self._normalize = torch.nn.SyncBatchNorm.forward
        self._replace(
            self._watched_sampler(self._iterate), self._watched_normalization(self._normalize)
        )

    def close(self) -> None:
        self._replace(self._iterate, self._normalize)

    def _replace(self, iterate: Any, normalize: Any) -> None:
        setattr(DistributedSampler, "__iter__", iterate)  # noqa: B010 - mypy has it as constant
        setattr(torch.nn.SyncBatchNorm, "forward", normalize)  # noqa: B010

    def _watched_sampler(self, iterate: Callable[..., Iterator[Any]]) -> Callable[..., Any]:
        @functools.wraps(iterate)
        def watched(sampler: Any) -> Iterator[Any]:
            if sampler.num_replicas == 1:
                self._report(
                    "DistributedSampler",
                    "every worker takes all samples. Use DistributedSampler(data, "
                    "num_replicas=basin.torch.size(), rank=basin.torch.rank()).",
                )
            else:
                self._sampler = weakref.ref(sampler)
                self.after_step()
            return iterate(sampler)

        return watched

    def after_step(self) -> None:
        """Warns of a sampler that divides the data among another number of workers."""
        sampler = None if self._sampler is None else self._sampler()
        if sampler is None or "resize" in self._reported or os.getpid() != self._process:
            return
        workers, divided = self._world_size(), sampler.num_replicas
        if workers not in (0, divided):  # 0 after finished().
            self._reported.add("resize")
            logger.warning(
                "A DistributedSampler divides the data among %d workers, but the job has %d now: "
                "samples are missed or repeated, and workers that end an epoch at different steps "
                "end with different models. Use basin.torch.ElasticSampler(data, optimizer), whose "
                "epoch is shared by the workers that are there, and ends on all at the same step. "
                "See docs/pytorch.md, Data that follows the workers.",
                divided,
                workers,
            )

    def _watched_normalization(self, normalize: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(normalize)
        def watched(module: Any, inputs: torch.Tensor) -> Any:
            if module.training and _group_size() == 1:
                self._report(
                    "SyncBatchNorm",
                    "statistics are those of this worker's batch. Use BatchNorm: with "
                    "basin.torch.DistributedDataParallel all workers have the running statistics "
                    "of rank 0.",
                )
            return normalize(module, inputs)

        return watched

    def _report(self, kind: str, consequence: str) -> None:
        if kind in self._reported or os.getpid() != self._process:
            return
        workers = self._world_size()
        if workers > 1:
            self._reported.add(kind)
            logger.warning(
                "A %s assumes that this process is alone, but the job has %d workers: %s",
                kind,
                workers,
                consequence,
            )


def _group_size() -> int:
    if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
        return 1
    return torch.distributed.get_world_size()
