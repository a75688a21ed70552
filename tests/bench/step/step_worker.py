# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""One worker of step_time.py: trains a model on noise, and prints a line of JSON.

seconds  of each counted step: forward, backward, waits, and the optimizer's step
trainer  CPU seconds of the trainer's thread in a counted step
process  CPU seconds of all threads in a counted step
early    the fraction of its backward that was still to come when an average byte was pushed;
         null if it is unknown
"""

import argparse
import ctypes
import itertools
import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

# Widths of the layers of the perceptrons.
LAYERS = {
    "5M": (784, 1600, 1600, 800),
    "50M": (1024, 4096, 4096, 4096, 3000),
    "600x32": (32,) * 301,  # 600 tensors of 32x32 and of 32.
}
WARM_UP = 2


class Pushes:
    """Records when gradients are pushed, from the lane's calls to the library."""

    def __init__(self, worker: Any, pushed: Any) -> None:
        """`pushed`: the structure of a tensor in push_many()."""
        self._layout = np.dtype(
            {
                "names": ["bytes"],
                "formats": [np.uintp],
                "offsets": [pushed.bytes.offset],
                "itemsize": ctypes.sizeof(pushed),
            }
        )
        self._times: list[tuple[float, int]] = []
        self._begin = 0.0
        self.early: list[float] = []
        push, push_many, commit = worker.push, worker.push_many, worker.commit

        def pushing(lane: int, tensor: int, address: int, size: int) -> None:
            self._times.append((time.perf_counter(), size))
            push(lane, tensor, address, size)

        def committing(lane: int) -> None:
            end = time.perf_counter()
            total = sum(size for _, size in self._times)
            left = sum(size * (end - at) for at, size in self._times)
            self.early.append(left / total / (end - self._begin))
            self._times.clear()
            commit(lane)

        def pushing_many(lane: int, tensors: Any, count: int) -> None:
            sizes = np.frombuffer(tensors, self._layout, count)["bytes"]  # A loop would count.
            self._times.append((time.perf_counter(), int(sizes.sum())))
            push_many(lane, tensors, count)

        worker.push, worker.push_many, worker.commit = pushing, pushing_many, committing

    def backward_begins(self) -> None:
        self._begin = time.perf_counter()


class Transformer(nn.Module):
    """A small language model: 12 layers of width 256, 150 tensors, 10 million parameters. Its
    gradients become ready in an order that is not the reverse of its parameters'."""

    VOCABULARY = 1000
    LENGTH = 32
    BATCH = 2

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(self.VOCABULARY, 256)
        self.positions = nn.Embedding(self.LENGTH, 256)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(256, 8, 1024, dropout=0.0, batch_first=True)
            for _ in range(12)
        )
        self.norm = nn.LayerNorm(256)
        self.head = nn.Linear(256, self.VOCABULARY)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        x = self.tokens(inputs) + self.positions.weight
        for layer in self.layers:
            x = layer(x)
        scores: torch.Tensor = self.head(self.norm(x))
        return scores.flatten(0, 1)


class Shapes(nn.Module):
    """Parameters of given shapes, each with a gradient that costs next to nothing to compute: the
    tensors of a model without its arithmetic."""

    def __init__(self, shapes: list[tuple[int, ...]]) -> None:
        super().__init__()
        self.tensors = nn.ParameterList(torch.randn(shape) * 0.01 for shape in shapes)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        total = inputs.mean()
        return torch.stack([each.sum() * total for each in self.tensors]).sum()


def resnet50() -> list[tuple[int, ...]]:
    """The 161 tensors of ResNet-50, 25.6 million parameters, in the order of the model."""
    shapes: list[tuple[int, ...]] = [(64, 3, 7, 7), (64,), (64,)]
    before = 64
    for width, blocks in ((64, 3), (128, 4), (256, 6), (512, 3)):
        for block in range(blocks):
            for shape in ((width, before, 1, 1), (width, width, 3, 3), (4 * width, width, 1, 1)):
                shapes += [shape, (shape[0],), (shape[0],)]
            if block == 0:
                shapes += [(4 * width, before, 1, 1), (4 * width,), (4 * width,)]
            before = 4 * width
    return [*shapes, (1000, 2048), (1000,)]


def bert_base() -> list[tuple[int, ...]]:
    """The 199 tensors of BERT-base, 109.5 million parameters, in the order of the model."""
    shapes: list[tuple[int, ...]] = [(30522, 768), (512, 768), (2, 768), (768,), (768,)]
    for _ in range(12):
        for rows, columns in ((768, 768), (768, 768), (768, 768), (768, 768)):
            shapes += [(rows, columns), (rows,)]
        shapes += [(768,), (768,), (3072, 768), (3072,), (768, 3072), (768,), (768,), (768,)]
    return [*shapes, (768, 768), (768,)]


SHAPES = {"resnet50": resnet50, "bert": bert_base}


def make_model(name: str) -> nn.Module:
    torch.manual_seed(1)
    if name == "transformer":
        return Transformer()
    if name in SHAPES:
        return Shapes(SHAPES[name]())
    layers: list[nn.Module] = []
    for inputs, outputs in itertools.pairwise(LAYERS[name]):
        layers += [nn.Linear(inputs, outputs), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def make_data(options: argparse.Namespace) -> tuple[torch.Tensor, torch.Tensor]:
    """Inputs and targets, of noise."""
    torch.manual_seed(options.rank)
    if options.model == "transformer":
        shape = (Transformer.BATCH, Transformer.LENGTH)
        inputs, targets = (torch.randint(Transformer.VOCABULARY, shape) for _ in range(2))
        return inputs, targets.flatten()
    widths = LAYERS.get(options.model, (1, 1))
    inputs = torch.randn(options.batch, widths[0])
    return inputs, torch.randint(widths[-1], (options.batch,))


def end_gloo(store: torch.distributed.Store, options: argparse.Namespace) -> None:
    """Waits, so that no worker closes its connections while another is in its last step, which
    could then wait forever."""
    store.set(f"over/{options.rank}", "")
    store.wait([f"over/{rank}" for rank in range(options.workers)])
    torch.distributed.destroy_process_group()


def train(options: argparse.Namespace) -> dict[str, Any]:
    model = make_model(options.model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    pushes: Pushes | None = None
    end: Callable[[], None] = lambda: None  # noqa: E731
    if options.through == "basin":
        sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "client/python"))
        import basin.torch

        basin.torch.init(
            options.address,
            worker_id=f"w{options.rank}",
            max_workers=options.workers,
            fresh=True,
            log_level="error",
        )
        pushes = Pushes(basin.torch.context.current().client.worker, basin._abi.Pushed)
        optimizer = basin.torch.DistributedOptimizer(optimizer, model.named_parameters())
        end = basin.torch.shutdown
    elif options.through == "hooks":
        for parameter in model.parameters():
            parameter.register_post_accumulate_grad_hook(lambda _: None)
    elif options.through == "gloo":
        store = torch.distributed.FileStore(options.store, options.workers)
        torch.distributed.init_process_group(
            "gloo", store=store, rank=options.rank, world_size=options.workers
        )
        model = nn.parallel.DistributedDataParallel(model)
        end = lambda: end_gloo(store, options)  # noqa: E731

    inputs, targets = make_data(options)
    seconds = []
    trainer = process = 0.0
    for step in range(WARM_UP + options.steps):
        if step == WARM_UP:
            trainer, process = time.thread_time(), time.process_time()
        begin = time.perf_counter()
        optimizer.zero_grad()
        output = model(inputs)
        loss = nn.functional.cross_entropy(output, targets) if output.dim() > 0 else output
        if pushes is not None:
            pushes.backward_begins()
        loss.backward()
        optimizer.step()
        seconds.append(time.perf_counter() - begin)
    trainer, process = time.thread_time() - trainer, time.process_time() - process
    end()
    return {
        "seconds": seconds[WARM_UP:],
        "trainer": trainer / options.steps,
        "process": process / options.steps,
        "early": None if pushes is None else statistics.median(pushes.early[WARM_UP:]),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--through", choices=("alone", "hooks", "basin", "gloo"), required=True)
    parser.add_argument("--model", choices=(*LAYERS, *SHAPES, "transformer"), required=True)
    parser.add_argument("--rank", type=int, required=True)
    parser.add_argument("--workers", type=int, required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--batch", type=int, required=True)
    parser.add_argument("--address", help="of basind")
    parser.add_argument("--store", help="a file for torch.distributed")
    options = parser.parse_args()
    torch.set_num_threads(1)
    print(json.dumps(train(options)), flush=True)


if __name__ == "__main__":
    main()
