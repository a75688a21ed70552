# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""The operations of a reduction with Horovod's names and arguments."""

from typing import Any, Final

from basin import notices
from basin.errors import Unsupported
from basin.spec import Op

Average: Final = Op.AVERAGE
Sum: Final = Op.SUM
Min: Final = Op.MIN
Max: Final = Op.MAX
Product: Final = Op.PRODUCT
# Basin has no such operation; what is given it says so.
Adasum: Final = "Adasum"
_OPS = (Average, Sum, Min, Max, Product)


def op_of(call: str, op: Any, average: bool | None = None) -> Op:
    """The operation of a call, which has one of both arguments. Raises ValueError if it has both,
    or an unknown one, and Unsupported for Adasum."""
    if average is not None:
        if op is not None:
            raise ValueError(
                f"{call} was given both op and average. Give it only op: hvd.Average or hvd.Sum."
            )
        notices.warn(
            f"average of {call} is deprecated. Use op=hvd.Average or op=hvd.Sum.",
            DeprecationWarning,
        )
        return Average if average else Sum
    if op is None:
        return Average
    if op == Adasum:
        raise Unsupported(
            f"{call} was given Adasum, which depends on the order in which gradients are combined; "
            "Basin adds them in one fixed order. Use op=hvd.Average, with the learning rate that "
            "belongs to it."
        )
    # A number is refused: those of Horovod's operations mean others here.
    if not isinstance(op, Op) or op not in _OPS:
        raise ValueError(
            f"{call} was given {op!r} as op. Use hvd.Average, hvd.Sum, hvd.Min, hvd.Max or "
            "hvd.Product."
        )
    return op


def op_of_gradients(call: str, op: Any, predivide: float) -> Op:
    """That of an optimizer or a tape."""
    chosen = op_of(call, op)
    if chosen not in (Average, Sum):
        raise ValueError(f"{call} was given {op!r} as op. Use hvd.Average or hvd.Sum.")
    if predivide != 1.0 and chosen != Average:
        raise ValueError(
            f"{call} was given gradient_predivide_factor with {op!r}. It belongs to hvd.Average: "
            "omit it."
        )
    return chosen


class Unoffered:
    """Something that Basin does not offer: calling it raises Unsupported with the reason, and what
    to do instead."""

    def __init__(self, name: str, why: str) -> None:
        self._name = name
        self._why = why

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        raise Unsupported(f"{self._name} is not supported: {self._why}")
