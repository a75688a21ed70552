#!/usr/bin/env python3
# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""Generates the golden vectors of the canonical reduction in this folder.

Every operation is computed exactly, in rationals, and rounded once to nearest even by the code
below, so that no floating-point unit, library or flag can affect the expected bits. A second
evaluation with NumPy must then agree. README.md describes the format of the files.

    tests/golden/make_golden.py            writes the files
    tests/golden/make_golden.py --check    exits with 1, naming the file, if one differs

The output depends only on this script.
"""

import argparse
import pathlib
import random
import sys
from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np

GOLDEN = pathlib.Path(__file__).resolve().parent
CONTRACT = 1
NORM_LEAF = 32768  # elements; two leaves are a block
NORM_LANES = 16


# ---------------------------------------------------------------------------------------------
# Numbers: IEEE 754 values as exact rationals.


@dataclass(frozen=True)
class Format:
    """A binary floating-point format: width, precision (with the hidden bit), largest exponent."""

    name: str
    bits: int
    precision: int
    emax: int

    @property
    def emin(self):
        return 1 - self.emax

    @property
    def mantissa_bits(self):
        return self.precision - 1

    @property
    def exponent_mask(self):
        return (1 << (self.bits - self.precision)) - 1


F64 = Format("f64", 64, 53, 1023)
F32 = Format("f32", 32, 24, 127)
F16 = Format("f16", 16, 11, 15)
BF16 = Format("bf16", 16, 8, 127)
FLOATS = {f.name: f for f in (F64, F32, F16, BF16)}
INTEGERS = {"i64": (64, True), "i32": (32, True), "u8": (8, False)}

INFINITE = "infinite"
NOT_A_NUMBER = "nan"


@dataclass(frozen=True)
class Number:
    """A sign and a magnitude, which is a Fraction, INFINITE or NOT_A_NUMBER."""

    negative: bool
    magnitude: object

    @property
    def is_nan(self):
        return self.magnitude == NOT_A_NUMBER

    @property
    def is_infinite(self):
        return self.magnitude == INFINITE

    @property
    def is_finite(self):
        return isinstance(self.magnitude, Fraction)

    @property
    def is_zero(self):
        return self.is_finite and self.magnitude == 0

    @property
    def signed(self):
        return -self.magnitude if self.negative else self.magnitude


NAN = Number(False, NOT_A_NUMBER)
ONE = Number(False, Fraction(1))
ZERO = Number(False, Fraction(0))


def floor_log2(x):
    """The largest e with 2^e <= x, for a positive Fraction."""
    e = x.numerator.bit_length() - x.denominator.bit_length()
    return e if Fraction(2) ** e <= x else e - 1


def round_to(fmt, x):
    """x rounded once to nearest even in fmt."""
    if not x.is_finite or x.magnitude == 0:
        return x
    exponent = max(floor_log2(x.magnitude), fmt.emin)
    quantum = Fraction(2) ** (exponent - fmt.mantissa_bits)
    count = round(x.magnitude / quantum)  # round() of a Fraction is half to even
    rounded = count * quantum
    if rounded >= Fraction(2) ** (fmt.emax + 1):
        return Number(x.negative, INFINITE)
    return Number(x.negative, rounded)


def decode(fmt, bits):
    negative = bool(bits >> (fmt.bits - 1))
    exponent = (bits >> fmt.mantissa_bits) & fmt.exponent_mask
    mantissa = bits & ((1 << fmt.mantissa_bits) - 1)
    if exponent == fmt.exponent_mask:
        return NAN if mantissa else Number(negative, INFINITE)
    if exponent:
        mantissa |= 1 << fmt.mantissa_bits
    scale = max(exponent, 1) - fmt.emax - fmt.mantissa_bits
    return Number(negative, mantissa * Fraction(2) ** scale)


def encode(fmt, x):
    """The bits of x, which must be a value of fmt. Every NaN becomes the canonical quiet NaN."""
    if x.is_nan:
        return (fmt.exponent_mask << fmt.mantissa_bits) | (1 << (fmt.mantissa_bits - 1))
    sign = int(x.negative) << (fmt.bits - 1)
    if x.is_infinite:
        return sign | (fmt.exponent_mask << fmt.mantissa_bits)
    if x.magnitude == 0:
        return sign
    exponent = max(floor_log2(x.magnitude), fmt.emin)
    count = x.magnitude / Fraction(2) ** (exponent - fmt.mantissa_bits)
    assert count.denominator == 1, "not a value of the format"
    hidden = 1 << fmt.mantissa_bits
    if count.numerator < hidden:
        return sign | count.numerator
    return sign | ((exponent + fmt.emax) << fmt.mantissa_bits) | (count.numerator - hidden)


def multiply(fmt, a, b):
    negative = a.negative != b.negative
    if a.is_nan or b.is_nan:
        return NAN
    if a.is_infinite or b.is_infinite:
        return NAN if a.is_zero or b.is_zero else Number(negative, INFINITE)
    return round_to(fmt, Number(negative, a.magnitude * b.magnitude))


def divide(fmt, a, b):
    negative = a.negative != b.negative
    if a.is_nan or b.is_nan or (a.is_infinite and b.is_infinite) or (a.is_zero and b.is_zero):
        return NAN
    if a.is_infinite or b.is_zero:
        return Number(negative, INFINITE)
    if b.is_infinite:
        return Number(negative, Fraction(0))
    return round_to(fmt, Number(negative, a.magnitude / b.magnitude))


def add(fmt, a, b):
    if a.is_nan or b.is_nan:
        return NAN
    if a.is_infinite or b.is_infinite:
        if a.is_infinite and b.is_infinite and a.negative != b.negative:
            return NAN
        return a if a.is_infinite else b
    total = a.signed + b.signed
    if total == 0:  # An exact zero is +0 in this rounding mode, unless both terms are -0.
        return Number(a.negative and b.negative, Fraction(0))
    return round_to(fmt, Number(total < 0, abs(total)))


def smaller(a, b):
    """The minimum: a NaN wins, -0 is smaller than +0."""
    if a.is_nan or b.is_nan:
        return NAN
    return a if order(a) <= order(b) else b


def larger(a, b):
    if a.is_nan or b.is_nan:
        return NAN
    return a if order(a) >= order(b) else b


def order(x):
    """A sort key over the numbers that puts -0 before +0."""
    above_all = Fraction(2) ** 2000
    magnitude = above_all if x.is_infinite else x.magnitude
    return (-magnitude if x.negative else magnitude, 0 if x.negative else 1)


def number(x):
    """The Number of a Python float or int, exactly (an int may be wider than any format)."""
    if isinstance(x, int):
        return Number(x < 0, Fraction(abs(x)))
    return decode(F64, int(np.float64(x).view(np.uint64)))


# ---------------------------------------------------------------------------------------------
# The reduction.


@dataclass
class Worker:
    id: str
    bits: list | None  # None: this worker skipped the tensor
    dtype: str = ""
    weight: int = 1
    wire_exponent: int = 0


@dataclass
class Case:
    name: str
    op: str
    result: str
    workers: list
    kind: str = "MEAN"
    denominator: str = "ALL"
    tensor: str = ""  # The tensor's dtype, if it is not that of the result.
    prescale: float = 1.0
    postscale: float = 1.0
    predivide: float = 1.0
    elements: int | None = None  # None: as many as the lists hold

    @property
    def tensor_dtype(self):
        return self.tensor or self.result

    @property
    def length(self):
        if self.elements is not None:
            return self.elements
        return max((len(w.bits) for w in self.workers if w.bits is not None), default=4)


@dataclass
class Expected:
    outcome: str
    divisor: int = 0
    values: list = field(default_factory=list)
    sum_of_squares: int | None = None  # None for integers, which have no norm
    nonfinite: tuple | None = None
    overflow: int = 0
    wrapped: int = 0


ORDER_OPS = ("MIN", "MAX", "PRODUCT")
MEAN_OPS = ("AVERAGE", "WEIGHTED_AVERAGE")


def accumulator(case):
    return F64 if case.result == "f64" else F32


def adds_nothing(case, worker):
    return worker.bits is None or (case.op == "WEIGHTED_AVERAGE" and worker.weight == 0)


def divisor(case):
    if case.op not in MEAN_OPS:
        return 1
    counted = [w for w in case.workers if case.denominator == "ALL" or w.bits is not None]
    return sum(w.weight for w in counted) if case.op == "WEIGHTED_AVERAGE" else len(counted)


def outcome(case):
    if all(w.bits is None for w in case.workers):
        return "NONE"
    if case.op == "WEIGHTED_AVERAGE" and divisor(case) == 0:
        return "EMPTY"
    if all(adds_nothing(case, w) for w in case.workers):
        return "NONE"
    return "VALUES"


def coefficient(case, worker):
    """c_i, in f64 from left to right, then rounded to the accumulator type."""
    weighted = case.op == "WEIGHTED_AVERAGE" and case.kind == "MEAN"
    c = round_to(F64, number(worker.weight if weighted else 1))
    c = multiply(F64, c, number(case.prescale))
    c = divide(F64, c, number(case.predivide))
    return round_to(accumulator(case), c)


def finish(case, acc):
    """The step from the accumulator to the value that is rounded to the result dtype."""
    a = accumulator(case)
    q = number(case.postscale)
    if case.op in ORDER_OPS:
        factor = round_to(a, q)
        return acc if factor == ONE else multiply(a, acc, factor)
    fq = multiply(F64, number(case.predivide), q)
    if case.op == "SUM":
        factor = round_to(a, fq)
        return acc if factor == ONE else multiply(a, acc, factor)
    by = round_to(a, divide(F64, round_to(F64, number(divisor(case))), fq))
    return acc if by == ONE else divide(a, acc, by)


def undo_wire_scale(case, worker, x):
    if worker.wire_exponent == 0:
        return x
    return multiply(accumulator(case), x, Number(False, Fraction(2) ** -worker.wire_exponent))


def reduce_floats(case, expected):
    a = accumulator(case)
    result = FLOATS[case.result]
    taking_part = [w for w in case.workers if not adds_nothing(case, w)]
    coefficients = [coefficient(case, w) for w in taking_part]
    combine = {"MIN": smaller, "MAX": larger, "PRODUCT": lambda x, y: multiply(a, x, y)}.get(
        case.op, lambda x, y: add(a, x, y)
    )
    overflows = []
    for i in range(len(taking_part[0].bits)):
        acc = None
        overflows.append(0)
        for w, c in zip(taking_part, coefficients):
            sent = decode(FLOATS[w.dtype], w.bits[i])
            finite_so_far = sent.is_finite and (acc is None or acc.is_finite)
            x = undo_wire_scale(case, w, sent)
            term = x if c == ONE else multiply(a, x, c)
            acc = term if acc is None else combine(acc, term)
            overflows[-1] += finite_so_far and not acc.is_finite
        out = round_to(result, finish(case, acc))
        overflows[-1] += acc.is_finite and not out.is_finite
        expected.values.append(encode(result, out))
    expected.overflow = sum_cyclic(overflows, case.length)
    for w in taking_part:
        bad = [i for i, b in enumerate(w.bits) if not decode(FLOATS[w.dtype], b).is_finite]
        if bad and bad[0] < case.length:
            expected.nonfinite = (w.id, bad[0])
            break


def reduce_integers(case, expected):
    bits, signed = INTEGERS[case.result]
    combine = {"SUM": lambda x, y: x + y, "MIN": min, "MAX": max, "PRODUCT": lambda x, y: x * y}[
        case.op
    ]
    taking_part = [w for w in case.workers if not adds_nothing(case, w)]
    wraps = []
    for i in range(len(taking_part[0].bits)):
        wraps.append(0)
        acc = to_integer(taking_part[0].bits[i], bits, signed)
        for w in taking_part[1:]:
            exact = combine(acc, to_integer(w.bits[i], bits, signed))
            acc = to_integer(exact % 2**64, 64, True)
            wraps[-1] += acc != exact
        out = acc % 2**bits
        wraps[-1] += to_integer(out, bits, signed) != acc
        expected.values.append(out)
    expected.wrapped = sum_cyclic(wraps, case.length)


def to_integer(bits, width, signed):
    return bits - 2**width if signed and bits >> (width - 1) else bits


def sum_cyclic(counts, length):
    """The sum over `length` elements, of which element i has counts[i mod len(counts)]."""
    if not counts:
        return 0
    whole, rest = divmod(length, len(counts))
    return whole * sum(counts) + sum(counts[:rest])


def sum_of_squares(case, values):
    """Python's float is IEEE f64 and does each operation on its own, rounded to nearest even."""
    squares = [square(float_of(decode(FLOATS[case.result], v))) for v in values]
    leaves = [leaf_sum(squares, first, case.length) for first in range(0, case.length, NORM_LEAF)]
    total = 0.0
    for i in range(0, len(leaves), 2):
        total += leaves[i] + leaves[i + 1] if i + 1 < len(leaves) else leaves[i]
    return encode(F64, number(total))


def square(x):
    return x * x  # An infinity is no error, unlike in x ** 2.


def leaf_sum(squares, first, length):
    lanes = [0.0] * NORM_LANES
    for i in range(first, min(first + NORM_LEAF, length)):
        lanes[(i - first) % NORM_LANES] += squares[i % len(squares)]
    half = NORM_LANES // 2
    while half:
        for lane in range(half):
            lanes[lane] += lanes[lane + half]
        half //= 2
    return lanes[0]


def float_of(x):
    if x.is_nan:
        return float("nan")
    if x.is_infinite:
        return -float("inf") if x.negative else float("inf")
    value = x.magnitude.numerator / x.magnitude.denominator  # exact: x is a value of f64
    return -value if x.negative else value


def evaluate(case):
    expected = Expected(outcome(case), divisor(case))
    if expected.outcome != "VALUES":
        return expected
    if case.result in FLOATS:
        reduce_floats(case, expected)
        expected.sum_of_squares = sum_of_squares(case, expected.values)
    else:
        reduce_integers(case, expected)
    check_with_numpy(case, expected)
    return expected


# ---------------------------------------------------------------------------------------------
# The second opinion: the same reduction with NumPy's arithmetic.


def numpy_widen(case, worker):
    wide = np.float64 if case.result == "f64" else np.float32
    bits = worker.bits
    if worker.dtype == "bf16":
        x = (np.array(bits, dtype=np.uint32) << 16).view(np.float32)
    else:
        unsigned, floating = {
            "f64": (np.uint64, np.float64),
            "f32": (np.uint32, np.float32),
            "f16": (np.uint16, np.float16),
        }[worker.dtype]
        x = np.array(bits, dtype=unsigned).view(floating)
    return x.astype(wide) * wide(2.0**-worker.wire_exponent)


def numpy_round_bf16(y):
    """f32 to bf16 by the usual integer trick, for values that are not NaN."""
    bits = y.view(np.uint32).astype(np.uint64)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint64) & 0xFFFF


def check_with_numpy(case, expected):
    """Fails if NumPy, which uses the processor's floating point, computes other bits."""
    with np.errstate(all="ignore"):
        if case.result in FLOATS:
            got = numpy_reduce_floats(case)
        else:
            got = numpy_reduce_integers(case)
    if got != expected.values:
        raise AssertionError(f"{case.name}: NumPy gives {got}, exact {expected.values}")


def numpy_reduce_floats(case):
    wide = np.float64 if case.result == "f64" else np.float32
    acc = None
    for w in case.workers:
        if adds_nothing(case, w):
            continue
        weighted = case.op == "WEIGHTED_AVERAGE" and case.kind == "MEAN"
        c = wide(np.float64(w.weight if weighted else 1) * case.prescale / case.predivide)
        term = numpy_widen(case, w) * c
        if acc is None:
            acc = term
        elif case.op == "MIN":
            tie = np.where(np.signbit(acc), acc, term)
            acc = np.where(acc == term, tie, np.minimum(acc, term))
        elif case.op == "MAX":
            tie = np.where(np.signbit(acc), term, acc)
            acc = np.where(acc == term, tie, np.maximum(acc, term))
        elif case.op == "PRODUCT":
            acc = acc * term
        else:
            acc = acc + term
    fq = np.float64(case.predivide) * np.float64(case.postscale)
    if case.op in ORDER_OPS:
        y = acc * wide(case.postscale)
    elif case.op == "SUM":
        y = acc * wide(fq)
    else:
        y = acc / wide(np.float64(divisor(case)) / fq)
    y = y.astype(wide)
    nan = np.isnan(y)
    if case.result == "bf16":
        bits = numpy_round_bf16(y)
    else:
        unsigned, floating = {
            "f64": (np.uint64, np.float64),
            "f32": (np.uint32, np.float32),
            "f16": (np.uint16, np.float16),
        }[case.result]
        bits = y.astype(floating).view(unsigned)
    quiet = encode(FLOATS[case.result], NAN)
    return [quiet if n else int(b) for b, n in zip(bits, nan)]


def numpy_reduce_integers(case):
    native = {"i64": np.int64, "i32": np.int32, "u8": np.uint8}[case.result]
    unsigned = {"i64": np.uint64, "i32": np.uint32, "u8": np.uint8}[case.result]
    combine = {"SUM": np.add, "MIN": np.minimum, "MAX": np.maximum, "PRODUCT": np.multiply}[case.op]
    acc = None
    for w in case.workers:
        if adds_nothing(case, w):
            continue
        x = np.array(w.bits, dtype=unsigned).view(native).astype(np.int64)
        acc = x if acc is None else combine(acc, x)
    return [int(v) for v in acc.astype(native).view(unsigned)]


# ---------------------------------------------------------------------------------------------
# Input values.


def bits_of(dtype, *values):
    """The bits of Python numbers, rounded once to the dtype."""
    if dtype in FLOATS:
        fmt = FLOATS[dtype]
        return [encode(fmt, round_to(fmt, number(float(v)))) for v in values]
    width, _ = INTEGERS[dtype]
    return [v % 2**width for v in values]


def random_normal(dtype, seed, count, low=-3, high=3):
    """Values of either sign with a full random mantissa and exponents low..high."""
    fmt = FLOATS[dtype]
    rng = random.Random(seed)
    out = []
    for _ in range(count):
        sign = rng.getrandbits(1) << (fmt.bits - 1)
        exponent = low + rng.getrandbits(16) % (high - low + 1)
        mantissa = rng.getrandbits(fmt.mantissa_bits)
        out.append(sign | ((exponent + fmt.emax) << fmt.mantissa_bits) | mantissa)
    return out


def random_subnormal(dtype, seed, count):
    fmt = FLOATS[dtype]
    rng = random.Random(seed)
    return [
        (rng.getrandbits(1) << (fmt.bits - 1)) | (rng.getrandbits(fmt.mantissa_bits) or 1)
        for _ in range(count)
    ]


def random_integer(dtype, seed, count):
    rng = random.Random(seed)
    return [rng.getrandbits(INTEGERS[dtype][0]) for _ in range(count)]


def team(dtype, lists, weights=None, exponents=None):
    """Workers w00, w01, ... with these lists of bits (None: skips)."""
    weights = weights or [1] * len(lists)
    exponents = exponents or [0] * len(lists)
    return [
        Worker(f"w{i:02d}", bits, dtype, weight, exponent)
        for i, (bits, weight, exponent) in enumerate(zip(lists, weights, exponents))
    ]


def normals(dtype, seed, workers, count=8):
    return [random_normal(dtype, seed * 100 + i, count) for i in range(workers)]


# ---------------------------------------------------------------------------------------------
# The cases.

THIRD = 1.0 / 3.0
ALL_OPS = ("SUM", "AVERAGE", "WEIGHTED_AVERAGE", "MIN", "MAX", "PRODUCT")


def case(dtype, op, label, lists, weights=None, **options):
    """A reduction of one dtype by workers that send these lists of bits."""
    return Case(f"{dtype}/{op}/{label}", op, dtype, team(dtype, lists, weights), **options)


def float_cases(dtype):
    yield from op_cases(dtype)
    yield from scale_cases(dtype)
    yield from weight_cases(dtype)
    yield from predivide_cases(dtype)
    yield from overflow_cases(dtype)
    yield from zero_cases(dtype)
    yield from nonfinite_cases(dtype)
    yield from subnormal_cases(dtype)
    yield from rounding_cases(dtype)
    yield from skip_cases(dtype)
    yield from length_cases(dtype)


def op_cases(dtype):
    for op in ALL_OPS:
        for workers in (1, 2, 3, 8, 17):
            yield case(dtype, op, f"{workers}-workers", normals(dtype, 1, workers))
    order = bits_of(dtype, 1e8, 1, -1e8, 1)
    if dtype == "f16":
        order = bits_of(dtype, 60000, 0.001, -60000, 0.001)
    yield case(dtype, "SUM", "order-matters", [[b] for b in order])
    yield case(dtype, "SUM", "other-order", [[order[i]] for i in (0, 2, 1, 3)])
    tenth = bits_of(dtype, 0.1)
    for op in ("SUM", "AVERAGE"):
        yield case(dtype, op, "64-times-a-tenth", [tenth] * 64)


def scale_cases(dtype):
    lists = normals(dtype, 2, 3)
    for op in ALL_OPS:
        for label, s, q in (
            ("prescale-third", THIRD, 1.0),
            ("postscale-0.7", 1.0, 0.7),
            ("both-scales", THIRD, -2.75),
            ("prescale-1e-8", 1e-8, 1.0),
            ("prescale-near-one", 1.0 + 2.0**-40, 1.0),  # 1 in f32, not in f64
        ):
            yield case(dtype, op, f"{label}", lists, prescale=s, postscale=q)
    yield case(dtype, "AVERAGE", "postscale-cancels-count", lists, postscale=3.0)
    yield case(dtype, "SUM", "postscale-cancels-predivide", lists, postscale=0.25, predivide=4.0)


def weight_cases(dtype):
    lists = normals(dtype, 3, 4)
    w = "WEIGHTED_AVERAGE"
    for kind in ("MEAN", "SUM"):
        for label, weights in (
            ("small", [1, 2, 5, 7]),
            ("zero-among", [3, 0, 5, 0]),
            ("zero-first", [0, 0, 5, 6]),
            ("beyond-f32", [16777217, 33554435, 1, 99999999]),
            ("beyond-f64", [2**53 + 1, 2**60 + 3, 2**62 + 513, 1]),
        ):
            for s in (1.0, THIRD):
                yield case(
                    dtype,
                    w,
                    f"{kind}-{label}-{'third' if s != 1 else 'one'}",
                    lists,
                    weights,
                    kind=kind,
                    prescale=s,
                )
    nan = bits_of(dtype, float("nan")) * 8
    for kind in ("MEAN", "SUM"):
        yield case(
            dtype,
            w,
            f"{kind}-weight-0-hides-nan",
            [nan, lists[0], nan, lists[1]],
            [0, 2, 0, 3],
            kind=kind,
        )
    # A weight of 0 adds nothing, not even +0: the sum of -0 stays -0.
    negative_zero = bits_of(dtype, -0.0)
    yield case(
        dtype,
        w,
        "weight-0-adds-no-zero",
        [bits_of(dtype, 0.0), negative_zero, negative_zero],
        [0, 1, 2],
    )
    yield case(dtype, "AVERAGE", "ignores-weights", lists, [1, 0, 5, 9])


def predivide_cases(dtype):
    lists = normals(dtype, 4, 8)
    for op in ("SUM", "AVERAGE", "WEIGHTED_AVERAGE"):
        plain = None
        for f in (1.0, 2.0, 4.0, 8.0, 3.0):
            made = case(dtype, op, f"predivide-{f:g}", lists, [1, 2, 3, 4, 5, 6, 7, 8], predivide=f)
            values = evaluate(made).values
            plain = plain or values
            if f != 3.0 and values != plain:
                raise AssertionError(f"{made.name}: a power of two changed the result")
            if f == 3.0 and values == plain and dtype in ("f32", "f64"):
                raise AssertionError(f"{made.name}: f = 3 should differ from f = 1")
            yield made
    yield case(
        dtype,
        "AVERAGE",
        "predivide-and-scales",
        lists,
        prescale=THIRD,
        postscale=1.7,
        predivide=2.828,
    )


def overflow_cases(dtype):
    """Near the largest finite value: the accumulator or the last rounding overflows, or neither."""
    fmt = FLOATS[dtype]
    largest = float_of(decode(fmt, (fmt.exponent_mask << fmt.mantissa_bits) - 1))
    big = bits_of(dtype, {"f64": 1.6e308, "f16": 16384.0}.get(dtype, 3e38))
    for f in (1.0, 8.0):
        for op in ("SUM", "AVERAGE"):
            made = case(dtype, op, f"8-big-predivide-{f:g}", [big] * 8, predivide=f)
            finite = decode(fmt, evaluate(made).values[0]).is_finite
            if op == "AVERAGE" and finite != (f == 8.0 or dtype == "f16"):
                raise AssertionError(f"{made.name}: not as the requirement says")
            yield made
    # One element overflows, one has an infinite input, one is fine: only the first is an overflow.
    rows = [bits_of(dtype, largest, float("inf"), 1.0), bits_of(dtype, largest, 1.0, 2.0)]
    yield case(dtype, "SUM", "overflow-is-not-nonfinite", rows)
    yield case(
        dtype,
        "PRODUCT",
        "overflow-then-zero",
        [bits_of(dtype, largest, 2.0)] * 9 + [bits_of(dtype, 0.0, 0.0)],
    )
    yield case(
        dtype,
        "MAX",
        "postscale-overflows",
        [bits_of(dtype, largest, 1.0), bits_of(dtype, 1.0, -1.0)],
        postscale=2.0,
    )


def zero_cases(dtype):
    rows = [
        bits_of(dtype, -0.0, -0.0, 0.0, 0.0, 1.0, -1.0),
        bits_of(dtype, -0.0, 0.0, -0.0, 0.0, -1.0, 1.0),
    ]
    for op in ALL_OPS:
        yield case(dtype, op, "zeros", rows)
        yield case(dtype, op, "zeros-and-negative-scales", rows, prescale=-0.5, postscale=-4.0)
        # A worker that skips must not add +0 to a sum of -0.
        yield case(dtype, op, "zeros-with-skip", [None, rows[0], None])


def nonfinite_cases(dtype):
    fmt = FLOATS[dtype]
    sign = 1 << (fmt.bits - 1)
    infinity = fmt.exponent_mask << fmt.mantissa_bits
    quiet = infinity | (1 << (fmt.mantissa_bits - 1))
    signalling = infinity | 1
    one, zero = bits_of(dtype, 1.0, 0.0)
    pairs = [
        (infinity, infinity),
        (infinity, infinity | sign),
        (infinity | sign, one),
        (quiet | 5, quiet | sign | 3),
        (signalling, one),
        (one, signalling | sign),
        (quiet | sign, infinity),
        (infinity, zero),
        (infinity | sign, quiet),
        (one, one),
    ]
    left, right = [a for a, _ in pairs], [b for _, b in pairs]
    for op in ALL_OPS:
        yield case(dtype, op, "nonfinite", [left, right])
        yield case(dtype, op, "nonfinite-scaled", [left, right], prescale=-0.3, postscale=1.5)
        yield case(dtype, op, "nonfinite-alone", [left])
    fine = random_normal(dtype, 71, 10)
    late = list(fine)
    late[7] = signalling
    early = list(fine)
    early[2] = infinity | sign
    yield case(dtype, "SUM", "nonfinite-names-first-worker", [fine, late, early])
    yield case(
        dtype, "WEIGHTED_AVERAGE", "nonfinite-not-in-weight-0", [fine, early, late], [1, 0, 2]
    )


def subnormal_cases(dtype):
    lists = [random_subnormal(dtype, 500 + i, 8) for i in range(3)]
    fmt = FLOATS[dtype]
    smallest_normal = 1 << fmt.mantissa_bits
    for op in ALL_OPS:
        yield case(dtype, op, "subnormal", lists)
        yield case(dtype, op, "subnormal-third", lists, prescale=THIRD)
    edge = [
        smallest_normal,
        smallest_normal | 1,
        1,
        3,
        smallest_normal - 1,
        2 * smallest_normal - 1,
    ]
    for op in ("SUM", "AVERAGE"):
        yield case(dtype, op, "into-subnormal", [edge], prescale=0.5, postscale=0.25)
        yield case(
            dtype,
            op,
            "difference-is-subnormal",
            [[b + 1 for b in edge], [b | (1 << (fmt.bits - 1)) for b in edge]],
        )
    # 6e-8 is the smallest subnormal of f16; dividing by 8 and multiplying back must keep it.
    yield case(dtype, "AVERAGE", "smallest-predivide-8", [[1]] * 8, predivide=8.0)


def rounding_cases(dtype):
    """Ties, just above and just below ties, of the last rounding."""
    fmt = FLOATS[dtype]
    if dtype in ("f16", "bf16"):
        half_ulp = 2.0**-(fmt.precision)
        big = bits_of(dtype, 1.0, 1.0 + 2 * half_ulp, 1.0, 1.0, -1.0, 1.0 + 2 * half_ulp)
        small = bits_of(dtype, half_ulp, half_ulp, 0.0, half_ulp, -half_ulp, half_ulp)
        tiny_f = 2.0 ** -(fmt.precision + 8)
        tiny = bits_of(dtype, 0.0, 0.0, 0.0, tiny_f, 0.0, -tiny_f)
        yield case(dtype, "SUM", "ties-to-even", [big, small, tiny])
    fmt_max = (fmt.exponent_mask << fmt.mantissa_bits) - 1
    ulp = 2.0 ** (fmt.emax - fmt.mantissa_bits)
    row = [fmt_max, fmt_max, fmt_max, fmt_max | (1 << (fmt.bits - 1))]
    plus = bits_of(dtype, ulp / 2, ulp / 4, -ulp, -ulp / 2)
    yield case(dtype, "SUM", "rounds-up-to-infinity", [row, plus])
    for n in (3, 5, 7, 11):
        yield case(dtype, "AVERAGE", f"divides-by-{n}", normals(dtype, 80 + n, n, 16))


def skip_cases(dtype):
    a, b, c = normals(dtype, 6, 3)
    for denominator in ("ALL", "PRESENT"):
        for op in ALL_OPS:
            yield case(
                dtype,
                op,
                f"skips-{denominator}",
                [None, a, None, b, c],
                None if op in ORDER_OPS else [2, 3, 4, 5, 6],
                denominator=denominator,
            )
            yield case(
                dtype,
                op,
                f"all-skip-{denominator}",
                [None, None],
                None if op in ORDER_OPS else [1, 2],
                denominator=denominator,
            )
        w = "WEIGHTED_AVERAGE"
        yield case(
            dtype, w, f"no-weight-{denominator}", [a, None, b], [0, 0, 0], denominator=denominator
        )
        yield case(
            dtype,
            w,
            f"only-skipper-has-weight-{denominator}",
            [a, None, b],
            [0, 4, 0],
            denominator=denominator,
        )


def length_cases(dtype):
    lists = normals(dtype, 7, 3, 7)
    lengths = [1, 2, 3, 5, 15, 16, 17, 31, 33, 63, 65, 127, 1000]
    lengths += [leaves * NORM_LEAF + extra for leaves in (1, 2) for extra in (-1, 0, 1)]
    lengths += [3 * NORM_LEAF, 4 * NORM_LEAF + 37]
    for n in lengths:
        yield case(dtype, "AVERAGE", f"{n}-elements", lists, elements=n, prescale=THIRD)
    yield case(dtype, "SUM", "0-elements", [[], []], elements=0)


def integer_cases(dtype):
    width, signed = INTEGERS[dtype]
    highest = (1 << (width - 1)) - 1 if signed else (1 << width) - 1
    lowest = -(1 << (width - 1)) if signed else 0
    for op in ("SUM", "MIN", "MAX", "PRODUCT"):
        for workers in (1, 2, 3, 9):
            lists = [random_integer(dtype, 900 + i, 8) for i in range(workers)]
            yield case(dtype, op, f"{workers}-workers", lists)
        small = [
            bits_of(dtype, 1, 2, 3, 4, 5),
            bits_of(dtype, 5, 4, 3, 2, 1),
            bits_of(dtype, 0, 1, 2, 3, 2),
        ]
        yield case(dtype, op, "small", small)
        edge = [
            bits_of(dtype, highest, lowest, highest, lowest, 0),
            bits_of(dtype, 1, -1 if signed else 0, highest, lowest, 1),
            bits_of(dtype, -1 if signed else 0, 1, 0, 0, 7),
        ]
        yield case(dtype, op, "edges", edge)
        a, b = random_integer(dtype, 31, 6), random_integer(dtype, 32, 6)
        yield case(dtype, op, "skips", [None, a, None, b])
        yield case(dtype, op, "all-skip", [None, None])
        yield case(
            dtype,
            op,
            "1000-elements",
            [random_integer(dtype, 33 + i, 11) for i in range(3)],
            elements=1000,
        )
    yield case(
        dtype,
        "SUM",
        f"{NORM_LEAF + 9}-elements",
        [random_integer(dtype, 41, 5), random_integer(dtype, 42, 5)],
        elements=NORM_LEAF + 9,
    )
    yield case(dtype, "SUM", "0-elements", [[], []], elements=0)


def mixed_cases():
    """Contributions and results of other dtypes than the tensor's, and wire exponents."""
    for source, result in (
        ("f16", "f32"),
        ("bf16", "f32"),
        ("f32", "f16"),
        ("f32", "bf16"),
        ("bf16", "f16"),
    ):
        for op in ALL_OPS:
            yield Case(
                f"mixed/{source}-to-{result}/{op}",
                op,
                result,
                team(source, normals(source, 11, 3)),
                prescale=THIRD,
                tensor="f32",
            )
    for op in ("SUM", "AVERAGE", "MIN"):
        yield Case(
            f"mixed/three-wire-dtypes/{op}",
            op,
            "f32",
            [
                Worker("a", random_normal("f32", 21, 8), "f32"),
                Worker("b", random_normal("bf16", 22, 8), "bf16", wire_exponent=10),
                Worker("c", random_normal("f16", 23, 8), "f16", wire_exponent=-6),
            ],
        )
    for dtype in ("f16", "bf16"):
        lists = [random_normal(dtype, 24, 8, 2, 9), random_normal(dtype, 25, 8, 2, 9)]
        for k in (-20, -1, 1, 12, 100):
            yield Case(
                f"mixed/{dtype}-wire-exponent/{k}",
                "AVERAGE",
                "f32",
                team(dtype, lists, exponents=[k, 0]),
            )
        special = bits_of(dtype, float("inf"), float("-inf"), float("nan"), -0.0, 0.0)
        special.append(1)
        yield Case(
            f"mixed/{dtype}-wire-exponent/specials",
            "SUM",
            "f32",
            team(dtype, [special, special], exponents=[8, 9]),
        )
    # Undoing the wire scale can itself overflow; the input was finite, so this counts as overflow.
    yield Case(
        "mixed/bf16-wire-exponent/undo-overflows",
        "SUM",
        "f32",
        team("bf16", [bits_of("bf16", 3e38, 1.0), bits_of("bf16", 1.0, 1.0)], exponents=[-4, 0]),
    )


def rejected_cases():
    nan, inf = float("nan"), float("inf")
    good = {dtype: team(dtype, normals(dtype, 12, 2, 2)) for dtype in FLOATS}
    for label, bad in (
        ("zero", 0.0),
        ("negative-zero", -0.0),
        ("nan", nan),
        ("inf", inf),
        ("-inf", -inf),
    ):
        yield Case(f"rejected/prescale-{label}", "SUM", "f32", good["f32"], prescale=bad)
        yield Case(f"rejected/postscale-{label}", "SUM", "f32", good["f32"], postscale=bad)
        yield Case(f"rejected/predivide-{label}", "SUM", "f32", good["f32"], predivide=bad)
    yield Case("rejected/predivide-negative", "AVERAGE", "f32", good["f32"], predivide=-2.0)
    for op in ORDER_OPS:
        for dtype in FLOATS:
            yield Case(f"rejected/{dtype}-{op}-predivide", op, dtype, good[dtype], predivide=2.0)
        weighted = team("f32", [worker.bits for worker in good["f32"]], [1, 2])
        yield Case(f"rejected/{op}-weights", op, "f32", weighted)
    for s in (1e-50, 1e50):  # 0 or infinity in f32
        yield Case(f"rejected/prescale-{s:g}-in-f32", "SUM", "f32", good["f32"], prescale=s)
        yield Case(f"rejected/postscale-{s:g}-in-f32", "AVERAGE", "f32", good["f32"], postscale=s)
    yield Case(
        "rejected/predivide-and-prescale-underflow",
        "SUM",
        "f64",
        good["f64"],
        prescale=1e-200,
        predivide=1e200,
    )
    weights = team("f32", [worker.bits for worker in good["f32"]], [2**63, 2**63])
    yield Case("rejected/sum-of-weights-beyond-u64", "WEIGHTED_AVERAGE", "f32", weights)
    for dtype in INTEGERS:
        workers = team(dtype, [bits_of(dtype, 1, 2), bits_of(dtype, 3, 4)])
        for op in MEAN_OPS:
            yield Case(f"rejected/{dtype}-{op}", op, dtype, workers)
        for op in ("SUM", "MIN", "MAX", "PRODUCT"):
            yield Case(f"rejected/{dtype}-{op}-prescale", op, dtype, workers, prescale=2.0)
            yield Case(f"rejected/{dtype}-{op}-postscale", op, dtype, workers, postscale=2.0)
        yield Case(f"rejected/{dtype}-SUM-predivide", "SUM", dtype, workers, predivide=2.0)


# ---------------------------------------------------------------------------------------------
# Scale-and-cast.


def cast_records():
    """(name, to, exponent, inputs): f32 to a wire dtype, multiplied by 2^exponent in f32 first."""
    specials = bits_of("f32", 0.0, -0.0, 1.0, -1.0, float("inf"), float("-inf"), float("nan"))
    specials += [
        0x7F800001,
        0xFF800001,
        0xFFC00000,
        0x7FFFFFFF,
        0x00000001,
        0x80000001,
        0x007FFFFF,
        0x00800000,
    ]
    for dtype in ("f16", "bf16"):
        fmt = FLOATS[dtype]
        for k in (0, -3, 4):
            yield f"{dtype}/specials/{k}", dtype, k, specials
            yield f"{dtype}/normals/{k}", dtype, k, random_normal("f32", 55, 24, -14, 14)
        one_ulp = 2.0**-fmt.mantissa_bits
        ties = []
        for base in (1.0, 1.0 + one_ulp, 2.0 - one_ulp):
            for nudge in (0.0, 2.0**-23, -(2.0**-23)):
                ties += bits_of("f32", base + one_ulp / 2 + nudge, -(base + one_ulp / 2 + nudge))
        yield f"{dtype}/ties/0", dtype, 0, ties
        yield f"{dtype}/every-exponent/0", dtype, 0, [(e << 23) | 0x2AAAAA for e in range(255)]
        yield f"{dtype}/every-exponent/24", dtype, 24, [(e << 23) | 0x555555 for e in range(255)]
        yield (
            f"{dtype}/subnormal-results/0",
            dtype,
            0,
            [
                (e << 23) | m
                for e in (range(100, 114) if dtype == "f16" else (0,))
                for m in (0, 1, 0x1000, 0x400000, 0x400001, 0x7FFFFF)
            ],
        )
    edge = bits_of("f32", 65504.0, 65519.0, 65519.996, 65520.0, 65536.0, -65520.0, 3e38)
    for k in (0, -1, -8):
        yield f"f16/edge-of-range/{k}", "f16", k, edge
    tiny = bits_of("f32", 6e-8, 6e-8 / 8, 2.0**-25, 2.0**-24, 1.5 * 2.0**-25, -(2.0**-26))
    for k in (0, 3, 20):
        yield f"f16/underflow/{k}", "f16", k, tiny
    for k in (126, -126, 125):
        yield f"bf16/extreme-exponent/{k}", "bf16", k, random_normal("f32", 56, 16, -120, 120)
    # RN_32 of a subnormal product, then RN_16: two roundings, as defined.
    yield "bf16/two-roundings/-20", "bf16", -20, random_normal("f32", 57, 32, -112, -100)


def cast(to, exponent, bits):
    scaled = multiply(F32, decode(F32, bits), Number(False, Fraction(2) ** exponent))
    return encode(FLOATS[to], round_to(FLOATS[to], scaled))


def cast_back(to, exponent, bits):
    return encode(
        F32, multiply(F32, decode(FLOATS[to], bits), Number(False, Fraction(2) ** -exponent))
    )


def check_cast_with_numpy(to, exponent, bits, want):
    with np.errstate(all="ignore"):
        scaled = np.array([bits], dtype=np.uint32).view(np.float32) * np.float32(2.0**exponent)
        if np.isnan(scaled[0]):
            return
        got = scaled.astype(np.float16).view(np.uint16) if to == "f16" else numpy_round_bf16(scaled)
    if int(got[0]) != want:
        raise AssertionError(
            f"cast of {bits:08x} to {to}: NumPy gives {int(got[0]):04x}, exact {want:04x}"
        )


# ---------------------------------------------------------------------------------------------
# Writing.


def hexadecimal(dtype, values):
    digits = (FLOATS[dtype].bits if dtype in FLOATS else INTEGERS[dtype][0]) // 4
    return "".join(f" {v:0{digits}x}" for v in values)


def scale_bits(x):
    return f"{int(np.float64(x).view(np.uint64)):016x}"


def write_case(lines, case, expected):
    lines += [
        "",
        f"case {case.name}",
        f"op {case.op}",
        f"kind {case.kind}",
        f"denominator {case.denominator}",
        f"prescale {scale_bits(case.prescale)}",
        f"postscale {scale_bits(case.postscale)}",
        f"predivide {scale_bits(case.predivide)}",
        f"tensor {case.tensor_dtype}",
        f"result {case.result}",
        f"elements {case.length}",
    ]
    for w in case.workers:
        if w.bits is None:
            lines.append(f"worker {w.id} weight {w.weight} skip")
        else:
            values = hexadecimal(w.dtype, w.bits)
            lines.append(
                f"worker {w.id} weight {w.weight} values {w.dtype} {w.wire_exponent}{values}"
            )
    lines.append(f"outcome {expected.outcome}")
    if expected.outcome != "REJECTED":
        lines.append(f"divisor {expected.divisor}")
    if expected.outcome == "VALUES":
        first = expected.nonfinite
        squares = "-" if expected.sum_of_squares is None else f"{expected.sum_of_squares:016x}"
        lines += [
            f"values{hexadecimal(case.result, expected.values)}",
            f"sum_of_squares {squares}",
            f"nonfinite {first[0]} {first[1]}" if first else "nonfinite -",
            f"overflow {expected.overflow}",
            f"wrapped {expected.wrapped}",
        ]
    lines.append("end")


def header(what):
    return [
        "basin-golden 1",
        f"arithmetic-contract {CONTRACT}",
        f"# {what}",
        "# Made by make_golden.py; the format is in README.md.",
    ]


def reduce_file(what, cases, evaluator=evaluate):
    lines = header(what)
    names = set()
    for case in cases:
        if case.name in names:
            raise AssertionError(f"two cases are called {case.name}")
        names.add(case.name)
        write_case(lines, case, evaluator(case))
    return "\n".join(lines) + "\n"


def cast_file():
    lines = header("Scale-and-cast on the client, and its inverse.")
    for name, to, exponent, inputs in cast_records():
        outputs = [cast(to, exponent, b) for b in inputs]
        for b, want in zip(inputs, outputs):
            check_cast_with_numpy(to, exponent, b, want)
        lines += [
            "",
            f"cast {name}",
            "from f32",
            f"to {to}",
            f"wire_exponent {exponent}",
            f"input{hexadecimal('f32', inputs)}",
            f"output{hexadecimal(to, outputs)}",
            f"back{hexadecimal('f32', [cast_back(to, exponent, b) for b in outputs])}",
            "end",
        ]
    return "\n".join(lines) + "\n"


def all_files():
    files = {}
    for dtype in FLOATS:
        files[f"reduce-{dtype}.txt"] = reduce_file(f"Reductions of {dtype}.", float_cases(dtype))
    for dtype in INTEGERS:
        files[f"reduce-{dtype}.txt"] = reduce_file(f"Reductions of {dtype}.", integer_cases(dtype))
    files["reduce-mixed.txt"] = reduce_file(
        "Other dtypes on the wire or in the result.", mixed_cases()
    )
    files["rejected.txt"] = reduce_file(
        "Parameters that must be refused.", rejected_cases(), lambda case: Expected("REJECTED")
    )
    files["cast.txt"] = cast_file()
    return files


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--check", action="store_true", help="compare instead of writing")
    check = parser.parse_args().check
    differing = []
    cases = 0
    files = all_files()
    for name, text in files.items():
        cases += text.count("\nend\n")
        path = GOLDEN / name
        if check:
            if not path.exists() or path.read_text(encoding="ascii") != text:
                differing.append(name)
        else:
            path.write_text(text, encoding="ascii")
    for name in sorted({p.name for p in GOLDEN.glob("[a-z]*.txt")} - set(files)):
        differing.append(f"{name} (not made by this script)")
    for name in differing:
        print(f"tests/golden/{name} differs from what make_golden.py makes", file=sys.stderr)
    print(f"{cases} cases, {len(differing)} files differ")
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())
