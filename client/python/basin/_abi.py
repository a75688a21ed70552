# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
# ruff: noqa
# fmt: off
"""The C interface, declared for ctypes. scripts/make-abi.py writes it from basin/basin.h, where
everything is described; a test compares them. A name that Python reserves ends with an underscore.
"""

from ctypes import (CFUNCTYPE, POINTER, Structure, c_char_p, c_double, c_int, c_int32, c_int64,
        c_size_t, c_uint32, c_uint64, c_void_p)
from typing import Any

ABI_VERSION = 2
FOREVER = -1
FIT_EXPONENT = -2147483648
MOST_CALLS = 16
MOST_PARTS = 40
OK = 0
INVALID_ARGUMENT = 1
MISMATCH = 2
RUN_CONFLICT = 3
SUPERSEDED = 4
LINEAGE_CONFLICT = 5
EVICTED = 6
STALE = 7
CONTRIBUTION_CHANGED = 8
DATA_CORRUPT = 9
RESOURCE_EXHAUSTED = 10
PAUSED = 11
ROUND_ABORTED = 12
OUTCOME_UNKNOWN = 13
DEADLINE_EXCEEDED = 14
UNAVAILABLE = 15
VERSION_MISMATCH = 16
FAILED_PRECONDITION = 17
NOT_FOUND = 18
ABORT_OTHER = 0
ABORT_NO_CONTRIBUTOR = 1
ABORT_LOSS = 2
ABORT_DEADLOCK = 3
ABORT_REDUCTION = 4
ABORT_STEP_AGAIN = 5
READ_ENVIRONMENT = 1
LOG_DEBUG = 0
LOG_INFO = 1
LOG_WARNING = 2
LOG_ERROR = 3
JOINER = 0
SPARE = 1
MEMBER = 2
SAME_DTYPE = 0
F64 = 1
F32 = 2
F16 = 3
BF16 = 4
I64 = 5
I32 = 6
U8 = 7
GRADIENT = 0
CALL = 1
SUM = 1
AVERAGE = 2
WEIGHTED_AVERAGE = 3
MIN = 4
MAX = 5
PRODUCT = 6
NO_WEIGHT = 0
BY_SAMPLES = 1
BY_TOKENS = 2
BY_MICRO_BATCHES = 3
LOCAL_NONE = 0
LOCAL_DETERMINISTIC = 1
LOCAL_FAST = 2
PHASE_OPEN = 0
PHASE_ENDED = 1
PHASE_ALONE = 2
SAMPLES_LEASED = 0
SAMPLES_NONE_NOW = 1
SAMPLES_ENDED = 2
COPY = 0
IN_PLACE = 1


class Machine(Structure):
    _fields_ = [("size", c_size_t), ("local_rank", c_uint32), ("local_size", c_uint32),
        ("number", c_uint32), ("machines", c_uint32)]


Log = CFUNCTYPE(None, c_void_p, c_int, c_char_p)


class Place(Structure):
    _fields_ = [("size", c_size_t), ("role", c_int), ("rank", c_uint32), ("world_size", c_uint32),
        ("generation_term", c_uint64), ("generation_counter", c_uint64), ("joins", c_uint64),
        ("has_donor", c_int), ("is_donor", c_int), ("draining", c_int), ("left", c_int),
        ("donor_term", c_uint64), ("donor_counter", c_uint64), ("first_rank", c_uint32),
        ("ranks", c_uint32), ("members", c_uint32), ("expected_rank", c_uint32),
        ("expected_world_size", c_uint32)]


class Tensor(Structure):
    _fields_ = [("name", c_char_p), ("dtype", c_int), ("rank", c_uint32),
        ("shape", POINTER(c_uint64))]


class SampleRange(Structure):
    _fields_ = [("begin", c_uint64), ("end", c_uint64)]


class RoundSpec(Structure):
    _fields_ = [("size", c_size_t), ("op", c_int), ("prescale", c_double), ("postscale", c_double),
        ("predivide", c_double), ("auto_predivide", c_int), ("contributes_sum", c_int),
        ("weight", c_int), ("divide_by_present", c_int), ("loss_scale", c_double),
        ("samples", c_int64), ("tokens", c_int64), ("micro_batches", c_int64), ("step", c_uint64),
        ("layout", c_uint64), ("carries", c_uint32), ("local_reduction", c_int),
        ("reduced_with_count", c_uint32), ("reduced_with", POINTER(c_char_p)),
        ("compares_step", c_int), ("sample_ranges", POINTER(SampleRange)),
        ("sample_range_count", c_size_t), ("sample_epoch", c_uint64), ("optimizer", c_char_p),
        ("call", c_char_p), ("deferred", c_uint32)]


RoundDone = CFUNCTYPE(None, c_void_p, c_uint32, c_void_p, c_void_p)


class Pushed(Structure):
    _fields_ = [("tensor", c_uint32), ("data", c_void_p), ("bytes", c_size_t), ("as_", c_int),
        ("exponent", c_int32)]


class Buffer(Structure):
    _fields_ = [("tensor", c_uint32), ("in_", c_void_p), ("out", c_void_p), ("bytes", c_size_t)]


class Part(Structure):
    _fields_ = [("array", c_size_t), ("offset", c_size_t), ("bytes", c_size_t),
        ("tensor", c_uint32)]


class RoundInfo(Structure):
    _fields_ = [("size", c_size_t), ("round", c_uint64), ("op", c_int), ("prescale", c_double),
        ("postscale", c_double), ("predivide", c_double), ("contributors", c_uint32),
        ("divisor", c_uint64), ("squared_norm", c_double), ("overflow", c_int),
        ("has_nonfinite", c_int), ("nonfinite_tensor", c_uint32), ("nonfinite_element", c_uint64),
        ("samples", c_int64), ("tokens", c_int64), ("micro_batches", c_int64), ("chain", c_uint64),
        ("auto_predivide", c_int), ("contributes_sum", c_int), ("weight", c_int),
        ("divide_by_present", c_int), ("loss_scale", c_double), ("weights", c_uint64),
        ("generation_term", c_uint64), ("generation_counter", c_uint64),
        ("contract_version", c_uint32), ("world_size", c_uint32), ("layout", c_uint64),
        ("trainers", c_uint32), ("has_sample_epoch", c_int), ("sample_epoch", c_uint64),
        ("samples_committed", c_uint64), ("epoch_committed", c_uint64), ("epoch_ended", c_int),
        ("late_carries", c_int)]


class Turn(Structure):
    _fields_ = [("size", c_size_t), ("members", c_uint32), ("leads", c_int)]


class Grouped(Structure):
    _fields_ = [("dtype", c_int), ("result", c_int), ("count", c_uint64), ("in_", c_void_p),
        ("out", c_void_p), ("stream", c_void_p)]


class Shared(Structure):
    _fields_ = [("tensor", c_uint32), ("memory", c_void_p), ("bytes", c_size_t)]


class SampleEpoch(Structure):
    _fields_ = [("number", c_uint64), ("samples", c_uint64), ("order", c_uint64)]


StateGet = CFUNCTYPE(c_char_p, c_void_p, POINTER(c_void_p), POINTER(c_size_t))


StateSet = CFUNCTYPE(c_char_p, c_void_p, c_void_p, c_size_t)


# Name without basin_, result, arguments.
FUNCTIONS: tuple[tuple[str, Any, list[Any]], ...] = (
    ("abi_version", c_uint32, []),
    ("version", c_char_p, []),
    ("code_name", c_char_p, [c_int]),
    ("exit_code", c_int, [c_int]),
    ("error_code", c_int, [c_void_p]),
    ("error_message", c_char_p, [c_void_p]),
    ("error_is_fatal", c_int, [c_void_p]),
    ("error_restart_helps", c_int, [c_void_p]),
    ("error_abort_cause", c_int, [c_void_p]),
    ("error_free", None, [c_void_p]),
    ("options_new", c_void_p, [c_uint32]),
    ("options_free", None, [c_void_p]),
    ("options_set", c_int, [c_void_p, c_char_p, c_char_p, POINTER(c_void_p)]),
    ("options_get", c_char_p, [c_void_p, c_char_p]),
    ("read_machine", c_int, [POINTER(Machine), POINTER(c_void_p)]),
    ("options_set_log", None, [c_void_p, Log, c_void_p]),
    ("connect", c_int, [c_void_p, POINTER(c_void_p), POINTER(c_void_p)]),
    ("close", None, [c_void_p]),
    ("get_place", c_int, [c_void_p, POINTER(Place), POINTER(c_void_p)]),
    ("set_ranks", c_int, [c_void_p, c_uint32, c_uint32, POINTER(c_void_p)]),
    ("member_id", c_size_t, [c_void_p, c_uint32, c_char_p, c_size_t]),
    ("donor_id", c_size_t, [c_void_p, c_char_p, c_size_t]),
    ("worker_id", c_size_t, [c_void_p, c_char_p, c_size_t]),
    ("ready", c_int, [c_void_p, c_uint64, c_uint64, POINTER(c_void_p)]),
    ("await_welcome", c_int, [c_void_p, c_int64, POINTER(c_void_p)]),
    ("await_member", c_int, [c_void_p, c_int64, POINTER(c_void_p)]),
    ("register", c_int, [c_void_p, c_char_p, c_int, POINTER(Tensor), c_size_t, POINTER(c_uint32),
        POINTER(c_uint32), POINTER(c_void_p)]),
    ("allocate", c_int, [c_void_p, c_size_t, POINTER(c_void_p), POINTER(c_void_p)]),
    ("free", c_int, [c_void_p, c_void_p, POINTER(c_void_p)]),
    ("begin", c_int, [c_void_p, c_uint32, POINTER(RoundSpec), POINTER(c_void_p)]),
    ("push", c_int, [c_void_p, c_uint32, c_uint32, c_void_p, c_size_t, POINTER(c_void_p)]),
    ("push_narrow", c_int, [c_void_p, c_uint32, c_uint32, c_void_p, c_size_t, c_int, c_int32,
        POINTER(c_void_p)]),
    ("push_many", c_int, [c_void_p, c_uint32, POINTER(Pushed), c_size_t, POINTER(c_void_p)]),
    ("push_device", c_int, [c_void_p, c_uint32, POINTER(Pushed), c_size_t, c_int32, c_void_p,
        POINTER(c_void_p)]),
    ("skip", c_int, [c_void_p, c_uint32, c_uint32, POINTER(c_void_p)]),
    ("commit", c_int, [c_void_p, c_uint32, RoundDone, c_void_p, POINTER(c_void_p)]),
    ("withdraw", c_int, [c_void_p, c_uint32, c_char_p, RoundDone, c_void_p, POINTER(c_void_p)]),
    ("withdraw_without_results", c_int, [c_void_p, c_uint32, c_char_p, RoundDone, c_void_p,
        POINTER(c_void_p)]),
    ("wait", c_int, [c_void_p, c_uint32, c_int64, POINTER(c_void_p), POINTER(c_void_p)]),
    ("abandon", c_int, [c_void_p, POINTER(c_void_p)]),
    ("allreduce", c_int, [c_void_p, c_uint32, POINTER(RoundSpec), POINTER(Buffer), c_size_t,
        c_int64, POINTER(c_void_p), POINTER(c_void_p)]),
    ("next_call", c_int, [c_void_p, POINTER(Tensor), c_size_t, c_int64, POINTER(c_uint32),
        POINTER(Part), c_size_t, POINTER(c_size_t), POINTER(c_void_p)]),
    ("barrier", c_int, [c_void_p, c_char_p, c_int64, POINTER(c_void_p)]),
    ("event_fd", c_int, [c_void_p, POINTER(c_int), POINTER(c_void_p)]),
    ("result_info", None, [c_void_p, POINTER(RoundInfo)]),
    ("result_contributor", c_char_p, [c_void_p, c_uint32]),
    ("result_contributor_ranks", c_uint32, [c_void_p, c_uint32]),
    ("result_contributor_deferred", c_uint32, [c_void_p, c_uint32]),
    ("result_contributor_local_reduction", c_int, [c_void_p, c_uint32]),
    ("result_contributor_reduced_with", c_char_p, [c_void_p, c_uint32, c_uint32]),
    ("result_contributor_weight", c_uint64, [c_void_p, c_uint32]),
    ("result_contributor_squared_norm", c_double, [c_void_p, c_uint32]),
    ("result_nonfinite_worker", c_char_p, [c_void_p]),
    ("result_nonfinite_tensor", c_char_p, [c_void_p]),
    ("result_late", c_char_p, [c_void_p, c_uint32]),
    ("result_rejection", c_void_p, [c_void_p]),
    ("result_has", c_int, [c_void_p, c_uint32]),
    ("result_divisor", c_uint64, [c_void_p, c_uint32]),
    ("result_squared_norm", c_double, [c_void_p, c_uint32]),
    ("result_tensors", c_size_t, [c_void_p, c_size_t, POINTER(c_uint64), POINTER(c_double)]),
    ("result_copy", c_int, [c_void_p, c_uint32, c_void_p, c_size_t, POINTER(c_void_p)]),
    ("result_copy_many", c_int, [c_void_p, POINTER(Buffer), c_size_t, POINTER(c_void_p)]),
    ("result_copy_device", c_int, [c_void_p, c_void_p, POINTER(Buffer), c_size_t, c_int32, c_void_p,
        POINTER(c_void_p)]),
    ("result_piece", c_int, [c_void_p, c_uint32, c_size_t, POINTER(c_void_p), POINTER(c_size_t)]),
    ("result_free", None, [c_void_p]),
    ("allgather", c_int, [c_void_p, POINTER(Tensor), c_void_p, c_size_t, POINTER(c_uint32),
        POINTER(c_void_p)]),
    ("alltoall", c_int, [c_void_p, POINTER(Tensor), c_void_p, c_size_t, POINTER(c_uint64), c_size_t,
        POINTER(c_uint32), POINTER(c_void_p)]),
    ("reducescatter", c_int, [c_void_p, POINTER(Tensor), POINTER(RoundSpec), c_void_p, c_size_t,
        POINTER(c_uint32), POINTER(c_void_p)]),
    ("broadcast_rows", c_int, [c_void_p, POINTER(Tensor), c_uint32, c_void_p, c_size_t,
        POINTER(c_uint32), POINTER(c_void_p)]),
    ("wait_rows", c_int, [c_void_p, c_uint32, c_int64, POINTER(c_void_p), POINTER(c_void_p)]),
    ("received_parts", c_size_t, [c_void_p]),
    ("received_rows", c_uint64, [c_void_p, c_size_t]),
    ("received_data", c_void_p, [c_void_p, c_size_t, POINTER(c_size_t)]),
    ("received_result", c_void_p, [c_void_p]),
    ("received_free", None, [c_void_p]),
    ("group_open", c_int, [c_void_p, c_int32, c_char_p, c_char_p, POINTER(c_void_p),
        POINTER(c_void_p)]),
    ("group_close", None, [c_void_p]),
    ("group_turn", c_int, [c_void_p, c_int64, POINTER(Turn), POINTER(c_void_p)]),
    ("group_leader", c_size_t, [c_void_p, c_char_p, c_size_t]),
    ("group_reduction", c_int, [c_void_p]),
    ("group_reduced_with", c_size_t, [c_void_p, c_uint32, c_char_p, c_size_t]),
    ("group_reduce", c_int, [c_void_p, c_int, POINTER(Grouped), c_size_t, POINTER(c_void_p)]),
    ("group_end", c_int, [c_void_p, c_int64, POINTER(c_int), POINTER(c_void_p)]),
    ("group_fail", c_int, [c_void_p, c_char_p, POINTER(c_void_p)]),
    ("group_share", c_int, [c_void_p, c_void_p, c_uint32, POINTER(Shared), c_size_t, c_void_p,
        c_int64, POINTER(c_void_p)]),
    ("samples_next", c_int, [c_void_p, c_uint32, POINTER(SampleEpoch), c_uint64, POINTER(c_uint64),
        POINTER(c_size_t), POINTER(c_int), POINTER(c_void_p)]),
    ("samples_shuffled", c_uint64, [POINTER(SampleEpoch), c_uint64]),
    ("samples_lease", c_int, [c_void_p, c_uint32, POINTER(SampleEpoch), c_uint64,
        POINTER(SampleRange), c_size_t, POINTER(c_size_t), POINTER(c_int), POINTER(c_void_p)]),
    ("samples_lease_step", c_int, [c_void_p, c_uint32, POINTER(SampleEpoch), c_uint64,
        POINTER(SampleRange), c_size_t, POINTER(c_size_t), POINTER(c_int), POINTER(c_void_p)]),
    ("samples_return", c_int, [c_void_p, c_uint32, c_uint64, POINTER(SampleRange), c_size_t,
        POINTER(c_void_p)]),
    ("samples_committed", c_int, [c_void_p, c_uint32, POINTER(SampleEpoch), POINTER(SampleRange),
        c_size_t, POINTER(c_size_t), POINTER(c_void_p)]),
    ("samples_resume", c_int, [c_void_p, c_uint32, POINTER(SampleEpoch), POINTER(SampleRange),
        c_size_t, POINTER(c_void_p)]),
    ("report_batch", c_int, [c_void_p, c_uint32, c_uint64, c_uint64, POINTER(c_uint64),
        POINTER(c_int), POINTER(c_void_p)]),
    ("announce", c_int, [c_void_p, c_char_p, POINTER(Tensor), c_uint64, c_void_p, c_size_t, c_int,
        POINTER(c_void_p)]),
    ("stop_serving", c_int, [c_void_p, c_char_p, c_char_p, POINTER(c_void_p)]),
    ("step_begin", None, [c_void_p]),
    ("step_end", None, [c_void_p]),
    ("get", c_int, [c_void_p, c_char_p, POINTER(Tensor), c_uint64, c_char_p, c_int64, c_void_p,
        c_size_t, POINTER(c_void_p)]),
    ("broadcast", c_int, [c_void_p, c_char_p, POINTER(Tensor), c_uint64, c_uint32, c_void_p,
        c_size_t, c_int64, POINTER(c_void_p)]),
    ("state_register", c_int, [c_void_p, c_char_p, c_char_p, StateGet, StateSet, c_void_p,
        POINTER(c_void_p)]),
    ("state_register_memory", c_int, [c_void_p, c_char_p, c_void_p, c_size_t, POINTER(c_void_p)]),
    ("busy", c_int, [c_void_p, c_char_p, c_int64, POINTER(c_void_p)]),
    ("finished", c_int, [c_void_p, POINTER(c_void_p)]),
    ("will_leave", c_int, [c_void_p, POINTER(c_void_p)]),
    ("leave", c_int, [c_void_p, POINTER(c_void_p)]),
)
