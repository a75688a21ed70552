# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""One rank of run.py: trains a small convolutional network, or checks results bit for bit, and
prints a line of JSON.

Its data, its model and all kernels of the device are deterministic, so that two runs differ only by
what reduces the gradients.
"""

import argparse
import contextlib
import hashlib
import json
import os
import time
from collections.abc import Callable, Iterable, Iterator
from datetime import timedelta
from typing import Any

# Before the first product of matrices on a device: without it cuBLAS is not deterministic.
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

import torch
from torch import nn

CLASSES = 10
PASSES = 2  # Backwards of a step in the case "accumulate".
# In the case "amp" the gradients of the first rank are not finite in this step: all must skip it.
OVERFLOW = 2


def make_model(width: int) -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(
        nn.Conv2d(3, 32, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Conv2d(32, 64, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(64 * 8 * 8, width),
        nn.ReLU(),
        nn.Linear(width, width),
        nn.ReLU(),
        nn.Linear(width, CLASSES),
    )


def batches(rank: int, count: int, size: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Noisy pictures of CLASSES kinds; each rank has its own."""
    kinds = torch.randn(CLASSES, 3, 32, 32, generator=torch.Generator().manual_seed(2))
    generator = torch.Generator().manual_seed(1000 + rank)
    for _ in range(count):
        labels = torch.randint(CLASSES, (size,), generator=generator)
        noise = torch.randn(size, 3, 32, 32, generator=generator)
        yield kinds[labels] + noise, labels


def digest(tensors: Iterable[torch.Tensor]) -> str:
    hashed = hashlib.sha256()
    for tensor in tensors:
        hashed.update(
            tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().tobytes()
        )
    return hashed.hexdigest()


def synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def start_basin(options: argparse.Namespace) -> None:
    import basin.torch

    basin.torch.init(
        options.address,
        job=options.case,
        worker_id=f"w{options.rank}",
        max_workers=options.workers,
        fresh=True,
    )


# ---- training


class Basin:
    def __init__(self, options: argparse.Namespace, model: nn.Module, passes: int) -> None:
        import basin.torch

        start_basin(options)
        basin.torch.broadcast_parameters(model)
        self.model = model
        self.optimizer: Any = basin.torch.DistributedOptimizer(
            sgd(model), model.named_parameters(), backward_passes_per_step=passes
        )

    def no_sync(self) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()  # It counts the passes itself.

    def report(self) -> dict[str, Any]:
        info = self.optimizer.last_round()
        return {"trainers": info.trainers, "contributions": len(info.contributors)}

    def close(self) -> None:
        import basin.torch

        basin.torch.barrier("the end")
        basin.torch.shutdown()


class Ddp:
    """torch's DistributedDataParallel."""

    def __init__(self, options: argparse.Namespace, model: nn.Module) -> None:
        self._rank, self._workers = options.rank, options.workers
        self._store = torch.distributed.FileStore(options.store, options.workers)
        torch.distributed.init_process_group(
            options.through,
            store=self._store,
            rank=options.rank,
            world_size=options.workers,
            timeout=timedelta(seconds=60),
        )
        self.model = nn.parallel.DistributedDataParallel(model)
        self.optimizer: Any = sgd(model)

    def no_sync(self) -> contextlib.AbstractContextManager[None]:
        return self.model.no_sync()

    def report(self) -> dict[str, Any]:
        return {}

    def close(self) -> None:
        # All stay until all have ended.
        self._store.set(f"over/{self._rank}", "")
        self._store.wait([f"over/{rank}" for rank in range(self._workers)])
        torch.distributed.destroy_process_group()


def sgd(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)


def train(options: argparse.Namespace, device: torch.device) -> dict[str, Any]:
    passes = PASSES if options.case == "accumulate" else 1
    half = options.case == "amp"
    # A processor computes in float16 slowly, if at all.
    half_dtype = torch.float16 if device.type == "cuda" else torch.bfloat16
    model = make_model(options.width).to(device)
    through: Basin | Ddp
    through = Basin(options, model, passes) if options.through == "basin" else Ddp(options, model)
    scaler = torch.amp.GradScaler(device.type, init_scale=2.0**10, enabled=half)
    data = [
        (inputs.to(device), labels.to(device))
        for inputs, labels in batches(options.rank, options.steps * passes, options.batch)
    ]
    losses, seconds, skipped = [], [], 0
    for step in range(options.steps):
        synchronize(device)
        begin = time.perf_counter()
        through.optimizer.zero_grad()
        total = torch.zeros((), device=device)
        for inputs, labels in data[step * passes : (step + 1) * passes]:
            is_last = inputs is data[(step + 1) * passes - 1][0]
            with contextlib.nullcontext() if is_last else through.no_sync():
                with torch.autocast(device.type, half_dtype, enabled=half):
                    outputs = through.model(inputs)
                loss = nn.functional.cross_entropy(outputs.float(), labels) / passes
                overflows = half and step == OVERFLOW and options.rank == 0
                scaler.scale(loss * float("inf") if overflows else loss).backward()
            total += loss.detach()
        scaler.step(through.optimizer)
        scale = scaler.get_scale()
        scaler.update()
        skipped += scaler.get_scale() < scale
        synchronize(device)
        seconds.append(time.perf_counter() - begin)
        losses.append(float(total))
    if options.out is not None:
        torch.save([parameter.detach().cpu() for parameter in model.parameters()], options.out)
    report = {
        "losses": losses,
        "seconds": seconds,
        "skipped": skipped,
        "scale": scaler.get_scale(),
        "bytes": sum(parameter.nbytes for parameter in model.parameters()),
        "digest": digest(model.parameters()),
        **through.report(),
    }
    through.close()
    return report


# ---- results bit for bit

SHAPES = ((), (7,), (333, 100), (1 << 14,), ((1 << 16) + 3,), (3, 1 << 19))


def gradients_of(rank: int) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(rank)
    return [torch.randn(shape, generator=generator) for shape in SHAPES]


def check_results(options: argparse.Namespace, device: torch.device) -> dict[str, Any]:
    """Averages of given gradients on the device and on the CPU, in all forms in which they travel.
    The gradients are written behind work that takes the device some time."""
    import basin.torch

    start_basin(options)
    expected = [sum(of) / options.workers for of in zip(*map(gradients_of, range(options.workers)))]
    results: dict[str, list[str]] = {}
    for wire in (None, torch.bfloat16, torch.float16):
        for where in (device, torch.device("cpu")):
            got = average(options.rank, where, wire)
            bound = 0.0 if wire is None else 2.0**-7
            for i, (result, wanted) in enumerate(zip(got, expected, strict=True)):
                error = float((result - wanted).abs().max() / wanted.abs().max())
                if not error <= bound:
                    raise SystemExit(
                        f"train: the average of tensor {i} on {where}, sent as {wire or 'float32'},"
                        f" is wrong by {error:.3g}, and {bound:.3g} is allowed"
                    )
            results.setdefault(str(wire or torch.float32), []).append(digest(got))
    basin.torch.barrier("the end")
    basin.torch.shutdown()
    different = [wire for wire, (there, here) in results.items() if there != here]
    if different:
        raise SystemExit(f"train: {device} and the CPU have other bits, sent as {different}")
    return {"digest": digest([]) if not results else " ".join(one for one, _ in results.values())}


def average(rank: int, device: torch.device, wire: torch.dtype | None) -> list[torch.Tensor]:
    import basin.torch

    parameters = {
        f"{device.type} {wire} {i}": nn.Parameter(torch.zeros(shape, device=device))
        for i, shape in enumerate(SHAPES)
    }
    gradients = [each.to(device) for each in gradients_of(rank)]
    optimizer = basin.torch.DistributedOptimizer(
        torch.optim.SGD(parameters.values(), lr=1.0), parameters.items(), wire_dtype=wire
    )
    large = torch.ones(512, 512, device=device)
    for _ in range(20):
        large = large @ large / 512
    # All are exactly 1, and the backward waits for them.
    factor = large[0, 0]
    torch.stack(
        [(each * given * factor).sum() for each, given in zip(parameters.values(), gradients)]
    ).sum().backward()
    optimizer.step()
    return [each.grad.cpu() for each in parameters.values() if each.grad is not None]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--through", choices=("basin", "gloo", "nccl"), required=True)
    parser.add_argument("--case", choices=tuple(CASES), required=True)
    parser.add_argument("--device", required=True, help="cpu, or cuda:N")
    parser.add_argument("--rank", type=int, required=True)
    parser.add_argument("--workers", type=int, required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--batch", type=int, required=True, help="samples of a backward")
    parser.add_argument("--width", type=int, required=True, help="of the model's layers")
    parser.add_argument("--address", help="of the aggregator")
    parser.add_argument("--store", help="the file through which the ranks of DDP meet")
    parser.add_argument("--out", help="the file for the parameters at the end")
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    device = torch.device(options.device)
    if device.type == "cuda":
        torch.cuda.set_device(device)
    print(json.dumps(CASES[options.case](options, device)), flush=True)


CASES: dict[str, Callable[[argparse.Namespace, torch.device], dict[str, Any]]] = {
    "plain": train,
    "amp": train,
    "accumulate": train,
    "results": check_results,
}


if __name__ == "__main__":
    main()
