# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""Scripts of Horovod for TensorFlow and Keras run as they are, with two workers.

Usage: test_horovod_tensorflow.py BASIND LIBBASIN
"""

import re
import tempfile
import unittest
from pathlib import Path
from typing import Any

from framework_jobs import HERE, ROOT, WORKERS, as_workers, main, require_frameworks

require_frameworks("tensorflow", "keras", "sklearn")
import torch  # noqa: E402 - ends above when there is none


def results(script: str) -> list[Any]:
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        as_workers(HERE / script, folder, "--horovod", "-np", str(WORKERS))
        return [torch.load(folder / f"results-{rank}.pt") for rank in range(WORKERS)]


class Scripts(unittest.TestCase):
    def assert_equal_bits(self, mine: Any, others: Any) -> None:
        self.assertEqual(mine.keys(), others.keys())
        for name, value in mine.items():
            self.assertTrue(value.equal(others[name]), name)

    def test_tensorflow(self) -> None:
        first, second = results("horovod_tensorflow.py")
        for case in ("plain", "fp16"):
            self.assert_equal_bits(first[case], second[case])

    def test_the_examples(self) -> None:
        for script in ("tensorflow_digits.py", "keras_digits.py"):
            with self.subTest(script), tempfile.TemporaryDirectory() as made:
                example = ROOT / "examples/horovod" / script
                text = as_workers(example, Path(made), "--horovod", "-np", str(WORKERS))
                sums = re.findall(r"parameters (\S+)", text)
                self.assertEqual(WORKERS, len(sums), text)
                self.assertEqual(1, len(set(sums)), text)
                self.assertGreater(float(re.findall(r"([\d.]+) % right", text)[-1]), 75.0)

    def test_keras(self) -> None:
        first, second = results("horovod_keras.py")
        self.assertEqual(first["losses"], second["losses"])
        self.assert_equal_bits(first["weights"], second["weights"])


if __name__ == "__main__":
    main()
