# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""What a round computes, as its workers say it and as its reply says it."""

import ctypes
import enum
from dataclasses import dataclass

from basin import _abi


class Op(enum.IntEnum):
    """What a round does with the contributions. There is no default: an average of what should
    be summed is wrong in silence."""

    SUM = 1
    AVERAGE = 2
    WEIGHTED_AVERAGE = 3
    MIN = 4
    MAX = 5
    PRODUCT = 6


class Weight(enum.IntEnum):
    """Which count of a contribution is its weight in a WEIGHTED_AVERAGE."""

    NONE = 0
    SAMPLES = 1
    TOKENS = 2
    MICRO_BATCHES = 3


@dataclass(frozen=True)
class Counts:
    """What a contribution stands for; None is unknown, which is not 0."""

    samples: int | None = None
    tokens: int | None = None
    micro_batches: int | None = None

    @staticmethod
    def from_c(samples: int, tokens: int, micro_batches: int) -> "Counts":
        def known(count: int) -> int | None:
            return None if count < 0 else count

        return Counts(known(samples), known(tokens), known(micro_batches))


@dataclass(frozen=True)
class RoundSpec:
    """What all workers of a round must agree on, and what this one contributes.

    With x_i of N workers, and w_i its count that `weight` names:
      SUM               postscale * sum(prescale * x_i)
      AVERAGE           postscale / N * sum(prescale * x_i)
      WEIGHTED_AVERAGE  postscale / sum(w_i) * sum(prescale * w_i * x_i); without the factor w_i in
                        the sum when x_i is a sum already
      MIN MAX PRODUCT   postscale * op(prescale * x_i)

    predivide:         divides before the sum and multiplies after it: range, not value; None: a
                       power of two near the root of the number of workers, chosen for each round
    contributes_sum:   x_i is a sum over what is counted, not the mean
    divide_by_present: each tensor by the workers that pushed it, not by all
    loss_scale:        of this worker's gradient; compared with the others', never applied
    counts:            of this contribution
    step:              the trainer's own number; a label
    """

    op: Op
    prescale: float = 1.0
    postscale: float = 1.0
    predivide: float | None = 1.0
    weight: Weight = Weight.NONE
    contributes_sum: bool = False
    divide_by_present: bool = False
    loss_scale: float = 1.0
    counts: Counts = Counts()
    step: int = 0

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
            weight=self.weight,
            divide_by_present=self.divide_by_present,
            loss_scale=self.loss_scale,
            samples=count(self.counts.samples),
            tokens=count(self.counts.tokens),
            micro_batches=count(self.counts.micro_batches),
            step=self.step,
        )
