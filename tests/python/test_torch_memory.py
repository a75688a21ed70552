# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""What the memory of a tensor means: its numbers are sent, whatever view of memory it is, and
results go into the .grad that is there.

Usage: test_torch_memory.py BASIND LIBBASIN
"""

from typing import Any

from jobs import require

require("numpy", "torch")
import torch  # noqa: E402 - ends above when there is none
from torch import nn  # noqa: E402
from torch_jobs import (  # noqa: E402
    TorchTest,
    average,
    expect,
    gradients,
    loss_of,
    main,
    model,
    session,
    sgd,
    trainer,
)


class Wrapper(torch.Tensor):
    """A subclass without memory of its own."""

    @staticmethod
    def __new__(cls, inner: torch.Tensor) -> Any:
        return torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)

    @classmethod
    def __torch_dispatch__(cls, *_: Any) -> Any:
        raise NotImplementedError


class Subclass(torch.Tensor):
    """A subclass whose memory is that of a plain tensor."""


# ---- workers


def other_defaults(rank: int) -> Any:
    """Everything with another default device and dtype."""
    with session() as bt:
        net = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 1))
        x = torch.randn(8, 4)
        t = torch.full((3,), float(rank + 1))
        torch.set_default_device("meta")
        torch.set_default_dtype(torch.float64)
        try:
            ddp = bt.DistributedDataParallel(net)
            optimizer = torch.optim.Adam(ddp.parameters(), lr=0.1)
            bt.broadcast_optimizer_state(optimizer)
            for _ in range(2):
                optimizer.zero_grad()
                ddp(x).mean().backward()
                norm = bt.clip_grad_norm_(optimizer, 1e9)
                optimizer.step()
            state = bt.broadcast_state(mean=t * 10)
            new = bt.allreduce(t, "new", op=bt.Sum)
            got = {
                "devices": {norm.device.type, state.mean.device.type},
                "new": new.tolist(),
                "in place": bt.allreduce_(t, "in place", op=bt.Sum).tolist(),
                "counts": bt.total_counts({"tokens": rank + 1}),
                "state": state.mean.tolist(),
                "trained": [b.tolist() for b in (*net.parameters(), *net.buffers())],
            }
        finally:
            torch.set_default_device(None)
            torch.set_default_dtype(torch.float32)
        return got


def views(rank: int) -> Any:
    with session() as bt:
        z = torch.complex(torch.zeros(3), torch.arange(3.0) + rank)
        negative = z.conj().imag
        assert negative.is_neg()
        grid = torch.arange(12.0).view(3, 4) + rank
        image = grid.view(1, 3, 2, 2).contiguous(memory_format=torch.channels_last)
        sums = {
            "negative": bt.allreduce(negative, "negative", op=bt.Sum).tolist(),
            "expanded": bt.allreduce(grid[:, :1].expand(3, 4), "expanded", op=bt.Sum).tolist(),
            "strided": bt.allreduce(grid[::2, 1::2], "strided", op=bt.Sum).tolist(),
            "scalar": bt.allreduce(torch.tensor(rank + 0.5), "scalar", op=bt.Sum).item(),
            "image": bt.allreduce(image, "image", op=bt.Sum).flatten().tolist(),
            "subclass": bt.allreduce(grid.as_subclass(Subclass), "sub", op=bt.Sum).tolist(),
        }
        part = grid.clone().t()[1:3]
        bt.allreduce_(part, "in place", op=bt.Sum)
        sums["in place"] = part.tolist()
        refused = expect("Unsupported", each_in_place, grid[:1].expand(3, 4), bt)
        wrapped = expect("Unsupported", each, Wrapper(torch.ones(3)), bt)
        freed = torch.ones(3)
        freed.untyped_storage().resize_(0)
        empty = expect("Unsupported", each, freed, bt)
        quantized = torch.quantize_per_tensor(torch.ones(3), 0.5, 0, torch.qint8)
        scaled = expect("Unsupported", bt.broadcast_parameters, [("scaled", quantized)])
        return sums, (refused, wrapped, empty, scaled)


def each(tensor: torch.Tensor, bt: Any) -> None:
    bt.allreduce(tensor, "of another kind", op=bt.Sum)


def each_in_place(tensor: torch.Tensor, bt: Any) -> None:
    bt.allreduce_(tensor, "of another kind", op=bt.Sum)


def shared_values(rank: int) -> Any:
    """Broadcasts tensors of every kind from rank 1."""
    with session() as bt:
        z = torch.complex(torch.full((2,), 1.0 + rank), torch.full((2,), 2.0 + rank))
        mask = (torch.arange(4.0) + rank).view(1, 4).expand(3, 4)
        with torch.inference_mode():
            inferred = torch.full((2,), float(rank))
        given = {
            "conjugate": z.conj(),
            "negative": z.conj().imag,
            "mask": mask,
            "column": torch.full((3, 3), float(rank))[:, 1],
            "half": torch.full((2,), rank, dtype=torch.bfloat16),
            "flag": torch.tensor(rank == 1),
            "inferred": inferred,
        }
        bt.broadcast_parameters(given, root_rank=1)
        rows = torch.arange(8.0).view(2, 4) + rank
        rows = rows if rank == 1 else rows[:1].expand(2, 4)
        text = ""
        if rank == 1:
            bt.broadcast_parameters({"rows": rows}, root_rank=1)
        else:
            text = expect("Unsupported", lambda: bt.broadcast_parameters({"rows": rows}, 1))
        return {name: tensor.tolist() for name, tensor in given.items()}, text


def expanded_buffer(rank: int) -> Any:
    with session() as bt:
        net = model()
        net.register_buffer("mask", (torch.arange(4.0) + rank).view(1, 4).expand(3, 4))
        ddp = bt.DistributedDataParallel(net)
        first = net.mask.tolist()
        with torch.no_grad():
            net.mask[:1] += 10 * rank
        loss_of(ddp, rank).backward()
        return first, net.mask.tolist()


def arena(net: Any) -> torch.Tensor:
    """Makes all .grad of the model views of one flat tensor."""
    flat = torch.zeros(sum(p.numel() for p in net.parameters()), dtype=torch.float64)
    at = 0
    for parameter in net.parameters():
        parameter.grad = flat[at : at + parameter.numel()].view_as(parameter)
        at += parameter.numel()
    return flat


def flat_of(each: list[Any]) -> torch.Tensor:
    return torch.cat([gradient.reshape(-1) for gradient in each])


def flat_gradients(rank: int, form: str) -> Any:
    """The flat tensor after one backward, after two, and after a failed one."""
    with session() as bt:
        net = model()
        if form == "optimizer":
            optimizer, call = sgd(net, bt), net
        else:
            call = bt.DistributedDataParallel(net)
            optimizer = torch.optim.SGD(net.parameters(), lr=0.0)
        flat, got = arena(net), []
        views_of = [p.grad for p in net.parameters()]
        for step in range(2):
            flat.zero_()
            loss_of(call, rank, step).backward()
            got.append(flat.clone())
        loss_of(call, rank, 2).backward()  # Adds to the result of the last one.
        got.append(flat.clone())
        for group in optimizer.param_groups:
            group["lr"] = 0.0
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)
        loss_of(call, rank, 3).backward()
        norm = bt.clip_grad_norm_(optimizer, 1e9)
        torch.testing.assert_close(norm, flat.norm())
        got.append(flat.clone())
        same = all(p.grad is view for p, view in zip(net.parameters(), views_of, strict=True))
        return got, same


def strided_gradient(rank: int) -> Any:
    """A .grad of other strides than the parameter's."""
    with session() as bt:
        net = model()
        net[0].weight.grad = given = torch.zeros(5, 8, dtype=torch.float64).t()
        sgd(net, bt)
        loss_of(net, rank).backward()
        return gradients(net), net[0].weight.grad is given


def graph_of_gradients(rank: int) -> Any:
    with trainer() as (_, net, optimizer):

        def penalty(of: list[Any]) -> Any:
            return sum(g.square().sum() for g in of)

        text = expect("Unsupported", lambda: loss_of(net, rank).backward(create_graph=True))
        optimizer.zero_grad()
        loss = loss_of(net, rank)
        inner = torch.autograd.grad(loss, list(net.parameters()), create_graph=True)
        (loss + penalty(list(inner))).backward()
        first = gradients(net)
        optimizer.step()
        optimizer.zero_grad()
        # The same gradient in two backwards, the first of which stays here.
        net.load_state_dict(model().state_dict())
        with optimizer.no_sync():
            loss_of(net, rank).backward(create_graph=True)
        extra = penalty([p.grad for p in net.parameters()])
        extra.backward()
        return text, first, gradients(net), any(p.grad.requires_grad for p in net.parameters())


def gradient_dtypes(rank: int) -> Any:
    if not hasattr(torch.Tensor, "grad_dtype"):
        return None
    with session() as bt:
        got = []
        for dtype, wide, late in (
            (torch.bfloat16, torch.float32, False),
            (torch.float32, torch.bfloat16, False),
            (torch.bfloat16, torch.float32, True),
        ):
            net: Any = nn.Linear(4, 2, bias=False).to(dtype)
            if not late:
                net.weight.grad_dtype = wide
            ddp = bt.DistributedDataParallel(net)
            if late:
                net.weight.grad_dtype = wide
            x = torch.full((1, 4), 1.0 + rank / 1024)
            for _ in range(2):
                nn.functional.linear(x, Widened.apply(net.weight)).sum().backward()
            got.append((net.weight.grad.dtype, net.weight.grad[0, 0].item()))
            del ddp
        return got


class Widened(torch.autograd.Function):
    """float32, with a gradient that is not rounded to the dtype of the parameter."""

    @staticmethod
    def forward(_: Any, weight: torch.Tensor) -> torch.Tensor:
        return weight.float()

    @staticmethod
    def backward(_: Any, gradient: torch.Tensor) -> torch.Tensor:
        return gradient


class Counting(nn.Module):
    """Each forward changes a buffer and multiplies by it, so that autograd saves it."""

    scale: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(2, dtype=torch.float64))
        self.register_buffer("scale", torch.ones(2, dtype=torch.float64))

    def forward(self, by: float) -> torch.Tensor:
        with torch.no_grad():
            self.scale *= by
        return (self.weight * self.scale).sum()


def saved_buffers(rank: int) -> Any:
    with session() as bt:
        ddp = bt.DistributedDataParallel(Counting())
        net, got = ddp.module, []
        optimizer = torch.optim.SGD(ddp.parameters(), lr=0.0)
        # A graph that is retained.
        loss = ddp(2.0 + rank)
        loss.backward(retain_graph=True)
        net.weight.grad = None
        loss.backward()
        got.append((net.weight.grad[0].item(), net.scale[0].item()))
        optimizer.step()
        optimizer.zero_grad()
        # Buffers are written by the step when a graph is kept.
        kept = ddp(2.0 + rank)
        kept.backward(retain_graph=True)
        during = net.scale[0].item()
        optimizer.step()
        got.append((during, net.scale[0].item()))
        return got


# ---- tests

FORMS = ("optimizer", "model")


class Memory(TorchTest):
    def test_default_device_and_dtype_do_not_matter(self) -> None:
        each = self.run_job(other_defaults)
        for got in each:
            self.assertEqual({"cpu"}, got["devices"])
            self.assertEqual([6.0] * 3, got["new"])
            self.assertEqual([6.0] * 3, got["in place"])
            self.assertEqual({"tokens": 6}, got["counts"])
            self.assertEqual([10.0] * 3, got["state"])
            self.assertEqual(each[0]["trained"], got["trained"])

    def test_views_are_sent_as_their_numbers_or_refused_by_name(self) -> None:
        total = torch.arange(12.0).view(3, 4) * 3 + 3
        for sums, refusals in self.run_job(views):
            self.assertEqual([-3.0, -6.0, -9.0], sums["negative"])
            self.assertEqual(total[:, :1].expand(3, 4).tolist(), sums["expanded"])
            self.assertEqual(total[::2, 1::2].tolist(), sums["strided"])
            self.assertEqual(4.5, sums["scalar"])
            self.assertEqual(total.flatten().tolist(), sums["image"])
            self.assertEqual(total.tolist(), sums["subclass"])
            self.assertEqual(total.t()[1:3].tolist(), sums["in place"])
            for text, why in zip(refusals, ("share memory", "no memory", "no memory", "quantized")):
                self.assertRegex(text, f"(of another kind|scaled).*{why}")

    def test_what_is_broadcast_has_the_numbers_of_the_root(self) -> None:
        expected = {
            "conjugate": [2 - 3j, 2 - 3j],
            "negative": [-3.0, -3.0],
            "mask": [[1.0, 2.0, 3.0, 4.0]] * 3,
            "column": [1.0] * 3,
            "half": [1.0] * 2,
            "flag": True,
            "inferred": [1.0] * 2,
        }
        for rank, (got, text) in enumerate(self.run_job(shared_values)):
            self.assertEqual(expected, got)
            if rank != 1:
                self.assertRegex(text, "tensor rows share memory")

    def test_a_buffer_whose_elements_share_memory_is_that_of_rank_0(self) -> None:
        for first, later in self.run_job(expanded_buffer):
            self.assertEqual([[0.0, 1.0, 2.0, 3.0]] * 3, first)
            self.assertEqual([[0.0, 1.0, 2.0, 3.0]] * 3, later)

    def test_results_go_into_the_flat_tensor_of_which_all_gradients_are_views(self) -> None:
        steps = [flat_of(average(step)) for step in range(4)]
        expected = [steps[0], steps[1], steps[1] + steps[2], steps[3]]
        for form in FORMS:
            for got, same in self.run_job(flat_gradients, form):
                self.assert_close(expected, got)
                self.assertTrue(same)

    def test_results_keep_the_strides_of_the_gradient_that_is_there(self) -> None:
        expected = average()
        for got, same in self.run_job(strided_gradient):
            self.assertTrue(same)
            self.assert_close(expected, got)

    def test_a_graph_of_gradients_is_right_or_refused(self) -> None:
        def with_penalty(rank: int) -> list[Any]:
            net = model()
            loss = loss_of(net, rank)
            inner = torch.autograd.grad(loss, list(net.parameters()), create_graph=True)
            (loss + sum(g.square().sum() for g in inner)).backward()
            return gradients(net)

        each = [with_penalty(rank) for rank in range(3)]
        expected = [torch.stack(of_all).mean(0) for of_all in zip(*each, strict=True)]
        for text, first, second, has_graph in self.run_job(graph_of_gradients):
            self.assertIn("create_graph=True", text)
            self.assertIn("torch.autograd.grad", text)
            self.assert_close(expected, first)
            self.assert_close(expected, second)
            self.assertFalse(has_graph)

    def test_a_gradient_has_the_dtype_that_the_parameter_allows(self) -> None:
        for got in self.run_job(gradient_dtypes):
            if got is None:
                self.skipTest("this torch has no grad_dtype")
            narrow = torch.tensor(2.0, dtype=torch.bfloat16).item()
            wide = 2 * (1 + 1 / 1024)
            self.assertEqual(
                [(torch.float32, wide), (torch.bfloat16, narrow), (torch.float32, wide)], got
            )

    def test_what_autograd_has_saved_is_not_written(self) -> None:
        for rank, (retained, kept) in enumerate(self.run_job(saved_buffers)):
            self.assertEqual(((2.0 + 3.0 + 4.0) / 3, 2.0), retained)
            self.assertEqual((2.0 * (2.0 + rank), 4.0), kept)


if __name__ == "__main__":
    main()
