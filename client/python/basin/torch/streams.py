# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""Random numbers that a restored run repeats: at each step boundary the generators of the process
are seeded from the seed of the run, the id of the worker and the step, and from nothing else."""

import hashlib
import random

import numpy as np
import torch


def seed_of(seed: int, worker: str, step: int) -> int:
    """From 0 to 2**64 - 1: the first 8 bytes, little-endian, of the SHA-256 of
    "{seed}/{worker}/{step}"."""
    digest = hashlib.sha256(f"{seed}/{worker}/{step}".encode()).digest()
    return int.from_bytes(digest[:8], "little")


def begin(seed: int, worker: str, step: int) -> None:
    """Seeds torch (all devices), NumPy and random for this step of this worker."""
    derived = seed_of(seed, worker, step)
    torch.manual_seed(derived)
    np.random.seed([derived & 0xFFFFFFFF, derived >> 32])
    random.seed(derived)
