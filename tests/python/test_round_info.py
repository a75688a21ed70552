# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""The contents of a round's reply, and the advice of an aborted round.

Usage: test_round_info.py BASIND LIBBASIN
"""

import gc
import pickle
import weakref
from typing import Any

from jobs import PATIENCE, JobsTest, main, require

require("numpy")
import numpy as np  # noqa: E402 - ends above when there is none

WORKERS = 3
LANE = "gradients"


class Lane:
    """A lane with the tensors w (f32), n (i64) and unused (f32)."""

    def __init__(self, client: Any) -> None:
        from basin import _abi
        from basin.worker import TensorSpec

        self.worker = client.worker
        tensors = [
            TensorSpec("w", _abi.F32, (4,)),
            TensorSpec("n", _abi.I64, (2,)),
            TensorSpec("unused", _abi.F32, (3,)),
        ]
        self.lane, handles = self.worker.register(LANE, _abi.GRADIENT, tensors)
        self.handles = {tensor.name: handle for tensor, handle in zip(tensors, handles)}

    def reduce(self, spec: Any, *, withdraw: bool = False, **arrays: Any) -> Any:
        self.worker.begin(self.lane, spec)
        for name, array in arrays.items():
            self.worker.push(self.lane, self.handles[name], array.ctypes.data, array.nbytes)
        if withdraw:
            self.worker.withdraw(self.lane, "a bad batch")
        else:
            self.worker.commit(self.lane)
        return self.worker.wait(self.lane, PATIENCE)


def replies(rank: int) -> Any:
    import basin
    from basin.spec import Counts, RoundSpec, Weight

    weights = np.array([3, 0, 4, 0], np.float32)
    counts = np.array([rank, 7], np.int64)
    broken = np.array([1, 1, np.inf if rank == 1 else 1, 1], np.float32)
    weighted = RoundSpec(
        basin.WeightedAverage,
        weight_by=Weight.TOKENS,
        contributes_sum=True,
        counts=Counts(tokens=10 * (rank + 1)),
    )
    with basin.connect() as client:
        lane = Lane(client)
        # The last worker is a member, but does not contribute.
        summed = lane.reduce(RoundSpec(basin.Sum), w=weights, n=counts, withdraw=rank == 2)
        result = weakref.ref(summed)
        infos = [summed.info]
        del summed
        gc.collect()
        freed = result() is None
        infos.append(lane.reduce(weighted, w=weights).info)
        infos.append(lane.reduce(RoundSpec(basin.Sum, predivide=None), w=broken).info)
        infos.append(lane.reduce(RoundSpec(basin.Sum), n=counts).info)
        client.barrier()
    return infos, freed


def overflowing_scale(rank: int) -> Any:
    import basin
    from basin.spec import RoundSpec

    ones = np.ones(4, np.float32)
    text = ""
    with basin.connect() as client:
        lane = Lane(client)
        try:
            lane.reduce(RoundSpec(basin.Sum, prescale=1e300), w=ones)
        except basin.RoundAborted as error:
            text = f"{error.abort_cause.name}: {error}"
        after = lane.reduce(RoundSpec(basin.Sum), w=ones).info.tensor_norms
        client.barrier()
    return text, after


class RoundInfoTest(JobsTest):
    def test_criterion_3_8_the_reply_says_it_of_the_round_and_of_each_tensor(self) -> None:
        each = self.jobs.run(replies, WORKERS)
        for infos, freed in each:
            self.assertEqual(each[0][0], infos)
            self.assertEqual(pickle.loads(pickle.dumps(infos)), infos)
            self.assertEqual(len(infos), len(set(infos)))
            self.assertTrue(freed)  # An info does not keep the received bytes alive.
            summed, weighted, broken, integers = infos

            self.assertEqual((3, ("w0", "w1")), (summed.world_size, summed.contributors))
            self.assertEqual((2, 1), (summed.sum_of_weights, summed.divisor))
            self.assertEqual({"w": 1, "n": 1}, summed.tensor_divisors)
            self.assertEqual({"w": 10.0}, summed.tensor_norms)
            self.assertEqual(10.0, summed.norm)
            self.assertIsNone(summed.nonfinite)

            self.assertTrue(weighted.spec.contributes_sum)
            self.assertEqual((60, 60), (weighted.sum_of_weights, weighted.divisor))
            self.assertEqual({"w": 60}, weighted.tensor_divisors)
            self.assertAlmostEqual(15.0 / 60, weighted.tensor_norms["w"], delta=1e-8)
            self.assertEqual(3, weighted.world_size)

            self.assertEqual("WEIGHTED_AVERAGE", str(weighted.spec.op))
            self.assertEqual("by TOKENS", f"by {weighted.spec.weight_by}")
            self.assertIn("op=Op.WEIGHTED_AVERAGE, ", repr(weighted))
            self.assertIn("weight_by=Weight.TOKENS, ", repr(weighted))

            self.assertEqual(("w1", "w", 2), broken.nonfinite)
            self.assertEqual("w", broken.nonfinite.tensor)

            self.assertEqual({"n": 1}, integers.tensor_divisors)
            self.assertEqual({}, integers.tensor_norms)
            self.assertIsNone(integers.norm)
            self.assertEqual([False, False, True], [info.auto_predivide for info in infos[:3]])
            self.assertEqual(2.0, broken.spec.predivide)  # The sum over three workers.

    def test_criterion_5_5_a_scale_that_f32_cannot_hold_is_told_as_what_it_is(self) -> None:
        for text, after in self.jobs.run(overflowing_scale, 2):
            self.assertRegex(text, "^REDUCTION: .*tensor w cannot be reduced")
            self.assertIn("prescale", text)
            self.assertIn("e+300", text)
            self.assertIn("correct this before a retry, or it fails again", text)
            self.assertEqual({"w": 4.0}, after)


if __name__ == "__main__":
    main()
