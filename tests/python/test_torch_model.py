# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""What belongs to a model: all its parameters and buffers are shared, a part that was replaced or
added later is adopted or refused by name, and an error of one model is none of another.

Usage: test_torch_model.py BASIND LIBBASIN
"""

import logging
from typing import Any

from jobs import logged, message, require

require("numpy", "torch")
import numpy as np  # noqa: E402 - ends above when there is none
import torch  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn.utils import parametrizations  # noqa: E402
from torch_jobs import (  # noqa: E402
    TorchTest,
    expect,
    gradients,
    loss_of,
    main,
    model,
    session,
    sgd,
    take_step,
)

Sgd = torch.optim.SGD


def values(net: nn.Module) -> dict[str, Any]:
    return {n: t.tolist() for n, t in (*net.named_parameters(), *net.named_buffers())}


class Features(nn.Module):
    """A buffer that is not persistent, tied weights, and a state_dict() without most of it."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("frequencies", torch.randn(5, 4).double(), persistent=False)
        self.encode = nn.Linear(8, 3).double()
        self.decode = nn.Linear(8, 3).double()
        self.decode.weight = self.encode.weight
        self.register_state_dict_post_hook(self._drop)

    @staticmethod
    def _drop(module: nn.Module, state: dict[str, Any], *_: Any) -> None:
        for name in list(state):
            if "bias" not in name:
                del state[name]

    frequencies: torch.Tensor

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        phase = x @ self.frequencies
        features = torch.cat([phase.sin(), phase.cos()], 1)
        out: torch.Tensor = self.encode(features) + self.decode(features)
        return out


class Filtered(nn.Sequential):
    """Its named_parameters(), and so parameters(), leave out what is not in its last module, and
    its named_buffers() leave out all."""

    def named_parameters(self, *arguments: Any, **options: Any) -> Any:
        for name, parameter in super().named_parameters(*arguments, **options):
            if name.startswith("2."):
                yield name, parameter

    def named_buffers(self, *_: Any, **__: Any) -> Any:
        return iter(())


class Cached(nn.Module):
    """Its first forward registers a buffer."""

    mean: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.out = nn.Linear(5, 3).double()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if "mean" not in self._buffers:
            self.register_buffer("mean", torch.zeros(5).double(), persistent=False)
        with torch.no_grad():
            self.mean.lerp_(x.mean(0), 0.1)
        out: torch.Tensor = self.out(x - self.mean)
        return out


class Adapted(nn.Module):
    def __init__(self, base: nn.Linear) -> None:
        super().__init__()
        self.base = base
        self.a = nn.Parameter(torch.ones(base.in_features, 2).double())
        self.b = nn.Parameter(torch.ones(2, base.out_features).double())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.base(x) + x @ self.a @ self.b
        return out


# ---- workers


def everything_shared(rank: int, form: str) -> Any:
    with session() as bt:
        torch.manual_seed(rank)
        net = Features()
        if form == "model":
            call: Any = bt.DistributedDataParallel(net)
            optimizer = Sgd(call.parameters(), lr=0.1)
        else:
            bt.broadcast_parameters(net)
            call, optimizer = net, sgd(net, bt)
        first = values(net)
        for step in range(2):
            take_step(call, optimizer, rank, step)
        return first, values(net)


def filtered(rank: int, form: str) -> Any:
    with session() as bt:
        torch.manual_seed(rank)
        net = Filtered(nn.Linear(5, 4), nn.BatchNorm1d(4), nn.Linear(4, 3)).double()
        parts = [parameter for part in net for parameter in part.parameters()]
        if form == "model":
            call: Any = bt.DistributedDataParallel(net)
            optimizer = Sgd(parts, lr=0.1)
        else:
            call = net
            bt.broadcast_parameters(net)
            named = nn.Module.named_parameters(net)
            optimizer = bt.DistributedOptimizer(Sgd(parts, lr=0.1), named)
        first = {name: tensor.tolist() for name, tensor in net.state_dict().items()}
        for step in range(2):
            take_step(call, optimizer, rank, step)
        if form == "optimizer":
            bt.broadcast_buffers(net)
        return first, {name: tensor.tolist() for name, tensor in net.state_dict().items()}


def lazy_values(rank: int) -> Any:
    """Workers whose first forward gives a lazy layer values from different seeds. The model is not
    shared before it."""
    with session() as bt:
        torch.manual_seed(rank)
        net = nn.Sequential(nn.LazyLinear(4), nn.Linear(4, 2)).double()
        optimizer = sgd(net, bt)
        text = message("Mismatch", loss_of(net, rank).backward)
        bt.broadcast_parameters(net)
        for step in range(2):
            take_step(net, optimizer, rank, step)
        return text, values(net)


def late_buffer(rank: int) -> Any:
    with session() as bt:
        net = Cached()
        ddp = bt.DistributedDataParallel(net)
        optimizer = Sgd(ddp.parameters(), lr=0.1)
        for step in range(3):
            take_step(ddp, optimizer, rank, step)
        return values(net)


def replaced_head(rank: int, same: bool) -> Any:
    """A head of another size, from the same seed or not."""
    with session() as bt:
        net = model()
        ddp = bt.DistributedDataParallel(net)
        loss_of(ddp, rank).backward()
        torch.manual_seed(0 if same else rank)
        net[2] = nn.Linear(8, 2).double()
        optimizer = Sgd(ddp.parameters(), lr=0.1)
        optimizer.zero_grad()
        text = message("Mismatch", loss_of(ddp, rank, 1).backward)
        if text or not same:
            # The way out: the same values everywhere.
            bt.broadcast_parameters(net)
        for step in range(2):
            take_step(ddp, optimizer, rank, step)
        return text, values(net)


def added(rank: int) -> Any:
    """Adapters and parametrizations, and what remains when they are removed."""
    with session() as bt:
        net = model()
        ddp = bt.DistributedDataParallel(net)
        texts = []
        base, net[2] = net[2], Adapted(net[2])
        texts.append(expect("FailedPrecondition", loss_of(ddp, rank).backward))
        for parameter in (*net[0].parameters(), *base.parameters()):
            parameter.requires_grad_(False)  # The backward reaches the adapters alone.
        texts.append(expect("FailedPrecondition", loss_of(ddp, rank).backward))
        net[2].requires_grad_(False)
        net[0].requires_grad_(True)
        loss_of(ddp, rank).backward()  # Frozen adapters are no parameters of the training.
        net[2].a.requires_grad_(True)
        texts.append(expect("FailedPrecondition", loss_of(ddp, rank).backward))
        net[2] = base
        base.requires_grad_(True)
        parametrizations.weight_norm(net[0])
        texts.append(expect("FailedPrecondition", loss_of(ddp, rank).backward))
        return texts


def spectral(rank: int) -> Any:
    """A parametrization that keeps the parameter, and adds buffers."""
    with session() as bt:
        net = model()
        ddp = bt.DistributedDataParallel(net)
        optimizer = Sgd(ddp.parameters(), lr=0.1)
        torch.manual_seed(rank)
        parametrizations.spectral_norm(net[0])
        for step in range(2):
            take_step(ddp, optimizer, rank, step)
        return values(net)


def one_broken_model(rank: int) -> Any:
    """Models beside one whose parameter was replaced under its optimizer."""
    with session() as bt:
        broken, good, plain = model(), model(), model()
        bt.broadcast_parameters(broken)
        old = sgd(broken, bt)
        ddp = bt.DistributedDataParallel(good)
        optimizer = Sgd(ddp.parameters(), lr=0.1)
        broken[2].weight = nn.Parameter(broken[2].weight.detach().clone())
        loss_of(plain, rank).backward()
        alone = gradients(plain)
        for step in range(2):
            take_step(ddp, optimizer, rank, step)
        texts = [expect("FailedPrecondition", loss_of(broken, rank).backward)]
        broken.zero_grad()
        texts.append(expect("FailedPrecondition", old.step))
        seen: list[Any] = []
        net = model()
        optimizer = sgd(net, bt)
        net[0].weight.register_post_accumulate_grad_hook(seen.append)
        texts.append(expect("Unsupported", loss_of(net, rank).backward))
        loss_of(ddp, rank).backward()
        return texts, alone, values(good), len(seen)


def warned_of(rank: int, form: str) -> Any:
    """The warnings of a training with batch normalization and an average of the model."""
    with session() as bt:
        net = nn.Sequential(nn.Linear(5, 4), nn.BatchNorm1d(4), nn.Linear(4, 3)).double()
        average = torch.optim.swa_utils.AveragedModel(net)
        call: Any = net
        if form == "model":
            call = bt.DistributedDataParallel(net)
            optimizer: Any = Sgd(net.parameters(), lr=0.1)
        else:
            bt.broadcast_parameters(net)
            optimizer = sgd(net, bt)
        if form != "optimizer":
            bt.broadcast_parameters(average)
        with logged(logging.WARNING) as texts:
            for step in range(4):
                take_step(call, optimizer, rank, step)
                average.update_parameters(net)
                if form == "shared":
                    bt.broadcast_buffers(net)
        return texts


def beside(rank: int) -> Any:
    """Adapters that another optimizer trains, which is not a distributed one."""
    with session() as bt:
        net = model()
        bt.broadcast_parameters(net)
        optimizer = sgd(net, bt)
        net[2] = Adapted(net[2])
        other = Sgd([net[2].a, net[2].b], lr=0.1)
        with logged(logging.WARNING) as texts:
            for step in range(2):
                other.zero_grad()
                take_step(net, optimizer, rank, step)
                other.step()
        return texts


def next_phase(rank: int) -> Any:
    """The optimizer of a second phase, after the first one was deleted."""
    with session() as bt:
        net = model()
        optimizer = sgd(net, bt)
        loss_of(net, rank).backward()
        optimizer.step()
        optimizer.zero_grad()
        del optimizer
        text = expect("FailedPrecondition", sgd, net, bt)
        following = Sgd(net.parameters(), lr=0.2)
        loss_of(net, rank, 1).backward()
        following.step()
        return text, values(net)


def numpy_rate(rank: int) -> Any:
    with session() as bt:
        net = model()
        optimizer = torch.optim.Adam(net.parameters(), lr=0.1)
        if rank == 1:
            loss_of(net, 0).backward()
            optimizer.step()
            for group in optimizer.param_groups:
                group["lr"] = np.float64(0.05)
                group["seen"] = np.arange(3)
        bt.broadcast_optimizer_state(optimizer, root_rank=1)
        group = optimizer.param_groups[0]
        moments = [optimizer.state[p]["exp_avg"].tolist() for p in net.parameters()]
        return group["lr"], group["seen"].tolist(), moments


def numpy_moments(rank: int) -> Any:
    """Moments that torch itself cannot load."""
    with session() as bt:
        net = model()
        optimizer = torch.optim.Adam(net.parameters(), lr=0.1)
        loss_of(net, 0).backward()
        optimizer.step()
        optimizer.state[net[0].bias]["norms"] = np.ones(3)
        return expect("InvalidArgument", bt.broadcast_optimizer_state, optimizer)


# ---- tests


class Model(TorchTest):
    def test_all_parameters_and_buffers_are_those_of_the_root(self) -> None:
        for form in ("optimizer", "model"):
            each = self.run_job(everything_shared, form)
            self.assertEqual(
                {"frequencies", "encode.weight", "encode.bias", "decode.bias"}, set(each[0][0])
            )
            for got in each[1:]:
                self.assertEqual(each[0], got)

    def test_a_model_that_hides_parameters_and_buffers_is_shared_and_reduced_whole(self) -> None:
        for form in ("optimizer", "model"):
            each = self.run_job(filtered, form)
            self.assertEqual(9, len(each[0][0]))
            for got in each[1:]:
                self.assertEqual(each[0], got)

    def test_a_lazy_layer_with_different_values_is_refused_by_name(self) -> None:
        each = self.run_job(lazy_values)
        texts = [text for text, _ in each]
        self.assertEqual(2, sum(map(bool, texts)))  # One of three is the reference.
        for text, got in each:
            if text:
                self.assertRegex(text, "Only here: 0.bias made by a forward with the values")
                self.assertRegex(text, r"broadcast_parameters\(\) of the model")
            self.assertEqual(each[0][1], got)

    def test_a_buffer_that_a_forward_registers_is_that_of_rank_0(self) -> None:
        each = self.run_job(late_buffer)
        self.assertIn("mean", each[0])
        for got in each[1:]:
            self.assertEqual(each[0], got)

    def test_a_module_that_was_replaced_is_adopted_if_all_have_its_values(self) -> None:
        for text, got in (each := self.run_job(replaced_head, True)):
            self.assertEqual("", text)
            self.assertEqual(each[0][1], got)

    def test_a_module_that_was_replaced_by_different_ones_is_refused_by_name(self) -> None:
        each = self.run_job(replaced_head, False)
        texts = [text for text, _ in each]
        self.assertEqual(2, sum(map(bool, texts)))  # One of three is the reference.
        for text, got in each:
            if text:
                self.assertRegex(text, "Only here: 2.bias replaced by one with the values")
            self.assertEqual(each[0][1], got)

    def test_what_was_added_is_refused_by_name(self) -> None:
        names = ("2.a", "2.a", "2.a", "0.parametrizations.weight.original0")
        for texts in self.run_job(added):
            self.assertEqual(len(names), len(texts))
            for name, text in zip(names, texts, strict=True):
                self.assertRegex(text, f"Parameter {name} .*was added to the model")

    def test_a_parametrization_of_the_same_parameter_is_adopted(self) -> None:
        each = self.run_job(spectral)
        self.assertIn("0.parametrizations.weight.0._u", each[0])
        for got in each[1:]:
            self.assertEqual(each[0], got)

    def test_errors_of_a_model_are_those_of_its_own_backward_and_step(self) -> None:
        each = self.run_job(one_broken_model)
        for rank, (texts, alone, trained, seen) in enumerate(each):
            net = model()
            loss_of(net, rank).backward()
            self.assert_close(gradients(net), alone, 0.0)
            self.assertEqual(each[0][2], trained)
            for text in texts[:2]:
                self.assertIn("Parameter 2.weight of the model was replaced", text)
            self.assertRegex(texts[2], "Parameter .* has another post-accumulate hook")
            self.assertEqual(0, seen)

    def test_state_that_every_worker_has_for_itself_is_warned_of_once(self) -> None:
        for texts in self.run_job(warned_of, "optimizer"):
            self.assertEqual(2, len(texts), texts)
            self.assertRegex(texts[0], "AveragedModel is not shared")
            self.assertRegex(texts[1], "Buffer 1.running_(mean|var) changes .*broadcast_buffers")
        for form in ("model", "shared"):
            for texts in self.run_job(warned_of, form):
                self.assertEqual([], texts)

    def test_a_parameter_beside_the_reduced_ones_is_warned_of_once(self) -> None:
        for texts in self.run_job(beside):
            self.assertEqual(1, len(texts), texts)
            self.assertRegex(texts[0], r"SGD steps a parameter of shape \(8, 2\) .*not reduced")

    def test_the_optimizer_of_a_next_phase_is_one_of_torch(self) -> None:
        net = model()
        for step, rate in enumerate((0.1, 0.2)):
            optimizer = Sgd(net.parameters(), lr=rate)
            optimizer.zero_grad()
            torch.stack([loss_of(net, rank, step) for rank in range(3)]).mean().backward()
            optimizer.step()
        for text, got in self.run_job(next_phase):
            self.assertRegex(text, "also if that was deleted.*an optimizer of torch without it")
            for name, numbers in values(net).items():
                torch.testing.assert_close(torch.tensor(numbers), torch.tensor(got[name]))

    def test_optimizers_with_numbers_of_numpy_are_shared(self) -> None:
        each = self.run_job(numpy_rate)
        for rate, seen, moments in each:
            self.assertEqual((0.05, [0, 1, 2], each[1][2]), (rate, seen, moments))

    def test_an_array_of_numpy_in_the_state_of_a_parameter_is_refused_by_name(self) -> None:
        for text in self.run_job(numpy_moments):
            self.assertRegex(text, "State norms of parameter 1 .*make it a tensor")


if __name__ == "__main__":
    main()
