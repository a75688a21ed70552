# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""Parameters on CUDA devices, without a GPU: the library is built with emulated devices, and a
stand-in for torch.cuda and for where a tensor says that it is lets CPU tensors count as theirs.

Gradients get their values late, in the emulated stream: until it runs, they are NaN. A gradient
that is sent without waiting for its stream is therefore wrong.

Usage: test_torch_cuda.py BASIND LIBBASIN
"""

import contextlib
import ctypes
import itertools
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any
from unittest import mock

from jobs import require

require("numpy", "torch")
os.environ["BASIN_LIBRARY"] = sys.argv[2]  # For what is tested in this process.
import test_state  # noqa: E402 - ends above when there is no torch
import torch  # noqa: E402
from torch import nn  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402
from torch_jobs import (  # noqa: E402
    WORKERS,
    TorchTest,
    average,
    expect,
    gradients,
    loss_of,
    main,
    model,
    session,
    sgd,
    take_step,
)

# ---- the stand-in


@dataclass(frozen=True)
class Stream:
    """As in torch.cuda. `pointer` is the emulated one; the number of a default stream is 0."""

    device_index: int
    cuda_stream: int
    pointer: int


class Cuda:
    """Two emulated devices. `index_of` says where a tensor is.

    streams: the current stream of each device, as the library has it
    """

    def __init__(self, index_of: Callable[[torch.Tensor], int]) -> None:
        from basin import _library

        self._lib = _library.lib
        for name in ("stream", "calls"):
            getattr(self._lib, f"basin_emulated_{name}").argtypes = [ctypes.c_int32]
        self._lib.basin_emulated_stream.restype = ctypes.c_void_p
        self._lib.basin_emulated_calls.restype = ctypes.c_int64
        self._lib.basin_emulated_fail.argtypes = [ctypes.c_int32, ctypes.c_int64]
        self._lib.basin_emulated_synchronize.argtypes = [ctypes.c_void_p]
        self._lib.basin_emulated_hold.argtypes = [ctypes.c_void_p, ctypes.c_int32]
        copied = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)
        self._lib.basin_emulated_copy.argtypes = copied
        self._lib.basin_emulated_any_memory(1)
        self.index_of = index_of
        self._known: dict[int, Stream] = {}
        self.current = [self.new_stream(index) for index in range(2)]
        self.streams = [stream.pointer for stream in self.current]
        self.captured = False
        self.late: list[torch.Tensor] = []

    def new_stream(self, index: int) -> Stream:
        pointer = self._lib.basin_emulated_stream(index)
        return self._known.setdefault(pointer, Stream(index, pointer, pointer))

    def write_late(self, tensor: torch.Tensor, stream: Stream | None = None) -> None:
        """The tensor gets its value in this stream, or in that of its device."""
        value = tensor.detach().clone()
        self.late.append(value)
        tensor.detach().fill_(float("nan"))
        pointer = stream.pointer if stream else self.streams[self.index_of(tensor)]
        size = value.numel() * value.element_size()
        self._lib.basin_emulated_copy(pointer, tensor.data_ptr(), value.data_ptr(), size)

    # What takes the place of functions of torch.cuda.

    def default_stream(self, index: int) -> Stream:
        return Stream(index, 0, self.streams[index])

    def external_stream(self, number: int, index: int) -> Stream:
        # Torch takes 0 for "none given".
        return self._known[number] if number else self.new_stream(index)

    @contextlib.contextmanager
    def stream(self, stream: Stream) -> Iterator[None]:
        index = stream.device_index
        before, self.current[index] = self.current[index], stream
        # The tensors are on the CPU, so what is computed there comes now.
        self._run(stream.pointer)
        try:
            yield
        finally:
            self.current[index] = before

    def _run(self, pointer: int) -> None:
        self._lib.basin_emulated_hold(pointer, False)
        self._lib.basin_emulated_synchronize(pointer)

    def hold(self, held: bool) -> None:
        """What the streams are given does not run while they are held."""
        for stream in self._known:
            self._lib.basin_emulated_hold(stream, held)

    def synchronize(self) -> None:
        for stream in self._known:
            self._run(stream)
        self.late.clear()

    def to_cpu(self, tensor: torch.Tensor) -> torch.Tensor:
        """A copy to the host, which waits for the streams."""
        if self.index_of(tensor) < 0:
            return tensor
        self.synchronize()
        return tensor.clone()

    def calls(self, index: int = 0) -> int:
        return int(self._lib.basin_emulated_calls(index))

    def fail(self, call: int, index: int = 0) -> None:
        self._lib.basin_emulated_fail(index, call)


@contextlib.contextmanager
def cuda(
    index_of: Callable[[torch.Tensor], int] = lambda _: 0, *, late: bool = True
) -> Iterator[Cuda]:
    """Tensors count as those of CUDA devices.

    late: whether all gradients get their values late
    """
    from basin.torch.store import TensorStore
    from basin.worker import Worker

    here = Cuda(index_of)
    memory_of, copy_device = TensorStore.memory_of, Worker.copy_device

    def late_memory_of(store: Any, of: Any) -> Any:
        memory = memory_of(store, of)
        for each in memory:
            if late and index_of(each) >= 0:
                here.write_late(each)
        return memory

    def copy_and_synchronize(*arguments: Any) -> None:
        # What torch does next would be in the stream.
        copy_device(*arguments)
        here.synchronize()

    with (
        mock.patch.multiple(
            torch.Tensor,
            get_device=index_of,
            is_cuda=property(lambda tensor: index_of(tensor) >= 0),
            is_cpu=property(lambda tensor: index_of(tensor) < 0),
            cpu=lambda tensor: here.to_cpu(tensor),
        ),
        mock.patch.multiple(
            torch.cuda,
            current_stream=lambda index: here.current[index],
            default_stream=here.default_stream,
            ExternalStream=here.external_stream,
            stream=here.stream,
            is_current_stream_capturing=lambda: here.captured,
        ),
        mock.patch.object(TensorStore, "memory_of", late_memory_of),
        mock.patch.object(Worker, "copy_device", copy_and_synchronize),
    ):
        yield here


class Looks(TorchDispatchMode):
    """Counts how often the number in a tensor is read, for which the host waits for the device."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(
        self, function: Any, types: Any, arguments: Any = (), options: Any = None
    ) -> Any:
        self.count += function is torch.ops.aten._local_scalar_dense.default
        return function(*arguments, **(options or {}))


# ---- workers


def one_round(rank: int) -> Any:
    with session() as bt, cuda() as here:
        net = model()
        optimizer = sgd(net, bt)
        loss_of(net, rank).backward()
        return gradients(net), here.calls() > 0, optimizer.totals().rounds


def by_shape(tensor: torch.Tensor) -> int:
    """Weights on the first device, biases on the second."""
    return 0 if tensor.dim() > 1 else 1


def mixed(tensor: torch.Tensor) -> int:
    """Weights on a device, biases on the CPU."""
    return 0 if tensor.dim() > 1 else -1


def on_several(rank: int, where: str) -> Any:
    with session() as bt, cuda({"two": by_shape, "mixed": mixed}[where]) as here:
        net = model()
        optimizer = sgd(net, bt)
        loss_of(net, rank).backward()
        used = [here.calls(index) > 0 for index in range(2)]
        return gradients(net), used, optimizer.totals().rounds


def trained(rank: int, on_cuda: bool, options: dict[str, Any]) -> Any:
    with session() as bt, cuda() if on_cuda else contextlib.nullcontext():
        net = model().float()
        optimizer = sgd(net, bt, **options)
        for step in range(4):
            optimizer.zero_grad()
            x = torch.randn(4, 5, generator=torch.Generator().manual_seed(100 * rank + step))
            net(x).square().mean().backward()
            optimizer.step()
        return [parameter.detach().clone() for parameter in net.parameters()]


def wrapped(rank: int, on_cuda: bool) -> Any:
    """A model with buffers, which starts with the values of rank 0."""
    with session() as bt, cuda() if on_cuda else contextlib.nullcontext():
        torch.manual_seed(rank)
        net = nn.Sequential(nn.Linear(5, 8), nn.BatchNorm1d(8), nn.Linear(8, 3))
        ddp = bt.DistributedDataParallel(net)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        for step in range(3):
            optimizer.zero_grad()
            x = torch.randn(4, 5, generator=torch.Generator().manual_seed(100 * rank + step))
            ddp(x).square().mean().backward()
            optimizer.step()
        return [value.clone() for value in net.state_dict().values()]


def scaled(rank: int, on_cuda: bool) -> Any:
    """Mixed precision: an overflow on one worker skips the step of all."""
    with session() as bt, cuda() if on_cuda else contextlib.nullcontext():
        net = model().float()
        optimizer = sgd(net, bt)
        scaler = bt.GradScaler("cpu", init_scale=8.0)
        scales = []
        looks = Looks()
        for step in range(3):
            optimizer.zero_grad()
            x = torch.randn(4, 5, generator=torch.Generator().manual_seed(100 * rank + step))
            loss = net(x).square().mean()
            if rank == 0 and step == 1:
                loss = loss * float("inf")
            with looks:
                scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
            scales.append(scaler.get_scale())
        parameters = [parameter.detach().clone() for parameter in net.parameters()]
        return parameters, scales, looks.count


def accumulated(rank: int, on_cuda: bool, passes: int, set_to_none: bool) -> Any:
    """Micro-batches, also under no_sync(), and clipping by the norm in the reply. If zeros were
    added to a result on a device, that is not known to be its norm."""
    with (
        session() as bt,
        cuda() if on_cuda else contextlib.nullcontext(),
        mock.patch("basin.torch.divided_again._STEPS_ON_DEVICE", 1),
    ):
        net = model()
        optimizer = sgd(net, bt, backward_passes_per_step=passes)
        looks = Looks()
        norms = []
        for step in range(3):
            with looks:
                with optimizer.no_sync():
                    loss_of(net, rank, 10 * step).backward()
                for micro in range(passes - 1 if passes > 1 else 1):
                    loss_of(net, rank, 10 * step + micro + 1).backward()
            if set_to_none:
                norms.append(float(bt.clip_grad_norm_(optimizer, 0.1)))
            with looks if set_to_none and step > 0 else contextlib.nullcontext():
                optimizer.step()
            optimizer.zero_grad(set_to_none)
        parameters = [parameter.detach().clone() for parameter in net.parameters()]
        return parameters, norms, looks.count, optimizer.totals().rounds


def compiled(rank: int, on_cuda: bool) -> Any:
    with session() as bt, cuda() if on_cuda else contextlib.nullcontext():
        net = model()
        optimizer = sgd(net, bt)
        fast = torch.compile(net, backend="aot_eager")
        for step in range(3):
            take_step(fast, optimizer, rank, step)
        return gradients(net), optimizer.totals().rounds


class Counted:
    """A lock that counts how often it is taken."""

    def __init__(self, lock: Any) -> None:
        self._lock = lock
        self.count = 0

    def __enter__(self) -> None:
        self._lock.acquire()
        self.count += 1

    def __exit__(self, *_: Any) -> None:
        self._lock.release()


def moved(rank: int) -> Any:
    """Weights move to a device, and back, after the first round."""
    on_cuda = False
    with session() as bt, cuda(lambda each: 0 if on_cuda and each.dim() > 1 else -1):
        net = model()
        optimizer = sgd(net, bt)
        store = optimizer.basin_lane.store
        lock = store._hooked = Counted(store._hooked)
        got = []
        for step in range(3):
            on_cuda = step == 1
            optimizer.zero_grad()
            lock.count = 0
            loss_of(net, rank, step).backward()
            got.append((lock.count, gradients(net)))
        return got


def unusual(rank: int) -> Any:
    """A gradient with gaps is written in another stream than that of the hook that sends it, with
    others."""
    from basin.torch.store import TensorStore

    with session() as bt, cuda(late=False) as here:
        others, side = here.current[0], here.new_stream(0)
        # The first one is sent alone, and the last one makes the others many enough to be sent.
        parameters = [nn.Parameter(torch.ones(2)) for _ in range(3)]
        parameters[1] = nn.Parameter(torch.ones(3, 2).t())
        parameters[2] = nn.Parameter(torch.ones(40_000, dtype=torch.float64))
        optimizer = bt.DistributedOptimizer(torch.optim.SGD(parameters))

        def write_in_side(gradient: torch.Tensor) -> torch.Tensor:
            here.current[0] = side
            late = gradient.clone()
            here.hold(True)
            here.write_late(late, side)
            return late

        def leave_side(gradient: torch.Tensor) -> None:
            here.current[0] = others

        parameters[1].register_hook(write_in_side)
        parameters[2].register_hook(leave_side)
        memory_of = TensorStore.memory_of

        def memory_of_all(store: Any, of: Any) -> Any:
            memory = memory_of(store, of)
            here.hold(False)
            return memory

        class InOrder(torch.autograd.Function):
            """Its backward reaches the first parameter first."""

            @staticmethod
            def forward(context: Any, *given: torch.Tensor) -> Any:
                return given[0].sum() + sum(each.sum().float() for each in given[1:])

            @staticmethod
            def backward(context: Any, *gradient: torch.Tensor) -> Any:
                return tuple(torch.full_like(each, rank + 1.0) for each in parameters)

        with mock.patch.object(TensorStore, "memory_of", memory_of_all):
            InOrder.apply(*parameters).backward()
        del optimizer
        return [float(each.grad.mean()) for each in parameters if each.grad is not None]


def captured(rank: int) -> Any:
    with session() as bt, cuda() as here:
        net = model()
        optimizer = sgd(net, bt)
        here.captured = True
        text = expect("FailedPrecondition", loss_of(net, rank).backward)
        here.captured = False
        here.synchronize()
        optimizer.zero_grad()
        loss_of(net, rank, 1).backward()
        return text, gradients(net)


def failing(rank: int) -> Any:
    """The device of rank 0 fails while its gradients are copied."""
    with session() as bt, cuda() as here:
        net = model()
        optimizer = sgd(net, bt)
        loss_of(net, rank).backward()
        optimizer.step()
        optimizer.zero_grad()
        loss = loss_of(net, rank, 1)
        if rank == 0:
            # It looks at four tensors, makes an event, records it, and orders a queue after it.
            here.fail(here.calls() + 7)
            return expect("FailedPrecondition", loss.backward)
        loss.backward()
        return gradients(net)


def written(rank: int, where: str) -> Any:
    """On rank 0 a hook of the first layer writes to the gradients of the last one, some of which
    were sent before."""
    with session() as bt, contextlib.nullcontext() if where == "cpu" else cuda():
        net = model()
        optimizer = sgd(net, bt)
        text = ""
        if rank > 0:
            loss_of(net, rank).backward()
        else:

            def write(*_: Any) -> None:
                for parameter in net[2].parameters():
                    parameter.grad.mul_(2)

            hook = net[0].register_full_backward_hook(write)
            text = expect("Unsupported", loss_of(net, rank).backward)
            hook.remove()
        first = gradients(net)
        optimizer.step()
        optimizer.zero_grad()
        loss_of(net, rank, 1).backward()
        return first, optimizer.last_round().contributors, text


def joined_late(rank: int, folder: str, way: str) -> Any:
    """The parameters are still being written when a worker joins and they are served."""
    from basin.torch.state import JobState

    announce = JobState._announce
    with cuda() as here:

        def announce_late(state: JobState, *arguments: Any) -> None:
            here.hold(True)
            for lane in state._lanes:
                for _, parameter in lane.parameters():
                    here.write_late(parameter.data)
            announce(state, *arguments)
            here.synchronize()

        with mock.patch.object(JobState, "_announce", announce_late):
            return test_state.members_and_joiners(rank, folder, 2, 3, way)


class Rounds(TorchTest):
    def test_gradients_are_sent_when_their_stream_has_written_them(self) -> None:
        for got, used, rounds in self.run_job(one_round):
            self.assertEqual((True, 1), (used, rounds))
            self.assert_close(average(), got)

    def test_parameters_may_be_on_two_devices(self) -> None:
        for got, used, rounds in self.run_job(on_several, "two"):
            self.assertEqual(([True, True], 1), (used, rounds))
            self.assert_close(average(), got)

    def test_parameters_may_be_on_a_device_and_on_the_cpu(self) -> None:
        for got, used, rounds in self.run_job(on_several, "mixed"):
            self.assertEqual(([True, False], 1), (used, rounds))
            self.assert_close(average(), got)

    def test_training_has_the_bits_of_the_cpu(self) -> None:
        for options in ({}, {"wire_dtype": torch.bfloat16}, {"wire_dtype": torch.float16}):
            on_cpu = self.run_job(trained, False, options)
            self.assert_same_bits(on_cpu + self.run_job(trained, True, options))

    def test_a_wrapped_model_has_the_bits_of_the_cpu(self) -> None:
        self.assert_same_bits(self.run_job(wrapped, False)[:1] + self.run_job(wrapped, True)[:1])

    def test_mixed_precision_has_the_bits_of_the_cpu(self) -> None:
        on_cpu, on_cuda = self.run_job(scaled, False), self.run_job(scaled, True)
        self.assert_same_bits([each for each, *_ in on_cpu + on_cuda])
        self.assertEqual({(8.0, 4.0, 4.0)}, {tuple(scales) for _, scales, _ in on_cpu + on_cuda})
        # The host does not wait for the device from scale() until the backward has returned.
        self.assertEqual([0] * WORKERS, [looks for *_, looks in on_cuda])

    def test_accumulation_has_the_bits_of_the_cpu_and_does_not_wait_for_the_device(self) -> None:
        for passes, set_to_none in itertools.product((1, 3), (True, False)):
            with self.subTest(passes=passes, set_to_none=set_to_none):
                on_cpu = self.run_job(accumulated, False, passes, set_to_none)
                on_cuda = self.run_job(accumulated, True, passes, set_to_none)
                self.assert_same_bits([each for each, *_ in on_cpu + on_cuda])
                self.assertEqual(1, len({tuple(norms) for _, norms, *_ in on_cpu + on_cuda}))
                self.assertEqual([(0, 3)] * WORKERS, [tuple(rest) for _, _, *rest in on_cuda])

    def test_a_compiled_model_has_the_bits_of_the_cpu(self) -> None:
        on_cpu, on_cuda = self.run_job(compiled, False), self.run_job(compiled, True)
        self.assert_same_bits([got for got, _ in on_cpu + on_cuda])
        self.assertEqual({3}, {rounds for _, rounds in on_cuda})

    def test_all_hooks_take_the_lock_while_a_part_of_the_model_is_on_a_device(self) -> None:
        for got in self.run_job(moved):
            self.assertEqual([0, 4, 0], [count for count, _ in got])
            for step, (_, each) in enumerate(got):
                self.assert_close(average(step), each)

    def test_a_gradient_with_gaps_is_copied_in_its_own_stream(self) -> None:
        self.assertEqual([[2.0] * 3] * WORKERS, self.run_job(unusual))

    def test_what_torch_computes_in_the_default_stream_comes_after_what_is_there(self) -> None:
        from basin.torch import device

        with cuda() as here:
            here.hold(True)
            values = torch.arange(3.0)
            here.write_late(values)
            self.assertTrue(values.isnan().all())
            numbers = (0, here.current[0].cuda_stream)
            products = [device.product(values, 3, torch.float64, 0, number) for number in numbers]
        self.assert_same_bits([[torch.tensor([0.0, 3.0, 6.0])], *([each] for each in products)])

    def test_a_scaler_without_a_loss_begins_on_the_device_of_the_parameters(self) -> None:
        from basin.torch.scaler import ScalerWatch

        watch = ScalerWatch([])
        try:
            scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
            on_device = nn.Parameter(torch.zeros(3, device="meta"))
            scaler.unscale_(torch.optim.SGD([on_device]))
        finally:
            watch.close()
        assert scaler._scale is not None
        self.assertEqual("meta", scaler._scale.device.type)


class LateJoiners(test_state.LateJoinersTest):
    def test_a_late_joiner_continues_with_the_state_of_the_others(self) -> None:
        for way in ("DistributedOptimizer", "DistributedDataParallel"):
            with self.subTest(way):
                outcomes = self.run_job(joined_late, 3, way, start=2, least=2, most=3)
                self.assert_level([outcome for outcome, _ in outcomes], [2])


class Refusals(TorchTest):
    def test_a_captured_graph_is_refused_with_the_way_out(self) -> None:
        for text, got in self.run_job(captured):
            self.assertRegex(
                text,
                r"parameter \d\.\w+ of lane gradients\S* on cuda:0 was accumulated while a CUDA "
                r"graph is captured.*no_sync\(\).*sync_gradients\(\) of the optimizer",
            )
            self.assert_close(average(1), got)

    def test_a_write_to_a_gradient_that_was_sent_withdraws_those_of_its_worker(self) -> None:
        for where in ("cuda", "cpu"):
            with self.subTest(where):
                (mine, all_of_them, text), *others = self.run_job(written, where)
                self.assertRegex(
                    text, r"parameter 2\.\w+ was written to in the backward after it was"
                )
                for got, contributors, _ in others:
                    self.assert_close(average(0, (1, 2)), got)
                    self.assertEqual(all_of_them, contributors)
                self.assert_close(average(0, (1, 2)), mine)
                self.assertEqual(("w0", "w1", "w2"), all_of_them)

    def test_fault_A13_a_failing_device_withdraws_the_gradients_of_its_worker(self) -> None:
        text, *others = self.run_job(failing)
        self.assertRegex(text, "tensor .* and 3 more.*emulated device.*train on the CPU")
        self.assertEqual(WORKERS - 1, len(others))
        self.assert_same_bits(others)


if __name__ == "__main__":
    main()
