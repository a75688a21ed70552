# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""torch's own gradient scalers, which init() instruments.

Usage: test_torch_scaler.py BASIND LIBBASIN
"""

import os
from typing import Any
from unittest import mock

from jobs import require

require("numpy", "torch")
import torch  # noqa: E402 - ends above when there is none
from torch import nn  # noqa: E402
from torch_jobs import (  # noqa: E402
    WORKERS,
    TorchTest,
    expect,
    loss_of,
    main,
    model,
    session,
    sgd,
)


def vector() -> nn.ParameterList:
    return nn.ParameterList([nn.Parameter(torch.zeros(7))])


# ---- workers


def scale_of_n(rank: int, backwards: int, divides: bool) -> Any:
    """A scale that is the number of workers, by which unscale_() divides; and a script that divides
    once more."""
    with session() as bt, mock.patch("basin.worker.logger.warning") as warn:
        net = model()
        optimizer = sgd(net, bt)
        scaler = torch.amp.GradScaler("cpu", init_scale=float(WORKERS))
        for step in range(2):
            optimizer.zero_grad()
            for _ in range(backwards):
                scaler.scale(loss_of(net, rank, step)).backward()
            if divides:
                scaler.unscale_(optimizer)
                for parameter in net.parameters():
                    assert parameter.grad is not None
                    parameter.grad.div_(WORKERS)
            scaler.step(optimizer)
            scaler.update()
        return [call.args[0] % call.args[1:] for call in warn.call_args_list]


def no_data_after_an_overflow(rank: int) -> Any:
    with session() as bt:
        net = vector()
        optimizer = sgd(net, bt)
        scaler = torch.amp.GradScaler("cpu", init_scale=16.0)
        for step, factor in enumerate((float("inf"), 1.0, 1.0)):
            optimizer.zero_grad()
            if step != 1 or rank == 0:
                scaler.scale((net[0] * factor).sum()).backward()
            scaler.step(optimizer)
            scaler.update()
        return net[0].detach(), scaler.get_scale(), optimizer.totals().rounds


def other_scales(rank: int) -> Any:
    import basin

    with session() as bt:
        net = vector()
        optimizer = sgd(net, bt)
        scaler = torch.amp.GradScaler("cpu", init_scale=512.0 if rank == 2 else 1024.0)
        text = ""
        try:
            scaler.scale(net[0].sum()).backward()
        except basin.Mismatch as error:
            text = str(error)
        return text, optimizer.last_round().contributors


def two_scalers(rank: int) -> Any:
    """A scaler for each of two optimizers; after the first one's loss the second one's is scaled,
    by another scale, and only then the backwards run."""
    with session() as bt:
        nets = [vector(), vector()]
        optimizers = [sgd(net, bt) for net in nets]
        scalers = [torch.amp.GradScaler("cpu", init_scale=scale) for scale in (1024.0, 64.0)]
        losses = [scaler.scale(net[0].sum()) for scaler, net in zip(scalers, nets)]
        for loss in losses:
            loss.backward()
        texts = [
            expect("FailedPrecondition", scalers[0].unscale_, optimizers[0]),
            expect("FailedPrecondition", scalers[0].step, optimizers[0]),
        ]
        untouched = nets[0][0].tolist()
        scalers[1].step(optimizers[1])
        scalers[1].update()
        optimizers[0].zero_grad()
        # Each scaler scales right before its backward.
        for scaler, net, optimizer in zip(scalers, nets, optimizers):
            optimizer.zero_grad()
            scaler.scale(net[0].sum()).backward()
        for scaler, optimizer in zip(scalers, optimizers):
            scaler.unscale_(optimizer)
            scaler.step(optimizer)
            scaler.update()
        return texts, untouched, [net[0].tolist() for net in nets]


def no_data_at_first(rank: int, unscales: bool) -> Any:
    """Only the first worker has data in the first step."""
    with session() as bt:
        net = vector()
        optimizer = sgd(net, bt)
        scaler = torch.amp.GradScaler("cpu", init_scale=16.0)
        for step in range(2):
            optimizer.zero_grad()
            if step > 0 or rank == 0:
                scaler.scale(net[0].sum()).backward()
            if unscales:
                scaler.unscale_(optimizer)
            scaler.step(optimizer)
            scaler.update()
        return net[0].detach(), scaler.get_scale(), optimizer.totals().rounds


def as_torchs(rank: int) -> Any:
    """Arguments of torch.amp.GradScaler."""
    with session() as bt:
        scales = [
            scaler.get_scale()
            for scaler in (
                bt.GradScaler(),
                bt.GradScaler("cpu"),
                bt.GradScaler("cpu", 8.0),
                bt.GradScaler(torch.device("cpu"), init_scale=4.0),
                bt.GradScaler(device="cpu", init_scale=2.0, growth_interval=3),
                bt.GradScaler(enabled=False),
            )
        ]
        first = expect("InvalidArgument", bt.GradScaler, 1024.0)
        return scales, first, expect("Unsupported", bt.GradScaler, "meta")


def fused(rank: int) -> Any:
    """A fused optimizer unscales by itself. Windows are of two; the last worker's is short, and in
    the second step another one has an infinity."""
    with session() as bt:
        net = vector()
        optimizer = bt.DistributedOptimizer(
            torch.optim.SGD(net.parameters(), lr=0.1, fused=True),
            net.named_parameters(),
            backward_passes_per_step=2,
        )
        scaler = torch.amp.GradScaler("cpu", init_scale=64.0, growth_interval=100)
        seen = []
        for step in range(3):
            optimizer.zero_grad()
            for _ in range(1 if rank == WORKERS - 1 else 2):
                value = float("inf") if step == 1 and rank == 0 else 3.0
                scaler.scale((value * net[0]).sum()).backward()
            scaler.step(optimizer)
            scaler.update()
            seen.append((net[0].tolist(), scaler.get_scale()))
        return seen


def after_shutdown(rank: int) -> Any:
    before = [getattr(torch.amp.GradScaler, name) for name in ("scale", "unscale_", "step")]
    with session():
        within = [getattr(torch.amp.GradScaler, name) for name in ("scale", "unscale_", "step")]
    after = [getattr(torch.amp.GradScaler, name) for name in ("scale", "unscale_", "step")]
    return before == after, any(a is b for a, b in zip(before, within))


def after_fork(rank: int) -> Any:
    with session() as bt:
        net = vector()
        sgd(net, bt)
        child = os.fork()
        if child == 0:
            # The job belongs to the parent, so the child's scaler reports nothing to it.
            alone = vector()
            scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
            optimizer = torch.optim.SGD(alone.parameters(), lr=1.0)
            scaler.scale(alone[0].sum()).backward()
            scaler.step(optimizer)
            os._exit(0 if alone[0].tolist() == [-1.0] * 7 else 1)
        return os.waitpid(child, 0)[1]


# ---- checks


class ScalerTest(TorchTest):
    def test_a_worker_without_data_takes_part_after_an_overflow(self) -> None:
        for parameter, scale, rounds in self.run_job(no_data_after_an_overflow):
            expected = torch.full((7,), -0.1 / WORKERS - 0.1)
            self.assertLess(float((parameter - expected).abs().max()), 1e-6)
            self.assertEqual((8.0, 3), (scale, rounds))

    def test_criterion_1_4_a_scale_of_n_is_no_division_by_the_workers(self) -> None:
        for backwards in (1, 2):
            for told in self.run_job(scale_of_n, backwards, False):
                self.assertEqual([], told)
        for told in self.run_job(scale_of_n, 1, True):
            self.assertEqual(1, len(told))
            self.assertIn("divided again", told[0])

    def test_criterion_5_3_scales_of_torchs_own_scaler_are_compared(self) -> None:
        *others, (text, _) = self.run_job(other_scales)
        self.assertIn("loss scale 512 against 1024", text)
        self.assertEqual([("", ("w0", "w1"))] * 2, others)

    def test_criterion_5_3_the_scale_of_another_scaler_is_refused(self) -> None:
        for texts, untouched, parameters in self.run_job(two_scalers):
            for text, call in zip(texts, ("unscale_", "step")):
                self.assertIn(
                    f"{call}() of step 0 was called on a gradient scaler whose scale is 1024", text
                )
                self.assertIn("lane gradients were sent as scaled by 64", text)
                self.assertIn("Use one scaler for all optimizers", text)
            self.assertEqual([0.0] * 7, untouched)
            for got, expected in zip(parameters, (-0.1, -0.2)):
                for each in got:
                    self.assertAlmostEqual(expected, each, delta=1e-6)

    def test_a_worker_without_data_in_the_first_step_takes_part(self) -> None:
        expected = torch.full((7,), -0.1 / WORKERS - 0.1)
        for unscales in (False, True):
            for parameter, scale, rounds in self.run_job(no_data_at_first, unscales):
                self.assertLess(float((parameter - expected).abs().max()), 1e-6)
                self.assertEqual((16.0, 2), (scale, rounds))

    def test_arguments_are_those_of_torchs_scaler(self) -> None:
        for scales, first, meta in self.run_job(as_torchs):
            self.assertEqual([65536.0, 65536.0, 8.0, 4.0, 2.0, 1.0], scales)
            self.assertIn("Use GradScaler(init_scale=1024.0)", first)
            self.assertIn('Use GradScaler("cpu")', meta)

    def test_criterion_3_8_a_fused_optimizer_leaves_out_the_same_steps(self) -> None:
        outcomes = self.run_job(fused)
        # Windows of 2, 2 and 1 backwards of 3 each.
        step = -0.1 * 3 * 5 / WORKERS
        expected = [(step, 64.0), (step, 32.0), (2 * step, 32.0)]
        for (weights, scale), (weight, of_scale) in zip(outcomes[0], expected):
            self.assertEqual(of_scale, scale)
            for each in weights:
                self.assertAlmostEqual(weight, each, delta=1e-6)
        for each in outcomes[1:]:
            self.assertEqual(outcomes[0], each)

    def test_scalers_are_torchs_again_after_shutdown(self) -> None:
        self.assertEqual([(True, False)] * WORKERS, self.run_job(after_shutdown))

    def test_a_child_after_fork_scales_alone(self) -> None:
        self.assertEqual([0] * WORKERS, self.run_job(after_fork))


if __name__ == "__main__":
    main()
