# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""Samplers whose epoch all workers share: each sample is used once, whichever workers come and go.

Usage: test_torch_samples.py BASIND LIBBASIN [CLASS...]
"""

import contextlib
import copy
import itertools
import json
import logging
import multiprocessing
import os
import signal
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from jobs import hear, logged, make_events, message, require, say

require("numpy", "torch")
import torch  # noqa: E402 - ends above when there is none
from torch.utils.data import (  # noqa: E402
    DataLoader,
    Dataset,
    DistributedSampler,
    IterableDataset,
    TensorDataset,
)
from torch_jobs import (  # noqa: E402
    WORKERS,
    TorchTest,
    commits_refused,
    main,
    model,
    session,
    wrap,
)

SAMPLES = 50  # Which no batch divides.
BATCH = 4
GLOBAL_BATCH = 12  # The last one of an epoch has 2.
HELD_OUT = 21  # For an evaluation.
NEVER = 10**6


def data(samples: int = SAMPLES) -> TensorDataset:
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(samples, 5, dtype=torch.float64, generator=generator)
    return TensorDataset(x, torch.arange(samples))


def loss_of(net: Any, x: torch.Tensor, contributes: str = "mean") -> torch.Tensor:
    losses: torch.Tensor = net(x).square().mean(1)
    return losses.mean() if contributes == "mean" else losses.sum()


class Training:
    """One worker, and a file of what each committed round has used of its samples.

    in_gradients: the samples whose gradients are in .grad and not committed
    on_round:     called with the facts of each round that has a result
    """

    def __init__(self, bt: Any, folder: str, contributes: str, way: str) -> None:
        self.bt = bt
        self.net = model()
        bt.broadcast_parameters(self.net)
        options: dict[str, Any] = {}
        if contributes == "sum":
            options = {"op": bt.WeightedAverage, "weight_by": "samples", "contributes": "sum"}
        self.call, self.optimizer, self.owner = wrap(bt, self.net, way, **options)
        self.me = bt.context.current().client.worker_id
        self.contributes = contributes
        self.in_gradients: list[int] = []
        self.data, self.batch, self.global_batch = data(), BATCH, GLOBAL_BATCH
        self._used = Path(folder) / f"used-{self.me}-{os.getpid()}"
        self.sampler: Any = None
        self.on_round: Callable[[Any], None] = lambda info: None

    def sample(self, kind: str, **options: Any) -> None:
        """Makes the sampler, and records what its rounds commit."""
        if kind == "batches":
            self.sampler = self.bt.ElasticBatchSampler(
                self.data, self.optimizer, self.batch, seed=3, **options
            )
        elif kind == "steps":
            self.sampler = self.bt.ElasticBatchSampler(
                self.data,
                self.optimizer,
                keep_global_batch=self.global_batch,
                seed=3,
                **options,
            )
        else:
            self.sampler = self.bt.ElasticSampler(self.data, self.optimizer, seed=3, **options)
        end_round = self.sampler.samples.end_round

        def recording(named: Any, counted: bool) -> None:
            end_round(named, counted)
            indices, self.in_gradients = self.in_gradients, []
            named_indices = self.sampler.indices(named)
            assert not counted or sorted(indices) == sorted(named_indices), (indices, named_indices)
            if counted:
                epoch, info = self.sampler.epoch, self.owner.last_round()
                with self._used.open("a") as file:
                    file.write(json.dumps([epoch, info.round, indices]) + "\n")
            self.on_round(self.owner.last_round())

        self.sampler.samples.end_round = recording

    def loader(self, processes: int, **options: Any) -> Any:
        options["num_workers"] = processes
        if isinstance(self.sampler, self.bt.ElasticBatchSampler):
            return DataLoader(self.data, batch_sampler=self.sampler, **options)
        return DataLoader(self.data, batch_size=self.batch, sampler=self.sampler, **options)

    def zero(self) -> None:
        self.optimizer.zero_grad()
        self.in_gradients = []

    def backward(self, batch: Any) -> None:
        x, index = batch
        self.in_gradients += index.tolist()
        loss_of(self.call, x, self.contributes).backward()

    def step(self, batch: Any) -> None:
        self.zero()
        self.backward(batch)
        self.optimizer.step()

    @property
    def rounds(self) -> int:
        info = self.owner.last_round()
        return 0 if info is None else int(info.round)

    def parameters(self) -> list[torch.Tensor]:
        return [p.detach().clone() for p in self.net.parameters()]


@contextlib.contextmanager
def training(
    folder: str, contributes: str = "mean", way: str = "optimizer", **options: Any
) -> Iterator[Training]:
    # A loader of this process may start its own.
    multiprocessing.current_process()._config["daemon"] = False  # type: ignore[attr-defined]
    with session(**options) as bt:
        yield Training(bt, folder, contributes, way)


# ---- workers


def epochs(rank: int, folder: str, kind: str, processes: int, persistent: bool) -> Any:
    with training(folder) as mine:
        mine.sample(kind)
        loader = mine.loader(processes, persistent_workers=persistent)
        reports = []
        for epoch in range(3):
            mine.sampler.set_epoch(epoch)
            for batch in loader:
                mine.step(batch)
            reports.append(mine.sampler.epoch_report())
        return mine.parameters(), reports


def evaluates(rank: int, folder: str, processes: int) -> Any:
    """A second loader, in the middle of an epoch for this worker alone, and after it for all."""
    with training(folder) as mine:
        mine.sample("batches")
        loader = mine.loader(processes, persistent_workers=processes > 0)
        held_out = data(HELD_OUT)
        part: Any = DistributedSampler(held_out, WORKERS, mine.bt.rank(), shuffle=False)
        second: Any = DataLoader(held_out, 2, sampler=part, num_workers=processes)
        losses = []
        for epoch in range(2):
            mine.sampler.set_epoch(epoch)
            for number, batch in enumerate(loader):
                mine.step(batch)
                if number == 0:
                    assert sum(len(index) for _, index in second) == HELD_OUT // WORKERS
            with torch.no_grad():
                own = torch.stack([loss_of(mine.net, x, "sum") for x, _ in second]).sum()
            losses.append(mine.bt.allreduce(own, name="held out", op=mine.bt.Sum))
        return mine.parameters(), losses


def skips(rank: int, folder: str) -> Any:
    """Rank 1 runs no backward of its second batch. Returns the samples of each round."""
    with training(folder) as mine:
        sampler = mine.bt.ElasticBatchSampler(data(), mine.optimizer, BATCH)
        rounds = []
        for number, (x, _) in enumerate(DataLoader(data(), batch_sampler=sampler)):
            if rank == 1 and number == 1:
                continue
            mine.zero()
            loss_of(mine.call, x).backward()
            mine.optimizer.step()
            rounds.append(mine.owner.last_round().spec.counts.samples)
        return rounds, sampler.epoch_report().committed


def dies(rank: int, folder: str, processes: int, place: str) -> Any:
    """Rank 2 is killed in its third step, with batches in the queue of its loader."""
    with training(folder, min_workers=1) as mine:
        mine.sample("batches")
        steps = 0

        def die(*_: Any) -> None:
            if rank == 2 and steps == 2:
                os.kill(os.getpid(), signal.SIGKILL)

        if place == "backward":
            mine.net[0].weight.register_hook(die)
        for epoch in range(2):
            mine.sampler.set_epoch(epoch)
            for batch in mine.loader(processes):
                if place == "loop":
                    die()
                mine.step(batch)
                steps += 1
        return mine.parameters()


def joins(rank: int, folder: str, processes: int) -> Any:
    """Rank 2 joins in the middle of the second epoch, with the number of the epoch from the
    others."""
    go = Path(folder) / "go"
    if rank == 2:
        hear(go)
    with training(folder) as mine:
        mine.sample("batches")
        state = mine.bt.broadcast_state(epoch=0, end=NEVER, sampler=mine.sampler)
        began = state.epoch
        while state.epoch < state.end:
            mine.sampler.set_epoch(state.epoch)
            for step, batch in enumerate(mine.loader(processes)):
                if rank == 0 and (state.epoch, step) == (1, 1):
                    say(go)
                mine.step(batch)
            state.epoch += 1
            if mine.bt.size() == 3 and state.end == NEVER:
                state.end = state.epoch + 2
        return mine.parameters(), began, state.end


def evicted(rank: int, folder: str, processes: int) -> Any:
    """Rank 2 is evicted with batches in the queue of its loader, and becomes a member again."""
    import basin
    from basin.torch import context

    with training(folder, min_workers=1) as mine:
        mine.sample("batches")
        state = mine.bt.broadcast_state(epoch=0, end=NEVER, sampler=mine.sampler)
        evictions = 0
        while state.epoch < state.end:
            mine.sampler.set_epoch(state.epoch)
            for batch in mine.loader(processes):
                if rank == 2 and mine.rounds == 2 and evictions == 0:
                    context.current().client.worker.abandon()
                try:
                    mine.step(batch)
                except basin.Evicted:
                    evictions += 1
                    mine.bt.rejoin()
                    mine.in_gradients = []  # The gradients are dropped.
            state.epoch += 1
            if context.current().client.place.donor_since != (0, 0) and state.end == NEVER:
                state.end = state.epoch + 1
        return mine.parameters(), evictions, state.end


def fails(rank: int, folder: str, processes: int, how: str) -> Any:
    """In its third step rank 1, or all, is not counted."""
    import basin

    with training(folder) as mine:
        mine.sample("samples")

        def hook(_: Any) -> None:
            if how == "backward" and rank == 1 and mine.rounds == 2:
                raise ZeroDivisionError

        mine.net[0].weight.register_hook(hook)
        failed = 0
        for batch in mine.loader(processes):
            refused = mine.rounds == 2 and how in ("withdrawn", "aborted", "dropped") and not failed
            refused = refused and (rank == 1 or how != "withdrawn")
            mine.zero()
            try:
                with commits_refused() if refused else contextlib.nullcontext():
                    mine.backward(batch)
            except (basin.Error, ZeroDivisionError):
                failed += 1
                if how == "aborted":
                    mine.optimizer.retry_round()
                elif how == "dropped":
                    mine.zero()
                    continue  # On all workers.
            mine.optimizer.step()
        return mine.parameters(), failed


def accumulates(rank: int, folder: str, processes: int) -> Any:
    """Rank 0 adds up three micro-batches in a step, the others two."""
    with training(folder, contributes="sum") as mine:
        mine.sample("batches")
        window = 3 if rank == 0 else 2
        for epoch in range(2):
            mine.sampler.set_epoch(epoch)
            for i, batch in enumerate(mine.loader(processes), 1):
                if i % window:
                    with mine.optimizer.no_sync():
                        mine.backward(batch)
                else:
                    mine.backward(batch)
                    mine.optimizer.step()
                    mine.zero()
        return mine.parameters()


def breaks_off(rank: int, folder: str, processes: int) -> Any:
    """A loop that ends after a step, one that ends before a backward, and the rest."""
    with training(folder) as mine:
        mine.sample("batches")
        loader = mine.loader(processes, persistent_workers=processes > 0)
        for batch in loader:
            mine.step(batch)
            if mine.rounds >= 2:
                break
        held_after_break = mine.sampler.samples._held
        for batch in loader:
            if mine.rounds >= 3:
                break
            mine.step(batch)
        mine.sampler.set_epoch(0)  # It may have ended, if the others had all that was left.
        for batch in loader:
            mine.step(batch)
        first = mine.sampler.epoch_report()
        # Another epoch of which all break off, and the one after it.
        for batch in loader:
            mine.step(batch)
            if mine.rounds >= first.rounds + 1:
                break
        mine.sampler.set_epoch(2)
        for batch in loader:
            mine.step(batch)
        return mine.parameters(), held_after_break, first


def saves(rank: int, folder: str) -> Any:
    with training(folder) as mine:
        mine.sample("batches")
        mine.sampler.set_epoch(5)
        for batch in mine.loader(0):
            mine.step(batch)
            if mine.rounds == 3:
                break
        return mine.parameters(), mine.sampler.state_dict()


def resumes(rank: int, folder: str, parameters: Any, state: Any) -> Any:
    with training(folder) as mine:
        with torch.no_grad():
            for p, value in zip(mine.net.parameters(), parameters):
                p.copy_(value)
        mine.sample("samples")
        mine.sampler.load_state_dict(state)
        left = len(mine.sampler)
        for _ in range(2):
            for batch in mine.loader(0):
                mine.step(batch)
        return mine.parameters(), left


def decaying(optimizer: Any) -> Any:
    return torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.99)


def steps(rank: int, folder: str, processes: int, epochs: int) -> Any:
    """In steps of a global batch, for so many epochs. With NEVER, ranks 4 to 7 join in the second
    one; after an epoch of all eight, rank 7 is killed in the middle of a step; after that epoch,
    ranks 3 to 6 leave."""
    import basin

    changes = epochs == NEVER
    if changes and rank >= 4:
        hear(Path(folder) / f"go{rank}")
    with training(folder) as mine:
        scheduler = decaying(mine.optimizer)
        mine.sample("steps", scheduler=scheduler)
        state = mine.bt.broadcast_state(
            epoch=0, eight=NEVER, end=epochs, scheduler=scheduler, sampler=mine.sampler
        )
        aborted = 0
        while state.epoch < state.end:
            if state.epoch == state.eight + 3 and rank >= 3:
                mine.bt.shutdown()
                return None
            mine.sampler.set_epoch(state.epoch)
            for step, batch in enumerate(mine.loader(processes)):
                if changes and (rank, state.epoch, step) == (0, 1, 1):
                    for joiner in range(4, 8):
                        say(Path(folder) / f"go{joiner}")
                if (rank, state.epoch, step) == (7, state.eight + 2, 1):
                    os.kill(os.getpid(), signal.SIGKILL)
                try:
                    mine.step(batch)
                except basin.RoundAborted:
                    aborted += 1
                    mine.in_gradients = []  # The gradients were dropped.
                    continue
                scheduler.step()
            state.epoch += 1
            if changes and state.eight == NEVER and mine.owner.last_round().world_size == 8:
                state.eight, state.end = state.epoch - 1, state.epoch + 4
        return mine.parameters(), state.end, scheduler.last_epoch, aborted


def resumes_steps(rank: int, folder: str, saved: Any) -> Any:
    """Saves in the middle of an epoch, or goes on from there."""
    with training(folder) as mine:
        mine.sample("steps")
        found = {}
        if saved is not None:
            other = mine.bt.ElasticBatchSampler(data(), mine.optimizer, BATCH, seed=3)
            found["other"] = message("InvalidArgument", other.load_state_dict, saved)
            mine.sample("steps")
            mine.sampler.load_state_dict(saved)
        for batch in mine.loader(0):
            mine.step(batch)
            if saved is None and mine.rounds == 2:
                break
        return mine.sampler.state_dict(), found


class Growing(Dataset[Any]):
    def __init__(self) -> None:
        self.length = 6

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> Any:
        return data()[index]


def refusals(rank: int, folder: str) -> Any:
    with training(folder) as mine:
        mine.sample("batches")
        sampler, bt, optimizer = mine.sampler, mine.bt, mine.optimizer
        state = sampler.state_dict()
        found = {
            "samples": message("InvalidArgument", sampler.load_state_dict, {**state, "samples": 9}),
            "seed": message("InvalidArgument", sampler.load_state_dict, {**state, "seed": 4}),
            "shuffle": message(
                "InvalidArgument", sampler.load_state_dict, {**state, "shuffle": False}
            ),
            "damaged": message(
                "InvalidArgument", sampler.load_state_dict, {**state, "committed": [[3, 99]]}
            ),
        }
        whole = dict(state)
        del whole["committed"]
        found["missing"] = message("InvalidArgument", sampler.load_state_dict, whole)
        other = bt.ElasticBatchSampler(data(), optimizer, BATCH, seed=4)
        kept, loading = (
            bt.State(mine.net, optimizer, sampler=each, start=False) for each in (other, sampler)
        )
        found["state"] = message("Mismatch", loading.load_state_dict, kept.state_dict())
        same = sampler.state_dict() == state
        grows = Growing()
        growing = bt.ElasticBatchSampler(grows, optimizer, 2)
        grows.length = 7
        found["length"] = message("InvalidArgument", iter, growing)
        single = bt.ElasticSampler(data(), optimizer)
        drops = DataLoader(data(), batch_size=BATCH, sampler=single, drop_last=True)
        found["drop_last"] = message("InvalidArgument", iter, drops)
        loader = DataLoader(data(), batch_size=4, sampler=single, num_workers=1, in_order=False)
        found["in_order"] = message("Unsupported", iter, loader)
        found["optimizer"] = message("InvalidArgument", bt.ElasticSampler, data(), mine.net)
        local = torch.optim.SGD(model().parameters(), lr=0.1)
        found["not reduced"] = message("FailedPrecondition", bt.ElasticSampler, data(), local)
        return found, same


def repeats(rank: int, folder: str) -> list[str]:
    with training(folder) as mine, logged(logging.WARNING) as lines:
        mine.sample("batches")
        for _ in range(3):
            mine.sampler.set_epoch(0)
            for batch in mine.loader(0):
                mine.step(batch)
        return lines


def resumes_at_the_end(rank: int, folder: str) -> Any:
    with training(folder) as mine, logged(logging.WARNING) as lines:
        mine.sample("batches")
        mine.sampler.load_state_dict({**mine.sampler.state_dict(), "committed": [[0, SAMPLES]]})
        epochs = []
        for _ in range(2):
            for batch in mine.loader(0):
                mine.step(batch)
                epochs.append(mine.sampler.epoch)
        return lines, epochs


def clips(rank: int, folder: str, says: bool) -> Any:
    with training(folder) as mine:
        parameters = list(mine.net.parameters())

        def step() -> None:
            torch.nn.utils.clip_grad_norm_(parameters, 1e-3)
            mine.optimizer.step()

        mine.sample("batches", step=step if says else None)
        refused = ""
        for batch in mine.loader(0):
            mine.zero()
            mine.backward(batch)
            refused = message("FailedPrecondition", step)
            if refused:
                break
        return mine.parameters(), refused, mine.rounds


class Stream(IterableDataset[Any]):
    """A shard, which the processes of its loader divide."""

    def __init__(self, begin: int, end: int) -> None:
        self._begin, self._end = begin, end

    def __iter__(self) -> Iterator[Any]:
        info = torch.utils.data.get_worker_info()
        first, each = (0, 1) if info is None else (info.id, info.num_workers)
        for i in range(self._begin + first, self._end, each):
            yield data()[i]


def shards(rank: int, folder: str, processes: int, dying: int) -> Any:
    """Shards of different sizes. Rank `dying` is killed in its second shard."""
    with training(folder, min_workers=1) as mine:
        ends = [0, 5, 6, 17, 25, 33, 41, 50]
        pieces = list(itertools.pairwise(ends))
        mine.sampler = mine.bt.elastic_shards(pieces, mine.optimizer, seed=1)
        read = []
        for _ in range(2):
            for count, piece in enumerate(mine.sampler):
                for step, batch in enumerate(
                    DataLoader(Stream(*piece), batch_size=3, num_workers=processes)
                ):
                    if (rank, count, step) == (dying, 1, 1):
                        os.kill(os.getpid(), signal.SIGKILL)
                    mine.step(batch)
                read.append((mine.sampler.epoch, piece))
        return mine.parameters(), read, message("FailedPrecondition", copy.copy, mine.sampler)


def plain(rank: int, folder: str) -> Any:
    """A loop over the sampler itself, and a model in place of an optimizer."""
    with training(folder, way="model") as mine:
        mine.sample("batches")
        x, index = data().tensors
        for indices in mine.sampler:
            mine.step((x[indices], index[indices]))
        return mine.parameters()


# ---- tests


class SamplesTest(TorchTest):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self._folder = folder.name
        self._folders = 0

    def new_folder(self) -> str:
        self._folders += 1
        folder = Path(self._folder) / str(self._folders)
        folder.mkdir()
        return str(folder)

    def used(self, *folders: str) -> list[tuple[int, int, list[int]]]:
        """What committed rounds have used: epoch, round, samples."""
        files = [each for folder in folders for each in Path(folder).glob("used-*")]
        return [json.loads(line) for file in files for line in file.read_text().splitlines()]

    def assert_each_once(
        self, used: Sequence[Any], epochs: Sequence[int], samples: int = SAMPLES
    ) -> None:
        seen = Counter((epoch, i) for epoch, _, indices in used for i in indices)
        self.assertEqual(Counter((epoch, i) for epoch in epochs for i in range(samples)), seen)

    def assert_as_one_process(
        self, parameters: list[Any], used: Sequence[Any], samples: int = SAMPLES
    ) -> None:
        """The parameters are those of one process with the same samples in each step."""
        by_round: dict[int, list[int]] = {}
        for _, number, indices in used:
            by_round.setdefault(number, []).extend(indices)
        net = model()
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        x, _ = data(samples).tensors
        for number in sorted(by_round):
            optimizer.zero_grad()
            if by_round[number]:
                loss_of(net, x[by_round[number]]).backward()
            optimizer.step()
        self.assert_close([p.detach() for p in net.parameters()], parameters, 1e-12)

    def assert_steps(
        self, folder: str, epochs: int, samples: int = SAMPLES, global_batch: int = GLOBAL_BATCH
    ) -> None:
        """Each committed round was of the next step of a fixed global batch, exactly."""
        by_round: dict[int, list[int]] = {}
        for _, number, indices in self.used(folder):
            by_round.setdefault(number, []).extend(indices)
        expected = []
        for epoch in range(epochs):
            generator = torch.Generator().manual_seed(3 + epoch)
            order = torch.randperm(samples, generator=generator).tolist()
            expected += [
                sorted(order[begin : begin + global_batch])
                for begin in range(0, samples, global_batch)
            ]
        self.assertEqual(expected, [sorted(by_round[number]) for number in sorted(by_round)])


def counts_steps(rank: int, folder: str) -> Any:
    with training(folder) as mine:
        mine.sample("samples")
        state = mine.bt.State(mine.net, mine.optimizer, sampler=mine.sampler)
        for epoch in range(2):
            mine.sampler.set_epoch(epoch)
            taken = 0
            for batch in mine.loader(0):
                mine.step(batch)
                state.step += 1
                taken += 1
        return state.step, mine.rounds, taken


class Epochs(SamplesTest):
    def check(self, kind: str, processes: int, persistent: bool = False) -> None:
        folder = self.new_folder()
        results = self.run_job(epochs, folder, kind, processes, persistent)
        parameters, reports = zip(*results)
        self.assert_same_bits(list(parameters))
        used = self.used(folder)
        self.assert_each_once(used, range(3))
        self.assert_as_one_process(parameters[0], used)
        for epoch in range(3):
            of_epoch = [each[epoch] for each in reports]
            self.assertEqual([SAMPLES] * WORKERS, [each.committed for each in of_epoch])
            self.assertEqual(SAMPLES, sum(each.mine for each in of_epoch))
            self.assertEqual(1, len({each.rounds for each in of_epoch}))

    def test_batches(self) -> None:
        self.check("batches", 0)

    def test_samples(self) -> None:
        self.check("samples", 0)

    def test_processes(self) -> None:
        self.check("batches", 2)

    def test_persistent_processes(self) -> None:
        self.check("samples", 2, persistent=True)

    def test_a_second_loader(self) -> None:
        for processes in (0, 2):
            with self.subTest(processes=processes):
                folder = self.new_folder()
                parameters, losses = zip(*self.run_job(evaluates, folder, processes))
                self.assert_same_bits(list(parameters))
                self.assert_each_once(self.used(folder), range(2))
                self.assert_same_bits(list(losses))
                net = model()
                for mine, of_job in zip(net.parameters(), parameters[0], strict=True):
                    mine.data = of_job
                whole = loss_of(net, data(HELD_OUT).tensors[0], "sum")
                torch.testing.assert_close(losses[0][-1], whole.detach())

    def test_plain_loop(self) -> None:
        folder = self.new_folder()
        parameters = self.run_job(plain, folder)
        self.assert_same_bits(parameters)
        self.assert_each_once(self.used(folder), [0])
        self.assert_as_one_process(parameters[0], self.used(folder))

    def test_shards(self) -> None:
        for processes in (0, 2):
            with self.subTest(processes=processes):
                results = self.run_job(shards, self.new_folder(), processes, -1)
                parameters, read, refused = zip(*results)
                self.assert_same_bits(list(parameters))
                counts = Counter(each for mine in read for each in mine)
                self.assertEqual({1}, set(counts.values()))
                self.assertEqual(2 * 7, len(counts))
                self.assertIn("cannot be pickled", refused[0])

    def test_accumulation(self) -> None:
        for processes in (0, 2):
            with self.subTest(processes=processes):
                folder = self.new_folder()
                parameters = self.run_job(accumulates, folder, processes)
                self.assert_same_bits(parameters)
                self.assert_each_once(self.used(folder), [0, 1])
                self.assert_as_one_process(parameters[0], self.used(folder))

    def test_state_counts_the_steps_that_the_sampler_makes(self) -> None:
        each = self.run_job(counts_steps, self.new_folder())
        self.assertEqual({rounds for _, rounds, _ in each}, {steps for steps, _, _ in each})
        self.assertEqual(1, len({steps for steps, _, _ in each}))
        # Which were made, because the batches of an epoch are too few for all.
        self.assertGreater(len({taken for _, _, taken in each}), 1)

    def test_break(self) -> None:
        for processes in (0, 2):
            with self.subTest(processes=processes):
                folder = self.new_folder()
                parameters, held, first = zip(*self.run_job(breaks_off, folder, processes))
                self.assert_same_bits(list(parameters))
                used = self.used(folder)
                self.assert_each_once([each for each in used if each[0] != 1], [0, 2])
                second = [i for epoch, _, indices in used if epoch == 1 for i in indices]
                self.assertEqual(len(second), len(set(second)))
                self.assertLess(len(second), SAMPLES)
                self.assert_as_one_process(parameters[0], used)
                self.assertEqual(([],) * WORKERS, held)
                self.assertEqual([SAMPLES] * WORKERS, [each.committed for each in first])
                self.assertLess(0, sum(each.returned for each in first))

    def test_checkpoint(self) -> None:
        before, after = self.new_folder(), self.new_folder()
        saved = self.run_job(saves, before)
        parameters, states = zip(*saved)
        self.assertEqual([states[0]] * WORKERS, list(states))
        self.assertEqual((5, SAMPLES), (states[0]["epoch"], states[0]["samples"]))
        resumed = self.jobs.run(resumes, 2, after, parameters[0], json.loads(json.dumps(states[0])))
        parameters, left = zip(*resumed)
        self.assert_same_bits(list(parameters))
        self.assertEqual((7, 7), left)  # Half of 50 - 3 * 3 * 4.
        self.assert_each_once(self.used(before, after), [5, 6])

    def test_refusals(self) -> None:
        for found, same in self.run_job(refusals, self.new_folder()):
            self.assertTrue(same)
            for name, text in {
                "samples": "samples=9, but .* samples=50. Nothing was loaded",
                "seed": "seed=4, but .* seed=3",
                "missing": "Worker w[0-2]: .* a state without committed, so",
                "state": "sampler of state_dict does not fit: Worker w[0-2]: .*=4, but .* seed=3",
                "shuffle": "shuffle=False, but .* shuffle=True",
                "damaged": "3 to 99, but the epoch has 50",
                "length": "had 6 samples when it was made, and has 7 now",
                "drop_last": "drop_last=False",
                "in_order": "in_order=True",
                "optimizer": "given a Sequential as its optimizer",
                "not reduced": "not reduced. Call DistributedOptimizer",
            }.items():
                self.assertRegex(found[name], text)

    def test_an_epoch_that_is_set_again_after_its_end(self) -> None:
        for lines in self.run_job(repeats, self.new_folder()):
            (line,) = [each for each in lines if "set_epoch(" in each]
            self.assertIn("calls set_epoch(0) after its loop has reached the end", line)

    def test_a_checkpoint_of_the_end_of_an_epoch(self) -> None:
        folder = self.new_folder()
        for lines, epochs in self.run_job(resumes_at_the_end, folder):
            self.assertEqual([], [each for each in lines if "has ended" in each])
            self.assertEqual({1}, set(epochs))
        self.assert_each_once(self.used(folder), [1])

    def test_clipping(self) -> None:
        for _, refused, _ in self.run_job(clips, self.new_folder(), False):
            self.assertIn("Give the sampler step=", refused)
        folder = self.new_folder()
        parameters, refused, _ = zip(*self.run_job(clips, folder, True))
        self.assertEqual(("",) * WORKERS, refused)
        self.assert_same_bits(list(parameters))
        self.assert_each_once(self.used(folder), [0])


class Faults(SamplesTest):
    def test_killed(self) -> None:
        for processes, place in ((0, "backward"), (2, "backward"), (2, "loop")):
            with self.subTest(processes=processes, place=place):
                folder = self.new_folder()
                parameters = self.jobs.run(dies, WORKERS, folder, processes, place, mortal=[2])
                self.assert_same_bits(parameters[:2])
                self.assert_each_once(self.used(folder), [0, 1])
                self.assert_as_one_process(parameters[0], self.used(folder))

    def test_killed_in_a_shard(self) -> None:
        results = self.jobs.run(shards, WORKERS, self.new_folder(), 0, 2, mortal=[2])
        parameters, read, _ = zip(*results[:2])
        self.assert_same_bits(list(parameters))
        counts = Counter(each for mine in read for each in mine)
        self.assertEqual({1}, set(counts.values()))
        self.assertGreaterEqual(len(counts), 2 * 7 - 1)  # Rank 2 may have completed one.

    def test_joiner(self) -> None:
        for processes in (0, 2):
            with self.subTest(processes=processes), contextlib.ExitStack() as kept:
                folder = self.new_folder()
                make_events(folder, ["go"], kept)
                results = self.jobs.run(
                    joins,
                    WORKERS,
                    folder,
                    processes,
                    BASIN_START_WORKERS="2",
                    BASIN_MIN_WORKERS="1",
                )
                parameters, began, ends = zip(*results)
                self.assert_same_bits(list(parameters))
                self.assertLessEqual(1, began[2])
                self.assertEqual(1, len(set(ends)))
                self.assert_each_once(self.used(folder), range(ends[0]))
                self.assert_as_one_process(parameters[0], self.used(folder))

    def test_evicted(self) -> None:
        for processes in (0, 2):
            with self.subTest(processes=processes):
                folder = self.new_folder()
                parameters, evictions, ends = zip(*self.run_job(evicted, folder, processes))
                self.assertEqual((0, 0, 1), evictions)
                self.assert_same_bits(list(parameters))
                self.assertEqual(1, len(set(ends)))
                self.assert_each_once(self.used(folder), range(ends[0]))

    def test_a_batch_without_a_backward_has_no_weight(self) -> None:
        for rounds, committed in self.run_job(skips, self.new_folder()):
            self.assertEqual([WORKERS * BATCH] * 3, rounds[:3])
            self.assertEqual(SAMPLES, committed, "it counts as used")

    def test_round_that_does_not_count(self) -> None:
        for processes, how, failures in (
            (0, "withdrawn", [0, 1, 0]),
            (2, "withdrawn", [0, 1, 0]),
            (0, "backward", [0, 1, 0]),
            (0, "aborted", [1, 1, 1]),
            (2, "dropped", [1, 1, 1]),
        ):
            with self.subTest(processes=processes, how=how):
                folder = self.new_folder()
                parameters, failed = zip(*self.run_job(fails, folder, processes, how))
                self.assertEqual(failures, list(failed))
                self.assert_same_bits(list(parameters))
                self.assert_each_once(self.used(folder), [0])
                self.assert_as_one_process(parameters[0], self.used(folder))


def keeps_a_step_local(rank: int, folder: str) -> Any:
    """Runs the backward of its first batch within no_sync(), and goes on without it."""
    with training(folder) as mine:
        mine.sample("steps")
        texts: list[str] = []
        for batch in mine.loader(0):
            mine.zero()
            if not texts:
                with mine.owner.no_sync():
                    texts.append(message("FailedPrecondition", mine.backward, batch))
                continue
            mine.step(batch)
        return texts, mine.sampler.epoch_report().committed


class Steps(SamplesTest):
    def run_steps(self, workers: int, processes: int, epochs: int, **options: Any) -> Any:
        folder = self.new_folder()
        with contextlib.ExitStack() as kept:
            make_events(folder, [f"go{rank}" for rank in range(4, 8)], kept)
            results = self.jobs.run(steps, workers, folder, processes, epochs, **options)
        ended = [each for each in results if each is not None]
        parameters, ends, made, _ = zip(*ended)
        self.assert_same_bits(list(parameters))
        self.assertEqual(1, len(set(ends)))
        self.assert_steps(folder, ends[0])
        self.assertEqual({5 * ends[0]}, set(made))
        return parameters[0], ends[0], ended

    def one_process(self, epochs: int) -> list[torch.Tensor]:
        net = model()
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        scheduler = decaying(optimizer)
        x, _ = data().tensors
        for epoch in range(epochs):
            generator = torch.Generator().manual_seed(3 + epoch)
            for indices in torch.randperm(SAMPLES, generator=generator).split(GLOBAL_BATCH):
                optimizer.zero_grad()
                loss_of(net, x[indices]).backward()
                optimizer.step()
                scheduler.step()
        return [p.detach() for p in net.parameters()]

    def assert_relative(self, expected: list[Any], got: list[Any]) -> None:
        for a, b in zip(expected, got, strict=True):
            self.assertLessEqual(float((a - b).norm() / a.norm()), 1e-6)

    def test_any_number_of_workers(self) -> None:
        for workers, processes in ((1, 0), (8, 0), (3, 2)):
            with self.subTest(workers=workers, processes=processes):
                parameters, _, _ = self.run_steps(workers, processes, 2)
                self.assert_relative(self.one_process(2), parameters)

    def check_changes(self, processes: int) -> None:
        parameters, epochs, ended = self.run_steps(
            8,
            processes,
            NEVER,
            mortal=[7],
            BASIN_START_WORKERS="4",
            BASIN_MIN_WORKERS="1",
        )
        self.assertEqual(3, len(ended))
        self.assertLessEqual(1, ended[0][3], "the kill has aborted a round")
        self.assert_relative(self.one_process(epochs), parameters)

    def test_a_backward_that_would_keep_a_step_local_is_refused(self) -> None:
        folder = self.new_folder()
        for (text,), committed in self.jobs.run(keeps_a_step_local, 2, folder):
            self.assertRegex(text, "within no_sync.* keep_global_batch=")
            self.assertEqual(SAMPLES, committed)

    def test_changes(self) -> None:
        self.check_changes(0)

    def test_changes_with_loader_processes(self) -> None:
        self.check_changes(2)

    def test_checkpoint(self) -> None:
        before, after = self.new_folder(), self.new_folder()
        state, _ = self.jobs.run(resumes_steps, 3, before, None)[0]
        self.assertEqual((GLOBAL_BATCH, [[0, 24]]), (state["global_batch"], state["committed"]))
        resumed = self.jobs.run(resumes_steps, 2, after, json.loads(json.dumps(state)))
        self.assertRegex(resumed[0][1]["other"], "keep_global_batch=12 in the middle of an epoch")
        self.assert_each_once(self.used(before, after), [0])


if __name__ == "__main__":
    main()
