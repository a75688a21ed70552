# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""One worker of links.py --order: trains a model of which it has only the sizes.

Prints a line of JSON with the seconds of each step: as measured, until the results of the first
layer are handed over, and as they would be if a layer were computed when its results have arrived,
without a verdict.

A computation is a wait, as for a trainer whose model is on a GPU. Each layer takes the same part of
the backward, which begins with the last layer, and of the forward. A layer consists of tensors of
at most 256 KiB, so that a large one can be interrupted by one that is more urgent.
"""

import argparse
import ctypes
import heapq
import json
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "client/python"))
from basin import _abi
from basin.spec import Op, RoundSpec
from basin.worker import Result, TensorSpec, Worker

PIECE = 256 << 10
AHEAD = 256 << 10  # Bytes that the cable has to send when it is given more.
WARM_UP = 2


def wait_until(moment: float) -> None:
    threading.Event().wait(max(0.0, moment - time.perf_counter()))


class Layer:
    """Its tensors in a lane, which is its own or that of all layers."""

    def __init__(self, worker: Worker, lane: str, number: int, size: int) -> None:
        self.lane_name = lane
        self.sizes = [min(PIECE, size - at) for at in range(0, size, PIECE)]
        self.gradients = [(ctypes.c_float * (each // 4))() for each in self.sizes]
        self.lane, self.tensors = worker.register(
            lane,
            _abi.GRADIENT,
            [
                TensorSpec(f"layer{number}.{piece}", _abi.F32, (each // 4,))
                for piece, each in enumerate(self.sizes)
            ],
        )

    def push(self, worker: Worker, piece: int) -> None:
        address = ctypes.addressof(self.gradients[piece])
        worker.push(self.lane, self.tensors[piece], address, self.sizes[piece])

    def take(self, result: Result) -> None:
        for tensor, gradient, size in zip(self.tensors, self.gradients, self.sizes):
            result.copy(tensor, ctypes.addressof(gradient), size)


def plan(layers: list[list[int]], options: argparse.Namespace) -> list[tuple[float, int, int]]:
    """When a step pushes each piece of each layer, in seconds: when it is ready and the cable has
    sent almost everything before it, so that an urgent one overtakes those that wait. All workers
    have the same plan: a result waits for the last of them."""
    ahead = AHEAD / options.rate
    each = options.backward / len(layers)
    coming = [(each * (len(layers) - number), number) for number in range(len(layers))]
    ready: list[tuple[int, int]] = []
    pushes = []
    now = sent = 0.0
    while coming or ready:
        if not ready:
            now = max(now, coming[-1][0])
        while coming and coming[-1][0] <= now:
            number = coming.pop()[1]
            urgency = number if options.order == "first" else -number
            for piece in range(len(layers[number])):
                heapq.heappush(ready, (urgency, piece))
        urgency, piece = heapq.heappop(ready)
        number = abs(urgency)
        pushes.append((now, number, piece))
        sent = max(sent, now) + layers[number][piece] / options.rate
        now = max(now, sent - ahead)
    return pushes


class Trainer:
    def __init__(self, worker: Worker, options: argparse.Namespace) -> None:
        self._worker = worker
        self._options = options
        self._layers = [
            Layer(
                worker,
                f"layer{number}" if options.rounds == "each" else "model",
                number,
                int(kib) << 10,
            )
            for number, kib in enumerate(options.kib.split(","))
        ]
        self._lanes = sorted({layer.lane for layer in self._layers})
        self._plan = plan([layer.sizes for layer in self._layers], options)

    def backward(self) -> None:
        for lane in self._lanes:
            self._worker.begin(lane, RoundSpec(Op.AVERAGE))
        left = Counter(self._layers[number].lane for _, number, _ in self._plan)
        begin = time.perf_counter()
        for after, number, piece in self._plan:
            layer = self._layers[number]
            wait_until(begin + after)
            layer.push(self._worker, piece)
            left[layer.lane] -= 1
            if left[layer.lane] == 0:
                self._worker.commit(layer.lane)

    def forward(self) -> float:
        """Computes each layer when the one before it is computed and its round has ended. Returns
        when the first one could begin."""
        results: dict[int, Result] = {}
        moments = []
        for layer in self._layers:
            if layer.lane not in results:
                results[layer.lane] = self._worker.wait(layer.lane, 60)
            layer.take(results[layer.lane])
            moments.append(time.perf_counter())
        wait_until(self._computed(moments))
        return moments[0]

    def without_verdict(self, begin: float, arrived: dict[str, float]) -> float:
        """The seconds of a step from `begin`, if the results of a lane arrived at this moment."""
        return self._computed([arrived[layer.lane_name] for layer in self._layers]) - begin

    def _computed(self, moments: list[float]) -> float:
        """When the forward has ended whose layers can be computed from these moments on."""
        end = 0.0
        for moment in moments:
            end = max(end, moment) + self._options.forward / len(moments)
        return end


def arrivals(timeline: Path) -> list[dict[str, float]]:
    """Of each round: when all results of a lane had arrived, by the name of the lane."""
    events = json.loads(timeline.read_text())
    lanes = {
        event["tid"]: event["args"]["name"] for event in events if event["name"] == "thread_name"
    }
    rounds: dict[int, dict[str, float]] = {}
    for event in events:
        if event["name"] == "verdict":
            moments = rounds.setdefault(event["args"]["round"], {})
            moments[lanes[event["tid"]]] = event["ts"] / 1e6
    return [moments for _, moments in sorted(rounds.items())]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--address", required=True, help="of basind")
    parser.add_argument("--rank", type=int, required=True)
    parser.add_argument("--workers", type=int, required=True)
    parser.add_argument("--streams", type=int, required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--kib", required=True, help="of each layer, by commas")
    parser.add_argument("--backward", type=float, required=True, help="seconds")
    parser.add_argument("--forward", type=float, required=True, help="seconds")
    parser.add_argument("--rounds", choices=("one", "each"), required=True)
    parser.add_argument(
        "--order", choices=("last", "first"), required=True, help="the layers that go first"
    )
    parser.add_argument("--rate", type=float, required=True, help="bytes per second of the cable")
    options = parser.parse_args()
    folder = tempfile.TemporaryDirectory()
    timeline = Path(folder.name) / "timeline"
    worker = Worker(
        {
            "address": options.address,
            "worker_id": f"w{options.rank}",
            "max_workers": str(options.workers),
            "streams": str(options.streams),
            "fresh": "true",
            "timeline": str(timeline),
        }
    )
    trainer = Trainer(worker, options)
    worker.ready()
    worker.await_member(60)
    begins, seconds, first = [], [], []
    for _ in range(WARM_UP + options.steps):
        begins.append(time.time())
        begin = time.perf_counter()
        trainer.backward()
        first.append(trainer.forward() - begin)
        seconds.append(time.perf_counter() - begin)
    worker.finished()
    worker.leave()
    worker.close()
    without = [
        trainer.without_verdict(begin, moments)
        for begin, moments in zip(begins, arrivals(timeline))
    ]
    measured = {"seconds": seconds, "first": first, "without_verdict": without}
    print(json.dumps({name: each[WARM_UP:] for name, each in measured.items()}), flush=True)


if __name__ == "__main__":
    main()
