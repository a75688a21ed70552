# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""Micro-batches: what is accumulated, when it is sent, and what it is divided by.

Usage: test_torch_accumulation.py BASIND LIBBASIN
"""

import contextlib
import tempfile
import weakref
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any
from unittest import mock

from jobs import hear, make_events, message, require, say

require("numpy", "torch")
import torch  # noqa: E402 - ends above when there is none
from torch import nn  # noqa: E402
from torch.optim import SGD  # noqa: E402
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
    take_step,
    trainer,
    wrap,
)

WAYS = ("optimizer", "model")
early_backward = (
    torch.autograd.backward
)  # The function that `from torch.autograd import backward` binds.


def mean_of_sums(steps: tuple[int, ...]) -> list[torch.Tensor]:
    """The average over workers of the sum over micro-batches."""
    return [sum(each) for each in zip(*(average(step) for step in steps))]


# ---- workers


TARGET = 30
BATCHES = (5, 3, 1)  # Samples in a micro-batch, by rank.


def sum_loss(net: nn.Module, first: int, samples: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(first)
    x = torch.randn(samples, 5, dtype=torch.float64, generator=generator)
    loss: torch.Tensor = net(x).square().mean(1).sum()
    return loss


def target_batches(rank: int, folder: str) -> Any:
    """Four steps, each over a target batch. Rank 2 has nothing in the second, and leaves after the
    third. Returns the parameters, and of each step what it has used and the facts of the round."""
    closed = Path(folder) / "closed"
    with session(min_workers=1) as bt:
        net = model()
        options = {"op": bt.WeightedAverage, "weight_by": "samples", "contributes": "sum"}
        optimizer = sgd(net, bt, target_batch=TARGET, **options)
        steps, seed = [], 1000 * rank
        for step in range(3 if rank == 2 else 4):
            used = []
            if rank == 2 and step == 1:
                hear(closed)
            while (rank, step) != (2, 1):
                seed += 1
                used.append((seed, BATCHES[rank]))
                optimizer.contribute(samples=BATCHES[rank])
                sum_loss(net, *used[-1]).backward()
                if optimizer.is_batch_complete():
                    break
            if rank == 0 and step == 1:
                say(closed)
            optimizer.step()
            optimizer.zero_grad()
            info = optimizer.last_round()
            steps.append((used, info.spec.counts.samples, len(info.contributors)))
        if rank == 2:
            bt.shutdown()
        return [p.detach().clone() for p in net.parameters()], steps


def target_of_a_sampler(rank: int) -> Any:
    """An epoch of 24 samples in target batches of 8, whose samples a sampler counts. Returns the
    samples of each round, and what was used."""
    with session() as bt:
        net = model()
        options = {"op": bt.WeightedAverage, "weight_by": "samples", "contributes": "sum"}
        optimizer = sgd(net, bt, target_batch=8, **options)
        refused = message(
            "InvalidArgument", bt.ElasticBatchSampler, 24, optimizer, keep_global_batch=8
        )
        sampler = bt.ElasticBatchSampler(24, optimizer, 2)
        rounds, used = [], []
        for batch in sampler:
            used += batch
            sum_loss(net, batch[0], len(batch)).backward()
            if optimizer.is_batch_complete():
                optimizer.step()
                optimizer.zero_grad()
                rounds.append(optimizer.last_round().spec.counts.samples)
        return used, rounds, refused


def wrong_targets(rank: int) -> Any:
    """What is refused: a plain average, two kinds of windows, a question without a target, another
    target than the others."""
    with session() as bt:
        net = model()
        without = sgd(model(), bt)
        options = {"op": bt.WeightedAverage, "weight_by": "samples", "contributes": "sum"}
        texts = [
            message("InvalidArgument", sgd, net, bt, target_batch=TARGET),
            message("InvalidArgument", sgd, net, bt, target_batch=0, **options),
            message(
                "InvalidArgument",
                sgd,
                net,
                bt,
                target_batch=TARGET,
                backward_passes_per_step=2,
                **options,
            ),
            message("FailedPrecondition", without.is_batch_complete),
        ]
        optimizer = sgd(net, bt, target_batch=TARGET + rank, **options)
        optimizer.contribute(samples=1)
        sum_loss(net, rank, 1).backward()
        return [*texts, message("Mismatch", optimizer.is_batch_complete)]


def quiet_until_the_last(rank: int, way: str) -> Any:
    """The sending functions of the library that are called in each backward."""
    from basin import worker

    called: list[str] = []
    call = worker.call

    def noted_call(name: str, *arguments: Any) -> None:
        called.append(name)
        call(name, *arguments)

    with session() as bt:
        net, optimizer, lane = wrap(bt, model(), way)
        with mock.patch.object(worker, "call", noted_call):
            with lane.no_sync():
                loss_of(net, rank, 0).backward()
                loss_of(net, rank, 1).backward()
            within, bytes_within = list(called), lane.totals().bytes_pushed
            loss_of(net, rank, 2).backward()
        result = gradients(net)
        micro_batches = lane.last_round().spec.counts.micro_batches
        optimizer.step()
        return within, bytes_within, called, result, lane.totals(), micro_batches


def buffers_of_a_window(rank: int) -> Any:
    """Rounds begun in each of three micro-batches of a model with buffers; other ones at each
    worker until the last."""
    from basin.worker import Worker

    begun: list[int] = []
    begin = Worker.begin

    def noted_begin(self: Any, lane: int, spec: Any) -> None:
        begun.append(lane)
        begin(self, lane, spec)

    with session() as bt:
        norm: Any = nn.BatchNorm1d(3)
        net = nn.Sequential(nn.Linear(5, 3), norm).double()
        wrapped = bt.DistributedDataParallel(net)
        seen = []
        with mock.patch.object(Worker, "begin", noted_begin):
            with wrapped.no_sync():
                for step in range(2):
                    loss_of(wrapped, rank, step).backward()
                    seen.append((len(begun), norm.running_mean.clone()))
            loss_of(wrapped, rank, 2).backward()
            seen.append((len(set(begun)), norm.running_mean.clone()))
        return seen, len(begun)


def traced(rank: int) -> Any:
    """Records the order of gradients, pushes and the end of the backward, over twelve tensors, and
    which outputs are alive after it."""
    from basin.worker import Worker

    with session() as bt:
        torch.manual_seed(1)
        net = nn.Sequential(*(nn.Linear(256, 256) for _ in range(6))).double()
        optimizer = sgd(net, bt)
        trace: list[str] = []
        bytes_at: list[int] = []
        push_many, commit = Worker.push_many, Worker.commit

        def noted_push(self: Any, lane: int, tensors: Any, count: int) -> None:
            trace.extend(["push"] * count)
            push_many(self, lane, tensors, count)

        def noted_commit(self: Any, lane: int) -> None:
            trace.append("commit")
            commit(self, lane)

        def made(_: torch.Tensor) -> None:
            trace.append("gradient")
            bytes_at.append(optimizer.totals().bytes_pushed)

        for parameter in net.parameters():
            parameter.register_hook(made)
        outputs: list[weakref.ref[torch.Tensor]] = []

        def run() -> None:
            output = net(torch.ones(4, 256, dtype=torch.float64))
            outputs.append(weakref.ref(output))
            output.sum().backward()

        with mock.patch.multiple(Worker, push_many=noted_push, commit=noted_commit):
            with optimizer.no_sync():
                run()
                alive = [output() is not None for output in outputs]
            local = list(trace)
            trace.clear()
            run()
        alive += [output() is not None for output in outputs]
        return local, trace, bytes_at[-1] / optimizer.totals().bytes_pushed, alive


def used_early_alone(rank: int, way: str) -> Any:
    """The first micro-batch reaches all parameters, the last only a bias; then none is reached."""
    with session() as bt:
        net, optimizer, lane = wrap(bt, model(), way)
        with lane.no_sync():
            loss_of(net, rank, 0).backward()
        list(net.parameters())[-1].sum().backward()
        result = gradients(net)
        optimizer.step()
        optimizer.zero_grad()
        list(net.parameters())[-1].sum().backward()
        return result, gradients(net)


def windows(rank: int, way: str) -> Any:
    """Windows of four, four and three micro-batches; worker 1 has two in the last one."""
    with session() as bt:
        net, optimizer, lane = wrap(bt, model(), way, backward_passes_per_step=4)
        seen = []
        for window in ((0, 1, 2, 3), (4, 5, 6, 7), (8, 9, 10)):
            net.zero_grad()
            given = [p.detach().clone() for p in net.parameters()]
            for step in window[:2] if window[0] == 8 and rank == 1 else window:
                loss_of(net, rank, step).backward()
            optimizer.step()  # With 0.1 times .grad.
            applied = [(a - b.detach()) / 0.1 for a, b in zip(given, net.parameters())]
            info = lane.last_round()
            counted = info.divisor, info.spec.counts.micro_batches, info.spec.step
            seen.append((applied, *counted))
            with torch.no_grad():
                for parameter, before in zip(net.parameters(), given):
                    parameter.copy_(before)  # All windows start from the same model.
        return seen, lane.totals().rounds


def clips_a_short_window(rank: int, way: str) -> Any:
    """Windows of three, clipped by torch; worker 0 has two backwards in each. It is refused in the
    first step, where it then does not contribute, and calls sync_gradients() in the second."""
    with session() as bt:
        net, optimizer, lane = wrap(bt, model(), way, backward_passes_per_step=3)
        text, clipped = "", []
        for step in range(2):
            net.zero_grad()
            for k in range(2 if rank == 0 else 3):
                loss_of(net, rank, 3 * step + k).backward()
            if rank == 0 and step == 0:
                nn.utils.clip_grad_norm_(net.parameters(), 0.01)
                text = expect("FailedPrecondition", optimizer.step)
                net.zero_grad()
            lane.sync_gradients()
            nn.utils.clip_grad_norm_(net.parameters(), 0.01)
            clipped.append(gradients(net))
            optimizer.step()
        return text, clipped, [p.detach() for p in net.parameters()]


def writes_that_are_right(rank: int, how: str) -> Any:
    """Windows of three that are short on all workers, and the allowed writes to their gradients."""
    with session() as bt:
        net = bt.DistributedDataParallel(model(), backward_passes_per_step=3)
        optimizers = [SGD(layer.parameters(), lr=0.1) for layer in (net.module[0], net.module[2])]
        scaler = torch.amp.GradScaler("cpu", init_scale=4.0, enabled=how == "scaler")
        scaler.scale(loss_of(net, rank, 0)).backward()
        if how == "between":
            nn.utils.clip_grad_norm_(net.parameters(), 0.01)
        if how.startswith("zeroed"):
            net.zero_grad(set_to_none=how == "zeroed to none")
        scaler.scale(loss_of(net, rank, 1)).backward()
        if how == "one of two":
            optimizers[1].zero_grad()
            optimizers[1] = SGD(net.module[2].parameters(), lr=0.0)
        for optimizer in optimizers:
            if how == "scaler":
                scaler.unscale_(optimizer)
        if how == "scaler":
            nn.utils.clip_grad_norm_(net.parameters(), 0.01)
        for optimizer in optimizers:
            scaler.step(optimizer)
        return [p.detach() for p in net.parameters()], net.totals().rounds


def one_too_many(rank: int, way: str) -> Any:
    """The last worker runs three backwards in a window of two, and continues with a step."""
    with session() as bt:
        net, optimizer, lane = wrap(bt, model(), way, backward_passes_per_step=2)
        optimizer.param_groups[0]["lr"] = 0.0
        text = ""
        for step in range(2):
            loss_of(net, rank, step).backward()
        if rank == WORKERS - 1:
            text = expect("FailedPrecondition", loss_of(net, rank, 2).backward)
        first = gradients(net)
        optimizer.step()
        optimizer.zero_grad()
        for step in (3, 4):
            loss_of(net, rank, step).backward()
        second = gradients(net)
        # A skipped step, as by a scaler.
        optimizer.zero_grad()
        for step in (5, 6):
            loss_of(net, rank, step).backward()
        return text, first, second, gradients(net), lane.totals().rounds


def windows_of_two_models(rank: int) -> Any:
    """Two lanes that take turns in one loop, and a backward of neither before the steps."""
    with session() as bt:
        nets = [model(), model()]
        optimizers = [sgd(net, bt, backward_passes_per_step=2) for net in nets]
        for step in range(2):
            for net in nets:
                loss_of(net, rank, step).backward()
        loss_of(model(), rank).backward()
        results = [gradients(net) for net in nets]
        for optimizer in optimizers:
            optimizer.step()
        return results


def leave_out(rank: int, way: str, how: str) -> Any:
    """All workers skip the first step, and only the first worker has data for the second."""
    with session() as bt:
        net, optimizer, lane = wrap(bt, model(), way)
        loss_of(net, rank, 0).backward()
        optimizer.zero_grad(set_to_none=how != "zeros")
        if rank == 0:
            loss_of(net, rank, 1).backward()
        elif how == "by hand":
            lane.sync_gradients()
        optimizer.step()
        second = [p.detach().clone() for p in net.parameters()]
        take_step(net, optimizer, rank, 2)
        return second, [p.detach() for p in net.parameters()], lane.totals().rounds


def drop_what_failed(rank: int) -> Any:
    """Every backward fails after something was sent, and the next window starts again."""
    with trainer(backward_passes_per_step=2) as (_, net, optimizer):
        optimizer.contribute(samples=100)
        loss_of(net, rank, 0).backward()
        hidden = net[:2](torch.ones(4, 5, dtype=torch.float64))
        hidden.register_hook(lambda _: 1 / 0)
        optimizer.contribute(samples=100)
        try:
            net[2](hidden).sum().backward()
        except ZeroDivisionError:
            optimizer.zero_grad()
        optimizer.contribute(samples=7)  # A batch that is then left out.
        for step in (1, 2):
            optimizer.contribute(samples=4)
            loss_of(net, rank, step).backward()
        return optimizer.last_round().spec.counts, gradients(net)


def by_hand(rank: int) -> Any:
    with trainer() as (_, net, optimizer):
        with optimizer.no_sync():
            loss_of(net, rank, 0).backward()
            within = expect("FailedPrecondition", optimizer.sync_gradients)
        if rank == 2:
            optimizer.zero_grad()  # It takes part without a contribution.
        optimizer.sync_gradients()
        first = gradients(net)
        optimizer.sync_gradients()  # .grad already has a result.
        optimizer.step()
        return within, first, optimizer.totals().rounds


def misuse(rank: int, way: str) -> Any:
    with session() as bt:
        net, optimizer, lane = wrap(bt, model(), way)
        optimizer.param_groups[0]["lr"] = 0.0
        for step in range(2):
            take_step(net, optimizer, rank, step)
        optimizer.zero_grad()
        texts = []
        try:
            with lane.no_sync():
                with lane.no_sync():
                    loss_of(net, rank, 2).backward()
                texts.append(expect("FailedPrecondition", optimizer.step))
                raise ZeroDivisionError
        except ZeroDivisionError:
            pass
        # Sent in the first micro-batch, but not in the last.
        optimizer.zero_grad()
        loss_of(net, rank, 3).backward()
        with lane.no_sync():
            loss_of(net, rank, 4).backward()
        texts.append(expect("FailedPrecondition", optimizer.step))
        lane.sync_gradients()
        return texts, gradients(net)


def no_sync_around(rank: int, way: str, part: str) -> Any:
    """A window of three micro-batches, with no_sync() around only a part of the first two."""
    with session() as bt:
        net, optimizer, lane = wrap(bt, model(), way)
        for step in range(2):
            if part == "forward":
                with lane.no_sync():
                    loss = loss_of(net, rank, step)
                loss.backward()
            elif part == "backward":
                loss = loss_of(net, rank, step)
                with lane.no_sync():
                    loss.backward()
            else:
                with lane.no_sync():
                    loss_of(net, rank, step).backward()
        loss_of(net, rank, 2).backward()
        result = gradients(net)
        optimizer.step()
        return result, lane.totals().rounds


def first_instead_of_last(rank: int, way: str) -> Any:
    """The first worker sends the first of three micro-batches, and the others the last one."""
    with session() as bt:
        net, optimizer, lane = wrap(bt, model(), way)
        for step in range(3):
            loss = loss_of(net, rank, step)
            if step == (0 if rank == 0 else 2):
                loss.backward()
                continue
            with lane.no_sync():
                loss.backward()
        micro_batches = lane.last_round().spec.counts.micro_batches
        if rank == 0:
            return expect("FailedPrecondition", optimizer.step), micro_batches
        optimizer.step()
        return "", micro_batches


def uneven(rank: int, way: str) -> Any:
    """Worker i accumulates i + 1 micro-batches; the second step with none on worker 0."""
    import basin

    with session() as bt:
        net, optimizer, lane = wrap(
            bt,
            model(),
            way,
            op=basin.WeightedAverage,
            weight_by="micro_batches",
            contributes="sum",
            backward_passes_per_step=10,
        )
        optimizer.param_groups[0]["lr"] = 0.0
        seen = []
        for count in (rank + 1, rank):
            optimizer.zero_grad()
            for step in range(count):
                loss_of(net, rank, step).backward()
            lane.sync_gradients()
            info = lane.last_round()
            seen.append((gradients(net), info.divisor, info.spec.counts.micro_batches))
            optimizer.step()
        return seen, int(info.spec.weight_by)


def as_ddp(rank: int, folder: str, passes: int) -> Any:
    """The same DistributedDataParallel script over gloo and over Basin."""
    from torch import distributed
    from torch.nn.parallel import DistributedDataParallel

    def train(net: Any, optimizer: Any) -> list[torch.Tensor]:
        count = 11
        for step in range(count):
            last = (step + 1) % passes == 0 or step + 1 == count
            loss = loss_of(net, rank, step) / passes
            if last:
                loss.backward()
                optimizer.step()
                optimizer.zero_grad()
            else:
                with net.no_sync():
                    loss.backward()
        return [p.detach() for p in net.parameters()]

    def train_by_passes(net: Any, optimizer: Any) -> list[torch.Tensor]:
        for step in range(11):
            (loss_of(net, rank, step) / passes).backward()
            if (step + 1) % passes == 0 or step == 10:
                optimizer.step()
                optimizer.zero_grad()
        return [p.detach() for p in net.parameters()]

    distributed.init_process_group(
        "gloo", init_method=f"file://{folder}/store", rank=rank, world_size=WORKERS
    )
    ddp = DistributedDataParallel(model())
    expected = train(ddp, SGD(ddp.parameters(), lr=0.1))
    distributed.destroy_process_group()
    with session() as bt:
        net = bt.DistributedDataParallel(model())
        got = train(net, SGD(net.parameters(), lr=0.1))
        other, optimizer, _ = wrap(bt, model(), "optimizer", backward_passes_per_step=passes)
        return expected, got, train_by_passes(other, optimizer)


def divides_again(rank: int, op: str, factor: float, weighted: Mapping[str, str]) -> Any:
    with session() as bt:
        net = model()
        optimizer = sgd(net, bt, op=getattr(bt, op), **weighted)
        with mock.patch("basin.worker.logger.warning") as warn:
            for step in range(3):
                optimizer.zero_grad()
                optimizer.contribute(tokens=rank + 1)
                loss_of(net, rank, step).backward()
                for parameter in net.parameters():
                    assert parameter.grad is not None
                    parameter.grad.mul_(factor)
                optimizer.step()
        return [call.args[0] % call.args[1:] for call in warn.call_args_list]


def divides_by_micro_batches(rank: int, count: int, synced: bool, weight_by: str | None) -> Any:
    """.grad divided by N, after windows of `count`, or after `count` backwards that all send."""
    with session() as bt:
        net = model()
        options: dict[str, Any] = {"op": bt.Average}
        if weight_by is not None:
            options = {"op": bt.WeightedAverage, "weight_by": weight_by, "contributes": "sum"}
        optimizer = sgd(net, bt, **options)
        with mock.patch("basin.worker.logger.warning") as warn:
            for step in range(2):
                optimizer.zero_grad()
                for k in range(count):
                    within = nullcontext() if synced or k + 1 == count else optimizer.no_sync()
                    with within:
                        loss_of(net, rank, 3 * step + k).backward()
                for parameter in net.parameters():
                    assert parameter.grad is not None
                    parameter.grad.div_(WORKERS)
                optimizer.step()
        return [call.args[0] % call.args[1:] for call in warn.call_args_list]


def written_after_a_step(rank: int, how: str, passes: int) -> Any:
    """Gradients that were computed without Basin, in a step after another one."""
    with trainer(backward_passes_per_step=passes) as (_, net, optimizer):
        for _ in range(passes):
            loss_of(net, rank).backward()
        optimizer.step()
        parameters = list(net.parameters())
        own = [each.clone() for each in torch.autograd.grad(loss_of(net, rank, 1), parameters)]
        if how in ("zeroed", "early"):
            optimizer.zero_grad(set_to_none=how == "early")
        if how == "early":
            early_backward(loss_of(net, rank, 1))
        for parameter, gradient in zip(parameters, own):
            if how == "assigned":
                parameter.grad = gradient
            elif how != "early":
                assert parameter.grad is not None
                parameter.grad.copy_(gradient)
        text = expect("FailedPrecondition", optimizer.step)
        optimizer.sync_gradients()
        result = gradients(net)
        optimizer.step()
        optimizer.step()  # Writing the same results again does not make them local.
        return text, own, result


def ends_in_a_window(rank: int) -> Any:
    with trainer() as (bt, net, optimizer):
        with optimizer.no_sync():
            loss_of(net, rank).backward()
        bt.barrier("all are there")
        with mock.patch("basin.torch.context.logger.warning") as warn:
            bt.shutdown()
        return [call.args[0] % call.args[1:] for call in warn.call_args_list]


def runs_out(rank: int, way: str) -> Any:
    """Worker i has 2 + i batches."""
    import basin.torch as bt

    torch.set_num_threads(1)
    bt.init()
    net, optimizer, lane = wrap(bt, model(), way)
    seen = []
    for step in range(2 + rank):
        optimizer.zero_grad()
        loss_of(net, rank, step).backward()
        info = lane.last_round()
        seen.append((info.contributors, info.divisor))
        optimizer.step()
    (bt.finished if way == "optimizer" else bt.join)()
    texts = [expect("FailedPrecondition", call) for call in (loss_of(net, rank).backward, bt.rank)]
    texts.append(expect("FailedPrecondition", bt.size))
    bt.shutdown()
    return seen, texts


def joins_as_ddp(rank: int) -> Any:
    """Worker i has 2 + i batches, in the loop that scripts for torch's join() have."""
    import basin.torch as bt

    torch.set_num_threads(1)
    bt.init()
    net: Any = bt.DistributedDataParallel(model())
    optimizer = SGD(net.parameters(), lr=0.1)
    seen = []
    with net.join(enable=False):
        loss_of(net, rank).backward()
    # No warning was logged: all contributed.
    place = bt.rank(), bt.size()
    optimizer.zero_grad()
    refused = expect("FailedPrecondition", lambda: leave_local(net, rank))
    optimizer.zero_grad()
    with net.join():
        for step in range(2 + rank):
            optimizer.zero_grad()
            loss_of(net, rank, step).backward()
            seen.append(net.last_round().contributors)
            optimizer.step()
    text = expect("FailedPrecondition", bt.rank)
    bt.shutdown()
    return place, refused, seen, text


def leave_local(net: Any, rank: int) -> None:
    with net.join(), net.no_sync():
        loss_of(net, rank).backward()


# ---- checks


class AccumulationTest(TorchTest):
    def test_criterion_4_1_nothing_is_sent_until_the_last_micro_batch(self) -> None:
        for way in WAYS:
            with self.subTest(way):
                outcomes = self.run_job(quiet_until_the_last, way)
                for within, bytes_within, called, result, totals, micro_batches in outcomes:
                    self.assertEqual([], [name for name in within if name != "get_place"])
                    self.assertEqual(0, bytes_within)
                    self.assertEqual(
                        [1, 1, 1], [called.count(n) for n in ("begin", "push_many", "commit")]
                    )
                    self.assertEqual(1, totals.rounds)
                    self.assertEqual(3 * WORKERS, micro_batches)
                    self.assert_close(mean_of_sums((0, 1, 2)), result)

    def test_criterion_4_1_buffers_travel_once_in_a_window(self) -> None:
        outcomes = self.run_job(buffers_of_a_window)
        for seen, begun in outcomes:
            # The gradients' round and that of the buffers, in the last micro-batch.
            self.assertEqual([0, 0, 2], [lanes for lanes, _ in seen])
            self.assertEqual(2, begun)
        for k, same in ((1, False), (2, True)):
            means = [seen[k][1] for seen, _ in outcomes]
            for other in means[1:]:
                self.assertEqual(same, torch.equal(means[0], other))

    def test_criterion_4_2_pushes_overlap_with_the_last_backward(self) -> None:
        for local, trace, share, alive in self.run_job(traced):
            self.assertEqual([False] * 3, alive, "outputs of the backwards so far")
            self.assertEqual(["gradient"] * 12, local)
            self.assertEqual(12, trace.count("push"))
            self.assertEqual(12, trace.count("gradient"))
            last = len(trace) - 1 - trace[::-1].index("gradient")
            self.assertLess(trace.index("push"), last)
            # When the last gradient is ready, the backward has not returned.
            self.assertGreaterEqual(share, 0.8)
            self.assertEqual("commit", trace[-1])

    def test_criterion_4_3_what_an_earlier_micro_batch_used_is_pushed(self) -> None:
        for way in WAYS:
            with self.subTest(way):
                expected = average(0)
                expected[-1] = expected[-1] + 1.0
                for result, alone in self.run_job(used_early_alone, way):
                    self.assert_close(expected, result)
                    self.assertEqual([None] * 3, alone[:3])
                    self.assert_close([torch.ones(3, dtype=torch.float64)], alone[3:])

    def test_criterion_4_4_a_step_sends_a_short_window(self) -> None:
        short = [
            sum(local_gradients(rank, step)[i] for rank in range(WORKERS) for step in (8, 9, 10))
            - local_gradients(1, 10)[i]
            for i in range(4)
        ]
        expected = [
            (mean_of_sums((0, 1, 2, 3)), WORKERS, 4 * WORKERS, 0),
            (mean_of_sums((4, 5, 6, 7)), WORKERS, 4 * WORKERS, 1),
            ([each / WORKERS for each in short], WORKERS, 3 * WORKERS - 1, 2),
        ]
        for way in WAYS:
            with self.subTest(way):
                for seen, rounds in self.run_job(windows, way):
                    self.assertEqual(3, rounds)
                    for (gradient, *expected_counts), (applied, *counts) in zip(expected, seen):
                        self.assert_close(gradient, applied, 1e-12)
                        self.assertEqual(expected_counts, counts)

    def test_criterion_4_4_a_short_window_that_was_clipped_before_its_step_is_refused(self) -> None:
        for way in WAYS:
            with self.subTest(way):
                outcomes = self.run_job(clips_a_short_window, way)
                self.assertEqual(["", ""], [text for text, *_ in outcomes[1:]])
                self.assertRegex(
                    outcomes[0][0],
                    r"step\(\) of step 0 was called on a window of fewer than 3 backwards.*the "
                    r"gradient of parameter 0\.weight of lane gradients was written to.*Call "
                    r"sync_gradients\(\) of the (optimizer|model) after the last backward",
                )
                for step in range(2):
                    self.assert_same_bits([clipped[step] for _, clipped, _ in outcomes])
                self.assert_same_bits([parameters for *_, parameters in outcomes])

    def test_criterion_4_4_writes_to_a_short_window_that_are_no_clipping_are_not(self) -> None:
        for how in ("none", "between", "zeroed", "zeroed to none", "one of two", "scaler"):
            with self.subTest(how):
                outcomes = self.run_job(writes_that_are_right, how)
                self.assert_same_bits([parameters for parameters, _ in outcomes])
                self.assertEqual([1] * WORKERS, [rounds for _, rounds in outcomes])

    def test_criterion_4_4_what_was_accumulated_is_sent_by_hand(self) -> None:
        expected = [(a + b) / WORKERS for a, b in zip(local_gradients(0), local_gradients(1))]
        for within, result, rounds in self.run_job(by_hand):
            self.assertIn("sync_gradients() of step 0 was called within no_sync()", within)
            self.assert_close(expected, result)
            self.assertEqual(1, rounds)

    def test_criterion_4_5_no_sync_is_about_the_backward_alone(self) -> None:
        # Around only the forward it does nothing: three rounds, and the same sum.
        for way in WAYS:
            for part, expected in (("forward", 3), ("backward", 1), ("both", 1)):
                with self.subTest(way, part=part):
                    for result, rounds in self.run_job(no_sync_around, way, part):
                        self.assertEqual(expected, rounds)
                        self.assert_close(mean_of_sums((0, 1, 2)), result, 1e-12)

    def test_criterion_4_5_sending_the_first_micro_batch_and_not_the_last_is_reported(self) -> None:
        for way in WAYS:
            with self.subTest(way):
                (text, counted), *others = self.run_job(first_instead_of_last, way)
                self.assertIn("step() of step 0 was called on a gradient of parameter 0.", text)
                self.assertIn("Run the last backward outside no_sync()", text)
                # The commit has the number of micro-batches, so all workers see that some are
                # missing.
                self.assertEqual([("", 1 + 3 + 3)] * (WORKERS - 1), others)
                self.assertEqual(1 + 3 + 3, counted)

    def test_criterion_4_4_a_window_that_was_not_sent_is_refused(self) -> None:
        expected = [a + b for a, b in zip(average(3), average(4))]
        for way in WAYS:
            with self.subTest(way):
                for (within, after), result in self.run_job(misuse, way):
                    self.assertIn("step() of step 2 was called within no_sync()", within)
                    self.assertIn(
                        "step() of step 2 was called on a gradient of parameter 0.", after
                    )
                    self.assertIn("sync_gradients()", after)
                    for a, b in zip(expected, result):
                        self.assertEqual(a.shape, b.shape)

    def test_criterion_4_4_a_script_for_ddp_gives_the_same(self) -> None:
        for passes in (1, 4):
            with self.subTest(passes=passes), tempfile.TemporaryDirectory() as folder:
                for expected, got, by_passes in self.run_job(as_ddp, folder, passes):
                    self.assert_close(expected, got, 1e-12)
                    self.assert_close(expected, by_passes, 1e-12)

    def test_criterion_4_4_a_window_that_is_open_at_the_end_of_the_job_is_reported(self) -> None:
        for told in self.run_job(ends_in_a_window):
            self.assertEqual(1, len(told))
            self.assertIn("shutdown() at step 0: gradients of lane gradients were accum", told[0])

    def test_criterion_4_5_what_is_written_after_a_step_is_no_result(self) -> None:
        for passes in (1, 2):
            for how in ("copied", "zeroed", "assigned", "early"):
                with self.subTest(how, passes=passes):
                    outcomes = self.run_job(written_after_a_step, how, passes)
                    each = [own for _, own, _ in outcomes]
                    expected = [torch.stack(of_all).mean(0) for of_all in zip(*each)]
                    for text, _, result in outcomes:
                        self.assertIn("step() of step 1 was called on a gradient of", text)
                        self.assertIn("that is local", text)
                        self.assert_close(expected, result)

    def test_criterion_4_6_workers_may_accumulate_differently(self) -> None:
        def expected(counts: tuple[int, ...]) -> list[torch.Tensor]:
            each = [
                local_gradients(rank, step) for rank, n in enumerate(counts) for step in range(n)
            ]
            return [torch.stack(of_all).sum(0) / len(each) for of_all in zip(*each)]

        for way in WAYS:
            with self.subTest(way):
                for seen, weight in self.run_job(uneven, way):
                    self.assertEqual(3, weight)  # basin.Weight.MICRO_BATCHES
                    for counts, (result, *told) in zip(((1, 2, 3), (0, 1, 2)), seen):
                        self.assert_close(expected(counts), result)
                        self.assertEqual([sum(counts)] * 2, told)

    def test_criterion_1_4_an_average_that_is_divided_again_is_reported_once(self) -> None:
        for told in self.run_job(divides_again, "Average", 1 / WORKERS, {}):
            self.assertEqual(1, len(told))
            self.assertRegex(
                told[0], r"^divided again: .*step 0 .*1/3 of those that AVERAGE.*basin\.Sum"
            )
        for op, factor in (("Sum", 1 / WORKERS), ("Average", 1.0), ("Average", 0.25)):
            self.assertEqual([[]] * WORKERS, self.run_job(divides_again, op, factor, {}))

    def test_criterion_1_4_a_weighted_average_divided_by_its_weights_is_reported(self) -> None:
        weighted = {"weight_by": "tokens", "contributes": "sum"}
        for divisor, times in ((WORKERS, 1), (1 + 2 + 3, 1), (4, 0)):
            for told in self.run_job(divides_again, "WeightedAverage", 1 / divisor, weighted):
                self.assertEqual(times, len(told))
                for text in told:
                    self.assertRegex(
                        text, f"^divided again: .*1/{divisor} of those that .* by 6 already"
                    )

    def test_criterion_1_4_a_possible_division_by_micro_batches_is_reported(self) -> None:
        for count, synced, weight_by, may_be in (
            (WORKERS, False, None, True),
            (WORKERS, True, None, True),
            (2, False, None, False),
            (WORKERS, False, "micro_batches", False),
        ):
            with self.subTest(count=count, synced=synced, weight_by=weight_by):
                for told in self.run_job(divides_by_micro_batches, count, synced, weight_by):
                    self.assertEqual(1, len(told))
                    self.assertRegex(told[0], "^divided again: .*step 0 .*Do not divide by")
                    self.assertEqual(
                        may_be, "If the script divides by the number of micro-batches" in told[0]
                    )

    def test_the_others_do_not_wait_for_a_worker_without_data(self) -> None:
        for way in WAYS:
            with self.subTest(way):
                for rank, (seen, texts) in enumerate(self.run_job(runs_out, way)):
                    self.assertEqual(2 + rank, len(seen))
                    for step, (contributors, divisor) in enumerate(seen):
                        left = tuple(f"w{i}" for i in range(WORKERS) if step < 2 + i)
                        self.assertEqual((left, len(left)), (contributors, divisor))
                    self.assertIn("no longer takes part in rounds", texts[0])
                    for text, call in zip(texts[1:], ("rank", "size")):
                        self.assertIn(f"{call}() was used after finished()", text)

    def test_join_of_a_model_is_finished_at_its_end(self) -> None:
        for rank, (place, refused, seen, text) in enumerate(self.run_job(joins_as_ddp)):
            self.assertEqual((rank, WORKERS), place)
            self.assertIn("gradients that were not sent", refused)
            expected = [tuple(f"w{i}" for i in range(WORKERS) if step < 2 + i) for step in range(5)]
            self.assertEqual(expected[: 2 + rank], seen)
            self.assertIn("rank() was used after finished()", text)

    def test_windows_of_two_models_take_turns(self) -> None:
        for results in self.run_job(windows_of_two_models):
            for result in results:
                self.assert_close(mean_of_sums((0, 1)), result, 1e-12)

    def test_a_worker_without_data_takes_part_after_a_skipped_step(self) -> None:
        parameters = [p.detach() for p in model().parameters()]
        expected = [p - 0.1 * g / WORKERS for p, g in zip(parameters, local_gradients(0, 1))]
        for way in WAYS:
            for how in ("none", "zeros", "by hand"):
                with self.subTest(way=way, how=how):
                    outcomes = self.run_job(leave_out, way, how)
                    for second, _, rounds in outcomes:
                        self.assert_close(expected, second, 1e-12)
                        self.assertEqual(3, rounds)
                    self.assert_same_bits([third for _, third, _ in outcomes])

    def test_an_aborted_round_that_is_dropped_leaves_no_counts(self) -> None:
        for counts, result in self.run_job(drop_what_failed):
            self.assertEqual((8 * WORKERS, 2 * WORKERS), (counts.samples, counts.micro_batches))
            self.assert_close(mean_of_sums((1, 2)), result, 1e-12)

    def test_criterion_4_7_a_step_is_over_a_target_batch(self) -> None:
        with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as kept:
            make_events(folder, ["closed"], kept)
            parameters, steps = zip(*self.run_job(target_batches, folder))
        self.assert_same_bits(list(parameters[:2]))
        expected = [p.detach().clone() for p in model().parameters()]
        for step in range(4):
            each = [mine[step] for mine in steps if step < len(mine)]
            total = sum(samples for used, _, _ in each for _, samples in used)
            self.assertEqual({total}, {samples for _, samples, _ in each})
            # The last micro-batch of each may go beyond the target.
            self.assertTrue(TARGET <= total < TARGET + sum(BATCHES), total)
            net = model()
            with torch.no_grad():
                for p, value in zip(net.parameters(), expected):
                    p.copy_(value)
            for used, _, _ in each:
                for first, samples in used:
                    sum_loss(net, first, samples).backward()
            expected = [
                p.detach() - 0.1 * p.grad / total for p in net.parameters() if p.grad is not None
            ]
            if step == 2:
                self.assert_close(expected, parameters[2], 1e-12)
        self.assertEqual([], steps[2][1][0], "a worker may contribute nothing")
        self.assertEqual([3, 3, 3, 2], [workers for _, _, workers in steps[0]])
        self.assert_close(expected, parameters[0], 1e-12)

    def test_criterion_4_7_a_sampler_counts_the_samples_of_a_target_batch(self) -> None:
        results = self.run_job(target_of_a_sampler)
        self.assertEqual(list(range(24)), sorted(index for used, _, _ in results for index in used))
        for _, rounds, refused in results:
            # The first steps are of whole batches; the end of the epoch is what is left.
            self.assertGreaterEqual(rounds[0], 8)
            self.assertIn("backward_passes_per_step or target_batch", refused)

    def test_wrong_target_batches_are_refused(self) -> None:
        results = self.run_job(wrong_targets)
        for plain, zero, both, without, _ in results:
            self.assertIn("Give DistributedOptimizer() target_batch=", without)
            self.assertIn('op=basin.WeightedAverage, weight_by="samples"', plain)
            self.assertIn("target_batch cannot be 0", zero)
            self.assertIn("both say when a window of micro-batches ends", both)
        refused = [text for *_, text in results if text]
        self.assertEqual(WORKERS - 1, len(refused), "the first has set the target")
        for text in refused:
            self.assertRegex(text, r"worker w\d accumulates for a target batch of 3\d samples, but")

    def test_a_window_of_too_many_backwards_is_refused(self) -> None:
        for way in WAYS:
            with self.subTest(way):
                outcomes = self.run_job(one_too_many, way)
                for _, first, second, third, rounds in outcomes:
                    self.assertEqual(3, rounds)
                    for result, steps in ((first, (0, 1)), (second, (3, 4)), (third, (5, 6))):
                        self.assert_close(mean_of_sums(steps), result, 1e-12)
                self.assertEqual(["", ""], [text for text, *_ in outcomes[:2]])
                self.assertRegex(
                    outcomes[2][0], r"after the last one of step 0.*Call step\(\) first"
                )


if __name__ == "__main__":
    main()
