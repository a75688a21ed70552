# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""A script of Horovod for MXNet, with each call of horovod.mxnet: it has nothing of Basin but what
it checks. Runs with `basin-run --horovod`; with ALONE=1 in one process, it only trains. It writes
what it has trained to results-RANK.npz."""

import os
from typing import Any

import mxnet as mx
import numpy as np
from mxnet import autograd, gluon

ALONE = "ALONE" in os.environ
LOSS = gluon.loss.SoftmaxCrossEntropyLoss()
if not ALONE:
    import horovod.mxnet as hvd


def train(case: str, **options: Any) -> dict[str, Any]:
    rank, size = (0, 1) if ALONE else (hvd.rank(), hvd.size())
    mx.random.seed(7 + rank)
    net = gluon.nn.HybridSequential(prefix=f"{case}_")
    with net.name_scope():
        net.add(gluon.nn.Dense(8, activation="tanh"), gluon.nn.Dense(3))
    net.initialize(mx.init.Xavier())
    numbers = {"learning_rate": 0.1, "momentum": 0.9}
    if ALONE:
        net(mx.nd.zeros((1, 5)))
        trainer = gluon.Trainer(net.collect_params(), "sgd", numbers, kvstore=None)
    else:
        hvd.broadcast_parameters(net.collect_params(), root_rank=0, prefix=case)
        trainer = hvd.DistributedTrainer(
            net.collect_params(), "sgd", numbers, prefix=case, **options
        )
    for step in range(5):
        rng = np.random.default_rng(step)
        x, y = rng.normal(size=(8, 5)), rng.integers(3, size=8)
        with autograd.record():
            loss = LOSS(net(mx.nd.array(x[rank::size])), mx.nd.array(y[rank::size]))
        loss.backward()
        if case == "clipping":
            # The gradients are sums over the workers, as with Horovod.
            trainer.allreduce_grads()
            gluon.utils.clip_global_norm([p.grad() for p in net.collect_params().values()], 2.0)
            trainer.update(8 // size)
        else:
            trainer.step(8 // size)
    return {key: each.data().asnumpy() for key, each in net.collect_params().items()}


def optimizer() -> dict[str, Any]:
    """DistributedOptimizer in a trainer that reduces nothing itself."""
    rank, size = (0, 1) if ALONE else (hvd.rank(), hvd.size())
    made = mx.optimizer.create("sgd", learning_rate=0.1)
    if not ALONE:
        made = hvd.DistributedOptimizer(made, gradient_predivide_factor=2.0)
    weight = gluon.Parameter("optimizer_weight", shape=(3,))
    weight.initialize(mx.init.One())
    trainer = gluon.Trainer([weight], made, kvstore=None)
    for step in range(3):
        x = np.random.default_rng(step).normal(size=(4, 3))
        with autograd.record():
            loss = (mx.nd.dot(mx.nd.array(x[rank::size]), weight.data()) ** 2).sum()
        loss.backward()
        trainer.step(4 // size)
    return {"optimizer_weight": weight.data().asnumpy()}


def check_calls() -> None:
    rank, size = hvd.rank(), hvd.size()
    assert size == 2 and hvd.local_size() == 2 and hvd.local_rank() == rank
    assert (hvd.cross_rank(), hvd.cross_size(), hvd.is_homogeneous()) == (0, 1, True)
    assert hvd.is_initialized() and not hvd.mpi_enabled() and not hvd.nccl_built()
    mine = mx.nd.array([1.0, -3.0]) * (rank + 1)
    assert hvd.allreduce(mine, name="a").asnumpy().tolist() == [1.5, -4.5]
    assert hvd.allreduce(mine, average=False).asnumpy().tolist() == [3.0, -9.0]
    assert hvd.allreduce(mine, op=hvd.Max).asnumpy().tolist() == [2.0, -3.0]
    assert hvd.allreduce(mine, False, prescale_factor=2.0).asnumpy().tolist() == [6.0, -18.0]
    assert mine.asnumpy().tolist() == [rank + 1.0, -3.0 * (rank + 1)]
    assert hvd.allreduce_(mine) is mine and mine.asnumpy().tolist() == [1.5, -4.5]
    whole = mx.nd.array([3 + 2 * rank, -3 - 2 * rank + rank], dtype="int32")
    made = hvd.allreduce(whole)
    assert made.dtype == np.int32 and made.asnumpy().tolist() == [4, -3], made
    made = hvd.allreduce(whole - rank, postscale_factor=2.0)
    assert made.asnumpy().tolist() == [7, -8], made
    both = [mx.nd.ones((2,)) * rank, mx.nd.array([rank, 7], dtype="uint8")]
    made = hvd.grouped_allreduce(both, average=False)
    assert [each.asnumpy().tolist() for each in made] == [[1, 1], [1, 14]], made
    assert hvd.grouped_allreduce_(both) == both and both[0].asnumpy().tolist() == [0.5, 0.5]
    rows = mx.nd.ones((1 + rank, 2), dtype="float64") * rank
    made = hvd.allgather(rows)
    assert made.dtype == np.float64 and made[:, 0].asnumpy().tolist() == [0, 1, 1], made
    assert [each.shape for each in hvd.grouped_allgather([rows, rows])] == [(3, 2)] * 2
    assert hvd.broadcast(rows[:1], root_rank=1).asnumpy().tolist() == [[1, 1]]
    changed = mx.nd.array([rank], dtype="int64")
    assert hvd.broadcast_(changed, 1) is changed and changed.asscalar() == 1
    sent = mx.nd.arange(4) + 10 * rank
    expected = [[0, 1, 10, 11], [2, 3, 12, 13]][rank]
    assert hvd.alltoall(sent).asnumpy().tolist() == expected
    made, counts = hvd.alltoall(sent, splits=[1, 3])
    assert counts.asnumpy().tolist() == ([1, 1], [3, 3])[rank], counts
    assert made.asnumpy().tolist() == ([0, 10], [1, 2, 3, 11, 12, 13])[rank], made
    made = hvd.reducescatter(mx.nd.arange(3), op=hvd.Sum)
    assert made.asnumpy().tolist() == ([0, 2], [4])[rank], made
    assert len(hvd.grouped_reducescatter([mx.nd.arange(3)])) == 1
    made = hvd.reducescatter(mx.nd.array([1, 2, 4], dtype="int32") + rank)
    assert made.asnumpy().tolist() == ([1, 2], [4])[rank], made
    assert hvd.broadcast_object({"rank": rank}, root_rank=1) == {"rank": 1}
    assert hvd.allgather_object(("rank", rank)) == [("rank", 0), ("rank", 1)]
    half = mx.nd.array([0.1 + rank])
    packed, context = hvd.Compression.fp16.compress(half)
    assert packed.dtype == np.float16
    assert hvd.Compression.fp16.decompress(packed, context).dtype == np.float32
    hvd.barrier()


def check_refusals() -> None:
    def refused(kind: type[Exception], text: str, call: Any) -> None:
        try:
            call()
        except kind as error:
            assert text in str(error), error
            return
        raise AssertionError(f"{kind.__name__} was not raised")

    one = mx.nd.ones((1,))
    refused(NotImplementedError, "Adasum", lambda: hvd.allreduce(one, op=hvd.Adasum))
    refused(NotImplementedError, "timeline", lambda: hvd.start_timeline("x"))
    refused(NotImplementedError, "process_set", lambda: hvd.allreduce(one, process_set=[0]))
    refused(ValueError, "op", lambda: hvd.allreduce(one, average=True, op=hvd.Sum))
    refused(ValueError, "collect_params", lambda: hvd.broadcast_parameters([one]))
    refused(NotImplementedError, "rows", lambda: hvd.reducescatter(mx.np.array(1.0)))


def main() -> None:
    if not ALONE:
        hvd.init()
    results = {
        "plain": train("plain"),
        "predivided": train("predivided", gradient_predivide_factor=2.0, num_groups=2),
        "clipping": train("clipping"),
        "optimizer": optimizer(),
    }
    rank = 0
    if not ALONE:
        rank = hvd.rank()
        narrow = train("narrow", compression=hvd.Compression.fp16)
        plain = results["plain"]
        for key, each in narrow.items():
            other = plain[key.replace("narrow", "plain")]
            assert np.abs(each - other).max() < 1e-2 * np.abs(other).max(), key
        check_calls()
        check_refusals()
    np.savez(
        f"results-{rank}.npz",
        **{f"{case}/{key}": each for case, got in results.items() for key, each in got.items()},
    )
    if not ALONE:
        hvd.shutdown()
        assert not hvd.is_initialized()


if __name__ == "__main__":
    main()
