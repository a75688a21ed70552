# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""basin.torch.ddp_comm_hook in torch's own DistributedDataParallel.

Usage: test_torch_hook.py BASIND LIBBASIN
"""

import contextlib
import tempfile
from collections.abc import Iterator
from typing import Any

from jobs import require

require("numpy", "torch")
import torch  # noqa: E402 - ends above when there is none
from torch import distributed, nn  # noqa: E402
from torch_jobs import (  # noqa: E402
    WORKERS,
    TorchTest,
    average,
    expect,
    gradients,
    hooked,
    local_gradients,
    loss_of,
    main,
    model,
    process_group_of_one,
    session,
)

TorchDdp = nn.parallel.DistributedDataParallel
Sgd = torch.optim.SGD

# ---- workers


@contextlib.contextmanager
def process_group(rank: int, size: int, folder: str) -> Iterator[None]:
    distributed.init_process_group(
        "gloo", init_method=f"file://{folder}/store", rank=rank, world_size=size
    )
    try:
        yield
    finally:
        distributed.destroy_process_group()


def deep() -> Any:
    """A model with more than one bucket of 1 MB."""
    torch.manual_seed(7)
    return nn.Sequential(
        nn.Linear(5, 400), nn.Tanh(), nn.Linear(400, 400), nn.Tanh(), nn.Linear(400, 3)
    ).double()


def train(net: nn.Module, rank: int, zero_to_none: bool = True) -> list[Any]:
    optimizer = Sgd(net.parameters(), lr=0.1, momentum=0.9)
    for step in range(5):
        optimizer.zero_grad(set_to_none=zero_to_none)
        loss_of(net, rank, step).backward()
        optimizer.step()
    return [p.detach() for p in net.parameters()]


OPTIONS: tuple[dict[str, Any], ...] = (
    {},
    {"gradient_as_bucket_view": True},
    {"static_graph": True},
    {"find_unused_parameters": True, "bucket_cap_mb": 1},
)


def as_torch_ddp(rank: int, folder: str, options: dict[str, Any], to_none: bool) -> Any:
    with process_group(rank, WORKERS, folder):
        expected = train(TorchDdp(deep()), rank)
    with process_group_of_one(), session() as bt:
        net = deep()
        if rank > 0:
            nn.init.zeros_(net[0].weight)
        ddp, state = hooked(bt, net, **options)
        got = train(ddp, rank, to_none)
        return expected, got, state.last_round().round


class Branches(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        for name in "abc":
            layer = nn.Linear(2, 1, bias=False).double()
            nn.init.ones_(layer.weight)
            self.add_module(name, layer)

    def forward(self, x: torch.Tensor, names: str) -> Any:
        return sum(self.get_submodule(name)(x).sum() for name in names)


def unused(rank: int) -> Any:
    """All workers reach a, only rank 1 reaches b, and none reaches c."""
    with process_group_of_one(), session() as bt:
        ddp, state = hooked(bt, Branches(), find_unused_parameters=True)
        optimizer = Sgd(ddp.parameters(), lr=0.1)
        x = torch.full((1, 2), rank + 1.0, dtype=torch.float64)
        outcomes = []
        for _ in range(2):  # DDP uses different buckets in the second backward.
            optimizer.zero_grad()
            ddp(x, "ab" if rank == 1 else "a").backward()
            outcomes.append(gradients(ddp))
            optimizer.step()
        return outcomes, [p.detach() for p in ddp.parameters()], state.totals().bytes_pushed


def accumulation(rank: int) -> Any:
    with process_group_of_one(), session() as bt:
        ddp, _ = hooked(bt, model())
        optimizer = Sgd(ddp.parameters(), lr=0.1)
        texts = []
        for step in range(2):
            optimizer.zero_grad(set_to_none=step == 0)
            with ddp.no_sync():
                loss_of(ddp, rank, 0).backward()
                loss_of(ddp, rank, 1).backward()
                texts.append(expect("FailedPrecondition", optimizer.step))
            loss_of(ddp, rank, 2).backward()
        once = gradients(ddp)
        loss_of(ddp, rank, 3).backward()
        return texts, once, gradients(ddp)


def beside_another(rank: int, options: dict[str, Any]) -> Any:
    """Two backwards per step; between and after them, one of another model with its own
    lane; before the last step the only backward is clipped."""
    with process_group_of_one(), session() as bt:
        ddp, state = hooked(bt, model(), **options)
        other = bt.DistributedDataParallel(model())
        sums = []
        for step in range(3):
            ddp.zero_grad()
            loss_of(ddp, rank, 2 * step).backward()
            loss_of(other, rank, 1).backward()
            loss_of(ddp, rank, 2 * step + 1).backward()
            loss_of(other, rank, 1).backward()
            sums.append(gradients(ddp))
        ddp.zero_grad()
        loss_of(ddp, rank).backward()
        twins = [nn.Parameter(p.detach().clone()) for p in ddp.parameters()]
        for twin, gradient in zip(twins, gradients(ddp)):
            twin.grad = gradient
        loss_of(other, rank, 1).backward()
        expected = nn.utils.clip_grad_norm_(twins, 0.01)
        norm = bt.clip_grad_norm_(ddp, 0.01)
        clipped = [p.grad for p in twins]
        return sums, float(expected), float(norm), clipped, gradients(ddp), state.totals().rounds


def failing_round(rank: int) -> Any:
    """Rank 0 times out; then a round in which all workers have failed is sent again."""
    with (
        process_group_of_one(),
        session(round_timeout=0.0 if rank == 0 else None) as bt,
    ):
        ddp, state = hooked(bt, model())
        optimizer = Sgd(ddp.parameters(), lr=0.1)
        texts = []
        if rank == 0:
            texts.append(expect("OutcomeUnknown", loss_of(ddp, rank).backward))
            texts.append(str([p.grad for p in ddp.parameters()]))
            texts.append(expect("FailedPrecondition", optimizer.step))
            bt.context.current().timeout = None
            bt.barrier("seen")
            state.wait_round()
        else:
            bt.barrier("seen")
            loss_of(ddp, rank).backward()
        first = gradients(ddp)
        optimizer.step()
        return texts, first, [p.detach() for p in ddp.parameters()]


def failing_push(rank: int) -> Any:
    """Rank 1 has a gradient that cannot be sent: the others continue, and DDP works afterwards."""
    with process_group_of_one(), session() as bt:
        ddp, state = hooked(bt, model())
        optimizer = Sgd(ddp.parameters(), lr=0.1)
        text = ""
        if rank == 1:
            worker = bt.context.current().client.worker
            push_many = worker.push_many

            def refused(*_: Any) -> None:
                import basin

                raise basin.ResourceExhausted("no room")

            worker.push_many = refused
            text = expect("ResourceExhausted", loss_of(ddp, rank).backward)
            worker.push_many = push_many
        else:
            loss_of(ddp, rank).backward()
        contributors = state.last_round().contributors
        optimizer.step()
        optimizer.zero_grad()
        loss_of(ddp, rank, 1).backward()
        return text, contributors, gradients(ddp), [p.detach() for p in ddp.parameters()]


def channels_last(rank: int) -> Any:
    with process_group_of_one(), session() as bt:
        torch.manual_seed(1)
        net = nn.Conv2d(3, 4, 3).double().to(memory_format=torch.channels_last)  # type: ignore
        ddp, _ = hooked(bt, net)
        x = torch.arange(2 * 3 * 5 * 5, dtype=torch.float64).reshape(2, 3, 5, 5) * (rank + 1)
        ddp(x.to(memory_format=torch.channels_last)).sum().backward()
        gradient = net.weight.grad
        assert gradient is not None
        alone = nn.Conv2d(3, 4, 3).double()
        alone(2 * x / (rank + 1)).sum().backward()  # The average of 1, 2 and 3 times.
        assert alone.weight.grad is not None
        same = torch.equal(gradient.contiguous(), alone.weight.grad)
        return gradient.stride() == net.weight.stride(), same


def buffers(rank: int, broadcast: bool) -> Any:
    with process_group_of_one(), session() as bt:
        torch.manual_seed(7)
        net = nn.Sequential(nn.Linear(5, 8), nn.BatchNorm1d(8)).double()
        ddp, _ = hooked(bt, net, broadcast_buffers=broadcast)
        train(ddp, rank)
        return list(ddp.buffers())


def half(rank: int) -> Any:
    with process_group_of_one(), session() as bt:
        net = nn.Linear(64, 1, bias=False)
        ddp, state = hooked(bt, net, {"wire_dtype": torch.bfloat16, "op": bt.Sum})
        ddp(torch.full((1, 64), rank + 1.0)).sum().backward()
        return net.weight.grad, state.totals().bytes_pushed


def refusals(rank: int, folder: str) -> Any:
    texts = {}
    with session() as bt:
        with process_group(rank, WORKERS, folder):
            texts["group"] = expect("Unsupported", bt.DDPState, TorchDdp(model()))
        with process_group_of_one():
            texts["model"] = expect("InvalidArgument", bt.DDPState, model())
            ddp = TorchDdp(model())
            ddp.register_comm_hook(None, bt.ddp_comm_hook)
            texts["state"] = expect("InvalidArgument", loss_of(ddp, rank).backward)
            ddp = TorchDdp(model())
            ddp.register_comm_hook(bt.DDPState(TorchDdp(model())), bt.ddp_comm_hook)
            texts["other"] = expect("InvalidArgument", loss_of(ddp, rank).backward)
            net = model()
            ddp, _ = hooked(bt, net)
            optimizer = Sgd(ddp.parameters(), lr=0.1)
            texts["twice"] = expect(
                "FailedPrecondition", bt.DistributedOptimizer, optimizer, ddp.named_parameters()
            )
            texts["nested"] = expect("Unsupported", bt.DistributedDataParallel, ddp)
            net[0].weight.register_post_accumulate_grad_hook(lambda p: None)
            texts["hook"] = expect("Unsupported", loss_of(ddp, rank).backward)
    return texts


# ---- checks


class CommHookTest(TorchTest):
    def test_trains_as_ddp_over_gloo_however_it_is_configured(self) -> None:
        for options in OPTIONS:
            for to_none in (True, False):
                with self.subTest(options=options, zero_to_none=to_none):
                    with tempfile.TemporaryDirectory() as folder:
                        outcomes = self.run_job(as_torch_ddp, folder, options, to_none)
                    for expected, got, rounds in outcomes:
                        self.assert_close(expected, got, 1e-12)
                        self.assertEqual(5, rounds)
                    self.assert_same_bits([got for _, got, _ in outcomes])

    def test_parameters_that_ddp_leaves_none_get_the_result(self) -> None:
        outcomes = self.run_job(unused)
        for rank, (both, _, pushed) in enumerate(outcomes):
            for a, b, c in both:
                self.assertEqual([[2.0, 2.0]], a.tolist())
                self.assertTrue(torch.allclose(b, torch.full((1, 2), 2 / 3, dtype=b.dtype)))
                self.assertIsNone(c)
            self.assertEqual(2 * 16 * (2 if rank == 1 else 1), pushed)  # Zeros are not sent.
        self.assert_same_bits([parameters for _, parameters, _ in outcomes])

    def test_no_sync_of_ddp_and_two_backwards(self) -> None:
        each = [[local_gradients(r, step) for r in range(WORKERS)] for step in range(4)]
        sums = [[sum(of_all) / WORKERS for of_all in zip(*of_step)] for of_step in each]
        expected: list[Any] = [a + b + c for a, b, c in zip(*sums[:3])]
        for texts, once, twice in self.run_job(accumulation):
            for text in texts:
                self.assertIn("is local", text)
            self.assert_close(expected, once)
            self.assert_close([a + b for a, b in zip(expected, sums[3])], twice)

    def test_another_models_backward_leaves_the_result_as_it_is(self) -> None:
        each = [average(step) for step in range(6)]
        for options in OPTIONS:
            with self.subTest(options=options):
                for sums, expected, norm, clipped, got, rounds in self.run_job(
                    beside_another, options
                ):
                    for step, of_two in enumerate(sums):
                        first, second = each[2 * step : 2 * step + 2]
                        self.assert_close([a + b for a, b in zip(first, second)], of_two)
                    self.assertAlmostEqual(expected, norm, delta=1e-12)
                    self.assert_close(clipped, got)
                    self.assertEqual(7, rounds)

    def test_a_round_without_outcome_is_a_typed_error_of_backward(self) -> None:
        outcomes = self.run_job(failing_round)
        self.assertEqual(3, len(outcomes[0][0]))
        self.assertEqual("[None, None, None, None]", outcomes[0][0][1])
        self.assertIn("the DDPState", outcomes[0][0][2])
        self.assert_same_bits([first for _, first, _ in outcomes])
        self.assert_same_bits([parameters for *_, parameters in outcomes])

    def test_a_push_that_fails_is_withdrawn_and_ddp_goes_on(self) -> None:
        outcomes = self.run_job(failing_push)
        for rank, (text, contributors, *_) in enumerate(outcomes):
            self.assertEqual("no room" if rank == 1 else "", text)
            self.assertEqual(("w0", "w2"), contributors)
        self.assert_same_bits([after for *_, after, _ in outcomes])
        self.assert_same_bits([parameters for *_, parameters in outcomes])

    def test_strides_of_the_parameter_are_kept(self) -> None:
        self.assertEqual([(True, True)] * WORKERS, self.run_job(channels_last))

    def test_buffers_follow_the_setting_of_ddp(self) -> None:
        self.assert_same_bits(self.run_job(buffers, True))
        mean, *_ = zip(*self.run_job(buffers, False))
        self.assertFalse(torch.equal(mean[0], mean[1]))

    def test_narrow_sums(self) -> None:
        for result, pushed in self.run_job(half):
            self.assertEqual([6.0] * 64, result[0].tolist())
            self.assertEqual(128, pushed)

    def test_refusals(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            for texts in self.run_job(refusals, folder):
                self.assertIn(f"process group of {WORKERS} processes", texts["group"])
                self.assertIn("world_size=1", texts["group"])
                self.assertIn("Sequential", texts["model"])
                self.assertIn("DDPState(model)", texts["state"])
                self.assertIn("from the model with which it is used", texts["other"])
                self.assertRegex(texts["twice"], "0.weight.*DDPState")
                self.assertIn(".module", texts["nested"])
                self.assertIn("0.weight", texts["hook"])


if __name__ == "__main__":
    main()
