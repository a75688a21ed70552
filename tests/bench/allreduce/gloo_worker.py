# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""One worker of an all-reduce through torch.distributed with Gloo; run by allreduce.py."""

import argparse
import json
import resource
import time

import torch
import torch.distributed as dist


def cpu_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--store", required=True, help="file through which the workers meet")
    parser.add_argument("--rank", type=int, required=True)
    parser.add_argument("--workers", type=int, required=True)
    parser.add_argument("--bytes", type=int, required=True)
    parser.add_argument("--rounds", type=int, required=True)
    options = parser.parse_args()

    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo",
        init_method=f"file://{options.store}",
        rank=options.rank,
        world_size=options.workers,
    )
    gradient = torch.full((options.bytes // 4,), 1.0)
    dist.all_reduce(gradient)  # The warm-up round.
    cpu = 0.0
    seconds = []
    for _ in range(options.rounds):
        gradient.fill_(1.0)
        begin, cpu_before = time.perf_counter(), cpu_seconds()
        dist.all_reduce(gradient)
        seconds.append(time.perf_counter() - begin)
        cpu += cpu_seconds() - cpu_before
    assert gradient[0] == options.workers
    print(json.dumps({"cpu_seconds": cpu, "seconds": seconds}), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
