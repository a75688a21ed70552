# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""Digests by which a worker finds what it has already.

Workers that have all loaded the same checkpoint are equal when they start. A worker that was
evicted and joins again often has what the others have: all of it if the job was paused meanwhile,
and otherwise what is not trained. A checksum is not enough here: two contents of one digest are
never compared again, so it is SHA-256.

Threads. A Digests computes in threads of its own with the lowest priority, and publishes in another
one; close() waits for them. Known has no thread.
"""

import hashlib
import secrets
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor

import torch

from basin.torch import priority, raw
from basin.worker import logger

BYTES = 32  # Each digest has so many.
# Other threads of Python run while a block is read, and close() waits for at most one.
_BLOCK = 1 << 24
# One thread reads about as fast as a network of 10 Gbit/s brings.
_THREADS = 4

Content = bytes | torch.Tensor


class _Closed(Exception):
    pass


def of_all(
    contents: Sequence[Content],
    closes: Callable[[], bool] = lambda: False,
    prepare: Callable[[], None] | None = None,
) -> Sequence[bytes]:
    """The digest of each. Every thread calls prepare() first."""

    def digest(content: Content) -> bytes:
        made = hashlib.sha256(usedforsecurity=False)
        given = content if isinstance(content, bytes) else raw.bytes_on_host(content).numpy().data
        view = memoryview(given)
        for at in range(0, len(view), _BLOCK):
            if closes():
                raise _Closed
            made.update(view[at : at + _BLOCK])
        return made.digest()

    with ThreadPoolExecutor(_THREADS, initializer=prepare) as pool:
        return list(pool.map(digest, contents))


def in_a_row(
    contents: Sequence[Content],
    closes: Callable[[], bool] = lambda: False,
    prepare: Callable[[], None] | None = None,
) -> bytes:
    """The digests of all, one after another. If that fails, they are random and equal nothing."""
    try:
        return b"".join(of_all(contents, closes, prepare))
    except _Closed:
        raise
    except Exception as error:
        logger.error("cannot compare the state, so all of it is moved: %s", error)
        return secrets.token_bytes(len(contents) * BYTES)


class Digests:
    """Computes the digest of each content, which must not change before close() returns, and
    publishes them in a row."""

    def __init__(self, contents: Sequence[Content], publish: Callable[[bytes], None]) -> None:
        self._contents, self._publish = contents, publish
        self._closes = False
        self._thread = threading.Thread(target=self._run, name="basin-digests", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Publishes nothing from now on."""
        self._closes = True
        self._thread.join()
        self._contents = ()

    def _run(self) -> None:
        try:
            made = in_a_row(self._contents, lambda: self._closes, priority.lower)
        except _Closed:
            return
        try:
            self._publish(made)
        except Exception as error:  # Training continues.
            logger.error("cannot serve the digests of the state: %s", error)


def by_number(mine: Iterable[tuple[bytes, torch.Tensor]], theirs: bytes) -> dict[int, torch.Tensor]:
    """The tensors of `mine`, with their digests, that are among the published ones, by number
    there."""
    kept = dict(mine)
    each = (theirs[at : at + BYTES] for at in range(0, len(theirs), BYTES))
    return {i: kept[digest] for i, digest in enumerate(each) if digest in kept}


class Known:
    """The ids that members have had, to see whether somebody comes back."""

    def __init__(self) -> None:
        self._before: frozenset[str] = frozenset()
        self._ever: frozenset[str] = frozenset()

    def note(self, members: Iterable[str]) -> bool:
        """Notes the present members. Returns whether one of those that have joined since the last
        time was a member before. REQUIRES for that: somebody has joined.

        A worker that is lost and back between two times leaves no other trace than that nobody
        else has come."""
        now = frozenset(members)
        back = now <= self._ever or not self._ever.isdisjoint(now - self._before)
        self._before, self._ever = now, self._ever | now
        return back
