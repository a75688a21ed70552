# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""allgather, reducescatter, alltoall and broadcast of torch tensors, and their gradients.

Usage: test_torch_rows.py BASIND LIBBASIN
"""

from typing import Any

from jobs import require

require("numpy", "torch")
import torch  # noqa: E402 - ends above when there is none
from torch_jobs import TorchTest, expect, main, session  # noqa: E402

DTYPES = [torch.bool, torch.int8, torch.int16, torch.float16, torch.bfloat16, torch.complex64]


def values(rank: int, name: str | None) -> Any:
    """Each call with a name, or each without one."""

    def named(call: str) -> str | None:
        return None if name is None else f"{name} {call}"

    with session() as bt:
        rank = bt.rank()
        each = [
            bt.allgather(torch.full((rank, 2), rank, dtype=dtype), named(str(dtype)))
            for dtype in DTYPES
        ]
        turned = bt.allgather(torch.arange(6.0).reshape(2, 3).t() + rank, named("turned"))
        group = [torch.full((rank, 2), rank), torch.tensor(0.5 * rank), torch.ones(0, 3)]
        grouped = bt.grouped_allgather(group, named("group"))
        later = bt.grouped_allgather_async(group[:2], named("later"))
        numbers = torch.arange(4 * bt.size()).reshape(4 * bt.size() // 2, 2)
        scattered = bt.reducescatter(numbers + rank, named("scattered"), op=bt.Sum)
        both = bt.grouped_reducescatter(
            [torch.ones(4), torch.full((2,), rank)], named("both"), op=bt.Max
        )
        splits = torch.tensor([2 * bt.size() - 1 - 1 * (bt.size() - 2)] + [1] * (bt.size() - 1))
        sent = bt.alltoall_async(numbers[: int(splits.sum())] + 100 * rank, splits, named("sent"))
        mine = torch.tensor([rank == 1, True])
        same = bt.broadcast_(mine, 1, named("in place"))
        new = bt.broadcast(torch.tensor([rank + 0.5]), 1, named("new"))
        inside = [torch.tensor([rank]), torch.full((2, 2), rank == 1)]
        together = bt.grouped_broadcast(inside, 1, named("together"))
        in_place = bt.grouped_broadcast_(inside, 0, named("together in place"))
        exchanged = bt.grouped_alltoall(
            [torch.arange(bt.size()) + 10 * rank, torch.full((2, 1), rank)],
            [[1] * bt.size(), [2] + [0] * (bt.size() - 1)],
            named("exchanged"),
        )
        evenly = bt.grouped_alltoall_async([torch.arange(bt.size())], name=named("evenly"))
        return {
            "together": (together, inside, all(a is b for a, b in zip(in_place, inside))),
            "exchanged": (exchanged, bt.synchronize(evenly)),
            "rank": rank,
            "each": each,
            "turned": turned,
            "grouped": grouped,
            "later": bt.synchronize(later),
            "scattered": scattered,
            "both": both,
            "sent": sent.wait(),
            "splits": splits,
            "broadcast": (same is mine, mine, new),
        }


def gradients(rank: int, name: str | None) -> Any:
    """The gradient of the sum of the results of all workers, each times a factor of its own."""

    def named(call: str) -> str | None:
        return None if name is None else f"{name} {call}"

    with session() as bt:
        rank = bt.rank()
        factor = 10.0**rank
        calls: dict[str, Any] = {
            "allgather": lambda x: bt.allgather(x[: rank + 1], named("g")),
            "grouped": lambda x: bt.grouped_allgather([x, 2 * x], named("gg"))[1],
            "sum": lambda x: bt.reducescatter(x, named("s"), op=bt.Sum, prescale_factor=0.5),
            "average": lambda x: bt.reducescatter(x, named("a"), op=bt.Average),
            "alltoall": lambda x: bt.alltoall(x, [0, 1, 3], named("t"))[0],
            "broadcast": lambda x: bt.broadcast(x, 1, named("b")),
            "grouped broadcast": lambda x: bt.grouped_broadcast([x, 2 * x], 1, named("gb"))[1],
            "grouped alltoall": lambda x: bt.grouped_alltoall(
                [2 * x, x], [[0, 1, 3], [4, 0, 0]], named("gt")
            )[0][0],
        }
        made = {}
        for kind, call in calls.items():
            x = torch.full((4, 2), rank + 1.0, dtype=torch.float64, requires_grad=True)
            (call(x) * factor).sum().backward()
            made[kind] = x.grad
        with torch.no_grad():
            untracked = bt.allgather(torch.ones(1, requires_grad=True), named("n")).requires_grad
        x = torch.ones(3, requires_grad=True)
        texts = [
            expect("Unsupported", bt.reducescatter(x, named("m"), op=bt.Max).sum().backward),
            expect("Unsupported", bt.broadcast_, 2 * x, 0),
            expect("InvalidArgument", bt.grouped_allgather, []),
        ]
        return rank, made, untracked, texts


def sparse(rank: int, name: str | None) -> Any:
    """Gradients of an embedding, whose rows are not merged and partly the same."""
    with session() as bt:
        rank = bt.rank()
        table = torch.nn.Embedding(10, 2, sparse=True)
        table.weight.data.fill_(1.0)
        words = torch.tensor([rank, 5, 5, 3 + rank])
        (table(words) * (rank + 1)).sum().backward()
        made = table.weight.grad
        assert made is not None
        total = bt.allreduce(made, name, op=bt.Sum)
        mean = bt.allreduce_async(made.to(torch.bfloat16), op=bt.Average, postscale_factor=2.0)
        nothing = torch.sparse_coo_tensor(torch.empty(1, 0), torch.empty(0), (4,))
        texts = [
            expect("Unsupported", lambda: bt.allreduce_(made, op=bt.Sum)),
            expect("Unsupported", lambda: bt.allreduce(made, op=bt.Max)),
            expect(
                "Mismatch",
                lambda: bt.allreduce(made if rank else made.to_dense()[:9].to_sparse(1), op=bt.Sum),
            ),
        ]
        return made, total, mean.wait(), bt.allreduce(nothing, op=bt.Sum), texts


class Rows(TorchTest):
    def check_values(self, size: int, name: str | None) -> None:
        for got in self.jobs.run(values, size, name):
            rank, ranks = got["rank"], [each for each in range(size) for _ in range(each)]
            for each, dtype in zip(got["each"], DTYPES):
                expected = torch.tensor(ranks).to(dtype)[:, None].expand(-1, 2)
                self.assertEqual(each.dtype, dtype)
                self.assertTrue(torch.equal(each, expected))
            turned = [torch.arange(6.0).reshape(2, 3).t() + each for each in range(size)]
            self.assertTrue(torch.equal(got["turned"], torch.cat(turned)))
            rows, numbers, nothing = got["grouped"]
            self.assertEqual(rows.tolist(), [[each, each] for each in ranks])
            self.assertEqual(numbers.tolist(), [0.5 * each for each in range(size)])
            self.assertEqual(nothing.shape, (0, 3))
            self.assertEqual(
                [each.tolist() for each in got["later"]], [rows.tolist(), numbers.tolist()]
            )
            whole = torch.arange(4 * size).reshape(-1, 2)
            total = size * whole + sum(range(size))
            self.assertEqual(got["scattered"].tolist(), total[2 * rank : 2 * rank + 2].tolist())
            ones, largest = got["both"]
            self.assertEqual(ones.numel(), [[2, 2], [2, 1, 1]][size - 2][rank])
            self.assertEqual(largest.tolist(), [size - 1] * (rank < 2))
            sent, counts = got["sent"]
            splits = got["splits"].tolist()
            begin = sum(splits[:rank])
            each = [whole[begin : begin + splits[rank]] + 100 * i for i in range(size)]
            self.assertTrue(torch.equal(sent, torch.cat(each)))
            self.assertEqual(counts.tolist(), [splits[rank]] * size)
            same, mine, new = got["broadcast"]
            self.assertTrue(same)
            self.assertEqual(mine.tolist(), [True, True])
            self.assertEqual(new.tolist(), [1.5])
            together, inside, same = got["together"]
            self.assertEqual([each.tolist() for each in together], [[1], [[True, True]] * 2])
            self.assertEqual([each.tolist() for each in inside], [[0], [[False, False]] * 2])
            self.assertTrue(same)
            ((first, ones), (second, twos)), ((numbers, _),) = got["exchanged"]
            self.assertEqual(first.tolist(), [10 * i + rank for i in range(size)])
            self.assertEqual(ones.tolist(), [1] * size)
            owned = [[i] for i in range(size) for _ in range(2)] if rank == 0 else []
            self.assertEqual(second.tolist(), owned)
            self.assertEqual(twos.tolist(), [2 if rank == 0 else 0] * size)
            self.assertEqual(numbers.tolist(), [rank] * size)

    def test_values_of_calls_without_names(self) -> None:
        self.check_values(3, None)

    def test_values_of_calls_with_names_and_of_two_workers(self) -> None:
        self.check_values(2, "my")

    def check_gradients(self, name: str | None) -> None:
        for rank, made, untracked, texts in self.jobs.run(gradients, 3, name):
            all_factors = 111.0
            here = torch.zeros(4, 2, dtype=torch.float64)
            here[: rank + 1] = all_factors
            self.assertTrue(torch.equal(made["allgather"], here))
            self.assertTrue(torch.equal(made["grouped"], torch.full_like(here, 2 * all_factors)))
            # Rows 0 and 1 are of rank 0.
            of_owners = torch.tensor([1.0, 1.0, 10.0, 100.0])[:, None].expand(-1, 2).double()
            self.assertTrue(torch.equal(made["sum"], of_owners / 2))
            self.assert_close([of_owners / 3], [made["average"]])
            sent_to = torch.tensor([10.0, 100.0, 100.0, 100.0])[:, None].expand(-1, 2).double()
            self.assertTrue(torch.equal(made["alltoall"], sent_to))
            of_root = torch.full_like(here, all_factors if rank == 1 else 0.0)
            self.assertTrue(torch.equal(made["broadcast"], of_root))
            self.assertTrue(torch.equal(made["grouped broadcast"], 2 * of_root))
            self.assertTrue(torch.equal(made["grouped alltoall"], 2 * sent_to))
            self.assertFalse(untracked)
            self.assertIn("MAX, which has no gradient", texts[0])
            self.assertIn("without the underscore", texts[1])
            self.assertIn("Give it at least one", texts[2])

    def check_sparse(self, size: int, name: str | None) -> None:
        got = self.jobs.run(sparse, size, name)
        whole = sum(each[0].to_dense() for each in got)
        for _, total, mean, nothing, texts in got:
            self.assertTrue(total.is_coalesced())
            self.assertTrue(torch.equal(total.to_dense(), whole))
            self.assertEqual(total.values().shape[0], len(whole.nonzero()[:, 0].unique()))
            self.assertEqual(mean.dtype, torch.bfloat16)
            self.assertTrue(torch.equal(mean.to_dense(), (2 * whole / size).bfloat16()))
            self.assertEqual(nothing.to_dense().tolist(), [0.0] * 4)
            self.assertIn("without the underscore", texts[0])
            self.assertIn("MAX and its options", texts[1])
            self.assertIn("sparse SUM of size [9, 2]", texts[2])
            self.assertIn("sparse SUM of size [10, 2]", texts[2])

    def test_sparse_tensors_are_merged_by_row(self) -> None:
        self.check_sparse(3, None)
        self.check_sparse(2, "embedding")

    def test_gradients_without_names(self) -> None:
        self.check_gradients(None)

    def test_gradients_with_names(self) -> None:
        self.check_gradients("my")


if __name__ == "__main__":
    main()
