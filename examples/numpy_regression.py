# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""A linear regression with NumPy, whose gradient is averaged over several workers.

    basin-run -n 3 -- python examples/numpy_regression.py

Each worker has different data; all find the same coefficients, to the last bit. After SIGTERM a
worker finishes its step and leaves, with the exit code 143.
"""

import basin
import numpy as np

TRUE_COEFFICIENTS = np.array([1.0, -2.0, 3.0])


def main(leaving: object) -> None:
    with basin.connect() as client:
        rng = np.random.default_rng(client.rank)
        features = rng.normal(size=(200, 3))
        targets = features @ TRUE_COEFFICIENTS
        coefficients = np.zeros(3)
        for _ in range(300):
            if leaving:
                return
            gradient = 2 * features.T @ (features @ coefficients - targets) / len(targets)
            coefficients -= 0.1 * client.allreduce(gradient, "gradient", op=basin.Average)
        text = ", ".join(f"{each:.3f}" for each in coefficients)
        print(f"coefficients [{text}], bits {coefficients.tobytes().hex()}")


if __name__ == "__main__":
    with basin.leave_on_sigterm() as leaving:
        main(leaving)
