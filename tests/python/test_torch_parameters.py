# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""Parameters that change after wrapping: converted, replaced, added.

Usage: test_torch_parameters.py BASIND LIBBASIN
"""

from typing import Any

from jobs import require

require("numpy", "torch")
import torch  # noqa: E402 - ends above when there is none
from torch import nn  # noqa: E402
from torch_jobs import (  # noqa: E402
    WORKERS,
    TorchTest,
    batch,
    expect,
    gradients,
    loss_of,
    main,
    model,
    process_group_of_one,
    session,
    sgd,
    take_step,
    trainer,
)

# ---- workers


def loss_in(net: Any, dtype: torch.dtype, rank: int, step: int = 0) -> torch.Tensor:
    loss: torch.Tensor = net(batch(rank, step).to(dtype)).square().mean()
    return loss


def averaged(before: torch.dtype, after: torch.dtype, step: int = 0) -> list[torch.Tensor]:
    """The expected gradients of a converted model."""
    each = []
    for rank in range(WORKERS):
        net = model().to(before).to(after)
        loss_in(net, after, rank, step).backward()
        each.append(gradients(net))
    return [(sum(g.double() for g in of_all) / WORKERS).to(after) for of_all in zip(*each)]


def convert(rank: int, before: str, after: str, options: dict[str, Any]) -> Any:
    """The gradients of a model that is converted after wrapping."""
    with session() as bt:
        net = model().to(getattr(torch, before))
        optimizer = sgd(net, bt, **options)
        net.to(getattr(torch, after))
        loss_in(net, getattr(torch, after), rank).backward()
        delivered = gradients(net)
        optimizer.step()
        return delivered, [p.detach() for p in net.parameters()]


def convert_between_steps(rank: int) -> Any:
    """The conversion back to a known dtype, with a gradient kept over a conversion."""
    with session() as bt:
        net = model().float()
        optimizer = sgd(net, bt)
        seen = []
        for dtype in (torch.float32, torch.bfloat16, torch.float32):
            net.to(dtype)
            net.load_state_dict(model().state_dict())
            optimizer.zero_grad()
            loss_in(net, dtype, rank).backward()
            seen.append((gradients(net), sorted(optimizer.last_round().tensor_norms)))
            optimizer.step()
        return seen


def convert_after_forward(rank: int) -> Any:
    """Gradients for the parameters of the forward; then another backward."""
    with session() as bt:
        net = model().float()
        optimizer = sgd(net, bt)
        loss = loss_in(net, torch.float32, rank)
        net.half()
        text = expect("Mismatch", loss.backward)
        optimizer.zero_grad()
        loss_in(net, torch.float16, rank).backward()
        return text, gradients(net)


def load_by_assignment(rank: int) -> Any:
    """A model whose parameters are all replaced before its optimizer is created."""
    with session() as bt:
        net = model()
        wrapped = bt.DistributedDataParallel(net)
        net.load_state_dict(model().state_dict(), assign=True)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        for step in range(2):
            take_step(wrapped, optimizer, rank, step)
        return [p.detach() for p in net.parameters()], len(wrapped.last_round().tensor_norms)


def replace_one(net: Any) -> nn.Parameter:
    net[2].weight = nn.Parameter(net[2].weight.detach().clone())
    replaced: nn.Parameter = net[2].weight
    return replaced


def replace_under_an_optimizer(rank: int) -> Any:
    """Refused at the backward, and at a step without one; adopted if the optimizer has it."""
    with session() as bt:
        net = model()
        bt.broadcast_parameters(net)
        optimizer = sgd(net, bt)
        before = net[2].weight
        now = replace_one(net)
        texts = [expect("FailedPrecondition", loss_of(net, rank).backward)]
        texts.append(expect("FailedPrecondition", optimizer.step))
        group = optimizer.param_groups[0]
        group["params"] = [now if each is before else each for each in group["params"]]
        optimizer.zero_grad()
        loss_of(net, rank).backward()
        delivered = gradients(net)
        optimizer.step()
        return texts, delivered


def replace_under_a_model(rank: int) -> Any:
    """The wrapped model continues with the new one; an optimizer with the old one is refused."""
    with session() as bt:
        net = model()
        wrapped = bt.DistributedDataParallel(net)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        loss_of(wrapped, rank).backward()
        optimizer.step()
        net.load_state_dict(model().state_dict())
        replace_one(net)
        wrapped.zero_grad()
        loss_of(wrapped, rank).backward()
        delivered = gradients(net)
        return expect("FailedPrecondition", optimizer.step), delivered


def add_one(rank: int) -> Any:
    with session() as bt:
        net = model()
        wrapped = bt.DistributedDataParallel(net)
        net[1].scale = nn.Parameter(torch.ones(1))
        text = expect("FailedPrecondition", loss_of(wrapped, rank).backward)
        del net[1].scale
        wrapped.zero_grad()
        loss_of(wrapped, rank).backward()
        return text, gradients(net)


class Renamed:
    """Rank 1 has different names for the same parameters, as after torch.compile()."""

    def __init__(self, bt: Any, net: nn.Module, **options: Any) -> None:
        prefix = "_orig_mod." if bt.rank() == 1 else ""
        named = [(prefix + name, each) for name, each in net.named_parameters()]
        self.optimizer = bt.DistributedOptimizer(
            torch.optim.SGD(net.parameters(), lr=0.1), named, **options
        )


def other_names(rank: int) -> Any:
    """The error of rank 1, then the contributors; and the result if this is allowed."""
    with session() as bt:
        net = model()
        optimizer = Renamed(bt, net).optimizer
        text = ""
        if bt.rank() == 1:
            text = expect("Mismatch", loss_of(net, rank).backward)
        else:
            loss_of(net, rank).backward()
        contributors = len(optimizer.last_round().contributors)
        lenient = model()
        allowed = Renamed(bt, lenient, same_parameters=False, divide_by_present=True).optimizer
        loss_of(lenient, rank).backward()
        return bt.rank(), text, contributors, len(allowed.last_round().contributors)


def frozen_here(rank: int) -> Any:
    """First rank 2 has frozen a layer, then all workers have, then none."""
    with trainer() as (bt, net, optimizer):
        texts = []
        for frozen in ([2], [0, 1, 2], []):
            net[0].requires_grad_(bt.rank() not in frozen)
            optimizer.zero_grad()
            if frozen == [2] and bt.rank() == 2:
                texts.append(expect("Mismatch", loss_of(net, rank).backward))
            else:
                loss_of(net, rank).backward()
            optimizer.step()
        seen = optimizer.last_round()
        return bt.rank(), texts, len(seen.contributors), [p.detach() for p in net.parameters()]


def other_dtype(rank: int) -> Any:
    """Only rank 0 converts its model, after a correct step."""
    with trainer() as (bt, net, optimizer):
        loss_of(net, rank).backward()
        optimizer.step()
        optimizer.zero_grad()
        if bt.rank() != 0:
            loss_of(net, rank).backward()
            return bt.rank(), ""
        net.float()
        return bt.rank(), expect("Mismatch", loss_in(net, torch.float32, rank).backward)


def not_in_memory(rank: int) -> Any:
    """The errors by call, before anything is sent."""
    with session() as bt:
        on_meta = model()
        on_meta[2] = nn.Linear(8, 3, device="meta")
        buffered = nn.BatchNorm1d(3)
        buffered.running_mean = torch.zeros(3, device="meta")
        sparse = torch.ones(2, 2).to_sparse()
        texts = [
            expect("Unsupported", bt.broadcast_parameters, on_meta),
            expect("Unsupported", bt.DistributedDataParallel, on_meta),
            expect("Unsupported", bt.DistributedDataParallel, buffered),
            expect("Unsupported", bt.broadcast_buffers, buffered),
            expect("Unsupported", bt.broadcast_parameters, {"table": sparse}),
            expect("Unsupported", lambda: bt.grouped_allreduce([sparse], "table", op=bt.Sum)),
        ]
        return texts, shard(bt)


@process_group_of_one()
def shard(bt: Any) -> list[str]:
    from torch.distributed.tensor import distribute_tensor, init_device_mesh

    net = model()
    mesh = init_device_mesh("cpu", (1,))
    net[2].weight = nn.Parameter(distribute_tensor(net[2].weight.detach(), mesh))
    return [
        expect("Unsupported", bt.broadcast_parameters, net),
        expect("Unsupported", bt.DistributedDataParallel, net),
    ]


# ---- checks


class ParametersTest(TorchTest):
    def test_a_model_that_is_converted_after_wrapping_is_averaged_as_it_is(self) -> None:
        for before, after, options in (
            ("float16", "bfloat16", {}),
            ("float32", "float16", {}),
            ("float32", "float64", {}),
            ("float64", "float32", {"wire_dtype": torch.bfloat16}),
        ):
            with self.subTest(before=before, after=after):
                expected = averaged(getattr(torch, before), getattr(torch, after))
                outcomes = self.run_job(convert, before, after, options)
                for delivered, _ in outcomes:
                    self.assert_close(expected, delivered, bound=4e-3)
                self.assert_same_bits([delivered for delivered, _ in outcomes])
                self.assert_same_bits([parameters for _, parameters in outcomes])

    def test_a_model_may_be_converted_between_steps(self) -> None:
        names = ["0.bias", "0.weight", "2.bias", "2.weight"]
        for seen in self.run_job(convert_between_steps):
            for dtype, (delivered, _) in zip((torch.float32, torch.bfloat16, torch.float32), seen):
                self.assert_close(averaged(torch.float32, dtype), delivered, bound=4e-3)
            self.assertEqual([names, names], [seen[0][1], seen[2][1]])
            self.assertEqual("0.bias as bfloat16 (8,)", seen[1][1][0])

    def test_a_gradient_of_another_size_than_its_parameter_is_refused_by_name(self) -> None:
        expected = averaged(torch.float32, torch.float16)
        for text, delivered in self.run_job(convert_after_forward):
            self.assertRegex(text, r"gradient of parameter 2\.\w+ is torch.float32 .*torch.float16")
            self.assert_close(expected, delivered, bound=4e-3)

    def test_parameters_that_were_loaded_by_assignment_are_taken_over(self) -> None:
        outcomes = self.run_job(load_by_assignment)
        self.assert_same_bits([parameters for parameters, _ in outcomes])
        self.assertEqual([4] * WORKERS, [reduced for _, reduced in outcomes])

    def test_a_parameter_that_was_replaced_under_its_optimizer_is_refused_by_name(self) -> None:
        expected = averaged(torch.float64, torch.float64)
        for texts, delivered in self.run_job(replace_under_an_optimizer):
            for text in texts:
                self.assertRegex(text, "Parameter 2.weight .*replaced.*param_groups")
            self.assert_close(expected, delivered)

    def test_a_parameter_that_was_replaced_in_a_wrapped_model_is_taken_over(self) -> None:
        expected = averaged(torch.float64, torch.float64)
        for text, delivered in self.run_job(replace_under_a_model):
            self.assertRegex(text, r"shape \(3, 8\).*replaced.*Create the optimizer")
            self.assert_close(expected, delivered)

    def test_a_parameter_that_was_added_is_refused_by_name(self) -> None:
        expected = averaged(torch.float64, torch.float64)
        for text, delivered in self.run_job(add_one):
            self.assertRegex(text, r"Parameter 1.scale of shape \(1,\)")
            self.assert_close(expected, delivered)

    def test_parameters_of_other_names_are_refused_with_those_of_both_sides(self) -> None:
        for rank, text, contributors, allowed in self.run_job(other_names):
            self.assertEqual((WORKERS - 1, WORKERS), (contributors, allowed))
            if rank == 1:
                self.assertRegex(text, r"Only here: _orig_mod.0.bias \(float64 \[8\]\), ")
                self.assertRegex(text, r"Only at the others: 0.bias \(float64 \[8\]\), .*compile")
                self.assertIn("same_parameters=False", text)

    def test_a_layer_that_one_worker_has_frozen_is_refused_by_name(self) -> None:
        outcomes = self.run_job(frozen_here)
        for rank, texts, contributors, _ in outcomes:
            self.assertEqual(WORKERS, contributors)
            if rank == 2:
                self.assertRegex(texts[0], "Only here: none. Only at the others: 0.bias .*freeze")
        self.assert_same_bits([parameters for *_, parameters in outcomes])

    def test_a_model_that_one_worker_has_converted_is_refused_by_name(self) -> None:
        for rank, text in self.run_job(other_dtype):
            if rank == 0:
                self.assertRegex(
                    text, r"Only here: 0.bias \(float32 .*Only at the others: 0.bias \(float64"
                )

    def test_tensors_without_memory_are_refused_by_name(self) -> None:
        names = ["2.weight", "2.weight", "running_mean", "running_mean", "table", "table.0"]
        for texts, of_shards in self.run_job(not_in_memory):
            for name, text in zip(names, texts, strict=True):
                self.assertRegex(text, f"Tensor {name} is (on meta|sparse)")
            for text in of_shards:
                self.assertRegex(text, "Tensor 2.weight is a DTensor")


if __name__ == "__main__":
    main()
