# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""Snapshots: checkpoints that no trainer waits for.

When a step begins, everything that the last one changed is in place. Trained parameters and the
tensors of an optimizer stay as they are until its next step, so another thread copies them
meanwhile, and the optimizer's step waits for that thread, which it rarely has to. Everything else
is copied at once: it is small, or it may change at any time, as buffers do in a forward.

Threads. step_begins() belongs to the thread that trains; `_copy` and `_write` run in one other
thread, and any may read the counts.
"""

import atexit
import ctypes
import os
import re
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from basin.errors import NotFound
from basin.torch import checkpoint, context, raw, storage, tensors
from basin.torch.checkpoint import Captured, Manifest
from basin.torch.parts import OptimizerPart, Part
from basin.worker import logger

_NAME = re.compile(r"step-(\d{12,})\.basin")


class _Source(Protocol):
    """The State."""

    step: Any

    def parts(self) -> dict[str, Part]: ...

    def manifest(self) -> Manifest: ...


@dataclass
class _Copy:
    """A tensor to copy, which must have this version when it is copied."""

    source: torch.Tensor
    target: torch.Tensor
    version: int

    def make(self) -> None:
        # It lets other threads of Python run, and uses no thread of torch's.
        size = tensors.bytes_of(self.source)
        ctypes.memmove(self.target.data_ptr(), self.source.data_ptr(), size)


class Snapshots:
    """What State.snapshots() has begun.

    written, skipped, failed: how many snapshots; those skipped were due while another was written
    last:                     the name of the last file
    pause_seconds:            how long training waited for all of them
    """

    def __init__(
        self,
        state: _Source,
        place: str | os.PathLike[str],
        every: int,
        keep: int | None,
        has_no_time: Callable[[], bool],
    ) -> None:
        self._state, self._every, self._keep = state, every, keep
        self._has_no_time = has_no_time  # Whether the process must end now.
        self._place = os.fspath(place)
        self._folder = storage.folder_at(place)
        self.written = self.skipped = self.failed = 0
        self.last: str | None = None
        self.pause_seconds = 0.0
        self._writing: threading.Thread | None = None
        self._copied = threading.Event()
        self._copied.set()
        self._step: Any = None  # That of the last snapshot.
        self._memory: dict[tuple[str, int], torch.Tensor] = {}
        for part in state.parts().values():
            if isinstance(part, OptimizerPart):
                part.optimizer.register_step_pre_hook(self._before_step)
        atexit.register(self._end)

    @staticmethod
    def last_in(place: str | os.PathLike[str]) -> tuple[str, str]:
        """The folder, and the name of its snapshot of the largest step. Raises NotFound."""
        names = [name for name in storage.folder_at(place).names() if _NAME.fullmatch(name)]
        if not names:
            raise NotFound(f"There is no snapshot in {os.fspath(place)}.")
        return os.fspath(place), max(names, key=_step_of)

    def wait(self) -> None:
        """Returns when no snapshot is being written."""
        if self._writing is not None:
            self._writing.join()

    def _end(self) -> None:
        if not self._has_no_time():
            self.wait()

    # ---- the thread that trains

    def step_begins(self) -> None:
        step = self._state.step
        if step == self._step or step <= 0 or step % self._every != 0 or not _is_writer():
            return
        self._step = step
        if self._writing is not None and self._writing.is_alive():
            self.skipped += 1
            return
        began = time.perf_counter()
        try:
            self._begin(int(step))
        except Exception as error:  # Training continues.
            self._fail(step, error)
        self.pause_seconds += time.perf_counter() - began

    def _begin(self, step: int) -> None:
        parts = self._state.parts()
        captured = {
            name: Captured.of(name, part.kind, part.value()) for name, part in parts.items()
        }
        settled = {
            raw.plain(tensor).data_ptr() for part in parts.values() for tensor in part.settled()
        }
        memory, later = {}, []
        for name, part in captured.items():
            for i, source in enumerate(part.large):
                target = memory[name, i] = self._memory_like(source, (name, i))
                copy = _Copy(source, target, source._version)
                if source.data_ptr() in settled:
                    later.append(copy)
                else:
                    copy.make()
                part.large[i] = target
        self._memory = memory
        self._copied.clear()
        writer = context.current().client.worker_id
        given = (step, writer, later, self._state.manifest(), captured)
        self._writing = threading.Thread(
            target=self._copy_and_write, args=given, name="basin-snapshot", daemon=True
        )
        self._writing.start()

    def _memory_like(self, source: torch.Tensor, key: tuple[str, int]) -> torch.Tensor:
        """That of the last snapshot if it fits, so that there is never more than one copy."""
        kept = self._memory.get(key)
        if kept is not None and (kept.shape, kept.dtype) == (source.shape, source.dtype):
            return kept
        return raw.empty_on_host(tuple(source.shape), source.dtype)

    def _before_step(self, *_: Any) -> None:
        if not self._copied.is_set():
            began = time.perf_counter()
            self._copied.wait()
            self.pause_seconds += time.perf_counter() - began

    # ---- the other thread

    def _copy_and_write(
        self,
        step: int,
        writer: str,
        copies: Iterable[_Copy],
        manifest: Manifest,
        parts: Mapping[str, Captured],
    ) -> None:
        try:
            self._copy(copies)
            name = f"step-{step:012}.basin"
            self._folder.write(
                name, writer, lambda stream: checkpoint.write(stream, manifest, parts)
            )
            self.last = name
            self.written += 1
            self._remove_old(name)
        except Exception as error:  # Training continues.
            self._fail(step, error)

    def _copy(self, copies: Iterable[_Copy]) -> None:
        try:
            for copy in copies:
                copy.make()
                if copy.source._version != copy.version:
                    raise RuntimeError(
                        f"a tensor of shape {tuple(copy.source.shape)} was written to before the "
                        "next step of its optimizer, while it was copied"
                    )
        finally:
            self._copied.set()

    def _remove_old(self, written: str) -> None:
        if self._keep is None:
            return
        others = [n for n in self._folder.names() if _NAME.fullmatch(n) and n != written]
        others.sort(key=_step_of, reverse=True)
        for name in others[self._keep - 1 :]:
            self._folder.remove(name)

    def _fail(self, step: Any, error: Exception) -> None:
        self.failed += 1
        logger.warning(
            "training continues, but the snapshot of step %s was not written to %s: %s: %s",
            step,
            self._place,
            type(error).__name__,
            error,
        )


def _step_of(name: str) -> int:
    found = _NAME.fullmatch(name)
    assert found is not None
    return int(found[1])


def _is_writer() -> bool:
    """Whether this process is the worker of rank 0."""
    if not context.is_started() or context.is_helper():
        return False
    place = context.current().client.worker.place()
    return place.is_member and place.rank == 0
