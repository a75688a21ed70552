# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""basin.torch against a real aggregator, and against the arithmetic of one process.

Usage: test_torch.py BASIND LIBBASIN
"""

import copy
import os
import tempfile
from pathlib import Path
from typing import Any

from jobs import require

require("numpy", "torch")
import torch  # noqa: E402 - ends above when there is none
from torch import nn  # noqa: E402
from torch_jobs import (  # noqa: E402
    WORKERS,
    TorchTest,
    average,
    batch,
    commits_refused,
    expect,
    gradients,
    local_gradients,
    loss_of,
    main,
    model,
    session,
    sgd,
    take_step,
    trainer,
)

# ---- workers


def one_backward(rank: int) -> Any:
    with trainer() as (_, net, optimizer):
        loss_of(net, rank).backward()
        return gradients(net), optimizer.last_round().contributors


def training(rank: int) -> Any:
    with session() as bt:
        net = model()
        optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
        scheduler_first = torch.optim.lr_scheduler.StepLR
        optimizer = bt.DistributedOptimizer(optimizer, net.named_parameters())
        scheduler = scheduler_first(optimizer, step_size=3, gamma=0.5)
        for step in range(10):
            # Uses both ways to clear gradients.
            optimizer.zero_grad(set_to_none=step % 2 == 0)
            loss_of(net, rank, step).backward()
            nn.utils.clip_grad_norm_(net.parameters(), 0.05)
            optimizer.step()
            scheduler.step()
        return [p.detach() for p in net.parameters()], scheduler.get_last_lr()


def two_backwards(rank: int, op: str) -> Any:
    with session() as bt:
        net = model()
        optimizer = sgd(net, bt, op=getattr(bt, op))
        loss_of(net, rank, 0).backward()
        loss_of(net, rank, 1).backward()
        result = gradients(net)
        optimizer.step()
        optimizer.zero_grad()
        loss_of(net, rank, 2).backward()
        return result, gradients(net)


def micro_batches(rank: int) -> Any:
    with trainer() as (_, net, optimizer):
        with optimizer.no_sync():
            loss_of(net, rank, 0).backward()
            local = gradients(net)
            loss_of(net, rank, 1).backward()
        loss_of(net, rank, 2).backward()
        result = gradients(net)
        optimizer.step()
        optimizer.zero_grad()
        # The last backward does not reach all accumulated parameters.
        with optimizer.no_sync():
            loss_of(net, rank, 3).backward()
        net[2].bias.sum().backward()
        rest = gradients(net)
        # All backwards are under no_sync: step() must not apply the local gradient.
        optimizer.zero_grad()
        with optimizer.no_sync():
            loss_of(net, rank, 4).backward()
        optimizer.last_round()
        text = expect("FailedPrecondition", optimizer.step)
        return local, result, rest, text


def skipped_parameters(rank: int) -> Any:
    with session() as bt:
        net = nn.ModuleDict({name: nn.Linear(2, 1, bias=False) for name in "abc"}).double()
        for p in net.parameters():
            nn.init.constant_(p, 1.0)
        optimizer = sgd(net, bt)
        x = torch.full((1, 2), rank + 1.0, dtype=torch.float64)
        # All reach a, only rank 1 reaches b, and no worker reaches c.
        loss = net["a"](x).sum() + (net["b"](x).sum() if rank == 1 else 0.0)
        loss.backward()
        first = gradients(net)
        optimizer.step()
        return first, [p.detach() for p in net.parameters()]


def failing_backward(rank: int) -> Any:
    class Fails(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            return x.clone()

        @staticmethod
        def backward(ctx: Any, *gradient: Any) -> Any:
            raise RuntimeError("a bad batch")

    with trainer() as (_, net, optimizer):
        text = ""
        if rank == 2:
            # The second layer's gradients are pushed before the first layer fails.
            hidden = Fails.apply(net[0](batch(rank)))
            try:
                net[2](net[1](hidden)).square().mean().backward()
            except RuntimeError as error:
                text = str(error)
        else:
            loss_of(net, rank).backward()
        result = gradients(net)
        contributors = optimizer.last_round().contributors
        optimizer.step()
        optimizer.zero_grad()
        loss_of(net, rank, 1).backward()
        return text, result, contributors, [p.detach() for p in net.parameters()], gradients(net)


def retried(rank: int) -> Any:
    """No commit is accepted, so the round is aborted with complete gradients."""
    with trainer() as (_, net, optimizer):
        with commits_refused():
            aborted = expect("RoundAborted", loss_of(net, rank).backward)
        local = gradients(net)
        text = expect("FailedPrecondition", optimizer.step)
        optimizer.retry_round()
        result = gradients(net)
        optimizer.step()
        return aborted, local, text, result


def aborted_midway(rank: int, folder: str) -> Any:
    """The reduction of the last layer aborts the round, and the backward of one worker reaches the
    first layer after it has learned that."""
    with session() as bt:
        torch.manual_seed(7)
        first = nn.Linear(5, 4)
        # The last layer is larger than a batch of gradients, so it is sent at once.
        net = nn.Sequential(first, nn.Linear(4, 20000))
        alone = copy.deepcopy(net)
        optimizer = sgd(net, bt, postscale_factor=1e300)
        known = Path(folder) / "known"  # This is a FIFO.

        def wait(_: torch.Tensor) -> None:
            known.read_bytes()

        if rank == 0:
            first.weight.register_hook(wait)
        inputs = batch(rank).float()
        texts = [expect("RoundAborted", net(inputs).square().mean().backward)]
        if rank == 1:
            known.write_bytes(b"")
        local = gradients(net)
        texts.append(expect("RoundAborted", optimizer.retry_round))
        alone(inputs).square().mean().backward()
        return texts, local, gradients(alone)


def half_a_backward(rank: int, way: str) -> Any:
    """Every backward fails midway, so the round is aborted and a partial gradient is left."""
    with session() as bt:
        net = model()
        wrapped = bt.DistributedDataParallel(net) if way == "model" else net
        optimizer: Any = torch.optim.SGD(net.parameters(), lr=0.1)
        if way == "optimizer":
            optimizer = bt.DistributedOptimizer(optimizer, net.named_parameters())
        lane = wrapped if way == "model" else optimizer
        hidden = net[:2](batch(rank))
        hidden.register_hook(fail)
        try:
            net[2](hidden).square().mean().backward()
            raise AssertionError("the backward did not fail")
        except ZeroDivisionError:
            pass
        left = [g is None for g in gradients(net)]
        backward = loss_of(wrapped, rank).backward
        calls = (lane.retry_round, lane.sync_gradients, optimizer.step, backward)
        texts = [expect("FailedPrecondition", call) for call in calls]
        optimizer.zero_grad()
        nothing = expect("FailedPrecondition", lane.retry_round)
        loss_of(wrapped, rank).backward()
        result = gradients(net)
        optimizer.step()
        return left, texts, nothing, result, lane.last_round().spec.counts.micro_batches


def fail(_: torch.Tensor) -> torch.Tensor:
    raise ZeroDivisionError


def steps_without_backward(rank: int) -> Any:
    with trainer() as (_, net, optimizer):
        if rank == 0:
            loss_of(net, rank).backward()
        optimizer.step()
        after_one = [p.detach().clone() for p in net.parameters()]
        optimizer.zero_grad()
        optimizer.step()  # No worker contributes.
        return after_one, [p.detach() for p in net.parameters()], gradients(net)


def nested_backward(rank: int) -> Any:
    from torch.utils.checkpoint import checkpoint

    with session() as bt:
        net = model()
        sgd(net, bt)
        # Reentrant checkpointing runs a backward within the backward.
        x = batch(rank).requires_grad_()
        hidden: Any = checkpoint(net[:2], x, use_reentrant=True)
        net[2](hidden).square().mean().backward()
        once = gradients(net)
        return once


def gan(rank: int) -> Any:
    with session() as bt:
        torch.manual_seed(3)
        generator = nn.Linear(5, 5).double()
        critic = nn.Linear(5, 1).double()
        of_generator = sgd(generator, bt)
        of_critic = sgd(critic, bt)
        for step in range(4):
            x = batch(rank, step)
            of_critic.zero_grad(set_to_none=step % 2 == 0)
            (critic(generator(x).detach()).mean() - critic(x).mean()).backward()
            of_critic.step()
            of_generator.zero_grad()
            with of_critic.no_sync():
                (-critic(generator(x)).mean()).backward()
            of_generator.step()
        rounds = [each.last_round().round for each in (of_generator, of_critic)]
        return [p.detach() for net in (generator, critic) for p in net.parameters()], rounds


def gan_alone() -> list[torch.Tensor]:
    torch.manual_seed(3)
    generator = nn.Linear(5, 5).double()
    critic = nn.Linear(5, 1).double()
    of_generator = torch.optim.SGD(generator.parameters(), lr=0.1)
    of_critic = torch.optim.SGD(critic.parameters(), lr=0.1)
    for step in range(4):
        x = torch.cat([batch(rank, step) for rank in range(WORKERS)])
        of_critic.zero_grad()
        (critic(generator(x).detach()).mean() - critic(x).mean()).backward()
        of_critic.step()
        of_generator.zero_grad()
        (-critic(generator(x)).mean()).backward()
        of_generator.step()
    return [p.detach() for net in (generator, critic) for p in net.parameters()]


def channels_last(rank: int) -> Any:
    with session() as bt:
        torch.manual_seed(1)
        net = nn.Conv2d(3, 4, 3).double().to(memory_format=torch.channels_last)  # type: ignore
        sgd(net, bt)
        x = torch.arange(2 * 3 * 5 * 5, dtype=torch.float64).reshape(2, 3, 5, 5) * (rank + 1)
        net(x.to(memory_format=torch.channels_last)).sum().backward()
        gradient = net.weight.grad
        assert gradient is not None
        same_strides = gradient.stride() == net.weight.stride()
        alone = nn.Conv2d(3, 4, 3).double()
        alone(2 * x / (rank + 1)).sum().backward()  # The average of 1, 2 and 3 times.
        expected = alone.weight.grad
        assert expected is not None
        return same_strides, bool(torch.equal(gradient.contiguous(), expected))


def lazy_and_frozen(rank: int) -> Any:
    with session() as bt:
        torch.manual_seed(5)
        net = nn.Sequential(nn.LazyLinear(4), nn.Linear(4, 2))
        net[1].requires_grad_(False)
        optimizer = sgd(net, bt)
        x = torch.full((1, 3), rank + 1.0)
        net(x).sum().backward()
        first = gradients(net)
        optimizer.step()
        optimizer.zero_grad()
        net[1].requires_grad_(True)
        net(x).sum().backward()
        return first, gradients(net)


def scaler(rank: int) -> Any:
    with session() as bt:
        net = nn.Linear(2, 1, bias=False)
        nn.init.ones_(net.weight)
        optimizer = sgd(net, bt)
        grad_scaler = torch.amp.GradScaler("cpu", init_scale=4.0, growth_interval=100)
        weights = []
        for step in range(3):
            optimizer.zero_grad()
            x = torch.full((1, 2), rank + 1.0)
            if step == 1 and rank == 2:
                x *= torch.inf
            grad_scaler.scale(net(x).sum()).backward()
            grad_scaler.unscale_(optimizer)
            grad_scaler.step(optimizer)
            grad_scaler.update()
            weights.append(net.weight.detach().clone())
        nonfinite = grad_scaler.get_scale()
        return weights, nonfinite


def narrow_wire(rank: int, dtype: torch.dtype, scale: float) -> Any:
    with session() as bt:
        net = nn.Linear(64, 1, bias=False)
        optimizer = sgd(net, bt, wire_dtype=dtype)
        generator = torch.Generator().manual_seed(rank)
        x = torch.randn(1, 64, generator=generator) * scale
        net(x).sum().backward()
        assert net.weight.grad is not None
        return net.weight.grad, x, optimizer.totals().bytes_pushed


def after_fork(rank: int) -> Any:
    with trainer() as (_, net, optimizer):
        child = os.fork()
        if child == 0:
            # Basin does nothing: the gradient is the child's own.
            loss_of(net, rank).backward()
            mine = zip(gradients(net), local_gradients(rank))
            optimizer.step()
            os._exit(7 if all(torch.equal(a, b) for a, b in mine) else 1)
        _, status = os.waitpid(child, 0)
        loss_of(net, rank).backward()
        return os.waitstatus_to_exitcode(status), gradients(net)


def compiled(rank: int) -> Any:
    with session() as bt:
        net = model()
        sgd(net, bt)
        fast = torch.compile(net, backend="aot_eager")
        loss_of(fast, rank).backward()
        return gradients(net)


def outcome_unknown(rank: int) -> Any:
    with session(round_timeout=0.0 if rank == 0 else None) as bt:
        net = model()
        optimizer = sgd(net, bt)
        texts = []
        if rank == 0:
            # The others begin after this worker's deadline has passed.
            texts.append(expect("OutcomeUnknown", loss_of(net, rank).backward))
            out_of_reach = all(p.grad is None for p in net.parameters())
            texts.append(expect("FailedPrecondition", optimizer.step))
            texts.append(expect("FailedPrecondition", loss_of(net, rank).backward))
            texts.append(expect("FailedPrecondition", bt.finished))
            bt.context.current().timeout = None
            bt.barrier("seen")
            optimizer.wait_round()
        else:
            bt.barrier("seen")
            loss_of(net, rank).backward()
            out_of_reach = True
        return texts, out_of_reach, gradients(net)


def against_ddp(rank: int, folder: str) -> Any:
    from torch import distributed
    from torch.nn.parallel import DistributedDataParallel

    def train(net: nn.Module, optimizer: Any) -> None:
        for step in range(5):
            take_step(net, optimizer, rank, step)

    net = model()
    distributed.init_process_group(
        "gloo", init_method=f"file://{folder}/store", rank=rank, world_size=WORKERS
    )
    ddp = DistributedDataParallel(net)
    train(ddp, torch.optim.SGD(ddp.parameters(), lr=0.1))
    with session() as bt:
        text = expect("Unsupported", sgd, net, bt)
        distributed.destroy_process_group()
        ours = model()
        train(ours, sgd(ours, bt))
    pairs = zip(net.parameters(), ours.parameters())
    return text, max(float((a - b).detach().abs().max()) for a, b in pairs)


# ---- checks


class OptimizerTest(TorchTest):
    def test_grad_is_the_average_when_backward_returns(self) -> None:
        outcomes = self.run_job(one_backward)
        for result, contributors in outcomes:
            self.assert_close(average(), result)
            self.assertEqual(("w0", "w1", "w2"), contributors)
        self.assert_same_bits([result for result, _ in outcomes])

    def test_training_is_that_of_one_process_with_clipping_and_a_scheduler(self) -> None:
        net = model()
        optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=3, gamma=0.5)
        for step in range(10):
            optimizer.zero_grad()
            net(torch.cat([batch(r, step) for r in range(WORKERS)])).square().mean().backward()
            nn.utils.clip_grad_norm_(net.parameters(), 0.05)
            optimizer.step()
            scheduler.step()
        outcomes = self.run_job(training)
        for parameters, rate in outcomes:
            self.assert_close([p.detach() for p in net.parameters()], parameters, 1e-10)
            self.assertEqual(scheduler.get_last_lr(), rate)
        self.assert_same_bits([parameters for parameters, _ in outcomes])

    def test_two_backwards_add_two_results(self) -> None:
        for op, factor in (("Average", 1), ("Sum", WORKERS)):
            expected = [factor * (a + b) for a, b in zip(average(0), average(1))]
            for both, _ in self.run_job(two_backwards, op):
                self.assert_close(expected, both)

    def test_micro_batches_are_averaged_over_workers_alone(self) -> None:
        expected = [a + b + c for a, b, c in zip(average(0), average(1), average(2))]
        for rank, (local, result, rest, text) in enumerate(self.run_job(micro_batches)):
            self.assert_close(local_gradients(rank, 0), local, 0.0)
            self.assert_close(expected, result)
            # One more step was run: compare the states of all workers.
            self.assertTrue(all(gradient is not None for gradient in rest))
            self.assertIn("no_sync", text)

    def test_results_after_micro_batches_are_the_same_bits(self) -> None:
        outcomes = self.run_job(micro_batches)
        self.assert_same_bits([rest for _, _, rest, _ in outcomes])

    def test_what_some_skip_is_averaged_over_all_and_what_all_skip_stays_none(self) -> None:
        outcomes = self.run_job(skipped_parameters)
        for (a, b, c), after in outcomes:
            self.assertEqual([[2.0, 2.0]], a.tolist())
            self.assertTrue(torch.allclose(b, torch.full((1, 2), 2 / 3, dtype=torch.float64)))
            self.assertIsNone(c)
            self.assertEqual([[1.0, 1.0]], after[2].tolist())
        self.assert_same_bits([after for _, after in outcomes])

    def test_a_backward_that_raises_is_withdrawn(self) -> None:
        outcomes = self.run_job(failing_backward)
        for rank, (text, result, contributors, _, after) in enumerate(outcomes):
            self.assertEqual("a bad batch" if rank == 2 else "", text)
            self.assert_close(average(0, (0, 1)), result)
            self.assertEqual(("w0", "w1"), contributors)
            self.assertTrue(all(gradient is not None for gradient in after))
        self.assert_same_bits([parameters for *_, parameters, _ in outcomes])
        self.assert_same_bits([after for *_, after in outcomes])

    def test_an_aborted_round_is_sent_again(self) -> None:
        for rank, (aborted, local, text, result) in enumerate(self.run_job(retried)):
            self.assertNotEqual("", aborted)
            self.assert_close(local_gradients(rank), local, 0.0)
            self.assertIn("call retry_round() of the optimizer", text)
            self.assert_close(average(), result)

    def test_a_round_that_is_aborted_during_a_backward_is_sent_again(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            os.mkfifo(Path(folder) / "known")
            for texts, local, expected in self.run_job(aborted_midway, folder):
                for number, text in enumerate(texts, 1):
                    self.assertRegex(text, f"round {number} is ABORTED.* retry to send them")
                self.assert_close(expected, local, 0.0)

    def test_half_a_gradient_is_never_sent(self) -> None:
        for way in ("optimizer", "model"):
            with self.subTest(way):
                for left, texts, nothing, result, count in self.run_job(half_a_backward, way):
                    self.assertEqual([True, True, False, False], left)
                    calls = ("retry_round", "sync_gradients", "step", "backward")
                    for call, text in zip(calls, texts):
                        self.assertIn(f"{call}() of step 0 was called on gradients", text)
                        self.assertIn("a part of a failed backward", text)
                        self.assertIn("Call zero_grad() and run the backward again", text)
                    self.assertIn("no gradients of an aborted round", nothing)
                    self.assert_close(average(), result)
                    self.assertEqual(WORKERS, count)

    def test_a_step_without_backward_applies_what_others_have(self) -> None:
        net = model()
        alone = local_gradients(0)
        expected = [p.detach() - 0.1 * g / WORKERS for p, g in zip(net.parameters(), alone)]
        outcomes = self.run_job(steps_without_backward)
        for after_one, after_two, none in outcomes:
            self.assert_close(expected, after_one)
            self.assert_same_bits([after_one, after_two])
            self.assertEqual([None] * 4, none)
        self.assert_same_bits([after_one for after_one, *_ in outcomes])

    def test_nested_backwards_do_not_end_the_round(self) -> None:
        for result in self.run_job(nested_backward):
            self.assert_close(average(), result)

    def test_a_gan_trains_as_in_one_process(self) -> None:
        outcomes = self.run_job(gan)
        for parameters, rounds in outcomes:
            self.assert_close(gan_alone(), parameters, 1e-12)
            self.assertEqual([4, 4], rounds)
        self.assert_same_bits([parameters for parameters, _ in outcomes])

    def test_strides_of_the_parameter_are_kept(self) -> None:
        self.assertEqual([(True, True)] * WORKERS, self.run_job(channels_last))

    def test_lazy_and_unfrozen_parameters_are_found(self) -> None:
        outcomes = self.run_job(lazy_and_frozen)
        for first, second in outcomes:
            self.assertEqual([False, False, True, True], [g is None for g in first])
            self.assertEqual([False] * 4, [g is None for g in second])
        self.assert_same_bits([second for _, second in outcomes])

    def test_an_overflow_on_one_worker_makes_all_skip_the_step(self) -> None:
        for weights, scale in self.run_job(scaler):
            self.assertTrue(torch.equal(weights[0], weights[1]))
            self.assertFalse(torch.equal(weights[1], weights[2]))
            self.assertEqual(2.0, scale)
            torch.testing.assert_close(weights[0], torch.full((1, 2), 0.8))

    def test_narrow_gradients_are_half_the_bytes_and_near(self) -> None:
        for dtype, scale, bound in (
            (torch.bfloat16, 1.0, 2**-8),
            (torch.float16, 1.0, 2**-11),
            (torch.float16, 1e-12, 2**-11),  # Too small for float16 without the wire's scale.
        ):
            outcomes = self.run_job(narrow_wire, dtype, scale)
            total = torch.stack([x for _, x, _ in outcomes])
            for result, _, size in outcomes:
                self.assertEqual(64 * 2, size)
                error = (result - total.mean(0)).abs().max()
                self.assertLessEqual(float(error), bound * float(total.abs().max()))
                self.assertGreater(float(error), 0.0)

    def test_a_child_after_fork_is_inert(self) -> None:
        for code, result in self.run_job(after_fork):
            self.assertEqual(7, code)
            self.assert_close(average(), result)

    def test_compiled_models(self) -> None:
        for result in self.run_job(compiled):
            self.assert_close(average(), result, 1e-12)

    def test_gradients_are_out_of_reach_until_the_outcome_is_known(self) -> None:
        outcomes = self.run_job(outcome_unknown)
        self.assertEqual([4, 0, 0], [len(texts) for texts, *_ in outcomes])
        self.assertRegex(
            outcomes[0][0][3], r"^finished\(\) .* call wait_round\(\) of the optimizer"
        )
        for _, out_of_reach, result in outcomes:
            self.assertTrue(out_of_reach)
            self.assert_close(average(), result)

    def test_gives_what_ddp_over_gloo_gives(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            for text, difference in self.run_job(against_ddp, folder):
                self.assertIn("torch.distributed", text)
                self.assertLessEqual(difference, 1e-12)


if __name__ == "__main__":
    main()
