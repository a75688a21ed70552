# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""A worker that makes calls under one name and under fresh names, in turns, and prints the seconds
of each turn as JSON; run by names.py.

Arguments: the aggregator's address, the rank, the workers, the bytes of a call, the calls of each
kind, the turns, and the fresh names before the first one.
"""

import json
import sys
import time
from collections.abc import Iterable
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "client/python"))
import basin


def main() -> None:
    address = sys.argv[1]
    rank, workers, size, calls, turns, before = map(int, sys.argv[2:])
    array = np.full(size // 4, rank, dtype=np.float32)
    with basin.connect(
        address,
        "names",
        f"w{rank}",
        min_workers=workers,
        max_workers=workers,
        fresh=True,
        log_level="error",
    ) as client:

        def seconds(names: Iterable[str]) -> float:
            began = time.perf_counter()
            for name in names:
                client.allreduce(array, name, op=basin.Sum)
            return time.perf_counter() - began

        each = calls // turns
        seconds(f"before {i}" for i in range(before))
        seconds("used" for _ in range(100))
        took: dict[str, list[float]] = {"used": [], "fresh": []}
        for turn in range(turns):
            took["used"].append(seconds("used" for _ in range(each)))
            took["fresh"].append(seconds(f"fresh {turn} {i}" for i in range(each)))
    print(json.dumps(took))


if __name__ == "__main__":
    main()
