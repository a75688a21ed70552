# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""Loads the library, and declares the functions of its C interface (_abi.py).

ctypes releases the GIL during each call.
"""

import ctypes
import os
import sys
from pathlib import Path

from basin import _abi
from basin._built import built

LIBRARY = f"libbasin.so.{_abi.ABI_VERSION}"


def _candidates() -> list[Path]:
    named = os.environ.get("BASIN_LIBRARY")
    if named:
        return [Path(named)]
    return [Path(__file__).resolve().parent / LIBRARY, *built(f"client/c/{LIBRARY}")]


def _load() -> ctypes.CDLL:
    if "tensorflow" in sys.modules:
        check_beside_tensorflow()
    candidates = _candidates()
    found = next((path for path in candidates if path.exists()), None)
    if found is None:
        looked = ", ".join(str(path) for path in candidates)
        raise ImportError(
            f"{LIBRARY} is not at {looked}. Build the target basin_c, or set BASIN_LIBRARY to the "
            "library."
        )
    try:
        library = ctypes.CDLL(str(found), _mode())
    except OSError as error:
        raise ImportError(
            f"{found} cannot be loaded: {error}. Build or install it on this machine, or set "
            "BASIN_LIBRARY to another library."
        ) from error
    _declare(library, found)
    return library


def _mode() -> int:
    """How the library is loaded. Other packages of the process, such as TensorFlow, show their own
    protobuf and gRPC to all that is loaded, so this library looks for symbols first in what it was
    linked with. What is preloaded, such as an allocator, has to come before that, as it does for
    everything else."""
    return ctypes.DEFAULT_MODE | (0 if os.environ.get("LD_PRELOAD") else os.RTLD_DEEPBIND)


def check_beside_tensorflow() -> None:
    """Raises ImportError if the library cannot be in one process with TensorFlow."""
    preloaded = os.environ.get("LD_PRELOAD")
    if preloaded:
        raise ImportError(
            f"LD_PRELOAD is {preloaded}, and this process uses TensorFlow, whose protobuf would "
            f"then take the place of that of {LIBRARY}. Start the workers without LD_PRELOAD."
        )


def _declare(library: ctypes.CDLL, found: Path) -> None:
    """Declares the types of each function. The version is checked first, because a library of
    another version may lack functions."""
    for name, result, arguments in _abi.FUNCTIONS:
        function = getattr(library, "basin_" + name, None)
        if function is None:
            if name in ("abi_version", "version"):
                raise ImportError(
                    f"{found} has no basin_{name}, so it is not a library of Basin. Set "
                    f"BASIN_LIBRARY to {LIBRARY}."
                )
            version = library.basin_version().decode()
            raise ImportError(
                f"{found} is of release {version} and has no basin_{name}, which this package "
                "needs. Install a package and a library of the same release."
            )
        function.restype = result
        function.argtypes = arguments
        if name == "abi_version" and function() != _abi.ABI_VERSION:
            raise ImportError(
                f"{found} has version {function()} of the C interface, and this package needs "
                f"{_abi.ABI_VERSION}. Install a package and a library of the same release."
            )


lib = _load()
