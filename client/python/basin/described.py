# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""What a broadcast moves, as text. All workers compare it before anything is sent, because bytes
alone fit any dtype and shape of the same size."""

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Described:
    """The call and its root, and of each tensor the name, the dtype and the shape."""

    call: str
    root_rank: int
    tensors: tuple[tuple[str, str, tuple[int, ...]], ...]

    @classmethod
    def of(
        cls, call: str, root_rank: int, tensors: Iterable[tuple[str, str, tuple[int, ...]]]
    ) -> "Described":
        return cls(call, root_rank, tuple(sorted(tensors)))

    def to_bytes(self) -> bytes:
        return json.dumps([self.call, self.root_rank, self.tensors]).encode()

    @classmethod
    def from_bytes(cls, text: bytes) -> "Described":
        call, root_rank, tensors = json.loads(text)
        return cls(call, root_rank, tuple((n, dtype, tuple(shape)) for n, dtype, shape in tensors))

    def fingerprint(self) -> int:
        """At least 0, and less than 2^62."""
        return int.from_bytes(hashlib.sha256(self.to_bytes()).digest()[:8], "big") >> 2

    def difference(self, other: "Described", whose: str) -> str:
        """The first difference, in a sentence; `whose` is the other worker."""
        if self.call != other.call:
            return f"This worker has called {self.call}, and {whose} {other.call}."
        if self.root_rank != other.root_rank:
            return f"root_rank is {self.root_rank} here, and {other.root_rank} at {whose}."
        mine = {name: what for name, *what in self.tensors}
        theirs = {name: what for name, *what in other.tensors}
        for name in sorted(mine.keys() | theirs.keys()):
            if name not in theirs:
                return f"This worker has a tensor {name}, and {whose} has none of that name."
            if name not in mine:
                return f"{whose.capitalize()} has a tensor {name}, and this worker has none."
            if mine[name] != theirs[name]:
                return f"{name} is {_text(mine[name])} here, and {_text(theirs[name])} at {whose}."
        return ""


def _text(what: Sequence[object]) -> str:
    dtype, shape = what
    return f"{dtype} of shape {shape}"
