# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""Sparse gradients of DistributedOptimizer, against one process.

Usage: test_torch_sparse.py BASIND LIBBASIN
"""

import contextlib
import os
import signal
from typing import Any

from jobs import require

require("numpy", "torch")
import torch  # noqa: E402 - ends above when there is none
from torch import nn  # noqa: E402
from torch_jobs import TorchTest, expect, main, session  # noqa: E402

STEPS = 4
ROWS = 12


class Table(nn.Module):
    """A table and a layer, whose gradients are dense."""

    def __init__(self, sparse: bool = True) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.table = nn.Embedding(ROWS, 2, sparse=sparse)
        self.layer = nn.Linear(2, 1)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        made: torch.Tensor = self.layer(self.table(words)).square()
        return made


def words(rank: int, step: int) -> torch.Tensor:
    """Some twice, some on several workers; none on rank 2 in step 1."""
    if (rank, step) == (2, 1):
        return torch.empty(0, dtype=torch.int64)
    return torch.tensor([rank + 1, rank + 1, 5, (3 * rank + step) % ROWS])


def optimizers(net: Table, kind: str) -> list[Any]:
    """The one of the table, then that of the layer if it is another one."""
    if kind == "SparseAdam":
        return [
            torch.optim.SparseAdam(net.table.parameters(), lr=0.1),
            torch.optim.SGD(net.layer.parameters(), lr=0.1),
        ]
    made: Any = getattr(torch.optim, kind)
    return [made(net.parameters(), lr=0.1)]


def trained(net: Table, kind: str, workers: int, op: str, passes: int = 1) -> list[torch.Tensor]:
    """What one process makes of the batches of all workers."""
    made = optimizers(net, kind)
    for step in range(STEPS):
        for each in made:
            each.zero_grad()
        samples = sum(len(words(rank, step)) for rank in range(workers))
        for rank in range(workers):
            for _ in range(passes):
                loss = net(words(rank, step)).sum()
                divisor = {"Sum": 1, "Average": workers, "WeightedAverage": samples}[op]
                (loss / divisor).backward()
        for each in made:
            each.step()
    return [parameter.detach() for parameter in net.parameters()]


def training(rank: int, kind: str, op: str, as_dense: bool, passes: int) -> Any:
    with session() as bt:
        rank = bt.rank()
        net: Any = Table()
        bt.broadcast_parameters(net)
        weights: Any = {"weight_by": "samples", "contributes": "sum"}
        made = [
            bt.DistributedOptimizer(
                each,
                [(n, p) for n, p in net.named_parameters() if p in set(of_all(each))],
                op=getattr(bt, op),
                sparse_as_dense=as_dense,
                backward_passes_per_step=passes,
                **(weights if op == "WeightedAverage" else {}),
            )
            for each in optimizers(net, kind)
        ]
        layouts = []
        for step in range(STEPS):
            for each in made:
                each.zero_grad()
            for _ in range(passes):
                for each in made:
                    if op == "WeightedAverage":
                        each.contribute(samples=len(words(rank, step)))
                net(words(rank, step)).sum().backward()
            gradient = net.table.weight.grad
            layouts.append(gradient is not None and gradient.is_sparse)
            if gradient is not None and gradient.is_sparse:
                assert gradient.is_coalesced()
            for each in made:
                each.step()
        return [parameter.detach() for parameter in net.parameters()], layouts


def of_all(optimizer: torch.optim.Optimizer) -> list[Any]:
    return [each for group in optimizer.param_groups for each in group["params"]]


def failed_backward(rank: int) -> Any:
    """The rows of a worker whose backward has failed are not counted, and it gets the others'."""
    with session() as bt:
        rank = bt.rank()
        net: Any = Table()
        bt.broadcast_parameters(net)
        optimizer = bt.DistributedOptimizer(
            torch.optim.SGD(net.parameters(), lr=1.0), net.named_parameters(), op=bt.Sum
        )

        def fail(_: torch.Tensor) -> None:
            raise KeyError("a bug")

        loss = net(torch.tensor([rank])).sum()
        if rank == 1:
            net.layer.weight.register_hook(fail)
            with contextlib.suppress(KeyError):
                loss.backward()
        else:
            loss.backward()
        rows = net.table.weight.grad.coalesce().indices().tolist()
        optimizer.step()
        return rows, [parameter.detach() for parameter in net.parameters()]


def _end(_: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def one_is_lost(rank: int) -> Any:
    """The last worker ends when the round is over, and before it has sent its rows."""
    from basin.torch.row_gradients import RowGradients

    with session() as bt:
        rank = bt.rank()
        net: Any = Table()
        bt.broadcast_parameters(net)
        optimizer = bt.DistributedOptimizer(
            torch.optim.SGD(net.parameters(), lr=1.0), net.named_parameters(), op=bt.Sum
        )
        if rank == 2:
            RowGradients._packed = _end  # type: ignore[method-assign, assignment]
        net(torch.tensor([rank])).sum().backward()
        rows = net.table.weight.grad.coalesce().indices().tolist()
        optimizer.step()
        optimizer.zero_grad()
        net(torch.tensor([rank + 5])).sum().backward()
        return (
            rows,
            net.table.weight.grad.coalesce().indices().tolist(),
            [parameter.detach() for parameter in net.parameters()],
        )


def refusals(rank: int) -> Any:
    with session() as bt:
        texts = {}
        for kind, options in {
            "unknown": {},
            "denied": {"sparse_gradients": False},
            "present": {"sparse_gradients": True, "divide_by_present": True},
        }.items():
            net: Any = Table()
            bt.DistributedOptimizer(
                torch.optim.SGD(net.parameters(), lr=1.0), net.named_parameters(), **options
            )
            texts[kind] = expect("Unsupported", net(torch.tensor([rank])).sum().backward)
        # What says nothing to Basin may be said by the script.
        net = Table()
        bt.DistributedOptimizer(
            torch.optim.SGD(net.parameters(), lr=1.0),
            net.named_parameters(),
            sparse_gradients=True,
        )
        net(torch.tensor([bt.rank()])).sum().backward()
        gradient: Any = net.table.weight.grad
        return texts, gradient.coalesce().indices().tolist()


class Sparse(TorchTest):
    def check(
        self, kind: str, op: str = "Average", *, workers: int = 3, passes: int = 1,
        as_dense: bool = False,
    ) -> None:  # fmt: skip
        got = self.jobs.run(training, workers, kind, op, as_dense, passes)
        expected = trained(Table(sparse=not as_dense), kind, workers, op, passes)
        for values, layouts in got:
            self.assertEqual(layouts, [not as_dense] * STEPS)
            for mine, theirs in zip(values, expected):
                torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=1e-6)
        self.assert_same_bits([values for values, _ in got])

    def test_sgd(self) -> None:
        self.check("SGD")

    def test_sums_of_two_workers(self) -> None:
        self.check("SGD", "Sum", workers=2)

    def test_a_weighted_average(self) -> None:
        self.check("SGD", "WeightedAverage")

    def test_sparse_adam_beside_a_dense_optimizer(self) -> None:
        self.check("SparseAdam")

    def test_adagrad(self) -> None:
        self.check("Adagrad")

    def test_rows_of_several_backwards_are_merged(self) -> None:
        self.check("SGD", "Sum", passes=2)

    def test_dense_ones_on_request(self) -> None:
        self.check("SGD", as_dense=True)

    def test_a_failed_backward_has_no_rows(self) -> None:
        got = self.jobs.run(failed_backward, 3)
        for rows, _ in got:
            self.assertEqual(rows, [[0, 2]])
        self.assert_same_bits([values for _, values in got])

    def test_the_rows_of_a_lost_worker_are_missing_on_all(self) -> None:
        lost = self.jobs.run(one_is_lost, 3, mortal={2}, BASIN_MIN_WORKERS="1")[:2]
        for rows, after, _ in lost:
            self.assertEqual(rows, [[0, 1]])
            self.assertEqual(after, [[5, 6]])
        self.assert_same_bits([values for *_, values in lost])

    def test_what_nothing_has_said_is_refused_with_the_way_out(self) -> None:
        for texts, rows in self.jobs.run(refusals, 2):
            for kind in ("unknown", "denied"):
                self.assertIn("sparse_gradients=True on all workers", texts[kind])
            self.assertIn("divide_by_present", texts["present"])
            self.assertEqual(rows, [[0, 1]])


if __name__ == "__main__":
    main()
