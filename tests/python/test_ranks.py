# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""Workers that stand for several trainers: two nodes of 2 and 3 trainers, and a single one.

The tests add up the values of a node's trainers. The value of trainer i of all is 2^i.

Usage: test_ranks.py BASIND LIBBASIN
"""

from typing import Any

from jobs import PATIENCE, JobsTest, main, require

require("numpy")
import numpy as np  # noqa: E402 - ends above when there is none

NODES = (2, 3, 1)  # The trainers of each worker.
FIRST = (0, 2, 5)  # The first of them.


def values(node: int, trainers: int) -> np.ndarray:
    """One row for each trainer of the node."""
    rows = [np.full(4, 2.0 ** (FIRST[node] + i), np.float32) for i in range(trainers)]
    return np.stack(rows)


class Lane:
    def __init__(self, client: Any) -> None:
        from basin import _abi
        from basin.worker import TensorSpec

        self.worker = client.worker
        tensors = [TensorSpec("w", _abi.F32, (4,)), TensorSpec("part", _abi.F32, (4,))]
        self.lane, self.handles = self.worker.register("gradients", _abi.GRADIENT, tensors)

    def reduce(self, spec: Any, *arrays: np.ndarray) -> tuple[list[float], Any]:
        """Returns the first element of each tensor's result, and the reply."""
        self.worker.begin(self.lane, spec)
        for handle, array in zip(self.handles, arrays):
            self.worker.push(self.lane, handle, array.ctypes.data, array.nbytes)
        self.worker.commit(self.lane)
        result = self.worker.wait(self.lane, PATIENCE)
        received = []
        for handle, array in zip(self.handles, arrays):
            into = np.empty_like(array)
            result.copy(handle, into.ctypes.data, into.nbytes)
            received.append(float(into[0]))
        return received, result.info


def connect(node: int) -> Any:
    import basin

    return basin.connect(
        max_workers=len(NODES), ranks=NODES[node], local_rank=NODES[node] - 1, timeout=PATIENCE
    )


def averages(node: int) -> Any:
    import basin
    from basin.spec import Counts, RoundSpec, Weight

    with connect(node) as client:
        lane = Lane(client)
        place = client.place
        trainers = NODES[node]
        rows = values(node, trainers)
        mean, info = lane.reduce(RoundSpec(basin.Average, counts=Counts(samples=10)), rows.sum(0))
        means = [(mean[0], info)]

        # Trainer i has 1 + i tokens, and the mean over them.
        weights = np.arange(FIRST[node], FIRST[node] + trainers) + 1
        weighted = RoundSpec(
            basin.WeightedAverage,
            weight_by=Weight.TOKENS,
            counts=Counts(tokens=int(weights.sum())),
        )
        # A single trainer sends its mean, a node the sum of what its trainers count.
        products = (rows * weights[:, None]).sum(0, dtype=np.float32)
        products = rows[0] if trainers == 1 else products
        mean, info = lane.reduce(weighted, products)
        means.append((mean[0], info))

        # The nodes push `part`, the single trainer does not.
        present = RoundSpec(basin.Average, divide_by_present=True)
        part = [rows.sum(0)] if trainers > 1 else []
        mean, info = lane.reduce(present, rows.sum(0), *part)
        means.append((mean[-1], info))

        # One trainer of the second node is gone.
        if node == 1:
            trainers = 2
            client.worker.set_ranks(trainers, trainers - 1)
        mean, info = lane.reduce(RoundSpec(basin.Average), values(node, trainers).sum(0))
        means.append((mean[0], info))
        after = client.place
        mean, info = lane.reduce(RoundSpec(basin.Average), values(node, trainers).sum(0))
        means.append((mean[0], info))
        client.barrier()
        members = [client.worker.member_id(rank) for rank in range(5)]
        sent = np.full(3, node, np.float32)
        received = client.broadcast(sent, "of-rank-3", root_rank=3, timeout=PATIENCE)
        client.barrier("end")
    return place, after, means, members, float(received[0])


def refusals(node: int) -> Any:
    import basin
    from basin.spec import RoundSpec

    texts = []
    for ranks, local_rank in ((0, 0), (1025, 0), (2, 2)):
        try:
            basin.connect(ranks=ranks, local_rank=local_rank)
        except basin.InvalidArgument as error:
            texts.append(str(error))
    with connect(node) as client:
        for ranks, local_rank in ((0, 0), (1025, 0), (2, 2)):
            try:
                client.worker.set_ranks(ranks, local_rank)
            except basin.InvalidArgument as error:
                texts.append(str(error))
        lane = Lane(client)
        _, info = lane.reduce(RoundSpec(basin.Average), values(node, NODES[node]).sum(0))
        client.barrier()
    return texts, info.divisor


def told(mean: list[float], info: Any) -> tuple[Any, ...]:
    reductions = [str(each) for each in info.contributor_local_reductions]
    plan = list(zip(reductions, info.contributor_reduced_with))
    return mean, info.divisor, info.contributor_ranks, plan


def carried(index: int) -> Any:
    """Three single trainers of one node: the first contributes for the second, too."""
    import basin
    from basin.spec import RoundSpec

    with basin.connect(max_workers=3, start_workers=3, timeout=PATIENCE) as client:
        lane = Lane(client)
        client.barrier()
        both = np.full(4, 1.0 + 2.0, np.float32)
        if client.rank == 0:
            spec = RoundSpec(
                basin.Average,
                carries=1,
                local_reduction=basin.LocalReduction.DETERMINISTIC,
                reduced_with=(client.worker.member_id(1),),
            )
            return told(*lane.reduce(spec, both, both))
        if client.rank == 2:
            own = np.full(4, 6.0, np.float32)
            return told(*lane.reduce(RoundSpec(basin.Average), own, own))
        lane.worker.begin(lane.lane, RoundSpec(basin.Average))
        lane.worker.withdraw(lane.lane, "in the contribution of rank 0")
        result = lane.worker.wait(lane.lane, PATIENCE)
        into = np.empty(4, np.float32)
        mean = []
        for handle in lane.handles:
            result.copy(handle, into.ctypes.data, into.nbytes)
            mean.append(float(into[0]))
        return told(mean, result.info)


class RanksTest(JobsTest):
    def test_a_contribution_for_another_worker_counts_as_two(self) -> None:
        for outcome in self.jobs.run(carried, 3):
            plan = [("DETERMINISTIC", ("w1",)), ("NONE", ())]
            self.assertEqual(outcome, ([3.0, 3.0], 3, (2, 1), plan))

    def test_the_mean_is_that_of_all_trainers(self) -> None:
        outcomes = self.jobs.run(averages, len(NODES))
        for node, (place, after, means, members, received) in enumerate(outcomes):
            self.assertEqual(place.world_size, 6)
            self.assertEqual(place.first_rank, FIRST[node])
            self.assertEqual(place.ranks, NODES[node])
            self.assertEqual(place.rank, FIRST[node] + NODES[node] - 1)

            mean, info = means[0]
            self.assertAlmostEqual(mean, 63 / 6, places=5)
            self.assertEqual(info.divisor, 6)
            self.assertEqual(info.trainers, 6)
            self.assertEqual(info.world_size, 6)
            self.assertEqual(info.contributor_ranks, NODES)
            self.assertEqual(len(info.contributors), 3)
            self.assertEqual(info.spec.counts.samples, 30)

            mean, info = means[1]
            weighted = sum((i + 1) * 2.0**i for i in range(6))
            self.assertEqual(info.divisor, 21)
            self.assertAlmostEqual(mean, weighted / 21, places=4)
            self.assertEqual(info.contributor_weights, (3, 12, 6))

            mean, info = means[2]
            self.assertEqual(info.tensor_divisors, {"w": 6, "part": 5})
            if node < 2:
                self.assertAlmostEqual(mean, 31 / 5, places=5)

            mean, info = means[3]
            self.assertAlmostEqual(mean, (63 - 16) / 5, places=5)
            self.assertEqual(info.divisor, 5)
            self.assertEqual(info.world_size, 6)
            self.assertEqual(after.world_size, 5)
            self.assertEqual(after.first_rank, (0, 2, 4)[node])
            self.assertGreater(after.generation, place.generation)

            mean, info = means[4]
            self.assertAlmostEqual(mean, (63 - 16) / 5, places=5)
            self.assertEqual(info.world_size, 5)

            self.assertEqual(members[0], members[1])
            self.assertEqual(members[2], members[3])
            self.assertEqual(len(set(members)), 3)
            self.assertEqual(received, 1.0)
            self.assertEqual(means, outcomes[0][2] if node < 2 else means)

    def test_ranks_that_make_no_sense_are_refused(self) -> None:
        for texts, divisor in self.jobs.run(refusals, len(NODES)):
            self.assertEqual(len(texts), 6)
            self.assertIn('Option ranks cannot be "0": a whole number from 1 to 1024', texts[0])
            self.assertIn('Option ranks cannot be "1025"', texts[1])
            self.assertIn("local_rank is 2, but the worker stands for 2 trainers", texts[2])
            self.assertIn("stands for 0 trainers; a worker stands for 1 to 1024", texts[3])
            self.assertIn("stands for 1025 trainers", texts[4])
            self.assertIn("has local rank 2, but stands for 2 trainers", texts[5])
            self.assertEqual(divisor, 6)


if __name__ == "__main__":
    main()
