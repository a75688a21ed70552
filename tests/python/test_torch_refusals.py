# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""What basin.torch refuses: the error names the parameter and an alternative.

Usage: test_torch_refusals.py BASIND LIBBASIN
"""

import functools
import re
from typing import Any

from jobs import require

require("numpy", "torch")
import numpy as np  # noqa: E402 - ends above when there is none
import torch  # noqa: E402
from torch import nn  # noqa: E402
from torch_jobs import (  # noqa: E402
    TorchTest,
    average,
    batch,
    expect,
    gradients,
    hooked,
    loss_of,
    main,
    model,
    process_group_of_one,
    session,
    sgd,
    trainer,
)

# ---- workers


def step_within_backward(rank: int) -> Any:
    with trainer() as (_, net, optimizer):
        texts: list[str] = []
        x = batch(rank).requires_grad_()
        x.register_hook(lambda _: texts.append(expect("FailedPrecondition", optimizer.step)))
        net(x).square().mean().backward()
        return texts, gradients(net)


def twice_in_one_backward(rank: int) -> Any:
    from torch.utils.checkpoint import checkpoint

    with session() as bt:
        layer = nn.Linear(3, 3).double()
        sgd(layer, bt)
        x = torch.ones(1, 3, dtype=torch.float64, requires_grad=True)
        hidden: Any = checkpoint(layer, x, use_reentrant=True)
        hidden = checkpoint(layer, hidden, use_reentrant=True)
        return expect("Unsupported", hidden.sum().backward)


def refusals(rank: int) -> Any:
    with session() as bt:
        net = model()
        texts = {"lbfgs": expect("Unsupported", sgd_with, torch.optim.LBFGS, net, bt)}
        sgd(net, bt)
        handle = net[0].weight.register_post_accumulate_grad_hook(lambda p: None)
        texts["hook"] = expect("Unsupported", loss_of(net, rank).backward)
        handle.remove()
        embedding = nn.Embedding(4, 2, sparse=True)
        sgd(embedding, bt)
        loss = embedding(torch.tensor([1])).sum()
        texts["sparse"] = expect("Unsupported", loss.backward)
        complex_net = nn.Linear(2, 2).to(torch.complex64)
        texts["complex"] = expect("Unsupported", sgd, complex_net, bt)
        texts["names"] = expect(
            "InvalidArgument",
            lambda: bt.DistributedOptimizer(
                torch.optim.SGD(net.parameters(), lr=0.1), list(net.named_parameters())[1:]
            ),
        )
        return texts


@process_group_of_one()
def made_before_shutdown(rank: int) -> Any:
    """An optimizer and a model of torch's DistributedDataParallel, used after another init()."""
    net = model()
    with session() as bt:
        optimizer = sgd(net, bt)
        ddp, _ = hooked(bt, model())
        wrapped = bt.DistributedDataParallel(model())
    local = loss_of(net, rank)
    local.backward()
    texts = [
        expect("FailedPrecondition", call)
        for call in (
            optimizer.step,
            optimizer.sync_gradients,
            optimizer.wait_round,
            optimizer.retry_round,
            lambda: optimizer.contribute(samples=1),
            lambda: optimizer.no_sync().__enter__(),
            lambda: wrapped.join().__enter__(),
            lambda: loss_of(wrapped, rank),
            loss_of(ddp, rank).backward,
        )
    ]
    with torch.no_grad():
        loss_of(wrapped, rank)  # Evaluation is allowed.
    torch.optim.SGD(net.parameters(), lr=0.1).step()  # The model is not wrapped.
    net.load_state_dict(model().state_dict())
    net.zero_grad()
    with session() as bt:
        loss_of(net, rank).backward()
        texts.append(expect("FailedPrecondition", optimizer.step))
        again = sgd(net, bt)
        again.zero_grad()
        loss_of(net, rank).backward()
        again.step()
    return texts, gradients(net)


def sgd_with(kind: Any, net: nn.Module, bt: Any) -> Any:
    return bt.DistributedOptimizer(kind(net.parameters()), net.named_parameters())


def shards(rank: int) -> Any:
    from torch.distributed.tensor import distribute_tensor, init_device_mesh

    with session() as bt, process_group_of_one():
        net = model()
        mesh = init_device_mesh("cpu", (1,))
        net[2].weight = nn.Parameter(distribute_tensor(net[2].weight.detach(), mesh))
        return expect("Unsupported", sgd, net, bt)


def elsewhere(rank: int) -> Any:
    with session() as bt:
        net = model()
        net[2] = nn.Linear(8, 3, device="meta")
        return expect("Unsupported", sgd, net, bt)


def wrong_types(rank: int) -> Any:
    """By mistake: the error, and the text that it must contain."""
    with trainer() as (bt, net, optimizer):
        loss_of(net, rank).backward()
        one, flags = torch.ones(1), torch.tensor([True, False])
        average: dict[str, Any] = {"op": bt.Average}
        weighted = {"op": bt.WeightedAverage, "weight_by": "samples", "contributes": "sum"}
        reduce = bt.allreduce
        calls: dict[str, tuple[str, Any]] = {
            "counts cannot be {": (
                "InvalidArgument",
                lambda: reduce(one, "x", counts={"samples": 3}, **weighted),
            ),
            "counts cannot be 3": (
                "InvalidArgument",
                lambda: reduce(one, "x", counts=3, **weighted),
            ),
            "op cannot be True": ("InvalidArgument", lambda: reduce(one, "x", op=True)),
            "op cannot be 'average'": ("InvalidArgument", lambda: sgd(model(), bt, op="average")),
            "prescale_factor cannot be True": (
                "InvalidArgument",
                lambda: reduce(one, "x", prescale_factor=True, **average),
            ),
            "postscale_factor cannot be '2'": (
                "InvalidArgument",
                lambda: reduce(one, "x", postscale_factor="2", **average),
            ),
            "gradient_predivide_factor cannot be True": (
                "InvalidArgument",
                lambda: reduce(one, "x", gradient_predivide_factor=True, **average),
            ),
            "divide_by_present cannot be 1": (
                "InvalidArgument",
                lambda: sgd(model(), bt, divide_by_present=1),
            ),
            "weight_by=['samples']": (
                "InvalidArgument",
                lambda: reduce(one, "x", **{**weighted, "weight_by": ["samples"]}),
            ),
            "backward_passes_per_step cannot be 2.0": (
                "InvalidArgument",
                lambda: sgd(model(), bt, backward_passes_per_step=2.0),
            ),
            "backward_passes_per_step=2 adds": (
                "InvalidArgument",
                lambda: sgd(
                    model(),
                    bt,
                    backward_passes_per_step=2,
                    op=bt.WeightedAverage,
                    weight_by="tokens",
                    contributes="mean",
                ),
            ),
            "samples cannot be True": (
                "InvalidArgument",
                lambda: optimizer.contribute(samples=True),
            ),
            "tokens cannot be tensor(True)": (
                "InvalidArgument",
                lambda: optimizer.contribute(tokens=flags[0]),
            ),
            "given tensor(True) for mlm": (
                "InvalidArgument",
                lambda: bt.total_counts({"mlm": flags[0]}),
            ),
            "max_norm cannot be True": (
                "InvalidArgument",
                lambda: bt.clip_grad_norm_(optimizer, True),
            ),
            "max_norm cannot be tensor([1., 1.])": (
                "InvalidArgument",
                lambda: bt.clip_grad_norm_(optimizer, torch.ones(2)),
            ),
            "max_norm cannot be tensor(True)": (
                "InvalidArgument",
                lambda: bt.clip_grad_norm_(optimizer, flags[0]),
            ),
            "max_norm cannot be tensor(..., device='meta'": (
                "InvalidArgument",
                lambda: bt.clip_grad_norm_(optimizer, torch.ones((), device="meta")),
            ),
            "norm_type cannot be 1: the reply": (
                "Unsupported",
                lambda: bt.clip_grad_norm_(optimizer, 1.0, 1),
            ),
            "norm_type cannot be inf": (
                "Unsupported",
                lambda: bt.clip_grad_norm_(optimizer, 1.0, norm_type=float("inf")),
            ),
            "max_norm cannot be -1.0": (
                "InvalidArgument",
                lambda: bt.clip_grad_norm_(optimizer, -1.0),
            ),
            "a tuple among the parameters": (
                "InvalidArgument",
                lambda: bt.clip_grad_norm_(net.named_parameters(), 1.0),
            ),
            "a str among the parameters": (
                "InvalidArgument",
                lambda: bt.clip_grad_norm_(net.state_dict(), 1.0),
            ),
            "Tensor x has dtype torch.bool": ("Unsupported", lambda: reduce(flags, "x", **average)),
            **wrong_values(bt, net, optimizer),
        }
        texts = {words: expect(kind, call) for words, (kind, call) in calls.items()}
        unknown = unknown_options(bt, net, one)
        # Correct arguments that look wrong: numbers of NumPy, a generator.
        right = [
            reduce(one, "x", prescale_factor=scale, **average).item()
            for scale in (np.float32(2.0), np.array(2.0), torch.tensor(2.0))
        ]
        norms = [
            float(bt.clip_grad_norm_((p for p in net.parameters()), np.float64(1e9))),
            float(bt.clip_grad_norm_(optimizer, torch.tensor(1e9), 2)),
            float(bt.clip_grad_norm_(net, 1e9, norm_type=2.0, error_if_nonfinite=True)),
        ]
        optimizer.contribute(tokens=torch.tensor([True, True, False]).sum())
        norm = optimizer.last_round().norm
        return texts, unknown, unnamed_counts(bt, optimizer), right, norms == [norm] * 3


def wrong_values(bt: Any, net: Any, optimizer: Any) -> dict[str, tuple[str, Any]]:
    """Arguments on which ctypes, NumPy or a loop would fail, each with the required words of its
    error."""
    import basin

    one, two, many = torch.ones(1), torch.ones(2), np.ones(2)
    average: dict[str, Any] = {"op": bt.Average}
    weighted = {"op": bt.WeightedAverage, "weight_by": "samples"}
    distributed, reduce = bt.DistributedOptimizer, bt.allreduce
    plain = torch.optim.SGD(net.parameters(), lr=0.1)
    named = list(net.named_parameters())
    calls = {
        f"samples cannot be {(1 << 48) + 1}": lambda: optimizer.contribute(samples=(1 << 48) + 1),
        f"tokens cannot be {1 << 63}": lambda: optimizer.contribute(tokens=1 << 63),
        f"samples cannot be {(1 << 64) + 3}": lambda: reduce(
            one, "x", contributes="sum", counts=basin.Counts(samples=(1 << 64) + 3), **weighted
        ),
        "given 281474976710657 for mlm": lambda: bt.total_counts({"mlm": (1 << 48) + 1}),
        "samples cannot be array([1., 1.])": lambda: optimizer.contribute(samples=many),
        "device='meta'": lambda: optimizer.contribute(samples=torch.tensor(1, device="meta")),
        "contributes=array([1., 1.])": lambda: reduce(one, "x", contributes=many, **weighted),
        "gradient_predivide_factor cannot be array": lambda: reduce(
            one, "x", gradient_predivide_factor=many, **average
        ),
        "prescale_factor cannot be 1000": lambda: reduce(
            one, "x", prescale_factor=10**400, **average
        ),
        "wire_dtype cannot be array": lambda: distributed(plain, named, wire_dtype=many),
        "wire_dtype cannot be 'bfloat16'": lambda: distributed(plain, named, wire_dtype="bfloat16"),
        "name cannot be 5": lambda: reduce(one, 5, **average),
        "name cannot be None": lambda: bt.barrier(None),
        "name cannot be 'a\\x00b'": lambda: bt.total_counts({"mlm": 1}, name="a\0b"),
        "given a list as x": lambda: reduce([1.0], "x", **average),
        "given a int as x.0": lambda: bt.grouped_allreduce([1], "x", **average),
        "given a Tensor as group x": lambda: bt.grouped_allreduce(two, "x", **average),
        "poll() was given a int": lambda: bt.poll(5),
        "root_rank cannot be None": lambda: bt.broadcast_parameters(net, None),
        "root_rank cannot be 0.0": lambda: bt.broadcast_object(1, 0.0),
        "timeout cannot be '1'": lambda: bt.rejoin("1"),
        "clip_grad_norm_() was given a NoneType": lambda: bt.clip_grad_norm_(None, 1.0),
        "given a Parameter without a name": lambda: distributed(plain, net.parameters()),
        "Parameter without a name, but workers match": lambda: distributed(
            plain, [(1, parameter) for _, parameter in named]
        ),
        "given a Linear. Pass model.named_parameters()": lambda: distributed(plain, net[0]),
        "given a generator. Give it an optimizer": lambda: distributed(net.parameters()),
        "given a Tensor without a name": lambda: bt.broadcast_parameters([one, two]),
        "broadcast_parameters() was given a Parameter": lambda: bt.broadcast_parameters(
            net.parameters()
        ),
        "broadcast_buffers() was given a list": lambda: bt.broadcast_buffers([one]),
        "broadcast_optimizer_state() was given a list": lambda: bt.broadcast_optimizer_state([]),
        "DistributedDataParallel() was given a generator": lambda: bt.DistributedDataParallel(
            net.parameters()
        ),
    }
    return {words: ("InvalidArgument", call) for words, call in calls.items()}


def unknown_options(bt: Any, net: Any, one: torch.Tensor) -> dict[str, str]:
    """By call: the error for an unknown option."""
    plain = torch.optim.SGD(net.parameters(), lr=0.1)
    calls = {
        **{
            name: functools.partial(getattr(bt, name), one, "x", op=bt.Sum)
            for name in ("allreduce", "allreduce_", "allreduce_async", "allreduce_async_")
        },
        **{
            name: functools.partial(getattr(bt, name), [one], "x", op=bt.Sum)
            for name in ("grouped_allreduce", "grouped_allreduce_async_")
        },
        "DistributedOptimizer": functools.partial(bt.DistributedOptimizer, plain),
        "DistributedDataParallel": functools.partial(bt.DistributedDataParallel, model()),
    }
    texts = {}
    for name, call in calls.items():
        try:
            call(averge=True)
        except TypeError as error:
            texts[name] = str(error)
    return texts


def unnamed_counts(bt: Any, optimizer: Any) -> list[str]:
    """The errors for counts without a unit, or with a wrong one."""
    texts = []
    for owner in (optimizer, bt.DistributedDataParallel(model())):
        for arguments, options in (((4,), {}), ((), {"sample": 4}), ((4,), {"tokens": 3})):
            try:
                owner.contribute(*arguments, **options)
            except TypeError as error:
                texts.append(str(error))
    return texts


def joins_as_torch_says(rank: int) -> Any:
    """The arguments that torch's join() has."""
    with session() as bt:
        wrapped = bt.DistributedDataParallel(model())
        texts = [
            expect("Unsupported", wrapped.join(**{option: True}).__enter__)
            for option in ("divide_by_initial_world_size", "throw_on_early_termination")
        ]
        texts.append(expect("Unsupported", wrapped.join(True).__enter__))
        with wrapped.join(divide_by_initial_world_size=False, enable=False):
            loss_of(wrapped, rank).backward()
        return texts, gradients(wrapped)


def after_finished(rank: int) -> Any:
    """The calls that the last worker may no longer make, and those that it may."""
    with session(min_workers=1) as bt:
        net = model()
        wrapped = bt.DistributedDataParallel(net)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        loss_of(wrapped, rank).backward()
        optimizer.step()
        optimizer.zero_grad()
        bt.barrier("stepped")
        if rank < 2:
            loss_of(wrapped, rank).backward()  # This does not wait for the other one.
            bt.shutdown()
            return wrapped.last_round().contributors
        bt.finished()
        texts = {
            name: expect("FailedPrecondition", call)
            for name, call in {
                "backward()": loss_of(wrapped, rank).backward,
                "contribute()": lambda: wrapped.contribute(samples=1),
                "no_sync()": lambda: wrapped.no_sync().__enter__(),
                "join()": lambda: wrapped.join().__enter__(),
                "sync_gradients()": wrapped.sync_gradients,
                "retry_round()": wrapped.retry_round,
                "wait_round()": wrapped.wait_round,
                "allreduce()": lambda: bt.allreduce(torch.ones(1), "x", op=bt.Sum),
                "total_counts()": lambda: bt.total_counts({"a": 1}),
                "barrier()": bt.barrier,
                "broadcast_object()": lambda: bt.broadcast_object(1),
                "allgather_object()": lambda: bt.allgather_object(1),
                "DistributedOptimizer()": lambda: sgd(model(), bt),
                "rejoin()": lambda: bt.rejoin(1.0),
            }.items()
        }
        optimizer.zero_grad()
        texts["step()"] = expect("FailedPrecondition", optimizer.step)
        with torch.no_grad():
            loss_of(wrapped, rank)
        bt.shutdown()
        return texts


def other_op(rank: int) -> Any:
    """Rank 2 uses a sum where the others use an average."""
    with session() as bt:
        net = model()
        optimizer = sgd(net, bt, op=bt.Sum if bt.rank() == 2 else bt.Average)
        text = ""
        if bt.rank() == 2:
            text = expect("Mismatch", loss_of(net, rank).backward)
        else:
            loss_of(net, rank).backward()
        contributors = optimizer.last_round().contributors
        optimizer.step()
        return bt.rank(), text, len(contributors), [p.detach() for p in net.parameters()]


def other_shape(rank: int) -> Any:
    """Rank 2 has a wider layer than the others, and begins after them."""
    import basin

    with session() as bt:
        odd = bt.rank() == 2
        width = 9 if odd else 8
        net = nn.Sequential(nn.Linear(5, width), nn.Linear(width, 3)).double()
        text = ""
        if odd:
            bt.barrier("made")
        try:
            sgd(net, bt)
            if not odd:
                bt.barrier("made")
            loss_of(net, rank).backward()
        except basin.Mismatch as error:
            text = str(error)
        return odd, text


# ---- checks


class RefusalsTest(TorchTest):
    def test_a_step_within_the_backward_is_refused(self) -> None:
        for texts, result in self.run_job(step_within_backward):
            self.assertEqual(1, len(texts))
            self.assertIn("backward() has returned", texts[0])
            self.assert_close(average(), result)

    def test_a_hook_that_fires_twice_is_refused_by_name(self) -> None:
        for text in self.run_job(twice_in_one_backward):
            self.assertRegex(text, "parameter (weight|bias).*use_reentrant=False")

    def test_what_was_made_before_shutdown_is_refused(self) -> None:
        calls = [
            *("step() was called after shutdown(), when the optimizer no longer",),
            *(f"{call}() was called" for call in ("sync_gradients", "wait_round", "retry_round")),
            *(f"{call}() was called" for call in ("contribute", "no_sync", "join")),
            *("forward() was called after shutdown(), when the model no longer",),
            *("backward() was called after shutdown(), when the DDPState no longer",),
            "step() was called after shutdown()",  # After another init().
        ]
        for texts, result in self.run_job(made_before_shutdown):
            self.assertEqual(len(calls), len(texts))
            for call, text in zip(calls, texts):
                self.assertIn(call, text)
                self.assertIn("Create another one after init()", text)
            self.assert_close(average(), result)

    def test_what_cannot_be_reduced_is_refused_by_name(self) -> None:
        for texts in self.run_job(refusals):
            self.assertIn("LBFGS", texts["lbfgs"])
            self.assertIn("0.weight", texts["hook"])
            self.assertIn("of parameter weight of lane gradients.1 is sparse", texts["sparse"])
            self.assertIn("complex64", texts["complex"])
            self.assertIn("group0.0", texts["names"])

    def test_wrong_types_are_refused_with_the_argument_and_a_way_out(self) -> None:
        for texts, unknown, unnamed, right, same_norm in self.run_job(wrong_types):
            self.assertEqual(55, len(texts))
            for words, text in texts.items():
                self.assertIn(words, text)
                self.assertRegex(text, r"(Use|Pass|Give|Count|Convert|Say) ")
            self.assertEqual(([2.0] * 3, True), (right, same_norm))
            self.assertEqual(6, len(unnamed))
            for text in unnamed:
                self.assertRegex(text, r"^contribute\(\) was given (4|sample=4), but ")
                self.assertIn("Call contribute(samples=..., tokens=...)", text)
            self.assertEqual(8, len(unknown))
            for call, text in unknown.items():
                self.assertIn(f"{call}() got an unexpected keyword argument 'averge'", text)
                self.assertIn("gradient_predivide_factor", text)

    def test_join_accepts_the_arguments_of_torch_or_says_why_not(self) -> None:
        for texts, result in self.run_job(joins_as_torch_says):
            self.assertIn("join(divide_by_initial_world_size=True)", texts[0])
            self.assertIn("divided by its contributors", texts[0])
            self.assertIn("join(throw_on_early_termination=True)", texts[1])
            self.assertEqual(texts[0], texts[2])
            self.assert_close(average(), result)

    def test_after_finished_every_call_is_refused(self) -> None:
        *others, texts = self.run_job(after_finished)
        self.assertEqual([("w0", "w1")] * 2, others)
        self.assertEqual(15, len(texts))
        for call, text in texts.items():
            self.assertRegex(text, rf"^{re.escape(call)} was (called|used) after finished\(\)")

    def test_a_shard_is_refused_by_name(self) -> None:
        for text in self.run_job(shards):
            self.assertRegex(text, "2.weight is a DTensor.*do not use FSDP")

    def test_another_device_is_refused_by_name(self) -> None:
        for text in self.run_job(elsewhere):
            self.assertRegex(text, "2.weight is on meta.*give it values on the CPU")

    def test_criterion_1_1_another_op_is_reported_and_the_others_continue(self) -> None:
        outcomes = self.run_job(other_op)
        for rank, text, contributors, _ in outcomes:
            self.assertEqual(2, contributors)
            if rank == 2:
                self.assertRegex(text, "SUM.*AVERAGE|AVERAGE.*SUM")
                self.assertRegex(text, "w[01].*w2|w2.*w[01]")
        self.assert_same_bits([parameters for *_, parameters in outcomes])

    def test_another_shape_is_reported_by_name(self) -> None:
        for odd, text in self.run_job(other_shape):
            if odd:
                self.assertRegex(
                    text,
                    r"Only here: 0.bias \(float64 \[9\]\), "
                    r".*Only at the others: 0.bias \(float64 \[8\]\), .*same model",
                )
            else:
                self.assertEqual("", text)


if __name__ == "__main__":
    main()
