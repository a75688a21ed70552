# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""Workers that join while nobody waits for them: State(catch_up=).

Usage: test_torch_catch_up.py BASIND LIBBASIN
"""

import logging
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

from jobs import hear, logged, message, say
from test_state import LateJoinersTest, hash_of, someone_has_joined
from torch_jobs import TorchTest, main, session

import torch  # isort: skip - torch_jobs ends the program when there is none
from torch import nn  # isort: skip
from torch.utils.data import DataLoader, Dataset  # isort: skip

LARGE = "/2"  # The end of the name of a value that a joiner loads.


class Indices(Dataset[int]):
    """Its items are their numbers."""

    def __init__(self, count: int) -> None:
        self._count = count

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> int:
        return index


class Training:
    """A training whose loop clips, and has a scheduler and an average of the parameters.

    joiner:  whose contributions are counted
    forgets: what this worker's function forgets to do
    samples: whether an elastic sampler gives the batches, of an epoch so long; 0: none does
    two:     whether two optimizers step its layers, for which one DistributedDataParallel reduces
    """

    def __init__(
        self, bt: Any, rank: int, joiner: str, *, most: int, forgets: str, samples: int, two: bool
    ) -> None:
        self.rank, self.joiner, self.forgets = rank, joiner, forgets
        torch.manual_seed(os.getpid())
        self.net = nn.Sequential(nn.Linear(5, 4000), nn.Tanh(), nn.Linear(4000, 3)).double()
        stepped = self.net[0].parameters() if two else self.net.parameters()
        self.optimizer: Any = torch.optim.AdamW(stepped, lr=0.01)
        self.second = torch.optim.SGD(self.net[2].parameters(), lr=0.1, momentum=0.5)
        if two:
            self.reducer: Any = bt.DistributedDataParallel(self.net, broadcast_buffers=False)
        else:
            bt.DistributedOptimizer(self.optimizer, self.net.named_parameters())
            self.reducer = self.optimizer
        self.optimizers = [self.optimizer, self.second] if two else [self.optimizer]
        self.scheduler = torch.optim.lr_scheduler.StepLR(self.optimizer, step_size=3, gamma=0.9)
        self.ema = torch.optim.swa_utils.AveragedModel(self.net)
        self.history: dict[int, Any] = {}
        self.caught_up = 0
        self.sampler: Any = None
        if samples > 0:
            self.sampler = bt.ElasticSampler(
                samples, self.optimizer, step=lambda: self.finish_step(self.state)
            )
        self.batches = self._batches()
        self.state: Any = bt.State(
            self.net,
            self.optimizer,
            scheduler=self.scheduler,
            sampler=self.sampler,
            ema=self.ema,
            full=0,
            catch_up=self._catch_up,
            catch_up_rounds=most,
            **({"second": self.second} if two else {}),
        )
        self.began = self.state.step - self.caught_up

    def _catch_up(self, state: Any) -> None:
        self.caught_up += 1
        self.finish_step(state, self.forgets)

    def finish_step(self, state: Any, forgets: str = "") -> None:
        if forgets != "clip":
            nn.utils.clip_grad_norm_(self.net.parameters(), 1e-3)
        for optimizer in self.optimizers:
            optimizer.step()
        self.scheduler.step()
        self.ema.update_parameters(self.net)
        # Everyone counts, so that all end with the same step.
        state.full += self.joiner in self.contributors()
        state.step += 1
        self.history[state.step] = self.describe()

    def step(self) -> None:
        batch = next(self.batches)  # In it, the sampler may make steps with the others.
        self.net.zero_grad()
        self.net(batch).square().mean().backward()
        self.finish_step(self.state)

    def _batches(self) -> Iterator[torch.Tensor]:
        while self.sampler is None:
            generator = torch.Generator().manual_seed(1000 * self.rank + self.state.step)
            yield torch.randn(4, 5, dtype=torch.float64, generator=generator)
        while True:
            self.sampler.set_epoch(self.state.epoch)
            data = Indices(self.sampler.samples.epoch.samples)
            for indices in DataLoader(data, batch_size=4, sampler=self.sampler):
                yield indices.double()[:, None] * torch.linspace(-1, 1, 5, dtype=torch.float64)
            self.state.epoch += 1

    def describe(self) -> Any:
        states = [each for one in self.optimizers for each in one.state_dict()["state"].values()]
        return (
            hash_of(self.net.parameters()),
            hash_of(self.ema.parameters()),
            hash_of(value for each in states for value in each.values()),
            self.optimizer.param_groups[0]["lr"],
        )

    def contributors(self) -> Any:
        return self.reducer.last_round().contributors


def held(rank: int, folder: str, case: str, members: int, most: int) -> Any:
    """The last rank joins, and a tensor that it loads is held until the others have trained on.

    case: "trains on", "samples" (from an elastic sampler), "two optimizers" (of one reduction), or
          what happens while it is held: "donor dies", "joiner dies", "is full"; or what its loop
          does: "forgets", "calls"
    """
    import basin.torch as bt
    from basin.torch import ahead
    from basin.torch.ahead import Ahead, Copies
    from basin.worker import Worker

    go, trained = Path(folder) / "go", Path(folder) / "trained"
    joins = rank == members
    get, may_begin, take_part = Worker.get, Ahead._may_begin, Ahead._take_part
    take, copy_all = ahead._bytes, Copies._copy
    kept: list[int] = []
    taken: list[int] = []  # What a member has of memory for copies, in bytes, and what it copies.

    def noted_take(size: int) -> Any:
        taken.append(size)
        return take(size)

    def noted_copy_all(self: Any) -> Any:
        copies = copy_all(self)
        taken.append(-sum(each.numel() for each in copies))
        return copies

    def held_get(self: Any, lane: str, tensor: Any, *more: Any) -> None:
        if tensor.name.endswith(LARGE):
            if case == "joiner dies":
                say(Path(folder) / "killed")
            hear(trained)
            if case == "joiner dies":
                os.kill(os.getpid(), signal.SIGKILL)
        get(self, lane, tensor, *more)

    def noted_may_begin(self: Any) -> bool:
        kept.append(len(self._results))
        if len(self._results) == most:
            say(trained)
        return may_begin(self)

    def noted_take_part(self: Any) -> None:
        try:
            take_part(self)
        except Exception:
            say(trained)
            raise

    if joins:
        hear(go)
    with (
        mock.patch.object(Worker, "get", held_get if joins else get),
        mock.patch.object(Ahead, "_may_begin", noted_may_begin),
        mock.patch.object(Ahead, "_take_part", noted_take_part),
        mock.patch.object(ahead, "_bytes", noted_take),
        mock.patch.object(Copies, "_copy", noted_copy_all),
        logged(logging.WARNING) as warnings,
    ):
        bt.init()
        forgets = "clip" if case == "forgets" and joins else ""
        samples = 120 if case == "samples" else 0
        two = case == "two optimizers"
        training = Training(
            bt, rank, f"w{members}", most=most, forgets=forgets, samples=samples, two=two
        )
        since = 0
        while training.state.full < 8:
            if training.state.step == 3 and rank == 1:
                say(go)
            if case == "calls" and since == 3 and not joins:
                bt.allreduce(torch.ones(1), "metric", op=bt.Sum)
            training.step()
            since += someone_has_joined()
            if case == "joiner dies" and since > 7 and bt.size() == members:
                break  # All see that after the same round.
            if since == 5 and rank == 0 and case == "donor dies":
                os.kill(os.getpid(), signal.SIGKILL)
            if since == 7 and rank == 1 and case not in ("is full", "calls"):
                say(trained)
        bt.barrier("end of test")
        bt.shutdown()
    return (
        training.began,
        training.history,
        training.caught_up,
        training.contributors(),
        (
            [each for each in warnings if "could not catch up" in each],
            max(kept, default=0),
            taken,
        ),
    )


def refused(rank: int, folder: str) -> Any:
    """What State(catch_up=) says where it could do nothing, each after words that it has."""
    with session() as bt:

        def said(kind: str, words: str, catch_up: Any, others: int = 0, **options: Any) -> Any:
            net = nn.Linear(2, 1)
            optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
            given = {"scaler": options.pop("scaler", None)}
            steps = options.pop("steps", None)
            lanes = len(bt.context.current().lanes)
            bt.DistributedOptimizer(optimizer, net.named_parameters(), **options)
            if steps is not None:
                given["sampler"] = bt.ElasticBatchSampler(8, optimizer, keep_global_batch=steps)
            # Each training of this process has one lane.
            del bt.context.current().lanes[: lanes - others]
            text = message(kind, bt.State, net, optimizer, catch_up=catch_up, **given)
            return words, text

        def function(state: Any) -> None: ...

        summed = {"op": bt.WeightedAverage, "weight_by": "samples", "contributes": "sum"}
        return [
            said("InvalidArgument", "catch_up cannot be 3", 3),
            said("InvalidArgument", "does not take that", lambda: None),
            said("Unsupported", "has 2 reductions of gradients", function, others=1),
            said("Unsupported", "One DistributedDataParallel() reduces", function, others=1),
            said("Unsupported", "check_parameters", function, check_parameters=5),
            said("Unsupported", "target_batch", function, target_batch=4, **summed),
            said("Unsupported", "keep_global_batch", function, steps=4),
            said("Unsupported", "scale of the scaler", function, scaler=bt.GradScaler()),
            said("Unsupported", "nothing reduces its gradients yet", function, others=-1),
        ]


class RoomTest(TorchTest):
    def test_no_two_copies_share_memory_and_what_has_no_place_has_its_own(self) -> None:
        from basin.torch.ahead import Room

        room = Room(1000)
        for _ in range(2):  # When it is closed, all of it is free again.
            room.close()
            first, second, third = (room.take(size) for size in (100, 600, 600))
            self.assertEqual([100, 600, 600], [each.numel() for each in (first, second, third)])
            self.assertEqual(128, second.data_ptr() - first.data_ptr())
            memory = [each.untyped_storage().data_ptr() for each in (first, second, third)]
            self.assertEqual(memory[0], memory[1])
            self.assertNotEqual(memory[0], memory[2])

    def test_it_touches_all_of_its_memory(self) -> None:
        from basin.torch.ahead import _TOUCHED_BYTES as SIZE

        self.assertEqual([SIZE, SIZE, SIZE, 5], self.touched(3 * SIZE + 5, needed_after=9))

    def test_it_touches_no_more_when_it_is_needed(self) -> None:
        """An older kernel makes pages only by writing to them, which would spoil a copy."""
        from basin.torch.ahead import _TOUCHED_BYTES as SIZE

        self.assertEqual([SIZE, SIZE], self.touched(3 * SIZE, needed_after=2))

    def touched(self, size: int, needed_after: int) -> list[int]:
        """How much a room of this size touches at a time, when it is needed after so many."""
        from basin.torch import ahead

        sizes: list[int] = []
        made = threading.Event()

        def touch(address: int, count: int) -> None:
            made.wait()
            sizes.append(count)
            room._is_needed = len(sizes) == needed_after

        with mock.patch.object(ahead.raw, "touch", touch):
            room = ahead.Room(size)
            made.set()
            room._thread.join()
        return sizes


class CatchUpTest(LateJoinersTest):
    def run_case(self, case: str, members: int = 2, most: int = 20, **options: Any) -> list[Any]:
        return self.run_job(
            held,
            members + 1,
            case,
            members,
            most,
            start=members,
            least=1 if options else members,
            most=members + 1,
            **options,
        )

    def assert_equal(self, outcomes: list[Any], *, only_last: bool = False) -> None:
        """All had the same values after each step."""
        ends = {max(history) for _, history, *_ in outcomes}
        self.assertEqual(1, len(ends), ends)
        (_, first, *_), *others = outcomes
        for _, history, *_ in others:
            for step, described in history.items():
                if not only_last or step in ends:
                    self.assertEqual(first[step], described, f"step {step}")

    def test_the_others_train_on_while_a_worker_loads(self) -> None:
        outcomes = self.run_case("trains on")
        self.assert_equal(outcomes)
        _, history, caught_up, contributors, (warnings, *_) = outcomes[2]
        self.assertGreaterEqual(caught_up, 4)
        self.assertEqual(("w0", "w1", "w2"), contributors)
        self.assertEqual([], warnings)
        self.assertGreaterEqual(min(history), 4)
        for *_, (_, _, (*rooms, copied)) in outcomes[:2]:
            self.assertLess(0, -copied)
            self.assertGreaterEqual(max(rooms), -copied, "no copy waits for memory of its own")

    def test_one_reduction_for_two_optimizers(self) -> None:
        outcomes = self.run_case("two optimizers")
        self.assert_equal(outcomes)
        _, _, caught_up, contributors, (warnings, *_) = outcomes[2]
        self.assertGreaterEqual(caught_up, 4)
        self.assertEqual(("w0", "w1", "w2"), contributors)
        self.assertEqual([], warnings)

    def test_the_samples_are_those_of_the_others_meanwhile(self) -> None:
        outcomes = self.run_case("samples")
        self.assert_equal(outcomes)
        _, _, caught_up, contributors, (warnings, *_) = outcomes[2]
        self.assertGreaterEqual(caught_up, 4)
        self.assertEqual(("w0", "w1", "w2"), contributors)
        self.assertEqual([], warnings)

    def test_what_could_never_catch_up_is_refused_at_the_start(self) -> None:
        (texts,) = self.run_job(refused, 1, start=1, least=1, most=1)
        for words, text in texts:
            self.assertIn(words, text)

    def test_the_donor_dies_meanwhile(self) -> None:
        gone, *outcomes = self.run_case("donor dies", 3, mortal=(0,))
        self.assertIsNone(gone)
        self.assert_equal(outcomes)
        self.assertGreaterEqual(outcomes[2][2], 4)
        self.assertEqual(("w1", "w2", "w3"), outcomes[2][3])

    def test_the_joiner_dies_meanwhile(self) -> None:
        *outcomes, gone = self.run_case("joiner dies", mortal=(2,))
        self.assertIsNone(gone)
        self.assert_equal(outcomes)
        self.assertEqual(("w0", "w1"), outcomes[0][3])

    def test_the_others_wait_when_it_has_no_memory_for_more(self) -> None:
        outcomes = self.run_case("is full", most=3)
        self.assert_equal(outcomes)
        self.assertGreaterEqual(outcomes[2][2], 3)
        self.assertEqual(3, outcomes[2][4][1])

    def test_a_function_that_does_something_else_is_noticed(self) -> None:
        outcomes = self.run_case("forgets")
        self.assert_equal(outcomes, only_last=True)
        (warning,) = outcomes[2][4][0]
        self.assertIn("its parameters before the step of round", warning)
        self.assertEqual(("w0", "w1", "w2"), outcomes[2][3])

    def test_a_call_of_the_others_makes_it_join_again(self) -> None:
        outcomes = self.run_case("calls")
        self.assert_equal(outcomes, only_last=True)
        (warning,) = outcomes[2][4][0]
        self.assertIn("collective call between two steps", warning)


if __name__ == "__main__":
    main()
