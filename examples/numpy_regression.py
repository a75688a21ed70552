# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""A linear regression with NumPy, its gradient averaged over several workers.

    basin-run -n 3 -- python examples/numpy_regression.py

Each worker has data of its own; all find the same weights, to the last bit.
"""

import basin
import numpy as np

TRUE_WEIGHTS = np.array([1.0, -2.0, 3.0])


def main() -> None:
    with basin.connect() as client:
        rng = np.random.default_rng(client.rank)
        features = rng.normal(size=(200, 3))
        targets = features @ TRUE_WEIGHTS
        weights = np.zeros(3)
        for _ in range(300):
            gradient = 2 * features.T @ (features @ weights - targets) / len(targets)
            weights -= 0.1 * client.allreduce(gradient, "gradient", op=basin.Average)
        text = ", ".join(f"{weight:.3f}" for weight in weights)
        print(f"weights [{text}], bits {weights.tobytes().hex()}")


if __name__ == "__main__":
    main()
