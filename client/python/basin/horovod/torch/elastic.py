# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""The names of horovod.torch.elastic over basin.torch, where workers come and go without a restart.

A script of Horovod has a function that run() calls again after each change of the workers. Here it
goes on in the same call: a worker that joins gets the state of the others in sync(), and the others
do not notice. So nothing is restored when a worker is lost, and no step is lost.
"""

import copy
import functools
import sys
from collections.abc import Callable, Iterable, Sized
from typing import Any, TypeVar

import torch

import basin.torch
from basin import notices
from basin.errors import Evicted, FailedPrecondition, RoundAborted
from basin.torch import context, parts
from basin.torch.collectives import broadcast_optimizer_state, broadcast_parameters, share_values

T = TypeVar("T")

# How often run() begins again after rounds that were aborted, without a commit() between.
_MOST_ABORTS = 3


class ElasticSampler(basin.torch.ElasticSampler):
    """basin.torch.ElasticSampler with Horovod's arguments: over all workers, each index of the data
    comes once in an epoch, whichever workers join, leave or die. Give it to a DataLoader as its
    sampler and, as any argument, to TorchState with the optimizer, before the first loop.

    dataset: whose indices it gives
    shuffle: the order of an epoch is that of basin.torch.ElasticSampler
    seed:    of the order; the same on all workers
    """

    def __init__(self, dataset: Sized, shuffle: bool = True, seed: int = 0) -> None:
        # The rest needs the optimizer.
        self._data = dataset
        self._shuffle, self._seed = shuffle, seed
        self._bound = False
        self._first_epoch: int | None = None
        self.batch_size = None
        self.batch = 1

    def bind(self, optimizer: torch.optim.Optimizer) -> None:
        """From now on it gives samples, whose gradients this optimizer applies. A second call does
        nothing."""
        if self._bound:
            return
        super().__init__(self._data, optimizer, shuffle=self._shuffle, seed=self._seed)
        self._bound = True
        if self._first_epoch is not None:
            super().set_epoch(self._first_epoch)

    def set_epoch(self, epoch: int) -> None:
        """Goes on with this epoch; after its end, or that of a later one, with the next one, as
        Horovod does with the same number."""
        if not self._bound:
            self._first_epoch = epoch
            return
        ended = self.samples.is_over and epoch <= self.epoch
        super().set_epoch(self.epoch + 1 if ended else epoch)

    def record_batch(self, batch_idx: int, batch_size: int) -> None:
        """Does nothing: a round records the samples of its gradients."""

    def reset(self) -> None:
        """Does nothing: what is left is shared among the present workers at any time."""

    def begin(self, *, has_loader: bool) -> int:
        if not self._bound:
            raise FailedPrecondition(
                "A loop has begun over an ElasticSampler that no TorchState has. Give it to "
                "TorchState with the optimizer first: TorchState(model, optimizer, "
                "sampler=sampler)."
            )
        return super().begin(has_loader=has_loader)

    def __len__(self) -> int:
        """About how many samples of the epoch are left for this worker."""
        if self._bound:
            return super().__len__()
        return -(-len(self._data) // max(1, basin.torch.size()))  # type: ignore[arg-type]


class State(basin.torch.State):
    """basin.torch.State with Horovod's methods. Generators of random numbers are left alone."""

    def __init__(
        self,
        model: torch.nn.Module | None = None,
        optimizer: torch.optim.Optimizer | None = None,
        **values: Any,
    ) -> None:
        samplers = [each for each in values.values() if isinstance(each, ElasticSampler)]
        if samplers and optimizer is None:
            raise FailedPrecondition(
                "TorchState() was given an ElasticSampler without the optimizer that applies the "
                "gradients of its samples. Give it optimizer=, too."
            )
        for sampler in samplers:
            assert optimizer is not None
            sampler.bind(optimizer)
        super().__init__(model, optimizer, rng=False, start=False, **values)
        hidden = vars(self)
        hidden["_callbacks"] = []
        # The generation at the last look, which a worker that joins gets from the others: they may
        # have changed their learning rates for it, or not yet.
        hidden["_members"] = (0, 0)
        hidden["_saved"] = None
        hidden["_commits"] = 0

    def sync(self) -> None:
        """Gives all workers the values of rank 0, and a worker that has joined those of the others.
        run() calls it first."""
        here = context.member("sync()")
        vars(self)["_members"] = here.client.generation
        if self._worker is None:
            self.start()
        else:
            for each in self._modules.values():
                broadcast_parameters(each.module)
            for each in self._optimizers.values():
                broadcast_optimizer_state(each.optimizer)
            share_values(self, "sync()")
        self.save()

    def states(self) -> dict[str, Any]:
        return {**super().states(), "_members": self._members}

    def load_states(self, states: dict[str, Any]) -> None:
        rest = dict(states)
        vars(self)["_members"] = rest.pop("_members")
        super().load_states(rest)

    def save(self) -> None:
        """Copies all values in memory, for restore(). What samplers have given stays given."""
        copies = {name: each.value() for name, each in self._without_samplers().items()}
        vars(self)["_saved"] = copy.deepcopy(copies)

    def restore(self, packed: bytes | None = None) -> None:
        """Goes back to the last save(), on this worker alone: call it on all, or none. Raises
        FailedPrecondition without one.

        packed: not for scripts: the values that a late joiner gets
        """
        if packed is not None:
            super().restore(packed)
            return
        if self._saved is None:
            raise FailedPrecondition(
                "restore() was called before save(), commit() or sync(), so there is nothing to "
                "go back to. Call one of them first."
            )
        mine = self._without_samplers()
        parts.apply_all(mine, "restore()", copy.deepcopy(self._saved))

    def _without_samplers(self) -> dict[str, parts.Part]:
        values = self.shared()
        return {
            name: each
            for name, each in self.parts().items()
            if not isinstance(values.get(name), ElasticSampler)
        }

    def commit(self) -> None:
        """save() and check_host_updates()."""
        vars(self)["_commits"] += 1
        self.save()
        self.check_host_updates()

    def check_host_updates(self) -> None:
        """Calls the reset callbacks if workers have joined or left since the last call; at the same
        place on all of them. A worker that is to leave leaves here, and ends with SystemExit."""
        if basin.torch.leaving():
            basin.torch.shutdown()
            sys.exit(0)
        members = _generation_of_last_round()
        if members > self._members:
            vars(self)["_members"] = members
            self.on_reset()

    def register_reset_callbacks(self, callbacks: Iterable[Callable[[], object]]) -> None:
        """Functions to call after workers have joined or left, for example one that changes the
        learning rate for size() workers."""
        self._callbacks.extend(callbacks)

    def on_reset(self) -> None:
        """Calls the callbacks."""
        for callback in self._callbacks:
            callback()


class TorchState(State):
    """All that a training continues from: a model, an optimizer of DistributedOptimizer(), and
    other values, as attributes. The optimizer must be given with each ElasticSampler."""


class ObjectState(State):
    """Values as attributes.

    bcast_object, get_rank: not used
    """

    def __init__(self, bcast_object: Any = None, get_rank: Any = None, **values: Any) -> None:
        super().__init__(**values)


def run(function: Callable[..., T]) -> Callable[..., T]:
    """A decorator for function(state, ...), which trains. Before it state.sync() is called.

    The function goes on while workers come and go. It begins again, with the state as it is and
    after the reset callbacks, after a round that was aborted on all workers; and with the state of
    the others after this worker was evicted. After three aborted rounds without a commit() between
    them the error is raised.
    """

    @functools.wraps(function)
    def run_elastically(state: State, *arguments: Any, **options: Any) -> T:
        state.sync()
        aborts, commits = 0, -1
        while True:
            try:
                return function(state, *arguments, **options)
            except RoundAborted as error:
                aborts = aborts + 1 if state._commits == commits else 1
                commits = state._commits
                if aborts >= _MOST_ABORTS:
                    raise
                notices.tell(f"basin: the training function begins again: {error}")
                state.on_reset()
            except Evicted as error:
                notices.tell(f"basin: this worker joins again: {error}")
                # With the others it calls the callbacks at the next commit().
                basin.torch.rejoin()
            for each in state._optimizers.values():
                # Horovod's zero_grad() asks for a step first.
                torch.optim.Optimizer.zero_grad(each.optimizer)

    return run_elastically


def _generation_of_last_round() -> tuple[int, int]:
    """The same on all workers at the same place of a script, where the place of a worker may be
    newer on some. Without rounds of gradients it is that of the place."""
    here = context.current()
    infos = [lane.rounds.info for lane in here.lanes]
    known = [info.generation for info in infos if info is not None]
    return max(known, default=here.client.generation)


__all__ = ["ElasticSampler", "ObjectState", "State", "TorchState", "run"]
