# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""scripts/make-sbom.py finds the libraries in a wheel by the names that they had before.

The test of a release uses a real wheel, but runs only at night.
"""

import tempfile
import unittest
import zipfile
from pathlib import Path

from loading import load

make_sbom = load("make-sbom.py")

# What auditwheel calls a copy, and the file that it copied.
COPIES = {
    "basin_client.libs/libgrpc++-0a1b2c3d.so.1.51.1": "libgrpc++.so.1.51.1",
    "basin_client.libs/libevent_core-2-62ef2b91.1.so.7.0.1": "libevent_core-2.1.so.7.0.1",
    "basin_client.libs/libabsl_log-deadbeef-98b9d995.so.20220623.0.0": (
        "libabsl_log-deadbeef.so.20220623.0.0"
    ),
}


class Wheel(unittest.TestCase):
    def test_copies_have_their_former_names(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            wheel = Path(folder) / "basin_client-0.1.0-py3-none-any.whl"
            with zipfile.ZipFile(wheel, "w") as archive:
                for name in (*COPIES, "basin/libbasin.so.2", "basin/__init__.py"):
                    archive.writestr(name, "")
            self.assertEqual(COPIES, make_sbom.libraries_in(wheel))


if __name__ == "__main__":
    unittest.main()
