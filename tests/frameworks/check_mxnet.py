# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""What basin.mxnet does and refuses, as one of two workers. It writes to checks-RANK.json what each
check has raised here: an empty text if nothing."""

import contextlib
import json
import os
import traceback
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import basin
import basin.mxnet
import mxnet as mx
import numpy as np
from basin.worker import Worker
from mxnet import autograd, gluon
from train_mxnet import LOSS, batch, halves, values

SGD = ("sgd", {"learning_rate": 0.1, "momentum": 0.9})


def dense(client: Any, prefix: str, inputs: int = 0, seed: int | None = None) -> Any:
    """Another net on each worker, unless there is a seed."""
    mx.random.seed(os.getpid() if seed is None else seed)
    net = gluon.nn.Dense(3, in_units=inputs, prefix=prefix)
    net.initialize(mx.init.Normal(1.0))
    return net


def shared(client: Any, prefix: str) -> Any:
    net = dense(client, prefix, inputs=5)
    basin.mxnet.broadcast_parameters(client, net.collect_params(), name=prefix)
    return net


def backward(client: Any, net: Any, step: int = 0) -> int:
    """Returns the number of rows."""
    ((x, y),) = halves(client, *(each.astype(np.float32) for each in batch(step)))
    with autograd.record():
        loss = LOSS(net(x), y)
    loss.backward()
    return len(y)


def is_same(client: Any, *arrays: Any) -> bool:
    """Whether all workers have these bits."""
    for each in arrays:
        mine = np.ascontiguousarray(each).reshape(-1).view(np.uint8)
        theirs = client.broadcast(mine, root_rank=0)
        differs = client.allreduce(np.array([int((mine != theirs).any())]), op=basin.Max)
        if differs[0]:
            return False
    return True


def raised(call: Callable[[], Any]) -> str:
    """The error of the call, with its kind; empty if there is none."""
    try:
        call()
    except basin.Error as error:
        return f"{type(error).__name__}: {error}"
    return ""


def expect(kind: str, *parts: str, call: Callable[[], Any]) -> None:
    text = raised(call)
    assert text.startswith(kind) and all(part in text for part in parts), text


def of_all(client: Any, text: str) -> list[str]:
    """The texts of all workers."""
    mine = np.frombuffer(text.encode().ljust(2000, b" ")[:2000], np.uint8)
    return [each.tobytes().decode().strip() for each in client.allgather(mine[None])]


# ---- the reduction and the update


def rescale(client: Any) -> None:
    for r in (0.5, 1.0, 2.0):
        for op in (basin.Sum, basin.Average):
            nets = [shared(client, f"rescale{r}{op}{i}_") for i in range(2)]
            for mine, theirs in zip(*(net.collect_params().values() for net in nets)):
                theirs.set_data(mine.data())
            made = [
                basin.mxnet.DistributedTrainer(
                    client,
                    net.collect_params(),
                    "sgd",
                    {"learning_rate": 0.1, "momentum": 0.9, "rescale_grad": r},
                    op=op,
                    name=f"{r}{op}{i}",
                )
                for i, net in enumerate(nets)
            ]
            for step in range(3):
                before = nets[1].weight.data().asnumpy()
                backward(client, nets[0], step)
                size = backward(client, nets[1], step)
                mine = nets[1].weight.grad().asnumpy()
                made[0].step(size)
                made[1].allreduce_grads()
                reduced = nets[1].weight.grad().asnumpy()
                total = client.allreduce(mine, op=op)
                assert (reduced == total).all(), "a rescale is not the reduction's"
                made[1].update(size)
                if step == 0:
                    change = before - nets[1].weight.data().asnumpy()
                    expected = 0.1 * (r / size) * reduced
                    assert np.allclose(change, expected, rtol=1e-4, atol=1e-7), (r, op)
            one, two = (
                np.concatenate([each.reshape(-1) for each in values(n).values()]) for n in nets
            )
            assert one.tobytes() == two.tobytes(), (r, op)
            assert is_same(client, one), (r, op)


def divided_again(client: Any) -> None:
    for op, warns in ((basin.Average, True), (basin.Sum, False)):
        net = shared(client, f"divided{op}_")
        options = {"learning_rate": 0.1, "rescale_grad": 1 / client.world_size}
        trainer = basin.mxnet.DistributedTrainer(
            client, net.collect_params(), "sgd", options, op=op, name=f"divided{op}"
        )
        with mock.patch("basin.mxnet.trainer.logger.warning") as warning:
            for step in range(2):
                trainer.step(backward(client, net, step))
        assert warning.call_count == warns, (op, warning.call_args_list)


def nothing_is_reduced_twice(client: Any) -> None:
    net = shared(client, "twice_")
    trainer = basin.mxnet.DistributedTrainer(
        client, net.collect_params(), *SGD, op=basin.Sum, name="twice"
    )
    size = backward(client, net)
    trainer.allreduce_grads()
    reduced = net.weight.grad().asnumpy()
    trainer.allreduce_grads()
    assert (net.weight.grad().asnumpy() == reduced).all()
    trainer.update(size)
    # An update without a reduction would apply what this worker alone has.
    backward(client, net)
    expect("FailedPrecondition", "twice_bias", "allreduce_grads()", call=lambda: trainer.update(1))
    trainer.allreduce_grads()
    backward(client, net)
    expect("FailedPrecondition", "of this worker alone", call=lambda: trainer.update(1))
    trainer.step(size)
    assert is_same(client, *values(net).values())


def an_update_that_is_left_out(client: Any) -> None:
    """A scaler that finds an overflow leaves out the update, on all workers."""
    net = shared(client, "overflow_")
    trainer = basin.mxnet.DistributedTrainer(
        client, net.collect_params(), *SGD, op=basin.Average, name="overflow"
    )
    trainer._amp_loss_scaler = mock.Mock(loss_scale=1024.0)
    trainer._amp_loss_scaler.has_overflow.side_effect = [True, False]
    before = net.weight.data().asnumpy()
    trainer.step(backward(client, net))
    assert (net.weight.data().asnumpy() == before).all()
    assert trainer.last_round().spec.loss_scale == 1024.0
    trainer.step(backward(client, net))
    assert (net.weight.data().asnumpy() != before).any()
    assert is_same(client, *values(net).values())


def a_worker_without_data(client: Any) -> None:
    """It gets the result of the other, and stays equal to it."""
    net = shared(client, "idle_")
    trainer = basin.mxnet.DistributedTrainer(
        client, net.collect_params(), *SGD, op=basin.Sum, name="idle"
    )
    for step in range(3):
        if client.rank == step % 2:
            backward(client, net, step)
        trainer.step(4)
    assert is_same(client, *values(net).values())


def two_trainers(client: Any) -> None:
    """Two nets with trainers of the same name, in turns."""
    nets = [shared(client, f"pair{i}_") for i in range(2)]
    trainers = [
        basin.mxnet.DistributedTrainer(client, net.collect_params(), *SGD, op=basin.Average)
        for net in nets
    ]
    for step in range(4):
        trainers[step % 2].step(backward(client, nets[step % 2], step))
    assert is_same(client, *values(nets[0]).values(), *values(nets[1]).values())


def half_precision(client: Any) -> None:
    """Gradients of 40000 do not overflow in a sum that is averaged, nor narrow ones on the wire."""
    narrow: dict[str, Any] = {"wire_dtype": "float16"}
    for dtype, options in (("float16", {}), ("float32", narrow)):
        weight = gluon.Parameter(f"half{dtype}", shape=(2,), dtype=dtype)
        weight.initialize(mx.init.Zero())
        trainer = basin.mxnet.DistributedTrainer(
            client, [weight], "sgd", op=basin.Average, name=dtype, **options
        )
        with autograd.record():
            loss = (weight.data() * 40000).sum()
        loss.backward()
        trainer.allreduce_grads()
        got = weight.grad()
        assert got.dtype == np.dtype(dtype) and (got.asnumpy() == 40000).all(), got


def numpy_arrays(client: Any) -> None:
    """Nets of mxnet.np, and an array that is a single number."""
    mx.npx.set_np()
    try:
        mx.random.seed(os.getpid())
        net = gluon.nn.Dense(3, prefix="np_")
        net.initialize(mx.init.Normal(1.0))
        params = net.collect_params()
        number = mx.np.array(client.rank + 1.0)
        basin.mxnet.broadcast_parameters(client, {**params, "number": number}, name="np")
        assert number.shape == () and float(number) == 1.0, number
        x = mx.np.ones((2, 4)) * (client.rank + 1)
        with autograd.record():
            loss = net(x).sum()
        loss.backward()
        assert is_same(client, *values(net).values())
        trainer = basin.mxnet.DistributedTrainer(client, params, *SGD, op=basin.Average, name="np")
        trainer.step(2)
        assert is_same(client, *values(net).values())
    finally:
        mx.npx.reset_np()


# ---- parameters


def deferred(client: Any) -> None:
    """Other seeds on all workers; a layer is used only from the second forward on."""
    mx.random.seed(os.getpid())
    first, late = (gluon.nn.Dense(4, prefix=f"deferred{i}_") for i in range(2))
    norm = gluon.nn.BatchNorm(prefix="deferrednorm_")
    params = gluon.ParameterDict()
    for each in (first, late, norm):
        each.initialize(mx.init.Normal(1.0))
        params.update(each.collect_params())
    with mock.patch.object(Worker, "get", autospec=True, side_effect=Worker.get) as get:
        basin.mxnet.broadcast_parameters(client, params, name="deferred")
        trainer = basin.mxnet.DistributedTrainer(
            client, params, *SGD, op=basin.Average, name="deferred"
        )
        for step in range(3):
            x = mx.nd.random.normal(shape=(4, 6))
            with autograd.record():
                y = norm(first(x))
                if step > 0:
                    made = late(x)
                    if step == 1:
                        assert is_same(client, late.weight.data().asnumpy())
                    y = y + made
                loss = y.square().sum()
            if step == 0:
                assert is_same(client, first.weight.data().asnumpy())
                assert late.weight._data is None
            loss.backward()
            trainer.step(4, ignore_stale_grad=True)
    # A header of each of eight, and the values of the two that were not equal already.
    calls = [call.args for call in get.call_args_list]
    names = [spec.name for _, lane, spec, *_ in calls if lane.endswith("parameters")]
    taken = [name for name in names if not name.endswith("/header")]
    assert len(names) == len(set(names)), names
    if client.rank > 0:
        assert sorted(taken) == ["deferred/deferred0_weight", "deferred/deferred1_weight"], taken
    trained = [each for each in params.values() if each.grad_req != "null"]
    assert is_same(client, *(each.data().asnumpy() for each in trained))


def any_order(client: Any) -> None:
    """The worker asks for the second parameter before the root has it, and for the first one long
    after the root has it; neither waits for the other one's step."""
    one, two = (dense(client, f"order{i}_") for i in range(2))
    for net in (one, two):
        basin.mxnet.broadcast_parameters(client, net.collect_params(), name=net.prefix)
    x = mx.nd.ones((1, 4))
    pipe = Path("asked")
    if client.rank == 0:
        one(x)
        with pipe.open("rb") as asked:
            asked.read(1)  # Now the other worker asks for what is not there.
        two(x)
    else:
        get = Worker.get
        asks: list[bool] = []

        def asking(self: Any, *arguments: Any, **options: Any) -> None:
            if not asks:
                asks.append(True)
                with pipe.open("wb") as asked:
                    asked.write(b".")
            get(self, *arguments, **options)

        with mock.patch.object(Worker, "get", asking):
            two(x)
        one(x)
    assert is_same(client, *values(one).values(), *values(two).values())


def never_given(client: Any) -> None:
    net = dense(client, "never_")
    basin.mxnet.broadcast_parameters(client, net.collect_params(), name="never", timeout=0.5)
    x = mx.nd.ones((1, 4))
    if client.rank > 0:
        expect(
            "DeadlineExceeded",
            f"Worker {client.worker_id} has waited 0.5 s for the values of parameter never_weight",
            f"worker {client.worker.member_id(0)} of rank 0",
            call=lambda: net(x),
        )
    client.barrier("never")
    if client.rank == 0:
        net(x)
    client.barrier("given")
    net(x)  # Another try of the same forward.
    assert is_same(client, *values(net).values())


def another_shape(client: Any) -> None:
    net = dense(client, "shape_")
    basin.mxnet.broadcast_parameters(client, net.collect_params(), name="shape")
    x = mx.nd.ones((1, 4 + client.rank))
    if client.rank == 0:
        net(x)
    else:
        expect(
            "Mismatch",
            "shape_weight is float32 of shape (3, 5) on worker " + client.worker_id,
            "(3, 4) on worker " + client.worker.member_id(0),
            call=lambda: net(x),
        )


def restored_on_rank_0(client: Any) -> None:
    """Three steps, a checkpoint that rank 0 alone loads, and three more are six steps."""

    def trainer_of(net: Any, rate: float) -> Any:
        adam = {"learning_rate": rate, "lr_scheduler": mx.lr_scheduler.FactorScheduler(2, 0.5)}
        return basin.mxnet.DistributedTrainer(
            client, net.collect_params(), "adam", adam, op=basin.Average, name="restored"
        )

    finals = []
    for restores in (False, True):
        net = dense(client, "restored_", seed=11 if client.rank == 0 else None)
        basin.mxnet.broadcast_parameters(client, net.collect_params(), name=f"begun {restores}")
        trainer = trainer_of(net, 0.1)
        for step in range(6):
            if step == 3 and restores:
                if client.rank == 0:
                    net.save_parameters("saved.params")
                    trainer.save_states("saved.states")
                net = dense(client, "restored_")  # As in another process.
                trainer = trainer_of(net, 7.0 + client.rank)
                if client.rank == 0:
                    net.load_parameters("saved.params")
                    trainer.load_states("saved.states")
                basin.mxnet.broadcast_parameters(client, net.collect_params(), name="restored")
                basin.mxnet.broadcast_states(client, trainer)
            trainer.step(backward(client, net, step))
        assert trainer.optimizer.num_update == 6, trainer.optimizer.num_update
        finals.append(values(net))
        assert is_same(client, *finals[-1].values())
    for name, value in finals[0].items():
        assert value.tobytes() == finals[1][name].tobytes(), name


def all_have_loaded(client: Any) -> None:
    """What is equal already is compared, and not sent."""
    net = shared(client, "loaded_")
    if client.rank == 0:
        net.save_parameters("loaded.params")
    client.barrier("saved")
    again = dense(client, "loaded_")
    again.load_parameters("loaded.params")
    with mock.patch.object(Worker, "get", autospec=True, side_effect=Worker.get) as get:
        basin.mxnet.broadcast_parameters(client, again.collect_params(), name="loaded again")
    names = {call.args[2].name for call in get.call_args_list if "loaded" in call.args[2].name}
    assert all(name.endswith("/header") for name in names), names
    assert len(names) == (2 if client.rank > 0 else 0), names


def again(client: Any) -> None:
    """Parameters that are initialized again are the root's again, and a move to another context is
    no initialization."""
    net = shared(client, "again_")
    before = net.weight.data().asnumpy()
    net.initialize(mx.init.Normal(1.0), force_reinit=True)
    assert is_same(client, net.weight.data().asnumpy())
    assert (net.weight.data().asnumpy() != before).any()
    if client.rank == 0:
        net.collect_params().reset_ctx(mx.cpu(0))
    assert is_same(client, net.weight.data().asnumpy())


def bits(client: Any) -> None:
    odd = [np.nan, -0.0, np.inf, 1e-42, -np.inf, 1.0]
    kinds: dict[str, Any] = {
        "f4": np.array(odd, np.float32),
        "f8": np.array(odd, np.float64),
        "i8": np.array([2**62, -1]),
        "u1": np.array([255], np.uint8),
        "rows": np.arange(12, dtype=np.float32).reshape(3, 4),
    }
    mine = {
        key: mx.nd.array(each if client.rank == 0 else np.zeros_like(each), dtype=each.dtype)
        for key, each in kinds.items()
    }
    basin.mxnet.broadcast_parameters(client, mine, name="bits")
    for key, each in kinds.items():
        assert mine[key].asnumpy().tobytes() == each.tobytes(), (key, mine[key])


# ---- what is refused


def refused_parameters(client: Any) -> None:
    net = dense(client, f"other{client.rank}_", inputs=2)
    expect(
        "Mismatch",
        "broadcast of other differs",
        call=lambda: basin.mxnet.broadcast_parameters(client, net.collect_params(), name="other"),
    )
    lost = gluon.nn.Dense(3, prefix="lost_")
    expect(
        "InvalidArgument",
        "lost_bias was not initialized",
        call=lambda: basin.mxnet.broadcast_parameters(client, lost.collect_params()),
    )
    for params, part in ((net, "Dense"), ({"a": 3}, "int")):
        call = partial(basin.mxnet.broadcast_parameters, client, params)
        expect("InvalidArgument", part, call=call)


def refused_trainers(client: Any) -> None:
    def trainer(net: Any, **options: Any) -> Any:
        return basin.mxnet.DistributedTrainer(client, net.collect_params(), *SGD, **options)

    net = dense(client, "refused_", inputs=2)
    expect("InvalidArgument", "MIN", call=lambda: trainer(net, op=basin.Min))
    expect("InvalidArgument", call=lambda: trainer(net, op="mean"))
    expect("InvalidArgument", "int8", call=lambda: trainer(net, op=basin.Sum, wire_dtype="int8"))
    with contextlib.suppress(TypeError):
        trainer(net)
        raise AssertionError("op is required")
    with contextlib.suppress(TypeError):
        trainer(net, op=basin.Sum, kvstore="dist_sync")
        raise AssertionError("there is no kvstore")
    rows = gluon.nn.Embedding(5, 2, sparse_grad=True, prefix="rows_")
    rows.initialize()
    weighted = {"op": basin.WeightedAverage, "weight_by": "samples", "contributes": "sum"}
    expect("Unsupported", "rows_weight", "row_sparse", call=lambda: trainer(rows, **weighted))
    both = gluon.nn.Dense(3, in_units=2, prefix="both_")
    both.initialize(ctx=[mx.cpu(0), mx.cpu(1)])
    expect("Unsupported", "2 contexts", call=lambda: trainer(both, op=basin.Sum))


def a_parameter_without_a_gradient(client: Any) -> None:
    """No worker has reached the bias."""
    weight = gluon.Parameter("reached", shape=(2,))
    bias = gluon.Parameter("unreached", shape=(2,))
    params = {each.name: each for each in (weight, bias)}
    for each in params.values():
        each.initialize(mx.init.One())
    trainer = basin.mxnet.DistributedTrainer(
        client, params, *SGD, op=basin.Average, name="unreached"
    )

    def step(**options: Any) -> None:
        with autograd.record():
            loss = weight.data().sum()
        loss.backward()
        trainer.step(1, **options)

    expect("FailedPrecondition", "unreached has no gradient", "on no worker", call=step)
    step(ignore_stale_grad=True)
    assert (bias.data().asnumpy() == 1).all() and (weight.data().asnumpy() < 1).all()


def others(client: Any, name: str, kinds: tuple[str, ...], text: str, call: Any) -> None:
    """At least one worker gets an error of these kinds with the text, and each error is one."""
    errors = of_all(client, raised(call))
    got = [each for each in errors if each]
    assert got, f"no error of {name}"
    assert all(each.startswith(kinds) for each in got), errors
    assert any(text in each for each in got), errors


def workers_that_differ(client: Any) -> None:
    """In the rate, in the batch size, and in what is initialized."""
    net = shared(client, "rate_")
    trainer = basin.mxnet.DistributedTrainer(
        client,
        net.collect_params(),
        "sgd",
        {"learning_rate": 0.1 * (client.rank + 1)},
        op=basin.Average,
        name="rate",
    )
    backward(client, net)
    others(client, "the rate", ("Mismatch",), "learning_rate", lambda: trainer.step(4))

    net = shared(client, "size_")
    trainer = basin.mxnet.DistributedTrainer(
        client, net.collect_params(), *SGD, op=basin.Average, name="size"
    )
    backward(client, net)
    others(client, "the size", ("Mismatch",), "rescale_grad", lambda: trainer.step(4 + client.rank))

    first, second = (gluon.nn.Dense(3, prefix=f"lacks{i}_") for i in range(2))
    params = gluon.ParameterDict()
    for each in (first, second):
        each.initialize()
        params.update(each.collect_params())
    trainer = basin.mxnet.DistributedTrainer(client, params, *SGD, op=basin.Sum, name="lacks")
    x = mx.nd.ones((2, 4))
    with autograd.record():
        loss = first(x).sum() + (second(x).sum() if client.rank == 0 else 0)
    loss.backward()
    others(client, "the net", ("Mismatch",), "lacks1_weight", lambda: trainer.step(2))


CHECKS = (
    rescale,
    divided_again,
    nothing_is_reduced_twice,
    an_update_that_is_left_out,
    a_worker_without_data,
    two_trainers,
    half_precision,
    numpy_arrays,
    deferred,
    any_order,
    never_given,
    another_shape,
    restored_on_rank_0,
    all_have_loaded,
    again,
    bits,
    refused_parameters,
    refused_trainers,
    a_parameter_without_a_gradient,
    workers_that_differ,
)


@contextlib.contextmanager
def noted(outcomes: dict[str, str], name: str) -> Iterator[None]:
    outcomes[name] = "it has not ended"
    try:
        yield
        outcomes[name] = ""
    except Exception:
        outcomes[name] = traceback.format_exc()


def main() -> None:
    outcomes: dict[str, str] = {}
    with basin.connect() as client:
        rank = client.rank
        if rank == 0:
            os.mkfifo("asked")
        client.barrier("begin")
        for check in CHECKS:
            with noted(outcomes, check.__name__):
                check(client)
            Path(f"checks-{rank}.json").write_text(json.dumps(outcomes))
            client.barrier(check.__name__, 60)


if __name__ == "__main__":
    main()
