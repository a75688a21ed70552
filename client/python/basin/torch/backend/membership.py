# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""The members of a process group: workers of a job of its own at the aggregator. Its name is new,
so a process group that is made again never meets those that are still in the old one."""

import os
import secrets
from datetime import timedelta

from torch.distributed import Store

from basin import descent
from basin.client import Client, connect
from basin.errors import Error, Unavailable
from basin.torch import context
from basin.worker import RoundInfo

_KEY = "basin/job"
# So many bytes of BASIN_JOB are in the name of the job, which has room for 63 after a slash.
_MOST_OF_NAME = 40


def seconds_of(timeout: timedelta | None) -> float | None:
    """None: no end. torch says so with zero and with negative times as well."""
    seconds = 0.0 if timeout is None else timeout.total_seconds()
    return seconds if seconds > 0 else None


class Membership:
    """This process as a member. It fails, for good, when another member has left or was lost."""

    def __init__(
        self, store: Store, rank: int, size: int, timeout: timedelta, *, is_default: bool
    ) -> None:
        """Returns when all members are there.

        store:      of the group alone; its first member writes the name of the job there
        is_default: the group of all workers, which may write a timeline
        """
        self.timeout = seconds_of(timeout)
        self._size = size
        self._broken: str | None = None
        self.job = self._agree(store, rank)
        with descent.kept():
            self.client: Client = connect(
                job=self.job,
                # The aggregator ranks workers by the byte order of their ids.
                worker_id=_id_of(rank),
                # With more, a job that has lost a member would wait for another one.
                min_workers=1,
                max_workers=size,
                start_workers=size,
                ranks=1,
                fresh=True,
                local_group="off",
                timeline=None if is_default else "",
                timeout=self.timeout,
            )
        self.client.check_result = self._check
        if context.is_started() and not context.is_helper():
            # A worker that was asked to leave has said so in its job alone.
            self.client.leaves_with = (  # type: ignore[method-assign]
                context.current().client.leaves_with
            )
        try:
            # All have read the name, and a group that is made again must not read it.
            if rank == 0:
                store.delete_key(_KEY)
            self.client.barrier("begin", self.timeout)
        except BaseException:
            self.close(finished=False)
            raise

    @staticmethod
    def _agree(store: Store, rank: int) -> str:
        team, slash, job = os.environ.get("BASIN_JOB", "torch").rpartition("/")
        if rank == 0:
            name = f"{team}{slash}{job[:_MOST_OF_NAME]}-group-{secrets.randbits(48):012x}"
            store.set(_KEY, name)
        return store.get(_KEY).decode()

    def member(self, call: str) -> Client:
        """The client for a `call` of all members. Raises Unavailable if one of them has gone."""
        if self._broken is not None:
            raise Unavailable(f"{call} was called in a group that has failed. {self._broken}")
        self.client.check_open(call)
        return self.client

    def _check(self, info: RoundInfo) -> None:
        """A result without the part of a member is none."""
        gone = sorted({_id_of(rank) for rank in range(self._size)} - set(info.contributors))
        if gone:
            self._broken = (
                f"The process group of {self._size} workers (job {self.job}) has no more calls: "
                f"{', '.join(gone)} has left, was lost or was refused. Start the workers again, "
                "for example with torchrun --max-restarts, or use basin.torch.init(), which goes "
                "on without a worker."
            )
            raise Unavailable(self._broken)

    def close(self, *, finished: bool) -> None:
        """Leaves; the others' calls raise Unavailable then."""
        try:
            self.client.close(finished=finished)
        except Error:
            if finished and self._broken is None:
                raise


def _id_of(rank: int) -> str:
    return f"rank-{rank:05}"
