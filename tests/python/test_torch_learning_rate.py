# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""Learning rates that follow the batch of each step.

Usage: test_torch_learning_rate.py BASIND LIBBASIN [CLASS...]
"""

import contextlib
import math
from pathlib import Path
from typing import Any

from jobs import hear, make_events, message, require, say

require("numpy", "torch")
import torch  # noqa: E402 - ends above when there is none
from test_torch_samples import SamplesTest, loss_of, training  # noqa: E402
from torch_jobs import batch, main, model, session, sgd  # noqa: E402

BASE = 4  # Samples.


def rates_of_steps(optimizer: Any, rates: list[float]) -> None:
    """Notes the rate of each step, after the hooks before it."""
    optimizer.register_step_pre_hook(
        lambda optimizer, *_: rates.append(float(optimizer.param_groups[0]["lr"]))
    )


def scales(rank: int, rule: str, base: dict[str, int], is_tensor: bool) -> Any:
    """Rank r has 4 r samples in each step. Returns the rate of each step, and that after it."""
    rate = torch.tensor(0.1, dtype=torch.float64) if is_tensor else 0.1
    rates: list[float] = []
    after: list[float] = []
    with session() as bt:
        net = model()
        optimizer: Any = bt.DistributedOptimizer(
            torch.optim.SGD(net.parameters(), lr=rate, momentum=0.9),
            net.named_parameters(),
            op=bt.WeightedAverage,
            weight_by="samples",
            contributes="mean",
        )
        scaling = getattr(bt, rule)(optimizer, **base)
        before = scaling.factor()
        rates_of_steps(optimizer, rates)
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)
        for step in range(3):
            optimizer.zero_grad()
            # Rank 2 has none in the second step.
            optimizer.contribute(samples=0 if step == 1 and rank == 2 else 4 * rank)
            net(batch(rank, step)).square().mean().backward()
            optimizer.step()
            after.append(float(optimizer.param_groups[0]["lr"]))
            scheduler.step()
        return rates, after, before, [p.detach().clone() for p in net.parameters()]


def refused(rank: int) -> Any:
    with session() as bt:
        net = model()
        local = torch.optim.SGD(net.parameters(), lr=0.1)
        found = {
            "not reduced": message(
                "FailedPrecondition", lambda: bt.LinearScaling(local, base_batch=BASE)
            )
        }
        optimizer = sgd(net, bt)
        found["neither"] = message("InvalidArgument", bt.LinearScaling, optimizer)
        found["both"] = message(
            "InvalidArgument", lambda: bt.SqrtScaling(optimizer, base_batch=1, base_workers=1)
        )
        found["zero"] = message(
            "InvalidArgument", lambda: bt.LinearScaling(optimizer, base_batch=0)
        )
        same_parameters = torch.optim.SGD(net.parameters(), lr=0.1)
        found["another"] = message(
            "InvalidArgument", lambda: bt.LinearScaling(same_parameters, base_batch=BASE)
        )
        bt.LinearScaling(optimizer, base_batch=BASE)
        found["twice"] = message(
            "FailedPrecondition", lambda: bt.SqrtScaling(optimizer, base_batch=BASE)
        )
        net(batch(rank)).square().mean().backward()
        found["unknown"] = message("FailedPrecondition", optimizer.step)
        return found


def joins(rank: int, folder: str) -> Any:
    """Rank 2 joins in the middle; the rates of the steps since are the same on all, as are the
    parameters, also of the steps that the sampler makes."""
    go = Path(folder) / "go"
    if rank == 2:
        hear(go)
    with training(folder) as mine:
        rates: list[float] = []
        scheduler = torch.optim.lr_scheduler.StepLR(mine.optimizer, 1, gamma=0.999)
        mine.bt.LinearScaling(mine.optimizer, base_batch=BASE)
        rates_of_steps(mine.optimizer, rates)
        mine.sample("batches", scheduler=scheduler)
        state = mine.bt.State(
            mine.net, mine.optimizer, scheduler=scheduler, sampler=mine.sampler, end=10**6
        )
        while state.epoch < state.end:
            mine.sampler.set_epoch(state.epoch)
            for x, index in mine.loader(0):
                if rank == 0 and state.step == 2:
                    say(go)
                mine.zero()
                mine.in_gradients += index.tolist()
                loss_of(mine.call, x).backward()
                mine.optimizer.step()
                scheduler.step()
                state.step += 1
            state.epoch += 1
            if mine.owner.last_round().world_size == 3 and state.end == 10**6:
                state.end = state.epoch + 2
        return mine.parameters(), rates, float(scheduler.get_last_lr()[0])


class LearningRates(SamplesTest):
    def check_scales(self, rule: str, base: dict[str, int], factors: list[float]) -> None:
        for is_tensor in (False, True):
            with self.subTest(rule=rule, base=base, is_tensor=is_tensor):
                results = self.run_job(scales, rule, base, is_tensor)
                self.assert_same_bits([parameters for *_, parameters in results])
                for rates, after, before, _ in results:
                    self.assertEqual(1.0, before)
                    scheduled = [0.1, 0.05, 0.025]
                    for expected, got in zip(scheduled, after, strict=True):
                        self.assertAlmostEqual(expected, got, 15)
                    for expected, factor, got in zip(scheduled, factors, rates, strict=True):
                        self.assertAlmostEqual(expected * factor, got, 15)

    def test_linear_in_the_samples(self) -> None:
        self.check_scales("LinearScaling", {"base_batch": BASE}, [3, 1, 3])

    def test_square_root_of_the_samples(self) -> None:
        root = math.sqrt(3)
        self.check_scales("SqrtScaling", {"base_batch": BASE}, [root, 1, root])

    def test_linear_in_the_workers(self) -> None:
        self.check_scales("LinearScaling", {"base_workers": 2}, [1.5, 1.5, 1.5])

    def test_refusals(self) -> None:
        for found in self.run_job(refused):
            for name, text in {
                "not reduced": r"LinearScaling\(\) was given .* not reduced",
                "neither": "base_batch=None and base_workers=None. Give it one of them",
                "both": "base_batch=1 and base_workers=1. Give it one of them",
                "zero": "base_batch cannot be 0",
                "another": "another optimizer of the same parameters",
                "twice": "are scaled already",
                "unknown": r"samples of each step, .* round 1 .* contribute\(samples=",
            }.items():
                self.assertRegex(found[name], text)

    def test_a_joiner(self) -> None:
        with contextlib.ExitStack() as kept:
            folder = self.new_folder()
            make_events(folder, ["go"], kept)
            results = self.jobs.run(
                joins, 3, folder, BASIN_START_WORKERS="2", BASIN_MIN_WORKERS="1"
            )
        parameters, rates, scheduled = zip(*results)
        self.assert_same_bits(list(parameters))
        self.assertEqual(1, len(set(scheduled)))
        joined = len(rates[2])
        self.assertLess(joined, len(rates[0]))
        self.assertEqual(rates[0], rates[1])
        self.assertEqual(rates[0][-joined:], rates[2])


if __name__ == "__main__":
    main()
