# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""basin.torch.DistributedDataParallel, with ordinary optimizers.

Usage: test_torch_ddp.py BASIND LIBBASIN
"""

import copy
import math
import os
import pickle
import tempfile
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
    take_step,
)

Sgd = torch.optim.SGD

# ---- workers


def one_backward(rank: int) -> Any:
    with session() as bt:
        ddp = bt.DistributedDataParallel(model())
        loss_of(ddp, rank).backward()
        return gradients(ddp), ddp.totals().bytes_pushed


def normed() -> Any:
    """A model with batch normalisation, whose running statistics differ among workers."""
    torch.manual_seed(7)
    return nn.Sequential(nn.Linear(5, 8), nn.BatchNorm1d(8), nn.Linear(8, 3)).double()


def train(net: Any, rank: int, steps: int) -> None:
    optimizer = Sgd(net.parameters(), lr=0.1, momentum=0.9)
    for step in range(steps):
        take_step(net, optimizer, rank, step)


def as_torch_ddp(rank: int, folder: str) -> Any:
    from torch import distributed

    theirs = nn.parallel.DistributedDataParallel
    distributed.init_process_group(
        "gloo", init_method=f"file://{folder}/store", rank=rank, world_size=WORKERS
    )
    torch_ddp = theirs(normed())
    train(torch_ddp, rank, 5)
    torch_ddp.eval()
    with torch.no_grad():
        evaluated = torch_ddp(batch(0, 9))  # Here the buffers of rank 0 arrive.
    distributed.destroy_process_group()
    with session() as bt:
        net = normed()
        if rank > 0:
            for parameter in net.parameters():
                nn.init.zeros_(parameter)
        ddp = bt.DistributedDataParallel(net)
        train(ddp, rank, 5)
        ddp.eval()
        with torch.no_grad():
            ours = ddp(batch(0, 9))
        keys = list(torch_ddp.state_dict()) == list(ddp.state_dict())
        same = [
            float((a.double() - b.double()).abs().max())
            for a, b in zip(torch_ddp.state_dict().values(), ddp.state_dict().values())
        ]
        return keys, max(same), float((evaluated - ours).abs().max()), list(ddp.buffers())


def buffers_off(rank: int) -> Any:
    with session() as bt:
        ddp = bt.DistributedDataParallel(normed(), broadcast_buffers=False)
        train(ddp, rank, 2)
        return [p.detach() for p in ddp.parameters()], ddp.module[1].running_mean


def evaluation_of_one(rank: int) -> Any:
    with session() as bt:
        ddp = bt.DistributedDataParallel(normed())
        train(ddp, rank, 1)
        if rank == 0:
            with torch.no_grad():
                for step in range(3):
                    ddp(batch(rank, step))  # In training mode: it changes the buffers.
        train(ddp, rank, 1)
        return list(ddp.buffers())


def accumulation(rank: int) -> Any:
    with session() as bt:
        ddp = bt.DistributedDataParallel(model())
        optimizer = Sgd(ddp.parameters(), lr=0.1)
        with ddp.no_sync():
            loss_of(ddp, rank, 0).backward()
            local = gradients(ddp)
            loss_of(ddp, rank, 1).backward()
            within = expect("FailedPrecondition", optimizer.step)
        after = expect("FailedPrecondition", optimizer.step)
        loss_of(ddp, rank, 2).backward()
        result = gradients(ddp)
        optimizer.step()
        # A result, then a gradient that is added locally, then another round.
        optimizer.zero_grad()
        loss_of(ddp, rank, 3).backward()
        with ddp.no_sync():
            loss_of(ddp, rank, 4).backward()
        loss_of(ddp, rank, 5).backward()
        both = gradients(ddp)
        return local, within, after, result, both, [p.detach() for p in ddp.parameters()]


def as_nanogpt_does(rank: int) -> Any:
    """Three micro-batches before each step, of which only the last one sends."""
    with session() as bt:
        ddp = bt.DistributedDataParallel(model())
        optimizer = Sgd(ddp.parameters(), lr=0.1)
        for step in (0, 3):
            for micro_step in range(3):
                ddp.require_backward_grad_sync = micro_step == 2
                loss_of(ddp, rank, step + micro_step).backward()
            result = gradients(ddp)
            optimizer.step()
            optimizer.zero_grad()
        with ddp.no_sync():
            within = ddp.require_backward_grad_sync
        ddp.require_backward_grad_sync = False
        loss_of(ddp, rank).backward()
        text = expect("FailedPrecondition", optimizer.step)
        rounds = ddp.totals().rounds
        bt.shutdown()
        refused = expect("FailedPrecondition", setattr, ddp, "require_backward_grad_sync", True)
        return result, within, text, rounds, refused


def average_of(net: nn.Module, steps: tuple[int, ...]) -> list[torch.Tensor]:
    """The sum over steps of the averages over workers."""
    net.zero_grad()
    for step in steps:
        for rank in range(WORKERS):
            (loss_of(net, rank, step) / WORKERS).backward()
    return gradients(net)


def two_optimizers(rank: int) -> Any:
    with session() as bt:
        ddp = bt.DistributedDataParallel(model())
        halves = (
            Sgd(ddp.module[0].parameters(), lr=0.1),
            torch.optim.Adam(ddp.module[2].parameters(), lr=0.01),
        )
        for step in range(3):
            for optimizer in halves:
                optimizer.zero_grad(set_to_none=step != 1)
            loss_of(ddp, rank, step).backward()
            for optimizer in halves:
                optimizer.step()
        return [p.detach() for p in ddp.parameters()], ddp.last_round().round


def steps_without_backward(rank: int) -> Any:
    with session() as bt:
        ddp = bt.DistributedDataParallel(normed())
        optimizer = Sgd(ddp.parameters(), lr=0.1)
        if rank == 0:
            loss_of(ddp, rank).backward()
        optimizer.step()
        return [p.detach() for p in ddp.parameters()], list(ddp.buffers())


def failing_backward(rank: int) -> Any:
    with session() as bt:
        ddp = bt.DistributedDataParallel(normed())
        optimizer = Sgd(ddp.parameters(), lr=0.1)
        loss = loss_of(ddp, rank)
        text = ""
        if rank == 1:
            ddp.module[0].weight.register_hook(divide_by_zero)
            try:
                loss.backward()
            except ZeroDivisionError:
                text = "raised"
        else:
            loss.backward()
        optimizer.step()
        contributors = ddp.last_round().contributors
        return text, contributors, [p.detach() for p in ddp.parameters()], list(ddp.buffers())


def divide_by_zero(_: torch.Tensor) -> torch.Tensor:
    raise ZeroDivisionError


def retried(rank: int) -> Any:
    """At first no commit is accepted, neither of gradients nor of buffers."""
    with session() as bt:
        ddp = bt.DistributedDataParallel(normed())
        optimizer = Sgd(ddp.parameters(), lr=0.1)
        with commits_refused():
            expect("RoundAborted", loss_of(ddp, rank).backward)
        text = expect("FailedPrecondition", optimizer.step)
        ddp.retry_round()
        optimizer.step()
        return text, [p.detach() for p in ddp.parameters()], list(ddp.buffers())


def outcome_unknown(rank: int) -> Any:
    with session(round_timeout=0.0 if rank == 0 else None) as bt:
        ddp = bt.DistributedDataParallel(normed(), init_sync=False)
        text = ""
        if rank == 0:
            text = expect("OutcomeUnknown", loss_of(ddp, rank).backward)
            bt.context.current().timeout = None
            bt.barrier("seen")
            ddp.wait_round()
        else:
            bt.barrier("seen")
            loss_of(ddp, rank).backward()
        return text, gradients(ddp), list(ddp.buffers())


class Tied(nn.Module):
    """A model that uses one weight in two places."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(2)
        self.first = nn.Linear(5, 5, bias=False)
        self.second = nn.Linear(5, 5, bias=False)
        self.second.weight = self.first.weight

    def forward(self, x: torch.Tensor) -> Any:
        return self.second(torch.tanh(self.first(x)))


def tied(rank: int) -> Any:
    with session() as bt:
        net = Tied().double()
        ddp = bt.DistributedDataParallel(net)
        loss_of(ddp, rank).backward()
        return gradients(ddp), ddp.module.first.weight is ddp.module.second.weight


def kept_graph(rank: int) -> Any:
    """Two losses with one graph, which has saved the buffers of a frozen normalisation."""
    with session() as bt:
        net = normed()
        net[1].eval()
        ddp = bt.DistributedDataParallel(net)
        out = ddp(batch(rank))
        out.square().mean().backward(retain_graph=True)
        out.sum().backward()
        return gradients(ddp)


def mixed_precision(rank: int) -> Any:
    """Clipping and a scaler, with an overflow on one worker."""
    with session() as bt:
        net = model()
        ddp = bt.DistributedDataParallel(net)
        optimizer = Sgd(ddp.parameters(), lr=0.1)
        scaler = torch.amp.GradScaler("cpu", init_scale=4.0, growth_interval=100)
        norms = []
        for step in range(3):
            optimizer.zero_grad(set_to_none=step == 1)
            loss = loss_of(ddp, rank, step)
            if step == 1 and rank == 2:
                loss = loss * torch.inf
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            norms.append(float(nn.utils.clip_grad_norm_(ddp.parameters(), 0.05)))
            scaler.step(optimizer)
            scaler.update()
        return [p.detach() for p in ddp.parameters()], norms, scaler.get_scale()


def compiled(rank: int) -> Any:
    with session() as bt:
        outcomes = []
        inside = bt.DistributedDataParallel(torch.compile(model(), backend="aot_eager"))
        outside = bt.DistributedDataParallel(model())
        for call, ddp in ((inside, inside), (torch.compile(outside, backend="aot_eager"), outside)):
            call(batch(rank)).square().mean().backward()
            outcomes.append(gradients(ddp))
        return outcomes


def after_fork(rank: int) -> Any:
    with session() as bt:
        ddp = bt.DistributedDataParallel(normed())
        optimizer = Sgd(ddp.parameters(), lr=0.1)
        child = os.fork()
        if child == 0:
            loss_of(ddp, rank).backward()
            optimizer.step()
            alone = normed()
            loss_of(alone, rank).backward()
            Sgd(alone.parameters(), lr=0.1).step()
            pairs = zip(alone.parameters(), ddp.parameters())
            os._exit(7 if all(torch.equal(a, b) for a, b in pairs) else 1)
        _, status = os.waitpid(child, 0)
        train(ddp, rank, 1)
        return os.waitstatus_to_exitcode(status), list(ddp.buffers())


def initialized_again(rank: int) -> Any:
    with session() as bt:
        ddp = bt.DistributedDataParallel(model())
    # Another job, because an early worker would join the old one late.
    with session() as bt:
        text = expect("FailedPrecondition", ddp, batch(rank))
        again = bt.DistributedDataParallel(ddp.module)
        loss_of(again, rank).backward()
        return text, gradients(again)


def wrap_with_max(bt: Any) -> None:
    bt.DistributedDataParallel(model(), op=bt.Max)


def habits(rank: int) -> Any:
    import basin

    with session() as bt:
        ddp = bt.DistributedDataParallel(model(), op=bt.Sum, wire_dtype=torch.bfloat16)
        texts = {
            "copy": expect("FailedPrecondition", copy.deepcopy, ddp),
            "pickle": expect("FailedPrecondition", pickle.dumps, ddp),
            "nested": expect("Unsupported", bt.DistributedDataParallel, ddp),
            "again": expect("FailedPrecondition", bt.DistributedDataParallel, ddp.module),
            "closure": expect("Unsupported", torch.optim.LBFGS(ddp.parameters()).step, lambda: 0.0),
            "max": expect(
                "InvalidArgument", lambda: bt.DistributedDataParallel(model(), op=bt.Max)
            ),
        }
        loaded = model()
        loaded.load_state_dict({k.removeprefix("module."): v for k, v in ddp.state_dict().items()})
        ddp.load_state_dict(ddp.state_dict())
        pickle.dumps(ddp.module)
        assert isinstance(ddp, nn.Module) and basin.torch is bt
    # After shutdown() the module is an ordinary model.
    texts["shut down"] = expect("FailedPrecondition", loss_of, ddp, rank)
    loss_of(ddp.module, rank).backward()
    Sgd(ddp.parameters(), lr=0.1).step()
    return texts, gradients(ddp)


# ---- checks


class DataParallelTest(TorchTest):
    def test_grad_is_the_average_when_backward_returns(self) -> None:
        size = 8 * sum(gradient.numel() for gradient in local_gradients(0))
        for result, pushed in self.run_job(one_backward):
            self.assert_close(average(), result)
            self.assertEqual(size, pushed)

    def test_trains_as_ddp_over_gloo_with_buffers(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            outcomes = self.run_job(as_torch_ddp, folder)
        for keys, difference, evaluated, _ in outcomes:
            self.assertTrue(keys)
            self.assertLessEqual(difference, 1e-12)
            self.assertLessEqual(evaluated, 1e-12)
        self.assert_same_bits([buffers for *_, buffers in outcomes])

    def test_buffers_stay_local_when_they_are_not_broadcast(self) -> None:
        outcomes = self.run_job(buffers_off)
        self.assert_same_bits([parameters for parameters, _ in outcomes])
        self.assertFalse(torch.equal(outcomes[0][1], outcomes[1][1]))

    def test_a_forward_of_one_worker_waits_for_nobody(self) -> None:
        outcomes = self.run_job(evaluation_of_one)
        self.assertEqual(5, int(outcomes[2][2]))  # The number of batches that rank 0 has counted.
        self.assert_same_bits(outcomes)

    def test_no_sync_accumulates_and_refuses_step(self) -> None:
        net = model()
        first = average_of(net, (0, 1, 2))
        with torch.no_grad():
            for parameter, gradient in zip(net.parameters(), first):
                parameter -= 0.1 * gradient
        second = average_of(net, (3, 4, 5))
        outcomes = self.run_job(accumulation)
        for rank, (local, within, after, result, both, _) in enumerate(outcomes):
            self.assert_close(local_gradients(rank), local, 0.0)
            self.assertIn("within no_sync()", within)
            self.assertIn("0.weight", after)
            self.assert_close(first, result)
            self.assert_close(second, both)
        self.assert_same_bits([parameters for *_, parameters in outcomes])

    def test_require_backward_grad_sync_is_as_torchs(self) -> None:
        net = model()
        first = average_of(net, (0, 1, 2))
        with torch.no_grad():
            for parameter, gradient in zip(net.parameters(), first):
                parameter -= 0.1 * gradient
        expected = average_of(net, (3, 4, 5))
        for result, within, text, rounds, refused in self.run_job(as_nanogpt_does):
            self.assert_close(expected, result)
            self.assertEqual((False, 2), (within, rounds))
            self.assertIn("within no_sync()", text)
            self.assertIn("after shutdown()", refused)

    def test_two_optimizers_share_the_rounds_of_a_model(self) -> None:
        net = model()
        halves = (
            Sgd(net[0].parameters(), lr=0.1),
            torch.optim.Adam(net[2].parameters(), lr=0.01),
        )
        for step in range(3):
            average_of(net, (step,))
            for optimizer in halves:
                optimizer.step()
        for parameters, rounds in self.run_job(two_optimizers):
            self.assert_close([p.detach() for p in net.parameters()], parameters, 1e-12)
            self.assertEqual(3, rounds)

    def test_a_step_without_backward_takes_part_with_buffers_too(self) -> None:
        outcomes = self.run_job(steps_without_backward)
        self.assert_same_bits([parameters for parameters, _ in outcomes])
        self.assert_same_bits([buffers for _, buffers in outcomes])

    def test_a_backward_that_raises_is_withdrawn(self) -> None:
        outcomes = self.run_job(failing_backward)
        for rank, (text, contributors, *_) in enumerate(outcomes):
            self.assertEqual("raised" if rank == 1 else "", text)
            self.assertEqual(("w0", "w2"), contributors)
        self.assert_same_bits([parameters for _, _, parameters, _ in outcomes])
        self.assert_same_bits([buffers for *_, buffers in outcomes])

    def test_an_aborted_round_is_sent_again(self) -> None:
        outcomes = self.run_job(retried)
        for text, *_ in outcomes:
            self.assertIn("retry_round() of the model", text)
        self.assert_same_bits([parameters for _, parameters, _ in outcomes])
        self.assert_same_bits([buffers for *_, buffers in outcomes])

    def test_outcome_unknown_and_then_known(self) -> None:
        outcomes = self.run_job(outcome_unknown)
        self.assertIn("wait", outcomes[0][0].lower())
        self.assert_same_bits([result for _, result, _ in outcomes])
        self.assert_same_bits([buffers for *_, buffers in outcomes])

    def test_tied_weights(self) -> None:
        each = []
        for rank in range(WORKERS):
            net = Tied().double()
            loss_of(net, rank).backward()
            each.append(net.first.weight.grad)
        expected = [torch.stack(each).mean(0)]  # type: ignore[arg-type]
        for result, same in self.run_job(tied):
            self.assertTrue(same)
            self.assert_close(expected, result)

    def test_two_losses_of_a_kept_graph(self) -> None:
        each = []
        for rank in range(WORKERS):
            net = normed()
            net[1].eval()
            out = net(batch(rank))
            (out.square().mean() + out.sum()).backward()
            each.append(gradients(net))
        expected = [torch.stack(of_all).mean(0) for of_all in zip(*each)]
        for result in self.run_job(kept_graph):
            self.assert_close(expected, result, 1e-13)

    def test_clipping_and_a_scaler(self) -> None:
        net = model()
        optimizer = Sgd(net.parameters(), lr=0.1)
        norms = []
        for step in (0, 2):  # The overflow of one worker makes all workers skip step 1.
            average_of(net, (step,))
            norms.append(float(nn.utils.clip_grad_norm_(net.parameters(), 0.05)))
            optimizer.step()
        outcomes = self.run_job(mixed_precision)
        for parameters, seen, scale in outcomes:
            self.assert_close([p.detach() for p in net.parameters()], parameters, 1e-12)
            self.assertAlmostEqual(norms[0], seen[0])
            self.assertFalse(math.isfinite(seen[1]))
            self.assertAlmostEqual(norms[1], seen[2])
            self.assertEqual(2.0, scale)
        self.assert_same_bits([parameters for parameters, *_ in outcomes])

    def test_compiled_models(self) -> None:
        for outcomes in self.run_job(compiled):
            for result in outcomes:
                self.assert_close(average(), result, 1e-12)

    def test_a_child_after_fork_is_inert(self) -> None:
        outcomes = self.run_job(after_fork)
        self.assertEqual([7] * WORKERS, [code for code, _ in outcomes])
        self.assert_same_bits([buffers for _, buffers in outcomes])

    def test_a_model_of_before_shutdown_is_refused(self) -> None:
        for text, result in self.run_job(initialized_again):
            self.assertIn("forward() was called after shutdown()", text)
            self.assert_close(average(), result)

    def test_habits_and_refusals(self) -> None:
        for rank, (texts, result) in enumerate(self.run_job(habits)):
            self.assertIn(".module", texts["copy"])
            self.assertIn("state_dict()", texts["pickle"])
            self.assertIn(".module", texts["nested"])
            self.assertIn("0.weight", texts["again"])
            self.assertIn("closure", texts["closure"])
            self.assertIn("MAX", texts["max"])
            self.assertIn("forward() was called after shutdown()", texts["shut down"])
            self.assert_close(local_gradients(rank), result, 0.0)


if __name__ == "__main__":
    main()
