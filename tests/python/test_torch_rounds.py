# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""When gradients are sent: during the backward, in several lanes, while others leave and join.

Usage: test_torch_rounds.py BASIND LIBBASIN
"""

import http.client
import os
import re
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from jobs import PATIENCE, Aggregator, require

require("numpy", "torch")
import torch  # noqa: E402 - ends above when there is none
from torch import nn  # noqa: E402
from torch_jobs import (  # noqa: E402
    WORKERS,
    TorchTest,
    average,
    batch,
    gradients,
    loss_of,
    main,
    model,
    session,
    sgd,
    trainer,
)

# ---- workers


def wide() -> Any:
    """A model whose second layer fills a batch of gradients."""
    torch.manual_seed(7)
    return torch.nn.Sequential(torch.nn.Linear(5, 8), torch.nn.Linear(8, 8192)).double()


def during_backward(rank: int) -> Any:
    """What has been pushed when the backward reaches the first layer."""
    with session() as bt:
        net = wide()
        optimizer = sgd(net, bt)
        pushed: list[int] = []
        net[0].weight.register_hook(lambda _: pushed.append(optimizer.totals().bytes_pushed))
        loss_of(net, rank).backward()
        return pushed, optimizer.totals().bytes_pushed


def two_lanes(rank: int) -> Any:
    """One backward through two models, then one through the second alone."""
    with session() as bt:
        first, second = model(), bt.DistributedDataParallel(nn.Linear(3, 2).double())
        of_first = sgd(first, bt)
        of_second = torch.optim.SGD(second.parameters(), lr=0.1)
        second(first(batch(rank))).square().mean().backward()
        both = gradients(first) + gradients(second)
        for optimizer in (of_first, of_second):
            optimizer.step()
            optimizer.zero_grad()
        second(batch(rank)[:, :3]).sum().backward()
        rounds = [of_first.last_round().round, second.last_round().round]
        return both, gradients(first), gradients(second), rounds


def other_threads(rank: int) -> Any:
    """The others begin after a thread of rank 0 has run while its backward waits."""
    with session() as bt:
        net = model()
        sgd(net, bt)
        if rank > 0:
            bt.barrier("thread")
            loss_of(net, rank).backward()
            return gradients(net)
        started = threading.Event()

        def run() -> None:
            started.wait()
            bt.barrier("thread")

        thread = threading.Thread(target=run)
        thread.start()
        net[0].weight.register_hook(lambda _: started.set())
        loss_of(net, rank).backward()
        thread.join()
        return gradients(net)


def kept_layers(rank: int, step: int, p: float) -> list[bool]:
    generator = torch.Generator().manual_seed(100 * rank + step)
    return [bool(draw >= p) for draw in torch.rand(12, generator=generator)]


def drops_layers(rank: int, p: float) -> Any:
    """Each worker drops different layers; their biases get a gradient of rank + 1."""
    with session() as bt:
        linear = [nn.Linear(16, 16).double() for _ in range(12)]
        layers = nn.ModuleList(linear)
        optimizer = sgd(layers, bt)
        seen = []
        for step in range(4):
            optimizer.zero_grad()
            before = optimizer.totals().bytes_pushed
            kept = kept_layers(rank, step, p)
            x = torch.zeros(1, 16, dtype=torch.float64)
            outputs = [layer(x) for layer, keeps in zip(layers, kept) if keeps]
            ((rank + 1) * sum(y.sum() for y in outputs)).backward()
            biases = [None if f.bias.grad is None else float(f.bias.grad[0]) for f in linear]
            seen.append((optimizer.totals().bytes_pushed - before, biases))
            optimizer.step()
        return seen


def own_order(rank: int, count: int) -> list[int]:
    order: list[int] = torch.randperm(count, generator=torch.Generator().manual_seed(rank)).tolist()
    return order


def made_in_another_order(rank: int) -> Any:
    """Layers of one shape, created and used in a different order on each worker; the first worker
    leaves out layer 3, and the second one layer 5."""
    with session() as bt:
        made = {f"{i}": nn.Linear(4, 4) for i in own_order(rank, 8)}
        layers = nn.ModuleDict(made)
        optimizer = sgd(layers, bt)
        x = torch.zeros(1, 4)
        used = [i for i in own_order(rank + WORKERS, 8) if (rank, i) not in ((0, 3), (1, 5))]
        sum((rank + 1) * 10**i * layers[f"{i}"](x).sum() for i in used).backward()
        biases = [made[f"{i}"].bias.grad for i in range(8)]
        return [None if b is None else b.tolist() for b in biases], optimizer.last_round().divisor


# Each is larger than the largest batch, so that it is sent when it is ready.
LATE_LAYERS, LATE_SIZE = 8, 704
LATE_BYTES = 8 * LATE_SIZE * LATE_SIZE


def late_layer(rank: int, metrics: str) -> Any:
    """Each worker reaches its layers in a different order. On the first one the gradient of layer 3
    is computed only after the aggregator has sent the results of all other layers to all
    workers."""
    expected = WORKERS * (LATE_LAYERS - 1) * LATE_BYTES

    def sent() -> float:
        connection = http.client.HTTPConnection(metrics)
        connection.request("GET", "/metrics")
        text = connection.getresponse().read().decode()
        connection.close()
        return sum(
            float(value)
            for value in re.findall(r"^basin_result_bytes_total\S* (\S+)$", text, re.MULTILINE)
        )

    with session() as bt:
        torch.manual_seed(1)
        names = own_order(rank, LATE_LAYERS)
        if rank == 0:  # The backward reaches last what the forward used first.
            names = [3, *(name for name in names if name != 3)]
        weights = [
            nn.Parameter(torch.zeros(LATE_SIZE, LATE_SIZE).double()) for _ in range(LATE_LAYERS)
        ]
        net = nn.ParameterList(weights)
        sgd(net, bt)
        before, seen = sent(), []

        def late(_: torch.Tensor) -> None:
            end = time.monotonic() + PATIENCE / 2
            bytes_sent = 0.0
            while bytes_sent < expected and time.monotonic() < end:
                bytes_sent = sent() - before
            seen.append(bytes_sent)

        if rank == 0:
            net[3].register_hook(late)
        torch.stack([(rank + i) * net[i].sum() for i in names]).sum().backward()
        return seen, expected, [float(p.grad[0, 0]) for p in weights if p.grad is not None]


def someone_joins(rank: int, pipe: str) -> Any:
    """Two workers until the third one has joined, then one backward of all three."""
    if rank == 2:
        with open(pipe, "rb") as opened:
            opened.read()  # Returns when rank 0 has completed a round.
    with session(min_workers=2, start_workers=2, own_state=rank == 2) as bt:
        net = model()
        optimizer = sgd(net, bt)
        before = 0
        while bt.size() < WORKERS:
            loss_of(net, rank, 0).backward()
            before += 1
            if rank == 0 and before == 1:
                open(pipe, "wb").close()
        loss_of(net, rank, 1).backward()
        return before, gradients(net), optimizer.last_round().contributors


def compiled_autograd(rank: int) -> Any:
    from torch._dynamo import compiled_autograd as compiled

    with session() as bt:
        net = model()
        sgd(net, bt)
        with compiled._enable(torch.compile(backend="eager")):
            loss_of(net, rank).backward()
        return gradients(net)


def gradients_of_their_own(rank: int) -> Any:
    """Autograd may give several parameters one gradient, or one that is smaller than it looks."""
    with session() as bt:
        net = nn.ParameterList([nn.Parameter(torch.ones(3, dtype=torch.bfloat16)) for _ in "ab"])
        sgd(net, bt)
        net[0].sum().add(net[1].sum()).backward()
        first, second = (parameter.grad for parameter in net)
        assert first is not None and second is not None
        own = [each.untyped_storage().nbytes() for each in (first, second)]
        first.zero_()
        facts = (second.tolist(), second.dtype, second.requires_grad, second.grad_fn)
        return own, facts


def frozen_later(rank: int) -> Any:
    with trainer() as (_, net, optimizer):
        loss_of(net, rank).backward()
        optimizer.step()
        optimizer.zero_grad()
        net[2].requires_grad_(False)
        before = net[2].weight.detach().clone()
        loss_of(net, rank, 1).backward()
        result = gradients(net)
        optimizer.step()
        return result, torch.equal(before, net[2].weight)


# ---- checks


class RoundsTest(TorchTest):
    def test_gradients_are_pushed_while_the_backward_goes_on(self) -> None:
        sizes = [8 * p.numel() for p in wide().parameters()]
        for during, at_end in self.run_job(during_backward):
            # The second layer's weight; a hook of the tensor runs before it is accumulated.
            self.assertEqual(1, len(during))
            self.assertGreaterEqual(during[0], sizes[2])
            self.assertLess(during[0], sum(sizes))
            self.assertEqual(sum(sizes), at_end)

    def test_criterion_3_4_gradients_are_matched_by_name_not_by_place(self) -> None:
        for biases, divisor in self.run_job(made_in_another_order):
            self.assertEqual(WORKERS, divisor)
            for i, bias in enumerate(biases):
                ranks = {0, 1, 2} - {{3: 0, 5: 1}.get(i, -1)}
                mean = torch.tensor(10.0**i * sum(r + 1 for r in ranks)) / WORKERS
                self.assertEqual([float(mean)] * 4, bias)

    def test_criterion_3_6_dropped_layers_are_not_sent_and_not_mixed_up(self) -> None:
        of_layer = 8 * (16 * 16 + 16)
        for p in (0.0, 0.2, 0.5):
            with self.subTest(p=p):
                sent = 0
                for rank, seen in enumerate(self.run_job(drops_layers, p)):
                    for step, (pushed, biases) in enumerate(seen):
                        kept = [kept_layers(other, step, p) for other in range(WORKERS)]
                        self.assertEqual(of_layer * sum(kept[rank]), pushed)
                        sent += pushed
                        for layer, bias in enumerate(biases):
                            total = sum(i + 1 for i in range(WORKERS) if kept[i][layer])
                            self.assertEqual(total / WORKERS if total else None, bias)
                everything = WORKERS * 4 * 12 * of_layer
                self.assertAlmostEqual(1 - p, sent / everything, delta=0.1)

    def test_criterion_3_6_a_late_layer_delays_only_itself(self) -> None:
        aggregator = Aggregator(Path(sys.argv[1]), http="127.0.0.1:0")
        try:
            outcomes = self.jobs.run(
                late_layer, WORKERS, aggregator.metrics, BASIN_ADDRESS=aggregator.address
            )
        finally:
            aggregator.close()
        [sent] = outcomes[0][0]
        self.assertEqual(outcomes[0][1], sent, "all but layer 3, before any commit")
        for _, _, gradient in outcomes:
            self.assertEqual([float(i + 1) for i in range(LATE_LAYERS)], gradient)

    def test_a_backward_through_two_models_commits_both(self) -> None:
        outcomes = self.run_job(two_lanes)
        for both, none, _, rounds in outcomes:
            self.assertEqual(6, len([each for each in both if each is not None]))
            self.assertEqual([None] * 4, none)
            self.assertEqual([1, 2], rounds)
        self.assert_same_bits([both for both, *_ in outcomes])
        self.assert_same_bits([second for _, _, second, _ in outcomes])

    def test_other_threads_run_while_a_backward_waits(self) -> None:
        for result in self.run_job(other_threads):
            self.assert_close(average(), result)

    def test_a_result_of_two_workers_and_one_of_three_are_added(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            pipe = folder + "/pipe"
            os.mkfifo(pipe)
            outcomes = self.run_job(someone_joins, pipe)
        before = outcomes[0][0]
        self.assertGreaterEqual(before, 1)
        self.assertEqual([before, before, 0], [count for count, *_ in outcomes])
        self.assertEqual([("w0", "w1", "w2")] * WORKERS, [who for *_, who in outcomes])
        alone, together = average(0, (0, 1)), average(1)
        self.assert_close(together, outcomes[2][1])
        for _, result, _ in outcomes[:2]:
            expected = [before * a + b for a, b in zip(alone, together)]
            self.assert_close(expected, result, 1e-12 * before)

    def test_compiled_autograd(self) -> None:
        for result in self.run_job(compiled_autograd):
            self.assert_close(average(), result, 1e-12)

    def test_each_gradient_has_its_own_memory(self) -> None:
        for own, facts in self.run_job(gradients_of_their_own):
            self.assertEqual([6, 6], own)
            self.assertEqual(([1.0] * 3, torch.bfloat16, False, None), facts)

    def test_parameters_that_are_frozen_later(self) -> None:
        for result, same in self.run_job(frozen_later):
            self.assertEqual([False, False, True, True], [each is None for each in result])
            self.assertTrue(same)


if __name__ == "__main__":
    main()
