# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""Parameters on CUDA devices, without a GPU: the library is built with emulated devices, and a
stand-in for torch.cuda lets CPU tensors count as theirs.

Gradients get their values late, in the emulated stream: until it runs, they are NaN. A gradient
that is sent without waiting for its stream is therefore wrong.

Usage: test_torch_cuda.py BASIND LIBBASIN
"""

import contextlib
import ctypes
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

from jobs import require

require("numpy", "torch")
os.environ["BASIN_LIBRARY"] = sys.argv[2]  # For what is tested in this process.
import test_state  # noqa: E402 - ends above when there is no torch
import torch  # noqa: E402
from torch import nn  # noqa: E402
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
)

# ---- the stand-in


class Cuda:
    """Streams of two emulated devices, one of each. `index_of` says where a tensor is."""

    def __init__(self, index_of: Callable[[torch.Tensor], int]) -> None:
        from basin import _abi

        self._lib = _abi.lib
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
        self.streams = [self._lib.basin_emulated_stream(index) for index in range(2)]
        self.captured = False
        self.late: list[torch.Tensor] = []

    def write_late(self, tensor: torch.Tensor) -> None:
        """The tensor gets its value in the stream of its device."""
        value = tensor.detach().clone()
        self.late.append(value)
        tensor.detach().fill_(float("nan"))
        stream = self.streams[self.index_of(tensor)]
        size = value.numel() * value.element_size()
        self._lib.basin_emulated_copy(stream, tensor.data_ptr(), value.data_ptr(), size)

    def hold(self, held: bool) -> None:
        """What the streams are given does not run while they are held."""
        for stream in self.streams:
            self._lib.basin_emulated_hold(stream, held)

    def synchronize(self) -> None:
        self.hold(False)
        for stream in self.streams:
            self._lib.basin_emulated_synchronize(stream)
        self.late.clear()

    def on_host(self, tensor: torch.Tensor) -> torch.Tensor:
        """A copy to the host, which waits for the stream."""
        if self.index_of(tensor) >= 0:
            self.synchronize()
        return tensor.detach().clone(memory_format=torch.contiguous_format)

    def calls(self, index: int = 0) -> int:
        return int(self._lib.basin_emulated_calls(index))

    def fail(self, call: int, index: int = 0) -> None:
        self._lib.basin_emulated_fail(index, call)


@contextlib.contextmanager
def cuda(index_of: Callable[[torch.Tensor], int] = lambda _: 0) -> Iterator[Cuda]:
    """Tensors count as those of CUDA devices."""
    from basin.torch import device
    from basin.torch.lane import GradientLane
    from basin.worker import Worker

    here = Cuda(index_of)
    memory_of, copy_device = GradientLane.memory_of, Worker.copy_device

    def late_memory_of(lane: Any, of: Any) -> Any:
        memory = memory_of(lane, of)
        for each in memory:
            if index_of(each) >= 0:
                here.write_late(each)
        return memory

    def copy_and_synchronize(*arguments: Any) -> None:
        # What torch does next would be in the stream.
        copy_device(*arguments)
        here.synchronize()

    with (
        mock.patch.object(device, "cuda_index", index_of),
        mock.patch.object(device, "cuda_indices", lambda each: list(map(index_of, each))),
        mock.patch.object(device, "stream_of", lambda index: here.streams[index]),
        mock.patch.object(device, "is_captured", lambda: here.captured),
        mock.patch.object(device, "on_host", here.on_host),
        mock.patch.object(GradientLane, "memory_of", late_memory_of),
        mock.patch.object(Worker, "copy_device", copy_and_synchronize),
    ):
        yield here


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
        for step in range(3):
            optimizer.zero_grad()
            x = torch.randn(4, 5, generator=torch.Generator().manual_seed(100 * rank + step))
            loss = net(x).square().mean()
            if rank == 0 and step == 1:
                loss = loss * float("inf")
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
            scales.append(scaler.get_scale())
        return [parameter.detach().clone() for parameter in net.parameters()], scales


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
        self.assert_same_bits([each for each, _ in on_cpu + on_cuda])
        self.assertEqual({(8.0, 4.0, 4.0)}, {tuple(scales) for _, scales in on_cpu + on_cuda})


class LateJoiners(test_state.LateJoinersTest):
    def test_a_late_joiner_continues_with_the_state_of_the_others(self) -> None:
        for way in ("DistributedOptimizer", "DistributedDataParallel"):
            with self.subTest(way):
                outcomes = self.run_job(joined_late, 3, way, start=2, least=2, most=3)
                self.assert_level([outcome for outcome, _ in outcomes], [2])


class Refusals(TorchTest):
    def test_a_captured_graph_is_refused_with_the_way_out(self) -> None:
        for text, got in self.run_job(captured):
            self.assertRegex(text, r"CUDA graph is captured.*no_sync\(\).*sync_gradients\(\)")
            self.assert_close(average(1), got)

    def test_fault_A13_a_failing_device_withdraws_the_gradients_of_its_worker(self) -> None:
        text, *others = self.run_job(failing)
        self.assertRegex(text, "tensor .* and 3 more.*emulated device.*train on the CPU")
        self.assertEqual(WORKERS - 1, len(others))
        self.assert_same_bits(others)


if __name__ == "__main__":
    main()
