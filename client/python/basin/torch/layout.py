# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""Checks that all workers have gradients of the same tensors, and the same parameters.

Tensors are matched by name, so workers with different models would silently average some tensors
without each other. Each round carries a hash of names, dtypes and shapes, and every n-th of the
values of the parameters.
The aggregator compares the hashes and refuses the contribution of a worker that differs. Each
worker serves what is behind its hash, so that a refused worker can report the differences.
"""

import hashlib

import numpy as np

from basin import _abi
from basin.errors import Error, Mismatch
from basin.torch import tensors
from basin.torch.optimizer_numbers import differences
from basin.torch.parameter_values import ParameterValues
from basin.worker import RoundInfo, TensorSpec, Worker

_LANE = "layouts"
_VERSION = 1  # A hash has one list.
_TIMEOUT_SECONDS = 5.0
_MOST_NAMED = 5
_VALUES = (1 << 32) - 1  # The half of a hash that depends on the values of parameters.
# In the names of tensors that must have the same values, before a hash of them.
WITH_VALUES = " with the values "
_OTHER_VALUES = (
    " Where only values differ, call broadcast_parameters() of the model on all workers after it "
    "has changed."
)


class LayoutCheck:
    """Checks the rounds of one lane, named `lane`. If not `enabled`, it sends no hash. `values` are
    compared as well, if they are given."""

    def __init__(
        self, worker: Worker, lane: str, enabled: bool, values: ParameterValues | None
    ) -> None:
        self._worker = worker
        self._lane = lane
        self._enabled = enabled
        self._values = values if enabled else None
        self._specs: list[TensorSpec] = []
        self._tensors = 0  # The hash of the tensors of the next round.
        self._combined: tuple[int, str] | None = None  # What is behind the hash of the last round.
        self._served: list[int] = []  # The last hashes behind which values are served.
        self.hash = 0  # The hash of the last round.

    @property
    def compares_values(self) -> bool:
        """Whether a worker has to have loaded the state before its first round."""
        return self._values is not None

    def take(self, specs: list[TensorSpec]) -> None:
        """Sets the tensors of the next round, and serves their list from now on."""
        if not self._enabled or (specs == self._specs and self._tensors != 0):
            return
        self._specs = specs
        content = "\n".join(_lines(specs)).encode()
        self._tensors = _hash_of(content)
        self._serve_sized(self._tensors, content)

    def begin(self, step: int | None) -> int:
        """Returns the hash of the round that begins now, before this `step`. None: it is not that
        of the others, so this worker does not know in which rounds they compare their parameters.
        """
        if self._values is None:
            self.hash = self._tensors
            return self.hash
        if step is None:
            self.hash = 0
            return self.hash
        combined = (self._tensors, self._values.text(step))
        if combined == self._combined:
            return self.hash
        self._combined = combined
        # The aggregator sees by the upper half whether the tensors differ or the values.
        self.hash = (self._tensors & ~_VALUES) | (_hash_of(self._content()) & _VALUES) or 1
        return self.hash

    def round_ended(self, *, all_counted: bool) -> None:
        """If not all workers were counted, one of them may ask for what is behind the hash of this
        worker. It is served only then, because few rounds compare values."""
        if all_counted or self._combined is None or self.hash in self._served:
            return
        self._serve_sized(self.hash, self._content())
        self._served.append(self.hash)
        # A refused worker asks for that of its round. The others begin the next one meanwhile,
        # which cannot end without it, so the last two are enough.
        while len(self._served) > 2:
            old = self._served.pop(0)
            for name in (self._name(old), self._size(old)):
                self._worker.stop_serving(_LANE, name)

    def _content(self) -> bytes:
        assert self._combined is not None
        of_tensors, values = self._combined
        return f"{of_tensors:016x}\n{values}".encode()

    def explain(self, refusal: Exception, info: RoundInfo) -> Exception:
        """Explains the refusal of a round with these facts: if the tensors caused it, the error
        names those that only one side has; if values did, it names their parameters."""
        reference = info.spec.layout
        if not isinstance(refusal, Mismatch) or reference in (0, self.hash) or self.hash == 0:
            return refusal
        try:
            if self.compares_values:
                head, _, values = self._get_sized(reference).partition("\n")
                reference = int(head, 16)
                if reference == self._tensors:
                    assert self._combined is not None
                    return self._other_values(self._combined[1], values, info.contributors)
            others = set(self._get_sized(reference).split("\n"))
        except ValueError:
            return Mismatch(
                f"{refusal} Only some workers have check_parameters. Give it and same_parameters "
                "the same values on all workers."
            )
        except Error as error:
            return Mismatch(f"{refusal} The differences are unknown: {error}")
        mine = set(_lines(self._specs))
        with_values = any(WITH_VALUES in line for line in mine ^ others)
        return Mismatch(
            f"Worker {self._worker.id} and the others have gradients of different tensors in lane "
            f"{self._lane}. Only here: {_some(mine - others)}. Only at the others: "
            f"{_some(others - mine)}. Build the same model on all workers, compile and freeze it "
            "alike, and give its parameters the same names; with same_parameters=False on all "
            "workers, a worker skips the tensors that it does not have."
            + (_OTHER_VALUES if with_values else "")
        )

    def _other_values(self, mine: str, theirs: str, others: tuple[str, ...]) -> Mismatch:
        who = others[0] if len(others) == 1 else f"{others[0]} (as all others that were counted)"
        return Mismatch(
            f"Worker {self._worker.id} and the others have different parameters in lane "
            f"{self._lane}: worker {self._worker.id} has {differences(mine, theirs)}, and {who} "
            f"has {differences(theirs, mine)}. Their gradients are of different models. Find what "
            "changes parameters on one worker only: a checkpoint that only one loads, an optimizer "
            "step or a re-initialisation that only some make, or other arithmetic on another "
            "device; then share them with broadcast_parameters() of the model on all workers. "
            "Workers that are meant to differ do not give check_parameters."
        )

    def _name(self, of_hash: int) -> str:
        return f"{self._lane}/{of_hash:016x}"

    def _size(self, of_hash: int) -> str:
        return self._name(of_hash) + ".size"

    def _serve_sized(self, of_hash: int, content: bytes) -> None:
        self._serve(self._name(of_hash), content)
        self._serve(self._size(of_hash), len(content).to_bytes(8, "little"))

    def _get_sized(self, of_hash: int) -> str:
        size = int.from_bytes(self._get(self._size(of_hash), 8), "little")
        return self._get(self._name(of_hash), size).decode()

    def _serve(self, name: str, content: bytes) -> None:
        memory = np.frombuffer(content or b"\n", np.uint8)
        spec = TensorSpec(name, _abi.U8, (memory.nbytes,))
        self._worker.announce(_LANE, spec, _VERSION, memory.ctypes.data, memory.nbytes)

    def _get(self, name: str, size: int) -> bytes:
        received = np.empty(max(1, size), np.uint8)
        spec = TensorSpec(name, _abi.U8, received.shape)
        self._worker.get(
            _LANE, spec, _VERSION, None, _TIMEOUT_SECONDS, received.ctypes.data, received.nbytes
        )
        return received.tobytes()[:size]


def _hash_of(content: bytes) -> int:
    return int.from_bytes(hashlib.blake2b(content, digest_size=8).digest(), "little") or 1


def _lines(specs: list[TensorSpec]) -> list[str]:
    return sorted(
        f"{spec.name} ({str(tensors.torch_dtype(spec.dtype)).removeprefix('torch.')} "
        f"{list(spec.shape)})"
        for spec in specs
    )


def _some(lines: set[str]) -> str:
    shown = ", ".join(sorted(lines)[:_MOST_NAMED])
    more = len(lines) - _MOST_NAMED
    return (shown or "none") + (f" and {more} more" if more > 0 else "")
