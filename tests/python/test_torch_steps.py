# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""Steps of different workers: a round of workers that are at different steps is refused, and
closures run before the step.

Usage: test_torch_steps.py BASIND LIBBASIN
"""

from collections.abc import Callable
from typing import Any

from jobs import require

require("numpy", "torch")
import torch  # noqa: E402 - ends above when there is none
from torch_jobs import (  # noqa: E402
    TorchTest,
    expect,
    loss_of,
    main,
    model,
    session,
    take_step,
    trainer,
)

ODD = 2  # The worker that does something else.


class TwiceEvaluating(torch.optim.Optimizer):
    def __init__(self, parameters: Any) -> None:
        super().__init__(parameters, {})

    def step(self, closure: Any = None) -> Any:
        closure()
        return closure()


# ---- workers


def fail(_: torch.Tensor) -> None:
    raise torch.OutOfMemoryError("out of memory")


def out_of_step(rank: int, what: str) -> Any:
    """Two steps of all, with one of the ODD worker between them that differs. Returns the errors,
    and the steps of each round of this worker."""
    with trainer() as (_, net, optimizer):

        def train(step: int) -> None:
            take_step(net, optimizer, rank, step)

        train(0)
        texts = []
        if rank == ODD:
            hook = net[0].weight.register_hook(fail)
            optimizer.zero_grad()
            try:
                loss_of(net, rank, 1).backward()
            except torch.OutOfMemoryError:
                hook.remove()
            if what == "step":
                optimizer.step()  # As documented.
            elif what == "zero":
                optimizer.zero_grad()
                texts.append(expect("Mismatch", optimizer.step))
            elif what == "retry":
                optimizer.zero_grad()
                texts.append(expect("Mismatch", loss_of(net, rank, 1).backward))
                optimizer.step()
            else:  # "skip"
                optimizer.zero_grad()
        else:
            train(1)
        if what in ("step", "skip") or rank != ODD:
            optimizer.zero_grad()
            if what == "skip" and rank == ODD:
                texts.append(expect("Mismatch", loss_of(net, rank, 2).backward))
            else:
                loss_of(net, rank, 2).backward()
            optimizer.step()
        info = optimizer.last_round()
        return texts, info.contributors, info.spec.step


def skipped_by_all(rank: int) -> Any:
    """A step that all skip, and one that a worker without data takes part in."""
    with trainer() as (_, net, optimizer):
        for step in range(3):
            if step == 1:
                loss_of(net, rank, step).backward()
                optimizer.zero_grad()
                continue
            if step == 0 or rank != ODD:
                loss_of(net, rank, step).backward()
            optimizer.step()
            optimizer.zero_grad()
        return optimizer.last_round().contributors, optimizer.last_round().spec.step


def closure_of(net: Any, optimizer: Any, rank: int, step: int) -> Callable[[], torch.Tensor]:
    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = loss_of(net, rank, step)
        loss.backward()
        return loss

    return closure


def with_closures(rank: int, form: str) -> Any:
    with session() as bt:
        net = model()
        optimizer = torch.optim.Adam(net.parameters(), lr=0.1)
        call: Any = net
        if form == "model":
            call = bt.DistributedDataParallel(net)
        else:
            bt.DistributedOptimizer(optimizer, net.named_parameters())
        losses = []
        for step in range(3):
            closure = closure_of(call, optimizer, rank, step)
            with torch.no_grad():  # As some trainers do.
                loss = optimizer.step(closure) if step else optimizer.step(closure=closure)
            losses.append(loss.item())
        twice = TwiceEvaluating(net.parameters())
        text = expect("Unsupported", twice.step, closure_of(call, twice, rank, 0))
        after = [p.detach().clone() for p in net.parameters()]
        lbfgs = torch.optim.LBFGS(net.parameters())
        refused = expect("Unsupported", lbfgs.step, closure_of(call, lbfgs, rank, 0))
        owner: Any = optimizer if form == "optimizer" else call
        rounds = owner.totals().rounds
        return losses, after, (text, refused), rounds


# ---- tests


class Steps(TorchTest):
    def test_workers_at_different_steps_are_told_both_numbers(self) -> None:
        numbers = {"zero": (1, 2), "retry": (1, 2), "skip": (1, 2)}
        for what, (mine, theirs) in numbers.items():
            each = self.run_job(out_of_step, what)
            (text,) = each[ODD][0]
            self.assertRegex(
                text,
                rf"lane gradients, round 3: worker w2 is at step {mine}, but worker w0 is at step "
                rf"{theirs}",
            )
            for texts, contributors, step in each[:ODD]:
                self.assertEqual(([], ("w0", "w1"), 2), (texts, contributors, step))

    def test_a_step_after_a_failed_backward_is_that_of_all(self) -> None:
        for texts, contributors, step in self.run_job(out_of_step, "step"):
            self.assertEqual(([], ("w0", "w1", "w2"), 2), (texts, contributors, step))

    def test_a_step_that_all_skip_counts_for_nobody(self) -> None:
        for contributors, step in self.run_job(skipped_by_all):
            self.assertEqual((("w0", "w1", "w2"), 1), (contributors, step))

    def test_a_closure_runs_once_before_the_step(self) -> None:
        alone = model()
        other = torch.optim.Adam(alone.parameters(), lr=0.1)
        for step in range(3):
            other.zero_grad()
            torch.stack([loss_of(alone, rank, step) for rank in range(3)]).mean().backward()
            other.step()
        expected = [p.detach() for p in alone.parameters()]
        for form in ("optimizer", "model"):
            for losses, after, texts, rounds in self.run_job(with_closures, form):
                self.assertEqual(3, len(losses))
                self.assert_close(expected, after)
                self.assertIn("TwiceEvaluating evaluates its closure several times", texts[0])
                self.assertIn("LBFGS evaluates its closure several times", texts[1])
                self.assertEqual(4, rounds)


if __name__ == "__main__":
    main()
