# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""Trains with MXNet Gluon: as one worker of two, or with ALONE=1 in one process with their batch.
It writes what each case got to results-RANK.npz; there is no torch in its environment."""

import os
from typing import Any

import mxnet as mx
import numpy as np
from mxnet import autograd, gluon

ALONE = "ALONE" in os.environ
WORKERS = 2
STEPS = 5
LOSS = gluon.loss.SoftmaxCrossEntropyLoss()


class Net(gluon.nn.HybridBlock):
    """The sizes of the inputs are not given, so that the first forward initializes all."""

    def __init__(self, prefix: str) -> None:
        super().__init__(prefix=prefix)
        with self.name_scope():
            self.first = gluon.nn.Dense(8, activation="tanh")
            self.middle = gluon.nn.Dense(8, activation="tanh")
            self.other = gluon.nn.Dense(8, activation="tanh")
            self.last = gluon.nn.Dense(3)

    def hybrid_forward(self, F: Any, x: Any, skipped: str = "") -> Any:
        x = self.first(x)
        for name, layer in (("middle", self.middle), ("other", self.other)):
            if name != skipped:
                x = x + layer(x)
        return self.last(x)


def make(client: Any, prefix: str, hybrid: bool = False) -> Any:
    """A net with the parameters of rank 0, which are those of one process."""
    rank = 0 if client is None else client.rank
    mx.random.seed(7 + rank)
    np.random.seed(7 + rank)
    net = Net(prefix)
    net.initialize(mx.init.Xavier())
    net.cast("float64")
    if hybrid:
        net.hybridize()
    if client is not None:
        import basin.mxnet

        basin.mxnet.broadcast_parameters(client, net.collect_params(), name=prefix)
    return net


def halves(client: Any, *arrays: Any) -> list[list[Any]]:
    """The batches of this process: that of each worker, as two of them in one process."""
    ranks = range(WORKERS) if client is None else [client.rank]
    parts = ([each[rank::WORKERS] for each in arrays] for rank in ranks)
    return [[mx.nd.array(each, dtype=each.dtype) for each in part] for part in parts]


def batch(step: int, rows: int = 8) -> tuple[Any, Any]:
    rng = np.random.default_rng(step)
    return rng.normal(size=(rows, 5)), rng.integers(3, size=rows).astype(np.float64)


def trainer_of(client: Any, net: Any, op: str, name: str, **options: Any) -> Any:
    numbers = {"learning_rate": 0.1, "momentum": 0.9}
    if client is None:
        return gluon.Trainer(net.collect_params(), "sgd", numbers, kvstore=None)
    import basin
    import basin.mxnet

    return basin.mxnet.DistributedTrainer(
        client, net.collect_params(), "sgd", numbers, op=getattr(basin, op), name=name, **options
    )


def values(net: Any) -> dict[str, Any]:
    return {key: each.data().asnumpy() for key, each in net.collect_params().items()}


def clip(net: Any, most: float) -> None:
    """As gluon.utils.clip_global_norm(), which takes float32 only."""
    gradients = [each.grad() for each in net.collect_params().values()]
    norm = sum(float((each**2).sum().asscalar()) for each in gradients) ** 0.5
    assert norm > most, norm
    for each in gradients:
        each *= most / norm


def add_up(net: Any) -> None:
    """Gradients of several backwards are added, so that one process can have the sum of both."""
    for each in net.collect_params().values():
        each.grad_req = "add"


def train(client: Any, case: str, op: str = "Sum", *, clips: bool = False, hybrid: bool = False):
    """A batch of 8, of which each worker has 4."""
    net = make(client, f"{case}_", hybrid)
    trainer = None
    for step in range(STEPS):
        with autograd.record():
            losses = [LOSS(net(x), y).sum() for x, y in halves(client, *batch(step))]
            total = sum(losses[1:], losses[0])
        total.backward()
        if trainer is None:  # The parameters of one process have values only now.
            trainer = trainer_of(client, net, op, case)
        size = 8 if op == "Sum" or client is None else 4
        if clips:
            trainer.allreduce_grads()
            scale = 1.0 if op == "Sum" or client is None else 0.5
            clip(net, 2.0 * scale)
            trainer.update(size)
        else:
            trainer.step(size)
    return values(net)


def accumulation(client: Any) -> Any:
    """Two micro-batches of 8 make a step."""
    net = make(client, "accumulation_")
    add_up(net)
    trainer = None
    for step in range(STEPS):
        for k in range(2):
            for x, y in halves(client, *batch(2 * step + k)):
                with autograd.record():
                    loss = LOSS(net(x), y)
                loss.backward()
        trainer = trainer or trainer_of(client, net, "Sum", "accumulation")
        trainer.step(16)
        net.collect_params().zero_grad()
    return values(net)


def layers(client: Any) -> Any:
    """The batches of the workers skip different layers, and in each third step one is skipped by
    all, and keeps its values and its momentum then."""
    net = make(client, "layers_")
    net(mx.nd.zeros((1, 5), dtype="float64"))
    add_up(net)
    trainer = trainer_of(client, net, "Sum", "layers")
    for step in range(STEPS + 1):
        for rank, (x, y) in enumerate(halves(client, *batch(step))):
            place = rank if client is None else client.rank
            skipped = "middle" if step % 3 == 2 else ("middle", "other")[place]
            with autograd.record():
                loss = LOSS(net(x, skipped), y)
            loss.backward()
        trainer.step(8, ignore_stale_grad=True)
        net.collect_params().zero_grad()
    return values(net)


def weighted(client: Any) -> Any:
    """Workers have different numbers of rows: 6 and 2 of 8."""
    net = make(client, "weighted_")
    trainer = None
    for step in range(STEPS):
        x, y = batch(step)
        mine = slice(0, 8) if client is None else (slice(0, 6), slice(6, 8))[client.rank]
        with autograd.record():
            loss = LOSS(net(mx.nd.array(x[mine], dtype="float64")), mx.nd.array(y[mine]))
        loss.backward()
        options = {"weight_by": "samples", "contributes": "sum"}
        trainer = trainer or trainer_of(client, net, "WeightedAverage", "weighted", **options)
        if client is None:
            trainer.step(8)
        else:
            trainer.contribute(samples=len(y[mine]))
            trainer.step(1)
            assert trainer.last_round().spec.counts.samples == 8, trainer.last_round()
    return values(net)


def sparse(client: Any) -> Any:
    """Rows of an embedding, of which both workers have some, and some twice."""
    mx.random.seed(7 if client is None else 7 + client.rank)
    net = gluon.nn.Sequential(prefix="sparse_")
    with net.name_scope():
        net.add(gluon.nn.Embedding(20, 4, sparse_grad=True), gluon.nn.Dense(3))
    net.initialize(mx.init.Xavier())
    if client is not None:
        import basin.mxnet

        basin.mxnet.broadcast_parameters(client, net.collect_params(), name="sparse")
    trainer = None
    for step in range(STEPS):
        words = np.random.default_rng(step).integers(12, size=(8, 4)).astype(np.float32)
        labels = np.arange(8, dtype=np.float32) % 3
        with autograd.record():
            losses = [LOSS(net(x), y).sum() for x, y in halves(client, words, labels)]
            total = sum(losses[1:], losses[0])
        total.backward()
        trainer = trainer or trainer_of(client, net, "Sum", "sparse")
        trainer.step(8)
    return values(net)


def two_losses(client: Any) -> Any:
    """As in the pretraining of BERT: the loss of the next sentence is divided by the sentences, and
    that of the masked words by the masks, of which workers have different numbers. Gradients are
    clipped between reduction and update, and each worker takes two micro-batches in a step."""
    net = make(client, "bert_")
    add_up(net)
    trainer = None
    for step in range(STEPS):
        rng = np.random.default_rng(50 + step)
        micro = []
        for k in range(2):
            x, y = batch(100 + 2 * step + k)
            masks = rng.integers(0, 4, size=8).astype(np.float64)
            masks[0] = 1
            micro += halves(client, x, y, masks)
        counts = np.array(
            [sum(len(y) for _, y, _ in micro), sum(float(m.sum().asscalar()) for *_, m in micro)]
        )
        if client is not None:
            import basin

            counts = client.allreduce(counts, "counts", op=basin.Sum)
        sentences, masked = counts
        for x, y, masks in micro:
            with autograd.record():
                each = LOSS(net(x), y)
                loss = each.sum() / sentences + (each * masks).sum() / masked
            loss.backward()
        trainer = trainer or trainer_of(client, net, "Sum", "bert")
        trainer.allreduce_grads()
        clip(net, 0.5)
        trainer.update(1)
        net.collect_params().zero_grad()
    return values(net)


def cases(client: Any) -> dict[str, Any]:
    return {
        "sum": train(client, "sum"),
        "average": train(client, "average", "Average"),
        "hybrid": train(client, "hybrid", hybrid=True),
        "clipping": train(client, "clipping", clips=True),
        "clipping an average": train(client, "clippingaverage", "Average", clips=True),
        "accumulation": accumulation(client),
        "layers": layers(client),
        "weighted": weighted(client),
        "sparse": sparse(client),
        "two losses": two_losses(client),
    }


def save(rank: int, results: dict[str, dict[str, Any]]) -> None:
    np.savez(
        f"results-{rank}.npz",
        **{f"{case}/{key}": each for case, got in results.items() for key, each in got.items()},
    )


def main() -> None:
    if ALONE:
        save(0, cases(None))
        return
    import basin

    with basin.connect() as client:
        save(client.rank, cases(client))


if __name__ == "__main__":
    main()
