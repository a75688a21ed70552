# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""Checks that the golden vectors are complete and unchanged.

The contract suites check that reducers give the bits in the files, and make_golden.py
checks that the bits are right. This test reads the files as text, with only the standard library:
it fails if a vector is missing, or no longer covers its case.
"""

import hashlib
import itertools
import math
import pathlib
import re
import struct
import typing
import unittest

GOLDEN = pathlib.Path(__file__).resolve().parent
VERSIONS = GOLDEN.parent.parent / "protocol" / "version.h"

FLOATS = ("f64", "f32", "f16", "bf16")
INTEGERS = ("i64", "i32", "u8")
AVERAGES = ("AVERAGE", "WEIGHTED_AVERAGE")
OPS = ("SUM", *AVERAGES, "MIN", "MAX", "PRODUCT")
ONE = "3ff0000000000000"
CANONICAL_NAN = {
    "f64": "7ff8000000000000",
    "f32": "7fc00000",
    "f16": "7e00",
    "bf16": "7fc0",
}


class Case:
    """A case of a reduce file: its fields by their first word, and its workers."""

    def __init__(self, lines):
        self.fields = {}
        self.workers = []
        for line in lines:
            word, _, rest = line.partition(" ")
            if word == "worker":
                self.workers.append(rest.split())
            else:
                self.fields[word] = rest
        self.name = self.fields["case"]

    def bits(self):
        return self.fields["values"].split()

    def values(self):
        return [number(self.fields["result"], bits) for bits in self.bits()]

    def inputs(self):
        """The values of the workers that did not skip, one list for each."""
        return [[number(w[4], v) for v in w[6:]] for w in self.workers if w[3] == "values"]

    def scale(self):
        return tuple(self.fields[k] != ONE for k in ("prescale", "postscale", "predivide"))


def number(dtype, bits):
    raw = bytes.fromhex(bits)
    if dtype == "bf16":
        raw, dtype = raw + b"\0\0", "f32"
    return struct.unpack({"f64": ">d", "f32": ">f", "f16": ">e"}[dtype], raw)[0]


def rounded(dtype, value):
    """A float of Python rounded to f32 or f16."""
    code = {"f32": "f", "f16": "e"}[dtype]
    return struct.unpack(code, struct.pack(code, value))[0]


def blocks(path, first):
    """The lines of each block of a file that begins with the word `first`."""
    block: list[str] = []
    for line in path.read_text(encoding="ascii").splitlines():
        if line.startswith(first + " "):
            block = []
        if line == "end":
            yield block
        elif line and not line.startswith("#"):
            block.append(line)


def cases():
    paths = [*sorted(GOLDEN.glob("reduce-*.txt")), GOLDEN / "rejected.txt"]
    found = [Case(block) for path in paths for block in blocks(path, "case")]
    return {case.name: case for case in found}


class FrozenTest(unittest.TestCase):
    def test_criterion_5_7_golden_vectors_are_frozen_per_contract_version(self):
        declared = VERSIONS.read_text(encoding="utf-8")
        (version,) = re.findall(r"kContractVersion = (\d+);", declared)
        frozen: dict[str, dict[str, str]] = {}
        for line in (GOLDEN / "frozen.sha256").read_text(encoding="ascii").splitlines():
            if not line.startswith("#"):
                at, digest, name = line.split()
                frozen.setdefault(at, {})[name] = digest
        self.assertIn(version, frozen, "this version of the contract has no frozen vectors")
        present = sorted(path for path in GOLDEN.glob("*.txt") if path.name != "CMakeLists.txt")
        for path in present:
            with self.subTest(file=path.name):
                lines = path.read_bytes().splitlines(keepends=True)
                content = b"".join(line for line in lines if not line.startswith(b"#"))
                self.assertEqual(
                    frozen[version].get(path.name),
                    hashlib.sha256(content).hexdigest(),
                    f"{path.name} is not the file that version {version} of the contract has; "
                    "other bits are another version (tests/golden/README.md)",
                )
                self.assertEqual(lines[1].decode(), f"arithmetic-contract {version}\n")
        self.assertEqual([path.name for path in present], sorted(frozen[version]))


class CoverageTest(unittest.TestCase):
    """The set of vectors."""

    def test_criterion_5_7_every_op_dtype_and_scale(self):
        present: dict[tuple[str, str], set[tuple[bool, ...]]] = {}
        rejected: dict[tuple[str, str], set[tuple[bool, ...]]] = {}
        for case in cases().values():
            key = (case.fields["op"], case.fields["tensor"])
            there = rejected if case.fields["outcome"] == "REJECTED" else present
            there.setdefault(key, set()).add(case.scale())
        plain, prescale, postscale, predivide = (
            (False, False, False),
            (True, False, False),
            (False, True, False),
            (False, False, True),
        )
        for op, dtype in itertools.product(OPS, FLOATS):
            with self.subTest(op=op, dtype=dtype):
                both = (True, True, False)
                self.assertLessEqual({plain, prescale, postscale, both}, present[op, dtype])
                there = present if op == "SUM" or op in AVERAGES else rejected
                self.assertIn(predivide, there[op, dtype])
        for op, dtype in itertools.product(OPS, INTEGERS):
            with self.subTest(op=op, dtype=dtype):
                if op in AVERAGES:
                    self.assertNotIn((op, dtype), present)
                    self.assertIn(plain, rejected[op, dtype])
                else:
                    self.assertEqual(present[op, dtype], {plain})
                    self.assertLessEqual({prescale, postscale}, rejected[op, dtype])


class MeaningTest(unittest.TestCase):
    """The properties that single vectors must show."""

    cases: typing.ClassVar[dict[str, Case]]

    @classmethod
    def setUpClass(cls):
        cls.cases = cases()

    def test_criterion_5_4_powers_of_two_predivide_without_a_trace_and_3_does_not(self):
        for op, dtype in itertools.product(("SUM", *AVERAGES), FLOATS):
            with self.subTest(op=op, dtype=dtype):
                plain = self.cases[f"{dtype}/{op}/predivide-1"].bits()
                for f in (2, 4, 8):
                    self.assertEqual(self.cases[f"{dtype}/{op}/predivide-{f}"].bits(), plain)
                three = self.cases[f"{dtype}/{op}/predivide-3"].bits()
                if dtype in ("f32", "f64"):
                    self.assertNotEqual(three, plain)

    def test_criterion_5_4_averages_are_quotients(self):
        for workers in (3, 5, 7, 11):
            case = self.cases[f"f32/AVERAGE/divides-by-{workers}"]
            quotients, products = [], []
            for column in zip(*case.inputs()):
                acc = column[0]
                for value in column[1:]:
                    acc = rounded("f32", acc + value)  # Exact in f64 at these magnitudes.
                quotients.append(rounded("f32", acc / workers))
                products.append(rounded("f32", acc * rounded("f32", 1 / workers)))
            self.assertEqual(case.values(), quotients)
            self.assertNotEqual(quotients, products)

    def test_criterion_5_5_scales_are_not_rounded_to_the_payload(self):
        case = self.cases["f16/SUM/prescale-third"]
        coarse = rounded("f16", 1 / 3)  # 2.4e-4 off.
        with_coarse = []
        for column in zip(*case.inputs()):
            with_coarse.append(rounded("f16", sum(value * coarse for value in column)))
        self.assertNotEqual(case.values(), with_coarse)
        tiny = self.cases["f16/SUM/prescale-1e-8"]
        self.assertEqual(rounded("f16", 1e-8), 0.0)
        self.assertTrue(any(tiny.values()))

    def test_criterion_5_5_predivide_does_not_underflow_f16(self):
        case = self.cases["f16/AVERAGE/smallest-predivide-8"]
        smallest = 2.0**-24
        self.assertEqual(rounded("f16", smallest / 8), 0.0)
        self.assertIn(smallest, [abs(value) for value in case.values()])

    def test_criterion_5_5_a_wire_scale_keeps_the_cast_from_overflowing(self):
        records = {}
        for block in blocks(GOLDEN / "cast.txt", "cast"):
            record = dict(line.split(" ", 1) for line in block)
            records[record["cast"]] = record
        plain, scaled = records["f16/edge-of-range/0"], records["f16/edge-of-range/-1"]
        self.assertEqual(plain["input"], scaled["input"])
        inputs = [number("f32", bits) for bits in plain["input"].split()]
        at = inputs.index(65520.0)
        self.assertEqual(number("f16", plain["output"].split()[at]), math.inf)
        back = number("f32", scaled["back"].split()[at])
        self.assertAlmostEqual(back / 65520.0, 1, delta=2.0**-11)

    def test_criterion_5_7_a_third_with_weights(self):
        for dtype in FLOATS:
            case = self.cases[f"{dtype}/WEIGHTED_AVERAGE/MEAN-small-third"]
            weights = [int(worker[2]) for worker in case.workers]
            self.assertEqual(case.fields["divisor"], str(sum(weights)))
            relative = {"f64": 1e-14, "f32": 1e-5, "f16": 2e-2, "bf16": 1e-1}[dtype]
            for column, value in zip(zip(*case.inputs()), case.values()):
                exact = sum(w * x for w, x in zip(weights, column)) / 3 / sum(weights)
                scale = sum(w * abs(x) for w, x in zip(weights, column)) / 3 / sum(weights)
                self.assertLessEqual(abs(value - exact), relative * scale)

    def test_criterion_5_7_large_values_stay_finite_with_predivide(self):
        for dtype in ("f32", "bf16"):
            self.assertEqual(self.cases[f"{dtype}/AVERAGE/8-big-predivide-1"].values(), [math.inf])
            case = self.cases[f"{dtype}/AVERAGE/8-big-predivide-8"]
            self.assertEqual(len(case.workers), 8)
            sent = case.inputs()[0][0]
            self.assertAlmostEqual(case.values()[0] / sent, 1, delta=2.0**-21)
            self.assertAlmostEqual(sent / 3e38, 1, delta=2.0**-8)

    def test_criterion_1_7_f16_that_would_overflow_averages_right(self):
        case = self.cases["f16/AVERAGE/8-big-predivide-1"]
        self.assertEqual(case.inputs(), [[16384.0]] * 8)
        self.assertEqual(case.values(), [16384.0])
        self.assertEqual(self.cases["f16/SUM/8-big-predivide-1"].values(), [math.inf])

    def test_criterion_5_7_negative_zeros_keep_their_sign(self):
        for dtype in FLOATS:
            case = self.cases[f"{dtype}/AVERAGE/zeros"]
            for column, value in zip(zip(*case.inputs()), case.values()):
                if all(x == 0 for x in column):
                    negative = all(math.copysign(1, x) < 0 for x in column)
                    self.assertEqual(math.copysign(1, value), -1 if negative else 1)

    def test_criterion_5_7_weight_0_hides_a_nan(self):
        for dtype in FLOATS:
            case = self.cases[f"{dtype}/WEIGHTED_AVERAGE/MEAN-weight-0-hides-nan"]
            self.assertTrue(any(math.isnan(x) for row in case.inputs() for x in row))
            self.assertTrue(all(math.isfinite(x) for x in case.values()))
            self.assertEqual(case.fields["nonfinite"], "-")

    def test_criterion_5_7_every_nan_is_the_canonical_one(self):
        for dtype in FLOATS:
            case = self.cases[f"{dtype}/SUM/nonfinite"]
            kinds = set()
            for column, bits, value in zip(zip(*case.inputs()), case.bits(), case.values()):
                if math.isnan(value):
                    self.assertEqual(bits, CANONICAL_NAN[dtype])
                    kinds.add(tuple(sorted("nan" if math.isnan(x) else str(x) for x in column)))
            self.assertLessEqual({("-inf", "inf"), ("nan", "nan")}, kinds)

    def test_criterion_5_7_subnormals_are_kept(self):
        smallest_normal = {"f64": 2.0**-1022, "f32": 2.0**-126, "f16": 2.0**-14, "bf16": 2.0**-126}
        for op, dtype in itertools.product(OPS, FLOATS):
            if op == "PRODUCT":  # A product of subnormals is too small for any dtype.
                continue
            case = self.cases[f"{dtype}/{op}/subnormal"]
            limit = smallest_normal[dtype]
            self.assertTrue(all(abs(x) < limit for row in case.inputs() for x in row))
            self.assertTrue(any(0 < abs(value) < limit for value in case.values()))


if __name__ == "__main__":
    unittest.main()
