# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""Process sets: some workers of a job that make calls among themselves.

A set is a job of its own at the same aggregator. So its calls have their own order and their own
membership, and the other workers take no part in them. A set does not shrink: when a member has
left or was lost, the next call of each other member raises Unavailable, and it leaves the set, so
that nobody waits for it.
"""

import secrets
from collections.abc import Iterable

import numpy as np

from basin import descent
from basin.arguments import whole_number
from basin.client import Client, connect
from basin.errors import Error, FailedPrecondition, InvalidArgument, Unavailable, Unsupported
from basin.gathering import Gathered, gather, shortened
from basin.worker import RoundInfo, logger

# The options of the job's worker that that of the set has as well.
_KEPT = (
    "address",
    "run_id",
    "tls_ca",
    "tls_cert",
    "tls_key",
    "token_file",
    "local",
    "log_level",
    "software",
)
# So many bytes of the job's name are in that of the set, which has room for 63 after a slash.
_MOST_OF_NAME = 40
_MOST_OF_ID = 63


class ProcessSet:
    """Some ranks of a job. add_process_set() makes it usable."""

    def __init__(self, *ranks: int | Iterable[int]) -> None:
        """ranks: of the present generation, as numbers or as one list. They mean the workers that
        have them when the set is added."""
        given = ranks[0] if len(ranks) == 1 and not isinstance(ranks[0], int) else ranks
        numbers = [whole_number(each) for each in given] if isinstance(given, Iterable) else [None]
        self.ranks = sorted(each for each in numbers if each is not None)
        if not numbers or len(set(self.ranks)) != len(numbers):
            raise InvalidArgument(
                f"A process set cannot have the ranks {given!r}. Give it different ranks, at least "
                "one: ProcessSet(0, 2)."
            )
        self.workers: tuple[str, ...] = ()  # Their ids, once it was added.
        # The same by those in the job of the set, whose ranks follow the byte order of its ids.
        self._ids: dict[str, str] = {}
        self._client: Client | None = None
        self._broken: str | None = None

    def __repr__(self) -> str:
        return f"ProcessSet({', '.join(map(str, self.ranks))})"

    def included(self) -> bool:
        """Whether this worker is a member."""
        return self._client is not None

    def size(self) -> int:
        """The number of members, as long as none has left."""
        return len(self.ranks)

    def rank(self) -> int:
        """The rank of this worker among the members, from 0, in the order of `ranks`."""
        return self.client_of("rank()").rank

    def add(self, client: Client, timeout: float | None) -> None:
        """Makes the set, in a call of all workers of the job."""
        if self.workers:
            raise FailedPrecondition(f"{self} was added already. Add a set only once.")
        client.take_part("add_process_set()")
        place, worker = client.place, client.worker
        if self.ranks[-1] >= place.world_size:
            raise InvalidArgument(
                f"{self} cannot be added: there are {place.world_size} workers. Use ranks from 0 "
                f"to {place.world_size - 1}."
            )
        if place.ranks > 1:
            raise Unsupported(
                f"{self} cannot be added: worker {worker.id} stands for several trainers, and a "
                "set is of single ones. Set local_group to off."
            )
        members = tuple(worker.member_id(rank) for rank in self.ranks)
        listed = ", ".join(f"{rank} ({each})" for rank, each in zip(self.ranks, members))
        # All workers use the number of the first one.
        number = secrets.randbits(62)

        def output(gathered: Gathered) -> int:
            missing = sorted(set(members) - {share.worker for share in gathered.shares})
            if missing:
                raise Unavailable(
                    f"{self} was not made: {', '.join(missing)} took no part. Add another set, on "
                    "all workers."
                )
            return gathered.shares[0].numbers[0]

        adding = gather(
            client,
            place,
            "process set",
            None,
            shortened(f"add_process_set() of ranks {listed}"),
            [number],
            np.empty(0, np.uint8),
            output,
            waits=True,
            timeout=timeout,
        )
        agreed = client.complete(adding, timeout)
        ids = {f"{i:05}-{each}"[:_MOST_OF_ID]: each for i, each in enumerate(members)}
        if worker.id in members:
            mine = next(ours for ours, its in ids.items() if its == worker.id)
            self._client = self._connect(client, agreed, mine)
        self.workers, self._ids = members, ids

    def _connect(self, client: Client, number: int, worker_id: str) -> Client:
        options = client.worker.options
        team, slash, job = options["job"].rpartition("/")
        size = len(self.ranks)
        with descent.kept():
            connected = connect(
                worker_id=worker_id,
                job=f"{team}{slash}{job[:_MOST_OF_NAME]}-set-{number:016x}",
                min_workers=1,
                max_workers=size,
                start_workers=size,
                ranks=1,
                streams=1,
                fresh=True,
                local_group="off",
                timeline="",
                **{name: options[name] or None for name in _KEPT},  # type: ignore[arg-type]
            )
        connected.check_result = self._check_result
        # A worker that was asked to leave has said so in its job alone.
        connected.leaves_with = client.leaves_with  # type: ignore[method-assign]
        return connected

    def client_of(self, call: str) -> Client:
        """The client for a `call` of the members. Raises InvalidArgument on other workers, and
        Unavailable if a member has left."""
        if not self.workers:
            raise FailedPrecondition(
                f"{call} was given {self}, which was not added. Call add_process_set() on all "
                "workers first."
            )
        client = self._client
        if client is not None and self._broken is None:
            place = client.place
            if place.world_size < len(self.workers):
                members = map(client.worker.member_id, range(place.world_size))
                self._broken = self._why(set(members))
        if self._broken is not None:
            # It leaves here, because a result that shows it may come to another thread.
            if client is not None:
                client.close()
            raise Unavailable(self._broken)
        if client is None:
            raise InvalidArgument(
                f"{call} was given {self}, of the workers {', '.join(self.workers)}, and this "
                "worker is none of them. Call it only where included() is true."
            )
        return client

    def _check_result(self, info: RoundInfo) -> None:
        """A result without a member is none. The first reason stays, because the other members go
        for that reason."""
        counted = set(info.contributors)
        if len(counted) < len(self.workers) and self._client is not None:
            self._broken = self._broken or self._why(counted)
            raise Unavailable(self._broken)

    def _why(self, there: set[str]) -> str:
        remaining = {self._ids.get(each, each) for each in there}
        gone = ", ".join(each for each in self.workers if each not in remaining)
        remains = ", ".join(each for each in self.workers if each in remaining)
        return (
            f"{self} of the workers {', '.join(self.workers)} has no more calls: {gone} has left, "
            f"was lost or was refused, and {remains or 'nobody'} remains. Add a set of the workers "
            "that are there, on all of them."
        )

    def close(self, finished: bool = True) -> None:
        """Leaves the set; the calls of the other members raise Unavailable then. Does nothing the
        second time, or on a worker that is no member."""
        client, self._client = self._client, None
        if client is None:
            return
        self._broken = self._broken or f"{self} was removed here. Add another one, on all workers."
        try:
            client.close(finished=finished)
        except Error as error:  # The others see that it is gone.
            logger.warning("%r was not left in an orderly way: %s", self, error)
