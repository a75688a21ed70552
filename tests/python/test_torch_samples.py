# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""Samplers whose epoch all workers share: each sample is used once, whichever workers come and go.

Usage: test_torch_samples.py BASIND LIBBASIN
"""

import contextlib
import multiprocessing
import os
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from jobs import require

require("numpy", "torch")
import torch  # noqa: E402 - ends above when there is none
from torch.utils.data import DataLoader, TensorDataset  # noqa: E402
from torch_jobs import WORKERS, TorchTest, main, model, session, sgd  # noqa: E402

SAMPLES = 50  # Which no batch divides.
BATCH = 4


def data(samples: int = SAMPLES) -> TensorDataset:
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(samples, 5, dtype=torch.float64, generator=generator)
    return TensorDataset(x, torch.arange(samples))


class Trained:
    """A worker's part of a training.

    used: by epoch, what this worker has contributed to committed rounds, and in which
    """

    def __init__(self, bt: Any, net: Any, optimizer: Any) -> None:
        self.bt, self.net, self.optimizer = bt, net, optimizer
        self.me = bt.context.current().client.worker_id
        self.used: list[tuple[int, int, list[int]]] = []

    def step(self, epoch: int, batch: Any, mean: bool = True) -> None:
        x, index = batch
        self.optimizer.zero_grad()
        loss_of(self.net, x).backward()
        self.optimizer.step()
        self.count(epoch, index.tolist())

    def count(self, epoch: int, indices: list[int]) -> None:
        info = self.optimizer.last_round()
        if self.me in info.contributors:
            self.used.append((epoch, info.round, indices))

    def result(self) -> Any:
        parameters = [p.detach().clone() for p in self.net.parameters()]
        return parameters, self.used


def loss_of(net: Any, x: torch.Tensor) -> torch.Tensor:
    loss: torch.Tensor = net(x).square().mean(1).mean()
    return loss


@contextlib.contextmanager
def trained(ledger: str, **options: Any) -> Iterator[Trained]:
    from file_ledger import file_ledger

    # A loader of this process may start its own.
    multiprocessing.current_process()._config["daemon"] = False  # type: ignore[attr-defined]
    with file_ledger(Path(ledger)), session() as bt:
        net = model()
        bt.broadcast_parameters(net)
        yield Trained(bt, net, sgd(net, bt, **options))


def loader_of(kind: str, sampler_of: Any, optimizer: Any, processes: int, **more: Any) -> Any:
    """A sampler and its loader."""
    bt = sampler_of
    options: dict[str, Any] = {"num_workers": processes, **more}
    if kind == "batches":
        sampler = bt.ElasticBatchSampler(data(), optimizer, BATCH, seed=3)
        return sampler, DataLoader(data(), batch_sampler=sampler, **options)
    sampler = bt.ElasticSampler(data(), optimizer, seed=3)
    return sampler, DataLoader(data(), batch_size=BATCH, sampler=sampler, **options)


# ---- workers


def epochs(rank: int, ledger: str, kind: str, processes: int, persistent: bool) -> Any:
    with trained(ledger) as training:
        sampler, loader = loader_of(
            kind,
            training.bt,
            training.optimizer,
            processes,
            persistent_workers=persistent,
        )
        reports = []
        for epoch in range(3):
            sampler.set_epoch(epoch)
            for batch in loader:
                training.step(epoch, batch)
            reports.append(sampler.epoch_report())
        return *training.result(), reports


# ---- tests


class Samples(TorchTest):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.ledger = os.path.join(folder.name, "ledger")

    def assert_each_once(
        self, used: Sequence[Any], epochs: list[int], samples: int = SAMPLES
    ) -> None:
        seen = Counter((epoch, i) for each in used for epoch, _, indices in each for i in indices)
        self.assertEqual(Counter((epoch, i) for epoch in epochs for i in range(samples)), seen)

    def assert_as_one_process(self, parameters: list[Any], used: Sequence[Any]) -> None:
        """The parameters are those of one process with the same samples in each step."""
        by_round: dict[int, list[int]] = {}
        for each in used:
            for _, number, indices in each:
                by_round.setdefault(number, []).extend(indices)
        net = model()
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        x, _ = data().tensors
        for number in sorted(by_round):
            optimizer.zero_grad()
            loss_of(net, x[by_round[number]]).backward()
            optimizer.step()
        self.assert_close(list(net.parameters()), parameters, 1e-12)

    def test_epochs(self) -> None:
        for kind, processes, persistent in (
            ("batches", 0, False),
            ("samples", 0, False),
            ("batches", 2, False),
            ("samples", 2, True),
        ):
            with self.subTest(kind=kind, processes=processes):
                ledger = f"{self.ledger}-{kind}-{processes}"
                results = self.run_job(epochs, ledger, kind, processes, persistent)
                parameters, used, reports = zip(*results)
                self.assert_same_bits(list(parameters))
                self.assert_each_once(used, [0, 1, 2])
                self.assert_as_one_process(parameters[0], used)
                for epoch in range(3):
                    of_epoch = [each[epoch] for each in reports]
                    self.assertEqual([SAMPLES] * WORKERS, [each.committed for each in of_epoch])
                    self.assertEqual(SAMPLES, sum(each.mine for each in of_epoch))
                    self.assertEqual(1, len({each.rounds for each in of_epoch}))


if __name__ == "__main__":
    main()
