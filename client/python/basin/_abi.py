# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""The C interface (basin/basin.h), declared for ctypes, without any logic.

ctypes releases the GIL during each call.
"""

import ctypes
import os
from ctypes import (
    CFUNCTYPE,
    POINTER,
    Structure,
    c_char_p,
    c_double,
    c_int,
    c_int32,
    c_int64,
    c_size_t,
    c_uint32,
    c_uint64,
    c_void_p,
)
from pathlib import Path

from basin._built import built

ABI_VERSION = 2
LIBRARY = "libbasin.so.2"

READ_ENVIRONMENT = 1
MEMBER = 2
GRADIENT, CALL = 0, 1
COPY, IN_PLACE = 0, 1
SAME_DTYPE = 0
SUM = 1
PHASE_OPEN, PHASE_ENDED, PHASE_ALONE = 0, 1, 2
F64, F32, F16, BF16, I64, I32, U8 = 1, 2, 3, 4, 5, 6, 7
FIT_EXPONENT = -(2**31)
ABORT_NO_CONTRIBUTOR = 1
DEADLINE_EXCEEDED = 14
OUTCOME_UNKNOWN = 13


class Place(Structure):
    _fields_ = (
        ("size", c_size_t),
        ("role", c_int),
        ("rank", c_uint32),
        ("world_size", c_uint32),
        ("generation_term", c_uint64),
        ("generation_counter", c_uint64),
        ("joins", c_uint64),
        ("has_donor", c_int),
        ("is_donor", c_int),
        ("draining", c_int),
        ("left", c_int),
        ("donor_term", c_uint64),
        ("donor_counter", c_uint64),
        ("first_rank", c_uint32),
        ("ranks", c_uint32),
        ("members", c_uint32),
        ("expected_rank", c_uint32),
        ("expected_world_size", c_uint32),
    )


class Tensor(Structure):
    _fields_ = (
        ("name", c_char_p),
        ("dtype", c_int),
        ("rank", c_uint32),
        ("shape", POINTER(c_uint64)),
    )


class Pushed(Structure):
    """A tensor of push_many()."""

    _fields_ = (
        ("tensor", c_uint32),
        ("data", c_void_p),
        ("bytes", c_size_t),
        ("dtype", c_int),
        ("exponent", c_int32),
    )


class Buffer(Structure):
    """A tensor of result_copy_many(), which uses only `out`."""

    _fields_ = (
        ("tensor", c_uint32),
        ("into", c_void_p),
        ("out", c_void_p),
        ("bytes", c_size_t),
    )


class Turn(Structure):
    _fields_ = (("size", c_size_t), ("members", c_uint32), ("leads", c_int))


class Grouped(Structure):
    """A tensor of group_reduce(). Everything but the addresses and the stream is the same on all
    ranks.

    dtype, result: those of the input and of the output
    output:        where the leader gets the sum; unused on other ranks
    stream:        in which the input is written
    """

    _fields_ = (
        ("dtype", c_int),
        ("result", c_int),
        ("count", c_uint64),
        ("input", c_void_p),
        ("output", c_void_p),
        ("stream", c_void_p),
    )


class Shared(Structure):
    """A tensor of group_share(): its results pass through these bytes of the device, which nothing
    else uses."""

    _fields_ = (("tensor", c_uint32), ("memory", c_void_p), ("bytes", c_size_t))


class RoundSpec(Structure):
    _fields_ = (
        ("size", c_size_t),
        ("op", c_int),
        ("prescale", c_double),
        ("postscale", c_double),
        ("predivide", c_double),
        ("auto_predivide", c_int),
        ("contributes_sum", c_int),
        ("weight", c_int),
        ("divide_by_present", c_int),
        ("loss_scale", c_double),
        ("samples", c_int64),
        ("tokens", c_int64),
        ("micro_batches", c_int64),
        ("step", c_uint64),
        ("layout", c_uint64),
        ("carries", c_uint32),
        ("local_reduction", c_int),
        ("reduced_with_count", c_uint32),
        ("reduced_with", POINTER(c_char_p)),
        ("compares_step", c_int),
    )


class RoundInfo(Structure):
    _fields_ = (
        ("size", c_size_t),
        ("round", c_uint64),
        ("op", c_int),
        ("prescale", c_double),
        ("postscale", c_double),
        ("predivide", c_double),
        ("contributors", c_uint32),
        ("divisor", c_uint64),
        ("squared_norm", c_double),
        ("overflow", c_int),
        ("has_nonfinite", c_int),
        ("nonfinite_tensor", c_uint32),
        ("nonfinite_element", c_uint64),
        ("samples", c_int64),
        ("tokens", c_int64),
        ("micro_batches", c_int64),
        ("chain", c_uint64),
        ("auto_predivide", c_int),
        ("contributes_sum", c_int),
        ("weight", c_int),
        ("divide_by_present", c_int),
        ("loss_scale", c_double),
        ("weights", c_uint64),
        ("generation_term", c_uint64),
        ("generation_counter", c_uint64),
        ("contract_version", c_uint32),
        ("world_size", c_uint32),
        ("layout", c_uint64),
        ("trainers", c_uint32),
    )


LogFunction = CFUNCTYPE(None, c_void_p, c_int, c_char_p)

_WORKER = c_void_p
_ERROR = POINTER(c_void_p)
_CODE = c_int

# Name without basin_, result type, argument types.
_FUNCTIONS = (
    ("abi_version", c_uint32, ()),
    ("version", c_char_p, ()),
    ("error_message", c_char_p, (c_void_p,)),
    ("error_is_fatal", c_int, (c_void_p,)),
    ("error_restart_helps", c_int, (c_void_p,)),
    ("error_abort_cause", c_int, (c_void_p,)),
    ("error_code", c_int, (c_void_p,)),
    ("error_free", None, (c_void_p,)),
    ("options_new", c_void_p, (c_uint32,)),
    ("options_free", None, (c_void_p,)),
    ("options_set", _CODE, (c_void_p, c_char_p, c_char_p, _ERROR)),
    ("options_get", c_char_p, (c_void_p, c_char_p)),
    ("options_set_log", None, (c_void_p, LogFunction, c_void_p)),
    ("connect", _CODE, (c_void_p, POINTER(c_void_p), _ERROR)),
    ("close", None, (_WORKER,)),
    ("get_place", _CODE, (_WORKER, POINTER(Place), _ERROR)),
    ("set_ranks", _CODE, (_WORKER, c_uint32, c_uint32, _ERROR)),
    ("member_id", c_size_t, (_WORKER, c_uint32, c_char_p, c_size_t)),
    ("worker_id", c_size_t, (_WORKER, c_char_p, c_size_t)),
    ("donor_id", c_size_t, (_WORKER, c_char_p, c_size_t)),
    ("ready", _CODE, (_WORKER, c_uint64, c_uint64, _ERROR)),
    ("await_welcome", _CODE, (_WORKER, c_int64, _ERROR)),
    ("await_member", _CODE, (_WORKER, c_int64, _ERROR)),
    (
        "register",
        _CODE,
        (
            _WORKER,
            c_char_p,
            c_int,
            POINTER(Tensor),
            c_size_t,
            POINTER(c_uint32),
            POINTER(c_uint32),
            _ERROR,
        ),
    ),
    ("begin", _CODE, (_WORKER, c_uint32, POINTER(RoundSpec), _ERROR)),
    ("push", _CODE, (_WORKER, c_uint32, c_uint32, c_void_p, c_size_t, _ERROR)),
    (
        "push_narrow",
        _CODE,
        (_WORKER, c_uint32, c_uint32, c_void_p, c_size_t, c_int, c_int32, _ERROR),
    ),
    ("push_many", _CODE, (_WORKER, c_uint32, POINTER(Pushed), c_size_t, _ERROR)),
    (
        "push_device",
        _CODE,
        (_WORKER, c_uint32, POINTER(Pushed), c_size_t, c_int32, c_void_p, _ERROR),
    ),
    ("commit", _CODE, (_WORKER, c_uint32, c_void_p, c_void_p, _ERROR)),
    ("withdraw", _CODE, (_WORKER, c_uint32, c_char_p, c_void_p, c_void_p, _ERROR)),
    (
        "withdraw_without_results",
        _CODE,
        (_WORKER, c_uint32, c_char_p, c_void_p, c_void_p, _ERROR),
    ),
    ("wait", _CODE, (_WORKER, c_uint32, c_int64, POINTER(c_void_p), _ERROR)),
    ("abandon", _CODE, (_WORKER, _ERROR)),
    ("result_info", None, (c_void_p, POINTER(RoundInfo))),
    ("result_contributor", c_char_p, (c_void_p, c_uint32)),
    ("result_contributor_weight", c_uint64, (c_void_p, c_uint32)),
    ("result_contributor_ranks", c_uint32, (c_void_p, c_uint32)),
    ("result_contributor_local_reduction", c_int, (c_void_p, c_uint32)),
    ("result_contributor_reduced_with", c_char_p, (c_void_p, c_uint32, c_uint32)),
    ("result_contributor_squared_norm", c_double, (c_void_p, c_uint32)),
    ("result_nonfinite_worker", c_char_p, (c_void_p,)),
    ("result_nonfinite_tensor", c_char_p, (c_void_p,)),
    ("result_divisor", c_uint64, (c_void_p, c_uint32)),
    ("result_squared_norm", c_double, (c_void_p, c_uint32)),
    (
        "result_tensors",
        c_size_t,
        (c_void_p, c_size_t, POINTER(c_uint64), POINTER(c_double)),
    ),
    ("result_rejection", c_void_p, (c_void_p,)),
    ("result_has", c_int, (c_void_p, c_uint32)),
    ("result_copy", _CODE, (c_void_p, c_uint32, c_void_p, c_size_t, _ERROR)),
    ("result_copy_many", _CODE, (c_void_p, POINTER(Buffer), c_size_t, _ERROR)),
    (
        "result_copy_device",
        _CODE,
        (_WORKER, c_void_p, POINTER(Buffer), c_size_t, c_int32, c_void_p, _ERROR),
    ),
    ("result_free", None, (c_void_p,)),
    (
        "announce",
        _CODE,
        (_WORKER, c_char_p, POINTER(Tensor), c_uint64, c_void_p, c_size_t, c_int, _ERROR),
    ),
    ("stop_serving", _CODE, (_WORKER, c_char_p, c_char_p, _ERROR)),
    (
        "get",
        _CODE,
        (
            _WORKER,
            c_char_p,
            POINTER(Tensor),
            c_uint64,
            c_char_p,
            c_int64,
            c_void_p,
            c_size_t,
            _ERROR,
        ),
    ),
    ("busy", _CODE, (_WORKER, c_char_p, c_int64, _ERROR)),
    (
        "group_open",
        _CODE,
        (_WORKER, c_int32, c_char_p, c_char_p, POINTER(c_void_p), _ERROR),
    ),
    ("group_close", None, (c_void_p,)),
    ("group_turn", _CODE, (c_void_p, c_int64, POINTER(Turn), _ERROR)),
    ("group_leader", c_size_t, (c_void_p, c_char_p, c_size_t)),
    ("group_reduction", c_int, (c_void_p,)),
    ("group_reduced_with", c_size_t, (c_void_p, c_uint32, c_char_p, c_size_t)),
    ("group_reduce", _CODE, (c_void_p, c_int, POINTER(Grouped), c_size_t, _ERROR)),
    ("group_end", _CODE, (c_void_p, c_int64, POINTER(c_int), _ERROR)),
    ("group_fail", _CODE, (c_void_p, c_char_p, _ERROR)),
    (
        "group_share",
        _CODE,
        (c_void_p, _WORKER, c_uint32, POINTER(Shared), c_size_t, c_void_p, c_int64, _ERROR),
    ),
    ("finished", _CODE, (_WORKER, _ERROR)),
    ("will_leave", _CODE, (_WORKER, _ERROR)),
    ("leave", _CODE, (_WORKER, _ERROR)),
)


def _candidates() -> list[Path]:
    named = os.environ.get("BASIN_LIBRARY")
    if named:
        return [Path(named)]
    return [Path(__file__).resolve().parent / LIBRARY, *built(f"client/c/{LIBRARY}")]


def _load() -> ctypes.CDLL:
    candidates = _candidates()
    found = next((path for path in candidates if path.exists()), None)
    if found is None:
        looked = ", ".join(str(path) for path in candidates)
        raise ImportError(
            f"{LIBRARY} is not at {looked}. Build the target basin_c, or set BASIN_LIBRARY to the "
            "library."
        )
    try:
        library = ctypes.CDLL(str(found))
    except OSError as error:
        raise ImportError(
            f"{found} cannot be loaded: {error}. Build or install it on this machine, or set "
            "BASIN_LIBRARY to another library."
        ) from error
    _declare(library, found)
    return library


def _declare(library: ctypes.CDLL, found: Path) -> None:
    """Declares the types of each function. The version is checked first, because a library of
    another version may lack functions."""
    for name, result, arguments in _FUNCTIONS:
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
        if name == "abi_version" and function() != ABI_VERSION:
            raise ImportError(
                f"{found} has version {function()} of the C interface, and this package needs "
                f"{ABI_VERSION}. Install a package and a library of the same release."
            )


lib = _load()
