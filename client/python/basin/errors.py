# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""What can go wrong, as exceptions: one class for each code of the C interface.

All are `basin.Error`. The message names job, worker, lane and tensor, and ends with what to do.
"""


class Error(Exception):
    """Any error of Basin.

    fatal:          this process can do nothing about it and must exit
    restart_helps:  a restart of this process may help
    """

    fatal = False
    restart_helps = False


class InvalidArgument(Error):
    """An argument or an option that nobody would accept."""


class Mismatch(Error):
    """Shape, dtype, op, scale or setting differs from the others'."""


class RunConflict(Error):
    """Another run of the job is in progress."""


class Superseded(Error):
    """A newer process has taken this worker id. Exit."""


class LineageConflict(Error):
    """This worker's history is not the job's. Exit."""


class Evicted(Error):
    """Lost for too long, or by command. Be ready again, with state."""


class Stale(Error):
    """A message of a round or session that is over."""


class ContributionChanged(Error):
    """A tensor was written to before its round had ended."""


class DataCorrupt(Error):
    """Bytes arrived that are not those that were sent."""


class ResourceExhausted(Error):
    """The aggregator or this process is out of room."""


class Paused(Error):
    """Too few workers, or suspended by an operator. The round stays open; wait again."""


class RoundAborted(Error):
    """Nobody applies the round. Gradients are kept; begin again."""


class OutcomeUnknown(Error):
    """No verdict within the caller's time. Wait again, or abandon."""


class DeadlineExceeded(Error):
    """What was waited for did not come in time."""


class Unavailable(Error):
    """The aggregator cannot be reached, or drains, or recovers."""


class VersionMismatch(Error):
    """Client and aggregator do not speak the same version."""


class FailedPrecondition(Error):
    """The call is not allowed in this state."""


class NotFound(Error):
    """There is no such thing."""


class Unsupported(Error, NotImplementedError):
    """Basin cannot do this yet. The message says what to do instead."""


# By code of the C interface.
BY_CODE: dict[int, type[Error]] = {
    1: InvalidArgument,
    2: Mismatch,
    3: RunConflict,
    4: Superseded,
    5: LineageConflict,
    6: Evicted,
    7: Stale,
    8: ContributionChanged,
    9: DataCorrupt,
    10: ResourceExhausted,
    11: Paused,
    12: RoundAborted,
    13: OutcomeUnknown,
    14: DeadlineExceeded,
    15: Unavailable,
    16: VersionMismatch,
    17: FailedPrecondition,
    18: NotFound,
}
