# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""Exceptions: one class for each code of the C interface.

All are subclasses of `basin.Error`. The message names job, worker, lane and tensor, and ends with
what to do.
"""

import enum
import os

from basin import _abi


class Error(Exception):
    """Any error of Basin.

    fatal:          this process cannot recover and must exit
    restart_helps:  a restart of this process may help
    """

    fatal = False
    restart_helps = False

    @property
    def exit_code(self) -> int:
        """The exit code of a script that does not handle this error: 75 if a restart helps, 78 if
        something else must be corrected first, otherwise 1."""
        if self.restart_helps:
            return os.EX_TEMPFAIL
        return os.EX_CONFIG if isinstance(self, _NEVER_HELPED_BY_A_RESTART) else 1


class InvalidArgument(Error):
    """An argument or an option is invalid."""


class Mismatch(Error):
    """Shape, dtype, op, scale or setting differs from the others'."""


class RunConflict(Error):
    """Another run of the job is in progress."""


class Superseded(Error):
    """A newer process has taken this worker id. Exit."""


class LineageConflict(Error):
    """This worker's history is not the job's. Exit."""


class Evicted(Error):
    """The worker was lost for too long, or removed by an operator. Rejoin, and load the state."""


class Stale(Error):
    """The message was for a round or session that is over."""


class ContributionChanged(Error):
    """A tensor was written to before its round had ended."""


class DataCorrupt(Error):
    """The received bytes differ from the sent ones."""


class ResourceExhausted(Error):
    """The aggregator or this process is out of memory or of another limit."""


class Paused(Error):
    """The job has too few workers, or an operator has suspended it. The round stays open; wait
    again."""


class AbortCause(enum.IntEnum):
    """Why a round was aborted."""

    OTHER = _abi.ABORT_OTHER  # Or it is not known.
    NO_CONTRIBUTOR = _abi.ABORT_NO_CONTRIBUTOR
    LOSS = _abi.ABORT_LOSS  # A worker was lost, and round.loss_policy is abort.
    DEADLOCK = _abi.ABORT_DEADLOCK  # The workers wait for each other.
    REDUCTION = _abi.ABORT_REDUCTION  # A tensor cannot be reduced. Correct it before a retry.
    STEP_AGAIN = _abi.ABORT_STEP_AGAIN  # See RoundAborted.step_again.


class RoundAborted(Error):
    """No worker applies the round. Gradients are kept, except with step_again; begin again."""

    abort_cause = AbortCause.OTHER

    @property
    def no_contributor(self) -> bool:
        """Whether every worker has withdrawn, or was lost before it had sent its contribution."""
        return self.abort_cause is AbortCause.NO_CONTRIBUTOR

    @property
    def step_again(self) -> bool:
        """Whether a worker was lost, or came or went, in the middle of a step of a fixed global
        batch. Its gradients were dropped, on all workers, and its samples come again: go on with
        the loop."""
        return self.abort_cause is AbortCause.STEP_AGAIN


class OutcomeUnknown(Error):
    """There was no verdict within the caller's time. Wait again, or abandon."""


class DeadlineExceeded(Error):
    """A membership or a value did not arrive in time."""


class Unavailable(Error):
    """The aggregator is unreachable, drains, or recovers."""


class VersionMismatch(Error):
    """Client and aggregator have different versions of the protocol or of the arithmetic."""


class FailedPrecondition(Error):
    """The call is not allowed in this state."""


class NotFound(Error):
    """The named object does not exist."""


class Unsupported(Error, NotImplementedError):
    """Basin cannot do this yet. The message says what to do instead."""

    # As it is without NotImplementedError: tf.function keeps the class of such errors alone.
    __init__ = Exception.__init__


_NEVER_HELPED_BY_A_RESTART = (InvalidArgument, Mismatch, VersionMismatch, Unsupported)

# Indexed by the codes of the C interface.
BY_CODE: dict[int, type[Error]] = {
    _abi.INVALID_ARGUMENT: InvalidArgument,
    _abi.MISMATCH: Mismatch,
    _abi.RUN_CONFLICT: RunConflict,
    _abi.SUPERSEDED: Superseded,
    _abi.LINEAGE_CONFLICT: LineageConflict,
    _abi.EVICTED: Evicted,
    _abi.STALE: Stale,
    _abi.CONTRIBUTION_CHANGED: ContributionChanged,
    _abi.DATA_CORRUPT: DataCorrupt,
    _abi.RESOURCE_EXHAUSTED: ResourceExhausted,
    _abi.PAUSED: Paused,
    _abi.ROUND_ABORTED: RoundAborted,
    _abi.OUTCOME_UNKNOWN: OutcomeUnknown,
    _abi.DEADLINE_EXCEEDED: DeadlineExceeded,
    _abi.UNAVAILABLE: Unavailable,
    _abi.VERSION_MISMATCH: VersionMismatch,
    _abi.FAILED_PRECONDITION: FailedPrecondition,
    _abi.NOT_FOUND: NotFound,
}
