# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""Warns of parts of torch that assume another number of workers than the job has, or refuses
samplers that do.

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

from basin.errors import FailedPrecondition
from basin.worker import logger


class AloneWatch:
    """Watches these classes until close(), and warns once of each.

    world_size:  returns the number of workers of the job
    strict_data: whether a DistributedSampler is refused
    """

    def __init__(self, world_size: Callable[[], int], strict_data: bool) -> None:
        self._world_size = world_size
        self._strict_data = strict_data
        self._process = os.getpid()
        self._reported: set[str] = set()
        self._sampler: weakref.ref[Any] | None = None  # That has last begun an epoch.
        self._steps = 0  # In that epoch.
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
                    refuses=self._strict_data,
                )
            else:
                self._sampler, self._steps = weakref.ref(sampler), 0
                self._look()
            return iterate(sampler)

        return watched

    def after_step(self) -> None:
        """Looks whether the job has been resized. Members change with the verdicts of rounds, so
        all workers see it after the same step."""
        self._steps += 1
        self._look()

    def _look(self) -> None:
        """Warns of a sampler that divides the data among another number of workers, or refuses
        it."""
        sampler = None if self._sampler is None else self._sampler()
        if sampler is None or "resize" in self._reported or os.getpid() != self._process:
            return
        workers, divided = self._world_size(), sampler.num_replicas
        if workers in (0, divided):  # 0 after finished().
            return
        told = (
            f"A DistributedSampler divides the data among {divided} workers, but the job has "
            f"{workers} now: samples are missed or repeated, and workers that end an epoch at "
            "different steps end with different models. Use basin.torch.ElasticSampler(data, "
            "optimizer), whose epoch is shared by the workers that are there, and ends on all at "
            "the same step. See docs/pytorch.md, Data that follows the workers."
        )
        if not self._strict_data:
            self._reported.add("resize")
            logger.warning("%s", told)
            return
        self._sampler = None  # The script may go on with another one.
        raise FailedPrecondition(
            f"{told} It is refused, because init() has strict_data=True, in epoch "
            f"{sampler.epoch} after {self._steps} steps of it, which are applied on all workers; "
            f"this worker had {sampler.num_samples} samples of this epoch. Or end the epoch here, "
            "and begin one with DistributedSampler(data, num_replicas=basin.torch.size(), "
            "rank=basin.torch.rank())."
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

    def _report(self, kind: str, consequence: str, *, refuses: bool = False) -> None:
        if kind in self._reported or os.getpid() != self._process:
            return
        workers = self._world_size()
        if workers <= 1:
            return
        told = (
            f"A {kind} assumes that this process is alone, but the job has {workers} workers: "
            f"{consequence}"
        )
        if refuses:
            raise FailedPrecondition(told)
        self._reported.add(kind)
        logger.warning("%s", told)


def _group_size() -> int:
    if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
        return 1
    return torch.distributed.get_world_size()
