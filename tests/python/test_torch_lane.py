# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""Gradients of zeros, models that are converted while Basin holds their gradients, and errors while
a round is being sent.

Usage: test_torch_lane.py BASIND LIBBASIN
"""

import os
import sys
import unittest
from typing import Any
from unittest import mock

from jobs import require

require("numpy", "torch")
os.environ["BASIN_LIBRARY"] = sys.argv[2]  # For what is tested in this process.
import torch  # noqa: E402 - ends above when there is none
from torch import nn  # noqa: E402
from torch_jobs import (  # noqa: E402
    WORKERS,
    TorchTest,
    average,
    expect,
    gradients,
    local_gradients,
    loss_of,
    main,
    model,
    session,
    sgd,
    trainer,
)

# ---- workers


def zeros_between(rank: int) -> Any:
    """Between two rounds, rank 0 has a micro-batch whose gradients are zeros."""
    with trainer() as (_, net, optimizer):
        loss_of(net, rank, 0).backward()
        with optimizer.no_sync():
            (loss_of(net, rank, 1) * (0.0 if rank == 0 else 1.0)).backward()
        loss_of(net, rank, 2).backward()
        return gradients(net)


def zeros_by_hand(rank: int) -> Any:
    """Rank 0 accumulates zeros, and all call sync_gradients()."""
    with trainer() as (_, net, optimizer):
        loss_of(net, rank, 0).backward()
        with optimizer.no_sync():
            (loss_of(net, rank, 1) * (0.0 if rank == 0 else 1.0)).backward()
        text = expect("FailedPrecondition", optimizer.step)
        optimizer.sync_gradients()
        return text, gradients(net), optimizer.totals().rounds


def normalized() -> Any:
    torch.manual_seed(7)
    return nn.Sequential(nn.Linear(5, 8), nn.BatchNorm1d(8), nn.Linear(8, 3))


def converted_with_buffers(rank: int) -> Any:
    """A model with buffers that is converted between two steps, and back."""
    with session() as bt:
        net = normalized()
        wrapped = bt.DistributedDataParallel(net)
        seen = []
        for dtype in (torch.float32, torch.float64, torch.float32):
            net.to(dtype)
            wrapped.zero_grad()
            x = torch.full((4, 5), rank + 1.0, dtype=dtype) * torch.arange(1, 5).view(4, 1)
            wrapped(x).square().mean().backward()
            buffers = [buffer.clone() for buffer in net.buffers()]
            seen.append((gradients(net), buffers, float(net[1].running_mean.double().sum())))
        return seen


def converted_in_flight(rank: int) -> Any:
    """Rank 0 converts its model while the outcome of a round is unknown; later all workers do."""
    with session(round_timeout=0.0 if rank == 0 else None) as bt:
        net = model()
        optimizer = sgd(net, bt)
        if rank == 0:
            expect("OutcomeUnknown", loss_of(net, rank).backward)
            net.float()
            bt.context.current().timeout = None
            bt.barrier("converted")
            optimizer.wait_round()
        else:
            bt.barrier("converted")
            loss_of(net, rank).backward()
            net.float()
        return gradients(net)


def memory_replaced_in_flight(rank: int, by_hand: bool) -> Any:
    """Rank 0 replaces the memory of the gradients that it has sent, before the outcome."""
    with session(round_timeout=0.0 if rank == 0 else None) as bt:
        net = model()
        optimizer = sgd(net, bt)
        if rank == 0:
            lane = bt.context.current().lanes[0]
            if by_hand:
                with optimizer.no_sync():
                    loss_of(net, rank).backward()
                expect("OutcomeUnknown", optimizer.sync_gradients)
            else:
                expect("OutcomeUnknown", loss_of(net, rank).backward)
            sent = [lane.gradients.of(p).sent for p in net.parameters()]
            kept = {storage.data_ptr() for storage in lane.rounds._lent}
            assert kept == {gradient.data_ptr() for gradient in sent}
            for gradient in sent:
                gradient.data = torch.zeros(0, dtype=gradient.dtype)
            bt.context.current().timeout = None
            bt.barrier("replaced")
            optimizer.wait_round()
        else:
            bt.barrier("replaced")
            loss_of(net, rank).backward()
        return gradients(net)


def push_fails(rank: int, by_hand: bool) -> Any:
    """The second push of rank 0 fails: in sync_gradients(), or for what its last backward did not
    reach."""
    from basin.worker import Worker

    pushes = []
    push_many = Worker.push_many

    def failing_push(self: Any, *arguments: Any) -> None:
        pushes.append(arguments)
        if len(pushes) == 1:
            raise MemoryError("no room")
        push_many(self, *arguments)

    with trainer() as (_, net, optimizer):
        with optimizer.no_sync():
            loss_of(net, rank).backward()
        text = ""
        with mock.patch.object(Worker, "push_many", failing_push if rank == 0 else push_many):
            try:
                if by_hand:
                    optimizer.sync_gradients()
                else:
                    (0.0 * net[2].bias.sum()).backward()
            except MemoryError as error:
                text = str(error)
        result = gradients(net)
        contributors = optimizer.last_round().contributors
        optimizer.step()
        optimizer.zero_grad()
        loss_of(net, rank, 1).backward()
        return text, result, contributors, gradients(net)


def interrupted_between_lanes(rank: int, at: str) -> Any:
    """Ctrl-C reaches rank 0 while it commits the first of two lanes, or waits for it."""
    from basin.worker import Worker

    calls: list[Any] = []
    whole = getattr(Worker, at)

    def interrupted(self: Any, *arguments: Any) -> Any:
        calls.append(arguments)
        if len(calls) == 1:
            raise KeyboardInterrupt
        return whole(self, *arguments)

    with session(round_timeout=60.0) as bt:
        nets = model(), model()
        optimizers = [sgd(net, bt) for net in nets]
        loss = loss_of(nets[0], rank) + loss_of(nets[1], rank, 1)
        if bt.rank() != 0:
            loss.backward()
        else:
            with mock.patch.object(Worker, at, interrupted):
                try:
                    loss.backward()
                except KeyboardInterrupt:
                    calls.append("raised")
            hidden = [gradients(net) == [None] * 4 for net in nets]
            for optimizer in optimizers:
                optimizer.wait_round()
        contributors = [len(optimizer.last_round().contributors) for optimizer in optimizers]
        if bt.rank() == 0:
            return contributors, [gradients(net) for net in nets], calls[-1], hidden
        return contributors, [gradients(net) for net in nets]


def buffers_cannot_be_sent(rank: int) -> Any:
    """A buffer of rank 1 has no memory after its round has begun."""
    with session() as bt:
        net = normalized()
        wrapped = bt.DistributedDataParallel(net)
        x = torch.full((4, 5), rank + 1.0) * torch.arange(1, 5).view(4, 1)
        loss = wrapped(x).square().mean()
        text = ""
        if bt.rank() == 1:
            kept, net[1].running_mean = net[1].running_mean, torch.zeros(8, device="meta")
            text = expect("Unsupported", loss.backward)
            net[1].running_mean = kept
        else:
            loss.backward()
        contributors = len(wrapped.last_round().contributors)
        wrapped.zero_grad()
        wrapped(x).square().mean().backward()
        return bt.rank(), text, contributors, gradients(net), list(net.buffers())


# ---- checks


class DeliveredTest(unittest.TestCase):
    """Memory that .grad no longer has is not read, and the norm is then unknown."""

    def test_other_memory_without_a_new_version_is_not_the_result(self) -> None:
        from basin.torch.delivered import Delivered

        def replaced(gradient: torch.Tensor) -> None:
            gradient.data = torch.zeros(1)

        def halved(gradient: torch.Tensor) -> None:
            gradient.data = gradient.data.half()

        def resized(gradient: torch.Tensor) -> None:
            gradient.untyped_storage().resize_(0)

        for change in (replaced, halved, resized):
            with self.subTest(change.__name__):
                gradient = torch.ones(1 << 20)
                result = Delivered(gradient.numel(), gradient.element_size())
                result.put(gradient, gradient.data_ptr(), 2.0)
                self.assertEqual(2.0, result.norm_in(gradient))
                change(gradient)
                self.assertIsNone(result.norm_in(gradient))
                result.scale(gradient, 0.5)
                self.assertIsNone(result.norm_in(gradient))


class LaneTest(TorchTest):
    def test_an_interrupt_between_two_lanes_leaves_no_worker_waiting(self) -> None:
        for at, counted in (("commit", WORKERS - 1), ("wait", WORKERS)):
            with self.subTest(at):
                outcomes = self.run_job(interrupted_between_lanes, at)
                for contributors, *_ in outcomes:
                    self.assertEqual([counted, counted], contributors)
                for i in range(2):
                    self.assert_same_bits([result[i] for _, result, *_ in outcomes])
                (raised, hidden), *_ = (rest for _, _, *rest in outcomes if rest)
                self.assertEqual("raised", raised)
                if at == "wait":
                    self.assertEqual([True, True], hidden, "the library may read both")

    def test_zeros_of_a_micro_batch_are_no_zero_grad(self) -> None:
        between = [sum(local_gradients(rank, 1)[i] for rank in (1, 2)) / WORKERS for i in range(4)]
        expected = [sum(each) for each in zip(average(0), between, average(2))]
        outcomes = self.run_job(zeros_between)
        for result in outcomes:
            self.assert_close(expected, result)
        self.assert_same_bits(outcomes)

    def test_zeros_of_a_micro_batch_are_sent_by_hand(self) -> None:
        by_hand = [sum(local_gradients(rank, 1)[i] for rank in (1, 2)) / WORKERS for i in range(4)]
        expected = [sum(each) for each in zip(average(0), by_hand)]
        for text, result, rounds in self.run_job(zeros_by_hand):
            self.assertIn("step() of step 0 was called on a gradient of parameter 0.weight", text)
            self.assertEqual(2, rounds)
            self.assert_close(expected, result)

    def test_a_model_with_buffers_may_be_converted_between_steps(self) -> None:
        outcomes = self.run_job(converted_with_buffers)
        for step, dtype in enumerate((torch.float32, torch.float64, torch.float32)):
            of_step = [seen[step] for seen in outcomes]
            self.assertEqual({dtype}, {g.dtype for result, *_ in of_step for g in result})
            self.assert_same_bits([result for result, *_ in of_step])
            self.assert_same_bits([buffers for _, buffers, _ in of_step])
            self.assertEqual(1, len({mean for *_, mean in of_step}))

    def test_memory_that_was_sent_may_be_replaced_before_the_outcome(self) -> None:
        for by_hand in (False, True):
            with self.subTest(by_hand=by_hand):
                outcomes = self.run_job(memory_replaced_in_flight, by_hand)
                for result in outcomes:
                    self.assert_close(average(), result)
                self.assert_same_bits(outcomes)

    def test_a_result_is_of_the_dtype_that_its_parameter_has_now(self) -> None:
        expected = [each.float() for each in average()]
        for result in self.run_job(converted_in_flight):
            self.assert_close(expected, result, 1e-6)

    def test_what_cannot_be_pushed_is_withdrawn_and_the_others_go_on(self) -> None:
        for by_hand in (True, False):
            with self.subTest(by_hand=by_hand):
                outcomes = self.run_job(push_fails, by_hand)
                self.assertEqual(["no room", "", ""], [text for text, *_ in outcomes])
                for _, result, contributors, later in outcomes:
                    self.assertEqual(("w1", "w2"), contributors)
                    self.assert_close(average(0, (1, 2)), result)
                    self.assertEqual(4, len(later))
                self.assert_same_bits([later for *_, later in outcomes])

    def test_buffers_that_cannot_be_sent_withdraw_the_round(self) -> None:
        outcomes = self.run_job(buffers_cannot_be_sent)
        for rank, text, contributors, *_ in outcomes:
            self.assertEqual(WORKERS - 1, contributors)
            if rank == 1:
                self.assertRegex(text, "running_mean is on meta")
        self.assert_same_bits([result for *_, result, _ in outcomes])
        self.assert_same_bits([buffers for *_, buffers in outcomes])


if __name__ == "__main__":
    main()
