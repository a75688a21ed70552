# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""The start of a worker: init(), the line with the options, and warnings of code that is alone.

Usage: test_torch_start.py BASIND LIBBASIN
"""

import contextlib
import io
import re
import subprocess
import sys
from typing import Any

from jobs import logged, message, require

require("numpy", "torch")
import torch  # noqa: E402 - ends above when there is none
from torch import nn  # noqa: E402
from torch_jobs import (  # noqa: E402
    WORKERS,
    TorchTest,
    batch,
    expect,
    main,
    model,
    process_group_of_one,
    session,
    sgd,
)

# Prints whether torch._dynamo was imported before init(), and when init() connects.
CONNECTS = """
import sys
from unittest import mock
import basin.torch

def connect(*_, **__):
    print(imported, "torch._dynamo" in sys.modules)
    raise SystemExit

imported = "torch._dynamo" in sys.modules
with mock.patch("basin.client.connect", connect):
    basin.torch.init()
"""

# ---- workers


def not_initialized(rank: int) -> Any:
    import basin.torch as bt

    texts = [expect("FailedPrecondition", bt.rank)]
    before = torch.autograd.backward
    with session():
        wrapped = torch.autograd.backward is not before
        texts.append(expect("FailedPrecondition", bt.init))
    return texts, wrapped, torch.autograd.backward is before, bt.is_initialized()


def start_lines(rank: int) -> Any:
    import basin

    lines = []
    with process_group_of_one(), session(min_workers=2) as bt:
        half, summed = torch.float16, bt.Sum
        starts: tuple[Any, ...] = (
            lambda net: sgd(net, bt),
            lambda net: sgd(net, bt, op=summed, wire_dtype=torch.bfloat16, batch_size=32),
            lambda net: bt.DistributedDataParallel(net, op=summed),
            lambda net: bt.DistributedDataParallel(net, wire_dtype=half, batch_size=8),
            lambda net: bt.DDPState(nn.parallel.DistributedDataParallel(net)),
            lambda net: bt.DDPState(
                nn.parallel.DistributedDataParallel(net),
                op=summed,
                wire_dtype=torch.float32,
                batch_size=1,
            ),
            lambda net: sgd(
                net,
                bt,
                op=bt.WeightedAverage,
                weight_by="tokens",
                contributes="sum",
                gradient_predivide_factor="auto",
                backward_passes_per_step=4,
            ),
            lambda net: bt.DistributedDataParallel(
                net,
                op=bt.WeightedAverage,
                weight_by="samples",
                contributes="mean",
                prescale_factor=0.5,
                postscale_factor=1e-8,
                gradient_predivide_factor=4,
            ),
            lambda net: sgd(net, bt, divide_by_present=True),
        )
        for start in starts:
            with contextlib.redirect_stderr(io.StringIO()) as written:
                start(model())
            lines.append(written.getvalue())
        return bt.rank(), lines, basin.__version__


def lonely(rank: int) -> Any:
    from torch.utils.data.distributed import DistributedSampler

    data: Any = list(range(12))
    before = DistributedSampler.__iter__, nn.SyncBatchNorm.forward
    with logged() as told:
        with session() as bt:
            right: Any = DistributedSampler(
                data, num_replicas=bt.size(), rank=bt.rank(), shuffle=False
            )
            mine = list(right)
            nn.BatchNorm1d(5).double()(batch(rank))
            quiet = list(told)
            with process_group_of_one():
                every: Any = [list(DistributedSampler(data, shuffle=False)) for _ in range(2)]
            norm = nn.SyncBatchNorm(5).double()
            norm(batch(rank))
            norm.eval()(batch(rank))
        after = DistributedSampler.__iter__, nn.SyncBatchNorm.forward
        told_at_end = list(told)
        list(DistributedSampler(data, num_replicas=1, rank=0))
    quiet_after = told_at_end == told
    return mine, quiet, [len(each) for each in every], told, before == after, quiet_after


def resized(rank: int) -> Any:
    """Rank 2 is out of data after a step, while the others go on with their samplers."""
    from torch.utils.data.distributed import DistributedSampler

    data: Any = list(range(12))
    with logged() as told, session(min_workers=1) as bt:
        net = model()
        bt.broadcast_parameters(net)
        optimizer = sgd(net, bt)
        leaves = bt.rank() == 2
        sampler: Any = DistributedSampler(data, num_replicas=bt.size(), rank=bt.rank())
        for _ in sampler:
            optimizer.zero_grad()
            net(batch(rank)).sum().backward()
            optimizer.step()
            if leaves:
                bt.finished()
                break
        while not leaves and bt.size() != 2:  # The next verdict.
            optimizer.zero_grad()
            net(batch(rank)).sum().backward()
            optimizer.step()
        if leaves:
            bt.shutdown()
        else:
            anew: Any = DistributedSampler(data, num_replicas=2, rank=bt.rank())
            list(anew)
        return leaves, told


def strict(rank: int) -> Any:
    """Like resized(), with strict_data=True. The others go on with another sampler."""
    from torch.utils.data.distributed import DistributedSampler

    data: Any = list(range(12))
    with session(min_workers=1, strict_data=True) as bt:
        net = model()
        bt.broadcast_parameters(net)
        optimizer = sgd(net, bt)
        leaves = bt.rank() == 2
        sampler: Any = DistributedSampler(data, num_replicas=bt.size(), rank=bt.rank())
        sampler.set_epoch(3)
        list(sampler)
        told, steps = "", 0
        while told == "":
            optimizer.zero_grad()
            net(batch(rank)).sum().backward()
            steps += 1
            told = message("FailedPrecondition", optimizer.step)
            if leaves:
                bt.shutdown()
                return None
        anew: Any = DistributedSampler(data, num_replicas=bt.size(), rank=bt.rank())
        taken = len(list(anew))
        optimizer.zero_grad()
        net(batch(rank)).sum().backward()
        optimizer.step()
        with process_group_of_one():
            every = message("FailedPrecondition", iter, DistributedSampler(data))
        return told, steps, taken, every, [p.detach().clone() for p in net.parameters()]


# ---- checks


class StartTest(TorchTest):
    def test_init_and_shutdown(self) -> None:
        for texts, wrapped, unwrapped, initialized in self.run_job(not_initialized):
            self.assertIn("init()", texts[0])
            self.assertIn("shutdown()", texts[1])
            self.assertEqual((True, True, False), (wrapped, unwrapped, initialized))

    def test_what_torch_imports_late_is_imported_before_the_others_wait(self) -> None:
        environment = self.jobs.environment("imports", 0, 1)
        command = [sys.executable, "-c", CONNECTS]
        ran = subprocess.run(
            command, env=environment, stdout=subprocess.PIPE, text=True, check=True
        )
        self.assertEqual("False True\n", ran.stdout)

    def test_one_line_reports_the_choice(self) -> None:
        same = "wire dtype same, batch unknown"
        average, total, of_sums, of_means = (
            "op AVERAGE, divided by the number of workers",
            "op SUM, divided by nothing",
            "op WEIGHTED_AVERAGE of sums, divided by the tokens of all",
            "op WEIGHTED_AVERAGE of means, divided by the samples of all",
        )
        chosen = (
            f"{average}, {same}",
            f"{total}, wire dtype bfloat16, batch 32 of this worker",
            f"{total}, {same}",
            f"{average}, wire dtype float16, batch 8 of this worker",
            f"{average}, {same}",
            f"{total}, wire dtype float32, batch 1 of this worker",
            f"{of_sums}, predivide auto, wire dtype same, 4 backwards per step, batch unknown",
            f"{of_means}, prescale 0.5, postscale 1e-08, predivide 4, {same}",
            f"{average} that have reached a parameter, {same}",
        )
        for worker, (rank, lines, version) in enumerate(self.run_job(start_lines)):
            self.assertEqual(len(chosen), len(lines))
            for expected, line in zip(chosen, lines):
                self.assertEqual(
                    f"basin: worker w{worker} of job JOB: rank {rank} of {WORKERS} (min 2, max "
                    f"{WORKERS}), {expected}, basin {version}, torch {torch.__version__}\n",
                    re.sub("of job [^:]*:", "of job JOB:", line),
                )

    def test_code_for_one_worker_is_reported_once(self) -> None:
        outcomes = self.run_job(lonely)
        self.assertEqual(list(range(12)), sorted(i for mine, *_ in outcomes for i in mine))
        for _, quiet, everything, told, restored, quiet_after in outcomes:
            self.assertEqual([], quiet)
            self.assertEqual([12, 12], everything)
            self.assertEqual(2, len(told))
            self.assertRegex(told[0], "DistributedSampler .* 3 workers.*num_replicas=basin")
            self.assertRegex(told[1], "SyncBatchNorm .* 3 workers.*BatchNorm")
            self.assertTrue(restored)
            self.assertTrue(quiet_after)

    def test_a_sampler_that_outlives_a_resize_is_reported_once(self) -> None:
        for leaves, told in self.run_job(resized):
            about = [text for text in told if "DistributedSampler" in text]
            if leaves:
                self.assertEqual([], about)
                continue
            self.assertEqual(1, len(about), told)
            self.assertRegex(about[0], "among 3 workers, but the job has 2 now.*ElasticSampler")

    def test_with_strict_data_it_is_refused_on_all_workers_after_the_same_step(self) -> None:
        stayed = [each for each in self.run_job(strict) if each is not None]
        told, steps, taken, every, parameters = zip(*stayed)
        self.assertEqual(2, len(stayed))
        self.assertEqual(1, len(set(steps)))
        self.assertEqual((6, 6), taken)
        self.assert_same_bits(list(parameters))
        for text in told:
            self.assertRegex(
                text,
                "among 3 workers, but the job has 2 now.*ElasticSampler.*in epoch 3 after "
                f"{steps[0]} steps of it.*this worker had 4 samples",
            )
        for text in every:
            self.assertRegex(text, "DistributedSampler .* 2 workers.*num_replicas=basin")


if __name__ == "__main__":
    main()
