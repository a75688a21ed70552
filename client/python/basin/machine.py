# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""The place of this process among the workers of its machine, from its launcher: basin-run,
torchrun, mpirun, srun and those that set the variables of one of them."""

import ctypes
from ctypes import byref

from basin import _abi
from basin.errors import Unsupported
from basin.worker import call


def local_rank() -> int:
    """From 0. Raises InvalidArgument, as all of these do, for a variable that is no number."""
    return int(_read().local_rank)


def local_size() -> int:
    """The number of workers that the launcher has started on this machine."""
    return int(_read().local_size)


def number() -> int:
    """The number of this machine among those of the workers. Raises Unsupported if the launcher
    does not say it, as mpirun with ranks that do not fill one machine after the other."""
    return int(_numbered().number)


def machines() -> int:
    """How many machines there are. Raises Unsupported as number() does."""
    return int(_numbered().machines)


def _numbered() -> _abi.Machine:
    machine = _read()
    if machine.machines == 0:
        raise Unsupported(
            "The launcher does not number its machines, and its ranks do not fill one machine "
            "after the other. Start it with consecutive ranks on each machine (mpirun --map-by "
            "slot), or do not ask for the number of the machine."
        )
    return machine


def _read() -> _abi.Machine:
    machine = _abi.Machine(size=ctypes.sizeof(_abi.Machine))
    call("read_machine", byref(machine))
    return machine
