# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""Compares the kernels bit for bit with NumPy and PyTorch.

The oracle is C++ that we wrote, so agreeing with it shows little by itself. Here the definition
(kernels/plan.h) is written once more in terms of numpy.float16, numpy.float32, numpy.float64 and
NumPy's integers, each operation of which rounds once, and bfloat16 is converted by PyTorch. Driver
and definition get the same bytes and must give the same bytes.

Usage: test_oracle_vs_numpy.py <oracle driver> [arguments of unittest]; needs numpy and torch. Exits
with 77, which ctest counts as skipped, when they are not installed.
"""

import subprocess
import sys
import unittest

try:
    import numpy as np
    import torch
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

DRIVER = ""
F32_FAMILY = ("f32", "f16", "bf16")
NUMPY = {
    "f64": np.float64,
    "f32": np.float32,
    "f16": np.float16,
    "bf16": np.uint16,
    "i64": np.int64,
    "i32": np.int32,
    "u8": np.uint8,
}
CANONICAL_NAN = {"f64": 0x7FF8000000000000, "f32": 0x7FC00000, "f16": 0x7E00, "bf16": 0x7FC0}
BITS = {"f64": np.uint64, "f32": np.uint32, "f16": np.uint16, "bf16": np.uint16}


def accumulator(tensor_dtype):
    """The NumPy type in which a tensor of this dtype is accumulated."""
    if tensor_dtype in F32_FAMILY:
        return np.float32
    return np.float64 if tensor_dtype == "f64" else np.int64


def widen(dtype, values, acc_type):
    if dtype != "bf16":
        return values.astype(acc_type)
    tensor = torch.from_numpy(values.view(np.int16).copy()).view(torch.bfloat16)
    return tensor.to(torch.float32).numpy()


def narrow(dtype, values):
    """Rounds to the result dtype and makes NaN canonical; returns an array of bit patterns."""
    if dtype == "bf16":
        rounded = torch.from_numpy(values.copy()).to(torch.bfloat16)
        bits = rounded.view(torch.int16).numpy().view(np.uint16).copy()
        # torch rounds f32 to f16 as well; both libraries must agree with each other first.
    elif dtype in BITS:
        bits = values.astype(NUMPY[dtype]).view(BITS[dtype]).copy()
    else:
        return values.astype(NUMPY[dtype])
    if dtype == "f16":
        by_torch = torch.from_numpy(values.copy()).to(torch.float16).view(torch.int16).numpy()
        numbers = ~np.isnan(values)
        assert (by_torch.view(np.uint16)[numbers] == bits[numbers]).all()
    bits[np.isnan(values)] = CANONICAL_NAN[dtype]
    return bits


def extreme(op, acc, p):
    """MIN or MAX: NaN wins and -0 < +0."""
    if not np.issubdtype(acc.dtype, np.floating):
        return np.minimum(acc, p) if op == "MIN" else np.maximum(acc, p)
    chosen = np.minimum(acc, p) if op == "MIN" else np.maximum(acc, p)
    zeros = (acc == 0) & (p == 0)
    negative = np.signbit(acc) | np.signbit(p) if op == "MIN" else np.signbit(acc) & np.signbit(p)
    return np.where(zeros, np.where(negative, acc.dtype.type(-0.0), acc.dtype.type(0.0)), chosen)


class Reduction:
    """A reduction: its parameters, and contributions as (wire dtype, exponent, weight, values)."""

    def __init__(self, op, tensor, contributions, result=None, s=1.0, q=1.0, f=1.0):
        self.op, self.tensor, self.result = op, tensor, result or tensor
        self.contributions, self.s, self.q, self.f = contributions, s, q, f
        weights = [c[2] for c in contributions]
        self.divisor = {"AVERAGE": len(weights), "WEIGHTED_AVERAGE": sum(weights)}.get(op, 1)

    def line(self, backend):
        fields = [
            backend,
            self.op,
            self.tensor,
            self.result,
            float(self.s).hex(),
            float(self.q).hex(),
            float(self.f).hex(),
            self.divisor,
            len(self.contributions[0][3]),
            len(self.contributions),
        ]
        for wire, exponent, weight, values in self.contributions:
            fields += [wire, exponent, weight, values.tobytes().hex()]
        return " ".join(str(field) for field in fields)

    def expected(self):
        """The bytes of the result by the definition."""
        acc_type = accumulator(self.tensor)
        s, q, f = np.float64(self.s), np.float64(self.q), np.float64(self.f)
        integer = acc_type is np.int64
        acc = None
        with np.errstate(all="ignore"):
            for wire, exponent, weight, values in self.contributions:
                w = np.float64(weight) if self.op == "WEIGHTED_AVERAGE" else np.float64(1)
                p = widen(wire, values, acc_type)
                if not integer:
                    p = p * acc_type(2.0**-exponent)
                    p = p * acc_type(w * s / f)
                if acc is None:
                    acc = p
                elif self.op in ("MIN", "MAX"):
                    acc = extreme(self.op, acc, p)
                elif self.op == "PRODUCT":
                    acc = acc * p
                else:
                    acc = acc + p
            if self.op in ("AVERAGE", "WEIGHTED_AVERAGE"):
                acc = acc / acc_type(np.float64(self.divisor) / (f * q))
            elif not integer:
                acc = acc * acc_type(f * q)
            assert acc is not None and acc.dtype == acc_type
            return narrow(self.result, acc).tobytes()


def run_driver(lines):
    answer = subprocess.run(
        [DRIVER], input="\n".join(lines) + "\n", text=True, check=True, stdout=subprocess.PIPE
    )
    return answer.stdout.splitlines()


def backends():
    targets = subprocess.run([DRIVER, "--targets"], text=True, check=True, stdout=subprocess.PIPE)
    return ["reference", *targets.stdout.split()]


def any_bits(rng, dtype, count):
    """Every kind of bit pattern: a third random bits, the rest numbers of moderate size."""
    numpy_type = NUMPY[dtype]
    if dtype not in BITS:
        info = np.iinfo(numpy_type)  # type: ignore[type-var]
        return rng.integers(info.min, info.max, count, numpy_type, endpoint=True)
    most = np.iinfo(BITS[dtype]).max  # type: ignore[type-var]
    bits = rng.integers(0, most, count, BITS[dtype], endpoint=True)
    numbers = rng.normal(size=count) * 10.0 ** rng.integers(-3, 4, count)
    if dtype == "bf16":
        tensor = torch.from_numpy(numbers).to(torch.bfloat16)
        moderate = tensor.view(torch.int16).numpy().view(np.uint16)
    else:
        moderate = numbers.astype(numpy_type).view(BITS[dtype])
    return np.where(rng.random(count) < 0.34, bits, moderate).view(numpy_type)


class OracleTest(unittest.TestCase):
    def check(self, reductions):
        expected = [reduction.expected().hex() for reduction in reductions]
        for backend in backends():
            answers = run_driver([reduction.line(backend) for reduction in reductions])
            self.assertEqual(len(answers), len(reductions))
            for reduction, answer, right in zip(reductions, answers, expected):
                if answer == right:
                    continue
                size = np.dtype(NUMPY[reduction.result]).itemsize * 2
                where = next(
                    (
                        i
                        for i in range(0, len(right), size)
                        if answer[i : i + size] != right[i : i + size]
                    ),
                    0,
                )
                self.fail(
                    f"{backend} {reduction.op} {reduction.tensor} -> {reduction.result}: "
                    f"element {where // size} is {answer[where : where + size]}, "
                    f"not {right[where : where + size]} (little-endian)"
                )

    def test_criterion_5_4_floats_equal_numpy(self):
        rng = np.random.default_rng(54)
        scales = [(1, 1, 1), (1 / 3, 1, 1), (1, 0.1, 8), (-2.5, 3, 7), (1e-8, 1e6, 0.5)]
        reductions = []
        for dtype in ("f64", "f32", "f16", "bf16"):
            for op in ("SUM", "AVERAGE", "WEIGHTED_AVERAGE", "MIN", "MAX", "PRODUCT"):
                for s, q, f in scales:
                    for n in (1, 2, 3, 7):
                        weights = [1] * n
                        if op == "WEIGHTED_AVERAGE":
                            weights = [int(w) for w in rng.integers(1, 10000, n)]
                        count = int(rng.integers(1, 600))
                        contributions = [
                            (dtype, 0, w, any_bits(rng, dtype, count)) for w in weights
                        ]
                        f_used = f if op in ("SUM", "AVERAGE", "WEIGHTED_AVERAGE") else 1
                        reductions.append(Reduction(op, dtype, contributions, s=s, q=q, f=f_used))
        self.check(reductions)

    def test_criterion_5_5_narrowed_contributions_equal_numpy_and_torch(self):
        rng = np.random.default_rng(55)
        reductions = []
        for result in F32_FAMILY:
            for op in ("SUM", "AVERAGE", "MAX", "PRODUCT"):
                for _ in range(8):
                    count = int(rng.integers(1, 400))
                    contributions = []
                    for _ in range(int(rng.integers(1, 6))):
                        wire = str(rng.choice(F32_FAMILY))
                        exponent = 0 if wire == "f32" else int(rng.integers(-30, 31))
                        contributions.append((wire, exponent, 1, any_bits(rng, wire, count)))
                    reductions.append(Reduction(op, "f32", contributions, result=result, s=0.3))
        self.check(reductions)

    def test_integers_equal_numpy(self):
        rng = np.random.default_rng(56)
        reductions = []
        for dtype in ("i64", "i32", "u8"):
            for op in ("SUM", "MIN", "MAX", "PRODUCT"):
                for n in (1, 2, 3, 7):
                    count = int(rng.integers(1, 600))
                    contributions = [(dtype, 0, 1, any_bits(rng, dtype, count)) for _ in range(n)]
                    reductions.append(Reduction(op, dtype, contributions))
        self.check(reductions)

    def test_every_f16_and_bf16_pattern_widens_as_numpy_and_torch_have_it(self):
        patterns = np.arange(65536, dtype=np.uint16)
        self.check(
            [
                Reduction("SUM", "f32", [("f16", 0, 1, patterns.view(np.float16))]),
                Reduction("SUM", "f32", [("bf16", 0, 1, patterns)]),
            ]
        )

    def test_rounding_to_16_bits_equals_numpy_and_torch(self):
        # Around every 16-bit value and every point halfway between two.
        patterns = np.arange(65536, dtype=np.uint32)
        f16 = patterns.astype(np.uint16).view(np.float16).astype(np.float32).view(np.uint32)
        for base in (f16, patterns << 16):
            for offset in (-1, 0, 1, 0xFFF, 0x1000, 0x1001, 0x7FFF, 0x8000, 0x8001):
                values = (base.astype(np.int64) + offset).astype(np.uint32).view(np.float32)
                self.check(
                    [
                        Reduction("SUM", "f32", [("f32", 0, 1, values)], result=result)
                        for result in ("f16", "bf16")
                    ]
                )


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    DRIVER = sys.argv.pop(1)
    unittest.main()
