# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""basin.horovod.torch: Horovod's calls against NumPy, and its optimizer against one process.

Usage: test_horovod.py BASIND LIBBASIN
"""

import contextlib
import os
import re
import subprocess
import sys
import tempfile
import unittest
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from jobs import PATIENCE, ROOT, environment, hear, make_events, require, say

require("numpy", "torch", "sklearn")
import numpy as np  # noqa: E402 - ends above when there is none
import torch  # noqa: E402
from torch import nn  # noqa: E402
from torch_jobs import TorchTest, batch, gradients, loss_of, main, model  # noqa: E402

FLOATING = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
INTEGERS = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64]

_sessions: Counter[str] = Counter()


@contextlib.contextmanager
def session() -> Iterator[Any]:
    """Initializes Basin as a script of Horovod does. A second session is another job."""
    import basin.horovod.torch as hvd

    torch.set_num_threads(1)  # A pool of threads does not survive a fork.
    job = os.environ["BASIN_JOB"]
    _sessions[job] += 1
    os.environ["BASIN_JOB"] = f"{job}-{_sessions[job]}"
    try:
        hvd.init(process_sets="dynamic")
        yield hvd
        hvd.barrier()
    finally:
        os.environ["BASIN_JOB"] = job
        hvd.shutdown()


def refusal(kind: type[Exception], call: Any, *arguments: Any, **options: Any) -> str:
    """The message of the exception that the call raises; "" if it raises none of this kind."""
    try:
        call(*arguments, **options)
    except kind as error:
        return str(error)
    return ""


def numbers(rank: int, dtype: torch.dtype) -> torch.Tensor:
    """Small whole numbers, of both signs if the dtype has them."""
    signs = [1, 1, 1] if dtype is torch.uint8 else [1, -1, 1]
    return (torch.tensor([[7, 3, 5], [2, 4, 1]]) * torch.tensor(signs) + rank).to(dtype)


def reductions(rank: int) -> Any:
    from basin.horovod.torch import integers

    with session() as hvd:
        rank = hvd.rank()
        made: dict[Any, Any] = {}
        ops = {"average": hvd.Average, "sum": hvd.Sum, "min": hvd.Min, "max": hvd.Max}
        ops["product"] = hvd.Product
        for dtype in FLOATING + INTEGERS:
            x = numbers(rank, dtype)
            for kind, op in ops.items():
                made[dtype, kind] = hvd.allreduce(x, op=op)
            made[dtype, "default"] = hvd.allreduce(x, name=f"default {dtype}")
            made[dtype, "scaled"] = hvd.allreduce(
                x, op=hvd.Sum, prescale_factor=0.5, postscale_factor=3.0
            )
            made[dtype, "scattered"] = hvd.reducescatter(x)
            inside = x.clone()
            handle = hvd.allreduce_async_(inside, op=hvd.Sum)
            same = hvd.synchronize(handle)
            made[dtype, "in place"] = (inside, same is inside and hvd.poll(handle))
            untouched = hvd.synchronize(hvd.allreduce_async(x, op=hvd.Sum))
            made[dtype, "async"] = (untouched, torch.equal(x, numbers(rank, dtype)))
        group = [numbers(rank, torch.float32), numbers(rank, torch.int8), torch.tensor(rank)]
        made["group"] = hvd.grouped_allreduce(group, name="group")
        inside_group = [tensor.clone() for tensor in group]
        made["group in place"] = hvd.grouped_allreduce_(inside_group, op=hvd.Max)
        made["same"] = all(a is b for a, b in zip(made["group in place"], inside_group))
        made["group async"] = hvd.synchronize(hvd.grouped_allreduce_async(group, op=hvd.Sum))
        hvd.synchronize(hvd.grouped_allreduce_async_(inside_group, op=hvd.Sum))
        made["group async in place"] = inside_group
        made["both scattered"] = hvd.grouped_reducescatter(
            [numbers(rank, torch.float64), numbers(rank, torch.int32)], op=hvd.Sum
        )
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            made["not averaged"] = hvd.allreduce(torch.tensor([rank]), average=False)
            made["averaged"] = hvd.allreduce(torch.tensor([1.0 * rank]), True)
        made["warned"] = [(each.category, each.filename == __file__) for each in warned]
        third = torch.full((2,), 1.0 / 3.0 + rank)
        made["half"] = hvd.allreduce(third, op=hvd.Sum, compression=hvd.Compression.fp16)
        made["overflow"] = hvd.allreduce(torch.full((1,), 200, dtype=torch.uint8), op=hvd.Sum)
        whole = torch.tensor([rank + 1, -1])
        made["cut off once"] = hvd.allreduce(whole, postscale_factor=float(hvd.size()))
        made["of many"] = [
            integers.after(torch.tensor([98, -49]), torch.int64, 49, 2.0),
            integers.after(torch.tensor([100, -100]), torch.int8, 200, 1.0),
        ]
        sparse = torch.sparse_coo_tensor(
            torch.tensor([[rank, 4]]), torch.tensor([1.0, 2.0]), (5,), check_invariants=True
        )
        made["sparse"] = hvd.sparse_allreduce_async(sparse, "sparse", hvd.Average)().to_dense()
        return rank, made


def rows(rank: int) -> Any:
    with session() as hvd:
        rank, size = hvd.rank(), hvd.size()
        made: dict[Any, Any] = {}
        for dtype in [torch.bool, torch.complex64, *FLOATING, *INTEGERS]:
            made["gathered", dtype] = hvd.allgather(torch.full((rank + 1, 2), rank, dtype=dtype))
            x = torch.full((2,), rank, dtype=dtype)
            made["root's", dtype] = hvd.broadcast(x, root_rank=1)
            inside = x.clone()
            made["in place", dtype] = (
                hvd.broadcast_(inside, 1, name=f"b {dtype}") is inside,
                inside,
            )
        made["later"] = hvd.synchronize(hvd.allgather_async(torch.tensor([rank])))
        made["group"] = hvd.grouped_allgather([torch.tensor([rank]), torch.ones(rank, 2)])
        made["group later"] = hvd.synchronize(
            hvd.grouped_allgather_async([torch.tensor([rank]), torch.ones(rank, 2)])
        )
        made["root's later"] = hvd.synchronize(hvd.broadcast_async(torch.tensor([rank]), 1))
        inside = torch.tensor([rank])
        made["in place later"] = hvd.synchronize(hvd.broadcast_async_(inside, 1)) is inside
        made["inside"] = inside
        splits = torch.tensor([rank + 1] * size, dtype=torch.int32)
        sent = torch.arange(size * (rank + 1)) + 100 * rank
        made["exchanged"] = hvd.alltoall(sent, splits)
        made["even"] = hvd.alltoall(torch.arange(size) + 100 * rank)
        made["listed"] = hvd.alltoall(sent, splits.tolist())
        made["exchanged later"] = hvd.synchronize(hvd.alltoall_async(sent))
        made["objects"] = hvd.allgather_object({"rank": rank})
        made["object"] = hvd.broadcast_object([rank], root_rank=1)
        made["object of a function"] = hvd.broadcast_object_fn(1, name="fn")(rank)
        return rank, made


def gradients_of_calls(rank: int) -> Any:
    """The gradients of each worker's own multiple of the result."""
    with session() as hvd:
        rank = hvd.rank()
        made = {}
        calls: dict[str, Any] = {
            "average": lambda x: hvd.allreduce(x),
            "sum": lambda x: hvd.allreduce(x, op=hvd.Sum),
            "half": lambda x: hvd.allreduce(x, compression=hvd.Compression.fp16),
            "allgather": lambda x: hvd.allgather(x),
            "group": lambda x: hvd.grouped_allgather([x])[0],
            "broadcast": lambda x: hvd.broadcast(x, 1),
            "alltoall": lambda x: hvd.alltoall(x[: hvd.size()]),
        }
        for kind, call in calls.items():
            x = torch.full((3, 2), rank + 1.0, requires_grad=True)
            (call(x) * 2.0**rank).sum().backward()
            made[kind] = x.grad
        y = torch.ones(3, requires_grad=True)
        made["async"] = hvd.synchronize(hvd.allreduce_async(y)).requires_grad
        hvd.allreduce_(y, op=hvd.Sum)
        made["leaf"] = y.detach()
        return rank, made


def refused(rank: int) -> Any:
    with session() as hvd:
        calls: list[tuple[type[Exception], Any, list[Any], dict[str, Any]]] = [
            (ValueError, hvd.allreduce, [torch.ones(1), True], {"op": hvd.Sum}),
            (ValueError, hvd.allreduce, [torch.ones(1)], {"op": "sum"}),
            (ValueError, hvd.allreduce, [torch.ones(1) > 0], {}),
            (ValueError, hvd.synchronize, [7], {}),
            (ValueError, hvd.broadcast_parameters, [7, 0], {}),
            (ValueError, hvd.allreduce, [torch.ones(1)], {"process_set": 1}),
            (NotImplementedError, hvd.allreduce, [torch.ones(1)], {"op": hvd.Adasum}),
            (NotImplementedError, hvd.start_timeline, ["file"], {}),
            (NotImplementedError, hvd.stop_timeline, [], {}),
            (NotImplementedError, hvd.init, [[0]], {}),
            (ValueError, hvd.allreduce, [torch.ones(1)], {"op": 1}),  # Horovod's number of a sum.
        ]
        return [
            refusal(kind, call, *arguments, **options) for kind, call, arguments, options in calls
        ]


def refused_optimizers(rank: int) -> Any:
    with session() as hvd:
        net = model()
        named = list(net.named_parameters())

        def made(**options: Any) -> Any:
            return hvd.DistributedOptimizer(torch.optim.SGD(net.parameters(), lr=0.1), **options)

        own = type("Own", (hvd.Compression.none,), {})

        return [
            refusal(kind, made, **options)
            for kind, options in [
                (ValueError, {"named_parameters": [7]}),
                (ValueError, {"named_parameters": named[1:]}),
                (ValueError, {"named_parameters": [("a", p) for _, p in named]}),
                (ValueError, {"gradient_predivide_factor": 2.0, "op": hvd.Sum}),
                (ValueError, {"groups": -1}),
                (ValueError, {"op": hvd.Max}),
                (NotImplementedError, {"op": hvd.Adasum}),
                (NotImplementedError, {"compression": own}),
            ]
        ]


def place(rank: int) -> Any:
    import basin.horovod.torch as hvd

    assert "static" in refusal(ValueError, hvd.init, process_sets="static")
    early = refusal(ValueError, hvd.rank), hvd.is_initialized()
    with session():
        hvd.init()
        probes = [
            *(hvd.mpi_enabled(), hvd.mpi_built(), hvd.mpi_threads_supported(), hvd.gloo_built()),
            *(hvd.gloo_enabled(), hvd.nccl_built(), hvd.ddl_built(), hvd.ccl_built()),
            *(hvd.cuda_built(), hvd.rocm_built()),
        ]
        here = (hvd.rank(), hvd.size(), hvd.local_rank(), hvd.local_size())
        return early, here, (hvd.cross_rank(), hvd.cross_size()), probes, hvd.is_initialized()


def sets(rank: int) -> Any:
    from basin import InvalidArgument

    with session() as hvd:
        rank = hvd.rank()
        everyone = hvd.global_process_set
        pair = hvd.add_process_set([0, 2])
        made: list[Any] = [everyone.size(), everyone.rank(), everyone.ranks, everyone.included()]
        if pair.included():
            x = torch.tensor([rank + 1])
            made += [
                hvd.allreduce(x, process_set=pair),
                hvd.allgather(x, process_set=pair),
                hvd.broadcast(x, 2, process_set=pair),
                hvd.broadcast_object(f"of {rank}", 2, process_set=pair),
                hvd.allgather_object("x" * rank, process_set=pair),
            ]
            # What the root cannot pickle is an error for all members.
            assert refusal(InvalidArgument, hvd.broadcast_object, lambda: rank, 2, None, pair)
            net = nn.Linear(1, 1)
            nn.init.constant_(net.weight, rank)
            hvd.broadcast_parameters(net.state_dict(), 2, process_set=pair)
            made.append(float(net.weight.detach()))
            hvd.barrier(process_set=pair)
        outside = refusal(ValueError, hvd.broadcast, torch.ones(1), 1, None, pair)
        whole = refusal(
            NotImplementedError,
            lambda: hvd.DistributedOptimizer(
                torch.optim.SGD(model().parameters()), process_set=pair
            ),
        )
        ended = hvd.remove_process_set(pair), hvd.remove_process_set(everyone)
        return rank, made, outside, whole, ended


def optimizer_of(hvd: Any, net: nn.Module, **options: Any) -> Any:
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    return hvd.DistributedOptimizer(optimizer, named_parameters=net.named_parameters(), **options)


def steps(rank: int, kind: str) -> Any:
    """Three steps, each in one of the forms that scripts of Horovod have."""
    from basin import InvalidArgument

    with session() as hvd:
        rank = hvd.rank()
        net = model()
        if kind == "broadcast" and rank != 0:
            for parameter in net.parameters():
                nn.init.zeros_(parameter)
        of_kind: dict[str, dict[str, Any]] = {
            "passes": {"backward_passes_per_step": 2},
            "predivide": {"gradient_predivide_factor": 4.0},
            "sum": {"op": hvd.Sum},
        }
        optimizer = optimizer_of(hvd, net, **of_kind.get(kind, {}))
        hvd.broadcast_parameters(net.state_dict(), root_rank=0)
        hvd.broadcast_optimizer_state(optimizer, root_rank=0)
        if kind == "changed passes":
            optimizer.set_backward_passes_per_step(2)
            for wrong in (0, 1.5):
                assert refusal(InvalidArgument, optimizer.set_backward_passes_per_step, wrong)
        for step in range(3):
            optimizer.zero_grad()
            loss_of(net, rank, step).backward()
            if "passes" in kind:
                loss_of(net, rank, step + 100).backward()
            if kind == "clipping":
                optimizer.synchronize()
                nn.utils.clip_grad_norm_(net.parameters(), 0.05)
                with optimizer.skip_synchronize():
                    optimizer.step()
            else:
                optimizer.step()
        return [parameter.detach() for parameter in net.parameters()]


def alone(workers: int, kind: str) -> list[torch.Tensor]:
    """The same in one process, with the global batch."""
    net = model()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    for step in range(3):
        optimizer.zero_grad()
        seeds = (step, step + 100) if "passes" in kind else (step,)
        for seed in seeds:
            together = torch.cat([batch(rank, seed) for rank in range(workers)])
            factor = workers if kind == "sum" else 1
            (net(together).square().mean() * factor).backward()
        if kind == "clipping":
            nn.utils.clip_grad_norm_(net.parameters(), 0.05)
        optimizer.step()
    return [parameter.detach() for parameter in net.parameters()]


def order(rank: int) -> Any:
    """What zero_grad() says at each place of a step."""
    with session() as hvd:
        net = model()
        optimizer = optimizer_of(hvd, net)
        said = [refusal(AssertionError, optimizer.zero_grad)]
        loss_of(net, rank).backward()
        said.append(refusal(AssertionError, optimizer.zero_grad))
        optimizer.synchronize()
        said.append(refusal(AssertionError, optimizer.zero_grad))
        loss_of(net, rank).backward()
        said.append(refusal(AssertionError, optimizer.zero_grad))
        optimizer.step()
        said.append(refusal(AssertionError, optimizer.zero_grad))
        return said


def compressed(rank: int) -> Any:
    with session() as hvd:
        net = model().float()
        optimizer = optimizer_of(hvd, net, compression=hvd.Compression.fp16)
        net(batch(hvd.rank()).float()).square().mean().backward()
        optimizer.synchronize()
        return [parameter.grad for parameter in net.parameters()]


def sparse_gradient(rank: int, as_dense: bool) -> Any:
    with session() as hvd:
        rank = hvd.rank()
        torch.manual_seed(3)
        net: Any = nn.Embedding(6, 2, sparse=True)
        optimizer = torch.optim.SGD(net.parameters(), lr=1.0)
        hvd.DistributedOptimizer(optimizer, net.named_parameters(), sparse_as_dense=as_dense)
        hvd.broadcast_parameters(net.state_dict(), root_rank=0)
        before = net.weight.detach().clone()
        net(torch.tensor([rank, 4, 4])).sum().backward()
        layout = net.weight.grad.layout
        optimizer.step()
        return layout, before - net.weight.detach()


NORM_SHAPE = (3, 2, 2)


def norm_input(rank: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(rank)
    # Batches of different sizes, far from zero.
    return 100.0 + torch.randn(2 + rank, *NORM_SHAPE, generator=generator, dtype=torch.float64)


def normalized(rank: int) -> Any:
    with session() as hvd:
        rank = hvd.rank()
        norm: Any = hvd.SyncBatchNorm(NORM_SHAPE[0]).float()
        x = norm_input(rank).float().requires_grad_()
        y = norm(x)
        (y.square() * (1.0 + torch.arange(y.shape[0])[:, None, None, None])).sum().backward()
        norm.eval()
        return (
            y.detach(), x.grad, norm.running_mean, norm.running_var, norm(x).detach(),
            [norm.weight.grad, norm.bias.grad],
        )  # fmt: skip


def elastic(rank: int, steps: int) -> Any:
    """Two epochs over ten samples, once each; and a step that is aborted on all workers."""
    import basin

    with session() as hvd:
        torch.manual_seed(7)
        net = nn.Linear(1, 1)
        optimizer = hvd.DistributedOptimizer(torch.optim.SGD(net.parameters(), lr=0.01))
        data = torch.utils.data.TensorDataset(torch.arange(10.0)[:, None])
        sampler = hvd.elastic.ElasticSampler(data)
        loader = torch.utils.data.DataLoader(data, batch_size=2, sampler=sampler)
        state = hvd.elastic.TorchState(net, optimizer, sampler=sampler, batch=0)
        called: list[int] = []
        state.register_reset_callbacks([lambda: called.append(hvd.size())])
        seen: list[float] = []
        begun: list[int] = []

        @hvd.elastic.run
        def train(state: Any, epochs: int) -> str:
            begun.append(state.epoch)
            for state.epoch in range(state.epoch, epochs):  # noqa: B020 - as scripts do.
                sampler.set_epoch(state.epoch)
                for state.batch, (x,) in enumerate(loader):
                    optimizer.zero_grad()
                    net(x).sum().backward()
                    optimizer.step()
                    seen.extend(x.flatten().tolist())
                    sampler.record_batch(state.batch, len(x))
                    state.commit()
            if len(begun) == 1:
                # As a round that has ended so on all workers.
                raise basin.RoundAborted("a round was aborted")
            return "done"

        done = train(state, 2)
        saved = [parameter.detach().clone() for parameter in net.parameters()]
        state.save()
        with torch.no_grad():
            net.weight.zero_()
        state.batch = 77
        state.restore()
        restored = [parameter.detach().clone() for parameter in net.parameters()]
        again = refusal(basin.RoundAborted, hvd.elastic.run(always_aborted), state)
        return done, seen, begun, called, saved, restored, state.batch, again


def elastic_joiner(rank: int, folder: str) -> Any:
    """Two workers train until a third one has ended three epochs with them. It gets their state in
    sync(), in the middle of an epoch, and the samples of that epoch are shared with it."""
    begun = Path(folder) / "begun"
    if rank == 2:
        hear(begun)
    with session() as hvd:
        torch.manual_seed(7 + rank)  # Only rank 0 has the right parameters.
        net = nn.Linear(1, 1).double()
        optimizer = hvd.DistributedOptimizer(torch.optim.SGD(net.parameters(), lr=1e-3))
        data = torch.utils.data.TensorDataset(torch.arange(12.0).double()[:, None])
        sampler = hvd.elastic.ElasticSampler(data)
        loader = torch.utils.data.DataLoader(data, batch_size=1, sampler=sampler)
        state = hvd.elastic.TorchState(net, optimizer, sampler=sampler, steps=0)
        resets: list[int] = []
        state.register_reset_callbacks([lambda: resets.append(hvd.size())])
        # The epoch, the step, the workers in its round, and the sample.
        seen: list[tuple[int, int, int, float]] = []

        @hvd.elastic.run
        def train(state: Any) -> None:
            together = 0
            while together < 3:
                sampler.set_epoch(state.epoch)
                for (x,) in loader:
                    optimizer.zero_grad()
                    net(x).sum().backward()
                    optimizer.step()
                    state.steps += 1
                    state.commit()
                    workers = len(optimizer.last_round().contributors)
                    seen.append((state.epoch, state.steps, workers, x.item()))
                    if rank == 0 and state.steps == 3:
                        say(begun)
                # All have seen this round, also those that had no sample left for it.
                together += len(optimizer.last_round().contributors) == 3
                state.epoch += 1

        train(state)
        return seen, resets, gradients(net), [p.detach().clone() for p in net.parameters()]


def resized(rank: int, folder: str) -> Any:
    """Rank 2 joins the others between two of their commits, and the learning rate follows."""
    if rank == 2:
        hear(Path(folder) / "go")
    with session() as hvd:
        net = model()
        optimizer = optimizer_of(hvd, net)
        state = hvd.elastic.TorchState(net, optimizer, batch=0, together=0)

        def reset() -> None:
            for group in optimizer.param_groups:
                group["lr"] = 0.05 * hvd.size()

        state.register_reset_callbacks([reset])

        @hvd.elastic.run
        def train(state: Any) -> None:
            while state.together < 90:
                if state.batch == 3 and rank == 0:
                    say(Path(folder) / "go")
                optimizer.zero_grad()
                loss_of(net, rank, state.batch).backward()
                optimizer.step()
                state.batch += 1
                state.together += len(optimizer.last_round().contributors) == 3
                if state.batch % 40 == 0:
                    state.commit()

        train(state)
        rates = [group["lr"] for group in optimizer.param_groups]
        return rates, [parameter.detach() for parameter in net.parameters()]


def always_aborted(state: Any) -> None:
    import basin

    raise basin.RoundAborted("it never ends well")


def values(rank: int) -> Any:
    """A state without a model."""
    with session() as hvd:
        state = hvd.elastic.ObjectState(hvd.broadcast_object, hvd.rank, seen=[hvd.rank()], number=1)

        @hvd.elastic.run
        def work(state: Any) -> Any:
            state.number += 1
            state.commit()
            state.number += 1
            state.restore()
            return state.seen, state.number

        return work(state)


def timeline(rank: int, folder: str) -> Any:
    os.environ["HOROVOD_TIMELINE"] = f"{folder}/trace.json"
    os.environ["LOCAL_RANK"] = str(rank)
    with session() as hvd:
        hvd.start_timeline(f"{folder}/ignored.json")
        hvd.allreduce(torch.ones(1))
        hvd.stop_timeline()


def joined(rank: int) -> Any:
    """Workers with 1, 2 and 3 batches; then all go on."""
    with session() as hvd:
        rank = hvd.rank()
        net = model()
        optimizer = optimizer_of(hvd, net)
        for step in range(rank + 1):
            optimizer.zero_grad()
            loss_of(net, rank, step).backward()
            optimizer.step()
        last = hvd.join()
        after = [parameter.detach().clone() for parameter in net.parameters()]
        total = hvd.allreduce(torch.tensor([1.0]), op=hvd.Sum)
        again = hvd.join()
        return last, after, total, again


def apart(rank: int) -> Any:
    """One worker is in join(), and the other one makes a call that is no step."""
    from basin import RoundAborted

    with session() as hvd:
        optimizer_of(hvd, model())
        if hvd.rank() == 0:
            return refusal(RoundAborted, hvd.join)
        return refusal(RoundAborted, hvd.allreduce, torch.ones(1), name="metric")


class Calls(TorchTest):
    def test_reductions_are_those_of_numpy(self) -> None:
        for workers in (2, 3):
            for rank, made in self.jobs.run(reductions, workers):
                self.check_reductions(workers, rank, made)

    def check_reductions(self, workers: int, rank: int, made: Any) -> None:
        for dtype in FLOATING + INTEGERS:
            each = np.stack([numbers(r, dtype).double().numpy() for r in range(workers)])
            whole = dtype in INTEGERS
            cut = np.trunc if whole else (lambda x: x)
            mean = cut(each.sum(0) / workers)
            expected = {
                "average": mean,
                "default": mean,
                "sum": each.sum(0),
                "min": each.min(0),
                "max": each.max(0),
                "product": each.prod(0),
                "scaled": cut(cut(each * 0.5).sum(0) * 3.0),
                "scattered": np.array_split(mean, workers)[rank],
            }
            for kind, numpys in expected.items():
                got = made[dtype, kind]
                self.assertEqual(dtype, got.dtype)
                exact = torch.tensor(numpys).to(dtype)
                if kind == "product" and dtype in (torch.int8, torch.uint8):
                    exact = torch.tensor(numpys).to(torch.int64).to(dtype)
                self.assertTrue(torch.equal(exact, got), (workers, dtype, kind, exact, got))
            total = torch.tensor(each.sum(0)).to(dtype)
            for kind in ("in place", "async"):
                got, as_said = made[dtype, kind]
                self.assertTrue(as_said, (dtype, kind))
                self.assertTrue(torch.equal(total, got), (dtype, kind))
        group = [
            np.stack([numbers(r, torch.float64).numpy() for r in range(workers)]),
            np.stack([numbers(r, torch.float64).numpy() for r in range(workers)]),
            np.arange(workers, dtype=np.float64),
        ]
        self.assertTrue(made["same"])
        for name, of in {
            "group": [group[0].mean(0), np.trunc(group[1].mean(0)), np.trunc(group[2].mean(0))],
            "group in place": [each.max(0) * workers for each in group],
            "group async": [each.sum(0) for each in group],
            "group async in place": [each.max(0) * workers for each in group],
        }.items():
            for expected_one, got in zip(of, made[name], strict=True):
                self.assertTrue(
                    torch.equal(torch.tensor(expected_one).to(got.dtype), got), (name, got)
                )
        for got in made["both scattered"]:
            mine = np.array_split(group[0].sum(0), workers)[rank]
            self.assertTrue(torch.equal(torch.tensor(mine).to(got.dtype), got))
        self.assertEqual([sum(range(workers))], made["not averaged"].tolist())
        self.assertEqual([sum(range(workers)) / workers], made["averaged"].tolist())
        self.assertEqual([(DeprecationWarning, True)] * 2, made["warned"])
        halves = [np.float16(np.float32(1.0 / 3.0 + r)) for r in range(workers)]
        half = np.float16(sum(map(np.float32, halves)))
        self.assertEqual([float(half)] * 2, made["half"].tolist())
        self.assertEqual(torch.float32, made["half"].dtype)
        self.assertEqual([200 * workers % 256], made["overflow"].tolist())
        whole_sum = workers * (workers + 1) // 2
        self.assertEqual([whole_sum, -workers], made["cut off once"].tolist())
        self.assertEqual([[4, -2], [0, 0]], [each.tolist() for each in made["of many"]])
        sparse = np.zeros(5)
        sparse[:workers] += 1.0 / workers
        sparse[4] += 2.0
        np.testing.assert_allclose(sparse, made["sparse"].numpy(), rtol=1e-6)

    def test_rows_are_those_of_numpy(self) -> None:
        for workers in (2, 3):
            for rank, made in self.jobs.run(rows, workers):
                gathered = np.concatenate([np.full((r + 1, 2), r) for r in range(workers)])
                for dtype in [torch.bool, torch.complex64, *FLOATING, *INTEGERS]:
                    expected = torch.tensor(gathered).to(dtype)
                    self.assertTrue(torch.equal(expected, made["gathered", dtype]), dtype)
                    ones = torch.ones(2, dtype=dtype)
                    self.assertTrue(torch.equal(ones, made["root's", dtype]), dtype)
                    is_same, inside = made["in place", dtype]
                    self.assertTrue(is_same and torch.equal(ones, inside), dtype)
                ranks = list(range(workers))
                self.assertEqual(ranks, made["later"].tolist())
                for name in ("group", "group later"):
                    first, second = made[name]
                    self.assertEqual(ranks, first.tolist())
                    self.assertEqual((sum(ranks), 2), second.shape)
                self.assertEqual([1], made["root's later"].tolist())
                self.assertTrue(made["in place later"])
                self.assertEqual([1], made["inside"].tolist())
                parts = [np.arange(rank * (r + 1), (rank + 1) * (r + 1)) + 100 * r for r in ranks]
                for name in ("exchanged", "listed"):
                    received, splits = made[name]
                    self.assertEqual(np.concatenate(parts).tolist(), received.tolist())
                    self.assertEqual([r + 1 for r in ranks], splits.tolist())
                    self.assertEqual(torch.int32, splits.dtype)
                self.assertEqual([100 * r + rank for r in ranks], made["even"].tolist())
                received, splits = made["exchanged later"]
                self.assertEqual(np.concatenate(parts).tolist(), received.tolist())
                self.assertEqual([r + 1 for r in ranks], splits.tolist())
                self.assertEqual([{"rank": r} for r in ranks], made["objects"])
                self.assertEqual([1], made["object"])
                self.assertEqual(1, made["object of a function"])

    def test_gradients_are_horovods(self) -> None:
        for rank, made in self.jobs.run(gradients_of_calls, 3):
            mean, total = 7.0 / 3.0, 7.0
            expected = {
                "average": mean,
                "sum": total,
                "half": float(np.float16(np.float32(mean))),
                "allgather": mean,
                "group": mean,
                "broadcast": mean if rank == 1 else 0.0,
            }
            for kind, number in expected.items():
                torch.testing.assert_close(torch.full((3, 2), number), made[kind], msg=kind)
            sent = torch.tensor([[1.0], [2.0], [4.0]]).expand(3, 2)
            self.assertTrue(torch.equal(sent, made["alltoall"]))
            self.assertFalse(made["async"])
            self.assertEqual([3.0] * 3, made["leaf"].tolist())

    def test_what_is_not_there_says_so(self) -> None:
        for said in self.jobs.run(refused, 2):
            self.assertIn("both op and average", said[0])
            self.assertNotIn("", said)
            self.assertIn("BASIN_TIMELINE", said[7])
        for said in self.jobs.run(refused_optimizers, 2):
            self.assertNotIn("", said)
            self.assertIn("0.0", said[1])

    def test_the_place_of_a_worker(self) -> None:
        for rank, (early, here, across, probes, started) in enumerate(self.jobs.run(place, 2)):
            self.assertIn("hvd.init()", early[0])
            self.assertFalse(early[1])
            self.assertEqual((rank, 2), here[:2])
            self.assertEqual((0, 1), across)
            self.assertFalse(any(probes))
            self.assertTrue(started)

    def test_process_sets(self) -> None:
        for rank, made, outside, whole, ended in self.jobs.run(sets, 3):
            self.assertEqual([3, rank, [0, 1, 2], True], made[:4])
            self.assertIn("root_rank 1 is not in ProcessSet(0, 2)", outside)
            self.assertIn("ProcessSet(0, 2)", whole)
            self.assertEqual((True, False), ended)
            if rank == 1:
                self.assertEqual(4, len(made))
                continue
            self.assertEqual([[2], [1, 3], [3]], [each.tolist() for each in made[4:7]])
            self.assertEqual(["of 2", ["", "xx"], 2.0], made[7:])


class Optimizers(TorchTest):
    def test_steps_are_those_of_one_process_with_the_global_batch(self) -> None:
        for workers in (2, 3):
            for kind in (
                *("plain", "broadcast", "passes", "changed passes", "predivide", "sum"),
                "clipping",
            ):
                with self.subTest(kind, workers=workers):
                    each = self.jobs.run(steps, workers, kind)
                    self.assert_same_bits(each)
                    self.assert_close(alone(workers, kind), each[0])

    def test_another_call_than_a_step_ends_when_one_worker_is_in_join(self) -> None:
        for said in self.jobs.run(apart, 2):
            self.assertIn("call/metric", said)

    def test_zero_grad_before_the_step_is_refused(self) -> None:
        for said in self.jobs.run(order, 2):
            self.assertEqual([False, True, False, True, False], [bool(each) for each in said])

    def test_gradients_are_sent_as_float16(self) -> None:
        each = self.jobs.run(compressed, 3)
        self.assert_same_bits(each)
        locals_: list[list[torch.Tensor]] = []
        for rank in range(3):
            net = model().float()
            net(batch(rank).float()).square().mean().backward()
            locals_.append([g.half().float() for g in gradients(net)])
        for got, *mine in zip(each[0], *locals_):
            expected = (torch.stack(mine).sum(0) / 3).half().float()
            torch.testing.assert_close(expected, got, rtol=1e-3, atol=1e-6)

    def test_sparse_gradients_are_averaged_by_row(self) -> None:
        expected = torch.zeros(6, 2)
        expected[:2] = 0.5
        expected[4] = 2.0
        for as_dense in (False, True):
            for layout, step in self.jobs.run(sparse_gradient, 2, as_dense):
                self.assertEqual(layout, torch.strided if as_dense else torch.sparse_coo)
                torch.testing.assert_close(step, expected)

    def test_a_batch_norm_over_all_workers(self) -> None:
        got = self.jobs.run(normalized, 3)
        norm: Any = nn.BatchNorm2d(NORM_SHAPE[0]).double()
        whole: Any = torch.cat([norm_input(rank) for rank in range(3)]).requires_grad_()
        y = norm(whole)
        factors = torch.cat([1.0 + torch.arange(2 + rank) for rank in range(3)])
        (y.square() * factors[:, None, None, None]).sum().backward()
        norm.eval()
        running = norm(whole).detach()
        begin = 0
        for rank, (out, gradient, mean, variance, after, _) in enumerate(got):
            mine = slice(begin, begin + 2 + rank)
            begin += 2 + rank
            close: Any = {"rtol": 1e-3, "atol": 1e-3, "check_dtype": False}
            torch.testing.assert_close(out, y[mine].detach(), **close)
            torch.testing.assert_close(gradient, whole.grad[mine], **close)
            torch.testing.assert_close(mean, norm.running_mean, **close)
            torch.testing.assert_close(variance, norm.running_var, **close)
            torch.testing.assert_close(after, running[mine], **close)
        # Those of the layer itself are of this worker, as for any layer.
        of_all = [sum(each[5][i] for each in got) for i in range(2)]
        torch.testing.assert_close(of_all[0], norm.weight.grad, **close)
        torch.testing.assert_close(of_all[1], norm.bias.grad, **close)
        self.assert_same_bits([[each[2], each[3]] for each in got])

    def test_an_elastic_script_sees_each_sample_once_and_begins_again(self) -> None:
        got = self.jobs.run(elastic, 2, 2)
        for done, _, begun, called, saved, restored, number, again in got:
            self.assertEqual(done, "done")
            self.assertEqual(len(begun), 2)
            self.assertEqual(called[0], 2)
            self.assertEqual(saved, restored)
            self.assertNotEqual(number, 77)
            self.assertIn("never ends well", again)
        seen = Counter(sample for each in got for sample in each[1])
        self.assertEqual(set(seen), {float(i) for i in range(10)})
        # Two epochs; the second call goes on with another one after the last.
        self.assertEqual(len(set(seen.values())), 1)
        self.assert_same_bits([each[4] for each in got])

    def test_a_worker_joins_an_elastic_script_that_trains(self) -> None:
        with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as kept:
            make_events(folder, ["begun"], kept)
            each = self.jobs.run(
                elastic_joiner, 3, folder, BASIN_MIN_WORKERS="2", BASIN_START_WORKERS="2"
            )
        self.assert_same_bits([parameters for *_, parameters in each])
        (first, *_), _, (joined, *_) = each
        # The survivors were told once, and go on; the joiner continues their count of steps.
        self.assertEqual([resets for _, resets, *_ in each[:2]], [[3], [3]])
        self.assertEqual(first[0][2], 2)
        self.assertGreater(joined[0][1], 3)
        self.assertEqual({workers for _, _, workers, _ in joined}, {3})
        # Each sample once per epoch, over all workers.
        given = Counter((epoch, x) for seen, *_ in each for epoch, _, _, x in seen)
        epochs = range(first[-1][0] + 1)
        self.assertEqual(given, Counter({(e, float(x)): 1 for e in epochs for x in range(12)}))

    def test_a_worker_that_joins_between_commits_gets_the_rate_with_the_others(self) -> None:
        with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as kept:
            make_events(folder, ["go"], kept)
            each = self.jobs.run(resized, 3, folder, BASIN_MIN_WORKERS="2", BASIN_START_WORKERS="2")
        for rates, _ in each:
            self.assertEqual([0.05 * 3], rates)
        self.assert_same_bits([parameters for _, parameters in each])

    def test_an_elastic_state_of_values_alone(self) -> None:
        self.assertEqual(self.jobs.run(values, 2), [([0], 2)] * 2)

    def test_a_timeline_where_horovods_variable_says(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            self.jobs.run(timeline, 2, folder)
            names = {each.name for each in Path(folder).iterdir()}
        self.assertEqual(names, {"trace.0-0.json", "trace.0-1.json"})

    def test_a_worker_without_data_counts_as_zeros(self) -> None:
        each = self.jobs.run(joined, 3)
        net = model()
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
        for step in range(3):
            optimizer.zero_grad()
            for rank in range(step, 3):
                (loss_of(net, rank, step) / 3).backward()
            optimizer.step()
        for last, after, total, again in each:
            self.assertEqual(2, last)
            self.assertEqual([3.0], total.tolist())
            self.assertIn(again, range(3))
            self.assert_close([parameter.detach() for parameter in net.parameters()], after)
        self.assert_same_bits([after for _, after, _, _ in each])


def under_basin(*arguments: str) -> list[str]:
    """The lines that two workers print, without their ranks."""
    done = subprocess.run(
        [sys.executable, "-m", "basin.launch", "--horovod", "-np", "2", *arguments],
        env=environment(PYTHONDONTWRITEBYTECODE="1"),
        capture_output=True,
        text=True,
        timeout=3 * PATIENCE,
        check=False,
    )
    if done.returncode != 0:
        raise AssertionError(done.stdout + done.stderr)
    return [line.partition("] ")[2] for line in done.stdout.splitlines()]


# Modules are the same by both names; a child of the script finds them, too.
IMPORTS = """
import subprocess, sys
import horovod
from horovod import torch as one
import horovod.torch as other
import horovod.torch.elastic
import basin.horovod.torch as third
from horovod.torch.compression import Compression
try:
    import horovod.spark
except ImportError as error:
    print(error)
print(one is other is third, Compression is one.Compression, one.__name__)
if len(sys.argv) == 1:
    subprocess.run([sys.executable, __file__, "child"], check=True)
"""
RANK_1_FAILS = """
import horovod.torch as hvd
hvd.init()
if hvd.rank() == 1:
    raise KeyError("a bug")
hvd.barrier()
"""


class Scripts(unittest.TestCase):
    def test_modules_are_found_by_horovods_names(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            script = Path(folder) / "script.py"
            script.write_text(IMPORTS)
            lines = under_basin(str(script))
        self.assertEqual(4, lines.count("True True basin.horovod.torch"), lines)
        self.assertEqual(4, sum("Basin has no horovod.spark" in line for line in lines))

    def test_an_exception_is_no_end_of_the_script(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            script = Path(folder) / "script.py"
            script.write_text(RANK_1_FAILS)
            with self.assertRaisesRegex(AssertionError, "KeyError: 'a bug'"):
                under_basin(str(script))

    def test_the_page_runs(self) -> None:
        page = (ROOT / "docs/frameworks/horovod.md").read_text()
        code = next(
            each
            for each in re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
            if "horovod.torch" in each
        )
        with tempfile.TemporaryDirectory() as folder:
            script = Path(folder) / "script.py"
            script.write_text(code + 'print("loss", float(loss))\n')
            self.assertEqual(["loss 1.0"] * 2, under_basin(str(script)))


class Examples(unittest.TestCase):
    def test_scripts_of_horovod_run_as_they_are(self) -> None:
        for script in ("digits.py", "elastic_digits.py"):
            with self.subTest(script):
                lines = under_basin(str(ROOT / "examples/horovod" / script))
                sums = [line for line in lines if line.startswith("parameters ")]
                self.assertEqual(2, len(sums), lines)
                self.assertEqual(1, len(set(sums)), lines)
                found = [re.search(r"([\d.]+) % right", line) for line in lines]
                right = [float(each[1]) for each in found if each]
                self.assertEqual(5, len(right))
                self.assertGreater(right[-1], 85.0)

    def test_a_benchmark_of_horovod_counts_images(self) -> None:
        script = str(ROOT / "examples/horovod/synthetic_benchmark.py")
        few = ("--batch-size=2", "--num-warmup-batches=1", "--num-batches-per-iter=2")
        lines = under_basin(script, *few, "--num-iters=3", "--fp16-allreduce")
        self.assertEqual(3, sum(line.startswith("Iter #") for line in lines), lines)
        (total,) = (line for line in lines if line.startswith("Total img/sec on 2 workers: "))
        self.assertGreater(float(total.split()[5]), 0.0)

    def test_the_script_before_migration_trains_as_the_one_after(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            before, after = f"{folder}/before", f"{folder}/after"
            scripts = ROOT / "examples/migrating"
            under_basin(sys.executable, str(scripts / "horovod_before.py"), before)
            under_basin(sys.executable, str(scripts / "horovod_after.py"), after)
            expected = torch.load(after, weights_only=True)
            got = torch.load(before, weights_only=True)
            self.assertEqual(list(expected), list(got))
            for name, tensor in expected.items():
                self.assertTrue(torch.equal(tensor, got[name]), name)


if __name__ == "__main__":
    main()
