#!/usr/bin/env python3
# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""Checks the device code against the arithmetic contract, without a device.

usage: test_ptx.py <nvcc> <repository root> <compiler flags>...

Compiles the kernels to PTX with the flags that the build uses. In PTX each operation names its
rounding: `.rn` may not be fused with another by what compiles PTX further.
"""

import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

FLOAT_OPERATION = re.compile(r"^\s*(?:@%p\d+\s+)?([a-z]+)((?:\.\w+)+)\s", re.M)
ARITHMETIC = {"add", "sub", "mul", "div", "fma", "mad", "rcp", "sqrt", "rsqrt", "ex2", "lg2"}
SOURCES = ("kernels/cuda/reduce.cu", "kernels/cuda/narrow.cu")


def float_operations(ptx: str) -> dict[str, int]:
    """How often each arithmetic instruction on f32 or f64 occurs."""
    counts: dict[str, int] = {}
    for name, modifiers in FLOAT_OPERATION.findall(ptx):
        if name in ARITHMETIC and modifiers.endswith((".f32", ".f64")):
            instruction = name + modifiers
            counts[instruction] = counts.get(instruction, 0) + 1
    return counts


def breaches(ptx: str) -> list[str]:
    """The instructions that the contract does not allow."""
    allowed = re.compile(r"(add|sub|mul|div)\.rn\.(f32|f64)")
    return [name for name in float_operations(ptx) if not allowed.fullmatch(name)]


class DeviceCode(unittest.TestCase):
    def compile(self, source: str, flags: list[str]) -> str:
        with tempfile.TemporaryDirectory() as folder:
            output = Path(folder, "code.ptx")
            command = [NVCC, "-std=c++17", f"-I{ROOT}", "-arch=compute_80", *flags]
            subprocess.run([*command, "-ptx", str(ROOT / source), "-o", str(output)], check=True)
            return output.read_text()

    def test_rounds_each_operation_once(self) -> None:
        for source in SOURCES:
            ptx = self.compile(source, FLAGS)
            self.assertTrue(float_operations(ptx), f"{source}: no arithmetic was recognised")
            self.assertEqual([], breaches(ptx), source)

    def test_flags_matter(self) -> None:
        """Without the flags the compiler fuses, so the test above can fail."""
        careless = [flag for flag in FLAGS if not flag.startswith(("-fmad", "-ftz", "-prec"))]
        self.assertNotEqual(careless, FLAGS)
        ptx = self.compile(SOURCES[0], [*careless, "-use_fast_math"])
        found = " ".join(breaches(ptx))
        for expected in ("fma", "ftz"):
            self.assertIn(expected, found)


if __name__ == "__main__":
    NVCC, ROOT, FLAGS = sys.argv[1], Path(sys.argv[2]).resolve(), sys.argv[3:]
    unittest.main(argv=sys.argv[:1], verbosity=2)
