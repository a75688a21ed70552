# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""What a round computes, as its workers declare it and as its reply reports it."""

import ctypes
import enum
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypedDict

from basin import _abi
from basin.arguments import check_known, number_of, whole_number
from basin.errors import InvalidArgument


class _Word(enum.IntEnum):
    """A number of the C interface that prints as its name."""

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return f"{type(self).__name__}.{self.name}"


class Op(_Word):
    """What a round does with the contributions. There is no default, because an average instead of
    a sum would be a silent error."""

    SUM = _abi.SUM
    AVERAGE = _abi.AVERAGE
    WEIGHTED_AVERAGE = _abi.WEIGHTED_AVERAGE
    MIN = _abi.MIN
    MAX = _abi.MAX
    PRODUCT = _abi.PRODUCT


class Weight(_Word):
    """Which count of a contribution is its weight in a WEIGHTED_AVERAGE."""

    NONE = _abi.NO_WEIGHT
    SAMPLES = _abi.BY_SAMPLES
    TOKENS = _abi.BY_TOKENS
    MICRO_BATCHES = _abi.BY_MICRO_BATCHES


class LocalReduction(_Word):
    """How the workers of a node were reduced to one contribution before it was sent."""

    NONE = _abi.LOCAL_NONE  # It is of one worker, or the worker did not say.
    # In byte order of the worker ids, by the same arithmetic.
    DETERMINISTIC = _abi.LOCAL_DETERMINISTIC
    FAST = _abi.LOCAL_FAST  # In an order that NCCL has chosen.


# The largest count of one contribution, so that the sum over all workers fits 64 bits.
LARGEST_COUNT = 1 << 48


@dataclass(frozen=True)
class Counts:
    """The numbers of samples, tokens and micro-batches in a contribution: whole numbers of any
    type, including those of NumPy and torch. None is unknown, which is not 0."""

    samples: int | None = None
    tokens: int | None = None
    micro_batches: int | None = None

    def __post_init__(self) -> None:
        for name, count in vars(self).copy().items():
            if count is None:
                continue
            whole = whole_number(count)
            if whole is None:
                raise InvalidArgument(
                    f"{name} cannot be {count!r}. Use a whole number from 0, or None if it is "
                    "unknown."
                )
            object.__setattr__(self, name, whole)

    def check_contributed(self) -> "Counts":
        """Returns these counts. Raises InvalidArgument if one is too large for a contribution; sums
        over all workers may be larger."""
        for name, count in vars(self).items():
            if count is not None and count > LARGEST_COUNT:
                raise InvalidArgument(
                    f"{name} cannot be {count}: one contribution counts at most 2^48. Pass the "
                    "number in this contribution, or None if it is unknown."
                )
        return self

    @staticmethod
    def from_c(samples: int, tokens: int, micro_batches: int) -> "Counts":
        def known(count: int) -> int | None:
            return None if count < 0 else count

        return Counts(known(samples), known(tokens), known(micro_batches))


@dataclass(frozen=True)
class RoundSpec:
    """What all workers of a round must agree on, and the counts of this contribution.

    With x_i of N workers, and w_i the count that `weight_by` names:
      SUM               postscale * sum(prescale * x_i)
      AVERAGE           postscale / N * sum(prescale * x_i)
      WEIGHTED_AVERAGE  postscale / sum(w_i) * sum(prescale * w_i * x_i); without the factor w_i in
                        the sum if x_i is a sum already
      MIN MAX PRODUCT   postscale * op(prescale * x_i)

    predivide:         divides before the sum and multiplies after it, which changes the range but
                       not the value; None: a power of two near the square root of the number of
                       workers, chosen for each round
    contributes_sum:   x_i is the sum over the counted units, not the mean
    divide_by_present: divide each tensor by the workers that pushed it, not by all
    loss_scale:        the scale of this worker's gradient; compared with the others', never applied
    layout:            a hash of the tensors with gradients, compared with the others'; 0: not
                       compared
    counts:            the counts of this contribution
    step:              the trainer's own step number, a label that is not part of a reply.
                       basin.torch counts the steps from 0, and reports the number in last_round()
    compares_step:     it is compared with the others'
    carries:           the trainers of other workers whose gradients are in this contribution as
                       well, added up by the same op; the counts are the sums over them, and these
                       workers begin the round and withdraw
    local_reduction:   how the contribution was reduced on its node, for the plan in a reply ...
    reduced_with:      ... and the ids of the other workers in it, in byte order
    deferred:          the trainers whose gradients of the round before are in this contribution as
                       well, because that round went on without them: RoundInfo.late has the worker,
                       and RoundInfo.late_carries is true. An AVERAGE divides by them, too, and the
                       counts are the sums over both
    samples:           the ranges [begin, end) of the epoch's positions that the contribution was
                       computed from, which are leased to this worker
    sample_epoch:      the number of that epoch
    optimizer:         the numbers of the optimizer that applies the result, one in each line, which
                       are compared with the others' and may change from round to round; empty: not
                       compared. No part of a reply
    call:              what the round of a call is for, such as "allgather of f32[*,3]"; workers
                       that say different things get Mismatch. Empty: a call without a name says its
                       op, dtypes and shapes, others nothing. No part of a reply
    """

    op: Op
    prescale: float = 1.0
    postscale: float = 1.0
    predivide: float | None = 1.0
    weight_by: Weight = Weight.NONE
    contributes_sum: bool = False
    divide_by_present: bool = False
    loss_scale: float = 1.0
    counts: Counts = Counts()
    step: int = 0
    layout: int = 0
    carries: int = 0
    local_reduction: LocalReduction = LocalReduction.NONE
    reduced_with: tuple[str, ...] = ()
    compares_step: bool = False
    samples: tuple[tuple[int, int], ...] = ()
    sample_epoch: int = 0
    optimizer: str = ""
    call: str = ""
    deferred: int = 0

    @property
    def weight_count(self) -> int | None:
        """The count that `weight_by` names; None if it is unknown, or there is no weight."""
        named = {
            Weight.SAMPLES: self.counts.samples,
            Weight.TOKENS: self.counts.tokens,
            Weight.MICRO_BATCHES: self.counts.micro_batches,
        }
        return named.get(self.weight_by)

    def to_c(self) -> _abi.RoundSpec:
        def count(known: int | None) -> int:
            return -1 if known is None else known

        return _abi.RoundSpec(
            size=ctypes.sizeof(_abi.RoundSpec),
            op=self.op,
            prescale=self.prescale,
            postscale=self.postscale,
            predivide=1.0 if self.predivide is None else self.predivide,
            auto_predivide=self.predivide is None,
            contributes_sum=self.contributes_sum,
            weight=self.weight_by,
            divide_by_present=self.divide_by_present,
            loss_scale=self.loss_scale,
            samples=count(self.counts.samples),
            tokens=count(self.counts.tokens),
            micro_batches=count(self.counts.micro_batches),
            step=self.step,
            layout=self.layout,
            carries=self.carries,
            local_reduction=self.local_reduction,
            reduced_with_count=len(self.reduced_with),
            reduced_with=(ctypes.c_char_p * len(self.reduced_with))(
                *(each.encode() for each in self.reduced_with)
            ),
            compares_step=self.compares_step,
            sample_ranges=sample_ranges(self.samples),
            sample_range_count=len(self.samples),
            sample_epoch=self.sample_epoch,
            optimizer=self.optimizer.encode(),
            call=self.call.encode(),
            deferred=self.deferred,
        )


def sample_ranges(
    ranges: Sequence[tuple[int, int]],
) -> "ctypes.Array[_abi.SampleRange]":
    """The ranges [begin, end) for the C interface."""
    return (_abi.SampleRange * max(1, len(ranges)))(*(_abi.SampleRange(*each) for each in ranges))


class ReductionOptions(TypedDict, total=False):
    """The options of a reduction besides its op, the same in every call that reduces.

    weight_by:       required for a WEIGHTED_AVERAGE: the count that is the weight of a contribution
    contributes:     required for a WEIGHTED_AVERAGE: "mean" if contributions are means over the
                     counted units, "sum" if they are sums
    prescale_factor: multiplies each contribution before the sum
    postscale_factor:
                     multiplies the result after the sum
    gradient_predivide_factor:
                     divides each contribution before the sum and multiplies the result after it;
                     with the number of workers, no average overflows. "auto": the power of two
                     nearest to the square root of the number of contributors, chosen for each round
                     and reported in its info; it balances both ends of the range
    divide_by_present:
                     divides each tensor by the number of workers that sent it, not by all
    """

    weight_by: Literal["samples", "tokens", "micro_batches"] | None
    contributes: Literal["mean", "sum"] | None
    prescale_factor: float
    postscale_factor: float
    gradient_predivide_factor: float | Literal["auto"]
    divide_by_present: bool


_WEIGHTS = {
    "samples": Weight.SAMPLES,
    "tokens": Weight.TOKENS,
    "micro_batches": Weight.MICRO_BATCHES,
}
AVERAGES = (Op.AVERAGE, Op.WEIGHTED_AVERAGE)


def reduction(call: str, op: Op, options: ReductionOptions) -> RoundSpec:
    """The spec of rounds with these options.

    call: the user's call, for messages: "allreduce()"

    Raises InvalidArgument, which names the argument, if no round can compute this, and TypeError
    for unknown options.
    """
    check_known(call, options, ReductionOptions.__annotations__)
    return _reduction(op, **options)


def _reduction(
    op: Op,
    *,
    weight_by: str | None = None,
    contributes: str | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    gradient_predivide_factor: float | str = 1.0,
    divide_by_present: bool = False,
) -> RoundSpec:
    op = op_of(op)
    return RoundSpec(
        op,
        prescale=_scale("prescale_factor", prescale_factor),
        postscale=_scale("postscale_factor", postscale_factor),
        predivide=_predivide(op, gradient_predivide_factor),
        weight_by=_weight_by(op, weight_by),
        contributes_sum=_contributes_sum(op, contributes),
        divide_by_present=_divide_by_present(op, divide_by_present),
    )


def contribution(spec: RoundSpec, counts: Counts | None) -> RoundSpec:
    """The spec of a round of `spec` with the counts of this contribution.

    Raises InvalidArgument if the count that is the weight is missing.
    """
    if not isinstance(counts, Counts | None):
        raise InvalidArgument(
            f"counts cannot be {counts!r}. Pass counts=basin.Counts(samples=..., tokens=...)."
        )
    complete = replace(spec, counts=(counts or Counts()).check_contributed())
    if spec.op == Op.WEIGHTED_AVERAGE and complete.weight_count is None:
        name = spec.weight_by.name.lower()
        raise InvalidArgument(
            f"A weighted average by {name} needs their count. Pass "
            f"counts=basin.Counts({name}=...), with 0 if there were none."
        )
    return complete


def op_of(op: object) -> Op:
    """Raises InvalidArgument if `op` is not an Op."""
    if isinstance(op, int) and not isinstance(op, bool) and op in set(Op):
        return Op(op)
    raise InvalidArgument(f"op cannot be {op!r}. Use basin.Average, or another of basin.Op.")


def _scale(argument: str, value: float) -> float:
    number = number_of(value)
    if not math.isfinite(number) or number == 0:
        raise InvalidArgument(f"{argument} cannot be {value!r}. Use a finite number other than 0.")
    return number


def _predivide(op: Op, factor: float | str) -> float | None:
    number = number_of(factor)
    if number == 1.0:
        return 1.0
    if op not in (Op.SUM, *AVERAGES):
        raise InvalidArgument(
            f"{op.name} takes no gradient_predivide_factor, because it is not a sum. Omit it."
        )
    if isinstance(factor, str) and factor == "auto":
        return None
    if not math.isfinite(number) or number <= 0:
        raise InvalidArgument(
            f'gradient_predivide_factor cannot be {factor!r}. Use a number above 0, or "auto".'
        )
    return number


def _weight_by(op: Op, weight_by: str | None) -> Weight:
    known = ", ".join(f'"{name}"' for name in _WEIGHTS)
    if op != Op.WEIGHTED_AVERAGE:
        if weight_by is not None:
            raise InvalidArgument(
                f"{op.name} has no weights. Use op=basin.WeightedAverage, or omit weight_by."
            )
        return Weight.NONE
    if not isinstance(weight_by, str) or weight_by not in _WEIGHTS:
        raise InvalidArgument(
            f"A weighted average cannot have weight_by={weight_by!r}: the weight is a count of the "
            f"contribution. Use one of {known}."
        )
    return _WEIGHTS[weight_by]


def _contributes_sum(op: Op, contributes: str | None) -> bool:
    if op != Op.WEIGHTED_AVERAGE:
        if contributes is not None:
            raise InvalidArgument(
                f"{op.name} does not distinguish means and sums. Use op=basin.WeightedAverage, or "
                "omit contributes."
            )
        return False
    if not isinstance(contributes, str) or contributes not in ("mean", "sum"):
        raise InvalidArgument(
            f"A weighted average cannot have contributes={contributes!r}. Use "
            '"mean" if contributions are means over what weight_by names, "sum" if they are sums.'
        )
    return contributes == "sum"


def _divide_by_present(op: Op, divide_by_present: bool) -> bool:
    if not isinstance(divide_by_present, bool):
        raise InvalidArgument(
            f"divide_by_present cannot be {divide_by_present!r}. Use True or False."
        )
    if divide_by_present and op not in AVERAGES:
        raise InvalidArgument(
            f"{op.name} has no divisor. Use an average, or omit divide_by_present."
        )
    return divide_by_present
