# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""The states of a Trainer, such as momentum and the number of updates, from one worker to all."""

import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from basin.client import Client


def broadcast_states(client: Client, trainer: Any, root_rank: int = 0) -> None:
    """Gives the trainers of all workers the states of the root's: what trainer.save_states() has,
    which are the arrays of the optimizer and its numbers, such as the learning rate and the number
    of updates, with its schedule.

    trainer:   of basin.mxnet or of Gluon, with the same optimizer and parameters on all workers

    All workers make this call together; the root may just have called load_states(). MXNet pickles
    the states, so use it only among workers that trust each other.
    """
    client.check_begins("broadcast_states()")
    is_root = client.place.has(client.check_root(root_rank))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "states"
        if is_root:
            trainer.save_states(str(path))
        packed = np.fromfile(path, np.uint8) if is_root else np.zeros(0, np.uint8)
        size = client.broadcast(np.array(packed.size), root_rank=root_rank)
        if not is_root:
            packed = np.zeros(int(size), np.uint8)
        received = client.broadcast(packed, root_rank=root_rank)
        if not is_root:
            received.tofile(path)
            trainer.load_states(str(path))
    # The root may still be asked for parameters, which it has given before this.
    client.note_served()
