# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""What is broadcast is the same thing on all workers, or an error on all of them: dtype, byte
order, shape, kind of call and root are compared, in NumPy and in PyTorch. Objects and states of
optimizers arrive with whatever can be pickled in them.

Usage: test_broadcasts.py BASIND LIBBASIN
"""

import functools
import sys
import types
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from jobs import JobsTest, main
from torch import nn
from torch_jobs import session

# By name: what rank 0 and rank 1 broadcast, and a word of the error, or None if it arrives.
_ARRAYS: dict[str, tuple[Any, Any, str | None]] = {
    "the same bits": (np.array([1, 2], "float32"), np.array([3, 4], "float32"), None),
    "no dimension": (np.float64(1.5), np.float64(2.5), None),
    "empty": (np.ones((0, 3)), np.ones((0, 3)), None),
    "flags": (np.array([True, False]), np.array([False, False]), None),
    "complex": (np.array([1j], "complex64"), np.array([2], "complex64"), None),
    "the other byte order": (np.array([1, 2], ">f4"), np.array([3, 4], ">f4"), None),
    "byte order": (np.array([1, 2], ">f4"), np.array([1, 2], "<f4"), "other byte order"),
    "dtype of one size": (np.array([1], "float32"), np.array([1], "int32"), "int32"),
    "flags and bytes": (np.array([True]), np.array([1], np.uint8), "bool"),
    "half precision": (np.array([1], "float16"), np.array([1], "int16"), "int16"),
    "dtype": (np.array([1, 2], "float32"), np.array([1], "float64"), "float64"),
    "scalar and one element": (np.float64(1), np.ones(1), "(1,)"),
    "shape of one size": (np.ones((2, 3)), np.ones((3, 2)), "(3, 2)"),
    "shape": (np.ones(2), np.ones(3), "(3,)"),
}
_NO_NUMBERS: dict[str, Any] = {
    "objects": np.array([[1], "x"], dtype=object),
    "text": np.array(["a", "bc"]),
    "bytes": np.array([b"a"]),
    "dates": np.array(["2026-01-01"], "datetime64[s]"),
    "durations": np.array([1], "timedelta64[s]"),
    "structure": np.zeros(2, [("a", "i4"), ("b", "f4")]),
    "structure with objects": np.zeros(2, [("a", "i4"), ("b", "O")]),
    "masked": np.ma.masked_array([1.0, 2.0], [True, False]),
}


def _outcome(call: Callable[[], Any]) -> Any:
    """The type and the text of an error of Basin; otherwise what is returned."""
    import basin

    try:
        return call()
    except basin.Error as error:
        return type(error).__name__, str(error)


def arrays(rank: int) -> tuple[int, dict[str, Any]]:
    import basin

    with basin.connect() as client:
        me = client.rank
        outcomes: dict[str, Any] = {}
        for name, (root, other, _) in _ARRAYS.items():
            mine = root if me == 0 else other
            outcomes[name] = _outcome(functools.partial(client.broadcast, mine, name, root_rank=0))
            if isinstance(outcomes[name], np.ndarray):  # A pickle has no byte order.
                got = outcomes[name]
                outcomes[name] = got.dtype.str, got.shape, got.tobytes()
        outcomes["root"] = _outcome(lambda: client.broadcast(np.ones(1), "root", root_rank=me))
        for name, array in _NO_NUMBERS.items():
            outcomes[name] = _outcome(functools.partial(client.broadcast, array, name, root_rank=0))
        client.barrier()
        return me, outcomes


def tensors(rank: int) -> tuple[int, dict[str, Any]]:
    with session() as bt:
        me = bt.rank()
        outcomes: dict[str, Any] = {}

        def give(name: str, mine: dict[str, torch.Tensor], root: int = 0) -> None:
            def call() -> Any:
                bt.broadcast_parameters(mine, root)
                return {key: value.clone() for key, value in mine.items()}

            outcomes[name] = _outcome(call)

        give("equal", {"a": torch.full((2,), float(me)), "b": torch.tensor(me > 0)})
        give("flags", {"a": torch.ones(2, dtype=(torch.bool, torch.uint8)[me])})
        give("dtype", {"a": torch.ones(2, dtype=(torch.bfloat16, torch.float16)[me])})
        give("shape", {"a": torch.ones((1,) if me else ())})
        give("names", {"a": torch.ones(1), **({"b": torch.ones(1)} if me else {})})
        give("root", {"a": torch.ones(1)}, root=me)

        def either() -> Any:
            return bt.broadcast_object(1, name="x") if me else bt.allgather_object(1, name="x")

        outcomes["kind"] = _outcome(either)
        return me, outcomes


class OnlyHere:
    """Cannot be unpickled by a worker whose module has no such class."""


def objects(rank: int) -> tuple[int, dict[str, Any]]:
    with session() as bt:
        me = bt.rank()
        outcomes: dict[str, Any] = {}
        model = nn.Linear(2, 1)
        bt.broadcast_parameters(model)
        bt.DistributedOptimizer(
            torch.optim.SGD(model.parameters(), lr=0.1), model.named_parameters()
        )
        rich = {
            "numpy": [np.float64(0.25), np.int64(3), np.bool_(True), np.arange(3, dtype=">i2")],
            "dates": np.array(["2026-01-01"], "datetime64[s]"),
            "torch": [torch.float16, torch.Size([2]), torch.device("cpu"), torch.arange(3)],
            "model": model,
            "generator": torch.Generator().manual_seed(7).get_state(),
        }
        got = bt.broadcast_object(rich if me == 0 else None)
        outcomes["rich"] = [
            repr(got["numpy"]), repr(got["dates"]), repr(got["torch"]),
            [p.tolist() for p in got["model"].parameters()], got["generator"].sum().item(),
        ]  # fmt: skip
        # The others' objects are not sent, so they may be of any kind.
        outcomes["not sent"] = bt.broadcast_object(5 if me == 0 else (lambda: None), name="sent")
        outcomes["cannot be pickled"] = _outcome(
            lambda: bt.broadcast_object((lambda: None) if me == 0 else 5, name="unsent")
        )
        outcomes["one cannot be pickled"] = _outcome(
            lambda: bt.allgather_object((lambda: None) if me == 1 else 5, name="gathered")
        )
        outcomes["one cannot be gathered"] = _outcome(
            lambda: bt.gather_object((lambda: None) if me == 1 else 5, name="at the root")
        )
        both = bt.add_process_set([0, 1])
        outcomes["one cannot be pickled in a set"] = _outcome(
            lambda: bt.allgather_object((lambda: None) if me == 1 else 5, process_set=both)
        )
        if me == 0:
            sys.modules["only_here"] = module = types.ModuleType("only_here")
            module.OnlyHere = OnlyHere  # type: ignore[attr-defined]
            OnlyHere.__module__ = "only_here"
        outcomes["unknown class"] = _outcome(
            lambda: type(bt.broadcast_object(OnlyHere() if me == 0 else None, name="c")).__name__
        )
        return me, outcomes


def optimizers(rank: int) -> tuple[int, dict[str, Any]]:
    with session() as bt:
        me = bt.rank()
        outcomes: dict[str, Any] = {}

        def give(name: str, optimizer: torch.optim.Optimizer) -> None:
            def call() -> Any:
                bt.broadcast_optimizer_state(optimizer)
                state = optimizer.state_dict()["state"].get(0, {})
                return [
                    {k: v for k, v in group.items() if k != "params"}
                    for group in optimizer.param_groups
                ], {key: torch.as_tensor(value).tolist() for key, value in state.items()}

            outcomes[name] = _outcome(call)

        def adam() -> torch.optim.Optimizer:
            parameter = nn.Parameter(torch.full((2,), float(me)))
            made = torch.optim.Adam([parameter], lr=0.1 * (me + 1))
            if me == 0:  # As resumed by the root alone.
                parameter.sum().backward()
                made.step()
                made.param_groups[0]["lr"] = 0.05 * (1 + np.cos(np.pi * 3 / 10))
                made.param_groups[0]["weight_decay"] = np.float32(0.5)
                made.param_groups[0]["schedule"] = np.arange(3)
            return made

        give("numbers of NumPy", adam())
        parameter = nn.Parameter(torch.zeros(2))
        give(
            "kind",
            torch.optim.SGD([parameter], lr=0.1) if me else torch.optim.Adam([parameter], lr=0.1),
        )
        more = [nn.Parameter(torch.zeros(1))] * me
        groups = [{"params": [parameter]}, *({"params": [each]} for each in more)]
        give("groups", torch.optim.SGD(groups, lr=0.1))
        return me, outcomes


def one_is_refused(rank: int) -> tuple[int, tuple[list[str], Any]]:
    """Rank 1's array has another shape in the second call."""
    import warnings

    import basin

    with basin.connect() as client, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        client.allreduce(np.ones(2), "x", op=basin.Sum)
        assert not caught
        mine = np.ones(2 + client.rank)
        outcome = _outcome(lambda: client.allreduce(mine, "x", op=basin.Sum))
        client.barrier()
        said = [f"{each.category.__name__}: {each.message} {each.filename}" for each in caught]
        return client.rank, (said, outcome)


class Broadcasts(JobsTest):
    def by_rank(self, function: Callable[[int], Any]) -> list[Any]:
        outcomes = sorted(self.jobs.run(function, 2), key=lambda each: each[0])
        return [outcome for _, outcome in outcomes]

    def test_arrays_that_differ_are_refused_on_all_workers(self) -> None:
        first, second = self.by_rank(arrays)
        for name, (root, _, word) in _ARRAYS.items():
            with self.subTest(name):
                if word is None:
                    for each in (first[name], second[name]):
                        self.assertEqual((root.dtype.str, root.shape, root.tobytes()), each)
                    continue
                for kind, text in (first[name], second[name]):
                    self.assertEqual("Mismatch", kind)
                    self.assertIn(f"The broadcast of {name} differs", text)
                self.assertIn(word, second[name][1])
        self.assertEqual(["Mismatch"] * 2, [first["root"][0], second["root"][0]])
        self.assertIn("root_rank is 1 here, and 0 at rank 0", second["root"][1])
        for name in _NO_NUMBERS:
            for kind, text in (first[name], second[name]):
                self.assertEqual("InvalidArgument", kind, text)
                self.assertIn(name, text)

    def test_tensors_that_differ_are_refused_on_all_workers(self) -> None:
        first, second = self.by_rank(tensors)
        for each in (first["equal"], second["equal"]):
            self.assertEqual(([0.0, 0.0], False), (each["a"].tolist(), each["b"].item()))
        for name, word in (
            ("flags", "a is uint8 of shape (2,) here, and bool of shape (2,) at rank 0"),
            ("dtype", "float16 of shape (2,) here, and bfloat16"),
            ("shape", "shape (1,) here, and float32 of shape () at"),
            ("names", "This worker has a tensor b, and rank 0 has none"),
            ("root", "root_rank is 1 here"),
        ):
            self.assertEqual(("Mismatch", "Mismatch"), (first[name][0], second[name][0]), name)
            self.assertIn(word, second[name][1])
        self.assertEqual(("Mismatch", "Mismatch"), (first["kind"][0], second["kind"][0]))

    def test_objects_arrive_or_are_refused_on_all_workers(self) -> None:
        first, second = self.by_rank(objects)
        self.assertEqual(first["rich"], second["rich"])
        self.assertIn("float64(0.25)", first["rich"][0])
        self.assertEqual((5, 5), (first["not sent"], second["not sent"]))
        of_one = ("one cannot be gathered", "one cannot be pickled in a set")
        for name in ("cannot be pickled", "one cannot be pickled", *of_one):
            for kind, text in (first[name], second[name]):
                self.assertEqual("InvalidArgument", kind)
                self.assertRegex(text, r"has failed on worker (\d+-)?w[01].*lambda")
        self.assertEqual("OnlyHere", first["unknown class"])
        self.assertEqual("InvalidArgument", second["unknown class"][0])
        self.assertIn("only_here", second["unknown class"][1])

    def test_states_of_optimizers_arrive_with_numbers_of_numpy(self) -> None:
        first, second = self.by_rank(optimizers)
        self.assertEqual(repr(first["numbers of NumPy"]), repr(second["numbers of NumPy"]))
        self.assertAlmostEqual(0.07938926, second["numbers of NumPy"][0][0]["lr"])
        self.assertEqual(1, second["numbers of NumPy"][1]["step"])
        self.assertEqual("Mismatch", second["kind"][0])
        self.assertIn("SGD here, and a torch.optim.adam.Adam at the root", second["kind"][1])
        self.assertEqual("Mismatch", second["groups"][0])

    def test_a_call_of_which_a_part_is_refused_is_warned_of_on_the_others(self) -> None:
        (caught, result), (_, refused) = self.by_rank(one_is_refused)
        self.assertEqual([1.0, 1.0], list(result))
        self.assertEqual(1, len(caught), caught)
        self.assertRegex(
            caught[0], r"ContributorsChanged: .* over (w[01]) alone.* of (?!\1)w[01] is not in it"
        )
        self.assertTrue(caught[0].endswith("test_broadcasts.py"), caught[0])
        self.assertEqual("Mismatch", refused[0])


if __name__ == "__main__":
    main()
