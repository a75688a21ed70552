# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""How .grad is computed: scales, weights, counts, norms and loss scales.

Usage: test_torch_arithmetic.py BASIND LIBBASIN
"""

import contextlib
import functools
import math
import warnings
from pathlib import Path
from typing import Any

from jobs import require

require("numpy", "torch")
import torch  # noqa: E402 - ends above when there is none
from torch import nn  # noqa: E402
from torch_jobs import (  # noqa: E402
    WORKERS,
    TorchTest,
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

SEEDS = range(6)


class Constant(nn.Module):
    """A model with a gradient that the caller chooses."""

    def __init__(self, size: int = 7) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(size))

    def forward(self, gradient: torch.Tensor) -> torch.Tensor:
        return (self.weight * gradient).sum()


def wanted(rank: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(7, generator=torch.Generator().manual_seed(100 * seed + rank))


def by(weight_by: str, contributes: str) -> dict[str, Any]:
    import basin

    return {"op": basin.WeightedAverage, "weight_by": weight_by, "contributes": contributes}


# ---- workers


def every_path(rank: int, ops: dict[str, dict[str, Any]]) -> Any:
    """One vector through every call that reduces, with the same options."""
    import basin

    results = {}
    for name, options in ops.items():
        options = {**options, "op": getattr(basin, options["op"])}
        counts = basin.Counts(samples=rank + 1) if "weight_by" in options else None
        with session() as bt, process_group_of_one():
            given = wanted(rank)
            paths = [
                bt.allreduce(given, "dense", counts=counts, **options),
                bt.allreduce_(given.clone(), "in place", counts=counts, **options),
                *bt.grouped_allreduce([given, given], "group", counts=counts, **options),
                *bt.grouped_allreduce_([given.clone()], "group_", counts=counts, **options),
            ]
            nets = [Constant(), Constant(), Constant()]
            optimizer = sgd(nets[0], bt, **options)
            wrapped = bt.DistributedDataParallel(nets[1], init_sync=False, **options)
            ddp, state = hooked(bt, nets[2], options)
            owners = [optimizer, wrapped, state]
            for owner in owners:
                owner.contribute(samples=rank + 1)
            losses = [nets[0](given), wrapped(given), ddp(given)]
            torch.autograd.backward(losses)
            paths += [net.weight.grad for net in nets]
            infos = [owner.last_round() for owner in owners]
            results[name] = paths, [info.spec.predivide for info in infos]
    return results


FLOATS = ("float64", "float32", "float16", "bfloat16")
INTEGERS = ("int64", "int32", "uint8")
EVERY_OP = ("Sum", "Average", "Min", "Max", "Product")


def small_numbers(rank: int, dtype: torch.dtype) -> torch.Tensor:
    """Whole numbers whose sums and products are exact in every dtype."""
    return torch.tensor([rank + 1, 3 - rank, 2, 0, 5 - 2 * rank], dtype=dtype)


def every_dtype(rank: int) -> Any:
    """Each op on each dtype, dense, in place and grouped."""
    results: dict[tuple[str, str], Any] = {}
    with session() as bt:
        for name in (*FLOATS, *INTEGERS):
            for op in EVERY_OP:
                given = small_numbers(rank, getattr(torch, name))
                options = {"op": getattr(bt, op)}
                if op == "Average" and name in INTEGERS:
                    refused = functools.partial(bt.allreduce, given, "refused", **options)
                    results[name, op] = expect("InvalidArgument", refused)
                    continue
                results[name, op] = [
                    bt.allreduce(given, name, **options),
                    bt.allreduce_(given.clone(), name + " in place", **options),
                    *bt.grouped_allreduce([given, given], name, **options),
                    *bt.grouped_allreduce_([given.clone()], name + " in place", **options),
                ]
    return results


def without_op(rank: int) -> Any:
    """Every call that reduces, without an op."""
    with session() as bt:
        said = []
        for call, given in (
            *((each, torch.ones(1)) for each in (bt.allreduce, bt.allreduce_)),
            *((each, torch.ones(1)) for each in (bt.allreduce_async, bt.allreduce_async_)),
            *((each, [torch.ones(1)]) for each in (bt.grouped_allreduce, bt.grouped_allreduce_)),
            (bt.grouped_allreduce_async, [torch.ones(1)]),
            (bt.grouped_allreduce_async_, [torch.ones(1)]),
        ):
            try:
                call(given, "x")
            except TypeError as error:
                said.append(str(error))
        return said


def effective_batch(rank: int) -> Any:
    """Two rounds of all workers, and two of the others after the last worker has run out of
    data."""
    infos: list[Any] = []
    with session(min_workers=1) as bt:
        net = Constant()
        optimizer = sgd(net, bt, **by("samples", "mean"))
        for step in range(4):
            if step == 2 and rank == WORKERS - 1:
                bt.barrier("after two")
                bt.shutdown()
                return infos, net.weight.detach()
            if step == 2:
                bt.barrier("after two")
            optimizer.contribute(samples=16, tokens=100 + rank)
            net(torch.full((7,), float(rank))).backward()
            infos.append(optimizer.last_round())
            optimizer.step()
            optimizer.zero_grad()
        return infos, net.weight.detach()


def unsaid_counts(rank: int) -> Any:
    with session() as bt:
        net = Constant()
        optimizer = sgd(net, bt, **by("tokens", "mean"))
        silent = expect("InvalidArgument", net(wanted(rank)).backward)
        net.zero_grad()
        optimizer.contribute(samples=5)
        other = expect("InvalidArgument", net(wanted(rank)).backward)
        net.zero_grad()
        negative = expect("InvalidArgument", lambda: optimizer.contribute(tokens=-1))
        optimizer.contribute(tokens=rank)
        net(torch.full((7,), float("nan") if rank == 0 else 3.0)).backward()
        info = optimizer.last_round()
        return (
            silent,
            other,
            negative,
            gradients(net),
            info.contributor_weights,
            info.spec.counts.samples,
        )


def windows_of_sums(rank: int) -> Any:
    """Two micro-batches of equal numbers, then two of others; each loss is a sum over samples."""
    with session() as bt:
        net = Constant()
        optimizer = sgd(net, bt, **by("samples", "sum"))
        seen = []
        for first, second in ((4 + rank, 4 + rank), (2, 3 + rank)):
            net.zero_grad()
            with optimizer.no_sync():
                optimizer.contribute(samples=first)
                net(torch.full((7,), 1.0 * first)).backward()
            optimizer.contribute(samples=second)
            net(torch.full((7,), 5.0 * second)).backward()
            info = optimizer.last_round()
            seen.append((gradients(net)[0], info.spec.counts, info.divisor))
        return seen


WINDOWS = ("no_sync", "model", "hook")


def windows_of_means(rank: int, way: str, weight_by: str, counts: tuple[int, int]) -> Any:
    """A second backward in a window of means, and the calls after its refusal."""
    with session() as bt, contextlib.ExitStack() as stack:
        net = Constant()
        called: Any = net
        options = by(weight_by, "mean")
        if way == "hook":
            stack.enter_context(process_group_of_one())
            called, lane = hooked(bt, net, options, gradient_as_bucket_view=True)
        elif way == "model":
            called = lane = bt.DistributedDataParallel(net, **options)
        else:
            lane = sgd(net, bt, **options)

        def accumulates() -> Any:
            return (lane if way == "no_sync" else called).no_sync()

        def run(count: int, value: float, within: Any) -> None:
            if weight_by != "micro_batches":
                lane.contribute(**{weight_by: count})
            with within:
                called(torch.full((7,), value)).backward()

        run(counts[0], rank + 1.0, accumulates())
        other = model()
        loss_of(other, rank).backward()  # It is not reached.
        texts = [
            expect("InvalidArgument", run, counts[1], 99.0, within)
            for within in (accumulates(), contextlib.nullcontext())
        ]
        kept = gradients(net)[0].tolist()
        lane.sync_gradients()
        info = lane.last_round()
        sent = gradients(net)[0].tolist(), info.divisor, info.spec.counts.micro_batches
        net.zero_grad()
        run(counts[1], rank + 1.0, contextlib.nullcontext())  # A window of one.
        return texts, kept, sent, gradients(net)[0], lane.last_round().divisor


def without_data(rank: int) -> Any:
    """Means over 0 tokens on the first worker, and no backward on the second one; afterwards in
    windows of two, of which the first worker has one without tokens."""
    with session() as bt:
        nan = torch.full((7,), float("nan"))
        net = Constant()
        optimizer = sgd(net, bt, **by("tokens", "mean"))
        if rank != 1:
            optimizer.contribute(tokens=0 if rank == 0 else 5)
            net(nan if rank == 0 else torch.full((7,), 3.0)).backward()
        optimizer.step()
        applied, weights = net.weight.tolist(), optimizer.last_round().contributor_weights
        optimizer.zero_grad()
        sums = Constant()
        windows = sgd(sums, bt, backward_passes_per_step=2, **by("tokens", "sum"))
        for tokens in (0, 2) if rank == 0 else (2, 4):
            windows.contribute(tokens=tokens)
            sums(torch.full((7,), 3.0 * tokens)).backward()
        counts = windows.last_round().spec.counts
        texts = []
        for first, second in ((0, 4), (4, 0)):
            with optimizer.no_sync():
                optimizer.contribute(tokens=first)
                net(torch.ones(7)).backward()
                optimizer.contribute(tokens=second)
                texts.append(expect("InvalidArgument", net(torch.ones(7)).backward))
            optimizer.zero_grad()
        return applied, weights, gradients(sums)[0].tolist(), counts, texts


def refused_backward(rank: int) -> Any:
    """The second backward of a window is refused; its remains are not sent."""
    with session() as bt:
        net = Constant()
        optimizer = sgd(net, bt, backward_passes_per_step=2, **by("samples", "sum"))
        optimizer.contribute(samples=1)
        net(torch.full((7,), 9.0)).backward()
        said = [expect("InvalidArgument", net(torch.full((7,), 9.0)).backward)]
        said += [
            expect("FailedPrecondition", call)
            for call in (optimizer.step, optimizer.sync_gradients, net(wanted(rank)).backward)
        ]
        optimizer.zero_grad()
        for _ in range(2):
            optimizer.contribute(samples=2)
            net(torch.full((7,), 2 * (rank + 1.0))).backward()
        return said, gradients(net)[0].tolist(), optimizer.last_round().spec.counts.samples


def half_told(rank: int) -> Any:
    with session() as bt:
        net = Constant()
        optimizer = sgd(net, bt, backward_passes_per_step=2)
        optimizer.contribute(samples=3)
        net(wanted(rank)).backward()
        refused = expect("FailedPrecondition", bt.finished)
        net(wanted(rank)).backward()
        counts = optimizer.last_round().spec.counts
        return refused, counts.samples, counts.micro_batches


def short_window_with_scaler(rank: int) -> Any:
    """Two steps whose window is short on one worker; in the second, another one overflows."""
    with session() as bt:
        net = Constant()
        optimizer = sgd(net, bt, backward_passes_per_step=2)
        scaler = bt.GradScaler(init_scale=1024.0, growth_interval=100)
        seen = []
        for step in range(2):
            optimizer.zero_grad()
            for _ in range(1 if rank == step else 2):
                value = float("inf") if step == 1 and rank == 0 else 1.0
                scaler.scale(net(torch.full((7,), value))).backward()
            scaler.step(optimizer)
            scaler.update()
            seen.append((net.weight.tolist(), scaler.get_scale()))
        return seen


def skipped_layer(rank: int) -> Any:
    """The last worker does not reach the second layer, and no worker reaches the third."""
    with session() as bt:
        net = nn.ModuleList([Constant(), Constant(), Constant()])
        wrapped = bt.DistributedDataParallel(net, op=bt.Average, divide_by_present=True)
        used = 1 if rank == WORKERS - 1 else 2
        torch.stack([layer(torch.full((7,), rank + 1.0)) for layer in net[:used]]).sum().backward()
        norm = float(bt.clip_grad_norm_(wrapped, 1e9))
        return gradients(net), norm, wrapped.last_round().norm


def clipped(rank: int) -> Any:
    with session() as bt:
        results = []
        for max_norm in (0.01, 1000.0):
            for of in ("optimizer", "parameters", "some"):
                net = model().float()
                optimizer = sgd(net, bt)
                net(torch.randn(4, 5)).square().mean().backward()
                before = gradients(net)
                twin = [nn.Parameter(g.clone()) for g in before]
                for parameter, gradient in zip(twin, before):
                    parameter.grad = gradient
                some = slice(0, 2) if of == "some" else slice(None)
                chosen = optimizer if of == "optimizer" else list(net.parameters())[some]
                norm = bt.clip_grad_norm_(chosen, max_norm)
                expected = torch.nn.utils.clip_grad_norm_(twin[some], max_norm)
                again = bt.clip_grad_norm_(chosen, max_norm)
                torch.nn.utils.clip_grad_norm_(twin[some], max_norm)
                own = [p.grad for p in twin]
                results.append((float(norm), float(expected), float(again), own, gradients(net)))
        return results


def clipped_with_a_nan(rank: int) -> Any:
    with session() as bt:
        net = model().float()
        optimizer = sgd(net, bt)
        net(torch.randn(4, 5)).square().mean().mul(math.nan if rank == 0 else 1.0).backward()
        return float(bt.clip_grad_norm_(optimizer, 1.0))


def not_the_result(rank: int) -> Any:
    with trainer() as (bt, net, optimizer):
        said = [expect("FailedPrecondition", local_clip, bt, optimizer, net, rank)]
        loss_of(net, rank).backward()
        loss_of(net, rank, 1).backward()
        said.append(expect("FailedPrecondition", bt.clip_grad_norm_, optimizer, 1.0))
        optimizer.zero_grad()
        loss_of(net, rank).backward()
        net[2].weight.grad.mul_(2)
        said.append(expect("FailedPrecondition", bt.clip_grad_norm_, optimizer, 1.0))
        optimizer.zero_grad()
        loss_of(net, rank).backward()
        net[2].weight.grad.data.mul_(2)
        said.append(expect("FailedPrecondition", bt.clip_grad_norm_, optimizer, 1.0))
        net[2].weight.grad = torch.ones_like(net[2].weight)
        said.append(expect("FailedPrecondition", bt.clip_grad_norm_, net, 1.0))
        optimizer.zero_grad(set_to_none=False)
        loss_of(net, rank).backward()
        good = float(bt.clip_grad_norm_(optimizer, 1e9))
        norm = optimizer.last_round().norm
        alone = nn.Parameter(torch.ones(1))
        alone.grad = torch.ones(1)
        stranger = expect("InvalidArgument", bt.clip_grad_norm_, alone, 1.0)
        return said, stranger, good, norm


def local_clip(bt: Any, optimizer: Any, net: Any, rank: int) -> None:
    with optimizer.no_sync():
        loss_of(net, rank).backward()
    try:
        bt.clip_grad_norm_(optimizer, 1.0)
    finally:
        optimizer.zero_grad()


def scaled_steps(rank: int) -> Any:
    """Only one worker has an infinity, in the second step."""
    with session() as bt:
        net = Constant()
        optimizer = sgd(net, bt, wire_dtype=torch.float16)
        scaler = bt.GradScaler(init_scale=1024.0, growth_interval=100)
        seen = []
        for step in range(3):
            gradient = torch.full((7,), rank + 1.0)
            if step == 1 and rank == 1:
                gradient[3] = 3e38
            scaler.scale(net(gradient)).backward()
            info = optimizer.last_round()
            scaler.unscale_(optimizer)
            norm = float(bt.clip_grad_norm_(optimizer, 1e9))
            scaler.step(optimizer)
            scaler.update()
            seen.append((info.spec.loss_scale, scaler.get_scale(), info.nonfinite, norm))
            optimizer.zero_grad()
        return seen, net.weight.detach().clone()


def narrow_range(rank: int) -> Any:
    """Float32 from one end of its range to the other, through float16."""
    with session() as bt:
        net = Constant()
        optimizer = sgd(net, bt, wire_dtype=torch.float16)
        seen = []
        for largest in (2.0**-126, 1.0, 2.0**116, 2.0**125):
            sent = torch.tensor([1.0, 0.5, 0.25, -1.0, 0.0, 0.125, 1.0]) * largest
            net(sent).backward()
            seen.append((sent, gradients(net)[0], optimizer.last_round().nonfinite))
            optimizer.zero_grad()
        return seen


def half_sums(rank: int) -> Any:
    """Each gradient is finite in float16, and their sum is not."""
    with session() as bt:
        net = Constant().half()
        optimizer = sgd(net, bt, op=bt.Sum)
        net(torch.full((7,), 30000.0).half()).backward()
        info = optimizer.last_round()
        return info.overflow, info.nonfinite, net.weight.grad


def other_scales(rank: int) -> Any:
    import basin

    with session() as bt:
        net = Constant()
        optimizer = sgd(net, bt)
        scaler = bt.GradScaler(init_scale=512.0 if rank == WORKERS - 1 else 1024.0)
        text = ""
        try:
            scaler.scale(net(torch.ones(7))).backward()
        except basin.Mismatch as error:
            text = str(error)
        return text, optimizer.last_round().contributors, gradients(net)


class TwoHeads(nn.Module):
    """A sentence head and a token head over one layer, in float32, and rows of which a mask counts
    some for the second. The seed distributes the rows among micro-batches of workers."""

    rows = 30

    def __init__(self, seed: int) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(seed)

        def random(*shape: int) -> torch.Tensor:
            return torch.randn(*shape, generator=generator)

        def whole(below: int) -> torch.Tensor:
            return torch.randint(below, (self.rows,), generator=generator)

        self.layer = nn.Parameter(random(5, 4))
        self.nsp, self.mlm = nn.Parameter(random(4)), nn.Parameter(random(4))
        self.x, self.y, self.z = random(self.rows, 5), random(self.rows), random(self.rows)
        self.masked = whole(3) == 0
        self.worker, self.micro_batch = whole(WORKERS), whole(3)
        if seed % 2 == 0:
            self.masked[self.worker == seed % WORKERS] = False

    def of(self, rank: int, k: int) -> torch.Tensor:
        return (self.worker == rank) & (self.micro_batch == k)

    def losses(self, rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The losses of these rows, and of the masked ones among them."""
        hidden = torch.tanh(self.x @ self.layer)
        first = (hidden @ self.nsp - self.y).square()[rows]
        second = (hidden @ self.mlm - self.z).square()[rows & self.masked]
        return first, second


def several_normalisers(rank: int) -> Any:
    """Each part of the loss divided by its own total over all workers; gradients are summed."""
    results = []
    for seed in SEEDS:
        with session() as bt:
            net = TwoHeads(seed)
            optimizer = sgd(net, bt, op=bt.Sum)
            mine = net.worker == rank
            totals = bt.total_counts(
                {"nsp": int(mine.sum()), "mlm": int((mine & net.masked).sum())}
            )
            for k in range(3):
                first, second = net.losses(net.of(rank, k))
                loss = first.sum() / totals["nsp"] + second.sum() / totals["mlm"]
                with optimizer.no_sync() if k < 2 else contextlib.nullcontext():
                    loss.backward()
            results.append((totals, gradients(net)))
    return results


def token_batches(rank: int) -> Any:
    """Sums over the masked rows of three micro-batches, weighted by their number."""
    results = []
    for seed in SEEDS:
        with session() as bt:
            net = TwoHeads(seed)
            optimizer = sgd(net, bt, **by("tokens", "sum"))
            for k in range(3):
                _, second = net.losses(net.of(rank, k))
                optimizer.contribute(tokens=len(second))
                with optimizer.no_sync() if k < 2 else contextlib.nullcontext():
                    second.sum().backward()
            results.append((gradients(net), optimizer.last_round()))
    return results


def token_means(rank: int) -> Any:
    """The mean over the masked rows of one batch on each worker; over none it is 0/0."""
    results = []
    for seed in SEEDS:
        with session() as bt:
            net = TwoHeads(seed)
            optimizer = sgd(net, bt, **by("tokens", "mean"))
            _, second = net.losses(net.worker == rank)
            optimizer.contribute(tokens=len(second))
            second.mean().backward()
            results.append((gradients(net), optimizer.last_round()))
    return results


def equal_micro_batches(rank: int) -> Any:
    """Micro-batches of two rows, 1, 4 and 2 of them on the workers: each loss a mean, undivided."""
    with session() as bt:
        net = TwoHeads(0)
        optimizer = sgd(net, bt, backward_passes_per_step=4, **by("micro_batches", "sum"))
        for k in ((0,), (1, 2, 3, 4), (5, 6))[rank]:
            rows = torch.arange(net.rows) // 2 == k
            net.losses(rows)[0].mean().backward()
        optimizer.sync_gradients()
        return gradients(net), optimizer.last_round().divisor


def lost_between(rank: int) -> Any:
    """The last worker counts, and leaves before the gradients."""
    with session(min_workers=1) as bt:
        net = Constant()
        optimizer = sgd(net, bt, op=bt.Sum)
        total = bt.total_counts({"rows": 2})
        if rank == WORKERS - 1:
            bt.shutdown()
            return total, [], []
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            net(torch.ones(7) / total["rows"]).backward()
            first = [(w.category.__name__, str(w.message), w.filename) for w in caught]
            bt.total_counts({"rows": 2})
            optimizer.zero_grad()
            net(torch.ones(7)).backward()
        return total, first, len(caught)


def evaluates_between(rank: int, way: str) -> Any:
    """All count for an evaluation; the last worker leaves before the next gradients."""
    with session(min_workers=1) as bt:
        net = Constant()
        sgd(net, bt)
        with contextlib.ExitStack() as stack:
            if way == "no_grad":
                stack.enter_context(torch.no_grad())
            for_gradients = way != "said"
            bt.total_counts({"right": 1}, name="evaluation", for_gradients=for_gradients)
        if rank == WORKERS - 1:
            bt.shutdown()
            return []
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            net(torch.ones(7)).backward()
        return [str(w.message) for w in caught]


def failed_elsewhere(rank: int) -> Any:
    """Counts were given for two models, and the backward of the second one fails."""
    with session() as bt:
        nets = [model(), model()]
        optimizers = [sgd(net, bt, **by("samples", "sum")) for net in nets]
        for optimizer in optimizers:
            optimizer.contribute(samples=4)
        hidden = nets[1][:2](torch.ones(4, 5, dtype=torch.float64))
        hidden.register_hook(lambda _: 1 / 0)
        with contextlib.suppress(ZeroDivisionError):
            nets[1][2](hidden).sum().backward()
        loss_of(nets[0], rank).backward()
        optimizers[1].zero_grad()
        untold = expect("InvalidArgument", loss_of(nets[1], rank).backward)
        return optimizers[0].last_round().spec.counts.samples, untold


def told_twice(rank: int) -> Any:
    """Samples of a batch that is left out, and only tokens of the next one."""
    with session() as bt:
        net = Constant()
        optimizer = sgd(net, bt)
        optimizer.contribute(samples=100)
        optimizer.contribute(tokens=5)
        net(torch.ones(7)).backward()
        counts = optimizer.last_round().spec.counts
        return counts.samples, counts.tokens


def other_names(rank: int) -> Any:
    with session() as bt:
        counts = {"rows": 1} if rank > 0 else {"lines": 1}
        return expect("Mismatch", bt.total_counts, counts)


# ---- checks

OPS: dict[str, dict[str, Any]] = {
    "sum": {"op": "Sum", "prescale_factor": 1 / 3, "postscale_factor": 5.0},
    "predivided sum": {"op": "Sum", "gradient_predivide_factor": 3.0},
    "average": {"op": "Average", "gradient_predivide_factor": 3.0, "prescale_factor": 1e-8},
    "auto": {"op": "Average", "gradient_predivide_factor": "auto", "postscale_factor": -2.0},
    "weighted": {
        "op": "WeightedAverage",
        "weight_by": "samples",
        "contributes": "mean",
        "gradient_predivide_factor": 4.0,
        "prescale_factor": 1 / 3,
    },
}


class TorchArithmeticTest(TorchTest):
    def expected(self, options: dict[str, Any]) -> torch.Tensor:
        """The contract's definition, step by step in float32."""
        f = options.get("gradient_predivide_factor", 1.0)
        f = 2.0 if f == "auto" else f
        s, q = options.get("prescale_factor", 1.0), options.get("postscale_factor", 1.0)
        weights = [r + 1 if "weight_by" in options else 1 for r in range(WORKERS)]

        def rounded(value: float) -> torch.Tensor:
            return torch.tensor(value, dtype=torch.float64).float()

        total = sum(
            (wanted(r) * rounded(w * s / f) for r, w in enumerate(weights)), torch.tensor(-0.0)
        )
        if options["op"] == "Sum":
            return total * rounded(f * q)
        return total / rounded(sum(weights) / (f * q))

    def test_criterion_5_6_scales_and_weights_are_the_same_on_every_path(self) -> None:
        for results in self.run_job(every_path, OPS):
            for name, (paths, predivides) in results.items():
                expected = self.expected(OPS[name])
                self.assertEqual(8, len(paths))
                for path, result in enumerate(paths):
                    self.assertTrue(torch.equal(expected, result), (name, path))
                factor = OPS[name].get("gradient_predivide_factor", 1.0)
                self.assertEqual([2.0 if factor == "auto" else factor] * 3, predivides)

    def test_criterion_5_6_every_op_and_dtype_is_the_same_on_every_path(self) -> None:
        for results in self.run_job(every_dtype):
            for (name, op), got in results.items():
                dtype = getattr(torch, name)
                each = torch.stack([small_numbers(r, dtype).double() for r in range(WORKERS)])
                if op == "Average" and name in INTEGERS:
                    self.assertRegex(got, "integers, which have no AVERAGE.*op=basin.Sum")
                    continue
                exact = {
                    "Sum": each.sum(0),
                    "Average": each.sum(0) / WORKERS,
                    "Min": each.min(0).values,
                    "Max": each.max(0).values,
                    "Product": each.prod(0),
                }[op]
                if op == "Average" and name != "float64":
                    exact = each.sum(0).float() / WORKERS
                self.assertEqual(5, len(got))
                for path, result in enumerate(got):
                    self.assertEqual(dtype, result.dtype)
                    self.assertTrue(torch.equal(exact.to(dtype), result), (name, op, path))

    def test_criterion_1_1_no_call_has_an_op_that_was_not_given(self) -> None:
        for said in self.run_job(without_op):
            self.assertEqual(8, len(said))
            for text in said:
                self.assertRegex(text, "missing .*argument: 'op'")

    def test_criterion_3_1_a_lost_worker_is_seen_in_the_batch_of_that_step(self) -> None:
        outcomes = self.run_job(effective_batch)
        for infos, _ in outcomes[:2]:
            self.assertEqual([48, 48, 32, 32], [info.spec.counts.samples for info in infos])
            self.assertEqual([48, 48, 32, 32], [info.divisor for info in infos])
            self.assertEqual([303, 303, 201, 201], [info.spec.counts.tokens for info in infos])
            self.assertEqual([3, 3, 2, 2], [info.spec.counts.micro_batches for info in infos])
            for info in infos:
                self.assertEqual(
                    ("WEIGHTED_AVERAGE", "SAMPLES"), (info.spec.op.name, info.spec.weight_by.name)
                )
        for _, weight in outcomes[:2]:
            self.assertTrue(torch.allclose(torch.full((7,), -0.1 * (1 + 1 + 0.5 + 0.5)), weight))

    def test_criterion_3_3_missing_counts_are_an_error(self) -> None:
        for silent, other, negative, got, weights, samples in self.run_job(unsaid_counts):
            for text in (silent, other):
                self.assertIn("contribute(tokens=...) of the optimizer", text)
            self.assertIn("tokens", negative)
            self.assertEqual([3.0] * 7, got[0].tolist())  # NaN with weight 0 adds nothing.
            self.assertEqual(((0, 1, 2), None), (weights, samples))

    def test_criterion_3_2_a_window_of_sums_is_divided_by_all_that_was_counted(self) -> None:
        for (equal, counts, divisor), (unequal, others, of_others) in self.run_job(windows_of_sums):
            self.assertEqual([3.0] * 7, equal.tolist())
            self.assertEqual((30, 6, 30), (counts.samples, counts.micro_batches, divisor))
            self.assertTrue(torch.allclose(torch.full((7,), (6 + 60) / 18), unequal))
            self.assertEqual((18, 6, 18), (others.samples, others.micro_batches, of_others))

    def test_criterion_3_2_a_window_of_means_is_refused_whatever_it_is_weighted_by(self) -> None:
        for way in WINDOWS:
            for weight_by, counts in (
                ("samples", (4, 4)),
                ("tokens", (3, 1)),
                ("micro_batches", (1, 1)),
            ):
                with self.subTest(way, weight_by=weight_by):
                    outcomes = self.run_job(windows_of_means, way, weight_by, counts)
                    for rank, (texts, kept, sent, after, divisor) in enumerate(outcomes):
                        for text in texts:
                            self.assertIn("the sum of K means is K times too large", text)
                            self.assertIn("no weight recovers the mean over all", text)
                            self.assertRegex(
                                text,
                                "Make each loss a mean, do not divide it"
                                if weight_by == "micro_batches"
                                else f"Make each loss the sum over its {weight_by}",
                            )
                            self.assertIn('use contributes="sum"', text)
                            self.assertIn("unchanged: sync_gradients() of the ", text)
                        self.assertEqual([rank + 1.0] * 7, kept)
                        self.assertEqual(([2.0] * 7, counts[0] * WORKERS, WORKERS), sent)
                        self.assertEqual([2.0] * 7, after.tolist())
                        self.assertEqual(counts[1] * WORKERS, divisor)

    def test_float16_on_the_way_has_the_range_of_float32(self) -> None:
        for seen in self.run_job(narrow_range):
            for sent, got, nonfinite in seen:
                self.assertEqual((sent.tolist(), None), (got.tolist(), nonfinite))

    def test_criterion_3_3_backwards_and_workers_without_data(self) -> None:
        for applied, weights, of_sums, counts, texts in self.run_job(without_data):
            self.assertEqual((0, 0, 5), weights)
            for each in applied:
                self.assertAlmostEqual(-0.3, each, delta=1e-6)
            self.assertEqual([3.0] * 7, of_sums)
            self.assertEqual((14, 2 * WORKERS), (counts.tokens, counts.micro_batches))
            # The refusal does not depend on the data.
            self.assertEqual(2, len(texts))
            for text in texts:
                self.assertIn('contributes="mean" allows only one', text)

    def test_criterion_3_2_what_was_refused_is_not_sent(self) -> None:
        for said, grad, samples in self.run_job(refused_backward):
            self.assertIn("their number in this backward is unknown", said[0])
            for text in said[1:]:
                self.assertIn("hold a part of a failed backward. Call zero_grad()", text)
            self.assertEqual(([2.0] * 7, 4 * WORKERS), (grad, samples))

    def test_criterion_3_1_a_window_with_some_counts_is_unknown(self) -> None:
        for refused, samples, micro_batches in self.run_job(half_told):
            self.assertIn("gradients that were not sent", refused)
            self.assertEqual((None, 2 * WORKERS), (samples, micro_batches))

    def test_criterion_4_4_a_short_window_is_reduced_before_it_is_unscaled(self) -> None:
        outcomes = self.run_job(short_window_with_scaler)
        (first, scale), (second, lower) = outcomes[0]
        self.assertEqual((1024.0, 512.0), (scale, lower))
        self.assertEqual(first, second, "the infinity of one worker skips the step of all")
        self.assertLess(first[0], 0)
        for each in outcomes[1:]:
            self.assertEqual(outcomes[0], each)

    def test_criterion_3_5_a_layer_may_be_divided_by_those_who_ran_it(self) -> None:
        for (first, second, third), norm, of_reply in self.run_job(skipped_layer):
            self.assertEqual(([2.0] * 7, [1.5] * 7), (first.tolist(), second.tolist()))
            self.assertIsNone(third)
            self.assertAlmostEqual((7 * (4 + 2.25)) ** 0.5, norm, delta=1e-6)
            self.assertEqual(of_reply, norm)

    def test_criterion_3_8_clipping_uses_the_norm_of_the_reply(self) -> None:
        each = self.run_job(clipped)
        for results in each:
            for norm, expected, again, own, got in results:
                self.assertLessEqual(abs(norm - expected), 1e-6 * expected)
                self.assertLessEqual(again, norm)
                for a, b in zip(own, got):
                    self.assertLessEqual(float((a - b).abs().max()), 1e-6 * float(a.abs().max()))
        self.assert_same_bits([[g for *_, got in results for g in got] for results in each])

    def test_the_norm_of_a_result_with_a_nan_is_a_nan(self) -> None:
        for norm in self.run_job(clipped_with_a_nan):
            self.assertTrue(math.isnan(norm))

    def test_clipping_what_is_not_the_result_of_one_round_is_refused(self) -> None:
        for said, stranger, good, norm in self.run_job(not_the_result):
            self.assertIn("is not reduced by Basin", stranger)
            self.assertEqual(5, len(said))
            self.assertIn("has not been reduced", said[0])
            self.assertIn("Call sync_gradients() of the optimizer first", said[0])
            for text in said[1:]:
                self.assertIn("is not the result of one round", text)
            self.assertAlmostEqual(norm, good, delta=1e-12)

    def test_criterion_3_8_workers_agree_on_what_is_not_finite(self) -> None:
        outcomes = self.run_job(scaled_steps)
        for seen, weight in outcomes:
            (a, b, c) = seen
            self.assertEqual((1024.0, 1024.0, None), a[:3])
            self.assertEqual((1024.0, 512.0, ("w1", "weight", 3)), b[:3])
            self.assertEqual((512.0, 512.0, None), c[:3])
            for norm in (a[3], c[3]):
                self.assertAlmostEqual(2.0 * 7**0.5, norm, delta=1e-6)
            self.assertTrue(torch.allclose(torch.full((7,), -0.4), weight))
        self.assert_same_bits([[weight] for _, weight in outcomes])

    def test_criterion_1_7_a_sum_that_overflows_in_half_is_reported(self) -> None:
        for overflow, nonfinite, gradient in self.run_job(half_sums):
            self.assertTrue(overflow)
            self.assertIsNone(nonfinite)  # All inputs were finite.
            self.assertEqual([float("inf")] * 7, gradient.tolist())

    def test_criterion_5_3_loss_scales_that_differ_are_refused(self) -> None:
        *others, odd = self.run_job(other_scales)
        self.assertIn("loss scale 512 against 1024", odd[0])
        for text, contributors, got in others:
            self.assertEqual(("", ("w0", "w1")), (text, contributors))
            self.assertEqual([1024.0] * 7, got[0].tolist())

    def test_criterion_1_8_parts_of_a_loss_have_their_own_normalisers(self) -> None:
        each = self.run_job(several_normalisers)
        for seed, results in zip(SEEDS, zip(*each)):
            net = TwoHeads(seed)
            first, second = net.losses(torch.full((net.rows,), True))
            (first.mean() + second.mean()).backward()
            for totals, got in results:
                self.assertEqual({"nsp": len(first), "mlm": len(second)}, totals)
                self.assert_relatively_close(gradients(net), got)

    def test_criterion_3_3_any_split_gives_the_gradient_of_the_whole_batch(self) -> None:
        each = self.run_job(token_batches)
        for seed, results in zip(SEEDS, zip(*each)):
            net = TwoHeads(seed)
            _, second = net.losses(torch.full((net.rows,), True))
            second.mean().backward()
            for got, info in results:
                self.assert_relatively_close(gradients(net), got)
                self.assertEqual(len(second), info.divisor)
                self.assertEqual(3 * WORKERS, info.spec.counts.micro_batches)

    def test_criterion_3_3_means_of_any_split_give_the_gradient_of_the_whole_batch(self) -> None:
        each = self.run_job(token_means)
        nobody = 0
        for seed, results in zip(SEEDS, zip(*each)):
            net = TwoHeads(seed)
            _, second = net.losses(torch.full((net.rows,), True))
            second.mean().backward()
            for got, info in results:
                self.assert_relatively_close(gradients(net), got)
                self.assertEqual(len(second), info.divisor)
                nobody += info.contributor_weights.count(0)
        self.assertGreater(nobody, 0, "a worker whose gradient is NaN")

    def test_criterion_3_3_equal_micro_batches_give_the_gradient_of_the_whole_batch(self) -> None:
        net = TwoHeads(0)
        net.losses(torch.arange(net.rows) < 14)[0].mean().backward()
        for got, divisor in self.run_job(equal_micro_batches):
            self.assert_relatively_close(gradients(net), got)
            self.assertEqual(7, divisor)

    def assert_relatively_close(self, expected: list[Any], got: list[Any]) -> None:
        for a, b in zip(expected, got):
            if a is None:
                self.assertIsNone(b)
                continue
            self.assertLessEqual(float((a - b).abs().max()), 1e-6 * float(a.abs().max()))

    def test_criterion_1_8_a_change_between_counts_and_gradients_is_reported(self) -> None:
        for total, first, warned in self.run_job(lost_between)[:2]:
            self.assertEqual({"rows": 6}, total)
            [(kind, text, filename)] = first
            self.assertEqual(Path(__file__).name, Path(filename).name)
            self.assertEqual("ContributorsChanged", kind)
            self.assertIn("over w0, w1, w2, but round 1", text)
            self.assertIn("gradients of w0, w1, divided", text)
            self.assertEqual(1, warned)

    def test_criterion_1_8_totals_of_an_evaluation_are_not_of_gradients(self) -> None:
        for way in ("said", "no_grad"):
            with self.subTest(way):
                self.assertEqual([[]] * WORKERS, self.run_job(evaluates_between, way))
        for [text] in self.run_job(evaluates_between, "unsaid")[:2]:
            self.assertIn("use for_gradients=False", text)

    def test_criterion_3_3_a_backward_that_fails_elsewhere_keeps_the_counts(self) -> None:
        for samples, untold in self.run_job(failed_elsewhere):
            self.assertEqual(4 * WORKERS, samples)
            self.assertIn("their number in this backward is unknown", untold)

    def test_the_later_of_two_counts_holds(self) -> None:
        self.assertEqual([(None, 5 * WORKERS)] * WORKERS, self.run_job(told_twice))

    def test_counts_under_other_names_are_refused(self) -> None:
        for text in self.run_job(other_names):
            self.assertIn("different names", text)


if __name__ == "__main__":
    main()
