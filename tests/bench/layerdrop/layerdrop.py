#!/usr/bin/env python3
# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""The time of a step when workers drop layers (LayerDrop: Fan et al., arXiv:1909.11556).

Each worker trains a transformer of 12 layers, and drops each layer of a step at random with
probability p, so workers mostly drop different layers. Parameters that no backward has reached are
not sent. The steps of all p take turns in one run, so that other load on the machine affects all of
them alike. A step is over when its slowest worker has ended it.

  kept   share of the layers that were not dropped, mean over workers and steps
  pushed bytes that a worker has pushed in a step, relative to p = 0

examples:
  layerdrop.py --build build/release
  layerdrop.py --build build/release --steps 50
"""

import argparse
import json
import statistics
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "allreduce"))
from allreduce import finish, running_basind, start

HERE = Path(__file__).resolve().parent
PROBABILITIES = (0.0, 0.2, 0.5)
LAYERS = 12  # In the worker's model.


def compare(options: argparse.Namespace) -> None:
    build = options.build.resolve()
    with running_basind(build) as (_, address):
        workers = [
            start(
                [
                    *(sys.executable, str(HERE / "layerdrop_worker.py"), f"--address={address}"),
                    *("--p", *map(str, PROBABILITIES)),
                    *(f"--rank={rank}", f"--workers={options.workers}", f"--steps={options.steps}"),
                ],
                BASIN_LIBRARY=str(build / "client" / "c" / "libbasin.so.2"),
            )
            for rank in range(options.workers)
        ]
        reports = [json.loads(line) for line in finish(workers)]
    print("| p | kept | pushed | ms per step | of p = 0 |")
    print("|---|---|---|---|---|")
    full_bytes = full_seconds = 0.0
    for i, p in enumerate(PROBABILITIES):
        of_each = [report[i] for report in reports]
        steps = [max(row[0] for row in rows) for rows in zip(*of_each)]
        seconds = statistics.median(steps)
        pushed = statistics.mean(row[1] for rows in of_each for row in rows)
        kept = statistics.mean(row[2] for rows in of_each for row in rows) / LAYERS
        full_bytes, full_seconds = full_bytes or pushed, full_seconds or seconds
        print(
            f"| {p} | {kept:.2f} | {pushed / full_bytes:.2f} | {seconds * 1e3:.0f} "
            f"| {seconds / full_seconds:.2f} |"
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--build", type=Path, default=Path("build/release"))
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--steps", type=int, default=20, help="of each p")
    compare(parser.parse_args())


if __name__ == "__main__":
    main()
