# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""Basin averages the gradients of training jobs whose workers come and go.

basin.connect() is the interface for NumPy arrays; `basin.torch` is the one for PyTorch.
"""

from basin._library import lib
from basin.client import Client, connect
from basin.errors import (
    AbortCause,
    ContributionChanged,
    DataCorrupt,
    DeadlineExceeded,
    Error,
    Evicted,
    FailedPrecondition,
    InvalidArgument,
    LineageConflict,
    Mismatch,
    NotFound,
    OutcomeUnknown,
    Paused,
    ResourceExhausted,
    RoundAborted,
    RunConflict,
    Stale,
    Superseded,
    Unavailable,
    Unsupported,
    VersionMismatch,
)
from basin.handle import Handle
from basin.leaving import leave_on_sigterm
from basin.notices import ContributorsChanged
from basin.spec import Counts, LocalReduction, Op, RoundSpec, Weight
from basin.worker import NonFinite, RoundInfo

Sum = Op.SUM
Average = Op.AVERAGE
WeightedAverage = Op.WEIGHTED_AVERAGE
Min = Op.MIN
Max = Op.MAX
Product = Op.PRODUCT

# The version of the library, which has the same release as this package.
__version__: str = lib.basin_version().decode()

__all__ = [
    "AbortCause",
    "Average",
    "Client",
    "ContributionChanged",
    "ContributorsChanged",
    "Counts",
    "DataCorrupt",
    "DeadlineExceeded",
    "Error",
    "Evicted",
    "FailedPrecondition",
    "Handle",
    "InvalidArgument",
    "LineageConflict",
    "LocalReduction",
    "Max",
    "Min",
    "Mismatch",
    "NonFinite",
    "NotFound",
    "Op",
    "OutcomeUnknown",
    "Paused",
    "Product",
    "ResourceExhausted",
    "RoundAborted",
    "RoundInfo",
    "RoundSpec",
    "RunConflict",
    "Stale",
    "Sum",
    "Superseded",
    "Unavailable",
    "Unsupported",
    "VersionMismatch",
    "Weight",
    "WeightedAverage",
    "connect",
    "leave_on_sigterm",
]
