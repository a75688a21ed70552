# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""TensorFlow, PyTorch and Basin, which each bring libraries such as protobuf and Abseil, work in
one process, whichever is loaded first.

Usage: test_one_process.py BASIND LIBBASIN
"""

import itertools
import tempfile
import unittest
from pathlib import Path

from framework_jobs import WORKERS, as_workers, main, require_frameworks

require_frameworks("tensorflow")

# Loads one of them so that its libraries do something.
_USE = {
    "tensorflow": """
import tensorflow as tf
assert float(tf.function(lambda x: tf.reduce_sum(x * 2))(tf.ones([3]))) == 6.0
tf.train.Example.FromString(tf.train.Example().SerializeToString())
""",
    "torch": """
import torch
(torch.ones(3, requires_grad=True) * 2).sum().backward()
""",
    "basin": """
import basin
client = basin.connect()
""",
}
_TOGETHER = """
total = client.allreduce(torch.ones(3), op=basin.Sum)
assert total.tolist() == [2.0] * 3, total
import basin.tensorflow
total = basin.tensorflow.allreduce(client, tf.ones([3]), op=basin.Sum)
assert total.numpy().tolist() == [2.0] * 3, total
client.close()
print("worked")
"""
_PRELOADED = ["try:"]
_REFUSED = ["    import basin.tensorflow", "except ImportError as error:", "    print(error)"]


class Orders(unittest.TestCase):
    def test_every_order_of_loading(self) -> None:
        for order in itertools.permutations(_USE):
            with self.subTest(order), tempfile.TemporaryDirectory() as made:
                script = Path(made) / "load.py"
                script.write_text("".join(_USE[each] for each in order) + _TOGETHER)
                text = as_workers(script, Path(made))
                self.assertEqual(WORKERS, text.count("worked"), text)

    def test_an_error_says_what_keeps_them_apart(self) -> None:
        for order in (("tensorflow", "basin"), ("basin", "tensorflow")):
            with self.subTest(order), tempfile.TemporaryDirectory() as made:
                script = Path(made) / "load.py"
                imports = [f"    import {each}" for each in order]
                script.write_text("\n".join([*_PRELOADED, *imports, *_REFUSED]))
                text = as_workers(script, Path(made), LD_PRELOAD="libm.so.6")
                self.assertEqual(WORKERS, text.count("LD_PRELOAD is libm.so.6"), text)


if __name__ == "__main__":
    main()
