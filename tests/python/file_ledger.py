# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""A ledger of samples in a file that the workers of a job share, for tests of what they do with
it."""

import contextlib
import fcntl
import json
import math
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

from basin.lane import ranges
from basin.lane.ranges import Range
from basin.lane.samples import Outcome, SampleEpoch


def _runs(process: str) -> bool:
    try:
        words = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return False
    return words[0] not in "ZX"


class FileLedger:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._me = str(os.getpid())

    @contextlib.contextmanager
    def _state(self) -> Iterator[dict[str, Any]]:
        with self._path.open("a+") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.seek(0)
            text = file.read()
            state = json.loads(text) if text else {"leases": {}, "named": {}, "asked": {}}
            for process in [each for each in state["leases"] if not _runs(each)]:
                del state["leases"][process]
                state["asked"].pop(process, None)
            yield state
            file.truncate(0)
            file.write(json.dumps(state))

    def lease(self, epoch: SampleEpoch, count: int) -> tuple[Outcome, list[Range]]:
        with self._state() as state:
            known = state.get("epoch")
            leases = state["leases"]
            leases.setdefault(self._me, [])
            state["asked"][self._me] = epoch.number
            if known is None or epoch.number > known[0]:
                leases[self._me] = []
                done = known is None or ranges.size(state["committed"]) == known[1]
                if not done and min(state["asked"].values()) < epoch.number:
                    return Outcome.NONE_NOW, []
                state["epoch"] = known = [epoch.number, epoch.samples, epoch.order]
                state["committed"] = []
                state["named"] = {}
            if epoch.number < known[0]:
                return Outcome.ENDED, []
            assert known == [epoch.number, epoch.samples, epoch.order]
            held = [tuple(each) for lease in leases.values() for each in lease]
            free = ranges.without([(0, epoch.samples)], [*held, *map(tuple, state["committed"])])
            if not free:
                if ranges.size(state["committed"]) == epoch.samples:
                    return Outcome.ENDED, []
                return Outcome.NONE_NOW, []
            left = ranges.size(free)
            if left < len(leases) * count:
                count = min(count, math.ceil(left / len(leases)))
            taken = ranges.first(free, count)
            leases[self._me] = ranges.union([*map(tuple, leases[self._me]), *taken])
            return Outcome.LEASED, taken

    def give_back(self, number: int, given: Sequence[Range]) -> None:
        with self._state() as state:
            held = map(tuple, state["leases"].get(self._me, []))
            if state.get("epoch", [None])[0] == number:
                state["leases"][self._me] = ranges.without(held, given)

    def committed(self) -> tuple[SampleEpoch | None, list[Range]]:
        with self._state() as state:
            known = state.get("epoch")
            if known is None:
                return None, []
            return SampleEpoch(*known), [tuple(each) for each in state["committed"]]

    def resume(self, epoch: SampleEpoch, committed: Sequence[Range]) -> None:
        with self._state() as state:
            state["epoch"] = [epoch.number, epoch.samples, epoch.order]
            state["committed"] = list(committed)

    # ---- what the aggregator does

    def begin(self, worker: str, round: int, named: Sequence[Range]) -> None:
        with self._state() as state:
            held = [tuple(each) for each in state["leases"].get(self._me, [])]
            assert not ranges.without(named, held), (named, held)
            state["named"][worker] = [round, self._me, list(named)]

    def end(self, round: int, contributors: Sequence[str]) -> None:
        with self._state() as state:
            for worker in contributors:
                at, process, named = state["named"].get(worker, (None, "", []))
                if at != round:
                    continue
                del state["named"][worker]
                named = [tuple(each) for each in named]
                assert ranges.without(named, map(tuple, state["committed"])) == ranges.union(named)
                state["committed"] = ranges.union([*map(tuple, state["committed"]), *named])
                held = map(tuple, state["leases"].get(process, []))
                state["leases"][process] = ranges.without(held, named)


@contextlib.contextmanager
def file_ledger(path: Path) -> Iterator[None]:
    """Lanes have this ledger meanwhile."""
    from basin.torch.rounds import TensorRounds

    begin, outcome = TensorRounds.begin, TensorRounds.outcome
    ledger = FileLedger(path)

    def naming(rounds: Any, gradients: Any, spec: Any) -> int:
        number = 1 if rounds.info is None else rounds.info.round + 1
        ledger.begin(
            rounds._worker.id, rounds._state._expected.get(rounds._lane, number), spec.samples
        )
        return begin(rounds, gradients, spec)

    def committing(rounds: Any, timeout: float | None) -> None:
        outcome(rounds, timeout)
        ledger.end(rounds.info.round, rounds.info.contributors)

    with (
        mock.patch.object(TensorRounds, "ledger", lambda _: ledger),
        mock.patch.object(TensorRounds, "begin", naming),
        mock.patch.object(TensorRounds, "outcome", committing),
    ):
        yield
