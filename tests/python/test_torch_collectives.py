# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""Collective calls of basin.torch: tensors, groups of tensors, broadcasts.

Usage: test_torch_collectives.py BASIND LIBBASIN
"""

from typing import Any

from jobs import require

require("numpy", "torch")
import torch  # noqa: E402 - ends above when there is none
from torch import nn  # noqa: E402
from torch_jobs import (  # noqa: E402
    WORKERS,
    TorchTest,
    expect,
    main,
    session,
)

# ---- workers


def broadcasts(rank: int) -> Any:
    with session() as bt:
        torch.manual_seed(rank)
        net = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3)).bfloat16().float()
        net.register_buffer("flags", torch.tensor([rank == 1, True]))
        optimizer = torch.optim.Adam(net.parameters(), lr=0.1 * (rank + 1))
        net(torch.randn(4, 3)).sum().backward()
        optimizer.step()
        bt.broadcast_parameters(net, root_rank=1)
        bt.broadcast_optimizer_state(optimizer, root_rank=1)
        objects = bt.allgather_object({"rank": rank, "text": "x" * rank})
        said = bt.broadcast_object([rank], root_rank=2)
        moments = optimizer.state_dict()
        return net.state_dict(), moments, objects, said, bt.rank()


def tensors_reduced(rank: int) -> Any:
    with session() as bt:
        t = torch.full((2, 2), rank + 1.0, dtype=torch.bfloat16)
        out = bt.allreduce(t, "out", op=bt.Sum)
        same = bt.allreduce_(t, "in", op=bt.Average)
        handle = bt.allreduce_async(torch.tensor(rank), "scalar", op=bt.Max)
        return out, same is t, t, handle.wait(), bt.size(), bt.local_rank(), bt.local_size()


def through_reductions(rank: int) -> Any:
    """The gradients through reductions, by their kind; every worker has a different loss."""
    import basin

    with session() as bt:
        rank = bt.rank()
        weighted = {"op": bt.WeightedAverage, "weight_by": "samples"}
        counts = basin.Counts(samples=rank + 1)
        calls: dict[str, Any] = {
            "sum": lambda x: bt.allreduce(x, "s", op=bt.Sum, prescale_factor=0.5),
            "average": lambda x: bt.allreduce(x, "a", op=bt.Average, postscale_factor=3.0),
            "means": lambda x: bt.allreduce(x, "m", contributes="mean", counts=counts, **weighted),
            "sums": lambda x: bt.allreduce(x, "w", contributes="sum", counts=counts, **weighted),
            "later": lambda x: bt.allreduce_async(x, "l", op=bt.Sum).wait(),
            "group": lambda x: sum(bt.grouped_allreduce([x, 2 * x], "g", op=bt.Average)),
            "no name": lambda x: bt.allreduce(x, op=bt.Sum),
            "no name, group": lambda x: sum(bt.grouped_allreduce([x, 2 * x], op=bt.Average)),
        }
        gradients = {}
        for name, call in calls.items():
            x = torch.full((2, 3), rank + 1.0, dtype=torch.float64, requires_grad=True)
            (call(x.t()).t() * 10**rank).sum().backward()
            gradients[name] = x.grad
        x = torch.ones(2, requires_grad=True)
        with torch.no_grad():
            untracked = bt.allreduce(x, "n", op=bt.Sum).requires_grad
        texts = [
            expect("Unsupported", bt.allreduce(x, "max", op=bt.Max).sum().backward),
            expect("Unsupported", lambda: bt.allreduce_(2 * x, "in place", op=bt.Sum)),
        ]
        in_place = bt.allreduce_(x, "leaf", op=bt.Sum)
        return rank, gradients, untracked, texts, in_place is x


def without_names(rank: int) -> Any:
    with session() as bt:
        t = torch.full((2, 3), rank + 1.0, dtype=torch.bfloat16)
        out = bt.allreduce(t.t(), op=bt.Sum)
        handle = bt.allreduce_async_(torch.tensor(rank), op=bt.Max)
        group = bt.grouped_allreduce_([t, torch.ones(5), torch.ones(5)], op=bt.Average)
        texts = [
            expect("Unsupported", lambda: bt.allreduce(torch.ones(2, dtype=torch.bool), op=bt.Sum)),
            expect("InvalidArgument", lambda: bt.grouped_allreduce([], op=bt.Sum)),
        ]
        return out, handle.wait(), group, group[0] is t, texts


def through_averages_of_a_node(rank: int) -> Any:
    """The gradients through weighted averages of a worker of two trainers and a single one, which
    has two samples; the loss of the single one is ten times the sum of the result."""
    import basin

    with session() as bt:
        node = bt.rank() == 0
        if node:
            basin_context().client.worker.set_ranks(2, 0)
        gradients, means = {}, {}
        for contributes in ("mean", "sum"):
            for samples in (4, 0):  # The samples of both trainers of the node.
                x = torch.full((2,), 5.0 if node else 1.0, dtype=torch.float64, requires_grad=True)
                y = bt.allreduce(
                    x,
                    f"{contributes} of {samples}",
                    op=bt.WeightedAverage,
                    weight_by="samples",
                    contributes=contributes,
                    counts=basin.Counts(samples=samples if node else 2),
                )
                (y * (1.0 if node else 10.0)).sum().backward()
                gradients[contributes, samples] = x.grad
                means[contributes, samples] = y.detach()
        return node, gradients, means


def groups(rank: int) -> Any:
    with session() as bt:
        floats = torch.full((3,), rank + 1.0)
        whole = torch.full((2, 2), rank + 1, dtype=torch.int64)
        turned = torch.arange(6.0, dtype=torch.float64).reshape(2, 3).t() * (rank + 1)
        new = bt.grouped_allreduce([floats, whole, turned], "group", op=bt.Sum)
        # A tensor with the name of a group, and a smaller group.
        alone = bt.allreduce(torch.tensor(1.0), "group", op=bt.Sum)
        fewer = bt.grouped_allreduce([floats, whole], "group", op=bt.Max)
        untouched = floats.tolist()
        same = bt.grouped_allreduce_([floats, turned], "in", op=bt.Average)
        in_place = same[0] is floats and same[1] is turned
        scaled = bt.grouped_allreduce([floats], "scaled", op=bt.Sum, postscale_factor=0.5)
        empty = expect("InvalidArgument", empty_group, bt)
        sparse = torch.eye(2).to_sparse()
        text = expect("Unsupported", sparse_group, bt, floats, sparse)
        return new, alone, fewer, untouched, in_place, (floats, turned), scaled, empty, text


def empty_group(bt: Any) -> None:
    bt.grouped_allreduce([], "none", op=bt.Sum)


def sparse_group(bt: Any, *group: torch.Tensor) -> None:
    bt.grouped_allreduce(group, "sparse", op=bt.Sum)


def polled(rank: int) -> Any:
    with session() as bt:
        if rank == 0:
            # The others have not begun, because they wait for the barrier.
            handle = bt.allreduce_async(torch.tensor(1.0), "polled", op=bt.Sum)
            before = bt.poll(handle)
            bt.barrier("seen")
        else:
            before = False
            bt.barrier("seen")
            handle = bt.allreduce_async(torch.tensor(1.0), "polled", op=bt.Sum)
        outcome = bt.synchronize(handle)
        group = bt.grouped_allreduce_async([torch.tensor(2.0)] * 2, "more", op=bt.Sum)
        both = bt.synchronize(group)
        return before, float(outcome), bt.poll(handle), [float(each) for each in both]


def calls_that_time_out(rank: int) -> Any:
    """The calls that wait for round_timeout: rank 0 times out first, and calls again."""
    with session(round_timeout=60.0) as bt:
        here = basin_context()
        outcomes = []
        for call in (
            lambda: bt.allreduce(torch.tensor(1.0), "x", op=bt.Sum),
            lambda: bt.grouped_allreduce_([torch.tensor(1.0)], "x", op=bt.Sum)[0],
            lambda: bt.total_counts({"rows": 1})["rows"],
        ):
            if rank == 0:
                here.timeout = 0.0
                expect("OutcomeUnknown", call)
                here.timeout = 60.0
            bt.barrier("given up")
            outcomes += [float(call()), float(call())]
        return outcomes


def objects_of_many_sizes(rank: int) -> Any:
    with session() as bt:
        at_root = bt.gather_object([bt.rank()], 1)
        assert at_root == ([[0], [1], [2]][: bt.size()] if bt.rank() == 1 else None)
        told = [bt.broadcast_object("x" * n if bt.rank() == 1 else None, 1) for n in range(70)]
        gathered = [bt.allgather_object("y" * (n + bt.rank())) for n in range(3)]
        return [len(text) for text in told], [[len(text) for text in turn] for turn in gathered]


def basin_context() -> Any:
    from basin.torch import context

    return context.current()


# ---- checks


class CollectivesTest(TorchTest):
    def test_gradients_flow_through_sums_and_averages(self) -> None:
        scale, samples = 111, 6  # The sums of the losses and of the counts over all workers.
        for rank, gradients, untracked, texts, in_place in self.run_job(through_reductions):
            expected = {
                "sum": 0.5 * scale,
                "average": 3.0 * scale / WORKERS,
                "means": (rank + 1) * scale / samples,
                "sums": scale / samples,
                "later": scale,
                "group": 3 * scale / WORKERS,
                "no name": scale,
                "no name, group": 3 * scale / WORKERS,
            }
            self.assertEqual(expected.keys(), gradients.keys())
            for name, gradient in gradients.items():
                self.assert_close(
                    [torch.full((2, 3), expected[name], dtype=torch.float64)], [gradient], 1e-12
                )
            self.assertEqual((False, True), (untracked, in_place))
            self.assertRegex(texts[0], "MAX of max over all workers.*detach")
            self.assertRegex(texts[1], "tensor in place.*without the underscore")

    def test_a_gradient_flows_through_the_average_of_a_node(self) -> None:
        outcomes = self.jobs.run(through_averages_of_a_node, 2)
        self.assertEqual([False, True], sorted(node for node, *_ in outcomes))
        for node, gradients, means in outcomes:
            # The result is (a * x of the node + b * x of the other); 11 is the sum of the losses.
            for kind, a, b in (
                (("mean", 4), 1 / 6, 2 / 6),  # The node sends a sum in any case.
                (("mean", 0), 0.0, 2 / 2),
                (("sum", 4), 1 / 6, 1 / 6),
                (("sum", 0), 0.0, 1 / 2),
            ):
                mean = torch.full((2,), a * 5 + b * 1, dtype=torch.float64)
                self.assert_close([mean], [means[kind]], 1e-12)
                gradient = torch.full((2,), 11 * (a if node else b), dtype=torch.float64)
                self.assert_close([gradient], [gradients[kind]], 1e-12)

    def test_broadcasts_give_everybody_the_bits_of_the_root(self) -> None:
        outcomes = self.run_job(broadcasts)
        ranks = [rank for *_, rank in outcomes]
        root = outcomes[ranks.index(1)]
        for state, optimizer, objects, said, _ in outcomes:
            self.assertEqual([2], said)
            self.assertEqual([0, 1, 2], [each["rank"] for each in objects])
            self.assertEqual(root[0].keys(), state.keys())
            for name, tensor in state.items():
                self.assertTrue(torch.equal(root[0][name], tensor), name)
            self.assertEqual(str(root[1]), str(optimizer))

    def test_objects_may_differ_in_size_as_often_as_they_like(self) -> None:
        for told, gathered in self.run_job(objects_of_many_sizes):
            self.assertEqual(list(range(70)), told)
            self.assertEqual([[0, 1, 2], [1, 2, 3], [2, 3, 4]], gathered)

    def test_tensors_are_reduced_by_name(self) -> None:
        for rank, outcome in enumerate(self.run_job(tensors_reduced)):
            out, same, t, largest, size, local_rank, local_size = outcome
            self.assertEqual((torch.bfloat16, [[6.0] * 2] * 2), (out.dtype, out.tolist()))
            self.assertTrue(same)
            self.assertEqual([[2.0] * 2] * 2, t.tolist())
            self.assertEqual((2, 3, rank, 3), (int(largest), size, local_rank, local_size))

    def test_tensors_without_names_are_reduced_by_their_order(self) -> None:
        for out, most, group, in_place, texts in self.run_job(without_names):
            self.assertEqual((3, 2), tuple(out.shape))
            self.assertTrue((out == 6).all())
            self.assertEqual(WORKERS - 1, most)
            self.assertTrue(in_place)
            self.assertTrue(all((each == mean).all() for each, mean in zip(group, (2, 1, 1))))
            self.assertIn("Tensor without a name has dtype torch.bool", texts[0])
            self.assertIn("Group without a name has no tensors", texts[1])

    def test_groups_are_reduced_in_one_round(self) -> None:
        turned = torch.arange(6.0, dtype=torch.float64).reshape(2, 3).t()
        for outcome in self.run_job(groups):
            new, alone, fewer, untouched, in_place, averaged, scaled, empty, text = outcome
            self.assertEqual([6.0] * 3, new[0].tolist())
            self.assertEqual(torch.full((2, 2), 6).tolist(), new[1].tolist())
            self.assertTrue(torch.equal(6 * turned, new[2]))
            self.assertEqual(WORKERS, float(alone))
            self.assertEqual(([3.0] * 3, [[3, 3]] * 2), (fewer[0].tolist(), fewer[1].tolist()))
            self.assertIn(untouched, [[rank + 1.0] * 3 for rank in range(WORKERS)])
            self.assertTrue(in_place)
            self.assertEqual([2.0] * 3, averaged[0].tolist())
            self.assertTrue(torch.equal(2 * turned, averaged[1]))
            self.assertEqual([3.0] * 3, scaled[0].tolist())
            self.assertIn("Group none", empty)
            self.assertIn("Tensor sparse.1 is sparse", text)

    def test_poll_and_synchronize(self) -> None:
        for before, outcome, after, both in self.run_job(polled):
            self.assertEqual((False, 3.0, True, [6.0, 6.0]), (before, outcome, after, both))

    def test_calls_that_timed_out_wait_for_the_same_round_when_they_are_called_again(self) -> None:
        self.assertEqual([[3.0] * 6] * WORKERS, self.run_job(calls_that_time_out))


if __name__ == "__main__":
    main()
