# Copyright 2026 The Basin Authors. SPDX-License-Identifier: Apache-2.0
"""basin.tensorflow: two workers train what one process trains with their batch, also within
tf.function.

Usage: test_tensorflow.py BASIND LIBBASIN
"""

from framework_jobs import FrameworkTest, main, require_frameworks

require_frameworks("tensorflow", "keras", "sklearn")


class TensorFlow(FrameworkTest):
    script = "train_tensorflow.py"

    def test_a_compiled_training_is_that_of_one_process(self) -> None:
        self.assert_equal_to_one_process("plain", 1e-12)
        self.assert_trained("plain")

    def test_an_eager_training(self) -> None:
        self.assert_equal_to_one_process("eager", 1e-12)
        self.assert_trained("eager")

    def test_a_tape_that_records(self) -> None:
        self.assert_equal_to_one_process("recorded", 1e-12)

    def test_slices_that_are_made_dense(self) -> None:
        self.assert_equal_to_one_process("dense", 1e-12)
        self.assert_trained("dense")

    def test_gradients_that_are_sent_as_float16(self) -> None:
        self.assert_equal_to_one_process("half", 1e-2)

    def test_options(self) -> None:
        self.assert_equal_to_one_process("scaled", 1e-12)


if __name__ == "__main__":
    main()
