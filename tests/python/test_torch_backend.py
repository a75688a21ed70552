# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""The backend "basin" of torch.distributed.

Usage: test_torch_backend.py BASIND LIBBASIN
"""

import contextlib
import gc
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any
from unittest import mock

from jobs import PATIENCE, ROOT, JobsTest, environment, require

require("numpy", "torch")
import numpy as np  # noqa: E402 - ends above when there is none
import torch  # noqa: E402
from torch import distributed as dist  # noqa: E402
from torch import nn  # noqa: E402
from torch_jobs import expect, main  # noqa: E402

FLOATS = [torch.float64, torch.float32, torch.float16, torch.bfloat16]
DTYPES = [*FLOATS, torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8]


@contextlib.contextmanager
def group(rank: int, size: int, folder: str, backend: str = "basin") -> Iterator[int]:
    """The default group of this process, which meets the others at a file."""
    import basin.torch.backend  # noqa: F401 - registers it

    torch.set_num_threads(1)  # A pool of threads does not survive a fork.
    store = dist.FileStore(f"{folder}/{backend}", size)
    dist.init_process_group(backend, store=store, rank=rank, world_size=size)
    try:
        yield size
        # A Reducer of torch that is the last one to hold the group waits for threads of the group,
        # which may wait for the interpreter, forever.
        gc.collect()
        dist.barrier()  # Until then nobody takes this worker for lost.
    finally:
        dist.destroy_process_group()


def values(rank: int, shape: tuple[int, ...], dtype: torch.dtype, seed: int = 0) -> torch.Tensor:
    """The numbers of a rank: small whole ones, so that sums are exact in all dtypes."""
    generator = torch.Generator().manual_seed(100 * rank + seed)
    return torch.randint(0, 4, shape, generator=generator).to(dtype)


def arrays(size: int, shape: tuple[int, ...], seed: int = 0) -> Any:
    return np.stack([values(rank, shape, torch.int64, seed).numpy() for rank in range(size)])


def equal(tensor: torch.Tensor, expected: Any) -> None:
    got = tensor.detach().to(torch.float64).numpy()
    assert np.array_equal(got, np.asarray(expected, np.float64)), (got, expected)


def reductions(rank: int, size: int, folder: str) -> None:
    shape = (3, 2)
    every = arrays(size, shape)
    expected = {
        dist.ReduceOp.SUM: every.sum(0),
        dist.ReduceOp.AVG: every.mean(0),
        dist.ReduceOp.MIN: every.min(0),
        dist.ReduceOp.MAX: every.max(0),
        dist.ReduceOp.PRODUCT: every.prod(0),
    }
    with group(rank, size, folder):
        for dtype in DTYPES:
            for op, result in expected.items():
                if op == dist.ReduceOp.AVG and (size == 3 or dtype not in FLOATS):
                    continue  # Thirds are not exact, and integers have no average.
                tensor = values(rank, shape, dtype)
                dist.all_reduce(tensor, op)
                equal(tensor, result)
        flags = torch.tensor([rank == 1, False])
        dist.all_reduce(flags, dist.ReduceOp.MAX)
        assert flags.tolist() == [True, False]
        turned = values(rank, shape, torch.float32).t()
        dist.all_reduce(turned)
        equal(turned, every.sum(0).T)
        both = [values(rank, shape, torch.float32), values(rank, (4,), torch.float32, 1)]
        dist.all_reduce_coalesced(both)
        equal(both[0], every.sum(0))
        equal(both[1], arrays(size, (4,), 1).sum(0))
        tensor = values(rank, shape, torch.float32)
        dist.reduce(tensor, 1, dist.ReduceOp.MAX)
        equal(tensor, every.max(0) if rank == 1 else every[rank])
        # What each rank gives to each one.
        inputs = [values(rank, shape, torch.float32, seed) for seed in range(size)]
        mine = arrays(size, shape, rank).sum(0)
        output = torch.empty(shape)
        dist.reduce_scatter(output, inputs)
        equal(output, mine)
        output = torch.empty(shape)
        dist.reduce_scatter_tensor(output, torch.cat(inputs))
        equal(output, mine)
        nothing = torch.empty(0, 2)
        dist.all_reduce(nothing)


def moves(rank: int, size: int, folder: str) -> None:
    shape = (2, 3)
    every = arrays(size, shape)
    with group(rank, size, folder):
        for dtype in [*DTYPES, torch.complex64]:
            tensor = values(rank, shape, dtype)
            dist.broadcast(tensor, 1)
            equal(tensor.real if dtype == torch.complex64 else tensor, every[1])
        outputs = [torch.empty(shape) for _ in range(size)]
        mine = values(rank, shape, torch.float32)
        dist.all_gather(outputs, mine)
        for output, expected in zip(outputs, every):
            equal(output, expected)
        uneven = [torch.empty(each) for each in range(size)]
        dist.all_gather(uneven, torch.full((rank,), 1.0 * rank))
        assert [each.tolist() for each in uneven] == [[1.0 * i] * i for i in range(size)]
        whole = torch.empty(size * 2, 3)
        dist.all_gather_into_tensor(whole, mine)
        equal(whole, every.reshape(-1, 3))
        outputs = [torch.empty(shape) for _ in range(size)] if rank == 1 else []
        dist.gather(mine, outputs or None, dst=1)
        for output, expected in zip(outputs, every):
            equal(output, expected)
        inputs = [values(rank, shape, torch.float32, seed) for seed in range(size)]
        output = torch.empty(shape)
        dist.scatter(output, inputs if rank == 1 else None, src=1)
        equal(output, values(1, shape, torch.int64, rank).numpy())
        outputs = [torch.empty(shape) for _ in range(size)]
        dist.all_to_all(outputs, inputs)
        for i, output in enumerate(outputs):
            equal(output, values(i, shape, torch.int64, rank).numpy())
        whole = torch.empty(size * 2, 3)
        dist.all_to_all_single(whole, torch.cat(inputs))
        equal(whole, torch.cat([values(i, shape, torch.int64, rank) for i in range(size)]).numpy())
        # Rank i sends j rows to rank j, which so gets as many of each.
        rows = torch.full((sum(range(size)), 2), 1.0 * rank)
        got = torch.empty(size * rank, 2)
        dist.all_to_all_single(got, rows, [rank] * size, list(range(size)))
        equal(got, np.repeat(np.arange(size), rank)[:, None].repeat(2, 1))


def objects(rank: int, size: int, folder: str) -> None:
    with group(rank, size, folder):
        made: list[Any] = [None] * size
        dist.all_gather_object(made, {"rank": rank, "text": "x" * (10 * rank)})
        assert made == [{"rank": i, "text": "x" * (10 * i)} for i in range(size)]
        said: list[Any] = [rank, "mine"] if rank == 1 else [None, None]
        dist.broadcast_object_list(said, src=1)
        assert said == [1, "mine"]
        received: list[Any] = [None]
        dist.scatter_object_list(received, [10, 11, 12][:size] if rank == 0 else None, src=0)
        assert received == [10 + rank]
        gathered = [None] * size if rank == 0 else None
        dist.gather_object(rank, gathered, dst=0)
        assert gathered in (None, list(range(size)))


def asynchronous(rank: int, size: int, folder: str) -> None:
    with group(rank, size, folder):
        # More than there is room for at once.
        given = [torch.full((2,), 1.0 * i) for i in range(20)]
        begun = [dist.all_reduce(each, async_op=True) for each in given]
        for work in reversed(begun):
            assert work is not None
            assert work.wait()
            assert work.is_completed()
            assert work.is_success()
        for i, each in enumerate(given):
            equal(each, [i * size] * 2)
        tensor = torch.ones(2)
        work = dist.all_reduce(tensor, async_op=True)
        assert work is not None

        def again(future: Any) -> torch.Tensor:
            """Makes another call, and waits for it, in the callback of the first one."""
            inner = dist.all_reduce(future.value()[0], async_op=True)
            assert inner is not None
            done: torch.Tensor = inner.get_future().wait()[0]
            return done

        equal(work.get_future().then(again).wait(), [size**2] * 2)
        # What torch's own C++ calls by the name of the group.
        from torch.distributed import _functional_collectives as functional

        world = dist.group.WORLD
        assert world is not None

        equal(functional.all_reduce(torch.ones(2), "sum", world), [size] * 2)
        parts = functional.all_gather_single(torch.full((1,), 1.0 * rank), 0, world)
        equal(parts, range(size))
        whole = torch.arange(1.0 * size)
        equal(functional.reduce_scatter_single(whole, "sum", 0, world), [size * rank])
        sent = functional.all_to_all_single(whole + 10 * rank, None, None, world)
        equal(sent, [10 * i + rank for i in range(size)])


def groups(rank: int, size: int, folder: str) -> None:
    with group(rank, size, folder):
        assert (dist.get_rank(), dist.get_world_size()) == (rank, size)
        assert dist.get_backend() == "basin"
        outer = dist.new_group([0, size - 1])
        other = dist.new_group([1])
        tensor = torch.full((2,), 1.0 * rank)
        if rank in (0, size - 1):
            dist.all_reduce(tensor, group=outer)
            equal(tensor, [size - 1] * 2)
            said = torch.tensor(rank)
            dist.broadcast(said, src=size - 1, group=outer)
            assert said.item() == size - 1
        if rank == 1:
            dist.all_reduce(tensor, group=other)
        dist.barrier()
    # A second group, as after a first training; early workers do not meet the others' old one.
    with group(rank, size, folder):
        tensor = torch.ones(1)
        dist.all_reduce(tensor)
        assert tensor.item() == size


def refusals(rank: int, size: int, folder: str) -> list[str]:
    with group(rank, size, folder):
        tensor = torch.ones(2, dtype=torch.int64)
        quarter = torch.ones(2, dtype=torch.float8_e5m2)
        return [
            expect("Unsupported", dist.send, tensor, 1 - min(rank, 1)),
            expect("Unsupported", dist.recv, tensor, 1 - min(rank, 1)),
            expect("Unsupported", dist.all_reduce, tensor, dist.ReduceOp.BXOR),
            expect("Unsupported", dist.all_reduce, quarter),
            expect("Unsupported", dist.all_reduce, torch.ones(2, 2).to_sparse()),
            expect("Unsupported", dist.broadcast, torch.ones(2, device="meta"), 0),
            expect("InvalidArgument", dist.all_reduce, tensor, dist.ReduceOp.AVG),
            expect("InvalidArgument", dist.all_to_all_single, torch.ones(7), torch.ones(7)),
            # On all workers, with the call of this one and of another.
            expect("Mismatch", dist.all_reduce, torch.ones(2 + (rank == 1))),
            expect("Mismatch", dist.broadcast, torch.ones(2), int(rank == 1)),
        ]


def model() -> Any:
    torch.manual_seed(7)
    return nn.Sequential(nn.Linear(5, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 3))


def steps(ddp: Any, optimizer: Any, rank: int, count: int = 3) -> list[torch.Tensor]:
    for step in range(count):
        optimizer.zero_grad()
        generator = torch.Generator().manual_seed(10 * rank + step)
        ddp(torch.randn(4, 5, generator=generator)).square().mean().backward()
        optimizer.step()
    return [each.detach().clone() for each in ddp.parameters()]


def hook_of(way: str) -> tuple[Any, Any] | None:
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook

    if way == "powerSGD":
        state = powerSGD_hook.PowerSGDState(
            None, matrix_approximation_rank=1, start_powerSGD_iter=2, min_compression_rate=0.5
        )
        return state, powerSGD_hook.powerSGD_hook
    if way == "fp16":
        return None, default_hooks.fp16_compress_hook

    def bf16(state: Any, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        """torch refuses its own one by its name where there is no CUDA."""
        made: torch.futures.Future[torch.Tensor] = default_hooks.bf16_compress_hook(state, bucket)
        return made

    return (None, bf16) if way == "bf16" else None


def trained(rank: int, size: int, folder: str, backend: str, way: str) -> list[torch.Tensor]:
    with group(rank, size, folder, backend):
        return train(rank, way)


def train(rank: int, way: str) -> list[torch.Tensor]:
    from torch.distributed.optim import ZeroRedundancyOptimizer

    ddp = nn.parallel.DistributedDataParallel(model())
    if hook := hook_of(way):
        ddp.register_comm_hook(*hook)
    optimizer: Any
    if way == "zero":
        optimizer = ZeroRedundancyOptimizer(
            ddp.parameters(), optimizer_class=torch.optim.SGD, lr=0.1, momentum=0.9
        )
    else:
        optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1)
    return steps(ddp, optimizer, rank)


def sharded(rank: int, size: int, folder: str, backend: str) -> list[torch.Tensor]:
    """With FSDP2, whose mesh and whose gathers and scatters are those of the backend."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    with group(rank, size, folder, backend):
        net = model()
        fully_shard(net, mesh=init_device_mesh("cpu", (size,)))
        made: Any = steps(net, torch.optim.SGD(net.parameters(), lr=0.1), rank)
        return [each.full_tensor() for each in made]


def lost(rank: int, size: int, folder: str, way: str) -> list[str]:
    import basin
    from basin.gathering import Gathering

    texts = []
    with contextlib.suppress(basin.Unavailable), group(rank, size, folder):
        net = nn.parallel.DistributedDataParallel(nn.Linear(2, 2))
        dist.barrier()
        if rank == 1 and way == "between rounds":
            Gathering._begin_contents = (  # type: ignore[method-assign]
                lambda *_: os.kill(os.getpid(), signal.SIGKILL)
            )
        elif rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        tensor = torch.ones(2)
        calls = {
            "allreduce": lambda: dist.all_reduce(tensor),
            "broadcast": lambda: dist.broadcast(tensor, 0),
            "gather": lambda: dist.all_gather([torch.ones(2) for _ in range(size)], tensor),
            "alltoall": lambda: dist.all_to_all_single(torch.ones(size), torch.ones(size)),
            "barrier": dist.barrier,
        }
        if way == "between rounds":
            texts.append(expect("Unavailable", calls["alltoall"]))
        elif way == "backward":
            try:
                net(torch.ones(1, 2)).sum().backward()
            except RuntimeError as error:
                texts.append(str(error))
        else:
            texts.append(expect("Unavailable", calls[way]))
        texts.append(expect("Unavailable", dist.barrier))
    return texts


def not_made(rank: int) -> bool:
    """Whether a worker whose group could not begin has left it."""
    from basin import Unavailable, client
    from basin.torch.backend.membership import Membership

    before, minute = set(client._open_clients), timedelta(minutes=1)
    with mock.patch.object(client.Client, "barrier", side_effect=Unavailable("lost")):
        expect("Unavailable", lambda: Membership(dist.HashStore(), 0, 1, minute, is_default=True))
    return client._open_clients == before


class InGroups(JobsTest):
    def run_in_groups(self, function: Any, *arguments: Any, **options: Any) -> None:
        for size in (2, 3):
            with self.subTest(size=size):
                self.run_in_group(size, function, *arguments, **options)

    def run_in_group(self, size: int, function: Any, *arguments: Any, **options: Any) -> list[Any]:
        with tempfile.TemporaryDirectory() as folder:
            return self.jobs.run(function, size, size, folder, *arguments, **options)


class Calls(InGroups):
    def test_reductions(self) -> None:
        self.run_in_groups(reductions)

    def test_moves(self) -> None:
        self.run_in_groups(moves)

    def test_objects(self) -> None:
        self.run_in_groups(objects)

    def test_asynchronous_calls_and_futures(self) -> None:
        self.run_in_groups(asynchronous)

    def test_groups(self) -> None:
        self.run_in_groups(groups)

    def test_refusals(self) -> None:
        for texts in self.run_in_group(2, refusals):
            for text, part in zip(
                texts,
                [
                    "send()",
                    "recv()",
                    "op BXOR",
                    "float8_e5m2",
                    "sparse",
                    "meta",
                    "AVERAGE",
                    "7 rows",
                    "[3]",
                    "rank 1",
                ],
                strict=True,
            ):
                self.assertIn(part, text)


class Training(InGroups):
    def assert_near(self, one: list[Any], other: list[Any], bound: float) -> None:
        for a, b in zip(one, other, strict=True):
            self.assertLessEqual(float((a - b).abs().max()), bound)

    def check_like_gloo(self, way: str, bound: float) -> None:
        for size in (2, 3):
            with self.subTest(size=size):
                expected = self.run_in_group(size, trained, "gloo", way)
                got = self.run_in_group(size, trained, "basin", way)
                for one, other in zip(expected, got):
                    self.assert_near(one, other, bound)
                for other in got[1:]:
                    self.assert_near(got[0], other, 0.0)

    def test_ddp(self) -> None:
        self.check_like_gloo("plain", 1e-6)

    def test_hook_bf16(self) -> None:
        # Gloo rounds after each addition.
        self.check_like_gloo("bf16", 1e-2)

    def test_hook_fp16(self) -> None:
        self.check_like_gloo("fp16", 1e-3)

    def test_hook_power_sgd(self) -> None:
        self.check_like_gloo("powerSGD", 1e-5)

    def test_zero_redundancy_optimizer(self) -> None:
        self.check_like_gloo("zero", 1e-5)

    def test_fsdp(self) -> None:
        expected = self.run_in_group(2, sharded, "gloo")
        got = self.run_in_group(2, sharded, "basin")
        for one, other in zip(expected, got):
            self.assert_near(one, other, 1e-6)


class Page(JobsTest):
    def test_snippet(self) -> None:
        """As torchrun starts it."""
        page = (ROOT / "docs/frameworks/torch-distributed.md").read_text()
        (snippet,) = re.findall(r"```python\n(.*?)```", page, re.S)
        with tempfile.TemporaryDirectory() as folder:
            script = Path(folder) / "train.py"
            script.write_text(snippet)
            program = [sys.executable, "-B", "-m", "torch.distributed.run", "--standalone"]
            ended = subprocess.run(
                [*program, "--nproc-per-node=2", script],
                env=environment(BASIN_ADDRESS=self.jobs.aggregator.address, OMP_NUM_THREADS="1"),
                capture_output=True,
                text=True,
                timeout=PATIENCE,
                check=False,
            )
        self.assertEqual(0, ended.returncode, ended.stderr)
        self.assertEqual("workers: 2\n", ended.stdout)


class Loss(InGroups):
    def test_a_group_that_cannot_begin_is_left(self) -> None:
        self.assertEqual([True], self.jobs.run(not_made, 1))

    def test_lost_member(self) -> None:
        ways = ("allreduce", "broadcast", "gather", "alltoall", "barrier", "backward")
        for way in (*ways, "between rounds"):
            with self.subTest(way=way):
                outcomes = self.run_in_group(3, lost, way, mortal=(1,))
                for texts in (outcomes[0], outcomes[2]):
                    self.assertEqual(2, len(texts))
                    for text in texts:
                        self.assertIn("rank-00001 has left, was lost", text)


if __name__ == "__main__":
    main()
