# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""The ranks of a node that reduce among themselves, without a GPU and without NCCL: the library is
built with emulated devices, and another library stands in for NCCL among processes.

Usage: test_torch_group.py BASIND LIBBASIN PROCESS_NCCL
"""

import contextlib
import ctypes
import logging
import os
import signal
import sys
import tempfile
from collections.abc import Iterator
from typing import Any
from unittest import mock

# The processes of the workers have it from the first one.
NCCL = os.environ.get("TEST_NCCL") or sys.argv.pop(3)
os.environ["TEST_NCCL"] = NCCL

from jobs import require  # noqa: E402

require("numpy", "torch")
import numpy as np  # noqa: E402 - ends above when there is no torch
import torch  # noqa: E402
from test_torch_cuda import Cuda, cuda  # noqa: E402
from torch import nn  # noqa: E402
from torch_jobs import (  # noqa: E402
    TorchTest,
    average,
    expect,
    gradients,
    loss_of,
    main,
    model,
    session,
    sgd,
)

# In a job of 5 on two nodes, node 0 has the ranks 0 and 1.
FIRST_NODE = 2


@contextlib.contextmanager
def node(rank: int, ranks: int, mode: str, number: int = 0, library: str = NCCL) -> Iterator[None]:
    """This process is one of `ranks` ranks of a node."""
    environment = {
        "BASIN_LOCAL_GROUP": mode,
        "BASIN_NCCL_LIBRARY": library,
        "LOCAL_RANK": str(rank),
        "LOCAL_WORLD_SIZE": str(ranks),
    }
    if number > 0:  # Not every launcher names the first node.
        environment["GROUP_RANK"] = str(number)
    from basin import _library

    if library == NCCL:
        nccl = ctypes.CDLL(NCCL)
        nccl.processNcclSetEnqueue.argtypes = [ctypes.c_void_p]
        address = ctypes.cast(_library.lib.basin_emulated_add, ctypes.c_void_p)
        nccl.processNcclSetEnqueue(address)
    with mock.patch.dict(os.environ, environment):
        yield


@contextlib.contextmanager
def node_of(rank: int, workers: int, mode: str) -> Iterator[None]:
    """The ranks of a job of 5 on two nodes, or of fewer on one."""
    if workers < 5:
        with node(rank, workers, mode):
            yield
    elif rank < FIRST_NODE:
        with node(rank, FIRST_NODE, mode):
            yield
    else:
        with node(rank - FIRST_NODE, workers - FIRST_NODE, mode, 1):
            yield


@contextlib.contextmanager
def grouped(rank: int, workers: int, mode: str = "deterministic") -> Iterator[tuple[Any, Cuda]]:
    with node_of(rank, workers, mode), session() as bt, cuda() as here:
        yield bt, here


# ---- workers


def one_round(rank: int, workers: int, mode: str) -> Any:
    from basin.worker import logger

    told: list[str] = []
    with (
        mock.patch.object(logger, "debug", lambda text, *of: told.append(text % of)),
        grouped(rank, workers, mode) as (bt, _),
    ):
        net = model()
        optimizer = sgd(net, bt)
        results = []
        for step in range(3):
            optimizer.zero_grad()
            loss_of(net, rank, step).backward()
            results.append(gradients(net))
        info = optimizer.last_round()
        pushed = optimizer.totals().bytes_pushed
        return results, info.trainers, info.contributors, pushed, told


def single() -> Any:
    return nn.Sequential(nn.Linear(5, 8), nn.BatchNorm1d(8), nn.Linear(8, 3))


def wrapped(rank: int, workers: int, mode: str) -> Any:
    """A model with buffers in 32 bits, in small buckets."""
    from basin.torch import node as node_module

    with (
        mock.patch.object(node_module, "_BUCKET_BYTES", 64),
        grouped(rank, workers, mode) as (bt, _),
    ):
        torch.manual_seed(rank)
        net, mine = single(), single()
        ddp = bt.DistributedDataParallel(net)
        mine.load_state_dict(net.state_dict())
        x = torch.randn(4, 5, generator=torch.Generator().manual_seed(100 * rank))
        ddp(x).square().mean().backward()
        mine(x).square().mean().backward()
        return gradients(mine), gradients(net), dict(net.named_buffers())["1.running_mean"]


def uneven(rank: int, workers: int) -> Any:
    """Rank 1 lacks one gradient, and all lack another."""
    with grouped(rank, workers) as (bt, _):
        torch.manual_seed(7)
        parts = nn.ModuleDict({name: nn.Linear(3, 1, bias=False) for name in ("a", "b", "c")})
        optimizer = sgd(parts, bt)
        names = ("a",) if rank == 1 else ("a", "b")
        x = torch.full((1, 3), float(rank + 1))
        torch.cat([parts[name](x) for name in names]).sum().backward()
        return gradients(parts), optimizer.last_round().spec.counts.micro_batches


def weighted(rank: int, workers: int, of_one: bool) -> Any:
    """An average over samples, of means. Rank 2 has none, and a gradient that is not finite."""
    import basin

    options = {"op": basin.WeightedAverage, "weight_by": "samples", "contributes": "mean"}
    with grouped(rank, workers) as (bt, _):
        net = nn.Linear(3, 1, bias=False)
        torch.nn.init.zeros_(net.weight)
        optimizer = sgd(net, bt, **options)
        samples = 0 if rank == 2 or (of_one and rank != 1) else rank + 1
        optimizer.contribute(samples=samples, tokens=None if rank == 0 else 5)
        x = torch.full((1, 3), float("inf") if rank == 2 else 0.1 * (rank + 1))
        net(x).sum().backward()
        counts = optimizer.last_round().spec.counts
        return gradients(net)[0], counts.samples, counts.tokens


def failing(rank: int, workers: int, who: int) -> Any:
    """The backward of one rank fails after its first gradients have come."""
    from basin.torch import node as node_module

    with (
        mock.patch.object(node_module, "_BUCKET_BYTES", 8),
        grouped(rank, workers) as (bt, _),
    ):
        net = model()
        optimizer = sgd(net, bt)
        if rank == who:
            hook = net[0].register_full_backward_hook(lambda *_: 1 // 0)
            with contextlib.suppress(ZeroDivisionError):
                loss_of(net, rank).backward()
            hook.remove()
        else:
            loss_of(net, rank).backward()
        first = optimizer.last_round()
        got = gradients(net)
        optimizer.step()
        optimizer.zero_grad()
        loss_of(net, rank, 1).backward()
        return got, first.contributors, first.trainers, optimizer.last_round().trainers


@contextlib.contextmanager
def out_of_memory() -> Iterator[None]:
    """The device has no memory for the results of a round."""
    from basin.torch import device
    from basin.torch.node import NodeReduction

    share = NodeReduction.share

    def refuse(*_: Any) -> Any:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")

    def share_without(*arguments: Any) -> bool:
        with mock.patch.object(device, "empty_like", refuse):
            return share(*arguments)

    with mock.patch.object(NodeReduction, "share", share_without):
        yield


def without_memory(rank: int, workers: int, who: int) -> Any:
    """One rank has no memory for the results of the second round."""
    from basin.group import Group
    from basin.worker import logger

    told: list[str] = []
    shared: list[int] = []  # How many tensors, by call.
    share = Group.share

    def noting(group: Any, worker: Any, lane: int, tensors: Any, *rest: Any) -> bool:
        shared.append(len(tensors))
        return share(group, worker, lane, tensors, *rest)

    with (
        mock.patch.object(logger, "log", lambda level, text, *of: told.append(text % of)),
        mock.patch.object(Group, "share", noting),
        grouped(rank, workers) as (bt, _),
    ):
        net = model()
        optimizer = sgd(net, bt)
        outcomes = []
        for step in range(3):
            optimizer.zero_grad()
            shared.clear()
            lacks = step == 1 and rank == who
            with out_of_memory() if lacks else contextlib.nullcontext():
                loss_of(net, rank, step).backward()
            outcomes.append((gradients(net), optimizer.last_round().trainers, max(shared)))
        return outcomes, [line for line in told if "no memory" in line]


def without_memory_for_sums(rank: int, workers: int, who: int, bucket: int, fails: bool) -> Any:
    """One rank has no memory for a bucket of the second round; its backward may fail as well."""
    from basin.torch import node as node_module
    from basin.torch.node import NodeReduction
    from basin.worker import logger

    told: list[str] = []

    def tell(level: int, text: str, *of: Any) -> None:
        if level >= logging.WARNING:
            told.append(text % of)

    tensor_of = NodeReduction._tensor_of
    lacks = False

    def refusing_tensor_of(reduction: Any, *arguments: Any) -> Any:
        if lacks and reduction._reduced > bucket:
            raise torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
        return tensor_of(reduction, *arguments)

    with (
        mock.patch.object(logger, "log", tell),
        mock.patch.object(NodeReduction, "_tensor_of", refusing_tensor_of),
        mock.patch.object(node_module, "_BUCKET_BYTES", 8),
        grouped(rank, workers) as (bt, _),
    ):
        net = model()
        optimizer = sgd(net, bt)
        outcomes = []
        for step in range(4):
            optimizer.zero_grad()
            lacks = step in (1, 2) and rank == who
            if lacks and fails:
                hook = net[0].register_full_backward_hook(lambda *_: 1 // 0)
                with contextlib.suppress(ZeroDivisionError):
                    loss_of(net, rank, step).backward()
                hook.remove()
            else:
                loss_of(net, rank, step).backward()
            lacks = False
            info = optimizer.last_round()
            outcomes.append((gradients(net), info.trainers, info.contributors))
        return outcomes, [line for line in told if "no memory" in line]


def broken_broadcast(rank: int, workers: int) -> Any:
    """The broadcast of a result fails, and may still be going on."""
    import basin
    from basin.group import Group
    from basin.torch import node as node_module

    share = Group.share
    kept = []
    with grouped(rank, workers) as (bt, _):
        net = model()
        optimizer = sgd(net, bt)
        reduction = optimizer.basin_lane.rounds.node._in_node.reduction

        def fail(group: Any, *arguments: Any) -> bool:
            while not share(group, *arguments):
                pass
            raise basin.Unavailable("the local group failed")

        def refuse(group: Any) -> Any:
            raise basin.Unavailable("and the device may still use memory of results")

        for step in range(2):
            optimizer.zero_grad()
            with mock.patch.object(Group, "share", fail):
                loss_of(net, rank, step).backward()
            kept.append(sum(each.numel() for each in reduction._doubtful))
        optimizer.zero_grad()
        loss_of(net, rank, 2).backward()
        kept.append(sum(each.numel() for each in reduction._doubtful))
        got = gradients(net)
        with mock.patch.object(Group, "share", fail):
            optimizer.zero_grad()
            loss_of(net, rank, 3).backward()
        with mock.patch.object(Group, "turn", refuse):
            optimizer.zero_grad()
            text = expect("Unavailable", loss_of(net, rank, 4).backward)
    kept.append(sum(each.numel() for each in node_module._never_freed))
    return got, text, kept


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def killed(rank: int, workers: int, who: int, when: str) -> Any:
    """One rank is killed in the second round: before its first bucket, between two buckets, or
    when the local phase has ended."""
    from basin.torch import node as node_module
    from basin.torch.node import InNode, NodeReduction

    with (
        mock.patch.object(node_module, "_BUCKET_BYTES", 8),
        grouped(rank, workers) as (bt, _),
    ):
        net = model()
        optimizer = sgd(net, bt)
        loss_of(net, rank).backward()
        optimizer.zero_grad()
        if rank == who:
            reduce_next, contribute = NodeReduction._reduce_next, InNode._contribute

            def dying_reduce(reduction: Any, contributes: bool) -> None:
                if when == "before" or (when == "between" and reduction._reduced == 2):
                    die()
                reduce_next(reduction, contributes)

            def dying_contribute(in_node: Any, *arguments: Any) -> Any:
                if when == "after":
                    die()
                return contribute(in_node, *arguments)

            mock.patch.object(NodeReduction, "_reduce_next", dying_reduce).start()
            mock.patch.object(InNode, "_contribute", dying_contribute).start()
        loss_of(net, rank, 1).backward()
        first = gradients(net), optimizer.last_round().contributors
        optimizer.zero_grad()
        loss_of(net, rank, 2).backward()
        return *first, gradients(net), optimizer.last_round().contributors


def leaving(rank: int, workers: int) -> Any:
    """Rank 0, which leads, is out of data after a round."""
    with grouped(rank, workers) as (bt, _):
        net = model()
        optimizer = sgd(net, bt)
        loss_of(net, rank).backward()
        optimizer.step()
        optimizer.zero_grad()
        if rank == 0:
            bt.finished()
            bt.shutdown()
            return None
        loss_of(net, rank, 1).backward()
        info = optimizer.last_round()
        bt.shutdown()
        return info.trainers, info.contributors


def disagreeing(rank: int, workers: int) -> Any:
    with grouped(rank, workers, "fast" if rank == 1 else "deterministic") as (bt, _):
        net = model()
        optimizer = sgd(net, bt)
        text = expect("InvalidArgument", loss_of(net, rank).backward)
        del optimizer
        return text


def without_nccl(rank: int, workers: int, mode: str) -> Any:
    from basin.worker import logger

    told = []
    with (
        mock.patch.object(logger, "log", lambda level, text, *of: told.append(text % of)),
        node(rank, workers, mode, library="/nonexistent/libnccl.so.2"),
        session() as bt,
        cuda(),
    ):
        net = model()
        if mode != "auto":
            return expect("NotFound", sgd, net, bt)
        optimizer = sgd(net, bt)
        loss_of(net, rank).backward()
        contributors = optimizer.last_round().contributors
        return gradients(net), [line for line in told if "nonexistent" in line], contributors


def one_without_nccl(rank: int, workers: int, mode: str, code: str) -> Any:
    """Rank 2 has no NCCL, so the others wait for it in vain."""
    import basin
    from basin.group import Group
    from basin.worker import logger

    told = []

    def in_vain(group: Any) -> Any:
        raise getattr(basin, code)("local rank 2 has not come within 1m, of the 3 of this node")

    with (
        mock.patch.object(logger, "warning", lambda text, *of: told.append(text % of)),
        mock.patch.object(Group, "turn", in_vain),
        node(rank, workers, mode, library="/nonexistent/libnccl.so.2" if rank == 2 else NCCL),
        session() as bt,
        cuda(),
    ):
        net = model()
        optimizer = sgd(net, bt)
        if code == "InvalidArgument":
            return expect(code, loss_of(net, rank).backward) if rank < 2 else None
        loss_of(net, rank).backward()
        first = gradients(net)
        optimizer.zero_grad()
        loss_of(net, rank, 1).backward()
        contributors = optimizer.last_round().contributors
        return first, gradients(net), [line for line in told if "for itself" in line], contributors


def on_cpu(rank: int, workers: int) -> Any:
    with node(rank, workers, "deterministic"), session() as bt:
        return expect("Unsupported", sgd, model(), bt)


class GroupTest(TorchTest):
    def run_node(
        self,
        function: Any,
        workers: int,
        *arguments: Any,
        mortal: tuple[int, ...] = (),
        **more: str,
    ) -> list[Any]:
        with tempfile.TemporaryDirectory() as folder:
            return self.jobs.run(
                function,
                workers,
                workers,
                *arguments,
                mortal=mortal,
                TEST_NCCL_FOLDER=folder,
                **more,
            )


class Rounds(GroupTest):
    def test_two_nodes_have_the_average_of_all_trainers(self) -> None:
        for mode in ("deterministic", "fast"):
            outcomes = self.run_node(one_round, 5, mode)
            for step in range(3):
                expected = average(step, tuple(range(5)))
                for results, *_ in outcomes:
                    self.assert_close(expected, results[step])
                self.assert_same_bits([results[step] for results, *_ in outcomes])
            for rank, (_, trainers, contributors, pushed, told) in enumerate(outcomes):
                self.assertEqual((5, ("w0", "w2")), (trainers, contributors))
                self.assertEqual([], told, "results came from the aggregator")
                self.assertEqual(rank in (0, FIRST_NODE), pushed > 0)

    def test_deterministic_sums_have_the_bits_of_their_plan(self) -> None:
        outcomes = self.run_node(wrapped, 5, "deterministic")
        mine = [[each.numpy() for each in local] for local, _, _ in outcomes]
        expected = []
        for first, second, *others in zip(*mine, strict=True):
            # Within a node in the order of the ids, then the nodes, and one division.
            nodes = (first + second, (others[0] + others[1]) + others[2])
            expected.append(torch.from_numpy((nodes[0] + nodes[1]) / np.float32(5)))
        self.assert_same_bits([expected, *(got for _, got, _ in outcomes)])
        for _, _, mean in outcomes:
            self.assertTrue(torch.equal(outcomes[0][2], mean))

    def test_a_gradient_that_some_ranks_lack_counts_for_the_whole_node(self) -> None:
        for got, micro_batches in self.run_node(uneven, 3):
            a, b, c = got
            self.assert_close([torch.full((1, 3), 2.0)], [a], 1e-6)  # (1 + 2 + 3) / 3
            self.assert_close([torch.full((1, 3), 4 / 3)], [b], 1e-6)  # (1 + 0 + 3) / 3
            self.assertIsNone(c)
            self.assertEqual(3, micro_batches)

    def test_a_weighted_average_weighs_each_rank(self) -> None:
        # Ranks 0 to 4 have 1, 2, 0, 4 and 5 samples.
        weights = np.array([1, 2, 0, 4, 5])
        mean = float((weights * 0.1 * (np.arange(5) + 1)).sum() / weights.sum())
        for got, samples, tokens in self.run_node(weighted, 5, False):
            self.assert_close([torch.full((1, 3), mean)], [got], 1e-6)
            self.assertEqual((12, None), (samples, tokens))
        # On one node only rank 1 has any.
        for got, samples, tokens in self.run_node(weighted, 3, True):
            self.assert_close([torch.full((1, 3), 0.2)], [got], 1e-6)
            self.assertEqual((2, None), (samples, tokens))

    def test_a_rank_that_is_out_of_data_leaves_the_group(self) -> None:
        outcomes = self.run_node(leaving, 3)
        self.assertEqual([None, (2, ("w1",)), (2, ("w1",))], outcomes)


class Faults(GroupTest):
    def test_fault_w5_a_failed_backward_is_not_counted(self) -> None:
        for who in (0, 1):
            others = tuple(rank for rank in range(3) if rank != who)
            each = tuple(f"w{rank}" for rank in others)
            for got, contributors, trainers, later in self.run_node(failing, 3, who):
                self.assert_close(average(0, others), got)
                self.assertEqual((each, 2, 3), (contributors, trainers, later))

    def test_fault_a13_where_a_rank_is_lost_in_the_local_phase_each_contributes(self) -> None:
        for who, when in ((0, "before"), (0, "between"), (2, "before"), (2, "between")):
            with self.subTest(f"{who} {when}"):
                left = tuple(rank for rank in range(3) if rank != who)
                outcomes = self.run_node(killed, 3, who, when, mortal=(who,), BASIN_MIN_WORKERS="1")
                for rank in left:
                    got, contributors, later, leaders = outcomes[rank]
                    self.assertEqual(tuple(f"w{each}" for each in left), contributors)
                    self.assert_close(average(1, left), got)
                    self.assert_close(average(2, left), later)
                    self.assertEqual((f"w{left[0]}",), leaders, "the group has formed again")

    def test_fault_a13_a_leader_that_is_lost_with_all_gradients_costs_no_round(self) -> None:
        outcomes = self.run_node(killed, 3, 0, "after", mortal=(0,), BASIN_MIN_WORKERS="1")
        for got, contributors, later, leaders in outcomes[1:]:
            self.assertEqual(("w1", "w2"), contributors)
            self.assert_close(average(1, (1, 2)), got)
            self.assert_close(average(2, (1, 2)), later)
            self.assertEqual(("w1",), leaders)

    def test_fault_a13_a_leader_that_is_lost_costs_the_gradients_of_its_node(self) -> None:
        outcomes = self.run_node(killed, 5, 0, "after", mortal=(0,), BASIN_MIN_WORKERS="1")
        for got, contributors, later, leaders in outcomes[1:]:
            self.assertEqual(("w2",), contributors)
            self.assert_close(average(1, (2, 3, 4)), got)
            self.assert_close(average(2, (1, 2, 3, 4)), later)
            self.assertEqual(("w1", "w2"), leaders)

    def test_a_rank_without_memory_for_results_gets_them_from_the_aggregator(self) -> None:
        for who in (0, 2):
            outcomes = self.run_node(without_memory, 3, who)
            for rank, (rounds, told) in enumerate(outcomes):
                for step, (got, trainers, shared) in enumerate(rounds):
                    self.assert_close(average(step), got)
                    self.assertEqual(3, trainers)
                    # Without memory, it has nothing to share.
                    self.assertEqual(0 if (step, rank) == (1, who) else 4, shared)
                self.assertEqual(int(rank == who), len(told))

    def check_without_memory_for_sums(
        self,
        workers: int,
        who: int,
        bucket: int,
        contributors: tuple[str, ...],
        fails: bool = False,
    ) -> None:
        """`contributors`: those of the rounds for which the rank lacks memory."""
        everybody = tuple(range(workers))
        counted = tuple(rank for rank in everybody if not fails or rank != who)
        leaders = ("w0", "w2") if workers == 5 else ("w0",)
        outcomes = self.run_node(without_memory_for_sums, workers, who, bucket, fails)
        for rank, (rounds, told) in enumerate(outcomes):
            for step, (got, *info) in enumerate(rounds):
                if step in (1, 2):
                    self.assert_close(average(step, counted), got)
                    self.assertEqual([len(counted), contributors], info)
                else:
                    self.assert_close(average(step, everybody), got)
                    self.assertEqual([workers, leaders], info)
            self.assertEqual(int(rank == who), len(told), told)

    def test_where_a_rank_has_no_memory_for_sums_each_rank_contributes_that_step(self) -> None:
        for who, bucket in ((0, 0), (0, 2), (2, 0), (1, 3)):
            with self.subTest(f"rank {who}, bucket {bucket}"):
                self.check_without_memory_for_sums(3, who, bucket, ("w0", "w1", "w2"))

    def test_where_a_rank_has_no_memory_for_sums_other_nodes_are_not_concerned(self) -> None:
        self.check_without_memory_for_sums(5, 3, 1, ("w0", "w2", "w3", "w4"))

    def test_fault_w5_a_failed_backward_without_memory_for_zeros_is_not_counted(self) -> None:
        for who in (0, 1):
            with self.subTest(f"rank {who}"):
                others = tuple(f"w{rank}" for rank in range(3) if rank != who)
                self.check_without_memory_for_sums(3, who, 0, others, fails=True)

    def test_memory_of_a_broadcast_that_may_be_going_on_is_kept(self) -> None:
        elements = sum(parameter.numel() for parameter in model().parameters())
        for got, text, kept in self.run_node(broken_broadcast, 2):
            self.assert_close(average(2, (0, 1)), got)
            self.assertIn("may still use memory", text)
            # Until the next turn, after which the device has ended, or forever.
            self.assertEqual([elements, elements, 0, elements], kept)


class Refusals(GroupTest):
    def test_ranks_that_disagree_get_an_error_that_names_the_variable(self) -> None:
        for text in self.run_node(disagreeing, 3):
            self.assertIn("disagree on BASIN_LOCAL_GROUP: deterministic (local ranks 0, 2)", text)

    def test_without_nccl_auto_warns_once_and_each_rank_contributes(self) -> None:
        for got, told, contributors in self.run_node(without_nccl, 3, "auto"):
            self.assert_close(average(), got)
            self.assertEqual(1, len(told))
            self.assertIn("BASIN_LOCAL_GROUP is auto; each rank contributes for itself", told[0])
            self.assertEqual(("w0", "w1", "w2"), contributors)

    def test_where_one_rank_lacks_nccl_auto_warns_and_each_rank_contributes(self) -> None:
        for code in ("DeadlineExceeded", "Unavailable"):
            outcomes = self.run_node(one_without_nccl, 3, "auto", code)
            for rank, (first, second, told, contributors) in enumerate(outcomes):
                self.assert_close(average(), first)
                self.assert_close(average(1), second)
                self.assertEqual(("w0", "w1", "w2"), contributors)
                # The library has the warning of the one that has no NCCL.
                self.assertEqual(int(rank < 2), len(told))
                for line in told:
                    self.assertRegex(line, r"rank 2 has not come.*BASIN_LOCAL_GROUP is auto")

    def test_ranks_that_disagree_get_an_error_with_auto_too(self) -> None:
        for text in self.run_node(one_without_nccl, 3, "auto", "InvalidArgument")[:2]:
            self.assertIn("local rank 2", text)

    def test_without_nccl_a_required_group_is_refused(self) -> None:
        for text in self.run_node(without_nccl, 3, "fast"):
            self.assertRegex(text, "/nonexistent/libnccl.so.2.*BASIN_LOCAL_GROUP is fast; off")

    def test_parameters_on_the_cpu_are_refused_where_a_group_is_required(self) -> None:
        for text in self.run_node(on_cpu, 2):
            self.assertRegex(text, "one CUDA device, and BASIN_LOCAL_GROUP is deterministic. Set")


if __name__ == "__main__":
    main()
