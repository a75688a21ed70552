# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""Samplers of an epoch that all workers share: each sample is used once, by one of them, whichever
workers come and go meanwhile.

The aggregator leases positions of the epoch; each worker computes which sample a position is. A
round names the positions that its contributions were computed from, and commits them. See
basin.lane.samples for what becomes of a position, and loaders.py for data loaders.
"""

import contextlib
import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence, Sized
from dataclasses import replace
from typing import Any, NoReturn, Protocol

import torch

from basin import forks, notices
from basin.arguments import whole_number
from basin.errors import (
    Error,
    FailedPrecondition,
    InvalidArgument,
    RoundAborted,
    Unsupported,
)
from basin.lane.ranges import Range, size
from basin.lane.samples import EpochReport, Ledger, Samples
from basin.spec import Op, Weight
from basin.torch import context
from basin.torch.lane import GradientLane
from basin.worker import logger


class Scheduler(Protocol):
    """A scheduler of the learning rate."""

    def step(self) -> None: ...


def order_of(samples: int, seed: int, epoch: int, shuffle: bool) -> torch.Tensor:
    """By position: the index of the sample. It is the order of torch's DistributedSampler."""
    if not shuffle:
        return torch.arange(samples)
    return torch.randperm(samples, generator=torch.Generator().manual_seed(seed + epoch))


def lane_of(optimizer: object, call: str) -> GradientLane:
    """The lane that reduces the gradients of the optimizer's parameters."""
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise InvalidArgument(
            f"{call} was given a {type(optimizer).__name__} as its optimizer. Give it the "
            "optimizer that applies the gradients, of DistributedOptimizer() or of the model of "
            "DistributedDataParallel()."
        )
    for lane in context.current().lanes:
        if lane.reduces_for(optimizer):
            return lane
    raise FailedPrecondition(
        f"{call} was given an optimizer whose gradients are not reduced. Call "
        "DistributedOptimizer(), DistributedDataParallel() or DDPState() first."
    )


class Elastic(torch.utils.data.Sampler[Any]):
    """What the samplers have in common.

    batch: how many positions it leases at a time
    """

    # Whether a position is one sample.
    are_samples = True

    def __init__(
        self,
        data: Sized | int,
        optimizer: torch.optim.Optimizer,
        *,
        batch: int,
        shuffle: bool,
        seed: int,
        weighted: bool,
        scheduler: Scheduler | None,
        step: Callable[[], object] | None,
        global_batch: int | None = None,
    ) -> None:
        self._call = f"{type(self).__name__}()"
        self._data = data
        self._n = self._length()
        self._seed = _whole(self._call, "seed", seed)
        self._shuffle = bool(shuffle)
        self.batch = batch
        self._global_batch = global_batch
        self._optimizer = optimizer
        self._scheduler = scheduler
        self._step = step
        self._on_step: Callable[[], object] | None = None
        self._has_warned = False  # That an epoch is set again after its end.
        self._turn = 0  # The number of the last loop that has begun.
        self._has_loader = False  # Whether that one goes on, and takes items in advance.
        self._order: tuple[int, torch.Tensor] | None = None  # The present epoch and its order.
        self._forks = forks.count()
        self.lane = lane_of(optimizer, self._call)
        _check_lane(self.lane, self._call)
        self.samples = Samples(
            ledger_of(self.lane),
            self.lane,
            self._n,
            self._hash(),
            self.are_samples,
            self._take_part,
            global_batch,
        )
        if global_batch is not None and self.lane.passes != 1:
            raise InvalidArgument(
                f"{self._call} has keep_global_batch, with which each step has one backward, but "
                "the optimizer has backward_passes_per_step or target_batch. Use one of them."
            )
        spec = self.lane.spec
        if weighted and self.are_samples and spec.op == Op.AVERAGE:
            if self.lane.passes > 1:
                raise InvalidArgument(
                    f"{self._call} weighs gradients by their samples, but "
                    "backward_passes_per_step adds the gradients of micro-batches, and a sum of "
                    'means is not a mean. Use op=basin.WeightedAverage, weight_by="samples", '
                    'contributes="sum" with losses that are sums over their samples, or '
                    "weighted=False here."
                )
            if self.lane.next_round > 1:
                raise FailedPrecondition(
                    f"{self._call} weighs gradients by their samples, but lane {self.lane.name} "
                    "has had rounds without weights. Create the sampler before the first "
                    "backward(), or use weighted=False."
                )
            spec = replace(spec, op=Op.WEIGHTED_AVERAGE, weight_by=Weight.SAMPLES)
            notices.tell(
                f"basin: worker {self.lane.rounds.worker_id}: instead of the number of workers, "
                f"averages of lane {self.lane.name} are divided by the samples of all, because a "
                "sampler of basin.torch gives them"
            )
        self.lane.sample_with(self.samples, spec, plain_steps=step is None)

    # ---- what a training loop calls

    def set_epoch(self, epoch: int) -> None:
        """Goes on with this epoch, and gives up another one. Without it, an iter() after the end of
        an epoch begins the next one."""
        number = _whole("set_epoch()", "epoch", epoch)
        if self.samples.is_over and number == self.epoch and not self._has_warned:
            self._has_warned = True
            logger.warning(
                "Worker %s calls set_epoch(%d) after its loop has reached the end of this epoch, "
                "so the next loop has no samples. Count the epochs: set_epoch(%d).",
                self.lane.rounds.worker_id,
                number,
                number + 1,
            )
        self.samples.set_epoch(number)

    @property
    def epoch(self) -> int:
        return self.samples.epoch.number

    def state_dict(self) -> dict[str, Any]:
        """The epoch and what is committed in it, as of this worker's last verdict: the positions
        whose gradients are in the parameters that a checkpoint saves at this step. All values are
        plain numbers and lists."""
        return {
            "epoch": self.epoch,
            "samples": self._n,
            "seed": self._seed,
            "shuffle": self._shuffle,
            "global_batch": self._global_batch,
            "committed": [list(each) for each in self.samples.committed()],
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Goes on where state_dict() was made, with any number of workers. Raises InvalidArgument,
        and applies nothing, if the state is of another length, seed or order, or not whole."""
        self.samples.resume(*self.check_state_dict(state))

    def check_state_dict(self, state: Mapping[str, Any]) -> tuple[int, list[Range]]:
        """Returns the epoch and the committed positions of a state that load_state_dict() can take,
        and raises its errors for another one."""
        who = f"Worker {self.lane.rounds.worker_id}: load_state_dict()"
        missing = [name for name in self.state_dict() if name not in state]
        if missing:
            raise InvalidArgument(
                f"{who} was given a state without {', '.join(missing)}, so no sampler of "
                "basin.torch has made it. Nothing was loaded. Give it what state_dict() returned."
            )
        mine = {"samples": self._n, "seed": self._seed, "shuffle": self._shuffle}
        for name, here in mine.items():
            if state[name] != here:
                raise InvalidArgument(
                    f"{who} was given a state with {name}={state[name]!r}, but "
                    f"this {type(self).__name__} has {name}={here!r}. Nothing was loaded. Make the "
                    "sampler as it was, or begin the epoch anew without its state."
                )
        epoch = _whole("load_state_dict()", "epoch", state["epoch"])
        committed: list[Range] = []
        for each in state["committed"]:
            begin, end = (_whole("load_state_dict()", "committed", place) for place in each)
            if not begin < end <= self._n:
                raise InvalidArgument(
                    f"{who} was given the committed positions {begin} to {end}, but "
                    f"the epoch has {self._n}. Nothing was loaded: the state is damaged."
                )
            committed.append((begin, end))
        # The steps of an epoch that has begun are those of its batch.
        global_batch = state["global_batch"]
        if global_batch != self._global_batch and 0 < size(committed) < self._n:
            raise InvalidArgument(
                f"load_state_dict() was given a state with keep_global_batch={global_batch!r} in "
                f"the middle of an epoch, but this {type(self).__name__} has "
                f"keep_global_batch={self._global_batch!r}. Nothing was loaded. Change it when an "
                "epoch begins."
            )
        return epoch, committed

    def epoch_report(self) -> EpochReport:
        """What has become of the epoch so far."""
        return replace(self.samples.report, committed=size(self.samples.committed()))

    def report_steps(self, on_step: Callable[[], object]) -> None:
        """Calls `on_step` after each step that the sampler makes, and not a function of the
        script."""
        self._on_step = on_step

    def _left(self) -> int:
        """About how many positions of the epoch are left for this worker."""
        left = self._n - size(self.samples.committed())
        workers = max(1, self.lane.rounds.world_size())
        return -(-left // workers)

    # ---- loops

    def __getstate__(self) -> NoReturn:
        raise FailedPrecondition(
            f"{type(self).__name__} cannot be pickled or copied: its leases are those of this "
            "process. Processes of a DataLoader get the indices, or a shard, and not the sampler."
        )

    def __iter__(self) -> Iterator[Any]:
        if forks.count() != self._forks:
            raise FailedPrecondition(
                f"{type(self).__name__} was iterated in a process that was forked from its "
                "worker, which has the leases. Give it to a DataLoader as its sampler or "
                "batch_sampler; processes of the loader then get indices."
            )
        if self._has_loader:
            return self.ahead()
        return Loop(self, self.ahead, self._unit(), has_loader=False)

    def ahead(self) -> Iterator[Any]:
        """What a loader takes in advance."""
        raise NotImplementedError

    def _unit(self) -> int | None:
        """How many positions each item of ahead() has; None: those of one lease."""
        raise NotImplementedError

    def begin(self, *, has_loader: bool) -> int:
        """A loop begins, and ends another one. Returns its number."""
        length = self._length()
        if length != self._n:
            raise InvalidArgument(
                f"The data of {type(self).__name__} had {self._n} samples when it was made, and "
                f"has {length} now: the positions of an epoch would not be the same on all "
                "workers. Make another sampler, on all workers."
            )
        self._turn += 1
        self._has_loader = has_loader
        self.samples.begin()
        return self._turn

    def check(self, turn: int) -> None:
        if self._turn != turn:
            raise FailedPrecondition(
                f"Another loop over the same {type(self).__name__} has begun, so this one is over. "
                "Use one sampler for each loader."
            )

    def end(self, turn: int) -> None:
        if self._turn == turn:
            self._has_loader = False
            self.samples.stop()

    def warn_if_over(self) -> None:
        """Warns of an epoch that had ended before this worker took part in it, unless it has
        resumed it at its end."""
        report = self.samples.report
        if report.rounds == 0 and report.samples > 0 and not self.samples.was_resumed_at_its_end:
            logger.warning(
                "Epoch %d of %s has ended in lane %s already, so a loop over it has no samples. A "
                "worker that joins late gets the present epoch from broadcast_state(); a job that "
                "goes on with another sampler goes on with later epochs: set_epoch().",
                report.epoch,
                type(self).__name__,
                self.lane.name,
            )

    def indices(self, taken: Sequence[Range]) -> list[int]:
        """The samples at these positions."""
        epoch = self.epoch
        if self._order is None or self._order[0] != epoch:
            self._order = epoch, order_of(self._n, self._seed, epoch, self._shuffle)
        order = self._order[1]
        return [index for begin, end in taken for index in order[begin:end].tolist()]

    def _take_part(self) -> None:
        """Takes part in a round without a backward, and makes the step of the script."""
        lane, optimizer = self.lane, self._optimizer
        if lane.is_spoiled():
            optimizer.zero_grad()
            return  # Its positions come again.
        lane.name_unused()
        if not lane.gradients.has_local():
            optimizer.zero_grad()
        try:
            lane.sync_gradients()
        except RoundAborted as error:
            if not error.no_contributor and not error.step_again:
                raise
            return  # On all workers.
        if self._step is not None:
            self._step()
        else:
            optimizer.step()
            if self._scheduler is not None:
                self._scheduler.step()
        optimizer.zero_grad()
        if self._step is None and self._on_step is not None:
            self._on_step()

    def _length(self) -> int:
        length = self._data if isinstance(self._data, int) else len(self._data)
        return _whole(self._call, "the length of the data", length)

    def _hash(self) -> int:
        text = f"{type(self).are_samples} {self._n} {self._seed} {self._shuffle}"
        return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")


class Loop(Iterator[Any]):
    """A loop over a sampler, or over a loader that has it. It goes on until the epoch has ended,
    and takes part in the rounds of the others while they hold what is left.

    start:      begins an iteration over what can be leased now
    unit:       how many positions each item has; None: those of one lease
    has_loader: whether items are taken in advance
    """

    def __init__(
        self,
        sampler: Elastic,
        start: Callable[[], Iterator[Any]],
        unit: int | None,
        *,
        has_loader: bool,
    ) -> None:
        self._sampler = sampler
        self._start = start
        self._unit = unit
        self._inner: Iterator[Any] | None = None
        self._forks = forks.count()
        self._life = 0  # In which that has begun.
        self._turn = 0
        self._has_loader = has_loader
        self._turn = sampler.begin(has_loader=has_loader)

    def __iter__(self) -> "Loop":
        return self

    def __next__(self) -> Any:
        sampler = self._sampler
        samples = sampler.samples
        sampler.check(self._turn)
        samples.renew()
        if self._life != samples.life:
            self._inner = None  # What it has taken in advance is void.
        while True:
            for item in () if self._inner is None else self._inner:
                samples.hand_out(self._unit, self._unit is None or self._has_loader)
                return item
            samples.loader_is_empty()
            if not samples.wait(sampler.batch):
                self._inner = None
                sampler.warn_if_over()
                sampler.end(self._turn)
                raise StopIteration
            self._life = samples.life
            self._inner = self._start()

    def __del__(self) -> None:
        # The script has left the loop. Its leases go back, unless the worker has left the job.
        if forks.count() == getattr(self, "_forks", -1) and not self._sampler.lane.usage.closed:
            with contextlib.suppress(Error):  # A later call raises it.
                self._sampler.end(self._turn)


class _Ahead(Iterator[Any]):
    """What can be leased now. When there is nothing, it ends, and another next() asks again."""

    def __init__(self, take: Callable[[], list[Any]]) -> None:
        self._take = take
        self._rest: Iterator[Any] = iter(())

    def __next__(self) -> Any:
        for item in self._rest:
            return item
        self._rest = iter(self._take())
        return next(self._rest)


class ElasticSampler(Elastic):
    """A sampler for torch.utils.data.DataLoader, in place of DistributedSampler: over all workers,
    each index of the data comes once in an epoch, whichever workers join, leave or die meanwhile.

    data:       the dataset, or its length
    optimizer:  the one that applies the gradients
    shuffle:    the order of an epoch is torch.randperm() with a generator of the seed
                seed + epoch; otherwise it is that of the data
    batch_size: how many samples are leased at a time; by default that of the loader
    weighted:   an average of the lane is weighted by samples, so that a short batch counts as what
                it is. It expects losses that are means over their batch. False, or another op than
                basin.Average: as the optimizer says
    scheduler:  its step() is called after each step of a round in which this worker has no samples
    step:       is called in place of optimizer.step() and scheduler.step() in such a round: for a
                loop that changes gradients before its step, for example by clipping

    A sample counts as used when a round with its gradient is committed. If a worker dies, its round
    is aborted, or its backward fails, the sample comes again in the same epoch. While others hold
    what is left of an epoch, the loop takes part in their rounds without a contribution.

    All workers must use the same data, seed and shuffle. Raises Unsupported with
    local_group="auto" or similar, where the ranks of a node contribute together.
    """

    def __init__(
        self,
        data: Sized | int,
        optimizer: torch.optim.Optimizer,
        *,
        shuffle: bool = True,
        seed: int = 0,
        batch_size: int | None = None,
        weighted: bool = True,
        scheduler: Scheduler | None = None,
        step: Callable[[], object] | None = None,
    ) -> None:
        super().__init__(
            data,
            optimizer,
            batch=1 if batch_size is None else _batch("ElasticSampler()", batch_size),
            shuffle=shuffle,
            seed=seed,
            weighted=weighted,
            scheduler=scheduler,
            step=step,
        )
        self.batch_size = batch_size

    def ahead(self) -> Iterator[int]:
        # It ends for good when there is nothing now. A loader then makes a short batch, and if it
        # went on, it would not be known which of its batches are short.
        yield from _Ahead(lambda: self.indices(self.samples.take(self.batch)))

    def _unit(self) -> int | None:
        return 1

    def __len__(self) -> int:
        """About how many samples of the epoch are left for this worker."""
        return self._left()


class ElasticBatchSampler(Elastic):
    """Like ElasticSampler, as a loader's batch_sampler: lists of at most `batch_size` indices. What
    is left at the end of an epoch is shared among the workers, in shorter batches.

    keep_global_batch:
        in place of batch_size, the same on all workers: each step is over so many samples, whatever
        the number of workers, and step k of an epoch is over the same ones. The last step has what
        is left. Each list is this worker's share of a step, as equal as possible, for one backward.

    If a worker is lost, or comes or goes, in the middle of such a step, RoundAborted is raised on
    all of them (its step_again is true). The gradients were dropped, and the step comes again.
    """

    def __init__(
        self,
        data: Sized | int,
        optimizer: torch.optim.Optimizer,
        batch_size: int | None = None,
        *,
        keep_global_batch: int | None = None,
        shuffle: bool = True,
        seed: int = 0,
        weighted: bool = True,
        scheduler: Scheduler | None = None,
        step: Callable[[], object] | None = None,
    ) -> None:
        call = "ElasticBatchSampler()"
        if (batch_size is None) == (keep_global_batch is None):
            raise InvalidArgument(
                f"{call} was given batch_size={batch_size!r} and "
                f"keep_global_batch={keep_global_batch!r}. Give it one of them."
            )
        if keep_global_batch is None:
            batch = _batch(call, batch_size)
        else:
            batch = keep_global_batch = _batch(call, keep_global_batch, "keep_global_batch")
        super().__init__(
            data,
            optimizer,
            batch=batch,
            shuffle=shuffle,
            seed=seed,
            weighted=weighted,
            scheduler=scheduler,
            step=step,
            global_batch=keep_global_batch,
        )
        self.batch_size = batch_size

    def ahead(self) -> Iterator[list[int]]:
        return _Ahead(self._take_batch)

    def _take_batch(self) -> list[list[int]]:
        taken = self.samples.take(self.batch)
        return [self.indices(taken)] if taken else []

    def _unit(self) -> int | None:
        return None

    def __len__(self) -> int:
        """About how many batches of the epoch are left for this worker."""
        if self._global_batch is not None:
            return -(-(self._n - size(self.samples.committed())) // self._global_batch)
        return -(-self._left() // self.batch)


class ElasticShards(Elastic):
    """What elastic_shards() returns."""

    are_samples = False

    def __init__(
        self,
        shards: Sequence[Any],
        optimizer: torch.optim.Optimizer,
        *,
        shuffle: bool,
        seed: int,
        scheduler: Scheduler | None,
        step: Callable[[], object] | None,
    ) -> None:
        super().__init__(
            shards,
            optimizer,
            batch=1,
            shuffle=shuffle,
            seed=seed,
            weighted=False,
            scheduler=scheduler,
            step=step,
        )
        self._shards = shards

    def ahead(self) -> Iterator[Any]:
        return _Ahead(lambda: [self._shards[i] for i in self.indices(self.samples.take(1))])

    def _unit(self) -> int | None:
        return None

    def __len__(self) -> int:
        """About how many shards of the epoch are left for this worker."""
        return self._left()


def elastic_shards(
    shards: Sequence[Any],
    optimizer: torch.optim.Optimizer,
    *,
    shuffle: bool = True,
    seed: int = 0,
    scheduler: Scheduler | None = None,
    step: Callable[[], object] | None = None,
) -> ElasticShards:
    """For data that is read in sequence: an iterable of the shards (file names, for example) that
    this worker reads, each of which may take many steps. Over all workers, each shard comes once in
    an epoch. It has the methods of ElasticSampler, and the arguments are those of it.

        for shard in basin.torch.elastic_shards(names, optimizer):
            for batch in DataLoader(Reader(shard), batch_size=32, num_workers=4):
                ...

    Loop over it in the training process, and give each shard to a loader: the processes of that
    loader may divide it. A shard is committed by the first round after the loop asks for the next
    one. If its worker is lost before that, another one reads it from its start.

    Averages are weighted as the optimizer says, because the samples of a shard are not known.
    """
    return ElasticShards(
        shards, optimizer, shuffle=shuffle, seed=seed, scheduler=scheduler, step=step
    )


def ledger_of(lane: GradientLane) -> Ledger:
    return lane.rounds.ledger()


def _check_lane(lane: GradientLane, call: str) -> None:
    if lane.rounds.node.groups_ranks:
        raise Unsupported(
            f"{call} needs rounds in which each rank contributes for itself, but local_group="
            "(BASIN_LOCAL_GROUP) reduces the ranks of this node to one contribution. Use "
            'local_group="off", or DistributedSampler and a fixed set of workers.'
        )


def _whole(call: str, name: str, value: object) -> int:
    number = whole_number(value)
    if number is None:
        raise InvalidArgument(f"{call}: {name} cannot be {value!r}. Use a whole number from 0.")
    return number


def _batch(call: str, batch_size: object, name: str = "batch_size") -> int:
    number = whole_number(batch_size)
    if not number:
        raise InvalidArgument(
            f"{call}: {name} cannot be {batch_size!r}. Use a whole number from 1."
        )
    return number
