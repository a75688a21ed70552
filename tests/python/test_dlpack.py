# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""basin.connect() with arrays of other frameworks, against a real aggregator.

Usage: test_dlpack.py BASIND LIBBASIN
"""

import gc
from typing import Any

from jobs import JobsTest, main, require

require("numpy", "torch", "ml_dtypes")
import ml_dtypes  # noqa: E402 - ends above when there is none
import numpy as np  # noqa: E402
import torch  # noqa: E402

DTYPES = ("float64", "float32", "float16", "bfloat16", "int64", "int32", "uint8")


def contribution(rank: int, dtype: str) -> torch.Tensor:
    """An array that differs for each worker and element; it and its sums are exact in every dtype.
    Not contiguous, and not at the beginning of its memory."""
    numbers = (torch.arange(30).reshape(5, 6) + 3 * rank) % 17
    return numbers.to(getattr(torch, dtype)).T[1:]


def sums(rank: int) -> dict[str, tuple[Any, bool]]:
    import basin

    results = {}
    with basin.connect() as client:
        for dtype in DTYPES:
            result = client.allreduce(contribution(rank, dtype), f"sum.{dtype}", op=basin.Sum)
            back = torch.from_dlpack(result)
            results[dtype] = (result, back.tolist() == result.tolist())
    return results


def rounds_once(rank: int) -> tuple[list[float], list[float], str]:
    import basin

    # 256 + 1 + 1 is a bfloat16; rounded after each sum it would be 256.
    ours = torch.tensor([256.0, -0.0] if rank == 0 else [1.0, -0.0], dtype=torch.bfloat16)
    theirs = np.array(ours.tolist(), ml_dtypes.bfloat16)
    with basin.connect() as client:
        one = client.allreduce(ours, "x", op=basin.Sum)
        other = client.allreduce(theirs, "x", op=basin.Sum)
        return one.tolist(), other.astype(np.float64).tolist(), str(other.dtype)


def outlives(rank: int) -> bool:
    import basin

    with basin.connect() as client:
        good = True
        for dtype in (torch.bfloat16, torch.float32):
            client.barrier()  # The round waits for rank 0.
            if rank > 0:
                handle = client.allreduce_async(
                    torch.full((1 << 18,), 2.0, dtype=dtype), f"big.{dtype}", op=basin.Sum
                )
                gc.collect()
                # This would get the memory of the tensor if it were free.
                others = [torch.zeros(1 << 18, dtype=dtype) for _ in range(8)]
                client.barrier("freed")
                good = good and bool((handle.wait() == 4.0).all()) and len(others) == 8
            else:
                client.barrier("freed")
                result = client.skip_round(
                    torch.empty(1 << 18, dtype=dtype), f"big.{dtype}", op=basin.Sum
                )
                good = good and bool((result == 4.0).all())
        client.barrier()
        return good


def broadcasts(rank: int) -> list[Any]:
    import basin

    values = [
        torch.tensor([float("nan"), -0.0, rank + 1.0], dtype=torch.bfloat16),
        torch.tensor([True, rank == 1]),
        torch.tensor(rank, dtype=torch.int16),
    ]
    with basin.connect() as client:
        received = [
            client.broadcast(value, f"value.{i}", root_rank=1) for i, value in enumerate(values)
        ]
        root = client.allreduce(np.array([rank if client.rank == 1 else 0]), "root", op=basin.Sum)
        client.barrier()
        return [*received, int(root[0])]


class OnDevice:
    """An array that claims to be on a GPU."""

    def __dlpack_device__(self) -> tuple[int, int]:
        return 2, 0

    def __dlpack__(self, *, stream: Any = None) -> Any:
        raise AssertionError("it was asked for its memory")


def refusals(rank: int) -> list[str]:
    import basin

    def text(kind: type[Exception], array: Any) -> str:
        try:
            client.allreduce(array, "weights", op=basin.Sum)
        except kind as error:
            return str(error)
        return ""

    with basin.connect() as client:
        return [
            text(basin.Unsupported, OnDevice()),
            text(basin.InvalidArgument, torch.ones(2, requires_grad=True)),
            text(basin.InvalidArgument, torch.ones(2, dtype=torch.complex64)),
            text(basin.InvalidArgument, np.ones(2, ">f4")),
        ]


class DLPack(JobsTest):
    def test_takes_tensors_of_every_dtype_and_gives_what_torch_takes(self) -> None:
        for results in self.jobs.run(sums, 2):
            for dtype in DTYPES:
                expected = contribution(0, dtype) + contribution(1, dtype)
                result, torch_takes_it = results[dtype]
                given = "float32" if dtype == "bfloat16" else dtype
                self.assertEqual(np.dtype(given), result.dtype)
                self.assertEqual(expected.tolist(), result.tolist(), dtype)
                self.assertTrue(torch_takes_it, dtype)

    def test_bfloat16_of_torch_and_of_numpy_are_one_dtype_and_rounded_once(self) -> None:
        for ours, theirs, dtype in self.jobs.run(rounds_once, 3):
            self.assertEqual([258.0, 0.0], ours)
            self.assertEqual("bfloat16", dtype)
            self.assertEqual(ours, theirs)
            self.assertTrue(np.signbit(ours[1]))

    def test_a_tensor_that_nobody_else_holds_lives_until_its_round_has_ended(self) -> None:
        self.assertEqual([True] * 3, self.jobs.run(outlives, 3))

    def test_broadcast_copies_bits_of_any_dtype(self) -> None:
        for numbers, flags, scalar, root in self.jobs.run(broadcasts, 3):
            self.assertTrue(np.isnan(numbers[0]) and np.signbit(numbers[1]))
            self.assertEqual(root + 1.0, numbers[2])
            self.assertEqual(([True, root == 1], bool), (flags.tolist(), flags.dtype))
            self.assertEqual((root, (), np.int16), (int(scalar), scalar.shape, scalar.dtype))

    def test_what_cannot_be_taken_is_a_typed_error_that_names_the_array(self) -> None:
        (texts,) = self.jobs.run(refusals, 1)
        for text, why in zip(texts, ("CPU memory", "gradient", "complex64", ">f4")):
            self.assertIn("Array weights", text)
            self.assertIn(why, text)


if __name__ == "__main__":
    main()
